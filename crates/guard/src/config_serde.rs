//! The guard's configuration in its serde form: the documented `[sandbox]` table, in TOML, JSON or any other format, by
//! itself or as one field of an application's configuration. Reads no file and decides nothing.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use cofferdam_policy::{Limits, NetworkMode};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::{GuardConfig, Mode, Rule};

/// A table with its keys, and never its values in a row, which would pass for one as well.
#[derive(Default)]
struct Keyed<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Keyed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyKeys<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyKeys<T> {
            type Value = T;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(OnlyKeys(PhantomData)).map(Keyed)
    }
}

impl<T: Serialize> Serialize for Keyed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// The `[sandbox]` table. What is left out has its documented default.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Table {
    enabled: Option<bool>,
    mode: Mode,
    enforce_reads: bool,
    allowed_commands: Vec<CommandEntry>,
    blocked_paths: Vec<String>,
    max_execution_time_secs: Option<u64>,
    max_output_bytes: Option<u64>,
    workspace_programs: Vec<String>,
    writable: Vec<String>,
    network: GuardNetwork,
    keep_variables: Vec<String>,
    strip_variables: Vec<String>,
    run_as_root: bool,
    helpers: BTreeMap<String, Vec<String>>,
    limits: Keyed<LimitsTable>,
}

/// The networks that a guard has.
#[derive(Serialize, Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum GuardNetwork {
    #[default]
    None,
    Loopback,
    Host,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a command's name, or { command, args, match, not_match }")]
enum CommandEntry {
    Name(String),
    Rule(Keyed<RuleTable>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    args: Option<String>,
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    matches: Vec<Example>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_match: Vec<Example>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "expected arguments: words in one string, or a list of strings")]
enum Example {
    Words(String),
    List(Vec<String>),
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LimitsTable {
    memory_mb: Option<u64>,
    cpu_seconds: Option<u64>,
    cpu_millis: Option<u64>,
    file_size_mb: Option<u64>,
    open_files: Option<u64>,
    processes: Option<u64>,
    tmpfs_mb: Option<u64>,
}

impl LimitsTable {
    fn limits(&self, defaults: Limits) -> Limits {
        Limits {
            memory_mb: self.memory_mb.unwrap_or(defaults.memory_mb),
            cpu_seconds: self.cpu_seconds.unwrap_or(defaults.cpu_seconds),
            cpu_millis: self.cpu_millis.unwrap_or(defaults.cpu_millis),
            file_size_mb: self.file_size_mb.unwrap_or(defaults.file_size_mb),
            open_files: self.open_files.unwrap_or(defaults.open_files),
            processes: self.processes.unwrap_or(defaults.processes),
            tmpfs_mb: self.tmpfs_mb.unwrap_or(defaults.tmpfs_mb),
            ..defaults
        }
    }

    fn of(limits: &Limits) -> LimitsTable {
        LimitsTable {
            memory_mb: Some(limits.memory_mb),
            cpu_seconds: Some(limits.cpu_seconds),
            cpu_millis: Some(limits.cpu_millis),
            file_size_mb: Some(limits.file_size_mb),
            open_files: Some(limits.open_files),
            processes: Some(limits.processes),
            tmpfs_mb: Some(limits.tmpfs_mb),
        }
    }
}

impl<'de> Deserialize<'de> for GuardConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GuardConfig, D::Error> {
        let Keyed(table) = Keyed::<Table>::deserialize(deserializer)?;
        let defaults = GuardConfig::default();
        let mut allowed_commands = Vec::new();
        for (i, command) in table.allowed_commands.into_iter().enumerate() {
            let rule = command.rule().map_err(|why| D::Error::custom(format!("allowed_commands[{i}].{why}")))?;
            allowed_commands.push(rule);
        }
        Ok(GuardConfig {
            enabled: table.enabled.unwrap_or(defaults.enabled),
            mode: table.mode,
            enforce_reads: table.enforce_reads,
            allowed_commands,
            blocked_paths: table.blocked_paths,
            max_execution_time_secs: table.max_execution_time_secs.unwrap_or(defaults.max_execution_time_secs),
            max_output_bytes: table.max_output_bytes.unwrap_or(defaults.max_output_bytes),
            helpers: table.helpers,
            workspace_programs: table.workspace_programs,
            writable: table.writable,
            network: match table.network {
                GuardNetwork::None => NetworkMode::None,
                GuardNetwork::Loopback => NetworkMode::Loopback,
                GuardNetwork::Host => NetworkMode::Host,
            },
            keep_variables: table.keep_variables,
            strip_variables: table.strip_variables,
            run_as_root: table.run_as_root,
            limits: table.limits.0.limits(defaults.limits),
        })
    }
}

impl Serialize for GuardConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let network = match self.network {
            NetworkMode::None => GuardNetwork::None,
            NetworkMode::Loopback => GuardNetwork::Loopback,
            NetworkMode::Host => GuardNetwork::Host,
            other => return Err(S::Error::custom(format!("network: a guard has no {other:?}"))),
        };
        Table {
            enabled: Some(self.enabled),
            mode: self.mode,
            enforce_reads: self.enforce_reads,
            allowed_commands: self.allowed_commands.iter().map(CommandEntry::of).collect(),
            blocked_paths: self.blocked_paths.clone(),
            max_execution_time_secs: Some(self.max_execution_time_secs),
            max_output_bytes: Some(self.max_output_bytes),
            workspace_programs: self.workspace_programs.clone(),
            writable: self.writable.clone(),
            network,
            keep_variables: self.keep_variables.clone(),
            strip_variables: self.strip_variables.clone(),
            run_as_root: self.run_as_root,
            helpers: self.helpers.clone(),
            limits: Keyed(LimitsTable::of(&self.limits)),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        CommandEntry::deserialize(deserializer)?.rule().map_err(D::Error::custom)
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        CommandEntry::of(self).serialize(serializer)
    }
}

impl CommandEntry {
    fn rule(self) -> Result<Rule, String> {
        match self {
            CommandEntry::Name(command) => Ok(Rule::any(&command)),
            CommandEntry::Rule(Keyed(RuleTable { command, args, matches, not_match })) => Ok(Rule {
                command,
                args,
                matches: arguments(matches, "match")?,
                not_matches: arguments(not_match, "not_match")?,
            }),
        }
    }

    fn of(rule: &Rule) -> CommandEntry {
        if *rule == Rule::any(&rule.command) {
            return CommandEntry::Name(rule.command.clone());
        }
        let lists = |examples: &[Vec<String>]| examples.iter().cloned().map(Example::List).collect();
        CommandEntry::Rule(Keyed(RuleTable {
            command: rule.command.clone(),
            args: rule.args.clone(),
            matches: lists(&rule.matches),
            not_match: lists(&rule.not_matches),
        }))
    }
}

/// Examples as arguments: one string is words with spaces between them, for which no quoting is needed.
fn arguments(examples: Vec<Example>, key: &str) -> Result<Vec<Vec<String>>, String> {
    let one = |example| match example {
        Example::List(list) => Ok(list),
        Example::Words(words) if words.contains(['\'', '"', '\\']) => Err(format!(
            "{key}: `{words}` has quotes in it: write its arguments as a list, [\"commit\", \"-m\", \"two words\"]"
        )),
        Example::Words(words) => Ok(words.split_ascii_whitespace().map(str::to_owned).collect()),
    };
    examples.into_iter().map(one).collect()
}
