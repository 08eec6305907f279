//! The little of the D-Bus wire protocol that one method call needs (D-Bus specification, "Message Protocol" and
//! "Authentication Protocol"): little endian, EXTERNAL authentication, replies read for success or error text only.
//!
//! Owns bytes and the stream, knows nothing of systemd. Every length that the peer sends is checked before use.

use std::io::{self, Read, Write};

/// Largest message accepted; a reply to our call has some hundred bytes.
const MAX_MESSAGE: usize = 1 << 20;
const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;

/// Appends values in the wire format, each aligned as its type demands.
#[derive(Debug, Default)]
pub(super) struct DbusWriter(Vec<u8>);

impl DbusWriter {
    pub(super) fn align(&mut self, to: usize) -> &mut Self {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.align(4).0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn string(&mut self, value: &str) -> &mut Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX)).0.extend(value.as_bytes());
        self.0.push(0);
        self
    }

    pub(super) fn signature(&mut self, value: &str) -> &mut Self {
        self.0.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
        self.0.extend(value.as_bytes());
        self.0.push(0);
        self
    }

    /// An array whose elements have this alignment; its length counts from the first element on.
    pub(super) fn array(&mut self, element_align: usize, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.u32(0);
        let length_at = self.0.len() - 4;
        let start = self.align(element_align).0.len();
        fill(self);
        let length = u32::try_from(self.0.len() - start).unwrap_or(u32::MAX);
        self.0[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        self
    }

    /// One `(sv)` property.
    pub(super) fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Self)) {
        self.align(8).string(name).signature(signature);
        value(self);
    }
}

/// What is called. All strings are our own constants.
pub(super) struct DbusCall<'a> {
    pub(super) destination: Option<&'a str>,
    pub(super) path: &'a str,
    pub(super) interface: &'a str,
    pub(super) member: &'a str,
    pub(super) signature: &'a str,
    pub(super) body: DbusWriter,
}

impl DbusCall<'_> {
    fn encode(&self, serial: u32) -> Vec<u8> {
        let mut out = DbusWriter(vec![b'l', METHOD_CALL, 0, 1]);
        out.u32(u32::try_from(self.body.0.len()).unwrap_or(u32::MAX)).u32(serial);
        out.array(8, |fields| {
            let mut field = |code: u8, signature: &str, value: &str| {
                fields.align(8).0.push(code);
                fields.signature(signature);
                if signature == "g" {
                    fields.signature(value)
                } else {
                    fields.string(value)
                };
            };
            field(1, "o", self.path);
            field(2, "s", self.interface);
            field(3, "s", self.member);
            if let Some(destination) = self.destination {
                field(6, "s", destination);
            }
            if !self.signature.is_empty() {
                field(8, "g", self.signature);
            }
        });
        out.align(8).0.extend(&self.body.0);
        out.0
    }
}

/// How a call ended at the peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DbusReply {
    Done,
    Refused { name: String, message: String },
}

/// An authenticated connection.
#[derive(Debug)]
pub(super) struct DbusConnection<S> {
    stream: S,
    serial: u32,
}

impl<S: Read + Write> DbusConnection<S> {
    /// Authenticates as `uid`, which the peer compares with the socket's credentials.
    pub(super) fn authenticate(mut stream: S, uid: u32) -> io::Result<Self> {
        let hex: String = uid.to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            line.push(byte[0]);
            if line.len() > 512 {
                return Err(malformed("an endless authentication line"));
            }
        }
        if !line.starts_with(b"OK ") {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("authentication refused: {text}")));
        }
        stream.write_all(b"BEGIN\r\n")?;
        Ok(Self { stream, serial: 0 })
    }

    /// Calls and waits for the answer; signals and other messages in between are skipped.
    pub(super) fn call(&mut self, call: &DbusCall<'_>) -> io::Result<DbusReply> {
        self.serial += 1;
        self.stream.write_all(&call.encode(self.serial))?;
        loop {
            let message = self.receive()?;
            if message.reply_to != Some(self.serial) {
                continue;
            }
            match message.kind {
                METHOD_RETURN => return Ok(DbusReply::Done),
                ERROR => {
                    return Ok(DbusReply::Refused {
                        name: message.error_name.unwrap_or_default(),
                        message: DbusReader { bytes: &message.body, at: 0 }.string().unwrap_or_default(),
                    });
                }
                _ => {}
            }
        }
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut fixed = [0u8; 16];
        self.stream.read_exact(&mut fixed)?;
        if fixed[0] != b'l' {
            // A peer answers in its own byte order; ours is the one that every peer on this machine has.
            return Err(malformed("a message in big-endian order"));
        }
        let number = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]) as usize;
        let (body, fields) = (number(4), number(12));
        if body > MAX_MESSAGE || fields > MAX_MESSAGE {
            return Err(malformed("a message beyond 1 MiB"));
        }
        let mut rest = vec![0u8; fields.next_multiple_of(8) + body];
        self.stream.read_exact(&mut rest)?;
        let body = rest.split_off(fields.next_multiple_of(8));
        let mut message = Message { kind: fixed[1], reply_to: None, error_name: None, body };
        message.read_fields(&rest[..fields]).ok_or_else(|| malformed("broken header fields"))?;
        Ok(message)
    }
}

struct Message {
    kind: u8,
    reply_to: Option<u32>,
    error_name: Option<String>,
    body: Vec<u8>,
}

impl Message {
    /// Header fields start 16 bytes into the message, so alignment is the same from here.
    fn read_fields(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = DbusReader { bytes, at: 0 };
        while reader.at < bytes.len() {
            reader.align(8);
            if reader.at >= bytes.len() {
                break;
            }
            let code = reader.byte()?;
            let signature = reader.signature()?;
            match (code, signature.as_str()) {
                (5, "u") => self.reply_to = Some(reader.u32()?),
                (4, "s") => self.error_name = Some(reader.string()?),
                (_, "s" | "o") => drop(reader.string()?),
                (_, "g") => drop(reader.signature()?),
                (_, "u") => drop(reader.u32()?),
                _ => return None,
            }
        }
        Some(())
    }
}

struct DbusReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl DbusReader<'_> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.take(1)?;
        Some(text)
    }

    fn string(&mut self) -> Option<String> {
        let length = self.u32()? as usize;
        self.text(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()?.into();
        self.text(length)
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the peer sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_bytes_of_the_specification() {
        let mut body = DbusWriter::default();
        body.string("ab").array(8, |list| {
            list.property("D", "b", |value| {
                value.u32(1);
            });
        });
        let call = DbusCall { destination: None, path: "/", interface: "i.f", member: "M", signature: "sa(sv)", body }
            .encode(7);
        let expected: &[u8] = b"l\x01\0\x01\x20\0\0\0\x07\0\0\0\x3f\0\0\0\
            \x01\x01o\0\x01\0\0\0/\0\0\0\0\0\0\0\
            \x02\x01s\0\x03\0\0\0i.f\0\0\0\0\0\
            \x03\x01s\0\x01\0\0\0M\0\0\0\0\0\0\0\
            \x08\x01g\0\x06sa(sv)\0";
        let (header, rest) = call.split_at(expected.len());
        assert_eq!(header[..12], expected[..12]);
        assert_eq!(header[16..], expected[16..]);
        assert_eq!(header[12] as usize, expected.len() - 16, "the array's length");
        assert!(rest.ends_with(b"\x02\0\0\0ab\0\0\x10\0\0\0\0\0\0\0\x01\0\0\0D\0\x01b\0\0\0\0\x01\0\0\0"), "{rest:?}");
    }

    #[test]
    fn broken_header_fields_are_refused_and_never_read_past() {
        for length in 0..40 {
            let bytes = vec![0xffu8; length];
            let mut message = Message { kind: 2, reply_to: None, error_name: None, body: Vec::new() };
            assert_eq!(message.read_fields(&bytes).is_some(), length == 0, "{length}");
        }
    }
}
