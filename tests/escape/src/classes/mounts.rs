//! Undoing the mounts. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting, Twin};

const ROW: Attack = Attack { class: Class::Mounts, twin: Twin::PrivateMounts, ..ATTACK };

/// Undoing the mounts.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "mount-tmpfs",
        why: "Mounts a tmpfs over a host directory",
        args: &["mount-tmpfs", "{out}"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "mount-tmpfs-unfiltered",
        why: "Mounts a tmpfs over a host directory, without a filter",
        args: &["mount-tmpfs", "{out}"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "bind-over",
        why: "Binds one directory over another",
        args: &["mount-bind", "{out}", "{ro}"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "bind-over-unfiltered",
        why: "Binds one directory over another, without a filter",
        args: &["mount-bind", "{out}", "{ro}"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "remount-writable",
        why: "Remounts /proc without its read-only flag",
        args: &["remount", "/proc", "/proc/sys/kernel/domainname"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "remount-writable-unfiltered",
        why: "Remounts /proc without its read-only flag, without a filter",
        args: &["remount", "/proc", "/proc/sys/kernel/domainname"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "unmount-cover",
        why: "Unmounts what covers /dev/shm",
        args: &["umount", "/dev/shm"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "unmount-cover-unfiltered",
        why: "Unmounts what covers /dev/shm, without a filter",
        args: &["umount", "/dev/shm"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "clear-read-only",
        why: "mount_setattr clears read-only from / down",
        args: &["mount-setattr", "/"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "clear-read-only-unfiltered",
        why: "mount_setattr clears read-only from / down, without a filter",
        args: &["mount-setattr", "/"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "new-mount-api",
        why: "fsopen, fsconfig, fsmount",
        args: &["fsopen"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "new-mount-api-unfiltered",
        why: "fsopen, fsconfig, fsmount, without a filter",
        args: &["fsopen"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "clone-tree",
        why: "open_tree with OPEN_TREE_CLONE",
        args: &["open-tree", "/"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "clone-tree-unfiltered",
        why: "open_tree with OPEN_TREE_CLONE, without a filter",
        args: &["open-tree", "/"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "move-mount",
        why: "Moves a mount elsewhere",
        args: &["move-mount", "/dev/shm", "{out}"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "move-mount-unfiltered",
        why: "Moves a mount elsewhere, without a filter",
        args: &["move-mount", "/dev/shm", "{out}"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "chroot-and-climb",
        why: "chroot below, then up with ..",
        args: &["chroot", "{out}"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "chroot-and-climb-unfiltered",
        why: "chroot below, then up with .., without a filter",
        args: &["chroot", "{out}"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "pivot-root",
        why: "pivot_root into a directory of its own",
        args: &["pivot", "{out}"],
        fields: &[Field::Seccomp],
        ..ROW
    },
    Attack {
        name: "pivot-root-unfiltered",
        why: "pivot_root into a directory of its own, without a filter",
        args: &["pivot", "{out}"],
        fields: &[Field::Root],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "propagate",
        why: "A mount, the program's or the command's own, propagates to the host's shared mounts",
        args: &["mount-tmpfs", "{out}"],
        fields: &[Field::Root],
        settings: &[Setting::Ro, Setting::Rw, Setting::Cow, Setting::Deny("{out}/sub")],
        caller: &["--shared-mounts"],
        proof: Proof::Saw(&["mounts"]),
        twin: Twin::AsRoot,
        ..ROW
    },
    Attack {
        name: "propagate-unfiltered",
        why: "The same without a filter",
        args: &["mount-tmpfs", "{out}"],
        fields: &[Field::Root],
        settings: &[Setting::Rw, Setting::Cow, Setting::Deny("{out}/sub"), Setting::Level(SeccompLevel::Disabled)],
        caller: &["--shared-mounts"],
        proof: Proof::Saw(&["mounts"]),
        twin: Twin::AsRoot,
        ..ROW
    },
];
