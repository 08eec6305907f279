//! Signals to, and steering of, what runs outside. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Victim};

const ROW: Attack =
    Attack { class: Class::Signals, fields: &[Field::Isolation], victims: &[Victim::Process], ..ATTACK };

/// Signals to, and steering of, what runs outside.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "kill", why: "kill of a host process", args: &["kill", "{pid}"], proof: Proof::Dead, ..ROW },
    Attack { name: "tgkill", why: "tgkill of a host process", args: &["tgkill", "{pid}"], proof: Proof::Dead, ..ROW },
    Attack { name: "tkill", why: "tkill of a host process", args: &["tkill", "{pid}"], proof: Proof::Dead, ..ROW },
    Attack {
        name: "sigqueue",
        why: "rt_sigqueueinfo to a host process",
        args: &["sigqueue", "{pid}"],
        proof: Proof::Dead,
        ..ROW
    },
    Attack {
        name: "pidfd-send-signal",
        why: "A signal by pidfd",
        args: &["pidfd-signal", "{pid}"],
        proof: Proof::Dead,
        ..ROW
    },
    Attack {
        name: "proc-fd-signal",
        why: "A signal by an open /proc/PID",
        args: &["procfd-signal", "{pid}"],
        proof: Proof::Dead,
        ..ROW
    },
    Attack {
        name: "kill-unfiltered",
        why: "kill without a filter",
        args: &["kill", "{pid}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Dead,
        ..ROW
    },
    Attack {
        name: "sigio",
        why: "Has the kernel signal a host process by F_SETOWN",
        args: &["sigio", "{pid}"],
        held: &[End::Any],
        proof: Proof::Dead,
        ..ROW
    },
    Attack { name: "kill-everybody", why: "kill(-1) with signal 0", args: &["kill-all"], ..ROW },
    Attack {
        name: "kill-callers-group",
        why: "kill(0): the caller's process group",
        args: &["kill-group"],
        victims: &[],
        held: &[End::Any],
        caller: &["--signal-group"],
        proof: Proof::Bystander,
        ..ROW
    },
    Attack {
        name: "stop-parent",
        why: "Stops its own parent",
        args: &["kill-parent"],
        victims: &[],
        caller: &["--signal-group"],
        ..ROW
    },
    Attack {
        name: "renice",
        why: "Sets a host process's priority",
        args: &["renice", "{pid}"],
        proof: Proof::Steered,
        ..ROW
    },
    Attack {
        name: "set-affinity",
        why: "Sets a host process's affinity",
        args: &["affinity", "{pid}"],
        proof: Proof::Steered,
        ..ROW
    },
    Attack {
        name: "set-scheduler",
        why: "Sets a host process's scheduling policy",
        args: &["scheduler", "{pid}"],
        proof: Proof::Steered,
        ..ROW
    },
    Attack { name: "set-io-priority", why: "Sets a host process's I/O priority", args: &["ioprio", "{pid}"], ..ROW },
    Attack {
        name: "prlimit",
        why: "Sets a host process's limits",
        args: &["prlimit", "{pid}"],
        proof: Proof::Steered,
        ..ROW
    },
    Attack {
        name: "steer-unfiltered",
        why: "Sets affinity without a filter",
        args: &["affinity", "{pid}"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        proof: Proof::Steered,
        ..ROW
    },
    Attack { name: "pidfd-open", why: "Takes hold of a host process", args: &["pidfd-open", "{pid}"], ..ROW },
];
