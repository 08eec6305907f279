//! What every caller of an environment does with it: who the caller is, what code may do before the environment says
//! anything, and what a flake reference was built into.
//!
//! One place for the command and the server, so that a name means the same in both. Builds nothing unless asked to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cofferdam_policy::paths::{PathSet, is_within};
use cofferdam_policy::{CREDENTIALS, Policy, Root, XDG, credential_deny, credential_deny_moved, dot_deny};

use super::discover::holds_more;
use super::nix::{Builder, Building, NixError};
use super::recipe::store_of;
use super::{Around, Environment, Kind, Project, Rank, Recipe, Shell, Surroundings, artifact};

/// Why the process's surroundings cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// There is no working directory.
    #[error("cannot tell the working directory: {0}\nhint: it was removed or cannot be read: change to another one")]
    NoDirectory(#[source] std::io::Error),
    /// It has a name that a policy cannot hold.
    #[error(
        "the working directory is not valid UTF-8: {0:?}\nhint: a policy is UTF-8 text; rename the directory, or reach it through one with such a name"
    )]
    NotText(std::ffi::OsString),
}

impl Surroundings {
    /// Looks at this process: its directory, its variables that are valid UTF-8, and its homes, which are `$HOME` and the
    /// one of the user database, each also by its real path.
    ///
    /// # Errors
    /// The working directory cannot be told.
    pub fn observe() -> Result<Surroundings, ObserveError> {
        let cwd = std::env::current_dir().map_err(ObserveError::NoDirectory)?;
        let cwd = cwd.into_os_string().into_string().map_err(ObserveError::NotText)?;
        let variables: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
        let mut homes = Vec::new();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let own = variables.get("HOME").map(String::as_str);
        for home in [own, passwd_home(&passwd, rustix::process::getuid().as_raw())].into_iter().flatten() {
            let Some(home) = cofferdam_policy::paths::normalize(home) else { continue };
            // The real directory as well: a home is often reached through a symlink.
            let real = std::fs::canonicalize(&home).ok().and_then(|p| p.into_os_string().into_string().ok());
            for home in [Some(home), real].into_iter().flatten() {
                if home.starts_with('/') && home != "/" && !homes.contains(&home) {
                    homes.push(home);
                }
            }
        }
        Ok(Surroundings { variables, cwd, homes, system: PathBuf::from("/etc") })
    }
}

/// Home directory of a user id in the text of passwd(5).
fn passwd_home(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let id = fields.nth(2)?;
        (id.parse() == Ok(uid)).then(|| fields.nth(2))?
    })
}

/// What code may do when nobody says otherwise: see the system's files. Where it is shown more of the host, it goes
/// without credentials.
pub fn eval_base(shows_more: bool, homes: &[String]) -> Policy {
    let mut policy = Policy::base();
    if shows_more {
        policy.filesystem.deny = credentials(homes);
    }
    policy
}

/// The variables that move credentials.
static CREDENTIAL_VARIABLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let named = CREDENTIALS.iter().flat_map(|entry| &entry.variables).filter_map(|name| name.split('/').next());
    named.chain(XDG.iter().map(|(_, name)| *name)).map(str::to_owned).collect()
});

/// Where credentials are that no installation has: what holds one of these is none.
pub(super) fn credentials_elsewhere(homes: &[String]) -> Vec<String> {
    let entries = || CREDENTIALS.iter().filter(|entry| !entry.is_of_an_installation()).map(|entry| entry.path);
    let (system, own): (Vec<&str>, Vec<&str>) = entries().partition(|path| path.starts_with('/'));
    let below =
        |home: &String| own.iter().map(|path| format!("{}/{path}", home.trim_end_matches('/'))).collect::<Vec<_>>();
    homes.iter().flat_map(below).chain(system.iter().map(|path| (*path).to_owned())).collect()
}

/// Where credentials are, in these homes.
pub fn credentials(homes: &[String]) -> Vec<String> {
    let mut deny: Vec<String> = homes.iter().flat_map(|home| credential_deny(home, &names)).collect();
    if homes.is_empty() {
        deny.extend(CREDENTIALS.iter().filter(|entry| entry.path.starts_with('/')).map(|entry| entry.path.to_owned()));
    }
    deny.sort_unstable();
    deny.dedup();
    deny
}

/// Denies the credentials that the caller's variables put elsewhere. A place that a home or the working directory lies in
/// is no place of credentials.
pub fn deny_moved<'v>(policy: &mut Policy, homes: &[String], variable: impl Fn(&str) -> Option<&'v str>) {
    let cwd = policy.command.cwd.clone();
    let holds = |path: &String| homes.iter().chain(&cwd).any(|place| is_within(place, path));
    // Programs of the caller's take a relative value from where they are started, as this one was.
    let here = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok()).unwrap_or_default();
    let moved = credential_deny_moved(&here, variable, &names);
    policy.filesystem.deny.extend(moved.into_iter().filter(|path| !holds(path)));
    policy.filesystem.deny.sort_unstable();
    policy.filesystem.deny.dedup();
}

/// Denies the dot names of the caller's homes in a host view, but for what programs need. Each home is listed once, and
/// the few directories in which some names are shown. Stays open: the working directory, the directories of PATH, and
/// `volumes`, what the caller named; one that a home lies in gives the home as it is.
pub fn deny_dot_names(policy: &mut Policy, around: Around<'_>, volumes: &[String]) {
    let path = around.variable("PATH").unwrap_or_default().split(':').filter(|dir| dir.starts_with('/'));
    let mut opened: Vec<String> = path.chain([around.cwd]).map(str::to_owned).chain(volumes.iter().cloned()).collect();
    let real =
        |path: &String| std::fs::canonicalize(path).ok().and_then(|real| real.into_os_string().into_string().ok());
    opened.extend(opened.iter().filter_map(real).collect::<Vec<_>>());
    let given = |home: &str| {
        volumes.iter().chain(volumes.iter().filter_map(real).collect::<Vec<_>>().iter()).any(|v| is_within(home, v))
    };
    let homes = around.homes.iter().map(|home| (home.as_str(), ""));
    let moved = XDG.iter().filter_map(|(directory, name)| Some((around.variable(name)?, *directory)));
    for (base, directory) in homes.chain(moved) {
        let in_a_home = !directory.is_empty() && around.homes.iter().any(|home| is_within(home, base));
        if base.starts_with('/') && base != "/" && !in_a_home && !given(base) {
            policy.filesystem.deny.extend(dot_deny(&names, base, directory, &opened));
        }
    }
    // What lies in a denied directory goes with it.
    let denied: PathSet = policy.filesystem.deny.iter().map(String::as_str).collect();
    policy.filesystem.deny = denied.outermost().iter().map(str::to_owned).collect();
}

/// Names of a directory that are no symbolic links; none where it cannot be listed, which the sandbox's user cannot either.
fn names(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let plain = entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    plain.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Sets what a defined environment sets. Where it shows more of the host than the system's files, it goes without
/// credentials, as a call with volumes does. `variable` answers with a variable of the caller's.
pub fn dress(
    policy: &mut Policy,
    recipe: &Recipe,
    project: Option<&Project>,
    homes: &[String],
    variable: impl Fn(&str) -> Option<String>,
) {
    if project.is_some() || !recipe.shows.is_empty() || matches!(recipe.root, Some(Root::Directory(_))) {
        policy.filesystem.deny.extend(credentials(homes));
        let values: BTreeMap<String, String> =
            CREDENTIAL_VARIABLES.iter().filter_map(|name| Some((name.clone(), variable(name)?))).collect();
        deny_moved(policy, homes, |name| values.get(name).map(String::as_str));
    }
    policy.go_by_hosts_proxy(&variable);
    recipe.dress(policy, project, variable);
}

/// Why an environment of a reference cannot be used now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unbuilt {
    /// Nobody has built it.
    #[error(
        "the environment `{name}` is {reference}, which was not built yet\nhint: cofferdam environment build {name}"
    )]
    NotYet {
        /// The environment.
        name: String,
        /// Its reference.
        reference: String,
    },
    /// What the reference is said to have been built into shows more than a build.
    #[error(
        "the environment `{name}` is {reference}, and its result {} would show {}, which is no Nix store\nhint: cofferdam environment build {name}",
        built.display(), shown.display()
    )]
    NoStore {
        /// The environment.
        name: String,
        /// Its reference.
        reference: String,
        /// Where the result leads.
        built: PathBuf,
        /// The directory that would be shown for it.
        shown: PathBuf,
    },
    /// Nix cannot.
    #[error(transparent)]
    Nix(#[from] NixError),
}

/// The environment with what its reference was built into: a checked artifact, or the directory of a package. `begins` is
/// told the reference before it is built.
///
/// # Errors
/// It is not built, and cannot or must not be.
pub fn ready(
    mut environment: Environment,
    builder: &Builder,
    around: &Surroundings,
    building: Building,
    begins: impl FnOnce(&str),
) -> Result<(Environment, Option<PathBuf>), Unbuilt> {
    let (Kind::Reference(reference) | Kind::Flake { reference, .. }) = &environment.kind else {
        return Ok((environment, None));
    };
    // What is unavailable for another reason is not built.
    if environment.unavailable().is_some() {
        return Ok((environment, None));
    }
    let known = if building == Building::Anew { None } else { builder.built(reference) };
    let built = match (known, building) {
        (Some(built), _) => built,
        (None, Building::Never) => {
            return Err(Unbuilt::NotYet { name: environment.name.clone(), reference: reference.clone() });
        }
        (None, _) => {
            begins(reference);
            builder.build(reference)?
        }
    };
    // The result is a link in a cache directory, which may have been writable in a run.
    let shown = built.to_str().and_then(store_of).map_or_else(|| built.clone(), PathBuf::from);
    if holds_more(around.around(), &credentials_elsewhere(&around.homes), &shown) {
        let (name, reference) = (environment.name.clone(), reference.clone());
        return Err(Unbuilt::NoStore { name, reference, built, shown });
    }
    if matches!(environment.kind, Kind::Reference(_)) {
        // A name that was made of the reference itself is nobody's claim about the artifact's.
        let name = (environment.rank != Rank::References).then_some(environment.name.as_str());
        environment.kind = match artifact(&built, name, &around.homes, &around.store()) {
            Ok(found) => Kind::Artifact(Box::new(found)),
            Err(problems) => Kind::Broken(problems),
        };
        return Ok((environment, None));
    }
    Ok((environment, Some(built)))
}

/// The project with its development shell, where that is used. `begins` is told the project before its shell is built; where
/// nothing may be built, one that could be and is not built yet is left out.
///
/// # Errors
/// It cannot be built, or is none that can be used.
pub fn developed(
    project: Option<Project>,
    builder: &Builder,
    around: &Surroundings,
    building: Building,
    begins: impl FnOnce(&str),
) -> Result<Option<Project>, Unbuilt> {
    let Some(mut project) = project else { return Ok(None) };
    if !project.use_flake {
        return Ok(Some(project));
    }
    let known = if building == Building::Anew { None } else { builder.described(&project.path) };
    let file = match (known, building) {
        (Some(file), _) => file,
        // It is there once the first call has built it.
        (None, Building::Never) => {
            builder.describes(&project.path)?;
            return Ok(Some(project));
        }
        (None, _) => {
            begins(&project.path);
            builder.describe(&project.path)?
        }
    };
    let unusable = |problem: String| NixError::Shell { project: project.path.clone(), problem };
    let store = file.to_str().and_then(store_of).ok_or_else(|| unusable("its description is in no store".into()))?;
    // The link to it is in a cache directory, which may have been writable in a run.
    if holds_more(around.around(), &credentials_elsewhere(&around.homes), Path::new(&store)) {
        return Err(unusable(format!("{store} is no Nix store")).into());
    }
    let text = std::fs::metadata(&file)
        .ok()
        .filter(|about| about.is_file() && about.len() <= super::shell::LONGEST)
        .and_then(|_| std::fs::read(&file).ok())
        .ok_or_else(|| unusable("its description cannot be read, or is too long".into()))?;
    let shell = Shell::parse(&text, &store, |path| Path::new(path).is_dir()).map_err(&unusable)?;
    project.shell = Some(shell);
    Ok(Some(project))
}

/// The environment as it is known without building anything: one whose reference was built into what it cannot use says so.
pub fn as_known(environment: &Environment, builder: &Builder, around: &Surroundings) -> Environment {
    match ready(environment.clone(), builder, around, Building::Never, |_| {}) {
        Ok((known, _)) if matches!(known.kind, Kind::Broken(_)) => known,
        _ => environment.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_gives_the_home_of_the_id() {
        let text = "root:x:0:0:root:/root:/bin/bash\nbroken\nu:x:1000:1000:U,,:/home/u:/bin/sh\n";
        assert_eq!(passwd_home(text, 1000), Some("/home/u"));
        assert_eq!(passwd_home(text, 7), None);
    }

    #[test]
    fn credentials_of_every_home_are_denied_and_of_no_other() {
        let deny = credentials(&["/home/u".into()]);
        assert!(deny.iter().any(|path| path == "/home/u/.ssh"), "{deny:?}");
        assert!(!deny.iter().any(|path| path.starts_with("/root")), "{deny:?}");
        assert!(eval_base(false, &["/home/u".into()]).filesystem.deny.len() < deny.len());
    }
}
