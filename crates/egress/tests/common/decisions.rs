//! Invariants of any name, and of any rules and any question to them. Shared by the properties of this crate and the
//! fuzz targets; panics if one is violated.

use std::net::IpAddr;

use cofferdam_egress::address;
use cofferdam_egress::event::NetworkReason;
use cofferdam_egress::host_name::{Name, RequestedHost};
use cofferdam_egress::layout::{LayoutSocket, MOST_LISTENERS, SocketLayout};
use cofferdam_egress::rules::{EgressRules, EgressTarget};
use cofferdam_policy::{AllowRule, Network, NetworkMode, webpath};

/// A name: normalised, and never an address or `localhost`.
pub(crate) fn name(bytes: &[u8]) {
    let read = Name::parse(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        match RequestedHost::parse(text) {
            Ok(RequestedHost::Name(host)) => assert_eq!(read, Ok(host)),
            Ok(RequestedHost::Address(address)) => {
                assert!(read.is_err(), "{text:?} is a name and {address}");
                assert_eq!(
                    RequestedHost::parse(&RequestedHost::Address(address).to_string()),
                    Ok(RequestedHost::Address(address))
                );
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
    let Ok(name) = read else { return };
    let text = name.as_str();
    assert!(text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b)), "{text:?}");
    assert!(text.len() <= 253 && text.split('.').all(|label| (1..=63).contains(&label.len())), "{text:?}");
    assert!(!text.split('.').any(|label| label.starts_with('-') || label.ends_with('-')), "{text:?}");
    assert!(text != "localhost" && !text.ends_with(".localhost") && text.parse::<IpAddr>().is_err(), "{text:?}");
    let last = text.rsplit('.').next().unwrap();
    assert!(!last.bytes().all(|b| b.is_ascii_digit()), "{text:?} is an address to inet_aton");
    for spelling in [text.to_owned(), format!("{text}."), text.to_ascii_uppercase()] {
        assert_eq!(Name::parse(spelling.as_bytes()).as_ref(), Ok(&name), "{spelling:?}");
    }
    for tail in ["\0", "\0.example", "@a", ":80", "%25lo", "/", "..", " "] {
        assert!(Name::parse(format!("{text}{tail}").as_bytes()).is_err(), "{text:?} with {tail:?}");
    }
}

/// One question of [`rules`].
enum Question<'t> {
    Connect(EgressTarget, u16),
    Upstream(EgressTarget, u16, IpAddr),
    Request(EgressTarget, u16, &'t str, &'t str),
}

/// Rules and questions as lines: `allow TO [methods=…] [paths=…] [hello]`, `deny TO`, `methods …`, `connect HOST PORT`,
/// `upstream HOST PORT ADDRESS`, `request HOST PORT METHOD PATH`. Invalid lines are ignored.
pub(crate) fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut network = Network { mode: NetworkMode::Allowlist, ..Network::none() };
    let mut questions = Vec::new();
    for line in text.lines().take(64) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["allow", to, more @ ..] => network.allow.extend(rule(to, more)),
            ["deny", to] => network.deny.extend(to.parse()),
            ["methods", list] => network.methods = Some(list.split(',').map(str::to_owned).collect()),
            ["connect", host, port] => {
                questions.extend(place(host, port).map(|(target, port)| Question::Connect(target, port)));
            }
            ["upstream", host, port, address] => {
                let address = address.parse().ok();
                let asked = place(host, port).zip(address);
                questions.extend(asked.map(|((target, port), address)| Question::Upstream(target, port, address)));
            }
            ["request", host, port, method, path] => {
                let place = place(host, port);
                questions.extend(place.map(|(target, port)| Question::Request(target, port, method, path)));
            }
            _ => {}
        }
    }
    let compiled = EgressRules::compile(&network);
    let mut turned = network.clone();
    turned.allow.reverse();
    turned.deny.reverse();
    let turned = EgressRules::compile(&turned);
    layout(&compiled);
    assert_eq!(compiled.ports(), turned.ports());
    for question in questions {
        match question {
            Question::Connect(target, port) => connect(&network, [&compiled, &turned], &target, port),
            Question::Upstream(target, port, address) => {
                upstream(&network, [&compiled, &turned], &target, port, address);
            }
            Question::Request(target, port, method, path) => {
                request(&network, [&compiled, &turned], (&target, port), method, path);
            }
        }
    }
}

fn rule(to: &str, more: &[&str]) -> Option<AllowRule> {
    let mut rule: AllowRule = to.parse().ok()?;
    for word in more {
        let list = |list: &str| Some(list.split(',').map(str::to_owned).collect());
        match word.split_once('=') {
            Some(("methods", methods)) => rule.methods = list(methods),
            Some(("paths", paths)) => rule.paths = list(paths),
            _ if *word == "private" => rule.private = true,
            _ => rule.encrypted_hello = *word == "hello",
        }
    }
    Some(rule)
}

fn place(host: &str, port: &str) -> Option<(EgressTarget, u16)> {
    let target = match RequestedHost::parse(host).ok()? {
        RequestedHost::Name(name) => EgressTarget::Name(name),
        RequestedHost::Address(address) => EgressTarget::Address(address),
    };
    Some((target, port.parse().ok()?))
}

/// The answer of a linear search through the entries.
fn is_about(entry: &cofferdam_policy::AllowEntry, target: &EgressTarget, port: u16) -> bool {
    match target {
        EgressTarget::Name(name) => entry.matches_name(name.as_str(), port),
        EgressTarget::Address(address) => entry.matches_address(address.to_canonical(), port),
    }
}

fn is_denied(network: &Network, target: &EgressTarget, port: u16) -> bool {
    let hidden = match target {
        EgressTarget::Address(address) => address::embedded(*address),
        EgressTarget::Name(_) => None,
    };
    network.deny.iter().any(|entry| {
        let plain = match target {
            EgressTarget::Name(name) => entry.0.matches_name(name.as_str(), port),
            EgressTarget::Address(address) => entry.0.matches_address(*address, port),
        };
        plain || hidden.is_some_and(|v4| entry.0.matches_address(v4.into(), port))
    })
}

fn connect(network: &Network, compiled: [&EgressRules; 2], target: &EgressTarget, port: u16) {
    let denied = is_denied(network, target, port);
    let matching = |allow: &[AllowRule]| -> Vec<usize> {
        (0..allow.len()).filter(|index| is_about(&allow[*index].entry, target, port)).collect()
    };
    let matching = matching(&network.allow);
    let inside = matches!(target, EgressTarget::Address(address) if address.to_canonical().is_loopback() || address.to_canonical().is_unspecified());
    let answers = compiled.map(|rules| rules.connect(target, port));
    for answer in &answers {
        assert_eq!(answer.is_ok(), !denied && !inside && !matching.is_empty(), "{target:?} {port}: {answer:?}");
    }
    match &answers {
        [Ok(grant), Ok(other)] => {
            assert_eq!((&grant.rules, grant.rule), (&matching, matching[0]));
            let same =
                |g: &cofferdam_egress::rules::Grant| (g.encrypted_hello, g.inspected, g.plain_only, g.rules.len());
            assert_eq!(same(grant), same(other), "the order matters");
            let rules = || matching.iter().map(|rule| &network.allow[*rule]);
            assert_eq!(grant.encrypted_hello, rules().any(|rule| rule.encrypted_hello));
            assert_eq!(grant.inspected, network.methods.is_some() || rules().all(AllowRule::inspects));
            if let EgressTarget::Name(name) = target {
                assert_eq!(compiled[0].name(name), Ok(()), "what may be connected to is resolved");
            }
        }
        [Err(refusal), Err(other)] => {
            assert_eq!(refusal.reason, other.reason, "the order matters");
            assert_eq!(refusal.reason == NetworkReason::Denied, denied, "{refusal:?}");
            assert_eq!(
                refusal.rule.is_some(),
                matches!(refusal.reason, NetworkReason::Denied | NetworkReason::PortNotAllowed)
            );
        }
        _ => panic!("the order matters: {answers:?}"),
    }
    if let EgressTarget::Name(name) = target
        && compiled[0].name(name).is_ok()
    {
        let open = network.allow.iter().flat_map(|rule| rule.entry.ports.ranges().to_vec());
        let open = open.flat_map(|(first, last)| [first, last]);
        // Some port is open: one at an end of what is allowed, or one beside what is denied.
        let beside = network.deny.iter().flat_map(|entry| entry.0.ports.ranges().to_vec());
        let beside = beside.flat_map(|(first, last)| [first.saturating_sub(1).max(1), last.saturating_add(1)]);
        assert!(open.chain(beside).any(|port| compiled[0].connect(target, port).is_ok()), "{name} has no port");
    }
}

fn upstream(network: &Network, compiled: [&EgressRules; 2], target: &EgressTarget, port: u16, given: IpAddr) {
    let answers = compiled.map(|rules| rules.upstream(target, port, given).map_err(|refusal| refusal.reason));
    assert_eq!(answers[0], answers[1], "the order matters");
    let denied = is_denied(network, &EgressTarget::Address(given), port);
    if denied {
        assert_eq!(answers[0], Err(NetworkReason::Denied));
    }
    if answers[0].is_ok() && address::special(given).is_some() {
        let named = network.allow.iter().any(|rule| names(rule, target, port, given));
        let opened = address::is_of_private_network(given)
            && network.allow.iter().any(|rule| rule.private && !rule.inspects() && is_about(&rule.entry, target, port));
        assert!(named || opened, "{given} is {:?}, and nothing names it", address::special(given));
    }
    if !denied && matches!(target, EgressTarget::Name(_)) && address::special(given).is_none() {
        assert_eq!(answers[0], Ok(()), "{given} is public");
    }
    let own = compiled[0].upstream_own(target, port, given);
    assert!(own.is_err() || network.allow.iter().any(|rule| names(rule, target, port, given.to_canonical())));
}

/// Whether a rule may name an address for connections to a target.
fn names(rule: &AllowRule, target: &EgressTarget, port: u16, address: IpAddr) -> bool {
    rule.entry.matches_address(address, port) && (matches!(target, EgressTarget::Address(_)) || !rule.inspects())
}

fn request(network: &Network, compiled: [&EgressRules; 2], place: (&EgressTarget, u16), method: &str, path: &str) {
    let answers = compiled.map(|rules| {
        let grant = rules.connect(place.0, place.1).ok()?;
        Some(rules.request(&grant, method, path).map_err(|refusal| refusal.reason))
    });
    assert_eq!(answers[0], answers[1], "the order matters");
    let has = |list: &Option<Vec<String>>| list.as_ref().is_none_or(|list| list.iter().any(|one| one == method));
    let leads = |paths: &Option<Vec<String>>| {
        let one = |pattern: &String| webpath::matches(pattern, path);
        paths.as_ref().is_none_or(|paths| webpath::fault(path).is_none() && paths.iter().any(one))
    };
    let about = network.allow.iter().filter(|rule| is_about(&rule.entry, place.0, place.1));
    let fits = has(&network.methods) && about.clone().any(|rule| has(&rule.methods) && leads(&rule.paths));
    if let Some(answer) = &answers[0] {
        assert_eq!(answer.is_ok(), fits, "{place:?} {method} {path}: {answer:?}");
    }
}

/// A layout has a socket for every port that rules name, none twice, and no more than the limit.
fn layout(rules: &EgressRules) {
    let wanted = rules.ports();
    let is_wanted = |port: u16| wanted.iter().any(|(first, last)| (*first..=*last).contains(&port));
    let Ok(SocketLayout { sockets, redirected }) = rules.layout(true) else { panic!("whoever can redirect has room") };
    let mut listened: Vec<u16> = sockets
        .iter()
        .filter_map(|socket| match socket {
            LayoutSocket::Listener(port) | LayoutSocket::Redirect(port) => Some(*port),
            LayoutSocket::Resolver | LayoutSocket::Attempts { .. } | LayoutSocket::Inspector => None,
        })
        .collect();
    let redirects = sockets.iter().filter(|socket| matches!(socket, LayoutSocket::Redirect(_))).count();
    assert_eq!(redirects, usize::from(!redirected.is_empty()));
    assert!(listened.len() <= MOST_LISTENERS && sockets[0] == LayoutSocket::Resolver);
    let many = listened.len();
    listened.sort_unstable();
    listened.dedup();
    assert_eq!(listened.len(), many, "a port has two listeners");
    let is_redirected = |port: u16| redirected.iter().any(|(first, last)| (*first..=*last).contains(&port));
    for port in 1..=u16::MAX {
        let listens = listened.binary_search(&port).is_ok();
        assert!(!(listens && is_redirected(port)), "{port} is listened on and redirected");
        assert!(!is_wanted(port) || listens || is_redirected(port), "{port} is wanted, and nothing is there");
        assert!(!is_redirected(port) || is_wanted(port), "{port} is redirected, and nobody wants it");
    }
    assert!(redirected.windows(2).all(|pair| pair[0].1 < pair[1].0), "{redirected:?}");
    match rules.layout(false) {
        Ok(plain) => assert_eq!(plain, SocketLayout { sockets, redirected: Vec::new() }),
        Err(too_many) => assert!(redirects == 1 && too_many.wanted > MOST_LISTENERS),
    }
}
