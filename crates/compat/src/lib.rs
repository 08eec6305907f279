//! The public API under the names of an older design: executors that take the path of a configuration and some input,
//! and return a result.
//!
//! With `use cofferdam_compat as omni_sandbox;` that design's paths work:
//!
//! ```
//! use cofferdam_compat as omni_sandbox;
//! use omni_sandbox::executor::{MountConfig, NsJailExecutor, SandboxConfig, SeatbeltExecutor};
//! use omni_sandbox::monitor::ResourceUsage;
//! use omni_sandbox::{ExecutionResult, SandboxExecutor, detect_platform};
//! use std::path::PathBuf;
//!
//! let config = SandboxConfig {
//!     skill_id: "my-skill".to_string(),
//!     mode: "EXEC".to_string(),
//!     hostname: "omni-skill".to_string(),
//!     cmd: vec!["echo".to_string(), "hello".to_string()],
//!     env: vec!["PATH=/usr/bin:/bin".to_string()],
//!     mounts: vec![MountConfig {
//!         src: "/usr".to_string(),
//!         dst: "/usr".to_string(),
//!         fstype: "bind".to_string(),
//!         rw: false,
//!     }],
//!     rlimit_as: 134_217_728,
//!     rlimit_cpu: 60,
//!     log_level: "info".to_string(),
//! };
//! let policy = cofferdam_policy::Policy::try_from(config)?;
//! assert_eq!(policy.limits.memory_mb, 128);
//!
//! /// An executor of one's own.
//! struct DryRun;
//!
//! #[async_trait::async_trait]
//! impl SandboxExecutor for DryRun {
//!     async fn execute(&self, config_path: &PathBuf, input: &str) -> Result<ExecutionResult, String> {
//!         Err(format!("{} was not run with {} bytes", config_path.display(), input.len()))
//!     }
//!     fn name(&self) -> &str {
//!         "dry-run"
//!     }
//! }
//! # let _: (Box<dyn SandboxExecutor>, Option<ResourceUsage>, Option<SeatbeltExecutor>) = (Box::new(DryRun), None, None);
//! # let _: (fn() -> String, Option<NsJailExecutor>) = (detect_platform, None);
//! # Ok::<(), String>(())
//! ```
//!
//! Every configuration is converted to a policy first (`config`), which the engine runs. Nothing here needs an async
//! runtime: a run has a thread of its own, and its future works with any executor. Dropping the future kills the whole
//! process tree.
#![forbid(unsafe_code)]

pub mod config;
mod execution;
pub mod executor;
mod legacy;
mod skill_config;

use std::path::Path;

pub use cofferdam_engine::monitor::{self, ResourceUsage};
pub use cofferdam_engine::task::{self, Handle, Task};
pub use config::{Form, Loaded, load};
pub use execution::{ExecutionResult, SandboxExecutor, TIMEOUT, TIMEOUT_CODE, in_words};
pub use executor::{Call, JailExecutor, NsJailExecutor, SeatbeltExecutor};
pub use legacy::{MountJson, NsJailJsonConfig};
pub use skill_config::{MountConfig, SandboxConfig};

/// `linux`, `macos` or `unknown`.
pub fn detect_platform() -> String {
    let name = match std::env::consts::OS {
        "linux" => "linux",
        "macos" => "macos",
        _ => "unknown",
    };
    name.to_owned()
}

/// Whether there is an nsjail that can be used: at this path, or on `PATH`.
pub fn is_nsjail_available(nsjail_path: Option<&Path>) -> bool {
    use cofferdam_engine::backends::{InstalledTool, Tool, Tools};
    let mut tools = Tools::from_environment();
    if let Some(path) = nsjail_path {
        tools.nsjail = Some(path.to_owned());
    }
    InstalledTool::find(Tool::Nsjail, &tools).is_ok()
}

/// Whether macOS's Seatbelt is here.
pub fn is_seatbelt_available() -> bool {
    use cofferdam_engine::backends::{InstalledTool, Tool, Tools};
    InstalledTool::find(Tool::Seatbelt, &Tools::from_environment()).is_ok()
}
