//! Empty network namespaces, made once and used again, one sandbox at a time.
//!
//! Making a network namespace costs more than the rest of a sandbox's namespaces together, and taking it apart is work
//! that the kernel does later, on everybody's time. An empty one with loopback down can be used again: it belongs to the
//! owner's user namespace, in which the sandbox has no capability at all, so no address, route, rule or interface can have
//! been changed, and its sockets went with its processes. Two sandboxes never hold one at the same time.
//!
//! Only a privileged owner can enter one (`setns(2)` wants CAP_SYS_ADMIN); others make a new one for each run.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// Idle namespaces kept; more are given back to the kernel.
const MOST: usize = 64;

/// Namespaces that no sandbox holds at the moment.
#[derive(Debug, Clone, Default)]
pub struct NetnsPool {
    idle: Arc<Mutex<Vec<OwnedFd>>>,
}

/// A namespace for one sandbox. Dropping it makes it free for the next, so it is dropped after the last process is reaped.
#[derive(Debug)]
pub struct Lease {
    namespace: Option<OwnedFd>,
    pool: NetnsPool,
}

fn current() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/thread-self/ns/net")?.into())
}

impl NetnsPool {
    /// An idle namespace, or a new one.
    ///
    /// # Errors
    /// This process may not make one.
    pub fn lease(&self) -> io::Result<Lease> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let namespace = match idle {
            Some(fd) => fd,
            None => {
                let home = Home { fd: current()? };
                // SAFETY: a thread may leave its network namespace at any time; nothing in memory depends on it, and
                // `home` brings it back.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
                let made = current();
                drop(home);
                made?
            }
        };
        Ok(Lease { namespace: Some(namespace), pool: self.clone() })
    }
}

impl Lease {
    /// Moves the calling thread into it until the guard is dropped.
    ///
    /// # Errors
    /// setns(2).
    pub fn enter(&self) -> io::Result<Home> {
        let home = Home { fd: current()? };
        if let Some(n) = &self.namespace {
            move_into_link_name_space(n.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        Ok(home)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = self.namespace.take()
            && idle.len() < MOST
        {
            idle.push(n);
        }
    }
}

/// The thread's own network namespace, to which it returns.
#[derive(Debug)]
pub struct Home {
    fd: OwnedFd,
}

impl Drop for Home {
    fn drop(&mut self) {
        if move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network)).is_err() {
            // The caller's thread would go on without its network and not know it.
            std::process::abort();
        }
    }
}
