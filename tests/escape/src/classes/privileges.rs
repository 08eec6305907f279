//! Setuid, capabilities, groups. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Setting, Twin, Victim};

const ROW: Attack = Attack { class: Class::Privileges, fields: &[Field::Isolation], ..ATTACK };

/// Setuid, capabilities, groups.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "setuid-program",
        why: "Runs a setuid root program",
        args: &["{out}/suid", "whoami"],
        victims: &[Victim::Setuid],
        ..ROW
    },
    Attack {
        name: "setuid-program-unfiltered",
        why: "The same without a filter",
        args: &["{out}/suid", "whoami"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Setuid],
        ..ROW
    },
    Attack {
        name: "file-capabilities",
        why: "Runs a program with file capabilities",
        args: &["{out}/filecap", "whoami"],
        victims: &[Victim::FileCaps],
        held: &[End::Exec],
        ..ROW
    },
    Attack {
        name: "become-root",
        why: "setresuid(0), then a file that only root reads",
        args: &["setuid"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        needs: Some("/etc/shadow"),
        ..ROW
    },
    Attack {
        name: "raise-capabilities",
        why: "capset CAP_SYS_ADMIN",
        args: &["capset"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "effective-capabilities",
        why: "Has any effective capability",
        args: &["caps", "CapEff:"],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "permitted-capabilities",
        why: "Has any permitted capability",
        args: &["caps", "CapPrm:"],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "bounding-set",
        why: "Has anything in its bounding set",
        args: &["caps", "CapBnd:"],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "new-privileges",
        why: "Can gain privileges by exec",
        args: &["nnp"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "inherited-groups",
        why: "Reads a file by a group of the caller's",
        args: &["groups", "4", "{out}/group"],
        victims: &[Victim::GroupFile],
        caller: &["--group", "4"],
        root_only: true,
        ..ROW
    },
];
