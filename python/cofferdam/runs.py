"""Policies and their runs: blocking, in the background, or awaited.

A policy is data (docs/policy.schema.json): a mapping, JSON text, or the path of a file. `prepare` prepares it once, and
a `Prepared` runs it any number of times, from any thread. A run that is cancelled, or that is no longer referenced, is
killed with its process tree.
"""

from __future__ import annotations

import asyncio
import json
import operator
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _native
from ._native import Outcome, ResourceUsage
from ._stdin import AsyncStdin, InputErrors, Stdin, feed, feed_async, pieces, plain

Policy = Union[Mapping[str, Any], str, bytes, "os.PathLike[str]"]
"""A mapping, JSON text that begins with a brace, or the path of a file."""

_LONGEST = 10**12
"""The longest timeout that is accepted, seconds."""

_LONGEST_POLICY = 16 << 20
"""The longest policy file that is read, bytes."""

TrailPath = Union[str, "os.PathLike[str]"]
"""The directory of an audit trail."""

OnOutput = Callable[[str, bytes], object]
"""Called with `stdout` or `stderr` and each piece of output."""


def policy_bytes(policy: Policy) -> bytes:
    """A policy as JSON, not validated yet."""
    if isinstance(policy, Mapping):
        return as_json("policy", policy).encode()
    if isinstance(policy, bytes):
        return policy
    if isinstance(policy, str) and policy.lstrip().startswith("{"):
        return policy.encode()
    return _read_policy(path_of("policy", policy))


def _read_policy(path: Path) -> bytes:
    """The bytes of a policy file, within the limit of the command."""
    with open(path, "rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise ValueError(f"policy: {path} is neither a file nor a pipe")
        text = file.read(_LONGEST_POLICY + 1)
    if len(text) > _LONGEST_POLICY:
        raise ValueError(f"policy: {path} is longer than 16 MiB")
    return text


def as_json(name: str, value: Mapping[str, Any], other: Optional[Callable[[Any], Any]] = None) -> str:
    """A mapping as JSON. An error about a value names the argument."""
    try:
        return json.dumps(dict(value), allow_nan=False, default=other)
    except RecursionError:
        raise ValueError(f"{name}: it is nested too deeply") from None
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    except ValueError as error:
        message = str(error)
        raise ValueError(message if message.startswith(f"{name}:") else f"{name}: {message}") from None


def path_of(name: str, value: Any) -> Path:
    """A path. An error about the value names the argument."""
    if isinstance(value, (str, bytes)) and not value:
        # As a path it would be the working directory.
        raise ValueError(f"{name}: an empty path; name a directory or file, or give None")
    try:
        return Path(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not a path") from None


def paths_of(name: str, value: Any) -> List[Path]:
    """A list of paths. A single path is an error, and not a list of its letters."""
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: {value!r} is not a list of paths")
    return [path_of(f"{name}[{at}]", path) for at, path in enumerate(value)]


def words_of(name: str, value: Any) -> List[str]:
    """A list of texts, paths and numbers, as texts. A single text is an error, and not a list of its letters."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f'{name}: {value!r} is not a list of texts, such as ["python3", "main.py"]')
    words = []
    for at, word in enumerate(value):
        if isinstance(word, os.PathLike):
            word = os.fspath(word)
        if not isinstance(word, (str, int, float)):
            raise TypeError(f"{name}[{at}]: {word!r} is not a text")
        text = str(word)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{name}[{at}]: {text!r} is not valid Unicode") from None
        words.append(text)
    return words


def text_of(name: str, value: Any) -> str:
    """A text. An error about the value names the argument."""
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is not a text")
    return value


def _count_of(name: str, value: Any) -> int:
    """A number of things. An error about the value names the argument."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not a whole number") from None
    if not 0 <= count < 2**32:
        raise ValueError(f"{name}: {value!r} is not a number from 0 on")
    return count


def check_on_output(on_output: Any) -> None:
    """An `on_output` that cannot be called is an error, also where there would be no output."""
    if on_output is not None and not callable(on_output):
        raise TypeError(f"on_output: {on_output!r} is not a function")


def timeout_ms(timeout: Optional[float]) -> Optional[int]:
    """Seconds as whole milliseconds, at least one."""
    if timeout is None:
        return None
    try:
        some = timeout > 0
    except TypeError:
        raise TypeError(f"timeout: {timeout!r} is not a number of seconds, such as 30 or 0.5") from None
    if not some or timeout > _LONGEST:
        raise ValueError(f"timeout: {timeout!r} is not a number of seconds above 0")
    return max(1, round(timeout * 1000))


class Run:
    """A run in the background. If it was started with `stream`, iterating over it yields `(stream, bytes)` as output arrives."""

    def __init__(self, native: _native.Run, fed: Optional[InputErrors] = None) -> None:
        self._native = native
        self._fed = fed
        if fed is not None:
            fed.cancels(native.cancel)

    def __iter__(self) -> Iterator[Tuple[str, bytes]]:
        while (piece := self._native.read()) is not None:
            yield piece

    def read(self, timeout: Optional[float] = None) -> Optional[Tuple[str, bytes]]:
        """The next piece of output; None at the end, or if none arrives for `timeout` seconds."""
        return self._native.read(timeout)

    def wait(self, timeout: Optional[float] = None) -> Optional[Outcome]:
        """Waits for the end, at most `timeout` seconds; None if it is not over by then.

        If the producer of its standard input raised an exception, the run was cancelled, and the exception is raised here.
        """
        outcome = self._native.wait(timeout)
        if outcome is not None and self._fed is not None:
            self._fed.check()
        return outcome

    def cancel(self) -> None:
        """Kills the process tree. `wait` still returns the outcome."""
        self._native.cancel()

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._native.done

    def usage(self) -> Optional[ResourceUsage]:
        """Its present resource usage; None before it has begun and after it has ended."""
        return self._native.usage()

    def usages(self, interval: float = 0.1) -> Iterator[ResourceUsage]:
        """Yields its resource usage every `interval` seconds, until it is over."""
        return self._native.samples(interval)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._native.done:
            self._native.cancel()
            self._native.wait()


AsyncStart = Callable[[Optional[bytes], bool, Callable[[], object]], _native.Run]
"""Starts a run with this standard input, or with a pipe for it; the last argument is its `notify`."""


def start_run(
    prepared: _native.Prepared,
    stdin: Stdin,
    *,
    stream: bool,
    keep_changes: Optional[Path] = None,
    argument: str = "stdin",
) -> Run:
    """Starts a prepared policy in the background. Errors about its standard input name the argument."""
    ready, given = plain(stdin)
    if ready:
        return Run(prepared.start(given, keep_changes=keep_changes, stream=stream))
    source, fed = pieces(stdin, argument), InputErrors()
    native = prepared.start(pipe=True, keep_changes=keep_changes, stream=stream)
    feed(source, _taken(native), fed.failed, argument)
    return Run(native, fed)


def _taken(native: _native.Run) -> int:
    """The descriptor of a run's standard input pipe."""
    descriptor = native.take_stdin()
    assert descriptor is not None
    return descriptor


def run_prepared(
    prepared: _native.Prepared,
    stdin: Stdin,
    *,
    on_output: Optional[OnOutput] = None,
    keep_changes: Optional[Path] = None,
    argument: str = "stdin",
) -> Outcome:
    """Runs a prepared policy, and waits for its end. Errors about its standard input name the argument."""
    check_on_output(on_output)
    ready, given = plain(stdin)
    if on_output is None and ready:
        return prepared.run(given, keep_changes=keep_changes)
    streams = on_output is not None
    with start_run(prepared, stdin, stream=streams, keep_changes=keep_changes, argument=argument) as running:
        if on_output is not None:
            for stream, piece in running:
                on_output(stream, piece)
        outcome = running.wait()
    assert outcome is not None
    return outcome


class AsyncRun:
    """A run in the background of an event loop. Cancelling a task that waits for it kills the process tree."""

    def __init__(self, start: AsyncStart, stdin: AsyncStdin = None, argument: str = "stdin") -> None:
        loop = asyncio.get_running_loop()
        self._fed: Optional[InputErrors] = None
        self._feeding: Optional[asyncio.Task[None]] = None
        self._event = asyncio.Event()
        event = self._event

        def notify() -> None:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                pass  # the loop is closed, and no task waits any more

        ready, given = plain(stdin)
        awaited = isinstance(stdin, AsyncIterable)
        source = None if ready or awaited else pieces(stdin, argument)
        self._native = start(given, not ready, notify)
        if ready:
            return
        self._fed = InputErrors()
        self._fed.cancels(self._native.cancel)
        if source is not None:
            feed(source, _taken(self._native), self._fed.failed, argument)
        elif isinstance(stdin, AsyncIterable):
            self._feeding = feed_async(stdin, _taken(self._native), self._fed.failed, argument)

    def _over(self) -> None:
        """Stops writing standard input, which is not read any more."""
        if self._feeding is not None:
            self._feeding.cancel()

    async def _next(self) -> None:
        """Waits for the next notification."""
        try:
            await self._event.wait()
        except asyncio.CancelledError:
            await self._end()
            raise
        self._event.clear()

    async def _end(self) -> None:
        self._native.cancel()
        # The supervisor checks for cancellation ten times a second, so this is short. Afterwards no process is left.
        while not self._native.done:
            self._event.clear()
            if not self._native.done:
                await self._event.wait()
        self._over()

    async def wait(self) -> Outcome:
        """Waits for the end."""
        while not self._native.done:
            await self._next()
        self._over()
        outcome = self._native.wait()
        assert outcome is not None
        if self._fed is not None:
            self._fed.check()
        return outcome

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self.wait().__await__()

    async def __aiter__(self) -> AsyncIterator[Tuple[str, bytes]]:
        while True:
            over = self._native.done  # checked first, so that output from before the end is taken
            for piece in self._native.take():
                yield piece
            if over:
                return
            await self._next()

    def cancel(self) -> None:
        """Kills the process tree. Awaiting still returns the outcome."""
        self._native.cancel()

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._native.done

    def usage(self) -> Optional[ResourceUsage]:
        """Its present resource usage; None before it has begun and after it has ended."""
        return self._native.usage()

    async def usages(self, interval: float = 0.1) -> AsyncIterator[ResourceUsage]:
        """Yields its resource usage every `interval` seconds, until it is over."""
        while not self._native.done:
            usage = self._native.usage()
            if usage is not None:
                yield usage
            await asyncio.sleep(interval if usage is not None else min(interval, 0.005))

    async def __aenter__(self) -> AsyncRun:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self._native.done:
            await self._end()


class Prepared:
    """A policy that is ready to run, with the backend that enforces it."""

    def __init__(self, native: _native.Prepared) -> None:
        self._native = native

    def run(
        self,
        stdin: Stdin = None,
        *,
        on_output: Optional[OnOutput] = None,
        keep_changes: Optional["os.PathLike[str]"] = None,
    ) -> Outcome:
        """Runs it, and waits for its end without blocking other threads."""
        directory = None if keep_changes is None else path_of("keep_changes", keep_changes)
        return run_prepared(self._native, stdin, on_output=on_output, keep_changes=directory)

    async def run_async(self, stdin: AsyncStdin = None, *, on_output: Optional[OnOutput] = None) -> Outcome:
        """Runs it without blocking the event loop. Cancelling it kills the process tree."""
        check_on_output(on_output)
        async with self.start_async(stdin, stream=on_output is not None) as running:
            if on_output is not None:
                async for stream, piece in running:
                    on_output(stream, piece)
            return await running.wait()

    def start(self, stdin: Stdin = None, *, stream: bool = True) -> Run:
        """Starts it in the background. With `stream=False` the output is collected for the outcome."""
        return start_run(self._native, stdin, stream=stream)

    def start_async(self, stdin: AsyncStdin = None, *, stream: bool = True) -> AsyncRun:
        """Starts it in the background of the running event loop."""
        return AsyncRun(
            lambda given, pipe, notify: self._native.start(given, pipe=pipe, stream=stream, notify=notify), stdin
        )

    @property
    def policy(self) -> dict[str, Any]:
        """The complete policy."""
        complete: dict[str, Any] = json.loads(self._native.policy_json)
        return complete

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self._native.backend

    @property
    def backend_reason(self) -> str:
        """Why that backend was chosen."""
        return self._native.backend_reason

    @property
    def enforcement(self) -> dict[str, dict[str, str]]:
        """The expected enforcement of each field."""
        return self._native.enforcement

    @property
    def plan(self) -> Any:
        """What the backend will do, for display."""
        return self._native.plan


def prepare(
    policy: Policy,
    argv: Optional[Sequence[str]] = None,
    *,
    timeout: Optional[float] = None,
    keep_ready: int = 0,
    audit_trail: Optional[TrailPath] = None,
) -> Prepared:
    """Prepares a policy.

    `argv` replaces the policy's command; `timeout`, in seconds, its wall time limit, but cannot exceed one that it names.
    `keep_ready` sandboxes are staged before their runs, for callers that run it repeatedly. Its runs are recorded in the
    audit trail of the directory `audit_trail`, or else of `COFFERDAM_AUDIT`, if either is set.
    """
    return Prepared(
        _native.Prepared.from_policy(
            policy_bytes(policy),
            command=None if argv is None else words_of("argv", argv),
            timeout_ms=timeout_ms(timeout),
            keep_ready=_count_of("keep_ready", keep_ready),
            audit_trail=None if audit_trail is None else path_of("audit_trail", audit_trail),
        )
    )


def run(
    policy: Policy,
    argv: Optional[Sequence[str]] = None,
    *,
    stdin: Stdin = None,
    timeout: Optional[float] = None,
    on_output: Optional[OnOutput] = None,
    audit_trail: Optional[TrailPath] = None,
) -> Outcome:
    """Runs a policy once."""
    return prepare(policy, argv, timeout=timeout, audit_trail=audit_trail).run(stdin, on_output=on_output)


async def run_async(
    policy: Policy,
    argv: Optional[Sequence[str]] = None,
    *,
    stdin: AsyncStdin = None,
    timeout: Optional[float] = None,
    on_output: Optional[OnOutput] = None,
    audit_trail: Optional[TrailPath] = None,
) -> Outcome:
    """Runs a policy once, without blocking the event loop."""
    return await prepare(policy, argv, timeout=timeout, audit_trail=audit_trail).run_async(stdin, on_output=on_output)


def start(
    policy: Policy,
    argv: Optional[Sequence[str]] = None,
    *,
    stdin: Stdin = None,
    timeout: Optional[float] = None,
    stream: bool = True,
    audit_trail: Optional[TrailPath] = None,
) -> Run:
    """Starts a policy in the background."""
    return prepare(policy, argv, timeout=timeout, audit_trail=audit_trail).start(stdin, stream=stream)


def start_async(
    policy: Policy,
    argv: Optional[Sequence[str]] = None,
    *,
    stdin: AsyncStdin = None,
    timeout: Optional[float] = None,
    stream: bool = True,
    audit_trail: Optional[TrailPath] = None,
) -> AsyncRun:
    """Starts a policy in the background of the running event loop."""
    return prepare(policy, argv, timeout=timeout, audit_trail=audit_trail).start_async(stdin, stream=stream)
