//! Tests of what only the inside of a guard can bring about: a file that is replaced between decision and execution,
//! and kernels whose Landlock is older than this one's.

use super::*;
use crate::execute::OLDER;

fn guard(config: GuardConfig, dir: &std::path::Path) -> Guard {
    let config = GuardConfig { run_as_root: true, ..config };
    let path = ("PATH".to_owned(), "/usr/bin:/bin".to_owned());
    Guard::builder(config, dir).variables([path]).build().unwrap_or_else(|e| panic!("{e}"))
}

fn allowing(command: &str) -> GuardConfig {
    GuardConfig { allowed_commands: vec![Rule::any(command)], ..GuardConfig::default() }
}

#[test]
fn a_file_that_was_replaced_meanwhile_is_not_executed() {
    let dir = tempfile::tempdir().unwrap();
    let guard = guard(allowing("cat"), dir.path());
    std::fs::write(dir.path().join("note"), "hello").unwrap();
    let args = ["note".to_owned()];
    let run = |permit: &decide::Permit| guard.run_permit("cat", &args, permit);
    let mut permit = guard.permit("cat", &args).unwrap();
    assert_eq!(run(&permit).unwrap().stdout, "hello");
    permit.found.identity.1 += 1;
    let refused = run(&permit).unwrap_err().to_string();
    assert!(refused.contains("was replaced after it was checked"), "{refused}");
    // Another file at the path that is executed has no right to be.
    let mut permit = guard.permit("cat", &args).unwrap();
    permit.found.called = "/usr/bin/id".into();
    permit.found.canonical = "/usr/bin/id".into();
    assert!(run(&permit).unwrap_err().to_string().contains("was replaced after it was checked"));
}

#[test]
fn execution_and_blocked_paths_hold_on_every_landlock_abi() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("open"), "plain\n").unwrap();
    std::fs::write(at("key"), "secret\n").unwrap();
    let mut config = allowing("dash");
    config.blocked_paths = vec![at("key"), at("later")];
    let without = guard(config.clone(), dir.path());
    config.helpers.insert("dash".into(), vec!["cat".into()]);
    let with = guard(config, dir.path());
    let newest = cofferdam_confine::landlock::abi();
    assert!(newest > 0 || std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "this kernel has no Landlock");
    for abi in 1..=newest {
        OLDER.set(Some(abi));
        let script =
            "cat open || echo refused $?; read line <key || echo blocked; echo x >later || echo unmade; echo end";
        let run = |guard: &Guard| guard.execute_blocking("dash", &["-c", script]).unwrap().stdout;
        assert_eq!(run(&without), "refused 126\nblocked\nunmade\nend\n", "version {abi}");
        assert_eq!(run(&with), "plain\nblocked\nunmade\nend\n", "version {abi}");
    }
    OLDER.set(None);
}
