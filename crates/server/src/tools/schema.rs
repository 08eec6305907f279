//! The names, descriptions and JSON schemas of the tools. They are the same on every connection.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use cofferdam_policy::{Access, text};

use crate::environments::EnvironmentHost;
use crate::environments::registry::EnvironmentSet;

/// The tool that runs code.
pub(crate) const RUN: &str = "run";

/// The tool that lists environments, if the operator offers it.
pub(crate) const LIST: &str = "list_environments";

/// The tool that lists a client's sessions, if the operator offers it.
pub(crate) const LIST_SESSIONS: &str = "list_sessions";

/// The tool that ends a session, offered with `list_sessions`.
pub(crate) const END_SESSION: &str = "end_session";

/// The tool that writes a file into a session, if the operator offers it.
pub(crate) const UPLOAD: &str = "upload";

/// The tool that reads a file out of a session, if the operator offers it.
pub(crate) const DOWNLOAD: &str = "download";

/// Most characters of an environment's description.
const LONGEST_DESCRIPTION: usize = 500;
/// Most characters of why an environment is unavailable.
const LONGEST_REASON: usize = 1000;

/// A schema in the type of the protocol's library.
pub(crate) fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

/// The tool `run` with these environments.
pub(crate) fn run(environments: &EnvironmentSet) -> Tool {
    let names = environments.names();
    let listed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    // The description has what a model would otherwise learn from failures. Not every client shows it the server's instructions.
    let project = environments.project.as_ref().map_or_else(String::new, |project| {
        let use_of = match project.access {
            Access::ReadOnly => "read-only",
            Access::CopyOnWrite => "whose changes go with the run",
            Access::ReadWrite => "and its files may be changed",
        };
        format!(" The user's project is at {}, {use_of}.", project.mount_point)
    });
    let stateless: Vec<&str> = environments
        .all()
        .filter(|environment| environment.unavailable().is_none() && environment.is_stateless())
        .map(|environment| environment.name())
        .collect();
    let without = match stateless[..] {
        [] => String::new(),
        _ => format!(" In these no file comes back, and no session is kept: {}.", stateless.join(", ")),
    };
    let description = format!(
        "Run code in a walled-in environment and get what it prints. It has no network unless the operator allowed it. \
         Files that it writes to /workspace/output come back.{project} Each call starts afresh, but calls with the same \
         session, which keep variables and imports.{without} Available environments: {listed}"
    );
    let env = environment_argument(&names, "Where to run it");
    let input = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string", "description": "The code to run" },
            "env": env,
            "session": {
                "type": "string",
                "description": "Keep the interpreter's state between calls with the same word here. \"new\" begins a \
                                session, and the answer says its name. A session belongs to its environment, and ends when \
                                it is not used for some minutes",
            },
        },
        "required": ["code", "env"],
        "additionalProperties": false,
    });
    let annotations = ToolAnnotations::with_title("Run code in a sandbox")
        .read_only(false)
        .destructive(false)
        .idempotent(false)
        .open_world(false);
    Tool::new(RUN, description, object(input))
        .with_title("Run code in a sandbox")
        .with_raw_output_schema(object(outcome()))
        .with_annotations(annotations)
}

/// The schema of the argument that names an environment.
fn environment_argument(names: &[&str], description: &str) -> Value {
    let mut env = json!({ "type": "string", "description": description });
    if !names.is_empty() {
        env["enum"] = json!(names);
    }
    env
}

/// The tool `upload`.
pub(crate) fn upload(environments: &EnvironmentSet) -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "session": {
                "type": "string",
                "description": "The session, as `run` has it; it is begun where there is none. \"new\" begins one whose name \
                                the answer says",
            },
            "env": environment_argument(&environments.names(), "The session's environment"),
            "path": {
                "type": "string",
                "description": "Where it goes: relative to /workspace, or below it. Directories are made, and a file that is \
                                there is replaced",
            },
            "text": { "type": "string", "description": "What is in it; either this or base64" },
            "base64": { "type": "string", "description": "The same, for what is no text" },
        },
        "required": ["session", "env", "path"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "Where code finds it" },
            "bytes": { "type": "integer", "description": "How large it is" },
            "replaced": { "type": "boolean", "description": "A file was there before" },
            "session": {
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "What names it in the next call" },
                    "fresh": { "type": "boolean", "description": "This call began it" },
                },
                "required": ["name", "fresh"],
            },
        },
        "required": ["path", "bytes", "replaced", "session"],
    });
    let title = "Put a file into a session";
    let described = "Write one file, of at most 16 MiB, into the /workspace of a session, where code finds it. It does not wait \
                     for code that runs there.";
    Tool::new(UPLOAD, described, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(
            ToolAnnotations::with_title(title).read_only(false).destructive(true).idempotent(true).open_world(false),
        )
}

/// The tool `download`.
pub(crate) fn download() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "session": { "type": "string", "description": "The session, as `run` has it" },
            "path": { "type": "string", "description": "The file: relative to /workspace, or below it" },
        },
        "required": ["session", "path"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "Where code has it" },
            "bytes": { "type": "integer", "description": "How large it is" },
            "type": { "type": "string", "description": "What it is, by its content" },
        },
        "required": ["path", "bytes", "type"],
    });
    let title = "Get a file out of a session";
    let described = "Read one file, of at most 8 MiB, out of the /workspace of a session. It does not wait for code that runs \
                     there.";
    Tool::new(DOWNLOAD, described, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(ToolAnnotations::with_title(title).read_only(true).open_world(false))
}

/// The tool `list_sessions`.
pub(crate) fn list_sessions() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "session": {
                "type": "string",
                "description": "Only this one; needed where sessions are known by the names that the server gave",
            },
        },
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": { "sessions": { "type": "array", "items": {
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "env": { "type": "string", "description": "The environment that it belongs to" },
                "idle_seconds": { "type": ["number", "null"], "description": "Since its last call; null while one is under way" },
                "left_seconds": { "type": "number", "description": "How long it may live still" },
                "calls": { "type": "integer", "description": "Calls that were answered" },
            },
            "required": ["name", "env", "idle_seconds", "left_seconds", "calls"],
        } } },
        "required": ["sessions"],
    });
    let title = "List your sessions";
    Tool::new(LIST_SESSIONS, "List your sessions: where each runs, and how long it lives still.", object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(ToolAnnotations::with_title(title).read_only(true).open_world(false))
}

/// The tool `end_session`.
pub(crate) fn end_session() -> Tool {
    let input = json!({
        "type": "object",
        "properties": { "session": { "type": "string", "description": "The session, as `run` has it" } },
        "required": ["session"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "session": { "type": "string", "description": "What it was called" },
            "violations": {
                "type": "array", "items": { "type": "object" },
                "description": "What was refused in its whole life, and what was found at its end, as `run` has it",
            },
            "error": { "type": ["object", "null"], "description": "What failed at its end, as `run` has it" },
        },
        "required": ["session"],
    });
    let title = "End a session";
    let described =
        "End one of your sessions, with its state, its files and what it runs. A call under way there is ended.";
    Tool::new(END_SESSION, described, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(
            ToolAnnotations::with_title(title).read_only(false).destructive(true).idempotent(true).open_world(false),
        )
}

/// The tool `list_environments`.
pub(crate) fn list() -> Tool {
    let output = json!({
        "type": "object",
        "properties": { "environments": { "type": "array", "items": {
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "kind": { "type": "string", "description": "What runs its code" },
                "description": { "type": ["string", "null"] },
                "available": { "type": "boolean" },
                "reason": { "type": ["string", "null"], "description": "Why it is not available" },
            },
            "required": ["name", "kind", "description", "available", "reason"],
        } } },
        "required": ["environments"],
    });
    let input = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    Tool::new(LIST, "List the environments that `run` knows, and what each is for.", object(input))
        .with_title("List environments")
        .with_raw_output_schema(object(output))
        .with_annotations(ToolAnnotations::with_title("List environments").read_only(true).open_world(false))
}

/// The result of `list_environments`.
pub(crate) fn environment_list(environments: &EnvironmentSet, host: &EnvironmentHost) -> Value {
    let all: Vec<Value> = environments
        .all()
        .map(|environment| {
            let reason = environment.refusal(host);
            let reason = reason.map(|reason| text::for_model(&reason, LONGEST_REASON));
            json!({
                "name": environment.name(),
                "kind": environment.kind(),
                // The author of an artifact wrote it, and a model reads it.
                "description": environment.description().map(|own| text::for_model(own, LONGEST_DESCRIPTION)),
                "available": reason.is_none(),
                "reason": reason,
            })
        })
        .collect();
    json!({ "environments": all })
}

/// The schema of an outcome. docs/outcome.md describes each field.
fn outcome() -> Value {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let maybe = |kind: &str, description: &str| json!({ "type": [kind, "null"], "description": description });
    json!({
        "type": "object",
        "properties": {
            "outcome": {
                "type": "string",
                "enum": ["exited", "signalled", "timed_out", "limit_exceeded", "violation", "setup_failed"],
                "description": "How it ended",
            },
            "success": { "type": "boolean", "description": "It exited with code 0" },
            "exit_code": maybe("integer", "The program's exit code, when it exited"),
            "signal": maybe("integer", "The signal that ended it, when one did"),
            "stdout": text("Standard output"),
            "stderr": text("Standard error"),
            "truncated": {
                "type": "object",
                "properties": {
                    "stdout": { "type": "boolean" },
                    "stderr": { "type": "boolean" },
                    "note": { "type": "string", "description": "Where the rest is, when it is kept" },
                },
                "required": ["stdout", "stderr"],
                "description": "Whether a stream was longer than what is here",
            },
            "execution_time_ms": { "type": "number", "description": "From the start of the program to its end" },
            "setup_time_ms": { "type": "number", "description": "From the call to the start of the program" },
            "memory_used_bytes": maybe("integer", "Peak memory of everything that ran"),
            "cpu_time_seconds": maybe("number", "Processor time of everything that ran"),
            "pid_count": maybe("integer", "Most processes and threads at a time"),
            "limit": text("The limit that was exceeded"),
            "violations": { "type": "array", "items": { "type": "object" }, "description": "What was refused" },
            "violations_complete": { "type": "boolean", "description": "Whether that is all that was refused" },
            "changes": { "type": "array", "items": { "type": "object" }, "description": "Files changed in copy-on-write mounts" },
            "changes_omitted": { "type": "integer", "description": "How many more changed, which are not listed" },
            "enforcement": { "type": "object", "description": "How strongly each field of the policy was held; why, where it was not in full" },
            "backend": text("What held it"),
            "backend_reason": text("Why that"),
            "run_id": text("Unique to this run"),
            "artifacts": { "type": "array", "items": { "type": "string" }, "description": "Files of /workspace/output that came back" },
            "error": maybe("object", "Why nothing ran, or what went wrong afterwards"),
            "session": {
                "type": "object",
                "properties": {
                    "name": { "type": "string", "description": "What names it in the next call" },
                    "fresh": { "type": "boolean", "description": "This call began it" },
                    "interrupted": { "type": "boolean", "description": "The call was ended before it was through" },
                    "over": { "type": ["string", "null"], "description": "Why its state is gone, where it is" },
                },
                "required": ["name", "fresh", "interrupted", "over"],
                "description": "Of a call in a session",
            },
        },
        "required": [
            "outcome", "success", "exit_code", "signal", "stdout", "stderr", "truncated", "execution_time_ms",
            "setup_time_ms", "memory_used_bytes", "cpu_time_seconds", "pid_count", "violations", "violations_complete",
            "changes", "changes_omitted", "enforcement", "backend", "backend_reason", "run_id", "artifacts", "error",
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_engine::Outcome;
    use std::collections::BTreeSet;

    fn keys(value: &Value) -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn schema_has_every_field_of_an_outcome_and_no_other() {
        let schema = outcome();
        let mut full = Outcome::unstarted(None);
        full.limit = Some(cofferdam_policy::Field::Memory);
        let data = serde_json::to_value(&full).unwrap();
        let mut named = keys(&schema["properties"]);
        assert!(named.remove("session"), "only the result of a call in a session has it");
        assert_eq!(named, keys(&data));
        let required: BTreeSet<String> =
            schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        assert_eq!(required, keys(&serde_json::to_value(Outcome::unstarted(None)).unwrap()));
        for (name, value) in data.as_object().unwrap() {
            let kinds = &schema["properties"][name]["type"];
            let kind = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(number) if number.is_f64() => "number",
                Value::Number(_) => "integer",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            let allowed = kinds == kind || kinds.as_array().is_some_and(|all| all.iter().any(|one| one == kind));
            assert!(allowed, "{name}: {kind} is none of {kinds}");
        }
    }
}
