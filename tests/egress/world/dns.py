"""The name server of the test world: says what `addresses.ZONE` has it say, lies included. Records nothing itself:
the packets do that."""

import ipaddress
import socket
import struct
import threading
import time

import addresses

A, CNAME, PTR, TXT, AAAA = 1, 5, 12, 16, 28
SLOW_SECONDS = 3


class Zone:
    """The zone, with how many queries of each name and type there were."""

    def __init__(self):
        self.lock = threading.Lock()
        self.asked = {}

    def addresses(self, name, kind):
        entry = addresses.ZONE.get(name)
        if not isinstance(entry, list):
            return []
        if entry and isinstance(entry[0], list):
            with self.lock:
                turn = self.asked.get((name, kind), 0)
                self.asked[name, kind] = turn + 1
            entry = entry[min(turn, len(entry) - 1)]
        version = 4 if kind == A else 6
        return [ipaddress.ip_address(text) for text in entry if ipaddress.ip_address(text).version == version]

    def reset(self):
        with self.lock:
            self.asked.clear()


def question(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    return ".".join(labels), kind, query[12 : at + 5]


def encoded(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def answer(zone, query):
    """The answer to one query, or None for silence."""
    name, kind, asked = question(query)
    entry = addresses.ZONE.get(name)
    if entry == "never":
        return None
    if entry == "slow":
        time.sleep(SLOW_SECONDS)
        found = [ipaddress.ip_address(addresses.ALLOWED)] if kind == A else []
        return reply(query, asked, [record(b"\xc0\x0c", kind, one.packed) for one in found])
    if entry == "broken":
        return query[:2] + b"\x81\x80\xff\xff\xff\xff" + b"\xc0" * 40
    if entry is None or entry == "nxdomain":
        return reply(query, asked, [], code=3)
    records, owner = [], b"\xc0\x0c"
    if isinstance(entry, str):
        target = entry.split()[1]
        records.append(record(owner, CNAME, encoded(target)))
        name, owner = target, encoded(target)
    if kind in (A, AAAA):
        records += [record(owner, kind, one.packed) for one in zone.addresses(name, kind)]
    return reply(query, asked, records)


def record(owner, kind, data):
    # A lifetime of nothing: who wants to cache it must not.
    return owner + struct.pack(">HHIH", kind, 1, 0, len(data)) + data


def reply(query, asked, records, code=0):
    return query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(records), 0, 0) + asked + b"".join(records)


def serve(addresses_here, zone):
    for address in addresses_here:
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # The address need not be one of an interface: all of them are local here.
        datagrams.bind((address, 53))
        threading.Thread(target=_datagrams, args=(datagrams, zone), daemon=True).start()
        streams = socket.create_server((address, 53))
        threading.Thread(target=_streams, args=(streams, zone), daemon=True).start()


def _datagrams(server, zone):
    def one(query, peer):
        try:
            reply_ = answer(zone, query)
        except (IndexError, struct.error):
            return
        if reply_ is not None:
            server.sendto(reply_, peer)

    while True:
        query, peer = server.recvfrom(4096)
        threading.Thread(target=one, args=(query, peer), daemon=True).start()


def _streams(server, zone):
    def one(connection):
        with connection:
            try:
                length = struct.unpack(">H", connection.recv(2, socket.MSG_WAITALL))[0]
                reply_ = answer(zone, connection.recv(length, socket.MSG_WAITALL))
                if reply_ is not None:
                    connection.sendall(struct.pack(">H", len(reply_)) + reply_)
            except (OSError, IndexError, struct.error):
                return

    while True:
        connection, _ = server.accept()
        threading.Thread(target=one, args=(connection,), daemon=True).start()
