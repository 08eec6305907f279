//! Options about processes: children, system calls, Unix sockets and the host name. Rows only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::args::option::{BLANK, Heading, PolicyOption, Takes};
use crate::args::values;

/// The options, in the order in which help shows them.
pub(super) const OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "no-spawn",
        rare: true,
        help: "No child process at all; threads still work",
        heading: Heading::NetworkAndProcesses,
        leaves: &["process.spawn"],
        requires: &[Field::Spawn],
        apply: |draft, _| {
            draft.policy.process.spawn = false;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "spawn",
        help: "Allow child processes, where the policy file does not",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.spawn"],
        apply: |draft, _| {
            draft.policy.process.spawn = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "nested-sandboxes",
        help: "Let programs make sandboxes of their own inside",
        more: "As bubblewrap does. It costs the second layer behind the mounts, puts the kernel's code for mounts and \
               networks in reach, and goes with the view `minimal`; nothing may be held inside writable mounts.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.nested_sandboxes"],
        requires: &[Field::NestedSandboxes],
        apply: |draft, _| {
            draft.policy.process.nested_sandboxes = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "seccomp",
        takes: Takes::Choice("LEVEL", &["disabled", "basic", "standard", "strict"]),
        help: "System calls: disabled, basic, standard or strict",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.seccomp.level"],
        requires: &[Field::Seccomp],
        apply: |draft, text| {
            draft.policy.process.seccomp.level = match text {
                "disabled" => SeccompLevel::Disabled,
                "basic" => SeccompLevel::Basic,
                "standard" => SeccompLevel::Standard,
                _ => SeccompLevel::Strict,
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "syscall-rule",
        takes: Takes::Many("CALLS:ACTION[:WHEN]"),
        help: "Refuse or kill on system calls, on top of the level",
        more: "CALLS are names with commas between them, ACTION is `kill` or an errno name, WHEN are conditions that \
               must all hold, each an argument's number from 0, an optional `&MASK`, one of == != < <= > >=, and a \
               number: `ptrace:kill`, `socket:EPERM:0==16`, `mmap,mprotect:EACCES:2&4!=0`.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.seccomp.rules"],
        requires: &[Field::Seccomp],
        apply: |draft, text| {
            draft.policy.process.seccomp.rules.push(values::syscall_rule(text)?);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "unix-sockets",
        help: "Allow Unix sockets made inside or found in volumes",
        more: "Those in the working directory too. Sockets of the host's services stay denied.",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.unix_sockets"],
        apply: |draft, _| {
            draft.policy.process.unix_sockets = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "no-unix-sockets",
        help: "Refuse Unix sockets, where the policy file does not",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.unix_sockets"],
        requires: &[Field::UnixSockets],
        apply: |draft, _| {
            draft.policy.process.unix_sockets = false;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "hostname",
        takes: Takes::One("NAME"),
        help: "Host name inside",
        heading: Heading::NetworkAndProcesses,
        rare: true,
        leaves: &["process.hostname"],
        requires: &[Field::Hostname],
        apply: |draft, text| {
            draft.policy.process.hostname = text.to_owned();
            Ok(())
        },
        ..BLANK
    },
];
