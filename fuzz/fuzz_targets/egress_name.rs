//! Any bytes as the name of a host, in a query, a URL or a Host header.
#![no_main]

#[path = "../../crates/egress/tests/common/decisions.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod decisions;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| decisions::name(bytes));
