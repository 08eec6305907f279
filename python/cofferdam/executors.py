"""The compatible executors: the path of a configuration and some input in, a result out.

A configuration is a `policy.json`, an `nsjail.json` of any age, or a `seatbelt.sb` with its policy beside it. It is
looked at again in every call and made ready only when it has changed.
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

_MOST = 16 << 20
"""Bytes of a configuration; a longer one is refused."""

ConfigPath = Union[str, "os.PathLike[str]"]


class _Executor:
    """What the executors share."""

    _name = ""

    def __init__(self, nsjail_path: Optional[ConfigPath], default_timeout: int) -> None:
        try:
            default_timeout = operator.index(default_timeout)
        except TypeError:
            told = f"default_timeout: {default_timeout!r} is not a whole number of seconds, such as 60"
            raise TypeError(told) from None
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
        """Seconds that an execution may take when its configuration does not say."""
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
        """Runs what the configuration says with this standard input, and waits for its end."""
        return run_prepared(self._prepared(config_path), input).to_execution_result()

    async def execute(self, config_path: ConfigPath, input: AsyncStdin = "") -> ExecutionResult:
        """The same while the event loop goes on. Cancelled, it kills the tree."""
        prepared = self._prepared(config_path)
        async with AsyncRun(lambda given, pipe, notify: prepared.start(given, pipe=pipe, notify=notify), input) as running:
            return (await running).to_execution_result()

    def start(self, config_path: ConfigPath, input: Stdin = "", *, stream: bool = False) -> Run:
        """Starts the same in the background: a `Run`, which tells what it uses, is cancelled, and gives its `Outcome`.

        With `stream`, its output is to be read while it runs.
        """
        return start_run(self._prepared(config_path), input, stream=stream)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(default_timeout={self._default_timeout})"


def _content(path: Path) -> Tuple[bytes, Optional[bytes]]:
    """What a configuration is made of: the file, and the policy beside it that it may have been exported from."""
    content = _read(path)
    if path.name == "policy.json":
        return content, None
    try:
        return content, _read(path.with_name("policy.json"))
    except OSError:
        return content, None


def _read(path: Path) -> bytes:
    """A regular file, as far as it can be a configuration: a pipe without a writer would be waited for."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(_MOST + 1)


class NsJailExecutor(_Executor):
    """Runs configurations by nsjail where it is installed, and by the jail, which holds the same, where it is not."""

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
