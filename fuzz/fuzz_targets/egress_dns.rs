//! Any bytes as a query to the resolver inside a sandbox.
#![no_main]

#[path = "../../crates/egress/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| untrusted::dns(bytes));
