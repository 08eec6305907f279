//! The egress gateway from the engine's side: what a policy asks of it, what its sandbox needs to be captured, and what it
//! told of a run.
//!
//! ```text
//! policy ─▶ Way (rules, layout) ─ capture ─▶ init's plan
//!             └─ attach: the letter socket, on which init sends the sockets ─▶ gateway
//!                   ▲ Watch: events, and a descriptor that wakes the supervisor at a refusal ◀─┘
//! ```
//!
//! Decides nothing about a connection: the gateway does.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cofferdam_confine::capture::{self, Capture, Version, Versions};
use cofferdam_egress::event::{Event, Kind};
use cofferdam_egress::gateway::{Attached, Gateway, Job, Repeats};
use cofferdam_egress::layout::{API_PORT, HTTP_PROXY_PORT, INSIDE, Layout, SOCKS_PORT, Socket};
use cofferdam_egress::ledger::{Ledger, Room};
use cofferdam_egress::process::can_inspect;
use cofferdam_egress::rules::Rules;
use cofferdam_policy::{self as policy, Field, NetworkMode, Policy};
use rustix::event::{EventfdFlags, eventfd};

use crate::failure::Failure;
use crate::outcome::{Applied, Network, Strength};
use crate::run::evidence::Log;

/// Events of what went out that each have an entry of their own.
const MOST_SINGLE: usize = 1000;
/// Beyond those, what went out by destination.
const DESTINATIONS: Room = Room { own: 16, shared: 1000 };
/// What was refused or failed, by destination and reason.
const REFUSALS: Room = Room { own: 16, shared: 1000 };
/// Refusals that wait for the supervisor.
const WAITING: Room = Room { own: 16, shared: 4096 };

/// What a policy's network is held by.
#[derive(Debug, Clone)]
pub struct Way {
    rules: Arc<Rules>,
    layout: Layout,
    versions: Versions,
}

impl Way {
    /// For the mode `allowlist`; `None` for the others.
    ///
    /// # Errors
    /// The rules name more ports than can be caught here.
    pub fn of(policy: &Policy) -> Result<Option<Way>, Failure> {
        if policy.network.mode != NetworkMode::Allowlist {
            return Ok(None);
        }
        let versions = capture::versions();
        let rules = Rules::compile(&policy.network);
        // The kernel is asked only where it matters: it takes a namespace.
        let layout = match rules.layout(false) {
            Ok(layout) => Ok(layout),
            Err(_) => redirects(versions).and_then(|()| rules.layout(true).map_err(|e| e.to_string())),
        };
        let mut layout = layout.map_err(|why| too_many(&why))?;
        layout.sockets.push(Socket::Attempts { ipv6: false });
        if versions == Versions::Both {
            layout.sockets.push(Socket::Attempts { ipv6: true });
        }
        if can_inspect() {
            layout.sockets.push(Socket::Inspector);
        }
        Ok(Some(Way { rules: Arc::new(rules), layout, versions }))
    }

    /// What init makes of the namespace.
    pub fn capture(&self) -> Capture {
        let listeners: Vec<u16> = self.layout.sockets.iter().filter_map(port).collect();
        let mut capture = Capture::new(self.versions);
        for socket in &self.layout.sockets {
            if let Socket::Redirect(to) = socket {
                capture.redirect(&self.layout.redirected, *to, self.versions);
            }
            capture.sockets.push(match *socket {
                Socket::Resolver => capture::Socket::resolver(self.versions),
                Socket::Listener(port) | Socket::Redirect(port) => capture::Socket::listener(port, self.versions),
                Socket::Attempts { ipv6: false } => capture::Socket::attempts(Version::Four, &listeners),
                Socket::Attempts { ipv6: true } => capture::Socket::attempts(Version::Six, &listeners),
                Socket::Inspector => capture::Socket::inspector(),
            });
        }
        capture
    }

    /// How strongly the mode holds, and by what.
    pub fn applied(&self) -> Applied {
        let version = match self.versions {
            Versions::Both => "",
            Versions::Four => "; there is no IPv6 here, and so none inside",
        };
        let reason = format!(
            "a network namespace in which every TCP connection arrives at the egress gateway and all else is refused; names by \
             its resolver alone; the names in TLS greetings and HTTP requests must be the ones that were asked for{version}"
        );
        Applied { strength: Strength::Full, reason }
    }

    /// Has the gateway serve a sandbox whose init sends its sockets on the other end of `letters`.
    ///
    /// # Errors
    /// The gateway cannot be started, or cannot pass the API through.
    pub fn attach(&self, network: &policy::Network, letters: OwnedFd, init: i32) -> Result<Egress, Failure> {
        let failed = |what: &str, e: std::io::Error| Failure::new(Field::Network, format!("{what}: {e}"));
        let watch = Watch::new().map_err(|e| failed("cannot make what the gateway tells of", e))?;
        let gateway = Gateway::shared().map_err(|e| failed("cannot start the egress gateway", e))?;
        let told = Arc::clone(&watch.0);
        let (rules, layout) = (Arc::clone(&self.rules), self.layout.clone());
        let sink = Arc::new(move |event| told.take(event));
        let job = Job::new(network, rules, layout, sink, u32::try_from(init).ok())
            .map_err(|e| Failure::new(Field::Api, e.to_string()))?;
        Ok(Egress { attached: gateway.attach(letters, job), watch })
    }
}

fn too_many(why: &str) -> Failure {
    let most = cofferdam_egress::layout::MOST_LISTENERS;
    let hint = format!(
        "name fewer ports, at most {most} in all, or load what redirects them: modprobe -a nft_chain_nat nft_redir"
    );
    let message = format!(
        "network.allow names more ports than there can be listeners, and they cannot be redirected here: {why}"
    );
    Failure::new(Field::Network, message).hint(hint)
}

fn port(socket: &Socket) -> Option<u16> {
    match *socket {
        Socket::Listener(port) | Socket::Redirect(port) => Some(port),
        Socket::Resolver | Socket::Attempts { .. } | Socket::Inspector => None,
    }
}

/// Whether ports can be redirected here; asked of the kernel once.
pub fn redirects(versions: Versions) -> Result<(), String> {
    static KNOWN: OnceLock<Result<(), String>> = OnceLock::new();
    let ask = || {
        let mut capture = Capture::new(versions);
        capture.redirect(&[(1, u16::MAX)], 1, versions);
        capture::attempt(&capture).map_err(|(what, e)| format!("cannot {what}: {e}"))
    };
    KNOWN.get_or_init(ask).clone()
}

/// The variables that tell clients of the gateway's proxies, which nothing depends on. What the policy names in either
/// case is the policy's.
pub fn variables(policy: &Policy) -> Vec<(String, String)> {
    if policy.network.mode != NetworkMode::Allowlist {
        return Vec::new();
    }
    let proxy = format!("http://{INSIDE}:{HTTP_PROXY_PORT}");
    let any = format!("socks5h://{INSIDE}:{SOCKS_PORT}");
    let named = |name: &str| policy.command.variables.keys().any(|own| own.eq_ignore_ascii_case(name));
    let api = policy.network.api.as_ref().filter(|api| !policy.command.variables.contains_key(&api.variable));
    let mut list: Vec<(String, String)> =
        api.map(|api| (api.variable.clone(), format!("http://{INSIDE}:{API_PORT}"))).into_iter().collect();
    for (name, value) in [
        ("HTTP_PROXY", proxy.as_str()),
        ("HTTPS_PROXY", &proxy),
        ("ALL_PROXY", &any),
        ("NO_PROXY", "localhost,127.0.0.1,::1"),
    ] {
        if !named(name) {
            list.push((name.to_owned(), value.to_owned()));
            list.push((name.to_lowercase(), value.to_owned()));
        }
    }
    list
}

/// A sandbox that the gateway serves. Dropped, its connections end.
pub struct Egress {
    attached: Attached,
    watch: Watch,
}

impl Egress {
    /// What it tells while the run lives.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// What tells of repeated refusals before their time.
    pub fn repeats(&self) -> Repeats {
        self.attached.repeats()
    }

    /// Ends the sandbox's connections; what there was. Refusals that nobody has taken are put into the log.
    pub fn end(self, log: &mut Log) -> Network {
        let traffic = self.attached.end();
        self.watch.drain(log);
        let (events, lost) = self.watch.0.lock().records.take();
        Network {
            connections: traffic.connections,
            refused: traffic.refused,
            bytes_up: traffic.bytes_up,
            bytes_down: traffic.bytes_down,
            events,
            lost,
        }
    }
}

/// What the gateway has told so far, and a descriptor that is ready when a refusal waits to be taken.
pub struct Watch(Arc<Told>);

struct Told {
    state: Mutex<State>,
    wake: OwnedFd,
}

struct State {
    records: Records,
    waiting: Ledger<Event>,
}

/// What happened. What went out and what was refused have room of their own, so that neither hides the other.
struct Records {
    single: Vec<Event>,
    destinations: Ledger<Event>,
    refusals: Ledger<Event>,
}

impl Records {
    fn new() -> Records {
        Records { single: Vec::new(), destinations: Ledger::new(DESTINATIONS), refusals: Ledger::new(REFUSALS) }
    }

    fn add(&mut self, event: Event) {
        if !event.went_out() {
            self.refusals.add(event);
        } else if self.single.len() < MOST_SINGLE {
            self.single.push(event);
        } else {
            self.destinations.add(event);
        }
    }

    /// All of it in order, and how often something happened whose destination is not among it.
    fn take(&mut self) -> (Vec<Event>, u64) {
        let lost = self.destinations.aggregated() + self.refusals.aggregated();
        let mut events = std::mem::take(&mut self.single);
        events.extend(self.destinations.take());
        events.extend(self.refusals.take());
        // What was counted as one of too many comes later than it happened.
        events.sort_by_key(|event| event.at_ms);
        (events, lost)
    }
}

impl Told {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One event, from a thread of the gateway's.
    fn take(&self, event: Event) {
        let mut state = self.lock();
        if event.kind == Kind::Refused {
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

impl Watch {
    fn new() -> std::io::Result<Watch> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = State { records: Records::new(), waiting: Ledger::new(WAITING) };
        Ok(Watch(Arc::new(Told { state: Mutex::new(state), wake })))
    }

    /// Ready for reading while refusals wait.
    pub fn wakes(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }

    /// Puts the refusals that wait into the log; whether there were any.
    pub fn drain(&self, log: &mut Log) -> bool {
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

/// Where something was to go, as a person writes it.
pub fn destination(event: &Event) -> Option<String> {
    let host = match (&event.host, event.address) {
        (Some(host), _) => host.clone(),
        (None, Some(IpAddr::V6(v6))) if event.port.is_some() => format!("[{v6}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => return None,
    };
    Some(match event.port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_egress::event::{Reason, Via};

    fn refused(host: &str) -> Event {
        let reason = Some(Reason::NotAllowed);
        Event { host: Some(host.into()), port: Some(443), reason, ..Event::new(Kind::Refused, Via::Connect) }
    }

    fn ready(watch: &Watch) -> bool {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(watch.wakes(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
    }

    #[test]
    fn a_refusal_wakes_until_it_is_taken_and_other_events_do_not() {
        let watch = Watch::new().unwrap();
        watch.0.take(Event::new(Kind::Allowed, Via::Connect));
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
        let watch = Watch::new().unwrap();
        let at = |at_ms, event: Event| Event { at_ms, ..event };
        let failed = || Event { kind: Kind::Failed, ..refused("a.example") };
        watch.0.take(at(0, refused("a.example")));
        watch.0.take(at(10, refused("b.example")));
        watch.0.take(at(20, Event::new(Kind::Allowed, Via::Connect)));
        watch.0.take(at(30, Event::new(Kind::Allowed, Via::Connect)));
        watch.0.take(at(40, failed()));
        // The gateway's count of the second, which it tells at its end.
        watch.0.take(at(5, Event { count: 7, ..refused("a.example") }));
        watch.0.take(at(50, Event { reason: Some(Reason::Denied), ..refused("a.example") }));
        watch.0.take(at(5000, refused("a.example")));
        watch.0.take(at(5001, Event { count: 2, ..refused("a.example") }));
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
        let watch = Watch::new().unwrap();
        for i in 0..12_000 {
            watch.0.take(Event { count: 2, ..refused(&format!("h{i}.example")) });
        }
        let out = |kind, bytes_up| Event { address: at("93.184.216.34"), bytes_up, ..Event::new(kind, Via::Connect) };
        watch.0.take(out(Kind::Allowed, None));
        watch.0.take(out(Kind::Closed, Some(7)));
        watch.0.take(Event { host: None, address: at("169.254.169.254"), ..refused("") });
        let mut log = Log::new(&Policy::base());
        watch.drain(&mut log);
        let (events, lost) = watch.0.lock().records.take();
        assert!(events.len() < 1100, "{}", events.len());
        assert_eq!(events.iter().filter(|e| e.went_out()).count(), 2);
        assert_eq!(events.iter().filter(|e| e.address == at("169.254.169.254")).count(), 1);
        let refusals: u64 = events.iter().filter(|e| e.kind == Kind::Refused).map(|e| e.count).sum();
        assert_eq!(refusals, 24_001);
        assert_eq!(lost, events.iter().filter(|e| e.aggregated).map(|e| e.count).sum::<u64>());
        assert!(log.overflowed);
        let violations = log.into_violations();
        assert!(violations.iter().any(|v| v.object.as_deref() == Some("169.254.169.254:443")), "{violations:?}");
        assert_eq!(violations.iter().map(|v| v.count).sum::<u64>(), 24_001);
    }

    #[test]
    fn what_went_out_beyond_a_number_is_counted_for_each_destination() {
        let watch = Watch::new().unwrap();
        let out = |host: &str, bytes| Event {
            host: Some(host.into()),
            rule: Some("$.network.allow[0]".into()),
            bytes_up: Some(bytes),
            ..Event::new(Kind::Closed, Via::Connect)
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
        watch.0.take(Event { rule: Some("$.network.allow[1]".into()), ..out("last.test", 9) });
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

    #[test]
    fn destinations_read_as_a_person_writes_them() {
        let at = |host: Option<&str>, address: Option<&str>, port| {
            let (host, address) = (host.map(str::to_owned), address.map(|a| a.parse().unwrap()));
            destination(&Event { host, address, port, ..Event::new(Kind::Refused, Via::Connect) })
        };
        assert_eq!(at(Some("a.example"), Some("192.0.2.1"), Some(22)).as_deref(), Some("a.example:22"));
        assert_eq!(at(Some("a.example"), None, None).as_deref(), Some("a.example"));
        assert_eq!(at(None, Some("2001:db8::1"), Some(22)).as_deref(), Some("[2001:db8::1]:22"));
        assert_eq!(at(None, Some("192.0.2.1"), Some(22)).as_deref(), Some("192.0.2.1:22"));
        assert_eq!(at(None, None, Some(22)), None);
    }

    #[test]
    fn proxies_are_named_in_both_cases_unless_the_policy_names_one() {
        let mut policy = Policy::base();
        assert!(variables(&policy).is_empty());
        policy.network.mode = NetworkMode::Allowlist;
        policy.command.variables.insert("https_proxy".into(), String::new());
        let names: Vec<String> = variables(&policy).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]);
        let url = "http://127.0.0.1:8000/v1".parse().unwrap();
        policy.network.api = Some(policy::NetworkApi { url, variable: "ISCL_API_URL".into() });
        let api = ("ISCL_API_URL".to_owned(), "http://127.0.0.1:3129".to_owned());
        assert_eq!(variables(&policy).first(), Some(&api));
        policy.command.variables.insert("ISCL_API_URL".into(), "mine".into());
        assert!(!variables(&policy).contains(&api));
    }
}
