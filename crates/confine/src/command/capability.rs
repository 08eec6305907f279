//! Capabilities of a command: those about files, ids and ports stay, as far as the caller has them; with the others it could
//! set up the network, freeze a file system, or take another's terminal, which are no files that Landlock knows.

use crate::uapi::*;

/// What a command keeps.
pub(super) const RETAINED: u64 = 1 << CAP_CHOWN
    | 1 << CAP_DAC_OVERRIDE
    | 1 << CAP_DAC_READ_SEARCH
    | 1 << CAP_FOWNER
    | 1 << CAP_FSETID
    | 1 << CAP_KILL
    | 1 << CAP_SETGID
    | 1 << CAP_SETUID
    | 1 << CAP_SETPCAP
    | 1 << CAP_NET_BIND_SERVICE
    | 1 << CAP_SYS_NICE;

/// The version, and this thread.
const HEADER: [u32; 2] = [LINUX_CAPABILITY_VERSION_3, 0];

/// Effective, permitted and inheritable ones of this thread: of the lower half of the numbers, then of the upper.
fn own() -> Option<[u32; 6]> {
    let mut data = [0u32; 6];
    // SAFETY: version 3 has a header of two numbers, and two times three numbers of data.
    let got = unsafe { libc::syscall(libc::SYS_capget, HEADER.as_ptr(), data.as_mut_ptr()) };
    (got == 0).then_some(data)
}

/// Whether this thread may do what only the system's own should: any capability is in effect.
pub fn has_capabilities() -> bool {
    own().is_none_or(|data| data[0] != 0 || data[3] != 0)
}

/// Gives up all but [`RETAINED`]. After `no_new_privs` nothing that is executed gets them back, whoever its user is. Runs after
/// fork: two system calls, nothing else.
pub(super) fn give_up() -> Result<(), ()> {
    let mut data = own().ok_or(())?;
    for (index, set) in data.iter_mut().enumerate() {
        *set &= (RETAINED >> if index < 3 { 0 } else { 32 }) as u32;
    }
    // SAFETY: as in `own`; the kernel only reads it.
    if unsafe { libc::syscall(libc::SYS_capset, HEADER.as_ptr(), data.as_ptr()) } == 0 { Ok(()) } else { Err(()) }
}
