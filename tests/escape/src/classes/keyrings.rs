//! Keyrings. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting};

const ROW: Attack = Attack { class: Class::Keyrings, fields: &[Field::Seccomp], ..ATTACK };

/// Keyrings.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "session-key",
        why: "Reads a key of the caller's session keyring",
        args: &["key-session"],
        caller: &["--session-key", "{secret}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "session-key-unfiltered",
        why: "The same without a filter",
        args: &["key-session"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        caller: &["--session-key", "{secret}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "request-key",
        why: "Finds the key by request_key",
        args: &["key-request"],
        caller: &["--session-key", "{secret}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "user-key",
        why: "Reads a key of the user's keyring",
        args: &["key-user", "{token}"],
        caller: &["--user-key", "{token}"],
        ..ROW
    },
    Attack {
        name: "user-key-unfiltered",
        why: "The same without a filter",
        args: &["key-user", "{token}"],
        fields: &[Field::Isolation],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        caller: &["--user-key", "{token}"],
        ..ROW
    },
    Attack { name: "leave-key", why: "Leaves a key in the user's keyring", args: &["key-leave", "{token}"], ..ROW },
    Attack { name: "persistent-keyring", why: "Takes the user's persistent keyring", args: &["key-persistent"], ..ROW },
    Attack {
        name: "proc-keys",
        why: "Finds the caller's key in /proc/keys",
        args: &["proc-keys", "{token}"],
        fields: &[Field::Isolation],
        caller: &["--user-key", "{token}"],
        ..ROW
    },
];
