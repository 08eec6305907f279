//! Which fields an nsjail configuration cannot express, and which get a warning: the policy library, by way of
//! `cofferdam export`, and the engine agree about every field. The engine's answer is the table of docs/backends.md.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use cofferdam_engine::backends::{ExportTarget, export};
use cofferdam_engine::facts::{Facts, FactsTable};
use cofferdam_engine::{Engine, Strength};
use cofferdam_policy::{Field, Policy};
use cofferdam_profiles::protocol::{self, Encoding, RequestedOutput};
use cofferdam_profiles::{CompileRequest, Compiler};
use common::evaluator;
use serde_json::{Value, json};

/// The fields that are refused, and the fields that are exported with a warning.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    refused: BTreeSet<Field>,
    /// Only where something is written: what is refused has no warnings.
    warned: BTreeSet<Field>,
}

/// The fields that a text speaks of, each by its name and a colon.
fn fields_in<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeSet<Field> {
    let named = |text: &str| Field::ALL.iter().copied().filter(move |f| text.contains(&format!("{f}: "))).collect();
    texts.into_iter().flat_map(|text| -> Vec<Field> { named(text) }).collect()
}

/// What the library answers.
fn of_library(policies: &[Value], helper: &Path) -> Vec<Answer> {
    let directory = tempfile::tempdir().unwrap();
    let wanted = RequestedOutput { format: protocol::OutputFormat::Nsjail, encoding: Encoding::Json };
    let asks: Vec<CompileRequest> = policies
        .iter()
        .enumerate()
        .map(|(number, policy)| {
            std::fs::write(directory.path().join(format!("{number}.json")), policy.to_string()).unwrap();
            let file = directory.path().join(format!("{number}.ncl"));
            std::fs::write(&file, format!("import \"{number}.json\"")).unwrap();
            CompileRequest { file, overrides: Vec::new(), outputs: vec![wanted], imports: Vec::new() }
        })
        .collect();
    let engine = Engine::probe();
    // Without the jail around it: the profiles are this test's own.
    let answers = Compiler::new(&engine, helper).trusted(true).compile_all(&asks);
    let answer = |(policy, answer): (&Value, Result<cofferdam_profiles::Compiled, _>)| {
        let compiled: cofferdam_profiles::Compiled = answer.unwrap_or_else(|e| panic!("{policy}: {e:?}"));
        match &compiled.outputs[0] {
            Ok(_) => Answer {
                refused: BTreeSet::new(),
                warned: fields_in(compiled.warnings.iter().filter_map(|text| text.strip_prefix("nsjail: "))),
            },
            Err(why) => Answer { refused: fields_in([why.as_str()]), warned: BTreeSet::new() },
        }
    };
    policies.iter().zip(answers).map(answer).collect()
}

/// What the engine answers, for a host with these files.
fn of_engine(policy: &Value, host: &dyn Facts) -> Answer {
    let policy = Policy::decode(policy.to_string().as_bytes()).unwrap_or_else(|e| panic!("{policy}: {e:?}"));
    match export(&policy, ExportTarget::Nsjail, host) {
        Ok(written) => {
            let short = written.enforcement.iter().filter(|(_, applied)| applied.strength != Strength::Full);
            Answer { refused: BTreeSet::new(), warned: short.map(|(field, _)| *field).collect() }
        }
        Err(refusal) => {
            // Of a refusal for several fields, the hint names them all; of what cannot be laid out at all, the step does.
            let hint = refusal.hint.as_deref().unwrap_or_default();
            let all = hint.strip_prefix("--best-effort=").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let first = refusal.step.as_str().split('[').next().unwrap_or_default();
            let fields = all.split(',').chain([first]).filter_map(Field::from_name);
            Answer { refused: fields.collect(), warned: BTreeSet::new() }
        }
    }
}

fn merged(base: &Value, more: &Value) -> Value {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            let mut all = base.clone();
            for (key, value) in more {
                let value = base.get(key).map_or_else(|| value.clone(), |old| merged(old, value));
                all.insert(key.clone(), value);
            }
            Value::Object(all)
        }
        _ => more.clone(),
    }
}

/// For each field, policies that ask for it: as little and as much as can be asked.
fn asking(field: Field) -> Vec<Value> {
    let writable = json!([{"type": "bind", "source": "/home/u/w", "target": "/home/u/w", "access": "read_write"}]);
    let limit = |name: &str, values: &[u64]| values.iter().map(|value| json!({"limits": {name: value}})).collect();
    match field {
        Field::Root => ["minimal", "interpreter", "host"].map(|root| json!({"filesystem": {"root": root}})).to_vec(),
        Field::Mounts => {
            let bind = |access: &str| {
                json!({"filesystem": {"mounts": [
                    {"type": "bind", "source": "/home/u/data", "target": "/home/u/data", "access": access},
                    {"type": "tmpfs", "target": "/scratch", "size_mb": 8},
                ]}})
            };
            vec![bind("read_only"), bind("copy_on_write")]
        }
        // Of a name that is not there yet; of one that is, see below.
        Field::Deny => vec![
            json!({"filesystem": {"deny": ["/home/u/elsewhere"]}}),
            json!({"filesystem": {"deny": ["/home/u/w/later"], "mounts": writable, "protected": []}}),
        ],
        Field::Protected => vec![
            json!({"filesystem": {"protected": [".git/hooks"], "mounts": []}}),
            json!({"filesystem": {"protected": [".git/hooks"], "mounts": writable}}),
        ],
        Field::Metadata => vec![json!({"filesystem": {"mounts": writable, "protected": []}})],
        Field::Network => vec![
            json!({"network": {"mode": "loopback"}}),
            json!({"network": {"mode": "host"}}),
            json!({"network": {"mode": "allowlist", "allow": ["example.org"]}}),
        ],
        Field::Methods => vec![
            json!({"network": {"mode": "allowlist", "allow": ["example.org"], "methods": ["GET"]}}),
            json!({"network": {"mode": "allowlist", "allow": [{"to": "example.org:80", "paths": ["/v1/*"]}]}}),
        ],
        Field::Api => {
            let api = json!({"url": "http://127.0.0.1:8000"});
            vec![json!({"network": {"mode": "allowlist", "api": api}})]
        }
        Field::UpstreamProxy => {
            let proxy = "http://proxy.example:3128";
            vec![json!({"network": {"mode": "allowlist", "allow": ["example.org"], "upstream_proxy": proxy}})]
        }
        Field::NetworkLimits => {
            vec![json!({"network": {"mode": "allowlist", "allow": ["example.org"], "limits": {"up_mb": 1}}})]
        }
        Field::NestedSandboxes => vec![json!({"process": {"nested_sandboxes": true}})],
        Field::Spawn => vec![json!({"process": {"spawn": true}}), json!({"process": {"spawn": false}})],
        Field::Seccomp => {
            ["disabled", "strict"].map(|level| json!({"process": {"seccomp": {"level": level}}})).to_vec()
        }
        Field::UnixSockets => vec![
            json!({"process": {"unix_sockets": true}}),
            json!({"process": {"unix_sockets": true}, "network": {"mode": "host"}}),
        ],
        Field::Isolation | Field::TreeKill => vec![json!({})],
        Field::Hostname => vec![json!({"process": {"hostname": "box"}})],
        Field::Memory => limit("memory_mb", &[64]),
        Field::CpuTime => vec![
            json!({"limits": {"cpu_seconds": 5}}),
            json!({"limits": {"cpu_seconds": 5}, "process": {"spawn": false}}),
        ],
        Field::CpuShare => limit("cpu_millis", &[500]),
        Field::WallTime => limit("wall_ms", &[2000, 1500]),
        Field::FileSize => limit("file_size_mb", &[3]),
        Field::OpenFiles => limit("open_files", &[99]),
        Field::Processes => limit("processes", &[9]),
        Field::Tmpfs => limit("tmpfs_mb", &[16]),
        Field::Output => limit("output_bytes", &[99]),
        Field::Layer => limit("layer_mb", &[5]),
    }
}

fn host() -> FactsTable {
    FactsTable::usual(&["/home/u/data/", "/home/u/w/"])
}

/// Each policy of [`asking`] with what is asked for required, and as best effort.
fn policies() -> Vec<(Field, bool, Value)> {
    let base = json!({"version": 1, "command": {"argv": ["/usr/bin/true"]}});
    let both = |field: Field| {
        asking(field).into_iter().flat_map(move |more| {
            [(true, json!({})), (false, json!({"enforcement": {"best_effort": [field.name()]}}))]
                .map(|(required, effort)| (field, required, merged(&more, &effort)))
        })
    };
    let all = Field::ALL.iter().flat_map(|field| both(*field));
    all.map(|(field, required, more)| (field, required, merged(&base, &more))).collect()
}

#[test]
fn the_library_and_the_engine_refuse_and_warn_alike() {
    let Some(helper) = evaluator() else { return };
    let (policies, host) = (policies(), host());
    let texts: Vec<Value> = policies.iter().map(|(.., policy)| policy.clone()).collect();
    let mut wrong = Vec::new();
    for ((field, _, policy), library) in policies.iter().zip(of_library(&texts, &helper)) {
        let engine = of_engine(policy, &host);
        // Copy-on-write cannot be enforced in part, so best effort does not help.
        let copies = policy.to_string().contains("copy_on_write");
        let agree = if copies { engine.refused == BTreeSet::from([Field::Mounts]) } else { engine == library };
        if !agree {
            wrong.push(format!("{field}: {policy}\n  library {library:?}\n  engine  {engine:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn field_nsjail_cannot_enforce_is_an_error_or_a_warning() {
    let host = host();
    let (mut refused, mut warned, mut held) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (field, required, policy) in policies() {
        let answer = of_engine(&policy, &host);
        if answer.refused.contains(&field) {
            assert!(required || field == Field::Mounts, "{field} is refused though it is best effort: {policy}");
            refused.insert(field);
        } else if required && answer.warned.contains(&field) && !answer.refused.contains(&field) {
            warned.insert(field);
        } else if required && answer.refused.is_empty() {
            held.insert(field);
        }
    }
    let cannot = [
        Field::Root,
        Field::Mounts,
        Field::Deny,
        Field::Protected,
        Field::Network,
        Field::Methods,
        Field::Api,
        Field::UpstreamProxy,
        Field::NetworkLimits,
        Field::NestedSandboxes,
        Field::UnixSockets,
        Field::CpuTime,
        Field::WallTime,
        Field::Output,
    ];
    assert_eq!(refused, BTreeSet::from(cannot));
    // The only required field that gets a warning: docs/backends.md says why.
    assert_eq!(warned, BTreeSet::from([Field::Spawn]));
    // What is asked for in a way that can be held is held, also of fields that can be asked for in another.
    let network = [Field::Api, Field::UpstreamProxy, Field::NetworkLimits];
    let never = [Field::Methods, Field::NestedSandboxes, Field::Output];
    let rest: BTreeSet<Field> =
        Field::ALL.iter().copied().filter(|field| !never.contains(field) && !network.contains(field)).collect();
    assert_eq!(held, rest);
}

#[test]
fn existing_denied_name_is_masked_by_engine_refused_by_export() {
    let Some(helper) = evaluator() else { return };
    let policy = json!({
        "version": 1,
        "command": {"argv": ["/usr/bin/true"]},
        "filesystem": {"deny": ["/usr/bin/python3"]},
    });
    assert_eq!(of_engine(&policy, &host()).refused, BTreeSet::new());
    assert_eq!(of_library(&[policy], &helper)[0].refused, BTreeSet::from([Field::Deny]));
}
