//! Each address stands for one name, in both directions, up to the limit.

use super::*;

fn name(text: &str) -> Name {
    Name::parse(text.as_bytes()).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_name_keeps_its_addresses() {
    let mut names = SyntheticAddresses::new(8);
    assert!(names.is_empty());
    assert_eq!(names.address(&name("a.example"), Family::V4), Ok(ip("198.18.0.1")));
    assert_eq!(names.address(&name("b.example"), Family::V6), Ok(ip("fd63:6f66:6665:7264::2")));
    assert_eq!(names.address(&name("a.example"), Family::V6), Ok(ip("fd63:6f66:6665:7264::1")));
    assert_eq!(names.address(&name("A.example."), Family::V4), Ok(ip("198.18.0.1")));
    assert_eq!(names.len(), 2);
    for (address, known) in [
        ("198.18.0.1", Some("a.example")),
        ("198.18.0.2", Some("b.example")),
        ("::ffff:198.18.0.2", Some("b.example")),
        ("fd63:6f66:6665:7264::1", Some("a.example")),
        ("fd63:6f66:6665:7264::2", Some("b.example")),
        ("198.18.0.0", None),
        ("198.18.0.3", None),
        ("198.18.1.1", None),
        ("198.20.0.1", None),
        ("fd63:6f66:6665:7264::", None),
        ("fd63:6f66:6665:7264::3", None),
        ("fd63:6f66:6665:7264:1::1", None),
        ("fd63:6f66:6665:7265::1", None),
        ("::198.18.0.1", None),
    ] {
        assert_eq!(names.lookup(ip(address)), known.map(name).as_ref(), "{address}");
    }
}

#[test]
fn names_are_limited_and_earlier_ones_stay() {
    let mut names = SyntheticAddresses::new(2);
    let first = names.address(&name("a.example"), Family::V4);
    names.address(&name("b.example"), Family::V4).unwrap();
    assert_eq!(names.address(&name("c.example"), Family::V4), Err(AddressesExhausted(2)));
    assert_eq!(names.address(&name("c.example"), Family::V6), Err(AddressesExhausted(2)));
    assert_eq!(names.address(&name("a.example"), Family::V4), first);
    assert_eq!(names.len(), 2);
    assert_eq!(SyntheticAddresses::new(0).address(&name("a.example"), Family::V4), Err(AddressesExhausted(0)));
    assert_eq!(SyntheticAddresses::new(usize::MAX).most, MOST);
    assert!(AddressesExhausted(2).to_string().contains("hint: "));
}

#[test]
fn every_index_has_an_address_of_its_own() {
    let most = u32::try_from(MOST).unwrap();
    let numbers = (0..600).chain((600..most).step_by(97)).chain([most - 1]);
    for at in numbers {
        for family in [Family::V4, Family::V6] {
            let address = numbered(at, family);
            assert!(synthetic(address), "{address}");
            assert_eq!(number(address), Some(at), "{address}");
            assert_eq!(of_reverse_name(&reverse_name(address)), Some(address));
        }
    }
    assert_eq!(numbered(most - 1, Family::V4), ip("198.19.255.254"));
    for (address, is) in [
        ("198.18.0.0", true),
        ("198.19.255.255", true),
        ("::ffff:198.19.0.1", true),
        ("198.17.255.255", false),
        ("198.20.0.0", false),
        ("fd63:6f66:6665:7264:ffff::", true),
        ("fd63:6f66:6665:7263:ffff::", false),
    ] {
        assert_eq!(synthetic(ip(address)), is, "{address}");
    }
}

#[test]
fn reverse_names_round_trip() {
    for (address, name) in [
        ("192.0.2.7", "7.2.0.192.in-addr.arpa"),
        ("2001:db8::567:89ab", "b.a.9.8.7.6.5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"),
    ] {
        assert_eq!(reverse_name(ip(address)), name);
        assert_eq!(of_reverse_name(name), Some(ip(address)));
    }
    let long = format!("0.{}", reverse_name(ip("::1")));
    for none in [
        "",
        "in-addr.arpa",
        ".in-addr.arpa",
        "2.0.192.in-addr.arpa",
        "1.7.2.0.192.in-addr.arpa",
        "07.2.0.192.in-addr.arpa",
        "256.2.0.192.in-addr.arpa",
        "x.2.0.192.in-addr.arpa",
        "7.2.0.192.in-addr.arpa.example",
        "7.2.0.192in-addr.arpa",
        "8.b.d.0.1.0.0.2.ip6.arpa",
        "ip6.arpa",
        &long,
        &reverse_name(ip("::1")).replace("1.0.", "10."),
        &reverse_name(ip("::1")).replace("1.0.", "g.0."),
        &reverse_name(ip("::1")).replace("1.0.", "+.0."),
    ] {
        assert_eq!(of_reverse_name(none), None, "{none}");
    }
}
