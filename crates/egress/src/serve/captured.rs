//! A connection to a host that the rules allowed, from the first byte to the last.
//!
//! ```text
//!           ┌─ dial ──────────────▶ upstream ┬─ upstream's bytes ─▶ program   (at once: some servers speak first)
//! captured ─┤                                │
//!           └─ the program's first bytes ────┴─▶ TLS: its name │ HTTP: every request │ neither ─▶ upstream
//! ```
//!
//! No byte of the program's is passed on before its protocol is known and admitted (`decide::protocol_check`), and of TLS
//! none after the greeting before it is known whether another greeting follows in the clear (`decide::greeting_watch`).

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, SetOnce};

use crate::connect::relay::{RelayEnd, one_way, reset, write_all};
use crate::decide::client_hello::ClientHello;
use crate::decide::first_line::FirstLine;
use crate::decide::greeting_watch::{ClientFlight, ServerFlight, WatchStep};
use crate::decide::protocol_check::{self, Protocol};
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressTarget, Grant};
use crate::http::{self, CapturedHttp, Dialed, Replay};
use crate::limits::{Allowance, Direction};
use crate::report::event::NetworkEvent;
use crate::serve::client_connection::ClientConnection;
use crate::serve::upstream_connection::{ConnectFailure, UpstreamConnection};

/// From this length on, first bytes are checked again only every `RECHECK_INTERVAL`.
const RECHECK_LENGTH: usize = 4 * 1024;
const RECHECK_INTERVAL: Duration = Duration::from_millis(2);
/// Room for what is read at once while the protocol is not known.
const READ: usize = 4 * 1024;

type Dialing = Pin<Box<dyn Future<Output = Result<UpstreamConnection, ConnectFailure>> + Send>>;

/// Why the relay ended before both sides were done.
enum Stop {
    /// It goes on as HTTP.
    Http,
    /// What the program sent may not go out.
    Refused(EgressRefusal),
    /// There is no connection to upstream.
    Failed(ConnectFailure),
    /// One side or a limit ended it.
    End(RelayEnd),
}

/// Serves a program's connection to `target`. `first` has been read from it already; `upstream` is there if it is
/// connected already.
pub(super) async fn serve(
    client: Arc<ClientConnection>,
    target: EgressTarget,
    port: u16,
    grant: Grant,
    first: Bytes,
    upstream: Option<UpstreamConnection>,
) {
    let connected = SetOnce::new_with(upstream);
    let mut dialing: Option<Dialing> = (!connected.initialized()).then(|| {
        let dial = Arc::clone(&client).connect(target.clone(), port, grant.clone());
        Box::pin(dial) as Dialing
    });
    let mut buffer = BytesMut::from(first);
    let stop = {
        let relay = relay(&client, &target, port, &grant, &mut buffer, &connected, &mut dialing);
        tokio::select! {
            ended = relay => ended.err(),
            () = client.activity.idle(client.sandbox.settings.idle) => Some(Stop::End(RelayEnd::Idle)),
        }
    };
    let upstream = connected.into_inner();
    match stop {
        None => {}
        Some(Stop::Http) => {
            // A server that speaks before a request answers something else.
            if upstream.as_ref().is_some_and(|upstream| upstream.account.moved(Direction::Down) > 0) {
                let why = EgressRefusal::because(NetworkReason::BadRequest, "upstream spoke before the first request");
                return client.refuse(Some(&target), port, why);
            }
            let upstream: http::Dial = match (upstream, dialing) {
                (Some(upstream), _) => {
                    let unused = UnusedUpstream::from(upstream);
                    Box::pin(async move { unused.dialed() })
                }
                (None, Some(dial)) => {
                    Box::pin(
                        async move { dial.await.map(|upstream| upstream.dialed()).map_err(|(refusal, _)| refusal) },
                    )
                }
                (None, None) => return reset(&client.stream),
            };
            let io = Box::new(Replay::new(buffer.freeze(), client.io()));
            let captured = CapturedHttp { target: target.clone(), port, grant, via: client.via, upstream };
            tokio::select! {
                () = http::captured(client.interface(), io, captured) => {}
                () = client.activity.idle(client.sandbox.settings.idle) => reset(&client.stream),
            }
            if client.is_undecided() {
                report_gone(&client, &target, port);
            }
        }
        Some(Stop::Refused(refusal)) => {
            client.refuse(Some(&target), port, refusal);
            upstream.iter().for_each(|upstream| reset(&upstream.stream));
        }
        Some(Stop::Failed((refusal, address))) => {
            reset(&client.stream);
            client.report(NetworkEvent::refused(client.via, Some(&target), port, refusal, address));
        }
        Some(Stop::End(end)) => {
            reset(&client.stream);
            if let Some(upstream) = upstream {
                // Upstream has seen the connection at least.
                upstream.report_allowed();
                reset(&upstream.stream);
                match end {
                    RelayEnd::Limit(refusal) => upstream.refuse(refusal),
                    RelayEnd::Idle => upstream.cut(NetworkReason::TimedOut),
                    RelayEnd::UpstreamReset => upstream.cut(NetworkReason::Reset),
                    RelayEnd::ClientReset => {}
                }
            } else {
                report_gone(&client, &target, port);
            }
        }
    }
}

/// Reports that the program ended its connection before there was one to upstream.
fn report_gone(client: &ClientConnection, target: &EgressTarget, port: u16) {
    let why = EgressRefusal::because(NetworkReason::Unreachable, "the program did not wait for it");
    client.report(NetworkEvent::refused(client.via, Some(target), port, why, None));
}

/// An upstream connection that may turn out not to be needed; dropped unused, it is reported.
pub(super) struct UnusedUpstream(Option<UpstreamConnection>);

impl From<UpstreamConnection> for UnusedUpstream {
    fn from(upstream: UpstreamConnection) -> UnusedUpstream {
        UnusedUpstream(Some(upstream))
    }
}

impl UnusedUpstream {
    /// The connection, which is used from here on.
    pub(super) fn into_used(mut self) -> Option<UpstreamConnection> {
        self.0.take()
    }

    fn dialed(mut self) -> Result<Dialed, EgressRefusal> {
        let none = || EgressRefusal::because(NetworkReason::Gateway, "there is no connection to upstream");
        self.0.take().map(UpstreamConnection::dialed).ok_or_else(none)
    }
}

impl Drop for UnusedUpstream {
    fn drop(&mut self) {
        self.0.iter().for_each(UpstreamConnection::report_unused);
    }
}

/// Dials, and relays both ways at once.
async fn relay(
    client: &ClientConnection,
    target: &EgressTarget,
    port: u16,
    grant: &Grant,
    buffer: &mut BytesMut,
    connected: &SetOnce<UpstreamConnection>,
    dialing: &mut Option<Dialing>,
) -> Result<(), Stop> {
    let buffers = &client.sandbox.buffers;
    let dial = async {
        if let Some(dial) = dialing {
            let upstream = dial.await.map_err(Stop::Failed)?;
            *dialing = None;
            if connected.set(upstream).is_err() {
                return Err(Stop::Refused(EgressRefusal::because(
                    NetworkReason::Gateway,
                    "two connections to upstream",
                )));
            }
        }
        Ok(())
    };
    let answers = Answers::default();
    let down = async {
        let upstream = connected.wait().await;
        upstream.stream.readable().await.map_err(|_| Stop::End(RelayEnd::UpstreamReset))?;
        upstream.report_allowed();
        let (account, activity) = (&upstream.account, &client.activity);
        let look = |bytes: &[u8]| answers.note(|flight| flight.read(bytes));
        let moving = one_way(&upstream.stream, &client.stream, Direction::Down, account, activity, buffers, look);
        moving.await.map_err(Stop::End)?;
        answers.note(ServerFlight::end);
        Ok(())
    };
    let up = async {
        let protocol = read_protocol(client, target, port, grant, buffer).await?;
        match protocol {
            Protocol::Http => return Err(Stop::Http),
            Protocol::CutOff => return Err(Stop::End(RelayEnd::ClientReset)),
            Protocol::Opaque | Protocol::Tls(..) => {}
        }
        let mut line = FirstLine::default();
        if protocol == Protocol::Opaque {
            look_at(&mut line, buffer)?;
        }
        let upstream = connected.wait().await;
        upstream.report_allowed();
        match protocol {
            Protocol::Tls(hello, length) => {
                send(upstream, client, &buffer.split_to(length)).await?;
                let check = |another: &ClientHello| {
                    let rules = &client.sandbox.rules;
                    let checked = protocol_check::check_another_hello(&hello, another, rules, target, port, grant);
                    checked.map_err(Stop::Refused)
                };
                send_watched(upstream, client, buffer, &answers, check).await?;
            }
            _ => send_first_line(upstream, client, buffer, line).await?,
        }
        send(upstream, client, &std::mem::take(buffer)).await?;
        let (account, activity) = (&upstream.account, &client.activity);
        let moving = one_way(&client.stream, &upstream.stream, Direction::Up, account, activity, buffers, |_| {});
        moving.await.map_err(Stop::End)
    };
    tokio::try_join!(dial, down, up).map(drop)
}

/// Sends the first line of a protocol that is not known, and returns when nothing of it is left to be looked at.
async fn send_first_line(
    upstream: &UpstreamConnection,
    client: &ClientConnection,
    buffer: &mut BytesMut,
    mut line: FirstLine,
) -> Result<(), Stop> {
    loop {
        send(upstream, client, &std::mem::take(buffer)).await?;
        // A server that has spoken awaits no request line.
        let spoke = || upstream.account.moved(Direction::Down) > 0;
        if line.is_done() || spoke() || !read_more(client, buffer).await? || spoke() {
            return Ok(());
        }
        look_at(&mut line, buffer)?;
    }
}

fn look_at(line: &mut FirstLine, bytes: &[u8]) -> Result<(), Stop> {
    line.read(bytes).map_err(|why| Stop::Refused(EgressRefusal::because(NetworkReason::BadRequest, why)))
}

/// What upstream has answered to TLS greetings.
#[derive(Default)]
struct Answers {
    flight: Mutex<ServerFlight>,
    changed: Notify,
}

impl Answers {
    fn note(&self, note: impl FnOnce(&mut ServerFlight)) {
        note(&mut self.flight.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
    }
}

/// Sends what follows a TLS greeting, until no other one can follow in the clear; `check` judges those that do. Returns at
/// the end of the program's stream, or when all that is left in `buffer` and that follows may pass.
async fn send_watched(
    upstream: &UpstreamConnection,
    client: &ClientConnection,
    buffer: &mut BytesMut,
    answers: &Answers,
    check: impl Fn(&ClientHello) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut watch = ClientFlight::default();
    loop {
        let step = watch.step(buffer, &answers.flight.lock().unwrap_or_else(PoisonError::into_inner));
        let step = step.map_err(|why| Stop::Refused(EgressRefusal::because(NetworkReason::BadHello, why)))?;
        match step {
            WatchStep::Pass(count) => send(upstream, client, &buffer.split_to(count)).await?,
            WatchStep::Hello(another, length) => {
                check(&another)?;
                send(upstream, client, &buffer.split_to(length)).await?;
            }
            WatchStep::Done => return Ok(()),
            // The idle time bounds it.
            WatchStep::Wait => answers.changed.notified().await,
            WatchStep::More if buffer.is_empty() => {
                if !read_more(client, buffer).await? {
                    return Ok(());
                }
            }
            WatchStep::More => {
                let more = async {
                    let _permit = client.sandbox.greetings.acquire().await;
                    loop {
                        if buffer.len() > RECHECK_LENGTH {
                            tokio::time::sleep(RECHECK_INTERVAL).await;
                        }
                        if !read_more(client, buffer).await? {
                            // What is left of a record is passed on to no server.
                            return Err(Stop::End(RelayEnd::ClientReset));
                        }
                        let flight = answers.flight.lock().unwrap_or_else(PoisonError::into_inner);
                        if !matches!(watch.clone().step(buffer, &flight), Ok(WatchStep::More)) {
                            return Ok(());
                        }
                    }
                };
                match tokio::time::timeout(client.sandbox.settings.greeting, more).await {
                    Ok(more) => more?,
                    Err(_) => {
                        let why = EgressRefusal::because(
                            NetworkReason::TimedOut,
                            "a record after the first greeting did not come in time",
                        );
                        return Err(Stop::Refused(why));
                    }
                }
            }
        }
    }
}

/// Sends what has been read already, as its limits allow.
async fn send(upstream: &UpstreamConnection, client: &ClientConnection, mut bytes: &[u8]) -> Result<(), Stop> {
    while !bytes.is_empty() {
        let part = match upstream.account.reserve(Direction::Up, bytes.len()) {
            Allowance::Bytes(part) => part,
            Allowance::Wait(time) => {
                client.activity.touch();
                tokio::time::sleep(time).await;
                continue;
            }
            Allowance::Never(refusal) => return Err(Stop::End(RelayEnd::Limit(refusal))),
        };
        upstream.account.settle(Direction::Up, part, part);
        let written = write_all(&upstream.stream, &bytes[..part], &client.activity).await;
        written.map_err(|_| Stop::End(RelayEnd::UpstreamReset))?;
        bytes = &bytes[part..];
    }
    Ok(())
}

/// Reads into `buffer` until the protocol is known and admitted.
async fn read_protocol(
    client: &ClientConnection,
    target: &EgressTarget,
    port: u16,
    grant: &Grant,
    buffer: &mut BytesMut,
) -> Result<Protocol, Stop> {
    let check = |bytes: &[u8], ended: bool| {
        protocol_check::check(bytes, ended, &client.sandbox.rules, target, port, grant).map_err(Stop::Refused)
    };
    // The server may have to speak first, for as long as it likes: the idle time bounds that.
    if buffer.is_empty() && !read_more(client, buffer).await? {
        return Ok(Protocol::Opaque);
    }
    if let Some(protocol) = check(buffer, false)? {
        return Ok(protocol);
    }
    let rest = async {
        let _permit = client.sandbox.greetings.acquire().await;
        loop {
            if buffer.len() > RECHECK_LENGTH {
                // Each check reads all of it again: bytes that come one by one are collected first.
                tokio::time::sleep(RECHECK_INTERVAL).await;
            }
            let ended = !read_more(client, buffer).await?;
            if let Some(protocol) = check(buffer, ended)? {
                return Ok(protocol);
            }
        }
    };
    let mut rest = pin!(rest);
    match tokio::time::timeout(client.sandbox.settings.greeting, rest.as_mut()).await {
        Ok(protocol) => protocol,
        Err(_) => Err(Stop::Refused(EgressRefusal::because(NetworkReason::TimedOut, "its first bytes say nothing"))),
    }
}

async fn read_more(client: &ClientConnection, buffer: &mut BytesMut) -> Result<bool, Stop> {
    client.read_more(buffer, READ).await.map_err(|_| Stop::End(RelayEnd::ClientReset))
}
