//! The root view `interpreter`: which of the host's files a program needs in order to run, and nothing else.
//!
//! That is the program, the interpreter that a script names in its first line, the loader with the directories in which it
//! looks for shared libraries, and the directories that the library of such a language has. Directories of libraries are
//! shown whole: what a program loads while it runs stands in no header. Everything is a part of what the view `minimal`
//! shows. Asks the host by [`Facts`] alone; decides nothing about what a mount of the policy shows.

use std::collections::BTreeSet;

use cofferdam_policy::paths::is_within;
use cofferdam_policy::{Mount, NetworkMode, Policy};

use crate::plan::facts::{Facts, FileKind, ResolvedPath, resolve};
use crate::plan::mount_table::{below, join};
use crate::plan::shebang;

/// One thing to show at its own path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A directory with all that is in it.
    Directory(String),
    /// A file.
    File(String),
    /// A symbolic link, and what it says.
    Link(String, String),
}

impl Part {
    /// Its path.
    pub fn path(&self) -> &str {
        match self {
            Part::Directory(path) | Part::File(path) | Part::Link(path, _) => path,
        }
    }
}

/// Where the system's programs and libraries are: nothing outside is shown.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Directories that hold libraries and nothing else, where they are directories.
const LIBRARIES: [&str; 6] = ["/lib32", "/lib64", "/libx32", "/usr/lib32", "/usr/lib64", "/usr/libx32"];
/// Directories that hold the libraries of every processor, each in a directory of its own, or of this one alone.
const MIXED: [&str; 2] = ["/lib", "/usr/lib"];
/// Where a language has directories of its own.
const LANGUAGES: [&str; 6] =
    ["/usr/lib", "/usr/lib64", "/usr/share", "/usr/local/lib", "/usr/local/lib64", "/usr/local/share"];
/// Directories of a language that do not have its name: the language, and the directory.
const OTHER_NAMES: [(&str, &str); 3] = [("node", "nodejs"), ("ruby", "rubygems"), ("ruby", "rubygems-integration")];
/// Of /etc: the loader's table, where the names of libraries lead that there are several of, and the settings of the one
/// library that languages do not start without.
const SETTINGS: [&str; 3] = ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/openssl.cnf"];
/// Where the certificate roots of Debian, Fedora, Arch and SUSE lie, and what the links among them lead to. They are shown
/// wherever there is a network, since no TLS client works without.
const CERTIFICATES: [&str; 12] = [
    // Where Debian's OpenSSL looks: links into /etc/ssl.
    "/usr/lib/ssl/cert.pem",
    "/usr/lib/ssl/certs",
    "/usr/lib/ssl/openssl.cnf",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
];
/// The kernel follows no more scripts than this (`BINPRM_MAX_RECURSION`, execve(2)).
const MOST_SCRIPTS: usize = 5;

/// What a policy's program needs, outer paths before those inside them.
pub fn parts(policy: &Policy, facts: &dyn Facts) -> Vec<Part> {
    let mut found = InterpreterParts { policy, facts, parts: BTreeSet::new(), languages: BTreeSet::new() };
    for top in SYSTEM.iter().filter(|top| matches!(facts.kind(top), FileKind::Link(_))) {
        found.entry(top);
    }
    let mut programs = crate::plan::payload::candidates_of(policy);
    for _ in 0..=MOST_SCRIPTS {
        let Some(script) = programs.iter().find_map(|path| found.program(path)) else { break };
        programs = found.interpreters(&script);
    }
    found.libraries();
    let certificates = CERTIFICATES.iter().filter(|_| policy.network.mode != NetworkMode::None);
    for path in SETTINGS.iter().chain(certificates) {
        found.entry(path);
    }
    found.finish()
}

struct InterpreterParts<'a> {
    policy: &'a Policy,
    facts: &'a dyn Facts,
    parts: BTreeSet<Part>,
    languages: BTreeSet<String>,
}

impl InterpreterParts<'_> {
    /// What lies at a path, by its own name.
    fn entry(&mut self, path: &str) {
        match self.facts.kind(path) {
            FileKind::Directory => drop(self.parts.insert(Part::Directory(path.to_owned()))),
            FileKind::File { .. } => drop(self.parts.insert(Part::File(path.to_owned()))),
            FileKind::Link(says) => drop(self.parts.insert(Part::Link(path.to_owned(), says))),
            FileKind::Special | FileKind::Missing | FileKind::Unknown => {}
        }
    }

    /// Shows a program with all links that lead to it; its path on the host where there is one.
    fn program(&mut self, inside: &str) -> Option<String> {
        let mount = self.policy.filesystem.mounts.iter().rev().find(|mount| is_within(inside, mount.target()));
        if let Some(mount) = mount {
            // What a mount shows is shown already; which interpreter it names is to be seen.
            let Mount::Bind { source, target, .. } = mount else { return None };
            let (ResolvedPath::There(host, FileKind::File { .. }), _) =
                resolve(self.facts, &join(source, below(inside, target)?))
            else {
                return None;
            };
            return Some(host);
        }
        let (ResolvedPath::There(canonical, FileKind::File { executable: true, .. }), links) =
            resolve(self.facts, inside)
        else {
            return None;
        };
        if !SYSTEM.iter().any(|top| is_within(&canonical, top)) {
            return None;
        }
        for (parent, name) in links {
            self.entry(&join(&parent, &name));
        }
        self.entry(&canonical);
        for path in [inside, canonical.as_str()] {
            let name = path.rsplit('/').next().unwrap_or_default();
            let language: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
            self.languages.extend((language.len() > 2).then_some(language));
        }
        self.installation(&canonical);
        Some(canonical)
    }

    /// A program in a tree of its own needs that: `…/jvm/NAME/bin/java`. One in /usr/local, the libraries there.
    fn installation(&mut self, program: &str) {
        let tree = program.rsplit_once('/').and_then(|(directory, _)| directory.strip_suffix("/bin"));
        match tree {
            Some("/usr/local") => {
                self.entry("/usr/local/lib");
                self.entry("/usr/local/lib64");
            }
            Some(tree) if MIXED.iter().any(|libraries| tree != *libraries && is_within(tree, libraries)) => {
                self.entry(tree);
            }
            _ => {}
        }
    }

    /// Where the interpreter of a script is looked for; nothing for a program that is no script.
    fn interpreters(&mut self, host: &str) -> Vec<String> {
        let head = self.facts.head(host);
        if !head.starts_with(b"#!") {
            return Vec::new();
        }
        let Some((interpreter, argument)) = shebang::interpreter(&head) else { return Vec::new() };
        if interpreter.rsplit('/').next() != Some("env") {
            return vec![interpreter];
        }
        self.program(&interpreter);
        let Some(named) = shebang::started_by_env(&argument) else { return Vec::new() };
        let mut asked = self.policy.clone();
        asked.command.argv = vec![named];
        crate::plan::payload::candidates_of(&asked)
    }

    fn libraries(&mut self) {
        for path in LIBRARIES {
            self.entry(path);
        }
        // Where they are not sorted by processor, the directory is one of libraries like the others.
        let is_plain = MIXED.iter().any(|directory| {
            self.facts.list(directory).iter().any(|name| name == "libc.so.6" || name.starts_with("ld-musl-"))
        });
        for directory in MIXED.iter().filter(|path| self.facts.kind(path) == FileKind::Directory) {
            if is_plain {
                self.entry(directory);
                continue;
            }
            let of_all = |name: &String| name.contains("-linux-") || name.starts_with("ld-") || name == "locale";
            for name in self.facts.list(directory).iter().filter(|name| of_all(name)) {
                self.entry(&join(directory, name));
            }
        }
        let languages = std::mem::take(&mut self.languages);
        for directory in LANGUAGES {
            for name in self.facts.list(directory).iter().filter(|name| is_of(name, &languages)) {
                self.entry(&join(directory, name));
            }
        }
        if languages.contains("java") {
            for name in self.facts.list("/etc").iter().filter(|name| crate::plan::settings::is_java(name)) {
                self.entry(&join("/etc", name));
            }
        }
    }

    /// Without what lies in a directory that is shown.
    fn finish(self) -> Vec<Part> {
        let directories: Vec<String> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::Directory(path) => Some(path.clone()),
                _ => None,
            })
            .collect();
        let inside = |path: &str| directories.iter().any(|directory| path != directory && is_within(path, directory));
        let mut parts: Vec<Part> = self.parts.into_iter().filter(|part| !inside(part.path())).collect();
        parts.sort_by(|one, other| one.path().cmp(other.path()));
        parts
    }
}

/// Whether a directory has the name of one of these languages, with or without a version.
fn is_of(name: &str, languages: &BTreeSet<String>) -> bool {
    languages.iter().any(|language| {
        let rest = name.strip_prefix(language.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit() || c == '_'))
            || OTHER_NAMES.contains(&(language.as_str(), name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::FactsTable;

    fn host() -> FactsTable {
        let mut host = FactsTable::usual(&[
            "/usr/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/git-core/git",
            "/usr/lib/python3/",
            "/usr/lib/python3.11/os.py",
            "/usr/lib/pythonic/",
            "/usr/share/nodejs/acorn/",
            "/usr/share/secret",
            "/usr/local/lib/python3.11/dist-packages/",
            "/etc/alternatives/",
            "/etc/passwd",
        ]);
        let executable = FileKind::File { links: 1, executable: true };
        for program in ["/usr/bin/python3.11", "/usr/bin/node", "/usr/bin/curl", "/usr/bin/env", "/usr/bin/dash"] {
            host.add(program, executable.clone());
        }
        host.add("/usr/bin/python3", FileKind::Link("python3.11".into()));
        host.add("/usr/bin/sh", FileKind::Link("dash".into()));
        host.add("/home/u/run.py", executable);
        host.write("/home/u/run.py", "#!/usr/bin/env -S python3 -u\n");
        host
    }

    fn shown(argv: &str, mounts: &[&str]) -> Vec<String> {
        let mut policy = Policy::base();
        policy.command.argv = vec![argv.into()];
        policy.filesystem.mounts = mounts
            .iter()
            .map(|path| Mount::Bind {
                source: (*path).into(),
                target: "/work".into(),
                access: cofferdam_policy::Access::ReadOnly,
                exec: false,
                optional: false,
            })
            .collect();
        parts(&policy, &host()).iter().map(|part| part.path().to_owned()).collect()
    }

    #[test]
    fn certificates_are_shown_wherever_there_is_a_network() {
        let mut host = host();
        for path in ["/etc/ssl/certs/", "/etc/ssl/private/", "/usr/share/ca-certificates/", "/etc/pki/tls/certs/"] {
            host.add(path.trim_end_matches('/'), FileKind::Directory);
        }
        let shown = |mode: NetworkMode| {
            let mut policy = Policy::base();
            policy.command.argv = vec!["sh".into()];
            policy.network.mode = mode;
            let all = parts(&policy, &host);
            all.iter().map(|part| part.path().to_owned()).filter(|path| path.contains("cert")).collect::<Vec<_>>()
        };
        let roots = ["/etc/pki/tls/certs", "/etc/ssl/certs", "/usr/share/ca-certificates"];
        assert_eq!(shown(NetworkMode::Allowlist), roots);
        assert_eq!(shown(NetworkMode::Host), roots);
        assert!(shown(NetworkMode::None).is_empty());
    }

    const EVERY: [&str; 8] = [
        "/bin",
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/lib",
        "/lib64",
        "/sbin",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
    ];

    fn more(mut all: Vec<String>) -> Vec<String> {
        all.retain(|path| !EVERY.contains(&path.as_str()));
        all
    }

    #[test]
    fn a_program_is_shown_with_the_loaders_directories_and_no_other() {
        let all = shown("sh", &[]);
        assert!(EVERY.iter().all(|path| all.iter().any(|shown| shown == path)), "{all:?}");
        assert_eq!(more(all), ["/usr/bin/dash", "/usr/bin/sh"]);
    }

    #[test]
    fn a_language_has_its_own_directories() {
        let python = [
            "/usr/bin/python3",
            "/usr/bin/python3.11",
            "/usr/lib/python3",
            "/usr/lib/python3.11",
            "/usr/local/lib/python3.11",
        ];
        assert_eq!(more(shown("/bin/python3", &[])), python);
        assert_eq!(more(shown("node", &[])), ["/usr/bin/node", "/usr/share/nodejs"]);
        // The interpreter of a script, by env.
        let script = more(shown("/work/run.py", &["/home/u"]));
        assert_eq!(script, [&["/usr/bin/env"][..], &python].concat());
    }

    #[test]
    fn what_is_not_there_or_not_the_systems_is_not_shown() {
        assert_eq!(more(shown("nothing", &[])), Vec::<String>::new());
        assert_eq!(more(shown("/home/u/run.py", &[])), Vec::<String>::new());
    }
}
