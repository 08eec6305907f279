//! The HTTP proxy: tunnels and absolute URLs, by the same rules as captured connections.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_egress::event::NetworkReason;
use cofferdam_egress::http::{GatewayInterface, proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::support::{Fake, GOOD, OTHER, echo, name, read_requests, talk};

fn connect(gateway: &Arc<Fake>) -> DuplexStream {
    let (client, ours) = duplex(16 * 1024);
    let gateway: Arc<dyn GatewayInterface> = gateway.clone();
    tokio::spawn(proxy(gateway, Box::new(ours), None));
    client
}

#[tokio::test]
async fn a_tunnel_is_passed_on_with_every_byte() {
    for text in [
        "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n",
        "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\nProxy-Connection: keep-alive\r\nUser-Agent: x\r\n\r\n",
        "CONNECT GOOD.example.:443 HTTP/1.1\r\n\r\n",
        "CONNECT good.example:443 HTTP/1.0\r\n\r\n",
    ] {
        for early in ["", "early bytes"] {
            let gateway = Arc::new(Fake::new(echo));
            let mut client = connect(&gateway);
            client.write_all(format!("{text}{early}").as_bytes()).await.expect("request");
            let mut answer = vec![0; "HTTP/1.1 200 OK\r\n\r\n".len()];
            client.read_exact(&mut answer).await.expect("answer");
            let answer = String::from_utf8(answer).expect("text");
            assert!(answer.starts_with("HTTP/1.") && answer.ends_with(" 200 OK\r\n\r\n"), "{text:?}: {answer}");
            client.write_all(b" and later ones").await.expect("tunnel");
            client.shutdown().await.expect("tunnel");
            let mut back = String::new();
            client.read_to_string(&mut back).await.expect("echo");
            assert_eq!(back, format!("{early} and later ones"), "{text:?}");
            assert_eq!(*gateway.tunnels.lock().expect("tunnels"), [(name(GOOD), 443)]);
            assert_eq!((gateway.reasons(), gateway.made().len()), (vec![], 0));
        }
    }
}

/// The end of a response that names what would allow it.
macro_rules! allow {
    ($entry:literal) => {
        concat!("; hint: --allow ", $entry, ", `network.allow` of the policy, or `allowed_domains` of the profile\n")
    };
}

#[tokio::test]
async fn a_refused_tunnel_names_what_would_allow_it() {
    for (text, status, reason, hint) in [
        ("evil.example:443", 403, NetworkReason::NotAllowed, allow!("evil.example")),
        ("good.example:22", 403, NetworkReason::PortNotAllowed, allow!("good.example:22")),
        ("192.0.2.7:443", 403, NetworkReason::NotAllowed, allow!("192.0.2.7")),
        ("[2001:db8::7]:443", 403, NetworkReason::NotAllowed, allow!("2001:db8::7")),
        (
            "169.254.169.254:443",
            403,
            NetworkReason::NotAllowed,
            "which gives this machine's credentials to any client\n",
        ),
        ("169.254.7.7:22", 403, NetworkReason::NotAllowed, "; 169.254.7.7 is link-local"),
        ("10.1.2.3:443", 403, NetworkReason::NotAllowed, allow!("10.1.2.3")),
        ("127.0.0.1:443", 403, NetworkReason::NotAllowed, ""),
        ("good.example", 400, NetworkReason::BadRequest, "no port"),
        ("good.example:", 400, NetworkReason::BadRequest, ""),
        ("good.example:0", 400, NetworkReason::BadRequest, ""),
        ("good.example:0443", 400, NetworkReason::BadRequest, ""),
        ("good.example:65536", 400, NetworkReason::BadRequest, ""),
        ("good.example:443:443", 400, NetworkReason::BadRequest, ""),
        ("good.example@evil.example:443", 400, NetworkReason::BadRequest, "user information"),
        ("evil.example@good.example:443", 400, NetworkReason::BadRequest, "user information"),
        ("good.example%00.evil.example:443", 400, NetworkReason::BadRequest, ""),
        ("good.example%2eevil:443", 400, NetworkReason::BadRequest, ""),
        ("good.example\0.evil.example:443", 400, NetworkReason::BadRequest, "control character"),
        ("good.example/:443", 400, NetworkReason::BadRequest, ""),
        ("http://good.example:443", 400, NetworkReason::BadRequest, ""),
        ("/good.example:443", 400, NetworkReason::BadRequest, ""),
        ("*", 400, NetworkReason::BadRequest, ""),
        ("[fe80::1%eth0]:443", 400, NetworkReason::BadRequest, ""),
        ("[fe80::1%25eth0]:443", 400, NetworkReason::BadRequest, ""),
        ("2001:db8::7:443", 400, NetworkReason::BadRequest, ""),
        ("[good.example]:443", 400, NetworkReason::BadRequest, ""),
        ("2130706433:443", 400, NetworkReason::BadRequest, ""),
        ("0x7f.0.0.1:443", 400, NetworkReason::BadRequest, ""),
        ("0x7f000001:443", 400, NetworkReason::BadRequest, ""),
        ("0177.0.0.1:443", 400, NetworkReason::BadRequest, ""),
        ("127.1:443", 400, NetworkReason::BadRequest, ""),
        ("127.0.0.1.:443", 400, NetworkReason::BadRequest, ""),
        ("localhost:443", 400, NetworkReason::BadRequest, ""),
        ("x.localhost:443", 400, NetworkReason::BadRequest, ""),
        ("good..example:443", 400, NetworkReason::BadRequest, ""),
        (".good.example:443", 400, NetworkReason::BadRequest, ""),
        ("*.example:443", 400, NetworkReason::BadRequest, ""),
        (":443", 400, NetworkReason::BadRequest, ""),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let answer =
            talk(connect(&gateway), format!("CONNECT {text} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text:?}: {answer}");
        assert!(answer.contains(hint), "{text:?}: {answer}");
        assert_eq!((gateway.reasons(), gateway.made().len()), (vec![reason], 0), "{text:?}");
        assert_eq!(*gateway.tunnels.lock().expect("tunnels"), [], "{text:?}");
    }
}

#[tokio::test]
async fn a_tunnel_without_a_connection_to_upstream_is_refused() {
    let gateway = Arc::new(Fake::unreachable());
    let answer = talk(connect(&gateway), b"CONNECT good.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::Unreachable]);
}

#[tokio::test]
async fn a_tunnel_with_another_host_or_a_body_is_refused() {
    for (headers, status, reason) in [
        ("Host: other.example:443\r\n", 403, NetworkReason::HostMismatch),
        ("Host: good.example:80\r\n", 403, NetworkReason::HostMismatch),
        ("Host: good.example:443\r\nHost: good.example:443\r\n", 400, NetworkReason::BadRequest),
        ("Host: good.example:443\r\nContent-Length: 5\r\n", 400, NetworkReason::BadRequest),
        ("Host: good.example:443\r\nTransfer-Encoding: chunked\r\n", 400, NetworkReason::BadRequest),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let text = format!("CONNECT good.example:443 HTTP/1.1\r\n{headers}\r\nhello");
        let answer = talk(connect(&gateway), text.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers:?}: {answer}");
        assert_eq!(gateway.reasons(), [reason], "{headers:?}");
        assert_eq!(*gateway.tunnels.lock().expect("tunnels"), [], "{headers:?}");
    }
}

#[tokio::test]
async fn absolute_urls_go_to_their_own_hosts() {
    let gateway = Arc::new(Fake::new(echo));
    let request = |url: &str, host: &str| {
        format!(
            "GET {url} HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\n\r\n"
        )
    };
    let text = [
        request("http://good.example/1", GOOD),
        request("http://other.example:8080/2?q", "other.example:8080"),
        request("http://good.example:80", GOOD),
        request("http://good.example?q", GOOD),
    ]
    .concat();
    let answer = talk(connect(&gateway), text.as_bytes()).await;
    assert_eq!(answer.matches("200 OK").count(), 4, "{answer}");
    let made = gateway.made();
    let ends: Vec<_> = made.iter().map(|made| (made.target.clone(), made.port)).collect();
    assert_eq!(ends, [(name(GOOD), 80), (name(OTHER), 8080), (name(GOOD), 80)]);
    let lines: Vec<Vec<String>> = made
        .iter()
        .map(|made| {
            let seen = read_requests(&made.noted.bytes()).expect("requests");
            assert!(
                seen.iter().all(|seen| seen.headers.iter().all(|(name, _)| !name.to_lowercase().starts_with("proxy-")))
            );
            seen.iter().map(|seen| format!("{} at {}", seen.line, seen.get("host").join(","))).collect()
        })
        .collect();
    assert_eq!(
        lines,
        [
            vec!["GET /1 HTTP/1.1 at good.example"],
            vec!["GET /2?q HTTP/1.1 at other.example:8080"],
            vec!["GET / HTTP/1.1 at good.example", "GET /?q HTTP/1.1 at good.example"],
        ]
    );
}

#[tokio::test]
async fn other_urls_and_non_proxy_requests_are_refused() {
    for (target, host, status, reason, hint) in [
        ("http://evil.example/", "evil.example", 403, NetworkReason::NotAllowed, allow!("evil.example")),
        ("http://good.example:22/", "good.example:22", 403, NetworkReason::PortNotAllowed, ""),
        ("http://127.0.0.1:3129/", "127.0.0.1:3129", 403, NetworkReason::NotAllowed, ""),
        ("http://good.example/", "evil.example", 403, NetworkReason::HostMismatch, ""),
        ("http://evil.example/", "good.example", 403, NetworkReason::HostMismatch, ""),
        ("http://good.example/", "good.example:8080", 403, NetworkReason::HostMismatch, ""),
        ("http://good.example@evil.example/", "good.example", 400, NetworkReason::BadRequest, "user information"),
        ("http://good.example:80@evil.example/", "good.example", 400, NetworkReason::BadRequest, ""),
        ("http://good.example\\@evil.example/", "good.example", 400, NetworkReason::BadRequest, ""),
        ("http://good.example%40evil.example/", "good.example", 400, NetworkReason::BadRequest, ""),
        ("http://2130706433/", "2130706433", 400, NetworkReason::BadRequest, ""),
        ("http:///", "good.example", 400, NetworkReason::BadRequest, ""),
        ("http://", "good.example", 400, NetworkReason::BadRequest, ""),
        ("https://good.example/", "good.example", 400, NetworkReason::BadRequest, "by CONNECT"),
        ("ftp://good.example/", "good.example", 400, NetworkReason::BadRequest, ""),
        ("/", "good.example", 400, NetworkReason::BadRequest, "this is a proxy"),
        ("//good.example/", "good.example", 400, NetworkReason::BadRequest, ""),
        ("good.example", "good.example", 400, NetworkReason::BadRequest, ""),
    ] {
        let gateway = Arc::new(Fake::new(echo));
        let answer = talk(connect(&gateway), format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target:?}: {answer}");
        assert!(answer.contains(hint), "{target:?}: {answer}");
        assert_eq!((gateway.reasons(), gateway.made().len()), (vec![reason], 0), "{target:?}");
    }
}

#[tokio::test]
async fn methods_and_paths_apply_to_absolute_urls() {
    let gateway = Arc::new(Fake { ruled: true, ..Fake::new(echo) });
    let request = |line: &str| format!("{line} HTTP/1.1\r\nHost: good.example\r\n\r\n");
    let answer = talk(connect(&gateway), request("GET http://good.example/public/a").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = talk(connect(&gateway), request("GET http://good.example/private").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("($.network.allow[0])"), "{answer}");
    let answer = talk(connect(&gateway), request("DELETE http://good.example/public/a").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::PathNotAllowed, NetworkReason::MethodNotAllowed]);
    assert_eq!(gateway.made().len(), 1);
}

#[tokio::test]
async fn override_headers_are_refused_by_inspecting_rules() {
    for header in [
        "X-HTTP-Method-Override: DELETE",
        "X_HTTP_Method_Override: DELETE",
        "X-HTTP_Method: DELETE",
        "x-original-url: /private",
        "x_original.url: /private",
        "X-Original-URI: /private",
        "X-Rewrite-URL: /private",
    ] {
        for (ruled, status) in [(true, "HTTP/1.1 400 "), (false, "HTTP/1.1 200 ")] {
            let direct = format!("GET /public/a HTTP/1.1\r\nHost: good.example\r\n{header}\r\n\r\n");
            let proxied = direct.replace(" /public", " http://good.example/public");
            let gateway = Arc::new(Fake { ruled, ..Fake::new(echo) });
            let answer = talk(connect(&gateway), proxied.as_bytes()).await;
            assert!(answer.starts_with(status), "{header}: {answer}");
            let answer = talk(crate::support::connect(&gateway), direct.as_bytes()).await;
            assert!(answer.starts_with(status), "{header}: {answer}");
            assert_eq!(gateway.received().is_empty(), ruled, "{header}");
            assert_eq!(gateway.reasons(), vec![NetworkReason::BadRequest; if ruled { 2 } else { 0 }]);
        }
    }
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_a_failure() {
    let gateway = Arc::new(Fake::unreachable());
    let text = "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n";
    let answer = tokio::time::timeout(Duration::from_secs(5), talk(connect(&gateway), text.as_bytes()))
        .await
        .expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(gateway.reasons(), [NetworkReason::Unreachable]);
}
