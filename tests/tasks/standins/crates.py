"""crates.io: its index and its archives, with itoa."""

import hashlib
import json

import packages

NAME, VERSION = "itoa", "1.0.15"
LIBRARY = """#[derive(Default)]
pub struct Buffer(String);

impl Buffer {
    pub fn new() -> Buffer {
        Buffer::default()
    }

    pub fn format(&mut self, number: i64) -> &str {
        self.0 = number.to_string();
        &self.0
    }
}
"""
CRATE = packages.crate(NAME, VERSION, LIBRARY)
LINE = {"name": NAME, "vers": VERSION, "deps": [], "cksum": hashlib.sha256(CRATE).hexdigest(), "features": {}, "yanked": False}


def start(_base):
    return answer


def answer(request):
    if request.path == "/config.json":
        return 200, {"Content-Type": "application/json"}, json.dumps({"dl": "https://static.crates.io/crates", "api": "https://crates.io"})
    if request.path == f"/it/oa/{NAME}":
        return 200, {"Content-Type": "text/plain"}, json.dumps(LINE) + "\n"
    if request.path in (f"/crates/{NAME}/{VERSION}/download", f"/crates/{NAME}/{NAME}-{VERSION}.crate"):
        return 200, {"Content-Type": "application/gzip"}, CRATE
    return 404, {"Content-Type": "text/plain"}, "not found\n"
