//! Any bytes as rules and questions to them, one in each line.
#![no_main]

#[path = "../../crates/egress/tests/common/decisions.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod decisions;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| decisions::rules(bytes));
