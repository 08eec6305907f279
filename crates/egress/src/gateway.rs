//! The gateway of this process: its threads, and the sandboxes that it serves.
//!
//! There is at most one, started by the first sandbox that needs it, so that callers without one pay nothing. A child
//! that was forked without exec has the memory and not the threads: it starts its own, and never touches its parent's.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};

use crate::event::Sink;
use crate::layout::Layout;
use crate::rules::Rules;

/// Most threads, however many processors there are: what they do is waiting and splicing.
const MOST_WORKERS: usize = 4;

/// What a sandbox may reach and whom to tell.
#[derive(Clone)]
pub struct Job {
    /// The policy's rules.
    pub rules: Arc<Rules>,
    /// The sockets of its namespace, in the order in which their descriptors come.
    pub layout: Layout,
    /// Where its events go. Called from the gateway's threads, one event at a time; it must not block, and must not end
    /// the sandbox.
    pub sink: Sink,
    /// Process id of the sandbox's first process, as this process sees it: whose descendants are asked which of them
    /// made a refused connection. Without it events have no process.
    pub init: Option<u32>,
}

/// What a sandbox sent and received in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Connections that went out.
    pub connections: u64,
    /// Attempts that were refused.
    pub refused: u64,
    /// Bytes from the sandbox.
    pub bytes_up: u64,
    /// Bytes to the sandbox.
    pub bytes_down: u64,
}

/// A gateway: a pool of threads and what its sandboxes share.
pub struct Gateway {
    runtime: Runtime,
    owner: u32,
}

/// Its value in a forked child is the parent's, whose threads do not exist there: to drop it would wait for them.
static GATEWAY: Mutex<Option<ManuallyDrop<Arc<Gateway>>>> = Mutex::new(None);

impl Gateway {
    /// This process's gateway, started when it is the first call.
    ///
    /// # Errors
    /// No thread or no epoll descriptor is to be had.
    pub fn shared() -> io::Result<Arc<Gateway>> {
        if let Some(gateway) = Gateway::running() {
            return Ok(gateway);
        }
        // Not under the lock: a child forked meanwhile would find it held for ever.
        let new = Arc::new(Gateway::start()?);
        let mut shared = GATEWAY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = shared.as_ref().filter(|g| g.owner == new.owner) {
            return Ok(Arc::clone(earlier));
        }
        *shared = Some(ManuallyDrop::new(Arc::clone(&new)));
        Ok(new)
    }

    fn running() -> Option<Arc<Gateway>> {
        let shared = GATEWAY.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_ref().filter(|g| g.owner == std::process::id()).map(|g| Arc::clone(g))
    }

    fn start() -> io::Result<Gateway> {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_WORKERS);
        let runtime = Builder::new_multi_thread().worker_threads(workers).thread_name("egress").enable_all().build()?;
        Ok(Gateway { runtime, owner: std::process::id() })
    }

    /// Serves a sandbox: receives the descriptors of its sockets from `letters` (SEQPACKET, SCM_RIGHTS, any number in
    /// each letter) in the order of the job's layout, and everything that connects to them. Returns at once.
    pub fn attach(&self, letters: OwnedFd, job: Job) -> Attached {
        let task = self.runtime.spawn(async move {
            drop((letters, job));
        });
        Attached { task: Some(task), owner: self.owner }
    }
}

/// A sandbox that is served. Dropping it ends its connections.
pub struct Attached {
    task: Option<tokio::task::JoinHandle<()>>,
    owner: u32,
}

impl Attached {
    /// Closes everything at once, and returns when no event can follow any more.
    pub fn end(mut self) -> Traffic {
        self.close();
        Traffic::default()
    }

    fn close(&mut self) {
        if let Some(task) = self.task.take().filter(|_| self.owner == std::process::id()) {
            task.abort();
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.close();
    }
}
