//! Who runs a session's code: the agents of ours, which are code for the interpreter itself, and other people's.
//!
//! An agent of ours needs no file: the interpreter gets it as its one argument. It reads requests from its descriptor 3,
//! runs each in one and the same state, and answers. Output goes through pipes that are opened anew for each request, so
//! that what an earlier one left behind holds another pipe.

use super::frame::{self, AgentRequest, FrameError};

/// What a session's program speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Our agent in CPython 3.7 or later.
    Python,
    /// Our agent in Node 18 or later.
    Node,
    /// Our agent in bash 5 or later.
    Shell,
    /// The program itself, such as an artifact's `bin/session-run`: frames on its standard input and output, and output in
    /// the results. All that it starts may write there as well: nothing tells who did.
    Foreign,
}

impl Agent {
    /// The words that follow the interpreter and its options.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            // -u and the like are the caller's.
            Agent::Python => &["-c", include_str!("agent.py")],
            Agent::Node => &["-e", include_str!("agent.js")],
            Agent::Shell => &["-c", include_str!("agent.sh"), "shell"],
            Agent::Foreign => &[],
        }
    }

    /// Whether an interrupted call can leave the state as it is: bash goes on with the command after the one that was
    /// interrupted, which nobody wants.
    pub(super) fn interruptible(self) -> bool {
        matches!(self, Agent::Python | Agent::Node)
    }

    /// Whether it is ours.
    pub(super) fn own(self) -> bool {
        self != Agent::Foreign
    }

    /// What the code is written in, as the protocol names it.
    fn interpreter(self) -> &'static str {
        match self {
            Agent::Python => "python",
            Agent::Node => "node",
            Agent::Shell | Agent::Foreign => "bash",
        }
    }

    /// A request to run code.
    ///
    /// # Errors
    /// The code is too long.
    pub(super) fn execute(self, id: &str, code: &str, streams: [i32; 2]) -> Result<Vec<u8>, FrameError> {
        match self {
            Agent::Shell if code.contains('\0') => {
                Err(FrameError::Malformed("it has a NUL byte in it, which a shell cannot hold".into()))
            }
            // bash reads no NUL, so no length in bytes: one line of words, then the code.
            Agent::Shell if code.len() > frame::LONGEST => {
                Err(FrameError::TooLong { length: code.len(), most: frame::LONGEST })
            }
            Agent::Shell => {
                let [out, err] = streams;
                let mut line = format!("{id} {out} {err} {}\n", code.len()).into_bytes();
                line.extend_from_slice(code.as_bytes());
                Ok(line)
            }
            _ => {
                let streams = self.own().then_some(streams);
                frame::encode(&AgentRequest::Execute { id, interpreter: self.interpreter(), code, streams })
            }
        }
    }

    /// What comes before the request that follows an interrupted one.
    pub(super) fn settle(self) -> Vec<u8> {
        match self {
            Agent::Node => frame::encode(&AgentRequest::Settle).unwrap_or_default(), // a few bytes: never too long
            _ => Vec::new(),
        }
    }

    /// A request to end.
    pub(super) fn shutdown(self) -> Vec<u8> {
        match self {
            Agent::Shell => b"end 0 0 0\n".to_vec(),
            _ => frame::encode(&AgentRequest::Shutdown).unwrap_or_default(), // a few bytes: never too long
        }
    }

    /// Longest reply.
    pub(super) fn longest_reply(self) -> usize {
        if self.own() { frame::LONGEST_OWN } else { frame::LONGEST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_of_ours_fits_into_one_argument_of_a_program() {
        for agent in [Agent::Python, Agent::Node, Agent::Shell] {
            assert!(agent.arguments().iter().all(|a| a.len() < 100 * 1024 && !a.contains('\0')), "{agent:?}");
        }
    }

    #[test]
    fn a_request_to_the_shell_is_a_line_of_words_and_the_code() {
        let bytes = Agent::Shell.execute("7f", "echo \u{e9}", [16, 17]).unwrap();
        assert_eq!(bytes, "7f 16 17 7\necho \u{e9}".as_bytes());
    }
}
