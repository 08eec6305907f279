//! The answer that a refused request gets, and the event beside it: the same words. Decides nothing.

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::decide::address::not_offered;
use crate::decide::refusal::{Reason, Refusal};
use crate::decide::rules::Target;
use crate::http::authority::Authority;
use crate::http::interface::GatewayInterface;
use crate::http::request_head::Fault;
use crate::http::request_target::{InvalidRequest, shown};
use crate::http::upstream_client::BoxedBody;
use crate::report::event::{Event, Kind, Via};

/// A request that goes no further.
#[derive(Debug, Clone)]
pub(crate) struct RefusedRequest {
    pub(crate) status: StatusCode,
    pub(crate) refusal: Refusal,
}

impl From<Refusal> for RefusedRequest {
    fn from(refusal: Refusal) -> RefusedRequest {
        let status = match refusal.reason {
            Reason::BadRequest | Reason::BadName => StatusCode::BAD_REQUEST,
            Reason::TimedOut => StatusCode::REQUEST_TIMEOUT,
            Reason::NotResolved | Reason::Unreachable | Reason::Reset | Reason::Gateway => StatusCode::BAD_GATEWAY,
            Reason::UpstreamTimedOut => StatusCode::GATEWAY_TIMEOUT,
            Reason::TooManyConnections | Reason::TooManyNames | Reason::TooManyBytes => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::FORBIDDEN,
        };
        RefusedRequest { status, refusal }
    }
}

impl From<Fault> for RefusedRequest {
    fn from(fault: Fault) -> RefusedRequest {
        let reason = if fault == Fault::TimedOut { Reason::TimedOut } else { Reason::BadRequest };
        let mut refused = RefusedRequest::from(Refusal::because(reason, fault.to_string()));
        if matches!(fault, Fault::TooLong | Fault::TooManyHeaders) {
            refused.status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        }
        refused
    }
}

impl From<InvalidRequest> for RefusedRequest {
    fn from(wrong: InvalidRequest) -> RefusedRequest {
        RefusedRequest::from(Refusal::because(Reason::BadRequest, wrong.0))
    }
}

impl RefusedRequest {
    /// A request whose host is not where its connection, or its URL, leads.
    pub(crate) fn mismatch(host: &Authority, target: &Target, port: u16) -> RefusedRequest {
        let there = Authority { target: target.clone(), port: Some(port) };
        let detail = format!("Host `{host}` on a connection to {there}");
        RefusedRequest::from(Refusal::because(Reason::HostMismatch, detail))
    }
}

impl RefusedRequest {
    /// An answer of upstream's that cannot be passed on.
    pub(crate) fn odd_answer(what: &str) -> RefusedRequest {
        RefusedRequest::from(Refusal::because(Reason::Gateway, format!("upstream answered {what}")))
    }

    /// A request that passed the checks here and could not be read nevertheless.
    pub(crate) fn unread(error: &hyper::Error) -> RefusedRequest {
        RefusedRequest::from(Refusal::because(Reason::BadRequest, error.to_string()))
    }
}

/// Where a request was to go, as far as that is known, and what it was.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    pub(crate) via: Via,
    pub(crate) to: Option<(Target, u16)>,
    pub(crate) method: Option<String>,
    /// Without its query.
    pub(crate) path: Option<String>,
}

impl RequestInfo {
    /// Nothing but how it came.
    pub(crate) fn nothing(via: Via) -> RequestInfo {
        RequestInfo { via, to: None, method: None, path: None }
    }

    /// An event about it.
    pub(crate) fn event(&self, kind: Kind) -> Event {
        let mut event = Event::new(kind, self.via);
        if let Some((target, port)) = &self.to {
            event.set_target(target, *port);
        }
        event.method = self.method.clone();
        event.path = self.path.as_deref().map(|path| shown(path.as_bytes()));
        event
    }
}

/// Tells of it.
pub(crate) fn report(gateway: &dyn GatewayInterface, info: &RequestInfo, refusal: &Refusal) {
    let mut event = info.event(if refusal.reason.is_failure() { Kind::Failed } else { Kind::Refused });
    event.reason = Some(refusal.reason);
    event.rule = refusal.rule.clone();
    event.detail = refusal.detail.clone();
    gateway.event(event);
}

/// The answer: a status, one line, and the end of the connection.
pub(crate) fn answer(info: &RequestInfo, refused: &RefusedRequest) -> Response<BoxedBody> {
    let mut response =
        Response::new(Full::from(line(info, &refused.refusal)).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = refused.status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// What is refused, why, by which line of the policy, and what would allow it.
fn line(info: &RequestInfo, refusal: &Refusal) -> String {
    let to = info.to.clone().map(|(target, port)| Authority { target, port: Some(port) }.to_string());
    let to = to.as_deref().unwrap_or("this request");
    let why = refusal.reason.words();
    let mut line = format!("cofferdam: {to}: {why}");
    if let Some(detail) = refusal.detail.as_deref().filter(|detail| *detail != why) {
        line.push_str(&format!(": {detail}"));
    }
    if let Some(rule) = &refusal.rule {
        line.push_str(&format!(" ({rule})"));
    }
    if let (Reason::NotAllowed | Reason::PortNotAllowed, Some((target, port))) = (refusal.reason, &info.to) {
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
