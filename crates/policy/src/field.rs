//! The fields whose enforcement a backend reports: one name for each.
//!
//! `support` and `enforcement` speak in these; `enforcement.best_effort` lists them.

use serde::Serialize;

macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// One promise of a policy, by its dotted JSON path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum Field { $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+ }

        impl Field {
            /// Every field, in the order in which reports list them.
            pub const ALL: &'static [Field] = &[$(Field::$variant,)+];

            /// Dotted path, such as `limits.memory_mb`.
            pub const fn name(self) -> &'static str {
                match self { $(Field::$variant => $name,)+ }
            }

            /// The field of that dotted path.
            pub fn from_name(name: &str) -> Option<Field> {
                match name { $($name => Some(Field::$variant),)+ _ => None }
            }
        }
    };
}

fields! {
    /// What `/` is.
    Root = "filesystem.root",
    /// Bind and tmpfs mounts.
    Mounts = "filesystem.mounts",
    /// Paths that can be neither read nor written.
    Deny = "filesystem.deny",
    /// Paths that can be read only.
    Protected = "filesystem.protected",
    /// Permissions, owners, times and extended attributes outside writable mounts.
    Metadata = "filesystem.metadata",
    /// What the network mode promises.
    Network = "network.mode",
    /// Only requests with these methods, and with the methods and paths of each rule, on plain HTTP.
    Methods = "network.methods",
    /// One API of the host's side, passed through.
    Api = "network.api",
    /// What names resolve to is checked and connected to by the gateway itself, and by no proxy in between.
    UpstreamProxy = "network.upstream_proxy",
    /// Budgets of the connections.
    NetworkLimits = "network.limits",
    /// No child processes when `spawn` is false.
    Spawn = "process.spawn",
    /// Room for sandboxes inside, where that is granted.
    NestedSandboxes = "process.nested_sandboxes",
    /// The system call filter.
    Seccomp = "process.seccomp",
    /// Sockets by path and abstract sockets.
    UnixSockets = "process.unix_sockets",
    /// Processes outside are neither seen nor signalled.
    Isolation = "process.isolation",
    /// A host name of the sandbox's own.
    Hostname = "process.hostname",
    /// When the run ends every process of it is dead.
    TreeKill = "process.tree_kill",
    /// Memory of the tree.
    Memory = "limits.memory_mb",
    /// CPU time of the tree.
    CpuTime = "limits.cpu_seconds",
    /// CPU share of the tree.
    CpuShare = "limits.cpu_millis",
    /// Wall time.
    WallTime = "limits.wall_ms",
    /// Largest file.
    FileSize = "limits.file_size_mb",
    /// Open files per process.
    OpenFiles = "limits.open_files",
    /// Processes and threads of the tree.
    Processes = "limits.processes",
    /// Scratch space.
    Tmpfs = "limits.tmpfs_mb",
    /// Output kept.
    Output = "limits.output_bytes",
    /// Copy-on-write layers.
    Layer = "limits.layer_mb",
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
