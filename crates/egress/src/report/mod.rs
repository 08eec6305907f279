//! What the gateway reports: its events, a bounded list that counts repeats, and the order in which a sandbox's events
//! leave. Decides nothing.

pub mod event;
pub mod ledger;
#[cfg(feature = "gateway")]
pub(crate) mod reporter;
