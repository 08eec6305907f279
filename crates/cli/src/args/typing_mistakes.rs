//! Hints for mistyped input: options of docker, podman and bubblewrap, other names of environments, and typing errors.
//!
//! Turns a parser error into a refusal. Looks a word up along PATH where it stands in the place of a subcommand, and changes
//! nothing.

use clap::error::{ContextKind, ErrorKind};
use cofferdam_policy::closest;

use super::values::AUDIT_LEVELS;
use crate::output::text::quoted;
use crate::refusal::CliRefusal;

/// Nothing outside reaches a sandbox.
const NO_PORTS: &str =
    "nothing outside can reach the program; --network loopback lets its own processes talk to each other";
/// There is nothing to switch off.
const NO_NETWORK: &str = "leave it out: there is no network by default";

/// Options that other tools have or that are guessed, and the equivalent of each.
const OTHER_TOOLS: &[(&str, &str)] = &[
    ("--rw", "--here, or -v SRC:DST:rw"),
    ("--write", "--here, or -v SRC:DST:rw"),
    ("--cow", "--here=cow, or -v SRC:DST:cow"),
    ("--diff", "--here=cow --keep-changes DIR"),
    ("--preview", "--here=cow"),
    ("--no-net", NO_NETWORK),
    ("--no-network", NO_NETWORK),
    ("--no-timeout", "--timeout none"),
    ("--writable", "--here, or -v SRC:DST:rw"),
    ("--rm", "leave it out: nothing of a run stays"),
    ("-p", NO_PORTS),
    ("--publish", NO_PORTS),
    ("--port", NO_PORTS),
    ("--ports", NO_PORTS),
    ("--expose", NO_PORTS),
    ("-u", "leave it out: the program runs as a user without rights; `-v SRC:DST:rw` says what it may write"),
    ("--user", "leave it out: the program runs as a user without rights; `-v SRC:DST:rw` says what it may write"),
    ("-m", "--memory SIZE"),
    ("--memory-swap", "--memory SIZE, which holds for memory and swap together"),
    ("--mount", "-v SRC:DST[:ro|rw|cow], or --tmpfs DST[:size=64m]"),
    ("--bind", "-v SRC:DST:rw"),
    ("--dev-bind", "-v SRC:DST:rw; the sandbox has a /dev of its own"),
    ("--ro-bind", "-v SRC:DST"),
    ("--overlay", "-v SRC:DST:cow"),
    ("--dir", "--tmpfs DST"),
    ("--dev", "leave it out: the sandbox has a /dev of its own"),
    ("--proc", "leave it out: the sandbox has a /proc of its own"),
    ("--privileged", "nothing is privileged here; name what is needed, such as -v SRC:DST:rw or --network host"),
    ("--cap-add", "nothing is privileged here; name what is needed, such as -v SRC:DST:rw or --network host"),
    ("--cap-drop", "leave it out: the program has no capabilities"),
    ("--security-opt", "--seccomp LEVEL, --syscall-rule CALLS:ACTION"),
    ("--env-file", "-e NAME=VALUE for each variable, or `variables` of a policy: --policy FILE"),
    ("--setenv", "-e NAME=VALUE"),
    ("--chdir", "-w DIR"),
    ("--cwd", "-w DIR"),
    ("--pids-limit", "--pids N"),
    ("--ulimit", "--open-files N, --file-size SIZE, --cpu-time TIME, --pids N"),
    ("--processes", "--pids N"),
    ("--max-processes", "--pids N"),
    ("--session", "sessions are kept by `cofferdam mcp` and by the Python package; eval starts anew each time"),
    ("--net", "--network MODE"),
    ("--share-net", "--network host"),
    ("--unshare-net", NO_NETWORK),
    ("--unshare-all", "leave it out: everything is its own by default"),
    ("--die-with-parent", "leave it out: the program ends with this command"),
    ("--name", "--id NAME"),
    ("-d", "the command stays until the program ends; `&` of the shell puts it into the background"),
    ("--detach", "the command stays until the program ends; `&` of the shell puts it into the background"),
    ("--allow-write", "--here, or -v SRC:DST:rw"),
    ("--allow-read", "-v SRC:DST"),
    ("--allow-net", "--allow HOST"),
    ("--allow-env", "-e NAME"),
    ("--allow-run", "leave it out: the program may start others; --no-spawn forbids it"),
    ("--copy", "--here=cow, or -v SRC:DST:cow"),
    ("--share", "-v SRC:DST[:ro|rw|cow]"),
    ("--ro", "leave it out: what no volume with :rw shows is read-only"),
    ("--readonly", "leave it out: what no volume with :rw shows is read-only"),
    ("--host", "--allow HOST; the whole network of this machine is --network host"),
    ("--internet", "--allow HOST; the whole network of this machine is --network host"),
    ("--online", "--allow HOST; the whole network of this machine is --network host"),
    ("--offline", NO_NETWORK),
    ("--proxy", "--upstream-proxy URL"),
    ("--dns", "leave it out: the hosts of --allow are resolved"),
    ("--device", "no device of this machine is passed on; the sandbox has a /dev of its own"),
    ("--gpu", "no device of this machine is passed on; the sandbox has a /dev of its own"),
    ("--gpus", "no device of this machine is passed on; the sandbox has a /dev of its own"),
    ("--verbose", "--trace reports what was refused; --json prints the whole outcome"),
    ("--debug", "--trace reports what was refused; --json prints the whole outcome"),
    ("--secret", "-e NAME passes one variable of the caller's"),
    ("--secrets", "-e NAME passes one variable of the caller's"),
    ("--token", "-e NAME passes one variable of the caller's"),
    ("--limit", "--memory SIZE, --timeout TIME, --pids N, --cpus N"),
    ("--limits", "--memory SIZE, --timeout TIME, --pids N, --cpus N"),
    ("--time-limit", "--timeout TIME"),
    ("--max-time", "--timeout TIME"),
    ("--wall", "--timeout TIME"),
    ("--wall-time", "--timeout TIME"),
    ("--max-memory", "--memory SIZE"),
    ("--mem-limit", "--memory SIZE"),
    ("--disk", "--layer-size SIZE for copies, --tmpfs-size SIZE for /tmp"),
    ("--storage", "--layer-size SIZE for copies, --tmpfs-size SIZE for /tmp"),
    ("--cd", "-w DIR"),
    ("-C", "-w DIR"),
    ("--script", "cofferdam eval ENVIRONMENT --file FILE"),
    ("--docker", "--backend docker"),
    ("--podman", "--backend podman"),
    ("--gvisor", "--backend oci:runsc"),
    ("--entrypoint", "the program is named behind the options: cofferdam run [OPTIONS] -- PROGRAM"),
];

/// Other names of environments.
const ENVIRONMENTS: &[(&str, &str)] = &[
    ("bash", "shell"),
    ("sh", "shell"),
    ("dash", "shell"),
    ("zsh", "shell"),
    ("js", "node"),
    ("javascript", "node"),
    ("nodejs", "node"),
    ("py", "python"),
    ("python3", "python"),
];

/// A parser error as a refusal. `words` are the arguments behind the command's own name; `subcommands` are the names of the
/// subcommands.
pub(crate) fn refusal(error: &clap::Error, words: &[String], subcommands: &[&str]) -> CliRefusal {
    let text = error.render().to_string();
    let mut paragraphs = text.trim_start_matches("error: ").split("\n\n");
    let message = paragraphs.next().unwrap_or_default().trim_end();
    let tips = || text.lines().filter_map(|line| line.trim_start().strip_prefix("tip: "));
    let refusal = CliRefusal::new("arguments", message);
    let known = match error.kind() {
        ErrorKind::UnknownArgument if runs_a_program(words) => {
            of(error, ContextKind::InvalidArg).and_then(|name| option(&name))
        }
        ErrorKind::InvalidSubcommand => {
            of(error, ContextKind::InvalidSubcommand).and_then(|name| program(&name, words, subcommands))
        }
        ErrorKind::InvalidValue
            if of(error, ContextKind::InvalidArg).is_some_and(|name| name.starts_with("--backend")) =>
        {
            of(error, ContextKind::InvalidValue).and_then(|name| backend(&name))
        }
        ErrorKind::InvalidValue
            if of(error, ContextKind::InvalidArg).is_some_and(|name| name.starts_with("--audit ")) =>
        {
            let place = of(error, ContextKind::InvalidValue)
                .filter(|value| closest(value, AUDIT_LEVELS.iter().copied()).is_none());
            place.map(|place| format!("--audit-trail {} records runs in a directory", quoted(&place)))
        }
        _ => None,
    };
    let unknown = || of(error, ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    // The parser's advice to pass the option as a value is never what was meant here.
    let close = || {
        let similar =
            |tip: &&str| unknown().is_none_or(|given| tip.split('\'').nth(1).is_none_or(|of| is_like(&given, of)));
        tips().find(|tip| !tip.starts_with("to pass") && similar(tip)).map(str::to_owned)
    };
    match known.or_else(close).or_else(|| unknown().map(|name| unknown_option(&name, words, subcommands))) {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

/// The lines about usage at the end of a parser error.
pub(crate) fn usage_of(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let about_usage = |p: &&str| p.starts_with("Usage:") || p.starts_with("For more information");
    let lines: Vec<&str> = text.split("\n\n").filter(about_usage).map(str::trim_end).collect();
    lines.join("\n")
}

/// The hint for a name of an environment that is not defined.
pub(crate) fn environment(name: &str) -> Option<String> {
    let of_file = || {
        let path = std::path::Path::new(name);
        let ours = match path.extension()?.to_str()? {
            "py" => "python",
            "js" | "mjs" | "cjs" => "node",
            "sh" | "bash" => "shell",
            _ => return None,
        };
        path.is_file().then(|| format!("cofferdam eval {ours} --file {}", quoted(name)))
    };
    let other = ENVIRONMENTS.iter().find(|(other, _)| *other == name);
    other.map(|(_, ours)| format!("cofferdam eval {ours}")).or_else(of_file)
}

fn of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    error.get(kind).map(ToString::to_string)
}

/// Whether the options of a run belong here.
fn runs_a_program(words: &[String]) -> bool {
    words.first().is_none_or(|word| word.starts_with('-') || ["run", "eval", "agent", "skill"].contains(&word.as_str()))
}

fn option(name: &str) -> Option<String> {
    let name = name.split('=').next().unwrap_or(name);
    OTHER_TOOLS.iter().find(|(other, _)| *other == name).map(|(_, instead)| (*instead).to_owned())
}

/// Whether an option can have been meant by another: one has the other's words, or few letters are wrong. The parser's own measure
/// finds `--here` in `--share`.
fn is_like(given: &str, option: &str) -> bool {
    let plain = |text: &str| text.split('=').next().unwrap_or(text).trim_start_matches('-').replace('-', "_");
    let (given, option) = (plain(given), plain(option));
    let within = given.len() >= 3 && (option.contains(&given) || given.contains(&option));
    within || closest(&given, [option.as_str()].into_iter()).is_some()
}

/// The hint for another name of a backend.
fn backend(name: &str) -> Option<String> {
    let ours = match name {
        "gvisor" | "runsc" => "oci:runsc",
        "crun" => "oci:crun",
        "runc" => "oci:runc",
        "youki" => "oci:youki",
        "container" | "containers" => "oci",
        "bwrap" => "bubblewrap",
        "sandbox-exec" => "seatbelt",
        _ => return None,
    };
    Some(format!("--backend {ours}"))
}

/// The hint for an option that the subcommand does not have, nor one like it: where an option of the program's belongs.
fn unknown_option(name: &str, words: &[String], subcommands: &[&str]) -> String {
    let command = words.first().map_or("", String::as_str);
    let at = words.iter().position(|word| word == name);
    let behind = at.and_then(|at| words.get(at + 1));
    let environment = words.get(1).filter(|word| command == "eval" && !word.starts_with('-'));
    match (command, environment, behind) {
        ("eval", Some(environment), Some(code)) if matches!(name, "-c" | "-e" | "-r") => {
            format!("the code itself is the argument: cofferdam eval {} {}", quoted(environment), quoted(code))
        }
        ("eval", Some(environment), _) if words.get(2).is_some_and(|code| std::path::Path::new(code).is_file()) => {
            let rest: Vec<String> = words[3..].iter().map(|word| quoted(word)).collect();
            format!("cofferdam eval {} --file {} -- {}", quoted(environment), quoted(&words[2]), rest.join(" "))
        }
        ("eval", ..) => format!(
            "an argument of the code stands behind it: cofferdam eval ENVIRONMENT CODE -- {0}; code that begins with a \
             dash goes in on standard input: cofferdam eval ENVIRONMENT -",
            quoted(name)
        ),
        ("run", ..) => format!("an option of the program stands behind it: cofferdam run -- PROGRAM {}", quoted(name)),
        ("skill", ..) if words.get(1).is_some_and(|action| action == "run") => {
            format!("an argument of the skill stands behind --: cofferdam skill run NAME -- {}", quoted(name))
        }
        (command, ..) if subcommands.contains(&command) => format!("cofferdam {command} --help lists the options"),
        _ => "cofferdam --help lists the commands".to_owned(),
    }
}

/// The hint for a word in the place of a subcommand: a program, or a subcommand with another spelling.
fn program(name: &str, words: &[String], subcommands: &[&str]) -> Option<String> {
    if matches!(name, "exec" | "shell" | "validate" | "compile") {
        let ours = match name {
            "exec" if words.len() > 1 => return Some(run(&words[1..])),
            "exec" => "cofferdam run -- PROGRAM [ARGS]...",
            "shell" => "cofferdam eval shell -it",
            "validate" => "cofferdam check FILE",
            _ => "cofferdam export FILE.ncl",
        };
        return Some(ours.into());
    }
    if let Some(ours) = closest(name, subcommands.iter().copied()) {
        return Some(format!("a similar subcommand exists: '{ours}'"));
    }
    let is_file = |path: &std::path::Path| path.metadata().is_ok_and(|metadata| metadata.is_file());
    let found = match name.contains('/') {
        true => is_file(name.as_ref()),
        false => std::env::split_paths(&std::env::var_os("PATH")?).any(|directory| is_file(&directory.join(name))),
    };
    if found {
        return Some(run(words));
    }
    let ours = |(other, ours): &&(&str, &str)| *other == name || *ours == name;
    ENVIRONMENTS.iter().find(ours).map(|(_, ours)| format!("cofferdam eval {ours} CODE"))
}

fn run(words: &[String]) -> String {
    let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("cofferdam run -- {}", line.join(" "))
}
