//! What an environment comes to: what of a policy it sets, and how code goes in. Pure.
//!
//! ```text
//! Environment (and what its reference was built into) ─ recipe ─▶ Recipe ─ dress ─▶ policy ─ options ─ pass(code) ─▶ policy
//! ```
//!
//! An artifact's program is as untrusted as the code: it sees its own directory, the Nix store where it needs it, a
//! workspace in memory, and no network. What the definition names must hold; what the artifact says of its limits holds
//! as far as the host allows, as built-in limits do.

use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Field, Mount, NetworkMode, Policy, Root, Stdin};

use super::artifact::NIX_STORE;
use super::metadata::StdinMode;
use super::{BackendWord, Environment, Kind, Overrides, Project, Shell, stdin_mode_of};

/// The directory in memory that code works in, and its home.
pub const WORKSPACE: &str = "/workspace";

/// The variable by which an artifact's program knows that a sandbox of ours is around it.
pub const INSIDE: &str = "COFFERDAM_ENVIRONMENT";

/// Longest code that is passed as an argument, bytes: the kernel takes 128 KiB per argument (execve(2)).
pub const LONGEST_ARGUMENT: usize = 100 * 1024;

/// How code reaches an environment's interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// As the preset of this name takes it.
    Preset(String),
    /// As the preset of this name takes it, in a tree that brings its own interpreter.
    Image(String),
    /// An interpreter's words.
    Words {
        /// Program and options.
        argv: Vec<String>,
        /// How the code follows.
        mode: StdinMode,
    },
    /// A program that reads the code, and takes no arguments.
    Program(String),
    /// The policy's own command.
    Own,
}

/// What an environment sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// How code goes in.
    pub passing: Passing,
    /// What `/` is, where the definition says it.
    pub root: Option<Root>,
    /// Paths of the host that are shown, read-only, each at its own place.
    pub shows: Vec<String>,
    /// Directory that goes before the others of PATH.
    pub path: Option<String>,
    /// Whether code works in [`WORKSPACE`].
    pub workspace: bool,
    /// What an artifact's program finds in [`INSIDE`]: the name of its environment.
    pub inside: Option<String>,
    /// Limits that nobody named: wall time in seconds, memory in MiB.
    pub suggested: Option<(u64, u64)>,
    /// What the definition names.
    pub overrides: Overrides,
}

/// What the environment sets. `built` is what the reference of a `flake` was built into.
///
/// # Errors
/// Why it cannot be used.
pub fn recipe(environment: &Environment, built: Option<&Path>) -> Result<Recipe, String> {
    if let Some(reason) = environment.unavailable() {
        return Err(reason);
    }
    let plain = Recipe {
        passing: Passing::Own,
        root: None,
        shows: Vec::new(),
        path: None,
        workspace: false,
        inside: None,
        suggested: None,
        overrides: environment.overrides.clone(),
    };
    Ok(match &environment.kind {
        Kind::Preset(name) => Recipe { passing: Passing::Preset(name.clone()), ..plain },
        Kind::Profile { interpreter, .. } if interpreter.is_empty() => plain,
        Kind::Profile { interpreter, .. } => Recipe { passing: words(interpreter), ..plain },
        Kind::Artifact(artifact) => {
            let mut shows = Vec::new();
            if let Some(store) = &artifact.store {
                shows.push(text(store)?);
            }
            let own = artifact.directory.as_deref().unwrap_or(&artifact.program);
            for own in [Some(own), artifact.session_program.as_deref()].into_iter().flatten() {
                let own = text(own)?;
                if !shows.iter().any(|shown| is_within(&own, shown)) {
                    shows.push(own);
                }
            }
            Recipe {
                passing: Passing::Program(text(&artifact.program)?),
                shows,
                workspace: true,
                inside: Some(environment.name.clone()),
                suggested: Some((artifact.metadata.timeout_seconds, artifact.metadata.memory_mb)),
                ..plain
            }
        }
        Kind::Flake { reference, interpreter } => {
            let built = text(built.ok_or_else(|| format!("{reference} was not built"))?)?;
            let store = store_of(&built);
            Recipe {
                passing: words(interpreter),
                path: Some(format!("{built}/bin")),
                shows: vec![store.unwrap_or(built)],
                workspace: true,
                ..plain
            }
        }
        Kind::Reference(reference) => return Err(format!("{reference} was not built")),
        Kind::Image { root, interpreter } => {
            // Every image has a shell, or has to be told what else runs code.
            let passing = if interpreter.is_empty() { Passing::Image("shell".into()) } else { words(interpreter) };
            Recipe { passing, root: Some(root.clone()), ..plain }
        }
        Kind::Broken(_) => return Err("it cannot be used".into()),
    })
}

/// The store that Nix built this into: its usual one, or another, in which what is called HASH-NAME lies.
pub(super) fn store_of(built: &str) -> Option<String> {
    if is_within(built, NIX_STORE) {
        return Some(NIX_STORE.to_owned());
    }
    let (store, name) = built.rsplit_once('/')?;
    let hash = name.split_once('-')?.0;
    let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (is_hash && store.matches('/').count() >= 2).then(|| store.to_owned())
}

fn words(interpreter: &[String]) -> Passing {
    let mode = stdin_mode_of(&interpreter.join(" "));
    Passing::Words { argv: interpreter.to_vec(), mode }
}

fn text(path: &Path) -> Result<String, String> {
    path.to_str().map(str::to_owned).ok_or_else(|| format!("{} is not valid UTF-8", path.display()))
}

impl Recipe {
    /// Sets in the policy what the environment sets; what the caller names comes after it. `variable` answers with a
    /// variable of the caller's.
    pub fn dress(&self, policy: &mut Policy, project: Option<&Project>, variable: impl Fn(&str) -> Option<String>) {
        if let Some(root) = &self.root {
            policy.filesystem.root = root.clone();
            policy.require(Field::Root);
        }
        for path in &self.shows {
            show(policy, path, path);
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
            let access = if project.copy_on_write { Access::CopyOnWrite } else { Access::ReadOnly };
            show_as(policy, &project.path, &project.mount_point, access);
            // An image brings its own programs.
            if let (Some(shell), None) = (&project.shell, &self.root) {
                develop(policy, shell);
            }
            if self.inside.is_some() {
                // By these an artifact's program shows it in a sandbox of its own, or finds it.
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
            // The built-in CPU time belongs to the built-in wall time: it must not end what was given longer.
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
        if let Some(BackendWord::Ours(backend)) = named.backend {
            policy.backend = backend;
        }
        if named.nesting {
            policy.process.nested_sandboxes = true;
            // Without the second wall a FIFO that somebody put into what is shown can be written to, and in all of Nix's
            // store nobody looks for one: the outcome says so.
            policy.allow_partial(Field::Mounts);
        }
        if let Some(description) = &named.description {
            policy.description = Some(description.clone());
        }
    }

    /// Makes the policy's command run this code; without code, what the interpreter reads is the caller's. Not for
    /// presets, which discovery fills in.
    ///
    /// # Errors
    /// Why the code cannot go in, with a `hint:` where there is one.
    pub fn pass(&self, policy: &mut Policy, code: Option<String>, arguments: &[String]) -> Result<(), String> {
        let (argv, mode) = match &self.passing {
            Passing::Words { argv, mode } => (argv.clone(), *mode),
            Passing::Program(_) if !arguments.is_empty() => {
                return Err("the program of this environment takes no arguments".into());
            }
            Passing::Program(program) => (vec![program.clone()], StdinMode::Pipe),
            Passing::Own | Passing::Preset(_) | Passing::Image(_) => {
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

/// What a profile without a command is told.
pub(super) const NO_COMMAND: &str = "the profile of this environment has no command to run code with\nhint: give it \
                                     `command.argv`, or the environment `interpreter = \"python3 -c\"`";

/// What code is told that is no argument for its length.
pub(super) fn too_long(bytes: Option<usize>) -> String {
    let bytes = bytes.map_or_else(|| "that many".to_owned(), |bytes| bytes.to_string());
    format!(
        "{bytes} bytes of code cannot be passed as an argument, as this environment's interpreter takes it\n\
         hint: at most {LONGEST_ARGUMENT} bytes; or an interpreter that reads standard input"
    )
}

/// Adds a development shell: its programs first, its variables where there are none of the name.
fn develop(policy: &mut Policy, shell: &Shell) {
    show(policy, &shell.store, &shell.store);
    let variables = &mut policy.command.variables;
    let rest = variables.get("PATH").cloned();
    let path: Vec<String> = shell.path.iter().cloned().chain(rest).collect();
    variables.insert("PATH".into(), path.join(":"));
    for (name, value) in &shell.variables {
        variables.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// Shows a path of the host read-only: outside of what it would hide.
fn show(policy: &mut Policy, source: &str, target: &str) {
    show_as(policy, source, target, Access::ReadOnly);
}

fn show_as(policy: &mut Policy, source: &str, target: &str, access: Access) {
    let mounts = &mut policy.filesystem.mounts;
    if mounts.iter().any(|mount| mount.target() == target) {
        return;
    }
    let at = mounts.iter().position(|mount| is_within(mount.target(), target)).unwrap_or(mounts.len());
    let (source, target) = (source.to_owned(), target.to_owned());
    mounts.insert(at, Mount::Bind { source, target, access, exec: true, optional: false });
}
