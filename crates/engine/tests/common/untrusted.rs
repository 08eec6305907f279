//! What must hold of any bytes that come as a configuration, from a session's agent, or out of an audit trail's file. Shared by the properties of this
//! crate and the fuzz targets; panics where something does not hold.

use std::path::Path;

use cofferdam_engine::audit::{Anchored, Broken, Filter, Owner, hex, read_record, sha256, show, verify};
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

/// What stands in a trail's file, line by line: each as it is, and with the hash that its bytes have. No line is a record
/// under two hashes, what is one is within its bounds, and reading the whole as a trail comes to an end.
pub fn trail(bytes: &[u8]) {
    let mut hashed = Vec::new();
    for line in bytes.split(|&byte| byte == b'\n') {
        assert!(read_record(line).is_err() || line.ends_with(b"\"}"), "a record without its end");
        let digits = hex(&sha256(line));
        let whole = [line, b",\"hash\":\"", digits.as_bytes(), b"\"}"].concat();
        match read_record(&whole) {
            Ok(record) => {
                assert!(record.seq > 0 && record.hash == digits && record.prev.len() == 64, "{record:?}");
                assert!(record.link().is_some());
                // Whatever it says of its owner is read, or is none.
                let owner = Owner::of(&record.data);
                assert!(owner.is_none() || record.data.contains_key("owner"));
            }
            Err(why) => assert_eq!(why, Broken::Shape, "its hash is right"),
        }
        let mut other = whole.clone();
        other[whole.len() - 4] ^= 1;
        assert!(read_record(&other).is_err(), "another hash");
        hashed.extend_from_slice(&whole);
        hashed.push(b'\n');
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("trail-000001.jsonl");
    for text in [bytes, &hashed] {
        std::fs::write(&file, text).expect("written");
        let mut seen = 0;
        let told = verify(directory.path(), None, &Anchored::new(), &mut |_| seen += 1);
        if let Ok(verified) = told {
            assert_eq!(verified.last.seq + 1 - verified.first, seen);
        }
        let lines = text.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let mut shown = 0;
        show(directory.path(), &Filter::default(), |_| {
            shown += 1;
            Ok(())
        })
        .expect("shown");
        assert!(seen <= shown && shown <= lines + text.len() as u64 / (64 * 1024) + 1, "{seen} {shown} {lines}");
    }
}
