//! The sockets of a captured network, as data: listeners, the resolver's, and the packet socket with its filter.

use super::{AF_INET, AF_INET6, CaptureSocket, DNS, IpVersion, TCP, Versions};

const STREAM: u16 = 1;
const DATAGRAM: u16 = 2;
const RAW: u16 = 3;
/// Connections that wait at a listener until the owner accepts them.
const BACKLOG: u16 = 1024;
const AF_NETLINK: u16 = 16;
const NETLINK_SOCK_DIAG: u16 = 4;
const SOL_IP: i32 = 0;
const IP_PKTINFO: i32 = 8;
const SOL_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;
const IPV6_RECVPKTINFO: i32 = 49;
const IPV6_FREEBIND: i32 = 78;

impl CaptureSocket {
    /// Listens for TCP on a port of every address. No other socket can share the port: it has no SO_REUSEADDR and no SO_REUSEPORT.
    pub fn listener(port: u16, versions: Versions) -> CaptureSocket {
        CaptureSocket {
            backlog: BACKLOG,
            ..CaptureSocket::bound(STREAM, port, versions, format!("the listener of port {port}"))
        }
    }

    /// Receives datagrams to port 53 of every address, each with the address that it was sent to.
    pub fn resolver(versions: Versions) -> CaptureSocket {
        let mut s = CaptureSocket::bound(DATAGRAM, DNS, versions, "the resolver's socket".into());
        match versions {
            // The source of an answer over IPv6 has to be an address of an interface, unless the socket says otherwise.
            Versions::Both => s.options.extend([(SOL_IPV6, IPV6_RECVPKTINFO, 1), (SOL_IPV6, IPV6_FREEBIND, 1)]),
            Versions::Four => s.options.push((SOL_IP, IP_PKTINFO, 1)),
        }
        s
    }

    /// Is asked about the namespace's other sockets, such as whose one is. The caller knows that the kernel has such
    /// sockets.
    pub fn inspector() -> CaptureSocket {
        let mut address = vec![0; 12]; // struct sockaddr_nl: whatever number, no groups
        address[..2].copy_from_slice(&AF_NETLINK.to_ne_bytes());
        CaptureSocket {
            family: AF_NETLINK,
            kind: RAW,
            protocol: NETLINK_SOCK_DIAG,
            backlog: 0,
            options: Vec::new(),
            filter: Vec::new(),
            address,
            is: "the socket that is asked about others".into(),
        }
    }

    fn bound(kind: u16, port: u16, versions: Versions, is: String) -> CaptureSocket {
        let (family, options, len) = match versions {
            Versions::Both => (AF_INET6, vec![(SOL_IPV6, IPV6_V6ONLY, 0)], 28),
            Versions::Four => (AF_INET, Vec::new(), 16),
        };
        let mut address = vec![0; len];
        address[..2].copy_from_slice(&family.to_ne_bytes());
        address[2..4].copy_from_slice(&port.to_be_bytes());
        CaptureSocket { family, kind, protocol: 0, backlog: 0, options, filter: Vec::new(), address, is }
    }

    /// Sees the first packet of each TCP connection to an address that is not a loopback one, at a port that has none of
    /// these listeners, and reports the address; a packet of IPv4 begins with its IP header, one of IPv6 with that of TCP.
    pub fn attempts(version: IpVersion, listeners: &[u16]) -> CaptureSocket {
        let (family, option, len) = match version {
            IpVersion::Four => (AF_INET, (SOL_IP, IP_PKTINFO, 1), 16),
            IpVersion::Six => (AF_INET6, (SOL_IPV6, IPV6_RECVPKTINFO, 1), 28),
        };
        let mut address = vec![0; len];
        address[..2].copy_from_slice(&family.to_ne_bytes());
        CaptureSocket {
            family,
            kind: RAW,
            protocol: TCP.into(),
            backlog: 0,
            options: vec![option],
            filter: first_packets(version, listeners),
            address,
            is: "the raw socket of attempts".into(),
        }
    }
}

/// Most ports that a filter of first packets can leave out: its jumps reach no further.
const MOST_LEFT_OUT: usize = 250;
/// How much of a packet is kept: both headers.
const SNAPLEN: u32 = 96;

/// Classic BPF (`bpf(4)`): SYN and no ACK, to another address than loopback and to none of these ports.
fn first_packets(version: IpVersion, left_out: &[u16]) -> Vec<u64> {
    let op = |code: u16, jt: u8, jf: u8, k: u32| {
        u64::from(code) | u64::from(jt) << 16 | u64::from(jf) << 24 | u64::from(k) << 32
    };
    const RET: u16 = 0x06;
    const BYTE: u16 = 0x30;
    const HALF: u16 = 0x28;
    const WORD: u16 = 0x20;
    const BYTE_X: u16 = 0x50;
    const HALF_X: u16 = 0x48;
    const HEADER_LEN: u16 = 0xb1; // X = 4 * (byte & 15)
    const AND: u16 = 0x54;
    const EQUAL: u16 = 0x15;
    const GO: u16 = 0x05;
    const IP_HEADER: u32 = 0xfff0_0000; // SKF_NET_OFF
    const FLAGS: u32 = 0x12; // SYN and ACK
    const SYN: u32 = 0x02;
    let ports = &left_out[..left_out.len().min(MOST_LEFT_OUT)];
    let mut program = match version {
        IpVersion::Four => vec![
            op(BYTE, 0, 0, 16),
            op(EQUAL, 6, 0, 127),
            op(HEADER_LEN, 0, 0, 0),
            op(BYTE_X, 0, 0, 13),
            op(AND, 0, 0, FLAGS),
            op(EQUAL, 0, 2, SYN),
            op(HALF_X, 0, 0, 2),
            op(GO, 0, 0, 1),
            op(RET, 0, 0, 0),
        ],
        IpVersion::Six => vec![
            op(BYTE, 0, 0, 13),
            op(AND, 0, 0, FLAGS),
            op(EQUAL, 0, 10, SYN),
            op(WORD, 0, 0, IP_HEADER + 24),
            op(EQUAL, 0, 6, 0),
            op(WORD, 0, 0, IP_HEADER + 28),
            op(EQUAL, 0, 4, 0),
            op(WORD, 0, 0, IP_HEADER + 32),
            op(EQUAL, 0, 2, 0),
            op(WORD, 0, 0, IP_HEADER + 36),
            op(EQUAL, 2, 0, 1), // ::1
            op(HALF, 0, 0, 2),
            op(GO, 0, 0, 1),
            op(RET, 0, 0, 0),
        ],
    };
    let n = ports.len();
    program.extend(ports.iter().enumerate().map(|(i, &port)| op(EQUAL, (n - i) as u8, 0, port.into())));
    program.push(op(RET, 0, 0, SNAPLEN));
    program.push(op(RET, 0, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter of `first_packets` on a packet, of IPv6 on what follows its header, as the kernel would.
    fn kept(program: &[u64], version: IpVersion, packet: &[u8]) -> u32 {
        let begins = if version == IpVersion::Six { 40 } else { 0 };
        let (mut a, mut x, mut at) = (0u32, 0usize, 0);
        loop {
            let i = program[at];
            let (code, jt, jf, k) = (i as u16, (i >> 16) as u8, (i >> 24) as u8, (i >> 32) as u32);
            let load = |at: usize, len: usize| {
                let at = at.checked_sub(0xfff0_0000).unwrap_or(at + begins);
                packet.get(at..at + len).map(|b| b.iter().fold(0u32, |n, &b| n << 8 | u32::from(b)))
            };
            let jump = |yes: bool| usize::from(if yes { jt } else { jf });
            let loaded = match code {
                0x28 => load(k as usize, 2),
                0x30 => load(k as usize, 1),
                0x20 => load(k as usize, 4),
                0x50 => load(x + k as usize, 1),
                0x48 => load(x + k as usize, 2),
                _ => Some(a),
            };
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            match code {
                0x06 => return k,
                0x54 => a &= k,
                0xb1 => x = 4 * (packet[k as usize] as usize & 15),
                0x15 => at += jump(a == k),
                0x05 => at += k as usize,
                _ => {}
            }
            at += 1;
        }
    }

    fn packet4(to: [u8; 4], port: u16, flags: u8, options: usize) -> Vec<u8> {
        let mut p = vec![0x45 + options as u8, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0, 192, 0, 2, 1];
        p.extend(to);
        p.extend(vec![1; options * 4]);
        p.extend(tcp(port, flags));
        p
    }

    fn packet6(to: [u8; 16], port: u16, flags: u8) -> Vec<u8> {
        let mut p = vec![0x60, 0, 0, 0, 0, 20, TCP, 64];
        p.extend([0x20; 16]);
        p.extend(to);
        p.extend(tcp(port, flags));
        p
    }

    fn tcp(port: u16, flags: u8) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        vec![0x30, 0x39, high, low, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]
    }

    /// A client may ask a server of its own choice, of either version; without this an answer over IPv6 is EINVAL.
    #[test]
    fn the_resolver_answers_over_ipv6_from_the_address_asked() {
        assert!(CaptureSocket::resolver(Versions::Both).options.contains(&(SOL_IPV6, IPV6_FREEBIND, 1)));
        assert!(CaptureSocket::resolver(Versions::Four).options.iter().all(|(level, ..)| *level == SOL_IP));
    }

    #[test]
    fn the_filter_keeps_first_packets_to_other_ports_alone() {
        let listeners: Vec<u16> = (0..128).map(|i| 443 + i).collect();
        for ports in [&[][..], &[443], &listeners] {
            let filters = [IpVersion::Four, IpVersion::Six].map(|version| (version, first_packets(version, ports)));
            let kept = |packet: &[u8]| {
                let (version, filter) = &filters[usize::from(packet[0] >> 4 == 6)];
                kept(filter, *version, packet) > 0
            };
            let out = [93, 184, 216, 34];
            let out6 = [0x20, 1, 0x48, 0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
            let loopback6 = std::net::Ipv6Addr::LOCALHOST.octets();
            for (what, is_kept, packet) in [
                ("SYN", true, packet4(out, 22, 2, 0)),
                ("SYN with ECN", true, packet4(out, 22, 0xc2, 0)),
                ("SYN behind options", true, packet4(out, 22, 2, 10)),
                ("answer", false, packet4(out, 22, 0x12, 0)),
                ("data", false, packet4(out, 22, 0x18, 0)),
                ("reset", false, packet4(out, 22, 4, 0)),
                ("to loopback", false, packet4([127, 9, 9, 9], 22, 2, 0)),
                ("IPv6 SYN", true, packet6(out6, 22, 2)),
                ("IPv6 answer", false, packet6(out6, 22, 0x12)),
                ("IPv6 data", false, packet6(out6, 22, 0x18)),
                ("to IPv6 loopback", false, packet6(loopback6, 22, 2)),
                ("cut", false, packet4(out, 22, 2, 0)[..30].to_vec()),
                ("cut in IPv6", false, packet6(out6, 22, 2)[..50].to_vec()),
            ] {
                assert_eq!(kept(&packet), is_kept, "{what}, {} listeners", ports.len());
            }
            for &port in [ports.first(), ports.last()].into_iter().flatten() {
                assert!(!kept(&packet4(out, port, 2, 0)) && !kept(&packet6(out6, port, 2)));
            }
            assert!(kept(&packet6(out6, 442, 2)));
        }
    }
}
