//! HTTP through the whole gateway, its proxies, and an upstream proxy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex};

use cofferdam_egress::event::{NetworkKind, NetworkReason, NetworkVia};

use crate::support::{Inside, echo, is_reset, network, rest, serve, world};

/// A web server that answers every request with its own head, and closes.
fn web() -> u16 {
    serve(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}", head.len());
        (&stream).write_all(answer.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        drop(rest(&stream));
    })
}

fn ask(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0u8; 4096]);
    // A refusal may end in a reset after its text.
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..n]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn plain_requests_must_be_for_the_host_of_the_connection() {
    let (world, port) = (world(), web());
    world.name("good.example", &["127.0.0.1"]);
    let inside = world.inside(&network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]));
    let get = |host: &str| {
        let request = format!("GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(inside.connect_name("good.example", port), &request)
    };
    let answer = get(&format!("good.example:{port}"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("GET /x HTTP/1.1\r\n"), "{answer}");
    let closed = inside.event(NetworkKind::Closed);
    assert!(closed.bytes_up > Some(20) && closed.bytes_down > Some(60), "{closed:?}");
    let answer = get("bad.example");
    assert!(!answer.contains("200 OK"), "{answer}");
    inside.event_of(|event| event.kind == NetworkKind::Refused && event.reason == Some(NetworkReason::HostMismatch));
}

#[test]
fn a_rule_with_methods_passes_only_such_requests() {
    let (world, port) = (world(), web());
    world.name("good.example", &["127.0.0.1"]);
    let mut network = network(&[&format!("good.example:{port}"), "127.0.0.1:*"], &[]);
    network.allow[0].methods = Some(vec!["GET".into()]);
    let inside = world.inside(&network);
    let with = |method: &str| {
        let host = format!("good.example:{port}");
        let request = format!("{method} / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        ask(inside.connect_name("good.example", port), &request)
    };
    assert!(with("GET").contains("200 OK"));
    assert!(!with("DELETE").contains("200 OK"));
    inside.event_of(|event| event.reason == Some(NetworkReason::MethodNotAllowed));
    let mut stream = inside.connect_name("good.example", port);
    stream.write_all(b"\x01opaque").unwrap();
    assert!(is_reset(stream));
    inside.event_of(|event| event.reason == Some(NetworkReason::BadRequest));
}

fn connect(inside: &Inside, to: &str) -> (TcpStream, String) {
    let mut stream = inside.connect((Ipv4Addr::LOCALHOST, 3128));
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&head).into_owned())
}

#[test]
fn the_http_proxy_reaches_what_a_connection_would() {
    let (world, port, web) = (world(), echo(), web());
    world.name("good.example", &["127.0.0.1"]);
    world.name("private.example", &["10.1.2.3"]);
    let allowed = [&format!("good.example:{port},{web}"), "127.0.0.1:*", "private.example:443"];
    let inside = world.inside(&network(&allowed, &[]));
    let (mut stream, head) = connect(&inside, &format!("good.example:{port}"));
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    stream.write_all(&[1, 2, 3]).unwrap();
    let mut back = [0u8; 3];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, [1, 2, 3]);
    assert_eq!(inside.event(NetworkKind::Allowed).via, NetworkVia::HttpProxy);
    for to in [format!("bad.example:{port}"), "good.example:1".into(), format!("127.0.0.1:{port}")] {
        let (_, head) = connect(&inside, &to);
        assert!(!head.starts_with("HTTP/1.1 2"), "{to}: {head}");
    }
    assert!(inside.events().iter().filter(|event| event.kind == NetworkKind::Refused).count() >= 3);
    // A name that is allowed and leads where nothing may be reached is refused in the response, and not by a reset.
    let (mut stream, head) = connect(&inside, "private.example:443");
    let mut body = String::new();
    stream.read_to_string(&mut body).unwrap();
    assert!(head.starts_with("HTTP/1.1 403 ") && body.contains("10.1.2.3 is private"), "{head}{body}");
    inside.event_of(|event| event.reason == Some(NetworkReason::AddressNotPublic));
    let absolute =
        format!("GET http://good.example:{web}/y HTTP/1.1\r\nHost: good.example:{web}\r\nConnection: close\r\n\r\n");
    let answer = ask(inside.connect((Ipv4Addr::LOCALHOST, 3128)), &absolute);
    assert!(answer.contains("200 OK") && answer.contains("GET /y HTTP/1.1\r\n"), "{answer}");
}

/// A proxy that tunnels to this port of loopback, whatever it is asked for, and records the requests.
fn corporate(to: u16, status: &'static str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&asked);
    let port = serve(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0u8; 1];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(stream.read(&mut byte), Ok(1)) {
                return;
            }
            head.push(byte[0]);
        }
        told.lock().unwrap().push(String::from_utf8(head).unwrap());
        stream.write_all(format!("HTTP/1.1 {status}\r\nX-Proxy: yes\r\n\r\n").as_bytes()).unwrap();
        if !status.starts_with('2') {
            return;
        }
        let upstream = TcpStream::connect(("127.0.0.1", to)).unwrap();
        let (mut from, mut into) = (stream.try_clone().unwrap(), upstream.try_clone().unwrap());
        std::thread::spawn(move || {
            std::io::copy(&mut from, &mut into).is_ok() && into.shutdown(Shutdown::Write).is_ok()
        });
        std::io::copy(&mut &upstream, &mut &stream).ok();
        stream.shutdown(Shutdown::Write).ok();
    });
    (port, asked)
}

#[test]
fn allowed_names_go_through_the_upstream_proxy() {
    let world = world();
    let (proxy, asked) = corporate(echo(), "200 Connection established");
    let mut network = network(&["good.example:4443", "8.8.8.8:4443", "10.0.0.0/8:4443"], &["10.1.0.0/16"]);
    network.upstream_proxy = Some(format!("http://us%65r:pass@127.0.0.1:{proxy}").parse().unwrap());
    let inside = world.inside(&network);
    // The test's resolver does not know the name: the proxy does.
    let mut stream = inside.connect_name("good.example", 4443);
    stream.write_all(&[1, 2]).unwrap();
    let mut back = [0u8; 2];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, [1, 2]);
    assert_eq!(inside.event(NetworkKind::Allowed).address, None);
    let head = asked.lock().unwrap()[0].clone();
    assert!(head.starts_with("CONNECT good.example:4443 HTTP/1.1\r\nHost: good.example:4443\r\n"), "{head}");
    assert!(head.contains("\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    let mut stream = inside.connect(([8, 8, 8, 8], 4443));
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0u8; 1]).unwrap();
    assert!(asked.lock().unwrap()[1].starts_with("CONNECT 8.8.8.8:4443 HTTP/1.1\r\n"));
    assert!(is_reset(inside.connect(([10, 1, 0, 1], 4443))));
    assert!(is_reset(inside.connect(([9, 9, 9, 9], 4443))));
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[test]
fn a_refusing_upstream_proxy_is_reported_and_not_bypassed() {
    let world = world();
    let victim = echo();
    world.name("good.example", &["127.0.0.1"]);
    let (proxy, _) = corporate(victim, "407 Proxy Authentication Required");
    let mut network = network(&[&format!("good.example:{victim}"), "127.0.0.1:*"], &[]);
    network.upstream_proxy = Some(format!("http://127.0.0.1:{proxy}").parse().unwrap());
    let inside = world.inside(&network);
    assert!(is_reset(inside.connect_name("good.example", victim)));
    let event = inside.event(NetworkKind::Failed);
    assert!(event.detail.as_ref().is_some_and(|detail| detail.contains("407")), "{event:?}");
    // The same works without the proxy.
    network.upstream_proxy = None;
    let inside = world.inside(&network);
    let mut stream = inside.connect_name("good.example", victim);
    stream.write_all(&[1]).unwrap();
    stream.read_exact(&mut [0u8; 1]).unwrap();
}

#[test]
fn the_api_is_reached_at_its_address_only() {
    let (world, port) = (world(), web());
    let mut with = network(&["good.example:443"], &[]);
    let mut without = with.clone();
    with.api = Some(cofferdam_policy::NetworkApi {
        url: format!("http://127.0.0.1:{port}/base").parse().unwrap(),
        variable: "ISCL_API_URL".into(),
    });
    without.api = None;
    let request = "GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1:3129\r\nConnection: close\r\n\r\n";
    let inside = world.inside(&with);
    let answer = ask(inside.connect((Ipv4Addr::LOCALHOST, 3129)), request);
    assert!(answer.contains("200 OK") && answer.contains("GET /base/v1/x HTTP/1.1\r\n"), "{answer}");
    let event = inside.event(NetworkKind::ApiRequest);
    assert_eq!((event.method.as_deref(), event.status), (Some("GET"), Some(200)));
    // A client that takes no notice of NO_PROXY asks the proxy for it; for another port it gets nothing.
    let inside = world.inside(&with);
    let ask_proxy = |url: &str, host: &str| {
        let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        ask(inside.connect((Ipv4Addr::LOCALHOST, 3128)), &request)
    };
    let answer = ask_proxy("http://127.0.0.1:3129/v1/y", "127.0.0.1:3129");
    assert!(answer.contains("200 OK") && answer.contains("GET /base/v1/y HTTP/1.1\r\n"), "{answer}");
    let event = inside.event(NetworkKind::ApiRequest);
    assert_eq!((event.path.as_deref(), event.status), (Some("/v1/y"), Some(200)));
    for (url, host) in [
        ("http://127.0.0.1:3130/v1/y", "127.0.0.1:3130"),
        ("http://127.0.0.1:3129/v1/y", "good.example"),
        ("http://127.0.0.1:3129/%2e%2e/up", "127.0.0.1:3129"),
    ] {
        let answer = ask_proxy(url, host);
        assert!(!answer.contains("200 OK") && !answer.contains("GET /base"), "{url}: {answer}");
    }
    // Its own address is not reachable.
    assert!(is_reset(inside.connect(([127, 0, 0, 2], 3129))));
    assert!(is_reset(inside.connect((Ipv4Addr::LOCALHOST, port))));
    let inside = world.inside(&without);
    assert!(is_reset(inside.connect((Ipv4Addr::LOCALHOST, 3129))));
    let answer = ask(
        inside.connect((Ipv4Addr::LOCALHOST, 3128)),
        "GET http://127.0.0.1:3129/v1/x HTTP/1.1\r\nHost: 127.0.0.1:3129\r\nConnection: close\r\n\r\n",
    );
    assert!(answer.contains("403"), "{answer}");
}
