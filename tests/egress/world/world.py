"""The test world: a host for the command ("W") and the servers of an internet of its own ("S"), in network namespaces.

    W: the command, its resolv.conf, hosts and authorities, its own loopback ──veth──▶ S: servers, name server, record

Started in fresh mount and network namespaces, as root or with a user namespace around them:

    world.py BASE SOURCES      BASE is an empty directory of the caller's, SOURCES what is compiled for use inside

Every route of W leads to S, and S forwards nothing, so that whatever leaves W is seen and goes no further. Requests come
as JSON lines on standard input, {"id", "argv", "env", "cwd", "timeout", "stdin"}; each is run in W without the privileges
that the world was given, and answered by {"id", "code", "hung", "stdout", "stderr", "seen"} or {"id", "error"}. The
world ends with its standard input."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import addresses
import dns
import fixtures
import record
import servers

NEWNS, NEWPID, NEWNET = 0x00020000, 0x20000000, 0x40000000
H2_PORT = 8444
libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags):
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "cannot unshare")


def bind(source, target):
    target = os.path.realpath(target)
    if not os.path.exists(target):
        raise RuntimeError(f"{target} does not exist, and nothing can be mounted over it")
    if libc.mount(source.encode(), target.encode(), None, 4096, None):
        raise OSError(ctypes.get_errno(), f"cannot bind {source} over {target}")


def ip(*lines):
    fixtures.call("ip", "-batch", "-", input="\n".join(lines).encode())


def sysctl(name, value):
    with open(f"/proc/sys/net/{name}", "w") as file:
        file.write(value)


def quiet(interface):
    """No duplicate detection (addresses are there at once), no routers."""
    sysctl(f"ipv6/conf/{interface}/accept_dad", "0")
    sysctl(f"ipv6/conf/{interface}/accept_ra", "0")


def main():
    base, sources = sys.argv[1:]
    made = fixtures.Fixtures(base)
    made.certificates()
    made.repository()
    made.wheel()
    made.npm_package()
    made.accounts(os.getuid(), os.getgid())
    made.for_the_command()
    made.java(sources)
    made.static_program(sources)
    log = record.Record(f"{base}/record")
    queue = threading_pipe()
    child = os.fork()
    if child == 0:
        serve(made, log, queue)
    ready, go = queue
    os.close(ready[1])
    await_word(ready[0], b"namespace")
    ip("link set lo up", f"link add veth0 type veth peer name veth1 netns {child}")
    quiet("veth0")
    ip("link set veth0 up", f"addr add {addresses.W4}/30 dev veth0", f"addr add {addresses.OWN}/32 dev veth0",
       f"addr add {addresses.W6}/64 dev veth0 nodad")
    os.write(go[1], b"link\n")
    await_word(ready[0], b"servers")
    ip(f"route add default via {addresses.S4} src {addresses.W4}", f"route add default via {addresses.S6}")
    os.close(go[0])
    bind(f"{base}/resolv.conf", "/etc/resolv.conf")
    bind(f"{base}/hosts", "/etc/hosts")
    bind(made.trusted, "/etc/ssl/certs")
    sniffer = record.watch(log, "lo", "lo")
    servers.Servers(log, made.www, made.certificate, made.key).start()
    for name in (f"{base}/socket", "\0cofferdam-egress-world"):
        servers.unix(name)
    Runner(log, base, sniffer).run()


def threading_pipe():
    return os.pipe(), os.pipe()


def await_word(fd, word):
    said = b""
    while not said.endswith(b"\n"):
        got = os.read(fd, 1)
        if not got:
            raise RuntimeError(f"the servers ended before {word!r}")
        said += got
    if said.strip() != word:
        raise RuntimeError(f"the servers said {said!r} instead of {word!r}")


def serve(made, log, queue):
    """S: processes of its own, in a process namespace that ends with the world."""
    try:
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)
        ready, go = queue
        os.close(ready[0])
        os.close(go[1])
        unshare(NEWNS | NEWNET | NEWPID)
        first = os.fork()
        if first:
            os.write(ready[1], b"namespace\n")
            os.close(ready[1])
            os.waitpid(first, 0)
            os._exit(1)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)
        await_word(go[0], b"link")
        bind(f"{made.base}/passwd", "/etc/passwd")
        quiet("veth1")
        sysctl("ipv4/ip_forward", "0")
        # Every address on earth is here, so that whatever leaves W reaches somebody who answers.
        lines = ["link set lo up", "link set veth1 up", f"addr add {addresses.S4}/30 dev veth1",
                 f"addr add {addresses.S6}/64 dev veth1 nodad"]
        lines += ["route add local 0.0.0.0/0 dev lo table main", "route add local ::/0 dev lo table main"]
        ip(*lines)
        sniffer = record.watch(log, "veth1", "out")
        dns.serve([addresses.RESOLVER, addresses.PUBLIC_DNS], ZONE)
        servers.datagrams()
        servers.Servers(log, made.www, made.certificate, made.key).start()
        subprocess.Popen(["dropbear", "-F", "-E", "-r", f"{made.base}/hostkey", "-p", "22", "-s", "-j", "-k"],
                         stdin=subprocess.DEVNULL, stderr=open(f"{made.base}/dropbear.log", "wb"))
        h2 = subprocess.Popen(["node", f"{os.path.dirname(os.path.abspath(__file__))}/h2.mjs", made.certificate, made.key,
                               log.path, str(H2_PORT)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        if h2.stdout.readline() != b"ready\n":
            raise RuntimeError("the HTTP/2 server did not start")
        os.write(ready[1], b"servers\n")
        while True:
            time.sleep(1)
            lost = record.dropped(sniffer)
            if lost:
                log.add(on="out", protocol="lost", to="", port=0, what="lost", data=str(lost))
    except BaseException as error:
        sys.stderr.write(f"the servers cannot be started: {error!r}\n")
    finally:
        os._exit(1)


ZONE = dns.Zone()


class Runner:
    """Runs what it is asked to in W, each request in a thread of its own."""

    def __init__(self, log, base, sniffer):
        self.log = log
        self.base = base
        self.sniffer = sniffer
        self.lock = threading.Lock()
        self.prefix = [] if os.getuid() == 0 else ["setpriv", "--ambient-caps=-all", "--inh-caps=-all", "--"]

    def run(self):
        self.say({"ready": True})
        for line in sys.stdin:
            request = json.loads(line)
            threading.Thread(target=self.one, args=(request,), daemon=True).start()
        os._exit(0)

    def say(self, reply):
        with self.lock:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()

    def one(self, request):
        try:
            reply = self.answer(request)
        except Exception as error:
            reply = {"error": repr(error)}
        self.say({"id": request["id"], **reply})

    def answer(self, request):
        since = self.log.size()
        stdin = request.get("stdin", "").encode()
        process = subprocess.Popen(
            self.prefix + request["argv"], env=request["env"], cwd=request["cwd"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        hung = False
        try:
            out, err = process.communicate(stdin, timeout=request["timeout"])
        except subprocess.TimeoutExpired:
            hung = True
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        self.settle(since)
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        seen = [entry for entry in self.log.since(since) if entry.get("port") != record.MARKER_PORT]
        return {
            "code": code, "hung": hung, "stdout": out.decode(errors="replace"), "stderr": err.decode(errors="replace"),
            "seen": seen,
        }

    def settle(self, since):
        """Returns when the record has everything that was sent before."""
        token = uuid.uuid4().hex
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marker:
            marker.sendto(token.encode(), (addresses.S4, record.MARKER_PORT))
            marker.sendto(token.encode(), ("127.0.0.1", record.MARKER_PORT))
        late = time.monotonic() + 10
        while True:
            arrived = [entry["on"] for entry in self.log.since(since) if entry.get("data") == token]
            if "out" in arrived and "lo" in arrived:
                break
            if time.monotonic() > late:
                raise RuntimeError("the record does not see what is sent")
            time.sleep(0.002)
        if lost := record.dropped(self.sniffer):
            raise RuntimeError(f"the record lost {lost} packets")


if __name__ == "__main__":
    main()
