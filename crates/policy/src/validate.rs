//! The rules that a policy must keep beyond its form: ranges, patterns, and what fields say of each other.
//!
//! Pure and complete: every rule is asked, every breach is reported. Whether the host can do what the policy
//! says, and whether the files it names exist, is the backend's to find out.

use std::collections::{BTreeMap, BTreeSet};

use crate::errno::errno_from_name;
use crate::error::{Collector, PolicyError, PolicyErrors, PolicyPlace, shown_text};
use crate::limits::MAX_MIB;
use crate::model::*;
use crate::paths::{PathSet, fault, is_within};

/// Longest single argument or `NAME=VALUE`, bytes (`MAX_ARG_STRLEN` − 1, execve(2)).
const MAX_ARGUMENT: usize = 128 * 1024 - 1;

/// What the sandbox mounts itself.
const OWN_MOUNTS: &[&str] = &["/dev", "/proc", "/sys"];

const ABSOLUTE_PATH: &str = "an absolute path without `.`, `..`, `//`, final `/` or NUL, at most 4095 bytes";

impl Policy {
    /// Whether the policy keeps all the rules between its fields; every breach otherwise.
    pub fn validate(&self) -> Result<(), PolicyErrors> {
        check(self).finish()
    }
}

/// Every breach.
pub(crate) fn check(policy: &Policy) -> Collector {
    let mut checker = Checker { errors: Collector::default() };
    let root = &PolicyPlace::Root;
    checker.identity(root, policy);
    checker.command(&root.key("command"), &policy.command);
    checker.filesystem(&root.key("filesystem"), policy);
    checker.network(&root.key("network"), &policy.network);
    checker.process(&root.key("process"), policy);
    checker.limits(&root.key("limits"), &policy.limits);
    checker.audit(&root.key("audit"), policy.audit);
    checker.errors
}

pub(crate) struct Checker {
    errors: Collector,
}

impl Checker {
    fn identity(&mut self, at: &PolicyPlace<'_>, policy: &Policy) {
        if policy.version != VERSION {
            self.add(&at.key("version"), &policy.version.to_string(), "not a known version", "1");
        }
        if let Some(id) = &policy.id {
            let rest = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
            if !(1..=64).contains(&id.len()) || !id.as_bytes()[0].is_ascii_alphanumeric() || !id.bytes().all(rest) {
                let accepted = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
                self.text(&at.key("id"), id, "not an identifier", accepted);
            }
        }
        if let Some(description) = &policy.description {
            self.no_nul(&at.key("description"), description);
        }
    }

    fn command(&mut self, at: &PolicyPlace<'_>, command: &Command) {
        let argv = &at.key("argv");
        match command.argv.first() {
            None => self.add(argv, "[]", "no program to run", "the program and its arguments"),
            Some(program) if program.is_empty() => {
                self.text(&argv.index(0), program, "the program's name is empty", "a program's name or path");
            }
            Some(_) => {}
        }
        for (index, argument) in command.argv.iter().enumerate() {
            let at = argv.index(index);
            self.no_nul(&at, argument);
            self.argument_length(&at, argument, argument.len());
        }
        for (name, value) in &command.variables {
            let variables = at.key("variables");
            let at = variables.key(name);
            let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
            if !first || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                self.text(&at, name, "not a variable's name", "^[A-Za-z_][A-Za-z0-9_]*$");
            }
            self.no_nul(&at, value);
            self.argument_length(&at, value, name.len() + 1 + value.len());
        }
        if let Some(cwd) = &command.cwd {
            self.absolute(&at.key("cwd"), cwd);
        }
        // Standard input is no C string: a NUL is as good as any other byte there.
    }

    fn filesystem(&mut self, at: &PolicyPlace<'_>, policy: &Policy) {
        let filesystem = &policy.filesystem;
        if let Root::Directory(directory) = &filesystem.root {
            let root = at.key("root");
            let at = root.key("directory");
            self.absolute(&at, directory);
            self.not_proc(&at, directory);
        }
        if let Root::Image(image) = &filesystem.root {
            let root = at.key("root");
            let at = root.key("image");
            if image.starts_with('/') {
                self.absolute(&at, image);
                self.not_proc(&at, image);
            } else if let Some(problem) = image_fault(image) {
                self.text(&at, image, problem, "a reference such as `alpine:3.20`, or the absolute path of a tarball");
            }
        }
        self.mounts(&at.key("mounts"), filesystem, policy.process.seccomp.level);
        self.deny(&at.key("deny"), policy);
        self.protected(&at.key("protected"), filesystem);
    }

    fn mounts(&mut self, at: &PolicyPlace<'_>, filesystem: &Filesystem, level: SeccompLevel) {
        // Targets so far and who has them, for what a later mount would hide.
        let mut earlier: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, mount) in filesystem.mounts.iter().enumerate() {
            let at = at.index(index);
            let target = mount.target();
            match mount {
                Mount::Bind { source, access, .. } => {
                    self.absolute(&at.key("source"), source);
                    self.not_proc(&at.key("source"), source);
                    let access = match access {
                        Access::ReadOnly => None,
                        Access::ReadWrite => Some("read_write"),
                        Access::CopyOnWrite => Some("copy_on_write"),
                    };
                    if let Some(access) = access.filter(|_| level == SeccompLevel::Strict) {
                        let problem = "level `strict` lets nothing be written but in tmpfs";
                        self.text(&at.key("access"), access, problem, "`read_only`, or level `standard`");
                    }
                }
                Mount::Tmpfs { size_mb, .. } => {
                    if !(1..=MAX_MIB).contains(size_mb) {
                        let accepted = format!("a whole number of MiB from 1 to {MAX_MIB}");
                        self.add(&at.key("size_mb"), &size_mb.to_string(), "out of range", &accepted);
                    }
                }
            }
            let at = at.key("target");
            if !self.absolute(&at, target) {
                continue;
            }
            if target == "/" {
                let accepted = "a path below `/`; what `/` is says `filesystem.root`";
                self.text(&at, target, "a mount cannot replace the root", accepted);
                continue;
            }
            if let Some(own) = OWN_MOUNTS.iter().find(|own| is_within(target, own)) {
                let problem = format!("{own} is the sandbox's own");
                self.text(&at, target, &problem, "a path outside /dev, /proc and /sys");
            }
            if let Some(first) = earlier.get(target) {
                let what = |mount: &Mount| match mount.source() {
                    Some(source) => format!("of {}", shown_text(source)),
                    None => "a tmpfs".to_owned(),
                };
                let problem = format!(
                    "mounts[{first}] ({}) has the same target as this one ({})",
                    what(&filesystem.mounts[*first]),
                    what(mount)
                );
                self.text(&at, target, &problem, "each target once");
            }
            let below = format!("{target}/");
            let next = earlier.range(below.as_str()..).next();
            if let Some((hidden, first)) = next.filter(|(path, _)| path.starts_with(&below)) {
                let problem = format!("would hide mounts[{first}] at {}", shown_text(hidden));
                self.text(&at, target, &problem, "outer mounts before those inside them");
            }
            earlier.entry(target).or_insert(index);
        }
    }

    fn deny(&mut self, at: &PolicyPlace<'_>, policy: &Policy) {
        let filesystem = &policy.filesystem;
        let targets: PathSet = filesystem.mounts.iter().map(Mount::target).collect();
        // Only where the sandbox shows the host's own tree is a source surely the same path.
        let sources: PathSet = match filesystem.root {
            Root::Host => filesystem.mounts.iter().filter_map(Mount::source).collect(),
            _ => PathSet::default(),
        };
        for (index, path) in filesystem.deny.iter().enumerate() {
            let at = at.index(index);
            if !self.absolute(&at, path) {
                continue;
            }
            if path == "/" {
                self.text(&at, path, "nothing could run with everything denied", "paths below `/`");
                continue;
            }
            if let Some(cwd) = policy.command.cwd.as_deref().filter(|cwd| is_within(cwd, path)) {
                let problem = format!("command.cwd {} is a working directory that is denied", shown_text(cwd));
                self.text(&at, path, &problem, "paths that do not cover the working directory");
            }
            let covered = |set: &PathSet| -> Option<String> {
                let first = if set.contains(path) { Some(path.as_str()) } else { set.under(path).next() };
                first.map(shown_text)
            };
            if let Some(target) = covered(&targets) {
                let problem = format!("something is mounted at {target}, which this denies");
                self.text(&at, path, &problem, "paths that cover no mount's target");
            } else if let Some(source) = covered(&sources) {
                let problem = format!("{source} is mounted elsewhere, and this denies it");
                self.text(&at, path, &problem, "paths that cover no mount's source");
            }
        }
    }

    fn protected(&mut self, at: &PolicyPlace<'_>, filesystem: &Filesystem) {
        let writable: PathSet =
            filesystem.mounts.iter().filter(|mount| mount.is_writable()).map(Mount::target).collect();
        for (index, path) in filesystem.protected.iter().enumerate() {
            let at = at.index(index);
            if let Some(problem) = fault(path) {
                let accepted = format!("{ABSOLUTE_PATH}; or such a relative one, for every writable mount");
                self.text(&at, path, problem, &accepted);
                continue;
            }
            let inside = if writable.contains(path) { Some(path.as_str()) } else { writable.under(path).next() };
            if let Some(target) = inside {
                let problem = format!("{} is mounted to be written, and this forbids it", shown_text(target));
                self.text(&at, path, &problem, "paths inside a writable mount or outside of all");
            }
        }
    }

    fn process(&mut self, at: &PolicyPlace<'_>, policy: &Policy) {
        let process = &policy.process;
        let name = process.hostname.as_bytes();
        let rest = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
        if !(1..=63).contains(&name.len()) || name[0] == b'-' || !name.iter().all(rest) {
            let accepted = "^[A-Za-z0-9]([A-Za-z0-9-]{0,62})$";
            self.text(&at.key("hostname"), &process.hostname, "not a host name", accepted);
        }
        let nested = &at.key("nested_sandboxes");
        if process.nested_sandboxes && !process.spawn {
            self.text(nested, "true", "needs processes, but process.spawn is false", "false, or process.spawn true");
        }
        match process.seccomp.level {
            SeccompLevel::Strict if process.nested_sandboxes => {
                let problem = "needs system calls that the level `strict` has not";
                self.text(nested, "true", problem, "false, or level `standard`");
            }
            SeccompLevel::Disabled if process.nested_sandboxes => {
                let problem = "needs a filter that keeps the rest from them, and the level is `disabled`";
                self.text(nested, "true", problem, "false, or level `basic` or `standard`");
            }
            _ => {}
        }
        let seccomp = &at.key("seccomp");
        if process.seccomp.level == SeccompLevel::Strict {
            let level = &seccomp.key("level");
            if policy.network.mode != NetworkMode::None {
                let problem = "lets no socket be made, but network.mode is not `none`";
                self.text(level, "strict", problem, "network.mode `none`, or level `standard`");
            }
            if process.unix_sockets {
                let problem = "lets no socket be made, but process.unix_sockets is true";
                self.text(level, "strict", problem, "unix_sockets false, or level `standard`");
            }
        }
        for (index, rule) in process.seccomp.rules.iter().enumerate() {
            self.syscall_rule(&seccomp.key("rules").index(index), rule);
        }
    }

    fn syscall_rule(&mut self, at: &PolicyPlace<'_>, rule: &SyscallRule) {
        let syscalls = at.key("syscalls");
        if rule.syscalls.is_empty() {
            self.add(&syscalls, "[]", "the rule is about no system call", "at least one name");
        }
        let mut seen = BTreeSet::new();
        for (index, name) in rule.syscalls.iter().enumerate() {
            let letters = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            let first = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
            if !first || name.len() > 64 || !name.bytes().all(letters) {
                let accepted = "the kernel's name, such as `openat`";
                self.text(&syscalls.index(index), name, "not the name of a system call", accepted);
            } else if !seen.insert(name) {
                self.text(&syscalls.index(index), name, "listed twice", "each name once");
            }
        }
        if let SyscallAction::Errno(name) = &rule.action
            && errno_from_name(name).is_none()
        {
            let action = at.key("action");
            self.text(&action.key("errno"), name, "not the name of an error", "a name of errno(3), such as `EPERM`");
        }
        for (index, condition) in rule.when.iter().enumerate() {
            let when = at.key("when");
            let at = when.index(index);
            if condition.index > 5 {
                let index = condition.index.to_string();
                self.add(&at.key("index"), &index, "system calls have six arguments", "0 to 5");
            }
            if condition.mask == 0 {
                self.add(&at.key("mask"), "0", "leaves nothing to compare", "the bits that count, at least one");
            } else if condition.op == ArgOp::Eq && condition.value & !condition.mask != 0 {
                let value = condition.value.to_string();
                self.add(&at.key("value"), &value, "can never be equal: it has bits outside mask", "bits of mask only");
            }
        }
    }

    fn limits(&mut self, at: &PolicyPlace<'_>, limits: &Limits) {
        for (limit, value) in limits.iter() {
            if !(1..=limit.max).contains(&value) {
                self.add(&at.key(limit.key), &value.to_string(), "out of range", &limit.accepted());
            }
        }
    }

    /// A trace is slow, and what it sees are refusals: recorded they have to be.
    fn audit(&mut self, at: &PolicyPlace<'_>, audit: Audit) {
        if !audit.trace || audit.records(AuditLevel::Info) {
            return;
        }
        let (problem, accepted) = if audit.enabled {
            ("audit.level records no refusal, and a trace sees nothing else", "false, or level `info` or `debug`")
        } else {
            ("audit.enabled is false, so nothing that a trace sees is recorded", "false, or enabled true")
        };
        self.add(&at.key("trace"), "true", problem, accepted);
    }

    /// Whether it is an absolute normalized path.
    fn absolute(&mut self, at: &PolicyPlace<'_>, path: &str) -> bool {
        let relative = (!path.starts_with('/')).then_some("the path is not absolute");
        let problem = if path.is_empty() { fault(path) } else { relative.or_else(|| fault(path)) };
        if let Some(problem) = problem {
            self.text(at, path, problem, ABSOLUTE_PATH);
        }
        problem.is_none()
    }

    /// The host's /proc would show the host's processes, whatever `process` promises.
    fn not_proc(&mut self, at: &PolicyPlace<'_>, path: &str) {
        if is_within(path, "/proc") {
            self.text(at, path, "the host's /proc cannot be given", "a path outside /proc; the sandbox has its own");
        }
    }

    fn no_nul(&mut self, at: &PolicyPlace<'_>, text: &str) {
        if text.contains('\0') {
            self.text(at, text, "contains a NUL character", "text without NUL");
        }
    }

    fn argument_length(&mut self, at: &PolicyPlace<'_>, text: &str, bytes: usize) {
        if bytes > MAX_ARGUMENT {
            let accepted = format!("at most {MAX_ARGUMENT} bytes (with name and `=`), as execve(2) takes");
            self.text(at, text, &format!("{bytes} bytes are too long"), &accepted);
        }
    }

    pub(crate) fn text(&mut self, at: &PolicyPlace<'_>, value: &str, problem: &str, accepted: &str) {
        self.errors.add(|| PolicyError {
            path: at.to_string(),
            value: shown_text(value),
            problem: problem.into(),
            accepted: accepted.into(),
        });
    }

    pub(crate) fn add(&mut self, at: &PolicyPlace<'_>, value: &str, problem: &str, accepted: &str) {
        let (value, problem, accepted) = (value.into(), problem.into(), accepted.into());
        self.errors.add(|| PolicyError { path: at.to_string(), value, problem, accepted });
    }
}

impl Mount {
    /// Where it is mounted inside.
    pub fn target(&self) -> &str {
        match self {
            Mount::Bind { target, .. } | Mount::Tmpfs { target, .. } => target,
        }
    }

    /// What of the host it shows; none for a tmpfs.
    pub fn source(&self) -> Option<&str> {
        match self {
            Mount::Bind { source, .. } => Some(source),
            Mount::Tmpfs { .. } => None,
        }
    }

    /// Whether the program may write there, be it only into a layer or memory.
    pub fn is_writable(&self) -> bool {
        match self {
            Mount::Bind { access, .. } => *access != Access::ReadOnly,
            Mount::Tmpfs { .. } => true,
        }
    }
}

/// What is wrong with an image's reference. Which image it means is its engine's to say; nothing in it may be read as
/// anything but a name.
fn image_fault(image: &str) -> Option<&'static str> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@".contains(&b);
    match image {
        "" => Some("an empty reference"),
        _ if image.len() > 1024 => Some("a reference of more than 1024 bytes"),
        _ if !image.bytes().all(fits) => Some("not an image's reference"),
        _ if !image.as_bytes()[0].is_ascii_alphanumeric() => Some("a reference that begins with no letter or digit"),
        _ => None,
    }
}
