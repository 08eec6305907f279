//! The policy: what a sandbox may do, as data, with its validation and its JSON form.
//!
//! No I/O and no unsafe code. A policy is complete when it leaves this crate: nothing downstream guesses a default.
//!
//! ```
//! use cofferdam_policy::Policy;
//!
//! let policy = Policy::from_json(br#"{"version": 1, "command": {"argv": ["/bin/true"]}, "limits": {"memory_mb": 64}}"#)?;
//! assert_eq!(policy.limits.memory_mb, 64);
//! let errors = Policy::from_json(br#"{"version": 1, "command": {"argv": ["/bin/true"]}, "limits": {"memory": 64}}"#);
//! assert!(errors.unwrap_err().to_string().contains("limits.memory"));
//! # Ok::<(), cofferdam_policy::PolicyErrors>(())
//! ```
#![forbid(unsafe_code)]

pub mod allow;
mod base_directory;
pub mod bundles;
mod credentials;
mod decode;
mod defaults;
pub mod errno;
mod error;
mod field;
pub mod host;
mod json;
pub mod limits;
mod model;
mod network;
pub mod network_limits;
mod object_schema;
pub mod paths;
mod ports;
mod protected;
#[cfg(feature = "schema")]
pub mod schema;
pub mod sizes;
pub mod text;
mod typed;
mod url;
mod validate;
pub mod variables;
pub mod webpath;

pub use allow::{AllowEntry, AllowRule, DenyEntry, To};
pub use base_directory::BaseDirectory;
pub use credentials::{CREDENTIALS, Credential, credential_deny, credential_deny_moved, dot_deny};
pub use defaults::{API_VARIABLE_DEFAULT, OWN_HOME};
pub use errno::errno_from_name;
pub use error::{MAX_ERRORS, PolicyError, PolicyErrors, closest};
pub use field::Field;
pub use host::UrlHost;
pub use json::{MAX_DEPTH, MAX_POLICY_BYTES};
/// The earlier name of [`BackendName`].
pub use model::BackendName as Backend;
pub use model::*;
pub use ports::Ports;
pub use protected::{PROTECTED_COMPANIONS, PROTECTED_DEFAULT};
pub use url::HttpUrl;
