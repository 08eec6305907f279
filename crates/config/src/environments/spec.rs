//! The specification of an environment: what it sets in a policy, and how code is passed to its interpreter. Pure.
//!
//! ```text
//! Environment (and the build of its reference) ─ spec ─▶ EnvironmentSpec ─ apply ─▶ policy ─ options ─ pass(code) ─▶ policy
//! ```
//!
//! An artifact's program is as untrusted as the code: it sees its own directory, the Nix store if it needs it, a workspace in
//! memory, and no network. Settings of the definition must be enforced; limits from the artifact's metadata are enforced as far as
//! the host allows, like built-in limits.

use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Field, Mount, Network, NetworkMode, Policy, Root, Stdin};

use super::artifact::NIX_STORE;
use super::metadata::StdinMode;
use super::{
    BackendWord, Environment, EnvironmentKind, InterpreterSurroundings, Overrides, Project, Shell, stdin_mode_of,
};

/// The tmpfs that is the code's working directory and home.
pub const WORKSPACE: &str = "/workspace";

/// The variable that tells an artifact's program that it runs in a sandbox of Cofferdam.
pub(crate) const INSIDE: &str = "COFFERDAM_ENVIRONMENT";

/// Longest code that is passed as an argument, bytes: the kernel takes 128 KiB per argument (execve(2)).
pub const LONGEST_ARGUMENT: usize = 100 * 1024;

/// How code reaches an environment's interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeInput {
    /// As the preset of this name takes it.
    Preset(String),
    /// As the preset of this name takes it, with the interpreter of the root directory or image.
    Image(String),
    /// An interpreter's words.
    Words {
        /// Program and options.
        argv: Vec<String>,
        /// How the code follows.
        mode: StdinMode,
    },
    /// A program that reads the code from standard input, and takes no arguments.
    Program(String),
    /// The policy's own command.
    Own,
}

/// How the code of each run is passed in a policy that is prepared once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeSlot {
    /// As an argument after those of the policy's command.
    Argument {
        /// The arguments after the code.
        after: Vec<String>,
    },
    /// On standard input.
    Input,
}

/// The specification of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentSpec {
    /// How code is passed.
    pub code_input: CodeInput,
    /// The root, if the definition sets it.
    pub root: Option<Root>,
    /// Paths of the host that are mounted read-only, each at the same path.
    pub binds: Vec<String>,
    /// A directory that is put first in PATH.
    pub path: Option<String>,
    /// The virtual environment whose interpreter the preset runs, in place of the one along PATH.
    pub venv: Option<String>,
    /// Whether [`WORKSPACE`] is mounted.
    pub workspace: bool,
    /// The value of [`INSIDE`] for an artifact's program: the name of its environment.
    pub inside: Option<String>,
    /// Limits from the artifact's metadata: wall time in seconds, memory in MiB.
    pub suggested: Option<(u64, u64)>,
    /// Settings of the definition.
    pub overrides: Overrides,
}

/// The specification of an environment. `built` is the build of a flake's reference, or the virtual environment of its packages.
///
/// # Errors
/// Why the environment cannot be used.
pub fn spec(environment: &Environment, built: Option<&Path>) -> Result<EnvironmentSpec, String> {
    if let Some(reason) = environment.unavailable() {
        return Err(reason);
    }
    let plain = EnvironmentSpec {
        code_input: CodeInput::Own,
        root: None,
        binds: Vec::new(),
        path: None,
        venv: None,
        workspace: false,
        inside: None,
        suggested: None,
        overrides: environment.overrides.clone(),
    };
    Ok(match &environment.kind {
        EnvironmentKind::Preset(_) if !environment.overrides.interpreter.is_empty() => {
            EnvironmentSpec { code_input: words(&environment.overrides.interpreter), ..plain }
        }
        EnvironmentKind::Preset(name) => {
            if built.is_none() && !environment.overrides.packages.names.is_empty() {
                return Err("its packages were not installed".into());
            }
            let venv = built.or(environment.overrides.venv.as_deref()).map(text).transpose()?;
            EnvironmentSpec { code_input: CodeInput::Preset(name.clone()), venv, ..plain }
        }
        EnvironmentKind::Profile { interpreter, .. } if interpreter.is_empty() => plain,
        EnvironmentKind::Profile { interpreter, .. } => EnvironmentSpec { code_input: words(interpreter), ..plain },
        EnvironmentKind::Artifact(artifact) => {
            let mut binds = Vec::new();
            if let Some(store) = &artifact.store {
                binds.push(text(store)?);
            }
            let own = artifact.directory.as_deref().unwrap_or(&artifact.program);
            for own in [Some(own), artifact.session_program.as_deref()].into_iter().flatten() {
                let own = text(own)?;
                if !binds.iter().any(|bind| is_within(&own, bind)) {
                    binds.push(own);
                }
            }
            EnvironmentSpec {
                code_input: CodeInput::Program(text(&artifact.program)?),
                binds,
                workspace: true,
                inside: Some(environment.name.clone()),
                suggested: Some((artifact.metadata.timeout_seconds, artifact.metadata.memory_mb)),
                ..plain
            }
        }
        EnvironmentKind::Flake { reference, interpreter } => {
            let built = text(built.ok_or_else(|| format!("{reference} was not built"))?)?;
            let store = store_of(&built);
            EnvironmentSpec {
                code_input: words(interpreter),
                path: Some(format!("{built}/bin")),
                binds: vec![store.unwrap_or(built)],
                workspace: true,
                ..plain
            }
        }
        EnvironmentKind::Reference(reference) => return Err(format!("{reference} was not built")),
        EnvironmentKind::Image { root, interpreter } => {
            // An image without an interpreter in its definition must have a shell.
            let code_input = if interpreter.is_empty() { CodeInput::Image("shell".into()) } else { words(interpreter) };
            EnvironmentSpec { code_input, root: Some(root.clone()), ..plain }
        }
        EnvironmentKind::Broken(_) => return Err("it cannot be used".into()),
    })
}

/// The Nix store that contains this build: the default one, or a directory whose entry has a name like HASH-NAME.
pub(super) fn store_of(built: &str) -> Option<String> {
    if is_within(built, NIX_STORE) {
        return Some(NIX_STORE.to_owned());
    }
    let (store, name) = built.rsplit_once('/')?;
    let hash = name.split_once('-')?.0;
    let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (is_hash && store.matches('/').count() >= 2).then(|| store.to_owned())
}

fn words(interpreter: &[String]) -> CodeInput {
    let mode = stdin_mode_of(&interpreter.join(" "));
    CodeInput::Words { argv: interpreter.to_vec(), mode }
}

fn text(path: &Path) -> Result<String, String> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("{} is not valid UTF-8", path.display()))
}

impl EnvironmentSpec {
    /// The surroundings in which the interpreter of its preset is found.
    pub fn surroundings<'a>(&'a self, around: InterpreterSurroundings<'a>) -> InterpreterSurroundings<'a> {
        InterpreterSurroundings { venv: self.venv.as_deref(), ..around }
    }

    /// Applies the settings to the policy, before the caller's own options. `variable` returns a variable of the caller.
    pub fn apply(&self, policy: &mut Policy, project: Option<&Project>, variable: impl Fn(&str) -> Option<String>) {
        if let Some(root) = &self.root {
            policy.filesystem.root = root.clone();
            policy.require(Field::Root);
        }
        for path in &self.binds {
            mount(policy, path, path);
        }
        let variables = &mut policy.command.variables;
        if let Some(directory) = &self.path {
            let rest = variables.get("PATH").map(|rest| format!(":{rest}")).unwrap_or_default();
            variables.insert("PATH".into(), format!("{directory}{rest}"));
        }
        if let Some(name) = &self.inside {
            variables.insert(INSIDE.into(), name.clone());
        }
        if self.workspace {
            for (name, value) in [("HOME", WORKSPACE), ("TMPDIR", WORKSPACE), ("TERM", "dumb")] {
                variables.insert(name.into(), value.into());
            }
            let size_mb = policy.limits.tmpfs_mb;
            policy.filesystem.mounts.push(Mount::Tmpfs { target: WORKSPACE.into(), size_mb, exec: false });
            policy.command.cwd = Some(WORKSPACE.into());
        }
        if let Some(project) = project {
            mount_project(policy, project);
            // An image has its own programs.
            if let (Some(shell), None) = (&project.shell, &self.root) {
                develop(policy, shell);
            }
            if self.inside.is_some() {
                // By these an artifact's program finds it, or mounts it in a nested sandbox.
                for name in ["PROJECT_DIR", "PROJECT_MOUNT"] {
                    policy.command.variables.insert(name.into(), project.mount_point.clone());
                }
            }
            for name in &project.inherit_env {
                if let Some(value) = variable(name) {
                    policy.command.variables.insert(name.clone(), value);
                }
            }
        }
        self.limit(policy);
    }

    fn limit(&self, policy: &mut Policy) {
        let named = &self.overrides;
        let (seconds, memory) = self.suggested.unzip();
        if let Some(seconds) = named.timeout_seconds.or(seconds) {
            policy.limits.wall_ms = seconds * 1000;
            // The default CPU time belongs to the default wall time, and must not end a run that may take longer.
            let all = seconds.saturating_mul(policy.limits.cpu_millis.div_ceil(1000));
            if policy.limits.cpu_seconds < all && !policy.is_required(Field::CpuTime) {
                policy.limits.cpu_seconds = all.min(super::metadata::most_seconds());
            }
        }
        if let Some(memory) = named.memory_mb.or(memory) {
            policy.limits.memory_mb = memory;
        }
        for (field, is_named) in
            [(Field::WallTime, named.timeout_seconds.is_some()), (Field::Memory, named.memory_mb.is_some())]
        {
            if is_named {
                policy.require(field);
            }
        }
        if let Some(network) = named.network {
            match network {
                NetworkMode::Allowlist => policy.network.mode = network,
                other => policy.network.replace(other),
            }
        }
        if !named.allow.is_empty() {
            let allow = named.allow.clone();
            policy.network = Network { mode: NetworkMode::Allowlist, allow, ..Network::none() };
            policy.require(Field::Network);
        }
        if let Some(BackendWord::Ours(backend)) = named.backend {
            policy.backend = backend;
        }
        if named.nesting {
            policy.process.nested_sandboxes = true;
            // Without Landlock a FIFO in a read-only mount can be written to, and the whole Nix store is not searched for FIFOs:
            // the outcome reports the mounts as partially enforced.
            policy.allow_partial(Field::Mounts);
        }
        if let Some(description) = &named.description {
            policy.description = Some(description.clone());
        }
    }

    /// Sets the policy's command to run this code; without code, the interpreter reads the caller's standard input. Not for
    /// presets, whose interpreter is discovered.
    ///
    /// # Errors
    /// Why the code cannot be passed, possibly with a `hint:`.
    pub fn pass(&self, policy: &mut Policy, code: Option<String>, arguments: &[String]) -> Result<(), String> {
        let (argv, mode) = match &self.code_input {
            CodeInput::Words { argv, mode } => (argv.clone(), *mode),
            CodeInput::Program(_) if !arguments.is_empty() => {
                return Err("the program of this environment takes no arguments".into());
            }
            CodeInput::Program(program) => (vec![program.clone()], StdinMode::Pipe),
            CodeInput::Own | CodeInput::Preset(_) | CodeInput::Image(_) => {
                let argv = policy.command.argv.clone();
                let Some(last) = argv.last() else { return Err(NO_COMMAND.into()) };
                let mode = stdin_mode_of(last);
                (argv, mode)
            }
        };
        policy.command.argv = argv;
        match (mode, code) {
            (StdinMode::Arg, None) => return Err("this environment takes code, and no session".into()),
            (StdinMode::Arg, Some(code)) if code.len() > LONGEST_ARGUMENT => return Err(too_long(Some(code.len()))),
            (StdinMode::Arg, Some(code)) => policy.command.argv.push(code),
            (StdinMode::Pipe, Some(_)) if policy.command.stdin != Stdin::Closed => {
                return Err("this environment takes code on standard input, which is asked for otherwise".into());
            }
            (StdinMode::Pipe, Some(code)) => policy.command.stdin = Stdin::Text(code),
            (StdinMode::Pipe, None) => {}
        }
        policy.command.argv.extend_from_slice(arguments);
        Ok(())
    }
}

/// The error for a profile without a command.
pub(super) const NO_COMMAND: &str = "the profile of this environment has no command to run code with\nhint: give it \
                                     `command.argv`, or the environment `interpreter = \"python3 -c\"`";

/// The error for code that is too long for an argument.
pub(super) fn too_long(bytes: Option<usize>) -> String {
    let bytes = bytes.map_or_else(|| "that many".to_owned(), |bytes| bytes.to_string());
    format!(
        "{bytes} bytes of code cannot be passed as an argument, as this environment's interpreter takes it\n\
         hint: at most {LONGEST_ARGUMENT} bytes; or an interpreter that reads standard input"
    )
}

/// Adds a development shell: its programs come first in PATH, and its variables replace none that are set.
fn develop(policy: &mut Policy, shell: &Shell) {
    mount(policy, &shell.store, &shell.store);
    let variables = &mut policy.command.variables;
    let rest = variables.get("PATH").cloned();
    let path: Vec<String> = shell.path.iter().cloned().chain(rest).collect();
    variables.insert("PATH".into(), path.join(":"));
    for (name, value) in &shell.variables {
        variables.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// Mounts a path of the host read-only, before mounts below it, which it would hide otherwise.
fn mount(policy: &mut Policy, source: &str, target: &str) {
    mount_as(policy, source, target, Access::ReadOnly);
}

/// Mounts the project. Where another mount has its place, both stay in the policy, which is refused with the names of both:
/// neither may be missing without a word.
fn mount_project(policy: &mut Policy, project: &Project) {
    let shows = |mount: &Mount| mount.target() == project.mount_point && mount.source() == Some(project.path.as_str());
    if !policy.filesystem.mounts.iter().any(shows) {
        insert(policy, &project.path, &project.mount_point, project.access);
    }
}

fn mount_as(policy: &mut Policy, source: &str, target: &str, access: Access) {
    if !policy.filesystem.mounts.iter().any(|mount| mount.target() == target) {
        insert(policy, source, target, access);
    }
}

fn insert(policy: &mut Policy, source: &str, target: &str, access: Access) {
    let mounts = &mut policy.filesystem.mounts;
    let at = mounts.iter().position(|mount| is_within(mount.target(), target)).unwrap_or(mounts.len());
    let (source, target) = (source.to_owned(), target.to_owned());
    mounts.insert(at, Mount::Bind { source, target, access, exec: true, optional: false });
}
