//! Backends that are external sandbox programs, from the same policy: bubblewrap, nsjail and macOS Seatbelt.
//!
//! ```text
//! Policy ─ layout (what mounts can hold) ─┬─ bubblewrap: arguments, filter by descriptor ─┐
//!          facts: asked of the host       ├─ nsjail: its configuration, Kafel ────────────┼─ external::spawn ─ watch ─▶ Outcome
//!          filter: our own emitter        └─ seatbelt: profile text, parameters ──────────┘
//! ```
//!
//! Planning is pure; `enforcement` says per field what each enforces, when it runs here and when its configuration is only
//! written out; `run` starts and supervises. None of them reports violations with evidence: only the jail can.

pub mod bubblewrap;
pub mod export;
mod filter;
mod mounted;
pub mod nsjail;
mod prototext;
pub mod run;
pub mod seatbelt;
pub mod tool;
mod watch;
