//! Streaming: bodies, back-pressure, keep-alive, upgrades, time limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cofferdam_egress::event::{NetworkKind, NetworkReason};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;

use crate::support::{Fake, Noted, connect, echo, read_request, read_requests, talk};

/// An upstream that reads one head, sends a fixed response, and then holds the connection for `hold`.
fn says(answer: impl Into<String>) -> Fake {
    let answer = answer.into();
    Fake::new(move |mut stream: DuplexStream, noted: Noted| {
        let answer = answer.clone();
        async move {
            let mut space = [0; 4096];
            let mut all = Vec::new();
            while !all.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut space).await {
                    Ok(0) | Err(_) => return,
                    Ok(count) => {
                        noted.add(&space[..count]);
                        all.extend_from_slice(&space[..count]);
                    }
                }
            }
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
            while let Ok(count @ 1..) = stream.read(&mut space).await {
                noted.add(&space[..count]);
            }
        }
    })
}

/// Reads one head, byte by byte.
async fn head(stream: &mut DuplexStream) {
    until(stream, "\r\n\r\n").await;
}

async fn until(client: &mut DuplexStream, end: &str) -> String {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(end.as_bytes()) {
        let read = timeout(Duration::from_secs(1000), client.read(&mut byte)).await.expect("in time").expect("read");
        assert_eq!(read, 1, "the end came after {:?}", String::from_utf8_lossy(&all));
        all.push(byte[0]);
    }
    String::from_utf8(all).expect("text")
}

const GET: &str = "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";

#[tokio::test]
async fn hop_by_hop_headers_do_not_reach_upstream() {
    let gateway = Arc::new(Fake::new(echo));
    let text = "GET / HTTP/1.1\r\nHost: good.example\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n\
                Proxy-Authorization: Basic x\r\nProxy-Anything: y\r\nTE: gzip\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n\
                X-Yours: 2\r\nAccept: */*\r\n\r\n";
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = read_requests(&gateway.received()).expect("requests");
    let mut names: Vec<_> = seen[0].headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Accept", "Host", "X-Yours"]);
}

#[tokio::test]
async fn hop_by_hop_headers_of_responses_are_removed() {
    let gateway = Arc::new(says(
        "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authenticate: Basic\r\nX-End: 2\r\n\
         Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: 2\r\n\r\nok",
    ));
    let answer = talk(connect(&gateway), GET.as_bytes()).await;
    assert!(answer.contains("X-End: 2\r\n") && answer.contains("Set-Cookie: a=b\r\nSet-Cookie: c=d\r\n"), "{answer}");
    let lower = answer.to_lowercase();
    assert!(!lower.contains("x-hop") && !lower.contains("keep-alive") && !lower.contains("proxy-"), "{answer}");
    assert!(!lower.contains("date:"), "nothing is added: {answer}");
}

#[tokio::test]
async fn responses_without_a_body_end_with_their_head() {
    for (request, answer) in [
        ("HEAD / HTTP/1.1\r\nHost: good.example\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
        (GET, "HTTP/1.1 204 No Content\r\n\r\n"),
        (GET, "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n"),
    ] {
        let gateway = Arc::new(says(answer));
        let mut client = connect(&gateway);
        client.write_all(request.as_bytes()).await.expect("request");
        let head = until(&mut client, "\r\n\r\n").await;
        assert_eq!(head.lines().next(), answer.lines().next());
        assert_eq!(head.to_lowercase().contains("content-length: 500"), answer.contains("500"), "{head}");
        // Keep-alive: another request is answered, over a new upstream connection if the first is gone.
        drop(client);
    }
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_response_until_close() {
    let gateway = Arc::new(says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"));
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.0\r\nHost: good.example\r\n\r\n").await.expect("request");
    let mut answer = String::new();
    timeout(Duration::from_secs(5), client.read_to_string(&mut answer)).await.expect("an end").expect("answer");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
}

#[tokio::test]
async fn chunks_and_trailers_go_both_ways() {
    let gateway = Arc::new(says(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
    ));
    let mut client = connect(&gateway);
    let text = "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nTrailer: X-Check\r\nTE: trailers\r\n\r\n\
                3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Check: 9\r\n\r\n";
    client.write_all(text.as_bytes()).await.expect("request");
    let answer = until(&mut client, "\r\n0\r\n").await + &until(&mut client, "\r\n\r\n").await;
    assert!(answer.contains("5\r\nhello\r\n0\r\n") && answer.to_lowercase().contains("x-sum: 7"), "{answer}");
    let received = gateway.received();
    let (seen, rest) = read_request(&received).expect("a whole request");
    assert_eq!((seen.body.as_slice(), rest), (b"abc0123456789".as_slice(), b"".as_slice()));
    assert_eq!(
        seen.trailers.iter().map(|(name, value)| (name.to_lowercase(), value.as_str())).collect::<Vec<_>>(),
        [("x-check".to_owned(), "9")]
    );
}

#[tokio::test]
async fn a_body_is_sent_when_upstream_asks_for_it() {
    let gateway = Arc::new(Fake::new(|mut stream: DuplexStream, noted: Noted| async move {
        let mut space = [0; 4096];
        let count = stream.read(&mut space).await.expect("head");
        noted.add(&space[..count]);
        assert!(String::from_utf8_lossy(&space[..count]).ends_with("\r\n\r\n"), "the head alone");
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.expect("continue");
        let count = stream.read(&mut space).await.expect("body");
        noted.add(&space[..count]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("answer");
    }));
    let mut client = connect(&gateway);
    let head = "PUT / HTTP/1.1\r\nHost: good.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.write_all(head.as_bytes()).await.expect("head");
    assert_eq!(until(&mut client, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").await.expect("body");
    assert!(until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let received = gateway.received();
    assert_eq!(read_request(&received).expect("a request").0.body, b"hello");
}

#[tokio::test]
async fn a_body_that_upstream_does_not_want_is_not_asked_for() {
    let gateway = Arc::new(says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"));
    let mut client = connect(&gateway);
    let head = "PUT / HTTP/1.1\r\nHost: good.example\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.write_all(head.as_bytes()).await.expect("head");
    let answer = until(&mut client, "\r\n\r\nno").await;
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("100 Continue"), "{answer}");
}

/// As much as fits into the buffers on the path, and not the rest: a megabyte is a small part of what is sent.
#[tokio::test]
async fn a_body_waits_for_a_reader_in_both_directions() {
    let gateway = Arc::new(Fake::new(|stream: DuplexStream, _: Noted| async move {
        let (_stream, ()) = (stream, std::future::pending().await);
    }));
    let mut client = connect(&gateway);
    let size = 64 * 1024 * 1024;
    client
        .write_all(format!("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: {size}\r\n\r\n").as_bytes())
        .await
        .expect("head");
    let mut sent = 0;
    while let Ok(count) = timeout(Duration::from_millis(300), client.write(&[7; 16 * 1024])).await {
        sent += count.expect("write");
        assert!(sent < 1024 * 1024, "upstream reads nothing, and yet the client can send");
    }

    let made = Arc::new(AtomicUsize::new(0));
    let gateway = Arc::new(Fake::new({
        let made = Arc::clone(&made);
        move |mut stream: DuplexStream, _: Noted| {
            let made = Arc::clone(&made);
            async move {
                head(&mut stream).await;
                stream
                    .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").as_bytes())
                    .await
                    .expect("head");
                while let Ok(count) = stream.write(&[7; 16 * 1024]).await {
                    made.fetch_add(count, Ordering::Relaxed);
                }
            }
        }
    }));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let waiting = made.load(Ordering::Relaxed);
    assert!((1..1024 * 1024).contains(&waiting), "{waiting} bytes wait for a client that reads nothing");
    let mut space = vec![0; 1024 * 1024];
    client.read_exact(&mut space).await.expect("answer");
    assert!(made.load(Ordering::Relaxed) > waiting);
}

#[tokio::test]
async fn a_big_body_arrives_whole() {
    let gateway = Arc::new(Fake::new(echo));
    let body = "0123456789abcdef".repeat(64 * 1024);
    let text = format!("POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: {}\r\n\r\n{body}{GET}", body.len());
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    assert_eq!(answer.matches("200 OK").count(), 2, "{answer}");
    let seen = read_requests(&gateway.received()).expect("requests");
    assert!(seen[0].body == body.as_bytes() && seen[1].body.is_empty());
}

#[tokio::test]
async fn server_sent_events_are_not_delayed() {
    let gateway = Arc::new(Fake::new(|mut stream: DuplexStream, _: Noted| async move {
        head(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("head");
        for _ in 0..3 {
            stream.write_all(b"9\r\ndata: x\n\n\r\n").await.expect("event");
            // Upstream sends the next event when the client has asked for it, which it does after this one.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending::<()>().await;
    }));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    for _ in 0..3 {
        until(&mut client, "data: x\n\n").await;
    }
}

const SOCKET: &str = "GET /chat HTTP/1.1\r\nHost: good.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[tokio::test]
async fn a_websocket_is_opaque_only_after_the_101_of_upstream() {
    let gateway = Arc::new(Fake::new(|mut stream: DuplexStream, noted: Noted| async move {
        let mut space = [0; 4096];
        let count = stream.read(&mut space).await.expect("head");
        noted.add(&space[..count]);
        // The client has sent more already, none of which may have arrived.
        assert!(timeout(Duration::from_millis(200), stream.read(&mut space)).await.is_err());
        let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nfirst";
        stream.write_all(answer.as_bytes()).await.expect("answer");
        let count = stream.read(&mut space).await.expect("opaque");
        stream.write_all(&space[..count]).await.expect("opaque");
        let rest = stream.read(&mut space).await.expect("opaque");
        stream.write_all(&space[..rest]).await.expect("opaque");
    }));
    let mut client = connect(&gateway);
    client.write_all(format!("{SOCKET}GET /smuggled\0").as_bytes()).await.expect("request");
    let head = until(&mut client, "\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && head.contains("upgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    assert_eq!(until(&mut client, "smuggled\0").await, "firstGET /smuggled\0");
    client.write_all(b"\x81\x85").await.expect("opaque");
    let mut back = Vec::new();
    client.read_to_end(&mut back).await.expect("opaque");
    assert_eq!(back, b"\x81\x85");
    let received = gateway.received();
    let seen = read_request(&received).expect("a request").0;
    assert_eq!((seen.get("upgrade"), seen.get("connection")), (vec!["websocket"], vec!["Upgrade"]));
}

#[tokio::test]
async fn requests_after_a_refused_upgrade_are_checked() {
    let gateway = Arc::new(Fake::new(echo));
    let text = format!("{SOCKET}{GET}GET /secret HTTP/1.1\r\nHost: other.example\r\n\r\n");
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    assert_eq!(answer.matches("200 OK").count(), 2, "{answer}");
    assert!(answer.contains("HTTP/1.1 403 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::HostMismatch]);
    assert_eq!(read_requests(&gateway.received()).expect("requests").len(), 2);
}

#[tokio::test]
async fn an_unrequested_101_is_refused() {
    for request in [GET, "GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"] {
        let gateway = Arc::new(says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"));
        let answer = talk(connect(&gateway), format!("{request}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let received = String::from_utf8(gateway.received()).expect("text");
        assert!(!received.contains("PRI") && !received.to_lowercase().contains("h2c"), "{received}");
    }
}

/// A server that answers with a requested status reads the next request, which would not be inspected.
#[tokio::test]
async fn a_101_with_a_wrong_key_is_refused() {
    for accept in ["", "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n"] {
        let answer =
            format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{accept}\r\n");
        let gateway = Arc::new(says(answer.leak()));
        let answer = talk(connect(&gateway), format!("{SOCKET}DELETE /secret HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert_eq!(gateway.reasons(), [NetworkReason::Gateway]);
        assert!(!String::from_utf8(gateway.received()).expect("text").contains("DELETE"));
    }
}

#[tokio::test]
async fn a_closed_upstream_connection_is_replaced() {
    let gateway = Arc::new(Fake::new(|mut stream: DuplexStream, noted: Noted| async move {
        let mut space = [0; 4096];
        let count = stream.read(&mut space).await.expect("request");
        noted.add(&space[..count]);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("answer");
    }));
    let mut client = connect(&gateway);
    for turn in 1..=3 {
        client.write_all(GET.as_bytes()).await.expect("request");
        assert!(until(&mut client, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 OK"));
        assert_eq!(gateway.made().len(), turn);
    }
    // A request with a body as well.
    client
        .write_all(b"POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhello")
        .await
        .expect("request");
    assert!(until(&mut client, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(read_requests(&gateway.received()).expect("requests").len(), 4);
}

#[tokio::test]
async fn an_answer_with_two_lengths_is_framed_by_its_chunks() {
    let chunks = "a\r\n0123456789\r\n0\r\n\r\n";
    for (headers, body) in [
        ("Transfer-Encoding: chunked\r\n", chunks),
        ("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", chunks),
        ("Content-Length: 2\r\nTransfer-Encoding: Chunked\r\n", chunks),
        ("Transfer-Encoding: identity, chunked\r\nContent-Length: 2\r\n", chunks),
        ("Transfer-Encoding: identity\r\nContent-Length: 2\r\nConnection: close\r\n", "0123456789"),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}");
        let gateway = Arc::new(Fake::new(move |mut stream: DuplexStream, _: Noted| {
            let answer = answer.clone();
            async move {
                head(&mut stream).await;
                stream.write_all(answer.as_bytes()).await.expect("answer");
            }
        }));
        let got = talk(connect(&gateway), GET.as_bytes()).await;
        assert!(got.starts_with("HTTP/1.1 200 ") && got.contains("\r\n0123456789\r\n0\r\n"), "{headers:?}: {got}");
        assert!(!got.to_lowercase().contains("content-length"), "{headers:?}: {got}");
        assert_eq!(gateway.reasons(), []);
    }
}

#[tokio::test]
async fn an_answer_in_another_transfer_coding_is_refused() {
    for coding in ["gzip, chunked", "gzip", "chunked, gzip", "chunked, chunked", "x"] {
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n1\r\nx\r\n0\r\n\r\n");
        let gateway = Arc::new(says(answer.leak()));
        let got = talk(connect(&gateway), GET.as_bytes()).await;
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains(coding), "{got}");
        assert_eq!(gateway.reasons(), [NetworkReason::Gateway]);
    }
}

#[tokio::test]
async fn an_invalid_response_is_a_failure() {
    for answer in
        ["garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "", "SSH-2.0-x\r\n"]
    {
        let gateway = Arc::new(Fake::new(move |mut stream: DuplexStream, _: Noted| async move {
            head(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.expect("answer");
        }));
        let told = talk(connect(&gateway), GET.as_bytes()).await;
        assert!(told.starts_with("HTTP/1.1 502 "), "{answer:?}: {told}");
        assert_eq!(gateway.reasons(), [NetworkReason::Reset], "{answer:?}");
        assert_eq!(gateway.events()[0].kind, NetworkKind::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_stall_are_reported_and_cut_off() {
    for (text, seconds) in [("GET / HTTP/1.1\r\nHost: good.ex", 10), ("G", 10)] {
        let gateway = Arc::new(Fake::new(echo));
        let mut client = connect(&gateway);
        client.write_all(text.as_bytes()).await.expect("a part");
        let began = tokio::time::Instant::now();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("answer");
        assert!(answer.starts_with("HTTP/1.1 408 "), "{text:?}: {answer}");
        assert_eq!(began.elapsed().as_secs(), seconds);
        assert_eq!(gateway.reasons(), [NetworkReason::TimedOut]);
    }
    // Single bytes do not extend the time limit.
    let gateway = Arc::new(Fake::new(echo));
    let mut client = connect(&gateway);
    let began = tokio::time::Instant::now();
    for byte in "GET / HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".bytes() {
        if client.write_all(&[byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !gateway.reasons().is_empty() {
            break;
        }
    }
    assert!((9..=12).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(gateway.reasons(), [NetworkReason::TimedOut]);
    // An idle connection ends without an event.
    let gateway = Arc::new(Fake::new(echo));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && gateway.reasons().is_empty(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn stalled_responses_time_out() {
    let gateway = Arc::new(Fake::new(|stream: DuplexStream, _: Noted| async move {
        let (_stream, ()) = (stream, std::future::pending().await);
    }));
    let answer = {
        let mut client = connect(&gateway);
        client.write_all(GET.as_bytes()).await.expect("request");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("answer");
        answer
    };
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::UpstreamTimedOut]);

    let gateway = Arc::new(Fake::new(echo));
    let mut client = connect(&gateway);
    client.write_all(b"POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 5\r\n\r\nhel").await.expect("request");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("answer");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::TimedOut]);
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_upstream_connection() {
    let gone = Arc::new(AtomicUsize::new(0));
    let gateway = Arc::new(Fake::new({
        let gone = Arc::clone(&gone);
        move |mut stream: DuplexStream, _: Noted| {
            let gone = Arc::clone(&gone);
            async move {
                head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.expect("head");
                while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                gone.fetch_add(1, Ordering::Relaxed);
            }
        }
    }));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    until(&mut client, "x\r\n").await;
    drop(client);
    for _ in 0..100 {
        if gone.load(Ordering::Relaxed) == 1 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("upstream is still connected");
}

/// An upstream that answers after some seconds, and otherwise says nothing.
fn slow(seconds: u64, gone: &Arc<AtomicUsize>) -> Fake {
    let gone = Arc::clone(gone);
    Fake::new(move |mut stream: DuplexStream, _: Noted| {
        let gone = Arc::clone(&gone);
        async move {
            head(&mut stream).await;
            let mut byte = [0];
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("answer");
                }
                _ = stream.read(&mut byte) => {
                    gone.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_slow_response_reaches_a_client_that_waits() {
    let gone = Arc::default();
    let gateway = Arc::new(slow(250, &gone));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    let began = tokio::time::Instant::now();
    assert!(until(&mut client, "\r\n\r\nok").await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(began.elapsed().as_secs(), 250);
    // Only then it is idle.
    assert_eq!(client.read(&mut [0]).await.expect("the end"), 0);
    assert_eq!(began.elapsed().as_secs(), 325);
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_client_is_answered() {
    let gone = Arc::default();
    let gateway = Arc::new(slow(50, &gone));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    client.shutdown().await.expect("its direction");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok"), "{answer}");
    assert_eq!(gone.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_client_does_not_occupy_a_silent_upstream() {
    let gone = Arc::default();
    let gateway = Arc::new(slow(250, &gone));
    let mut client = connect(&gateway);
    client.write_all(GET.as_bytes()).await.expect("request");
    drop(client);
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}

/// An upstream that answers the first requests normally, and the next one with this, again and again.
fn floods(normally: usize, interim: String, times: usize) -> Fake {
    Fake::new(move |mut stream: DuplexStream, noted: Noted| {
        let interim = interim.clone();
        async move {
            for number in 0.. {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => request.push(byte),
                        Err(_) => return,
                    }
                }
                noted.add(&request);
                let times = if number < normally { 0 } else { times };
                for _ in 0..times {
                    if stream.write_all(interim.as_bytes()).await.is_err() {
                        return;
                    }
                }
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.is_err() {
                    return;
                }
            }
        }
    })
}

#[tokio::test]
async fn interim_responses_are_bounded() {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n".to_owned();
    let long = format!("HTTP/1.1 103 Early Hints\r\nLink: {}\r\n\r\n", "x".repeat(100_000));
    for (before, interim, times, is_served) in [
        (0, &hints, 3, true),
        (1, &hints, 3, true),
        (0, &long, 2, true),
        (0, &hints, 100_000, false),
        (1, &hints, 100_000, false),
        (0, &long, 20, false),
    ] {
        let case = format!("{} bytes {times} times after {before}", interim.len());
        let gateway = Arc::new(floods(before, interim.clone(), times));
        let answer = talk(connect(&gateway), GET.repeat(before + 1).as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), before + usize::from(is_served), "{case}: {answer}");
        assert_eq!(gateway.made().len(), 1, "no request is sent again: {case}");
        if is_served {
            assert_eq!(gateway.reasons(), [], "{case}");
        } else {
            assert!(answer.contains("HTTP/1.1 502 ") && answer.contains("interim responses"), "{case}: {answer}");
            assert_eq!(gateway.reasons(), [NetworkReason::Gateway], "{case}");
        }
    }
}

/// However they arrive: hyper reads all that came at once before it returns.
#[tokio::test]
async fn interim_responses_that_come_at_once_are_bounded_as_well() {
    for (times, is_served) in [(32, true), (33, false), (200, false)] {
        let hints = "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n".repeat(times);
        let gateway = Arc::new(says(format!("{hints}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")));
        let answer = talk(connect(&gateway), GET.as_bytes()).await;
        assert_eq!(answer.starts_with("HTTP/1.1 200 OK"), is_served, "{times}: {answer}");
        assert_eq!(answer.contains("HTTP/1.1 502 "), !is_served, "{times}: {answer}");
    }
}

#[tokio::test]
async fn an_answer_may_have_more_header_lines_than_a_request() {
    for (lines, is_served) in [(99, true), (120, true), (900, true), (1100, false)] {
        let lines_of = "Set-Cookie: a=b\r\n".repeat(lines);
        let gateway = Arc::new(says(format!("HTTP/1.1 200 OK\r\n{lines_of}Content-Length: 2\r\n\r\nok")));
        let answer = talk(connect(&gateway), GET.as_bytes()).await;
        let found = answer.to_lowercase().matches("set-cookie: a=b\r\n").count();
        assert_eq!(found, if is_served { lines } else { 0 }, "{lines}");
        assert_eq!(answer.contains("HTTP/1.1 502 "), !is_served, "{lines}: {answer}");
    }
}

/// An upstream that answers with this head and body part, and then the second part so many times.
fn sends(first: &'static str, then: String, times: usize, sent: Arc<std::sync::atomic::AtomicUsize>) -> Fake {
    Fake::new(move |mut stream: DuplexStream, _: Noted| {
        let (then, sent) = (then.clone(), Arc::clone(&sent));
        async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => request.push(byte),
                    Err(_) => return,
                }
            }
            if stream.write_all(first.as_bytes()).await.is_err() {
                return;
            }
            for _ in 0..times {
                if stream.write_all(then.as_bytes()).await.is_err() {
                    return;
                }
                sent.fetch_add(then.len(), std::sync::atomic::Ordering::Relaxed);
            }
            stream.write_all(b"0\r\n\r\n").await.ok();
        }
    })
}

#[tokio::test]
async fn a_response_that_is_hardly_a_body_is_cut() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let trailers = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n";
    for (first, then, times, ends) in [
        // What comes through: chunks of one byte with more than 2 MiB around them, and a long body.
        (head, "1\r\nx\r\n".repeat(1000), 450, true),
        (head, format!("10000\r\n{}\r\n", "y".repeat(65536)), 64, true),
        (head, "0".repeat(65536), 1024, false),
        (trailers, "A: b\r\n".repeat(1000), 10_000, false),
    ] {
        let case = format!("{}… {times} times", &then[..7]);
        let sent = Arc::default();
        let gateway = Arc::new(sends(first, then.clone(), times, Arc::clone(&sent)));
        // The client does not end its side: it would be taken for gone.
        let mut client = connect(&gateway);
        let request = "GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(Duration::from_secs(60), client.read_to_end(&mut answer)).await.expect("an end").ok();
        let sent = sent.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(answer.ends_with(b"0\r\n\r\n"), ends, "{case}: {sent} bytes");
        assert_eq!(sent == then.len() * times, ends, "{case}: {sent} bytes");
        assert!(ends || sent < 8 << 20, "{case}: {sent} bytes");
    }
}
