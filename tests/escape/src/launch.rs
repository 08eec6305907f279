//! Starts processes for a trial: the command under test or the attack itself, by way of the launcher (which changes
//! the user and leaves things lying about), with a time limit of the harness's own.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_policy::BackendName;

use crate::host::Host;
use crate::run::Finished;

/// Longer than any trial may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Names the nsjail that is tried.
pub const NSJAIL: &str = "COFFERDAM_NSJAIL";

/// A backend that no column has, and whose program every trial is told to be where nothing is.
pub const ABSENT: BackendName = BackendName::OciYouki;

/// Files of the host that stand in for the caller's streams.
#[derive(Default)]
pub struct Files {
    /// Standard input.
    pub stdin: Option<File>,
    /// Standard output.
    pub stdout: Option<File>,
    /// Standard error.
    pub stderr: Option<File>,
}

/// A started process whose output is read in the background.
pub struct Started {
    child: Child,
    out: Option<thread::JoinHandle<String>>,
    err: Option<thread::JoinHandle<String>>,
    since: Instant,
    what: String,
}

/// Starts `argv` as `uid`, or as whoever runs the suite, by way of the launcher with `options`.
///
/// # Errors
/// When the launcher cannot be started.
pub fn start(
    host: &Host,
    uid: Option<u32>,
    options: &[String],
    argv: &[String],
    variables: &[(&str, String)],
    files: Files,
) -> Result<Started, String> {
    let mut command = Command::new(&host.attack);
    command.arg("launch");
    if let Some(uid) = uid {
        command.args(["--uid", &uid.to_string()]);
    }
    command.args(options).arg("--").args(argv).current_dir("/");
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("HOME", "/");
    // Which program is tried as nsjail is for whoever runs the suite to say.
    command.envs(std::env::var_os(NSJAIL).map(|path| (NSJAIL, path)));
    command.env("COFFERDAM_YOUKI", "/nonexistent/youki");
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command.stdin(files.stdin.map_or_else(Stdio::null, Stdio::from));
    let piped = (files.stdout.is_none(), files.stderr.is_none());
    command.stdout(files.stdout.map_or_else(Stdio::piped, Stdio::from));
    command.stderr(files.stderr.map_or_else(Stdio::piped, Stdio::from));
    let what = argv.join(" ");
    let mut child = command.spawn().map_err(|e| format!("cannot start {what}: {e}"))?;
    let out = piped.0.then(|| drain(child.stdout.take())).flatten();
    let err = piped.1.then(|| drain(child.stderr.take())).flatten();
    Ok(Started { child, out, err, since: Instant::now(), what })
}

fn drain<R: Read + Send + 'static>(stream: Option<R>) -> Option<thread::JoinHandle<String>> {
    let mut stream = stream?;
    Some(thread::spawn(move || {
        let mut bytes = Vec::new();
        // An error ends the stream like its end does; the verdict then rests on what came before.
        if let Err(error) = stream.read_to_end(&mut bytes) {
            bytes.extend_from_slice(format!("\n[reading failed: {error}]").as_bytes());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

impl Started {
    /// Waits for the end. A process that takes too long is killed, which is an error: nothing may hang.
    ///
    /// # Errors
    /// When it hung or could not be waited for.
    pub fn finish(mut self) -> Result<Finished, String> {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.since.elapsed() > PATIENCE => {
                    self.child.kill().map_err(|e| format!("cannot kill {}: {e}", self.what))?;
                    self.child.wait().map_err(|e| format!("cannot wait for {}: {e}", self.what))?;
                    return Err(format!("hung for {} s: {}", PATIENCE.as_secs(), self.what));
                }
                Ok(None) => thread::sleep(Duration::from_millis(2)),
                Err(error) => return Err(format!("cannot wait for {}: {error}", self.what)),
            }
        };
        let took = self.since.elapsed();
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Finished { code, stdout: collect(self.out, &self.what)?, stderr: collect(self.err, &self.what)?, took })
    }

    /// The process's id, for sending it signals.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

/// The reader ends when the last holder of the pipe does: something left alive that holds it is an error as well.
fn collect(reader: Option<thread::JoinHandle<String>>, what: &str) -> Result<String, String> {
    let Some(reader) = reader else { return Ok(String::new()) };
    let since = Instant::now();
    while !reader.is_finished() {
        if since.elapsed() > Duration::from_secs(15) {
            return Err(format!("somebody still holds the output of {what}"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    reader.join().map_err(|_| "a reader panicked".to_owned())
}

/// The command line that runs `argv` under a policy file.
pub fn cofferdam(host: &Host, policy: &str, json: bool, keep: Option<&PathBuf>) -> Vec<String> {
    let mut line = vec![host.cofferdam.display().to_string(), "run".into(), "--policy".into(), policy.into()];
    if json {
        line.push("--json".into());
    }
    if let Some(keep) = keep {
        line.extend(["--keep-changes".into(), keep.display().to_string()]);
    }
    line
}
