//! Runs in mode `allowlist` inside an embedding program: again and again, prewarmed, several at once, and what is left.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cofferdam_engine::{Cancel, Ending, Engine, Io, NetworkKind, Outcome, Prepared};
use cofferdam_policy::{NetworkMode, Policy};

/// These tests count this process's descriptors and children, so they take turns.
static TURN: Mutex<()> = Mutex::new(());

const PYTHON: &str = "/usr/bin/python3";

/// A program that knocks at this address and tells how that went, then does something else.
fn knock(address: &str, then: &str) -> Vec<String> {
    let code = format!(
        "import socket, time\ns = socket.socket(); s.settimeout(10)\ntry: s.connect(('{address}', 443)); s.recv(1)\n\
         except ConnectionResetError: print('reset', flush=True)\n{then}"
    );
    [PYTHON, "-c", &code].map(str::to_owned).to_vec()
}

/// `None`, and why, where there is no jail.
fn prepared(argv: Vec<String>) -> Option<Prepared> {
    let mut policy = Policy::base();
    policy.command.argv = argv;
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec!["a.example".parse().unwrap()];
    match Engine::probe().prepare(&policy) {
        Ok(prepared) => Some(prepared),
        Err(failure) => {
            eprintln!("skipped: {}", failure.message);
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{failure:?}");
            None
        }
    }
}

#[track_caller]
fn knocked_at(o: &Outcome, address: &str) {
    assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Exited, "reset\n"), "{o:?}");
    let network = o.network.as_ref().unwrap();
    let told: Vec<_> = network.events.iter().map(|e| (e.kind, e.address.map(|a| a.to_string()), e.port)).collect();
    assert_eq!(told, [(NetworkKind::Refused, Some(address.to_owned()), Some(443))], "{o:?}");
    assert_eq!((network.refused, network.connections, network.lost), (1, 0, 0), "{o:?}");
    let violations: Vec<_> = o.violations.iter().map(|v| v.object.as_deref().unwrap_or_default()).collect();
    assert_eq!(violations, [format!("{address}:443")], "{o:?}");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many there are once none has come or gone for a while: what a run held may be closed a moment after its end.
fn settled() -> usize {
    let (mut count, mut since, begun) = (descriptors(), Instant::now(), Instant::now());
    while since.elapsed() < Duration::from_millis(300) && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
        let now = descriptors();
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
    count
}

#[test]
fn every_run_staged_or_not_is_captured_and_leaves_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    for staged in [0, 2] {
        let Some(prepared) = prepared(knock("203.0.113.1", "")) else { return };
        let prepared = prepared.keep_ready(staged);
        for _ in 0..3 {
            knocked_at(&prepared.run(Io::default()), "203.0.113.1");
        }
        // As many as are there when nothing runs; those that are staged hold some, so they go first.
        drop(prepared);
        let before = settled();
        let Some(again) = self::prepared(knock("203.0.113.2", "")) else { return };
        let again = again.keep_ready(staged);
        for _ in 0..4 {
            knocked_at(&again.run(Io::default()), "203.0.113.2");
            std::thread::sleep(Duration::from_millis(20)); // time to stage the next one
        }
        drop(again);
        assert_eq!(settled(), before, "a run left descriptors in its owner, {staged} staged");
    }
}

#[test]
fn concurrent_runs_get_each_its_own_events() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let runs: Vec<_> = (1..=8).map(|i| format!("203.0.113.{i}")).collect();
    let threads: Vec<_> = runs
        .into_iter()
        .map(|address| {
            std::thread::spawn(move || {
                let Some(prepared) = prepared(knock(&address, "time.sleep(0.2)")) else { return };
                knocked_at(&prepared.run(Io::default()), &address);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_run_that_is_cancelled_takes_its_listeners_along() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let Some(prepared) = prepared(knock("203.0.113.1", "time.sleep(60)")) else { return };
    let cancel = Cancel::default();
    let io = Io { cancel: cancel.clone(), ..Io::default() };
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        cancel.cancel();
    });
    let begun = Instant::now();
    let o = prepared.run(io);
    canceller.join().unwrap();
    assert_eq!(o.outcome, Ending::Signalled, "{o:?}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(o.network.map(|network| network.refused), Some(1));
}
