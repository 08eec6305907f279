//! The HTTP proxy: CONNECT, and requests with an absolute `http://` URL. Never reaches what a captured connection to
//! the same host and port could not.

use std::sync::Arc;

use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use tokio::sync::Mutex;

use crate::decide::rules::EgressTarget;
use crate::decide::socket_layout::{API_PORT, INSIDE};
use crate::http::api::{Api, ApiService, Connect};
use crate::http::authority::Authority;
use crate::http::captured::HTTP;
use crate::http::connection::{HttpConnection, RequestService, Upgrade, serve};
use crate::http::interface::{BoxedStream, GatewayInterface};
use crate::http::refusal_response::{RefusedRequest, RequestInfo};
use crate::http::request_target::{InvalidRequest, agrees, host, plain, request_target, shown};
use crate::http::upstream_client::{BoxedBody, UpstreamClient, empty};
use crate::report::event::NetworkVia;

/// The connections to the host and port of the last request.
type Last = Option<(EgressTarget, u16, Arc<UpstreamClient>)>;

struct Proxy {
    last: Mutex<Last>,
    /// The API of the sandbox: some clients ask the proxy for its URL, whatever `NO_PROXY` says.
    api: Option<ApiService>,
}

/// Serves a connection to the proxy until either side ends it.
pub async fn proxy(gateway: Arc<dyn GatewayInterface>, client: BoxedStream, api: Option<(Arc<Api>, Connect)>) {
    let api = api.map(|(api, connect)| ApiService::new(api, connect));
    serve(gateway, NetworkVia::HttpProxy, client, Proxy { last: Mutex::default(), api }).await;
}

impl RequestService for Proxy {
    async fn serve(
        &self,
        connection: &HttpConnection,
        request: Request<Incoming>,
        info: &mut RequestInfo,
    ) -> Result<Response<BoxedBody>, RefusedRequest> {
        if request.method() == Method::CONNECT {
            return connect(connection, request, info).await;
        }
        let request_target = request_target(request.method(), request.uri())?;
        info.path = Some(request_target.path.path().to_owned());
        let Some(Authority { target, port }) = request_target.url else {
            let hint = "this is a proxy; hint: ask it for `http://HOST/…`, or by CONNECT HOST:PORT";
            return Err(InvalidRequest(hint.to_owned()).into());
        };
        let port = port.unwrap_or(HTTP);
        info.to = Some((target.clone(), port));
        let host = host(request.headers())?.ok_or_else(|| InvalidRequest("no Host".to_owned()))?;
        if !agrees(&host, &target, port) {
            return Err(RefusedRequest::mismatch(&host, &target, port));
        }
        if let Some(api) = self.api.as_ref().filter(|_| target == EgressTarget::Address(INSIDE) && port == API_PORT) {
            return api.serve(connection, request, info).await;
        }
        let grant = connection.gateway.decide(&target, port)?;
        plain(&grant, request.headers())?;
        connection.gateway.request(&grant, request.method().as_str(), request_target.path.path())?;
        let upstream = {
            let mut last = self.last.lock().await;
            match &*last {
                Some((there, at, upstream)) if *there == target && *at == port => Arc::clone(upstream),
                _ => {
                    let (gateway, there) = (Arc::clone(&connection.gateway), target.clone());
                    let upstream = Arc::new(UpstreamClient::new(None, move || gateway.dial(&there, port, &grant)));
                    *last = Some((target.clone(), port, Arc::clone(&upstream)));
                    upstream
                }
            }
        };
        let host = Authority { target, port: (port != HTTP).then_some(port) };
        connection.pass(request, Uri::from(request_target.path), (&host).into(), &upstream).await
    }
}

/// Responds to CONNECT once it is known whether there is a connection to upstream: clients try again for long where a tunnel
/// that was granted is reset, and give up where it is refused.
async fn connect(
    connection: &HttpConnection,
    mut request: Request<Incoming>,
    info: &mut RequestInfo,
) -> Result<Response<BoxedBody>, RefusedRequest> {
    let text = request.uri().to_string();
    let wrong = |why| RefusedRequest::from(InvalidRequest(format!("CONNECT `{}`: {why}", shown(text.as_bytes()))));
    let Authority { target, port } = Authority::parse(text.as_bytes()).map_err(wrong)?;
    let port = port.ok_or_else(|| wrong("no port"))?;
    info.to = Some((target.clone(), port));
    if let Some(host) = host(request.headers())?
        && !agrees(&host, &target, port)
    {
        return Err(RefusedRequest::mismatch(&host, &target, port));
    }
    let grant = connection.gateway.decide(&target, port)?;
    let tunnel = connection.gateway.dial_tunnel(&target, port, &grant).await?;
    connection.upgrade(hyper::upgrade::on(&mut request), Upgrade::Tunnel(tunnel));
    Ok(Response::new(empty()))
}
