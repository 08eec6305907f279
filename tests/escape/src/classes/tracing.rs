//! Tracing, and the memory of others. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting, Twin, Victim};

const ROW: Attack =
    Attack { class: Class::Tracing, fields: &[Field::Isolation], victims: &[Victim::Process], ..ATTACK };

/// Tracing, and the memory of others.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "ptrace-attach", why: "Attaches to a host process", args: &["ptrace-attach", "{pid}"], ..ROW },
    Attack {
        name: "ptrace-attach-unfiltered",
        why: "Attaches to a host process, without a filter",
        args: &["ptrace-attach", "{pid}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack { name: "ptrace-seize", why: "Seizes a host process", args: &["ptrace-seize", "{pid}"], ..ROW },
    Attack {
        name: "process-vm-readv",
        why: "Reads a host process's memory",
        args: &["vm-read", "{pid}", "{addr}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "process-vm-readv-unfiltered",
        why: "Reads a host process's memory, without a filter",
        args: &["vm-read", "{pid}", "{addr}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "process-vm-writev",
        why: "Writes a host process's memory",
        args: &["vm-write", "{pid}", "{addr}"],
        ..ROW
    },
    Attack {
        name: "proc-pid-mem",
        why: "Reads /proc/PID/mem of a host process",
        args: &["proc-mem", "{pid}", "{addr}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "proc-pid-mem-unfiltered",
        why: "Reads /proc/PID/mem of a host process, without a filter",
        args: &["proc-mem", "{pid}", "{addr}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "pidfd-getfd",
        why: "Takes a descriptor out of a host process",
        args: &["getfd", "{pid}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "pidfd-getfd-unfiltered",
        why: "Takes a descriptor out of a host process, without a filter",
        args: &["getfd", "{pid}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "kcmp",
        why: "Compares resources with a host process",
        args: &["kcmp", "{pid}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "process-madvise",
        why: "Advises a host process's memory",
        args: &["process-madvise", "{pid}", "{addr}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "migrate-pages",
        why: "Moves a host process's pages",
        args: &["migrate-pages", "{pid}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "ptrace-traceme",
        why: "Asks to be traced",
        args: &["ptrace-traceme"],
        fields: &[Field::Seccomp],
        victims: &[],
        ..ROW
    },
    Attack {
        name: "ptrace-parent",
        why: "Traces its own parent",
        args: &["ptrace-parent"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[],
        caller: &["--signal-group"],
        ..ROW
    },
    Attack {
        name: "pid1-memory",
        why: "Searches the memory of pid 1 for the caller's secret",
        args: &["proc1-mem", "{secret}"],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-memory-unfiltered",
        why: "The same without a filter",
        args: &["proc1-mem", "{secret}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-environ",
        why: "Reads the variables of pid 1",
        args: &["peek", "/proc/1/environ"],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-exe",
        why: "Opens the program of pid 1",
        args: &["proc1-exe"],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-fd",
        why: "Opens a descriptor of pid 1",
        args: &["proc1-fd"],
        victims: &[],
        caller: &["--fd", "9:{out}/secret"],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-root",
        why: "Opens the root of pid 1",
        args: &["peek", "/proc/1/root/etc/passwd"],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-cwd",
        why: "Opens the directory of pid 1",
        args: &["open-read", "/proc/1/cwd"],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
    Attack {
        name: "pid1-ptrace",
        why: "Traces pid 1",
        args: &["ptrace-seize", "1"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[],
        twin: Twin::NaiveInit,
        ..ROW
    },
];
