//! Rewrites hints for Python callers: an option of the command becomes the equivalent field or argument.
//!
//! Text only. Options of other programs, such as container engines, are unchanged.

/// Phrases of hints for the command line, and their equivalents in Python. Longer ones first.
pub(crate) const WORDS: &[(&str, &str)] = &[
    (
        "--root minimal for the system's programs, --image for those of an image, -v for directories",
        "filesystem.root = \"minimal\" for the system's programs, {\"image\": …} for those of an image, filesystem.mounts for \
         directories",
    ),
    (
        "use --backend docker, podman or oci, or name a directory that holds its files: --root ./DIR",
        "name the backend docker, podman or oci, or, as filesystem.root, a directory that holds its files",
    ),
    (
        "give a directory or a tarball: --image ./rootfs, --image /path/to/root.tar",
        "give a directory or a tarball by its path as filesystem.root",
    ),
    (
        "give a directory with --root ./DIR, or a tarball with --image /path/to/root.tar",
        "give a directory or a tarball by its path as filesystem.root",
    ),
    (
        "give a directory with --root ./DIR, or a tarball",
        "give a directory or a tarball by its path as filesystem.root",
    ),
    (
        "for what is here by that name: --image ./",
        "for what is here by that name: filesystem.root with the whole path of ./",
    ),
    ("another one: --backend oci:crun, oci:runc", "another one: the backend oci:crun or oci:runc"),
    ("or use --backend oci:crun", "or use the backend oci:crun"),
    ("use --backend oci:crun, or leave mounts out", "use the backend oci:crun, or leave mounts out"),
    ("use another runtime: --backend oci:runc", "use another runtime: the backend oci:runc"),
    (
        "use the view --root minimal, or leave --unix-sockets out",
        "use filesystem.root = \"minimal\", or leave process.unix_sockets out",
    ),
    ("set PATH with -e PATH=...", "set PATH in command.variables"),
    ("or each with less --memory", "or each with less limits.memory_mb"),
    ("mount the directory that holds it with -v", "mount the directory that holds it by filesystem.mounts"),
    ("mount it with -v", "mount it by filesystem.mounts"),
    ("name one that exists inside with -w", "name one that exists inside as command.cwd"),
    ("add `,exec` as in -v .:.:rw,exec", "set `exec` of its mount to true"),
    ("use -v PATH:PATH", "mount the path at its own place"),
    (" (-v PATH:PATH)", ""),
    ("mount it :ro or :rw", "mount it read_only or read_write"),
    ("--layer-files 2 or more", "limits.layer_inodes of 2 or more"),
    ("raise --open-files", "raise limits.open_files"),
    ("raise --memory", "raise limits.memory_mb"),
    ("leave --trace out", "leave audit.trace out"),
    ("(enforcement.best_effort) takes", "takes"),
    ("and --backend landlock runs without them", "and the backend landlock runs without them"),
    ("its --open-files", "its limits.open_files"),
    (", or leave --tty out", ""),
    ("choose another name with --id", "choose another name"),
    ("cofferdam export FILE.ncl --store --id ", "run export_profile() with skill_id "),
    ("cofferdam export --format seatbelt", "compile_profile(FILE, \"seatbelt\")"),
    ("or use --backend jail with --root", "or name the backend jail, with it as filesystem.root"),
    ("or --backend oci:crun", "or the backend oci:crun"),
    ("or --backend oci, where", "or the backend oci, where"),
    ("use --backend landlock", "name the backend landlock"),
    ("use --backend jail", "name the backend jail"),
    ("or --backend jail", "or name the backend jail"),
    ("--backend jail holds more", "the backend jail holds more"),
    ("--backend jail", "the backend jail"),
    ("or use --backend oci", "or use the backend oci"),
    ("or --backend oci, which", "or the backend oci, which"),
    ("--backend oci runs", "the backend oci runs"),
    ("--backend docker runs", "the backend docker runs"),
    ("--trust-profile evaluates it", "compile_profile with trusted=True evaluates it"),
    ("--allow-import ", "compile_profile with `imports` that name "),
    ("--profiles DIR", "profile_dir"),
];

/// The hint without options of the command.
pub(crate) fn in_python(hint: &str) -> String {
    let mut said = match hint.strip_prefix("--best-effort=").and_then(|rest| rest.split_once(' ')) {
        Some((fields, rest)) => {
            let fields = fields.replace(',', "\", \"");
            format!(
                "enforcement.best_effort = [\"{fields}\"] in the policy, or best_effort in a skill's configuration, {rest}"
            )
        }
        None => hint.to_owned(),
    };
    for (typed, written) in WORDS {
        if said.contains(typed) {
            said = said.replace(typed, written);
        }
    }
    said
}

/// Rewrites the hints of a message, each of which has a line of its own.
pub(crate) fn message_in_python(text: &str) -> String {
    let lines = text.split('\n').map(|line| match line.split_once("hint: ") {
        Some((before, hint)) if before.trim().is_empty() => format!("{before}hint: {}", in_python(hint)),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
