//! The look before a run and the one after it, and what the outcome says. What was seen before is recorded in the state
//! directory while the run goes on: after one that was cut off, the next run does what is left.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_policy::{Policy, text};
use rustix::fs::{FlockOperation, flock};

use super::{Before, Mended, before};
use crate::outcome::{Evidence, Failure, Outcome, Violation};
use crate::state;

/// Records of earlier runs that are looked at.
const MOST_RECORDS: usize = 256;
/// Bytes of one.
const MOST_BYTES: u64 = 16 << 20;
/// Files that the outcome names.
const NAMED: usize = 16;

/// What is looked at again when the run is over.
#[derive(Debug, Default)]
pub struct Watch {
    before: Before,
    earlier: Mended,
    record: Option<Record>,
    /// Why an interrupted run would leave nothing to go on from.
    unrecorded: Option<String>,
}

/// What was seen before the run, for whom the end of this process leaves it to. Its lock ends with the process.
#[derive(Debug)]
struct Record {
    path: PathBuf,
    _lock: File,
}

impl Watch {
    /// Looks at the volumes that the program may write, where the policy protects git's files in them.
    pub fn begin(policy: &Policy) -> Watch {
        let volumes = if protects(policy) { state::writable(policy) } else { Vec::new() };
        if volumes.is_empty() {
            return Watch::default();
        }
        // First who else is running: what such a run leaves is disabled before its record goes.
        let (earlier, running) = unfinished();
        let mut before = before(&volumes);
        before.as_also_seen_by(&running);
        let (record, unrecorded) = match Record::write(&before) {
            Ok(record) => (record, None),
            Err(e) => (None, Some(e.to_string())),
        };
        Watch { before, earlier, record, unrecorded }
    }

    /// Looks again, now that every process of the run is dead, and has the outcome say what was found.
    pub fn end(self, outcome: &mut Outcome) {
        let mended = self.before.mend();
        if let Some(record) = self.record {
            fs::remove_file(record.path).ok(); // what is left is done again, and finds nothing
        }
        report(outcome, &self.earlier, "an earlier run, which was cut off,");
        report(outcome, &mended, "the program");
        if let Some(why) = self.unrecorded {
            let message = format!(
                "what git obeyed before the run could not be recorded ({why}), so nothing would have been looked at after an \
                 interrupted run"
            );
            add(outcome, Failure { code: 0, step: "repositories".into(), message, hint: None });
        }
    }
}

/// Whether a run of this policy is looked at.
pub fn watches(policy: &Policy) -> bool {
    protects(policy) && !state::writable(policy).is_empty()
}

fn protects(policy: &Policy) -> bool {
    policy.filesystem.protected.iter().any(|name| name.starts_with(".git/"))
}

impl Record {
    /// None where there is nothing to look at again, or no state directory.
    fn write(before: &Before) -> std::io::Result<Option<Record>> {
        let (false, Ok(directory)) = (before.is_empty(), state::directory()) else { return Ok(None) };
        let directory = directory.join("unfinished");
        let content = serde_json::to_vec(before)?;
        if content.len() as u64 > MOST_BYTES {
            return Err(std::io::Error::other("there are too many repositories"));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let name = crate::random::uuid();
        let (made, path) = (directory.join(format!(".{name}")), directory.join(name));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
        // Locked before it has the name under which it is looked for.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&content)?;
        fs::rename(made, &path)?;
        Ok(Some(Record { path, _lock: file }))
    }
}

/// Does what runs have left that were cut off; and what runs saw before they began that go on.
fn unfinished() -> (Mended, Vec<Before>) {
    let (mut mended, mut running) = (Mended::default(), Vec::new());
    let Ok(directory) = state::directory() else { return (mended, running) };
    let entries = fs::read_dir(directory.join("unfinished")).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b".")).take(MOST_RECORDS) {
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
        let Ok(file) = File::options().read(true).custom_flags(flags).open(entry.path()) else { continue };
        let goes_on = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
        let mut bytes = Vec::new();
        let read = (&file).take(MOST_BYTES).read_to_end(&mut bytes);
        let before = read.and_then(|_| serde_json::from_slice::<Before>(&bytes).map_err(std::io::Error::from));
        match before {
            Ok(before) if goes_on => running.push(before),
            // It has just ended.
            Err(_) if goes_on => {}
            Ok(before) => {
                let Mended { renamed, failed } = before.mend();
                mended.renamed.extend(renamed);
                mended.failed.extend(failed);
            }
            Err(e) => {
                mended.failed.push((entry.path(), format!("the record of an interrupted run cannot be read: {e}")))
            }
        }
        if !goes_on {
            fs::remove_file(entry.path()).ok(); // another run does the same at this moment
        }
    }
    (mended, running)
}

/// Has an outcome say what was disabled, and what could not be.
fn report(outcome: &mut Outcome, mended: &Mended, who: &str) {
    if mended.is_empty() {
        return;
    }
    let mut texts = Vec::new();
    let mut hint = None;
    // The names are the program's.
    let shown = |path: &Path| text::one_line(&path.to_string_lossy());
    for (path, now) in mended.renamed.iter().take(NAMED) {
        let is_index = path.file_name().is_some_and(|name| name == "index");
        texts.push(if is_index {
            format!(
                "{who} left an index that may make git run other repositories, and that is not understood: {} is now {}",
                shown(path),
                shown(now)
            )
        } else {
            format!(
                "{who} left a repository that git would obey, and that could run programs, in the index: {} is now {}",
                shown(path),
                shown(now)
            )
        });
        hint.get_or_insert_with(|| {
            if is_index {
                "git reset makes the index anew, from the last commit".to_owned()
            } else {
                let word = |path: &Path| text::shell_word(path.to_str()?);
                match word(now).zip(word(path)) {
                    Some((now, path)) => format!("read its config and hooks, then: mv {now} {path}"),
                    // A command with this name in it would not be what is read.
                    None => "read its config and hooks, then give it its name back".to_owned(),
                }
            }
        });
    }
    if mended.renamed.len() > NAMED {
        texts.push(format!("{} more were renamed", mended.renamed.len() - NAMED));
    }
    for (path, why) in mended.failed.iter().take(NAMED) {
        texts.push(format!(
            "{who} left {} in the index, which git would obey and which cannot be renamed: {why}; run no git there",
            shown(path)
        ));
    }
    if mended.failed.len() > NAMED {
        texts.push(format!("{} more cannot be renamed", mended.failed.len() - NAMED));
    }
    let objects = mended.renamed.iter().map(|(path, _)| path).chain(mended.failed.iter().map(|(path, _)| path));
    outcome.violations.extend(objects.take(NAMED).map(|path| Violation {
        operation: "gitlink".into(),
        object: Some(shown(path)),
        field: "$.filesystem.protected".into(),
        evidence: Evidence::Inferred,
        pid: 0,
        count: 1,
        aggregated: false,
    }));
    let code = if mended.failed.is_empty() { 0 } else { 125 };
    outcome.success &= code == 0;
    add(outcome, Failure { code, step: "repositories".into(), message: texts.join("; "), hint });
}

/// Adds to what an outcome says already, whose code and hint stay unless it has none.
fn add(outcome: &mut Outcome, failure: Failure) {
    match &mut outcome.error {
        Some(error) => {
            error.message = format!("{}; {}", error.message, failure.message);
            error.code = if error.code == 0 { failure.code } else { error.code };
            error.hint = error.hint.take().or(failure.hint);
        }
        none => *none = Some(failure),
    }
}
