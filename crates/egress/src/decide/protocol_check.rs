//! What a captured connection speaks, from its first bytes, and whether the rules that allowed it admit that. Pure.
//!
//! ```text
//! first bytes ─┬─ TLS ──────▶ its server name must be the target's, and visible
//!              ├─ HTTP/1 ───▶ request by request (crate::http)
//!              ├─ HTTP/2 ───▶ refused: its requests are not inspected
//!              └─ neither ──▶ passes, unless every rule that matched inspects requests, or its first line is a request's
//! ```

use crate::decide::client_hello::{self, ClientHello};
use crate::decide::first_bytes::{self, FirstBytes};
use crate::decide::host_name::Name;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressRules, EgressTarget, Grant};

/// Detail of the refusal of a stream in which there is no request to inspect.
const INSPECTED: &str = "the rule looks into requests, and this is none in the clear";

/// How a connection goes on after its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The first bytes and all that follow are passed on, and looked at for a request line alone (`first_line`).
    Opaque,
    /// TLS. The ClientHello, of so many bytes, passes; what follows is watched for another one
    /// (`greeting_watch`).
    Tls(ClientHello, usize),
    /// HTTP/1 requests, each of which is inspected.
    Http,
    /// None: the program ended its stream before that was known. Nothing passes, and nothing is refused.
    CutOff,
}

/// Checks `bytes`, all that have come so far, of a connection to `target`. Returns none if more are needed; `ended`: no
/// more will come.
///
/// # Errors
/// The protocol, or the server name in it, is refused.
pub(crate) fn check(
    bytes: &[u8],
    ended: bool,
    rules: &EgressRules,
    target: &EgressTarget,
    port: u16,
    grant: &Grant,
) -> Result<Option<Protocol>, EgressRefusal> {
    let refuse = |reason, why: &str| Err(EgressRefusal::because(reason, why));
    match first_bytes::classify(bytes) {
        FirstBytes::More if !ended => Ok(None),
        FirstBytes::More if grant.inspected => Ok(Some(Protocol::CutOff)),
        FirstBytes::Opaque if grant.inspected => refuse(NetworkReason::BadRequest, INSPECTED),
        // Shorter than any request or ClientHello: of no protocol that is inspected.
        FirstBytes::More | FirstBytes::Opaque => Ok(Some(Protocol::Opaque)),
        FirstBytes::Http => Ok(Some(Protocol::Http)),
        FirstBytes::Http2 => refuse(NetworkReason::Http2NotInspected, "HTTP/2 without TLS"),
        FirstBytes::Tls if grant.plain_only => refuse(NetworkReason::BadRequest, INSPECTED),
        FirstBytes::Tls => match client_hello::measured(bytes) {
            Ok(None) if ended => Ok(Some(Protocol::CutOff)),
            Ok(None) if bytes.len() >= client_hello::MOST => refuse(NetworkReason::BadHello, "longer than 64 KiB"),
            Ok(None) => Ok(None),
            Err(why) => refuse(NetworkReason::BadHello, why),
            Ok(Some((hello, length))) => {
                check_server_name(&hello, rules, target, port, grant)?;
                Ok(Some(Protocol::Tls(hello, length)))
            }
        },
    }
}

/// Checks a ClientHello that follows the first one, which the server asked for: by the same rules, and it has the name of
/// the first, also where both are allowed.
///
/// # Errors
/// It is refused.
pub(crate) fn check_another_hello(
    first: &ClientHello,
    another: &ClientHello,
    rules: &EgressRules,
    target: &EgressTarget,
    port: u16,
    grant: &Grant,
) -> Result<(), EgressRefusal> {
    check_server_name(another, rules, target, port, grant)?;
    if another.server_name == first.server_name {
        return Ok(());
    }
    let name = another.server_name.as_deref().unwrap_or("none");
    Err(EgressRefusal::because(NetworkReason::ServerNameMismatch, format!("{name}, in a second greeting")))
}

/// Whether a ClientHello is for the host that the connection is for.
fn check_server_name(
    hello: &ClientHello,
    rules: &EgressRules,
    target: &EgressTarget,
    port: u16,
    grant: &Grant,
) -> Result<(), EgressRefusal> {
    if hello.encrypted {
        // The visible name is not the one that counts; the rule says whether that is accepted.
        return match grant.encrypted_hello {
            true => Ok(()),
            false => Err(EgressRefusal::because(NetworkReason::EncryptedHello, "the greeting hides the server's name")),
        };
    }
    let given = match &hello.server_name {
        Some(given) => Some(Name::parse(given.as_bytes()).map_err(|why| {
            EgressRefusal::because(NetworkReason::ServerNameMismatch, format!("{}: {why}", given.escape_default()))
        })?),
        None => None,
    };
    match (target, given) {
        (EgressTarget::Name(name), Some(given)) if *name == given => Ok(()),
        (EgressTarget::Name(_), Some(given)) => {
            Err(EgressRefusal::because(NetworkReason::ServerNameMismatch, given.as_str()))
        }
        (EgressTarget::Name(_), None) => {
            Err(EgressRefusal::because(NetworkReason::ServerNameMissing, "the greeting names no server"))
        }
        (EgressTarget::Address(_), None) => Ok(()),
        // The server at an allowed address may have any name, except one that is denied.
        (EgressTarget::Address(_), Some(given)) => rules.denied(&EgressTarget::Name(given), port),
    }
}
