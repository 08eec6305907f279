"""The compatible executors, under both import names and as existing code calls them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict

import pytest
from conftest import policy, sleeping, wait_for

import cofferdam
from cofferdam import JailExecutor, NsJailExecutor, SeatbeltExecutor


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy(command={"argv": ["sh", "-c", "cat; echo err >&2; exit 4"]})))
    return path


def test_a_configuration_and_input_give_a_result(echo: Path) -> None:
    for executor in (JailExecutor(), NsJailExecutor(), NsJailExecutor(default_timeout=5)):
        result = executor.execute_sync(echo, "hello")
        assert isinstance(result, cofferdam.ExecutionResult)
        assert (result.success, result.exit_code, result.error) == (False, 4, None)
        assert (result.stdout, result.stderr) == ("hello", "err\n")
        assert isinstance(result.execution_time_ms, int)
    assert JailExecutor().execute_sync(str(echo)).stdout == ""
    assert [e.name for e in (JailExecutor(), NsJailExecutor(), SeatbeltExecutor())] == ["jail", "nsjail", "seatbelt"]


def test_it_is_awaited(echo: Path) -> None:
    executor = JailExecutor()
    assert inspect.iscoroutinefunction(executor.execute)
    assert asyncio.run(executor.execute(echo, "hello")).stdout == "hello"

    async def in_a_thread() -> str:
        # As existing code does it: a loop of its own in a thread.
        loop = asyncio.get_event_loop()
        result = await loop.run_in_executor(None, lambda: asyncio.run(executor.execute(echo, "x")))
        return result.stdout

    assert asyncio.run(in_a_thread()) == "x"


def test_cancelling_kills_the_tree(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy(command={"argv": ["sleep", "91.5"]})))

    async def main() -> None:
        task = asyncio.create_task(JailExecutor().execute(path))
        await asyncio.to_thread(wait_for, lambda: sleeping("91.5") == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sleeping("91.5") == 0

    asyncio.run(main())


def legacy(**changes: Any) -> Dict[str, Any]:
    return {
        "name": "skill", "mode": "EXEC", "hostname": "omni-skill-x", "cmd": ["sh", "-c", "cat; hostname"],
        "env": [], "log_level": "info", "mount": [], **changes,
    }  # fmt: skip


def test_an_older_configuration_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "nsjail.json"
    path.write_text(json.dumps(legacy(clone_newnet=False)))
    for executor in (NsJailExecutor(), JailExecutor()):
        assert executor.execute_sync(path, "in ").stdout == "in omni-skill-x\n"
    path.write_text(json.dumps(legacy(cmd=["sleep", "92.5"])))
    result = JailExecutor(default_timeout=1).execute_sync(path)
    assert (result.exit_code, result.error) == (-1, "Timeout") and sleeping("92.5") == 0


def test_a_changed_configuration_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    executor = JailExecutor()
    for word in ("one", "two"):
        path.write_text(json.dumps(policy(command={"argv": ["echo", word]})))
        assert [executor.execute_sync(path).stdout for _ in range(3)] == [f"{word}\n"] * 3


def test_unusable_configurations_are_errors(tmp_path: Path, echo: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone.json"):
        JailExecutor().execute_sync(tmp_path / "gone.json")
    cut = tmp_path / "cut.json"
    cut.write_text('{"version": 1,')
    with pytest.raises(ValueError, match="cut.json"):
        JailExecutor().execute_sync(cut)
    with pytest.raises(RuntimeError):
        SeatbeltExecutor().execute_sync(echo)
    with pytest.raises(RuntimeError, match="/no/such/nsjail"):
        NsJailExecutor("/no/such/nsjail").execute_sync(echo)
    with pytest.raises(ValueError, match="default_timeout"):
        JailExecutor(default_timeout=0)


def test_a_forked_process_executes_what_was_executed_before(echo: Path) -> None:
    executor = JailExecutor()
    assert [executor.execute_sync(echo, "x").stdout for _ in range(3)] == ["x"] * 3, "by now some are kept ready"
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if [executor.execute_sync(echo, "y").stdout for _ in range(3)] == ["y"] * 3 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [executor.execute_sync(echo, "z").stdout for _ in range(3)] == ["z"] * 3


def test_available_backends_are_reported() -> None:
    assert cofferdam.detect_platform() == "linux"
    assert cofferdam.is_seatbelt_available() is False
    assert isinstance(cofferdam.is_nsjail_available(), bool)
    assert cofferdam.is_nsjail_available(Path("/no/such/nsjail")) is False


def test_the_other_import_name_has_the_same_things() -> None:
    other = importlib.import_module("omni_sandbox")
    for name in other.__all__:
        assert getattr(other, name) is getattr(cofferdam, name)
    assert {"NsJailExecutor", "ExecutionResult", "ResourceUsage", "detect_platform"} <= set(other.__all__)


OFF = """\
import sys
# The shim may be enabled in this environment.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "cofferdam_omni"]
for name in [name for name in sys.modules if name.partition(".")[0] in ("cofferdam", "cofferdam_omni", "omni")]:
    del sys.modules[name]
"""


def python(code: str, **variables: str) -> str:
    """The output of a process of an environment without the shim."""
    program = [sys.executable, "-c", OFF + textwrap.dedent(code)]
    return subprocess.run(program, check=True, capture_output=True, text=True, env={**os.environ, **variables}).stdout


def test_shim_provides_the_two_modules_lazily() -> None:
    message = python("""
        try:
            import omni.core.skills.sandbox
        except ModuleNotFoundError as error:
            print(error.name)
        import sys, cofferdam_omni
        print("cofferdam" in sys.modules)
        from omni.core.skills.sandbox import NclDrivenSandbox, SandboxResult
        from omni.core.skills.executor import NsJailExecutor
        import cofferdam
        print(NclDrivenSandbox is cofferdam.NclDrivenSandbox, NsJailExecutor is cofferdam.NsJailExecutor)
    """)
    assert message.split() == ["omni", "False", "True", "True"]


def test_an_installed_omni_is_never_shadowed(tmp_path: Path) -> None:
    package = tmp_path / "omni" / "core"
    package.mkdir(parents=True)
    (tmp_path / "omni" / "__init__.py").write_text("mine = 1\n")
    (package / "__init__.py").write_text("mine = 2\n")
    code = """
        import cofferdam_omni, omni, omni.core
        print(omni.mine, omni.core.mine)
        from omni.core.skills.sandbox import NclDrivenSandbox
        print(NclDrivenSandbox)
    """
    assert python(code, PYTHONPATH=str(tmp_path)).startswith("1 2\n<class")
    (package / "skills").mkdir()
    (package / "skills" / "__init__.py").write_text("")
    (package / "skills" / "sandbox.py").write_text("NclDrivenSandbox = 'its own'\n")
    assert python(code, PYTHONPATH=str(tmp_path)) == "1 2\nits own\n"


def test_shim_can_be_enabled_and_disabled_for_an_environment(tmp_path: Path) -> None:
    code = f"import site; site.addsitedir({str(tmp_path)!r}); import omni.core.skills.executor as e; print(e.__name__)"
    switch = [sys.executable, "-m", "cofferdam_omni"]
    subprocess.run([*switch, "enable", str(tmp_path)], check=True)
    assert python(code) == "omni.core.skills.executor\n"
    subprocess.run([*switch, "disable", str(tmp_path)], check=True)
    with pytest.raises(subprocess.CalledProcessError):
        python(code)
    assert subprocess.run([*switch, "perhaps"], capture_output=True, check=False).returncode == 2
    for arguments in (["--help"], ["-h"], ["enable", "--help"]):
        message = subprocess.run([*switch, *arguments], capture_output=True, text=True, check=False)
        assert (message.returncode, message.stderr) == (0, "") and "enable|disable" in message.stdout


def test_python_in_a_configuration_falls_back_to_python3(tmp_path: Path) -> None:
    argv = ["python", "-c", "print(6 * 7)"]
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy(command={"argv": argv})))
    for executor in (JailExecutor(), NsJailExecutor()):
        assert executor.execute_sync(path).stdout == "42\n"
    path = tmp_path / "nsjail.json"
    path.write_text(json.dumps(legacy(cmd=argv)))
    assert JailExecutor().execute_sync(path).stdout == "42\n"
    # A `python` in the sandbox takes precedence; without either program the error names the requested one.
    own = tmp_path / "own"
    own.mkdir()
    for directory in (tmp_path, own):
        directory.chmod(0o755)
    (own / "python").write_text("#!/bin/sh\necho its own\n")
    (own / "python").chmod(0o755)
    mounts = [{"type": "bind", "source": str(own), "target": "/srv/own", "access": "read_only", "exec": True}]

    def searched(places: str) -> str:
        fields = policy(command={"argv": argv, "variables": {"PATH": places}}, filesystem={"mounts": mounts})
        path.with_name("policy.json").write_text(json.dumps(fields))
        return JailExecutor().execute_sync(path.with_name("policy.json")).stdout

    assert searched("/usr/bin:/srv/own") == "its own\n"
    with pytest.raises(cofferdam.CofferdamError, match="python: not found"):
        searched("/srv")


def test_hints_name_fields_and_not_command_options(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy(command={"argv": ["no-such-program"]})))
    with pytest.raises(cofferdam.CofferdamError, match=r"hint: name its path, set PATH in command\.variables") as message:
        JailExecutor().execute_sync(path)
    assert "filesystem.mounts" in str(message.value)
    assert " -e " not in str(message.value) and " -v" not in str(message.value)
    profile = tmp_path / "away.ncl"
    profile.write_text('import "/etc/other.ncl"')
    for file in (tmp_path, profile):
        file.chmod(0o755)
    with pytest.raises(cofferdam.ProfileError, match="compile_profile with `imports` that name /etc") as refused:
        cofferdam.compile_profile(profile)
    assert "--allow-import" not in str(refused.value)


def test_cached_policy_is_made_of_its_key_content(tmp_path: Path) -> None:
    from cofferdam import _native

    def config(word: str) -> bytes:
        return json.dumps({"version": 1, "id": "x", "command": {"argv": ["echo", word]}}).encode()

    nsjail = tmp_path / "nsjail.json"
    nsjail.write_text(json.dumps({"name": "x", "exec_bin": {"path": "/bin/echo", "arg": ["later"]}}))
    (tmp_path / "policy.json").write_bytes(config("later"))
    content = json.dumps({"name": "x", "exec_bin": {"path": "/bin/echo", "arg": ["alone"]}}).encode()
    for beside, said in [(config("read"), "read\n"), (None, "alone\n")]:
        prepared = _native.Prepared.from_config(nsjail, "jail", (content, beside))
        assert prepared.run().stdout == said
    assert JailExecutor().execute_sync(nsjail).stdout == "later\n"


def test_special_file_as_configuration_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "policy.json"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="no regular file"):
        JailExecutor().execute_sync(pipe)
    with pytest.raises(OSError, match="no regular file"):
        JailExecutor().execute_sync("/dev/zero")
    (tmp_path / "large.json").write_bytes(b" " * (17 << 20))
    with pytest.raises(ValueError, match="larger than"):
        JailExecutor().execute_sync(tmp_path / "large.json")
