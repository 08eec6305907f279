//! The configuration of a skill's sandbox as a Rust value, under the names of an older design. It is converted to the
//! older `nsjail.json`, and that to a policy; nothing here decides anything.

use cofferdam_policy::Policy;
use serde::{Deserialize, Serialize};

use super::legacy::{self, MountJson, NsJailJsonConfig};

/// A skill's sandbox. `Policy::try_from` makes the policy that the engine runs; a file of this form is loaded as well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SandboxConfig {
    /// Name of the skill.
    pub skill_id: String,
    /// How it runs: `EXEC`, `ONCE`; there is only one way.
    pub mode: String,
    /// Host name inside.
    pub hostname: String,
    /// The command.
    pub cmd: Vec<String>,
    /// Variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// Mounts.
    pub mounts: Vec<MountConfig>,
    /// Memory, bytes; 0 for the default.
    pub rlimit_as: u64,
    /// CPU time, seconds; 0 for the default.
    pub rlimit_cpu: u64,
    /// Level of the log.
    pub log_level: String,
}

/// A mount of a skill's sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountConfig {
    /// What is mounted.
    pub src: String,
    /// Where.
    pub dst: String,
    /// `bind`, `tmpfs`, `proc`.
    pub fstype: String,
    /// Whether it can be written.
    pub rw: bool,
}

impl From<MountConfig> for MountJson {
    fn from(mount: MountConfig) -> MountJson {
        let MountConfig { src, dst, fstype, rw } = mount;
        MountJson { src, dst, fstype, rw }
    }
}

impl From<SandboxConfig> for NsJailJsonConfig {
    /// What the one form does not have is as in a file without it, but that calls are filtered as the default level
    /// does.
    fn from(config: SandboxConfig) -> NsJailJsonConfig {
        NsJailJsonConfig {
            name: config.skill_id,
            mode: config.mode,
            hostname: config.hostname,
            cmd: config.cmd,
            env: config.env,
            mount: config.mounts.into_iter().map(MountJson::from).collect(),
            log_level: config.log_level,
            log: String::new(),
            rlimit_as: config.rlimit_as,
            rlimit_cpu: config.rlimit_cpu,
            rlimit_fsize: 0,
            rlimit_core: 0,
            rlimit_nofile: 0,
            rlimit_nproc: 0,
            rlimit_stack: 0,
            rlimit_cpu_type: String::new(),
            seccomp_mode: 2,
            seccomp_string: Vec::new(),
            time_limit: 0,
            keep_caps: false,
            no_new_privs: true,
            read_only: true,
            clone_newnet: true,
            clone_newuser: true,
            clone_newpid: true,
            clone_newns: true,
        }
    }
}

impl TryFrom<SandboxConfig> for Policy {
    type Error = String;

    /// The policy; what had to be changed on the way is traced.
    fn try_from(config: SandboxConfig) -> Result<Policy, String> {
        let (policy, notes) = legacy::policy(&config.into())?;
        for note in notes {
            tracing::info!(note, "a skill's configuration");
        }
        policy.validate().map_err(|errors| errors.to_string())?;
        Ok(policy)
    }
}
