//! The egress gateway, tried by the command as a user types it, in a world of network namespaces that has every address
//! there is and no way out.
//!
//! ```text
//! clients  (program × host ─▶ works, or is refused) ─┬─▶ trial: world ─ command ─ record and outcome ─▶ verdict
//! attempts (way round × twin that is allowed)       ─┘
//! attempts ─▶ page: docs/egress-table.md
//! ```
//!
//! A refusal counts when nothing of it is in the record, which sees every packet that leaves the host of the command,
//! and when the outcome says why; the twin, the same thing where it is allowed, must arrive. Nothing here is part of
//! the product, and nothing here decides what is allowed. No real address is reached: see `world/world.py`.

pub mod attempt;
pub mod attempts;
pub mod clients;
pub mod page;
pub mod place;
pub mod scenes;
pub mod trial;
pub mod world;
