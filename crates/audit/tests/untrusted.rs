//! What stands in an audit trail, of any bytes. The fuzz target holds the same for longer.

#[path = "common/untrusted.rs"]
mod untrusted;

use proptest::prelude::*;

const RECORD: &str = include_str!("seeds/audit_record/start");
const RECORDS: &str = include_str!("seeds/audit_record/checkpoint");

/// Lines of a trail, some of them changed.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![RECORD, RECORDS]).prop_map(str::to_owned);
    let change = (any::<prop::sample::Index>(), prop_oneof!["[0-9]{1,20}", "\"[a-z_]{0,16}\"", "\\PC{0,6}"]);
    (known, prop::collection::vec(change, 0..4)).prop_map(|(text, changes)| {
        let mut text: Vec<char> = text.chars().collect();
        for (at, put) in changes {
            let at = at.index(text.len());
            text.splice(at..(at + put.len()).min(text.len()), put.chars());
        }
        text.into_iter().collect::<String>().into_bytes()
    })
}

proptest! {
    #[test]
    fn every_line_is_a_record_or_reported_as_broken(bytes in prop_oneof![any::<Vec<u8>>(), lines()]) {
        untrusted::trail(&bytes);
    }
}
