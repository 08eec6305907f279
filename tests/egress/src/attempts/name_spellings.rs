//! Names and addresses in spellings that some read differently. Only data.

use crate::attempt::{Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Names;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "suffix-neighbour",
        class: CLASS,
        what: "`evilwild.test` beside `*.wild.test`",
        options: &["--allow", "*.wild.test"],
        call: &["{attempt}", "http", "to=evilwild.test", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=a.wild.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "suffix-itself",
        class: CLASS,
        what: "`wild.test` beside `*.wild.test`",
        options: &["--allow", "*.wild.test"],
        call: &["{attempt}", "http", "to=wild.test", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=deep.a.wild.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "suffix-in-the-middle",
        class: CLASS,
        what: "`wild.test.evil.test` beside `*.wild.test`",
        options: &["--allow", "*.wild.test"],
        call: &["{attempt}", "http", "to=wild.test.evil.test", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=a.wild.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "name-as-prefix",
        class: CLASS,
        what: "`allowed.test.evil.test`",
        call: &["{attempt}", "http", "to=allowed.test.evil.test", "path=/{canary}"],
        control: Control::Options(&["--allow", "allowed.test.evil.test"]),
        ..BASE
    },
    Attempt {
        name: "below-an-exact-name",
        class: CLASS,
        what: "A name below one that is allowed exactly",
        options: &["--allow", "wild.test"],
        call: &["{attempt}", "http", "to=a.wild.test", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=wild.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "homograph",
        class: CLASS,
        what: "A name that looks the same, in Cyrillic",
        call: &["{attempt}", "http", "to=xn--llowed-2nf.test", "path=/{canary}"],
        control: Control::Options(&["--allow", "xn--llowed-2nf.test"]),
        ..BASE
    },
    Attempt {
        name: "upper-case",
        class: CLASS,
        what: "The refused name in upper case with a final dot",
        call: &["{attempt}", "http", "to=EVIL.TEST.", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=ALLOWED.TEST.", "host=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "decimal-address",
        class: CLASS,
        what: "The refused address as `1572395074`",
        call: &["{attempt}", "http", "to=1572395074", "host=93.184.216.66", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.66"]),
        ..BASE
    },
    Attempt {
        name: "decimal-address-by-connect",
        class: CLASS,
        what: "The same by CONNECT",
        options: &["--allow", "93.184.216.66", "--allow", "1572395074.test"],
        call: &["{attempt}", "through_connect", "target=1572395074:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request"]),
        control: Control::Call(&[
            "{attempt}",
            "through_connect",
            "target=93.184.216.66:80",
            "host=93.184.216.66",
            "path=/{canary}",
        ]),
        ..BASE
    },
    Attempt {
        name: "hexadecimal-address",
        class: CLASS,
        what: "The refused address as `0x5db8d842`",
        call: &["{attempt}", "http", "to=0x5db8d842", "host=93.184.216.66", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.66"]),
        ..BASE
    },
    Attempt {
        name: "hexadecimal-address-by-connect",
        class: CLASS,
        what: "The same by CONNECT",
        options: &["--allow", "93.184.216.66", "--allow", "1572395074.test"],
        call: &["{attempt}", "through_connect", "target=0x5db8d842:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request"]),
        control: Control::Call(&[
            "{attempt}",
            "through_connect",
            "target=93.184.216.66:80",
            "host=93.184.216.66",
            "path=/{canary}",
        ]),
        ..BASE
    },
    Attempt {
        name: "octal-address",
        class: CLASS,
        what: "The refused address as `0135.0270.0330.0102`",
        call: &["{attempt}", "http", "to=0135.0270.0330.0102", "host=93.184.216.66", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.66"]),
        ..BASE
    },
    Attempt {
        name: "octal-address-by-connect",
        class: CLASS,
        what: "The same by CONNECT",
        options: &["--allow", "93.184.216.66", "--allow", "1572395074.test"],
        call: &["{attempt}", "through_connect", "target=0135.0270.0330.0102:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request"]),
        control: Control::Call(&[
            "{attempt}",
            "through_connect",
            "target=93.184.216.66:80",
            "host=93.184.216.66",
            "path=/{canary}",
        ]),
        ..BASE
    },
    Attempt {
        name: "short-address",
        class: CLASS,
        what: "The refused address as `93.184.55362`",
        call: &["{attempt}", "http", "to=93.184.55362", "host=93.184.216.66", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.66"]),
        ..BASE
    },
    Attempt {
        name: "short-address-by-connect",
        class: CLASS,
        what: "The same by CONNECT",
        options: &["--allow", "93.184.216.66", "--allow", "1572395074.test"],
        call: &["{attempt}", "through_connect", "target=93.184.55362:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request"]),
        control: Control::Call(&[
            "{attempt}",
            "through_connect",
            "target=93.184.216.66:80",
            "host=93.184.216.66",
            "path=/{canary}",
        ]),
        ..BASE
    },
    Attempt {
        name: "decimal-address-by-socks",
        class: CLASS,
        what: "The same by SOCKS, as a name",
        options: &["--allow", "93.184.216.66"],
        call: &["{attempt}", "socks5", "kind=name", "to=1572395074", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_proxy_request"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=4", "to=93.184.216.66", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "mapped-address",
        class: CLASS,
        what: "A private address as ::ffff:10.1.2.3",
        call: &["{attempt}", "http", "to=::ffff:10.1.2.3", "host=10.1.2.3", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "address_not_public"]),
        control: Control::Options(&["--allow", "10.1.2.3"]),
        ..BASE
    },
    Attempt {
        name: "link-local-with-zone",
        class: CLASS,
        what: "A link-local address with a zone",
        call: &["{attempt}", "http", "to=fe80::1%lo", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public"],
            &["ECONNREFUSED", "ENETUNREACH", "EINVAL", "EHOSTUNREACH", "EACCES", "ECONNRESET", "EPERM", "ENODEV"],
        ),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
];
