//! A command at a pseudo-terminal, and what is typed there.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Gid, Mode, OFlags, Uid, fchown};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::data::Key;
use super::judge::Seen;
use super::process::{Running, Stream, TICK};
use crate::Result;
use crate::parts::plain;
use crate::shell::cannot_run;

/// After how long without output a terminal is quiet.
const QUIET: Duration = Duration::from_millis(400);

/// How long the first output is awaited before anything is typed.
const FIRST_OUTPUT: Duration = Duration::from_secs(4);

/// Runs the command, which makes its standard input its terminal, and types the keys.
pub(super) fn run(command: &mut Command, user: Option<u32>, keys: &[Key], within: Duration) -> Result<Seen> {
    let (ours, theirs) = open(user).map_err(|error| format!("cannot make a pseudo-terminal: {error}"))?;
    size(&ours, 24, 80)?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(|error| format!("cannot copy a terminal: {error}"));
    command.stdin(copy(&theirs)?).stdout(copy(&theirs)?).stderr(theirs);
    let child = command.spawn().map_err(|error| cannot_run(command, &error))?;
    // The command holds the other side until then, and the output would not end.
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let out = Stream::read(File::from(copy(&ours)?));
    let mut terminal = Terminal { running: Running::of(child, out, None, within)?, keys: File::from(ours), sent: 0 };
    let (mut early, mut trouble) = (false, None);
    for (at, key) in keys.iter().enumerate() {
        match terminal.step(key, at == 0)? {
            Step::Done => {}
            Step::Ended => {
                early = true;
                break;
            }
            Step::Trouble(text) => {
                trouble = Some(text);
                break;
            }
        }
    }
    // Until its end: closed, the terminal would hang up.
    let Terminal { running, keys, .. } = terminal;
    let seen = running.close(trouble)?;
    drop(keys);
    Ok(Seen { early, ..seen })
}

/// Our side and the command's, which belongs to that user.
fn open(user: Option<u32>) -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    if let Some(user) = user {
        fchown(&theirs, Some(Uid::from_raw(user)), None::<Gid>)?;
    }
    Ok((ours, theirs))
}

fn size(terminal: impl AsFd, rows: u16, columns: u16) -> Result {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).map_err(|error| format!("cannot set the size of a terminal: {error}"))
}

struct Terminal {
    running: Running,
    keys: File,
    /// How many bytes had come when something was typed last.
    sent: usize,
}

enum Step {
    Done,
    /// The command ended before.
    Ended,
    Trouble(String),
}

impl Terminal {
    fn step(&mut self, key: &Key, first: bool) -> Result<Step> {
        let begun = Instant::now();
        match key {
            Key::Wait(time) => Ok(self.until(|_| begun.elapsed() >= *time).unwrap_or(Step::Done)),
            Key::See(text) => Ok(match self.until(|terminal| terminal.shows(text)) {
                None | Some(Step::Done) => Step::Done,
                Some(Step::Ended) if self.shows(text) => Step::Done,
                Some(Step::Ended) => Step::Ended,
                Some(Step::Trouble(late)) => Step::Trouble(format!("{text:?} did not come, {late}")),
            }),
            Key::Size(rows, columns) => {
                size(&self.keys, *rows, *columns)?;
                Ok(Step::Done)
            }
            Key::Text(text) => {
                let quiet = |terminal: &Terminal| match terminal.running.out.last() {
                    Some(last) => last.max(begun).elapsed() >= QUIET,
                    None => !first || begun.elapsed() >= FIRST_OUTPUT,
                };
                if let Some(step) = self.until(quiet) {
                    return Ok(step);
                }
                self.sent = self.running.out.total();
                // A command that ends in this very moment takes no keys.
                Ok(self.keys.write_all(text.as_bytes()).map_or(Step::Ended, |()| Step::Done))
            }
        }
    }

    fn shows(&self, text: &str) -> bool {
        let new = self.running.out.since(self.sent);
        new.contains(text) || new.lines().any(|line| plain(line).contains(text))
    }

    /// Waits; says why it had to stop before.
    fn until(&self, done: impl Fn(&Terminal) -> bool) -> Option<Step> {
        while !done(self) {
            if self.running.ended() {
                return Some(Step::Ended);
            }
            if self.running.late() {
                return Some(Step::Trouble("time is over".into()));
            }
            std::thread::sleep(TICK);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, keys: &[Key], seconds: u64) -> Seen {
        run(Command::new("setsid").args(["-c", "sh", "-c", script]), None, keys, Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn keys_are_typed_and_texts_awaited() {
        let script = "printf 'name? '; read name; echo hello $name; stty size; sleep 1";
        let keys =
            [Key::Size(33, 44), Key::See("name?".into()), Key::Text("Ann\r".into()), Key::See("hello Ann".into())];
        let seen = sh(script, &keys, 30);
        assert_eq!((seen.code, seen.early, seen.trouble.clone()), (Some(0), false, None), "{seen:?}");
        assert!(seen.out.contains("33 44"), "{seen:?}");
    }

    #[test]
    fn a_text_that_does_not_come_and_an_early_end_are_seen() {
        let seen = sh("sleep 60", &[Key::See("x".into())], 1);
        assert_eq!(seen.trouble.as_deref(), Some("\"x\" did not come, time is over"));
        let seen = sh("exit 4", &[Key::Wait(Duration::from_secs(20)), Key::Text("x".into())], 30);
        assert_eq!((seen.code, seen.early), (Some(4), true));
    }

    #[test]
    fn an_interrupt_reaches_the_command() {
        let keys = [Key::See("up".into()), Key::Text("\u{3}".into())];
        let seen = sh("trap 'echo tidied; exit 7' INT; echo up; while :; do sleep 0.1; done", &keys, 30);
        assert_eq!(seen.code, Some(7), "{seen:?}");
        assert!(seen.out.contains("tidied"));
    }
}
