//! Backends that are other people's programs, from the same policy: bubblewrap, nsjail and macOS Seatbelt.
//!
//! ```text
//! Policy ─ layout (what mounts can hold) ─┬─ bubblewrap: arguments, filter by descriptor ─┐
//!          facts: asked of the host       ├─ nsjail: its configuration, Kafel ────────────┼─ foreign::spawn ─ watch ─▶ Outcome
//!          filter: our own emitter        └─ seatbelt: profile text, parameters ──────────┘
//! ```
//!
//! Planning is pure; `answers` says per field what each can hold, when it runs here and when its configuration is only
//! written out; `run` starts and supervises. None of them reports violations with evidence: only the jail can.

pub mod bubblewrap;
mod complaint;
pub mod container;
pub mod enforcement;
pub mod export;
pub mod facts;
mod filter;
pub mod layout;
pub mod nsjail;
mod program;
mod prototext;
pub mod run;
pub mod seatbelt;
pub mod tool;
mod watch;

pub use enforcement::{Purpose, answers};
pub use export::{Exported, Format, export};
pub use run::Ready;
pub use tool::{Installed, Tool, Tools};
