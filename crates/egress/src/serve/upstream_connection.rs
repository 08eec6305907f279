//! Connections to upstream for a program's connection: counted against the limits, and reported when they are first
//! used and when they end.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::connect::dialer::Connected;
use crate::connect::poll_io::{self, ReadBudget};
use crate::connect::relay::reset;
use crate::decide::address::special;
use crate::decide::host_name::RequestedHost;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressTarget, Grant};
use crate::http::{BoxedStream, Dialed};
use crate::limits::{Account, Allowance, Direction, OpenSlot};
use crate::report::event::{NetworkEvent, NetworkKind};
use crate::report::reporter::millis;
use crate::sandbox::AliveCount;
use crate::serve::client_connection::ClientConnection;

/// Why there is no connection to upstream, and the address that this is about.
pub(super) type ConnectFailure = (EgressRefusal, Option<IpAddr>);

impl ClientConnection {
    /// Connects to the API's host, which the policy itself names.
    ///
    /// # Errors
    /// As for `connect`.
    pub(super) async fn connect_api(
        self: Arc<ClientConnection>,
        host: &RequestedHost,
        port: u16,
    ) -> Result<UpstreamConnection, ConnectFailure> {
        let target = match host {
            RequestedHost::Name(name) => EgressTarget::Name(name.clone()),
            RequestedHost::Address(address) => EgressTarget::Address(*address),
        };
        let slots = self.reserve_slots(&target)?;
        let connecting = self.sandbox.dialer.connect_unchecked(host, port);
        let connected = connecting.await.map_err(|error| (error.refusal, error.address))?;
        Ok(UpstreamConnection::new(self, connected, slots, target, port, Some("$.network.api".to_owned())))
    }

    /// Connects to upstream, as the rules allowed.
    ///
    /// # Errors
    /// The reason, which has not been reported yet, and the address that it is about.
    pub(super) async fn connect(
        self: Arc<ClientConnection>,
        target: EgressTarget,
        port: u16,
        grant: Grant,
    ) -> Result<UpstreamConnection, ConnectFailure> {
        let slots = self.reserve_slots(&target)?;
        let attempt = ConnectAttempt { client: &self, target: &target, port };
        let result = self.sandbox.dialer.connect(&target, port).await;
        std::mem::forget(attempt); // it holds references alone
        let (connected, skipped) = result.map_err(|error| (error.refusal, error.address))?;
        for (address, refusal) in skipped {
            self.report(NetworkEvent::refused(self.via, Some(&target), port, refusal, Some(address)));
        }
        let rule = Some(format!("$.network.allow[{}]", grant.rule));
        Ok(UpstreamConnection::new(self, connected, slots, target, port, rule))
    }

    /// One more connection to a host, and one more descriptor.
    fn reserve_slots(&self, target: &EgressTarget) -> Result<(Account, (OpenSlot, OpenSlot)), ConnectFailure> {
        let account = self.sandbox.limits.host(target).map_err(|refusal| (refusal, None))?;
        Ok((account, self.sandbox.descriptors.take().map_err(|refusal| (refusal, None))?))
    }
}

/// A connection that is being made. If it is dropped unfinished because the sandbox ended, it reports that: upstream
/// may have seen it, and nothing else would report it.
struct ConnectAttempt<'c> {
    client: &'c ClientConnection,
    target: &'c EgressTarget,
    port: u16,
}

impl Drop for ConnectAttempt<'_> {
    fn drop(&mut self) {
        if self.client.sandbox.is_ended() {
            let why = EgressRefusal::because(NetworkReason::Unreachable, "the run ended before upstream answered");
            self.client.report(NetworkEvent::refused(self.client.via, Some(self.target), self.port, why, None));
        }
    }
}

/// A connection to upstream, for one program's connection.
pub(super) struct UpstreamConnection {
    /// Its stream.
    pub stream: TcpStream,
    /// The account of its bytes.
    pub account: Account,
    /// The program's connection.
    pub client: Arc<ClientConnection>,
    /// The address that it leads to; none behind an upstream proxy that resolves.
    pub address: Option<IpAddr>,
    target: EgressTarget,
    port: u16,
    rule: Option<String>,
    reported: AtomicBool,
    cut: OnceLock<NetworkReason>,
    since: Instant,
    /// Dropped last, after the end was reported.
    _descriptor: (OpenSlot, OpenSlot),
    _alive: AliveCount,
}

impl UpstreamConnection {
    fn new(
        client: Arc<ClientConnection>,
        connected: Connected,
        (account, _descriptor): (Account, (OpenSlot, OpenSlot)),
        target: EgressTarget,
        port: u16,
        rule: Option<String>,
    ) -> UpstreamConnection {
        let Connected { stream, address } = connected;
        let reported = AtomicBool::new(false);
        let (since, _alive) = (Instant::now(), AliveCount::new(&client.sandbox));
        let cut = OnceLock::new();
        UpstreamConnection {
            stream,
            address,
            account,
            client,
            target,
            port,
            rule,
            reported,
            cut,
            since,
            _descriptor,
            _alive,
        }
    }

    fn event(&self, kind: NetworkKind) -> NetworkEvent {
        let mut event = NetworkEvent::new(kind, self.client.via);
        event.set_target(&self.target, self.port);
        event.address = self.address.or(event.address);
        event.rule.clone_from(&self.rule);
        event
    }

    /// Reports that it is used, once.
    pub(super) fn report_allowed(&self) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            self.client.sandbox.count_outbound();
            let mut event = self.event(NetworkKind::Allowed);
            // Where a name leads is in no rule, so a place that is not public is named.
            event.detail = event.address.and_then(|to| special(to).map(|special| format!("{to} is {special}")));
            self.client.report(event);
        }
    }

    /// Reports the connection if nothing else has: upstream has seen it, though the program sent nothing that could pass.
    pub(super) fn report_unused(&self) {
        if self.client.is_undecided() {
            self.report_allowed();
        }
    }

    /// Marks its end as not orderly: its last event has this reason.
    pub(super) fn cut(&self, reason: NetworkReason) {
        self.cut.get_or_init(|| reason);
    }

    /// Reports that it had to end.
    pub(super) fn refuse(&self, refusal: EgressRefusal) {
        self.cut(refusal.reason);
        self.client.report(NetworkEvent::refused(
            self.client.via,
            Some(&self.target),
            self.port,
            refusal,
            self.address,
        ));
    }

    /// As a stream whose bytes are counted and limited, with its address.
    pub(super) fn dialed(self) -> Dialed {
        self.report_allowed();
        Dialed {
            address: self.address,
            io: Box::new(MeteredStream { upstream: self, wait: [None, None], turn: ReadBudget::default() })
                as BoxedStream,
        }
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        // Half an upload must not look like a whole one; and upstream has seen what was cut off before its first byte.
        if self.client.sandbox.is_ended() {
            reset(&self.stream);
            self.report_allowed();
        }
        if *self.reported.get_mut() {
            let mut event = self.event(NetworkKind::Closed);
            event.bytes_up = Some(self.account.moved(Direction::Up));
            event.bytes_down = Some(self.account.moved(Direction::Down));
            event.duration_ms = Some(millis(self.since.elapsed()));
            event.reason = self.cut.get().copied();
            self.client.report(event);
        }
    }
}

/// Upstream's side as a stream: its bytes are counted, and wait for their share of the bandwidth.
struct MeteredStream {
    upstream: UpstreamConnection,
    wait: [Option<Pin<Box<Sleep>>>; 2],
    turn: ReadBudget,
}

impl MeteredStream {
    fn reserve(&mut self, context: &mut Context<'_>, direction: Direction, want: usize) -> Poll<io::Result<usize>> {
        loop {
            if let Some(wait) = &mut self.wait[direction as usize] {
                ready!(wait.as_mut().poll(context));
                self.wait[direction as usize] = None;
            }
            match self.upstream.account.reserve(direction, want.max(1)) {
                Allowance::Bytes(bytes) => return Poll::Ready(Ok(bytes)),
                Allowance::Wait(time) => {
                    self.upstream.client.activity.touch();
                    self.wait[direction as usize] = Some(Box::pin(tokio::time::sleep(time)));
                }
                Allowance::Never(refusal) => {
                    self.upstream.refuse(refusal);
                    reset(&self.upstream.client.stream);
                    return Poll::Ready(Err(io::Error::other("as many bytes as the policy has")));
                }
            }
        }
    }

    fn settle(&self, direction: Direction, reserved: usize, moved: &Poll<io::Result<usize>>) {
        let moved = match moved {
            Poll::Ready(Ok(moved)) => *moved,
            _ => 0,
        };
        self.upstream.account.settle(direction, reserved, moved);
        if moved > 0 {
            self.upstream.client.activity.touch();
        }
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.turn.poll(context));
        // Readable first: the end of the stream is no byte, and needs no share.
        ready!(self.upstream.stream.poll_read_ready(context))?;
        let reserved = ready!(self.reserve(context, Direction::Down, buffer.remaining()))?;
        let this = &mut *self;
        let moved = this.turn.poll_read(&this.upstream.stream, context, buffer, reserved);
        self.settle(Direction::Down, reserved, &moved);
        Poll::Ready(ready!(moved).map(drop))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.upstream.stream.poll_write_ready(context))?;
        let reserved = ready!(self.reserve(context, Direction::Up, bytes.len()))?;
        let moved = poll_io::poll_write(&self.upstream.stream, context, &bytes[..reserved]);
        self.settle(Direction::Up, reserved, &moved);
        moved
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_io::shutdown(&self.upstream.stream)
    }
}
