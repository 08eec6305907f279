//! Why a profile could not be compiled.

/// Why a profile could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// The reason; several lines if Nickel shows the source.
    pub message: String,
    /// A hint for the user.
    pub hint: Option<String>,
    /// Whether the profile itself is at fault.
    pub refused: bool,
}

impl CompileError {
    pub(crate) fn new(message: impl Into<String>) -> CompileError {
        CompileError { message: message.into(), hint: None, refused: false }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> CompileError {
        self.hint = Some(hint.into());
        self
    }
}
