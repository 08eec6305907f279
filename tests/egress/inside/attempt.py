"""One attempt to get out, made inside a sandbox: `attempt.py VERB [NAME=VALUE …]`.

Prints what the other side said, as it was said, and on standard error why nothing came. Whether that was a success is
for whoever started it to judge. Values may have `\\r`, `\\n`, `\\0`, `\\t` and `\\xHH`."""

import errno
import os
import socket
import ssl
import struct
import sys
import time

import hello as tls_hello

PATIENCE = 4


def unescape(text):
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1")


def name_of(error):
    number = getattr(error, "errno", None)
    code = errno.errorcode.get(number, "") if isinstance(number, int) and number > 0 else ""
    return f"{type(error).__name__} {code} {error}"


def out(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def connect(to, port, patience=PATIENCE):
    return socket.create_connection((to, int(port)), patience)


def as_host(to):
    """A name or address as the Host of a request has it."""
    return f"[{to}]" if ":" in to else to


def read_all(connection, until=None):
    """What comes until the end, silence, or these bytes."""
    got = b""
    try:
        while until is None or until not in got:
            part = connection.recv(65536)
            if not part:
                break
            got += part
            # Answers here are short; who keeps the connection open has said everything.
            connection.settimeout(0.3)
    except TimeoutError:
        pass
    except OSError as error:
        sys.stderr.write(f"after {len(got)} bytes: {name_of(error)}\n")
    return got


def request(host, path, method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("latin-1")


def http(to, port="80", host=None, path="/", method="GET", patience=PATIENCE):
    """A request in the clear to an address or name, with any Host."""
    with connect(to, port, float(patience)) as connection:
        connection.sendall(request(host or as_host(to), path, method))
        out(read_all(connection))


def raw(to, port, send, pause="", then="", half="no"):
    """Bytes as they are; after a pause, more of them."""
    with connect(to, port) as connection:
        connection.sendall(unescape(send))
        if pause:
            time.sleep(float(pause))
        if then:
            try:
                connection.sendall(unescape(then))
            except OSError as error:
                sys.stderr.write(f"the second part: {name_of(error)}\n")
        if half == "yes":
            connection.shutdown(socket.SHUT_WR)
        out(read_all(connection))


def http_often(to, count, port="80", path="/"):
    """The same request in as many connections."""
    for _ in range(int(count)):
        try:
            http(to, port, None, path)
        except OSError as error:
            sys.stderr.write(f"{name_of(error)}\n")


def flood(to, size, path="/"):
    """A request with a field of so many bytes."""
    with connect(to, 80) as connection:
        try:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\nX-Field: ".encode())
            connection.sendall(b"x" * int(size) + b"\r\n\r\n")
        except OSError as error:
            sys.stderr.write(f"{name_of(error)}\n")
        out(read_all(connection))


def unverified():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def tls(to, port="443", sni=None, host=None, path="/", alpn=None):
    """HTTP over TLS, with any server name or none, and any Host."""
    context = unverified()
    if alpn:
        context.set_alpn_protocols(alpn.split(","))
    with connect(to, port) as connection, context.wrap_socket(connection, server_hostname=sni) as secure:
        secure.sendall(request(host or sni or to, path))
        out(read_all(secure))


def greet_again(to, name, other, records="16384", before="", port="443"):
    """A TLS greeting after which the server asks for another one (HelloRetryRequest), which names another host; says
    `server hello` when that was taken."""
    first, second = ([tls_hello.server_name(one.encode())] if one else [] for one in (name, other))
    with connect(to, port) as connection:
        connection.sendall(tls_hello.records(tls_hello.versioned(first)))
        got = connection.recv(65536)
        if got[:1] != b"\x16" or got[11:15] != b"\xcf\x21\xad\x74":
            sys.stderr.write(f"no request for another greeting: {got[:64]!r}\n")
            return
        again = tls_hello.records(tls_hello.versioned(second, os.urandom(32)), int(records))
        connection.sendall(unescape(before) + again)
        got = read_all(connection)
    if b"\x16\3\3" in got and got[got.index(b"\x16\3\3") + 5] == 2:
        print("server hello")
    else:
        sys.stderr.write(f"answered by {got[:64]!r}\n")


def greet(to, shape, name="", other="", port="443"):
    """A TLS greeting of an unusual shape; says `server hello` when one came back."""
    first, second = name.encode(), other.encode()
    plain = [tls_hello.server_name(first)] if first else []
    message = tls_hello.hello(plain)
    segments = [tls_hello.records(message)]
    if shape == "segments":
        whole = segments[0]
        segments = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    elif shape == "records":
        segments = [tls_hello.records(message, 5)]
    elif shape == "both":
        whole = tls_hello.records(message, 3)
        segments = [whole[at : at + 2] for at in range(0, len(whole), 2)]
    elif shape == "grease":
        segments = [tls_hello.records(tls_hello.hello([*plain, tls_hello.encrypted_hello_shape()]))]
    elif shape == "two names":
        segments = [tls_hello.records(tls_hello.hello([tls_hello.server_name(first, second)]))]
    elif shape == "two extensions":
        both = [tls_hello.server_name(first), tls_hello.server_name(second)]
        segments = [tls_hello.records(tls_hello.hello(both))]
    elif shape == "other kind":
        both = [tls_hello.server_name(first, kind=7)]
        segments = [tls_hello.records(tls_hello.hello(both))]
    elif shape == "padded":
        segments = [tls_hello.records(tls_hello.hello(plain, padding=12000), 4096)]
    elif shape == "nul":
        segments = [tls_hello.records(tls_hello.hello([tls_hello.server_name(first + b"\0" + second)]))]
    elif shape == "empty record first":
        segments = [b"\x16\3\1\0\0" + segments[0]]
    elif shape == "alert first":
        segments = [b"\x15\3\1\0\2\1\0" + segments[0]]
    elif shape == "version 2":
        body = b"\1\3\3" + struct.pack(">HHH", 9, 0, 16) + b"\0\xc0\x2b\0\xc0\x09\0\0\xff" + os.urandom(16)
        segments = [struct.pack(">H", 0x8000 | len(body)) + body + segments[0]]
    elif shape != "plain":
        raise SystemExit(f"no shape {shape!r}")
    with connect(to, port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for segment in segments:
            connection.sendall(segment)
            if len(segments) > 1:
                time.sleep(0.001)
        got = read_all(connection)
    if got[:1] == b"\x16" and got[5:6] == b"\2":
        print("server hello")
    else:
        sys.stderr.write(f"no server hello, but {got[:40]!r}\n")


def through_connect(target, port="80", host=None, path="/", proxy="127.0.0.1:3128", sni=None, twice=""):
    """An HTTP CONNECT to any target; then a request, in TLS where a server name is given; `twice` is a second CONNECT,
    made inside the first."""
    where, at = proxy.rsplit(":", 1)
    with connect(where.strip("[]"), at) as connection:
        line = b"CONNECT " + unescape(target) + b" HTTP/1.1\r\nHost: " + unescape(target) + b"\r\n\r\n"
        connection.sendall(line)
        answer = read_all(connection, b"\r\n\r\n")
        status = answer.split(b"\r\n")[0]
        if b" 200" not in status:
            sys.stderr.write(f"the proxy said {status!r}\n")
            return
        connection.settimeout(PATIENCE)
        if twice:
            connection.sendall(b"CONNECT " + unescape(twice) + b" HTTP/1.1\r\nHost: " + unescape(twice) + b"\r\n\r\n")
        if sni is not None:
            connection = unverified().wrap_socket(connection, server_hostname=sni or None)
        connection.sendall(request(host or "allowed.test", path))
        out(read_all(connection))


def socks5(kind, to, port="80", host=None, path="/", command="1", sni=None, proxy="127.0.0.1:1080"):
    """A SOCKS5 request by name, IPv4 or IPv6 address; then an HTTP request."""
    where, at = proxy.rsplit(":", 1)
    with connect(where, at) as connection:
        connection.sendall(b"\5\1\0")
        chosen = read_all(connection, b"\5\0")
        if chosen != b"\5\0":
            sys.stderr.write(f"the greeting was answered by {chosen!r}\n")
            return
        if kind == "name":
            name = unescape(to)
            address = b"\3" + bytes([len(name)]) + name
        else:
            family = socket.AF_INET if kind == "4" else socket.AF_INET6
            address = (b"\1" if kind == "4" else b"\4") + socket.inet_pton(family, to)
        connection.settimeout(PATIENCE)
        connection.sendall(b"\5" + bytes([int(command)]) + b"\0" + address + struct.pack(">H", int(port)))
        answer = connection.recv(64)
        if answer[:2] != b"\5\0":
            sys.stderr.write(f"socks answered {answer!r}\n")
            return
        if command != "1":
            print("socks accepted")
            return
        if sni is not None:
            connection = unverified().wrap_socket(connection, server_hostname=sni or None)
        connection.sendall(request(host or to, path))
        out(read_all(connection))


def socks4(to, port="80", name="", path="/"):
    """A SOCKS4 (or, with a name, 4a) request."""
    with connect("127.0.0.1", 1080) as connection:
        line = b"\4\1" + struct.pack(">H", int(port)) + socket.inet_aton(to) + b"\0"
        connection.sendall(line + (name.encode() + b"\0" if name else b""))
        answer = read_all(connection)
        if answer[1:2] != b"\x5a":
            sys.stderr.write(f"socks answered {answer!r}\n")
            return
        connection.sendall(request(name or to, path))
        out(read_all(connection))


def datagram(to, port, send="canary", kind="plain", source="0"):
    """A datagram (UDP, or UDP-Lite); what comes back is printed."""
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    protocol = {"plain": 0, "lite": 136}[kind]
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as sender:
        sender.settimeout(1)
        if source != "0":
            sender.bind(("", int(source)))
        data = unescape(send)
        if port == "443":
            # A QUIC long header, as the first packet of HTTP/3 has.
            data = b"\xc3\0\0\0\1\x08" + os.urandom(8) + b"\0" + data + bytes(1150)
        sender.sendto(data, (to, int(port)))
        out(sender.recv(65535))


def made(family, kind, protocol):
    return socket.socket(getattr(socket, family, None) or int(family), getattr(socket, kind), int(protocol))


def other_socket(family, kind, protocol, to="", port="0", send="canary"):
    """A socket of another family or protocol, used to send."""
    with made(family, kind, protocol) as sender:
        sender.settimeout(2)
        if family == "AF_VSOCK":
            sender.connect((2, int(port)))
        elif family == "AF_PACKET":
            sender.bind(("lo", 0x0800))
            sender.send(unescape(send) * 20)
        elif kind == "SOCK_RAW" and protocol == "1":
            sender.sendto(b"\x08\0\xf7\xff\0\0\0\0" + unescape(send), (to, 0))
        elif kind == "SOCK_DGRAM":
            sender.sendto(b"\x08\0\xf7\xff\0\0\0\0" + unescape(send), (to, 0))
        elif kind == "SOCK_RAW":
            sender.sendto(unescape(send), (to, 0))
        else:
            sender.connect((to, int(port)))
            sender.sendall(request(to, "/" + send))
            out(read_all(sender))
            return
    print("sent")


def multipath(to, port="80", host=None, path="/"):
    """A multipath TCP socket, which is another protocol to the kernel's filters."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as connection:
        connection.settimeout(PATIENCE)
        connection.connect((socket.gethostbyname(to), int(port)))
        connection.sendall(request(host or to, path))
        out(read_all(connection))


def fast_open(to, port="80", host=None, path="/"):
    """TCP fast open: the first bytes and the connection in one call."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        # A time limit of Python's would make the socket one that does not wait, and the call another one.
        connection.sendto(request(host or to, path), 0x20000000, (socket.gethostbyname(to), int(port)))
        connection.settimeout(PATIENCE)
        out(read_all(connection))


def query(name, kind="1", server="", over="udp", port="53"):
    """A DNS query of one's own; prints the code and the number of answers, and the addresses in them."""
    server = server or nameserver()
    labels = b"".join(bytes([len(label)]) + label for label in unescape(name).split(b".") if label)
    message = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + labels + b"\0" + struct.pack(">HH", int(kind), 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    if over == "udp":
        with socket.socket(family, socket.SOCK_DGRAM) as client:
            client.settimeout(PATIENCE)
            client.sendto(message, (server, int(port)))
            reply, peer = client.recvfrom(65535)
            print("from", peer[0])
    else:
        with connect(server, port) as client:
            client.sendall(struct.pack(">H", len(message)) + message)
            reply = read_all(client)[2:]
    if len(reply) < 12:
        sys.stderr.write(f"no answer: {reply!r}\n")
        return
    answers = struct.unpack(">H", reply[6:8])[0]
    print(f"code {reply[3] & 15} answers {answers}")
    if answers and kind in ("1", "28"):
        size = 4 if kind == "1" else 16
        print("address", socket.inet_ntop(socket.AF_INET if size == 4 else socket.AF_INET6, reply[-size:]))


def nameserver():
    with open("/etc/resolv.conf") as file:
        for line in file:
            if line.startswith("nameserver "):
                return line.split()[1]
    raise SystemExit("resolv.conf names no server")


def sweep(name, host, path="/"):
    """Having asked for one name, connects to the first synthetic addresses there are, for another host."""
    socket.getaddrinfo(name, 80)
    for last in range(16):
        try:
            http(f"198.18.0.{last}", "80", host, path)
        except OSError as error:
            sys.stderr.write(f"{name_of(error)}\n")


def hold(name, seconds, port="5000"):
    """A connection that is there for a while, and a process that would keep it beyond the end."""
    with connect(name, port) as connection:
        # Not letters alone, which could still become an HTTP request.
        connection.sendall(b"\0held")
        out(connection.recv(4096))
        if os.fork() == 0:
            os.setsid()
        time.sleep(float(seconds))


def take_port(port, address="0.0.0.0"):
    """Listens where the gateway does, to get its connections."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((address, int(port)))
        listener.listen()
    print("taken")


def take_datagrams(port="53", address="0.0.0.0"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taker.bind((address, int(port)))
    print("taken")


def bind_source(address, to, port="80", path="/"):
    """A connection from the address of another machine."""
    with socket.create_connection((to, int(port)), PATIENCE, (address, 0)) as connection:
        connection.sendall(request(to, path))
        out(read_all(connection))


def unix(name):
    """Connects to a Unix socket, by path or (with @) abstract."""
    address = "\0" + name[1:] if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(address)
        out(read_all(connection))


def interface():
    """Makes an interface of one's own: /dev/net/tun."""
    import fcntl

    with open("/dev/net/tun", "r+b", buffering=0) as tun:
        fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH", b"out", 0x1001))
    print("changed")


def enter(kind="net", pid="1"):
    """Joins a namespace of init's (or of whoever else)."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/{kind}") as namespace:
        if libc.setns(namespace.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
    print("changed")


def namespaces():
    """A user and network namespace of one's own, where one would be an administrator."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000 | 0x40000000):
        raise OSError(ctypes.get_errno(), "unshare")
    print("changed")


def descriptors(pid="1"):
    """Reads what init has open, where the gateway's sockets once were."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        print("holds", os.readlink(f"/proc/{pid}/fd/{name}"))


def steal(pid="1"):
    """Duplicates descriptors of init's (pidfd_getfd)."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    # 0 is the program itself, of whose descriptors it may have any.
    handle = os.pidfd_open(int(pid) or os.getpid())
    for number in range(64):
        if libc.syscall(438, handle, number, 0) >= 0:
            print("holds", number)
            return
    raise OSError(ctypes.get_errno(), "pidfd_getfd")


def own_descriptors():
    """What the program itself inherited: sockets would be the gateway's."""
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            print("holds", target)
    print("looked")


def many(to, count, port="80", hold="3"):
    """Opens connections that begin a request and never end it, and holds them."""
    held = []
    try:
        for _ in range(int(count)):
            connection = connect(to, port)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
            held.append(connection)
    except OSError as error:
        sys.stderr.write(f"after {len(held)}: {name_of(error)}\n")
    print(f"holding {len(held)}", flush=True)
    time.sleep(float(hold))
    alive = 0
    for connection in held:
        connection.settimeout(0.01)
        try:
            alive += connection.recv(1) != b""
        except TimeoutError:
            alive += 1
        except OSError:
            pass
    print(f"alive {alive}", flush=True)


def at_once(to, count, port="80", path="/"):
    """Opens connections, all of which stay; says how many were answered."""
    held = []
    for number in range(int(count)):
        try:
            connection = connect(to, port)
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
            held.append(connection)
        except OSError as error:
            sys.stderr.write(f"connection {number}: {name_of(error)}\n")
    delivered = 0
    for connection in held:
        try:
            connection.settimeout(PATIENCE)
            delivered += b"delivered" in connection.recv(4096)
        except OSError as error:
            sys.stderr.write(f"{name_of(error)}\n")
    print(f"delivered {delivered} of {count}")


def download(to, size, port="80", host=None):
    """Fetches so many bytes; says how many came."""
    with connect(to, port) as connection:
        connection.sendall(request(host or to, f"/bytes/{size}"))
        total = 0
        try:
            while part := connection.recv(1 << 16):
                total += len(part)
        except OSError as error:
            sys.stderr.write(f"{name_of(error)}\n")
    print("all of it came" if total > int(size) else f"came {total}")


def upload(to, size, port="80"):
    """Sends so many bytes; says whether they were taken."""
    with connect(to, port) as connection:
        try:
            connection.sendall(f"POST /up HTTP/1.1\r\nHost: {to}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode())
            for _ in range(int(size) // 65536):
                connection.sendall(bytes(65536))
            connection.sendall(bytes(int(size) % 65536))
        except OSError as error:
            sys.stderr.write(f"{name_of(error)}\n")
        out(read_all(connection)[:200])


def ask_many(count, suffix):
    """Asks for so many names below a suffix; says how many had an address."""
    found = 0
    for number in range(int(count)):
        try:
            socket.getaddrinfo(f"n{number}.{suffix}", 80, socket.AF_INET, socket.SOCK_STREAM)
            found += 1
        except OSError:
            continue
    print(f"found {found} of {count}")


def main():
    verb, *pairs = sys.argv[1:]
    given = dict(pair.split("=", 1) for pair in pairs)
    # So that one that never ran is not taken for one that was refused.
    sys.stderr.write(f"trying {verb}\n")
    try:
        globals()[verb](**given)
    except (OSError, ssl.SSLError) as error:
        sys.stderr.write(f"{name_of(error)}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
