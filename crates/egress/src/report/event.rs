//! The gateway's events: what happened to each attempt of a program, as data. Decides nothing.

use std::net::IpAddr;

use serde::Serialize;

use crate::decide::address::{self, Special};
pub use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::EgressTarget;
use crate::report::ledger::LedgerEntry;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkKind {
    /// A connection to upstream.
    Allowed,
    /// Nothing was sent to upstream, for `reason`, by `rule` if a line of the policy decided.
    Refused,
    /// It was allowed, and upstream or the gateway failed, for `reason`.
    Failed,
    /// An allowed connection ended; the byte counts are final.
    Closed,
    /// A request to the API that the policy passes through.
    ApiRequest,
}

/// The service of the gateway that a program used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkVia {
    /// The resolver.
    Dns,
    /// None: a captured connection to an address.
    Connect,
    /// The HTTP proxy, by CONNECT or with an absolute URL.
    HttpProxy,
    /// The SOCKS proxy.
    Socks,
    /// The API that is passed through.
    Api,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkEvent {
    /// The kind.
    pub kind: NetworkKind,
    /// The service that the program used.
    pub via: NetworkVia,
    /// Number of the connection within its sandbox, which `allowed`, `closed` and requests share; 0 if there is none.
    pub connection: u64,
    /// The requested name, in lower case, without a final dot; text that is no name is truncated and escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The address: that of upstream if it was connected to, else the one that the program named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// JSON path of the line of the policy that decided, such as `$.network.allow[2]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why it was refused or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<NetworkReason>,
    /// Details of the reason: the other name, the method, the error of the system. Control characters are escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Process id, in the gateway's PID namespace, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Bytes from the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_up: Option<u64>,
    /// Bytes to the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_down: Option<u64>,
    /// Milliseconds from the connection to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Method of an inspected request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path of an inspected request, without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Status of its response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Milliseconds since the sandbox was attached.
    pub at_ms: u64,
    /// How many times it happened. Repeats may be reported as an event of their own, with the time of the first repeat.
    pub count: u64,
    /// Time of the last of them, in milliseconds since the sandbox was attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// It counts attempts to several destinations for which there was no room, and names none of them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

impl NetworkEvent {
    /// An event with nothing else filled in.
    pub fn new(kind: NetworkKind, via: NetworkVia) -> NetworkEvent {
        NetworkEvent {
            kind,
            via,
            connection: 0,
            host: None,
            address: None,
            port: None,
            rule: None,
            reason: None,
            detail: None,
            pid: None,
            bytes_up: None,
            bytes_down: None,
            duration_ms: None,
            method: None,
            path: None,
            status: None,
            at_ms: 0,
            count: 1,
            last_ms: None,
            aggregated: false,
        }
    }

    /// The refusal or failure of an attempt to reach `target`. `address` is the one that decided, if any.
    pub fn refused(
        via: NetworkVia,
        target: Option<&EgressTarget>,
        port: u16,
        refusal: EgressRefusal,
        address: Option<IpAddr>,
    ) -> NetworkEvent {
        let mut event = NetworkEvent::new(
            if refusal.reason.is_failure() { NetworkKind::Failed } else { NetworkKind::Refused },
            via,
        );
        if let Some(target) = target {
            event.set_target(target, port);
        }
        event.port = Some(port);
        event.address = address.or(event.address);
        (event.reason, event.rule, event.detail) = (Some(refusal.reason), refusal.rule, refusal.detail);
        event
    }

    /// Fills in the name or the address, and the port.
    pub(crate) fn set_target(&mut self, target: &EgressTarget, port: u16) {
        match target {
            EgressTarget::Name(name) => self.host = Some(name.as_str().to_owned()),
            EgressTarget::Address(address) => self.address = Some(*address),
        }
        self.port = Some(port);
    }

    /// Whether something was sent to upstream. Such events are never dropped in favour of refusals.
    pub fn went_out(&self) -> bool {
        matches!(self.kind, NetworkKind::Allowed | NetworkKind::Closed | NetworkKind::ApiRequest)
    }

    /// The special kind of its address, if that is not a public one.
    pub fn special(&self) -> Option<Special> {
        let named = || self.host.as_ref().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        self.address.or_else(named).and_then(address::special)
    }
}

/// The class of an event in a [`Ledger`](crate::report::ledger::Ledger): its kind, reason, and, if something was sent,
/// the line of the policy. The kind of address is part of it, so that attempts at a metadata service are not lost among
/// others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventClass {
    kind: NetworkKind,
    via: NetworkVia,
    reason: Option<NetworkReason>,
    special: Option<Special>,
    rule: Option<String>,
}

/// What makes two events equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventKey {
    class: EventClass,
    host: Option<String>,
    address: Option<IpAddr>,
    port: Option<u16>,
    rule: Option<String>,
    method: Option<String>,
    status: Option<u16>,
}

impl LedgerEntry for NetworkEvent {
    type Class = EventClass;
    type Key = EventKey;

    fn class(&self) -> EventClass {
        EventClass {
            kind: self.kind,
            via: self.via,
            reason: self.reason,
            special: if self.aggregated { None } else { self.special() },
            // The number of lines that refuse is not bounded by what was sent, and `reason` says the same.
            rule: self.rule.clone().filter(|_| self.went_out()),
        }
    }

    fn key(&self) -> EventKey {
        EventKey {
            class: self.class(),
            host: self.host.clone(),
            address: self.address,
            port: self.port,
            rule: self.rule.clone(),
            method: self.method.clone().filter(|_| self.went_out()),
            status: self.status.filter(|_| self.went_out()),
        }
    }

    fn count(&self) -> u64 {
        self.count
    }

    fn fold(&mut self, again: NetworkEvent) {
        if self.count == 0 {
            self.at_ms = again.at_ms;
        } else {
            self.last_ms = Some(again.last_ms.unwrap_or(again.at_ms).max(self.last_ms.unwrap_or(self.at_ms)));
        }
        self.count += again.count;
        let sum = |one: Option<u64>, two: Option<u64>| match (one, two) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(0).saturating_add(two.unwrap_or(0))),
        };
        self.bytes_up = sum(self.bytes_up, again.bytes_up);
        self.bytes_down = sum(self.bytes_down, again.bytes_down);
        if self.went_out() {
            // Several connections or requests have only the rest in common.
            (self.connection, self.duration_ms, self.path) = (0, None, None);
        }
    }

    fn aggregate(self) -> NetworkEvent {
        NetworkEvent {
            rule: self.rule.clone().filter(|_| self.went_out()),
            reason: self.reason,
            bytes_up: self.bytes_up,
            bytes_down: self.bytes_down,
            at_ms: self.at_ms,
            last_ms: self.last_ms,
            count: self.count,
            aggregated: true,
            ..NetworkEvent::new(self.kind, self.via)
        }
    }

    fn is_aggregate(&self) -> bool {
        self.aggregated
    }
}

/// Receives a sandbox's events; called from the gateway's threads, so it must not block.
pub type EventSink = std::sync::Arc<dyn Fn(NetworkEvent) + Send + Sync>;
