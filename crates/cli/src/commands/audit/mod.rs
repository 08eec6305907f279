//! `cofferdam audit`: verifies and reads audit trails, and signs them.
//!
//! Exit code: 0; 1 when a trail is not consistent; 125 when that cannot be determined. Writes nothing but keys and, when asked
//! for one, a checkpoint.

mod checkpoint;
mod errors;
mod records;
mod select;
mod unended;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_engine::audit;

use self::errors::unreadable;
use crate::call::audit_trail;
use crate::caller::Caller;
use crate::outcome::refusal_report;
use crate::refusal::CliRefusal;

const ACTIONS: &[&str] = &["verify", "show", "tail", "checkpoint", "keygen"];

/// The arguments of `audit`.
pub(super) fn command(command: Command) -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    command
        .about("Verify and read the audit trail")
        .override_usage("cofferdam audit [OPTIONS] <verify [DIR] | show [DIR] | tail [DIR] | checkpoint | keygen FILE>")
        .after_help(
            "verify: whether every record is as it was written, and which is not. What only an anchor shows: the last \
             records cut off, or everything written anew. show: records, those that the options name. Both name runs that began and have no end. tail: the last \
             ten; with -f those that come as well. checkpoint: signs the trail as it ends now, and prints the anchor. \
             keygen: makes a key that signs.\n\nExit code: 0 when all is right, 1 when the trail does not hold \
             together, 125 when that cannot be found out.",
        )
        .arg(text("dir", "DIR", "The trail's directory").long_help(
            "The trail's directory. Default: $COFFERDAM_AUDIT, or $XDG_STATE_HOME/cofferdam/audit, or \
             ~/.local/state/cofferdam/audit",
        ))
        .arg(text(
            "key",
            "KEY",
            "verify: the public key that checkpoints must be signed by; checkpoint: the key's file",
        ))
        .arg(text(
            "anchor",
            "ANCHOR",
            "verify: a file with anchored checkpoints; checkpoint: file:PATH, command:PROGRAM or syslog",
        ))
        .arg(text("trail", "ID", "verify: the trail that it must be, which verify prints").long_help(
            "verify: the trail that it must be, as verify printed it when it was right. Of an anchor with lines of several \
             trails, those of this one count",
        ))
        .arg(text("run", "ID", "Only records of this run; eight characters or more of its id are enough"))
        .arg(text("skill", "NAME", "Only records of this skill"))
        .arg(text("kind", "KIND", "Only records of this kind; may be given again").action(ArgAction::Append))
        .arg(text("since", "TIME", "Only records from then on, such as 2026-05-01T12:00:00Z, or 2026-05-01"))
        .arg(text("until", "TIME", "Only records until then"))
        .arg(
            Arg::new("follow").short('f').long("follow").action(ArgAction::SetTrue).help("tail: go on with what comes"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON: one object, or one record a line"),
        )
        .arg(
            Arg::new("action")
                .value_name("ACTION")
                .required(true)
                .value_parser(ACTIONS.to_vec())
                .help("verify, show, tail, checkpoint or keygen"),
        )
        .arg(Arg::new("what").value_name("DIR").help("The trail's directory, as --dir; of keygen: the file of the key"))
}

/// Whether the call only reads a trail.
pub(super) fn only_reads(matches: &ArgMatches) -> bool {
    let action = matches.get_one::<String>("action").map_or("", String::as_str);
    matches!(action, "verify" | "show" | "tail")
}

/// Performs the action and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let result = Caller::observe().and_then(|caller| perform(matches, &caller));
    result.or_else(|refusal| refusal_report::refused_with_faults(refusal, matches))
}

fn perform(matches: &ArgMatches, caller: &Caller) -> Result<i32, CliRefusal> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let json = matches.get_flag("json");
    let action = text("action").unwrap_or_default();
    // What only reads has nothing else that could be named.
    let named = text("what").filter(|_| only_reads(matches) && text("dir").is_none());
    let dir: PathBuf = match text("dir").or(named) {
        Some(named) => caller.absolute(named).into(),
        None => audit_trail::directory(caller)?,
    };
    match (action, text("what").filter(|_| named.is_none())) {
        ("keygen", Some(file)) => checkpoint::keygen(Path::new(&caller.absolute(file)), json),
        ("keygen", None) => Err(CliRefusal::new("arguments", "keygen takes the file that it writes")
            .hint("cofferdam audit keygen audit.key")),
        (_, Some(_)) => {
            Err(CliRefusal::new("arguments", format!("{action} takes no file")).hint("--dir DIR names the trail"))
        }
        ("verify", _) => {
            let anchor = text("anchor").map(|given| anchor_file(caller, given)).transpose()?;
            verify::verify(&dir, text("key"), anchor, text("trail"), json)
        }
        ("checkpoint", _) => {
            checkpoint::checkpoint(&dir, text("key").map(|file| caller.absolute(file)), text("anchor"), json)
        }
        (action, _) => {
            let mut filter = select::filter(matches)?;
            let follow = matches.get_flag("follow");
            // `tail -f` may wait for a trail that does not exist yet.
            if !follow && !audit::is_trail(&dir).map_err(|e| unreadable(&dir, &e))? {
                return Err(CliRefusal::new("audit", format!("there is no trail in {}", dir.display()))
                    .hint("--dir DIR names the trail; `cofferdam run --audit-trail DIR` writes one"));
            }
            filter.run = filter.run.map(|given| select::whole_run(&dir, given)).transpose()?;
            select::require_known_kinds(&dir, &filter.kinds)?;
            match action {
                "show" => records::show(&dir, &filter, json),
                _ => records::tail(&dir, &filter, follow, json),
            }
        }
    }
}

/// The file in which `verify` searches for anchored checkpoints: a path, or `file:PATH` as `checkpoint` takes it.
fn anchor_file(caller: &Caller, given: &str) -> Result<String, CliRefusal> {
    match given.split_once(':') {
        Some(("file", path)) if !path.is_empty() => Ok(caller.absolute(path)),
        _ if given == "syslog" || given.starts_with("command:") => {
            Err(CliRefusal::new("arguments", format!("--anchor {given}: verify reads a file, and that is none"))
                .hint("--anchor PATH, a file with the lines that were written there, such as /var/log/auth.log"))
        }
        _ => Ok(caller.absolute(given)),
    }
}
