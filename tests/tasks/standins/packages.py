"""The packages of the registries: of the names and versions that tasks ask for, with texts of our own."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import zipfile


def archive(files):
    """A compressed tar archive, the same each time."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        for name, (text, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(text.encode()), mode, 1_700_000_000
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0)), text)
    return packed.getvalue()


def npm(name, version, main, binary=None):
    """The manifest of an npm package, and its archive."""
    manifest = {"name": name, "version": version, "description": "A stand-in.", "license": "MIT", "main": "index.js"}
    files = {"package/index.js": (main, 0o644)}
    if binary is not None:
        manifest["bin"] = {name: "bin.js"}
        files["package/bin.js"] = (binary, 0o755)
    files["package/package.json"] = (json.dumps(manifest), 0o644)
    return manifest, archive(files)


def wheel(name, version, tag, modules):
    """The file name of a wheel, its content and its METADATA."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: A stand-in.\nRequires-Python: >=3.6\n"
    files = {
        **modules,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\n" + "".join(f"Tag: {one}-none-any\n" for one in tag.split(".")),
    }
    digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    lines = [f"{path},sha256={digest(text)},{len(text.encode())}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join(lines) + f"{info}/RECORD,,\n"
    return f"{name}-{version}-{tag}-none-any.whl", zipped(files), metadata


def crate(name, version, library):
    """The archive of a crate."""
    manifest = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2018"\nlicense = "MIT"\ndescription = "A stand-in."\n\n[lib]\n'
    root = f"{name}-{version}"
    return archive({f"{root}/Cargo.toml": (manifest, 0o644), f"{root}/src/lib.rs": (library, 0o644)})
