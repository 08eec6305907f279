//! Hundreds of hostile sandboxes and one gateway, for the time given.
//!
//! One process owns all of them. Each has one host of its own that it may reach, connects there once, and misbehaves: it
//! floods, forks, fills, hangs. What went out must be in its outcome, and nothing may be left when all have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_engine::{Ending, Engine, Io, NetworkKind, Outcome};
use cofferdam_policy::{Field, NetworkMode, Policy};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::host::{Dice, cgroups_of, descendants, resources, within};

/// The port of every allowed host.
const PORT: u16 = 2222;
/// Descriptors that the owner may need.
const DESCRIPTORS: u64 = 16 * 1024;
/// What the owner's memory may grow by, KiB, once as many sandboxes as run at once have been there.
const GROWTH: u64 = 96 * 1024;

/// How a sandbox misbehaves: a name, a script, and whether its one connection comes after that. `NEXT` stands for the
/// neighbour's host.
const BEHAVIOURS: &[(&str, &str, bool)] = &[
    ("none", ":", true),
    ("refused connections", "for i in $(seq 400); do (exec 4<>/dev/tcp/NEXT/2222) 2>/dev/null; done", true),
    ("unknown names", "for i in $(seq 200); do (exec 4<>/dev/tcp/n$i.$RANDOM.example/80) 2>/dev/null; done", true),
    (
        "idle connections",
        "for i in $(seq 10 200); do eval \"exec $i<>/dev/tcp/OWN/2222\" 2>/dev/null || break; done; sleep 60",
        false,
    ),
    ("garbage", "exec 5<>/dev/tcp/OWN/2222; head -c 300000 /dev/urandom >&5", false),
    ("forks", "f() { f | f & }; f; sleep 60", false),
    ("memory", "head -c 1G /dev/zero | tail -n 1", false),
    ("output", "yes", false),
    ("files", "for i in $(seq 100000); do : > /tmp/$i || break; done; head -c 1G /dev/zero > /tmp/full", false),
    ("signals", "kill -9 -1; kill -9 1; sleep 1", false),
    ("daemons", "for i in 1 2 3 4 5; do setsid -f sleep 600; done; (trap '' 15; sleep 600) & exit 0", false),
    ("stopped", "sleep 60 & kill -STOP $!; kill -STOP $$; sleep 60", false),
];

/// What came out.
#[derive(Debug, Default)]
pub struct Report {
    /// Runs that ended.
    pub runs: u64,
    /// Runs by behaviour and how they ended.
    pub endings: BTreeMap<String, u64>,
    /// Connections that reached their host, each of which its outcome names.
    pub connections: u64,
    /// Descriptors, threads and resident KiB of the owner: after the first round, and at the end.
    pub resources: [(usize, usize, u64); 2],
}

/// The host's proxy, through which every allowed connection goes: it counts who was asked for, and answers.
struct Proxy {
    url: String,
    asked: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Proxy {
    fn start() -> Result<Proxy, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("cannot listen: {error}"))?;
        let url = format!("http://{}", listener.local_addr().map_err(|error| error.to_string())?);
        let asked = Arc::new(Mutex::new(BTreeMap::new()));
        let counted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || answer(stream, &counted));
            }
        });
        Ok(Proxy { url, asked })
    }

    fn asked_for(&self, host: &str) -> u64 {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.get(&format!("{host}:{PORT}")).copied().unwrap_or(0)
    }
}

fn answer(stream: TcpStream, asked: &Mutex<BTreeMap<String, u64>>) {
    // A connection that its sandbox leaves open is closed, so that the proxy's own threads end.
    if stream.set_read_timeout(Some(Duration::from_secs(30))).is_err() {
        return;
    }
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).is_err() {
        return;
    }
    let name = line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {}
    *asked.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += 1;
    if reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\nhello\n").is_err() {
        return;
    }
    // Until the other side has gone, or for as long as the timeout lets it be silent.
    let mut rest = [0; 4096];
    while std::io::Read::read(&mut reader, &mut rest).is_ok_and(|count| count > 0) {}
}

fn host(which: u64) -> String {
    format!("only-{which}.example")
}

fn policy(which: u64, behaviour: &(&str, &str, bool), proxy: &str) -> Result<Policy, String> {
    let (own, next) = (host(which), host(which + 1));
    let connect = format!(
        "exec 3<>/dev/tcp/{own}/{PORT} && printf '\\1\\2' >&3 && read -r line <&3 && echo \"got $line\"; exec 3>&-\n"
    );
    let misbehave = format!("{}\n", behaviour.1.replace("OWN", &own).replace("NEXT", &next));
    let script = if behaviour.2 { misbehave + &connect } else { connect + &misbehave };
    let mut policy = Policy::base();
    policy.command.argv = ["/bin/bash", "-c", &script].map(str::to_owned).to_vec();
    policy.limits.wall_ms = 30_000;
    policy.limits.memory_mb = 48;
    policy.limits.processes = 24;
    policy.limits.tmpfs_mb = 16;
    policy.limits.output_bytes = 65_536;
    policy.network.mode = NetworkMode::Allowlist;
    let rule = format!("{own}:{PORT}");
    policy.network.allow = vec![rule.parse().map_err(|error| format!("{rule}: {error:?}"))?];
    policy.network.upstream_proxy = Some(proxy.parse().map_err(|error| format!("{proxy}: {error:?}"))?);
    policy.allow_partial(Field::UpstreamProxy);
    Ok(policy)
}

/// Whether the outcome says what went out, and says nothing of another's.
fn judge(which: u64, outcome: &Outcome, asked: u64) -> Result<(), String> {
    let own = host(which);
    let wrong = |what: &str| {
        let all = format!("{:?} {:?} {:?}", outcome.outcome, outcome.error, outcome.network);
        Err(format!("{what}; its host was asked for {asked} times: {}", &all[..all.floor_char_boundary(3000)]))
    };
    if outcome.outcome == Ending::SetupFailed {
        return wrong("it did not start");
    }
    let Some(network) = &outcome.network else { return wrong("its outcome has no network") };
    // A connection whose sandbox ended while it was being made may or may not have reached its host.
    let unfinished = network.events.iter().filter(|event| event.kind == NetworkKind::Failed);
    let unfinished: u64 = unfinished.map(|event| event.count).sum();
    if network.connections > asked || network.connections + unfinished < asked {
        return wrong("its outcome counts other connections than went out");
    }
    let named = network
        .events
        .iter()
        .any(|event| event.host.as_deref() == Some(own.as_str()) && event.kind != NetworkKind::Refused);
    if network.connections > 0 && !named {
        return wrong("a connection went out, and no event names its host");
    }
    let next = host(which + 1);
    let others = network.events.iter().filter(|event| event.kind != NetworkKind::Refused);
    if others.filter_map(|event| event.host.as_deref()).any(|named| named == next) {
        return wrong("it reached its neighbour's host");
    }
    Ok(())
}

/// Keeps so many sandboxes busy for so long.
///
/// # Errors
/// Says which sandbox's outcome is wrong, or what was left.
pub fn run(at_once: u64, duration: Duration, seed: u64) -> Result<Report, String> {
    let limit = getrlimit(Resource::Nofile);
    let enough = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS);
    setrlimit(Resource::Nofile, Rlimit { current: Some(enough), ..limit })
        .map_err(|error| format!("cannot raise the number of open files: {error}"))?;
    let at_once = at_once.min(enough / 64).max(1);
    let engine = Engine::probe();
    let proxy = Proxy::start()?;
    let next = AtomicU64::new(0);
    let report = Mutex::new(Report::default());
    let failures = Mutex::new(Vec::new());
    let begun = Instant::now();
    let worker = |number: u64| {
        let mut dice = Dice::new(seed.wrapping_add(number));
        while begun.elapsed() < duration {
            let which = next.fetch_add(2, Ordering::Relaxed);
            let behaviour = &BEHAVIOURS[usize::try_from(dice.below(BEHAVIOURS.len() as u64)).unwrap_or(0)];
            let outcome = policy(which, behaviour, &proxy.url)
                .and_then(|policy| engine.prepare(&policy).map_err(|failure| format!("{failure:?}")))
                .map(|prepared| prepared.run(Io::default()));
            let asked = proxy.asked_for(&host(which));
            let judged = outcome.and_then(|outcome| judge(which, &outcome, asked).map(|()| outcome));
            match judged {
                Ok(outcome) => {
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.runs += 1;
                    report.connections += asked;
                    *report.endings.entry(format!("{}: {:?}", behaviour.0, outcome.outcome)).or_default() += 1;
                    if report.runs == at_once {
                        report.resources[0] = resources();
                    }
                }
                Err(error) => {
                    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                    failures.push(format!("sandbox {which}, {}: {error}", behaviour.0));
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..at_once {
            scope.spawn(move || worker(number));
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failures.is_empty() {
        return Err(format!("{} of seed {seed}; the first: {}", failures.len(), failures[0]));
    }
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Connections that their sandboxes left open end by the proxy's own timeout.
    within(Duration::from_secs(45), || resources().1 <= 8);
    report.resources[1] = resources();
    left(&report)?;
    Ok(report)
}

fn left(report: &Report) -> Result<(), String> {
    let own = std::process::id();
    let processes = descendants(own.cast_signed());
    // The spawner that the engine starts once stays with its owner.
    if processes.len() > 2 {
        return Err(format!("processes are left: {processes:?}"));
    }
    let cgroups = cgroups_of(&BTreeSet::from([own]));
    if !cgroups.is_empty() {
        return Err(format!("cgroups are left: {cgroups:?}"));
    }
    let [first, last] = report.resources;
    if first.2 > 0 && last.2 > first.2 + GROWTH {
        return Err(format!("descriptors, threads and KiB grew from {first:?} to {last:?}"));
    }
    if last.0 > 256 || last.1 > 64 {
        return Err(format!("descriptors or threads are left: {last:?}"));
    }
    Ok(())
}
