//! The options of the server, which the command passes to its helper program as one JSON argument.
//!
//! Data only. The command parses its options into this, and the server reads nothing else, so each option is parsed once.

use serde::{Deserialize, Serialize};

/// The server's program, beside the command.
pub const PROGRAM: &str = "cofferdam-serve";

/// The tools that the server can offer besides `run`.
pub const TOOLS: &[&str] = &["download", "list", "sessions", "upload"];

/// The options of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serve {
    /// The configuration file, instead of variables and defaults.
    pub config: Option<String>,
    /// `ADDRESS:PORT` to listen on; standard input and output if not set.
    pub http: Option<String>,
    /// The file with the bearer token, which is created if it does not exist.
    pub token_file: Option<String>,
    /// Host names of the server, besides those of loopback.
    pub allow_hosts: Vec<String>,
    /// Web origins whose pages may call the server.
    pub allow_origins: Vec<String>,
    /// Tools offered besides `run`, out of [`TOOLS`].
    pub tools: Vec<String>,
    /// Most runs at a time.
    pub max_runs: Option<usize>,
    /// Most calls that wait for one to end.
    pub max_queue: Option<usize>,
    /// Interpreters started before their call, for each environment in use: 1 by default, or 0.
    pub early: Option<u8>,
    /// The audit trail in which runs and sessions are recorded, absolute.
    pub audit_trail: Option<String>,
    /// Whether to log more on standard error.
    pub verbose: bool,
}

impl Serve {
    /// The options as the argument.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys")
    }

    /// Parses the argument.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn from_argument(text: &str) -> Result<Serve, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_round_trips_and_other_keys_are_errors() {
        let serve = Serve {
            http: Some("127.0.0.1:0".into()),
            tools: vec!["list".into()],
            max_runs: Some(3),
            verbose: true,
            ..Serve::default()
        };
        assert_eq!(Serve::from_argument(&serve.to_argument()), Ok(serve));
        assert_eq!(Serve::from_argument("{}"), Ok(Serve::default()));
        assert!(Serve::from_argument(r#"{"htpp": "x"}"#).unwrap_err().contains("htpp"));
    }
}
