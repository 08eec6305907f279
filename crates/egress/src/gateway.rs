//! The gateway of this process: its threads, and the sandboxes that it serves.
//!
//! There is at most one, started by the first sandbox that needs it, so that callers without one pay nothing. A forked
//! child without exec has the memory and not the threads: it starts a gateway of its own, and never touches its
//! parent's.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cofferdam_confine::signals;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};

use crate::connect::dialer::LookupSlots;
use crate::connect::relay::BufferPool;
use crate::limits::DescriptorBudget;
use crate::sandbox::EgressSandbox;
use crate::serve;
pub use crate::settings::{EgressJob, Settings};
pub use crate::traffic::Traffic;

/// Most threads, however many processors there are: they wait and copy.
const MOST_WORKERS: usize = 4;
/// Most large buffers, 256 KiB each: as many connections copy at full speed, others more slowly.
const BUFFERS: usize = 32;
/// Most names that are resolved at once. The descriptors of a lookup are not counted: several, and more if a name
/// server does not answer.
const LOOKUPS: usize = 24;
/// Descriptors that are reserved for lookups and for the rest of the process.
const KEPT_DESCRIPTORS: usize = 128 + 6 * LOOKUPS;
/// Descriptors for connections, however few there are: then accept(2) fails, which is reported.
const LEAST_DESCRIPTORS: usize = 64;
/// More than any gateway needs.
const MOST_DESCRIPTORS: u64 = 1 << 20;

/// A gateway: a pool of threads and what its sandboxes share.
pub struct Gateway {
    runtime: Runtime,
    owner: u32,
    settings: Arc<Settings>,
    buffers: BufferPool,
    descriptors: DescriptorBudget,
    lookup_slots: LookupSlots,
}

/// In a forked child it holds the parent's gateway, whose threads do not exist there: dropping it would wait for them.
static GATEWAY: Mutex<Option<ManuallyDrop<Arc<Gateway>>>> = Mutex::new(None);

/// Turns of tasks between two looks at sockets and timers.
const EVENT_INTERVAL: u32 = 4;

impl Gateway {
    /// This process's gateway, which the first call starts.
    ///
    /// # Errors
    /// A thread or an epoll descriptor cannot be created.
    pub fn shared() -> io::Result<Arc<Gateway>> {
        if let Some(gateway) = Gateway::running() {
            return Ok(gateway);
        }
        // Not under the lock: a child forked meanwhile would never get it.
        let new = Arc::new(Gateway::with(Settings::default())?);
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

    /// A gateway beside that of the process.
    ///
    /// # Errors
    /// As for `shared`.
    pub fn with(settings: Settings) -> io::Result<Gateway> {
        let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_WORKERS);
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(workers).thread_name("egress").on_thread_start(signals::block).enable_all();
        // Sockets and timers are looked at after so many turns: a turn of a connection that always has bytes takes long.
        runtime.event_interval(EVENT_INTERVAL);
        let runtime = runtime.build()?;
        let room = settings.descriptors.unwrap_or_else(room);
        Ok(Gateway {
            runtime,
            owner: std::process::id(),
            settings: Arc::new(settings),
            buffers: BufferPool::new(BUFFERS),
            descriptors: DescriptorBudget::new(room),
            lookup_slots: LookupSlots::new(LOOKUPS),
        })
    }

    /// Serves a sandbox: receives the descriptors of its sockets from `control` (`SOCK_SEQPACKET`, `SCM_RIGHTS`, any
    /// number in each message) in the order of the job's layout, and serves what connects to them. Returns at once.
    pub fn attach(&self, control: OwnedFd, job: EgressJob) -> Attached {
        let (settings, buffers) = (Arc::clone(&self.settings), Arc::new(self.buffers.share()));
        let (descriptors, lookup_slots) = (self.descriptors.share(), self.lookup_slots.share());
        let sandbox =
            EgressSandbox::new(job, settings, buffers, descriptors, lookup_slots, self.runtime.handle().clone());
        serve::start(&sandbox, control);
        Attached { sandbox: Some(ManuallyDrop::new(sandbox)), owner: self.owner }
    }
}

/// Descriptors that the soft limit leaves now, except for the reserved ones.
fn room() -> usize {
    let soft = getrlimit(Resource::Nofile).current.map_or(MOST_DESCRIPTORS, |soft| soft.min(MOST_DESCRIPTORS));
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    usize::try_from(soft).unwrap_or(usize::MAX).saturating_sub(open + KEPT_DESCRIPTORS).max(LEAST_DESCRIPTORS)
}

/// Raises the soft limit of descriptors to the hard one, and returns it: for a program to call at its start. The
/// gateway never does so itself, because it is a library, and the limit belongs to the process: other code in it may
/// use select(2), which overflows from descriptor 1024 on, and child processes inherit the limit. Sandboxes are not
/// affected: each has the limit of its policy.
///
/// # Errors
/// setrlimit(2).
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum)
}

/// The repeats of a sandbox's refusals, which are counted for a while before they are reported.
#[derive(Debug)]
pub struct Repeats(Weak<EgressSandbox>);

impl Repeats {
    /// Reports at once what was counted until now. Once the sandbox has ended, all has been reported.
    pub fn catch_up(&self) {
        if let Some(sandbox) = self.0.upgrade() {
            sandbox.reporter.catch_up();
        }
    }
}

/// An attached sandbox. Dropping it ends its connections.
pub struct Attached {
    /// None once it has ended. In a forked child it belongs to the parent, which ends it.
    sandbox: Option<ManuallyDrop<Arc<EgressSandbox>>>,
    owner: u32,
}

impl Attached {
    /// Ends all connections, and returns when no event can follow any more. Does nothing in a process forked from the
    /// one that attached it.
    pub fn end(mut self) -> Traffic {
        self.close()
    }

    /// Reports repeats early, from any thread; holds no reference to the sandbox.
    pub fn repeats(&self) -> Repeats {
        Repeats(self.sandbox.as_ref().map_or_else(Weak::new, |sandbox| Arc::downgrade(sandbox)))
    }

    fn close(&mut self) -> Traffic {
        match self.sandbox.take() {
            Some(sandbox) if self.owner == std::process::id() => ManuallyDrop::into_inner(sandbox).end(),
            _ => Traffic::default(),
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.close();
    }
}
