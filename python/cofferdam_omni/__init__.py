"""Provides `omni.core.skills.sandbox` and `omni.core.skills.executor` to code that imports them, if nothing else does.

    import cofferdam_omni                   # in this process, from here on
    python -m cofferdam_omni enable         # in this environment, until `disable`

The finder is the last one, so an installed `omni` is always found first, and only missing modules come from here. Imports
nothing of Cofferdam before one of the two modules is imported.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional, Sequence

__all__ = ["install"]

_PACKAGES = ("omni", "omni.core", "omni.core.skills")

_MODULES = {
    "omni.core.skills.sandbox": ("NclDrivenSandbox", "Platform", "SandboxResult"),
    "omni.core.skills.executor": (
        "ExecutionResult",
        "JailExecutor",
        "NsJailExecutor",
        "ResourceUsage",
        "SeatbeltExecutor",
        "detect_platform",
        "is_nsjail_available",
        "is_seatbelt_available",
    ),
}


class _Finder(MetaPathFinder, Loader):
    """Finds the two modules, and the packages above them."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if fullname in _MODULES:
            return ModuleSpec(fullname, self, origin="cofferdam")
        if fullname in _PACKAGES:
            return ModuleSpec(fullname, self, origin="cofferdam", is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        names = _MODULES.get(module.__name__)
        if names is None:
            return
        import cofferdam

        for name in names:
            setattr(module, name, getattr(cofferdam, name))
        setattr(module, "__all__", list(names))
        module.__doc__ = "Cofferdam under a name that existing code imports."


def install() -> None:
    """Adds the finder, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


install()
