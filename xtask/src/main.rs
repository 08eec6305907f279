//! `cargo xtask TASK`: everything that is done to the project, by one program that needs nothing but cargo.
//!
//! This file reads the arguments and calls the task; each task is a module. No task changes the machine beyond
//! installing Debian packages, and it says so before it does.
#![forbid(unsafe_code)]

mod bench;
mod deps;
mod docs;
mod generate;
#[allow(dead_code, reason = "guests use part of it")]
mod guest;
mod guests;
mod imports;
mod lint;
mod mcp;
mod packages;
mod parts;
mod policy_page;
mod python;
#[cfg(test)]
mod repository;
mod shell;
mod soak;
mod tasks;
mod test;
mod workspace;

use std::process::ExitCode;

/// Ends in words: a task's error is shown as it is.
pub type Result<T = ()> = std::result::Result<T, String>;

/// One task: its name, its usage line, and what runs it.
struct Task {
    name: &'static str,
    usage: &'static str,
    run: fn(&[String]) -> Result,
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        usage: "test [--fast]        install what the tests need, then run all of them (--fast: without guests)",
        run: test::run,
    },
    Task {
        name: "guests",
        usage: "guests [--only NAME]    the part of the tests that runs in virtual machines",
        run: guests::run,
    },
    Task {
        name: "soak",
        usage: "soak [--kills N] [--sandboxes N] [--minutes N] [--write]   long runs: random kills, hostile load",
        run: soak::run_from,
    },
    Task {
        name: "tasks",
        usage: "tasks [FILTER…] [--must ID,…] [--users root|65534|all] [--write|--fetch]   try what users type first, as tests/tasks says",
        run: tasks::run_from,
    },
    Task { name: "lint", usage: "lint                 formatting and clippy, warnings denied", run: lint::run_from },
    Task {
        name: "deps",
        usage: "deps                 hold the dependencies to deny.toml, and crates and their files to their layers",
        run: deps::run,
    },
    Task {
        name: "generate",
        usage: "generate [--check]   write man pages, completions, docs/cli.md and the schema, or say which are stale",
        run: generate_files,
    },
    Task {
        name: "docs",
        usage: "docs                 make the book of docs/ in target/book, and hold every link in it",
        run: docs::run_from,
    },
    Task {
        name: "bench",
        usage: "bench [--quick] [--only NAME,… [--write]]   measure; a full run writes docs/performance.md and README.md",
        run: bench::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let task = arguments.first().and_then(|name| TASKS.iter().find(|task| task.name == name));
    let Some(task) = task else {
        eprintln!("usage: cargo xtask TASK\n");
        for task in TASKS {
            eprintln!("  {}", task.usage);
        }
        return ExitCode::from(2);
    };
    match (task.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {}: {message}", task.name);
            ExitCode::FAILURE
        }
    }
}

fn generate_files(arguments: &[String]) -> Result {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        other => return Err(format!("unknown arguments {other:?}; accepted: --check")),
    };
    generate::generate(&workspace::Workspace::read()?.root, check)
}
