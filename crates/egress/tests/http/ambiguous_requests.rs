//! Requests that programs are known to read in different ways (request smuggling): each is refused before any of it is
//! forwarded, and its plain control passes. What follows it on the connection never reaches upstream.

use std::sync::Arc;

use cofferdam_egress::event::{NetworkKind, NetworkReason};

use crate::support::{Fake, GOOD, OTHER, connect, echo, read_requests, talk};

/// A request after each ambiguous one, which one parser would take for a body, and another for the next request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: other.example\r\n\r\n";

async fn refused(text: &[u8], why: &str) {
    let gateway = Arc::new(Fake::new(echo));
    let answer = talk(connect(&gateway), text).await;
    let shown = String::from_utf8_lossy(text);
    let status: u16 = answer.get(9..12).and_then(|text| text.parse().ok()).unwrap_or(0);
    assert!([400, 408, 431].contains(&status), "{shown:?}: {answer}");
    assert!(answer.contains("connection: close\r\n"), "{shown:?}: {answer}");
    assert!(answer.contains(why), "{shown:?}: {answer}");
    assert!(!answer.contains("200 OK"), "{shown:?}: {answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::BadRequest], "{shown:?}");
    let event = &gateway.events()[0];
    assert_eq!(event.kind, NetworkKind::Refused);
    // The destination is known before the request can be parsed.
    assert_eq!((event.host.as_deref(), event.port), (Some(GOOD), Some(80)), "{shown:?}: {event:?}");
    assert!(event.detail.as_deref().is_some_and(|detail| detail.contains(why)), "{shown:?}: {event:?}");
    let received = gateway.received();
    assert!(read_requests(&received).is_ok_and(|seen| seen.is_empty()), "{shown:?}: {received:?}");
}

async fn allowed(text: &str) {
    let gateway = Arc::new(Fake::new(echo));
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{text:?}: {answer}");
    assert_eq!(gateway.reasons(), [], "{text:?}");
}

/// Heads, which begin with `POST / HTTP/1.1` and Host.
#[tokio::test]
async fn lengths_and_encodings_are_read_in_one_way() {
    for (headers, why) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "both"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "both"),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", "more than one Content-Length"),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "more than one Content-Length"),
        ("Content-Length: 5, 5\r\n", "not a plain number"),
        ("Content-Length: +5\r\n", "not a plain number"),
        ("Content-Length: -5\r\n", "not a plain number"),
        ("Content-Length: 0x5\r\n", "not a plain number"),
        ("Content-Length: 05\r\n", "not a plain number"),
        ("Content-Length: 5 \t5\r\n", "not a plain number"),
        ("Content-Length: \r\n", "not a plain number"),
        ("Content-Length: 5;\r\n", "not a plain number"),
        ("Content-Length: 99999999999999999999999\r\n", "not a plain number"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: gzip, chunked\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: chunked, identity\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: xchunked\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: chunked;q=1\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: \"chunked\"\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: identity\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: cow\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: CHUNKED\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding:\r\n", "not exactly `chunked`"),
        ("Transfer-Encoding: \x0bchunked\r\n", "control character"),
        ("Transfer-Encoding\x0b: chunked\r\n", "control character"),
        ("Transfer-Encoding : chunked\r\n", "space before a header's colon"),
        ("Transfer-Encoding\t: chunked\r\n", "space before a header's colon"),
        ("Content-Length : 5\r\n", "space before a header's colon"),
        ("X: y\r\n Transfer-Encoding: chunked\r\n", "folded"),
        ("Transfer-Encoding:\r\n chunked\r\n", "not exactly `chunked`"),
        ("X: y\r\n\tz\r\n", "folded"),
        (" X: y\r\n", "folded"),
        ("X: y\nTransfer-Encoding: chunked\r\n", "line feed alone"),
        ("X: y\rTransfer-Encoding: chunked\r\n", "carriage return"),
        ("X: y\r\r\n", "carriage return"),
        ("X: y\0z\r\n", "control character"),
        ("X: \x7f\r\n", "control character"),
        ("X\0: y\r\n", "control character"),
        ("X y: z\r\n", "name is not a word"),
        ("X[y]: z\r\n", "name is not a word"),
        (": z\r\n", "name is not a word"),
        ("no colon\r\n", "name is not a word"),
        ("Content_Length: 5\r\n", "almost"),
        ("Transfer_Encoding: chunked\r\n", "almost"),
        ("#Content-Length: 5\r\n", "almost"),
        ("Host.: other.example\r\n", "almost"),
        ("'Host: other.example\r\n", "almost"),
        ("Host: good.example\r\n", "more than one Host"),
        ("Host: other.example\r\n", "more than one Host"),
        ("hOST: good.example\r\n", "more than one Host"),
        ("Connection: close, Host\r\n", "Connection names"),
        ("Connection: content-length\r\n", "Connection names"),
        ("Connection: Authorization\r\n", "Connection names"),
        ("Expect: 200-ok\r\n", "Expect is not"),
    ] {
        for rest in ["", "0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"] {
            let text = format!("POST / HTTP/1.1\r\nHost: good.example\r\n{headers}\r\n{rest}{SMUGGLED}");
            refused(text.as_bytes(), why).await;
        }
    }
    for headers in [
        "Content-Length: 0\r\n",
        "Content-Length:0\r\n",
        "X:\ty \r\n",
        "X: \u{fc}\r\n",
        "X-Host: y\r\n",
        "Hosts: y\r\n",
        "Connection: keep-alive, X-Mine\r\n",
    ] {
        allowed(&format!("POST / HTTP/1.1\r\nHost: good.example\r\n{headers}\r\n")).await;
    }
    allowed("POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").await;
    allowed("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello").await;
}

#[tokio::test]
async fn request_lines_are_read_in_one_way() {
    for (line, why) in [
        ("GET / HTTP/1.1\n", "line feed alone"),
        ("GET / HTTP/1.1\r", "carriage return"),
        ("GET /\r\n", "neither HTTP/1.1"),
        ("GET\r\n", "request line"),
        ("\r\nGET / HTTP/1.1\r\n", "request line"),
        ("GET  / HTTP/1.1\r\n", "request line"),
        ("GET /  HTTP/1.1\r\n", "request line"),
        (" GET / HTTP/1.1\r\n", "request line"),
        ("GET / HTTP/1.1 \r\n", "request line"),
        ("GET\t/ HTTP/1.1\r\n", "neither HTTP/1.1"),
        ("GET /a b HTTP/1.1\r\n", "request line"),
        ("GET /a\tb HTTP/1.1\r\n", "percent-encoded"),
        ("GET /a\0b HTTP/1.1\r\n", "control character"),
        ("GET /\u{fc} HTTP/1.1\r\n", "percent-encoded"),
        ("GET /a#b HTTP/1.1\r\n", "percent-encoded"),
        ("GET / HTTP/1.2\r\n", "neither HTTP/1.1"),
        ("GET / HTTP/2.0\r\n", "neither HTTP/1.1"),
        ("GET / HTTP/0.9\r\n", "neither HTTP/1.1"),
        ("GET / http/1.1\r\n", "neither HTTP/1.1"),
        ("GET / HTTP/1.10\r\n", "neither HTTP/1.1"),
        ("GET / HTTP/01.1\r\n", "neither HTTP/1.1"),
        ("GET / HTTPS/1.1\r\n", "neither HTTP/1.1"),
        ("G(T / HTTP/1.1\r\n", "method is not a word"),
        ("G\u{fc}T / HTTP/1.1\r\n", "method is not a word"),
        ("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\n", "method is not a word"),
        ("CONNECT good.example:443 HTTP/1.1\r\n", "CONNECT is for the proxy"),
    ] {
        refused(format!("{line}Host: good.example\r\n\r\n{SMUGGLED}").as_bytes(), why).await;
    }
    refused(b"GET / HTTP/1.1\r\n\r\n", "no Host").await;
    refused(b"GET / HTTP/1.0\r\n\r\n", "no Host").await;
    refused(b"GET / HTTP/1.1\r\nHost:\r\n\r\n", "Host header is empty").await;
    refused(b"GET / HTTP/1.1\r\nHost: \t \r\n\r\n", "Host header is empty").await;
    refused(b"POST / HTTP/1.0\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.0 has no")
        .await;
    allowed("GET /a?b=c&d=%20 HTTP/1.1\r\nHost: good.example\r\n\r\n").await;
    allowed("PROPFIND / HTTP/1.1\r\nHost: good.example\r\n\r\n").await;
    allowed("OPTIONS * HTTP/1.1\r\nHost: good.example\r\n\r\n").await;
    allowed("GET / HTTP/1.1\r\nhost:good.example\r\n\r\n").await;
}

/// A body with a fault ends there: upstream receives no end of the request, and nothing after it.
#[tokio::test]
async fn chunks_are_read_in_one_way() {
    for (chunks, why) in [
        ("5;a=b\r\nhello\r\n0\r\n\r\n", "extension"),
        ("5;\r\nhello\r\n0\r\n\r\n", "extension"),
        ("5 \r\nhello\r\n0\r\n\r\n", "size"),
        (" 5\r\nhello\r\n0\r\n\r\n", "size"),
        ("0x5\r\nhello\r\n0\r\n\r\n", "size"),
        ("+5\r\nhello\r\n0\r\n\r\n", "size"),
        ("-5\r\nhello\r\n0\r\n\r\n", "size"),
        ("\r\nhello\r\n0\r\n\r\n", "size"),
        ("g\r\nhello\r\n0\r\n\r\n", "size"),
        ("fffffffffffffffff\r\nhello\r\n0\r\n\r\n", "size"),
        ("00000000000000000005\r\nhello\r\n0\r\n\r\n", "size"),
        ("5\nhello\r\n0\r\n\r\n", "line feed"),
        ("5\rhello\r\n0\r\n\r\n", "carriage return"),
        ("5\r\nhello\n0\r\n\r\n", "does not end"),
        ("5\r\nhelloX\r\n0\r\n\r\n", "does not end"),
        ("4\r\nhello\r\n0\r\n\r\n", "does not end"),
        ("6\r\nhello\r\n0\r\n\r\n", "does not end"),
        ("5\r\nhello\r\n0\r\nHost: other.example\r\n\r\n", "trailers"),
        ("5\r\nhello\r\n0\r\nContent-Length: 5\r\n\r\n", "trailers"),
        ("5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", "trailers"),
        ("5\r\nhello\r\n0\r\nX : y\r\n\r\n", "colon"),
        ("5\r\nhello\r\n0\r\nX: y\n\r\n", "line feed"),
        ("5\r\nhello\r\n0\n\r\n", "line feed"),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let text =
            format!("POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{SMUGGLED}");
        let answer = talk(connect(&gateway), text.as_bytes()).await;
        assert!(!answer.contains("200 OK"), "{chunks:?}: {answer}");
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(why), "{chunks:?}: {answer:?}");
        assert_eq!(gateway.reasons(), [NetworkReason::BadRequest], "{chunks:?}");
        let received = String::from_utf8_lossy(&gateway.received()).into_owned();
        assert!(!received.contains(OTHER) && !received.contains("smuggled"), "{chunks:?}: {received}");
        assert!(read_requests(&gateway.received()).is_err() || received.is_empty(), "{chunks:?}: {received}");
    }
}

/// A client that ends its stream early is answered, and nothing is refused. Upstream receives no end of the request.
#[tokio::test]
async fn requests_that_the_client_cuts_off_are_no_refusals() {
    let post = "POST / HTTP/1.1\r\nHost: good.example\r\n";
    for text in [
        "GET / HTTP/1.1\r\nHost: good.example".to_owned(),
        "GET / HTTP/1.1\r\nHost: good.example\r\n".to_owned(),
        format!("{post}Content-Length: 9\r\n\r\nhello"),
        format!("{post}Transfer-Encoding: chunked\r\n\r\n5\r\nhel"),
        format!("{post}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"),
        format!("{post}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n"),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let answer = talk(connect(&gateway), text.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("ends in the middle"), "{text:?}: {answer:?}");
        assert_eq!(gateway.reasons(), [], "{text:?}");
        let received = gateway.received();
        assert!(read_requests(&received).is_err() || received.is_empty(), "{text:?}: {received:?}");
    }
    // What is wrong before that is refused as ever.
    refused(b"GET / HTTP/1.1\r\nHost: good.example\nX", "line feed alone").await;
}

#[tokio::test]
async fn heads_are_limited() {
    let line = "X-Filler: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n";
    refused(
        format!("GET / HTTP/1.1\r\nHost: good.example\r\n{}\r\n", line.repeat(1_000_000 / line.len())).as_bytes(),
        "64 KiB",
    )
    .await;
    refused(
        format!("GET / HTTP/1.1\r\nHost: good.example\r\nX: {}\r\n\r\n", "a".repeat(1_000_000)).as_bytes(),
        "64 KiB",
    )
    .await;
    refused(format!("GET /{} HTTP/1.1\r\nHost: good.example\r\n\r\n", "a".repeat(1_000_000)).as_bytes(), "64 KiB")
        .await;
    refused(format!("GET / HTTP/1.1\r\nHost: good.example\r\n{}\r\n", "X: y\r\n".repeat(100)).as_bytes(), "100 lines")
        .await;
    allowed(&format!("GET / HTTP/1.1\r\nHost: good.example\r\n{}\r\n", "X: y\r\n".repeat(99))).await;
    allowed(&format!("GET / HTTP/1.1\r\nHost: good.example\r\nX: {}\r\n\r\n", "a".repeat(60_000))).await;
}

#[tokio::test]
async fn requests_before_a_refused_head_are_answered() {
    let gateway = Arc::new(Fake::new(echo));
    let text = "GET /1 HTTP/1.1\r\nHost: good.example\r\n\r\nGET /2 HTTP/1.1\r\nHost: good.example\r\nHost: other.example\r\n\r\n";
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    let (first, second) = (answer.find("200 OK"), answer.find("HTTP/1.1 400 "));
    assert!(first.is_some() && first < second, "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::BadRequest]);
}
