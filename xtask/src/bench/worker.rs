//! The measured programs: built from bench/c and bench/src, started once, and asked for batch after batch, so that
//! candidates take turns within one run.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::Result;
use crate::shell::{self, cargo, words};
use crate::workspace::{Workspace, executables};

/// Everything that is measured, built.
pub(super) struct Programs {
    /// Where the C programs lie, and what measurements write.
    pub directory: PathBuf,
    /// The `cofferdam` command, released.
    pub cofferdam: PathBuf,
    /// The engine's caller.
    pub engine: PathBuf,
    /// Who asks the guard.
    pub asks: PathBuf,
    /// The MCP server.
    pub server: PathBuf,
    /// Both ends of connections.
    pub egress: PathBuf,
}

impl Programs {
    /// Builds them: a release build of the command and the caller, and four small C programs.
    pub(super) fn build(workspace: &Workspace) -> Result<Programs> {
        shell::step("build what is measured");
        let mut build = cargo();
        let mut built = executables(build.args([
            "build",
            "--release",
            "-p",
            "cofferdam",
            "-p",
            "cofferdam-bench",
            "-p",
            "cofferdam-server",
        ]))?;
        let mut program = |name: &str| built.remove(name).ok_or_else(|| format!("cargo built no {name}"));
        let (cofferdam, engine) = (program("cofferdam")?, program("bench-engine")?);
        let (asks, server) = (program("bench-guard")?, program("cofferdam-serve")?);
        let egress = program("bench-egress")?;
        let directory = workspace.target.join("bench");
        std::fs::create_dir_all(&directory)
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
        for (name, flags) in [("noop", &["-nostdlib"][..]), ("pause", &["-nostdlib"]), ("floor", &[]), ("work", &[])] {
            let source = workspace.root.join(format!("bench/c/{name}.c"));
            shell::run(
                Command::new("gcc")
                    .args(["-O2", "-static"])
                    .args(flags)
                    .arg("-o")
                    .arg(directory.join(name))
                    .arg(source),
            )?;
        }
        Ok(Programs { directory, cofferdam, engine, asks, server, egress })
    }

    /// Text without the places where this machine has the programs.
    pub(super) fn shorten(&self, text: &str) -> String {
        let places = [Some(self.directory.as_path()), self.cofferdam.parent()];
        places
            .into_iter()
            .flatten()
            .fold(text.to_owned(), |text, place| text.replace(&format!("{}/", place.display()), ""))
    }

    /// The path of a C program.
    pub(super) fn c(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// The caller with arguments.
    pub(super) fn engine(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.engine);
        command.args(arguments);
        command
    }

    /// Who asks the guard, with arguments.
    pub(super) fn guard(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.asks);
        command.args(arguments);
        command
    }
}

/// A program that answers each line with a line. Killed when dropped.
pub(super) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    name: String,
}

impl Worker {
    /// Starts it.
    pub(super) fn start(mut command: Command) -> Result<Worker> {
        let name = words(&command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run `{name}`: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("`{name}` has no pipes"));
        };
        Ok(Worker { child, input: Some(input), output: BufReader::new(output), name })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub(super) fn read(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(format!("`{}` ended early; its reason stands above", self.name)),
            Ok(_) => Ok(line),
            Err(error) => Err(format!("`{}`: {error}", self.name)),
        }
    }

    /// Writes a line.
    pub(super) fn write(&mut self, line: &str) -> Result {
        let input = self.input.as_mut().ok_or("the input is closed")?;
        writeln!(input, "{line}").map_err(|error| format!("`{}`: {error}", self.name))
    }

    /// Asks for `count` samples; nanoseconds.
    pub(super) fn samples(&mut self, count: usize) -> Result<Vec<f64>> {
        self.asked(&count.to_string())
    }

    /// Asks, and reads the numbers of the answer.
    pub(super) fn asked(&mut self, request: &str) -> Result<Vec<f64>> {
        self.write(request)?;
        let line = self.read()?;
        line.split_whitespace()
            .map(|word| word.parse().map_err(|_| format!("`{}` printed `{word}`", self.name)))
            .collect()
    }

    /// Closes its input and waits for it to end by itself.
    pub(super) fn finish(mut self) -> Result {
        self.input = None;
        let status = self.child.wait().map_err(|error| format!("`{}`: {error}", self.name))?;
        if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", self.name)) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None))
            && let Err(error) = self.child.kill().and_then(|()| self.child.wait())
        {
            eprintln!("cannot end `{}`: {error}", self.name);
        }
    }
}

/// Runs a command once and times it, from before its start to after its end; nanoseconds. The exit code proves that the
/// measured program ran.
pub(super) fn time(command: &[String], code: i32) -> Result<f64> {
    let mut command = command_of(command);
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("cannot run `{}`: {error}", words(&command)))?;
    let elapsed = start.elapsed().as_nanos() as f64;
    if status.code() == Some(code) {
        Ok(elapsed)
    } else {
        Err(format!("`{}` ended with {status} instead of exit code {code}", words(&command)))
    }
}

/// Runs a command and gives what it printed.
pub(super) fn printed(command: &[String]) -> Result<String> {
    let mut command = command_of(command);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    shell::output(&mut command)
}

fn command_of(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Proportional set size of a process, KiB: its own memory, and its share of what it shares.
pub(super) fn pss_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("{path} has no Pss"))
}

/// A process and all below it, the process first.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// Whether a process runs that file.
pub(super) fn runs(pid: u32, program: &Path) -> bool {
    // A sandbox's own mount namespace can show another path; the name is enough to tell our C programs apart.
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.file_name() == program.file_name())
}
