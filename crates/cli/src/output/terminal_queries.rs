//! Recognises terminal queries in the program's output: control sequences to which a terminal answers.
//!
//! A terminal answers on its input, where the caller's shell would read the answer as typed text after the run. `terminal`
//! discards the answers; this file only says whether there may be any. It follows ECMA-48 and xterm's control sequences
//! loosely: a false positive delays the end of a run, a false negative leaves an answer on the prompt.

/// The final bytes of CSI sequences that some terminal answers: device attributes, status and position reports, window
/// reports, parameters, keyboard protocol, modes, version, graphics, checksums, locator position, displayed extent, colours
/// and renditions.
const ANSWERED: &[u8] = b"cnxtupqSywvR|";
/// The same for sequences with a question mark, whose final byte alone sets something: key modifiers and formats.
const ANSWERED_IF_PRIVATE: &[u8] = b"mg";
/// The operating system commands that are queries without a question mark: allowed and disallowed features of xterm, reports
/// of iTerm2, and kitty's clipboard.
const ANSWERED_COMMANDS: &[u32] = &[60, 61, 1337, 5522];

/// The state of the recogniser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum QueryState {
    #[default]
    Text,
    Escape,
    Control {
        private: bool,
    },
    /// The number of the command, as far as it was read.
    Command {
        number: u32,
    },
    /// Behind the number.
    Argument,
}

/// A recogniser that remembers whether there was a query.
#[derive(Debug, Default)]
pub(super) struct Queries {
    state: QueryState,
    asked: bool,
}

impl Queries {
    /// Reads output that goes to a terminal. A sequence may be split over several calls.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.state = match (self.state, byte) {
                (_, 0x1b) => QueryState::Escape,
                (QueryState::Escape, b'[') | (_, 0x9b) => QueryState::Control { private: false },
                (QueryState::Escape, b']') | (_, 0x9d) => QueryState::Command { number: 0 },
                // Device control, application and private strings; DECID; ENQ.
                (QueryState::Escape, b'P' | b'_' | b'^' | b'X' | b'Z') | (_, 0x05 | 0x90) => {
                    self.asked = true;
                    QueryState::Text
                }
                // A terminal obeys a control character inside a sequence, and goes on with the sequence. Two end it.
                (
                    state @ (QueryState::Escape | QueryState::Control { .. }),
                    0x00..=0x17 | 0x19 | 0x1c..=0x1f | 0x7f,
                ) => state,
                (QueryState::Control { private }, 0x20..=0x3f) => {
                    QueryState::Control { private: private || byte == b'?' }
                }
                (QueryState::Control { private }, last) => {
                    self.asked |= ANSWERED.contains(&last) || (private && ANSWERED_IF_PRIVATE.contains(&last));
                    QueryState::Text
                }
                // An operating system command is a query when a question mark stands for a value.
                (QueryState::Command { .. } | QueryState::Argument, b'?') => {
                    self.asked = true;
                    QueryState::Argument
                }
                // Before its end: `terminal` ends what the program leaves open.
                (QueryState::Command { number }, digit @ b'0'..=b'9') => {
                    let number = number.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
                    self.asked |= ANSWERED_COMMANDS.contains(&number);
                    QueryState::Command { number }
                }
                (QueryState::Command { .. } | QueryState::Argument, 0x20..) => QueryState::Argument,
                _ => QueryState::Text,
            };
        }
    }

    /// Whether there was a query.
    pub(super) fn asked(&self) -> bool {
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
    fn queries_are_recognised_whole_and_byte_by_byte() {
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
            b"\x1b[1'|",
            b"\x1b['|",
            b"\x1b[\"v",
            b"\x1b[?4m",
            b"\x1b[?m",
            b"\x1b[?1g",
            b"\x1b[1;1;1;1#|",
            b"\x1b[#R",
            b"\x1b]60\x07",
            b"\x1b]60\x1b\\",
            b"\x1b]61;allowColorOps\x07",
            b"\x1b]1337;ReportCellSize\x07",
            b"\x1b]60",
            b"\x1b[\n6\rn",
            b"\x1b\n[c",
        ];
        for query in queries {
            assert!(asks(&[b"text ", query]), "{query:?}");
            let bytes: Vec<&[u8]> = query.chunks(1).collect();
            assert!(asks(&bytes), "{query:?} byte by byte");
        }
        assert!(asks(&[b"\x1b]0;never ended", b"\x1b[c"]));
    }

    #[test]
    fn colours_cursor_moves_titles_and_links_are_no_queries() {
        let quiet: &[&[u8]] = &[
            b"\x1b[31;1mred\x1b[0m",
            b"\x1b[2J\x1b[H\x1b[10;20H\x1b[K",
            b"\x1b[?25l\x1b[?1049h",
            b"\x1b]0;title\x07c",
            b"\x1b]8;;https://example.org/a\x1b\\link\x1b]8;;\x1b\\",
            b"plain cnt? text\r\n",
            b"\x1b(B\x1b=",
            b"\x1b[>4;2m\x1b[>4m",
            b"\x1b[3g\x1b[m",
            b"\x1b]6;1\x07\x1b]2;60 files\x07\x1b]133;A\x07",
            b"a|b v",
        ];
        for output in quiet {
            assert!(!asks(&[output]), "{output:?}");
        }
    }
}
