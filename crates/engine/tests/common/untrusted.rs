//! What must hold of any bytes that come from a session's agent. Shared by the properties of this crate and the fuzz
//! targets; panics where something does not hold.

use cofferdam_engine::session::frame::{FrameError, Replies};

/// What an agent writes: the same replies in whatever pieces it comes, each no longer than the bound, and after the first
/// mistake nothing more.
pub(crate) fn frames(bytes: &[u8]) {
    const MOST: usize = 512;
    let told = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut replies = Replies::new(MOST);
        let mut all = Vec::new();
        for piece in pieces {
            replies.push(piece);
            loop {
                match replies.next_reply() {
                    Ok(Some(reply)) => all.push(Ok(reply)),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(!matches!(error, FrameError::TooLong { length, .. } if length <= MOST), "{error}");
                        all.push(Err(error));
                        return all;
                    }
                }
            }
        }
        all
    };
    let whole = told(&mut std::iter::once(bytes));
    assert_eq!(whole, told(&mut bytes.chunks(1)));
    assert_eq!(whole, told(&mut bytes.chunks(7)));
    assert!(whole.len() <= bytes.len() / 5 + 1, "a reply is four bytes of length and more");
}
