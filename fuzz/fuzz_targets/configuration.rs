//! Any bytes as a configuration: a policy, nsjail's own, or an older `nsjail.json`.
#![no_main]

#[path = "../../crates/compat/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| untrusted::configuration(bytes));
