//! Notes for a program that failed and said what it lacks: the option that gives it, where the policy is the reason.
//!
//! A complaint is the program's own words, which unvetted code chooses. So a note is made only where the policy
//! says that it can be true, and its option names what the program named only where a person may want to give that: no
//! credentials, no home, no directory of the system, and no host but one of the caller's own arguments.

use std::path::Path;

use cofferdam_config::complaints::{Complaint, ComplaintKind};
use cofferdam_engine::{Ending, Outcome};
use cofferdam_policy::paths::{is_within, lexical};
use cofferdam_policy::{Access, AllowEntry, Field, Mount, NetworkMode, OWN_HOME, Policy, Root, Stdin, text};

use super::host_paths::{host_path, mount_without_exec};
use super::network_notes::{hint_for_host_loopback, is_host_offered, is_name_lookup};
use super::notes::RunNote;
use crate::args::presets::preset_of;
use crate::call::RunnableCall;
use crate::call::passed_over::{option_for, passed_over};
use crate::caller::Caller;
use crate::output::text::quoted;

/// Directories of a home with a name in them for each application.
const OF_APPLICATIONS: [&str; 2] = [".config/", ".local/share/"];
/// Programs that are of little use without keys, also where their input is a pipe.
const OF_KEYS: [&str; 12] =
    ["dialog", "fzf", "less", "more", "most", "nano", "nvim", "tig", "vi", "view", "vim", "whiptail"];
/// Most notes about complaints.
const MOST: usize = 3;

/// What a note is made of.
struct Context<'a> {
    outcome: &'a Outcome,
    call: &'a RunnableCall,
    policy: &'a Policy,
    caller: &'a Caller,
    /// The program failed by itself.
    failed: bool,
}

/// The notes for the complaints of a program, each once.
pub(super) fn complaint_notes(
    complaints: &[Complaint],
    outcome: &Outcome,
    call: &RunnableCall,
    caller: &Caller,
) -> Vec<RunNote> {
    let failed = outcome.outcome == Ending::Exited && !outcome.success && outcome.limit.is_none();
    let context = Context { outcome, call, policy: &call.policy, caller, failed };
    let mut notes: Vec<RunNote> = Vec::new();
    for complaint in complaints {
        if let Some(note) = context.note(complaint).filter(|note| !notes.contains(note)) {
            notes.push(note);
        }
        if notes.len() == MOST {
            break;
        }
    }
    let lookups = outcome.violations.iter().any(is_name_lookup);
    if notes.is_empty() && failed && outcome.violations.iter().all(is_name_lookup) {
        notes.extend(context.misplaced_option().or_else(|| context.silent_without_network()));
    }
    if notes.is_empty() && lookups {
        // Tools such as npm look for news of themselves, and succeed without: only who asked for a trace wants to know.
        let ended_well = !failed && outcome.outcome != Ending::TimedOut;
        notes.extend(context.without_network().filter(|_| !ended_well || call.policy.audit.trace));
    }
    if notes.is_empty() && failed && outcome.violations.is_empty() {
        notes.extend(context.another_program());
    }
    notes.extend(context.without_keys());
    notes
}

impl Context<'_> {
    /// For a program that stands behind another one on the caller's PATH, which the sandbox's user cannot reach.
    fn another_program(&self) -> Option<RunNote> {
        let (first, used) = passed_over(self.policy, rustix::process::geteuid().is_root())?;
        let text =
            format!("{} ran, as the sandbox's user cannot reach {}", text::one_line(&used), text::one_line(&first));
        Some(note(&text, option_for(&first, &self.caller.homes)))
    }

    /// A pager or an editor at the end of a pipe.
    fn without_keys(&self) -> Option<RunNote> {
        let program = self.policy.command.argv.first()?.rsplit('/').next()?;
        let lacks = self.caller.gives_input && self.caller.output_at_terminal && !self.call.tty;
        let text = format!("{program} had no terminal, as its standard input is not one");
        (lacks && OF_KEYS.contains(&program)).then(|| note(&text, Some("-t".into())))
    }

    fn note(&self, complaint: &Complaint) -> Option<RunNote> {
        let path = complaint.object.as_deref().and_then(|object| self.inside(object));
        let path = path.as_deref();
        // What is protected is said also where the program went on without it, and an editor that could not write.
        match complaint.kind {
            ComplaintKind::ReadOnly | ComplaintKind::Busy if path.is_some_and(|path| self.writable(path)) => {
                return path.map(|path| self.protected(path));
            }
            ComplaintKind::ReadOnly if self.failed || self.call.tty => return self.read_only(path),
            _ if !self.failed => return None,
            _ => {}
        }
        match complaint.kind {
            ComplaintKind::ReadOnly | ComplaintKind::Busy | ComplaintKind::NoModule => None,
            ComplaintKind::NoNetwork => self.without_network(),
            ComplaintKind::ConnectionRefused => self.refused_on_loopback(),
            ComplaintKind::NoListening => (self.policy.network.mode == NetworkMode::None).then(|| {
                note(
                    "the program has no network, not even one of its own to listen on",
                    Some("--network loopback".into()),
                )
            }),
            ComplaintKind::Permission => path.and_then(|path| self.permission(path)),
            // `standard output` is no path.
            ComplaintKind::NoSpace => {
                self.no_space(path.filter(|path| {
                    complaint.object.as_ref().is_some_and(|o| o.contains('/')) || Path::new(path).exists()
                }))
            }
            ComplaintKind::OpenFiles => self.limit(Field::OpenFiles, "--open-files N"),
            ComplaintKind::NoProcess => self.limit(Field::Processes, "--pids N"),
            ComplaintKind::SocketFamily => (!self.policy.process.unix_sockets)
                .then(|| note("the program may not make Unix sockets", Some("--unix-sockets".into()))),
            ComplaintKind::NoInput => (self.policy.command.stdin == Stdin::Closed)
                .then(|| note("standard input of the program is closed", Some("-i".into()))),
            ComplaintKind::NoLibrary => complaint.object.as_deref().and_then(|name| self.no_library(name)),
            ComplaintKind::NoProgram => complaint.object.as_deref().and_then(|name| self.no_program(name)),
            ComplaintKind::NoFile => path.and_then(|path| self.no_device(path).or_else(|| self.not_in_this_home(path))),
            ComplaintKind::Docker => Some(note(
                "docker.sock is not shown: who reaches the Docker daemon has the rights of root on this machine; build images \
                 outside of the sandbox",
                None,
            )),
            ComplaintKind::GitOwner => self.linked_repository().or_else(|| self.repository_of_another(path?)),
            ComplaintKind::GitIdentity => {
                let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
                let option = |name| match self.caller.variable(name) {
                    Some(_) => format!("-e {name}"),
                    None => format!("-e {name}={}", if name.ends_with("EMAIL") { "you@example.org" } else { "NAME" }),
                };
                let hint = names.map(option).join(" ");
                Some(note("the settings of git in the home are not shown", Some(hint)))
            }
        }
    }

    /// A path that the program named, absolute.
    fn inside(&self, object: &str) -> Option<String> {
        let cwd = self.policy.command.cwd.as_deref().unwrap_or("/");
        let path = lexical(&Path::new(cwd).join(object)).into_os_string().into_string().ok()?;
        (!object.is_empty() && path.len() < 4096).then_some(path)
    }

    /// The last mount at a path.
    fn mount(&self, path: &str) -> Option<&Mount> {
        self.policy.filesystem.mounts.iter().rev().find(|mount| is_within(path, mount.target()))
    }

    /// Whether a path lies in a writable volume.
    fn writable(&self, path: &str) -> bool {
        matches!(self.mount(path), Some(Mount::Bind { access: Access::ReadWrite | Access::CopyOnWrite, .. }))
    }

    fn protected(&self, path: &str) -> RunNote {
        let field = Field::Protected.name();
        note(&format!("{} is protected, or has protected names in it ($.{field})", text::one_line(path)), None)
    }

    fn read_only(&self, path: Option<&str>) -> Option<RunNote> {
        let Some(cwd) = self.policy.command.cwd.as_deref() else { return self.read_only_volume(path?) };
        let in_cwd = path.is_none_or(|path| is_within(path, cwd));
        if in_cwd && self.call.here_would_write {
            let none = self.policy.network.mode == NetworkMode::None;
            let preset = preset_of(&self.policy.command.argv).filter(|_| none && installs(&self.policy.command.argv));
            let hint = match (preset, self.fetched_host().filter(|_| none)) {
                (Some(preset), _) => format!("--here --for {preset}"),
                (None, Some(host)) => format!("--here --allow {host}{}", self.ssh_key()),
                (None, None) => "--here".to_owned(),
            };
            return Some(note(&format!("{} is read-only to the program", text::one_line(cwd)), Some(hint)));
        }
        let of_volume = self.read_only_volume(path.unwrap_or(cwd));
        let Some(path) = path.filter(|_| !in_cwd) else { return of_volume };
        let hint = match self.directory_to_write(path) {
            Some(directory) => format!("-v {}", quoted(&format!("{directory}:{directory}:rw"))),
            None if of_volume.is_some() => return of_volume,
            None => "-v DIR:DIR:rw lets it write a directory".to_owned(),
        };
        Some(note(&format!("{} is read-only to the program", text::one_line(path)), Some(hint)))
    }

    /// A volume that the program may only read, and could be let write.
    fn read_only_volume(&self, path: &str) -> Option<RunNote> {
        let Mount::Bind { source, target, access: Access::ReadOnly, .. } = self.mount(path)? else { return None };
        let hint = format!("-v {}, or :cow for a copy", quoted(&format!("{source}:{target}:rw")));
        let text = format!("{} is read-only to the program", text::one_line(target));
        self.may_be_offered(source).then(|| note(&text, Some(hint)))
    }

    /// For a linked work tree, whose repository is outside of it: git obeys it where it is writable as well.
    fn linked_repository(&self) -> Option<RunNote> {
        const LONGEST: u64 = 4096;
        let file = Path::new(self.policy.command.cwd.as_deref()?).join(".git");
        let about = file.symlink_metadata().ok().filter(|about| about.is_file() && about.len() < LONGEST)?;
        let text = std::fs::read_to_string(&file).ok().filter(|text| text.len() as u64 == about.len())?;
        let directory = self.directory_to_write(text.trim().strip_prefix("gitdir: ")?)?;
        let hint = format!("-v {}", quoted(&format!("{directory}:{directory}:rw")));
        Some(note(&format!("the repository of this work tree is {}", text::one_line(&directory)), Some(hint)))
    }

    /// For a repository of the caller's that only the root view shows, where its files are not the program's own.
    fn repository_of_another(&self, path: &str) -> Option<RunNote> {
        let tree = path.strip_suffix("/.git").unwrap_or(path);
        let shown = self.mount(tree).is_some_and(|mount| mount.target() == tree);
        let hint = format!("-v {}", quoted(&format!("{tree}:{tree}")));
        let text = format!("{} is another user's to the program", text::one_line(tree));
        (!shown && Path::new(tree).is_dir() && self.may_be_offered(tree)).then(|| note(&text, Some(hint)))
    }

    /// The directory of the host that a person may want to let the program write, so that it can write a path.
    fn directory_to_write(&self, path: &str) -> Option<String> {
        // The files of a repository belong together.
        let directory = match path.find("/.git/") {
            Some(at) => &path[..at + "/.git".len()],
            None => path.rsplit_once('/')?.0,
        };
        let there = host_path(self.policy, directory).is_some_and(|shown| shown.path == Path::new(directory));
        (there && self.may_be_offered(directory) && std::fs::metadata(directory).is_ok_and(|about| about.is_dir()))
            .then(|| directory.to_owned())
    }

    /// Whether a hint may name a directory: no home, nothing of the system, nothing that is denied.
    fn may_be_offered(&self, directory: &str) -> bool {
        let there = Caller { cwd: directory.to_owned(), ..self.caller.clone() };
        let denied =
            self.policy.filesystem.deny.iter().any(|deny| is_within(directory, deny) || is_within(deny, directory));
        !denied && there.require_project().is_ok() && there.require_no_home().is_ok()
    }

    fn without_network(&self) -> Option<RunNote> {
        (self.policy.network.mode == NetworkMode::None).then(|| {
            let host = self.policy.command.argv.iter().find_map(|argument| host_of_url(argument));
            let port = self.policy.command.argv.iter().find_map(|argument| port_of_loopback(argument));
            if let Some(port) = port.filter(|_| host.as_ref().is_some_and(|host| is_loopback(host))) {
                return note(
                    "the program has no network, and no server of this machine is there",
                    Some(hint_for_host_loopback(Some(port))),
                );
            }
            let allow = match preset_of(&self.policy.command.argv) {
                Some(preset) => format!("--for {preset}"),
                None => {
                    format!("--allow {}", host.filter(|host| is_host_offered(host)).unwrap_or_else(|| "HOST".into()))
                }
            };
            // What fetches also writes what it has fetched.
            let here = if self.call.here_would_write && writes_what_it_fetches(&self.policy.command.argv) {
                "--here "
            } else {
                ""
            };
            note("the program has no network", Some(format!("{here}{allow}")))
        })
    }

    /// The host of what the arguments have git fetch, which needs a network as well.
    fn fetched_host(&self) -> Option<String> {
        let argv = &self.policy.command.argv;
        let git = argv.first().is_some_and(|program| program == "git" || program.ends_with("/git"));
        let host = |text: &str| host_of_url(text).or_else(|| host_of_ssh(text)).filter(|host| is_host_offered(host));
        let named = argv.iter().filter(|_| git).find_map(|argument| host(argument));
        let fetches = argv.get(1).is_some_and(|word| matches!(word.as_str(), "fetch" | "pull" | "push"));
        named.or_else(|| {
            host(&url_of_remote(Path::new(self.policy.command.cwd.as_deref()?))?).filter(|_| git && fetches)
        })
    }

    /// The options that give git a key, where what it fetches is behind ssh: the keys of the home stay hidden.
    fn ssh_key(&self) -> &'static str {
        let ssh = |argument: &String| argument.starts_with("ssh://") || host_of_ssh(argument).is_some();
        match self.policy.command.argv.iter().any(ssh) {
            true => " -v KEY:/tmp/key -e GIT_SSH_COMMAND='ssh -i /tmp/key -o StrictHostKeyChecking=accept-new'",
            false => "",
        }
    }

    /// For a program that said nothing, where one of its arguments is an address.
    fn silent_without_network(&self) -> Option<RunNote> {
        self.policy
            .command
            .argv
            .iter()
            .any(|argument| host_of_url(argument).is_some())
            .then(|| self.without_network())?
    }

    fn refused_on_loopback(&self) -> Option<RunNote> {
        if self.policy.network.mode == NetworkMode::None {
            return self.without_network();
        }
        (self.policy.network.mode != NetworkMode::Host).then(|| {
            let port = self.policy.command.argv.iter().find_map(|argument| port_of_loopback(argument));
            note(
                "the loopback network is the sandbox's own: no server of this machine is there",
                Some(hint_for_host_loopback(port)),
            )
        })
    }

    fn permission(&self, path: &str) -> Option<RunNote> {
        let shown = text::one_line(path);
        if let Some(denied) = self.policy.filesystem.deny.iter().find(|deny| is_within(path, deny)) {
            return Some(self.denied(path, denied));
        }
        if let Some(option) = mount_without_exec(self.policy, Path::new(path)).filter(|_| self.was_executed()) {
            let here = self.policy.command.cwd.as_deref().is_some_and(|cwd| {
                matches!(self.mount(path), Some(Mount::Bind { source, target, access: Access::ReadWrite, .. })
                    if source == target && target == cwd)
            });
            let option = match preset_of(&self.policy.command.argv).filter(|_| is_within(path, "/tmp")) {
                Some(preset) => format!("--for {preset}"),
                None if here => "-v .:.:rw, without noexec".to_owned(),
                None => option,
            };
            return Some(note(&format!("{shown} is in a place where nothing may be executed"), Some(option)));
        }
        let host = host_path(self.policy, path)?;
        if self.was_executed() && is_on_noexec(&host.path) {
            return Some(note(&format!("{shown} is on a file system that is mounted noexec on the host"), None));
        }
        let closed = std::fs::metadata(&host.path).is_ok_and(|about| about.is_dir())
            && matches!(std::fs::read_dir(&host.path), Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied);
        closed.then(|| note(&format!("{shown}: Permission denied outside of the sandbox, too"), None))
    }

    /// Whether the last command of the program could not be executed, as shells and make report it.
    fn was_executed(&self) -> bool {
        let go = preset_of(&self.policy.command.argv) == Some("go");
        matches!(self.outcome.exit_code, Some(126 | 127 | 2)) || (go && self.outcome.exit_code == Some(1))
    }

    /// Whether a path is, contains or lies in a place of credentials.
    fn holds_credentials(&self, path: &str) -> bool {
        self.caller.homes.iter().any(|home| {
            let list = |directory: &str| names_in(&format!("{home}/{directory}"));
            let credentials = cofferdam_policy::credential_deny(home, &list);
            credentials.iter().any(|credential| is_within(credential, path) || is_within(path, credential))
        })
    }

    /// For a path that the policy denies. What may hold credentials is never offered.
    fn denied(&self, path: &str, denied: &str) -> RunNote {
        let shown = text::one_line(path);
        let homes = &self.caller.homes;
        let of_a_home = homes.iter().find_map(|home| denied.strip_prefix(home)?.strip_prefix('/'));
        let hidden = of_a_home.filter(|name| {
            let of_an_application = |base: &str| name.strip_prefix(base).is_some_and(|rest| !rest.contains('/'));
            name.starts_with('.') && (!name.contains('/') || OF_APPLICATIONS.into_iter().any(of_an_application))
        });
        let holds_credentials = self.holds_credentials(denied);
        match hidden.filter(|_| !holds_credentials && Path::new(denied).exists()) {
            Some(_) => {
                let hint = format!("-v {}", quoted(&format!("{denied}:{denied}")));
                note(&format!("{shown} is hidden, as what begins with a dot in a home is"), Some(hint))
            }
            None => note(&format!("{shown} is denied by {} ($.filesystem.deny)", text::one_line(denied)), None),
        }
    }

    /// For a library that lies in a hidden directory of a home. The program names it, so that only the name of a library
    /// counts, and only a directory that may be offered.
    fn no_library(&self, name: &str) -> Option<RunNote> {
        let is_library = name.starts_with("lib") && name.contains(".so") && !name.contains('/');
        let directories = self.caller.homes.iter().filter(|_| is_library).flat_map(|home| {
            let hidden = names_in(home).into_iter().filter(|name| name.starts_with('.'));
            hidden.flat_map(move |hidden| [format!("{home}/{hidden}"), format!("{home}/{hidden}/lib")])
        });
        let denied = |directory: &String| self.policy.filesystem.deny.iter().any(|deny| is_within(directory, deny));
        let found = directories.filter(denied).find(|directory| Path::new(directory).join(name).is_file())?;
        let holds_credentials = self.holds_credentials(&found);
        let hint = (!holds_credentials).then(|| format!("-v {}", quoted(&format!("{found}:{found}"))));
        Some(note(&format!("{} lies in {}, which is hidden", text::one_line(name), text::one_line(&found)), hint))
    }

    fn no_space(&self, path: Option<&str>) -> Option<RunNote> {
        let limits = &self.policy.limits;
        let changes = self.outcome.changes.len() as u64;
        let in_copy =
            path.is_none_or(|path| matches!(self.mount(path), Some(Mount::Bind { access: Access::CopyOnWrite, .. })));
        let copies =
            self.policy.filesystem.mounts.iter().any(|m| matches!(m, Mount::Bind { access: Access::CopyOnWrite, .. }));
        if in_copy && copies {
            return Some(if changes >= limits.layer_inodes / 2 {
                let text = format!("a copy has room for {} files and directories", limits.layer_inodes);
                note(&text, Some("--layer-files N".into()))
            } else {
                note(
                    &format!("a copy has room for {} MiB of changes", limits.layer_mb),
                    Some("--layer-size SIZE".into()),
                )
            });
        }
        let own = path.is_none_or(|path| match self.mount(path) {
            Some(mount) => matches!(mount, Mount::Tmpfs { .. }),
            None => ["/tmp", "/var/tmp", "/dev/shm", "/run"].iter().any(|own| is_within(path, own)),
        });
        own.then(|| {
            let text = format!("a scratch file system has room for {} MiB", limits.tmpfs_mb);
            note(&text, Some("--tmpfs-size SIZE".into()))
        })
    }

    fn limit(&self, field: Field, option: &str) -> Option<RunNote> {
        let said = self.outcome.violations.iter().any(|violation| violation.operation == field.name());
        (!said).then(|| {
            note(
                &format!("the program is at the limit {}", super::notes::amount(field, self.policy)),
                Some(option.into()),
            )
        })
    }

    /// A program that the caller's PATH has and the sandbox's view has not.
    fn no_program(&self, name: &str) -> Option<RunNote> {
        let small = matches!(self.policy.filesystem.root, Root::Minimal | Root::Interpreter);
        let plain = !name.is_empty() && !name.contains('/');
        let path = self.caller.variable("PATH").unwrap_or_default();
        let there = plain && path.split(':').any(|dir| dir.starts_with('/') && Path::new(dir).join(name).is_file());
        (small && there).then(|| {
            let text = format!("{} is not in this view of the machine's files", text::one_line(name));
            note(&text, Some("--root host".into()))
        })
    }

    fn no_device(&self, path: &str) -> Option<RunNote> {
        let device = is_within(path, "/dev") && path != "/dev" && Path::new(path).exists();
        let known = ["/dev/kvm", "/dev/dri", "/dev/nvidia", "/dev/fuse", "/dev/snd", "/dev/video"];
        let device = device || known.iter().any(|known| path.starts_with(known));
        device.then(|| {
            note(
                &format!(
                    "{} is not there: the sandbox has a /dev of its own, without devices of the host",
                    text::one_line(path)
                ),
                None,
            )
        })
    }

    /// A file of the caller's home that the program looked for in the home of the sandbox, which is another one.
    fn not_in_this_home(&self, path: &str) -> Option<RunNote> {
        let rest = path.strip_prefix(OWN_HOME)?.strip_prefix('/').filter(|_| self.failed)?;
        let home = self.caller.homes.first().filter(|_| self.mount(path).is_none())?;
        // One application's files are shown, and not those of all.
        let common = OF_APPLICATIONS.into_iter().find(|base| rest.starts_with(base)).map_or(0, str::len);
        let end = rest[common..].find('/').map_or(rest.len(), |at| common + at);
        let (shown, own) = (format!("{home}/{}", &rest[..end]), format!("{OWN_HOME}/{}", &rest[..end]));
        let there = Path::new(home).join(rest).symlink_metadata().is_ok();
        let offered = there && !self.holds_credentials(&shown);
        let text = format!("the home of the sandbox is its own, and does not have {}", text::one_line(rest));
        offered.then(|| note(&text, Some(format!("-v {}", quoted(&format!("{shown}:{own}"))))))
    }

    /// An option of ours that stands behind the program.
    fn misplaced_option(&self) -> Option<RunNote> {
        const OURS: [&str; 5] = ["--here", "--here=rw", "--here=cow", "--unix-sockets", "--nested-sandboxes"];
        let argv = &self.policy.command.argv;
        let at = argv.iter().skip(1).position(|word| OURS.contains(&word.as_str()))? + 1;
        let rest = argv.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, word)| quoted(word));
        let hint = format!("cofferdam run {} {}", argv[at], rest.collect::<Vec<_>>().join(" "));
        Some(note(&format!("{} stands behind the program, which got it as its own", argv[at]), Some(hint)))
    }
}

fn note(text: &str, hint: Option<String>) -> RunNote {
    RunNote { text: text.to_owned(), hint }
}

/// The names in a directory of the host.
fn names_in(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether a file of the host is on a file system that is mounted noexec.
fn is_on_noexec(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|about| about.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}

/// Whether a tool is to install or resolve what its project depends on, or to build with it.
fn installs(argv: &[String]) -> bool {
    const WORDS: [&str; 11] =
        ["add", "build", "ci", "download", "get", "i", "install", "lock", "package", "sync", "update"];
    argv.iter().skip(1).any(|word| WORDS.contains(&word.as_str())) && argv.first().is_some_and(|first| first != "cargo")
}

/// Whether a program puts what it fetches into its working directory.
fn writes_what_it_fetches(argv: &[String]) -> bool {
    let program = argv.first().map_or("", |first| first.rsplit('/').next().unwrap_or(first));
    let to_a_file =
        |word: &String| matches!(word.as_str(), "-o" | "-O" | "--output" | "--remote-name") || word.ends_with('O');
    match program {
        "wget" | "git" => true,
        "npx" => false,
        "curl" => argv.iter().skip(1).filter(|word| word.starts_with('-')).any(to_a_file),
        _ => preset_of(argv).is_some_and(|preset| preset != "browser"),
    }
}

/// Whether a host is this machine.
fn is_loopback(host: &str) -> bool {
    ["127.0.0.1", "localhost"]
        .iter()
        .any(|own| host.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(':')))
}

/// The port of an address on the loopback in an argument.
fn port_of_loopback(argument: &str) -> Option<u16> {
    let at = ["127.0.0.1", "localhost"].iter().find_map(|host| Some(argument.find(host)? + host.len()))?;
    let rest = argument[at..].trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    (argument[at..].len() - rest.len() <= 4).then(|| rest[..digits].parse().ok())?
}

/// The host of an address in an argument, as `--allow` takes it: with the port where the scheme has another one.
fn host_of_url(argument: &str) -> Option<String> {
    let (scheme, rest) = argument.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let usual = match scheme {
        "https" => ":443",
        "http" => ":80",
        _ => "",
    };
    let host = host.strip_suffix(usual).unwrap_or(host);
    let host = match scheme {
        "ssh" if !host.contains(':') => format!("{host}:22"),
        _ => host.to_owned(),
    };
    let entry: Result<AllowEntry, _> = host.parse();
    entry.is_ok().then_some(host)
}

/// The address of the first remote of the repository in a directory. Its configuration is a protected name, so that no sandbox
/// has written it.
fn url_of_remote(directory: &Path) -> Option<String> {
    /// Longest configuration that is looked at, bytes.
    const LONGEST: u64 = 64 << 10;
    let file = directory.join(".git/config");
    let about = file.symlink_metadata().ok()?;
    if !about.is_file() || about.len() > LONGEST {
        return None;
    }
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(str::trim).skip_while(|line| !line.starts_with("[remote "));
    lines.find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "url").then(|| value.trim().to_owned())
    })
}

/// The host of an argument in the form of scp, as git takes it for ssh: `git@example.org:project.git`.
fn host_of_ssh(argument: &str) -> Option<String> {
    let (host, path) = argument.split_once(':')?;
    let (user, host) = host.split_once('@')?;
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    (plain(user) && plain(host) && !path.is_empty() && !path.starts_with("//")).then(|| format!("{host}:22"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_what_an_option_takes() {
        for (argument, host) in [
            ("https://example.org/a?b", Some("example.org")),
            ("http://you:secret@example.org:80", Some("example.org")),
            ("http://example.org:8443/", Some("example.org:8443")),
            ("git+https://github.com/a/b.git#c", Some("github.com")),
            ("ssh://git@example.org/p.git", Some("example.org:22")),
            ("ssh://git@example.org:2222/p.git", Some("example.org:2222")),
            ("example.org", None),
            ("https://", None),
            ("https://*", None),
            ("data://x y", None),
        ] {
            assert_eq!(host_of_url(argument).as_deref(), host, "{argument}");
        }
    }

    #[test]
    fn tools_that_install_have_a_preset() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (line, preset, installing) in [
            ("npm install", Some("npm"), true),
            ("/usr/bin/pip3 download six", Some("pip"), true),
            ("python3 -m pip install six", Some("pip"), true),
            ("python3 -m http.server", None, false),
            ("cargo build", Some("cargo"), false),
            ("go run .", Some("go"), false),
            ("make install", None, true),
            ("mvn package", Some("maven"), true),
        ] {
            assert_eq!((preset_of(&words(line)), installs(&words(line))), (preset, installing), "{line}");
        }
        for (line, writes) in [
            ("curl -fsSO https://a.example/x", true),
            ("curl -o f https://a.example/x", true),
            ("curl https://a.example/O", false),
            ("wget https://a.example/x", true),
            ("chromium https://a.example", false),
        ] {
            assert_eq!(writes_what_it_fetches(&words(line)), writes, "{line}");
        }
        assert!(is_loopback("127.0.0.1:80") && is_loopback("localhost") && !is_loopback("127.0.0.1.example.org"));
    }

    #[test]
    fn the_port_of_a_server_on_the_loopback_is_found() {
        for (argument, port) in [
            ("http://127.0.0.1:8765/", Some(8765)),
            ("socket.create_connection((\"127.0.0.1\", 5432))", Some(5432)),
            ("localhost:1", Some(1)),
            ("localhost", None),
            ("127.0.0.1 and then 99", None),
            ("localhost:99999", None),
        ] {
            assert_eq!(port_of_loopback(argument), port, "{argument}");
        }
    }
}
