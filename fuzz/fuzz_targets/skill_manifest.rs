//! Any bytes as a skill's manifest.
#![no_main]

#[path = "../../crates/config/tests/common/skills.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod skills;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| skills::manifest(bytes));
