//! What a run will be, worked out from the policy and the host before anything is created: what shows where, which rules and
//! limits apply, which files of the host count.
//!
//! Looks at the host's files and changes nothing but the caches of [`whiteout`] layers and Cofferdam's own directories.

pub(crate) mod dry_run;
pub mod executables;
pub mod facts;
pub(crate) mod host_names;
pub(crate) mod host_sockets;
pub mod interpreter;
pub(crate) mod lookup;
pub(crate) mod mount_table;
pub(crate) mod mountinfo;
pub(crate) mod optional_mounts;
pub(crate) mod payload;
pub(crate) mod rlimits;
pub(crate) mod seccomp_filter;
pub mod settings;
pub mod shebang;
pub(crate) mod source_identity;
pub(crate) mod state;
pub mod support;
pub(crate) mod whiteout;
