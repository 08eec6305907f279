//! Explains why a program did not start. Looks at the host, and only after a failure.
//!
//! The kernel returns EACCES for a directory, for a file without execute permission, and for every path below a directory
//! that may not be searched. This distinguishes them where the path inside is one of the host's.

use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cofferdam_engine::Failure;
use cofferdam_policy::{Access, Field, Mount, Policy, Root, text};

use super::host_paths::{HostPath, host_path, mount_without_exec};
use crate::caller::Caller;
use crate::failure::{is_exec, is_mount_of, is_unexplained_exec};
use crate::output::text::quoted;

/// Improves the message, the hint and the code of a failure to start the policy's program.
pub(crate) fn explain(failure: &mut Failure, policy: &Policy, caller: &Caller) {
    if is_mount_of(failure, &caller.cwd) {
        explain_cwd(failure, policy, caller);
    }
    let Some(program) = policy.command.argv.first().filter(|_| is_exec(failure)) else { return };
    // The name of a program may have lines of its own, and what is said of it is one.
    failure.message = text::one_line(&failure.message);
    if failure.code == 126 {
        explain_eacces(failure, policy, program);
    }
    if failure.code == 127 {
        match not_found(program, policy, caller) {
            Some(hint) => failure.hint = Some(hint),
            None => explain_missing(failure, policy, program, caller),
        }
    }
}

/// For a program that the host does not have either, and for a script whose interpreter is missing.
fn explain_missing(failure: &mut Failure, policy: &Policy, program: &str, caller: &Caller) {
    if matches!(policy.filesystem.root, Root::Image(_)) {
        return;
    }
    if let Some((assignment, _)) = program.split_once('=').filter(|(name, _)| is_name(name)) {
        let rest: Vec<String> = policy.command.argv.iter().skip(1).map(|word| quoted(word)).collect();
        failure.hint =
            Some(format!("a variable is an option: cofferdam run -e {} {}", quoted(program), rest.join(" ")));
        failure.message = format!("{assignment}=…: no program, but a variable");
        return;
    }
    let word = text::one_line(program);
    if !program.contains('/') {
        let path = caller.variable("PATH").unwrap_or_default();
        let directories = || path.split(':').filter(|directory| directory.starts_with('/'));
        if !directories().any(|directory| Path::new(directory).join(program).exists()) {
            let entries = directories().filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
            let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
            failure.message = format!("{word}: not found on PATH, inside the sandbox or outside");
            let similar = cofferdam_policy::closest(program, names.iter().map(String::as_str));
            failure.hint = similar.map(|name| format!("did you mean {}", quoted(name)));
        }
        return;
    }
    let cwd = policy.command.cwd.as_deref().unwrap_or("/");
    let inside = cofferdam_policy::paths::lexical(&Path::new(cwd).join(program));
    let Some(shown) = inside.to_str().and_then(|inside| host_path(policy, inside)) else { return };
    match first_line(&shown.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            failure.message = format!("{word} does not exist");
            failure.hint = None;
        }
        Ok(line) => {
            let Some(words) = line.strip_prefix("#!") else { return };
            let interpreter = words.split_whitespace().next().unwrap_or_default();
            let shown = text::one_line(interpreter);
            if host_path(policy, interpreter).is_some_and(|interpreter| !interpreter.path.exists()) {
                failure.message = format!("{word}: its first line names {shown}, which does not exist");
                failure.hint =
                    Some(format!("name an interpreter that is there: cofferdam run INTERPRETER {}", quoted(program)));
            } else {
                failure.message = format!("{word}: its first line names {shown}, which is not inside the sandbox");
            }
        }
        Err(_) => {}
    }
}

/// Whether a word can be the name of a variable.
fn is_name(word: &str) -> bool {
    let of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.chars().all(of_a_name) && word.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

/// The first line of a file, as far as a kernel reads it.
fn first_line(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(256).read_to_end(&mut head)?;
    Ok(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}

/// For a container that cannot show the working directory, which is shown by default.
fn explain_cwd(failure: &mut Failure, policy: &Policy, caller: &Caller) {
    let shown = |mount: &Mount| matches!(mount, Mount::Bind { source, target, access: Access::ReadOnly, .. } if *source == caller.cwd && *target == caller.cwd);
    if policy.backend.is_container() && policy.filesystem.mounts.iter().any(shown) {
        let further = failure.hint.take().map(|hint| format!("; {hint}")).unwrap_or_default();
        failure.hint = Some(format!(
            "that is the working directory, which is shown without -w: start with -w /, or elsewhere{further}"
        ));
    }
}

/// For EACCES. The message stays as it is where no other cause is known.
fn explain_eacces(failure: &mut Failure, policy: &Policy, program: &str) {
    if !is_unexplained_exec(failure) {
        return;
    }
    let word = text::one_line(program);
    let inside = if program.contains('/') {
        let home = policy.command.variables.get("HOME").map_or("/", String::as_str);
        Path::new(policy.command.cwd.as_deref().unwrap_or(home)).join(program)
    } else {
        let path = policy.command.variables.get("PATH").map_or("", String::as_str);
        let named = |directory: &str| format!("{directory}/{program}");
        let there = |inside: &String| host_path(policy, inside).is_none_or(|shown| shown.path.exists());
        let Some(first) = path.split(':').filter(|d| d.starts_with('/')).map(named).find(there) else {
            failure.code = 127;
            failure.message = format!("{word}: not found on the sandbox's PATH");
            failure.hint = Some("name its path, set PATH with -e PATH=..., or mount its directory with -v".into());
            return;
        };
        PathBuf::from(first)
    };
    let Some(shown) = inside.to_str().and_then(|inside| host_path(policy, inside)) else { return };
    if let Some((path, entry)) = on_deny_list(policy, &inside, &shown) {
        let leads = match path == inside {
            true => String::new(),
            false => format!("it leads to {}, which is ", text::one_line(&path.to_string_lossy())),
        };
        failure.message = format!("{word}: {leads}denied by {} in filesystem.deny", text::one_line(entry));
        failure.hint = Some(format!("run a program that lies elsewhere, or leave out --deny {}", quoted(entry)));
        return;
    }
    let metadata = shown.path.metadata();
    if metadata.as_ref().is_ok_and(Metadata::is_dir) {
        failure.message = format!("{word}: is a directory, and no program");
        failure.hint = None;
        return;
    }
    let above = shown.path.ancestors().skip(1).filter(|above| above.starts_with(&shown.from) && above.is_dir());
    let closed = above.filter(|above| !is_searchable(above, shown.mounted)).last().map(Path::to_owned);
    let closed = closed.or_else(|| closed_behind(&shown, policy));
    let why = match (&metadata, closed) {
        (Ok(file), None) => {
            let executable = file.permissions().mode() & 0o111 != 0;
            failure.hint = match mount_without_exec(policy, &inside) {
                Some(option) if executable => {
                    failure.message = format!("{word}: not executable inside the sandbox: it lies on a writable mount");
                    Some(format!("let programs on it be executed: {option}"))
                }
                Some(option) => Some(format!(
                    "chmod +x {}, or name its interpreter; and let programs on the mount be executed: {option}",
                    quoted(&shown.path.to_string_lossy())
                )),
                None if executable => Some("name its interpreter, or look at the one that its first line names".into()),
                None => Some(format!("chmod +x {}, or name its interpreter", quoted(&shown.path.to_string_lossy()))),
            };
            return;
        }
        (_, Some(closed)) => {
            format!("the sandbox's user may not enter {}", text::one_line(&closed.to_string_lossy()))
        }
        (Err(_), None) => "it does not exist, or is out of reach".to_owned(),
    };
    failure.message = format!("{word}: cannot be reached inside the sandbox: {why}");
    failure.hint = Some("mount its directory where everybody may enter, such as -v DIR:/mnt, and name it there".into());
}

/// The denied path of a program, and the entry of the policy that denies it. The path is the one that was named, or the one to
/// which links lead on the host.
fn on_deny_list<'p>(policy: &'p Policy, inside: &Path, shown: &HostPath) -> Option<(PathBuf, &'p str)> {
    let named: [PathBuf; 2] = [inside.components().collect(), shown.path.clone()];
    named.into_iter().chain(std::fs::canonicalize(&shown.path)).find_map(|path| {
        let entry = policy.filesystem.deny.iter().find(|entry| path.starts_with(entry))?;
        Some((path, entry.as_str()))
    })
}

/// The directory above the target of a link that the sandbox's user may not search.
fn closed_behind(shown: &HostPath, policy: &Policy) -> Option<PathBuf> {
    let real = std::fs::canonicalize(&shown.path).ok().filter(|real| *real != shown.path)?;
    let again = host_path(policy, real.to_str()?)?;
    let above = again.path.ancestors().skip(1).filter(|above| above.starts_with(&again.from) && above.is_dir());
    above.filter(|above| !is_searchable(above, again.mounted)).last().map(Path::to_owned)
}

/// Whether the sandbox's user may search a directory. Called by root, that user is the owner only of what is `mounted`; called
/// by another user, it is that user.
fn is_searchable(directory: &Path, mounted: bool) -> bool {
    let me = rustix::process::geteuid();
    let is_me = |m: &Metadata| m.uid() == me.as_raw() && (mounted || !me.is_root());
    directory.metadata().is_ok_and(|m| m.mode() & if is_me(&m) { 0o100 } else { 0o001 } != 0)
}

fn not_found(program: &str, policy: &Policy, caller: &Caller) -> Option<String> {
    let is_field = |name: &str| {
        let group = |field: &Field| field.name().split_once('.').is_some_and(|(group, _)| group == name);
        Field::ALL.iter().any(|field| field.name() == name || group(field))
    };
    let fields = program.split(',').all(|name| is_field(name) || name.starts_with("limits."));
    if fields && !program.is_empty() {
        return Some(format!("if a field was meant, it stands behind `=`: --best-effort={program}"));
    }
    if program.contains(char::is_whitespace) {
        let line = program.trim();
        if line.chars().any(char::is_control) {
            return Some(
                "that is one word with several lines in it; as a script: cofferdam eval shell --file FILE".into(),
            );
        }
        // Only words that mean nothing else to the caller's shell: who pastes the rest would run it outside.
        let plain = |c: char| c.is_ascii_alphanumeric() || " ./_-+=:,@%".contains(c);
        return Some(match line.chars().all(plain) {
            true => format!(
                "that is one word with spaces in it; without the quotes: cofferdam run -- {line}; as a line of shell: \
                 cofferdam eval shell {}",
                quoted(line)
            ),
            false => format!("cofferdam run -- sh -c {}", quoted(line)),
        });
    }
    if let Root::Image(image) = &policy.filesystem.root {
        // A program of that name on this host says nothing about an image.
        return Some(format!("{image} has no such program there: name its path in the image, or use another image"));
    }
    if program.contains('/') {
        return None;
    }
    const OF_THE_SHELL: [&str; 12] =
        [".", "alias", "bg", "cd", "eval", "exec", "export", "fg", "pushd", "set", "source", "ulimit"];
    if OF_THE_SHELL.contains(&program) {
        // A line of one word is in quotes as well, so that it is seen where it begins and ends.
        let line: Vec<String> = policy.command.argv.iter().map(|word| quoted(word)).collect();
        let line = line.join(" ");
        let line = if line == program { format!("'{line}'") } else { quoted(&line) };
        return Some(format!("cofferdam run -- sh -c {line}"));
    }
    let found = caller.variable("PATH")?.split(':').filter(|d| d.starts_with('/')).find_map(|directory| {
        let path = format!("{directory}/{program}");
        std::fs::metadata(&path).is_ok_and(|m| m.is_file()).then_some(path)
    })?;
    let found = text::one_line(&found);
    Some(format!("the sandbox has a PATH of its own; name the program as {found}, or give it yours with -e PATH"))
}
