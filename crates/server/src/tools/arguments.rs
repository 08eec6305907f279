//! Reading the arguments of a tool call: text arguments by name, and an error for every other.

use cofferdam_policy::text;
use rmcp::ErrorData;
use rmcp::model::JsonObject;
use serde_json::Value;

/// An error of the caller's.
pub(super) fn invalid(message: impl Into<String>) -> ErrorData {
    ErrorData::invalid_params(message.into(), None)
}

/// The text arguments of a call, each of which is taken at most once.
pub(super) struct TextArguments {
    /// The tool's name, for messages.
    pub tool: &'static str,
    /// What the tool accepts, for messages.
    pub accepts: &'static str,
    /// The arguments not taken yet.
    pub arguments: JsonObject,
}

impl TextArguments {
    /// Takes an argument that may be left out or null.
    pub(super) fn optional(&mut self, name: &str) -> Result<Option<String>, ErrorData> {
        match self.arguments.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(invalid(format!("`{name}` is no text"))),
        }
    }

    /// Takes an argument that must be there.
    pub(super) fn required(&mut self, name: &str) -> Result<String, ErrorData> {
        let missing = || invalid(format!("`{name}` is missing; `{}` takes {}", self.tool, self.accepts));
        match self.arguments.get(name) {
            None | Some(Value::Null) => Err(missing()),
            Some(_) => self.optional(name).and_then(|text| text.ok_or_else(|| invalid(format!("`{name}` is missing")))),
        }
    }

    /// Refuses any argument that was not taken.
    pub(super) fn finish(self) -> Result<(), ErrorData> {
        let Some(name) = self.arguments.keys().next() else { return Ok(()) };
        Err(invalid(format!("`{}` takes no {}; it takes {}", self.tool, text::name(name), self.accepts)))
    }
}
