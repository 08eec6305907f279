//! What is to be held, with every path resolved: what the mechanisms are given. Data alone.

use std::path::PathBuf;

/// The network of a command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Network {
    /// The host's: nothing is held.
    #[default]
    Host,
    /// None: no socket of the network's families can be made.
    None,
}

/// What becomes of a command that cannot be confined wholly.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// It is refused.
    #[default]
    Refuse,
    /// It runs with what can be held, and a warning through `tracing` says what cannot.
    Warn,
}

/// Trees, and what is left out of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) holes: Vec<PathBuf>,
}

/// Everything that is held. Paths are canonical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Where is written.
    pub(crate) write: Area,
    /// Where is read; everywhere without one.
    pub(crate) read: Option<Area>,
    pub(crate) network: Network,
    /// Whether sockets with a path can be made and connected to.
    pub(crate) unix_sockets: bool,
    /// Whether System V IPC and POSIX message queues can be used.
    pub(crate) shared_ipc: bool,
    /// Whether the caller's descriptors are the command's as well.
    pub(crate) inherit_descriptors: bool,
    /// Landlock is taken to be no younger than this.
    pub(crate) landlock_at_most: Option<u32>,
}
