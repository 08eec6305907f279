//! A connection that a program made to a host's port, with HTTP in the clear: every request is checked. Requests go to
//! that host and port only.

use std::sync::Arc;

use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;

use crate::decide::rules::{EgressTarget, Grant};
use crate::http::authority::Authority;
use crate::http::connection::{HttpConnection, RequestService, serve};
use crate::http::interface::{BoxedStream, CapturedHttp, GatewayInterface};
use crate::http::refusal_response::{RefusedRequest, RequestInfo};
use crate::http::request_target::{InvalidRequest, agrees, host, plain, request_target};
use crate::http::upstream_client::{BoxedBody, UpstreamClient};

/// The default port of `http://`.
pub(crate) const HTTP: u16 = 80;

struct Captured {
    target: EgressTarget,
    port: u16,
    grant: Grant,
    upstream: UpstreamClient,
}

/// Serves the connection until either side ends it. `client` begins with the bytes that were read already
/// ([`crate::http::Replay`]).
pub async fn captured(gateway: Arc<dyn GatewayInterface>, client: BoxedStream, seat: CapturedHttp) {
    let CapturedHttp { target, port, grant, via, upstream } = seat;
    let upstream = {
        let (gateway, target, grant) = (Arc::clone(&gateway), target.clone(), grant.clone());
        UpstreamClient::new(Some(upstream), move || gateway.dial(&target, port, &grant))
    };
    serve(gateway, via, client, Captured { target, port, grant, upstream }).await;
}

impl RequestService for Captured {
    fn to(&self) -> Option<(EgressTarget, u16)> {
        Some((self.target.clone(), self.port))
    }

    async fn serve(
        &self,
        connection: &HttpConnection,
        request: Request<Incoming>,
        info: &mut RequestInfo,
    ) -> Result<Response<BoxedBody>, RefusedRequest> {
        if request.method() == Method::CONNECT {
            return Err(InvalidRequest("CONNECT is for the proxy, and this is no proxy".to_owned()).into());
        }
        let request_target = request_target(request.method(), request.uri())?;
        info.path = Some(request_target.path.path().to_owned());
        let host = host(request.headers())?.ok_or_else(|| InvalidRequest("no Host".to_owned()))?;
        if let Some(url) = &request_target.url
            && !(url.target == self.target && url.port.unwrap_or(HTTP) == self.port)
        {
            return Err(RefusedRequest::mismatch(url, &self.target, self.port));
        }
        if !agrees(&host, &self.target, self.port) {
            return Err(RefusedRequest::mismatch(&host, &self.target, self.port));
        }
        plain(&self.grant, request.headers())?;
        connection.gateway.request(&self.grant, request.method().as_str(), request_target.path.path())?;
        let host = Authority { target: self.target.clone(), port: host.port };
        connection.pass(request, Uri::from(request_target.path), (&host).into(), &self.upstream).await
    }
}
