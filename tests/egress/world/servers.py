"""The servers of the test world: HTTP and HTTPS with files, echo, greeting first, and TLS that says which name it got.

Each listens at every address of its namespace; an answer says at which address and for which name it was given, so that
a client knows whom it reached. They take whatever comes, lenient as the worst of real ones."""

import asyncio
import base64
import hashlib
import os
import socket
import ssl
import threading

import addresses

HTTP = [80, 3000, 8000, 8005, 8010, 8080]
HTTPS = [443, 853, 8443]
ECHO = [7, 5000, 7999, 8011]
GREETING = [25]


class Servers:
    def __init__(self, record, www, certificate, key):
        self.record = record
        self.www = www
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.context.set_alpn_protocols(["http/1.1"])
        self.context.sni_callback = self.named

    def named(self, connection, name, _context):
        connection.named = name
        self.record.add(on="app", what="hello", name=name or "")

    def start(self):
        """Listens on every port before it returns; serves from a thread."""
        ready = threading.Event()
        failed = []

        def run():
            loop = asyncio.new_event_loop()
            asyncio.set_event_loop(loop)
            try:
                for ports, speak, more in (
                    (HTTP, self.http, {"limit": 1 << 21}),
                    (HTTPS, self.http, {"limit": 1 << 21, "ssl": self.context}),
                    (ECHO, self.echo, {}),
                    (GREETING, self.greeting, {}),
                ):
                    for port in ports:
                        both = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
                        loop.run_until_complete(asyncio.start_server(speak, sock=both, **more))
            except OSError as error:
                failed.append(error)
            ready.set()
            loop.run_forever()

        threading.Thread(target=run, daemon=True).start()
        ready.wait()
        if failed:
            raise failed[0]

    def at(self, writer):
        address, port = writer.get_extra_info("sockname")[:2]
        return address.removeprefix("::ffff:"), port

    async def echo(self, reader, writer):
        address, port = self.at(writer)
        try:
            while data := await reader.read(65536):
                self.record.add(on="app", what="echo", address=address, port=port, data=data[:200].decode("latin-1"))
                writer.write(b"echo of %s: " % address.encode() + data)
                await writer.drain()
        except OSError:
            pass
        self.record.add(on="app", what="ended", address=address, port=port)
        writer.close()

    async def greeting(self, reader, writer):
        """Speaks first, as mail servers do."""
        address, port = self.at(writer)
        writer.write(f"220 {address} speaks first\r\n".encode())
        try:
            while line := await reader.readline():
                self.record.add(on="app", what="line", address=address, port=port, data=line.decode("latin-1"))
                word = line.split(b" ")[0].strip().upper()
                writer.write({b"QUIT": b"221 bye\r\n"}.get(word, b"250 ok\r\n"))
                await writer.drain()
                if word == b"QUIT":
                    break
        except (OSError, ValueError):
            pass
        writer.close()

    async def http(self, reader, writer):
        tls = writer.get_extra_info("ssl_object")
        try:
            while await self.request(reader, writer, tls):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        writer.close()

    async def request(self, reader, writer, tls):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        method, target, _ = (lines[0] + "  ").split(" ", 2)
        fields = {}
        for line in lines[1:]:
            if ":" in line:
                name, value = line.split(":", 1)
                fields[name.lower()] = value.strip()
        body = b""
        if "content-length" in fields:
            body = await reader.readexactly(int(fields["content-length"]))
        elif "chunked" in fields.get("transfer-encoding", "").lower():
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        host = fields.get("host", "")
        address, port = self.at(writer)
        self.record.add(
            on="app", what="request", address=address, port=port, tls=tls is not None, host=host, method=method,
            target=target, head=head[:4096], body=body[:300].decode("latin-1"),
        )
        if method == "CONNECT":
            await self.tunnel(reader, writer, target)
            return False
        if fields.get("upgrade", "").lower() == "websocket" and target.startswith("/upgrade"):
            # What follows is nobody's but the two ends': these do not speak WebSocket.
            key = fields.get("sec-websocket-key", "").encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key).digest())
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n")
            writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
            while data := await reader.read(65536):
                writer.write(b"echo: " + data)
                await writer.drain()
            return False
        await self.respond(writer, method, target, host.rsplit(":", 1)[0] if host[-1:] != "]" else host, f"{address}:{port}", body, tls)
        keep = fields.get("connection", "").lower() != "close"
        return keep

    async def tunnel(self, reader, writer, target):
        """What a company's proxy does: every name that there is leads somewhere, whoever asks."""
        name, port = target.rsplit(":", 1)
        there = addresses.ZONE.get(name, [addresses.EVIL])[0]
        far_reader, far_writer = await asyncio.open_connection(there, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def one_way(source, sink):
            try:
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            sink.close()

        await asyncio.gather(one_way(reader, far_writer), one_way(far_reader, writer))

    async def respond(self, writer, method, target, host, where, body, tls):
        path = target.split("?")[0]
        more, status, kind = "", "200 OK", "text/plain"
        name = os.path.normpath(f"{self.www}/{host}/{path}")
        if name.startswith(f"{self.www}/") and os.path.isdir(name) and os.path.isfile(f"{name}/index.html"):
            name, kind = f"{name}/index.html", "text/html"
        if name.startswith(f"{self.www}/") and os.path.isfile(name):
            with open(name, "rb") as file:
                content = file.read()
            kind = "application/json" if host == "npm.test" and not name.endswith(".tgz") else kind
            if not kind.startswith("text/html") and kind != "application/json":
                kind = "application/octet-stream"
        elif host and os.path.isdir(f"{self.www}/{host}") and not path.startswith("/delivered"):
            status, content = "404 Not Found", b"no such file\n"
        elif path == "/redirect":
            status, content, more = "302 Found", b"", f"Location: {target.split('?', 1)[1]}\r\n"
        elif path.startswith("/bytes/"):
            content = bytes(int(path.removeprefix("/bytes/")))
        elif path.startswith("/slow/"):
            await asyncio.sleep(float(path.removeprefix("/slow/")))
            content = b"at last\n"
        elif path.startswith("/dns-query"):
            content, kind = b"\0" * 12, "application/dns-message"
        else:
            said = f"tls {getattr(tls, 'named', None)}" if tls else "plain"
            content = f"delivered {host} at {where} over {said}: {method} {target}\n".encode() + body[:100]
        if method == "HEAD":
            head_only, content = len(content), b""
        else:
            head_only = len(content)
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {head_only}\r\n{more}\r\n".encode() + content
        )
        await writer.drain()


def datagrams():
    """Answers datagrams on the ports of QUIC and echo, so that one that arrives is not taken for one that did not."""
    for port in (443, 5000):
        server = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", port))
        threading.Thread(target=_answer, args=(server,), daemon=True).start()


def _answer(server):
    while True:
        data, peer = server.recvfrom(65535)
        try:
            server.sendto(b"delivered " + data[:64], peer)
        except OSError:
            continue


def unix(name):
    """Answers at a Unix socket: one of those that hosts have for their own programs."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    if not name.startswith("\0"):
        os.chmod(name, 0o666)
    server.listen()

    def serve():
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"delivered by a Unix socket\n")

    threading.Thread(target=serve, daemon=True).start()
