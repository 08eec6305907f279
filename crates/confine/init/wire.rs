//! The plan as it crosses to init: one flat block of plain data, written by the parent, read in place by init.
//!
//! Compiled twice, into the library (which encodes) and into the init program (which reads), so that the two can
//! never disagree. Offsets count from the start of the block; strings end in NUL. Holds no logic but the layout.

#[path = "failure_points.rs"]
pub mod step;

/// First word of every plan; changes with the layout.
pub const MAGIC: u64 = 0x0008_6d61_6472_6663;

/// How many pseudo-terminals a sandbox may have open. All containers of a machine share a few thousand, which no cgroup counts,
/// and the kernel charges their buffers to no memory cgroup.
pub const TERMINALS: &core::ffi::CStr = c"64";

/// Descriptors that init finds open when it starts; everything else is closed.
pub mod fd {
    /// The plan, once it has come.
    pub const PLAN: i32 = 3;
    /// Readable (end of file) when the owner is gone.
    pub const LIFELINE: i32 = 4;
    /// Status records to the supervisor, a SOCK_SEQPACKET socket.
    pub const STATUS: i32 = 5;
    /// Event records to the supervisor, a non-blocking SOCK_SEQPACKET socket.
    pub const EVENTS: i32 = 6;
    /// Control messages from the owner: the plan with its descriptors, and the release. The last of the fixed ones.
    pub const SYNC: i32 = 7;
    /// Where the program finds its session's channel: the plan's place, which is free by then.
    pub const CHANNEL: i32 = PLAN;
    /// How many a container's init receives from its owner: the standard streams, and up to `SYNC`.
    pub const INITIAL_COUNT: usize = SYNC as usize + 1;
    /// The first of the plan's own descriptors.
    pub const FIRST_EXTRA: i32 = 16;
    /// Where the program sits while `spawn` is false, unless the hard limit of open files is lower.
    pub const EXEC: i32 = 4095;

    /// The lowest hard limit of open files that has room for the program beside what init holds.
    pub const LEAST_HARD: u64 = 64;

    /// Where the program sits while `spawn` is false: the last number below this hard limit of open files, which the
    /// owner and init share, and no more than [`EXEC`]. Inside another sandbox the limit is what that one's policy leaves.
    pub const fn exec(hard: u64) -> i32 {
        if hard > EXEC as u64 { EXEC } else { hard as i32 - 1 }
    }
}

/// A run of `len` items (or bytes) at `off`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Ref {
    /// Byte offset in the block.
    pub off: u32,
    /// Number of items.
    pub len: u32,
}

/// What applies to the whole run.
pub mod flag {
    /// New namespaces exist: maps, mounts, pivot and host name are to be done.
    pub const JAIL: u32 = 1;
    /// The supervisor writes the id maps (it is privileged); else init writes its own.
    pub const MAPS_BY_OWNER: u32 = 2;
    /// A control message says when the owner has written the id maps.
    pub const SYNC: u32 = 4;
    /// Bring the loopback interface up.
    pub const LOOPBACK: u32 = 8;
    /// No child process: one exec, of the program on a high descriptor.
    pub const NO_SPAWN: u32 = 16;
    /// A pseudo-terminal of the sandbox's own becomes 0, 1 and 2.
    pub const TERMINAL: u32 = 32;
    /// With `TERMINAL`: it becomes 1 and 2, and 0 stays what it is.
    pub const TERMINAL_BESIDE_INPUT: u32 = 131_072;
    /// The filter asks for a notification listener.
    pub const LISTENER: u32 = 64;
    /// The network namespace is empty: there is nowhere to go.
    pub const NO_NETWORK: u32 = 128;
    /// Any violation ends the run.
    pub const TERMINATE: u32 = 256;
    /// Without namespaces: switch to the outside ids (the owner is privileged).
    pub const DROP_IDS: u32 = 512;
    /// Nested user namespaces must be switched off, or the run fails.
    pub const NO_USERNS: u32 = 1024;
    /// A filter is present.
    pub const FILTER: u32 = 2048;
    /// Landlock is to be applied.
    pub const LANDLOCK: u32 = 4096;
    /// A network namespace is inherited and must not be looked into (nothing to do for it).
    pub const POOLED_NET: u32 = 8192;
    /// Calls that init performs itself are reported as well, as traced ones.
    pub const TRACE: u32 = 16384;
    /// The sandbox is staged: everything but the program is done; then another plan comes, whose program is run.
    pub const HOLD: u32 = 32768;
    /// The network namespace holds the loopback interface alone.
    pub const ONLY_LOOPBACK: u32 = 65536;
    /// The session's channel is the program's standard input and output.
    pub const CHANNEL_STDIO: u32 = 262_144;
    /// Namespaces may be made inside, so many of each kind.
    pub const NESTED: u32 = 524_288;
    /// With `NESTED`: but no cgroup namespaces, through which the run's own cgroup could be mounted and written.
    pub const NO_CGROUP_NAMESPACES: u32 = 1_048_576;
    /// Whatever the program connects to arrives at the owner's sockets: datagrams go nowhere but to the resolver.
    pub const CAPTURED: u32 = 2_097_152;
    /// The program is started before its run, and waits for its input: wall time counts from the release that follows.
    pub const EARLY: u32 = 4_194_304;
    /// Init is the first process of a container: a container runtime has made the namespaces and mounts before it starts.
    pub const CONTAINER: u32 = 8_388_608;
    /// After the end init waits until the owner has read what its cgroup counted, which goes with init.
    pub const LINGER: u32 = 16_777_216;
    /// The program is another user than init, by the ids outside; init becomes the user of the ids inside and keeps what it
    /// takes to end the program.
    pub const SEPARATE_USER: u32 = 33_554_432;
}

/// Most descriptors in one control message; the kernel takes 253 (`unix(7)`).
pub const CONTROL_FDS: usize = 200;

/// Most sockets in one control message of init's.
pub const CONTROL_SOCKETS: usize = 64;

/// The content of a control message from the owner, and of init's one answer, which brings the sockets of a capture.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct ControlMessage {
    /// Descriptors of the plan in all, the plan's own among them; they come in as many messages as it takes. 0: the release. In
    /// init's answer the sockets in all, likewise.
    pub total: u32,
}

/// The start of the block.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Header {
    /// `MAGIC`.
    pub magic: u64,
    /// Length of the block.
    pub total: u32,
    /// `flag` bits.
    pub flags: u32,
    /// User id inside.
    pub uid_in: u32,
    /// Group id inside.
    pub gid_in: u32,
    /// User id outside.
    pub uid_out: u32,
    /// Group id outside.
    pub gid_out: u32,
    /// Host name bytes.
    pub hostname: Ref,
    /// `u32` offsets of argument strings.
    pub argv: Ref,
    /// `u32` offsets of `NAME=VALUE` strings.
    pub envp: Ref,
    /// `u32` offsets of paths at which the program is looked for, in order.
    pub programs: Ref,
    /// Working directory string.
    pub cwd: Ref,
    /// `Rlimit` items.
    pub rlimits: Ref,
    /// `MountOp` items.
    pub mounts: Ref,
    /// `LandRule` items.
    pub land_rules: Ref,
    /// `u16` TCP ports that may be bound or connected are not used: network is held elsewhere.
    pub handled_fs: u64,
    /// Landlock network rights handled (all denied).
    pub handled_net: u64,
    /// Landlock scopes.
    pub scoped: u64,
    /// Classic BPF instructions, 8 bytes each.
    pub filter: Ref,
    /// The classifier of notified calls, instructions like the filter's; empty when the filter never notifies.
    pub classifier: Ref,
    /// `PathGuard` items: names that must not come into being.
    pub guards: Ref,
    /// Scratch file system: bytes.
    pub scratch_bytes: u64,
    /// Scratch file system: inodes.
    pub scratch_inodes: u64,
    /// Wall time from the program's start, nanoseconds.
    pub wall_ns: u64,
    /// Terminal rows.
    pub rows: u16,
    /// Terminal columns.
    pub columns: u16,
    /// First descriptor of the cgroup `tasks` files that init joins.
    pub join_first: u16,
    /// How many there are.
    pub join_count: u16,
    /// Padding.
    pub reserved: u32,
    /// The session's channel, 0 for none: it becomes `fd::CHANNEL` in the program.
    pub channel: u16,
    /// How many of the descriptors that follow the channel the program gets as well, from `fd::FIRST_EXTRA` on.
    pub inherited: u16,
    /// `WireMessages` items, before any socket is made.
    pub messages: Ref,
    /// `WireSocket` items, whose descriptors are sent to the owner in this order.
    pub sockets: Ref,
}

/// Netlink messages that are sent in one go.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct WireMessages {
    /// Netlink protocol, such as `NETLINK_ROUTE`.
    pub protocol: u32,
    /// Number of the first one that is answered.
    pub first: u32,
    /// How many are answered: those that ask for it.
    pub count: u32,
    /// Padding.
    pub reserved: u32,
    /// The messages, one after the other.
    pub bytes: Ref,
}

/// A socket to be made in the sandbox's network for the owner.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct WireSocket {
    /// `AF_*`.
    pub family: u16,
    /// `SOCK_*`.
    pub kind: u16,
    /// Protocol.
    pub protocol: u16,
    /// Connections that may wait; 0 for a socket that does not listen.
    pub backlog: u16,
    /// `SocketOption` items.
    pub options: Ref,
    /// Classic BPF instructions, 8 bytes each; empty for none.
    pub filter: Ref,
    /// The `struct sockaddr` that it is bound to.
    pub address: Ref,
}

/// One `setsockopt` of a number.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct SocketOption {
    /// `SOL_*` or a protocol.
    pub level: i32,
    /// The option.
    pub name: i32,
    /// Its value.
    pub value: i32,
    /// Padding.
    pub reserved: i32,
}

/// One `prlimit`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Rlimit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Padding.
    pub reserved: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// Kinds of `MountOp`. Sources are opened first, all of them, before any mount changes.
pub mod op {
    /// The root is a clone of the host's tree. a = attributes to set.
    pub const ROOT_HOST: u16 = 1;
    /// The root is a directory of the scratch file system; sealed read-only by `SEAL`.
    pub const ROOT_SCRATCH: u16 = 2;
    /// The root is the source of this op. src, a = attributes.
    pub const ROOT_DIR: u16 = 3;
    /// Bind: src or fd → dst; a = attributes to set; b = expected device, c = expected inode (0: unchecked).
    pub const BIND: u16 = 4;
    /// Bind of a scratch directory or file: src names it inside the scratch → dst; a = attributes.
    pub const SCRATCH: u16 = 5;
    /// A tmpfs of its own: dst, a = attributes, b = bytes, c = mode. With `EXPORT` src names a directory that is made in
    /// it, and its descriptor is sent back.
    pub const TMPFS: u16 = 6;
    /// procfs of the new pid namespace: dst; a = attributes.
    pub const PROC: u16 = 7;
    /// devpts instance: dst.
    pub const DEVPTS: u16 = 8;
    /// Directory inside the scratch: src = name, c = mode.
    pub const MKDIR: u16 = 9;
    /// Symbolic link inside the scratch: src = name, dst = what it says.
    pub const SYMLINK: u16 = 10;
    /// File inside the scratch: src = name, dst = its text, c = mode.
    pub const FILE: u16 = 11;
    /// Copy-on-write: src or fd → dst, a, b, c as of `BIND`, d = bytes, e = inodes; the layer's descriptor is sent back.
    pub const OVERLAY: u16 = 12;
    /// Mask dst: directories by an empty one, anything else by an empty file.
    pub const MASK: u16 = 13;
    /// Bind dst onto itself. a = attributes.
    pub const SELF_BIND: u16 = 14;
    /// A read-only overlay of dst below a layer of whiteouts. src = layer directory.
    pub const WHITEOUT: u16 = 15;
    /// A device of the host's, src in its /dev. a = attributes, the same for all.
    pub const DEVICE: u16 = 16;
    /// A mount point in a tmpfs of `TMPFS`: src = name, dst = the directory that it is in, c = 1 for a directory and 0 for a
    /// file.
    pub const POINT: u16 = 17;
}

/// Bits of `MountOp::flags`.
pub mod op_flag {
    /// Recursive.
    pub const RECURSIVE: u16 = 1;
    /// Nothing to do when the destination is not there.
    pub const OPTIONAL: u16 = 2;
    /// The source path may end in a symbolic link that is followed (only for paths that the system owns).
    pub const FOLLOW: u16 = 4;
    /// Only the system's administrator can have made any part of the destination's path.
    pub const SYSTEM: u16 = 8;
    /// The owner gets the mount's descriptor.
    pub const EXPORT: u16 = 16;
}

/// One mount step.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct MountOp {
    /// `op` value.
    pub kind: u16,
    /// `op_flag` bits.
    pub flags: u16,
    /// A detached mount that the owner prepared, or -1.
    pub fd: i32,
    /// String offset, 0 for none.
    pub src: u32,
    /// String offset, 0 for none.
    pub dst: u32,
    /// See the kind.
    pub a: u64,
    /// See the kind.
    pub b: u64,
    /// See the kind.
    pub c: u64,
    /// See the kind.
    pub d: u64,
    /// See the kind.
    pub e: u64,
}

/// One Landlock path rule, path as seen inside.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct LandRule {
    /// Rights.
    pub access: u64,
    /// String offset.
    pub path: u32,
    /// `op_flag::OPTIONAL` or 0.
    pub flags: u32,
    /// Device that it must be on; 0 for any.
    pub dev: u64,
    /// Inode that must be there; 0 for any.
    pub ino: u64,
}

/// Names that must not come into being in the directory `parent`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct PathGuard {
    /// String offset of the directory, as seen inside.
    pub parent: u32,
    /// `u32` per name, in the order of `index`: 1 where the policy denies the name, 0 where it protects it.
    pub denied: u32,
    /// How many names.
    pub count: u32,
    /// `u32` offsets table of the names, sorted, for binary search.
    pub index: u32,
}

/// A status record.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct WireStatus {
    /// `status` value.
    pub kind: u16,
    /// Step of a failure; with `index` a `step::FailurePoint`.
    pub step: u16,
    /// Which item of the step; at the end, the most memory of any one process that was reaped, KiB.
    pub index: u32,
    /// errno of a failure, wait status of an exit, host-namespace-free pid of a start.
    pub value: i32,
    /// Events that could not be written.
    pub lost: u32,
    /// Monotonic nanoseconds at which it happened.
    pub at_ns: u64,
    /// Events seen.
    pub events: u64,
}

/// Kinds of `WireStatus`.
pub mod status {
    /// Setup failed; nothing ran.
    pub const FAILED: u16 = 1;
    /// The program has started.
    pub const STARTED: u16 = 2;
    /// The program has ended; `value` is its wait status.
    pub const ENDED: u16 = 3;
    /// The pty master follows as an SCM_RIGHTS descriptor.
    pub const TERMINAL: u16 = 4;
    /// A copy-on-write layer, or an exported tmpfs, follows as an SCM_RIGHTS descriptor; `index` says of which
    /// mount op.
    pub const LAYER: u16 = 5;
    /// A netlink socket of the sandbox's network namespace follows as an SCM_RIGHTS descriptor: it says what sockets there
    /// hold (sock_diag(7)).
    pub const SOCKETS: u16 = 9;
    /// A violation under `TERMINATE` ended it.
    pub const VIOLATION: u16 = 6;
    /// The limit of wall time ended it.
    pub const TIMED_OUT: u16 = 8;
    /// An optional step could not be done; `step` and `value` say which and why.
    pub const WEAKENED: u16 = 7;
    /// A sandbox that was staged before its run is set up and waits for the run's plan.
    pub const HELD: u16 = 10;
}

/// Most bytes of a path that an event carries.
pub const EVENT_PATH: usize = 1024;

/// Bits of `WireEvent::answer` above the errno.
pub mod refusal {
    /// A guard refused it.
    pub const GUARDED: u32 = 1 << 16;
    /// The guarded name is a denied one; else it is protected.
    pub const DENIED: u32 = 1 << 17;
    /// The guarded name is the call's second path.
    pub const SECOND: u32 = 1 << 18;
    /// Instead of paths a socket address follows, which the network mode refuses.
    pub const ADDRESS: u32 = 1 << 19;
}

/// An event record; up to two paths follow it.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct WireEvent {
    /// System call number.
    pub nr: u32,
    /// The classifier's verdict on it.
    pub verdict: u32,
    /// Pid as init sees it.
    pub pid: u32,
    /// errno answered in the low 16 bits, 0 when it was let through, and `refusal` bits.
    pub answer: u32,
    /// The registers.
    pub args: [u64; 6],
    /// Length of the first path, or of the socket address.
    pub path1: u32,
    /// Length of the second path.
    pub path2: u32,
}
