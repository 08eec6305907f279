//! Fixtures of the protocol's public conformance suite: tools and resources with agreed names and answers. They are offered
//! only if [`VARIABLE`] is set, for the test that runs the suite.
//!
//! There are fixtures for tools and resources only, which the server implements. Scenarios about prompts, completions and
//! requests to the client are excluded in crates/server/tests/conformance, each with its reason.

use std::time::Duration;

use rmcp::model::{
    AudioContent, CallToolResponse, CallToolResult, ContentBlock, InputRequests, InputRequiredResult,
    ProgressNotificationParam, ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::tools::schema::object;

/// The variable that offers them.
pub(crate) const VARIABLE: &str = "COFFERDAM_CONFORMANCE_FIXTURES";

/// The tool that notifies clients of a changed list of tools.
pub(crate) const CHANGES: &str = "test_trigger_tool_change";

/// An image of one pixel.
const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// A sound of no length.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// The tools.
pub(crate) fn tools() -> Vec<Tool> {
    let plain = json!({ "type": "object", "properties": {} });
    let header = json!({
        "type": "object",
        "properties": { "value": { "type": "string", "x-mcp-header": "Value" } },
        "required": ["value"],
    });
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": { "address": {
            "$anchor": "address",
            "type": "object",
            "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
        } },
        "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
        "allOf": [{ "anyOf": [{ "required": ["name"] }, { "required": ["address"] }] }],
        "if": { "required": ["address"] },
        "then": { "properties": { "address": { "required": ["street"] } } },
        "else": { "required": ["name"] },
        "additionalProperties": false,
    });
    [
        ("test_simple_text", &plain),
        ("test_image_content", &plain),
        ("test_audio_content", &plain),
        ("test_embedded_resource", &plain),
        ("test_multiple_content_types", &plain),
        ("test_error_handling", &plain),
        ("test_tool_with_progress", &plain),
        ("test_missing_capability", &plain),
        ("test_streaming_elicitation", &plain),
        ("test_logging_tool", &plain),
        (CHANGES, &plain),
        ("test_custom_header", &header),
        ("json_schema_2020_12_tool", &schema),
    ]
    .into_iter()
    .map(|(name, schema)| Tool::new(name, "For the conformance suite", object(schema.clone())))
    .collect()
}

fn embedded(uri: &str, mime: &str, text: &str) -> ContentBlock {
    ContentBlock::resource(ResourceContents::text(text, uri).with_mime_type(mime))
}

/// The answer of one of the tools; `None` for any other.
pub(crate) async fn call(
    name: &str,
    arguments: &Value,
    context: &RequestContext<RoleServer>,
) -> Option<Result<CallToolResponse, ErrorData>> {
    let content = match name {
        "test_simple_text" => vec![ContentBlock::text("This is a simple text response for testing.")],
        "test_image_content" => vec![ContentBlock::image(PICTURE, "image/png")],
        "test_audio_content" => vec![ContentBlock::Audio(AudioContent::new(SOUND, "audio/wav"))],
        "test_embedded_resource" => {
            vec![embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
        }
        "test_multiple_content_types" => vec![
            ContentBlock::text("Multiple content types test:"),
            ContentBlock::image(PICTURE, "image/png"),
            embedded("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ],
        "test_error_handling" => {
            let text = "This tool intentionally returns an error for testing";
            return Some(Ok(CallToolResult::error(vec![ContentBlock::text(text)]).into()));
        }
        "test_tool_with_progress" => {
            if let Some(token) = context.meta.get_progress_token() {
                for progress in [0.0, 50.0, 100.0] {
                    let notification = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
                    if context.peer.notify_progress(notification.with_message("working")).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            vec![ContentBlock::text("Progress test completed")]
        }
        "test_missing_capability" => {
            let declared = context.client_capabilities().unwrap_or_default();
            if declared.sampling.is_none() {
                let needed = serde_json::from_value(json!({ "sampling": {} })).unwrap_or_default();
                return Some(Err(ErrorData::missing_required_client_capability(needed)));
            }
            vec![ContentBlock::text("It is declared.")]
        }
        "test_streaming_elicitation" => {
            let requests = json!({ "value": { "method": "elicitation/create", "params": {
                "mode": "form",
                "message": "A value",
                "requestedSchema": {
                    "type": "object",
                    "properties": { "value": { "type": "string" } },
                    "required": ["value"],
                },
            } } });
            let requests: InputRequests = serde_json::from_value(requests).ok()?;
            return Some(Ok(InputRequiredResult::from_input_requests(requests).into()));
        }
        // Clients do not receive the log, which goes to standard error.
        CHANGES => vec![ContentBlock::text("Told.")],
        "test_logging_tool" => vec![ContentBlock::text("Logged.")],
        "test_custom_header" => vec![ContentBlock::text(arguments["value"].as_str().unwrap_or_default())],
        "json_schema_2020_12_tool" => vec![ContentBlock::text(arguments.to_string())],
        _ => return None,
    };
    Some(Ok(CallToolResult::success(content).into()))
}

/// The resources.
pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::new("test://static-text", "Static text").with_mime_type("text/plain"),
        Resource::new("test://static-binary", "Static binary").with_mime_type("image/png"),
    ]
}

/// The resource templates.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    vec![ResourceTemplate::new("test://template/{id}/data", "Data of an id").with_mime_type("application/json")]
}

/// The resource at an address.
pub(crate) fn read(uri: &str) -> Option<ReadResourceResult> {
    let contents = match uri {
        "test://static-text" => {
            ResourceContents::text("This is the content of the static text resource.", uri).with_mime_type("text/plain")
        }
        "test://static-binary" => ResourceContents::blob(PICTURE, uri).with_mime_type("image/png"),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            ResourceContents::text(data.to_string(), uri).with_mime_type("application/json")
        }
    };
    Some(ReadResourceResult::new(vec![contents]))
}
