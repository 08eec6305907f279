//! The subcommands, one file or folder each, and the table of all of them. The command line is built out of the table.
//!
//! Each has `command`, which defines its arguments for clap, and `run`, which performs a parsed call. Parsing counts for
//! the time of a cold start, so a call builds only the subcommand that it names; help, man pages and completions build all.

mod agent;
mod audit;
mod check;
mod doctor;
mod environment;
mod eval;
mod export;
mod mcp;
mod run;
mod skill;

use clap::{ArgMatches, Command};
use cofferdam_engine::Engine;

use crate::args::help::EXAMPLES;
use crate::refusal::CliRefusal;

const ABOUT: &str = "Runs unvetted code in a sandbox, and reports exactly what happened.";

/// One subcommand.
pub struct Subcommand {
    /// Its name.
    pub name: &'static str,
    /// Adds its arguments to an empty command. With `false`, only what parsing needs: no long help.
    build: fn(Command, bool) -> Command,
    /// Performs a parsed call and returns the exit code. The engine is there where `engine_first` says so.
    pub run: fn(&ArgMatches, Option<Engine>) -> Result<i32, CliRefusal>,
    /// Whether the engine starts before the arguments are parsed, because both take time.
    pub engine_first: bool,
    /// Whether a parsed call changes nothing, so that it may end without a message when the reader of its output went away.
    pub only_reads: fn(&ArgMatches) -> bool,
}

/// Every subcommand, in the order of the help.
pub(crate) const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "run",
        build: run::command,
        run: run::run,
        engine_first: true,
        only_reads: |matches| matches.get_flag("dry-run"),
    },
    Subcommand {
        name: "eval",
        build: eval::command,
        run: eval::run,
        engine_first: true,
        only_reads: |matches| matches.get_flag("dry-run"),
    },
    Subcommand {
        name: "agent",
        build: agent::command,
        run: |matches, _| agent::run(matches),
        engine_first: false,
        only_reads: |matches| matches.get_flag("dry-run"),
    },
    Subcommand {
        name: "check",
        build: |command, _| check::command(command),
        run: |matches, _| check::run(matches),
        engine_first: false,
        only_reads: |_| true,
    },
    Subcommand {
        name: "export",
        build: |command, _| export::command(command),
        run: |matches, _| export::run(matches),
        engine_first: false,
        only_reads: |_| false,
    },
    Subcommand {
        name: "environment",
        build: |command, _| environment::command(command),
        run: |matches, _| environment::run(matches),
        engine_first: false,
        only_reads: environment::only_reads,
    },
    Subcommand {
        name: "skill",
        build: |command, _| skill::command(command),
        run: |matches, _| skill::run(matches),
        engine_first: false,
        only_reads: skill::only_reads,
    },
    Subcommand {
        name: "mcp",
        build: |command, _| mcp::command(command),
        run: |matches, _| mcp::run(matches),
        engine_first: false,
        only_reads: |_| false,
    },
    Subcommand {
        name: "audit",
        build: |command, _| audit::command(command),
        run: |matches, _| audit::run(matches),
        engine_first: false,
        only_reads: audit::only_reads,
    },
    Subcommand {
        name: "doctor",
        build: |command, _| doctor::command(command),
        run: |matches, _| doctor::run(matches),
        engine_first: false,
        only_reads: |_| true,
    },
];

/// The names of the subcommands.
pub fn names() -> Vec<&'static str> {
    SUBCOMMANDS.iter().map(|subcommand| subcommand.name).collect()
}

/// The subcommand of this name.
pub fn find(name: &str) -> Option<&'static Subcommand> {
    SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name)
}

/// How much of the command line is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent<'a> {
    /// All of it, with the long help: for help, errors, man pages and completions.
    All,
    /// What parsing a call of this subcommand needs.
    Only(&'a str),
}

/// The whole command line, for help and generators.
pub fn cli_command() -> Command {
    build(Extent::All)
}

/// The command line, to this extent.
pub fn build(extent: Extent<'_>) -> Command {
    let mut root = Command::new("cofferdam").version(env!("CARGO_PKG_VERSION"));
    if extent == Extent::All {
        root = root.about(ABOUT).after_help(EXAMPLES).subcommand_required(true).arg_required_else_help(true);
    }
    for subcommand in SUBCOMMANDS {
        match extent {
            Extent::Only(only) if only != subcommand.name => {}
            _ => {
                let command = Command::new(subcommand.name).args_override_self(true);
                root = root.subcommand((subcommand.build)(command, extent == Extent::All));
            }
        }
    }
    root
}
