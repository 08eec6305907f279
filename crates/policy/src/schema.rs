//! The JSON Schema of a policy: the structure comes from the types, which keys may be left out from the table that
//! decoding uses, defaults and ranges from the built-in policy and the limits.
//!
//! Only the generator and the tests build this. The committed docs/policy.schema.json is its output.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::allow::{AllowRule, DenyEntry, METHODS};
use crate::errno::errno_names;
use crate::limits::{LIMITS, MAX_MIB};
use crate::model::Policy;
use crate::network_limits::NETWORK_LIMITS;
use crate::object_schema::{self, ObjectSchema};
use crate::url::HttpUrl;

/// The schema (JSON Schema 2020-12) of what [`Policy::decode`] accepts, with the patterns and ranges of
/// [`Policy::validate`] where a schema can say them.
pub fn json_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<Policy>().to_value();
    schema["title"] = json!("Cofferdam policy");
    schema["$comment"] = json!("Generated from crates/policy; regenerate it, do not edit it.");
    close_object(&mut schema, &object_schema::POLICY);
    for (name, expected) in DEFINITIONS {
        close_object(&mut schema["$defs"][name], expected);
    }
    let kinds = schema["$defs"]["Mount"]["oneOf"].as_array_mut().expect("a mount is one of its kinds");
    for (kind, expected) in kinds.iter_mut().zip([&object_schema::BIND, &object_schema::TMPFS]) {
        close_object(kind, expected);
        kind["properties"]["exec"]["default"] = json!(false);
    }
    kinds[0]["properties"]["access"]["default"] = json!("read_only");
    kinds[0]["properties"]["optional"]["default"] = json!(false);
    kinds[1]["properties"]["size_mb"]["minimum"] = json!(1);
    kinds[1]["properties"]["size_mb"]["maximum"] = json!(MAX_MIB);
    defaults(&mut schema);
    patterns(&mut schema);
    plain(&mut schema);
    schema
}

/// The schema as the text that is committed.
pub fn json_schema_text() -> String {
    let mut text = serde_json::to_string_pretty(&json_schema()).expect("a schema has text keys");
    text.push('\n');
    text
}

/// The definitions that are objects, and their shapes.
const DEFINITIONS: &[(&str, &ObjectSchema)] = &[
    ("ArgCondition", &object_schema::ARG_CONDITION),
    ("Audit", &object_schema::AUDIT),
    ("Command", &object_schema::COMMAND),
    ("Enforcement", &object_schema::ENFORCEMENT),
    ("Filesystem", &object_schema::FILESYSTEM),
    ("Limits", &object_schema::LIMITS),
    ("Network", &object_schema::NETWORK),
    ("NetworkApi", &object_schema::NETWORK_API),
    ("NetworkLimits", &object_schema::NETWORK_LIMITS),
    ("Process", &object_schema::PROCESS),
    ("Seccomp", &object_schema::SECCOMP),
    ("SyscallRule", &object_schema::SYSCALL_RULE),
];

/// Required is what decoding cannot do without, and no other key is known.
fn close_object(object: &mut Value, expected: &ObjectSchema) {
    let object = object.as_object_mut().expect("a definition is an object");
    object.remove("required");
    if !expected.required.is_empty() {
        object.insert("required".into(), json!(expected.required));
    }
    object.insert("additionalProperties".into(), json!(false));
}

/// What holds when a key is left out.
fn defaults(schema: &mut Value) {
    let base = serde_json::to_value(Policy::base()).expect("a policy has text keys");
    let set = |properties: &mut Value, values: &Map<String, Value>, skip: &[&str]| {
        for (key, value) in values.iter().filter(|(key, _)| !skip.contains(&key.as_str())) {
            properties[key]["default"] = value.clone();
        }
    };
    // Groups have defaults of their own inside, and a version cannot be left out.
    for key in ["on_violation", "backend"] {
        schema["properties"][key]["default"] = base[key].clone();
    }
    let groups = [
        ("Command", &base["command"]),
        ("Filesystem", &base["filesystem"]),
        ("Network", &base["network"]),
        ("NetworkLimits", &base["network"]["limits"]),
        ("Process", &base["process"]),
        ("Seccomp", &base["process"]["seccomp"]),
        ("Limits", &base["limits"]),
        ("Audit", &base["audit"]),
    ];
    for (name, values) in groups {
        let values = values.as_object().expect("a group is an object");
        set(&mut schema["$defs"][name]["properties"], values, &["seccomp", "limits"]);
    }
    let best_effort = &mut schema["$defs"]["Enforcement"]["properties"]["best_effort"];
    best_effort["description"] = json!(
        "Fields that are held as far as the host allows; what was reached stands in the outcome. Every limit that \
         the policy does not name is one of them."
    );
    best_effort["default"] = json!([]);
    schema["$defs"]["SyscallRule"]["properties"]["when"]["default"] = json!([]);
    schema["$defs"]["ArgCondition"]["properties"]["mask"]["default"] = json!(u64::MAX);
}

/// Patterns and ranges.
fn patterns(schema: &mut Value) {
    schema["properties"]["version"] = json!({"description": "Always 1.", "const": crate::model::VERSION});
    schema["properties"]["id"]["pattern"] = json!("^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$");
    let definitions = &mut schema["$defs"];
    definitions["Process"]["properties"]["hostname"]["pattern"] = json!("^[A-Za-z0-9]([A-Za-z0-9-]{0,62})$");
    let variables = &mut definitions["Command"]["properties"]["variables"];
    variables["propertyNames"] = json!({"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"});
    for limit in LIMITS {
        let property = &mut definitions["Limits"]["properties"][limit.key];
        property["minimum"] = json!(1);
        property["maximum"] = json!(limit.max);
    }
    let methods = &mut definitions["Network"]["properties"]["methods"];
    methods["minItems"] = json!(1);
    methods["items"]["enum"] = json!(METHODS);
    for limit in NETWORK_LIMITS {
        let property = &mut definitions["NetworkLimits"]["properties"][limit.key];
        property["minimum"] = json!(1);
        property["maximum"] = json!(limit.max);
    }
    let variable = &mut definitions["NetworkApi"]["properties"]["variable"];
    variable["pattern"] = json!("^[A-Za-z_][A-Za-z0-9_]*$");
    variable["default"] = json!(crate::defaults::API_VARIABLE_DEFAULT);
    definitions["ArgCondition"]["properties"]["index"]["maximum"] = json!(5);
    let syscalls = &mut definitions["SyscallRule"]["properties"]["syscalls"];
    syscalls["minItems"] = json!(1);
    syscalls["items"]["pattern"] = json!("^[a-z_][a-z0-9_]{0,63}$");
    let actions = definitions["SyscallAction"]["oneOf"].as_array_mut().expect("an action is one of its kinds");
    let errno = actions.iter_mut().find_map(|kind| kind.pointer_mut("/properties/errno"));
    errno.expect("one action is an errno")["enum"] = json!(errno_names().collect::<Vec<_>>());
}

/// Where a rule of the network leads, as text.
const TO: &str = "`HOST[:PORTS]`, `*.SUFFIX[:PORTS]`, `ADDRESS[/PREFIX][:PORTS]` or `[IPV6[/PREFIX]]:PORTS`; PORTS is a comma \
                  list of ports and ranges, or `*`.";

impl JsonSchema for AllowRule {
    fn schema_name() -> Cow<'static, str> {
        "AllowRule".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let expected = &object_schema::ALLOW_RULE;
        let to = format!(
            "{TO} Without PORTS: 80 and 443. Or a bundle, which stands for its hosts: {}.",
            crate::bundles::bundle_names()
        );
        let properties = json!({
            "to": {"description": to, "type": "string"},
            "methods": {
                "description": "Methods that requests on plain HTTP may have; left out, any. What is encrypted is not \
                                looked into.",
                "type": "array", "items": {"type": "string", "enum": METHODS}, "minItems": 1,
            },
            "paths": {
                "description": "Paths that requests on plain HTTP may have, exact, or ending in `/*` for all below; left \
                                out, any. Queries do not count. What is encrypted is not looked into.",
                "type": "array", "items": {"type": "string", "pattern": "^/"}, "minItems": 1,
            },
            "encrypted_hello": {
                "description": "Whether a TLS greeting may hide its name (Encrypted Client Hello): then the address \
                                alone says where it goes.",
                "type": "boolean", "default": false,
            },
            "private": {
                "description": "Whether this one name may lead to an address of a private network (RFC 1918, 100.64/10, \
                                fc00::/7, fec0::/10, documentation). Never to this host's own addresses, link-local ones or a \
                                metadata service. Not together with `methods` or `paths`.",
                "type": "boolean", "default": false,
            },
        });
        json_schema!({
            "description": "One rule of what may be reached; a text when it says no more than where.",
            "oneOf": [
                {"description": to, "type": "string"},
                {"type": "object", "properties": properties, "required": expected.required, "additionalProperties": false},
            ],
        })
    }
}

impl JsonSchema for DenyEntry {
    fn schema_name() -> Cow<'static, str> {
        "DenyEntry".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"description": format!("{TO} Without PORTS: every port."), "type": "string"})
    }
}

impl JsonSchema for HttpUrl {
    fn schema_name() -> Cow<'static, str> {
        "HttpUrl".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A URL of `http` or `https` without query or fragment.",
            "type": "string",
            "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^?#]+$",
        })
    }
}

/// Drops what is no standard: Rust's integer formats, line ends in descriptions, and `null` for what can only be
/// left out.
fn plain(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("format");
            if let Some(Value::String(description)) = object.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            if let Some(Value::Array(types)) = object.get("type") {
                let types: Vec<Value> = types.iter().filter(|t| *t != "null").cloned().collect();
                if let [only] = types.as_slice() {
                    object.insert("type".into(), only.clone());
                }
            }
            if let Some(Value::Array(kinds)) = object.get("anyOf") {
                let kinds: Vec<&Value> = kinds.iter().filter(|kind| kind["type"] != "null").collect();
                if let [Value::Object(only)] = kinds.as_slice() {
                    let only = only.clone();
                    object.remove("anyOf");
                    object.extend(only);
                }
            }
            object.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}
