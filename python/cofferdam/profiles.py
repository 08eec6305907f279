"""Profiles in Nickel, compiled by the evaluator that is part of the package.

The evaluator is a separate program that runs in a sandbox. It can read only the profile's directory and those that are
allowed. It contains the library: `import "sandbox"` needs no path.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Iterable, List, Optional, Sequence, Tuple, Union

from . import _native
from ._native import ProfileError
from .runs import path_of, paths_of, text_of, words_of

PathLike = Union[str, "os.PathLike[str]"]

_HELPER = "cofferdam-compile"


def helper() -> Path:
    """The path of the evaluator: in `COFFERDAM_LIBEXEC` if that is set, else in this package."""
    named = os.environ.get("COFFERDAM_LIBEXEC")
    return Path(named or Path(__file__).parent / "libexec") / _HELPER


def cache_directory() -> Optional[Path]:
    """The cache directory of compiled policies, shared with the command."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):
        return Path(base) / "cofferdam/policies"
    try:
        return Path.home() / ".cache/cofferdam/policies"
    except RuntimeError:
        return None


def compile_outputs(
    file: PathLike,
    formats: Sequence[str],
    *,
    encoding: str = "json",
    overrides: Iterable[str] = (),
    imports: Iterable[PathLike] = (),
    trusted: bool = False,
    cache: bool = True,
) -> Tuple[List[Tuple[Optional[str], Optional[str]]], List[str]]:
    """The text of each format, or why the target cannot have one; and the warnings."""
    return _native.compile_profile(
        helper(),
        path_of("file", file),
        list(formats),
        encoding=text_of("encoding", encoding),
        overrides=words_of("overrides", overrides),
        imports=paths_of("imports", imports),
        cache=cache_directory() if cache else None,
        trusted=trusted,
    )


def compile_profile(
    file: PathLike,
    format: str = "policy",
    *,
    encoding: str = "json",
    overrides: Iterable[str] = (),
    imports: Iterable[PathLike] = (),
    trusted: bool = False,
) -> str:
    """A profile's file as text: `policy`, `nsjail`, `nsjail-text`, `seatbelt` or `raw`.

    `overrides` are assignments such as `resources.max_memory_mb=64`, which go through the profile's contracts.
    What a target cannot express, but does without, is a Python warning. Other problems raise `ProfileError`.
    """
    outputs, notes = compile_outputs(
        file, [text_of("format", format)], encoding=encoding, overrides=overrides, imports=imports, trusted=trusted
    )
    for warning in notes:
        warnings.warn(warning, stacklevel=2)
    text, refusal = outputs[0]
    if text is None:
        raise ProfileError(refusal)
    return text
