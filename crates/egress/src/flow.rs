//! A connection to a host that the rules allowed, from the first byte to the last.
//!
//! ```text
//!           ┌─ dial ──────────────▶ link ┬─ upstream's bytes ─▶ program        (at once: some servers speak first)
//! captured ─┤                            │
//!           └─ the program's first bytes ┴─▶ TLS: its name │ HTTP: every request │ neither ─▶ upstream
//! ```
//!
//! Nothing of the program's is passed on before it is known what it is.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::SetOnce;

use crate::client::{Client, Failed, Link, dialed};
use crate::client_hello::{self, Read};
use crate::event::Reason;
use crate::first_bytes::{self, First};
use crate::http::{self, Replay, Seat};
use crate::limits::{Allowance, Way};
use crate::name::Name;
use crate::relay::{End, one_way, reset, write_all};
use crate::rules::{Grant, Refusal, Target};
use crate::sandbox::{refusal, refused};

/// From this length on, first bytes are looked at again no more often than so.
const LONG: usize = 4 * 1024;
const PIECES: Duration = Duration::from_millis(2);
/// Why what is no request may not pass.
const INSPECTED: &str = "the rule looks into requests, and this is none in the clear";
/// Bytes read at once while it is not known what they are.
const READ: usize = 4 * 1024;

type Dialing = Pin<Box<dyn Future<Output = Result<Link, Failed>> + Send>>;

/// What the program's first bytes are.
enum Known {
    /// They are passed on, and so is what follows.
    Through,
    /// Requests that are looked at.
    Http,
}

/// Why the relay ended before both sides were done.
enum Stop {
    /// It goes on as HTTP.
    Http,
    /// What the program sent may not go out.
    Refused(Refusal),
    /// There is no connection to upstream.
    Failed(Failed),
    /// One side or a limit ended it.
    End(End),
}

/// Serves a program's connection to `target`. `first` was read of it already; `link` is there when upstream is connected
/// already.
pub async fn serve(client: Arc<Client>, target: Target, port: u16, grant: Grant, first: Bytes, link: Option<Link>) {
    let connected = SetOnce::new_with(link);
    let mut dialing: Option<Dialing> = (!connected.initialized()).then(|| {
        let dial = Arc::clone(&client).connect(target.clone(), port, grant.clone());
        Box::pin(dial) as Dialing
    });
    let mut buffer = BytesMut::from(first);
    let stop = {
        let relay = relay(&client, &target, port, &grant, &mut buffer, &connected, &mut dialing);
        tokio::select! {
            ended = relay => ended.err(),
            () = client.activity.idle(client.sandbox.settings.idle) => Some(Stop::End(End::Idle)),
        }
    };
    let link = connected.into_inner();
    match stop {
        None => {}
        Some(Stop::Http) => {
            // A server that has spoken before a request has answered something else.
            if link.as_ref().is_some_and(|link| link.account.moved(Way::Down) > 0) {
                let why = refusal(Reason::BadRequest, "upstream spoke before the first request");
                return client.refuse(Some(&target), port, why);
            }
            let upstream: http::Dial = match (link, dialing) {
                (Some(link), _) => Box::pin(async move { Ok(dialed(link)) }),
                (None, Some(dial)) => Box::pin(async move { dial.await.map(dialed).map_err(|(refusal, _)| refusal) }),
                (None, None) => return reset(&client.stream),
            };
            let io = Box::new(Replay::new(buffer.freeze(), client.io()));
            let seat = Seat { target, port, grant, via: client.via, upstream };
            tokio::select! {
                () = http::captured(client.door(), io, seat) => {}
                () = client.activity.idle(client.sandbox.settings.idle) => reset(&client.stream),
            }
        }
        Some(Stop::Refused(refusal)) => {
            client.refuse(Some(&target), port, refusal);
            link.iter().for_each(|link| reset(&link.stream));
        }
        Some(Stop::Failed((refusal, address))) => {
            reset(&client.stream);
            client.event(refused(client.via, Some(&target), port, refusal, address));
        }
        Some(Stop::End(end)) => {
            reset(&client.stream);
            if let Some(link) = link {
                // Upstream has seen it, if nothing else.
                link.goes_out();
                reset(&link.stream);
                match end {
                    End::Limit(refusal) => link.refuse(refusal),
                    End::Idle => link.cut(Reason::TimedOut),
                    End::UpstreamReset => link.cut(Reason::Reset),
                    End::ClientReset | End::Closed => {}
                }
            } else {
                let why = refusal(Reason::Unreachable, "the program did not wait for it");
                client.event(refused(client.via, Some(&target), port, why, None));
            }
        }
    }
}

/// Both ways at once, and the dialing before them.
async fn relay(
    client: &Client,
    target: &Target,
    port: u16,
    grant: &Grant,
    buffer: &mut BytesMut,
    connected: &SetOnce<Link>,
    dialing: &mut Option<Dialing>,
) -> Result<(), Stop> {
    let buffers = &client.sandbox.buffers;
    let dial = async {
        if let Some(dial) = dialing {
            let link = dial.await.map_err(Stop::Failed)?;
            *dialing = None;
            if connected.set(link).is_err() {
                return Err(Stop::Refused(refusal(Reason::Gateway, "two connections to upstream")));
            }
        }
        Ok(())
    };
    let down = async {
        let link = connected.wait().await;
        link.stream.readable().await.map_err(|_| Stop::End(End::UpstreamReset))?;
        link.goes_out();
        let moving = one_way(&link.stream, &client.stream, Way::Down, &link.account, &client.activity, buffers);
        moving.await.map_err(Stop::End)
    };
    let up = async {
        match greeting(client, target, port, grant, buffer).await? {
            Known::Http => return Err(Stop::Http),
            Known::Through => {}
        }
        let link = connected.wait().await;
        link.goes_out();
        send(link, client, &std::mem::take(buffer)).await?;
        let moving = one_way(&client.stream, &link.stream, Way::Up, &link.account, &client.activity, buffers);
        moving.await.map_err(Stop::End)
    };
    tokio::try_join!(dial, down, up).map(drop)
}

/// What was read already goes out, as its limits allow.
async fn send(link: &Link, client: &Client, mut bytes: &[u8]) -> Result<(), Stop> {
    while !bytes.is_empty() {
        let part = match link.account.reserve(Way::Up, bytes.len()) {
            Allowance::Bytes(part) => part,
            Allowance::Wait(time) => {
                client.activity.touch();
                tokio::time::sleep(time).await;
                continue;
            }
            Allowance::Never(refusal) => return Err(Stop::End(End::Limit(refusal))),
        };
        link.account.settle(Way::Up, part, part);
        write_all(&link.stream, &bytes[..part], &client.activity).await.map_err(|_| Stop::End(End::UpstreamReset))?;
        bytes = &bytes[part..];
    }
    Ok(())
}

/// Reads until it is known what the program speaks, and whether it may.
async fn greeting(
    client: &Client,
    target: &Target,
    port: u16,
    grant: &Grant,
    buffer: &mut BytesMut,
) -> Result<Known, Stop> {
    // A server may have to speak first, for as long as it likes: the idle time bounds that.
    if buffer.is_empty() && !more(client, buffer).await? {
        return Ok(Known::Through);
    }
    if let Some(known) = known(client, target, port, grant, buffer, false)? {
        return Ok(known);
    }
    let rest = async {
        let _permit = client.sandbox.greetings.acquire().await;
        loop {
            if buffer.len() > LONG {
                // All of it is read again with each piece: pieces that come one by one are waited for together.
                tokio::time::sleep(PIECES).await;
            }
            let ended = !more(client, buffer).await?;
            if let Some(known) = known(client, target, port, grant, buffer, ended)? {
                return Ok(known);
            }
        }
    };
    let mut rest = pin!(rest);
    match tokio::time::timeout(client.sandbox.settings.greeting, rest.as_mut()).await {
        Ok(known) => known,
        Err(_) => Err(Stop::Refused(refusal(Reason::TimedOut, "its first bytes say nothing"))),
    }
}

/// Reads once; whether there was anything.
async fn more(client: &Client, buffer: &mut BytesMut) -> Result<bool, Stop> {
    loop {
        client.stream.readable().await.map_err(|_| Stop::End(End::ClientReset))?;
        buffer.reserve(READ);
        match client.stream.try_read_buf(buffer) {
            Ok(n) => {
                client.activity.touch();
                return Ok(n > 0);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Stop::End(End::ClientReset)),
        }
    }
}

/// What `bytes`, all that came so far, are; `None` when more has to come. `ended` when no more will.
fn known(
    client: &Client,
    target: &Target,
    port: u16,
    grant: &Grant,
    bytes: &[u8],
    ended: bool,
) -> Result<Option<Known>, Stop> {
    let refuse = |reason, why: &str| Err(Stop::Refused(refusal(reason, why)));
    match first_bytes::classify(bytes) {
        First::More if !ended => Ok(None),
        // Less than any request or greeting is: of no protocol that is looked into.
        First::More | First::Opaque if grant.inspected => refuse(Reason::BadRequest, INSPECTED),
        First::More | First::Opaque => Ok(Some(Known::Through)),
        First::Http => Ok(Some(Known::Http)),
        First::Http2 => refuse(Reason::Http2NotInspected, "HTTP/2 without TLS"),
        First::Tls if grant.plain_only => refuse(Reason::BadRequest, INSPECTED),
        First::Tls => match client_hello::read(bytes) {
            Read::More if ended => refuse(Reason::BadHello, "it ends before it is whole"),
            Read::More if bytes.len() >= client_hello::MOST => refuse(Reason::BadHello, "longer than 64 KiB"),
            Read::More => Ok(None),
            Read::Bad(why) => refuse(Reason::BadHello, why),
            Read::Hello(hello) => {
                names(client, target, port, grant, &hello).map_err(Stop::Refused).map(|()| Some(Known::Through))
            }
        },
    }
}

/// Whether a TLS greeting is for the host that the connection is for.
fn names(
    client: &Client,
    target: &Target,
    port: u16,
    grant: &Grant,
    hello: &client_hello::Hello,
) -> Result<(), Refusal> {
    if hello.encrypted {
        // The name outside is not the one that counts; the rule says that this is accepted.
        return match grant.encrypted_hello {
            true => Ok(()),
            false => Err(refusal(Reason::EncryptedHello, "the greeting hides the server's name")),
        };
    }
    let given = match &hello.server_name {
        Some(given) => Some(
            Name::parse(given.as_bytes())
                .map_err(|why| refusal(Reason::ServerNameMismatch, &format!("{}: {why}", given.escape_default())))?,
        ),
        None => None,
    };
    match (target, given) {
        (Target::Name(name), Some(given)) if *name == given => Ok(()),
        (Target::Name(_), Some(given)) => Err(refusal(Reason::ServerNameMismatch, given.as_str())),
        (Target::Name(_), None) => Err(refusal(Reason::ServerNameMissing, "the greeting names no server")),
        (Target::Address(_), None) => Ok(()),
        // Whatever the server at an allowed address calls itself, but for what is denied by name.
        (Target::Address(_), Some(given)) => client.sandbox.rules.denied(&Target::Name(given), port),
    }
}
