//! What holds for every policy, every text and every path.

mod common;
#[path = "common/texts.rs"]
mod texts;

use std::time::Instant;

use cofferdam_policy::paths::{PathSet, ancestors, fault, is_within, normalize};
use cofferdam_policy::*;
use proptest::prelude::*;

/// Paths from few letters, so that they meet.
fn path() -> impl Strategy<Value = String> {
    let component = prop::sample::select(vec!["a", "b", "ab", "a-b", "a.b", ".a", "é", "..", ".", ""]);
    (any::<bool>(), prop::collection::vec(component, 0..6))
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn normal_absolute() -> impl Strategy<Value = String> {
    path().prop_filter_map("normalizes", |path| normalize(&format!("/{path}")))
}

/// JSON-like noise: more of it gets past the tokenizer than of plain bytes.
fn noise() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"version\"",
        "1",
        "\"limits\"",
        "\"memory_mb\"",
        "\"filesystem\"",
        "\"mounts\"",
        "\"deny\"",
        "\"type\"",
        "\"bind\"",
        "\"command\"",
        "\"argv\"",
        "null",
        "true",
        "-1",
        "1e400",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "18446744073709551616",
        " ",
        "\n",
        "\"x",
    ]);
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #[test]
    fn a_policy_reads_back_as_itself(policy in common::policy()) {
        let text = policy.to_json_pretty();
        prop_assert_eq!(Policy::decode(text.as_bytes()).unwrap(), policy.clone());
        // With the rules: the same policy, or the same breaches.
        match policy.validate() {
            Ok(()) => prop_assert_eq!(Policy::from_json(text.as_bytes()).unwrap(), policy),
            Err(errors) => prop_assert_eq!(Policy::from_json(text.as_bytes()).unwrap_err(), errors),
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = Policy::from_json(&bytes) {
            prop_assert!(!errors.0.is_empty());
        }
    }

    #[test]
    fn errors_are_never_empty_and_never_drive_a_terminal(text in noise()) {
        if let Err(errors) = Policy::from_json(text.as_bytes()) {
            prop_assert!(!errors.0.is_empty());
            let shown = errors.to_string();
            prop_assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", shown);
            prop_assert_eq!(shown.lines().count(), errors.0.len());
        }
    }

    #[test]
    fn normalize_gives_what_has_no_fault_and_changes_nothing_twice(path in path()) {
        if let Some(normal) = normalize(&path) {
            prop_assert_eq!(fault(&normal), None);
            prop_assert_eq!(normalize(&normal), Some(normal.clone()));
            prop_assert_eq!(normal.starts_with('/'), path.starts_with('/'));
        }
        if fault(&path).is_none() {
            prop_assert_eq!(normalize(&path), Some(path));
        }
    }

    #[test]
    fn within_is_having_it_as_an_ancestor(path in normal_absolute(), base in normal_absolute()) {
        prop_assert_eq!(is_within(&path, &base), ancestors(&path).any(|above| above == base));
        prop_assert!(is_within(&path, &path) && is_within(&path, "/"));
        prop_assert_eq!(is_within(&path, &base) && is_within(&base, &path), path == base);
    }

    #[test]
    fn a_path_set_decides_as_a_linear_search(
        entries in prop::collection::vec(normal_absolute(), 0..12),
        path in normal_absolute(),
    ) {
        let set: PathSet = entries.iter().cloned().collect();
        prop_assert_eq!(set.contains(&path), entries.contains(&path));
        let innermost = entries.iter().filter(|entry| is_within(&path, entry)).max_by_key(|entry| entry.len());
        prop_assert_eq!(set.covering(&path), innermost.map(String::as_str));
        let mut under: Vec<&str> =
            entries.iter().map(String::as_str).filter(|entry| is_within(entry, &path) && *entry != path).collect();
        under.sort_unstable();
        under.dedup();
        prop_assert_eq!(set.under(&path).collect::<Vec<_>>(), under);
        let outermost = set.outermost();
        for entry in set.iter() {
            prop_assert!(outermost.covering(entry).is_some());
        }
        for entry in outermost.iter() {
            prop_assert_eq!(outermost.under(entry).count(), 0);
        }
    }

    #[test]
    fn an_entry_that_covers_another_means_all_that_it_means(
        over in common::entry(),
        under in common::entry(),
        name in prop::sample::select(vec!["a", "a.b", "x.a.b", "b", "y.x.a.b", "xn--4ca.b"]),
        address in prop::sample::select(vec!["10.0.0.1", "10.1.0.1", "10.2.0.0", "fd00::1", "fd00::2", "::"]),
        port in prop::sample::select(vec![22, 80, 100, 443, 8080]),
    ) {
        let (over, under): (AllowEntry, AllowEntry) = (over.parse().unwrap(), under.parse().unwrap());
        let address = address.parse().unwrap();
        if over.covers(&under) {
            prop_assert!(!under.matches_name(name, port) || over.matches_name(name, port));
            prop_assert!(!under.matches_address(address, port) || over.matches_address(address, port));
        }
        prop_assert!(over.covers(&over));
    }

    #[test]
    fn texts_of_the_network_are_written_in_one_form(
        text in any::<String>(),
        likely in "(http://)?[a-zA-Z@:/\\[\\]0-9%.*,;-]{0,16}",
        unicode in "[a-zA-Z\u{e4}\u{df}\u{130}\u{3002}\u{ff10}.-]{0,12}(:[0-9,-]{0,6})?",
    ) {
        texts::hold(&text);
        texts::hold(&likely);
        texts::hold(&unicode);
    }
}

#[test]
fn hostile_texts_give_few_errors_in_little_time() {
    let start = Instant::now();
    for text in [
        format!("{{\"version\":1,\"filesystem\":{{\"deny\":[{}0]}}}}", "0,".repeat(900_000)),
        format!("{{{}\"version\":1}}", "\"a\":0,".repeat(450_000)),
        "[".repeat(16 << 20),
        format!("{{\"{}\":1}}", "m".repeat(15 << 20)),
        format!("{{\"version\":1,\"filesystem\":{{\"mounts\":[{}0]}}}}", "{\"type\":\"tmpfs\"},".repeat(400_000)),
    ] {
        let errors = Policy::from_json(text.as_bytes()).unwrap_err();
        assert!(errors.0.len() <= MAX_ERRORS + 1, "{}", errors.0.len());
        assert!(errors.to_string().len() < 1_000_000);
    }
    println!("took {:?}", start.elapsed());
}

#[test]
fn dots_go_by_name_and_never_above_the_root() {
    use std::path::Path;
    for (path, clean) in [("/a/./b/../c", "/a/c"), ("/../../etc", "/etc"), ("a//b", "/a/b"), ("/", "/"), ("/a/..", "/")]
    {
        assert_eq!(cofferdam_policy::paths::lexical(Path::new(path)), Path::new(clean), "{path}");
    }
}

#[test]
fn the_seeds_of_the_network_hold_as_well() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/seeds/network_entry");
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().collect();
    assert!(files.len() >= 10, "{directory}: {}", files.len());
    for file in files {
        texts::hold(&std::fs::read_to_string(file.unwrap().path()).unwrap());
    }
}
