//! The sandbox's own network namespace: its loopback interface, and the socket by which the owner counts what sockets
//! hold. Adds no route; those of a captured network are `capture`'s.

use crate::fault::{StepResult, at};
use crate::plan::MappedPlan;
use crate::report::send_fd;
use crate::sys;
use crate::uapi::*;
use crate::wire::{WireStatus, flag, status, step};

/// Brings the loopback interface up, where the plan says so.
pub fn loopback(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::LOOPBACK) {
        return Ok(());
    }
    let s = sys::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0).map_err(at(step::loopback::SOCKET))? as i32;
    let mut request = [0u8; 40]; // struct ifreq
    request[..2].copy_from_slice(b"lo");
    sys::ioctl(s, SIOCGIFFLAGS, request.as_mut_ptr() as usize).map_err(at(step::loopback::GET_FLAGS))?;
    request[16] |= IFF_UP; // ifr_flags, the low byte
    sys::ioctl(s, SIOCSIFFLAGS, request.as_ptr() as usize).map_err(at(step::loopback::SET_FLAGS))?;
    sys::close(s).map_err(at(step::loopback::CLOSE))?;
    Ok(())
}

/// Sends the owner a netlink socket by which it reads what the sockets of this network namespace hold. Where nothing can be
/// reached, none holds anything, and a network that is not the sandbox's own is not counted. A kernel without such sockets
/// sends none, which the owner takes for what it is.
pub fn send_sock_diag(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::ONLY_LOOPBACK) && !plan.has(flag::CAPTURED) {
        return Ok(());
    }
    let Ok(s) = sys::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG) else { return Ok(()) };
    send_fd(&WireStatus { kind: status::SOCKETS, ..WireStatus::default() }, s as i32)
        .map_err(at(step::sockets::SEND))?;
    sys::close(s as i32).map_err(at(step::sockets::CLOSE))?;
    Ok(())
}
