//! Environments that Nix makes: the flake at the root is evaluated and built by a real Nix, and what it makes runs.
//!
//! No network: the package set is a stand-in (`nix/tests/stand-in`), and every builder is /bin/sh. The store, with Nix's
//! state and configuration, is a directory of the test's own; the machine's /nix is neither needed nor touched.

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// The flake's source and a Nix of the test's own.
struct Nix {
    directory: tempfile::TempDir,
}

const CONFIGURATION: &str = "experimental-features = nix-command flakes\nsandbox = false\nbuild-users-group =\n\
                             substituters =\nflake-registry =\nwarn-dirty = false\n";

impl Nix {
    /// `None` where there is no Nix, which is said.
    fn new() -> Option<Nix> {
        if Command::new("nix").arg("--version").output().is_err() {
            let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
            assert!(!must, "there is no nix; apt-get install nix-bin");
            eprintln!("skipped: there is no nix; apt-get install nix-bin");
            return None;
        }
        let nix = Nix { directory: common::open_directory() };
        for name in ["conf", "home", "bin", "flake/nix"] {
            fs::create_dir_all(nix.path(name)).unwrap();
        }
        fs::write(nix.path("conf/nix.conf"), CONFIGURATION).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["flake.nix", "Cargo.toml", "Cargo.lock"] {
            fs::copy(root.join(name), nix.path("flake").join(name)).unwrap();
        }
        copy(&root.join("nix"), &nix.path("flake/nix"));
        symlink(env!("CARGO_BIN_EXE_cofferdam"), nix.path("bin/cofferdam")).unwrap();
        Some(nix)
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A program with nothing of this machine's Nix or environments around it.
    fn around(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let ours = ["COFFERDAM_", "NIX_", "PROJECT_", "SESSION_", "XDG_"];
        for (name, _) in std::env::vars() {
            if name != "COFFERDAM_LIBEXEC" && ours.iter().any(|start| name.starts_with(start)) {
                command.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap();
        command
            .env("HOME", self.path("home"))
            .env("PATH", format!("{}:{path}", self.text("bin")))
            .envs([("NIX_STORE_DIR", "store"), ("NIX_STATE_DIR", "state")].map(|(name, at)| (name, self.text(at))))
            .envs([("NIX_LOG_DIR", "log"), ("NIX_CONF_DIR", "conf")].map(|(name, at)| (name, self.text(at))))
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Nix with the stand-in as the flake's package set.
    fn nix(&self, arguments: &[&str]) -> Output {
        let stand_in = format!("path:{}", self.text("flake/nix/tests/stand-in"));
        let mut command = self.around("nix");
        command.args(arguments).args(["--override-input", "nixpkgs", &stand_in, "--no-write-lock-file"]);
        command.output().unwrap()
    }

    fn flake(&self, what: &str) -> String {
        format!("path:{}{what}", self.text("flake"))
    }

    /// Builds an output of the flake, linked at `result`.
    fn build(&self, what: &str) -> PathBuf {
        said(&self.nix(&["build", "--out-link", &self.text("result"), &self.flake(what)]));
        self.path("result")
    }

    fn cofferdam(&self, arguments: &[&str]) -> Output {
        self.around("cofferdam").args(arguments).output().unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// What it printed; it must have succeeded.
#[track_caller]
fn said(output: &Output) -> String {
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr_text}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs this program with this on its standard input.
fn fed(command: &mut Command, input: &[u8]) -> Output {
    use std::io::Write as _;
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    match child.stdin.take().unwrap().write_all(input) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => panic!("{error}"),
        _ => {} // it ended without reading, which its caller looks at
    }
    child.wait_with_output().unwrap()
}

#[test]
fn the_flake_holds_its_own_checks() {
    let Some(nix) = Nix::new() else { return };
    said(&nix.nix(&["flake", "check", "--no-build", &nix.flake("")]));
    let system = said(&nix.nix(&["eval", "--impure", "--raw", "--expr", "builtins.currentSystem"]));
    nix.build(&format!("#checks.{system}.artifacts"));
    // The checks really compare the fields: a different field is reported.
    let lib = nix.path("flake/nix/lib/mkSandbox.nix");
    let text = fs::read_to_string(&lib).unwrap();
    assert!(text.contains("memory_mb ? 512"));
    fs::write(&lib, text.replace("memory_mb ? 512", "memory_mb ? 513")).unwrap();
    let failed = nix.nix(&["build", "--no-link", "-L", &nix.flake(&format!("#checks.{system}.artifacts"))]);
    let stderr_text = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && stderr_text.contains("\"memory_mb\":513"), "{stderr_text}");
}

#[test]
fn an_artifact_of_nix_has_the_layout_and_runs_without_a_server() {
    let Some(nix) = Nix::new() else { return };
    let result = nix.build("#testSandbox");
    let metadata: Value = serde_json::from_slice(&fs::read(result.join("metadata.json")).unwrap()).unwrap();
    let is = json!({
        "name": "test-sandbox", "backend": "jail", "interpreter": "python3 -c", "stdin_mode": "arg",
        "timeout_seconds": 30, "memory_mb": 512, "description": "Python, for tests", "session_agent": "python",
    });
    assert_eq!(metadata, is);
    let run = result.join("bin/run");
    assert!(fs::metadata(&run).unwrap().permissions().mode() & 0o111 != 0);
    assert_eq!(said(&fed(&mut nix.around(&run), b"print(\"hello\")")), "hello\n");
    // It is walled in: what its caller can read, it cannot.
    nix.write("secret", "secret");
    let read = format!("print(open({:?}).read())", nix.text("secret"));
    let stderr_text = fed(&mut nix.around(&run), read.as_bytes());
    assert!(String::from_utf8_lossy(&stderr_text.stderr).contains("FileNotFoundError"), "{stderr_text:?}");
    // The project is shown where the environment says, when its caller names one.
    let project = read.replace(&nix.text(""), "/project/");
    let shown = fed(nix.around(&run).env("PROJECT_DIR", nix.path("")), project.as_bytes());
    assert_eq!(said(&shown), "secret\n");
    // What makes the sandbox is missing: it says so, and runs nothing.
    let alone = fed(nix.around(&run).env("PATH", "/usr/bin:/bin"), b"print(\"hello\")");
    let stderr_text = String::from_utf8_lossy(&alone.stderr);
    assert_eq!((alone.status.code(), alone.stdout.len()), (Some(125), 0), "{stderr_text}");
    assert!(
        stderr_text.contains("no sandbox around this program") && stderr_text.contains("hint: install cofferdam"),
        "{stderr_text}"
    );
    // Code arrives unchanged, with its last lines, and code too long for an argument is refused.
    let exact = "import sys\nprint(repr('''a\n\n'''), end='')\n\n";
    assert_eq!(said(&fed(&mut nix.around(&run), exact.as_bytes())), "'a\\n\\n'");
    let nul = fed(&mut nix.around(&run), b"print(1)\0print(2)");
    assert_eq!((nul.status.code(), nul.stdout.len()), (Some(65), 0), "{nul:?}");
}

/// Answers of the server's `run`, one for each call. `before` runs ahead of each.
fn served(server: &mut Command, calls: &[Value], before: impl Fn(usize)) -> Vec<Value> {
    let client =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let (mut input, mut lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let mut ask = |id: usize, method: &str, params: &Value| -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{message}").unwrap();
        loop {
            let answer: Value = serde_json::from_str(&lines.next().expect("an answer").unwrap()).unwrap();
            if answer["id"] == id {
                return answer["result"].clone();
            }
        }
    };
    ask(1, "initialize", &client);
    let mut answers = Vec::new();
    for (index, arguments) in calls.iter().enumerate() {
        before(index);
        answers.push(ask(index + 2, "tools/call", &json!({ "name": "run", "arguments": arguments })));
    }
    drop(input);
    child.wait().unwrap();
    answers
}

#[test]
fn environments_of_nix_keep_the_state_of_sessions() {
    let Some(nix) = Nix::new() else { return };
    let result = nix.build("#testSandbox");
    let registry = nix.path("home/.config/cofferdam/environments");
    fs::create_dir_all(&registry).unwrap();
    symlink(fs::canonicalize(result).unwrap(), registry.join("test-sandbox")).unwrap();
    let stand_in = nix.text("flake/nix/tests/stand-in");
    let base = format!(
        "((builtins.getFlake \"{}\").lib.on (builtins.getFlake \"path:{stand_in}\").legacyPackages.x86_64-linux)",
        nix.flake(""),
    );
    let flake = fs::read_to_string(nix.path("flake/flake.nix")).unwrap();
    nix.write("flake/flake.nix", &flake.replace("github:NixOS/nixpkgs/nixos-unstable", &format!("path:{stand_in}")));
    said(&nix.around("nix").args(["flake", "lock"]).current_dir(nix.path("flake")).output().unwrap());
    // With one argument or two, it is a package.
    for arguments in ["\"/x.toml\"", "\"x86_64-linux\" \"/x.toml\""] {
        let expression = format!("(builtins.getFlake \"{}\").lib.mkServer {arguments}", nix.flake(""));
        let evaluate = |expression: &str| {
            said(&nix.around("nix").args(["eval", "--impure", "--raw", "--expr", expression]).output().unwrap())
        };
        assert_eq!(evaluate(&format!("({expression}).type")).trim(), "derivation", "{arguments}");
        assert!(evaluate(&format!("({expression}).text")).contains("/x.toml"), "{arguments}");
    }
    // A server with the base environments, as a program of Nix's: what it knows is what its text says.
    let expression = format!("({base}.mkServer \"/nowhere.toml\").text");
    let text = said(&nix.around("nix").args(["eval", "--impure", "--raw", "--expr", &expression]).output().unwrap());
    let metadata = text.split_once("COFFERDAM_METADATA='").unwrap().1.split_once("'\n").unwrap().0.to_owned();
    let read: Value = serde_json::from_str(&metadata).unwrap();
    for name in ["python", "shell"] {
        let program = read["environments"][name]["session_exec"].as_str().unwrap();
        assert!(program.ends_with("/bin/session-run"), "{program}");
        let artifact = program.strip_suffix("/bin/session-run").unwrap();
        let expression = format!(
            "(import {}/nix/lib/baseEnvironments.nix {{ pkgs = (builtins.getFlake \"path:{stand_in}\")\
             .legacyPackages.x86_64-linux; jail = null; presets = null; }}).artifacts.{name}",
            nix.text("flake")
        );
        said(&nix.around("nix").args(["build", "--impure", "--no-link", "--expr", &expression]).output().unwrap());
        assert!(Path::new(artifact).join("bin/session-run").exists(), "{artifact}");
    }
    let mut environments = read.clone();
    environments["environments"].as_object_mut().unwrap().retain(|name, _| name != "node");
    let mut calls = Vec::new();
    for (env, first, second) in [
        ("test-sandbox", "x = 41", "print(x + 1)"),
        ("python", "x = 41", "print(x + 1)"),
        ("shell", "x=41", "echo $((x + 1))"),
    ] {
        calls.push(json!({ "env": env, "session": env, "code": first }));
        calls.push(json!({ "env": env, "session": env, "code": second }));
    }
    let mut server = nix.around("cofferdam");
    let answers = served(server.arg("mcp").env("COFFERDAM_METADATA", environments.to_string()), &calls, |_| {});
    for pair in answers.chunks(2) {
        assert_eq!(pair[0]["isError"], false, "{}", pair[0]);
        assert_eq!(pair[1]["structuredContent"]["stdout"], "42\n", "{}", pair[1]);
    }
}

#[test]
fn artifact_with_another_name_is_reported_as_a_mistake() {
    let Some(nix) = Nix::new() else { return };
    let flake = fs::read_to_string(nix.path("flake/flake.nix")).unwrap();
    let stand_in = format!("path:{}", nix.text("flake/nix/tests/stand-in"));
    nix.write("flake/flake.nix", &flake.replace("github:NixOS/nixpkgs/nixos-unstable", &stand_in));
    let reference = nix.flake("#testSandbox");
    nix.write("home/.config/cofferdam/config.toml", &format!("[environments.other]\nsandbox = \"{reference}\"\n"));
    // Before it is built nothing is known of it.
    assert_eq!(nix.cofferdam(&["environment", "check"]).status.code(), Some(0));
    let built = nix.cofferdam(&["environment", "build", "other"]);
    let report = String::from_utf8_lossy(&built.stderr);
    assert!(!built.status.success() && report.contains("`test-sandbox` is not `other`"), "{report}");
    let checked = nix.cofferdam(&["environment", "check"]);
    let report = String::from_utf8_lossy(&checked.stderr) + String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.code() == Some(1) && report.contains("`test-sandbox` is not `other`"), "{report}");
    let rows: Value = serde_json::from_slice(&nix.cofferdam(&["environment", "list", "--json"]).stdout).unwrap();
    let row = rows.as_array().unwrap().iter().find(|row| row["name"] == "other").unwrap().clone();
    assert_eq!(row["available"], false, "{row}");
    // Where the name is made of the reference, the artifact may have another one.
    fs::remove_file(nix.path("home/.config/cofferdam/config.toml")).unwrap();
    let variable = format!("{}#packages.x86_64-linux.named", nix.flake(""));
    let text = fs::read_to_string(nix.path("flake/flake.nix")).unwrap();
    let named = text.replace(
        "inherit (ours) cofferdam testSandbox;",
        "inherit (ours) cofferdam testSandbox; named = ours.testSandbox;",
    );
    assert_ne!(named, text);
    nix.write("flake/flake.nix", &named);
    let output = nix.around("cofferdam").args(["eval", "named", "print(42)"]).env("COFFERDAM_ENVS", variable).output();
    assert_eq!(said(&output.unwrap()), "42\n");
}

#[test]
fn mksandbox_throws_on_unknown_attributes() {
    let Some(nix) = Nix::new() else { return };
    let evaluated = |arguments: &str| {
        let expression = format!(
            "(builtins.getFlake \"{}\").lib.on (builtins.getFlake \"path:{}\").legacyPackages.x86_64-linux",
            nix.flake(""),
            nix.text("flake/nix/tests/stand-in"),
        );
        let expression =
            format!("(({expression}).mkSandbox ({{ name = \"x\"; packages = []; }} // {arguments})).drvPath");
        let output = nix.around("nix").args(["eval", "--impure", "--raw", "--expr", &expression]).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let stand_in = nix.text("flake/nix/tests/stand-in");
    let flake = fs::read_to_string(nix.path("flake/flake.nix")).unwrap();
    let input = "github:NixOS/nixpkgs/nixos-unstable";
    assert!(flake.contains(input));
    nix.write("flake/flake.nix", &flake.replace(input, &format!("path:{stand_in}")));
    said(&nix.around("nix").args(["flake", "lock"]).current_dir(nix.path("flake")).output().unwrap());
    let (fine, stderr_text) = evaluated("{ backend = \"jail\"; }");
    assert!(fine, "{stderr_text}");
    for (arguments, expected) in [
        ("{ backend = \"jails\"; }", "Unknown backend: jails"),
        ("{ backend = \"microvm\"; }", "microvm is not there yet"),
        ("{ stdinMode = \"args\"; }", "Unknown stdinMode: args"),
        ("{ interpreter = \"sh -c 'x'\"; }", "Not an interpreter"),
        ("{ name = \"-x\"; }", "Not a name: -x"),
        ("{ timeout_seconds = 1.5; }", "must be whole numbers"),
        ("{ backendOptions = { stdinMode = \"arg\"; }; }", "stand for themselves: stdinMode"),
        ("{ backendOptions = { unknown = 1; }; }", "unknown"),
        ("{ unknown = 1; }", "unknown"),
    ] {
        let (fine, stderr_text) = evaluated(arguments);
        assert!(!fine && stderr_text.contains(expected), "{arguments}: {stderr_text}");
    }
}

/// The walk-through of an operator: a flake of one's own, built, named in the configuration or put in a registry, listed,
/// shown and used. Paths stand where a network would.
#[test]
fn an_operators_own_environment_is_built_registered_and_used() {
    let Some(nix) = Nix::new() else { return };
    let (flake, stand_in) = (nix.text("flake"), nix.text("flake/nix/tests/stand-in"));
    nix.write(
        "python-data/flake.nix",
        &format!(
            r#"{{
  inputs = {{
    nixpkgs.url = "path:{stand_in}";
    cofferdam.url = "path:{flake}";
    cofferdam.inputs.nixpkgs.follows = "nixpkgs";
  }};
  outputs = {{ nixpkgs, cofferdam, ... }}:
    let pkgs = nixpkgs.legacyPackages.x86_64-linux;
    in {{
      packages.x86_64-linux.default = cofferdam.lib.mkSandbox {{
        name = "python-data";
        packages = [ pkgs.python3 ];
        interpreter = "python3 -c";
        timeout_seconds = 20;
        description = "Python, of an operator's own";
      }};
    }};
}}
"#
        ),
    );
    let operator = nix.path("python-data");
    said(
        &nix.around("nix").args(["build", ".#packages.x86_64-linux.default"]).current_dir(&operator).output().unwrap(),
    );
    assert!(operator.join("result/bin/run").exists());
    nix.write(
        "home/.config/cofferdam/config.toml",
        &format!(
            "[environments.python-data]\nsandbox = \"{0}/result\"\ntimeout_seconds = 9\n\n\
             [environments.built]\nsandbox = \"path:{0}#packages.x86_64-linux.built\"\n",
            operator.display()
        ),
    );
    let listed: Value = serde_json::from_str(&said(&nix.cofferdam(&["environment", "list", "--json"]))).unwrap();
    let row = listed.as_array().unwrap().iter().find(|row| row["name"] == "python-data").unwrap();
    assert_eq!((&row["available"], &row["description"]), (&json!(true), &json!("Python, of an operator's own")));
    let shown = said(&nix.cofferdam(&["environment", "show", "python-data", "--json"]));
    let policy: Value = serde_json::from_str(&shown).unwrap();
    let text = policy.to_string();
    assert!(text.contains("\"wall_ms\":9000") && text.contains(&nix.text("store")), "{text}");
    let code = "import sys; print(6 * 7, sys.executable.endswith('python3'))";
    assert_eq!(said(&nix.cofferdam(&["eval", "python-data", code])), "42 True\n");
    // In a registry it is found by its name, also as a link to what was built, and nothing is built for it.
    fs::remove_file(nix.path("home/.config/cofferdam/config.toml")).unwrap();
    let gone = nix.cofferdam(&["eval", "python-data", code]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no environment is called `python-data`"), "{gone:?}");
    fs::create_dir_all(nix.path("home/.config/cofferdam/environments")).unwrap();
    symlink(operator.join("result"), nix.path("home/.config/cofferdam/environments/python-data")).unwrap();
    assert_eq!(said(&nix.cofferdam(&["eval", "python-data", code])), "42 True\n");
}

#[test]
fn a_reference_is_built_by_nix_when_it_is_first_used() {
    let Some(nix) = Nix::new() else { return };
    // The lock file names the stand-in: the command gives Nix no options of ours.
    let flake = fs::read_to_string(nix.path("flake/flake.nix")).unwrap();
    let stand_in = format!("path:{}", nix.text("flake/nix/tests/stand-in"));
    nix.write("flake/flake.nix", &flake.replace("github:NixOS/nixpkgs/nixos-unstable", &stand_in));
    let configuration = format!(
        "[environments.test-sandbox]\nsandbox = \"{}\"\n\n[environments.package]\nflake = \"path:{}#packages.package\"\n\
         interpreter = \"python3 -c\"\n",
        nix.flake("#testSandbox"),
        nix.text("package"),
    );
    nix.write("home/.config/cofferdam/config.toml", &configuration);
    nix.write(
        "package/flake.nix",
        &format!(
            "{{ inputs.set.url = \"{stand_in}\"; outputs = {{ set, ... }}: {{ packages.package = \
             set.legacyPackages.x86_64-linux.python3; }}; }}"
        ),
    );
    let code = "import os; print('built', os.environ['PATH'].split(':')[0])";
    for (name, noted) in [("test-sandbox", true), ("test-sandbox", false), ("package", true)] {
        let output = nix.cofferdam(&["eval", name, code]);
        let printed = said(&output);
        assert!(printed.starts_with(&format!("built {}", nix.text("store"))), "{printed}");
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr_text.contains("building the environment"), noted, "{stderr_text}");
    }
}

/// A project whose flake has a development shell: a program, a variable, and what must not be taken of it.
const SHELL: &str = r#"{
  nixConfig.post-build-hook = "HOOK";
  outputs = { self }: {
    devShells.SYSTEM.default = derivation {
      name = "dev";
      system = "SYSTEM";
      builder = "${self}/bash";
      args = [ "-c" "true" ];
      stdenv = "${self}";
      outputs = [ "out" ];
      GREETING = GIVEN;
    };
  };
}"#;

#[test]
fn development_shell_of_a_project_is_in_its_environments() {
    let Some(nix) = Nix::new() else { return };
    let system = said(&nix.nix(&["eval", "--impure", "--raw", "--expr", "builtins.currentSystem"]));
    let flake = |given: &str| {
        let hook = nix.text("hook");
        nix.write("dev/flake.nix", &SHELL.replace("SYSTEM", &system).replace("HOOK", &hook).replace("GIVEN", given));
    };
    let program = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        nix.write(name, text);
        fs::set_permissions(nix.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("hook", &format!("#!/bin/sh\ntouch {}\n", nix.text("HOOK-RAN")));
    flake("\"hello\"");
    fs::copy("/bin/bash", nix.path("dev/bash")).unwrap();
    program("dev/bin/devtool", "#!/bin/sh\necho of the shell\n");
    program("elsewhere/bin/othertool", "#!/bin/sh\necho of elsewhere\n");
    let setup = format!(
        "export PATH=\"$stdenv/bin:{}:bin:/usr/bin:/bin\"\nexport COFFERDAM_BACKEND=landlock\n",
        nix.text("elsewhere/bin")
    );
    nix.write("dev/setup", &setup);
    let code = "devtool; echo \"$GREETING\"; othertool; echo \"${COFFERDAM_BACKEND-none}\"";
    let config = |use_flake: bool| {
        let text = format!(
            "[environments.tools]\npreset = \"shell\"\n[project]\npath = \"{}\"\nuse_flake = {use_flake}\n",
            nix.text("dev")
        );
        nix.write("c.toml", &text);
        nix.text("c.toml")
    };
    let run = |use_flake| nix.cofferdam(&["eval", "-q", "--config", &config(use_flake), "tools", code]);
    let printed = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let with = run(true);
    assert_eq!(printed(&with), "of the shell\nhello\nnone\n", "{with:?}");
    assert!(String::from_utf8_lossy(&with.stderr).contains("othertool"), "{with:?}");
    assert_eq!(printed(&run(false)), "\nnone\n", "the control: without it nothing of it is there");
    flake("\"changed\"");
    assert!(printed(&run(true)).contains("\nchanged\n"), "a flake that changed is built anew");
    // A server that runs notices the change as well.
    let call = json!({ "code": code, "env": "tools" });
    let mut server = nix.around("cofferdam");
    server.arg("mcp").env("COFFERDAM_CONFIG", config(true));
    let answers = served(&mut server, &[call.clone(), call.clone(), call], |index| {
        if index == 2 {
            flake("\"served\"");
        }
    });
    let texts: Vec<String> = answers.iter().map(Value::to_string).collect();
    for (text, expected) in texts.iter().zip(["changed", "changed", "served"]) {
        assert!(text.contains("of the shell") && text.contains(expected), "{expected}: {texts:#?}");
    }
    // Where the shell cannot be built, no environment that would have it counts as ready.
    flake("\"unbuilt\"");
    let listed = |with_nix: bool| {
        let mut list = nix.around("cofferdam");
        list.args(["environment", "list", "--json", "--config", &config(true)]);
        if !with_nix {
            list.env("PATH", nix.text("bin"));
        }
        let rows: Value = serde_json::from_slice(&list.output().unwrap().stdout).unwrap();
        rows.as_array().unwrap().iter().find(|row| row["name"] == "tools").unwrap().clone()
    };
    assert_eq!(listed(true)["available"], true);
    let without = listed(false);
    let reason = without["reason"].as_str().unwrap_or_default();
    assert!(
        without["available"] == false && reason.contains("there is no `nix` on PATH\nhint: install Nix"),
        "{without}"
    );
    assert!(!nix.path("HOOK-RAN").exists(), "the flake configures no Nix");
    assert!(!nix.path("dev/flake.lock").exists(), "nothing is written into the project");
    // It is evaluated without the files of this host.
    flake("builtins.readFile \"/etc/hostname\"");
    let refused = run(true);
    let stderr_text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(125)
            && stderr_text.contains("cannot be used")
            && stderr_text.contains("hint: where its inputs are not locked: nix flake lock "),
        "{stderr_text}"
    );
    // Nor with an input that no lock holds: it could be any file of the caller's.
    nix.write("secret/id", "KEY");
    let input =
        format!("inputs.v = {{ url = \"path:{}\"; flake = false; }}; outputs = {{ self, v }}", nix.text("secret"));
    let hostile = fs::read_to_string(nix.path("dev/flake.nix")).unwrap();
    let hostile = hostile.replace("outputs = { self }", &input).replace("\"/etc/hostname\"", "\"${v}/id\"");
    fs::write(nix.path("dev/flake.nix"), &hostile).unwrap();
    let refused = run(true);
    assert!(refused.status.code() == Some(125) && !printed(&refused).contains("KEY"), "{refused:?}");
    said(&nix.around("nix").args(["flake", "lock", &format!("path:{}", nix.text("dev"))]).output().unwrap());
    assert!(printed(&run(true)).contains("KEY"), "the control: its owner has locked that input");
    fs::remove_file(nix.path("dev/flake.lock")).unwrap();
    // Git, which runs what the configuration of a repository names, is not asked.
    flake("\"again\"");
    if Command::new("git").arg("--version").output().is_ok() {
        let filter = format!("touch {}; cat", nix.text("FILTER-RAN"));
        let git = |arguments: &[&str]| {
            let mut git = nix.around("git");
            said(&git.arg("-C").arg(nix.path("dev")).args(arguments).output().unwrap())
        };
        git(&["init", "-q"]);
        git(&["add", "setup"]);
        nix.write("dev/.gitattributes", "* filter=evil\n");
        git(&["config", "filter.evil.clean", &filter]);
        nix.write("dev/setup", &format!("{setup}\n"));
        assert!(printed(&run(true)).contains("\nagain\n"));
        assert!(!nix.path("FILTER-RAN").exists(), "a filter of the repository ran");
        git(&["add", "setup"]);
        assert!(nix.path("FILTER-RAN").exists(), "the control: git runs it");
    }
    // Nor is Mercurial, which runs what the configuration of a repository names that the flake fetches.
    if Command::new("hg").arg("--version").output().is_ok() {
        let hg = |arguments: &[&str]| {
            said(&nix.around("hg").args(["-R", &nix.text("dev/hg")]).args(arguments).output().unwrap())
        };
        hg(&["init", &nix.text("dev/hg")]);
        nix.write("dev/hg/a", "fetched");
        hg(&["commit", "-q", "-A", "-m", "a", "-u", "a"]);
        let revision = hg(&["log", "-r", ".", "-T", "{node}"]);
        nix.write("dev/hg/.hg/hgrc", &format!("[hooks]\npreoutgoing = touch {}\n", nix.text("HG-RAN")));
        let url = format!("file://{}", nix.text("dev/hg"));
        flake(&format!(
            "builtins.readFile ((builtins.fetchMercurial {{ url = \"{url}\"; rev = \"{revision}\"; }}) + \"/a\")"
        ));
        let refused = run(true);
        assert!(refused.status.code() == Some(125) && !nix.path("HG-RAN").exists(), "{refused:?}");
        let evaluated = format!("path:{}#devShells.{system}.default.GREETING", nix.text("dev"));
        let control = nix.around("nix").args(["eval", "--raw", &evaluated]).output().unwrap();
        assert!(said(&control) == "fetched" && nix.path("HG-RAN").exists(), "the control: Nix by itself runs it");
    }
    fs::remove_file(nix.path("dev/flake.nix")).unwrap();
    let checked = nix.cofferdam(&["environment", "check", &config(true)]);
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
}
