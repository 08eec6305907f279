//! What the tools besides `run` have in common: blocking work on its own thread, and results as text and data.

use cofferdam_engine::Failure;
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
use serde_json::Value;

/// A successful result.
pub(super) fn success(content: ContentBlock, data: Value) -> CallToolResponse {
    let mut result = CallToolResult::success(vec![content]);
    result.structured_content = Some(data);
    result.into()
}

/// An unsuccessful result: the failure's message and hint.
pub(super) fn failure(failure: Failure) -> CallToolResponse {
    let text = match &failure.hint {
        Some(hint) => format!("{}\nhint: {hint}", failure.message),
        None => failure.message,
    };
    CallToolResult::error(vec![ContentBlock::text(text)]).into()
}

/// Does blocking work on a thread of its own.
///
/// # Errors
/// The work panicked.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ErrorData> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!("a file was lost: {error}");
        ErrorData::internal_error("the call was lost by a mistake of the server's", None)
    })
}
