//! The code of an `eval`: an argument, standard input, a file, or none for an interactive session.
//!
//! Reads only what the arguments name. A code file is shown inside whatever the policy hides, so it may not be a credential.

use std::io::Read as _;

use clap::ArgMatches;
use cofferdam_config::environments::{CodeSource, HomeListings, credentials_of, deny_dot_names, deny_moved};
use cofferdam_engine::shown_within;
use cofferdam_policy::Policy;
use cofferdam_policy::paths::is_within;

use crate::caller::Caller;
use crate::output::text::quoted;
use crate::refusal::CliRefusal;

/// Longest code on standard input, bytes.
const MAX_CODE_BYTES: u64 = 64 << 20;

/// The code that the arguments name. `code` is the argument CODE; `stdin_open` says whether the program gets the caller's
/// standard input, so that the call may be a session.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn from_arguments(
    matches: &ArgMatches,
    code: Option<&str>,
    caller: &Caller,
    stdin_open: bool,
) -> Result<CodeSource, CliRefusal> {
    if let Some(file) = matches.get_one::<String>("file") {
        let name = matches.get_one::<String>("environment").map_or("python", String::as_str);
        return code_file(file, name, caller);
    }
    match code {
        Some("-") => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().take(MAX_CODE_BYTES + 1).read_to_end(&mut bytes);
            read.map_err(|e| CliRefusal::new("arguments", format!("cannot read the code from standard input: {e}")))?;
            if bytes.len() as u64 > MAX_CODE_BYTES {
                return Err(CliRefusal::new("arguments", "the code on standard input is longer than 64 MiB")
                    .hint("put it into a file and use --file FILE"));
            }
            String::from_utf8(bytes).map(CodeSource::Text).map_err(|e| {
                let at = e.utf8_error().valid_up_to();
                CliRefusal::new("arguments", format!("the code on standard input is not valid UTF-8 at byte {at}"))
                    .hint("put it into a file and use --file FILE")
            })
        }
        Some(code) => Ok(CodeSource::Text(code.to_owned())),
        None if stdin_open => Ok(CodeSource::Interactive),
        None => Err(CliRefusal::new("arguments", "no code to run")
            .hint("give it as an argument, as - for standard input, as --file FILE, or start a session with -it")),
    }
}

/// A code file. The path may be a symbolic link that a repository chose, so it may not lead to a credential, nor to a dot
/// name of a home. A dot name that the caller writes itself is accepted.
fn code_file(file: &str, environment: &str, caller: &Caller) -> Result<CodeSource, CliRefusal> {
    let path = caller.absolute(file);
    std::fs::metadata(file).map_err(|e| {
        CliRefusal::new("arguments", format!("cannot read the code file {file}: {e}")).hint(match file {
            "-" => "code on standard input: cofferdam eval ENVIRONMENT -",
            _ => "--file takes the path of a file on this host; code itself is written without --file",
        })
    })?;
    // A pipe of the shell (`/dev/fd/63`) has no other path.
    let source = real(file).unwrap_or_else(|| path.clone());
    if let Some(leads) = leads_to_hidden(&path, &source, caller) {
        return Err(CliRefusal::new("arguments", format!("the code file {file} {leads}")).hint(format!(
            "if it is code: cofferdam eval {} - < {}",
            quoted(environment),
            quoted(&source)
        )));
    }
    Ok(CodeSource::File { path, source })
}

fn real(path: &str) -> Option<String> {
    std::fs::canonicalize(path).ok().and_then(|real| real.to_str().map(str::to_owned))
}

/// What a file or directory that the caller names is, if it must not be shown: a place of credentials, or a dot name of a home
/// to which only a link leads; also where a mount of the host shows it under another name. `path` is the caller's own,
/// absolute, and `source` where it leads.
pub fn leads_to_hidden(path: &str, source: &str, caller: &Caller) -> Option<String> {
    let mut hidden = Policy::base();
    hidden.command.cwd = Some(caller.cwd.clone());
    let listings = HomeListings::of(&caller.homes);
    hidden.filesystem.deny = credentials_of(&listings);
    deny_moved(&mut hidden, &listings, |name| caller.variable(name));
    let places = |hidden: &Policy| -> Vec<String> {
        let deny = &hidden.filesystem.deny;
        deny.iter().cloned().chain(deny.iter().filter_map(|entry| real(entry))).collect()
    };
    let credential = match shown_within(source, &places(&hidden)) {
        Ok(credential) => credential,
        Err(why) => return Some(format!("{why}: it may be a place of credentials")),
    };
    if source != path {
        deny_dot_names(&mut hidden, caller.around(), &listings, &[], &[]);
    }
    let hidden = places(&hidden);
    let is_named = hidden.iter().any(|place| is_within(path, place));
    let is_refused = credential || (!is_named && shown_within(source, &hidden).unwrap_or(true));
    is_refused.then(|| {
        let what = if credential { "a place of credentials" } else { "a hidden place of a home" };
        if source == path { format!("is {what}") } else { format!("leads to {source}, {what}") }
    })
}

/// The code as text, for a program that is not a preset's interpreter; `None` for a session.
///
/// # Errors
/// The code file cannot be read.
pub fn text_of(code: CodeSource) -> Result<Option<String>, CliRefusal> {
    let path = match code {
        CodeSource::Text(text) => return Ok(Some(text)),
        CodeSource::Interactive => return Ok(None),
        CodeSource::File { source, .. } => source,
    };
    let unreadable = |why: String| CliRefusal::new("arguments", format!("cannot read the code file {path}: {why}"));
    let metadata = std::fs::metadata(&path).map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > MAX_CODE_BYTES {
        return Err(unreadable("it is no regular file, or longer than 64 MiB".into()));
    }
    std::fs::read_to_string(&path).map(Some).map_err(|error| unreadable(error.to_string()))
}
