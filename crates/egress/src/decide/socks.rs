//! Parses the messages of SOCKS 5 clients (RFC 1928), as they come in. Pure.
//!
//! ```text
//! client ── greeting ──▶ methods chosen ── (user name and password, ignored) ── request ──▶ reply ── bytes
//! ```
//!
//! Every parser takes all bytes that have come since the last message, and returns how many of them it used. Never
//! decides whether a host is allowed, nor whether its text is a valid name. SOCKS 4 is parsed only to be refused in its
//! own protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The result of parsing what has come so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksProgress<T> {
    /// The beginning of a message; more bytes are needed.
    More,
    /// The message, and the number of bytes that it took.
    Done(T, usize),
    /// Not this protocol, and why. It is not answered.
    Bad(&'static str),
}

/// How a client authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    None,
    /// By a user name and a password (RFC 1929), which are ignored: everything in the sandbox may use the proxy. Chosen
    /// only if the client offers nothing else.
    Password,
    /// The client offers no method that is supported.
    Unacceptable,
}

/// A client's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// SOCKS 5, with the method that is chosen: the answer is `method_chosen`.
    Methods(Method),
    /// A SOCKS 4 or 4a request: the answer is `refusal_of_version_4`.
    Version4 {
        /// The requested host.
        to: Destination,
        /// The port.
        port: u16,
    },
}

/// The host that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An address.
    Address(IpAddr),
    /// A host name, unchecked but for its length and characters: graphic ASCII, at most 255 bytes.
    Host(String),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksRequest {
    /// CONNECT.
    Connect {
        /// The host.
        to: Destination,
        /// The port.
        port: u16,
    },
    /// A request that is not supported.
    Refused(SocksReply, &'static str),
}

/// The reply codes (RFC 1928, 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SocksReply {
    /// Connected.
    Succeeded = 0,
    /// The gateway failed.
    GeneralFailure = 1,
    /// The rules do not allow it.
    NotAllowed = 2,
    /// No route to the network.
    NetworkUnreachable = 3,
    /// No route to the host, or no such host.
    HostUnreachable = 4,
    /// The host refused.
    ConnectionRefused = 5,
    /// The host did not answer in time.
    TtlExpired = 6,
    /// A command other than CONNECT.
    CommandNotSupported = 7,
    /// An unknown address type.
    AddressTypeNotSupported = 8,
}

/// Most bytes of a user id or a name in SOCKS 4.
const MOST_TEXT: usize = 255;

/// A cursor; `None` while bytes are missing.
struct SocksCursor<'a> {
    bytes: &'a [u8],
    taken: usize,
}

impl<'a> SocksCursor<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.bytes[self.taken..].first_chunk::<N>()?;
        self.taken += N;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    /// Bytes preceded by their number.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let start = self.taken + 1;
        let end = start + usize::from(*self.bytes.get(self.taken)?);
        self.taken = end;
        self.bytes.get(start..end)
    }

    /// Bytes up to a NUL, which is consumed as well.
    fn text(&mut self) -> Result<Option<&'a [u8]>, &'static str> {
        let rest = &self.bytes[self.taken..];
        match rest.iter().take(MOST_TEXT + 1).position(|byte| *byte == 0) {
            Some(end) => {
                self.taken += end + 1;
                Ok(Some(&rest[..end]))
            }
            None if rest.len() > MOST_TEXT => Err("a text that is too long"),
            None => Ok(None),
        }
    }
}

/// Runs a parser; `More` if bytes are missing.
fn progress<T>(
    bytes: &[u8],
    read: impl FnOnce(&mut SocksCursor<'_>) -> Result<Option<T>, &'static str>,
) -> SocksProgress<T> {
    let mut reader = SocksCursor { bytes, taken: 0 };
    match read(&mut reader) {
        Ok(Some(done)) => SocksProgress::Done(done, reader.taken),
        Ok(None) => SocksProgress::More,
        Err(why) => SocksProgress::Bad(why),
    }
}

/// Unwraps what has been read, or returns that more bytes are needed.
macro_rules! need {
    ($read:expr) => {
        match $read {
            Some(read) => read,
            None => return Ok(None),
        }
    };
}

/// What a client's first message begins with.
pub const VERSIONS: [u8; 2] = [4, 5];

/// Parses a client's first message.
pub fn greeting(bytes: &[u8]) -> SocksProgress<Greeting> {
    progress(bytes, |reader| {
        match need!(reader.u8()) {
            5 => {}
            4 => return version_4(reader),
            _ => return Err("neither SOCKS 5 nor 4"),
        }
        let methods = need!(reader.counted());
        let method = match (methods.contains(&0), methods.contains(&2)) {
            (true, _) => Method::None,
            (false, true) => Method::Password,
            (false, false) => Method::Unacceptable,
        };
        Ok(Some(Greeting::Methods(method)))
    })
}

fn version_4(reader: &mut SocksCursor<'_>) -> Result<Option<Greeting>, &'static str> {
    if !matches!(need!(reader.u8()), 1 | 2) {
        return Err("a command that SOCKS 4 has not");
    }
    let port = need!(reader.u16());
    let address = need!(reader.take::<4>());
    need!(reader.text()?);
    // 4a: an invalid address means that a name follows.
    let to = match address {
        [0, 0, 0, last] if last != 0 => Destination::Host(host(need!(reader.text()?))?),
        _ => Destination::Address(Ipv4Addr::from(address).into()),
    };
    Ok(Some(Greeting::Version4 { to, port }))
}

/// Parses a user name and a password, and ignores them. The answer is `PASSWORD_ACCEPTED`.
pub fn password(bytes: &[u8]) -> SocksProgress<()> {
    progress(bytes, |reader| {
        if need!(reader.u8()) != 1 {
            return Err("an unknown version of the password message");
        }
        need!(reader.counted());
        need!(reader.counted());
        Ok(Some(()))
    })
}

/// Parses a request.
pub fn request(bytes: &[u8]) -> SocksProgress<SocksRequest> {
    progress(bytes, |reader| {
        if need!(reader.u8()) != 5 {
            return Err("a request of another version");
        }
        let command = need!(reader.u8());
        if need!(reader.u8()) != 0 {
            return Err("a reserved byte that is not zero");
        }
        let to = match need!(reader.u8()) {
            1 => Destination::Address(Ipv4Addr::from(need!(reader.take::<4>())).into()),
            3 => Destination::Host(host(need!(reader.counted()))?),
            4 => Destination::Address(Ipv6Addr::from(need!(reader.take::<16>())).into()),
            // The length of such an address is not known, so nothing after it can be parsed.
            _ => {
                return Ok(Some(SocksRequest::Refused(SocksReply::AddressTypeNotSupported, "an unknown address type")));
            }
        };
        let port = need!(reader.u16());
        Ok(Some(match command {
            1 => SocksRequest::Connect { to, port },
            2 => SocksRequest::Refused(SocksReply::CommandNotSupported, "BIND"),
            3 => SocksRequest::Refused(SocksReply::CommandNotSupported, "UDP ASSOCIATE"),
            _ => SocksRequest::Refused(SocksReply::CommandNotSupported, "an unknown command"),
        }))
    })
}

/// The text of a host, if all of its characters may occur in one.
fn host(bytes: &[u8]) -> Result<String, &'static str> {
    match !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic) {
        true => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        false => Err("a name with bytes that no name has"),
    }
}

/// The answer to a password.
#[cfg(feature = "gateway")]
pub(crate) const PASSWORD_ACCEPTED: [u8; 2] = [1, 0];

/// The answer to a greeting.
#[cfg(feature = "gateway")]
pub(crate) fn method_chosen(method: Method) -> [u8; 2] {
    let chosen = match method {
        Method::None => 0,
        Method::Password => 2,
        Method::Unacceptable => 0xff,
    };
    [5, chosen]
}

/// The answer to a request. `bound` is the local address of the connection, which clients ignore and which the sandbox
/// need not know: zeros unless given.
pub fn reply(reply: SocksReply, bound: Option<SocketAddr>) -> Vec<u8> {
    let bound = bound.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let mut bytes = vec![5, reply as u8, 0];
    match bound.ip() {
        IpAddr::V4(address) => {
            bytes.push(1);
            bytes.extend(address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(4);
            bytes.extend(address.octets());
        }
    }
    bytes.extend(bound.port().to_be_bytes());
    bytes
}

/// The answer to a request of SOCKS 4: rejected.
#[cfg(feature = "gateway")]
pub(crate) fn refusal_of_version_4() -> [u8; 8] {
    [0, 0x5b, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests;
