//! Decisions of the rules: as tables, and as properties of any rules and any question.

#[path = "common/decisions.rs"]
mod decisions;

use std::path::Path;

use cofferdam_egress::event::{EgressRefusal, NetworkReason};
use cofferdam_egress::host_name::{Name, RequestedHost};
use cofferdam_egress::layout::{LayoutSocket, MOST_LISTENERS};
use cofferdam_egress::rules::{EgressRules, EgressTarget};
use cofferdam_policy::{Network, Policy};
use proptest::prelude::*;

fn text(fields: &str) -> String {
    format!(r#"{{"version":1,"command":{{"argv":["x"]}},"network":{{"mode":"allowlist",{fields}}}}}"#)
}

fn network(fields: &str) -> Network {
    Policy::from_json(text(fields).as_bytes()).unwrap_or_else(|errors| panic!("{errors}")).network
}

fn rules(fields: &str) -> EgressRules {
    EgressRules::compile(&network(fields))
}

fn target(host: &str) -> EgressTarget {
    match RequestedHost::parse(host).unwrap_or_else(|why| panic!("{host}: {why}")) {
        RequestedHost::Name(name) => EgressTarget::Name(name),
        RequestedHost::Address(address) => EgressTarget::Address(address),
    }
}

#[test]
fn each_refusal_has_a_reason_a_line_and_an_allowed_control() {
    let rules = rules(
        r#""allow":["a.example","*.b.example:22","192.0.2.0/24:443","[2001:db8::/32]:*","127.0.0.1:80"],
           "deny":["bad.b.example","192.0.2.66","c.example:25","a.example:80"]"#,
    );
    for (host, port, reason, line) in [
        ("other.example", 443, NetworkReason::NotAllowed, None),
        ("xa.example", 443, NetworkReason::NotAllowed, None),
        ("a.example.evil.example", 443, NetworkReason::NotAllowed, None),
        ("b.example", 22, NetworkReason::NotAllowed, None),
        ("a.example", 22, NetworkReason::PortNotAllowed, Some("$.network.allow[0]")),
        ("x.b.example", 443, NetworkReason::PortNotAllowed, Some("$.network.allow[1]")),
        ("bad.b.example", 22, NetworkReason::Denied, Some("$.network.deny[0]")),
        ("192.0.2.66", 443, NetworkReason::Denied, Some("$.network.deny[1]")),
        ("[::ffff:192.0.2.66]", 443, NetworkReason::Denied, Some("$.network.deny[1]")),
        ("[64:ff9b::192.0.2.66]", 443, NetworkReason::Denied, Some("$.network.deny[1]")),
        ("a.example", 80, NetworkReason::Denied, Some("$.network.deny[3]")),
        ("192.0.2.1", 80, NetworkReason::PortNotAllowed, Some("$.network.allow[2]")),
        ("192.0.3.1", 443, NetworkReason::NotAllowed, None),
        // Inside, these are the sandbox itself, whatever is listed.
        ("127.0.0.1", 80, NetworkReason::AddressNotPublic, None),
        ("127.9.9.9", 80, NetworkReason::AddressNotPublic, None),
        ("[::1]", 80, NetworkReason::AddressNotPublic, None),
        ("0.0.0.0", 80, NetworkReason::AddressNotPublic, None),
        ("[::ffff:127.0.0.1]", 80, NetworkReason::AddressNotPublic, None),
    ] {
        let refusal = rules.connect(&target(host), port).unwrap_err();
        assert_eq!((refusal.reason, refusal.rule.as_deref()), (reason, line), "{host}:{port}");
    }
    for (host, port, rule) in [
        ("a.example", 443, 0),
        ("A.EXAMPLE.", 443, 0),
        ("x.b.example", 22, 1),
        ("x.y.b.example", 22, 1),
        ("192.0.2.1", 443, 2),
        ("[::ffff:192.0.2.1]", 443, 2),
        ("[2001:db8::1]", 65_535, 3),
    ] {
        assert_eq!(rules.connect(&target(host), port).unwrap().rule, rule, "{host}:{port}");
    }
    let detail = rules.connect(&target("a.example"), 22).unwrap_err().detail;
    assert_eq!(detail.as_deref(), Some("allowed are 80,443"));
}

#[test]
fn a_name_is_resolved_if_some_port_is_allowed() {
    let rules = rules(
        r#""allow":["a.example","b.example:80","*.c.example","192.0.2.1"],"deny":["a.example:443","b.example:70-79","x.c.example","b.example:22"]"#,
    );
    let name = |name: &str| rules.name(&Name::parse(name.as_bytes()).unwrap());
    for open in ["a.example", "b.example", "y.c.example"] {
        assert_eq!(name(open), Ok(()), "{open}");
    }
    let denied = name("x.c.example").unwrap_err();
    assert_eq!((denied.reason, denied.rule.as_deref()), (NetworkReason::Denied, Some("$.network.deny[2]")));
    assert_eq!(name("c.example").unwrap_err().reason, NetworkReason::NotAllowed);
    // A ClientHello to a bare address must not have a denied name.
    assert_eq!(rules.denied(&target("x.c.example"), 443).unwrap_err().reason, NetworkReason::Denied);
    assert_eq!(rules.denied(&target("unknown.example"), 443), Ok(()));
}

#[test]
fn only_public_or_named_addresses_are_connected_to() {
    let rules = rules(
        r#""allow":["a.example:*","8.0.0.0/5:*","10.1.0.0/16:5432","169.254.0.0/16:80","fd00::/8","127.0.0.1:8080","100.100.100.200:80",
                    "203.0.113.7:443","0.0.0.0/1:443"],
           "deny":["8.8.4.0/24","9.9.9.9:53"]"#,
    );
    let a = target("a.example");
    for (address, port) in [
        ("1.1.1.1", 443),
        ("2600::1", 25),
        ("8.8.8.8", 53),
        ("9.9.9.9", 443),
        ("10.1.2.3", 5432),
        ("fd12::1", 443),
        ("127.0.0.1", 8080),
        ("169.254.1.1", 80),
        ("100.100.100.200", 80),
        ("203.0.113.7", 443),
    ] {
        assert_eq!(rules.upstream(&a, port, address.parse().unwrap()), Ok(()), "{address}:{port}");
    }
    for (address, port) in [
        // `8.0.0.0/5` and `0.0.0.0/1` contain 10.0.0.1 as well, but do not name it.
        ("10.0.0.1", 443),
        ("10.1.2.3", 443),
        ("10.2.0.1", 5432),
        ("127.0.0.1", 443),
        ("127.0.0.2", 8080),
        ("0.0.0.0", 443),
        // Link-local is named, the metadata service in it is not.
        ("169.254.169.254", 80),
        ("fd00:ec2::254", 443),
        ("100.64.0.1", 80),
        ("192.168.0.1", 443),
        ("203.0.113.8", 443),
        ("::1", 443),
        ("::ffff:10.1.2.3", 5432),
        ("::ffff:1.1.1.1", 443),
        ("64:ff9b::1.1.1.1", 443),
        ("2002:a01:203::1", 5432),
        ("2001::f5fe:fdfc", 5432),
        ("fe80::1", 443),
        ("224.0.0.1", 443),
        ("255.255.255.255", 443),
        ("168.63.129.16", 443),
    ] {
        let refusal = rules.upstream(&a, port, address.parse().unwrap()).unwrap_err();
        assert_eq!(refusal.reason, NetworkReason::AddressNotPublic, "{address}:{port}");
        assert!(
            refusal.detail.unwrap().starts_with(&format!("{} is ", address.parse::<std::net::IpAddr>().unwrap())),
            "{address}"
        );
    }
    for (address, port, line) in [
        ("8.8.4.4", 443, "$.network.deny[0]"),
        ("64:ff9b::8.8.4.4", 443, "$.network.deny[0]"),
        ("9.9.9.9", 53, "$.network.deny[1]"),
    ] {
        let refusal = rules.upstream(&a, port, address.parse().unwrap()).unwrap_err();
        assert_eq!((refusal.reason, refusal.rule.as_deref()), (NetworkReason::Denied, Some(line)), "{address}");
    }
    // The host's own addresses are named by themselves alone, public or not.
    assert!(rules.upstream_own(&a, 443, "203.0.113.7".parse().unwrap()).is_ok());
    for own in ["8.8.8.8", "10.1.2.3", "1.1.1.1"] {
        assert_eq!(
            rules.upstream_own(&a, 443, own.parse().unwrap()).unwrap_err().reason,
            NetworkReason::AddressNotPublic,
            "{own}"
        );
    }
}

#[test]
fn private_rule_opens_addresses_of_private_networks_to_its_name_alone() {
    let rules = rules(
        r#""allow":[{"to":"in.example:443","private":true},"in.example:80","*.example:443"],"deny":["10.9.0.0/16"]"#,
    );
    let reason = |to: &EgressTarget, port: u16, address: &str| {
        rules.upstream(to, port, address.parse().unwrap()).map_err(|refusal| refusal.reason)
    };
    let (inside, other) = (target("in.example"), target("other.example"));
    let not_public = Err(NetworkReason::AddressNotPublic);
    for private in ["10.1.2.3", "192.168.7.7", "172.16.5.5", "fd12::1", "100.64.0.1", "203.0.113.7", "8.8.8.8"] {
        assert_eq!(reason(&inside, 443, private), Ok(()), "{private}");
        // The same addresses, on another port and of another name.
        let public = private == "8.8.8.8";
        assert_eq!(reason(&inside, 80, private), if public { Ok(()) } else { not_public }, "{private}");
        assert_eq!(reason(&other, 443, private), if public { Ok(()) } else { not_public }, "{private}");
        let itself = EgressTarget::Address(private.parse().unwrap());
        assert!(rules.connect(&itself, 443).is_err(), "{private}");
    }
    for never in [
        "127.0.0.1",
        "::1",
        "0.0.0.0",
        "169.254.1.2",
        "169.254.169.254",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.100.100.200",
        "fe80::1",
        "224.0.0.1",
        "255.255.255.255",
        "::ffff:10.1.2.3",
        "64:ff9b::10.1.2.3",
        "fd00:1::5efe:7f00:1",
    ] {
        assert_eq!(reason(&inside, 443, never), not_public, "{never}");
    }
    assert_eq!(reason(&inside, 443, "10.9.1.1"), Err(NetworkReason::Denied));
    // The host's own addresses are named by themselves alone.
    let own = rules.upstream_own(&inside, 443, "10.1.2.3".parse().unwrap()).unwrap_err();
    assert_eq!(own.reason, NetworkReason::AddressNotPublic);
}

#[test]
fn an_entry_with_methods_or_paths_opens_its_address_to_no_name() {
    let name = target("a.example");
    for (address, range) in
        [("169.254.169.254", "169.254.169.254"), ("10.1.2.3", "10.1.2.0/24"), ("fd12::1", "[fd12::/16]")]
    {
        for (inspects, more) in [
            (true, r#","methods":["GET"]"#),
            (true, r#","paths":["/open/*"]"#),
            (true, r#","methods":["GET"],"paths":["/open/*"]"#),
            (false, ""),
            (false, r#","encrypted_hello":true"#),
        ] {
            let rules = rules(&format!(r#""allow":["a.example:80",{{"to":"{range}:80"{more}}}]"#));
            let ip = address.parse().unwrap();
            let itself = EgressTarget::Address(ip);
            let reason = |found: Result<(), EgressRefusal>| found.map_err(|refusal| refusal.reason);
            let by_name = if inspects { Err(NetworkReason::AddressNotPublic) } else { Ok(()) };
            assert_eq!(reason(rules.upstream(&name, 80, ip)), by_name, "{range} {more}");
            // The address itself is reached under the entry's methods and paths.
            assert_eq!(reason(rules.upstream(&itself, 80, ip)), Ok(()), "{range} {more}");
            let grant = rules.connect(&itself, 80).unwrap();
            assert_eq!(rules.request(&grant, "GET", "/open/a"), Ok(()), "{range} {more}");
            assert_eq!(rules.request(&grant, "DELETE", "/secret").is_err(), inspects, "{range} {more}");
        }
    }
    // The same for an address of the host's own, and an entry without either beside it lets the name lead there again.
    let own = "203.0.113.7".parse().unwrap();
    let inspecting = r#"{"to":"203.0.113.7:80","methods":["GET"]}"#;
    let only = rules(&format!(r#""allow":["a.example:80",{inspecting}]"#));
    let refusal = only.upstream_own(&name, 80, own).unwrap_err();
    assert_eq!(refusal.reason, NetworkReason::AddressNotPublic);
    assert!(refusal.detail.unwrap().ends_with("it lets no name lead there"));
    // Where no entry names the address, nothing says that one does.
    let none = rules(r#""allow":["a.example:80"]"#).upstream_own(&name, 80, own).unwrap_err();
    assert_eq!(none.detail.unwrap(), "203.0.113.7 is the host's own");
    assert_eq!(only.upstream_own(&EgressTarget::Address(own), 80, own), Ok(()));
    // No valid policy has both; the rules decide by themselves.
    let both = text(&format!(r#""allow":["a.example:80",{inspecting},"203.0.113.7:80"]"#));
    let both = EgressRules::compile(&Policy::decode(both.as_bytes()).unwrap().network);
    assert_eq!(both.upstream_own(&name, 80, own), Ok(()));
}

#[test]
fn requests_need_one_rule_that_has_both_method_and_path() {
    let rules = rules(
        r#""allow":[{"to":"a.example:80","methods":["GET"],"paths":["/v1/*","/status"]},{"to":"*.example:80","methods":["POST"],"paths":["/up"]},
                    {"to":"b.example:80,443,22","paths":["/x"]},"c.example"],"methods":["GET","POST","PUT"]"#,
    );
    let asked = |host: &str, method: &str, path: &str| {
        let grant = rules.connect(&target(host), 80).unwrap();
        rules.request(&grant, method, path).map_err(|refusal| (refusal.reason, refusal.rule.unwrap()))
    };
    for (host, method, path) in [
        ("a.example", "GET", "/v1/"),
        ("a.example", "GET", "/v1/models/x%20y"),
        ("a.example", "GET", "/status"),
        ("a.example", "POST", "/up"),
        ("b.example", "PUT", "/x"),
        ("c.example", "PUT", "/../any//thing"),
        ("c.example", "GET", "*"),
    ] {
        assert_eq!(asked(host, method, path), Ok(()), "{host} {method} {path}");
    }
    let path = |line: &str| (NetworkReason::PathNotAllowed, format!("{line}.paths"));
    let method = |line: &str| (NetworkReason::MethodNotAllowed, line.to_owned());
    for (host, verb, asked_for, refusal) in [
        ("a.example", "GET", "/v1", path("$.network.allow[0]")),
        ("a.example", "GET", "/v1/../admin", path("$.network.allow[0]")),
        ("a.example", "GET", "/v1/%2e%2e/admin", path("$.network.allow[0]")),
        ("a.example", "GET", "/v1/..%2fadmin", path("$.network.allow[0]")),
        ("a.example", "GET", "/v1//x", path("$.network.allow[0]")),
        ("a.example", "GET", "/v1/..;/x", path("$.network.allow[0]")),
        ("a.example", "GET", "/v1\\..\\x", path("$.network.allow[0]")),
        ("a.example", "GET", "/V1/x", path("$.network.allow[0]")),
        ("a.example", "GET", "/up", path("$.network.allow[0]")),
        ("a.example", "POST", "/v1/x", path("$.network.allow[1]")),
        ("a.example", "PUT", "/v1/x", method("$.network.allow[0].methods")),
        ("a.example", "get", "/v1/x", method("$.network.methods")),
        ("c.example", "DELETE", "/", method("$.network.methods")),
        ("b.example", "GET", "*", path("$.network.allow[2]")),
    ] {
        assert_eq!(asked(host, verb, asked_for), Err(refusal), "{host} {verb} {asked_for}");
    }
}

#[test]
fn a_grant_says_whether_its_rules_inspect_requests() {
    let rules = rules(
        r#""allow":[{"to":"a.example:*","paths":["/"]},{"to":"b.example","methods":["GET"]},"*.example:443",
                    {"to":"c.example","encrypted_hello":true}]"#,
    );
    let grant = |host: &str, port| {
        let grant = rules.connect(&target(host), port).unwrap();
        (grant.rules, grant.inspected, grant.plain_only, grant.encrypted_hello)
    };
    assert_eq!(grant("a.example", 80), (vec![0], true, true, false));
    assert_eq!(grant("a.example", 9000), (vec![0], true, false, false));
    assert_eq!(grant("a.example", 443), (vec![0, 2], false, false, false));
    assert_eq!(grant("b.example", 80), (vec![1], true, true, false));
    assert_eq!(grant("c.example", 443), (vec![2, 3], false, false, true));
    let all = self::rules(r#""allow":["a.example"],"methods":["GET"]"#);
    let both = |port| all.connect(&target("a.example"), port).map(|grant| (grant.inspected, grant.plain_only)).unwrap();
    assert_eq!((both(80), both(443)), ((true, true), (true, false)));
}

#[test]
fn entries_default_to_ports_80_and_443() {
    let given = network(r#""allow":["a.example","b.example:*"]"#);
    let rules = EgressRules::compile(&given);
    for (host, port, allowed) in [
        ("a.example", 80, true),
        ("a.example", 443, true),
        ("a.example", 8080, false),
        ("b.example", 1, true),
        ("b.example", 65_535, true),
        ("b.example", 0, false),
    ] {
        assert_eq!(rules.connect(&target(host), port).is_ok(), allowed, "{host}:{port}");
    }
    assert_eq!(rules.ports(), [(1, 65_535)]);
    let closed = EgressRules::compile(&Network { mode: cofferdam_policy::NetworkMode::None, ..given });
    assert!(closed.connect(&target("a.example"), 443).is_err() && closed.ports().is_empty());
}

#[test]
fn many_ports_are_redirected_or_refused_never_dropped() {
    use LayoutSocket::{Listener, Redirect, Resolver};
    let few = rules(r#""allow":["a.example","b.example:22"],"api":{"url":"http://localhost:1"}"#);
    let services = [Resolver, Listener(53), Listener(3128), Listener(1080), Listener(3129)];
    let layout = few.layout(false).unwrap();
    assert_eq!(layout.sockets, [&services[..], &[Listener(22), Listener(80), Listener(443)]].concat());
    assert!(layout.redirected.is_empty());
    // The last set that fits, and the first that does not.
    let ports = |last: usize| rules(&format!(r#""allow":["a.example:10001-{}"]"#, 10_000 + last));
    let fits = MOST_LISTENERS - 3;
    assert_eq!(ports(fits).layout(false).unwrap().sockets.len(), MOST_LISTENERS + 1);
    let refusal = ports(fits + 1).layout(false).unwrap_err();
    assert!(refusal.to_string().contains("names 129 ports") && refusal.to_string().contains("hint:"), "{refusal}");
    let wide = ports(fits + 1).layout(true).unwrap();
    assert_eq!(wide.sockets.last(), Some(&Redirect(65_535)));
    assert_eq!(wide.redirected, [(10_001, 10_126)]);
    // Services keep their ports, and where every port is wanted one of them takes the rest.
    let all = rules(r#""allow":["a.example:*","b.example:22"]"#).layout(true).unwrap();
    assert_eq!(all.redirected, [(1, 52), (54, 1079), (1081, 3127), (3129, 65_534)]);
    assert_eq!(all.sockets.last(), Some(&Redirect(65_535)));
}

/// Lines of rules and questions, from few words, so that they match.
fn lines() -> impl Strategy<Value = String> {
    let to = || {
        prop::sample::select(vec![
            "a",
            "b",
            "a.b",
            "x.a.b",
            "*.b",
            "*.a.b",
            "\u{e4}.b",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.0.1",
            "0.0.0.0/1",
            "8.8.8.8",
            "169.254.0.0/16",
            "[fd00::/8]",
            "[::/1]",
            "[2600::1]",
            "[64:ff9b::/96]",
        ])
    };
    let ports = || prop::sample::select(vec![":80", ":443", ":*", ":1-300", ":80,443", ":22,8000-8200", ":53,3128"]);
    let host = || {
        prop::sample::select(vec![
            "a",
            "B.",
            "a.b",
            "X.A.B",
            "y.x.a.b",
            "\u{c4}.b",
            "xn--4ca.b",
            "c",
            "10.0.0.1",
            "10.1.0.1",
            "8.8.8.8",
            "127.0.0.1",
            "169.254.169.254",
            "[fd00::1]",
            "[::1]",
            "[2600::1]",
            "[::ffff:10.1.0.1]",
            "[64:ff9b::808:808]",
        ])
    };
    let port = || prop::sample::select(vec![22, 53, 80, 443, 8100, 65_535]);
    let more = prop::sample::select(vec!["", " methods=GET", " paths=/v1/*,/x", " methods=PUT,GET paths=/x", " hello"]);
    let address = prop::sample::select(vec![
        "10.0.0.1",
        "10.1.0.1",
        "8.8.8.8",
        "127.0.0.1",
        "169.254.169.254",
        "fd00::1",
        "2600::1",
        "::ffff:10.1.0.1",
        "64:ff9b::10.1.0.1",
        "2002:a01:1::",
        "0.0.0.0",
    ]);
    let path = prop::sample::select(vec!["/", "/x", "/v1/a", "/v1/../x", "/%78", "//x", "*"]);
    let method = prop::sample::select(vec!["GET", "PUT", "POST", "get"]);
    prop_oneof![
        3 => (to(), ports(), more).prop_map(|(to, ports, more)| format!("allow {to}{ports}{more}")),
        2 => (to(), ports()).prop_map(|(to, ports)| format!("deny {to}{ports}")),
        1 => prop::sample::select(vec!["methods GET", "methods GET,PUT,POST", ""]).prop_map(str::to_owned),
        4 => (host(), port()).prop_map(|(host, port)| format!("connect {host} {port}")),
        3 => (host(), port(), address).prop_map(|(host, port, address)| format!("upstream {host} {port} {address}")),
        3 => (host(), port(), method, path).prop_map(|(h, p, m, path)| format!("request {h} {p} {m} {path}")),
    ]
}

proptest! {
    #[test]
    fn rules_decide_as_a_linear_search_in_any_order(lines in prop::collection::vec(lines(), 0..24)) {
        decisions::rules(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_bytes_as_name(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        text in any::<String>(),
        likely in "[a-zA-Z0-9._\\-@%:\u{e4}\u{df}\u{3002}\u{ff10}\u{130}]{0,20}",
    ) {
        decisions::name(&bytes);
        decisions::name(text.as_bytes());
        decisions::name(likely.as_bytes());
    }

    #[test]
    fn special_addresses_stay_special_in_every_embedding(v4 in any::<u32>(), low in any::<u64>()) {
        use cofferdam_egress::address::{embedded, special};
        use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
        let v4 = Ipv4Addr::from(v4);
        let bits = u128::from(u32::from(v4));
        let forms = [
            bits | 0xffff << 32,
            bits,
            bits | 0xffff << 48,
            bits | 0x64_ff9b << 96,
            bits | 0x64_ff9b_0001 << 80,
            0x2002 << 112 | bits << 80 | u128::from(low),
            0x2001 << 112 | u128::from(!u32::from(v4)),
            0x2a00 << 112 | 0x5efe << 32 | bits,
            0x2a00 << 112 | 0x0200_5efe << 32 | bits,
        ];
        for form in forms {
            let v6 = IpAddr::V6(Ipv6Addr::from(form));
            // The very low ones are `::` and `::1`, which are special by themselves.
            prop_assert!(special(v6).is_some(), "{v6} hides {v4}");
            prop_assert!(embedded(v6) == Some(v4) || bits < 2, "{v6} hides {v4}");
        }
    }

    #[test]
    fn ipv6_outside_global_unicast_is_special(bits in any::<u128>()) {
        let address = std::net::Ipv6Addr::from(bits);
        if address.segments()[0] & 0xe000 != 0x2000 {
            prop_assert!(cofferdam_egress::address::special(address.into()).is_some(), "{address}");
        }
    }
}

#[test]
fn invariants_hold_for_the_seeds() {
    for (directory, check) in [("name", decisions::name as fn(&[u8])), ("rules", decisions::rules)] {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(directory);
        let mut seeds = 0;
        for file in std::fs::read_dir(&directory).unwrap() {
            check(&std::fs::read(file.unwrap().path()).unwrap());
            seeds += 1;
        }
        assert!(seeds >= 10, "{}: {seeds}", directory.display());
    }
}
