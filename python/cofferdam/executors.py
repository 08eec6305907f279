"""The compatible executors: they run a configuration file with some input, and return a result.

A configuration is a `policy.json`, an `nsjail.json` of any version, or a `seatbelt.sb` with its policy beside it. Each
call reads it again, and prepares it only if it has changed.
"""

from __future__ import annotations

import errno
import operator
import os
import stat
from pathlib import Path
from typing import Hashable, Optional, Tuple, Union

from . import _cache, _native
from ._native import ExecutionResult
from ._stdin import AsyncStdin, Stdin
from .runs import AsyncRun, Run, path_of, run_prepared, start_run

_LIMIT = 16 << 20
"""Most bytes of a configuration."""

ConfigPath = Union[str, "os.PathLike[str]"]


class _Executor:
    """The common base of the executors."""

    _name = ""

    def __init__(self, nsjail_path: Optional[ConfigPath], default_timeout: int) -> None:
        try:
            default_timeout = operator.index(default_timeout)
        except TypeError:
            message = f"default_timeout: {default_timeout!r} is not a whole number of seconds, such as 60"
            raise TypeError(message) from None
        if default_timeout <= 0:
            raise ValueError(f"default_timeout: {default_timeout!r} is not a number of seconds above 0")
        self._nsjail_path = None if nsjail_path is None else path_of("nsjail_path", nsjail_path)
        self._default_timeout = default_timeout

    @property
    def name(self) -> str:
        """The executor's name."""
        return self._name

    @property
    def default_timeout(self) -> int:
        """The time limit of executions whose configuration has none, seconds."""
        return self._default_timeout

    def _prepared(self, config_path: ConfigPath) -> _native.Prepared:
        path = path_of("config_path", config_path)
        if path.suffix == ".sb":
            path = path.with_name("policy.json")
        content = _content(path)
        key: Hashable = (self._name, self._nsjail_path, self._default_timeout, str(path), content)
        return _cache.prepared(
            key,
            lambda ready: _native.Prepared.from_config(
                path,
                self._name,
                content,
                nsjail_path=self._nsjail_path,
                default_timeout=self._default_timeout,
                keep_ready=ready,
            ),
        )

    def execute_sync(self, config_path: ConfigPath, input: Stdin = "") -> ExecutionResult:
        """Runs the configuration with this standard input, and waits for its end."""
        return run_prepared(self._prepared(config_path), input, argument="input").to_execution_result()

    async def execute(self, config_path: ConfigPath, input: AsyncStdin = "") -> ExecutionResult:
        """Runs the configuration without blocking the event loop. Cancelling it kills the process tree."""
        prepared = self._prepared(config_path)
        async with AsyncRun(
            lambda given, pipe, notify: prepared.start(given, pipe=pipe, notify=notify), input, "input"
        ) as running:
            return (await running).to_execution_result()

    def start(self, config_path: ConfigPath, input: Stdin = "", *, stream: bool = False) -> Run:
        """Starts it in the background. The `Run` reports its resource usage, can be cancelled, and returns its `Outcome`.

        With `stream`, its output has to be read while it runs.
        """
        return start_run(self._prepared(config_path), input, stream=stream, argument="input")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(default_timeout={self._default_timeout})"


def _content(path: Path) -> Tuple[bytes, Optional[bytes]]:
    """The contents of a configuration: the file, and the policy beside it that it may have been exported from."""
    content = _read(path)
    if path.name == "policy.json":
        return content, None
    try:
        return content, _read(path.with_name("policy.json"))
    except OSError:
        return content, None


def _read(path: Path) -> bytes:
    """The content of a regular file, up to the size limit. Opening a FIFO without a writer does not block."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(_LIMIT + 1)


class NsJailExecutor(_Executor):
    """Runs configurations by nsjail if it is installed, or else by the jail, which enforces the same."""

    _name = "nsjail"

    def __init__(self, nsjail_path: Optional[ConfigPath] = None, default_timeout: int = 60) -> None:
        super().__init__(nsjail_path, default_timeout)


class SeatbeltExecutor(_Executor):
    """Runs configurations by macOS's Seatbelt."""

    _name = "seatbelt"

    def __init__(self, default_timeout: int = 60) -> None:
        super().__init__(None, default_timeout)


class JailExecutor(_Executor):
    """Runs configurations by Cofferdam's own jail."""

    _name = "jail"

    def __init__(self, default_timeout: int = 60) -> None:
        super().__init__(None, default_timeout)
