//! Device nodes, its own and the host's. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Setting, Twin, Victim};

const ROW: Attack = Attack { class: Class::Devices, twin: Twin::AsRoot, ..ATTACK };

/// Device nodes, its own and the host's.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "make-zero-node",
        why: "Makes a character device in a writable bind",
        args: &["mknod", "{rw}/node", "c", "1", "5"],
        settings: &[Setting::Rw],
        ..ROW
    },
    Attack {
        name: "make-disk-node",
        why: "Makes a block device in a writable bind",
        args: &["mknod", "{rw}/node", "b", "7", "0"],
        settings: &[Setting::Rw],
        ..ROW
    },
    Attack {
        name: "make-node-unfiltered",
        why: "Makes a device without a filter",
        args: &["mknod", "{rw}/node", "c", "1", "5"],
        settings: &[Setting::Rw, Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "node-in-writable-bind",
        why: "Opens a device node that lies in a writable bind",
        args: &["open-read", "{rw}/node"],
        fields: &[Field::Mounts],
        settings: &[Setting::Rw],
        victims: &[Victim::Node("{rw}/node")],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "node-in-read-only-bind",
        why: "Opens a device node that lies in a read-only bind",
        args: &["open-read", "{ro}/node"],
        fields: &[Field::Mounts],
        settings: &[Setting::Ro],
        victims: &[Victim::Node("{ro}/node")],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "node-in-host-view",
        why: "Opens a device node that lies in the host's tree",
        args: &["open-read", "{out}/node"],
        victims: &[Victim::Node("{out}/node")],
        twin: Twin::Outside,
        ..ROW
    },
    Attack { name: "host-disk", why: "Opens the host's disk", args: &["open-read", "{disk}"], ..ROW },
    Attack {
        name: "host-kmsg",
        why: "Opens the kernel's log",
        args: &["open-read", "/dev/kmsg"],
        needs: Some("/dev/kmsg"),
        ..ROW
    },
    Attack {
        name: "loop-control",
        why: "Opens loop-control",
        args: &["open-read", "/dev/loop-control"],
        needs: Some("/dev/loop-control"),
        ..ROW
    },
    Attack { name: "fuse", why: "Opens fuse", args: &["open-read", "/dev/fuse"], needs: Some("/dev/fuse"), ..ROW },
    Attack { name: "tun", why: "Opens tun", args: &["open-read", "/dev/net/tun"], needs: Some("/dev/net/tun"), ..ROW },
    Attack { name: "kvm", why: "Opens kvm", args: &["open-read", "/dev/kvm"], needs: Some("/dev/kvm"), ..ROW },
    Attack {
        name: "vsock-device",
        why: "Opens the vsock device",
        args: &["open-read", "/dev/vsock"],
        needs: Some("/dev/vsock"),
        ..ROW
    },
    Attack {
        name: "userfaultfd-device",
        why: "Opens the userfaultfd device",
        args: &["open-read", "/dev/userfaultfd"],
        needs: Some("/dev/userfaultfd"),
        ..ROW
    },
];
