"""The record: every packet that left W for the servers, every packet on W's own loopback, and what servers were asked.

One file of JSON lines that all processes of the world append to. A packet is recorded where it arrives, by a packet
socket, so that what no server answers is seen as well. A run's part of the record is complete when the marker that was
sent after its end has arrived on each interface."""

import json
import os
import socket
import struct
import threading

MARKER_PORT = 9
# Of each segment and of each flow in all: greetings, names and requests are in there, downloads are not of interest.
SEGMENT_BYTES, FLOW_BYTES = 2048, 32768
OUTGOING = 4
PROTOCOLS = {1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 33: "dccp", 58: "icmp6", 132: "sctp", 136: "udplite"}
# What IPv6 says by itself on a link: neighbour and router discovery, multicast listeners.
LINK = {130, 131, 132, 133, 134, 135, 136, 143}


class Record:
    """The file, opened for appending by every process."""

    def __init__(self, path):
        self.path = path
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, **entry):
        os.write(self.file, (json.dumps(entry) + "\n").encode())

    def size(self):
        return os.fstat(self.file).st_size

    def since(self, offset):
        with open(self.path, "rb") as file:
            file.seek(offset)
            return [json.loads(line) for line in file.read().split(b"\n") if line.endswith(b"}")]


def watch(record, interface, on):
    """Records what arrives on an interface of the caller's network namespace, from a thread."""
    sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
    sniffer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 20)
    sniffer.bind((interface, 0x0003))
    threading.Thread(target=_watch, args=(sniffer, record, on), daemon=True).start()
    return sniffer


def dropped(sniffer):
    """How many packets the kernel could not hand over since this was last asked."""
    return struct.unpack("II", sniffer.getsockopt(263, 6, 8))[1]


def _watch(sniffer, record, on):
    flows = {}
    while True:
        packet, (_, kind, direction, *_) = sniffer.recvfrom(65535)
        if direction == OUTGOING:
            continue
        parsed = parse(packet, kind)
        if parsed is None:
            continue
        protocol, source, target, payload = parsed
        entry = {"on": on, "protocol": protocol, "from": source, "to": target}
        if protocol == "tcp":
            sport, port, _, _, offset, flags = struct.unpack(">HHIIBB", payload[:14])
            data = payload[(offset >> 4) * 4 :]
            flow = (source, sport, target, port)
            if flags & 2 and not flags & 16:
                record.add(**entry, port=port, what="syn", data="")
                flows[flow] = 0
                if data == b"":
                    continue
            if data and flow in flows and flows[flow] < FLOW_BYTES:
                flows[flow] += len(data)
                record.add(**entry, port=port, what="data", data=data[:SEGMENT_BYTES].decode("latin-1"))
        elif protocol in ("udp", "udplite"):
            sport, port = struct.unpack(">HH", payload[:4])
            # Answers of the name server to W come over the other interface only; what W's own servers send is theirs.
            record.add(**entry, port=port, what="datagram", data=payload[8 : 8 + SEGMENT_BYTES].decode("latin-1"))
        elif protocol == "icmp6" and payload[0] in LINK:
            continue
        elif protocol == "igmp":
            continue
        elif protocol in ("icmp", "icmp6") and (payload[0] == 3 if protocol == "icmp" else payload[0] < 128):
            # The kernel's own word that something could not be delivered.
            continue
        else:
            record.add(**entry, port=0, what="packet", data=payload[:SEGMENT_BYTES].decode("latin-1"))


def parse(packet, kind):
    if kind == 0x0800 and len(packet) >= 20:
        header = (packet[0] & 15) * 4
        protocol, source, target = packet[9], packet[12:16], packet[16:20]
        name = lambda raw: socket.inet_ntop(socket.AF_INET, raw)
        length = struct.unpack(">H", packet[2:4])[0]
        payload = packet[header : length or None]
    elif kind == 0x86DD and len(packet) >= 40:
        protocol, source, target, payload = packet[6], packet[8:24], packet[24:40], packet[40:]
        name = lambda raw: socket.inet_ntop(socket.AF_INET6, raw)
        if protocol == 0:  # Hop-by-hop options stand before the protocol: multicast listeners.
            protocol, payload = payload[0], payload[(payload[1] + 1) * 8 :]
    elif kind == 0x0806:
        return None
    else:
        return f"ethertype {kind:#06x}", "", "", packet
    return PROTOCOLS.get(protocol, f"protocol {protocol}"), name(source), name(target), payload
