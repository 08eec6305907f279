"""Skills: a profile per skill, exported once and executed by its id.

Values of a skill's configuration are only ever data: they are written to a JSON file that a constant two-line profile
imports, so no value can become part of a program.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Callable, Dict, Hashable, List, Mapping, Optional, Sequence, Union

from . import _cache, _native
from ._native import ExecutionResult, ProfileError
from .profiles import compile_outputs
from ._stdin import AsyncStdin, Stdin
from .runs import AsyncRun, Run, as_json, check_on_output, path_of, run_prepared, start_run, timeout_ms, words_of

_PROFILE = """let config = import "config.json" in
(import "{base}").make_default_config config.skill_id & config
"""
"""The profile of every skill; `base` is one of two constants."""

_WORKING_DIR = "/tmp/skill"
"""The library's default working directory of skills."""


_PARTS = ("lib", "nsjail", "seatbelt", "skill")
"""Directories of the library that its `skill/default.ncl` imports from."""


class Platform(Enum):
    """The platform that a profile is exported for."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


@dataclass
class SandboxResult:
    """The result of executing a skill."""

    success: bool
    """It exited with 0."""
    exit_code: Optional[int]
    """Its exit code; 128 + N for signal N; -1 for the time limit."""
    stdout: str
    """Standard output; empty if it was read while it ran."""
    stderr: str
    """Standard error; empty if it was read while it ran."""
    execution_time_ms: int
    """From its start to its end, milliseconds."""
    memory_used_bytes: Optional[int]
    """Highest memory use of the whole tree, bytes."""
    error: Optional[str]
    """Why it failed, if the exit code does not say; `Timeout` for the time limit."""
    truncated: bool = False
    """A stream was longer than the profile's `max_output_bytes`, and is truncated."""


class NclDrivenSandbox:
    """Exports the profiles of skills and executes commands under them."""

    def __init__(
        self,
        ncl_dir: Optional[Union[str, Path]] = None,
        profile_dir: Optional[Union[str, Path]] = None,
        nsjail_path: Optional[Union[str, Path]] = None,
        *,
        skills_dir: Optional[Union[str, Path]] = None,
    ) -> None:
        """
        Args:
            ncl_dir: Directory of a custom `default.ncl`; None for the library's.
            profile_dir: The profile store; None for `COFFERDAM_PROFILES`, or `~/.omni/sandbox/profiles`.
            nsjail_path: Execute by this nsjail; None for Cofferdam's own jail.
            skills_dir: Directory with the files of each skill below its id; None for `COFFERDAM_SKILLS`, or
                `~/.omni/skills`.
        """
        self.ncl_dir = None if ncl_dir is None else path_of("ncl_dir", ncl_dir)
        self.profile_dir = _directory("profile_dir", profile_dir, "COFFERDAM_PROFILES", ".omni/sandbox/profiles")
        self.skills_dir = _directory("skills_dir", skills_dir, "COFFERDAM_SKILLS", ".omni/skills")
        self.nsjail_path = None if nsjail_path is None else path_of("nsjail_path", nsjail_path)
        self._store = _native.Store(self.profile_dir)

    def export_profile(
        self,
        skill_id: str,
        skill_config: Mapping[str, Any],
        platform: Union[Platform, str] = Platform.LINUX,
    ) -> Path:
        """Evaluates a skill's profile, and stores the results in the profile store.

        If `skills_dir` has a directory with its id, that is mounted read-only as the working directory.

        Returns:
            The configuration for that platform: `nsjail.json` or `seatbelt.sb`; `policy.json` if nsjail cannot enforce
            the profile and the jail can.

        Raises:
            ValueError: The id is not a plain name, or a value is not data.
            TypeError: The configuration is not a mapping.
            RuntimeError: The evaluation failed; the message is Nickel's.
        """
        _id(skill_id)
        self._store.path(skill_id, "policy.json")  # validates the id before anything is written
        config = _plain(skill_config)
        platform = _platform(platform)
        _agree(config, "skill_id", skill_id)
        _agree(config, "platform", platform.value)
        self._mount_files(skill_id, config)
        outputs, notes = self._evaluate(config)
        # Only warnings about formats that will be used.
        used = {"policy", "seatbelt" if platform is Platform.MACOS else "nsjail" if self.nsjail_path else "policy"}
        for warning in notes:
            if warning.partition(":")[0] in used:
                warnings.warn(warning, stacklevel=2)
        files = []
        for name, (text, refusal) in zip(("policy.json", "nsjail.json", "seatbelt.sb"), outputs):
            if text is not None:
                files.append((name, text))
            elif name == "policy.json" or (name == "seatbelt.sb" and platform is Platform.MACOS):
                raise ProfileError(refusal)
            elif platform is Platform.LINUX and name == "nsjail.json":
                warnings.warn(f"no nsjail.json is stored: {refusal}", stacklevel=2)
        self._store.save(skill_id, files)
        if platform is Platform.MACOS:
            return self._store.path(skill_id, "seatbelt.sb")
        has_nsjail = any(name == "nsjail.json" for name, _ in files)
        return self._store.path(skill_id, "nsjail.json" if has_nsjail else "policy.json")

    def _evaluate(self, config: Dict[str, Any]) -> Any:
        with tempfile.TemporaryDirectory(prefix="cofferdam-") as closed:
            # The evaluator, with a user id of its own, sees only this directory; other users cannot pass the one above.
            directory = Path(closed, "profile")
            directory.mkdir()
            profile = directory / "profile.ncl"
            _write(directory / "config.json", as_json("skill_config", config))
            imports: List[Path] = []
            base = "sandbox/skill/default.ncl"
            if self.ncl_dir is not None:
                default = self.ncl_dir / "default.ncl"
                if not default.is_file():
                    raise FileNotFoundError(f"no default.ncl in {self.ncl_dir}")
                base = _import_path(default)
                # Its imports are beside it: in `lib/`, or in `../lib/` as in the library's layout. Of the parent directory only
                # the parts of the library are allowed.
                imports = [self.ncl_dir]
                above = self.ncl_dir.resolve().parent
                if any(above.glob("lib/*.ncl")):
                    imports += [part for part in map(above.joinpath, _PARTS) if part.is_dir()]
            _write(profile, _PROFILE.replace("{base}", base))
            directory.chmod(0o755)
            return compile_outputs(profile, ["policy", "nsjail", "seatbelt"], imports=imports, cache=False)

    def _mount_files(self, skill_id: str, config: Dict[str, Any]) -> None:
        files = self._own_files(skill_id)
        if files is None:
            _warn_about_local_files(self.skills_dir / skill_id, config)
            return
        mounts = config.get("readonly_mounts", [])
        target = config.get("working_dir", _WORKING_DIR)
        if isinstance(mounts, list):
            config["readonly_mounts"] = [*mounts, {"src": str(files), "dst": target}]

    def _own_files(self, skill_id: str) -> Optional[Path]:
        """The directory of the skill's files; None if there is none.

        A collection of skills may come from a repository, and a link in it is not its owner's word on what to show.
        """
        files = self.skills_dir / skill_id
        if not files.is_dir():
            return None
        files = files.resolve()
        if files.parent != self.skills_dir.resolve() or files.name.startswith("."):
            raise ValueError(
                f"{self.skills_dir / skill_id} is a link that leads out of the skills there, and is not followed\n"
                "hint: copy the directory there, or name it in `readonly_mounts`"
            )
        return files

    async def execute(
        self,
        skill_id: str,
        command: Sequence[str],
        input_data: AsyncStdin = None,
        timeout: float = 60,
        *,
        on_output: Optional[Callable[[str, bytes], object]] = None,
    ) -> SandboxResult:
        """Executes a command under a skill's profile, without blocking the event loop. Cancelling it kills the process tree.

        Args:
            skill_id: The skill with the profile.
            command: Program and arguments; empty for the profile's own.
            input_data: Standard input: text, bytes, an open file, or an iterable of pieces, asynchronous or not.
            timeout: Seconds; a shorter limit of the profile takes precedence.
            on_output: Called with `stdout` or `stderr` and bytes as output arrives, which is not collected then.

        Raises:
            FileNotFoundError: There is no such profile.
            RuntimeError: Nothing could be started.
        """
        check_on_output(on_output)
        prepared = self._prepared(skill_id, command, timeout)
        streams = on_output is not None
        given = "" if input_data is None else input_data
        async with AsyncRun(
            lambda data, pipe, notify: prepared.start(data, pipe=pipe, stream=streams, notify=notify), given, "input_data"
        ) as running:
            if on_output is not None:
                async for stream, piece in running:
                    on_output(stream, piece)
            return _result((await running).to_execution_result())

    def execute_sync(
        self,
        skill_id: str,
        command: Sequence[str],
        input_data: Stdin = None,
        timeout: float = 60,
    ) -> SandboxResult:
        """Executes a command under a skill's profile, on this thread."""
        given = "" if input_data is None else input_data
        outcome = run_prepared(self._prepared(skill_id, command, timeout), given, argument="input_data")
        return _result(outcome.to_execution_result())

    def start(
        self,
        skill_id: str,
        command: Sequence[str],
        input_data: Stdin = None,
        timeout: float = 60,
        *,
        stream: bool = False,
    ) -> Run:
        """Starts it in the background. The `Run` reports its resource usage, can be cancelled, and returns its `Outcome`.

        With `stream`, its output has to be read while it runs.
        """
        prepared = self._prepared(skill_id, command, timeout)
        given = "" if input_data is None else input_data
        return start_run(prepared, given, stream=stream, argument="input_data")

    def _prepared(self, skill_id: str, command: Sequence[str], timeout: float) -> _native.Prepared:
        _id(skill_id)
        self._store.path(skill_id, "policy.json")  # validates the id
        self._own_files(skill_id)  # it may have become a link since the export
        argv = words_of("command", command)
        ms = timeout_ms(timeout)
        if self.nsjail_path is None:
            try:
                policy = self._store.read(skill_id, "policy.json")
            except FileNotFoundError:
                pass  # it may come from elsewhere, and have an nsjail.json only
            else:
                key: Hashable = (policy, tuple(argv), ms)
                return _cache.prepared(
                    key,
                    lambda ready: _native.Prepared.from_policy(
                        policy,
                        stored=self._store.path(skill_id, "policy.json"),
                        command=argv or None,
                        timeout_ms=ms,
                        stdin=True,
                        python3=True,
                        keep_ready=ready,
                    ),
                )
        path = self._store.path(skill_id, "nsjail.json")
        try:
            config = self._store.read(skill_id, "nsjail.json")
        except FileNotFoundError:
            raise FileNotFoundError(
                f"no sandbox profile of {skill_id!r} in {self.profile_dir}: run export_profile() first"
            ) from None
        try:
            beside: Optional[bytes] = self._store.read(skill_id, "policy.json")
        except FileNotFoundError:
            beside = None
        executor = "jail" if self.nsjail_path is None else "nsjail"
        return _cache.prepared(
            (str(path), config, beside, tuple(argv), ms, self.nsjail_path),
            lambda ready: _native.Prepared.from_config(
                path,
                executor,
                (config, beside),
                nsjail_path=self.nsjail_path,
                command=argv or None,
                timeout_ms=ms,
                keep_ready=ready,
            ),
        )


def _id(skill_id: Any) -> None:
    if not isinstance(skill_id, str):
        raise TypeError(f"skill_id: {skill_id!r} is not a text")


def _warn_about_local_files(files: Path, config: Dict[str, Any]) -> None:
    """Warns if the command names a file of the current directory, which the sandbox does not contain."""
    command = config.get("cmd")
    if not isinstance(command, list) or any(config.get(name) for name in ("mounts", "readonly_mounts", "allowed_paths")):
        return
    for word in command[:2]:
        if isinstance(word, str) and word and not word.startswith("/") and os.path.isfile(word) and "." in word:
            warnings.warn(
                f"cmd names {word!r}, and a skill does not see the current directory: put it into {files}, "
                "or show its directory with readonly_mounts",
                stacklevel=4,
            )
            return


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


def _directory(name: str, named: Optional[Union[str, Path]], variable: str, default: str) -> Path:
    if named is not None:
        return path_of(name, named)
    return Path(os.environ.get(variable) or Path.home() / default)


def _platform(given: Union[Platform, str]) -> Platform:
    try:
        return Platform(given)
    except ValueError:
        names = ", ".join(repr(platform.value) for platform in Platform)
        raise ValueError(f"platform: {given!r} is none: {names}, or a Platform") from None


def _plain(config: Mapping[str, Any]) -> Dict[str, Any]:
    """A copy with JSON types."""
    if not isinstance(config, Mapping):
        kind = type(config).__name__
        raise TypeError(f'skill_config: a mapping such as {{"cmd": ["python3", "main.py"]}} is, and no {kind}')

    def other(value: Any) -> Any:
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise ValueError(f"skill_config: {value!r} is no data: texts, numbers, lists and mappings are")

    plain: Dict[str, Any] = json.loads(as_json("skill_config", config, other))
    return plain


def _agree(config: Dict[str, Any], name: str, value: str) -> None:
    if config.setdefault(name, value) != value:
        raise ValueError(f"skill_config[{name!r}] is {config[name]!r}, and the call says {value!r}")


def _import_path(path: Path) -> str:
    """A path as text for an import."""
    text = str(path.resolve())
    if any(character in text for character in '"\\%\n\r'):
        raise ValueError(f"ncl_dir: {text!r} cannot be imported: it has a quote, backslash, percent sign or line feed")
    return text


def _result(result: ExecutionResult) -> SandboxResult:
    return SandboxResult(
        success=result.success,
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        execution_time_ms=result.execution_time_ms,
        memory_used_bytes=result.memory_used_bytes,
        error=result.error,
        truncated=result.truncated,
    )
