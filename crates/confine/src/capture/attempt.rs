//! Whether this kernel accepts a capture's messages: tried in a namespace of its own, which ends with the attempt.

use super::{Capture, NetlinkMessages};
use crate::{clone, netlink, sys};

/// Tries it in a namespace of its own, which ends with the call: whether this kernel can do all that the messages say.
/// Sockets are not tried.
///
/// # Errors
/// What cannot be done, and what the kernel said.
pub fn attempt(capture: &Capture) -> Result<(), (String, std::io::Error)> {
    let mut stack = vec![0u128; 1024];
    let mut tried = Tried { messages: capture.messages.iter().map(NetlinkMessages::raw).collect(), failed: None };
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_NEWUSER | libc::CLONE_NEWNET) as u64;
    let request = clone::CloneRequest { flags, stack: &mut stack, cgroup: None };
    let process = |e| ("make a network namespace".to_owned(), e);
    // SAFETY: `try_messages` does not return, and what its argument leads to lives until it has ended, which is when
    // `start` returns.
    let (_, pidfd) = unsafe { clone::start(request, try_messages, &raw mut tried as usize) }.map_err(process)?;
    crate::process::wait(std::os::fd::AsFd::as_fd(&pidfd)).map_err(process)?;
    // SAFETY: a local that the other process wrote while it shared our memory; read it as memory.
    match unsafe { (&raw const tried.failed).read_volatile() } {
        Some((index, errno)) => Err((capture.item(index as usize), std::io::Error::from_raw_os_error(errno))),
        None => Ok(()),
    }
}

struct Tried {
    /// Protocol, number of the first, count, and bytes.
    messages: Vec<(u32, u32, u32, *const u8, usize)>,
    failed: Option<(u32, i32)>,
}

impl NetlinkMessages {
    fn raw(&self) -> (u32, u32, u32, *const u8, usize) {
        (self.protocol, self.first, self.does.len() as u32, self.bytes.as_ptr(), self.bytes.len())
    }
}

/// The other process: shares our memory, so it only calls the kernel.
extern "C" fn try_messages(tried: usize) -> ! {
    // SAFETY: the address of `attempt`'s local, which no other code touches meanwhile.
    let tried = unsafe { &mut *(tried as *mut Tried) };
    for &(protocol, first, count, bytes, len) in &tried.messages {
        // SAFETY: the bytes are the capture's, which outlives this process.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
        if let Err(failed) = netlink::send(protocol, bytes, first, count) {
            tried.failed = Some(failed);
            break;
        }
    }
    sys::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::routes_and_rules::NETLINK_ROUTE;
    use crate::capture::{AF_INET, Versions};

    #[test]
    fn this_kernel_takes_every_message() {
        if let Some((why, _)) = crate::host::user_namespaces_refused(crate::host::identity().privileged) {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "no user namespaces: {why}");
            eprintln!("skipped: {why}");
            return;
        }
        for versions in [Versions::Both, Versions::Four] {
            let mut c = Capture::new(versions);
            attempt(&c).unwrap();
            c.redirect(&[(1, 52), (54, 65535)], 60000, versions);
            attempt(&c).unwrap();
        }
        // What the kernel refuses is reported by its own name.
        let mut twice = Capture::new(Versions::Four);
        let mut again = NetlinkMessages::new(NETLINK_ROUTE, twice.messages[0].does.len() as u32);
        again.version(AF_INET);
        twice.messages.push(again);
        let (what, e) = attempt(&twice).unwrap_err();
        assert_eq!((what.as_str(), e.raw_os_error()), ("make every address of IPv4 local", Some(libc::EEXIST)));
    }
}
