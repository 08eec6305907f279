//! One command in a session of its own: bounded in time, its output kept up to a bound, its process group ended with it.

use std::collections::VecDeque;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::judge::Seen;
use crate::Result;
use crate::shell::cannot_run;

/// How much of a stream's beginning is kept, and how much of its end.
const KEPT: usize = 512 * 1024;

/// How long output is awaited from what a command left running.
const DRAIN: Duration = Duration::from_secs(1);

/// How often the end of a command is looked for.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// The beginning and the end of a stream.
#[derive(Debug, Default)]
struct Bounded {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// All bytes that came.
    total: usize,
    /// When the last of them came.
    last: Option<Instant>,
}

impl Bounded {
    fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len();
        self.last = Some(Instant::now());
        let (head, tail) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend(head);
        self.tail.extend(tail);
        let excess = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..excess);
    }

    /// What is kept of the bytes from that one on.
    fn since(&self, from: usize) -> String {
        let mut kept = self.head.clone();
        kept.extend(&self.tail);
        let new = self.total.saturating_sub(from).min(kept.len());
        String::from_utf8_lossy(&kept[kept.len() - new..]).into_owned()
    }
}

/// A stream that a thread reads.
pub(super) struct Stream {
    kept: Arc<Mutex<Bounded>>,
    reader: JoinHandle<()>,
}

impl Stream {
    /// Reads until the end, or an error, which is how a pseudo-terminal ends.
    pub(super) fn read(mut from: impl Read + Send + 'static) -> Stream {
        let kept = Arc::new(Mutex::new(Bounded::default()));
        let shared = Arc::clone(&kept);
        let reader = std::thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(count) = from.read(&mut buffer) {
                if count == 0 {
                    break;
                }
                shared.lock().unwrap_or_else(PoisonError::into_inner).add(&buffer[..count]);
            }
        });
        Stream { kept, reader }
    }

    fn kept(&self) -> MutexGuard<'_, Bounded> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes have come.
    pub(super) fn total(&self) -> usize {
        self.kept().total
    }

    /// When the last bytes came.
    pub(super) fn last(&self) -> Option<Instant> {
        self.kept().last
    }

    /// What has come from that byte on.
    pub(super) fn since(&self, from: usize) -> String {
        self.kept().since(from)
    }

    /// What came, at the latest a moment from now.
    pub(super) fn close(self, until: Instant) -> String {
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(TICK);
        }
        self.since(0)
    }
}

/// A command that runs, the first of its session.
pub(super) struct Running {
    child: Child,
    pid: Pid,
    /// Its output.
    pub(super) out: Stream,
    err: Option<Stream>,
    ends: Instant,
    within: Duration,
}

impl Running {
    /// Starts it with pipes for its output.
    pub(super) fn start(command: &mut Command, input: Stdio, within: Duration) -> Result<Running> {
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| cannot_run(command, &error))?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err("a command has no output".into());
        };
        Running::of(child, Stream::read(out), Some(Stream::read(err)), within)
    }

    /// A command that is running already.
    pub(super) fn of(child: Child, out: Stream, err: Option<Stream>, within: Duration) -> Result<Running> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("a process has no id")?;
        Ok(Running { child, pid, out, err, ends: Instant::now() + within, within })
    }

    /// The process's standard input.
    pub(super) fn input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether its time is over.
    pub(super) fn late(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// Whether it has ended. It stays a zombie, so that the id of its group cannot be that of another.
    pub(super) fn ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None))
    }

    /// Waits for its end, or ends it: because of a trouble or when its time is over. Its whole group ends with it.
    pub(super) fn close(mut self, mut trouble: Option<String>) -> Result<Seen> {
        while trouble.is_none() && !self.ended() {
            if self.late() {
                trouble = Some(format!("not over after {} s", self.within.as_secs()));
            }
            std::thread::sleep(TICK);
        }
        let ended = self.ended();
        match kill_process_group(self.pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(format!("cannot end the process group {}: {error}", self.pid)),
        }
        let status = self.child.wait().map_err(|error| format!("cannot wait for a command: {error}"))?;
        let until = Instant::now() + DRAIN;
        let out = self.out.close(until);
        let err = self.err.map(|err| err.close(until)).unwrap_or_default();
        let code = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
        let code = if ended { status.code().or(code) } else { None };
        Ok(Seen { code, out, err, trouble, early: false })
    }
}

/// Runs a command without input.
pub(super) fn run(command: &mut Command, within: Duration) -> Result<Seen> {
    Running::start(command, Stdio::null(), within)?.close(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, seconds: u64) -> Seen {
        run(Command::new("setsid").args(["sh", "-c", script]), Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn streams_are_kept_apart() {
        let seen = sh("echo out; echo err >&2; exit 3", 20);
        assert_eq!((seen.code, seen.out.as_str(), seen.err.as_str()), (Some(3), "out\n", "err\n"));
        assert_eq!(sh("kill -TERM $$", 20).code, Some(143));
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_group() {
        let begun = Instant::now();
        let seen = sh("sleep 60 & echo $!; sleep 60", 1);
        assert_eq!((seen.code, seen.trouble.as_deref()), (None, Some("not over after 1 s")));
        assert!(begun.elapsed() < Duration::from_secs(20));
        let left = format!("/proc/{}/cmdline", seen.out.trim());
        // It is a zombie until the first process of the machine has waited for it.
        assert!(std::fs::read(&left).unwrap_or_default().is_empty(), "{left}");
    }

    #[test]
    fn what_is_left_running_is_ended_and_not_waited_for() {
        let begun = Instant::now();
        assert_eq!(sh("sleep 60 & echo x", 30).out, "x\n");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn of_long_output_the_beginning_and_the_end_are_kept() {
        let mut kept = Bounded::default();
        kept.add(b"begin");
        for _ in 0..40 {
            kept.add(&vec![b'-'; KEPT / 10]);
        }
        let at = kept.total;
        kept.add(b"end");
        let text = kept.since(0);
        assert!(text.starts_with("begin-") && text.ends_with("-end") && text.len() <= 2 * KEPT);
        assert_eq!(kept.since(at), "end");
    }
}
