//! Looks from the host whether an attack worked: files, processes, sockets and outcomes, never the attack's own word.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::attack::Proof;
use crate::case::{Case, KEEP, ORIGINAL};
use crate::run::Run;

const O_NONBLOCK: u64 = 0o4000;

/// What was seen before the attack, for comparison.
pub struct Before {
    meta: Option<String>,
    stdout: Option<File>,
}

impl Before {
    /// Looks at what the proof will compare.
    pub fn look(case: &Case<'_>, proof: Proof, stdout: Option<File>) -> Before {
        let meta = match proof {
            Proof::Meta(path) => meta(&case.path(path)),
            _ => None,
        };
        Before { meta, stdout }
    }
}

/// Whether the host sees that it worked. `None` when the proof is the attack's own word.
pub fn worked(case: &mut Case<'_>, proof: Proof, before: &Before, run: &Run) -> Option<bool> {
    let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
    Some(match proof {
        Proof::Said => return None,
        Proof::Secret => run.output.contains(&case.secret),
        Proof::Changed(path) => fs::read_to_string(case.path(path)).map_or(true, |text| text != ORIGINAL),
        Proof::Exists(path) => exists(&case.path(path)),
        Proof::Mode(path, bits) => {
            fs::symlink_metadata(case.path(path)).is_ok_and(|m| m.permissions().mode() & bits == bits)
        }
        Proof::Meta(path) => meta(&case.path(path)) != before.meta,
        Proof::Dead => case.victim_dead(),
        Proof::Steered => case.steering_now() != case.steering,
        Proof::Received => case.received(),
        Proof::Truncated => ["stdin", "stdout", "stderr"]
            .iter()
            .any(|name| !fs::read(case.dir.join(name)).is_ok_and(|text| text.starts_with(KEEP.as_bytes()))),
        Proof::Nonblocking => before.stdout.as_ref().is_some_and(nonblocking),
        Proof::Left => left(&case.token),
        Proof::Saw(words) => {
            let said = words.iter().any(|word| {
                let line = format!("LAUNCHER SAW {word}");
                [&run.errors, &run.finished.stderr].iter().any(|text| text.lines().any(|l| l == line))
            });
            // An engine's containers are nobody's orphans, so that the launcher does not see them.
            said || (words.contains(&"survivors") && left(&case.token))
        }
        Proof::Bystander => run.errors.contains("BYSTANDER DEAD") || run.finished.stderr.contains("BYSTANDER DEAD"),
        Proof::Run(see) => see(run),
    })
}

fn meta(path: &Path) -> Option<String> {
    let m = fs::symlink_metadata(path).ok()?;
    // Extended attributes and flags change nothing else than the change time.
    Some(format!("{:o} {} {} {} {} {}", m.mode(), m.uid(), m.gid(), m.mtime(), m.ctime(), m.ctime_nsec()))
}

fn nonblocking(file: &File) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).unwrap_or_default();
    let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap_or("0").trim();
    u64::from_str_radix(flags, 8).unwrap_or(0) & O_NONBLOCK != 0
}

/// Whether a process with the token in its command line is alive. Ends what it finds: the token is this case's own.
fn left(token: &str) -> bool {
    let mut others = BTreeSet::new();
    // A process that forks on and on can slip through a look. Between whole looks it is those that are new that are looked at.
    (0..100).any(|number| {
        if number % 10 == 0 {
            others.clear();
        }
        let found = look(token, &mut others);
        std::thread::sleep(std::time::Duration::from_millis(3));
        found
    })
}

/// Waits, for at most five seconds of the twelve that the process lives by itself, until none has the token. Ends nothing.
pub fn await_end(token: &str) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while std::time::Instant::now() < end && processes(token, &mut BTreeSet::new()).next().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Looks at all processes but these, and ends those that have the token.
fn look(token: &str, others: &mut BTreeSet<String>) -> bool {
    let mut found = false;
    for name in processes(token, others) {
        found = true;
        if Command::new("kill").args(["-KILL", &name]).status().is_err() {
            eprintln!("cannot end process {name}, left by an attack");
        }
    }
    found
}

/// The processes besides these with the token in their command line. Those without it are added to `others`.
fn processes(token: &str, others: &mut BTreeSet<String>) -> impl Iterator<Item = String> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(move |entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|b| b.is_ascii_digit()) || others.contains(&name) {
            return None;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(token) {
            return Some(name);
        }
        others.insert(name);
        None
    })
}
