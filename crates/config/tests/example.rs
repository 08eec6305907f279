//! The guarded shell tool of examples/ does what its configuration says.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The example, which cargo builds with the tests.
fn example() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().and_then(Path::parent).unwrap().join("examples/guarded_shell");
    assert!(path.exists(), "{} is built with the tests of this crate", path.display());
    path
}

#[test]
fn the_guarded_shell_tool_runs_what_is_allowed_and_nothing_else() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/config.example.toml");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("note"), "hello\n").unwrap();
    let mut command = Command::new(example());
    command.arg(config).arg(dir.path());
    if std::fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0).unwrap_or(false) {
        command.arg("--as-root");
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = "cat note\ncat note; id\nid\ncat /etc/passwd\ngit push\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}\n{complained}");
    let answers: Vec<&str> = said.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(answers.len(), 5, "{said}\n{complained}");
    assert!(said.starts_with("hello\n[0 in "), "{said}");
    assert!(answers[1].starts_with("[1 in "), "`note;` is no file, and `id` no command of it: {said}");
    assert!(answers[2].starts_with("[sandbox error: id: refused by allowed_commands"), "{said}");
    assert!(answers[3].starts_with("[1 in ") && !said.contains("root:"), "{said}");
    assert!(answers[4].starts_with("[sandbox error: git: "), "{said}");
}
