//! Why the server does not start or does not go on.

use cofferdam_config::environments::ObserveError;
use cofferdam_engine::audit::AuditError;

use crate::transport::error::TransportError;

/// Why the server does not start or does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The process's user, directories or variables cannot be determined.
    #[error(transparent)]
    Surroundings(#[from] ObserveError),
    /// The definitions of environments have mistakes that are not about one environment alone.
    #[error("what defines environments has mistakes:{}\nhint: correct it, and look at it with: cofferdam environment check", .0.iter().map(|problem| format!("\n  {problem}")).collect::<String>())]
    Definitions(Vec<String>),
    /// The audit trail cannot be opened.
    #[error(transparent)]
    Trail(#[from] AuditError),
    /// The transport cannot start, or failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A system call failed.
    #[error("cannot start the server: {0}")]
    System(#[from] std::io::Error),
}
