//! What is asked of the proxies and of the API that is passed through. Only data.

use crate::attempt::{ALLOWED, Attempt, BASE, Class, Control, Evidence};

const CLASS: Class = Class::Proxies;

/// The rows.
pub(super) const ATTEMPTS: &[Attempt] = &[
    Attempt {
        name: "connect-another-host",
        class: CLASS,
        what: "CONNECT to a host that no rule names",
        call: &["{attempt}", "through_connect", "target=evil.test:80", "host=evil.test", "path=/{canary}"],
        control: Control::Options(&["--allow", "evil.test"]),
        ..BASE
    },
    Attempt {
        name: "connect-another-port",
        class: CLASS,
        what: "CONNECT to another port",
        call: &["{attempt}", "through_connect", "target=allowed.test:8080", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Options(&["--allow", "allowed.test:8080"]),
        ..BASE
    },
    Attempt {
        name: "connect-address",
        class: CLASS,
        what: "CONNECT to the allowed host's address",
        call: &["{attempt}", "through_connect", "target=93.184.216.34:80", "host=93.184.216.34", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.34"]),
        ..BASE
    },
    Attempt {
        name: "connect-private",
        class: CLASS,
        what: "CONNECT to a private address",
        call: &["{attempt}", "through_connect", "target=10.1.2.3:80", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "address_not_public"]),
        control: Control::Both(
            &["--allow", "10.1.2.3"],
            &["{attempt}", "through_connect", "target=10.1.2.3:80", "host=10.1.2.3", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "connect-loopback",
        class: CLASS,
        what: "CONNECT to 127.0.0.1",
        call: &["{attempt}", "through_connect", "target=127.0.0.1:80", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "address_not_public", "bad_name"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-localhost",
        class: CLASS,
        what: "CONNECT to localhost",
        call: &["{attempt}", "through_connect", "target=localhost:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-userinfo",
        class: CLASS,
        what: "CONNECT with a user: `allowed.test@evil.test`",
        call: &["{attempt}", "through_connect", "target=allowed.test@evil.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-userinfo-with-port",
        class: CLASS,
        what: "CONNECT to `allowed.test:80@evil.test`",
        call: &["{attempt}", "through_connect", "target=allowed.test:80@evil.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-nul",
        class: CLASS,
        what: "CONNECT to a name with a NUL",
        call: &["{attempt}", "through_connect", "target=allowed.test\\x00.evil.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-space",
        class: CLASS,
        what: "CONNECT to a name with a space",
        call: &["{attempt}", "through_connect", "target=allowed.test evil.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-zone",
        class: CLASS,
        what: "CONNECT to an address with a zone",
        call: &["{attempt}", "through_connect", "target=[fe80::1%25lo]:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed", "address_not_public"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-mapped",
        class: CLASS,
        what: "CONNECT to ::ffff:10.1.2.3",
        call: &["{attempt}", "through_connect", "target=[::ffff:10.1.2.3]:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed", "address_not_public"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-percent",
        class: CLASS,
        what: "CONNECT to a percent-encoded name",
        call: &["{attempt}", "through_connect", "target=%65vil.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-slash",
        class: CLASS,
        what: "CONNECT to `evil.test:80/allowed.test`",
        call: &["{attempt}", "through_connect", "target=evil.test:80/allowed.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-fragment",
        class: CLASS,
        what: "CONNECT to `evil.test#allowed.test`",
        call: &["{attempt}", "through_connect", "target=evil.test#allowed.test:80", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-another-host-header",
        class: CLASS,
        what: "CONNECT to the allowed host with a Host of another",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=CONNECT evil.test:80 HTTP/1.1\\r\\nHost: allowed.test:80\\r\\n\\r\\nGET /{canary} HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["not_allowed", "host_mismatch", "bad_request"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-in-connect",
        class: CLASS,
        what: "CONNECT inside a CONNECT tunnel",
        call: &[
            "{attempt}",
            "through_connect",
            "target=allowed.test:80",
            "twice=evil.test:80",
            "host=evil.test",
            "path=/{canary}",
        ],
        wants: "delivered evil",
        evidence: Evidence::Event(&["bad_request", "host_mismatch", "method_not_allowed"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "connect-to-the-proxy",
        class: CLASS,
        what: "CONNECT to the proxy itself",
        call: &[
            "{attempt}",
            "through_connect",
            "target=127.0.0.1:3128",
            "twice=evil.test:80",
            "host=evil.test",
            "path=/{canary}",
        ],
        evidence: Evidence::Event(&["not_allowed", "address_not_public", "bad_name"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-to-socks",
        class: CLASS,
        what: "CONNECT to the SOCKS proxy",
        call: &["{attempt}", "through_connect", "target=127.0.0.1:1080", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "address_not_public", "bad_name"]),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "connect-then-another-host",
        class: CLASS,
        what: "Another Host inside a CONNECT tunnel",
        call: &["{attempt}", "through_connect", "target=allowed.test:80", "host=other.test", "path=/{canary}"],
        evidence: Evidence::Event(&["host_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "absolute-another-host",
        class: CLASS,
        what: "A request of the proxy for a host that no rule names",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://evil.test/{canary} HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n",
        ],
        control: Control::Options(&["--allow", "evil.test"]),
        ..BASE
    },
    Attempt {
        name: "absolute-disagrees",
        class: CLASS,
        what: "A request of the proxy whose Host disagrees",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/{canary} HTTP/1.1\\r\\nHost: other.test\\r\\nConnection: close\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["bad_request", "host_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/{canary} HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n",
        ]),
        ..BASE
    },
    Attempt {
        name: "absolute-another-port",
        class: CLASS,
        what: "A request of the proxy for another port",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test:8080/{canary} HTTP/1.1\\r\\nHost: allowed.test:8080\\r\\nConnection: close\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Options(&["--allow", "allowed.test:8080"]),
        ..BASE
    },
    Attempt {
        name: "absolute-second",
        class: CLASS,
        what: "The second request of the proxy's connection is for another host",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/first HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\nGET http://evil.test/{canary} HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n",
        ],
        wants: "{canary}",
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/first HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\nGET http://allowed.test/{canary} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n",
        ]),
        ..BASE
    },
    Attempt {
        name: "absolute-userinfo",
        class: CLASS,
        what: "A request of the proxy with a user in its URL",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test@evil.test/{canary} HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["bad_name", "bad_request", "not_allowed", "host_mismatch"]),
        control: Control::Call(&[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/{canary} HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n",
        ]),
        ..BASE
    },
    Attempt {
        name: "absolute-other-scheme",
        class: CLASS,
        what: "A request of the proxy for another scheme",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET ftp://allowed.test/{canary} HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["bad_request", "not_allowed"]),
        may: ALLOWED,
        control: Control::Call(&[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/{canary} HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n",
        ]),
        ..BASE
    },
    Attempt {
        name: "origin-form-to-the-proxy",
        class: CLASS,
        what: "A request of the proxy without a host in its target",
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET /{canary} HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["bad_request", "not_allowed", "host_mismatch"]),
        control: Control::Call(&[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3128",
            "send=GET http://allowed.test/{canary} HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n",
        ]),
        ..BASE
    },
    Attempt {
        name: "proxy-by-another-address",
        class: CLASS,
        what: "The proxy by 127.0.0.2",
        call: &["{attempt}", "through_connect", "target=allowed.test:80", "proxy=127.0.0.2:3128", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "proxy-by-ipv6",
        class: CLASS,
        what: "The proxy by ::1",
        call: &["{attempt}", "through_connect", "target=allowed.test:80", "proxy=[::1]:3128", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "proxy-by-another-host",
        class: CLASS,
        what: "A proxy on another host",
        call: &["{attempt}", "through_connect", "target=allowed.test:80", "proxy=93.184.216.66:3128", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Call(&["{attempt}", "through_connect", "target=allowed.test:80", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "socks-another-host",
        class: CLASS,
        what: "SOCKS to a name that no rule has",
        call: &["{attempt}", "socks5", "kind=name", "to=evil.test", "path=/{canary}"],
        control: Control::Options(&["--allow", "evil.test"]),
        ..BASE
    },
    Attempt {
        name: "socks-address",
        class: CLASS,
        what: "SOCKS to an address that no rule has",
        call: &["{attempt}", "socks5", "kind=4", "to=93.184.216.66", "path=/{canary}"],
        control: Control::Options(&["--allow", "93.184.216.66"]),
        ..BASE
    },
    Attempt {
        name: "socks-address-as-name",
        class: CLASS,
        what: "SOCKS to an address in the place of a name",
        call: &["{attempt}", "socks5", "kind=name", "to=93.184.216.66", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "bad_name"]),
        control: Control::Both(
            &["--allow", "93.184.216.66"],
            &["{attempt}", "socks5", "kind=4", "to=93.184.216.66", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "socks-ipv6",
        class: CLASS,
        what: "SOCKS to an IPv6 address",
        call: &["{attempt}", "socks5", "kind=6", "to=2606:2800::66", "host=x", "path=/{canary}"],
        control: Control::Both(
            &["--allow", "[2606:2800::66]:80"],
            &["{attempt}", "socks5", "kind=6", "to=2606:2800::66", "host=[2606:2800::66]", "path=/{canary}"],
        ),
        ..BASE
    },
    Attempt {
        name: "socks-mapped",
        class: CLASS,
        what: "SOCKS to ::ffff:10.1.2.3",
        call: &["{attempt}", "socks5", "kind=6", "to=::ffff:10.1.2.3", "host=x", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "address_not_public"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "socks-loopback",
        class: CLASS,
        what: "SOCKS to 127.0.0.1",
        call: &["{attempt}", "socks5", "kind=4", "to=127.0.0.1", "path=/{canary}"],
        evidence: Evidence::Event(&["not_allowed", "address_not_public"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "socks-port",
        class: CLASS,
        what: "SOCKS to another port",
        call: &["{attempt}", "socks5", "kind=name", "to=allowed.test", "port=8080", "path=/{canary}"],
        evidence: Evidence::Event(&["port_not_allowed"]),
        control: Control::Options(&["--allow", "allowed.test:8080"]),
        ..BASE
    },
    Attempt {
        name: "socks-nul",
        class: CLASS,
        what: "SOCKS to a name with a NUL",
        call: &["{attempt}", "socks5", "kind=name", "to=allowed.test\\x00.evil.test", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_name", "bad_proxy_request"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "socks-udp",
        class: CLASS,
        what: "SOCKS UDP ASSOCIATE",
        call: &["{attempt}", "socks5", "kind=name", "to=allowed.test", "command=3", "path=/{canary}"],
        wants: "socks accepted",
        evidence: Evidence::Event(&["bad_proxy_request"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "socks-bind",
        class: CLASS,
        what: "SOCKS BIND",
        call: &["{attempt}", "socks5", "kind=name", "to=allowed.test", "command=2", "path=/{canary}"],
        wants: "socks accepted",
        evidence: Evidence::Event(&["bad_proxy_request"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        control_wants: "delivered",
        ..BASE
    },
    Attempt {
        name: "socks-4",
        class: CLASS,
        what: "SOCKS 4",
        call: &["{attempt}", "socks4", "to=93.184.216.66", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_proxy_request"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "socks-4a",
        class: CLASS,
        what: "SOCKS 4a",
        call: &["{attempt}", "socks4", "to=0.0.0.1", "name=evil.test", "path=/{canary}"],
        evidence: Evidence::Event(&["bad_proxy_request"]),
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "socks-then-another-host",
        class: CLASS,
        what: "Another Host inside a SOCKS tunnel",
        call: &["{attempt}", "socks5", "kind=name", "to=allowed.test", "host=other.test", "path=/{canary}"],
        evidence: Evidence::Event(&["host_mismatch"]),
        may: ALLOWED,
        control: Control::Call(&["{attempt}", "socks5", "kind=name", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "api-another-port",
        class: CLASS,
        what: "Another port of the host beside the API that is passed through",
        options: &["--api", "ISCL_API_URL=http://127.0.0.1:3000/v1"],
        call: &["{attempt}", "http", "to=127.0.0.1", "port=3000", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Call(&["{attempt}", "http", "to=127.0.0.1", "port=3129", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "api-above-its-prefix",
        class: CLASS,
        what: "A path above the API's own",
        options: &["--api", "ISCL_API_URL=http://127.0.0.1:3000/v1"],
        call: &["{attempt}", "http", "to=127.0.0.1", "port=3129", "path=/../{canary}"],
        evidence: Evidence::Event(&["bad_request", "path_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=127.0.0.1", "port=3129", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "api-above-its-prefix-encoded",
        class: CLASS,
        what: "The same, encoded",
        options: &["--api", "ISCL_API_URL=http://127.0.0.1:3000/v1"],
        call: &["{attempt}", "http", "to=127.0.0.1", "port=3129", "path=/%2e%2e/{canary}"],
        evidence: Evidence::Event(&["bad_request", "path_not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=127.0.0.1", "port=3129", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "api-absolute-target",
        class: CLASS,
        what: "A request of the API for another host",
        options: &["--api", "ISCL_API_URL=http://127.0.0.1:3000/v1"],
        call: &[
            "{attempt}",
            "raw",
            "to=127.0.0.1",
            "port=3129",
            "send=GET http://evil.test/{canary} HTTP/1.1\\r\\nHost: evil.test\\r\\nConnection: close\\r\\n\\r\\n",
        ],
        evidence: Evidence::Event(&["bad_request", "host_mismatch", "not_allowed"]),
        control: Control::Call(&["{attempt}", "http", "to=127.0.0.1", "port=3129", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "upstream-proxy-another-host",
        class: CLASS,
        what: "A host that no rule names, where connections go out by an upstream proxy",
        options: &["--allow", "allowed.test", "--upstream-proxy", "http://user:secret@93.184.216.90:8080"],
        call: &["{attempt}", "http", "to=evil.test", "path=/{canary}"],
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "upstream-proxy-itself",
        class: CLASS,
        what: "The upstream proxy itself",
        options: &["--allow", "allowed.test", "--upstream-proxy", "http://user:secret@93.184.216.90:8080"],
        call: &["{attempt}", "through_connect", "target=evil.test:80", "proxy=93.184.216.90:8080", "path=/{canary}"],
        evidence: Evidence::Any(
            &["not_allowed", "address_not_public", "unknown_address", "port_not_allowed"],
            &["ECONNREFUSED", "ECONNRESET"],
        ),
        control: Control::Call(&["{attempt}", "http", "to=allowed.test", "path=/{canary}"]),
        ..BASE
    },
    Attempt {
        name: "upstream-proxy-another-name",
        class: CLASS,
        what: "Another name in TLS, by an upstream proxy",
        options: &["--allow", "allowed.test", "--upstream-proxy", "http://user:secret@93.184.216.90:8080"],
        call: &["{attempt}", "tls", "to=allowed.test", "sni=other.test", "path=/{canary}"],
        evidence: Evidence::Event(&["server_name_mismatch"]),
        may: &["93.184.216.90"],
        control: Control::Call(&["{attempt}", "tls", "to=allowed.test", "sni=allowed.test", "path=/{canary}"]),
        ..BASE
    },
];
