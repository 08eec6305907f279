//! Decodes a JSON tree to a policy, and reports every mistake of its form at once.
//!
//! Owns which value each key takes, what holds when it is left out, and the words for mistyped ones. Ranges and
//! rules between fields are `validate`'s. Strict: each thing has one form, the one that a policy serializes to.
//!
//! ```text
//! bytes ─ json::parse ─▶ tree ─ Decoder ─▶ Policy ─ validate::check ─▶ Policy
//!              │                   │                       │
//!              └ one error         └─────── Collector ─────┴▶ all errors
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use crate::allow::{AllowRule, DenyEntry};
use crate::bundles::{AllowFault, allow_rules, bundle_names};
use crate::defaults::{API_VARIABLE_DEFAULT, HOSTNAME_DEFAULT, default_protected, default_variables, unnamed_limits};
use crate::error::{Collector, PolicyError, PolicyErrors, PolicyPlace, closest, shown_text};
use crate::field::Field;
use crate::json::{self, Json};
use crate::model::*;
use crate::network::{API_URL, ENTRY, PROXY_URL};
use crate::object_schema;
use crate::typed::{Decoder, JsonMembers, list, single_member, word_of};
use crate::url::HttpUrl;

const ACCESSES: &[(&str, Access)] =
    &[("read_only", Access::ReadOnly), ("read_write", Access::ReadWrite), ("copy_on_write", Access::CopyOnWrite)];
const ARG_OPS: &[(&str, ArgOp)] =
    &[("eq", ArgOp::Eq), ("ne", ArgOp::Ne), ("lt", ArgOp::Lt), ("le", ArgOp::Le), ("gt", ArgOp::Gt), ("ge", ArgOp::Ge)];
const AUDIT_LEVELS: &[(&str, AuditLevel)] = &[
    ("error", AuditLevel::Error),
    ("warning", AuditLevel::Warning),
    ("info", AuditLevel::Info),
    ("debug", AuditLevel::Debug),
];
const LEVELS: &[(&str, SeccompLevel)] = &[
    ("disabled", SeccompLevel::Disabled),
    ("basic", SeccompLevel::Basic),
    ("standard", SeccompLevel::Standard),
    ("strict", SeccompLevel::Strict),
];
const NETWORK_MODES: &[(&str, NetworkMode)] = &[
    ("none", NetworkMode::None),
    ("loopback", NetworkMode::Loopback),
    ("allowlist", NetworkMode::Allowlist),
    ("host", NetworkMode::Host),
];
const ON_VIOLATIONS: &[(&str, OnViolation)] = &[("deny", OnViolation::Deny), ("terminate", OnViolation::Terminate)];

impl Policy {
    /// Reads and validates a policy. Every mistake of both kinds is reported; only a text that is not JSON at
    /// all, too large or too deep ends in a single one.
    pub fn from_json(text: &[u8]) -> Result<Policy, PolicyErrors> {
        let (policy, mut errors) = read(text)?;
        errors.add_unless_known(crate::validate::check(&policy));
        errors.finish().map(|()| policy)
    }

    /// Reads a policy without the rules between its fields, for whoever changes it before
    /// [`Policy::validate`]: a base to which a command line adds the program.
    pub fn decode(text: &[u8]) -> Result<Policy, PolicyErrors> {
        let (policy, errors) = read(text)?;
        errors.finish().map(|()| policy)
    }

    /// The policy as JSON text for people, complete, with a line feed at its end. [`Policy::decode`] reads it
    /// back as the same policy.
    pub fn to_json_pretty(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a policy has text keys, so nothing can fail");
        text.push('\n');
        text
    }
}

/// A policy as far as it can be read, with stand-ins for what cannot, and what was wrong.
fn read(text: &[u8]) -> Result<(Policy, Collector), PolicyErrors> {
    let document = json::parse(text)?;
    let mut decoder = Decoder::default();
    if document.has_duplicates {
        decoder.duplicates(&PolicyPlace::Root, &document.root);
    }
    let policy = decoder.policy(&document.root);
    Ok((policy, decoder.errors))
}

/// The objects, in the order of `model`. An object that is absent is one without keys.
impl Decoder {
    fn policy(&mut self, json: &Json<'_>) -> Policy {
        let at = &PolicyPlace::Root;
        let top = self.object(at, Some(json), &object_schema::POLICY);
        let limits = self.object(&at.key("limits"), top.get("limits"), &object_schema::LIMITS);
        Policy {
            version: top.get("version").map_or(VERSION, |json| self.version(&at.key("version"), json)),
            id: top.get("id").map(|json| self.string(&at.key("id"), json)),
            description: top.get("description").map(|json| self.string(&at.key("description"), json)),
            command: self.command(&at.key("command"), top.get("command")),
            filesystem: self.filesystem(&at.key("filesystem"), top.get("filesystem")),
            network: self.network(&at.key("network"), top.get("network")),
            process: self.process(&at.key("process"), top.get("process")),
            limits: self.limits(&at.key("limits"), limits),
            enforcement: self.enforcement(&at.key("enforcement"), top.get("enforcement"), limits),
            on_violation: self.word(&at.key("on_violation"), top.get("on_violation"), ON_VIOLATIONS),
            audit: self.audit(&at.key("audit"), top.get("audit")),
            backend: self.word(&at.key("backend"), top.get("backend"), BackendName::NAMES),
        }
    }

    fn command(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Command {
        let object = self.object(at, json, &object_schema::COMMAND);
        Command {
            argv: self.strings(&at.key("argv"), object.get("argv")).unwrap_or_default(),
            variables: self.variables(&at.key("variables"), object.get("variables")),
            cwd: object.get("cwd").map(|json| self.string(&at.key("cwd"), json)),
            stdin: self.stdin(&at.key("stdin"), object.get("stdin")),
        }
    }

    fn variables(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> BTreeMap<String, String> {
        match json {
            None => default_variables(),
            Some(Json::Object(members)) => {
                let pairs = members.iter().filter(|member| !member.duplicate);
                pairs.map(|m| (m.key.to_string(), self.string(&at.key(&m.key), &m.value))).collect()
            }
            Some(other) => {
                self.wrong(at, other, "not an object", r#"an object of texts, such as {"LANG": "C.UTF-8"}"#);
                default_variables()
            }
        }
    }

    fn stdin(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Stdin {
        const ACCEPTED: &str = r#""closed", "caller" or {"text": "…"}"#;
        match json {
            None => Stdin::Closed,
            Some(json) => match (word_of(json), single_member(json)) {
                (Some("closed"), _) => Stdin::Closed,
                (Some("caller"), _) => Stdin::Caller,
                (_, Some(("text", text))) => Stdin::Text(self.string(&at.key("text"), text)),
                _ => {
                    self.wrong(at, json, "not a source of standard input", ACCEPTED);
                    Stdin::Closed
                }
            },
        }
    }

    fn filesystem(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Filesystem {
        let object = self.object(at, json, &object_schema::FILESYSTEM);
        let mounts = object.get("mounts");
        Filesystem {
            root: self.root(&at.key("root"), object.get("root")),
            mounts: self.list(&at.key("mounts"), mounts, Decoder::mount).unwrap_or_default(),
            deny: self.strings(&at.key("deny"), object.get("deny")).unwrap_or_default(),
            protected: self.strings(&at.key("protected"), object.get("protected")).unwrap_or_else(default_protected),
            identities: Default::default(),
        }
    }

    fn root(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Root {
        const ACCEPTED: &str = r#""host", "minimal", "interpreter", {"directory": "/…"} or {"image": "…"}"#;
        match json {
            None => Root::Minimal,
            Some(json) => match (word_of(json), single_member(json)) {
                (Some("host"), _) => Root::Host,
                (Some("minimal"), _) => Root::Minimal,
                (Some("interpreter"), _) => Root::Interpreter,
                (_, Some(("image", name))) => Root::Image(self.string(&at.key("image"), name)),
                (_, Some(("directory", path))) => Root::Directory(self.string(&at.key("directory"), path)),
                _ => {
                    self.wrong(at, json, "not a root view", ACCEPTED);
                    Root::Minimal
                }
            },
        }
    }

    fn mount(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> Mount {
        const ACCEPTED: &str = r#"an object with "type": "bind" or "tmpfs""#;
        let kind = match json {
            Json::Object(members) => JsonMembers(members).get("type").and_then(word_of),
            _ => None,
        };
        match kind {
            Some("bind") => {
                let object = self.object(at, Some(json), &object_schema::BIND);
                Mount::Bind {
                    source: self.text(&at.key("source"), object.get("source")),
                    target: self.text(&at.key("target"), object.get("target")),
                    access: self.word(&at.key("access"), object.get("access"), ACCESSES),
                    exec: self.boolean(&at.key("exec"), object.get("exec"), false),
                    optional: self.boolean(&at.key("optional"), object.get("optional"), false),
                }
            }
            Some("tmpfs") => {
                let object = self.object(at, Some(json), &object_schema::TMPFS);
                let target = self.text(&at.key("target"), object.get("target"));
                let size = object.get("size_mb").map(|json| self.integer(&at.key("size_mb"), json, "MiB"));
                let exec = self.boolean(&at.key("exec"), object.get("exec"), false);
                Mount::Tmpfs { target, size_mb: size.unwrap_or(1), exec }
            }
            _ => {
                self.wrong(at, json, "not a mount", ACCEPTED);
                Mount::Tmpfs { target: String::new(), size_mb: 1, exec: false }
            }
        }
    }

    fn network(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Network {
        let object = self.object(at, json, &object_schema::NETWORK);
        Network {
            mode: self.word(&at.key("mode"), object.get("mode"), NETWORK_MODES),
            allow: self
                .list(&at.key("allow"), object.get("allow"), Decoder::allow_rules)
                .unwrap_or_default()
                .into_iter()
                .flatten()
                .collect(),
            deny: self.list(&at.key("deny"), object.get("deny"), Decoder::deny_entry).unwrap_or_default(),
            methods: self.strings(&at.key("methods"), object.get("methods")),
            api: object.get("api").map(|json| self.api(&at.key("api"), json)),
            // Neither URL is shown: it may have a password.
            upstream_proxy: object
                .get("upstream_proxy")
                .map(|json| self.parsed(&at.key("upstream_proxy"), json, false, PROXY_URL, HttpUrl::unread)),
            limits: self.network_limits(&at.key("limits"), object.get("limits")),
        }
    }

    /// The rules of one element of `network.allow`: a bundle stands for several.
    fn allow_rules(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> Vec<AllowRule> {
        match json {
            Json::String(_) => return self.allowed(at, json),
            Json::Object(_) => {}
            _ => {
                let accepted = format!(r#"{ENTRY}; or an object, {{"to": …}} with more"#);
                self.wrong(at, json, "neither a text nor an object", &accepted);
                return vec![AllowRule::unread()];
            }
        }
        let object = self.object(at, Some(json), &object_schema::ALLOW_RULE);
        let to = object.get("to").map(|json| self.allowed(&at.key("to"), json));
        let methods = self.strings(&at.key("methods"), object.get("methods"));
        let paths = self.strings(&at.key("paths"), object.get("paths"));
        let encrypted_hello = self.boolean(&at.key("encrypted_hello"), object.get("encrypted_hello"), false);
        let private = self.boolean(&at.key("private"), object.get("private"), false);
        let to = to.unwrap_or_else(|| vec![AllowRule::unread()]).into_iter();
        to.map(|to| AllowRule { methods: methods.clone(), paths: paths.clone(), encrypted_hello, private, ..to })
            .collect()
    }

    /// Where a text of `network.allow` leads, or a stand-in for what cannot be read.
    fn allowed(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> Vec<AllowRule> {
        let Some(text) = word_of(json) else {
            self.string(at, json);
            return vec![AllowRule::unread()];
        };
        allow_rules(text).unwrap_or_else(|fault| {
            let accepted = match (fault, fault.meant()) {
                (_, Some(meant)) => format!("did you mean `{meant}`?"),
                (AllowFault::Bundle(_), None) => format!("one of {}", bundle_names()),
                (AllowFault::Entry(_), None) => ENTRY.into(),
            };
            self.wrong(at, json, &fault.to_string(), &accepted);
            vec![AllowRule::unread()]
        })
    }

    fn deny_entry(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> DenyEntry {
        self.parsed(at, json, true, ENTRY, DenyEntry::unread)
    }

    fn api(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> NetworkApi {
        let object = self.object(at, Some(json), &object_schema::NETWORK_API);
        let url = object.get("url").map(|json| self.parsed(&at.key("url"), json, false, API_URL, HttpUrl::unread));
        let variable = object.get("variable").map(|json| self.string(&at.key("variable"), json));
        NetworkApi {
            url: url.unwrap_or_else(HttpUrl::unread),
            variable: variable.unwrap_or_else(|| API_VARIABLE_DEFAULT.into()),
        }
    }

    fn network_limits(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> NetworkLimits {
        let object = self.object(at, json, &object_schema::NETWORK_LIMITS);
        NetworkLimits::from_table(|limit| {
            object.get(limit.key).map(|json| self.integer(&at.key(limit.key), json, limit.unit))
        })
    }

    /// What a text says in a form of its own, or a stand-in for what cannot be read.
    fn parsed<T: FromStr<Err = &'static str>>(
        &mut self,
        at: &PolicyPlace<'_>,
        json: &Json<'_>,
        shown: bool,
        accepted: &str,
        unread: fn() -> T,
    ) -> T {
        let Some(text) = word_of(json) else {
            self.string(at, json);
            return unread();
        };
        text.parse().unwrap_or_else(|problem: &str| {
            self.errors.add(|| PolicyError {
                path: at.to_string(),
                value: if shown { shown_text(text) } else { String::new() },
                problem: problem.into(),
                accepted: accepted.into(),
            });
            unread()
        })
    }

    fn process(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Process {
        let object = self.object(at, json, &object_schema::PROCESS);
        let hostname = object.get("hostname");
        Process {
            spawn: self.boolean(&at.key("spawn"), object.get("spawn"), true),
            nested_sandboxes: self.boolean(&at.key("nested_sandboxes"), object.get("nested_sandboxes"), false),
            seccomp: self.seccomp(&at.key("seccomp"), object.get("seccomp")),
            unix_sockets: self.boolean(&at.key("unix_sockets"), object.get("unix_sockets"), false),
            hostname: hostname.map_or_else(|| HOSTNAME_DEFAULT.into(), |json| self.string(&at.key("hostname"), json)),
        }
    }

    fn seccomp(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Seccomp {
        let object = self.object(at, json, &object_schema::SECCOMP);
        let rules = object.get("rules");
        Seccomp {
            level: self.word(&at.key("level"), object.get("level"), LEVELS),
            rules: self.list(&at.key("rules"), rules, Decoder::syscall_rule).unwrap_or_default(),
        }
    }

    fn syscall_rule(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> SyscallRule {
        let object = self.object(at, Some(json), &object_schema::SYSCALL_RULE);
        let when = object.get("when");
        SyscallRule {
            syscalls: self.strings(&at.key("syscalls"), object.get("syscalls")).unwrap_or_default(),
            action: self.syscall_action(&at.key("action"), object.get("action")),
            when: self.list(&at.key("when"), when, Decoder::arg_condition).unwrap_or_default(),
        }
    }

    fn syscall_action(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> SyscallAction {
        const ACCEPTED: &str = r#""kill" or {"errno": "EPERM"}"#;
        let Some(json) = json else {
            return SyscallAction::Kill;
        };
        match (word_of(json), single_member(json)) {
            (Some("kill"), _) => SyscallAction::Kill,
            (_, Some(("errno", name))) => SyscallAction::Errno(self.string(&at.key("errno"), name)),
            _ => {
                self.wrong(at, json, "not an action", ACCEPTED);
                SyscallAction::Kill
            }
        }
    }

    fn arg_condition(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> ArgCondition {
        let object = self.object(at, Some(json), &object_schema::ARG_CONDITION);
        let index = object.get("index").map_or(0, |json| self.integer(&at.key("index"), json, "arguments"));
        let mask = object.get("mask").map_or(u64::MAX, |json| self.integer(&at.key("mask"), json, "bits"));
        ArgCondition {
            // Out of u8 is out of range all the more: `validate` reports the largest as any other.
            index: u8::try_from(index).unwrap_or(u8::MAX),
            mask,
            op: object.get("op").map_or(ArgOp::Eq, |json| self.known_word(&at.key("op"), json, ARG_OPS)),
            value: object.get("value").map_or(0, |json| self.integer(&at.key("value"), json, "bits")),
        }
    }

    fn limits(&mut self, at: &PolicyPlace<'_>, object: JsonMembers<'_>) -> Limits {
        Limits::from_table(|limit| match object.get(limit.key) {
            Some(json) => self.integer(&at.key(limit.key), json, limit.unit),
            None => limit.default,
        })
    }

    /// What the text lists, and every limit that it does not name.
    fn enforcement(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>, limits: JsonMembers<'_>) -> Enforcement {
        let object = self.object(at, json, &object_schema::ENFORCEMENT);
        let mut best_effort = unnamed_limits(|key| limits.get(key).is_none());
        let mut listed = BTreeSet::new();
        let field = |decoder: &mut Decoder, at: &PolicyPlace<'_>, json: &Json<'_>| {
            let field = word_of(json).and_then(Field::from_name);
            match field {
                Some(field) if !listed.insert(field) => {
                    decoder.wrong(at, json, "listed twice", "each field once");
                }
                Some(_) => {}
                None => {
                    let names = || Field::ALL.iter().map(|field| field.name());
                    let accepted = match word_of(json).and_then(|name| closest(name, names())) {
                        Some(close) => format!("a field of the policy; did you mean `{close}`?"),
                        None => format!("one of {}", list(names())),
                    };
                    decoder.wrong(at, json, "not a field that can be best effort", &accepted);
                }
            }
        };
        self.list(&at.key("best_effort"), object.get("best_effort"), field);
        best_effort.extend(listed);
        Enforcement { best_effort }
    }

    fn audit(&mut self, at: &PolicyPlace<'_>, json: Option<&Json<'_>>) -> Audit {
        let object = self.object(at, json, &object_schema::AUDIT);
        Audit {
            enabled: self.boolean(&at.key("enabled"), object.get("enabled"), true),
            level: self.word(&at.key("level"), object.get("level"), AUDIT_LEVELS),
            trace: self.boolean(&at.key("trace"), object.get("trace"), false),
        }
    }

    fn version(&mut self, at: &PolicyPlace<'_>, json: &Json<'_>) -> u32 {
        let Json::Number(number) = json else {
            self.wrong(at, json, "not a number", "1, without quotes");
            return VERSION;
        };
        let version = number.as_u64().and_then(|version| u32::try_from(version).ok());
        version.unwrap_or_else(|| {
            self.wrong(at, json, "no version of a policy", "1");
            VERSION
        })
    }
}
