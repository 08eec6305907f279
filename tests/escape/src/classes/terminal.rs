//! The caller's terminal. Data only.

use cofferdam_policy::{Field, SeccompLevel};

use crate::attack::{ATTACK, Attack, Class, End, Proof, Setting, Streams, Twin};
use crate::run::Run;

const ROW: Attack = Attack { class: Class::Terminal, fields: &[Field::Isolation], streams: Streams::Pty, ..ATTACK };

/// The caller's terminal.
pub(super) const ROWS: &[Attack] = &[
    Attack { name: "push-input", why: "TIOCSTI on stdin", args: &["ioctl", "0", "0x5412"], ..ROW },
    Attack { name: "push-input-by-name", why: "TIOCSTI on /dev/tty", args: &["ioctl", "/dev/tty", "0x5412"], ..ROW },
    Attack {
        name: "push-input-high-bits",
        why: "TIOCSTI with high bits set, which the kernel ignores",
        args: &["ioctl", "/dev/tty", "0x1234567800005412"],
        ..ROW
    },
    Attack {
        name: "push-input-stdin-granted",
        why: "TIOCSTI where stdin is passed on",
        args: &["ioctl", "0", "0x5412"],
        settings: &[Setting::Stdin],
        ..ROW
    },
    Attack {
        name: "push-input-unfiltered",
        why: "TIOCSTI at level disabled",
        args: &["ioctl", "/dev/tty", "0x5412"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        ..ROW
    },
    Attack {
        name: "console-ioctl",
        why: "TIOCLINUX on a console",
        args: &["ioctl", "/dev/tty1", "0x541c"],
        twin: Twin::AsRoot,
        needs: Some("/dev/tty1"),
        ..ROW
    },
    Attack { name: "open-terminal", why: "Opens the caller's terminal", args: &["tty-open"], ..ROW },
    Attack {
        name: "hold-terminal",
        why: "Has the caller's terminal as stdin, stdout or stderr",
        args: &["isatty"],
        settings: &[Setting::Stdin],
        ..ROW
    },
    Attack {
        name: "steal-foreground",
        why: "Takes the caller's terminal's foreground",
        args: &["steal-tty"],
        twin: Twin::Outside,
        ..ROW
    },
    Attack {
        name: "own-push-input",
        why: "With -t: TIOCSTI on its own terminal, from which the caller's shell could read on",
        args: &["ioctl", "0", "0x5412"],
        streams: Streams::Terminal,
        ..ROW
    },
    Attack {
        name: "own-push-input-unfiltered",
        why: "The same at level disabled, by name",
        args: &["ioctl", "/dev/tty", "0x5412"],
        settings: &[Setting::Level(SeccompLevel::Disabled)],
        streams: Streams::Terminal,
        ..ROW
    },
    Attack {
        name: "own-resize",
        why: "With -t: resizes the caller's terminal by its own",
        args: &["resize", "0"],
        held: &[End::Any],
        streams: Streams::Terminal,
        proof: Proof::Saw(&["window"]),
        ..ROW
    },
    Attack {
        name: "own-resize-by-name",
        why: "The same by /dev/tty",
        args: &["resize", "/dev/tty"],
        held: &[End::Any],
        streams: Streams::Terminal,
        proof: Proof::Saw(&["window"]),
        ..ROW
    },
    Attack {
        name: "own-raw",
        why: "With -t: leaves the caller's terminal raw",
        args: &["raw"],
        held: &[End::Any],
        streams: Streams::Terminal,
        proof: Proof::Saw(&["modes"]),
        ..ROW
    },
    Attack {
        name: "own-raw-and-die",
        why: "The same, ended by SIGKILL",
        args: &["raw", "die"],
        held: &[End::Any],
        streams: Streams::Terminal,
        proof: Proof::Saw(&["modes"]),
        ..ROW
    },
    Attack {
        name: "own-flood",
        why: "With -t: 64 MiB into its terminal",
        args: &["output", "1", "64"],
        fields: &[Field::Output],
        settings: &[Setting::OutputBytes(65536)],
        held: &[End::Any],
        streams: Streams::Terminal,
        proof: Proof::Run(flooded),
        ..ROW
    },
    Attack {
        name: "escapes-in-messages",
        why: "A program name with escape sequences, for the command's own messages",
        args: &["/nonexistent/\u{1b}]0;pwned"],
        held: &[End::Any],
        proof: Proof::Run(raw_escape),
        twin: Twin::Dose(&[], &["/usr/bin/printf", "\u{1b}]0;pwned"], passes_escape),
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "escapes-in-changes",
        why: "A file name with escape sequences in a copy-on-write layer",
        args: &["create", "{cow}/\u{1b}]0;pwned"],
        fields: &[Field::Mounts],
        settings: &[Setting::Cow],
        held: &[End::Any],
        proof: Proof::Run(raw_escape),
        twin: Twin::Dose(&[], &["/usr/bin/printf", "\u{1b}]0;pwned"], passes_escape),
        streams: Streams::File,
        ..ROW
    },
    Attack {
        name: "escapes-in-violations",
        why: "A refused path with escape sequences, traced",
        args: &["open-write", "/etc/\u{1b}]0;pwned"],
        settings: &[Setting::Trace],
        held: &[End::Any],
        proof: Proof::Run(raw_escape),
        twin: Twin::Dose(&[], &["/usr/bin/printf", "\u{1b}]0;pwned"], passes_escape),
        streams: Streams::File,
        ..ROW
    },
];

fn flooded(run: &Run) -> bool {
    run.output.len() > 80_000
}

fn raw_escape(run: &Run) -> bool {
    run.errors.contains('\u{1b}') || run.finished.stderr.contains('\u{1b}')
}

fn passes_escape(run: &Run) -> bool {
    run.output.contains('\u{1b}')
}
