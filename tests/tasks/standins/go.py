"""The module proxy and the checksum database of Go, with github.com/google/uuid.

The database's answers are signed, and the public key is in the program `go`: `program` gives a copy with the key of the
stand-in. The database is a tree of one record (golang.org/x/mod/sumdb)."""

import base64
import hashlib
import os
import re
import subprocess

import packages
from fixtures import call, write

MODULE, VERSION = "github.com/google/uuid", "v1.6.0"
GO_MOD = f"module {MODULE}\n"
SOURCE = """package uuid

import (
	"crypto/rand"
	"fmt"
)

// NewString returns a random identifier.
func NewString() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
"""
DATABASE = "sum.golang.org"
KEY = re.compile(re.escape(DATABASE.encode()) + rb"\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}")
ED25519 = b"\x01"


def hashed(files):
    """The hash of files that go.sum has."""
    lines = "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(files.items()))
    return "h1:" + base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()


FILES = {f"{MODULE}@{VERSION}/go.mod": GO_MOD, f"{MODULE}@{VERSION}/uuid.go": SOURCE}
RECORD = f"{MODULE} {VERSION} {hashed(FILES)}\n{MODULE} {VERSION}/go.mod {hashed({'go.mod': GO_MOD})}\n"
LEAF = hashlib.sha256(b"\0" + RECORD.encode()).digest()


def key_file(base):
    return f"{base}/tls/sumdb.pem"


def program(base, go):
    """A copy of the program with the stand-in's key; none where it has no key of the database."""
    key = key_file(base)
    call("openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
    # What precedes the key in its DER form is always the same.
    der = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], check=True, stdout=subprocess.PIPE).stdout
    public = ED25519 + der[-32:]
    name = DATABASE.encode()
    number = hashlib.sha256(name + b"\n" + public).hexdigest()[:8]
    write(f"{key}.number", number)
    changed, count = KEY.subn(lambda _: name + b"+" + number.encode() + b"+" + base64.b64encode(public), go)
    return changed if count else None


def note(base):
    """The signed statement of how the tree is."""
    text = f"go.sum database tree\n1\n{base64.b64encode(LEAF).decode()}\n"
    write(f"{base}/tls/note", text)
    call("openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key_file(base), "-in", f"{base}/tls/note", "-out", f"{base}/tls/note.sig")
    with open(f"{base}/tls/note.sig", "rb") as file, open(f"{key_file(base)}.number") as number:
        signature = base64.b64encode(bytes.fromhex(number.read()) + file.read()).decode()
    return f"{text}\n\u2014 {DATABASE} {signature}\n"


def start(base):
    from services import Missing

    if not os.path.exists(f"{key_file(base)}.number"):
        raise Missing("there is no `go` whose key of the checksum database can be changed")
    signed = note(base)
    versions = f"/{MODULE}/@v"
    content = {
        f"{versions}/list": f"{VERSION}\n",
        f"{versions}/{VERSION}.info": f'{{"Version":"{VERSION}","Time":"2024-01-01T00:00:00Z"}}',
        f"/{MODULE}/@latest": f'{{"Version":"{VERSION}","Time":"2024-01-01T00:00:00Z"}}',
        f"{versions}/{VERSION}.mod": GO_MOD,
        f"{versions}/{VERSION}.zip": packages.zipped(FILES),
        f"/lookup/{MODULE}@{VERSION}": f"0\n{RECORD}\n{signed}",
        "/latest": signed,
        "/tile/8/0/000.p/1": LEAF,
    }
    return lambda request: answer(request, content)


def answer(request, content):
    if request.path not in content:
        return 404, {"Content-Type": "text/plain"}, "not found\n"
    return 200, {"Content-Type": "application/octet-stream"}, content[request.path]
