//! Builds a guard from a configuration: checks rules and binds them to files, checks directories, and probes whether
//! the host can enforce it. What cannot be enforced is an error here, never a weaker guard.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cofferdam_confine::host;
use cofferdam_policy::Field;
use cofferdam_policy::limits::LIMITS;
use cofferdam_policy::paths::is_within;

use super::argument_patterns::CheckedRule;
use super::blocked_paths::Blocked;
use super::config::{GuardConfig, Mode};
use super::decide::BoundRule;
use super::decision_cache::DecisionCache;
use super::error::GuardError;
use super::executable_lookup::ExecutableSearch;
use super::execute::{Guard, GuardInner};
use super::helper_programs::{self, HelperPrograms};
use super::recorder::Recorder;
use super::sandbox_policy::{self, PolicyBase};
use cofferdam_engine::engine::Engine;

/// A guard in the making.
pub struct GuardBuilder {
    pub(super) config: GuardConfig,
    pub(super) workspace: PathBuf,
    pub(super) variables: Option<Vec<(String, String)>>,
    pub(super) recorder: Option<Arc<dyn Recorder>>,
}

impl Guard {
    /// A guard over this workspace: the directory that commands start in and may write.
    ///
    /// # Errors
    /// See [`GuardBuilder::build`].
    pub fn new(config: impl Into<GuardConfig>, workspace: impl Into<PathBuf>) -> Result<Guard, GuardError> {
        Guard::builder(config, workspace).build()
    }

    /// The same, with a recorder or variables of its own.
    pub fn builder(config: impl Into<GuardConfig>, workspace: impl Into<PathBuf>) -> GuardBuilder {
        GuardBuilder { config: config.into(), workspace: workspace.into(), variables: None, recorder: None }
    }
}

impl GuardBuilder {
    /// Sets the environment, instead of this process's: commands get its harmless variables, and its PATH and HOME are
    /// used.
    #[must_use]
    pub fn variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> GuardBuilder {
        self.variables = Some(variables.into_iter().collect());
        self
    }

    /// Sets the recorder of decisions.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> GuardBuilder {
        self.recorder = Some(recorder);
        self
    }

    /// Makes the guard: every rule is checked and bound to its file, and the host is asked whether it can hold it all.
    ///
    /// # Errors
    /// Something in the configuration is wrong, or cannot be enforced here. Commands that are not installed are no
    /// error: they are listed by [`Guard::not_installed`], and refused.
    pub fn build(self) -> Result<Guard, GuardError> {
        let GuardBuilder { config, workspace, variables, recorder } = self;
        let me = host::identity();
        if me.uid == 0 && !config.run_as_root {
            return Err(GuardError::Root);
        }
        match (config.mode, config.enforce_reads) {
            (Mode::Rwx, _) => return Err(GuardError::Unwalled),
            (Mode::Rx, true) => return Err(GuardError::Reads),
            _ => {}
        }
        check_numbers(&config)?;
        check_variables(&config)?;
        let given: Vec<(String, String)> = variables.unwrap_or_else(|| {
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
        });
        let variable = |name: &str| given.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let home = variable("HOME").and_then(cofferdam_policy::paths::normalize).filter(|home| home != "/");

        let workspace = directory(&workspace, "the workspace")?;
        let mut writable = Vec::new();
        for given in &config.writable {
            let at_home = given.strip_prefix("~/").zip(home.as_deref()).map(|(rest, home)| Path::new(home).join(rest));
            let dir = directory(&at_home.unwrap_or_else(|| given.into()), "writable")?;
            if is_within(&workspace, &dir) && workspace != dir {
                // Its own path would be theirs to change: the next command would work elsewhere.
                let reason =
                    format!("the workspace {workspace} lies in it\nhint: make it the workspace, or name others");
                return Err(GuardError::Directory { what: "writable", path: given.clone(), reason });
            }
            writable.push(dir);
        }
        // One inside another is written with it, and must not be a mount of its own whose path they can change.
        let all: Vec<String> = writable.iter().chain([&workspace]).cloned().collect();
        writable.retain(|dir| *dir != workspace && !all.iter().any(|other| other != dir && is_within(dir, other)));
        writable.sort();
        writable.dedup();
        let blocked = Blocked::new(&config.blocked_paths, home.as_deref(), &workspace)?;
        let mut frame = PolicyBase {
            workspace,
            writable,
            home: home.clone(),
            variables: Default::default(),
            other_user: me.switches(),
        };
        let mut search = search(variable("PATH").unwrap_or(DEFAULT_PATH), &frame);
        let rustup_home = variable("RUSTUP_HOME").map(PathBuf::from);
        let rustup_home = rustup_home.or_else(|| home.as_deref().map(|home| Path::new(home).join(".rustup")));
        let rustup_home = rustup_home.and_then(|dir| std::fs::canonicalize(dir).ok()).filter(|dir| dir.is_dir());
        search.rustup_home = rustup_home.and_then(|dir| dir.to_str().map(str::to_owned));
        let theirs = home.as_deref().filter(|_| !frame.other_user);
        frame.variables = sandbox_policy::variables(&config, given.clone(), &search.directories.join(":"), theirs);

        let (mut bound, mut inert) = (Vec::new(), Vec::new());
        for rule in &config.allowed_commands {
            match BoundRule::new(CheckedRule::new(rule)?, &config, &search)? {
                Some(rule) => bound.push(rule),
                None => inert.push(rule.command.clone()),
            }
        }
        check_names(&config)?;
        if let Some(dir) =
            search.rustup_home.as_ref().filter(|dir| bound.iter().any(|rule| rule.tree.readable.contains(*dir)))
        {
            frame.variables.entry("RUSTUP_HOME".into()).or_insert_with(|| dir.clone()); // its home is another one inside
        }
        let mut by_path: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, rule) in bound.iter().enumerate() {
            by_path.entry(rule.canonical.clone()).or_default().push(i);
        }
        let inner = GuardInner {
            config,
            engine: Engine::probe(),
            frame,
            search,
            rules: bound,
            by_path,
            inert,
            blocked,
            identities: Mutex::new(None),
            recorder,
            commands: DecisionCache::default(),
            paths: DecisionCache::default(),
        };
        inner.try_out()?;
        for command in &inner.inert {
            tracing::warn!(command, "an allowed command is not installed, or cannot be executed");
        }
        Ok(Guard::of(inner))
    }
}

/// The default PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

impl BoundRule {
    /// A rule, bound; `None` when there is no such program here.
    pub(super) fn new(
        checked: CheckedRule,
        config: &GuardConfig,
        search: &ExecutableSearch,
    ) -> Result<Option<BoundRule>, GuardError> {
        let command = checked.rule.command.clone();
        let refuse = |reason: String| GuardError::Rule { command: command.clone(), reason };
        let plain = !command.is_empty() && !command.contains('\0') && !command.ends_with('/');
        if !plain || command.contains('/') && !command.starts_with('/') {
            return Err(refuse("neither a name nor an absolute path".into()));
        }
        let found = match search.find(&command) {
            Ok(found) => found,
            Err(reason) if search.is_theirs(&command) => return Err(refuse(reason)),
            Err(_) if Path::new(&command).is_dir() => return Err(refuse("it is a directory".into())),
            // Words or a pattern would never be found, and say nothing of it.
            Err(_) if !command.contains('/') && command.contains(|c: char| c.is_whitespace() || "*?[".contains(c)) => {
                let reason = "a command is one name, without arguments or wildcards\n\
                              hint: { command = \"git\", args = \"status( .*)?\" } allows `git status` with any options";
                return Err(refuse(reason.into()));
            }
            Err(_) => return Ok(None),
        };
        let name = command.rsplit('/').next().unwrap_or(&command).to_owned();
        let many = helper_programs::is_many_in_one(&found.canonical) && command != found.canonical;
        let rustup = helper_programs::is_rustup(&found.canonical, found.identity, search);
        let tree = helper_programs::tree(&name, &found.canonical, rustup, &config.helpers, search)?;
        let named: Vec<&str> = config.helpers.get(&name).into_iter().flatten().map(String::as_str).collect();
        if let Some(reason) = helper_programs::many_in_chain(&found, |path| named.contains(&path)) {
            return Err(refuse(reason));
        }
        let workspace_programs = config.workspace_programs.contains(&name);
        let alone = many && tree == HelperPrograms::default() && found.chain.len() <= 1;
        if many && (!alone || workspace_programs) {
            return Err(refuse(format!(
                "it is {0}, many programs in one: with helpers it could start all of them\n\
                 hint: leave its helpers out, or allow {0} itself",
                found.canonical
            )));
        }
        let by_name = many || rustup && name != "rustup";
        Ok(Some(BoundRule { checked, name, canonical: found.canonical, by_name, alone, tree, workspace_programs }))
    }
}

/// Names under `helpers` and `workspace_programs` that no rule has would do nothing.
fn check_names(config: &GuardConfig) -> Result<(), GuardError> {
    let no_such = |reason: &str, entry: &str| match entry.rsplit_once('/') {
        Some((_, last)) if !last.is_empty() => {
            format!("{reason}\nhint: a command goes by its last part here: {last:?}")
        }
        _ => reason.to_owned(),
    };
    let names: BTreeSet<&str> =
        config.allowed_commands.iter().filter_map(|rule| rule.command.rsplit('/').next()).collect();
    for entry in &config.workspace_programs {
        if !names.contains(entry.as_str()) {
            let reason = no_such("no entry of allowed_commands has this name", entry);
            return Err(GuardError::Helper { table: "workspace_programs", entry: entry.clone(), reason });
        }
    }
    let helpers: BTreeSet<&str> =
        config.helpers.values().flatten().filter_map(|entry| entry.rsplit('/').next()).collect();
    for entry in config.helpers.keys() {
        if !names.contains(entry.as_str()) && !helpers.contains(entry.as_str()) {
            let reason = no_such("no entry of allowed_commands, and no helper, has this name", entry);
            return Err(GuardError::Helper { table: "helpers", entry: entry.clone(), reason });
        }
    }
    Ok(())
}

/// Two fields have other names in a policy, which the author of the configuration does not know.
fn check_numbers(config: &GuardConfig) -> Result<(), GuardError> {
    let most = |field| LIMITS.iter().find(|limit| limit.field == field).map_or(u64::MAX, |limit| limit.max);
    let secs = ("max_execution_time_secs", config.max_execution_time_secs, "seconds", most(Field::WallTime) / 1000);
    let bytes = ("max_output_bytes", config.max_output_bytes, "bytes", most(Field::Output));
    for (key, value, unit, most) in [secs, bytes] {
        if !(1..=most).contains(&value) {
            let accepted =
                format!("{key} = {value}: out of range; accepted: a whole number of {unit} from 1 to {most}");
            return Err(GuardError::Policy(accepted));
        }
    }
    Ok(())
}

/// What is no name of a variable would be an exception that nothing is the case of.
fn check_variables(config: &GuardConfig) -> Result<(), GuardError> {
    for (table, list) in [("keep_variables", &config.keep_variables), ("strip_variables", &config.strip_variables)] {
        if let Some(entry) = list.iter().find(|entry| !sandbox_policy::is_name(entry)) {
            return Err(GuardError::Variable { table, entry: entry.clone() });
        }
    }
    Ok(())
}

/// A directory that commands are to write, canonical.
fn directory(path: &Path, what: &'static str) -> Result<String, GuardError> {
    let refuse =
        |reason: &str| GuardError::Directory { what, path: path.display().to_string(), reason: reason.to_owned() };
    if !path.is_absolute() {
        return Err(refuse("it is relative\nhint: write it from `/` on"));
    }
    let real = std::fs::canonicalize(path).map_err(|e| refuse(&format!("{e}\nhint: create it first")))?;
    if !real.is_dir() {
        return Err(refuse("it is no directory"));
    }
    let Some(real) = real.to_str() else { return Err(refuse("it leads to a path that is not UTF-8")) };
    if real == "/" {
        return Err(refuse("it leads to `/`: everything would be writable"));
    }
    if let Some(own) = NEVER_WRITABLE.iter().find(|own| is_within(real, own) || is_within(own, real)) {
        return Err(refuse(&format!("{own} is the system's")));
    }
    Ok(real.to_owned())
}

/// Nothing that commands write lies in one of these, or around one.
const NEVER_WRITABLE: &[&str] =
    &["/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr"];

/// The absolute directories of a PATH that commands cannot write. A version manager's directory of shims gives way to
/// the programs that its shims would start.
fn search(path: &str, frame: &PolicyBase) -> ExecutableSearch {
    let mut search = ExecutableSearch { writable: frame.writable().cloned().collect(), ..ExecutableSearch::default() };
    for dir in path.split(':').filter(|dir| dir.starts_with('/')).flat_map(behind_shims) {
        let real = std::fs::canonicalize(&dir).ok();
        let writable = real
            .as_deref()
            .and_then(Path::to_str)
            .is_none_or(|real| search.writable.iter().any(|writable| is_within(real, writable)));
        if !writable && !search.directories.contains(&dir) {
            search.directories.push(dir);
        }
    }
    search
}

/// The directories that stand for one of a PATH: itself, or the chosen versions' programs where it has the shims of
/// pyenv and its kin (rbenv, nodenv): `ROOT/shims`, with the choice in `ROOT/version`. A shim is a script that starts
/// something else, which a guard would refuse. What a project chooses is not looked at: commands could write it.
fn behind_shims(dir: &str) -> Vec<String> {
    let path = Path::new(dir);
    let root = path.parent().filter(|root| path.ends_with("shims") && root.join("versions").is_dir());
    let Some(root) = root else { return vec![dir.to_owned()] };
    let chosen = std::fs::read_to_string(root.join("version")).unwrap_or_default();
    let plain = |name: &&str| !name.contains('/') && !name.starts_with('.') && *name != "system";
    let versions =
        chosen.split_ascii_whitespace().filter(plain).map(|name| root.join("versions").join(name).join("bin"));
    versions.filter(|bin| bin.is_dir()).filter_map(|bin| bin.to_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shims_give_way_to_the_chosen_versions_programs() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        for dir in ["shims", "versions/3.12.1/bin", "versions/3.11.0/bin"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        let behind = || behind_shims(&at("shims"));
        assert_eq!(behind(), Vec::<String>::new(), "nothing was chosen: the system's programs come later on the PATH");
        std::fs::write(at("version"), "3.12.1\n3.11.0\n9.9\n").unwrap();
        assert_eq!(
            behind(),
            [at("versions/3.12.1/bin"), at("versions/3.11.0/bin")],
            "one that is not there is left out"
        );
        for elsewhere in ["system", "../../etc", "..", "/usr"] {
            std::fs::write(at("version"), elsewhere).unwrap();
            assert_eq!(behind(), Vec::<String>::new(), "{elsewhere}");
        }
        assert_eq!(behind_shims("/usr/bin"), ["/usr/bin"]);
        assert_eq!(behind_shims(&at("versions/3.12.1/bin")), [at("versions/3.12.1/bin")]);
    }
}
