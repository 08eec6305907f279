//! What must hold of any bytes that come as a configuration, or from a session's agent. Shared by the properties of this
//! crate and the fuzz targets; panics where something does not hold.

use std::path::Path;

use cofferdam_engine::compat::Form;
use cofferdam_engine::compat::config::decode;
use cofferdam_engine::session::frame::{FrameError, Replies};
use cofferdam_policy::{NetworkMode, Root};

/// A name beside which no policy lies.
const NAME: &str = "/nowhere/nsjail.json";

/// Configurations of any form: a refusal that names the file, or a policy that is one. An older one never gets more than
/// its writers can have meant.
pub fn configuration(bytes: &[u8]) {
    match decode(bytes, Path::new(NAME)) {
        Err(error) => assert!(error.starts_with(NAME), "{error}"),
        Ok(loaded) => {
            let mut complete = loaded.policy.clone();
            if complete.command.argv.is_empty() {
                complete.command.argv.push("true".into());
            }
            assert_eq!(complete.validate(), Ok(()));
            if loaded.form == Form::Legacy {
                assert_ne!(loaded.policy.network.mode, NetworkMode::Host, "the network is private");
                assert_ne!(loaded.policy.filesystem.root, Root::Host, "the root is at least minimal");
            }
        }
    }
}

/// What an agent writes: the same replies in whatever pieces it comes, each no longer than the bound, and after the first
/// mistake nothing more.
pub fn frames(bytes: &[u8]) {
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
