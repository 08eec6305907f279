//! Allowed names that lead to where nothing may go. Only data.

use crate::attempt::{ALLOWED, Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Upstream;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "to-private",
        class: CLASS,
        what: "An allowed name that leads to a private address",
        options: &["--allow", "private.test"],
        call: &["{attempt}", "http", "to=private.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "private.test", "--allow", "10.1.2.3"]),
        ..BASE
    },
    Attempt {
        name: "to-private172",
        class: CLASS,
        what: "An allowed name that leads to 172.16/12",
        options: &["--allow", "private172.test"],
        call: &["{attempt}", "http", "to=private172.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "private172.test", "--allow", "172.16.5.5"]),
        ..BASE
    },
    Attempt {
        name: "to-private192",
        class: CLASS,
        what: "An allowed name that leads to 192.168/16",
        options: &["--allow", "private192.test"],
        call: &["{attempt}", "http", "to=private192.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "private192.test", "--allow", "192.168.7.7"]),
        ..BASE
    },
    Attempt {
        name: "to-metadata",
        class: CLASS,
        what: "An allowed name that leads to the metadata address",
        options: &["--allow", "metadata.test"],
        call: &["{attempt}", "http", "to=metadata.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "metadata.test", "--allow", "169.254.169.254"]),
        ..BASE
    },
    Attempt {
        name: "to-azure",
        class: CLASS,
        what: "An allowed name that leads to 168.63.129.16",
        options: &["--allow", "azure.test"],
        call: &["{attempt}", "http", "to=azure.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "azure.test", "--allow", "168.63.129.16"]),
        ..BASE
    },
    Attempt {
        name: "to-cgnat",
        class: CLASS,
        what: "An allowed name that leads to an address of carriers' translation",
        options: &["--allow", "cgnat.test"],
        call: &["{attempt}", "http", "to=cgnat.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "cgnat.test", "--allow", "100.64.1.1"]),
        ..BASE
    },
    Attempt {
        name: "to-own",
        class: CLASS,
        what: "An allowed name that leads to the host's own public address",
        options: &["--allow", "own.test"],
        call: &["{attempt}", "http", "to=own.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "own.test", "--allow", "93.184.216.77"]),
        ..BASE
    },
    Attempt {
        name: "to-ownlink",
        class: CLASS,
        what: "An allowed name that leads to the host's own address on its link",
        options: &["--allow", "ownlink.test"],
        call: &["{attempt}", "http", "to=ownlink.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "ownlink.test", "--allow", "192.0.2.2"]),
        ..BASE
    },
    Attempt {
        name: "to-unique",
        class: CLASS,
        what: "An allowed name that leads to a unique local IPv6 address",
        options: &["--allow", "unique.test"],
        call: &["{attempt}", "http", "to=unique.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "unique.test", "--allow", "[fd12:3456::1]:80"]),
        ..BASE
    },
    Attempt {
        name: "to-metadata6",
        class: CLASS,
        what: "An allowed name that leads to the metadata address of IPv6",
        options: &["--allow", "metadata6.test"],
        call: &["{attempt}", "http", "to=metadata6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "metadata6.test", "--allow", "[fd00:ec2::254]:80"]),
        ..BASE
    },
    Attempt {
        name: "to-nat64",
        class: CLASS,
        what: "An allowed name that leads to a translated address (NAT64)",
        options: &["--allow", "nat64.test"],
        call: &["{attempt}", "http", "to=nat64.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "nat64.test", "--allow", "[64:ff9b::a01:203]:80"]),
        ..BASE
    },
    Attempt {
        name: "to-sixtofour",
        class: CLASS,
        what: "An allowed name that leads to a 6to4 address",
        options: &["--allow", "sixtofour.test"],
        call: &["{attempt}", "http", "to=sixtofour.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "sixtofour.test", "--allow", "[2002:a01:203::1]:80"]),
        ..BASE
    },
    Attempt {
        name: "to-teredo",
        class: CLASS,
        what: "An allowed name that leads to a Teredo address",
        options: &["--allow", "teredo.test"],
        call: &["{attempt}", "http", "to=teredo.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "teredo.test", "--allow", "[2001:0:a01:203::1]:80"]),
        ..BASE
    },
    Attempt {
        name: "to-loopback",
        class: CLASS,
        what: "An allowed name that leads to 127.0.0.1",
        options: &["--allow", "loopback.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=loopback.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-loopback2",
        class: CLASS,
        what: "An allowed name that leads to 127.0.0.2",
        options: &["--allow", "loopback2.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=loopback2.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-loopback6",
        class: CLASS,
        what: "An allowed name that leads to ::1",
        options: &["--allow", "loopback6.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=loopback6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-zero",
        class: CLASS,
        what: "An allowed name that leads to 0.0.0.0",
        options: &["--allow", "zero.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=zero.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-zero6",
        class: CLASS,
        what: "An allowed name that leads to ::",
        options: &["--allow", "zero6.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=zero6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-bench",
        class: CLASS,
        what: "An allowed name that leads to a synthetic address of the sandbox's own",
        options: &["--allow", "bench.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=bench.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-reserved",
        class: CLASS,
        what: "An allowed name that leads to 240.0.0.1",
        options: &["--allow", "reserved.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=reserved.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-multicast",
        class: CLASS,
        what: "An allowed name that leads to a multicast address",
        options: &["--allow", "multicast.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=multicast.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-broadcast",
        class: CLASS,
        what: "An allowed name that leads to 255.255.255.255",
        options: &["--allow", "broadcast.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=broadcast.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-mapped",
        class: CLASS,
        what: "An allowed name that leads to ::ffff:10.1.2.3",
        options: &["--allow", "mapped.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=mapped.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-compatible",
        class: CLASS,
        what: "An allowed name that leads to ::10.1.2.3",
        options: &["--allow", "compatible.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=compatible.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-mappedloop",
        class: CLASS,
        what: "An allowed name that leads to ::ffff:127.0.0.1",
        options: &["--allow", "mappedloop.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=mappedloop.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-linklocal6",
        class: CLASS,
        what: "An allowed name that leads to a link-local address",
        options: &["--allow", "linklocal6.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=linklocal6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-own6",
        class: CLASS,
        what: "An allowed name that leads to the host's own IPv6 address",
        options: &["--allow", "own6.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=own6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "private-of-another-name",
        class: CLASS,
        what: "A name that leads to a private address, where another name may lead to one",
        options: &["--allow", "private.test", "--allow-private", "private172.test"],
        call: &["{attempt}", "http", "to=private.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow-private", "private.test"]),
        ..BASE
    },
    Attempt {
        name: "private-unique",
        class: CLASS,
        what: "A name that leads to a unique local address, where it may on another port",
        options: &["--allow", "unique.test", "--allow-private", "unique.test:8080"],
        call: &["{attempt}", "http", "to=unique.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow-private", "unique.test"]),
        ..BASE
    },
    Attempt {
        name: "private-to-metadata",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to the metadata address",
        options: &["--allow-private", "metadata.test"],
        call: &["{attempt}", "http", "to=metadata.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "metadata.test", "--allow", "169.254.169.254"]),
        ..BASE
    },
    Attempt {
        name: "private-to-metadata6",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to the metadata address of IPv6",
        options: &["--allow-private", "metadata6.test"],
        call: &["{attempt}", "http", "to=metadata6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "metadata6.test", "--allow", "[fd00:ec2::254]:80"]),
        ..BASE
    },
    Attempt {
        name: "private-to-azure",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to 168.63.129.16",
        options: &["--allow-private", "azure.test"],
        call: &["{attempt}", "http", "to=azure.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "azure.test", "--allow", "168.63.129.16"]),
        ..BASE
    },
    Attempt {
        name: "private-to-own",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to the host's own public address",
        options: &["--allow-private", "own.test"],
        call: &["{attempt}", "http", "to=own.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "own.test", "--allow", "93.184.216.77"]),
        ..BASE
    },
    Attempt {
        name: "private-to-ownlink",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to the host's own address on its link, of a documentation range",
        options: &["--allow-private", "ownlink.test"],
        call: &["{attempt}", "http", "to=ownlink.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Options(&["--allow", "ownlink.test", "--allow", "192.0.2.2"]),
        ..BASE
    },
    Attempt {
        name: "private-to-loopback",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to 127.0.0.1",
        options: &["--allow-private", "loopback.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=loopback.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "private-to-loopback6",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to ::1",
        options: &["--allow-private", "loopback6.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=loopback6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "private-to-linklocal6",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to a link-local address",
        options: &["--allow-private", "linklocal6.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=linklocal6.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "private-to-mapped",
        class: CLASS,
        what: "A name that may lead to private addresses, and leads to ::ffff:10.1.2.3",
        options: &["--allow-private", "mapped.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=mapped.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-cname",
        class: CLASS,
        what: "An allowed name that leads to another name, and that to a private address",
        options: &["--allow", "cname.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=cname.test", "path=/{canary}"],
        evidence: Evidence::Event(&["address_not_public"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-mixed",
        class: CLASS,
        what: "An allowed name that leads to a private and to a public address: never the private one",
        options: &["--allow", "mixed.test"],
        call: &["{attempt}", "http", "to=mixed.test", "path=/mixed"],
        wants: "at 10.1",
        evidence: Evidence::Event(&["address_not_public"]),
        may: &["93.184.216.66"],
        control: Control::Options(&["--allow", "mixed.test", "--allow", "10.1.2.3"]),
        ..BASE
    },
    Attempt {
        name: "rebinding",
        class: CLASS,
        what: "A name that leads elsewhere from the second query on",
        options: &["--allow", "rebind.test"],
        call: &["{attempt}", "http_often", "to=rebind.test", "count=4", "path=/often"],
        wants: "at 127",
        evidence: Evidence::Event(&["address_not_public"]),
        may: ALLOWED,
        control: Control::Both(
            &["--allow", "only4.test"],
            &["{attempt}", "http_often", "to=only4.test", "count=4", "path=/{canary}"],
        ),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "to-nothing",
        class: CLASS,
        what: "An allowed name that does not resolve",
        options: &["--allow", "missing.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=missing.test", "path=/{canary}"],
        evidence: Evidence::Event(&["not_resolved"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-a-broken-answer",
        class: CLASS,
        what: "An allowed name whose answer is malformed",
        options: &["--allow", "broken.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=broken.test", "path=/{canary}"],
        evidence: Evidence::Event(&["not_resolved", "upstream_timed_out"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "to-no-answer",
        class: CLASS,
        what: "An allowed name that no server answers for",
        options: &["--allow", "never.test", "--allow", "allowed.test"],
        call: &["{attempt}", "http", "to=never.test", "patience=20", "path=/{canary}"],
        evidence: Evidence::Event(&["not_resolved", "upstream_timed_out"]),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
];
