//! Messages through `tracing`: what is not enforced, and why a command was refused.

#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use cofferdam_command::{Confined, Fallback, SandboxMode, sandboxed_command};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects every event as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<String>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        writeln!(self.0.lock().unwrap(), "{}", line.0).unwrap();
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Returns the `tracing` messages of a closure.
fn traced(act: impl FnOnce()) -> String {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), act);
    let text = lines.0.lock().unwrap();
    text.clone()
}

#[test]
fn confinement_gaps_and_refusals_are_traced() {
    let data = tempfile::tempdir_in("/var/tmp").unwrap();
    let confined = || Confined::new("claude").data_dir(data.path());
    let text = traced(|| drop(confined().command().unwrap()));
    assert!(text.contains("DEBUG") && text.contains("claude") && text.contains("strength=full"), "{text}");
    assert!(!text.contains("WARN"), "{text}");

    let text = traced(|| drop(confined().landlock_at_most(0).fallback(Fallback::Warn).command().unwrap()));
    assert!(
        text.lines()
            .any(|line| line.starts_with("WARN") && line.contains("rule=writes") && line.contains("strength=none")),
        "{text}"
    );

    let text = traced(|| drop(sandboxed_command("claude", SandboxMode::Sandbox, data.path().join("none").as_path())));
    assert!(text.starts_with("ERROR") && text.contains("claude") && text.contains("does not exist"), "{text}");

    assert_eq!(traced(|| drop(sandboxed_command("claude", SandboxMode::Rwx, data.path()))), "");

    // The state of the model's command is granted where it exists, and said where it does not.
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let said = |home: &std::path::Path| {
        let own = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(own);
        command.args(["--exact", "missing_grants_are_traced", "--nocapture"]).env("HOME", home);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let text = said(home.path());
    assert!(text.contains("INFO") && text.contains(".claude does not exist, and so is not granted"), "{text}");
    std::fs::create_dir(home.path().join(".claude")).unwrap();
    let text = said(home.path());
    assert!(text.contains("1 passed") && !text.contains(".claude does not exist"), "{text}");
}

/// Run by the test above with a home of its own.
#[test]
fn missing_grants_are_traced() {
    let data = tempfile::tempdir_in("/var/tmp").unwrap();
    print!("{}", traced(|| drop(sandboxed_command("claude", SandboxMode::Sandbox, data.path()))));
}
