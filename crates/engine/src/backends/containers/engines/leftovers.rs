//! Containers that dead owners left in an engine: found by label, judged by [`super::super::owner`], removed with what runs in
//! them. Never touches another.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::EngineClient;
use super::remove;
use crate::backends::containers::Swept;
use crate::backends::containers::owner;
use crate::backends::containers::owner::{Leftover, OwnerProcess, ProcessScope};
use crate::failure::{FailedStep, Failure};

/// Every container that has the label [`owner::RUN`]. Read as it comes: Podman has states that no list of Docker's knows.
const LIST: &str = "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22cofferdam.run%22%5D%7D";

/// How long is waited for all of them together. A run that is done waits for its sweep: an engine that hangs in one container
/// must not hold up every run after it. What takes longer is seen gone, or asked for again, by the next.
const TOGETHER: Duration = Duration::from_secs(5);
/// How long is waited for one in any case.
const LEAST: Duration = Duration::from_millis(100);

/// Removes them.
pub(super) fn sweep(client: &EngineClient) -> Result<Swept, Failure> {
    let mut swept = Swept::default();
    // Where /proc shows other pids than ours, no owner can be judged.
    let Some(here) = ProcessScope::read() else { return Ok(swept) };
    let listed = client.json(LIST.into()).map_err(|trouble| {
        trouble.failure(FailedStep::Engine, "cannot list containers", "look into the engine's log")
    })?;
    let until = Instant::now() + TOGETHER;
    for container in listed.as_array().into_iter().flatten() {
        let Some(name) = left_over(container, &here, owner::process) else { continue };
        match remove(client, name, until.saturating_duration_since(Instant::now()).max(LEAST)) {
            Ok(()) => swept.removed.push(name.to_owned()),
            Err(trouble) => swept.problems.push(format!("cannot remove the container {name}: {trouble}")),
        }
    }
    Ok(swept)
}

/// The name of a container that is to be removed.
fn left_over<'a>(container: &'a Value, here: &ProcessScope, process: impl Fn(i32) -> OwnerProcess) -> Option<&'a str> {
    // One of ours has one name: more of them come from links that somebody made.
    let [name] = container["Names"].as_array()?.as_slice() else { return None };
    let name = name.as_str()?;
    let name = name.strip_prefix('/').unwrap_or(name);
    let label = |wanted: &str| container["Labels"].get(wanted)?.as_str().map(str::to_owned);
    let ended = matches!(container["State"].as_str(), Some("created" | "exited" | "stopped" | "dead"));
    match owner::left_over(name, label, here, process) {
        Leftover::Yes => Some(name),
        Leftover::IfEnded if ended => Some(name),
        Leftover::IfEnded | Leftover::No => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "cofferdam-0123456789abcdef";

    fn here() -> ProcessScope {
        ProcessScope { boot: "b00t".into(), pids: 77 }
    }

    fn summary(name: &str, run: &str, owner: &str, state: &str) -> Value {
        let labels = serde_json::json!({ (owner::RUN): run, (owner::OWNER): owner });
        serde_json::json!({ "Names": [format!("/{name}")], "Labels": labels, "State": state })
    }

    #[test]
    fn an_engine_that_hangs_in_a_removal_does_not_hold_up_who_sweeps() {
        use std::io::{Read, Write};
        let Some(here) = ProcessScope::read() else { return };
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let owner = format!("{}:1:{}:{}", dead.id(), here.boot, here.pids);
        let names = ["cofferdam-0123456789abcdef", "cofferdam-0123456789abcdee"];
        let list = Value::from(names.map(|name| summary(name, name, &owner, "created")).to_vec()).to_string();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let mut hung = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                let n = stream.read(&mut request).unwrap(); // 0 where it was only tried whether somebody listens
                if request[..n].starts_with(b"GET ") {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}", list.len());
                    stream.write_all(format!("{head}\r\n\r\n{list}").as_bytes()).unwrap();
                } else {
                    hung.push(stream);
                }
            }
        });
        let since = Instant::now();
        let swept = sweep(&EngineClient::new(&socket, None).unwrap()).unwrap();
        assert!(since.elapsed() < TOGETHER * 2, "{:?}", since.elapsed());
        assert!(swept.removed.is_empty() && swept.problems.len() == 2, "{swept:?}");
        for (problem, name) in swept.problems.iter().zip(names) {
            assert!(problem.contains(name) && problem.contains("no answer within"), "{problem}");
        }
    }

    #[test]
    fn what_a_dead_owner_left_is_removed_and_what_a_living_one_has_is_not() {
        let running = summary(NAME, NAME, "5:100:b00t:77", "running");
        let judge = |process| left_over(&running, &here(), |_| process);
        assert_eq!(judge(OwnerProcess::Absent), Some(NAME));
        assert_eq!(judge(OwnerProcess::Started(101)), Some(NAME), "the pid was used again");
        assert_eq!(judge(OwnerProcess::Started(100)), None);
        assert_eq!(judge(OwnerProcess::Unknown), None, "not seeing it is no proof");
    }

    #[test]
    fn of_another_boot_only_what_has_ended_is_removed() {
        let judge = |state| {
            left_over(&summary(NAME, NAME, "5:100:other:77", state), &here(), |_| OwnerProcess::Absent).is_some()
        };
        assert!(judge("exited"));
        assert!(!judge("running"));
    }

    #[test]
    fn what_is_not_wholly_ours_is_never_touched() {
        let judge = |name: &str, run: &str, owner: &str| {
            left_over(&summary(name, run, owner, "exited"), &here(), |_| OwnerProcess::Absent).is_some()
        };
        assert!(judge(NAME, NAME, "5:100:b00t:77"), "the twin");
        for (name, run, owner) in [
            ("web", "web", "5:100:b00t:77"),
            ("web", NAME, "5:100:b00t:77"),
            (NAME, "cofferdam-0123456789abcdee", "5:100:b00t:77"),
            (NAME, NAME, "5:100:b00t:78"),
            (NAME, NAME, ""),
        ] {
            assert!(!judge(name, run, owner), "{name} {run} {owner}");
        }
        let mut linked = summary(NAME, NAME, "5:100:b00t:77", "exited");
        linked["Names"].as_array_mut().unwrap().push("/other/alias".into());
        assert_eq!(left_over(&linked, &here(), |_| OwnerProcess::Absent), None);
    }

    proptest! {
        #[test]
        fn nothing_is_removed_that_a_living_process_may_own(
            name in "(cofferdam-)?[0-9a-f]{0,18}", run in "(cofferdam-)?[0-9a-f]{0,18}",
            pid in -3i64..100, start in 0u64..9, boot in "b00t|other|", pids in 76u64..79, live in 0u64..9,
        ) {
            let owner = format!("{pid}:{start}:{boot}:{pids}");
            let running = summary(&name, &run, &owner, "running");
            let left = left_over(&running, &here(), |_| OwnerProcess::Started(live)).is_some();
            let may = name == run && name.len() == 26 && boot == "b00t" && pids == 77 && live != start && pid > 0;
            prop_assert!(!left || may);
        }
    }
}
