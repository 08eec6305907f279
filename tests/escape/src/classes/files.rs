//! Files of the host, seen through the host view or a bind. Data only.

use cofferdam_policy::{Access, Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Twin, Victim};

const ROW: Attack = Attack { class: Class::Files, ..ATTACK };

/// Files of the host, seen through the host view or a bind.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "write-host-file",
        why: "Writes a world-writable file of the host",
        args: &["write", "{out}/victim"],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "write-host-file-unfiltered",
        why: "The same without a system call filter",
        args: &["write", "{out}/victim"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "create-in-host-directory",
        why: "Creates a file in a world-writable directory of the host",
        args: &["create", "{out}/planted"],
        proof: Proof::Exists("{out}/planted"),
        ..ROW
    },
    Attack {
        name: "unlink-host-file",
        why: "Removes a file of the host",
        args: &["unlink", "{out}/victim"],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "rename-host-file",
        why: "Renames a file of the host",
        args: &["rename", "{out}/victim", "{out}/elsewhere"],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "truncate-host-file",
        why: "truncate(2) by path",
        args: &["truncate", "{out}/victim"],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "write-read-only-bind",
        why: "Writes through a read-only bind",
        args: &["write", "{ro}/victim"],
        fields: &[Field::Mounts],
        settings: &[Setting::Ro],
        proof: Proof::Changed("{ro}/victim"),
        ..ROW
    },
    Attack {
        name: "reopen-for-writing",
        why: "Opens for reading, reopens through /proc/self/fd for writing",
        args: &["reopen-write", "{ro}/victim"],
        fields: &[Field::Mounts],
        settings: &[Setting::Ro],
        proof: Proof::Changed("{ro}/victim"),
        ..ROW
    },
    Attack {
        name: "read-only-in-writable",
        why: "Writes in a read-only bind whose place and source lie in a writable one",
        args: &["write", "{rw}/sub/victim"],
        fields: &[Field::Mounts],
        settings: &[Setting::Rw, Setting::Bind("{rw}/sub", "{rw}/sub", Access::ReadOnly)],
        proof: Proof::Changed("{rw}/sub/victim"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "read-only-file-in-writable",
        why: "The same with one file",
        args: &["write", "{rw}/victim"],
        fields: &[Field::Mounts],
        settings: &[Setting::Rw, Setting::Bind("{rw}/victim", "{rw}/victim", Access::ReadOnly)],
        proof: Proof::Changed("{rw}/victim"),
        twin: Twin::Inside(&[Setting::Rw], &[]),
        ..ROW
    },
    Attack {
        name: "symlink-out-of-bind",
        why: "A symbolic link in a writable bind that points out of it",
        args: &["symlink-write", "{out}/victim", "{rw}/way-out"],
        settings: &[Setting::Rw],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "hard-link-out-of-bind",
        why: "A hard link in a writable bind to a file outside",
        args: &["link-write", "{out}/victim", "{rw}/way-out"],
        settings: &[Setting::Rw],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "dot-dot-out-of-bind",
        why: "Climbs out of a writable bind with ..",
        args: &["write", "{rw}/../out/victim"],
        settings: &[Setting::Rw],
        proof: Proof::Changed("{out}/victim"),
        ..ROW
    },
    Attack {
        name: "fifo-for-writing",
        why: "Writes to a FIFO of the host's in a read-only bind",
        args: &["fifo-write", "{ro}/pipe"],
        fields: &[Field::Mounts],
        settings: &[Setting::Ro],
        victims: &[Victim::Fifo("{ro}/pipe")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "fifo-read-write",
        why: "Opens a FIFO in the host's tree read-write",
        args: &["fifo-rdwr", "{out}/pipe"],
        victims: &[Victim::Fifo("{out}/pipe")],
        proof: Proof::Received,
        ..ROW
    },
    Attack {
        name: "setuid-file-left-behind",
        why: "chmod 4755 on a file in a writable bind",
        args: &["suid-chmod", "{rw}/left"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Rw],
        proof: Proof::Mode("{rw}/left", 0o4000),
        ..ROW
    },
    Attack {
        name: "setuid-file-created",
        why: "open with mode 4755 in a writable bind",
        args: &["suid-create", "{rw}/left"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Rw],
        proof: Proof::Mode("{rw}/left", 0o4000),
        ..ROW
    },
    Attack {
        name: "setgid-by-fchmodat2",
        why: "fchmodat2 2755, at level disabled",
        args: &["suid-fchmodat2", "{rw}/left"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Rw, Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Mode("{rw}/left", 0o2000),
        ..ROW
    },
    Attack {
        name: "setuid-by-mknod",
        why: "mknod of a regular file with mode 4755",
        args: &["suid-mknod", "{rw}/left"],
        fields: &[Field::Seccomp],
        settings: &[Setting::Rw],
        proof: Proof::Mode("{rw}/left", 0o4000),
        ..ROW
    },
    Attack {
        name: "lock-host-file",
        why: "Locks a file that it can only read, as flock(2) allows",
        args: &["lock", "{out}/victim"],
        victims: &[Victim::Lock("{out}/victim")],
        proof: Proof::Received,
        held: &[End::Any],
        documented: Some("Locks on files that can be read"),
        ..ROW
    },
];
