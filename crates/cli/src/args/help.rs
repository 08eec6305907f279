//! The parts of the help that are longer than an option's line: examples, exit codes, and the table of defaults.
//!
//! Text only.

use cofferdam_policy::{Policy, Root};

use crate::call::defaults::run_limits;

/// Examples and exit codes, at the end of the help.
pub const EXAMPLES: &str = "\
Examples:
  cofferdam eval python 'print(6*7)'
  cofferdam run -- ./build.sh
  cofferdam run --here make test
  cofferdam eval shell -it
  cofferdam run --profile ./reader.ncl -v .:.:ro -w . -- cat notes.txt

Exit code: the program's own; 128+N when signal N ended it; 124 for the wall
limit; 137 for another limit; 125 when Cofferdam refused or failed itself;
126 and 127 when the program cannot be executed or found.";

/// The defaults of a call without options and without a policy file, as an aligned table. `root` is the root view, `host`
/// or `minimal`.
pub fn defaults(root: &str) -> String {
    let mut base = Policy::base();
    base.filesystem.root = if root == "host" { Root::Host } else { Root::Minimal };
    let mut text = String::from("Defaults:\n");
    let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<16}{value}\n"));
    let limits = if root == "host" { run_limits(0) } else { base.limits };
    if root == "host" {
        row("files", "the host, read-only, without credentials, /run and /tmp".into());
        row("workdir", "the caller's, read-only".into());
    } else {
        row("files", "the system's programs and libraries, read-only".into());
        row("workdir", "the sandbox's own home".into());
    }
    let variables: Vec<String> = base.command.variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
    for (at, pair) in variables.chunks(3).enumerate() {
        row(if at == 0 { "variables" } else { "" }, pair.join(" "));
    }
    row("stdin", "the caller's if it is a pipe or a file, else closed".into());
    row("network", "none".into());
    row("seccomp", "standard".into());
    let (memory, timeout) = match root {
        "host" => {
            ("half of the machine's, 512m to 4096m".into(), format!("{}m; none with -t", limits.wall_ms / 60_000))
        }
        _ => (format!("{}m", limits.memory_mb), format!("{}s", limits.wall_ms as f64 / 1000.0)),
    };
    row("memory", memory);
    row("cpus", format!("{}", limits.cpu_millis as f64 / 1000.0));
    row("timeout", timeout);
    row("cpu-time", format!("{}s", limits.cpu_seconds));
    row("pids", limits.processes.to_string());
    row("open-files", limits.open_files.to_string());
    row("file-size", format!("{}m", limits.file_size_mb));
    row("tmpfs-size", format!("{}m", limits.tmpfs_mb));
    row("output-limit", format!("none, with --json {}k", limits.output_bytes >> 10));
    row("layer-size", format!("{}m", limits.layer_mb));
    row("layer-files", limits.layer_inodes.to_string());
    row("hostname", base.process.hostname.clone());
    text.push_str("  Default limits hold as far as the host allows; what an option names must hold in full.\n");
    text
}
