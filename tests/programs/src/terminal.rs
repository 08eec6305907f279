//! A trial at a terminal: script(1) gives the command one, and a dialog is typed into it.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::host::{Host, User};
use crate::trial::{Ended, code, command};

/// How long a program that goes on after a failure may take to end.
const ENDING: Duration = Duration::from_secs(1);
/// Longer than any answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a line of words at a terminal. Each step of the dialog waits until its first part is seen, behind what was
/// seen before, and types its second.
///
/// # Errors
/// It cannot be started, or something was not seen in time.
pub fn run(host: &Host, user: User, line: &[String], dir: &Path, dialog: &[(&str, &str)]) -> Result<Ended, String> {
    let quoted: Vec<String> = line.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    let script = ["script", "-qefc", &quoted.join(" "), "/dev/null"].map(str::to_owned);
    let mut command = command(host, user, &script, dir);
    command.env("SHELL", "/bin/sh").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|e| format!("cannot start script: {e}"))?;
    let (Some(mut keys), Some(mut screen)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("script has no streams".into());
    };
    let (send, receive) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(n) = screen.read(&mut chunk) {
            if n == 0 || send.send(chunk[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut seen = Vec::new();
    let mut from = 0;
    let mut failure = None;
    for (wanted, typed) in dialog {
        match wait_for(&receive, &mut seen, from, wanted.as_bytes()) {
            Some(end) => from = end,
            None => {
                failure = Some(format!("{wanted:?} was not seen"));
                break;
            }
        }
        if let Err(error) = keys.write_all(typed.as_bytes()).and_then(|()| keys.flush()) {
            failure = Some(format!("{typed:?} cannot be typed: {error}"));
            break;
        }
    }
    // script(1) types an end of file when its own input ends, so that stays open until the program has ended.
    let since = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| format!("cannot wait for script: {e}"))? {
            Some(status) => break status,
            None if since.elapsed() > if failure.is_some() { ENDING } else { PATIENCE } => {
                child.kill().and_then(|()| child.wait()).map_err(|e| format!("cannot end script: {e}"))?;
                return Err(format!(
                    "{}:\n{}",
                    failure.unwrap_or_else(|| "it did not end".to_owned()),
                    String::from_utf8_lossy(&seen)
                ));
            }
            None => {
                thread::sleep(Duration::from_millis(5));
                seen.extend(receive.try_iter().flatten());
            }
        }
    };
    drop(keys);
    reader.join().map_err(|_| "a reader panicked".to_owned())?;
    seen.extend(receive.try_iter().flatten());
    let output = String::from_utf8_lossy(&seen).into_owned();
    Ok(match failure {
        // It has ended before the dialog had: whatever its code, it did not work.
        Some(failure) => Ended { code: code(status).max(1), output: format!("{failure}:\n{output}") },
        None => Ended { code: code(status), output },
    })
}

/// Where `wanted` ends in what is seen from `from` on; `None` when it does not come.
fn wait_for(receive: &mpsc::Receiver<Vec<u8>>, seen: &mut Vec<u8>, from: usize, wanted: &[u8]) -> Option<usize> {
    let since = Instant::now();
    loop {
        let found = seen[from..].windows(wanted.len().max(1)).position(|window| window == wanted);
        if let Some(at) = found {
            return Some(from + at + wanted.len());
        }
        let left = PATIENCE.checked_sub(since.elapsed())?;
        seen.extend(receive.recv_timeout(left).ok()?);
    }
}
