"""Medians of what a call from Python costs, and how 32 of them at once scale. Prints; asserts nothing.

    python python/bench/runs.py [--rounds N] [--rust PROGRAM]

`--rust PROGRAM` is the same loop in Rust (`cargo build --release --example noop -p cofferdam-python`), started between
the rounds, so that both meet the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List

import cofferdam
from cofferdam import JailExecutor, NclDrivenSandbox

AT_ONCE = 32


def median_ms(call: Callable[[], object], times: int) -> float:
    taken: List[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e3


def at_once_in_threads(call: Callable[[], object], each: int) -> float:
    """Runs per second of 32 threads."""

    def work() -> None:
        for _ in range(each):
            call()

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return AT_ONCE * each / (time.perf_counter() - begun)


def at_once_awaited(sandbox: NclDrivenSandbox, each: int) -> float:
    """Runs per second of 32 tasks."""

    async def main() -> float:
        async def work() -> None:
            for _ in range(each):
                await sandbox.execute("bench", ["/bin/true"])

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return AT_ONCE * each / (time.perf_counter() - begun)

    return asyncio.run(main())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rust")
    parser.add_argument("--json", action="store_true", help="all samples as one JSON object")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        sandbox = NclDrivenSandbox(profile_dir=Path(directory, "profiles"))
        sandbox.export_profile("bench", {"network_policy": "deny", "cmd": ["/bin/true"]})
        # All of them run the same policy.
        path = Path(directory, "profiles/bench/policy.json")
        plain = cofferdam.prepare(path)
        ready = cofferdam.prepare(path, keep_ready=2)
        executor = JailExecutor()
        calls: Dict[str, Callable[[], object]] = {
            "Prepared.run": plain.run,
            "Prepared.run, two kept ready": ready.run,
            "JailExecutor.execute_sync": lambda: executor.execute_sync(path),
            "NclDrivenSandbox.execute_sync": lambda: sandbox.execute_sync("bench", ["/bin/true"]),
        }
        figures: Dict[str, List[float]] = {}
        for _ in range(arguments.rounds):
            if arguments.rust:
                command = [arguments.rust, str(path), str(arguments.runs), str(AT_ONCE)]
                told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                for name, figure in told.items():
                    figures.setdefault(f"Rust: {name}", []).append(figure)
            for name, call in calls.items():
                figures.setdefault(f"Python: {name}, ms", []).append(median_ms(call, arguments.runs))
            each = max(1, arguments.runs // AT_ONCE)
            figures.setdefault("Python: 32 threads, runs/s", []).append(at_once_in_threads(plain.run, each))
            figures.setdefault("Python: 32 tasks of execute(), runs/s", []).append(at_once_awaited(sandbox, each))
        if arguments.json:
            print(json.dumps(figures))
            return
        for name, values in figures.items():
            print(f"{name:42} {statistics.median(values):8.2f}   ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
