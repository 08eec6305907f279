//! `cofferdam skill`: signs skills, registers those that are whole and their publisher's, and runs them.
//!
//! Owns the command line and where the registry is. What a skill must be is `cofferdam_config::skills`'; how its run is
//! supervised is `execute`'s.
//!
//! Exit code: of `run`, as of `cofferdam run`; otherwise 0, 1 when the skill is refused, 125 when nothing can be told.

pub mod hints;
mod image;
mod manage;
mod run;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::skills::{Registry, SkillError, Spec};
use cofferdam_engine::audit::{Options, Trail};
use cofferdam_engine::{Engine, Expected};

use crate::audit;
use crate::caller::Caller;
use crate::report::Refusal;

const ACTIONS: &[&str] = &["keygen", "sign", "verify", "register", "list", "show", "run", "revoke"];

/// Exit code when a skill is refused.
const AT_FAULT: i32 = 1;

/// The command line of `skill`.
pub fn command(command: Command) -> Command {
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
             cofferdam run; else 0, 1 when the skill is refused, 125 when nothing can be told.",
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
                .value_parser(crate::values::BACKENDS.to_vec())
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

/// What all actions need.
struct Called<'m> {
    matches: &'m ArgMatches,
    caller: &'m Caller,
    registry: Registry,
}

impl Called<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.matches.get_one::<String>(name).map(String::as_str)
    }

    fn flag(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    /// A path of the caller's.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(|given| self.caller.absolute(given).into())
    }

    /// What the action is about.
    fn what(&self, form: &str) -> Result<&str, Refusal> {
        let action = self.text("action").unwrap_or_default();
        self.text("what").ok_or_else(|| {
            Refusal::new("arguments", format!("{action} takes a {form}"))
                .hint(format!("cofferdam skill {action} {form}"))
        })
    }

    fn spec(&self) -> Result<Spec, Refusal> {
        self.what("NAME")?.parse().map_err(|told: String| Refusal::new("arguments", told).hint("cofferdam skill list"))
    }

    /// The directory of the trail.
    fn trail_directory(&self) -> Result<PathBuf, Refusal> {
        self.path("audit-trail").map_or_else(|| audit::directory(self.caller), Ok)
    }

    /// The trail, open: what cannot be recorded is not done.
    fn trail(&self) -> Result<Trail, Refusal> {
        let directory = self.trail_directory()?;
        Trail::open(&directory, Options::default())
            .map_err(|error| Refusal::new("audit", error.to_string()).split_hint())
    }
}

/// Does what is asked for, and returns the exit code.
pub fn run(matches: &ArgMatches) -> Result<i32, Refusal> {
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    // First of all: what it has to find out takes as long as the rest.
    let engine = (action == "run").then(|| Engine::for_own_process(Expected::Run));
    let caller = Caller::observe()?;
    let named = matches.get_one::<String>("registry").map(|given| PathBuf::from(caller.absolute(given)));
    let registry = Registry::at(named.map_or_else(|| directory(&caller), Ok)?);
    let called = Called { matches, caller: &caller, registry };
    if action != "run" && matches.get_many::<String>("args").is_some() {
        return Err(Refusal::new("arguments", format!("{action} takes no arguments behind --")));
    }
    let exchanged = [("input", "--input"), ("output", "--output")].into_iter().find(|(id, _)| matches.contains_id(id));
    if let Some((_, option)) = exchanged.filter(|_| action != "run") {
        return Err(Refusal::new("arguments", format!("{action} takes no {option}: only run does")));
    }
    match action {
        "keygen" => manage::keygen(&called),
        "sign" => manage::sign(&called),
        "verify" => manage::verify(&called),
        "register" => manage::register(&called),
        "list" => manage::list(&called),
        "show" => manage::show(&called),
        "revoke" => manage::revoke(&called),
        _ => {
            let engine = engine.unwrap_or_else(|| Engine::for_own_process(Expected::Anything));
            run::run(&called, &engine.telling(crate::progress::tell(called.flag("quiet"))))
        }
    }
}

/// The registry where none is named.
fn directory(caller: &Caller) -> Result<PathBuf, Refusal> {
    if let Some(named) = caller.variable("COFFERDAM_SKILLS").filter(|named| !named.is_empty()) {
        return Ok(caller.absolute(named).into());
    }
    let data = caller.variable("XDG_DATA_HOME").filter(|path| path.starts_with('/')).map(PathBuf::from);
    let home = || caller.homes.first().map(|home| Path::new(home).join(".local/share"));
    data.or_else(home).map(|data| data.join("cofferdam/skills")).ok_or_else(|| {
        Refusal::new("skill", "there is no home directory for the registry").hint("--registry DIR names another place")
    })
}

/// A skill's faults as a refusal with this exit code.
fn refused(error: &SkillError, code: i32) -> Refusal {
    let mut refusal = Refusal::new("skill", error.to_string());
    refusal.hint = error.hint();
    match error {
        SkillError::Refused(_) => refusal.code(code),
        _ => refusal,
    }
}
