//! Defined environments: run, listed, checked and built; which definition hides which; and errors.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A home of the test's own, with nothing of this machine's configuration.
struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene { directory: common::open_directory() };
        std::fs::create_dir(scene.path("home")).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn program(&self, name: &str, text: &str) -> String {
        let path = self.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn config(&self, text: &str) -> String {
        self.write("home/.config/cofferdam/config.toml", text)
    }

    /// An artifact whose `bin/run` is this shell script.
    fn artifact(&self, directory: &str, metadata: &Value, script: &str) {
        self.program(&format!("{directory}/bin/run"), &format!("#!/bin/sh\n{script}\n"));
        self.write(&format!("{directory}/metadata.json"), &metadata.to_string());
    }

    fn command(&self) -> Command {
        let mut command = common::cofferdam();
        command.env("HOME", self.path("home")).current_dir(self.directory.path());
        for (name, _) in std::env::vars() {
            let ours = ["COFFERDAM_", "NIX_SANDBOX_", "PROJECT_", "SESSION_", "XDG_"];
            if name != "COFFERDAM_LIBEXEC" && ours.iter().any(|start| name.starts_with(start)) {
                command.env_remove(name);
            }
        }
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    #[track_caller]
    fn expect(&self, arguments: &[&str], code: i32, stdout: &str) -> String {
        expect(self.output(arguments), code, stdout)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        common::parse(&self.output(arguments))
    }
}

#[track_caller]
fn expect(output: Output, code: i32, stdout: &str) -> String {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout, "{message}");
    assert_eq!(output.status.code(), Some(code), "{message}");
    message
}

const REGISTRY: &str = "home/.config/cofferdam/environments";

/// Gives code on to a shell, as an argument or on its standard input.
const ARG: &str = "code=$(cat); exec sh -c \"$code\"";
const PIPE: &str = "exec sh -s";

#[test]
fn both_result_formats_and_both_ways_to_give_code_on_run() {
    let scene = Scene::new();
    let documented = json!({"name": "a", "backend": "jail", "interpreter": "sh -c", "stdin_mode": "arg"});
    scene.artifact("a", &documented, ARG);
    scene.artifact("b", &json!({"name": "b", "interpreter_type": "bash", "timeout_seconds": 5}), PIPE);
    for name in ["./a", "./b"] {
        assert_eq!(scene.expect(&["eval", name, "echo $((6*7)); exit 3"], 3, "42\n"), "");
    }
    let mut child = scene.command();
    let mut child = child.args(["eval", "./b", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    use std::io::Write as _;
    child.stdin.take().unwrap().write_all(b"echo from stdin").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"from stdin\n");
    let file = scene.write("code.sh", "echo from a file");
    scene.expect(&["eval", "./a", "--file", &file], 0, "from a file\n");
    let message = scene.expect(&["eval", "./a", "echo", "--", "argument"], 125, "");
    assert!(message.contains("takes no arguments"), "{message}");
}

#[test]
fn an_artifact_is_confined_as_its_code_is() {
    let scene = Scene::new();
    scene.artifact("a", &json!({"name": "a", "backend": "jail"}), PIPE);
    let (own, beside) = (scene.text("a/metadata.json"), scene.write("beside", "secret\n"));
    // Its own directory can be read and not written, what is beside it cannot be seen; the workspace takes writes.
    scene.expect(
        &["eval", "./a", &format!("wc -l < {own} >&2 && cat {own} > /workspace/copy && echo read")],
        0,
        "read\n",
    );
    let message = scene.expect(&["eval", "./a", &format!("echo x >> {own}")], 2, "");
    assert!(message.contains("Read-only file system") || message.contains("Permission denied"), "{message}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), json!({"name": "a", "backend": "jail"}).to_string());
    let message = scene.expect(&["eval", "./a", &format!("cat {beside}")], 1, "");
    assert!(message.contains("No such file"), "{message}");
    scene.expect(&["eval", "-v", &format!("{beside}:{beside}"), "./a", &format!("cat {beside}")], 0, "secret\n");
    let inside = "pwd; echo $HOME $TMPDIR $TERM; echo x > file && cat file; grep -c : /proc/net/dev";
    scene.expect(&["eval", "./a", inside], 0, "/workspace\n/workspace /workspace dumb\nx\n1\n");
}

#[test]
fn credentials_stay_hidden_below_the_directory_of_an_artifact() {
    let scene = Scene::new();
    let run = format!("exec {} -c \"$(cat)\"", common::PYTHON);
    scene.artifact("home/.config", &json!({"name": "c"}), &run);
    let (secret, plain) = (scene.write("home/.config/gh/hosts.yml", "token"), scene.write("home/.config/x/y", "words"));
    let read = |path: &str| format!("print(open({path:?}).read())");
    scene.expect(&["eval", "./home/.config", &read(&plain)], 0, "words\n");
    let message = scene.expect(&["eval", "./home/.config", &read(&secret)], 1, "");
    assert!(message.contains("PermissionError") || message.contains("FileNotFoundError"), "{message}");
}

#[test]
fn preset_without_interpreter_is_listed_with_an_install_hint() {
    let scene = Scene::new();
    let output = scene.command().env("PATH", "/nowhere").args(["environment", "list", "--json"]).output().unwrap();
    let rows = common::parse(&output);
    let node = rows.as_array().unwrap().iter().find(|row| row["name"] == "node").unwrap();
    assert_eq!(node["available"], false);
    assert!(node["reason"].as_str().unwrap().contains("apt-get install nodejs"), "{node}");
    let rows = scene.json(&["environment", "list", "--json"]);
    let shell = rows.as_array().unwrap().iter().find(|row| row["name"] == "shell").unwrap();
    assert_eq!(shell["available"], true);
}

#[test]
fn the_memory_that_an_artifact_gives_itself_is_held() {
    let scene = Scene::new();
    let run = format!("exec {} -c \"$(cat)\"", common::PYTHON);
    scene.artifact("a", &json!({"name": "a", "memory_mb": 64}), &run);
    let fill = |mib: u32| format!("import time; x = bytearray({mib} << 20); time.sleep(0.5); print(len(x) >> 20)");
    scene.expect(&["eval", "./a", &fill(16)], 0, "16\n");
    let outcome = scene.json(&["eval", "--json", "./a", &fill(300)]);
    assert_eq!(
        (&outcome["outcome"], &outcome["limit"]),
        (&json!("limit_exceeded"), &json!("limits.memory_mb")),
        "{outcome}"
    );
}

#[test]
fn limits_of_call_override_definition_and_artifact() {
    let scene = Scene::new();
    scene.artifact("a", &json!({"name": "a", "timeout_seconds": 11, "memory_mb": 111}), PIPE);
    scene.config("[environments.a]\nsandbox = \"../../../a\"\ntimeout_seconds = 22\nnetwork = \"loopback\"\n");
    let limits = |arguments: &[&str]| {
        let policy = scene.json(arguments)["policy"].clone();
        let limits = &policy["limits"];
        (limits["wall_ms"].clone(), limits["memory_mb"].clone(), policy["network"]["mode"].clone())
    };
    let is = |wall: u64, memory: u64, network: &str| (json!(wall), json!(memory), json!(network));
    assert_eq!(limits(&["eval", "--dry-run", "./a", "x"]), is(11_000, 111, "none"));
    assert_eq!(limits(&["eval", "--dry-run", "a", "x"]), is(22_000, 111, "loopback"));
    let called = [
        "eval",
        "--dry-run",
        "--timeout",
        "33s",
        "--memory",
        "333m",
        "--best-effort=limits.memory_mb",
        "--network",
        "none",
        "a",
        "x",
    ];
    assert_eq!(limits(&called), is(33_000, 333, "none"));
    scene.config("[environments.a]\nsandbox = \"../../../a\"\ntimeout_seconds = 1\n");
    scene.expect(&["eval", "a", "sleep 20"], 124, "");
}

#[test]
fn dropped_in_artifact_is_used_and_a_bad_one_affects_no_other() {
    let scene = Scene::new();
    let said = scene.expect(&["eval", "late", "echo hi"], 125, "");
    assert!(said.contains("no environment is called `late`") && said.contains("node, python, shell"), "{said}");
    scene.artifact(&format!("{REGISTRY}/late"), &json!({"name": "late"}), PIPE);
    scene.expect(&["eval", "late", "echo hi"], 0, "hi\n");
    scene.write(&format!("{REGISTRY}/bad/metadata.json"), "{\"name\": \"other\", \"timeout_seconds\": \"long\"}");
    scene.artifact(&format!("{REGISTRY}/python"), &json!({"name": "python"}), "echo own; cat");
    scene.expect(&["eval", "late", "echo hi"], 0, "hi\n");
    scene.expect(&["eval", "python", "code"], 0, "own\ncode");
    let message = scene.expect(&["eval", "bad", "x"], 125, "");
    for part in ["timeout_seconds: is a string", "bin/run: is not there", "is not whole"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let rows = scene.json(&["environment", "list", "--json"]);
    let of = |name: &str| rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!((of("late")["available"].clone(), of("bad")["broken"].clone()), (json!(true), json!(true)));
    assert_eq!(of("python")["source"], "registry");
    let all = scene.json(&["environment", "list", "--all", "--json"]);
    let hidden: Vec<&Value> = all.as_array().unwrap().iter().filter(|row| row["hidden_by"].is_string()).collect();
    assert_eq!((hidden.len(), &hidden[0]["name"], &hidden[0]["source"]), (1, &json!("python"), &json!("built in")));
    let output = scene.output(&["environment", "check"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("bad/metadata.json: timeout_seconds") && !message.contains("late"), "{message}");
    std::fs::remove_dir_all(scene.path(&format!("{REGISTRY}/bad"))).unwrap();
    scene.expect(&["environment", "check"], 0, "4 environments are right\n");
    scene.expect(&["environment", "check", &scene.text(&format!("{REGISTRY}/late"))], 0, "1 environment is right\n");
}

#[test]
fn mistake_in_configuration_disables_only_what_it_may_define() {
    let scene = Scene::new();
    let file = scene.config("[environments.python]\npreset = \"pithon\"\n[environments.x]\npreset = \"shell\"\n");
    let message = scene.expect(&["eval", "python", "1"], 125, "");
    assert!(
        message.contains(&format!("{file}:2: environments.python.preset: `pithon` is not known; accepted: python")),
        "{message}"
    );
    scene.expect(&["eval", "x", "echo hi"], 0, "hi\n");
    scene.expect(&["eval", "shell", "echo hi"], 0, "hi\n");
    scene.config("[environments.python\npreset = \"python\"\n");
    let message = scene.expect(&["eval", "shell", "echo hi"], 125, "");
    assert!(message.contains("config.toml:1") && message.contains("cofferdam environment check"), "{message}");
    scene.artifact("a", &json!({"name": "a"}), PIPE);
    scene.expect(&["eval", "./a", "echo hi"], 0, "hi\n");
    let good = scene.write("good.toml", "[environments.x]\npreset = \"shell\"\n");
    scene.expect(&["eval", "--config", &good, "x", "echo hi"], 0, "hi\n");
    scene.expect(&["environment", "check", &good], 0, "1 environment is right\n");
    let message = scene.expect(&["environment", "check", &scene.text("none.toml")], 1, "");
    assert!(message.contains("none.toml: cannot be looked at"), "{message}");
    // A file that is checked by itself is judged as one that is in force.
    let wrong = scene.write("project.toml", "[project]\npath = \"/no/such/place\"\n[defaults]\nfoo = 1\n");
    for arguments in [&["environment", "check", &wrong][..], &["environment", "check", "--config", &wrong]] {
        let message = scene.expect(arguments, 1, "");
        assert!(message.contains("project.path: cannot be looked at"), "{arguments:?}: {message}");
        assert!(message.contains("defaults.foo is not applied"), "{arguments:?}: {message}");
    }
    let here = scene.write("here.toml", "[project]\npath = \"/usr\"\n");
    assert_eq!(scene.expect(&["environment", "check", &here], 0, "0 environments are right\n"), "");
    scene.expect(&["run", "--", "true"], 0, "");
}

/// Code that writes the project must not write what decides about later runs, by another name of it.
#[test]
fn a_configuration_with_another_name_is_refused_with_a_writable_project() {
    let scene = Scene::new();
    let tree = scene.path("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::set_permissions(&tree, std::fs::Permissions::from_mode(0o777)).unwrap();
    let text = |access: &str| {
        let project = format!("[project]\npath = \"{}\"\naccess = \"{access}\"\n", tree.display());
        format!("[environments.x]\npreset = \"shell\"\n{project}")
    };
    let linked = scene.write("linked.toml", &text("rw"));
    let run = |file: &str, code, out: &str| scene.expect(&["eval", "--config", file, "x", "echo hi"], code, out);
    run(&linked, 0, "hi\n");
    std::fs::hard_link(&linked, tree.join("other")).unwrap();
    let message = run(&linked, 125, "");
    assert!(message.contains("linked.toml from being written: it has other hard links"), "{message}");
    let copied = scene.write("copied.toml", &text("cow"));
    std::fs::hard_link(&copied, tree.join("copied")).unwrap();
    run(&copied, 0, "hi\n");
    // The metadata of a wrapper decide as well.
    let metadata = scene.write("metadata.json", &json!({"project": {"path": tree}, "environments": {}}).to_string());
    let bundled = |access: &str| {
        let mut command = scene.command();
        command.env("COFFERDAM_METADATA", &metadata).env("COFFERDAM_PROJECT_ACCESS", access);
        command.args(["eval", "shell", "pwd >/dev/null; echo hi"]).output().unwrap()
    };
    expect(bundled("rw"), 0, "hi\n");
    std::fs::hard_link(&metadata, tree.join("metadata")).unwrap();
    let message = expect(bundled("rw"), 125, "");
    assert!(message.contains("metadata.json from being written: it has other hard links"), "{message}");
    expect(bundled("cow"), 0, "hi\n");
}

#[test]
fn unavailable_environment_gives_its_reason_and_no_fallback() {
    let scene = Scene::new();
    scene.artifact("vm", &json!({"name": "vm", "backend": "microvm", "microvm": {"vcpus": 2}}), PIPE);
    scene.artifact("nested", &json!({"name": "nested"}), "exec bwrap --ro-bind / / sh -s");
    let registry = scene.path(REGISTRY);
    std::fs::create_dir_all(&registry).unwrap();
    std::os::unix::fs::symlink(scene.path("vm"), registry.join("vm")).unwrap();
    std::os::unix::fs::symlink(scene.path("nested"), registry.join("nested")).unwrap();
    scene.config("[environments.python]\nimage = \"python:3\"\nbackend = \"microvm\"\n");
    for (name, reason) in [
        ("vm", "no backend runs virtual machines"),
        ("nested", "its bin/run calls bwrap"),
        ("python", "its backend is `microvm`"),
    ] {
        let message = scene.expect(&["eval", name, "echo no"], 125, "");
        assert!(message.contains(reason) && message.contains("is not available"), "{message}");
        let output = scene.output(&["environment", "list"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains(reason));
    }
    assert_eq!(scene.output(&["environment", "check"]).status.code(), Some(0), "nothing of it is wrong");
}

#[test]
fn artifact_is_refused_by_a_backend_that_lacks_its_needs() {
    let scene = Scene::new();
    scene.artifact("box", &json!({"name": "box", "interpreter": "sh"}), PIPE);
    let define = |backend: &str| {
        scene.config(&format!("[environments.box]\nsandbox = {:?}\nbackend = {backend:?}\n", scene.text("box")));
    };
    define("jail");
    assert_eq!(scene.expect(&["eval", "box", "echo ran"], 0, "ran\n"), "");
    let mut refused = vec![("landlock", "a tmpfs needs mounts, which the landlock backend has not")];
    // Where it is missing, that would be the reason.
    if common::needs_bubblewrap() {
        refused.push(("bubblewrap", "bubblewrap has no noexec, so what is written to a tmpfs can be executed"));
    }
    for (backend, reason) in refused {
        define(backend);
        for arguments in [&["eval", "box", "echo ran"][..], &["eval", "--backend", backend, "./box", "echo ran"]] {
            let message = scene.expect(arguments, 125, "");
            assert!(message.contains(reason), "{backend}: {message}");
        }
        let rows = scene.json(&["environment", "list", "--json"]);
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == "box").unwrap();
        assert_eq!(row["available"], false, "{row}");
        assert!(row["reason"].as_str().unwrap().contains(reason), "{row}");
    }
}

/// A tree with a shell in it, as an image has one.
fn image(scene: &Scene) -> String {
    for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        std::fs::create_dir_all(scene.path("image").join(name)).unwrap();
    }
    std::fs::set_permissions(scene.path("image/tmp"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    std::fs::copy("/bin/busybox", scene.path("image/bin/busybox")).unwrap();
    for name in ["sh", "cat", "touch"] {
        std::os::unix::fs::symlink("busybox", scene.path("image/bin").join(name)).unwrap();
    }
    scene.write("image/etc/mark", "of the image\n");
    scene.text("image")
}

#[test]
fn image_is_the_root_of_its_environment_and_its_shell_runs() {
    let scene = Scene::new();
    image(&scene);
    let victim = scene.write("victim", "of the host\n");
    scene.config(
        "[environments.box]\nimage = \"../../../image\"\nbackend = \"oci:crun\"\n\
         [environments.jailed]\nimage = \"../../../image\"\nbackend = \"jail\"\n\
         [environments.python]\nimage = \"../../../image\"\nbackend = \"jail\"\ninterpreter = \"python3 -c\"\n\
         [environments.named]\nimage = \"alpine:3\"\nbackend = \"jail\"\n",
    );
    let state = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        scene.command().env("COFFERDAM_STATE", state.path()).arg("eval").args(arguments).output().unwrap()
    };
    let rows = scene.json(&["environment", "list", "--json"]);
    let row = |name: &str| rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap().clone();
    assert_eq!((&row("box")["available"], &row("named")["broken"]), (&json!(true), &json!(true)));
    let code = format!(
        "cat /etc/mark; cat {victim} 2>/dev/null || echo none; touch /etc/x 2>/dev/null; touch /tmp/x && echo made"
    );
    let mut environments = vec!["jailed"];
    if String::from_utf8_lossy(&run(&["--dry-run", "box", "true"]).stderr).contains("is not installed") {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "crun must work here");
        eprintln!("skipped: no crun");
    } else {
        environments.push("box");
    }
    for name in environments {
        expect(run(&[name, &code]), 0, "of the image\nnone\nmade\n");
        assert!(!scene.path("image/etc/x").exists(), "{name}: the image was written to");
        // Control: a path that the call shows is visible.
        let shown = format!("{victim}:/tmp/victim");
        expect(run(&["-v", &shown, name, "cat /etc/mark /tmp/victim"]), 0, "of the image\nof the host\n");
        let long = format!("echo long #{}", "x".repeat(200_000));
        let file = scene.write("long.sh", &long);
        let mut fed = scene.command();
        fed.env("COFFERDAM_STATE", state.path()).args(["eval", name, "-"]).stdin(std::fs::File::open(&file).unwrap());
        expect(fed.output().unwrap(), 0, "long\n");
    }
    let message = expect(run(&["python", "print(1)"]), 127, "");
    assert!(message.contains("python3"), "an interpreter that the image has not: {message}");
    let message = expect(run(&["named", "true"]), 125, "");
    assert!(
        message.contains("environments.named.backend: `jail` makes no containers") && message.contains("docker"),
        "{message}"
    );
    // An option's root comes last, and with it the host's own interpreter.
    expect(run(&["--root", "minimal", "jailed", "test -e /etc/mark || echo not the image"]), 0, "not the image\n");
}

#[test]
fn a_directory_named_as_an_image_runs_its_own_interpreter() {
    let scene = Scene::new();
    let image = image(&scene);
    let run =
        |options: &[&str], words: &[&str]| scene.output(&[&["eval", "--backend", "jail"], options, words].concat());
    expect(run(&["--image", &image], &["shell", "cat /etc/mark"]), 0, "of the image\n");
    expect(run(&["--image", "./image"], &["shell", "cat /etc/mark"]), 0, "of the image\n");
    let message = expect(run(&["--image", &image], &["python", "print(1)"]), 127, "");
    assert!(message.contains("python3: ") && !message.contains("mount target"), "{message}");
    let message = expect(run(&["--image", &image, "--root", "minimal"], &["shell", "true"]), 125, "");
    assert!(message.contains("--image") && message.contains("--root"), "{message}");
    expect(run(&["--root", "minimal"], &["shell", "echo one"]), 0, "one\n");
}

#[test]
fn a_call_of_bubblewrap_that_is_not_seen_is_refused_by_the_jail() {
    if !common::needs_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    scene.artifact("a", &json!({"name": "a"}), "exec \"${0%/*}/inner\"");
    scene.program("a/bin/inner", "#!/bin/sh\nexec bwrap --ro-bind / / --proc /proc sh -s\n");
    let output = scene.output(&["eval", "./a", "echo inside"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty() && message.contains("bwrap: "), "{message}");
    scene.program("a/bin/inner", "#!/bin/sh\ncommand -v bwrap >&2 && exec sh -s\n");
    let message = scene.expect(&["eval", "./a", "echo inside"], 0, "inside\n");
    assert!(message.contains("bwrap"), "the program was there: {message}");
}

#[test]
fn bundled_environments_run_and_override_only_presets() {
    let scene = Scene::new();
    let run = scene.program("wrapped/run", "#!/bin/sh\nexec sh -s\n");
    let beside = scene.write("wrapped/beside", "secret\n");
    let exec =
        json!({"backend": "jail", "exec": run, "timeout_seconds": 9, "memory_mb": 99, "interpreter_type": "bash"});
    let metadata = json!({"environments": {"python": exec, "own": exec}}).to_string();
    let eval = |arguments: &[&str]| {
        scene.command().env("NIX_SANDBOX_METADATA", &metadata).arg("eval").args(arguments).output().unwrap()
    };
    expect(eval(&["own", "echo bundled"]), 0, "bundled\n");
    expect(eval(&["python", "echo bundled"]), 0, "bundled\n");
    let message = expect(eval(&["own", &format!("cat {run} >/dev/null && echo shown; cat {beside}")]), 1, "shown\n");
    assert!(message.contains("No such file"), "{message}");
    let policy = common::parse(&eval(&["--dry-run", "own", "x"]))["policy"].clone();
    assert_eq!((&policy["limits"]["wall_ms"], &policy["limits"]["memory_mb"]), (&json!(9000), &json!(99)));
    scene.config("[environments.own]\npreset = \"shell\"\ndescription = \"configured\"\n");
    let output =
        scene.command().env("NIX_SANDBOX_METADATA", &metadata).args(["environment", "list", "--json"]).output();
    let rows = common::parse(&output.unwrap());
    let own = rows.as_array().unwrap().iter().find(|row| row["name"] == "own").unwrap();
    assert_eq!((&own["source"], &own["description"]), (&json!("configuration"), &json!("configured")));
    let broken = scene.command().env("NIX_SANDBOX_METADATA", "{").args(["eval", "shell", "echo hi"]).output().unwrap();
    assert!(expect(broken, 125, "").contains("NIX_SANDBOX_METADATA: not readable as JSON"));
}

/// A `nix` that writes down what it is given, speaks of progress, and links its result to `built`.
fn nix(scene: &Scene, built: &Path) {
    let text = format!(
        "#!/bin/sh\necho \"building ...\" >&2\necho noise\nprintf '%s\\n' \"$*\" >> {}\nln -sfn {} \"$5\"\n",
        scene.text("said"),
        built.display()
    );
    scene.program("home/bin/nix", &text);
}

fn with_nix(scene: &Scene, arguments: &[&str]) -> Output {
    let path = format!("{}:/usr/bin:/bin", scene.text("home/bin"));
    scene.command().env("PATH", path).args(arguments).output().unwrap()
}

#[test]
fn reference_is_built_once_with_progress_on_stderr() {
    let scene = Scene::new();
    scene.artifact("built", &json!({"name": "portal"}), PIPE);
    scene.config("[environments.portal]\nsandbox = \"github:o/r#portal\"\n");
    let absent = scene.command().env("PATH", "/nowhere").args(["eval", "portal", "x"]).output().unwrap();
    let message = expect(absent, 125, "");
    assert!(message.contains("no `nix` is on PATH") && message.contains("hint: apt-get install nix-bin"), "{message}");
    nix(&scene, &scene.path("built"));
    let message = expect(with_nix(&scene, &["eval", "--dry-run", "portal", "x"]), 125, "");
    assert!(message.contains("not built yet") && message.contains("cofferdam environment build portal"), "{message}");
    assert!(!scene.path("said").exists(), "nothing was started");
    let message = expect(with_nix(&scene, &["eval", "portal", "echo hi"]), 0, "hi\n");
    assert!(
        message.contains("building the environment `portal` from github:o/r#portal")
            && message.contains("building ..."),
        "{message}"
    );
    let said = || std::fs::read_to_string(scene.path("said")).unwrap();
    let link = said().split_whitespace().find(|word| word.starts_with('/')).unwrap().to_owned();
    assert!(link.starts_with(&scene.text("home/.cache/cofferdam/flakes/")), "{link}");
    let line = format!("--extra-experimental-features nix-command flakes build --out-link {link} github:o/r#portal\n");
    assert_eq!(said(), line);
    assert_eq!(expect(with_nix(&scene, &["eval", "portal", "echo again"]), 0, "again\n"), "");
    assert_eq!(said(), line, "built once");
    expect(with_nix(&scene, &["environment", "build", "portal"]), 0, "");
    assert_eq!(said(), line.repeat(2));
    // What it comes to is looked at as any artifact.
    scene.write("built/metadata.json", "{\"name\": \"other\"}");
    let message = expect(with_nix(&scene, &["eval", "portal", "x"]), 125, "");
    assert!(message.contains("`other` is not `portal`"), "{message}");
    scene.program("home/bin/nix", "#!/bin/sh\necho \"error: no such flake\" >&2\nexit 1\n");
    let message = expect(with_nix(&scene, &["environment", "build", "portal"]), 125, "");
    assert!(
        message.contains("error: no such flake") && message.contains("`nix build` of github:o/r#portal failed"),
        "{message}"
    );
}

#[test]
fn a_flake_brings_its_own_interpreter() {
    let scene = Scene::new();
    scene.program("package/bin/perl6", "#!/bin/sh\n[ \"$1\" = -e ] && echo \"own: $2 $3\"\n");
    scene.config("[environments.p]\nflake = \"nixpkgs#p\"\ninterpreter = \"perl6 -e\"\n");
    nix(&scene, &scene.path("package"));
    let output = with_nix(&scene, &["eval", "-q", "p", "code", "--", "argument"]);
    expect(output, 0, "own: code argument\n");
}

#[test]
fn a_profile_is_the_policy_of_its_environment() {
    let evaluator = Path::new(env!("CARGO_BIN_EXE_cofferdam")).with_file_name("cofferdam-compile");
    if !evaluator.exists() {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "cofferdam-compile is not built; cargo build -p cofferdam-compile");
        eprintln!("skipped: cofferdam-compile is not built; cargo build -p cofferdam-compile");
        return;
    }
    let scene = Scene::new();
    scene.write(
        "home/.config/cofferdam/p/reader.ncl",
        "let s = import \"sandbox\" in\n\
         s.make_default_config \"reader\" & { network_policy = \"deny\", cmd = [\"/bin/sh\", \"-c\"] }\n",
    );
    scene.config(
        "[environments.reader]\nprofile = \"p/reader.ncl\"\ntimeout_seconds = 7\n\
         [environments.none]\nprofile = \"p/none.ncl\"\n",
    );
    scene.expect(&["eval", "-q", "reader", "echo $((6*7))"], 0, "42\n");
    let shown = scene.json(&["environment", "show", "--json", "reader"]);
    assert_eq!(shown["policy"]["limits"]["wall_ms"], 7000);
    assert_eq!(shown["passing"], "to the command of its profile");
    let message = scene.expect(&["eval", "none", "x"], 125, "");
    assert!(message.contains("environments.none.profile") && message.contains("none.ncl"), "{message}");
    let message = scene.expect(&["eval", "--profile", "x.ncl", "reader", "x"], 125, "");
    assert!(message.contains("both be what the call starts from"), "{message}");
}

#[test]
fn the_project_is_shown_read_only_to_defined_environments() {
    let scene = Scene::new();
    let file = scene.write("project/readme", "words\n");
    scene.config(
        "[environments.sh]\npreset = \"shell\"\n[project]\ninherit_env = [\"MINE\"]\npath = \"../../../project\"\n",
    );
    let read = "cat /project/readme && echo $MINE && ! echo x > /project/readme";
    let output = scene.command().env("MINE", "value").args(["eval", "sh", read]).output().unwrap();
    let message = expect(output, 0, "words\nvalue\n");
    assert!(message.contains("Read-only file system"), "{message}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "words\n");
    let elsewhere = scene.command().env("PROJECT_MOUNT", "/srv/p").args(["eval", "sh", "cat /srv/p/readme"]).output();
    expect(elsewhere.unwrap(), 0, "words\n");
    let other = scene.text("home");
    let output = scene.command().env("COFFERDAM_PROJECT_DIR", other).args(["eval", "sh", "ls -A /project"]).output();
    expect(output.unwrap(), 0, ".config\n");
    // A preset that nothing defines is as it always was.
    let output =
        scene.command().env("PROJECT_DIR", scene.path("project")).args(["eval", "shell", "ls /project"]).output();
    assert_ne!(output.unwrap().status.code(), Some(0));
}

#[test]
fn the_list_says_of_a_broken_configuration_what_eval_says() {
    let scene = Scene::new();
    let ready = |scene: &Scene| {
        let rows = scene.json(&["environment", "list", "--json"]);
        let shell = rows.as_array().unwrap().iter().find(|row| row["name"] == "shell").unwrap().clone();
        (shell["available"].as_bool().unwrap(), shell["reason"].as_str().unwrap_or_default().to_owned())
    };
    scene.config("[environments.mine]\npreset = \"shell\"\n");
    assert_eq!(ready(&scene), (true, String::new()));
    scene.expect(&["eval", "shell", "echo x"], 0, "x\n");
    let configuration = scene.path("home/.config/cofferdam/config.toml");
    scene.config("[environments.mine\n");
    for what in ["a mistake", "a directory"] {
        if what == "a directory" {
            std::fs::remove_file(&configuration).unwrap();
            std::fs::create_dir(&configuration).unwrap();
        }
        let message = scene.expect(&["eval", "shell", "echo x"], 125, "");
        assert!(message.contains("what defines environments has mistakes"), "{what}: {message}");
        let (available, reason) = ready(&scene);
        assert!(!available && reason.contains("what defines environments has mistakes"), "{what}: {reason}");
        let output = scene.output(&["environment", "list"]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("ready") && text.contains("unavailable"), "{what}: {text}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("config.toml"), "the error is reported");
    }
}

/// Characters with which a description could add rows, control a terminal, reverse text, or be invisible.
const FORGED: &str =
    "fine\nfake  preset   built in  ready  all is well\u{1b}[2J\u{202e}\u{2028}\u{200b}\u{feff}\u{e0041}end";

#[test]
fn foreign_names_and_descriptions_stay_on_one_escaped_line() {
    let scene = Scene::new();
    scene.artifact(&format!("{REGISTRY}/forged"), &json!({"name": "forged", "description": FORGED}), PIPE);
    scene.artifact(&format!("{REGISTRY}/plain"), &json!({"name": "plain", "description": "it’s “é” – …"}), PIPE);
    let out = |arguments: &[&str]| String::from_utf8(scene.output(arguments).stdout).unwrap();
    for text in [out(&["environment", "list"]), out(&["environment", "show", "forged"])] {
        assert!(!text.chars().any(|c| c != '\n' && cofferdam_policy::text::steers(c)), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("fake")), "{text}");
        assert!(text.contains("\\nfake") && text.contains("\\u{202e}") && text.contains("\\u{e0041}end"), "{text}");
    }
    assert!(out(&["environment", "list"]).contains("it’s “é” – …"), "what people write stays");
    let listed = out(&["environment", "list", "--json"]);
    assert!(!listed.chars().any(|c| c != '\n' && cofferdam_policy::text::steers(c)), "{listed:?}");
    assert!(listed.contains("\\u202e") && listed.contains("it’s “é” – …"), "{listed}");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    assert!(rows.iter().any(|row| row["description"] == FORGED), "JSON keeps its value: {listed}");
    let said = scene.expect(&["eval", "e\nv\u{202e}", "true"], 125, "");
    assert!(said.contains("no environment is called `e\\nv\\u{202e}`"), "{said}");
}

#[test]
fn environment_is_ready_exactly_where_its_calls_can_start() {
    let scene = Scene::new();
    scene.config(
        "[environments.plain]\npreset = \"shell\"\n\
         [environments.named]\nimage = \"alpine:3\"\n\
         [environments.daemon]\npreset = \"shell\"\nbackend = \"docker\"\n\
         [environments.jailed]\npreset = \"shell\"\nbackend = \"nsjail\"\n\
         [environments.small]\npreset = \"shell\"\nmemory_mb = 64\n\
         [environments.shared]\npreset = \"shell\"\nmemory_mb = 64\nnetwork = \"host\"\n",
    );
    // Programs and engines that this host may have are out of the way.
    let run = |arguments: &[&str]| {
        let mut command = scene.command();
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").env("COFFERDAM_NSJAIL", "/nowhere/nsjail");
        command.args(arguments).output().unwrap()
    };
    let rows = common::parse(&run(&["environment", "list", "--json"]));
    let mut unusable = 0;
    for name in ["plain", "named", "daemon", "jailed", "small", "shared"] {
        let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
        let call = run(&["eval", name, "echo ran"]);
        let stderr = String::from_utf8_lossy(&call.stderr).into_owned();
        assert_eq!(row["available"] == true, call.stdout == b"ran\n", "{name}: {row}, and the call: {stderr}");
        assert_eq!(row["broken"], false, "{name}");
        if row["available"] == false {
            unusable += 1;
            let reason = row["reason"].as_str().unwrap();
            let said = stderr.lines().next().unwrap().trim_start_matches("cofferdam: error: ");
            assert!(reason.starts_with(said), "{name}: {reason}, and the call: {stderr}");
            let hint = reason.split_once("\nhint: ").map_or("", |(_, hint)| hint);
            assert!(
                !hint.contains("--") && (hint.contains("environments.") || name == "jailed" || name == "daemon"),
                "{reason}"
            );
        }
        let shown = String::from_utf8(run(&["environment", "show", name]).stdout).unwrap();
        assert_eq!(shown.contains("state       ready"), row["available"] == true, "{name}: {shown}");
    }
    let available = |name: &str| rows.as_array().unwrap().iter().any(|r| r["name"] == name && r["available"] == true);
    assert!(available("plain") && !available("named") && !available("daemon") && !available("jailed"), "{rows}");
    let checked = run(&["environment", "check"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "the definitions are right: {text}");
    assert!(text.ends_with(&format!("environments are right, of which {unusable} cannot be used here\n")), "{text}");
    let warned = String::from_utf8(checked.stderr).unwrap();
    assert!(warned.contains("warning: `named` (") && !warned.contains("warning: `plain`"), "{warned}");
}

#[test]
fn hint_for_check_names_the_wrong_definition() {
    let scene = Scene::new();
    let broken = scene.write("other.toml", "[environments.a]\npreset = \"pyton\"\n");
    scene.write("unread.toml", "[environments.a\n");
    scene.program("art/bin/run", "#!/bin/sh\n");
    for (arguments, check, wrong) in [
        (&["eval", "--config", "other.toml", "a", "x"][..], "check --config other.toml", "pyton"),
        (&["eval", "--config", "unread.toml", "a", "x"], "check --config unread.toml", "unclosed table"),
        (&["environment", "show", "--config", "unread.toml", "a"], "check --config unread.toml", "unclosed table"),
        (&["eval", "./art", "x"], "check ./art", "metadata.json"),
    ] {
        let stderr = scene.expect(arguments, 125, "");
        let hint = stderr.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap_or_else(|| panic!("{stderr}"));
        let line = hint.split_once(": cofferdam ").unwrap_or_else(|| panic!("{hint}")).1;
        assert_eq!(line, format!("environment {check}"), "{stderr}");
        // What the hint says finds the mistake.
        let words: Vec<&str> = line.split(' ').collect();
        let output = scene.output(&words);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(wrong), "{line}");
    }
    let list = scene.output(&["environment", "list", "--config", "unread.toml"]);
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("cofferdam environment check --config unread.toml"), "{list}");
    let stderr = scene.expect(&["eval", "--config", &scene.write("good.toml", ""), "lua", "x"], 125, "");
    assert!(stderr.contains("cofferdam environment list --config "), "{stderr}");
    // The control: without --config the plain command is the right one.
    scene.config(&std::fs::read_to_string(broken).unwrap());
    let stderr = scene.expect(&["eval", "a", "x"], 125, "");
    assert!(stderr.ends_with("look at it with: cofferdam environment check\n"), "{stderr}");
    // A file that is right says so.
    let good = scene.write("good.toml", "[environments.a]\npreset = \"python\"\n");
    scene.expect(&["environment", "check", &good], 0, "1 environment is right\n");
}
