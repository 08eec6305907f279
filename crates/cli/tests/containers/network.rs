//! The network modes: none, a namespace of its own, the egress gateway, and the host's network.

use std::io::Write as _;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::thread;

use crate::Test;
use crate::world::World;

pub(crate) const TESTS: &[Test] = &[
    ("network::none_reaches_no_address", none_reaches_no_address),
    ("network::an_allowed_address_is_reached_and_no_other", an_allowed_address),
    ("network::an_api_is_passed_through", an_api),
];

/// A server that greets its clients, on every address of the host.
fn greeter(words: &'static str) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 512];
            stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).ok();
            std::io::Read::read(&mut stream, &mut request).ok();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}", words.len())
                .ok();
        }
    });
    port
}

/// An address of the host's that is not its loopback; nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

fn none_reaches_no_address(world: &World) {
    let port = greeter("hello").to_string();
    for address in ["127.0.0.1".to_owned(), own_address().map_or("127.0.0.1".into(), |ip| ip.to_string())] {
        let run = world.run(&["--network", "loopback"], &["/bin/probe", "reach", &address, &port]);
        assert_eq!((run.code, run.text("outcome")), (10, "exited"), "{address}: {run:?}");
        let none = world.run(&[], &["/bin/probe", "reach", &address, &port]);
        assert_eq!(none.code, 10, "{address}: {none:?}");
    }
    if world.runtime.backend == "oci:runsc" {
        return; // what gVisor's own network code makes of the host's is its own matter
    }
    let host = world.run(&["--network", "host"], &["/bin/probe", "reach", "127.0.0.1", &port]);
    if host.code == 125 {
        assert!(host.outcome["error"].to_string().contains("network"), "{host:?}");
    } else {
        assert!(host.text("stdout").starts_with("reached HTTP/1.1 200"), "{host:?}");
    }
}

fn an_allowed_address(world: &World) {
    let Some(address) = own_address() else {
        eprintln!("skipped: the host has no address but its loopback");
        return;
    };
    let (allowed, forbidden) = (greeter("allowed"), greeter("forbidden"));
    let allow = format!("{address}:{allowed}");
    let (to, by_port) = (address.to_string(), |port: u16| port.to_string());
    // The gateway reports a refusal, and a program that ends at once does not wait for that.
    let script = format!("probe reach {to} $0; code=$?; sleep 0.5; exit $code");
    let get = |port: u16| world.run(&["--allow", &allow], &["/bin/sh", "-c", &script, &by_port(port)]);
    let yes = get(allowed);
    if yes.code == 125 {
        assert!(yes.outcome["error"].to_string().contains("network"), "{yes:?}");
        assert!(
            cofferdam_test_containers::engine::uid() != 0 || world.runtime.backend == "oci:runsc",
            "no gateway for {}: {yes:?}",
            world.runtime.backend
        );
        return;
    }
    assert!(yes.code == 0 && yes.text("stdout").ends_with("allowed\n"), "{yes:?}");
    assert_eq!(yes.outcome["network"]["connections"], 1, "{yes:?}");
    let no = get(forbidden);
    assert!(no.code != 0 && !no.text("stdout").contains("forbidden"), "{no:?}");
    assert!(no.outcome["network"]["refused"].as_u64().is_some_and(|n| n > 0), "{no:?}");
}

fn an_api(world: &World) {
    let port = greeter("of the host");
    let url = format!("http://127.0.0.1:{port}");
    let run = world.run(&["--api", &url], &["/bin/sh", "-c", "echo $ISCL_API_URL; probe reach 127.0.0.1 3129"]);
    if run.code == 125 {
        assert!(run.outcome["error"].to_string().contains("network"), "{run:?}");
        assert!(
            cofferdam_test_containers::engine::uid() != 0 || world.runtime.backend == "oci:runsc",
            "no API for {}: {run:?}",
            world.runtime.backend
        );
        return;
    }
    let said = run.text("stdout");
    assert!(run.code == 0 && said.starts_with("http://127.0.0.1:3129\nreached HTTP/1.1 200"), "{run:?}");
    assert!(said.ends_with("of the host\n"), "{run:?}");
}
