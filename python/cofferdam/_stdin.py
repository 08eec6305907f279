"""Standard input of a run: bytes, or pieces that are passed on as the program reads them.

    pieces ── thread, or task of the loop ──▶ pipe ──▶ supervisor ──▶ the program's own pipe

A pipe has a small buffer, so the producer of the pieces waits for the program. Pieces are not read ahead or stored.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import threading
from typing import Any, AsyncIterable, Callable, Iterable, Iterator, Optional, Tuple, Union

Piece = Union[str, bytes]

Stdin = Union[str, bytes, Iterable[Piece], Any, None]
"""Text, bytes, an open file, an iterable of pieces, or nothing. A file is read from its position, and stays open."""

AsyncStdin = Union[Stdin, AsyncIterable[Piece]]
"""Any standard input, or an asynchronous iterable of pieces."""

_PIECE = 1 << 16

Failed = Callable[[BaseException], None]
"""Called with an exception of the producer."""


def plain(stdin: AsyncStdin) -> Tuple[bool, Optional[bytes]]:
    """Whether the whole input is available, and that input."""
    if stdin is None:
        return True, None
    if isinstance(stdin, str):
        return True, stdin.encode()
    if isinstance(stdin, (bytes, bytearray, memoryview)):
        return True, bytes(stdin)
    return False, None


def pieces(stdin: AsyncStdin, name: str) -> Iterator[Piece]:
    """The pieces of the input. An error names the argument."""
    if isinstance(stdin, io.TextIOBase):
        return iter(stdin)  # by lines: a larger read could block on a partial one
    read = getattr(stdin, "read1", getattr(stdin, "read", None))
    if callable(read):
        return _read(read)
    if isinstance(stdin, Iterable):
        return iter(stdin)
    if isinstance(stdin, AsyncIterable):
        raise TypeError(f"{name}: an asynchronous iterable needs a run of the event loop: run_async or start_async")
    raise TypeError(f"{name}: {stdin!r} is no text, no bytes, no open file and no iterable of them")


def _read(read: Callable[[int], Piece]) -> Iterator[Piece]:
    while piece := read(_PIECE):
        yield piece


def _encoded(piece: Piece, name: str) -> memoryview:
    if isinstance(piece, str):
        return memoryview(piece.encode())
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return memoryview(piece).cast("B")
    raise TypeError(f"{name}: a piece is text or bytes, and not {type(piece).__name__}")


def feed(source: Iterator[Piece], descriptor: int, failed: Failed, name: str) -> None:
    """Writes the pieces to the descriptor from a thread, which closes it at the end."""

    def work() -> None:
        with open(descriptor, "wb", buffering=0) as out:
            try:
                for piece in source:
                    left = _encoded(piece, name)
                    while left:
                        left = left[out.write(left) :]
            except BrokenPipeError:
                pass  # the program or the run has ended and reads no more
            except BaseException as error:  # reported before end of file, since the input is incomplete
                failed(error)
        if inspect.isgenerator(source):
            source.close()

    threading.Thread(target=work, name="cofferdam-stdin", daemon=True).start()


def feed_async(source: AsyncIterable[Piece], descriptor: int, failed: Failed, name: str) -> asyncio.Task[None]:
    """Writes the pieces to the descriptor from a task, which closes it at the end, even if cancelled before it began."""
    out = open(descriptor, "wb", buffering=0)

    async def work() -> None:
        try:
            os.set_blocking(descriptor, False)
            async for piece in source:
                left = _encoded(piece, name)
                while left:
                    try:
                        left = left[os.write(descriptor, left) :]
                    except BlockingIOError:
                        await _writable(descriptor)
        except (BrokenPipeError, asyncio.CancelledError):
            pass  # the program or the run has ended
        except BaseException as error:
            failed(error)
        finally:
            out.close()
            if inspect.isasyncgen(source):
                await source.aclose()

    task = asyncio.get_running_loop().create_task(work())
    task.add_done_callback(lambda _: out.close())
    return task


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(descriptor, resolve)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


class InputErrors:
    """Passes an exception of the producer to the caller that waits for the run, and cancels the run."""

    def __init__(self) -> None:
        self._error: Optional[BaseException] = None
        self._cancel: Optional[Callable[[], None]] = None
        self._lock = threading.Lock()

    def failed(self, error: BaseException) -> None:
        """Records the exception, and cancels the run."""
        with self._lock:
            self._error = error
            cancel = self._cancel
        if cancel is not None:
            cancel()

    def cancels(self, cancel: Callable[[], None]) -> None:
        """Sets the function that cancels the run."""
        with self._lock:
            self._cancel = cancel
            late = self._error is not None
        if late:
            cancel()

    def check(self) -> None:
        """Raises the recorded exception, if any."""
        with self._lock:
            error, self._error = self._error, None
        if error is not None:
            raise error
