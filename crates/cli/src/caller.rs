//! The caller's side of a call: working directory, homes and variables. Observed once, then plain data.
//!
//! Everything else works on a `Caller`, so that tests can build one by hand.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path};

use cofferdam_config::environments::{Around, Surroundings};

use crate::refusal::Refusal;

/// The caller's side of a call.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Absolute working directory, as the kernel knows it.
    pub cwd: String,
    /// The caller's homes: `$HOME` and the one of the user database, without duplicates.
    pub homes: Vec<String>,
    /// The caller's variables that are valid UTF-8.
    pub variables: BTreeMap<String, String>,
}

impl Caller {
    /// The caller of this process.
    ///
    /// # Errors
    /// The working directory or a variable cannot be used.
    pub fn observe() -> Result<Caller, Refusal> {
        let seen =
            Surroundings::observe().map_err(|error| Refusal::new("arguments", error.to_string()).split_hint())?;
        Ok(Caller { cwd: seen.cwd, homes: seen.homes, variables: seen.variables })
    }

    /// The part on which the search for interpreters depends.
    pub fn around(&self) -> Around<'_> {
        Around { variables: &self.variables, cwd: &self.cwd, homes: &self.homes }
    }

    /// One of the caller's variables.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A path made absolute against the working directory. `.` and empty components are removed; `..` is resolved on the
    /// file system where the path exists, because the component before it may be a symbolic link.
    pub fn absolute(&self, path: &str) -> String {
        let joined = Path::new(&self.cwd).join(path);
        if joined.components().any(|c| c == Component::ParentDir)
            && let Ok(real) = std::fs::canonicalize(&joined)
            && let Some(real) = real.to_str()
        {
            return real.to_owned();
        }
        cofferdam_policy::paths::lexical(&joined).to_string_lossy().into_owned()
    }

    /// An absolute path inside the sandbox. `..` is resolved by name, because there is no tree yet.
    pub(crate) fn absolute_inside(&self, path: &str) -> String {
        cofferdam_policy::paths::lexical(&Path::new(&self.cwd).join(path)).to_string_lossy().into_owned()
    }
}

/// Text as UTF-8: policies are JSON, so every path and argument in them is UTF-8. `what` names it for the error.
///
/// # Errors
/// It is not UTF-8.
pub(crate) fn utf8(text: OsString, what: &str) -> Result<String, Refusal> {
    text.into_string().map_err(|raw| {
        Refusal::new("arguments", format!("{what} is not valid UTF-8: {raw:?}"))
            .hint("a policy is UTF-8 text; rename the file, or reach it through a directory or link with such a name")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_at_the_working_directory() {
        let caller = Caller { cwd: "/no/where".into(), ..Caller::default() };
        assert_eq!(caller.absolute("a/./b"), "/no/where/a/b");
        assert_eq!(caller.absolute("."), "/no/where");
        assert_eq!(caller.absolute("../x"), "/no/x");
        assert_eq!(caller.absolute_inside("/a/../b/"), "/b");
    }
}
