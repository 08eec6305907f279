//! Tests of the egress gateway by the command as a user types it, in a test network of namespaces (a *world*) in which
//! every address answers and from which nothing leads out.
//!
//! ```text
//! clients  (program × host ─▶ works, or is refused) ─┬─▶ trial: world ─ command ─ record and outcome ─▶ verdict
//! attempts (bypass × allowed control)               ─┘
//! attempts ─▶ egress_table: docs/egress-table.md
//! ```
//!
//! A refusal counts only if nothing of the attempt is in the record, which has every packet that leaves the host of the
//! command, and if the outcome says why. The control, the same thing where it is allowed, must arrive. Nothing here is
//! part of the product, and nothing here decides what is allowed. No real address is reached: see `world/world.py`.

pub mod attempt;
pub mod attempts;
pub mod clients;
pub mod egress_table;
pub mod scenarios;
pub mod suite_directory;
pub mod trial;
pub mod world;
