"""Builds the wheel: first the evaluator of profiles, which the wheel carries as a program, then maturin does the rest.

The source distribution is the workspace itself, whose other members cargo wants to see even where nothing is built of
them: maturin's own would have the module's crates alone, and nothing that the evaluator is made of.

`COFFERDAM_COMPILE=PATH` takes a program that is built already. `--config-settings=build-args="--profile dev"` is passed
on to maturin and builds without optimisation.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any, List, Mapping, Optional

import maturin

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "cofferdam-compile"
PLACE = ROOT / "python" / "cofferdam" / "libexec"

SOURCES = (
    [".cargo", "Cargo.lock", "Cargo.toml", "LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "pyproject.toml"]
    + ["bench", "crates", "docs", "ncl", "python", "tests", "xtask"]
)
"""What a source distribution holds, by its names at the root."""

APART = {"__pycache__", "target", "libexec", "node_modules", ".pytest_cache", ".mypy_cache", ".git"}
"""Directories that hold what was built."""

FLAGS = "-Crelocation-model=pic"
"""The programs of the workspace are static; what Python loads cannot be. Stands in place of the workspace's flags."""

Settings = Optional[Mapping[str, Any]]


def _place_evaluator() -> None:
    """Puts the evaluator where maturin takes it from."""
    built = os.environ.get("COFFERDAM_COMPILE")
    source = Path(built) if built else _build()
    PLACE.mkdir(exist_ok=True)
    new = PLACE / f".{PROGRAM}.new"
    shutil.copyfile(source, new)
    new.chmod(0o755)
    new.replace(PLACE / PROGRAM)
    os.environ["RUSTFLAGS"] = FLAGS


def _build() -> Path:
    command = ["cargo", "build", "--release", "--locked", "-p", PROGRAM, "--message-format=json-render-diagnostics"]
    told = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for line in told.splitlines():
        message = json.loads(line)
        executable = message.get("executable")
        if executable and message["target"]["name"] == PROGRAM:
            return Path(executable)
    raise RuntimeError(f"cargo built no {PROGRAM}")


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    _place_evaluator()
    return str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    _place_evaluator()
    return str(maturin.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    with tempfile.TemporaryDirectory() as directory:
        info = maturin.prepare_metadata_for_build_wheel(directory, config_settings)
        metadata = Path(directory, info, "METADATA").read_bytes()
    name = info[: -len(".dist-info")]
    path = Path(sdist_directory, f"{name}.tar.gz")
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, f"{name}/PKG-INFO", metadata, (ROOT / "pyproject.toml").stat())
        for source in SOURCES:
            _add_tree(archive, ROOT / source, f"{name}/{source}")
    return path.name


def _add_tree(archive: tarfile.TarFile, source: Path, name: str) -> None:
    if source.is_dir():
        for entry in sorted(source.iterdir()):
            if entry.name not in APART:
                _add_tree(archive, entry, f"{name}/{entry.name}")
    elif source.is_file() and source.suffix not in (".so", ".pyc"):
        _add(archive, name, source.read_bytes(), source.stat())


def _add(archive: tarfile.TarFile, name: str, content: bytes, like: os.stat_result) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = 0o755 if like.st_mode & 0o100 else 0o644
    # By its time, cargo tells what has changed since a build.
    entry.mtime = int(like.st_mtime)
    archive.addfile(entry, io.BytesIO(content))


def get_requires_for_build_wheel(config_settings: Settings = None) -> List[str]:
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
