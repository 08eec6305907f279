//! Parses the TLS ClientHello: the server name in it (SNI), and whether it hides one (ECH). Pure.
//!
//! ```text
//! record    22, version u16, length u16 ┐ any number of them; the message may be split anywhere
//! message   1, length u24               ┘
//!           version u16, random [32], session id <0..32>, cipher suites <2..>, compressions <1..255>,
//!           extensions <0..> = (type u16, body <0..>)*
//! ```
//!
//! A server must never read another name in the same bytes. So the grammar of RFC 8446 is enforced to the byte, and
//! what some servers tolerate (an empty record, an unknown version, a repeated extension, trailing bytes, two names) is
//! refused instead of being interpreted.
//!
//! Never decides whether a name is allowed, and parses one ClientHello. A server that answers with HelloRetryRequest takes
//! the name from the next one: `greeting_watch` finds it, and it is parsed and judged like the first.

/// Most bytes of a ClientHello, record headers included. Servers have similar limits.
pub const MOST: usize = 64 * 1024;

/// Most records that it may be spread over: parsing starts anew with each read, and must stay cheap.
const MOST_RECORDS: usize = 128;

/// Most bytes of one record (RFC 8446, 5.1).
const MOST_RECORD: usize = 1 << 14;

/// The result of parsing what has come so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloParse {
    /// The beginning of a ClientHello; more bytes are needed.
    More,
    /// A whole ClientHello. Bytes that follow it were not read.
    Hello(ClientHello),
    /// No ClientHello, or an ambiguous one, and why.
    Bad(&'static str),
}

/// What a ClientHello contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The server's name, in lower case.
    pub server_name: Option<String>,
    /// It contains an encrypted ClientHello, or what looks like one (GREASE): `server_name` need not be the one that
    /// counts.
    pub encrypted: bool,
}

type HelloResult<T> = Result<T, &'static str>;

/// Parses the ClientHello at the start of `bytes`, the first bytes of a connection.
pub fn read(bytes: &[u8]) -> HelloParse {
    match measured(bytes) {
        Ok(Some((hello, _))) => HelloParse::Hello(hello),
        Ok(None) => HelloParse::More,
        Err(why) => HelloParse::Bad(why),
    }
}

/// The ClientHello at the start of `bytes`, and how many of them it takes up; none while bytes are missing.
///
/// # Errors
/// It is none, or an ambiguous one, and why.
pub fn measured(bytes: &[u8]) -> Result<Option<(ClientHello, usize)>, &'static str> {
    let Some((message, length)) = message(bytes)? else { return Ok(None) };
    Ok(Some((hello(&message)?, length)))
}

/// Reassembles the handshake message from its records, without its header, and counts the bytes of those; none while
/// bytes are missing.
fn message(bytes: &[u8]) -> HelloResult<Option<(Vec<u8>, usize)>> {
    // The fragments are located first, and copied only when all of them are there.
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut have = 0;
    let mut rest = bytes;
    while let Some(TlsRecord { piece, whole, after }) = record(rest)? {
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
            // A record that is not complete yet may still turn out to be too long.
            if have == want && whole {
                let mut message = Vec::with_capacity(have);
                pieces.iter().for_each(|piece| message.extend_from_slice(piece));
                message.drain(..4);
                return Ok(Some((message, bytes.len() - after.len())));
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

/// One record: as much of its content as has come, whether that is all of it, and what follows.
struct TlsRecord<'a> {
    piece: &'a [u8],
    whole: bool,
    after: &'a [u8],
}

/// The first record; none while its header is incomplete.
fn record(bytes: &[u8]) -> HelloResult<Option<TlsRecord<'_>>> {
    if bytes.first().is_some_and(|kind| *kind != 22) {
        return Err("a record that is not a handshake");
    }
    if bytes.get(1).is_some_and(|major| *major != 3) || bytes.get(2).is_some_and(|minor| !(1..=4).contains(minor)) {
        return Err("a record of an unknown version");
    }
    let Some((header, rest)) = bytes.split_first_chunk::<5>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    match length {
        0 => Err("an empty record"),
        1..=MOST_RECORD => {
            let (piece, after) = rest.split_at(length.min(rest.len()));
            Ok(Some(TlsRecord { piece, whole: piece.len() == length, after }))
        }
        _ => Err("a record that is too long"),
    }
}

/// The length in the message's header, once the header is complete.
fn length(pieces: &[&[u8]]) -> HelloResult<Option<usize>> {
    let mut header = pieces.iter().flat_map(|piece| piece.iter().copied());
    match header.next() {
        None => return Ok(None),
        Some(1) => {}
        Some(_) => return Err("a handshake that does not begin with a ClientHello"),
    }
    let (Some(high), Some(middle), Some(low)) = (header.next(), header.next(), header.next()) else { return Ok(None) };
    Ok(Some(u32::from_be_bytes([0, high, middle, low]) as usize))
}

/// A cursor that never reads beyond the end.
struct HelloCursor<'a>(&'a [u8]);

impl<'a> HelloCursor<'a> {
    fn take(&mut self, length: usize) -> HelloResult<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("a part that goes beyond its end")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> HelloResult<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> HelloResult<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A vector with a length of one byte.
    fn short(&mut self) -> HelloResult<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A vector with a length of two bytes.
    fn long(&mut self) -> HelloResult<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }

    fn end(&self) -> HelloResult<()> {
        self.0.is_empty().then_some(()).ok_or("bytes after its end")
    }
}

fn hello(message: &[u8]) -> HelloResult<ClientHello> {
    let mut reader = HelloCursor(message);
    // TLS 1.3 has the version 1.2 here, and its own in an extension.
    if !(0x0301..=0x0303).contains(&reader.u16()?) {
        return Err("an unknown version");
    }
    reader.take(32)?;
    if reader.short()?.len() > 32 {
        return Err("a session id that is too long");
    }
    let suites = reader.long()?;
    if suites.is_empty() || suites.len() % 2 != 0 {
        return Err("an invalid list of cipher suites");
    }
    if !reader.short()?.contains(&0) {
        return Err("compression methods without null");
    }
    let mut hello = ClientHello { server_name: None, encrypted: false };
    // A ClientHello without extensions ends here.
    if reader.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = HelloCursor(reader.long()?);
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
            // RFC 9849 (encrypted_client_hello, and ech_outer_extensions, which occurs only inside one), its drafts 7
            // to 10, and the drafts' encrypted_server_name.
            0xfd00 | 0xfe08..=0xfe0d | 0xff02 | 0xff03 | 0xffce => hello.encrypted = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// The single name of the extension server_name (RFC 6066, 3).
fn server_name(body: &[u8]) -> HelloResult<String> {
    let mut reader = HelloCursor(body);
    let mut list = HelloCursor(reader.long()?);
    reader.end()?;
    if list.u8()? != 0 {
        return Err("a server name of an unknown type");
    }
    let name = list.long()?;
    if !list.0.is_empty() {
        return Err("more than one server name");
    }
    host(name).ok_or("an invalid server name")
}

/// A host name as RFC 6066 requires it, in lower case: letters, digits and hyphens (and underscores, which real names
/// have); no final dot; nothing that any parser takes for an address.
fn host(name: &[u8]) -> Option<String> {
    let label = |label: &[u8]| {
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len())
            && label.iter().all(inner)
            && label.first() != Some(&b'-')
            && label.last() != Some(&b'-')
    };
    let last = name.rsplit(|byte| *byte == b'.').next()?;
    // Some parsers take `10.1`, `0x7f.1` and `1.2.3.0x4` for addresses.
    let number = last.iter().all(u8::is_ascii_digit)
        || matches!(last, [b'0', b'x' | b'X', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit));
    let fits = name.len() <= 253 && name.split(|byte| *byte == b'.').all(label) && !number;
    fits.then(|| name.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

#[cfg(test)]
mod tests;
