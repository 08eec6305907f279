//! The evaluator program: how it is found, how it runs as a child process without a sandbox, and what its exit means.

use std::fs::Metadata;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::CompileError;

/// The program's name.
pub const NAME: &str = "cofferdam-compile";

/// The variable that names the directory of the helper programs.
pub const DIRECTORY_VARIABLE: &str = "COFFERDAM_LIBEXEC";

/// The evaluator's variables: its allocator caches freed memory for objects of the same size, and rarely calls the system
/// (mallopt(3), glibc's tunables). Nickel allocates and frees many small objects; this saves a fifth of the time.
pub(crate) const VARIABLES: &[(&str, &str)] = &[(
    "GLIBC_TUNABLES",
    "glibc.malloc.arena_max=1:glibc.malloc.top_pad=33554432:glibc.malloc.trim_threshold=1073741824:\
     glibc.malloc.tcache_count=65535",
)];

/// Memory of the evaluator, MiB.
pub(crate) const MEMORY_MB: u64 = 1024;

/// Most bytes of an answer.
pub(crate) const MAX_ANSWER: u64 = 256 << 20;

/// Finds the evaluator: in `libexec` if that is given (the value of [`DIRECTORY_VARIABLE`]), else beside the program `own`, else in
/// `../libexec/cofferdam` from there, or in `/usr/libexec/cofferdam` if `own` is not known. Returns the first of these paths if it
/// is in none.
pub fn find(libexec: Option<&Path>, own: Option<&Path>) -> PathBuf {
    find_named(NAME, libexec, own)
}

/// Finds a helper program of any name in the same way.
pub fn find_named(name: &str, libexec: Option<&Path>, own: Option<&Path>) -> PathBuf {
    if let Some(directory) = libexec {
        return directory.join(name);
    }
    // Never in the working directory, which may belong to another user.
    let Some(directory) = own.and_then(Path::parent) else { return Path::new("/usr/libexec/cofferdam").join(name) };
    let beside = directory.join(name);
    let apart = directory.join("../libexec/cofferdam").join(name);
    if !beside.exists() && apart.exists() { apart } else { beside }
}

/// The evaluator, found.
#[derive(Debug)]
pub struct Helper {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Its identity by stat(2).
    pub metadata: Metadata,
}

impl Helper {
    /// Examines the program.
    pub(crate) fn at(path: &Path) -> Result<Helper, CompileError> {
        let looked = std::fs::canonicalize(path).and_then(|path| Ok((std::fs::metadata(&path)?, path)));
        match looked {
            Ok((metadata, path)) if metadata.is_file() => Ok(Helper { path, metadata }),
            Ok((_, path)) => Err(CompileError::new(format!("the evaluator {} is no program", path.display()))),
            Err(error) => {
                Err(CompileError::new(format!("cannot find the evaluator of profiles {}: {error}", path.display()))
                    .hint(format!("cargo build --release -p {NAME}, or say where it is with {DIRECTORY_VARIABLE}=DIR")))
            }
        }
    }
}

/// How an evaluator ended, and its output.
#[derive(Debug)]
#[non_exhaustive]
pub struct EvaluatorEnd {
    /// Its answers.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How it ended.
    pub how: How,
    /// Its limit of wall time.
    pub time: Duration,
}

/// The ways to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// By itself.
    Exited(i32),
    /// By a signal.
    Signalled(i32),
    /// It took too long, by the clock or on the processor.
    Time,
    /// It took too much memory.
    Memory,
}

impl EvaluatorEnd {
    /// The error for the profile that it was evaluating.
    pub(crate) fn error(&self, file: &Path) -> CompileError {
        const SIGABRT: i32 = 6;
        const SIGSEGV: i32 = 11;
        const SIGXCPU: i32 = 24;
        let file = file.display();
        let said = self.stderr.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let memory = self.how == How::Memory || self.stderr.contains("memory allocation of");
        let nested = self.stderr.contains("overflowed its stack") || self.how == How::Signalled(SIGSEGV);
        if self.how == How::Time || self.how == How::Signalled(SIGXCPU) {
            let message = format!("evaluating {file} takes longer than {} s", self.time.as_secs());
            return CompileError::new(message).hint(format!(
                "look in {file} for a function that calls itself without end, such as `let rec`, or many entries"
            ));
        }
        if memory {
            let message = format!("evaluating {file} takes more than {MEMORY_MB} MiB of memory");
            return CompileError::new(message).hint(format!(
                "look in {file} for a function that calls itself without end (`let rec`), and a list or text that grows"
            ));
        }
        if nested {
            let message = format!("evaluating {file} nests too deeply for the evaluator's stack");
            return CompileError::new(message)
                .hint(format!("look in {file} for a function that calls itself without end"));
        }
        let how = match self.how {
            How::Exited(code) => format!("exit code {code}"),
            How::Signalled(SIGABRT) => "it aborted".to_owned(),
            How::Signalled(signal) => format!("signal {signal}"),
            How::Time | How::Memory => "a limit".to_owned(),
        };
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        CompileError::new(format!("the evaluator failed on {file} ({how}){said}"))
    }
}

/// Runs the evaluator as a child process without a sandbox and without the caller's variables, and reads its output.
pub(crate) fn run(helper: &Helper, request: &[u8], time: Duration) -> Result<EvaluatorEnd, CompileError> {
    let failed = |error: std::io::Error| CompileError::new(format!("cannot run {}: {error}", helper.path.display()));
    let mut child = Command::new(&helper.path)
        .env_clear()
        .envs(VARIABLES.iter().copied())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let ended = talk(&mut child, request, time);
    // No process of it remains in any case.
    let late = matches!(ended, Ok((_, true)));
    if ended.is_err() || late {
        child.kill().map_err(failed)?;
    }
    let status = child.wait().map_err(failed)?;
    let (stdout, late) = ended.map_err(failed)?;
    let mut stderr = String::new();
    if let Some(stream) = child.stderr.take() {
        stream.take(64 << 10).read_to_string(&mut stderr).map_err(failed)?;
    }
    let how = match (late, status.code(), status.signal()) {
        (true, ..) => How::Time,
        (_, Some(code), _) => How::Exited(code),
        (_, _, signal) => How::Signalled(signal.unwrap_or(0)),
    };
    Ok(EvaluatorEnd { stdout, stderr, how, time })
}

/// Writes the request and reads the answer; true if the time is over.
fn talk(child: &mut Child, request: &[u8], time: Duration) -> std::io::Result<(String, bool)> {
    let deadline = Instant::now() + time;
    if let Some(mut stdin) = child.stdin.take() {
        // It reads the whole request before it writes anything. If it exits before that, its exit is the answer.
        match stdin.write_all(request) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
            _ => {}
        }
    }
    let mut bytes = Vec::new();
    let mut late = false;
    if let Some(mut stdout) = child.stdout.take() {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            let ready = match poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&left)) {
                Err(rustix::io::Errno::INTR) => continue,
                ready => ready?,
            };
            if ready == 0 {
                late = true;
                break;
            }
            let read = stdout.read(&mut buffer)?;
            if read == 0 || bytes.len() as u64 > MAX_ANSWER {
                break;
            }
            bytes.extend_from_slice(&buffer[..read]);
        }
    }
    Ok((String::from_utf8_lossy(&bytes).into_owned(), late))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluator_is_never_looked_up_in_the_working_directory() {
        assert_eq!(find(None, None), Path::new("/usr/libexec/cofferdam/cofferdam-compile"));
        assert_eq!(find(None, Some(Path::new("/opt/no/cofferdam"))), Path::new("/opt/no/cofferdam-compile"));
        assert_eq!(find(Some(Path::new("/opt/x")), None), Path::new("/opt/x/cofferdam-compile"));
    }
}
