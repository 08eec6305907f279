//! The `nsjail.json` of older profiles: a format that nsjail itself never read, with its own units and meanings.
//!
//! It becomes a policy with the intended meaning: the network is always private and the root view at least `minimal`,
//! and system call lists that no program survives become a level. Every change of meaning is a note. Unknown keys are
//! tolerated.

use std::collections::BTreeSet;

use cofferdam_confine::seccomp::{Arch, syscall_number};
use cofferdam_policy::paths::normalize;
use cofferdam_policy::{Access, Mount, NetworkMode, Policy, Root, SeccompLevel, Stdin, SyscallAction, SyscallRule};
use serde::{Deserialize, Serialize};

use super::skill_config::SandboxConfig;

/// The older configuration, by its own names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NsJailJsonConfig {
    /// Name of the profile.
    pub name: String,
    /// How it runs: `EXEC`, `ONCE`; there is only one way now.
    pub mode: String,
    /// Host name inside.
    pub hostname: String,
    /// The command.
    pub cmd: Vec<String>,
    /// Variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// Mounts.
    pub mount: Vec<MountJson>,
    /// Level of nsjail's log.
    pub log_level: String,
    /// File of nsjail's log.
    #[serde(default)]
    pub log: String,
    /// Memory, bytes.
    #[serde(default)]
    pub rlimit_as: u64,
    /// CPU time, seconds.
    #[serde(default)]
    pub rlimit_cpu: u64,
    /// Largest file, bytes.
    #[serde(default)]
    pub rlimit_fsize: u64,
    /// Core files, bytes.
    #[serde(default)]
    pub rlimit_core: u64,
    /// Open files.
    #[serde(default)]
    pub rlimit_nofile: u64,
    /// Processes.
    #[serde(default)]
    pub rlimit_nproc: u64,
    /// Stack, bytes.
    #[serde(default)]
    pub rlimit_stack: u64,
    /// `SOFT` or `HARD`.
    #[serde(default)]
    pub rlimit_cpu_type: String,
    /// Whether calls are filtered.
    #[serde(default)]
    pub seccomp_mode: u32,
    /// Names of system calls to refuse.
    #[serde(default)]
    pub seccomp_string: Vec<String>,
    /// Wall time, seconds; 0 means the executor's.
    #[serde(default)]
    pub time_limit: u64,
    /// Whether capabilities are kept.
    #[serde(default)]
    pub keep_caps: bool,
    /// Whether setuid programs gain nothing.
    #[serde(default = "yes")]
    pub no_new_privs: bool,
    /// Whether the root is read-only.
    #[serde(default = "yes")]
    pub read_only: bool,
    /// Whether the network is the sandbox's own.
    #[serde(default = "yes")]
    pub clone_newnet: bool,
    /// Whether the user namespace is.
    #[serde(default = "yes")]
    pub clone_newuser: bool,
    /// Whether the pid namespace is.
    #[serde(default = "yes")]
    pub clone_newpid: bool,
    /// Whether the mount namespace is.
    #[serde(default = "yes")]
    pub clone_newns: bool,
}

/// A mount of the older configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountJson {
    /// What is mounted.
    pub src: String,
    /// Where.
    pub dst: String,
    /// `bind`, `tmpfs`, `proc`.
    pub fstype: String,
    /// Whether it can be written.
    pub rw: bool,
}

/// Names the first field of an older configuration whose value has a wrong type; `None` where none has.
pub(crate) fn wrong_field(given: &serde_json::Value) -> Option<String> {
    let valid = serde_json::json!({
        "name": "", "mode": "", "hostname": "", "cmd": [], "env": [], "log_level": "", "mount": []
    });
    let fault = |key: &str, value: serde_json::Value| {
        let mut config = valid.clone();
        config[key] = value;
        serde_json::from_value::<NsJailJsonConfig>(config).err()
    };
    for (key, value) in given.as_object()? {
        let Some(error) = fault(key, value.clone()) else { continue };
        let items = value.as_array().into_iter().flatten().enumerate();
        let item = items.filter_map(|(at, item)| Some((at, item, fault(key, serde_json::json!([item]))?))).next();
        return Some(match item {
            Some((at, item, error)) => format!("{key}[{at}]{}: {error}", wrong_key_of_mount(item)),
            None if key == "cmd" && value.is_string() => format!("cmd: {error}; hint: \"cmd\": [{value}]"),
            None => format!("{key}: {error}"),
        });
    }
    None
}

/// The key of a mount whose value has a wrong type, with its point.
fn wrong_key_of_mount(mount: &serde_json::Value) -> String {
    let valid = serde_json::json!({ "src": "", "dst": "", "fstype": "", "rw": false });
    let wrong = mount.as_object().into_iter().flatten().find(|(key, value)| {
        let mut one = valid.clone();
        one[key.as_str()] = (*value).clone();
        serde_json::from_value::<MountJson>(one).is_err()
    });
    wrong.map(|(key, _)| format!(".{key}")).unwrap_or_default()
}

/// One note on the keys that this form does not have, and that are left out.
///
/// # Errors
/// One of them would be a limit.
pub(crate) fn left_out(given: &serde_json::Value) -> Result<Option<String>, String> {
    const OF_SKILLS: [&str; 2] = ["skill_id", "mounts"];
    let known = serde_json::to_value(NsJailJsonConfig::from(SandboxConfig::default())).unwrap_or_default();
    let keys = given.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let unknown: Vec<&str> =
        keys.filter(|key| known.get(key).is_none() && !OF_SKILLS.contains(key) && *key != "log").collect();
    let is_limit = |key: &&&str| {
        let limits = ["cgroup_", "rlimit_", "max_"].iter().any(|prefix| key.starts_with(prefix));
        limits && !key.ends_with("_type")
    };
    if let Some(limit) = unknown.iter().find(is_limit) {
        return Err(format!(
            "{limit}: the older form has no such limit; hint: rlimit_as, rlimit_cpu, rlimit_fsize, rlimit_nofile, \
             rlimit_nproc or time_limit"
        ));
    }
    Ok((!unknown.is_empty()).then(|| format!("{}: has no meaning in a policy, and is left out", unknown.join(", "))))
}

fn yes() -> bool {
    true
}

/// Calls without which no program starts or ends: refusing one is refusing to run anything.
const VITAL: &[&str] = &[
    "access",
    "arch_prctl",
    "brk",
    "clone",
    "clone3",
    "close",
    "dup",
    "dup2",
    "dup3",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "faccessat",
    "faccessat2",
    "fcntl",
    "fork",
    "fstat",
    "futex",
    "getdents64",
    "getrandom",
    "ioctl",
    "lseek",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "open",
    "openat",
    "pipe",
    "pipe2",
    "poll",
    "pread64",
    "prctl",
    "prlimit64",
    "read",
    "readlink",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "set_robust_list",
    "set_tid_address",
    "stat",
    "statx",
    "vfork",
    "wait4",
    "write",
    "writev",
];

/// What a minimal root shows anyway, or has of its own.
const OWN: &[&str] = &["/proc", "/dev", "/sys", "/tmp", "/run", "/dev/shm", "/var/tmp"];
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// As MiB, at least one of them.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Converts an older configuration to a policy, with notes on changes of meaning.
///
/// # Errors
/// There is no command, or a value is invalid.
pub(crate) fn policy(config: &NsJailJsonConfig) -> Result<(Policy, Vec<String>), String> {
    let mut p = Policy::base();
    let mut notes = Vec::new();
    if config.cmd.is_empty() {
        return Err("cmd: the configuration names no command; hint: \"cmd\": [\"python3\", \"main.py\"]".into());
    }
    p.command.argv = config.cmd.clone();
    p.command.stdin = Stdin::Caller;
    identity(config, &mut p, &mut notes);
    for entry in &config.env {
        match entry.split_once('=') {
            Some((name, value)) if !name.is_empty() => drop(p.command.variables.insert(name.into(), value.into())),
            _ => return Err(format!("env: {entry:?} is not NAME=VALUE")),
        }
    }
    mounts(config, &mut p, &mut notes)?;
    limits(config, &mut p);
    filter(config, &mut p, &mut notes);
    p.network.mode = NetworkMode::None;
    if !config.clone_newnet {
        notes.push("clone_newnet: false was how older profiles wrote `deny`: the network is private and empty".into());
    }
    for (name, is, should) in [
        ("keep_caps", config.keep_caps, false),
        ("no_new_privs", config.no_new_privs, true),
        ("read_only", config.read_only, true),
        ("clone_newuser", config.clone_newuser, true),
        ("clone_newpid", config.clone_newpid, true),
        ("clone_newns", config.clone_newns, true),
    ] {
        if is != should {
            notes.push(format!("{name}: {is} is not offered; it is {should}"));
        }
    }
    Ok((p, notes))
}

fn identity(config: &NsJailJsonConfig, p: &mut Policy, notes: &mut Vec<String>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let id: String = config.name.chars().map(|c| if plain(c) { c } else { '-' }).take(64).collect();
    let id = id.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    if id != config.name {
        notes.push(format!("name: {:?} becomes {id:?}", config.name));
    }
    p.id = (!id.is_empty()).then_some(id);
    let host: String =
        config.hostname.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect();
    let host = host.trim_start_matches('-').to_owned();
    if host != config.hostname {
        notes.push(format!("hostname: {:?} becomes {host:?}", config.hostname));
    }
    if !host.is_empty() {
        p.process.hostname = host;
    }
}

fn mounts(config: &NsJailJsonConfig, p: &mut Policy, notes: &mut Vec<String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for (i, mount) in config.mount.iter().enumerate() {
        let at = format!("mount[{i}]");
        let path = |text: &str, key: &str| {
            normalize(text)
                .filter(|path| path.starts_with('/'))
                .ok_or_else(|| format!("{at}.{key}: {text:?} is not an absolute path"))
        };
        let target = path(&mount.dst, "dst")?;
        if !seen.insert(target.clone()) {
            notes.push(format!("{at}: {target} was mounted already; the first one holds"));
            continue;
        }
        if OWN.contains(&target.as_str()) {
            notes.push(format!("{at}: {target} is the sandbox's own already"));
            continue;
        }
        match mount.fstype.as_str() {
            "tmpfs" => p.filesystem.mounts.push(Mount::Tmpfs { target, size_mb: 64, exec: false }),
            "proc" | "sysfs" | "devtmpfs" | "devpts" => {
                notes.push(format!("{at}: a {} is the sandbox's own already", mount.fstype));
            }
            "bind" | "none" | "" | "rbind" => {
                // As in the library that these came from, an empty source is the target's own path.
                let source = if mount.src.is_empty() { target.clone() } else { path(&mount.src, "src")? };
                bind(&at, source, target, mount.rw, p, notes);
            }
            other => return Err(format!("{at}.fstype: {other:?} cannot be mounted; bind and tmpfs can")),
        }
    }
    Ok(())
}

fn bind(at: &str, source: String, target: String, rw: bool, p: &mut Policy, notes: &mut Vec<String>) {
    if target == "/" {
        if rw {
            notes.push(format!("{at}: the root can be read and never written"));
        }
        p.filesystem.root = if source == "/" { Root::Host } else { Root::Directory(source) };
        return;
    }
    if source == target && SYSTEM.contains(&source.as_str()) {
        let what = if rw { "is shown already, and can be read only" } else { "is shown already" };
        notes.push(format!("{at}: {target} {what}"));
        return;
    }
    if std::fs::symlink_metadata(&source).is_err() {
        notes.push(format!("{at}: {source} does not exist here and is left out"));
        return;
    }
    let access = if rw { Access::ReadWrite } else { Access::ReadOnly };
    p.filesystem.mounts.push(Mount::Bind { source, target, access, exec: false, optional: false });
}

/// Values that are not set stay built in; all are enforced as far as the host allows, as before.
fn limits(config: &NsJailJsonConfig, p: &mut Policy) {
    let l = &mut p.limits;
    for (given, field) in [
        (mebibytes(config.rlimit_as), &mut l.memory_mb),
        (config.rlimit_cpu, &mut l.cpu_seconds),
        (mebibytes(config.rlimit_fsize), &mut l.file_size_mb),
        (config.rlimit_nofile, &mut l.open_files),
        (config.rlimit_nproc, &mut l.processes),
        (config.time_limit.saturating_mul(1000), &mut l.wall_ms),
    ] {
        if given > 0 {
            *field = given;
        }
    }
}

fn filter(config: &NsJailJsonConfig, p: &mut Policy, notes: &mut Vec<String>) {
    if config.seccomp_mode == 0 && config.seccomp_string.is_empty() {
        p.process.seccomp.level = SeccompLevel::Basic;
        notes.push("seccomp_mode: 0 becomes the level basic: what is dangerous anywhere stays refused".into());
        return;
    }
    let known = |name: &str| [Arch::X86_64, Arch::Aarch64].into_iter().any(|arch| syscall_number(name, arch).is_some());
    let (mut vital, mut unknown, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for name in &config.seccomp_string {
        if VITAL.contains(&name.as_str()) {
            vital.push(name.as_str());
        } else if !known(name) {
            unknown.push(name.as_str());
        } else if !refused.contains(name) {
            refused.push(name.clone());
        }
    }
    p.process.seccomp.level = SeccompLevel::Standard;
    if !vital.is_empty() {
        notes.push(format!(
            "seccomp_string: no program survives without {}; the level standard stands for it",
            vital.join(", ")
        ));
    }
    if !unknown.is_empty() {
        notes.push(format!("seccomp_string: {} are no system calls and are left out", unknown.join(", ")));
    }
    if !refused.is_empty() {
        p.process.seccomp.rules =
            vec![SyscallRule { syscalls: refused, action: SyscallAction::Errno("EPERM".into()), when: Vec::new() }];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(further: &str) -> NsJailJsonConfig {
        mounting("[]", further)
    }

    fn mounting(mounts: &str, further: &str) -> NsJailJsonConfig {
        let text = format!(
            r#"{{"name":"my skill","mode":"EXEC","hostname":"omni-skill-x","cmd":["python3","-c","pass"],
                "env":["PATH=/usr/bin","A=b=c"],"log_level":"info","mount":{mounts},"someday":1{further}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn it_becomes_a_valid_policy_and_says_what_was_changed() {
        let (policy, notes) = policy(&config("")).unwrap();
        assert_eq!(policy.command.argv, ["python3", "-c", "pass"]);
        assert_eq!(policy.command.variables["A"], "b=c");
        assert_eq!((policy.id.as_deref(), policy.process.hostname.as_str()), (Some("my-skill"), "omni-skill-x"));
        assert!(notes.iter().any(|n| n.starts_with("name:")), "{notes:?}");
        let text = serde_json::to_vec(&policy).unwrap();
        assert_eq!(Policy::decode(&text).unwrap(), policy, "it passes the validation that every policy passes");
    }

    #[test]
    fn the_inversion_is_not_inherited() {
        for value in ["true", "false"] {
            let (policy, notes) = policy(&config(&format!(",\"clone_newnet\":{value}"))).unwrap();
            assert_eq!(policy.network.mode, NetworkMode::None);
            assert_eq!(notes.iter().any(|n| n.starts_with("clone_newnet")), value == "false");
        }
    }

    #[test]
    fn the_root_is_at_least_minimal_and_mounts_come_once() {
        let config = mounting(
            r#"[{"src":"/usr","dst":"/usr","fstype":"bind","rw":true},
                {"src":"/etc/ssl","dst":"/data","fstype":"bind","rw":false},
                {"src":"/etc/ssl","dst":"/data","fstype":"bind","rw":false},
                {"src":"/no/such/dir","dst":"/x","fstype":"bind","rw":false},
                {"src":"none","dst":"/tmp","fstype":"tmpfs","rw":true},
                {"src":"none","dst":"/scratch","fstype":"tmpfs","rw":true}]"#,
            "",
        );
        let (policy, notes) = policy(&config).unwrap();
        assert_eq!(policy.filesystem.root, Root::Minimal);
        let targets: Vec<&str> = policy.filesystem.mounts.iter().map(Mount::target).collect();
        assert_eq!(targets, ["/data", "/scratch"]);
        for word in ["/usr is shown already, and can be read only", "mounted already", "/no/such/dir", "/tmp is"] {
            assert!(notes.iter().any(|n| n.contains(word)), "{word}: {notes:?}");
        }
    }

    #[test]
    fn units_are_its_own() {
        let (policy, _) = policy(&config(
            r#","rlimit_as":268435456,"rlimit_cpu":7,"rlimit_fsize":1,"rlimit_nofile":99,"time_limit":5"#,
        ))
        .unwrap();
        let l = &policy.limits;
        assert_eq!((l.memory_mb, l.cpu_seconds, l.file_size_mb, l.open_files, l.wall_ms), (256, 7, 1, 99, 5000));
        assert_eq!(l.processes, Policy::base().limits.processes, "what nobody set");
    }

    #[test]
    fn unsurvivable_refusals_become_a_seccomp_level() {
        let calls = r#","seccomp_mode":2,"seccomp_string":["clone","openat","ptrace","kexec_load","nonsense"]"#;
        let (policy, notes) = policy(&config(calls)).unwrap();
        assert_eq!(policy.process.seccomp.level, SeccompLevel::Standard);
        assert_eq!(policy.process.seccomp.rules[0].syscalls, ["ptrace", "kexec_load"]);
        assert!(notes.iter().any(|n| n.contains("clone, openat")) && notes.iter().any(|n| n.contains("nonsense")));
    }
}
