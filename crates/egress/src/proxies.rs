//! What answers at the sandbox's own loopback address: the SOCKS proxy, the resolver by TCP, the API that is passed through.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};

use crate::client::{Client, dialed};
use crate::datagrams::Asking;
use crate::dns::{self, Transport};
use crate::event::Reason;
use crate::flow;
use crate::http::{self, Api};
use crate::name::Host;
use crate::relay::{reset, write_all};
use crate::rules::{Refusal, Target};
use crate::sandbox::{refusal, refused};
use crate::socks::{self, Asked, Greeting, Method, Progress, Reply, Request};

/// Most queries of one TCP connection.
const QUERIES: usize = 256;

/// Reads once; whether there was anything.
async fn more(client: &Client, buffer: &mut BytesMut) -> io::Result<bool> {
    loop {
        client.stream.readable().await?;
        buffer.reserve(1024);
        match client.stream.try_read_buf(buffer) {
            Ok(n) => {
                client.activity.touch();
                return Ok(n > 0);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// The resolver by TCP: each message has its length before it.
pub async fn resolver(client: Arc<Client>) {
    let mut buffer = BytesMut::new();
    for _ in 0..QUERIES {
        let read = tokio::time::timeout(client.sandbox.settings.greeting, async {
            loop {
                if let Some((_, taken)) = dns::framed(&buffer) {
                    return Some(buffer.split_to(taken));
                }
                if !more(&client, &mut buffer).await.unwrap_or(false) {
                    return None;
                }
            }
        });
        let Ok(Some(query)) = read.await else { return };
        client.sandbox.queries.one().await;
        let answer = dns::answer(&query[2..], Transport::Tcp, &mut Asking(&client.sandbox));
        let Some(answer) = answer.map(|answer| dns::frame(&answer)) else { return };
        if write_all(&client.stream, &answer, &client.activity).await.is_err() {
            return;
        }
    }
}

/// The API: every connection goes to its base URL's host.
pub async fn api(client: Arc<Client>, api: Arc<Api>) {
    let connect: http::Connect = {
        let (client, api) = (Arc::clone(&client), Arc::clone(&api));
        Arc::new(move || {
            let (client, api) = (Arc::clone(&client), Arc::clone(&api));
            Box::pin(async move {
                let link = client.named(&api.host, api.port).await;
                link.map(dialed).map_err(|(refusal, _)| refusal)
            })
        })
    };
    http::api(client.door(), client.io(), api, connect).await;
}

/// What a step of the SOCKS dialogue came to.
enum Dialogue<T> {
    Done(T),
    /// The client is gone.
    Gone,
    Bad(&'static str),
}

async fn next<T>(client: &Client, buffer: &mut BytesMut, read: impl Fn(&[u8]) -> Progress<T>) -> Dialogue<T> {
    loop {
        match read(buffer) {
            Progress::Done(done, taken) => {
                buffer.advance(taken);
                return Dialogue::Done(done);
            }
            Progress::Bad(why) => return Dialogue::Bad(why),
            Progress::More => {}
        }
        if !more(client, buffer).await.unwrap_or(false) {
            return Dialogue::Gone;
        }
    }
}

/// The SOCKS proxy.
pub async fn socks(client: Arc<Client>) {
    let mut buffer = BytesMut::new();
    let asked = tokio::time::timeout(client.sandbox.settings.greeting, dialogue(&client, &mut buffer)).await;
    let (to, port) = match asked {
        Ok(Some(asked)) => asked,
        Ok(None) => return,
        Err(_) => return client.refuse(None, client.destination.port(), refusal(Reason::TimedOut, "no request")),
    };
    let target = match settled(&client, &to) {
        Ok(target) => target,
        Err((target, refusal)) => return refuse(&client, target.as_ref(), port, refusal, Reply::NotAllowed).await,
    };
    let grant = match client.sandbox.decide(&target, port) {
        Ok(grant) => grant,
        Err(refusal) => return refuse(&client, Some(&target), port, refusal, Reply::NotAllowed).await,
    };
    let link = match Arc::clone(&client).connect(target.clone(), port, grant.clone()).await {
        Ok(link) => link,
        Err((refusal, address)) => {
            let reply = match refusal.reason {
                Reason::NotResolved => Reply::HostUnreachable,
                Reason::Unreachable | Reason::Reset => Reply::ConnectionRefused,
                Reason::UpstreamTimedOut => Reply::TtlExpired,
                Reason::Gateway => Reply::GeneralFailure,
                _ => Reply::NotAllowed,
            };
            client.event(refused(client.via, Some(&target), port, refusal, address));
            return say(&client, &socks::reply(reply, None)).await;
        }
    };
    if write_all(&client.stream, &socks::reply(Reply::Succeeded, None), &client.activity).await.is_ok() {
        flow::serve(client, target, port, grant, buffer.freeze(), Some(link)).await;
    }
}

/// The dialogue up to a request to connect; the answers to anything else are given here.
async fn dialogue(client: &Client, buffer: &mut BytesMut) -> Option<(Asked, u16)> {
    let port = client.destination.port();
    let bad = |why: &str| {
        client.refuse(None, port, refusal(Reason::BadProxyRequest, why));
        None
    };
    let greeting = match next(client, buffer, socks::greeting).await {
        Dialogue::Done(greeting) => greeting,
        Dialogue::Gone => return None,
        Dialogue::Bad(why) => return bad(why),
    };
    let method = match greeting {
        Greeting::Methods(method) => method,
        Greeting::Version4 { to, port } => {
            let target = settled(client, &to).ok();
            let why = refusal(Reason::BadProxyRequest, "SOCKS 4; hint: use socks5h://");
            client.event(refused(client.via, target.as_ref(), port, why, None));
            say(client, &socks::refusal_of_version_4()).await;
            return None;
        }
    };
    if write_all(&client.stream, &socks::method_chosen(method), &client.activity).await.is_err() {
        return None;
    }
    match method {
        Method::None => {}
        Method::Unacceptable => {
            let why = refusal(Reason::BadProxyRequest, "no method of authentication that is known");
            client.event(refused(client.via, None, port, why, None));
            return None;
        }
        Method::Password => {
            match next(client, buffer, socks::password).await {
                Dialogue::Done(()) => {}
                Dialogue::Gone => return None,
                Dialogue::Bad(why) => return bad(why),
            }
            if write_all(&client.stream, &socks::PASSWORD_ACCEPTED, &client.activity).await.is_err() {
                return None;
            }
        }
    }
    match next(client, buffer, socks::request).await {
        Dialogue::Done(Request::Connect { to, port }) => Some((to, port)),
        Dialogue::Done(Request::Refused(reply, why)) => {
            client.event(refused(client.via, None, port, refusal(Reason::BadProxyRequest, why), None));
            say(client, &socks::reply(reply, None)).await;
            None
        }
        Dialogue::Gone => None,
        Dialogue::Bad(why) => bad(why),
    }
}

/// The host or address that a request means.
fn settled(client: &Client, to: &Asked) -> Result<Target, (Option<Target>, Refusal)> {
    let target = match to {
        Asked::Address(address) => Target::Address(*address),
        Asked::Host(text) => match Host::parse(text) {
            Ok(Host::Name(name)) => Target::Name(name),
            Ok(Host::Address(address)) => Target::Address(address),
            Err(why) => {
                let why = format!("{}: {why}", text.escape_default());
                return Err((None, refusal(Reason::BadName, &why)));
            }
        },
    };
    client.sandbox.meant(&target).map_err(|refusal| (Some(target), refusal))
}

/// A refusal that the client is told of in words of its protocol.
async fn refuse(client: &Client, target: Option<&Target>, port: u16, refusal: Refusal, reply: Reply) {
    client.event(refused(client.via, target, port, refusal, None));
    say(client, &socks::reply(reply, None)).await;
}

/// Says the last thing.
async fn say(client: &Client, bytes: &[u8]) {
    if write_all(&client.stream, bytes, &client.activity).await.is_err() {
        reset(&client.stream);
    }
}
