//! A short piece of each long run, with the suite.

use std::time::Duration;

use cofferdam_soak::{kills, load};

#[test]
fn random_kills_leave_nothing() {
    let report = kills::run(80, 7).unwrap();
    assert_eq!(report.rounds, 80);
    assert!(report.too_late < 40, "{report:?}");
}

#[test]
fn a_program_that_is_killed_before_its_exec_ends_the_run() {
    let killed = kills::before_exec(40).unwrap();
    assert!(killed > 20, "{killed}");
}

#[test]
fn hostile_sandboxes_lose_and_leave_nothing() {
    let report = load::run(24, Duration::from_secs(10), 7).unwrap();
    assert!(report.runs >= 24 && report.connections > 0, "{report:?}");
}
