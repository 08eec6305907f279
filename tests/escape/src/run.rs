//! What one run of an attack left, as data: of its process, and of the command around it. Judges nothing.

use std::time::Duration;

use serde_json::Value;

/// What a finished process left.
#[derive(Debug, Clone, Default)]
pub struct Finished {
    /// Exit code, or 128+N for signal N.
    pub code: i32,
    /// Standard output; empty when it went to a file.
    pub stdout: String,
    /// Standard error; empty when it went to a file.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

/// What came out of one process, the command under test or the attack unconfined.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The process itself.
    pub finished: Finished,
    /// The outcome, when one was asked for and came.
    pub outcome: Option<Value>,
    /// The attack's standard output.
    pub output: String,
    /// The attack's standard error.
    pub errors: String,
    /// What a second sandbox put out.
    pub other: String,
    /// Directory of kept changes.
    pub kept: std::path::PathBuf,
}

impl Run {
    /// A text member of the outcome.
    pub fn text(&self, key: &str) -> &str {
        self.outcome.as_ref().and_then(|o| o.get(key)).and_then(Value::as_str).unwrap_or("")
    }

    /// The attack's exit code, when it exited.
    pub fn exit(&self) -> Option<i64> {
        match &self.outcome {
            Some(outcome) => outcome.get("exit_code").and_then(Value::as_i64),
            None => Some(i64::from(self.finished.code)),
        }
    }

    /// Whether the attack says that it worked.
    pub fn says_escaped(&self) -> bool {
        self.output.lines().any(|l| l.trim_start_matches('\0').starts_with("ESCAPED"))
    }

    /// The signal that ended it, when one did.
    pub(crate) fn signal(&self) -> Option<i64> {
        match &self.outcome {
            Some(outcome) => outcome.get("signal").and_then(Value::as_i64),
            None => (self.finished.code > 128).then(|| i64::from(self.finished.code) - 128),
        }
    }

    /// A short account for reports.
    pub fn account(&self) -> String {
        let mut text = format!("exit {}", self.finished.code);
        if let Some(outcome) = &self.outcome {
            for key in ["outcome", "exit_code", "signal", "limit", "error"] {
                if let Some(value) = outcome.get(key).filter(|v| !v.is_null()) {
                    text.push_str(&format!(", {key} {value}"));
                }
            }
        }
        let clip = |s: &str| s.chars().take(400).collect::<String>().replace('\0', "");
        if !self.output.is_empty() {
            text.push_str(&format!("; said `{}`", clip(self.output.trim())));
        }
        for errors in [&self.errors, &self.finished.stderr] {
            if !errors.is_empty() {
                text.push_str(&format!("; stderr `{}`", clip(errors.trim())));
            }
        }
        if !self.other.is_empty() {
            text.push_str(&format!("; the other said `{}`", clip(self.other.trim())));
        }
        text
    }
}
