//! Runs other programs for the tasks: shown before they run, and an error in words when they fail.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

/// Writes a heading for the step that follows.
pub(crate) fn step(text: &str) {
    eprintln!("\n== {text}");
}

/// Shows and runs a command with the caller's streams; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result {
    eprintln!("+ {}", words(command));
    let status = command.status().map_err(|error| cannot_run(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", words(command))) }
}

/// Runs a command without output of its own; an exit code other than 0 is an error with the last line that it wrote.
pub(crate) fn run_quietly(command: &mut Command) -> Result {
    let output = command.stdin(Stdio::null()).output().map_err(|error| cannot_run(command, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or_default().to_owned();
    Err(format!("`{}` failed: {}: {text}", words(command), output.status))
}

/// Runs a command and gives its standard output; its standard error goes to the caller's.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(|error| cannot_run(command, &error))?;
    if !output.status.success() {
        return Err(format!("`{}` failed: {}", words(command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{}` printed invalid UTF-8", words(command)))
}

/// Whether a command can be started and exits with 0, whatever it prints.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Where a program lies on the PATH, or in the directories of the system administrator's programs.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|file| is_executable(file))
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The user id of this process, from /proc/self/status; `None` where that cannot be read.
pub(crate) fn uid() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?.parse().ok()
}

/// The command as a person would type it.
pub(crate) fn words(command: &Command) -> String {
    std::iter::once(command.get_program()).chain(command.get_args()).map(quote).collect::<Vec<_>>().join(" ")
}

fn quote(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "-_=+./:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.into_owned() } else { format!("'{text}'") }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// A command that could not be started, in words.
pub(crate) fn cannot_run(command: &Command, error: &std::io::Error) -> String {
    format!("cannot run `{}`: {error}", words(command))
}
