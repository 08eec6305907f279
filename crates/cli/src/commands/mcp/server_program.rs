//! Where the helper program is that serves MCP, and what to do where it is missing.

use std::path::{Path, PathBuf};

use cofferdam_config::serve::PROGRAM;
use cofferdam_profiles::helper::{DIRECTORY_VARIABLE, find_named};

use crate::caller::Caller;

/// The path of the program.
pub(super) fn path(caller: &Caller) -> PathBuf {
    let libexec = caller.variable(DIRECTORY_VARIABLE).filter(|directory| !directory.is_empty()).map(Path::new);
    find_named(PROGRAM, libexec, std::env::current_exe().ok().as_deref())
}

/// Where the program belongs, and how to build it.
pub(super) fn hint() -> String {
    format!("{PROGRAM} belongs beside the command, or where {DIRECTORY_VARIABLE} says: cargo build -p cofferdam-server")
}

/// The message and hint for a missing program; `None` where it exists.
pub(super) fn missing(caller: &Caller) -> Option<String> {
    let program = path(caller);
    (!program.exists()).then(|| format!("{} is not there\nhint: {}", program.display(), hint()))
}
