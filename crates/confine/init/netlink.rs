//! Netlink messages that the owner has prepared: sends them at once and checks the answer to each.
//!
//! Compiled into init and, to ask whether this kernel can do it, into the library. Never looks at their content.

use crate::sys;
use crate::uapi::*;

/// `struct nlmsghdr` and the errno that follows it in an answer.
const HEAD: usize = 16;

/// Sends messages and reads the answers to `count` of them. All of them ask for an answer, and are numbered from `first`
/// on. The failure is the first one that the kernel reports: number of the message, and errno.
pub(crate) fn send(protocol: u32, bytes: &[u8], first: u32, count: u32) -> Result<(), (u32, i32)> {
    let failed = |e| (first, e);
    let socket =
        sys::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol as i32).map_err(failed)? as i32;
    let sent = sys::write(socket, bytes.as_ptr(), bytes.len()).map_err(failed);
    let done = sent.and_then(|_| answers(socket, first, count));
    sys::close(socket).map_err(failed)?;
    done
}

/// The kernel has answered all of them by the time that sending returns.
fn answers(socket: i32, first: u32, count: u32) -> Result<(), (u32, i32)> {
    let mut seen = 0;
    while seen < count {
        // A refused message comes back whole behind its answer: what does not fit is cut.
        let mut answer = [0u8; HEAD + 4];
        let n = match sys::read(socket, answer.as_mut_ptr(), answer.len()) {
            Ok(n) => n,
            Err(errno::EINTR) => continue,
            Err(e) => return Err((first + seen, e)), // EAGAIN: one was not answered
        };
        let word = |at: usize| u32::from_ne_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]]);
        if n < answer.len() || word(4) as u16 != NLMSG_ERROR {
            return Err((first + seen, errno::EINVAL));
        }
        let refused = word(HEAD) as i32;
        if refused != 0 {
            return Err((word(8), -refused));
        }
        seen += 1;
    }
    Ok(())
}
