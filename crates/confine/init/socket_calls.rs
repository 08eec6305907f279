//! Socket addresses of notified calls: reads the address that a call names, and returns it where the network refuses it.
//!
//! The network namespace is what refuses, by having no route there; Landlock stands before it for TCP. What is read here may
//! have changed by the time the kernel looks, so it is reported as read and decides nothing but whether a run under
//! `TERMINATE` ends.

use core::net::IpAddr;

use crate::listener::NotificationBuffer;
use crate::plan::MappedPlan;
use crate::reach::{self, AddressPurpose, NetworkReach};
use crate::sys;
use crate::task::{borrow, read_memory};
use crate::uapi::*;
use crate::wire::flag;

/// As many bytes as the longest address that is looked at.
pub const LONGEST: usize = 28;
/// Length of the shortest address of IPv4 or IPv6, `struct sockaddr_in`: the kernel takes no shorter one.
const SHORTEST: usize = 16;
/// What one sendmmsg sends at the most (sendmmsg(2)).
const MESSAGES: u64 = 1024;

mod calls {
    use crate::seccomp::calls::native_or_absent as number;

    pub const CONNECT: i32 = number("connect");
    pub const SENDTO: i32 = number("sendto");
    pub const SENDMSG: i32 = number("sendmsg");
    pub const BIND: i32 = number("bind");
    pub const SENDMMSG: i32 = number("sendmmsg");
}

/// An address as it reads now.
pub struct SocketAddress {
    bytes: [u8; LONGEST],
    len: usize,
    /// libc asks this by itself: it connects datagram sockets to sort addresses and to ask for names.
    pub by_libc: bool,
}

impl SocketAddress {
    /// The `struct sockaddr`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Whether a call is about sockets and nothing else: it has no path, and an address only where it names one.
pub fn is_about(nr: i32) -> bool {
    use calls::*;
    matches!(nr, CONNECT | SENDTO | SENDMSG | BIND | SENDMMSG)
}

/// The address that the call is refused for, as far as the network refuses it. Fails when that cannot be known; of what the
/// kernel itself will not find, such as a pointer to nothing or a closed descriptor, it is known.
pub fn refused(plan: &MappedPlan, r: &NotificationBuffer) -> Result<Option<SocketAddress>, i32> {
    let Some(network) = network(plan) else { return Ok(None) };
    match asked(plan, network, r) {
        Err(errno::EFAULT | errno::ENOENT | errno::EBADF | errno::ESRCH) => Ok(None),
        other => other,
    }
}

fn asked(plan: &MappedPlan, network: NetworkReach, r: &NotificationBuffer) -> Result<Option<SocketAddress>, i32> {
    use calls::*;
    match r.nr {
        CONNECT | BIND => judge(plan, network, r, r.args[1], r.args[2], 0),
        SENDTO => judge(plan, network, r, r.args[4], r.args[5], r.args[3]),
        SENDMSG => message(plan, network, r, r.args[1], r.args[2]),
        // The first that is refused ends the call.
        SENDMMSG => {
            for i in 0..(r.args[2] & 0xffff_ffff).min(MESSAGES) {
                let found = message(plan, network, r, r.args[1].wrapping_add(i * 64), r.args[3])?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Whether Landlock refuses to bind this socket: what init binds for the program passes it by.
pub fn landlock_refuses_bind(plan: &MappedPlan, socket: i32, address: &[u8]) -> bool {
    plan.header().handled_net & LANDLOCK_ACCESS_NET_BIND_TCP != 0
        && reach::address(address).is_some()
        && kind(socket) == Ok(Some(SOCK_STREAM))
}

fn network(plan: &MappedPlan) -> Option<NetworkReach> {
    let flags = plan.header().flags;
    match flags & (flag::NO_NETWORK | flag::ONLY_LOOPBACK | flag::CAPTURED) {
        flag::NO_NETWORK => Some(NetworkReach::Nothing),
        flag::ONLY_LOOPBACK => Some(NetworkReach::Loopback),
        flag::CAPTURED => Some(NetworkReach::Captured),
        _ => None,
    }
}

/// The address of a `struct msghdr`.
fn message(
    plan: &MappedPlan,
    network: NetworkReach,
    r: &NotificationBuffer,
    at: u64,
    flags: u64,
) -> Result<Option<SocketAddress>, i32> {
    let mut head = [0u8; 16]; // msg_name, msg_namelen
    read(r, &mut head, at)?;
    let word = |from: usize| u64::from_ne_bytes(core::array::from_fn(|i| head[from + i]));
    judge(plan, network, r, word(0), word(8) & 0xffff_ffff, flags)
}

fn judge(
    plan: &MappedPlan,
    network: NetworkReach,
    r: &NotificationBuffer,
    at: u64,
    len: u64,
    flags: u64,
) -> Result<Option<SocketAddress>, i32> {
    if at == 0 {
        return Ok(None); // sent on a connection
    }
    let mut a =
        SocketAddress { bytes: [0; LONGEST], len: (len & 0xffff_ffff).min(LONGEST as u64) as usize, by_libc: false };
    let len = a.len;
    read(r, &mut a.bytes[..len], at)?;
    let Some(address) = reach::address(a.bytes()) else {
        return Ok(is_misnamed(network, r, &a)?.then_some(a));
    };
    // Only now, since most calls on sockets are not about the network.
    let socket = match borrow(r.pid, r.args[0] as i32) {
        // Who may not look at the socket, as in Docker's containers, has read the address all the same. What is not known is
        // taken for a stream.
        Err(errno::EPERM) if network == NetworkReach::Nothing => {
            a.by_libc = probes(r, address.ip());
            return Ok(Some(a));
        }
        socket => socket?,
    };
    let (kind, protocol) = (kind(socket), option(socket, SO_PROTOCOL));
    sys::close(socket)?;
    let Some(kind) = kind? else { return Ok(None) };
    let stream = kind == SOCK_STREAM;
    let tcp = protocol?.is_some_and(|protocol| matches!(protocol, IPPROTO_TCP | IPPROTO_MPTCP));
    let connects = r.nr == calls::CONNECT;
    let purpose = match r.nr {
        calls::BIND if stream && plan.header().handled_net & LANDLOCK_ACCESS_NET_BIND_TCP != 0 => {
            AddressPurpose::BindRefused
        }
        calls::BIND => AddressPurpose::Bind,
        // A stream looks at an address only where sending connects it.
        _ if stream && !connects && flags as i32 & MSG_FASTOPEN == 0 => return Ok(None),
        _ if tcp => AddressPurpose::Connect,
        _ => AddressPurpose::Reach,
    };
    // Where there is no network, who asks a resolver wants one.
    let asks = network == NetworkReach::Nothing && address.port() == reach::RESOLVER;
    a.by_libc = connects && !stream && !asks || probes(r, address.ip());
    Ok(reach::refused(network, purpose, address).then_some(a))
}

/// Whether a socket of IPv4 or IPv6 is to connect to an address of another family, where there is no network: what the kernel
/// refuses for its family alone may be one that is to read differently here. No program means it, but to dissolve the
/// association of a datagram socket, as libc does.
fn is_misnamed(network: NetworkReach, r: &NotificationBuffer, a: &SocketAddress) -> Result<bool, i32> {
    if network != NetworkReach::Nothing || r.nr != calls::CONNECT || a.len < SHORTEST {
        return Ok(false);
    }
    let socket = match borrow(r.pid, r.args[0] as i32) {
        Err(errno::EPERM) => return Ok(false),
        socket => socket?,
    };
    let kind = kind(socket);
    sys::close(socket)?;
    Ok(kind?.is_some_and(|kind| kind == SOCK_STREAM || a.bytes[..2] != [0; 2]))
}

/// Whether a call binds a socket to loopback, as runtimes do to see what the host can do.
fn probes(r: &NotificationBuffer, ip: IpAddr) -> bool {
    r.nr == calls::BIND && (ip.is_loopback() || ip.is_unspecified())
}

/// `SOCK_*` of a socket of IPv4 or IPv6; none for anything else.
fn kind(socket: i32) -> Result<Option<i32>, i32> {
    match option(socket, SO_DOMAIN)? {
        Some(domain) if domain == reach::INET as i32 || domain == reach::INET6 as i32 => option(socket, SO_TYPE),
        _ => Ok(None),
    }
}

/// What a socket says of itself; none for what is no socket.
fn option(socket: i32, option: i32) -> Result<Option<i32>, i32> {
    let (mut value, mut len) = (0i32, 4u32);
    match sys::getsockopt(socket, SOL_SOCKET, option, (&raw mut value).cast(), &raw mut len) {
        Ok(_) => Ok(Some(value)),
        Err(errno::ENOTSOCK) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Reads the calling thread's memory: all of it or nothing.
fn read(r: &NotificationBuffer, into: &mut [u8], at: u64) -> Result<(), i32> {
    if read_memory(r.pid, at as usize, into)? == into.len() { Ok(()) } else { Err(errno::EFAULT) }
}
