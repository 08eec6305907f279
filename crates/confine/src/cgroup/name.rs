//! The names of our cgroup directories, which say whose they are, and whether that owner still lives.
//!
//! `cofferdam-PIDNS-TIMENS-PID-START-N-RAND`: the inode numbers of the owner's pid and time namespaces (a pid or
//! a start time means nothing in others), its pid and its start time in clock ticks (`proc_pid_stat(5)`, field
//! 22), a counter, and a random number that keeps two starts apart when all else is equal. Decides, never removes.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD};

use super::io as files;

/// What every directory of ours starts with.
pub(super) const PREFIX: &str = "cofferdam-";

/// Whose directory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CgroupOwner {
    pub(super) pid_namespace: u64,
    pub(super) time_namespace: u64,
    pub(super) pid: i32,
    pub(super) start: u64,
}

/// This process, when `/proc` shows it as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessIdentity {
    pub(super) owner: CgroupOwner,
    random: u32,
    /// `/proc` shows this process's own pid namespace, so that `/proc/PID` can be asked about others.
    pub(super) proc_is_ours: bool,
}

/// Counts directories over the whole process, so that two locations never collide.
static COUNTER: AtomicU64 = AtomicU64::new(0);
static IDENTITY: OnceLock<ProcessIdentity> = OnceLock::new();

/// Who we are; read once per process, and again in a child that was forked.
pub(super) fn identity() -> io::Result<ProcessIdentity> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    match IDENTITY.get() {
        Some(known) if known.owner.pid == pid => Ok(*known),
        Some(_) => read_identity(pid),
        None => {
            let found = read_identity(pid)?;
            Ok(*IDENTITY.get_or_init(|| found))
        }
    }
}

fn read_identity(pid: i32) -> io::Result<ProcessIdentity> {
    let namespace =
        |path: &std::ffi::CStr| -> io::Result<u64> { Ok(rustix::fs::statat(CWD, path, AtFlags::empty())?.st_ino) };
    let stat = files::read(CWD, c"/proc/self/stat")?;
    let (seen_pid, start) = parse_stat(stat.text()).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let mut random = [0u8; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(ProcessIdentity {
        owner: CgroupOwner {
            pid_namespace: namespace(c"/proc/self/ns/pid")?,
            // Kernels before 5.6 have no time namespaces.
            time_namespace: namespace(c"/proc/self/ns/time").unwrap_or(0),
            pid,
            start,
        },
        random: u32::from_ne_bytes(random),
        proc_is_ours: seen_pid == pid,
    })
}

impl ProcessIdentity {
    /// A name that no other directory has.
    pub(super) fn fresh_name(&self) -> String {
        let o = &self.owner;
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        format!("{PREFIX}{:x}-{:x}-{}-{}-{n}-{:08x}", o.pid_namespace, o.time_namespace, o.pid, o.start, self.random)
    }

    /// Whether that owner has ended, as far as this process can know: never true for one whose pid or start
    /// time it could not compare.
    pub(super) fn is_gone(&self, owner: &CgroupOwner) -> bool {
        let comparable = self.proc_is_ours
            && owner.pid_namespace == self.owner.pid_namespace
            && owner.time_namespace == self.owner.time_namespace;
        if !comparable || *owner == self.owner {
            return false;
        }
        let mut path = *b"/proc/00000000000000000000/stat\0";
        let mut digits = [0; 20];
        let digits = files::decimal(owner.pid.unsigned_abs().into(), &mut digits);
        let end = 6 + digits.len();
        path[6..end].copy_from_slice(digits);
        path[end..end + 6].copy_from_slice(b"/stat\0");
        let Ok(path) = std::ffi::CStr::from_bytes_until_nul(&path) else { return false };
        match files::read(CWD, path) {
            Ok(stat) => parse_stat(stat.text()).is_some_and(|(_, start)| start != owner.start),
            // Hidden by hidepid, a missing /proc or a lack of memory is not evidence of death.
            Err(error) => {
                let absent = matches!(error.raw_os_error(), Some(code) if code == libc::ENOENT || code == libc::ESRCH);
                absent && !pid_exists(owner.pid)
            }
        }
    }
}

/// Whether any process has this pid; one that we may not signal exists too.
fn pid_exists(pid: i32) -> bool {
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return false };
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// The pid and start time of a `/proc/PID/stat`; the program's name may hold spaces and brackets.
fn parse_stat(text: &str) -> Option<(i32, u64)> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some((pid, rest.split(' ').nth(19)?.parse().ok()?))
}

/// The owner in a directory's name; none when the name is not of our form.
pub(super) fn parse(name: &str) -> Option<CgroupOwner> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let owner = CgroupOwner {
        pid_namespace: u64::from_str_radix(parts.next()?, 16).ok()?,
        time_namespace: u64::from_str_radix(parts.next()?, 16).ok()?,
        pid: parts.next()?.parse().ok().filter(|pid| *pid > 0)?,
        start: parts.next()?.parse().ok()?,
    };
    let _counter: u64 = parts.next()?.parse().ok()?;
    let random = parts.next()?;
    let whole = random.len() == 8 && random.bytes().all(|b| b.is_ascii_hexdigit()) && parts.next().is_none();
    whole.then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_carries_its_owner() {
        let me = identity().unwrap();
        let name = me.fresh_name();
        assert_eq!(parse(&name), Some(me.owner), "{name}");
        assert_ne!(name, me.fresh_name());
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in [
            "cofferdam-supervisor",
            "cofferdam-",
            "cofferdam-a-b-1-2-3",
            "cofferdam-a-b-1-2-3-0000000g",
            "cofferdam-a-b-1-2-3-00000000-",
            "cofferdam-a-b-0-2-3-00000000",
            "cofferdam-a-b--5-2-3-00000000",
            "docker-a-b-1-2-3-00000000",
            "cofferdam-1-2-77.scope",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn the_program_name_does_not_confuse_the_start_time() {
        let stat = "77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse_stat(stat), Some((77, 4242)));
    }

    #[test]
    fn only_a_comparable_dead_owner_is_gone() {
        let me = identity().unwrap();
        assert!(!me.is_gone(&me.owner));
        let reused = CgroupOwner { start: me.owner.start + 1, ..me.owner };
        assert!(me.is_gone(&reused), "our pid with another start time is a dead owner");
        assert!(!me.is_gone(&CgroupOwner { pid_namespace: 1, ..reused }));
        assert!(!me.is_gone(&CgroupOwner { time_namespace: 1, ..reused }));
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let (pid, start) = parse_stat(&stat).unwrap();
        let owner = CgroupOwner { pid, start, ..me.owner };
        assert!(!me.is_gone(&owner), "a living owner");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(me.is_gone(&owner), "a dead owner");
    }
}
