//! The limits of one sandbox, and what it has used of them: connections, bytes, bandwidth, attempts.
//!
//! A sandbox has one `EgressLimits`, each host that it connects to one `HostUsage`, each connection to upstream one
//! `Account`. Counts never fall below what was moved: bytes are reserved before they are read, and the rest is
//! returned.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_policy::NetworkLimits;

use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::EgressTarget;

/// Most hosts whose connections and bytes are counted separately in one sandbox.
const MOST_HOSTS: usize = 4096;
/// Bandwidth that may be used at once, in time.
const BURST: Duration = Duration::from_millis(100);
/// Least bytes that may be used at once.
const LEAST_BURST: u64 = 16 * 1024;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the program to upstream.
    Up,
    /// From upstream to the program.
    Down,
}

/// The values of a sandbox's limits; `u64::MAX` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitValues {
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

impl From<&NetworkLimits> for LimitValues {
    fn from(limits: &NetworkLimits) -> LimitValues {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let bytes = |mib: Option<u64>| mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
        LimitValues {
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

/// A token bucket, of bytes or of attempts.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    rate: u64,
    burst: u64,
    state: Mutex<(f64, Instant)>,
}

impl TokenBucket {
    /// A full bucket: `rate` tokens a second, at most `burst` of them saved.
    pub(crate) fn new(rate: u64, burst: u64) -> TokenBucket {
        TokenBucket { rate: rate.max(1), burst: burst.max(1), state: Mutex::new((burst.max(1) as f64, Instant::now())) }
    }

    /// Takes at most `want` tokens.
    ///
    /// # Errors
    /// There are none yet: the time after which to try again.
    pub(crate) fn take(&self, want: u64, now: Instant) -> Result<u64, Duration> {
        let mut state = lock(&self.state);
        let elapsed = now.saturating_duration_since(state.1).as_secs_f64();
        state.0 = (state.0 + elapsed * self.rate as f64).min(self.burst as f64);
        state.1 = state.1.max(now);
        if state.0 < 1.0 {
            // Not byte by byte: the caller waits for a part that is worth a system call.
            let worth = want.min((self.burst / 4).max(1)) as f64;
            return Err(Duration::from_secs_f64((worth - state.0) / self.rate as f64).max(Duration::from_millis(1)));
        }
        let taken = want.min(state.0 as u64);
        state.0 -= taken as f64;
        Ok(taken)
    }

    /// Returns tokens that were not used.
    pub(crate) fn give_back(&self, amount: u64) {
        lock(&self.state).0 += amount as f64;
    }

    /// Takes one token, and waits until there is one.
    #[cfg(feature = "gateway")]
    pub(crate) async fn one(&self) {
        while let Err(wait) = self.take(1, Instant::now()) {
            tokio::time::sleep(wait).await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes in both directions, and their limits.
#[derive(Debug)]
struct Meter {
    /// Bytes moved or about to be moved.
    reserved: [AtomicU64; 2],
    moved: [AtomicU64; 2],
    most: [u64; 2],
}

impl Meter {
    fn new(up: u64, down: u64) -> Meter {
        Meter { reserved: Default::default(), moved: Default::default(), most: [up, down] }
    }

    /// Reserves at most `want` bytes: 0 if none is left.
    fn reserve(&self, direction: Direction, want: u64) -> u64 {
        let (reserved, most) = (&self.reserved[direction as usize], self.most[direction as usize]);
        let mut granted = 0;
        let change = |now: u64| {
            granted = want.min(most.saturating_sub(now));
            (granted > 0).then_some(now + granted)
        };
        // No change means that nothing was granted.
        if reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_err() { 0 } else { granted }
    }

    fn settle(&self, direction: Direction, reserved: u64, moved: u64) {
        self.moved[direction as usize].fetch_add(moved, Ordering::Relaxed);
        self.reserved[direction as usize].fetch_sub(reserved - moved, Ordering::Relaxed);
    }

    fn used_up(&self, direction: Direction) -> bool {
        self.get(direction) >= self.most[direction as usize]
    }

    fn get(&self, direction: Direction) -> u64 {
        self.moved[direction as usize].load(Ordering::Relaxed)
    }
}

/// One of a limited number of open things, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenSlot(Arc<AtomicUsize>);

impl OpenSlot {
    fn one(count: &Arc<AtomicUsize>, most: usize) -> Option<OpenSlot> {
        let change = |now: usize| (now < most).then_some(now + 1);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).ok().map(|_| OpenSlot(Arc::clone(count)))
    }
}

impl Drop for OpenSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Descriptors of this process that the gateway's connections may use, and the share of each sandbox.
#[derive(Debug, Clone)]
pub(crate) struct DescriptorBudget {
    all: Arc<AtomicUsize>,
    most: usize,
    one: Arc<AtomicUsize>,
}

impl DescriptorBudget {
    /// A budget of `most` descriptors.
    pub(crate) fn new(most: usize) -> DescriptorBudget {
        DescriptorBudget { all: Arc::default(), most, one: Arc::default() }
    }

    /// One sandbox's share: no more than half, so that some are left to the others.
    pub(crate) fn share(&self) -> DescriptorBudget {
        DescriptorBudget { all: Arc::clone(&self.all), most: self.most, one: Arc::default() }
    }

    /// Takes one descriptor.
    ///
    /// # Errors
    /// `TooManyConnections`: the sandbox or the gateway has none left.
    pub(crate) fn take(&self) -> Result<(OpenSlot, OpenSlot), EgressRefusal> {
        let one = OpenSlot::one(&self.one, (self.most / 2).max(1));
        one.and_then(|one| Some((one, OpenSlot::one(&self.all, self.most)?))).ok_or_else(|| {
            let detail = format!(
                "this process has {} descriptors for connections, and one sandbox half of them; hint: raise its limit \
                 (`ulimit -n`)",
                self.most
            );
            EgressRefusal::because(NetworkReason::TooManyConnections, detail)
        })
    }
}

/// What a sandbox uses of one host.
#[derive(Debug)]
struct HostUsage {
    open: Arc<AtomicUsize>,
    meter: Meter,
}

/// A sandbox's limits and what it has used.
#[derive(Debug)]
pub(crate) struct EgressLimits {
    most: LimitValues,
    open: Arc<AtomicUsize>,
    meter: Meter,
    rate: Option<TokenBucket>,
    hosts: Mutex<HashMap<EgressTarget, Arc<HostUsage>>>,
}

impl EgressLimits {
    /// Nothing used yet.
    pub(crate) fn new(most: LimitValues) -> Arc<EgressLimits> {
        let rate =
            most.rate.map(|rate| TokenBucket::new(rate, ((rate as f64 * BURST.as_secs_f64()) as u64).max(LEAST_BURST)));
        Arc::new(EgressLimits {
            most,
            open: Arc::default(),
            meter: Meter::new(most.up, most.down),
            rate,
            hosts: Mutex::default(),
        })
    }

    /// Takes one of the program's connections.
    ///
    /// # Errors
    /// `TooManyConnections`.
    pub(crate) fn connection(&self) -> Result<OpenSlot, EgressRefusal> {
        OpenSlot::one(&self.open, self.most.connections).ok_or_else(|| {
            too_many(
                NetworkReason::TooManyConnections,
                "connections",
                format!("{} open at once", self.most.connections),
            )
        })
    }

    /// Takes one of the connections to a host, with the account of its bytes.
    ///
    /// # Errors
    /// `TooManyConnections`.
    pub(crate) fn host(self: &Arc<EgressLimits>, target: &EgressTarget) -> Result<Account, EgressRefusal> {
        let mut hosts = lock(&self.hosts);
        if hosts.len() >= MOST_HOSTS && !hosts.contains_key(target) {
            // A host without open connections is forgotten, unless its bytes are limited.
            if self.most.host_up == u64::MAX && self.most.host_down == u64::MAX {
                hosts.retain(|_, host| host.open.load(Ordering::Relaxed) > 0);
            }
            if hosts.len() >= MOST_HOSTS {
                return Err(EgressRefusal::because(NetworkReason::TooManyConnections, format!("{MOST_HOSTS} hosts")));
            }
        }
        let host = hosts.entry(target.clone()).or_insert_with(|| {
            Arc::new(HostUsage { open: Arc::default(), meter: Meter::new(self.most.host_up, self.most.host_down) })
        });
        let open = OpenSlot::one(&host.open, self.most.connections_per_host).ok_or_else(|| {
            let detail = format!("{} open at once to this host", self.most.connections_per_host);
            too_many(NetworkReason::TooManyConnections, "connections_per_host", detail)
        })?;
        Ok(Account { limits: Arc::clone(self), host: Arc::clone(host), moved: Default::default(), _open: open })
    }

    /// Bytes moved in all.
    pub(crate) fn moved(&self, direction: Direction) -> u64 {
        self.meter.get(direction)
    }
}

fn too_many(reason: NetworkReason, field: &str, detail: String) -> EgressRefusal {
    EgressRefusal::by_rule(reason, format!("$.network.limits.{field}")).detail(detail)
}

/// The bytes of one connection to upstream, which count for its host and its sandbox as well. Dropping it frees its
/// place among the host's connections.
#[derive(Debug)]
pub(crate) struct Account {
    limits: Arc<EgressLimits>,
    host: Arc<HostUsage>,
    moved: [AtomicU64; 2],
    _open: OpenSlot,
}

/// The result of a reservation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// So many bytes, at least one, are reserved until `settle`.
    Bytes(usize),
    /// None now: try again after this time.
    Wait(Duration),
    /// None ever again; the refusal names the limit.
    Never(EgressRefusal),
}

impl Account {
    /// Reserves at most `want` bytes.
    pub(crate) fn reserve(&self, direction: Direction, want: usize) -> Allowance {
        // Another connection may return a part of its reservation in a moment.
        let none = |meter: &Meter, host| match meter.used_up(direction) {
            true => Allowance::Never(self.exhausted(direction, host)),
            false => Allowance::Wait(Duration::from_millis(1)),
        };
        let all = self.limits.meter.reserve(direction, want as u64);
        if all == 0 {
            return none(&self.limits.meter, false);
        }
        let host = self.host.meter.reserve(direction, all);
        self.limits.meter.settle(direction, all - host, 0);
        if host == 0 {
            return none(&self.host.meter, true);
        }
        let Some(bucket) = &self.limits.rate else { return Allowance::Bytes(host as usize) };
        let (taken, wait) = match bucket.take(host, Instant::now()) {
            Ok(taken) => (taken, None),
            Err(wait) => (0, Some(wait)),
        };
        self.limits.meter.settle(direction, host - taken, 0);
        self.host.meter.settle(direction, host - taken, 0);
        wait.map_or(Allowance::Bytes(taken as usize), Allowance::Wait)
    }

    fn exhausted(&self, direction: Direction, host: bool) -> EgressRefusal {
        let (field, most) = match (direction, host) {
            (Direction::Up, false) => ("up_mb", self.limits.most.up),
            (Direction::Down, false) => ("down_mb", self.limits.most.down),
            (Direction::Up, true) => ("host_up_mb", self.limits.most.host_up),
            (Direction::Down, true) => ("host_down_mb", self.limits.most.host_down),
        };
        too_many(NetworkReason::TooManyBytes, field, format!("{most} bytes"))
    }

    /// Ends a reservation: of `reserved` bytes, `moved` were moved.
    pub(crate) fn settle(&self, direction: Direction, reserved: usize, moved: usize) {
        let (reserved, moved) = (reserved as u64, moved as u64);
        self.limits.meter.settle(direction, reserved, moved);
        self.host.meter.settle(direction, reserved, moved);
        if let Some(bucket) = self.limits.rate.as_ref().filter(|_| reserved > moved) {
            bucket.give_back(reserved - moved);
        }
        self.moved[direction as usize].fetch_add(moved, Ordering::Relaxed);
    }

    /// Bytes that this connection has moved.
    pub(crate) fn moved(&self, direction: Direction) -> u64 {
        self.moved[direction as usize].load(Ordering::Relaxed)
    }
}
