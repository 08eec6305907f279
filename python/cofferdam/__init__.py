"""Cofferdam: runs untrusted code in a sandbox, and reports what it was allowed to do, what it tried and what it used.

    >>> import cofferdam
    >>> cofferdam.run({"version": 1}, ["echo", "hello"]).stdout
    'hello\\n'

The native part is `cofferdam._native`. The public interface is here.
"""

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
