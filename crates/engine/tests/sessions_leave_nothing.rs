//! Two hundred sessions one after the other, in a process of their own: what they leave behind is counted, and is nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_engine::session::{Agent, SessionCall, SessionKey, SessionLimits, SessionStart, Sessions};
use cofferdam_engine::{Cancel, Engine, Output};
use cofferdam_policy::{BackendName, Field, Policy};

/// Open descriptors, threads, children, and what lies in the directories for temporary files and of this program.
fn there(dirs: &[String]) -> (usize, usize, usize, Vec<usize>) {
    let count = |dir: &str| std::fs::read_dir(dir).map_or(0, Iterator::count);
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let children = tasks
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("children")).ok())
        .map(|c| c.split_whitespace().count())
        .sum();
    (count("/proc/self/fd"), count("/proc/self/task"), children, dirs.iter().map(|d| count(d)).collect())
}

/// Directories of this process's own cgroups.
fn cgroups() -> Vec<String> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    own.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (names, path) = (parts.next()?, parts.next()?);
            let own = format!("/sys/fs/cgroup/{names}{path}");
            // In the one of memory the runs' lie in another, which stays.
            let user = format!("{own}/cofferdam-user-{}", rustix::process::geteuid().as_raw());
            Some([own, user])
        })
        .flatten()
        .collect()
}

#[test]
fn sessions_one_after_the_other_leave_nothing() {
    let program = "/bin/bash";
    assert!(Path::new(program).exists(), "no {program}");
    for backend in [BackendName::Jail, BackendName::Landlock] {
        let policy = {
            let mut policy = Policy::base();
            policy.command.argv = vec![program.into()];
            policy.backend = backend;
            policy.enforcement.best_effort = Field::ALL.iter().copied().collect();
            policy
        };
        let engine = Arc::new(Engine::probe());
        if let Err(failure) = engine.prepare(&policy) {
            eprintln!("skipped: {}", failure.message);
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{}", failure.message);
            continue;
        }
        let sessions = Sessions::new(engine, SessionLimits::default()).unwrap();
        let round = |from: usize, to: usize| {
            for i in from..to {
                let key = SessionKey { owner: "me".into(), name: i.to_string() };
                let start = || {
                    Ok(SessionStart { policy: policy.clone(), agent: Agent::Shell, hands_over: None, recorded: None })
                };
                let ask = |code: &str| {
                    let (output, cancel) = (Output::Capture, Cancel::default());
                    let call = SessionCall {
                        code: code.into(),
                        timeout: Duration::from_secs(30),
                        output,
                        cancel,
                        unheard_when_cancelled: false,
                    };
                    sessions.call(&key, "shell", start, call).unwrap()
                };
                assert!(ask("(setsid sleep 1000 &); sleep 1000 & exec 9</dev/null").success());
                match i % 3 {
                    0 => assert!(ask("exit 1").ended.is_some()),
                    1 => assert!(ask("kill -9 $$").ended.is_some()),
                    _ => assert!(sessions.end(&key).is_some()),
                }
            }
        };
        let dirs = [cgroups(), vec![std::env::temp_dir().display().to_string(), "/dev/shm".into()]].concat();
        round(0, 6); // what is made once is made
        let before = there(&dirs);
        round(6, 200);
        let mut after = there(&dirs);
        // The thread that looks for idle sessions may still be looking at the last one.
        for _ in 0..100 {
            if after.0 <= before.0 && after.1 <= before.1 && after.2 <= before.2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            after = there(&dirs);
        }
        assert!(after.0 <= before.0 && after.1 <= before.1 && after.2 <= before.2, "{backend:?} {before:?} {after:?}");
        // Others write there, too; two hundred of them would be ours.
        let more = before.3.iter().zip(&after.3).map(|(a, b)| b.saturating_sub(*a)).max();
        assert!(more < Some(100), "{backend:?}: {before:?} {after:?} {dirs:?}");
        assert!(sessions.list().is_empty());
    }
}
