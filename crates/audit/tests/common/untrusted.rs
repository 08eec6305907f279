//! What must hold of any bytes that stand in an audit trail's file. Shared by the properties of this crate and the fuzz
//! targets; panics where something does not hold.

use cofferdam_audit::{Anchored, Broken, RecordFilter, RecordingProcess, hex, read_record, sha256, show, verify};

/// What stands in a trail's file, line by line: each as it is, and with the hash that its bytes have. No line is a
/// record under two hashes, what is one is within its bounds, and reading the whole as a trail comes to an end.
pub(crate) fn trail(bytes: &[u8]) {
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
                let owner = RecordingProcess::of(&record.data);
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
        show(directory.path(), &RecordFilter::default(), |_| {
            shown += 1;
            Ok(())
        })
        .expect("shown");
        assert!(seen <= shown && shown <= lines + text.len() as u64 / (64 * 1024) + 1, "{seen} {shown} {lines}");
    }
}
