//! macOS Seatbelt profiles as text: what `/usr/bin/sandbox-exec -p TEXT -D KEY=VALUE … -- COMMAND` is given.
//!
//! Pure, and the same on every system: nothing is run or looked up here. No path is ever pasted into the text; each is a
//! parameter, so that none can end a string and begin a rule. The last rule that matches decides, so the order below is
//! the meaning: deny everything, allow what every program needs, allow what was asked for, and last deny what must not be
//! touched whatever lies above it.
//!
//! ```text
//! (version 1) (deny default) ─▶ process, system ─▶ reads ─▶ writes ─▶ protected, denied, their ancestors ─▶ network
//! ```
//!
//! Sources: sandbox-exec(1), sandbox(7), and the profiles under /System/Library/Sandbox/Profiles.

mod paths;

use std::collections::BTreeMap;

pub use paths::canonical;

/// What of the file system can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// All of it but what is denied.
    Everything,
    /// What macOS programs need to start, and the paths of the request.
    System,
}

/// What the network rules let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatbeltNetwork {
    /// Nothing.
    None,
    /// The loopback. Seatbelt has no network of its own to give: it is the host's, with every server on it.
    Loopback,
    /// Everything.
    Host,
}

/// What may be done below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltGrant {
    /// Absolute and canonical.
    pub path: String,
    /// Whether it is a single file.
    pub file: bool,
    /// Whether it can be written.
    pub write: bool,
    /// Whether programs on it can be executed.
    pub exec: bool,
}

/// What a profile has to hold. Every path is absolute; links of the system's own are resolved here (`/tmp`), others by the
/// caller, who can look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltRequest {
    /// Reported with every denial in the system's log, so that a run finds its own: letters, digits, `.`, `_` and `-`.
    pub tag: String,
    /// What can be read.
    pub reading: Reading,
    /// Paths that are granted.
    pub granted: Vec<SeatbeltGrant>,
    /// Paths that can be neither read nor written.
    pub deny: Vec<String>,
    /// Paths that can be read but not written: absolute, or relative to every granted directory that can be written.
    pub protected: Vec<String>,
    /// The network.
    pub network: SeatbeltNetwork,
    /// Whether Unix sockets can be made and connected to.
    pub unix_sockets: bool,
    /// Whether the program may start others.
    pub spawn: bool,
    /// The program itself, when it is known by its path; only then can the others be distinguished from it.
    pub program: Option<String>,
}

/// A profile: the text, and the parameters that it names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// For `sandbox-exec -p`.
    pub text: String,
    /// For `sandbox-exec -D`: name and path, in order.
    pub parameters: Vec<(String, String)>,
    /// What a user of the profile should know.
    pub warnings: Vec<String>,
}

impl Profile {
    /// The arguments of `sandbox-exec` before the `--` and the command.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["-p".to_owned(), self.text.clone()];
        for (name, value) in &self.parameters {
            arguments.push("-D".to_owned());
            arguments.push(format!("{name}={value}"));
        }
        arguments
    }

    /// The same as the text of a file of its own: a macOS profile takes parameters only from the command line, so a
    /// comment at its top says which.
    pub fn file(&self) -> String {
        let mut text = String::from(";; sandbox-exec -f THIS_FILE");
        for (name, value) in &self.parameters {
            text.push_str(&format!(" \\\n;;   -D {name}={}", comment(value)));
        }
        text.push_str(" \\\n;;   -- COMMAND\n");
        text.push_str(&self.text);
        text
    }
}

/// A value as it can stand in a comment line, quoted for a shell: a copied line runs nothing that a name says.
fn comment(value: &str) -> String {
    let plain = value.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+:@%,".contains(&b));
    if plain && !value.is_empty() {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''").replace(char::is_control, "?"))
}

/// What dynamic programs read before their first own line. The first are directories, the second single files.
const SYSTEM: (&[&str], &[&str]) = (
    &[
        "/System",
        "/usr/lib",
        "/usr/libexec",
        "/usr/bin",
        "/usr/sbin",
        "/usr/share",
        "/bin",
        "/sbin",
        "/Library/Apple",
        "/Library/Developer/CommandLineTools",
        "/Library/Frameworks",
        "/Library/Preferences/Logging",
        "/opt/homebrew",
        "/usr/local",
        "/private/etc/ssl",
        "/private/var/db/dyld",
        "/private/var/db/timezone",
    ],
    &[
        "/",
        "/private/etc/hosts",
        "/private/etc/localtime",
        "/private/etc/passwd",
        "/private/etc/group",
        "/private/etc/protocols",
        "/private/etc/services",
        "/dev/null",
        "/dev/zero",
        "/dev/random",
        "/dev/urandom",
    ],
);

/// Writes the profile.
pub fn profile(request: &SeatbeltRequest) -> Profile {
    let mut w = SeatbeltWriter { tag: tag(&request.tag), ..SeatbeltWriter::default() };
    w.line("(version 1)");
    w.line(&format!("(deny default (with message \"{}\"))", w.tag.clone()));
    w.process(request);
    w.system();
    w.reads(request);
    w.writes(request);
    w.network(request);
    w.held(request);
    Profile { text: w.text, parameters: w.parameters, warnings: w.warnings }
}

/// Only what cannot end the string that it stands in.
fn tag(tag: &str) -> String {
    let kept: String = tag.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    if kept.is_empty() { "cofferdam".to_owned() } else { kept }
}

#[derive(Default)]
struct SeatbeltWriter {
    text: String,
    tag: String,
    parameters: Vec<(String, String)>,
    names: BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl SeatbeltWriter {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn note(&mut self, comment: &str) {
        self.line(&format!("\n; {comment}"));
    }

    /// The parameter that stands for a path; the same path is the same parameter.
    fn parameter(&mut self, kind: &str, path: &str) -> String {
        let path = canonical(path);
        if let Some(name) = self.names.get(&path) {
            return name.clone();
        }
        let name = format!("{kind}_{}", self.names.len());
        self.parameters.push((name.clone(), path.clone()));
        self.names.insert(path, name.clone());
        name
    }

    fn literal(&mut self, kind: &str, path: &str) -> String {
        format!("(literal (param \"{}\"))", self.parameter(kind, path))
    }

    /// The path and what lies below it: `subpath` alone leaves the name itself out on some versions.
    fn tree(&mut self, kind: &str, path: &str) -> String {
        let name = self.parameter(kind, path);
        format!("(literal (param \"{name}\")) (subpath (param \"{name}\"))")
    }

    fn allow(&mut self, operations: &str, filters: &[String]) {
        if !filters.is_empty() {
            self.line(&format!("(allow {operations}\n  {})", filters.join("\n  ")));
        }
    }

    fn deny(&mut self, operations: &str, filters: &[String]) {
        if !filters.is_empty() {
            let message = format!("(with message \"{}\")", self.tag);
            self.line(&format!("(deny {operations}\n  {}\n  {message})", filters.join("\n  ")));
        }
    }

    fn process(&mut self, request: &SeatbeltRequest) {
        self.note("processes: its own and those it starts, no others");
        let mut execs = Vec::new();
        match (&request.program, request.spawn) {
            (Some(program), false) => {
                execs.push(self.literal("PROGRAM", program));
            }
            _ => {
                if request.reading == Reading::Everything {
                    self.line("(allow process-exec*)");
                }
                execs.extend(SYSTEM.0.iter().map(|path| format!("(subpath \"{path}\")")));
            }
        }
        let granted: Vec<&SeatbeltGrant> = request.granted.iter().filter(|g| g.exec && request.spawn).collect();
        for g in granted {
            let filter = if g.file { self.literal("PATH", &g.path) } else { self.tree("PATH", &g.path) };
            execs.push(filter);
        }
        self.allow("process-exec*", &execs);
        let closed: Vec<String> = request
            .granted
            .iter()
            .filter(|g| g.write && !g.exec)
            .map(|g| if g.file { self.literal("PATH", &g.path) } else { self.tree("PATH", &g.path) })
            .collect();
        self.deny("process-exec*", &closed);
        if request.spawn {
            self.line("(allow process-fork)");
        }
        self.line("(allow signal (target same-sandbox))");
        self.line("(allow process-info* (target same-sandbox))");
        if !request.spawn && request.program.is_none() {
            self.warnings.push("the program is not known by its path: any other can be executed in its place".into());
        }
    }

    fn system(&mut self) {
        self.note("what the system's own libraries ask for");
        self.line("(allow sysctl-read)");
        self.line("(allow system-socket (require-all (socket-domain AF_SYSTEM) (socket-protocol 2)))");
        self.line("(allow mach-lookup\n  (global-name \"com.apple.system.logger\")\n  (global-name \"com.apple.system.notification_center\")\n  (global-name \"com.apple.system.opendirectoryd.libinfo\"))");
        self.line("(allow ipc-posix-shm-read* (ipc-posix-name \"apple.shm.notification_center\"))");
        self.line("(allow file-ioctl (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/random\") (literal \"/dev/urandom\"))");
    }

    fn reads(&mut self, request: &SeatbeltRequest) {
        self.note("what can be read");
        if request.reading == Reading::Everything {
            self.line("(allow file-read*)");
        } else {
            let mut filters: Vec<String> = SYSTEM.0.iter().map(|path| format!("(subpath \"{path}\")")).collect();
            filters.extend(SYSTEM.1.iter().map(|path| format!("(literal \"{path}\")")));
            self.allow("file-read*", &filters);
            // Names on the way to what is granted can be looked up, not listed.
            let mut above: Vec<String> = Vec::new();
            for g in &request.granted {
                for dir in ancestors(&canonical(&g.path)) {
                    let filter = self.literal("ABOVE", &dir);
                    if !above.contains(&filter) {
                        above.push(filter);
                    }
                }
            }
            above.extend(["/tmp", "/var", "/etc"].iter().map(|path| format!("(literal \"{path}\")")));
            self.allow("file-read-metadata", &above);
        }
        let mut filters = Vec::new();
        for g in &request.granted {
            filters.push(if g.file { self.literal("PATH", &g.path) } else { self.tree("PATH", &g.path) });
        }
        self.allow("file-read*", &filters);
    }

    fn writes(&mut self, request: &SeatbeltRequest) {
        self.note("what can be written");
        self.line("(allow file-write-data\n  (require-all (vnode-type CHARACTER-DEVICE)\n    (require-any (literal \"/dev/null\") (literal \"/dev/zero\") (literal \"/dev/random\") (literal \"/dev/urandom\"))))");
        let mut filters = Vec::new();
        for g in request.granted.iter().filter(|g| g.write) {
            filters.push(if g.file { self.literal("PATH", &g.path) } else { self.tree("PATH", &g.path) });
        }
        self.allow("file-write*", &filters);
        // What runs as another user, and devices, are nobody's to make.
        self.line("(deny file-write-setugid)");
        self.line("(deny file-mknod)");
    }

    fn network(&mut self, request: &SeatbeltRequest) {
        self.note("the network");
        match request.network {
            SeatbeltNetwork::None => {}
            SeatbeltNetwork::Loopback => {
                self.line("(allow network-outbound (remote ip \"localhost:*\"))");
                self.line("(allow network-inbound (local ip \"localhost:*\"))");
                self.line("(allow network-bind (local ip \"localhost:*\"))");
                self.warnings.push(
                    "Seatbelt has no loopback of the sandbox's own: every server on the host's loopback can be reached"
                        .into(),
                );
            }
            SeatbeltNetwork::Host => {
                self.line("(allow network-outbound (remote ip \"*:*\"))");
                self.line("(allow network-inbound (local ip \"*:*\"))");
                self.line("(allow network-bind (local ip \"*:*\"))");
                self.line(
                    "(allow mach-lookup (global-name \"com.apple.dnssd.service\") (global-name \"com.apple.trustd\"))",
                );
                self.line("(allow network-outbound (remote unix-socket (literal \"/private/var/run/mDNSResponder\")))");
            }
        }
        if request.unix_sockets {
            let filters: Vec<String> = request
                .granted
                .iter()
                .filter(|g| g.write && !g.file)
                .map(|g| {
                    let name = self.parameter("PATH", &g.path);
                    format!("(remote unix-socket (subpath (param \"{name}\")))")
                })
                .collect();
            let local: Vec<String> = filters.iter().map(|f| f.replace("(remote ", "(local ")).collect();
            self.allow("network-outbound", &filters);
            self.allow("network-bind network-inbound", &local);
        }
    }

    /// Last, so that nothing above it counts.
    fn held(&mut self, request: &SeatbeltRequest) {
        let writable: Vec<String> =
            request.granted.iter().filter(|g| g.write && !g.file).map(|g| canonical(&g.path)).collect();
        let mut protected: Vec<String> = Vec::new();
        for path in &request.protected {
            if path.starts_with('/') {
                protected.push(canonical(path));
            } else {
                protected.extend(writable.iter().map(|dir| format!("{}/{path}", dir.trim_end_matches('/'))));
            }
        }
        protected.sort();
        protected.dedup();
        let denied: Vec<String> = request.deny.iter().map(|path| canonical(path)).collect();
        self.note("what is protected can be read, and never written, made, moved or removed");
        let filters: Vec<String> = protected.iter().map(|path| self.tree("PROTECTED", path)).collect();
        self.deny("file-write*", &filters);
        self.note("what is denied can be neither");
        let filters: Vec<String> = denied.iter().map(|path| self.tree("DENIED", path)).collect();
        self.deny("file-read* file-write* process-exec* network-outbound", &filters);
        self.note("the directories above them cannot be moved away");
        let mut above: Vec<String> = Vec::new();
        for path in protected.iter().chain(&denied) {
            let ours = ancestors(path).into_iter().filter(|dir| writable.iter().any(|w| within(dir, w)));
            above.extend(ours);
        }
        above.sort();
        above.dedup();
        let filters: Vec<String> = above.iter().map(|path| self.literal("ABOVE", path)).collect();
        self.deny("file-write-unlink", &filters);
    }
}

/// Every directory above an absolute path, `/` left out.
fn ancestors(path: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = path;
    while let Some(slash) = at.rfind('/').filter(|&slash| slash > 0) {
        at = &at[..slash];
        found.push(at.to_owned());
    }
    found
}

fn within(path: &str, base: &str) -> bool {
    base == "/" || path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_path_is_run_by_who_copies_the_command_line() {
        let file = |path: &str| {
            let parameters = vec![("PATH_0".to_owned(), path.to_owned())];
            Profile { parameters, ..Profile::default() }.file()
        };
        for (path, shown) in [
            ("/srv/a,b-c.d", "/srv/a,b-c.d"),
            ("/srv/$(id)`id`\"", "'/srv/$(id)`id`\"'"),
            ("/srv/it's", r"'/srv/it'\''s'"),
            ("/srv/a\n(allow default)\u{1b}\u{9b}", "'/srv/a?(allow default)??'"),
            ("", "''"),
        ] {
            let text = file(path);
            assert_eq!(text, format!(";; sandbox-exec -f THIS_FILE \\\n;;   -D PATH_0={shown} \\\n;;   -- COMMAND\n"));
        }
    }
}
