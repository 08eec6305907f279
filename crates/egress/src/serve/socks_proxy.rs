//! The SOCKS5 proxy at the sandbox's own loopback address.

use std::sync::Arc;

use bytes::{Buf, BytesMut};

use crate::connect::relay::{reset, write_all};
use crate::decide::host_name::RequestedHost;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::EgressTarget;
use crate::decide::socks::{self, Destination, Greeting, Method, SocksProgress, SocksReply, SocksRequest};
use crate::report::event::NetworkEvent;
use crate::serve::captured;
use crate::serve::client_connection::ClientConnection;

/// Room for what is read at once.
const READ: usize = 1024;

/// The result of one step of the handshake.
enum HandshakeStep<T> {
    Done(T),
    /// The client is gone.
    Gone,
    Bad(&'static str),
}

async fn step<T>(
    client: &ClientConnection,
    buffer: &mut BytesMut,
    read: impl Fn(&[u8]) -> SocksProgress<T>,
) -> HandshakeStep<T> {
    loop {
        match read(buffer) {
            SocksProgress::Done(done, taken) => {
                buffer.advance(taken);
                return HandshakeStep::Done(done);
            }
            SocksProgress::Bad(why) => return HandshakeStep::Bad(why),
            SocksProgress::More => {}
        }
        if !client.read_more(buffer, READ).await.unwrap_or(false) {
            return HandshakeStep::Gone;
        }
    }
}

/// Serves a connection: the handshake, then the connection that it asks for.
pub(super) async fn serve(client: Arc<ClientConnection>) {
    let mut buffer = BytesMut::new();
    let request = tokio::time::timeout(client.sandbox.settings.greeting, handshake(&client, &mut buffer)).await;
    let (to, port) = match request {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err(_) => {
            return client.refuse(
                None,
                client.destination.port(),
                EgressRefusal::because(NetworkReason::TimedOut, "no request"),
            );
        }
    };
    let target = match requested_target(&client, &to) {
        Ok(target) => target,
        Err((target, refusal)) => return refuse(&client, target.as_ref(), port, refusal, SocksReply::NotAllowed).await,
    };
    let grant = match client.sandbox.decide(&target, port) {
        Ok(grant) => grant,
        Err(refusal) => return refuse(&client, Some(&target), port, refusal, SocksReply::NotAllowed).await,
    };
    let upstream = match Arc::clone(&client).connect(target.clone(), port, grant.clone()).await {
        Ok(upstream) => upstream,
        Err((refusal, address)) => {
            let reply = match refusal.reason {
                NetworkReason::NotResolved => SocksReply::HostUnreachable,
                NetworkReason::Unreachable | NetworkReason::Reset => SocksReply::ConnectionRefused,
                NetworkReason::UpstreamTimedOut => SocksReply::TtlExpired,
                NetworkReason::Gateway => SocksReply::GeneralFailure,
                _ => SocksReply::NotAllowed,
            };
            client.report(NetworkEvent::refused(client.via, Some(&target), port, refusal, address));
            return finish(&client, &socks::reply(reply, None)).await;
        }
    };
    if write_all(&client.stream, &socks::reply(SocksReply::Succeeded, None), &client.activity).await.is_ok() {
        captured::serve(client, target, port, grant, buffer.freeze(), Some(upstream)).await;
    }
}

/// The handshake up to a request to connect. Anything else is answered here, and returns none.
async fn handshake(client: &ClientConnection, buffer: &mut BytesMut) -> Option<(Destination, u16)> {
    let port = client.destination.port();
    let bad = |why: &str| {
        client.refuse(None, port, EgressRefusal::because(NetworkReason::BadProxyRequest, why));
        None
    };
    let greeting = match step(client, buffer, socks::greeting).await {
        HandshakeStep::Done(greeting) => greeting,
        HandshakeStep::Gone => return None,
        HandshakeStep::Bad(why) => return bad(why),
    };
    let method = match greeting {
        Greeting::Methods(method) => method,
        Greeting::Version4 { to, port } => {
            let target = requested_target(client, &to).ok();
            let why = EgressRefusal::because(NetworkReason::BadProxyRequest, "SOCKS 4; hint: use socks5h://");
            client.report(NetworkEvent::refused(client.via, target.as_ref(), port, why, None));
            finish(client, &socks::refusal_of_version_4()).await;
            return None;
        }
    };
    if write_all(&client.stream, &socks::method_chosen(method), &client.activity).await.is_err() {
        return None;
    }
    match method {
        Method::None => {}
        Method::Unacceptable => {
            let why =
                EgressRefusal::because(NetworkReason::BadProxyRequest, "no method of authentication that is known");
            client.report(NetworkEvent::refused(client.via, None, port, why, None));
            return None;
        }
        Method::Password => {
            match step(client, buffer, socks::password).await {
                HandshakeStep::Done(()) => {}
                HandshakeStep::Gone => return None,
                HandshakeStep::Bad(why) => return bad(why),
            }
            if write_all(&client.stream, &socks::PASSWORD_ACCEPTED, &client.activity).await.is_err() {
                return None;
            }
        }
    }
    match step(client, buffer, socks::request).await {
        HandshakeStep::Done(SocksRequest::Connect { to, port }) => Some((to, port)),
        HandshakeStep::Done(SocksRequest::Refused(reply, why)) => {
            client.report(NetworkEvent::refused(
                client.via,
                None,
                port,
                EgressRefusal::because(NetworkReason::BadProxyRequest, why),
                None,
            ));
            finish(client, &socks::reply(reply, None)).await;
            None
        }
        HandshakeStep::Gone => None,
        HandshakeStep::Bad(why) => bad(why),
    }
}

/// The host or address that a request names.
fn requested_target(
    client: &ClientConnection,
    to: &Destination,
) -> Result<EgressTarget, (Option<EgressTarget>, EgressRefusal)> {
    let target = match to {
        Destination::Address(address) => EgressTarget::Address(*address),
        Destination::Host(text) => match RequestedHost::parse(text) {
            Ok(RequestedHost::Name(name)) => EgressTarget::Name(name),
            Ok(RequestedHost::Address(address)) => EgressTarget::Address(address),
            Err(why) => {
                let why = format!("{}: {why}", text.escape_default());
                return Err((None, EgressRefusal::because(NetworkReason::BadName, why)));
            }
        },
    };
    client.sandbox.named_target(&target).map_err(|refusal| (Some(target), refusal))
}

/// Reports a refusal, and answers it in the protocol.
async fn refuse(
    client: &ClientConnection,
    target: Option<&EgressTarget>,
    port: u16,
    refusal: EgressRefusal,
    reply: SocksReply,
) {
    client.report(NetworkEvent::refused(client.via, target, port, refusal, None));
    finish(client, &socks::reply(reply, None)).await;
}

/// Writes the last message.
async fn finish(client: &ClientConnection, bytes: &[u8]) {
    if write_all(&client.stream, bytes, &client.activity).await.is_err() {
        reset(&client.stream);
    }
}
