//! Containers of the installed OCI runtimes: each runs a program from start to end, enforces the policy beside what it allows
//! on the same victim, and leaves nothing, whichever process is killed.

mod common;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{carrying, cofferdam, eventually, is_root, marker, open_directory, outcome_of};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A static program with everything that a root needs.
const BUSYBOX: &str = "/bin/busybox";

/// Whether it is here; where all must work it may not be missing.
fn has_busybox() -> bool {
    let there = Path::new(BUSYBOX).exists();
    if !there {
        eprintln!("skipped: no {BUSYBOX}");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "no {BUSYBOX}");
    }
    there
}

/// A place of their own for the files of one test's containers.
struct Place {
    state: tempfile::TempDir,
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { state: tempfile::tempdir().unwrap(), directory: open_directory() }
    }

    fn command(&self, runtime: &str, options: &[&str]) -> Command {
        let mut command = cofferdam();
        command.current_dir(self.directory.path()).env("COFFERDAM_STATE", self.state.path());
        command.args(["run", "--backend", &format!("oci:{runtime}")]).args(options);
        command
    }

    /// Runs a shell script and hands over its outcome.
    #[track_caller]
    fn run(&self, runtime: &str, options: &[&str], script: &str) -> Value {
        let mut command = self.command(runtime, &["--json"]);
        outcome_of(command.args(options), &["--", "sh", "-c", script]).1
    }

    /// What is left of containers on this host.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for below in ["runs", "cache/oci"] {
            let entries = std::fs::read_dir(self.state.path().join(below)).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path().display().to_string()));
        }
        left
    }

    /// A root with a shell.
    fn root(&self) -> PathBuf {
        let root = self.directory.path().join("root");
        for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::set_permissions(root.join("tmp"), std::fs::Permissions::from_mode(0o1777)).unwrap();
        std::fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
        for name in ["sh", "cat", "ls", "touch", "echo"] {
            symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        std::fs::write(root.join("etc/mark"), "of this root\n").unwrap();
        root
    }
}

/// The runtimes that are here. One that is missing is said; the three that Debian has may not be missing where all must work.
fn runtimes() -> Vec<&'static str> {
    let mut found = Vec::new();
    for (name, must) in [("crun", true), ("runc", true), ("runsc", true), ("youki", false)] {
        let place = Place::new();
        let output = place.command(name, &["--root", "minimal", "--dry-run", "--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("is not installed") {
            eprintln!("skipped: no {name}");
            let all = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|v| v == "1");
            assert!(!(must && all), "{name} must work here");
        } else {
            found.push(name);
        }
    }
    found
}

/// Processes and their arguments in which a text stands.
fn running(text: &str) -> Vec<i32> {
    carrying(text)
}

/// Directories of cgroups with this name.
fn cgroups(name: &str) -> usize {
    fn walk(dir: &Path, name: &str, depth: usize) -> usize {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
        directories
            .map(|entry| {
                usize::from(entry.file_name().to_string_lossy() == name)
                    + if depth > 0 { walk(&entry.path(), name, depth - 1) } else { 0 }
            })
            .sum()
    }
    walk(Path::new("/sys/fs/cgroup"), name, 6)
}

#[test]
fn a_program_runs_from_start_to_end_and_leaves_nothing() {
    for runtime in runtimes() {
        let place = Place::new();
        let mut command = place.command(runtime, &["--root", "minimal", "--json", "-e", "GIVEN=yes"]);
        command.env("SECRET", "of the host's");
        let script = "echo out; echo err >&2; echo $GIVEN $SECRET; exit 5";
        let (code, o) = outcome_of(&mut command, &["--", "sh", "-c", script]);
        assert_eq!((code, &o["exit_code"], &o["outcome"]), (5, &5.into(), &"exited".into()), "{runtime}: {o:#}");
        assert_eq!((o["stdout"].as_str(), o["stderr"].as_str()), (Some("out\nyes\n"), Some("err\n")), "{runtime}");
        assert_eq!(o["backend"], format!("oci:{runtime}"));
        assert_eq!(o["error"], Value::Null, "{runtime}: {o:#}");
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

#[test]
fn only_permitted_files_can_be_changed() {
    for runtime in runtimes() {
        let place = Place::new();
        let at = |name: &str| place.directory.path().join(name);
        for name in ["open", "closed", "hidden"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o777)).unwrap();
            std::fs::write(at(name).join("file"), "of the host's\n").unwrap();
            std::fs::set_permissions(at(name).join("file"), std::fs::Permissions::from_mode(0o666)).unwrap();
        }
        let mounts = [
            at("open").display().to_string(),
            at("closed").display().to_string(),
            at("hidden/file").display().to_string(),
        ];
        let writable = format!("{0}:{0}:rw", mounts[0]);
        // As root owners are not mapped, so that a tree that can be written takes the user's consent.
        let consent = "--best-effort=filesystem.mounts,filesystem.protected";
        let options = ["--root", "minimal", "-v", &writable, "--deny", &mounts[2], consent];
        let script = "for d in open closed hidden; do cat $d/file 2>/dev/null; echo changed > $d/file; done 2>/dev/null; \
                      for f in /x /usr/x /etc/x /dev/x /sys/x /proc/sys/kernel/hostname $(echo /dev/cofferdam-*)/x /tmp/x /dev/shm/x; do \
                      (echo x > $f) 2>/dev/null && echo $f; done; cat open/file";
        let o = place.run(runtime, &options, script);
        // gVisor would refuse to write to the devices of a /dev that is read-only; a user is 0 in there.
        let devices = if runtime == "runsc" && !is_root() { "/dev/x\n" } else { "" };
        let expected = format!("of the host's\nof the host's\n{devices}/tmp/x\n/dev/shm/x\nchanged\n");
        assert_eq!(o["stdout"].as_str(), Some(&*expected), "{runtime}: {o:#}");
        let unsized_there = o["enforcement"]["limits.tmpfs_mb"]["reason"].as_str().unwrap().contains("but for /dev");
        assert_eq!(unsized_there, !devices.is_empty(), "{runtime}: {o:#}");
        assert_eq!(std::fs::read_to_string(at("open/file")).unwrap(), "changed\n", "{runtime}");
        for name in ["closed", "hidden"] {
            assert_eq!(std::fs::read_to_string(at(name).join("file")).unwrap(), "of the host's\n", "{runtime}: {name}");
        }
    }
}

#[test]
fn it_has_no_power_and_sees_its_own_namespaces_alone() {
    for runtime in runtimes() {
        let place = Place::new();
        let script = "grep -E '^(Cap|NoNewPrivs)' /proc/self/status; id -u; hostname; ls /proc | grep -c '^[0-9]'; \
                      grep -c : /proc/net/dev; cat /proc/self/limits 2>/dev/null | grep -c 'core file size *1 *1 '";
        let o = place.run(runtime, &["--root", "minimal", "--hostname", "box"], script);
        let out = o["stdout"].as_str().unwrap();
        let sets: Vec<&str> = out.lines().filter(|line| line.starts_with("Cap")).collect();
        assert!(sets.len() >= 4 && sets.iter().all(|set| set.ends_with("\t0000000000000000")), "{runtime}: {out}");
        let rest: Vec<&str> =
            out.lines().filter(|line| !line.starts_with("Cap") && !line.starts_with("NoNew")).collect();
        let as_whom: u32 = rest[0].parse().unwrap();
        // Called by root, the program has no user of the host; called by a user, only that user is mapped.
        assert_eq!(as_whom == 0, !is_root(), "{runtime}: {out}");
        assert_eq!(rest[1], "box", "{runtime}: {out}");
        assert!(rest[2].parse::<u32>().unwrap() <= 6, "it sees processes of others: {runtime}: {out}");
        assert_eq!(rest[3], "1", "more than lo: {runtime}: {out}");
        if runtime != "runsc" {
            assert!(out.contains("NoNewPrivs:\t1") && rest[4] == "1", "{runtime}: {out}");
        }
    }
}

#[test]
fn gvisors_program_cannot_reach_init() {
    // Nothing but users and a cover keeps processes apart there.
    for runtime in runtimes().into_iter().filter(|runtime| *runtime == "runsc") {
        let place = Place::new();
        let script = "for f in environ fd/3 status maps; do cat /proc/1/$f >/dev/null 2>&1 && echo read $f; \
                      cat /proc/$$/$f >/dev/null 2>&1 3</dev/null && echo own $f; done; ls -d /proc/1/fd/* 2>/dev/null; \
                      for s in STOP KILL; do (kill -$s 1) 2>/dev/null && echo $s; done; sleep 9 & kill -STOP $! && echo stopped; \
                      kill -KILL $!; umount /proc/1 2>/dev/null && echo uncovered; for f in fuse net/tun null; do \
                      (: < /dev/$f) 2>/dev/null && echo $f; done; id -u; id -g; echo x > /tmp/made && echo made";
        let o = place.run(runtime, &["--root", "minimal"], script);
        let (said, ids) = o["stdout"].as_str().unwrap().split_once("null\n").expect("devices of its own open");
        assert_eq!(said, "own environ\nown fd/3\nown status\nown maps\nstopped\n", "{o:#}");
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!((ids.len(), ids[0] == "0", ids[2]), (3, !is_root(), "made"), "{o:#}");
        assert_eq!(o["enforcement"]["process.isolation"]["strength"], "full", "{o:#}");
        assert_eq!(place.left(), [""; 0]);
    }
}

#[test]
fn device_in_a_bind_mount_of_gvisor_is_refused() {
    if !is_root() {
        return; // devices are root's to make
    }
    for runtime in runtimes().into_iter().filter(|runtime| *runtime == "runsc") {
        let place = Place::new();
        let bound = place.directory.path().join("bound");
        std::fs::create_dir_all(bound.join("below")).unwrap();
        std::fs::write(bound.join("below/file"), "there\n").unwrap();
        let mount = format!("{0}:{0}:ro", bound.display());
        let options = ["--root", "minimal", "-v", &mount];
        let script = format!("cat {}", bound.join("below/file").display());
        assert_eq!(place.run(runtime, &options, &script)["stdout"], "there\n");
        let (mode, null) = (rustix::fs::Mode::from_raw_mode(0o666), rustix::fs::makedev(1, 3));
        let device = bound.join("below/null");
        rustix::fs::mknodat(rustix::fs::CWD, &device, rustix::fs::FileType::CharacterDevice, mode, null).unwrap();
        let o = place.run(runtime, &options, &script);
        assert_eq!(
            (&o["outcome"], &o["error"]["step"]),
            (&"setup_failed".into(), &"filesystem.mounts".into()),
            "{o:#}"
        );
        assert!(o["error"]["message"].as_str().unwrap().contains("below/null is a device"), "{o:#}");
        assert!(o["error"]["hint"].as_str().unwrap().contains("leaves it out"), "{o:#}");
    }
}

/// Opens a FIFO to be read, reads what comes within a moment, and says it.
fn received(fifo: &Path, write: impl FnOnce()) -> String {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut reader = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(fifo).unwrap();
    write();
    let mut came = String::new();
    reader.read_to_string(&mut came).unwrap_or_default();
    came
}

#[test]
fn a_fifo_in_a_directory_that_is_the_root_cannot_be_written_to() {
    if !has_busybox() {
        return;
    }
    for runtime in runtimes() {
        let place = Place::new();
        let root = place.root();
        let options = ["--image", root.to_str().unwrap(), "-w", "/"];
        let o = place.run(runtime, &options, "cat /etc/mark");
        assert_eq!(o["stdout"], "of this root\n", "the twin: {runtime}: {o:#}");
        let fifo = root.join("etc/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        std::fs::set_permissions(&fifo, std::fs::Permissions::from_mode(0o666)).unwrap();
        let mut o = Value::Null;
        let came = received(&fifo, || o = place.run(runtime, &options, "echo injected > /etc/pipe"));
        assert_eq!(came, "", "{runtime}: {o:#}");
        if runtime != "runsc" {
            assert_eq!(
                (&o["outcome"], &o["error"]["step"]),
                (&"setup_failed".into(), &"filesystem.root".into()),
                "{o:#}"
            );
            assert!(o["error"]["message"].as_str().unwrap().contains("etc/pipe is a FIFO"), "{o:#}");
            assert!(o["error"]["hint"].is_string(), "{o:#}");
        }
        std::fs::remove_file(&fifo).unwrap();
        // What a mount covers nobody reaches.
        let covered = root.join("tmp/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &covered, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        let o = place.run(runtime, &options, "ls /tmp; cat /etc/mark");
        assert_eq!(o["stdout"], "home\nof this root\n", "{runtime}: {o:#}");
    }
}

#[test]
fn what_is_mounted_below_a_directory_that_is_the_root_cannot_be_written() {
    if !is_root() || !has_busybox() {
        return; // mounts are root's to make
    }
    for (runtime, user) in runtimes().into_iter().flat_map(|runtime| [(runtime, None), (runtime, Some(65534))]) {
        let place = Place::new();
        let root = place.root();
        std::fs::create_dir(root.join("etc/below")).unwrap();
        let out = place.directory.path().join("written");
        if user.is_some() {
            for at in [place.state.path(), place.directory.path()] {
                rustix::fs::chown(at, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
            }
        }
        // In a mount namespace that goes away with the command. What was written is copied to where it stays.
        let run = |mount: bool| {
            let below = root.join("etc/below").display().to_string();
            let mounted = if mount { format!("mount -t tmpfs -o mode=777 none {below};") } else { String::new() };
            let as_whom = if user.is_some() { "setpriv --reuid 65534 --regid 65534 --clear-groups" } else { "" };
            let script = format!("{mounted} {as_whom} \"$@\"; ls {below} > {}", out.display());
            let inner = place.command(runtime, &["--json", "--best-effort=limits", "-w", "/", "--image"]);
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args());
            command.arg(&root).args(["--", "sh", "-c", "echo x > /etc/below/new; cat /etc/mark"]);
            command.current_dir(place.directory.path()).env("COFFERDAM_STATE", place.state.path());
            command.env("HOME", place.state.path());
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            serde_json::from_str::<Value>(&said).unwrap_or_else(|e| panic!("{e}: {output:?}"))
        };
        let o = run(false);
        assert_eq!(o["stdout"], "of this root\n", "the twin: {runtime} {user:?}: {o:#}");
        let o = run(true);
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "", "{runtime} {user:?}: {o:#}");
        if runtime != "runsc" {
            assert_eq!(
                (&o["outcome"], &o["error"]["step"]),
                (&"setup_failed".into(), &"filesystem.root".into()),
                "{o:#}"
            );
            let said = o["error"]["message"].as_str().unwrap();
            assert!(said.contains("etc/below is a mount below") && o["error"]["hint"].is_string(), "{o:#}");
        }
    }
}

#[test]
fn source_swapped_before_the_runtime_mounts_is_not_shown() {
    for runtime in runtimes() {
        let place = Place::new();
        let at = |name: &str| place.directory.path().join(name);
        for name in ["bound", "other"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("file"), format!("{name}\n")).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = std::env::var("PATH").unwrap() + ":/usr/sbin";
        let real = path.split(':').map(|dir| Path::new(dir).join(runtime)).find(|file| file.is_file()).unwrap();
        // What the owner starts does something first, and becomes the runtime then.
        let instead = |first: &str| {
            let (bound, aside, other) = (at("bound"), at("aside"), at("other"));
            let script = format!(
                "#!/bin/sh\nPATH=/bin:/usr/bin\ncase \"$*\" in *' run '*) mv {0} {1}; {first} {2} {0};; esac\nexec {3} \"$@\"\n",
                bound.display(),
                aside.display(),
                other.display(),
                real.display()
            );
            // By another process: a child of another test's could hold the file open for writing.
            let program = at(&format!("as-{runtime}"));
            let written = Command::new("sh")
                .args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "sh"])
                .args([script.as_str(), program.to_str().unwrap()])
                .status();
            assert!(written.unwrap().success());
            program
        };
        let run = |first: &str| {
            let program = instead(first);
            let mount = format!("{0}:{0}:ro", at("bound").display());
            let mut command = place.command(runtime, &["--json", "--root", "minimal", "-v", &mount]);
            command.env(format!("COFFERDAM_{}", runtime.to_uppercase()), program);
            let script = format!("cat {}", at("bound/file").display());
            outcome_of(&mut command, &["--", "sh", "-c", &script]).1
        };
        // Control: the same file again, under the same name.
        let o = run("mv -f {aside} {bound}; :"
            .replace("{aside}", at("aside").to_str().unwrap())
            .replace("{bound}", at("bound").to_str().unwrap())
            .as_str());
        assert_eq!(o["stdout"], "bound\n", "{runtime}: {o:#}");
        for first in ["cp -a", "ln -s"] {
            let o = run(first);
            assert_eq!((&o["outcome"], &o["stdout"]), (&"setup_failed".into(), &"".into()), "{runtime} {first}: {o:#}");
            let bound = at("bound");
            if bound.is_symlink() { std::fs::remove_file(&bound) } else { std::fs::remove_dir_all(&bound) }.unwrap();
            std::fs::rename(at("aside"), &bound).unwrap();
        }
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

/// Leaves 96 MiB of the kernel's replies in netlink sockets, says so, and lives until its input ends.
const QUEUES: &str = r#"
import socket, struct, sys
ask, full, kept = struct.pack("=LHHLLBBHiLL", 32, 18, 1, 0, 0, 0, 0, 0, 1, 0, 0), 0, []
while full < 96 << 20:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    s.bind((0, 0))
    size = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for _ in range(size // 768):
        s.send(ask)
    full += size
    kept.append(s)
print("full", flush=True)
sys.stdin.read()
"#;

#[test]
fn socket_buffers_of_the_host_are_not_container_memory() {
    let mut queues = Command::new("python3");
    let mut queues = queues.args(["-c", QUEUES]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(queues.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "full\n");
    for runtime in runtimes() {
        let place = Place::new();
        let o = place.run(
            runtime,
            &["--root", "minimal", "--memory", "64m", "--best-effort=limits.memory_mb"],
            "sleep 1; echo done",
        );
        assert_eq!((o["outcome"].as_str(), o["stdout"].as_str()), (Some("exited"), Some("done\n")), "{runtime}: {o:#}");
    }
    drop(queues.stdin.take());
    assert!(queues.wait().unwrap().success());
}

#[test]
fn limits_hold() {
    for runtime in runtimes() {
        let place = Place::new();
        let mark = marker();
        let o = place.run(runtime, &["--root", "minimal", "--timeout", "1", "-e", &format!("MARK={mark}")], "sleep 20");
        assert_eq!(
            (o["outcome"].as_str(), o["limit"].as_str()),
            (Some("timed_out"), Some("limits.wall_ms")),
            "{runtime}: {o:#}"
        );
        assert_eq!((place.left(), running(&mark)), (vec![], vec![]), "{runtime}");
        if !is_root() {
            continue; // without a cgroup memory is sampled, which the supervisor's own tests are about
        }
        let fill = "head -c 400000000 /dev/zero | tail -c 400000000 | wc -c"; // tail keeps it all
        let o = place.run(runtime, &["--root", "minimal", "--memory", "200m"], fill);
        assert_eq!(
            (o["outcome"].as_str(), o["limit"].as_str()),
            (Some("limit_exceeded"), Some("limits.memory_mb")),
            "{runtime}: {o:#}"
        );
        let o = place.run(runtime, &["--root", "minimal", "--memory", "200m"], "head -c 400000000 /dev/zero | wc -c");
        assert_eq!(o["stdout"], "400000000\n", "the twin, which keeps nothing: {runtime}: {o:#}");
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

#[test]
fn a_directory_and_a_tarball_are_roots_and_stay_as_they_are() {
    if !has_busybox() {
        return; // which has been said
    }
    for runtime in runtimes() {
        let place = Place::new();
        let root = place.root();
        let tarball = place.directory.path().join("root.tar.gz");
        let tar = Command::new("tar").arg("-C").arg(&root).arg("-czf").arg(&tarball).arg(".").status().unwrap();
        assert!(tar.success());
        let listed = |path: &Path| {
            let found = Command::new("find").arg(path).args(["-printf", "%P %m %s\\n"]).output().unwrap();
            let mut names: Vec<_> = String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect();
            names.sort();
            assert!(names.len() > 10, "{names:?}");
            names
        };
        // Nor need it be the caller's to write.
        for name in ["dev", "sys"] {
            std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(0o555)).unwrap();
        }
        let before = listed(&root);
        let script = "cat /etc/mark; (echo x > /etc/mark) 2>/dev/null || echo refused; echo x > /tmp/x && cat /tmp/x";
        for options in [["--root", root.to_str().unwrap()], ["--image", tarball.to_str().unwrap()]] {
            let o = place.run(runtime, &options, script);
            assert_eq!(o["stdout"], "of this root\nrefused\nx\n", "{runtime} {options:?}: {o:#}");
        }
        assert_eq!(listed(&root), before, "{runtime}");
        assert_eq!(std::fs::read_to_string(root.join("etc/mark")).unwrap(), "of this root\n");
        // One that lacks a mount point is refused, and not changed.
        std::fs::remove_dir(root.join("proc")).unwrap();
        let o = place.run(runtime, &["--root", root.to_str().unwrap()], "true");
        assert_eq!(o["outcome"], "setup_failed", "{runtime}: {o:#}");
        let said = o["error"]["message"].as_str().unwrap();
        assert!(said.contains("/proc"), "{runtime}: {said}");
        assert!(!root.join("proc").exists());
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

#[test]
fn unshowable_working_directory_gets_a_hint() {
    let Some(runtime) = runtimes().first().copied() else { return };
    let place = Place::new();
    for number in 0..20_001 {
        std::fs::File::create(place.directory.path().join(number.to_string())).unwrap();
    }
    let o = place.run(runtime, &["--root", "minimal"], "echo runs");
    assert_eq!((&o["outcome"], &o["error"]["step"]), (&"setup_failed".into(), &"filesystem.mounts".into()), "{o:#}");
    let hint = o["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("the working directory") && hint.contains("-w /"), "{hint}");
    let o = place.run(runtime, &["--root", "minimal", "-w", "/"], "echo runs");
    assert_eq!(o["stdout"], "runs\n", "{o:#}");
}

#[test]
fn fifo_as_etc_passwd_is_refused_and_a_file_is_not() {
    if !has_busybox() {
        return; // which has been said
    }
    for runtime in runtimes() {
        for list in ["etc/passwd", "etc/group"] {
            let place = Place::new();
            let root = place.root();
            let options = ["--root", root.to_str().unwrap()];
            std::fs::write(root.join(list), "").unwrap();
            let o = place.run(runtime, &options, "echo runs");
            assert_eq!(o["stdout"], "runs\n", "{runtime}: {o:#}");
            std::fs::remove_file(root.join(list)).unwrap();
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(rustix::fs::CWD, root.join(list), rustix::fs::FileType::Fifo, mode, 0).unwrap();
            let o = place.run(runtime, &options, "echo runs");
            assert_eq!(o["outcome"], "setup_failed", "{runtime}: {o:#}");
            let said = o["error"]["message"].as_str().unwrap();
            assert!(said.contains(list) && said.contains("FIFO"), "{runtime}: {said}");
            assert_eq!(place.left(), [""; 0], "{runtime}");
        }
    }
}

#[test]
fn link_in_a_tarball_changes_nothing_on_the_host() {
    if !has_busybox() {
        return; // which has been said
    }
    for runtime in runtimes() {
        let place = Place::new();
        let root = place.root();
        let victim = place.directory.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o700)).unwrap();
        let run = |name: &str| {
            let tarball = place.directory.path().join(name);
            let tar = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tarball).arg(".").status().unwrap();
            assert!(tar.success());
            place.run(runtime, &["--image", tarball.to_str().unwrap(), "-w", "/"], "echo runs")
        };
        assert_eq!(run("good.tar")["stdout"], "runs\n", "{runtime}");
        std::fs::remove_dir(root.join("tmp")).unwrap();
        symlink(&victim, root.join("tmp")).unwrap();
        let o = run("evil.tar");
        let (said, hint) = (o["error"]["message"].as_str().unwrap(), o["error"]["hint"].as_str().unwrap());
        assert!(said.contains("nothing to mount /tmp on") && hint.contains("no link"), "{runtime}: {o:#}");
        assert_eq!(std::fs::metadata(&victim).unwrap().mode() & 0o7777, 0o700, "{runtime}");
        assert_eq!(std::fs::read_dir(&victim).unwrap().count(), 0, "{runtime}");
    }
}

#[test]
fn hanging_runtime_is_killed_by_the_next_owner() {
    if !runtimes().contains(&"runc") {
        return; // which has been said
    }
    let place = Place::new();
    let fake = place.directory.path().join("runc");
    let waits = format!("1000.{}", std::process::id());
    let script =
        format!("#!/bin/sh\n[ \"$1\" = --version ] && echo 'runc version 1.2.3' && exit\nexec sleep {waits}\n");
    std::fs::write(&fake, script).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command("runc", &["--root", "minimal"]);
    command.env("COFFERDAM_RUNC", &fake).args(["--", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut owner = command.spawn().unwrap();
    let noted = || {
        let alive = place.left().into_iter().find(|path| path.contains("/cache/oci/cofferdam-"));
        alive.is_some_and(|path| std::fs::read(Path::new(&path).join("alive")).is_ok_and(|text| !text.is_empty()))
    };
    eventually("it waits, and is noted", Duration::from_secs(10), || !running(&waits).is_empty() && noted());
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(!running(&waits).is_empty(), "it is not killed with its owner, for it might finish");
    let o = place.run("runc", &["--root", "minimal"], "echo next");
    assert_eq!(o["stdout"], "next\n", "{o:#}");
    eventually("it is ended", Duration::from_secs(10), || running(&waits).is_empty());
    let left: Vec<String> = place.left().into_iter().filter(|path| Path::new(path).join("owner").exists()).collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn a_root_with_a_device_is_refused_and_without_it_is_not() {
    if !is_root() {
        return; // who is not root can make none, and opens one inside with no more rights than outside
    }
    for runtime in runtimes() {
        let place = Place::new();
        let root = place.root();
        let options = ["--root", root.to_str().unwrap()];
        let o = place.run(runtime, &options, "echo runs");
        assert_eq!(o["stdout"], "runs\n", "{runtime}: {o:#}");
        let (mode, null) = (rustix::fs::Mode::from_raw_mode(0o666), rustix::fs::makedev(1, 3));
        let device = root.join("etc/null");
        rustix::fs::mknodat(rustix::fs::CWD, &device, rustix::fs::FileType::CharacterDevice, mode, null).unwrap();
        let o = place.run(runtime, &options, "echo runs");
        assert_eq!(o["outcome"], "setup_failed", "{runtime}: {o:#}");
        assert!(o["error"]["message"].as_str().unwrap().contains("etc/null is a device"), "{runtime}: {o:#}");
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

#[test]
fn next_run_removes_the_leftovers_of_a_killed_owner() {
    for runtime in runtimes() {
        let place = Place::new();
        let mark = marker();
        let mut command = place.command(runtime, &["--root", "minimal", "-e", &format!("MARK={mark}")]);
        let command = command.args(["--", "sh", "-c", "echo there; sleep 300"]).stdout(Stdio::piped());
        let mut owner = command.spawn().unwrap();
        let mut there = [0; 6];
        std::io::Read::read_exact(owner.stdout.as_mut().unwrap(), &mut there).unwrap();
        let left = place.left();
        let bundle =
            left.iter().find(|path| path.contains("/cache/oci/")).unwrap_or_else(|| panic!("{runtime}: {left:?}"));
        let id = Path::new(bundle).file_name().unwrap().to_str().unwrap().to_owned();
        kill_process(Pid::from_child(&owner), Signal::KILL).unwrap();
        owner.wait().unwrap();
        eventually("everything of it has ended", Duration::from_secs(10), || {
            running(&id).is_empty() && running(&mark).is_empty()
        });
        assert!(place.left().iter().any(|path| path.contains(&id)), "the bundle tells of it");
        // A living one's is not touched by the sweep that finds it.
        let mut alive = place.command(runtime, &["--root", "minimal"]);
        let alive = alive.args(["--", "sh", "-c", "echo there; sleep 5; echo lives"]).stdout(Stdio::piped());
        let mut alive = alive.spawn().unwrap();
        std::io::Read::read_exact(alive.stdout.as_mut().unwrap(), &mut there).unwrap();
        let o = place.run(runtime, &["--root", "minimal"], "echo next");
        assert_eq!(o["stdout"], "next\n", "{runtime}: {o:#}");
        // The one that lives looks as well, and may be the one who removes it.
        eventually("what the dead owner left is gone", Duration::from_secs(4), || {
            !place.left().iter().any(|path| path.contains(&id)) && cgroups(&id) == 0
        });
        let output = alive.wait_with_output().unwrap();
        assert_eq!((output.stdout.as_slice(), output.status.success()), (&b"lives\n"[..], true), "{runtime}");
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

#[test]
fn killed_owner_leaves_no_process_and_next_run_cleans_up() {
    for runtime in runtimes() {
        let place = Place::new();
        let state = place.state.path().display().to_string();
        let mut seen = Vec::new();
        for round in 0..12u64 {
            let mark = marker();
            let mut command = place.command(runtime, &["--root", "minimal", "-e", &format!("MARK={mark}")]);
            command.args(["--", "sleep", "300"]).stdout(Stdio::null()).stderr(Stdio::null());
            let mut owner = command.spawn().unwrap();
            // From before there is anything to after the start, and most of them in between.
            if round % 2 == 0 {
                eventually("there is a container", Duration::from_secs(10), || {
                    place.left().iter().any(|path| path.contains("/cache/oci/cofferdam-"))
                });
            }
            std::thread::sleep(Duration::from_millis(round * round));
            seen.extend(place.left().iter().filter_map(|path| Some(Path::new(path).file_name()?.to_str()?.to_owned())));
            owner.kill().unwrap();
            owner.wait().unwrap();
            eventually("everything of it has ended", Duration::from_secs(10), || {
                running(&state).is_empty() && running(&mark).is_empty()
            });
        }
        assert!(!seen.is_empty(), "none got as far as a container");
        let o = place.run(runtime, &["--root", "minimal"], "echo next");
        assert_eq!(o["stdout"], "next\n", "{runtime}: {o:#}");
        // One killed before it could say whose it is waits for its time; no cgroup has been made for that one.
        let left: Vec<String> =
            place.left().into_iter().filter(|path| Path::new(path).join("owner").exists()).collect();
        assert_eq!(left, [""; 0], "{runtime}");
        seen.sort();
        seen.dedup();
        for id in seen {
            assert_eq!(cgroups(&id), 0, "{runtime}: {id}");
        }
    }
}

#[test]
fn error_of_a_runtime_is_reported_and_leaves_nothing() {
    let place = Place::new();
    let fake = place.directory.path().join("runc");
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'runc version 1.2.3' && exit\n\
                  echo '{\"level\":\"error\",\"msg\":\"runc run failed: no luck \\u001b[31mtoday\"}' > \"$4\"\nexit 1\n";
    std::fs::write(&fake, script).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command("runc", &["--root", "minimal", "--json"]);
    let (code, o) = outcome_of(command.env("COFFERDAM_RUNC", &fake), &["--", "true"]);
    let said = o["error"]["message"].as_str().unwrap();
    assert_eq!((code, &o["outcome"]), (125, &"setup_failed".into()), "{o:#}");
    assert!(said.contains("runc run failed: no luck") && !said.contains('\u{1b}'), "{said}");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn error_output_of_the_runtime_is_not_the_programs() {
    let place = Place::new();
    let fake = place.directory.path().join("runc");
    // It gives up only after the plan is there, as a mount that is refused does, and says so on what would be the program's.
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'runc version 1.2.3' && exit\n\
                  echo 'no luck' >&2; sleep 0.3\n\
                  echo '{\"level\":\"error\",\"msg\":\"runc run failed: no luck\"}' > \"$4\"\nexit 1\n";
    std::fs::write(&fake, script).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command("runc", &["--root", "minimal", "--json"]);
    let (code, o) = outcome_of(command.env("COFFERDAM_RUNC", &fake), &["--", "true"]);
    assert_eq!((code, &o["outcome"]), (125, &"setup_failed".into()), "{o:#}");
    assert!(o["error"]["message"].as_str().unwrap().contains("runc run failed: no luck"), "{o:#}");
    assert_eq!(place.left(), [""; 0]);
}

#[test]
fn bind_keeps_stricter_mount_attributes_of_its_source() {
    for runtime in runtimes() {
        // In a mount namespace of its own; a user's is in a user namespace, and what is mounted there stays as it is in those below.
        let place = Place::new();
        let source = open_directory();
        let at = source.path().display();
        let drop = if is_root() { "" } else { "setpriv --inh-caps=-all --ambient-caps=-all" };
        let script = format!(
            "mount -t tmpfs -o noexec,nosuid,nodev,noatime none {at} && echo yes > {at}/file && chmod 755 {at} && exec {drop} \"$@\""
        );
        let inner = place.command(runtime, &["--root", "minimal", "-v", &format!("{at}:/mnt")]);
        let mut outer = Command::new("unshare");
        if !is_root() {
            outer.args(["-U", "--map-current-user", "--keep-caps"]);
        }
        outer.args(["-m", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(inner.get_program());
        let inside = "cat /mnt/file; (echo x > /mnt/x) 2>/dev/null || echo refused";
        outer.args(inner.get_args()).args(["--", "sh", "-c", inside]);
        outer.current_dir(place.directory.path()).env("COFFERDAM_STATE", place.state.path()).stdin(Stdio::null());
        let output = outer.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "yes\nrefused\n", "{runtime}: {said}");
        assert_eq!(place.left(), [""; 0], "{runtime}");
    }
}

#[test]
fn kept_files_belong_to_this_user_alone() {
    let Some(runtime) = runtimes().first().copied() else { return };
    let place = Place::new();
    place.run(runtime, &["--root", "minimal"], "true");
    for below in ["cache/roots", "cache/oci"] {
        let found = std::fs::metadata(place.state.path().join(below)).unwrap();
        assert_eq!((found.mode() & 0o777, found.uid()), (0o700, rustix::process::geteuid().as_raw()), "{below}");
    }
}

/// Holds as many keys as its user may have but for the first argument, frees them the second argument's seconds later, and runs
/// the rest. Keys of processes that ended count for a while, so it goes on taking what becomes free.
const KEYS: &str = r#"
import ctypes, os, subprocess, sys, threading, time
add_key, keyctl = (217, 219) if os.uname().machine == "aarch64" else (248, 250)
libc = ctypes.CDLL(None, use_errno=True)
keys, names = [], iter(range(1 << 30))
def fill(until):
    while not until():
        while (key := libc.syscall(add_key, b"user", b"k%d" % next(names), b"x", 1, -2)) >= 0:
            keys.append(key)
        assert ctypes.get_errno() == 122, ctypes.get_errno()
        time.sleep(0.002)
def free(several):
    for key in several:
        libc.syscall(keyctl, 9, key, -2)
# Who has no session keyring gets the first one beyond the quota.
assert libc.syscall(keyctl, 1, None) > 0
begun = time.monotonic()
# All of them may still be those of the process before.
fill(lambda: time.monotonic() > begun + (0.7 if keys else 30))
assert keys
free([keys.pop() for _ in range(int(sys.argv[1]))])
released = threading.Event()
def later():
    released.set()
    time.sleep(0.1)
    free(keys)
timer = threading.Timer(float(sys.argv[2]), later)
timer.start()
if sys.argv[1] == "0":
    threading.Thread(target=fill, args=[released.is_set]).start()
code = subprocess.run(sys.argv[3:], stdin=subprocess.DEVNULL).returncode
timer.cancel()
released.set()
sys.exit(code)
"#;

#[test]
fn a_used_up_quota_of_keys_is_waited_for() {
    if !is_root() {
        eprintln!("skipped: only root has a user whose keys are no other test's");
        return;
    }
    let place = open_directory();
    let program = place.path().join("cofferdam");
    std::fs::copy(env!("CARGO_BIN_EXE_cofferdam"), &program).unwrap();
    let state = place.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(3_911_111), Some(3_911_111)).unwrap();
    let run = |free: &str, seconds: &str, backend: &str| {
        let output = Command::new("setpriv")
            .args(["--reuid=3911111", "--regid=3911111", "--clear-groups", "--inh-caps=-all", "--"])
            .args(["/usr/bin/python3", "-c", KEYS, free, seconds])
            .arg(&program)
            .args(["run", "--backend", backend, "--root", "minimal", "--best-effort=filesystem,network,process,limits"])
            .args(["--", "echo", "ran"])
            .current_dir(place.path())
            .env("COFFERDAM_STATE", &state)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let containers: Vec<String> =
        runtimes().into_iter().filter(|name| *name != "runsc").map(|name| format!("oci:{name}")).collect();
    for backend in containers.iter().map(String::as_str).chain(["bubblewrap"]) {
        let (code, stdout, said) = run("1", "1", backend);
        assert_eq!((code, &*stdout), (Some(0), "ran\n"), "{backend} needs one key: {said}");
        let (code, stdout, said) = run("0", "0.5", backend);
        assert_eq!((code, &*stdout), (Some(0), "ran\n"), "{backend} waits: {said}");
        let (code, _, said) = run("0", "60", backend);
        assert_eq!(code, Some(125), "{backend} does without: {said}");
        assert!(said.contains("Disk quota exceeded") && said.contains("kernel.keys.maxkeys"), "{said}");
    }
}
