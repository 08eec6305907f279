//! Decodes what init sends: status records, some with a descriptor, and event records. Sends nothing.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::seccomp::classify::Verdict;
use crate::wire;
use crate::wire::refusal::{ADDRESS, DENIED, GUARDED, SECOND};

/// A status record.
#[derive(Debug)]
pub enum InitStatus {
    /// Setup failed; nothing ran.
    Failed {
        /// `wire::step` value.
        step: u16,
        /// Item of the step.
        index: usize,
        /// errno, 0 for a fault of init's own.
        errno: i32,
    },
    /// The program runs.
    Started {
        /// Monotonic nanoseconds.
        at_ns: u64,
    },
    /// The program has ended.
    Ended {
        /// As wait(2).
        wait_status: i32,
        /// Monotonic nanoseconds.
        at_ns: u64,
        /// Events seen and lost.
        events: (u64, u32),
        /// The most memory of any one process that was reaped, bytes; 0 where none was.
        memory: u64,
    },
    /// A violation ended it.
    Violation {
        /// Monotonic nanoseconds.
        at_ns: u64,
        /// Events seen and lost.
        events: (u64, u32),
        /// The most memory of any one process that was reaped, bytes; 0 where none was.
        memory: u64,
    },
    /// The limit of wall time ended it.
    TimedOut {
        /// Monotonic nanoseconds.
        at_ns: u64,
        /// Events seen and lost.
        events: (u64, u32),
        /// The most memory of any one process that was reaped, bytes; 0 where none was.
        memory: u64,
    },
    /// The pty master.
    Terminal(OwnedFd),
    /// A copy-on-write layer, or an exported tmpfs.
    Layer {
        /// Index of the mount step.
        op: usize,
        /// Root of the layer's file system; `upper` in it holds the changes.
        fd: OwnedFd,
    },
    /// A netlink socket that reports what the sockets of the sandbox's network namespace hold (sock_diag(7)).
    Sockets(OwnedFd),
    /// A sandbox that was staged before its run is set up and waits for the run's plan.
    Held,
    /// An optional step could not be done.
    Weakened {
        /// `wire::step` value.
        step: u16,
        /// errno.
        errno: i32,
    },
}

/// The next status record; `None` when init has closed its end, and `WouldBlock` when there is none yet.
///
/// # Errors
/// recvmsg(2) fails, or the record is not one of init's.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<InitStatus>> {
    let mut bytes = [0u8; size_of::<wire::WireStatus>()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "a status record of the wrong form");
    if message.bytes != bytes.len() {
        return Err(bad());
    }
    let fd = control.drain().find_map(|m| match m {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let u16_at = |i: usize| u16::from_ne_bytes([bytes[i], bytes[i + 1]]);
    let u32_at = |i: usize| u32::from_ne_bytes(bytes[i..i + 4].try_into().unwrap_or_default());
    let u64_at = |i: usize| u64::from_ne_bytes(bytes[i..i + 8].try_into().unwrap_or_default());
    let (kind, step, index, value) = (u16_at(0), u16_at(2), u32_at(4) as usize, u32_at(8) as i32);
    let (lost, at_ns, events) = (u32_at(12), u64_at(16), u64_at(24));
    let memory = index as u64 * 1024;
    Ok(Some(match kind {
        wire::status::FAILED => InitStatus::Failed { step, index, errno: value },
        wire::status::STARTED => InitStatus::Started { at_ns },
        wire::status::ENDED => InitStatus::Ended { wait_status: value, at_ns, events: (events, lost), memory },
        wire::status::VIOLATION => InitStatus::Violation { at_ns, events: (events, lost), memory },
        wire::status::TIMED_OUT => InitStatus::TimedOut { at_ns, events: (events, lost), memory },
        wire::status::TERMINAL => InitStatus::Terminal(fd.ok_or_else(bad)?),
        wire::status::LAYER => InitStatus::Layer { op: index, fd: fd.ok_or_else(bad)? },
        wire::status::SOCKETS => InitStatus::Sockets(fd.ok_or_else(bad)?),
        wire::status::HELD => InitStatus::Held,
        wire::status::WEAKENED => InitStatus::Weakened { step, errno: value },
        _ => return Err(bad()),
    }))
}

/// What a guard refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarded {
    /// The name is denied; else it is protected.
    pub denied: bool,
    /// It is the last component of the second path.
    pub second: bool,
}

/// One notified call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifiedCall {
    /// System call number.
    pub nr: u32,
    /// The classifier's verdict.
    pub verdict: Verdict,
    /// errno answered, 0 when let through.
    pub errno: u16,
    /// Pid as init sees it.
    pub pid: u32,
    /// Refused by a guard, and which of the paths it guards against.
    pub guarded: Option<Guarded>,
    /// The first path is a `struct sockaddr` as read from the program's memory, refused by the network mode.
    pub address: bool,
    /// Registers.
    pub args: [u64; 6],
    /// Paths as read from the program's memory, which the program writes: bytes, not text.
    pub paths: [Vec<u8>; 2],
}

/// Reads one event record out of the bytes of a message. Untrusted in its paths only, but checked as a whole.
pub fn decode_event(bytes: &[u8]) -> Option<NotifiedCall> {
    let head = size_of::<wire::WireEvent>();
    if bytes.len() < head {
        return None;
    }
    let u32_at = |i: usize| u32::from_ne_bytes(bytes[i..i + 4].try_into().unwrap_or_default());
    let mut args = [0u64; 6];
    for (i, a) in args.iter_mut().enumerate() {
        *a = u64::from_ne_bytes(bytes[16 + i * 8..24 + i * 8].try_into().ok()?);
    }
    let has = |bit| u32_at(12) & bit != 0;
    let (one, two) = (u32_at(64) as usize, u32_at(68) as usize);
    let text = bytes.get(head..head.checked_add(one)?.checked_add(two)?)?;
    Some(NotifiedCall {
        nr: u32_at(0),
        verdict: Verdict(u32_at(4)),
        errno: u32_at(12) as u16,
        pid: u32_at(8),
        guarded: has(GUARDED).then_some(Guarded { denied: has(DENIED), second: has(SECOND) }),
        address: has(ADDRESS),
        args,
        paths: [text[..one].to_vec(), text[one..].to_vec()],
    })
}

const _: () = assert!(size_of::<wire::WireStatus>() == 32);
const _: () = assert!(size_of::<wire::WireEvent>() == 72);

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_event_decoder_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            let decoded = decode_event(&bytes);
            proptest::prop_assert!(bytes.len() >= size_of::<wire::WireEvent>() || decoded.is_none());
        }
    }
}
