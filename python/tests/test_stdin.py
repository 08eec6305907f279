"""Standard input from files, iterables and asynchronous iterables, and backpressure."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any, AsyncIterator, Callable, Coroutine, Iterator, List

import pytest
from conftest import policy, sleeping, wait_for

import cofferdam
from cofferdam import JailExecutor, NclDrivenSandbox

LINES = [f"line {number}\n" for number in range(1000)]


def test_every_kind_of_input_arrives(tmp_path: Path) -> None:
    text = "".join(LINES)
    file = tmp_path / "input.txt"
    file.write_text("head\n" + text)
    prepared = cofferdam.prepare(policy(), ["cat"])
    with open(file) as opened, open(file, "rb") as raw:
        opened.readline()
        raw.seek(5)
        kinds: List[Any] = [
            text,
            text.encode(),
            bytearray(text.encode()),
            memoryview(text.encode()),
            io.StringIO(text),
            io.BytesIO(text.encode()),
            opened,  # from its position, including what Python has read ahead
            raw,
            LINES,
            (line.encode() for line in LINES),
            iter(LINES),
        ]
        for kind in kinds:
            assert prepared.run(kind).stdout == text, kind
        assert not raw.closed and not opened.closed, "they are the caller's"
    assert prepared.run(iter(())).stdout == "" == prepared.run(None).stdout
    pieces: List[bytes] = []
    prepared.run(LINES, on_output=lambda stream, piece: pieces.append(piece))
    assert b"".join(pieces).decode() == text


def test_producer_waits_for_the_program() -> None:
    made = 0

    def pieces() -> Iterator[bytes]:
        nonlocal made
        while made < 1000:
            made += 1
            yield b"x" * 65536

    run = cofferdam.start(policy(), ["sh", "-c", "sleep 0.5; wc -c"], stdin=pieces(), stream=False)
    wait_for(lambda: made > 0)
    time.sleep(0.3)
    assert made < 10, "nobody reads yet, and pipes hold little"
    outcome = run.wait()
    assert outcome is not None and outcome.stdout.strip() == str(1000 * 65536)


def test_input_and_output_go_on_together() -> None:
    answered: List[bytes] = []
    asked = threading.Event()

    def questions() -> Iterator[str]:
        for number in range(3):
            asked.wait(10)
            asked.clear()
            yield f"{number}\n"

    command = ["sh", "-c", "echo ready; while read line; do echo got $line; done"]
    with cofferdam.start(policy(), command, stdin=questions()) as run:
        for _, piece in run:
            answered.append(piece)
            asked.set()
    assert b"".join(answered) == b"ready\ngot 0\ngot 1\ngot 2\n"


def test_program_that_stops_reading_ends_the_producer() -> None:
    closed = threading.Event()

    def endless() -> Iterator[bytes]:
        try:
            for _ in itertools.count():
                yield b"y\n" * 1000
        finally:
            closed.set()

    assert cofferdam.run(policy(), ["head", "-n", "2"], stdin=endless()).stdout == "y\ny\n"
    assert closed.wait(10), "what made the pieces is closed as well"


def test_producer_exception_ends_the_run_and_is_raised() -> None:
    def broken() -> Iterator[str]:
        yield "a\n"
        raise KeyError("made no more")

    begun = time.monotonic()
    with pytest.raises(KeyError, match="made no more"):
        cofferdam.run(policy(), ["sh", "-c", "cat; sleep 73.5"], stdin=broken())
    assert time.monotonic() - begun < 10 and sleeping("73.5") == 0
    with pytest.raises(TypeError, match="a piece is text or bytes, and not int"):
        cofferdam.run(policy(), ["cat"], stdin=[1])
    wrong: Any = 7
    with pytest.raises(TypeError, match="no text, no bytes, no open file"):
        cofferdam.run(policy(), ["cat"], stdin=wrong)


def test_no_descriptor_is_left() -> None:
    prepared = cofferdam.prepare(policy(), ["cat"])
    for _ in range(3):
        prepared.run(["x"])  # resources for the next run exist from then on

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(5):
        prepared.run(["x"])
    wait_for(lambda: count() <= before)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def test_under_asyncio_each_kind_arrives() -> None:
    async def lines() -> AsyncIterator[str]:
        for line in LINES:
            if line.endswith("00\n"):
                await asyncio.sleep(0)
            yield line

    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["cat"])
        for kind in (lines(), LINES, io.BytesIO("".join(LINES).encode()), "".join(LINES)):
            assert (await prepared.run_async(kind)).stdout == "".join(LINES)
        with pytest.raises(TypeError, match="run_async or start_async"):
            await asyncio.to_thread(prepared.run, lines())

    run(main)


def test_asyncio_producer_waits_without_blocking_the_loop() -> None:
    made = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal made
        while made < 200:
            made += 1
            yield b"x" * 65536

    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["sh", "-c", "sleep 0.5; wc -c"])
        task = asyncio.create_task(prepared.run_async(pieces()))
        await asyncio.sleep(0.3)
        assert made < 10
        assert (await task).stdout.strip() == str(200 * 65536)

    run(main)


def test_under_asyncio_an_end_of_either_side_ends_the_other() -> None:
    closed: List[bool] = []

    async def waits() -> AsyncIterator[str]:
        try:
            yield "a\n"
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def broken() -> AsyncIterator[str]:
        yield "a\n"
        raise KeyError("made no more")

    async def main() -> None:
        assert (await cofferdam.run_async(policy(), ["head", "-n", "1"], stdin=waits())).stdout == "a\n"
        await asyncio.to_thread(wait_for, lambda: closed != [])
        with pytest.raises(KeyError):
            await cofferdam.run_async(policy(), ["sh", "-c", "cat; sleep 74.5"], stdin=broken())
        assert sleeping("74.5") == 0
        task = asyncio.create_task(cofferdam.run_async(policy(), ["sh", "-c", "cat; sleep 75.5"], stdin=waits()))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sleeping("75.5") == 0

    run(main)


def test_asyncio_run_over_before_waiting_leaves_no_descriptor() -> None:
    async def lines() -> AsyncIterator[str]:
        for line in LINES:
            yield line

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def over_at_once(prepared: cofferdam.Prepared) -> None:
        running = prepared.start_async(lines())
        running.cancel()
        wait_for(lambda: running.done)  # the loop is blocked meanwhile, so no output is read
        assert (await running.wait()).outcome == "signalled"

    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["cat"])
        assert (await prepared.run_async(lines())).stdout == "".join(LINES)
        for _ in range(3):
            await over_at_once(prepared)  # resources for the next run exist from then on
        await asyncio.sleep(0.1)
        before = count()
        for _ in range(5):
            await over_at_once(prepared)
        await asyncio.sleep(0.1)
        assert count() <= before

    run(main)


def test_executors_and_skills_take_it_too(tmp_path: Path) -> None:
    config = tmp_path / "policy.json"
    config.write_text('{"version": 1, "command": {"argv": ["cat"], "stdin": "caller"}}')
    assert JailExecutor().execute_sync(config, iter(LINES)).stdout == "".join(LINES)
    assert asyncio.run(JailExecutor().execute(config, iter(LINES))).stdout == "".join(LINES)
    sandbox = NclDrivenSandbox(profile_dir=tmp_path / "profiles")
    sandbox.export_profile("reader", {"network_policy": "deny", "cmd": ["cat"]})
    assert sandbox.execute_sync("reader", ["cat"], LINES).stdout == "".join(LINES)

    async def lines() -> AsyncIterator[str]:
        for line in LINES:
            yield line

    assert asyncio.run(sandbox.execute("reader", ["cat"], lines())).stdout == "".join(LINES)
