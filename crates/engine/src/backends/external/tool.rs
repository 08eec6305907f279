//! The programs themselves: where they are, which version they are, and what to do when they are missing or too old.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::failure::{FailedStep, Failure};
use crate::host_programs;

/// Somebody else's sandbox program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// bwrap(1).
    Bubblewrap,
    /// nsjail(1).
    Nsjail,
    /// sandbox-exec(1) of macOS.
    Seatbelt,
}

impl Tool {
    /// Every one.
    pub const ALL: [Tool; 3] = [Tool::Bubblewrap, Tool::Nsjail, Tool::Seatbelt];

    /// The backend's name.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Bubblewrap => "bubblewrap",
            Tool::Nsjail => "nsjail",
            Tool::Seatbelt => "seatbelt",
        }
    }

    /// The environment variable by which its program is named.
    const fn variable(self) -> &'static str {
        match self {
            Tool::Bubblewrap => VARIABLES[0].0,
            Tool::Nsjail => VARIABLES[1].0,
            Tool::Seatbelt => VARIABLES[2].0,
        }
    }
}

/// Where the programs are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tools {
    /// `bwrap`.
    pub bubblewrap: Option<PathBuf>,
    /// `nsjail`.
    pub nsjail: Option<PathBuf>,
    /// `sandbox-exec`.
    pub seatbelt: Option<PathBuf>,
}

/// Variables by which a program elsewhere is named.
const VARIABLES: [(&str, &str); 3] =
    [("COFFERDAM_BWRAP", "bwrap"), ("COFFERDAM_NSJAIL", "nsjail"), ("COFFERDAM_SANDBOX_EXEC", "")];
/// The one place of macOS's program: any other of that name is somebody else's.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

impl Tools {
    /// As this process's environment says: by its variable (`COFFERDAM_BWRAP`, `COFFERDAM_NSJAIL`,
    /// `COFFERDAM_SANDBOX_EXEC`), else in [the directories of `PATH` that hold installed programs](host_programs); `sandbox-exec` only at its own place.
    pub fn from_environment() -> Tools {
        let named = |i: usize| std::env::var_os(VARIABLES[i].0).filter(|v| !v.is_empty()).map(PathBuf::from);
        let found = |i: usize| named(i).or_else(|| host_programs::installed(VARIABLES[i].1, &[]));
        let seatbelt = named(2).or_else(|| Some(PathBuf::from(SANDBOX_EXEC)).filter(|path| path.is_file()));
        Tools { bubblewrap: found(0), nsjail: found(1), seatbelt }
    }

    /// The program of a tool.
    pub fn path(&self, tool: Tool) -> Option<&Path> {
        match tool {
            Tool::Bubblewrap => self.bubblewrap.as_deref(),
            Tool::Nsjail => self.nsjail.as_deref(),
            Tool::Seatbelt => self.seatbelt.as_deref(),
        }
    }
}

/// A program that is there, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledTool {
    /// Which.
    pub tool: Tool,
    /// Absolute path.
    pub path: PathBuf,
    /// What it says of its version; nsjail says none.
    pub version: Option<(u32, u32)>,
}

/// The oldest bubblewrap that sizes a tmpfs (`--size`).
const OLDEST_BUBBLEWRAP: (u32, u32) = (0, 7);
/// From this one on `--disable-userns` is there.
pub(crate) const NO_USERNS: (u32, u32) = (0, 8);
/// From this one on `--argv0` is there.
pub(crate) const ARGV0: (u32, u32) = (0, 9);

fn missing(tool: Tool) -> Failure {
    let (message, hint) = match tool {
        Tool::Bubblewrap => (
            "bubblewrap is not installed: no bwrap on PATH",
            "apt-get install bubblewrap (or dnf, apk, pacman), or name it with COFFERDAM_BWRAP=/path/to/bwrap",
        ),
        Tool::Nsjail => (
            "nsjail is not installed: none on PATH",
            "build it from its source and name it with COFFERDAM_NSJAIL=/path/to/nsjail, or use --backend jail, which holds more",
        ),
        Tool::Seatbelt => (
            "Seatbelt is part of macOS: there is no /usr/bin/sandbox-exec here",
            "use --backend jail on Linux; `cofferdam export --format seatbelt` writes the profile anywhere",
        ),
    };
    let passed_over = match tool {
        Tool::Bubblewrap => host_programs::passed_over(VARIABLES[0].1),
        Tool::Nsjail => host_programs::passed_over(VARIABLES[1].1),
        Tool::Seatbelt => String::new(),
    };
    Failure::new(FailedStep::Tool, format!("{message}{passed_over}")).hint(hint)
}

impl InstalledTool {
    /// Looks for a tool and asks it what it is.
    ///
    /// # Errors
    /// It is missing, cannot be run or is too old; the hint says what to do.
    pub fn find(tool: Tool, tools: &Tools) -> Result<InstalledTool, Failure> {
        let Some(path) = tools.path(tool) else { return Err(missing(tool)) };
        let fail = |message: String, hint: &str| Failure::new(FailedStep::Backend, message).hint(hint);
        let path = std::path::absolute(path)
            .map_err(|e| fail(format!("cannot use {}: {e}", path.display()), "name it by an absolute path"))?;
        let mut found = InstalledTool { tool, path, version: None };
        if tool == Tool::Seatbelt {
            if !found.path.is_file() {
                return Err(missing(tool));
            }
            return Ok(found); // it has no version to tell
        }
        let asked = if tool == Tool::Bubblewrap { "--version" } else { "--help" };
        let said = ask(&found.path, asked).map_err(|e| {
            let variable = tool.variable();
            // Whoever named it there looks for the mistake there.
            let named =
                std::env::var_os(variable).is_some_and(|v| std::path::absolute(v).is_ok_and(|v| v == found.path));
            let (by, hint) = if named {
                (format!(" (named by {variable})"), format!("correct {variable}, or unset it to use the one on PATH"))
            } else {
                (String::new(), format!("reinstall it, or name another one with {variable}"))
            };
            fail(format!("cannot run {} {asked}{by}: {e}", found.path.display()), &hint)
        })?;
        match tool {
            Tool::Bubblewrap => {
                found.version = version(&said);
                match found.version {
                    Some(v) if v >= OLDEST_BUBBLEWRAP => {}
                    Some((major, minor)) => {
                        return Err(fail(
                            format!(
                                "{} is bubblewrap {major}.{minor}, and 0.7 is needed: an older one cannot limit the size of a tmpfs",
                                found.path.display()
                            ),
                            "upgrade bubblewrap, or use --backend jail",
                        ));
                    }
                    None => {
                        return Err(fail(
                            format!("{} does not say that it is bubblewrap", found.path.display()),
                            "name bubblewrap's own program with COFFERDAM_BWRAP",
                        ));
                    }
                }
            }
            // Its text format is read by every version, so there is nothing else to ask of one.
            _ => {
                if !(said.contains("--config") && said.contains("seccomp_string")) {
                    return Err(fail(
                        format!(
                            "{} is no nsjail that takes a configuration file and a system call policy",
                            found.path.display()
                        ),
                        "build nsjail 3.0 or later with Kafel, or use --backend jail",
                    ));
                }
            }
        }
        Ok(found)
    }
}

fn ask(path: &Path, argument: &str) -> std::io::Result<String> {
    let output = Command::new(path).arg(argument).env_clear().stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The first two numbers of `bubblewrap 0.8.0`.
fn version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.lines().next()?.strip_prefix("bubblewrap ")?.trim().split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("bubblewrap 0.10.1\n"), Some((0, 10)));
        assert!(version("bubblewrap 0.10.1") > Some(ARGV0));
        assert_eq!(version("something else 1.2"), None);
    }

    #[test]
    fn what_is_missing_is_reported_with_a_hint() {
        let failure = InstalledTool::find(Tool::Bubblewrap, &Tools::default()).unwrap_err();
        assert!(failure.hint.unwrap().contains("apt-get install bubblewrap"));
    }

    /// A program that says this. Written by another process: what a thread of this one starts meanwhile would hold it open.
    fn says(dir: &Path, name: &str, text: &str) -> PathBuf {
        let at = dir.join(name);
        let write = "printf '#!/bin/sh\necho \"%s\"\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        assert!(Command::new("sh").args(["-c", write, "sh"]).arg(&at).arg(text).status().unwrap().success());
        at
    }

    #[test]
    fn a_tool_that_is_too_old_or_another_is_reported_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let find = |tool, path: PathBuf| {
            let tools = match tool {
                Tool::Bubblewrap => Tools { bubblewrap: Some(path), ..Tools::default() },
                _ => Tools { nsjail: Some(path), ..Tools::default() },
            };
            InstalledTool::find(tool, &tools).map_err(|f| format!("{} hint: {}", f.message, f.hint.unwrap_or_default()))
        };
        let old = find(Tool::Bubblewrap, says(dir.path(), "old-bwrap", "bubblewrap 0.6.2")).unwrap_err();
        assert!(old.contains("is bubblewrap 0.6, and 0.7 is needed") && old.contains("hint: upgrade"), "{old}");
        let other = find(Tool::Bubblewrap, says(dir.path(), "other", "wrap 9")).unwrap_err();
        assert!(other.contains("does not say that it is bubblewrap"), "{other}");
        let old =
            find(Tool::Nsjail, says(dir.path(), "old-nsjail", "--config FILE --seccomp_policy FILE")).unwrap_err();
        assert!(old.contains("is no nsjail that takes") && old.contains("build nsjail 3.0 or later"), "{old}");
        let gone = find(Tool::Nsjail, dir.path().join("gone")).unwrap_err();
        assert!(gone.contains("cannot run") && gone.contains("gone --help"), "{gone}");
        // The twins: new enough.
        assert!(find(Tool::Bubblewrap, says(dir.path(), "bwrap", "bubblewrap 0.7.0")).is_ok());
        assert!(find(Tool::Nsjail, says(dir.path(), "nsjail", "--config FILE --seccomp_string TEXT")).is_ok());
    }
}
