//! The totals of a sandbox's traffic. Data only.

/// The totals of a sandbox's traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Connections to upstream.
    pub connections: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Bytes from the sandbox.
    pub bytes_up: u64,
    /// Bytes to the sandbox.
    pub bytes_down: u64,
}
