//! Why Cofferdam refused a policy, or why a run failed: the step, the cause, and what the user can do.
//!
//! Owns the one error type of this crate and the names of its steps, which outcomes carry as text. Callers decide by the
//! [`FailedStep`], never by the words of a message or a hint.

use std::borrow::Cow;
use std::fmt;

use cofferdam_confine::spawn::SpawnError;
use cofferdam_policy::Field;
use serde::{Serialize, Serializer};

/// The exit code of a refusal, and of a failure that is none of the program's.
pub const REFUSED: i32 = 125;
/// The exit code where the program exists and cannot be executed.
pub const NOT_EXECUTABLE: i32 = 126;
/// The exit code where the program does not exist.
pub const NOT_FOUND: i32 = 127;

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// The step that failed.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum FailedStep {
            $($(#[doc = $doc])+ $variant,)+
            /// Enforcing a field of the policy.
            Field(Field),
            /// Another member of the policy, by its path: `command.argv`, `filesystem.mounts[2]`.
            Policy(Cow<'static, str>),
            /// A step of the program that uses the engine.
            Caller(Cow<'static, str>),
        }

        impl FailedStep {
            /// The name, as outcomes carry it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(FailedStep::$variant => $name,)+
                    FailedStep::Field(field) => field.name(),
                    FailedStep::Policy(name) | FailedStep::Caller(name) => name,
                }
            }
        }

        #[cfg(test)]
        const OWN: &[FailedStep] = &[$(FailedStep::$variant,)+];
    };
}

steps! {
    /// Writing the audit trail.
    Audit = "audit",
    /// Choosing a backend that can run the policy.
    Backend = "backend",
    /// Dropping capabilities.
    Capabilities = "capabilities",
    /// Creating or joining the run's cgroup.
    Cgroup = "cgroup",
    /// Removing what the run left, after it ended.
    Cleanup = "cleanup",
    /// Creating, starting or inspecting a container.
    Container = "container",
    /// Reaching a container engine or an OCI runtime.
    Engine = "engine",
    /// Executing the program.
    Exec = "exec",
    /// Setting user and group ids.
    Ids = "ids",
    /// Finding, pulling or unpacking an image.
    Image = "image",
    /// A step of init that has no name of its own, or the end of init.
    Init = "init",
    /// Planning a jail.
    Jail = "jail",
    /// Preparing the directory that copy-on-write changes are kept in.
    KeepChanges = "keep_changes",
    /// Applying a Landlock ruleset.
    Landlock = "landlock",
    /// Setting resource limits.
    Limits = "limits",
    /// The memory of all runs together, or of the machine, which ran out while the run was within its own limit.
    Memory = "memory",
    /// Mounting.
    Mount = "mount",
    /// Creating namespaces.
    Namespaces = "namespaces",
    /// Changing the root directory.
    Pivot = "pivot",
    /// Checking the Git repositories that the program could write.
    Repositories = "repositories",
    /// Starting a session.
    Session = "session",
    /// An external sandbox program setting its sandbox up.
    Setup = "setup",
    /// Starting a process and its pipes.
    Spawn = "spawn",
    /// Using the directory of Cofferdam's own files.
    State = "state",
    /// Creating a terminal.
    Terminal = "terminal",
    /// Finding an external sandbox program that is not installed.
    Tool = "tool",
}

impl FailedStep {
    /// A step of the program that uses the engine, by a name that is none of the engine's own.
    pub const fn caller(name: &'static str) -> FailedStep {
        FailedStep::Caller(Cow::Borrowed(name))
    }

    /// A member of the policy that is no [`Field`], by its path.
    pub const fn policy(path: &'static str) -> FailedStep {
        FailedStep::Policy(Cow::Borrowed(path))
    }

    /// An entry of the policy's mounts.
    pub fn mount_entry(index: usize) -> FailedStep {
        FailedStep::Policy(format!("{}[{index}]", Field::Mounts).into())
    }

    /// The field whose enforcement it is.
    pub fn field(&self) -> Option<Field> {
        match self {
            FailedStep::Field(field) => Some(*field),
            _ => None,
        }
    }
}

impl From<Field> for FailedStep {
    fn from(field: Field) -> FailedStep {
        FailedStep::Field(field)
    }
}

impl From<&Field> for FailedStep {
    fn from(field: &Field) -> FailedStep {
        FailedStep::Field(*field)
    }
}

impl From<&FailedStep> for FailedStep {
    fn from(step: &FailedStep) -> FailedStep {
        step.clone()
    }
}

impl fmt::Display for FailedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FailedStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Why Cofferdam refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// 125 when Cofferdam refused or failed, 126 when the program cannot be executed, 127 when it is not found.
    pub code: i32,
    /// The step that failed, such as `mount`, `landlock`, `exec`.
    pub step: FailedStep,
    /// What and why, with the errno in words.
    pub message: String,
    /// What the user can do, as an exact command where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    /// A refusal or failure in this step, with exit code 125 and no hint.
    pub fn new(step: impl Into<FailedStep>, message: impl Into<String>) -> Failure {
        Failure { code: REFUSED, step: step.into(), message: message.into(), hint: None }
    }

    /// The same with the whole chain of causes behind the message.
    #[must_use]
    pub fn caused_by(mut self, error: &dyn std::error::Error) -> Failure {
        let mut cause = Some(error);
        while let Some(error) = cause {
            self.message.push_str(&format!(": {error}"));
            cause = error.source();
        }
        self
    }

    /// The same with what the user can do.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    /// An external program, such as a container runtime, could not be started.
    pub(crate) fn not_started(step: impl Into<FailedStep>, program: &std::path::Path, error: &SpawnError) -> Failure {
        const NO_KEY: &str = "each sandbox needs a keyring, and this user has as many keys as the kernel allows: wait for other \
                              runs to end, or raise the limit as root: sysctl -w kernel.keys.maxkeys=2000";
        let quota = Some(rustix::io::Errno::DQUOT.raw_os_error());
        let no_key = matches!(error, SpawnError::Child { source, .. } if source.raw_os_error() == quota);
        Failure::new(step, format!("cannot start {}", program.display()))
            .caused_by(error)
            .maybe_hint(no_key.then_some(NO_KEY))
    }

    /// The same with what the user can do, where that is known.
    #[must_use]
    pub fn maybe_hint(self, hint: Option<impl Into<String>>) -> Failure {
        Failure { hint: hint.map(Into::into), ..self }
    }

    /// The same with another exit code. With 0 it is a note on a run that succeeded.
    #[must_use]
    pub fn code(self, code: i32) -> Failure {
        Failure { code, ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let fields = Field::ALL.iter().map(FailedStep::from);
        let others = [FailedStep::policy("command.argv"), FailedStep::mount_entry(2), FailedStep::caller("profile")];
        let mut names = std::collections::BTreeSet::new();
        for step in OWN.iter().cloned().chain(fields).chain(others) {
            assert!(names.insert(step.as_str().to_owned()), "{step} twice");
            assert_eq!(serde_json::json!(step), step.as_str());
        }
        assert_eq!(FailedStep::mount_entry(2).as_str(), "filesystem.mounts[2]");
    }

    #[test]
    fn failure_serialises_with_its_hint_only_where_it_has_one() {
        let failure = Failure::new(Field::Root, "no such directory");
        let json = serde_json::json!({ "code": 125, "step": "filesystem.root", "message": "no such directory" });
        assert_eq!(serde_json::json!(failure), json);
        let hinted = serde_json::json!(failure.hint("create it").code(NOT_FOUND));
        assert_eq!((&hinted["hint"], &hinted["code"]), (&"create it".into(), &127.into()));
    }

    #[test]
    fn message_holds_the_chain_of_causes() {
        let inner = std::io::Error::other(Failure::new(FailedStep::Spawn, "inner"));
        let failure = Failure::new(FailedStep::Mount, "outer").caused_by(&inner);
        assert_eq!(failure.to_string(), "outer: inner");
    }
}
