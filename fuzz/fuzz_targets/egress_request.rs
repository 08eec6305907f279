//! Any bytes as what a client sends as HTTP.
#![no_main]

#[path = "../../crates/egress/tests/common/requests.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod requests;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    requests::requests(bytes);
    requests::head(bytes);
});
