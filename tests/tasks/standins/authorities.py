"""The authority of the stand-ins and its certificate, and the stores in which the tasks' programs look for authorities:
the host's with one authority more, and those that programs bring along."""

import glob
import io
import os
import shutil
import zipfile

import addresses
import go
from fixtures import call, write

STORE = "/etc/ssl/certs"
BEGIN, END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


def make(base):
    """Makes the authority and one certificate for all names."""
    tls = f"{base}/tls"
    write(f"{tls}/names", "subjectAltName=" + ",".join(f"DNS:{name}" for name in addresses.NAMES) + "\nextendedKeyUsage=serverAuth\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    call("openssl", "req", "-x509", *key, "-days", "30", "-subj", "/CN=Authority of the stand-ins", "-keyout", f"{tls}/ca.key", "-out", f"{tls}/ca.pem")
    call("openssl", "req", *key, "-subj", "/CN=stand-ins", "-keyout", f"{tls}/key.pem", "-out", f"{tls}/request")
    call("openssl", "x509", "-req", "-in", f"{tls}/request", "-CA", f"{tls}/ca.pem", "-CAkey", f"{tls}/ca.key", "-CAcreateserial", "-days", "30",
         "-extfile", f"{tls}/names", "-out", f"{tls}/cert.pem")
    write(f"{tls}/chain.pem", read(f"{tls}/cert.pem") + read(f"{tls}/ca.pem"))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def trusted(base, home):
    """What is to be mounted, and where."""
    authority = read(f"{base}/tls/ca.pem")
    yield store(base, authority), STORE
    # Debian's Node.js uses the host's store; others have a list of their own.
    if (path := real("node")) and (program := with_authority_in_place(read(path), authority)) is not None:
        yield write(f"{base}/programs/node", program, 0o755), path
    if (path := real("go")) and (program := go.program(base, read(path))) is not None:
        yield write(f"{base}/programs/go", program, 0o755), path
    for at, path in enumerate(glob.glob(f"{home}/.pyenv/versions/*/lib/python3*/site-packages/**/certifi/cacert.pem", recursive=True)):
        yield write(f"{base}/certifi/{at}.pem", read(path) + authority), path
    for at, path in enumerate(glob.glob(f"{home}/.pyenv/versions/*/lib/python3*/ensurepip/_bundled/pip-*.whl")):
        yield write(f"{base}/ensurepip/{at}.whl", wheel(path, authority)), path


def store(base, authority):
    """The host's store with one authority more, in each form in which programs read it."""
    copy = f"{base}/certs"
    shutil.copytree(STORE, copy, symlinks=True)
    bundle = "ca-certificates.crt"
    write(f"{copy}/{bundle}", (read(f"{STORE}/{bundle}") if os.path.exists(f"{STORE}/{bundle}") else b"") + authority)
    hashed = call("openssl", "x509", "-hash", "-noout", "-in", f"{base}/tls/ca.pem").strip()
    write(f"{copy}/{hashed}.0", authority)
    if os.path.exists(f"{copy}/java/cacerts") and shutil.which("keytool"):
        call("keytool", "-importcert", "-noprompt", "-alias", "stand-ins", "-file", f"{base}/tls/ca.pem", "-storepass", "changeit",
             "-keystore", f"{copy}/java/cacerts")
    return copy


def real(name):
    """The file of a program that is installed for all."""
    path = shutil.which(name)
    return path and os.path.realpath(path)


def with_authority_in_place(program, authority):
    """A program with this authority in the place of the first of its list that is as long; none where it has no list."""
    at = program.find(BEGIN)
    while at >= 0:
        end = program.find(END, at)
        length = end + len(END) - at
        if end >= 0 and len(authority) <= length < 4096:
            return program[:at] + authority.rstrip().ljust(length, b"\n") + program[at + length :]
        at = program.find(BEGIN, at + 1)
    return None


def wheel(path, authority):
    """A wheel of pip, whose list of authorities goes into each virtual environment."""
    packed = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            content = old.read(entry)
            new.writestr(entry, content + authority if entry.filename.endswith("certifi/cacert.pem") else content)
    return packed.getvalue()
