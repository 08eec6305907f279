//! Any bytes as the TLS greeting of a connection out of a sandbox, and as what follows it.
#![no_main]

#[path = "../../crates/egress/tests/common/untrusted.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod untrusted;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    untrusted::hello(bytes);
    untrusted::second_hello(bytes);
});
