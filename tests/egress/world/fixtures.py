"""The files of the test world: its authority and certificate, its repository, its packages, its accounts. Made anew for
each world, with the programs that people make them with; nothing here starts a server."""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile

import addresses

WHEEL = "tiny-1.0-py3-none-any.whl"


def call(*argv, **options):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stdout.decode(errors='replace')}")
    return done.stdout.decode()


def write(path, content, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    os.chmod(path, mode)
    return path


class Fixtures:
    """Paths of everything, below one directory."""

    def __init__(self, base):
        self.base = base
        self.www = f"{base}/www"
        self.certificate, self.key, self.authority = f"{base}/tls/cert.pem", f"{base}/tls/key.pem", f"{base}/tls/ca.pem"
        self.trusted = f"{base}/certs"
        self.account = f"{base}/account"
        os.makedirs(self.www)

    def certificates(self):
        tls = f"{self.base}/tls"
        names = [f"DNS:{name}" for name in addresses.ZONE] + [f"IP:{addresses.ALLOWED}", f"IP:{addresses.EVIL}"]
        names += [f"DNS:{name}" for name in ("nobody.test", "hosts.test", "hostsgood.test", "b.wild.test")]
        write(f"{tls}/san", f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
        call("openssl", "req", "-x509", *kind, "-subj", "/CN=Authority of the test world", "-keyout", f"{tls}/ca.key",
             "-out", self.authority)
        call("openssl", "req", *kind[:-2], "-subj", "/CN=allowed.test", "-keyout", self.key, "-out", f"{tls}/csr")
        call("openssl", "x509", "-req", "-in", f"{tls}/csr", "-CA", self.authority, "-CAkey", f"{tls}/ca.key",
             "-CAcreateserial", "-days", "30", "-extfile", f"{tls}/san", "-out", self.certificate)
        os.chmod(self.key, 0o644)
        # The store of the machine with one authority more, in both of the forms in which programs read it.
        os.makedirs(self.trusted)
        bundle = b""
        if os.path.isfile("/etc/ssl/certs/ca-certificates.crt"):
            with open("/etc/ssl/certs/ca-certificates.crt", "rb") as file:
                bundle = file.read()
        with open(self.authority, "rb") as file:
            bundle += file.read()
        write(f"{self.trusted}/ca-certificates.crt", bundle)
        hashed = call("openssl", "x509", "-hash", "-noout", "-in", self.authority).strip()
        shutil.copy(self.authority, f"{self.trusted}/{hashed}.0")

    def repository(self):
        bare, work = f"{self.www}/git.test/repo.git", f"{self.base}/work"
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": self.base}
        git = lambda *words: call("git", *words, env=environment)
        git("init", "-q", "-b", "main", work)
        write(f"{work}/told", "cloned from the test world\n")
        git("-C", work, "add", "told")
        git("-C", work, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "one")
        git("clone", "-q", "--bare", work, bare)
        git("-C", bare, "update-server-info")

    def wheel(self):
        files = {
            "tiny.py": "def told():\n    return 'installed from the test world'\n",
            "tiny-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
            "tiny-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        lines = []
        for name, text in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(text)}\n")
        files["tiny-1.0.dist-info/RECORD"] = "".join(lines) + "tiny-1.0.dist-info/RECORD,,\n"
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        write(f"{self.www}/pypi.test/simple/tiny/{WHEEL}", packed.getvalue())
        write(f"{self.www}/pypi.test/simple/tiny/index.html", f'<!DOCTYPE html><a href="{WHEEL}">{WHEEL}</a>\n')

    def npm_package(self):
        manifest = {"name": "tiny", "version": "1.0.0", "main": "index.js"}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in {
                "package/package.json": json.dumps(manifest),
                "package/index.js": "module.exports = 'installed from the test world'\n",
            }.items():
                info = tarfile.TarInfo(name)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        write(f"{self.www}/npm.test/files/tiny-1.0.0.tgz", packed.getvalue())
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
        dist = {"tarball": "https://npm.test/files/tiny-1.0.0.tgz", "integrity": integrity}
        document = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**manifest, "dist": dist}}}
        write(f"{self.www}/npm.test/tiny", json.dumps(document))

    def accounts(self, uid, gid):
        """A passwd in which whoever runs the world has a shell, and keys to log in with."""
        os.makedirs(f"{self.account}/.ssh", mode=0o700)
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.base}/id")
        shutil.copy(f"{self.base}/id.pub", f"{self.account}/.ssh/authorized_keys")
        # Programs in the sandbox of root are somebody else, and ssh wants a key of its user's to be nobody else's.
        os.chmod(f"{self.base}/id", 0o600 if uid else 0o644)
        call("dropbearkey", "-t", "ed25519", "-f", f"{self.base}/hostkey")
        public = next(line for line in call("dropbearkey", "-y", "-f", f"{self.base}/hostkey").split("\n") if "ssh-" in line)
        kind, key = public.split(" ")[:2]
        write(f"{self.base}/known_hosts", f"git.test,allowed.test,evil.test {kind} {key}\n")
        if uid != 0:
            os.chmod(self.account, 0o700)
        write(f"{self.base}/passwd", f"git:x:{uid}:{gid}::{self.account}:/bin/sh\nroot:x:0:0::/:/bin/sh\n")

    def java(self, sources):
        """A class to run, and a store of authorities in Java's own form. Nothing where there is no Java."""
        if shutil.which("javac") is None:
            return
        call("javac", "-d", f"{self.base}/java", f"{sources}/Fetch.java")
        call("keytool", "-importcert", "-noprompt", "-storetype", "JKS", "-alias", "world", "-file", self.authority, "-storepass", "changeit",
             "-keystore", f"{self.base}/java/trust")

    def static_program(self, sources):
        """A program that needs no library and asks its own questions. Nothing where there is no compiler."""
        if shutil.which("gcc") is not None:
            call("gcc", "-static", "-O1", "-o", f"{self.base}/own_resolver", f"{sources}/own_resolver.c")

    def for_the_command(self):
        write(f"{self.base}/resolv.conf", f"nameserver {addresses.RESOLVER}\noptions timeout:2 attempts:1\n")
        write(f"{self.base}/hosts", addresses.HOSTS)
