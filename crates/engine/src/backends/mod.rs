//! The backends: each makes a sandbox of a policy by its own means.
//!
//! | | by | in |
//! |---|---|---|
//! | jail | namespaces, mounts, Landlock, seccomp; init is ours | `jail` |
//! | landlock | Landlock and seccomp alone; init is ours | `landlock` |
//! | bubblewrap, nsjail, Seatbelt | an external program | `external` |
//! | Docker, Podman, OCI runtimes | an external program, in whose container init is ours | `containers` |
//!
//! `backend` says what a backend is; `registry` lists these. `layout` is what a policy shows, for those that mount by path.

mod backend;
pub(crate) mod complaint;
#[cfg(feature = "containers")]
pub mod containers;
pub(crate) mod enforcement;
pub mod external;
pub(crate) mod jail;
pub(crate) mod landlock;
pub mod layout;
pub(crate) mod native;
pub(crate) mod real_sources;
pub(crate) mod registry;

pub use backend::{Backend, BackendPlan, BackendRefusal, Capabilities, PlanRequest, PlanSummary};
pub use enforcement::{EnforcementPurpose, answers};
pub use external::export::{ExportTarget, Exported, export};
pub use external::run::ExternalPlan;
pub use external::tool::{InstalledTool, Tool, Tools};
pub use external::{bubblewrap, export, nsjail, seatbelt};
pub use registry::capabilities;
