//! The Unix sockets that programs outside have in the host's tree, which a sandbox with the right to connect must not reach:
//! agents that sign, daemons that act for every caller.
//!
//! The kernel lists them (/proc/net/unix), for this network namespace. A volume and the working directory were given to the
//! program, with the sockets in them; every other one is added to what the policy denies.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Backend, Mount, Policy, Root};

/// Where the host's view has nothing of the host's.
const REPLACED: [&str; 6] = ["/run", "/var/run", "/tmp", "/var/tmp", "/dev", "/proc"];

/// The policy with the host's sockets denied, where it grants Unix sockets in the view of the host.
pub fn denied(policy: &Policy) -> Cow<'_, Policy> {
    let host = policy.filesystem.root == Root::Host && policy.process.unix_sockets;
    // Landlock takes no path out of a directory that can be read.
    if !host || policy.backend == Backend::Landlock {
        return Cow::Borrowed(policy);
    }
    let list = fs::read("/proc/net/unix").unwrap_or_default();
    let sockets = sockets(&list, &given(policy), &|path| {
        let about = fs::symlink_metadata(path).ok()?;
        about.file_type().is_socket().then(|| fs::canonicalize(path).ok()).flatten()?.to_str().map(str::to_owned)
    });
    let mut policy = policy.clone();
    policy.filesystem.deny.extend(sockets);
    policy.filesystem.deny.sort_unstable();
    policy.filesystem.deny.dedup();
    Cow::Owned(policy)
}

/// The directories that were given to the program.
fn given(policy: &Policy) -> Vec<String> {
    let sources = policy.filesystem.mounts.iter().filter_map(|mount| match mount {
        Mount::Bind { source, .. } => Some(Path::new(source).to_owned()),
        _ => None,
    });
    let cwd = policy.command.cwd.as_ref().map(|cwd| Path::new(cwd).to_owned()).or_else(|| std::env::current_dir().ok());
    // A working directory that holds everything was not chosen for its sockets.
    let cwd =
        cwd.filter(|cwd| cwd != Path::new("/") && std::env::var_os("HOME").is_none_or(|home| cwd != Path::new(&home)));
    let canonical = |path| fs::canonicalize(path).ok()?.to_str().map(str::to_owned);
    sources.chain(cwd).filter_map(canonical).collect()
}

/// The paths of the sockets in such a list that are there and were not given.
fn sockets(list: &[u8], given: &[String], socket: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let paths = list.split(|&byte| byte == b'\n').skip(1).filter_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        // Seven fields of no blanks, and what is left is the path.
        let at = line.find(" /")?;
        (line[..at].split_ascii_whitespace().count() == 7).then(|| &line[at + 1..])
    });
    let shown = |path: &String| {
        !REPLACED.iter().any(|replaced| is_within(path, replaced)) && !given.iter().any(|given| is_within(path, given))
    };
    paths.filter(|path| shown(&(*path).to_owned())).filter_map(socket).filter(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lists_outside_of_what_was_given_is_denied() {
        let list = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 100 /home/u/.agent/sock\n\
            0: 00000002 00000000 00010000 0001 01 101 /home/u/a b/sock\n\
            0: 00000002 00000000 00010000 0001 01 102 /run/docker.sock\n\
            0: 00000002 00000000 00010000 0001 01 103 @/abstract\n\
            0: 00000002 00000000 00010000 0001 01 104 relative/sock\n\
            0: 00000002 00000000 00010000 0001 01 105\n\
            0: 00000003 00000000 00000000 0002 01 106 /home/u/project/dev.sock\n\
            0: 00000003 00000000 00000000 0002 01 107 /home/u/gone\n\
            0: 00000002 00000000 00010000 0001 01 108 /home/u/linked/project\n";
        let socket = |path: &str| match path {
            "/home/u/gone" => None,
            "/home/u/linked/project" => Some("/home/u/project/other".to_owned()),
            _ => Some(path.to_owned()),
        };
        let found = sockets(list, &["/home/u/project".to_owned()], &socket);
        assert_eq!(found, ["/home/u/.agent/sock", "/home/u/a b/sock"]);
    }
}
