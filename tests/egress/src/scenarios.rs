//! Scenarios of more than one sandbox or more than one attempt: others at work beside one that floods, the end of a
//! sandbox, and the messages of the command.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::suite_directory::SuiteDirectory;
use crate::trial::{Run, canary, filled, line, read, sandboxed};
use crate::world::{Ended, World};

/// A name, and the test.
pub type Scenario = (&'static str, fn(&SuiteDirectory, &World) -> Result<(), String>);

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    ("three-hundred-slow-connections-block-no-other-sandbox", slow_connections),
    ("synthetic-addresses-of-another-sandbox-are-refused", addresses_of_another),
    ("connections-end-with-their-sandbox", end),
    ("closed-connections-are-reported-with-their-bytes", closed),
    ("requests-to-the-api-are-reported", api),
    ("refusals-are-summarised-at-the-end", said),
    ("bandwidth-is-limited-as-the-policy-says", bandwidth),
    ("programs-inside-reach-each-other", inside),
    ("backends-that-cannot-enforce-it-start-nothing", other_backends),
    ("a-skill-verifies-certificates-by-the-roots-of-the-host", skill),
];

const ALLOW: &[&str] = &["--allow", "allowed.test"];

fn ensure(holds: bool, what: &str, run: &Run) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}\n{}", run.shown())) }
}

/// Begins a call in a sandbox.
fn begin(suite: &SuiteDirectory, world: &World, options: &[&str], call: &[&str]) -> Result<u64, String> {
    let words = filled(suite, world, call, "");
    world.begin(&line(suite, world, options, "", words)?, &[], &suite.inside)
}

fn slow_connections(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let options = [ALLOW, &["--network-limit", "connections_per_host=256"]].concat();
    let slow = begin(suite, world, &options, &["{attempt}", "many", "to=allowed.test", "count=300", "hold=3"])?;
    std::thread::sleep(Duration::from_millis(1000));
    for _ in 0..3 {
        let token = canary();
        let since = Instant::now();
        let run =
            sandboxed(suite, world, ALLOW, "", &["{attempt}", "http", "to=allowed.test", "path=/{canary}"], &token)?;
        ensure(run.stdout.contains("delivered"), "the other sandbox is not served", &run)?;
        ensure(since.elapsed() < Duration::from_secs(3), "the other sandbox waits", &run)?;
    }
    let run = read(world.wait(slow)?)?;
    ensure(run.stdout.contains("holding"), "the slow one did not begin", &run)?;
    ensure(run.reasons().contains(&"too_many_connections"), "more connections than there may be", &run)
}

fn addresses_of_another(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let other = begin(
        suite,
        world,
        &["--allow", "allowed.test:5000"],
        &["{attempt}", "hold", "name=allowed.test", "seconds=2"],
    )?;
    std::thread::sleep(Duration::from_millis(500));
    let token = canary();
    let call = ["{attempt}", "sweep", "name=second.test", "host=allowed.test", "path=/{canary}"];
    let run = sandboxed(suite, world, &["--allow", "second.test"], "", &call, &token)?;
    ensure(!run.stdout.contains("delivered"), "IT GOT OUT", &run)?;
    let arrived = run.seen.iter().any(|entry| entry.to_string().contains(&token));
    ensure(!arrived, "IT GOT OUT: the record has it", &run)?;
    ensure(run.reasons().contains(&"unknown_address"), "no event says that the addresses are nobody's", &run)?;
    let run = read(world.wait(other)?)?;
    ensure(run.stdout.contains("echo of"), "the other sandbox had no connection", &run)
}

fn end(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let since = Instant::now();
    let run = sandboxed(
        suite,
        world,
        &["--allow", "allowed.test:5000", "--timeout", "1s"],
        "",
        &["{attempt}", "hold", "name=allowed.test", "seconds=30"],
        "",
    )?;
    ensure(run.outcome["outcome"] == "timed_out", "it did not run into its limit", &run)?;
    ensure(run.stdout.contains("echo of"), "there was no connection", &run)?;
    ensure(since.elapsed() < Duration::from_secs(8), "the end waits for connections", &run)?;
    // The server sees the end at once, or at least soon.
    let ended = |entry: &Value| entry["what"] == "ended" && entry["port"] == 5000;
    if run.seen.iter().any(ended) {
        return Ok(());
    }
    let later = world.run(&["sleep".to_owned(), "0.5".to_owned()], &[], &suite.inside)?;
    ensure(later.seen.iter().any(ended), "the connection is open after the sandbox's end", &run)
}

fn closed(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let call = ["{attempt}", "raw", "to=allowed.test", "port=5000", "send=0123456789", "half=yes"];
    let run = sandboxed(suite, world, &["--allow", "allowed.test:5000"], "", &call, "")?;
    let of = |kind: &str| run.events().iter().find(|event| event["kind"] == kind);
    let (Some(allowed), Some(closed)) = (of("allowed"), of("closed")) else {
        return Err(format!("not both events are there\n{}", run.shown()));
    };
    ensure(allowed["host"] == "allowed.test" && allowed["rule"] == "$.network.allow[0]", "another rule", &run)?;
    ensure(allowed["connection"] == closed["connection"], "another connection", &run)?;
    ensure(closed["bytes_up"] == 10, "other bytes went up", &run)?;
    ensure(closed["bytes_down"].as_u64().is_some_and(|bytes| bytes > 10), "other bytes came down", &run)
}

fn api(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let call = ["sh", "-c", "curl -sS $SERVICE/things?secret=1"];
    let options = ["--api", "SERVICE=http://127.0.0.1:3000/v1"];
    let run = sandboxed(suite, world, &options, "", &call, "")?;
    ensure(run.stdout.contains("GET /v1/things?secret=1"), "the API did not answer", &run)?;
    let event = run.events().iter().find(|event| event["kind"] == "api_request");
    let evidence = event.is_some_and(|e| e["method"] == "GET" && e["status"] == 200 && e["path"] == "/things");
    ensure(evidence, "the request is not reported as it was", &run)?;
    ensure(!run.outcome["network"].to_string().contains("secret"), "the query is on record", &run)
}

fn said(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let words = filled(suite, world, &["{attempt}", "http", "to=evil.test"], "");
    let plain: Vec<String> =
        line(suite, world, ALLOW, "", words)?.into_iter().filter(|word| word != "--json").collect();
    let Ended { stderr, .. } = world.run(&plain, &[], &suite.inside)?;
    let evidence: Vec<&str> =
        stderr.lines().filter(|l| l.starts_with("cofferdam: ") && l.contains("evil.test")).collect();
    match evidence[..] {
        [line] if line.ends_with("hint: --allow evil.test") => Ok(()),
        _ => Err(format!("one line about the refused host is wanted, and what would allow it:\n{stderr}")),
    }
}

fn bandwidth(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let call = ["{attempt}", "download", "to=allowed.test", "size=1500000"];
    let took = |options: &[&str]| {
        let run = sandboxed(suite, world, &[ALLOW, options].concat(), "", &call, "")?;
        ensure(run.stdout.contains("all of it came"), "not all of it came", &run)?;
        Ok::<_, String>(run.outcome["execution_time_ms"].as_f64().unwrap_or_default())
    };
    let (slow, free) = (took(&["--network-limit", "kib_per_second=500"])?, took(&[])?);
    // 1,465 KiB: the first second's worth may come at once.
    if slow > 1500.0 && free < slow / 2.0 { Ok(()) } else { Err(format!("{slow} ms at 500 KiB/s, {free} ms without")) }
}

fn inside(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let script = "cd /tmp && echo from inside > page && (busybox httpd -f -p 127.0.0.1:9090 & \
                  for n in 1 2 3 4 5 6 7 8 9; do sleep 0.1; curl -sS http://127.0.0.1:9090/page && break; done; kill $!)";
    let run = sandboxed(suite, world, ALLOW, "", &["sh", "-c", script], "")?;
    ensure(run.stdout.contains("from inside"), "a server inside cannot be reached there", &run)?;
    ensure(run.seen.is_empty(), "something of it left", &run)
}

fn other_backends(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    for backend in ["landlock", "bubblewrap"] {
        let call = ["sh", "-c", "echo it runs"];
        let options = [ALLOW, &["--backend", backend]].concat();
        let Err(why) = sandboxed(suite, world, &options, "", &call, "") else {
            return Err(format!("{backend} started something"));
        };
        if !why.contains("network.mode") || why.contains("it runs") {
            return Err(format!("{backend} is refused for another reason: {why}"));
        }
    }
    let run =
        sandboxed(suite, world, &[ALLOW, &["--backend", "jail"]].concat(), "", &["sh", "-c", "echo it runs"], "")?;
    ensure(run.stdout.contains("it runs"), "the jail does not", &run)?;
    let strength = &run.outcome["enforcement"]["network.mode"]["strength"];
    ensure(strength == "full", "the jail enforces it less than in full", &run)
}

/// Prints what each host says over HTTPS, or why nothing came.
const ASKS: &str = "import sys, urllib.request
for host in sys.argv[1:]:
    try: print(urllib.request.urlopen(f'https://{host}/skill', timeout=8).read().decode(), flush=True)
    except Exception as e: print(host, e, flush=True)
";

fn skill(suite: &SuiteDirectory, world: &World) -> Result<(), String> {
    let directory = world.base.join("asks");
    let write = |name: &str, text: &str| {
        let path = world.base.join(name);
        std::fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok::<_, String>(path.display().to_string())
    };
    let file = |name: &str| world.base.join(name).display().to_string();
    let (registry, trail, key) = (file("skills"), file("audit"), file("publisher.key"));
    let cofferdam = suite.cofferdam.display().to_string();
    let call = |words: &[&str]| {
        let options = ["skill", "--best-effort", "--registry", &registry, "--audit-trail", &trail];
        let all = [&[cofferdam.as_str()], &options[..], words].concat();
        world.run(&all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), &[], &suite.inside)
    };
    let done = |ended: Ended| match ended.code {
        0 => Ok(ended.stdout.trim().to_owned()),
        code => Err(format!("exit {code}: {}{}", ended.stdout, ended.stderr)),
    };
    let address = done(call(&["keygen", &key])?)?;
    write("main.py", ASKS)?;
    let manifest = json!({
        "version": "1",
        "name": "asks",
        "publisher": { "name": "Example", "address": address, "contact": "dev@example.com" },
        "permissions": {
            "txActions": [], "chains": [], "networkAccess": ["allowed.test", "evil.test"], "filesystemAccess": false
        },
        "sandbox": { "memoryMb": 256, "timeoutMs": 60000, "allowSpawn": false },
        "files": [],
    });
    write("manifest.json", &manifest.to_string())?;
    // The user of this world signs in a directory of its own.
    let (files, directory) = (["main.py", "manifest.json"].map(file), directory.display().to_string());
    let made = format!("mkdir {directory} && cp {} {directory}", files.join(" "));
    done(world.run(&["sh".to_owned(), "-c".to_owned(), made], &[], &suite.inside)?)?;
    done(call(&["sign", "--files", "--key", &key, &directory])?)?;
    done(call(&["register", &directory])?)?;
    let ask = |env: Value, host: &str| {
        let config = json!({ "networkMode": "allowlist", "allowedHosts": ["allowed.test"], "env": env });
        let operator = write("operator.json", &config.to_string())?;
        let run = ["run", "--json", "--config", &operator, "asks", "--", host];
        read(call(&run)?)
    };
    let run = ask(json!({}), "allowed.test")?;
    ensure(run.stdout.contains("delivered allowed.test"), "the skill has no answer by HTTPS", &run)?;
    // The answer is no sign of trust unless without the roots there is none.
    let run = ask(json!({ "SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": "/nowhere" }), "allowed.test")?;
    ensure(run.stdout.contains("CERTIFICATE_VERIFY_FAILED"), "a certificate without a root is not refused", &run)?;
    // The manifest asks for this host too, and the operator does not grant it.
    let run = ask(json!({}), "evil.test")?;
    ensure(!run.stdout.contains("delivered"), "IT GOT OUT", &run)?;
    ensure(run.outcome["outcome"] == "violation", "a host that is not granted does not end the run", &run)?;
    ensure(!run.seen.iter().any(|entry| entry["what"] == "request"), "the record has a request", &run)
}
