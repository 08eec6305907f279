//! `cargo xtask lint`: formatting and clippy, warnings denied.
//!
//! clippy runs as the wrapper of the workspace's own crates over the build of the tests, so that dependencies are
//! compiled once for both. The jail's init program is no cargo target (a build script compiles it without the standard
//! library), so it is formatted and linted by name.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::shell::{cargo, run, step};
use crate::workspace::Workspace;

/// The program that a build script compiles by itself.
const INIT: &str = "crates/confine/init/main.rs";

/// What clippy must not let pass in [`INIT`], beyond rustc's own warnings: the workspace's table does not reach it.
const INIT_DENY: &[&str] =
    &["warnings", "clippy::all", "clippy::undocumented_unsafe_blocks", "unsafe_op_in_unsafe_fn", "missing_docs"];

/// What compiles [`INIT`], with which flags.
const BUILD: &str = "crates/confine/build.rs";

/// Runs all of it, whatever fails on the way.
fn lint(workspace: &Workspace) -> Result {
    let init = workspace.root.join(INIT);
    step("formatting");
    let mut results = vec![run(cargo().args(["fmt", "--all", "--check"]))];
    if init.exists() {
        results.push(run(Command::new("rustfmt").args(["--check", "--edition", "2024"]).arg(&init)));
    }

    step("clippy");
    // `CLIPPY_ARGS` is how cargo-clippy hands lint levels to clippy-driver; the driver tells cargo that it read them.
    results.push(run(cargo()
        .args(["build", "--quiet", "--workspace", "--all-targets", "--keep-going"])
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__")));
    // As a program has it that embeds the jail alone.
    results.push(run(cargo()
        .args(["check", "--quiet", "--package", "cofferdam-engine", "--no-default-features"])
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        .env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__")));
    if init.exists() {
        let out = workspace.target.join("lint");
        std::fs::create_dir_all(&out).map_err(|error| format!("cannot create {}: {error}", out.display()))?;
        results.push(run(&mut init_command(workspace, &out)?));
    }
    let failures: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// The entry of the task table.
pub(crate) fn run_from(arguments: &[String]) -> Result {
    if !arguments.is_empty() {
        return Err(format!("unknown arguments {arguments:?}; none is accepted"));
    }
    lint(&Workspace::read()?)
}

/// clippy over [`INIT`] with the flags of [`BUILD`], but without making a program of it.
fn init_command(workspace: &Workspace, out: &Path) -> Result<Command> {
    let text =
        std::fs::read_to_string(workspace.root.join(BUILD)).map_err(|error| format!("cannot read {BUILD}: {error}"))?;
    let flags = build_flags(&text).ok_or_else(|| format!("{BUILD} has no list `const FLAGS: &[&str] = &[…];`"))?;
    let mut command = Command::new("clippy-driver");
    command.args(flags).arg("--emit=metadata").arg("--out-dir").arg(out);
    for lint in INIT_DENY {
        command.arg(format!("-D{lint}"));
    }
    command.arg(workspace.root.join(INIT));
    Ok(command)
}

/// The strings of the list `FLAGS`.
fn build_flags(build: &str) -> Option<Vec<&str>> {
    let list = build.split_once("const FLAGS: &[&str] = &[")?.1.split_once("];")?.0;
    let flags: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    if flags.is_empty() { None } else { Some(flags) }
}

#[cfg(test)]
mod tests {
    use super::build_flags;

    #[test]
    fn the_flags_are_read_from_the_build_script() {
        let text = "const FLAGS: &[&str] = &[\n    \"--edition=2024\",\n    \"-Copt-level=s\",\n];\nfn main() {}";
        assert_eq!(build_flags(text), Some(vec!["--edition=2024", "-Copt-level=s"]));
        assert_eq!(build_flags("fn main() {}"), None);
    }
}
