//! Real engines: the fixture's, of root and of another user where there is root.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use cofferdam_test_containers::engine::uid;
use cofferdam_test_containers::{Engine as Daemon, Kind, image};
use tempfile::TempDir;

use super::super::{Bounds, Net, owner};
use super::*;

/// A starting process's variables, and nothing else of it.
pub(super) struct Around(pub(super) HashMap<&'static str, String>);

impl Surroundings for Around {
    fn variable(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    fn connect(&self, path: &Path) -> io::Result<()> {
        UnixStream::connect(path).map(drop)
    }

    fn read(&self, _path: &Path) -> Option<String> {
        None
    }

    fn program(&self, _name: &str) -> Option<PathBuf> {
        None
    }

    fn uid(&self) -> u32 {
        uid()
    }
}

/// A daemon, and ours on it.
struct Pair {
    kind: Kind,
    engine: Engine,
    _daemon: Daemon,
}

fn pairs() -> Vec<Pair> {
    let kinds =
        if uid() == 0 { vec![Kind::Docker, Kind::Podman, Kind::PodmanOf(65534)] } else { vec![Kind::PodmanOf(uid())] };
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|value| value == "1");
    let mut pairs = Vec::new();
    for kind in kinds {
        if let Some(reason) = kind.missing() {
            assert!(!must, "skipped {kind:?}: {reason}");
            eprintln!("skipped {kind:?}: {reason}");
            continue;
        }
        pairs.push(pair(kind));
    }
    pairs
}

fn pair(kind: Kind) -> Pair {
    let daemon = Daemon::shared(kind).expect("an engine");
    let flavour = if kind == Kind::Docker { Flavour::Docker } else { Flavour::Podman };
    let (name, value) = daemon.environment();
    let engine = Engine::found(flavour, &Around(HashMap::from([(name, value)]))).expect("it is found");
    Pair { kind, engine, _daemon: daemon }
}

/// A directory in which root file systems and results lie, which other users reach.
fn work() -> TempDir {
    let work = tempfile::tempdir().expect("a directory");
    open(work.path());
    work
}

fn open(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("chmod");
}

fn tarball(work: &TempDir) -> PathBuf {
    let (root, archive) = (work.path().join("root"), work.path().join("root.tar"));
    image::root(&root, &[]).expect("a root");
    image::tarball(&root, &archive).expect("a tarball");
    archive
}

fn quiet(_: Progress) {}

/// A shape that runs a script, which may leave files in `/out`.
fn shape(root: Rootfs, out: &Path, script: &str) -> Shape {
    std::fs::create_dir_all(out).expect("a directory");
    open(out);
    let id = owner::fresh_name().expect("a name");
    Shape {
        labels: vec![(owner::RUN.into(), id.clone()), (owner::OWNER.into(), owner::me().expect("an owner"))],
        id,
        root,
        mounts: vec![
            Mounted::Bind {
                source: out.canonicalize().expect("canonical"),
                target: "/out".into(),
                writable: true,
                exec: false,
                directory: true,
            },
            Mounted::Tmpfs { target: "/tmp".into(), bytes: 1 << 20, mode: 0o1777, exec: false, writable: true },
        ],
        masked: Vec::new(),
        user: (65534, 65534),
        powers: false,
        hostname: "inside".into(),
        network: Net::Own,
        bounds: Bounds::default(),
        open_files: 256,
        argv: vec!["/bin/sh".into(), "-c".into(), script.to_owned()],
    }
}

/// With what limits the engine holds.
fn bounded(mut shape: Shape, about: &About) -> Shape {
    if about.limits {
        shape.bounds = Bounds { memory_bytes: Some(64 << 20), cpu_millis: Some(500), pids: Some(50) };
    }
    shape
}

fn start(engine: &Engine, shape: &Shape, ready: &Ready) -> Result<Box<dyn Made>, Failure> {
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let fd = null.as_fd();
    let handed =
        Handed { stdio: [fd; 3], init: [fd; 5], lifeline: fd, cgroup: None, rlimits: &[], directory: Path::new("/") };
    engine.start(shape, ready, &handed)
}

/// Runs a shape to its end.
fn run(engine: &Engine, shape: &Shape) -> Ended {
    let ready = engine.prepare(&shape.root, &shape.mounts, &quiet).expect("a root");
    let made = start(engine, shape, &ready).unwrap_or_else(|failure| panic!("{failure:?}"));
    let ended = made.end();
    assert_eq!(ended.problems, Vec::<String>::new());
    assert!(!exists(engine, &shape.id), "it is removed");
    ended
}

fn exists(engine: &Engine, name: &str) -> bool {
    engine.known().expect("known").client.json(format!("/containers/{name}/json")).is_ok()
}

fn said(out: &Path, name: &str) -> String {
    std::fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_container_has_no_powers_no_network_and_a_root_that_cannot_be_written() {
    let work = work();
    let archive = tarball(&work);
    for Pair { kind, engine, .. } in pairs() {
        let out = work.path().join(format!("{kind:?}"));
        let about = engine.about().expect("about");
        let script = "cat /proc/self/status > /out/status; cat /proc/self/mountinfo > /out/mounts; id > /out/id; \
            cat /proc/net/dev > /out/net; hostname > /out/name; echo $$ > /out/pid; \
            touch /etc/x 2>/dev/null; echo $? > /out/root; touch /tmp/x; echo $? > /out/tmp; \
            dd if=/dev/zero of=/tmp/big bs=1024 count=2000 2>/dev/null; echo $? > /out/size; \
            cat /proc/version > /out/version; cat /etc/of-the-image > /out/masked 2>/dev/null; mount -o remount,rw / 2>/dev/null; echo $? > /out/remount; \
            for t in /run /var/tmp /etc /bin /data; do touch $t/x 2>/dev/null && echo $t; done > /out/written";
        let mut asked = bounded(shape(Rootfs::Tarball(archive.clone()), &out, script), &about);
        asked.masked = vec!["/etc/of-the-image".into(), "/nowhere".into()];
        let ended = run(&engine, &asked);
        assert_eq!(ended.oom_killed, Some(false), "{kind:?}");
        let status = said(&out, "status");
        for line in [
            "CapPrm:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(line), "{kind:?}: {line} in {status}");
        }
        let (uid, gid) = engine.runs_as(&asked);
        assert!(
            said(&out, "id").starts_with(&format!("uid={uid}")) && said(&out, "id").contains(&format!("gid={gid}")),
            "{kind:?} {}",
            said(&out, "id")
        );
        assert_eq!(said(&out, "name").trim(), "inside", "{kind:?}");
        assert_eq!(said(&out, "pid").trim(), "1", "{kind:?}: a pid namespace");
        let interfaces: Vec<String> =
            said(&out, "net").lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect();
        assert!(interfaces.contains(&"lo".to_owned()), "{kind:?}");
        assert!(!interfaces.iter().any(|name| name.starts_with("eth")), "{kind:?} {interfaces:?}");
        assert_ne!(said(&out, "root").trim(), "0", "{kind:?}");
        assert_eq!(said(&out, "tmp").trim(), "0", "{kind:?}: the twin");
        assert_ne!(said(&out, "size").trim(), "0", "{kind:?}: the tmpfs has its size");
        assert_eq!(said(&out, "masked"), "", "{kind:?}: masked");
        assert_ne!(said(&out, "version"), "", "{kind:?}: the twin");
        assert_ne!(said(&out, "remount").trim(), "0", "{kind:?}");
        assert_eq!(said(&out, "written"), "", "{kind:?}");
    }
}

#[test]
fn a_file_system_in_memory_belongs_to_the_program_where_the_image_has_the_directory_too() {
    let work = work();
    let root = work.path().join("root");
    image::root(&root, &[]).expect("a root");
    std::fs::set_permissions(root.join("tmp"), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    let archive = work.path().join("root.tar");
    image::tarball(&root, &archive).expect("a tarball");
    for Pair { kind, engine, .. } in pairs().into_iter().filter(|pair| pair.kind == Kind::Docker) {
        let out = work.path().join(format!("{kind:?}"));
        let asked = shape(
            Rootfs::Tarball(archive.clone()),
            &out,
            "touch /tmp/x && ls -ln /tmp > /out/list; echo $? > /out/code",
        );
        run(&engine, &asked);
        assert_eq!(said(&out, "code").trim(), "0", "{kind:?}");
    }
}
