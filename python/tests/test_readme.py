"""The example of docs/python.md, run: its statements, and what they print against what stands there."""

from __future__ import annotations

import doctest
from typing import Any, Dict, List

from conftest import ROOT


def test_the_example_of_the_python_page_is_true() -> None:
    block = (ROOT / "docs/python.md").read_text().split("<!-- python:begin -->")[1].split("<!-- python:end -->")[0]
    # A fence ends what an example prints, as an empty line does.
    text = "\n".join("" if line.startswith("```") else line for line in block.splitlines())
    names: Dict[str, Any] = {}
    shown = doctest.DocTestParser().get_doctest(text, names, "docs/python.md", "docs/python.md", 0)
    assert len(shown.examples) >= 6
    printed: List[str] = []
    results = doctest.DocTestRunner().run(shown, out=printed.append)
    assert results.failed == 0, "".join(printed)
