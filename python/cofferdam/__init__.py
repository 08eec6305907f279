"""Cofferdam: runs untrusted code in a sandbox, and reports what it was allowed to do, what it tried and what it used.

    >>> import cofferdam
    >>> cofferdam.run({"version": 1}, ["echo", "hello"]).stdout
    'hello\\n'

The native part is `cofferdam._native`. The public interface is here.
"""

import atexit as _atexit
import os as _os

from . import _native
from ._native import (
    CofferdamError,
    ExecutionResult,
    Outcome,
    PolicyError,
    ProfileError,
    ResourceUsage,
    detect_platform,
    is_nsjail_available,
    is_seatbelt_available,
)
from .executors import JailExecutor, NsJailExecutor, SeatbeltExecutor
from .profiles import compile_profile
from .runs import AsyncRun, Policy, Prepared, Run, prepare, run, run_async, start, start_async
from .skills import NclDrivenSandbox, Platform, SandboxResult

_atexit.register(_native.at_exit)
_os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_native.after_fork_in_child,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncRun",
    "CofferdamError",
    "ExecutionResult",
    "JailExecutor",
    "NclDrivenSandbox",
    "NsJailExecutor",
    "Outcome",
    "Platform",
    "Policy",
    "PolicyError",
    "Prepared",
    "ProfileError",
    "ResourceUsage",
    "Run",
    "SandboxResult",
    "SeatbeltExecutor",
    "compile_profile",
    "detect_platform",
    "is_nsjail_available",
    "is_seatbelt_available",
    "prepare",
    "run",
    "run_async",
    "start",
    "start_async",
]
