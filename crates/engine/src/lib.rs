//! Runs one policy and says what happened.
//!
//! ```text
//! Policy ─ prepare ─▶ Prepared (plan, enforcement) ─ run(Io) ─▶ Outcome
//! ```
//!
//! `Engine::probe` asks the host once what it can do. `Engine::prepare` chooses the backend, refuses what cannot be
//! enforced and makes the plan; pure but for the probe's answers and the paths it opens. `Prepared::run` may be called
//! many times and from several threads. Nothing here reads a configuration of Cofferdam's or evaluates a profile, and no part
//! depends on the crates that do. What other programs have configured is read where a run has to hold it: git and Mercurial,
//! container engines.
//!
//! ```
//! use cofferdam_engine::{Ending, Engine, Io};
//! use cofferdam_policy::Policy;
//!
//! let mut policy = Policy::base();
//! policy.command.argv = vec!["/bin/sh".into(), "-c".into(), "echo hello; exit 3".into()];
//! let prepared = Engine::probe().prepare(&policy)?;
//! let outcome = prepared.run(Io::default());
//! assert_eq!((outcome.outcome, outcome.exit_code), (Ending::Exited, Some(3)), "{:?}", outcome.error);
//! assert_eq!(outcome.stdout, "hello\n");
//! # Ok::<(), cofferdam_engine::Failure>(())
//! ```
//!
//! # Features
//!
//! All are on by default. A program that embeds the jail alone can do without any of them.
//!
//! | feature | brings | without it |
//! |---|---|---|
//! | `containers` | the backends `docker`, `podman` and `oci`: HTTP over Unix sockets, images, bundles | a policy that names one is refused |
//! | `gateway` | the egress gateway: HTTP, name resolution, threads of its own | `network.mode = "allowlist"` is refused |
//! | `signatures` | signed checkpoints of audit trails | no key can be made or read |
#![forbid(unsafe_code)]

pub mod audited_run;
pub mod backends;
mod doctor;
pub mod engine;
pub mod failure;
mod host;
pub mod host_programs;
mod io;
pub mod monitor;
pub mod outcome;
mod plan;
mod pool;
mod prepared;
pub mod process_limits;
mod proctree;
pub mod progress;
pub mod python_name;
mod repository;
mod run;
pub mod session;
mod start_failures;
pub mod task;

pub use cofferdam_audit as audit;
pub use cofferdam_egress::address as network_address;
pub use cofferdam_egress::event as network_event;
pub use engine::Engine;
pub use failure::{FailedStep, Failure};
pub use host::{ExpectedUse, Host, sweep};
pub use io::{Cancel, HandedBack, Input, Io, Output, SignalsPassed, Stream, Terminal};
pub use monitor::{Monitor, ResourceUsage, Samples};
pub use outcome::*;
pub use plan::aliases::shown_within;
pub use plan::own_places::{destination_fault, hide, keep_read_only, show_own};
pub use plan::support::{Mechanism, Support};
pub use plan::{executables, facts, interpreter, settings, shebang, support};
pub use pool::Early;
pub use prepared::Prepared;
pub use run::evidence;
pub use run::lifeline::Fork;
