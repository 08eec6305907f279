//! The operator's configuration: the most that skills are granted. TOML or JSON, every field optional.
//!
//! ```toml
//! networkMode = "allowlist"            # default: none
//! allowedHosts = ["api.example.com"]
//! memoryLimitMb = 256                  # default: what the manifest asks for
//! cpuQuota = 50000                     # microseconds in each 100 ms; the default, half a CPU
//! volumes = [{ target = "/work", sizeMb = 64 }]
//! env = { ISCL_API_URL = "http://127.0.0.1:8080", LOG_LEVEL = "debug" }
//! command = ["python3", "/skill/main.py"]
//! ```
//!
//! Closed: an unknown key, a mount of the host, and a variable that looks like a secret or changes what programs load are errors.
//! Pure.

use std::collections::BTreeMap;

use cofferdam_policy::bundles::allow_rules;
use cofferdam_policy::{
    API_VARIABLE_DEFAULT, AllowEntry, HttpUrl, NetworkMode, PolicyError, PolicyErrors, UrlHost, paths, variables,
};
use serde_json::Value;

use super::json::{ValueReader, parse};

/// Longest text, bytes.
const MAX_BYTES: usize = 1 << 20;

/// Default CPU time in each period of 100 ms, microseconds: half a CPU.
pub(crate) const CPU_QUOTA_DEFAULT: u64 = 50_000;
/// Size of /tmp, and default size of a volume, MiB.
pub(crate) const TMP_MB: u64 = 64;
/// The directory of a skill's files inside the sandbox.
pub const SKILL_DIRECTORY: &str = "/skill";

const KEYS: &[&str] = &[
    "image",
    "networkMode",
    "allowedHosts",
    "readOnlyRootfs",
    "memoryLimitMb",
    "cpuQuota",
    "timeoutMs",
    "noSpawn",
    "unixSockets",
    "maxProcesses",
    "volumes",
    "env",
    "command",
];

/// An operator's configuration. Fields that are left out have no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorConfig {
    /// A container's image, by reference; or a tarball or a directory as root, by absolute path.
    pub image: Option<String>,
    /// The most that the network may be: none, the sandbox's own loopback, or the hosts that both sides list.
    pub network: NetworkMode,
    /// The hosts at most; `None` leaves them to the manifest.
    pub allowed_hosts: Option<Vec<AllowEntry>>,
    /// Memory at most, MiB.
    pub memory_limit_mb: Option<u64>,
    /// CPU time in each period of 100 ms, microseconds.
    pub cpu_quota: Option<u64>,
    /// Wall time at most, milliseconds.
    pub timeout_ms: Option<u64>,
    /// No processes, whatever the manifest says.
    pub no_spawn: bool,
    /// Unix sockets between the skill's own processes, as LibreOffice and browsers have.
    pub unix_sockets: bool,
    /// Processes and threads at most, where they are allowed.
    pub max_processes: Option<u64>,
    /// Directories in memory, besides /tmp.
    pub volumes: Vec<TmpfsVolume>,
    /// The API whose address the skill gets, as seen from the host.
    pub api: Option<HttpUrl>,
    /// Further variables for the skill. None of them looks like a secret or changes what programs load.
    pub variables: BTreeMap<String, String>,
    /// The program and its arguments.
    pub command: Option<Vec<String>>,
}

/// An empty directory in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TmpfsVolume {
    /// The path inside the sandbox.
    pub target: String,
    /// Size, MiB.
    pub size_mb: u64,
}

impl OperatorConfig {
    /// Parses a configuration: JSON if it begins with `{`, else TOML.
    ///
    /// # Errors
    /// All mistakes, with their paths.
    pub fn decode(text: &[u8]) -> Result<OperatorConfig, PolicyErrors> {
        let root = if text.trim_ascii_start().starts_with(b"{") { parse(text, MAX_BYTES)? } else { toml(text)? };
        let mut reader = ValueReader::default();
        let config = config(&mut reader, &root);
        reader.finish().map(|()| config)
    }
}

fn toml(text: &[u8]) -> Result<Value, PolicyErrors> {
    let refused = |problem: String| {
        let accepted = "TOML or one JSON object, in UTF-8, at most 1 MiB".to_owned();
        PolicyErrors(vec![PolicyError { path: "$".into(), value: String::new(), problem, accepted }])
    };
    if text.len() > MAX_BYTES {
        return Err(refused(format!("it has {} bytes", text.len())));
    }
    let text = std::str::from_utf8(text).map_err(|error| refused(error.to_string()))?;
    let table: toml::Table = toml::from_str(text).map_err(|error| refused(plain(error.to_string().trim_end())))?;
    serde_json::to_value(table).map_err(|error| refused(error.to_string()))
}

/// Quotes the text over several lines, with all control characters escaped.
fn plain(text: &str) -> String {
    cofferdam_policy::text::lines(text)
}

fn config(read: &mut ValueReader, root: &Value) -> OperatorConfig {
    let top = read.object("$", Some(root), KEYS, &[]);
    let text = |read: &mut ValueReader, key: &str, accepted: &str, fits: &dyn Fn(&str) -> bool| {
        top.get(key).map(|value| read.text(&format!("$.{key}"), Some(value), accepted, fits))
    };
    let image =
        text(read, "image", "an image's reference, or the absolute path of a tarball or a directory", &|image| {
            !image.starts_with(['.', '~']) && (1..=4095).contains(&image.len()) && !image.chars().any(char::is_control)
        });
    let mode = text(read, "networkMode", "none, loopback or allowlist", &|mode| {
        matches!(mode, "none" | "loopback" | "allowlist")
    });
    let network = match mode.as_deref() {
        Some("allowlist") => NetworkMode::Allowlist,
        Some("loopback") => NetworkMode::Loopback,
        _ => NetworkMode::None,
    };
    if top.get("readOnlyRootfs").is_some_and(|value| !read.flag("$.readOnlyRootfs", Some(value))) {
        read.wrong(
            "$.readOnlyRootfs",
            top.get("readOnlyRootfs"),
            "a root that can be written",
            "true: there is no other",
        );
    }
    let number = |read: &mut ValueReader, key: &str, least: u64, most: u64| {
        top.get(key).map(|value| read.number(&format!("$.{key}"), Some(value), least, most))
    };
    let (api, variables) = env(read, top.get("env"));
    if network == NetworkMode::Loopback && api.is_some() {
        let accepted = "networkMode allowlist or none, in which the API is reached; or no ISCL_API_URL";
        read.wrong("$.networkMode", top.get("networkMode"), "loopback alone cannot reach the API", accepted);
    }
    OperatorConfig {
        image,
        network,
        allowed_hosts: top.get("allowedHosts").map(|value| hosts(read, value, network == NetworkMode::Allowlist)),
        memory_limit_mb: number(read, "memoryLimitMb", 1, 1 << 20),
        cpu_quota: number(read, "cpuQuota", 1000, 100_000 * 8192),
        timeout_ms: number(read, "timeoutMs", 1, 24 * 60 * 60 * 1000),
        no_spawn: read.flag("$.noSpawn", top.get("noSpawn")),
        unix_sockets: read.flag("$.unixSockets", top.get("unixSockets")),
        max_processes: number(read, "maxProcesses", 1, 10_000),
        volumes: volumes(read, top.get("volumes")),
        api,
        variables,
        command: top.get("command").map(|value| command(read, value)),
    }
}

fn hosts(read: &mut ValueReader, value: &Value, allowlist: bool) -> Vec<AllowEntry> {
    // A caller whose configuration has every key writes an empty list where there is no network.
    if !allowlist && value.as_array().is_none_or(|hosts| !hosts.is_empty()) {
        read.wrong("$.allowedHosts", Some(value), "hosts without a network", "hosts with networkMode allowlist only");
    }
    let mut hosts = Vec::new();
    for (index, item) in read.list("$.allowedHosts", Some(value), 0, 1000).iter().enumerate() {
        let at = format!("$.allowedHosts[{index}]");
        let text = read.text(&at, Some(item), "a host", |_| true);
        match allow_rules(&text) {
            Ok(rules) => hosts.extend(rules.into_iter().map(|rule| rule.entry)),
            Err(fault) if item.is_string() => {
                let accepted = match fault.meant() {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "a host, such as api.example.com or *.example.com:443, or a bundle such as @pypi".into(),
                };
                read.wrong(&at, Some(item), &fault.to_string(), &accepted)
            }
            Err(_) => {}
        }
    }
    hosts
}

fn volumes(read: &mut ValueReader, value: Option<&Value>) -> Vec<TmpfsVolume> {
    const ACCEPTED: &str = "an ephemeral one: { target = \"/work\", sizeMb = 64 }";
    let mut volumes: Vec<TmpfsVolume> = Vec::new();
    for (index, item) in read.list("$.volumes", value, 0, 32).iter().enumerate() {
        let at = format!("$.volumes[{index}]");
        if !item.is_object() {
            read.wrong(&at, Some(item), "no ephemeral volume", ACCEPTED);
            continue;
        }
        let of_host = ["source", "src", "hostPath", "host"].into_iter().find(|key| item.get(key).is_some());
        if let Some(key) = of_host {
            read.wrong(&format!("{at}.{key}"), item.get(key), "a mount of the host's", ACCEPTED);
            continue;
        }
        let volume = read.object(&at, Some(item), &["target", "sizeMb"], &["target"]);
        let target = read.text(&format!("{at}.target"), volume.get("target"), "an absolute path", |target| {
            target.starts_with('/') && target != "/" && paths::fault(target).is_none()
        });
        let own = ["/tmp", SKILL_DIRECTORY, "/proc", "/sys", "/dev"].iter().copied();
        let taken = own.chain(volumes.iter().map(|other| other.target.as_str()));
        let clash =
            taken.into_iter().find(|other| paths::is_within(&target, other) || paths::is_within(other, &target));
        if let Some(other) = clash.map(str::to_owned).filter(|_| !target.is_empty()) {
            read.wrong(
                &format!("{at}.target"),
                volume.get("target"),
                &format!("{other} is there"),
                "a place of its own",
            );
        }
        let size_mb = match volume.get("sizeMb") {
            None => TMP_MB,
            size => read.number(&format!("{at}.sizeMb"), size, 1, 1024),
        };
        volumes.push(TmpfsVolume { target, size_mb });
    }
    volumes
}

/// Host names by which containers reach their host. Here the API is the operator's own, at the host's loopback.
const HOST_NAMES: &[&str] = &["host.docker.internal", "gateway.docker.internal", "host.containers.internal"];

/// Variables that belong to the sandbox itself, and name its directories.
const OWN_VARIABLES: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR"];

/// The API, and the other variables that a skill gets.
fn env(read: &mut ValueReader, value: Option<&Value>) -> (Option<HttpUrl>, BTreeMap<String, String>) {
    let mut variables = BTreeMap::new();
    let members = match value {
        None => return (None, variables),
        Some(Value::Object(members)) => members,
        Some(other) => {
            read.wrong("$.env", Some(other), "not an object", "an object of variables, ISCL_API_URL among them");
            return (None, variables);
        }
    };
    for (name, value) in members.iter().filter(|(name, _)| *name != API_VARIABLE_DEFAULT) {
        // The value may be a secret, so it is not shown.
        let at = format!("$.env[{}]", super::json::shown(name));
        let Some(text) = value.as_str() else {
            read.wrong(&at, None, "not a text", "a text");
            continue;
        };
        match unfit(name, text) {
            Some((problem, accepted)) => read.wrong(&at, None, problem, accepted),
            None => drop(variables.insert(name.clone(), text.to_owned())),
        }
    }
    (members.get(API_VARIABLE_DEFAULT).and_then(|url| api(read, url)), variables)
}

/// Why a skill must not get this variable, and what is accepted.
fn unfit(name: &str, value: &str) -> Option<(&'static str, &'static str)> {
    const PLAIN: &str = "what a program reads for its settings, such as NODE_ENV, TZ or LOG_LEVEL";
    const SECRET: &str = "ISCL_API_URL: what is secret stays behind the API, and no skill has it";
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.len() <= 128
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !is_name(name) {
        Some(("no name of a variable", "letters, digits and _, no digit first, at most 128"))
    } else if value.len() > 4096 || value.contains('\0') {
        Some(("longer than 4096 bytes, or with NUL", "a shorter text"))
    } else if OWN_VARIABLES.contains(&name.to_ascii_uppercase().as_str())
        || name.to_ascii_uppercase().ends_with("_PROXY")
    {
        Some(("a variable of the sandbox's own", PLAIN))
    } else if variables::is_stripped(name, value) {
        Some(("looks like a secret, or makes programs run something else", SECRET))
    } else if is_secret(value) {
        Some(("its value has the form of a key or token", SECRET))
    } else {
        None
    }
}

/// Whether a value has the form of a private key, or of a token of a well-known provider.
fn is_secret(value: &str) -> bool {
    let hex = value.strip_prefix("0x").unwrap_or(value);
    let is_key = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key || !super::scan::scan("", 0, value.as_bytes()).is_empty()
}

fn api(read: &mut ValueReader, url: &Value) -> Option<HttpUrl> {
    let text = read.text("$.env.ISCL_API_URL", Some(url), "an HTTP URL", |_| true);
    match text.parse::<HttpUrl>() {
        Ok(mut url) => {
            if let UrlHost::Name(name) = &url.host
                && HOST_NAMES.contains(&name.to_ascii_lowercase().as_str())
            {
                url.host = UrlHost::Address(std::net::Ipv4Addr::LOCALHOST.into());
            }
            Some(url)
        }
        Err(why) => {
            if url.is_string() {
                read.wrong("$.env.ISCL_API_URL", Some(url), why, "http(s)://HOST[:PORT][/PREFIX]");
            }
            None
        }
    }
}

fn command(read: &mut ValueReader, value: &Value) -> Vec<String> {
    let items = read.list("$.command", Some(value), 1, 10_000);
    let mut words = Vec::new();
    for (index, item) in items.iter().enumerate() {
        words.push(read.text(&format!("$.command[{index}]"), Some(item), "a text without NUL", |word| {
            !word.contains('\0') && (index > 0 || !word.is_empty())
        }));
    }
    words
}
