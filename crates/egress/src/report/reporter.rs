//! Reports a sandbox's events: in order, one at a time, with repeats counted, and none after the end. Does not
//! interpret them.
//!
//! A program may be refused a hundred thousand times a second. The first of equal refusals is reported at once; those
//! of the next second are counted and reported as one. The number of different ones each second is bounded: the rest is
//! reported as a count for each kind and reason.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::report::event::{EventSink, NetworkEvent, NetworkKind};
use crate::report::ledger::{Ledger, LedgerCapacity, LedgerPlacement};

/// How long equal refusals are counted before they are reported again.
const WINDOW: Duration = Duration::from_secs(1);
/// Most different refusals that are reported in one window; the rest is only counted.
const ROOM: LedgerCapacity = LedgerCapacity { own: 16, shared: 512 };

struct ReporterState {
    sink: Option<EventSink>,
    window: Instant,
    /// What was reported in this window, with the count of repeats since.
    reported: Ledger<NetworkEvent>,
    refused: u64,
}

/// Reports the events of one sandbox.
pub(crate) struct Reporter {
    since: Instant,
    state: Mutex<ReporterState>,
}

impl Reporter {
    /// A reporter to `sink`; the times of events count from now.
    pub(crate) fn new(sink: EventSink) -> Reporter {
        let since = Instant::now();
        let state = ReporterState { sink: Some(sink), window: since, reported: Ledger::new(ROOM), refused: 0 };
        Reporter { since, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event now, or counts it as a repeat.
    pub(crate) fn report(&self, mut event: NetworkEvent) {
        let state = &mut *self.lock();
        // Under the lock: what comes later is reported later.
        let now = Instant::now();
        event.at_ms = millis(now.saturating_duration_since(self.since));
        if event.kind == NetworkKind::Refused {
            state.refused += event.count;
        }
        if !matches!(event.kind, NetworkKind::Refused | NetworkKind::Failed) {
            state.send(event);
            return;
        }
        if now.saturating_duration_since(state.window) >= WINDOW {
            state.flush();
            state.window = now;
        }
        if let LedgerPlacement::New(at) = state.reported.add(event.clone()) {
            state.reported.entries_mut()[at].count = 0; // reported now
            state.send(event);
        }
    }

    /// Reports repeats that have been counted for a window; to be called regularly.
    pub(crate) fn tick(&self) {
        let now = Instant::now();
        let state = &mut *self.lock();
        if now.saturating_duration_since(state.window) >= WINDOW {
            state.flush();
            state.window = now;
        }
    }

    /// Reports the repeats counted until now. Later ones are counted as before.
    pub(crate) fn catch_up(&self) {
        self.lock().send_repeats();
    }

    /// Reports the counted repeats, and nothing after them. Returns the number of refusals.
    pub(crate) fn end(&self) -> u64 {
        let state = &mut *self.lock();
        state.flush();
        state.sink = None;
        state.refused
    }
}

impl ReporterState {
    fn send(&self, event: NetworkEvent) {
        if let Some(sink) = &self.sink {
            sink(event);
        }
    }

    fn flush(&mut self) {
        self.send_repeats();
        self.reported.take();
    }

    fn send_repeats(&mut self) {
        let repeated = self.reported.entries_mut().iter_mut().filter(|event| event.count > 0);
        let mut counted: Vec<NetworkEvent> = repeated
            .map(|event| {
                let reported = event.clone();
                (event.count, event.last_ms) = (0, None);
                reported
            })
            .collect();
        counted.sort_by_key(|event| (event.aggregated, event.at_ms));
        counted.into_iter().for_each(|event| self.send(event));
    }
}

/// Whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decide::refusal::NetworkReason;
    use crate::report::event::NetworkVia;

    fn reporter() -> (Reporter, Arc<Mutex<Vec<NetworkEvent>>>) {
        let seen: Arc<Mutex<Vec<NetworkEvent>>> = Arc::default();
        let to = Arc::clone(&seen);
        (Reporter::new(Arc::new(move |event| to.lock().unwrap().push(event))), seen)
    }

    fn refused(port: u16) -> NetworkEvent {
        NetworkEvent {
            port: Some(port),
            reason: Some(NetworkReason::NotAllowed),
            ..NetworkEvent::new(NetworkKind::Refused, NetworkVia::Connect)
        }
    }

    #[test]
    fn equal_refusals_are_reported_once_and_then_counted() {
        let (reporter, seen) = reporter();
        (0..1000).for_each(|_| reporter.report(refused(1)));
        reporter.report(refused(2));
        assert_eq!(
            seen.lock().unwrap().iter().map(|e| (e.port, e.count)).collect::<Vec<_>>(),
            [(Some(1), 1), (Some(2), 1)]
        );
        assert_eq!(reporter.end(), 1001);
        assert_eq!(seen.lock().unwrap().iter().map(|e| e.count).sum::<u64>(), 1001);
        assert_eq!(seen.lock().unwrap().len(), 3);
    }

    #[test]
    fn catch_up_reports_repeats_and_counting_continues() {
        let (reporter, seen) = reporter();
        let counts = || seen.lock().unwrap().iter().map(|e| e.count).collect::<Vec<_>>();
        (0..4).for_each(|_| reporter.report(refused(1)));
        assert_eq!(counts(), [1]);
        reporter.catch_up();
        assert_eq!(counts(), [1, 3]);
        reporter.catch_up();
        assert_eq!(counts(), [1, 3], "nothing is reported twice");
        reporter.report(refused(1));
        reporter.end();
        assert_eq!(counts(), [1, 3, 1]);
    }

    #[test]
    fn refusals_without_room_are_aggregated_and_none_is_lost() {
        let (reporter, seen) = reporter();
        (0..10_000).for_each(|port| reporter.report(refused(port)));
        assert_eq!(reporter.end(), 10_000);
        let seen = seen.lock().unwrap();
        assert!(seen.len() <= ROOM.own + ROOM.shared + 1, "{}", seen.len());
        assert_eq!(seen.iter().map(|e| e.count).sum::<u64>(), 10_000);
        let rest: Vec<_> = seen.iter().filter(|e| e.aggregated).map(|e| (e.port, e.reason)).collect();
        assert_eq!(rest, [(None, Some(NetworkReason::NotAllowed))], "none of them is said to be all");
    }

    #[test]
    fn a_special_address_is_reported_amid_a_flood_of_others() {
        let (reporter, seen) = reporter();
        (0..10_000).for_each(|port| reporter.report(refused(port)));
        let address = Some("169.254.169.254".parse().unwrap());
        reporter.report(NetworkEvent { address, ..refused(80) });
        assert_eq!(seen.lock().unwrap().last().map(|e| (e.address, e.count)), Some((address, 1)));
    }

    #[test]
    fn allowed_connections_are_never_folded_nor_follow_the_end() {
        let (reporter, seen) = reporter();
        (0..600).for_each(|_| reporter.report(NetworkEvent::new(NetworkKind::Allowed, NetworkVia::Connect)));
        assert_eq!(seen.lock().unwrap().len(), 600);
        reporter.end();
        reporter.report(NetworkEvent::new(NetworkKind::Allowed, NetworkVia::Connect));
        reporter.report(refused(1));
        assert_eq!(seen.lock().unwrap().len(), 600);
    }
}
