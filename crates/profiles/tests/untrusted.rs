//! Untrusted input: requests, answers, ids and assignments of any bytes. The fuzz targets test the same properties for longer.

#[path = "common/untrusted.rs"]
mod untrusted;

use proptest::prelude::*;

/// Bytes that begin like valid input.
fn near(forms: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    (prop::sample::select(forms), prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)).prop_map(
        |(form, changes)| {
            let mut bytes = form.as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes
        },
    )
}

const LINES: &[&str] = &[
    r#"{"begun":0}"#,
    r#"{"refused":"why"}"#,
    r#"{"done":{"job":0,"result":{"error":{"kind":"nickel","message":"m","hint":"h"}}}}"#,
    r#"{"done":{"job":1,"result":{"ok":{"outputs":[{"Ok":"a"},{"Err":"b"}],"warnings":[],"files":[{"path":"/a","identity":{"dev":1,"ino":2,"size":3,"mtime_ns":-4,"ctime_ns":5},"sha256":"00"}],"absent":["/b"]}}}}"#,
    r#"{"dirs":[{"name":"/a","at":"/b"}],"jobs":[{"file":"/a/x","imports":["/a"],"overrides":[{"path":["a"],"value":"1"}],"outputs":[{"format":"nsjail-text","encoding":"yaml"}]}],"address_space":1,"cpu_seconds":2}"#,
];

const IDS: &[&str] = &["reader", "a.b-c_d", "..", "a..b", "../x", "a/b", ".x", "a\0b", "a\nb", "\u{e9}", ""];

const SETS: &[&str] = &["a.b=1", "a.\"b.c\"=x", "a=\"%{b}\"", "a='x", "=1", "a", "\"", "a=m%\"x\"%", "a=\\", "a=1.5e9"];

proptest! {
    #[test]
    fn the_protocol_reads_anything(bytes in prop_oneof![any::<Vec<u8>>(), near(LINES)]) {
        untrusted::protocol(&bytes);
    }

    #[test]
    fn an_id_is_a_plain_name(bytes in prop_oneof![any::<Vec<u8>>(), "[A-Za-z0-9./_-]{0,140}".prop_map(String::into_bytes)]) {
        untrusted::id(&bytes);
    }

    #[test]
    fn an_assignment_stays_in_its_quotes(text in prop_oneof![any::<String>(), "[a-z.=\"'%{}\\\\ \n1]{0,40}"]) {
        untrusted::set(text.as_bytes());
    }
}

#[test]
fn what_was_thought_of_holds_as_well() {
    for text in LINES {
        untrusted::protocol(text.as_bytes());
        for end in 0..text.len() {
            untrusted::protocol(&text.as_bytes()[..end]);
        }
    }
    for text in IDS {
        untrusted::id(text.as_bytes());
    }
    for text in SETS {
        untrusted::set(text.as_bytes());
    }
}
