//! `--cache`: the caches of a preset's tools, kept between runs for the working directory alone.
//!
//! Each cache is a directory of the caller's that only runs in that directory see and write. What one run puts into it, a later one
//! of the same project obeys, as it obeys the project's own files; no run elsewhere does.

use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use cofferdam_engine::audit::hidden::{Remembered, open_or_make, take};
use cofferdam_engine::audit::{hex, opened, sha256};
use cofferdam_policy::paths::is_within;
use cofferdam_policy::text::one_line;
use cofferdam_policy::{Access, BaseDirectory, Mount, OWN_HOME, Policy};

use super::others_hidden;
use crate::args::presets::ToolPreset;
use crate::caller::Caller;
use crate::output::text::quoted;
use crate::refusal::CliRefusal;

/// The directory of those of all projects.
const ALL: &str = "cofferdam-caches";

/// Most letters of the project's own name in that of its directory.
const LONGEST_NAME: usize = 40;

/// The caches that are kept for one working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptCaches {
    /// The directory with those of all projects, canonical as far as it is there.
    all: PathBuf,
    /// That of this one.
    own: PathBuf,
    /// Which there are, below the home that the preset makes.
    names: Vec<&'static str>,
    /// Whether nothing runs, so that nothing is made.
    dry_run: bool,
    /// The directory that `all` is in, where a variable moved it away from where every run looks.
    moved: Option<PathBuf>,
}

impl KeptCaches {
    /// Those of these presets.
    ///
    /// # Errors
    /// The presets keep none, or the working directory is no project that could have some of its own.
    pub(crate) fn of(presets: &[&ToolPreset], caller: &Caller, dry_run: bool) -> Result<KeptCaches, CliRefusal> {
        let refused = |message: String| CliRefusal::new("arguments", message);
        if presets.is_empty() {
            return Err(refused("--cache keeps the caches of a tool, and no --for names one".into())
                .hint("--for npm, pip, cargo, go, maven or gradle"));
        }
        let mut names: Vec<&str> = presets.iter().flat_map(|preset| preset.caches).copied().collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            let name = presets[0].name;
            return Err(refused(format!("--for {name} has no cache that could be kept")).hint("leave --cache out"));
        }
        caller.require_project().map_err(|message| refused(message).split_hint())?;
        let base = caller.base_directory(BaseDirectory::Cache).ok_or_else(|| {
            refused("there is no home directory to keep caches in".into()).hint("set HOME, or XDG_CACHE_HOME")
        })?;
        let base = real(&base);
        let usual = caller.homes.first().map(|home| real(&Path::new(home).join(BaseDirectory::Cache.usual())));
        let moved = (usual.as_ref() != Some(&base)).then(|| base.clone());
        // Where a variable led, no link of a sandbox's leads on.
        let all = if moved.is_some() { base.join(ALL) } else { real(&base.join(ALL)) };
        let own = all.join(name_of(&caller.cwd));
        Ok(KeptCaches { all, own, names, dry_run, moved })
    }

    fn source(&self, name: &str) -> PathBuf {
        self.own.join(name.replace('/', "-"))
    }

    /// The volumes.
    ///
    /// # Errors
    /// The path of the caches is not UTF-8.
    pub(crate) fn mounts(&self) -> Result<Vec<Mount>, CliRefusal> {
        let mount = |name: &&str| {
            let source = self.source(name).into_os_string().into_string();
            let source = source.map_err(|path| failed(Path::new(&path), "it is not UTF-8"))?;
            let target = format!("{OWN_HOME}/{name}");
            Ok(Mount::Bind { source, target, access: Access::ReadWrite, exec: true, optional: self.dry_run })
        };
        self.names.iter().map(mount).collect()
    }

    /// The volumes as they are typed.
    pub(crate) fn typed(&self) -> Vec<String> {
        let one = |name: &&str| {
            let volume = format!("{}:{OWN_HOME}/{name}:rw", self.source(name).display());
            format!("--volume {}", quoted(&volume))
        };
        self.names.iter().map(one).collect()
    }

    /// Hides the caches of other projects.
    ///
    /// # Errors
    /// A volume would show them.
    pub(crate) fn hide_others(&self, policy: &mut Policy) -> Result<(), CliRefusal> {
        let own = |source: &str, target: &str| is_within(target, OWN_HOME) && Path::new(source).starts_with(&self.own);
        others_hidden::show_own_part(policy, &self.all, own, |shown| {
            let message = format!(
                "{} would show the caches of other projects, which are in {}",
                one_line(&shown.to_string_lossy()),
                self.all.display()
            );
            CliRefusal::new("arguments", message).hint("leave --cache or that volume out")
        })
    }

    /// Makes the directories that are not there, and lets this run mount them. Where a variable moved them, later runs hide the place,
    /// and one that something else made is not used.
    ///
    /// # Errors
    /// One cannot be made, is a link, or not known to be Cofferdam's own.
    pub(crate) fn make(&self) -> Result<(), CliRefusal> {
        let because = |path: &Path| {
            let path = path.to_owned();
            move |error: std::io::Error| failed(&path, &error.to_string())
        };
        let all = match &self.moved {
            None => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.all);
                made.and_then(|()| std::fs::File::open(&self.all)).map(OwnedFd::from).map_err(because(&self.all))?
            }
            Some(base) => {
                let state = opened::state_directory().map_err(because(&self.all))?;
                take(Remembered::Caches, &state, base, ALL).map_err(because(&self.all))?.0
            }
        };
        let step = |at: &OwnedFd, path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            open_or_make(at, name).map_err(because(path))
        };
        let (own, _) = step(&all, &self.own)?;
        for path in self.names.iter().map(|name| self.source(name)) {
            step(&own, &path)?;
            if std::fs::canonicalize(&path).ok().as_ref() != Some(&path) {
                return Err(failed(&path, "a link leads elsewhere from it"));
            }
            cofferdam_engine::show_own(&path);
        }
        Ok(())
    }
}

/// Refuses to keep caches where the program starts outside of the working directory: they are those of the project in this one, and
/// another project's code would obey what it finds in them.
///
/// # Errors
/// The directory is, or leads, outside.
pub(crate) fn require_caches_of_here(workdir: Option<&str>, caller: &Caller) -> Result<(), CliRefusal> {
    let Some(workdir) = workdir else { return Ok(()) };
    let starts = caller.absolute_inside(workdir);
    let is_outside = |path: &Path| !path.starts_with(&caller.cwd);
    // The sandbox may have another directory there than the host.
    let leads_outside = std::fs::canonicalize(&starts).is_ok_and(|real| is_outside(&real));
    if !is_outside(Path::new(&starts)) && !leads_outside {
        return Ok(());
    }
    let message = format!(
        "--cache keeps caches for the working directory, which is {}, and the program would start in {}",
        one_line(&caller.cwd),
        one_line(&starts)
    );
    Err(CliRefusal::new("arguments", message).hint(format!("cd {} first, without -w", quoted(&starts))))
}

fn failed(path: &Path, why: &str) -> CliRefusal {
    CliRefusal::new("arguments", format!("cannot keep a cache in {}: {why}", path.display()))
        .hint("remove it to start afresh, leave --cache out, or name another place with XDG_CACHE_HOME")
}

/// A path without links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    match there.and_then(|(above, real)| Some((real, path.strip_prefix(above).ok()?))) {
        // A path that is joined to nothing ends in a slash.
        Some((real, rest)) if rest.as_os_str().is_empty() => real,
        Some((real, rest)) => real.join(rest),
        None => path.to_owned(),
    }
}

/// The name of a project's directory: its own name for people, and a hash of its path.
fn name_of(directory: &str) -> String {
    let name = directory.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = name.chars().map(plain).take(LONGEST_NAME).collect();
    format!("{name}-{}", &hex(&sha256(directory.as_bytes()))[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_a_name_of_its_own() {
        let (one, two) = (name_of("/w/app"), name_of("/v/app"));
        assert!(one.starts_with("app-") && two.starts_with("app-") && one != two);
        let long = name_of(&format!("/{}", "é/../x".repeat(500)));
        assert!(long.len() < 255 && !long.contains('/'));
    }
}
