//! The plan of one sandbox: what init does, as data, and its encoding into the block that init reads.
//!
//! Pure: no call here touches the system. The vectors keep their order; init performs mounts in that order.

use std::collections::BTreeSet;

use crate::capture::Capture;
use crate::plan_block::Block;
use crate::wire::{Header, LandRule, MAGIC, MountOp, PathGuard, Ref, Rlimit, fd, flag, op, op_flag};

/// Mount attributes, as `mount_setattr(2)` names them.
pub mod attr {
    /// Read-only.
    pub const RDONLY: u64 = 1;
    /// No setuid bits, no file capabilities.
    pub const NOSUID: u64 = 2;
    /// No devices.
    pub const NODEV: u64 = 4;
    /// No execution.
    pub const NOEXEC: u64 = 8;
}

/// One mount step; see `wire::op` for what each does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountStep {
    /// The root is a clone of the host's tree.
    RootHost {
        /// `attr` bits, set on every mount of it.
        attrs: u64,
    },
    /// The root is the scratch directory `rootfs`, read-only.
    RootScratch,
    /// The root is a directory.
    RootDirectory {
        /// Where it comes from.
        source: MountSource,
        /// `attr` bits.
        attrs: u64,
    },
    /// A bind mount.
    Bind {
        /// Where it comes from.
        source: MountSource,
        /// Path inside.
        target: String,
        /// `attr` bits.
        attrs: u64,
        /// Nothing to do when source or target is missing.
        optional: bool,
    },
    /// A device of the host's.
    Device {
        /// Its name in /dev, there and inside.
        name: String,
        /// `attr` bits, the same for every device.
        attrs: u64,
    },
    /// A directory or file of the scratch file system.
    Scratch {
        /// Name inside the scratch.
        name: String,
        /// Path inside.
        target: String,
        /// `attr` bits.
        attrs: u64,
        /// Nothing to do when the target is missing.
        optional: bool,
    },
    /// A tmpfs of its own.
    Tmpfs {
        /// Path inside.
        target: String,
        /// Bytes.
        bytes: u64,
        /// Permissions.
        mode: u32,
        /// `attr` bits.
        attrs: u64,
        /// Its descriptor is sent to the owner, with a directory of this name in it.
        export: Option<String>,
    },
    /// A mount point in such a tmpfs. One that is there stays.
    Point {
        /// The directory that it is in: path inside.
        directory: String,
        /// Its name there.
        name: String,
        /// Whether it is a directory, and not a file.
        is_directory: bool,
    },
    /// procfs, read-only unless it says otherwise.
    Proc {
        /// Path inside.
        target: String,
        /// Processes can write what is their own there, as id maps are.
        writable: bool,
    },
    /// A devpts instance.
    Devpts {
        /// Path inside.
        target: String,
    },
    /// A directory of the scratch.
    Mkdir {
        /// Name inside the scratch.
        name: String,
        /// Permissions.
        mode: u32,
    },
    /// A symbolic link of the scratch.
    Symlink {
        /// Name inside the scratch.
        name: String,
        /// What it says.
        says: String,
    },
    /// A file of the scratch.
    File {
        /// Name inside the scratch.
        name: String,
        /// Its text.
        text: String,
        /// Permissions.
        mode: u32,
    },
    /// Copy-on-write.
    Overlay {
        /// What lies below.
        source: MountSource,
        /// Path inside.
        target: String,
        /// `attr` bits.
        attrs: u64,
        /// Layer bytes.
        bytes: u64,
        /// Layer inodes.
        inodes: u64,
    },
    /// Hide a path.
    Mask {
        /// Path inside.
        target: String,
        /// Nothing to do when it is missing.
        optional: bool,
    },
    /// Bind a path onto itself.
    SelfBind {
        /// Path inside.
        target: String,
        /// `attr` bits.
        attrs: u64,
        /// Nothing to do when it is missing.
        optional: bool,
    },
    /// Hide many names of a read-only tree by one layer.
    Whiteout {
        /// The layer's directory on the host.
        layer: MountSource,
        /// Path inside.
        target: String,
        /// `attr` bits.
        attrs: u64,
    },
}

impl MountStep {
    /// The path inside that something is mounted on.
    pub fn target(&self) -> Option<&str> {
        match self {
            MountStep::Bind { target, .. }
            | MountStep::Scratch { target, .. }
            | MountStep::Tmpfs { target, .. }
            | MountStep::Proc { target, .. }
            | MountStep::Devpts { target }
            | MountStep::Overlay { target, .. }
            | MountStep::Mask { target, .. }
            | MountStep::SelfBind { target, .. }
            | MountStep::Whiteout { target, .. } => Some(target),
            // On files of the scratch's own /dev.
            MountStep::Device { .. } => None,
            MountStep::RootHost { .. } | MountStep::RootScratch | MountStep::RootDirectory { .. } => None,
            MountStep::Mkdir { .. } | MountStep::Point { .. } | MountStep::Symlink { .. } | MountStep::File { .. } => {
                None
            }
        }
    }
}

/// Where a mount comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountSource {
    /// A path of the host without symbolic links, with the identity it had when it was looked at.
    Path {
        /// Absolute path.
        path: String,
        /// `(device, inode)`; `None` for what only the system's administrator can replace.
        identity: Option<(u64, u64)>,
    },
    /// A path of the system's own whose links may be followed, such as a device.
    System(String),
    /// A detached mount prepared by the owner: index into the launch's extra descriptors.
    Prepared(usize),
}

/// A directory and the names that must not come into being in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardDir {
    /// Path inside.
    pub parent: String,
    /// Names, any order.
    pub names: Vec<String>,
    /// Those of them that the policy denies; it protects the others. Only decides which line of it a refusal names.
    pub denied: BTreeSet<String>,
}

/// A Landlock rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// Path inside.
    pub path: String,
    /// Rights.
    pub access: u64,
    /// Skip when the path is missing.
    pub optional: bool,
    /// `(device, inode)` that must be there when the rule is made, device 0 for any; `None` where whatever is there may be
    /// meant.
    pub identity: Option<(u64, u64)>,
}

/// What Landlock handles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LandlockHandled {
    /// File system rights handled.
    pub handled_fs: u64,
    /// Network rights handled, all denied.
    pub handled_net: u64,
    /// Scopes.
    pub scoped: u64,
    /// Rules.
    pub rules: Vec<PathRule>,
}

/// What a session's program gets beside its standard streams: the one exception from having nothing else open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionChannel {
    /// Index of the channel into the launch's extra descriptors.
    pub first: u16,
    /// How many extra descriptors after it the program gets as well, from `wire::fd::FIRST_EXTRA` on.
    pub more: u16,
    /// Whether the channel is the program's standard input and output, instead of its descriptor 3.
    pub stdio: bool,
}

/// Everything that init does for one sandbox.
#[derive(Debug, Clone, Default)]
pub struct InitPlan {
    /// `wire::flag` bits, but those that follow from the fields below.
    pub flags: u32,
    /// Ids inside: user and group.
    pub ids_in: (u32, u32),
    /// Ids outside: user and group.
    pub ids_out: (u32, u32),
    /// Host name.
    pub hostname: String,
    /// Argument vector.
    pub argv: Vec<String>,
    /// `NAME=VALUE`.
    pub envp: Vec<String>,
    /// Where the program is looked for, in order.
    pub programs: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// `(resource, soft, hard)`.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Mounts, in order.
    pub mounts: Vec<MountStep>,
    /// How many of them, from the first on, have targets whose paths only the system's administrator can have made.
    pub system_mounts: usize,
    /// Landlock, behind the mounts.
    pub landlock: Option<LandlockHandled>,
    /// Without `landlock`: what has to be at these paths, by its identity, or the run fails. Rights do not count.
    pub checked: Vec<PathRule>,
    /// Classic BPF, 8 bytes per instruction; empty for none.
    pub filter: Vec<u64>,
    /// The classifier of notified calls, likewise.
    pub classifier: Vec<u64>,
    /// Names that must not come into being.
    pub guards: Vec<GuardDir>,
    /// Scratch bytes.
    pub scratch_bytes: u64,
    /// Scratch inodes.
    pub scratch_inodes: u64,
    /// Extra descriptors, first and number, that are `tasks` files of cgroups (version 1) for init to join.
    pub joins: (u16, u16),
    /// What a session's program gets beside its standard streams.
    pub channel: Option<SessionChannel>,
    /// Wall time from the program's start, nanoseconds.
    pub wall_ns: u64,
    /// The program's terminal.
    pub terminal: Option<InitTerminal>,
    /// What makes every connection in the network namespace arrive at sockets of the owner's.
    pub capture: Option<Capture>,
}

/// A pseudo-terminal that init makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitTerminal {
    /// Its height.
    pub rows: u16,
    /// Its width.
    pub columns: u16,
    /// Whether standard input is a stream of its own, and not the terminal.
    pub beside_input: bool,
}

impl InitPlan {
    /// The block that init reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = Block::new(size_of::<Header>(), 4096 + self.filter.len() * 8);
        let zero = b.text(""); // no offset is ever 0
        let mut h = Header { magic: MAGIC, flags: self.flags, ..Header::default() };
        (h.uid_in, h.gid_in) = self.ids_in;
        (h.uid_out, h.gid_out) = self.ids_out;
        h.hostname = Ref { off: b.text(&self.hostname), len: self.hostname.len() as u32 };
        h.cwd = Ref { off: b.text(&self.cwd), len: self.cwd.len() as u32 };
        h.argv = b.texts(&self.argv);
        h.envp = b.texts(&self.envp);
        h.programs = b.texts(&self.programs);
        h.rlimits = self.encode_rlimits(&mut b);
        h.mounts = self.encode_mounts(&mut b, zero);
        if let Some(l) = &self.landlock {
            h.flags |= flag::LANDLOCK;
            (h.handled_fs, h.handled_net, h.scoped) = (l.handled_fs, l.handled_net, l.scoped);
            h.land_rules = encode_rules(&mut b, &l.rules);
        } else {
            h.land_rules = encode_rules(&mut b, &self.checked);
        }
        if !self.filter.is_empty() {
            h.flags |= flag::FILTER;
            h.filter = Ref { off: b.longs(&self.filter), len: self.filter.len() as u32 };
        }
        if !self.classifier.is_empty() {
            h.flags |= flag::LISTENER;
            h.classifier = Ref { off: b.longs(&self.classifier), len: self.classifier.len() as u32 };
        }
        h.guards = self.encode_guards(&mut b);
        if let Some(capture) = &self.capture {
            h.flags |= flag::CAPTURED;
            (h.messages, h.sockets) = capture.encode(&mut b);
        }
        (h.scratch_bytes, h.scratch_inodes) = (self.scratch_bytes, self.scratch_inodes);
        h.wall_ns = self.wall_ns;
        (h.join_first, h.join_count) = (fd::FIRST_EXTRA as u16 + self.joins.0, self.joins.1);
        if let Some(channel) = self.channel {
            (h.channel, h.inherited) = (fd::FIRST_EXTRA as u16 + channel.first, channel.more);
            h.flags |= if channel.stdio { flag::CHANNEL_STDIO } else { 0 };
        }
        if let Some(InitTerminal { rows, columns, beside_input }) = self.terminal {
            h.flags |= flag::TERMINAL | if beside_input { flag::TERMINAL_BESIDE_INPUT } else { 0 };
            (h.rows, h.columns) = (rows, columns);
        }
        b.align();
        b.longs(&[0]); // the block ends in NUL: every string in it ends inside
        h.total = b.len() as u32;
        b.finish(&header_bytes(&h))
    }

    fn encode_rlimits(&self, b: &mut Block) -> Ref {
        let list: Vec<u64> = self.rlimits.iter().flat_map(|&(r, soft, hard)| [u64::from(r), soft, hard]).collect();
        Ref { off: b.longs(&list), len: self.rlimits.len() as u32 }
    }

    fn encode_mounts(&self, b: &mut Block, zero: u32) -> Ref {
        let mut ops = Vec::with_capacity(self.mounts.len());
        for (i, s) in self.mounts.iter().enumerate() {
            let mut op = encode_step(b, s, zero);
            op.flags |= if i < self.system_mounts { op_flag::SYSTEM } else { 0 };
            ops.push(op);
        }
        let list: Vec<u64> = ops.iter().flat_map(pack_mount).collect();
        Ref { off: b.longs(&list), len: ops.len() as u32 }
    }

    fn encode_guards(&self, b: &mut Block) -> Ref {
        let mut list = Vec::new();
        for g in &self.guards {
            let mut names: Vec<&String> = g.names.iter().collect();
            names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
            let offsets: Vec<u32> = names.iter().map(|n| b.text(n)).collect();
            let index = b.words(&offsets);
            let denied: Vec<u32> = names.iter().map(|n| u32::from(g.denied.contains(*n))).collect();
            let denied = b.words(&denied).off;
            let parent = b.text(&g.parent);
            let guard = PathGuard { parent, denied, count: index.len, index: index.off };
            list.push(u64::from(guard.parent) | u64::from(guard.denied) << 32);
            list.push(u64::from(guard.count) | u64::from(guard.index) << 32);
        }
        Ref { off: b.longs(&list), len: self.guards.len() as u32 }
    }
}

fn encode_step(b: &mut Block, s: &MountStep, zero: u32) -> MountOp {
    let mut m = MountOp { fd: -1, src: zero, dst: zero, ..MountOp::default() };
    m.src = 0;
    m.dst = 0;
    let optional = |yes: bool| if yes { op_flag::OPTIONAL } else { 0 };
    match s {
        MountStep::RootHost { attrs } => (m.kind, m.a) = (op::ROOT_HOST, *attrs),
        MountStep::RootScratch => (m.kind, m.a) = (op::ROOT_SCRATCH, attr::RDONLY | attr::NOSUID | attr::NODEV),
        MountStep::RootDirectory { source, attrs } => {
            (m.kind, m.a) = (op::ROOT_DIR, *attrs);
            set_source(b, &mut m, source);
        }
        MountStep::Bind { source, target, attrs, optional: o } => {
            (m.kind, m.a, m.dst) = (op::BIND, *attrs, b.text(target));
            set_source(b, &mut m, source);
            m.flags |= optional(*o);
        }
        MountStep::Device { name, attrs } => {
            (m.kind, m.a, m.src, m.dst) = (op::DEVICE, *attrs, b.text(name), b.text(&format!("/dev/{name}")));
        }
        MountStep::Scratch { name, target, attrs, optional: o } => {
            (m.kind, m.a, m.src, m.dst) = (op::SCRATCH, *attrs, b.text(name), b.text(target));
            m.flags |= optional(*o);
        }
        MountStep::Tmpfs { target, bytes, mode, attrs, export } => {
            (m.kind, m.a, m.b, m.c, m.dst) = (op::TMPFS, *attrs, *bytes, u64::from(*mode), b.text(target));
            if let Some(directory) = export {
                m.flags |= op_flag::EXPORT;
                m.src = b.text(directory);
            }
        }
        MountStep::Proc { target, writable } => {
            let attrs = attr::NOSUID | attr::NODEV | attr::NOEXEC | if *writable { 0 } else { attr::RDONLY };
            (m.kind, m.a, m.dst) = (op::PROC, attrs, b.text(target));
        }
        MountStep::Devpts { target } => (m.kind, m.dst) = (op::DEVPTS, b.text(target)),
        MountStep::Mkdir { name, mode } => (m.kind, m.src, m.c) = (op::MKDIR, b.text(name), u64::from(*mode)),
        MountStep::Point { directory, name, is_directory } => {
            (m.kind, m.src, m.dst, m.c) = (op::POINT, b.text(name), b.text(directory), u64::from(*is_directory));
        }
        MountStep::Symlink { name, says } => (m.kind, m.src, m.dst) = (op::SYMLINK, b.text(name), b.text(says)),
        MountStep::File { name, text, mode } => {
            (m.kind, m.src, m.dst, m.c) = (op::FILE, b.text(name), b.text(text), u64::from(*mode));
        }
        MountStep::Overlay { source, target, attrs, bytes, inodes } => {
            (m.kind, m.a, m.dst) = (op::OVERLAY, *attrs, b.text(target));
            set_source(b, &mut m, source);
            (m.d, m.e) = (*bytes, *inodes); // b and c are the source's identity
        }
        MountStep::Mask { target, optional: o } => {
            (m.kind, m.dst) = (op::MASK, b.text(target));
            m.flags |= optional(*o);
        }
        MountStep::SelfBind { target, attrs, optional: o } => {
            (m.kind, m.a, m.dst) = (op::SELF_BIND, *attrs, b.text(target));
            m.flags |= op_flag::RECURSIVE | optional(*o);
        }
        MountStep::Whiteout { layer, target, attrs } => {
            (m.kind, m.a, m.dst) = (op::WHITEOUT, *attrs, b.text(target));
            set_source(b, &mut m, layer);
        }
    }
    m
}

fn set_source(b: &mut Block, m: &mut MountOp, source: &MountSource) {
    m.flags |= op_flag::RECURSIVE;
    match source {
        MountSource::Path { path, identity } => {
            m.src = b.text(path);
            if let Some((dev, ino)) = identity {
                (m.b, m.c) = (*dev, *ino);
            }
        }
        MountSource::System(path) => {
            m.src = b.text(path);
            m.flags |= op_flag::FOLLOW;
        }
        MountSource::Prepared(index) => m.fd = fd::FIRST_EXTRA + *index as i32,
    }
}

fn encode_rules(b: &mut Block, rules: &[PathRule]) -> Ref {
    let mut list = Vec::new();
    for r in rules {
        let path = b.text(&r.path);
        let (dev, ino) = r.identity.unwrap_or_default();
        let flags = if r.optional { u32::from(op_flag::OPTIONAL) } else { 0 };
        let rule = LandRule { access: r.access, path, flags, dev, ino };
        list.extend([rule.access, u64::from(rule.path) | u64::from(rule.flags) << 32, rule.dev, rule.ino]);
    }
    Ref { off: b.longs(&list), len: rules.len() as u32 }
}

// The structures of `wire` are `repr(C)` without padding, made of little pieces; they are put together here so that
// encoding needs no unsafe code. A test holds the sizes.

fn pack_mount(m: &MountOp) -> [u64; 7] {
    let head = u64::from(m.kind) | u64::from(m.flags) << 16 | u64::from(m.fd as u32) << 32;
    [head, u64::from(m.src) | u64::from(m.dst) << 32, m.a, m.b, m.c, m.d, m.e]
}

fn header_bytes(h: &Header) -> Vec<u8> {
    let mut out = Vec::with_capacity(size_of::<Header>());
    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
    let r = |r: Ref| u64::from(r.off) | u64::from(r.len) << 32;
    let words = [
        h.magic,
        pair(h.total, h.flags),
        pair(h.uid_in, h.gid_in),
        pair(h.uid_out, h.gid_out),
        r(h.hostname),
        r(h.argv),
        r(h.envp),
        r(h.programs),
        r(h.cwd),
        r(h.rlimits),
        r(h.mounts),
        r(h.land_rules),
        h.handled_fs,
        h.handled_net,
        h.scoped,
        r(h.filter),
        r(h.classifier),
        r(h.guards),
        h.scratch_bytes,
        h.scratch_inodes,
        h.wall_ns,
        u64::from(h.rows) | u64::from(h.columns) << 16 | u64::from(h.join_first) << 32 | u64::from(h.join_count) << 48,
        u64::from(h.reserved) | u64::from(h.channel) << 32 | u64::from(h.inherited) << 48,
        r(h.messages),
        r(h.sockets),
    ];
    for w in words {
        // Little-endian machines only, which both supported architectures are; `to_ne_bytes` of the packed words then
        // gives the fields in memory order.
        out.extend_from_slice(&w.to_ne_bytes());
    }
    out
}

const _: () = assert!(cfg!(target_endian = "little"));
const _: () = assert!(size_of::<Header>() == 25 * 8);
const _: () = assert!(size_of::<MountOp>() == 56);
const _: () = assert!(size_of::<LandRule>() == 32);
const _: () = assert!(size_of::<PathGuard>() == 16);
const _: () = assert!(size_of::<Rlimit>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_magic_and_length_first_and_ends_in_nul() {
        let plan = InitPlan { argv: vec!["true".into()], cwd: "/".into(), ..InitPlan::default() };
        let block = plan.encode();
        assert_eq!(block[..8], MAGIC.to_ne_bytes());
        assert_eq!(u32::from_ne_bytes(block[8..12].try_into().unwrap()) as usize, block.len());
        assert_eq!(block.last(), Some(&0));
    }

    #[test]
    fn guard_names_are_sorted_by_bytes_for_the_binary_search() {
        let names = vec!["b".into(), "\u{e9}".into(), "a".into()];
        let guards = vec![GuardDir { parent: "/w".into(), names, denied: BTreeSet::new() }];
        let block = InitPlan { guards, ..InitPlan::default() }.encode();
        let text = String::from_utf8_lossy(&block).into_owned();
        let at = |s: &str| text.find(&format!("{s}\0")).unwrap();
        assert!(at("a") < at("b") && at("b") < at("\u{e9}"));
    }
}
