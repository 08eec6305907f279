//! The HTTP proxy: CONNECT, and requests with an absolute `http://` URL. Never leads to what a captured connection to the
//! same host and port could not reach.

use std::sync::Arc;

use http::{Method, Request, Response, Uri};
use hyper::body::Incoming;
use tokio::sync::Mutex;

use crate::event::Via;
use crate::http::authority::Authority;
use crate::http::captured::HTTP;
use crate::http::door::{Door, Io};
use crate::http::forward::{Outgoing, Upstream, empty};
use crate::http::refuse::{About, Refused};
use crate::http::request::{Wrong, agrees, aim, host, plain, shown};
use crate::http::serve::{Line, Serve, Turn, serve};
use crate::rules::Target;

/// The connections to the host and port that were asked for last.
type Last = Option<(Target, u16, Arc<Upstream>)>;

#[derive(Default)]
struct Proxy {
    last: Mutex<Last>,
}

/// Serves a connection to the proxy until either side ends it.
pub async fn proxy(door: Arc<dyn Door>, client: Io) {
    serve(door, Via::HttpProxy, client, Proxy::default()).await;
}

impl Serve for Proxy {
    async fn serve(
        &self,
        line: &Line,
        request: Request<Incoming>,
        about: &mut About,
    ) -> Result<Response<Outgoing>, Refused> {
        if request.method() == Method::CONNECT {
            return connect(line, request, about);
        }
        let aim = aim(request.method(), request.uri())?;
        about.path = Some(aim.path.path().to_owned());
        let Some(Authority { target, port }) = aim.url else {
            let hint = "this is a proxy; hint: ask it for `http://HOST/…`, or by CONNECT HOST:PORT";
            return Err(Wrong(hint.to_owned()).into());
        };
        let port = port.unwrap_or(HTTP);
        about.to = Some((target.clone(), port));
        let host = host(request.headers())?.ok_or_else(|| Wrong("no Host".to_owned()))?;
        if !agrees(&host, &target, port) {
            return Err(Refused::mismatch(&host, &target, port));
        }
        let grant = line.door.decide(&target, port)?;
        plain(&grant, request.headers())?;
        line.door.request(&grant, request.method().as_str(), aim.path.path())?;
        let upstream = {
            let mut last = self.last.lock().await;
            match &*last {
                Some((there, at, upstream)) if *there == target && *at == port => Arc::clone(upstream),
                _ => {
                    let (door, there) = (Arc::clone(&line.door), target.clone());
                    let upstream = Arc::new(Upstream::new(None, move || door.dial(&there, port, &grant)));
                    *last = Some((target.clone(), port, Arc::clone(&upstream)));
                    upstream
                }
            }
        };
        let host = Authority { target, port: (port != HTTP).then_some(port) };
        line.pass(request, Uri::from(aim.path), (&host).into(), &upstream).await
    }
}

/// A tunnel, if its end may be reached; whether it can be is found out behind the answer.
fn connect(line: &Line, mut request: Request<Incoming>, about: &mut About) -> Result<Response<Outgoing>, Refused> {
    let text = request.uri().to_string();
    let wrong = |why| Refused::from(Wrong(format!("CONNECT `{}`: {why}", shown(text.as_bytes()))));
    let Authority { target, port } = Authority::parse(text.as_bytes()).map_err(wrong)?;
    let port = port.ok_or_else(|| wrong("no port"))?;
    about.to = Some((target.clone(), port));
    if let Some(host) = host(request.headers())?
        && !agrees(&host, &target, port)
    {
        return Err(Refused::mismatch(&host, &target, port));
    }
    let grant = line.door.decide(&target, port)?;
    line.turn(hyper::upgrade::on(&mut request), Turn::Tunnel { target, port, grant });
    Ok(Response::new(empty()))
}
