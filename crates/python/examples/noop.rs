//! The in-process baseline for calls from Python: one policy, prepared once and run repeatedly.
//!
//! `noop POLICY RUNS THREADS` prints medians as JSON; python/bench/runs.py starts it.

use std::time::Instant;

use cofferdam_engine::{Engine, Io, Prepared};
use cofferdam_policy::{Policy, Stdin};

/// Median time of a run, milliseconds.
fn median(prepared: &Prepared, runs: usize) -> f64 {
    let mut taken: Vec<f64> = (0..runs)
        .map(|_| {
            let begun = Instant::now();
            assert!(prepared.run(Io::default()).success, "the program ran");
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    taken[taken.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize| arguments[at].parse::<usize>().expect("a number");
    let mut policy = Policy::decode(&std::fs::read(&arguments[1]).expect("the policy is there")).expect("it is one");
    policy.command.stdin = Stdin::Caller;
    let engine = Engine::probe();
    let plain = engine.prepare(&policy).expect("it can be held here");
    let alone = median(&plain, number(2));
    let each = (number(2) / number(3)).max(1);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..number(3) {
            scope.spawn(|| (0..each).for_each(|_| assert!(plain.run(Io::default()).success)));
        }
    });
    let rate = (each * number(3)) as f64 / begun.elapsed().as_secs_f64();
    let ready = median(&engine.prepare(&policy).expect("it can be held here").keep_ready(2), number(2));
    println!(
        "{}",
        serde_json::json!({ "run, ms": alone, "run, two kept ready, ms": ready, "32 threads, runs/s": rate })
    );
}
