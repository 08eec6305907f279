//! What is measured: one function per table of docs/performance.md. Each builds its candidates, lets them take turns, and
//! states what was promised of the figures. Nothing here judges a figure beyond that.

use std::process::Command;
use std::time::{Duration, Instant};

use super::Context;
use super::peers::{self, Candidate};
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::{Worker, printed, pss_kib, runs, time, tree};
use crate::Result;
use crate::shell::{run, which};

/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;

/// The exit code of the no-op.
const NOOP: i32 = 7;

/// After a candidate's turn: the kernel takes network namespaces apart in the background, and the next candidate must
/// not pay for it.
const SETTLE: Duration = Duration::from_millis(400);

/// One cold command: from before its start to after its end.
pub(super) fn cold(context: &Context) -> Result<Section> {
    let candidates = peers::all(&context.programs);
    let rows = cold_rows(&candidates, context.pick(200, 20));
    let section = Section { unit: "ms", peer: BUBBLEWRAP, rows, goals: Vec::new() }.with_ratios();
    let goal = Goal {
        text: "cold `cofferdam run` over bubblewrap".into(),
        reached: section.ratio("cofferdam run"),
        bound: Bound::AtMost(0.8),
        aim: "0.6",
    };
    Ok(Section { goals: vec![goal], ..section })
}

const BUBBLEWRAP: &str = "bubblewrap, everything unshared";

fn cold_rows(candidates: &[Candidate], rounds: usize) -> Vec<Row> {
    // A candidate that cannot run the no-op at all is out, with its reason.
    let mut results: Vec<std::result::Result<Samples, String>> = candidates
        .iter()
        .map(|candidate| {
            let command = candidate.command.clone()?;
            for _ in 0..3 {
                time(&command, NOOP)?;
            }
            Ok(Samples::default())
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..candidates.len() {
            let index = (round + turn) % candidates.len();
            let candidate = &candidates[index];
            let (Ok(command), Ok(samples)) = (&candidate.command, &mut results[index]) else {
                continue;
            };
            if round % candidate.every == 0 {
                match time(command, NOOP) {
                    Ok(elapsed) => samples.0.push(elapsed / MS),
                    Err(error) => results[index] = Err(error),
                }
            }
        }
    }
    candidates
        .iter()
        .zip(results)
        .map(|(candidate, result)| {
            let command = candidate.command.clone().unwrap_or_default().join(" ");
            Row::new(candidate.name, command, result)
        })
        .collect()
}

/// Lets workers answer batches in turn; one list of samples each, in milliseconds.
fn batches(workers: &mut [Worker], rounds: usize, batch: usize, pause: Duration) -> Result<Vec<Samples>> {
    let mut samples = vec![Samples::default(); workers.len()];
    for worker in workers.iter_mut() {
        worker.samples(3)?;
    }
    for round in 0..rounds {
        for turn in 0..samples.len() {
            let index = (round + turn) % samples.len();
            std::thread::sleep(pause);
            samples[index].0.extend(workers[index].samples(batch)?.into_iter().map(|elapsed| elapsed / MS));
        }
    }
    Ok(samples)
}

/// The engine called in-process, one call after the other without a pause, against the least that the same namespaces
/// cost. Here a sandbox kept ready has to be made as fast as they are used.
pub(super) fn call(context: &Context) -> Result<Section> {
    in_process(context, context.pick(40, 4), context.pick(25, 10), "in-process call", SETTLE / 4)
}

/// The same with a pause before each call, as an agent makes them.
pub(super) fn paced(context: &Context) -> Result<Section> {
    const PAUSE: Duration = Duration::from_millis(10);
    in_process(context, context.pick(400, 40), 1, "in-process call after a pause of 10 ms", PAUSE)
}

fn in_process(context: &Context, rounds: usize, batch: usize, text: &str, pause: Duration) -> Result<Section> {
    const FLOOR: &str = "floor: clone3 with every namespace, exec, wait";
    const ENGINE: &str = "engine, prepared policy";
    const READY: &str = "engine, prepared policy, two sandboxes kept ready";
    let programs = &context.programs;
    let noop = programs.c("noop");
    let mut floor = Command::new(programs.c("floor"));
    floor.arg(&noop);
    let mut workers = [
        Worker::start(floor)?,
        Worker::start(programs.engine(&["call", &noop]))?,
        Worker::start(programs.engine(&["call", &noop, "--ready", "2"]))?,
    ];
    let samples = batches(&mut workers, rounds, batch, pause)?;
    let rows = [(FLOOR, "floor noop"), (ENGINE, "bench-engine call noop"), (READY, "bench-engine call noop --ready 2")]
        .into_iter()
        .zip(samples)
        .map(|((name, command), samples)| Row::new(name, command, Ok(samples)))
        .collect();
    let section = Section { unit: "ms", peer: FLOOR, rows, goals: Vec::new() }.with_ratios();
    let goals = [(text.to_owned(), ENGINE), (format!("{text}, sandboxes kept ready,"), READY)]
        .into_iter()
        .map(|(text, name)| Goal {
            text: format!("{text} over the floor"),
            reached: section.ratio(name),
            bound: Bound::AtMost(2.0),
            aim: "1.5",
        })
        .collect();
    Ok(Section { goals, ..section })
}

/// Sandboxes per second with four callers at once.
pub(super) fn throughput(context: &Context) -> Result<Section> {
    const CALLERS: usize = 4;
    const ENGINE: &str = "engine, 4 threads";
    let programs = &context.programs;
    let span = Duration::from_millis(context.pick(3000, 1000));
    let commands = [peers::bare(programs), peers::cofferdam(programs), peers::bubblewrap(programs)];
    let mut engine = Worker::start(programs.engine(&["throughput", &programs.c("noop"), &CALLERS.to_string()]))?;
    let mut in_process = Samples::default();
    let mut spawned: Vec<std::result::Result<Samples, String>> =
        commands.iter().map(|_| Ok(Samples::default())).collect();
    for _ in 0..context.pick(5, 2) {
        for (candidate, result) in commands.iter().zip(&mut spawned) {
            std::thread::sleep(SETTLE);
            let rate = candidate.command.clone().and_then(|command| rate(&command, CALLERS, span));
            match (rate, &mut *result) {
                (Ok(rate), Ok(samples)) => samples.0.push(rate),
                (Err(error), result) => *result = Err(error),
                (Ok(_), Err(_)) => {}
            }
        }
        std::thread::sleep(SETTLE);
        engine.write(&span.as_millis().to_string())?;
        let line = engine.read()?;
        let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [calls, nanoseconds] = numbers[..] else {
            return Err(format!("bench-engine printed `{line}`"));
        };
        in_process.0.push(calls / nanoseconds * 1e9);
    }
    let mut rows: Vec<Row> = commands
        .iter()
        .zip(spawned)
        .map(|(candidate, result)| {
            let command = format!("4 callers of {}", candidate.command.clone().unwrap_or_default().join(" "));
            Row::new(candidate.name, command, result)
        })
        .collect();
    rows.push(Row::new(ENGINE, "bench-engine throughput noop 4", Ok(in_process)));
    let section = Section { unit: "sandboxes/s", peer: BUBBLEWRAP, rows, goals: Vec::new() };
    let section = section.with_ratios();
    let goals = [("4 threads in-process", ENGINE), ("4 callers of `cofferdam run`", "cofferdam run")]
        .into_iter()
        .map(|(text, row)| Goal {
            text: format!("throughput of {text} over 4 callers of bubblewrap"),
            reached: section.ratio(row),
            bound: Bound::AtLeast(4.0),
            aim: "10",
        })
        .collect();
    Ok(Section { goals, ..section })
}

/// Runs a command again and again from several threads; runs per second.
fn rate(command: &[String], callers: usize, span: Duration) -> Result<f64> {
    let start = Instant::now();
    let counts: Vec<Result<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while start.elapsed() < span {
                        time(command, NOOP)?;
                        count += 1;
                    }
                    Ok(count)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a caller panicked".into()))).collect()
    });
    let elapsed = start.elapsed().as_secs_f64();
    let total = counts.into_iter().sum::<Result<u32>>()?;
    Ok(f64::from(total) / elapsed)
}

/// Callers that hold much memory: starting a sandbox must not copy it.
pub(super) fn resident(context: &Context) -> Result<Section> {
    const SMALL: &str = "small caller";
    let programs = &context.programs;
    let noop = programs.c("noop");
    let available = available_mib();
    let mut sizes = vec![(0, SMALL)];
    let mut missing = Vec::new();
    let mut taken = 2048;
    for (mib, name) in [(50, "50 MiB resident"), (1024, "1 GiB resident"), (4096, "4 GiB resident")] {
        taken += mib;
        if taken <= available {
            sizes.push((mib, name));
        } else {
            missing.push(Row::new(name, "", Err(format!("{available} MiB are available"))));
        }
    }
    let mut workers = sizes
        .iter()
        .map(|(mib, _)| Worker::start(programs.engine(&["call", &noop, "--resident", &mib.to_string()])))
        .collect::<Result<Vec<Worker>>>()?;
    let samples = batches(&mut workers, context.pick(20, 3), context.pick(20, 5), SETTLE / 4)?;
    let mut rows: Vec<Row> = sizes
        .iter()
        .zip(samples)
        .map(|((mib, name), samples)| Row::new(*name, format!("bench-engine call noop --resident {mib}"), Ok(samples)))
        .collect();
    rows.extend(missing);
    let section = Section { unit: "ms", peer: SMALL, rows, goals: Vec::new() }.with_ratios();
    let goal = Goal {
        text: "call from a 4 GiB caller over a small one".into(),
        reached: section.ratio("4 GiB resident"),
        bound: Bound::AtMost(1.2),
        aim: "1.0",
    };
    Ok(Section { goals: vec![goal], ..section })
}

fn available_mib() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) / 1024
}

/// Work that goes on for a while: what the walls cost once they stand. Timed from within.
pub(super) fn overhead(context: &Context) -> Result<Section> {
    let programs = &context.programs;
    let work = programs.c("work");
    let git = which("git").ok_or("git is not on this machine")?.display().to_string();
    let repository = repository(context, &git)?;
    let source = source(context)?;
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let runs = |full: &'static str, quick: &'static str| context.pick(full, quick);
    let status =
        words(&[&work, "repeat", runs("10", "3"), &git, "-c", "safe.directory=*", "-C", &repository, "status"]);
    let output = "/dev/shm/cofferdam-bench.o";
    let compile = words(&[&work, "repeat", runs("3", "1"), "gcc", "-O2", "-pipe", "-c", "-o", output, &source]);
    let loops = words(&[&work, "syscalls", runs("500000", "100000")]);
    let jobs = [("git status, 20,000 files", Some(&repository), status), ("gcc -O2", None, compile), ("", None, loops)];

    let mut rows = Vec::new();
    let mut goals = Vec::new();
    for (name, writable, command) in jobs {
        let mut wrapped = vec![programs.engine.display().to_string(), "inside".to_owned()];
        wrapped.extend(writable.into_iter().flat_map(|directory| ["--rw".to_owned(), directory.clone()]));
        wrapped.push("--".to_owned());
        wrapped.extend(command.iter().cloned());
        let mut variants = vec![("bare", command.clone()), ("inside", wrapped.clone())];
        if name.is_empty() {
            // What any filter and any Landlock ruleset cost: the part of the difference that is the kernel's.
            let mut least = command.clone();
            least.insert(1, "least".to_owned());
            variants.push(("under the least filter and ruleset", least));
        }
        // Name of the loop, samples of each variant.
        let mut found: Vec<(String, Vec<Samples>)> = Vec::new();
        let mut failure = None;
        for round in 0..=context.pick(8, 2) {
            for (index, (_, words)) in variants.iter().enumerate() {
                let text = match printed(words) {
                    Ok(text) => text,
                    Err(error) => {
                        failure = Some(error);
                        break;
                    }
                };
                // The first round warms the caches.
                for (label, value) in text.lines().filter(|_| round > 0).filter_map(|line| line.split_once(' ')) {
                    let value: f64 = value.parse().map_err(|_| format!("work printed `{value}`"))?;
                    // A round of a loop is short: a thousand of them are shown.
                    let (label, scale) =
                        if name.is_empty() { (format!("1,000 × {label}"), 1e3) } else { (name.to_owned(), 1.0) };
                    if !found.iter().any(|(known, _)| *known == label) {
                        found.push((label.clone(), vec![Samples::default(); variants.len()]));
                    }
                    if let Some((_, samples)) = found.iter_mut().find(|(known, _)| *known == label) {
                        samples[index].0.push(value * scale / MS);
                    }
                }
            }
        }
        if let Some(failure) = failure {
            let name = if name.is_empty() { "system call loops" } else { name };
            rows.push(Row::new(name, wrapped.join(" "), Err(failure)));
            continue;
        }
        for (label, samples) in found {
            let mut measured: Vec<Row> = variants
                .iter()
                .zip(samples)
                .map(|((variant, words), samples)| {
                    Row::new(format!("{label}, {variant}"), words.join(" "), Ok(samples))
                })
                .collect();
            let bare = measured[0].median();
            for row in &mut measured[1..] {
                row.ratio = row.median().zip(bare).map(|(inside, bare)| inside / bare);
            }
            let inside = measured[1].median();
            for (row, (variant, _)) in measured.iter().zip(&variants).filter(|(_, (variant, _))| *variant != "inside") {
                goals.push(Goal {
                    text: format!("{label} inside over {variant}"),
                    reached: inside.zip(row.median()).map(|(inside, other)| inside / other),
                    bound: Bound::AtMost(1.05),
                    aim: "1.02",
                });
            }
            rows.extend(measured);
        }
    }
    if let Err(error) = std::fs::remove_file(output) {
        eprintln!("cannot remove {output}: {error}");
    }
    Ok(Section { unit: "ms", peer: "bare", rows, goals })
}

/// A repository of 20,000 committed files; made once.
fn repository(context: &Context, git: &str) -> Result<String> {
    let directory = context.programs.directory.join("repository");
    if !directory.join(".git/index").exists() {
        for outer in 0..200 {
            let folder = directory.join(format!("directory-{outer}"));
            std::fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
            for inner in 0..100 {
                let file = folder.join(format!("file-{inner}.txt"));
                std::fs::write(&file, format!("{outer} {inner}\n"))
                    .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
            }
        }
        let git = || {
            let mut command = Command::new(git);
            command.arg("-C").arg(&directory).args(["-c", "user.name=bench", "-c", "user.email=bench@example.org"]);
            command
        };
        run(git().args(["init", "--quiet"]))?;
        run(git().args(["add", "."]))?;
        run(git().args(["commit", "--quiet", "-m", "20,000 files"]))?;
    }
    Ok(directory.display().to_string())
}

/// A C file that keeps the compiler busy for about a second; made once.
fn source(context: &Context) -> Result<String> {
    let file = context.programs.directory.join("compile.c");
    let mut text = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for index in 0..400 {
        text += &format!(
            "int function_{index}(int *values, int count) {{\n  int sum = {index};\n  for (int i = 0; i < count; i++)\n    \
             sum += values[i] % ({index} + 3) ? values[i] * sum : (int)strlen(\"{index}\");\n  \
             if (sum == {index}) printf(\"%d\\n\", sum);\n  return sum;\n}}\n"
        );
    }
    std::fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file.display().to_string())
}

/// Memory of ours per sandbox, with many at once.
pub(super) fn memory(context: &Context) -> Result<Section> {
    let programs = &context.programs;
    let count = context.pick(500, 50);
    let pause = programs.directory.join("pause");
    let words = ["concurrent", &programs.c("pause"), &count.to_string()].map(str::to_owned);
    let mut worker = Worker::start(programs.engine(&words.each_ref().map(String::as_str)))?;
    worker.read()?;
    let empty = pss_kib(worker.pid())? as f64;
    worker.write("")?;
    worker.read()?;
    let deadline = Instant::now() + Duration::from_secs(120);
    let processes = loop {
        let processes = tree(worker.pid());
        let payloads = processes.iter().filter(|pid| runs(**pid, &pause)).count();
        if payloads == count {
            break processes;
        }
        if Instant::now() > deadline {
            return Err(format!("{payloads} of {count} sandboxes run after two minutes"));
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    std::thread::sleep(SETTLE);
    let mut ours = 0.0;
    for pid in processes.iter().skip(1).filter(|pid| !runs(**pid, &pause)) {
        ours += pss_kib(*pid)? as f64;
    }
    let caller = pss_kib(worker.pid())? as f64 - empty;
    worker.write("")?;
    worker.finish()?;
    let per = |kib: f64| Ok(Samples(vec![kib / count as f64]));
    let command = format!("bench-engine concurrent pause {count}");
    let rows = vec![
        Row::new("what the caller grew by", command, per(caller)),
        Row::new("init and helpers", "", per(ours)),
        Row::new("together", "", per(caller + ours)),
    ];
    let goal = Goal {
        text: format!("KiB of our memory per sandbox, {count} at once"),
        reached: Some((caller + ours) / count as f64),
        bound: Bound::AtMost(300.0),
        aim: "less",
    };
    Ok(Section { unit: "KiB per sandbox", peer: "", rows, goals: vec![goal] })
}

/// Ten thousand denied and protected paths, half of which exist, against none.
pub(super) fn paths(context: &Context) -> Result<Section> {
    const COUNT: usize = 10_000;
    const NONE: &str = "call, no paths of its own";
    const MANY: &str = "call, 10,000 paths";
    const COLD_NONE: &str = "cold command, no paths of its own";
    const COLD_MANY: &str = "cold command, 10,000 paths";
    const ABSENT: &str = "call, 10,000 paths that do not exist";
    const COLD_ABSENT: &str = "cold command, 10,000 paths that do not exist";
    const CLOSED: &str = "call, 10,000 paths of a read-only directory";
    const COLD_CLOSED: &str = "cold command, 10,000 paths of a read-only directory";
    const WRITABLE: &str = "denied and protected paths, all in a writable directory, half of them there";
    const NOWHERE: &str = "denied paths that do not exist";
    const READ_ONLY: &str = "denied paths in a read-only directory, half of them there";
    let programs = &context.programs;
    let directory = programs.directory.join("paths");
    // Another, since the first is writable in every policy measured here.
    let shut = programs.directory.join("closed");
    for directory in [&directory, &shut] {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
        for index in (0..COUNT).step_by(2) {
            let file = directory.join(index.to_string());
            std::fs::write(&file, "").map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
    }
    let noop = programs.c("noop");
    let (directory, shut) = (directory.display().to_string(), shut.display().to_string());
    let (none, many) = ("0".to_owned(), COUNT.to_string());
    let with = |count: &str| ["--paths", &directory, count].map(str::to_owned).to_vec();
    let absent = ["--paths", &directory, "0", "--absent", &many].map(str::to_owned).to_vec();
    let closed = ["--paths", &directory, "0", "--closed", &shut, &many].map(str::to_owned).to_vec();
    let kinds = [(with(&none), "0"), (with(&many), "10000"), (absent, "absent"), (closed, "closed")];

    let mut workers = Vec::new();
    for (options, _) in &kinds {
        let mut words = vec!["call", &noop];
        words.extend(options.iter().map(String::as_str));
        workers.push(Worker::start(programs.engine(&words))?);
    }
    let calls = batches(&mut workers, context.pick(10, 2), context.pick(20, 5), SETTLE / 4)?;

    let mut candidates = Vec::new();
    for (name, (options, count)) in [COLD_NONE, COLD_MANY, COLD_ABSENT, COLD_CLOSED].into_iter().zip(kinds) {
        let mut words = vec![programs.engine.display().to_string(), "policy".to_owned(), noop.clone()];
        words.extend(options);
        let file = programs.directory.join(format!("policy-{count}.json")).display().to_string();
        std::fs::write(&file, printed(&words)?).map_err(|error| format!("cannot write {file}: {error}"))?;
        let command = [&programs.cofferdam.display().to_string(), "run", "--policy", &file, "--", &noop];
        let command = Ok(command.map(str::to_owned).to_vec());
        candidates.push(Candidate { name, command, every: 1 });
    }
    let commands =
        ["--paths DIR 0", "--paths DIR 10000", "--paths DIR 0 --absent 10000", "--paths DIR 0 --closed DIR 10000"];
    let mut rows: Vec<Row> = [NONE, MANY, ABSENT, CLOSED]
        .into_iter()
        .zip(commands)
        .zip(calls)
        .map(|((name, options), samples)| Row::new(name, format!("bench-engine call noop {options}"), Ok(samples)))
        .collect();
    rows.extend(cold_rows(&candidates, context.pick(50, 5)));
    let mut goals = Vec::new();
    for (text, what, many, none) in [
        ("call", WRITABLE, 1, 0),
        ("call", NOWHERE, 2, 0),
        ("call", READ_ONLY, 3, 0),
        ("cold command", WRITABLE, 5, 4),
        ("cold command", NOWHERE, 6, 4),
        ("cold command", READ_ONLY, 7, 4),
    ] {
        let ratio = rows[many].median().zip(rows[none].median()).map(|(many, none)| many / none);
        rows[many].ratio = ratio;
        let text = format!("{text} with 10,000 {what} over none");
        goals.push(Goal { text, reached: ratio, bound: Bound::AtMost(2.0), aim: "less" });
    }
    Ok(Section { unit: "ms", peer: NONE, rows, goals })
}
