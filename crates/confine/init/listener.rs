//! The seccomp listener: takes a notification, and has each way to answer one (seccomp_unotify(2)). Decides nothing.

use crate::report::weakened;
use crate::sys;
use crate::uapi::*;
use crate::wire::step;

/// `struct seccomp_notif`, with room for what later kernels append.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct NotificationBuffer {
    /// Cookie of the call.
    pub id: u64,
    /// Thread, as init sees it.
    pub pid: u32,
    flags: u32,
    /// System call number.
    pub nr: i32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// Where the call was made.
    pub ip: u64,
    /// Registers.
    pub args: [u64; 6],
    spare: [u64; 16],
}

impl NotificationBuffer {
    /// All zero.
    pub const EMPTY: NotificationBuffer =
        NotificationBuffer { id: 0, pid: 0, flags: 0, nr: 0, arch: 0, ip: 0, args: [0; 6], spare: [0; 16] };
}

/// What is saved of a call to try it again.
#[derive(Clone, Copy)]
pub struct SavedCall {
    id: u64,
    args: [u64; 6],
    pid: u32,
    nr: i32,
}

impl SavedCall {
    /// All zero.
    pub const EMPTY: SavedCall = SavedCall { id: 0, args: [0; 6], pid: 0, nr: 0 };

    /// Of this call.
    pub fn new(r: &NotificationBuffer) -> SavedCall {
        SavedCall { id: r.id, args: r.args, pid: r.pid, nr: r.nr }
    }

    /// The call.
    pub fn request(&self) -> NotificationBuffer {
        NotificationBuffer { id: self.id, args: self.args, pid: self.pid, nr: self.nr, ..NotificationBuffer::EMPTY }
    }
}

#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

/// The descriptor of a listener, or -1.
#[derive(Clone, Copy)]
pub struct Listener(i32);

impl Listener {
    /// This descriptor, or -1 where the filter has no listener.
    pub fn new(listener: i32) -> Listener {
        if listener >= 0 {
            // Since Linux 6.6: both sides on one CPU. Only a matter of speed, so a refusal changes nothing.
            if let Err(e) = sys::ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
                && e == errno::EPERM
            {
                weakened(step::SECCOMP, e);
            }
        }
        Listener(listener)
    }

    /// Takes the next call; `None` when its caller was killed meanwhile.
    pub fn next(&self) -> Option<NotificationBuffer> {
        let mut r = NotificationBuffer::EMPTY;
        sys::ioctl(self.0, SECCOMP_IOCTL_NOTIF_RECV, (&raw mut r) as usize).ok()?;
        Some(r)
    }

    /// Whether the calling thread still waits in this very call.
    pub fn valid(&self, r: &NotificationBuffer) -> bool {
        sys::ioctl(self.0, SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw const r.id) as usize).is_ok()
    }

    fn respond(&self, response: &Response) {
        // ENOENT: the caller was killed or interrupted meanwhile, and needs no answer.
        if let Err(e) = sys::ioctl(self.0, SECCOMP_IOCTL_NOTIF_SEND, (&raw const *response) as usize)
            && e != errno::ENOENT
            && e != errno::EINTR
        {
            weakened(step::SECCOMP, e);
        }
    }

    /// The call fails with this errno.
    pub fn refuse(&self, r: &NotificationBuffer, errno: i32) {
        self.respond(&Response { id: r.id, val: 0, error: -errno, flags: 0 });
    }

    /// The call has been performed; this is its value.
    pub fn done(&self, r: &NotificationBuffer, value: i64) {
        self.respond(&Response { id: r.id, val: value, error: 0, flags: 0 });
    }

    /// Lets the call through as it is.
    pub fn proceed(&self, r: &NotificationBuffer) {
        // Nothing was decided on what was read.
        self.respond(&Response { id: r.id, val: 0, error: 0, flags: SECCOMP_USER_NOTIF_FLAG_CONTINUE });
    }

    /// The call returns a copy of this descriptor, which is closed here first: a program that writes a file, closes it
    /// and executes it must not find it still open for writing (ETXTBSY).
    pub fn give(&self, r: &NotificationBuffer, descriptor: i32, cloexec: bool) -> Result<(), i32> {
        let add = AddFd {
            id: r.id,
            flags: 0,
            srcfd: descriptor as u32,
            newfd: 0,
            newfd_flags: if cloexec { O_CLOEXEC as u32 } else { 0 },
        };
        let number = sys::ioctl(self.0, SECCOMP_IOCTL_NOTIF_ADDFD, (&raw const add) as usize);
        sys::close(descriptor)?;
        match number {
            Ok(n) => self.done(r, n as i64),
            Err(errno::ENOENT) => {}     // the caller was killed meanwhile
            Err(e) => self.refuse(r, e), // EMFILE of the program, mostly
        }
        Ok(())
    }
}
