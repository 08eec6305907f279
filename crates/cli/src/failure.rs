//! What a failure of the engine, or an error of a policy, is about: read from its step, its message and its hint.
//!
//! The only file that draws conclusions from these texts. Pure.

use cofferdam_engine::{FailedStep, Failure};
use cofferdam_policy::{Field, PolicyError};

/// Options of `run` in hints, none of which `skill run` has.
const RUN_OPTIONS: [&str; 9] = ["-w", "-v", "-e", "--root", "--image", "--network", "--allow", "--tmpfs", "--deny"];

/// Whether the program could not be executed.
pub(crate) fn is_exec(failure: &Failure) -> bool {
    failure.step == FailedStep::Exec
}

/// Whether the kernel refused to execute the program, and the engine does not know why.
pub(crate) fn is_unexplained_exec(failure: &Failure) -> bool {
    failure.message.ends_with("not executable inside the sandbox")
}

/// Whether the root view cannot be shown.
pub(crate) fn is_root(failure: &Failure) -> bool {
    failure.step == Field::Root.into()
}

/// Whether the mount of this path failed.
pub(crate) fn is_mount_of(failure: &Failure, path: &str) -> bool {
    failure.step == Field::Mounts.into() && failure.message.contains(&format!(" {path}: "))
}

/// The target inside of a mount that failed.
pub(crate) fn mount_target(failure: &Failure) -> Option<&str> {
    failure.message.strip_prefix("mount target ").and_then(|rest| rest.split(' ').next())
}

/// Whether git outside of the sandbox would obey a repository that the program left.
pub(crate) fn is_repositories(failure: &Failure) -> bool {
    failure.step == FailedStep::Repositories
}

/// Whether the changes that were to be kept are lost.
pub(crate) fn are_changes_lost(failure: &Failure) -> bool {
    failure.step == FailedStep::KeepChanges && failure.code != 0
}

/// The fields that a hint offers for `--best-effort`, with commas between them.
pub(crate) fn best_effort_fields(hint: &str) -> Option<&str> {
    hint.strip_prefix("--best-effort=").map(|rest| rest.split(' ').next().unwrap_or(rest))
}

/// Whether a hint names an option of `run` that `skill run` does not have.
pub(crate) fn names_option_of_run(hint: &str) -> bool {
    RUN_OPTIONS.iter().any(|option| hint.split([' ', '=', ',', ';', ':']).any(|word| word == *option))
}

/// Whether a policy is refused because its working directory is denied.
pub(crate) fn is_denied_workdir(error: &PolicyError) -> bool {
    error.problem.contains("working directory that is denied")
}
