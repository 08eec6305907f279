//! The built-in environments of `eval`: which interpreter runs the code, and how the code reaches it.

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Access, Mount, Policy, Stdin};

use crate::caller::Caller;
use crate::discover::{Tree, Wanted, discover};
use crate::report::Refusal;

/// Names of the environments.
pub const NAMES: &[&str] = &["python", "shell", "node"];

/// Longest code that is passed as an argument, bytes: the kernel takes 128 KiB per argument (execve(2)). Longer code
/// goes in over standard input.
pub const LONGEST_ARGUMENT: usize = 100 * 1024;

struct Environment {
    wanted: Wanted,
    /// Makes the interpreter run the next argument.
    code: &'static str,
    /// Makes it read code from standard input.
    stdin: &'static [&'static str],
    /// Stands between code and arguments, where the first argument would be the program's name otherwise.
    name: Option<&'static str>,
    package: &'static str,
}

const PYTHON: Environment = Environment {
    wanted: Wanted {
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
};

const SHELL: Environment = Environment {
    wanted: Wanted {
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
};

const NODE: Environment = Environment {
    wanted: Wanted {
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
};

/// Where the code comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// This text.
    Text(String),
    /// This file of the host, absolute.
    File(String),
    /// Nowhere: the interpreter is started as it is, for a terminal or code on standard input.
    Interactive,
}

/// Fills the command of an `eval` into the policy, with the mounts that the interpreter needs.
pub fn enter(
    policy: &mut Policy,
    caller: &Caller,
    tree: &dyn Tree,
    name: &str,
    code: Code,
    arguments: &[String],
) -> Result<(), Refusal> {
    let environment = match name {
        "python" => PYTHON,
        "shell" => SHELL,
        "node" => NODE,
        _ => return Err(Refusal::new("arguments", format!("no environment is called '{name}'"))),
    };
    let interpreter = discover(tree, caller, &environment.wanted).ok_or_else(|| {
        let names = environment.wanted.names.join(" or ");
        Refusal::new("interpreter", format!("no {names} was found on PATH for the environment `{name}`"))
            .code(127)
            .hint(format!("apt-get install {}", environment.package))
    })?;
    for path in &interpreter.needs {
        bind(policy, path);
    }
    // Its own directory first, so that the tools beside it (pip, npm) are the ones found.
    if let Some((bin, _)) = interpreter.program.rsplit_once('/').filter(|_| !interpreter.needs.is_empty())
        && let Some(path) = policy.command.variables.get_mut("PATH")
    {
        *path = format!("{bin}:{path}");
    }
    let mut argv = vec![interpreter.program];
    match code {
        Code::Text(text) if text.len() <= LONGEST_ARGUMENT => {
            argv.push(environment.code.into());
            argv.push(text);
            argv.extend(environment.name.map(String::from));
        }
        Code::Text(text) => {
            if policy.command.stdin != Stdin::Closed {
                return Err(Refusal::new(
                    "arguments",
                    format!("{} bytes of code go in over standard input, which is asked for otherwise", text.len()),
                )
                .hint("put the code into a file and use --file FILE"));
            }
            argv.extend(environment.stdin.iter().map(|s| (*s).to_owned()));
            policy.command.stdin = Stdin::Text(text);
        }
        Code::File(path) => {
            bind(policy, &path);
            argv.push(path);
        }
        Code::Interactive => {}
    }
    argv.extend_from_slice(arguments);
    policy.command.argv = argv;
    Ok(())
}

/// Shows a path of the host at its own place, read-only, unless it is shown there already; outside of what it would
/// hide, inside of what would hide it.
fn bind(policy: &mut Policy, path: &str) {
    let mounts = &mut policy.filesystem.mounts;
    let shows =
        |m: &Mount| matches!(m, Mount::Bind { source, target, .. } if source == target && is_within(path, target));
    if mounts.iter().any(|m| m.target() == path || shows(m)) {
        return;
    }
    let (source, target) = (path.to_owned(), path.to_owned());
    let at = mounts.iter().position(|m| is_within(m.target(), path)).unwrap_or(mounts.len());
    mounts.insert(at, Mount::Bind { source, target, access: Access::ReadOnly, exec: true, optional: false });
}
