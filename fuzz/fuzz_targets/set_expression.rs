//! Any text as an assignment of `--set`.
#![no_main]

#[path = "../../crates/profiles/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| untrusted::set(bytes));
