//! macOS: the Seatbelt profile of a specification, and the command line of `sandbox-exec`.
//!
//! The same on every system, so that it is tested on every system; only that it is used by default is macOS's. No path is
//! ever pasted into the text: each is a parameter. The last rule that matches decides, so the order is the meaning: allow
//! everything, deny what is held, allow what is granted, and last deny what must not be touched whatever lies above it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_confine::seatbelt::{Profile, canonical};
use tokio::process::Command;

use crate::enforcement::{Enforcement, Rule, Strength};
use crate::error::Reason;
use crate::spec::{Area, Network, Spec};

/// Where macOS has it. Never looked for anywhere else.
pub(crate) const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// What a denial is called in the system's log.
const TAG: &str = "cofferdam";

/// Devices that do no harm, and terminals.
const DEVICES: [&str; 8] = ["null", "zero", "tty", "ptmx", "random", "urandom", "stdout", "stderr"];

/// The profile.
pub(crate) fn profile(spec: &Spec) -> Profile {
    let mut w = Writer::default();
    w.line("(version 1)");
    w.line("(allow default)");
    w.line("; writes, metadata among them: nowhere but");
    w.deny("file-write*", &[]);
    let mut filters: Vec<String> = spec.write.roots.iter().map(|path| w.tree("WRITE", path)).collect();
    filters.extend(DEVICES.map(|name| format!("(literal \"/dev/{name}\")")));
    filters.push("(regex #\"^/dev/(ttys|fd/)[0-9]+$\")".into());
    w.rule("allow", "file-write*", &filters, "");
    let holes: Vec<String> = spec.write.holes.iter().map(|path| w.tree("KEPT", path)).collect();
    if !holes.is_empty() {
        w.deny("file-write*", &holes);
        // Nor are the directories that they lie in moved away, with them in it.
        let above: Vec<String> = above(&spec.write.holes).iter().map(|path| w.literal("ABOVE", path)).collect();
        w.deny("file-write-unlink", &above);
    }
    w.deny("file-mknod", &[]);
    w.deny("file-write-setugid", &[]);
    w.line("; signals, and programs that somebody else would start for it");
    w.deny("signal", &[]);
    w.line("(allow signal (target same-sandbox))");
    w.deny("appleevent-send", &[]);
    w.deny("lsopen", &[]);
    if !spec.unix_sockets {
        w.line("; sockets that have a path, but for the names' resolver");
        w.deny("network-outbound", &["(remote unix-socket (subpath \"/\"))".into()]);
        w.line("(allow network-outbound (remote unix-socket (literal \"/private/var/run/mDNSResponder\")))");
    }
    if spec.network == Network::None {
        w.line("; the network");
        w.deny("network*", &[]);
    }
    if let Some(Area { roots, holes }) = &spec.read {
        w.line("; reads");
        if !roots.iter().any(|root| root == Path::new("/")) {
            w.deny("file-read-data", &[]);
            let mut filters: Vec<String> = roots.iter().map(|path| w.tree("READ", path)).collect();
            filters.push("(subpath \"/dev\")".into());
            filters.push("(literal \"/\")".into());
            w.rule("allow", "file-read-data", &filters, "");
        }
        let filters: Vec<String> = holes.iter().map(|path| w.tree("DENIED", path)).collect();
        if !filters.is_empty() {
            w.deny("file-read* process-exec*", &filters);
        }
    }
    Profile { text: w.text, parameters: w.parameters, warnings: Vec::new() }
}

/// Every directory above these paths, the root left out.
fn above(paths: &[PathBuf]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = paths
        .iter()
        .flat_map(|path| path.ancestors().skip(1))
        .filter(|dir| dir.parent().is_some())
        .map(Into::into)
        .collect();
    all.sort();
    all.dedup();
    all
}

#[derive(Default)]
struct Writer {
    text: String,
    parameters: Vec<(String, String)>,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn rule(&mut self, action: &str, operations: &str, filters: &[String], message: &str) {
        let filters: String = filters.iter().map(|filter| format!("\n  {filter}")).collect();
        self.line(&format!("({action} {operations}{filters}{message})"));
    }

    fn deny(&mut self, operations: &str, filters: &[String]) {
        self.rule("deny", operations, filters, &format!(" (with message \"{TAG}\")"));
    }

    fn parameter(&mut self, kind: &str, path: &Path) -> String {
        let value = canonical(&path.to_string_lossy());
        if let Some((name, _)) = self.parameters.iter().find(|(_, known)| *known == value) {
            return name.clone();
        }
        let name = format!("{kind}_{}", self.parameters.len());
        self.parameters.push((name.clone(), value));
        name
    }

    fn literal(&mut self, kind: &str, path: &Path) -> String {
        format!("(literal (param \"{}\"))", self.parameter(kind, path))
    }

    /// The path and what lies below it: `subpath` alone leaves the name itself out on some versions.
    fn tree(&mut self, kind: &str, path: &Path) -> String {
        let name = self.parameter(kind, path);
        format!("(literal (param \"{name}\")) (subpath (param \"{name}\"))")
    }
}

/// The command behind `sandbox-exec`, and what that holds.
pub(crate) fn command(program: &OsStr, spec: &Spec, sandbox_exec: &Path) -> Result<(Command, Enforcement), Reason> {
    if !sandbox_exec.is_file() {
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "it is not there");
        return Err(Reason::Prepare { step: sandbox_exec.display().to_string(), source: source.into() });
    }
    let paths = [&spec.write].into_iter().chain(&spec.read).flat_map(|area| area.roots.iter().chain(&area.holes));
    for path in paths {
        if path.to_str().is_none() {
            let fault = "it is no UTF-8, which Seatbelt's parameters must be".to_owned();
            return Err(Reason::Path { rule: "path", path: path.clone(), fault, hint: "rename it" });
        }
    }
    let mut command = Command::new(sandbox_exec);
    command.args(profile(spec).arguments()).arg("--").arg(program);
    Ok((command, enforcement(spec)))
}

fn enforcement(spec: &Spec) -> Enforcement {
    let mut e = Enforcement::default();
    let mut add = |rule| e.add(rule, Strength::Full, "Seatbelt");
    for rule in [Rule::Writes, Rule::Truncation, Rule::Links, Rule::Devices, Rule::Metadata, Rule::Signals] {
        add(rule);
    }
    if !spec.unix_sockets {
        add(Rule::PathSockets);
    }
    if spec.read.is_some() {
        add(Rule::Reads);
    }
    if spec.network == Network::None {
        add(Rule::Network);
    }
    e
}
