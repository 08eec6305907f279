//! How a decision is reported: to the recorder, in the trace, and to the caller.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::{Arc, Mutex};

use cofferdam_guard::{GuardConfig, GuardEvent, Recorder, Refusal, Rule, SandboxError};

use crate::fixture::{Fixture, allowing, builder, ok, run};

/// Keeps the text of what is traced.
#[derive(Clone, Default)]
struct Traced(Arc<Mutex<String>>);

impl tracing::field::Visit for Traced {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!(" {field}={value:?}"));
    }
}

impl tracing::Subscriber for Traced {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let line = Traced::default();
        event.record(&mut line.clone());
        let said = line.0.lock().unwrap();
        self.0.lock().unwrap().push_str(&format!("{}{said}\n", event.metadata().level()));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn decisions_are_traced() {
    // Other tests' events come as well: these commands are this test's.
    let traced = Traced::default();
    tracing::subscriber::set_global_default(traced.clone()).unwrap();
    let place = Fixture::new();
    let (allowed, refused) = (place.at("outside/allowed"), place.at("outside/refused"));
    symlink("/usr/bin/true", &allowed).unwrap();
    symlink("/usr/bin/id", &refused).unwrap();
    let guard = place.guard(allowing(&["true"]));
    run(&guard, &allowed, &[]).unwrap();
    run(&guard, &refused, &[]).unwrap_err();
    let text = traced.0.lock().unwrap().clone();
    let line = |parts: &[&str]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(line(&["INFO", "allowed", &allowed, "rule=Some(\"true\")"]), "{text}");
    assert!(line(&["INFO", "ended", &allowed, "exit_code=0"]), "{text}");
    assert!(line(&["WARN", "refused", &refused, "allowed_commands"]), "{text}");
}

#[derive(Default)]
struct Kept {
    events: Mutex<Vec<GuardEvent>>,
    full: std::sync::atomic::AtomicBool,
}

impl Recorder for Kept {
    fn record(&self, event: &GuardEvent) -> Result<(), String> {
        if self.full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err("the disk is full".into());
        }
        self.events.lock().unwrap().push(event.clone());
        Ok(())
    }
}

#[test]
fn decisions_are_recorded_before_anything_runs() {
    let place = Fixture::new();
    let kept = Arc::new(Kept::default());
    let guard = builder(allowing(&["touch"]), &place.work()).recorder(kept.clone()).build().unwrap();
    ok(&guard, "touch", &["made"]);
    assert!(run(&guard, "id", &[]).is_err());
    {
        let events = kept.events.lock().unwrap();
        assert_eq!(events.len(), 3, "{events:?}");
        assert!(
            matches!(&events[0], GuardEvent::Decided { rule: Some(rule), refused: None, executable: Some(_), .. } if rule == "touch")
        );
        assert!(matches!(&events[1], GuardEvent::Ended { exit_code: Some(0), .. }));
        assert!(matches!(&events[2], GuardEvent::Decided { refused: Some(why), .. } if why.contains("id")));
    }
    kept.full.store(true, std::sync::atomic::Ordering::SeqCst);
    let refused = run(&guard, "touch", &["unmade"]).unwrap_err();
    assert!(matches!(refused, Refusal::Record { .. }), "{refused}");
    assert!(place.work().join("made").exists() && !place.work().join("unmade").exists());
}

#[test]
fn untrusted_names_are_escaped_in_messages() {
    let place = Fixture::new();
    let mut config = allowing(&["cat"]);
    config.allowed_commands.push(Rule { command: "echo".into(), args: Some("fine".into()), ..Rule::default() });
    let guard = place.guard(config);
    let planted = place.at("outside/id\nWARN allowed");
    symlink("/usr/bin/id", place.at("outside/id")).unwrap();
    std::fs::copy("/usr/bin/id", &planted).unwrap();
    let script = place.write("outside/script", "#!/no/such\rINFO\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (command, args) in [
        ("id\nINFO allowed command=\"id\"", &[][..]),
        ("\u{1b}[2Jid", &[]),
        ("id\u{202e}txt", &[]),
        ("", &[]),
        (planted.as_str(), &[]),
        (script.as_str(), &[]),
        ("echo", &["fine\nINFO allowed \u{1b}[0m"]),
        ("cat", &["\0"]),
    ] {
        let error = SandboxError::from(run(&guard, command, args).unwrap_err()).to_string();
        assert!(error.starts_with("sandbox error: ") && !error.starts_with("sandbox error: :"), "{error:?}");
        assert!(!error.contains(|c: char| c.is_control() || c == '\u{202e}'), "{command:?}: {error:?}");
    }
    let error = run(&guard, "echo", &["it's", "\"so\""]).unwrap_err().to_string();
    assert!(error.ends_with(r#"`'it'\''s' '"so"'`"#), "{error}");
}

#[test]
fn one_string_names_command_rule_and_reason() {
    let place = Fixture::new();
    let guard = place.guard(allowing(&["cat"]));
    let error = SandboxError::from(run(&guard, "id", &[]).unwrap_err()).to_string();
    assert!(error.starts_with("sandbox error: id: refused by allowed_commands: no rule allows /"), "{error}");
    let bad = GuardConfig { blocked_paths: vec!["x".into()], ..allowing(&["cat"]) };
    let error = SandboxError::from(builder(bad, &place.work()).build().unwrap_err()).to_string();
    assert!(error.starts_with("sandbox error: blocked_paths: \"x\": not an absolute path"), "{error}");
}
