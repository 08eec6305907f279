//! What the sockets of a sandbox's network namespace buffer, for the memory limit: cgroups of version 1 count TCP and UDP apart
//! from all other memory, and none counts netlink or what waits in connections that were not accepted yet.
//!
//! Some sockets are in no list of the kernel's: a connection that was reset before it was accepted, or a datagram socket that
//! was disconnected, keeps what it received. How many there are is known (`sockets: used` in /proc/PID/net/sockstat, less
//! those of /proc/PID/net/protocols), and so is what all TCP and UDP sockets of the host hold. What the lists do not explain
//! counts for the sandbox that has such sockets, up to the most that so many can hold.
//!
//! Owns the questions to the kernel (sock_diag(7), /proc/PID/net) and the sum. It ends nothing: the supervisor does.
//! Everything read is the kernel's; no byte of it is the program's.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::net::{RecvFlags, SendFlags, recv, send};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`
const DUMP: u16 = 0x301;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// `struct nlmsghdr`, `struct inet_diag_msg`
const HEAD: usize = 16;
const MESSAGE: usize = 72;
/// Where `idiag_inode` stands in the latter: 0 of a socket that no process has.
const INODE: usize = 68;
/// AF_INET and AF_INET6, each with IPPROTO_TCP and IPPROTO_UDP.
const KINDS: [(u8, u8); 4] = [(2, 6), (10, 6), (2, 17), (10, 17)];
/// What the kernel takes for a TCP socket without data, bytes (`struct tcp6_sock`, rounded up). A connection that was not
/// accepted is made while a packet is received, so that no cgroup is charged for it.
const EMPTY: u64 = 3 << 10;
/// The same for a connection that has no socket any more or none yet: in TIME_WAIT, or asked for. The kernel says nothing of
/// its buffers, for it has none (`struct tcp_timewait_sock`, `struct tcp_request_sock`, rounded up).
const NO_SOCKET: u64 = 512;

/// Asks for one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// A `NETLINK_SOCK_DIAG` socket of the namespace, where anything can be reached in it.
    diag: Option<OwnedFd>,
    /// How many sockets in no list the last look saw. One that is about to be connected is in none for a moment.
    unlisted: u64,
    /// Whether there were more of them than the look before saw: the next look should come soon.
    pub growing: bool,
    /// Bytes that the last look found.
    pub found: u64,
    /// Nothing is asked before.
    pub rests_until: Option<Instant>,
}

impl Sockets {
    /// From here on TCP and UDP are counted, too.
    pub(crate) fn ask(&mut self, diag: OwnedFd) {
        self.diag = Some(diag);
    }

    /// Whether TCP and UDP are counted.
    pub(crate) fn asks(&self) -> bool {
        self.diag.is_some()
    }

    /// Bytes that the sockets of the sandbox's network namespace hold; those of TCP and UDP only where the whole host's hold
    /// more than `little`. Netlink sockets, and those in no list, are counted by a process `pid` in that namespace, where one
    /// is known. With a `gateway` one of them is not a program's.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub(crate) fn held(&mut self, pid: Option<i32>, little: u64, gateway: bool) -> io::Result<u64> {
        let of = |file: &str| pid.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/net/{file}"))).transpose();
        let protocols = of("protocols")?;
        let mut bytes = 0;
        // The list goes through the netlink sockets of all namespaces, and each namespace has some of the kernel's own.
        // The one to ask with is a netlink socket of this namespace as well, and a gateway has one there.
        let own = u64::from(self.diag.is_some()) + u64::from(gateway);
        if let Some(protocols) = &protocols
            && opened(protocols).is_none_or(|opened| opened > own)
        {
            bytes = netlink(&of("netlink")?.unwrap_or_default());
        }
        // An answer takes the kernel milliseconds, since it looks through its table of all connections; what the whole host
        // holds bounds what this one can.
        let Some(diag) = self.diag.as_ref() else { return Ok(bytes) };
        let host = of_the_host();
        if host <= little {
            self.growing = false;
            return Ok(bytes);
        }
        let mut listed: u64 = 0;
        for (family, protocol) in KINDS {
            listed = listed.saturating_add(dump(diag, family, protocol)?);
        }
        let counts = of("sockstat")?.zip(protocols);
        let now = counts.map_or(Some(0), |(sockstat, protocols)| unlisted(&sockstat, &protocols));
        let now = now.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let before = std::mem::replace(&mut self.unlisted, now);
        self.growing = now > before;
        let lasting = now.min(before);
        if lasting > 0 {
            let elsewhere = of_this_process().saturating_add(listed);
            listed = listed.saturating_add(assumed(lasting, host.saturating_sub(elsewhere), most_of_one()));
        }
        Ok(bytes.saturating_add(listed))
    }
}

/// What `count` sockets in no list can hold of `unexplained` bytes, each at most `most` beside itself.
fn assumed(count: u64, unexplained: u64, most: u64) -> u64 {
    count.saturating_mul(EMPTY).max(unexplained.min(count.saturating_mul(most.saturating_add(EMPTY))))
}

/// How many sockets of a network namespace are in no list: all, by its sockstat, less those that its protocols list.
/// `None` when the kernel's words are not understood.
fn unlisted(sockstat: &str, protocols: &str) -> Option<u64> {
    let used: u64 = sockstat.lines().find_map(|line| line.strip_prefix("sockets: used "))?.trim().parse().ok()?;
    let rows = protocols.lines().skip(1).filter(|line| !line.trim().is_empty());
    let listed: Option<u64> = rows.map(|row| row.split_whitespace().nth(2)?.parse::<u64>().ok()).sum();
    Some(used.saturating_sub(listed?))
}

/// The most that one socket in no list holds, bytes: what it received, for its way out is closed. A buffer holds twice what
/// is asked for.
fn most_of_one() -> u64 {
    let last =
        |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.split_whitespace().last()?.parse().ok() };
    let of = |name: &str| last(&format!("/proc/sys/net/{name}")).unwrap_or(16 << 20);
    of("core/rmem_max").saturating_mul(2).max(of("ipv4/tcp_rmem"))
}

/// What the sockets of this process's own network namespace hold, bytes: those of the host's programs, as a rule, and of the
/// gateway. What the kernel does not say is none.
fn of_this_process() -> u64 {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink, socket_with};
    let flags = SocketFlags::CLOEXEC;
    let Ok(diag) = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)) else {
        return 0;
    };
    KINDS.iter().map(|&(family, protocol)| dump(&diag, family, protocol).unwrap_or(0)).fold(0, u64::saturating_add)
}

/// What each processor may have given to sockets and not yet counted (`SK_MEMORY_PCPU_RESERVE`, for each of two protocols).
const UNCOUNTED: u64 = 2 << 20;

/// Most that the TCP and UDP sockets of all network namespaces of this host hold, bytes. What cannot be read counts as all.
fn of_the_host() -> u64 {
    let Ok(table) = std::fs::read_to_string("/proc/self/net/sockstat") else { return u64::MAX };
    let bytes = pages(&table).zip(allocated(&table)).map(|(pages, sockets)| {
        pages.saturating_mul(rustix::param::page_size() as u64).saturating_add(sockets.saturating_mul(EMPTY))
    });
    let uncounted = processors().map(|processors| processors.saturating_mul(UNCOUNTED));
    bytes.zip(uncounted).map_or(u64::MAX, |(bytes, uncounted)| bytes.saturating_add(uncounted))
}

/// How many processors this host can have, whichever of them this process may use.
fn processors() -> Option<u64> {
    static POSSIBLE: OnceLock<Option<u64>> = OnceLock::new();
    *POSSIBLE.get_or_init(|| {
        let list = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        let last = list.trim().rsplit([',', '-']).next()?;
        last.parse::<u64>().ok()?.checked_add(1)
    })
}

/// The pages of TCP and UDP in /proc/net/sockstat: `TCP: inuse 5 orphan 0 tw 0 alloc 6 mem 12`.
fn pages(table: &str) -> Option<u64> {
    let of = |protocol: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(protocol))?;
        line.split_once(" mem ")?.1.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(of("TCP:")?.saturating_add(of("UDP:")?))
}

/// How many TCP sockets there are on the host, by the same.
fn allocated(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    line.split_once(" alloc ")?.1.split_whitespace().next()?.parse().ok()
}

/// How many netlink sockets programs have, by /proc/net/protocols.
fn opened(table: &str) -> Option<u64> {
    let row = table.lines().find_map(|line| line.strip_prefix("NETLINK "))?;
    row.split_whitespace().nth(1)?.parse().ok()
}

/// The sum of the queues in /proc/net/netlink.
fn netlink(table: &str) -> u64 {
    let queues = |line: &str| {
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let mut words = line.split_whitespace().skip(4);
        number(words.next()) + number(words.next())
    };
    table.lines().skip(1).map(queues).sum()
}

/// The sum over all sockets of a family and a protocol.
fn dump(diag: &OwnedFd, family: u8, protocol: u8) -> io::Result<u64> {
    let mut request = [0u8; 72];
    request[..4].copy_from_slice(&72u32.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    // What is left of an answer that failed has another number.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    request[8..12].copy_from_slice(&asked.to_ne_bytes());
    request[HEAD..HEAD + 3].copy_from_slice(&[family, protocol, 1 << (INET_DIAG_SKMEMINFO - 1)]);
    request[20..24].copy_from_slice(&u32::MAX.to_ne_bytes()); // every state
    send(diag, &request, SendFlags::empty())?;
    let mut sum: u64 = 0;
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        // A dump is there as soon as it is asked for: the kernel makes it in this very call.
        let (length, _) = recv(diag, &mut buffer[..], RecvFlags::DONTWAIT)?;
        match answer(&buffer[..length.min(buffer.len())], asked, &mut sum) {
            Ok(true) => return Ok(sum),
            Ok(false) => {}
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Adds up one datagram of answers to the request of this number. True at the end; the errno when the kernel refuses.
fn answer(mut bytes: &[u8], asked: u32, sum: &mut u64) -> Result<bool, i32> {
    const EBADMSG: i32 = 74;
    while let (Some(length), Some(kind)) = (u32_at(bytes, 0), u16_at(bytes, 4)) {
        let length = length as usize;
        let message = bytes.get(..length).filter(|_| length >= HEAD).ok_or(EBADMSG)?;
        match kind {
            _ if u32_at(message, 8) != Some(asked) => {}
            NLMSG_DONE => {
                // A dump that failed says so with its end.
                let errno = u32_at(message, HEAD).map_or(0, |value| value as i32);
                return if errno < 0 { Err(-errno) } else { Ok(true) };
            }
            NLMSG_ERROR => return Err(u32_at(message, HEAD).map_or(EBADMSG, |value| -(value as i32))),
            _ => {
                let unowned = u32_at(message, HEAD + INODE) == Some(0);
                *sum = sum.saturating_add(match of_one(message.get(HEAD + MESSAGE..).unwrap_or_default()) {
                    Some(buffers) => buffers.saturating_add(if unowned { EMPTY } else { 0 }),
                    None => NO_SOCKET,
                });
            }
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// What one socket holds, from the attributes of its message: `SK_MEMINFO_*` in sock_diag(7). `None` of what is no socket.
fn of_one(mut attributes: &[u8]) -> Option<u64> {
    while let (Some(length), Some(kind)) = (u16_at(attributes, 0), u16_at(attributes, 2)) {
        let length = usize::from(length);
        let value = attributes.get(4..length)?;
        if kind == INET_DIAG_SKMEMINFO {
            let figure = |i: usize| u64::from(u32_at(value, i * 4).unwrap_or(0));
            let (received, sent, queued, options, backlog) = (figure(0), figure(2), figure(5), figure(6), figure(7));
            // The kernel's own figure has a sign, and may be below zero for a moment.
            let ahead = u32_at(value, 4 * 4).map_or(0, |ahead| u64::try_from(ahead.cast_signed()).unwrap_or(0));
            return Some(received + sent.max(queued) + ahead + options + backlog);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_queues_are_summed_over_all_sockets() {
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                     00000000a80bde7f 0   0          00000000 0        0        0     2        0        4\n\
                     00000000052ae8aa 0   77         00000000 8388608  512      0     2        9        1574\n";
        assert_eq!(netlink(table), 8_389_120);
        assert_eq!(netlink(""), 0);
    }

    #[test]
    fn netlink_sockets_of_programs_are_seen() {
        let table = "protocol  size sockets  memory press\nPACKET    1472      1      -1   NI\nNETLINK   1096      3      -1   NI\n";
        assert_eq!((opened(table), opened("protocol\n")), (Some(3), None));
        let of_this = || opened(&std::fs::read_to_string("/proc/self/net/protocols").unwrap()).unwrap();
        let before = of_this();
        let family = rustix::net::AddressFamily::NETLINK;
        let _socket = rustix::net::socket(family, rustix::net::SocketType::RAW, None).unwrap();
        // Others in this namespace may open and close theirs meanwhile.
        assert!((0..100).any(|_| of_this() > before), "{before}");
    }

    #[test]
    fn the_hosts_pages_are_read_and_what_is_missing_counts_as_unknown() {
        let table =
            "sockets: used 40\nTCP: inuse 7 orphan 0 tw 3 alloc 9 mem 11\nUDP: inuse 2 mem 4\nUDPLITE: inuse 0\n";
        assert_eq!(pages(table), Some(15));
        assert_eq!(pages("TCP: inuse 7 orphan 0 tw 3 alloc 9 mem 11\n"), None);
        assert_eq!(pages(""), None);
    }

    #[test]
    fn sockets_in_no_list_are_those_that_no_protocol_has() {
        let protocols = "protocol  size sockets  memory press\nTCP  2000  1  129 no\nNETLINK  1096  3  -1 NI\n";
        assert_eq!(unlisted("sockets: used 54\nTCP: inuse 1\n", protocols), Some(50));
        assert_eq!(unlisted("sockets: used 2\n", protocols), Some(0), "one was closed between the two");
        assert_eq!((unlisted("", protocols), unlisted("sockets: used 3\n", "head\nTCP 1 x\n")), (None, None));
    }

    #[test]
    fn what_lists_do_not_explain_is_bounded_by_what_so_many_can_hold() {
        assert_eq!(assumed(10, 1000 << 20, 1 << 20), 10 * ((1 << 20) + EMPTY));
        assert_eq!(assumed(10, 5 << 20, 1 << 20), 5 << 20);
        assert_eq!(assumed(1000, 0, 1 << 20), 1000 * EMPTY, "empty ones are memory as well");
    }

    #[test]
    fn an_answer_is_summed_and_its_end_is_seen() {
        let mut message = vec![0u8; HEAD + MESSAGE];
        message[HEAD + INODE] = 1; // a process has it
        message.extend_from_slice(&40u16.to_ne_bytes());
        message.extend_from_slice(&INET_DIAG_SKMEMINFO.to_ne_bytes());
        for figure in [1000u32, 9, 20, 9, 4, 300, 5000, 60000, 7] {
            message.extend_from_slice(&figure.to_ne_bytes());
        }
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        let mut done = vec![20, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut sum = 0;
        assert_eq!(answer(&[&message[..], &done].concat(), 0, &mut sum), Ok(true));
        assert_eq!(sum, 66_304);
        done[HEAD..].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(answer(&done, 0, &mut sum), Err(2), "no module for it");
        assert_eq!(answer(&message, 0, &mut sum), Ok(false), "more is to come");
        assert_eq!(
            (answer(&[&message[..], &done].concat(), 1, &mut sum), sum),
            (Ok(false), 132_608),
            "another request's"
        );
        message[HEAD + INODE] = 0;
        assert_eq!((answer(&message, 0, &mut sum), sum), (Ok(false), 132_608 + 66_304 + EMPTY), "no process has it");
        message.truncate(HEAD + MESSAGE);
        message[..4].copy_from_slice(&((HEAD + MESSAGE) as u32).to_ne_bytes());
        let before = std::mem::take(&mut sum);
        assert_eq!((answer(&message, 0, &mut sum), sum), (Ok(false), NO_SOCKET), "in TIME_WAIT; {before}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_sum_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let mut sum = 0;
            let _end = answer(&bytes, 0, &mut sum);
            // Five figures of 32 bits for each message, which has its head at the least.
            proptest::prop_assert!(sum <= bytes.len() as u64 / 16 * 7 * u64::from(u32::MAX));
        }
    }

    #[test]
    fn sockets_of_this_namespace_are_counted() {
        use std::io::Write;
        let diag = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            rustix::net::SocketType::RAW,
            rustix::net::SocketFlags::CLOEXEC,
            Some(rustix::net::netlink::SOCK_DIAG),
        );
        let (Ok(diag), Ok(server)) = (diag, std::net::TcpListener::bind("127.0.0.1:0")) else {
            let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
            assert!(!must, "no sock_diag or no loopback here");
            eprintln!("skipped: no sock_diag or no loopback here");
            return;
        };
        let mut sockets = Sockets::default();
        sockets.ask(diag);
        let me = std::process::id() as i32;
        let before = sockets.held(Some(me), 0, false).unwrap();
        // Nobody accepts it, so that no cgroup counts what it holds.
        let mut client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(n) = client.write(&[7; 4096]) {
            sent += n as u64;
        }
        let after = sockets.held(Some(me), 0, false).unwrap();
        assert!(after >= before + sent / 2, "{before} {after} {sent}");
    }
}
