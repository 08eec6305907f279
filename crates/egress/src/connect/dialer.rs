//! Makes connections to upstream: resolves a name, checks its addresses, and connects to a checked address. Or, if the
//! host has an upstream proxy, makes a tunnel through that, which then resolves the name.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::connect::base64::base64;
use crate::connect::host_resolver::Resolve;
use crate::connect::route_lookup::{Route, route};
use crate::decide::host_name::{Name, RequestedHost};
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::rules::{EgressRules, EgressTarget};
use crate::limits::{DescriptorBudget, OpenSlot};

/// Time limit of a connection, name resolution included.
const CONNECT: Duration = Duration::from_secs(10);
/// Delay before the next address is tried as well (RFC 8305, 5).
const STAGGER: Duration = Duration::from_millis(250);
/// Longest head of the upstream proxy's answer to CONNECT.
const PROXY_HEAD: usize = 8 * 1024;

/// The host's own proxy, through which all connections go.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamProxy {
    /// Its host, which may have a private address: the policy names it.
    pub host: RequestedHost,
    /// Its port.
    pub port: u16,
    /// `USER:PASSWORD`, if it needs them.
    pub credentials: Option<String>,
}

/// An established connection.
#[derive(Debug)]
pub(crate) struct Connected {
    /// The stream, with `TCP_NODELAY`.
    pub stream: TcpStream,
    /// The address that was checked and connected to; none behind a proxy that resolves.
    pub address: Option<IpAddr>,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DialError {
    /// The reason.
    pub refusal: EgressRefusal,
    /// The address that it is about, if any.
    pub address: Option<IpAddr>,
}

/// Addresses of the name that the rules refuse, in order.
pub(crate) type SkippedAddresses = Vec<(IpAddr, EgressRefusal)>;

/// Makes the connections to upstream of one sandbox.
#[derive(Clone)]
pub(crate) struct Dialer {
    /// Resolves names.
    pub resolve: Arc<dyn Resolve>,
    /// Checks addresses.
    pub rules: Arc<EgressRules>,
    /// The host's own proxy, if any.
    pub proxy: Option<Arc<UpstreamProxy>>,
    /// Limits how many names are resolved at once.
    pub lookup_slots: LookupSlots,
    /// Descriptors for simultaneous attempts beside the first.
    pub descriptors: DescriptorBudget,
}

/// Limits how many names a gateway resolves at once, and each sandbox of it: a lookup takes several descriptors, until
/// the host's name servers answer.
#[derive(Debug, Clone)]
pub(crate) struct LookupSlots {
    all: Arc<Semaphore>,
    one: Arc<Semaphore>,
    most: usize,
}

impl LookupSlots {
    /// At most `most` lookups at once.
    pub(crate) fn new(most: usize) -> LookupSlots {
        let all = Arc::new(Semaphore::new(most));
        LookupSlots { one: Arc::clone(&all), all, most }.share()
    }

    /// One sandbox's share: no more than half.
    pub(crate) fn share(&self) -> LookupSlots {
        let one = Arc::new(Semaphore::new((self.most / 2).max(1)));
        LookupSlots { all: Arc::clone(&self.all), one, most: self.most }
    }
}

impl Dialer {
    /// Connects to a target that the rules allowed. Addresses that they refuse are skipped, and returned beside the
    /// connection if another address was connected to.
    ///
    /// # Errors
    /// The rules refuse every address, or none answers in time.
    pub(crate) async fn connect(
        &self,
        target: &EgressTarget,
        port: u16,
    ) -> Result<(Connected, SkippedAddresses), DialError> {
        let connect = async {
            match &self.proxy {
                Some(proxy) => self.tunnel(proxy, target, port).await.map(|connected| (connected, Vec::new())),
                None => self.direct(target, port).await,
            }
        };
        match tokio::time::timeout(CONNECT, connect).await {
            Ok(ended) => ended,
            Err(_) => Err(failed(NetworkReason::UpstreamTimedOut, "no connection within 10 s", None)),
        }
    }

    async fn direct(&self, target: &EgressTarget, port: u16) -> Result<(Connected, SkippedAddresses), DialError> {
        let found = match target {
            EgressTarget::Name(name) => self.resolved(name).await?,
            EgressTarget::Address(address) => vec![*address],
        };
        let mut skipped = Vec::new();
        let mut unreachable = None;
        let mut fit = Vec::new();
        for address in found {
            match self.check(target, port, address) {
                Ok(true) => fit.push(SocketAddr::new(address, port)),
                Ok(false) => unreachable = Some(address),
                Err(refusal) => skipped.push((address, refusal)),
            }
        }
        if fit.is_empty() {
            if skipped.is_empty() {
                return Err(failed(NetworkReason::Unreachable, "the host has no route there", unreachable));
            }
            let (address, refusal) = skipped.swap_remove(0);
            return Err(DialError { refusal, address: Some(address) });
        }
        let (stream, address) = happy_eyeballs(&fit, &self.descriptors).await?;
        Ok((Connected { stream, address: Some(address) }, skipped))
    }

    async fn resolved(&self, name: &Name) -> Result<Vec<IpAddr>, DialError> {
        // The sandbox's own first: a sandbox that waits for its own share does not delay others. Neither is ever
        // closed.
        let _places = (self.lookup_slots.one.acquire().await, self.lookup_slots.all.acquire().await);
        self.resolve.addresses(name).await.map_err(|refusal| DialError { refusal, address: None })
    }

    /// Whether the host has a route to an address, if the rules allow it.
    fn check(&self, target: &EgressTarget, port: u16, address: IpAddr) -> Result<bool, EgressRefusal> {
        self.rules.upstream(target, port, address)?;
        match route(address) {
            // The host's own address counts as private even if it is a public one.
            Route::Own => self.rules.upstream_own(target, port, address).map(|()| true),
            Route::Out => Ok(true),
            Route::None => Ok(false),
        }
    }

    /// Connects to a host that the policy itself names, whatever its address: that of the API that is passed through.
    ///
    /// # Errors
    /// The name does not resolve, or no address answers in time.
    pub(crate) async fn connect_unchecked(&self, host: &RequestedHost, port: u16) -> Result<Connected, DialError> {
        let connect = async {
            let (stream, address) = self.plain(host, port).await?;
            Ok(Connected { stream, address: Some(address) })
        };
        match tokio::time::timeout(CONNECT, connect).await {
            Ok(ended) => ended,
            Err(_) => Err(failed(NetworkReason::UpstreamTimedOut, "no connection within 10 s", None)),
        }
    }

    async fn plain(&self, host: &RequestedHost, port: u16) -> Result<(TcpStream, IpAddr), DialError> {
        let found = match host {
            RequestedHost::Name(name) => self.resolved(name).await?,
            RequestedHost::Address(address) => vec![*address],
        };
        let found: Vec<SocketAddr> = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        happy_eyeballs(&found, &self.descriptors).await
    }

    async fn tunnel(&self, proxy: &UpstreamProxy, target: &EgressTarget, port: u16) -> Result<Connected, DialError> {
        let (host, address) = match target {
            EgressTarget::Name(name) => (name.as_str().to_owned(), None),
            EgressTarget::Address(address) => {
                self.rules
                    .upstream(target, port, *address)
                    .map_err(|refusal| DialError { refusal, address: Some(*address) })?;
                (SocketAddr::new(*address, port).to_string(), Some(*address))
            }
        };
        let to = if address.is_some() { host } else { format!("{host}:{port}") };
        let (mut stream, _) = self.plain(&proxy.host, proxy.port).await.map_err(|mut failure| {
            let why = failure.refusal.detail.take().unwrap_or_default();
            failure.refusal.detail = Some(format!("the host's proxy: {why}"));
            failure
        })?;
        match tunneled(&mut stream, &to, proxy.credentials.as_deref()).await {
            Ok(200..=299) => Ok(Connected { stream, address }),
            Ok(status) => Err(failed(
                NetworkReason::Unreachable,
                &format!("the host's proxy answered CONNECT with {status}"),
                address,
            )),
            Err(error) => Err(failed(NetworkReason::Unreachable, &format!("the host's proxy: {error}"), address)),
        }
    }
}

fn failed(reason: NetworkReason, why: &str, address: Option<IpAddr>) -> DialError {
    DialError { refusal: EgressRefusal::because(reason, why), address }
}

/// Connects to the first address that answers (Happy Eyeballs, RFC 8305): attempts start one after the other, and run
/// at the same time as long as there are descriptors for them. The first attempt has the descriptor of the connection.
async fn happy_eyeballs(
    addresses: &[SocketAddr],
    descriptors: &DescriptorBudget,
) -> Result<(TcpStream, IpAddr), DialError> {
    type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;
    type Running = (SocketAddr, Attempt, Option<(OpenSlot, OpenSlot)>);
    let mut waiting = addresses.iter().copied();
    let mut running: Vec<Running> = Vec::new();
    let mut last = None;
    loop {
        let has_first = running.iter().any(|(_, _, place)| place.is_none());
        let place = if has_first { descriptors.take().ok().map(Some) } else { Some(None) };
        if let Some(place) = place
            && let Some(address) = waiting.next()
        {
            running.push((address, Box::pin(TcpStream::connect(address)), place));
        } else if running.is_empty() {
            let (address, error): (IpAddr, io::Error) =
                last.unwrap_or((Ipv4Addr::UNSPECIFIED.into(), io::ErrorKind::AddrNotAvailable.into()));
            return Err(failed(reason(&error), &error.to_string(), Some(address)));
        }
        let any = poll_fn(|context| {
            for index in 0..running.len() {
                if let Poll::Ready(ended) = running[index].1.as_mut().poll(context) {
                    let (address, ..) = running.swap_remove(index);
                    return Poll::Ready((address, ended));
                }
            }
            Poll::Pending
        });
        let ended = if waiting.len() == 0 { Ok(any.await) } else { tokio::time::timeout(STAGGER, any).await };
        match ended {
            Ok((address, Ok(stream))) => {
                if let Err(error) = stream.set_nodelay(true) {
                    return Err(failed(reason(&error), &error.to_string(), Some(address.ip())));
                }
                return Ok((stream, address.ip()));
            }
            Ok((address, Err(error))) => last = Some((address.ip(), error)),
            Err(_) => {}
        }
    }
}

fn reason(error: &io::Error) -> NetworkReason {
    match error.kind() {
        io::ErrorKind::ConnectionReset => NetworkReason::Reset,
        io::ErrorKind::TimedOut => NetworkReason::UpstreamTimedOut,
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => NetworkReason::Gateway,
        _ => NetworkReason::Unreachable,
    }
}

/// Asks a proxy for a tunnel, reads the head of its answer and no byte more, and returns the status.
async fn tunneled(stream: &mut TcpStream, to: &str, credentials: Option<&str>) -> io::Result<u16> {
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    if let Some(credentials) = credentials {
        request.push_str(&format!("Proxy-Authorization: Basic {}\r\n", base64(credentials.as_bytes())));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= PROXY_HEAD {
            return Err(io::Error::other("its answer is too long"));
        }
        // Byte by byte, because what follows is upstream's. It is read from the kernel's buffer, once for each
        // connection.
        head.push(stream.read_u8().await?);
    }
    let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5)).map(String::from_utf8_lossy);
    status.and_then(|digits| digits.parse().ok()).ok_or_else(|| io::Error::other("its answer is not HTTP/1"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cofferdam_policy::Network;

    use super::*;

    /// Listeners with a full backlog, but for the last.
    async fn full_but_the_last(count: u8) -> (Vec<SocketAddr>, Vec<TcpListener>, Vec<TcpStream>) {
        let listeners: Vec<TcpListener> =
            (1..=count).map(|last| TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap()).collect();
        let addresses: Vec<SocketAddr> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let mut held = Vec::new();
        for (listener, address) in listeners.iter().zip(&addresses).take(usize::from(count) - 1) {
            rustix::net::listen(listener, 0).unwrap();
            for _ in 0..2 {
                let stream = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await;
                held.extend(stream.ok().and_then(Result::ok));
            }
        }
        (addresses, listeners, held)
    }

    #[tokio::test]
    async fn simultaneous_attempts_wait_for_free_descriptors() {
        let (addresses, _listeners, _held) = full_but_the_last(4).await;
        let most = DescriptorBudget::new(6);
        let begun = std::time::Instant::now();
        let (_, address) = happy_eyeballs(&addresses, &most.share()).await.unwrap();
        assert_eq!(address, addresses[3].ip());
        assert!(begun.elapsed() < 5 * STAGGER);
        // As many as one sandbox may have, and only while they are tried.
        let share = most.share();
        let places: Vec<_> = (0..2).map(|_| share.take().unwrap()).collect();
        let tried = tokio::time::timeout(6 * STAGGER, happy_eyeballs(&addresses, &share)).await;
        assert!(tried.is_err(), "{tried:?}");
        drop(places);
        assert_eq!(happy_eyeballs(&addresses, &share).await.unwrap().1, addresses[3].ip());
        assert!((0..3).map(|_| share.take().ok()).collect::<Option<Vec<_>>>().is_some(), "some are kept");
    }

    /// Answers for one name only, and counts the lookups.
    #[derive(Default)]
    struct Never(AtomicUsize);

    impl Resolve for Never {
        fn addresses(&self, name: &Name) -> crate::connect::host_resolver::Addresses {
            self.0.fetch_add(1, Ordering::Relaxed);
            let is_good = name.as_str() == "good.example";
            Box::pin(async move {
                if !is_good {
                    std::future::pending::<()>().await;
                }
                Ok(vec![IpAddr::from([10, 0, 0, 1])])
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_lookups_block_only_their_own_sandbox() {
        let never = Arc::<Never>::default();
        let lookup_slots = LookupSlots::new(10);
        let upstream = || Dialer {
            resolve: Arc::clone(&never) as Arc<dyn Resolve>,
            rules: Arc::new(EgressRules::compile(&Network::none())),
            proxy: None,
            lookup_slots: lookup_slots.share(),
            descriptors: DescriptorBudget::new(10),
        };
        let to = |name: &str| EgressTarget::Name(Name::parse(name.as_bytes()).unwrap());
        let hostile = upstream();
        for number in 0..50 {
            let (hostile, to) = (hostile.clone(), to(&format!("h{number}.example")));
            tokio::spawn(async move { hostile.connect(&to, 443).await.map(drop) });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(never.0.load(Ordering::Relaxed), 5);
        let (other, good) = (upstream(), to("good.example"));
        let soon = tokio::time::timeout(Duration::from_secs(1), other.connect(&good, 443));
        let failure = soon.await.unwrap().unwrap_err();
        assert_eq!(failure.refusal.reason, NetworkReason::AddressNotPublic);
        // Lookups that take too long are given up, and then the hostile sandbox's names are resolved again.
        tokio::time::sleep(CONNECT).await;
        let again = tokio::time::timeout(Duration::from_secs(1), hostile.connect(&good, 443)).await;
        assert_eq!(again.unwrap().unwrap_err().refusal.reason, NetworkReason::AddressNotPublic);
    }
}
