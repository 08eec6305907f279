//! Rules compiled for a run, and what they say of a name, an address, a port, a request. Pure.

use crate::event::Reason;
use crate::name::Name;

/// What a program wants to reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A name that it asked for, or gave to a proxy.
    Name(Name),
    /// An address that it used without having asked for a name.
    Address(std::net::IpAddr),
}

/// A connection that may be made, and what allowed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Index in `network.allow` of the first rule that matched.
    pub rule: usize,
}

/// Why something may not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// In one word.
    pub reason: Reason,
    /// JSON path of the policy's line that decided, where one did.
    pub rule: Option<String>,
    /// More about the reason.
    pub detail: Option<String>,
}

/// A policy's rules, compiled.
#[derive(Debug)]
pub struct Rules;
