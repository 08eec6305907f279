//! The command line as clap sees it, built out of the option table. No parsing result has a side effect here.
//!
//! Start-up counts, so a call builds only the subcommand that it names; help, man pages and completions build all.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, Command};

use crate::options::{HOLD, POLICY_OPTIONS, PROGRAM, PolicyOption, Takes};

const ABOUT: &str = "Runs code that nobody has vetted, walled in, and says exactly what happened.";

const EXAMPLES: &str = "\
Examples:
  cofferdam eval python 'print(6*7)'
  cofferdam run -- ./build.sh
  cofferdam run -v .:.:cow,exec --timeout 5m -- make test
  cofferdam eval shell -it
  cofferdam run --profile ./reader.ncl -v .:.:ro -w . -- cat notes.txt

Exit code: the program's own; 128+N when signal N ended it; 124 for the wall
limit; 137 for another limit; 125 when Cofferdam refused or failed itself;
126 and 127 when the program cannot be executed or found.";

/// Every subcommand by name.
pub const SUBCOMMANDS: &[&str] = &["run", "eval", "check", "export", "environment", "skill", "mcp", "audit", "doctor"];

/// What of the command line is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent<'a> {
    /// Everything, with the long help: for help, errors, man pages and completions.
    All,
    /// What parsing a call of this subcommand needs.
    Only(&'a str),
}

/// The whole command line, for help and generators.
pub fn cli_command() -> Command {
    build(Extent::All)
}

/// The command line, as much of it as asked for.
pub fn build(extent: Extent<'_>) -> Command {
    let mut root = Command::new("cofferdam").version(env!("CARGO_PKG_VERSION"));
    if extent == Extent::All {
        root = root.about(ABOUT).after_help(EXAMPLES).subcommand_required(true).arg_required_else_help(true);
    }
    for name in SUBCOMMANDS {
        match extent {
            Extent::Only(only) if only != *name => {}
            _ => root = root.subcommand(subcommand(name, extent == Extent::All)),
        }
    }
    root
}

fn subcommand(name: &'static str, full: bool) -> Command {
    let command = Command::new(name).args_override_self(true);
    let command = if name == "check" { crate::profile::options(command, None) } else { command };
    match name {
        "run" => sandbox(command, full, Sandbox::Run)
            .about("Run a program in a sandbox")
            .override_usage("cofferdam run [OPTIONS] [--] PROGRAM [ARGS]..."),
        "eval" => sandbox(command, full, Sandbox::Eval)
            .about("Run code in an environment (python, shell, node, ...); CODE - is standard input")
            .override_usage("cofferdam eval [OPTIONS] ENVIRONMENT [CODE | -] [-- ARGS...]"),
        "check" => command
            .about("Check policies and profiles: print each completed, or what is wrong with it")
            .after_help("Exit code: 0 when all are valid, 1 when one is not, 125 when one cannot be read.")
            .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON array"))
            .arg(
                Arg::new("file")
                    .value_name("FILE")
                    .required(true)
                    .num_args(1..)
                    .help("Policy as JSON, - for stdin; or a profile, with the ending .ncl"),
            ),
        "export" => crate::export::command(command),
        "environment" => crate::environment_command::command(command),
        "skill" => crate::skill::command(command),
        "mcp" => crate::mcp::command(command),
        "audit" => crate::audit::command(command),
        _ => command
            .about("Show what this host can enforce, and how to get the rest")
            .after_help(
                "Exit code: 0 when a backend can hold the default policy in full or in part, 1 when none can run.",
            )
            .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object")),
    }
}

/// Any name: which there are is not the parser's to know. Completions suggest the presets.
#[derive(Clone)]
struct EnvironmentName;

impl TypedValueParser for EnvironmentName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(crate::environment::NAMES.iter().map(PossibleValue::new)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sandbox {
    Run,
    Eval,
}

fn sandbox(mut command: Command, full: bool, which: Sandbox) -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    command = command
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("FILE")
                .help_heading(PROGRAM)
                .help("Start from this policy instead of the defaults"),
        )
        .arg(crate::profile::base_option(PROGRAM))
        .arg(flag("tty").short('t').help_heading(PROGRAM).help("Give it a terminal of its own; implies -i"));
    for option in POLICY_OPTIONS {
        command = command.arg(policy_arg(option, full));
    }
    command = crate::profile::options(command, Some(PROGRAM));
    command = command
        .arg(
            Arg::new("keep-changes")
                .long("keep-changes")
                .value_name("DIR")
                .help_heading(HOLD)
                .help("Keep what copy-on-write volumes changed in DIR"),
        )
        .arg(
            Arg::new("audit-trail")
                .long("audit-trail")
                .value_name("DIR")
                .help_heading(HOLD)
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
                .help_heading(HOLD)
                .hide_short_help(true)
                .help("Take the value of this variable of the program's out of what is recorded")
                .long_help("Take the value of this variable of the program's out of what is recorded; may be given again"),
        )
        .arg(flag("dry-run").help_heading(HOLD).help("Print policy and plan; start nothing"))
        .arg(flag("json").help_heading(HOLD).help("Print one outcome as JSON instead of the output"))
        .arg(flag("quiet").short('q').help_heading(HOLD).help("Say nothing about limits and refusals"))
        // clap's own would open a section of its own and cost the one-screen help three lines.
        .disable_help_flag(true)
        .arg(
            Arg::new("help")
                .short('h')
                .long("help")
                .action(ArgAction::Help)
                .help_heading(HOLD)
                .help("Print this; --help says more, with defaults"),
        );
    command = match which {
        // One argument, not two: with arguments of their own, options right behind the program would be ours.
        Sandbox::Run => command.arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .num_args(0..)
                .trailing_var_arg(true)
                .hide_short_help(true)
                .long_help("Program to run and its arguments, options included; the policy file's own when left out"),
        ),
        Sandbox::Eval => command
            .arg(
                Arg::new("file")
                    .long("file")
                    .value_name("FILE")
                    .conflicts_with("code")
                    .help_heading(PROGRAM)
                    .help("Run this file, at its own path"),
            )
            .arg(
                Arg::new("environment")
                    .value_name("ENVIRONMENT")
                    .required(true)
                    .value_parser(EnvironmentName)
                    .hide_possible_values(true)
                    .hide_short_help(true)
                    .long_help(
                        "python, shell or node; the name of a defined environment (cofferdam environment list); or an \
                         artifact's directory, as a path with a slash in it",
                    ),
            )
            .arg(crate::environment_command::config_option().help_heading(PROGRAM).hide_short_help(true))
            .arg(Arg::new("code").value_name("CODE").hide_short_help(true).long_help(
                "Code to run; - reads it from standard input; an interactive session when left out with -it",
            ))
            .arg(
                Arg::new("args")
                    .value_name("ARGS")
                    .last(true)
                    .num_args(0..)
                    .hide_short_help(true)
                    .long_help("Arguments for the code"),
            ),
    };
    if full {
        let root = if which == Sandbox::Run { "host" } else { "minimal" };
        command = command.after_long_help(format!("{}\n{EXAMPLES}", defaults(root)));
    }
    command
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
        arg = arg.help(option.help).help_heading(option.heading).hide_short_help(option.rare);
        // Always both: a man page takes the long one, and nothing where it is missing and the short one is hidden.
        arg = match option.more {
            "" => arg.long_help(option.help),
            more => arg.long_help(format!("{}. {more}", option.help)),
        };
    }
    arg
}

/// What holds when no option and no policy file says otherwise, as an aligned table.
pub fn defaults(root: &str) -> String {
    let mut base = cofferdam_policy::Policy::base();
    base.filesystem.root = if root == "host" { cofferdam_policy::Root::Host } else { cofferdam_policy::Root::Minimal };
    let mut text = String::from("Defaults:\n");
    let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<16}{value}\n"));
    let limits = &base.limits;
    if root == "host" {
        row("files", "the host, read-only, without credentials, /run and /tmp".into());
        row("workdir", "the caller's, read-only".into());
    } else {
        row("files", "the system's programs and libraries, read-only".into());
        row("workdir", "the sandbox's own home".into());
    }
    let variables: Vec<String> = base.command.variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
    for (at, pair) in variables.chunks(3).enumerate() {
        row(if at == 0 { "variables" } else { "" }, pair.join(" "));
    }
    row("stdin", "closed".into());
    row("network", "none".into());
    row("seccomp", "standard".into());
    row("memory", format!("{}m", limits.memory_mb));
    row("cpus", format!("{}", limits.cpu_millis as f64 / 1000.0));
    row("timeout", format!("{}s", limits.wall_ms as f64 / 1000.0));
    row("cpu-time", format!("{}s", limits.cpu_seconds));
    row("pids", limits.processes.to_string());
    row("open-files", limits.open_files.to_string());
    row("file-size", format!("{}m", limits.file_size_mb));
    row("tmpfs-size", format!("{}m", limits.tmpfs_mb));
    row("output-limit", format!("{}k", limits.output_bytes >> 10));
    row("layer-size", format!("{}m", limits.layer_mb));
    row("layer-files", limits.layer_inodes.to_string());
    row("hostname", base.process.hostname.clone());
    text.push_str("  Default limits hold as far as the host allows; what an option names must hold in full.\n");
    text
}
