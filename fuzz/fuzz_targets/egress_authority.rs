//! Any bytes as the host and port of CONNECT, Host headers and URLs.
#![no_main]

#[path = "../../crates/egress/tests/common/requests.rs"]
#[allow(dead_code, reason = "each target uses one of them")]
mod requests;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| requests::authority(bytes));
