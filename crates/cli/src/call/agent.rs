//! A coding agent inside: the options that it stands for, and its state, which is kept between the runs in one project.
//!
//! ```text
//! the home inside      in memory, for caches and temporary files
//!   .claude            the state of this agent in this project, kept in the caller's data directory
//!     settings.json …  the caller's own, read-only
//! ```
//!
//! Code in the sandbox may write the state. So nothing of it decides anything here, and what is put into it goes through no link.
//! Settings may be links into a repository, which a sandbox may have written: links there are not followed.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use cofferdam_config::environments::led_by_a_home;
use cofferdam_engine::audit::hidden::{Remembered, open_or_make, take};
use cofferdam_engine::audit::{hex, opened, sha256};
use cofferdam_policy::text::one_line;
use cofferdam_policy::{Access, BaseDirectory, Mount, NetworkMode, OWN_HOME, Policy};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::others_hidden;
use crate::args::agents::CodingAgent;
use crate::caller::Caller;
use crate::refusal::CliRefusal;

/// The directory with the states of all agents.
const STATES: &str = "cofferdam-agents";

/// The largest file that logs in, bytes.
const MOST_LOGIN: u64 = 1 << 20;

/// The longest name of a file, bytes.
const MOST_NAME: usize = 255;

/// What an agent stands for in one project.
#[derive(Debug)]
pub(crate) struct AgentCall {
    /// The agent.
    pub agent: &'static CodingAgent,
    /// The options, by their long names, and their values.
    pub options: Vec<(&'static str, String)>,
    /// The directory with the states of all agents, canonical.
    states: PathBuf,
    /// The directories of its own state.
    own: Vec<PathBuf>,
    /// The names of the variables whose values are secret.
    pub secrets: Vec<&'static str>,
    /// The caller's settings that are shown, without links.
    pub settings: Vec<String>,
    /// Why others, or the login, are not.
    pub left_out: Vec<String>,
}

impl AgentCall {
    /// The options of an agent in the caller's working directory. `here` says that the command line names none for it;
    /// `exists` whether a path of the caller's is there.
    pub(crate) fn new(
        agent: &'static CodingAgent,
        caller: &Caller,
        here: bool,
        exists: &dyn Fn(&str) -> bool,
    ) -> Result<AgentCall, CliRefusal> {
        let mut options: Vec<(&'static str, String)> = Vec::new();
        let mut add = |long: &'static str, value: String| options.push((long, value));
        if here {
            add("here", "rw".to_owned());
        }
        agent.hosts.iter().for_each(|host| add("allow", (*host).to_owned()));
        for (long, value) in [
            ("tmpfs", "/tmp/home:size=2g,exec"),
            ("env", "TMPDIR=/tmp/home"),
            ("pids", "4096"),
            ("timeout", "none"),
            ("cpu-time", "365d"),
        ] {
            add(long, value.to_owned());
        }
        let state = state_directory(agent, caller)?;
        let mut own = Vec::new();
        for directory in agent.state {
            let source = state.join(directory.replace('/', "-"));
            let source = source.to_str().ok_or_else(|| failed(&source, "it is not UTF-8"))?;
            // `--dry-run` makes nothing.
            let missing = if exists(source) { "" } else { ",optional" };
            own.push(PathBuf::from(source));
            add("volume", format!("{source}:{OWN_HOME}/{directory}:rw{missing}"));
        }
        let (mut settings, mut left_out) = (Vec::new(), Vec::new());
        for path in agent.settings {
            match of_the_home(caller, path) {
                OfTheHome::Real(real) => match real.into_os_string().into_string() {
                    Ok(real) if !real.contains(':') => {
                        add("volume", format!("{real}:{OWN_HOME}/{path}:ro"));
                        settings.push(real);
                    }
                    Ok(real) => left_out.push(format!("~/{path} is not shown: {real} has a colon in its path")),
                    Err(_) => left_out.push(format!("~/{path} is not shown: the path that it leads to is not UTF-8")),
                },
                OfTheHome::LeftOut(why) => left_out.push(format!("~/{path} is not shown: {why}")),
                OfTheHome::Missing => {}
            }
        }
        let secrets: Vec<&'static str> = keys(agent, caller).collect();
        for (directory, file) in agent.login.iter().filter(|_| secrets.is_empty()) {
            let path = format!("{directory}/{file}");
            if let OfTheHome::LeftOut(why) = of_the_home(caller, &path) {
                left_out.push(format!("~/{path} is not used: {why}"));
            }
        }
        let choices = agent.choices.iter().copied().filter(|name| is_set(caller, name));
        for name in secrets.iter().copied().chain(choices) {
            add("env", name.to_owned());
        }
        for (name, value) in agent.variables {
            add("env", format!("{name}={value}"));
        }
        let states = states_directory(caller)?;
        Ok(AgentCall { agent, options, states, own, secrets, settings, left_out })
    }

    /// The options as they are typed.
    pub(crate) fn typed(&self) -> Vec<String> {
        let mut typed: Vec<String> = self.options.iter().map(|(long, value)| typed(long, value)).collect();
        if let (Some(name), Some(key)) = (self.agent.key_as, self.secrets.first())
            && !self.secrets.contains(&name)
        {
            typed.push(format!("--env {name}=\"${key}\""));
        }
        typed.push(format!("-- {} {} …", self.agent.name, self.agent.arguments.join(" ")).replace("  ", " "));
        typed
    }

    /// Hides the states of all agents, also of those that begin while this one runs.
    ///
    /// # Errors
    /// A volume would show them.
    pub(crate) fn hide_other_states(&self, policy: &mut Policy) -> Result<(), CliRefusal> {
        let own =
            |source: &str, target: &str| target.starts_with(OWN_HOME) && Path::new(source).starts_with(&self.states);
        others_hidden::show_own_part(policy, &self.states, own, |shown| shows_states(shown, &self.states))
    }

    /// Keeps the sandbox from writing the settings that are shown, by any name, also where they lie in the project. States that
    /// other runs have moved elsewhere are hidden from it, but not those among which its own is.
    ///
    /// # Errors
    /// One cannot be kept from being written.
    pub(crate) fn keep_places(&self, caller: &Caller) -> Result<(), CliRefusal> {
        self.own.iter().for_each(|directory| cofferdam_engine::show_own(directory));
        // In a directory that a link leads to, the agent could also make settings that are not there.
        let directories = self.agent.state.iter().filter_map(|directory| match of_the_home(caller, directory) {
            OfTheHome::Real(real) => Some(real),
            _ => None,
        });
        for path in self.settings.iter().map(PathBuf::from).chain(directories) {
            cofferdam_engine::keep_read_only(&path).map_err(|why| {
                let message = format!("cannot keep {} from being written: {why}", one_line(&path.to_string_lossy()));
                CliRefusal::new("agent", message).hint("move your settings to a path that is UTF-8")
            })?;
        }
        Ok(())
    }

    /// What the agent may do, in one line.
    pub(crate) fn summary(&self, policy: &Policy, caller: &Caller) -> String {
        let here = policy.filesystem.mounts.iter().rev().find_map(|mount| match mount {
            Mount::Bind { target, access, .. } if *target == caller.cwd => Some(*access),
            _ => None,
        });
        let may = match here {
            Some(Access::ReadWrite) => format!("may write {}", one_line(&caller.cwd)),
            Some(Access::CopyOnWrite) => format!("may write a copy of {}", one_line(&caller.cwd)),
            _ => "may write no project".to_owned(),
        };
        let hosts: Vec<String> = policy.network.allow.iter().map(|rule| rule.entry.to_string()).collect();
        let hosts = match policy.network.mode {
            NetworkMode::Allowlist => format!("reach {}", hosts.join(", ")),
            NetworkMode::Host => "use this machine's network".to_owned(),
            NetworkMode::Loopback | NetworkMode::None => "reach no host".to_owned(),
        };
        format!(
            "{} {may} and {hosts}; read-only: your settings for it, and files here that control agents, such as .claude and AGENTS.md",
            self.agent.name
        )
    }

    /// What the agent lacks to reach its models, where it has neither a key nor a login: the note, and what helps.
    pub(crate) fn lacks_login(&self, caller: &Caller) -> Option<(String, String)> {
        let home = caller.homes.first().map(Path::new);
        let logins = self.agent.login.iter().filter_map(|(directory, file)| Some(home?.join(directory).join(file)));
        let states = self.options.iter().filter(|(long, _)| *long == "volume").flat_map(|(_, volume)| {
            let source = volume.split(':').next().unwrap_or_default();
            self.agent.login.iter().map(move |(_, file)| Path::new(source).join(file))
        });
        let has_login = logins.chain(states).any(|path| path.symlink_metadata().is_ok());
        (self.secrets.is_empty() && !has_login).then(|| {
            let outside = if self.agent.login.is_empty() { "" } else { ", or log in outside of the sandbox first" };
            (
                format!("{} has no key and no login", self.agent.name),
                format!("set {}{outside}", self.agent.keys.join(" or ")),
            )
        })
    }

    /// The variable besides those that were given in which the agent looks for its key, with the key.
    pub(crate) fn key_as<'c>(&self, caller: &'c Caller) -> Option<(&'static str, &'c str)> {
        let name = self.agent.key_as.filter(|name| !self.secrets.contains(name))?;
        Some((name, caller.variable(self.secrets.first()?)?))
    }

    /// The command: the agent with its own arguments, and then the caller's.
    pub(crate) fn argv(&self, arguments: &[String]) -> Vec<String> {
        let first = [self.agent.name].into_iter().chain(self.agent.arguments.iter().copied()).map(str::to_owned);
        first.chain(arguments.iter().cloned()).collect()
    }
}

/// Makes the directories of an agent's state in the working directory, with what it begins with, and the caller's login where no
/// key is given. Where a variable moved them, later runs hide the place, and one that something else made is not used.
///
/// # Errors
/// One cannot be made, or is not the caller's to use.
pub(crate) fn make_state(agent: &CodingAgent, caller: &Caller) -> Result<(), CliRefusal> {
    let (state, states) = (state_directory(agent, caller)?, states_directory(caller)?);
    // Before anything is written there.
    if states.starts_with(&caller.cwd) || Path::new(&caller.cwd).starts_with(&states) {
        return Err(shows_states(Path::new(&caller.cwd), &states));
    }
    let because = |path: &Path| {
        let path = path.to_owned();
        move |error: std::io::Error| failed(&path, &error.to_string())
    };
    let all = open_states(caller, &states).map_err(because(&states))?;
    let (of_agent, _) = open_or_make(&all, agent.name).map_err(because(&state))?;
    let (own, _) = open_or_make(&of_agent, &project_name(&caller.cwd)).map_err(because(&state))?;
    for directory in agent.state {
        let name = directory.replace('/', "-");
        let path = state.join(&name);
        let at = |name: &str| path.join(name);
        let (opened, new) = open_or_make(&own, &name).map_err(because(&path))?;
        if let Some((_, file, content)) = agent.first.filter(|(of, _, _)| new && of == directory) {
            put(&opened, file, begin(agent, content, caller).as_bytes())
                .map_err(|e| failed(&at(file), &e.to_string()))?;
        }
        for path in agent.settings {
            let Some(name) = path.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/')) else { continue };
            if let OfTheHome::Real(real) = of_the_home(caller, path) {
                place(&opened, name, real.is_dir()).map_err(|e| failed(&at(name), &e.to_string()))?;
            }
        }
        for (_, file) in agent.login.iter().filter(|(of, _)| of == directory) {
            if keys(agent, caller).next().is_some() {
                remove_login(&opened, file).map_err(|e| failed(&at(file), &e.to_string()))?;
                continue;
            }
            if let OfTheHome::Real(real) = of_the_home(caller, &format!("{directory}/{file}")) {
                copy_login(&real, &opened, file).map_err(|e| failed(&at(file), &e.to_string()))?;
            }
        }
    }
    Ok(())
}

/// Opens the directory with the states of all agents. Every run hides it in the home; elsewhere it has to be a known one.
fn open_states(caller: &Caller, states: &Path) -> std::io::Result<OwnedFd> {
    let usual = caller.homes.first().and_then(|home| std::fs::canonicalize(home).ok());
    let base =
        states.parent().filter(|_| usual.is_none_or(|home| home.join(".local/share/cofferdam-agents") != states));
    match base {
        Some(base) => Ok(take(Remembered::AgentStates, &opened::state_directory()?, base, STATES)?.0),
        None => {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(states)?;
            Ok(File::open(states)?.into())
        }
    }
}

/// Where a file or directory of the home is.
enum OfTheHome {
    /// There, by a path without links.
    Real(PathBuf),
    /// Where no one may follow, and why.
    LeftOut(String),
    /// Nowhere.
    Missing,
}

/// Looks for an agent's file or directory in the home. A link is followed if it lies in the home itself, or where the agent looks:
/// another may be a sandbox's, and would choose what of the home the agent sees.
fn of_the_home(caller: &Caller, path: &str) -> OfTheHome {
    let Some(home) = caller.homes.first().map(Path::new) else { return OfTheHome::Missing };
    let named = home.join(path);
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    match led_by_a_home(&named, &caller.homes, directory) {
        Ok(real) => OfTheHome::Real(real),
        Err(link) if link.is_symlink() => {
            let link = one_line(&link.to_string_lossy());
            OfTheHome::LeftOut(format!("it leads to the link {link}, which code in a sandbox could have made"))
        }
        Err(gone) if named.is_symlink() => {
            OfTheHome::LeftOut(format!("it leads to {}, which is not there", one_line(&gone.to_string_lossy())))
        }
        Err(_) => OfTheHome::Missing,
    }
}

/// The variables of the caller's that hold a key for an agent.
fn keys(agent: &CodingAgent, caller: &Caller) -> impl Iterator<Item = &'static str> {
    agent.keys.iter().copied().filter(|name| is_set(caller, name))
}

fn is_set(caller: &Caller, name: &str) -> bool {
    caller.variable(name).is_some_and(|value| !value.is_empty())
}

/// The content of the file that the state begins with.
fn begin(agent: &CodingAgent, content: &str, caller: &Caller) -> String {
    let quoted = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let key = keys(agent, caller).next().and_then(|name| caller.variable(name)).unwrap_or_default();
    let end: String = key.chars().skip(key.chars().count().saturating_sub(20)).collect();
    content.replace("@CWD@", &quoted(&caller.cwd)).replace("@KEY@", &quoted(&end))
}

/// An option as it is typed.
fn typed(long: &str, value: &str) -> String {
    let plain = value.chars().all(|c| c.is_ascii_alphanumeric() || "/.:=_,@%+-".contains(c));
    if plain { format!("--{long} {value}") } else { format!("--{long} '{}'", value.replace('\'', r"'\''")) }
}

/// The refusal where a directory that would be shown has the states of agents in it, or lies in one.
fn shows_states(shown: &Path, states: &Path) -> CliRefusal {
    let message = format!(
        "{} would show the agent the states and logins of others, which are in {}",
        one_line(&shown.to_string_lossy()),
        states.display()
    );
    CliRefusal::new("agent", message).hint("name a directory that does not contain it")
}

/// The directory with the states of all agents, canonical as far as it is there.
fn states_directory(caller: &Caller) -> Result<PathBuf, CliRefusal> {
    let data = caller.base_directory(BaseDirectory::Data).ok_or_else(|| {
        CliRefusal::new("agent", "there is no home directory for what the agent remembers")
            .hint("set HOME or XDG_DATA_HOME")
    })?;
    let there = data.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    let real = there.map(|(above, real)| match data.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        _ => real,
    });
    Ok(real.unwrap_or(data).join(STATES))
}

/// The directory with an agent's state in the working directory.
fn state_directory(agent: &CodingAgent, caller: &Caller) -> Result<PathBuf, CliRefusal> {
    Ok(states_directory(caller)?.join(agent.name).join(project_name(&caller.cwd)))
}

/// The name of a project's state: the path of the project, as the name of a file, which has no `/`.
fn project_name(cwd: &str) -> String {
    let mut name = cwd.replace('%', "%25").replace('/', "%2F").replace(':', "%3A");
    if name.len() > MOST_NAME {
        // No path is written with `%-`.
        let digest = format!("%-{}", hex(&sha256(cwd.as_bytes())));
        name.truncate(name.floor_char_boundary(MOST_NAME - digest.len()));
        name += &digest;
    }
    name
}

fn failed(path: &Path, why: &str) -> CliRefusal {
    CliRefusal::new("agent", format!("cannot keep the agent's state in {}: {why}", path.display()))
        .hint("remove that directory to start afresh in this project, or name another place with XDG_DATA_HOME")
}

/// Removes the copy of a login: with a key the agent needs none.
fn remove_login(from: &OwnedFd, name: &str) -> std::io::Result<()> {
    match unlinkat(from, name, AtFlags::empty()) {
        // A directory of that name is none.
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file at a path without links, to read it.
fn open_without_links(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let mut parts = path.strip_prefix("/").unwrap_or(path).components().peekable();
    let mut at = rustix::fs::open("/", flags | OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    while let Some(part) = parts.next() {
        // One that is not the last is a directory, and a FIFO keeps nobody waiting.
        let more = if parts.peek().is_some() { OFlags::PATH | OFlags::DIRECTORY } else { OFlags::NONBLOCK };
        at = openat(&at, part.as_os_str(), flags | more, Mode::empty())?;
    }
    Ok(at.into())
}

/// Copies the file that logs in, which has a path without links, unless the copy is as new: then the agent has renewed it since.
fn copy_login(from: &Path, to: &OwnedFd, name: &str) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let opened = match open_without_links(from) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let about = opened.metadata()?;
    let copied = match statat(to, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(copy) => rustix::fs::FileType::from_raw_mode(copy.st_mode).is_file() && copy.st_mtime >= about.mtime(),
        Err(Errno::NOENT) => false,
        Err(error) => return Err(error.into()),
    };
    if copied || !about.is_file() || about.len() > MOST_LOGIN {
        return Ok(());
    }
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(opened, MOST_LOGIN), &mut content)?;
    put(to, name, &content)
}

/// Makes the place at which a file or a directory is shown. A link of that name is replaced, and not followed.
fn place(directory: &OwnedFd, name: &str, is_directory: bool) -> std::io::Result<()> {
    use rustix::fs::FileType;
    let there = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(about) => Some(FileType::from_raw_mode(about.st_mode)),
        Err(Errno::NOENT) => None,
        Err(error) => return Err(error.into()),
    };
    match (there, is_directory) {
        (Some(FileType::Directory), true) | (Some(FileType::RegularFile), false) => return Ok(()),
        (Some(FileType::Directory), false) => unlinkat(directory, name, AtFlags::REMOVEDIR)?,
        (Some(_), _) => unlinkat(directory, name, AtFlags::empty())?,
        (None, _) => {}
    }
    if is_directory {
        return Ok(mkdirat(directory, name, Mode::from_raw_mode(0o700))?);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
    Ok(())
}

/// Writes a file of this directory anew. A link of that name is replaced, and not followed.
fn put(directory: &OwnedFd, name: &str, content: &[u8]) -> std::io::Result<()> {
    let new = format!(".{name}.{}", std::process::id());
    match unlinkat(directory, &new, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, &new, flags, Mode::from_raw_mode(0o600))?);
    let done = file.write_all(content).and_then(|()| Ok(renameat(directory, &new, directory, name)?));
    if done.is_err() {
        unlinkat(directory, &new, AtFlags::empty())?;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_project_has_a_state_of_a_name_that_a_file_can_have() {
        assert_eq!(project_name("/work/a:b%2F"), "%2Fwork%2Fa%3Ab%252F");
        let longest = format!("/{}", "a".repeat(MOST_NAME - 3));
        assert_eq!(project_name(&longest), longest.replace('/', "%2F"));
        let deep = |last: &str| format!("{}/{last}", "/directory\u{e9}".repeat(40));
        let names = [project_name(&deep("one")), project_name(&deep("other")), project_name(&format!("{longest}a"))];
        assert!(names.iter().all(|name| (200..=MOST_NAME).contains(&name.len()) && name.contains("%-")), "{names:?}");
        assert!(names[0] != names[1] && names[0][..150] == names[1][..150]);
        // Named as the short name says, a project has another state.
        assert_ne!(project_name(&names[0].replace("%2F", "/")), names[0]);
    }
}
