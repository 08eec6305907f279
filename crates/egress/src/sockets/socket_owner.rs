//! Finds the process of a sandbox that made a refused connection: the inode of its socket by sock_diag(7), in the
//! sandbox's network namespace, and then that inode among the descriptors of the sandbox's processes.
//!
//! Best effort and bounded, because a program can be refused often: a number of lookups a second, and of processes and
//! time in each. Never decides anything.

use std::fs::{read_dir, read_link, read_to_string};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

use crate::limits::TokenBucket;

/// Lookups each second, and at once.
const LOOKUPS: u64 = 50;
/// Most processes of a sandbox that are searched.
const PROCESSES: usize = 256;
/// Time limit of a lookup, for which a refusal waits. On an idle host it takes a tenth of that.
const LONGEST: Duration = Duration::from_millis(2);

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h, the type of the request and of the kernel's answer.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
/// Length of the request: a netlink header and `struct inet_diag_req_v2`.
const ASKED: usize = 16 + 56;
/// Offset of the inode of `struct inet_diag_msg`, with the netlink header.
const INODE: usize = 16 + 68;

/// A sock_diag(7) socket, which queries the sockets of the namespace in which it was created.
#[derive(Debug)]
pub struct Inspector {
    socket: Mutex<(OwnedFd, u32)>,
    lookups: TokenBucket,
}

/// Whether this kernel has sock_diag(7) sockets.
pub fn can_inspect() -> bool {
    socket().is_ok()
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(SOCK_DIAG))?)
}

impl Inspector {
    /// Queries by this socket.
    pub fn new(socket: OwnedFd) -> Inspector {
        Inspector { socket: Mutex::new((socket, 0)), lookups: TokenBucket::new(LOOKUPS, LOOKUPS) }
    }

    /// The process that made a connection from `peer` to `destination`: `init` or one of its descendants, by its id in
    /// this process's PID namespace. The connection must not have been reset yet.
    pub fn process(&self, init: u32, peer: SocketAddr, destination: SocketAddr) -> Option<u32> {
        let begun = Instant::now();
        self.lookups.take(1, begun).ok()?;
        let inode = self.inode(peer, destination).ok()??;
        holder(init, &format!("socket:[{inode}]"), begun)
    }

    fn inode(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.1 = socket.1.wrapping_add(1);
        send(&socket.0, &question(local, remote, socket.1), SendFlags::DONTWAIT)?;
        let mut answer = [0u8; 512];
        loop {
            let (length, _) = recv(&socket.0, &mut answer[..], RecvFlags::DONTWAIT)?;
            let answer = &answer[..length.min(answer.len())];
            let word = |at: usize| answer.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_ne_bytes);
            // The answer to an earlier request, which was given up.
            if word(8) != Some(socket.1) {
                continue;
            }
            let is = answer.get(4..6).is_some_and(|kind| kind == BY_FAMILY.to_ne_bytes());
            return Ok(word(INODE).filter(|&inode| is && inode != 0));
        }
    }
}

/// The request for one TCP socket by its two addresses.
fn question(local: SocketAddr, remote: SocketAddr, number: u32) -> [u8; ASKED] {
    let mut message = [0u8; ASKED];
    let mut put = |at: usize, bytes: &[u8]| message[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(ASKED as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    put(8, &number.to_ne_bytes());
    let (local_ip, remote_ip) = (local.ip().to_canonical(), remote.ip().to_canonical());
    let family = if local_ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    put(16, &[family.as_raw() as u8, TCP]);
    put(20, &u32::MAX.to_ne_bytes()); // in any state
    put(24, &local.port().to_be_bytes());
    put(26, &remote.port().to_be_bytes());
    for (at, ip) in [(28, local_ip), (44, remote_ip)] {
        match ip {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    put(64, &[0xff; 8]); // no cookie
    message
}

/// The process among `init` and its descendants that has a descriptor with this link in /proc. The youngest are
/// searched first, since they connect more often than the parents that wait for them.
fn holder(init: u32, link: &str, begun: Instant) -> Option<u32> {
    let mut processes = vec![init];
    let mut at = 0;
    while let Some(process) = processes.get(at).filter(|_| begun.elapsed() < LONGEST / 2) {
        at += 1;
        for task in read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten() {
            // A single process may have thousands of threads.
            if begun.elapsed() >= LONGEST / 2 {
                break;
            }
            let children = read_to_string(task.path().join("children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        processes.truncate(PROCESSES);
    }
    for process in processes.into_iter().rev() {
        for fd in read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            if read_link(fd.path()).is_ok_and(|to| to.as_os_str() == link) {
                return Some(process);
            }
            if begun.elapsed() > LONGEST {
                return None;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_process_of_a_connection_is_found_and_no_other() {
        let Ok(socket) = socket() else {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "no NETLINK_SOCK_DIAG");
            eprintln!("skipped: no NETLINK_SOCK_DIAG");
            return;
        };
        let inspector = Inspector::new(socket);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        let (me, destination) = (std::process::id(), listener.local_addr().unwrap());
        // On a busy host the time may run out: then no process is found, and never a wrong one.
        let mut found = None;
        for _ in 0..20 {
            found = found.or_else(|| inspector.process(me, peer, destination));
        }
        assert_eq!(found, Some(me));
        assert_eq!(inspector.process(me, SocketAddr::new(peer.ip(), 1), destination), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(inspector.process(child.id(), peer, destination), None);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(stream);
    }

    #[test]
    fn lookup_time_is_bounded_for_a_process_with_many_threads() {
        let threads: Vec<_> = (0..600)
            .map(|_| {
                let (end, ended) = channel::<()>();
                std::thread::Builder::new().stack_size(64 * 1024).spawn(move || ended.recv().is_ok()).unwrap();
                end
            })
            .collect();
        // The minimum of several, because this thread may have to wait for a processor.
        let took = (0..20).map(|_| {
            let begun = Instant::now();
            assert_eq!(holder(std::process::id(), "socket:[0]", begun), None);
            begun.elapsed()
        });
        let least = took.min().unwrap();
        assert!(least < LONGEST * 4, "{least:?}");
        drop(threads);
    }
}
