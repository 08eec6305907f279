//! `cofferdam skill`: signs skills, registers those that are complete and signed by their publisher, and runs them.
//!
//! What a skill must be is `cofferdam_config::skills`'; its run is executed by `execute`.
//!
//! Exit code: of `run`, as of `cofferdam run`; otherwise 0, 1 when the skill is refused, 125 when that cannot be determined.

mod invocation;
mod registry;
mod rootfs;
mod run;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_engine::{Engine, ExpectedUse};

use self::invocation::Invocation;
use crate::args::values::BACKENDS;
use crate::caller::Caller;
use crate::outcome::refusal_report;
use crate::output::progress;
use crate::refusal::CliRefusal;

const ACTIONS: &[&str] = &["keygen", "sign", "verify", "register", "list", "show", "run", "revoke"];

/// The arguments of `skill`.
pub(super) fn command(command: Command) -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    command
        .about("Sign, register, run and revoke skills: directories of files under a signed manifest")
        .override_usage(
            "cofferdam skill [OPTIONS] <keygen FILE | sign DIR | verify DIR | register DIR | list | show NAME | run NAME \
             [-- ARGS]... | revoke NAME>",
        )
        .after_help(
            "keygen: makes a publisher's key, and prints its address. sign: signs the manifest of DIR with --key. verify: \
             every reason for which DIR would not be registered. register: takes DIR in, as it is signed. list, show: \
             what is registered. run: the latest version of a skill that may run, or NAME@VERSION. revoke: it never runs \
             again. Registering, revoking and running are recorded in the audit trail.\n\nExit code: of run, as of \
             cofferdam run; else 0, 1 when the skill is refused, 125 when that cannot be found out.",
        )
        .arg(text("registry", "DIR", "Where skills are registered").long_help(
            "Where skills are registered. Default: $COFFERDAM_SKILLS, or $XDG_DATA_HOME/cofferdam/skills, or \
             ~/.local/share/cofferdam/skills",
        ))
        .arg(text("key", "FILE", "sign: the publisher's key"))
        .arg(flag("files", "sign: list the files of DIR in the manifest first, as they are"))
        .arg(text("config", "FILE", "run: what the operator grants at most, as TOML or JSON"))
        .arg(
            text("backend", "NAME", "run: what holds it: auto, jail, docker, podman, oci, …")
                .value_parser(BACKENDS.to_vec())
                .hide_possible_values(true),
        )
        .arg(
            text("best-effort", "FIELD,…", "run: start also where these limits cannot be held in full")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("limits")
                .action(ArgAction::Append),
        )
        .arg(
            text("input", "FILE", "run: show this file to the skill, read-only, as /input/NAME; may be given again")
                .action(ArgAction::Append),
        )
        .arg(text("output", "DIR", "run: keep the files that the skill writes below /output in DIR").long_help(
            "run: keep the files that the skill writes below /output in DIR, which must not exist or be empty; at most 64 MiB",
        ))
        .arg(flag("interactive", "run: pass standard input on; it is closed otherwise").short('i'))
        .arg(text("audit-trail", "DIR", "The trail in which it is recorded").long_help(
            "The trail in which it is recorded. Default: $COFFERDAM_AUDIT, or $XDG_STATE_HOME/cofferdam/audit, or \
             ~/.local/state/cofferdam/audit",
        ))
        .arg(
            text("audit-secret", "NAME", "run: take the value of this variable out of what is recorded")
                .long_help(
                    "run: take the value of this variable, of yours or the skill's, out of what is recorded; may be given \
                     again",
                )
                .action(ArgAction::Append),
        )
        .arg(flag("dry-run", "run: print policy and plan; start nothing"))
        .arg(flag("json", "Print one JSON object; of run, its outcome").conflicts_with("result"))
        .arg(flag("result", "run: print {success, exitCode, stdout, stderr, durationMs} as JSON"))
        .arg(flag("quiet", "run: say nothing about limits and refusals").short('q'))
        .arg(
            Arg::new("action")
                .value_name("ACTION")
                .required(true)
                .value_parser(ACTIONS.to_vec())
                .help("keygen, sign, verify, register, list, show, run or revoke"),
        )
        .arg(Arg::new("what").value_name("WHAT").help("NAME or NAME@VERSION of a skill; a directory; the key's file"))
        .arg(Arg::new("args").value_name("ARGS").last(true).num_args(0..).help("run: arguments for the skill"))
}

/// Whether the call only reads the registry, or only plans a run.
pub(super) fn only_reads(matches: &ArgMatches) -> bool {
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    matches!(action, "verify" | "list" | "show") || (action == "run" && matches.get_flag("dry-run"))
}

/// Performs the action and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    perform(matches).or_else(|refusal| refusal_report::refused_with_faults(refusal, matches))
}

fn perform(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    // First of all: what the engine has to find out takes as long as the rest.
    let engine = (action == "run").then(|| Engine::for_own_process(ExpectedUse::Run));
    let caller = Caller::observe()?;
    let invocation = Invocation::of(matches, &caller)?;
    if action != "run"
        && (if invocation.named_behind() { !invocation.arguments().is_empty() } else { matches.contains_id("args") })
    {
        return Err(CliRefusal::new("arguments", format!("{action} takes no arguments behind --")));
    }
    let exchange = [("input", "--input"), ("output", "--output")].into_iter().find(|(id, _)| matches.contains_id(id));
    if let Some((_, option)) = exchange.filter(|_| action != "run") {
        return Err(CliRefusal::new("arguments", format!("{action} takes no {option}: only run does")));
    }
    match action {
        "keygen" => registry::keygen(&invocation),
        "sign" => registry::sign(&invocation),
        "verify" => registry::verify(&invocation),
        "register" => registry::register(&invocation),
        "list" => registry::list(&invocation),
        "show" => registry::show(&invocation),
        "revoke" => registry::revoke(&invocation),
        _ => {
            let engine = engine.unwrap_or_else(|| Engine::for_own_process(ExpectedUse::Anything));
            run::run(&invocation, &engine.on_progress(progress::reporter(invocation.flag("quiet"))))
        }
    }
}
