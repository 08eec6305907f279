"""The network of a lane: the machine of its tasks, and behind one link the servers that stand in for real services.

    tasks, with resolv.conf, hosts and authorities of their own ──veth──▶ servers and name server (services.py)

Started as root in fresh mount and network namespaces:

    network.py BASE LOG HOME      BASE: an empty directory; LOG: what was asked is written there; HOME: of the lane

Every route leads to the servers, which forward nothing. When all of it is there, one line of JSON says which services
are, and what the others lack; tasks then join the namespaces of this process. All ends with its standard input."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# The test world of the egress gateway has the same name server, of other names.
sys.path[1:1] = [f"{HERE}/../../egress/world"]

import addresses
import authorities
from fixtures import call, write


def ip(*lines):
    call("ip", "-batch", "-", input="\n".join(lines).encode())


def bind(source, target):
    call("mount", "--bind", source, os.path.realpath(target))


def accounts(home):
    """The machine's accounts, with that home for the users of tasks."""
    with open("/etc/passwd") as file:
        lines = [line.rstrip("\n").split(":") for line in file]
    return "".join(":".join([*line[:5], home, "/bin/bash"] if line[2] in ("0", "65534") else line) + "\n" for line in lines if len(line) == 7)


def main():
    base, log, home = sys.argv[1:]
    mounts = [*authorities.Authority(base).trusted(home), *authorities.go_program(base)]
    with open(log, "wb") as errors:
        servers = subprocess.Popen(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", sys.executable, "-B", f"{HERE}/services.py", base],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )
    if servers.stdout.readline() != b"namespaces\n":
        raise SystemExit(f"the servers did not start: {log}")
    ip("link set lo up", f"link add veth0 type veth peer name veth1 netns {servers.pid}",
       f"addr add {addresses.MACHINE}/30 dev veth0", "link set veth0 up",
       f"route add default via {addresses.SERVERS} src {addresses.MACHINE}")
    servers.stdin.write(b"link\n")
    servers.stdin.flush()
    # The machine's own name server is not there, and its list of hosts may have names of the stand-ins.
    bind(write(f"{base}/resolv.conf", f"nameserver {addresses.RESOLVER}\n"), "/etc/resolv.conf")
    bind(write(f"{base}/hosts", "127.0.0.1 localhost\n::1 localhost\n"), "/etc/hosts")
    # What looks for its home there, as ssh and Java do, finds the lane's and not the machine's.
    bind(write(f"{base}/machine-passwd", accounts(home)), "/etc/passwd")
    for source, target in mounts:
        bind(source, target)
    ready = servers.stdout.readline()
    json.loads(ready or "null") or sys.exit(f"the servers did not start: {log}")
    sys.stdout.write(ready.decode())
    sys.stdout.flush()
    # The servers end with theirs.
    sys.stdin.read()


if __name__ == "__main__":
    main()
