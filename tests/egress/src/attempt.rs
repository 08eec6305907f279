//! The types by which an attempt to bypass the gateway is described. Data only.
//!
//! Texts may hold placeholders: `{canary}` (a word that is in no other trial and must not arrive), `{base}` (files of
//! the world), `{inside}` (scripts), `{attempt}` (as the first word of a call: the script that makes attempts).

/// The kind of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is named by its title")]
pub enum Class {
    Hosts,
    Names,
    Dns,
    Tls,
    Http,
    Proxies,
    Upstream,
    Protocols,
    Inside,
    Limits,
}

impl Class {
    /// Its title in the table.
    pub fn title(self) -> &'static str {
        match self {
            Class::Hosts => "Hosts, ports and addresses",
            Class::Names => "Spellings of names and addresses",
            Class::Dns => "DNS",
            Class::Tls => "TLS greetings",
            Class::Http => "HTTP requests",
            Class::Proxies => "The proxies",
            Class::Upstream => "Names that lead somewhere else",
            Class::Protocols => "Other protocols and sockets",
            Class::Inside => "The sandbox's own network",
            Class::Limits => "Limits, and other sandboxes",
        }
    }
}

/// The evidence of a refusal, besides the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The outcome has an event, refused or failed, for one of these reasons.
    Event(&'static [&'static str]),
    /// The program printed one of these errors: the kernel refuses, and there is no event.
    Error(&'static [&'static str]),
    /// Either: if the kernel refuses first, there is no event.
    Any(&'static [&'static str], &'static [&'static str]),
    /// Nothing is refused: it is answered inside the sandbox, or not found there, without an event.
    Nothing,
}

/// The positive control of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The same call under these options.
    Options(&'static [&'static str]),
    /// Another call under the same options.
    Call(&'static [&'static str]),
    /// Another call under other options.
    Both(&'static [&'static str], &'static [&'static str]),
    /// The same call and options from another policy.
    Policy(&'static str),
    /// The same call on the host, without a sandbox: it works.
    Outside,
    /// Another call on the host.
    OutsideCall(&'static [&'static str]),
}

/// An attempt, and its control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Unique, in words joined by `-`.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// What is tried, for the table.
    pub what: &'static str,
    /// Options of the command: the rules.
    pub options: &'static [&'static str],
    /// A policy to start from, as JSON; empty for none.
    pub policy: &'static str,
    /// What runs inside.
    pub call: &'static [&'static str],
    /// What standard output contains if it got out.
    pub wants: &'static str,
    /// The evidence of the refusal.
    pub evidence: Evidence,
    /// Addresses to which packets may go meanwhile, besides those of the resolver: what the rules allow.
    pub may: &'static [&'static str],
    /// The positive control.
    pub control: Control,
    /// What the control's standard output contains; empty for the same.
    pub control_wants: &'static str,
}

/// Addresses of allowed.test.
pub const ALLOWED: &[&str] = &["93.184.216.34", "2606:2800::1"];

/// The defaults of attempts: one host is allowed, no packet may leave, and an answer comes from the victim.
pub const BASE: Attempt = Attempt {
    name: "",
    class: Class::Hosts,
    what: "",
    options: &["--allow", "allowed.test"],
    policy: "",
    call: &[],
    wants: "delivered",
    evidence: Evidence::Event(&["not_allowed"]),
    may: &[],
    control: Control::Outside,
    control_wants: "",
};
