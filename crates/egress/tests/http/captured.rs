//! Captured connections: what passes, what is refused, and what upstream receives.

use std::sync::Arc;

use cofferdam_egress::event::NetworkReason;

use crate::support::{Fake, GOOD, connect, connect_to, echo, name, read_requests, talk};

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {GOOD}\r\n\r\n")
}

#[tokio::test]
async fn a_request_reaches_upstream_and_its_response_returns() {
    let gateway = Arc::new(Fake::new(echo));
    let answer = talk(connect(&gateway), get("/a?b=c").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("X-Up: yes\r\n") && answer.ends_with("GET /a?b=c HTTP/1.1"), "{answer}");
    let seen = read_requests(&gateway.received()).expect("requests");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].get("host"), [GOOD]);
    assert_eq!(gateway.reasons(), []);
}

#[tokio::test]
async fn keep_alive_requests_share_one_upstream_in_order() {
    let gateway = Arc::new(Fake::new(echo));
    let pipelined = format!("{}{}{}", get("/1"), get("/2"), get("/3"));
    let answer = talk(connect(&gateway), pipelined.as_bytes()).await;
    assert_eq!(answer.matches("200 OK").count(), 3, "{answer}");
    let order: Vec<_> = ["/1", "/2", "/3"].iter().map(|path| answer.find(&format!("GET {path} "))).collect();
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{answer}");
    assert_eq!(gateway.made().len(), 1);
}

#[tokio::test]
async fn a_later_request_for_another_host_is_refused() {
    let gateway = Arc::new(Fake::new(echo));
    let text = format!("{}GET /secret HTTP/1.1\r\nHost: other.example\r\n\r\n{}", get("/1"), get("/3"));
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    assert!(answer.contains("GET /1 HTTP/1.1"), "{answer}");
    assert!(answer.contains("HTTP/1.1 403 ") && answer.contains("for another host"), "{answer}");
    let seen = read_requests(&gateway.received()).expect("requests");
    assert_eq!(seen.iter().map(|seen| seen.line.as_str()).collect::<Vec<_>>(), ["GET /1 HTTP/1.1"]);
    assert_eq!(gateway.reasons(), [NetworkReason::HostMismatch]);
}

/// Each of these on a connection to `good.example:8080` is the same host.
#[tokio::test]
async fn the_same_host_in_another_spelling_is_the_same() {
    for (target, host, sent) in [
        ("/p", "GOOD.example", "good.example"),
        ("/p", "good.example.", "good.example"),
        ("/p", "good.example:8080", "good.example:8080"),
        ("http://good.example:8080/p", "good.example:8080", "good.example:8080"),
        ("http://Good.Example:8080/p", "good.example", "good.example"),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let client = connect_to(&gateway, name(GOOD), 8080);
        let answer = talk(client, format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{target} {host}: {answer}");
        let seen = read_requests(&gateway.received()).expect("requests");
        assert_eq!((seen[0].line.as_str(), seen[0].get("host")), ("GET /p HTTP/1.1", vec![sent]));
    }
}

#[tokio::test]
async fn another_host_is_refused_in_every_spelling() {
    for (target, host, reason) in [
        ("/", "other.example", NetworkReason::HostMismatch),
        ("/", "sub.good.example", NetworkReason::HostMismatch),
        ("/", "good.example.other.example", NetworkReason::HostMismatch),
        ("/", "good.example:81", NetworkReason::HostMismatch),
        ("/", "good.example:443", NetworkReason::HostMismatch),
        ("/", "192.0.2.1", NetworkReason::HostMismatch),
        ("/", "[2001:db8::1]", NetworkReason::HostMismatch),
        ("http://other.example/", "good.example", NetworkReason::HostMismatch),
        ("http://good.example/", "other.example", NetworkReason::HostMismatch),
        ("http://good.example:8080/", "good.example", NetworkReason::HostMismatch),
        ("http://other.example@good.example/", "good.example", NetworkReason::BadRequest),
        ("http://good.example@other.example/", "good.example", NetworkReason::BadRequest),
        ("/", "other.example@good.example", NetworkReason::BadRequest),
        ("/", "good.example@other.example", NetworkReason::BadRequest),
        ("/", "good.example:", NetworkReason::BadRequest),
        ("/", "good.example:080", NetworkReason::BadRequest),
        ("/", "good.example:+80", NetworkReason::BadRequest),
        ("/", "good.example:99999", NetworkReason::BadRequest),
        ("/", "good.example:80:80", NetworkReason::BadRequest),
        ("/", "good.example/", NetworkReason::BadRequest),
        ("/", "good.example, other.example", NetworkReason::BadRequest),
        ("/", "good.example other.example", NetworkReason::BadRequest),
        ("/", "good.example%00.other.example", NetworkReason::BadRequest),
        ("/", "0x7f000001", NetworkReason::BadRequest),
        ("/", "127.1", NetworkReason::BadRequest),
        ("/", "2130706433", NetworkReason::BadRequest),
        ("/", "0177.0.0.1", NetworkReason::BadRequest),
        ("/", "[fe80::1%25eth0]", NetworkReason::BadRequest),
        ("/", "[::1", NetworkReason::BadRequest),
        ("/", "[::1]x", NetworkReason::BadRequest),
        ("/", "good\u{e9}.example", NetworkReason::BadRequest),
        ("https://good.example/", "good.example", NetworkReason::BadRequest),
        ("ftp://good.example/", "good.example", NetworkReason::BadRequest),
        ("good.example:80", "good.example", NetworkReason::BadRequest),
        ("*", "good.example", NetworkReason::BadRequest),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = talk(connect(&gateway), text.as_bytes()).await;
        let status = if reason == NetworkReason::HostMismatch { "HTTP/1.1 403 " } else { "HTTP/1.1 400 " };
        assert!(answer.starts_with(status), "{target} {host}: {answer}");
        assert_eq!(gateway.reasons(), [reason], "{target} {host}");
        assert_eq!(gateway.received(), b"", "{target} {host}");
    }
}
