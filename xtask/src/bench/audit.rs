//! The audit trail: what a record costs, without and with the disk, and how many fsyncs many writers share. And a skill's
//! run, which is verified and on record, beside a run of the same program under the same policy.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::{Worker, printed, time};
use crate::Result;
use crate::shell::run;

/// Nanoseconds in a microsecond, and in a millisecond.
const US: f64 = 1e3;
const MS: f64 = 1e6;
/// Writers that wait for the disk at the same time.
const WRITERS: usize = 64;
/// The exit code of the no-op.
const NOOP: i32 = 7;
/// Files of the measured skill, its program counted.
const FILES: usize = 200;

/// An empty directory of this name among what is measured.
fn fresh(context: &Context, name: &str) -> Result<PathBuf> {
    let directory = context.programs.directory.join(name);
    let failed = |error| format!("cannot make {} anew: {error}", directory.display());
    if directory.exists() {
        std::fs::remove_dir_all(&directory).map_err(failed)?;
    }
    std::fs::create_dir_all(&directory).map_err(failed)?;
    Ok(directory)
}

/// One record, one run's two records, and a record of many writers at once.
pub(super) fn audit(context: &Context) -> Result<Section> {
    let directory = fresh(context, "audit")?;
    let program = context.programs.engine.with_file_name("bench-audit");
    let bench = |words: &[&str], trail: &str| {
        let mut command = Command::new(&program);
        command.args(
            words.iter().map(|word| if *word == "DIR" { directory.join(trail) } else { Path::new(word).to_owned() }),
        );
        command
    };
    let writers = WRITERS.to_string();
    // Batches are as long as each can be repeated often.
    let kinds: [(&str, &[&str], usize); 4] = [
        ("a record, written", &["append", "DIR", "written"], 500),
        ("a record, durable", &["append", "DIR", "durable"], 20),
        ("a run's start and end, both durable", &["run", "DIR"], 20),
        ("a record, durable, of 64 writers at once", &["group", "DIR", &writers], 10),
    ];
    let mut workers = Vec::new();
    for (at, (_, words, _)) in kinds.iter().enumerate() {
        workers.push(Worker::start(bench(words, &at.to_string()))?);
    }
    let mut samples = vec![Samples::default(); kinds.len()];
    for worker in &mut workers {
        worker.samples(3)?;
    }
    for round in 0..context.pick(60, 5) {
        for turn in 0..kinds.len() {
            let index = (round + turn) % kinds.len();
            let count = kinds[index].2;
            // Of many writers, the time of all of their records is told, and each has its part.
            let part = if kinds[index].1[0] == "group" { US * (WRITERS * count) as f64 } else { US };
            samples[index].0.extend(workers[index].samples(count)?.iter().map(|ns| ns / part));
        }
    }
    let rows: Vec<Row> = kinds
        .iter()
        .zip(samples)
        .map(|((name, words, _), samples)| Row::new(*name, format!("bench-audit {}", words.join(" ")), Ok(samples)))
        .collect();
    let records = context.pick(100, 20);
    let counted = |words: &[&str], writers: usize| -> Result<f64> {
        let mut calls = Vec::new();
        // The difference of two lengths: what opening a trail takes is in both.
        for (at, count) in [records, 2 * records].into_iter().enumerate() {
            let (trail, told) = (format!("counted-{writers}-{at}"), directory.join(format!("calls-{writers}-{at}")));
            let measured = bench(words, &trail);
            let mut traced = Command::new("strace");
            traced
                .args(["-f", "--seccomp-bpf", "-c", "-e", "trace=fsync,fdatasync", "-o"])
                .arg(&told)
                .arg(measured.get_program());
            let mut worker = Worker::start({
                traced.args(measured.get_args());
                traced
            })?;
            worker.asked(&count.to_string())?;
            worker.finish()?;
            let text = std::fs::read_to_string(&told).map_err(|error| format!("{}: {error}", told.display()))?;
            calls.push(syncs(&text));
        }
        Ok((calls[1] - calls[0]) as f64 / (records * writers) as f64)
    };
    let one = counted(&["append", "DIR", "durable"], 1)?;
    let many = counted(&["group", "DIR", &writers], WRITERS)?;
    let goal = |text: &str, reached, most, aim| Goal { text: text.into(), reached, bound: Bound::AtMost(most), aim };
    let goals = vec![
        goal("µs for a record that no caller waits for", rows[0].median(), 50.0, "less"),
        goal("fsyncs for each durable record of one writer, counted by strace", Some(one), 1.0, "1"),
        goal("fsyncs for each durable record of 64 writers at once, counted by strace", Some(many), 1.0, "1/64"),
    ];
    Ok(Section { unit: "µs", peer: "", rows, goals })
}

/// Calls in a table of `strace -c`: share, seconds, microseconds per call, calls, errors if there were any, name.
fn syncs(table: &str) -> u64 {
    let calls = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_sync = matches!(words.last(), Some(&("fsync" | "fdatasync")));
        words.get(3).filter(|_| is_sync)?.parse::<u64>().ok()
    };
    table.lines().filter_map(calls).sum()
}

/// `skill run` of a skill of two hundred files, and `run` of its program under the policy that it gets.
pub(super) fn skill(context: &Context) -> Result<Section> {
    const RUN: &str = "cofferdam run, the same program and policy";
    const RECORDED: &str = "cofferdam run --audit-trail, the same";
    const SKILL: &str = "cofferdam skill run, 200 files";
    let directory = fresh(context, "skill")?;
    let place = |name: &str| directory.join(name).display().to_string();
    let cofferdam = context.programs.cofferdam.display().to_string();
    let made = |error: std::io::Error| format!("cannot make the skill: {error}");
    std::fs::create_dir_all(directory.join("source/data")).map_err(made)?;
    std::fs::copy(context.programs.c("noop"), directory.join("source/run")).map_err(made)?;
    for file in 1..FILES {
        let text = format!("file {file}\n").repeat(100);
        std::fs::write(directory.join(format!("source/data/{file}.txt")), text).map_err(made)?;
    }
    let words = |words: &[&str]| {
        let all = [cofferdam.as_str(), "skill"].into_iter().chain(words.iter().copied());
        all.map(str::to_owned).collect::<Vec<String>>()
    };
    let address = printed(&words(&["keygen", &place("key")]))?;
    let manifest = format!(
        r#"{{"version":"1","name":"measured","publisher":{{"name":"Bench","address":"{}","contact":"bench@example.org"}},
        "permissions":{{"txActions":[],"chains":[],"networkAccess":false,"filesystemAccess":false}},
        "sandbox":{{"memoryMb":128,"timeoutMs":60000,"allowSpawn":false}},"files":[]}}"#,
        address.trim()
    );
    std::fs::write(directory.join("source/manifest.json"), manifest).map_err(made)?;
    let (registry, trail) = (place("registry"), place("trail"));
    let common = ["--registry", &registry, "--audit-trail", &trail];
    let with = |action: &[&str]| words(&[&common[..], action].concat());
    let done = |argv: Vec<String>| run(Command::new(&argv[0]).args(&argv[1..]));
    done(with(&["sign", "--files", "--key", &place("key"), &place("source")]))?;
    done(with(&["register", &place("source")]))?;
    let skill = with(&["run", "--quiet", "--best-effort", "measured"]);
    let dry: serde_json::Value =
        serde_json::from_str(&printed(&with(&["run", "--dry-run", "--best-effort", "measured"]))?)
            .map_err(|error| format!("the dry run printed no JSON: {error}"))?;
    std::fs::write(directory.join("policy.json"), dry["policy"].to_string()).map_err(made)?;
    let policy = place("policy.json");
    let run = |more: &[&str]| {
        let all = [&[cofferdam.as_str(), "run", "--quiet", "--policy", &policy], more].concat();
        all.into_iter().map(str::to_owned).collect::<Vec<String>>()
    };
    let candidates = [(RUN, run(&[])), (RECORDED, run(&["--audit-trail", &trail])), (SKILL, skill)];
    for (_, command) in candidates.iter().cycle().take(9) {
        time(command, NOOP)?;
    }
    let mut samples = vec![Samples::default(); candidates.len()];
    for round in 0..context.pick(200, 20) {
        for turn in 0..candidates.len() {
            let index = (round + turn) % candidates.len();
            samples[index].0.push(time(&candidates[index].1, NOOP)? / MS);
        }
    }
    let rows: Vec<Row> = candidates
        .iter()
        .zip(samples)
        .map(|((name, command), samples)| Row::new(*name, command.join(" "), Ok(samples)))
        .collect();
    let section = Section { unit: "ms", peer: RUN, rows, goals: Vec::new() }.with_ratios();
    let goal = |text: &str, reached| Goal { text: text.into(), reached, bound: Bound::AtMost(1.5), aim: "1.2" };
    let recorded = section.ratio(SKILL).zip(section.ratio(RECORDED)).map(|(skill, recorded)| skill / recorded);
    let goals = vec![
        goal("`skill run` of 200 files, verified and recorded, over `run` of the same program", section.ratio(SKILL)),
        goal("the same over a `run` that is recorded as well", recorded),
    ];
    Ok(Section { goals, ..section })
}

#[cfg(test)]
mod tests {
    #[test]
    fn calls_are_read_from_straces_table() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
                     ------ ----------- ----------- --------- --------- ----------------\n \
                     99.00    0.012000          12      1000           fdatasync\n  \
                     1.00    0.000100         100         3         1 fsync\n\
                     ------ ----------- ----------- --------- --------- ----------------\n\
                     100.00    0.012100          12      1003         1 total\n";
        assert_eq!(super::syncs(table), 1003);
        assert_eq!(super::syncs(""), 0);
    }
}
