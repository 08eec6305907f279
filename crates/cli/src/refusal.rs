//! The command's own errors: what was refused or failed, what the user can do about it, and the exit code.
//!
//! Data only. How they are printed is `outcome::refusal_report`'s.

/// Exit code when Cofferdam refused the call, or failed itself.
pub(crate) const REFUSED: i32 = 125;

/// Exit code of a command that only reads, when the reader of its output went away: 128 and SIGPIPE, as if the signal had
/// ended it.
pub(crate) const CLOSED: i32 = 141;

/// A refusal: what went wrong, what to do about it, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CliRefusal {
    /// 125, or 126 and 127 as a shell means them.
    pub code: i32,
    /// The step that failed, as an outcome names it.
    pub step: &'static str,
    /// Operation, object and cause; may have several lines.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
}

impl CliRefusal {
    /// A refusal with exit code 125.
    pub fn new(step: &'static str, message: impl Into<String>) -> CliRefusal {
        CliRefusal { code: REFUSED, step, message: message.into(), hint: None }
    }

    /// The same with something the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> CliRefusal {
        self.hint = Some(hint.into());
        self
    }

    /// The same with the hint taken out of a message that ends in a line `hint: …`.
    pub(crate) fn split_hint(mut self) -> CliRefusal {
        if let Some((message, hint)) = self.message.split_once("\nhint: ") {
            (self.message, self.hint) = (message.to_owned(), Some(hint.to_owned()));
        }
        self
    }

    /// The same with another exit code.
    pub fn code(mut self, code: i32) -> CliRefusal {
        self.code = code;
        self
    }

    /// Whether the result could not be written to standard output.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.step == "output"
    }

    /// Whether it is about the environment that the call names.
    pub(crate) fn is_about_environment(&self) -> bool {
        self.step == "environment"
    }
}
