//! The guard's answers, with a thousand rules: how long each takes when it is kept, and when it is worked out anew.

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::Worker;
use crate::Result;

/// Nanoseconds in a microsecond.
const US: f64 = 1e3;

/// `is_allowed` and `path_allowed`.
pub(super) fn guard(context: &Context) -> Result<Section> {
    let directory = context.programs.directory.join("guard");
    std::fs::create_dir_all(&directory).map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    let directory = directory.display().to_string();
    let kinds = [("is_allowed", "kept"), ("is_allowed", "anew"), ("path_allowed", "kept"), ("path_allowed", "anew")];
    let mut workers = Vec::new();
    for (question, age) in kinds {
        workers.push(Worker::start(context.programs.guard(&[&directory, "1000", question, age]))?);
    }
    let mut samples = vec![Samples::default(); workers.len()];
    for round in 0..context.pick(50, 5) {
        for turn in 0..workers.len() {
            let index = (round + turn) % workers.len();
            samples[index].0.extend(workers[index].samples(context.pick(200, 50))?.iter().map(|ns| ns / US));
        }
    }
    let rows: Vec<Row> = kinds
        .into_iter()
        .zip(samples)
        .map(|((question, age), samples)| {
            Row::new(format!("{question}, {age}"), format!("bench-guard DIR 1000 {question} {age}"), Ok(samples))
        })
        .collect();
    let goals = [0, 2].map(|row: usize| Goal {
        text: format!("µs for `{}` of 1,000 rules, a kept answer", kinds[row].0),
        reached: rows[row].median(),
        bound: Bound::AtMost(5.0),
        aim: "1",
    });
    Ok(Section { unit: "µs", peer: "", rows, goals: goals.into() })
}
