//! The limit on the memory of all runs of a user, in a cgroup of the test's own: no other runs meet the lowered limit.
//! On version 1; the guest's test of cgroups has version 2.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const MIB: u64 = 1 << 20;

/// A directory in the memory hierarchy, and in it the one over all runs with a limit that an administrator wrote.
struct Tree(PathBuf);

impl Tree {
    fn new(mib: u64) -> Option<Tree> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let memory = own.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let name = format!("cofferdam-test-{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let tree = Tree(Path::new("/sys/fs/cgroup/memory").join(memory.trim_start_matches('/')).join(name));
        std::fs::create_dir_all(tree.all_runs()).unwrap();
        std::fs::write(tree.all_runs().join("memory.limit_in_bytes"), (mib * MIB).to_string()).unwrap();
        Some(tree)
    }

    fn all_runs(&self) -> PathBuf {
        self.0.join("cofferdam-user-0")
    }

    fn read(&self, file: &str) -> u64 {
        std::fs::read_to_string(self.all_runs().join(file)).unwrap().trim().parse().unwrap()
    }

    /// The command, started in this tree.
    fn cofferdam(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0);
        command.arg(env!("CARGO_BIN_EXE_cofferdam")).stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str], mib: &str) -> Command {
        let mut command = self.cofferdam();
        command.args(["run", "--memory", "120m", "--timeout", "60s"]).args(options);
        command.args(["--", PYTHON, "-c", HOLD, mib]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Fails where a run has left a directory in it.
        let removed = std::fs::remove_dir(self.all_runs());
        if std::thread::panicking() {
            return;
        }
        removed.unwrap();
        // The command was in this one, which counts as busy for a moment after its end.
        eventually("nothing is in the test's cgroup", Duration::from_secs(5), || std::fs::remove_dir(&self.0).is_ok());
    }
}

const HOLD: &str = "
import os, sys, time
block = bytearray(os.urandom(4096)) * (int(sys.argv[1]) * 256)
time.sleep(4)
";

fn tree(mib: u64) -> Option<Tree> {
    if !needs("cgroup memory") || !needs("memory of all runs") {
        return None;
    }
    let tree = Tree::new(mib);
    if tree.is_none() {
        eprintln!("skipped: no memory hierarchy of version 1");
    }
    tree
}

#[test]
fn runs_within_their_own_limits_stay_below_that_of_all_together() {
    let Some(tree) = tree(160) else { return };
    let outcomes = |sizes: &[&str]| -> Vec<Value> {
        let started: Vec<_> = sizes.iter().map(|mib| tree.run(&["--json"], mib).spawn().unwrap()).collect();
        started.into_iter().map(|child| parse(&child.wait_with_output().unwrap())).collect()
    };
    // The control: together below the limit.
    for o in outcomes(&["20", "90"]) {
        ended(&o, "exited", None);
        assert_eq!((&o["exit_code"], &o["error"]), (&0.into(), &Value::Null), "{o:#}");
        assert_eq!(o["enforcement"]["limits.memory_mb"], serde_json::json!({ "strength": "full", "reason": "cgroup" }));
    }
    let all = outcomes(&["20", "90", "90"]);
    let killed: Vec<&Value> = all.iter().filter(|o| o["outcome"] != "exited").collect();
    assert_eq!(killed.len(), 1, "{all:#?}");
    assert_eq!(all[0]["exit_code"], 0, "{all:#?}");
    let o = killed[0];
    ended(o, "signalled", None);
    assert_eq!(
        (&o["signal"], &o["success"], &o["error"]["step"]),
        (&9.into(), &false.into(), &"memory".into()),
        "{o:#}"
    );
    let message = o["error"]["message"].as_str().unwrap();
    for part in ["all runs of this user together met their limit of 160 MiB", "within its own limit, limits.memory_mb"]
    {
        assert!(message.contains(part), "{message}");
    }
    assert!(o["error"]["hint"].as_str().unwrap().contains("run fewer at a time"), "{o:#}");
    assert_eq!(common::violations(o), []);
    assert!(o["memory_used_bytes"].as_u64().unwrap() < 119 * MIB, "{o:#}");
    let peak = tree.read("memory.max_usage_in_bytes");
    assert!(peak <= 160 * MIB, "{peak}");
    // Beyond its own limit, where that of all has been met before.
    let o = &outcomes(&["150"])[0];
    ended(o, "limit_exceeded", Some("limits.memory_mb"));
    assert_eq!(o["error"], Value::Null);
    // The limit is as it was written, before and after.
    assert_eq!(tree.read("memory.limit_in_bytes"), 160 * MIB);
}

#[test]
fn the_limit_of_all_runs_is_named_where_it_ends_one() {
    let Some(tree) = tree(100) else { return };
    let output = tree.run(&[], "110").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(137), "{text}");
    assert!(text.contains("together met their limit of 100 MiB") && text.contains("run fewer at a time"), "{text}");
    assert!(!text.contains("stopped at the limit"), "{text}");
    let output = tree.run(&[], "50").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn doctor_and_the_outcome_say_where_nothing_limits_all_runs() {
    let Some(tree) = tree(100) else { return };
    let row = || {
        // Without the container engines, whose services would stay in the test's cgroup for a while.
        let mut doctor = tree.cofferdam();
        let report = parse(&doctor.args(["doctor", "--json"]).env("PATH", "/nonexistent").output().unwrap());
        report["mechanisms"].as_array().unwrap().iter().find(|r| r["name"] == "memory of all runs").unwrap().clone()
    };
    let reason = || {
        let o = parse(&tree.run(&["--json", "--memory", "64m"], "1").output().unwrap());
        ended(&o, "exited", None);
        assert_eq!(o["enforcement"]["limits.memory_mb"]["strength"], "full", "its own limit is held");
        o["enforcement"]["limits.memory_mb"]["reason"].as_str().unwrap().to_owned()
    };
    let found = row();
    assert_eq!(found["available"], true, "{found}");
    assert!(found["evidence"].as_str().unwrap().starts_with("100 MiB, by "), "{found}");
    assert_eq!(reason(), "cgroup");
    let mode = |mode| std::fs::set_permissions(tree.all_runs(), std::os::unix::fs::PermissionsExt::from_mode(mode));
    mode(0o777).unwrap();
    let found = row();
    assert_eq!(found["available"], false, "{found}");
    let why = "can be written by others than its owner";
    assert!(found["evidence"].as_str().unwrap().contains(why), "{found}");
    let reason = reason();
    assert!(reason.contains("nothing limits all runs together") && reason.contains(why), "{reason}");
}
