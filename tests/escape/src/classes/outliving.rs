//! Processes that try to be there afterwards. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Streams};

const ROW: Attack =
    Attack { class: Class::Outliving, fields: &[Field::TreeKill], proof: Proof::Left, held: &[End::Any], ..ATTACK };

/// Processes that try to be there afterwards.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "daemon", why: "Double fork and setsid", args: &["daemon", "{attack}", "{token}", "plain"], ..ROW },
    Attack {
        name: "daemon-ignoring-signals",
        why: "A daemon that ignores every signal",
        args: &["daemon", "{attack}", "{token}", "ignore"],
        ..ROW
    },
    Attack {
        name: "daemon-stopped",
        why: "A daemon with a stopped child",
        args: &["daemon", "{attack}", "{token}", "stop"],
        ..ROW
    },
    Attack {
        name: "daemon-holding-output",
        why: "A daemon that keeps the output open",
        args: &["daemon", "{attack}", "{token}", "hold"],
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "daemon-churning",
        why: "A daemon that forks on and on, each child outliving its parent",
        args: &["daemon", "{attack}", "{token}", "churn"],
        ..ROW
    },
    Attack {
        name: "daemon-unfiltered",
        why: "A daemon without a filter",
        args: &["daemon", "{attack}", "{token}", "plain"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "survive-owners-death",
        why: "Lives on when the command is killed with SIGKILL",
        args: &["daemon", "{attack}", "{token}", "linger"],
        caller: &["--kill-after", "500"],
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "daemon-holding-terminal",
        why: "A daemon that keeps its terminal open",
        args: &["daemon", "{attack}", "{token}", "hold"],
        streams: Streams::Terminal,
        ..ROW
    },
    Attack {
        name: "owner-killed-at-any-moment",
        why: "Lives on, or a mount or cgroup does, when the command is killed at one of 26 moments from its start on",
        args: &["daemon", "{attack}", "{token}", "plain"],
        caller: &["--kill-sweep"],
        streams: Streams::File,
        proof: Proof::Saw(&["survivors", "mounts", "cgroups"]),
        ..ROW
    },
    Attack {
        name: "owner-killed-among-mounts",
        why: "The same with writable, copy-on-write and denied paths to set up",
        args: &["daemon", "{attack}", "{token}", "plain"],
        settings: &[Setting::Rw, Setting::Cow, Setting::Deny("{out}/sub")],
        caller: &["--kill-sweep"],
        streams: Streams::File,
        proof: Proof::Saw(&["survivors", "mounts", "cgroups"]),
        ..ROW
    },
];
