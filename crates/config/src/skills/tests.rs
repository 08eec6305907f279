//! Manifests and signatures: each limit from both sides, an independent signer, and detection of every change.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::manifest::{Manifest, Stage, TX_ACTIONS, Wish, path_fault};
use super::signature::{PublisherKey, SignatureError, VersionHash, recover, verify};

/// Made by eth-keys and rfc8785, by `fixtures/sign.py`.
const INDEPENDENT: &[&str] = &[include_str!("fixtures/eth-keys-a.json"), include_str!("fixtures/eth-keys-b.json")];

fn key(number: u8) -> PublisherKey {
    PublisherKey::from_bytes(&[number; 32]).unwrap()
}

fn plain() -> Value {
    json!({
        "version": "1",
        "name": "weather",
        "publisher": { "name": "Example", "address": key(7).address(), "contact": "dev@example.com" },
        "permissions": { "txActions": [], "chains": [1], "networkAccess": false, "filesystemAccess": false },
        "sandbox": { "memoryMb": 64, "timeoutMs": 5000, "allowSpawn": false },
        "files": [{ "path": "main.py", "sha256": "00".repeat(32) }],
        "signature": "0x00",
    })
}

fn decode(value: &Value) -> Result<Manifest, String> {
    Manifest::decode(value.to_string().as_bytes(), Stage::Signed).map_err(|errors| errors.to_string())
}

/// The document with another value at a pointer; `Null` takes the key away.
fn with(pointer: &str, value: Value) -> Value {
    let mut document = plain();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    match (parent, value) {
        (Value::Object(members), Value::Null) => {
            members.remove(key).unwrap();
        }
        (Value::Object(members), value) => {
            members.insert(key.to_owned(), value);
        }
        (Value::Array(items), value) => items[key.parse::<usize>().unwrap()] = value,
        _ => unreachable!(),
    }
    document
}

fn signed() -> Manifest {
    let mut manifest = decode(&plain()).unwrap();
    key(7).sign(&mut manifest).unwrap();
    manifest
}

fn signature_bytes(manifest: &Manifest) -> Vec<u8> {
    let text = manifest.signature.as_deref().unwrap().strip_prefix("0x").unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn independent_signature_verifies_for_unchanged_fields_only() {
    for text in INDEPENDENT {
        let manifest = Manifest::decode(text.as_bytes(), Stage::Signed).unwrap();
        verify(&manifest).unwrap();
        let mut changed = manifest.clone();
        changed.sandbox.memory_mb += 1;
        assert!(matches!(verify(&changed), Err(SignatureError::Another { .. } | SignatureError::NoKey)));
        let mut capitals = manifest.clone();
        capitals.publisher.address = capitals.publisher.address.to_lowercase();
        // The address is part of what is signed, whatever its case.
        assert!(verify(&capitals).is_err());
    }
}

/// The same live, where a Python with the packages is named.
#[test]
fn an_independent_signer_and_ours_agree() {
    let Some(python) = std::env::var_os("COFFERDAM_ETH_KEYS") else {
        eprintln!("skipped: COFFERDAM_ETH_KEYS names no Python with eth-keys; the fixtures are checked all the same");
        return;
    };
    use std::io::Write as _;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/skills/fixtures/sign.py");
    let mut child = std::process::Command::new(python)
        .args([script, &"07".repeat(32)])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(plain().to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let theirs = Manifest::decode(&output.stdout, Stage::Signed).unwrap();
    verify(&theirs).unwrap();
    // Both choose the nonce by RFC 6979: the signatures are the same but for the spelling of v.
    let mut ours = theirs.clone();
    key(7).sign(&mut ours).unwrap();
    assert_eq!(signature_bytes(&ours)[..64], signature_bytes(&theirs)[..64]);
}

#[test]
fn a_known_key_has_its_known_address() {
    // The key 1, whose address is in every book.
    let mut one = [0; 32];
    one[31] = 1;
    assert_eq!(PublisherKey::from_bytes(&one).unwrap().address(), "0x7e5f4552091a69125d5dfcb7b8c2659029395bdf");
    assert!(PublisherKey::from_bytes(&[0; 32]).is_none() && PublisherKey::from_bytes(&[0xff; 32]).is_none());
}

#[test]
fn every_field_has_its_limits() {
    assert!(decode(&plain()).is_ok());
    for (pointer, good) in [
        ("/name", json!("a")),
        ("/name", json!("0-".repeat(32))),
        ("/name", json!("a-")),
        ("/sandbox/memoryMb", json!(1)),
        ("/sandbox/memoryMb", json!(512)),
        ("/sandbox/timeoutMs", json!(1000)),
        ("/sandbox/timeoutMs", json!(60000)),
        ("/permissions/chains", json!([])),
        ("/permissions/chains", json!([1, 9_007_199_254_740_991u64])),
        ("/permissions/txActions", json!(TX_ACTIONS)),
        ("/permissions/networkAccess", json!(["api.example.com", "*.example.org:8443"])),
        ("/permissions/networkAccess", json!(true)),
        ("/permissions/filesystemAccess", json!(["/tmp"])),
        ("/files/0/path", json!("a/b/c.d")),
        ("/files/0/path", json!("...")),
        ("/files/0/path", json!("lib/manifest.json")),
    ] {
        assert!(
            decode(&with(pointer, good.clone())).is_ok(),
            "{pointer} {good}: {:?}",
            decode(&with(pointer, good.clone()))
        );
    }
    for (pointer, path, bad) in [
        ("/version", "$.version", json!(1)),
        ("/version", "$.version", json!("2")),
        ("/name", "$.name", json!("")),
        ("/name", "$.name", json!("a".repeat(65))),
        ("/name", "$.name", json!("Weather")),
        ("/name", "$.name", json!("a/b")),
        ("/name", "$.name", json!("-a")),
        ("/name", "$.name", json!("--json")),
        ("/name", "$.name", json!("a\n")),
        ("/publisher/name", "$.publisher.name", json!("")),
        ("/publisher/name", "$.publisher.name", json!("\u{1b}[2J")),
        ("/publisher/address", "$.publisher.address", json!("0x12")),
        ("/publisher/address", "$.publisher.address", json!(format!("0x{}", "g".repeat(40)))),
        ("/publisher/address", "$.publisher.address", json!(format!("0x{}", "0".repeat(41)))),
        ("/publisher/contact", "$.publisher.contact", json!("nobody")),
        ("/publisher/contact", "$.publisher.contact", json!("a@b")),
        ("/publisher/contact", "$.publisher.contact", json!("a b@example.com")),
        ("/permissions/txActions", "$.permissions.txActions[0]", json!(["mint"])),
        ("/permissions/txActions", "$.permissions.txActions", json!("transfer")),
        ("/permissions/chains", "$.permissions.chains[0]", json!([0])),
        ("/permissions/chains", "$.permissions.chains[0]", json!([1.5])),
        ("/permissions/chains", "$.permissions.chains[0]", json!([9_007_199_254_740_992u64])),
        ("/permissions/chains", "$.permissions.chains[0]", json!(["1"])),
        ("/permissions/networkAccess", "$.permissions.networkAccess", json!("yes")),
        ("/permissions/networkAccess", "$.permissions.networkAccess[0]", json!(["*"])),
        ("/permissions/networkAccess", "$.permissions.networkAccess[0]", json!(["http://a.example/"])),
        ("/permissions/networkAccess", "$.permissions.networkAccess[0]", json!([1])),
        ("/permissions/networkAccess", "$.permissions.networkAccess[0]", json!(["@pypi"])),
        ("/permissions/filesystemAccess", "$.permissions.filesystemAccess[0]", json!([""])),
        ("/sandbox/memoryMb", "$.sandbox.memoryMb", json!(0)),
        ("/sandbox/memoryMb", "$.sandbox.memoryMb", json!(513)),
        ("/sandbox/memoryMb", "$.sandbox.memoryMb", json!(64.5)),
        ("/sandbox/timeoutMs", "$.sandbox.timeoutMs", json!(999)),
        ("/sandbox/timeoutMs", "$.sandbox.timeoutMs", json!(60001)),
        ("/sandbox/timeoutMs", "$.sandbox.timeoutMs", json!(-1)),
        ("/sandbox/allowSpawn", "$.sandbox.allowSpawn", json!("no")),
        ("/sandbox/allowSpawn", "$.sandbox.allowSpawn", json!(0)),
        ("/files", "$.files", json!([])),
        ("/files", "$.files", json!({})),
        ("/files/0/sha256", "$.files[0].sha256", json!("0".repeat(63))),
        ("/files/0/sha256", "$.files[0].sha256", json!("A".repeat(64))),
        ("/files/0/path", "$.files[0].path", json!(["main.py"])),
        ("/signature", "$.signature", json!("0x")),
        ("/signature", "$.signature", json!("00")),
        ("/signature", "$.signature", json!("0xzz")),
    ] {
        let errors = decode(&with(pointer, bad.clone())).expect_err(&format!("{pointer} {bad}"));
        assert!(errors.lines().all(|line| line.starts_with(path)), "{pointer} {bad}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn objects_are_closed_and_whole() {
    for object in ["", "/publisher", "/permissions", "/sandbox", "/files/0"] {
        let errors = decode(&with(&format!("{object}/extra"), json!(1))).unwrap_err();
        assert!(errors.contains("\"extra\"") && errors.contains("no such key"), "{errors}");
        let keys: Vec<String> =
            plain().pointer(object).unwrap().as_object().unwrap().keys().map(ToOwned::to_owned).collect();
        for key in keys {
            let errors = decode(&with(&format!("{object}/{key}"), Value::Null)).unwrap_err();
            assert!(errors.contains(&format!(".{key}: missing")), "{errors}");
        }
    }
    let unsigned = with("/signature", Value::Null).to_string();
    assert!(Manifest::decode(unsigned.as_bytes(), Stage::Draft).is_ok());
    assert_eq!(verify(&Manifest::decode(unsigned.as_bytes(), Stage::Draft).unwrap()), Err(SignatureError::Missing));
}

#[test]
fn every_mistake_is_reported_at_once() {
    let errors = decode(&json!({ "version": "2", "name": "", "files": [{ "path": "../x", "sha256": 1 }], "more": 1 }));
    let errors = errors.unwrap_err();
    for part in [
        "$.version",
        "$.name",
        "$.publisher",
        "$.permissions",
        "$.sandbox",
        "$.files[0].path",
        "$.files[0].sha256",
        "$.signature",
        "more",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn duplicate_key_is_an_error_at_any_depth_and_spelling() {
    let text = plain().to_string();
    for (from, to) in [
        ("\"version\":\"1\"", "\"version\":\"1\",\"version\":\"1\""),
        ("\"memoryMb\":64", "\"memoryMb\":64,\"memoryM\\u0062\":512"),
        ("\"path\":\"main.py\"", "\"path\":\"main.py\",\"path\":\"other.py\""),
    ] {
        let twice = text.replace(from, to);
        assert_ne!(twice, text);
        let errors = Manifest::decode(twice.as_bytes(), Stage::Signed).unwrap_err().to_string();
        assert!(errors.contains("stands there twice"), "{errors}");
    }
}

#[test]
fn what_is_no_json_is_one_error() {
    for text in [&b""[..], b"{", b"[]", b"null", b"{} {}", b"\xff", b"{\"version\": 1e999}"] {
        assert!(Manifest::decode(text, Stage::Signed).is_err());
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert_eq!(Manifest::decode(&deep, Stage::Signed).unwrap_err().0.len(), 1);
    let long = vec![b' '; super::manifest::MAX_MANIFEST_BYTES + 1];
    assert!(Manifest::decode(&long, Stage::Signed).unwrap_err().to_string().contains("4194305 bytes"));
}

#[test]
fn a_path_that_leaves_or_is_there_before_is_refused() {
    for path in [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a/..",
        "./a",
        ".",
        "a/.",
        "a//b",
        "a/",
        "//a",
        "a\\..\\b",
        "..\\x",
        "a\0b",
        "a\nb",
        "manifest.json",
    ] {
        assert!(path_fault(path).is_some(), "{path:?}");
        assert!(decode(&with("/files/0/path", json!(path))).is_err(), "{path:?}");
    }
    let file = |path: &str| json!({ "path": path, "sha256": "00".repeat(32) });
    for files in [json!([file("a"), file("a")]), json!([file("a"), file("a/b")]), json!([file("a/b/c"), file("a")])] {
        assert!(decode(&with("/files", files.clone())).is_err(), "{files}");
    }
    assert!(decode(&with("/files", json!([file("a/b"), file("a/c"), file("ab")]))).is_ok());
}

#[test]
fn wrong_key_and_malleable_signature_are_distinct_errors() {
    let manifest = signed();
    verify(&manifest).unwrap();
    let mut foreign = manifest.clone();
    assert!(matches!(key(8).sign(&mut foreign), Err(SignatureError::Another { .. })));
    // Another key's signature over the same manifest.
    foreign.publisher.address = key(8).address();
    key(8).sign(&mut foreign).unwrap();
    foreign.publisher.address = key(7).address();
    assert!(verify(&foreign).is_err());
    // The other signature that the same curve point gives: n - s, and the other v.
    let hash = VersionHash::of(&manifest).0;
    let mut bytes = signature_bytes(&manifest);
    let signature = k256::ecdsa::Signature::from_slice(&bytes[..64]).unwrap();
    let (r, s) = signature.split_scalars();
    let high = k256::ecdsa::Signature::from_scalars(r, -s).unwrap();
    bytes[..64].copy_from_slice(&high.to_bytes());
    for v in [0, 1, 27, 28] {
        bytes[64] = v;
        assert_eq!(recover(&hash, &bytes), Err(SignatureError::Malleable));
    }
    for v in [2, 3, 26, 29, 255] {
        bytes[64] = v;
        assert_eq!(recover(&hash, &bytes), Err(SignatureError::Recovery(v)));
    }
    for scalar in [[0u8; 32], [0xff; 32]] {
        let mut bytes = signature_bytes(&manifest);
        bytes[..32].copy_from_slice(&scalar);
        assert_eq!(recover(&hash, &bytes), Err(SignatureError::NoKey));
        let mut bytes = signature_bytes(&manifest);
        bytes[32..64].copy_from_slice(&scalar);
        assert_eq!(recover(&hash, &bytes), Err(SignatureError::NoKey));
    }
}

#[test]
fn of_all_truncations_and_bit_flips_none_verifies() {
    let manifest = signed();
    let bytes = signature_bytes(&manifest);
    let reported = |bytes: &[u8]| {
        let text = format!("0x{}", cofferdam_engine::audit::hex(bytes));
        verify(&Manifest { signature: Some(text), ..manifest.clone() })
    };
    reported(&bytes).unwrap();
    for end in 0..bytes.len() {
        assert!(reported(&bytes[..end]).is_err(), "{end}");
    }
    assert!(reported(&[&bytes[..], &[0]].concat()).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(reported(&flipped).is_err(), "{bit}");
    }
    // v may be written in two ways, and in no other.
    let accepted: Vec<u8> = (0..=255).filter(|v| reported(&[&bytes[..64], &[*v]].concat()).is_ok()).collect();
    assert_eq!(accepted, [bytes[64] - 27, bytes[64]]);
}

#[test]
fn a_key_file_is_its_owners() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("publisher.key");
    let made = PublisherKey::make(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(PublisherKey::read(&path).unwrap().address(), made.address());
    assert!(PublisherKey::make(&path).is_err());
    assert!(!format!("{made:?}").contains(std::fs::read_to_string(&path).unwrap().trim()));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(PublisherKey::read(&path).unwrap_err().to_string().contains("hint: chmod 600"));
    std::fs::write(&path, "00").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(PublisherKey::read(&path).unwrap_err().to_string().contains("holds no key"));
}

fn any_wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        any::<bool>().prop_map(Wish::Flag),
        prop::collection::vec("[a-z]{1,8}\\.example", 0..4).prop_map(Wish::List),
    ]
}

prop_compose! {
    fn any_manifest()(
        name in "[a-z0-9][a-z0-9-]{0,63}",
        who in "[ -~äß🌊\"\\\\]{1,40}",
        actions in prop::sample::subsequence(TX_ACTIONS, 0..=TX_ACTIONS.len()),
        chains in prop::collection::vec(1u64..(1 << 53), 0..4),
        network in any_wish(),
        files in any_wish(),
        (memory_mb, timeout_ms, allow_spawn) in (1u64..=512, 1000u64..=60_000, any::<bool>()),
        paths in prop::collection::btree_set("[a-zé 🌊]{1,9}\\.py", 1..5),
    ) -> Manifest {
        let mut document = plain();
        document["name"] = json!(name);
        document["publisher"]["name"] = json!(who);
        document["permissions"] = json!({
            "txActions": actions, "chains": chains, "networkAccess": network, "filesystemAccess": files,
        });
        document["sandbox"] = json!({ "memoryMb": memory_mb, "timeoutMs": timeout_ms, "allowSpawn": allow_spawn });
        document["files"] = paths.iter().map(|path| json!({ "path": path, "sha256": "0a".repeat(32) })).collect();
        decode(&document).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn reading_what_was_written_gives_the_same(manifest in any_manifest()) {
        let read = Manifest::decode(manifest.encode().as_bytes(), Stage::Signed).unwrap();
        prop_assert_eq!(&read, &manifest);
        prop_assert_eq!(VersionHash::of(&read), VersionHash::of(&manifest));
        // The canonical form is a fixed point, and says the same.
        let canonical = manifest.canonical();
        let again = Manifest::decode(&canonical, Stage::Draft).unwrap();
        prop_assert_eq!(again.canonical(), canonical);
    }

    #[test]
    fn no_other_bytes_verify(manifest in any_manifest(), other in prop::collection::vec(any::<u8>(), 0..70)) {
        let mut manifest = manifest;
        key(7).sign(&mut manifest).unwrap();
        let bytes = signature_bytes(&manifest);
        prop_assume!(bytes[..64] != other[..other.len().min(64)]);
        manifest.signature = Some(format!("0x00{}", cofferdam_engine::audit::hex(&other)));
        prop_assert!(verify(&manifest).is_err());
        manifest.signature = Some(format!("0x{}", cofferdam_engine::audit::hex(&other)));
        prop_assert!(verify(&manifest).is_err());
    }

    #[test]
    fn two_manifests_have_two_hashes(one in any_manifest(), two in any_manifest()) {
        prop_assert_eq!(one.canonical() == two.canonical(), Manifest { signature: None, ..one } == Manifest { signature: None, ..two });
    }

    #[test]
    fn a_path_that_is_accepted_stays_inside(parts in prop::collection::vec("(\\.{1,3}|[a-c.\\\\/\0-\u{1f}]{0,3})", 1..6)) {
        let path = parts.join("/");
        if path_fault(&path).is_none() {
            let inside = std::path::Path::new("/top").join(&path);
            let normal = std::path::Path::new(&path).components().all(|c| matches!(c, std::path::Component::Normal(_)));
            prop_assert!(normal && inside.starts_with("/top"), "{path:?}");
            prop_assert!(!path.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Manifest::decode(&text, Stage::Signed).is_err());
    }
}
