//! `config.json`: a container spec and a root, in the words of the OCI runtime specification. Pure.
//!
//! Everything is said that a runtime would otherwise fill in, so that nothing of a default of the library's or the runtime's
//! gets in: the golden test shows all of it. There are no hooks, no variables and no `seccomp`: the policy's filter is
//! installed by init, which a runtime's filter could only stop from making the sandbox, and which reports what it refuses.

use std::path::{Path, PathBuf};

use cofferdam_confine::wire::TERMINALS;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxDeviceCgroupBuilder, LinuxIdMapping,
    LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, LinuxResourcesBuilder, Mount,
    MountBuilder, PosixRlimitBuilder, PosixRlimitType, Process, ProcessBuilder, RootBuilder, Spec, SpecBuilder,
    UserBuilder,
};
use serde_json::Value;

use super::runtimes::Runtime;
use crate::backends::containers::spec::MASKED;
use crate::backends::containers::spec::{ContainerSpec, Mounted, Net, inodes, own as own_directory, uncovered};

/// What a specification needs to know besides the spec.
#[derive(Debug, Clone, Copy)]
pub(super) struct With<'a> {
    /// Which runtime it is for.
    pub runtime: Runtime,
    /// The root on this host.
    pub root: &'a Path,
    /// The caller's user and group where it is not root: the one id that its user namespace may map.
    pub caller: Option<(u32, u32)>,
    /// The run's own directory, bound to its place where the spec's mounts do not say it.
    pub own: Option<&'a Path>,
    /// Of the spec's masks those that are there, and whether each is a directory; for runtimes that mask by mounts alone.
    pub masked: &'a [(String, bool)],
    /// An empty file that nobody can read, for those.
    pub nothing: &'a Path,
    /// Whether the root's /tmp is empty or missing.
    pub empty_tmp: bool,
}

/// What Docker makes read-only.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What gVisor puts into every `/dev` and no program here has a use for, and whether it is a directory: there is `tun` in
/// the second.
const GVISORS: [(&str, bool); 2] = [("/dev/fuse", false), ("/dev/net", true)];

/// As whom the program of a spec runs: rootless, user namespaces map the caller alone, as the 0 that runtimes need there.
pub(crate) fn runs_as(container: &ContainerSpec, rootless: bool) -> (u32, u32) {
    if rootless { (0, 0) } else { container.user }
}

/// The specification.
///
/// # Errors
/// The library refuses a value.
pub(crate) fn runtime_spec(container: &ContainerSpec, with: &With<'_>) -> Result<Spec, OciSpecError> {
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces(container, with)?)
        .rootfs_propagation("private")
        .masked_paths(
            MASKED.iter().map(|path| (*path).to_owned()).chain(container.masked.iter().cloned()).collect::<Vec<_>>(),
        )
        .readonly_paths(READ_ONLY.map(str::to_owned).to_vec())
        .devices(Vec::new())
        .build()?;
    linux.set_devices(None);
    linux.set_resources(None);
    match with.caller {
        // The default devices are allowed by the runtime. Where it makes cgroups, nothing else can be opened even if a root
        // that somebody gave holds it.
        None if with.runtime != Runtime::Runsc => {
            let none = LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build()?;
            linux.set_resources(Some(LinuxResourcesBuilder::default().devices(vec![none]).build()?));
        }
        Some((uid, gid)) if with.runtime != Runtime::Runsc => {
            linux.set_uid_mappings(Some(vec![only(uid)?]));
            linux.set_gid_mappings(Some(vec![only(gid)?]));
        }
        _ => {} // runsc makes its own
    }
    let root = RootBuilder::default().path(with.root).readonly(true).build()?;
    let mut runtime_spec = SpecBuilder::default()
        .version("1.0.2")
        .root(root)
        .hostname(container.hostname.clone())
        .mounts(mounts(container, with)?)
        .process(process(container, with)?)
        .linux(linux)
        .build()?;
    runtime_spec.set_annotations(None);
    Ok(runtime_spec)
}

/// The same as JSON, sets in the order of their names.
///
/// # Errors
/// As [`runtime_spec`].
pub(super) fn json(container: &ContainerSpec, with: &With<'_>) -> Result<Value, OciSpecError> {
    let mut value = serde_json::to_value(runtime_spec(container, with)?)?;
    if let Some(sets) = value.pointer_mut("/process/capabilities").and_then(Value::as_object_mut) {
        for set in sets.values_mut().filter_map(Value::as_array_mut) {
            set.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        }
    }
    Ok(value)
}

fn only(id: u32) -> Result<LinuxIdMapping, OciSpecError> {
    LinuxIdMappingBuilder::default().container_id(0u32).host_id(id).size(1u32).build()
}

fn namespaces(container: &ContainerSpec, with: &With<'_>) -> Result<Vec<LinuxNamespace>, OciSpecError> {
    use LinuxNamespaceType::{Cgroup, Ipc, Mount, Network, Pid, User, Uts};
    let mut types = vec![Pid, Ipc, Uts, Mount, Cgroup];
    if container.network == Net::Own {
        types.push(Network);
    }
    if with.caller.is_some() && with.runtime != Runtime::Runsc {
        types.push(User);
    }
    types.into_iter().map(|typ| LinuxNamespaceBuilder::default().typ(typ).build()).collect()
}

fn process(container: &ContainerSpec, with: &With<'_>) -> Result<Process, OciSpecError> {
    let (uid, gid) = if container.powers { (0, 0) } else { runs_as(container, with.caller.is_some()) };
    let powers: Capabilities = if container.powers {
        [
            Capability::NetAdmin,
            Capability::NetBindService,
            Capability::NetRaw,
            Capability::Setuid,
            Capability::Setgid,
            Capability::Setpcap,
        ]
        .into()
    } else {
        Capabilities::new()
    };
    // Nothing execs with them: init is there already, and its child has dropped them.
    let apart: Capabilities = match container.apart {
        Some(_) => [Capability::Kill, Capability::Setgid, Capability::Setuid, Capability::SysAdmin].into(),
        None => Capabilities::new(),
    };
    let held: Capabilities = powers.union(&apart).copied().collect();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(powers)
        .effective(held.clone())
        .permitted(held)
        .inheritable(Capabilities::new())
        .ambient(Capabilities::new())
        .build()?;
    let limit = |typ, most: u64| PosixRlimitBuilder::default().typ(typ).soft(most).hard(most).build();
    let mut limits = vec![
        // A limit of 1 stops handlers that cores are piped to as well, which 0 does not (core(5)); the program's is the same.
        limit(PosixRlimitType::RlimitCore, 1)?,
        limit(PosixRlimitType::RlimitNofile, container.open_files)?,
    ];
    if with.runtime == Runtime::Runsc {
        // Its kernel begins with none, which nobody inside can raise to what every program gets.
        limits.push(limit(PosixRlimitType::RlimitSigpending, 1024)?);
    }
    // Of the score by which the kernel chooses whom to end when memory runs out nothing is said: the runtime is started with
    // none below 0, and who is not root may not lower one.
    let mut process = ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(uid).gid(gid).build()?)
        .args(container.argv.clone())
        .env(Vec::new())
        .cwd("/")
        .capabilities(capabilities)
        .rlimits(limits)
        .no_new_privileges(true)
        .build()?;
    process.set_oom_score_adj(None);
    Ok(process)
}

fn mount(target: &str, typ: &str, source: impl Into<PathBuf>, options: Vec<String>) -> Result<Mount, OciSpecError> {
    MountBuilder::default().destination(target).typ(typ).source(source).options(options).build()
}

fn words(options: &[&str]) -> Vec<String> {
    options.iter().map(|option| (*option).to_owned()).collect()
}

fn mounts(container: &ContainerSpec, with: &With<'_>) -> Result<Vec<Mount>, OciSpecError> {
    let mut devices = words(&["nosuid", "noexec", "strictatime", "mode=755", "size=65536"]);
    if with.runtime != Runtime::Runsc {
        // Nothing is written there but by the runtime, before it becomes so. gVisor would refuse to write to devices as well; there
        // only who is 0 can make files in it, in memory that counts as the program's.
        devices.push("ro".into());
    }
    let mut all = vec![
        mount("/proc", "proc", "proc", words(&["nosuid", "noexec", "nodev"]))?,
        mount("/dev", "tmpfs", "tmpfs", devices)?,
    ];
    let mut terminals = words(&["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]);
    if with.runtime != Runtime::Runsc {
        terminals.push(format!("max={}", TERMINALS.to_string_lossy())); // gVisor's are its own kernel's
    }
    if with.caller.is_none() {
        terminals.push("gid=5".into()); // the group of terminals, which a user namespace of one id does not have
    }
    all.push(mount("/dev/pts", "devpts", "devpts", terminals)?);
    let at = |target: &str| container.mounts.iter().any(|m| m.target() == target);
    let inside = own_directory(&container.id);
    if let Some(own) = with.own.filter(|_| !at(&inside)) {
        all.push(bind(with.runtime, own, &inside, false, true, true)?);
    }
    if with.runtime == Runtime::Runsc {
        // It would mount what tells of its kernel there, and a file system that can be written over an empty /tmp.
        for target in
            [Some("/sys"), with.empty_tmp.then_some("/tmp")].into_iter().flatten().filter(|target| !at(target))
        {
            all.push(mount(
                target,
                "tmpfs",
                "tmpfs",
                words(&["nosuid", "nodev", "noexec", "mode=755", "size=4096", "ro"]),
            )?);
        }
    }
    for mounted in &container.mounts {
        all.push(match mounted {
            Mounted::Bind { source, target, writable, exec, directory } => {
                bind(with.runtime, source, target, *writable, *exec, *directory)?
            }
            Mounted::Tmpfs { target, bytes, mode, exec, writable } => {
                let mut options = words(&["nosuid", "nodev"]);
                options.extend([format!("mode={mode:o}"), format!("size={bytes}")]);
                options.push(if *writable { "rw" } else { "ro" }.into());
                options.extend((!exec).then(|| "noexec".to_owned()));
                if *writable && with.runtime != Runtime::Runsc {
                    options.push(format!("nr_inodes={}", inodes(*bytes)));
                }
                mount(target, "tmpfs", "tmpfs", options)?
            }
        });
    }
    if with.runtime == Runtime::Runsc {
        // It knows no masks. What is below its own /proc and /sys tells nothing of this host.
        let masked = with.masked.iter().map(|(target, directory)| (target.as_str(), *directory));
        for (target, directory) in masked.filter(|(target, _)| !target.starts_with("/proc/")).chain(GVISORS) {
            all.push(if directory {
                mount(target, "tmpfs", "tmpfs", words(&["nosuid", "nodev", "noexec", "mode=0", "size=4096", "ro"]))?
            } else {
                bind(with.runtime, with.nothing, target, false, false, false)?
            });
        }
        // It sorts them by the length of their targets: of two at one place either may come to lie on top.
        let at = |mount: &Mount| mount.destination().to_string_lossy().into_owned();
        let targets = all.into_iter().map(|mount| (at(&mount), mount)).collect();
        all = uncovered(targets, |(target, _): &(String, Mount)| target).into_iter().map(|(_, mount)| mount).collect();
    }
    Ok(all)
}

/// Nosuid and nodev, and each attribute for all mounts below it as well. They are added to those that the source has: where one is
/// set to be the only ones, a user namespace is refused to take away what the host's mount has.
fn bind(
    runtime: Runtime,
    source: &Path,
    target: &str,
    writable: bool,
    exec: bool,
    directory: bool,
) -> Result<Mount, OciSpecError> {
    let adds = match (runtime, directory) {
        (Runtime::Runsc, _) => "",
        (Runtime::Runc, _) | (_, true) => "r",
        // crun has these for directories alone, and keeps by itself what a file's mount has.
        (_, false) => "",
    };
    let mut options = words(if directory { &["rbind", "rprivate"] } else { &["bind", "private"] });
    let mut add = |option: &str| options.push(format!("{adds}{option}"));
    add("nosuid");
    add("nodev");
    if !exec {
        add("noexec");
    }
    if writable {
        options.push("rw".into());
    } else {
        add("ro");
    }
    mount(target, "bind", source, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::containers::spec::{Rootfs, RuntimeLimits};

    fn container() -> ContainerSpec {
        ContainerSpec {
            id: "cofferdam-0123456789abcdef".into(),
            root: Rootfs::Made(Vec::new()),
            mounts: vec![
                Mounted::Tmpfs { target: "/sys".into(), bytes: 65536, mode: 0o755, exec: false, writable: false },
                Mounted::Tmpfs { target: "/tmp".into(), bytes: 1 << 20, mode: 0o1777, exec: false, writable: true },
                Mounted::Bind {
                    source: "/srv/project".into(),
                    target: "/work".into(),
                    writable: true,
                    exec: true,
                    directory: true,
                },
                Mounted::Bind {
                    source: "/etc/hosts".into(),
                    target: "/etc/hosts".into(),
                    writable: false,
                    exec: false,
                    directory: false,
                },
            ],
            masked: vec!["/work/.env".into()],
            user: (70_000, 70_001),
            powers: false,
            apart: None,
            hostname: "box".into(),
            network: Net::Own,
            bounds: RuntimeLimits::default(),
            open_files: 4096,
            labels: Vec::new(),
            argv: vec!["/dev/cofferdam-0123456789abcdef/init".into()],
        }
    }

    fn with(runtime: Runtime, caller: Option<(u32, u32)>) -> With<'static> {
        With {
            runtime,
            root: Path::new("/state/roots/r/rootfs"),
            caller,
            own: Some(Path::new("/run/own")),
            masked: &[],
            nothing: Path::new("/state/nothing"),
            empty_tmp: true,
        }
    }

    #[test]
    fn the_whole_of_it_is_this() {
        let expected: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
        let found = json(&container(), &with(Runtime::Runc, None)).unwrap();
        assert_eq!(found, expected, "{found:#}");
    }

    #[test]
    fn who_is_not_root_has_one_id_and_is_0_inside() {
        let found = json(&container(), &with(Runtime::Crun, Some((1000, 1001)))).unwrap();
        assert_eq!(found["linux"]["uidMappings"], serde_json::json!([{ "containerID": 0, "hostID": 1000, "size": 1 }]));
        assert_eq!(found["linux"]["gidMappings"], serde_json::json!([{ "containerID": 0, "hostID": 1001, "size": 1 }]));
        assert!(found["linux"]["namespaces"].as_array().unwrap().contains(&serde_json::json!({ "type": "user" })));
        assert_eq!(found["process"]["user"]["uid"], 0);
        assert_eq!(found["linux"].get("resources"), None, "who is not root has no cgroups of the runtime's");
        assert!(!found.to_string().contains("gid=5"));
        assert_eq!((runs_as(&container(), true), runs_as(&container(), false)), ((0, 0), (70_000, 70_001)));
    }

    #[test]
    fn powers_are_in_no_set_that_outlives_exec_as_another_user() {
        let mut powered = container();
        powered.powers = true;
        let found = json(&powered, &with(Runtime::Runc, None)).unwrap();
        let sets = &found["process"]["capabilities"];
        let expected: Vec<String> = {
            let mut names: Vec<String> =
                crate::backends::containers::spec::POWERS.iter().map(|name| format!("CAP_{name}")).collect();
            names.sort();
            names
        };
        for set in ["bounding", "effective", "permitted"] {
            assert_eq!(sets[set], serde_json::json!(expected), "{set}");
        }
        assert_eq!((&sets["ambient"], &sets["inheritable"]), (&serde_json::json!([]), &serde_json::json!([])));
        assert_eq!(found["process"]["user"]["uid"], 0);
    }

    #[test]
    fn the_hosts_network_is_no_namespace() {
        let mut open = container();
        open.network = Net::Host;
        let types = |container: &ContainerSpec| {
            json(container, &with(Runtime::Runc, None)).unwrap()["linux"]["namespaces"].to_string()
        };
        assert!(!types(&open).contains("network") && types(&container()).contains("network"));
    }

    #[test]
    fn gvisor_masks_by_mounts_and_gets_nothing_that_can_be_written_unasked() {
        let masked =
            [("/work/.env".to_owned(), false), ("/work/.git".to_owned(), true), ("/proc/keys".to_owned(), false)];
        let mut container = container();
        container.mounts.remove(1);
        let found = json(&container, &With { masked: &masked, ..with(Runtime::Runsc, Some((1000, 1000))) }).unwrap();
        let mounts = found["mounts"].as_array().unwrap();
        let at = |target: &str| mounts.iter().rfind(|m| m["destination"] == target);
        assert_eq!(at("/work/.env").unwrap()["source"], "/state/nothing");
        assert!(at("/work/.git").unwrap()["options"].to_string().contains("mode=0"));
        assert!(at("/tmp").unwrap()["options"].to_string().contains("\"ro\""));
        assert_eq!(at("/proc/keys"), None);
        assert_eq!(at("/dev/fuse").unwrap()["source"], "/state/nothing");
        assert!(at("/dev/net").unwrap()["options"].to_string().contains("mode=0"));
        assert!(!found.to_string().contains("rro") && !found.to_string().contains("uidMappings"), "{found:#}");
        // The twin: what the spec mounts is not covered.
        let own = json(&self::container(), &with(Runtime::Runsc, None)).unwrap();
        let tmp: Vec<&Value> =
            own["mounts"].as_array().unwrap().iter().filter(|m| m["destination"] == "/tmp").collect();
        assert!(tmp.len() == 1 && tmp[0]["options"].to_string().contains("\"rw\""), "{tmp:?}");
    }

    #[test]
    fn what_init_takes_to_be_another_user_is_in_no_bounding_set() {
        let apart = ContainerSpec { apart: Some((70_001, 70_000)), ..container() };
        let found = json(&apart, &with(Runtime::Runsc, None)).unwrap();
        assert_eq!(
            found["process"]["user"]["uid"], 70_000,
            "it starts as the program's, and makes what is the program's"
        );
        let sets = &found["process"]["capabilities"];
        let expected: Vec<String> =
            crate::backends::containers::spec::APART.iter().map(|name| format!("CAP_{name}")).collect();
        for (set, expected) in [("permitted", &*expected), ("effective", &expected), ("bounding", &[])] {
            assert_eq!(sets[set], serde_json::json!(expected), "{set}");
        }
    }

    #[test]
    fn what_the_spec_says_of_the_own_directory_stands() {
        let mut said = container();
        let source = PathBuf::from("/elsewhere");
        said.mounts.push(Mounted::Bind {
            source,
            target: own_directory(&said.id),
            writable: false,
            exec: true,
            directory: true,
        });
        let found = json(&said, &with(Runtime::Runc, None)).unwrap();
        let own: Vec<&Value> = found["mounts"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|m| m["destination"] == own_directory(&said.id))
            .collect();
        assert!(own.len() == 1 && own[0]["source"] == "/elsewhere", "{own:?}");
    }
}
