//! Watches the start of a TLS connection until no other ClientHello can follow in the clear. Pure.
//!
//! A server may answer the first ClientHello with HelloRetryRequest (RFC 8446, 4.1.4). The second one is in the clear
//! too, and servers take the name from it. So it is given out to be judged before it passes:
//!
//! ```text
//! client  ClientHello ─▶ [change_cipher_spec, early data] ─▶ handshake ─┬─ server not read yet ─▶ waits
//! server  ServerHello of HelloRetryRequest ─ or ─ of the handshake      ├─ asked for another ───▶ a ClientHello, judged
//!                                                                       └─ went on ─────────────▶ none, and all passes
//! ```
//!
//! Fails closed: a server that cannot be read has never gone on, and then any other handshake is refused.

use crate::decide::client_hello::{self, ClientHello};

/// The random of a ServerHello that is a HelloRetryRequest: SHA-256 of that word (RFC 8446, 4.1.3).
pub const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// Most bytes of one record, encrypted ones included (RFC 5246, 6.2.3).
const MOST_RECORD: usize = (1 << 14) + 2048;

/// The header of a handshake message, and as much of a ServerHello as its kind needs: the version and the random.
const MESSAGE_HEADER: usize = 4;
const SERVER_HELLO: usize = MESSAGE_HEADER + 2 + 32;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
const HEARTBEAT: u8 = 24;

/// How the server took the last ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloAnswer {
    /// Not known yet.
    Awaited,
    /// It asked for another one.
    Retry,
    /// It went on with the handshake: the next ClientHello is encrypted.
    Hello,
    /// What it sends is not understood, or it sends nothing more. It may read another one.
    Unknown,
}

/// Reads what the server sends, up to its ServerHello. Keeps no more than 43 bytes of it.
#[derive(Debug, Clone, Default)]
pub struct ServerFlight {
    header: Vec<u8>,
    /// Bytes that are left of the current record, and whether it is a handshake.
    left: usize,
    handshake: bool,
    /// The beginning of a message, and bytes of the last one that are not of interest.
    message: Vec<u8>,
    skip: usize,
    /// HelloRetryRequests so far.
    retries: u32,
    settled: Option<HelloAnswer>,
}

impl ServerFlight {
    /// Reads the bytes that follow. They may reach the client only after that.
    pub fn read(&mut self, mut bytes: &[u8]) {
        while self.settled.is_none() && !bytes.is_empty() {
            if self.left == 0 {
                let (taken, rest) = bytes.split_at((5 - self.header.len()).min(bytes.len()));
                self.header.extend_from_slice(taken);
                bytes = rest;
                if let [kind, major, _, high, low] = self.header[..] {
                    self.header.clear();
                    self.left = usize::from(u16::from_be_bytes([high, low]));
                    self.handshake = kind == HANDSHAKE;
                    if !(CHANGE_CIPHER_SPEC..=HANDSHAKE).contains(&kind) || major != 3 || self.left > MOST_RECORD {
                        self.settled = Some(HelloAnswer::Unknown);
                    }
                }
                continue;
            }
            let (piece, rest) = bytes.split_at(self.left.min(bytes.len()));
            self.left -= piece.len();
            bytes = rest;
            if self.handshake {
                self.messages(piece);
            }
        }
    }

    /// The server sends nothing more.
    pub fn end(&mut self) {
        self.settled.get_or_insert(HelloAnswer::Unknown);
    }

    /// The answer to the last of so many ClientHellos.
    pub fn answer(&self, hellos: u32) -> HelloAnswer {
        match self.settled {
            Some(answer) => answer,
            None if self.retries >= hellos => HelloAnswer::Retry,
            None => HelloAnswer::Awaited,
        }
    }

    /// Reads a part of the content of handshake records.
    fn messages(&mut self, mut piece: &[u8]) {
        while self.settled.is_none() && !piece.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(piece.len());
                self.skip -= skipped;
                piece = &piece[skipped..];
                continue;
            }
            let want = if self.message.len() < MESSAGE_HEADER { MESSAGE_HEADER } else { SERVER_HELLO };
            let (taken, rest) = piece.split_at((want - self.message.len()).min(piece.len()));
            self.message.extend_from_slice(taken);
            piece = rest;
            let [kind, high, middle, low, body @ ..] = &self.message[..] else { continue };
            let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
            if *kind != 2 || length < SERVER_HELLO - MESSAGE_HEADER {
                self.settled = Some(HelloAnswer::Unknown);
            } else if self.message.len() == SERVER_HELLO {
                if body[2..] == RETRY_RANDOM {
                    self.retries += 1;
                    self.skip = length - (SERVER_HELLO - MESSAGE_HEADER);
                    self.message.clear();
                } else {
                    self.settled = Some(HelloAnswer::Hello);
                }
            }
        }
    }
}

/// What becomes of the client's next bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchStep {
    /// So many of them pass.
    Pass(usize),
    /// A ClientHello of so many bytes, which passes if it is allowed.
    Hello(ClientHello, usize),
    /// More of the client's bytes are needed.
    More,
    /// They depend on the server's answer, which is not known yet.
    Wait,
    /// These and all that follow pass.
    Done,
}

/// Follows what the client sends after its first ClientHello.
#[derive(Debug, Clone)]
pub struct ClientFlight {
    /// ClientHellos that were given out to be judged, the first one included.
    hellos: u32,
    /// Bytes that are left of a record that passes.
    left: usize,
}

impl Default for ClientFlight {
    fn default() -> ClientFlight {
        ClientFlight { hellos: 1, left: 0 }
    }
}

impl ClientFlight {
    /// Decides about the start of `bytes`, all that have come and not passed. Bytes that pass have to be removed.
    ///
    /// # Errors
    /// They are nothing that a client sends here, and why.
    pub fn step(&mut self, bytes: &[u8], server: &ServerFlight) -> Result<WatchStep, &'static str> {
        if self.left > 0 {
            let passed = self.left.min(bytes.len());
            self.left -= passed;
            return Ok(if passed == 0 { WatchStep::More } else { WatchStep::Pass(passed) });
        }
        let [kind, major, _, high, low, content @ ..] = bytes else { return Ok(WatchStep::More) };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if *major != 3 {
            return Err("a record of an unknown version");
        }
        if !(1..=MOST_RECORD).contains(&length) {
            return Err("a record that is empty or too long");
        }
        let answer = server.answer(self.hellos);
        match (*kind, answer) {
            (CHANGE_CIPHER_SPEC | APPLICATION_DATA, HelloAnswer::Hello) => Ok(WatchStep::Done),
            (CHANGE_CIPHER_SPEC | ALERT | APPLICATION_DATA | HEARTBEAT, _) => {
                // Its header and as much of its content as is there.
                let passed = (5 + length).min(bytes.len());
                self.left = 5 + length - passed;
                Ok(WatchStep::Pass(passed))
            }
            (HANDSHAKE, HelloAnswer::Awaited) => Ok(WatchStep::Wait),
            (HANDSHAKE, HelloAnswer::Hello) => match content.first() {
                None => Ok(WatchStep::More),
                Some(1) => Err("another greeting that the server did not ask for"),
                Some(_) => Ok(WatchStep::Done),
            },
            (HANDSHAKE, HelloAnswer::Retry | HelloAnswer::Unknown) => Ok(match client_hello::measured(bytes)? {
                None => WatchStep::More,
                Some((hello, length)) => {
                    self.hellos += 1;
                    WatchStep::Hello(hello, length)
                }
            }),
            _ => Err("a record of an unknown type"),
        }
    }
}

#[cfg(test)]
mod tests;
