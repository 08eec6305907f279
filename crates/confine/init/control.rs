//! Control messages from the owner: the plan with the descriptors that it names, and the release.
//!
//! The owner creates the process while it still works out what the process is to do. Each message on the control socket
//! holds a `wire::ControlMessage`; all of it is trusted as the plan is, which comes from the same owner. Sends nothing.

use crate::fault::{StepFault, StepResult, at};
use crate::plan::MappedPlan;
use crate::sys::{self, Msghdr, PollFd};
use crate::uapi::*;
use crate::wire::{CONTROL_FDS, ControlMessage, fd, step};

/// `struct cmsghdr`, which the descriptors follow.
const CMSG_HEADER: usize = 16;
const ROOM: usize = CMSG_HEADER + CONTROL_FDS * 4;

/// Room for the descriptors of one message.
#[repr(C, align(8))]
pub struct Descriptors {
    len: usize,
    level: i32,
    kind: i32,
    fds: [i32; CONTROL_FDS],
}

impl Descriptors {
    /// Nothing yet.
    pub const fn new() -> Descriptors {
        Descriptors { len: 0, level: 0, kind: 0, fds: [-1; CONTROL_FDS] }
    }

    /// The descriptors that came, `count` of them.
    pub fn fds(&self, count: usize) -> &[i32] {
        &self.fds[..count.min(CONTROL_FDS)]
    }
}

/// Waits for a plan and maps it in place of the one before. Descriptors that come along get their places from
/// `fd::FIRST_EXTRA` on; only one plan may have some.
pub fn receive_plan() -> Result<MappedPlan, StepFault> {
    let fault = at(step::plan::RECEIVE);
    let mut got = 0;
    loop {
        let mut descriptors = Descriptors::new();
        let (message, count) = receive(fd::SYNC, &mut descriptors).map_err(&fault)?;
        let mut fds = descriptors.fds.iter().take(count).copied();
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
        if got >= message.total as usize {
            break;
        }
        if count == 0 {
            return Err(fault(errno::EINVAL)); // it announces more, and none came
        }
    }
    move_into_place(fd::SYNC + 1, got - 1).map_err(&fault)?;
    MappedPlan::map(fd::PLAN)
}

/// How long a staged sandbox waits for its run, seconds and nanoseconds; its owner ends it much sooner.
const PLAN_TIMEOUT: [u64; 2] = [60, 0];

/// Waits for the plan that follows the one before.
pub fn next_plan() -> Result<MappedPlan, StepFault> {
    sys::close(fd::PLAN).map_err(at(step::plan::CLOSE_PREVIOUS))?; // mapped; the next one comes in its place, and what follows after it
    await_plan()?;
    receive_plan()
}

/// Waits until a plan comes. An owner that is gone without closing its end of the socket, as one whose forked child lives
/// on, never sends one.
fn await_plan() -> StepResult {
    let mut socket = [PollFd { fd: fd::SYNC, events: POLLIN, revents: 0 }];
    loop {
        match sys::ppoll(socket.as_mut_ptr(), 1, PLAN_TIMEOUT.as_ptr(), core::ptr::null(), 8) {
            Ok(0) => sys::exit(1), // no owner would read a report
            Ok(_) => return Ok(()),
            Err(errno::EINTR) => {}
            Err(e) => return Err(at(step::plan::WAIT)(e)),
        }
    }
}

/// Moves descriptors `first, …` to `FIRST_EXTRA, …`, the last one first, so that no number is overwritten before it has
/// moved.
fn move_into_place(first: i32, count: usize) -> Result<(), i32> {
    for i in (0..count as i32).rev() {
        let from = first + i;
        sys::dup3(from, fd::FIRST_EXTRA + i, O_CLOEXEC)?;
        if from < fd::FIRST_EXTRA {
            sys::close(from)?;
        }
    }
    Ok(())
}

/// Waits for the owner's release.
pub fn await_release() -> StepResult {
    let mut descriptors = Descriptors::new();
    receive(fd::SYNC, &mut descriptors).map(|_| ()).map_err(at(step::sync::RELEASE))
}

/// Receives one message: its content, and how many descriptors came with it.
pub fn receive(socket: i32, descriptors: &mut Descriptors) -> Result<(ControlMessage, usize), i32> {
    let mut message = ControlMessage { total: 0 };
    loop {
        let iov = [(&raw mut message) as usize, core::mem::size_of::<ControlMessage>()];
        let mut header = Msghdr {
            name: 0,
            namelen: 0,
            iov: &raw const iov,
            iovlen: 1,
            control: (&raw const *descriptors).cast(),
            controllen: ROOM,
            flags: 0,
        };
        match sys::recvmsg(socket, (&raw mut header).cast(), MSG_CMSG_CLOEXEC) {
            Ok(0) => sys::exit(1), // the owner has closed its end, and reads no report
            Ok(n) if n == core::mem::size_of::<ControlMessage>() && header.flags & MSG_CTRUNC as usize == 0 => {
                // SAFETY: the kernel wrote the control message through the pointer in `header`; read as memory.
                let (len, level, kind) = unsafe {
                    let c = &raw const *descriptors;
                    (
                        (&raw const (*c).len).read_volatile(),
                        (&raw const (*c).level).read_volatile(),
                        (&raw const (*c).kind).read_volatile(),
                    )
                };
                if header.controllen == 0 {
                    return Ok((message, 0));
                }
                if level != SOL_SOCKET || kind != SCM_RIGHTS || !(CMSG_HEADER..=ROOM).contains(&len) {
                    return Err(errno::EINVAL);
                }
                return Ok((message, (len - CMSG_HEADER) / 4));
            }
            Ok(_) => return Err(errno::EINVAL), // cut off
            Err(errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}
