//! What the command takes from whoever called it: directory, homes, variables, user. Read once, then plain data.
//!
//! Everything after this works on a `Caller`, so that it can be tested with one made by hand.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path};

use cofferdam_config::environments::Around;

use crate::report::Refusal;

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
    /// Looks at this process.
    pub fn observe() -> Result<Caller, Refusal> {
        let cwd = std::env::current_dir().map_err(|e| {
            Refusal::new("arguments", format!("cannot tell the working directory: {e}"))
                .hint("it was removed or cannot be read: change to another one")
        })?;
        let variables: BTreeMap<String, String> =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
        let mut homes = Vec::new();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let own = variables.get("HOME").map(String::as_str);
        for home in [own, passwd_home(&passwd, rustix::process::getuid().as_raw())].into_iter().flatten() {
            let Some(home) = cofferdam_policy::paths::normalize(home) else { continue };
            // The real directory as well: a home is often reached through a symlink.
            let real = std::fs::canonicalize(&home).ok().and_then(|p| p.into_os_string().into_string().ok());
            for home in [Some(home), real].into_iter().flatten() {
                if home.starts_with('/') && home != "/" && !homes.contains(&home) {
                    homes.push(home);
                }
            }
        }
        Ok(Caller { cwd: utf8(cwd.into_os_string(), "the working directory")?, homes, variables })
    }

    /// What finding interpreters depends on.
    pub fn around(&self) -> Around<'_> {
        Around { variables: &self.variables, cwd: &self.cwd, homes: &self.homes }
    }

    /// One of the caller's variables.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A path as written, made absolute against the working directory. `.` and empty components go; `..` is followed
    /// on the real tree where the path exists, because the component before it may be a symlink.
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

    /// An absolute path inside the sandbox: there is no tree to ask yet, so `..` goes by name.
    pub fn absolute_inside(&self, path: &str) -> String {
        cofferdam_policy::paths::lexical(&Path::new(&self.cwd).join(path)).to_string_lossy().into_owned()
    }
}

/// Text that a policy can hold: policies are JSON, so every path and argument in them is UTF-8.
pub fn utf8(text: OsString, what: &str) -> Result<String, Refusal> {
    text.into_string().map_err(|raw| {
        Refusal::new("arguments", format!("{what} is not valid UTF-8: {raw:?}"))
            .hint("a policy is UTF-8 text; rename the file, or reach it through a directory or link with such a name")
    })
}

/// Home directory of a user id in the text of passwd(5).
fn passwd_home(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let id = fields.nth(2)?;
        (id.parse() == Ok(uid)).then(|| fields.nth(2))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_gives_the_home_of_the_id() {
        let text = "root:x:0:0:root:/root:/bin/bash\nbroken\nu:x:1000:1000:U,,:/home/u:/bin/sh\n";
        assert_eq!(passwd_home(text, 1000), Some("/home/u"));
        assert_eq!(passwd_home(text, 7), None);
    }

    #[test]
    fn relative_paths_start_at_the_working_directory() {
        let caller = Caller { cwd: "/no/where".into(), ..Caller::default() };
        assert_eq!(caller.absolute("a/./b"), "/no/where/a/b");
        assert_eq!(caller.absolute("."), "/no/where");
        assert_eq!(caller.absolute("../x"), "/no/x");
        assert_eq!(caller.absolute_inside("/a/../b/"), "/b");
    }
}
