//! What the gateway tells of each attempt: data, and the words for why one was refused. Decides nothing.

use std::net::IpAddr;

use serde::Serialize;

use crate::address::{self, Special};
use crate::ledger::Entry;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A connection goes out.
    Allowed,
    /// Nothing goes out; `reason` says why, `rule` which line of the policy.
    Refused,
    /// It was allowed and could not be: `reason` says what upstream did.
    Failed,
    /// An allowed connection ended; the byte counts are final.
    Closed,
    /// A request to the API that the policy passes through.
    ApiRequest,
}

/// How a program went about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// It asked the resolver.
    Dns,
    /// It connected to an address, as any client does.
    Connect,
    /// It asked the HTTP proxy, by CONNECT or with an absolute URL.
    HttpProxy,
    /// It asked the SOCKS proxy.
    Socks,
    /// It used the API that is passed through.
    Api,
}

/// Why something was refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// No entry of `network.allow` is about it.
    NotAllowed,
    /// An entry of `network.deny` is about it.
    Denied,
    /// An entry is about the host, but not about this port.
    PortNotAllowed,
    /// The name is not one, or is an address in a spelling that programs read differently.
    BadName,
    /// A query that is malformed, or of a kind that is not answered.
    BadQuery,
    /// This sandbox has asked for as many names as it may.
    TooManyNames,
    /// No name was asked for before this synthetic address was used.
    UnknownAddress,
    /// What the name resolves to is private, local, reserved or the host's own, and no entry names that address.
    AddressNotPublic,
    /// The name in the TLS greeting is another one.
    ServerNameMismatch,
    /// The TLS greeting has no name.
    ServerNameMissing,
    /// The TLS greeting hides its name (Encrypted Client Hello, or what looks like it).
    EncryptedHello,
    /// The TLS greeting cannot be read.
    BadHello,
    /// The request's host is another one.
    HostMismatch,
    /// The request cannot be read one way only.
    BadRequest,
    /// A rule's methods have not this one.
    MethodNotAllowed,
    /// A rule's paths have not this one.
    PathNotAllowed,
    /// HTTP/2 without TLS, whose requests are not looked into.
    Http2NotInspected,
    /// A request of the SOCKS proxy that is not CONNECT, or is malformed.
    BadProxyRequest,
    /// As many connections as the policy has.
    TooManyConnections,
    /// As many bytes as the policy has.
    TooManyBytes,
    /// The program began and did not go on.
    TimedOut,
    /// The name does not resolve.
    NotResolved,
    /// Upstream refused the connection, or cannot be reached.
    Unreachable,
    /// Upstream did not answer in time.
    UpstreamTimedOut,
    /// Upstream ended the connection by a reset.
    Reset,
    /// The gateway itself failed.
    Gateway,
}

impl Reason {
    /// As words, which follow what it is about and a colon.
    pub fn words(self) -> &'static str {
        match self {
            Reason::NotAllowed => "no entry of `network.allow` is about this host",
            Reason::PortNotAllowed => "`network.allow` has this host, but not this port",
            Reason::Denied => "an entry of `network.deny` is about it",
            Reason::AddressNotPublic => "its address is not public, and no entry of `network.allow` names that address",
            Reason::BadName => "that is no host name",
            Reason::BadQuery => "the query is not one that is answered",
            Reason::TooManyNames => "as many names were asked for as the policy has",
            Reason::UnknownAddress => "no name has this address",
            Reason::ServerNameMismatch => "the TLS greeting names another host",
            Reason::ServerNameMissing => "the TLS greeting names no host",
            Reason::EncryptedHello => "the TLS greeting hides the host's name",
            Reason::BadHello => "the TLS greeting cannot be read",
            Reason::HostMismatch => "the request is for another host than the connection",
            Reason::BadRequest => "the request cannot be read in one way only",
            Reason::MethodNotAllowed => "the rule does not have this method",
            Reason::PathNotAllowed => "the rule does not have this path",
            Reason::Http2NotInspected => "it is HTTP/2 without TLS, which is not looked into",
            Reason::BadProxyRequest => "the SOCKS proxy does not take this request",
            Reason::TooManyConnections => "there are as many connections as the policy has",
            Reason::TooManyBytes => "as many bytes have passed as the policy has",
            Reason::TimedOut => "the request did not go on in time",
            Reason::NotResolved => "the name does not resolve",
            Reason::Unreachable => "upstream cannot be reached",
            Reason::UpstreamTimedOut => "upstream did not answer in time",
            Reason::Reset => "upstream ended the connection",
            Reason::Gateway => "the gateway itself failed",
        }
    }
}

/// One thing that happened, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// What.
    pub kind: Kind,
    /// How the program went about it.
    pub via: Via,
    /// Number of the connection within its sandbox, which `allowed`, `closed` and requests share; 0 where there is none.
    pub connection: u64,
    /// The name it wanted, in lower case, without a final dot; what is no name is cut and escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The address: of upstream where one was connected to, else the one the program named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// JSON path of the policy's line that decided, such as `$.network.allow[2]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why, where something was refused or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// More about the reason: the other name, the method, the errno in words. Control characters escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Process, as the host numbers it, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Bytes from the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_up: Option<u64>,
    /// Bytes to the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_down: Option<u64>,
    /// Milliseconds from accept to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Method of a request that was looked into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path of such a request, without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Status of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Milliseconds since the sandbox was attached.
    pub at_ms: u64,
    /// How many times it happened; what repeats may be told as an event of its own, with the time of the first repeat.
    pub count: u64,
    /// When the last of them was, in milliseconds since the sandbox was attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<u64>,
    /// It counts what was about several destinations, for which there was no room; so it names none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aggregated: bool,
}

impl Event {
    /// An event of which nothing else is known yet.
    pub fn new(kind: Kind, via: Via) -> Event {
        Event {
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

    /// Whether something went out: what it says was allowed, and is never left out for what was refused.
    pub fn went_out(&self) -> bool {
        matches!(self.kind, Kind::Allowed | Kind::Closed | Kind::ApiRequest)
    }

    /// The kind of address it is about, where that is not a public one.
    pub fn special(&self) -> Option<Special> {
        let named = || self.host.as_ref().and_then(|host| host.trim_matches(['[', ']']).parse().ok());
        self.address.or_else(named).and_then(address::special)
    }
}

/// What has room of its own among events: how it went, why not, and by which line of the policy where it went out. The
/// kind of address is of it, so that attempts at a cloud's metadata service are not lost among others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Class {
    kind: Kind,
    via: Via,
    reason: Option<Reason>,
    special: Option<Special>,
    rule: Option<String>,
}

/// What makes two events equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    class: Class,
    host: Option<String>,
    address: Option<IpAddr>,
    port: Option<u16>,
    rule: Option<String>,
    method: Option<String>,
    status: Option<u16>,
}

impl Entry for Event {
    type Class = Class;
    type Key = Key;

    fn class(&self) -> Class {
        Class {
            kind: self.kind,
            via: self.via,
            reason: self.reason,
            special: if self.aggregated { None } else { self.special() },
            // One that refused may be any of the policy's, and says nothing that `reason` does not.
            rule: self.rule.clone().filter(|_| self.went_out()),
        }
    }

    fn key(&self) -> Key {
        Key {
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

    fn fold(&mut self, again: Event) {
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
            // Of several connections or requests, only what they have in common.
            (self.connection, self.duration_ms, self.path) = (0, None, None);
        }
    }

    fn aggregate(self) -> Event {
        Event {
            rule: self.rule.clone().filter(|_| self.went_out()),
            reason: self.reason,
            bytes_up: self.bytes_up,
            bytes_down: self.bytes_down,
            at_ms: self.at_ms,
            last_ms: self.last_ms,
            count: self.count,
            aggregated: true,
            ..Event::new(self.kind, self.via)
        }
    }

    fn is_aggregate(&self) -> bool {
        self.aggregated
    }
}

/// Where a sandbox's events go; called from the gateway's threads, so it must not block.
pub type Sink = std::sync::Arc<dyn Fn(Event) + Send + Sync>;
