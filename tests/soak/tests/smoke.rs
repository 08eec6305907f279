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
fn hostile_sandboxes_lose_and_leave_nothing() {
    let report = load::run(24, Duration::from_secs(10), 7).unwrap();
    assert!(report.runs >= 24 && report.connections > 0, "{report:?}");
}
