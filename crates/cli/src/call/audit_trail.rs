//! Which directory holds the audit trail of a call. Opens nothing.

use std::path::PathBuf;

use cofferdam_policy::BaseDirectory;

use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// The default directory of the audit trail.
///
/// # Errors
/// There is no home directory, and no variable names a directory.
pub fn directory(caller: &Caller) -> Result<PathBuf, CliRefusal> {
    if let Some(named) = caller.variable("COFFERDAM_AUDIT").filter(|named| !named.is_empty()) {
        return Ok(caller.absolute(named).into());
    }
    let state = caller.base_directory(BaseDirectory::State);
    state.map(|state| state.join("cofferdam/audit")).ok_or_else(|| {
        CliRefusal::new("audit", "there is no home directory for the audit trail").hint("--dir DIR names another place")
    })
}

/// The directory of the audit trail in which runs are recorded, absolute: the option's, or else the one of `$COFFERDAM_AUDIT`.
/// `None` where neither is given: then runs are not recorded.
pub fn named(option: Option<&String>, caller: &Caller) -> Option<String> {
    let variable = || caller.variable("COFFERDAM_AUDIT").filter(|dir| !dir.is_empty());
    option.map(String::as_str).or_else(variable).map(|dir| caller.absolute(dir))
}
