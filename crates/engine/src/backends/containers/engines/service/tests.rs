//! A real service of Podman's: who starts it, who shares it, what is left of it.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::super::discover::{DiscoveryHost, Real};
use super::*;
use crate::failure::FailedStep;

/// A directory in which Podman serves. What that has started ends with it: without root it serves from a second process, and
/// a third one keeps the user namespace for as long as nobody ends it.
struct Work(tempfile::TempDir);

impl Work {
    fn new() -> Work {
        Work(tempfile::Builder::new().prefix("cdp").tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The processes that have this directory for their home, as those of the script below have.
    fn processes(&self) -> Vec<rustix::process::Pid> {
        let home = format!("HOME={}", self.path().display());
        let ours = |entry: &fs::DirEntry| {
            let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
            variables.split(|b| *b == 0).any(|variable| variable == home.as_bytes())
        };
        let pid = |entry: fs::DirEntry| rustix::process::Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
        fs::read_dir("/proc").unwrap().flatten().filter(ours).filter_map(pid).collect()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for _ in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
                    Ok(()) | Err(rustix::io::Errno::SRCH) => {} // it may have ended by itself
                    Err(error) => eprintln!("cannot end {pid:?}: {error}"),
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("processes of {} are left", self.path().display());
    }
}

/// A program that is Podman with directories of its own.
fn podman(work: &Path) -> Option<PathBuf> {
    let real = Real.program("podman");
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|value| value == "1");
    let Some(real) = real else {
        assert!(!must, "skipped: podman is missing\nhint: apt-get install podman");
        eprintln!("skipped: podman is missing\nhint: apt-get install podman");
        return None;
    };
    let conf = work.join("containers.conf");
    std::fs::write(
        &conf,
        format!("[engine]\nevents_logger=\"none\"\nlock_type=\"file\"\ntmp_dir=\"{}/tmp\"\n", work.display()),
    )
    .unwrap();
    let script = format!(
        "exec env CONTAINERS_CONF={0}/containers.conf HOME={0} XDG_RUNTIME_DIR={0} {1} --root {0}/root --runroot {0}/run \
         --storage-driver vfs --cgroup-manager cgroupfs \"$@\"\n",
        work.display(),
        real.display()
    );
    let program = work.join("podman");
    // Written by another process: what a thread of this one starts meanwhile would hold it open.
    let write = "printf '#!/bin/sh\\n%s' \"$1\" > \"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").args(["-c", write]).arg(&program).arg(script).status().unwrap().success());
    Some(program)
}

/// Ends what a service of this process has started.
fn end(service: &PodmanService) -> Option<u32> {
    service.child.lock().unwrap().as_mut().map(|child| {
        child.kill().unwrap();
        child.wait().unwrap();
        child.id()
    })
}

#[test]
fn a_service_of_podmans_is_started_answers_and_is_started_again_when_it_has_ended() {
    let work = Work::new();
    let Some(program) = podman(work.path()) else { return };
    let service = Arc::new(PodmanService::below(work.path(), &program).unwrap());
    service.ensure().unwrap_or_else(|error| panic!("{error}"));
    let mode = fs::metadata(&service.directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else's");
    let client = super::super::client::EngineClient::new(&service.socket(), Some(service.clone())).unwrap();
    assert!(client.ping().unwrap().podman);
    // It ends by itself after a while; here it is ended.
    let first = end(&service);
    assert!(client.ping().unwrap().podman, "and it is there again");
    assert_ne!(first, service.child.lock().unwrap().as_ref().map(Child::id));
    end(&service);
}

#[test]
fn who_would_start_the_same_service_shares_it() {
    let work = Work::new();
    let Some(program) = podman(work.path()) else { return };
    let services: Vec<PodmanService> = (0..4).map(|_| PodmanService::below(work.path(), &program).unwrap()).collect();
    std::thread::scope(|scope| {
        for service in &services {
            scope.spawn(|| service.ensure().unwrap_or_else(|error| panic!("{error}")));
        }
    });
    let started: Vec<u32> = services.iter().filter_map(end).collect();
    assert_eq!(started.len(), 1, "one of them started it: {started:?}");
    let other = PodmanService::below(work.path(), Path::new("/another/podman")).unwrap();
    assert_ne!(other.directory, services[0].directory, "of another program it is another");
}

#[test]
fn what_dead_services_left_is_removed_and_nothing_else() {
    let work = tempfile::tempdir().unwrap();
    let named = |name: &str| work.path().join(format!("{DIRECTORY}{name}"));
    let make = |name: &str, lock: bool| {
        own(&named(name)).unwrap();
        fs::write(named(name).join("said"), "last words").unwrap();
        if lock {
            lock_file(&named(name), true).unwrap();
        }
        named(name)
    };
    let (dead, fresh, starting, alive) =
        (make("dead", true), make("fresh", false), make("starting", true), make("alive", true));
    let old = make("4711-01234567", false);
    let hour = Duration::from_secs(3600);
    File::open(&old).unwrap().set_modified(std::time::SystemTime::now() - hour).unwrap();
    let held = lock_file(&starting, false).unwrap();
    held.lock().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(alive.join("podman.sock")).unwrap();
    let victim = work.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("kept"), "").unwrap();
    fs::write(victim.join("lock"), "").unwrap();
    symlink(&victim, named("link")).unwrap();
    sweep(work.path());
    assert!(!dead.exists() && !old.exists(), "nobody has a use for these");
    assert!(fresh.exists(), "somebody may just be making it");
    assert!(starting.exists(), "somebody is about to listen in it");
    assert!(alive.exists(), "somebody listens");
    assert!(victim.join("kept").exists() && named("link").is_symlink(), "a link is nobody's directory");
    drop((held, listener));
    sweep(work.path());
    assert!(!starting.exists() && !alive.exists(), "the twins, now that nobody does");
}

#[test]
fn a_directory_that_others_may_use_is_not_used() {
    let work = tempfile::tempdir().unwrap();
    let program = Path::new("/usr/bin/podman");
    let first = PodmanService::below(work.path(), program).unwrap().directory;
    assert_eq!(PodmanService::below(work.path(), program).unwrap().directory, first, "the twin");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o777)).unwrap();
    assert_ne!(PodmanService::below(work.path(), program).unwrap().directory, first);
    fs::remove_dir(&first).unwrap();
    let victim = work.path().join("victim");
    own(&victim).unwrap();
    symlink(&victim, &first).unwrap();
    assert_ne!(PodmanService::below(work.path(), program).unwrap().directory, first);
}

#[test]
fn a_program_that_cannot_serve_says_why() {
    let work = tempfile::tempdir().unwrap();
    let program = work.path().join("podman");
    let write = "printf '#!/bin/sh\\necho no such command >&2\\nexit 125\\n' > \"$0\" && chmod 755 \"$0\"";
    assert!(Command::new("sh").args(["-c", write]).arg(&program).status().unwrap().success());
    let service = PodmanService::below(work.path(), &program).unwrap();
    let error = service.ensure().unwrap_err().to_string();
    assert!(error.contains("no such command"), "{error}");
    assert!(!service.directory.exists(), "nothing is left");
    let failure = PodmanService::of_this_process(&program).unwrap_err();
    assert!(failure.step == FailedStep::Engine && failure.hint.is_some(), "{failure:?}");
}

#[test]
fn the_target_of_a_link_in_a_foreign_directory_is_no_service() {
    let work = tempfile::tempdir().unwrap();
    let service = PodmanService::below(work.path(), Path::new("/no/podman")).unwrap();
    let other = work.path().join("other.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&other).unwrap();
    symlink(&other, service.socket()).unwrap();
    assert!(service.listens(), "in a directory of ours it is ours to say");
    fs::set_permissions(&service.directory, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(!service.listens(), "here anybody may have put it");
    assert!(service.ensure().unwrap_err().to_string().contains("this user's alone"));
}
