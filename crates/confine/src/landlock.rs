//! Landlock: what this kernel knows, the rights that the recipes use, and rulesets for commands of the caller's own. For
//! a sandbox the calls are init's.
//!
//! Source: landlock(7). The probe is `landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)`; there is no
//! file to look at.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Rights to files and directories.
pub mod access {
    /// Execute a file.
    pub const EXECUTE: u64 = 1;
    /// Open for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Open for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// List a directory.
    pub const READ_DIR: u64 = 1 << 3;
    /// Everything that makes, removes or moves names: bits 4 to 12, and `REFER`.
    pub const MAKE: u64 = 0x1ff0;
    /// Make a device node of characters.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Make a device node of blocks.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Link or rename between directories (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// Truncate (ABI 3).
    pub const TRUNCATE: u64 = 1 << 14;
    /// ioctl on devices (ABI 5).
    pub const IOCTL_DEV: u64 = 1 << 15;
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
    // SAFETY: a null attribute with the version flag only asks.
    let r = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32) };
    u32::try_from(r).unwrap_or(0)
}

/// The file system rights that this version can hold.
pub fn handled_fs(abi: u32) -> u64 {
    match abi {
        0 => 0,
        1 => 0x1fff,
        2 => 0x3fff,
        3 | 4 => 0x7fff,
        _ => 0xffff,
    }
}

/// The network rights that this version can hold: binding and connecting TCP ports.
pub fn handled_net(abi: u32) -> u64 {
    if abi >= 4 { 3 } else { 0 }
}

/// The scopes that this version can hold: abstract sockets and signals.
pub fn scoped(abi: u32) -> u64 {
    if abi >= 6 { 3 } else { 0 }
}

/// Binding and connecting TCP ports (ABI 4).
pub mod net {
    /// Bind to a port.
    pub const BIND: u64 = 1;
    /// Connect to a port.
    pub const CONNECT: u64 = 2;
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
        self.add(1, attr.as_ptr())
    }

    /// Grants rights on a TCP port.
    ///
    /// # Errors
    /// landlock_add_rule(2).
    pub fn allow_port(&self, port: u16, access: u64) -> io::Result<()> {
        let attr = [access, u64::from(port)];
        self.add(2, attr.as_ptr().cast())
    }

    fn add(&self, kind: u32, attr: *const u8) -> io::Result<()> {
        // SAFETY: `attr` points to a rule of that kind, which the kernel only reads.
        let done = unsafe { libc::syscall(libc::SYS_landlock_add_rule, self.0.as_raw_fd(), kind, attr, 0u32) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The ruleset's descriptor, for landlock_restrict_self(2).
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}
