//! The TLS greeting (ClientHello): the name in it, and whether it hides one. Pure.
//!
//! ```text
//! record    22, version u16, length u16 ┐ any number of them; the message may be cut anywhere
//! message   1, length u24               ┘
//!           version u16, random [32], session id <0..32>, cipher suites <2..>, compressions <1..255>,
//!           extensions <0..> = (type u16, body <0..>)*
//! ```
//!
//! A server must never read another name in the same bytes than is read here. So the grammar of RFC 8446 is held to the
//! byte, and what some server somewhere lets pass (an empty record, a version that is none, an extension that comes
//! twice, bytes after the last one, two names) is refused instead of being read one way or another.
//!
//! Never decides whether a name is allowed, and reads only the first greeting. After a server's HelloRetryRequest comes
//! a second one, which a server may take another name from; that reaches no other address, and is what any request
//! inside the encryption can do as well.

/// Most bytes that a greeting may have, the headers of its records included. Servers take about as much.
pub const MOST: usize = 64 * 1024;

/// Most records that it may be spread over: reading starts anew with each piece that comes, and must stay cheap.
const MOST_RECORDS: usize = 128;

/// Most bytes of one record (RFC 8446, 5.1).
const MOST_RECORD: usize = 1 << 14;

/// What the bytes are so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The beginning of a greeting; more has to come.
    More,
    /// A whole greeting. What follows it in the same bytes was not looked at.
    Hello(Hello),
    /// No greeting, or one that could be read in more than one way, and why.
    Bad(&'static str),
}

/// What a greeting says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The server's name, in lower case.
    pub server_name: Option<String>,
    /// It has an encrypted greeting within, or what looks like one: the name above need not be the one that counts.
    pub encrypted: bool,
}

type Step<T> = Result<T, &'static str>;

/// Reads the greeting that `bytes`, a connection's first ones, begin with.
pub fn read(bytes: &[u8]) -> Read {
    match message(bytes).and_then(|whole| whole.map(|message| hello(&message)).transpose()) {
        Ok(Some(hello)) => Read::Hello(hello),
        Ok(None) => Read::More,
        Err(why) => Read::Bad(why),
    }
}

/// The handshake message out of its records, without its header; none while something is missing.
fn message(bytes: &[u8]) -> Step<Option<Vec<u8>>> {
    // Where the pieces lie is found first and copied only when all are there.
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut have = 0;
    let mut rest = bytes;
    while let Some(Record { piece, whole, after }) = record(rest)? {
        pieces.push(piece);
        have += piece.len();
        if pieces.len() > MOST_RECORDS {
            return Err("it is spread over too many records");
        }
        if let Some(length) = length(&pieces)? {
            let want = 4 + length;
            if have > want {
                return Err("something follows it in the same record");
            }
            // A record that has not wholly come may still turn out to be too long.
            if have == want && whole {
                let mut message = Vec::with_capacity(have);
                pieces.iter().for_each(|piece| message.extend_from_slice(piece));
                message.drain(..4);
                return Ok(Some(message));
            }
            if bytes.len() - after.len() + (want - have) > MOST {
                return Err("it is too long");
            }
        }
        if !whole {
            break;
        }
        rest = after;
    }
    match bytes.len() < MOST {
        true => Ok(None),
        false => Err("it is too long"),
    }
}

/// One record: as much of its content as is there, whether that is all of it, and what follows.
struct Record<'a> {
    piece: &'a [u8],
    whole: bool,
    after: &'a [u8],
}

/// The first record; none while not even its header is there.
fn record(bytes: &[u8]) -> Step<Option<Record<'_>>> {
    if bytes.first().is_some_and(|kind| *kind != 22) {
        return Err("a record that is no handshake");
    }
    if bytes.get(1).is_some_and(|major| *major != 3) || bytes.get(2).is_some_and(|minor| !(1..=4).contains(minor)) {
        return Err("a record of a version that is none");
    }
    let Some((header, rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    match length {
        0 => Err("an empty record"),
        1..=MOST_RECORD => {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            Ok(Some(Record { piece, whole: piece.len() == length, after }))
        }
        _ => Err("a record that is too long"),
    }
}

/// The length that the message's header gives, as soon as it is there.
fn length(pieces: &[&[u8]]) -> Step<Option<usize>> {
    let mut header = pieces.iter().flat_map(|piece| piece.iter().copied());
    match header.next() {
        None => return Ok(None),
        Some(1) => {}
        Some(_) => return Err("a handshake that does not begin with a greeting"),
    }
    let (Some(high), Some(middle), Some(low)) = (header.next(), header.next(), header.next()) else { return Ok(None) };
    Ok(Some(u32::from_be_bytes([0, high, middle, low]) as usize))
}

/// Bytes that are taken from the front, never beyond their end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Step<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("a part that goes beyond its end")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Step<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector with one byte of length.
    fn short(&mut self) -> Step<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A vector with two bytes of length.
    fn long(&mut self) -> Step<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn end(&self) -> Step<()> {
        self.0.is_empty().then_some(()).ok_or("bytes after its end")
    }
}

fn hello(message: &[u8]) -> Step<Hello> {
    let mut reader = Reader(message);
    // TLS 1.3 says 1.2 here, and its own version in an extension.
    if !(0x0301..=0x0303).contains(&reader.u16()?) {
        return Err("a version that is none");
    }
    reader.take(32)?;
    if reader.short()?.len() > 32 {
        return Err("a session id that is too long");
    }
    let suites = reader.long()?;
    if suites.is_empty() || suites.len() % 2 != 0 {
        return Err("cipher suites that are none");
    }
    if !reader.short()?.contains(&0) {
        return Err("compressions without none");
    }
    let mut hello = Hello { server_name: None, encrypted: false };
    // Greetings from before there were extensions end here.
    if reader.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Reader(reader.long()?);
    reader.end()?;
    let mut seen = [0u64; 1024];
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let body = extensions.long()?;
        let (word, bit) = (&mut seen[usize::from(kind >> 6)], 1 << (kind & 63));
        if *word & bit != 0 {
            return Err("an extension that comes twice");
        }
        *word |= bit;
        match kind {
            0 => hello.server_name = Some(server_name(body)?),
            // RFC 9849 (encrypted_client_hello, and ech_outer_extensions, which only stands within one), its drafts 7
            // to 10, and the drafts' encrypted_server_name.
            0xfd00 | 0xfe08..=0xfe0d | 0xff02 | 0xff03 | 0xffce => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// The one name of the extension server_name (RFC 6066, 3).
fn server_name(body: &[u8]) -> Step<String> {
    let mut reader = Reader(body);
    let mut list = Reader(reader.long()?);
    reader.end()?;
    if list.u8()? != 0 {
        return Err("a server name of a type that is none");
    }
    let name = list.long()?;
    if !list.0.is_empty() {
        return Err("more than one server name");
    }
    host(name).ok_or("a server name that is none")
}

/// A host's name as RFC 6066 has it in a greeting, in lower case: letters, digits, hyphens (and underscores, which names
/// of real hosts have); no final dot; nothing that any reader takes for an address.
fn host(name: &[u8]) -> Option<String> {
    let label = |label: &[u8]| {
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len())
            && label.iter().all(inner)
            && label.first() != Some(&b'-')
            && label.last() != Some(&b'-')
    };
    let last = name.rsplit(|byte| *byte == b'.').next()?;
    // `10.1`, `0x7f.1` and `1.2.3.0x4` are addresses to some.
    let number = last.iter().all(u8::is_ascii_digit)
        || matches!(last, [b'0', b'x' | b'X', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit));
    let fits = name.len() <= 253 && name.split(|byte| *byte == b'.').all(label) && !number;
    fits.then(|| name.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

#[cfg(test)]
mod tests;
