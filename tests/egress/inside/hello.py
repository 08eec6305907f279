"""A TLS greeting (ClientHello) built by hand, for shapes that no TLS library makes. Reads nothing, sends nothing."""

import os
import struct

# What any server with a P-256 certificate can go on with, in TLS 1.2.
CIPHERS = [0xC02B, 0xC02C, 0xC023, 0xC009]


def extension(kind, body):
    return struct.pack(">HH", kind, len(body)) + body


def server_name(*names, kind=0):
    entries = b"".join(struct.pack(">BH", kind, len(name)) + name for name in names)
    return extension(0, struct.pack(">H", len(entries)) + entries)


def versioned(extensions, share=b""):
    """A greeting of TLS 1.3 alone, with one group, X25519, and this share of it: without one the server asks again."""
    shares = struct.pack(">HH", 29, len(share)) + share if share else b""
    more = [
        extension(43, b"\2\3\4"),
        extension(10, b"\0\2\0\x1d"),
        extension(13, b"\0\4\4\3\x08\4"),
        extension(51, struct.pack(">H", len(shares)) + shares),
    ]
    return _message(extensions + more, [0x1301, 0x1302])


def hello(extensions, ciphers=CIPHERS, padding=0):
    """The handshake message, without records around it."""
    common = extension(10, b"\0\2\0\x17") + extension(13, b"\0\4\4\3\5\3") + extension(11, b"\1\0")
    if padding:
        common += extension(21, bytes(padding))
    return _message([*extensions, common], ciphers)


def _message(extensions, ciphers):
    everything = b"".join(extensions)
    suites = b"".join(struct.pack(">H", one) for one in ciphers)
    body = b"\3\3" + os.urandom(32) + b"\0" + struct.pack(">H", len(suites)) + suites + b"\1\0"
    body += struct.pack(">H", len(everything)) + everything
    return b"\1" + struct.pack(">I", len(body))[1:] + body


def records(message, size=16384):
    """The message in records of at most this many bytes."""
    cut = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(b"\x16\3\1" + struct.pack(">H", len(part)) + part for part in cut)


def encrypted_hello_shape():
    """What the extension of Encrypted Client Hello looks like, as browsers send it even where there is none."""
    inner = b"\0" + struct.pack(">HH", 1, 1) + b"\x2a" + struct.pack(">H", 32) + os.urandom(32)
    payload = os.urandom(144)
    return extension(0xFE0D, inner + struct.pack(">H", len(payload)) + payload)
