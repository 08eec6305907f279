//! The three modes, the constraint to append to a model's prompt, and the configuration table. Pure data.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

/// The table of an application's configuration that names the mode: `mode = "rx"`. Without the key it is `sandbox`;
/// other keys are the application's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SandboxConfig {
    /// The mode.
    #[serde(default)]
    pub mode: SandboxMode,
}

/// How much a command may do. In configuration: `sandbox`, `rx` or `rwx`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SandboxMode {
    /// Writes are limited to the data directory, temporary files and the model's own state. The prompt constraint
    /// limits reading to the workspace; [`crate::Confined::enforce_reads`] enforces that as well.
    #[default]
    Sandbox,
    /// Writes are limited as in `sandbox`; reading and executing is allowed anywhere.
    Rx,
    /// Nothing is restricted.
    Rwx,
}

impl SandboxMode {
    /// Every mode, as configuration names it.
    const NAMES: [(&'static str, SandboxMode); 3] =
        [("sandbox", SandboxMode::Sandbox), ("rx", SandboxMode::Rx), ("rwx", SandboxMode::Rwx)];

    /// What to append to a model's system prompt, so that it does not try what would be refused; nothing for `rwx`.
    pub fn prompt_constraint(&self, workspace_path: &str) -> Option<String> {
        match self {
            SandboxMode::Sandbox => Some(format!(
                "Your working directory is {workspace_path}. Read and write files inside it only; writing anywhere else \
                 is refused by the operating system. The network is available. Install what you depend on locally, inside \
                 the working directory, never system-wide."
            )),
            SandboxMode::Rx => Some(format!(
                "Your working directory is {workspace_path}. You may read files and run commands that only read anywhere. \
                 Write inside the working directory only; writing anywhere else is refused by the operating system."
            )),
            SandboxMode::Rwx => None,
        }
    }

    /// Its name, as in configuration.
    pub fn display_name(&self) -> &str {
        Self::NAMES.iter().find(|(_, mode)| mode == self).map_or("sandbox", |(name, _)| name)
    }
}

impl fmt::Display for SandboxMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.display_name())
    }
}

impl Serialize for SandboxMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.display_name())
    }
}

impl<'de> Deserialize<'de> for SandboxMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SandboxMode, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode);
        known.ok_or_else(|| D::Error::custom(format!("unknown mode {text:?}; accepted: sandbox, rx, rwx")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_names_it_in_lower_case_and_nothing_else() {
        for (name, mode) in SandboxMode::NAMES {
            let text = format!("{name:?}");
            assert_eq!(serde_json::from_str::<SandboxMode>(&text).unwrap(), mode);
            assert_eq!(serde_json::to_string(&mode).unwrap(), text);
            assert_eq!((mode.display_name(), mode.to_string().as_str()), (name, name));
        }
        assert_eq!(SandboxMode::default(), SandboxMode::Sandbox);
        for wrong in ["\"Sandbox\"", "\"rw\"", "\"\"", "1"] {
            assert!(serde_json::from_str::<SandboxMode>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_names_a_mode_and_without_one_it_is_sandbox() {
        let of = |text: &str| serde_json::from_str::<SandboxConfig>(text);
        assert_eq!(of(r#"{"mode": "rx"}"#).unwrap(), SandboxConfig { mode: SandboxMode::Rx });
        assert_eq!(of("{}").unwrap(), SandboxConfig::default());
        assert_eq!(serde_json::to_string(&SandboxConfig::default()).unwrap(), r#"{"mode":"sandbox"}"#);
        assert!(of(r#"{"mode": "RX"}"#).is_err());
    }

    #[test]
    fn the_description_says_what_is_enforced() {
        let sandbox = SandboxMode::Sandbox.prompt_constraint("/w").unwrap();
        for said in ["/w", "Read and write files inside it only", "network is available", "locally"] {
            assert!(sandbox.contains(said), "{said}");
        }
        let rx = SandboxMode::Rx.prompt_constraint("/w").unwrap();
        assert!(rx.contains("/w") && rx.contains("anywhere") && rx.contains("Write inside the working directory only"));
        assert_eq!(SandboxMode::Rwx.prompt_constraint("/w"), None);
    }
}
