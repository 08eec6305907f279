//! The Unix sockets that programs outside have in the host's tree, which a sandbox with the right to connect must not reach:
//! agents that sign, daemons that act for every caller.
//!
//! The kernel lists them (/proc/net/unix), for this network namespace. A volume and the working directory were given to the
//! program, with the sockets in them; every other one is added to what the policy denies.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use cofferdam_policy::{Field, Mount, Policy, Root, text};

use crate::failure::Failure;

/// Where the host's view has nothing of the host's.
const REPLACED: [&str; 6] = ["/run", "/var/run", "/tmp", "/var/tmp", "/dev", "/proc"];

/// The policy with the host's sockets denied, where it grants Unix sockets in the view of the host.
///
/// # Errors
/// Which there are is not known, or one has a name that a policy cannot have.
pub(crate) fn denied(policy: &Policy) -> Result<Cow<'_, Policy>, Failure> {
    let host = policy.filesystem.root == Root::Host && policy.process.unix_sockets;
    if !host {
        return Ok(Cow::Borrowed(policy));
    }
    let refuse = |message: String| {
        Failure::new(Field::Deny, format!("the host's Unix sockets cannot be denied: {message}"))
            .hint("use the view --root minimal, or leave --unix-sockets out")
    };
    let list = fs::read("/proc/net/unix").map_err(|e| refuse(format!("cannot read /proc/net/unix: {e}")))?;
    let sockets = sockets(&list, &given(policy), &|path| {
        let about = fs::symlink_metadata(path).ok()?;
        about.file_type().is_socket().then(|| fs::canonicalize(path).ok()).flatten()
    })
    .map_err(|path| refuse(format!("the name of {} is not UTF-8", text::one_line(&path.to_string_lossy()))))?;
    let mut policy = policy.clone();
    policy.filesystem.deny.extend(sockets);
    policy.filesystem.deny.sort_unstable();
    policy.filesystem.deny.dedup();
    Ok(Cow::Owned(policy))
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

/// The paths of the sockets in such a list that are there and were not given; the path of one that is not UTF-8 is the error.
fn sockets(list: &[u8], given: &[String], socket: &dyn Fn(&Path) -> Option<PathBuf>) -> Result<Vec<String>, PathBuf> {
    // Seven fields, of which the first ends with a colon; what is left is the path.
    fn path(line: &[u8]) -> Option<Option<&[u8]>> {
        let mut rest = line;
        for number in 0..7 {
            rest = rest.trim_ascii_start();
            let (field, after) = rest.split_at(rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len()));
            if field.is_empty() || number == 0 && !field.ends_with(b":") {
                return None;
            }
            rest = after;
        }
        let name = rest.strip_prefix(b" ").unwrap_or(rest);
        Some(name.starts_with(b"/").then_some(name))
    }
    // A name with a newline goes on in the next line, which is no entry.
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut has_name = false;
    for line in list.strip_suffix(b"\n").unwrap_or(list).split(|&byte| byte == b'\n').skip(1) {
        match path(line) {
            Some(name) => {
                has_name = name.is_some();
                names.extend(name.map(<[u8]>::to_vec));
            }
            None if has_name => names.iter_mut().rev().take(1).for_each(|name| {
                name.push(b'\n');
                name.extend_from_slice(line);
            }),
            None => {}
        }
    }
    let shown = |path: &Path| {
        !REPLACED.iter().any(|replaced| path.starts_with(replaced))
            && !given.iter().any(|given| path.starts_with(given))
    };
    let paths = names.iter().map(|name| Path::new(OsStr::from_bytes(name)));
    let found = paths.filter(|path| shown(path)).filter_map(socket).filter(|path| shown(path));
    found.map(|path| path.into_os_string().into_string().map_err(PathBuf::from)).collect()
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
            0: 00000002 00000000 00010000 0001 01 108 /home/u/linked/project\n\
            0: 00000002 00000000 00010000 0001 01 109 /home/u/two\nlines / of: it\n\
            0: 00000002 00000000 00010000 0001 01 110 @abstract\nof /two\n";
        let socket = |path: &Path| match path.to_str() {
            Some("/home/u/gone") => None,
            Some("/home/u/linked/project") => Some("/home/u/project/other".into()),
            _ => Some(path.to_owned()),
        };
        let given = ["/home/u/project".to_owned()];
        let found = sockets(list, &given, &socket).unwrap();
        assert_eq!(found, ["/home/u/.agent/sock", "/home/u/a b/sock", "/home/u/two\nlines / of: it"]);
        let other = b"Num\n0: 00000002 00000000 00010000 0001 01 100 /home/u/\xff\n";
        let path = PathBuf::from(OsStr::from_bytes(b"/home/u/\xff"));
        assert_eq!(sockets(other, &given, &socket), Err(path), "no policy can name it");
    }
}
