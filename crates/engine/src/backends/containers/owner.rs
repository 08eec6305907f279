//! Whose containers are left over: the decision, pure, and what this process knows of itself for it.
//!
//! A container is removed only when its name is of our form, its label says that name, and the owner that its other label
//! names has ended: a process of this boot and of this pid namespace that is no more. Of another boot, or what only looks
//! like one from in here, a container is removed only when it has ended itself. An image can carry labels, but no name.

use rustix::process::{Pid, test_kill_process};

/// What the name of each container of ours starts with.
pub(crate) const PREFIX: &str = "cofferdam-";
/// The label that says the container's name.
pub(crate) const RUN: &str = "cofferdam.run";
/// The label that says its owner: `PID:STARTTIME:BOOTID:PIDNS`.
pub(crate) const OWNER: &str = "cofferdam.owner";

/// Where this process stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessScope {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The inode number of our pid namespace.
    pub pids: u64,
}

impl ProcessScope {
    /// Read from `/proc`; none when that does not show this process's own pid namespace, for then no pid in it means
    /// anything.
    pub(crate) fn read() -> Option<ProcessScope> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        if stat.split(' ').next()?.parse() != Ok(std::process::id()) {
            return None;
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let pids = std::fs::metadata("/proc/self/ns/pid").ok()?;
        Some(ProcessScope { boot, pids: std::os::unix::fs::MetadataExt::ino(&pids) })
    }
}

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerProcess {
    /// It is there, since this time in clock ticks after the boot.
    Started(u64),
    /// There is none of that pid.
    Absent,
    /// It cannot be told: hidden, or nothing can be read.
    Unknown,
}

/// Asks the kernel for it.
pub(crate) fn process(pid: i32) -> OwnerProcess {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => {
            let start = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)?.parse().ok());
            start.map_or(OwnerProcess::Unknown, OwnerProcess::Started)
        }
        // What /proc hides can be there all the same.
        Err(_) => match Pid::from_raw(pid).map(test_kill_process) {
            Some(Err(rustix::io::Errno::SRCH)) => OwnerProcess::Absent,
            _ => OwnerProcess::Unknown,
        },
    }
}

/// This process as an owner; none where it cannot be told apart from others.
pub(crate) fn me() -> Option<String> {
    let here = ProcessScope::read()?;
    let pid = std::process::id();
    match process(i32::try_from(pid).ok()?) {
        OwnerProcess::Started(start) => Some(format!("{pid}:{start}:{}:{}", here.boot, here.pids)),
        OwnerProcess::Absent | OwnerProcess::Unknown => None,
    }
}

/// A fresh name of our form.
///
/// # Errors
/// getrandom(2).
pub(crate) fn fresh_name() -> std::io::Result<String> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{:016x}", u64::from_be_bytes(random)))
}

/// Whether a container, or what a run has on this host, is left over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// It is somebody's, or cannot be told to be nobody's.
    No,
    /// If nothing of it runs any more: its owner lived in another boot, as far as can be seen from here.
    IfEnded,
    /// Its owner is gone.
    Yes,
}

/// Whether this is a name of our form.
pub(crate) fn is_ours(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// What became of an owner.
pub(crate) fn left_by(owner: &str, here: &ProcessScope, process: impl Fn(i32) -> OwnerProcess) -> Leftover {
    let mut parts = owner.trim_end().split(':');
    let (Some(pid), Some(start), Some(boot), Some(pids), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Leftover::No;
    };
    let (Ok(pid), Ok(start), Ok(pids)) = (pid.parse::<i32>(), start.parse::<u64>(), pids.parse::<u64>()) else {
        return Leftover::No;
    };
    if pid <= 0 || boot.is_empty() || here.boot.is_empty() {
        return Leftover::No;
    }
    if boot != here.boot {
        return Leftover::IfEnded;
    }
    if pids != here.pids {
        return Leftover::No;
    }
    match process(pid) {
        OwnerProcess::Started(since) if since != start => Leftover::Yes,
        OwnerProcess::Absent => Leftover::Yes,
        OwnerProcess::Started(_) | OwnerProcess::Unknown => Leftover::No,
    }
}

/// Whether a container with this name and these labels is left over.
pub(crate) fn left_over(
    name: &str,
    label: impl Fn(&str) -> Option<String>,
    here: &ProcessScope,
    process: impl Fn(i32) -> OwnerProcess,
) -> Leftover {
    if !is_ours(name) || label(RUN).as_deref() != Some(name) {
        return Leftover::No;
    }
    label(OWNER).map_or(Leftover::No, |owner| left_by(&owner, here, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "cofferdam-0123456789abcdef";

    fn here() -> ProcessScope {
        ProcessScope { boot: "b".into(), pids: 7 }
    }

    #[test]
    fn what_a_dead_owner_left_is_found_and_what_a_living_one_has_is_not() {
        let labels = |name: &str| match name {
            RUN => Some(NAME.to_owned()),
            OWNER => Some("5:100:b:7".to_owned()),
            _ => None,
        };
        let of = |process: OwnerProcess| left_over(NAME, labels, &here(), |_| process);
        assert_eq!(of(OwnerProcess::Absent), Leftover::Yes);
        assert_eq!(of(OwnerProcess::Started(101)), Leftover::Yes, "the pid is another's now");
        assert_eq!(of(OwnerProcess::Started(100)), Leftover::No);
        assert_eq!(of(OwnerProcess::Unknown), Leftover::No);
        assert_eq!(
            left_over("other", labels, &here(), |_| OwnerProcess::Absent),
            Leftover::No,
            "an image can carry the labels"
        );
        assert_eq!(left_over("cofferdam-0123456789abcdee", labels, &here(), |_| OwnerProcess::Absent), Leftover::No);
    }

    #[test]
    fn owners_elsewhere_are_not_judged_by_the_processes_here() {
        let of = |owner: &str| left_by(owner, &here(), |_| OwnerProcess::Absent);
        assert_eq!(of("5:100:other:7"), Leftover::IfEnded);
        assert_eq!(of("5:100:b:8"), Leftover::No);
        for bad in ["", "5", "5:100:b", "5:100:b:7:1", "0:100:b:7", "-1:1:b:7", "x:1:b:7", "5:100::7"] {
            assert_eq!(of(bad), Leftover::No, "{bad}");
        }
        assert_eq!(
            left_by("5:100:b:7", &ProcessScope { boot: String::new(), pids: 7 }, |_| OwnerProcess::Absent),
            Leftover::No
        );
    }

    #[test]
    fn this_process_is_an_owner_that_lives() {
        let (me, here) = (me().unwrap(), ProcessScope::read().unwrap());
        assert_eq!(left_by(&me, &here, process), Leftover::No);
        assert!(is_ours(&fresh_name().unwrap()));
    }
}
