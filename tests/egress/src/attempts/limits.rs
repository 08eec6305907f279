//! Budgets. Only data.

use crate::attempt::{ALLOWED, Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Limits;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "too-many-connections",
        class: CLASS,
        what: "More connections at once than the policy has",
        options: &["--allow", "allowed.test", "--network-limit", "connections=5"],
        call: &["{attempt}", "at_once", "to=allowed.test", "count=12", "path=/at-once"],
        wants: "delivered 12 of 12",
        evidence: Evidence::Event(&["too_many_connections"]),
        may: ALLOWED,
        control: Control::Options(&["--allow", "allowed.test", "--network-limit", "connections=20"]),
        ..BASE
    },
    Attempt {
        name: "too-many-connections-of-a-host",
        class: CLASS,
        what: "More connections to one host than the policy has",
        options: &["--allow", "allowed.test", "--network-limit", "connections_per_host=5"],
        call: &["{attempt}", "at_once", "to=allowed.test", "count=12", "path=/at-once"],
        wants: "delivered 12 of 12",
        evidence: Evidence::Event(&["too_many_connections"]),
        may: ALLOWED,
        control: Control::Options(&["--allow", "allowed.test", "--network-limit", "connections_per_host=20"]),
        ..BASE
    },
    Attempt {
        name: "too-many-bytes-down",
        class: CLASS,
        what: "More bytes down than the run has",
        options: &["--allow", "allowed.test", "--network-limit", "down_mb=1"],
        call: &["{attempt}", "download", "to=allowed.test", "size=3000000"],
        wants: "all of it came",
        evidence: Evidence::Event(&["too_many_bytes"]),
        may: ALLOWED,
        control: Control::Options(&["--allow", "allowed.test", "--network-limit", "down_mb=10"]),
        ..BASE
    },
    Attempt {
        name: "too-many-bytes-down-of-a-host",
        class: CLASS,
        what: "More bytes down than a host has",
        options: &["--allow", "allowed.test", "--network-limit", "host_down_mb=1"],
        call: &["{attempt}", "download", "to=allowed.test", "size=3000000"],
        wants: "all of it came",
        evidence: Evidence::Event(&["too_many_bytes"]),
        may: ALLOWED,
        control: Control::Options(&["--allow", "allowed.test", "--network-limit", "host_down_mb=10"]),
        ..BASE
    },
    Attempt {
        name: "too-many-bytes-up",
        class: CLASS,
        what: "More bytes up than the run has",
        options: &["--allow", "allowed.test", "--network-limit", "up_mb=1"],
        call: &["{attempt}", "upload", "to=allowed.test", "size=3000000"],
        wants: "delivered",
        evidence: Evidence::Event(&["too_many_bytes"]),
        may: ALLOWED,
        control: Control::Options(&["--allow", "allowed.test", "--network-limit", "up_mb=10"]),
        ..BASE
    },
    Attempt {
        name: "too-many-bytes-up-of-a-host",
        class: CLASS,
        what: "More bytes up than a host has",
        options: &["--allow", "allowed.test", "--network-limit", "host_up_mb=1"],
        call: &["{attempt}", "upload", "to=allowed.test", "size=3000000"],
        wants: "delivered",
        evidence: Evidence::Event(&["too_many_bytes"]),
        may: ALLOWED,
        control: Control::Options(&["--allow", "allowed.test", "--network-limit", "host_up_mb=10"]),
        ..BASE
    },
];
