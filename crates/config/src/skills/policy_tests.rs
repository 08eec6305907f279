//! An operator's configuration, and the policy of both sides: always the narrower of the two.

use cofferdam_policy::{AllowEntry, Field, Mount, NetworkMode, OnViolation, Policy, Root};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::manifest::{Manifest, Stage};
use super::operator::OperatorConfig;
use super::policy::{LimitsFrom, Side, image_program, policy};

fn manifest(change: impl Fn(&mut Value)) -> Manifest {
    let mut document = json!({
        "version": "1",
        "name": "weather",
        "publisher": { "name": "Example", "address": format!("0x{}", "0".repeat(40)), "contact": "dev@example.com" },
        "permissions": { "txActions": [], "chains": [], "networkAccess": false, "filesystemAccess": true },
        "sandbox": { "memoryMb": 100, "timeoutMs": 5000, "allowSpawn": true },
        "files": [{ "path": "main.py", "sha256": "00".repeat(32) }],
    });
    change(&mut document);
    Manifest::decode(document.to_string().as_bytes(), Stage::Draft).unwrap()
}

fn wishing(network: Value) -> Manifest {
    manifest(|document| document["permissions"]["networkAccess"] = network.clone())
}

fn operator(text: &str) -> OperatorConfig {
    OperatorConfig::decode(text.as_bytes()).unwrap()
}

fn resolve(manifest: &Manifest, operator: &OperatorConfig) -> Policy {
    policy(manifest, operator, "/store/files", &[]).unwrap()
}

fn hosts(policy: &Policy) -> Vec<String> {
    policy.network.allow.iter().map(|rule| rule.entry.to_string()).collect()
}

#[test]
fn without_a_word_the_documents_defaults_hold() {
    let manifest = manifest(|document| document["sandbox"]["memoryMb"] = json!(512));
    let policy = resolve(&manifest, &OperatorConfig::default());
    assert!(!matches!(policy.filesystem.root, Root::Image(_)));
    assert_eq!(policy.command.argv, ["python3", "/skill/main.py"]);
    assert_eq!(policy.command.cwd.as_deref(), Some("/skill"));
    assert_eq!(policy.command.variables, Policy::base().command.variables);
    let limits = (policy.limits.memory_mb, policy.limits.cpu_millis, policy.limits.tmpfs_mb, policy.limits.wall_ms);
    assert_eq!(limits, (512, 500, 64, 5000));
    assert_eq!((policy.network.mode, policy.on_violation), (NetworkMode::None, OnViolation::Terminate));
    assert_eq!(policy.filesystem.root, Root::Minimal);
    let [Mount::Bind { source, target, access, .. }] = &policy.filesystem.mounts[..] else { panic!() };
    assert_eq!((source.as_str(), target.as_str()), ("/store/files", "/skill"));
    assert_eq!(*access, cofferdam_policy::Access::ReadOnly);
    for field in [Field::Memory, Field::WallTime, Field::Tmpfs, Field::Spawn, Field::Network, Field::Mounts] {
        assert!(policy.is_required(field), "{field}");
    }
    assert!(!policy.is_required(Field::CpuShare));
}

#[test]
fn json_and_toml_say_the_same() {
    let toml = r#"
        image = "registry.example/skill@sha256:00"
        networkMode = "allowlist"
        allowedHosts = ["api.example.com"]
        readOnlyRootfs = true
        memoryLimitMb = 64
        cpuQuota = 25000
        timeoutMs = 2000
        noSpawn = true
        volumes = [{ target = "/work", sizeMb = 8 }, { target = "/cache" }]
        env = { ISCL_API_URL = "http://127.0.0.1:8080" }
        command = ["python3", "-I", "/skill/main.py"]
    "#;
    let as_json = json!({
        "image": "registry.example/skill@sha256:00", "networkMode": "allowlist", "allowedHosts": ["api.example.com"],
        "readOnlyRootfs": true, "memoryLimitMb": 64, "cpuQuota": 25000, "timeoutMs": 2000, "noSpawn": true,
        "volumes": [{ "target": "/work", "sizeMb": 8 }, { "target": "/cache" }],
        "env": { "ISCL_API_URL": "http://127.0.0.1:8080" }, "command": ["python3", "-I", "/skill/main.py"],
    });
    let config = operator(toml);
    assert_eq!(config, operator(&as_json.to_string()));
    let policy = resolve(&wishing(json!(true)), &config);
    assert_eq!(policy.filesystem.root, Root::Image("registry.example/skill@sha256:00".into()));
    assert_eq!(policy.command.argv, ["python3", "-I", "/skill/main.py"]);
    assert_eq!((policy.limits.memory_mb, policy.limits.cpu_millis, policy.limits.wall_ms), (64, 250, 2000));
    assert!(!policy.process.spawn && policy.is_required(Field::CpuShare));
    assert_eq!(hosts(&policy), ["api.example.com"]);
    let api = policy.network.api.unwrap();
    assert_eq!((api.url.to_string().as_str(), api.variable.as_str()), ("http://127.0.0.1:8080", "ISCL_API_URL"));
    let tmpfs = |target: &str, size_mb| Mount::Tmpfs { target: target.into(), size_mb, exec: false };
    assert_eq!(policy.filesystem.mounts[1..], [tmpfs("/work", 8), tmpfs("/cache", 64)]);
    assert_eq!(operator(""), OperatorConfig::default());
    assert_eq!(operator("{}"), OperatorConfig::default());
}

#[test]
fn an_empty_list_of_hosts_is_no_host_in_every_network() {
    for mode in ["none", "loopback", "allowlist"] {
        let config = operator(&json!({ "networkMode": mode, "allowedHosts": [] }).to_string());
        assert_eq!(config.allowed_hosts, Some(Vec::new()), "{mode}");
        let policy = resolve(&wishing(json!(["localhost", "api.example.com"])), &config);
        assert!(policy.network.allow.is_empty(), "{mode}");
    }
    let text = json!({ "networkMode": "none", "allowedHosts": ["api.example.com"] }).to_string();
    let refusal = OperatorConfig::decode(text.as_bytes()).unwrap_err().to_string();
    assert!(refusal.contains("hosts without a network"), "{refusal}");
}

#[test]
fn the_side_that_asks_for_less_set_the_limit() {
    let manifest = manifest(|_| {});
    let of = |memory, timeout| {
        let operator = OperatorConfig { memory_limit_mb: memory, timeout_ms: timeout, ..OperatorConfig::default() };
        let from = LimitsFrom::of(&manifest, &operator);
        (from.memory_mb, from.wall_ms)
    };
    let (memory, timeout) = (manifest.sandbox.memory_mb, manifest.sandbox.timeout_ms);
    assert_eq!(of(None, None), (Side::Manifest, Side::Manifest));
    assert_eq!(of(Some(memory), Some(timeout + 1)), (Side::Manifest, Side::Manifest));
    assert_eq!(of(Some(memory - 1), Some(timeout - 1)), (Side::Operator, Side::Operator));
}

#[test]
fn caller_arguments_replace_those_of_an_image() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let of = |entry: &[&str], own: &[&str], given: &[&str]| image_program(words(entry), words(own), &words(given));
    assert_eq!(of(&["run"], &["all"], &[]), Some(words(&["run", "all"])));
    assert_eq!(of(&["run"], &["all"], &["one"]), Some(words(&["run"])), "what is given follows");
    assert_eq!(of(&[], &["sh", "-c"], &["one"]), Some(words(&["sh", "-c"])));
    assert_eq!(of(&[], &[], &["one"]), None);
}

#[test]
fn unix_sockets_are_the_operators_to_grant() {
    for (granted, text) in [(false, ""), (false, "unixSockets = false"), (true, "unixSockets = true")] {
        assert_eq!(resolve(&manifest(|_| {}), &operator(text)).process.unix_sockets, granted, "{text}");
    }
    assert!(OperatorConfig::decode(b"unixSockets = 1").is_err());
}

#[test]
fn how_many_processes_there_may_be_is_the_operators_to_say() {
    let base = Policy::base().limits.processes;
    assert_eq!(resolve(&manifest(|_| {}), &operator("")).limits.processes, base);
    assert_eq!(resolve(&manifest(|_| {}), &operator("maxProcesses = 500")).limits.processes, 500);
    assert!(OperatorConfig::decode(b"maxProcesses = 0").is_err());
}

#[test]
fn harmless_variables_are_passed_and_private_keys_not() {
    let config = operator("env = { NODE_ENV = 'production', TZ = 'Europe/Berlin', LOG_LEVEL = 'debug', FOO = 'bar' }");
    let policy = resolve(&manifest(|_| {}), &config);
    for (name, value) in [("NODE_ENV", "production"), ("TZ", "Europe/Berlin"), ("LOG_LEVEL", "debug"), ("FOO", "bar")] {
        assert_eq!(policy.command.variables.get(name).map(String::as_str), Some(value));
    }
    let key = format!("env = {{ WALLET = '0x{}' }}", "a1".repeat(32));
    let errors = OperatorConfig::decode(key.as_bytes()).unwrap_err().to_string();
    assert!(errors.contains("key or token") && !errors.contains("a1a1"), "{errors}");
}

#[test]
fn the_memory_is_the_manifests_unless_the_operator_caps_it() {
    let manifest = manifest(|document| document["sandbox"]["memoryMb"] = json!(256));
    let memory = |text: &str| resolve(&manifest, &operator(text)).limits.memory_mb;
    assert_eq!((memory(""), memory("memoryLimitMb = 64"), memory("memoryLimitMb = 400")), (256, 64, 256));
}

#[test]
fn container_names_of_the_host_mean_its_loopback() {
    for name in ["host.docker.internal", "HOST.docker.internal", "host.containers.internal", "127.0.0.1"] {
        let config = operator(&format!("env = {{ ISCL_API_URL = 'http://{name}:8080/v1' }}"));
        assert_eq!(config.api.unwrap().to_string(), "http://127.0.0.1:8080/v1");
    }
    let other = operator("env = { ISCL_API_URL = 'http://internal:8080' }");
    assert_eq!(other.api.unwrap().to_string(), "http://internal:8080");
}

#[test]
fn what_an_operator_cannot_grant_is_an_error_with_its_path() {
    for (text, path, word) in [
        ("unknown = 1", "$[\"unknown\"]", "no such key"),
        ("networkMode = 'host'", "$.networkMode", "none, loopback or allowlist"),
        ("networkMode = 'bridge'", "$.networkMode", "none, loopback or allowlist"),
        ("allowedHosts = ['a.example']", "$.allowedHosts", "without a network"),
        ("networkMode = 'allowlist'\nallowedHosts = ['*']", "$.allowedHosts[0]", "everything"),
        ("readOnlyRootfs = false", "$.readOnlyRootfs", "written"),
        ("memoryLimitMb = 0", "$.memoryLimitMb", "limits"),
        ("cpuQuota = 999", "$.cpuQuota", "limits"),
        ("timeoutMs = -1", "$.timeoutMs", "limits"),
        ("noSpawn = 'no'", "$.noSpawn", "true or false"),
        ("volumes = ['/home:/data']", "$.volumes[0]", "ephemeral"),
        ("volumes = [{ target = '/x', source = '/home' }]", "$.volumes[0].source", "mount of the host"),
        ("volumes = [{ target = '/x', hostPath = '/home' }]", "$.volumes[0].hostPath", "mount of the host"),
        ("volumes = [{ target = '/skill/x' }]", "$.volumes[0].target", "/skill is there"),
        ("volumes = [{ target = '/' }]", "$.volumes[0].target", "absolute path"),
        ("volumes = [{ target = '/a/../tmp' }]", "$.volumes[0].target", "absolute path"),
        ("volumes = [{ target = '/a' }, { target = '/a/b' }]", "$.volumes[1].target", "/a is there"),
        ("volumes = [{ target = '/a', sizeMb = 2000 }]", "$.volumes[0].sizeMb", "limits"),
        ("env = { AWS_SECRET_ACCESS_KEY = 'hidden' }", "$.env[\"AWS_SECRET_ACCESS_KEY\"]", "looks like a secret"),
        ("env = { LD_PRELOAD = '/hidden' }", "$.env[\"LD_PRELOAD\"]", "run something else"),
        ("env = { NODE_OPTIONS = '--hidden' }", "$.env[\"NODE_OPTIONS\"]", "run something else"),
        ("env = { MODE = 'ghp_hiddenaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }", "$.env[\"MODE\"]", "key or token"),
        ("env = { PATH = '/hidden' }", "$.env[\"PATH\"]", "the sandbox's own"),
        ("env = { https_proxy = 'http://hidden' }", "$.env[\"https_proxy\"]", "the sandbox's own"),
        ("env = { 'A=B' = 'hidden' }", "$.env[\"A=B\"]", "no name"),
        ("env = { TZ = 3 }", "$.env[\"TZ\"]", "not a text"),
        ("env = { ISCL_API_URL = 'ftp://x' }", "$.env.ISCL_API_URL", "http(s)"),
        ("command = []", "$.command", "list"),
        ("command = 'python3 x'", "$.command", "list"),
        ("command = ['']", "$.command[0]", "form"),
        ("{\"noSpawn\": false, \"noSpawn\": true}", "$", "twice"),
        ("noSpawn = false\nnoSpawn = true", "$", "duplicate key"),
        ("image = \"\"", "$.image", "reference"),
    ] {
        let errors = OperatorConfig::decode(text.as_bytes()).expect_err(text).to_string();
        assert!(errors.starts_with(path) && errors.contains(word), "{text}: {errors}");
        assert!(!errors.contains("hidden"), "{errors}");
    }
}

#[test]
fn the_narrower_network_wins() {
    let granted = |hosts: &str| operator(&format!("networkMode = 'allowlist'\nallowedHosts = {hosts}"));
    let (a, both) = (json!(["a.example.com"]), json!(["a.example.com", "*.b.example.com:443", "10.1.0.0/16"]));
    for (wish, operator, holds) in [
        (json!(false), granted("['a.example.com']"), vec![]),
        (json!(true), granted("['a.example.com']"), vec!["a.example.com"]),
        (json!(true), granted("[]"), vec![]),
        (json!(true), OperatorConfig::default(), vec![]),
        (a.clone(), OperatorConfig::default(), vec![]),
        (a.clone(), operator("networkMode = 'none'"), vec![]),
        (a.clone(), operator("networkMode = 'allowlist'"), vec!["a.example.com"]),
        (a.clone(), granted("['*.example.com']"), vec!["a.example.com"]),
        (a.clone(), granted("['*.example.com:443']"), vec!["a.example.com:443"]),
        (a.clone(), granted("['b.example.com', '*.a.example.com']"), vec![]),
        (a.clone(), granted("['a.example.com:8080']"), vec![]),
        (json!(["*.example.com"]), granted("['a.example.com:80']"), vec!["a.example.com:80"]),
        (json!(true), granted("['@pypi']"), vec!["pypi.org:443", "files.pythonhosted.org:443"]),
        (json!(["pypi.org", "a.example.com"]), granted("['@pypi']"), vec!["pypi.org:443"]),
        (
            both.clone(),
            granted("['x.b.example.com', '10.1.2.0/24:443']"),
            vec!["x.b.example.com:443", "10.1.2.0/24:443"],
        ),
        (json!([]), operator("networkMode = 'allowlist'"), vec![]),
    ] {
        let policy = resolve(&wishing(wish.clone()), &operator);
        assert_eq!(hosts(&policy), holds, "{wish} {operator:?}");
        let mode = if holds.is_empty() { NetworkMode::None } else { NetworkMode::Allowlist };
        assert_eq!(policy.network.mode, mode);
        // To make a socket is no attempt to use the network.
        assert!(policy.process.seccomp.rules.is_empty());
    }
    let unsaid = policy(&wishing(json!(true)), &operator("networkMode = 'allowlist'"), "/f", &[]).unwrap_err();
    assert!(unsaid.to_string().starts_with("$.allowedHosts: missing"), "{unsaid}");
    // An address may be in a network that names must not resolve to, such as the host's own: it must be granted explicitly.
    for address in ["10.1.0.0/16", "169.254.169.254", "127.0.0.1:5432", "[::1]:22", "192.0.2.1"] {
        let wishing = wishing(json!(["a.example.com", address]));
        let refused = policy(&wishing, &operator("networkMode = 'allowlist'"), "/f", &[]).unwrap_err().to_string();
        assert!(refused.starts_with("$.allowedHosts: missing") && refused.contains("an address"), "{refused}");
        let by_name = resolve(&wishing, &granted("['a.example.com']"));
        assert_eq!(hosts(&by_name), ["a.example.com"]);
        let both = resolve(&wishing, &granted(&format!("['{address}']")));
        assert_eq!(both.network.allow.len(), 1, "{address}");
    }
    // The API alone, with no host besides.
    let api = operator("env = { ISCL_API_URL = 'http://127.0.0.1:8080' }");
    let policy = resolve(&wishing(json!(true)), &api);
    assert!(policy.network.mode == NetworkMode::Allowlist && policy.network.allow.is_empty());
}

#[test]
fn processes_need_both_sides() {
    for (manifest_lets, operator_says, spawn) in
        [(true, "", true), (true, "noSpawn = true", false), (false, "noSpawn = false", false), (false, "", false)]
    {
        let manifest = manifest(|document| document["sandbox"]["allowSpawn"] = json!(manifest_lets));
        let policy = resolve(&manifest, &operator(operator_says));
        let root = if spawn { Root::Minimal } else { Root::Interpreter };
        assert_eq!((policy.process.spawn, policy.filesystem.root), (spawn, root));
    }
}

#[test]
fn a_skill_with_one_known_start_needs_no_command() {
    let with = |paths: &[&str]| {
        manifest(|document| {
            let file = |path: &&str| json!({ "path": path, "sha256": "00".repeat(32) });
            document["files"] = paths.iter().map(file).collect();
        })
    };
    let argv = |paths: &[&str]| {
        policy(&with(paths), &OperatorConfig::default(), "/f", &["x".into(), "-y".into()]).map(|it| it.command.argv)
    };
    assert_eq!(argv(&["run", "lib/main.py"]).unwrap(), ["/skill/run", "x", "-y"]);
    assert_eq!(argv(&["main.js"]).unwrap(), ["node", "/skill/main.js", "x", "-y"]);
    assert!(argv(&["other.py"]).unwrap_err().to_string().contains("$.command: missing"));
    assert!(argv(&["run", "main.py"]).unwrap_err().to_string().contains("both run and main.py"));
}

#[test]
fn a_directory_as_image_is_the_root() {
    let config = operator("image = '/srv/rootfs'");
    assert_eq!(resolve(&manifest(|_| {}), &config).filesystem.root, Root::Directory("/srv/rootfs".into()));
}

fn any_host() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("a.x.example"),
        Just("b.x.example"),
        Just("*.x.example"),
        Just("*.example"),
        Just("10.0.0.0/8"),
        Just("10.1.1.1")
    ];
    let ports = prop_oneof![Just(""), Just(":443"), Just(":80-443"), Just(":400-9000"), Just(":*")];
    (name, ports).prop_map(|(name, ports)| format!("{name}{ports}"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_holds_is_exactly_what_both_sides_mean(
        wished in prop::collection::vec(any_host(), 0..4),
        granted in prop::collection::vec(any_host(), 0..4),
    ) {
        let operator = operator(&json!({ "networkMode": "allowlist", "allowedHosts": granted }).to_string());
        let policy = resolve(&wishing(json!(wished)), &operator);
        let read = |texts: &[String]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<AllowEntry>>();
        let (wished, granted) = (read(&wished), read(&granted));
        let held: Vec<AllowEntry> = policy.network.allow.into_iter().map(|rule| rule.entry).collect();
        for name in ["a.x.example", "b.x.example", "c.x.example", "x.example", "y.example"] {
            for port in [22, 80, 81, 400, 443, 8080, 9001] {
                let any = |list: &[AllowEntry]| list.iter().any(|entry| entry.matches_name(name, port));
                prop_assert_eq!(any(&held), any(&wished) && any(&granted), "{}:{}", name, port);
            }
        }
        for address in ["10.1.1.1", "10.2.2.2", "192.0.2.1"] {
            for port in [22, 80, 443, 8080] {
                let any = |list: &[AllowEntry]| list.iter().any(|entry| entry.matches_address(address.parse().unwrap(), port));
                prop_assert_eq!(any(&held), any(&wished) && any(&granted), "{}:{}", address, port);
            }
        }
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in ".{0,200}") {
        let read = OperatorConfig::decode(text.as_bytes());
        // TOML takes a byte order mark before the first line; what is left is blank, or a comment.
        let rest = text.strip_prefix('\u{feff}').unwrap_or(&text).trim_start();
        prop_assert!(read.is_err() || rest.is_empty() || rest.starts_with('#'));
    }
}

#[test]
fn loopback_needs_the_leave_of_both_sides() {
    let mode = |wish: Value, text: &str| resolve(&wishing(wish), &operator(text)).network.mode;
    let config = "networkMode = 'loopback'";
    for wish in [json!(true), json!(["localhost"]), json!(["api.example.com", "127.0.0.1:8080"])] {
        assert_eq!(mode(wish.clone(), config), NetworkMode::Loopback, "{wish}");
        assert_eq!(mode(wish.clone(), ""), NetworkMode::None, "{wish}");
    }
    for wish in [json!(false), json!(["api.example.com"]), json!(["localhost.example.com"])] {
        assert_eq!(mode(wish.clone(), config), NetworkMode::None, "{wish}");
    }
    let errors = OperatorConfig::decode(b"networkMode = 'loopback'\nallowedHosts = ['localhost']").unwrap_err();
    assert!(errors.to_string().contains("allowedHosts"), "{errors}");
    let errors = OperatorConfig::decode(b"networkMode = 'loopback'\nenv = { ISCL_API_URL = 'http://127.0.0.1:1' }");
    assert!(errors.unwrap_err().to_string().contains("networkMode"));
}
