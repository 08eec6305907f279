//! What is to be enforced, with every path resolved: the input of the mechanisms. Data only.

use std::path::PathBuf;

/// The network of a command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CommandNetwork {
    /// The host's network, without restrictions.
    #[default]
    Host,
    /// No network: sockets of network families cannot be created.
    None,
}

/// What happens to a command that cannot be confined in full.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fallback {
    /// It is refused.
    #[default]
    Refuse,
    /// It runs with what can be enforced, and a `tracing` warning lists the rest.
    Warn,
}

/// Directory trees, and exceptions in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) holes: Vec<PathBuf>,
}

/// Everything that is to be enforced. Paths are canonical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConfinementSpec {
    /// Writable trees.
    pub(crate) write: Area,
    /// Readable trees; none: everything is readable.
    pub(crate) read: Option<Area>,
    pub(crate) network: CommandNetwork,
    /// Whether Unix sockets can be created and connected to.
    pub(crate) unix_sockets: bool,
    /// Whether System V IPC and POSIX message queues can be used.
    pub(crate) shared_ipc: bool,
    /// Whether the command inherits the caller's descriptors.
    pub(crate) inherit_descriptors: bool,
    /// The highest Landlock ABI version to use.
    pub(crate) landlock_at_most: Option<u32>,
}
