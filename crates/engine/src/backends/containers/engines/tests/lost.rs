//! Engines that are killed, or stop answering, in the middle of a run: engines of these tests' own.

use super::*;

fn signal(pid: u32, signal: &str) {
    let sent = std::process::Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status();
    assert!(sent.expect("kill").success());
}

/// An engine of its own, and a container that sleeps in it.
fn sleeping(kind: Kind, work: &TempDir) -> Option<(Daemon, ContainerEngine, Box<dyn StartedContainer>, String)> {
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|value| value == "1");
    if uid() != 0 {
        return None; // the fixture's daemons of other users are tried as root
    }
    if let Some(reason) = kind.missing() {
        assert!(!must, "skipped {kind:?}: {reason}");
        eprintln!("skipped {kind:?}: {reason}");
        return None;
    }
    let daemon = Daemon::own(kind).expect("an engine");
    let flavour = if kind == Kind::Docker { Flavour::Docker } else { Flavour::Podman };
    let (name, value) = daemon.environment();
    let engine = ContainerEngine::found(flavour, &Around(HashMap::from([(name, value)]))).expect("it is found");
    let asked = spec(Rootfs::Tarball(tarball(work)), &work.path().join("out"), "sleep 600");
    let ready = engine.prepare(&asked.root, &asked.mounts, &quiet).expect("a root");
    let made = start(&engine, &asked, &ready).expect("started");
    Some((daemon, engine, made, asked.id))
}

#[test]
fn a_run_whose_engine_is_killed_ends_and_says_what_is_left() {
    for kind in [Kind::Docker, Kind::Podman] {
        let work = work();
        let Some((daemon, engine, made, name)) = sleeping(kind, &work) else { continue };
        assert_eq!(made.gave_up(), None);
        signal(daemon.daemon().expect("a daemon"), "KILL");
        let since = Instant::now();
        let failure = loop {
            if let Some(failure) = made.gave_up() {
                break failure;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "{kind:?}");
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(failure.message.contains("its engine is lost"), "{kind:?} {failure:?}");
        assert!(made.kill().is_err(), "{kind:?}: nobody can be asked to");
        let ended = made.end();
        assert_eq!(ended.oom_killed, None, "{kind:?}");
        assert!(ended.problems.iter().any(|problem| problem.contains(&name)), "{kind:?} {:?}", ended.problems);
        assert!(since.elapsed() < Duration::from_secs(20), "{kind:?}: nothing waits for what is gone");
        // Whoever comes next is told as well.
        let failure = engine.prepare(&Rootfs::Image("x".into()), &[], &quiet).expect_err("nobody answers");
        assert_eq!(failure.step.as_str(), "engine", "{kind:?} {failure:?}");
    }
}

#[test]
fn an_engine_that_hangs_is_not_waited_for_for_ever() {
    let work = work();
    let Some((daemon, _engine, made, name)) = sleeping(Kind::Docker, &work) else { return };
    let pid = daemon.daemon().expect("a daemon");
    signal(pid, "STOP");
    let since = Instant::now();
    let ended = made.end();
    signal(pid, "CONT");
    let told = |what: &str| ended.problems.iter().any(|problem| problem.contains(what));
    assert!(told(&name) && told("no answer within"), "{:?}", ended.problems);
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
}
