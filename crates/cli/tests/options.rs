//! The option table: every policy field has an option, each option does what it says, help fits, errors help.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::args::option::Takes;
use cofferdam::args::table::POLICY_OPTIONS;
use cofferdam::call::{self, RunnableCall};
use cofferdam::caller::Caller;
use cofferdam::commands::{Extent, build};
use cofferdam::discover::HostTree;
use cofferdam::{CliRefusal, cli_command};
use cofferdam_policy::*;
use serde_json::{Value, json};

fn caller() -> Caller {
    let variables = [("PATH", "/usr/bin:/bin"), ("TOKEN", "t"), ("TERM", "xterm-x")];
    Caller {
        cwd: "/srv/project".into(),
        homes: vec!["/home/u".into()],
        variables: variables.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<BTreeMap<_, _>>(),
        ..Caller::default()
    }
}

fn call_as(caller: &Caller, arguments: &[&str]) -> Result<RunnableCall, CliRefusal> {
    let all = ["cofferdam"].iter().chain(arguments);
    let matches = build(Extent::All).try_get_matches_from(all).expect("the arguments parse");
    let (name, matches) = matches.subcommand().unwrap();
    call::from_arguments(matches, name == "eval", caller, &HostTree)
}

fn run(arguments: &[&str]) -> Result<Policy, CliRefusal> {
    let all: Vec<&str> = ["run"].iter().chain(arguments).chain(&["--", "prog", "-x"]).copied().collect();
    call_as(&caller(), &all).map(|call| call.policy)
}

/// The policy as JSON after these options.
fn after(arguments: &[&str]) -> Value {
    serde_json::to_value(run(arguments).unwrap_or_else(|refusal| panic!("{arguments:?}: {refusal:?}"))).unwrap()
}

fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, key| &value[key])
}

/// A policy in which every field is present. No `..`: a new field has to be put in here.
fn full() -> Policy {
    let base = Policy::base();
    Policy {
        version: VERSION,
        id: Some("x".into()),
        description: Some("x".into()),
        command: Command {
            argv: vec!["x".into()],
            variables: base.command.variables,
            cwd: Some("/".into()),
            stdin: Stdin::Caller,
        },
        filesystem: base.filesystem,
        network: Network {
            mode: NetworkMode::Allowlist,
            allow: base.network.allow,
            deny: base.network.deny,
            methods: Some(vec!["GET".into()]),
            api: Some(NetworkApi { url: "http://localhost".parse().unwrap(), variable: "X".into() }),
            upstream_proxy: Some("http://proxy.example".parse().unwrap()),
            limits: NetworkLimits {
                host_up_mb: Some(1),
                host_down_mb: Some(1),
                kib_per_second: Some(1),
                ..base.network.limits
            },
        },
        process: base.process,
        limits: base.limits,
        enforcement: base.enforcement,
        on_violation: base.on_violation,
        audit: base.audit,
        backend: base.backend,
    }
}

fn leaves(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) if path != "command.variables" => {
            for (key, value) in members {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(value, &below, into);
            }
        }
        _ => {
            into.insert(path.to_owned());
        }
    }
}

#[test]
fn every_leaf_of_the_policy_has_an_option() {
    let mut all = BTreeSet::new();
    leaves(&serde_json::to_value(full()).unwrap(), "", &mut all);
    // The version is no choice, and the program is what the command line is about.
    assert!(all.remove("version") && all.remove("command.argv"));
    let set: BTreeSet<String> =
        POLICY_OPTIONS.iter().flat_map(|option| option.leaves).map(|leaf| (*leaf).to_owned()).collect();
    assert_eq!(all, set);
}

#[test]
fn every_field_that_can_be_named_becomes_required_by_its_option() {
    let required: BTreeSet<Field> = POLICY_OPTIONS.iter().flat_map(|option| option.requires).copied().collect();
    // Fields without a value of their own: no option names them, and they are always required.
    // And naming a proxy accepts what it cannot enforce.
    let nameless = [Field::Metadata, Field::Isolation, Field::TreeKill, Field::UpstreamProxy];
    for field in Field::ALL {
        assert_eq!(required.contains(field), !nameless.contains(field), "{field}");
    }
}

#[test]
fn the_table_is_sound() {
    let mut names = BTreeSet::new();
    let mut shorts = BTreeSet::new();
    for option in POLICY_OPTIONS {
        assert!(names.insert(option.long), "{} twice", option.long);
        assert!(option.short.is_none_or(|s| shorts.insert(s)), "-{:?} twice", option.short);
        assert!(!option.leaves.is_empty(), "{}", option.long);
        assert!(option.help.len() <= 60 && !option.help.ends_with('.'), "{}: {}", option.long, option.help);
        assert!(option.more.is_empty() || option.more.ends_with('.'), "{}", option.long);
    }
    cli_command().debug_assert();
}

#[test]
fn each_option_changes_its_leaf() {
    // Option and value, the leaf, and what it becomes.
    let table: &[(&[&str], &str, Value)] = &[
        (&["-e", "A=b=c"], "command.variables.A", json!("b=c")),
        (&["--env", "TOKEN"], "command.variables.TOKEN", json!("t")),
        (&["-w", "sub/../x"], "command.cwd", json!("/srv/project/x")),
        (&["-i"], "command.stdin", json!("caller")),
        (&["--stdin", "-text"], "command.stdin", json!({"text": "-text"})),
        (&["--id", "ci"], "id", json!("ci")),
        (&["--description", "d"], "description", json!("d")),
        (&["--root", "minimal"], "filesystem.root", json!("minimal")),
        (&["--root", "./rootfs"], "filesystem.root", json!({"directory": "/srv/project/rootfs"})),
        (&["--network", "loopback"], "network.mode", json!("loopback")),
        (&["--allow", "example.org:443"], "network.mode", json!("allowlist")),
        (
            &["--allow", "B\u{fc}cher.example.", "--allow", "x:*"],
            "network.allow",
            json!(["xn--bcher-kva.example", "x:*"]),
        ),
        (&["--network", "allow=a.example,b.example:22,80-90,*.c:*"], "network.mode", json!("allowlist")),
        (
            &["--network", "allow=a.example,b.example:22,80-90,*.c:*"],
            "network.allow",
            json!(["a.example", "b.example:22,80-90", "*.c:*"]),
        ),
        (
            &["--network", "allow=@crates,b.example:22,80"],
            "network.allow",
            json!(["index.crates.io:443", "static.crates.io:443", "b.example:22,80"]),
        ),
        (
            &["--allow", "@pypi", "--allow", "a.example"],
            "network.allow",
            json!(["pypi.org:443", "files.pythonhosted.org:443", "a.example"]),
        ),
        (&["--allow", "@pypi"], "network.mode", json!("allowlist")),
        (&["--allow-private", "db.example:5432"], "network.mode", json!("allowlist")),
        (
            &["--allow-private", "db.example:5432", "--allow", "a.example"],
            "network.allow",
            json!([{"to": "db.example:5432", "encrypted_hello": false, "private": true}, "a.example"]),
        ),
        (&["--allow", "*.example", "--deny-host", "a.example"], "network.deny", json!(["a.example"])),
        (&["--api", "http://127.0.0.1:8000/v1"], "network.api.url", json!("http://127.0.0.1:8000/v1")),
        (&["--api", "http://127.0.0.1:8000/v1"], "network.api.variable", json!("ISCL_API_URL")),
        (&["--api", "MY_API=http://localhost/a=b"], "network.api.variable", json!("MY_API")),
        (&["--api", "MY_API=http://localhost/a=b"], "network.api.url", json!("http://localhost/a=b")),
        (
            &["--allow", "a", "--upstream-proxy", "http://u:p@proxy:3128"],
            "network.upstream_proxy",
            json!("http://u:p@proxy:3128"),
        ),
        (&["--allow", "a", "--network-limit", "down_mb=7"], "network.limits.down_mb", json!(7)),
        (&["--allow", "a", "--network-limit", "kib_per_second=9"], "network.limits.kib_per_second", json!(9)),
        (&["--allow", "a", "--network-limit", "kib_per_second=9"], "network.limits.up_mb", json!(1024)),
        (&["--allow", "a.example", "--methods", "GET,HEAD"], "network.methods", json!(["GET", "HEAD"])),
        (&["--no-spawn"], "process.spawn", json!(false)),
        (&["--no-spawn", "--spawn"], "process.spawn", json!(true)),
        (&["--seccomp", "strict"], "process.seccomp.level", json!("strict")),
        (
            &["--syscall-rule", "ptrace:kill"],
            "process.seccomp.rules",
            json!([{"syscalls": ["ptrace"], "action": "kill", "when": []}]),
        ),
        (&["--unix-sockets"], "process.unix_sockets", json!(true)),
        (&["--unix-sockets", "--no-unix-sockets"], "process.unix_sockets", json!(false)),
        (&["--hostname", "h"], "process.hostname", json!("h")),
        (&["--memory", "1g"], "limits.memory_mb", json!(1024)),
        (&["--memory", "1g", "--memory", "64m"], "limits.memory_mb", json!(64)),
        (&["--cpus", "1.5"], "limits.cpu_millis", json!(1500)),
        (&["--timeout", "1.5s"], "limits.wall_ms", json!(1500)),
        (&["--cpu-time", "2m"], "limits.cpu_seconds", json!(120)),
        (&["--pids", "7"], "limits.processes", json!(7)),
        (&["--open-files", "70"], "limits.open_files", json!(70)),
        (&["--file-size", "7m"], "limits.file_size_mb", json!(7)),
        (&["--tmpfs-size", "7m"], "limits.tmpfs_mb", json!(7)),
        (&["--output-limit", "7k"], "limits.output_bytes", json!(7168)),
        (&["--layer-size", "7m"], "limits.layer_mb", json!(7)),
        (&["--layer-files", "7"], "limits.layer_inodes", json!(7)),
        (&["--backend", "landlock"], "backend", json!("landlock")),
        (&["--on-violation", "terminate"], "on_violation", json!("terminate")),
        (&["--audit", "error"], "audit", json!({"enabled": true, "level": "error", "trace": false})),
        (&["--audit", "off"], "audit", json!({"enabled": false, "level": "info", "trace": false})),
        (&["--audit", "off", "--audit", "debug"], "audit.enabled", json!(true)),
        (&["--trace"], "audit.trace", json!(true)),
        (&["--trace", "--no-trace"], "audit.trace", json!(false)),
    ];
    for (arguments, leaf, expected) in table {
        assert_eq!(at(&after(arguments), leaf), expected, "{arguments:?}");
    }
    let policy = after(&[]);
    assert_eq!(policy["command"]["argv"], json!(["prog", "-x"]));
    assert_eq!(policy["command"]["stdin"], json!("closed"));
    assert_eq!(policy["command"]["cwd"], json!("/srv/project"));
    assert_eq!(policy["filesystem"]["root"], json!("host"));
}

#[test]
fn proxy_of_the_host_is_used_unless_an_option_overrides_it() {
    let with = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut caller = caller();
        caller.variables.extend(variables.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        let all: Vec<&str> = ["run"].iter().chain(arguments).chain(&["--", "prog"]).copied().collect();
        let policy = call_as(&caller, &all).unwrap().policy;
        let partial = policy.enforcement.best_effort.contains(&Field::UpstreamProxy);
        (policy.network.upstream_proxy.map(|url| url.to_text()), partial)
    };
    let proxy = "http://u:p@proxy.corp:3128";
    let one = [("HTTPS_PROXY", proxy)];
    assert_eq!(with(&one, &["--allow", "x.org"]), (Some(proxy.into()), true));
    assert_eq!(with(&[("all_proxy", proxy)], &["--allow", "x.org"]).0.as_deref(), Some(proxy));
    assert_eq!(with(&one, &["--allow", "x.org", "--upstream-proxy", "none"]), (None, false));
    assert_eq!(
        with(&one, &["--allow", "x.org", "--upstream-proxy", "http://other:1"]).0.as_deref(),
        Some("http://other:1")
    );
    // Nothing to do with a proxy: another mode, no http URL, no variable.
    assert_eq!(with(&one, &["--network", "host"]), (None, false));
    assert_eq!(with(&[("HTTPS_PROXY", "socks5://p:1")], &["--allow", "x.org"]), (None, false));
    assert_eq!(with(&[], &["--allow", "x.org"]), (None, false));
}

#[test]
fn lists_grow_and_paths_become_absolute() {
    let policy = after(&["--deny", "secret", "--protect", "x/y", "--protect", "./z"]);
    let has = |list: &str, path: &str| at(&policy, list).as_array().unwrap().contains(&json!(path));
    assert!(has("filesystem.deny", "/srv/project/secret") && has("filesystem.deny", "/home/u/.ssh"));
    assert!(has("filesystem.protected", "x/y") && has("filesystem.protected", "/srv/project/z"));
    assert!(has("filesystem.protected", ".git/hooks"));
}

fn mounts(arguments: &[&str]) -> Vec<String> {
    let line = |mount: &Mount| match mount {
        Mount::Bind { source, target, access, exec, optional } => {
            format!("{source}>{target} {access:?} {exec}{}", if *optional { " optional" } else { "" })
        }
        Mount::Tmpfs { target, size_mb, exec } => format!("{target} {size_mb} {exec}"),
    };
    run(arguments).unwrap().filesystem.mounts.iter().map(line).collect()
}

#[test]
fn the_working_directory_is_readable_and_options_replace_that() {
    let own = "/srv/project>/srv/project ReadOnly true";
    assert_eq!(mounts(&[]), [own]);
    assert_eq!(mounts(&["-v", ".:.:rw"]), ["/srv/project>/srv/project ReadWrite true"]);
    assert_eq!(mounts(&["--here"]), ["/srv/project>/srv/project ReadWrite true"]);
    assert_eq!(mounts(&["--here=cow"]), ["/srv/project>/srv/project CopyOnWrite true"]);
    assert_eq!(mounts(&["-v", ".:.:rw,noexec"]), ["/srv/project>/srv/project ReadWrite false"]);
    assert_eq!(mounts(&["-v", "/srv:/srv:rw"]), ["/srv>/srv ReadWrite false"], "shows the directory as well");
    assert_eq!(mounts(&["-v", "/opt:/srv"]), ["/opt>/srv ReadOnly true", own], "would hide it");
    assert_eq!(
        mounts(&["--tmpfs", "/w:size=8m,exec", "-v", "a:/w/a:cow,exec"]),
        [own, "/w 8 true", "/srv/project/a>/w/a CopyOnWrite true"],
        "in the order of the command line"
    );
    assert_eq!(mounts(&["-v", "a:/a:optional"]), [own, "/srv/project/a>/a ReadOnly true optional"]);
    assert_eq!(mounts(&["-v", "a:/a:optional,rw"]), [own, "/srv/project/a>/a ReadWrite true optional"]);
    assert_eq!(mounts(&["--read-only", "-v", ".:.:rw"]), ["/srv/project>/srv/project ReadOnly true"]);
}

#[test]
fn named_fields_are_required_unless_best_effort() {
    let required = |arguments: &[&str], field| run(arguments).unwrap().is_required(field);
    assert!(!required(&[], Field::Memory) && required(&[], Field::Network));
    assert!(required(&["--memory", "64m"], Field::Memory));
    assert!(!required(&["--memory", "64m"], Field::CpuTime));
    assert!(!required(&["--best-effort", "--memory", "64m"], Field::Memory));
    assert!(required(&["--best-effort"], Field::Network), "isolation has to be named");
    assert!(!required(&["--best-effort=network.mode,process"], Field::Network));
    assert!(!required(&["--best-effort=network.mode,process"], Field::Seccomp));
    assert!(required(&["--layer-files", "9"], Field::Layer));
    assert!(required(&["-v", "a:/b:cow"], Field::Layer));
    assert!(run(&["--best-effort=memory"]).unwrap_err().message.contains("limits.memory_mb"));
}

#[test]
fn policy_file_is_the_base_and_is_validated_like_options() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("p.json");
    let file = path.to_str().unwrap();
    let text = r#"{"version": 1, "command": {"argv": ["own"]}, "limits": {"memory_mb": 9},
                   "network": {"mode": "allowlist", "allow": ["a.example"], "methods": ["GET"]}}"#;
    std::fs::write(&path, text).unwrap();
    let policy = call_as(&caller(), &["run", "--policy", file]).unwrap().policy;
    assert_eq!((policy.command.argv[0].as_str(), policy.limits.memory_mb), ("own", 9));
    assert_eq!(policy.filesystem.root, Root::Minimal, "no defaults of the command are mixed in");
    let policy = run(&["--policy", file, "--network", "none", "--memory", "10m"]).unwrap();
    assert_eq!((policy.command.argv[0].as_str(), policy.limits.memory_mb), ("prog", 10));
    assert_eq!(policy.network, Network::none());
    let refusal = run(&["--policy", file, "--memory", "0", "--pids", "0"]).unwrap_err();
    assert_eq!(refusal.code, 125);
    for part in ["--memory: $.limits.memory_mb = 0", "--pids: $.limits.processes = 0", "2 errors"] {
        assert!(refusal.message.contains(part), "{part}: {}", refusal.message);
    }
    std::fs::write(&path, r#"{"version": 1, "limits": {"memroy_mb": 1}}"#).unwrap();
    let refusal = run(&["--policy", file]).unwrap_err();
    assert!(refusal.message.contains("$.limits.memroy_mb") && refusal.hint.unwrap().contains("check"));
    assert!(run(&["--policy", "/no/such"]).unwrap_err().message.contains("/no/such"));
}

#[test]
fn refusals_say_what_would_be_accepted() {
    let table: &[(&[&str], &str)] = &[
        (&["--memory", "12x"], "512m"),
        (&["--memory", "512"], "whole number of MiB"),
        (&["--memory", "0"], "--memory: $.limits.memory_mb = 0"),
        (&["--timeout", "soon"], "30s"),
        (&["-v", "a"], "./src:/src"),
        (&["-v", "a:/b", "-v", "c:/b"], "each target once"),
        (&["-v", "a:/proc/x"], "--volume"),
        (&["--env", "NOT_THERE"], "--env NOT_THERE=VALUE"),
        (&["--env", "1x=1"], "variable's name"),
        (&["--syscall-rule", "x"], "ptrace:kill"),
        (&["--syscall-rule", "x:EWHAT"], "errno"),
        (&["--network", "host", "--allow", "a.example"], "allowlist"),
        (&["--network", "host", "--allow-private", "a.example"], "allowlist"),
        (&["--allow-private", "localhost"], "this machine"),
        (&["--network", "allowlist"], "at least one entry"),
        (&["--network", "bridge"], "no network mode"),
        (&["--network", "allow="], "entry is empty"),
        (&["--allow", "@pipy"], "did you mean `@pypi`"),
        (&["--deny-host", "@pypi"], "bundle of hosts"),
        (&["--network", "none", "--deny-host", "a"], "--deny-host: $.network.deny"),
        (&["--allow", "a b"], "write it like api.example.org"),
        (&["--allow", "a", "--deny-host", "a"], "denies all of it"),
        (&["--api", "127.0.0.1:8000"], "http://127.0.0.1:8000/v1"),
        (&["--allow", "a", "--upstream-proxy", "https://proxy:3128"], "speaks TLS"),
        (&["--allow", "a", "--network-limit", "up=7"], "connections_per_host"),
        (&["--allow", "a", "--network-limit", "up_mb=0"], "--network-limit: $.network.limits.up_mb"),
        (&["--audit", "off", "--trace"], "--trace: $.audit.trace"),
        (&["--methods", "GET"], "--methods: $.network.methods"),
        (&["--allow", "a.example", "--methods", "GET, HEAD"], "not a method of HTTP"),
        (&["--hostname", "a b"], "host name"),
        (&["--deny", "/srv"], "working directory that is denied"),
        (&["--policy", "-", "-i"], "both read standard input"),
    ];
    for (arguments, part) in table {
        let refusal = run(arguments).expect_err(&format!("{arguments:?}"));
        assert_eq!(refusal.code, 125, "{arguments:?}");
        assert!(refusal.message.contains(part), "{arguments:?}: {}", refusal.message);
    }
}

#[test]
fn preset_stands_for_its_options_and_those_that_are_typed_win() {
    let call = |arguments: &[&str], program: &[&str]| {
        call_as(&caller(), &[&["run"], arguments, &["--"], program].concat()).unwrap()
    };
    let npm = call(&["--for", "npm"], &["npm", "install"]);
    let hosts: Vec<String> = npm.policy.network.allow.iter().map(|rule| rule.entry.to_string()).collect();
    assert_eq!(hosts, ["registry.npmjs.org:443", "registry.yarnpkg.com:443"]);
    assert!(npm.presets["npm"].contains(&"--allow @npm".to_owned()), "{:?}", npm.presets);
    assert_eq!((npm.policy.limits.processes, npm.policy.command.argv.len()), (4096, 2));
    let home =
        |policy: &Policy| policy.filesystem.mounts.iter().filter(|m| m.target() == "/tmp/home").cloned().collect();
    let homes: Vec<Mount> = home(&npm.policy);
    assert!(matches!(homes[..], [Mount::Tmpfs { size_mb: 2048, exec: true, .. }]), "{homes:?}");
    // What is required: the network and the mounts, as when they are typed; limits are held as far as the host allows.
    assert!(npm.policy.is_required(Field::Network) && !npm.policy.is_required(Field::Processes));
    let typed = call(
        &["--for", "npm", "--for", "pip", "--pids", "7", "--tmpfs", "/tmp/home:size=64m", "-e", "TMPDIR=/tmp"],
        &["true"],
    );
    let homes: Vec<Mount> = home(&typed.policy);
    assert!(matches!(homes[..], [Mount::Tmpfs { size_mb: 64, exec: false, .. }]), "{homes:?}");
    assert_eq!((typed.policy.limits.processes, typed.policy.network.allow.len()), (7, 4));
    assert_eq!(typed.policy.command.variables["TMPDIR"], "/tmp");
    // A mode that is typed holds, and the hosts of the preset go with the mode that they had.
    assert_eq!(call(&["--network", "none", "--for", "cargo"], &["true"]).policy.network, Network::none());
    let mode = |arguments: &[&str]| call(arguments, &["true"]).policy.network.mode;
    assert_eq!(mode(&["--for", "jupyter"]), NetworkMode::Loopback);
    assert_eq!(mode(&["--for", "jupyter", "--network", "none"]), NetworkMode::None);
    assert_eq!(mode(&["--for", "jupyter", "--allow", "a.example"]), NetworkMode::Allowlist);
    assert_eq!(mode(&["--for", "make"]), NetworkMode::None);
    let browser = |program: &[&str]| call(&["--for", "browser"], program).policy.command.argv;
    assert_eq!(browser(&["/usr/bin/chromium", "--headless"]), ["/usr/bin/chromium", "--no-sandbox", "--headless"]);
    assert_eq!(browser(&["chromium", "--no-sandbox"]), ["chromium", "--no-sandbox"]);
    assert_eq!(browser(&["sh", "-c", "chromium"]), ["sh", "-c", "chromium"]);
}

#[test]
fn preset_and_policy_file_contradict_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.json");
    std::fs::write(&file, r#"{"version": 1, "command": {"argv": ["true"]}}"#).unwrap();
    let refusal = run(&["--policy", file.to_str().unwrap(), "--for", "npm"]).unwrap_err();
    assert!(refusal.code == 125 && refusal.message.contains("--for npm and "), "{}", refusal.message);
    let refusal = run(&["--for", "node"]).unwrap_err();
    assert_eq!(refusal.hint.as_deref(), Some("--for npm"));
}

#[test]
fn misspelt_bundle_is_corrected_in_the_option_that_had_it() {
    for (arguments, hint) in [
        (&["--network", "allow=a.example,@pipy,@npm"], "--network allow=a.example,@pypi,@npm"),
        (&["--network", "@pypi"], "--allow @pypi"),
        (&["--allow", "@githb"], "--allow @github"),
        (&["--allow", "@pypi,@npm"], "--allow @pypi --allow @npm"),
    ] {
        let refusal = run(arguments).expect_err(&format!("{arguments:?}"));
        assert_eq!((refusal.code, refusal.hint.as_deref()), (125, Some(hint)), "{arguments:?}");
    }
}

#[test]
fn denied_working_directory_is_refused_without_workdir() {
    let caller = Caller { cwd: "/home/u/.ssh/deep".into(), ..caller() };
    let refusal = call_as(&caller, &["run", "--", "ls"]).unwrap_err();
    assert!(refusal.message.contains("working directory that is denied"), "{}", refusal.message);
    assert!(refusal.hint.unwrap().contains("--workdir"));
    let policy = call_as(&caller, &["run", "-w", "/", "--", "ls"]).unwrap().policy;
    assert!(policy.filesystem.mounts.is_empty());
}

#[test]
fn eval_needs_code_and_takes_it_once() {
    let eval = |arguments: &[&str]| call_as(&caller(), &["eval"].iter().chain(arguments).copied().collect::<Vec<_>>());
    let refusal = eval(&["shell"]).unwrap_err();
    assert!(refusal.message.contains("no code") && refusal.hint.unwrap().contains("--file FILE"));
    assert!(eval(&["shell", "-i", "-"]).unwrap_err().message.contains("both read standard input"));
    let policy = eval(&["shell", "echo", "--memory", "64m", "--", "a", "-b"]).unwrap().policy;
    assert_eq!(policy.command.argv[1..], ["-c", "echo", "shell", "a", "-b"]);
    assert_eq!((policy.filesystem.root, policy.command.cwd), (Root::Minimal, None));
    let call = eval(&["shell", "-it"]).unwrap();
    assert!(call.tty && call.policy.command.argv.len() == 1);
    assert_eq!(call.policy.command.variables["TERM"], "xterm-x");
}

#[test]
fn short_help_fits_a_screen_and_long_help_has_every_option() {
    let mut command = cli_command();
    let top = command.render_long_help().to_string();
    assert!(top.lines().count() <= 40, "{top}");
    for name in ["run", "eval"] {
        let sub = command.find_subcommand_mut(name).unwrap();
        let short = sub.render_help().to_string();
        assert!(short.lines().count() <= 40, "{} lines:\n{short}", short.lines().count());
        assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
        let long = sub.render_long_help().to_string();
        for option in POLICY_OPTIONS {
            assert!(long.contains(&format!("--{}", option.long)), "{}", option.long);
            let value = match option.takes {
                Takes::Choice(_, values) => values,
                _ => &[],
            };
            let listed = |v: &&&str| option.help.contains(**v) || option.more.contains(&format!("`{v}`"));
            assert!(value.iter().filter(listed).count() == value.len(), "{} does not list its values", option.long);
        }
        assert!(long.contains("Defaults:") && long.contains("512m"));
    }
}

#[test]
fn image_shows_working_directory_unless_workdir_is_elsewhere() {
    let mounts = |options: &[&str]| {
        let all = [&["run", "--backend", "docker", "--image", "alpine"], options, &["--", "true"]].concat();
        call_as(&caller(), &all).unwrap().policy.filesystem.mounts.len()
    };
    assert_eq!((mounts(&[]), mounts(&["-w", "/"]), mounts(&["-w", "/", "-v", "/usr:/data"])), (1, 0, 1));
}

#[test]
fn container_shows_cwd_unless_workdir_is_outside_of_it() {
    let mounts = |backend: &str, options: &[&str]| {
        let all = [&["run", "--backend", backend, "--root", "minimal"], options, &["--", "true"]].concat();
        call_as(&caller(), &all).unwrap().policy.filesystem.mounts.len()
    };
    let here = format!("{}/below", caller().cwd);
    for (backend, elsewhere) in [("oci:runsc", 0), ("docker", 0), ("jail", 1)] {
        assert_eq!((mounts(backend, &[]), mounts(backend, &["-w", &here])), (1, 1), "{backend}");
        assert_eq!(mounts(backend, &["-w", "/"]), elsewhere, "{backend}");
    }
}

#[test]
fn everything_from_the_program_on_is_the_programs_own() {
    let argv = |arguments: &[&str]| {
        let all: Vec<&str> = ["run"].iter().chain(arguments).copied().collect();
        call_as(&caller(), &all).unwrap().policy.command.argv
    };
    assert_eq!(argv(&["ls", "-l", "--json", "--", "-x"]), ["ls", "-l", "--json", "--", "-x"]);
    assert_eq!(argv(&["--trace", "--", "ls", "--memory", "1g"]), ["ls", "--memory", "1g"]);
    assert_eq!(argv(&["--", "-odd-name", "a"]), ["-odd-name", "a"]);
    let wrong = cli_command().try_get_matches_from(["cofferdam", "run", "--memry", "1g", "ls"]).unwrap_err();
    assert!(wrong.to_string().contains("--memory"), "{wrong}");
    // Options of ours right behind the program, too.
    for words in
        [&["perl", "-e", "1"][..], &["ls", "-v"], &["top", "-h"], &["git", "--version"], &["x", "-q", "--", "-w"]]
    {
        let all: Vec<&str> = ["run", "-q"].iter().chain(words).copied().collect();
        assert_eq!(call_as(&caller(), &all).unwrap().policy.command.argv, words, "{words:?}");
    }
    assert!(build(Extent::All).try_get_matches_from(["cofferdam", "run", "--no-such", "x"]).is_err());
}
