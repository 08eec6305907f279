"""Runs the Python examples of README.md, and compares their output with that shown."""

from __future__ import annotations

import doctest
from typing import Any, Dict, List

from conftest import ROOT


def test_readme_examples_print_what_the_readme_shows() -> None:
    block = (ROOT / "README.md").read_text().split("<!-- python:begin -->")[1].split("<!-- python:end -->")[0]
    # The output of an example ends at a fence or an empty line.
    text = "\n".join("" if line.startswith("```") else line for line in block.splitlines())
    names: Dict[str, Any] = {}
    shown = doctest.DocTestParser().get_doctest(text, names, "README.md", "README.md", 0)
    assert len(shown.examples) >= 6
    message: List[str] = []
    results = doctest.DocTestRunner().run(shown, out=message.append)
    assert results.failed == 0, "".join(message)
