//! Gives each accepted connection to the service that it was made to: a captured destination, the resolver, a proxy, or
//! the API that is passed through.

use std::sync::Arc;

use bytes::Bytes;

use crate::connect::relay::reset;
use crate::decide::rules::EgressTarget;
use crate::decide::socks;
use crate::http::{self, Api, BoxedTask};
use crate::report::event::NetworkVia;
use crate::serve::client_connection::ClientConnection;
use crate::serve::{captured, resolver, socks_proxy};

/// Serves a connection until it ends or has been idle for too long.
pub(super) async fn dispatch(client: Arc<ClientConnection>) {
    let service: BoxedTask = match client.via {
        NetworkVia::Connect => return serve_captured(client).await,
        NetworkVia::Dns => Box::pin(resolver::serve_tcp(Arc::clone(&client))),
        NetworkVia::Socks => Box::pin(serve_proxy(Arc::clone(&client))),
        NetworkVia::HttpProxy => Box::pin(http::proxy(client.interface(), client.io(), api(&client))),
        NetworkVia::Api => match api(&client) {
            Some((api, connect)) => Box::pin(http::api(client.interface(), client.io(), api, connect)),
            None => return reset(&client.stream),
        },
    };
    tokio::select! {
        () = service => {}
        () = client.activity.idle(client.sandbox.settings.idle) => reset(&client.stream),
    }
}

/// Serves a connection to the SOCKS proxy. Programs that do not know the scheme `socks5h`, such as Chromium, treat what `ALL_PROXY`
/// names as an HTTP proxy, so HTTP requests are served as well.
async fn serve_proxy(client: Arc<ClientConnection>) {
    let mut first = [0];
    let peeked = tokio::time::timeout(client.sandbox.settings.greeting, client.stream.peek(&mut first)).await;
    match (peeked, first) {
        (Ok(Ok(1)), [byte]) if !socks::VERSIONS.contains(&byte) => {
            http::proxy(client.interface(), client.io(), api(&client)).await;
        }
        _ => socks_proxy::serve(client).await,
    }
}

async fn serve_captured(client: Arc<ClientConnection>) {
    let (address, port) = (EgressTarget::Address(client.destination.ip()), client.destination.port());
    let target = match client.sandbox.named_target(&address) {
        Ok(target) => target,
        Err(refusal) => return client.refuse(Some(&address), port, refusal),
    };
    match client.sandbox.decide(&target, port) {
        Ok(grant) => captured::serve(client, target, port, grant, Bytes::new(), None).await,
        Err(refusal) => client.refuse(Some(&target), port, refusal),
    }
}

/// The sandbox's API, and how its host is reached: every connection to upstream goes to the host of its base URL.
fn api(client: &Arc<ClientConnection>) -> Option<(Arc<Api>, http::Connect)> {
    let api = client.sandbox.api.as_ref()?;
    let connect: http::Connect = {
        let (client, api) = (Arc::clone(client), Arc::clone(api));
        Arc::new(move || {
            let (client, api) = (Arc::clone(&client), Arc::clone(&api));
            Box::pin(async move {
                let upstream = client.connect_api(&api.host, api.port).await;
                upstream.map(|upstream| upstream.dialed()).map_err(|(refusal, _)| refusal)
            })
        })
    };
    Some((Arc::clone(api), connect))
}
