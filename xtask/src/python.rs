//! What tests need of Python: an environment with Nickel as a module, and the wheel in an environment of its own.
//!
//! Everything lies below the target directory; nothing of the system's Python is changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::packages;
use crate::parts::{Counts, counted};
use crate::shell::{run, step, succeeds, which};
use crate::workspace::Workspace;

/// Packages of the environment with tools: py-nickel is the `nickel` command 1.18 as a module.
const TOOLS: &[&str] = &["py-nickel==1.18.0", "maturin>=1.8,<2"];
/// Packages of the environment that signs manifests with nothing of ours.
const SIGNING: &[&str] = &["eth-keys>=0.7,<1", "eth-hash[pycryptodome]>=0.7,<1", "rfc8785>=0.1,<1"];
/// Packages of the environment that the wheel is tested in.
const TESTING: &[&str] = &["pytest>=8,<10", "mypy>=1.13,<3"];

/// Why an environment cannot be made here, and what would help.
fn cannot(why: &str) -> Result<Option<PathBuf>> {
    let hint = "hint: sudo apt-get install python3 python3-venv (3.11 or later)";
    if packages::must_work() {
        return Err(format!("{why}\n{hint}"));
    }
    eprintln!("skipped: {why}\n{hint}");
    Ok(None)
}

/// A Python that can make environments.
fn base() -> Option<PathBuf> {
    let able = |python: &PathBuf| {
        let check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
        succeeds(Command::new(python).args(["-c", check]))
    };
    // The system's own first: every user can run it.
    let system = PathBuf::from("/usr/bin/python3");
    std::iter::once(system).chain(which("python3")).find(able)
}

/// An environment with these packages, made once. `None` where none can be made, and that is no mistake.
///
/// # Errors
/// Packages cannot be installed.
pub(crate) fn environment(directory: &Path, packages: &[&str]) -> Result<Option<PathBuf>> {
    let python = directory.join("bin/python");
    let mark = directory.join("complete");
    let wanted = packages.join("\n");
    if std::fs::read_to_string(&mark).is_ok_and(|text| text == wanted)
        && succeeds(Command::new(&python).arg("--version"))
    {
        return Ok(Some(python));
    }
    let Some(base) = base() else { return cannot("no Python here can make an environment") };
    step(&format!("Python packages, in {}", directory.display()));
    for package in packages {
        eprintln!("  {package}");
    }
    run(Command::new(base).args(["-m", "venv", "--clear"]).arg(directory))?;
    run(pip(&python).args(packages))?;
    std::fs::write(&mark, wanted).map_err(|error| format!("cannot write {}: {error}", mark.display()))?;
    Ok(Some(python))
}

fn pip(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
    command
}

/// A Python with Nickel in it, for tests that compare.
///
/// # Errors
/// Packages cannot be installed.
pub(crate) fn tools(workspace: &Workspace) -> Result<Option<PathBuf>> {
    environment(&workspace.target.join("python/tools"), TOOLS)
}

/// A Python that signs manifests with nothing of ours.
///
/// # Errors
/// Packages cannot be installed.
pub(crate) fn signing(workspace: &Workspace) -> Result<Option<PathBuf>> {
    environment(&workspace.target.join("python/signing"), SIGNING)
}

/// Builds the source distribution, and of it, in that profile, the wheel with this evaluator in it.
fn built(workspace: &Workspace, tools: &Path, evaluator: &Path, profile: &str) -> Result<PathBuf> {
    let wheels = workspace.target.join("python/wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).map_err(|error| format!("cannot remove {}: {error}", wheels.display()))?;
    }
    step("the Python package: source distribution, and the wheel of it");
    let scripts = tools.parent().ok_or("the environment has no directory")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(scripts.to_owned()).chain(std::env::split_paths(&path)))
        .map_err(|error| format!("PATH: {error}"))?;
    std::fs::create_dir_all(&wheels).map_err(|error| format!("cannot create {}: {error}", wheels.display()))?;
    let script =
        "import sys; sys.path.insert(0, 'python/build'); import build_backend as b; b.build_sdist(sys.argv[1])";
    run(Command::new(tools).args(["-c", script]).arg(&wheels).current_dir(&workspace.root).env("PATH", &path))?;
    let sdist = ending(&wheels, "gz")?;
    let mut build = Command::new(tools);
    build.args(["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]).arg(&sdist);
    build
        .arg(format!("--config-settings=build-args=--profile {profile}"))
        .arg("-w")
        .arg(&wheels)
        .current_dir(&workspace.root);
    // The evaluator that the other suites built goes into the wheel; maturin calls itself by name. In a place of its own,
    // since cargo takes the crates of two copies of the workspace for the same.
    build
        .env("CARGO_TARGET_DIR", workspace.target.join("python/build"))
        .env("COFFERDAM_COMPILE", evaluator)
        .env("PATH", path);
    run(&mut build)?;
    ending(&wheels, "whl")
}

/// The file in a directory whose name ends so.
fn ending(directory: &Path, end: &str) -> Result<PathBuf> {
    std::fs::read_dir(directory)
        .map_err(|error| format!("cannot list {}: {error}", directory.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|found| found == end))
        .ok_or_else(|| format!("no file in {} ends in .{end}", directory.display()))
}

/// A Python with the released wheel in it, for measurements.
///
/// # Errors
/// It cannot be built or installed.
pub(crate) fn released(workspace: &Workspace, tools: &Path, evaluator: &Path) -> Result<Option<PathBuf>> {
    let wheel = built(workspace, tools, evaluator, "release")?;
    let Some(python) = environment(&workspace.target.join("python/bench"), &["pip"])? else { return Ok(None) };
    run(pip(&python).args(["--force-reinstall", "--no-deps"]).arg(&wheel))?;
    Ok(Some(python))
}

/// Builds the wheel, installs it into a fresh environment, and runs its tests there.
///
/// # Errors
/// One of these fails.
pub(crate) fn wheel(workspace: &Workspace, tools: &Path, evaluator: &Path, counts: &mut Counts) -> Result {
    let wheel = built(workspace, tools, evaluator, "dev")?;
    let directory = workspace.target.join("python");
    step("the Python package: tests against the installed wheel");
    let fresh = directory.join("wheel-tests");
    if fresh.exists() {
        std::fs::remove_dir_all(&fresh).map_err(|error| format!("cannot remove {}: {error}", fresh.display()))?;
    }
    let Some(python) = environment(&fresh, TESTING)? else { return Ok(()) };
    run(pip(&python).arg(&wheel))?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "--quiet", "-rs", "python/tests"]).current_dir(&workspace.root);
    counted(tests.env("COFFERDAM_PY_NICKEL", tools), counts)
}
