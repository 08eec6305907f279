//! The look before a run and the one after it, and what the outcome says. What was seen before is recorded in the state
//! directory while the run goes on: after one that was cut off, the next run does what is left.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_audit::opened;
use cofferdam_policy::{Policy, text};
use rustix::fs::{FlockOperation, flock};

use super::places::{OpenPlace, Whereabouts};
use super::{Mended, RepositoriesBefore, before};
use crate::failure::{FailedStep, Failure, REFUSED};
use crate::outcome::{Evidence, Outcome, Violation};
use crate::plan::own_places;

/// Records of earlier runs that are looked at.
const MOST_RECORDS: usize = 256;
/// Bytes of one.
const MOST_BYTES: u64 = 16 << 20;
/// How old a record without a lock is that nobody is writing any more.
const ABANDONED: Duration = Duration::from_secs(60);
/// Files that the outcome names.
const NAMED: usize = 16;

/// What is looked at again when the run is over.
#[derive(Debug, Default)]
pub(crate) struct RepositoryWatch {
    before: RepositoriesBefore,
    /// The directories that it is about.
    open: Vec<OpenPlace>,
    earlier: Mended,
    record: Option<PendingRecord>,
    /// What could not be looked at or recorded before the run.
    faults: Vec<Failure>,
}

/// What was seen before the run, for whom the end of this process leaves it to. Its lock ends with the process.
#[derive(Debug)]
struct PendingRecord {
    path: PathBuf,
    _lock: File,
}

impl RepositoryWatch {
    /// Looks at the volumes that the program may write, where the policy protects git's files in them.
    pub(crate) fn begin(policy: &Policy) -> RepositoryWatch {
        let volumes = if protects(policy) { own_places::writable(policy) } else { Vec::new() };
        if volumes.is_empty() {
            return RepositoryWatch::default();
        }
        // First who else is running: what such a run leaves is disabled before its record goes.
        let Unfinished { mended: earlier, running, mut faults } = unfinished(&volumes);
        let mut before = before(&volumes);
        let open = OpenPlace::all(&before.places);
        before.as_also_seen_by(&running);
        let record = PendingRecord::write(&before).unwrap_or_else(|e| {
            faults.push(fault(
                0,
                format!(
                    "what git obeyed before the run could not be recorded ({e}), so nothing would have been looked at after \
                     an interrupted run"
                ),
            ));
            None
        });
        RepositoryWatch { before, open, earlier, record, faults }
    }

    /// Whether something in the volumes has another name or says something else now, which an interrupted run had left.
    pub(crate) fn renamed(&self) -> bool {
        let Mended { renamed, behind, unlinked, restored, .. } = &self.earlier;
        *restored || !(renamed.is_empty() && behind.is_empty() && unlinked.is_empty())
    }

    /// Looks again, now that every process of the run is dead, and has the outcome say what was found.
    pub(crate) fn end(self, outcome: &mut Outcome) {
        let mended = self.before.mend();
        let away = self.before.away_now(&self.open);
        let removed: Vec<&PathBuf> =
            away.iter().filter(|(_, now)| matches!(now, Whereabouts::Removed)).map(|(at, _)| at).collect();
        let (_, left) = self.before.without(&removed).parted();
        let kept = match (&self.record, left) {
            // What was there before is not known from anything else.
            (Some(_), _) if mended.unrestored => true,
            // What cannot be written anew is kept as it is.
            (Some(record), Some(left)) => PendingRecord::replace(&record.path, &left).is_ok() || record.path.exists(),
            (Some(record), None) => {
                fs::remove_file(&record.path).ok(); // what is left is done again, and finds nothing
                false
            }
            (None, _) => false,
        };
        report(outcome, &self.earlier, "an earlier run, which was cut off or whose directory was moved,");
        report(outcome, &mended, "the program");
        for fault in self.faults.into_iter().chain(unlooked(&away, kept)) {
            outcome.success &= fault.code == 0;
            add(outcome, fault);
        }
    }
}

/// Whether a run of this policy is looked at.
pub(crate) fn watches(policy: &Policy) -> bool {
    protects(policy) && !own_places::writable(policy).is_empty()
}

fn protects(policy: &Policy) -> bool {
    policy.filesystem.protected.iter().any(|name| name.starts_with(".git/"))
}

impl PendingRecord {
    /// None where there is nothing to look at again.
    fn write(before: &RepositoriesBefore) -> std::io::Result<Option<PendingRecord>> {
        if before.is_empty() {
            return Ok(None);
        }
        let directory = opened::state_directory()?.join("unfinished");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        PendingRecord::replace(&directory.join(cofferdam_audit::random::uuid()), before).map(Some)
    }

    /// Writes a record that is there anew, or one that is not.
    fn replace(path: &Path, before: &RepositoriesBefore) -> std::io::Result<PendingRecord> {
        let content = serde_json::to_vec(before)?;
        if content.len() as u64 > MOST_BYTES {
            return Err(std::io::Error::other("there are too many repositories"));
        }
        let made = path.with_file_name(format!(".{}", cofferdam_audit::random::uuid()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&made)?;
        // Locked before it has the name under which it is looked for.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&content)?;
        fs::rename(made, path)?;
        Ok(PendingRecord { path: path.to_owned(), _lock: file })
    }
}

/// What the records of other runs say.
#[derive(Default)]
struct Unfinished {
    /// What was done after those that were cut off.
    mended: Mended,
    /// What those saw before they began that go on.
    running: Vec<RepositoriesBefore>,
    /// What cannot be read.
    faults: Vec<Failure>,
}

/// Does what runs have left that were cut off; and what runs saw before they began that go on. What one has left in a directory
/// that is not there is looked for in these volumes; where it is not found, the record stays.
fn unfinished(volumes: &[String]) -> Unfinished {
    let mut all = Unfinished::default();
    let volumes: Vec<PathBuf> = volumes.iter().map(PathBuf::from).collect();
    let mut kept = Vec::new();
    // Without a state directory there is no record, and that none can be written is said.
    let Ok(directory) = opened::state_directory().map(|directory| directory.join("unfinished")) else { return all };
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return all,
        Err(e) => {
            let message =
                format!("{} cannot be listed ({e}), so no record of an interrupted run was read", shown(&directory));
            all.faults.push(fault(0, message));
            return all;
        }
    };
    let (parts, records): (Vec<_>, Vec<_>) =
        entries.flatten().partition(|entry| entry.file_name().as_encoded_bytes().starts_with(b"."));
    parts.iter().for_each(|part| sweep(&part.path()));
    for entry in records.iter().take(MOST_RECORDS) {
        let path = entry.path();
        let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
        let (goes_on, before) = match File::options().read(true).custom_flags(flags).open(&path) {
            Ok(file) => (flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(), decode(&file)),
            Err(e) if e.kind() == ErrorKind::NotFound => continue, // its run has just ended
            Err(e) => (false, Err(e)),
        };
        match before {
            // Its directories may have moved meanwhile to where this run has them.
            Ok(before) if goes_on => all.running.push(before.found_in(&volumes)),
            // It has just ended.
            Err(_) if goes_on => {}
            Ok(before) => {
                let (here, away) = before.found_in(&volumes).parted();
                let mended = here.mend();
                let unrestored = mended.unrestored;
                all.mended.append(mended);
                // It is tried again, with what the record says now.
                if unrestored {
                    continue;
                }
                if let Some(away) = away {
                    // What was looked at now is not looked at once more. What cannot be written anew stays as it was.
                    if !here.is_empty() {
                        PendingRecord::replace(&path, &away).ok();
                    }
                    kept.push((path, away.place().map(Path::to_owned).unwrap_or_default()));
                    continue;
                }
            }
            Err(e) => all.faults.push(unread(&path, &e)),
        }
        if !goes_on {
            fs::remove_file(path).ok(); // another run does the same at this moment
        }
    }
    all.faults.extend(waiting(&kept));
    if records.len() > MOST_RECORDS {
        let message =
            format!("{} has more than {MOST_RECORDS} records of runs, and the others were not read", shown(&directory));
        all.faults.push(fault(0, message));
    }
    all
}

/// Says which records wait for directories that are not there.
fn waiting(kept: &[(PathBuf, PathBuf)]) -> Option<Failure> {
    let mut texts: Vec<String> = kept
        .iter()
        .take(NAMED)
        .map(|(record, place)| {
            format!(
                "what an earlier run left for git in {} could not be looked at, since that directory is not there or is another \
                 one: its record {} stays",
                shown(place),
                shown(record)
            )
        })
        .collect();
    if kept.len() > NAMED {
        texts.push(format!("{} more such records stay", kept.len() - NAMED));
    }
    let (record, _) = kept.first()?;
    let remove = match record.to_str().and_then(text::shell_word) {
        Some(record) => format!("rm {record}"),
        None => "remove the record".to_owned(),
    };
    let hint = format!(
        "run no git in that directory until a run has looked at it: put it back, or name it as a writable volume where it is now; if \
         it is gone for good: {remove}"
    );
    Some(fault(0, texts.join("; ")).hint(hint))
}

/// Says what is not at its path after the run, and so was not looked at.
fn unlooked(away: &[(PathBuf, Whereabouts)], recorded: bool) -> Vec<Failure> {
    let one = |(path, now): &(PathBuf, Whereabouts)| {
        let was = shown(path);
        let to = match now {
            Whereabouts::Removed => {
                return fault(0, format!("{was} was removed while the run went on, and nothing in it was looked at"));
            }
            Whereabouts::Moved(Some(now)) => format!("is now {}", shown(now)),
            Whereabouts::Moved(None) => "is not there, or is another directory".to_owned(),
        };
        let message = format!(
            "{was} was moved while the run went on and {to}: what the program left there for git was not looked at; run no git there"
        );
        let hint = match recorded {
            true => "put it back or leave it where it is: the next run that has it as a writable volume looks at it",
            false => {
                "`git ls-files --stage` lists embedded repositories by the mode 160000: read their config and hooks first"
            }
        };
        fault(REFUSED, message).hint(hint)
    };
    away.iter().take(NAMED).map(one).collect()
}

/// Removes a record that was never written whole: the program that it was for had not begun.
fn sweep(part: &Path) {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let Ok(file) = File::options().read(true).custom_flags(flags).open(part) else { return };
    let age = file.metadata().and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
    if age.is_some_and(|age| age > ABANDONED) && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        fs::remove_file(part).ok(); // another run does the same at this moment
    }
}

fn decode(file: &File) -> std::io::Result<RepositoriesBefore> {
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

fn fault(code: i32, message: String) -> Failure {
    Failure::new(FailedStep::Repositories, message).code(code)
}

/// Nothing says what the run of this record could write, so that nothing of it was looked at.
fn unread(path: &Path, why: &std::io::Error) -> Failure {
    let path = shown(path);
    let message = format!(
        "the record of an interrupted run cannot be read, and what that run left for git was not looked at: {path}: {why}"
    );
    let hint = "in each repository that the run could write, `git ls-files --stage` lists embedded repositories by the mode \
                160000; run nothing else of git there before you know all of them";
    fault(REFUSED, message).hint(hint)
}

/// A path whose names may be the program's.
fn shown(path: &Path) -> String {
    text::one_line(&path.to_string_lossy())
}

/// Whether it is a repository of Mercurial's, which only a path of it leads to.
fn is_mercurial(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".hg")
}

/// Has an outcome say what was disabled, and what could not be.
fn report(outcome: &mut Outcome, mended: &Mended, who: &str) {
    if mended.is_empty() {
        return;
    }
    let mut texts = Vec::new();
    let mut hint = None;
    for (path, now) in mended.renamed.iter().take(NAMED) {
        let is_index = path.file_name().is_some_and(|name| name == "index");
        texts.push(if is_index {
            format!(
                "{who} left an index that may make git run other repositories, and that is not understood: {} is now {}",
                shown(path),
                shown(now)
            )
        } else if is_mercurial(path) {
            format!(
                "{who} left a repository that Mercurial would obey, and that could run programs, where one of its paths leads: {} is now {}",
                shown(path),
                shown(now)
            )
        } else {
            format!(
                "{who} left a repository that git would obey, and that could run programs, in the index or where a remote leads: {} is now {}",
                shown(path),
                shown(now)
            )
        });
        hint.get_or_insert_with(|| {
            if is_index {
                "`git ls-tree -r HEAD` lists, with mode 160000, repositories that git would run in once the index is made anew \
                 from that commit; where you know them all, `git reset` makes it"
                    .to_owned()
            } else {
                let word = |path: &Path| text::shell_word(path.to_str()?);
                let files = if is_mercurial(path) { "hgrc" } else { "config and hooks" };
                match word(now).zip(word(path)) {
                    Some((now, path)) => format!("read its {files}, then: mv {now} {path}"),
                    // A command with this name in it would not be what is read.
                    None => format!("read its {files}, then give it its name back"),
                }
            }
        });
    }
    if mended.renamed.len() > NAMED {
        texts.push(format!("{} more were renamed", mended.renamed.len() - NAMED));
    }
    for (path, why) in mended.failed.iter().take(NAMED) {
        texts.push(format!(
            "{who} left {} in the index, or where a remote or a path leads, which version control would obey and which cannot be renamed: {why}; run no git there",
            shown(path)
        ));
    }
    if mended.failed.len() > NAMED {
        texts.push(format!("{} more cannot be renamed", mended.failed.len() - NAMED));
    }
    for (path, now) in mended.behind.iter().take(NAMED) {
        texts.push(format!(
            "{who} left a symbolic link by which an entry of the index leads to a repository that git may obey: {} is now {}",
            shown(path),
            shown(now)
        ));
        hint.get_or_insert_with(|| {
            "`git ls-files --stage` lists entries of the mode 160000: remove those that lead through it with `git rm --cached`, or \
             read config and hooks of their repositories, before you give it its name back"
                .to_owned()
        });
    }
    if mended.behind.len() > NAMED {
        texts.push(format!("{} more such links were renamed", mended.behind.len() - NAMED));
    }
    for (path, now) in mended.unlinked.iter().take(NAMED) {
        texts.push(format!(
            "{who} left what version control would follow to other files, and read or write them: {} is now {}",
            shown(path),
            shown(now)
        ));
        hint.get_or_insert_with(|| {
            "look at it; where it names only files that are meant, give it its name back".to_owned()
        });
    }
    if mended.unlinked.len() > NAMED {
        texts.push(format!("{} more of these were renamed", mended.unlinked.len() - NAMED));
    }
    for (path, why) in mended.followed.iter().take(NAMED) {
        texts.push(format!(
            "what version control would follow out of {} cannot be looked at, or not be renamed: {why}; run none of its \
             programs there",
            shown(path)
        ));
    }
    for (path, why) in mended.unseen.iter().take(NAMED) {
        texts.push(format!(
            "links in {} could not be looked for, before the run and after it: {why}; version control may write through one \
             that {who} made there",
            shown(path)
        ));
        hint.get_or_insert_with(|| "look for links with: find . -type l -ls".to_owned());
    }
    let indexed = mended.renamed.iter().map(|(path, _)| path).chain(mended.failed.iter().map(|(path, _)| path));
    let links = mended.behind.iter().chain(&mended.unlinked);
    let followed = links.map(|(path, _)| path).chain(mended.followed.iter().map(|(path, _)| path));
    let objects = indexed.take(NAMED).map(|path| ("gitlink", path));
    outcome.violations.extend(objects.chain(followed.take(NAMED).map(|path| ("link", path))).map(
        |(operation, path)| Violation {
            operation: operation.into(),
            object: Some(shown(path)),
            field: "$.filesystem.protected".into(),
            evidence: Evidence::Inferred,
            pid: 0,
            count: 1,
            aggregated: false,
        },
    ));
    let code = if mended.failed.is_empty() && mended.followed.is_empty() { 0 } else { 125 };
    outcome.success &= code == 0;
    add(outcome, Failure::new(FailedStep::Repositories, texts.join("; ")).code(code).maybe_hint(hint));
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
