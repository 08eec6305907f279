//! Denied paths and the ways around a path. Data only.

use cofferdam_policy::{Access, Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Twin, Victim};

const ROW: Attack = Attack { class: Class::Denied, fields: &[Field::Deny], proof: Proof::Secret, ..ATTACK };

/// Denied paths and the ways around a path.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "read-denied",
        why: "Reads a denied file",
        args: &["read", "{rw}/secret"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "read-denied-in-host-view",
        why: "Reads a denied file of the host's tree",
        args: &["read", "{out}/secret"],
        settings: &[Setting::Deny("{out}/secret")],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "read-below-denied",
        why: "Reads below a denied directory",
        args: &["read", "{rw}/sub/secret"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/sub")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "list-denied",
        why: "Lists a denied directory",
        args: &["readdir", "{rw}/sub"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/sub")],
        proof: Proof::Said,
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "write-denied",
        why: "Writes a denied file",
        args: &["write", "{rw}/victim"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/victim")],
        proof: Proof::Changed("{rw}/victim"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-own-symlink",
        why: "By a symbolic link made inside",
        args: &["symlink-read", "{rw}/secret", "{rw}/mine"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-host-symlink",
        why: "By a symbolic link that was there",
        args: &["read", "{rw}/shortcut"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-hard-link",
        why: "By a hard link made inside",
        args: &["link-read", "{rw}/secret", "{rw}/mine"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-proc-root",
        why: "By /proc/self/root",
        args: &["read", "/proc/self/root{rw}/secret"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-proc-cwd",
        why: "By /proc/self/cwd",
        args: &["cwd-read", "{rw}", "secret"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-proc-fd",
        why: "By a directory's descriptor and /proc/self/fd",
        args: &["dirfd-read", "{rw}", "secret"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-ancestor-rename",
        why: "Renames the directory above",
        args: &["mv-read", "{rw}/sub", "{rw}/moved", "secret"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/sub/secret")],
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-twin-bind",
        why: "The same directory bound a second time",
        args: &["read", "{twin}/secret"],
        fields: &[Field::Deny, Field::Mounts],
        settings: &[Setting::Rw, Setting::Bind("{rw}", "{twin}", Access::ReadWrite), Setting::Deny("{rw}/secret")],
        twin: Twin::Inside(&[Setting::Rw, Setting::Bind("{rw}", "{twin}", Access::ReadWrite)], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-handle",
        why: "open_by_handle_at with the file's handle",
        args: &["handle-read", "{rw}", "{handle_type}", "{handle}"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        victims: &[Victim::Handle("{rw}/secret")],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "denied-by-handle-unfiltered",
        why: "The same without a system call filter",
        args: &["handle-read", "{rw}", "{handle_type}", "{handle}"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret"), Setting::Level(SeccompLevel::Disabled)],
        victims: &[Victim::Handle("{rw}/secret")],
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "denied-by-rename-away",
        why: "Renames the denied file itself",
        args: &["rename", "{rw}/secret", "{rw}/mine"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/secret")],
        proof: Proof::Exists("{rw}/mine"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "create-denied-that-is-missing",
        why: "Creates a denied file that does not exist",
        args: &["create", "{rw}/later"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/later")],
        proof: Proof::Exists("{rw}/later"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-missing-directory",
        why: "Creates a denied directory that does not exist and a file in it",
        args: &["mkdir-plant", "{rw}/later/deep", "planted"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/later")],
        proof: Proof::Exists("{rw}/later/deep/planted"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "denied-by-link-race",
        why: "Flips a symbolic link between a denied directory and its own",
        args: &["race-link", "{rw}/sub", "{rw}/plain", "{rw}/flip", "victim"],
        settings: &[Setting::Rw, Setting::Deny("{rw}/sub")],
        proof: Proof::Changed("{rw}/sub/victim"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "lock-denied",
        why: "Locks a denied file",
        args: &["lock", "{out}/victim"],
        settings: &[Setting::Deny("{out}/victim")],
        victims: &[Victim::Lock("{out}/victim")],
        proof: Proof::Received,
        held: &[End::Any],
        twin: Twin::Outside,
        ..ROW
    },
];
