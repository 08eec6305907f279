//! The OS mechanisms: namespaces, mounts, Landlock, seccomp, cgroups, rlimits, and the code after clone.
//!
//! ```text
//! streams, lifeline, status, events, cgroup ────── spawn ─────▶ init (pid 1) ─▶ payload
//!                                                                ▲
//! Recipe (what init is to do, as data) ─ encode ─▶ plan, mounts ─┘ letter
//! ```
//!
//! This crate knows no policy: it does what a recipe says, and says what failed. It is the only crate with unsafe code.
//! The program that runs after clone stands in `init/` beside `src/`, without libc and without an allocator.

pub mod apart;
pub mod cgroup;
mod child;
mod clone;
pub mod foreign;
pub mod host;
pub mod landlock;
pub mod letter;
pub mod memfd;
pub mod mountfd;
pub mod netns;
pub mod process;
#[allow(dead_code, reason = "init uses the rest")]
#[path = "../init/reach.rs"]
pub mod reach;
pub mod recipe;
pub mod seatbelt;
pub mod seccomp;
pub mod spawn;
pub mod status;
#[allow(dead_code, missing_docs, reason = "init uses the rest")]
#[path = "../init/sys.rs"]
mod sys;
#[path = "../init/wire.rs"]
#[allow(dead_code, reason = "init uses the rest")]
pub mod wire;

pub use recipe::Recipe;
pub use spawn::{Launch, Running, spawn};
