//! The arguments that `run` and `eval` have in common, for clap: policy, profile, terminal, the table of policy options,
//! and how the result is reported.

use clap::{Arg, ArgAction, Command};

use super::option::{Heading, PolicyOption, Takes};
use super::profile;
use super::table::POLICY_OPTIONS;

const PROGRAM: &str = Heading::Program.title();
const ENFORCEMENT: &str = Heading::Enforcement.title();

/// Adds the arguments of `run` and `eval`. Without `full`, only what parsing needs: no help.
pub fn arguments(mut command: Command, full: bool) -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    command = command
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("FILE")
                .help_heading(PROGRAM)
                .help("Start from this policy instead of the defaults"),
        )
        .arg(profile::base_option(PROGRAM))
        .arg(flag("tty").short('t').help_heading(PROGRAM).help("Give it a terminal of its own; implies -i"));
    for option in POLICY_OPTIONS {
        command = command.arg(policy_arg(option, full));
    }
    command = profile::options(command, Some(PROGRAM));
    command
        .arg(
            Arg::new("keep-changes")
                .long("keep-changes")
                .value_name("DIR")
                .help_heading(ENFORCEMENT)
                .help("Keep what copy-on-write volumes changed in DIR"),
        )
        .arg(
            Arg::new("grace")
                .long("grace")
                .value_name("TIME")
                .help_heading(Heading::Limits.title())
                .hide_short_help(true)
                .help("Time to end by itself after Ctrl-C or SIGTERM")
                .long_help(
                    "Time that the program has to end by itself after Ctrl-C, SIGTERM, SIGHUP or SIGQUIT, which is passed on \
                     to it; then it is killed, and a second signal kills it at once. Default: 10s; 0 kills it at once. \
                     Containers of docker and podman have it as well, bubblewrap and nsjail do not",
                ),
        )
        .arg(
            Arg::new("audit-trail")
                .long("audit-trail")
                .value_name("DIR")
                .help_heading(ENFORCEMENT)
                .hide_short_help(true)
                .help("Record start, refusals and end in the audit trail of DIR")
                .long_help(
                    "Record start, refusals and end in the audit trail of DIR, durably: what cannot be recorded does not \
                     start. Default: $COFFERDAM_AUDIT, or no trail. See cofferdam audit",
                ),
        )
        .arg(
            Arg::new("audit-secret")
                .long("audit-secret")
                .value_name("NAME")
                .action(ArgAction::Append)
                .help_heading(ENFORCEMENT)
                .hide_short_help(true)
                .help("Take the value of this variable of the program's out of what is recorded")
                .long_help("Take the value of this variable of the program's out of what is recorded; may be given again"),
        )
        .arg(flag("dry-run").help_heading(ENFORCEMENT).help("Print policy and plan; start nothing"))
        .arg(flag("json").help_heading(ENFORCEMENT).help("Print one outcome as JSON instead of the output"))
        .arg(flag("quiet").short('q').help_heading(ENFORCEMENT).help("Say nothing about limits and refusals"))
        // clap's own help option would open another section and cost the one-screen help three lines.
        .disable_help_flag(true)
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::Help)
                .help_heading(ENFORCEMENT)
                .help("Print this; --help says more, with defaults"),
        )
}

fn policy_arg(option: &PolicyOption, full: bool) -> Arg {
    let mut arg = Arg::new(option.long).long(option.long);
    if let Some(short) = option.short {
        arg = arg.short(short);
    }
    arg = match option.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::One(name) => arg.value_name(name).action(ArgAction::Set).allow_hyphen_values(option.long == "stdin"),
        Takes::Choice(name, values) => {
            arg.value_name(name).action(ArgAction::Set).value_parser(values.to_vec()).hide_possible_values(true)
        }
        Takes::Many(name) => arg.value_name(name).action(ArgAction::Append),
        Takes::Optional(name, missing) => arg
            .value_name(name)
            .action(ArgAction::Append)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value(missing),
    };
    if full {
        arg = arg.help(option.help).help_heading(option.heading.title()).hide_short_help(option.rare);
        // Both texts, always: a man page takes the long one, and shows nothing where only a hidden short one is given.
        arg = match option.more {
            "" => arg.long_help(option.help),
            more => arg.long_help(format!("{}. {more}", option.help)),
        };
    }
    arg
}
