//! `cargo xtask test`: everything that shows that the project works, in one call.
//!
//! ```text
//! packages ─▶ build once ─▶ doc tests ─▶ crates' tests as uid 65534 ─▶ guests ─▶ wheel ─▶ first tries ─▶ MCP clients
//!          ─▶ attacks ─▶ egress ─▶ the whole suite
//! ```
//!
//! Every part runs, whatever failed before it, and the last line is the sum of all of them. The whole suite comes last. It
//! runs as the caller; as root the
//! integration tests of crates/ run a second time as an unprivileged user, because rootless is another path through
//! the jail. The attacks of tests/escape and the attempts of tests/egress switch users by themselves; one process runs
//! all of each, for they share a table or a world, so they are parts of their own under a runner that makes a process for
//! each test (`.config/nextest.toml`). Only what every part needs ends the task at once: packages, and the build.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::guests;
use crate::mcp;
use crate::packages;
use crate::parts::{Counts, Parts, counted};
use crate::python;
use crate::shell::{self, cargo, step, succeeds, uid};
use crate::tasks;
use crate::workspace::{Package, Workspace, executables};

/// The unprivileged user of the second pass: Debian's `nobody`.
const NOBODY: u32 = 65534;

/// Crates whose tests start no sandbox and ask the kernel for nothing that depends on the user: one pass shows the same.
const OF_ANY_USER: [&str; 4] = ["cofferdam-policy", "cofferdam-compile", "cofferdam-compat", "cofferdam-egress"];

/// How long engines may take to end that tests have left: each waits for a while whether somebody else needs it.
const ENGINES: Duration = Duration::from_secs(60);

/// Runs the task.
pub(crate) fn run(arguments: &[String]) -> Result {
    let result = all(arguments);
    // Those of another call that is still running stay, with what they are in.
    if let Err(left) = cofferdam_test_containers::engine::clear(ENGINES) {
        eprintln!("container engines of the tests are left:\n{left}");
    }
    result
}

fn all(arguments: &[String]) -> Result {
    let fast = match arguments {
        [] => false,
        [flag] if flag == "--fast" => true,
        other => return Err(format!("unknown arguments {other:?}; accepted: --fast")),
    };
    packages::ensure(packages::TEST)?;
    if !fast {
        packages::ensure(packages::GUESTS)?;
    }
    let workspace = Workspace::read()?;
    let nickel = python::tools(&workspace)?;
    let runner = Runner::find(nickel.clone(), python::signing(&workspace)?);

    step("build the tests");
    shell::run(runner.command().args(["--workspace", "--no-run"]))?;
    // The very programs that this build made, so that no other is tested and none is built a second time.
    let programs = executables(cargo().args(["test", "--workspace", "--no-run"]))?;
    let program = |name: &str| programs.get(name).ok_or_else(|| format!("the build made no program `{name}`"));
    let command = program("cofferdam")?;

    let mut parts = Parts::default();
    parts.run("doc tests", |counts| {
        counted(cargo().args(["test", "--quiet", "--workspace", "--doc", "--no-fail-fast"]), counts)
    });
    if uid() == Some(0) {
        parts.run("the crates' integration tests as an unprivileged user", |counts| {
            unprivileged(&workspace, &runner, counts)
        });
    } else {
        eprintln!("skipped: the second pass as another user needs root; this user's pass follows");
    }
    if fast {
        eprintln!("skipped: guests (--fast)");
    } else {
        parts.run("guests", |counts| guests::run_all(&workspace, counts));
    }
    if let Some(tools) = &nickel {
        parts.run("the Python package", |counts| {
            python::wheel(&workspace, tools, program("cofferdam-compile")?, counts)
        });
    }
    parts.run("what users type first", |counts| tasks::smoke(&workspace, counts));
    parts.run("the MCP server with clients of others", |counts| {
        mcp::clients(&workspace, program("cofferdam-serve")?, counts)
    });
    if runner.nextest {
        parts.run("attacks and their allowed twins", |counts| {
            counted(cargo().args(["test", "--workspace", "--test", "escape"]).env("COFFERDAM_BIN", command), counts)
        });
        parts.run("the egress gateway: clients, and attempts to get round it", |counts| {
            counted(cargo().args(["test", "--workspace", "--test", "egress"]).env("COFFERDAM_BIN", command), counts)
        });
    }
    parts.run("the whole suite", |counts| {
        let mut suite = runner.command();
        counted(suite.args(["--workspace", "--no-fail-fast"]).env("COFFERDAM_BIN", command), counts)
    });
    parts.close()
}

/// cargo-nextest where it is installed, else cargo's own runner. It is never compiled here: that takes minutes.
struct Runner {
    nextest: bool,
    /// A Python with Nickel in it.
    nickel: Option<PathBuf>,
    /// A Python that signs manifests.
    signing: Option<PathBuf>,
}

impl Runner {
    fn find(nickel: Option<PathBuf>, signing: Option<PathBuf>) -> Runner {
        Runner { nickel, signing, nextest: succeeds(cargo().args(["nextest", "--version"])) }
    }

    fn command(&self) -> Command {
        let mut command = cargo();
        if self.nextest {
            command.args(["nextest", "run"]);
            // Many tests wait for a limit, an engine, or the kernel.
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            command.env("NEXTEST_TEST_THREADS", (processors + processors.div_ceil(2)).to_string());
        } else {
            command.args(["test"]);
        }
        if let Some(python) = &self.nickel {
            command.env("COFFERDAM_PY_NICKEL", python);
        }
        if let Some(python) = &self.signing {
            command.env("COFFERDAM_ETH_KEYS", python);
        }
        command
    }
}

/// Runs the integration tests of crates/ again as [`NOBODY`], through cargo's target runner: the same binaries, no
/// second build.
fn unprivileged(workspace: &Workspace, runner: &Runner, counts: &mut Counts) -> Result {
    let tested: Vec<&Package> = workspace
        .packages
        .iter()
        .filter(|package| package.directory.starts_with("crates") && !package.tests.is_empty())
        .filter(|package| !OF_ANY_USER.contains(&package.name.as_str()))
        .collect();
    if tested.is_empty() {
        eprintln!("no crate has integration tests");
        return Ok(());
    }
    let home = Scratch::new("home")?;
    std::os::unix::fs::chown(&home.0, Some(NOBODY), Some(NOBODY)).map_err(|error| format!("chown: {error}"))?;

    let mut command = runner.command();
    command.arg("--workspace");
    if runner.nextest {
        let names: Vec<String> = tested.iter().map(|package| format!("package(={})", package.name)).collect();
        command.arg("-E").arg(format!("kind(test) and ({})", names.join(" or ")));
    } else {
        // With the whole workspace selected, features are those of the build before: nothing is compiled again.
        command.args(tested.iter().flat_map(|package| &package.tests).flat_map(|test| ["--test", test]));
    }
    let script = home.0.join("as-nobody");
    // Homes that the host view shows, which it does not where a temporary directory is.
    let homes = workspace.target.join("homes-of-tests");
    std::fs::create_dir_all(&homes)
        .and_then(|()| std::os::unix::fs::chown(&homes, Some(NOBODY), Some(NOBODY)))
        .map_err(|error| format!("cannot make {}: {error}", homes.display()))?;
    write_runner(&script, &home.0, &[&workspace.root, &workspace.target])?;
    counted(command.arg("--no-fail-fast").env(runner_variable(), &script).env("COFFERDAM_TEST_HOMES", &homes), counts)
}

/// `CARGO_TARGET_<TRIPLE>_RUNNER` of this machine.
fn runner_variable() -> String {
    format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase())
}

/// Writes the program that runs a test binary as [`NOBODY`].
///
/// Where the checkout lies below a directory that others cannot enter (such as /root), the test runs in a mount
/// namespace of its own in which an empty directory stands in for that one, with nothing but the checkout and the
/// target directory in it: the user could not see the rest anyway.
fn write_runner(script: &Path, home: &Path, needed: &[&Path]) -> Result {
    let drop = format!(
        "exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --inh-caps=-all -- \\\n    \
         env -u XDG_RUNTIME_DIR HOME='{0}' TMPDIR=/tmp USER=nobody \"$@\"",
        home.display()
    );
    let closed: Vec<&Path> = needed.iter().filter_map(|path| closed_ancestor(path)).collect();
    let mut text = String::from("#!/bin/sh\n# Generated by `cargo xtask test`; removed when it ends.\nset -eu\n");
    if closed.is_empty() {
        text += &drop;
    } else {
        // Bind what is needed aside, cover each closed directory, and put it back at its own place.
        let mut inner = String::from("set -eu\nmount --make-rprivate /\n");
        for (index, path) in needed.iter().enumerate() {
            let aside = home.join(format!("aside-{index}"));
            std::fs::create_dir(&aside).map_err(|error| format!("cannot create {}: {error}", aside.display()))?;
            inner += &format!("mount --bind '{}' '{}'\n", path.display(), aside.display());
        }
        let mut covered = closed.clone();
        covered.sort_unstable();
        covered.dedup();
        for path in &covered {
            inner += &format!("mount -t tmpfs -o mode=755 cover '{}'\n", path.display());
        }
        for (index, path) in needed.iter().enumerate() {
            let aside = home.join(format!("aside-{index}"));
            inner += &format!("mkdir -p '{0}'\nmount --move '{1}' '{0}'\n", path.display(), aside.display());
        }
        inner += "cd \"$PWD\"\n";
        inner += &drop;
        let inside = home.join("inside");
        std::fs::write(&inside, inner).map_err(|error| format!("cannot write {}: {error}", inside.display()))?;
        text += &format!("exec unshare --mount -- /bin/sh '{}' \"$@\"", inside.display());
    }
    text.push('\n');
    std::fs::write(script, text)
        .and_then(|()| {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755))
        })
        .map_err(|error| format!("cannot write {}: {error}", script.display()))
}

/// The outermost ancestor of a path that not everybody may enter.
fn closed_ancestor(path: &Path) -> Option<&Path> {
    use std::os::unix::fs::PermissionsExt as _;
    let mut ancestors: Vec<&Path> = path.ancestors().collect();
    ancestors.reverse();
    ancestors.into_iter().find(|path| std::fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o001 == 0))
}

/// A directory below /var/tmp that goes when the value does.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Scratch> {
        let path = PathBuf::from(format!("/var/tmp/cofferdam-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_path_needs_no_cover() {
        assert_eq!(closed_ancestor(Path::new("/usr/bin")), None);
    }

    #[test]
    fn the_outermost_closed_directory_is_found() {
        use std::os::unix::fs::PermissionsExt as _;
        let outer = Scratch::new("closed").unwrap();
        let inner = outer.0.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::set_permissions(outer.0.join("a"), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(closed_ancestor(&inner), Some(outer.0.join("a").as_path()));
    }
}
