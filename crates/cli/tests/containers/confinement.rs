//! What a container cannot do, each beside the same thing where it is allowed.

use cofferdam_test_containers::engine::uid;

use crate::Test;
use crate::world::{World, carrying, marker, open};

pub(crate) const TESTS: &[Test] = &[
    ("confinement::the_root_is_read_only", the_root_is_read_only),
    ("confinement::no_capability_and_no_new_privileges", no_capability_and_no_new_privileges),
    ("confinement::it_is_not_the_hosts_root", it_is_not_the_hosts_root),
    ("confinement::no_spawn_means_no_child_and_no_other_program", no_spawn),
    ("confinement::a_script_starts_although_nothing_is_spawned", a_script_starts),
    ("confinement::refusal_is_reported_with_its_evidence", refusal_is_reported),
    ("confinement::nothing_of_the_host_is_there", nothing_of_the_host),
    ("confinement::volumes_have_the_modes_of_their_options", volumes),
    ("confinement::volume_of_the_home_shows_no_state", a_volume_with_the_home),
    ("confinement::what_no_container_has_is_refused", what_no_container_has),
    ("confinement::the_hosts_programs_in_an_empty_root", minimal),
];

fn the_root_is_read_only(world: &World) {
    // The /dev of Podman and gVisor is a tmpfs that root inside can write; there is none without root.
    let own_dev = uid() != 0 && ["podman", "oci:runsc"].contains(&world.runtime.backend);
    let script = "for d in / /etc /bin /data $DEV /sys /proc/sys/kernel; do touch $d/x 2>/dev/null && echo wrote $d; done; \
                  touch /tmp/x && echo scratch; mount -o remount,rw / 2>/dev/null && echo remounted; true";
    let dev = if own_dev { "DEV=" } else { "DEV=/dev" };
    let run = world.run(&["-e", dev], &["/bin/sh", "-c", script]);
    assert_eq!(run.text("stdout"), "scratch\n", "{run:?}");
}

fn no_capability_and_no_new_privileges(world: &World) {
    let run = world.run(&[], &["/bin/sh", "-c", "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status"]);
    let value = |name: &str| {
        let line = run.text("stdout").lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().nth(1).map(str::to_owned))
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(value(set).as_deref(), Some("0000000000000000"), "{set} {run:?}");
    }
    if let Some(ambient) = value("CapAmb:") {
        assert_eq!(ambient, "0000000000000000");
    }
    // gVisor does not show what it holds.
    if world.runtime.backend != "oci:runsc" {
        assert_eq!((value("NoNewPrivs:").as_deref(), value("Seccomp:").as_deref()), (Some("1"), Some("2")), "{run:?}");
    }
}

fn it_is_not_the_hosts_root(world: &World) {
    if uid() != 0 || world.runtime.backend == "oci:runsc" {
        return; // a user's containers have no other ids, and gVisor's processes are not the host's
    }
    let mark = marker();
    let mut child = world.holding(&[], &mark);
    let found = carrying(&mark);
    let owners: Vec<u32> = found
        .iter()
        .filter_map(|pid| std::fs::metadata(format!("/proc/{pid}")).ok())
        .map(|meta| std::os::unix::fs::MetadataExt::uid(&meta))
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!owners.is_empty(), "the program cannot be found on the host");
    assert!(owners.iter().all(|owner| *owner != 0), "{found:?} {owners:?}");
}

fn no_spawn(world: &World) {
    if world.runtime.backend == "oci:runsc" {
        let run = world.run(&["--no-spawn"], &["/bin/probe", "noop"]);
        if run.code == 125 {
            assert!(run.outcome["error"].to_string().contains("process.spawn"), "{run:?}");
            return;
        }
    }
    for (program, allowed) in [
        (&["/bin/probe", "children", "1"][..], "1 children\n"),
        (&["/bin/probe", "exec", "/bin/probe"][..], "done nothing\n"),
    ] {
        let refused = world.run(&["--no-spawn"], program);
        assert!(refused.code == 10 || refused.text("outcome") == "violation", "{program:?}: {refused:?}");
        assert!(!refused.text("stdout").contains(allowed), "{program:?}: {refused:?}");
        assert_eq!(
            world.run(&[], program).text("stdout").replace("what is noop?", "done nothing"),
            allowed,
            "{program:?}"
        );
    }
    let threads = world.run(&["--no-spawn"], &["/bin/probe", "threads", "4"]);
    assert_eq!(threads.text("stdout"), "4 threads\n", "{threads:?}");
}

fn a_script_starts(world: &World) {
    let run = world.run(&["--no-spawn"], &["/bin/script", "given"]);
    if run.code == 125 && run.outcome["error"].to_string().contains("process.spawn") {
        assert_eq!(world.runtime.backend, "oci:runsc", "{run:?}");
        return;
    }
    assert_eq!((run.code, run.text("stdout")), (0, "script given\n"), "{run:?}");
}

fn refusal_is_reported(world: &World) {
    // A socket, which no runtime's own filter refuses: what that filter refuses, such as a mount, is not reported.
    let run = world.run(&[], &["/bin/probe", "reach", "127.0.0.1", "9"]);
    assert_eq!((run.code, run.text("outcome")), (10, "exited"), "{run:?}");
    if world.runtime.backend == "oci:runsc" {
        // gVisor has no notification listener, so the list is never complete.
        assert_eq!(run.outcome["violations_complete"], false, "{run:?}");
        return;
    }
    let violations = run.outcome["violations"].as_array().unwrap();
    let socket = violations.iter().find(|v| v["operation"] == "socket").unwrap_or_else(|| panic!("{run:?}"));
    assert_eq!(
        (socket["evidence"].as_str(), socket["field"].as_str()),
        (Some("kernel"), Some("$.network.mode")),
        "{run:?}"
    );
    assert!(world.run(&[], &["/bin/probe", "noop"]).refused().is_empty(), "what was not refused is told");
    let mount = world.run(&[], &["/bin/probe", "mount"]);
    assert_eq!(mount.code, 10, "{mount:?}");
    let message = mount.refused().contains(&"mount");
    assert!(
        message || mount.outcome["violations_complete"] == false,
        "a list without it is called complete: {mount:?}"
    );
}

fn nothing_of_the_host(world: &World) {
    let script = "ls /dev | tr '\\n' ' '; echo; hostname; cat /proc/sys/kernel/random/boot_id 2>/dev/null; env; id -u; \
                  ls /proc | grep -c '^[0-9]'; test -e /proc/kcore && head -c 1 /proc/kcore 2>/dev/null | wc -c";
    let mut command = world.command();
    command.args(["--json", "--image", world.image.to_str().unwrap(), "--hostname", "box", "-e", "GIVEN=yes"]);
    let output = command.args(["--", "/bin/sh", "-c", script]).env("OF_THE_CALLER", "secret").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let outcome: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let said = outcome["stdout"].as_str().unwrap();
    assert!(said.contains("box") && said.contains("GIVEN=yes"), "{outcome}");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(!said.contains(boot.trim()) && !said.contains("OF_THE_CALLER"), "{said}");
    let devices = said.lines().next().unwrap();
    let own: &[&str] = if world.runtime.backend == "oci:runsc" { &[] } else { &["fuse", "tun"] }; // gVisor's are no host's
    for device in ["vda", "sda", "loop0", "kmsg", "mem", "kvm"].iter().chain(own) {
        assert!(!devices.split(' ').any(|name| name == *device), "{device} is there: {devices}");
    }
    assert!(devices.contains("null"), "{devices}");
}

fn volumes(world: &World) {
    let (read, write) = (world.path("read"), world.path("write"));
    for directory in [&read, &write] {
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("there"), "there\n").unwrap();
        crate::world::open(directory, 0o777);
        crate::world::open(&directory.join("there"), 0o666);
    }
    let options = ["-v", &format!("{}:/read", read.display()), "-v", &format!("{}:/write:rw", write.display())];
    let script = "cat /read/there /write/there; echo new > /read/there && echo changed; echo new > /write/made && echo made; \
                  cp /bin/probe /write/probe; chmod 755 /write/probe; /write/probe noop || echo noexec";
    // Root's containers run as another user. That they cannot write files of others is reported; here all users may write.
    let effort = ["--best-effort=filesystem.mounts,filesystem.protected"];
    let run = world.run(&[&options[..], &effort].concat(), &["/bin/sh", "-c", script]);
    let said = run.text("stdout");
    assert!(said.starts_with("there\nthere\nmade\n") && !said.contains("changed"), "{run:?}");
    assert_eq!(std::fs::read_to_string(read.join("there")).unwrap(), "there\n");
    assert_eq!(std::fs::read_to_string(write.join("made")).unwrap(), "new\n");
}

fn a_volume_with_the_home(world: &World) {
    let home = world.path("home");
    let (state, profiles) = (home.join(".local/share/cofferdam"), home.join(".omni/sandbox/profiles"));
    for directory in [&state, &profiles] {
        std::fs::create_dir_all(directory).unwrap();
    }
    for directory in [&home, &home.join(".omni"), &home.join(".omni/sandbox")] {
        open(directory, 0o777);
    }
    let image = world.image.to_str().unwrap();
    let run = |script: &str| {
        let mut command = world.command();
        command.env("HOME", &home).env("COFFERDAM_STATE", &state).args(["--json", "-w", "/", "--image", image]);
        command.args(["-v", &format!("{}:/h:rw,exec", home.display())]);
        command.arg("--best-effort=filesystem.mounts,filesystem.protected,filesystem.deny");
        let output = command.args(["--", "/bin/sh", "-c", script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|e| panic!("{e}: {text} {output:?}"))
    };
    // What each of several runs finds: gVisor may mount what is at one place in another order each time.
    for i in 0..3 {
        let message = run(&format!(
            "cd /h; for d in .omni .omni/sandbox/profiles .local/share/cofferdam .local/share/cofferdam/init \
             .local/share/cofferdam/texts; do touch $d/planted 2>/dev/null && echo wrote $d; done; \
             for d in runs cache; do ls .local/share/cofferdam/$d 2>/dev/null; done; touch beside-{i} && echo beside"
        ));
        assert_eq!(message["stdout"], "beside\n", "{message:#}");
    }
    assert!(home.join("beside-2").exists(), "the control: what is beside them can be written");
    for directory in [&home.join(".omni"), &profiles, &state, &state.join("init"), &state.join("texts")] {
        assert!(directory.is_dir() && !directory.join("planted").exists(), "{}", directory.display());
    }
}

fn what_no_container_has(world: &World) {
    let here = world.path("").display().to_string();
    let layer = world.run(&["-v", &format!("{here}:/work:cow")], &["/bin/true"]);
    assert!(layer.code == 125 && layer.outcome["error"].to_string().contains("filesystem.mounts"), "{layer:?}");
    let pipes = world.path("pipes");
    std::fs::create_dir(&pipes).unwrap();
    open(&pipes, 0o755);
    let (pipe, shown) = (pipes.join("pipe"), format!("{}:/pipes:ro", pipes.display()));
    assert!(world.run(&["-v", &shown], &["/bin/ls", "/pipes"]).code == 0, "the twin");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let passing = world.run(&["-v", &shown], &["/bin/true"]);
    let said = passing.outcome["error"].to_string();
    assert!(passing.code == 125 && said.contains(&format!("{} in it is a FIFO", pipe.display())), "{passing:?}");
    let nested = world.run(&["--nested-sandboxes"], &["/bin/true"]);
    assert!(nested.code == 125 && nested.outcome["error"].to_string().contains("nested"), "{nested:?}");
    let mut terminal = world.command();
    terminal.args(["-t", "--image", world.image.to_str().unwrap(), "--", "/bin/true"]);
    let output = terminal.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("terminal"), "{output:?}");
    let host = world.run_in(&["--root", "host"], &["/bin/true"]);
    assert_eq!((host.code, host.step()), (125, "filesystem.root"), "{host:?}");
}

fn minimal(world: &World) {
    let script = "echo works; test -e /etc/shadow && cat /etc/shadow; test -d /root && ls /root; touch /usr/x";
    let run = world.run_in(&["--root", "minimal"], &["sh", "-c", script]);
    assert_eq!(run.text("stdout"), "works\n", "{run:?}");
    assert_ne!(run.code, 0, "/usr can be written: {run:?}");
}
