//! Any bytes as an operator's configuration of skills.
#![no_main]

#[path = "../../crates/config/tests/common/skills.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod skills;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| skills::operator(bytes));
