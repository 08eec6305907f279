//! One process's gateway with hundreds of sandboxes at once, each with rules of its own: what each may reach it reaches, what
//! only its neighbour may is refused, each gets its own events, and nothing is left.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use cofferdam_engine::network_event::NetworkReason;
use cofferdam_engine::{Ending, Engine, Io, NetworkKind, Outcome};
use cofferdam_policy::{Field, NetworkMode, Policy};

const SANDBOXES: usize = 200;
const PORT: u16 = 2222;
/// Descriptors that so many may need in their owner.
const DESCRIPTORS: u64 = 16 * 1024;

/// The host's proxy: answers who was asked for, once as many are connected as are to be there at once.
struct Proxy {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(at_once: usize) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&asked);
        let all = Arc::new((Mutex::new(0usize), Condvar::new()));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (told, all) = (Arc::clone(&told), Arc::clone(&all));
                std::thread::spawn(move || answer(stream.unwrap(), &told, &all, at_once));
            }
        });
        Proxy { url, asked }
    }
}

fn answer(stream: TcpStream, told: &Mutex<Vec<String>>, all: &(Mutex<usize>, Condvar), at_once: usize) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() {
        return;
    }
    let name = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    while reader.read_line(&mut line).is_ok_and(|n| n > 2) {}
    told.lock().unwrap().push(name.clone());
    let (count, changed) = all;
    let mut count = count.lock().unwrap();
    *count += 1;
    changed.notify_all();
    // All of them at once, or none: whoever waits here is a sandbox that is connected.
    let waited = changed.wait_timeout_while(count, Duration::from_secs(25), |count| *count < at_once).unwrap();
    if waited.1.timed_out() {
        return;
    }
    drop(waited);
    let text = format!("HTTP/1.1 200 OK\r\n\r\nyou asked for {name}\n");
    if let Err(error) = reader.get_mut().write_all(text.as_bytes()) {
        eprintln!("{name} is gone: {error}");
    }
}

fn name(which: usize) -> String {
    format!("only-{which}.example")
}

/// What reaches its own host, and tries its neighbour's.
fn policy(which: usize, of: usize, proxy: &str) -> Policy {
    let (own, other) = (name(which), name((which + 1) % of));
    let script = format!(
        "exec 3<>/dev/tcp/{own}/{PORT} && printf '\\1\\2' >&3 && read -r line <&3 && echo \"$line\"\n\
         exec 3>&-\n(exec 4<>/dev/tcp/{other}/{PORT}) 2>/dev/null && echo reached || echo refused"
    );
    let mut policy = Policy::base();
    policy.command.argv = ["/bin/bash", "-c", &script].map(str::to_owned).to_vec();
    policy.limits.wall_ms = 60_000;
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec![format!("{own}:{PORT}").parse().unwrap()];
    policy.network.upstream_proxy = Some(proxy.parse().unwrap());
    policy.allow_partial(Field::UpstreamProxy);
    policy
}

#[track_caller]
fn is_its_own(which: usize, of: usize, o: &Outcome) {
    let (own, other) = (name(which), name((which + 1) % of));
    let said = format!("you asked for {own}:{PORT}\nrefused\n");
    assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Exited, said.as_str()), "{which}: {o:?}");
    let network = o.network.as_ref().unwrap();
    assert_eq!((network.connections, network.lost), (1, 0), "{which}: {network:?}");
    assert!(network.refused > 0, "{which}: {network:?}");
    for event in &network.events {
        let host = event.host.as_deref().unwrap_or_default();
        match event.kind {
            NetworkKind::Refused => {
                assert_eq!(
                    (host, event.reason),
                    (other.as_str(), Some(NetworkReason::NotAllowed)),
                    "{which}: {event:?}"
                );
            }
            _ => assert_eq!(host, own, "{which}: {event:?}"),
        }
    }
    assert!(
        o.violations.iter().all(|v| v.object.as_deref().is_some_and(|it| it.starts_with(&other))),
        "{which}: {o:?}"
    );
}

/// So many at once, through the gateway of this process; their outcomes.
fn run_all(engine: &Engine, count: usize) -> Option<Vec<Outcome>> {
    let proxy = Proxy::start(count);
    let (sent, outcomes) = mpsc::channel();
    let mut prepared = Vec::new();
    for which in 0..count {
        match engine.prepare(&policy(which, count, &proxy.url)) {
            Ok(one) => prepared.push((which, one)),
            Err(failure) => {
                eprintln!("skipped: {}", failure.message);
                assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{failure:?}");
                return None;
            }
        }
    }
    std::thread::scope(|scope| {
        for (which, one) in prepared {
            let sent = sent.clone();
            scope.spawn(move || sent.send((which, one.run(Io::default()))).unwrap());
        }
    });
    drop(sent);
    let mut all: Vec<(usize, Outcome)> = outcomes.into_iter().collect();
    all.sort_by_key(|(which, _)| *which);
    let mut asked = proxy.asked.lock().unwrap().clone();
    asked.sort_unstable();
    let mut expected: Vec<String> = (0..count).map(|which| format!("{}:{PORT}", name(which))).collect();
    expected.sort_unstable();
    let without = all.iter().find(|(which, _)| !asked.contains(&format!("{}:{PORT}", name(*which))));
    assert_eq!(asked, expected, "one connection each went out, and none to a neighbour's for it: {without:?}");
    Some(all.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Descriptors and threads of this process, and its memory in KiB.
fn held() -> (usize, usize, u64) {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (count("/proc/self/fd"), count("/proc/self/task"), line.split_whitespace().next().unwrap().parse().unwrap())
}

/// The same once no more of them go.
fn settled() -> (usize, usize, u64) {
    let (mut last, mut since, begun) = (held(), Instant::now(), Instant::now());
    while since.elapsed() < Duration::from_millis(500) && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
        let now = held();
        if (now.0, now.1) != (last.0, last.1) {
            (last, since) = (now, Instant::now());
        }
    }
    held()
}

#[test]
fn hundreds_of_sandboxes_share_a_gateway_and_no_rules_and_leave_nothing() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current: Some(enough), ..limit }).unwrap();
    let count = SANDBOXES.min(usize::try_from(enough / 64).unwrap_or(SANDBOXES));
    let engine = Engine::probe();
    // What the first run makes for all of them is there.
    let Some(first) = run_all(&engine, 2) else { return };
    first.iter().enumerate().for_each(|(which, outcome)| is_its_own(which, 2, outcome));
    let before = settled();
    let mut after = Vec::new();
    for _ in 0..3 {
        let begun = Instant::now();
        let all = run_all(&engine, count).expect("it was there a moment ago");
        println!("{count} sandboxes at once in {:?}, peak {:?}", begun.elapsed(), held());
        all.iter().enumerate().for_each(|(which, outcome)| is_its_own(which, count, outcome));
        let ids: BTreeSet<&str> = all.iter().map(|outcome| outcome.run_id.as_str()).collect();
        assert_eq!(ids.len(), count, "each run has a name of its own");
        drop(all);
        after.push(settled());
    }
    println!("descriptors, threads and KiB before {before:?}, after {after:?}");
    for (round, (descriptors, threads, _)) in after.iter().enumerate() {
        // The listener of each round's proxy, and the thread that waits there for more.
        let own = round + 1;
        assert!(*descriptors <= before.0 + own && *threads <= before.1 + own, "{before:?} {after:?}");
    }
    assert!(after[0].2 < before.2 + 128 * 1024, "KiB for {count}: {before:?} {after:?}");
    assert!(after[2].2 < after[1].2 + 16 * 1024, "what comes again needs no more: {before:?} {after:?}");
}
