"""PyPI: six of our own, and the wheels in target/tasks/pypi, where `cargo xtask tasks --fetch` puts real ones."""

import glob
import hashlib
import json
import os
import re
import zipfile

import packages

HERE = os.path.dirname(os.path.abspath(__file__))
FETCHED = f"{HERE}/../../../target/tasks/pypi"
JSON, HTML = "application/vnd.pypi.simple.v1+json", "application/vnd.pypi.simple.v1+html"


class Wheel:
    def __init__(self, file, content, metadata):
        self.file, self.content, self.metadata = file, content, metadata
        self.project, self.version = normal(file.split("-")[0]), file.split("-")[1]
        self.url = f"https://files.pythonhosted.org/packages/{file}"
        self.digest = hashlib.sha256(content).hexdigest()
        found = re.search(r"^Requires-Python: (.*)$", metadata, re.M)
        self.python = found[1] if found else None


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def wheels():
    yield Wheel(*packages.wheel("six", "1.16.0", "py2.py3", {"six.py": '__version__ = "1.16.0"\nPY2, PY3 = False, True\n'}))
    for path in sorted(glob.glob(f"{FETCHED}/*.whl")):
        with zipfile.ZipFile(path) as archive:
            metadata = next(name for name in archive.namelist() if re.fullmatch(r"[^/]*\.dist-info/METADATA", name))
            text = archive.read(metadata).decode()
        with open(path, "rb") as content:
            yield Wheel(os.path.basename(path), content.read(), text)


def start(_base):
    known = list(wheels())
    return lambda request: answer(request, known)


def start_setuptools(_base):
    there("setuptools", "wheel")


def start_pandas(_base):
    there("pandas")


def there(*projects):
    from services import Missing

    known = {normal(os.path.basename(path).split("-")[0]) for path in glob.glob(f"{FETCHED}/*.whl")}
    for project in projects:
        if project not in known:
            raise Missing(f"{project} is not in target/tasks/pypi; cargo xtask tasks --fetch")


def answer(request, known):
    parts = request.path.strip("/").split("/")
    if parts[0] == "packages":
        for wheel in known:
            if parts[-1] == wheel.file:
                return 200, {"Content-Type": "application/octet-stream"}, wheel.content
            if parts[-1] == f"{wheel.file}.metadata":
                return 200, {"Content-Type": "application/octet-stream"}, wheel.metadata
    if parts[0] == "simple" and len(parts) == 2:
        found = [wheel for wheel in known if wheel.project == normal(parts[1])]
        if found:
            return listing(request, found)
    if parts[0] == "pypi" and parts[-1] == "json":
        found = [wheel for wheel in known if wheel.project == normal(parts[1]) and (len(parts) < 4 or wheel.version == parts[2])]
        if found:
            return document(found)
    return 404, {"Content-Type": "text/plain"}, "not found\n"


def listing(request, found):
    if JSON in request.headers.get("Accept", ""):
        files = [
            {"filename": wheel.file, "url": wheel.url, "hashes": {"sha256": wheel.digest}, "requires-python": wheel.python, "size": len(wheel.content),
             "upload-time": "2024-01-01T00:00:00Z", "core-metadata": {"sha256": hashlib.sha256(wheel.metadata.encode()).hexdigest()}, "yanked": False}
            for wheel in found
        ]
        versions = sorted({wheel.version for wheel in found})
        text = json.dumps({"meta": {"api-version": "1.1"}, "name": found[0].project, "versions": versions, "files": files})
        return 200, {"Content-Type": JSON}, text
    escape = lambda text: text.replace("&", "&amp;").replace(">", "&gt;").replace("<", "&lt;")
    python = lambda wheel: f' data-requires-python="{escape(wheel.python)}"' if wheel.python else ""
    links = "".join(f'<a href="{wheel.url}#sha256={wheel.digest}"{python(wheel)}>{wheel.file}</a><br>\n' for wheel in found)
    return 200, {"Content-Type": "text/html"}, f"<!DOCTYPE html><html><body>\n{links}</body></html>\n"


def document(found):
    """The older form, of one project or version."""
    last = found[-1]
    files = lambda version: [
        {"filename": wheel.file, "url": wheel.url, "digests": {"sha256": wheel.digest}, "packagetype": "bdist_wheel", "yanked": False,
         "requires_python": wheel.python, "size": len(wheel.content)}
        for wheel in found if wheel.version == version
    ]
    info = {"name": last.project, "version": last.version, "summary": "", "requires_dist": None, "requires_python": last.python, "yanked": False}
    releases = {wheel.version: files(wheel.version) for wheel in found}
    return 200, {"Content-Type": "application/json"}, json.dumps({"info": info, "releases": releases, "urls": files(last.version)})
