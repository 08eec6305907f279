//! bubblewrap's arguments from a policy.
//!
//! Pure. Its options are given by descriptor (`--args`), so that no path or variable of the policy stands in a command
//! line that the program could read in /proc. Source: bwrap(1), 0.7 to 0.11.

use cofferdam_confine::external::FIRST_FD;
use cofferdam_policy::{NetworkMode, Policy};

use super::filter::{self, LeftToFilter};
use super::tool::{ARGV0, NO_USERNS};
use crate::backends::layout::{Item, MountLayout};
use crate::failure::Failure;

/// Descriptor of the options.
pub(crate) const ARGS_FD: i32 = FIRST_FD;
/// Descriptor on which bubblewrap tells how far it is.
pub(crate) const STATUS_FD: i32 = FIRST_FD + 1;
/// Descriptor of the system call filter. bubblewrap reads it to its end after its mounts and just before the program starts,
/// so it waits there for our go.
pub(crate) const FILTER_FD: i32 = FIRST_FD + 2;
/// Descriptor from which it reads when its mounts are made, immediately before the filter (`--block-fd`).
pub(crate) const MOUNTED_FD: i32 = FIRST_FD + 3;
/// The first descriptor of a file's contents.
const FIRST_DATA: i32 = FIRST_FD + 4;

/// The sandbox's own user and group, as it sees itself.
const INSIDE: &str = "1000";

/// What bubblewrap is told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BubblewrapArguments {
    /// Options, for `--args ARGS_FD`.
    pub options: Vec<String>,
    /// The command: program and arguments.
    pub command: Vec<String>,
    /// The filter, for `FILTER_FD`.
    pub filter: Vec<u8>,
    /// Contents of files: the n-th belongs on the descriptor after the filter's plus n.
    pub files: Vec<String>,
}

impl BubblewrapArguments {
    /// One argument vector, as a person would write it, the descriptors open as the numbers say.
    pub fn argv(&self) -> Vec<String> {
        let mut argv = vec!["bwrap".to_owned()];
        argv.extend(self.options.iter().cloned());
        argv.push("--".into());
        argv.extend(self.command.iter().cloned());
        argv
    }

    /// The options as `--args` reads them: each ended by a NUL.
    pub fn by_descriptor(&self) -> Vec<u8> {
        self.options.iter().flat_map(|option| option.bytes().chain([0])).collect()
    }

    fn add(&mut self, options: &[&str]) {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
    }
}

/// The arguments that stand for a policy. `below`: bubblewrap is no namespace's first process, and has nothing but the
/// death signal to end its program by when it is killed; the program may not take that back.
///
/// # Errors
/// The system call rules cannot be compiled.
pub fn plan(
    policy: &Policy,
    layout: &MountLayout,
    program: Option<String>,
    version: (u32, u32),
    below: bool,
) -> Result<BubblewrapArguments, Failure> {
    let mut a = BubblewrapArguments {
        filter: filter::program(policy, LeftToFilter { loopback: true, death_signal: below })?,
        ..BubblewrapArguments::default()
    };
    a.add(&["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup"]);
    if policy.network.mode != NetworkMode::Host {
        a.add(&["--unshare-net"]);
    }
    if version >= NO_USERNS {
        a.add(&["--disable-userns"]);
    }
    a.add(&["--uid", INSIDE, "--gid", INSIDE, "--hostname", &policy.process.hostname]);
    a.add(&["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--clearenv"]);
    // Its own first process would have the sandbox's user: the program could read its memory and trace it.
    a.add(&["--as-pid-1"]);
    for (name, value) in &policy.command.variables {
        a.add(&["--setenv", name, value]);
    }
    a.add(&["--json-status-fd", &STATUS_FD.to_string(), "--seccomp", &FILTER_FD.to_string()]);
    a.add(&["--block-fd", &MOUNTED_FD.to_string()]);
    let mut read_only = vec!["/sys", "/dev"];
    if !layout.items.iter().any(|i| matches!(i, Item::Bind { target, .. } if target == "/")) {
        read_only.push("/");
    }
    for item in &layout.items {
        mount(&mut a, item);
    }
    for path in read_only {
        a.add(&["--remount-ro", path]);
    }
    let home = policy.command.variables.get("HOME").map_or("/", String::as_str);
    a.add(&["--chdir", policy.command.cwd.as_deref().unwrap_or(home)]);
    a.command = command(policy, program, version, &mut a.options);
    Ok(a)
}

/// bubblewrap looks for a program as execvp(3) does, along the new PATH. Where that could go another way than ours it is
/// told the path, and its name apart where it can be.
fn command(policy: &Policy, program: Option<String>, version: (u32, u32), options: &mut Vec<String>) -> Vec<String> {
    let mut command = policy.command.argv.clone();
    let plain = |path: &String| path.split(':').all(|dir| dir.starts_with('/'));
    let same = command.first().is_some_and(|name| name.contains('/'))
        || policy.command.variables.get("PATH").is_some_and(plain);
    if let (false, Some(path), Some(name)) = (same, program, command.first_mut()) {
        if version >= ARGV0 {
            options.extend(["--argv0".to_owned(), name.clone()]);
        }
        *name = path;
    }
    command
}

fn mount(a: &mut BubblewrapArguments, item: &Item) {
    match item {
        Item::Bind { source, target, writable, optional, .. } => a.add(&[
            match (writable, optional) {
                (true, false) => "--bind",
                (true, true) => "--bind-try",
                (false, false) => "--ro-bind",
                (false, true) => "--ro-bind-try",
            },
            source,
            target,
        ]),
        Item::Tmpfs { target, bytes, mode, .. } => {
            a.add(&["--perms", &format!("{mode:04o}"), "--size", &bytes.to_string(), "--tmpfs", target]);
        }
        Item::Directory { target, mode } => a.add(&["--perms", &format!("{mode:04o}"), "--dir", target]),
        Item::Link { says, target } => a.add(&["--symlink", says, target]),
        Item::Text { target, text } => {
            let fd = FIRST_DATA + a.files.len() as i32;
            a.files.push(text.clone());
            a.add(&["--perms", "0444", "--ro-bind-data", &fd.to_string(), target]);
        }
        Item::Dev => a.add(&["--dev", "/dev"]),
        Item::Proc => a.add(&["--proc", "/proc"]),
        Item::Mask { target, directory: true } => {
            a.add(&["--perms", "0000", "--size", "4096", "--tmpfs", target, "--remount-ro", target]);
        }
        // A device on a mount without devices: neither read nor written.
        Item::Mask { target, directory: false } => a.add(&["--ro-bind", "/dev/null", target]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::layout::layout;
    use crate::plan::facts::FactsTable;

    #[test]
    fn an_older_version_gets_no_option_that_it_does_not_know() {
        let mut policy = Policy::base();
        policy.command.argv = vec!["sh".into()];
        policy.command.variables.remove("PATH");
        let layout = layout(&policy, &FactsTable::usual(&[])).unwrap();
        let plan = |version| plan(&policy, &layout, Some("/usr/bin/sh".into()), version, false).unwrap();
        let has = |version, option: &str| plan(version).options.iter().any(|o| o == option);
        assert!(!has((0, 7), "--disable-userns") && has((0, 8), "--disable-userns"));
        assert!(!has((0, 8), "--argv0") && has((0, 9), "--argv0"));
        assert_eq!(plan((0, 8)).command, ["/usr/bin/sh"]);
    }
}
