//! Hosts, ports and addresses that no rule names. Only data.

use crate::attempt::{ALLOWED, Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Hosts;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "another-host",
        class: CLASS,
        what: "A host that no rule names",
        call: &["{attempt}", "http", "to=evil.test", "path=/{canary}"],
        wants: "delivered evil.test",
        control: Control::Options(&["--allow", "evil.test"]),
        ..BASE
    },
    Attempt {
        name: "address-of-another-host",
        class: CLASS,
        what: "The address of such a host",
        call: &["{attempt}", "http", "to=93.184.216.66", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.66"]),
        ..BASE
    },
    Attempt {
        name: "ipv6-of-another-host",
        class: CLASS,
        what: "Its IPv6 address",
        call: &["{attempt}", "http", "to=2606:2800::66", "path=/{canary}"],
        control: Control::Options(&["--allow", "[2606:2800::66]:80"]),
        ..BASE
    },
    Attempt {
        name: "address-of-the-allowed-host",
        class: CLASS,
        what: "The address of the allowed host, without asking for its name",
        call: &["{attempt}", "http", "to=93.184.216.34", "host=allowed.test", "path=/{canary}"],
        control: Control::Both(
            &["--allow", "93.184.216.34"],
            &["{attempt}", "http", "to=93.184.216.34", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "ipv6-of-the-allowed-host",
        class: CLASS,
        what: "Its IPv6 address",
        call: &["{attempt}", "http", "to=2606:2800::1", "host=allowed.test", "path=/{canary}"],
        control: Control::Both(
            &["--allow", "[2606:2800::1]:80"],
            &["{attempt}", "http", "to=2606:2800::1", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "another-port",
        class: CLASS,
        what: "Another port of the allowed host",
        call: &["{attempt}", "http", "to=allowed.test", "port=8080", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Options(&["--allow", "allowed.test:8080"]),
        ..BASE
    },
    Attempt {
        name: "only-tls-port",
        class: CLASS,
        what: "Port 80 of a host that is allowed on 443",
        options: &["--allow", "allowed.test:443"],
        call: &["{attempt}", "http", "to=allowed.test", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Options(&["--allow", "allowed.test:80,443"]),
        ..BASE
    },
    Attempt {
        name: "port-that-another-host-has",
        class: CLASS,
        what: "A port that a rule names for another host",
        options: &["--allow", "allowed.test", "--allow", "second.test:8080"],
        call: &["{attempt}", "http", "to=allowed.test", "port=8080", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=second.test", "port=8080", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "below-a-range",
        class: CLASS,
        what: "The port below a range",
        options: &["--allow", "allowed.test:8000-8010"],
        call: &["{attempt}", "http", "to=allowed.test", "port=7999", "path=/{canary}"],
        wants: "echo of",
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "port=8000", "path=/{canary}"]),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "above-a-range",
        class: CLASS,
        what: "The port above a range",
        options: &["--allow", "allowed.test:8000-8010"],
        call: &["{attempt}", "http", "to=allowed.test", "port=8011", "path=/{canary}"],
        wants: "echo of",
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "port=8010", "path=/{canary}"]),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "below-a-wide-range",
        class: CLASS,
        what: "The port below a range that is redirected",
        options: &["--allow", "allowed.test:3001-9000"],
        call: &["{attempt}", "http", "to=allowed.test", "port=3000", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "port=8005", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "port-of-the-redirect",
        class: CLASS,
        what: "The listener to which a wide range is redirected, by its own port",
        options: &["--allow", "allowed.test:3001-9000"],
        call: &["{attempt}", "http", "to=allowed.test", "port=65535", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "port=8005", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "deny-of-all-ports-but-one",
        class: CLASS,
        what: "A denied port of a host that is allowed on every port",
        options: &["--allow", "allowed.test:*", "--deny-host", "allowed.test:8080"],
        call: &["{attempt}", "http", "to=allowed.test", "port=8080", "path=/{canary}"],
        evidence: Evidence::Event(&["denied"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "port=8000", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "deny-below-a-suffix",
        class: CLASS,
        what: "A denied name below an allowed suffix",
        options: &["--allow", "*.wild.test", "--deny-host", "denied.wild.test"],
        call: &["{attempt}", "http", "to=denied.wild.test", "path=/{canary}"],
        evidence: Evidence::Event(&["denied"]),
        control: Control::Call(&["{attempt}", "http", "to=a.wild.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "deny-by-address",
        class: CLASS,
        what: "An allowed name whose address is denied",
        options: &["--allow", "only4.test", "--deny-host", "93.184.216.0/24"],
        call: &["{attempt}", "http", "to=only4.test", "path=/{canary}"],
        evidence: Evidence::Event(&["denied"]),
        control: Control::Options(&["--allow", "only4.test"]),
        ..BASE
    },
    Attempt {
        name: "deny-by-port",
        class: CLASS,
        what: "A port that is denied for an allowed host",
        options: &["--allow", "allowed.test", "--deny-host", "allowed.test:80"],
        call: &["{attempt}", "http", "to=allowed.test", "path=/{canary}"],
        evidence: Evidence::Event(&["denied", "port_not_allowed"]),
        control: Control::Options(&["--allow", "allowed.test", "--deny-host", "allowed.test:81"]),
        ..BASE
    },
    Attempt {
        name: "beside-a-prefix",
        class: CLASS,
        what: "The first address behind an allowed prefix",
        options: &["--allow", "93.184.216.32/29"],
        call: &["{attempt}", "http", "to=93.184.216.40", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=93.184.216.39", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "beside-an-ipv6-prefix",
        class: CLASS,
        what: "An address beside an allowed IPv6 prefix",
        options: &["--allow", "[2606:2800::/48]:80"],
        call: &["{attempt}", "http", "to=2606:2800:1::1", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=2606:2800:0:7::1", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "private-address",
        class: CLASS,
        what: "A private address",
        call: &["{attempt}", "http", "to=10.1.2.3", "path=/{canary}"],
        control: Control::Options(&["--allow", "10.1.2.3"]),
        ..BASE
    },
    Attempt {
        name: "metadata-address",
        class: CLASS,
        what: "The metadata address of clouds",
        call: &["{attempt}", "http", "to=169.254.169.254", "path=/{canary}"],
        control: Control::Options(&["--allow", "169.254.169.254"]),
        ..BASE
    },
    Attempt {
        name: "carrier-address",
        class: CLASS,
        what: "An address of carriers' translation (100.64/10)",
        call: &["{attempt}", "http", "to=100.64.1.1", "path=/{canary}"],
        control: Control::Options(&["--allow", "100.64.1.1"]),
        ..BASE
    },
    Attempt {
        name: "own-address",
        class: CLASS,
        what: "The host's own public address",
        call: &["{attempt}", "http", "to=93.184.216.77", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.77"]),
        ..BASE
    },
    Attempt {
        name: "loopback",
        class: CLASS,
        what: "127.0.0.1 of the host",
        call: &["{attempt}", "http", "to=127.0.0.1", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Outside,
        ..BASE
    },
    Attempt {
        name: "loopback-2",
        class: CLASS,
        what: "127.0.0.2 of the host",
        call: &["{attempt}", "http", "to=127.0.0.2", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Outside,
        ..BASE
    },
    Attempt {
        name: "unspecified",
        class: CLASS,
        what: "0.0.0.0",
        call: &["{attempt}", "http", "to=0.0.0.0", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Outside,
        ..BASE
    },
    Attempt {
        name: "loopback-ipv6",
        class: CLASS,
        what: "::1 of the host",
        call: &["{attempt}", "http", "to=::1", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Outside,
        ..BASE
    },
    Attempt {
        name: "loopback-mapped",
        class: CLASS,
        what: "::ffff:127.0.0.1",
        call: &["{attempt}", "http", "to=::ffff:127.0.0.1", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Outside,
        ..BASE
    },
    Attempt {
        name: "unspecified-ipv6",
        class: CLASS,
        what: "[::]",
        call: &["{attempt}", "http", "to=::", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Outside,
        ..BASE
    },
    Attempt {
        name: "loopback-where-all-is-allowed",
        class: CLASS,
        what: "127.0.0.1 of the host, where half of all IPv4 addresses are allowed",
        options: &["--allow", "0.0.0.0/1"],
        call: &["{attempt}", "http", "to=127.0.0.1", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Call(&["{attempt}", "http", "to=93.184.216.66", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "synthetic-address-unasked",
        class: CLASS,
        what: "A synthetic address that this sandbox was not given",
        call: &["{attempt}", "http", "to=198.18.7.7", "host=allowed.test", "path=/{canary}"],
        evidence: Evidence::Event(&["unknown_address", "not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "redirect-to-metadata",
        class: CLASS,
        what: "A redirect of the allowed host to the metadata address",
        call: &["curl", "-sSL", "-m", "8", "http://allowed.test/redirect?http://169.254.169.254/meta"],
        wants: "delivered 169",
        may: ALLOWED,
        control: Control::Call(&["curl", "-sSL", "-m", "8", "http://allowed.test/redirect?http://allowed.test/landed"]),
        control_wants: "/landed",
        ..BASE
    },
];
