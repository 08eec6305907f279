//! Environments from end to end, without running any: definitions, their precedence, and the policy of each.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use cofferdam_config::environments::nix::{Building, NixBuilder};
use cofferdam_config::environments::{
    Builders, CodeInput, Environment, EnvironmentKind, EnvironmentLookup, EnvironmentSpec, Environments, Overrides,
    Rank, StdinMode, Surroundings, WORKSPACE, build_environment, parse, spec,
};
use cofferdam_policy::{Access, BackendName, Field, Mount, NetworkMode, Policy, Root, Stdin};
use serde_json::{Value, json};

/// A home and a system directory of the test's own.
struct Fixture {
    directory: tempfile::TempDir,
    around: Surroundings,
}

impl Fixture {
    fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(directory.path()).unwrap();
        let home = real.join("home").to_str().unwrap().to_owned();
        let around = Surroundings {
            variables: BTreeMap::new(),
            cwd: real.to_str().unwrap().to_owned(),
            homes: vec![home],
            system: real.join("etc"),
        };
        Fixture { directory, around }
    }

    fn path(&self, path: &str) -> PathBuf {
        std::fs::canonicalize(self.directory.path()).unwrap().join(path)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// An artifact of that name in this directory.
    fn artifact(&self, directory: &str, name: &str) -> PathBuf {
        let run = self.write(&format!("{directory}/bin/run"), "#!/bin/sh\nexec sh -s\n");
        std::fs::set_permissions(run, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(r#"{{"name": "{name}", "backend": "jail", "timeout_seconds": 11, "memory_mb": 123}}"#);
        self.write(&format!("{directory}/metadata.json"), &text);
        self.path(directory)
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.around.variables.insert(name.into(), value.into());
    }

    fn load(&self) -> Environments {
        Environments::load(&self.around, None)
    }
}

#[track_caller]
fn find<'e>(all: &'e Environments, name: &str) -> &'e Environment {
    match all.find(name) {
        EnvironmentLookup::Environment(found) => found,
        EnvironmentLookup::Unknown => panic!("no {name}"),
    }
}

fn reported(text: &str) -> Vec<String> {
    let parsed = parse(text, Path::new("/c/config.toml"), Some("/home/u"));
    let broken = parsed.definitions.into_iter().filter_map(|one| one.what.err()).flatten();
    parsed.problems.into_iter().chain(broken).map(|problem| problem.to_string()).collect()
}

const USER: &str = "home/.config/cofferdam/environments/x";
const THEIRS: &str = "home/.config/nix-sandbox-mcp/sandboxes/x";
const SYSTEM: &str = "etc/cofferdam/environments/x";
const THEIR_SYSTEM: &str = "etc/nix-sandbox-mcp/sandboxes/x";

#[test]
fn precedence_is_the_documented_order() {
    let mut made = Fixture::new();
    // In ascending precedence: each new definition takes the name over.
    let bundle = made.artifact("bundle", "x").join("bin/run");
    made.set("NIX_SANDBOX_METADATA", json!({"environments": {"x": {"exec": bundle}}}).to_string());
    assert_eq!(find(&made.load(), "x").rank, Rank::Bundled);
    for (index, directory) in [(3, THEIR_SYSTEM), (2, SYSTEM), (1, THEIRS), (0, USER)] {
        let at = made.artifact(directory, "x");
        let all = made.load();
        assert_eq!((find(&all, "x").rank, &find(&all, "x").place), (Rank::Registry(index), &at.display().to_string()));
    }
    made.set("NIX_SANDBOX_ENVS", "github:o/r#other, github:o/r#x");
    assert_eq!(find(&made.load(), "x").rank, Rank::References);
    assert_eq!(find(&made.load(), "other").kind, EnvironmentKind::Reference("github:o/r#other".into()));
    let file = made.write("home/.config/cofferdam/config.toml", "[environments.x]\npreset = \"node\"\n");
    let all = made.load();
    let first = find(&all, "x");
    assert_eq!((first.rank, &first.kind), (Rank::Configuration, &EnvironmentKind::Preset("node".into())));
    assert_eq!(first.place, format!("{}:1", file.display()));
    assert_eq!(all.configuration.as_deref(), Some(file.as_path()));
    let ranks: Vec<Rank> = all.all().iter().filter(|one| one.name == "x").map(|one| one.rank).collect();
    let registries = (0..4).map(Rank::Registry);
    let expected: Vec<Rank> =
        [Rank::Configuration, Rank::References].into_iter().chain(registries).chain([Rank::Bundled]).collect();
    assert_eq!(ranks, expected);
    assert_eq!(all.hidden_by(&all.all().iter().rfind(|one| one.name == "x").unwrap().clone()), Some(first));
    let names: Vec<&str> = all.in_force().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["node", "other", "python", "shell", "x"]);
    // A path on the command line needs no definition.
    let at = made.path(USER);
    let named = Environments::at_path(at.to_str().unwrap(), &made.around);
    assert_eq!((named.rank, named.name.as_str()), (Rank::CommandLine, "x"));
}

#[test]
fn presets_can_be_redefined_and_invalid_ones_are_kept() {
    let made = Fixture::new();
    assert!(made.around.is_plain("python") && !made.around.is_plain("x"));
    made.write("home/.config/cofferdam/environments/python/metadata.json", "{");
    assert!(!made.around.is_plain("python") && made.around.is_plain("shell"));
    let all = made.load();
    assert!(all.problems.is_empty(), "others work: {:?}", all.problems);
    let python = find(&all, "python");
    let reason = spec(python, None).unwrap_err();
    assert!(
        reason.contains("metadata.json: not readable as JSON") && reason.contains("bin/run: is not there"),
        "{reason}"
    );
    assert!(spec(find(&all, "shell"), None).is_ok());
    made.write("etc/cofferdam/config.toml", "[environments.shell]\npreset = \"bash\"\n");
    assert!(!made.around.is_plain("shell") && !made.around.is_plain("node"));
    let all = made.load();
    assert!(spec(find(&all, "shell"), None).unwrap_err().contains("config.toml:2: environments.shell.preset"));
    assert_eq!(find(&all, "node").rank, Rank::Preset);
}

#[test]
fn own_variables_override_those_of_other_programs() {
    let mut made = Fixture::new();
    let theirs = made.write("theirs.toml", "[environments.theirs]\npreset = \"node\"\n");
    let ours = made.write("ours.toml", "[environments.ours]\npreset = \"node\"\n[project]\npath = \"p\"\n");
    made.artifact("d1/a", "a");
    made.artifact("d2/b", "b");
    std::fs::create_dir(made.path("p")).unwrap();
    std::fs::create_dir(made.path("q")).unwrap();
    made.set("NIX_SANDBOX_CONFIG", theirs.to_str().unwrap());
    made.set("NIX_SANDBOX_DIR", "d1");
    made.set("NIX_SANDBOX_ENVS", "x:y#one");
    made.set("SESSION_IDLE_TIMEOUT", "5");
    made.set("SESSION_MAX_LIFETIME", "6");
    made.set("PROJECT_DIR", "q");
    made.set("COFFERDAM_CONFIG", "");
    let all = made.load();
    assert!(
        matches!(all.find("theirs"), EnvironmentLookup::Environment(_))
            && matches!(all.find("one"), EnvironmentLookup::Environment(_))
    );
    assert!(matches!(all.find("a"), EnvironmentLookup::Environment(_)));
    assert_eq!((all.sessions.idle_timeout_seconds, all.sessions.max_lifetime_seconds), (5, 6));
    let project = all.project.unwrap();
    assert_eq!((project.path.as_str(), project.mount_point.as_str()), (made.path("q").to_str().unwrap(), "/project"));
    made.set("COFFERDAM_CONFIG", ours.to_str().unwrap());
    made.set("COFFERDAM_DIR", "d2");
    made.set("COFFERDAM_ENVS", "x:y#two");
    made.set("COFFERDAM_SESSION_IDLE_TIMEOUT", "7");
    made.set("COFFERDAM_PROJECT_DIR", "p");
    made.set("PROJECT_MOUNT", "/srv/p");
    let all = made.load();
    for (name, there) in [("ours", true), ("theirs", false), ("b", true), ("a", false), ("two", true), ("one", false)] {
        assert_eq!(matches!(all.find(name), EnvironmentLookup::Environment(_)), there, "{name}");
    }
    assert_eq!((all.sessions.idle_timeout_seconds, all.sessions.max_lifetime_seconds), (7, 6));
    let project = all.project.unwrap();
    assert_eq!((project.path.as_str(), project.mount_point.as_str()), (made.path("p").to_str().unwrap(), "/srv/p"));
    assert_eq!(Environments::load(&made.around, theirs.to_str()).configuration, Some(theirs));
    made.set("COFFERDAM_PROJECT_DIR", "/../");
    let reported: Vec<String> = made.load().problems.iter().map(ToString::to_string).collect();
    assert!(reported.len() == 1 && reported[0].contains("is the whole host"), "{reported:?}");
}

#[test]
fn duplicate_names_in_one_source_name_both_positions() {
    let text = "[environments.a]\npreset = \"node\"\n\n[environments.a]\npreset = \"shell\"\n";
    let reported = reported(text);
    assert!(
        reported
            .iter()
            .any(|line| line == "/c/config.toml:4: `[environments.a]` is defined twice: here and at /c/config.toml:1"),
        "{reported:?}"
    );
    let mut made = Fixture::new();
    made.set("COFFERDAM_ENVS", "github:o/r#x,github:other/r#packages.x86_64-linux.x");
    let all = made.load();
    let reason = spec(find(&all, "x"), None).unwrap_err();
    let both = "COFFERDAM_ENVS, entry 2: x is defined twice: by `github:other/r#packages.x86_64-linux.x` here, and by \
                `github:o/r#x` in entry 1";
    assert_eq!(reason, both);
    made.set("COFFERDAM_METADATA", r#"{"environments": {"a": {"exec": "/x"}, "a": {"exec": "/y"}}}"#);
    assert!(made.load().problems[0].problem.contains("the key `a` stands there twice"));
}

#[test]
fn all_mistakes_of_a_file_are_reported_with_line_and_fix() {
    let text = r#"
[environments.two]
preset = "python"
sandbox = "/x"

[environments.none]
timeout_seconds = 0
memory_mb = "much"
network = "open"
backend = "lxc"
colour = "red"

[environments."a b"]
preset = "ruby"
interpreter = "python3 -c"

[environments.quoted]
flake = "x:y"
interpreter = "sh -c 'a'"

[environments.flag]
sandbox = "--impure:x"

[environments.packs]
preset = "python"
packages = ["six", "-r /etc/passwd", 3]

[environments.both]
preset = "python"
venv = ".venv"
packages = ["six"]
interpreter = "python3 -c"

[environments.js]
preset = "node"
packages = ["six"]

[environments]
flat = 1

[project]
mount = "/p"
inherit_env = "PATH"

[session]
idle_timeout_seconds = -1
max_sessions = 3
max_sessions_per_client = 4
"#;
    let reported = reported(text).join("\n");
    let one = "accepted: exactly one of preset, sandbox, flake, profile, image";
    for part in [
        format!("/c/config.toml:4: environments.two: has preset and sandbox; {one}"),
        format!("/c/config.toml:6: environments.none: says nothing to run code with; {one}"),
        "/c/config.toml:7: environments.none.timeout_seconds: `0` is out of range; accepted: 1 to ".into(),
        "/c/config.toml:8: environments.none.memory_mb: is a string; accepted: a whole number, 1 to ".into(),
        "/c/config.toml:9: environments.none.network: `open` is not known; accepted: none, loopback, host; \
         a list of hosts is `allow`, as in allow = [\"@pypi\", \"api.example.org:443\"]"
            .into(),
        "/c/config.toml:10: environments.none.backend: `lxc` is not known; accepted: auto, jail".into(),
        "/c/config.toml:11: environments.none.colour: is not known; accepted: preset".into(),
        "/c/config.toml:13: environments.a b: `a b` is no name; accepted: 1 to 64 letters".into(),
        "/c/config.toml:14: environments.a b.preset: `ruby` is not known; accepted: python, shell, node".into(),
        "/c/config.toml:19: environments.quoted.interpreter: has quotes".into(),
        "/c/config.toml:22: environments.flag.sandbox: `--impure:x` is no reference".into(),
        "/c/config.toml:26: environments.packs.packages: `-r /etc/passwd` names no package; accepted: a list".into(),
        "/c/config.toml:26: environments.packs.packages: is an integer; accepted: a list".into(),
        "/c/config.toml:30: environments.both.packages: and `venv` would both say which packages there are".into(),
        "/c/config.toml:30: environments.both.venv: and `interpreter` would both say what runs the code".into(),
        "/c/config.toml:36: environments.js.packages: is of no use without a Python of its own".into(),
        "/c/config.toml:39: environments.flat: is an integer; accepted: a table".into(),
        "/c/config.toml:42: project.mount: is not known".into(),
        "/c/config.toml:43: project.inherit_env: is no list of names".into(),
        "/c/config.toml:46: session.idle_timeout_seconds: `-1` is out of range".into(),
        "/c/config.toml:48: session.max_sessions_per_client: `4` is more than all clients together may have".into(),
    ] {
        assert!(reported.contains(&part), "{part}\nin:\n{reported}");
    }
    let made = Fixture::new();
    made.write(
        "home/.config/cofferdam/config.toml",
        "[environments.a\npreset = 1\n[environments.b]\npreset = \"node\"\n",
    );
    let all = made.load();
    assert!(!all.problems.is_empty() && all.problems[0].place.ends_with("config.toml:1"), "{:?}", all.problems);
}

#[test]
fn interpreter_of_a_preset_takes_the_place_of_the_one_found() {
    let made = Fixture::new();
    made.write(
        "home/.config/cofferdam/config.toml",
        "[environments.quiet]\npreset = \"python\"\ninterpreter = \"python3 -W ignore -c\"\n\
         [environments.plain]\npreset = \"python\"\n\
         [environments.built]\nsandbox = \"./x\"\ninterpreter = \"python3 -c\"\n",
    );
    let all = made.load();
    let input = |name: &str| spec(find(&all, name), None).unwrap().code_input;
    let argv = ["python3", "-W", "ignore", "-c"].map(String::from).to_vec();
    assert_eq!(input("quiet"), CodeInput::Words { argv, mode: StdinMode::Arg });
    assert_eq!(input("plain"), CodeInput::Preset("python".into()));
    let reason = find(&all, "built").unavailable().unwrap();
    assert!(reason.contains("environments.built.interpreter: is of no use with `sandbox`"), "{reason}");
}

#[test]
fn definition_names_hosts_and_memory_as_options_do() {
    let made = Fixture::new();
    made.write(
        "home/.config/cofferdam/config.toml",
        "[environments.a]\npreset = \"python\"\nallow = [\"@crates\", \"a.example:22\"]\nmemory = \"1g\"\n\
         allow_private = [\"db.example:5432\"]\n\
         [environments.b]\npreset = \"python\"\nallow_private = [\"db.example\"]\n",
    );
    let all = made.load();
    assert!(all.problems.is_empty(), "{:?}", all.problems);
    let (policy, _) = applied_to_base(&spec(find(&all, "a"), None).unwrap());
    let hosts: Vec<String> = policy.network.allow.iter().map(|rule| rule.entry.to_string()).collect();
    assert_eq!(hosts, ["index.crates.io:443", "static.crates.io:443", "a.example:22", "db.example:5432"]);
    let private: Vec<bool> = policy.network.allow.iter().map(|rule| rule.private).collect();
    assert_eq!(private, [false, false, false, true]);
    let (alone, _) = applied_to_base(&spec(find(&all, "b"), None).unwrap());
    assert_eq!((alone.network.mode, alone.network.allow.len()), (NetworkMode::Allowlist, 1));
    assert_eq!((policy.network.mode, policy.limits.memory_mb), (NetworkMode::Allowlist, 1024));
    assert!(policy.is_required(Field::Network) && policy.is_required(Field::Memory));
    let reported = reported(
        r#"
[environments.a]
preset = "python"
allow = ["@pipy", "https://x.org", 7]
network = "host"
memory = "1.5"
[environments.b]
preset = "python"
allow = []
memory = "1g"
memory_mb = 5
allo = ["@pypi"]
[environments.c]
preset = "python"
allow_private = ["*.example.org", "localhost", "10.1.2.3", "metadata.google.internal"]
packages = ["six"]
index = "https://user:secret@pypi.example/simple"
[environments.d]
preset = "python"
index = "ftp://pypi.example"
[environments.e]
preset = "python"
packages = ["six"]
index = "http://127.0.0.1:3141/root"
"#,
    )
    .join("\n");
    for part in [
        ":4: environments.a.allow: `@pipy`: no bundle of hosts has this name; did you mean `@pypi`?; accepted: a list",
        ":4: environments.a.allow: `https://x.org`: a URL: only its host and port belong here; accepted: a list",
        ":4: environments.a.allow: is an integer; accepted: a list",
        ":5: environments.a.network: says otherwise than `allow`",
        ":6: environments.a.memory: `1.5` is no size",
        ":9: environments.b.allow: is no list of hosts",
        ":10: environments.b.memory: says the same as `memory_mb`",
        ":12: environments.b.allo: is not known; did you mean `allow`?; accepted: preset",
        ":15: environments.c.allow_private: `*.example.org`: the owner of the suffix could lead any name to any private",
        ":15: environments.c.allow_private: `localhost`: inside, `localhost` is the sandbox itself",
        ":15: environments.c.allow_private: `10.1.2.3`: an address leads nowhere else; one name",
        ":15: environments.c.allow_private: `metadata.google.internal`: a cloud's metadata service",
        ":17: environments.c.index: a password there could be read by the packages",
        ":20: environments.d.index: is of no use without `packages`",
        ":20: environments.d.index: only `http://` and `https://` are known; accepted: the URL",
        ":24: environments.e.index: 127.0.0.1 is loopback",
    ] {
        assert!(reported.contains(part), "{part}\nin:\n{reported}");
    }
    assert!(!reported.contains("secret"), "{reported}");
}

#[test]
fn files_writable_by_others_are_not_used() {
    let made = Fixture::new();
    let file = made.write("home/.config/cofferdam/config.toml", "[environments.a]\npreset = \"node\"\n");
    let at = made.artifact(SYSTEM, "x");
    for (path, mode) in [(file.as_path(), 0o666), (at.parent().unwrap(), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let all = made.load();
    assert!(all.problems[0].problem.contains("can be changed by others"));
    assert!(all.warnings.iter().any(|warning| warning.contains("is left out: it can be changed by others")));
    assert_eq!((all.find("a"), all.find("x")), (EnvironmentLookup::Unknown, EnvironmentLookup::Unknown));
    for (path, mode) in [(file.as_path(), 0o644), (at.parent().unwrap(), 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let all = made.load();
    assert!(all.problems.is_empty() && all.warnings.is_empty());
    assert!(
        matches!(all.find("a"), EnvironmentLookup::Environment(_))
            && matches!(all.find("x"), EnvironmentLookup::Environment(_))
    );
}

/// The groups of the default policy that applying an environment changes, as JSON.
fn applied_to_base(spec: &EnvironmentSpec) -> (Policy, Value) {
    let mut policy = Policy::base();
    spec.apply(&mut policy, None, |_| None);
    let (now, base) = (serde_json::to_value(&policy).unwrap(), serde_json::to_value(Policy::base()).unwrap());
    let mut changed = serde_json::Map::new();
    for (key, value) in now.as_object().unwrap() {
        let Value::Object(members) = value else {
            if base[key] != *value {
                changed.insert(key.clone(), value.clone());
            }
            continue;
        };
        for (name, value) in members.iter().filter(|(name, value)| base[key][name] != **value) {
            changed.insert(format!("{key}.{name}"), value.clone());
        }
    }
    (policy, Value::Object(changed))
}

#[test]
fn artifact_has_its_directory_a_workspace_and_its_limits() {
    let made = Fixture::new();
    let at = made.artifact("a", "a");
    let at = at.to_str().unwrap();
    made.write("home/.config/cofferdam/config.toml", &format!("[environments.a]\nsandbox = \"{at}\"\n"));
    let all = made.load();
    let spec = spec(find(&all, "a"), None).unwrap();
    let (mut policy, changed) = applied_to_base(&spec);
    let expected = json!({
        "command.cwd": "/workspace",
        "command.variables": {
            "COFFERDAM_ENVIRONMENT": "a", "HOME": "/workspace", "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin", "TERM": "dumb", "TMPDIR": "/workspace", "USER": "sandbox",
        },
        "filesystem.mounts": [
            {"type": "bind", "source": at, "target": at, "access": "read_only", "exec": true, "optional": false},
            {"type": "tmpfs", "target": "/workspace", "size_mb": 256, "exec": false},
        ],
        "limits.memory_mb": 123,
        "limits.wall_ms": 11_000,
    });
    assert_eq!(changed, expected);
    assert!(!policy.is_required(Field::Memory), "nobody named it");
    spec.pass(&mut policy, Some("echo".into()), &[]).unwrap();
    assert_eq!(policy.command.argv, [format!("{at}/bin/run")]);
    assert_eq!(policy.command.stdin, Stdin::Text("echo".into()));
    assert_eq!(policy.validate(), Ok(()));
    assert!(spec.pass(&mut Policy::base(), Some("x".into()), &["argument".into()]).is_err());
}

#[test]
fn settings_of_a_definition_are_required() {
    let made = Fixture::new();
    let text = "[environments.a]\npreset = \"python\"\ntimeout_seconds = 300\nmemory_mb = 64\nnetwork = \"loopback\"\n\
                description = \"d\"\nbackend = \"jail\"\n[environments.vm]\npreset = \"python\"\nbackend = \"microvm\"\n\
                ";
    made.write("home/.config/cofferdam/config.toml", text);
    let all = made.load();
    let of = spec(find(&all, "a"), None).unwrap();
    let (policy, changed) = applied_to_base(&of);
    assert_eq!(of.code_input, CodeInput::Preset("python".into()));
    assert_eq!(changed["limits.wall_ms"], 300_000);
    assert_eq!((policy.limits.memory_mb, policy.limits.cpu_seconds), (64, 600));
    assert_eq!(
        (policy.network.mode, &changed["backend"], &changed["description"]),
        (NetworkMode::Loopback, &json!("jail"), &json!("d"))
    );
    assert!(policy.is_required(Field::Memory) && policy.is_required(Field::WallTime));
    assert!(!policy.is_required(Field::CpuTime));
    assert!(spec(find(&all, "vm"), None).unwrap_err().contains("no backend runs virtual machines"));
}

#[test]
fn an_image_is_the_root_and_its_own_interpreter_runs_the_code() {
    let made = Fixture::new();
    made.write("home/.config/cofferdam/there/bin/sh", "");
    made.write("home/.config/cofferdam/there.tar", "");
    let text = "[environments.named]\nimage = \"debian:12\"\nbackend = \"docker\"\n\
                [environments.python]\nimage = \"python:3\"\ninterpreter = \"python3 -c\"\n\
                [environments.tar]\nimage = \"./there.tar\"\nbackend = \"oci:crun\"\n\
                [environments.dir]\nimage = \"./there\"\nbackend = \"jail\"\n\
                [environments.home]\nimage = \"~/.config/cofferdam/there\"\nbackend = \"podman\"\n\
                [environments.none]\nimage = \"./none\"\n\
                [environments.jailed]\nimage = \"debian:12\"\nbackend = \"jail\"\n\
                [environments.jailed-tar]\nimage = \"./there.tar\"\nbackend = \"nsjail\"\n\
                [environments.vm]\nimage = \"debian:12\"\nbackend = \"microvm\"\n";
    made.write("home/.config/cofferdam/config.toml", text);
    let all = made.load();
    let beside = |name: &str| made.path("home/.config/cofferdam").join(name).display().to_string();
    for (name, root, backend) in [
        ("named", Root::Image("debian:12".into()), BackendName::Docker),
        ("python", Root::Image("python:3".into()), BackendName::Auto),
        ("tar", Root::Image(beside("there.tar")), BackendName::OciCrun),
        ("dir", Root::Directory(beside("there")), BackendName::Jail),
        ("home", Root::Directory(beside("there")), BackendName::Podman),
    ] {
        let of = spec(find(&all, name), None).unwrap();
        let (mut policy, _) = applied_to_base(&of);
        assert_eq!((&policy.filesystem.root, policy.backend), (&root, backend), "{name}");
        assert!(policy.is_required(Field::Root), "{name}");
        match name {
            "python" => {
                of.pass(&mut policy, Some("print(1)".into()), &[]).unwrap();
                assert_eq!(policy.command.argv, ["python3", "-c", "print(1)"]);
            }
            _ => assert_eq!(of.code_input, CodeInput::Image("shell".into()), "{name}"),
        }
    }
    for (name, reported) in [
        ("none", "image: `"),
        ("jailed", "`jail` makes no containers"),
        ("jailed-tar", "`nsjail` makes no containers"),
        ("vm", "no backend runs virtual machines"),
    ] {
        let refused = spec(find(&all, name), None).unwrap_err();
        assert!(refused.contains(reported), "{name}: {refused}");
        assert_eq!(refused.contains("accepted: "), name != "vm", "{name}: {refused}");
    }
}

#[test]
fn flake_has_its_programs_and_its_interpreter() {
    let made = Fixture::new();
    let text = "[environments.p]\nflake = \"github:o/r#p\"\ninterpreter = \"python3 -I -c\"\n\
                [environments.b]\nflake = \"../b#x\"\n";
    made.write("home/.config/cofferdam/config.toml", text);
    let all = made.load();
    assert!(spec(find(&all, "p"), None).unwrap_err().contains("was not built"));
    let of = spec(find(&all, "p"), Some(Path::new("/nix/store/h-p"))).unwrap();
    let (mut policy, _) = applied_to_base(&of);
    assert_eq!(of.binds, ["/nix/store"]);
    assert_eq!(policy.command.variables["PATH"], "/nix/store/h-p/bin:/usr/local/bin:/usr/bin:/bin");
    of.pass(&mut policy, Some("print(1)".into()), &["a".into()]).unwrap();
    assert_eq!(policy.command.argv, ["python3", "-I", "-c", "print(1)", "a"]);
    assert_eq!(policy.command.cwd.as_deref(), Some(WORKSPACE));
    let long = "#".repeat(200_000);
    assert!(of.pass(&mut Policy::base(), Some(long.clone()), &[]).unwrap_err().contains("hint: "));
    let of = spec(find(&all, "b"), Some(Path::new("/srv/b"))).unwrap();
    assert_eq!(of.binds, ["/srv/b"]);
    let (mut policy, _) = applied_to_base(&of);
    of.pass(&mut policy, Some(long.clone()), &[]).unwrap();
    assert_eq!(
        (policy.command.argv.as_slice(), policy.command.stdin),
        (&["bash".to_owned(), "-s".into()][..], Stdin::Text(long))
    );
    let beside = made.path("home/.config/cofferdam").join("../b#x");
    let EnvironmentKind::Flake { reference, .. } = &find(&all, "b").kind else { panic!() };
    assert_eq!(Path::new(reference), beside);
}

#[test]
fn the_example_at_the_root_shows_every_form() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config.example.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let parsed = parse(&text, &path, Some("/home/u"));
    assert_eq!(parsed.problems, []);
    let mistakes: Vec<_> = parsed.definitions.iter().filter_map(|one| one.what.as_ref().err()).collect();
    assert!(mistakes.is_empty(), "{mistakes:?}");
    for key in [
        "preset",
        "sandbox = \"/",
        "sandbox = \"github:",
        "flake",
        "interpreter",
        "profile",
        "image",
        "timeout_seconds",
        "memory_mb",
        "network",
        "description",
        "backend",
        "nesting = true",
        "inherit_env",
        "mount_point",
        "idle_timeout_seconds",
        "max_lifetime_seconds",
        "max_sessions = ",
        "max_sessions_per_client",
    ] {
        assert!(text.contains(key), "{key} is not shown");
    }
    assert!(parsed.project.is_some() && parsed.session.idle_timeout_seconds.is_some());
}

#[test]
fn other_nix_store_is_accepted_and_a_home_is_not() {
    let mut made = Fixture::new();
    let store = made.path("nix/store");
    made.write("nix/store/h-run/bin/run", "#!/bin/sh\nexec sh -s\n");
    let run = made.path("nix/store/h-run/bin/run");
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).unwrap();
    made.write("a/metadata.json", r#"{"name": "a"}"#);
    std::fs::create_dir_all(made.path("a/bin")).unwrap();
    std::os::unix::fs::symlink(&run, made.path("a/bin/run")).unwrap();
    let directory = made.path("a").to_str().unwrap().to_owned();
    let refused = Environments::at_path(&directory, &made.around).unavailable().unwrap();
    assert!(refused.contains("out of the artifact"), "{refused}");
    let (whole, home) = (made.path("").to_str().unwrap().to_owned(), made.around.homes[0].clone());
    for other in ["", "/", "/nix", "nix/store", "/nix/../nix/store", &home, &whole] {
        made.around.variables.insert("NIX_STORE_DIR".into(), other.into());
        assert_eq!(made.around.store(), Path::new("/nix/store"), "{other}");
    }
    made.around.variables.insert("NIX_STORE_DIR".into(), store.to_str().unwrap().into());
    let found = Environments::at_path(&directory, &made.around);
    assert_eq!(found.unavailable(), None);
    let found = spec(&found, None).unwrap();
    assert_eq!(found.binds, [store.to_str().unwrap(), &directory]);
    let mut policy = Policy::base();
    found.apply(&mut policy, None, |_| None);
    assert_eq!(policy.command.variables["COFFERDAM_ENVIRONMENT"], "a");
}

#[test]
fn the_projects_place_is_covered_by_no_other_mount() {
    let mut made = Fixture::new();
    let at = made.artifact("a", "a").to_str().unwrap().to_owned();
    std::fs::create_dir_all(made.path("p")).unwrap();
    let source = std::fs::canonicalize(made.path("p")).unwrap().to_str().unwrap().to_owned();
    made.set("PROJECT_DIR", &source);
    made.write("home/.config/cofferdam/config.toml", &format!("[environments.a]\nsandbox = \"{at}\"\n"));
    let applied = |made: &Fixture, mut policy: Policy| {
        let all = made.load();
        spec(find(&all, "a"), None).unwrap().apply(&mut policy, all.project.as_ref(), |_| None);
        policy.command.argv = vec!["x".into()];
        policy
    };
    // The artifact's own tmpfs has it.
    made.set("PROJECT_MOUNT", WORKSPACE);
    let refused = applied(&made, Policy::base()).validate().unwrap_err().to_string();
    assert!(
        refused.contains("\"/workspace\": ")
            && refused.contains(&format!("(of \"{source}\")"))
            && refused.contains("(a tmpfs)"),
        "{refused}"
    );
    // One of the policy that the definition starts from has it, such as a profile's.
    made.set("PROJECT_MOUNT", "/srv/p");
    let with_mount = |target: &str| {
        let mut policy = Policy::base();
        policy.filesystem.mounts.push(Mount::Tmpfs { target: target.into(), size_mb: 1, exec: false });
        policy
    };
    assert!(applied(&made, with_mount("/srv/p")).validate().is_err());
    // Beside it, around it and inside it both are seen.
    let targets = |policy: &Policy| -> Vec<String> {
        policy
            .filesystem
            .mounts
            .iter()
            .map(|mount| mount.target().to_owned())
            .filter(|t| t.starts_with("/srv"))
            .collect()
    };
    for (other, expected) in
        [("/srv/q", ["/srv/q", "/srv/p"]), ("/srv", ["/srv", "/srv/p"]), ("/srv/p/in", ["/srv/p", "/srv/p/in"])]
    {
        let policy = applied(&made, with_mount(other));
        assert_eq!(policy.validate(), Ok(()), "{other}");
        assert_eq!(targets(&policy), expected);
    }
    // A profile that shows the project there itself may.
    let mut own = Policy::base();
    let (source, target) = (source, "/srv/p".to_owned());
    own.filesystem.mounts.push(Mount::Bind { source, target, access: Access::ReadOnly, exec: true, optional: false });
    let policy = applied(&made, own);
    assert_eq!(policy.validate(), Ok(()));
    assert_eq!(targets(&policy), ["/srv/p"]);
}

#[test]
fn one_client_has_no_more_sessions_than_all_together() {
    let mut made = Fixture::new();
    let counts = |made: &Fixture| {
        let all = made.load();
        assert_eq!(all.problems, []);
        (all.sessions.max_sessions, all.sessions.max_sessions_per_client)
    };
    assert_eq!(counts(&made), (64, 16));
    for (text, expected) in [
        ("max_sessions = 4", (4, 4)),
        ("max_sessions_per_client = 64", (64, 64)),
        ("max_sessions = 100\nmax_sessions_per_client = 2", (100, 2)),
    ] {
        let file = made.write("c.toml", &format!("[session]\n{text}\n"));
        made.set("COFFERDAM_CONFIG", file.to_str().unwrap());
        assert_eq!(counts(&made), expected, "{text}");
    }
}

#[test]
fn a_result_in_the_cache_that_leads_out_of_a_store_is_refused() {
    let cache = tempfile::tempdir().unwrap();
    let at = std::fs::canonicalize(cache.path()).unwrap();
    let builder = NixBuilder::new(None, None, Some(at.clone()));
    let around = Surroundings {
        variables: BTreeMap::new(),
        cwd: "/".into(),
        homes: vec![at.join("u").to_str().unwrap().to_owned()],
        system: PathBuf::from("/etc"),
    };
    let hash = "0123456789abcdfghijklmnpqrsvwxyz";
    let package = at.join(format!("store/{hash}-p"));
    let beside_a_home = at.join(format!("{hash}-p"));
    for made in [&package, &beside_a_home, &at.join("u/.ssh")] {
        std::fs::create_dir_all(made).unwrap();
    }
    let reference = || Environment {
        name: "e".into(),
        rank: Rank::Configuration,
        place: String::new(),
        kind: EnvironmentKind::Flake { reference: "r".into(), interpreter: vec!["sh".into()] },
        overrides: Overrides::default(),
    };
    let link = at.join("454349e422f05297191ead13e21d3db520e5abef52055e4964b82fb213f593a1"); // the reference by its SHA-256
    let homes_key = at.join("u/.ssh");
    for (target, usable) in [
        (std::path::Path::new("/"), false),
        (std::path::Path::new("/etc"), false),
        (at.join("u").as_path(), false),
        (homes_key.as_path(), false),
        (beside_a_home.as_path(), false),
        (package.as_path(), true),
    ] {
        std::fs::remove_file(&link).ok();
        std::os::unix::fs::symlink(target, &link).unwrap();
        let found =
            build_environment(reference(), Builders { nix: &builder, engine: None }, &around, Building::Never, |_| ());
        assert_eq!(found.is_ok(), usable, "{target:?}: {found:?}");
        if let Err(error) = found {
            assert!(error.to_string().contains("is no Nix store"), "{error}");
        }
    }
}

#[test]
fn default_limits_apply_to_definitions_without_their_own() {
    let made = Fixture::new();
    let artifact = made.artifact("artifact", "c");
    made.write(
        "home/.config/cofferdam/config.toml",
        &format!(
            "[defaults]\ntimeout_seconds = 3\nmemory_mb = 77\nbackend = \"jail\"\n[environments.a]\npreset = \"python\"\n\
             [environments.b]\npreset = \"shell\"\ntimeout_seconds = 9\n[environments.c]\nsandbox = {artifact:?}\n"
        ),
    );
    let all = made.load();
    assert_eq!(all.problems, []);
    let limits = |name: &str| (find(&all, name).overrides.timeout_seconds, find(&all, name).overrides.memory_mb);
    assert_eq!(limits("a"), (Some(3), Some(77)));
    assert_eq!(limits("b"), (Some(9), Some(77)));
    assert_eq!(limits("c"), (None, None), "an artifact has its own");
    let named: Vec<&String> = all.warnings.iter().filter(|warning| warning.contains("defaults.backend")).collect();
    assert!(named.len() == 1 && named[0].contains("config.toml:4: "), "{:?}", all.warnings);
}

#[test]
fn a_wrappers_session_program_is_the_one_that_it_names() {
    let mut made = Fixture::new();
    let (one, two) = (made.artifact("one", "x"), made.artifact("two", "y"));
    let (run, session) = (one.join("bin/run"), two.join("bin/run"));
    let set = |session: &std::path::Path| {
        serde_json::json!({ "environments": { "w": { "exec": run, "session_exec": session } } }).to_string()
    };
    made.set("COFFERDAM_METADATA", set(&session));
    let all = made.load();
    let EnvironmentKind::Artifact(found) = &find(&all, "w").kind else { panic!("{all:?}") };
    assert_eq!(found.session_program.as_deref(), Some(session.as_path()));
    let binds = spec(find(&all, "w"), None).unwrap().binds;
    assert!(binds.iter().any(|path| std::path::Path::new(path) == session), "{binds:?}");
    made.set("COFFERDAM_METADATA", set(std::path::Path::new("/no/where")));
    let why = find(&made.load(), "w").unavailable().unwrap();
    assert!(why.contains("session_exec: `/no/where` is no executable file"), "{why}");
}

#[test]
fn project_with_use_flake_must_have_a_flake() {
    let made = Fixture::new();
    let file = made.write("c.toml", "[project]\npath = \".\"\nuse_flake = true\n");
    let found = Environments::of_file(file.to_str().unwrap(), &made.around).problems;
    assert!(
        found.len() == 1 && found[0].key == "project.use_flake" && found[0].place.ends_with("/flake.nix"),
        "{found:?}"
    );
    made.write("flake.nix", "{ outputs = _: { }; }");
    assert_eq!(Environments::of_file(file.to_str().unwrap(), &made.around).problems, [], "the control: there is one");
    made.write("c.toml", "[project]\npath = \".\"\n");
    assert_eq!(Environments::of_file(file.to_str().unwrap(), &made.around).problems, []);
}
