//! The streams of a call without a policy file: whether it gets a terminal, what standard input is, and the limits that go by
//! them. Pure.

use cofferdam_policy::{BackendName, Policy, Stdin};

use super::defaults::{UNLIMITED_OUTPUT, without_time_limits};
use crate::caller::Caller;

/// What the command line says about the streams.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamOptions {
    /// `--tty`.
    pub tty: bool,
    /// `--interactive`, or `--stdin`.
    pub input: bool,
    /// `--json`: output is captured.
    pub json: bool,
    /// `--output-limit`.
    pub output_limit: bool,
    /// `--timeout`.
    pub timeout: bool,
    /// `--cpu-time`.
    pub cpu_time: bool,
}

/// Programs that talk to a person whatever their arguments are.
const INTERACTIVE: [&str; 21] = [
    "btop", "emacs", "gdb", "htop", "less", "lldb", "man", "mc", "micro", "more", "nano", "nvim", "pico", "ranger",
    "screen", "tig", "tmux", "top", "vi", "view", "vim",
];

/// Programs that talk to a person where they have no arguments but options of a shell.
const SHELLS: [&str; 20] = [
    "bash", "csh", "dash", "deno", "fish", "ghci", "ipython", "irb", "julia", "ksh", "lua", "mongosh", "node", "psql",
    "python", "python3", "sh", "sqlite3", "tcsh", "zsh",
];

/// Whether a command line talks to a person: an editor, a pager, a shell without a script.
fn is_interactive(argv: &[String]) -> bool {
    let Some((program, arguments)) = argv.split_first() else { return false };
    let name = program.rsplit('/').next().unwrap_or(program);
    let of_a_shell = |argument: &String| matches!(argument.as_str(), "-i" | "-l" | "--login" | "-il" | "-li");
    INTERACTIVE.contains(&name) || (SHELLS.contains(&name) && arguments.iter().all(of_a_shell))
}

/// Whether the program gets a terminal without `--tty`: where a person at a terminal starts a program that talks to one. It is a terminal of the sandbox's own, never the caller's.
pub(super) fn gets_terminal(options: StreamOptions, caller: &Caller, policy: &Policy) -> bool {
    let has_terminals = matches!(policy.backend, BackendName::Auto | BackendName::Jail);
    caller.at_terminal && has_terminals && !options.input && !options.json && is_interactive(&policy.command.argv)
}

/// Has the program's input come from its terminal. `names_terminal` takes the name of the caller's, unless variables are named.
pub(super) fn connect_terminal(policy: &mut Policy, caller: &Caller, names_terminal: bool) {
    policy.command.stdin = Stdin::Caller;
    if let Some(term) = caller.variable("TERM").filter(|_| names_terminal) {
        policy.command.variables.insert("TERM".into(), term.into());
    }
}

/// Sets standard input where nothing has named it: what a pipe or a file gives goes to the program.
pub(super) fn set_input(policy: &mut Policy, options: StreamOptions, caller: &Caller, tty: bool) {
    if caller.gives_input && !options.input && !tty && policy.command.stdin == Stdin::Closed {
        policy.command.stdin = Stdin::Caller;
    }
}

/// Takes away the limits that only unattended output and runs need.
pub(super) fn lift_limits(policy: &mut Policy, options: StreamOptions, tty: bool) {
    let limits = &mut policy.limits;
    if !options.json && !options.output_limit && limits.output_bytes == Policy::base().limits.output_bytes {
        limits.output_bytes = UNLIMITED_OUTPUT;
    }
    if tty {
        let (wall_ms, cpu_seconds) = (limits.wall_ms, limits.cpu_seconds);
        without_time_limits(limits);
        if options.timeout {
            limits.wall_ms = wall_ms;
        }
        if options.cpu_time {
            limits.cpu_seconds = cpu_seconds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(line: &str) -> Policy {
        let mut policy = Policy::base();
        policy.command.argv = line.split(' ').map(str::to_owned).collect();
        policy
    }

    #[test]
    fn a_person_at_a_terminal_gets_one_for_programs_that_talk() {
        let at = Caller { at_terminal: true, ..Caller::default() };
        for talks in ["bash", "/bin/sh -l", "python3", "vim notes.txt", "less -R log", "htop"] {
            assert!(gets_terminal(StreamOptions::default(), &at, &running(talks)), "{talks}");
            assert!(
                !gets_terminal(StreamOptions::default(), &Caller::default(), &running(talks)),
                "{talks}: no terminal"
            );
            let given = StreamOptions { input: true, ..StreamOptions::default() };
            assert!(!gets_terminal(given, &at, &running(talks)), "{talks}: it has its input");
        }
        for works in ["make", "bash build.sh", "sh -c x", "python3 -c x", "python3 report.py", "node app.js"] {
            assert!(!gets_terminal(StreamOptions::default(), &at, &running(works)), "{works}");
        }
        let container = Policy { backend: BackendName::Docker, ..running("bash") };
        assert!(!gets_terminal(StreamOptions::default(), &at, &container), "a container has none");
    }

    #[test]
    fn limits_of_time_that_are_named_hold_at_a_terminal() {
        let mut policy = Policy::base();
        policy.limits.wall_ms = 5_000;
        lift_limits(&mut policy, StreamOptions { timeout: true, ..StreamOptions::default() }, true);
        assert_eq!(policy.limits.wall_ms, 5_000);
        assert!(policy.limits.cpu_seconds > 1_000_000 && policy.limits.output_bytes == UNLIMITED_OUTPUT);
        let mut captured = Policy::base();
        lift_limits(&mut captured, StreamOptions { json: true, ..StreamOptions::default() }, false);
        assert_eq!(captured, Policy::base());
    }
}
