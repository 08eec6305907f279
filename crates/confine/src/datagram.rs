//! Datagrams to a socket that is bound to every address: the address that each was sent to, and answers from that address.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Room for one control message with an address, aligned as the kernel's headers are.
type ControlBuffer = [u64; 8];

/// A datagram that was received, and all that an answer needs.
#[derive(Clone, Copy)]
pub struct ReceivedDatagram {
    /// Its length; what was longer than the buffer is cut off.
    pub bytes: usize,
    /// The address that it was sent to.
    pub to: IpAddr,
    peer: libc::sockaddr_storage,
    peer_length: libc::socklen_t,
    control: ControlBuffer,
    control_length: usize,
}

/// The next datagram of a non-blocking socket that has `IPV6_RECVPKTINFO`, or `IP_PKTINFO` where it is one of IPv4.
///
/// # Errors
/// recvmsg(2), `WouldBlock` among them; `InvalidData` when the kernel does not say which address it was sent to.
#[allow(clippy::unnecessary_cast, reason = "with musl the length is a u32")]
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<ReceivedDatagram> {
    let mut control: ControlBuffer = [0; 8];
    let mut peer = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes are a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_name = peer.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<ControlBuffer>() as _;
    // SAFETY: every pointer of the header is to a local that outlives the call and is as long as it says.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let bytes = usize::try_from(bytes).map_err(|_| io::Error::last_os_error())?;
    let control_length = (message.msg_controllen as usize).min(size_of::<ControlBuffer>());
    // SAFETY: zeroed before, and the kernel wrote at most its length.
    let peer = unsafe { peer.assume_init() };
    let to = asked(&message).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no destination address"))?;
    Ok(ReceivedDatagram { bytes, to, peer, peer_length: message.msg_namelen, control, control_length })
}

/// The address in the control message, while its buffer is alive.
#[allow(clippy::unnecessary_cast, reason = "with musl the length is a u32")]
fn asked(message: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the header's control buffer is the caller's, filled by the kernel.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    if first.is_null() {
        return None;
    }
    // SAFETY: not null, so a whole header lies within the control buffer.
    let header = unsafe { &*first };
    // SAFETY: points behind the header, within the buffer or at its end.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: a computation.
    let holds = |size: usize| header.cmsg_len as usize >= unsafe { libc::CMSG_LEN(size as u32) } as usize;
    match (header.cmsg_level, header.cmsg_type) {
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if holds(size_of::<libc::in6_pktinfo>()) => {
            // SAFETY: the message is as long as the structure, of which every bit pattern is valid.
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical())
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) if holds(size_of::<libc::in_pktinfo>()) => {
            // SAFETY: as above.
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr))))
        }
        _ => None,
    }
}

/// Answers a datagram to where it came from, from the address that it was sent to.
///
/// # Errors
/// sendmsg(2), `WouldBlock` among them.
pub fn answer(socket: BorrowedFd<'_>, received: &ReceivedDatagram, bytes: &[u8]) -> io::Result<()> {
    let (mut peer, mut control) = (received.peer, received.control);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a valid msghdr: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_name = (&raw mut peer).cast();
    message.msg_namelen = received.peer_length;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = received.control_length as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer of the header is to a local or to `bytes`, as long as it says; the kernel reads only.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the kernel report the destination of each datagram; needed on a socket for [`receive`].
///
/// # Errors
/// setsockopt(2).
pub fn receive_destinations(socket: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let on: libc::c_int = 1;
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is an int that outlives the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    fn asks(bound: &str, ipv6: bool, asked: &str) {
        let server = UdpSocket::bind(bound).unwrap();
        receive_destinations(server.as_fd(), ipv6).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to: std::net::SocketAddr = (asked.parse::<IpAddr>().unwrap(), server.local_addr().unwrap().port()).into();
        client.send_to(b"which?", to).unwrap();
        let mut buffer = [0u8; 64];
        let received = receive(server.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..received.bytes], received.to), (&b"which?"[..], to.ip()));
        answer(server.as_fd(), &received, b"this").unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"this"[..], to));
        assert_eq!(receive(server.as_fd(), &mut buffer).err().unwrap().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        asks("0.0.0.0:0", false, "127.0.0.2");
        asks("0.0.0.0:0", false, "127.9.8.7");
    }

    #[test]
    fn the_same_for_a_socket_of_both_kinds() {
        if UdpSocket::bind("[::1]:0").is_err() {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "no IPv6 here");
            eprintln!("skipped: no IPv6 here");
            return;
        }
        asks("[::]:0", true, "127.0.0.2");
    }

    #[test]
    fn a_socket_that_reports_no_destination_is_an_error() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"which?", server.local_addr().unwrap()).unwrap();
        let kind = receive(server.as_fd(), &mut [0u8; 64]).err().unwrap().kind();
        assert_eq!(kind, io::ErrorKind::InvalidData);
    }
}
