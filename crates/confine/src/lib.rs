//! The OS mechanisms: namespaces, mounts, Landlock, seccomp, cgroups, rlimits, and the code after clone.
//!
//! ```text
//! streams, lifeline, status, events, cgroup ──────── spawn ──────▶ init (pid 1) ─▶ payload
//!                                                                   ▲
//! InitPlan (what init does, as data) ─ encode ─▶ plan, descriptors ─┘ control message
//! ```
//!
//! This crate knows no policy: it does what a plan says, and reports what failed. It is the only crate with unsafe code.
//! The program that runs after clone stands in `init/` beside `src/`, without libc and without an allocator.
//!
//! Without the feature `jail` none of that is there, only what a command of the caller's own is confined with: [`command`]
//! (Linux), [`seatbelt`] (text), and the pure parts that they need.

#[cfg(feature = "jail")]
pub mod capture;
#[cfg(feature = "jail")]
pub mod cgroup;
#[cfg(feature = "jail")]
mod child;
#[cfg(feature = "jail")]
mod clone;
#[cfg(target_os = "linux")]
pub mod command;
#[cfg(feature = "jail")]
pub mod control;
#[cfg(target_os = "linux")]
pub mod datagram;
#[cfg(feature = "jail")]
pub mod external;
#[cfg(feature = "jail")]
pub mod host;
#[cfg(feature = "jail")]
pub mod init_plan;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(feature = "jail")]
pub mod memfd;
#[cfg(feature = "jail")]
pub mod mountfd;
#[cfg(feature = "jail")]
#[path = "../init/netlink.rs"]
mod netlink;
#[cfg(feature = "jail")]
pub mod netns;
#[cfg(feature = "jail")]
pub mod other_cpu;
#[cfg(feature = "jail")]
mod plan_block;
#[cfg(feature = "jail")]
pub mod process;
#[allow(dead_code, reason = "init uses the rest")]
#[cfg(feature = "jail")]
#[path = "../init/reach.rs"]
pub mod reach;
pub mod seatbelt;
#[cfg(target_os = "linux")]
pub mod seccomp;
#[cfg(target_os = "linux")]
pub mod signals;
#[cfg(feature = "jail")]
pub mod spawn;
#[cfg(feature = "jail")]
pub mod status;
#[allow(dead_code, missing_docs, reason = "init uses the rest")]
#[cfg(feature = "jail")]
#[path = "../init/sys.rs"]
mod sys;
#[allow(dead_code, reason = "init uses the rest")]
#[cfg(target_os = "linux")]
#[path = "../init/uapi.rs"]
mod uapi;
#[cfg(feature = "jail")]
#[path = "../init/wire.rs"]
#[allow(dead_code, reason = "init uses the rest")]
pub mod wire;

#[cfg(feature = "jail")]
pub use init_plan::InitPlan;
#[cfg(feature = "jail")]
pub use spawn::{Launch, RunningInit, spawn};
