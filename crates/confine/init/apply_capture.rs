//! Capture of the sandbox's network (transparent proxying): routes and rules that make every address local, and the
//! sockets at which every connection then arrives.
//!
//! Init creates them for the owner, because the namespace is the sandbox's own and only init may. The descriptors go to the
//! owner, and init keeps no copy. The plan has the messages and sockets; nothing is decided here.

use crate::fault::{StepFault, StepResult, at};
use crate::plan::MappedPlan;
use crate::uapi::*;
use crate::wire::step::SocketPart;
use crate::wire::{CONTROL_SOCKETS, ControlMessage, SocketOption, WireMessages, WireSocket, fd, step};
use crate::{netlink, sys};

/// Does what the plan says of it; nothing where it says nothing.
pub fn apply(plan: &MappedPlan) -> StepResult {
    let h = plan.header();
    for m in plan.items::<WireMessages>(h.messages) {
        netlink::send(m.protocol, plan.bytes(m.bytes), m.first, m.count)
            .map_err(|(index, errno)| StepFault { at: step::capture::MESSAGE.item(index as usize), errno })?;
    }
    let sockets = plan.items::<WireSocket>(h.sockets);
    for (i, part) in sockets.chunks(CONTROL_SOCKETS).enumerate() {
        let mut made = [-1i32; CONTROL_SOCKETS];
        for (k, spec) in part.iter().enumerate() {
            made[k] = socket(plan, spec, i * CONTROL_SOCKETS + k)?;
        }
        let made = &made[..part.len()];
        send(sockets.len(), made).map_err(at(step::capture::SEND))?;
        for &f in made {
            sys::close(f).map_err(at(step::capture::CLOSE))?; // the owner's alone from here on
        }
    }
    Ok(())
}

#[repr(C)]
struct SockFprog {
    len: u16,
    pad: [u16; 3],
    instructions: *const u64,
}

/// One socket. Its filter stands before its address does: nothing comes in that the filter has not seen.
fn socket(plan: &MappedPlan, spec: &WireSocket, index: usize) -> Result<i32, StepFault> {
    let fault = |part| at(step::socket_part(index, part));
    let (family, kind, protocol) = (i32::from(spec.family), i32::from(spec.kind), i32::from(spec.protocol));
    let s =
        sys::socket(family, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol).map_err(fault(SocketPart::Create))? as i32;
    for o in plan.items::<SocketOption>(spec.options) {
        let value = (&raw const o.value).cast();
        sys::setsockopt(s, o.level, o.name, value, 4).map_err(fault(SocketPart::Option))?;
    }
    let filter: &[u64] = plan.items(spec.filter);
    if !filter.is_empty() {
        let program = SockFprog { len: filter.len() as u16, pad: [0; 3], instructions: filter.as_ptr() };
        let size = core::mem::size_of::<SockFprog>();
        sys::setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, (&raw const program).cast(), size)
            .map_err(fault(SocketPart::Filter))?;
    }
    let address = plan.bytes(spec.address);
    sys::bind(s, address.as_ptr(), address.len()).map_err(fault(SocketPart::Bind))?;
    if spec.backlog > 0 {
        sys::listen(s, i32::from(spec.backlog)).map_err(fault(SocketPart::Listen))?;
    }
    Ok(s)
}

/// Sends sockets to the owner, on the socket that the plan came by.
fn send(total: usize, fds: &[i32]) -> Result<(), i32> {
    #[repr(C, align(8))]
    struct SocketsControl {
        len: usize,
        level: i32,
        kind: i32,
        fds: [i32; CONTROL_SOCKETS],
    }
    let mut control =
        SocketsControl { len: 16 + fds.len() * 4, level: SOL_SOCKET, kind: SCM_RIGHTS, fds: [-1; CONTROL_SOCKETS] };
    control.fds[..fds.len()].copy_from_slice(fds);
    let content = ControlMessage { total: total as u32 };
    let iov = [(&raw const content) as usize, core::mem::size_of::<ControlMessage>()];
    let message = sys::Msghdr {
        name: 0,
        namelen: 0,
        iov: &raw const iov,
        iovlen: 1,
        control: (&raw const control).cast(),
        controllen: control.len,
        flags: 0,
    };
    loop {
        match sys::sendmsg(fd::SYNC, (&raw const message).cast(), MSG_NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
}
