//! Any bytes as what a session's agent writes to its channel.
#![no_main]

#[path = "../../crates/engine/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| untrusted::frames(bytes));
