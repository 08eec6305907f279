//! What a run will be, worked out from the policy and the host before anything is created: what shows where, which rules and
//! limits apply, which files of the host count.
//!
//! Looks at the host's files and changes nothing but the caches of [`whiteout`] layers and Cofferdam's own directories.

pub(crate) mod aliases;
pub(crate) mod bind_mounts;
pub(crate) mod dry_run;
pub(crate) mod egress;
pub mod executables;
pub mod facts;
pub(crate) mod host_names;
pub(crate) mod host_sockets;
pub mod interpreter;
pub(crate) mod lookup;
pub(crate) mod mount_table;
pub(crate) mod optional_mounts;
pub(crate) mod overlays;
pub(crate) mod own_places;
pub(crate) mod payload;
pub(crate) mod rlimits;
pub(crate) mod seccomp_filter;
pub mod settings;
pub mod shebang;
pub(crate) mod source_identity;
pub mod support;
pub(crate) mod tree;
pub(crate) mod user_names;
pub(crate) mod whiteout;

use std::collections::BTreeSet;

use cofferdam_confine::init_plan::InitPlan;

use crate::failure::FailedStep;
use crate::outcome::AppliedEnforcement;
use egress::EgressPlan;
use mount_table::View;

/// A source that a privileged owner prepares itself, before clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreparedSource {
    /// Canonical path on the host.
    pub path: String,
    /// `(device, inode)` when it was looked at.
    pub identity: (u64, u64),
    /// Owner of it: becomes the sandbox's user on this mount.
    pub owner: (u32, u32),
    /// Whether the run cannot do without that.
    pub required: bool,
    /// The step that fails with it.
    pub step: FailedStep,
}

/// A copy-on-write mount.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    /// Index of its mount step.
    pub op: usize,
    /// Path inside.
    pub target: String,
    /// Path on the host.
    pub source: String,
}

/// What one run will be, in the jail or behind Landlock.
#[derive(Debug, Clone)]
pub(crate) struct NativePlan {
    /// For init.
    pub init_plan: InitPlan,
    /// Sources of a privileged owner.
    pub prepared: Vec<PreparedSource>,
    /// Whether a network namespace is made.
    pub own_net: bool,
    /// Copy-on-write mounts.
    pub layers: Vec<Layer>,
    /// What shows where.
    pub view: View,
    /// Denied and protected paths as seen inside.
    pub denied: BTreeSet<String>,
    /// See `denied`.
    pub protected: BTreeSet<String>,
    /// Many denied names of one directory: one layer each; the step index of each whiteout and its names.
    pub whiteouts: Vec<(usize, Vec<String>)>,
    /// How the network is captured, where it is.
    pub egress: Option<EgressPlan>,
    /// What holds, as far as the plan can tell; limits that a cgroup gives are filled in by the run.
    pub enforcement: AppliedEnforcement,
}
