//! Seatbelt profiles held against a small evaluator of their language, and runs of a stand-in for sandbox-exec, which is
//! this very program: called with `-p` it checks its arguments, evaluates nothing and becomes the command.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_confine::host;
use cofferdam_engine::backends::{BackendPlan, ExternalPlan, InstalledTool, PlanRequest, Tool, Tools, seatbelt};
use cofferdam_engine::facts::FactsTable;
use cofferdam_engine::{Ending, Io};
use cofferdam_policy::{Access, Field, Mount, NetworkMode, Policy, Root, Stdin};
use language::{Attempt, Profile, on};
use libtest_mimic::{Arguments, Trial};

#[path = "../../confine/tests/seatbelt_language/mod.rs"]
mod language;

// --- what the profiles hold -----------------------------------------------------------------------------------------

fn base() -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec!["/bin/sh".into(), "-c".into(), "true".into()];
    policy
}

fn bind(path: &str, access: Access, exec: bool) -> Mount {
    Mount::Bind { source: path.into(), target: path.into(), access, exec, optional: false }
}

fn profile(policy: &Policy) -> Profile {
    let host = FactsTable::usual(&["/Users/u/w/.git/", "/Users/u/data/"]);
    Profile::new(&seatbelt::plan(policy, &host).unwrap())
}

fn check(profile: &Profile, attempt: &Attempt<'_>, allowed: bool) {
    assert_eq!(profile.allows(attempt), allowed, "{attempt:?}");
}

fn the_evaluator_takes_the_last_match() {
    let text = "(version 1)\n(deny default)\n(allow network* (remote ip \"localhost:*\"))\n(deny network*)\n\
                (allow file-read* (require-all (subpath (param \"A\")) (require-not (literal \"/a/b\"))))\n\
                (deny file-read-data (regex #\"^/a/c\\.d$\"))";
    let parameters = vec![("A".to_owned(), "/a".to_owned())];
    let profile =
        Profile::new(&cofferdam_confine::seatbelt::Profile { text: text.into(), parameters, warnings: vec![] });
    check(
        &profile,
        &Attempt { operation: "network-outbound", remote: Some("localhost:80"), ..Attempt::default() },
        false,
    );
    for (path, allowed) in [("/a/x", true), ("/a/b", false), ("/a/c.d", false), ("/ab", false)] {
        check(&profile, &on("file-read-data", path), allowed);
    }
    check(&profile, &on("file-read-metadata", "/a/c.d"), true);
}

fn an_optional_path_is_granted_only_where_something_is() {
    let mut policy = base();
    let optional = |path: &str| Mount::Bind {
        source: path.into(),
        target: path.into(),
        access: Access::ReadWrite,
        exec: false,
        optional: true,
    };
    policy.filesystem.mounts = vec![optional("/Users/u/data"), optional("/Users/u/gone")];
    let host = FactsTable::usual(&["/Users/u/data/"]);
    assert_eq!(seatbelt::left_out(&policy, &host), ["/Users/u/gone"]);
    let profile = Profile::new(&seatbelt::plan(&policy, &host).unwrap());
    for (path, allowed) in [("/Users/u/data/x", true), ("/Users/u/gone/x", false), ("/Users/u/gone", false)] {
        check(&profile, &on("file-read-data", path), allowed);
        check(&profile, &on("file-write-data", path), allowed);
    }
}

fn only_what_is_granted_can_be_read_and_only_what_is_writable_written() {
    let mut policy = base();
    policy.filesystem.mounts =
        vec![bind("/Users/u/data", Access::ReadOnly, false), bind("/tmp/w", Access::ReadWrite, false)];
    let profile = profile(&policy);
    for (operation, path, allowed) in [
        ("file-read-data", "/Users/u/data/x", true),
        ("file-write-data", "/Users/u/data/x", false),
        ("file-read-data", "/Users/u/other", false),
        ("file-read-data", "/Users/u/database", false),
        ("file-read-metadata", "/Users/u", true),
        ("file-read-data", "/Users/u", false),
        ("file-read-data", "/usr/lib/libSystem.B.dylib", true),
        ("file-write-create", "/private/tmp/w/new", true),
        ("file-write-create", "/private/tmp/new", false),
        ("process-exec", "/private/tmp/w/new", false),
        ("process-exec", "/usr/bin/true", true),
        ("file-write-setugid", "/private/tmp/w/new", false),
        ("file-mknod", "/private/tmp/w/new", false),
        ("file-read-data", "/private/etc/master.passwd", false),
    ] {
        check(&profile, &on(operation, path), allowed);
    }
    check(&profile, &Attempt { device: true, ..on("file-write-data", "/dev/null") }, true);
    check(&profile, &Attempt { device: true, ..on("file-write-data", "/dev/disk0") }, false);
}

fn protected_and_denied_paths_are_held_whether_or_not_they_exist() {
    let mut policy = base();
    policy.filesystem.mounts = vec![bind("/Users/u/w", Access::ReadWrite, true)];
    policy.filesystem.deny = vec!["/Users/u/w/secret".into(), "/Users/u/w/deep/secret".into()];
    let profile = profile(&policy);
    for (operation, path, allowed) in [
        ("file-write-data", "/Users/u/w/main.c", true),
        ("file-write-create", "/Users/u/w/.git/hooks/pre-commit", false),
        ("file-read-data", "/Users/u/w/.git/hooks/pre-commit", true),
        ("file-write-create", "/Users/u/w/.bashrc", false),
        ("file-write-create", "/Users/u/w/.bashrc2", true),
        ("file-write-create", "/Users/u/w/.git/index", true),
        ("file-write-unlink", "/Users/u/w/.git", false),
        ("file-write-unlink", "/Users/u/w/.git/index", true),
        ("file-read-data", "/Users/u/w/secret", false),
        ("file-write-create", "/Users/u/w/secret", false),
        ("file-read-data", "/Users/u/w/secret/below", false),
        ("file-read-data", "/Users/u/w/secrets", true),
        ("file-write-unlink", "/Users/u/w/deep", false),
        ("file-write-unlink", "/Users/u/w/other", true),
        ("process-exec", "/Users/u/w/run", true),
        ("process-exec", "/Users/u/w/secret", false),
    ] {
        check(&profile, &on(operation, path), allowed);
    }
}

fn the_hosts_view_is_all_but_what_is_denied() {
    let mut policy = base();
    policy.filesystem.root = Root::Host;
    policy.filesystem.deny = vec!["/etc/ssh".into(), "/Users/u/.ssh".into()];
    let profile = profile(&policy);
    for (path, allowed) in [
        ("/Users/u/x", true),
        ("/Users/u/.ssh/id", false),
        ("/private/etc/ssh/key", false),
        ("/private/etc/hosts", true),
    ] {
        check(&profile, &on("file-read-data", path), allowed);
    }
    check(&profile, &on("file-write-data", "/Users/u/x"), false);
}

fn network_modes_let_through_what_they_say() {
    let far = Attempt { operation: "network-outbound", remote: Some("example.org:443"), ..Attempt::default() };
    let near = Attempt { remote: Some("localhost:8080"), ..far.clone() };
    let listen = Attempt { operation: "network-bind", local: Some("localhost:0"), ..Attempt::default() };
    for (mode, expected) in [
        (NetworkMode::None, [false, false, false]),
        (NetworkMode::Loopback, [false, true, true]),
        (NetworkMode::Host, [true, true, true]),
        (NetworkMode::Allowlist, [false, false, false]),
    ] {
        let mut policy = base();
        policy.network.mode = mode;
        let profile = profile(&policy);
        for (attempt, allowed) in [&far, &near, &listen].into_iter().zip(expected) {
            assert_eq!(profile.allows(attempt), allowed, "{mode:?}: {attempt:?}");
        }
    }
}

fn unix_sockets_are_granted_below_what_is_writable_alone() {
    let mut policy = base();
    policy.filesystem.mounts = vec![bind("/Users/u/w", Access::ReadWrite, false)];
    for granted in [false, true] {
        policy.process.unix_sockets = granted;
        let profile = profile(&policy);
        check(&profile, &on("network-outbound", "/Users/u/w/socket"), granted);
        check(&profile, &on("network-outbound", "/private/var/run/docker.sock"), false);
    }
}

fn no_spawn_is_one_program_and_no_fork() {
    let mut policy = base();
    let fork = Attempt { operation: "process-fork", ..Attempt::default() };
    check(&profile(&policy), &fork, true);
    check(&profile(&policy), &on("process-exec", "/usr/bin/true"), true);
    policy.command.argv = vec!["/usr/bin/python3".into()];
    policy.process.spawn = false;
    let profile = profile(&policy);
    check(&profile, &fork, false);
    check(&profile, &on("process-exec", "/usr/bin/python3"), true);
    check(&profile, &on("process-exec", "/usr/bin/true"), false);
}

fn other_processes_are_out_of_reach() {
    let profile = profile(&base());
    for (operation, allowed) in [("signal", true), ("process-info-pidinfo", true)] {
        check(&profile, &Attempt { operation, ..Attempt::default() }, allowed);
        check(&profile, &Attempt { operation, other_sandbox: true, ..Attempt::default() }, !allowed);
    }
    for operation in ["mach-priv-task-port", "iokit-open", "system-kext-load", "sysctl-write", "mach-register"] {
        check(&profile, &Attempt { operation, ..Attempt::default() }, false);
    }
    let lookup = |name| Attempt { operation: "mach-lookup", name: Some(name), ..Attempt::default() };
    check(&profile, &lookup("com.apple.system.logger"), true);
    check(&profile, &lookup("com.apple.pasteboard.1"), false);
}

fn a_path_cannot_end_its_string() {
    let mut policy = base();
    let evil = "/Users/u/x\")) (allow default) ;";
    policy.filesystem.mounts = vec![bind(evil, Access::ReadOnly, false)];
    policy.id = Some("tag".into());
    let planned = seatbelt::plan(&policy, &FactsTable::usual(&[])).unwrap();
    assert!(!planned.text.contains("allow default"), "{}", planned.text);
    let profile = Profile::new(&planned);
    check(&profile, &on("file-read-data", evil), true);
    check(&profile, &on("file-read-data", "/Users/u/y"), false);
}

// --- runs -----------------------------------------------------------------------------------------------------------

/// What sandbox-exec(1) is called with, checked, and then the command.
fn stand_in(arguments: &[String]) -> ExitCode {
    let complain = |what: &str| {
        eprintln!("sandbox-exec: {what}");
        ExitCode::from(64)
    };
    let [p, text, rest @ ..] = arguments else { return complain("no profile") };
    if p != "-p" || !text.starts_with("(version 1)\n") {
        return complain("no profile");
    }
    let mut rest = rest;
    while let [d, value, further @ ..] = rest
        && d == "-D"
    {
        if !value.contains("=/") {
            return complain("a parameter without a path");
        }
        rest = further;
    }
    let [dashes, program, argv @ ..] = rest else { return complain("no command") };
    if dashes != "--" {
        return complain("no command");
    }
    let error = std::process::Command::new(program).args(argv).exec();
    complain(&format!("{program}: {error}"))
}

fn run(policy: &Policy) -> cofferdam_engine::Outcome {
    let tools = Tools { seatbelt: std::env::current_exe().ok(), ..Tools::default() };
    let tool = InstalledTool::find(Tool::Seatbelt, &tools).unwrap();
    let mut policy = policy.clone();
    for field in [Field::Seccomp, Field::Isolation, Field::Hostname, Field::TreeKill, Field::Mounts] {
        policy.allow_partial(field);
    }
    let ready =
        ExternalPlan::plan(&PlanRequest::of(&policy), tool, host::identity()).unwrap_or_else(|e| panic!("{e:?}"));
    ready.sufficient().unwrap_or_else(|e| panic!("{e:?}"));
    ready.run(Io::default())
}

fn the_stand_in_runs_what_it_is_given() {
    let mut policy = base();
    policy.command.argv = ["/bin/sh", "-c", "cat; echo \"$GIVEN\" >&2; exit 7"].map(str::to_owned).to_vec();
    policy.command.stdin = Stdin::Text("in\n".into());
    policy.command.variables = [("GIVEN".to_owned(), "yes".to_owned())].into();
    policy.filesystem.mounts = vec![bind("/usr", Access::ReadOnly, false)];
    let o = run(&policy);
    assert_eq!((o.outcome, o.exit_code, o.backend.as_str()), (Ending::Exited, Some(7), "seatbelt"), "{o:?}");
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("in\n", "yes\n"));
}

fn the_clock_and_signals_are_distinguished() {
    let mut policy = base();
    policy.command.argv[2] = "sleep 64.25 & sleep 64.25".into();
    policy.limits.wall_ms = 300;
    let o = run(&policy);
    assert_eq!((o.outcome, o.limit), (Ending::TimedOut, Some(Field::WallTime)), "{o:?}");
    std::thread::sleep(Duration::from_millis(50));
    policy.command.argv[2] = "kill -9 $$".into();
    let o = run(&policy);
    assert_eq!((o.outcome, o.signal), (Ending::Signalled, Some(9)), "{o:?}");
}

fn what_seatbelt_cannot_hold_is_refused() {
    let tools = Tools { seatbelt: std::env::current_exe().ok(), ..Tools::default() };
    let tool = InstalledTool::find(Tool::Seatbelt, &tools).unwrap();
    let planned = ExternalPlan::plan(&PlanRequest::of(&base()), tool.clone(), host::identity()).unwrap();
    assert!(planned.sufficient().unwrap_err().message.contains("process."), "{:?}", planned.sufficient());
    let mut elsewhere = base();
    elsewhere.filesystem.mounts = vec![Mount::Bind {
        source: "/usr".into(),
        target: "/data".into(),
        access: Access::ReadOnly,
        exec: false,
        optional: false,
    }];
    assert_eq!(
        ExternalPlan::plan(&PlanRequest::of(&elsewhere), tool, host::identity()).unwrap_err().step.as_str(),
        "filesystem.mounts[0]"
    );
    let missing = InstalledTool::find(Tool::Seatbelt, &Tools::default()).unwrap_err();
    assert!(missing.message.contains("macOS"), "{missing:?}");
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "-p") {
        return stand_in(&arguments);
    }
    macro_rules! trials {
        ($($name:ident),+ $(,)?) => {
            vec![$(Trial::test(stringify!($name), || { $name(); Ok(()) })),+]
        };
    }
    let trials = trials![
        the_evaluator_takes_the_last_match,
        an_optional_path_is_granted_only_where_something_is,
        only_what_is_granted_can_be_read_and_only_what_is_writable_written,
        protected_and_denied_paths_are_held_whether_or_not_they_exist,
        the_hosts_view_is_all_but_what_is_denied,
        network_modes_let_through_what_they_say,
        unix_sockets_are_granted_below_what_is_writable_alone,
        no_spawn_is_one_program_and_no_fork,
        other_processes_are_out_of_reach,
        a_path_cannot_end_its_string,
        the_stand_in_runs_what_it_is_given,
        the_clock_and_signals_are_distinguished,
        what_seatbelt_cannot_hold_is_refused,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
