//! Descriptors of the caller's. Data only.

use cofferdam_policy::Field;

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Streams};

const ROW: Attack = Attack { class: Class::Descriptors, fields: &[Field::Isolation], ..ATTACK };

/// Descriptors of the caller's.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "inherited-files",
        why: "Reads what the caller left open",
        args: &["fds"],
        caller: &["--fd", "7:{out}/secret", "--fd", "100:{out}/secret", "--fd", "900:{out}/secret"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "inherited-files-no-spawn",
        why: "The same under spawn: false",
        args: &["fds", "{secret}"],
        settings: &[Setting::NoSpawn],
        caller: &["--fd", "7:{out}/secret"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "inherited-directory",
        why: "Climbs out by an open directory",
        args: &["fd-climb", "sub/secret"],
        caller: &["--fd", "8:{out}"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "inherited-fd-by-proc",
        why: "By /proc/self/fd",
        args: &["read", "/proc/self/fd/7"],
        caller: &["--fd", "7:{out}/secret"],
        proof: Proof::Secret,
        ..ROW
    },
    Attack {
        name: "reopen-stdout",
        why: "Reopens stdout and truncates the caller's file",
        args: &["reopen-std", "1"],
        proof: Proof::Truncated,
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "reopen-stderr",
        why: "Reopens stderr and truncates the caller's file",
        args: &["reopen-std", "2"],
        proof: Proof::Truncated,
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "reopen-stdin",
        why: "Reopens stdin and truncates the caller's file",
        args: &["reopen-std", "0"],
        settings: &[Setting::Stdin],
        proof: Proof::Truncated,
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "truncate-stdout",
        why: "ftruncate of stdout",
        args: &["ftruncate", "1"],
        proof: Proof::Truncated,
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "nonblocking-stdout",
        why: "Makes the caller's stdout nonblocking",
        args: &["nonblock", "1"],
        held: &[End::Any],
        proof: Proof::Nonblocking,
        streams: Streams::File,
        ..ROW
    },
];
