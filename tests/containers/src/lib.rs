//! Container engines and images for tests.
//!
//! ```text
//! test ─┐ shared lock                                    ┌─▶ dockerd, or podman's service: its own data, socket,
//! test ─┼─▶ DIRECTORY/holders ◀── watches ── supervisor ─┤   cgroup and mounts; no bridge, no firewall rules
//! test ─┘                                                └─◀ a guard, which ends what is left should it be killed
//! ```
//!
//! The first test that needs an engine starts it, all others of the same user share it, whichever processes they run
//! in, and it ends by itself some seconds after the last of them (`supervisor.py` says how). Nothing of the machine is
//! used: neither an engine that runs already nor its data, and no registry but one of our own on loopback; images are made from busybox and from
//! what a test brings. [`engine`] starts and shares, [`api`] asks an engine, [`image`] makes images, [`registry`] serves one.
//!
//! It never judges the product, and tests that stop or break an engine take one of their own ([`Engine::own`]).

pub mod api;
pub mod engine;
pub mod image;
pub mod registry;

pub use engine::{Engine, Kind};
pub use registry::Registry;
