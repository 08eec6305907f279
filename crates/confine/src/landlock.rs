//! Landlock: this kernel's ABI, the rights that plans use, and rulesets for commands of the caller's own. For a sandbox
//! init makes the calls. Grants nothing by itself.
//!
//! Source: landlock(7). The probe is `landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)`; there is no
//! file to look at.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::uapi::*;

/// Rights to files and directories.
pub mod access {
    use crate::uapi::*;

    /// Execute a file.
    pub const EXECUTE: u64 = LANDLOCK_ACCESS_FS_EXECUTE;
    /// Open for writing.
    pub const WRITE_FILE: u64 = LANDLOCK_ACCESS_FS_WRITE_FILE;
    /// Open for reading.
    pub const READ_FILE: u64 = LANDLOCK_ACCESS_FS_READ_FILE;
    /// List a directory.
    pub const READ_DIR: u64 = LANDLOCK_ACCESS_FS_READ_DIR;
    /// Makes and removes names of every type; to move them to another directory takes `REFER` as well.
    pub const MAKE: u64 = LANDLOCK_ACCESS_FS_REMOVE_DIR
        | LANDLOCK_ACCESS_FS_REMOVE_FILE
        | MAKE_CHAR
        | LANDLOCK_ACCESS_FS_MAKE_DIR
        | LANDLOCK_ACCESS_FS_MAKE_REG
        | LANDLOCK_ACCESS_FS_MAKE_SOCK
        | LANDLOCK_ACCESS_FS_MAKE_FIFO
        | MAKE_BLOCK
        | LANDLOCK_ACCESS_FS_MAKE_SYM;
    /// Make a device node of characters.
    pub const MAKE_CHAR: u64 = LANDLOCK_ACCESS_FS_MAKE_CHAR;
    /// Make a device node of blocks.
    pub const MAKE_BLOCK: u64 = LANDLOCK_ACCESS_FS_MAKE_BLOCK;
    /// Link or rename between directories (ABI 2).
    pub const REFER: u64 = LANDLOCK_ACCESS_FS_REFER;
    /// Truncate (ABI 3).
    pub const TRUNCATE: u64 = LANDLOCK_ACCESS_FS_TRUNCATE;
    /// ioctl on devices (ABI 5).
    pub const IOCTL_DEV: u64 = LANDLOCK_ACCESS_FS_IOCTL_DEV;
    /// What a rule on anything but a directory may name.
    pub const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
    /// Read, list and execute.
    pub const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
    /// Read and list.
    pub const READ_NO_EXEC: u64 = READ_FILE | READ_DIR;
    /// Write, make, remove, move, truncate.
    pub const WRITE: u64 = WRITE_FILE | MAKE | REFER | TRUNCATE;
}

/// Version of the kernel's Landlock, 0 when it has none or it is switched off at boot.
pub fn abi() -> u32 {
    let (none, flags) = (std::ptr::null::<u8>(), LANDLOCK_CREATE_RULESET_VERSION);
    // SAFETY: a null attribute with the version flag only asks.
    let r = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, flags) };
    u32::try_from(r).unwrap_or(0)
}

/// The file system rights that this version can hold.
pub fn handled_fs(abi: u32) -> u64 {
    use access::{IOCTL_DEV, MAKE, READ, REFER, TRUNCATE, WRITE_FILE};
    const FIRST: u64 = READ | WRITE_FILE | MAKE;
    match abi {
        0 => 0,
        1 => FIRST,
        2 => FIRST | REFER,
        3 | 4 => FIRST | REFER | TRUNCATE,
        _ => FIRST | REFER | TRUNCATE | IOCTL_DEV,
    }
}

/// The network rights that this version can hold: binding and connecting TCP ports.
pub fn handled_net(abi: u32) -> u64 {
    if abi >= 4 { net::BIND | net::CONNECT } else { 0 }
}

/// The scopes that this version can hold: abstract sockets and signals.
pub fn scoped(abi: u32) -> u64 {
    if abi >= 6 { LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL } else { 0 }
}

/// Binding and connecting TCP ports (ABI 4).
pub mod net {
    use crate::uapi::{LANDLOCK_ACCESS_NET_BIND_TCP, LANDLOCK_ACCESS_NET_CONNECT_TCP};

    /// Bind to a port.
    pub const BIND: u64 = LANDLOCK_ACCESS_NET_BIND_TCP;
    /// Connect to a port.
    pub const CONNECT: u64 = LANDLOCK_ACCESS_NET_CONNECT_TCP;
}

/// A ruleset under construction: what it handles is denied, but for what a rule on the path or above it grants. There are
/// no exceptions below a rule: a narrower one beneath takes nothing away, and neither does a second layer.
#[derive(Debug)]
pub struct Ruleset(OwnedFd);

impl Ruleset {
    /// One that handles these rights of files, of the network, and these scopes.
    ///
    /// # Errors
    /// landlock_create_ruleset(2): ENOSYS and EOPNOTSUPP without Landlock, EINVAL for rights that it does not know, ENOMSG
    /// for none at all.
    pub fn new(fs: u64, net: u64, scoped: u64) -> io::Result<Ruleset> {
        let attr = [fs, net, scoped];
        // SAFETY: the attribute is three numbers long, which is what the size says; the kernel only reads it.
        let fd = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr.as_ptr(), size_of_val(&attr), 0u32) };
        let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the call succeeded: a new descriptor that is ours alone.
        Ok(Ruleset(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Grants rights on what this descriptor (O_PATH will do) is, and on everything below it.
    ///
    /// # Errors
    /// landlock_add_rule(2): EINVAL for rights that are not handled, or that only directories have.
    pub fn allow(&self, path: BorrowedFd<'_>, access: u64) -> io::Result<()> {
        // struct landlock_path_beneath_attr is packed.
        let mut attr = [0u8; 12];
        attr[..8].copy_from_slice(&access.to_ne_bytes());
        attr[8..].copy_from_slice(&path.as_raw_fd().to_ne_bytes());
        self.add(LANDLOCK_RULE_PATH_BENEATH, attr.as_ptr())
    }

    fn add(&self, kind: u32, attr: *const u8) -> io::Result<()> {
        // SAFETY: `attr` points to a rule of that kind, which the kernel only reads.
        let done = unsafe { libc::syscall(libc::SYS_landlock_add_rule, self.0.as_raw_fd(), kind, attr, 0u32) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The ruleset's descriptor, for landlock_restrict_self(2).
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Documentation/userspace-api/landlock.rst` of Linux numbers the rights in the order in which they came.
    #[test]
    fn each_abi_handles_the_rights_up_to_its_last_bit() {
        let handled = [0, 1, 2, 3, 4, 5, 6, 7].map(|abi| (handled_fs(abi), handled_net(abi), scoped(abi)));
        assert_eq!(
            handled,
            [
                (0, 0, 0),
                (0x1fff, 0, 0),
                (0x3fff, 0, 0),
                (0x7fff, 0, 0),
                (0x7fff, 3, 0),
                (0xffff, 3, 0),
                (0xffff, 3, 3),
                (0xffff, 3, 3)
            ]
        );
        assert_eq!(access::MAKE, 0x1ff0);
    }
}
