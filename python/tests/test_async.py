"""Runs under asyncio: the loop goes on, cancelling kills, many run at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any, Coroutine, List

import pytest
from conftest import policy, sleeping, wait_for

import cofferdam


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def test_the_loop_goes_on_while_it_runs() -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        ticking = asyncio.create_task(tick())
        outcome = await cofferdam.run_async(policy(), ["sh", "-c", "cat; sleep 0.5"], stdin="in")
        ticking.cancel()
        assert outcome.stdout == "in" and ticks > 20

    run(main())


def test_cancelling_the_task_kills_the_tree() -> None:
    async def main() -> None:
        command = ["sh", "-c", "(setsid sleep 71.5) & sleep 71.5"]
        task = asyncio.create_task(cofferdam.run_async(policy(), command))
        await asyncio.to_thread(wait_for, lambda: sleeping("71.5") == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sleeping("71.5") == 0, "when the task is over, nothing of it is left"
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(cofferdam.run_async(policy(), command), 0.3)
        assert sleeping("71.5") == 0

    run(main())


def test_output_is_read_while_it_runs() -> None:
    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done"])
        times: List[float] = []
        text = b""
        async with prepared.start_async() as running:
            async for stream, piece in running:
                assert stream == "stdout"
                times.append(time.monotonic())
                text += piece
            outcome = await running
        assert text == b"1\n2\n3\n" and times[-1] - times[0] > 0.2
        assert outcome.success
        pieces: List[bytes] = []
        await prepared.run_async(on_output=lambda stream, piece: pieces.append(piece))
        assert b"".join(pieces) == text

    run(main())


def test_leaving_the_block_kills_the_tree() -> None:
    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["sh", "-c", "echo x; sleep 72.5"])
        async with prepared.start_async() as running:
            async for _ in running:
                break
            assert sleeping("72.5") == 1 or not running.done
        assert running.done and sleeping("72.5") == 0

    run(main())


def test_usage_is_reported_while_it_runs() -> None:
    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["sleep", "0.6"])
        async with prepared.start_async(stream=False) as running:
            samples = [usage async for usage in running.usages(0.05)]
            assert (await running).success
        assert len(samples) >= 3 and any(usage.pid_count >= 1 for usage in samples)

    run(main())


def test_thirty_two_run_at_once() -> None:
    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["sh", "-c", "cat; sleep 1"])
        begun = time.monotonic()
        outcomes = await asyncio.gather(*(prepared.run_async(f"call {number}") for number in range(32)))
        assert [outcome.stdout for outcome in outcomes] == [f"call {number}" for number in range(32)]
        assert time.monotonic() - begun < 16, "one after the other they would take 32 seconds"

    run(main())


def test_one_of_many_is_cancelled_and_the_others_are_not() -> None:
    async def main() -> None:
        prepared = cofferdam.prepare(policy(), ["sh", "-c", "cat; sleep 0.5"])
        tasks = [asyncio.create_task(prepared.run_async(str(number))) for number in range(4)]
        await asyncio.sleep(0.1)
        tasks[2].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        message = [outcome.stdout if isinstance(outcome, cofferdam.Outcome) else type(outcome) for outcome in outcomes]
        assert message == ["0", "1", asyncio.CancelledError, "3"]

    run(main())


def test_a_policy_is_started_in_the_loop() -> None:
    async def main() -> None:
        async with cofferdam.start_async(policy(), ["cat"], stdin="in", timeout=30) as running:
            assert [piece async for piece in running] == [("stdout", b"in")]
            assert (await running).exit_code == 0

    asyncio.run(main())


def test_an_interpreter_that_ends_right_after_a_run_ends_well() -> None:
    code = f"import asyncio, cofferdam; asyncio.run(cofferdam.run_async({policy()!r}, ['true']))"
    for _ in range(40):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, b"")
