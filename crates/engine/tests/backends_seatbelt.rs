//! Seatbelt profiles held against a small evaluator of their language, and runs of a stand-in for sandbox-exec, which is
//! this very program: called with `-p` it checks its arguments, evaluates nothing and becomes the command.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_confine::host;
use cofferdam_engine::backends::facts::Table;
use cofferdam_engine::backends::{Installed, Ready, Tool, Tools, seatbelt};
use cofferdam_engine::{Ending, Io};
use cofferdam_policy::{Access, Field, Mount, NetworkMode, Policy, Root, Stdin};
use libtest_mimic::{Arguments, Trial};

// --- the language ---------------------------------------------------------------------------------------------------

/// An expression.
#[derive(Debug, Clone, PartialEq)]
enum Form {
    Word(String),
    Text(String),
    Pattern(String),
    List(Vec<Form>),
}

impl Form {
    fn list(&self) -> &[Form] {
        match self {
            Form::List(items) => items,
            other => panic!("{other:?} is no list"),
        }
    }

    fn word(&self) -> &str {
        match self {
            Form::Word(word) => word,
            other => panic!("{other:?} is no word"),
        }
    }
}

/// Reads a whole profile.
fn parse(text: &str) -> Vec<Form> {
    let mut chars = text.chars().peekable();
    let mut stack: Vec<Vec<Form>> = vec![Vec::new()];
    while let Some(c) = chars.next() {
        match c {
            ';' => drop(chars.by_ref().find(|c| *c == '\n')),
            c if c.is_whitespace() => {}
            '(' => stack.push(Vec::new()),
            ')' => {
                let list = stack.pop().unwrap();
                stack.last_mut().expect("no more closed than opened").push(Form::List(list));
            }
            '"' | '#' => {
                if c == '#' {
                    assert_eq!(chars.next(), Some('"'), "only #\"…\" is a pattern");
                }
                let mut text = String::new();
                loop {
                    match chars.next().expect("a string ends") {
                        '"' => break,
                        '\\' if c == '"' => text.push(chars.next().unwrap()),
                        other => text.push(other),
                    }
                }
                let form = if c == '#' { Form::Pattern(text) } else { Form::Text(text) };
                stack.last_mut().unwrap().push(form);
            }
            first => {
                let mut word = String::from(first);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    word.push(c);
                }
                assert!(!word.starts_with('/'), "a bare path: {word}");
                stack.last_mut().unwrap().push(Form::Word(word));
            }
        }
    }
    assert_eq!(stack.len(), 1, "everything opened is closed");
    stack.pop().unwrap()
}

/// One thing that a program might do.
#[derive(Debug, Clone, Default)]
struct Attempt<'a> {
    operation: &'a str,
    path: Option<&'a str>,
    device: bool,
    /// Host and port on the far or the near side.
    remote: Option<&'a str>,
    local: Option<&'a str>,
    other_sandbox: bool,
    name: Option<&'a str>,
}

struct Profile {
    rules: Vec<Form>,
    parameters: BTreeMap<String, String>,
}

impl Profile {
    fn new(profile: &cofferdam_confine::seatbelt::Profile) -> Profile {
        let rules = parse(&profile.text);
        assert_eq!(rules[0], Form::List(vec![Form::Word("version".into()), Form::Word("1".into())]));
        assert_eq!(rules[1].list()[1].word(), "default", "the default rule comes second");
        Profile { rules, parameters: profile.parameters.iter().cloned().collect() }
    }

    /// The last rule that matches decides.
    fn allows(&self, attempt: &Attempt<'_>) -> bool {
        let mut allowed = None;
        for rule in &self.rules[1..] {
            let (verdict, rest) = rule.list().split_first().unwrap();
            let operations = rest.iter().take_while(|form| matches!(form, Form::Word(_)));
            let matches = operations.clone().any(|operation| covers(operation.word(), attempt.operation));
            let filters: Vec<&Form> = rest.iter().skip(operations.count()).filter(|f| !is_modifier(f)).collect();
            if matches && (filters.is_empty() || filters.iter().any(|filter| self.holds(filter, attempt))) {
                allowed = Some(match verdict.word() {
                    "allow" => true,
                    "deny" => false,
                    other => panic!("{other} is no verdict"),
                });
            }
        }
        allowed.expect("there is a default")
    }

    fn value<'f>(&'f self, form: &'f Form) -> &'f str {
        match form {
            Form::Text(text) => text,
            Form::List(list) if list[0].word() == "param" => match &list[1] {
                Form::Text(name) => self.parameters.get(name).unwrap_or_else(|| panic!("no parameter {name}")),
                other => panic!("{other:?} is no parameter's name"),
            },
            other => panic!("{other:?} is no value"),
        }
    }

    fn holds(&self, filter: &Form, attempt: &Attempt<'_>) -> bool {
        let (name, rest) = filter.list().split_first().unwrap();
        let path_is = |test: &dyn Fn(&str) -> bool| attempt.path.is_some_and(test);
        match name.word() {
            "require-all" => rest.iter().all(|f| self.holds(f, attempt)),
            "require-any" => rest.iter().any(|f| self.holds(f, attempt)),
            "require-not" => !self.holds(&rest[0], attempt),
            "literal" => path_is(&|path| path == self.value(&rest[0])),
            "subpath" => path_is(&|path| {
                let base = self.value(&rest[0]);
                path == base || path.strip_prefix(base).is_some_and(|below| below.starts_with('/'))
            }),
            "regex" => match &rest[0] {
                // As far as it is used: a literal text between ^ and $.
                Form::Pattern(p) => path_is(&|path| p.trim_matches(['^', '$']).replace('\\', "") == path),
                other => panic!("{other:?} is no pattern"),
            },
            "vnode-type" => attempt.device && rest[0].word() == "CHARACTER-DEVICE",
            "remote" => self.end(rest, attempt.remote, attempt),
            "local" => self.end(rest, attempt.local, attempt),
            "target" => rest[0].word() == "same-sandbox" && !attempt.other_sandbox,
            "global-name" | "ipc-posix-name" => attempt.name == Some(self.value(&rest[0])),
            "socket-domain" | "socket-protocol" => false,
            other => panic!("{other} is not a filter that is known to exist"),
        }
    }

    fn end(&self, rest: &[Form], end: Option<&str>, attempt: &Attempt<'_>) -> bool {
        match rest[0].word() {
            "unix-socket" => self.holds(&rest[1], attempt),
            "ip" => {
                let (host, port) = self.value(&rest[1]).split_once(':').unwrap();
                assert!(["localhost", "*"].contains(&host), "Seatbelt knows no other host: {host}");
                end.and_then(|end| end.split_once(':'))
                    .is_some_and(|(h, p)| (host == "*" || h == "localhost") && (port == "*" || port == p))
            }
            other => panic!("{other} is no kind of address"),
        }
    }
}

fn is_modifier(form: &Form) -> bool {
    matches!(form, Form::List(list) if list[0] == Form::Word("with".into()))
}

/// Whether a rule's operation is the attempted one, or stands for it.
fn covers(rule: &str, operation: &str) -> bool {
    rule == "default" || rule == operation || rule.strip_suffix('*').is_some_and(|stem| operation.starts_with(stem))
}

fn on<'a>(operation: &'a str, path: &'a str) -> Attempt<'a> {
    Attempt { operation, path: Some(path), ..Attempt::default() }
}

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
    let host = Table::usual(&["/Users/u/w/.git/", "/Users/u/data/"]);
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
    let host = Table::usual(&["/Users/u/data/"]);
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
    let planned = seatbelt::plan(&policy, &Table::usual(&[])).unwrap();
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
    let tool = Installed::find(Tool::Seatbelt, &tools).unwrap();
    let mut policy = policy.clone();
    for field in [Field::Seccomp, Field::Isolation, Field::Hostname, Field::TreeKill, Field::Mounts] {
        policy.allow_partial(field);
    }
    let ready = Ready::plan(&policy, tool, host::identity()).unwrap_or_else(|e| panic!("{e:?}"));
    ready.sufficient().unwrap_or_else(|e| panic!("{e:?}"));
    ready.run(Io::default())
}

fn the_stand_in_runs_what_it_is_told() {
    let mut policy = base();
    policy.command.argv = ["/bin/sh", "-c", "cat; echo \"$GIVEN\" >&2; exit 7"].map(str::to_owned).to_vec();
    policy.command.stdin = Stdin::Text("in\n".into());
    policy.command.variables = [("GIVEN".to_owned(), "yes".to_owned())].into();
    policy.filesystem.mounts = vec![bind("/usr", Access::ReadOnly, false)];
    let o = run(&policy);
    assert_eq!((o.outcome, o.exit_code, o.backend.as_str()), (Ending::Exited, Some(7), "seatbelt"), "{o:?}");
    assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("in\n", "yes\n"));
}

fn the_clock_and_signals_are_told_apart() {
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
    let tool = Installed::find(Tool::Seatbelt, &tools).unwrap();
    let planned = Ready::plan(&base(), tool.clone(), host::identity()).unwrap();
    assert!(planned.sufficient().unwrap_err().message.contains("process."), "{:?}", planned.sufficient());
    let mut elsewhere = base();
    elsewhere.filesystem.mounts = vec![Mount::Bind {
        source: "/usr".into(),
        target: "/data".into(),
        access: Access::ReadOnly,
        exec: false,
        optional: false,
    }];
    assert_eq!(Ready::plan(&elsewhere, tool, host::identity()).unwrap_err().step, "filesystem.mounts[0]");
    let missing = Installed::find(Tool::Seatbelt, &Tools::default()).unwrap_err();
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
        the_stand_in_runs_what_it_is_told,
        the_clock_and_signals_are_told_apart,
        what_seatbelt_cannot_hold_is_refused,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
