//! The answer that a refused request gets, and the event beside it: the same words. Decides nothing.

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::address::not_offered;
use crate::event::{Event, Kind, Reason, Via};
use crate::http::authority::Authority;
use crate::http::door::Door;
use crate::http::forward::Outgoing;
use crate::http::head::Fault;
use crate::http::request::{Wrong, shown};
use crate::rules::{Refusal, Target};

/// A request that goes no further.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) refusal: Refusal,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        let status = match refusal.reason {
            Reason::BadRequest | Reason::BadName => StatusCode::BAD_REQUEST,
            Reason::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Reason::NotResolved | Reason::Unreachable | Reason::Reset | Reason::Gateway => StatusCode::BAD_GATEWAY,
            Reason::UpstreamTimedOut => StatusCode::GATEWAY_TIMEOUT,
            Reason::TooManyConnections | Reason::TooManyNames | Reason::TooManyBytes => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::FORBIDDEN,
        };
        Refused { status, refusal }
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        let reason = if fault == Fault::TimedOut { Reason::TimedOut } else { Reason::BadRequest };
        let mut refused = Refused::from(Refusal { reason, rule: None, detail: Some(fault.to_string()) });
        if matches!(fault, Fault::TooLong | Fault::TooManyHeaders) {
            refused.status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        }
        refused
    }
}

impl From<Wrong> for Refused {
    fn from(wrong: Wrong) -> Refused {
        Refused::from(Refusal { reason: Reason::BadRequest, rule: None, detail: Some(wrong.0) })
    }
}

impl Refused {
    /// A request whose host is not where its connection, or its URL, leads.
    pub(crate) fn mismatch(host: &Authority, target: &Target, port: u16) -> Refused {
        let there = Authority { target: target.clone(), port: Some(port) };
        let detail = format!("Host `{host}` on a connection to {there}");
        Refused::from(Refusal { reason: Reason::HostMismatch, rule: None, detail: Some(detail) })
    }
}

impl Refused {
    /// An answer of upstream's that cannot be passed on.
    pub(crate) fn odd_answer(what: &str) -> Refused {
        Refused::from(Refusal {
            reason: Reason::Gateway,
            rule: None,
            detail: Some(format!("upstream answered {what}")),
        })
    }

    /// A request that passed the checks here and could not be read nevertheless.
    pub(crate) fn unread(error: &hyper::Error) -> Refused {
        Refused::from(Refusal { reason: Reason::BadRequest, rule: None, detail: Some(error.to_string()) })
    }
}

/// Where a request was to go, as far as that is known, and what it was.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) via: Via,
    pub(crate) to: Option<(Target, u16)>,
    pub(crate) method: Option<String>,
    /// Without its query.
    pub(crate) path: Option<String>,
}

impl About {
    /// Nothing but how it came.
    pub(crate) fn nothing(via: Via) -> About {
        About { via, to: None, method: None, path: None }
    }

    /// An event about it.
    pub(crate) fn event(&self, kind: Kind) -> Event {
        let mut event = Event::new(kind, self.via);
        if let Some((target, port)) = &self.to {
            match target {
                Target::Name(name) => event.host = Some(name.as_str().to_owned()),
                Target::Address(address) => event.address = Some(*address),
            }
            event.port = Some(*port);
        }
        event.method = self.method.clone();
        event.path = self.path.as_deref().map(|path| shown(path.as_bytes()));
        event
    }
}

/// Whether a reason is upstream's or the gateway's doing, and no decision.
fn is_failure(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotResolved | Reason::Unreachable | Reason::UpstreamTimedOut | Reason::Reset | Reason::Gateway
    )
}

/// Tells of it.
pub(crate) fn tell(door: &dyn Door, about: &About, refusal: &Refusal) {
    let mut event = about.event(if is_failure(refusal.reason) { Kind::Failed } else { Kind::Refused });
    event.reason = Some(refusal.reason);
    event.rule = refusal.rule.clone();
    event.detail = refusal.detail.clone();
    door.event(event);
}

/// The answer: a status, one line, and the end of the connection.
pub(crate) fn answer(about: &About, refused: &Refused) -> Response<Outgoing> {
    let mut response =
        Response::new(Full::from(line(about, &refused.refusal)).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = refused.status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// What is refused, why, by which line of the policy, and what would allow it.
fn line(about: &About, refusal: &Refusal) -> String {
    let to = about.to.clone().map(|(target, port)| Authority { target, port: Some(port) }.to_string());
    let to = to.as_deref().unwrap_or("this request");
    let why = refusal.reason.words();
    let mut line = format!("cofferdam: {to}: {why}");
    if let Some(detail) = refusal.detail.as_deref().filter(|detail| *detail != why) {
        line.push_str(&format!(": {detail}"));
    }
    if let Some(rule) = &refusal.rule {
        line.push_str(&format!(" ({rule})"));
    }
    if let (Reason::NotAllowed | Reason::PortNotAllowed, Some((target, port))) = (refusal.reason, &about.to) {
        let unoffered = match target {
            Target::Address(address) => not_offered(*address),
            Target::Name(_) => None,
        };
        // As the command's own line after the run has it: an entry without ports is about these two.
        let entry = match (target, port) {
            (Target::Name(name), 80 | 443) => name.as_str().to_owned(),
            (Target::Address(address), 80 | 443) => address.to_string(),
            _ => to.to_owned(),
        };
        // Who reads it may have made a policy or a profile and no command line.
        let hint =
            || format!("; hint: --allow {entry}, `network.allow` of the policy, or `allowed_domains` of the profile");
        line.push_str(&unoffered.map_or_else(hint, |why| format!("; {why}")));
    }
    line.push('\n');
    line
}
