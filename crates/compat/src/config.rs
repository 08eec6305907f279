//! Reads a configuration in one of three forms: Cofferdam's policy, nsjail's own JSON, or the older `nsjail.json`.
//!
//! All of them are final data; nothing is evaluated. nsjail's form cannot express every field of a policy, so a
//! profile's `policy.json` is read instead if it is beside the file that was exported from it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use cofferdam_policy::paths::normalize;
use cofferdam_policy::{Access, MAX_POLICY_BYTES, Mount, NetworkMode, Policy, Root, Stdin};
use serde_json::Value;

use super::legacy::{self, NsJailJsonConfig};
use super::skill_config::SandboxConfig;
use cofferdam_engine::settings::ETC;

/// Which form a configuration had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// Cofferdam's policy.
    Policy,
    /// nsjail's own configuration, as JSON.
    Nsjail,
    /// The older `nsjail.json`.
    Legacy,
}

/// A configuration as a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// What it says.
    pub policy: Policy,
    /// In which form it said it.
    pub form: Form,
    /// Changes of meaning, one line each.
    pub notes: Vec<String>,
}

/// The bytes of a configuration, hardly more than a policy may have.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| {
        let hint = match e.kind() {
            std::io::ErrorKind::NotFound => "; hint: export the profile first",
            _ => "",
        };
        format!("cannot read {}: {e}{hint}", path.display())
    };
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_POLICY_BYTES).unwrap_or(u64::MAX);
    File::open(path).map_err(failed)?.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Whether a configuration has nsjail's own form: keys that only it has, in either of the spellings that it reads.
fn of_nsjail(value: &Value) -> bool {
    ["exec_bin", "execBin", "envar", "exec_file", "execFile"].iter().any(|key| value.get(key).is_some())
}

/// The same with every key as nsjail's config.proto spells it: as JSON it reads `cloneNewnet` as well.
fn in_snake_case(value: Value) -> Value {
    let spelled = |key: String| match key.contains(|c: char| c.is_ascii_uppercase()) {
        false => key,
        true => key
            .chars()
            .flat_map(|c| [c.is_ascii_uppercase().then_some('_'), Some(c.to_ascii_lowercase())])
            .flatten()
            .collect(),
    };
    match value {
        Value::Object(members) => {
            members.into_iter().map(|(key, value)| (spelled(key), in_snake_case(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(in_snake_case).collect(),
        other => other,
    }
}

/// Which form a text has that is no policy; `None` for everything else. Reads no values.
pub fn foreign(bytes: &[u8]) -> Option<Form> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let has = |key: &str| value.get(key).is_some();
    if has("version") {
        return None;
    }
    if of_nsjail(&value) {
        return Some(Form::Nsjail);
    }
    let skill = serde_json::from_value::<SandboxConfig>(value.clone()).is_ok();
    (skill || serde_json::from_value::<NsJailJsonConfig>(value).is_ok()).then_some(Form::Legacy)
}

/// Reads the configuration at a path.
///
/// # Errors
/// It cannot be read, has none of the forms, or says what cannot be: the text names the file and the place.
pub fn load(path: &Path) -> Result<Loaded, String> {
    decode(&read(path)?, path)
}

/// The same of bytes that were read already; `path` is for messages, and says where a policy may lie beside them.
///
/// # Errors
/// As [`load`].
pub fn decode(bytes: &[u8], path: &Path) -> Result<Loaded, String> {
    decode_of(bytes, || read(&path.with_file_name("policy.json")).ok(), path)
}

/// The same where the policy beside them, if there is one, was read as well: nothing is read here.
///
/// # Errors
/// As [`load`].
pub fn decode_both(bytes: &[u8], policy: Option<&[u8]>, path: &Path) -> Result<Loaded, String> {
    decode_of(bytes, || policy.map(<[u8]>::to_vec), path)
}

fn decode_of(bytes: &[u8], policy: impl FnOnce() -> Option<Vec<u8>>, path: &Path) -> Result<Loaded, String> {
    let place = |why: String| format!("{}: {why}", path.display());
    if bytes.len() > MAX_POLICY_BYTES {
        return Err(format!("{} is larger than {MAX_POLICY_BYTES} bytes", path.display()));
    }
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|e| place(format!("not JSON: {e}; hint: correct it there, or export the profile again")))?;
    let has = |key: &str| value.get(key).is_some();
    let loaded = if has("version") {
        let policy = Policy::decode(bytes).map_err(|e| place(e.to_string()))?;
        Loaded { policy, form: Form::Policy, notes: Vec::new() }
    } else if of_nsjail(&value) {
        if has("cmd") {
            // In the one `clone_newnet: false` is the host's network, in the other no network at all.
            return Err(place("it is both nsjail's own form (\"exec_bin\") and the older one (\"cmd\"); hint: remove what it does not mean".into()));
        }
        let value = in_snake_case(value);
        let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
        match beside(path, name, policy) {
            Some(policy) => Loaded {
                policy,
                form: Form::Policy,
                notes: vec!["the policy beside it is read, from which it was exported".into()],
            },
            None => {
                let (policy, notes) = nsjail(&value).map_err(place)?;
                Loaded { policy, form: Form::Nsjail, notes }
            }
        }
    } else {
        // From the text: a key that stands there twice is an error, and not the last one's value.
        let config = match has("skill_id") && has("mounts") {
            true => serde_json::from_slice::<SandboxConfig>(bytes).map(NsJailJsonConfig::from),
            false => serde_json::from_slice(bytes),
        };
        let config = config.map_err(|e| {
            let e = legacy::wrong_field(&value).unwrap_or_else(|| e.to_string());
            place(format!("neither a policy (it has no \"version\"), nor nsjail's own form (no \"exec_bin\"), nor the older one: {e}"))
        })?;
        let (policy, notes) = legacy::policy(&config).map_err(place)?;
        Loaded { policy, form: Form::Legacy, notes }
    };
    // Whatever form it had: what runs has passed the one validation. A command may still come from the caller.
    let mut complete = loaded.policy.clone();
    if complete.command.argv.is_empty() {
        complete.command.argv.push("true".into());
    }
    complete.validate().map_err(|e| place(e.to_string()))?;
    Ok(loaded)
}

/// The policy of the profile that an `nsjail.json` was exported from, when it lies beside it under the same name.
fn beside(path: &Path, name: &str, policy: impl FnOnce() -> Option<Vec<u8>>) -> Option<Policy> {
    if path.file_name()? != "nsjail.json" {
        return None;
    }
    let policy = Policy::decode(&policy()?).ok()?;
    (policy.id.as_deref().unwrap_or("cofferdam") == name).then_some(policy)
}

/// Places that every root has of its own.
const OWN: &[&str] = &["/", "/proc", "/dev", "/sys", "/tmp", "/tmp/home", "/run", "/dev/shm", "/var/tmp"];
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The fields of nsjail's own configuration that are read, refused, or enforced by every sandbox anyway.
const TAKEN: &[&str] = &[
    "name",
    "description",
    "mode",
    "hostname",
    "cwd",
    "time_limit",
    "nice_level",
    "log_fd",
    "log_file",
    "log_level",
    "envar",
    "rlimit_as",
    "rlimit_as_type",
    "rlimit_core",
    "rlimit_core_type",
    "rlimit_cpu",
    "rlimit_cpu_type",
    "rlimit_fsize",
    "rlimit_fsize_type",
    "rlimit_nofile",
    "rlimit_nofile_type",
    "rlimit_nproc",
    "rlimit_nproc_type",
    "rlimit_stack",
    "rlimit_stack_type",
    "clone_newnet",
    "clone_newuser",
    "clone_newns",
    "clone_newpid",
    "clone_newipc",
    "clone_newuts",
    "clone_newcgroup",
    "uidmap",
    "gidmap",
    "mount_proc",
    "mount",
    "seccomp_string",
    "seccomp_policy_file",
    "seccomp_log",
    "cgroup_mem_max",
    "cgroup_mem_swap_max",
    "cgroup_pids_max",
    "cgroup_cpu_ms_per_sec",
    "use_cgroupv2",
    "detect_cgroupv2",
    "iface_no_lo",
    "exec_bin",
    "keep_caps",
    "keep_env",
    "disable_no_new_privs",
];

/// A policy from nsjail's own configuration. Limits stay as far as the host allows, as with nsjail itself.
fn nsjail(value: &Value) -> Result<(Policy, Vec<String>), String> {
    has_types(value)?;
    let mut p = Policy::base();
    let mut notes = Vec::new();
    let string = |v: &Value, key: &str| v.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    // ProtoJSON writes 64-bit numbers as strings as well.
    let number = |key: &str| {
        let v = value.get(key)?;
        v.as_u64().or_else(|| v.as_str()?.parse().ok()).filter(|n| *n > 0)
    };
    let is = |key: &str, otherwise: bool| value.get(key).and_then(Value::as_bool).unwrap_or(otherwise);
    let list = |v: &Value, key: &str| v.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let exec = value.get("exec_bin").cloned().unwrap_or_default();
    let program = string(&exec, "path");
    if program.is_empty() {
        return Err("exec_bin.path: the configuration names no program".into());
    }
    let first = exec.get("arg0").and_then(Value::as_str).filter(|name| !name.contains('/') && program.ends_with(name));
    p.command.argv = vec![first.unwrap_or(&program).to_owned()];
    p.command.argv.extend(list(&exec, "arg").iter().filter_map(Value::as_str).map(str::to_owned));
    p.command.stdin = Stdin::Caller;
    p.command.cwd = Some(string(value, "cwd")).filter(|cwd| !cwd.is_empty());
    p.command.variables.clear();
    for entry in list(value, "envar").iter().filter_map(Value::as_str) {
        match entry.split_once('=') {
            Some((name, value)) => drop(p.command.variables.insert(name.into(), value.into())),
            None => notes.push(format!("envar: {entry:?} would take the caller's value, and is left out")),
        }
    }
    let hostname = string(value, "hostname");
    p.process.hostname = if hostname.is_empty() { "NSJAIL".into() } else { hostname };
    p.network.mode = match (is("clone_newnet", true), is("iface_no_lo", false)) {
        (true, true) => NetworkMode::None,
        (true, false) => NetworkMode::Loopback,
        (false, _) => NetworkMode::Host,
    };
    for mount in list(value, "mount") {
        if let Some(note) = nsjail_mount(&mount, &mut p)? {
            notes.push(note);
        }
    }
    let l = &mut p.limits;
    let typed = |key: &str| value.get(key).and_then(Value::as_str).is_none_or(|kind| kind == "VALUE");
    // Of a limit per process and one of the whole group, the tighter holds for the tree.
    let tighter = |of_group: Option<u64>, of_process: Option<u64>| of_group.into_iter().chain(of_process).min();
    let memory = number("cgroup_mem_max").map(|bytes| bytes.div_ceil(1 << 20));
    for (given, field) in [
        (tighter(memory, number("rlimit_as").filter(|_| typed("rlimit_as_type"))), &mut l.memory_mb),
        (number("rlimit_cpu").filter(|_| typed("rlimit_cpu_type")), &mut l.cpu_seconds),
        (number("rlimit_fsize").filter(|_| typed("rlimit_fsize_type")), &mut l.file_size_mb),
        (number("rlimit_nofile").filter(|_| typed("rlimit_nofile_type")), &mut l.open_files),
        (
            // Its own default is what the caller may have, and not the number.
            tighter(
                number("cgroup_pids_max"),
                number("rlimit_nproc").filter(|_| string(value, "rlimit_nproc_type") == "VALUE"),
            ),
            &mut l.processes,
        ),
        (number("cgroup_cpu_ms_per_sec"), &mut l.cpu_millis),
        (number("time_limit").map(|seconds| seconds.saturating_mul(1000)), &mut l.wall_ms),
    ] {
        *field = given.unwrap_or(*field);
    }
    let left: Vec<&str> = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .filter(|key| !TAKEN.contains(key))
        .collect();
    if !left.is_empty() {
        notes.push(format!("{}: has no meaning in a policy, and is left out", left.join(", ")));
    }
    if !list(value, "seccomp_string").is_empty() || value.get("seccomp_policy_file").is_some() {
        notes.push("seccomp_string: Kafel is not translated back; the level standard stands for it".into());
    }
    for (key, should) in [("keep_caps", false), ("disable_no_new_privs", false), ("keep_env", false)] {
        if is(key, should) != should {
            notes.push(format!("{key}: it is {should}"));
        }
    }
    Ok((p, notes))
}

/// Refuses a value of a wrong type: what is not read as a limit would be no limit.
fn has_types(value: &Value) -> Result<(), String> {
    let whole = |v: &Value| {
        v.as_i64().is_some() || v.as_u64().is_some() || v.as_str().is_some_and(|v| v.parse::<i128>().is_ok())
    };
    let texts = |v: &Value| v.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    let object = |v: &Value| v.is_object();
    let objects = |v: &Value| v.as_array().is_some_and(|items| items.iter().all(Value::is_object));
    for (key, v) in value.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
        let (fits, accepted): (bool, &str) = match key.as_str() {
            "name" | "hostname" | "cwd" | "seccomp_policy_file" => (v.is_string(), "a text"),
            "envar" => (texts(v), "an array of texts NAME=VALUE"),
            "exec_bin" => (object(v), "an object with path and arg"),
            "mount" => (objects(v), "an array of objects"),
            "rlimit_as"
            | "rlimit_cpu"
            | "rlimit_fsize"
            | "rlimit_nofile"
            | "rlimit_nproc"
            | "rlimit_stack"
            | "rlimit_core"
            | "cgroup_mem_max"
            | "cgroup_pids_max"
            | "cgroup_cpu_ms_per_sec"
            | "time_limit" => (whole(v), "a whole number"),
            _ if key.starts_with("clone_new") => (v.is_boolean(), "true or false"),
            "keep_caps" | "keep_env" | "disable_no_new_privs" | "mount_proc" | "iface_no_lo" => {
                (v.is_boolean(), "true or false")
            }
            _ => continue,
        };
        if !fits {
            return Err(format!("{key}: {v} is not accepted; {accepted}"));
        }
    }
    let exec = value.get("exec_bin");
    match exec.and_then(|exec| exec.get("arg")) {
        Some(v) if !texts(v) => return Err(format!("exec_bin.arg: {v} is not accepted; an array of texts")),
        _ => {}
    }
    match exec.and_then(|exec| exec.get("path")) {
        Some(v) if !v.is_string() => Err(format!("exec_bin.path: {v} is not accepted; a text")),
        _ => Ok(()),
    }
}

/// One mount of nsjail's; a note when it is left out for a reason that matters.
fn nsjail_mount(mount: &Value, p: &mut Policy) -> Result<Option<String>, String> {
    let text = |key: &str| mount.get(key).and_then(Value::as_str).unwrap_or_default();
    let is = |key: &str| mount.get(key).and_then(Value::as_bool).unwrap_or(false);
    let absolute = |path: &str| normalize(path).filter(|path| path.starts_with('/'));
    let target =
        absolute(text("dst")).ok_or_else(|| format!("mount.dst: {:?} is not an absolute path", text("dst")))?;
    if is("is_symlink") || mount.get("src_content").is_some() || text("fstype") == "proc" {
        return Ok(None);
    }
    if is("is_bind") {
        let source =
            absolute(text("src")).ok_or_else(|| format!("mount.src: {:?} is not an absolute path", text("src")))?;
        if target == "/" {
            p.filesystem.root = if source == "/" { Root::Host } else { Root::Directory(source) };
            return Ok(None);
        }
        // A minimal root shows these files of /etc itself, also where the host has links in their places.
        let settings = target == source && ETC.iter().any(|name| target.strip_prefix("/etc/") == Some(*name));
        let own = settings || SYSTEM.iter().chain(OWN).any(|path| target == *path);
        if own || target.starts_with("/dev/") || target.starts_with("/proc/") || target.starts_with("/sys/") {
            return Ok(is("rw")
                .then(|| format!("mount: {target} is the sandbox's own, or can be read only"))
                .filter(|_| !target.starts_with("/dev/")));
        }
        let access = if is("rw") { Access::ReadWrite } else { Access::ReadOnly };
        let (exec, optional) = (is("rw") && !is("noexec"), mount.get("mandatory") == Some(&Value::Bool(false)));
        p.filesystem.mounts.push(Mount::Bind { source, target, access, exec, optional });
        return Ok(None);
    }
    if text("fstype") != "tmpfs" {
        return Ok(Some(format!("mount: {target}: {:?} cannot be mounted; bind and tmpfs can", text("fstype"))));
    }
    if !OWN.contains(&target.as_str()) && is("rw") {
        let bytes = text("options").split(',').find_map(|o| o.strip_prefix("size=")?.parse::<u64>().ok());
        let size_mb = bytes.map_or(64, |bytes| bytes.div_ceil(1 << 20).max(1));
        p.filesystem.mounts.push(Mount::Tmpfs { target, size_mb, exec: !is("noexec") });
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nsjail.json");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn each_form_is_known_by_what_it_has() {
        let (_dir, path) = file(r#"{"version":1,"command":{"argv":["true"]}}"#);
        assert_eq!(load(&path).unwrap().form, Form::Policy);
        let (_dir, path) = file(r#"{"exec_bin":{"path":"/usr/bin/true"},"clone_newnet":true,"time_limit":"9"}"#);
        let loaded = load(&path).unwrap();
        assert_eq!((loaded.form, loaded.policy.limits.wall_ms), (Form::Nsjail, 9000));
        assert_eq!(loaded.policy.network.mode, NetworkMode::Loopback, "nsjail brings it up unless told not to");
        let legacy =
            r#"{"name":"x","mode":"EXEC","hostname":"h","cmd":["true"],"env":[],"log_level":"info","mount":[]}"#;
        let (_dir, path) = file(legacy);
        assert_eq!(load(&path).unwrap().form, Form::Legacy);
    }

    #[test]
    fn what_nsjail_may_leave_out_is_optional() {
        let mount = |name: &str, more: &str| format!(r#"{{"src":"/srv/{name}","dst":"/{name}","is_bind":true{more}}}"#);
        let mounts =
            [mount("a", ""), mount("b", r#","mandatory":false"#), mount("c", r#","mandatory":true"#)].join(",");
        let (_dir, path) = file(&format!(r#"{{"exec_bin":{{"path":"/usr/bin/true"}},"mount":[{mounts}]}}"#));
        let optional = |mount: &Mount| matches!(mount, Mount::Bind { optional: true, .. });
        let loaded = load(&path).unwrap();
        assert_eq!(loaded.policy.filesystem.mounts.iter().map(optional).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn nsjail_limits_are_no_wider_in_either_spelling() {
        let snake = r#"{"exec_bin":{"path":"/usr/bin/true"},"rlimit_as":64,"rlimit_nproc":5,"rlimit_nproc_type":"VALUE",
            "iface_no_lo":true,"mount":[{"src":"/srv/x","dst":"/x","is_bind":true}],"cgroup_mem_max":999999999}"#;
        let camel = r#"{"execBin":{"path":"/usr/bin/true"},"rlimitAs":"64","rlimitNproc":5,"rlimitNprocType":"VALUE",
            "ifaceNoLo":true,"mount":[{"src":"/srv/x","dst":"/x","isBind":true}],"cgroupMemMax":"999999999"}"#;
        for text in [snake, camel] {
            let (_dir, path) = file(text);
            let Loaded { policy, form, notes } = load(&path).unwrap();
            let limits = &policy.limits;
            assert_eq!((form, limits.memory_mb, limits.processes), (Form::Nsjail, 64, 5), "{text}");
            assert_eq!((policy.network.mode, policy.filesystem.mounts.len()), (NetworkMode::None, 1));
            assert_eq!(notes, Vec::<String>::new());
        }
        let (_dir, path) =
            file(r#"{"exec_bin":{"path":"/usr/bin/true"},"rlimit_as":64,"rlimit_as_type":"INF","max_cpus":1}"#);
        let loaded = load(&path).unwrap();
        assert_eq!(
            loaded.policy.limits.memory_mb,
            Policy::base().limits.memory_mb,
            "the number counts for nothing there"
        );
        assert!(loaded.notes.iter().any(|note| note.starts_with("max_cpus: ")), "{:?}", loaded.notes);
    }

    #[test]
    fn what_could_mean_two_things_is_refused() {
        let older = r#""name":"x","mode":"EXEC","hostname":"h","cmd":["true"],"env":[],"log_level":"info","mount":[],"clone_newnet":false"#;
        let (_dir, path) = file(&format!("{{{older}}}"));
        assert_eq!(load(&path).unwrap().policy.network.mode, NetworkMode::None);
        for (more, word) in [
            (r#","exec_bin":{"path":"/usr/bin/true"}"#, "both nsjail's own form"),
            (r#","envar":[]"#, "both nsjail's own form"),
            (r#","cmd":["false"]"#, "duplicate field `cmd`"),
        ] {
            let (_dir, path) = file(&format!("{{{older}{more}}}"));
            let error = load(&path).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn unknown_forms_are_reported_with_the_file() {
        for (text, word) in [("{\"x\":1}", "neither"), ("{\"version\":1", "not JSON"), ("{\"version\":2}", "version")] {
            let (_dir, path) = file(text);
            let error = load(&path).unwrap_err();
            assert!(error.contains(word) && error.contains("nsjail.json"), "{error}");
        }
        let error = load(Path::new("/no/such/nsjail.json")).unwrap_err();
        assert!(error.contains("export the profile first"), "{error}");
    }

    #[test]
    fn policy_json_beside_an_exported_profile_is_preferred() {
        let (dir, path) = file(r#"{"name":"mine","exec_bin":{"path":"/usr/bin/true"}}"#);
        std::fs::write(dir.path().join("policy.json"), r#"{"version":1,"id":"mine","command":{"argv":["false"]}}"#)
            .unwrap();
        assert_eq!(load(&path).unwrap().policy.command.argv, ["false"]);
        std::fs::write(dir.path().join("policy.json"), r#"{"version":1,"id":"other","command":{"argv":["false"]}}"#)
            .unwrap();
        assert_eq!(load(&path).unwrap().policy.command.argv, ["/usr/bin/true"]);
    }
}
