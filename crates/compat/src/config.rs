//! Reads a configuration in one of three forms: Cofferdam's policy, nsjail's own JSON, or the older `nsjail.json`.
//!
//! All of them are final data; nothing is evaluated. nsjail's form cannot express every field of a policy, so a
//! profile's `policy.json` is read instead if it is beside the file that was exported from it.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use cofferdam_policy::paths::{is_within, normalize};
use cofferdam_policy::{Access, MAX_POLICY_BYTES, Mount, NetworkMode, OWN_HOME, Policy, Root, Stdin};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
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
///
/// # Errors
/// A key stands there in both spellings.
fn in_snake_case(value: Value) -> Result<Value, String> {
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
            let mut all = serde_json::Map::new();
            for (key, value) in members {
                let key = spelled(key);
                if all.contains_key(&key) {
                    return Err(format!("{key}: the key stands there twice; hint: keep one of them"));
                }
                all.insert(key, in_snake_case(value)?);
            }
            Ok(Value::Object(all))
        }
        Value::Array(items) => items.into_iter().map(in_snake_case).collect(),
        other => Ok(other),
    }
}

/// Reads any value, and refuses a key that stands twice in one object: a reader may take either of them.
struct EachKeyOnce;

impl<'de> Deserialize<'de> for EachKeyOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EachKeyOnce, D::Error> {
        deserializer.deserialize_any(EachKeyOnce)
    }
}

impl<'de> Visitor<'de> for EachKeyOnce {
    type Value = EachKeyOnce;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<EachKeyOnce, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<EachKeyOnce, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<EachKeyOnce, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<EachKeyOnce, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<EachKeyOnce, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<EachKeyOnce, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<EachKeyOnce, A::Error> {
        while items.next_element::<EachKeyOnce>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<EachKeyOnce, A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = members.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("{key:?}: the key stands there twice")));
            }
            members.next_value::<EachKeyOnce>()?;
            seen.insert(key);
        }
        Ok(self)
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
        let once =
            serde_json::from_slice::<EachKeyOnce>(bytes).map_err(|e| place(format!("{e}; hint: keep one of them")));
        once?;
        let value = in_snake_case(value).map_err(place)?;
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
        let (policy, mut notes) = legacy::policy(&config).map_err(place)?;
        notes.extend(legacy::left_out(&value).map_err(place)?);
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
const OWN: &[&str] = &["/", "/proc", "/dev", "/sys", "/tmp", OWN_HOME, "/run", "/dev/shm", "/var/tmp"];
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
    mounts(&list(value, "mount"), &mut p, &mut notes)?;
    let l = &mut p.limits;
    let mut is_value = |key: &str, otherwise: &str| -> Result<bool, String> {
        let kind = limit_type(value, key, otherwise)?;
        match value.get(key).filter(|v| !v.is_null()) {
            Some(v) if kind == "VALUE" && (v == 0 || v == "0") => {
                Err(format!("{key}: 0 cannot be enforced; hint: a number from 1 on"))
            }
            Some(v) if kind != "VALUE" => {
                notes.push(format!("{key}: {v} counts for nothing where its type is {kind}, which is left out"));
                Ok(false)
            }
            _ => Ok(kind == "VALUE"),
        }
    };
    let (of_as, of_cpu) = (is_value("rlimit_as", "VALUE")?, is_value("rlimit_cpu", "VALUE")?);
    let (of_fsize, of_nofile) = (is_value("rlimit_fsize", "VALUE")?, is_value("rlimit_nofile", "VALUE")?);
    // Its own default is what the caller may have, and not the number.
    let of_nproc = is_value("rlimit_nproc", "SOFT")?;
    // Of a limit per process and one of the whole group, the tighter holds for the tree.
    let tighter = |of_group: Option<u64>, of_process: Option<u64>| of_group.into_iter().chain(of_process).min();
    let memory = number("cgroup_mem_max").map(|bytes| bytes.div_ceil(1 << 20));
    for (given, field) in [
        (tighter(memory, number("rlimit_as").filter(|_| of_as)), &mut l.memory_mb),
        (number("rlimit_cpu").filter(|_| of_cpu), &mut l.cpu_seconds),
        (number("rlimit_fsize").filter(|_| of_fsize), &mut l.file_size_mb),
        (number("rlimit_nofile").filter(|_| of_nofile), &mut l.open_files),
        (tighter(number("cgroup_pids_max"), number("rlimit_nproc").filter(|_| of_nproc)), &mut l.processes),
        (number("cgroup_cpu_ms_per_sec"), &mut l.cpu_millis),
        (number("time_limit").map(|seconds| seconds.saturating_mul(1000)), &mut l.wall_ms),
    ] {
        *field = given.unwrap_or(*field);
    }
    if limit_type(value, "rlimit_stack", "SOFT")? == "VALUE" && value.get("rlimit_stack").is_some() {
        notes.push("rlimit_stack: a policy has no limit of the stack; the limit of memory bounds it".into());
    }
    limit_type(value, "rlimit_core", "VALUE")?;
    if !matches!(value.get("mode"), None | Some(Value::Null)) && !["ONCE", "EXECVE"].contains(&&*string(value, "mode"))
    {
        notes.push(format!("mode: {} is not offered; it is ONCE", value["mode"]));
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
    for (key, should) in [
        ("keep_caps", false),
        ("disable_no_new_privs", false),
        ("keep_env", false),
        ("clone_newuser", true),
        ("clone_newns", true),
        ("clone_newpid", true),
        ("clone_newipc", true),
        ("clone_newuts", true),
    ] {
        if is(key, should) != should {
            notes.push(format!("{key}: it is {should}"));
        }
    }
    Ok((p, notes))
}

/// The type of a limit, `KEY_type`: a name, or its number as protobuf writes it.
///
/// # Errors
/// nsjail has no such type.
fn limit_type<'v>(value: &'v Value, key: &str, otherwise: &'v str) -> Result<&'v str, String> {
    const TYPES: [&str; 4] = ["VALUE", "SOFT", "HARD", "INF"];
    let Some(given) = value.get(format!("{key}_type")).filter(|v| !v.is_null()) else { return Ok(otherwise) };
    let named = TYPES.into_iter().find(|name| given == name);
    let numbered = || TYPES.get(usize::try_from(given.as_u64()?).ok()?).copied();
    named.or_else(numbered).ok_or_else(|| format!("{key}_type: {given} is not accepted; {}", TYPES.join(", ")))
}

/// Refuses a value of a wrong type: what is not read as a limit would be no limit.
fn has_types(value: &Value) -> Result<(), String> {
    // A negative number would be read as none.
    let whole = |v: &Value| v.as_u64().is_some() || v.as_str().is_some_and(|v| v.parse::<u64>().is_ok());
    let texts = |v: &Value| v.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    let object = |v: &Value| v.is_object();
    let objects = |v: &Value| v.as_array().is_some_and(|items| items.iter().all(Value::is_object));
    for (key, v) in value.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
        let (fits, accepted): (bool, &str) = match key.as_str() {
            "name" | "hostname" | "cwd" | "seccomp_policy_file" => (v.is_string(), "a text"),
            "envar" => (texts(v), "an array of texts NAME=VALUE"),
            "seccomp_string" => (texts(v), "an array of texts"),
            "mode" => (v.is_string(), "a text"),
            "uidmap" | "gidmap" => (objects(v), "an array of objects"),
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
            | "time_limit" => (whole(v), "a whole number, 0 or more"),
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
    let mut keys = exec.and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key.as_str());
    if let Some(key) = keys.find(|key| !["path", "arg", "arg0", "exec_fd"].contains(key)) {
        return Err(format!("exec_bin.{key}: nsjail has no such field; path, arg, arg0"));
    }
    match exec.and_then(|exec| exec.get("path")) {
        Some(v) if !v.is_string() => Err(format!("exec_bin.path: {v} is not accepted; a text")),
        _ => Ok(()),
    }
}

/// The fields of a mount, which nsjail refuses to have others of.
const OF_MOUNT: &[(&str, bool)] = &[
    ("src", false),
    ("prefix_src_env", false),
    ("src_content", false),
    ("dst", false),
    ("prefix_dst_env", false),
    ("fstype", false),
    ("options", false),
    ("is_bind", true),
    ("rw", true),
    ("is_dir", true),
    ("mandatory", true),
    ("is_symlink", true),
    ("nosuid", true),
    ("nodev", true),
    ("noexec", true),
];

/// All mounts, in their order.
fn mounts(list: &[Value], p: &mut Policy, notes: &mut Vec<String>) -> Result<(), String> {
    let mut left = Vec::new();
    let mut tmp = 0u64;
    for (index, mount) in list.iter().enumerate() {
        let at = |why: String| format!("mount[{index}].{why}");
        for (key, value) in mount.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let Some((_, is_flag)) = OF_MOUNT.iter().find(|(known, _)| known == key) else {
                return Err(at(format!("{key}: nsjail has no such field; hint: leave it out")));
            };
            if if *is_flag { !value.is_boolean() } else { !value.is_string() } {
                let accepted = if *is_flag { "true or false" } else { "a text" };
                return Err(at(format!("{key}: {value} is not accepted; {accepted}")));
            }
        }
        for key in ["prefix_src_env", "prefix_dst_env"] {
            if mount.get(key).and_then(Value::as_str).is_some_and(|name| !name.is_empty()) {
                return Err(at(format!("{key}: a path cannot begin with a variable; hint: write the whole path")));
            }
        }
        match nsjail_mount(mount, p).map_err(at)? {
            Done::Mounted => {}
            Done::Noted(note) => notes.push(note),
            Done::LeftOut(target, what) => left.push((index, target, what)),
            Done::Tmp(bytes) => tmp = tmp.saturating_add(bytes),
        }
    }
    if tmp > 0 {
        p.limits.tmpfs_mb = tmp.div_ceil(1 << 20);
    }
    for (index, target, what) in left {
        // It could be there to hide what this root shows.
        if p.filesystem.root != Root::Minimal {
            return Err(format!(
                "mount[{index}].{what}: it cannot be mounted at {target}; hint: bind a file that has it"
            ));
        }
        notes.push(format!("mount: {target}: {what} cannot be mounted, and is left out"));
    }
    Ok(())
}

/// What became of a mount.
enum Done {
    /// It is mounted, or is the sandbox's own.
    Mounted,
    /// The same, with a note.
    Noted(String),
    /// Nothing is at this target: a link or a text.
    LeftOut(String, &'static str),
    /// A part of /tmp has this many bytes.
    Tmp(u64),
}

/// One mount of nsjail's.
fn nsjail_mount(mount: &Value, p: &mut Policy) -> Result<Done, String> {
    let text = |key: &str| mount.get(key).and_then(Value::as_str).unwrap_or_default();
    let is = |key: &str| mount.get(key).and_then(Value::as_bool).unwrap_or(false);
    let absolute = |path: &str| normalize(path).filter(|path| path.starts_with('/'));
    let target = absolute(text("dst")).ok_or_else(|| format!("dst: {:?} is not an absolute path", text("dst")))?;
    let below = |places: &[&str]| places.iter().any(|place| is_within(&target, place));
    let is_own = OWN.contains(&target.as_str()) || below(&["/dev", "/proc", "/sys"]);
    if is("is_symlink") || mount.get("src_content").is_some_and(|content| !content.is_null()) {
        let what = if is("is_symlink") { "is_symlink" } else { "src_content" };
        // A minimal root has its own settings, and its own links to the system's directories.
        let has =
            is_own || below(SYSTEM) || below(&["/etc"]) && OF_ETC.iter().any(|name| target == format!("/etc/{name}"));
        return Ok(if has { Done::Mounted } else { Done::LeftOut(target, what) });
    }
    if text("fstype") == "proc" {
        let note = || format!("mount: {target}: proc is at /proc only");
        return Ok(if target == "/proc" { Done::Mounted } else { Done::Noted(note()) });
    }
    if is("is_bind") {
        if !text("options").is_empty() {
            return Err(format!("options: {:?} is of no effect on a bind; hint: rw and noexec", text("options")));
        }
        let source = absolute(text("src")).ok_or_else(|| format!("src: {:?} is not an absolute path", text("src")))?;
        if target == "/" {
            p.filesystem.root = if source == "/" { Root::Host } else { Root::Directory(source) };
            return Ok(Done::Mounted);
        }
        // A minimal root shows these files of /etc itself, also where the host has links in their places.
        let settings = target == source && ETC.iter().any(|name| target.strip_prefix("/etc/") == Some(*name));
        let own = settings || SYSTEM.iter().chain(OWN).any(|path| target == *path);
        if own || target.starts_with("/dev/") || target.starts_with("/proc/") || target.starts_with("/sys/") {
            let note = is("rw")
                .then(|| format!("mount: {target} is the sandbox's own, or can be read only"))
                .filter(|_| !target.starts_with("/dev/"));
            return Ok(note.map_or(Done::Mounted, Done::Noted));
        }
        let access = if is("rw") { Access::ReadWrite } else { Access::ReadOnly };
        let (exec, optional) = (is("rw") && !is("noexec"), mount.get("mandatory") == Some(&Value::Bool(false)));
        p.filesystem.mounts.push(Mount::Bind { source, target, access, exec, optional });
        return Ok(Done::Mounted);
    }
    if text("fstype") != "tmpfs" {
        return Ok(Done::Noted(format!("mount: {target}: {:?} cannot be mounted; bind and tmpfs can", text("fstype"))));
    }
    let bytes = tmpfs_bytes(text("options"))?;
    if is_own {
        let is_tmp = ["/tmp", OWN_HOME].contains(&target.as_str()) && is("rw");
        return Ok(bytes.filter(|_| is_tmp).map_or(Done::Mounted, Done::Tmp));
    }
    if is("rw") {
        let size_mb = bytes.map_or(64, |bytes| bytes.div_ceil(1 << 20).max(1));
        p.filesystem.mounts.push(Mount::Tmpfs { target, size_mb, exec: !is("noexec") });
    } else {
        // An empty directory that nobody can write to: it hides what is there.
        p.filesystem.deny.push(target);
    }
    Ok(Done::Mounted)
}

/// What a minimal root has of /etc, as text or as a link.
const OF_ETC: &[&str] = &[
    "passwd",
    "group",
    "hosts",
    "hostname",
    "nsswitch.conf",
    "resolv.conf",
    "localtime",
    "mtab",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl",
    "pki",
];

/// The size that a tmpfs's options set, in bytes.
///
/// # Errors
/// An option that would be lost, or a size that is none here.
fn tmpfs_bytes(options: &str) -> Result<Option<u64>, String> {
    let (mut bytes, mut inodes) = (None, None);
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let wrong = |accepted: &str| format!("options: {option:?} is not accepted; {accepted}");
        match option.split_once('=') {
            Some(("size", text)) => {
                let sized = size(text).ok_or_else(|| wrong("size=4096, size=64k, size=1m or size=1g"))?;
                bytes = Some(bytes.map_or(sized, |earlier: u64| earlier.min(sized)));
            }
            Some(("nr_inodes", text)) => {
                inodes = Some(size(text).ok_or_else(|| wrong("nr_inodes=1024"))?);
            }
            // The one user of the sandbox may use it.
            Some(("mode" | "uid" | "gid", _)) => {}
            _ => return Err(wrong("size, nr_inodes, mode, uid and gid; noexec and rw are fields of the mount")),
        }
    }
    // A policy's tmpfs has as many files as its size has pages.
    match inodes {
        Some(inodes) if inodes > 0 && inodes < (bytes.unwrap_or(64 << 20) >> 12).max(512) => {
            Err(format!("options: nr_inodes={inodes} cannot be enforced; hint: leave it out, and set a smaller size"))
        }
        _ => Ok(bytes),
    }
}

/// A number with the kernel's units, which are powers of 1024.
fn size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[digits..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
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

    const NSJAIL: &str = r#"{"exec_bin":{"path":"/usr/bin/true"}"#;

    fn nsjails(more: &str) -> Result<Loaded, String> {
        let (_dir, path) = file(&format!("{NSJAIL}{more}}}"));
        load(&path)
    }

    #[test]
    fn what_nsjail_would_enforce_is_obeyed_or_refused() {
        let mount = |fields: &str| format!(r#","mount":[{{"dst":"/d",{fields}}}]"#);
        let bind = |more: &str| mount(&format!(r#""src":"/srv/x","is_bind":true{more}"#));
        for (more, field) in [
            (bind(r#","prefix_src_env":"HOME""#), "mount[0].prefix_src_env: "),
            (bind(r#","prefixDstEnv":"HOME""#), "mount[0].prefix_dst_env: "),
            (bind(r#","foo":1"#), "mount[0].foo: "),
            (bind(r#","rw":"false""#), "mount[0].rw: "),
            (bind(r#","options":"ro""#), "mount[0].options: "),
            (bind(r#","rw":false,"rw":true"#), "\"rw\": the key stands there twice"),
            (bind(r#","isDir":true,"is_dir":false"#), "is_dir: the key stands there twice"),
            (r#","clone_newnet":true,"clone_newnet":false"#.into(), "\"clone_newnet\": the key stands there twice"),
            (mount(r#""fstype":"tmpfs","rw":true,"options":"size=50%""#), "mount[0].options: "),
            (mount(r#""fstype":"tmpfs","rw":true,"options":"size=1m,nr_inodes=3""#), "mount[0].options: "),
            (mount(r#""fstype":"tmpfs","rw":true,"options":"huge=always""#), "mount[0].options: "),
            (
                r#","mount":[{"src":"/","dst":"/","is_bind":true},{"dst":"/d","src_content":"aGk="}]"#.into(),
                "mount[1].src_content: ",
            ),
            (r#","rlimit_nproc":3,"rlimit_nproc_type":"value""#.into(), "rlimit_nproc_type: "),
            (r#","rlimit_as":64,"rlimit_as_type":4"#.into(), "rlimit_as_type: "),
            (r#","rlimit_fsize":0"#.into(), "rlimit_fsize: "),
            (r#","cgroup_pids_max":-3"#.into(), "cgroup_pids_max: "),
            (r#","cgroup_mem_max":"-1""#.into(), "cgroup_mem_max: "),
            (r#","time_limit":-3"#.into(), "time_limit: "),
            (r#","seccomp_string":"KILL { mkdir } DEFAULT ALLOW""#.into(), "seccomp_string: "),
        ] {
            let refused = nsjails(&more).unwrap_err();
            assert!(refused.contains(field), "{more}: {refused}");
        }
        let sized = |size: &str| mount(&format!(r#""fstype":"tmpfs","rw":true,"options":"size={size},mode=755""#));
        for (size, size_mb) in [("1048576", 1), ("2M", 2), ("3m", 3), ("4k", 1), ("1G", 1024)] {
            let loaded = nsjails(&sized(size)).unwrap();
            assert!(
                matches!(loaded.policy.filesystem.mounts[..], [Mount::Tmpfs { size_mb: got, .. }] if got == size_mb),
                "{size}: {:?}",
                loaded.policy.filesystem.mounts
            );
            assert_eq!(loaded.notes, Vec::<String>::new(), "{size}");
        }
        let hidden = nsjails(&mount(r#""fstype":"tmpfs","options":"size=4096,mode=0""#)).unwrap().policy;
        assert_eq!(hidden.filesystem.deny, ["/d"]);
        let tmp = nsjails(r#","mount":[{"dst":"/tmp","fstype":"tmpfs","rw":true,"options":"size=2m"}]"#).unwrap();
        assert_eq!(tmp.policy.limits.tmpfs_mb, 2);
        let processes = nsjails(r#","rlimit_nproc":3,"rlimit_nproc_type":0"#).unwrap();
        assert_eq!((processes.policy.limits.processes, processes.notes.len()), (3, 0));
    }

    #[test]
    fn what_is_left_out_of_nsjails_form_is_noted() {
        for (more, word) in [
            (r#","rlimit_nproc":3"#, "rlimit_nproc: 3 counts for nothing where its type is SOFT"),
            (r#","rlimit_as":64,"rlimit_as_type":3"#, "rlimit_as: 64 counts for nothing where its type is INF"),
            (r#","rlimit_stack":8,"rlimit_stack_type":"VALUE""#, "rlimit_stack: "),
            (
                r#","mount":[{"dst":"/etc/app.conf","src_content":"aGk="}]"#,
                "/etc/app.conf: src_content cannot be mounted",
            ),
            (r#","mount":[{"dst":"/d/l","src":"x","is_symlink":true}]"#, "/d/l: is_symlink cannot be mounted"),
            (r#","mode":"LISTEN""#, "mode: \"LISTEN\" is not offered"),
            (r#","clone_newpid":false"#, "clone_newpid: it is true"),
        ] {
            let loaded = nsjails(more).unwrap();
            assert!(loaded.notes.iter().any(|note| note.contains(word)), "{more}: {:?}", loaded.notes);
        }
        let own = nsjails(
            r#","mode":"ONCE","clone_newnet":true,"mount":[{"dst":"/etc/passwd","src_content":"aGk="},
                {"src":"usr/bin","dst":"/bin","is_symlink":true},{"dst":"/proc","fstype":"proc"}]"#,
        );
        assert_eq!(own.unwrap().notes, Vec::<String>::new());
    }

    #[test]
    fn what_an_older_configuration_has_more_is_noted_or_refused() {
        let older = |more: &str| {
            let text =
                r#"{"name":"x","mode":"EXEC","hostname":"h","cmd":["true"],"env":[],"log_level":"info","mount":[]"#;
            let (_dir, path) = file(&format!("{text}{more}}}"));
            load(&path)
        };
        assert_eq!(older(r#","seccomp_mode":2"#).unwrap().notes, Vec::<String>::new());
        let notes = older(r#","seccomp_mode":2,"someday":1,"#.trim_end_matches(',')).unwrap().notes;
        assert_eq!(notes, ["someday: has no meaning in a policy, and is left out"]);
        for more in [r#","cgroup_pids_max":3"#, r#","rlimit_memlock":1"#, r#","max_cpus":1"#] {
            let refused = older(more).unwrap_err();
            assert!(refused.contains("the older form has no such limit"), "{refused}");
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
