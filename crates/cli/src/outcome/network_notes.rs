//! Notes about the network: hosts that no rule allows, why the gateway refused a connection, and connections that failed.
//! Pure: outcome in, text out.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use cofferdam_engine::network_address::{
    Special, is_of_private_network, is_this_machine, not_offered, not_offered_name, special,
};
use cofferdam_engine::network_event::{NetworkEvent, NetworkKind, NetworkReason};
use cofferdam_engine::{Evidence, Outcome, Violation};
use cofferdam_policy::{AllowEntry, Field, NetworkMode, Ports, To};

use crate::args::values::allow_rules;

/// Most reasons, and most options in a hint, for one refusal.
const MOST_REASONS: usize = 5;

/// Kinds of addresses that are not named in notes: documentation uses them as placeholders.
const PLACEHOLDERS: [Special; 2] = [Special::Documentation, Special::Benchmark];

/// A host that the program tried to reach and that no rule allows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnlistedHost {
    /// Its name, or its address as rules write it.
    host: String,
    /// Its address, where the program used no name.
    address: Option<IpAddr>,
    /// The ports that the program tried; none where it only resolved the name.
    ports: BTreeSet<u16>,
    /// The objects of its violations.
    objects: BTreeSet<String>,
    /// The number of attempts.
    times: u64,
}

impl UnlistedHost {
    /// Whether the violation is about this host.
    pub(super) fn is_object_of(&self, violation: &Violation) -> bool {
        violation.evidence == Evidence::Gateway && violation.object.as_ref().is_some_and(|o| self.objects.contains(o))
    }

    /// The note about it.
    pub(super) fn text(&self) -> String {
        let times = if self.times > 1 { format!(", {} times", self.times) } else { String::new() };
        let kind = self.address.and_then(not_offered).or_else(|| {
            let address = self.address?;
            let known = special(address).filter(|special| !PLACEHOLDERS.contains(special))?;
            Some(format!("{address} is {known}"))
        });
        let kind = kind.or_else(|| not_offered_name(&self.host));
        let kind = kind.map_or(String::new(), |kind| format!(": {kind}"));
        format!("refused: {}{}{times}{kind}", self.host, ports(&self.ports))
    }

    /// The option that allows it. None for a cloud's metadata service, which gives out credentials, and for what the option
    /// does not take: a name that is none, or the port 0.
    pub(super) fn hint(&self) -> Option<String> {
        if is_this_machine(&self.host) {
            return Some(hint_for_host_loopback(self.ports.first().copied()));
        }
        let entry = self.entry();
        is_host_offered(&entry).then(|| format!("--allow {entry}"))
    }

    /// The entry that allows it, with no more ports than the program tried.
    fn entry(&self) -> String {
        let is_web = self.ports.iter().all(|port| [80, 443].contains(port));
        // An IPv6 address is in brackets only before a port.
        let host = match self.address {
            // Also where the program wrote it as IPv6.
            Some(IpAddr::V4(address)) => address.to_string(),
            _ if is_web => self.host.trim_matches(['[', ']']).to_owned(),
            _ => self.host.clone(),
        };
        format!("{host}{}", if is_web { String::new() } else { ports(&self.ports) })
    }
}

/// Where a connection that the network's mode refused would have gone.
fn refused_by_mode(violation: &Violation) -> Option<SocketAddr> {
    let by_mode = violation.operation == "connect" && violation.field.ends_with(Field::Network.name());
    violation.object.as_deref().filter(|_| by_mode)?.parse().ok()
}

/// Whether a hint may name this entry. What a program tried and its arguments, which can have the code in them, choose it: no
/// service that gives out the machine's credentials, no more than one host, and not all of its ports.
pub(super) fn is_host_offered(entry: &str) -> bool {
    let Ok(entry) = entry.parse::<AllowEntry>() else { return false };
    let one = match &entry.to {
        To::Host { name } => not_offered_name(name).is_none() && !is_this_machine(name),
        To::Suffix { .. } => false,
        To::Net { address, prefix } => {
            *prefix == if address.is_ipv4() { 32 } else { 128 } && not_offered(*address).is_none()
        }
    };
    one && entry.ports != Ports::all()
}

/// Whether a violation is a question to a resolver: the program looked for a host by its name, which the violation does not
/// have, and which only the program's own words tell.
pub(super) fn is_name_lookup(violation: &Violation) -> bool {
    refused_by_mode(violation).is_some_and(|to| to.port() == 53)
}

/// The option that allows the address of a refused connection, where the network's mode refused it.
pub(super) fn option_for_address(violation: &Violation, mode: NetworkMode) -> Option<String> {
    let to = refused_by_mode(violation)?;
    let address = to.ip().to_canonical();
    if address.is_loopback() {
        return (mode == NetworkMode::None).then(|| "--network loopback".to_owned());
    }
    let host = UnlistedHost {
        host: if address.is_ipv6() { format!("[{address}]") } else { address.to_string() },
        address: Some(address),
        ports: BTreeSet::from([to.port()]),
        objects: BTreeSet::new(),
        times: violation.count,
    };
    let instead = if mode == NetworkMode::Loopback { ", without --network loopback" } else { "" };
    Some(format!("{}{instead}", host.hint()?))
}

/// The option for a server on the host's loopback, and its address inside.
pub(super) fn hint_for_host_loopback(port: Option<u16>) -> String {
    let port = port.map_or_else(|| "PORT".to_owned(), |port| port.to_string());
    format!("--api http://127.0.0.1:{port}, for a server on the host's loopback; inside, its URL is in ISCL_API_URL")
}

fn ports(ports: &BTreeSet<u16>) -> String {
    let list: Vec<String> = ports.iter().map(u16::to_string).collect();
    if list.is_empty() { String::new() } else { format!(":{}", list.join(",")) }
}

/// The host of an event as rules write it; and the same with its port, as violations name it.
fn host_and_object(event: &NetworkEvent) -> Option<(String, String)> {
    let host = match (&event.host, event.address) {
        (Some(host), _) => host.clone(),
        (None, Some(IpAddr::V6(address))) => format!("[{address}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => return None,
    };
    let object = event.port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
    Some((host, object))
}

/// The reason of an event and its detail, on one line.
fn reason(event: &NetworkEvent) -> Option<String> {
    let words = event.reason?.words();
    Some(match event.detail.as_deref().map(|detail| detail.replace('\n', "; ")) {
        // The detail repeats the reason and adds the address.
        Some(detail) if event.reason == Some(NetworkReason::AddressNotPublic) => detail,
        Some(detail) if detail != words => format!("{words}: {detail}"),
        _ => words.to_owned(),
    })
}

/// Why the gateway refused it, behind a colon; and the options that allow it where only the address is refused.
pub(super) fn reasons(outcome: &Outcome, violation: &Violation) -> (String, Option<String>) {
    let (mut reasons, mut entries): (Vec<String>, Vec<String>) = Default::default();
    let events = outcome.network.iter().flat_map(|network| &network.events);
    for event in events.filter(|e| e.kind == NetworkKind::Refused && violation.evidence == Evidence::Gateway) {
        let is_about = host_and_object(event).is_some_and(|(_, object)| violation.object.as_ref() == Some(&object));
        // A refusal without a rule belongs to the field that would need one.
        if !is_about || event.rule.as_ref().is_some_and(|rule| *rule != violation.field) {
            continue;
        }
        reasons.extend(reason(event).filter(|why| !reasons.contains(why)));
        let option = address_option(event).or_else(|| greeting_option(event));
        entries.extend(option.filter(|entry| !entries.contains(entry)));
    }
    reasons.truncate(MOST_REASONS);
    entries.truncate(MOST_REASONS);
    let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    (why, (!entries.is_empty()).then(|| entries.join(" ")))
}

/// The option that allows a refused address, which is not public: by its name where the name may lead there, else by the
/// address, with its port. None for addresses that no rule makes reachable, and for those that give out a machine's credentials.
fn address_option(event: &NetworkEvent) -> Option<String> {
    let (address, port) = (event.address?.to_canonical(), event.port?);
    if event.reason == Some(NetworkReason::AddressNotPublic) && address.is_loopback() {
        return Some(hint_for_host_loopback(Some(port)));
    }
    let refused = event.reason == Some(NetworkReason::AddressNotPublic) && not_offered(address).is_none();
    let is_own = event.detail.as_deref().is_some_and(|detail| detail.contains("the host's own"));
    let name = event.host.as_ref().filter(|_| is_of_private_network(address) && !is_own);
    refused.then(|| match name {
        Some(name) if [80, 443].contains(&port) => format!("--allow-private {name}"),
        Some(name) => format!("--allow-private {name}:{port}"),
        None => format!("--allow {}", std::net::SocketAddr::new(address, port)),
    })
}

/// The option that allows a host whose name the greeting hides.
fn greeting_option(event: &NetworkEvent) -> Option<String> {
    let hides = event.reason == Some(NetworkReason::EncryptedHello);
    encrypted_hello(event.host.as_deref().filter(|_| hides)?, event.port?)
}

fn encrypted_hello(host: &str, port: u16) -> Option<String> {
    let entry = if port == 443 { host.to_owned() } else { format!("{host}:{port}") };
    allow_rules(&entry, str::to_owned).is_ok().then(|| format!("--allow-encrypted-hello {entry}"))
}

/// Allowed connections that failed, each with the number of attempts.
pub(super) fn failed_connections(outcome: &Outcome) -> Vec<(String, u64)> {
    let mut list: Vec<(String, u64)> = Vec::new();
    for event in outcome.network.iter().flat_map(|network| &network.events) {
        // A server may reset a connection at any time, and its client reports that.
        let is_reported = event.kind == NetworkKind::Failed && event.reason != Some(NetworkReason::Reset);
        let Some(((_, object), why)) = host_and_object(event).zip(reason(event)).filter(|_| is_reported) else {
            continue;
        };
        let text = format!("{object}: {why}");
        match list.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => *times += event.count,
            None => list.push((text, event.count)),
        }
    }
    list
}

/// The hosts that no rule allows and that a violation names, in the order of their first attempts.
pub(super) fn unlisted_hosts(outcome: &Outcome) -> Vec<UnlistedHost> {
    let mut hosts: Vec<UnlistedHost> = Vec::new();
    let events = outcome.network.iter().flat_map(|network| &network.events);
    for event in events.filter(|e| matches!(e.reason, Some(NetworkReason::NotAllowed | NetworkReason::PortNotAllowed)))
    {
        let Some((host, object)) = host_and_object(event) else { continue };
        let is_about = |v: &Violation| v.evidence == Evidence::Gateway && v.object.as_ref() == Some(&object);
        if !outcome.violations.iter().any(is_about) {
            continue;
        }
        let known = hosts.iter_mut().find(|known| known.host == host);
        let entry = match known {
            Some(known) => known,
            None => {
                let address = event.address.filter(|_| event.host.is_none()).map(|address| address.to_canonical());
                hosts.push(UnlistedHost { host, address, ports: BTreeSet::new(), objects: BTreeSet::new(), times: 0 });
                hosts.last_mut().expect("it was pushed")
            }
        };
        entry.ports.extend(event.port);
        entry.objects.insert(object);
        entry.times += event.count;
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_has_the_option_for_its_address() {
        let of = |object: &str, mode| {
            let violation = Violation {
                operation: "connect".into(),
                object: Some(object.into()),
                field: "$.network.mode".into(),
                evidence: Evidence::ArgumentAsRead,
                pid: 2,
                count: 1,
                aggregated: false,
            };
            option_for_address(&violation, mode)
        };
        for (object, hint) in [
            ("203.0.113.7:443", Some("--allow 203.0.113.7")),
            ("203.0.113.7:22", Some("--allow 203.0.113.7:22")),
            ("[::ffff:203.0.113.7]:22", Some("--allow 203.0.113.7:22")),
            ("[2606:2800::1]:22", Some("--allow [2606:2800::1]:22")),
            ("[2606:2800::1]:443", Some("--allow 2606:2800::1")),
            ("127.0.0.1:5432", Some("--network loopback")),
            ("[::1]:5432", Some("--network loopback")),
            ("169.254.169.254:80", None),
            ("socket", None),
        ] {
            assert_eq!(of(object, NetworkMode::None).as_deref(), hint, "{object}");
        }
        let instead = "--allow 203.0.113.7, without --network loopback";
        assert_eq!(of("203.0.113.7:443", NetworkMode::Loopback).as_deref(), Some(instead));
        assert_eq!(of("127.0.0.1:80", NetworkMode::Loopback), None);
    }

    #[test]
    fn hosts_of_arguments_are_offered_one_by_one_and_never_metadata() {
        for host in ["example.org", "example.org:8443", "203.0.113.7:22", "[2606:2800::1]:443", "10.1.2.3"] {
            assert!(is_host_offered(host), "{host}");
        }
        for host in [
            "169.254.169.254",
            "169.254.169.254:80",
            "[fd00:c1::a9fe:a9fe]:80",
            "metadata.google.internal",
            "host.docker.internal",
            "*.com",
            "example.org:*",
            "10.0.0.0/8",
            "",
        ] {
            assert!(!is_host_offered(host), "{host}");
        }
    }

    #[test]
    fn a_question_to_a_resolver_is_known_by_its_port() {
        let of = |operation: &str, object: &str, field: &str| {
            let evidence = Evidence::ArgumentAsRead;
            let (operation, field) = (operation.into(), field.into());
            let object = Some(object.into());
            is_name_lookup(&Violation { operation, object, field, evidence, pid: 2, count: 1, aggregated: false })
        };
        assert!(of("connect", "10.0.0.1:53", "$.network.mode"));
        assert!(of("connect", "[2001:db8::1]:53", "$.network.mode"));
        assert!(!of("connect", "10.0.0.1:443", "$.network.mode"));
        assert!(!of("connect", "10.0.0.1:53", "$.network.allow"));
        assert!(!of("sendto", "10.0.0.1:53", "$.network.mode"));
    }

    #[test]
    fn a_hidden_name_is_hinted_where_the_option_takes_it() {
        assert_eq!(encrypted_hello("a.test", 443).as_deref(), Some("--allow-encrypted-hello a.test"));
        assert_eq!(encrypted_hello("a.test", 8443).as_deref(), Some("--allow-encrypted-hello a.test:8443"));
        assert_eq!(encrypted_hello("b\\195\\188cher.test", 443), None);
    }

    #[test]
    fn a_hint_names_what_the_option_takes() {
        let of = |host: &str, address: Option<&str>, ports: &[u16]| {
            let address = address.map(|address| address.parse::<IpAddr>().unwrap().to_canonical());
            let (host, ports) = (host.to_owned(), ports.iter().copied().collect());
            UnlistedHost { host, address, ports, objects: BTreeSet::new(), times: 1 }
        };
        for (host, address, ports, expected) in [
            ("a.test", None, &[][..], Some("--allow a.test")),
            ("a.test", None, &[443, 8443], Some("--allow a.test:443,8443")),
            ("1.2.3.4", Some("1.2.3.4"), &[80], Some("--allow 1.2.3.4")),
            ("[::ffff:1.2.3.4]", Some("::ffff:1.2.3.4"), &[80], Some("--allow 1.2.3.4")),
            ("[::ffff:1.2.3.4]", Some("::ffff:1.2.3.4"), &[22], Some("--allow 1.2.3.4:22")),
            ("[2606:2800::1]", Some("2606:2800::1"), &[22], Some("--allow [2606:2800::1]:22")),
            ("[::ffff:169.254.169.254]", Some("::ffff:169.254.169.254"), &[80], None),
            ("a.test", None, &[0], None),
            ("b\\195\\188cher.test", None, &[], None),
            ("xn--bcher-kva.test", None, &[], Some("--allow xn--bcher-kva.test")),
            ("metadata.google.internal", None, &[80], None),
        ] {
            let host = of(host, address, ports);
            assert_eq!(host.hint().as_deref(), expected, "{host:?}");
        }
        let metadata = of("metadata.google.internal", None, &[80]);
        assert!(metadata.text().contains("gives this machine's credentials to any client"), "{}", metadata.text());
    }
}
