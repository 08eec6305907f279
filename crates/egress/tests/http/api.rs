//! The API that is passed through: one base URL, an event for each request, and nothing else is reachable.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_egress::event::{NetworkKind, NetworkReason, NetworkVia};
use cofferdam_egress::http::{Api, Connect, GatewayInterface, api};
use cofferdam_egress::rules::EgressTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::support::{Fake, Noted, echo, grant, read_requests, talk};

const BASE: &str = "http://127.0.0.1:8000/v1";

fn connect(gateway: &Arc<Fake>, base: &str) -> DuplexStream {
    let (client, ours) = duplex(16 * 1024);
    let base = Arc::new(Api::new(&base.parse().expect("a URL")).expect("an API"));
    let connect: Connect = {
        let gateway = Arc::clone(gateway);
        Arc::new(move || gateway.dial(&EgressTarget::Address([127, 0, 0, 1].into()), 8000, &grant()))
    };
    let gateway: Arc<dyn GatewayInterface> = gateway.clone();
    tokio::spawn(api(gateway, Box::new(ours), base, connect));
    client
}

#[tokio::test]
async fn each_request_goes_to_the_base_url_and_is_reported() {
    let gateway = Arc::new(Fake::new(echo));
    let text = "POST /chat?key=secret HTTP/1.1\r\nHost: 127.0.0.1:3129\r\nAuthorization: Bearer token\r\nContent-Length: 5\r\n\r\nhello\
                GET http://127.0.0.1:3129/models HTTP/1.1\r\nHost: localhost:3129\r\n\r\n";
    let answer = talk(connect(&gateway, BASE), text.as_bytes()).await;
    assert_eq!(answer.matches("200 OK").count(), 2, "{answer}");
    let seen = read_requests(&gateway.received()).expect("requests");
    let lines: Vec<_> = seen.iter().map(|seen| (seen.line.as_str(), seen.get("host"))).collect();
    assert_eq!(
        lines,
        [
            ("POST /v1/chat?key=secret HTTP/1.1", vec!["127.0.0.1:8000"]),
            ("GET /v1/models HTTP/1.1", vec!["127.0.0.1:8000"]),
        ]
    );
    assert_eq!((seen[0].get("authorization"), seen[0].body.as_slice()), (vec!["Bearer token"], b"hello".as_slice()));
    let events = gateway.events();
    assert_eq!(events.len(), 2, "{events:?}");
    let first = &events[0];
    assert_eq!((first.kind, first.via, first.status), (NetworkKind::ApiRequest, NetworkVia::Api, Some(200)));
    assert_eq!((first.method.as_deref(), first.path.as_deref()), (Some("POST"), Some("/chat")));
    assert_eq!((first.bytes_up, first.bytes_down), (Some(5), Some("POST /v1/chat?key=secret HTTP/1.1".len() as u64)));
    assert!(first.duration_ms.is_some());
    let all = format!("{events:?}");
    assert!(!all.contains("secret") && !all.contains("token") && !all.contains("hello"), "{all}");
}

#[tokio::test]
async fn nothing_else_can_be_reached() {
    for (line, status, reason) in [
        ("GET http://127.0.0.1:9000/x", 403, NetworkReason::HostMismatch),
        ("GET http://127.0.0.1:8000/v1/x", 403, NetworkReason::HostMismatch),
        ("GET http://evil.example/x", 403, NetworkReason::HostMismatch),
        ("GET https://127.0.0.1:3129/x", 400, NetworkReason::BadRequest),
        ("GET http://a@127.0.0.1:3129/x", 400, NetworkReason::BadRequest),
        ("CONNECT 127.0.0.1:8000", 400, NetworkReason::BadRequest),
        ("GET /../admin", 400, NetworkReason::BadRequest),
        ("GET /a/../../admin", 400, NetworkReason::BadRequest),
        ("GET /%2e%2e/admin", 400, NetworkReason::BadRequest),
        ("GET /%252e%252e/admin", 400, NetworkReason::BadRequest),
        ("GET /..%2fadmin", 400, NetworkReason::BadRequest),
        ("GET /..\\admin", 400, NetworkReason::BadRequest),
        ("GET /..;/admin", 400, NetworkReason::BadRequest),
        ("GET http://127.0.0.1:3129/../admin", 400, NetworkReason::BadRequest),
        ("OPTIONS *", 400, NetworkReason::BadRequest),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let answer =
            talk(connect(&gateway, BASE), format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:3129\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        assert_eq!((gateway.reasons(), gateway.made().len()), (vec![reason], 0), "{line}");
    }
    let gateway = Arc::new(Fake::new(echo));
    let text = "GET //evil.example/../x HTTP/1.1\r\nHost: 127.0.0.1:3129\r\n\r\n";
    let answer = talk(connect(&gateway, "http://127.0.0.1:8000"), text.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "without a prefix every path is the API's own: {answer}");
    assert_eq!(read_requests(&gateway.received()).expect("requests")[0].get("host"), ["127.0.0.1:8000"]);
}

#[tokio::test]
async fn override_headers_are_refused_where_the_url_has_a_path() {
    for header in ["X-Original-URL: /admin", "X_Rewrite_URL: /admin", "X-HTTP-Method-Override: DELETE"] {
        for (base, refused) in [(BASE, true), ("http://127.0.0.1:8000", false)] {
            let gateway = Arc::new(Fake::new(echo));
            let text = format!("GET /x HTTP/1.1\r\nHost: 127.0.0.1:3129\r\n{header}\r\n\r\n");
            let answer = talk(connect(&gateway, base), text.as_bytes()).await;
            let status = if refused { "HTTP/1.1 400 " } else { "HTTP/1.1 200 " };
            assert!(answer.starts_with(status), "{base} {header}: {answer}");
            assert_eq!(gateway.received().is_empty(), refused, "{base} {header}");
            assert_eq!(gateway.reasons(), vec![NetworkReason::BadRequest; usize::from(refused)], "{base} {header}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_the_clients_to_follow() {
    async fn redirecting(mut stream: DuplexStream, noted: Noted) {
        let mut space = [0; 4096];
        let count = stream.read(&mut space).await.expect("request");
        noted.add(&space[..count]);
        let answer = "HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.expect("answer");
    }
    let gateway = Arc::new(Fake::new(redirecting));
    let answer = talk(connect(&gateway, BASE), b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:3129\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 302 ") && answer.contains("Location: http://evil.example/\r\n"), "{answer}");
    assert_eq!((gateway.made().len(), gateway.events()[0].status), (1, Some(302)));
}

#[tokio::test]
async fn an_api_that_is_not_there_is_a_failure() {
    let gateway = Arc::new(Fake::unreachable());
    let answer = talk(connect(&gateway, BASE), b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:3129\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::Unreachable]);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_waiting_client_is_reported() {
    let gateway = Arc::new(Fake::new(|mut stream: DuplexStream, noted: Noted| async move {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            noted.add(&buffer[..count]);
        }
    }));
    let mut client = connect(&gateway, BASE);
    let text = "POST /chat HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
    client.write_all(text.as_bytes()).await.expect("request");
    while !gateway.received().ends_with(b"hello") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(gateway.events(), []);
    drop(client);
    tokio::time::sleep(Duration::from_secs(100)).await;
    let events = gateway.events();
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.kind, event.status, event.bytes_up), (NetworkKind::ApiRequest, None, Some(5)));
    assert_eq!((event.method.as_deref(), event.path.as_deref()), (Some("POST"), Some("/chat")));
}
