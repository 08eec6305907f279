//! Long runs that show what short tests cannot: that nothing is left or lost after thousands of kills at random points, and
//! under hundreds of hostile sandboxes at once.
//!
//! `cargo xtask soak` runs them for the time given; `tests/smoke.rs` runs a short piece of each with the suite.
#![forbid(unsafe_code)]

pub mod host;
pub mod kills;
pub mod load;
