//! Records to the owner on the status socket, some with a descriptor.
//!
//! A report is never waited for and never fails a run by itself: where the owner is gone, the lifeline ends init next.

use crate::sys::{self, Msghdr};
use crate::uapi::*;
use crate::wire::{WireStatus, fd, status};

/// Writes a status record. When the owner is gone that fails, and the lifeline ends us next.
pub fn send(record: &WireStatus) {
    let bytes = (&raw const *record).cast::<u8>();
    while let Err(errno::EINTR) = sys::write(fd::STATUS, bytes, core::mem::size_of::<WireStatus>()) {}
}

/// Reports that an optional step could not be done.
pub fn weakened(step: u16, errno: i32) {
    send(&WireStatus { kind: status::WEAKENED, step, value: errno, ..WireStatus::default() });
}

/// Reports that the sandbox is set up and waits for the plan of its run.
pub fn held() {
    send(&WireStatus { kind: status::HELD, ..WireStatus::default() });
}

/// Sends the descriptor of a copy-on-write layer, or of an exported tmpfs.
pub fn send_layer(op: u32, layer: i32) -> Result<(), i32> {
    send_fd(&WireStatus { kind: status::LAYER, index: op, ..WireStatus::default() }, layer)
}

/// Sends a record with a descriptor.
pub fn send_fd(record: &WireStatus, descriptor: i32) -> Result<(), i32> {
    #[repr(C, align(8))]
    struct ReportControl {
        len: usize,
        level: i32,
        kind: i32,
        fd: i32,
        pad: i32,
    }
    let control = ReportControl { len: 20, level: SOL_SOCKET, kind: SCM_RIGHTS, fd: descriptor, pad: 0 };
    let iov = [(&raw const *record) as usize, core::mem::size_of::<WireStatus>()];
    let message = Msghdr {
        name: 0,
        namelen: 0,
        iov: &raw const iov,
        iovlen: 1,
        control: (&raw const control).cast(),
        controllen: 24,
        flags: 0,
    };
    sys::sendmsg(fd::STATUS, (&raw const message).cast(), MSG_NOSIGNAL).map(|_| ())
}
