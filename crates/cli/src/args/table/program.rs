//! Options about the program: its variables, directory, standard input, and the name of the policy. Rows only.

use cofferdam_policy::Stdin;

use crate::args::option::{BLANK, PolicyOption, Takes};
use crate::args::values;

/// The options, in the order in which help shows them.
pub(super) const OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "env",
        short: Some('e'),
        takes: Takes::Many("NAME[=VALUE]"),
        help: "Set a variable; without VALUE, copy the caller's",
        more: "The program gets no other variable of the caller's.",
        leaves: &["command.variables"],
        apply: |draft, text| {
            let (name, value) = values::variable(text)?;
            let value = match value.or_else(|| draft.caller.variable(name)) {
                Some(value) => value.to_owned(),
                None => return Err(values::no_variable(name)),
            };
            draft.policy.command.variables.insert(name.to_owned(), value);
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "workdir",
        short: Some('w'),
        takes: Takes::One("DIR"),
        help: "Directory inside in which the program starts",
        leaves: &["command.cwd"],
        apply: |draft, text| {
            draft.policy.command.cwd = Some(draft.caller.absolute_inside(text));
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "interactive",
        short: Some('i'),
        help: "Pass standard input on, also a terminal's",
        leaves: &["command.stdin"],
        apply: |draft, _| {
            draft.policy.command.stdin = Stdin::Caller;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "stdin",
        takes: Takes::One("TEXT"),
        help: "Use TEXT as standard input; none closes it",
        more: "Without this option, what a pipe or a file gives on standard input goes to the program, and a terminal only \
               with -i or -t. A loop around it finds what the program has not read; where the program reads too, it needs `--stdin none`.",
        rare: true,
        leaves: &["command.stdin"],
        apply: |draft, text| {
            draft.policy.command.stdin = match text {
                "none" => Stdin::Closed,
                text => Stdin::Text(text.to_owned()),
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "id",
        takes: Takes::One("NAME"),
        help: "Name of the policy, for reports",
        rare: true,
        leaves: &["id"],
        apply: |draft, text| {
            draft.policy.id = Some(text.to_owned());
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "description",
        takes: Takes::One("TEXT"),
        help: "Free text about the policy",
        rare: true,
        leaves: &["description"],
        apply: |draft, text| {
            draft.policy.description = Some(text.to_owned());
            Ok(())
        },
        ..BLANK
    },
];
