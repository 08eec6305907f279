//! Landlock: what this kernel knows, and the rights that the recipes use. The calls themselves are init's.
//!
//! Source: landlock(7). The probe is `landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)`; there is no
//! file to look at.

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
    /// Link or rename between directories (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// Truncate (ABI 3).
    pub const TRUNCATE: u64 = 1 << 14;
    /// ioctl on devices (ABI 5).
    pub const IOCTL_DEV: u64 = 1 << 15;
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
