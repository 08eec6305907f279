//! What a backend can enforce on this host, and which mechanisms the host has: as data, for reports.

use std::collections::BTreeMap;

use cofferdam_policy::Field;
use serde::Serialize;

use crate::failure::Failure;
use crate::outcome::AppliedField;

/// What one backend can enforce on this host, per field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Support {
    /// Backend name, such as `jail`.
    pub backend: &'static str,
    /// `None` when the backend can run at all; else why not and how to get it.
    pub unavailable: Option<Failure>,
    /// Per field, for the policy that was asked about.
    pub fields: BTreeMap<Field, AppliedField>,
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
