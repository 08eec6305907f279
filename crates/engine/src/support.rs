//! What a backend can enforce on this host: per policy field, with the reason. And the refusal when that is not enough.

use std::collections::BTreeMap;

use cofferdam_policy::{Field, Policy};
use serde::Serialize;

use crate::outcome::{Applied, Failure, Strength};

/// What one backend can enforce on this host, per field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Support {
    /// Backend name, such as `jail`.
    pub backend: &'static str,
    /// `None` when the backend can run at all; else why not and how to get it.
    pub unavailable: Option<Failure>,
    /// Per field, for the policy that was asked about.
    pub fields: BTreeMap<Field, Applied>,
}

/// What every backend can hold of `network.methods`: a request's method is seen by the egress gateway alone.
pub(crate) fn methods(policy: &Policy) -> Applied {
    let (strength, reason) = match policy.network.methods {
        None => (Strength::Full, "nothing to hold: any method may be asked for"),
        Some(_) => (Strength::None, "only an egress gateway sees a request's method, and this build has none"),
    };
    Applied { strength, reason: reason.to_owned() }
}

/// What backends that make no room for sandboxes inside can hold of `process.nested_sandboxes`.
pub(crate) fn nested(policy: &Policy) -> Applied {
    let (strength, reason) = match policy.process.nested_sandboxes {
        false => (Strength::Full, "not granted"),
        true => (Strength::None, "only the jail has room for sandboxes inside"),
    };
    Applied { strength, reason: reason.to_owned() }
}

/// One row of `doctor`: a mechanism of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mechanism {
    /// Such as `user namespaces`.
    pub name: &'static str,
    /// Whether this process can use it.
    pub available: bool,
    /// What was tried and what came back.
    pub evidence: String,
    /// What it gives.
    pub gives: &'static str,
    /// The exact command that would provide it, when it is missing and there is one.
    pub enable: Option<String>,
}
