//! Frames of the channel between a session's owner and its agent: 4 bytes of length, big-endian, then JSON. Pure.
//!
//! What an agent writes is as untrusted as the code that it runs: a length is bounded before anything is kept for it, and
//! nothing is kept for bytes that have not come.

use serde::{Deserialize, Serialize};

/// Longest frame, bytes, as other implementations of the protocol have it.
pub const LONGEST: usize = 64 << 20;

/// Longest reply of an agent of ours, bytes: output does not come in replies.
pub(crate) const LONGEST_OWN: usize = 64 << 10;

/// What is asked of an agent.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum AgentRequest<'a> {
    /// Run this.
    Execute {
        /// Comes back with the result.
        id: &'a str,
        /// What the code is written in, for agents that know several.
        interpreter: &'a str,
        /// The code.
        code: &'a str,
        /// Descriptors of the agent's own whose pipes are to be opened for the code's output; not for other people's.
        #[serde(skip_serializing_if = "Option::is_none")]
        streams: Option<[i32; 2]>,
    },
    /// Let an interruption that was meant for the call before come to its end. Has no reply; for node alone.
    Settle,
    /// End.
    Shutdown,
}

/// What an agent says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename = "Reply", rename_all = "lowercase")]
pub enum AgentReply {
    /// It takes requests.
    Ready,
    /// How the code of that request went.
    Result {
        /// The request's.
        id: String,
        /// Output, from other people's agents.
        #[serde(default)]
        stdout: String,
        /// Errors, likewise.
        #[serde(default)]
        stderr: String,
        /// As of a process.
        exit_code: i32,
    },
    /// It is there.
    Pong,
    /// It could not do what was asked.
    Error {
        /// Why.
        #[serde(default)]
        message: String,
    },
}

/// What is wrong with a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Longer than may be.
    #[error("a frame of {length} bytes, and {most} are the most")]
    TooLong {
        /// What it says of its length.
        length: usize,
        /// What may be.
        most: usize,
    },
    /// Not a reply.
    #[error("a frame that is no reply: {0}")]
    Malformed(String),
}

/// A request as it goes over the channel.
///
/// # Errors
/// It is longer than a frame may be.
pub fn encode(request: &AgentRequest<'_>) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, request).map_err(|e| FrameError::Malformed(e.to_string()))?;
    let length = bytes.len() - 4;
    match u32::try_from(length) {
        Ok(short) if length <= LONGEST => bytes[..4].copy_from_slice(&short.to_be_bytes()),
        _ => return Err(FrameError::TooLong { length, most: LONGEST }),
    }
    Ok(bytes)
}

/// Puts replies together from the bytes of a stream.
#[derive(Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    most: usize,
}

impl Replies {
    /// Takes replies of up to `most` bytes.
    pub fn new(most: usize) -> Replies {
        Replies { bytes: Vec::new(), most: most.min(LONGEST) }
    }

    /// Bytes that came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next reply, where all of it has come.
    ///
    /// # Errors
    /// What came is no frame: nothing behind it can be told from anything else.
    pub fn next_reply(&mut self) -> Result<Option<AgentReply>, FrameError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > self.most {
            return Err(FrameError::TooLong { length, most: self.most });
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let reply = serde_json::from_slice(body).map_err(|e| FrameError::Malformed(e.to_string()))?;
        self.bytes.drain(..4 + length);
        Ok(Some(reply))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(body: &str) -> Vec<u8> {
        let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(body.as_bytes());
        bytes
    }

    #[test]
    fn a_request_is_its_length_and_then_json() {
        let request =
            AgentRequest::Execute { id: "a", interpreter: "python", code: "\u{e9}\n", streams: Some([16, 17]) };
        let bytes = encode(&request).unwrap();
        assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_be_bytes());
        let json: serde_json::Value = serde_json::from_slice(&bytes[4..]).unwrap();
        let told = serde_json::json!({
            "type": "execute", "id": "a", "interpreter": "python", "code": "\u{e9}\n", "streams": [16, 17]
        });
        assert_eq!(json, told);
        assert_eq!(encode(&AgentRequest::Shutdown).unwrap()[4..], *br#"{"type":"shutdown"}"#);
    }

    #[test]
    fn a_request_longer_than_a_frame_is_an_error() {
        let code = "x".repeat(LONGEST);
        let request = AgentRequest::Execute { id: "a", interpreter: "python", code: &code, streams: None };
        assert!(matches!(encode(&request), Err(FrameError::TooLong { most: LONGEST, .. })));
    }

    #[test]
    fn replies_come_in_any_pieces() {
        let all =
            [frame(r#"{"type":"ready"}"#), frame(r#"{"type":"result","id":"7","exit_code":3,"more":1}"#)].concat();
        for size in 1..=all.len() {
            let mut replies = Replies::new(LONGEST_OWN);
            let mut got = Vec::new();
            for piece in all.chunks(size) {
                replies.push(piece);
                while let Some(reply) = replies.next_reply().unwrap() {
                    got.push(reply);
                }
            }
            let result =
                AgentReply::Result { id: "7".into(), stdout: String::new(), stderr: String::new(), exit_code: 3 };
            assert_eq!(got, [AgentReply::Ready, result]);
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_its_bytes_come() {
        let mut replies = Replies::new(8);
        replies.push(&9u32.to_be_bytes());
        assert_eq!(replies.next_reply(), Err(FrameError::TooLong { length: 9, most: 8 }));
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for body in ["", "{}", "[]", r#"{"type":"execute"}"#, r#"{"type":"result","id":1,"exit_code":0}"#, "\u{0}"] {
            let mut replies = Replies::new(LONGEST);
            replies.push(&frame(body));
            assert!(matches!(replies.next_reply(), Err(FrameError::Malformed(_))), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_replies(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200
        ) {
            let all = |pieces: &[&[u8]]| {
                let mut replies = Replies::new(100);
                let mut got = Vec::new();
                for piece in pieces {
                    replies.push(piece);
                    loop {
                        match replies.next_reply() {
                            Ok(Some(reply)) => got.push(Ok(reply)),
                            Ok(None) => break,
                            Err(e) => { got.push(Err(e)); return got }
                        }
                    }
                }
                got
            };
            let (a, b) = bytes.split_at(cut.min(bytes.len()));
            prop_assert_eq!(all(&[&bytes]), all(&[a, b]));
        }
    }
}
