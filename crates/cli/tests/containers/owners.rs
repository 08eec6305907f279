//! Owners that are killed and engines that stop: no container runs on, and the next start removes what is left.

use std::process::Command;
use std::time::Duration;

use crate::Test;
use crate::world::{World, carrying, eventually, marker};

pub(crate) const TESTS: &[Test] = &[
    ("owners::killed_owner_leaves_nothing_that_runs", a_killed_owner),
    ("owners::a_living_owners_container_is_left_alone", a_living_owner),
    ("owners::a_finished_run_leaves_nothing", a_finished_run),
    ("owners::an_engine_that_is_stopped_in_the_middle_of_a_run", an_engine_that_is_stopped),
];

/// How long a container's processes may live on after its owner.
const SOON: Duration = Duration::from_secs(3);

fn a_killed_owner(world: &World) {
    let mark = marker();
    let mut child = world.holding(&[], &mark);
    let owner = child.id();
    if world.runtime.backend != "oci:runsc" {
        assert!(!carrying(&mark).is_empty(), "the program cannot be found on the host");
    }
    if world.engine().is_some() {
        assert_eq!(world.containers_of(owner).len(), 1);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the program runs on", SOON, || carrying(&mark).is_empty());
    eventually("the runtime runs on", SOON, || runtime_processes(owner).is_empty());
    let run = world.run(&[], &["/bin/true"]);
    assert_eq!(run.code, 0, "{run:?}");
    eventually("a container is left", SOON, || world.containers_of(owner).is_empty());
}

/// Processes of a runtime whose container this owner created, found by their arguments.
fn runtime_processes(owner: u32) -> Vec<i32> {
    let part = format!("-{owner}-");
    let mut found = Vec::new();
    for name in ["runsc", "crun", "runc", "conmon", "containerd-shim"] {
        let output = Command::new("pgrep").args(["-f", &format!("{name}.*cofferdam.*{part}")]).output().unwrap();
        found.extend(String::from_utf8_lossy(&output.stdout).lines().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    found
}

fn a_living_owner(world: &World) {
    let mark = marker();
    let mut child = world.holding(&[], &mark);
    assert_eq!(world.run(&[], &["/bin/true"]).code, 0);
    assert!(child.try_wait().unwrap().is_none(), "another run's start ended it");
    if world.engine().is_some() {
        assert_eq!(world.containers_of(child.id()).len(), 1);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn a_finished_run(world: &World) {
    let mark = marker();
    let image = world.image.to_str().unwrap();
    let mut child = world.command().args(["--image", image, "--", "/bin/sh", "-c", ": $0", &mark]).spawn().unwrap();
    let owner = child.id();
    assert!(child.wait().unwrap().success());
    assert_eq!((carrying(&mark), world.containers_of(owner)), (vec![], vec![]));
    assert_eq!(runtime_processes(owner), Vec::<i32>::new());
}

fn an_engine_that_is_stopped(world: &World) {
    if world.engine().is_none() {
        return;
    }
    let own = World::with_own_engine(world.runtime).unwrap();
    let mark = marker();
    let child = own.holding(&["--timeout", "20s"], &mark);
    let daemon = own.engine().unwrap().daemon().unwrap();
    assert!(Command::new("kill").args(["-KILL", &daemon.to_string()]).status().unwrap().success());
    // The supervisor of the test's engine ends what the engine has started.
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{message}");
    assert!(message.contains("cofferdam:"), "nothing is said: {message}");
    eventually("the program runs on", Duration::from_secs(20), || carrying(&mark).is_empty());
    let run = own.run(&[], &["/bin/true"]);
    assert_eq!((run.code, run.step()), (125, "engine"), "{run:?}");
}
