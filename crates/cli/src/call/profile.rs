//! The profile of a call: a file or a stored profile, and the policy that it becomes.
//!
//! ```text
//! FILE.ncl ─ Compiler (cache, cofferdam-compile in a jail) ─▶ policy          ID ─ Store ─▶ policy
//! ```
//!
//! A name with a slash or the ending `.ncl` is a file; any other is the id of a stored profile. Decides nothing about the
//! policy, which is decoded and validated like a policy file.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use cofferdam_compat::{self as compat, Loaded};
use cofferdam_engine::Engine;
use cofferdam_policy::Policy;
use cofferdam_profiles::cache::EvaluationCache;
use cofferdam_profiles::helper::{self, DIRECTORY_VARIABLE};
use cofferdam_profiles::overrides;
use cofferdam_profiles::protocol::{Encoding, OutputFormat, Override, RequestedOutput};
use cofferdam_profiles::{CompileError, CompileRequest, Compiler, Id, ProfileStore, StoreError, Stored};

use super::policy_file::{BasePolicy, refused};
use crate::caller::Caller;
use crate::output::stderr::print_note;
use crate::refusal::CliRefusal;

/// The variable that names the profile store.
pub(crate) const STORE_VARIABLE: &str = "COFFERDAM_PROFILES";

/// The profile that a call names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A file.
    File(PathBuf),
    /// A stored profile.
    Stored(Id),
}

impl Named {
    /// Distinguishes files from ids.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Named, CliRefusal> {
        if text.ends_with(".json") {
            return Err(CliRefusal::new("profile", format!("{text} is a policy by its name, and no Nickel profile"))
                .hint(format!("--policy {text}")));
        }
        if text.contains('/') || text.ends_with(".ncl") {
            return Ok(Named::File(text.into()));
        }
        Id::new(text).map(Named::Stored).map_err(|error| {
            CliRefusal::new("profile", error.to_string())
                .hint("a file is written with a slash or ends in .ncl: ./profile.ncl")
        })
    }
}

/// The options of a call that concern profiles.
#[derive(Debug, Clone, Default)]
pub struct ProfileOptions {
    overrides: Vec<Override>,
    imports: Vec<PathBuf>,
    trusted: bool,
    store: Option<String>,
}

impl ProfileOptions {
    /// The options of these arguments.
    ///
    /// # Errors
    /// The value of `--set` is wrong.
    pub fn of(matches: &ArgMatches) -> Result<ProfileOptions, CliRefusal> {
        let texts = |name: &str| matches.get_many::<String>(name).into_iter().flatten();
        let overrides = texts("set")
            .map(|text| {
                overrides::parse(text).map_err(|problem| CliRefusal::new("arguments", format!("--set: {problem}")))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(ProfileOptions {
            overrides,
            imports: texts("allow-import").map(PathBuf::from).collect(),
            trusted: matches.get_flag("trust-profile"),
            store: matches.get_one::<String>("profiles").cloned(),
        })
    }

    /// The request to compile a file with these outputs.
    pub fn ask(&self, file: &Path, outputs: Vec<RequestedOutput>) -> CompileRequest {
        let imports = self.imports.clone();
        CompileRequest { file: file.to_owned(), overrides: self.overrides.clone(), outputs, imports }
    }

    /// Refuses options that would have no effect on a stored profile.
    ///
    /// # Errors
    /// There is such an option.
    pub(crate) fn require_none_for_stored(&self, id: &Id) -> Result<(), CliRefusal> {
        if self.overrides.is_empty() {
            return Ok(());
        }
        Err(CliRefusal::new(
            "arguments",
            format!("--set needs the source of the profile, and `{id}` is stored without it"),
        )
        .hint("export it again with --set, or name its file: --profile ./FILE.ncl"))
    }

    /// The compiler of this call.
    pub fn compiler<'e>(&self, engine: &'e Engine, caller: &Caller) -> Compiler<'e> {
        let libexec = caller.variable(DIRECTORY_VARIABLE).filter(|dir| !dir.is_empty()).map(Path::new);
        let own = std::env::current_exe().ok();
        let cache = EvaluationCache::default_directory(caller.variable("XDG_CACHE_HOME"), home(caller))
            .map(EvaluationCache::at);
        Compiler::new(engine, helper::find(libexec, own.as_deref())).cache(cache).trusted(self.trusted)
    }

    /// The profile store of this call.
    ///
    /// # Errors
    /// Neither a directory nor a home is known.
    pub fn store(&self, caller: &Caller) -> Result<ProfileStore, CliRefusal> {
        let named = self.store.as_deref().or_else(|| caller.variable(STORE_VARIABLE).filter(|dir| !dir.is_empty()));
        if let Some(directory) = named {
            return Ok(ProfileStore::at(caller.absolute(directory)));
        }
        let home = home(caller).ok_or_else(|| {
            CliRefusal::new("profile", "cannot tell where the profile store is: there is no home directory")
                .hint(format!("name it: --profiles DIR, or {STORE_VARIABLE}=DIR"))
        })?;
        Ok(ProfileStore::at(ProfileStore::default_directory(home)))
    }
}

fn home(caller: &Caller) -> Option<&Path> {
    caller.homes.first().map(Path::new)
}

/// The policy of `--profile`, if it is given.
///
/// # Errors
/// The profile cannot be read or compiled, or there are options about profiles and no profile.
pub fn base(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    quiet: bool,
) -> Result<Option<BasePolicy>, CliRefusal> {
    let options = ProfileOptions::of(matches)?;
    let Some(text) = matches.get_one::<String>("profile") else {
        return match ["set", "allow-import", "trust-profile", "profiles"].iter().find(|name| is_given(matches, name)) {
            Some(name) => Err(CliRefusal::new("arguments", format!("--{name} is about a profile, and none is given"))
                .hint("add --profile FILE.ncl|ID")),
            None => Ok(None),
        };
    };
    let (json, origin) = match Named::parse(text)? {
        Named::File(file) => return compiled(&options, caller, engine, quiet, &file, text).map(Some),
        Named::Stored(id) => {
            options.require_none_for_stored(&id)?;
            let store = options.store(caller)?;
            match store.read(&id, Stored::Policy) {
                Ok(json) => (json, store.path(&id, Stored::Policy).display().to_string()),
                Err(error) => {
                    let older = stored_nsjail(&store, &id, error)?;
                    if !quiet {
                        warn([(text.as_str(), &older.notes[..])]);
                    }
                    let origin = store.path(&id, Stored::Nsjail).display().to_string();
                    return Ok(Some(BasePolicy { policy: older.policy, origin }));
                }
            }
        }
    };
    let policy = Policy::decode(&json).map_err(|errors| refused(&errors, &[], Some(&origin)))?;
    Ok(Some(BasePolicy { policy, origin }))
}

/// The policy of a profile that was stored without one: its `nsjail.json`, of any version, converted. `missing` is the error
/// for the policy.
///
/// # Errors
/// `missing`, where there is no `nsjail.json` either; otherwise the error of the `nsjail.json`.
pub(crate) fn stored_nsjail(store: &ProfileStore, id: &Id, missing: StoreError) -> Result<Loaded, CliRefusal> {
    if !matches!(missing, StoreError::Missing { .. }) {
        return Err(store_refusal(&missing));
    }
    let bytes = match store.read(id, Stored::Nsjail) {
        Err(StoreError::Missing { .. }) => return Err(store_refusal(&missing)),
        read => read.map_err(|error| store_refusal(&error))?,
    };
    compat::config::decode(&bytes, &store.path(id, Stored::Nsjail))
        .map_err(|why| CliRefusal::new("profile", why.replacen("; hint: ", "\nhint: ", 1)).split_hint())
}

/// The policy of an environment's profile, with the options about profiles of this call.
///
/// # Errors
/// The profile cannot be read or compiled.
pub fn of_file(
    matches: &ArgMatches,
    caller: &Caller,
    engine: &Engine,
    quiet: bool,
    file: &Path,
) -> Result<BasePolicy, CliRefusal> {
    compiled(&ProfileOptions::of(matches)?, caller, engine, quiet, file, &file.display().to_string())
}

fn compiled(
    options: &ProfileOptions,
    caller: &Caller,
    engine: &Engine,
    quiet: bool,
    file: &Path,
    text: &str,
) -> Result<BasePolicy, CliRefusal> {
    let wanted = RequestedOutput { format: OutputFormat::Policy, encoding: Encoding::Json };
    let compiled = options.compiler(engine, caller).compile(&options.ask(file, vec![wanted]));
    let mut compiled = compiled.map_err(|error| compile_refusal(error, text))?;
    if !quiet {
        warn([(text, &compiled.warnings[..])]);
    }
    let json = compiled.outputs.remove(0).map_err(|why| CliRefusal::new("profile", why))?.into_bytes();
    let policy = Policy::decode(&json).map_err(|errors| refused(&errors, &[], Some(text)))?;
    Ok(BasePolicy { policy, origin: text.to_owned() })
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine)
}

/// Prints the warnings of the compiler, each once with the profiles that it is about.
pub fn warn<'p>(profiles: impl IntoIterator<Item = (&'p str, &'p [String])>) {
    let profiles: Vec<_> = profiles.into_iter().collect();
    let mut merged: Vec<(&str, Vec<&str>)> = Vec::new();
    for (profile, warnings) in &profiles {
        for warning in *warnings {
            match merged.iter_mut().find(|(known, _)| known == warning) {
                Some((_, whose)) => whose.push(profile),
                None => merged.push((warning, vec![profile])),
            }
        }
    }
    for (warning, whose) in merged {
        let whose = match &whose[..] {
            _ if profiles.len() == 1 => String::new(),
            [one] => format!(" ({one})"),
            [first, others @ ..] => format!(" ({first} and {} more)", others.len()),
            [] => String::new(),
        };
        print_note(&format!("warning: {warning}{whose}"), None);
    }
}

/// An error of the compiler as a refusal.
pub(crate) fn compile_refusal(error: CompileError, file: &str) -> CliRefusal {
    let refusal = CliRefusal::new("profile", error.message);
    match error.hint {
        Some(hint) => refusal.hint(hint),
        None if error.refused => refusal.hint(format!("correct it, and look at it with: cofferdam check {file}")),
        None => refusal,
    }
}

/// An error of the profile store as a refusal.
pub(crate) fn store_refusal(error: &StoreError) -> CliRefusal {
    let refusal = CliRefusal::new("profile", error.to_string());
    match error.hint() {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}
