"""The types of the installed package: all uses of it in these tests pass mypy in strict mode."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from conftest import skip

TESTS = Path(__file__).parent


def mypy(directory: Path, *files: str) -> subprocess.CompletedProcess[str]:
    options = ["--strict", "--config-file=", f"--cache-dir={directory / 'cache'}"]
    clean = {name: value for name, value in os.environ.items() if name != "MYPYPATH"}
    command = [sys.executable, "-m", "mypy", *options, *files]
    return subprocess.run(command, cwd=TESTS, env=clean, capture_output=True, text=True)


def test_what_the_tests_do_is_typed(tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        skip("mypy is not installed; pip install mypy")
    message = mypy(tmp_path, *sorted(file.name for file in TESTS.glob("*.py")))
    assert message.returncode == 0, message.stdout + message.stderr
    # An unknown attribute is an error, so the package has types.
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import cofferdam\ncofferdam.run({'version': 1}, 7).stdin\n")
    message = mypy(tmp_path, str(wrong))
    assert message.returncode == 1 and '"Outcome" has no attribute "stdin"' in message.stdout, message.stdout
    assert 'Argument 2 to "run"' in message.stdout, message.stdout
