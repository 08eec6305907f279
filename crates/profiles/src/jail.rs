//! The jail in which the evaluator evaluates untrusted profiles.
//!
//! It contains the evaluator itself and the directories that the profile may import from, read-only, and no other file of the host
//! except what an empty system needs. It has no network and no child processes, and its memory and time are limited. Uses the
//! engine's public interface, and knows nothing of its mechanisms.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use cofferdam_engine::{Ending, Engine, Failure, Input, Io, Outcome};
use cofferdam_policy::{Access, BackendName, Field, Mount, Policy, Root, Stdin};

use crate::error::CompileError;
use crate::helper::{EvaluatorEnd, Helper, How, MAX_ANSWER, MEMORY_MB, VARIABLES};
use crate::protocol::EvaluatorDirectory;

/// The directory of all mounts inside the jail, where no path of the host is in the way.
const PLACE: &str = "/run/cofferdam";

/// Directories of the host that are hidden. The program is static and needs none of them.
const HIDDEN: &[&str] = &["/etc", "/usr"];

/// Runs the evaluator in a jail. `request` makes the request for the directories by their paths inside.
pub(crate) fn run(
    engine: &Engine,
    helper: &Helper,
    dirs: &BTreeSet<&Path>,
    request: impl Fn(Vec<EvaluatorDirectory>) -> Vec<u8>,
    time: Duration,
) -> Result<EvaluatorEnd, CompileError> {
    let inside: Vec<EvaluatorDirectory> = dirs
        .iter()
        .enumerate()
        .map(|(number, name)| EvaluatorDirectory { name: name.to_path_buf(), at: format!("{PLACE}/{number}").into() })
        .collect();
    let jail = policy(helper, &inside, BackendName::Jail, time);
    let (prepared, inside) = match engine.prepare(&jail) {
        Ok(prepared) => (prepared, inside),
        Err(failure) => {
            // Without mounts every file is at its own path, and Landlock denies access to the others.
            let plain: Vec<EvaluatorDirectory> =
                inside.iter().map(|dir| EvaluatorDirectory { name: dir.name.clone(), at: dir.name.clone() }).collect();
            let prepared = engine
                .prepare(&policy(helper, &plain, BackendName::Landlock, time))
                .map_err(|second| no_sandbox(&failure, &second))?;
            (prepared, plain)
        }
    };
    let io = Io { input: Input::Bytes(request(inside)), ..Io::default() };
    end(prepared.run(io), time)
}

fn no_sandbox(jail: &Failure, landlock: &Failure) -> CompileError {
    let why = if jail.message == landlock.message {
        jail.message.clone()
    } else {
        format!("{}; {}", jail.message, landlock.message)
    };
    CompileError::new(format!("cannot evaluate the profile in a sandbox: {why}"))
        .hint("--trust-profile evaluates it without one, if you wrote it; `cofferdam doctor` shows what is missing")
}

fn policy(helper: &Helper, dirs: &[EvaluatorDirectory], backend: BackendName, time: Duration) -> Policy {
    let jail = backend == BackendName::Jail;
    let bind = |source: &Path, target: &Path, exec: bool| Mount::Bind {
        source: source.to_string_lossy().into_owned(),
        target: target.to_string_lossy().into_owned(),
        access: Access::ReadOnly,
        exec,
        optional: false,
    };
    let program = if jail { Path::new(PLACE).join("evaluator") } else { helper.path.clone() };
    let mut policy = Policy::base();
    policy.id = Some("profile".into());
    policy.command.argv = vec![program.to_string_lossy().into_owned()];
    policy.command.variables =
        VARIABLES.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    policy.command.cwd = Some("/".into());
    policy.command.stdin = Stdin::Caller;
    policy.filesystem.root = Root::Minimal;
    policy.filesystem.mounts = vec![bind(&helper.path, &program, true)];
    policy.filesystem.mounts.extend(dirs.iter().map(|dir| bind(&dir.name, &dir.at, false)));
    policy.filesystem.protected.clear();
    if jail {
        // Covered and not denied: the evaluator and the profile may lie there themselves, and are mounted elsewhere.
        let cover = |path: &&str| Mount::Tmpfs { target: (*path).to_owned(), size_mb: 1, exec: false };
        policy.filesystem.mounts.extend(HIDDEN.iter().map(cover));
    }
    policy.process.spawn = false;
    policy.limits.memory_mb = MEMORY_MB;
    policy.limits.wall_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    policy.limits.cpu_seconds = time.as_secs() + 1;
    policy.limits.output_bytes = MAX_ANSWER;
    policy.limits.processes = 16;
    // Isolation must be enforced. Limits are enforced as far as the host allows, since the evaluator limits itself as well.
    for field in [Field::Memory, Field::WallTime, Field::CpuTime, Field::Output, Field::Processes] {
        policy.allow_partial(field);
    }
    if !jail {
        // Files, network and child processes matter. Whether it sees other processes and devices is accepted, since the only
        // alternative there is no sandbox at all. Inside another sandbox the evaluator's execs cannot be counted: it still starts
        // no process, and a program that it executes instead has the same access.
        for field in [Field::Mounts, Field::Isolation, Field::Hostname, Field::Spawn] {
            policy.allow_partial(field);
        }
    }
    policy.backend = backend;
    policy
}

fn end(outcome: Outcome, time: Duration) -> Result<EvaluatorEnd, CompileError> {
    let how = match outcome.outcome {
        Ending::Exited => How::Exited(outcome.exit_code.unwrap_or(-1)),
        Ending::Signalled => How::Signalled(outcome.signal.unwrap_or(0)),
        Ending::TimedOut => How::Time,
        Ending::LimitExceeded if outcome.limit == Some(Field::CpuTime) => How::Time,
        Ending::LimitExceeded => How::Memory,
        Ending::Violation => How::Signalled(9),
        Ending::SetupFailed => {
            let failure = outcome.error.map(|f| (f.message, f.hint));
            let (message, hint) = failure.unwrap_or_else(|| ("nothing ran".into(), None));
            let error = CompileError::new(format!("cannot evaluate the profile in a sandbox: {message}"));
            return Err(match hint {
                Some(hint) => error.hint(hint),
                None => error,
            });
        }
    };
    Ok(EvaluatorEnd { stdout: outcome.stdout, stderr: outcome.stderr, how, time })
}
