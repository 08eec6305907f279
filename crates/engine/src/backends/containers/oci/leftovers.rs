//! What owners that were killed left behind: bundles, and what the runtimes keep of them.
//!
//! Each bundle's directory says whose it is. It is removed when that owner cannot live any more (`owner`). Never touches a directory with another kind of
//! name, or one of whose owner nothing can be known.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cgroups;
use super::launch::{Calls, GONE, RuntimeLock};
use super::runtimes::{InstalledRuntime, Runtime};
use crate::backends::containers::owner;
use crate::backends::containers::owner::{Leftover, ProcessScope};
use crate::backends::containers::{ContainerSpec, Swept};

/// How old a directory without an owner must be: its creator writes that first.
const UNWRITTEN: Duration = Duration::from_secs(600);
/// After how long what was left before another boot is no longer kept: until then it may be another machine's, in a directory
/// that both see.
const OTHER_BOOT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a runtime may take that finishes after its owner, before what it made is taken from it.
const FINISHES: Duration = Duration::from_secs(5);

/// A bundle's file `owner`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BundleOwner {
    owner: String,
    runtime: Runtime,
    host_network: bool,
    /// Where the runtime makes cgroups.
    cgroups: Vec<PathBuf>,
}

impl BundleOwner {
    /// Of a spec.
    pub(super) fn new(spec: &ContainerSpec, runtime: Runtime) -> BundleOwner {
        let said = spec.labels.iter().find(|(name, _)| name == owner::OWNER).map(|(_, owner)| owner.clone());
        let host_network = spec.network == crate::backends::containers::Net::Host;
        BundleOwner {
            owner: said.or_else(owner::me).unwrap_or_default(),
            runtime,
            host_network,
            cgroups: cgroups::own(),
        }
    }

    /// What is written.
    pub(super) fn text(&self) -> Vec<u8> {
        serde_json::json!(self).to_string().into_bytes()
    }
}

/// What becomes of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is somebody's, or nothing can be known.
    Kept,
    /// Its owner is dead: what it left may run, and its runtime ends it.
    Ended,
    /// Nothing of it can run: it was before this boot, or never was whole.
    Files,
}

/// Decides, from the file `owner` where there is one, and the age of the directory.
fn fate(note: Option<&BundleOwner>, runtime: Runtime, age: Duration, left: impl Fn(&str) -> Leftover) -> Fate {
    let Some(note) = note else { return if age >= UNWRITTEN { Fate::Files } else { Fate::Kept } };
    match left(&note.owner) {
        Leftover::No => Fate::Kept,
        Leftover::IfEnded if age >= OTHER_BOOT => Fate::Files,
        Leftover::IfEnded => Fate::Kept,
        // Its own runtime knows how.
        Leftover::Yes if note.runtime != runtime => Fate::Kept,
        Leftover::Yes => Fate::Ended,
    }
}

/// Removes what dead owners left that this runtime made.
pub(super) fn sweep(installed: &InstalledRuntime, bundles: &Path, rootless: bool) -> Swept {
    let mut swept = Swept::default();
    let (Ok(entries), Some(here)) = (std::fs::read_dir(bundles), ProcessScope::read()) else { return swept };
    for entry in entries.flatten() {
        // What somebody was removing when he was killed.
        if entry.file_name().to_str().is_some_and(|name| name.strip_prefix(GONE).is_some_and(owner::is_ours)) {
            swept.problems.extend(remove_files(&entry.path()));
            continue;
        }
        let Some(id) = entry.file_name().to_str().filter(|name| owner::is_ours(name)).map(str::to_owned) else {
            continue;
        };
        let bundle = entry.path();
        let Ok(found) = std::fs::symlink_metadata(&bundle) else { continue };
        if !found.is_dir() || std::os::unix::fs::MetadataExt::uid(&found) != rustix::process::geteuid().as_raw() {
            continue;
        }
        let age = found.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
        let note =
            std::fs::read(bundle.join("owner")).ok().and_then(|text| serde_json::from_slice::<BundleOwner>(&text).ok());
        let left = |owner: &str| owner::left_by(owner, &here, owner::process);
        let problems = match fate(note.as_ref(), installed.runtime, age, left) {
            Fate::Kept => continue,
            Fate::Files => remove_files(&bundle),
            Fate::Ended => {
                let (host_network, places) = note.map(|note| (note.host_network, note.cgroups)).unwrap_or_default();
                // One that waits for ever, such as on a file system that does not answer.
                if !RuntimeLock::ended_within(&bundle, FINISHES) && !RuntimeLock::end(&bundle).unwrap_or(false) {
                    let name = installed.runtime.name();
                    swept.problems.push(format!("{name} has not ended with {id}, whose owner is gone"));
                }
                let calls = Calls { installed: installed.clone(), rootless, host_network, bundle, id: id.clone() };
                // Also where the runtime knows of none: it may have been killed before it had noted what it made.
                [calls.forget(), cgroups::remove(&places, &id)]
                    .into_iter()
                    .find(|p| !p.is_empty())
                    .unwrap_or_else(|| calls.discard())
            }
        };
        if problems.is_empty() {
            swept.removed.push(id);
        } else {
            swept.problems.extend(problems);
        }
    }
    swept.removed.sort();
    swept
}

fn remove_files(bundle: &Path) -> Vec<String> {
    match std::fs::remove_dir_all(bundle) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => vec![format!("cannot remove {}: {e}", bundle.display())],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(runtime: Runtime) -> BundleOwner {
        BundleOwner {
            owner: "5:100:b:7".into(),
            runtime,
            host_network: false,
            cgroups: vec!["/sys/fs/cgroup/x".into()],
        }
    }

    #[test]
    fn only_what_certainly_is_nobodys_goes() {
        let young = Duration::from_secs(5);
        let of = |left, age| fate(Some(&note(Runtime::Runc)), Runtime::Runc, age, |_| left);
        assert_eq!(of(Leftover::Yes, young), Fate::Ended);
        assert_eq!(of(Leftover::No, OTHER_BOOT * 2), Fate::Kept);
        assert_eq!(of(Leftover::IfEnded, young), Fate::Kept, "another machine may see this directory");
        assert_eq!(of(Leftover::IfEnded, OTHER_BOOT), Fate::Files);
        assert_eq!(fate(Some(&note(Runtime::Crun)), Runtime::Runc, OTHER_BOOT, |_| Leftover::Yes), Fate::Kept);
        assert_eq!(fate(None, Runtime::Runc, young, |_| Leftover::Yes), Fate::Kept, "it is just being made");
        assert_eq!(fate(None, Runtime::Runc, UNWRITTEN, |_| Leftover::No), Fate::Files);
    }

    #[test]
    fn what_is_written_is_read() {
        let read: BundleOwner = serde_json::from_slice(&note(Runtime::Runsc).text()).unwrap();
        assert_eq!(read, note(Runtime::Runsc));
    }
}
