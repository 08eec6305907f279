//! `cofferdam audit`: is a trail what was written, what stands in it, and what comes.
//!
//! Exit code: 0; 1 when a trail does not hold together; 125 when nothing can be told. Writes nothing but keys and, when
//! asked for one, a checkpoint.

mod verify;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_engine::audit::{self, Anchor, Filter, Follow, Key, Line, Options, Record, Secrets, Trail, Unended};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::call::Call;
use crate::caller::Caller;
use crate::execute::{print, print_json, unwritten};
use crate::report::{Refusal, print_note, printable};

const ACTIONS: &[&str] = &["verify", "show", "tail", "checkpoint", "keygen"];
/// Fewest characters by which a run can be named that has more.
const FEWEST: usize = 8;
/// How often `tail -f` looks for more.
const PAUSE: Duration = Duration::from_millis(100);
/// Most runs without an end that are told one by one.
const TOLD: usize = 20;
/// Records that `tail` begins with.
const LAST: usize = 10;

/// The command line of `audit`.
pub fn command(command: Command) -> Command {
    let text = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    command
        .about("Verify and read the audit trail")
        .override_usage("cofferdam audit [OPTIONS] <verify | show | tail | checkpoint | keygen FILE>")
        .after_help(
            "verify: whether every record is as it was written, and which is not. What only an anchor shows: the last \
             records cut off, or everything written anew. show: records, those that the options name. Both name runs that began and have no end. tail: the last \
             ten; with -f those that come as well. checkpoint: signs the trail as it ends now, and tells the anchor. \
             keygen: makes a key that signs.\n\nExit code: 0 when all is right, 1 when the trail does not hold \
             together, 125 when nothing can be told.",
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
        .arg(text("trail", "ID", "verify: the trail that it must be, which is told by verify").long_help(
            "verify: the trail that it must be, as verify told it when it was right. Of an anchor with lines of several \
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
        .arg(Arg::new("what").value_name("FILE").help("Where keygen writes the key"))
}

/// The directory of the trail where none is named.
pub fn directory(caller: &Caller) -> Result<PathBuf, Refusal> {
    if let Some(named) = caller.variable("COFFERDAM_AUDIT") {
        return Ok(caller.absolute(named).into());
    }
    let state = caller.variable("XDG_STATE_HOME").filter(|path| path.starts_with('/')).map(PathBuf::from);
    let home = || caller.homes.first().map(|home| Path::new(home).join(".local/state"));
    state.or_else(home).map(|state| state.join("cofferdam/audit")).ok_or_else(|| {
        Refusal::new("audit", "there is no home directory for the audit trail").hint("--dir DIR names another place")
    })
}

/// The directory of the trail that runs are recorded in, absolute: the one that is named, or the variable's. `None` where
/// there is neither.
pub fn named(option: Option<&String>, caller: &Caller) -> Option<String> {
    let variable = || caller.variable("COFFERDAM_AUDIT").filter(|dir| !dir.is_empty());
    option.map(String::as_str).or_else(variable).map(|dir| caller.absolute(dir))
}

/// The trail that a run is recorded in, where one is. `further` are variables that the program has not, and whose values may
/// come to it in other ways: the caller's, where a skill is run.
pub fn recording(call: &Call, further: Option<&Caller>) -> Result<Option<Trail>, Refusal> {
    let Some(dir) = &call.audit_trail else { return Ok(None) };
    let api = call.policy.network.api.as_ref();
    let value = |name: &String| {
        let own = call.policy.command.variables.get(name).cloned();
        let url = || api.filter(|api| api.variable == *name).map(|api| api.url.to_text());
        let callers = || further.and_then(|caller| caller.variable(name)).map(str::to_owned);
        own.or_else(url).or_else(callers).map(|value| (name.clone(), value))
    };
    if let Some(name) = call.audit_secrets.iter().find(|name| value(name).is_none()) {
        let (whose, hint) = match further {
            None => ("of the program's", format!("-e {name}=VALUE, or -e {name}")),
            Some(_) => ("of yours or the skill's", format!("{name}=VALUE cofferdam skill run …")),
        };
        return Err(Refusal::new("arguments", format!("--audit-secret {name} is no variable {whose}")).hint(hint));
    }
    let secrets = Secrets::new(call.audit_secrets.iter().filter_map(value));
    Trail::open(Path::new(dir), Options { secrets, ..Options::default() }).map(Some).map_err(|e| refused(&e))
}

/// Does what is asked for, and returns the exit code.
pub fn run(matches: &ArgMatches, caller: &Caller) -> Result<i32, Refusal> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let dir = text("dir").map_or_else(|| directory(caller), |named| Ok(caller.absolute(named).into()))?;
    let json = matches.get_flag("json");
    let action = text("action").unwrap_or_default();
    match (action, text("what")) {
        ("keygen", Some(file)) => keygen(Path::new(&caller.absolute(file)), json),
        ("keygen", None) => {
            Err(Refusal::new("arguments", "keygen takes the file that it writes")
                .hint("cofferdam audit keygen audit.key"))
        }
        (_, Some(_)) => {
            Err(Refusal::new("arguments", format!("{action} takes no file")).hint("--dir DIR names the trail"))
        }
        ("verify", _) => {
            let anchor = text("anchor").map(|given| anchor_file(caller, given)).transpose()?;
            verify::verify(&dir, text("key"), anchor, text("trail"), json)
        }
        ("checkpoint", _) => checkpoint(&dir, text("key").map(|file| caller.absolute(file)), text("anchor"), json),
        (action, _) => {
            let mut filter = filter(matches)?;
            let follow = matches.get_flag("follow");
            // Whoever follows may wait for a trail.
            if !follow && !audit::is_trail(&dir).map_err(|e| unread(&dir, &e))? {
                return Err(Refusal::new("audit", format!("there is no trail in {}", dir.display()))
                    .hint("--dir DIR names the trail; `cofferdam run --audit-trail DIR` writes one"));
            }
            filter.run = filter.run.map(|given| whole_run(&dir, given)).transpose()?;
            known_kinds(&dir, &filter.kinds)?;
            match action {
                "show" => show(&dir, &filter, json),
                _ => tail(&dir, &filter, follow, json),
            }
        }
    }
}

/// The run that is meant: the one of that id, or the only one whose id begins so, with [`FEWEST`] characters or more.
fn whole_run(dir: &Path, given: String) -> Result<String, Refusal> {
    let mut found = std::collections::BTreeSet::new();
    let mut all = Follow::new(dir);
    // A trail that cannot be read has none, and is told as that when it is shown.
    while given.len() >= FEWEST
        && let Ok(Some(line)) = all.next_line()
    {
        if let Line::Record(record) = line
            && let Some(run) = record.run.filter(|run| run.starts_with(&given))
        {
            if run == given {
                return Ok(given);
            }
            found.insert(run);
        }
    }
    match found.len() {
        0 => Ok(given),
        1 => Ok(found.pop_first().unwrap_or(given)),
        n => Err(Refusal::new("arguments", format!("--run {given}: the ids of {n} runs begin so"))
            .hint(format!("give more of it: {}", found.into_iter().take(3).collect::<Vec<_>>().join(", ")))),
    }
}

/// Refuses a kind that nothing writes. A trail may hold kinds of its writer's own: what is in it is known.
fn known_kinds(dir: &Path, kinds: &[String]) -> Result<(), Refusal> {
    let mut unknown: Vec<&String> = kinds.iter().filter(|kind| !audit::KINDS.contains(&kind.as_str())).collect();
    let mut all = Follow::new(dir);
    // A trail that cannot be read has none of them.
    while !unknown.is_empty()
        && let Ok(Some(line)) = all.next_line()
    {
        if let Line::Record(record) = line {
            unknown.retain(|kind| **kind != record.kind);
        }
    }
    match unknown.first() {
        None => Ok(()),
        Some(kind) => Err(Refusal::new("arguments", format!("--kind {kind}: there are no records of that kind"))
            .hint(format!("there are {}", audit::KINDS.join(", ")))),
    }
}

fn filter(matches: &ArgMatches) -> Result<Filter, Refusal> {
    let text = |name: &str| matches.get_one::<String>(name).cloned();
    let time = |name: &'static str| text(name).map(|given| instant(name, &given)).transpose();
    Ok(Filter {
        run: text("run"),
        skill: text("skill"),
        kinds: matches.get_many("kind").into_iter().flatten().cloned().collect(),
        since: time("since")?,
        until: time("until")?,
    })
}

/// A point in time as records write it, so that texts compare as times do.
fn instant(option: &str, given: &str) -> Result<String, Refusal> {
    let bytes = given.as_bytes();
    let digits = |from: usize, to: usize| bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit));
    let date = digits(0, 4) && digits(5, 7) && digits(8, 10) && bytes[4] == b'-' && bytes[7] == b'-';
    let clock = bytes.len() >= 19
        && bytes[10] == b'T'
        && digits(11, 13)
        && digits(14, 16)
        && digits(17, 19)
        && (bytes[13], bytes[16]) == (b':', b':');
    match given.get(19..) {
        None if date && bytes.len() == 10 => {
            Ok(if option == "until" { format!("{given}T23:59:59.999999Z") } else { given.to_owned() })
        }
        Some("Z" | "") if date && clock => {
            Ok(if option == "until" { format!("{}.999999Z", &given[..19]) } else { given[..19].to_owned() })
        }
        Some(rest) if date && clock && rest.starts_with('.') && rest.ends_with('Z') => Ok(given.to_owned()),
        _ => Err(Refusal::new("arguments", format!("--{option} {given:?} is no time in UTC"))
            .hint("2026-05-01, or 2026-05-01T12:00:00Z")),
    }
}

fn refused(error: &audit::AuditError) -> Refusal {
    Refusal::new("audit", error.to_string()).split_hint()
}

fn unread(dir: &Path, error: &std::io::Error) -> Refusal {
    let refusal = Refusal::new("audit", format!("cannot read the trail in {}: {error}", dir.display()));
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            refusal.hint("--dir DIR names the trail; `cofferdam run --audit-trail DIR` writes one")
        }
        _ => refusal,
    }
}

fn unanchored(file: &str, error: &std::io::Error) -> Refusal {
    Refusal::new("audit", format!("cannot read the anchor's file {file}: {error}")).hint(
        "`cofferdam audit checkpoint --key FILE --anchor file:PATH` writes one, and `verify --anchor PATH` reads it",
    )
}

/// The file in which `verify` looks for anchored lines: a path, also as `checkpoint` takes it.
fn anchor_file(caller: &Caller, given: &str) -> Result<String, Refusal> {
    match given.split_once(':') {
        Some(("file", path)) if !path.is_empty() => Ok(caller.absolute(path)),
        _ if given == "syslog" || given.starts_with("command:") => {
            Err(Refusal::new("arguments", format!("--anchor {given}: verify reads a file, and that is none"))
                .hint("--anchor PATH, a file with the lines that were told there, such as /var/log/auth.log"))
        }
        _ => Ok(caller.absolute(given)),
    }
}

fn keygen(file: &Path, json: bool) -> Result<i32, Refusal> {
    let key = Key::make(file).map_err(|e| refused(&e))?.public().text();
    if json { print_json(&serde_json::json!({ "key": key })) } else { print(&format!("{key}\n")) }.map(|()| 0)
}

fn checkpoint(dir: &Path, key: Option<String>, anchor: Option<&str>, json: bool) -> Result<i32, Refusal> {
    let file = key.ok_or_else(|| {
        Refusal::new("arguments", "a checkpoint needs a key").hint("cofferdam audit checkpoint --key audit.key")
    })?;
    let key = Key::read(Path::new(&file)).map_err(|e| refused(&e))?;
    let anchor = anchor.map(Anchor::parse).transpose().map_err(|e| Refusal::new("arguments", e))?;
    // Opening would make a trail where there is none.
    std::fs::metadata(dir).map_err(|e| unread(dir, &e))?;
    let options = Options { key: Some(key), anchor, of_others: true, ..Options::default() };
    let trail = Trail::open(dir, options).map_err(|e| refused(&e))?;
    let Some(link) = trail.checkpoint().map_err(|e| refused(&e))? else {
        return Err(Refusal::new("audit", format!("there is no record in {}", dir.display())));
    };
    if json {
        print_json(&serde_json::json!({ "record": link.seq, "hash": audit::hex(&link.hash) }))
    } else {
        print(&format!("record {}: {}\n", link.seq, audit::hex(&link.hash)))
    }
    .map(|()| 0)
}

/// One record for people, or as it stands.
fn line(record: &Record, json: bool) -> Result<String, Refusal> {
    if json {
        let text = serde_json::to_string(record)
            .map_err(|e| Refusal::new("output", format!("cannot write a record as JSON: {e}")))?;
        return Ok(text + "\n");
    }
    let mut text = format!("{:>6}  {}  {}", record.seq, record.time, record.kind);
    for (name, value) in [("skill", &record.skill), ("run", &record.run)] {
        if let Some(value) = value {
            text.push_str(&format!("  {name}={value}"));
        }
    }
    for (name, value) in &record.data {
        match value.as_str() {
            // What could pass for another field, or for another line, stands in quotes.
            Some(value) if !value.is_empty() && !value.contains(|c: char| c == '"' || c.is_whitespace()) => {
                text.push_str(&format!("  {name}={value}"))
            }
            _ => text.push_str(&format!("  {name}={value}")),
        }
    }
    Ok(printable(&text.replace('\n', "\\n")) + "\n")
}

fn told_line(found: &Line, json: bool) -> Result<(), Refusal> {
    match found {
        Line::Record(record) => print(&line(record, json)?),
        Line::Broken(file, number) => {
            print_note(&format!("{}:{number} is no whole record", file.display()), Some("cofferdam audit verify"));
            Ok(())
        }
    }
}

fn shown(
    dir: &Path,
    filter: &Filter,
    mut each: impl FnMut(Line) -> Result<(), Refusal>,
) -> Result<Vec<Unended>, Refusal> {
    let mut refusal = None;
    let done = audit::show(dir, filter, |found| {
        each(found).map_err(|e| {
            refusal = Some(e);
            std::io::Error::other("told already")
        })
    });
    match (refusal, done) {
        (Some(refusal), _) => Err(refusal),
        (None, Err(e)) => Err(unread(dir, &e)),
        (None, Ok(unended)) => Ok(unended),
    }
}

fn show(dir: &Path, filter: &Filter, json: bool) -> Result<i32, Refusal> {
    let unended = shown(dir, filter, |found| told_line(&found, json))?;
    for run in unended.iter().take(TOLD) {
        print_note(&verify::without_end(run), None);
    }
    if unended.len() > TOLD {
        print_note(&format!("{} more runs have no end", unended.len() - TOLD), Some("cofferdam audit verify --json"));
    }
    Ok(0)
}

/// Waits for a moment, and no longer than somebody reads what is printed.
fn pause() -> Result<(), Refusal> {
    let (stdout, patience) = (rustix::stdio::stdout(), Timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() });
    // Asked for nothing, it tells of errors and hang-ups alone.
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    match poll(&mut asked, Some(&patience)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => Err(unwritten(&std::io::ErrorKind::BrokenPipe.into())),
        Err(error) => Err(unwritten(&error.into())),
    }
}

fn tail(dir: &Path, filter: &Filter, follow: bool, json: bool) -> Result<i32, Refusal> {
    let mut last = std::collections::VecDeque::new();
    let mut all = Follow::new(dir);
    let mut next = || all.next_line().map_err(|e| unread(dir, &e));
    let takes = |found: &Line| !matches!(found, Line::Record(record) if !filter.takes(record));
    while let Some(found) = next()? {
        if takes(&found) {
            last.push_back(found);
            if last.len() > LAST {
                last.pop_front();
            }
        }
    }
    last.iter().try_for_each(|found| told_line(found, json))?;
    if !follow {
        return Ok(0);
    }
    loop {
        match next()? {
            Some(found) if takes(&found) => told_line(&found, json)?,
            Some(_) => {}
            None => pause()?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line_and_no_value_passes_for_a_field() {
        let mut record: Record = serde_json::from_value(serde_json::json!({
            "seq": 2, "time": "t", "kind": "k", "run": "r\nr", "data": { "plain": "as-it-is", "a\nb": 1 }, "prev": "",
        }))
        .unwrap();
        for value in ["x\nforged", "x\u{a0}skill=other", "x\u{2028}y", "x\ty", "x\u{1b}[2J", "x\u{202e}y"] {
            record.data.insert("object".into(), value.into());
            let shown = line(&record, false).unwrap();
            assert_eq!((shown.matches('\n').count(), shown.lines().count()), (1, 1), "{shown:?}");
            assert!(!shown.contains(['\u{1b}', '\u{202e}']) && shown.contains("plain=as-it-is"), "{shown:?}");
            assert!(!value.contains(char::is_whitespace) || shown.contains("object=\"x"), "{shown:?}");
        }
    }

    #[test]
    fn times_compare_as_records_write_them() {
        let time = |option, given| instant(option, given).ok();
        assert_eq!(time("since", "2026-05-01").as_deref(), Some("2026-05-01"));
        assert_eq!(time("until", "2026-05-01").as_deref(), Some("2026-05-01T23:59:59.999999Z"));
        assert_eq!(time("since", "2026-05-01T12:00:00Z").as_deref(), Some("2026-05-01T12:00:00"));
        assert_eq!(time("until", "2026-05-01T12:00:00Z").as_deref(), Some("2026-05-01T12:00:00.999999Z"));
        assert_eq!(time("since", "2026-05-01T12:00:00.5Z").as_deref(), Some("2026-05-01T12:00:00.5Z"));
        for wrong in ["", "yesterday", "2026-5-1", "2026-05-01T12", "2026-05-01T12:00:00+02:00", "2026-05-01 12:00:00"]
        {
            assert_eq!(time("since", wrong), None, "{wrong}");
        }
    }
}
