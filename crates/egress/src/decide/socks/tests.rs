//! Whole handshakes, in pieces, and what is refused.

use super::*;

fn connect(to: Destination, port: u16) -> SocksRequest {
    SocksRequest::Connect { to, port }
}

/// Asserts that the message is parsed whatever follows, and that every prefix needs more bytes.
fn whole<T: std::fmt::Debug + PartialEq>(read: fn(&[u8]) -> SocksProgress<T>, bytes: &[u8], what: T) {
    let done = SocksProgress::Done(what, bytes.len());
    assert_eq!(read(bytes), done);
    assert_eq!(read(&[bytes, b"\x05\x01\0"].concat()), done);
    for end in 0..bytes.len() {
        assert_eq!(read(&bytes[..end]), SocksProgress::More, "{end}");
    }
}

fn bad<T: std::fmt::Debug>(progress: SocksProgress<T>) {
    assert!(matches!(progress, SocksProgress::Bad(_)), "{progress:?}");
}

#[test]
fn no_authentication_unless_the_client_insists() {
    whole(greeting, &[5, 1, 0], Greeting::Methods(Method::None));
    whole(greeting, &[5, 2, 0, 2], Greeting::Methods(Method::None));
    whole(greeting, &[5, 2, 2, 0], Greeting::Methods(Method::None));
    whole(greeting, &[5, 1, 2], Greeting::Methods(Method::Password));
    whole(greeting, &[5, 2, 1, 2], Greeting::Methods(Method::Password));
    whole(greeting, &[5, 1, 1], Greeting::Methods(Method::Unacceptable));
    whole(greeting, &[5, 0], Greeting::Methods(Method::Unacceptable));
    assert_eq!(method_chosen(Method::None), [5, 0]);
    assert_eq!(method_chosen(Method::Password), [5, 2]);
    assert_eq!(method_chosen(Method::Unacceptable), [5, 0xff]);
}

#[test]
fn other_protocols_are_refused() {
    for bytes in [&b"GET / HTTP/1.1"[..], &[22, 3, 1], &[6], &[0], &[3]] {
        bad(greeting(bytes));
    }
}

#[test]
fn a_password_is_parsed_and_ignored() {
    whole(password, b"\x01\x04user\x06secret", ());
    whole(password, b"\x01\0\0", ());
    bad(password(b"\x05\x04user\x06secret"));
}

#[test]
fn connect_requests_are_parsed() {
    let v4 = Destination::Address("192.0.2.7".parse().unwrap());
    whole(request, &[5, 1, 0, 1, 192, 0, 2, 7, 1, 187], connect(v4, 443));
    let v6 = Destination::Address("2001:db8::7".parse().unwrap());
    let address = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    whole(request, &[&[5, 1, 0, 4][..], &address, &[0, 80]].concat(), connect(v6, 80));
    whole(request, b"\x05\x01\0\x03\x09a.example\0\x16", connect(Destination::Host("a.example".into()), 22));
    let long = [b'a'; 255];
    let host = Destination::Host(String::from_utf8(long.to_vec()).unwrap());
    whole(request, &[&[5, 1, 0, 3, 255][..], &long, &[0, 80]].concat(), connect(host, 80));
}

#[test]
fn other_commands_are_refused_with_their_reply_code() {
    let refused = |reply, why| SocksRequest::Refused(reply, why);
    whole(request, &[5, 2, 0, 1, 1, 2, 3, 4, 0, 80], refused(SocksReply::CommandNotSupported, "BIND"));
    whole(request, b"\x05\x03\0\x03\x01a\0\x50", refused(SocksReply::CommandNotSupported, "UDP ASSOCIATE"));
    whole(request, b"\x05\x09\0\x03\x01a\0\x50", refused(SocksReply::CommandNotSupported, "an unknown command"));
    let kind = refused(SocksReply::AddressTypeNotSupported, "an unknown address type");
    whole(request, &[5, 1, 0, 2], kind.clone());
    whole(request, &[5, 1, 0, 0], kind);
}

#[test]
fn malformed_requests_are_refused() {
    bad(request(&[4, 1]));
    bad(request(&[5, 1, 1]));
    for host in [&b""[..], b"a\0b", b"a b", b"a\n", b"\xc3\xbc", b"a\x7f"] {
        bad(request(&[&[5, 1, 0, 3, host.len() as u8][..], host, &[0, 80]].concat()));
    }
}

#[test]
fn socks_4_is_recognised_and_refused() {
    let asked = |to, port| Greeting::Version4 { to, port };
    let address = Destination::Address("192.0.2.7".parse().unwrap());
    whole(greeting, b"\x04\x01\0\x50\xc0\0\x02\x07user\0", asked(address.clone(), 80));
    whole(greeting, b"\x04\x02\0\x50\xc0\0\x02\x07\0", asked(address, 80));
    whole(greeting, b"\x04\x01\x01\xbb\0\0\0\x01\0a.example\0", asked(Destination::Host("a.example".into()), 443));
    let none = Destination::Address("0.0.0.0".parse().unwrap());
    whole(greeting, b"\x04\x01\0\x50\0\0\0\0\0", asked(none, 80));
    bad(greeting(b"\x04\x03"));
    bad(greeting(b"\x04\x01\0\x50\0\0\0\x01\0a b\0"));
    let long = [b"\x04\x01\0\x50\x01\x02\x03\x04".as_slice(), &[b'u'; 256]].concat();
    assert_eq!(greeting(&long[..8 + 255]), SocksProgress::More);
    bad(greeting(&long));
    assert_eq!(refusal_of_version_4(), [0, 91, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn replies_are_encoded() {
    assert_eq!(reply(SocksReply::Succeeded, None), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(reply(SocksReply::NotAllowed, None), [5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    let v4 = "192.0.2.7:258".parse().unwrap();
    assert_eq!(reply(SocksReply::ConnectionRefused, Some(v4)), [5, 5, 0, 1, 192, 0, 2, 7, 1, 2]);
    let v6: SocketAddr = "[2001:db8::7]:258".parse().unwrap();
    let bytes = reply(SocksReply::AddressTypeNotSupported, Some(v6));
    assert_eq!((bytes.len(), &bytes[..4], &bytes[19..]), (22, &[5, 8, 0, 4][..], &[7, 1, 2][..]));
}
