//! First bytes of real protocols, whole and in pieces, and what lenient servers take for TLS or HTTP.

use super::*;

fn http(bytes: &[u8]) {
    is_classified(bytes, FirstBytes::Http);
}

fn opaque(bytes: &[u8]) {
    is_classified(bytes, FirstBytes::Opaque);
}

/// Asserts that all of `bytes` are `first`, that every prefix is `first` or undecided, and that nothing that follows
/// matters.
fn is_classified(bytes: &[u8], first: FirstBytes) {
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(classify(bytes), first, "{text:?}");
    let mut decided = false;
    for end in 0..bytes.len() {
        let now = classify(&bytes[..end]);
        match decided {
            false if now == FirstBytes::More => {}
            _ => assert_eq!(now, first, "{end} of {text:?}"),
        }
        decided = now != FirstBytes::More;
    }
    for after in [&b"\0"[..], b"\n", b" HTTP/1.1\r\n", b"\x16\x03\x01"] {
        assert_eq!(classify(&[bytes, after].concat()), first, "{text:?} and {after:?}");
    }
}

/// The number of bytes after which it is decided.
fn certain(bytes: &[u8]) -> usize {
    (0..=bytes.len()).find(|end| classify(&bytes[..*end]) != FirstBytes::More).expect("it is decided")
}

#[test]
fn first_bytes_of_known_protocols_are_decided() {
    assert_eq!(classify(b""), FirstBytes::More);
}

#[test]
fn tls_records_are_detected_by_type_and_version() {
    for kind in 0x14..=0x18 {
        assert_eq!(classify(&[kind]), FirstBytes::More);
        is_classified(&[kind, 3], FirstBytes::Tls);
        is_classified(&[kind, 3, 1, 0, 5], FirstBytes::Tls);
        assert_eq!(
            classify(&[kind, 2]),
            if matches!(kind, 0x15 | 0x16) { FirstBytes::More } else { FirstBytes::Opaque }
        );
    }
    opaque(&[0x13, 3]);
    opaque(&[0x19, 3]);
    is_classified(include_bytes!("../../../tests/seeds/hello/python"), FirstBytes::Tls);
    is_classified(include_bytes!("../../../tests/seeds/hello/bad-alert-first"), FirstBytes::Tls);
}

/// Java's server continues after a first record of any version, Go's after one below 16.0, GnuTLS after one below 3.0;
/// and some skip a warning alert.
#[test]
fn client_hello_in_records_of_another_version_is_tls() {
    let greeting = include_bytes!("../../../tests/seeds/hello/python");
    for major in (0..=0xff).filter(|major| *major != 3) {
        for minor in [0, 1, 3, 0xff] {
            let mut odd = greeting.to_vec();
            (odd[1], odd[2]) = (major, minor);
            is_classified(&odd, FirstBytes::Tls);
            // Its first record may have as little as one byte.
            is_classified(&[0x16, major, minor, 0, 1, 1], FirstBytes::Tls);
            is_classified(&[[0x15, major, minor, 0, 2, 1, 0].as_slice(), greeting].concat(), FirstBytes::Tls);
        }
    }
    // No record is so long, none of these begins a ClientHello or is a warning alert; and no server continues after
    // other types.
    for other in [[0x16, 2, 0, 0x49, 0, 1], [0x16, 2, 0, 0, 1, 2], [0x15, 1, 0, 0, 3, 1], [0x14, 1, 0, 0, 1, 1]] {
        opaque(&other);
    }
    // MongoDB, with messages of such lengths.
    for length in [0x116u32, 0x216, 0x115] {
        let start = [&length.to_le_bytes()[..], &[7, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0]].concat();
        opaque(&start);
        assert!(certain(&start) <= 6, "{start:?}");
    }
}

#[test]
fn client_hello_of_ssl_2_is_tls() {
    is_classified(include_bytes!("../../../tests/seeds/hello/bad-ssl2"), FirstBytes::Tls);
    is_classified(&[0x80, 0x2e, 1, 3, 1], FirstBytes::Tls);
    is_classified(&[0x80, 0x2e, 1, 0, 2], FirstBytes::Tls);
    opaque(&[0x80, 0x2e, 2]);
    opaque(&[0x80, 0x2e, 1, 0, 3]);
    is_classified(&[0x80, 0x2e, 1, 4], FirstBytes::Tls);
    opaque(&[0x80, 0x2e, 1, 1]);
    // Telnet's three bytes wait for an answer.
    opaque(&[0xff, 0xfd, 1]);
    assert_eq!(certain(&[0xff, 0xfd, 1]), 1);
}

#[test]
fn requests_are_http() {
    for request in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"POST /x HTTP/1.0\r\n",
        b"HEAD http://a.example/ HTTP/1.1\r\n",
        b"CONNECT a.example:443 HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"PROPFIND /dav HTTP/1.1\r\n",
        b"BREW /pot HTTP/1.1\r\n",
        b"get / HTTP/1.1\r\n",
        b"m-search * HTTP/1.1\r\n",
        b"FOO bar HTTP/1.1\r\n",
        b"FOO bar HTTP/2.0\r\n",
        b"FOO bar http/1.1\r\n",
        b"FOO HTTP/1.1\r\n",
    ] {
        http(request);
    }
}

#[test]
fn requests_without_a_version_are_http() {
    for request in [
        &b"GET /\r\n"[..],
        b"GET /secret\n",
        b"GET x\r\n",
        b"GET \r\n",
        b"GET\r\n",
        b"DELETE /x\n",
        b"M-SEARCH http://a/\r\n",
        b"SOURCE *\r\n",
        b"CONNECT a.example:443\r\n",
        b"CONNECT \r\n",
        b"get /\r\n",
        b"Get http://a.example/\r\n",
        b"FOO /x\r\n",
    ] {
        http(request);
    }
}

#[test]
fn blanks_that_lenient_servers_skip_are_skipped() {
    for before in ["\r\n", "\n", "\r\n\r\n", " ", "\t", "\r", "\x0b", "\x0c", "\x1c", "\x1f", " \r\n "] {
        http(format!("{before}GET / HTTP/1.1\r\n").as_bytes());
        http(format!("{before}FOO / HTTP/1.1\r\n").as_bytes());
        assert_eq!(classify(before.as_bytes()), FirstBytes::More);
    }
    http(b"\x85GET /x HTTP/1.1\r\n");
    http(b"\xa0GET /x HTTP/1.1\r\n");
    for between in ["  ", "\t", "\x0b", "\x1f", "\r"] {
        http(format!("GET{between}/{between}HTTP/1.1\n").as_bytes());
        http(format!("FOO{between}bar{between}HTTP/1.1\n").as_bytes());
    }
    http(b"GET /?\x01 HTTP/1.1\r\n");
    http(b"get x\x01 HTTP/1.1\r\n");
    http(b"FOO /\xff HTTP/1.1\r\n");
    http(b"GET /x RTSP/1.0\r\n");
}

#[test]
fn http_2_is_detected_by_its_preface() {
    is_classified(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FirstBytes::Http2);
    assert_eq!(certain(b"PRI * HTTP/2.0"), 14);
    http(b"PRI * HTTP/1.1\r\n");
    http(b"PRI /x\r\n");
    http(b"PRI *http/1.0\r\n");
}

#[test]
fn proxy_protocol_headers_are_left_to_the_http_parser() {
    http(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n");
    http(b"PROXY UNKNOWN\r\n");
    http(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c");
    opaque(b"\r\n\r\n\0\r\nQUIX");
    opaque(b"PROXYX\r\n");
}

#[test]
fn other_protocols_are_opaque() {
    for start in [
        &b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"[..],
        b"EHLO client.example\r\n",
        b"HELO [192.0.2.1]\r\n",
        b"a1 LOGIN user password\r\n",
        b"USER anonymous\r\n",
        b"QUIT\r\n",
        b"get key\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"CONNECT {\"verbose\":false,\"lang\":\"go\"}\r\n",
        b"CONNECT\naccept-version:1.2\nhost:a\n\n\0",
        b"STOMP\naccept-version:1.2\n",
        b"NICK someone\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"\n\nEHLO x\r\n",
    ] {
        opaque(start);
    }
}

#[test]
fn binary_protocols_are_opaque_before_their_first_message_ends() {
    for (start, most) in [
        // PostgreSQL, wanting TLS and not; MySQL's answer to the greeting, with three lengths of it.
        (&b"\0\0\0\x08\x04\xd2\x16\x2f"[..], 1),
        (b"\0\0\0\x25\0\x03\0\0user\0", 1),
        (b"\x55\0\0\x01\x85\xa2", 2),
        (b"\x20\0\0\x01\x85\xa2", 2),
        (b"\x85\0\0\x01\x85\xa2", 3),
        // MongoDB, Kafka, AMQP, MQTT, LDAP, DNS, ZeroMQ, RDP.
        (b"\x3a\0\0\0\x01\0\0\0", 2),
        (b"\0\0\0\x2c\0\x12\0\x03", 1),
        (b"AMQP\0\0\x09\x01", 5),
        (b"\x10\x1a\0\x04MQTT", 1),
        (b"0\x0c\x02\x01\x01\x60", 3),
        (b"\0\x1d\x12\x34\x01\0", 1),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f", 1),
        (b"\x03\0\0\x13\x0e\xe0", 1),
        // Git, XMPP, JSON: text without the end of a line.
        (b"0032git-upload-pack /project.git\0host=a\0", 33),
        (b"<?xml version='1.0'?><stream:stream>", 1),
        (b"{\"op\":1}", 1),
    ] {
        opaque(start);
        assert!(certain(start) <= most, "{} for {start:?}", certain(start));
    }
}

#[test]
fn undecided_bytes_become_http_at_the_limit() {
    for byte in [b'a', b' ', b'\n'] {
        assert_eq!(classify(&vec![byte; MOST - 1]), FirstBytes::More);
        assert_eq!(classify(&vec![byte; MOST]), FirstBytes::Http);
        assert_eq!(classify(&vec![byte; 2 * MOST]), FirstBytes::Http);
    }
    let long = [b"FOO ".as_slice(), &vec![b'x'; MOST], b"\n"].concat();
    assert_eq!(classify(&long[..MOST - 1]), FirstBytes::More);
    assert_eq!(classify(&long), FirstBytes::Http);
}
