//! The caller's side of a call: working directory, homes and variables. Observed once, then plain data.
//!
//! Everything else works on a `Caller`, so that tests can build one by hand.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use cofferdam_config::environments::{InterpreterSurroundings, Surroundings};
use cofferdam_config::project_directory;
use cofferdam_policy::BaseDirectory;
use cofferdam_policy::paths::is_within;

use crate::refusal::CliRefusal;

/// The caller's side of a call.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Absolute working directory, as the kernel knows it.
    pub cwd: String,
    /// The caller's homes: `$HOME` and the one of the user database, without duplicates.
    pub homes: Vec<String>,
    /// The caller's variables that are valid UTF-8.
    pub variables: BTreeMap<String, String>,
    /// Whether standard input is a pipe, a socket or a file, and so something that was given to the program.
    pub gives_input: bool,
    /// Whether standard input, standard output and standard error are a terminal.
    pub at_terminal: bool,
    /// Whether standard output and standard error are one.
    pub output_at_terminal: bool,
    /// The memory of this machine in MiB, 0 where it is not known.
    pub memory_mb: u64,
}

/// Whether standard input is a pipe, a socket or a file: neither a terminal nor another device such as /dev/null, nor closed.
fn gives_input() -> bool {
    use rustix::fs::{FileType, fstat};
    let kind = fstat(rustix::stdio::stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket | FileType::RegularFile))
}

impl Caller {
    /// The caller of this process.
    ///
    /// # Errors
    /// The working directory or a variable cannot be used.
    pub fn observe() -> Result<Caller, CliRefusal> {
        let seen =
            Surroundings::observe().map_err(|error| CliRefusal::new("arguments", error.to_string()).split_hint())?;
        let system = rustix::system::sysinfo();
        let memory_mb = (u64::from(system.mem_unit) * system.totalram) >> 20;
        let output_at_terminal =
            [rustix::stdio::stdout(), rustix::stdio::stderr()].into_iter().all(rustix::termios::isatty);
        let at_terminal = output_at_terminal && rustix::termios::isatty(rustix::stdio::stdin());
        let Surroundings { cwd, homes, variables, .. } = seen;
        Ok(Caller { cwd, homes, variables, gives_input: gives_input(), at_terminal, output_at_terminal, memory_mb })
    }

    /// The part on which the search for interpreters depends.
    pub fn around(&self) -> InterpreterSurroundings<'_> {
        InterpreterSurroundings { variables: &self.variables, cwd: &self.cwd, homes: &self.homes, venv: None }
    }

    /// One of the caller's variables.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// One of the caller's base directories; `None` without a home.
    pub(crate) fn base_directory(&self, which: BaseDirectory) -> Option<PathBuf> {
        which.of(self.variable(which.variable()), self.homes.first())
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

    /// A path whose `~` the shell has not replaced, as it would have; a file of that very name is what it is.
    pub(crate) fn expanded(&self, path: &str) -> String {
        let below = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match (below, self.homes.first()) {
            (Some(rest), Some(home)) if std::fs::symlink_metadata(self.absolute(path)).is_err() => {
                format!("{home}{rest}")
            }
            _ => path.to_owned(),
        }
    }

    /// Whether a path lies in the working directory, and is what the caller works on: not where that is `/`.
    pub(crate) fn works_in(&self, path: &str) -> bool {
        let real = |path: &str| std::fs::canonicalize(path).ok()?.into_os_string().into_string().ok();
        self.cwd != "/" && is_within(path, &self.cwd) && real(path).is_none_or(|path| is_within(&path, &self.cwd))
    }

    /// Refuses a working directory in which much more lies than one project: the whole tree, a home or what is above one, a
    /// directory of the system, and one that everybody shares.
    ///
    /// # Errors
    /// It is such a directory.
    pub(crate) fn require_project(&self) -> Result<(), String> {
        if project_directory::holds_more(&self.cwd, &self.homes, self.variable("TMPDIR")) {
            return Err(format!(
                "{} is no project: more lies in it than a program should write\n\
                 hint: change to the directory of the project, or name what it may write: -v ./DIR:./DIR:rw",
                self.cwd
            ));
        }
        Ok(())
    }

    /// Refuses a working directory that is a home, or above one, of any user of this machine, or one by another name.
    ///
    /// # Errors
    /// It is such a directory.
    pub(crate) fn require_no_home(&self) -> Result<(), String> {
        match project_directory::home_in(&self.cwd, &self.homes) {
            Some(home) => Err(format!(
                "{} is no project: the home {home} is or lies there\n\
                 hint: change to the directory of the project, or name what it may write: -v ./DIR:./DIR:rw",
                self.cwd
            )),
            None => Ok(()),
        }
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
pub(crate) fn utf8(text: OsString, what: &str) -> Result<String, CliRefusal> {
    text.into_string().map_err(|raw| {
        CliRefusal::new("arguments", format!("{what} is not valid UTF-8: {raw:?}"))
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

    #[test]
    fn a_project_is_neither_shared_nor_the_systems_nor_a_home() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let home = dir.join("home").to_str().unwrap().to_owned();
        let at = |cwd: &str| Caller { cwd: cwd.into(), homes: vec![home.clone()], ..Caller::default() };
        for refused in [
            "/",
            "/etc",
            "/etc/cron.d",
            "/usr/bin",
            "/usr/lib/systemd/system",
            "/var/log",
            "/home",
            "/tmp",
            "/var/tmp",
            "/dev/shm",
            "/usr",
            "/usr/local/bin",
            &home,
            dir.to_str().unwrap(),
        ] {
            assert!(at(refused).require_project().unwrap_err().contains(" is no project: "), "{refused}");
        }
        for project in [
            format!("{home}/code"),
            "/srv/site".into(),
            "/usr/src/app".into(),
            "/var/lib/ci/work".into(),
            format!("{}/other", dir.display()),
        ] {
            assert_eq!(at(&project).require_project(), Ok(()), "{project}");
        }
    }

    #[test]
    fn a_home_of_any_user_is_no_project_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(dir.path()).unwrap().to_str().unwrap().to_owned();
        let at = |cwd: &str| Caller { cwd: cwd.into(), homes: vec![home.clone()], ..Caller::default() };
        // The same directory by another name, as a bind mount gives it.
        let other = format!("/proc/self/root{home}");
        for refused in [&home, &other, "/root"] {
            assert!(at(refused).require_no_home().is_err(), "{refused}");
        }
        std::fs::create_dir(dir.path().join("project")).unwrap();
        assert_eq!(at(&format!("{home}/project")).require_no_home(), Ok(()));
    }

    #[test]
    fn a_tilde_is_the_home_unless_it_is_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().to_str().unwrap().to_owned();
        let caller = Caller { cwd, homes: vec!["/home/u".into()], ..Caller::default() };
        for (path, expanded) in
            [("~", "/home/u"), ("~/x", "/home/u/x"), ("~v/x", "~v/x"), ("a/~", "a/~"), ("./~/x", "./~/x")]
        {
            assert_eq!(caller.expanded(path), expanded);
        }
        std::fs::create_dir(dir.path().join("~")).unwrap();
        assert_eq!(caller.expanded("~"), "~");
        assert_eq!(Caller::default().expanded("~/x"), "~/x", "without a home");
    }

    #[test]
    fn a_caller_works_in_what_lies_in_the_working_directory_behind_links() {
        let dir = tempfile::tempdir().unwrap();
        let dir = std::fs::canonicalize(dir.path()).unwrap();
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        std::fs::create_dir_all(dir.join("project/src")).unwrap();
        std::fs::create_dir(dir.join("other")).unwrap();
        std::os::unix::fs::symlink("../other", dir.join("project/out")).unwrap();
        std::os::unix::fs::symlink("src", dir.join("project/in")).unwrap();
        let caller = Caller { cwd: path("project"), ..Caller::default() };
        for (name, works) in [
            ("project", true),
            ("project/src", true),
            ("project/in", true),
            ("project/out", false),
            ("project/missing", true),
            ("other", false),
        ] {
            assert_eq!(caller.works_in(&path(name)), works, "{name}");
        }
        assert!(!Caller { cwd: "/".into(), ..Caller::default() }.works_in("/srv"), "not everything");
    }
}
