//! Metadata of files that cannot be written. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting};

const ROW: Attack = Attack { class: Class::Metadata, fields: &[Field::Metadata], ..ATTACK };

/// Metadata of files that cannot be written.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "chmod",
        why: "chmod of a file outside",
        args: &["chmod", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "chmod-read-only-bind",
        why: "chmod in a read-only bind",
        args: &["chmod", "{ro}/victim"],
        settings: &[Setting::Ro],
        proof: Proof::Meta("{ro}/victim"),
        ..ROW
    },
    Attack {
        name: "fchmod",
        why: "fchmod through a descriptor opened for reading",
        args: &["fchmod", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "fchmodat2",
        why: "fchmodat2 of a file outside",
        args: &["fchmodat2", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "chown",
        why: "chown of a file outside to oneself",
        args: &["chown", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "utimensat",
        why: "Sets times of a file outside",
        args: &["utimes", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "setxattr",
        why: "Sets an extended attribute outside",
        args: &["setxattr", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "inode-flags",
        why: "FS_IOC_SETFLAGS through a descriptor opened for reading",
        args: &["setflags", "{out}/victim"],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "chmod-unfiltered",
        why: "chmod without a filter",
        args: &["chmod", "{out}/victim"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Meta("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "utimensat-unfiltered",
        why: "Sets times without a filter",
        args: &["utimes", "{ro}/victim"],
        settings: &[Setting::Ro, Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Meta("{ro}/victim"),
        ..ROW
    },
];
