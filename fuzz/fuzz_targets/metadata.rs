//! Any bytes as an artifact's metadata, or as what a wrapper bundles.
#![no_main]

#[path = "../../crates/config/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| untrusted::of_artifact(bytes));
