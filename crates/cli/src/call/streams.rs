//! The streams of a call without a policy file: whether it gets a terminal, what standard input is, and the limits that go by
//! them. Pure.

use cofferdam_policy::{BackendName, Limits, Policy, Stdin};

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

/// Whether the program gets a terminal without `--tty`: where all streams of the caller are one. It is a terminal of the
/// sandbox's own, never the caller's.
pub(super) fn gets_terminal(options: StreamOptions, caller: &Caller, policy: &Policy) -> bool {
    let has_terminals = matches!(policy.backend, BackendName::Auto | BackendName::Jail);
    caller.at_terminal && has_terminals && !options.input && !options.json
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
    if !options.json && !options.output_limit && limits.output_bytes == Limits::base().output_bytes {
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

    #[test]
    fn a_program_that_is_started_at_a_terminal_gets_one() {
        let at = Caller { at_terminal: true, ..Caller::default() };
        assert!(gets_terminal(StreamOptions::default(), &at, &Policy::base()));
        assert!(!gets_terminal(StreamOptions::default(), &Caller::default(), &Policy::base()), "no terminal");
        let given = StreamOptions { input: true, ..StreamOptions::default() };
        assert!(!gets_terminal(given, &at, &Policy::base()), "it has its input");
        let captured = StreamOptions { json: true, ..StreamOptions::default() };
        assert!(!gets_terminal(captured, &at, &Policy::base()), "its output is captured");
        let container = Policy { backend: BackendName::Docker, ..Policy::base() };
        assert!(!gets_terminal(StreamOptions::default(), &at, &container), "a container has none");
    }

    #[test]
    fn limits_of_time_that_are_named_hold_at_a_terminal() {
        let mut policy = Policy::base();
        policy.limits.wall_ms = 5_000;
        lift_limits(&mut policy, StreamOptions { timeout: true, ..StreamOptions::default() }, true);
        assert_eq!(policy.limits.wall_ms, 5_000);
        assert!(policy.limits.cpu_seconds > 1_000_000 && policy.limits.output_bytes == UNLIMITED_OUTPUT);
        // Limits of time that no option names do not apply at a terminal.
        let mut unnamed = Policy::base();
        lift_limits(&mut unnamed, StreamOptions::default(), true);
        assert!(unnamed.limits.wall_ms > 365 * 86_400_000 && unnamed.limits.cpu_seconds > 1_000_000);
        let mut captured = Policy::base();
        lift_limits(&mut captured, StreamOptions { json: true, ..StreamOptions::default() }, false);
        assert_eq!(captured, Policy::base());
    }
}
