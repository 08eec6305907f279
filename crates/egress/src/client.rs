//! One connection that a program made: what it is for, what it may reach, and what is told of it.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::event::{Event, Kind, Reason, Via};
use crate::http::{Dial, Dialed, Done, Door, Io};
use crate::limits::{Account, Allowance, Open, Way};
use crate::name::Host;
use crate::relay::{Activity, reset};
use crate::reporter::millis;
use crate::rules::{Grant, Refusal, Target};
use crate::sandbox::{Alive, Sandbox, Undecided, about, refusal, refused};
use crate::upstream::Connected;
use crate::{flow, proxies};

/// Why there is no connection to upstream, and the address that it is about.
pub type Failed = (Refusal, Option<IpAddr>);

/// A program's connection.
pub struct Client {
    /// Whose it is.
    pub sandbox: Arc<Sandbox>,
    /// Its stream, nobody else's.
    pub stream: Arc<TcpStream>,
    /// How it came.
    pub via: Via,
    /// Where it was made to.
    pub destination: SocketAddr,
    /// When something last moved on it.
    pub activity: Activity,
    number: u64,
    peer: SocketAddr,
    me: Weak<Client>,
    /// Until the first thing is told of it.
    undecided: Mutex<Option<Undecided>>,
    _open: (Open, (Open, Open)),
}

impl Client {
    /// One that was just accepted.
    pub fn new(
        sandbox: &Arc<Sandbox>,
        stream: TcpStream,
        via: Via,
        peer: SocketAddr,
        destination: SocketAddr,
        open: (Open, (Open, Open)),
    ) -> Arc<Client> {
        Arc::new_cyclic(|me| Client {
            sandbox: Arc::clone(sandbox),
            stream: Arc::new(stream),
            via,
            destination,
            activity: Activity::new(),
            number: sandbox.number(),
            peer,
            me: Weak::clone(me),
            undecided: Mutex::new(Some(Undecided::new(sandbox))),
            _open: open,
        })
    }

    /// Serves it to its end.
    pub async fn serve(self: Arc<Client>) {
        let idle = self.sandbox.settings.idle;
        let service: Done = match self.via {
            Via::Connect => return self.captured().await,
            Via::Dns => Box::pin(proxies::resolver(Arc::clone(&self))),
            Via::Socks => Box::pin(proxies::socks(Arc::clone(&self))),
            Via::HttpProxy => Box::pin(crate::http::proxy(self.door(), self.io())),
            Via::Api => match &self.sandbox.api {
                Some(api) => Box::pin(proxies::api(Arc::clone(&self), Arc::clone(api))),
                None => return reset(&self.stream),
            },
        };
        tokio::select! {
            () = service => {}
            () = self.activity.idle(idle) => reset(&self.stream),
        }
    }

    /// As a trait object.
    pub fn door(self: &Arc<Client>) -> Arc<dyn Door> {
        Arc::clone(self) as Arc<dyn Door>
    }

    /// The program's side, for whoever reads and writes it as a stream.
    pub fn io(self: &Arc<Client>) -> Io {
        Box::new(ClientIo { client: Arc::clone(self) })
    }

    async fn captured(self: Arc<Client>) {
        let (asked, port) = (Target::Address(self.destination.ip()), self.destination.port());
        let target = match self.sandbox.meant(&asked) {
            Ok(target) => target,
            Err(refusal) => return self.refuse(Some(&asked), port, refusal),
        };
        match self.sandbox.decide(&target, port) {
            Ok(grant) => flow::serve(self, target, port, grant, Bytes::new(), None).await,
            Err(refusal) => self.refuse(Some(&target), port, refusal),
        }
    }

    /// Tells of a refusal, with the process if it can be found, and resets the connection.
    pub fn refuse(&self, target: Option<&Target>, port: u16, refusal: Refusal) {
        let event = refused(self.via, target, port, refusal, None);
        self.event(event);
        reset(&self.stream);
    }

    /// Tells an event of this connection.
    pub fn event(&self, mut event: Event) {
        event.connection = self.number;
        event.via = self.via;
        if event.kind == Kind::Refused && event.pid.is_none() {
            event.pid = self.sandbox.process(self.peer, self.destination);
        }
        self.sandbox.teller.tell(event);
        drop(self.undecided.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// A connection to the API's host, which the policy itself names.
    ///
    /// # Errors
    /// As those of `connect`.
    pub async fn named(self: Arc<Client>, host: &Host, port: u16) -> Result<Link, Failed> {
        let target = match host {
            Host::Name(name) => Target::Name(name.clone()),
            Host::Address(address) => Target::Address(*address),
        };
        let account = self.room(&target)?;
        let connecting = self.sandbox.upstream.named(host, port);
        let connected = connecting.await.map_err(|failure| (failure.refusal, failure.address))?;
        Ok(self.link(connected, account, target, port, Some("$.network.api".to_owned())))
    }

    /// Room for one more connection to a host.
    fn room(&self, target: &Target) -> Result<(Account, (Open, Open)), Failed> {
        let account = self.sandbox.limits.host(target).map_err(|refusal| (refusal, None))?;
        Ok((account, self.sandbox.descriptors.take().map_err(|refusal| (refusal, None))?))
    }

    fn link(
        self: Arc<Client>,
        connected: Connected,
        (account, _open): (Account, (Open, Open)),
        target: Target,
        port: u16,
        rule: Option<String>,
    ) -> Link {
        let Connected { stream, address } = connected;
        let told = AtomicBool::new(false);
        let (since, _alive) = (Instant::now(), Alive::new(&self.sandbox));
        let cut = OnceLock::new();
        Link { stream, address, account, client: self, target, port, rule, told, cut, since, _open, _alive }
    }

    /// A connection to upstream that the rules allowed.
    ///
    /// # Errors
    /// What is to be told, and nothing told yet: the reason, and the address that it is about.
    pub async fn connect(self: Arc<Client>, target: Target, port: u16, grant: Grant) -> Result<Link, Failed> {
        let account = self.room(&target)?;
        let attempt = Attempt { client: &self, target: &target, port };
        let result = self.sandbox.upstream.connect(&target, port).await;
        std::mem::forget(attempt); // it holds references alone
        let (connected, passed_over) = result.map_err(|failure| (failure.refusal, failure.address))?;
        for (address, refusal) in passed_over {
            self.event(refused(self.via, Some(&target), port, refusal, Some(address)));
        }
        let rule = Some(format!("$.network.allow[{}]", grant.rule));
        Ok(self.link(connected, account, target, port, rule))
    }
}

/// A connection that is being made. Dropped unfinished because the sandbox ended, it reports that: upstream may have seen
/// it, and nothing else would say so.
struct Attempt<'c> {
    client: &'c Client,
    target: &'c Target,
    port: u16,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.client.sandbox.is_ended() {
            let why = refusal(Reason::Unreachable, "the run ended before upstream answered");
            self.client.event(refused(self.client.via, Some(self.target), self.port, why, None));
        }
    }
}

/// A connection to upstream, for one program's connection. It is told of when it is first used, and when it ends.
pub struct Link {
    /// Its stream.
    pub stream: TcpStream,
    /// Its bytes.
    pub account: Account,
    /// For whom.
    pub client: Arc<Client>,
    /// Where it leads.
    pub address: Option<IpAddr>,
    target: Target,
    port: u16,
    rule: Option<String>,
    told: AtomicBool,
    cut: OnceLock<Reason>,
    since: Instant,
    /// Dropped last, after the end was told.
    _open: (Open, Open),
    _alive: Alive,
}

impl Link {
    fn event(&self, kind: Kind) -> Event {
        let mut event = Event::new(kind, self.client.via);
        about(&mut event, &self.target, self.port);
        event.address = self.address.or(event.address);
        event.rule.clone_from(&self.rule);
        event
    }

    /// Tells that it goes out, once.
    pub fn goes_out(&self) {
        if !self.told.swap(true, Ordering::Relaxed) {
            self.client.sandbox.goes_out();
            self.client.event(self.event(Kind::Allowed));
        }
    }

    /// Its end is no orderly one: this is told with it.
    pub fn cut(&self, reason: Reason) {
        self.cut.get_or_init(|| reason);
    }

    /// Tells that it had to end.
    pub fn refuse(&self, refusal: Refusal) {
        self.cut(refusal.reason);
        self.client.event(refused(self.client.via, Some(&self.target), self.port, refusal, self.address));
    }

    /// As a stream that counts.
    pub fn io(self) -> Io {
        self.goes_out();
        Box::new(LinkIo { link: self, wait: [None, None] })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Half an upload must not look like a whole one; and upstream has seen what was cut off before its first byte.
        if self.client.sandbox.is_ended() {
            reset(&self.stream);
            self.goes_out();
        }
        if *self.told.get_mut() {
            let mut event = self.event(Kind::Closed);
            event.bytes_up = Some(self.account.moved(Way::Up));
            event.bytes_down = Some(self.account.moved(Way::Down));
            event.duration_ms = Some(millis(self.since.elapsed()));
            event.reason = self.cut.get().copied();
            self.client.event(event);
        }
    }
}

impl Door for Client {
    fn decide(&self, target: &Target, port: u16) -> Result<Grant, Refusal> {
        self.sandbox.decide(&self.sandbox.meant(target)?, port)
    }

    fn request(&self, grant: &Grant, method: &str, path: &str) -> Result<(), Refusal> {
        self.sandbox.rules.request(grant, method, path)
    }

    fn dial(&self, target: &Target, port: u16, grant: &Grant) -> Dial {
        let (client, grant) = (Weak::upgrade(&self.me), grant.clone());
        let target = self.sandbox.meant(target);
        Box::pin(async move {
            let client = client.ok_or_else(|| refusal(Reason::Gateway, "the connection is gone"))?;
            client.connect(target?, port, grant).await.map(dialed).map_err(|(refusal, _)| refusal)
        })
    }

    fn tunnel(self: Arc<Self>, client: Io, first: Bytes, target: Target, port: u16, grant: Grant) -> Done {
        // The very stream of this client, which is read and written here without the box around it.
        drop(client);
        Box::pin(async move {
            match self.sandbox.meant(&target) {
                Ok(target) => flow::serve(self, target, port, grant, first, None).await,
                Err(refusal) => self.refuse(Some(&target), port, refusal),
            }
        })
    }

    fn event(&self, event: Event) {
        Client::event(self, event);
    }
}

/// For whoever goes on with it as a stream.
pub fn dialed(link: Link) -> Dialed {
    let address = link.address;
    Dialed { io: link.io(), address }
}

/// The program's side as a stream.
struct ClientIo {
    client: Arc<Client>,
}

fn read(
    stream: &TcpStream,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(context))?;
        let room = most.min(buffer.remaining());
        match stream.try_read(buffer.initialize_unfilled_to(room)) {
            Ok(n) => {
                buffer.advance(n);
                return Poll::Ready(Ok(n));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn write(stream: &TcpStream, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(context))?;
        match stream.try_write(bytes) {
            Ok(n) => return Poll::Ready(Ok(n)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

fn shutdown(stream: &TcpStream) -> Poll<io::Result<()>> {
    Poll::Ready(Ok(rustix::net::shutdown(stream, rustix::net::Shutdown::Write)?))
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let moved = ready!(read(&self.client.stream, context, buffer, usize::MAX));
        self.client.activity.touch();
        Poll::Ready(moved.map(drop))
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let moved = ready!(write(&self.client.stream, context, bytes));
        self.client.activity.touch();
        Poll::Ready(moved)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        shutdown(&self.client.stream)
    }
}

/// Upstream's side as a stream: its bytes count, and wait for their share.
struct LinkIo {
    link: Link,
    wait: [Option<Pin<Box<Sleep>>>; 2],
}

impl LinkIo {
    fn reserve(&mut self, context: &mut Context<'_>, way: Way, want: usize) -> Poll<io::Result<usize>> {
        loop {
            if let Some(wait) = &mut self.wait[way as usize] {
                ready!(wait.as_mut().poll(context));
                self.wait[way as usize] = None;
            }
            match self.link.account.reserve(way, want.max(1)) {
                Allowance::Bytes(bytes) => return Poll::Ready(Ok(bytes)),
                Allowance::Wait(time) => {
                    self.link.client.activity.touch();
                    self.wait[way as usize] = Some(Box::pin(tokio::time::sleep(time)));
                }
                Allowance::Never(refusal) => {
                    self.link.refuse(refusal);
                    reset(&self.link.client.stream);
                    return Poll::Ready(Err(io::Error::other("as many bytes as the policy has")));
                }
            }
        }
    }

    fn settle(&self, way: Way, reserved: usize, moved: &Poll<io::Result<usize>>) {
        let moved = match moved {
            Poll::Ready(Ok(moved)) => *moved,
            _ => 0,
        };
        self.link.account.settle(way, reserved, moved);
        if moved > 0 {
            self.link.client.activity.touch();
        }
    }
}

impl AsyncRead for LinkIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Readable first: an end is no byte, and needs no share.
        ready!(self.link.stream.poll_read_ready(context))?;
        let reserved = ready!(self.reserve(context, Way::Down, buffer.remaining()))?;
        let moved = read(&self.link.stream, context, buffer, reserved);
        self.settle(Way::Down, reserved, &moved);
        Poll::Ready(ready!(moved).map(drop))
    }
}

impl AsyncWrite for LinkIo {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.link.stream.poll_write_ready(context))?;
        let reserved = ready!(self.reserve(context, Way::Up, bytes.len()))?;
        let moved = write(&self.link.stream, context, &bytes[..reserved]);
        self.settle(Way::Up, reserved, &moved);
        moved
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        shutdown(&self.link.stream)
    }
}
