//! The block that init reads, under construction: strings, bytes and numbers, each at its alignment. Knows nothing of what
//! they mean.

use crate::wire::Ref;

/// The block under construction.
pub(crate) struct Block {
    bytes: Vec<u8>,
}

impl Block {
    /// A block that begins with this many zero bytes, for a header, and has room for so many more.
    pub(crate) fn new(header: usize, room: usize) -> Block {
        let mut bytes = vec![0; header];
        bytes.reserve(room);
        Block { bytes }
    }

    /// Its length so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, with this header at their start.
    pub(crate) fn finish(mut self, header: &[u8]) -> Vec<u8> {
        self.bytes[..header.len()].copy_from_slice(header);
        self.bytes
    }

    /// Fills up to a multiple of 8.
    pub(crate) fn align(&mut self) {
        while !self.bytes.len().is_multiple_of(8) {
            self.bytes.push(0);
        }
    }

    /// A string and its NUL; where it begins.
    pub(crate) fn text(&mut self, s: &str) -> u32 {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(s.as_bytes());
        self.bytes.push(0);
        at
    }

    /// 32-bit numbers.
    pub(crate) fn words(&mut self, list: &[u32]) -> Ref {
        self.align();
        let off = self.bytes.len() as u32;
        for w in list {
            self.bytes.extend_from_slice(&w.to_ne_bytes());
        }
        Ref { off, len: list.len() as u32 }
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, list: &[u8]) -> Ref {
        self.align();
        let off = self.bytes.len() as u32;
        self.bytes.extend_from_slice(list);
        Ref { off, len: list.len() as u32 }
    }

    /// 64-bit numbers; where they begin.
    pub(crate) fn longs(&mut self, list: &[u64]) -> u32 {
        self.align();
        let off = self.bytes.len() as u32;
        for w in list {
            self.bytes.extend_from_slice(&w.to_ne_bytes());
        }
        off
    }

    /// Strings, and the list of where they begin.
    pub(crate) fn texts(&mut self, list: &[String]) -> Ref {
        let offsets: Vec<u32> = list.iter().map(|s| self.text(s)).collect();
        self.words(&offsets)
    }
}
