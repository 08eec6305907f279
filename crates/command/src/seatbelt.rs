//! macOS: the Seatbelt profile of a specification, and the command line of `sandbox-exec`.
//!
//! Compiled and tested on every system, and the default on macOS only. Paths are never pasted into the profile: each is
//! a parameter. The last rule that matches decides, so the order matters: allow everything, deny what is restricted,
//! allow what is granted, and last deny what must not be touched whatever was granted above it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_confine::seatbelt::{Profile, canonical};
use tokio::process::Command;

use crate::confinement_spec::{Area, CommandNetwork, ConfinementSpec};
use crate::enforcement::{CommandEnforcement, ConfinementRule, RuleStrength};
use crate::error::ConfineReason;

/// Its path on macOS. Never searched elsewhere.
pub(crate) const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

/// The message of denials in the system's log.
const TAG: &str = "cofferdam";

/// Devices that do no harm, and terminals.
const DEVICES: [&str; 8] = ["null", "zero", "tty", "ptmx", "random", "urandom", "stdout", "stderr"];

/// The profile.
pub(crate) fn profile(spec: &ConfinementSpec) -> Profile {
    let mut w = ProfileWriter::default();
    w.line("(version 1)");
    w.line("(allow default)");
    w.line("; writes, metadata among them: nowhere but");
    w.deny("file-write*", &[]);
    let mut filters: Vec<String> = spec.write.roots.iter().map(|path| w.tree("WRITE", path)).collect();
    filters.extend(DEVICES.map(|name| format!("(literal \"/dev/{name}\")")));
    filters.push("(subpath \"/dev/fd\")".into());
    filters.push("(regex #\"^/dev/ttys[0-9]+$\")".into());
    w.rule("allow", "file-write*", &filters, "");
    let holes: Vec<String> = spec.write.holes.iter().map(|path| w.tree("KEPT", path)).collect();
    if !holes.is_empty() {
        w.deny("file-write*", &holes);
        // The directories that contain them must not be moved either.
        let above: Vec<String> = above(&spec.write.holes).iter().map(|path| w.literal("ABOVE", path)).collect();
        w.deny("file-write-unlink", &above);
    }
    w.deny("file-mknod", &[]);
    w.deny("file-write-setugid", &[]);
    w.line("; signals, and programs that a service would start for it");
    w.deny("signal", &[]);
    w.line("(allow signal (target same-sandbox))");
    w.deny("appleevent-send", &[]);
    w.deny("lsopen", &[]);
    if !spec.unix_sockets {
        w.line("; sockets that have a path, but for the names' resolver");
        w.deny("network-outbound", &["(remote unix-socket (subpath \"/\"))".into()]);
        w.line("(allow network-outbound (remote unix-socket (literal \"/private/var/run/mDNSResponder\")))");
    }
    if spec.network == CommandNetwork::None {
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

/// Every directory above these paths, except the root.
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
struct ProfileWriter {
    text: String,
    parameters: Vec<(String, String)>,
}

impl ProfileWriter {
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

    /// The path and everything below it: on some versions `subpath` alone does not match the path itself.
    fn tree(&mut self, kind: &str, path: &Path) -> String {
        let name = self.parameter(kind, path);
        format!("(literal (param \"{name}\")) (subpath (param \"{name}\"))")
    }
}

/// The command line of `sandbox-exec`, and what it enforces.
pub(crate) fn command(
    program: &OsStr,
    spec: &ConfinementSpec,
    sandbox_exec: &Path,
) -> Result<(Command, CommandEnforcement), ConfineReason> {
    let paths = [&spec.write].into_iter().chain(&spec.read).flat_map(|area| area.roots.iter().chain(&area.holes));
    for path in paths {
        if path.to_str().is_none() {
            let fault = "it is no UTF-8, which Seatbelt's parameters must be".to_owned();
            return Err(ConfineReason::Path { rule: "path", path: path.clone(), fault, hint: "rename it" });
        }
    }
    let mut command = Command::new(sandbox_exec);
    command.args(profile(spec).arguments()).arg("--").arg(program);
    Ok((command, enforcement(spec)))
}

fn enforcement(spec: &ConfinementSpec) -> CommandEnforcement {
    let mut e = CommandEnforcement::default();
    let mut add = |rule| e.add(rule, RuleStrength::Full, "Seatbelt");
    for rule in [
        ConfinementRule::Writes,
        ConfinementRule::Truncation,
        ConfinementRule::Links,
        ConfinementRule::Devices,
        ConfinementRule::Metadata,
        ConfinementRule::Signals,
    ] {
        add(rule);
    }
    if !spec.unix_sockets {
        add(ConfinementRule::PathSockets);
    }
    if spec.read.is_some() {
        add(ConfinementRule::Reads);
    }
    if spec.network == CommandNetwork::None {
        add(ConfinementRule::Network);
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{self, Attempt, on};

    /// What `sandboxed_command("claude", mode, "/Users/u/.omega")` is on a Mac.
    fn spec() -> ConfinementSpec {
        let roots = ["/tmp", "/private/var/folders", "/Users/u/.claude", "/Users/u/.omega"].map(PathBuf::from).into();
        ConfinementSpec { write: Area { roots, holes: Vec::new() }, ..ConfinementSpec::default() }
    }

    fn allows(spec: &ConfinementSpec, attempt: &Attempt<'_>) -> bool {
        language::Profile::new(&profile(spec)).allows(attempt)
    }

    #[test]
    fn test_profile_contains_data_dir() {
        let profile = profile(&spec());
        let (name, _) = profile.parameters.iter().find(|(_, value)| value == "/Users/u/.omega").unwrap();
        assert!(profile.text.contains(&format!("(subpath (param \"{name}\"))")));
        assert!(!profile.text.contains("/Users/"), "no path is pasted into the text");
        assert!(profile.arguments().contains(&format!("{name}=/Users/u/.omega")));
    }

    #[test]
    fn test_profile_denies_writes_then_allows() {
        let text = profile(&spec()).text;
        let (deny, allow) = (text.find("(deny file-write*").unwrap(), text.find("(allow file-write*").unwrap());
        assert!(text.starts_with("(version 1)\n(allow default)\n") && deny < allow);
        for operation in [
            "file-write-data",
            "file-write-create",
            "file-write-unlink",
            "file-write-mode",
            "file-write-owner",
            "file-write-times",
            "file-write-xattr",
        ] {
            for (path, allowed) in [
                ("/Users/u/.omega/x/y", true),
                ("/Users/u/.omega", true),
                ("/private/tmp/x", true),
                ("/private/var/folders/ab/T/x", true),
                ("/dev/null", true),
                ("/dev/ttys003", true),
                ("/Users/u/.omegaX", false),
                ("/Users/u/.bashrc", false),
                ("/private/etc/hosts", false),
                ("/dev/disk0", false),
                ("/dev/ttysX", false),
            ] {
                assert_eq!(allows(&spec(), &on(operation, path)), allowed, "{operation} {path}");
            }
        }
        assert!(allows(&spec(), &on("file-read-data", "/Users/u/.bashrc")), "reading is possible everywhere");
        assert!(!allows(&spec(), &on("file-mknod", "/private/tmp/node")));
        assert!(!allows(&spec(), &on("file-write-setugid", "/private/tmp/x")));
    }

    #[test]
    fn test_profile_allows_claude_dir() {
        assert!(profile(&spec()).parameters.iter().any(|(_, value)| value == "/Users/u/.claude"));
        assert!(allows(&spec(), &on("file-write-data", "/Users/u/.claude/history.jsonl")));
        assert!(!allows(&spec(), &on("file-write-data", "/Users/u/.claude.json")));
    }

    #[test]
    fn test_command_structure() {
        let (command, enforcement) = command(OsStr::new("claude"), &spec(), Path::new(SANDBOX_EXEC)).unwrap();
        let program = command.as_std().get_program();
        assert_eq!(program, SANDBOX_EXEC);
        let arguments: Vec<&str> = command.as_std().get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(arguments[0], "-p");
        assert_eq!(arguments[arguments.len() - 2..], ["--", "claude"]);
        assert_eq!(arguments.iter().filter(|word| **word == "-D").count(), 4);
        assert_eq!(enforcement.strength(), RuleStrength::Full);
    }

    #[test]
    fn rules_of_the_builder_are_in_the_profile() {
        let quiet = ConfinementSpec { network: CommandNetwork::None, ..spec() };
        let far = |remote| Attempt { operation: "network-outbound", remote: Some(remote), ..Attempt::default() };
        assert!(allows(&spec(), &far("example.org:443")) && !allows(&quiet, &far("example.org:443")));
        let socket = on("network-outbound", "/private/var/run/docker.sock");
        assert!(!allows(&spec(), &socket));
        assert!(allows(&spec(), &on("network-outbound", "/private/var/run/mDNSResponder")));
        assert!(allows(&ConfinementSpec { unix_sockets: true, ..spec() }, &socket));
        let other = Attempt { operation: "signal", other_sandbox: true, ..Attempt::default() };
        assert!(!allows(&spec(), &other) && allows(&spec(), &Attempt { operation: "signal", ..Attempt::default() }));

        let denied = Area { roots: vec!["/".into()], holes: vec!["/Users/u/.ssh".into()] };
        let denying = ConfinementSpec { read: Some(denied), ..spec() };
        for (path, allowed) in [("/Users/u/.ssh/id", false), ("/Users/u/.ssh", false), ("/Users/u/.sshx", true)] {
            assert_eq!(allows(&denying, &on("file-read-data", path)), allowed, "{path}");
        }
        let narrow = ConfinementSpec {
            read: Some(Area { roots: vec!["/usr".into(), "/Users/u/.omega".into()], holes: vec![] }),
            ..spec()
        };
        for (path, allowed) in [("/usr/bin/git", true), ("/Users/u/.omega/x", true), ("/Users/u/x", false)] {
            assert_eq!(allows(&narrow, &on("file-read-data", path)), allowed, "{path}");
        }
    }

    #[test]
    fn exceptions_hold_whatever_is_granted_above_them() {
        let holes = || vec![PathBuf::from("/etc"), PathBuf::from("/Users/u/.omega/data")];
        let write = Area { roots: vec!["/".into()], holes: holes() };
        let read = Area { roots: vec!["/".into()], holes: vec!["/Users/u/.omega/data".into()] };
        let spec = ConfinementSpec { write, read: Some(read), ..ConfinementSpec::default() };
        for (operation, path, allowed) in [
            ("file-write-data", "/Users/u/.omega/data/memory.db", false),
            ("file-read-data", "/Users/u/.omega/data/memory.db", false),
            ("file-write-data", "/private/etc/hosts", false),
            ("file-write-data", "/Users/u/.omega/workspace/x", true),
            ("file-read-data", "/private/etc/hosts", true),
            ("file-write-unlink", "/Users/u/.omega", false),
            ("file-write-unlink", "/Users/u/.omega/workspace", true),
        ] {
            assert_eq!(allows(&spec, &on(operation, path)), allowed, "{operation} {path}");
        }
    }
}
