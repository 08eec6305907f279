//! The engines themselves: they start, are shared between processes, run a container, and leave nothing behind, not
//! even after SIGKILL. They run as the user of the tests; dockerd and other users' engines take root.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cofferdam_test_containers::engine::{clear_below, uid};
use cofferdam_test_containers::{Engine, Kind, image};
use serde_json::json;

const NOBODY: u32 = 65534;

fn kinds() -> Vec<Kind> {
    if uid() == 0 { vec![Kind::Docker, Kind::Podman, Kind::PodmanOf(NOBODY)] } else { vec![Kind::PodmanOf(uid())] }
}

/// Those that can be started here. What is missing is said; it is a failure where everything must work.
fn present() -> Vec<Kind> {
    let missing = |kind: &Kind| match kind.missing() {
        None => true,
        Some(reason) => {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "skipped {kind:?}: {reason}");
            eprintln!("skipped {kind:?}: {reason}");
            false
        }
    };
    kinds().into_iter().filter(missing).collect()
}

fn container(engine: &Engine, reference: &str, name: &str) -> (i64, String) {
    let body = json!({ "Image": reference, "User": "0:0", "HostConfig": { "NetworkMode": "none" } });
    let made = engine
        .api(
            "POST",
            &format!("/containers/create?name={name}"),
            Some(("application/json", body.to_string().as_bytes())),
        )
        .expect("created");
    assert_eq!(made.status, 201, "{}", made.json());
    let started = engine.api("POST", &format!("/containers/{name}/start"), None).expect("started");
    assert_eq!(started.status, 204, "{}\n{}", started.json(), engine.log());
    let ended = engine.api("POST", &format!("/containers/{name}/wait"), None).expect("ended");
    let said = engine.api("GET", &format!("/containers/{name}/logs?stdout=1"), None).expect("said");
    let removed = engine.api("DELETE", &format!("/containers/{name}?force=1&v=1"), None).expect("removed");
    assert_eq!(removed.status, 204, "{}", removed.json());
    (ended.json()["StatusCode"].as_i64().expect("a code"), String::from_utf8_lossy(&said.body).into_owned())
}

/// Processes that carry the mark of engines in this directory.
fn marked(directory: &Path) -> Vec<String> {
    let mark = format!("COFFERDAM_TEST_ENGINE={}", directory.display());
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .flatten()
        .filter(|entry| {
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|variable| variable.starts_with(mark.as_bytes()))
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn every_engine_loads_an_image_with_settings_of_its_own_and_runs_it() {
    let work = tempfile::tempdir().expect("a directory");
    let (root, archive) = (work.path().join("root"), work.path().join("image.tar"));
    image::root(&root, &[]).expect("a root");
    let settings = json!({ "Env": ["OF_THE_IMAGE=its own"], "Cmd": ["/bin/sh", "-c", "echo $OF_THE_IMAGE; exit 3"] });
    image::archive(&root, &archive, "cofferdam-test:settings", &settings).expect("an archive");
    for kind in present() {
        let engine = Engine::shared(kind).expect("an engine");
        engine.load(&archive).expect("loaded");
        let name = format!("fixture-{}", std::process::id());
        let (code, said) = container(&engine, "cofferdam-test:settings", &name);
        assert_eq!((code, said.contains("its own")), (3, true), "{kind:?}: {said}");
        assert!(engine.inspect(&name).is_err(), "{kind:?}: it is still there");
    }
}

#[test]
fn the_directory_of_an_engine_that_has_ended_is_cleared_and_no_other() {
    let work = tempfile::tempdir().expect("a directory");
    let make = |name: String| {
        let at = work.path().join(name).join("p");
        std::fs::create_dir_all(&at).expect("a directory");
        at
    };
    let (ended, runs) = (make(format!("cdt-{}-0000", uid())), make(format!("cdt-{}-1111", uid())));
    let (another, elsewhere) = (make("cdt-4294967294-0000".into()), make("cdto-1-0".into()));
    let alive = std::fs::File::create(runs.join("alive")).expect("a lock");
    alive.lock().expect("locked");
    let said = clear_below(work.path(), Duration::ZERO).expect_err("one runs");
    assert!(said.contains("still needs") && said.contains("1111"), "{said}");
    assert!(runs.exists() && another.exists() && elsewhere.exists());
    assert!(!ended.parent().is_some_and(Path::exists), "nobody needs it");
    drop(alive);
    clear_below(work.path(), Duration::ZERO).expect("the twin, now that it has ended");
    assert!(!runs.exists() && another.exists() && elsewhere.exists());
}

#[test]
fn an_engine_is_shared_by_all_who_need_it() {
    for kind in present() {
        let (one, two) = (Engine::shared(kind).expect("an engine"), Engine::shared(kind).expect("the same"));
        assert_eq!(one.socket(), two.socket());
        assert_eq!(one.daemon().expect("a daemon"), two.daemon().expect("a daemon"));
    }
}

#[test]
fn an_engine_of_its_own_leaves_neither_process_nor_directory() {
    for kind in present() {
        let engine = Engine::own(kind).expect("an engine");
        let directory = engine.socket().parent().and_then(Path::parent).expect("its directory").to_owned();
        assert!(!marked(&directory).is_empty(), "{kind:?} has no process");
        drop(engine);
        assert_eq!(marked(&directory), Vec::<String>::new(), "{kind:?}");
        assert!(!directory.exists(), "{kind:?}");
    }
}

#[test]
fn a_killed_supervisor_takes_the_engine_and_its_containers_along() {
    let work = tempfile::tempdir().expect("a directory");
    let (root, archive) = (work.path().join("root"), work.path().join("image.tar"));
    image::root(&root, &[]).expect("a root");
    image::archive(&root, &archive, "cofferdam-test:plain", &json!({})).expect("an archive");
    for kind in present() {
        let engine = Engine::own(kind).expect("an engine");
        let directory = engine.socket().parent().and_then(Path::parent).expect("its directory").to_owned();
        engine.load(&archive).expect("loaded");
        let token = format!("97{}", std::process::id());
        let body = json!({ "Image": "cofferdam-test:plain", "User": "0:0", "Cmd": ["/bin/sleep", token],
                           "HostConfig": { "NetworkMode": "none" } });
        let body = body.to_string();
        let made = engine.api("POST", "/containers/create?name=left", Some(("application/json", body.as_bytes())));
        assert_eq!(made.expect("created").status, 201);
        let started = engine.api("POST", "/containers/left/start", None).expect("started");
        assert_eq!(started.status, 204, "{}", started.json());
        let asleep = || {
            let found = Command::new("pgrep").args(["-f", &format!("^/bin/sleep {token}$")]).output().expect("pgrep");
            found.status.success()
        };
        assert!(asleep(), "{kind:?}: the container does not run");
        let daemon = engine.daemon().expect("a daemon");
        let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).expect("its parent");
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).expect("a parent").to_owned();
        let line = std::fs::read_to_string(format!("/proc/{parent}/cmdline")).expect("a supervisor");
        assert!(line.contains("supervisor.py") && line.contains(&directory.display().to_string()), "{line}");
        assert!(Command::new("kill").args(["-KILL", &parent]).status().expect("kill").success());
        eventually("something of the engine lives on", || marked(&directory).is_empty() && !asleep());
        drop(engine);
        assert!(!directory.exists(), "{kind:?}");
    }
}

#[test]
fn an_engine_that_does_not_start_shows_its_log() {
    // A directory that is too long for a socket's name.
    let work = tempfile::tempdir().expect("a directory");
    let long = work.path().join("a".repeat(120));
    std::fs::create_dir(&long).expect("a directory");
    let Some(kind) = present().pop() else { return };
    let output = Command::new("/usr/bin/python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("supervisor.py"))
        .arg(&long)
        .args([kind.backend(), &uid().to_string(), "0", "0"])
        .output()
        .expect("python3");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("ended with") && said.to_lowercase().contains("invalid argument"), "{said}");
    eventually("it is left", || marked(&long).is_empty());
}
