//! Sessions whose network leads through the egress gateway: it lives as long as they do, and each call reports its own
//! refusals.

use cofferdam_policy::NetworkMode;

use super::*;

#[test]
fn a_call_reports_its_own_gateway_refusals_and_the_next_none() {
    if !backends().contains(&BackendName::Jail) {
        return;
    }
    let Some(program) = PYTHON.program() else { return };
    let desk = desk(BackendName::Jail, SessionLimits::default());
    let start = || {
        let mut policy = policy(program, BackendName::Jail);
        policy.network.mode = NetworkMode::Allowlist;
        policy.network.allow = vec!["a.example:443,8443".parse().unwrap()];
        Ok(SessionStart { policy, agent: Agent::Python, hands_over: None, recorded: None })
    };
    let run =
        |code: &str| desk.sessions.call(&key("net"), "test", start, call(code)).unwrap_or_else(|e| panic!("{e:?}"));
    let knock = "
def knock(address, port):
    import socket
    s = socket.socket(); s.settimeout(10)
    # A reset that comes before connect has returned, or when something is read.
    try: s.connect((address, port)); s.recv(1)
    except ConnectionResetError: print('reset')";
    assert_eq!(run(knock).violations, []);
    for (address, port) in [("203.0.113.1", 443), ("203.0.113.2", 8443), ("203.0.113.3", 443)] {
        let answer = run(&format!("knock('{address}', {port})"));
        assert_eq!(answer.stdout, "reset\n", "{answer:?}");
        let told: Vec<_> = answer.violations.iter().map(|v| (v.object.as_deref().unwrap_or(""), v.count)).collect();
        assert_eq!(told, [(format!("{address}:{port}").as_str(), 1)], "{answer:?}");
        assert_eq!(run("print('here')").violations, []);
    }
    // The same again, at once: it is the gateway's to count repeats, and each call's to be told of its own.
    for _ in 0..3 {
        let answer = run("knock('203.0.113.3', 443); knock('203.0.113.3', 443)");
        let told: Vec<_> = answer.violations.iter().map(|v| (v.object.as_deref().unwrap_or(""), v.count)).collect();
        assert_eq!(told, [("203.0.113.3:443", 2)], "{answer:?}");
    }
    // A name that is refused, and one that has an address of its own, the same in every call.
    let lookup = |name: &str| {
        format!("import socket\ntry: print(socket.gethostbyname('{name}'))\nexcept socket.gaierror: print('unknown')")
    };
    let answer = run(&lookup("b.example"));
    assert_eq!(answer.stdout, "unknown\n", "{answer:?}");
    assert!(answer.violations.iter().any(|v| v.operation == "resolve" && v.object.as_deref() == Some("b.example")));
    let (one, two) = (run(&lookup("a.example")), run(&lookup("a.example")));
    assert!(one.stdout.starts_with("198.") && one.stdout == two.stdout && one.violations.is_empty(), "{one:?} {two:?}");
    let last = run("import os; os._exit(3)");
    let network = last.ended.and_then(|ended| ended.outcome).and_then(|o| o.network);
    assert!(network.is_some_and(|network| network.refused >= 4), "the whole session's");
}
