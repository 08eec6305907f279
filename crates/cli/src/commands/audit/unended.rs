//! Runs without an end in the trail: under way, killed, or of another boot. Text and data about one of them.

use cofferdam_engine::audit::{Life, RecordingProcess, Unended};

/// Most runs without an end that are described one by one.
pub(super) const MOST_UNENDED: usize = 20;

/// A run without an end, as JSON.
pub(super) fn to_json(run: &Unended) -> serde_json::Value {
    serde_json::json!({
        "run": run.run, "skill": run.skill, "record": run.seq, "time": run.time,
        "owner": run.owner.as_ref().map(RecordingProcess::data), "state": life(run).name(),
    })
}

fn life(run: &Unended) -> Life {
    run.owner.as_ref().map_or(Life::Unknown, RecordingProcess::life)
}

/// A run without an end, as a sentence.
pub(super) fn description(run: &Unended) -> String {
    let state = match (life(run), &run.owner) {
        (Life::Running, Some(owner)) => format!("it is under way, in process {}", owner.pid),
        (Life::Gone, Some(owner)) => {
            format!("its process {} was killed; the next writer says so in the trail", owner.pid)
        }
        (Life::OtherBoot, _) => "it is of another boot, so nothing of it is left on this machine".to_owned(),
        (_, Some(owner)) => format!("whether its process {} is there cannot be seen from here", owner.pid),
        (_, None) => "its record does not say whose it is".to_owned(),
    };
    format!("run {} began with record {}, {}, and has no end: {state}", run.run, run.seq, run.time)
}
