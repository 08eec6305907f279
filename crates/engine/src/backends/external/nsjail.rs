//! nsjail's own configuration from a policy: real field names, as JSON for 3.5 and later and as text for any version.
//!
//! Pure. When Cofferdam supervises, limits that hold for a whole run are its own (cgroup, clock, output) and nsjail is
//! configured to leave the process limits as they are; in an exported configuration nsjail holds them, as far as it can. Sources:
//! nsjail's config.proto and the man page of 3.4 to 3.6.

use cofferdam_confine::external::FIRST_FD;
use cofferdam_policy::{Field, NetworkMode, OWN_HOME, Policy};
use serde::Serialize;

use super::filter::{self, LeftToFilter};
use super::prototext;
use crate::backends::enforcement::EnforcementPurpose;
use crate::backends::layout::{Item, MountLayout};
use crate::failure::Failure;

/// Descriptor of its configuration.
pub(super) const CONFIG_FD: i32 = FIRST_FD;
/// Descriptor of its log.
const LOG_FD: i32 = FIRST_FD + 1;
/// Descriptor of init's program, which nsjail starts in the program's place: it waits until we have looked at what is mounted,
/// and becomes the program.
const INIT_FD: i32 = FIRST_FD + 2;
/// Descriptor from which init reads first.
const MOUNTED_FD: i32 = FIRST_FD + 3;
/// Descriptor on which init waits for [`GO`].
const GO_FD: i32 = FIRST_FD + 4;
/// The word.
pub(super) const GO: u8 = 1;

/// `NsJailConfig`, as far as it is used. What is `None` has nsjail's own default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[allow(missing_docs, reason = "the names are nsjail's, and their meaning stands in its config.proto")]
pub struct NsjailConfig {
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub description: Vec<String>,
    pub mode: &'static str,
    pub hostname: String,
    pub cwd: String,
    pub time_limit: u64,
    pub nice_level: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_fd: Option<i32>,
    pub log_level: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub envar: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit_as: Option<u64>,
    pub rlimit_as_type: &'static str,
    pub rlimit_core_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit_cpu: Option<u64>,
    pub rlimit_cpu_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit_fsize: Option<u64>,
    pub rlimit_fsize_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit_nofile: Option<u64>,
    pub rlimit_nofile_type: &'static str,
    pub rlimit_nproc: u64,
    pub rlimit_nproc_type: &'static str,
    pub rlimit_stack_type: &'static str,
    pub clone_newnet: bool,
    pub clone_newuser: bool,
    pub clone_newns: bool,
    pub clone_newpid: bool,
    pub clone_newipc: bool,
    pub clone_newuts: bool,
    pub clone_newcgroup: bool,
    pub uidmap: Vec<IdMap>,
    pub gidmap: Vec<IdMap>,
    pub mount_proc: bool,
    pub mount: Vec<MountPt>,
    pub seccomp_string: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_mem_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_mem_swap_max: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_cpu_ms_per_sec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detect_cgroupv2: Option<bool>,
    pub iface_no_lo: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_fd: Vec<i32>,
    pub exec_bin: Exe,
}

/// `IdMap`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[allow(missing_docs, reason = "see `NsjailConfig`")]
pub struct IdMap {
    pub inside_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub outside_id: String,
    pub count: u32,
}

/// `MountPt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[allow(missing_docs, reason = "see `NsjailConfig`")]
pub struct MountPt {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src: String,
    pub dst: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fstype: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub options: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_content: Option<Content>,
    #[serde(skip_serializing_if = "is_false")]
    pub is_bind: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub rw: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_dir: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<bool>,
    #[serde(skip_serializing_if = "is_false")]
    pub is_symlink: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub nosuid: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub nodev: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub noexec: bool,
}

/// The bytes of a file, which JSON writes as base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content(pub String);

impl Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&prototext::base64(self.0.as_bytes()))
    }
}

/// `Exe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
#[allow(missing_docs, reason = "see `NsjailConfig`")]
pub struct Exe {
    pub path: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arg: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arg0: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Ids of the caller's own for the sandbox's user.
pub(crate) const INSIDE: u32 = 1000;
/// Devices that every program may open.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

impl NsjailConfig {
    /// For `nsjail -C` of 3.5 and later.
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// For `nsjail -C` of any version.
    pub fn text(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        for (i, mount) in self.mount.iter().enumerate() {
            if let Some(Content(text)) = &mount.src_content {
                value["mount"][i]["src_content"] = text.as_str().into();
            }
        }
        let enums = |name: &str| matches!(name, "mode" | "log_level") || name.ends_with("_type");
        prototext::message(&value, &enums)
    }
}

/// The configuration that stands for a policy.
///
/// # Errors
/// The program is not there, or the system call rules cannot be compiled.
pub fn plan(
    policy: &Policy,
    layout: &MountLayout,
    program: Option<String>,
    purpose: EnforcementPurpose,
) -> Result<NsjailConfig, Failure> {
    let exported = purpose == EnforcementPurpose::Export;
    let l = &policy.limits;
    let home = policy.command.variables.get("HOME").map_or("/", String::as_str);
    let name = policy.command.argv.first().cloned().unwrap_or_default();
    let path = program.unwrap_or_else(|| name.clone());
    let id = || vec![IdMap { inside_id: INSIDE.to_string(), outside_id: String::new(), count: 1 }];
    let limit = |kind: &'static str| if exported { kind } else { "SOFT" };
    let value = |value: u64| exported.then_some(value);
    let group = |field| exported && policy.is_required(field);
    Ok(NsjailConfig {
        name: policy.id.clone().unwrap_or_else(|| "cofferdam".into()),
        description: policy.description.clone().into_iter().collect(),
        mode: "ONCE",
        hostname: policy.process.hostname.clone(),
        cwd: policy.command.cwd.clone().unwrap_or_else(|| home.to_owned()),
        // Whole seconds are all that nsjail knows; the supervisor's own clock comes first.
        time_limit: l.wall_ms.div_ceil(1000) + if exported { 0 } else { 5 },
        nice_level: 0,
        log_fd: (!exported).then_some(LOG_FD),
        log_level: if exported { "WARNING" } else { "INFO" },
        envar: policy.command.variables.iter().map(|(k, v)| format!("{k}={v}")).collect(),
        // Per process, where the tree is not to be held by a cgroup, which not every caller may make.
        rlimit_as: value(l.memory_mb).filter(|_| !group(Field::Memory)),
        rlimit_as_type: if group(Field::Memory) { "INF" } else { limit("VALUE") },
        // Its unit is MiB, and 0 would let a piped core handler run on the host: what the caller has stays.
        rlimit_core_type: "SOFT",
        rlimit_cpu: value(l.cpu_seconds),
        rlimit_cpu_type: limit("VALUE"),
        rlimit_fsize: value(l.file_size_mb),
        rlimit_fsize_type: limit("VALUE"),
        rlimit_nofile: value(l.open_files),
        rlimit_nofile_type: limit("VALUE"),
        // It is set inside the new user namespace, where the kernel counts the sandbox's processes alone.
        rlimit_nproc: l.processes,
        rlimit_nproc_type: "VALUE",
        rlimit_stack_type: "SOFT",
        clone_newnet: policy.network.mode != NetworkMode::Host,
        clone_newuser: true,
        clone_newns: true,
        clone_newpid: true,
        clone_newipc: true,
        clone_newuts: true,
        clone_newcgroup: true,
        uidmap: id(),
        gidmap: id(),
        mount_proc: false,
        mount: mounts(layout, exported),
        seccomp_string: filter_text(policy)?,
        cgroup_mem_max: group(Field::Memory).then_some(l.memory_mb << 20),
        cgroup_mem_swap_max: group(Field::Memory).then_some(0),
        cgroup_cpu_ms_per_sec: group(Field::CpuShare).then_some(l.cpu_millis),
        detect_cgroupv2: (group(Field::Memory) || group(Field::CpuShare)).then_some(true),
        iface_no_lo: policy.network.mode == NetworkMode::None,
        pass_fd: if exported { Vec::new() } else { vec![INIT_FD, MOUNTED_FD, GO_FD] },
        exec_bin: if exported {
            let arg = policy.command.argv.iter().skip(1).cloned().collect();
            Exe { arg0: (path != name).then_some(name), path, arg }
        } else {
            held(path, &policy.command.argv)
        },
    })
}

/// Init in the program's place, as `confine/init/nsjail_wait.rs` reads its arguments.
fn held(path: String, argv: &[String]) -> Exe {
    let numbers = [INIT_FD, MOUNTED_FD, GO_FD].map(|fd| fd.to_string());
    let arg = ["hold".to_owned()].into_iter().chain(numbers).chain([path]).chain(argv.iter().cloned()).collect();
    Exe { path: format!("/proc/self/fd/{INIT_FD}"), arg, arg0: None }
}

/// The filter as Kafel text, one entry per line: nsjail joins them. nsjail ends its program by a signal that comes when it
/// is killed itself; the program may not take that back.
fn filter_text(policy: &Policy) -> Result<Vec<String>, Failure> {
    let text = filter::text(policy, LeftToFilter { loopback: false, death_signal: true })?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn mounts(layout: &MountLayout, exported: bool) -> Vec<MountPt> {
    let mut list: Vec<MountPt> = Vec::new();
    let own = |mount: MountPt| MountPt { nosuid: true, nodev: true, ..mount };
    let over_root = layout.items.iter().any(|i| matches!(i, Item::Bind { target, .. } if target == "/"));
    if !over_root {
        list.push(own(MountPt {
            dst: "/".into(),
            fstype: "tmpfs".into(),
            options: "size=16777216".into(),
            ..MountPt::default()
        }));
    }
    for item in &layout.items {
        match item {
            Item::Bind { source, target, writable, exec, directory, optional } => list.push(own(MountPt {
                src: source.clone(),
                dst: target.clone(),
                is_bind: true,
                rw: *writable,
                noexec: !exec,
                is_dir: Some(*directory),
                // Where we start it, we have looked: what is there has to be mounted.
                mandatory: (*optional && exported).then_some(false),
                ..MountPt::default()
            })),
            Item::Tmpfs { target, bytes, mode, exec } => list.push(own(MountPt {
                dst: target.clone(),
                fstype: "tmpfs".into(),
                options: {
                    let bytes = if target == "/tmp" { bytes - home_bytes(layout) } else { *bytes };
                    format!("size={bytes},nr_inodes={},mode={mode:o}", inodes(bytes))
                },
                rw: target != "/sys",
                noexec: !exec,
                ..MountPt::default()
            })),
            // nsjail makes what a mount needs; a directory of its own is one more small file system.
            Item::Directory { target, mode } if target == OWN_HOME => list.push(own(MountPt {
                dst: target.clone(),
                fstype: "tmpfs".into(),
                options: format!(
                    "size={0},nr_inodes={1},mode={mode:o}",
                    home_bytes(layout),
                    inodes(home_bytes(layout))
                ),
                rw: true,
                noexec: true,
                ..MountPt::default()
            })),
            Item::Directory { .. } => {}
            Item::Link { says, target } => {
                list.push(MountPt { src: says.clone(), dst: target.clone(), is_symlink: true, ..MountPt::default() })
            }
            Item::Text { target, text } => list.push(own(MountPt {
                dst: target.clone(),
                src_content: Some(Content(text.clone())),
                ..MountPt::default()
            })),
            Item::Dev => devices(&mut list),
            Item::Proc => list.push(own(MountPt {
                dst: "/proc".into(),
                fstype: "proc".into(),
                noexec: true,
                ..MountPt::default()
            })),
            Item::Mask { target, directory: true } => list.push(own(MountPt {
                dst: target.clone(),
                fstype: "tmpfs".into(),
                options: "size=4096,mode=0".into(),
                ..MountPt::default()
            })),
            // A device on a mount without devices: neither read nor written.
            Item::Mask { target, directory: false } => list.push(own(MountPt {
                src: "/dev/null".into(),
                dst: target.clone(),
                is_bind: true,
                is_dir: Some(false),
                mandatory: target.starts_with("/proc/").then_some(false),
                ..MountPt::default()
            })),
        }
    }
    list
}

/// As many files as the jail's scratch has for its size.
fn inodes(bytes: u64) -> u64 {
    (bytes >> 12).max(512)
}

/// The home directory takes its size out of /tmp's.
fn home_bytes(layout: &MountLayout) -> u64 {
    let tmp = layout.items.iter().find_map(|i| match i {
        Item::Tmpfs { target, bytes, .. } if target == "/tmp" => Some(*bytes),
        _ => None,
    });
    tmp.unwrap_or(0) / 2
}

fn devices(list: &mut Vec<MountPt>) {
    list.push(MountPt {
        dst: "/dev".into(),
        fstype: "tmpfs".into(),
        options: "size=65536,mode=755".into(),
        nosuid: true,
        noexec: true,
        ..MountPt::default()
    });
    for device in DEVICES {
        list.push(MountPt {
            src: format!("/dev/{device}"),
            dst: format!("/dev/{device}"),
            is_bind: true,
            rw: true,
            is_dir: Some(false),
            nosuid: true,
            noexec: true,
            ..MountPt::default()
        });
    }
    for (name, says) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        list.push(MountPt { src: says.into(), dst: format!("/dev/{name}"), is_symlink: true, ..MountPt::default() });
    }
}
