//! Ends every process of a cgroup, so that none escapes by forking.
//!
//! Version 2 has `cgroup.kill`. Version 1 has not: `pids.max` is set to 0 first, after which nothing inside can
//! fork, and then each process is killed by pidfd; one that was listed both before and after its pidfd was opened
//! is the one meant, so a reused pid is never hit. Without either, rounds are repeated until the time is over.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::discover::{CgroupVersion, serve};
use super::types::CgroupError;
use super::{CgroupNode, io as files, v2};

/// One directory of the cgroup to empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillTarget<'a> {
    pub(super) dir: BorrowedFd<'a>,
    pub(super) version: CgroupVersion,
    pub(super) has_pids: bool,
}

impl<'a> KillTarget<'a> {
    pub(super) fn of(node: &'a CgroupNode) -> Self {
        use std::os::fd::AsFd;
        Self { dir: node.dir.as_fd(), version: node.parent.version, has_pids: node.serves & serve::PIDS != 0 }
    }
}

/// Kills what is in any of the directories and waits until all are empty.
pub(super) fn kill_tree(targets: &[KillTarget<'_>], name: &str, patience: Duration) -> Result<(), CgroupError> {
    let failed = |operation, error| CgroupError::io(operation, format!("cgroup {name}"), error);
    let mut killed_by_kernel = false;
    for target in targets {
        match target.version {
            CgroupVersion::V2 if v2::kill(target.dir).map_err(|e| failed("kill the processes of", e))? => {
                killed_by_kernel = true;
            }
            _ if target.has_pids => {
                files::write(target.dir, c"pids.max", b"0").map_err(|e| failed("stop forks in", e))?;
            }
            _ => {}
        }
    }
    let start = Instant::now();
    let mut pause = Duration::from_micros(50);
    loop {
        let mut left = Vec::new();
        for target in targets {
            let gone = killed_by_kernel
                && target.version == CgroupVersion::V2
                && !v2::populated(target.dir).map_err(|e| failed("read cgroup.events of", e))?;
            if !gone {
                let pids = kill_listed(target.dir).map_err(|e| failed("kill the processes of", e))?;
                left.extend(pids);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        if start.elapsed() >= patience {
            left.sort_unstable();
            left.dedup();
            let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            return Err(CgroupError::NotEmpty { name: name.to_owned(), waited_ms, pids: left });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// One round; returns the pids that were listed.
fn kill_listed(dir: BorrowedFd<'_>) -> std::io::Result<Vec<i32>> {
    let pids = files::read_pids(dir)?;
    if pids.is_empty() {
        return Ok(pids);
    }
    let open = |pid: &i32| {
        let pidfd = pidfd_open(Pid::from_raw(*pid)?, PidfdFlags::empty()).ok()?;
        Some((*pid, pidfd))
    };
    let opened: Vec<_> = pids.iter().filter_map(open).collect();
    let still = files::read_pids(dir)?;
    for (pid, pidfd) in opened.iter().filter(|(pid, _)| still.contains(pid)) {
        match pidfd_send_signal(pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                let text = format!("pid {pid}: {error}");
                return Err(std::io::Error::new(std::io::Error::from(error).kind(), text));
            }
        }
    }
    Ok(pids)
}
