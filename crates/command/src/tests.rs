//! What the functions return, before anything is spawned. The integration tests show what is enforced on real
//! processes.

use std::path::Path;

use super::*;

fn program(command: &Command) -> String {
    command.as_std().get_program().to_string_lossy().into_owned()
}

#[test]
fn test_rwx_returns_plain_command() {
    let command = sandboxed_command("claude", SandboxMode::Rwx, Path::new("/does/not/matter"));
    assert_eq!(program(&command), "claude");
    assert_eq!(command.as_std().get_args().count(), 0);
}

#[test]
fn test_sandbox_mode_returns_command() {
    let dir = tempfile::tempdir().unwrap();
    let command = sandboxed_command("claude", SandboxMode::Sandbox, dir.path());
    assert!(["claude", seatbelt::SANDBOX_EXEC].contains(&program(&command).as_str()));
}

#[test]
fn test_rx_mode_returns_command() {
    let dir = tempfile::tempdir().unwrap();
    let command = sandboxed_command("claude", SandboxMode::Rx, dir.path());
    assert!(["claude", seatbelt::SANDBOX_EXEC].contains(&program(&command).as_str()));
}

#[cfg(target_os = "linux")]
#[test]
fn test_command_structure() {
    let dir = tempfile::tempdir().unwrap();
    let (command, _) = Confined::new("claude").data_dir(dir.path()).fallback(Fallback::Warn).command().unwrap();
    assert_eq!(program(&command), "claude");
    assert_eq!(command.as_std().get_args().count(), 0);
}
