//! From what was seen to violations: which policy line refused what, and how that is known.
//!
//! Pure. Bounded: the same thing seen again only counts up, and what finds no room is counted by operation and field.

use std::net::IpAddr;

use cofferdam_confine::seccomp::classify::Verdict;
use cofferdam_confine::seccomp::{Arch, SeccompReason, syscall_name};
use cofferdam_confine::status::NotifiedCall;
use cofferdam_confine::wire::EVENT_PATH;
use cofferdam_egress::address::Special;
use cofferdam_egress::event as network;
use cofferdam_egress::ledger::{Ledger, LedgerCapacity, LedgerEntry, LedgerPlacement};
use cofferdam_policy::text::escape;
use cofferdam_policy::{Audit, AuditLevel, NetworkMode, OnViolation, Policy};

use crate::outcome::{Evidence, Violation};
use crate::plan::mount_table::View;

/// Different violations of a run. Each operation on each line of the policy has a few for itself.
const ROOM: LedgerCapacity = LedgerCapacity { own: 8, shared: 256 };

/// What the policy says of paths, as seen inside.
pub struct Paths<'a> {
    /// What shows where.
    pub view: &'a View,
    /// Denied.
    pub denied: &'a std::collections::BTreeSet<String>,
    /// Protected.
    pub protected: &'a std::collections::BTreeSet<String>,
}

/// Violations under way.
#[derive(Debug)]
pub struct Log {
    list: Ledger<SeenViolation>,
    /// Something was seen whose object is not in the list.
    pub overflowed: bool,
    /// Every refusal that a trace sees is told.
    pub trace: bool,
    /// Refusals are collected.
    refusals: bool,
    /// What libc asks for by itself is told, which is silent otherwise.
    probes: bool,
    /// At level `debug`.
    debug: bool,
    /// In mode `allowlist`.
    captured: bool,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            list: Ledger::new(ROOM),
            overflowed: false,
            trace: false,
            refusals: false,
            probes: false,
            debug: false,
            captured: false,
        }
    }
}

/// A violation, and the kind of address that it is about.
#[derive(Debug)]
struct SeenViolation {
    violation: Violation,
    special: Option<Special>,
}

impl LedgerEntry for SeenViolation {
    type Class = (String, String, Option<Special>);
    type Key = (String, Option<String>, String);

    fn class(&self) -> Self::Class {
        (self.violation.operation.clone(), self.violation.field.clone(), self.special)
    }

    fn key(&self) -> Self::Key {
        let v = &self.violation;
        (v.operation.clone(), v.object.clone(), v.field.clone())
    }

    fn count(&self) -> u64 {
        self.violation.count
    }

    fn fold(&mut self, again: SeenViolation) {
        self.violation.count += again.violation.count;
    }

    fn aggregate(mut self) -> SeenViolation {
        (self.violation.object, self.violation.pid, self.violation.aggregated) = (None, 0, true);
        self
    }

    fn is_aggregate(&self) -> bool {
        self.violation.aggregated
    }
}

impl Log {
    /// An empty log for what a policy has recorded. A refusal that ends the run is collected at every level, since only
    /// the run's end tells that it was that: see [`Log::ended`].
    pub fn new(policy: &Policy) -> Log {
        let audit = policy.audit;
        let refusals = audit.records(AuditLevel::Info);
        Log {
            trace: audit.trace && refusals,
            refusals: refusals || (audit.enabled && policy.on_violation == OnViolation::Terminate),
            debug: audit.records(AuditLevel::Debug),
            captured: policy.network.mode == NetworkMode::Allowlist,
            probes: audit.records(AuditLevel::Debug) || (audit.trace && refusals),
            ..Log::default()
        }
    }

    /// Drops the refusals that are recorded only when one of them ended the run, where none did.
    pub fn ended(&mut self, audit: Audit, by_violation: bool) {
        if !by_violation && !audit.records(AuditLevel::Info) {
            drop(self.list.take());
        }
    }

    /// Adds a limit, or a signal of the filter's, where the policy has violations as grave as that recorded.
    pub fn met(&mut self, audit: Audit, grave: AuditLevel, v: Violation) {
        if audit.records(grave) {
            self.add(v);
        }
    }

    /// Adds one, or counts it up.
    pub fn add(&mut self, violation: Violation) {
        self.put(SeenViolation { violation, special: None });
    }

    fn put(&mut self, seen: SeenViolation) {
        self.overflowed |= matches!(self.list.add(seen), LedgerPlacement::Aggregated(_));
    }

    /// What was collected so far.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.list.entries().iter().map(|seen| &seen.violation)
    }

    /// What was collected.
    pub fn into_violations(mut self) -> Vec<Violation> {
        self.list.take().into_iter().map(|seen| seen.violation).collect()
    }

    /// Takes one refusal of the egress gateway's.
    pub fn gateway(&mut self, e: &network::NetworkEvent) {
        if !self.refusals {
            return;
        }
        let operation = match e.via {
            _ if e.method.is_some() || e.via == network::NetworkVia::Api => "request",
            network::NetworkVia::Dns => "resolve",
            _ => "connect",
        };
        let violation = Violation {
            operation: operation.into(),
            object: destination(e).map(|object| escape(object.as_bytes())),
            field: e.rule.clone().unwrap_or_else(|| {
                // The API has its own line of the policy, and no entry of `allow`.
                if e.via == network::NetworkVia::Api { "$.network.api" } else { "$.network.allow" }.into()
            }),
            evidence: Evidence::Gateway,
            pid: e.pid.map_or(0, crate::proctree::pid_inside),
            count: e.count,
            aggregated: e.aggregated,
        };
        self.put(SeenViolation { violation, special: e.special() });
    }

    /// Takes one event of init's.
    pub fn event(&mut self, e: &NotifiedCall, paths: &Paths<'_>) {
        if !self.refusals {
            return;
        }
        let operation =
            Arch::native().and_then(|a| syscall_name(e.nr, a)).map_or_else(|| format!("call {}", e.nr), str::to_owned);
        let violation = |object: Option<String>, field: String, evidence| Violation {
            operation: operation.clone(),
            object,
            field,
            evidence,
            pid: e.pid,
            count: 1,
            aggregated: false,
        };
        if let Some(guarded) = e.guarded {
            // Init decided on its own copy of the path; what the event tells was read anew.
            let [one, two] = &e.paths;
            let text = if guarded.second && !two.is_empty() { two } else { one };
            let object = (!text.is_empty()).then(|| path(text, text));
            let field = if guarded.denied { "$.filesystem.deny" } else { "$.filesystem.protected" };
            return self.add(violation(object, field.into(), Evidence::ArgumentAsRead));
        }
        if e.address {
            let address = cofferdam_confine::reach::address(&e.paths[0]);
            if e.verdict.by_libc() && !self.debug && address.is_some_and(|a| is_sorting(self.captured, a)) {
                return;
            }
            if e.verdict.by_libc() && !self.probes {
                return;
            }
            let object = address.map(|a| a.to_string());
            return self.add(violation(object, "$.network.mode".into(), Evidence::ArgumentAsRead));
        }
        match e.verdict.class() {
            Verdict::TRACE | Verdict::CREATE => {
                for (read, write) in asked(&operation, e) {
                    if let Some((object, field)) = refused(write, read, paths) {
                        let object = path(&object, read);
                        self.add(violation(Some(object), field, Evidence::ArgumentAsRead));
                    }
                }
            }
            _ => {
                let reason = SeccompReason::of(e.verdict);
                if e.verdict.by_libc() && !self.probes {
                    return; // what libc tries by itself, such as nscd's socket; docs/evidence.md says which
                }
                let object = match e.paths.iter().find(|p| !p.is_empty()) {
                    Some(p) => Some(path(p, p)),
                    None => describe(&operation, &e.args),
                };
                // The decision was BPF's on registers; a path beside it is only what was read.
                self.add(violation(object, field_of(reason, e.verdict.rule()), Evidence::Kernel));
            }
        }
    }
}

/// Whether a datagram socket that is connected there is how libc, or a runtime of its own, sorts the addresses of a name: to
/// one that the gateway's resolver gave, or to port 0, where nothing is ever sent. Sending there is another call.
fn is_sorting(captured: bool, to: std::net::SocketAddr) -> bool {
    captured && (to.port() == 0 || cofferdam_egress::names::synthetic(to.ip()))
}

fn field_of(reason: Option<SeccompReason>, rule: u32) -> String {
    match reason {
        Some(SeccompReason::Rule) => format!("$.process.seccomp.rules[{rule}]"),
        Some(SeccompReason::UnixSocket) => "$.process.unix_sockets".into(),
        Some(SeccompReason::Network) => "$.network.mode".into(),
        Some(SeccompReason::Spawn) => "$.process.spawn".into(),
        _ => "$.process.seccomp.level".into(),
    }
}

/// Registers that say more than the call's name.
fn describe(operation: &str, args: &[u64; 6]) -> Option<String> {
    Some(match operation {
        "socket" | "socketpair" => socket(args[0] as i32, args[1] as i32 & 0xf, args[2] as i32),
        "ioctl" => format!("request {:#x}", args[1] as u32),
        "ptrace" | "prctl" | "keyctl" | "bpf" => format!("operation {}", args[0] as i32),
        "clone" | "unshare" => format!("flags {:#x}", args[0]),
        _ => return None,
    })
}

/// What kind of socket, in the words of socket(2); the number of what has no common name. A protocol of 0 is the family's
/// own.
fn socket(family: i32, kind: i32, protocol: i32) -> String {
    let named = |list: &[(i32, &str)], number: i32, what: &str| {
        let name = list.iter().find(|(n, _)| *n == number);
        name.map_or_else(|| format!("{what} {number}"), |(_, name)| (*name).to_owned())
    };
    let mut text = named(FAMILIES, family, "family") + ", " + &named(TYPES, kind, "type");
    if protocol != 0 {
        text += &format!(", protocol {protocol}");
    }
    text
}

/// include/linux/socket.h
const FAMILIES: &[(i32, &str)] = &[
    (0, "AF_UNSPEC"),
    (1, "AF_UNIX"),
    (2, "AF_INET"),
    (3, "AF_AX25"),
    (4, "AF_IPX"),
    (5, "AF_APPLETALK"),
    (10, "AF_INET6"),
    (15, "AF_KEY"),
    (16, "AF_NETLINK"),
    (17, "AF_PACKET"),
    (21, "AF_RDS"),
    (24, "AF_PPPOX"),
    (29, "AF_CAN"),
    (30, "AF_TIPC"),
    (31, "AF_BLUETOOTH"),
    (38, "AF_ALG"),
    (39, "AF_NFC"),
    (40, "AF_VSOCK"),
    (41, "AF_KCM"),
    (42, "AF_QIPCRTR"),
    (43, "AF_SMC"),
    (44, "AF_XDP"),
];

/// include/linux/net.h
const TYPES: &[(i32, &str)] = &[
    (1, "SOCK_STREAM"),
    (2, "SOCK_DGRAM"),
    (3, "SOCK_RAW"),
    (4, "SOCK_RDM"),
    (5, "SOCK_SEQPACKET"),
    (6, "SOCK_DCCP"),
    (10, "SOCK_PACKET"),
];

fn within_any(path: &str, set: &std::collections::BTreeSet<String>) -> bool {
    set.contains(path) || cofferdam_policy::paths::ancestors(path).any(|a| set.contains(a))
}

/// The paths that a traced call is about, and whether it wants to change them. Of a call with one path init tells both
/// the name itself and what it leads to.
fn asked<'e>(operation: &str, e: &'e NotifiedCall) -> Vec<(&'e [u8], bool)> {
    let [one, two] = [e.paths[0].as_slice(), e.paths[1].as_slice()];
    let list = match operation {
        "symlink" | "symlinkat" => vec![(two, true)], // the first is the text of the link, and names nothing yet
        "link" | "linkat" => vec![(one, false), (two, true)],
        "rename" | "renameat" | "renameat2" => vec![(one, true), (two, true)],
        _ => vec![(if follows(operation, &e.args) { two } else { one }, writes(operation, &e.args))],
    };
    list.into_iter().filter(|(path, _)| !path.is_empty()).collect()
}

/// Whether a call goes on to what a symbolic link at its path's end leads to.
fn follows(operation: &str, args: &[u64; 6]) -> bool {
    const NOFOLLOW: u64 = if cfg!(target_arch = "aarch64") { 0o100000 } else { 0o400000 };
    const EXCLUSIVE: u64 = 0o300; // O_CREAT | O_EXCL
    let open = |flags: u64| flags & NOFOLLOW == 0 && flags & EXCLUSIVE != EXCLUSIVE;
    let at = |flags: u64| flags & 0x100 == 0; // AT_SYMLINK_NOFOLLOW
    match operation {
        "open" => open(args[1]),
        "openat" => open(args[2]),
        "newfstatat" | "utimensat" | "faccessat2" | "fchmodat2" => at(args[3]),
        "statx" | "setxattrat" | "getxattrat" | "listxattrat" | "removexattrat" => at(args[2]),
        "file_getattr" | "file_setattr" => at(args[4]),
        "inotify_add_watch" => args[2] & 0x0200_0000 == 0, // IN_DONT_FOLLOW
        "fchownat" => at(args[4]),
        "mkdir" | "mkdirat" | "mknod" | "mknodat" | "unlink" | "unlinkat" | "rmdir" | "lchown" | "lstat"
        | "readlink" | "readlinkat" | "lgetxattr" | "lsetxattr" | "llistxattr" | "lremovexattr" => false,
        _ => true,
    }
}

/// Whether the policy refuses a traced call on this path; the path as the policy sees it, and the field.
fn refused(write: bool, path: &[u8], paths: &Paths<'_>) -> Option<(Vec<u8>, String)> {
    let bytes = lexical(path)?;
    // What is not UTF-8 is on no list of the policy's, but may lie in a place that is.
    let path = String::from_utf8_lossy(&bytes).into_owned();
    if within_any(&path, paths.denied) {
        return Some((bytes, "$.filesystem.deny".into()));
    }
    if !write {
        return None;
    }
    if within_any(&path, paths.protected) {
        return Some((bytes, "$.filesystem.protected".into()));
    }
    let place = paths.view.covering(&path)?;
    let device = path.starts_with("/dev/") || path.starts_with("/proc/self/fd/");
    (!place.writable && !device).then(|| (bytes, "$.filesystem.mounts".into()))
}

/// `.` and `..` taken out by text: the trace reads arguments, it does not walk.
fn lexical(path: &[u8]) -> Option<Vec<u8>> {
    if !path.starts_with(b"/") {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            p => parts.push(p),
        }
    }
    Some([b"/", &parts.join(&b'/')[..]].concat())
}

fn writes(operation: &str, args: &[u64; 6]) -> bool {
    let flags = match operation {
        "open" => args[1],
        "openat" => args[2],
        "creat" | "mkdir" | "mkdirat" | "mknod" | "mknodat" | "rename" | "renameat" | "renameat2" | "link"
        | "linkat" | "symlink" | "symlinkat" | "unlink" | "unlinkat" | "rmdir" | "truncate" | "chmod" | "fchmodat"
        | "fchmodat2" | "chown" | "lchown" | "fchownat" | "utime" | "utimes" | "utimensat" | "futimesat"
        | "setxattr" | "lsetxattr" | "setxattrat" | "removexattr" | "lremovexattr" | "removexattrat"
        | "file_setattr" => return true,
        _ => return false,
    };
    flags & 3 != 0 || flags & 0o1100 != 0
}

/// A path that was `read`, escaped, for an event, which has no room for a longer one. Different paths give different text up to the length that is kept: a byte
/// that is no UTF-8 is `\xff`, and a backslash of the name's own is doubled.
fn path(path: &[u8], read: &[u8]) -> String {
    // The last character may be cut in the middle.
    let whole = match std::str::from_utf8(path) {
        Err(error) if error.error_len().is_none() && read.len() >= EVENT_PATH => &path[..error.valid_up_to()],
        _ => path,
    };
    let mut spelled = String::new();
    for chunk in whole.utf8_chunks() {
        spelled += &chunk.valid().replace('\\', "\\\\");
        chunk.invalid().iter().for_each(|byte| spelled += &format!("\\x{byte:02x}"));
    }
    let text = escape(spelled.as_bytes());
    if read.len() >= EVENT_PATH && !text.ends_with('…') { text + "…" } else { text }
}

/// The destination of a connection, as a person writes it.
fn destination(event: &network::NetworkEvent) -> Option<String> {
    let host = match (&event.host, event.address) {
        (Some(host), _) => host.clone(),
        (None, Some(IpAddr::V6(v6))) if event.port.is_some() => format!("[{v6}]"),
        (None, Some(address)) => address.to_string(),
        (None, None) => return None,
    };
    Some(match event.port {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_do_not_survive() {
        assert_eq!(escape(b"a\x1b[2Jb\x7f"), "a\\u{1b}[2Jb\\u{7f}");
        assert_eq!(escape("\u{61c}\u{202e}a\u{200b}b\u{2028}".as_bytes()), "\\u{61c}\\u{202e}a\\u{200b}b\\u{2028}");
        assert_eq!(escape("it’s “é” – …".as_bytes()), "it’s “é” – …", "what people write stays");
        assert_eq!(escape(&[b'x'; 256]), "x".repeat(256));
        assert_eq!(escape(&[b'x'; 257]), "x".repeat(256) + "…", "what was cut says so");
        let long = [b'y'; EVENT_PATH];
        assert_eq!((path(b"/y", &long), path(b"/y", b"/./y")), ("/y…".into(), "/y".into()));
        assert_eq!((path(b"/y\xc3", &long), path(b"/y\xc3", b"/y\xc3")), ("/y…".into(), "/y\\xc3".into()));
    }

    #[test]
    fn no_two_paths_are_one_object() {
        let names =
            [&b"/\xff"[..], b"/\xfe", b"/\xc3(", b"/\xef\xbf\xbd", b"/\\xff", b"/n\nl", b"/n\\nl", b"/n\\\nl", b"/a"];
        let objects: std::collections::BTreeSet<String> = names.iter().map(|name| path(name, name)).collect();
        assert_eq!(objects.len(), names.len(), "{objects:?}");
        assert_eq!(path(b"/n\nl\xff", b"/n"), "/n\\nl\\xff");
        assert_eq!(path(b"/n\\nl", b"/n"), "/n\\\\nl");
        assert_eq!(path("/é".as_bytes(), b"/n"), "/é");
        assert_eq!(lexical(b"/a/../\xff/./b").unwrap(), b"/\xff/b");
    }

    #[test]
    fn sockets_are_named_or_numbered_where_there_is_no_name() {
        assert_eq!(socket(1, 1, 0), "AF_UNIX, SOCK_STREAM");
        assert_eq!(socket(16, 3, 15), "AF_NETLINK, SOCK_RAW, protocol 15");
        assert_eq!(socket(99, 9, 0), "family 99, type 9");
    }

    #[test]
    fn the_same_thing_counts_up_and_a_flood_of_one_operation_hides_no_other() {
        let mut log = Log::default();
        let v = |operation: &str, object: usize| Violation {
            operation: operation.into(),
            object: Some(object.to_string()),
            field: "f".into(),
            evidence: Evidence::Kernel,
            pid: 1,
            count: 1,
            aggregated: false,
        };
        log.add(v("ptrace", 0));
        log.add(v("ptrace", 0));
        assert_eq!(log.violations().next().map(|v| v.count), Some(2));
        (0..1000).for_each(|i| log.add(v("ptrace", i)));
        assert!(log.overflowed);
        log.add(v("mount", 7));
        let list = log.into_violations();
        assert_eq!(list.len(), ROOM.own + ROOM.shared + 2);
        assert_eq!(list.last(), Some(&v("mount", 7)));
        let rest: Vec<_> = list.iter().filter(|v| v.aggregated).map(|v| (v.object.as_deref(), v.pid)).collect();
        assert_eq!(rest, [(None, 0)]);
        assert_eq!(list.iter().map(|v| v.count).sum::<u64>(), 1003);
    }

    #[test]
    fn destinations_read_as_a_person_writes_them() {
        let at = |host: Option<&str>, address: Option<&str>, port| {
            let (host, address) = (host.map(str::to_owned), address.map(|a| a.parse().unwrap()));
            destination(&network::NetworkEvent {
                host,
                address,
                port,
                ..network::NetworkEvent::new(network::NetworkKind::Refused, network::NetworkVia::Connect)
            })
        };
        assert_eq!(at(Some("a.example"), Some("192.0.2.1"), Some(22)).as_deref(), Some("a.example:22"));
        assert_eq!(at(Some("a.example"), None, None).as_deref(), Some("a.example"));
        assert_eq!(at(None, Some("2001:db8::1"), Some(22)).as_deref(), Some("[2001:db8::1]:22"));
        assert_eq!(at(None, Some("192.0.2.1"), Some(22)).as_deref(), Some("192.0.2.1:22"));
        assert_eq!(at(None, None, Some(22)), None);
    }
}
