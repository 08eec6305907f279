//! Namespaces of its own and of others. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Setting, Twin, Victim};

const ROW: Attack = Attack { class: Class::Namespaces, twin: Twin::AsRoot, ..ATTACK };

/// Namespaces of its own and of others.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "unshare-user",
        why: "A user namespace by unshare",
        args: &["unshare", "user"],
        fields: &[Field::Seccomp],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "unshare-user-unfiltered",
        why: "A user namespace by unshare, without a filter",
        args: &["unshare", "user"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "clone-user",
        why: "A user namespace by clone",
        args: &["clone", "user"],
        fields: &[Field::Seccomp],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "clone-user-unfiltered",
        why: "A user namespace by clone, without a filter",
        args: &["clone", "user"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "clone3-user",
        why: "A user namespace by clone3",
        args: &["clone3", "user"],
        fields: &[Field::Seccomp],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "clone3-user-unfiltered",
        why: "A user namespace by clone3, without a filter",
        args: &["clone3", "user"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "unshare-mount",
        why: "A mount namespace",
        args: &["unshare", "mnt"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "unshare-mount-unfiltered",
        why: "A mount namespace, without a filter",
        args: &["unshare", "mnt"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "unshare-net",
        why: "A network namespace",
        args: &["unshare", "net"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "unshare-net-unfiltered",
        why: "A network namespace, without a filter",
        args: &["unshare", "net"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "unshare-time",
        why: "A time namespace",
        args: &["unshare", "time"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "raise-user-namespaces",
        why: "Raises max_user_namespaces, then unshares",
        args: &["raise-userns"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "raise-user-namespaces-unfiltered",
        why: "Raises max_user_namespaces, then unshares, without a filter",
        args: &["raise-userns"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "join-victim",
        why: "setns into a host process's namespaces",
        args: &["setns", "/proc/{pid}/ns/net"],
        fields: &[Field::Seccomp],
        victims: &[Victim::Process],
        ..ROW
    },
    Attack {
        name: "join-victim-unfiltered",
        why: "setns into a host process's namespaces, without a filter",
        args: &["setns", "/proc/{pid}/ns/net"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Process],
        ..ROW
    },
    Attack {
        name: "join-victim-by-pidfd",
        why: "setns by a pidfd",
        args: &["setns-pidfd", "{pid}"],
        fields: &[Field::Seccomp],
        victims: &[Victim::Process],
        ..ROW
    },
    Attack {
        name: "join-victim-by-pidfd-unfiltered",
        why: "setns by a pidfd, without a filter",
        args: &["setns-pidfd", "{pid}"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Process],
        ..ROW
    },
];
