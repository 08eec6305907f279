//! `cargo xtask soak`: the long runs of tests/soak, as every user that can be had, and their dated results in docs/soak.md.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::packages;
use crate::shell::{cargo, output, run, step, uid, words};
use crate::workspace::{Workspace, executables};

/// Where results are kept.
const PAGE: &str = "docs/soak.md";
/// The line behind which a result is inserted, the newest first.
const MARK: &str = "<!-- results -->\n";

/// How much is run.
struct Amount {
    kills: u64,
    sandboxes: u64,
    minutes: u64,
    write: bool,
}

/// The entry of the task table.
pub(crate) fn run_from(arguments: &[String]) -> Result {
    let amount = parse(arguments)?;
    packages::ensure(packages::TEST)?;
    let workspace = Workspace::read()?;
    step("build");
    run(cargo().args(["build", "--workspace", "--bins"]))?;
    let programs = executables(cargo().args(["build", "--workspace", "--bins"]))?;
    let program = |name: &str| programs.get(name).ok_or_else(|| format!("the build made no program `{name}`"));
    let (soak, command) = (program("soak")?, program("cofferdam")?);
    let mut page = String::new();
    for user in users() {
        for words_of in [
            vec!["kills".to_owned(), amount.kills.to_string()],
            vec!["load".to_owned(), amount.sandboxes.to_string(), (amount.minutes * 60).to_string()],
        ] {
            step(&format!("{} as {}", words_of.join(" "), user.name));
            let mut long = user.command(soak);
            long.args(&words_of).env("COFFERDAM_BIN", command);
            eprintln!("+ {}", words(&long));
            let text = output(&mut long)?;
            eprint!("{text}");
            page += &format!("As {}, `soak {}`:\n\n```text\n{text}```\n\n", user.name, words_of.join(" "));
        }
    }
    if amount.write { write(&workspace.root.join(PAGE), &page) } else { Ok(()) }
}

fn parse(arguments: &[String]) -> Result<Amount> {
    let mut amount = Amount { kills: 10_000, sandboxes: 200, minutes: 60, write: false };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if name == "--write" {
            amount.write = true;
            continue;
        }
        let target = match name.as_str() {
            "--kills" => &mut amount.kills,
            "--sandboxes" => &mut amount.sandboxes,
            "--minutes" => &mut amount.minutes,
            other => {
                return Err(format!("unknown argument {other}; accepted: --kills N --sandboxes N --minutes N --write"));
            }
        };
        *target =
            rest.next().and_then(|value| value.parse().ok()).ok_or_else(|| format!("{name} takes a whole number"))?;
    }
    Ok(amount)
}

/// Somebody as whom it is run.
struct User {
    name: &'static str,
    /// What runs a program as that user.
    prefix: &'static [&'static str],
}

impl User {
    fn command(&self, program: &Path) -> Command {
        match self.prefix {
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            [] => Command::new(program),
        }
    }
}

fn users() -> Vec<User> {
    const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
    if uid() == Some(0) {
        vec![User { name: "root", prefix: &[] }, User { name: "an unprivileged user", prefix: NOBODY }]
    } else {
        vec![User { name: "an unprivileged user", prefix: &[] }]
    }
}

fn write(page: &Path, results: &str) -> Result {
    let text = std::fs::read_to_string(page).map_err(|error| format!("cannot read {}: {error}", page.display()))?;
    let (before, after) = text.split_once(MARK).ok_or_else(|| format!("{} has no line {MARK:?}", page.display()))?;
    let date = output(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let kernel = output(Command::new("uname").args(["-sr"]))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let heading = format!("## {}, {}, {cores} CPUs\n\n", date.trim(), kernel.trim());
    std::fs::write(page, format!("{before}{MARK}\n{heading}{}\n{}", results.trim_end(), after))
        .map_err(|error| format!("cannot write {}: {error}", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_and_mistakes_named() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let amount = parse(&words("--kills 5 --minutes 2 --write")).unwrap();
        assert_eq!((amount.kills, amount.sandboxes, amount.minutes, amount.write), (5, 200, 2, true));
        assert!(parse(&words("--kills")).is_err_and(|error| error.contains("whole number")));
        assert!(parse(&words("--hours 1")).is_err_and(|error| error.contains("--minutes")));
    }

    #[test]
    fn the_newest_result_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let page = directory.path().join("soak.md");
        std::fs::write(&page, format!("# Soak\n\n{MARK}")).unwrap();
        write(&page, "older\n").unwrap();
        write(&page, "newer\n").unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("# Soak") && text.find("newer") < text.find("older"), "{text}");
    }
}
