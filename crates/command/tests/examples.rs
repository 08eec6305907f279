//! The examples do what they say. Cargo builds them with the tests.

#![cfg(target_os = "linux")]

mod probe;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use probe::Scratch;

/// An example's program: beside the directory of the tests.
fn example(name: &str) -> PathBuf {
    let own = PathBuf::from(probe::own());
    let path = own.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(path.is_file(), "{} is not built: cargo test builds it", path.display());
    path
}

fn config(scratch: &Scratch, mode: &str, program: &str) -> PathBuf {
    let shipped =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/config.example.toml")).unwrap();
    let text = shipped
        .replace("mode = \"sandbox\"", &format!("mode = \"{mode}\""))
        .replace("\"echo\"", &format!("{program:?}"));
    assert!(text.contains(mode) && text.contains(program));
    let path = scratch.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn ask(scratch: &Scratch, mode: &str, program: &str, prompt: &str) -> (bool, String) {
    let mut command = Command::new(example("agent_cli"));
    command.arg(config(scratch, mode, program)).arg(scratch.path().join("agent")).arg(prompt);
    std::fs::create_dir_all(scratch.path().join("agent")).unwrap();
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[test]
fn the_agent_shows_its_mode_and_constrains_the_prompt() {
    let scratch = Scratch::new();
    for (mode, said) in
        [("sandbox", "Read and write files inside it only"), ("rx", "read files and run commands"), ("rwx", "hello")]
    {
        let (well, text) = ask(&scratch, mode, "echo", "hello");
        assert!(
            well && text.contains(&format!("mode: {mode}\n")) && text.contains("hello") && text.contains(said),
            "{text}"
        );
        assert_eq!(text.contains("Your working directory is"), mode != "rwx", "{text}");
    }
    let (well, text) = ask(&scratch, "rw", "echo", "hello");
    assert!(!well && text.contains("accepted: sandbox, rx, rwx"), "{text}");
}

#[test]
fn the_agents_tool_writes_only_in_the_workspace() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let tool = scratch.path().join("tool");
    // A model that takes its last argument for the file to write.
    std::fs::write(&tool, "#!/bin/sh\nshift\necho written > \"${1%%\n*}\" && pwd\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let tool = tool.display().to_string();
    let outside = scratch.path().join("outside");
    for mode in ["sandbox", "rx"] {
        let (well, text) = ask(&scratch, mode, &tool, &outside.display().to_string());
        assert!(!well && text.contains("ermission denied") && !outside.exists(), "{text}");
        let (well, text) = ask(&scratch, mode, &tool, "inside");
        assert!(well && text.contains("/agent/workspace"), "{text}");
        assert!(scratch.path().join("agent/workspace/inside").exists());
    }
    let (well, text) = ask(&scratch, "rwx", &tool, &outside.display().to_string());
    assert!(well && outside.exists(), "{text}");
    let (well, text) = ask(&scratch, "sandbox", "/not/there", "x");
    assert!(!well && text.contains("sandbox error: cannot confine `/not/there`"), "{text}");
}

#[test]
fn the_service_is_concurrent_and_needs_full_enforcement() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let mut service = Command::new(example("service"))
        .arg(&data)
        .arg("cat")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let address = address.trim().to_owned();
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let address = address.clone();
            std::thread::spawn(move || {
                let mut client = std::net::TcpStream::connect(address).unwrap();
                let mut answers = BufReader::new(client.try_clone().unwrap());
                for turn in 0..5 {
                    writeln!(client, "{number} {turn}").unwrap();
                    let mut answer = String::new();
                    answers.read_line(&mut answer).unwrap();
                    assert_eq!(answer, format!("{number} {turn}\n"));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    service.kill().unwrap();
    service.wait().unwrap();
    let refused = Command::new(example("service")).args(["/etc", "cat"]).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("lies below /etc"));
}

/// The design's own configuration: its struct, its literal, in an application's file.
#[test]
fn the_documented_configuration_compiles_and_is_read() {
    use cofferdam_command::{SandboxConfig, SandboxMode};
    #[derive(serde::Deserialize)]
    struct App {
        #[serde(default)]
        sandbox: SandboxConfig,
    }
    let config = SandboxConfig { mode: SandboxMode::Rx };
    assert_eq!(config.mode.display_name(), "rx");
    let app: App = toml::from_str("[sandbox]\nmode = \"rx\"\n").unwrap();
    assert_eq!(app.sandbox, config);
    assert_eq!(toml::from_str::<App>("").unwrap().sandbox, SandboxConfig::default());
}
