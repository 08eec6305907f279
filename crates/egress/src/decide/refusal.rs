//! Why the gateway refuses something: the reason codes, and a refusal with the line of the policy that decided. Data
//! only; the modules beside this one decide.

use serde::Serialize;

/// Why something was refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
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

impl Reason {
    /// Its message, which follows the host or address and a colon.
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

    /// Whether upstream or the gateway failed, as opposed to a decision.
    pub(crate) fn is_failure(self) -> bool {
        matches!(
            self,
            Reason::NotResolved | Reason::Unreachable | Reason::UpstreamTimedOut | Reason::Reset | Reason::Gateway
        )
    }
}

/// Why something is not allowed, or failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason code.
    pub reason: Reason,
    /// JSON path of the line of the policy that decided, if one did.
    pub rule: Option<String>,
    /// Details of the reason.
    pub detail: Option<String>,
}

impl Refusal {
    /// A refusal without details.
    pub fn of(reason: Reason) -> Refusal {
        Refusal { reason, rule: None, detail: None }
    }

    /// A refusal by a line of the policy.
    pub(crate) fn by_rule(reason: Reason, rule: String) -> Refusal {
        Refusal { reason, rule: Some(rule), detail: None }
    }

    /// A refusal of the gateway's own, by no line of the policy.
    pub fn because(reason: Reason, detail: impl Into<String>) -> Refusal {
        Refusal::of(reason).detail(detail)
    }

    /// The same refusal with a detail.
    pub fn detail(self, detail: impl Into<String>) -> Refusal {
        Refusal { detail: Some(detail.into()), ..self }
    }
}
