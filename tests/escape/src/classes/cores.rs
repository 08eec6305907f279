//! Core dumps: a piped handler runs as root on the host. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Setting, Twin};

const ROW: Attack = Attack { class: Class::Cores, fields: &[Field::Isolation], ..ATTACK };

/// Core dumps: a piped handler runs as root on the host.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "core-file",
        why: "Crashes with its core limit raised",
        args: &["core", "{rw}"],
        settings: &[Setting::Rw],
        caller: &["--core"],
        ..ROW
    },
    Attack {
        name: "core-file-unfiltered",
        why: "The same without a filter",
        args: &["core", "{rw}"],
        settings: &[Setting::Rw, Setting::Level(SeccompLevel::Disabled)],
        caller: &["--core"],
        ..ROW
    },
    Attack { name: "raise-core-limit", why: "Raises RLIMIT_CORE", args: &["core-raise"], caller: &["--core"], ..ROW },
    Attack {
        name: "lower-core-limit",
        why: "Lowers RLIMIT_CORE from 1 to 0, with which piped handlers run",
        args: &["core-zero"],
        caller: &["--core"],
        ..ROW
    },
    Attack {
        name: "core-handler",
        why: "Opens core_pattern for writing, without a filter",
        args: &["open-write", "/proc/sys/kernel/core_pattern"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        ..ROW
    },
];
