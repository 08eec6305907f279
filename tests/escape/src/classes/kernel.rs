//! The kernel's own state. Arguments make each call harmless where it is allowed. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Setting, Twin};

const ROW: Attack = Attack { class: Class::Kernel, fields: &[Field::Seccomp], twin: Twin::AsRoot, ..ATTACK };

/// The kernel's own state. Arguments make each call harmless where it is allowed.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "reboot", why: "Switches Ctrl-Alt-Del, which is reboot(2)", args: &["reboot"], ..ROW },
    Attack { name: "swapon", why: "Switches swap on", args: &["swapon", "/nonexistent"], ..ROW },
    Attack { name: "settimeofday", why: "Sets the time zone", args: &["settimeofday"], ..ROW },
    Attack { name: "clock-adjtime", why: "Steers the clock", args: &["adjtime"], ..ROW },
    Attack { name: "clock-settime", why: "Sets the clock", args: &["clock-settime"], ..ROW },
    Attack { name: "acct", why: "Switches accounting on", args: &["acct", "/nonexistent"], ..ROW },
    Attack { name: "quotactl", why: "Reads another's quota", args: &["quotactl", "{disk}"], ..ROW },
    Attack { name: "bpf", why: "Makes a BPF map", args: &["bpf"], ..ROW },
    Attack { name: "perf", why: "Opens a performance counter", args: &["perf"], ..ROW },
    Attack { name: "userfaultfd", why: "Makes a userfaultfd", args: &["uffd"], ..ROW },
    Attack { name: "io-uring", why: "Makes an io_uring", args: &["io-uring"], ..ROW },
    Attack { name: "memfd-secret", why: "Makes secret memory", args: &["memfd-secret"], ..ROW },
    Attack { name: "fanotify", why: "Watches a whole file system", args: &["fanotify"], ..ROW },
    Attack { name: "ioperm", why: "Asks for an I/O port", args: &["ioperm"], needs: Some("/dev/port"), ..ROW },
    Attack { name: "sethostname", why: "Sets the host's name", args: &["sethostname"], ..ROW },
    Attack {
        name: "delete-module",
        why: "Removes a kernel module",
        args: &["delete-module"],
        needs: Some("/proc/modules"),
        ..ROW
    },
    Attack {
        name: "kexec",
        why: "Loads another kernel",
        args: &["kexec"],
        needs: Some("/sys/kernel/kexec_loaded"),
        ..ROW
    },
    Attack {
        name: "reboot-unfiltered",
        why: "reboot(2), without a filter",
        args: &["reboot"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "settimeofday-unfiltered",
        why: "Sets the time zone, without a filter",
        args: &["settimeofday"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "clock-settime-unfiltered",
        why: "Sets the clock, without a filter",
        args: &["clock-settime"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "sethostname-unfiltered",
        why: "Sets the host's name, without a filter",
        args: &["sethostname"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "swapon-unfiltered",
        why: "Switches swap on, without a filter",
        args: &["swapon", "/nonexistent"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
];
