"""Policies and their runs: outcomes, output while running, background runs, threads and forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import policy, sleeping, wait_for

import cofferdam


def test_a_run_gives_its_outcome() -> None:
    outcome = cofferdam.run(policy(), ["sh", "-c", "cat; echo err >&2; exit 4"], stdin="in")
    assert (outcome.outcome, outcome.exit_code, outcome.success) == ("exited", 4, False)
    assert (outcome.stdout, outcome.stderr) == ("in", "err\n")
    assert outcome.backend in ("jail", "landlock") and outcome.run_id
    assert outcome.enforcement["filesystem.root"]["strength"] == "full"
    assert outcome.truncated == {"stdout": False, "stderr": False}
    data = outcome.to_dict()
    assert data == json.loads(outcome.to_json())
    assert data["exit_code"] == 4 and outcome.limit is None
    assert "exit_code=4" in repr(outcome)
    assert cofferdam.run(policy(), ["true"]).success


def test_a_policy_is_a_mapping_a_text_or_a_file(tmp_path: Path) -> None:
    data = policy(command={"argv": ["echo", "x"]})
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(data))
    for form in (data, json.dumps(data), json.dumps(data).encode(), file, str(file)):
        assert cofferdam.run(form).stdout == "x\n"


def test_a_policy_file_is_read_within_a_bound(tmp_path: Path) -> None:
    for device in ("/dev/zero", "/dev/full"):
        with pytest.raises(ValueError, match="neither a file nor a pipe"):
            cofferdam.prepare(device, ["true"])
    large = tmp_path / "large.json"
    with open(large, "wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(ValueError, match="longer than 16 MiB"):
        cofferdam.prepare(large, ["true"])
    read, write = os.pipe()
    os.write(write, json.dumps(policy(command={"argv": ["echo", "x"]})).encode())
    os.close(write)
    try:
        assert cofferdam.run(f"/dev/fd/{read}").stdout == "x\n"
    finally:
        os.close(read)


def test_invalid_policy_is_an_error_with_its_path() -> None:
    with pytest.raises(cofferdam.PolicyError, match=r"limits\.memory_mb"):
        cofferdam.prepare(policy(limits={"memory_mb": 0}), ["true"])
    with pytest.raises(ValueError, match="no_such"):
        cofferdam.prepare(policy(no_such=1), ["true"])
    with pytest.raises(ValueError, match="names no program"):
        cofferdam.run(policy())
    with pytest.raises(ValueError, match="timeout"):
        cofferdam.run(policy(), ["true"], timeout=0)
    with pytest.raises(FileNotFoundError):
        cofferdam.run("/no/such/policy.json", ["true"])


def test_only_mounted_files_are_accessible(tmp_path: Path) -> None:
    victim = tmp_path / "secret"
    victim.write_text("found")
    tmp_path.chmod(0o755)
    read = ["cat", str(victim)]
    assert "found" not in cofferdam.run(policy(), read).stdout
    mount = {"type": "bind", "source": str(victim), "target": str(victim), "access": "read_only"}
    assert cofferdam.run(policy(filesystem={"mounts": [mount]}), read).stdout == "found"


def test_setup_failure_is_an_outcome_and_bad_policy_an_exception() -> None:
    outcome = cofferdam.run(policy(), ["no-such-program"])
    assert outcome.outcome == "setup_failed" and outcome.error is not None
    assert "no-such-program" in outcome.error["message"]
    assert "command.variables" in outcome.error["hint"] and "-e" not in outcome.error["hint"]
    mount = {"type": "bind", "source": "/no/such/source", "target": "/x"}
    with pytest.raises(cofferdam.CofferdamError, match="/no/such/source"):
        cofferdam.run(policy(filesystem={"mounts": [mount]}), ["true"])


def test_a_timeout_is_never_longer_than_what_the_policy_names() -> None:
    slow = ["sleep", "61.5"]
    begun = time.monotonic()
    assert cofferdam.run(policy(), slow, timeout=0.3).outcome == "timed_out"
    assert cofferdam.run(policy(limits={"wall_ms": 300}), slow, timeout=50).outcome == "timed_out"
    assert time.monotonic() - begun < 10
    assert sleeping("61.5") == 0
    assert cofferdam.prepare(policy(), slow, timeout=500).policy["limits"]["wall_ms"] == 500_000
    assert cofferdam.prepare(policy(limits={"wall_ms": 300}), slow, timeout=0.2).policy["limits"]["wall_ms"] == 200


SLOWLY = ["sh", "-c", "echo one; sleep 0.4; echo two >&2"]


def test_output_is_read_while_it_runs() -> None:
    seen = []
    with cofferdam.start(policy(), SLOWLY) as run:
        for stream, piece in run:
            seen.append((stream, piece, run.done, time.monotonic()))
        outcome = run.wait()
    assert [(stream, piece) for stream, piece, _, _ in seen] == [("stdout", b"one\n"), ("stderr", b"two\n")]
    assert not seen[0][2] and seen[1][3] - seen[0][3] > 0.2
    assert outcome is not None and outcome.success and outcome.stdout == ""


def test_callback_gets_output_and_its_exception_ends_the_run() -> None:
    pieces = []
    outcome = cofferdam.run(policy(), SLOWLY, on_output=lambda stream, piece: pieces.append((stream, piece)))
    assert outcome.success and pieces == [("stdout", b"one\n"), ("stderr", b"two\n")]

    def refuse(stream: str, piece: bytes) -> None:
        raise KeyError(piece)

    with pytest.raises(KeyError):
        cofferdam.run(policy(), ["sh", "-c", "echo x; sleep 62.5"], on_output=refuse)
    assert sleeping("62.5") == 0


def test_slow_reader_blocks_the_program_and_gets_all_output() -> None:
    size = 6 << 20
    limits = {"output_bytes": size, "wall_ms": 30_000}
    with cofferdam.start(policy(limits=limits), ["head", "-c", str(size), "/dev/zero"]) as run:
        time.sleep(0.5)
        assert not run.done, "what nobody reads fills the pipe"
        assert sum(len(piece) for _, piece in run) == size
    with cofferdam.start(policy(limits=limits), ["head", "-c", str(size), "/dev/zero"]) as run:
        outcome = run.wait(20)
        assert outcome is not None and outcome.success, "whoever waits for the end does not wait for ever"
        assert sum(len(piece) for _, piece in run) == size


def test_a_run_is_stopped_and_nothing_of_it_stays() -> None:
    run = cofferdam.start(policy(), ["sh", "-c", "(setsid sleep 63.5) & sleep 63.5"])
    wait_for(lambda: sleeping("63.5") == 2)
    assert run.wait(0.05) is None and not run.done
    run.cancel()
    outcome = run.wait(10)
    assert outcome is not None and not outcome.success and sleeping("63.5") == 0


def test_unreferenced_run_is_stopped() -> None:
    run = cofferdam.start(policy(), ["sleep", "64.5"])
    wait_for(lambda: sleeping("64.5") == 1)
    del run
    wait_for(lambda: sleeping("64.5") == 0)


def test_usage_is_reported_while_it_runs() -> None:
    busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.3"
    run = cofferdam.start(policy(), ["sh", "-c", busy], stream=False)
    samples = list(run.usages(0.02))
    outcome = run.wait()
    assert outcome is not None and outcome.success
    assert len(samples) >= 5
    times = [usage.cpu_time_seconds for usage in samples]
    assert times == sorted(times) and times[-1] > 0
    assert max(usage.memory_bytes for usage in samples) > 0 and max(usage.pid_count for usage in samples) >= 1
    assert run.usage() is None, "it is over"


def test_run_does_not_block_other_threads() -> None:
    ticks = 0
    over = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.is_set():
            ticks += 1
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    cofferdam.run(policy(), ["sleep", "0.5"])
    over.set()
    thread.join()
    assert ticks > 20


def test_many_threads_share_one_prepared_policy() -> None:
    prepared = cofferdam.prepare(policy(), ["cat"], keep_ready=2)
    outputs = {}

    def call(number: int) -> None:
        outputs[number] = prepared.run(f"call {number}").stdout

    threads = [threading.Thread(target=call, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"call {number}" for number in range(32)}


def test_a_signal_ends_a_waiting_call_and_its_run() -> None:
    # A shell starts what runs in the background with SIGINT ignored, and children inherit that.
    code = """
import cofferdam, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    cofferdam.run({"version": 1}, ["sh", "-c", "sleep 65.5"])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    wait_for(lambda: sleeping("65.5") == 1)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=10)[0] == "interrupted\n"
    assert process.returncode == 0 and sleeping("65.5") == 0


def test_a_killed_caller_leaves_nothing() -> None:
    code = 'import cofferdam; cofferdam.run({"version": 1}, ["sh", "-c", "(setsid sleep 66.5) & sleep 66.5"])'
    process = subprocess.Popen([sys.executable, "-c", code])
    wait_for(lambda: sleeping("66.5") == 2)
    process.kill()
    process.wait()
    wait_for(lambda: sleeping("66.5") == 0)


def test_a_process_that_ends_takes_its_runs_with_it() -> None:
    code = """
import cofferdam, sys, time
run = cofferdam.start({"version": 1}, ["sh", "-c", "echo x; sleep 67.5"])
print(next(iter(run)), flush=True)
threads = [cofferdam.start({"version": 1}, ["sh", "-c", "yes"]) for _ in range(4)]
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
        wait_for(lambda: sleeping("67.5") == 0)


def test_snapshots_end_for_a_run_that_never_began() -> None:
    run = cofferdam.start(policy(), ["no-such-program"], stream=False)
    assert len(list(run.usages(0.01))) < 100
    outcome = run.wait(10)
    assert outcome is not None and outcome.outcome == "setup_failed"


def test_a_forked_process_runs_what_was_prepared_before() -> None:
    prepared = cofferdam.prepare(policy(), ["echo", "x"], keep_ready=2)
    assert prepared.run().stdout == "x\n"
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if prepared.run().stdout == "x\n" and cofferdam.run(policy(), ["true"]).success else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert prepared.run().stdout == "x\n", "and the one before the fork still does"


def test_a_run_ends_with_the_process_that_started_it_and_not_with_its_forks(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    code = f"""
import multiprocessing, os, sys, time, cofferdam
policy = {{"version": 1, "command": {{"variables": {{"PATH": "/usr/bin:/bin", "MARK": {mark!r}}}}}}}
ready = cofferdam.prepare(policy, ["true"], keep_ready=1)
run = cofferdam.start(policy, ["sleep", "55"], stream=False)
while run.usage() is None: time.sleep(0.01)
multiprocessing.get_context("fork").Process(target=time.sleep, args=(50,)).start()
print(os.getpid(), flush=True)
time.sleep(50)
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and int(owner.stdout.readline()) == owner.pid

    def alive() -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
        return found

    children = [int(pid) for pid in Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()]
    forks = [pid for pid in children if Path(f"/proc/{pid}/exe").resolve() == Path(f"/proc/{owner.pid}/exe").resolve()]
    try:
        assert forks and alive(), "the run goes on beside the fork"
        owner.kill()
        owner.wait()
        wait_for(lambda: not alive())
        assert all(Path(f"/proc/{pid}").exists() for pid in forks)
    finally:
        owner.kill()
        for pid in forks:
            os.kill(pid, signal.SIGKILL)


def test_a_forked_process_cannot_wait_for_a_run_of_its_parent() -> None:
    with cofferdam.start(policy(), ["sleep", "57"], stream=False) as run:
        wait_for(lambda: run.usage() is not None)
        pid = os.fork()
        if pid == 0:
            try:
                run.wait(20)
            except RuntimeError as error:
                os._exit(0 if "another process" in str(error) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert run.usage() is not None, "and it goes on in the process that started it"


def test_changes_are_kept_only_outside_of_cofferdams_own_directories(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    mount = {"type": "bind", "source": str(source), "target": "/data", "access": "copy_on_write"}
    prepared = cofferdam.prepare(policy(filesystem={"mounts": [mount]}), ["sh", "-c", "echo 1 > /data/f"])
    own = Path.home() / ".config" / "cofferdam" / "profiles" / "x"
    with pytest.raises(cofferdam.CofferdamError, match="keep_changes.*\n?.*hint"):
        prepared.run(keep_changes=own)
    assert not own.exists()
    assert prepared.run(keep_changes=tmp_path / "kept").exit_code == 0
    assert (tmp_path / "kept" / "f").read_text() == "1\n"


def test_prepared_policy_can_be_inspected() -> None:
    prepared = cofferdam.prepare(policy(), ["true"])
    assert prepared.backend in ("jail", "landlock") and prepared.backend_reason
    assert prepared.policy["command"]["argv"] == ["true"]
    assert prepared.enforcement["network.mode"]["strength"] == "full"
    assert prepared.plan["backend"] == prepared.backend


def test_runs_are_recorded_only_in_a_named_trail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COFFERDAM_AUDIT", raising=False)

    def kinds(directory: Path) -> list[str]:
        lines = [line for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]
        return [json.loads(line)["kind"] for line in lines]

    named, variable = tmp_path / "named", tmp_path / "variable"
    assert cofferdam.run(policy(), ["true"]).exit_code == 0
    assert [path.name for path in tmp_path.rglob("*") if path.suffix == ".jsonl"] == []
    assert cofferdam.run(policy(), ["true"], audit_trail=named).exit_code == 0
    assert kinds(named) == ["trail_opened", "sandbox_started", "sandbox_completed"]
    monkeypatch.setenv("COFFERDAM_AUDIT", str(variable))
    assert cofferdam.run(policy(), ["false"]).exit_code == 1
    with cofferdam.start(policy(), ["true"]) as run:
        ended = run.wait()
        assert ended is not None and ended.exit_code == 0
    assert kinds(variable) == ["trail_opened"] + ["sandbox_started", "sandbox_completed"] * 2
    (tmp_path / "file").write_text("")
    with pytest.raises(cofferdam.CofferdamError, match="cannot be recorded"):
        cofferdam.run(policy(), ["true"], audit_trail=tmp_path / "file")
    with pytest.raises(ValueError, match="audit_trail: an empty path"):
        cofferdam.run(policy(), ["true"], audit_trail="")
