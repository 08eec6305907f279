//! Runs one policy and says what happened.
//!
//! ```text
//! Policy ─ prepare ─▶ Prepared (plan, enforcement) ─ run(Io) ─▶ Outcome
//! ```
//!
//! `Engine::probe` asks the host once what it can do. `Engine::prepare` chooses the backend, refuses what cannot be
//! enforced and makes the plan; pure but for the probe's answers and the paths it opens. `Prepared::run` may be called
//! many times and from several threads. It reads no configuration, evaluates nothing, and never depends on the compiler.
#![forbid(unsafe_code)]

pub mod audited_run;
pub mod backends;
mod configurations;
pub mod doctor;
mod dry_run;
mod early;
mod egress;
mod embedded;
pub mod engine;
pub mod evidence;
pub mod executables;
pub mod failure;
mod git_index;
mod host_names;
mod host_sockets;
mod init_error;
pub mod interpreter;
mod io;
mod jail;
mod landlock;
mod lookup;
pub mod monitor;
mod mount_table;
mod mountinfo;
mod optional_mounts;
pub mod outcome;
mod outcome_builder;
mod overlay;
mod payload;
mod proctree;
pub mod python_name;
mod ready;
mod repositories;
mod rlimits;
pub mod run;
mod seccomp_filter;
pub mod session;
pub mod settings;
pub mod shebang;
mod sockets;
mod source_identity;
mod state;
mod streams;
mod supervise;
pub mod support;
pub mod task;
mod vcs_config;
mod whiteout;

pub use cofferdam_audit as audit;
pub(crate) use cofferdam_audit::random;
pub use cofferdam_egress::address as network_address;
pub use cofferdam_egress::event as network_event;
pub use early::Early;
pub use engine::{Engine, Expected, sweep};
pub use io::{Cancel, HandedBack, Input, Io, Output, Stream, Terminal};
pub use monitor::{Monitor, ResourceUsage, Samples};
pub use outcome::*;
pub use run::Prepared;
pub use support::{Mechanism, Support};
