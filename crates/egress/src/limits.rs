//! What one sandbox may use of the gateway: connections, bytes, bandwidth, attempts; and what it has used.
//!
//! A sandbox has one `Limits`, each host that it has connections to one `Host`, each connection to upstream one `Account`.
//! Counts never go below what was moved: bytes are reserved before they are read, and what was not needed is given back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_policy::NetworkLimits;

use crate::event::Reason;
use crate::rules::{Refusal, Target};

/// Most hosts whose connections and bytes are told apart in one sandbox.
const MOST_HOSTS: usize = 4096;
/// Bandwidth is granted in advance for this long.
const BURST: Duration = Duration::from_millis(100);
/// Least bytes that are granted in advance.
const LEAST_BURST: u64 = 16 * 1024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the program to upstream.
    Up,
    /// From upstream to the program.
    Down,
}

/// The most that a sandbox may use. `u64::MAX` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    /// Connections of programs that are open at once.
    pub connections: usize,
    /// Connections to one host that are open at once.
    pub connections_per_host: usize,
    /// Bytes from the programs in all.
    pub up: u64,
    /// Bytes to the programs in all.
    pub down: u64,
    /// Bytes from the programs to one host.
    pub host_up: u64,
    /// Bytes to the programs from one host.
    pub host_down: u64,
    /// Bytes in each second, both ways together.
    pub rate: Option<u64>,
}

impl From<&NetworkLimits> for Most {
    fn from(limits: &NetworkLimits) -> Most {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let bytes = |mib: Option<u64>| mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
        Most {
            connections: count(limits.connections),
            connections_per_host: count(limits.connections_per_host),
            up: bytes(Some(limits.up_mb)),
            down: bytes(Some(limits.down_mb)),
            host_up: bytes(limits.host_up_mb),
            host_down: bytes(limits.host_down_mb),
            rate: limits.kib_per_second.map(|kib| kib.saturating_mul(1 << 10)),
        }
    }
}

/// Something that fills evenly and is taken from: bytes or attempts.
#[derive(Debug)]
pub struct Bucket {
    rate: u64,
    burst: u64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    /// Full at first.
    pub fn new(rate: u64, burst: u64) -> Bucket {
        Bucket { rate: rate.max(1), burst: burst.max(1), state: Mutex::new((burst.max(1) as f64, Instant::now())) }
    }

    /// At most `want`, or how long until there is some.
    pub fn take(&self, want: u64, now: Instant) -> Result<u64, Duration> {
        let mut state = lock(&self.state);
        let elapsed = now.saturating_duration_since(state.1).as_secs_f64();
        state.0 = (state.0 + elapsed * self.rate as f64).min(self.burst as f64);
        state.1 = state.1.max(now);
        if state.0 < 1.0 {
            // Not byte by byte: whoever waits gets a part that is worth a system call.
            let worth = want.min((self.burst / 4).max(1)) as f64;
            return Err(Duration::from_secs_f64((worth - state.0) / self.rate as f64).max(Duration::from_millis(1)));
        }
        let taken = want.min(state.0 as u64);
        state.0 -= taken as f64;
        Ok(taken)
    }

    /// Puts back what was not used.
    pub fn give_back(&self, amount: u64) {
        lock(&self.state).0 += amount as f64;
    }

    /// Takes one, waiting until there is one.
    pub async fn one(&self) {
        while let Err(wait) = self.take(1, Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes both ways, and the most of each.
#[derive(Debug)]
struct Meter {
    /// Those that were moved and those that are about to be.
    reserved: [AtomicU64; 2],
    moved: [AtomicU64; 2],
    most: [u64; 2],
}

impl Meter {
    fn new(up: u64, down: u64) -> Meter {
        Meter { reserved: Default::default(), moved: Default::default(), most: [up, down] }
    }

    /// At most `want`: 0 when all are reserved.
    fn reserve(&self, way: Way, want: u64) -> u64 {
        let (reserved, most) = (&self.reserved[way as usize], self.most[way as usize]);
        let mut granted = 0;
        let change = |now: u64| {
            granted = want.min(most.saturating_sub(now));
            (granted > 0).then_some(now + granted)
        };
        // Without a change nothing was granted, which is the answer.
        if reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_err() { 0 } else { granted }
    }

    fn settle(&self, way: Way, reserved: u64, moved: u64) {
        self.moved[way as usize].fetch_add(moved, Ordering::Relaxed);
        self.reserved[way as usize].fetch_sub(reserved - moved, Ordering::Relaxed);
    }

    fn used_up(&self, way: Way) -> bool {
        self.get(way) >= self.most[way as usize]
    }

    fn get(&self, way: Way) -> u64 {
        self.moved[way as usize].load(Ordering::Relaxed)
    }
}

/// How many are open, and the most. Counts down when dropped.
#[derive(Debug)]
pub struct Open(Arc<AtomicUsize>);

impl Open {
    fn one(count: &Arc<AtomicUsize>, most: usize) -> Option<Open> {
        let change = |now: usize| (now < most).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).ok().map(|_| Open(Arc::clone(count)))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Descriptors of the process that a gateway's connections may take, and each sandbox of them.
#[derive(Debug, Clone)]
pub struct Descriptors {
    all: Arc<AtomicUsize>,
    most: usize,
    one: Arc<AtomicUsize>,
}

impl Descriptors {
    /// None taken yet.
    pub fn new(most: usize) -> Descriptors {
        Descriptors { all: Arc::default(), most, one: Arc::default() }
    }

    /// One sandbox's part: no more than half, so that another one has some.
    pub fn part(&self) -> Descriptors {
        Descriptors { all: Arc::clone(&self.all), most: self.most, one: Arc::default() }
    }

    /// Room for one more.
    pub fn take(&self) -> Result<(Open, Open), Refusal> {
        let one = Open::one(&self.one, (self.most / 2).max(1));
        one.and_then(|one| Some((one, Open::one(&self.all, self.most)?))).ok_or_else(|| Refusal {
            reason: Reason::TooManyConnections,
            rule: None,
            detail: Some(format!(
                "this process has {} descriptors for connections, and one sandbox half of them; hint: raise its limit \
                 (`ulimit -n`)",
                self.most
            )),
        })
    }
}

/// One host of a sandbox.
#[derive(Debug)]
struct Host {
    open: Arc<AtomicUsize>,
    meter: Meter,
}

/// A sandbox's limits and what it has used.
#[derive(Debug)]
pub struct Limits {
    most: Most,
    open: Arc<AtomicUsize>,
    meter: Meter,
    rate: Option<Bucket>,
    hosts: Mutex<HashMap<Target, Arc<Host>>>,
}

impl Limits {
    /// Nothing used yet.
    pub fn new(most: Most) -> Arc<Limits> {
        let rate =
            most.rate.map(|rate| Bucket::new(rate, ((rate as f64 * BURST.as_secs_f64()) as u64).max(LEAST_BURST)));
        Arc::new(Limits {
            most,
            open: Arc::default(),
            meter: Meter::new(most.up, most.down),
            rate,
            hosts: Mutex::default(),
        })
    }

    /// Room for one more connection of a program.
    pub fn connection(&self) -> Result<Open, Refusal> {
        Open::one(&self.open, self.most.connections).ok_or_else(|| {
            too_many(Reason::TooManyConnections, "connections", format!("{} open at once", self.most.connections))
        })
    }

    /// Room for one more connection to a host, and the account of its bytes.
    pub fn host(self: &Arc<Limits>, target: &Target) -> Result<Account, Refusal> {
        let mut hosts = lock(&self.hosts);
        if hosts.len() >= MOST_HOSTS && !hosts.contains_key(target) {
            // A host with nothing open is forgotten, unless what it has used counts.
            if self.most.host_up == u64::MAX && self.most.host_down == u64::MAX {
                hosts.retain(|_, host| host.open.load(Ordering::Relaxed) > 0);
            }
            if hosts.len() >= MOST_HOSTS {
                return Err(Refusal {
                    reason: Reason::TooManyConnections,
                    rule: None,
                    detail: Some(format!("{MOST_HOSTS} hosts")),
                });
            }
        }
        let host = hosts.entry(target.clone()).or_insert_with(|| {
            Arc::new(Host { open: Arc::default(), meter: Meter::new(self.most.host_up, self.most.host_down) })
        });
        let open = Open::one(&host.open, self.most.connections_per_host).ok_or_else(|| {
            let detail = format!("{} open at once to this host", self.most.connections_per_host);
            too_many(Reason::TooManyConnections, "connections_per_host", detail)
        })?;
        Ok(Account { limits: Arc::clone(self), host: Arc::clone(host), moved: Default::default(), _open: open })
    }

    /// Bytes moved in all.
    pub fn moved(&self, way: Way) -> u64 {
        self.meter.get(way)
    }
}

fn too_many(reason: Reason, field: &str, detail: String) -> Refusal {
    Refusal { reason, rule: Some(format!("$.network.limits.{field}")), detail: Some(detail) }
}

/// The bytes of one connection to upstream, which count for its host and its sandbox as well. Its place among the
/// host's connections is free when it is dropped.
#[derive(Debug)]
pub struct Account {
    limits: Arc<Limits>,
    host: Arc<Host>,
    moved: [AtomicU64; 2],
    _open: Open,
}

/// What may be moved now.
#[derive(Debug, PartialEq, Eq)]
pub enum Allowance {
    /// So many bytes, more than none: reserved until `settle`.
    Bytes(usize),
    /// None before this time has passed.
    Wait(Duration),
    /// None any more; the refusal names the limit.
    Never(Refusal),
}

impl Account {
    /// Reserves at most `want` bytes.
    pub fn reserve(&self, way: Way, want: usize) -> Allowance {
        // What another connection has reserved it may give back in a moment.
        let none = |meter: &Meter, host| match meter.used_up(way) {
            true => Allowance::Never(self.exhausted(way, host)),
            false => Allowance::Wait(Duration::from_millis(1)),
        };
        let all = self.limits.meter.reserve(way, want as u64);
        if all == 0 {
            return none(&self.limits.meter, false);
        }
        let host = self.host.meter.reserve(way, all);
        self.limits.meter.settle(way, all - host, 0);
        if host == 0 {
            return none(&self.host.meter, true);
        }
        let Some(bucket) = &self.limits.rate else { return Allowance::Bytes(host as usize) };
        let (taken, wait) = match bucket.take(host, Instant::now()) {
            Ok(taken) => (taken, None),
            Err(wait) => (0, Some(wait)),
        };
        self.limits.meter.settle(way, host - taken, 0);
        self.host.meter.settle(way, host - taken, 0);
        wait.map_or(Allowance::Bytes(taken as usize), Allowance::Wait)
    }

    fn exhausted(&self, way: Way, host: bool) -> Refusal {
        let (field, most) = match (way, host) {
            (Way::Up, false) => ("up_mb", self.limits.most.up),
            (Way::Down, false) => ("down_mb", self.limits.most.down),
            (Way::Up, true) => ("host_up_mb", self.limits.most.host_up),
            (Way::Down, true) => ("host_down_mb", self.limits.most.host_down),
        };
        too_many(Reason::TooManyBytes, field, format!("{most} bytes"))
    }

    /// Of `reserved` bytes, so many were moved.
    pub fn settle(&self, way: Way, reserved: usize, moved: usize) {
        let (reserved, moved) = (reserved as u64, moved as u64);
        self.limits.meter.settle(way, reserved, moved);
        self.host.meter.settle(way, reserved, moved);
        if let Some(bucket) = self.limits.rate.as_ref().filter(|_| reserved > moved) {
            bucket.give_back(reserved - moved);
        }
        self.moved[way as usize].fetch_add(moved, Ordering::Relaxed);
    }

    /// Bytes that this connection has moved.
    pub fn moved(&self, way: Way) -> u64 {
        self.moved[way as usize].load(Ordering::Relaxed)
    }
}
