"""The registry of npm: left-pad and semver."""

import base64
import hashlib
import json

import packages

PACKAGES = {
    "left-pad": packages.npm(
        "left-pad", "1.3.0", "module.exports = (text, length, pad) => String(text).padStart(length, pad === undefined ? ' ' : String(pad))\n"
    ),
    "semver": packages.npm(
        "semver", "7.7.2", "exports.valid = (text) => (/^\\d+\\.\\d+\\.\\d+/.test(text) ? text : null)\n",
        "#!/usr/bin/env node\nfor (const text of process.argv.slice(2)) if (require('.').valid(text)) console.log(text)\n",
    ),
}
TIME = "2024-01-01T00:00:00.000Z"


def start(_base):
    return answer


def answer(request):
    name, _, rest = request.path.strip("/").partition("/")
    if name == "-":
        # Audits and the like: nothing is known about anything.
        return 200, {"Content-Type": "application/json"}, "{}"
    if name not in PACKAGES:
        return 404, {"Content-Type": "application/json"}, '{"error":"Not found"}'
    manifest, archive = PACKAGES[name]
    version = manifest["version"]
    if rest.startswith("-/"):
        return 200, {"Content-Type": "application/octet-stream"}, archive
    dist = {
        "tarball": f"https://{request.host}/{name}/-/{name}-{version}.tgz",
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode(),
        "shasum": hashlib.sha1(archive).hexdigest(),
    }
    document = {**manifest, "dist": dist}
    if not rest:
        times = {"created": TIME, "modified": TIME, version: TIME}
        document = {"name": name, "dist-tags": {"latest": version}, "versions": {version: document}, "time": times, "modified": TIME}
    return 200, {"Content-Type": "application/json"}, json.dumps(document)
