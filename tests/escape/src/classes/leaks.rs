//! Variables, names and inherited state. Data only.

use cofferdam_policy::Field;

use crate::attack::{ATTACK, Attack, Class, Proof, Twin};

const ROW: Attack = Attack { class: Class::Leaks, fields: &[Field::Isolation], ..ATTACK };

/// Variables, names and inherited state.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "caller-variables",
        why: "Finds a variable of the caller's",
        args: &["environ", "COFFERDAM_SECRET"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "parent-variables",
        why: "Reads its parent's variables",
        args: &["parent-environ", "COFFERDAM_SECRET"],
        caller: &["--signal-group"],
        ..ROW
    },
    Attack {
        name: "host-name",
        why: "Learns the host's name by uname",
        args: &["uname", "{hostname}"],
        fields: &[Field::Hostname],
        ..ROW
    },
    Attack {
        name: "host-name-sysctl",
        why: "Learns the host's name by /proc/sys",
        args: &["file-holds", "/proc/sys/kernel/hostname", "{hostname}"],
        fields: &[Field::Hostname],
        ..ROW
    },
    Attack {
        name: "boot-id",
        why: "Learns the host's boot id",
        args: &["file-holds", "/proc/sys/kernel/random/boot_id", "{bootid}"],
        ..ROW
    },
    Attack {
        name: "network-devices",
        why: "Learns the host's network devices by /sys",
        args: &["netdevs", "/sys/class/net"],
        fields: &[Field::Isolation, Field::Network],
        ..ROW
    },
    Attack {
        name: "signal-mask",
        why: "Starts with the caller's blocked signals",
        args: &["sigmask"],
        caller: &["--block-signals"],
        ..ROW
    },
    Attack {
        name: "ignored-signals",
        why: "Starts with the caller's ignored signals, SIGPIPE among them",
        args: &["sigign"],
        caller: &["--ignore-signals"],
        ..ROW
    },
    Attack {
        name: "real-time-policy",
        why: "Keeps the caller's real-time policy, which no CPU share bounds",
        args: &["favoured", "policy"],
        fields: &[Field::CpuShare],
        caller: &["--real-time"],
        root_only: true,
        ..ROW
    },
    Attack {
        name: "raised-priority",
        why: "Keeps the caller's raised priority",
        args: &["favoured", "priority"],
        caller: &["--priority"],
        root_only: true,
        ..ROW
    },
    Attack {
        name: "real-time-io",
        why: "Keeps the caller's real-time I/O class",
        args: &["favoured", "io"],
        caller: &["--io-real-time"],
        root_only: true,
        ..ROW
    },
    Attack {
        name: "kernel-log",
        why: "Reads the kernel's log by syslog",
        args: &["syslog"],
        fields: &[Field::Seccomp],
        twin: Twin::AsRoot,
        ..ROW
    },
];
