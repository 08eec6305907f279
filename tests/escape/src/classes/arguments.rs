//! Numbers and arguments. Data only.

use cofferdam_policy::{Field, SeccompLevel};
use serde_json::Value;

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Twin};
use crate::run::Run;

const ROW: Attack = Attack { class: Class::Arguments, fields: &[Field::Seccomp], ..ATTACK };

/// Numbers and arguments.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "x32", why: "An x32 system call", args: &["x32"], held: &[End::Filter], ..ROW },
    Attack {
        name: "x32-unfiltered",
        why: "An x32 system call at level disabled",
        args: &["x32"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        held: &[End::Filter],
        ..ROW
    },
    Attack { name: "i386", why: "An i386 system call by int 0x80", args: &["int80"], held: &[End::Filter], ..ROW },
    Attack {
        name: "i386-unfiltered",
        why: "The same at level disabled",
        args: &["int80"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        held: &[End::Filter],
        ..ROW
    },
    Attack {
        name: "i386-umount",
        why: "umount by its i386 number, which is another call's here",
        args: &["int80-umount"],
        held: &[End::Filter],
        ..ROW
    },
    Attack {
        name: "socket-high-bits",
        why: "AF_VSOCK with high bits set, which the kernel ignores",
        args: &["socket", "0x700000028", "1", "0"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        needs: Some("/dev/vsock"),
        ..ROW
    },
    Attack {
        name: "netlink-high-bits",
        why: "A forbidden netlink protocol with high bits set",
        args: &["socket", "16", "3", "0x70000000f"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "clone-high-bits",
        why: "CLONE_NEWUSER with high bits set",
        args: &["clone", "user", "high"],
        ..ROW
    },
    Attack { name: "personality", why: "Switches off address randomization and W^X", args: &["personality"], ..ROW },
    Attack { name: "modify-ldt", why: "Makes a segment of its own", args: &["ldt"], ..ROW },
    Attack {
        name: "own-listener",
        why: "Installs a seccomp listener of its own",
        args: &["seccomp-listener"],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "forged-sigsys",
        why: "Sends itself SIGSYS: no evidence from the kernel",
        args: &["forge-sigsys"],
        held: &[End::Any, End::Limit],
        proof: Proof::Run(forgery_believed),
        twin: Twin::Dose(&[], &["x32"], killed_by_filter),
        ..ROW
    },
    Attack {
        name: "forged-sigsys-queued",
        why: "Sends itself SIGSYS with a forged code",
        args: &["forge-sigsys", "queue"],
        held: &[End::Any, End::Limit],
        proof: Proof::Run(forgery_believed),
        twin: Twin::Dose(&[], &["x32"], killed_by_filter),
        ..ROW
    },
];

fn violations(run: &Run) -> impl Iterator<Item = &Value> {
    run.outcome.as_ref().and_then(|o| o.get("violations")).and_then(Value::as_array).into_iter().flatten()
}

fn forgery_believed(run: &Run) -> bool {
    run.text("outcome") == "violation"
        || violations(run).any(|v| v.get("evidence").and_then(Value::as_str) == Some("kernel"))
}

fn killed_by_filter(run: &Run) -> bool {
    let signal = run.outcome.as_ref().and_then(|o| o.get("signal")).and_then(Value::as_i64);
    signal == Some(31) || run.text("outcome") == "violation"
}
