"""Profiles of skills: exported, stored, executed, and every way to be refused."""

from __future__ import annotations

import asyncio
import inspect
import json
import time
import warnings
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from conftest import sleeping, wait_for

import cofferdam
from cofferdam import NclDrivenSandbox, Platform, SandboxResult

CONFIG: Dict[str, Any] = {"network_policy": "deny", "cmd": ["cat"]}


@pytest.fixture
def sandbox(tmp_path: Path) -> NclDrivenSandbox:
    return NclDrivenSandbox(profile_dir=tmp_path / "profiles", skills_dir=tmp_path / "skills")


def stored(sandbox: NclDrivenSandbox, skill: str = "skill") -> Dict[str, Any]:
    policy: Dict[str, Any] = json.loads((sandbox.profile_dir / skill / "policy.json").read_text())
    return policy


def test_the_signatures_are_those_that_existing_code_calls() -> None:
    def names(function: Any) -> List[str]:
        return [name for name in inspect.signature(function).parameters if name != "self"]

    assert names(NclDrivenSandbox)[:3] == ["ncl_dir", "profile_dir", "nsjail_path"]
    assert names(NclDrivenSandbox.export_profile) == ["skill_id", "skill_config", "platform"]
    assert names(NclDrivenSandbox.execute)[:4] == ["skill_id", "command", "input_data", "timeout"]
    assert names(NclDrivenSandbox.execute_sync) == ["skill_id", "command", "input_data", "timeout"]
    assert inspect.iscoroutinefunction(NclDrivenSandbox.execute)
    assert [field for field in SandboxResult.__dataclass_fields__] == [
        "success", "exit_code", "stdout", "stderr", "execution_time_ms", "memory_used_bytes", "error",
        "truncated",
    ]  # fmt: skip
    # Existing code constructs the result without the last field.
    assert SandboxResult(True, 0, "", "", 1, None, None).truncated is False
    assert [platform.value for platform in Platform] == ["linux", "macos", "windows"]


def test_a_profile_is_exported_for_every_target(sandbox: NclDrivenSandbox) -> None:
    path = sandbox.export_profile("skill", {**CONFIG, "max_memory_mb": 64})
    assert path == sandbox.profile_dir / "skill" / "nsjail.json"
    assert sorted(file.name for file in path.parent.iterdir()) == ["nsjail.json", "policy.json", "seatbelt.sb"]
    assert json.loads(path.read_text())["hostname"] == "omni-skill-skill"
    policy = stored(sandbox)
    assert policy["limits"]["memory_mb"] == 64 and policy["network"]["mode"] == "none"
    mac = sandbox.export_profile("skill", CONFIG, Platform.MACOS)
    # The file begins with its usage.
    said, profile = mac.read_text().split("(version 1)\n", 1)
    assert mac.name == "seatbelt.sb" and "-D" in said and "(deny default)" in profile
    assert all(line.startswith(";;") for line in said.splitlines() if line)


def test_command_input_and_timeout_are_honoured(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("skill", CONFIG)
    result = sandbox.execute_sync("skill", ["sh", "-c", "cat; pwd; echo e >&2; exit 3"], "in ")
    assert (result.success, result.exit_code, result.error) == (False, 3, None)
    assert (result.stdout, result.stderr) == ("in /tmp/skill\n", "e\n")
    assert isinstance(result.execution_time_ms, int)
    assert sandbox.execute_sync("skill", [], "the profile's own").stdout == "the profile's own"
    begun = time.monotonic()
    late = sandbox.execute_sync("skill", ["sh", "-c", "echo before; (setsid sleep 81.5) & sleep 81.5"], timeout=1)
    assert (late.exit_code, late.error, late.success, late.stdout) == (-1, "Timeout", False, "before\n")
    assert time.monotonic() - begun < 10 and sleeping("81.5") == 0


def test_skill_runs_are_recorded_in_the_trail_of_the_variable(
    sandbox: NclDrivenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = tmp_path / "audit"

    def records() -> List[Dict[str, Any]]:
        return [json.loads(line) for file in sorted(trail.glob("*.jsonl")) for line in file.read_text().splitlines()]

    sandbox.export_profile("skill", CONFIG)
    monkeypatch.delenv("COFFERDAM_AUDIT", raising=False)
    assert sandbox.execute_sync("skill", ["true"]).success and not trail.exists()
    monkeypatch.setenv("COFFERDAM_AUDIT", str(trail))
    assert sandbox.execute_sync("skill", ["sh", "-c", "exit 3"]).exit_code == 3
    assert sandbox.execute_sync("skill", ["sleep", "83.5"], timeout=1).error == "Timeout"
    ends = [record["data"] for record in records() if record["kind"] == "sandbox_completed"]
    assert [(end["outcome"], end.get("exitCode")) for end in ends] == [("exited", 3), ("timed_out", None)]
    assert [record["kind"] for record in records()].count("sandbox_started") == 2
    # A run that cannot be recorded does not start.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COFFERDAM_AUDIT", str(tmp_path / "file"))
    with pytest.raises(cofferdam.CofferdamError, match="cannot be recorded"):
        sandbox.execute_sync("skill", ["echo", "ran"])


def test_a_timeout_that_the_profile_names_is_a_ceiling(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("skill", {**CONFIG, "timeout_seconds": 1})
    begun = time.monotonic()
    assert sandbox.execute_sync("skill", ["sleep", "82.5"], timeout=50).error == "Timeout"
    assert time.monotonic() - begun < 10


def test_the_network_is_what_the_profile_says(sandbox: NclDrivenSandbox) -> None:
    code = "import socket; socket.create_connection(('127.0.0.1', 9), 1)"
    connect = ["/usr/bin/python3", "-c", code]
    sandbox.export_profile("skill", CONFIG)
    denied = sandbox.execute_sync("skill", connect)
    sandbox.export_profile("own", {**CONFIG, "network_policy": "localhost"})
    allowed = sandbox.execute_sync("own", connect)
    assert "ConnectionRefused" in allowed.stderr, "a loopback of its own, with nobody there"
    assert not denied.success and "ConnectionRefused" not in denied.stderr


def test_awaiting_does_not_block_and_cancelling_kills_the_tree(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("skill", CONFIG)

    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        ticking = asyncio.create_task(tick())
        result = await sandbox.execute("skill", ["sh", "-c", "cat; sleep 0.4"], "in")
        ticking.cancel()
        assert result.stdout == "in" and ticks > 15
        task = asyncio.create_task(sandbox.execute("skill", ["sh", "-c", "(setsid sleep 83.5) & sleep 83.5"]))
        await asyncio.to_thread(wait_for, lambda: sleeping("83.5") == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sleeping("83.5") == 0
        pieces: List[bytes] = []
        await sandbox.execute("skill", ["echo", "x"], on_output=lambda stream, piece: pieces.append(piece))
        assert pieces == [b"x\n"]
        results = await asyncio.gather(*(sandbox.execute("skill", ["cat"], str(n)) for n in range(32)))
        assert [result.stdout for result in results] == [str(n) for n in range(32)]

    asyncio.run(main())


HOSTILE = ['"; } & { network_policy = "allow', "%{1 + 1}", '"%} m%"', "${HOME}", "\\", "\n", "'Host", "\u2028", "}"]


@pytest.mark.parametrize("text", HOSTILE)
def test_values_are_data_and_never_program(sandbox: NclDrivenSandbox, text: str) -> None:
    sandbox.export_profile("skill", {**CONFIG, "cmd": ["printf", "%s", text], "skill_name": text})
    policy = stored(sandbox)
    assert policy["command"]["argv"] == ["printf", "%s", text]
    assert policy["network"]["mode"] == "none"
    assert sandbox.execute_sync("skill", []).stdout == text
    with pytest.raises(cofferdam.ProfileError):
        sandbox.export_profile("skill", {**CONFIG, "network_policy": text})
    with pytest.raises(cofferdam.ProfileError):
        sandbox.export_profile("skill", {**CONFIG, text: "x"})
    assert stored(sandbox) == policy, "a failed export changes nothing"


@pytest.mark.parametrize("skill_id", ["../x", "..", "", ".x", "a/b", "/etc", "a\0b", "a b", "x" * 200, "-x"])
def test_an_id_cannot_leave_the_store(sandbox: NclDrivenSandbox, tmp_path: Path, skill_id: str) -> None:
    with pytest.raises(ValueError, match="profile id"):
        sandbox.export_profile(skill_id, CONFIG)
    with pytest.raises(ValueError, match="profile id"):
        sandbox.execute_sync(skill_id, ["true"])
    assert not (tmp_path / "profiles").exists()


@pytest.mark.parametrize("skill_id", ["x", "data-processor", "A.b_c-9"])
def test_a_plain_id_is_stored(sandbox: NclDrivenSandbox, skill_id: str) -> None:
    assert sandbox.export_profile(skill_id, CONFIG).parent.name == skill_id
    assert sandbox.execute_sync(skill_id, ["true"]).success


def test_a_missing_profile_names_what_makes_it(sandbox: NclDrivenSandbox) -> None:
    with pytest.raises(FileNotFoundError, match=r"export_profile\(\)"):
        sandbox.execute_sync("nobody", ["true"])
    with pytest.raises(FileNotFoundError, match=r"export_profile\(\)"):
        asyncio.run(sandbox.execute("nobody", ["true"]))


def test_a_failed_export_has_nickels_words(sandbox: NclDrivenSandbox) -> None:
    refused: List[Tuple[Dict[str, Any], str]] = [
        ({"max_memory_mb": "much"}, "max_memory_mb"),
        ({"network_policy": "maybe"}, "network_policy"),
        ({"no_such_field": 1}, "no_such_field is not a field"),
        ({"platform": "windows"}, "windows"),
    ]
    for config, words in refused:
        platform = Platform(config.get("platform", "linux"))
        with pytest.raises(RuntimeError, match=words) as message:
            sandbox.export_profile("skill", {**CONFIG, **config}, platform)
        assert "error: " in str(message.value)
    assert not sandbox.profile_dir.exists()


def test_values_that_are_not_data_are_refused_unevaluated(sandbox: NclDrivenSandbox) -> None:
    for config in ({"cmd": object()}, {"max_memory_mb": float("nan")}, {"skill_id": "other"}, {"platform": "macos"}):
        with pytest.raises(ValueError):
            sandbox.export_profile("skill", {**CONFIG, **config})
    sandbox.export_profile("skill", {**CONFIG, "working_dir": Path("/tmp/here")})
    assert stored(sandbox)["command"]["cwd"] == "/tmp/here"


def test_profile_that_nsjail_cannot_enforce_warns_and_is_stored(sandbox: NclDrivenSandbox) -> None:
    allowed = {"network_policy": "whitelist", "allowed_domains": ["example.org"], "cmd": ["true"]}
    with pytest.warns(UserWarning, match=r"no nsjail\.json is stored"):
        path = sandbox.export_profile("skill", allowed)
    assert path.name == "policy.json" and stored(sandbox)["network"]["allow"] == ["example.org"]
    assert not path.with_name("nsjail.json").exists()
    with warnings.catch_warnings(record=True) as message:
        warnings.simplefilter("always")
        assert sandbox.export_profile("skill", CONFIG).name == "nsjail.json"
    assert not [warning for warning in message if "nsjail.json" in str(warning.message)]


def test_an_older_nsjail_json_runs_with_a_private_network(sandbox: NclDrivenSandbox) -> None:
    legacy = {
        "name": "old", "mode": "EXEC", "hostname": "omni-skill-old", "cmd": ["sh", "-c", "cat; hostname"],
        "env": ["A=b"], "log_level": "info", "mount": [], "clone_newnet": False, "unknown": 1,
    }  # fmt: skip
    directory = sandbox.profile_dir / "old"
    directory.mkdir(parents=True)
    (directory / "nsjail.json").write_text(json.dumps(legacy))
    result = sandbox.execute_sync("old", [], "in ")
    assert result.stdout == "in omni-skill-old\n", result
    assert sandbox.execute_sync("old", ["sh", "-c", "echo $A; tail -n +3 /proc/net/dev | wc -l"]).stdout == "b\n1\n"


def test_files_of_a_skill_are_its_read_only_working_directory(sandbox: NclDrivenSandbox) -> None:
    files = sandbox.skills_dir / "skill"
    files.mkdir(parents=True)
    sandbox.skills_dir.parent.chmod(0o755)
    (files / "hello.sh").write_text("echo from a file")
    sandbox.export_profile("skill", CONFIG)
    assert sandbox.execute_sync("skill", ["sh", "hello.sh"]).stdout == "from a file\n"
    assert not sandbox.execute_sync("skill", ["touch", "new"]).success
    assert sandbox.execute_sync("skill", ["touch", "/tmp/new"]).success
    assert not (files / "new").exists()


def test_custom_profiles(tmp_path: Path, sandbox: NclDrivenSandbox) -> None:
    own = tmp_path / "ncl"
    own.mkdir()
    (own / "default.ncl").write_text(
        'let base = import "sandbox/skill/default.ncl" in\n'
        "{ make_default_config = fun id => base.make_default_config id & { max_memory_mb | priority -1 = 77 } }\n"
    )
    mine = NclDrivenSandbox(ncl_dir=own, profile_dir=sandbox.profile_dir)
    mine.export_profile("skill", {"network_policy": "deny"})
    assert stored(mine)["limits"]["memory_mb"] == 77
    with pytest.raises(FileNotFoundError, match="default.ncl"):
        NclDrivenSandbox(ncl_dir=tmp_path, profile_dir=sandbox.profile_dir).export_profile("skill", CONFIG)


def test_custom_profile_imports_only_the_library_beside_it(
    tmp_path: Path, sandbox: NclDrivenSandbox
) -> None:
    own, library = tmp_path / "skill", tmp_path / "lib"
    own.mkdir()
    library.mkdir()
    (library / "limits.ncl").write_text("{ memory = 77 }\n")
    (tmp_path / "limits.ncl").write_text("{ memory = 78 }\n")

    def export(limits: str) -> None:
        (own / "default.ncl").write_text(
            'let base = import "sandbox/skill/default.ncl" in\n'
            "{ make_default_config = fun id => base.make_default_config id & "
            '{ max_memory_mb | priority -1 = (import "%s").memory } }\n' % limits
        )
        NclDrivenSandbox(ncl_dir=own, profile_dir=sandbox.profile_dir).export_profile("skill", {"network_policy": "deny"})

    export("../lib/limits.ncl")
    assert stored(sandbox)["limits"]["memory_mb"] == 77
    with pytest.raises(RuntimeError, match="outside the directories"):
        export("../limits.ncl")


def test_a_profile_is_exported_again_and_the_new_one_holds(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("skill", {**CONFIG, "cmd": ["echo", "one"]})
    assert [sandbox.execute_sync("skill", []).stdout for _ in range(3)] == ["one\n"] * 3
    sandbox.export_profile("skill", {**CONFIG, "cmd": ["echo", "two"]})
    assert sandbox.execute_sync("skill", []).stdout == "two\n"


def test_python_means_python3_in_the_profile_and_the_call(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("py", {**CONFIG, "cmd": ["python", "-c", "print(1)"]})
    assert sandbox.execute_sync("py", []).stdout == "1\n"
    assert sandbox.execute_sync("py", ["python", "-c", "print(2)"]).stdout == "2\n"


def test_wrong_types_are_errors_with_accepted_values(sandbox: NclDrivenSandbox) -> None:
    assert sandbox.export_profile("skill", CONFIG, "macos").name == "seatbelt.sb"
    assert sandbox.export_profile("skill", {**CONFIG, "platform": "linux"}, "linux").name == "nsjail.json"
    with pytest.raises(ValueError, match="'solaris'.*'linux', 'macos', 'windows'"):
        sandbox.export_profile("skill", CONFIG, "solaris")
    wrong: Any = ["cmd", "cat"]
    with pytest.raises(TypeError, match="skill_config: a mapping such as .* no list"):
        sandbox.export_profile("skill", wrong)
    wrong = "30"
    with pytest.raises(TypeError, match="timeout: '30' is not a number of seconds"):
        sandbox.execute_sync("skill", [], timeout=wrong)
    with pytest.raises(TypeError, match="timeout: '30' is not a number of seconds"):
        cofferdam.run({"version": 1}, ["true"], timeout=wrong)
    with pytest.raises(TypeError, match="default_timeout: '30' is not a whole number"):
        cofferdam.JailExecutor(default_timeout=wrong)
    assert sandbox.execute_sync("skill", [], "x", timeout=30).stdout == "x"


def test_a_damaged_profile_names_its_file_and_what_mends_it(sandbox: NclDrivenSandbox) -> None:
    file = sandbox.export_profile("skill", CONFIG).with_name("policy.json")
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(cofferdam.PolicyError) as message:
        sandbox.execute_sync("skill", [])
    assert str(message.value).startswith(f"{file}: ") and "hint: export the profile again" in str(message.value)
    # An error of the call is not reported as one of the file.
    file.write_text(whole)
    with pytest.raises(cofferdam.PolicyError) as message:
        sandbox.execute_sync("skill", ["a\0b"])
    assert str(file) not in str(message.value)
    assert sandbox.execute_sync("skill", [], "x").stdout == "x"


def test_truncated_output_is_reported(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("skill", {**CONFIG, "max_output_bytes": 10})
    whole, cut = (sandbox.execute_sync("skill", [], "x" * length) for length in (10, 11))
    assert (whole.stdout, whole.truncated) == ("x" * 10, False)
    assert (cut.stdout, cut.truncated, cut.success) == ("x" * 10, True, True)
    assert sandbox.execute_sync("skill", ["sh", "-c", "cat >&2"], "x" * 11).truncated
    assert cofferdam.JailExecutor().execute_sync(sandbox.profile_dir / "skill" / "policy.json", "x" * 11).truncated


def test_started_skill_reports_its_usage(sandbox: NclDrivenSandbox) -> None:
    path = sandbox.export_profile("skill", CONFIG).with_name("policy.json")
    waits = ["sh", "-c", "cat; sleep 85.5"]
    with sandbox.start("skill", waits, "in\n", stream=True) as running:
        wait_for(lambda: sleeping("85.5") == 1)
        assert running.read(5) == ("stdout", b"in\n")
        usage = next(iter(running.usages()))
        assert usage.pid_count >= 2 and usage.memory_bytes > 0
    assert running.done and sleeping("85.5") == 0
    for started in (sandbox.start("skill", [], "in"), cofferdam.JailExecutor().start(path, "in")):
        outcome = started.wait()
        assert outcome is not None and (outcome.stdout, outcome.exit_code) == ("in", 0)


class Hostile:
    """Raises on any access."""

    def __str__(self) -> str:
        raise RuntimeError("looked at")


def nested(depth: int) -> List[Any]:
    value: List[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_an_argument_of_a_wrong_type_is_named(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("skill", CONFIG)
    stored = sandbox.profile_dir / "skill/policy.json"
    loop: Dict[str, Any] = {}
    loop["self"] = loop
    calls: List[Tuple[str, Any]] = [
        ("command", lambda: sandbox.execute_sync("skill", None)),  # type: ignore[arg-type]
        ("command", lambda: sandbox.execute_sync("skill", "cat")),
        ("command[1]", lambda: sandbox.execute_sync("skill", ["cat", None])),  # type: ignore[list-item]
        ("command[1]", lambda: sandbox.execute_sync("skill", ["cat", b"x"])),  # type: ignore[list-item]
        ("command[0]", lambda: sandbox.execute_sync("skill", [Hostile()])),  # type: ignore[list-item]
        ("command[0]", lambda: sandbox.execute_sync("skill", ["\ud800"])),
        ("skill_id", lambda: sandbox.execute_sync(5, ["cat"])),  # type: ignore[arg-type]
        ("skill_id", lambda: sandbox.export_profile(None, {})),  # type: ignore[arg-type]
        ("skill_config", lambda: sandbox.export_profile("skill", {"max_memory_mb": float("nan")})),
        ("skill_config", lambda: sandbox.export_profile("skill", {("a",): 1})),  # type: ignore[dict-item]
        ("skill_config", lambda: sandbox.export_profile("skill", loop)),
        ("skill_config", lambda: sandbox.export_profile("skill", {"cmd": nested(100_000)})),
        ("timeout", lambda: sandbox.execute_sync("skill", ["cat"], timeout=float("nan"))),
        ("timeout", lambda: sandbox.execute_sync("skill", ["cat"], timeout=10**400)),
        ("profile_dir", lambda: NclDrivenSandbox(profile_dir=5)),  # type: ignore[arg-type]
        ("policy", lambda: cofferdam.run({"version": float("inf")}, ["cat"])),
        ("policy", lambda: cofferdam.run(None, ["cat"])),  # type: ignore[arg-type]
        ("argv", lambda: cofferdam.run({"version": 1}, "cat")),
        ("file", lambda: cofferdam.compile_profile(None)),  # type: ignore[arg-type]
        ("overrides", lambda: cofferdam.compile_profile("p.ncl", overrides="a=1")),
        ("imports", lambda: cofferdam.compile_profile("p.ncl", imports="/etc")),
        ("config_path", lambda: cofferdam.NsJailExecutor().execute_sync(None)),  # type: ignore[arg-type]
        ("input_data", lambda: sandbox.execute_sync("skill", ["cat"], 5)),
        ("input_data", lambda: sandbox.execute_sync("skill", ["cat"], [5])),
        ("input_data", lambda: sandbox.start("skill", ["cat"], 5)),
        ("input_data", lambda: asyncio.run(sandbox.execute("skill", ["cat"], 5))),
        ("on_output", lambda: asyncio.run(sandbox.execute("skill", ["true"], on_output=5))),  # type: ignore[arg-type]
        ("input", lambda: cofferdam.JailExecutor().execute_sync(stored, 5)),
        ("input", lambda: cofferdam.JailExecutor().start(stored, 5)),
        ("input", lambda: asyncio.run(cofferdam.JailExecutor().execute(stored, 5))),
        ("stdin", lambda: cofferdam.run({"version": 1}, ["cat"], stdin=5)),
        ("on_output", lambda: cofferdam.run({"version": 1}, ["true"], on_output=5)),  # type: ignore[arg-type]
        ("audit_trail", lambda: cofferdam.run({"version": 1}, ["true"], audit_trail=5)),  # type: ignore[arg-type]
        ("keep_ready", lambda: cofferdam.prepare({"version": 1}, ["true"], keep_ready="2")),  # type: ignore[arg-type]
        ("keep_ready", lambda: cofferdam.prepare({"version": 1}, ["true"], keep_ready=-1)),
        ("format", lambda: cofferdam.compile_profile("p.ncl", 5)),  # type: ignore[arg-type]
        ("encoding", lambda: cofferdam.compile_profile("p.ncl", encoding=5)),  # type: ignore[arg-type]
    ]
    for name, call in calls:
        with pytest.raises((TypeError, ValueError)) as raised:
            call()
        assert str(raised.value).startswith(f"{name}:"), (name, raised.value)
    assert sandbox.execute_sync("skill", [Path("cat")], "in").stdout == "in"  # type: ignore[list-item]


def test_local_file_in_a_command_gets_a_warning(
    sandbox: NclDrivenSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"network_policy": "deny", "cmd": ["python3", "process.py"]}
    (tmp_path / "process.py").write_text("print('processed')")
    with pytest.warns(UserWarning, match="process.py.*skills/processor"):
        sandbox.export_profile("processor", config)
    (sandbox.skills_dir / "processor").mkdir(parents=True)
    (tmp_path / "process.py").rename(sandbox.skills_dir / "processor/process.py")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sandbox.export_profile("processor", config)
    assert sandbox.execute_sync("processor", []).stdout == "processed\n"


def test_link_in_the_store_is_an_error(sandbox: NclDrivenSandbox, tmp_path: Path) -> None:
    sandbox.export_profile("skill", CONFIG)
    (sandbox.profile_dir / "linked").symlink_to(sandbox.profile_dir / "skill")
    with pytest.raises(PermissionError, match="symbolic link"):
        sandbox.execute_sync("linked", ["cat"])
    assert sandbox.execute_sync("skill", ["cat"], "in").stdout == "in"


def test_a_skill_that_is_a_link_to_elsewhere_shows_nothing(sandbox: NclDrivenSandbox, tmp_path: Path) -> None:
    config = {"network_policy": "deny", "cmd": ["cat", "note"]}
    for directory in (tmp_path / "private", sandbox.skills_dir / "real"):
        directory.mkdir(parents=True)
        (directory / "note").write_text("text")
    (sandbox.skills_dir / "evil").symlink_to(tmp_path / "private")
    (sandbox.skills_dir / "alias").symlink_to("real")
    (sandbox.skills_dir / "all").symlink_to(".")
    (sandbox.skills_dir / ".git").mkdir()
    (sandbox.skills_dir / "git").symlink_to(".git")
    for skill in ("evil", "all", "git"):
        with pytest.raises(ValueError, match="leads out of"):
            sandbox.export_profile(skill, config)
    for skill in ("real", "alias"):
        sandbox.export_profile(skill, config)
        assert sandbox.execute_sync(skill, []).stdout == "text"
    # What becomes a link after the export is not followed either.
    (sandbox.skills_dir / "real").rename(sandbox.skills_dir / "other")
    (sandbox.skills_dir / "real").symlink_to(tmp_path / "private")
    for skill in ("real", "alias"):
        with pytest.raises(ValueError, match="leads out of"):
            sandbox.execute_sync(skill, [])
    (sandbox.skills_dir / "real").unlink()
    (sandbox.skills_dir / "other").rename(sandbox.skills_dir / "real")
    assert sandbox.execute_sync("alias", []).stdout == "text"


@pytest.mark.parametrize("name", ["ncl_dir", "profile_dir", "nsjail_path", "skills_dir"])
def test_an_empty_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: an empty path"):
        NclDrivenSandbox(**{name: ""})


def test_a_message_about_an_id_has_no_control_characters(sandbox: NclDrivenSandbox) -> None:
    with pytest.raises(ValueError) as raised:
        sandbox.export_profile("\x1b[31mX\u202e", {"cmd": ["cat"]})
    assert "\x1b" not in str(raised.value) and "\u202e" not in str(raised.value)
    assert "[31mX" in str(raised.value)


def test_an_nsjail_json_alone_runs_python_as_python3(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("old", {"network_policy": "deny", "cmd": ["python", "-c", "print(42)"]})
    (sandbox.profile_dir / "old/policy.json").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sandbox.execute_sync("old", []).stdout == "42\n"
        assert sandbox.execute_sync("old", ["python", "-c", "print(7)"]).stdout == "7\n"


def test_one_field_alone_makes_a_default_give_way(sandbox: NclDrivenSandbox) -> None:
    sandbox.export_profile("strict", {"seccomp_level": "strict", "cmd": ["cat"]})
    assert stored(sandbox, "strict")["network"]["mode"] == "none"
