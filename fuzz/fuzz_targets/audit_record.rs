//! Any bytes as the lines of an audit trail.
#![no_main]

#[path = "../../crates/audit/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| untrusted::trail(bytes));
