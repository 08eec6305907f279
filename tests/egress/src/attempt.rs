//! The vocabulary in which an attempt to get round the gateway is written down. Data only.
//!
//! Texts may hold placeholders: `{canary}` (a word that is in no other trial and must not arrive), `{base}` (files of the
//! world), `{inside}` (scripts), `{attempt}` (as the first word of a call: the script that makes attempts).

/// What kind of way round it is.
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
    /// What the table calls it.
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

/// How a refusal is known besides the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The outcome has an event, refused or failed, for one of these reasons.
    Event(&'static [&'static str]),
    /// The program got this error, or said this, on standard error: the kernel refuses, and there is no event.
    Error(&'static [&'static str]),
    /// Either: what the kernel refuses first is nobody's event.
    Any(&'static [&'static str], &'static [&'static str]),
    /// Nothing is refused: what is answered inside, or looked for there and not found, is no event.
    Nothing,
}

/// What is allowed of the same thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twin {
    /// The same call under these options.
    Options(&'static [&'static str]),
    /// Another call under the same options.
    Call(&'static [&'static str]),
    /// Another call under other options.
    Both(&'static [&'static str], &'static [&'static str]),
    /// The same call and options from another policy.
    Policy(&'static str),
    /// The same call on the host, without a sandbox: the way is there.
    Outside,
    /// Another call on the host.
    OutsideCall(&'static [&'static str]),
}

/// One way round, and its twin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Unique, in words joined by `-`.
    pub name: &'static str,
    /// Its kind.
    pub class: Class,
    /// What is tried, for the table.
    pub what: &'static str,
    /// Options of the command: the rules.
    pub options: &'static [&'static str],
    /// A policy to start from, as JSON; empty for none.
    pub policy: &'static str,
    /// What runs inside.
    pub call: &'static [&'static str],
    /// What standard output has when it got out.
    pub wants: &'static str,
    /// How the refusal is known.
    pub told: Told,
    /// Addresses to which packets may go meanwhile, besides those of the resolver: what the rules allow.
    pub may: &'static [&'static str],
    /// What is allowed.
    pub twin: Twin,
    /// What the twin's standard output has; empty for the same.
    pub twin_wants: &'static str,
}

/// Addresses of allowed.test.
pub const ALLOWED: &[&str] = &["93.184.216.34", "2606:2800::1"];

/// What attempts have in common: one host is allowed, nothing goes anywhere, and an answer is the victim's.
pub const BASE: Attempt = Attempt {
    name: "",
    class: Class::Hosts,
    what: "",
    options: &["--allow", "allowed.test"],
    policy: "",
    call: &[],
    wants: "delivered",
    told: Told::Event(&["not_allowed"]),
    may: &[],
    twin: Twin::Outside,
    twin_wants: "",
};
