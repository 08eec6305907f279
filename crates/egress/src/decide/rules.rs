//! A policy's network rules, compiled, and their decisions about names, addresses, ports and requests. Pure.
//!
//! ```text
//! name ─▶ may it be resolved?     some port of it is allowed, and not all of those are denied
//! connect ─▶ may it go there?     no deny entry matches, some allow rule does: a Grant, which lists all of them
//! upstream ─▶ that very address?  public; private, by a rule for the name; or named by a Net entry that is no wider than
//!                                 what makes it special
//! request ─▶ this method, path?   every request of plain HTTP, by any rule of the Grant
//! ```
//!
//! Allow rules are a union and their order never matters; a deny entry wins over all of them.

use std::collections::HashMap;
use std::net::IpAddr;

use cofferdam_policy::allow::PLAIN_HTTP;
use cofferdam_policy::{AllowEntry, AllowRule, DenyEntry, Network, Ports, To, webpath};

use crate::decide::address::{canonical, embedded, is_of_private_network, range};
use crate::decide::host_name::Name;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::socket_layout::{SocketLayout, TooManyPorts};

/// What a program wants to reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EgressTarget {
    /// A name that it resolved, or gave to a proxy.
    Name(Name),
    /// An address that it used without resolving a name.
    Address(IpAddr),
}

/// A connection that may be made, and what allowed it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// Index in `network.allow` of the first rule that matched.
    pub rule: usize,
    /// Indices of all rules that matched, ascending: a request is allowed if one of them allows it.
    pub rules: Vec<usize>,
    /// A ClientHello may hide its server name (ECH).
    pub encrypted_hello: bool,
    /// Every rule that matched inspects requests: a stream that is neither HTTP nor TLS must not pass, since its
    /// requests cannot be inspected.
    pub inspected: bool,
    /// The rules inspect requests, and the port is one of plain HTTP: TLS must not pass either.
    pub plain_only: bool,
}

/// A policy's rules, compiled into indices by name and by network.
#[derive(Debug)]
pub struct EgressRules {
    allow: Vec<AllowRule>,
    deny: Vec<DenyEntry>,
    methods: Option<Vec<String>>,
    has_api: bool,
    allowed: Index,
    denied: Index,
}

impl EgressRules {
    /// Compiles a valid policy's rules. In another mode than `allowlist` nothing is allowed, whatever is listed.
    pub fn compile(network: &Network) -> EgressRules {
        let listed = network.mode == cofferdam_policy::NetworkMode::Allowlist;
        let allow = if listed { network.allow.clone() } else { Vec::new() };
        EgressRules {
            allowed: Index::of(allow.iter().map(|rule| &rule.entry)),
            denied: Index::of(network.deny.iter().map(|entry| &entry.0)),
            allow,
            deny: network.deny.clone(),
            methods: network.methods.clone(),
            has_api: listed && network.api.is_some(),
        }
    }

    /// Whether the resolver may answer for a name: on some port it is allowed and not denied.
    ///
    /// # Errors
    /// `NotAllowed`, or `Denied` with the entry that denies it.
    pub fn name(&self, name: &Name) -> Result<(), EgressRefusal> {
        let allowed = self.allowed.of_name(name.as_str());
        if allowed.is_empty() {
            return Err(EgressRefusal::of(NetworkReason::NotAllowed));
        }
        let denied = self.denied.of_name(name.as_str());
        let (Some(first), wanted) = (denied.first(), union(allowed.iter().map(|rule| &self.allow[*rule].entry.ports)))
        else {
            return Ok(());
        };
        match union(denied.iter().map(|entry| &self.deny[*entry].0.ports)).covers(&wanted) {
            true => Err(EgressRefusal::by_rule(NetworkReason::Denied, deny_path(*first))),
            false => Ok(()),
        }
    }

    /// Whether a connection may be made, as far as its target and port say.
    ///
    /// # Errors
    /// `Denied`, `PortNotAllowed` or `NotAllowed`, with the line that decided; `AddressNotPublic` for loopback and the
    /// unspecified address, whatever is listed: inside they are the sandbox itself.
    pub fn connect(&self, to: &EgressTarget, port: u16) -> Result<Grant, EgressRefusal> {
        self.denied(to, port)?;
        let about = match to {
            EgressTarget::Name(name) => self.allowed.of_name(name.as_str()),
            EgressTarget::Address(address) => {
                let address = canonical(*address);
                if address.is_loopback() || address.is_unspecified() {
                    return Err(
                        EgressRefusal::of(NetworkReason::AddressNotPublic).detail("inside, it is the sandbox itself")
                    );
                }
                self.allowed.of_address(address)
            }
        };
        let rules: Vec<usize> =
            about.iter().copied().filter(|rule| self.allow[*rule].entry.ports.contains(port)).collect();
        let Some(rule) = rules.first().copied() else {
            let Some(other) = about.first() else {
                return Err(EgressRefusal::of(NetworkReason::NotAllowed));
            };
            let ports = union(about.iter().map(|rule| &self.allow[*rule].entry.ports));
            return Err(EgressRefusal::by_rule(NetworkReason::PortNotAllowed, allow_path(*other))
                .detail(format!("allowed are {ports}")));
        };
        let matched = || rules.iter().map(|rule| &self.allow[*rule]);
        let inspected = self.methods.is_some() || matched().all(AllowRule::inspects);
        Ok(Grant {
            rule,
            encrypted_hello: matched().any(|rule| rule.encrypted_hello),
            inspected,
            plain_only: inspected && PLAIN_HTTP.contains(&port),
            rules,
        })
    }

    /// Whether an entry of `network.deny` matches. Also used for the server name in a ClientHello to a bare address.
    ///
    /// # Errors
    /// `Denied`, with the entry.
    pub fn denied(&self, to: &EgressTarget, port: u16) -> Result<(), EgressRefusal> {
        let about = match to {
            EgressTarget::Name(name) => self.denied.of_name(name.as_str()),
            EgressTarget::Address(address) => self.denied_address(*address),
        };
        match about.iter().find(|entry| self.deny[**entry].0.ports.contains(port)) {
            Some(entry) => Err(EgressRefusal::by_rule(NetworkReason::Denied, deny_path(*entry))),
            None => Ok(()),
        }
    }

    /// Whether the gateway may connect to an address of `to`: a public one, one of a private network where a rule for the
    /// name is `private`, or one that an entry of `network.allow` names. An entry names a special address only if it is no wider than the range that makes the address special:
    /// `8.0.0.0/5` does not name 10.0.0.1, and only its own address names a metadata service. No entry names an IPv4
    /// address embedded in IPv6: it has to name the IPv4 address. An entry with methods or paths names an address only
    /// to a connection made to the address itself: requests to a name are not checked against it.
    ///
    /// # Errors
    /// `Denied`, or `AddressNotPublic` with the kind of address.
    pub fn upstream(&self, to: &EgressTarget, port: u16, address: IpAddr) -> Result<(), EgressRefusal> {
        if let EgressTarget::Address(_) = to {
            self.denied(to, port)?;
        }
        self.denied(&EgressTarget::Address(address), port)?;
        match range(address) {
            Some((special, prefix))
                if !self.names_address(to, address, port, prefix) && !self.opens_private(to, port, address) =>
            {
                Err(self.not_public(address, port, prefix, &special.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The same for an address that is the host's own, public or not: an entry has to name that very address.
    ///
    /// # Errors
    /// As [`EgressRules::upstream`].
    pub fn upstream_own(&self, to: &EgressTarget, port: u16, address: IpAddr) -> Result<(), EgressRefusal> {
        self.denied(&EgressTarget::Address(address), port)?;
        let address = canonical(address);
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        if self.names_address(to, address, port, prefix) {
            return Ok(());
        }
        Err(self.not_public(address, port, prefix, "the host's own"))
    }

    /// Whether a request may be made on a granted connection: `path` begins with `/` and has no query, or is `*`.
    ///
    /// # Errors
    /// `MethodNotAllowed` or `PathNotAllowed`, with the list that does not contain it.
    pub fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), EgressRefusal> {
        let has = |list: &Option<Vec<String>>| list.as_ref().is_none_or(|list| list.iter().any(|one| one == method));
        if !has(&self.methods) {
            return Err(
                EgressRefusal::by_rule(NetworkReason::MethodNotAllowed, "$.network.methods".into()).detail(method)
            );
        }
        let fault = webpath::fault(path);
        let leads = |rule: &AllowRule| match &rule.paths {
            None => true,
            Some(paths) => fault.is_none() && paths.iter().any(|pattern| webpath::matches(pattern, path)),
        };
        // The nearest miss is reported: a rule that lists the method, else the first rule.
        let mut miss = None;
        for index in &grant.rules {
            let Some(rule) = self.allow.get(*index) else { continue };
            match (has(&rule.methods), leads(rule)) {
                (true, true) => return Ok(()),
                (true, false) => miss = miss.or(Some(*index)),
                (false, _) => {}
            }
        }
        Err(match (miss, fault) {
            (None, _) => {
                EgressRefusal::by_rule(NetworkReason::MethodNotAllowed, format!("{}.methods", allow_path(grant.rule)))
                    .detail(method)
            }
            (Some(rule), Some(fault)) => {
                EgressRefusal::by_rule(NetworkReason::PathNotAllowed, format!("{}.paths", allow_path(rule)))
                    .detail(fault)
            }
            (Some(rule), None) => {
                EgressRefusal::by_rule(NetworkReason::PathNotAllowed, format!("{}.paths", allow_path(rule)))
            }
        })
    }

    /// The ports that some allow rule names: sorted, merged, inclusive ranges.
    pub fn ports(&self) -> Vec<(u16, u16)> {
        union(self.allow.iter().map(|rule| &rule.entry.ports)).ranges().to_vec()
    }

    /// The sockets that the sandbox's namespace has for these ports.
    ///
    /// # Errors
    /// More ports are wanted than there may be listeners, and the namespace cannot redirect.
    pub fn layout(&self, can_redirect: bool) -> Result<SocketLayout, TooManyPorts> {
        SocketLayout::of(&self.ports(), self.has_api, can_redirect)
    }

    /// Whether an entry of `network.allow` that matches this address and port has a prefix at least that long, and
    /// holds for connections to `to`.
    fn names_address(&self, to: &EgressTarget, address: IpAddr, port: u16, prefix: u8) -> bool {
        self.allowed.of_address(address).iter().map(|rule| &self.allow[*rule]).any(|rule| {
            rule.entry.ports.contains(port)
                && matches!(rule.entry.to, To::Net { prefix: named, .. } if named >= prefix)
                && (matches!(to, EgressTarget::Address(_)) || !rule.inspects())
        })
    }

    /// Whether a rule for that very name says that it may lead to private addresses, and this is one. A rule with methods or
    /// paths does not, as with [`EgressRules::names_address`].
    fn opens_private(&self, to: &EgressTarget, port: u16, address: IpAddr) -> bool {
        let EgressTarget::Name(name) = to else { return false };
        is_of_private_network(address)
            && self.allowed.of_name(name.as_str()).iter().map(|rule| &self.allow[*rule]).any(|rule| {
                rule.private
                    && !rule.inspects()
                    && rule.entry.ports.contains(port)
                    && matches!(rule.entry.to, To::Host { .. })
            })
    }

    /// The refusal of an address. Says so where an entry names it for connections to the address alone.
    fn not_public(&self, address: IpAddr, port: u16, prefix: u8, what: &str) -> EgressRefusal {
        let mut detail = format!("{address} is {what}");
        if self.names_address(&EgressTarget::Address(address), address, port, prefix) {
            detail += ", and the entry that names it has methods or paths: it lets no name lead there";
        }
        EgressRefusal::of(NetworkReason::AddressNotPublic).detail(detail)
    }

    /// The deny entries that match an address, or an IPv4 address embedded in it.
    fn denied_address(&self, address: IpAddr) -> Vec<usize> {
        let mut about = self.denied.of_address(address);
        if let Some(v4) = embedded(address) {
            about.extend(self.denied.of_address(v4.into()));
            about.sort_unstable();
            about.dedup();
        }
        about
    }
}

fn allow_path(index: usize) -> String {
    format!("$.network.allow[{index}]")
}

fn deny_path(index: usize) -> String {
    format!("$.network.deny[{index}]")
}

fn union<'p>(ports: impl Iterator<Item = &'p Ports>) -> Ports {
    Ports::from_ranges(ports.flat_map(|ports| ports.ranges().iter().copied()))
}

/// Finds the entries that match a name or an address.
#[derive(Debug, Default)]
struct Index {
    hosts: HashMap<String, Vec<usize>>,
    suffixes: HashMap<String, Vec<usize>>,
    nets: Vec<(To, usize)>,
}

impl Index {
    fn of<'e>(entries: impl Iterator<Item = &'e AllowEntry>) -> Index {
        let mut index = Index::default();
        for (number, entry) in entries.enumerate() {
            match &entry.to {
                To::Host { name } => index.hosts.entry(name.clone()).or_default().push(number),
                To::Suffix { suffix } => index.suffixes.entry(suffix.clone()).or_default().push(number),
                net @ To::Net { .. } => index.nets.push((net.clone(), number)),
            }
        }
        index
    }

    /// Ascending.
    fn of_name(&self, name: &str) -> Vec<usize> {
        let mut found: Vec<usize> = self.hosts.get(name).into_iter().flatten().copied().collect();
        // Every parent domain, but not the name itself.
        let above = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        found.extend(above.filter_map(|above| self.suffixes.get(above)).flatten().copied());
        found.sort_unstable();
        found
    }

    /// Ascending.
    fn of_address(&self, address: IpAddr) -> Vec<usize> {
        self.nets.iter().filter(|(net, _)| net.has_address(address)).map(|(_, number)| *number).collect()
    }
}
