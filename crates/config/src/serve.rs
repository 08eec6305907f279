//! How the server is to serve: what the command tells its helper, as one JSON argument.
//!
//! Data. The command reads options and writes this; the server reads this and nothing else, so each option is parsed once.

use serde::{Deserialize, Serialize};

/// The server's program, beside the command.
pub const PROGRAM: &str = "cofferdam-serve";

/// What the server offers besides `run`.
pub const TOOLS: &[&str] = &["download", "list", "sessions", "upload"];

/// How the server is to serve.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Serve {
    /// The configuration file, in place of variables and defaults.
    pub config: Option<String>,
    /// `ADDRESS:PORT` to listen on; over standard input and output where it is not set.
    pub http: Option<String>,
    /// The file with the bearer token; made where it is not there.
    pub token_file: Option<String>,
    /// Names under which the server is reached, besides loopback's.
    pub allow_hosts: Vec<String>,
    /// Origins whose pages may call.
    pub allow_origins: Vec<String>,
    /// Tools besides `run`: of [`TOOLS`].
    pub tools: Vec<String>,
    /// Most runs at a time.
    pub max_runs: Option<usize>,
    /// Most calls that wait for one to end.
    pub max_queue: Option<usize>,
    /// Interpreters that wait for a call, for each environment in use: 1 where nobody says, or 0.
    pub early: Option<u8>,
    /// The audit trail in which runs and sessions are recorded, absolute.
    pub audit_trail: Option<String>,
    /// Say more on standard error.
    pub verbose: bool,
}

impl Serve {
    /// The argument that says this.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("plain data with text keys")
    }

    /// Reads the argument.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_argument(text: &str) -> Result<Serve, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_read_and_nothing_else_is() {
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
