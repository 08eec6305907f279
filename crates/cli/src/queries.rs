//! Control sequences by which a program asks a terminal to answer, recognised in its output as it passes.
//!
//! A terminal answers on its input, where the caller's shell would read the answer as typed text once the run has ended.
//! `terminal` discards these answers; this file only says whether there may be any. It follows ECMA-48 and xterm's control
//! sequences loosely: a wrong yes costs a moment at the end of a run, a wrong no an answer on the prompt.

/// The final bytes of CSI sequences that some terminal answers: device attributes, status and position reports, window
/// reports, parameters, keyboard protocol, modes, version, graphics, checksums.
const ANSWERED: &[u8] = b"cnxtupqSyw";

/// Where in a sequence the output stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Text,
    Escape,
    Control,
    Command,
}

/// Reads output and remembers whether it asked for anything.
#[derive(Debug, Default)]
pub struct Queries {
    within: Within,
    asked: bool,
}

impl Queries {
    /// Reads what is written to a terminal; a sequence may be split over several calls.
    pub fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.within = match (self.within, byte) {
                (_, 0x1b) => Within::Escape,
                (Within::Escape, b'[') | (_, 0x9b) => Within::Control,
                (Within::Escape, b']') | (_, 0x9d) => Within::Command,
                // Device control, application and private strings; DECID; ENQ.
                (Within::Escape, b'P' | b'_' | b'^' | b'X' | b'Z') | (_, 0x05 | 0x90) => {
                    self.asked = true;
                    Within::Text
                }
                (Within::Control, 0x20..=0x3f) => Within::Control,
                (Within::Control, last) => {
                    self.asked |= ANSWERED.contains(&last);
                    Within::Text
                }
                // An operating system command asks with a question mark in place of a value.
                (Within::Command, b'?') => {
                    self.asked = true;
                    Within::Command
                }
                (Within::Command, 0x20..) => Within::Command,
                _ => Within::Text,
            };
        }
    }

    /// Whether something was asked.
    pub fn asked(&self) -> bool {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(pieces: &[&[u8]]) -> bool {
        let mut queries = Queries::default();
        pieces.iter().for_each(|piece| queries.read(piece));
        queries.asked()
    }

    #[test]
    fn what_a_terminal_answers_is_recognised_also_in_pieces() {
        let queries: &[&[u8]] = &[
            b"\x1b[c",
            b"\x1b[>0c",
            b"\x1b[5n",
            b"\x1b[?6n",
            b"\x1b[21t",
            b"\x1b[?u",
            b"\x1b[?2026$p",
            b"\x1b[>q",
            b"\x1bZ",
            b"\x05",
            b"\x1bP$qm\x1b\\",
            b"\x1b]11;?\x07",
            b"\x1b]52;c;?\x1b\\",
            b"\x1b_Gi=1,a=q;AAAA\x1b\\",
            b"\x9bc",
            b"\x1b[?1;1;0S",
        ];
        for query in queries {
            assert!(asks(&[b"text ", query]), "{query:?}");
            let bytes: Vec<&[u8]> = query.chunks(1).collect();
            assert!(asks(&bytes), "{query:?} byte by byte");
        }
        assert!(asks(&[b"\x1b]0;never ended", b"\x1b[c"]));
    }

    #[test]
    fn colours_movement_titles_and_links_ask_for_nothing() {
        let quiet: &[&[u8]] = &[
            b"\x1b[31;1mred\x1b[0m",
            b"\x1b[2J\x1b[H\x1b[10;20H\x1b[K",
            b"\x1b[?25l\x1b[?1049h",
            b"\x1b]0;title\x07c",
            b"\x1b]8;;https://example.org/a\x1b\\link\x1b]8;;\x1b\\",
            b"plain cnt? text\r\n",
            b"\x1b(B\x1b=",
        ];
        for output in quiet {
            assert!(!asks(&[output]), "{output:?}");
        }
    }
}
