//! A run, from the started sandbox to the outcome: streams, supervision, evidence, the egress gateway, usage and changes.
//!
//! Knows no backend: each hands over the ends of what it has started.

pub(crate) mod channel;
pub(crate) mod directory_memory;
pub mod evidence;
pub(crate) mod gateway;
pub(crate) mod lifeline;
pub(crate) mod outcome_builder;
pub(crate) mod overlay;
pub(crate) mod report;
pub(crate) mod session_refusals;
pub(crate) mod socket_memory;
pub(crate) mod streams;
pub(crate) mod supervise;
