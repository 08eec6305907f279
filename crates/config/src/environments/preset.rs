//! The presets: which interpreter of the host, or of an image, runs the code, and how the code reaches it.

use std::path::Path;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Mount, Policy, Root, Stdin};

use super::discover::{DiscoveryFiles, Interpreter, Need, WantedInterpreter, discover};

use super::spec::{CodeSlot, LONGEST_ARGUMENT};
use super::{InterpreterSurroundings, PRESETS};

/// Why a preset cannot run the code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// There is no such preset.
    #[error("no environment is called {}\nhint: there are {}", cofferdam_policy::text::name(name), PRESETS.join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// The host has no such interpreter.
    #[error("no {} was found on PATH for the environment `{name}`\nhint: apt-get install {package}", names.join(" or "))]
    NoInterpreter {
        /// The preset.
        name: String,
        /// The program names that were looked for.
        names: &'static [&'static str],
        /// The package that provides it.
        package: &'static str,
    },
    /// A virtual environment has no interpreter that may be shown.
    #[error(
        "{} is no virtual environment with a Python that runs here\nhint: make it: python3 -m venv {}",
        cofferdam_policy::text::one_line(venv),
        cofferdam_policy::text::one_line(venv)
    )]
    NoVenv {
        /// The directory.
        venv: String,
    },
    /// Standard input is needed for the code, but used otherwise.
    #[error(
        "{bytes} bytes of code go in over standard input, which is asked for otherwise\nhint: put the code into a file and use --file FILE"
    )]
    InputTaken {
        /// The length of the code.
        bytes: usize,
    },
}

struct PresetSpec {
    wanted: WantedInterpreter,
    /// The option that makes the interpreter run the next argument.
    code: &'static str,
    /// The options that make it read code from standard input.
    stdin: &'static [&'static str],
    /// An argument after the code, if the interpreter would take the first argument for the program's name.
    name: Option<&'static str>,
    package: &'static str,
    /// Its program name in images.
    image: &'static str,
}

const PYTHON: PresetSpec = PresetSpec {
    wanted: WantedInterpreter {
        names: &["python3", "python"],
        stems: &["python"],
        asdf: "python",
        env_prefix: "PYENV",
        proof: &["os.py"],
    },
    code: "-c",
    stdin: &["-"],
    name: None,
    package: "python3",
    image: "python3",
};

const SHELL: PresetSpec = PresetSpec {
    wanted: WantedInterpreter {
        names: &["bash", "sh"],
        stems: &["bash", "sh", "dash", "busybox"],
        asdf: "",
        env_prefix: "",
        proof: &[],
    },
    code: "-c",
    stdin: &["-s", "--"],
    name: Some("shell"),
    package: "bash",
    image: "sh",
};

const NODE: PresetSpec = PresetSpec {
    wanted: WantedInterpreter {
        names: &["node", "nodejs"],
        stems: &["node"],
        asdf: "nodejs",
        env_prefix: "NODENV",
        proof: &["include/node/node.h", "lib/node_modules/npm/package.json"],
    },
    code: "-e",
    stdin: &["-"],
    name: None,
    package: "nodejs",
    image: "node",
};

/// The source of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodeSource {
    /// This text.
    Text(String),
    /// A file of the host.
    File {
        /// Its absolute path as named, which is its path inside.
        path: String,
        /// Its canonical path.
        source: String,
    },
    /// None: the interpreter is started without code, for a terminal or code on standard input.
    Interactive,
}

/// Sets the policy's command to run the code, and adds the mounts that the interpreter needs.
///
/// # Errors
/// There is no interpreter, or the code cannot be passed to it.
pub fn preset(
    policy: &mut Policy,
    caller: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
    name: &str,
    code: CodeSource,
    arguments: &[String],
) -> Result<(), PresetError> {
    let found = interpreter(policy, caller, tree, name)?;
    enter(policy, found, code, arguments)
}

/// Sets the policy's command to run the code by the interpreter of an image or a root directory, which is found by its name.
///
/// # Errors
/// There is no such preset, or the code cannot be passed to it.
pub fn image_preset(
    policy: &mut Policy,
    name: &str,
    code: CodeSource,
    arguments: &[String],
) -> Result<(), PresetError> {
    enter(policy, named(name)?, code, arguments)
}

/// The preset, and the start of a command that runs its interpreter.
type FoundPreset = (PresetSpec, Vec<String>);

fn enter(policy: &mut Policy, found: FoundPreset, code: CodeSource, arguments: &[String]) -> Result<(), PresetError> {
    let (environment, mut argv) = found;
    match code {
        CodeSource::Text(text) if text.len() <= LONGEST_ARGUMENT => {
            argv.push(environment.code.into());
            argv.push(text);
            argv.extend(environment.name.map(String::from));
        }
        CodeSource::Text(text) => {
            if policy.command.stdin != Stdin::Closed {
                return Err(PresetError::InputTaken { bytes: text.len() });
            }
            argv.extend(environment.stdin.iter().map(|s| (*s).to_owned()));
            policy.command.stdin = Stdin::Text(text);
        }
        CodeSource::File { path, source } => {
            bind(policy, &source, &path);
            argv.push(path);
        }
        CodeSource::Interactive => {}
    }
    argv.extend_from_slice(arguments);
    policy.command.argv = argv;
    Ok(())
}

/// Prepares the command for many runs with different code, which each run passes as the result says. `long` is for code that is
/// too long for an argument.
///
/// # Errors
/// There is no interpreter.
pub(crate) fn open(
    policy: &mut Policy,
    caller: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
    name: &str,
    long: bool,
) -> Result<CodeSlot, PresetError> {
    let found = interpreter(policy, caller, tree, name)?;
    Ok(open_found(policy, found, long))
}

/// Prepares the command for many runs by the interpreter of an image or a root directory.
///
/// # Errors
/// There is no such preset.
pub(crate) fn open_image(policy: &mut Policy, name: &str, long: bool) -> Result<CodeSlot, PresetError> {
    Ok(open_found(policy, named(name)?, long))
}

fn open_found(policy: &mut Policy, (environment, mut argv): FoundPreset, long: bool) -> CodeSlot {
    let entry = if long {
        argv.extend(environment.stdin.iter().map(|s| (*s).to_owned()));
        policy.command.stdin = Stdin::Caller;
        CodeSlot::Input
    } else {
        argv.push(environment.code.into());
        CodeSlot::Argument { after: environment.name.map(String::from).into_iter().collect() }
    };
    policy.command.argv = argv;
    entry
}

/// The preset of this name.
fn of_name(name: &str) -> Result<PresetSpec, PresetError> {
    match name {
        "python" => Ok(PYTHON),
        "shell" => Ok(SHELL),
        "node" => Ok(NODE),
        _ => Err(PresetError::Unknown { name: name.to_owned() }),
    }
}

/// The preset, with the interpreter of an image by its name.
fn named(name: &str) -> Result<FoundPreset, PresetError> {
    let environment = of_name(name)?;
    let program = environment.image.to_owned();
    Ok((environment, vec![program]))
}

/// The interpreter of a preset here.
fn found(
    caller: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
    name: &str,
    environment: &PresetSpec,
) -> Result<Interpreter, PresetError> {
    discover(tree, caller, &environment.wanted).ok_or_else(|| match caller.venv {
        Some(venv) => PresetError::NoVenv { venv: venv.to_owned() },
        None => PresetError::NoInterpreter {
            name: name.to_owned(),
            names: environment.wanted.names,
            package: environment.package,
        },
    })
}

/// The canonical path of the Python that the preset runs here.
///
/// # Errors
/// There is none.
pub(super) fn found_python(
    caller: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
) -> Result<String, PresetError> {
    let program = found(caller, tree, "python", &PYTHON)?.program;
    let real = tree.canonical(Path::new(&program)).and_then(|real| real.into_os_string().into_string().ok());
    Ok(real.unwrap_or(program))
}

/// Whether the Python of a virtual environment needs nothing but that and what the Python here needs.
pub(super) fn leads_to_this_python(
    venv: &Path,
    caller: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
) -> bool {
    let of = |venv| found(InterpreterSurroundings { venv, ..caller }, tree, "python", &PYTHON);
    let (Ok(own), Ok(here), Some(real)) = (of(venv.to_str()), of(None), tree.canonical(venv)) else { return false };
    own.needs.iter().all(|need| {
        Path::new(&need.source).starts_with(&real) || here.needs.iter().any(|known| known.source == need.source)
    })
}

/// Finds the interpreter, mounts what it needs, and returns the start of its command.
fn interpreter(
    policy: &mut Policy,
    caller: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
    name: &str,
) -> Result<FoundPreset, PresetError> {
    // The host's interpreter is not used in an image, whose own is found by its name.
    if matches!(policy.filesystem.root, Root::Image(_)) {
        return named(name);
    }
    let environment = of_name(name)?;
    let interpreter = found(caller, tree, name, &environment)?;
    for need in &interpreter.needs {
        bind(policy, &need.source, &need.target);
    }
    // Deny the credentials of each home that a mount lies in. By its path an installation contains none (`discover`), so only
    // existing ones matter, which may be links.
    if !interpreter.needs.is_empty() {
        let lies = |need: &Need, home: &str| is_within(&need.source, home) || is_within(&need.target, home);
        let homes = caller.homes.iter().filter(|home| interpreter.needs.iter().any(|need| lies(need, home)));
        let homes: Vec<String> = homes.cloned().collect();
        let there = |path: &String| tree.canonical(Path::new(path)).is_some();
        policy.filesystem.deny.extend(super::credentials(&homes).into_iter().filter(there));
        super::deny_moved(policy, &super::HomeListings::of(caller.homes), |name| caller.variable(name));
    }
    // The interpreter's directory comes first, so that the tools beside it (pip, npm) are found.
    if let Some((bin, _)) = interpreter.program.rsplit_once('/').filter(|_| !interpreter.needs.is_empty())
        && let Some(path) = policy.command.variables.get_mut("PATH")
    {
        *path = format!("{bin}:{path}");
    }
    Ok((environment, vec![interpreter.program]))
}

/// Mounts a path of the host read-only, unless it is mounted there already: before mounts that it would hide, and after those that
/// would hide it.
fn bind(policy: &mut Policy, source: &str, target: &str) {
    let mounts = &mut policy.filesystem.mounts;
    let shows =
        |m: &Mount| matches!(m, Mount::Bind { source, target: at, .. } if source == at && is_within(target, at));
    if mounts.iter().any(|m| m.target() == target || shows(m)) {
        return;
    }
    let at = mounts.iter().position(|m| is_within(m.target(), target)).unwrap_or(mounts.len());
    let (source, target) = (source.to_owned(), target.to_owned());
    mounts.insert(at, Mount::Bind { source, target, access: Access::ReadOnly, exec: true, optional: false });
}
