//! The framing of requests: where one ends and the next begins, in the bytes of a client's connection. Pure: takes
//! bytes, and returns those that may pass.
//!
//! ```text
//!        ┌──────────────────────────────────────────────┐
//!        ▼                                              │
//!      head ─check─▶ body: length │ chunks+trailers ────┤
//!        │                                              ▼
//!        └▶ fault, for good                upgrading: nothing passes before `resume` or the end
//! ```
//!
//! A head passes only when it is complete and checked, so the parser after this sees no byte of a refused head. This
//! one is stricter than any later parser, which therefore finds the same boundaries.

use crate::http::request_head::{self, Body, Head, HeadFault, HeadSearch};

/// Most bytes of the trailers after a chunked body.
const MOST_TRAILERS: usize = 8 * 1024;
/// Most digits of a chunk's size: fewer than 2^60 bytes.
const MOST_DIGITS: usize = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramingState {
    Head,
    Length(u64),
    Chunk(ChunkState),
    Upgrading,
    Fault { fault: HeadFault, in_head: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Size { digits: usize, size: u64 },
    SizeEnd { size: u64 },
    Data { left: u64 },
    DataReturn,
    DataFeed,
    Trailers,
}

const FIRST_CHUNK: ChunkState = ChunkState::Size { digits: 0, size: 0 };

impl ChunkState {
    /// The state after the first of these bytes, and how many of them it covers.
    fn after(self, bytes: &[u8]) -> Result<(ChunkState, usize), HeadFault> {
        let next = match (self, bytes[0]) {
            (ChunkState::Size { digits: MOST_DIGITS, .. }, byte) if byte.is_ascii_hexdigit() => {
                return Err(HeadFault::ChunkSize);
            }
            (ChunkState::Size { digits, size }, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                ChunkState::Size { digits: digits + 1, size: size * 16 + digit }
            }
            (ChunkState::Size { digits: 1.., size }, b'\r') => ChunkState::SizeEnd { size },
            (ChunkState::Size { digits: 1.., .. }, b';') => return Err(HeadFault::ChunkExtension),
            (ChunkState::Size { .. }, b'\n') => return Err(HeadFault::BareLineFeed),
            (ChunkState::Size { .. }, _) => return Err(HeadFault::ChunkSize),
            (ChunkState::SizeEnd { size: 0 }, b'\n') => ChunkState::Trailers,
            (ChunkState::SizeEnd { size }, b'\n') => ChunkState::Data { left: size },
            (ChunkState::SizeEnd { .. }, _) => return Err(HeadFault::BareCarriageReturn),
            (ChunkState::Data { left }, _) => {
                let passed = left.min(bytes.len() as u64);
                let next =
                    if passed == left { ChunkState::DataReturn } else { ChunkState::Data { left: left - passed } };
                return Ok((next, passed as usize));
            }
            (ChunkState::DataReturn, b'\r') => ChunkState::DataFeed,
            (ChunkState::DataFeed, b'\n') => FIRST_CHUNK,
            (ChunkState::DataReturn | ChunkState::DataFeed, _) => return Err(HeadFault::ChunkEnd),
            (ChunkState::Trailers, _) => return Err(HeadFault::Trailers),
        };
        Ok((next, 1))
    }
}

/// The framing state of one connection.
#[derive(Debug)]
pub struct RequestFraming {
    at: FramingState,
    /// An incomplete head, or incomplete trailers.
    held: Vec<u8>,
    search: HeadSearch,
    /// A head, or trailers, that may pass.
    ready: Option<Vec<u8>>,
    upgrading: bool,
    heads: u64,
}

/// What became of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingStep {
    /// So many bytes are consumed, and may pass as they are.
    Pass(usize),
    /// So many bytes are consumed and withheld; [`RequestFraming::take`] returns what may pass now, if anything.
    Held(usize),
    /// None is consumed: they are requests only if upstream refuses the upgrade, after which [`RequestFraming::resume`]
    /// is called.
    Wait,
    /// Nothing passes any more.
    Fault(HeadFault),
}

impl Default for RequestFraming {
    fn default() -> RequestFraming {
        RequestFraming {
            at: FramingState::Head,
            held: Vec::new(),
            search: HeadSearch::default(),
            ready: None,
            upgrading: false,
            heads: 0,
        }
    }
}

impl RequestFraming {
    /// Processes bytes, of which there is at least one. Those that are not consumed have to be passed again.
    pub fn step(&mut self, bytes: &[u8]) -> FramingStep {
        let step = match self.at {
            FramingState::Fault { fault, .. } => FramingStep::Fault(fault),
            FramingState::Upgrading => FramingStep::Wait,
            FramingState::Length(left) => {
                let passed = left.min(bytes.len() as u64);
                self.at = if passed == left { self.after() } else { FramingState::Length(left - passed) };
                FramingStep::Pass(passed as usize)
            }
            FramingState::Head => self.head(bytes),
            FramingState::Chunk(ChunkState::Trailers) => self.trailers(bytes),
            FramingState::Chunk(chunk) => self.chunk(chunk, bytes),
        };
        if let FramingStep::Fault(fault) = step {
            self.fault(fault);
        }
        step
    }

    /// Withheld bytes that may pass now.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        self.ready.take()
    }

    /// Lets nothing pass any more, for a reason found elsewhere.
    pub fn fault(&mut self, fault: HeadFault) {
        let in_head = match self.at {
            FramingState::Fault { .. } => return,
            at => at == FramingState::Head,
        };
        self.at = FramingState::Fault { fault, in_head };
        self.held = Vec::new();
    }

    /// Whether the fault is in a head, of which therefore nothing has passed.
    pub(crate) fn was_in_head(&self) -> bool {
        matches!(self.at, FramingState::Fault { in_head: true, .. })
    }

    /// The fault, if there has been one.
    pub fn faulty(&self) -> Option<HeadFault> {
        match self.at {
            FramingState::Fault { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// An upgrade or a tunnel was not granted: what follows is another request.
    pub fn resume(&mut self) {
        if self.at == FramingState::Upgrading {
            self.at = FramingState::Head;
        }
        self.upgrading = false;
    }

    /// Whether nothing is consumed before [`RequestFraming::resume`].
    pub fn is_upgrading(&self) -> bool {
        self.at == FramingState::Upgrading
    }

    /// How many heads have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Whether a head has begun and is not complete.
    pub(crate) fn in_head(&self) -> bool {
        self.at == FramingState::Head && !self.held.is_empty()
    }

    /// Whether the end of the stream here would be in the middle of a request.
    pub(crate) fn is_incomplete(&self) -> bool {
        matches!(self.at, FramingState::Length(_) | FramingState::Chunk(_)) || self.in_head()
    }

    fn after(&self) -> FramingState {
        if self.upgrading { FramingState::Upgrading } else { FramingState::Head }
    }

    fn release(&mut self) {
        self.ready = Some(std::mem::take(&mut self.held));
        self.search = HeadSearch::default();
    }

    fn head(&mut self, bytes: &[u8]) -> FramingStep {
        let before = self.held.len();
        let taken = bytes.len().min(request_head::MOST_BYTES - before);
        self.held.extend_from_slice(&bytes[..taken]);
        let end = match self.search.end(&self.held, request_head::MOST_BYTES) {
            Ok(Some(end)) => end,
            Ok(None) => return FramingStep::Held(taken),
            Err(fault) => return FramingStep::Fault(fault),
        };
        self.held.truncate(end);
        match request_head::check(&self.held) {
            Ok(Head { body, upgrading }) => {
                self.upgrading = upgrading;
                self.heads += 1;
                self.at = match body {
                    Body::Length(0) => self.after(),
                    Body::Length(length) => FramingState::Length(length),
                    Body::Chunked => FramingState::Chunk(FIRST_CHUNK),
                };
                self.release();
                FramingStep::Held(end - before)
            }
            Err(fault) => FramingStep::Fault(fault),
        }
    }

    /// Passes chunks as far as the grammar allows, up to the trailers, which are withheld like a head.
    fn chunk(&mut self, mut chunk: ChunkState, bytes: &[u8]) -> FramingStep {
        let mut index = 0;
        while index < bytes.len() && chunk != ChunkState::Trailers {
            match chunk.after(&bytes[index..]) {
                Ok((next, count)) => {
                    chunk = next;
                    index += count;
                }
                // Found again in the next step, so that what passes does not depend on how the bytes are split.
                Err(_) if index > 0 => break,
                Err(fault) => return FramingStep::Fault(fault),
            }
        }
        self.at = FramingState::Chunk(chunk);
        FramingStep::Pass(index)
    }

    fn trailers(&mut self, bytes: &[u8]) -> FramingStep {
        let before = self.held.len();
        let taken = bytes.len().min(MOST_TRAILERS - before);
        self.held.extend_from_slice(&bytes[..taken]);
        let end = match self.search.end(&self.held, MOST_TRAILERS) {
            Ok(Some(end)) => end,
            Ok(None) => return FramingStep::Held(taken),
            Err(HeadFault::TooLong) => return FramingStep::Fault(HeadFault::Trailers),
            Err(fault) => return FramingStep::Fault(fault),
        };
        self.held.truncate(end);
        let lines = self.held[..end - 2].split_inclusive(|byte| *byte == b'\n');
        let mut count = 0;
        for line in lines {
            count += 1;
            match request_head::header(&line[..line.len() - 2]) {
                Ok((name, _)) if request_head::may_trail(name) && count <= request_head::MOST_HEADERS => {}
                Ok(_) => return FramingStep::Fault(HeadFault::Trailers),
                Err(fault) => return FramingStep::Fault(fault),
            }
        }
        self.at = self.after();
        self.release();
        FramingStep::Held(end - before)
    }
}
