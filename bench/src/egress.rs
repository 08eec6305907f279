//! `bench-egress`: both ends of connections, for what the egress gateway adds to them. `cargo xtask bench` drives it.
//!
//! ```text
//! bench-egress serve ADDRESS                  `ready` out; PORT answers each byte by the same one, PORT + 1 sends without end
//! bench-egress client ADDRESS [--proxy URL]   lines in, a line out for each:
//!     connect COUNT           nanoseconds of each connection, from connect to the first byte back
//!     stream MIB              nanoseconds for that much of what is sent
//!     hold COUNT              so many connections, open and used once, are kept; `drop` closes them
//!     refused COUNT ADDRESS   nanoseconds of each, from connect to its end without a byte
//! ```
//!
//! A connection that does not end as it should ends the measurement. Knows no gateway: with a proxy it asks by CONNECT, as
//! clients do.
#![forbid(unsafe_code)]

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Result<T = ()> = std::result::Result<T, String>;

/// Longer than this nothing takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["serve", at] => address(at).and_then(serve),
        ["client", at] => address(at).and_then(|at| client(at, None)),
        ["client", at, "--proxy", url] => address(at).and_then(|at| client(at, Some(url))),
        _ => Err("unknown arguments; see the head of bench/src/egress.rs".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-egress: {message}");
            ExitCode::FAILURE
        }
    }
}

fn address(text: &str) -> Result<SocketAddr> {
    text.parse().map_err(|_| format!("`{text}` is no address with a port"))
}

fn next(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip(), at.port() + 1)
}

fn io(what: &'static str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{what}: {error}")
}

fn say(line: &str) -> Result {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(io("stdout"))
}

/// One thread for each connection that sends without end; those that answer byte by byte are many and idle, and small.
fn serve(at: SocketAddr) -> Result {
    let (echo, flood) = (TcpListener::bind(at), TcpListener::bind(next(at)));
    let (echo, flood) = (echo.map_err(io("listen"))?, flood.map_err(io("listen"))?);
    let small = || std::thread::Builder::new().stack_size(64 << 10);
    let flooding = small().spawn(move || {
        for stream in flood.incoming().flatten() {
            let mut stream = stream;
            let sent = small().spawn(move || {
                let block = vec![0x5a; 256 << 10];
                while stream.write_all(&block).is_ok() {}
            });
            if sent.is_err() {
                return;
            }
        }
    });
    flooding.map_err(io("thread"))?;
    say("ready")?;
    for stream in echo.incoming().flatten() {
        let mut stream = stream;
        let answering = small().spawn(move || {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
        answering.map_err(io("thread"))?;
    }
    Ok(())
}

struct Client {
    at: SocketAddr,
    /// Host, port and the header with its credentials.
    proxy: Option<(String, String)>,
    held: Vec<TcpStream>,
}

/// `http://[USER:PASSWORD@]HOST:PORT`
fn proxy(url: &str) -> Result<(String, String)> {
    let rest = url.strip_prefix("http://").ok_or_else(|| format!("`{url}` is no proxy"))?.trim_end_matches('/');
    let (user, place) = rest.rsplit_once('@').map_or(("", rest), |(user, place)| (user, place));
    let header = if user.is_empty() {
        String::new()
    } else {
        format!("Proxy-Authorization: Basic {}\r\n", base64(user.as_bytes()))
    };
    Ok((place.to_owned(), header))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |sum, &b| sum << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = char::from(DIGITS[(group >> (18 - 6 * i) & 63) as usize]);
            out.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

impl Client {
    fn open(&self, to: SocketAddr) -> Result<TcpStream> {
        let Some((place, header)) = &self.proxy else {
            let stream = TcpStream::connect_timeout(&to, PATIENCE).map_err(io("connect"))?;
            return ready(stream);
        };
        let stream = TcpStream::connect(place.as_str()).map_err(io("connect to the proxy"))?;
        let mut stream = ready(stream)?;
        stream
            .write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{header}\r\n").as_bytes())
            .map_err(io("ask the proxy"))?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).map_err(io("hear the proxy"))?;
            head.push(byte[0]);
        }
        if head.starts_with(b"HTTP/1.1 200") || head.starts_with(b"HTTP/1.0 200") {
            Ok(stream)
        } else {
            Err(format!("the proxy says {:?}", String::from_utf8_lossy(&head)))
        }
    }

    fn used(&self) -> Result<TcpStream> {
        let mut stream = self.open(self.at)?;
        let mut byte = [7];
        stream.write_all(&byte).map_err(io("send"))?;
        stream.read_exact(&mut byte).map_err(io("receive"))?;
        if byte == [7] { Ok(stream) } else { Err("another byte came back".into()) }
    }

    fn streamed(&self, mib: usize) -> Result<u128> {
        let mut stream = self.open(next(self.at))?;
        let mut block = vec![0; 256 << 10];
        let (mut left, begun) = (mib << 20, Instant::now());
        while left > 0 {
            match stream.read(&mut block).map_err(io("receive"))? {
                0 => return Err("the stream ended early".into()),
                n => left = left.saturating_sub(n),
            }
        }
        Ok(begun.elapsed().as_nanos())
    }

    /// How long a connection takes to end without a byte.
    fn refused(&self, to: SocketAddr) -> Result<u128> {
        let begun = Instant::now();
        let Ok(stream) = self.open(to) else { return Ok(begun.elapsed().as_nanos()) };
        let mut stream = stream;
        // What is sent to a connection that is refused may come too late: only what comes back counts.
        let sent = stream.write_all(&[7]);
        match stream.read(&mut [0]) {
            Ok(n) if n > 0 => Err(format!("{to} answered, and must not have been reached")),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Err(format!("{to}: nothing happened ({sent:?})")),
            _ => Ok(begun.elapsed().as_nanos()),
        }
    }
}

fn ready(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).map_err(io("set up"))?;
    Ok(stream)
}

fn client(at: SocketAddr, url: Option<&str>) -> Result {
    let mut client = Client { at, proxy: url.map(proxy).transpose()?, held: Vec::new() };
    let many = |count: &str, one: &dyn Fn() -> Result<u128>| {
        let count: usize = count.parse().map_err(|_| format!("`{count}` is no number"))?;
        let all: Result<Vec<String>> = (0..count).map(|_| one().map(|ns| ns.to_string())).collect();
        all.map(|list| list.join(" "))
    };
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(io("stdin"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            ["connect", count] => many(count, &|| {
                let begun = Instant::now();
                let stream = client.used()?;
                let elapsed = begun.elapsed().as_nanos();
                drop(stream);
                Ok(elapsed)
            })?,
            ["stream", mib] => client.streamed(mib.parse().map_err(|_| format!("`{mib}` is no number"))?)?.to_string(),
            ["hold", count] => {
                let count: usize = count.parse().map_err(|_| format!("`{count}` is no number"))?;
                client.held = (0..count).map(|_| client.used()).collect::<Result<_>>()?;
                "held".to_owned()
            }
            ["drop"] => {
                client.held.clear();
                "dropped".to_owned()
            }
            ["refused", count, to] => {
                let to = address(to)?;
                many(count, &|| client.refused(to))?
            }
            _ => return Err(format!("`{line}` is no request")),
        };
        say(&answer)?;
    }
    Ok(())
}
