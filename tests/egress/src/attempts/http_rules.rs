//! Requests that a rule with methods or paths does not have. Only data.

use crate::attempt::{ALLOWED, Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Http;

/// A rule with methods.
const METHODS: &str = r#"{"version": 1, "command": {"argv": ["x"]}, "filesystem": {"root": "host"}, "network": {"mode": "allowlist", "allow": [{"to": "allowed.test:80", "methods": ["GET"]}]}}"#;

/// A rule with paths.
const PATHS: &str = r#"{"version": 1, "command": {"argv": ["x"]}, "filesystem": {"root": "host"}, "network": {"mode": "allowlist", "allow": [{"to": "allowed.test:80", "paths": ["/public/*"]}]}}"#;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "another-method",
        class: CLASS,
        what: "A method that the rule has not",
        options: &[],
        policy: METHODS,
        call: &["{attempt}", "http", "to=allowed.test", "method=POST", "path=/{canary}"],
        evidence: Evidence::Event(&["method_not_allowed"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "method-in-lower-case",
        class: CLASS,
        what: "The same in lower case",
        options: &[],
        policy: METHODS,
        call: &["{attempt}", "http", "to=allowed.test", "method=post", "path=/{canary}"],
        evidence: Evidence::Event(&["method_not_allowed", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "tls-under-methods",
        class: CLASS,
        what: "TLS on port 80, where the rule looks into requests",
        options: &[],
        policy: METHODS,
        call: &["{attempt}", "greet", "to=allowed.test", "port=80", "shape=plain", "name=allowed.test"],
        wants: "server hello",
        evidence: Evidence::Event(&["bad_request", "not_allowed", "method_not_allowed"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        control_wants: "delivered",
    },
    Attempt {
        name: "opaque-under-methods",
        class: CLASS,
        what: "No HTTP at all, where the rule looks into requests",
        options: &[],
        policy: METHODS,
        call: &["{attempt}", "raw", "to=allowed.test", "port=80", "send=\\x01{canary}"],
        evidence: Evidence::Event(&["bad_request", "not_allowed", "method_not_allowed"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "another-path",
        class: CLASS,
        what: "A path that the rule has not",
        options: &[],
        policy: PATHS,
        call: &["{attempt}", "http", "to=allowed.test", "path=/private/{canary}"],
        evidence: Evidence::Event(&["path_not_allowed", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/public/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "path-with-dots",
        class: CLASS,
        what: "Dots out of the path",
        options: &[],
        policy: PATHS,
        call: &["{attempt}", "http", "to=allowed.test", "path=/public/../private/{canary}"],
        evidence: Evidence::Event(&["path_not_allowed", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/public/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "path-with-encoded-dots",
        class: CLASS,
        what: "Encoded dots out of the path",
        options: &[],
        policy: PATHS,
        call: &["{attempt}", "http", "to=allowed.test", "path=/public/%2e%2e/private/{canary}"],
        evidence: Evidence::Event(&["path_not_allowed", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/public/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "path-with-encoded-slash",
        class: CLASS,
        what: "An encoded slash out of the path",
        options: &[],
        policy: PATHS,
        call: &["{attempt}", "http", "to=allowed.test", "path=/public/..%2fprivate/{canary}"],
        evidence: Evidence::Event(&["path_not_allowed", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/public/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "path-with-backslash",
        class: CLASS,
        what: "A backslash out of the path",
        options: &[],
        policy: PATHS,
        call: &["{attempt}", "http", "to=allowed.test", "path=/public/..\\\\private/{canary}"],
        evidence: Evidence::Event(&["path_not_allowed", "bad_request"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/public/{canary}"]),
        ..BASE
    },
];
