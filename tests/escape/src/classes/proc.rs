//! /proc, /sys and cgroups. Dangerous files are only opened, never written. Data only.

use cofferdam_policy::Field;

use crate::attack::{ATTACK, Attack, Class, Proof, Twin, Victim};

const ROW: Attack = Attack { class: Class::Proc, twin: Twin::AsRoot, ..ATTACK };

/// /proc, /sys and cgroups. Dangerous files are only opened, never written.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "core-pattern",
        why: "Opens the core handler for writing",
        args: &["open-write", "/proc/sys/kernel/core_pattern"],
        ..ROW
    },
    Attack {
        name: "sysrq-trigger",
        why: "Opens sysrq-trigger for writing",
        args: &["open-write", "/proc/sysrq-trigger"],
        needs: Some("/proc/sysrq-trigger"),
        ..ROW
    },
    Attack {
        name: "modprobe-path",
        why: "Opens the modprobe path for writing",
        args: &["open-write", "/proc/sys/kernel/modprobe"],
        needs: Some("/proc/sys/kernel/modprobe"),
        ..ROW
    },
    Attack {
        name: "uevent-helper",
        why: "Opens the uevent helper for writing",
        args: &["open-write", "/sys/kernel/uevent_helper"],
        needs: Some("/sys/kernel/uevent_helper"),
        ..ROW
    },
    Attack {
        name: "kcore",
        why: "Reads kernel memory",
        args: &["peek", "/proc/kcore"],
        needs: Some("/proc/kcore"),
        ..ROW
    },
    Attack {
        name: "drop-caches",
        why: "Opens drop_caches for writing",
        args: &["open-write", "/proc/sys/vm/drop_caches"],
        ..ROW
    },
    Attack {
        name: "host-hostname",
        why: "Opens the host's name for writing",
        args: &["open-write", "/proc/sys/kernel/hostname"],
        ..ROW
    },
    Attack {
        name: "panic-sysctl",
        why: "Opens kernel.panic for writing",
        args: &["open-write", "/proc/sys/kernel/panic"],
        ..ROW
    },
    Attack {
        name: "ctrl-alt-del",
        why: "Opens kernel.ctrl-alt-del for writing",
        args: &["open-write", "/proc/sys/kernel/ctrl-alt-del"],
        ..ROW
    },
    Attack {
        name: "sys-power",
        why: "Opens /sys/power/state for writing",
        args: &["open-write", "/sys/power/state"],
        needs: Some("/sys/power/state"),
        ..ROW
    },
    Attack {
        name: "sys-uevent",
        why: "Opens a device's uevent file for writing",
        args: &["open-write", "/sys/class/mem/null/uevent"],
        needs: Some("/sys/class/mem/null/uevent"),
        ..ROW
    },
    Attack {
        name: "cgroup-v1-procs",
        why: "Opens the root pids cgroup's process list, to leave its own",
        args: &["open-write", "/sys/fs/cgroup/pids/cgroup.procs"],
        needs: Some("/sys/fs/cgroup/pids/cgroup.procs"),
        ..ROW
    },
    Attack {
        name: "cgroup-v2-procs",
        why: "Opens the root v2 cgroup's process list",
        args: &["open-write", "/sys/fs/cgroup/unified/cgroup.procs"],
        needs: Some("/sys/fs/cgroup/unified/cgroup.procs"),
        ..ROW
    },
    Attack {
        name: "cgroup-v2-only-procs",
        why: "The same where there is no other hierarchy",
        args: &["open-write", "/sys/fs/cgroup/cgroup.procs"],
        needs: Some("/sys/fs/cgroup/cgroup.procs"),
        ..ROW
    },
    Attack {
        name: "cgroup-v2-only-limits",
        why: "Opens the root v2 cgroup's list of controllers for writing",
        args: &["open-write", "/sys/fs/cgroup/cgroup.subtree_control"],
        needs: Some("/sys/fs/cgroup/cgroup.subtree_control"),
        ..ROW
    },
    Attack {
        name: "release-agent",
        why: "Opens a v1 release agent for writing",
        args: &["open-write", "/sys/fs/cgroup/memory/release_agent"],
        needs: Some("/sys/fs/cgroup/memory/release_agent"),
        ..ROW
    },
    Attack {
        name: "shadow",
        why: "Reads /etc/shadow through /proc/self/root",
        args: &["peek", "/proc/self/root/etc/shadow"],
        needs: Some("/etc/shadow"),
        ..ROW
    },
    Attack {
        name: "victim-environ",
        why: "Reads the variables of a host process",
        args: &["proc-environ", "{pid}"],
        fields: &[Field::Isolation],
        victims: &[Victim::Process],
        proof: Proof::Secret,
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "victim-root",
        why: "Reads through a host process's root",
        args: &["proc-path", "{pid}", "root{out}/secret"],
        fields: &[Field::Isolation],
        victims: &[Victim::Process],
        proof: Proof::Secret,
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "victim-cwd",
        why: "Reads through a host process's directory",
        args: &["proc-path", "{pid}", "cwd/secret"],
        fields: &[Field::Isolation],
        victims: &[Victim::Process],
        proof: Proof::Secret,
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "victim-fd",
        why: "Reads through a host process's descriptor",
        args: &["proc-path", "{pid}", "fd/9"],
        fields: &[Field::Isolation],
        victims: &[Victim::Process],
        proof: Proof::Secret,
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "victim-command-line",
        why: "Finds a secret in some host process's arguments",
        args: &["find-process", "{secret}"],
        fields: &[Field::Isolation],
        victims: &[Victim::Process],
        proof: Proof::Secret,
        twin: Twin::Outside,
        ..ROW
    },
];
