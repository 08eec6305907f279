//! Shared memory and message queues. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Proof, Setting, Victim};

const ROW: Attack =
    Attack { class: Class::Ipc, fields: &[Field::Isolation], victims: &[Victim::Ipc], proof: Proof::Secret, ..ATTACK };

/// Shared memory and message queues.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "shared-segment", why: "Reads a System V segment of the host", args: &["shm-read", "{key}"], ..ROW },
    Attack {
        name: "shared-segment-unfiltered",
        why: "The same without a filter",
        args: &["shm-read", "{key}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "message-queue",
        why: "Reads a System V message queue of the host",
        args: &["msg-read", "{key}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "semaphore",
        why: "Changes a System V semaphore of the host",
        args: &["sem-write", "{key}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Said,
        ..ROW
    },
    Attack {
        name: "posix-queue",
        why: "Reads a POSIX message queue of the host",
        args: &["mq-read", "/{token}"],
        ..ROW
    },
    Attack {
        name: "posix-queue-unfiltered",
        why: "The same without a filter",
        args: &["mq-read", "/{token}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "posix-shared-memory",
        why: "Reads a POSIX shared memory object of the host",
        args: &["read", "/dev/shm/{token}"],
        fields: &[Field::Root],
        victims: &[Victim::PosixShm],
        ..ROW
    },
];
