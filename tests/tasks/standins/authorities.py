"""The certificate of the stand-ins, and the stores in which the tasks' programs look for authorities.

An authority that every store has is given another key, in copies of the stores that the tasks alone see: the same bytes
but for the key. So the host's store and the lists that programs bring along, in files or in themselves, trust alike."""

import base64
import glob
import io
import mmap
import os
import shutil
import subprocess
import zipfile

import addresses
import go
from fixtures import call, write

STORE = "/etc/ssl/certs"

# The authority, and how many bytes of its certificate are the key.
KNOWN, KEY_BYTES = f"{STORE}/Amazon_Root_CA_3.pem", 64

# How long lines are, in files and in programs.
WIDTHS = [64, 72, 76]

# Programs with a list in themselves, where they are looked for: those for all users, and the lane's own.
PROGRAMS = ["node", "claude", "/usr/lib/chromium/chromium"]
PROGRAMS_OF_HOME = [".pyenv/versions/*/bin/uv"]
PYTHONS_OF_HOME = ".pyenv/versions/*/lib/python3*"


class Authority:
    """The authority with the key of the network, below `base`."""

    def __init__(self, base):
        self.base, tls = base, f"{base}/tls"
        write(f"{tls}/names", "subjectAltName=" + ",".join(f"DNS:{name}" for name in addresses.NAMES) + "\nextendedKeyUsage=serverAuth\n")
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        call("openssl", "req", *key, "-subj", "/CN=key", "-keyout", f"{tls}/ca.key", "-out", f"{tls}/ca.request")
        old_key, new_key = public(KNOWN, "x509"), public(f"{tls}/ca.key", "pkey")
        old = der(read(KNOWN))
        new = old.replace(old_key, new_key)
        write(f"{tls}/ca.pem", pem(new, 64))
        self.pairs = [(pem(old, width), pem(new, width)) for width in WIDTHS] + [(old_key, new_key)]
        call("openssl", "req", *key, "-subj", "/CN=stand-ins", "-keyout", f"{tls}/key.pem", "-out", f"{tls}/request")
        call("openssl", "x509", "-req", "-in", f"{tls}/request", "-CA", f"{tls}/ca.pem", "-CAkey", f"{tls}/ca.key", "-CAcreateserial", "-days", "30",
             "-extfile", f"{tls}/names", "-out", f"{tls}/cert.pem")

    def given(self, content):
        """A list with the other key."""
        for old, new in self.pairs:
            content = content.replace(old, new)
        return content

    def copy(self, path, to):
        """A copy of a file that has the authority, with the other key; none of others. Programs are large."""
        if not os.path.getsize(path):
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            places = [(at, new) for old, new in self.pairs for at in places_of(old, content)]
        if not places:
            return None
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(path, to)
        with open(to, "r+b") as file:
            for at, new in places:
                file.seek(at)
                file.write(new)
        return to

    def trusted(self, home):
        """What is to be mounted, and where: copies of all stores."""
        yield self.host_store(), STORE
        files = [os.path.realpath(path) for name in PROGRAMS if (path := shutil.which(name))]
        for pattern in [*PROGRAMS_OF_HOME, f"{PYTHONS_OF_HOME}/site-packages/**/certifi/cacert.pem"]:
            files += glob.glob(f"{home}/{pattern}", recursive=True)
        for at, path in enumerate(files):
            if (copy := self.copy(path, f"{self.base}/stores/{at}")) is not None:
                yield copy, path
        for at, path in enumerate(glob.glob(f"{home}/{PYTHONS_OF_HOME}/ensurepip/_bundled/pip-*.whl")):
            yield write(f"{self.base}/ensurepip/{at}", self.wheel(path)), path

    def host_store(self):
        copy = f"{self.base}/certs"
        shutil.copytree(STORE, copy, symlinks=True)
        for path in [path for path in glob.glob(f"{copy}/**", recursive=True) if os.path.isfile(path)]:
            if self.copy(path, changed := f"{self.base}/changed") is not None:
                os.replace(changed, path)
        return copy

    def wheel(self, path):
        """A wheel of pip, whose list goes into each virtual environment."""
        packed = io.BytesIO()
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
            for entry in old.infolist():
                new.writestr(entry, self.given(old.read(entry)))
        return packed.getvalue()


def go_program(base):
    """A copy of `go` with the key of the checksum database's stand-in, and where it is to be mounted."""
    path = shutil.which("go") and os.path.realpath(shutil.which("go"))
    if path and (program := go.program(base, read(path))) is not None:
        yield write(f"{base}/stores/go", program, 0o755), path


def read(path):
    with open(path, "rb") as file:
        return file.read()


def der(text):
    return base64.b64decode(b"".join(text.strip().split(b"\n")[1:-1]))


def pem(content, width):
    text = base64.b64encode(content)
    lines = [text[at : at + width] for at in range(0, len(text), width)]
    return b"\n".join([b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----"])


def places_of(text, content):
    at = content.find(text)
    while at >= 0:
        yield at
        at = content.find(text, at + 1)


def public(path, kind):
    """The key of a certificate or the public one of a private key: the bytes that stand last."""
    words = ["-pubkey", "-noout"] if kind == "x509" else ["-pubout"]
    key = subprocess.run(["openssl", kind, "-in", path, *words], check=True, stdout=subprocess.PIPE).stdout
    begin, end = b"-----BEGIN PUBLIC KEY-----", b"-----END PUBLIC KEY-----"
    return base64.b64decode(key[key.index(begin) + len(begin) : key.index(end)])[-KEY_BYTES:]
