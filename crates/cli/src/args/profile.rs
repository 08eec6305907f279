//! The options about profiles, for clap. What they mean is `call::profile`'s.

use clap::{Arg, ArgAction, Command};

/// Adds the options that every subcommand with profiles has.
pub fn options(command: Command, heading: Option<&'static str>) -> Command {
    let arg = |name: &'static str| Arg::new(name).long(name).help_heading(heading);
    command
        .arg(arg("set").value_name("A.B=VALUE").action(ArgAction::Append).help("Set a field of the profile").long_help(
            "Set a field of the profile, before its contracts are applied. VALUE is Nickel where it can be nothing \
             else (a number, true, false, null, or what begins with a quote, [, {, ( or '), and plain text otherwise",
        ))
        .arg(
            arg("allow-import")
                .value_name("DIR")
                .action(ArgAction::Append)
                .hide_short_help(true)
                .help("Let the profile import from DIR, too")
                .long_help(
                    "Let the profile import from DIR, too. Without it, a profile imports from its own directory \
                            and the policy library, and no names that begin with a dot",
                ),
        )
        .arg(
            arg("trust-profile")
                .action(ArgAction::SetTrue)
                .hide_short_help(true)
                .help("Evaluate the profile without a sandbox around it")
                .long_help(
                    "Evaluate the profile without a sandbox around it, where none is possible; what it may \
                            import, and its memory and time, are limited all the same",
                ),
        )
        .arg(
            arg("profiles")
                .value_name("DIR")
                .hide_short_help(true)
                .help("The profile store")
                .long_help("The profile store. Default: $COFFERDAM_PROFILES, or ~/.omni/sandbox/profiles"),
        )
}

/// The `--profile` option of `run` and `eval`.
pub(crate) fn base_option(heading: &'static str) -> Arg {
    Arg::new("profile")
        .long("profile")
        .value_name("FILE.ncl|ID")
        .conflicts_with("policy")
        .help_heading(heading)
        .help("Start from this profile, or a stored one")
        .long_help(
            "Start from this Nickel profile, or from the stored profile of that id. With a slash or the ending \
                    .ncl it is a file",
        )
}
