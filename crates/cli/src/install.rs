//! `cofferdam mcp install`: puts the server into the configuration of a program that calls servers, or takes it out.
//!
//! ```text
//! read ─▶ edit (the library's) ─▶ shown ─▶ asked ─▶ still as read? ─▶ kept aside ─▶ written whole, in its place
//! ```
//!
//! What the file says besides stays; what is not changed is not written.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::clients::{Client, NAMES, Platform, removed, with};

use crate::caller::Caller;
use crate::execute::print;
use crate::report::{Refusal, printable, write_stderr};

/// Longest configuration that is read, bytes.
const LONGEST: u64 = 64 << 20;

/// The command line of `mcp install`.
pub fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    Command::new("install")
        .about("Put the server into a client's configuration")
        .after_help(
            "What changes is shown first, and asked about. The file before is kept beside it; comments and everything \
             else in it stay.",
        )
        .arg(
            Arg::new("client")
                .long("client")
                .value_name("CLIENT")
                .required(true)
                .value_parser(NAMES)
                .help("Whose configuration"),
        )
        .arg(crate::environment_command::config_option())
        .arg(
            Arg::new("name")
                .long("name")
                .value_name("NAME")
                .default_value("cofferdam")
                .help("What the server is called there"),
        )
        .arg(flag("project", "Into the configuration of the project in this directory, for all who share it"))
        .arg(flag("remove", "Take it out again"))
        .arg(flag("dry-run", "Show what would change, and write nothing"))
        .arg(flag("yes", "Do not ask").short('y'))
}

/// Installs, or removes.
pub fn run(matches: &ArgMatches, caller: &Caller) -> Result<i32, Refusal> {
    let word = matches.get_one::<String>("client").map_or("", String::as_str);
    let Some(client) = Client::from_name(word) else {
        return Err(Refusal::new("arguments", format!("no client is called '{word}'")));
    };
    let name = matches.get_one::<String>("name").map_or("cofferdam", String::as_str);
    if !cofferdam_config::environments::is_name(name) {
        let told = format!("{name:?} is no name of a server");
        return Err(Refusal::new("arguments", told).hint(cofferdam_config::environments::NAME_ACCEPTED));
    }
    let project = matches.get_flag("project");
    let named = file_of(client, word, project, caller)?;
    let file = real(&named)?;
    let old = read(&file)?;
    let edited = if matches.get_flag("remove") {
        removed(&old.text, client.key(), name)
    } else {
        let mut arguments = vec!["mcp".to_owned()];
        if let Some(config) = matches.get_one::<String>("config") {
            arguments.extend(["--config".to_owned(), caller.absolute(config)]);
        }
        with(&old.text, client.key(), name, &client.entry(&program(project)?, &arguments))
    };
    let place = file.display();
    let new = edited.map_err(|error| {
        Refusal::new("client", format!("{place}: {error}")).hint("correct the file, or put the server into it by hand")
    })?;
    if new == old.text {
        write_stderr(&printable(&format!("{place}: nothing to change\n")));
        return Ok(0);
    }
    let shown = printable(&format!("{place}\n{}", difference(&old.text, &new)));
    if matches.get_flag("dry-run") {
        print(&shown)?;
        return Ok(0);
    }
    write_stderr(&shown);
    if !matches.get_flag("yes") && !agreed()? {
        write_stderr("nothing was written\n");
        return Ok(1);
    }
    write(&file, &old, &new)?;
    if !matches.get_flag("remove") {
        let config = matches.get_one::<String>("config").map(|config| caller.absolute(config));
        let config = config.filter(|config| !Path::new(config).is_file());
        let config = config.map(|config| format!("{config} is not there\nhint: config.example.toml has every form"));
        for missing in config.into_iter().chain(crate::mcp::missing_server(caller)) {
            write_stderr(&printable(&format!("the server cannot start yet: {missing}\n")));
        }
    }
    Ok(0)
}

fn file_of(client: Client, word: &str, project: bool, caller: &Caller) -> Result<PathBuf, Refusal> {
    if project {
        let file = client.project_file().ok_or_else(|| {
            Refusal::new("arguments", format!("{word} has no configuration of a project")).hint("leave out --project")
        })?;
        return Ok(Path::new(&caller.cwd).join(file));
    }
    let home = caller.homes.first().map(String::as_str);
    client.user_file(Platform::here(), home, &caller.variables).ok_or_else(|| {
        Refusal::new("client", format!("without a home directory {word} has no configuration")).hint("set HOME")
    })
}

/// Clients of the desktop have no PATH of a shell's; what a project's people share names no place on one machine.
fn program(project: bool) -> Result<String, Refusal> {
    if project {
        return Ok("cofferdam".into());
    }
    let own = std::env::current_exe()
        .map_err(|error| Refusal::new("client", format!("this program cannot tell its own path: {error}")))?;
    own.to_str().map(str::to_owned).ok_or_else(|| Refusal::new("client", "this program's path is not UTF-8"))
}

fn trouble(what: &str, file: &Path, error: &std::io::Error) -> Refusal {
    Refusal::new("client", format!("cannot {what} {}: {error}", file.display()))
}

/// The file itself, behind a link that is the user's own.
fn real(file: &Path) -> Result<PathBuf, Refusal> {
    match std::fs::symlink_metadata(file) {
        Ok(found) if found.is_symlink() => {
            if found.uid() != rustix::process::geteuid().as_raw() {
                let told = format!("{} is a link that somebody else made", file.display());
                return Err(Refusal::new("client", told).hint("look at where it leads, and make it your own"));
            }
            std::fs::canonicalize(file).map_err(|error| trouble("follow", file, &error))
        }
        _ => Ok(file.to_owned()),
    }
}

/// A file as it was read; no mode where it is not there.
struct Old {
    text: String,
    mode: Option<u32>,
}

fn read(file: &Path) -> Result<Old, Refusal> {
    let opened = match OpenOptions::new().read(true).custom_flags(nonblocking()).open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Old { text: String::new(), mode: None });
        }
        Err(error) => return Err(trouble("read", file, &error)),
    };
    let found = opened.metadata().map_err(|error| trouble("look at", file, &error))?;
    if !found.is_file() || found.len() > LONGEST {
        let told = format!("{} is no regular file of at most 64 MiB", file.display());
        return Err(Refusal::new("client", told));
    }
    let mut text = String::new();
    opened.take(LONGEST).read_to_string(&mut text).map_err(|error| trouble("read", file, &error))?;
    Ok(Old { text, mode: Some(found.permissions().mode() & 0o777) })
}

/// A FIFO would wait for its other end.
fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

fn agreed() -> Result<bool, Refusal> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Refusal::new("arguments", "nobody can be asked here: nothing was written").hint("--yes, or --dry-run")
        );
    }
    write_stderr("write this? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Refusal::new("client", format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Keeps what was there beside it, and puts the new text in its place at once.
fn write(file: &Path, old: &Old, new: &str) -> Result<(), Refusal> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(|error| trouble("make", directory, &error))?;
    // Clients write there themselves: what was shown must be what is replaced.
    let now = read(file)?;
    if now.text != old.text || now.mode != old.mode {
        let told = format!("{} was changed meanwhile: nothing was written", file.display());
        return Err(Refusal::new("client", told).hint("call it again"));
    }
    let beside = |end: &str| PathBuf::from(format!("{}{end}", file.display()));
    let made = |path: &Path, mode: u32, text: &str| -> std::io::Result<()> {
        let mut made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        made.set_permissions(std::fs::Permissions::from_mode(mode))?;
        made.write_all(text.as_bytes())?;
        made.sync_all()
    };
    let mode = old.mode.unwrap_or(0o600);
    if old.mode.is_some() {
        let kept = (1..1000).map(|number| beside(&format!(".backup-{number}"))).find(|path| !path.exists());
        let kept = kept.ok_or_else(|| {
            Refusal::new("client", "there are 999 files kept already").hint("remove some that end in .backup-NUMBER")
        })?;
        made(&kept, mode, &old.text).map_err(|error| trouble("write", &kept, &error))?;
        write_stderr(&printable(&format!("what was there is kept in {}\n", kept.display())));
    }
    let whole = beside(&format!(".new-{}", std::process::id()));
    let done = made(&whole, mode, new)
        .and_then(|()| std::fs::rename(&whole, file))
        .and_then(|()| File::open(directory)?.sync_all());
    done.map_err(|error| {
        let left = std::fs::remove_file(&whole).is_err() && whole.exists();
        let told = trouble("write", file, &error);
        if left { told.hint(format!("remove {}", whole.display())) } else { told }
    })?;
    write_stderr(&printable(&format!("{} is written; clients read it when they start\n", file.display())));
    Ok(())
}

/// Longest line that is shown whole, characters: a file without line breaks is one line, with everything that is in it.
const SHOWN: usize = 200;
/// What is shown of such a line before and behind what changes in it.
const BESIDE: usize = 20;

/// The part of `text` in which it differs from `other`, when it is too long to be shown.
fn part(text: &str, other: &str) -> String {
    if text.lines().all(|line| line.chars().count() <= SHOWN) {
        return text.to_owned();
    }
    let (text, other): (Vec<char>, Vec<char>) = (text.chars().collect(), other.chars().collect());
    let same = text.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let most = text.len().min(other.len()) - same;
    let behind = text.iter().rev().zip(other.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let (from, to) = (same.saturating_sub(BESIDE), (text.len() - behind + BESIDE).min(text.len()));
    let dots = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}{}", dots(from > 0), text[from..to].iter().collect::<String>(), dots(to < text.len()))
}

/// The lines that change, with three around them; of long ones what changes in them.
fn difference(old: &str, new: &str) -> String {
    const AROUND: usize = 3;
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let mut out = String::new();
    let mut add = |sign: char, text: &str| {
        text.lines().for_each(|line| out += &format!("{sign} {}\n", line.replace('\t', "    ")))
    };
    let around = |lines: &[&str]| lines.iter().map(|line| part(line, line) + "\n").collect::<String>();
    let whole = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let (less, more) = (whole(&old[start..old.len() - end]), whole(&new[start..new.len() - end]));
    add(' ', &around(&old[start.saturating_sub(AROUND)..start]));
    add('-', &part(&less, &more));
    add('+', &part(&more, &less));
    add(' ', &around(&old[old.len() - end..(old.len() - end + AROUND).min(old.len())]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_shown_with_what_is_around_it() {
        let old = "a\nb\nc\nd\ne\n";
        assert_eq!(difference(old, "a\nb\nc\nx\nd\ne\n"), "  a\n  b\n  c\n+ x\n  d\n  e\n");
        assert_eq!(difference(old, "a\nb\nc\nx\ne\n"), "  a\n  b\n  c\n- d\n+ x\n  e\n");
        assert_eq!(difference("", "a\n"), "+ a\n");
        assert_eq!(difference("a\na\n", "a\na\na\n"), "  a\n  a\n+ a\n");
    }

    #[test]
    fn of_a_file_in_one_line_only_what_changes_is_shown() {
        let file = |servers: &str| {
            format!("{{\"key\":\"secret\",{}\"servers\":{{{servers}}},\"b\":\"secret\"}}", " ".repeat(300))
        };
        let shown = difference(&file(""), &file("\"cofferdam\":1"));
        assert!(shown.contains("+ …") && shown.contains("\"servers\":{\"cofferdam\":1}"), "{shown}");
        assert!(!shown.contains("\"key\"") && shown.lines().all(|line| line.chars().count() < 80), "{shown}");
        assert_eq!(difference("a\nb\n", "a\n\nb\n"), "  a\n+ \n  b\n");
    }
}
