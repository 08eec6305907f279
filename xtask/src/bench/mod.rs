//! `cargo xtask bench`: how fast it is, beside its peers.
//!
//! Candidates take turns within one run, so that what else the machine does meets all of them; the order rotates from
//! round to round. One harness times all of them, and an exit code that only the no-op has proves that each ran it.
//! Figures are medians with the middle half; the ratio is to the named peer of the same run. A full run writes
//! docs/performance.md and the block of README.md; `--quick` and `--only` print, and `--only` with `--write` writes the tables
//! of what it measured.

mod audit;
mod command;
mod containers;
mod egress;
mod guard;
mod mcp;
mod peers;
mod profiles;
pub(crate) mod report;
mod sections;
mod stats;
mod worker;

use report::{Goal, Section, machine, replace_block};
use worker::Programs;

use crate::Result;
use crate::packages;
use crate::workspace::Workspace;

/// What every section gets.
pub(crate) struct Context {
    /// What is measured.
    programs: Programs,
    /// Few rounds: to see that it works, not to quote.
    quick: bool,
}

impl Context {
    /// One number for a full run, one for a quick one.
    fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A section's name and what measures it.
type Measure = (&'static str, fn(&Context) -> Result<Section>);

const SECTIONS: &[Measure] = &[
    ("cold", sections::cold),
    ("call", sections::call),
    ("paced", sections::paced),
    ("throughput", sections::throughput),
    ("resident", sections::resident),
    ("overhead", sections::overhead),
    ("memory", sections::memory),
    ("paths", sections::paths),
    ("command", command::command),
    ("guard", guard::guard),
    ("audit", audit::audit),
    ("skill", audit::skill),
    ("mcp", mcp::mcp),
    ("egress", egress::egress),
    ("containers", containers::containers),
    ("profiles", profiles::profiles),
    ("python", profiles::python),
];

/// What README.md repeats of the goals, each by its text and in words for a first reader. A goal is there whether it is met or
/// not: the page with all tables says which it is.
const HEADLINES: &[(&str, &str)] = &[
    ("cold `cofferdam run` over bubblewrap", "one command, against bubblewrap with everything unshared"),
    ("`cofferdam run --backend docker` over `docker run` with the same flags", "one container, against `docker run`"),
    ("gcc -O2 inside over bare", "compiling a program, against no sandbox"),
    ("git status, 20,000 files inside over bare", "`git status` of 20,000 files, against no sandbox"),
    ("1,000 × openat+close inside over bare", "opening and closing a file, against no sandbox"),
];

/// The table of [`HEADLINES`].
fn headlines(goals: &[Goal], machine: &str) -> Result<String> {
    let mut text = format!("{machine}\n\n| time of | ratio |\n|---|--:|\n");
    for (goal, words) in HEADLINES {
        let goal = goals.iter().find(|known| known.text == *goal).ok_or(format!("no goal is called {goal}"))?;
        text += &format!("| {words} | {} |\n", goal.reached.map_or("–".to_owned(), report::figure));
    }
    Ok(text)
}

/// The names of all measurements.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|(name, _)| *name)
}

/// The entry of the task table.
pub(crate) fn run(arguments: &[String]) -> Result {
    let mut quick = false;
    let mut tables = false;
    let mut only: Option<Vec<&str>> = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => quick = true,
            "--write" => tables = true,
            "--only" => only = Some(words.next().ok_or("--only needs names")?.split(',').collect()),
            other => {
                return Err(format!("unknown argument {other}; accepted: --quick, --only NAME,…, --write"));
            }
        }
    }
    if let Some(unknown) = only.iter().flatten().find(|name| !SECTIONS.iter().any(|(known, _)| known == *name)) {
        let known: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no measurement is called {unknown}; there are {}", known.join(", ")));
    }
    if quick && tables {
        return Err("what --quick measures is not to be quoted: leave --quick or --write out".into());
    }
    packages::ensure(packages::BENCH)?;
    let workspace = Workspace::read()?;
    let context = Context { programs: Programs::build(&workspace)?, quick };

    let machine = machine();
    println!("\n{machine}");
    let write = !quick && only.is_none();
    let tables = tables || write;
    let mut failed = Vec::new();
    let mut goals: Vec<Goal> = Vec::new();
    for (name, measure) in SECTIONS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only.contains(name))) {
        eprintln!("\n== {name}");
        match measure(&context) {
            Ok(section) => {
                let text = context.programs.shorten(&section.markdown(&machine));
                println!("\n### {name}\n\n{}", text.trim_start_matches(machine.as_str()).trim());
                if tables {
                    replace_block(&workspace.root.join("docs/performance.md"), &format!("bench-{name}"), &text)?;
                }
                goals.extend(section.goals);
            }
            Err(error) => {
                eprintln!("{name}: {error}");
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        return Err(format!("not measured: {}", failed.join(", ")));
    }
    if write {
        replace_block(&workspace.root.join("README.md"), "bench", &headlines(&goals, &machine)?)?;
        println!("\nwritten to docs/performance.md and README.md");
    }
    Ok(())
}
