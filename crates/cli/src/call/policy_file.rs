//! The policy file of a call: how it is read, and how its errors are reported, each with the option that would change it.
//!
//! Validates by the policy's own rules only.

use std::io::Read as _;
use std::path::Path;

use cofferdam_compat::{self as compat, Form};
use cofferdam_policy::{MAX_POLICY_BYTES, Policy, PolicyError, PolicyErrors};
use cofferdam_profiles::Id;

use crate::args::option::PolicyOption;
use crate::args::table::option_of_path;
use crate::failure::is_denied_workdir;
use crate::output::text::quoted;
use crate::refusal::CliRefusal;

/// The policy that a call starts from instead of the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasePolicy {
    /// The policy, as decoded.
    pub policy: Policy,
    /// The file that it comes from, for errors.
    pub origin: String,
}

/// Reads the text of a policy; `-` is standard input. Reads at most one byte more than is accepted, because the size that the
/// file system reports may be wrong.
///
/// # Errors
/// It cannot be read; inside, it is too large.
pub(crate) fn read_text(path: &str) -> std::io::Result<Result<Vec<u8>, PolicyErrors>> {
    let limit = MAX_POLICY_BYTES as u64;
    let mut text = Vec::new();
    let read = if path == "-" {
        std::io::stdin().lock().take(limit + 1).read_to_end(&mut text)?
    } else {
        let file = std::fs::File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.len() > limit {
            return Ok(Err(PolicyErrors::too_large(metadata.len())));
        }
        file.take(limit + 1).read_to_end(&mut text)?
    };
    Ok(if read as u64 > limit { Err(PolicyErrors::too_large(read as u64)) } else { Ok(text) })
}

/// The policy in a file.
///
/// # Errors
/// It cannot be read, or is not a valid policy.
pub(crate) fn read(path: &str) -> Result<Policy, CliRefusal> {
    if path.ends_with(".ncl") {
        return Err(CliRefusal::new("policy", format!("{path} is a profile by its name, and a policy is JSON"))
            .hint(format!("--profile {path}")));
    }
    let text = read_text(path)
        .map_err(|e| CliRefusal::new("policy", format!("cannot read the policy {path}: {e}")))?
        .map_err(|errors| refused(&errors, &[], Some(path)))?;
    Policy::decode(&text).map_err(|errors| {
        let errors = error_of_other_document(&text, path).unwrap_or(errors);
        refused(&errors, &[], Some(path))
    })
}

/// The error for a text that is another document than a policy: the output of `--dry-run`, which contains the policy, or a
/// configuration of nsjail.
pub(crate) fn error_of_other_document(text: &[u8], path: &str) -> Option<PolicyErrors> {
    let one = |problem: &str, accepted: String| {
        Some(PolicyErrors(vec![PolicyError {
            path: "$".into(),
            value: String::new(),
            problem: problem.into(),
            accepted,
        }]))
    };
    match compat::config::foreign(text) {
        Some(Form::Legacy) => return one("an older nsjail.json, which is no policy", run_from_store(path)),
        Some(Form::Nsjail) => return one("a configuration of nsjail's own, which is no policy", run_from_store(path)),
        _ => {}
    }
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
    if !(object.contains_key("policy") && object.contains_key("plan")) {
        return None;
    }
    one("the output of --dry-run, which is more than a policy", "its `.policy`, as by jq .policy".into())
}

/// The command that runs a configuration of nsjail, which is by the profile store that it lies in, or by another one.
fn run_from_store(path: &str) -> String {
    let path = Path::new(path);
    let name = |path: Option<&Path>| Some(path?.file_name()?.to_str()?.to_owned());
    let store = path.parent().and_then(Path::parent).filter(|store| *store != Path::new(""));
    let (id, store) = (name(path.parent()).filter(|id| Id::new(id).is_ok()), store.and_then(Path::to_str));
    match (path.ends_with("nsjail.json"), id, store) {
        (true, Some(id), Some(store)) => {
            format!("it as that of a profile: cofferdam run --profiles {} --profile {id}", quoted(store))
        }
        _ => "it as DIR/ID/nsjail.json: cofferdam run --profiles DIR --profile ID".to_owned(),
    }
}

/// The errors of a policy as one refusal: a line for each, with the option of `named` that set the value.
pub(crate) fn refused(errors: &PolicyErrors, named: &[&PolicyOption], file: Option<&str>) -> CliRefusal {
    let mut message = match (errors.0.len(), file) {
        (1, None) => "the policy is refused:".to_owned(),
        (n, None) => format!("the policy is refused, {n} errors:"),
        (1, Some(file)) => format!("the policy {file} is refused:"),
        (n, Some(file)) => format!("the policy {file} is refused, {n} errors:"),
    };
    for error in &errors.0 {
        let option = option_of_path(&error.path);
        let by = named.iter().find(|n| option.is_some_and(|o| o.leaves == n.leaves));
        let by = by.map(|o| format!("--{}: ", o.long)).unwrap_or_default();
        message.push_str(&format!("\n  {by}{error}"));
    }
    let mut refusal = CliRefusal::new("policy", message);
    if errors.0.iter().any(is_denied_workdir) {
        refusal = refusal.hint("change to another directory, or name one inside with --workdir DIR");
    } else if let Some(file) = file {
        refusal = refusal.hint(format!("cofferdam check {file}"));
    }
    refusal
}
