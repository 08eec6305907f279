//! Where a checkpoint is told besides the trail, so that a chain that was cut short or written anew shows.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::AuditError;
use super::record::{Link, hex};

/// Where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Anchor {
    /// A line at the end of a file, on the disk when it returns. It proves as much as the trail's writers cannot change it.
    File(PathBuf),
    /// A program, which gets the line as its last argument and must end with 0.
    Command(Vec<String>),
    /// The system's log, facility `authpriv`, by /dev/log (RFC 3164).
    Syslog,
}

impl Anchor {
    /// Reads `file:PATH`, `command:PROGRAM ARGS…` (split at spaces) or `syslog`.
    ///
    /// # Errors
    /// None of these, in words.
    pub fn parse(text: &str) -> Result<Anchor, String> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Anchor::File(path.into())),
            Some(("command", line)) if !line.trim().is_empty() => {
                Ok(Anchor::Command(line.split_whitespace().map(str::to_owned).collect()))
            }
            None if text == "syslog" => Ok(Anchor::Syslog),
            _ => Err(format!("{text:?} is no anchor: file:PATH, command:PROGRAM or syslog")),
        }
    }

    /// Tells it.
    ///
    /// # Errors
    /// It was not told.
    pub(super) fn tell(&self, link: &Link, time: &str) -> Result<(), AuditError> {
        let text = line(link, time);
        let failed = |why: String| AuditError::Anchor { why };
        match self {
            Anchor::File(path) => OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(path)
                .and_then(|mut f| f.write_all(format!("{text}\n").as_bytes()).and_then(|()| f.sync_data()))
                .map_err(|e| failed(format!("{}: {e}", path.display()))),
            Anchor::Command(argv) => {
                let Some((program, rest)) = argv.split_first() else { return Err(failed("no program".into())) };
                let status = Command::new(program)
                    .args(rest)
                    .arg(&text)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .status()
                    .map_err(|e| failed(format!("{program}: {e}")))?;
                if status.success() { Ok(()) } else { Err(failed(format!("{program}: {status}"))) }
            }
            Anchor::Syslog => {
                // authpriv.notice: facility 10, severity 5.
                let message = format!("<85>cofferdam[{}]: {text}", std::process::id());
                UnixDatagram::unbound()
                    .and_then(|socket| socket.send_to(message.as_bytes(), "/dev/log"))
                    .map(|_| ())
                    .map_err(|e| failed(format!("/dev/log: {e}")))
            }
        }
    }
}

/// What is told: `cofferdam-audit SEQ HASH TIME`.
pub(super) fn line(link: &Link, time: &str) -> String {
    format!("cofferdam-audit {} {} {time}", link.seq, hex(&link.hash))
}
