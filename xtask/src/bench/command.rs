//! What confinement costs a caller that spawns a subprocess itself: `sandboxed_command` and `Confined::spawn` against tokio's own
//! `Command`, for programs of several sizes and for a caller that holds much memory.

use std::process::Command;

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::Worker;
use crate::Result;
use crate::shell::which;

/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;

/// How each is called in the tables, and by `bench-command`.
const WAYS: [(&str, &str); 3] = [("tokio", "plain"), ("sandboxed_command", "sandboxed"), ("Confined::spawn", "behind")];

/// One kind of caller and program.
struct Kind {
    name: &'static str,
    words: Vec<String>,
    mib: usize,
    /// Rounds and calls per round.
    rounds: (usize, usize),
    /// What is promised of `sandboxed_command` and of `Confined::spawn` over tokio.
    promised: [bool; 2],
}

/// Measures all of them.
pub(super) fn command(context: &Context) -> Result<Section> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut kinds = vec![
        Kind {
            name: "a no-op without any library",
            words: vec![context.programs.c("noop")],
            mib: 0,
            rounds: (20, 50),
            promised: [false; 2],
        },
        Kind { name: "sh", words: words(&["/bin/sh", "-c", "exit 7"]), mib: 0, rounds: (20, 30), promised: [true; 2] },
        Kind {
            name: "python3",
            words: words(&["/usr/bin/python3", "-c", "raise SystemExit(7)"]),
            mib: 0,
            rounds: (10, 10),
            promised: [true; 2],
        },
        Kind {
            name: "sh, from a caller of 1 GiB",
            words: words(&["/bin/sh", "-c", "exit 7"]),
            mib: 1024,
            rounds: (8, 5),
            promised: [false, true],
        },
    ];
    if let Some(node) = which("node") {
        let words = vec![node.display().to_string(), "-e".into(), "process.exit(7)".into()];
        kinds.insert(3, Kind { name: "node", words, mib: 0, rounds: (6, 4), promised: [true; 2] });
    }
    let directory = context.programs.directory.join("command");
    std::fs::create_dir_all(&directory).map_err(|error| format!("cannot create {}: {error}", directory.display()))?;

    let (mut rows, mut goals) = (Vec::new(), Vec::new());
    for kind in kinds {
        let measured = measure(context, &kind, &directory.display().to_string())?;
        for (row, promised) in measured[1..].iter().zip(kind.promised) {
            if promised {
                goals.push(Goal {
                    text: format!("{} over tokio alone", row.name),
                    reached: row.ratio,
                    bound: Bound::AtMost(1.3),
                    aim: "1.1",
                });
            }
        }
        rows.extend(measured);
    }
    Ok(Section { unit: "ms", peer: "tokio", rows, goals })
}

/// The three ways in turn.
fn measure(context: &Context, kind: &Kind, directory: &str) -> Result<Vec<Row>> {
    let start = |way: &str| {
        let mut command = Command::new(context.programs.engine.with_file_name("bench-command"));
        command.args([way, directory, &kind.mib.to_string()]).args(&kind.words);
        Worker::start(command)
    };
    let mut workers = WAYS.iter().map(|(_, way)| start(way)).collect::<Result<Vec<Worker>>>()?;
    let mut samples = vec![Samples::default(); WAYS.len()];
    for worker in &mut workers {
        worker.samples(3)?;
    }
    for round in 0..context.pick(kind.rounds.0, 2) {
        for turn in 0..WAYS.len() {
            let index = (round + turn) % WAYS.len();
            samples[index].0.extend(workers[index].samples(kind.rounds.1)?.into_iter().map(|elapsed| elapsed / MS));
        }
    }
    let mut rows: Vec<Row> = WAYS
        .iter()
        .zip(samples)
        .map(|((name, way), samples)| {
            let command = format!("bench-command {way} DIR {} {}", kind.mib, kind.words.join(" "));
            Row::new(format!("{}: {name}", kind.name), command, Ok(samples))
        })
        .collect();
    let alone = rows[0].median();
    for row in &mut rows[1..] {
        row.ratio = row.median().zip(alone).map(|(row, alone)| row / alone);
    }
    Ok(rows)
}
