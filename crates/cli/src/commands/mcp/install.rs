//! `cofferdam mcp install`: adds the server to the configuration of an MCP client, or removes it.
//!
//! ```text
//! read ─▶ edit (cofferdam_config) ─▶ show the diff ─▶ ask ─▶ check that it is unchanged ─▶ back up ─▶ replace
//! ```
//!
//! Everything else in the file stays; an unchanged file is not written.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};
use cofferdam_config::clients::{McpClient, NAMES, Platform, removed, with};
use cofferdam_config::serve::TOOLS;

use super::server_program;
use crate::args::config::config_option;
use crate::caller::Caller;
use crate::output::stderr;
use crate::output::stdout::print;
use crate::output::text::printable;
use crate::refusal::CliRefusal;

/// Longest configuration that is accepted, bytes.
const LONGEST: u64 = 64 << 20;

/// The arguments of `mcp install`.
pub(super) fn command() -> Command {
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
                .value_delimiter(',')
                .value_parser(NAMES)
                .action(ArgAction::Append)
                .conflicts_with("all")
                .help("Whose configuration")
                .long_help("Whose configuration; may be given several times. Default: of all clients that are found"),
        )
        .arg(flag("all", "Of all clients that are found, as without --client"))
        .arg(config_option())
        .arg(
            Arg::new("tools")
                .long("tools")
                .value_name("NAME,...")
                .value_delimiter(',')
                .value_parser(TOOLS.to_vec())
                .action(ArgAction::Append)
                .hide_possible_values(true)
                .help("Have it offer these tools besides run: upload, download, list, sessions"),
        )
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

/// The edit of one client's file.
struct Edit {
    client: &'static str,
    file: PathBuf,
    old: PreviousFile,
    new: String,
}

/// Installs or removes the server, and returns the exit code.
pub(super) fn run(matches: &ArgMatches, caller: &Caller) -> Result<i32, CliRefusal> {
    let name = matches.get_one::<String>("name").map_or("cofferdam", String::as_str);
    if !cofferdam_config::environments::is_name(name) {
        let message = format!("{name:?} is no name of a server");
        return Err(CliRefusal::new("arguments", message).hint(cofferdam_config::environments::NAME_ACCEPTED));
    }
    let mut edits = Vec::new();
    for (client, word) in clients(matches, caller)? {
        let edit = edit(client, word, name, matches, caller)?;
        if edit.new == edit.old.text {
            stderr::write(&printable(&format!("{word}: {}: nothing to change\n", edit.file.display())));
        } else {
            edits.push(edit);
        }
    }
    if edits.is_empty() {
        return Ok(0);
    }
    let diff =
        |edit: &Edit| format!("{}: {}\n{}", edit.client, edit.file.display(), difference(&edit.old.text, &edit.new));
    let shown = printable(&edits.iter().map(diff).collect::<String>());
    if matches.get_flag("dry-run") {
        print(&shown)?;
        return Ok(0);
    }
    stderr::write(&shown);
    if !matches.get_flag("yes") && !confirm()? {
        stderr::write("nothing was written\n");
        return Ok(1);
    }
    for edit in &edits {
        write(&edit.file, &edit.old, &edit.new)?;
    }
    if !matches.get_flag("remove") {
        let config = matches.get_one::<String>("config").map(|config| caller.absolute(config));
        let config = config.filter(|config| !Path::new(config).is_file());
        let config = config.map(|config| format!("{config} is not there\nhint: config.example.toml has every form"));
        for missing in config.into_iter().chain(server_program::missing(caller)) {
            stderr::write(&printable(&format!("the server cannot start yet: {missing}\n")));
        }
    }
    Ok(0)
}

/// The clients whose configuration changes: the one that is named, or all that are installed here.
fn clients(matches: &ArgMatches, caller: &Caller) -> Result<Vec<(McpClient, &'static str)>, CliRefusal> {
    let known = McpClient::ALL.into_iter().zip(NAMES);
    if let Some(words) = matches.get_many::<String>("client") {
        let words: Vec<&String> = words.collect();
        return Ok(known.filter(|(_, name)| words.iter().any(|word| word == name)).collect());
    }
    let project = matches.get_flag("project");
    let there = |client: McpClient| {
        let home = caller.homes.first().map(String::as_str);
        let own = client.user_file(Platform::here(), home, &caller.variables);
        own.is_some_and(|file| client.signs(&file).iter().any(|sign| sign.exists()))
    };
    let found: Vec<(McpClient, &str)> =
        known.filter(|(client, _)| there(*client) && !(project && client.project_file().is_none())).collect();
    if found.is_empty() {
        return Err(CliRefusal::new("client", "no MCP client was found that this knows")
            .hint(format!("--client NAME, of {}", NAMES.join(", "))));
    }
    Ok(found)
}

/// What becomes of a client's file.
fn edit(
    client: McpClient,
    word: &'static str,
    name: &str,
    matches: &ArgMatches,
    caller: &Caller,
) -> Result<Edit, CliRefusal> {
    let project = matches.get_flag("project");
    let file = resolve_link(&file_of(client, word, project, caller)?)?;
    let old = read(&file)?;
    let edited = if matches.get_flag("remove") {
        removed(&old.text, client.key(), name)
    } else {
        let mut arguments = vec!["mcp".to_owned()];
        if let Some(config) = matches.get_one::<String>("config") {
            arguments.extend(["--config".to_owned(), caller.absolute(config)]);
        }
        let tools: Vec<&str> = matches.get_many::<String>("tools").into_iter().flatten().map(String::as_str).collect();
        if !tools.is_empty() {
            arguments.extend(["--tools".to_owned(), tools.join(",")]);
        }
        // A project is shared with machines that have other directories.
        let path = if project { None } else { path(caller) };
        with(&old.text, client.key(), name, &client.entry(&program(project)?, &arguments, path.as_deref()))
    };
    let new = edited.map_err(|error| {
        CliRefusal::new("client", format!("{}: {error}", file.display()))
            .hint("correct the file, or put the server into it by hand")
    })?;
    Ok(Edit { client: word, file, old, new })
}

/// The caller's PATH, along which the server finds interpreters: desktop clients have no shell's. Only directories by their
/// absolute paths.
fn path(caller: &Caller) -> Option<String> {
    let directories = caller.variable("PATH")?.split(':').filter(|directory| directory.starts_with('/'));
    let mut path: Vec<&str> = Vec::new();
    for directory in directories.filter(|directory| Path::new(directory).is_dir()) {
        if !path.contains(&directory) {
            path.push(directory);
        }
    }
    (!path.is_empty()).then(|| path.join(":"))
}

fn file_of(client: McpClient, word: &str, project: bool, caller: &Caller) -> Result<PathBuf, CliRefusal> {
    if project {
        let file = client.project_file().ok_or_else(|| {
            CliRefusal::new("arguments", format!("{word} has no configuration of a project"))
                .hint("leave out --project")
        })?;
        return Ok(Path::new(&caller.cwd).join(file));
    }
    let home = caller.homes.first().map(String::as_str);
    client.user_file(Platform::here(), home, &caller.variables).ok_or_else(|| {
        CliRefusal::new("client", format!("without a home directory {word} has no configuration")).hint("set HOME")
    })
}

/// How the client starts this program: by its path, because desktop clients do not have a shell's PATH; in a project by its
/// name, because the configuration is shared with other machines.
fn program(project: bool) -> Result<String, CliRefusal> {
    if project {
        return Ok("cofferdam".into());
    }
    let own = std::env::current_exe()
        .map_err(|error| CliRefusal::new("client", format!("this program cannot tell its own path: {error}")))?;
    own.to_str().map(str::to_owned).ok_or_else(|| CliRefusal::new("client", "this program's path is not UTF-8"))
}

fn io_refusal(what: &str, file: &Path, error: &std::io::Error) -> CliRefusal {
    CliRefusal::new("client", format!("cannot {what} {}: {error}", file.display()))
}

/// The file, or the target of a symbolic link that belongs to the user.
fn resolve_link(file: &Path) -> Result<PathBuf, CliRefusal> {
    match std::fs::symlink_metadata(file) {
        Ok(found) if found.is_symlink() => {
            if found.uid() != rustix::process::geteuid().as_raw() {
                let message = format!("{} is a link that another user made", file.display());
                return Err(CliRefusal::new("client", message).hint("look at where it leads, and make it your own"));
            }
            std::fs::canonicalize(file).map_err(|error| io_refusal("follow", file, &error))
        }
        _ => Ok(file.to_owned()),
    }
}

/// The file before the edit; without a mode where it does not exist.
struct PreviousFile {
    text: String,
    mode: Option<u32>,
}

fn read(file: &Path) -> Result<PreviousFile, CliRefusal> {
    let opened = match OpenOptions::new().read(true).custom_flags(nonblocking()).open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(PreviousFile { text: String::new(), mode: None });
        }
        Err(error) => return Err(io_refusal("read", file, &error)),
    };
    let found = opened.metadata().map_err(|error| io_refusal("look at", file, &error))?;
    if !found.is_file() || found.len() > LONGEST {
        let message = format!("{} is no regular file of at most 64 MiB", file.display());
        return Err(CliRefusal::new("client", message));
    }
    let mut text = String::new();
    opened.take(LONGEST).read_to_string(&mut text).map_err(|error| io_refusal("read", file, &error))?;
    Ok(PreviousFile { text, mode: Some(found.permissions().mode() & 0o777) })
}

/// Opening a FIFO would wait for its other end.
fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

fn confirm() -> Result<bool, CliRefusal> {
    if !std::io::stdin().is_terminal() {
        return Err(CliRefusal::new("arguments", "there is no terminal to ask on: nothing was written")
            .hint("--yes, or --dry-run"));
    }
    stderr::write("write this? [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| CliRefusal::new("client", format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Makes a backup beside the file, and replaces the file atomically.
fn write(file: &Path, old: &PreviousFile, new: &str) -> Result<(), CliRefusal> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(|error| io_refusal("make", directory, &error))?;
    // Clients write this file too: what was shown must be what is replaced.
    let now = read(file)?;
    if now.text != old.text || now.mode != old.mode {
        let message = format!("{} was changed meanwhile: nothing was written", file.display());
        return Err(CliRefusal::new("client", message).hint("call it again"));
    }
    let beside = |end: &str| PathBuf::from(format!("{}{end}", file.display()));
    let create = |path: &Path, mode: u32, text: &str| -> std::io::Result<()> {
        let mut created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        created.set_permissions(std::fs::Permissions::from_mode(mode))?;
        created.write_all(text.as_bytes())?;
        created.sync_all()
    };
    let mode = old.mode.unwrap_or(0o600);
    if old.mode.is_some() {
        // A name is taken also by a link that leads nowhere, which is not followed.
        let taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AlreadyExists;
        let mut names = (1..1000).map(|number| beside(&format!(".backup-{number}")));
        let backup = names.find_map(|path| match create(&path, mode, &old.text) {
            Err(error) if taken(&error) => None,
            done => Some(done.map_err(|error| io_refusal("write", &path, &error)).map(|()| path)),
        });
        let backup = backup.unwrap_or_else(|| {
            let full = CliRefusal::new("client", "there are 999 files kept already");
            Err(full.hint("remove some that end in .backup-NUMBER"))
        })?;
        stderr::write(&printable(&format!("what was there is kept in {}\n", backup.display())));
    }
    let temporary = beside(&format!(".new-{}", std::process::id()));
    let done = create(&temporary, mode, new)
        .and_then(|()| std::fs::rename(&temporary, file))
        .and_then(|()| File::open(directory)?.sync_all());
    done.map_err(|error| {
        let left = std::fs::remove_file(&temporary).is_err() && temporary.exists();
        let refusal = io_refusal("write", file, &error);
        if left { refusal.hint(format!("remove {}", temporary.display())) } else { refusal }
    })?;
    stderr::write(&printable(&format!("{} is written; clients read it when they start\n", file.display())));
    Ok(())
}

/// Longest line that is shown whole, characters: a file without line breaks is one line, and may hold secrets.
const LONGEST_LINE: usize = 200;
/// Characters of a longer line that are shown before and behind the change.
const CONTEXT: usize = 20;

/// `text`, or where it has too long a line, the part in which it differs from `other`.
fn changed_part(text: &str, other: &str) -> String {
    if text.lines().all(|line| line.chars().count() <= LONGEST_LINE) {
        return text.to_owned();
    }
    let (text, other): (Vec<char>, Vec<char>) = (text.chars().collect(), other.chars().collect());
    let same = text.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let most = text.len().min(other.len()) - same;
    let behind = text.iter().rev().zip(other.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let (from, to) = (same.saturating_sub(CONTEXT), (text.len() - behind + CONTEXT).min(text.len()));
    let dots = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}{}", dots(from > 0), text[from..to].iter().collect::<String>(), dots(to < text.len()))
}

/// The changed lines, with three lines of context; of long lines, the changed part.
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
    let around = |lines: &[&str]| lines.iter().map(|line| changed_part(line, line) + "\n").collect::<String>();
    let whole = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let (less, more) = (whole(&old[start..old.len() - end]), whole(&new[start..new.len() - end]));
    add(' ', &around(&old[start.saturating_sub(AROUND)..start]));
    add('-', &changed_part(&less, &more));
    add('+', &changed_part(&more, &less));
    add(' ', &around(&old[old.len() - end..(old.len() - end + AROUND).min(old.len())]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_shows_changed_lines_with_context() {
        let old = "a\nb\nc\nd\ne\n";
        assert_eq!(difference(old, "a\nb\nc\nx\nd\ne\n"), "  a\n  b\n  c\n+ x\n  d\n  e\n");
        assert_eq!(difference(old, "a\nb\nc\nx\ne\n"), "  a\n  b\n  c\n- d\n+ x\n  e\n");
        assert_eq!(difference("", "a\n"), "+ a\n");
        assert_eq!(difference("a\na\n", "a\na\na\n"), "  a\n  a\n+ a\n");
    }

    #[test]
    fn diff_of_a_one_line_file_shows_only_the_change() {
        let file = |servers: &str| {
            format!("{{\"key\":\"secret\",{}\"servers\":{{{servers}}},\"b\":\"secret\"}}", " ".repeat(300))
        };
        let shown = difference(&file(""), &file("\"cofferdam\":1"));
        assert!(shown.contains("+ …") && shown.contains("\"servers\":{\"cofferdam\":1}"), "{shown}");
        assert!(!shown.contains("\"key\"") && shown.lines().all(|line| line.chars().count() < 80), "{shown}");
        assert_eq!(difference("a\nb\n", "a\n\nb\n"), "  a\n+ \n  b\n");
    }
}
