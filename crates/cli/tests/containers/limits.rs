//! Limits: each is enforced and reported as that limit, and does not affect a program that stays below it. A limit that a
//! runtime cannot enforce here is refused when it is named.

use crate::Test;
use crate::world::{WITH_CGROUPS, World};

pub(crate) const TESTS: &[Test] = &[
    ("limits::memory", memory),
    ("limits::cpu_share", cpu_share),
    ("limits::cpu_time", cpu_time),
    ("limits::processes", processes),
    ("limits::files", files),
    ("limits::files_without_contents_end_with_the_memory", empty_files),
    ("limits::scratch_space_has_a_size_and_runs_no_program", scratch_space),
    ("limits::terminals_are_bounded_by_a_runtime", terminals),
];

fn memory(world: &World) {
    if !world.holds("limits.memory_mb", WITH_CGROUPS, &["--memory", "128m"]) {
        return;
    }
    let over = world.run(&["--memory", "128m"], &["/bin/probe", "hog", "400"]);
    assert_eq!(
        (over.code, over.text("outcome"), over.text("limit")),
        (137, "limit_exceeded", "limits.memory_mb"),
        "{over:?}"
    );
    let below = world.run(&["--memory", "128m"], &["/bin/probe", "hog", "32"]);
    assert_eq!((below.code, below.text("stdout")), (0, "32 MiB\n"), "{below:?}");
    let used = below.outcome["memory_used_bytes"].as_u64().unwrap();
    assert!((32 << 20..128 << 20).contains(&used), "{used}");
}

fn cpu_share(world: &World) {
    if !world.holds("limits.cpu_millis", WITH_CGROUPS, &["--cpus", "0.2"]) {
        return;
    }
    // CPU time as the kernel counts it: a program in gVisor sees another time. How much it got without a limit depends on what
    // else the machine does, so that one of several runs will do.
    let share = |cpus: &str| {
        let run = world.run(&["--cpus", cpus], &["/bin/probe", "burn", "0.4"]);
        assert_eq!(run.code, 0, "{run:?}");
        run.outcome["cpu_time_seconds"].as_f64().unwrap() / run.outcome["execution_time_ms"].as_f64().unwrap() * 1e3
    };
    let limited = share("0.1");
    if world.runtime.backend == "oci:runsc" {
        return; // its kernel's own start counts, and so short a run is little besides
    }
    assert!(limited < 0.25, "{limited} of a processor");
    let free: Vec<f64> = (0..5).map(|_| share("2")).take_while(|share| *share < limited * 1.3).collect();
    assert!(free.len() < 5, "{limited} of a processor, and without the limit {free:?}");
}

fn cpu_time(world: &World) {
    let over = world.run(&["--cpu-time", "1s"], &["/bin/probe", "burn", "30"]);
    if over.code == 125 {
        assert!(over.outcome["error"].to_string().contains("limits.cpu_seconds"), "{over:?}");
        let effort = ["--cpu-time", "1s", "--best-effort=limits.cpu_seconds"];
        let over = world.run(&effort, &["/bin/probe", "burn", "30"]);
        let by_signal = world.runtime.backend == "oci:runsc" && over.outcome["signal"] == 24;
        assert!(by_signal || (over.code, over.text("limit")) == (137, "limits.cpu_seconds"), "{over:?}");
    } else if world.runtime.backend == "oci:runsc" && over.text("outcome") == "signalled" {
        // gVisor's own count runs ahead of the kernel's, and ends it first.
        assert_eq!(over.outcome["signal"], 24, "{over:?}");
    } else {
        let seen = (over.code, over.text("outcome"), over.text("limit"));
        assert_eq!(seen, (137, "limit_exceeded", "limits.cpu_seconds"), "{over:?}");
    }
    let below = world.run(&["--cpu-time", "5s", "--best-effort=limits.cpu_seconds"], &["/bin/probe", "burn", "0.2"]);
    assert_eq!(below.code, 0, "{below:?}");
}

fn processes(world: &World) {
    // gVisor's own threads count where its sandbox is held by a cgroup.
    let gvisor = world.runtime.backend == "oci:runsc";
    let must: &[&str] = if gvisor { &[] } else { &["docker", "podman", "oci:crun", "oci:runc"] };
    if !world.holds("limits.processes", must, &["--pids", "64"]) {
        return;
    }
    let over = world.run(&["--pids", "20"], &["/bin/probe", "children", "40"]);
    assert!(over.text("stdout").contains("children, then"), "{over:?}");
    let below = world.run(&["--pids", "80"], &["/bin/probe", "children", "40"]);
    assert_eq!((below.code, below.text("stdout")), (0, "40 children\n"), "{below:?}");
}

fn files(world: &World) {
    let script = "ulimit -n; ulimit -c; head -c 3000000 /dev/zero > /tmp/big; echo $?; stat -c %s /tmp/big";
    let run = world.run(&["--open-files", "100", "--file-size", "1m"], &["/bin/sh", "-c", script]);
    let lines: Vec<&str> = run.text("stdout").lines().collect();
    assert_eq!(lines.first(), Some(&"100"), "{run:?}");
    assert_eq!(lines.get(1), Some(&"0"), "core dumps are allowed: {run:?}");
    assert_ne!(lines.get(2), Some(&"0"), "{run:?}");
    assert_eq!(lines.last(), Some(&"1048576"), "{run:?}");
}

fn empty_files(world: &World) {
    let options = ["--memory", "128m", "--tmpfs-size", "16m", "--timeout", "120s", "--best-effort=limits.memory_mb"];
    if !world.holds("limits.tmpfs_mb", WITH_CGROUPS, &["--tmpfs-size", "16m"]) {
        return;
    }
    let over = world.run(&options, &["/bin/probe", "empty", "100000000"]);
    if ["podman", "oci:runsc"].contains(&world.runtime.backend) {
        // They have no limit on the number of files: the memory of the files is limited.
        let seen = (over.text("outcome"), over.text("limit"));
        assert_eq!(seen, ("limit_exceeded", "limits.memory_mb"), "{over:?}");
    } else {
        assert!(over.text("stdout").contains("refused a file: No space left"), "{over:?}");
    }
    let below = world.run(&options, &["/bin/probe", "empty", "2000"]);
    assert_eq!((below.code, below.text("stdout")), (0, "2000 files\n"), "{below:?}");
}

fn scratch_space(world: &World) {
    let script = "head -c 2000000 /dev/zero > /tmp/small && echo fits; head -c 30000000 /dev/zero > /tmp/big || echo full; \
                  cp /bin/probe /tmp/probe; rm /tmp/big; cp /bin/probe /tmp/probe; chmod 755 /tmp/probe; /tmp/probe noop || echo noexec; probe noop";
    let options = ["--tmpfs-size", "16m", "--best-effort=limits.tmpfs_mb"];
    let run = world.run(&options, &["/bin/sh", "-c", script]);
    assert_eq!(run.text("stdout"), "fits\nfull\nnoexec\ndone nothing\n", "{run:?}");
}

fn terminals(world: &World) {
    // An engine mounts them without a bound, and gVisor has its own.
    if !["oci:crun", "oci:runc"].contains(&world.runtime.backend) {
        return;
    }
    // Descriptors of the shell's own: as many as have room.
    let script = "n=0; fd=10; while [ $n -lt $1 ]; do eval \"exec $fd<>/dev/ptmx\" 2>/dev/null || break; n=$((n+1)); \
                  fd=$((fd+1)); echo $n > /tmp/n; done; true";
    let opened = |wanted: &str| {
        let run = world.run(&[], &["/bin/sh", "-c", &format!("({script}); cat /tmp/n"), "sh", wanted]);
        run.text("stdout").trim().parse::<u32>().unwrap_or_else(|e| panic!("{e}: {run:?}"))
    };
    assert_eq!(opened("40"), 40, "the twin: as many as may be");
    assert_eq!(opened("200"), 64);
}
