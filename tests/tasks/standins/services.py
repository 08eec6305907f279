"""The servers of a network: name server, HTTP and HTTPS for all hosts, SSH. What is asked is written to standard error.

Started by network.py in namespaces of its own, as the first process of one for processes; ends with its standard input."""

import http.server
import importlib
import json
import os
import socketserver
import ssl
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [f"{HERE}/../../egress/world"]

import addresses
import dns
from fixtures import call

PLAIN, ENCRYPTED = [80], [443, 8443]

# What starts each service, by module and function. Its result answers requests for the hosts of the service.
STARTS = {
    "http": ("downloads", "start"),
    "git-https": ("repositories", "start"),
    "git-ssh": ("repositories", "start_ssh"),
    "npm-registry": ("npm", "start"),
    "pypi": ("pypi", "start"),
    "pypi-setuptools": ("pypi", "start_setuptools"),
    "pypi-pandas": ("pypi", "start_pandas"),
    "crates": ("crates", "start"),
    "go-proxy": ("go", "start"),
    "maven": ("maven", "start"),
    "model-api": ("model", "start"),
}


class Missing(Exception):
    """A service lacks something on this machine."""


class Request:
    """A request, read to its end."""

    def __init__(self, handler, body):
        self.method, self.host = handler.command, handler.headers.get("Host", "").rsplit(":", 1)[0].lower()
        self.path, _, self.query = handler.path.partition("?")
        self.headers, self.body = handler.headers, body

    def text(self):
        return self.body.decode(errors="replace")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self):
        # Here, in the thread of the connection: a client that does not shake hands keeps nobody else waiting.
        if isinstance(self.request, ssl.SSLSocket):
            self.request.do_handshake()
        super().setup()

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self):
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        request = Request(self, self.body())
        service = self.server.services.get(request.host)
        status, fields, content = service(request) if service else (404, {}, b"no such host\n")
        sys.stderr.write(f"{request.method} {request.host} {self.path} {len(request.body)} {status}\n")
        sys.stderr.flush()
        if isinstance(content, str):
            content = content.encode()
        self.send_response_only(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if request.method != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PUT = answer


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port, context, services):
        super().__init__(("", port), Handler)
        self.services = services
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def server_bind(self):
        # HTTPServer's own asks the name server for the name of this host.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def handle_error(self, request, client_address):
        sys.stderr.write(f"{client_address[0]}: {sys.exc_info()[1]!r}\n")
        sys.stderr.flush()


def services(base):
    """What answers for each host; and for each service what it lacks, or nothing."""
    hosts, lacks = {}, {}
    for name, (module, function) in STARTS.items():
        try:
            answer = getattr(importlib.import_module(module), function)(base)
            hosts |= {host: answer for host in addresses.HOSTS.get(name, [])}
            lacks[name] = ""
        except Missing as missing:
            lacks[name] = str(missing)
    return hosts, lacks


def main():
    base = sys.argv[1]
    print("namespaces", flush=True)
    sys.stdin.readline()
    # Every address there is is here, so that whatever leaves the machine of the tasks goes no further.
    call("ip", "-batch", "-", input="\n".join([
        "link set lo up", "link set veth1 up", f"addr add {addresses.SERVERS}/30 dev veth1", "route add local 0.0.0.0/0 dev lo table main",
    ]).encode())
    dns.serve([addresses.RESOLVER], dns.Zone())
    hosts, lacks = services(base)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{base}/tls/cert.pem", f"{base}/tls/key.pem")
    context.set_alpn_protocols(["http/1.1"])
    for port in PLAIN + ENCRYPTED:
        server = Server(port, context if port in ENCRYPTED else None, hosts)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps(lacks), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.modules["services"] = sys.modules["__main__"]
    main()
