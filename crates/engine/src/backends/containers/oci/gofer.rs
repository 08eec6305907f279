//! What gVisor has mounted, looked at from outside: its kernel numbers files in its own way, so that init in there cannot
//! compare them. Only looks.
//!
//! ```text
//! runsc run ─┬─ its file server: the root and the binds are mounted in its namespace, and it opens all that is asked for
//!            └─ its kernel, in an empty root
//! ```

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use cofferdam_confine::init_plan::PathRule;
use cofferdam_policy::Field;
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};

use crate::failure::{FailedStep, Failure};
use crate::plan::executables::device;

const HINT: &str = "it was replaced since the run was prepared: run it again";

/// What stands at the targets of binds is what was looked at, device and inode. The file server is the process below `runsc`
/// that shows the run's own directory, `own`, at its place, `inside`.
///
/// # Errors
/// There is another file, or no such process to be looked into.
pub(super) fn compare(runsc: i32, own: &Path, inside: &str, checked: &[PathRule]) -> Result<(), Failure> {
    if checked.is_empty() {
        return Ok(());
    }
    let unseen = |why: &dyn std::fmt::Display| {
        let message = format!("cannot look at what gVisor has mounted: {why}");
        Failure::new(Field::Mounts, message).hint("use --backend oci:crun, or leave mounts out")
    };
    let wanted = open(own, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| unseen(&e))?;
    let wanted = number(&fstat(wanted).map_err(|e| unseen(&e))?);
    let processes = below(runsc).map_err(|e| unseen(&e))?;
    let shows = |pid: &i32| {
        let root = open(format!("/proc/{pid}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        (identity(root.as_fd(), inside).ok()? == wanted).then_some(root)
    };
    let Some(root) = processes.iter().find_map(shows) else {
        return Err(unseen(&"none of its processes shows the run's own directory"));
    };
    for rule in checked {
        let found = identity(root.as_fd(), &rule.path).map_err(|e| unseen(&format!("{}: {e}", rule.path)))?;
        if rule.identity.is_some_and(|looked_at| looked_at != found) {
            return Err(replaced(&rule.path));
        }
    }
    Ok(())
}

/// What stands at a path is another one by now.
pub(super) fn replaced(at: &str) -> Failure {
    Failure::new(FailedStep::Mount, format!("what is mounted at {at} is not what was looked at")).hint(HINT)
}

/// Device and inode, as init numbers them.
fn number(stat: &Stat) -> (u64, u64) {
    (device(stat.st_dev), stat.st_ino)
}

/// Device and inode of a path below a root, which no link leads out of.
fn identity(root: BorrowedFd<'_>, path: &str) -> rustix::io::Result<(u64, u64)> {
    let path = Path::new(path).strip_prefix("/").unwrap_or(Path::new(path));
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(number(&fstat(openat2(root, path, flags, Mode::empty(), resolve)?)?))
}

/// How far below `runsc` the file server is: for a user it starts itself once more in a user namespace.
const GENERATIONS: usize = 2;

/// The processes below one, nearest first.
fn below(process: i32) -> std::io::Result<Vec<i32>> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // Who is gone meanwhile is none that is looked for.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        // The name stands in brackets, and may hold some; then state and parent (proc_pid_stat(5)).
        let rest = stat.iter().rposition(|&b| b == b')').map_or(&[][..], |at| &stat[at + 1..]);
        let of = String::from_utf8_lossy(rest).split_whitespace().nth(1).and_then(|ppid| ppid.parse::<i32>().ok());
        parents.extend(of.map(|of| (pid, of)));
    }
    let (mut found, mut last) = (Vec::new(), vec![process]);
    for _ in 0..GENERATIONS {
        last = parents.iter().filter(|(_, of)| last.contains(of)).map(|(pid, _)| *pid).collect();
        found.extend(&last);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_looked_up_below_the_root_alone() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("etc/below")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        std::os::unix::fs::symlink("../..", root.join("up")).unwrap();
        let opened = open(&root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let at = |path: &str| identity(opened.as_fd(), path).unwrap();
        let stat =
            |path: &Path| number(&rustix::fs::statat(rustix::fs::CWD, path, rustix::fs::AtFlags::empty()).unwrap());
        assert_eq!(at("/"), stat(&root));
        assert_eq!(at("/etc"), stat(&root.join("etc")));
        assert_eq!(at("/link/below"), stat(&root.join("etc/below")), "the root's own");
        assert_eq!(at("/up/etc"), stat(&root.join("etc")));
        assert_ne!(at("/link"), at("/etc"), "a link in the last place is itself");
    }

    #[test]
    fn children_and_theirs_are_found() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 5; true"]).spawn().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let of = i32::try_from(shell.id()).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while below(of).unwrap().is_empty() && std::time::Instant::now() < until {}
        let sleep = below(of).unwrap();
        let found = below(me).unwrap();
        assert!(
            sleep.len() == 1 && found.contains(&of) && found.contains(&sleep[0]) && !found.contains(&me),
            "{found:?}"
        );
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn without_a_file_server_nothing_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let rule = PathRule { path: "/etc".into(), access: 0, optional: false, identity: Some((1, 1)) };
        let me = i32::try_from(std::process::id()).unwrap();
        let failure = compare(me, dir.path(), "/nowhere", &[rule]).unwrap_err();
        assert_eq!(failure.step, FailedStep::Field(Field::Mounts));
        assert!(compare(me, dir.path(), "/nowhere", &[]).is_ok());
    }
}
