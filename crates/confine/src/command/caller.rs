//! Who made a call that was handed over: its memory, its descriptors, its place, and whether it is who the notifier is. Reads
//! /proc alone; every answer counts only once the call is known to wait still.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::capability::RETAINED;
use super::errno::errno;

/// A thread that waits for the notifier's answer.
pub(super) struct WaitingThread {
    /// `/proc/TID`.
    place: String,
}

/// What of `status` makes a difference to what a process may do.
const IDENTITY: [&str; 3] = ["Uid:", "Gid:", "Groups:"];

impl WaitingThread {
    pub(super) fn new(pid: u32) -> WaitingThread {
        WaitingThread { place: format!("/proc/{pid}") }
    }

    /// Whether it has the notifier's ids, at least its capabilities but those that no command has, and its namespaces and root: only then is what the notifier
    /// may do what the caller may, and a path the same path.
    pub(super) fn is_like_us(&self) -> Result<(), i32> {
        let (theirs, ours) = (self.status()?, WaitingThread { place: "/proc/thread-self".into() }.status()?);
        let line =
            |text: &str, key: &str| text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()));
        if IDENTITY.iter().any(|key| line(&theirs, key) != line(&ours, key)) {
            return Err(libc::EPERM);
        }
        // What is missing or no number is refused in the next line.
        let caps = |text: &str| u64::from_str_radix(&line(text, "CapEff:")?, 16).ok();
        let (theirs, ours) = (caps(&theirs).ok_or(libc::EPERM)?, caps(&ours).ok_or(libc::EPERM)?);
        if ours & RETAINED & !theirs != 0 {
            return Err(libc::EPERM);
        }
        for what in ["ns/user", "ns/mnt", "ns/pid", "root"] {
            let inode = |place: &str| fs::metadata(format!("{place}/{what}")).map(|data| (data.dev(), data.ino()));
            match (inode(&self.place), inode("/proc/self")) {
                (Ok(theirs), Ok(ours)) if theirs == ours => {}
                _ => return Err(libc::EPERM),
            }
        }
        Ok(())
    }

    fn status(&self) -> Result<String, i32> {
        let mut text = String::new();
        let mut file = File::open(format!("{}/status", self.place)).map_err(|error| unseen(&error))?;
        file.read_to_string(&mut text).map_err(|error| unseen(&error))?;
        Ok(text)
    }

    /// Bytes of its memory.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), i32> {
        let memory = File::open(format!("{}/mem", self.place)).map_err(|error| unseen(&error))?;
        memory.read_exact_at(buffer, address).map_err(|_| libc::EFAULT)
    }

    /// A string, with its end: at most `most` bytes.
    pub(super) fn string(&self, address: u64, most: usize) -> Result<Vec<u8>, i32> {
        let memory = File::open(format!("{}/mem", self.place)).map_err(|error| unseen(&error))?;
        let mut text = Vec::new();
        // Page by page: what follows its end need not be there.
        while text.len() < most {
            let at = address.checked_add(text.len() as u64).ok_or(libc::EFAULT)?;
            let mut page = vec![0u8; ((4096 - at % 4096) as usize).min(most - text.len())];
            memory.read_exact_at(&mut page, at).map_err(|_| libc::EFAULT)?;
            if let Some(end) = page.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&page[..=end]);
                return Ok(text);
            }
            text.extend_from_slice(&page);
        }
        Err(libc::ENAMETOOLONG)
    }

    /// What one of its descriptors is, as a descriptor of ours that only names it.
    pub(super) fn descriptor(&self, fd: i32) -> Result<OwnedFd, i32> {
        if fd < 0 {
            return Err(libc::EBADF);
        }
        named(&format!("{}/fd/{fd}", self.place))
            .map_err(|errno| if errno == libc::ENOENT { libc::EBADF } else { errno })
    }

    /// Its working directory.
    pub(super) fn directory(&self) -> Result<OwnedFd, i32> {
        named(&format!("{}/cwd", self.place))
    }

    /// What it means by a path. Links that only the kernel can follow (`/proc/self/fd/3`) would mean the notifier's own, so
    /// they are taken for what they say, or refused.
    pub(super) fn resolve(&self, dir: i32, path: &CStr, follow: bool) -> Result<OwnedFd, i32> {
        if let Some(fd) = own_descriptor(path.to_bytes()) {
            return self.descriptor(fd);
        }
        let base = match dir {
            _ if path.to_bytes().starts_with(b"/") => None,
            libc::AT_FDCWD => Some(self.directory()?),
            fd => Some(self.descriptor(fd)?),
        };
        let no_follow = if follow { 0 } else { libc::O_NOFOLLOW };
        const NO_MAGIC_LINKS: u64 = 2;
        // struct open_how: flags, mode, resolve.
        let how = [(libc::O_PATH | libc::O_CLOEXEC | no_follow) as u64, 0, NO_MAGIC_LINKS];
        let dir = base.as_ref().map_or(libc::AT_FDCWD, AsRawFd::as_raw_fd);
        // SAFETY: the string ends with a zero byte, and the structure has the size that is said.
        let fd = unsafe { libc::syscall(libc::SYS_openat2, dir, path.as_ptr(), how.as_ptr(), size_of_val(&how)) };
        match i32::try_from(fd) {
            // SAFETY: the call succeeded: a new descriptor that is ours alone.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(errno()),
        }
    }
}

/// The errno of something that could not be looked at: what the caller has run out of is reported, the rest is a refusal.
fn unseen(error: &io::Error) -> i32 {
    let short = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error.raw_os_error().filter(|errno| short.contains(errno)).unwrap_or(libc::EPERM)
}

/// Opens what a link of /proc leads to, whatever it is, without doing anything to it.
fn named(path: &str) -> Result<OwnedFd, i32> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path);
    file.map(OwnedFd::from).map_err(|error| error.raw_os_error().unwrap_or(libc::EPERM))
}

/// The number in a path that names one of the caller's own descriptors, as C libraries do for calls that do not exist.
fn own_descriptor(path: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(path).ok()?;
    let places = ["/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"];
    let number = places.iter().find_map(|place| text.strip_prefix(place))?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_number_is_a_descriptor_of_its_own() {
        assert_eq!(own_descriptor(b"/proc/self/fd/17"), Some(17));
        assert_eq!(own_descriptor(b"/dev/fd/0"), Some(0));
        for other in [&b"/proc/self/fd/3/x"[..], b"/proc/self/fd/", b"/proc/1/fd/3", b"/proc/self/fd/+3", b"3"] {
            assert_eq!(own_descriptor(other), None);
        }
    }
}
