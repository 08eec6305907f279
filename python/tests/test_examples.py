"""The three uses that existing documentation shows: an export by the command, a profile of one's own, and Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict

import pytest
from conftest import ROOT, skip

import cofferdam
from cofferdam import NclDrivenSandbox

SKILL = textwrap.dedent("""\
    import json, os, sys
    data = json.load(sys.stdin)
    print(json.dumps({"got": data["data"], "cwd": os.getcwd(), "files": sorted(os.listdir("."))}))
""")


def memory_holds() -> bool:
    """Whether a named memory limit is fully enforced for this user on this host; if not, nothing starts."""
    try:
        cofferdam.prepare({"version": 1, "limits": {"memory_mb": 64}}, ["true"])
    except cofferdam.CofferdamError as error:
        assert "limits.memory_mb" in str(error) and "enforcement.best_effort" in str(error)
        return False
    return True


@pytest.fixture
def skills(home: Path) -> Path:
    """The directory with the files of skills."""
    directory = home / ".omni" / "skills"
    directory.mkdir(parents=True)
    for part in (home, *home.parents):
        # The sandbox's user is not root, and needs access.
        if part.is_relative_to(home.parent) and part.owner() == home.owner():
            part.chmod(0o755)
    return directory


def nickel(expression: str) -> str:
    """The result of plain Nickel: py-nickel, here or in the Python that `COFFERDAM_PY_NICKEL` names."""
    python = os.environ.get("COFFERDAM_PY_NICKEL", sys.executable)
    if subprocess.run([python, "-c", "import nickel"], capture_output=True, check=False).returncode != 0:
        skip("py-nickel is not installed: pip install py-nickel")
    code = "import nickel, sys; sys.stdout.write(nickel.run(sys.argv[1], import_paths=[sys.argv[2]]))"
    program = [python, "-c", code, expression, str(ROOT / "ncl")]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout


def test_one_the_nickel_command_writes_a_configuration_that_runs(home: Path) -> None:
    # $ nickel export --format json ncl/sandbox/skill/main.ncl -- 'skill_id="my-skill"' 'cmd=["python", "main.py"]'
    given = '{ skill_id | force = "my-skill", cmd | force = ["python3", "-c", "print(6 * 7)"] }'
    # The record of what the command exports: `nickel.run` gives everything, also what is marked as not exported.
    text = nickel(f'((import "sandbox/skill/main.ncl") & {given}).configuration')
    directory = home / ".omni/sandbox/profiles/my-skill"
    directory.mkdir(parents=True)
    (directory / "nsjail.json").write_text(text)
    assert json.loads(text)["exec_bin"]["arg"][-1] == "print(6 * 7)"
    sandbox = NclDrivenSandbox()
    assert sandbox.execute_sync("my-skill", []).stdout == "42\n"
    assert sandbox.execute_sync("my-skill", ["python3", "-c", "print(7 * 7)"]).stdout == "49\n"


def policy_of(file: Path) -> Dict[str, Any]:
    policy: Dict[str, Any] = json.loads(cofferdam.compile_profile(file))
    return policy


def test_two_a_profile_of_ones_own(tmp_path: Path) -> None:
    # `default` is a word of the language by now.
    file = tmp_path / "custom-skill.ncl"
    tmp_path.chmod(0o755)
    file.write_text(
        textwrap.dedent("""\
        let skill = import "sandbox/skill/default.ncl" in

        skill.make_default_config "secure-skill" & {
          seccomp_level = "strict",
          network_policy = "deny",
          max_memory_mb = 128,
          cmd = ["python", "analyze.py"],
        }
        """)
    )
    file.chmod(0o644)
    policy = policy_of(file)
    assert policy["limits"]["memory_mb"] == 128 and policy["network"]["mode"] == "none"
    assert policy["process"]["seccomp"]["level"] == "strict"
    assert policy["command"]["argv"] == ["python", "analyze.py"]
    if not memory_holds():
        policy["enforcement"]["best_effort"].append("limits.memory_mb")
    assert cofferdam.run(policy, ["sh", "-c", "echo runs"]).stdout == "runs\n"
    changed = json.loads(cofferdam.compile_profile(file, overrides=["max_memory_mb=64"]))
    assert changed["limits"]["memory_mb"] == 64
    with pytest.raises(cofferdam.ProfileError, match="max_memory_mb"):
        cofferdam.compile_profile(file, overrides=["max_memory_mb=much"])
    assert "(version 1)" in cofferdam.compile_profile(file, "seatbelt")
    with pytest.raises(ValueError, match="no format"):
        cofferdam.compile_profile(file, "nothing")


EXAMPLE = """\
from omni.core.skills.sandbox import NclDrivenSandbox, SandboxResult

sandbox = NclDrivenSandbox()

# Export profile first
profile_path = sandbox.export_profile(
    skill_id="data-processor",
    skill_config={
        "skill_id": "data-processor",
        "max_memory_mb": 256,
        "network_policy": "deny",
        "cmd": ["python", "process.py"],
    },
)

# Execute
result = sandbox.execute_sync(
    skill_id="data-processor",
    command=["python", "process.py"],
    input_data='{"data": "..."}',
    timeout=30,
)

print(f"Success: {result.success}")
print(f"Output: {result.stdout}")
"""


def test_three_from_python_as_it_is_written(home: Path, skills: Path, tmp_path: Path) -> None:
    if not (Path("/usr/bin/python").exists() or Path("/usr/bin/python3").exists()):
        skip("the system has no Python of its own, which the skill needs")
    files = skills / "data-processor"
    files.mkdir()
    (files / "process.py").write_text(SKILL)
    site = tmp_path / "site"
    site.mkdir()
    subprocess.run([sys.executable, "-m", "cofferdam_omni", "enable", str(site)], check=True)
    example = EXAMPLE
    if not memory_holds():
        # The one line that a host without memory limits needs; with them it is the example as it is written.
        example = example.replace("        \"cmd\"", "        \"best_effort\": [\"limits.memory_mb\"],\n        \"cmd\"")
    (tmp_path / "example.py").write_text(example)
    run = f"import site, runpy; site.addsitedir({str(site)!r}); runpy.run_path({str(tmp_path / 'example.py')!r})"
    message = subprocess.run([sys.executable, "-W", "error", "-c", run], capture_output=True, text=True, check=False)
    assert message.returncode == 0, message.stderr
    first, second = message.stdout.splitlines()[:2]
    assert first == "Success: True"
    assert json.loads(second.removeprefix("Output: ")) == {"got": "...", "cwd": "/tmp/skill", "files": ["process.py"]}
    kept = home / ".omni/sandbox/profiles/data-processor"
    assert {"nsjail.json", "policy.json"} <= {file.name for file in kept.iterdir()}
