//! A connection that a program made to a host's port, speaking HTTP in the clear: every request of it is checked.
//! Never goes anywhere but to that host and port.

use std::sync::Arc;

use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;

use crate::http::authority::Authority;
use crate::http::door::{Door, Io, Seat};
use crate::http::forward::{Outgoing, Upstream};
use crate::http::refuse::{About, Refused};
use crate::http::request::{Wrong, agrees, aim, host, plain};
use crate::http::serve::{Line, Serve, serve};
use crate::rules::{Grant, Target};

/// The port of a URL that has none.
pub(crate) const HTTP: u16 = 80;

struct Captured {
    target: Target,
    port: u16,
    grant: Grant,
    upstream: Upstream,
}

/// Serves the connection until either side ends it. `client` gives the bytes that were read already, then the rest
/// ([`crate::http::Replay`]).
pub async fn captured(door: Arc<dyn Door>, client: Io, seat: Seat) {
    let Seat { target, port, grant, via, upstream } = seat;
    let upstream = {
        let (door, target, grant) = (Arc::clone(&door), target.clone(), grant.clone());
        Upstream::new(Some(upstream), move || door.dial(&target, port, &grant))
    };
    serve(door, via, client, Captured { target, port, grant, upstream }).await;
}

impl Serve for Captured {
    fn to(&self) -> Option<(Target, u16)> {
        Some((self.target.clone(), self.port))
    }

    async fn serve(
        &self,
        line: &Line,
        request: Request<Incoming>,
        about: &mut About,
    ) -> Result<Response<Outgoing>, Refused> {
        if request.method() == Method::CONNECT {
            return Err(Wrong("CONNECT is for the proxy, and this is no proxy".to_owned()).into());
        }
        let aim = aim(request.method(), request.uri())?;
        about.path = Some(aim.path.path().to_owned());
        let host = host(request.headers())?.ok_or_else(|| Wrong("no Host".to_owned()))?;
        if let Some(url) = &aim.url
            && !(url.target == self.target && url.port.unwrap_or(HTTP) == self.port)
        {
            return Err(Refused::mismatch(url, &self.target, self.port));
        }
        if !agrees(&host, &self.target, self.port) {
            return Err(Refused::mismatch(&host, &self.target, self.port));
        }
        plain(&self.grant, request.headers())?;
        line.door.request(&self.grant, request.method().as_str(), aim.path.path())?;
        let host = Authority { target: self.target.clone(), port: host.port };
        line.pass(request, Uri::from(aim.path), (&host).into(), &self.upstream).await
    }
}
