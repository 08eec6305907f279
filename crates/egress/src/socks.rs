//! The SOCKS5 proxy's requests (RFC 1928), read as they come. Pure.
//!
//! ```text
//! client ── greeting ──▶ methods chosen ── (user name and password, ignored) ── request ──▶ reply ── bytes
//! ```
//!
//! Every reader takes all bytes that have come since the last thing that was read, and says how many of them it took.
//! Never decides whether a host is allowed, nor whether what stands for one is a name. SOCKS 4 is read only to be
//! refused in its own words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What the bytes are so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<T> {
    /// The beginning; more has to come.
    More,
    /// All of it, and the number of bytes that it took.
    Done(T, usize),
    /// Not this protocol, and why. Nothing is answered to it.
    Bad(&'static str),
}

/// How a client may show who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Not at all.
    None,
    /// By a user name and a password (RFC 1929), which are read and ignored: who may use the proxy is said by where it
    /// is. Chosen only where a client insists.
    Password,
    /// None of those that it has.
    Unacceptable,
}

/// A client's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// Of SOCKS 5, and the method that is chosen: the answer is `method_chosen`.
    Methods(Method),
    /// A request of SOCKS 4 or 4a: the answer is `refusal_of_version_4`.
    Version4 {
        /// What it wanted.
        to: Asked,
        /// The port.
        port: u16,
    },
}

/// What a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// An address.
    Address(IpAddr),
    /// What should be a host's name: graphic ASCII, at most 255 bytes, and not looked at further.
    Host(String),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// To connect.
    Connect {
        /// To whom.
        to: Asked,
        /// The port.
        port: u16,
    },
    /// One that is refused whatever the rules say.
    Refused(Reply, &'static str),
}

/// What a request is answered with (RFC 1928, 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reply {
    /// It is connected.
    Succeeded = 0,
    /// The gateway failed.
    GeneralFailure = 1,
    /// The rules have it not.
    NotAllowed = 2,
    /// No way to the network.
    NetworkUnreachable = 3,
    /// No way to the host, or no such host.
    HostUnreachable = 4,
    /// The host refused.
    ConnectionRefused = 5,
    /// The host did not answer in time.
    TtlExpired = 6,
    /// Not CONNECT.
    CommandNotSupported = 7,
    /// A kind of address that is none.
    AddressTypeNotSupported = 8,
}

/// Most bytes of a user's id, or of a name, of SOCKS 4.
const MOST_TEXT: usize = 255;

/// Bytes taken from the front: `None` while they have not come.
struct Reader<'a> {
    bytes: &'a [u8],
    taken: usize,
}

impl<'a> Reader<'a> {
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

    /// Bytes whose number stands before them.
    fn counted(&mut self) -> Option<&'a [u8]> {
        let start = self.taken + 1;
        let end = start + usize::from(*self.bytes.get(self.taken)?);
        self.taken = end;
        self.bytes.get(start..end)
    }

    /// Bytes up to a NUL, which is taken as well.
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

/// Runs a reader: what it could not read yet is `More`.
fn progress<T>(bytes: &[u8], read: impl FnOnce(&mut Reader<'_>) -> Result<Option<T>, &'static str>) -> Progress<T> {
    let mut reader = Reader { bytes, taken: 0 };
    match read(&mut reader) {
        Ok(Some(done)) => Progress::Done(done, reader.taken),
        Ok(None) => Progress::More,
        Err(why) => Progress::Bad(why),
    }
}

/// Goes on with what has come, or says that more must.
macro_rules! come {
    ($read:expr) => {
        match $read {
            Some(read) => read,
            None => return Ok(None),
        }
    };
}

/// Reads a client's first message.
pub fn greeting(bytes: &[u8]) -> Progress<Greeting> {
    progress(bytes, |reader| {
        match come!(reader.u8()) {
            5 => {}
            4 => return version_4(reader),
            _ => return Err("neither SOCKS 5 nor 4"),
        }
        let methods = come!(reader.counted());
        let method = match (methods.contains(&0), methods.contains(&2)) {
            (true, _) => Method::None,
            (false, true) => Method::Password,
            (false, false) => Method::Unacceptable,
        };
        Ok(Some(Greeting::Methods(method)))
    })
}

fn version_4(reader: &mut Reader<'_>) -> Result<Option<Greeting>, &'static str> {
    if !matches!(come!(reader.u8()), 1 | 2) {
        return Err("a command that SOCKS 4 has not");
    }
    let port = come!(reader.u16());
    let address = come!(reader.take::<4>());
    come!(reader.text()?);
    // 4a: an address that is none says that a name follows.
    let to = match address {
        [0, 0, 0, last] if last != 0 => Asked::Host(host(come!(reader.text()?))?),
        _ => Asked::Address(Ipv4Addr::from(address).into()),
    };
    Ok(Some(Greeting::Version4 { to, port }))
}

/// Reads a user name and a password, and forgets them. The answer is `PASSWORD_ACCEPTED`.
pub fn password(bytes: &[u8]) -> Progress<()> {
    progress(bytes, |reader| {
        if come!(reader.u8()) != 1 {
            return Err("a version of the password's message that is none");
        }
        come!(reader.counted());
        come!(reader.counted());
        Ok(Some(()))
    })
}

/// Reads a request.
pub fn request(bytes: &[u8]) -> Progress<Request> {
    progress(bytes, |reader| {
        if come!(reader.u8()) != 5 {
            return Err("a request of another version");
        }
        let command = come!(reader.u8());
        if come!(reader.u8()) != 0 {
            return Err("a reserved byte that is not zero");
        }
        let to = match come!(reader.u8()) {
            1 => Asked::Address(Ipv4Addr::from(come!(reader.take::<4>())).into()),
            3 => Asked::Host(host(come!(reader.counted()))?),
            4 => Asked::Address(Ipv6Addr::from(come!(reader.take::<16>())).into()),
            // How long such an address would be is not known, so nothing after it can be read.
            _ => return Ok(Some(Request::Refused(Reply::AddressTypeNotSupported, "a kind of address that is none"))),
        };
        let port = come!(reader.u16());
        Ok(Some(match command {
            1 => Request::Connect { to, port },
            2 => Request::Refused(Reply::CommandNotSupported, "BIND"),
            3 => Request::Refused(Reply::CommandNotSupported, "UDP ASSOCIATE"),
            _ => Request::Refused(Reply::CommandNotSupported, "a command that is none"),
        }))
    })
}

/// A host's text, if there is nothing in it that no host's name has.
fn host(bytes: &[u8]) -> Result<String, &'static str> {
    match !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic) {
        true => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        false => Err("a name with bytes that no name has"),
    }
}

/// The answer to a password.
pub const PASSWORD_ACCEPTED: [u8; 2] = [1, 0];

/// The answer to a greeting.
pub fn method_chosen(method: Method) -> [u8; 2] {
    let chosen = match method {
        Method::None => 0,
        Method::Password => 2,
        Method::Unacceptable => 0xff,
    };
    [5, chosen]
}

/// The answer to a request. `bound` is the address that the connection goes out from, which clients ignore and which is
/// nobody's business inside: zeros unless given.
pub fn reply(reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
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
pub fn refusal_of_version_4() -> [u8; 8] {
    [0, 0x5b, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests;
