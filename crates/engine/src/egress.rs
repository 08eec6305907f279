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

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cofferdam_confine::capture::{self, Capture, Version, Versions};
use cofferdam_egress::event::{Event, Kind};
use cofferdam_egress::gateway::{Attached, Gateway, Job, Repeats};
use cofferdam_egress::layout::{API_PORT, HTTP_PROXY_PORT, INSIDE, Layout, SOCKS_PORT, Socket};
use cofferdam_egress::process::can_inspect;
use cofferdam_egress::rules::Rules;
use cofferdam_policy::{self as policy, Field, NetworkMode, Policy};
use rustix::event::{EventfdFlags, eventfd};

use crate::evidence::Log;
use crate::outcome::{Applied, Failure, Network, Strength};

/// Events kept of a run; more are counted.
const MOST_EVENTS: usize = 1000;
/// Within how long what repeats is counted on the event that it repeats, milliseconds; as long as the gateway counts it.
const REPEATS_MS: u64 = 1000;
/// Refusals that wait for the supervisor; what comes while it does not look is counted.
const MOST_WAITING: usize = 4096;

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
        let failed = |what: &str, e: std::io::Error| refuse(&format!("{what}: {e}"), None);
        let watch = Watch::new().map_err(|e| failed("cannot make what the gateway tells of", e))?;
        let gateway = Gateway::shared().map_err(|e| failed("cannot start the egress gateway", e))?;
        let told = Arc::clone(&watch.0);
        let (rules, layout) = (Arc::clone(&self.rules), self.layout.clone());
        let sink = Arc::new(move |event| told.take(event));
        let job = Job::new(network, rules, layout, sink, u32::try_from(init).ok())
            .map_err(|e| Failure { step: Field::Api.name().into(), ..refuse(&e.to_string(), None) })?;
        Ok(Egress { attached: gateway.attach(letters, job), watch })
    }
}

fn refuse(message: &str, hint: Option<String>) -> Failure {
    Failure { code: 125, step: Field::Network.name().into(), message: message.into(), hint }
}

fn too_many(why: &str) -> Failure {
    let most = cofferdam_egress::layout::MOST_LISTENERS;
    let hint = format!(
        "name fewer ports, at most {most} in all, or load what redirects them: modprobe -a nft_chain_nat nft_redir"
    );
    refuse(
        &format!(
            "network.allow names more ports than there can be listeners, and they cannot be redirected here: {why}"
        ),
        Some(hint),
    )
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
        let mut told = self.watch.0.lock();
        // What was counted as one of too many comes later than it happened.
        told.events.sort_by_key(|event| event.at_ms);
        Network {
            connections: traffic.connections,
            refused: traffic.refused,
            bytes_up: traffic.bytes_up,
            bytes_down: traffic.bytes_down,
            events: std::mem::take(&mut told.events),
            lost: told.lost,
        }
    }
}

/// What the gateway has told so far, and a descriptor that is ready when a refusal waits to be taken.
pub struct Watch(Arc<Told>);

struct Told {
    state: Mutex<State>,
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// Events that are not kept.
    lost: u64,
    refused: VecDeque<Event>,
    /// Refusals that were not kept.
    overflowed: bool,
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
            let wakes = state.refused.is_empty();
            if state.refused.len() < MOST_WAITING {
                state.refused.push_back(event.clone());
            } else {
                state.overflowed = true;
            }
            if wakes && let Err(e) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
                debug_assert!(false, "an eventfd of ours cannot be written: {e}"); // the end of the run drains as well
            }
        }
        if let Some(earlier) = state.events.iter_mut().rev().find(|earlier| repeats(&event, earlier)) {
            earlier.count += event.count;
        } else if state.events.len() < MOST_EVENTS {
            state.events.push(event);
        } else {
            state.lost += event.count;
        }
    }
}

/// Whether the gateway tells of the same as before, so that it is counted there.
fn repeats(event: &Event, earlier: &Event) -> bool {
    let same = |a: &Event, b: &Event| {
        (a.kind, a.via, a.port, a.address, a.reason) == (b.kind, b.via, b.port, b.address, b.reason)
            && (&a.host, &a.rule) == (&b.host, &b.rule)
    };
    matches!(event.kind, Kind::Refused | Kind::Failed)
        && event.at_ms.saturating_sub(earlier.at_ms) <= REPEATS_MS
        && same(event, earlier)
}

impl Watch {
    fn new() -> std::io::Result<Watch> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Watch(Arc::new(Told { state: Mutex::default(), wake })))
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
        let any = !state.refused.is_empty();
        for event in state.refused.drain(..) {
            log.gateway(&event);
        }
        log.overflowed |= std::mem::take(&mut state.overflowed);
        any
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
        let told: Vec<_> = log.violations().iter().map(|v| v.object.as_deref().unwrap()).collect();
        assert_eq!(told, ["a.example:443", "b.example:443"]);
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
        let told: Vec<_> = watch.0.lock().events.iter().map(|e| (e.at_ms, e.count)).collect();
        assert_eq!(told, [(0, 8), (10, 1), (20, 1), (30, 1), (40, 1), (50, 1), (5000, 3)]);
        // The refusals that the violations are made of are all there.
        let mut log = Log::new(&Policy::base());
        watch.drain(&mut log);
        let counts: Vec<_> = log.violations().iter().map(|v| (v.object.as_deref().unwrap(), v.count)).collect();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 13, "{counts:?}");
    }

    #[test]
    fn events_are_bounded_and_what_is_not_kept_is_counted() {
        let watch = Watch::new().unwrap();
        for i in 0..MOST_WAITING + 10 {
            watch.0.take(Event { count: 2, ..refused(&format!("h{i}.example")) });
        }
        let state = watch.0.lock();
        assert_eq!((state.events.len(), state.lost), (MOST_EVENTS, 2 * (MOST_WAITING + 10 - MOST_EVENTS) as u64));
        drop(state);
        let mut log = Log::new(&Policy::base());
        watch.drain(&mut log);
        assert!(log.overflowed);
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
