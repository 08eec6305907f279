//! Profiles on the command line: their options, what they name, and the policy that a call starts from.
//!
//! ```text
//! FILE.ncl ─ Compiler (cache, cofferdam-compile in a jail) ─▶ policy          ID ─ Store ─▶ policy
//! ```
//!
//! A profile with a slash or the ending `.ncl` is a file, everything else the id of a stored one. Decides nothing about
//! the policy: what comes back is decoded and validated like a policy file.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_compat::{self as compat, Loaded};
use cofferdam_engine::Engine;
use cofferdam_policy::Policy;
use cofferdam_profiles::cache::Cache;
use cofferdam_profiles::helper::{self, DIRECTORY_VARIABLE};
use cofferdam_profiles::overrides;
use cofferdam_profiles::protocol::{Encoding, Format, Override, Wanted};
use cofferdam_profiles::{CompileError, CompileRequest, Compiler, Id, Store, StoreError, Stored};

use crate::call::{Base, refused};
use crate::caller::Caller;
use crate::report::{Refusal, print_note};

/// The variable that names the profile store.
pub const STORE_VARIABLE: &str = "COFFERDAM_PROFILES";

/// Adds the options that every command with profiles has.
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
                    "Evaluate the profile without a sandbox around it, where none can be had; what it may \
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
pub fn base_option(heading: &'static str) -> Arg {
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

/// What a call names as a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A file.
    File(PathBuf),
    /// A stored profile.
    Stored(Id),
}

impl Named {
    /// Tells files from ids.
    pub fn read(text: &str) -> Result<Named, Refusal> {
        if text.ends_with(".json") {
            return Err(Refusal::new("profile", format!("{text} is a policy by its name, and no Nickel profile"))
                .hint(format!("--policy {text}")));
        }
        if text.contains('/') || text.ends_with(".ncl") {
            return Ok(Named::File(text.into()));
        }
        Id::new(text).map(Named::Stored).map_err(|error| {
            Refusal::new("profile", error.to_string())
                .hint("a file is written with a slash or ends in .ncl: ./profile.ncl")
        })
    }
}

/// The options of a call that concern profiles.
#[derive(Debug, Clone, Default)]
pub struct Options {
    overrides: Vec<Override>,
    imports: Vec<PathBuf>,
    trusted: bool,
    store: Option<String>,
}

impl Options {
    /// Reads them.
    pub fn of(matches: &ArgMatches) -> Result<Options, Refusal> {
        let texts = |name: &str| matches.get_many::<String>(name).into_iter().flatten();
        let overrides = texts("set")
            .map(|text| {
                overrides::parse(text).map_err(|problem| Refusal::new("arguments", format!("--set: {problem}")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Options {
            overrides,
            imports: texts("allow-import").map(PathBuf::from).collect(),
            trusted: matches.get_flag("trust-profile"),
            store: matches.get_one::<String>("profiles").cloned(),
        })
    }

    /// What is asked about a file.
    pub fn ask(&self, file: &Path, outputs: Vec<Wanted>) -> CompileRequest {
        let imports = self.imports.clone();
        CompileRequest { file: file.to_owned(), overrides: self.overrides.clone(), outputs, imports }
    }

    /// Refuses options that would be without effect on a stored profile.
    pub fn for_stored(&self, id: &Id) -> Result<(), Refusal> {
        if self.overrides.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            "arguments",
            format!("--set needs the source of the profile, and `{id}` is stored without it"),
        )
        .hint("export it again with --set, or name its file: --profile ./FILE.ncl"))
    }

    /// The compiler of this call.
    pub fn compiler<'e>(&self, engine: &'e Engine, caller: &Caller) -> Compiler<'e> {
        let libexec = caller.variable(DIRECTORY_VARIABLE).filter(|dir| !dir.is_empty()).map(Path::new);
        let own = std::env::current_exe().ok();
        let cache = Cache::default_directory(caller.variable("XDG_CACHE_HOME"), home(caller)).map(Cache::at);
        Compiler::new(engine, helper::find(libexec, own.as_deref())).cache(cache).trusted(self.trusted)
    }

    /// The store of this call.
    pub fn store(&self, caller: &Caller) -> Result<Store, Refusal> {
        let named = self.store.as_deref().or_else(|| caller.variable(STORE_VARIABLE).filter(|dir| !dir.is_empty()));
        if let Some(directory) = named {
            return Ok(Store::at(caller.absolute(directory)));
        }
        let home = home(caller).ok_or_else(|| {
            Refusal::new("profile", "cannot tell where the profile store is: there is no home directory")
                .hint(format!("name it: --profiles DIR, or {STORE_VARIABLE}=DIR"))
        })?;
        Ok(Store::at(Store::default_directory(home)))
    }
}

fn home(caller: &Caller) -> Option<&Path> {
    caller.homes.first().map(Path::new)
}

/// The policy that `--profile` names, if it is given.
pub fn base(matches: &ArgMatches, caller: &Caller, engine: &Engine, quiet: bool) -> Result<Option<Base>, Refusal> {
    let options = Options::of(matches)?;
    let Some(text) = matches.get_one::<String>("profile") else {
        return match ["set", "allow-import", "trust-profile", "profiles"].iter().find(|name| is_given(matches, name)) {
            Some(name) => Err(Refusal::new("arguments", format!("--{name} is about a profile, and none is given"))
                .hint("add --profile FILE.ncl|ID")),
            None => Ok(None),
        };
    };
    let (json, origin) = match Named::read(text)? {
        Named::File(file) => return compiled(&options, caller, engine, quiet, &file, text).map(Some),
        Named::Stored(id) => {
            options.for_stored(&id)?;
            let store = options.store(caller)?;
            match store.read(&id, Stored::Policy) {
                Ok(json) => (json, store.path(&id, Stored::Policy).display().to_string()),
                Err(error) => {
                    let older = older(&store, &id, error)?;
                    if !quiet {
                        warn([(text.as_str(), &older.notes[..])]);
                    }
                    let origin = store.path(&id, Stored::Nsjail).display().to_string();
                    return Ok(Some(Base { policy: older.policy, origin }));
                }
            }
        }
    };
    let policy = Policy::decode(&json).map_err(|errors| refused(&errors, &[], Some(&origin)))?;
    Ok(Some(Base { policy, origin }))
}

/// What a profile stands for that was stored without its policy: its `nsjail.json`, of any age, as the library loads it.
///
/// # Errors
/// The first one, where there is no `nsjail.json` either; else what is wrong with it.
pub fn older(store: &Store, id: &Id, missing: StoreError) -> Result<Loaded, Refusal> {
    if !matches!(missing, StoreError::Missing { .. }) {
        return Err(of_store(&missing));
    }
    let bytes = match store.read(id, Stored::Nsjail) {
        Err(StoreError::Missing { .. }) => return Err(of_store(&missing)),
        read => read.map_err(|error| of_store(&error))?,
    };
    compat::config::decode(&bytes, &store.path(id, Stored::Nsjail))
        .map_err(|why| Refusal::new("profile", why.replacen("; hint: ", "\nhint: ", 1)).split_hint())
}

/// The policy that the profile of an environment compiles to, with the options about profiles.
pub fn of_file(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    quiet: bool,
    file: &Path,
) -> Result<Base, Refusal> {
    compiled(&Options::of(matches)?, caller, engine, quiet, file, &file.display().to_string())
}

fn compiled(
    options: &Options,
    caller: &Caller,
    engine: &Engine,
    quiet: bool,
    file: &Path,
    text: &str,
) -> Result<Base, Refusal> {
    let wanted = Wanted { format: Format::Policy, encoding: Encoding::Json };
    let compiled = options.compiler(engine, caller).compile(&options.ask(file, vec![wanted]));
    let mut compiled = compiled.map_err(|error| of_compiler(error, text))?;
    if !quiet {
        warn([(text, &compiled.warnings[..])]);
    }
    let json = compiled.outputs.remove(0).map_err(|why| Refusal::new("profile", why))?.into_bytes();
    let policy = Policy::decode(&json).map_err(|errors| refused(&errors, &[], Some(text)))?;
    Ok(Base { policy, origin: text.to_owned() })
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
}

/// Tells what targets go without: for each profile, or once for all that have it.
pub fn warn<'p>(profiles: impl IntoIterator<Item = (&'p str, &'p [String])>) {
    let profiles: Vec<_> = profiles.into_iter().collect();
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for (profile, warnings) in &profiles {
        for warning in *warnings {
            match told.iter_mut().find(|(known, _)| known == warning) {
                Some((_, whose)) => whose.push(profile),
                None => told.push((warning, vec![profile])),
            }
        }
    }
    for (warning, whose) in told {
        let whose = match &whose[..] {
            _ if profiles.len() == 1 => String::new(),
            [one] => format!(" ({one})"),
            [first, others @ ..] => format!(" ({first} and {} more)", others.len()),
            [] => String::new(),
        };
        print_note(&format!("warning: {warning}{whose}"), None);
    }
}

/// An error of the compiler as a refusal of this profile.
pub fn of_compiler(error: CompileError, file: &str) -> Refusal {
    let refusal = Refusal::new("profile", error.message);
    match error.hint {
        Some(hint) => refusal.hint(hint),
        None if error.refused => refusal.hint(format!("correct it, and look at it with: cofferdam check {file}")),
        None => refusal,
    }
}

/// An error of the store as a refusal.
pub fn of_store(error: &StoreError) -> Refusal {
    let refusal = Refusal::new("profile", error.to_string());
    match error.hint() {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}
