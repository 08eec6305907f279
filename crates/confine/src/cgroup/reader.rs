//! What a cgroup's tree uses at this moment, for a monitor beside the run. Changes nothing.
//!
//! The files are opened once, so that a watcher holds no name that could be another's later: what has been removed reads
//! as an error.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use super::discover::{CgroupVersion, serve};
use super::{Cgroup, CgroupError, files};

/// Figures of one moment. `None`: this cgroup does not report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Memory, page cache of the tree included, bytes.
    pub memory_bytes: Option<u64>,
    /// CPU time so far, user and system, microseconds.
    pub cpu_time_us: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
}

/// Open files of a cgroup, to be read at any time and from any thread.
#[derive(Debug)]
pub struct CgroupReader {
    memory: Option<OwnedFd>,
    cpu: Option<(OwnedFd, CgroupVersion)>,
    processes: Option<OwnedFd>,
    cpu_base_us: u64,
}

impl Cgroup {
    /// Opens the files that report the tree's present use.
    ///
    /// # Errors
    /// When a file that the kernel has cannot be opened.
    pub fn reader(&self) -> Result<CgroupReader, CgroupError> {
        let open = |bit: u8, v1: &'static std::ffi::CStr, v2: &'static std::ffi::CStr| {
            let Some(node) = self.node(bit) else { return Ok(None) };
            let version = node.parent.version;
            let name = if version == CgroupVersion::V1 { v1 } else { v2 };
            let file = files::open(&node.dir, name, OFlags::RDONLY);
            file.map(|file| Some((file, version))).map_err(self.error("open the figures of", node))
        };
        let file = |found: Option<(OwnedFd, CgroupVersion)>| found.map(|(file, _)| file);
        Ok(CgroupReader {
            memory: file(open(serve::MEMORY, c"memory.usage_in_bytes", c"memory.current")?),
            cpu: open(serve::CPU_TIME, c"cpuacct.usage", c"cpu.stat")?,
            processes: file(open(serve::PIDS, c"pids.current", c"pids.current")?),
            cpu_base_us: self.base.cpu_time_us,
        })
    }
}

/// Memory that a cgroup is charged for at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charged {
    /// What cannot be given back without ending something, bytes: neither page cache nor caches of the kernel's.
    pub bytes: u64,
    /// How much of it is buffers of sockets, bytes; version 1 counts them elsewhere.
    pub sockets: u64,
}

impl Cgroup {
    /// What the tree is charged for now; `None` without a memory controller.
    ///
    /// # Errors
    /// When a figure cannot be read.
    pub fn charged(&self) -> Result<Option<Charged>, CgroupError> {
        let Some(node) = self.node(serve::MEMORY) else { return Ok(None) };
        let (usage, prefix) = match node.parent.version {
            CgroupVersion::V1 => (c"memory.usage_in_bytes", "total_"),
            CgroupVersion::V2 => (c"memory.current", ""),
        };
        let read = || -> io::Result<(u64, String)> {
            let bytes = files::read_number(&node.dir, usage)?;
            Ok((bytes, text(&files::open(&node.dir, c"memory.stat", OFlags::RDONLY)?)?))
        };
        let (bytes, stat) = read().map_err(self.error("read the memory of", node))?;
        Ok(Some(charged(bytes, &stat, prefix)))
    }
}

fn charged(bytes: u64, stat: &str, prefix: &str) -> Charged {
    let value = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(prefix)?.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let back = ["active_file", "inactive_file", "slab_reclaimable"].map(value).iter().sum();
    Charged { bytes: bytes.saturating_sub(back), sockets: value("sock") }
}

impl CgroupReader {
    /// The figures now.
    ///
    /// # Errors
    /// When the cgroup is gone.
    pub fn now(&self) -> io::Result<Now> {
        let number = |file: &Option<OwnedFd>| match file {
            Some(file) => text(file).map(|text| text.trim().parse().ok()),
            None => Ok(None),
        };
        let cpu = match &self.cpu {
            None => None,
            Some((file, CgroupVersion::V1)) => text(file)?.trim().parse::<u64>().ok().map(|ns| ns / 1000),
            Some((file, CgroupVersion::V2)) => {
                let text = text(file)?;
                text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok())
            }
        };
        Ok(Now {
            memory_bytes: number(&self.memory)?,
            cpu_time_us: cpu.map(|us| us.saturating_sub(self.cpu_base_us)),
            processes: number(&self.processes)?,
        })
    }
}

/// A small file from its beginning, whatever was read of it before.
fn text(file: &OwnedFd) -> io::Result<String> {
    let mut bytes = [0u8; 8192];
    let n = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut bytes[..], 0))?;
    Ok(String::from_utf8_lossy(&bytes[..n]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaimable_memory_is_not_counted_and_sockets_are_separate() {
        let two = "anon 10\nfile 900\nsock 70\ninactive_file 600\nactive_file 200\nslab_reclaimable 100\n";
        assert_eq!(charged(1000, two, ""), Charged { bytes: 100, sockets: 70 });
        let one = "inactive_file 1\nactive_file 1\ntotal_inactive_file 600\ntotal_active_file 300\n";
        assert_eq!(charged(1000, one, "total_"), Charged { bytes: 100, sockets: 0 });
    }
}
