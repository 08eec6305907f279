//! Repositories in writable volumes: which of their names are protected, and what version control outside would obey or run
//! after the run.

pub(crate) mod configurations;
pub(crate) mod embedded;
pub(crate) mod git_index;
pub(crate) mod protected_names;
pub(crate) mod vcs_config;
