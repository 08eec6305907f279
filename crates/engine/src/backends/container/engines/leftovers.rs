//! Containers that dead owners left in an engine: found by label, judged by [`super::super::owner`], removed with what runs in
//! them. Never touches another.

use serde_json::Value;

use super::client::{Client, WORK};
use super::remove;
use crate::backends::container::Swept;
use crate::backends::container::owner::{self, Here, Left, Process};
use crate::outcome::Failure;

/// Every container that has the label [`owner::RUN`]. Read as it comes: Podman has states that no list of Docker's knows.
const LIST: &str = "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22cofferdam.run%22%5D%7D";

/// Removes them.
pub(super) fn sweep(client: &Client) -> Result<Swept, Failure> {
    let mut swept = Swept::default();
    // Where /proc shows other pids than ours, no owner can be judged.
    let Some(here) = Here::read() else { return Ok(swept) };
    let listed = client
        .json(LIST.into())
        .map_err(|trouble| trouble.failure("engine", "cannot list containers", "look into the engine's log"))?;
    for container in listed.as_array().into_iter().flatten() {
        let Some(name) = left_over(container, &here, owner::process) else { continue };
        match remove(client, name, WORK) {
            Ok(()) => swept.removed.push(name.to_owned()),
            Err(trouble) => swept.problems.push(format!("cannot remove the container {name}: {trouble}")),
        }
    }
    Ok(swept)
}

/// The name of a container that is to be removed.
fn left_over<'a>(container: &'a Value, here: &Here, process: impl Fn(i32) -> Process) -> Option<&'a str> {
    // One of ours has one name: more of them come from links that somebody made.
    let [name] = container["Names"].as_array()?.as_slice() else { return None };
    let name = name.as_str()?;
    let name = name.strip_prefix('/').unwrap_or(name);
    let label = |wanted: &str| container["Labels"].get(wanted)?.as_str().map(str::to_owned);
    let ended = matches!(container["State"].as_str(), Some("created" | "exited" | "stopped" | "dead"));
    match owner::left_over(name, label, here, process) {
        Left::Yes => Some(name),
        Left::IfEnded if ended => Some(name),
        Left::IfEnded | Left::No => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME: &str = "cofferdam-0123456789abcdef";

    fn here() -> Here {
        Here { boot: "b00t".into(), pids: 77 }
    }

    fn summary(name: &str, run: &str, owner: &str, state: &str) -> Value {
        let labels = serde_json::json!({ (owner::RUN): run, (owner::OWNER): owner });
        serde_json::json!({ "Names": [format!("/{name}")], "Labels": labels, "State": state })
    }

    #[test]
    fn what_a_dead_owner_left_is_removed_and_what_a_living_one_has_is_not() {
        let running = summary(NAME, NAME, "5:100:b00t:77", "running");
        let judge = |process| left_over(&running, &here(), |_| process);
        assert_eq!(judge(Process::Absent), Some(NAME));
        assert_eq!(judge(Process::Started(101)), Some(NAME), "the pid was used again");
        assert_eq!(judge(Process::Started(100)), None);
        assert_eq!(judge(Process::Unknown), None, "not seeing it is no proof");
    }

    #[test]
    fn of_another_boot_only_what_has_ended_is_removed() {
        let judge =
            |state| left_over(&summary(NAME, NAME, "5:100:other:77", state), &here(), |_| Process::Absent).is_some();
        assert!(judge("exited"));
        assert!(!judge("running"));
    }

    #[test]
    fn what_is_not_wholly_ours_is_never_touched() {
        let judge = |name: &str, run: &str, owner: &str| {
            left_over(&summary(name, run, owner, "exited"), &here(), |_| Process::Absent).is_some()
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
        assert_eq!(left_over(&linked, &here(), |_| Process::Absent), None);
    }

    proptest! {
        #[test]
        fn nothing_is_removed_that_a_living_process_may_own(
            name in "(cofferdam-)?[0-9a-f]{0,18}", run in "(cofferdam-)?[0-9a-f]{0,18}",
            pid in -3i64..100, start in 0u64..9, boot in "b00t|other|", pids in 76u64..79, live in 0u64..9,
        ) {
            let owner = format!("{pid}:{start}:{boot}:{pids}");
            let running = summary(&name, &run, &owner, "running");
            let left = left_over(&running, &here(), |_| Process::Started(live)).is_some();
            let may = name == run && name.len() == 26 && boot == "b00t" && pids == 77 && live != start && pid > 0;
            prop_assert!(!left || may);
        }
    }
}
