//! From a container spec to what an engine is asked for. Pure, and held by golden tests; [`super::verify`] compares
//! what became of it.
//!
//! The root is read-only, every capability dropped, `no-new-privileges` set; the engine's default seccomp profile and
//! label stay on; pid, ipc, uts, mount, network and cgroup namespaces are the container's own; memory and swap are one
//! limit; no devices, no log, no health check, no restart. The image has no say: its entry point is replaced, its
//! volumes are covered.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountTmpfsOptions, MountType, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};

use super::engine_facts::{Flavour, What};
use crate::backends::containers::spec::{MASKED, inodes};
use crate::backends::containers::{ContainerSpec, Mounted, Net, POWERS, ReadyRootfs};
use crate::failure::{FailedStep, Failure};

/// The smallest tmpfs; 0 would be one without a limit.
const PAGE: u64 = 4096;
/// An unprivileged id that every map of more than one id has.
const NOBODY: u32 = 65534;

/// As whom the spec's user runs with this engine.
///
/// A rootful engine gives every id. A rootless one is in a user namespace of the caller's: 0 in there is the caller, whom
/// writable directories of the caller's belong to; without such ones an id that owns nothing of the host's is better.
pub(super) fn user(spec: &ContainerSpec, what: &What) -> (u32, u32) {
    let Some(mapped) = what.mapped else { return spec.user };
    let writes = spec.mounts.iter().any(|mount| matches!(mount, Mounted::Bind { writable: true, .. }));
    if writes || mapped <= 1 {
        return (0, 0);
    }
    let inside = |id: u32| id != 0 && id < mapped;
    if inside(spec.user.0) && inside(spec.user.1) {
        spec.user
    } else if inside(NOBODY) {
        (NOBODY, NOBODY)
    } else {
        (1, 1)
    }
}

/// Everything that the engine is asked for.
///
/// # Errors
/// The engine's interface cannot say a path of it.
pub(super) fn body(spec: &ContainerSpec, root: &ReadyRootfs, what: &What) -> Result<ContainerCreateBody, Failure> {
    let (uid, gid) = if spec.powers { (0, 0) } else { user(spec, what) };
    Ok(ContainerCreateBody {
        image: Some(root.reference.clone()),
        hostname: Some(spec.hostname.clone()),
        user: Some(format!("{uid}:{gid}")),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        open_stdin: Some(false),
        tty: Some(false),
        env: Some(Vec::new()),
        entrypoint: Some(spec.argv.clone()),
        cmd: Some(Vec::new()),
        working_dir: Some("/".into()),
        // Docker has a list of networks to join otherwise, and a process of its own to make the empty one.
        network_disabled: Some(spec.network == Net::Own && what.flavour == Flavour::Docker),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        labels: Some(spec.labels.iter().cloned().collect()),
        host_config: Some(host(spec, root, what)?),
        ..ContainerCreateBody::default()
    })
}

fn host(spec: &ContainerSpec, root: &ReadyRootfs, what: &What) -> Result<HostConfig, Failure> {
    let mut host = HostConfig {
        privileged: Some(false),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: spec.powers.then(|| POWERS.iter().map(|power| (*power).to_owned()).collect()),
        security_opt: Some(vec!["no-new-privileges".into()]),
        network_mode: Some(if spec.network == Net::Own { "none" } else { "host" }.into()),
        ipc_mode: Some("private".into()),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        memory: spec.bounds.memory_bytes.map(signed),
        memory_swap: spec.bounds.memory_bytes.map(signed),
        nano_cpus: spec.bounds.cpu_millis.map(|millis| signed(millis.saturating_mul(1_000_000))),
        pids_limit: spec.bounds.pids.map(signed),
        oom_kill_disable: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        // It would take away with the container how that ended.
        auto_remove: Some(false),
        init: Some(false),
        ulimits: Some(ulimits(spec, what)),
        ..HostConfig::default()
    };
    mask(&mut host, &spec.masked, what)?;
    let mut tmpfs = HashMap::new();
    let mut mounts = Vec::new();
    let mut binds = Vec::new();
    for mounted in &spec.mounts {
        match mounted {
            Mounted::Bind { source, target, writable, exec, .. } => match what.flavour {
                Flavour::Docker => mounts.push(bind(source, target, *writable, what)?),
                Flavour::Podman => binds.push(podman_bind(source, target, *writable, *exec)?),
            },
            Mounted::Tmpfs { target, exec: false, bytes, mode, writable }
                if what.flavour == Flavour::Docker && is_volume(root, target) =>
            {
                mounts.push(cover(target, *bytes, *mode, *writable));
            }
            Mounted::Tmpfs { target, bytes, mode, exec, writable } => {
                sayable(what, target, &[':'])?;
                let mut options = options(what, *bytes, *mode, *exec, *writable);
                if what.flavour == Flavour::Docker && *writable {
                    // Where the image has such a directory, runc gives the file system that one's mode.
                    let (uid, gid) = user(spec, what);
                    options += &format!(",uid={uid},gid={gid}");
                }
                tmpfs.insert(target.clone(), options);
            }
        }
    }
    for target in covered(spec, root, what) {
        match what.flavour {
            Flavour::Docker => mounts.push(cover(&target, PAGE, 0o755, false)),
            Flavour::Podman => {
                sayable(what, &target, &[':'])?;
                let before = tmpfs.insert(target, options(what, PAGE, 0o755, false, false));
                debug_assert!(before.is_none());
            }
        }
    }
    host.tmpfs = Some(tmpfs);
    host.mounts = Some(mounts);
    host.binds = Some(binds);
    Ok(host)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Of [`MASKED`] what Podman does not hide by itself, or did not for long.
const PODMAN_SHOWS: [&str; 2] = ["/proc/asound", "/proc/interrupts"];

/// Hides paths besides the engine's own. Docker takes a whole list instead of its own, Podman takes what is added.
fn mask(host: &mut HostConfig, paths: &[String], what: &What) -> Result<(), Failure> {
    match what.flavour {
        Flavour::Docker if paths.is_empty() => {}
        Flavour::Docker => {
            let mut masked: Vec<String> = MASKED.iter().map(|path| (*path).to_owned()).collect();
            masked.extend(paths.iter().filter(|path| !MASKED.contains(&path.as_str())).cloned());
            host.masked_paths = Some(masked);
        }
        Flavour::Podman => {
            for path in paths {
                sayable(what, path, &[':'])?;
            }
            let also = PODMAN_SHOWS.iter().filter(|path| !paths.iter().any(|hidden| hidden == *path));
            let all: Vec<&str> = paths.iter().map(String::as_str).chain(also.copied()).collect();
            host.security_opt.get_or_insert_default().push(format!("mask={}", all.join(":")));
        }
    }
    Ok(())
}

/// No core files (with 1 the kernel starts no handler for them either, which it does with 0), and the files that the policy allows. Its other rlimits init sets.
fn ulimits(spec: &ContainerSpec, what: &What) -> Vec<ResourcesUlimits> {
    let limit = |name: &str, hard: u64| {
        let hard = Some(signed(hard));
        ResourcesUlimits { name: Some(name.into()), soft: hard, hard }
    };
    let mut limits = vec![limit("core", 1), limit("nofile", spec.open_files)];
    if what.flavour == Flavour::Podman {
        // Else it asks for a million, which not every engine may have.
        limits.push(limit("nproc", what.processes));
    }
    limits
}

/// Where Podman puts file systems in memory over a read-only root.
const PODMAN_OWN: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/sys/fs/cgroup"];

/// Directories that would be disks, or file systems in memory that nobody asked for, and are nothing instead.
fn covered(spec: &ContainerSpec, root: &ReadyRootfs, what: &What) -> Vec<String> {
    // Podman puts such file systems over a read-only root. That with the directories of cgroup version 1 has no size, and
    // who is 0 inside could write it.
    let own: &[&str] = if what.flavour == Flavour::Podman { &PODMAN_OWN } else { &[] };
    let wanted = root.volumes.iter().map(|volume| clean(volume)).chain(own.iter().map(|path| (*path).to_owned()));
    let mut covered: Vec<String> = Vec::new();
    for path in wanted {
        let mounted = spec.mounts.iter().any(|mount| mount.target() == path);
        // What is hidden by a mount further up is covered as it is.
        if path != "/" && !mounted && !covered.contains(&path) {
            covered.push(path);
        }
    }
    covered
}

/// What an engine mounts by itself wherever that is missing.
const OWN_FILES: [&str; 5] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv", "/run/secrets"];

/// What is mounted besides a spec's mounts: the volumes that an image declares, and what the engine has of its own, which no mount
/// of a spec covers where it is not in there.
///
/// # Errors
/// A volume is not named by where it is.
pub(super) fn besides(root: &ReadyRootfs, what: &What) -> Result<(Vec<String>, Vec<String>), Failure> {
    if let Some(volume) = root.volumes.iter().find(|volume| volume.split('/').any(|part| part == "..")) {
        let volume = cofferdam_policy::text::escape(volume.as_bytes());
        return Err(Failure::new(
            FailedStep::Image,
            format!("the image declares the volume {volume}, with `..` in it"),
        )
        .hint("use another image, or --backend oci, where an image declares nothing"));
    }
    let own: &[&str] = if what.flavour == Flavour::Podman { &PODMAN_OWN } else { &[] };
    let own = own.iter().chain(&OWN_FILES).map(|path| (*path).to_owned());
    Ok((root.volumes.iter().map(|volume| clean(volume)).collect(), own.collect()))
}

/// A path without `//`, `/.` and a slash at its end.
fn clean(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("/{}", parts.join("/"))
}

fn is_volume(root: &ReadyRootfs, target: &str) -> bool {
    root.volumes.iter().any(|volume| clean(volume) == target)
}

fn options(what: &What, bytes: u64, mode: u32, exec: bool, writable: bool) -> String {
    let access = if writable { "rw" } else { "ro" };
    let exec = if exec { "exec" } else { "noexec" };
    // Podman copies what the image has there into it otherwise.
    let copy = if what.flavour == Flavour::Podman { ",notmpcopyup" } else { "" };
    // Podman knows no such option.
    let files = match what.flavour {
        Flavour::Docker if writable => format!(",nr_inodes={}", inodes(bytes)),
        _ => String::new(),
    };
    format!("{access},{exec},nosuid,nodev,size={},mode={mode:o}{files}{copy}", bytes.max(PAGE))
}

/// A tmpfs that stands in for a volume; nosuid, nodev and noexec are Docker's defaults for it.
fn cover(target: &str, bytes: u64, mode: u32, writable: bool) -> Mount {
    Mount {
        typ: Some(MountType::TMPFS),
        target: Some(target.to_owned()),
        read_only: Some(!writable),
        tmpfs_options: Some(MountTmpfsOptions {
            size_bytes: Some(signed(bytes.max(PAGE))),
            mode: Some(i64::from(mode)),
            options: None,
        }),
        ..Mount::default()
    }
}

/// In the place of all volumes of an image that is only read.
pub(super) fn covers(volumes: &[String]) -> Vec<Mount> {
    let targets: BTreeSet<String> = volumes.iter().map(|volume| clean(volume)).collect();
    targets.iter().map(|target| cover(target, PAGE, 0o755, false)).collect()
}

/// A bind of Docker's. Mounts below the source: read-only reaches them from 1.44 of its interface on, where asked for;
/// before that they are left out. `noexec` it cannot say, and the answers say that.
fn bind(source: &Path, target: &str, writable: bool, what: &What) -> Result<Mount, Failure> {
    let recursive = what.api >= (1, 44);
    Ok(Mount {
        typ: Some(MountType::BIND),
        source: Some(text(source)?.to_owned()),
        target: Some(target.to_owned()),
        read_only: Some(!writable),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            non_recursive: Some(!writable && !recursive),
            read_only_force_recursive: (!writable && recursive).then_some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    })
}

fn podman_bind(source: &Path, target: &str, writable: bool, exec: bool) -> Result<String, Failure> {
    let source = text(source)?;
    for path in [source, target] {
        unsayable(path, &[':'])?;
    }
    let access = if writable { "rw,rbind" } else { "ro,bind" };
    let exec = if exec { "exec" } else { "noexec" };
    Ok(format!("{source}:{target}:{access},{exec},nosuid,nodev,rprivate"))
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| refused(&path.to_string_lossy(), "is not UTF-8, and the engine's interface is"))
}

fn sayable(what: &What, path: &str, signs: &[char]) -> Result<(), Failure> {
    if what.flavour == Flavour::Podman { unsayable(path, signs) } else { Ok(()) }
}

fn unsayable(path: &str, signs: &[char]) -> Result<(), Failure> {
    match path.chars().find(|c| signs.contains(c)) {
        None => Ok(()),
        Some(sign) => {
            Err(refused(path, &format!("holds a {sign:?}, which separates fields in the engine's interface")))
        }
    }
}

fn refused(path: &str, why: &str) -> Failure {
    Failure::new(
        FailedStep::Container,
        format!("cannot mount {}: it {why}", cofferdam_policy::text::escape(path.as_bytes())),
    )
    .hint("rename it, or use --backend jail")
}

#[cfg(test)]
mod tests;
