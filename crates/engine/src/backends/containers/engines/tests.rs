//! Real engines: the fixture's, of root and of another user where there is root.

mod held;
mod lost;
mod pull;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use cofferdam_test_containers::engine::uid;
use cofferdam_test_containers::{Engine as Daemon, Kind, image};
use tempfile::TempDir;

use super::super::{Net, RootEntry, RuntimeLimits, owner};
use super::*;
use crate::failure::Failure;

/// A starting process's variables, and nothing else of it.
pub(super) struct Around(pub(super) HashMap<&'static str, String>);

impl DiscoveryHost for Around {
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

    fn is_own(&self, directory: &Path) -> bool {
        Real.is_own(directory)
    }
}

/// A daemon, and ours on it.
struct Pair {
    kind: Kind,
    engine: ContainerEngine,
    daemon: Daemon,
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
    let engine = ContainerEngine::found(flavour, &Around(HashMap::from([(name, value)]))).expect("it is found");
    Pair { kind, engine, daemon }
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

/// A spec that runs a script, which may leave files in `/out`.
fn spec(root: Rootfs, out: &Path, script: &str) -> ContainerSpec {
    std::fs::create_dir_all(out).expect("a directory");
    open(out);
    let id = owner::fresh_name().expect("a name");
    ContainerSpec {
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
        apart: None,
        hostname: "inside".into(),
        network: Net::Own,
        bounds: RuntimeLimits::default(),
        open_files: 256,
        argv: vec!["/bin/sh".into(), "-c".into(), script.to_owned()],
    }
}

/// With what limits the engine holds.
fn bounded(mut spec: ContainerSpec, about: &RuntimeFacts) -> ContainerSpec {
    if about.limits {
        spec.bounds = RuntimeLimits { memory_bytes: Some(64 << 20), cpu_millis: Some(500), pids: Some(50) };
    }
    spec
}

fn start(
    engine: &ContainerEngine,
    spec: &ContainerSpec,
    ready: &ReadyRootfs,
) -> Result<Box<dyn StartedContainer>, Failure> {
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let fd = null.as_fd();
    let handed =
        Handed { stdio: [fd; 3], init: [fd; 5], lifeline: fd, cgroup: None, rlimits: &[], directory: Path::new("/") };
    engine.start(spec, ready, &handed)
}

/// Runs a spec to its end.
fn run(engine: &ContainerEngine, spec: &ContainerSpec) -> ContainerEnd {
    let ready = engine.prepare(&spec.root, &spec.mounts, &quiet).expect("a root");
    let made = start(engine, spec, &ready).unwrap_or_else(|failure| panic!("{failure:?}"));
    let ended = made.end();
    assert_eq!(ended.problems, Vec::<String>::new());
    assert!(!exists(engine, &spec.id), "it is removed");
    ended
}

fn exists(engine: &ContainerEngine, name: &str) -> bool {
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
        let mut asked = bounded(spec(Rootfs::Tarball(archive.clone()), &out, script), &about);
        asked.masked = vec!["/etc/of-the-image".into(), "/nowhere".into()];
        let ended = run(&engine, &asked);
        assert_eq!(ended.oom_killed, (kind == Kind::Docker).then_some(false), "{kind:?}");
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
        let asked = spec(
            Rootfs::Tarball(archive.clone()),
            &out,
            "touch /tmp/x && ls -ln /tmp > /out/list; echo $? > /out/code",
        );
        run(&engine, &asked);
        assert_eq!(said(&out, "code").trim(), "0", "{kind:?}");
    }
}

/// Imports and says how often something was told of it.
fn prepared(engine: &ContainerEngine, root: &Rootfs) -> (ReadyRootfs, usize) {
    let times = std::cell::Cell::new(0);
    let ready = engine.prepare(root, &[], &|_| times.set(times.get() + 1)).expect("a root");
    (ready, times.get())
}

#[test]
fn a_tarball_is_imported_once_whichever_thread_or_name_asks_and_again_when_it_changes() {
    let work = work();
    let archive = tarball(&work);
    for Pair { kind, engine, .. } in pairs() {
        let root = Rootfs::Tarball(archive.clone());
        let many: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| prepared(&engine, &root).0.reference)).collect();
            threads.into_iter().map(|thread| thread.join().expect("imported")).collect()
        });
        assert!(many.iter().all(|id| *id == many[0]), "{kind:?} {many:?}");
        let (again, told) = prepared(&engine, &root);
        assert_eq!((again.reference.as_str(), told), (many[0].as_str(), 0), "{kind:?}: nothing was read again");
        // The same bytes under another name are the same image; other bytes under this name are not.
        let copy = work.path().join(format!("copy-{kind:?}.tar"));
        std::fs::copy(&archive, &copy).expect("a copy");
        assert_eq!(prepared(&engine, &Rootfs::Tarball(copy.clone())).0.reference, many[0], "{kind:?}");
        let other = work.path().join("other");
        if !other.exists() {
            image::root(&other, &[]).expect("a root");
            std::fs::write(other.join("new"), "new").expect("a file");
        }
        image::tarball(&other, &copy).expect("a tarball");
        assert_ne!(prepared(&engine, &Rootfs::Tarball(copy)).0.reference, many[0], "{kind:?}");
        let packed = work.path().join(format!("packed-{kind:?}.tar.gz"));
        let pack = std::process::Command::new("sh")
            .args(["-c", "gzip --stdout \"$0\" > \"$1\""])
            .args([&archive, &packed])
            .status();
        assert!(pack.expect("sh").success());
        let out = work.path().join(format!("gz-{kind:?}"));
        run(&engine, &spec(Rootfs::Tarball(packed), &out, "echo packed > /out/said"));
        assert_eq!(said(&out, "said"), "packed\n", "{kind:?}");
    }
}

#[test]
fn a_directory_is_imported_once_and_again_when_something_in_it_changes() {
    let work = work();
    let root = work.path().join("root");
    image::root(&root, &[]).expect("a root");
    let long = "a".repeat(120);
    std::fs::write(root.join(&long), "long").expect("a file");
    std::fs::hard_link(root.join("etc/of-the-image"), root.join("etc/linked")).expect("a link");
    std::os::unix::fs::symlink(format!("/{long}"), root.join("etc/far")).expect("a link");
    for Pair { kind, engine, .. } in pairs() {
        std::fs::write(root.join("etc/changes"), "before").expect("a file");
        let asked = Rootfs::Directory(root.canonicalize().expect("canonical"));
        let (first, _) = prepared(&engine, &asked);
        let (again, told) = prepared(&engine, &asked);
        assert_eq!((&again.reference, told), (&first.reference, 0), "{kind:?}: not imported again");
        let out = work.path().join(format!("{kind:?}"));
        let script = "cat /etc/changes /etc/linked /etc/far > /out/said; stat -c %a /tmp /root > /out/modes";
        run(&engine, &spec(asked.clone(), &out, script));
        assert_eq!(said(&out, "said"), "beforemade for a test\nlong", "{kind:?}");
        // As long as before, written in the same moment: its times tell.
        std::fs::write(root.join("etc/changes"), "after!").expect("a file");
        let (changed, _) = prepared(&engine, &asked);
        assert_ne!(changed.reference, first.reference, "{kind:?}");
        run(&engine, &spec(asked, &out, script));
        assert_eq!(said(&out, "said"), "after!made for a test\nlong", "{kind:?}");
    }
}

#[test]
fn a_made_root_holds_what_was_said_and_the_places_of_mounts() {
    let work = work();
    let bin = work.path().join("bin");
    std::fs::create_dir(&bin).expect("a directory");
    std::fs::copy("/bin/busybox", bin.join("sh")).expect("busybox");
    open(&bin);
    for Pair { kind, engine, .. } in pairs() {
        let out = work.path().join(format!("{kind:?}"));
        let entries = vec![
            RootEntry::Directory { path: "/made/deep".into(), mode: 0o711 },
            RootEntry::Link { path: "/also".into(), says: "made/deep".into() },
        ];
        let script = "echo / /made/* /also/.. > /out/said; cd /also && pwd -P >> /out/said";
        let mut asked = spec(Rootfs::Made(entries), &out, script);
        asked.mounts.push(Mounted::Bind {
            source: bin.canonicalize().expect("canonical"),
            target: "/bin".into(),
            writable: false,
            exec: true,
            directory: true,
        });
        run(&engine, &asked);
        assert_eq!(said(&out, "said"), "/ /made/deep /also/..\n/made/deep\n", "{kind:?}");
    }
}

#[test]
fn the_images_own_settings_have_no_say() {
    let work = work();
    let (root, archive) = (work.path().join("root"), work.path().join("image.tar"));
    image::root(&root, &[]).expect("a root");
    std::fs::create_dir_all(root.join("data")).expect("a directory");
    let settings = serde_json::json!({
        "User": "0:0",
        "Entrypoint": ["/bin/false"],
        "Cmd": ["image"],
        "Env": ["OF_THE_IMAGE=1"],
        "WorkingDir": "/etc",
        "Volumes": { "/data": {}, "/tmp/": {}, "/nowhere/deep": {} },
        "Healthcheck": { "Test": ["CMD", "/bin/touch", "/out/health"], "Interval": 1_000_000_000 },
        "Labels": { owner::RUN: "cofferdam-ffffffffffffffff", owner::OWNER: "1:1:x:1", "other": "1" },
    });
    image::archive(&root, &archive, "cofferdam-test:own", &settings).expect("an archive");
    for Pair { kind, engine, daemon } in pairs() {
        daemon.load(&archive).expect("loaded");
        let out = work.path().join(format!("{kind:?}"));
        let script = "echo $@ $0 > /out/said; pwd >> /out/said; id -u >> /out/said; \
            for t in /data /nowhere/deep; do touch $t/x 2>/dev/null && echo $t; done > /out/written; \
            touch /tmp/x; echo $? > /out/tmp; cat /proc/self/mountinfo > /out/mounts";
        let asked = spec(Rootfs::Image("cofferdam-test:own".into()), &out, script);
        let ready = engine.prepare(&asked.root, &asked.mounts, &quiet).expect("there");
        assert_eq!(ready.volumes.len(), 3, "{kind:?} {ready:?}");
        run(&engine, &asked);
        let user = engine.runs_as(&asked).0;
        assert_eq!(said(&out, "said"), format!("/bin/sh\n/\n{user}\n"), "{kind:?}");
        assert_eq!(said(&out, "written"), "", "{kind:?}: no volume is a disk");
        assert_eq!(said(&out, "tmp").trim(), "0", "{kind:?}: the twin");
        for place in ["/data", "/nowhere/deep", "/tmp"] {
            let mounts = said(&out, "mounts");
            let mount = mounts.lines().find(|line| line.split(' ').nth(4) == Some(place));
            assert!(mount.is_some_and(|line| line.contains(" - tmpfs ")), "{kind:?} {place}: {mount:?}");
        }
        assert!(!out.join("health").exists(), "{kind:?}");
    }
}

#[test]
fn what_does_not_start_says_why_and_leaves_nothing() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    for Pair { kind, engine, .. } in pairs() {
        let out = work.path().join(format!("{kind:?}"));
        let mut asked = spec(root.clone(), &out, "");
        asked.argv = vec!["/nowhere/init".into()];
        let ready = engine.prepare(&asked.root, &asked.mounts, &quiet).expect("a root");
        let failure = start(&engine, &asked, &ready).err().expect("there is no such program");
        assert_eq!((failure.code, failure.step.as_str()), (125, "container"), "{kind:?}");
        assert!(failure.message.contains("/nowhere/init"), "{kind:?} {}", failure.message);
        assert!(!exists(&engine, &asked.id), "{kind:?}");
        // The twin starts, and ends before anybody came.
        let early = spec(root.clone(), &out, "exit 3");
        let made = start(&engine, &early, &ready).expect("started");
        let since = Instant::now();
        let failure = loop {
            if let Some(failure) = made.gave_up() {
                break failure;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "{kind:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(failure.message.contains("ended with 3"), "{kind:?} {}", failure.message);
        made.kill().expect("killing what is dead is done");
        assert_eq!(made.end().problems, Vec::<String>::new(), "{kind:?}");
        assert!(!exists(&engine, &early.id), "{kind:?}");
    }
}

#[test]
fn killing_ends_every_process_of_it() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    for Pair { kind, engine, .. } in pairs() {
        let out = work.path().join(format!("{kind:?}"));
        let asked =
            spec(root.clone(), &out, "(while :; do echo x >> /out/alive; sleep 0.05; done) & touch /out/up; wait");
        let ready = engine.prepare(&asked.root, &asked.mounts, &quiet).expect("a root");
        let made = start(&engine, &asked, &ready).expect("started");
        let since = Instant::now();
        while !out.join("alive").exists() {
            assert!(since.elapsed() < Duration::from_secs(20), "{kind:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(made.gave_up(), None, "{kind:?}: it runs");
        made.kill().expect("killed");
        made.kill().expect("again");
        let ended = made.end();
        assert_eq!(ended.problems, Vec::<String>::new(), "{kind:?}");
        let length = std::fs::metadata(out.join("alive")).expect("there").len();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(std::fs::metadata(out.join("alive")).expect("there").len(), length, "{kind:?}");
    }
}

#[test]
fn limits_hold_and_an_out_of_memory_end_is_reported() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    for Pair { kind, engine, .. } in pairs() {
        let about = engine.about().expect("about");
        let out = work.path().join(format!("{kind:?}"));
        if !about.limits {
            assert!(about.rootless && about.detail.contains("no limits: "), "{kind:?} {}", about.detail);
            continue;
        }
        // The shell itself lives: one process of the tree is killed, for certain, because the kernel takes the one with the
        // highest score, and where that one does not free its memory in time, the next. The other tries to have more
        // processes than it may.
        let script = "(echo 1000 > /proc/self/oom_score_adj; head -c 200000000 /dev/zero | tail -c 190000000 > /dev/null); \
            echo went on > /out/said; \
            i=0; while [ $i -lt 80 ]; do sleep 5 & i=$((i+1)); done 2> /out/forks; echo over > /out/end";
        let asked = bounded(spec(root.clone(), &out, script), &about);
        let ended = run(&engine, &asked);
        assert_eq!(said(&out, "said"), "went on\n", "{kind:?}");
        let told = if kind == Kind::Docker { Some(true) } else { ended.oom_killed.filter(|killed| *killed) };
        assert_eq!(ended.oom_killed, told, "{kind:?}: it is told, or not known");
        assert!(said(&out, "forks").contains("fork"), "{kind:?}: {}", said(&out, "forks"));
    }
}

#[test]
fn what_dead_owners_left_is_removed_and_nothing_else() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    let gone = std::process::Command::new("true").spawn().and_then(|mut child| {
        let pid = child.id();
        child.wait().map(|_| pid)
    });
    let here = owner::ProcessScope::read().expect("/proc is ours");
    let dead = format!("{}:1:{}:{}", gone.expect("a process"), here.boot, here.pids);
    for Pair { kind, engine, .. } in pairs() {
        let out = work.path().join(format!("{kind:?}"));
        let make = |change: &dyn Fn(&mut ContainerSpec)| {
            let mut asked = spec(root.clone(), &out, "sleep 60");
            change(&mut asked);
            let ready = engine.prepare(&asked.root, &asked.mounts, &quiet).expect("a root");
            (asked.id.clone(), start(&engine, &asked, &ready).expect("started"))
        };
        let label = |asked: &mut ContainerSpec, name: &str, value: &str| {
            asked.labels.retain(|(known, _)| known != name);
            asked.labels.push((name.into(), value.into()));
        };
        let (mine, made) = make(&|_| {});
        let (left, lost) = make(&|asked| label(asked, owner::OWNER, &dead));
        let (foreign, other) = make(&|asked| {
            asked.id = format!("somebody-{}", std::process::id());
            label(asked, owner::OWNER, &dead);
        });
        let (forged, fourth) = make(&|asked| {
            label(asked, owner::OWNER, &dead);
            label(asked, owner::RUN, "cofferdam-ffffffffffffffff");
        });
        let swept = engine.sweep().expect("swept");
        // Other tests use this engine as well, and sweep it: who removed it does not matter.
        assert_eq!(swept.problems, Vec::<String>::new(), "{kind:?}");
        assert!(!exists(&engine, &left), "{kind:?}");
        for name in [&mine, &foreign, &forged] {
            assert!(exists(&engine, name) && !swept.removed.contains(name), "{kind:?} {name}");
        }
        // Somebody else removed it: nothing of that is a problem.
        for made in [made, lost, other, fourth] {
            made.kill().expect("killed");
            assert_eq!(made.end().problems, Vec::<String>::new(), "{kind:?}");
        }
    }
}

#[test]
fn an_image_that_is_nowhere_is_reported_with_a_hint() {
    for Pair { kind, engine, .. } in pairs() {
        let of = |reference: &str| {
            engine.prepare(&Rootfs::Image(reference.into()), &[], &quiet).expect_err("there is no such image")
        };
        let failure = of("127.0.0.1:9/nothing/there:1");
        assert_eq!(failure.step.as_str(), "image", "{kind:?} {failure:?}");
        assert!(failure.hint.is_some_and(|hint| hint.contains("tarball")), "{kind:?}");
        let id = of(&format!("sha256:{}", "0".repeat(64)));
        assert!(id.message.contains("cannot be pulled"), "{kind:?} {id:?}");
        for bad in ["", "a b", "../x", "a/../../containers", "a?b", "-x", "A\u{1b}[2J", "x/"] {
            let failure = of(bad);
            assert!(failure.message.contains("is no reference"), "{kind:?} {bad}: {failure:?}");
        }
        let broken = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(broken.path(), [7u8; 2000]).expect("written");
        let failure = engine.prepare(&Rootfs::Tarball(broken.path().into()), &[], &quiet).expect_err("no archive");
        assert_eq!(failure.step.as_str(), "image", "{kind:?} {failure:?}");
        let work = work();
        let (root, saved, fifo) = (work.path().join("root"), work.path().join("saved.tar"), work.path().join("fifo"));
        image::root(&root, &[]).expect("a root");
        image::archive(&root, &saved, "cofferdam-test:saved", &serde_json::json!({})).expect("an archive");
        let failure = engine.prepare(&Rootfs::Tarball(saved), &[], &quiet).expect_err("layers are no root");
        assert!(failure.hint.is_some_and(|hint| hint.contains("docker load")), "{kind:?}");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        let failure = engine.prepare(&Rootfs::Tarball(fifo), &[], &quiet).expect_err("nobody writes into it");
        assert!(failure.message.contains("it is no file"), "{kind:?} {failure:?}");
        let failure = engine.prepare(&Rootfs::Tarball("/nowhere.tar".into()), &[], &quiet).expect_err("nothing");
        assert!(failure.message.contains("/nowhere.tar"), "{kind:?} {failure:?}");
    }
}

#[test]
fn powers_are_those_of_the_gateway_and_the_network_the_hosts_only_where_asked() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    let host = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
    let numbers =
        [("SETGID", 6), ("SETUID", 7), ("SETPCAP", 8), ("NET_BIND_SERVICE", 10), ("NET_ADMIN", 12), ("NET_RAW", 13)];
    let number = |power: &str| numbers.iter().find(|(name, _)| *name == power).expect("a known one").1;
    let bits: u64 = super::super::POWERS.iter().map(|power| 1u64 << number(power)).sum();
    for Pair { kind, engine, .. } in pairs() {
        let out = work.path().join(format!("{kind:?}"));
        let script = "grep Cap /proc/self/status > /out/caps; readlink /proc/self/ns/net > /out/net; id -u > /out/id";
        run(&engine, &ContainerSpec { powers: true, ..spec(root.clone(), &out, script) });
        for set in ["CapPrm", "CapBnd"] {
            assert!(said(&out, "caps").contains(&format!("{set}:\t{bits:016x}")), "{kind:?} {}", said(&out, "caps"));
        }
        assert_eq!(said(&out, "id").trim(), "0", "{kind:?}");
        assert_ne!(said(&out, "net").trim(), host.to_string_lossy(), "{kind:?}: a network of its own");
        let out = work.path().join(format!("{kind:?}-host"));
        run(&engine, &ContainerSpec { network: Net::Host, ..spec(root.clone(), &out, script) });
        assert_eq!(said(&out, "net").trim(), host.to_string_lossy(), "{kind:?}: as it was asked for");
        assert!(said(&out, "caps").contains("CapBnd:\t0000000000000000"), "{kind:?}");
    }
}

#[test]
fn where_an_engine_says_so_nothing_on_a_bind_is_executed() {
    let work = work();
    let root = Rootfs::Tarball(tarball(&work));
    for Pair { kind, engine, .. } in pairs() {
        let flags = engine.about().expect("about").flags;
        assert_eq!(flags, kind != Kind::Docker, "{kind:?}");
        for exec in [false, true] {
            let out = work.path().join(format!("{kind:?}-{exec}"));
            let script = "cp /bin/busybox /out/true; chmod 755 /out/true; /out/true; echo $? > /out/code";
            let mut asked = spec(root.clone(), &out, script);
            let Some(Mounted::Bind { exec: allowed, .. }) = asked.mounts.first_mut() else { panic!("a bind") };
            *allowed = exec;
            run(&engine, &asked);
            let runs = exec || !flags;
            assert_eq!(said(&out, "code").trim(), if runs { "0" } else { "126" }, "{kind:?} {exec}");
        }
    }
}
