"""Builds the wheel: first the evaluator of profiles, which the wheel carries as a program, then maturin does the rest.

`COFFERDAM_COMPILE=PATH` takes a program that is built already. `--config-settings=build-args="--profile dev"` is passed
on to maturin and builds without optimisation.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, List, Mapping, Optional

import maturin

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "cofferdam-compile"
PLACE = ROOT / "python" / "cofferdam" / "libexec"

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
    return str(maturin.build_sdist(sdist_directory, config_settings))


def get_requires_for_build_wheel(config_settings: Settings = None) -> List[str]:
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
