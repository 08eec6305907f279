//! The DNS messages of the resolver inside a sandbox: one query in, one answer out. Pure; never forwards anything.
//!
//! ```text
//! query ─┬─ no header, or an answer ───────────────────────▶ silence
//!        ├─ malformed ─────────────────────────────────────▶ FORMERR    (header only)
//!        └─ one question ─┬─ localhost ────────────────────▶ loopback
//!                         ├─ a reverse lookup ─────────────▶ the name that it stands for, or NXDOMAIN
//!                         ├─ a name that is allowed ─┬─ A, AAAA ──▶ its synthetic address
//!                         │                          └─ others ───▶ nothing of that type
//!                         └─ any other ────────────────────▶ NXDOMAIN   (and it is reported)
//! ```
//!
//! An allowed name has only address records, because nothing is asked upstream. HTTPS and SVCB are empty, so that
//! clients use TCP and send their ClientHello in the clear; SRV is empty, and clients then use the name itself and
//! their usual port (RFC 2782); so are TXT, MX, NS and SOA. Labels that begin with `_` (`_ldap._tcp`) are ignored when
//! a name is matched against the rules. Negative answers may be cached for seconds only, and say nothing of the names
//! below.
//!
//! A name in a question is never compressed, since nothing precedes it, and answers point only to their question: no
//! pointer is ever followed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::decide::host_name::Name;
use crate::decide::refusal::{EgressRefusal, NetworkReason};
use crate::decide::synthetic_addresses::{Family, of_reverse_name};

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram: an answer that is too long is truncated, and has the flag TC.
    Udp,
    /// In a stream, with a length before each message.
    Tcp,
}

/// The names that a sandbox's resolver knows.
pub trait Zone {
    /// The address of a name, if it is allowed. An address of the other family means that the name has none of the
    /// family that was asked for.
    fn address(&mut self, name: &Name, family: Family) -> Result<IpAddr, EgressRefusal>;

    /// The name that an address stands for, for reverse lookups.
    fn reverse(&self, address: IpAddr) -> Option<Name>;

    /// Called for each refusal, with the name in lower case, without a final dot, and with `\ddd` for what is not
    /// graphic; empty if the query has no readable name.
    fn refused(&mut self, text: String, refusal: EgressRefusal);
}

/// Seconds for which an address may be cached.
const TTL: u32 = 60;

/// Seconds for which a negative answer may be cached: the next version of a policy may allow the name.
const DENIAL: u32 = 5;

/// Most bytes of an answer in a datagram: RFC 1035, and DNS Flag Day 2020 for a client that accepts more.
const SHORT: usize = 512;
const LONG: usize = 1232;

const A: u16 = 1;
const PTR: u16 = 12;
const SOA: u16 = 6;
const AAAA: u16 = 28;
const OPT: u16 = 41;
const IXFR: u16 = 251;
const AXFR: u16 = 252;
const ANY: u16 = 255;

/// Response codes (RFC 1035, 4.1.1; RFC 6891, 9).
const NOERROR: u16 = 0;
const FORMERR: u16 = 1;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
const NOTIMP: u16 = 4;
const REFUSED: u16 = 5;
const BADVERS: u16 = 16;

/// Flags of the header's second word.
const QR: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const TC: u16 = 0x0200;
const RD: u16 = 0x0100;
const RA: u16 = 0x0080;
const CD: u16 = 0x0010;

/// Answers one message. None: nothing is sent back, since it is too short for a header, or an answer itself.
pub fn answer(query: &[u8], transport: Transport, names: &mut dyn Zone) -> Option<Vec<u8>> {
    let (header, rest) = query.split_first_chunk::<12>()?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (id, flags) = (word(0), word(2));
    if flags & QR != 0 {
        return None;
    }
    let mut broken = |code: u16, why: &str| {
        names.refused(String::new(), EgressRefusal::because(NetworkReason::BadQuery, why));
        let mut bytes = Vec::with_capacity(12);
        [id, QR | flags & (OPCODE | RD) | code, 0, 0, 0, 0].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
        Some(bytes)
    };
    if flags & OPCODE != 0 {
        return broken(NOTIMP, "an operation that is not a query");
    }
    let counts = [word(4), word(6), word(8), word(10)];
    match read(rest, counts, flags) {
        Ok(query) => {
            let (code, records) = decide(&query, names);
            let limit = match transport {
                Transport::Tcp => usize::from(u16::MAX),
                Transport::Udp => query.edns.as_ref().map_or(SHORT, |edns| edns.size.clamp(SHORT, LONG)),
            };
            Some(write(id, flags & (RD | CD), &query, code, &records, limit))
        }
        Err(why) => broken(FORMERR, why),
    }
}

/// A question, and the options of its answer.
struct Query<'a> {
    /// The question section as received: an answer repeats it, upper case included.
    question: &'a [u8],
    labels: Vec<&'a [u8]>,
    kind: u16,
    class: u16,
    edns: Option<Edns>,
}

/// A client's OPT record (RFC 6891).
struct Edns {
    size: usize,
    version: u8,
    /// The flag DO, which the answer repeats; there are no DNSSEC records.
    dnssec: bool,
}

/// A cursor that never reads beyond the end.
struct DnsCursor<'a>(&'a [u8]);

impl<'a> DnsCursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or("a message that ends too soon")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// A name's labels.
    fn labels(&mut self) -> Result<Vec<&'a [u8]>, &'static str> {
        let mut labels = Vec::new();
        let mut length = 1;
        loop {
            match self.u8()? {
                0 => return Ok(labels),
                size @ 1..=63 => {
                    length += 1 + usize::from(size);
                    if length > 255 {
                        return Err("a name that is too long");
                    }
                    labels.push(self.take(size.into())?);
                }
                _ => return Err("a name that is compressed or has an unknown label type"),
            }
        }
    }
}

/// Parses what follows the header: one question, at most one OPT record, nothing else.
fn read(rest: &[u8], counts: [u16; 4], flags: u16) -> Result<Query<'_>, &'static str> {
    let (true, [1, 0, 0, additional @ 0..=1]) = (flags & TC == 0, counts) else {
        return Err("not one question alone");
    };
    let mut reader = DnsCursor(rest);
    let labels = reader.labels()?;
    let (kind, class) = (reader.u16()?, reader.u16()?);
    let question = &rest[..rest.len() - reader.0.len()];
    let edns = match additional {
        0 => None,
        _ => Some(edns(&mut reader)?),
    };
    match reader.0 {
        [] => Ok(Query { question, labels, kind, class, edns }),
        _ => Err("bytes after its end"),
    }
}

fn edns(reader: &mut DnsCursor<'_>) -> Result<Edns, &'static str> {
    if reader.u8()? != 0 || reader.u16()? != OPT {
        return Err("a record that no query has");
    }
    let size = reader.u16()?.into();
    let (_extended_code, version) = (reader.u8()?, reader.u8()?);
    let dnssec = reader.u16()? & 0x8000 != 0;
    let length = reader.u16()?;
    let mut options = DnsCursor(reader.take(length.into())?);
    while !options.0.is_empty() {
        let (_kind, length) = (options.u16()?, options.u16()?);
        options.take(length.into())?;
    }
    Ok(Edns { size, version, dnssec })
}

/// A record of an answer.
enum DnsRecord {
    Address(IpAddr),
    Pointer(String),
}

fn decide(query: &Query<'_>, names: &mut dyn Zone) -> (u16, Vec<DnsRecord>) {
    let nothing = |code| (code, Vec::new());
    if query.edns.as_ref().is_some_and(|edns| edns.version != 0) {
        return nothing(BADVERS);
    }
    let text = text(&query.labels);
    if query.class != 1 || matches!(query.kind, IXFR | AXFR) {
        names.refused(
            text,
            EgressRefusal::because(NetworkReason::BadQuery, "a class that is not IN, or a transfer of a zone"),
        );
        return nothing(REFUSED);
    }
    // The root exists, and has no records here.
    if query.labels.is_empty() {
        return nothing(NOERROR);
    }
    if text == "localhost" || text.ends_with(".localhost") {
        return (NOERROR, addresses(query.kind, |family| Some(loopback(family))));
    }
    if let Some(address) = of_reverse_name(&text) {
        let name = match address.is_loopback() {
            true => Some("localhost".to_owned()),
            false => names.reverse(address).map(|name| name.as_str().to_owned()),
        };
        return match name {
            None => nothing(NXDOMAIN),
            Some(name) if matches!(query.kind, PTR | ANY) => (NOERROR, vec![DnsRecord::Pointer(name)]),
            Some(_) => nothing(NOERROR),
        };
    }
    // The labels of services and keys are ignored for the rules, except in address queries, which are for the whole
    // name.
    let below = match families(query.kind) {
        [] => query.labels.iter().position(|label| !label.starts_with(b"_")).unwrap_or(0),
        _ => 0,
    };
    match allowed(&query.labels[below..], query.kind, names) {
        Ok(records) => (NOERROR, records),
        Err(refusal) => {
            let code = match refusal.reason {
                NetworkReason::TooManyNames => SERVFAIL,
                _ => NXDOMAIN,
            };
            // The name that a rule would have to allow.
            names.refused(self::text(&query.labels[below..]), refusal);
            nothing(code)
        }
    }
}

/// The records of a name that is neither local nor a reverse lookup, if it is allowed.
fn allowed(labels: &[&[u8]], kind: u16, names: &mut dyn Zone) -> Result<Vec<DnsRecord>, EgressRefusal> {
    // A dot within a label would be taken for a separator.
    if labels.iter().any(|label| label.contains(&b'.')) {
        return Err(EgressRefusal::because(NetworkReason::BadName, "a label with a dot in it"));
    }
    let name = Name::parse(&labels.join(&b'.')).map_err(|why| EgressRefusal::because(NetworkReason::BadName, why))?;
    let mut known = Vec::new();
    for family in families(kind) {
        known.push((*family, names.address(&name, *family)?));
    }
    if known.is_empty() {
        // Other types are allowed, and counted, as address queries are.
        names.address(&name, Family::V4)?;
    }
    let of = |family| known.iter().find(|known| known.0 == family && known.1.is_ipv4() == (family == Family::V4));
    Ok(addresses(kind, |family| of(family).map(|known| known.1)))
}

fn families(kind: u16) -> &'static [Family] {
    match kind {
        A => &[Family::V4],
        AAAA => &[Family::V6],
        ANY => &[Family::V4, Family::V6],
        _ => &[],
    }
}

fn addresses(kind: u16, of: impl Fn(Family) -> Option<IpAddr>) -> Vec<DnsRecord> {
    families(kind).iter().filter_map(|family| of(*family)).map(DnsRecord::Address).collect()
}

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A name as text, in lower case, with `\ddd` for bytes that are not graphic, dots and backslashes.
fn text(labels: &[&[u8]]) -> String {
    let byte = |byte: &u8| match byte {
        b'.' | b'\\' => format!("\\{:03}", byte),
        byte if byte.is_ascii_graphic() => char::from(byte.to_ascii_lowercase()).to_string(),
        byte => format!("\\{byte:03}"),
    };
    labels.iter().map(|label| label.iter().map(byte).collect::<String>()).collect::<Vec<_>>().join(".")
}

/// Writes an answer. A negative answer has an SOA record of the root, which limits how long it may be cached.
fn write(id: u16, flags: u16, query: &Query<'_>, code: u16, records: &[DnsRecord], limit: usize) -> Vec<u8> {
    let denial = records.is_empty() && matches!(code, NOERROR | NXDOMAIN);
    let counts = [1, records.len() as u16, u16::from(denial), u16::from(query.edns.is_some())];
    let head = |flags: u16, counts: [u16; 4]| {
        let mut bytes = Vec::with_capacity(SHORT);
        let words = [id, QR | RA | flags | code & 15].into_iter().chain(counts);
        words.for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend(query.question);
        bytes
    };
    let mut bytes = head(flags, counts);
    records.iter().for_each(|record| put(&mut bytes, record));
    if denial {
        // Root: owner, server and mailbox; serial, refresh, retry, expire, minimum.
        record(&mut bytes, &[0], SOA, DENIAL, |data| {
            data.extend([0, 0]);
            [1, DENIAL, DENIAL, DENIAL, DENIAL].iter().for_each(|number: &u32| data.extend(number.to_be_bytes()));
        });
    }
    let opt = query.edns.as_ref().map_or_else(Vec::new, |edns| opt(edns, code).to_vec());
    if bytes.len() + opt.len() > limit {
        bytes = head(flags | TC, [1, 0, 0, counts[3]]);
    }
    bytes.extend(opt);
    bytes
}

fn put(bytes: &mut Vec<u8>, what: &DnsRecord) {
    // The owner is a pointer to the question's name, directly after the header.
    let owner = [0xc0, 12];
    match what {
        DnsRecord::Address(IpAddr::V4(address)) => record(bytes, &owner, A, TTL, |data| data.extend(address.octets())),
        DnsRecord::Address(IpAddr::V6(address)) => {
            record(bytes, &owner, AAAA, TTL, |data| data.extend(address.octets()))
        }
        DnsRecord::Pointer(name) => record(bytes, &owner, PTR, TTL, |data| {
            for label in name.split('.') {
                // A name's labels have at most 63 bytes.
                data.push(label.len() as u8);
                data.extend(label.bytes());
            }
            data.push(0);
        }),
    }
}

fn record(bytes: &mut Vec<u8>, owner: &[u8], kind: u16, ttl: u32, data: impl FnOnce(&mut Vec<u8>)) {
    bytes.extend(owner);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(1u16.to_be_bytes());
    bytes.extend(ttl.to_be_bytes());
    let at = bytes.len();
    bytes.extend([0, 0]);
    data(bytes);
    let length = (bytes.len() - at - 2) as u16;
    bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

/// The OPT record of an answer.
fn opt(edns: &Edns, code: u16) -> [u8; 11] {
    let [_, kind] = OPT.to_be_bytes();
    let [high, low] = (LONG as u16).to_be_bytes();
    [0, 0, kind, high, low, (code >> 4) as u8, 0, u8::from(edns.dnssec) << 7, 0, 0, 0]
}

/// The first message of a stream, and the number of bytes that it takes with its length prefix (RFC 1035, 4.2.2). None
/// while it is incomplete.
pub fn framed(stream: &[u8]) -> Option<(&[u8], usize)> {
    let (length, rest) = stream.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    Some((rest.get(..length)?, 2 + length))
}

/// A message with its length prefix, for a stream.
pub fn frame(message: &[u8]) -> Vec<u8> {
    // Answers are far shorter than 64 KiB.
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

#[cfg(test)]
mod tests;
