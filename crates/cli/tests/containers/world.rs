//! The fixture of one test: a container runtime, its engine if it has one, an image, and the command with all of them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_test_containers::engine::uid;
use cofferdam_test_containers::{Engine, Kind, image};
use serde_json::Value;

/// A container runtime.
#[derive(Debug, Clone, Copy)]
pub struct Runtime {
    /// The name of the backend.
    pub backend: &'static str,
    /// The engine behind it.
    pub kind: Option<Kind>,
    /// Its program.
    program: &'static str,
    /// The Debian package.
    package: &'static str,
}

/// All of them.
pub(crate) const RUNTIMES: &[Runtime] = &[
    Runtime { backend: "docker", kind: Some(Kind::Docker), program: "dockerd", package: "docker.io" },
    Runtime { backend: "podman", kind: Some(Kind::Podman), program: "podman", package: "podman" },
    Runtime { backend: "oci:crun", kind: None, program: "crun", package: "crun" },
    Runtime { backend: "oci:runc", kind: None, program: "runc", package: "runc" },
    Runtime { backend: "oci:runsc", kind: None, program: "runsc", package: "runsc" },
];

impl Runtime {
    /// Whether this user can use it at all: dockerd needs root.
    pub fn is_this_users(&self) -> bool {
        self.kind != Some(Kind::Docker) || uid() == 0
    }

    /// Why it cannot be tried here.
    pub fn missing(&self) -> Option<String> {
        if let Some(kind) = self.kind {
            return kind.missing();
        }
        let there =
            ["/usr/bin", "/usr/sbin", "/usr/local/bin"].iter().any(|d| Path::new(d).join(self.program).exists());
        (!there).then(|| format!("{} is missing\nhint: apt-get install {}", self.program, self.package))
    }
}

/// What a test is given.
pub struct World {
    /// What makes the containers.
    pub runtime: Runtime,
    engine: Option<Engine>,
    directory: tempfile::TempDir,
    /// The image: a tarball with busybox and the probe.
    pub image: PathBuf,
    /// The image's root file system, as a directory.
    pub root: PathBuf,
}

/// A finished run.
pub struct Run {
    /// The command's exit code.
    pub code: i32,
    /// The outcome.
    pub outcome: Value,
}

impl std::fmt::Debug for Run {
    /// What a failed test shows: what differs from run to run.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "code {}", self.code)?;
        for key in ["outcome", "exit_code", "signal", "limit", "error", "stdout", "stderr", "violations", "network"] {
            if let Some(value) = self.outcome.get(key).filter(|v| !v.is_null() && *v != "") {
                write!(f, ", {key} {}", value.to_string().chars().take(1500).collect::<String>())?;
            }
        }
        Ok(())
    }
}

impl Run {
    /// A text of the outcome.
    pub fn text(&self, key: &str) -> &str {
        self.outcome[key].as_str().unwrap_or_default()
    }

    /// How strongly a field was held.
    pub fn strength(&self, field: &str) -> &str {
        self.outcome["enforcement"][field]["strength"].as_str().unwrap_or_default()
    }

    /// The operations of the violations.
    pub fn refused(&self) -> Vec<&str> {
        self.outcome["violations"].as_array().into_iter().flatten().filter_map(|v| v["operation"].as_str()).collect()
    }

    /// The step that failed.
    pub fn step(&self) -> &str {
        self.outcome["error"]["step"].as_str().unwrap_or_default()
    }
}

impl World {
    /// The world of one test. The image is the same, byte for byte, in all of them, so that an engine imports it once.
    pub fn new(runtime: Runtime) -> Result<World, String> {
        let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
        open(directory.path(), 0o755);
        let (root, image) = (directory.path().join("root"), directory.path().join("image.tar"));
        let probe = directory.path().join("probe");
        image::probe(&probe)?;
        image::root(&root, &[(&probe, "/bin/probe")])?;
        image::tarball(&root, &image)?;
        let engine = runtime.kind.map(Engine::shared).transpose()?;
        Ok(World { runtime, engine, directory, image, root })
    }

    /// The engine, where there is one.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// The same world with an engine that no other test sees.
    pub fn with_own_engine(runtime: Runtime) -> Result<World, String> {
        let kind = runtime.kind.ok_or("this runtime has no engine")?;
        Ok(World { engine: Some(Engine::own(kind)?), ..World::new(runtime)? })
    }

    /// A path in the test's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `cofferdam run` with the backend and nothing else yet.
    pub fn command(&self) -> Command {
        let mut command = self.cofferdam();
        command.args(["run", "--backend", self.runtime.backend]);
        command
    }

    /// `cofferdam` in this world.
    pub fn cofferdam(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command.stdin(Stdio::null()).current_dir(self.directory.path());
        // What is denied by default lies in the caller's home, which may be where containers have scratch space.
        command.env("COFFERDAM_STATE", self.path("state")).env("HOME", "/nonexistent");
        for name in ["DOCKER_HOST", "CONTAINER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"] {
            command.env_remove(name);
        }
        if let Some(engine) = &self.engine {
            let (name, value) = engine.environment();
            command.env(name, value);
        }
        command
    }

    /// Runs a program of the image with these options.
    #[track_caller]
    pub fn run(&self, options: &[&str], program: &[&str]) -> Run {
        let image = self.image.to_str().unwrap();
        self.run_in(&[&["--image", image], options].concat(), program)
    }

    /// The same where the options say what `/` is.
    #[track_caller]
    pub fn run_in(&self, options: &[&str], program: &[&str]) -> Run {
        let output = self.command().arg("--json").args(options).arg("--").args(program).output().unwrap();
        let (text, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let outcome = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{stderr}"));
        Run { code: output.status.code().unwrap_or(-1), outcome }
    }

    /// Starts a program that holds on, and waits until it does: it carries the mark in its arguments.
    #[track_caller]
    pub fn holding(&self, options: &[&str], mark: &str) -> Child {
        let image = self.image.to_str().unwrap();
        let mut command = self.command();
        command.args(["--image", image]).args(options).args(["--", "/bin/probe", "hold", mark]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        let mut reader = std::io::BufReader::new(out);
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        if line != "holding\n" {
            let output = child.wait_with_output().unwrap();
            panic!("it says `{line}`: {}", String::from_utf8_lossy(&output.stderr));
        }
        child.stdout = Some(reader.into_inner());
        child
    }

    /// Names of the engine's containers that belong to this owner; none where there is no engine.
    pub fn containers_of(&self, owner: u32) -> Vec<String> {
        let Some(engine) = &self.engine else { return Vec::new() };
        let names = engine.containers().unwrap();
        let begins = format!("{owner}:");
        names
            .into_iter()
            .filter(|name| {
                let details = engine.inspect(name).unwrap_or(Value::Null);
                details["Config"]["Labels"]["cofferdam.owner"].as_str().is_some_and(|label| label.starts_with(&begins))
            })
            .collect()
    }

    /// Whether this runtime can enforce a field here; where it must and cannot, the test fails.
    #[track_caller]
    pub fn holds(&self, field: &str, required_of: &[&str], option: &[&str]) -> bool {
        let run = self.run(&[option, &["--best-effort"]].concat(), &["/bin/true"]);
        assert!(run.outcome["success"] == true, "{run:?}");
        if run.strength(field) == "full" {
            return true;
        }
        let root = uid() == 0;
        let why = &run.outcome["enforcement"][field];
        assert!(!(root && required_of.contains(&self.runtime.backend)), "{field} is not held: {why}");
        let refused = self.run(option, &["/bin/true"]);
        assert_eq!((refused.code, refused.text("outcome")), (125, "setup_failed"), "{field} named: {refused:?}");
        let said = refused.outcome["error"].to_string();
        assert!(said.contains(field), "the refusal does not name {field}: {said}");
        eprintln!("{} refuses {field}: {why}", self.runtime.backend);
        false
    }
}

/// Every engine and runtime that root has cgroups with.
pub(crate) const WITH_CGROUPS: &[&str] = &["docker", "podman", "oci:crun", "oci:runc", "oci:runsc"];

/// Whether anything with this text in its arguments runs, besides the command itself: in gVisor it is the host's process
/// no longer, so its sandbox is looked for by the command that owns it.
pub(crate) fn carrying(mark: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&line).into_owned();
        if pid != std::process::id() as i32 && text.contains(mark) && !text.starts_with(env!("CARGO_BIN_EXE_cofferdam"))
        {
            found.push(pid);
        }
    }
    found
}

/// A text that no other process carries.
pub(crate) fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("cofferdam-mark-{}-{}-end", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sets the mode of a file or directory.
pub(crate) fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}
