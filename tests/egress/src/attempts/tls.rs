//! TLS greetings that do not say plainly which host they are for. Only data.

use crate::attempt::{ALLOWED, Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Tls;

/// A rule and nothing more.
const PLAIN: &str = r#"{"version": 1, "command": {"argv": ["x"]}, "filesystem": {"root": "host"}, "network": {"mode": "allowlist", "allow": ["allowed.test"]}}"#;

/// The same, for greetings that hide their name.
const HIDDEN: &str = r#"{"version": 1, "command": {"argv": ["x"]}, "filesystem": {"root": "host"}, "network": {"mode": "allowlist", "allow": [{"to": "allowed.test", "encrypted_hello": true}]}}"#;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "another-name",
        class: CLASS,
        what: "The name of another host at the same address",
        call: &["{attempt}", "tls", "to=allowed.test", "sni=other.test", "path=/{canary}"],
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Both(
            &["--allow", "other.test"],
            &["{attempt}", "tls", "to=other.test", "sni=other.test", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "no-name",
        class: CLASS,
        what: "No name",
        call: &["{attempt}", "tls", "to=allowed.test", "host=allowed.test", "path=/{canary}"],
        evidence: Evidence::Event(&["server_name_missing"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "tls", "to=allowed.test", "sni=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "greeting-plain",
        class: CLASS,
        what: "Another name in a plain greeting",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "greeting-segments",
        class: CLASS,
        what: "Another name, in segments of 7 bytes",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=segments", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=segments", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "greeting-records",
        class: CLASS,
        what: "Another name, in records of 5 bytes",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=records", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=records", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "greeting-both",
        class: CLASS,
        what: "Another name, in records of 3 bytes and segments of 2",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=both", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=both", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "greeting-padded",
        class: CLASS,
        what: "Another name, in a greeting of 12 KiB",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=padded", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=padded", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "another-name-again",
        class: CLASS,
        what: "Another name in a second greeting, which the server asked for",
        call: &["{attempt}", "greet_again", "to=allowed.test", "name=allowed.test", "other=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "greet_again",
            "to=allowed.test",
            "name=allowed.test",
            "other=allowed.test",
        ]),
        ..BASE
    },
    Attempt {
        name: "another-name-again-records",
        class: CLASS,
        what: "The same behind a change_cipher_spec, in records of 3 bytes",
        call: &[
            "{attempt}",
            "greet_again",
            "to=allowed.test",
            "name=allowed.test",
            "other=other.test",
            "records=3",
            "before=\\x14\\x03\\x03\\0\\x01\\x01",
        ],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "greet_again",
            "to=allowed.test",
            "name=allowed.test",
            "other=allowed.test",
            "records=3",
            "before=\\x14\\x03\\x03\\0\\x01\\x01",
        ]),
        ..BASE
    },
    Attempt {
        name: "no-name-again",
        class: CLASS,
        what: "No name in a second greeting",
        call: &["{attempt}", "greet_again", "to=allowed.test", "name=allowed.test", "other="],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_missing"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "greet_again",
            "to=allowed.test",
            "name=allowed.test",
            "other=allowed.test",
        ]),
        ..BASE
    },
    Attempt {
        name: "encrypted-hello",
        class: CLASS,
        what: "An encrypted greeting (or GREASE, which looks the same)",
        options: &[],
        policy: PLAIN,
        call: &["{attempt}", "greet", "to=allowed.test", "shape=grease", "name=allowed.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["encrypted_hello"]),
        may: ALLOWED,
        control: Control::Policy(HIDDEN),
        ..BASE
    },
    Attempt {
        name: "two-names",
        class: CLASS,
        what: "Two names in one extension",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=two names", "name=allowed.test", "other=evil.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "two-extensions",
        class: CLASS,
        what: "Two extensions with a name each",
        call: &[
            "{attempt}",
            "greet",
            "to=allowed.test",
            "shape=two extensions",
            "name=allowed.test",
            "other=evil.test",
        ],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "other-kind",
        class: CLASS,
        what: "A name of another kind than host name",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=other kind", "name=allowed.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "nul",
        class: CLASS,
        what: "A name with a NUL in it",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=nul", "name=allowed.test", "other=evil.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "alert-first",
        class: CLASS,
        what: "An alert before the greeting",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=alert first", "name=allowed.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "version-2",
        class: CLASS,
        what: "A greeting of SSL 2 before",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=version 2", "name=allowed.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "empty-record-first",
        class: CLASS,
        what: "An empty record before the greeting",
        call: &["{attempt}", "greet", "to=allowed.test", "shape=empty record first", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_hello", "server_name_mismatch", "server_name_missing", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "name-at-an-address",
        class: CLASS,
        what: "A denied name at an allowed address",
        options: &["--allow", "93.184.216.34", "--deny-host", "other.test"],
        call: &["{attempt}", "tls", "to=93.184.216.34", "sni=other.test", "path=/{canary}"],
        evidence: Evidence::Event(&["denied"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "tls", "to=93.184.216.34", "sni=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "tls-on-port-80",
        class: CLASS,
        what: "TLS with another name on port 80",
        call: &["{attempt}", "greet", "to=allowed.test", "port=80", "shape=plain", "name=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "greet", "to=allowed.test", "shape=plain", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "http-on-port-443",
        class: CLASS,
        what: "HTTP for another host on port 443",
        call: &["{attempt}", "http", "to=allowed.test", "port=443", "host=other.test", "path=/{canary}"],
        evidence: Evidence::Event(&["host_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "tls", "to=allowed.test", "sni=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "another-name-in-connect",
        class: CLASS,
        what: "Another name in a CONNECT tunnel",
        call: &[
            "{attempt}",
            "through_connect",
            "target=allowed.test:443",
            "sni=other.test",
            "host=other.test",
            "path=/{canary}",
        ],
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "through_connect",
            "target=allowed.test:443",
            "sni=allowed.test",
            "path=/{canary}",
        ]),
        ..BASE
    },
    Attempt {
        name: "another-name-in-socks",
        class: CLASS,
        what: "Another name in a SOCKS tunnel",
        call: &[
            "{attempt}",
            "socks5",
            "kind=name",
            "to=allowed.test",
            "port=443",
            "sni=other.test",
            "host=other.test",
            "path=/{canary}",
        ],
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "socks5",
            "kind=name",
            "to=allowed.test",
            "port=443",
            "sni=allowed.test",
            "path=/{canary}",
        ]),
        ..BASE
    },
    Attempt {
        name: "name-at-an-address-again",
        class: CLASS,
        what: "A denied name at an allowed address, in a second greeting",
        options: &["--allow", "93.184.216.34", "--deny-host", "other.test"],
        call: &["{attempt}", "greet_again", "to=93.184.216.34", "name=allowed.test", "other=other.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["denied"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "greet_again",
            "to=93.184.216.34",
            "name=allowed.test",
            "other=allowed.test",
        ]),
        ..BASE
    },
];
