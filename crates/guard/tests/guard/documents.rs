//! What the design that the guard comes from writes in Rust: its configuration, its trait, its results and errors.

use cofferdam_guard::compat::{OmegaError, SandboxConfig};
use cofferdam_guard::{ExecutionResult, Guard, GuardConfig, Refusal, Rule, Sandbox, SandboxError, compat};
use serde::{Deserialize, Serialize};

use crate::fixture::{Fixture, allowing, builder, has, ok, run, wait};

fn five_fields(blocked: Vec<String>) -> SandboxConfig {
    SandboxConfig {
        enabled: true,
        allowed_commands: vec!["cat".to_string(), "sh".to_string()],
        blocked_paths: blocked,
        max_execution_time_secs: 1,
        max_output_bytes: 1_048_576,
    }
}

#[test]
fn the_five_fields_make_a_guard() {
    let place = Fixture::new();
    place.write("work/plain", "plain\n");
    let config = five_fields(vec![place.write("outside/key", "secret\n")]);
    let full = GuardConfig::from(config.clone());
    assert_eq!((full.max_output_bytes, full.max_execution_time_secs), (1 << 20, 1));
    // Whatever takes the one takes the other: root has to say so, which only the larger one can.
    match Guard::new(config, place.work()) {
        Ok(guard) => assert_eq!(guard.execute_blocking("cat", &["plain"]).unwrap().stdout, "plain\n"),
        Err(error) => assert!(error.to_string().contains("run_as_root"), "{error}"),
    }
    let guard = place.guard(GuardConfig { run_as_root: true, ..full });
    assert_eq!(ok(&guard, "cat", &["plain"]).stdout, "plain\n");
    assert_eq!(SandboxConfig::default().max_execution_time_secs, 30);
    assert_eq!(GuardConfig::from(SandboxConfig::default()), GuardConfig::default());
}

#[test]
fn the_string_error_trait_can_be_implemented_by_callers() {
    struct Counting(std::sync::atomic::AtomicU32);

    #[async_trait::async_trait]
    impl compat::Sandbox for Counting {
        async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, OmegaError> {
            if !compat::Sandbox::is_allowed(self, command) {
                return Err(OmegaError::Sandbox(format!("{command}: not allowed")));
            }
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let stdout = args.join(" ");
            Ok(ExecutionResult { stdout, stderr: String::new(), exit_code: 0, duration_ms: 0, truncated: false })
        }
        fn is_allowed(&self, command: &str) -> bool {
            command == "echo"
        }
        fn path_allowed(&self, _: &str) -> bool {
            true
        }
    }

    async fn both(sandbox: &dyn compat::Sandbox) -> Result<String, OmegaError> {
        let said = sandbox.execute("echo", &["a", "b"]).await?.stdout;
        Ok(said.trim().to_owned())
    }

    let place = Fixture::new();
    let guard = place.guard(allowing(&["echo"]));
    assert_eq!(wait(both(&guard)).unwrap(), "a b");
    assert_eq!(wait(both(&Counting(0.into()))).unwrap(), "a b");
    let error = wait(compat::Sandbox::execute(&guard, "id", &[])).unwrap_err();
    assert!(error.to_string().starts_with("sandbox error: id: refused by allowed_commands"), "{error}");
    assert!(!compat::Sandbox::is_allowed(&guard, "id") && compat::Sandbox::path_allowed(&guard, "x"));
}

#[test]
fn the_typed_trait_is_implemented_by_async_functions() {
    /// Refuses everything but what the guard inside allows, and counts nothing.
    struct Around(Guard);

    #[async_trait::async_trait]
    impl Sandbox for Around {
        async fn execute(&self, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal> {
            self.0.execute(command, args).await
        }
        fn is_allowed(&self, command: &str) -> bool {
            self.0.is_allowed(command)
        }
        fn path_allowed(&self, path: &str) -> bool {
            self.0.path_allowed(path)
        }
    }

    let place = Fixture::new();
    let around: Box<dyn Sandbox> = Box::new(Around(place.guard(allowing(&["echo"]))));
    assert_eq!(wait(around.execute("echo", &["x"])).unwrap().stdout, "x\n");
    assert!(around.is_allowed("echo") && !around.is_allowed("id") && around.path_allowed("x"));
    assert!(wait(around.execute("id", &[])).is_err());
}

/// An application's own error, with the variant that the design names and one `From`: `?` needs nothing else.
#[derive(Debug)]
enum AppError {
    Sandbox(String),
}

impl<E: Into<SandboxError>> From<E> for AppError {
    fn from(error: E) -> AppError {
        let SandboxError::Sandbox(text) = error.into();
        AppError::Sandbox(text)
    }
}

#[test]
fn errors_convert_by_the_question_mark() {
    let place = Fixture::new();
    let work = place.work();
    let ask = |command: &str, config: GuardConfig| -> Result<String, AppError> {
        let guard = builder(config, &work).build()?;
        Ok(guard.execute_blocking(command, &["x"])?.stdout)
    };
    assert_eq!(ask("echo", allowing(&["echo"])).unwrap(), "x\n");
    let AppError::Sandbox(text) = ask("id", allowing(&["echo"])).unwrap_err();
    assert!(text.contains("id: refused by allowed_commands"), "{text}");
    let AppError::Sandbox(text) =
        ask("id", GuardConfig { blocked_paths: vec!["x".into()], ..allowing(&["echo"]) }).unwrap_err();
    assert!(text.contains("not an absolute path"), "{text}");
}

/// An application's own configuration, with the guard's as one of its parts.
#[derive(Debug, Serialize, Deserialize)]
struct AppConfig {
    name: String,
    sandbox: GuardConfig,
    #[serde(default)]
    plain: SandboxConfig,
}

#[test]
fn configurations_and_results_go_through_serde() {
    let text = r#"{ "name": "agent", "sandbox": {
        "allowed_commands": ["ls", { "command": "git", "args": "status|log( .*)?", "match": ["log -1"], "not_match": [["push"]] }],
        "blocked_paths": ["/etc/shadow"], "mode": "rx", "network": "loopback", "limits": { "memory_mb": 256 } },
        "plain": { "allowed_commands": ["ls"] } }"#;
    let app: AppConfig = serde_json::from_str(text).unwrap();
    assert_eq!(app.sandbox.allowed_commands[0], Rule::any("ls"));
    assert_eq!(app.sandbox.allowed_commands[1].matches, [["log", "-1"]]);
    assert_eq!((app.sandbox.limits.memory_mb, app.sandbox.max_execution_time_secs), (256, 30));
    assert_eq!((app.plain.allowed_commands.len(), app.plain.max_execution_time_secs), (1, 30));
    let again: AppConfig = serde_json::from_str(&serde_json::to_string(&app).unwrap()).unwrap();
    assert_eq!((again.sandbox, again.plain), (app.sandbox, app.plain), "what was written is read");
    let whole: GuardConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(whole, GuardConfig::default());
    for (wrong, part) in [
        (r#"{"allowed_comands": []}"#, "allowed_comands"),
        (r#"{"mode": "Sandbox"}"#, "Sandbox"),
        (r#"{"network": "allowlist"}"#, "allowlist"),
        (r#"[true, "sandbox"]"#, "a table"),
        (
            r#"{"allowed_commands": ["ls", {"command": "a", "args": "b", "match": ["'b'"]}]}"#,
            "allowed_commands[1].match",
        ),
    ] {
        let error = serde_json::from_str::<GuardConfig>(wrong).unwrap_err().to_string();
        assert!(error.contains(part), "{wrong}: {error}");
    }
    assert!(serde_json::from_str::<SandboxConfig>(r#"{"blocked_path": []}"#).is_err(), "a misspelt key blocks nothing");
    let place = Fixture::new();
    let result = ok(&place.guard(allowing(&["echo"])), "echo", &["x"]);
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!((json["stdout"].as_str(), json["exit_code"].as_i64()), (Some("x\n"), Some(0)));
    assert_eq!(serde_json::from_value::<ExecutionResult>(json).unwrap(), result);
}

#[test]
fn what_was_printed_before_a_limit_is_in_the_error() {
    let place = Fixture::new();
    let mut config = GuardConfig { max_execution_time_secs: 1, ..allowing(&["/usr/bin/dash"]) };
    config.helpers.insert("dash".into(), vec!["sleep".into()]);
    let guard = place.guard(config.clone());
    let late = run(&guard, "/usr/bin/dash", &["-c", "echo partial; echo why >&2; sleep 30"]).unwrap_err();
    let printed = late.output().expect("it ran");
    assert_eq!((printed.stdout.as_str(), printed.stderr.as_str(), printed.exit_code), ("partial\n", "why\n", -1));
    let text = SandboxError::from(late).to_string();
    assert!(
        text.contains("max_execution_time_secs = 1") && text.contains("`partial`") && text.contains("`why`"),
        "{text}"
    );
    let long = "i=0; while [ $i -lt 600 ]; do printf '\\033[2J%s\\n' $i; i=$((i+1)); done; sleep 30";
    let text = SandboxError::from(run(&guard, "/usr/bin/dash", &["-c", long]).unwrap_err()).to_string();
    assert!(text.len() < 4000 && text.contains("599") && !text.contains(char::is_control), "{text:?}");
    config.limits.cpu_seconds = 1;
    config.max_execution_time_secs = 20;
    let spun = run(&place.guard(config), "/usr/bin/dash", &["-c", "echo first; while :; do :; done"]).unwrap_err();
    assert_eq!(spun.output().map(|o| o.stdout.as_str()), Some("first\n"), "{spun}");
    assert_eq!(run(&guard, "id", &[]).unwrap_err().output(), None, "nothing ran");
}

#[test]
fn a_command_that_fails_at_a_blocked_path_says_so() {
    let place = Fixture::new();
    let key = place.write("work/key", "secret\n");
    place.write("work/plain", "plain\n");
    std::os::unix::fs::symlink(&key, place.at("work/link")).unwrap();
    let mut config = allowing(&["cat", "dd"]);
    config.blocked_paths = vec![key.clone()];
    let guard = place.guard(config);
    for (command, args) in
        [("cat", vec!["key"]), ("cat", vec!["plain", "./link"]), ("dd", vec!["if=key", "status=none"])]
    {
        let result = run(&guard, command, &args).unwrap();
        assert_ne!(result.exit_code, 0, "{result:?}");
        let said = format!("cofferdam: {}: blocked by blocked_paths\n", std::fs::canonicalize(&key).unwrap().display());
        assert!(result.stderr.ends_with(&said) && !result.stdout.contains("secret"), "{args:?}: {result:?}");
    }
    // Neither where it succeeds, nor where it fails at something else.
    assert_eq!(ok(&guard, "cat", &["plain"]).stderr, "");
    let other = run(&guard, "cat", &["missing"]).unwrap();
    assert!(other.exit_code != 0 && !other.stderr.contains("blocked_paths"), "{other:?}");
}

#[test]
fn python_of_the_example_is_python3_where_only_that_is() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Fixture::new();
    std::fs::create_dir(place.at("outside/bin")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", place.at("outside/bin/python3")).unwrap();
    let guard = |path: &str| {
        let variables = [("PATH".to_owned(), path.to_owned())];
        Guard::builder(allowing(&["python"]), place.work()).variables(variables).build().unwrap()
    };
    let only_python3 = guard(&place.at("outside/bin"));
    assert!(only_python3.not_installed().is_empty(), "{:?}", only_python3.not_installed());
    assert!(only_python3.is_allowed("python") && only_python3.is_allowed("python3"));
    for command in ["python", "python3"] {
        assert_eq!(ok(&only_python3, command, &["-c", "print(6*7)"]).stdout, "42\n", "{command}");
    }
    assert_eq!(guard(&place.at("outside")).not_installed(), ["python"], "neither is there");

    // A shim starts the real one through its version manager, which no guard allows: the real one is found instead.
    for dir in ["shims", "versions/3.x/bin"] {
        std::fs::create_dir_all(place.at(&format!("outside/pyenv/{dir}"))).unwrap();
    }
    let shim = place.write("outside/pyenv/shims/python", "#!/bin/sh\nexec /no/pyenv exec python \"$@\"\n");
    std::fs::set_permissions(&shim, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/usr/bin/python3", place.at("outside/pyenv/versions/3.x/bin/python")).unwrap();
    place.write("outside/pyenv/version", "3.x\n");
    let by_shim = guard(&place.at("outside/pyenv/shims"));
    assert_eq!(ok(&by_shim, "python", &["-c", "print(6*7)"]).stdout, "42\n");
}
