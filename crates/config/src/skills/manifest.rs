//! SkillManifest v1: a skill's description of itself, signed by its publisher.
//!
//! Owns the schema: objects are closed, limits and patterns are checked, and all mistakes are reported with their JSON paths. Pure:
//! `signature` verifies the signature, and `intake` the files.

use std::collections::BTreeSet;

use cofferdam_policy::{AllowEntry, PolicyErrors, paths};
use serde::Serialize;
use serde_json::Value;

use super::json::{ValueReader, parse, shown};

/// The manifest's file name, at the top of a skill's directory. The manifest does not list itself.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Longest manifest, bytes.
pub(crate) const MAX_MANIFEST_BYTES: usize = 4 << 20;

/// Most files of a skill.
pub(crate) const MAX_FILES: usize = 10_000;

/// Largest whole number that all JSON readers represent exactly (RFC 8785 has doubles only).
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// Most entries in a list of chains, hosts or paths.
const MAX_LIST: usize = 1000;

/// The actions that a skill may ask its host to sign, by their names in the schema.
pub(crate) const TX_ACTIONS: &[&str] = &["transfer", "transfer_native", "approve", "swap_exact_in", "swap_exact_out"];

/// A skill's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always "1".
    pub version: String,
    /// The skill's name, `^[a-z0-9][a-z0-9-]{0,63}$`; a registered one may begin with `-`.
    pub name: String,
    /// The publisher, who signs it.
    pub publisher: Publisher,
    /// The permissions that it requests.
    pub permissions: Permissions,
    /// The limits that it accepts.
    pub sandbox: Wants,
    /// All of its files.
    pub files: Vec<ManifestFile>,
    /// The publisher's signature over all of the above, `0x` and hexadecimal digits; `None` in a draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// The publisher of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Publisher {
    /// A display name.
    pub name: String,
    /// The address of the publisher's key, `^0x[0-9a-fA-F]{40}$`.
    pub address: String,
    /// An e-mail address.
    pub contact: String,
}

/// The permissions that a skill requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Permissions {
    /// Of [`TX_ACTIONS`]; the API behind `ISCL_API_URL` decides on them.
    pub tx_actions: Vec<String>,
    /// Numbers of chains; as above.
    pub chains: Vec<u64>,
    /// None, what the operator says, or these hosts.
    pub network_access: Wish,
    /// None, or these paths inside: `/input` and `/output` for what a caller exchanges with it. By itself it grants nothing.
    pub filesystem_access: Wish,
}

/// A request, as a flag or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Wish {
    /// Nothing, or all that the operator grants.
    Flag(bool),
    /// These entries.
    List(Vec<String>),
}

/// The limits that a skill accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wants {
    /// Memory, MiB, 1 to 512.
    pub memory_mb: u64,
    /// Wall time, milliseconds, 1000 to 60000.
    pub timeout_ms: u64,
    /// Whether it starts processes of its own.
    pub allow_spawn: bool,
}

/// One file of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ManifestFile {
    /// Its path relative to the skill's directory, normalised.
    pub path: String,
    /// SHA-256 of its bytes, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// Whether a manifest must be signed already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is a draft, which may have an old signature.
    Draft,
    /// It is signed.
    Signed,
    /// It is signed, and was registered, perhaps when a name could begin with `-`.
    Registered,
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// All mistakes, with their JSON paths; a single one if the text is not JSON, too long, or has a key twice.
    pub fn decode(text: &[u8], stage: Stage) -> Result<Manifest, PolicyErrors> {
        let root = parse(text, MAX_MANIFEST_BYTES)?;
        let mut reader = ValueReader::default();
        let manifest = manifest(&mut reader, &root, stage);
        reader.finish().map(|()| manifest)
    }

    /// The text of a draft with its list of files replaced by these. It is not validated.
    ///
    /// # Errors
    /// It is not a JSON object, or has a key twice.
    pub fn with_files(text: &[u8], files: &[ManifestFile]) -> Result<Vec<u8>, PolicyErrors> {
        let mut root = parse(text, MAX_MANIFEST_BYTES)?;
        if let Value::Object(members) = &mut root {
            let files = serde_json::to_value(files).expect("a list of texts");
            members.insert("files".into(), files);
        }
        Ok(root.to_string().into_bytes())
    }

    /// The manifest as indented JSON with a final newline, which `decode` reads back.
    pub fn encode(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest has text keys, so nothing can fail");
        text.push('\n');
        text
    }

    /// The text that is signed: the manifest without its signature, in the canonical form of RFC 8785.
    pub fn canonical(&self) -> Vec<u8> {
        let unsigned = Manifest { signature: None, ..self.clone() };
        serde_json_canonicalizer::to_vec(&unsigned).expect("a manifest has text keys and whole numbers only")
    }
}

fn manifest(read: &mut ValueReader, root: &Value, stage: Stage) -> Manifest {
    const KEYS: &[&str] = &["version", "name", "publisher", "permissions", "sandbox", "files", "signature"];
    let required = if stage == Stage::Draft { &KEYS[..KEYS.len() - 1] } else { KEYS };
    let top = read.object("$", Some(root), KEYS, required);
    let publisher = read.object(
        "$.publisher",
        top.get("publisher"),
        &["name", "address", "contact"],
        &["name", "address", "contact"],
    );
    const PERMISSIONS: &[&str] = &["txActions", "chains", "networkAccess", "filesystemAccess"];
    let permissions = read.object("$.permissions", top.get("permissions"), PERMISSIONS, PERMISSIONS);
    const SANDBOX: &[&str] = &["memoryMb", "timeoutMs", "allowSpawn"];
    let sandbox = read.object("$.sandbox", top.get("sandbox"), SANDBOX, SANDBOX);
    let accepts_name = if stage == Stage::Registered { is_registered_name } else { is_name };
    Manifest {
        version: read.text("$.version", top.get("version"), "\"1\"", |text| text == "1"),
        name: read.text("$.name", top.get("name"), NAME_ACCEPTED, accepts_name),
        publisher: Publisher {
            name: read.text("$.publisher.name", publisher.get("name"), "1 to 256 printable characters", is_printable),
            address: read.text("$.publisher.address", publisher.get("address"), "^0x[0-9a-fA-F]{40}$", is_address),
            contact: read.text("$.publisher.contact", publisher.get("contact"), "an e-mail address", is_email),
        },
        permissions: Permissions {
            tx_actions: actions(read, permissions.get("txActions")),
            chains: chains(read, permissions.get("chains")),
            network_access: wish(read, "$.permissions.networkAccess", permissions.get("networkAccess"), |text| {
                if is_loopback(text) { Ok(()) } else { text.parse::<AllowEntry>().map(|_| ()) }
            }),
            filesystem_access: wish(
                read,
                "$.permissions.filesystemAccess",
                permissions.get("filesystemAccess"),
                |text| if is_printable(text) { Ok(()) } else { Err("not 1 to 256 printable characters") },
            ),
        },
        sandbox: Wants {
            memory_mb: read.number("$.sandbox.memoryMb", sandbox.get("memoryMb"), 1, 512),
            timeout_ms: read.number("$.sandbox.timeoutMs", sandbox.get("timeoutMs"), 1000, 60_000),
            allow_spawn: read.flag("$.sandbox.allowSpawn", sandbox.get("allowSpawn")),
        },
        files: files(read, top.get("files")),
        signature: top.get("signature").map(|value| {
            read.text("$.signature", Some(value), "^0x[0-9a-fA-F]+$", |text| {
                text.len() <= 1024
                    && text
                        .strip_prefix("0x")
                        .is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            })
        }),
    }
}

/// Whether an entry of `networkAccess` asks for the sandbox's own loopback, with a port or without; ports are not distinguished.
pub(super) fn is_loopback(entry: &str) -> bool {
    let port = |rest: &str| rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    ["localhost", "127.0.0.1", "[::1]"].into_iter().any(|name| entry.strip_prefix(name).is_some_and(port))
}

fn actions(read: &mut ValueReader, value: Option<&Value>) -> Vec<String> {
    let items = read.list("$.permissions.txActions", value, 0, MAX_LIST);
    let mut actions = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = format!("$.permissions.txActions[{index}]");
        actions.push(read.text(&at, Some(item), &TX_ACTIONS.join(", "), |text| TX_ACTIONS.contains(&text)));
    }
    actions
}

fn chains(read: &mut ValueReader, value: Option<&Value>) -> Vec<u64> {
    let items = read.list("$.permissions.chains", value, 0, MAX_LIST);
    let mut chains = Vec::new();
    for (index, item) in items.iter().enumerate() {
        chains.push(read.number(&format!("$.permissions.chains[{index}]"), Some(item), 1, MAX_NUMBER));
    }
    chains
}

fn wish(
    read: &mut ValueReader,
    path: &str,
    value: Option<&Value>,
    fault: impl Fn(&str) -> Result<(), &'static str>,
) -> Wish {
    match value {
        Some(Value::Array(_)) => {
            let mut list = Vec::new();
            for (index, item) in read.list(path, value, 0, MAX_LIST).iter().enumerate() {
                let at = format!("{path}[{index}]");
                let text = read.text(&at, Some(item), "a text", |_| true);
                if item.is_string()
                    && let Err(why) = fault(&text)
                {
                    read.wrong(&at, Some(item), why, "an entry that can be granted");
                }
                list.push(text);
            }
            Wish::List(list)
        }
        Some(Value::Bool(flag)) => Wish::Flag(*flag),
        None => Wish::Flag(false),
        Some(other) => {
            read.wrong(path, Some(other), "neither a flag nor a list", "true, false, or a list of texts");
            Wish::Flag(false)
        }
    }
}

fn files(read: &mut ValueReader, value: Option<&Value>) -> Vec<ManifestFile> {
    const KEYS: &[&str] = &["path", "sha256"];
    let mut files: Vec<ManifestFile> = Vec::new();
    for (index, item) in read.list("$.files", value, 1, MAX_FILES).iter().enumerate() {
        let at = format!("$.files[{index}]");
        let file = read.object(&at, Some(item), KEYS, KEYS);
        let path = read.text(&format!("{at}.path"), file.get("path"), "a text", |_| true);
        if file.get("path").is_some_and(Value::is_string)
            && let Some(why) = path_fault(&path)
        {
            read.wrong(
                &format!("{at}.path"),
                file.get("path"),
                why,
                "a path inside the skill's directory, such as lib/main.py",
            );
        }
        let sha256 = read.text(&format!("{at}.sha256"), file.get("sha256"), "^[0-9a-f]{64}$", is_sha256);
        files.push(ManifestFile { path, sha256 });
    }
    let all: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut before = BTreeSet::new();
    for (index, file) in files.iter().enumerate() {
        let path = Value::from(file.path.as_str());
        if !before.insert(file.path.as_str()) {
            read.wrong(
                &format!("$.files[{index}].path"),
                Some(&path),
                "the same file stands there before",
                "each file once",
            );
        }
        let above = file.path.match_indices('/').map(|(end, _)| &file.path[..end]).find(|above| all.contains(above));
        if let Some(above) = above {
            let problem = format!("{} is a file already", shown(above));
            read.wrong(&format!("$.files[{index}].path"), Some(&path), &problem, "a file below directories");
        }
    }
    files
}

/// The mistake in a path of `files`, if any.
pub fn path_fault(path: &str) -> Option<&'static str> {
    if path.starts_with('/') {
        return Some("the path is absolute");
    }
    if let Some(fault) = paths::fault(path) {
        return Some(fault);
    }
    if path.contains('\\') {
        return Some("the path has a backslash, which separates elsewhere");
    }
    if path.chars().any(char::is_control) {
        return Some("the path has a control character");
    }
    if path.len() > 1024 {
        return Some("the path is longer than 1024 bytes");
    }
    if path.split('/').count() > 32 {
        return Some("the path is deeper than 32 directories");
    }
    (path == MANIFEST_FILE).then_some("the manifest cannot hold its own hash")
}

/// The names that are accepted.
const NAME_ACCEPTED: &str = "^[a-z0-9][a-z0-9-]{0,63}$: 1 to 64 of a-z, 0-9 and -, not beginning with -";

/// Whether a text is a valid skill name. None looks like an option.
pub fn is_name(text: &str) -> bool {
    is_registered_name(text) && !text.starts_with('-')
}

/// Whether a text can be the name of a registered skill: such names could once begin with `-`.
pub(super) fn is_registered_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether a text is an address.
pub fn is_address(text: &str) -> bool {
    text.strip_prefix("0x").is_some_and(|hex| hex.len() == 40 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_printable(text: &str) -> bool {
    let count = text.chars().take(257).count();
    (1..=256).contains(&count) && !text.chars().any(char::is_control)
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    text.len() <= 254
        && (1..=64).contains(&local.len())
        && local.bytes().all(plain)
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..")
        && domain.contains('.')
        && domain.split('.').all(label)
}
