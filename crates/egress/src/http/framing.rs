//! Where one request ends and the next begins, in the bytes of a client's connection. Pure: bytes in, bytes that may
//! pass out.
//!
//! ```text
//!        ┌──────────────────────────────────────────────┐
//!        ▼                                              │
//!      head ─check─▶ body: length │ chunks+trailers ────┤
//!        │                                              ▼
//!        └▶ fault, for good                turning: holds what follows until told that it is the next head
//! ```
//!
//! A head passes when it is complete and checked, and not before; so a reader behind this sees no byte of a head that
//! is refused. It is stricter than any reader behind it, which therefore finds the same ends.

use crate::http::request_head::{self, Body, Fault, Head, HeadSearch};

/// Most bytes of the trailers behind a body of chunks.
const MOST_TRAILERS: usize = 8 * 1024;
/// Most digits of a chunk's size: 2^60 bytes are more than anybody has.
const MOST_DIGITS: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Head,
    Length(u64),
    Chunk(Chunk),
    Upgrading,
    Fault { fault: Fault, in_head: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    Size { digits: usize, size: u64 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataFeed,
    Trailers,
}

const FIRST_CHUNK: Chunk = Chunk::Size { digits: 0, size: 0 };

impl Chunk {
    /// What is behind the first of these bytes, and how many of them it covers.
    fn after(self, bytes: &[u8]) -> Result<(Chunk, usize), Fault> {
        let next = match (self, bytes[0]) {
            (Chunk::Size { digits: MOST_DIGITS, .. }, byte) if byte.is_ascii_hexdigit() => {
                return Err(Fault::ChunkSize);
            }
            (Chunk::Size { digits, size }, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                Chunk::Size { digits: digits + 1, size: size * 16 + digit }
            }
            (Chunk::Size { digits: 1.., size }, b'\r') => Chunk::SizeEnd { size },
            (Chunk::Size { digits: 1.., .. }, b';') => return Err(Fault::ChunkExtension),
            (Chunk::Size { .. }, b'\n') => return Err(Fault::BareLineFeed),
            (Chunk::Size { .. }, _) => return Err(Fault::ChunkSize),
            (Chunk::SizeEnd { size: 0 }, b'\n') => Chunk::Trailers,
            (Chunk::SizeEnd { size }, b'\n') => Chunk::Data { left: size },
            (Chunk::SizeEnd { .. }, _) => return Err(Fault::BareCarriageReturn),
            (Chunk::Data { left }, _) => {
                let passed = left.min(bytes.len() as u64);
                let next = if passed == left { Chunk::DataReturn } else { Chunk::Data { left: left - passed } };
                return Ok((next, passed as usize));
            }
            (Chunk::DataReturn, b'\r') => Chunk::DataFeed,
            (Chunk::DataFeed, b'\n') => FIRST_CHUNK,
            (Chunk::DataReturn | Chunk::DataFeed, _) => return Err(Fault::ChunkEnd),
            (Chunk::Trailers, _) => return Err(Fault::Trailers),
        };
        Ok((next, 1))
    }
}

/// The state of one connection's requests.
#[derive(Debug)]
pub struct RequestFraming {
    at: At,
    /// A head, or trailers, of which the end has not come.
    held: Vec<u8>,
    search: HeadSearch,
    /// A head, or trailers, that may pass.
    ready: Option<Vec<u8>>,
    upgrading: bool,
    heads: u64,
}

/// What became of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many of them are consumed, and may pass as they are.
    Pass(usize),
    /// So many of them are consumed and held back; [`RequestFraming::take`] has what may pass now, if anything.
    Held(usize),
    /// None is consumed: what they are is for upstream to say, and [`RequestFraming::resume`] is called or nothing.
    Wait,
    /// Nothing passes any more.
    Fault(Fault),
}

impl Default for RequestFraming {
    fn default() -> RequestFraming {
        RequestFraming {
            at: At::Head,
            held: Vec::new(),
            search: HeadSearch::default(),
            ready: None,
            upgrading: false,
            heads: 0,
        }
    }
}

impl RequestFraming {
    /// Looks at bytes that have come, which are not empty. Those that were not consumed are to be given again.
    pub fn step(&mut self, bytes: &[u8]) -> Step {
        let step = match self.at {
            At::Fault { fault, .. } => Step::Fault(fault),
            At::Upgrading => Step::Wait,
            At::Length(left) => {
                let passed = left.min(bytes.len() as u64);
                self.at = if passed == left { self.after() } else { At::Length(left - passed) };
                Step::Pass(passed as usize)
            }
            At::Head => self.head(bytes),
            At::Chunk(Chunk::Trailers) => self.trailers(bytes),
            At::Chunk(chunk) => self.chunk(chunk, bytes),
        };
        if let Step::Fault(fault) = step {
            self.fault(fault);
        }
        step
    }

    /// Bytes that were held and may pass now.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        self.ready.take()
    }

    /// Nothing passes any more, for a reason found elsewhere.
    pub fn fault(&mut self, fault: Fault) {
        let in_head = match self.at {
            At::Fault { .. } => return,
            at => at == At::Head,
        };
        self.at = At::Fault { fault, in_head };
        self.held = Vec::new();
    }

    /// Whether what was wrong is a head, of which therefore nothing has passed.
    pub fn was_in_head(&self) -> bool {
        matches!(self.at, At::Fault { in_head: true, .. })
    }

    /// What has been wrong, if anything.
    pub fn faulty(&self) -> Option<Fault> {
        match self.at {
            At::Fault { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// What follows a request that asked for an upgrade or a tunnel is another request: it was not granted.
    pub fn resume(&mut self) {
        if self.at == At::Upgrading {
            self.at = At::Head;
        }
        self.upgrading = false;
    }

    /// Whether nothing is consumed until [`RequestFraming::resume`].
    pub fn is_upgrading(&self) -> bool {
        self.at == At::Upgrading
    }

    /// How many heads have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// In the middle of a head.
    pub fn in_head(&self) -> bool {
        self.at == At::Head && !self.held.is_empty()
    }

    /// Whether the end of the bytes here is in the middle of a request.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.at, At::Length(_) | At::Chunk(_)) || self.in_head()
    }

    fn after(&self) -> At {
        if self.upgrading { At::Upgrading } else { At::Head }
    }

    fn release(&mut self) {
        self.ready = Some(std::mem::take(&mut self.held));
        self.search = HeadSearch::default();
    }

    fn head(&mut self, bytes: &[u8]) -> Step {
        let before = self.held.len();
        let taken = bytes.len().min(request_head::MOST_BYTES - before);
        self.held.extend_from_slice(&bytes[..taken]);
        let end = match self.search.end(&self.held, request_head::MOST_BYTES) {
            Ok(Some(end)) => end,
            Ok(None) => return Step::Held(taken),
            Err(fault) => return Step::Fault(fault),
        };
        self.held.truncate(end);
        match request_head::check(&self.held) {
            Ok(Head { body, upgrading }) => {
                self.upgrading = upgrading;
                self.heads += 1;
                self.at = match body {
                    Body::Length(0) => self.after(),
                    Body::Length(length) => At::Length(length),
                    Body::Chunked => At::Chunk(FIRST_CHUNK),
                };
                self.release();
                Step::Held(end - before)
            }
            Err(fault) => Step::Fault(fault),
        }
    }

    /// Passes as much as the chunks' grammar has, up to the trailers, which are held like a head.
    fn chunk(&mut self, mut chunk: Chunk, bytes: &[u8]) -> Step {
        let mut index = 0;
        while index < bytes.len() && chunk != Chunk::Trailers {
            match chunk.after(&bytes[index..]) {
                Ok((next, count)) => {
                    chunk = next;
                    index += count;
                }
                // Found again with the next step, so that what passes does not depend on the pieces that come.
                Err(_) if index > 0 => break,
                Err(fault) => return Step::Fault(fault),
            }
        }
        self.at = At::Chunk(chunk);
        Step::Pass(index)
    }

    fn trailers(&mut self, bytes: &[u8]) -> Step {
        let before = self.held.len();
        let taken = bytes.len().min(MOST_TRAILERS - before);
        self.held.extend_from_slice(&bytes[..taken]);
        let end = match self.search.end(&self.held, MOST_TRAILERS) {
            Ok(Some(end)) => end,
            Ok(None) => return Step::Held(taken),
            Err(Fault::TooLong) => return Step::Fault(Fault::Trailers),
            Err(fault) => return Step::Fault(fault),
        };
        self.held.truncate(end);
        let lines = self.held[..end - 2].split_inclusive(|byte| *byte == b'\n');
        let mut count = 0;
        for line in lines {
            count += 1;
            match request_head::header(&line[..line.len() - 2]) {
                Ok((name, _)) if request_head::may_trail(name) && count <= request_head::MOST_HEADERS => {}
                Ok(_) => return Step::Fault(Fault::Trailers),
                Err(fault) => return Step::Fault(fault),
            }
        }
        self.at = self.after();
        self.release();
        Step::Held(end - before)
    }
}
