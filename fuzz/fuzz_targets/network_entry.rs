//! Any text as what a policy says of the network: an entry, ports, a URL, a path. What is read is written in one form.
#![no_main]

#[path = "../../crates/policy/tests/common/texts.rs"]
mod texts;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        texts::hold(text);
    }
});
