//! The way out: a name resolved here and now, its address checked, and a connection to that very address. Or, where the host
//! has a proxy of its own, a tunnel through that, which then resolves.

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

use crate::event::Reason;
use crate::limits::{Descriptors, Open};
use crate::name::{Host, Name};
use crate::resolve::Resolve;
use crate::route::{Route, route};
use crate::rules::{Refusal, Rules, Target};

/// From the wish to the connection, the name's resolution included.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an address has before the next one is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);
/// Longest answer of the host's proxy to a CONNECT.
const PROXY_HEAD: usize = 8 * 1024;

/// The host's own proxy, through which everything has to go.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its host, which may be private: the host's configuration names it.
    pub host: Host,
    /// Its port.
    pub port: u16,
    /// `USER:PASSWORD`, where it wants them.
    pub credentials: Option<String>,
}

/// A connection that was made.
#[derive(Debug)]
pub struct Connected {
    /// The stream, without Nagle's delay.
    pub stream: TcpStream,
    /// The address that was checked and connected to; none behind a proxy that resolves.
    pub address: Option<IpAddr>,
}

/// Why no connection was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason, in the rules' words.
    pub refusal: Refusal,
    /// The address that it is about, when it is about one.
    pub address: Option<IpAddr>,
}

/// Answers of the resolver that were passed over, in order.
pub type PassedOver = Vec<(IpAddr, Refusal)>;

/// The way out of one sandbox.
#[derive(Clone)]
pub struct Upstream {
    /// What resolves names.
    pub resolve: Arc<dyn Resolve>,
    /// What addresses are checked by.
    pub rules: Arc<Rules>,
    /// The host's own proxy, if any.
    pub proxy: Option<Arc<Proxy>>,
    /// How many names are resolved at once.
    pub lookups: Lookups,
    /// What attempts beside the first one of a connection may take of the process's.
    pub descriptors: Descriptors,
}

/// How many names a gateway resolves at once, and each sandbox of them: a lookup takes several descriptors, for as long as
/// the host's name servers let it wait.
#[derive(Debug, Clone)]
pub struct Lookups {
    all: Arc<Semaphore>,
    one: Arc<Semaphore>,
    most: usize,
}

impl Lookups {
    /// None under way.
    pub fn new(most: usize) -> Lookups {
        let all = Arc::new(Semaphore::new(most));
        Lookups { one: Arc::clone(&all), all, most }.part()
    }

    /// One sandbox's part: no more than half.
    pub fn part(&self) -> Lookups {
        let one = Arc::new(Semaphore::new((self.most / 2).max(1)));
        Lookups { all: Arc::clone(&self.all), one, most: self.most }
    }
}

impl Upstream {
    /// Connects to what the rules allowed. Addresses that may not be connected to are passed over, and told in the second
    /// part of the answer when another one could be.
    ///
    /// # Errors
    /// No address may be connected to, or none answers within the time.
    pub async fn connect(&self, target: &Target, port: u16) -> Result<(Connected, PassedOver), Failure> {
        let connect = async {
            match &self.proxy {
                Some(proxy) => self.tunnel(proxy, target, port).await.map(|connected| (connected, Vec::new())),
                None => self.direct(target, port).await,
            }
        };
        match tokio::time::timeout(CONNECT, connect).await {
            Ok(ended) => ended,
            Err(_) => Err(failed(Reason::UpstreamTimedOut, "no connection within 10 s", None)),
        }
    }

    async fn direct(&self, target: &Target, port: u16) -> Result<(Connected, PassedOver), Failure> {
        let found = match target {
            Target::Name(name) => self.resolved(name).await?,
            Target::Address(address) => vec![*address],
        };
        let mut passed_over = Vec::new();
        let mut unreachable = None;
        let mut fit = Vec::new();
        for address in found {
            match self.check(target, port, address) {
                Ok(true) => fit.push(SocketAddr::new(address, port)),
                Ok(false) => unreachable = Some(address),
                Err(refusal) => passed_over.push((address, refusal)),
            }
        }
        if fit.is_empty() {
            if passed_over.is_empty() {
                return Err(failed(Reason::Unreachable, "the host has no route there", unreachable));
            }
            let (address, refusal) = passed_over.swap_remove(0);
            return Err(Failure { refusal, address: Some(address) });
        }
        let (stream, address) = first_of(&fit, &self.descriptors).await?;
        Ok((Connected { stream, address: Some(address) }, passed_over))
    }

    async fn resolved(&self, name: &Name) -> Result<Vec<IpAddr>, Failure> {
        // Its own first: who waits for that keeps nobody else waiting. Neither is ever closed.
        let _places = (self.lookups.one.acquire().await, self.lookups.all.acquire().await);
        self.resolve.addresses(name).await.map_err(|refusal| Failure { refusal, address: None })
    }

    /// Whether the host has a way to an address that may be connected to.
    fn check(&self, target: &Target, port: u16, address: IpAddr) -> Result<bool, Refusal> {
        self.rules.upstream(target, port, address)?;
        match route(address) {
            // No less private for being a public one.
            Route::Own => self.rules.upstream_own(port, address).map(|()| true),
            Route::Out => Ok(true),
            Route::None => Ok(false),
        }
    }

    /// Connects to a host that the policy itself names, wherever it is: the API that is passed through.
    ///
    /// # Errors
    /// The name does not resolve, or nothing answers within the time.
    pub async fn named(&self, host: &Host, port: u16) -> Result<Connected, Failure> {
        let connect = async {
            let (stream, address) = self.plain(host, port).await?;
            Ok(Connected { stream, address: Some(address) })
        };
        match tokio::time::timeout(CONNECT, connect).await {
            Ok(ended) => ended,
            Err(_) => Err(failed(Reason::UpstreamTimedOut, "no connection within 10 s", None)),
        }
    }

    async fn plain(&self, host: &Host, port: u16) -> Result<(TcpStream, IpAddr), Failure> {
        let found = match host {
            Host::Name(name) => self.resolved(name).await?,
            Host::Address(address) => vec![*address],
        };
        let found: Vec<SocketAddr> = found.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        first_of(&found, &self.descriptors).await
    }

    async fn tunnel(&self, proxy: &Proxy, target: &Target, port: u16) -> Result<Connected, Failure> {
        let (host, address) = match target {
            Target::Name(name) => (name.as_str().to_owned(), None),
            Target::Address(address) => {
                self.rules
                    .upstream(target, port, *address)
                    .map_err(|refusal| Failure { refusal, address: Some(*address) })?;
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
            Ok(status) => {
                Err(failed(Reason::Unreachable, &format!("the host's proxy answered CONNECT with {status}"), address))
            }
            Err(error) => Err(failed(Reason::Unreachable, &format!("the host's proxy: {error}"), address)),
        }
    }
}

fn failed(reason: Reason, why: &str, address: Option<IpAddr>) -> Failure {
    Failure { refusal: Refusal { reason, rule: None, detail: Some(why.to_owned()) }, address }
}

/// A connection to whichever answers first; each gets a start over the next, which begins beside it only where there is a
/// descriptor for it: the first has that of the connection.
async fn first_of(addresses: &[SocketAddr], descriptors: &Descriptors) -> Result<(TcpStream, IpAddr), Failure> {
    type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;
    type Running = (SocketAddr, Attempt, Option<(Open, Open)>);
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

fn reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::ConnectionReset => Reason::Reset,
        io::ErrorKind::TimedOut => Reason::UpstreamTimedOut,
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => Reason::Gateway,
        _ => Reason::Unreachable,
    }
}

/// Asks a proxy for a tunnel, and reads the head of its answer and no byte more. The status.
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
        // Byte by byte: what follows is upstream's. It comes once for a connection, from the kernel's buffer.
        head.push(stream.read_u8().await?);
    }
    let line = head.split(|&b| b == b'\r').next().unwrap_or_default();
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5)).map(String::from_utf8_lossy);
    status.and_then(|digits| digits.parse().ok()).ok_or_else(|| io::Error::other("its answer is not HTTP/1"))
}

/// RFC 4648, 4.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |all, &b| all << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= three.len() { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use cofferdam_policy::Network;

    use super::*;

    /// Listeners of which all but the last take no connection.
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
    async fn attempts_beside_the_first_take_descriptors_and_wait_where_there_is_none() {
        let (addresses, _listeners, _held) = full_but_the_last(4).await;
        let most = Descriptors::new(6);
        let begun = std::time::Instant::now();
        let (_, address) = first_of(&addresses, &most.part()).await.unwrap();
        assert_eq!(address, addresses[3].ip());
        assert!(begun.elapsed() < 5 * STAGGER);
        // As many as one sandbox may have, and no longer than they are tried.
        let part = most.part();
        let places: Vec<_> = (0..2).map(|_| part.take().unwrap()).collect();
        let tried = tokio::time::timeout(6 * STAGGER, first_of(&addresses, &part)).await;
        assert!(tried.is_err(), "{tried:?}");
        drop(places);
        assert_eq!(first_of(&addresses, &part).await.unwrap().1, addresses[3].ip());
        assert!((0..3).map(|_| part.take().ok()).collect::<Option<Vec<_>>>().is_some(), "some are kept");
    }

    /// Resolves nothing, and counts who waits.
    #[derive(Default)]
    struct Never(AtomicUsize);

    impl Resolve for Never {
        fn addresses(&self, name: &Name) -> crate::resolve::Addresses {
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
    async fn names_that_do_not_resolve_take_places_of_their_own_sandbox_only() {
        let never = Arc::<Never>::default();
        let lookups = Lookups::new(10);
        let upstream = || Upstream {
            resolve: Arc::clone(&never) as Arc<dyn Resolve>,
            rules: Arc::new(Rules::compile(&Network::none())),
            proxy: None,
            lookups: lookups.part(),
            descriptors: Descriptors::new(10),
        };
        let to = |name: &str| Target::Name(Name::parse(name.as_bytes()).unwrap());
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
        assert_eq!(failure.refusal.reason, Reason::AddressNotPublic);
        // Who has waited long enough gives up, and then the hostile one's own names are resolved again.
        tokio::time::sleep(CONNECT).await;
        let again = tokio::time::timeout(Duration::from_secs(1), hostile.connect(&good, 443)).await;
        assert_eq!(again.unwrap().unwrap_err().refusal.reason, Reason::AddressNotPublic);
    }

    #[test]
    fn base64_is_the_usual_one() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("user:pass?>", "dXNlcjpwYXNzPz4=")];
        pairs.iter().for_each(|(plain, coded)| assert_eq!(base64(plain.as_bytes()), *coded));
    }
}
