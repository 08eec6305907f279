//! What init shares with the library's `seccomp`: the classifier of notified calls and the table of system calls.
//!
//! Owns nothing. Both files use `core` alone.

#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../src/seccomp/calls.rs"]
pub mod calls;
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../src/seccomp/classify.rs"]
pub mod classify;
