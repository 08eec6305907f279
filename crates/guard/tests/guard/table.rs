//! What else the table says: time, output, arguments, variables, network, and what no guard is made of.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use cofferdam_guard::{Guard, GuardConfig, GuardError, Mode, Refusal, Rule, Sandbox as _};

use crate::fixture::{Fixture, Unpark, allowing, builder, has, ok, run};

#[test]
fn the_network_is_what_the_table_says() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Fixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let code = "import socket, sys\n\
         try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('connected')\n\
         except OSError: print('refused')";
    let args = ["-c", code, port.as_str()];
    let guard = place.guard(allowing(&["/usr/bin/python3"]));
    assert_eq!(ok(&guard, "/usr/bin/python3", &args).stdout, "refused\n");
    let network = cofferdam_policy::NetworkMode::Host;
    let guard = place.guard(GuardConfig { network, ..allowing(&["/usr/bin/python3"]) });
    assert_eq!(ok(&guard, "/usr/bin/python3", &args).stdout, "connected\n");
}

#[test]
fn a_limit_that_was_met_is_named() {
    let place = Fixture::new();
    let mut config = allowing(&["/usr/bin/dash"]);
    config.limits.cpu_seconds = 1;
    let guard = place.guard(config);
    ok(&guard, "/usr/bin/dash", &["-c", "echo x"]);
    let refused = run(&guard, "/usr/bin/dash", &["-c", "while :; do :; done"]).unwrap_err();
    assert!(matches!(&refused, Refusal::Limit { limit: cofferdam_policy::Field::CpuTime, .. }), "{refused}");
    assert!(refused.to_string().contains("limits.cpu_seconds"), "{refused}");
}

#[test]
fn time_and_output_have_their_ends() {
    let place = Fixture::new();
    let config = GuardConfig { max_execution_time_secs: 1, ..allowing(&["sleep", "yes"]) };
    let guard = place.guard(config.clone());
    let begun = Instant::now();
    let late = run(&guard, "sleep", &["30"]).unwrap_err();
    assert!(matches!(&late, Refusal::Timeout { command, limit_secs: 1, .. } if command == "sleep"), "{late:?}");
    assert!(late.to_string().contains("sleep") && late.to_string().contains("1 s"), "{late}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    ok(&guard, "sleep", &["0.1"]);

    let mut config = GuardConfig { max_output_bytes: 1000, ..allowing(&["/usr/bin/dash"]) };
    config.helpers.insert("dash".into(), vec!["head".into()]);
    let guard = place.guard(config);
    let both = "head -c 600 /dev/zero; head -c 600 /dev/zero >&2; exit 3";
    let result = run(&guard, "/usr/bin/dash", &["-c", both]).unwrap();
    assert_eq!((result.stdout.len() + result.stderr.len(), result.truncated, result.exit_code), (1000, true, 3));
    let less = run(&guard, "/usr/bin/dash", &["-c", "head -c 500 /dev/zero; head -c 500 /dev/zero >&2"]).unwrap();
    assert_eq!((less.stdout.len(), less.stderr.len(), less.truncated), (500, 500, false));
    // A character that the cap cuts in two is left out, and no other one.
    let halved = run(&guard, "/usr/bin/dash", &["-c", "head -c 999 /dev/zero; printf '\\303\\251'"]).unwrap();
    assert_eq!((halved.stdout.len(), halved.truncated), (999, true), "{:?}", halved.stdout.get(990..));
    let whole = run(&guard, "/usr/bin/dash", &["-c", "head -c 998 /dev/zero; printf '\\303\\251'"]).unwrap();
    assert!(whole.stdout.ends_with('\u{e9}') && !whole.truncated);
    let signalled = run(&guard, "/usr/bin/dash", &["-c", "kill -9 $$"]).unwrap();
    assert_eq!(signalled.exit_code, 137);
}

#[test]
fn a_dropped_execution_is_dead() {
    let place = Fixture::new();
    let mut config = allowing(&["/usr/bin/dash"]);
    config.helpers.insert("dash".into(), vec!["sleep".into()]);
    let guard = place.guard(config);
    let script = "while :; do echo x >> beat; sleep 0.05; done";
    let args = ["-c", script];
    let mut execution = guard.execute("/usr/bin/dash", &args);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    assert!(execution.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let beat = place.work().join("beat");
    let begun = Instant::now();
    while !beat.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(execution);
    std::thread::sleep(Duration::from_millis(1500));
    let length = || std::fs::metadata(&beat).unwrap().len();
    let then = length();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(length(), then);
}

#[test]
fn arguments_are_held_to_their_patterns() {
    let place = Fixture::new();
    let rule = Rule {
        command: "echo".into(),
        args: Some("status|log( --oneline)?".into()),
        matches: vec![vec!["status".into()], vec!["log".into(), "--oneline".into()]],
        not_matches: vec![vec!["push".into()], vec!["log --oneline".into()]],
    };
    let mut config = allowing(&[]);
    config.allowed_commands.push(rule);
    let guard = place.guard(config);
    assert_eq!(ok(&guard, "echo", &["log", "--oneline"]).stdout, "log --oneline\n");
    for args in [&["push"][..], &[], &["log --oneline"], &["status", "push"], &["status\n"]] {
        let refused = run(&guard, "echo", args).unwrap_err();
        assert!(matches!(refused, Refusal::Arguments { .. }), "{args:?}: {refused}");
    }
    assert!(guard.is_allowed("echo"));
    assert!(guard.check("echo", &["status"]).is_ok() && guard.check("echo", &["x"]).is_err());
}

#[test]
fn nothing_is_executed_when_disabled_or_when_nothing_is_allowed() {
    let place = Fixture::new();
    let disabled = place.guard(GuardConfig { enabled: false, ..allowing(&["cat"]) });
    assert!(matches!(run(&disabled, "cat", &[]), Err(Refusal::Disabled { .. })));
    assert!(!disabled.is_allowed("cat"));
    let empty = place.guard(allowing(&[]));
    assert!(matches!(run(&empty, "cat", &[]), Err(Refusal::NotAllowed { .. })));
    assert!(!empty.is_allowed("cat"));
    let enabled = place.guard(allowing(&["cat"]));
    ok(&enabled, "cat", &[]);
}

#[test]
fn a_writable_directory_is_named_by_the_home_as_well() {
    let place = Fixture::new();
    let work = place.at("work");
    let at_home = |home: &str| {
        let config = GuardConfig { writable: vec!["~/outside".into()], ..allowing(&["touch"]) };
        let variables = [("PATH", "/usr/bin:/bin"), ("HOME", home)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        Guard::builder(config, &work).variables(variables).build()
    };
    assert!(matches!(at_home("/no/such/home"), Err(GuardError::Directory { what: "writable", .. })));
    ok(&at_home(&place.at("")).unwrap(), "touch", &[&place.at("outside/made")]);
}

#[test]
fn a_guard_that_cannot_be_enforced_is_not_built() {
    let place = Fixture::new();
    let made = |config: GuardConfig, workspace: &str| builder(config, Path::new(workspace)).build();
    let work = place.at("work");
    assert!(made(allowing(&["cat"]), &work).is_ok());
    place.write("file", "");
    symlink("/", place.at("to-root")).unwrap();
    symlink(place.at("work"), place.at("to-work")).unwrap();
    for bad in [&place.at("missing"), &place.at("file"), &place.at("to-root"), "work", "/", "/etc", "/usr", "/proc"] {
        let error = made(allowing(&["cat"]), bad).unwrap_err();
        assert!(matches!(error, GuardError::Directory { .. }), "{bad}: {error}");
    }
    assert!(made(allowing(&["cat"]), &place.at("to-work")).is_ok());
    let blocking = |path: &str| {
        let blocked_paths = vec![path.to_owned()];
        made(GuardConfig { blocked_paths, ..allowing(&["cat"]) }, &work)
    };
    assert!(blocking(&place.at("outside")).is_ok());
    for bad in [&place.at(""), &work, "/", "relative", "/proc/1"] {
        assert!(matches!(blocking(bad), Err(GuardError::Blocked { .. })), "{bad}");
    }
    assert!(matches!(made(allowing(&["/usr/bin"]), &work), Err(GuardError::Rule { .. })));
    assert!(matches!(made(allowing(&["./cat"]), &work), Err(GuardError::Rule { .. })));
    let rwx = GuardConfig { mode: Mode::Rwx, ..allowing(&["cat"]) };
    assert!(matches!(made(rwx, &work), Err(GuardError::Unwalled)));
    let pattern = |args: &str| {
        let rule = Rule { command: "cat".into(), args: Some(args.into()), ..Rule::default() };
        made(GuardConfig { allowed_commands: vec![rule], ..allowing(&[]) }, &work)
    };
    assert!(pattern("a+").is_ok());
    assert!(matches!(pattern("(a"), Err(GuardError::Pattern { .. })));
    for (name, helper) in [("cat", "no-such-helper"), ("nobody", "cat")] {
        let mut config = allowing(&["cat"]);
        config.helpers.insert(name.into(), vec![helper.into()]);
        assert!(matches!(made(config, &work), Err(GuardError::Helper { .. })), "{name} {helper}");
    }
    let zero = GuardConfig { max_execution_time_secs: 0, ..allowing(&["cat"]) };
    assert!(matches!(made(zero, &work), Err(GuardError::Policy(_))));
    let zero = GuardConfig { max_output_bytes: 0, ..allowing(&["cat"]) };
    assert!(matches!(made(zero, &work), Err(GuardError::Policy(_))));
    for (config, key) in [
        (GuardConfig { max_execution_time_secs: u64::MAX, ..allowing(&["cat"]) }, "max_execution_time_secs = 18"),
        (GuardConfig { max_output_bytes: 0, ..allowing(&["cat"]) }, "max_output_bytes = 0"),
    ] {
        let error = made(config, &work).unwrap_err().to_string();
        assert!(error.contains(key) && error.contains("from 1 to") && !error.contains('$'), "{error}");
    }
    let mut by_path = allowing(&["/usr/bin/find"]);
    by_path.helpers.insert("/usr/bin/find".into(), vec!["grep".into()]);
    let error = made(by_path.clone(), &work).unwrap_err().to_string();
    assert!(error.contains("hint: a command goes by its last part here: \"find\""), "{error}");
    let helpers = by_path.helpers.remove("/usr/bin/find").unwrap();
    by_path.helpers.insert("find".into(), helpers);
    assert!(made(by_path, &work).is_ok());
    if rustix::process::geteuid().is_root() {
        let asked = GuardConfig { run_as_root: false, ..allowing(&["cat"]) };
        assert!(matches!(made(asked, &work), Err(GuardError::Root)));
    }
    for (bad, good) in [("MY_*", "MY_NAME"), ("a b", "a_b"), ("", "_"), ("1A", "A1")] {
        let keep = GuardConfig { keep_variables: vec![bad.into()], ..allowing(&["cat"]) };
        let strip = GuardConfig { strip_variables: vec![bad.into()], ..allowing(&["cat"]) };
        for config in [keep, strip] {
            assert!(matches!(made(config, &work), Err(GuardError::Variable { .. })), "{bad:?}");
        }
        let named = GuardConfig { strip_variables: vec![good.into()], ..allowing(&["cat"]) };
        assert!(made(named, &work).is_ok(), "{good}");
    }
    for bad in ["git status", "ca*", "cat?", "ls\n"] {
        let error = made(allowing(&[bad]), &work).unwrap_err();
        assert!(matches!(&error, GuardError::Rule { reason, .. } if reason.contains("args =")), "{bad:?}: {error}");
    }
    place.write("outside/two words", "#!/bin/sh\n");
    std::fs::set_permissions(place.at("outside/two words"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(made(allowing(&[&place.at("outside/two words")]), &work).unwrap().not_installed().is_empty());
    let absent = made(allowing(&["cat", "no-such-program"]), &work).unwrap();
    assert_eq!(absent.not_installed(), ["no-such-program"]);
}

#[test]
fn credentials_stay_out_of_the_environment() {
    let place = Fixture::new();
    let variables = [
        ("PATH", "/usr/bin:/bin"),
        ("GITHUB_TOKEN", "t"),
        ("AWS_SECRET_ACCESS_KEY", "t"),
        ("LD_PRELOAD", "/tmp/x.so"),
        ("SSH_AUTH_SOCK", "/tmp/s"),
        ("EDITOR", "vi"),
        ("ORDINARY", "kept"),
        ("MINE", "gone"),
        ("WANTED_TOKEN", "kept"),
    ];
    let config = GuardConfig {
        keep_variables: vec!["WANTED_TOKEN".into()],
        strip_variables: vec!["MINE".into()],
        ..allowing(&["env"])
    };
    let builder = Guard::builder(config, place.work());
    let guard = builder.variables(variables.map(|(k, v)| (k.to_owned(), v.to_owned()))).build().unwrap();
    let said = ok(&guard, "env", &[]).stdout;
    for gone in ["GITHUB_TOKEN", "AWS_", "LD_PRELOAD", "SSH_AUTH_SOCK", "EDITOR", "MINE"] {
        assert!(!said.contains(gone), "{gone}: {said}");
    }
    for kept in ["ORDINARY=kept", "WANTED_TOKEN=kept", "PATH=/usr/bin:/bin"] {
        assert!(said.lines().any(|line| line == kept), "{kept}: {said}");
    }
}
