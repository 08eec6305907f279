//! What engines are asked for, held against files under `tests/golden/engines`; `COFFERDAM_UPDATE=1` writes them anew.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::backends::containers::mount_points::Moved;
use crate::backends::containers::{ImageCommand, Rootfs, RuntimeLimits};

fn what(flavour: Flavour) -> What {
    What {
        flavour,
        version: "1".into(),
        api: (1, 41),
        rootless: false,
        mapped: None,
        cgroups: 2,
        unlimited: None,
        runtime: "runc".into(),
        seccomp: true,
        useless: None,
        processes: 4096,
    }
}

fn bind(source: &str, target: &str, writable: bool) -> Mounted {
    Mounted::Bind { source: source.into(), target: target.into(), writable, exec: false, directory: true }
}

fn tmpfs(target: &str, writable: bool) -> Mounted {
    Mounted::Tmpfs { target: target.into(), bytes: 1 << 20, mode: 0o1777, exec: false, writable }
}

fn spec() -> ContainerSpec {
    ContainerSpec {
        id: "cofferdam-0123456789abcdef".into(),
        root: Rootfs::Image("tools:1".into()),
        mounts: vec![bind("/srv/data", "/data", false), bind("/srv/out", "/out", true), tmpfs("/tmp", true)],
        masked: vec!["/data/secret".into()],
        user: (1000, 1001),
        powers: false,
        apart: None,
        hostname: "sandbox".into(),
        network: Net::Own,
        bounds: RuntimeLimits { memory_bytes: Some(64 << 20), cpu_millis: Some(500), pids: Some(33) },
        open_files: 256,
        labels: vec![("cofferdam.run".into(), "cofferdam-0123456789abcdef".into())],
        argv: vec!["/dev/cofferdam/init".into(), "/dev/cofferdam/door".into()],
    }
}

fn root() -> ReadyRootfs {
    ReadyRootfs {
        reference: "sha256:abc".into(),
        volumes: vec!["/var/lib/db/".into(), "/tmp".into()],
        command: ImageCommand::default(),
        moved: Moved::default(),
    }
}

/// Keys in order, whichever order they are kept in.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: std::collections::BTreeMap<_, _> = map.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[test]
fn what_is_asked_for_is_what_was_agreed() {
    for (name, flavour) in [("docker", Flavour::Docker), ("podman", Flavour::Podman)] {
        let asked = body(&spec(), &root(), &what(flavour)).unwrap();
        let asked = sorted(&serde_json::to_value(asked).unwrap());
        let text = format!("{}\n", serde_json::to_string_pretty(&asked).unwrap());
        let file: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "tests/golden/engines", &format!("{name}.json")].iter().collect();
        if std::env::var_os("COFFERDAM_UPDATE").is_some_and(|v| v == "1") {
            std::fs::write(&file, &text).unwrap();
        }
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(asked, golden, "{}: COFFERDAM_UPDATE=1 writes it anew", file.display());
    }
}

#[test]
fn powers_are_the_gateways_and_no_others() {
    for flavour in [Flavour::Docker, Flavour::Podman] {
        let without = body(&spec(), &root(), &what(flavour)).unwrap();
        assert_eq!(without.user.as_deref(), Some("1000:1001"));
        assert_eq!(without.host_config.unwrap().cap_add, None);
        let with = body(&ContainerSpec { powers: true, ..spec() }, &root(), &what(flavour)).unwrap();
        assert_eq!(with.user.as_deref(), Some("0:0"));
        let host = with.host_config.unwrap();
        assert_eq!(host.cap_add, Some(POWERS.map(str::to_owned).to_vec()));
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
    }
}

#[test]
fn a_rootless_engine_runs_the_program_as_the_caller_only_where_it_writes_for_it() {
    let rootless = |mapped| What { rootless: true, mapped: Some(mapped), ..what(Flavour::Podman) };
    let writes = spec();
    let reads = ContainerSpec { mounts: vec![bind("/srv/data", "/data", false), tmpfs("/tmp", true)], ..spec() };
    assert_eq!(user(&writes, &what(Flavour::Podman)), (1000, 1001), "rootful");
    assert_eq!(user(&writes, &rootless(65536)), (0, 0), "the directory is the caller's");
    assert_eq!(user(&reads, &rootless(65536)), (1000, 1001));
    assert_eq!(user(&reads, &rootless(1)), (0, 0), "there is no other");
    assert_eq!(user(&reads, &rootless(500)), (1, 1));
    let high = ContainerSpec { user: (100_000, 100_000), ..reads };
    assert_eq!(user(&high, &rootless(65536)), (65534, 65534));
    assert_eq!(user(&ContainerSpec { user: (0, 0), ..high }, &rootless(65536)), (65534, 65534));
}

#[test]
fn paths_that_the_interface_cannot_say_are_refused_and_never_cut() {
    let with = |mount: Mounted| ContainerSpec { mounts: vec![mount], ..spec() };
    for mount in [bind("/srv/a:/etc", "/a", false), bind("/srv", "/a:rw", false), tmpfs("/a:exec", true)] {
        let failure = body(&with(mount.clone()), &root(), &what(Flavour::Podman)).unwrap_err();
        assert!(failure.message.contains("separates fields"), "{failure:?}");
        // Docker takes each by itself.
        let asked = body(&with(mount.clone()), &root(), &what(Flavour::Docker)).unwrap();
        let said = serde_json::to_value(asked.host_config).unwrap().to_string();
        assert!(said.contains(mount.target()), "{said}");
    }
    let masked = ContainerSpec { masked: vec!["/a:/b".into()], ..spec() };
    assert!(body(&masked, &root(), &what(Flavour::Podman)).is_err());
    let not_text = PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"/srv/\xff"));
    let mount = Mounted::Bind { source: not_text, target: "/a".into(), writable: false, exec: false, directory: true };
    for flavour in [Flavour::Docker, Flavour::Podman] {
        let failure = body(&with(mount.clone()), &root(), &what(flavour)).unwrap_err();
        assert!(failure.message.contains("UTF-8"), "{failure:?}");
    }
}

#[test]
fn volumes_are_covered_once_and_not_where_the_policy_mounts() {
    let volumes = ["/data/", "//x/./y", "/tmp", "/x/y", "/"].map(str::to_owned).to_vec();
    let root = ReadyRootfs { volumes, ..root() };
    assert_eq!(covered(&spec(), &root, &what(Flavour::Docker)), ["/x/y"]);
    assert_eq!(covered(&spec(), &root, &what(Flavour::Podman)), ["/x/y", "/run", "/var/tmp", "/sys/fs/cgroup"]);
}

#[test]
fn no_file_system_in_memory_is_without_a_limit() {
    let mount = Mounted::Tmpfs { target: "/t".into(), bytes: 0, mode: 0o755, exec: true, writable: true };
    let asked = body(&ContainerSpec { mounts: vec![mount], ..spec() }, &root(), &what(Flavour::Docker)).unwrap();
    let tmpfs = asked.host_config.unwrap().tmpfs.unwrap();
    assert!(tmpfs["/t"].contains("size=4096"), "{tmpfs:?}");
}

#[test]
fn what_is_read_only_is_so_below_as_well_or_is_not_there() {
    let options = |api| {
        let asked = body(&spec(), &root(), &What { api, ..what(Flavour::Docker) }).unwrap();
        let mounts = asked.host_config.unwrap().mounts.unwrap();
        let of = |target: &str| {
            let mount = mounts.iter().find(|mount| mount.target.as_deref() == Some(target)).unwrap();
            let options = mount.bind_options.clone().unwrap();
            (options.non_recursive, options.read_only_force_recursive)
        };
        (of("/data"), of("/out"))
    };
    assert_eq!(options((1, 41)), ((Some(true), None), (Some(false), None)));
    assert_eq!(options((1, 44)), ((Some(false), Some(true)), (Some(false), None)));
    assert_eq!(
        json!(podman_bind(Path::new("/a"), "/b", false, false).unwrap()),
        "/a:/b:ro,bind,noexec,nosuid,nodev,rprivate"
    );
}
