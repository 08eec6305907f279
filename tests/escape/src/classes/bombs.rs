//! Bombs. Data only.

use cofferdam_policy::{Field, NetworkMode, SeccompLevel};
use serde_json::Value;

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Twin};
use crate::run::Run;

const ROW: Attack = Attack { class: Class::Bombs, held: &[End::Limit], ..ATTACK };

/// Bombs.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "forks",
        why: "200 processes at once",
        args: &["fork-bomb", "200"],
        fields: &[Field::Processes],
        settings: &[Setting::Processes(32)],
        twin: Twin::Dose(&[Setting::Processes(32)], &["fork-bomb", "4"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "threads",
        why: "200 threads at once",
        args: &["thread-bomb", "200"],
        fields: &[Field::Processes],
        settings: &[Setting::Processes(32)],
        twin: Twin::Dose(&[Setting::Processes(32)], &["thread-bomb", "4"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "memory",
        why: "Touches 400 MiB",
        args: &["memory", "400"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64)],
        twin: Twin::Dose(&[Setting::MemoryMb(64)], &["memory", "8"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "shared-memory",
        why: "Touches 400 MiB shared",
        args: &["shared-memory", "400"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64)],
        twin: Twin::Dose(&[Setting::MemoryMb(64)], &["shared-memory", "8"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "memory-file",
        why: "Touches 400 MiB in a memfd",
        args: &["memfd", "100"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64)],
        twin: Twin::Dose(&[Setting::MemoryMb(64)], &["memfd", "4"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "memory-of-the-tree",
        why: "Six children with 24 MiB each",
        args: &["memory-tree", "6", "24"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64)],
        twin: Twin::Dose(&[Setting::MemoryMb(64)], &["memory-tree", "2", "4"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "netlink-queues",
        why: "Leaves 104 MiB of the kernel's replies unread in netlink sockets, which no cgroup counts",
        args: &["netlink-queue", "104"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64)],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "netlink-queues-unfiltered",
        why: "The same at level disabled",
        args: &["netlink-queue", "104"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "netlink-queues-loopback",
        why: "The same where a program may make sockets",
        args: &["netlink-queue", "104"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "tcp-queues",
        why: "Leaves 160 MiB unread in TCP connections of its own loopback",
        args: &["tcp-queue", "160", "accept"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)],
        twin: Twin::Dose(LOOPBACK, &["tcp-queue", "4", "accept"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "tcp-queues-not-accepted",
        why: "The same in connections that are not accepted, which no cgroup counts",
        args: &["tcp-queue", "160", "leave"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)],
        twin: Twin::Dose(LOOPBACK, &["tcp-queue", "4", "leave"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "udp-queues",
        why: "Leaves 160 MiB of datagrams unread",
        args: &["udp-queue", "160"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)],
        twin: Twin::Dose(LOOPBACK, &["udp-queue", "4"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "tcp-queues-reset",
        why: "Leaves 160 MiB in connections that are reset before they are accepted, which no list of sockets shows",
        args: &["tcp-queue", "160", "reset"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)],
        twin: Twin::Dose(UNLISTED, &["tcp-queue", "4", "reset"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "udp-queues-disconnected",
        why: "Leaves 160 MiB of datagrams in sockets that lose their address, which no list of sockets shows",
        args: &["udp-queue", "160", "disconnect"],
        fields: &[Field::Memory],
        settings: &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)],
        twin: Twin::Dose(UNLISTED, &["udp-queue", "4", "disconnect"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "huge-pages",
        why: "Takes pages of the host's pool, which no memory limit counts",
        args: &["huge-pages", "mmap"],
        fields: &[Field::Memory],
        twin: Twin::Dose(&[], &["huge-pages", "ordinary"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "huge-pages-memfd",
        why: "The same by a memfd",
        args: &["huge-pages", "memfd"],
        fields: &[Field::Memory],
        twin: Twin::Dose(&[], &["memfd", "4"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "huge-pages-segment",
        why: "The same by a shared segment",
        args: &["huge-pages", "shm"],
        fields: &[Field::Memory],
        twin: Twin::Dose(&[], &["huge-pages", "ordinary"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "socket-filters",
        why: "Has the kernel compile a filter for a socket, in memory that all of the host shares",
        args: &["socket-filter"],
        fields: &[Field::Seccomp],
        twin: Twin::Dose(&[], &["socket-filter", "other"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "asynchronous-contexts",
        why: "Takes contexts of asynchronous I/O, of which the host has a number for all",
        args: &["aio", "4"],
        fields: &[Field::Seccomp],
        twin: Twin::Dose(&[Setting::Level(SeccompLevel::Basic)], &["aio", "1"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "scratch-space",
        why: "Fills its /tmp",
        args: &["fill", "/tmp/big", "100"],
        fields: &[Field::Tmpfs],
        settings: &[Setting::TmpfsMb(16)],
        twin: Twin::Dose(&[Setting::TmpfsMb(16)], &["fill", "/tmp/big", "2"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "scratch-shm",
        why: "Fills its /dev/shm",
        args: &["fill", "/dev/shm/big", "100"],
        fields: &[Field::Tmpfs],
        settings: &[Setting::TmpfsMb(16)],
        twin: Twin::Dose(&[Setting::TmpfsMb(16)], &["fill", "/dev/shm/big", "1"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "inodes",
        why: "100,000 files in its /tmp, with 80 MiB of memory",
        args: &["inodes", "/tmp", "100000"],
        fields: &[Field::Tmpfs],
        // Where a file system can be told no number, files take memory, about 1 KiB each, and of that there is less.
        settings: &[Setting::TmpfsMb(16), Setting::MemoryMb(80)],
        twin: Twin::Dose(&[Setting::TmpfsMb(16), Setting::MemoryMb(80)], &["inodes", "/tmp", "50"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "layer-space",
        why: "Fills a copy-on-write layer",
        args: &["fill", "{cow}/big", "60"],
        fields: &[Field::Layer],
        settings: &[Setting::Cow, Setting::LayerMb(8)],
        twin: Twin::Dose(&[Setting::Cow, Setting::LayerMb(8)], &["fill", "{cow}/big", "1"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "layer-inodes",
        why: "Fills a layer's inodes",
        args: &["inodes", "{cow}", "5000"],
        fields: &[Field::Layer],
        settings: &[Setting::Cow, Setting::LayerInodes(300)],
        twin: Twin::Dose(&[Setting::Cow, Setting::LayerInodes(300)], &["inodes", "{cow}", "20"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "file-size",
        why: "Writes a file larger than allowed, ignoring SIGXFSZ",
        args: &["fill", "{rw}/big", "20"],
        fields: &[Field::FileSize],
        settings: &[Setting::Rw, Setting::FileSizeMb(4)],
        twin: Twin::Dose(&[Setting::Rw, Setting::FileSizeMb(4)], &["fill", "{rw}/big", "1"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "file-size-fallocate",
        why: "Allocates a file larger than allowed",
        args: &["fallocate", "{rw}/big", "20"],
        fields: &[Field::FileSize],
        settings: &[Setting::Rw, Setting::FileSizeMb(4)],
        twin: Twin::Dose(&[Setting::Rw, Setting::FileSizeMb(4)], &["fallocate", "{rw}/big", "1"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "descriptors",
        why: "1,000 descriptors",
        args: &["fd-bomb", "1000"],
        fields: &[Field::OpenFiles],
        settings: &[Setting::OpenFiles(64)],
        twin: Twin::Dose(&[Setting::OpenFiles(64)], &["fd-bomb", "10"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "output",
        why: "64 MiB on stdout",
        args: &["output", "1", "64"],
        fields: &[Field::Output],
        settings: &[Setting::OutputBytes(65536)],
        held: &[End::Any],
        proof: Proof::Run(too_much_output),
        twin: Twin::Dose(&[Setting::OutputBytes(65536)], &["noop"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "output-stderr",
        why: "64 MiB on stderr",
        args: &["output", "2", "64"],
        fields: &[Field::Output],
        settings: &[Setting::OutputBytes(65536)],
        held: &[End::Any],
        proof: Proof::Run(too_much_output),
        twin: Twin::Dose(&[Setting::OutputBytes(65536)], &["noop"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "cpu",
        why: "4 s of CPU, ignoring SIGXCPU",
        args: &["cpu", "4000"],
        fields: &[Field::CpuTime],
        settings: &[Setting::CpuSeconds(1)],
        twin: Twin::Dose(&[Setting::CpuSeconds(1)], &["cpu", "50"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "cpu-of-the-tree",
        why: "Eight short-lived children with half a second each",
        args: &["cpu-tree", "8", "500"],
        fields: &[Field::CpuTime],
        settings: &[Setting::CpuSeconds(1)],
        twin: Twin::Dose(&[Setting::CpuSeconds(1)], &["cpu-tree", "2", "20"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "cpu-share",
        why: "Spins beyond its share",
        args: &["cpu-share", "1200", "70"],
        fields: &[Field::CpuShare],
        settings: &[Setting::CpuMillis(250)],
        held: &[End::Any],
        proof: Proof::Run(beyond_its_share),
        twin: Twin::Dose(&[Setting::CpuMillis(250)], &["noop"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "wall",
        why: "Sleeps on with every signal blocked and ignored",
        args: &["wall", "6000"],
        fields: &[Field::WallTime],
        settings: &[Setting::WallMs(500)],
        twin: Twin::Dose(&[Setting::WallMs(500)], &["wall", "10"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "stop-itself",
        why: "Stops itself",
        args: &["stop-self", "1"],
        fields: &[Field::WallTime],
        settings: &[Setting::WallMs(700)],
        twin: Twin::Dose(&[Setting::WallMs(700)], &["stop-self", "0"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "events",
        why: "90,000 refused calls",
        args: &["event-flood", "30000"],
        fields: &[Field::Seccomp],
        settings: &[Setting::MemoryMb(128)],
        held: &[End::Any, End::Limit],
        proof: Proof::Run(too_many_events),
        twin: Twin::Dose(&[Setting::MemoryMb(128)], &["noop"], Run::says_escaped),
        ..ROW
    },
    Attack {
        name: "events-traced",
        why: "Refused calls with tracing on",
        args: &["event-flood", "3000"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Trace],
        held: &[End::Any, End::Limit],
        proof: Proof::Run(too_many_events),
        twin: Twin::Dose(&[Setting::Trace], &["noop"], Run::says_escaped),
        ..ROW
    },
];

/// What sockets in no list can hold is assumed where other trials' sockets hold much at the same time (SECURITY.md).
const UNLISTED: &[Setting] = &[Setting::MemoryMb(256), Setting::Net(NetworkMode::Loopback)];

/// The sandbox of the rows about loopback.
const LOOPBACK: &[Setting] = &[Setting::MemoryMb(64), Setting::Net(NetworkMode::Loopback)];

/// More was kept than the limit, or the loss is not admitted.
fn too_much_output(run: &Run) -> bool {
    let cut =
        |stream: &str| run.outcome.as_ref().and_then(|o| o.get("truncated")?.get(stream)?.as_bool()).unwrap_or(false);
    run.output.len() > 65536 || run.errors.len() > 65536 || !(cut("stdout") || cut("stderr"))
}

/// The outcome grew with the number of refusals, or telling of them took far too long.
fn too_many_events(run: &Run) -> bool {
    let told = run.outcome.as_ref().and_then(|o| o.get("violations")).and_then(Value::as_array).map_or(0, Vec::len);
    told > 1000 || run.finished.stdout.len() > 1 << 20 || run.finished.took.as_secs() > 20
}

/// Who spins says how much it got. In gVisor it cannot tell: that kernel's clock runs on while the whole of it is held, so
/// that what the host counted of all its processes, their start included, stands for it.
fn beyond_its_share(run: &Run) -> bool {
    let Some(outcome) = &run.outcome else { return true };
    let number = |key: &str| outcome.get(key).and_then(Value::as_f64);
    let counted = number("cpu_time_seconds").zip(number("execution_time_ms")).zip(number("setup_time_ms"));
    let share = counted.map(|((cpu, ran), before)| cpu / (ran + before) * 1e3);
    let told = run.text("backend") != "oci:runsc" && run.says_escaped();
    told || share.is_none_or(|share| share > 0.7)
}
