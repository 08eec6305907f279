//! Why the gateway refuses something: the reason codes, and a refusal with the line of the policy that decided. Data
//! only; the modules beside this one decide.

use std::net::IpAddr;

use serde::Serialize;

/// Why something was refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkReason {
    /// No entry of `network.allow` matches the host.
    NotAllowed,
    /// An entry of `network.deny` matches.
    Denied,
    /// An entry of `network.allow` matches the host, but not this port.
    PortNotAllowed,
    /// It is no host name, or an address in a spelling that programs read differently.
    BadName,
    /// A DNS query that is malformed, or of a type that is not answered.
    BadQuery,
    /// The sandbox has asked for as many names as the policy allows.
    TooManyNames,
    /// A synthetic address that stands for no name.
    UnknownAddress,
    /// The address is private, local, reserved or the host's own, and no entry of `network.allow` names it.
    AddressNotPublic,
    /// The server name in the TLS ClientHello is not the host of the connection.
    ServerNameMismatch,
    /// The TLS ClientHello has no server name.
    ServerNameMissing,
    /// The TLS ClientHello hides its server name (Encrypted Client Hello, or what looks like it).
    EncryptedHello,
    /// The TLS ClientHello cannot be parsed.
    BadHello,
    /// The request's Host is not the host of the connection.
    HostMismatch,
    /// The request is malformed or ambiguous.
    BadRequest,
    /// The rule does not list this method.
    MethodNotAllowed,
    /// The rule does not list this path.
    PathNotAllowed,
    /// HTTP/2 without TLS, whose requests cannot be inspected.
    Http2NotInspected,
    /// A request to the SOCKS proxy that is not CONNECT, or is malformed.
    BadProxyRequest,
    /// A limit of connections was reached.
    TooManyConnections,
    /// A limit of bytes was reached.
    TooManyBytes,
    /// The program did not continue in time.
    TimedOut,
    /// The name does not resolve.
    NotResolved,
    /// Upstream refused the connection, or cannot be reached.
    Unreachable,
    /// Upstream did not answer in time.
    UpstreamTimedOut,
    /// Upstream reset the connection.
    Reset,
    /// The gateway itself failed.
    Gateway,
}

impl NetworkReason {
    /// Its message, which follows the host or address and a colon.
    pub fn words(self) -> &'static str {
        match self {
            NetworkReason::NotAllowed => "no entry of `network.allow` is about this host",
            NetworkReason::PortNotAllowed => "`network.allow` has this host, but not this port",
            NetworkReason::Denied => "an entry of `network.deny` is about it",
            NetworkReason::AddressNotPublic => {
                "its address is not public, and no entry of `network.allow` names that address"
            }
            NetworkReason::BadName => "that is no host name",
            NetworkReason::BadQuery => "the query is not one that is answered",
            NetworkReason::TooManyNames => "as many names were asked for as the policy has",
            NetworkReason::UnknownAddress => "no name has this address",
            NetworkReason::ServerNameMismatch => "the TLS greeting names another host",
            NetworkReason::ServerNameMissing => "the TLS greeting names no host",
            NetworkReason::EncryptedHello => "the TLS greeting hides the host's name",
            NetworkReason::BadHello => "the TLS greeting cannot be read",
            NetworkReason::HostMismatch => "the request is for another host than the connection",
            NetworkReason::BadRequest => "the request cannot be read in one way only",
            NetworkReason::MethodNotAllowed => "the rule does not have this method",
            NetworkReason::PathNotAllowed => "the rule does not have this path",
            NetworkReason::Http2NotInspected => "it is HTTP/2 without TLS, which is not looked into",
            NetworkReason::BadProxyRequest => "the SOCKS proxy does not take this request",
            NetworkReason::TooManyConnections => "there are as many connections as the policy has",
            NetworkReason::TooManyBytes => "as many bytes have passed as the policy has",
            NetworkReason::TimedOut => "the request did not go on in time",
            NetworkReason::NotResolved => "the name does not resolve",
            NetworkReason::Unreachable => "upstream cannot be reached",
            NetworkReason::UpstreamTimedOut => "upstream did not answer in time",
            NetworkReason::Reset => "upstream ended the connection",
            NetworkReason::Gateway => "the gateway itself failed",
        }
    }

    /// Whether upstream or the gateway failed, as opposed to a decision.
    pub(crate) fn is_failure(self) -> bool {
        matches!(
            self,
            NetworkReason::NotResolved
                | NetworkReason::Unreachable
                | NetworkReason::UpstreamTimedOut
                | NetworkReason::Reset
                | NetworkReason::Gateway
        )
    }
}

/// Why something is not allowed, or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRefusal {
    /// The reason code.
    pub reason: NetworkReason,
    /// JSON path of the line of the policy that decided, if one did.
    pub rule: Option<String>,
    /// Details of the reason.
    pub detail: Option<String>,
    /// The address that decided, where a name led to it.
    pub address: Option<IpAddr>,
}

impl EgressRefusal {
    /// A refusal without details.
    pub fn of(reason: NetworkReason) -> EgressRefusal {
        EgressRefusal { reason, rule: None, detail: None, address: None }
    }

    /// A refusal by a line of the policy.
    pub(crate) fn by_rule(reason: NetworkReason, rule: String) -> EgressRefusal {
        EgressRefusal { reason, rule: Some(rule), detail: None, address: None }
    }

    /// A refusal of the gateway's own, by no line of the policy.
    pub fn because(reason: NetworkReason, detail: impl Into<String>) -> EgressRefusal {
        EgressRefusal::of(reason).detail(detail)
    }

    /// The same refusal with a detail.
    pub fn detail(self, detail: impl Into<String>) -> EgressRefusal {
        EgressRefusal { detail: Some(detail.into()), ..self }
    }
}
