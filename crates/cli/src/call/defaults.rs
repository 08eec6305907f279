//! What `run` allows by default, and the least limit of open files. Looks at the host's files, changes nothing.

use cofferdam_config::environments::{HomeListings, credentials_of};
use cofferdam_engine::backends::capabilities;
use cofferdam_policy::limits::LIMITS;
use cofferdam_policy::paths::{is_within, normalize};
use cofferdam_policy::{Access, Field, Limits, Mount, NetworkMode, OWN_HOME, Policy, PolicyError, PolicyErrors, Root};

use crate::caller::Caller;

/// Bytes of each stream that are passed on as they come: more than any reader takes.
pub(crate) const UNLIMITED_OUTPUT: u64 = most(Field::Output);

/// The default limits of `run`, with which the builds of ordinary projects come to their end. `machine_mb` is the memory of
/// this machine in MiB, 0 where it is not known.
pub(crate) fn run_limits(machine_mb: u64) -> Limits {
    let base = Limits::base();
    Limits {
        memory_mb: (machine_mb / 2).clamp(base.memory_mb, 4096),
        processes: 1024,
        wall_ms: 60 * 60 * 1000,
        cpu_seconds: 4 * 60 * 60,
        ..base
    }
}

/// Takes the limits of time away, as a person at a terminal expects.
pub(crate) fn without_time_limits(limits: &mut Limits) {
    (limits.wall_ms, limits.cpu_seconds) = (most(Field::WallTime), most(Field::CpuTime));
}

/// The largest value of a limit.
pub(crate) const fn most(field: Field) -> u64 {
    let mut at = 0;
    while at < LIMITS.len() {
        if LIMITS[at].field as usize == field as usize {
            return LIMITS[at].max;
        }
        at += 1;
    }
    panic!("the field is no limit")
}

/// Variables by which package managers fail at once where there is no network, and do not try for minutes.
const WITHOUT_RETRIES: [(&str, &str); 4] = [
    ("CARGO_NET_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    ("npm_config_fetch_retries", "0"),
    ("pnpm_config_fetch_retries", "0"),
];

/// Adds them to a program without a network, where it has no value of its own.
pub(crate) fn fail_without_network(policy: &mut Policy) {
    if policy.network.mode == NetworkMode::None {
        for (name, value) in WITHOUT_RETRIES {
            policy.command.variables.entry(name.into()).or_insert_with(|| value.into());
        }
    }
}

/// Has Cargo read the crates that the caller has already, where it is asked to use no network. They are shown read-only, so that
/// otherwise it has a home of its own. With settings there, which are hidden, it would stop.
pub(crate) fn read_own_crates(policy: &mut Policy, caller: &Caller) {
    let argv = &policy.command.argv;
    let is_cargo = argv.first().is_some_and(|program| program.rsplit('/').next() == Some("cargo"));
    let is_offline = argv.iter().any(|word| matches!(word.as_str(), "--offline" | "--frozen"));
    if !is_cargo || !is_offline || policy.filesystem.root != Root::Host {
        return;
    }
    let place = caller.variable("CARGO_HOME").map(str::to_owned);
    let Some(place) = place.or_else(|| Some(format!("{}/.cargo", caller.homes.first()?))) else { return };
    let there = |name: &str| std::path::Path::new(&place).join(name).symlink_metadata().is_ok();
    if place.starts_with('/') && there("registry") && !there("config.toml") && !there("config") {
        policy.command.variables.entry("CARGO_HOME".into()).or_insert(place);
    }
}

/// Has Maven find the artifacts that the caller has already, where it is asked to use no network: a copy of its local repository in
/// the home that the preset gives it. The settings beside it, which have passwords, stay hidden. Returns what is shown.
pub(crate) fn copy_own_artifacts(policy: &mut Policy, caller: &Caller) -> Option<String> {
    let argv = &policy.command.argv;
    let is_maven = argv.first().is_some_and(|program| matches!(program.rsplit('/').next(), Some("mvn" | "mvnw")));
    let is_offline = argv.iter().any(|word| matches!(word.as_str(), "-o" | "--offline"));
    let target = format!("{OWN_HOME}/.m2/repository");
    let mounts = &policy.filesystem.mounts;
    let has_home = mounts.iter().any(|mount| matches!(mount, Mount::Tmpfs { target, .. } if target == OWN_HOME));
    let is_taken = mounts.iter().any(|mount| is_within(&target, mount.target()) && mount.target() != OWN_HOME);
    let home = caller.homes.first().filter(|_| is_maven && is_offline && has_home && !is_taken)?;
    let source = format!("{home}/.m2/repository");
    std::path::Path::new(&source).is_dir().then(|| {
        let (access, exec, optional) = (Access::CopyOnWrite, false, false);
        policy.filesystem.mounts.push(Mount::Bind { source: source.clone(), target, access, exec, optional });
        source
    })
}

/// The default policy of `run`: the host's tree without credentials, and the working directory. With `elsewhere`, the program
/// starts in another directory, so a denied working directory is left out.
pub(crate) fn run_defaults(caller: &Caller, listings: &HomeListings<'_>, elsewhere: bool) -> Policy {
    let mut policy = Policy::base();
    policy.filesystem.root = Root::Host;
    policy.filesystem.deny = credentials_of(listings);
    policy.limits = run_limits(caller.memory_mb);
    let own = policy.command.variables.get("PATH").map_or("", String::as_str);
    if let Some(path) = program_path(caller, own, &|directory| std::path::Path::new(directory).is_dir()) {
        policy.command.variables.insert("PATH".into(), path);
    }
    policy.command.variables.extend(toolchains(caller));
    let denied = policy.filesystem.deny.iter().any(|path| is_within(&caller.cwd, path));
    if !(elsewhere && denied) {
        policy.command.cwd = Some(caller.cwd.clone());
        // Bound onto itself, because it may lie below /tmp or a home that the host view hides. Not for `/`, nor for /dev,
        // /proc and /sys, of which the sandbox has its own.
        let own = caller.cwd == "/" || ["/dev", "/proc", "/sys"].iter().any(|own| is_within(&caller.cwd, own));
        if !own {
            policy.filesystem.mounts.push(Mount::Bind {
                source: caller.cwd.clone(),
                target: caller.cwd.clone(),
                access: Access::ReadOnly,
                exec: true,
                optional: false,
            });
        }
    }
    policy
}

/// The variables that name the caller's toolchains, which their programs on the PATH look for in the home: the sandbox has
/// another one. A toolchain is read-only, and its credentials are denied as everywhere.
fn toolchains(caller: &Caller) -> impl Iterator<Item = (String, String)> + '_ {
    const HOMES: [(&str, &str); 9] = [
        ("ASDF_DATA_DIR", ".asdf"),
        ("GOENV_ROOT", ".goenv"),
        ("MISE_DATA_DIR", ".local/share/mise"),
        ("NVM_DIR", ".nvm"),
        ("PYENV_ROOT", ".pyenv"),
        ("RBENV_ROOT", ".rbenv"),
        ("RUSTUP_HOME", ".rustup"),
        ("SDKMAN_DIR", ".sdkman"),
        ("VOLTA_HOME", ".volta"),
    ];
    HOMES.iter().filter_map(|(variable, directory)| {
        let named = caller.variable(variable).map(str::to_owned);
        let place = named.or_else(|| Some(format!("{}/{directory}", caller.homes.first()?)))?;
        let there = normalize(&place).as_deref() == Some(&place) && std::path::Path::new(&place).is_dir();
        there.then(|| ((*variable).to_owned(), place))
    })
}

/// Hides what pyenv runs behind `pip install`: it writes a list of programs beside the Pythons, which are read-only here, waits for
/// that, and makes an installation fail that has succeeded.
pub(crate) fn without_rehash(policy: &mut Policy) {
    let Some(root) = policy.command.variables.get("PYENV_ROOT").filter(|_| policy.filesystem.root == Root::Host) else {
        return;
    };
    let target = format!("{root}/pyenv.d/exec/pip-rehash");
    let shims = format!("{root}/shims");
    let last = policy.filesystem.mounts.iter().rev().find(|mount| is_within(&shims, mount.target()));
    let is_writable = matches!(last, Some(Mount::Bind { access: Access::ReadWrite | Access::CopyOnWrite, .. }));
    if !is_writable && std::path::Path::new(&target).is_dir() {
        policy.filesystem.mounts.push(Mount::Tmpfs { target, size_mb: 1, exec: false });
    }
}

/// The PATH of the program: the absolute directories of the caller's, so that the same programs are found, and behind them
/// those of the sandbox's own. `None` without one of the caller's.
fn program_path(caller: &Caller, own: &str, is_directory: &dyn Fn(&str) -> bool) -> Option<String> {
    /// More than a person has, and less than a variable may be long.
    const MOST: usize = 64;
    let mut directories: Vec<&str> = Vec::new();
    let named =
        caller.variable("PATH")?.split(':').filter(|directory| normalize(directory).as_deref() == Some(directory));
    // The look at an entry that leads round in links would end the search for a program.
    let named =
        named.filter(|directory| directory.starts_with('/')).take(MOST).filter(|directory| is_directory(directory));
    for directory in named.chain(own.split(':')) {
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    Some(directories.join(":"))
}

/// Open files that the setup of a sandbox needs under the program's limit: descriptors of its stages, and the seccomp
/// notification listener. Each copy-on-write layer needs one more.
const FILES_FOR_SETUP: u64 = 16;

/// Refuses a limit of open files that the setup itself would exceed, for the backends that are set up under it.
///
/// # Errors
/// The limit is too low.
pub(crate) fn require_open_files(policy: &Policy) -> Result<(), PolicyErrors> {
    let copied = |mount: &&Mount| matches!(mount, Mount::Bind { access: Access::CopyOnWrite, .. });
    let least = FILES_FOR_SETUP + policy.filesystem.mounts.iter().filter(copied).count() as u64;
    let given = policy.limits.open_files;
    if given >= least || !capabilities(policy.backend).sets_up_under_limits {
        return Ok(());
    }
    Err(PolicyErrors(vec![PolicyError {
        path: "$.limits.open_files".into(),
        value: given.to_string(),
        problem: "too few to set the sandbox up".into(),
        accepted: format!("at least {least} with these volumes"),
    }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maven_without_a_network_gets_a_copy_of_its_own_repository() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join(".m2/repository")).unwrap();
        let home = home.path().to_str().unwrap();
        let caller = Caller { homes: vec![home.to_owned()], ..Caller::default() };
        let with = |argv: &[&str], mounts: &[Mount]| {
            let mut policy = Policy::base();
            policy.command.argv = argv.iter().map(|word| (*word).to_owned()).collect();
            policy.filesystem.mounts = mounts.to_vec();
            let shown = copy_own_artifacts(&mut policy, &caller);
            assert_eq!(shown.is_some(), policy.filesystem.mounts.len() > mounts.len());
            shown
        };
        let of_preset = [Mount::Tmpfs { target: OWN_HOME.into(), size_mb: 1, exec: true }];
        let shown = format!("{home}/.m2/repository");
        assert_eq!(with(&["/usr/bin/mvn", "-o", "package"], &of_preset).as_ref(), Some(&shown));
        assert_eq!(with(&["mvn", "package"], &of_preset), None);
        assert_eq!(with(&["other", "-o"], &of_preset), None);
        assert_eq!(with(&["mvn", "-o"], &[]), None, "it has no home of the preset's");
        let own = Mount::Tmpfs { target: "/tmp/home/.m2/repository".into(), size_mb: 1, exec: true };
        assert_eq!(
            with(&["mvn", "-o"], &[&of_preset[..], &[own]].concat()),
            None,
            "the caller has put something there"
        );
    }

    #[test]
    fn programs_are_looked_for_where_the_caller_looks() {
        let with = |path: Option<&str>| {
            let variables = path.map(|path| ("PATH".to_owned(), path.to_owned())).into_iter().collect();
            program_path(&Caller { variables, ..Caller::default() }, "/usr/bin:/bin", &|path| path != "/loop")
        };
        assert_eq!(with(None), None);
        assert_eq!(with(Some("/home/u/.cargo/bin:/bin")).as_deref(), Some("/home/u/.cargo/bin:/bin:/usr/bin"));
        let odd = ":.:bin:/loop:../x:/a/../b:/a//b:/c/:/usr/bin::/usr/bin:~/bin";
        assert_eq!(with(Some(odd)).as_deref(), Some("/usr/bin:/bin"), "only what is written as it is");
        let many: Vec<String> = (0..10_000).map(|n| format!("/p/{n}")).collect();
        assert_eq!(with(Some(&many.join(":"))).unwrap().split(':').count(), 66);
    }
}
