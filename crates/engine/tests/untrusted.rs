//! What agents write, of any bytes. The fuzz target holds the same for longer.

#[path = "common/untrusted.rs"]
mod untrusted;

use proptest::prelude::*;

/// Frames, some of them whole, some of them replies.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let bodies = prop::sample::select(vec![
        r#"{"type":"ready"}"#,
        r#"{"type":"pong"}"#,
        r#"{"type":"result","id":"7f","exit_code":-1,"stdout":"\\u0000"}"#,
        r#"{"type":"error","message":"x"}"#,
        r#"{"type":"result","id":"7f"}"#,
        "[",
        "",
    ]);
    prop::collection::vec((bodies, prop_oneof![4 => Just(0i64), 1 => -3i64..1000]), 0..6).prop_map(|all| {
        let frame = |(body, wrong): (&str, i64)| {
            let length = (body.len() as i64 + wrong).max(0) as u32;
            [&length.to_be_bytes()[..], body.as_bytes()].concat()
        };
        all.into_iter().flat_map(frame).collect()
    })
}

proptest! {
    #[test]
    fn what_an_agent_writes_is_replies_up_to_the_first_mistake(bytes in prop_oneof![any::<Vec<u8>>(), frames()]) {
        untrusted::frames(&bytes);
    }
}
