//! What reaches init after it has started: its plan, and the descriptors that the plan speaks of.
//!
//! The owner makes the process while it still works out what the process is to do. Messages come on the sync socket, each
//! with a `wire::Letter` in it; nothing in them is trusted less than the plan itself, which the same owner made.

use crate::plan::Plan;
use crate::sys::{self, PollFd};
use crate::uapi::*;
use crate::wire::{LETTER_FDS, Letter, fd, step};
use crate::{Fault, Step, at};

/// `struct cmsghdr`, which the descriptors follow.
const CMSG_HEADER: usize = 16;
const ROOM: usize = CMSG_HEADER + LETTER_FDS * 4;

/// Room for the descriptors of one message.
#[repr(C, align(8))]
pub struct Control {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; LETTER_FDS],
}

impl Control {
    /// Nothing yet.
    pub const fn new() -> Control {
        Control { len: 0, level: 0, kind: 0, fds: [-1; LETTER_FDS] }
    }

    /// The descriptors that came, `count` of them.
    pub fn fds(&self, count: usize) -> &[i32] {
        &self.fds[..count.min(LETTER_FDS)]
    }
}

/// Waits for a plan and maps it in place of the one before. Descriptors that come along get their places from
/// `fd::FIRST_EXTRA` on; only one plan may have some.
pub fn plan() -> Result<Plan, Fault> {
    let fault = at(step::plan::RECEIVE);
    let mut got = 0;
    loop {
        let mut control = Control::new();
        let (letter, count) = receive(fd::SYNC, &mut control).map_err(&fault)?;
        let mut fds = control.fds.iter().take(count).copied();
        if got == 0 {
            let plan = fds.next().ok_or(errno::EINVAL).map_err(&fault)?;
            if plan != fd::PLAN {
                sys::dup3(plan, fd::PLAN, O_CLOEXEC).map_err(&fault)?;
                sys::close(plan).map_err(&fault)?;
            }
            got += 1;
        }
        for extra in fds {
            // Nothing else opens descriptors meanwhile: they arrive on the lowest free numbers, one after the other.
            if extra != fd::SYNC + got as i32 {
                return Err(fault(errno::EINVAL));
            }
            got += 1;
        }
        if got >= letter.total as usize {
            break;
        }
        if count == 0 {
            return Err(fault(errno::EINVAL)); // it promises more and brings nothing
        }
    }
    place(fd::SYNC + 1, got - 1).map_err(&fault)?;
    Plan::map(fd::PLAN)
}

/// How long a sandbox that was made ready waits for its run; its owner ends it much sooner.
const PATIENCE: [u64; 2] = [60, 0];

/// Waits for the plan that follows the one before.
pub fn another() -> Result<Plan, Fault> {
    sys::close(fd::PLAN).map_err(at(step::plan::CLOSE_PREVIOUS))?; // mapped; the next one comes in its place, and what follows after it
    arrives()?;
    plan()
}

/// Waits until a plan comes. An owner who is gone without closing its end of the socket, as one whose forked child lives
/// on, never sends one.
fn arrives() -> Step {
    let mut letters = [PollFd { fd: fd::SYNC, events: POLLIN, revents: 0 }];
    loop {
        match sys::ppoll(letters.as_mut_ptr(), 1, PATIENCE.as_ptr(), core::ptr::null(), 8) {
            Ok(0) => sys::exit(1), // there is nobody to tell
            Ok(_) => return Ok(()),
            Err(errno::EINTR) => {}
            Err(e) => return Err(at(step::plan::WAIT)(e)),
        }
    }
}

/// Moves descriptors `first, …` to `FIRST_EXTRA, …`, the last one first: a place is free before something comes to it.
fn place(first: i32, count: usize) -> Result<(), i32> {
    for i in (0..count as i32).rev() {
        let from = first + i;
        sys::dup3(from, fd::FIRST_EXTRA + i, O_CLOEXEC)?;
        if from < fd::FIRST_EXTRA {
            sys::close(from)?;
        }
    }
    Ok(())
}

/// Waits for the owner's go.
pub fn go() -> Step {
    let mut control = Control::new();
    receive(fd::SYNC, &mut control).map(|_| ()).map_err(at(step::sync::RELEASE))
}

/// One message: what it says, and how many descriptors came with it.
pub fn receive(socket: i32, control: &mut Control) -> Result<(Letter, usize), i32> {
    let mut letter = Letter { total: 0 };
    loop {
        let iov = [(&raw mut letter) as usize, core::mem::size_of::<Letter>()];
        let mut message = crate::watch::Msghdr {
            name: 0,
            namelen: 0,
            iov: &raw const iov,
            iovlen: 1,
            control: (&raw const *control).cast(),
            controllen: ROOM,
            flags: 0,
        };
        match sys::recvmsg(socket, (&raw mut message).cast(), MSG_CMSG_CLOEXEC) {
            Ok(0) => sys::exit(1), // the owner gave up: there is nobody to tell
            Ok(n) if n == core::mem::size_of::<Letter>() && message.flags & MSG_CTRUNC as usize == 0 => {
                // SAFETY: the kernel wrote the control message through the pointer in `message`; read as memory.
                let (len, level, kind) = unsafe {
                    let c = &raw const *control;
                    (
                        (&raw const (*c).len).read_volatile(),
                        (&raw const (*c).level).read_volatile(),
                        (&raw const (*c).kind).read_volatile(),
                    )
                };
                if message.controllen == 0 {
                    return Ok((letter, 0));
                }
                if level != SOL_SOCKET || kind != SCM_RIGHTS || !(CMSG_HEADER..=ROOM).contains(&len) {
                    return Err(errno::EINVAL);
                }
                return Ok((letter, (len - CMSG_HEADER) / 4));
            }
            Ok(_) => return Err(errno::EINVAL), // cut off
            Err(errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}
