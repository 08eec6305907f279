//! Running what may not be run. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, Setting, Twin};

const ROW: Attack = Attack { class: Class::Execution, fields: &[Field::Spawn], ..ATTACK };

/// Running what may not be run.
pub(super) const ROWS: &[Attack] = &[
    Attack {
        name: "fork",
        why: "fork under spawn: false",
        args: &["fork"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "vfork",
        why: "vfork under spawn: false",
        args: &["vfork"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "clone3",
        why: "clone3 under spawn: false",
        args: &["clone3-child"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "clone-sharing-memory",
        why: "clone with CLONE_VM but no thread",
        args: &["clone-vm"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "execve",
        why: "Execs another program under spawn: false",
        args: &["exec", "{attack}", "noop"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "posix-spawn",
        why: "posix_spawn under spawn: false",
        args: &["spawn", "{attack}", "noop"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "execveat",
        why: "execveat of a descriptor",
        args: &["execat", "{attack}", "noop"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "execveat-remade",
        why: "Makes the one permitted descriptor anew",
        args: &["exec-4095", "{attack}", "noop"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "memfd-exec",
        why: "Execs a memory file under spawn: false",
        args: &["memfd-exec", "{attack}", "noop"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "linker-exec",
        why: "Has the dynamic linker run another program",
        args: &["exec", "/lib64/ld-linux-x86-64.so.2", "/bin/echo", "ESCAPED by the linker"],
        settings: &[Setting::NoSpawn],
        twin: Twin::Inside(&[], &[]),
        needs: Some("/lib64/ld-linux-x86-64.so.2"),
        ..ROW
    },
    Attack {
        name: "fork-unfiltered",
        why: "fork under spawn: false at level disabled",
        args: &["fork"],
        settings: &[Setting::NoSpawn, Setting::Level(SeccompLevel::Disabled)],
        twin: Twin::Inside(&[], &[]),
        ..ROW
    },
    Attack {
        name: "exec-in-writable-bind",
        why: "Drops a program in a noexec bind and runs it",
        args: &["copy-exec", "{attack}", "{rw}/dropped", "noop"],
        fields: &[Field::Mounts],
        settings: &[Setting::Rw],
        twin: Twin::Inside(&[Setting::RwExec], &[]),
        ..ROW
    },
    Attack {
        name: "exec-in-tmp",
        why: "Drops a program in its own /tmp and runs it",
        args: &["copy-exec", "{attack}", "/tmp/{token}", "noop"],
        fields: &[Field::Root, Field::Tmpfs],
        twin: Twin::Inside(&[Setting::RwExec], &["copy-exec", "{attack}", "{rw}/dropped", "noop"]),
        ..ROW
    },
    Attack {
        name: "linker-on-noexec",
        why: "Has the dynamic linker map a dropped program",
        args: &["ldso-copy", "/lib64/ld-linux-x86-64.so.2", "/bin/true", "{rw}/dropped"],
        fields: &[Field::Mounts],
        settings: &[Setting::Rw],
        twin: Twin::Inside(&[Setting::RwExec], &[]),
        needs: Some("/lib64/ld-linux-x86-64.so.2"),
        ..ROW
    },
];
