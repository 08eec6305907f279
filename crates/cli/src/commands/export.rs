//! `cofferdam export`: converts profiles into policies, nsjail configurations and Seatbelt profiles, and writes them to standard
//! output, into a file, or into the profile store.
//!
//! One evaluator compiles all profiles of a call. Nothing is written unless all of them can be.

use std::io::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_compat::{self as compat, Form};
use cofferdam_engine::{Engine, ExpectedUse};
use cofferdam_profiles::protocol::{Encoding, OutputFormat, RequestedOutput};
use cofferdam_profiles::{Compiled, Id, ProfileStore, Stored};

use crate::args;
use crate::call::profile::{self, Named, ProfileOptions, compile_refusal, store_refusal, warn};
use crate::caller::Caller;
use crate::output::stderr::print_note;
use crate::output::stdout::print;
use crate::refusal::CliRefusal;

/// The files of a stored profile, and the format of each.
const STORED: [(Stored, OutputFormat); 3] = [
    (Stored::Policy, OutputFormat::Policy),
    (Stored::Nsjail, OutputFormat::Nsjail),
    (Stored::Seatbelt, OutputFormat::Seatbelt),
];

/// The arguments of `export`.
pub(super) fn command(command: Command) -> Command {
    let formats: Vec<&str> = OutputFormat::ALL.iter().map(|format| format.name()).collect();
    let encodings: Vec<&str> = Encoding::ALL.iter().map(|encoding| encoding.name()).collect();
    let command = command
        .about("Evaluate Nickel profiles, and print or store what they become")
        .override_usage("cofferdam export [OPTIONS] FILE.ncl|ID...")
        .after_help("Exit code: 0 when all are written, 125 when one is refused; then none is.")
        .arg(
            Arg::new("profile")
                .value_name("FILE.ncl|ID")
                .required(true)
                .num_args(1..)
                .help("Profiles; with a slash or the ending .ncl a file, else the id of a stored one"),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .value_parser(formats)
                .hide_possible_values(true)
                .conflicts_with("store")
                .help("policy (default), nsjail, nsjail-text, seatbelt or raw")
                .long_help(
                    "policy (default): the complete policy. nsjail: its configuration as data, for 3.5 and later. \
                            nsjail-text: the same as text, for 3.4. seatbelt: a profile of macOS. raw: the profile \
                            itself, evaluated",
                ),
        )
        .arg(
            Arg::new("encoding")
                .long("encoding")
                .value_name("ENCODING")
                .value_parser(encodings)
                .hide_possible_values(true)
                .conflicts_with("store")
                .help("json (default), yaml or toml, for what is data")
                .long_help(
                    "json (default), yaml or toml, for what is data. Of several profiles, one value after the other \
                            in their order: JSON as `jq` reads it, YAML as documents; TOML holds one alone",
                ),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .conflicts_with("store")
                .help("Write into FILE, all of it or nothing"),
        )
        .arg(
            Arg::new("store")
                .long("store")
                .action(ArgAction::SetTrue)
                .help("Keep policy, nsjail and Seatbelt files in the profile store"),
        )
        .arg(
            Arg::new("id")
                .long("id")
                .value_name("ID")
                .requires("store")
                .help("Store it under this id, not the profile's own"),
        );
    args::profile::options(command, None)
}

/// Exports the profiles and returns the exit code.
pub(super) fn run(matches: &ArgMatches) -> Result<i32, CliRefusal> {
    let caller = &Caller::observe()?;
    let engine = &Engine::for_own_process(ExpectedUse::Anything);
    let options = ProfileOptions::of(matches)?;
    let names: Vec<&String> = matches.get_many("profile").into_iter().flatten().collect();
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let several = names.len() > 1;
    for option in ["output", "id"] {
        if several && text(option).is_some() {
            return Err(CliRefusal::new(
                "arguments",
                format!("--{option} is for one profile, and {} are given", names.len()),
            )
            .hint(match option {
                _ if !matches.get_flag("store") => {
                    "call it for each, or use --store, which keeps each under its own id"
                }
                _ => "leave it out: each is stored under its own id; or call it for each",
            }));
        }
    }
    if matches.get_flag("store") {
        let id = text("id").map(Id::new).transpose().map_err(|error| store_refusal(&error))?;
        return save(&names, id, &options, caller, engine);
    }
    let format = OutputFormat::ALL.iter().find(|format| text("format") == Some(format.name()));
    let encoding = Encoding::ALL.iter().find(|encoding| text("encoding") == Some(encoding.name()));
    let wanted = RequestedOutput {
        format: format.copied().unwrap_or(OutputFormat::Policy),
        encoding: encoding.copied().unwrap_or(Encoding::Json),
    };
    if wanted.format.is_text() && encoding.is_some() {
        let message = format!("--encoding is for data, and {} is text in a language of its own", wanted.format.name());
        return Err(CliRefusal::new("arguments", message).hint("leave it out"));
    }
    if several && wanted.encoding == Encoding::Toml {
        let message = format!("TOML holds one document, and {} profiles are given", names.len());
        return Err(CliRefusal::new("arguments", message)
            .hint("call it for each, or take --encoding yaml, which has documents, or json"));
    }
    let outputs = outputs(&names, wanted, &options, caller, engine)?;
    // Separates YAML documents: without it, the keys of the second would belong to the first.
    let separator = if several && wanted.encoding == Encoding::Yaml { "---\n" } else { "" };
    match text("output") {
        None => print(&outputs.iter().map(|output| format!("{separator}{output}")).collect::<String>())?,
        Some(file) => write_file(Path::new(file), outputs.concat().as_bytes())?,
    }
    Ok(0)
}

fn outputs(
    names: &[&String],
    wanted: RequestedOutput,
    options: &ProfileOptions,
    caller: &Caller,
    engine: &Engine,
) -> Result<Vec<String>, CliRefusal> {
    let mut outputs = vec![String::new(); names.len()];
    let mut files = Vec::new();
    for (at, name) in names.iter().enumerate() {
        match Named::parse(name)? {
            Named::File(file) => files.push((at, file)),
            Named::Stored(id) => {
                options.require_none_for_stored(&id)?;
                let stored = STORED.iter().find(|(_, format)| *format == wanted.format);
                let (stored, _) = stored.filter(|_| wanted.encoding == Encoding::Json).ok_or_else(|| {
                    CliRefusal::new(
                        "arguments",
                        format!("`{id}` is stored as policy, nsjail and seatbelt, data as JSON"),
                    )
                    .hint("other formats are made out of the profile: cofferdam export FILE.ncl")
                })?;
                let bytes = read_stored(&options.store(caller)?, &id, *stored)?;
                outputs[at] = String::from_utf8(bytes).map_err(|_| {
                    CliRefusal::new("profile", format!("the stored {} of `{id}` is no text", stored.file_name()))
                })?;
            }
        }
    }
    let asks: Vec<_> = files.iter().map(|(_, file)| options.ask(file, vec![wanted])).collect();
    let compiled = compile_all(&asks, options, caller, engine)?;
    for ((at, _), compiled) in files.iter().zip(compiled) {
        outputs[*at] = compiled.outputs.into_iter().collect::<Result<String, String>>().map_err(not_for_target)?;
    }
    Ok(outputs)
}

/// A file of a stored profile. The policy of one that has only an older `nsjail.json` is converted from that.
fn read_stored(store: &ProfileStore, id: &Id, stored: Stored) -> Result<Vec<u8>, CliRefusal> {
    let read = store.read(id, stored);
    match (stored, read) {
        (Stored::Policy, Err(error)) => {
            let older = profile::stored_nsjail(store, id, error)?;
            warn([(id.as_str(), &older.notes[..])]);
            Ok(older.policy.to_json_pretty().into_bytes())
        }
        // nsjail would understand its values otherwise: `clone_newnet: false` is the host's network there.
        (Stored::Nsjail, Ok(bytes)) if compat::config::foreign(&bytes) == Some(Form::Legacy) => {
            let message = format!("`{id}` is stored as an older nsjail.json, which nsjail itself does not read");
            Err(CliRefusal::new("profile", message).hint(format!(
                "cofferdam export {id} prints the policy that it stands for, cofferdam run --profile {id} runs it"
            )))
        }
        (_, read) => read.map_err(|error| store_refusal(&error)),
    }
}

/// Compiles all profiles, or reports all errors.
fn compile_all(
    asks: &[cofferdam_profiles::CompileRequest],
    options: &ProfileOptions,
    caller: &Caller,
    engine: &Engine,
) -> Result<Vec<Compiled>, CliRefusal> {
    let mut compiled = Vec::new();
    let mut refusals: Vec<CliRefusal> = Vec::new();
    for (ask, answer) in asks.iter().zip(options.compiler(engine, caller).compile_all(asks)) {
        match answer {
            Ok(answer) => compiled.push(answer),
            Err(error) => {
                let refusal = compile_refusal(error, &ask.file.display().to_string());
                if refusals.iter().all(|known| known.message != refusal.message) {
                    refusals.push(refusal);
                }
            }
        }
    }
    let mut refusals = refusals.into_iter();
    let Some(mut first) = refusals.next() else {
        let whose = asks.iter().map(|ask| ask.file.to_str().unwrap_or_default());
        warn(whose.zip(&compiled).map(|(file, compiled)| (file, &compiled.warnings[..])));
        return Ok(compiled);
    };
    for other in refusals {
        first.message.push('\n');
        first.message.push_str(&other.message);
    }
    Err(first)
}

fn not_for_target(why: String) -> CliRefusal {
    CliRefusal::new("profile", why).hint("change the profile there, or list the field in `best_effort`")
}

fn save(
    names: &[&String],
    id: Option<Id>,
    options: &ProfileOptions,
    caller: &Caller,
    engine: &Engine,
) -> Result<i32, CliRefusal> {
    let mut files = Vec::new();
    for name in names {
        match Named::parse(name)? {
            Named::File(file) => files.push(file),
            Named::Stored(id) => {
                return Err(
                    CliRefusal::new("arguments", format!("`{id}` is stored already")).hint("name a file: ./FILE.ncl")
                );
            }
        }
    }
    let store = options.store(caller)?;
    let wanted: Vec<RequestedOutput> =
        STORED.iter().map(|(_, format)| RequestedOutput { format: *format, encoding: Encoding::Json }).collect();
    let asks: Vec<_> = files.iter().map(|file| options.ask(file, wanted.clone())).collect();
    let compiled = compile_all(&asks, options, caller, engine)?;
    let id_option = id.is_some();
    let mut sets: Vec<(Id, Vec<(Stored, String)>)> = Vec::new();
    for (file, compiled) in files.iter().zip(compiled) {
        let mut set = Vec::new();
        for ((stored, format), output) in STORED.iter().zip(compiled.outputs) {
            match output {
                Ok(text) => set.push((*stored, text)),
                Err(why) if *format == OutputFormat::Policy => return Err(not_for_target(why)),
                Err(why) => print_note(&format!("no {} is stored: {why}", stored.file_name()), None),
            }
        }
        let id = match &id {
            Some(id) => id.clone(),
            None => own_id(&set, file)?,
        };
        if sets.iter().any(|(other, _)| *other == id) {
            return Err(CliRefusal::new("arguments", format!("two of the profiles have the id `{id}`"))
                .hint("store one of them under another one: --id ID"));
        }
        sets.push((id, set));
    }
    for ((id, set), file) in sets.iter().zip(&files) {
        // The caller chooses the name of the file, but the profile chooses the id, which may be another profile's.
        let own = id_option || file.file_stem().is_some_and(|stem| stem == id.as_str());
        if !own && Stored::ALL.iter().any(|stored| store.path(id, *stored).symlink_metadata().is_ok()) {
            let note = format!("{} gives itself the id `{id}`, and replaces what is stored under it", file.display());
            print_note(&note, Some("name another one: --id ID"));
        }
        let files: Vec<(Stored, &[u8])> = set.iter().map(|(stored, text)| (*stored, text.as_bytes())).collect();
        let directory = store.save(id, &files).map_err(|error| store_refusal(&error))?;
        print(&format!("{}\n", directory.display()))?;
    }
    Ok(0)
}

/// The id of the profile's policy, or else the file's name.
fn own_id(set: &[(Stored, String)], file: &Path) -> Result<Id, CliRefusal> {
    let policy = set.iter().find(|(stored, _)| *stored == Stored::Policy).map(|(_, text)| text.as_bytes());
    let policy = policy.and_then(|text| cofferdam_policy::Policy::decode(text).ok());
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    Id::new(&policy.and_then(|policy| policy.id).unwrap_or(stem)).map_err(|error| store_refusal(&error))
}

/// Writes a file atomically; writes directly into a device or a pipe.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CliRefusal> {
    let refusal = |error: std::io::Error| {
        CliRefusal::new("output", format!("cannot write {}: {error}", path.display()))
            .hint("name another file with -o FILE")
    };
    if std::fs::metadata(path).is_ok_and(|data| !data.is_file()) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut f| f.write_all(bytes))
            .map_err(refusal);
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is reported; the temporary file may not exist.
        std::fs::remove_file(&temporary).ok();
    }
    written.map_err(refusal)
}
