"""Shared test helpers: policies, waiting, and requirements. The tests run against the installed package."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator

import pytest

import cofferdam

ROOT = Path(__file__).resolve().parents[2]

assert not Path(cofferdam.__file__).is_relative_to(ROOT / "python"), "the tests are about the installed package"


def policy(**changes: Any) -> Dict[str, Any]:
    """A policy that has these fields besides its version."""
    return {"version": 1, **changes}


def skip(why: str) -> None:
    """Skips, unless everything is expected to work."""
    if os.environ.get("COFFERDAM_MUST_WORK") == "1":
        pytest.fail(why)
    pytest.skip(why)


def wait_for(what: Callable[[], bool], seconds: float = 10) -> None:
    """Waits until it is so."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.005)


def sleeping(argument: str) -> int:
    """How many `sleep` processes have this argument, wherever they run."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        count += words[:2] == [b"sleep", argument.encode()]
    return count


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory of its own: nobody's profiles and caches are read or written."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CACHE_HOME", "COFFERDAM_PROFILES", "COFFERDAM_SKILLS"):
        monkeypatch.delenv(name, raising=False)
    yield home


sys.path.insert(0, str(Path(__file__).parent))
