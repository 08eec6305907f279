//! The WebSocket handshake (RFC 6455, 4): whether a request asks for one, and whether a response accepts it. Pure.
//!
//! After it nothing is inspected. So status 101 alone is not enough: some servers answer with whatever status a request
//! asks for, and then read the next request.

use http::header::{CONNECTION, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};

use crate::connect::base64::base64;
use crate::http::request_target::has_token;

/// Appended to the key (RFC 6455, 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Accept` that a response must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExpectedAccept(String);

/// Whether the request asks for a WebSocket. Other upgrades are not forwarded: after them requests could not be
/// inspected (`h2c`), or the name of a TLS connection would not be checked.
pub(crate) fn wanted(headers: &HeaderMap) -> Option<ExpectedAccept> {
    let one = |name| {
        let mut values = headers.get_all(name).iter();
        values.next().filter(|_| values.next().is_none()).map(|value| value.as_bytes())
    };
    let websocket = one(UPGRADE)?.eq_ignore_ascii_case(b"websocket") && has_token(headers, &CONNECTION, "upgrade");
    let key = one(SEC_WEBSOCKET_KEY).filter(|_| websocket)?;
    Some(ExpectedAccept(base64(&sha1(&[key, GUID].concat()))))
}

impl ExpectedAccept {
    /// Whether the response's headers accept the handshake.
    pub(crate) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(SEC_WEBSOCKET_ACCEPT).iter();
        values.next().is_some_and(|value| value.as_bytes() == self.0.as_bytes()) && values.next().is_none()
    }
}

/// SHA-1 (FIPS 180-4), only for this handshake.
fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut message = bytes.to_vec();
    message.push(0x80);
    message.resize((message.len() + 8).next_multiple_of(64) - 8, 0);
    message.extend((bytes.len() as u64 * 8).to_be_bytes());
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in message.chunks_exact(64) {
        let mut words = [0u32; 80];
        for (word, four) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([four[0], four[1], four[2], four[3]]);
        }
        for t in 16..80 {
            words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (t, word) in words.iter().enumerate() {
            let (mixed, constant) = match t {
                0..20 => (b & c | !b & d, 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next = [a.rotate_left(5), mixed, e, constant, *word].into_iter().fold(0, u32::wrapping_add);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 20];
    for (four, word) in digest.chunks_exact_mut(4).zip(state) {
        four.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn sha1_matches_the_vectors_of_fips_180() {
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(&sha1(two_blocks)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&sha1(&vec![b'a'; 1_000_000])), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }

    #[test]
    fn a_response_accepts_only_the_handshake_of_its_request() {
        let mut asked = HeaderMap::new();
        asked.insert(UPGRADE, HeaderValue::from_static("WebSocket"));
        asked.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
        assert_eq!(wanted(&asked), None, "it has no key");
        asked.insert(SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        let expected = wanted(&asked).unwrap();
        let mut answer = HeaderMap::new();
        assert!(!expected.is_in(&answer));
        for (value, is) in [("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", true), ("s3pPLMBiTxaQ9kYGzzhZRbK+xOo", false)] {
            answer.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::from_static(value));
            assert_eq!(expected.is_in(&answer), is, "{value}");
        }
        asked.append(SEC_WEBSOCKET_KEY, HeaderValue::from_static("another"));
        assert_eq!(wanted(&asked), None);
    }
}
