//! The response to a refused request, and its event, in the same words. Decides nothing.

use std::net::SocketAddr;

use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::decide::address::{not_offered, not_offered_name};
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::EgressTarget;
use crate::http::authority::Authority;
use crate::http::interface::GatewayInterface;
use crate::http::request_head::HeadFault;
use crate::http::request_target::{InvalidRequest, shown};
use crate::http::upstream_client::BoxedBody;
use crate::report::event::{NetworkEvent, NetworkKind, NetworkVia};

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct RefusedRequest {
    pub(crate) status: StatusCode,
    pub(crate) refusal: EgressRefusal,
    /// The client ended it: it is answered, in case the client still reads, and is no refusal to report.
    pub(crate) cut_off: bool,
}

impl From<EgressRefusal> for RefusedRequest {
    fn from(refusal: EgressRefusal) -> RefusedRequest {
        let status = match refusal.reason {
            NetworkReason::BadRequest | NetworkReason::BadName => StatusCode::BAD_REQUEST,
            NetworkReason::TimedOut => StatusCode::REQUEST_TIMEOUT,
            NetworkReason::NotResolved | NetworkReason::Unreachable | NetworkReason::Reset | NetworkReason::Gateway => {
                StatusCode::BAD_GATEWAY
            }
            NetworkReason::UpstreamTimedOut => StatusCode::GATEWAY_TIMEOUT,
            NetworkReason::TooManyConnections | NetworkReason::TooManyNames | NetworkReason::TooManyBytes => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::FORBIDDEN,
        };
        RefusedRequest { status, refusal, cut_off: false }
    }
}

impl From<HeadFault> for RefusedRequest {
    fn from(fault: HeadFault) -> RefusedRequest {
        let reason = if fault == HeadFault::TimedOut { NetworkReason::TimedOut } else { NetworkReason::BadRequest };
        let mut refused = RefusedRequest::from(EgressRefusal::because(reason, fault.to_string()));
        refused.cut_off = fault == HeadFault::CutOff;
        if matches!(fault, HeadFault::TooLong | HeadFault::TooManyHeaders) {
            refused.status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        }
        refused
    }
}

impl From<InvalidRequest> for RefusedRequest {
    fn from(wrong: InvalidRequest) -> RefusedRequest {
        RefusedRequest::from(EgressRefusal::because(NetworkReason::BadRequest, wrong.0))
    }
}

impl RefusedRequest {
    /// A request whose Host is not the host of its connection or of its URL.
    pub(crate) fn mismatch(host: &Authority, target: &EgressTarget, port: u16) -> RefusedRequest {
        let there = Authority { target: target.clone(), port: Some(port) };
        let detail = format!("Host `{host}` on a connection to {there}");
        RefusedRequest::from(EgressRefusal::because(NetworkReason::HostMismatch, detail))
    }
}

impl RefusedRequest {
    /// A response of upstream that cannot be forwarded.
    pub(crate) fn odd_answer(what: &str) -> RefusedRequest {
        RefusedRequest::from(EgressRefusal::because(NetworkReason::Gateway, format!("upstream answered {what}")))
    }

    /// A request that passed the inspection and that hyper could not parse.
    pub(crate) fn unread(error: &hyper::Error) -> RefusedRequest {
        RefusedRequest::from(EgressRefusal::because(NetworkReason::BadRequest, error.to_string()))
    }
}

/// What is known of a request, for its events.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    pub(crate) via: NetworkVia,
    pub(crate) to: Option<(EgressTarget, u16)>,
    pub(crate) method: Option<String>,
    /// The path, without its query.
    pub(crate) path: Option<String>,
}

impl RequestInfo {
    /// Only the service is known.
    pub(crate) fn nothing(via: NetworkVia) -> RequestInfo {
        RequestInfo { via, to: None, method: None, path: None }
    }

    /// An event of this request.
    pub(crate) fn event(&self, kind: NetworkKind) -> NetworkEvent {
        let mut event = NetworkEvent::new(kind, self.via);
        if let Some((target, port)) = &self.to {
            event.set_target(target, *port);
        }
        event.method = self.method.clone();
        event.path = self.path.as_deref().map(|path| shown(path.as_bytes()));
        event
    }
}

/// Reports a refusal, unless the client ended the request itself.
pub(crate) fn report(gateway: &dyn GatewayInterface, info: &RequestInfo, refused: &RefusedRequest) {
    if refused.cut_off {
        return;
    }
    let refusal = &refused.refusal;
    let mut event = info.event(if refusal.reason.is_failure() { NetworkKind::Failed } else { NetworkKind::Refused });
    event.reason = Some(refusal.reason);
    event.rule = refusal.rule.clone();
    event.detail = refusal.detail.clone();
    event.address = refusal.address.or(event.address);
    gateway.event(event);
}

/// The response: a status, a line of text, and `Connection: close`.
pub(crate) fn answer(info: &RequestInfo, refused: &RefusedRequest) -> Response<BoxedBody> {
    let mut response =
        Response::new(Full::from(line(info, &refused.refusal)).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = refused.status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The line of text: what is refused, why, by which line of the policy, and what would allow it.
fn line(info: &RequestInfo, refusal: &EgressRefusal) -> String {
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
    if let (NetworkReason::NotAllowed | NetworkReason::PortNotAllowed, Some((target, port))) =
        (refusal.reason, &info.to)
    {
        let unoffered = match target {
            EgressTarget::Address(address) => not_offered(*address),
            EgressTarget::Name(name) => not_offered_name(name.as_str()),
        };
        // As in the summary that the command prints after a run: an entry without ports is for these two.
        let entry = match (target, port) {
            (EgressTarget::Name(name), 80 | 443) => name.as_str().to_owned(),
            (EgressTarget::Address(address), 80 | 443) => address.to_canonical().to_string(),
            (EgressTarget::Address(address), port) => SocketAddr::new(address.to_canonical(), *port).to_string(),
            _ => to.to_owned(),
        };
        // The reader may use a policy or a profile instead of options.
        let hint =
            || format!("; hint: --allow {entry}, `network.allow` of the policy, or `allowed_domains` of the profile");
        // No entry has the port 0.
        if *port != 0 {
            line.push_str(&unoffered.map_or_else(hint, |why| format!("; {why}")));
        }
    }
    line.push('\n');
    line
}
