//! The egress gateway of a run: attached to the sandbox's sockets, it reports its events to the supervisor and its traffic to the
//! outcome.
//!
//! ```text
//! EgressPlan ─ attach: the control socket, on which init sends the sockets ───────▶ gateway
//!                ▲ GatewayWatch: events, and a descriptor that wakes the supervisor at a refusal ◀─┘
//! ```
//!
//! Decides nothing about a connection: the gateway does.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cofferdam_egress::event::{NetworkEvent, NetworkKind};
use cofferdam_egress::gateway::{Attached, EgressJob, Gateway, Repeats};
use cofferdam_egress::ledger::{Ledger, LedgerCapacity};
use cofferdam_policy::{self as policy, Field};
use rustix::event::{EventfdFlags, eventfd};

use crate::failure::Failure;
use crate::outcome::NetworkSummary;
use crate::plan::egress::EgressPlan;
use crate::run::evidence::Log;

/// Events of what went out that each have an entry of their own.
const MOST_SINGLE: usize = 1000;
/// Beyond those, what went out by destination.
const DESTINATIONS: LedgerCapacity = LedgerCapacity { own: 16, shared: 1000 };
/// What was refused or failed, by destination and reason.
const REFUSALS: LedgerCapacity = LedgerCapacity { own: 16, shared: 1000 };
/// Refusals that wait for the supervisor.
const WAITING: LedgerCapacity = LedgerCapacity { own: 16, shared: 4096 };

impl EgressPlan {
    /// Has the gateway serve a sandbox whose init sends its sockets on the other end of `control`.
    ///
    /// # Errors
    /// The gateway cannot be started, or cannot pass the API through.
    #[cfg_attr(not(feature = "gateway"), expect(unreachable_code, reason = "nothing can be attached then"))]
    pub(crate) fn attach(&self, network: &policy::Network, control: OwnedFd, init: i32) -> Result<Egress, Failure> {
        let failed = |what: &str, e: std::io::Error| Failure::new(Field::Network, format!("{what}: {e}"));
        let watch = GatewayWatch::new().map_err(|e| failed("cannot make what the gateway tells of", e))?;
        let gateway = Gateway::shared().map_err(|e| failed("cannot start the egress gateway", e))?;
        let recorder = Arc::clone(&watch.0);
        let (rules, layout) = (Arc::clone(&self.rules), self.layout.clone());
        let sink = Arc::new(move |event| recorder.take(event));
        let job = EgressJob::new(network, rules, layout, sink, u32::try_from(init).ok())
            .map_err(|e| Failure::new(Field::Api, e.to_string()))?;
        Ok(Egress { attached: gateway.attach(control, job), watch })
    }
}

/// A sandbox that the gateway serves. Dropped, its connections end.
pub(crate) struct Egress {
    attached: Attached,
    watch: GatewayWatch,
}

impl Egress {
    /// What it tells while the run lives.
    pub(crate) fn watch(&self) -> &GatewayWatch {
        &self.watch
    }

    /// What tells of repeated refusals before their time.
    pub(crate) fn repeats(&self) -> Repeats {
        self.attached.repeats()
    }

    /// Ends the sandbox's connections; what there was. Refusals that nobody has taken are put into the log.
    pub(crate) fn end(self, log: &mut Log) -> NetworkSummary {
        let traffic = self.attached.end();
        self.watch.drain(log);
        let (events, lost) = self.watch.0.lock().records.take();
        NetworkSummary {
            connections: traffic.connections,
            refused: traffic.refused,
            bytes_up: traffic.bytes_up,
            bytes_down: traffic.bytes_down,
            events,
            lost,
        }
    }
}

/// What the gateway has reported so far, and a descriptor that is ready when a refusal waits to be taken.
pub(crate) struct GatewayWatch(Arc<EventRecorder>);

struct EventRecorder {
    state: Mutex<EventRecorderState>,
    wake: OwnedFd,
}

struct EventRecorderState {
    records: Records,
    waiting: Ledger<NetworkEvent>,
}

/// What happened. What went out and what was refused have room of their own, so that neither hides the other.
struct Records {
    single: Vec<NetworkEvent>,
    destinations: Ledger<NetworkEvent>,
    refusals: Ledger<NetworkEvent>,
}

impl Records {
    fn new() -> Records {
        Records { single: Vec::new(), destinations: Ledger::new(DESTINATIONS), refusals: Ledger::new(REFUSALS) }
    }

    fn add(&mut self, event: NetworkEvent) {
        if !event.went_out() {
            self.refusals.add(event);
        } else if self.single.len() < MOST_SINGLE {
            self.single.push(event);
        } else {
            self.destinations.add(event);
        }
    }

    /// All of it in order, and how often something happened whose destination is not among it.
    fn take(&mut self) -> (Vec<NetworkEvent>, u64) {
        let lost = self.destinations.aggregated() + self.refusals.aggregated();
        let mut events = std::mem::take(&mut self.single);
        events.extend(self.destinations.take());
        events.extend(self.refusals.take());
        // What was counted as one of too many comes later than it happened.
        events.sort_by_key(|event| event.at_ms);
        (events, lost)
    }
}

impl EventRecorder {
    fn lock(&self) -> MutexGuard<'_, EventRecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One event, from a thread of the gateway's.
    fn take(&self, event: NetworkEvent) {
        let mut state = self.lock();
        if event.kind == NetworkKind::Refused {
            // One wake is enough for all that come until somebody looks.
            let wakes = state.waiting.entries().is_empty();
            state.waiting.add(event.clone());
            if wakes && let Err(e) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
                debug_assert!(false, "an eventfd of ours cannot be written: {e}"); // the end of the run drains as well
            }
        }
        state.records.add(event);
    }
}

impl GatewayWatch {
    fn new() -> std::io::Result<GatewayWatch> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = EventRecorderState { records: Records::new(), waiting: Ledger::new(WAITING) };
        Ok(GatewayWatch(Arc::new(EventRecorder { state: Mutex::new(state), wake })))
    }

    /// Ready for reading while refusals wait.
    pub(crate) fn wakes(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    /// Puts the refusals that wait into the log; whether there were any.
    pub(crate) fn drain(&self, log: &mut Log) -> bool {
        let mut state = self.0.lock();
        let mut counter = [0u8; 8];
        if let Err(e) = rustix::io::read(&self.0.wake, &mut counter) {
            debug_assert!(e == rustix::io::Errno::AGAIN, "an eventfd of ours cannot be read: {e}");
        }
        let refused = state.waiting.take();
        for event in &refused {
            log.gateway(event);
        }
        !refused.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use cofferdam_egress::event::{NetworkReason, NetworkVia};
    use cofferdam_policy::Policy;

    fn refused(host: &str) -> NetworkEvent {
        let reason = Some(NetworkReason::NotAllowed);
        NetworkEvent {
            host: Some(host.into()),
            port: Some(443),
            reason,
            ..NetworkEvent::new(NetworkKind::Refused, NetworkVia::Connect)
        }
    }

    fn ready(watch: &GatewayWatch) -> bool {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(watch.wakes(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
    }

    #[test]
    fn a_refusal_wakes_until_it_is_taken_and_other_events_do_not() {
        let watch = GatewayWatch::new().unwrap();
        watch.0.take(NetworkEvent::new(NetworkKind::Allowed, NetworkVia::Connect));
        assert!(!ready(&watch));
        watch.0.take(refused("a.example"));
        watch.0.take(refused("b.example"));
        assert!(ready(&watch));
        let mut log = Log::new(&Policy::base());
        assert!(watch.drain(&mut log));
        assert!(!ready(&watch) && !watch.drain(&mut log));
        let reported: Vec<_> = log.violations().map(|v| v.object.as_deref().unwrap()).collect();
        assert_eq!(reported, ["a.example:443", "b.example:443"]);
    }

    #[test]
    fn what_repeats_is_counted_on_its_event_and_stands_where_it_was_first() {
        let watch = GatewayWatch::new().unwrap();
        let at = |at_ms, event: NetworkEvent| NetworkEvent { at_ms, ..event };
        let failed = || NetworkEvent { kind: NetworkKind::Failed, ..refused("a.example") };
        watch.0.take(at(0, refused("a.example")));
        watch.0.take(at(10, refused("b.example")));
        watch.0.take(at(20, NetworkEvent::new(NetworkKind::Allowed, NetworkVia::Connect)));
        watch.0.take(at(30, NetworkEvent::new(NetworkKind::Allowed, NetworkVia::Connect)));
        watch.0.take(at(40, failed()));
        // The gateway's count of the second, which it tells at its end.
        watch.0.take(at(5, NetworkEvent { count: 7, ..refused("a.example") }));
        watch.0.take(at(50, NetworkEvent { reason: Some(NetworkReason::Denied), ..refused("a.example") }));
        watch.0.take(at(5000, refused("a.example")));
        watch.0.take(at(5001, NetworkEvent { count: 2, ..refused("a.example") }));
        let (events, lost) = watch.0.lock().records.take();
        let reported: Vec<_> = events.iter().map(|e| (e.at_ms, e.count, e.last_ms)).collect();
        let each = [(20, 1, None), (30, 1, None), (40, 1, None), (50, 1, None)];
        assert_eq!(reported[..2], [(0, 11, Some(5001)), (10, 1, None)]);
        assert_eq!((&reported[2..], lost), (&each[..], 0));
        // The refusals that the violations are made of are all there.
        let mut log = Log::new(&Policy::base());
        watch.drain(&mut log);
        let counts: Vec<_> = log.violations().map(|v| (v.object.as_deref().unwrap(), v.count)).collect();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 13, "{counts:?}");
    }

    fn at(address: &str) -> Option<IpAddr> {
        Some(address.parse().unwrap())
    }

    #[test]
    fn a_flood_of_refusals_hides_neither_what_went_out_nor_other_refusals() {
        let watch = GatewayWatch::new().unwrap();
        for i in 0..12_000 {
            watch.0.take(NetworkEvent { count: 2, ..refused(&format!("h{i}.example")) });
        }
        let out = |kind, bytes_up| NetworkEvent {
            address: at("93.184.216.34"),
            bytes_up,
            ..NetworkEvent::new(kind, NetworkVia::Connect)
        };
        watch.0.take(out(NetworkKind::Allowed, None));
        watch.0.take(out(NetworkKind::Closed, Some(7)));
        watch.0.take(NetworkEvent { host: None, address: at("169.254.169.254"), ..refused("") });
        let mut log = Log::new(&Policy::base());
        watch.drain(&mut log);
        let (events, lost) = watch.0.lock().records.take();
        assert!(events.len() < 1100, "{}", events.len());
        assert_eq!(events.iter().filter(|e| e.went_out()).count(), 2);
        assert_eq!(events.iter().filter(|e| e.address == at("169.254.169.254")).count(), 1);
        let refusals: u64 = events.iter().filter(|e| e.kind == NetworkKind::Refused).map(|e| e.count).sum();
        assert_eq!(refusals, 24_001);
        assert_eq!(lost, events.iter().filter(|e| e.aggregated).map(|e| e.count).sum::<u64>());
        assert!(log.overflowed);
        let violations = log.into_violations();
        assert!(violations.iter().any(|v| v.object.as_deref() == Some("169.254.169.254:443")), "{violations:?}");
        assert_eq!(violations.iter().map(|v| v.count).sum::<u64>(), 24_001);
    }

    #[test]
    fn what_went_out_beyond_a_number_is_counted_for_each_destination() {
        let watch = GatewayWatch::new().unwrap();
        let out = |host: &str, bytes| NetworkEvent {
            host: Some(host.into()),
            rule: Some("$.network.allow[0]".into()),
            bytes_up: Some(bytes),
            ..NetworkEvent::new(NetworkKind::Closed, NetworkVia::Connect)
        };
        for _ in 0..5000 {
            watch.0.take(out("a.example", 1));
        }
        watch.0.take(out("b.example", 7));
        watch.0.take(out("b.example", 8));
        // A wildcard allows names that the program chooses: a second line of the policy is not hidden by them.
        for i in 0..5000 {
            watch.0.take(out(&format!("h{i}.example"), 1));
        }
        watch.0.take(NetworkEvent { rule: Some("$.network.allow[1]".into()), ..out("last.test", 9) });
        let (events, lost) = watch.0.lock().records.take();
        assert!(events.len() < MOST_SINGLE + 1100, "{}", events.len());
        let sum = |host: &str| {
            let of = events.iter().filter(|e| e.host.as_deref() == Some(host));
            of.fold((0, 0), |(n, bytes), e| (n + e.count, bytes + e.bytes_up.unwrap()))
        };
        assert_eq!((sum("a.example"), sum("b.example"), sum("last.test")), ((5000, 5000), (2, 15), (1, 9)));
        let rest: Vec<_> = events.iter().filter(|e| e.aggregated).collect();
        assert_eq!((rest.len(), rest[0].rule.as_deref()), (1, Some("$.network.allow[0]")));
        assert_eq!((rest[0].count, rest[0].bytes_up), (lost, Some(lost)));
        assert_eq!(events.iter().map(|e| e.count).sum::<u64>(), 10_003);
    }
}
