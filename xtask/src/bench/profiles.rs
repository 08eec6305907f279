//! What profiles cost: evaluated cold beside the `nickel` command, a hundred at once, known ones, and calls from Python
//! beside the same calls from Rust. Judges nothing beyond what was promised.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Context;
use super::report::{Bound, Goal, Row, Section};
use super::stats::Samples;
use super::worker::{Programs, printed, time};
use crate::Result;
use crate::shell::{cargo, step, which};
use crate::workspace::{Workspace, executables};

/// Nanoseconds in a millisecond.
const MS: f64 = 1e6;

/// The exit code of the no-op.
const NOOP: i32 = 7;

/// How many profiles are exported at once.
const MANY: usize = 100;

/// One thing that is done in turn with others.
struct Turn {
    name: &'static str,
    command: std::result::Result<Vec<String>, String>,
    code: i32,
    /// What one sample is of: so many profiles.
    of: f64,
    /// Nothing is known of the profile beforehand.
    cold: bool,
    samples: Samples,
}

fn written(file: &Path, text: &str) -> Result {
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn made(directory: &Path) -> Result {
    std::fs::create_dir_all(directory).map_err(|error| format!("cannot create {}: {error}", directory.display()))
}

/// The evaluator beside the released command.
fn evaluator(programs: &Programs) -> Result<PathBuf> {
    step("build the evaluator of profiles");
    let mut built = executables(cargo().args(["build", "--release", "-p", "cofferdam-compile"]))?;
    let evaluator = built.remove("cofferdam-compile").ok_or("cargo built no cofferdam-compile")?;
    match evaluator.parent() == programs.cofferdam.parent() {
        true => Ok(evaluator),
        false => Err("the evaluator does not lie beside the command".into()),
    }
}

/// A profile whose program is the no-op, where the sandbox can see it.
fn profile(programs: &Programs, id: &str) -> String {
    let place = programs.directory.display();
    format!(
        "let s = import \"sandbox/main.ncl\" in\ns.make_default_config \"{id}\" & {{\n  network_policy = \"deny\",\n  \
         readonly_mounts = [{{ src = \"{place}\", dst = \"/bench\" }}],\n  cmd = [\"/bench/noop\"],\n}}\n"
    )
}

/// Times each in turn, in an order that rotates. What is to be cold finds the cache `new` empty.
fn take_turns(turns: &mut [Turn], rounds: usize, new: &Path) -> Result {
    for round in 0..=rounds {
        for at in 0..turns.len() {
            let count = turns.len();
            let turn = &mut turns[(round + at) % count];
            // A hundred take as long as dozens of the others.
            if turn.of > 1.0 && round % 4 != 0 {
                continue;
            }
            let Ok(command) = turn.command.clone() else { continue };
            if turn.cold && new.exists() {
                std::fs::remove_dir_all(new).map_err(|error| format!("cannot empty the cache: {error}"))?;
            }
            match time(&command, turn.code) {
                // The first round warms what the system keeps.
                Ok(elapsed) if round > 0 => turn.samples.0.push(elapsed / MS / turn.of),
                Ok(_) => {}
                Err(error) => turn.command = Err(error),
            }
        }
    }
    Ok(())
}

/// Cold, many at once, and known.
pub(super) fn profiles(context: &Context) -> Result<Section> {
    const NICKEL: &str = "nickel export, one profile";
    const RAW: &str = "cofferdam export --format raw, the same profile";
    const POLICY: &str = "cofferdam export, its policy";
    const ALL: &str = "cofferdam export, 100 profiles, each";
    const KNOWN: &str = "cofferdam run --profile, known";
    const PLAIN: &str = "cofferdam run --policy, the same policy";
    let programs = &context.programs;
    evaluator(programs)?;
    let workspace = Workspace::read()?;
    let (directory, cache) = (programs.directory.join("profiles"), programs.directory.join("profiles-cache"));
    made(&directory)?;
    let files: Vec<String> = (0..MANY)
        .map(|number| {
            let file = directory.join(format!("p{number}.ncl"));
            written(&file, &profile(programs, &format!("p{number}"))).map(|()| file.display().to_string())
        })
        .collect::<Result<_>>()?;
    let one = files[0].clone();
    let cofferdam = programs.cofferdam.display().to_string();
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let known = format!("XDG_CACHE_HOME={}", cache.join("known").display());
    let new = format!("XDG_CACHE_HOME={}", cache.join("new").display());
    let policy = directory.join("p0.json");
    written(&policy, &printed(&words(&["env", &known, &cofferdam, "export", &one]))?)?;
    let policy = policy.display().to_string();
    let library = workspace.root.join("ncl").display().to_string();
    let nickel = which("nickel").map(|path| path.display().to_string());
    let nickel = nickel.ok_or_else(|| "no `nickel` 1.18 is on PATH".to_owned());
    let many = [words(&["env", &new, &cofferdam, "export"]), files.clone()].concat();
    let turn = |name, command, code, of, cold| Turn { name, command, code, of, cold, samples: Samples::default() };
    let mut turns = [
        turn(
            NICKEL,
            nickel.map(|nickel| words(&["env", "A=", &nickel, "export", "-I", &library, &one])),
            0,
            1.0,
            false,
        ),
        turn(RAW, Ok(words(&["env", &new, &cofferdam, "export", "--format", "raw", &one])), 0, 1.0, true),
        turn(POLICY, Ok(words(&["env", &new, &cofferdam, "export", &one])), 0, 1.0, true),
        turn(ALL, Ok(many), 0, MANY as f64, true),
        turn(KNOWN, Ok(words(&["env", &known, &cofferdam, "run", "--profile", &one])), NOOP, 1.0, false),
        turn(PLAIN, Ok(words(&["env", &known, &cofferdam, "run", "--policy", &policy])), NOOP, 1.0, false),
    ];
    // Runs by themselves: each would otherwise come behind the same evaluation, round for round, and pay for what that left.
    let (evaluations, runs) = turns.split_at_mut(4);
    for (turns, rounds) in [(evaluations, context.pick(60, 6)), (runs, context.pick(240, 6))] {
        take_turns(turns, rounds, &cache.join("new"))?;
    }
    let rows: Vec<Row> = turns
        .into_iter()
        .map(|turn| {
            let told = match turn.of > 1.0 {
                true => "cofferdam export p0.ncl … p99.ncl".to_owned(),
                // Without the places where this machine has things.
                false => turn.command.clone().map_or(String::new(), |words| {
                    words[2..].iter().map(|word| word.rsplit('/').next().unwrap_or(word)).collect::<Vec<_>>().join(" ")
                }),
            };
            Row::new(turn.name, told, turn.command.map(|_| turn.samples))
        })
        .collect();
    let section = Section { unit: "ms", peer: NICKEL, rows, goals: Vec::new() }.with_ratios();
    let median = |name: &str| section.rows.iter().find(|row| row.name == name).and_then(Row::median);
    let goals = vec![
        Goal {
            text: "cold embedded evaluation, in its jail, over `nickel export` of the same profile".into(),
            reached: section.ratio(RAW),
            bound: Bound::AtMost(1.0),
            aim: "less",
        },
        Goal {
            text: "ms for each of 100 profiles exported at once".into(),
            reached: median(ALL),
            bound: Bound::AtMost(2.0),
            aim: "less",
        },
        Goal {
            text: "ms that a known profile adds to a run".into(),
            reached: median(KNOWN).zip(median(PLAIN)).map(|(known, plain)| known - plain),
            bound: Bound::AtMost(0.3),
            aim: "less",
        },
    ];
    Ok(Section { goals, ..section })
}

/// Calls from Python, and the same from Rust.
pub(super) fn python(context: &Context) -> Result<Section> {
    const RUST: &str = "Rust: run, two kept ready, ms";
    let workspace = Workspace::read()?;
    let evaluator = evaluator(&context.programs)?;
    let Some(tools) = crate::python::tools(&workspace)? else { return Err("no Python can make environments".into()) };
    let Some(python) = crate::python::released(&workspace, &tools, &evaluator)? else {
        return Err("no Python can make environments".into());
    };
    let mut built = executables(cargo().args(["build", "--release", "-p", "cofferdam-python", "--example", "noop"]))?;
    let noop = built.remove("noop").ok_or("cargo built no example noop")?;
    let mut command = Command::new(&python);
    command.arg(workspace.root.join("python/bench/runs.py")).arg("--json").arg("--rust").arg(&noop);
    command.args(["--rounds", context.pick("15", "2"), "--runs", context.pick("200", "64")]);
    command.current_dir(&context.programs.directory);
    let told: Value = serde_json::from_str(&crate::shell::output(&mut command)?)
        .map_err(|error| format!("python/bench/runs.py printed no JSON: {error}"))?;
    let rows: Vec<Row> = told
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, samples)| {
            let samples = samples.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
            Row::new(name.clone(), "", Ok(Samples(samples)))
        })
        .collect();
    let median = |name: &str| rows.iter().find(|row| row.name == name).and_then(Row::median);
    let over = |one: &str, other: &str| median(one).zip(median(other)).map(|(one, other)| one / other);
    let goals = vec![
        Goal {
            text: "`execute_sync` of a no-op from Python over the same call from Rust".into(),
            reached: over("Python: NclDrivenSandbox.execute_sync, ms", RUST),
            bound: Bound::AtMost(1.3),
            aim: "1.0",
        },
        Goal {
            text: "runs per second of 32 tasks of `execute` over 32 threads of Rust".into(),
            reached: over("Python: 32 tasks of execute(), runs/s", "Rust: 32 threads, runs/s"),
            bound: Bound::AtLeast(0.8),
            aim: "1.0",
        },
    ];
    Ok(Section { unit: "as the row says", peer: RUST, rows, goals })
}
