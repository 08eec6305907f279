"""An alias package with the names that existing code imports; all of them are Cofferdam's."""

from cofferdam import (
    ExecutionResult,
    JailExecutor,
    NclDrivenSandbox,
    NsJailExecutor,
    Platform,
    ResourceUsage,
    SandboxResult,
    SeatbeltExecutor,
    detect_platform,
    is_nsjail_available,
    is_seatbelt_available,
)

__all__ = [
    "ExecutionResult",
    "JailExecutor",
    "NclDrivenSandbox",
    "NsJailExecutor",
    "Platform",
    "ResourceUsage",
    "SandboxResult",
    "SeatbeltExecutor",
    "detect_platform",
    "is_nsjail_available",
    "is_seatbelt_available",
]
