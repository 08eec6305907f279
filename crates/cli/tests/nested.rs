//! The command inside one of its own sandboxes: what works there, what it enforces, and what it reports where it cannot.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{cofferdam, open_directory};

/// The command and the evaluator beside it, and a directory of one's own, shown to a sandbox.
struct Nest {
    directory: tempfile::TempDir,
}

impl Nest {
    fn new() -> Nest {
        Nest { directory: open_directory() }
    }

    fn programs() -> &'static Path {
        Path::new(env!("CARGO_BIN_EXE_cofferdam")).parent().unwrap()
    }

    /// Runs this inside.
    fn inside(&self, outer: &[&str], argv: &[&str]) -> Output {
        let volume = |source: &Path, target: &str| format!("{}:{target}", source.display());
        cofferdam()
            .args(["run", "-q", "-v", &volume(Nest::programs(), "/programs")])
            .args(["-v", &volume(self.directory.path(), "/work"), "-w", "/work", "-e", "HOME=/tmp/home"])
            .args(outer)
            .arg("--")
            .args(argv)
            .output()
            .unwrap()
    }

    #[track_caller]
    fn printed(&self, outer: &[&str], argv: &[&str]) -> String {
        let output = self.inside(outer, argv);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{outer:?} {argv:?}: {message}");
        String::from_utf8(output.stdout).unwrap()
    }
}

const PROFILE: &str = "let s = import \"sandbox\" in\n\
                       s.make_default_config \"reader\" & { network_policy = \"deny\", cmd = [\"/bin/echo\", \"own\"] }\n";

/// What an ordinary user may ask of the landlock backend.
const LESS: &str = "--best-effort=filesystem.root,filesystem.mounts,filesystem.deny,process.isolation,process.hostname,\
                    process.tree_kill,process.spawn,limits.tmpfs_mb";

fn has_evaluator() -> bool {
    let there = Nest::programs().join("cofferdam-compile").exists();
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
    assert!(there || !must, "cofferdam-compile is not built; cargo build -p cofferdam-compile");
    if !there {
        eprintln!("skipped: cofferdam-compile is not built; cargo build -p cofferdam-compile");
    }
    there
}

#[test]
fn a_profile_is_evaluated_inside_a_sandbox_as_outside() {
    if !has_evaluator() {
        return;
    }
    let nest = Nest::new();
    fs::write(nest.directory.path().join("reader.ncl"), PROFILE).unwrap();
    let outside = cofferdam()
        .args(["export", "reader.ncl"])
        .current_dir(nest.directory.path())
        .env("XDG_CACHE_HOME", nest.directory.path().join("cache"))
        .output()
        .unwrap();
    let outside = String::from_utf8(outside.stdout).unwrap();
    assert!(outside.contains("\"id\": \"reader\""), "{outside}");
    // The limits of open files: what a sandbox has by default, and one above the number that the program sits on.
    for outer in [&[][..], &["--open-files", "5000"], &["--seccomp", "disabled"]] {
        assert_eq!(nest.printed(outer, &["/programs/cofferdam", "export", "reader.ncl"]), outside, "{outer:?}");
    }
    assert_eq!(nest.printed(&[], &["/programs/cofferdam", "check", "reader.ncl"]), outside);
    // The outer sandbox is in force: files outside of the profile's directories are not read.
    fs::write(nest.directory.path().join("thief.ncl"), "{ skill_id = import \"/etc/passwd\" as 'Text }").unwrap();
    let thief = nest.inside(&[], &["/programs/cofferdam", "export", "thief.ncl"]);
    let message = String::from_utf8_lossy(&thief.stderr);
    assert!(thief.status.code() == Some(125) && message.contains("outside the directories"), "{message}");
}

#[test]
fn a_sandbox_in_a_sandbox_holds_and_says_what_it_cannot() {
    let nest = Nest::new();
    let inner = ["/programs/cofferdam", "run", "--backend", "landlock", "--json", LESS];
    let run = |options: &[&str], script: &str| {
        let argv = [&inner[..], options, &["--", "/bin/sh", "-c", script]].concat();
        let output = nest.inside(&[], &argv);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_else(|e| panic!("{e}: {message}"))
    };
    let script = "echo here; /bin/true && echo spawned; : > /work/new || :";
    let free = run(&[], script);
    assert_eq!((&free["outcome"], &free["stdout"]), (&"exited".into(), &"here\nspawned\n".into()), "{free:#}");
    let alone = run(&["--no-spawn"], script);
    assert_eq!((&alone["outcome"], &alone["stdout"]), (&"exited".into(), &"here\n".into()), "{alone:#}");
    // Refusals are not reported, and execs are not counted: the outcome says so.
    assert_eq!(alone["violations_complete"], false, "{alone:#}");
    assert_eq!(alone["enforcement"]["process.spawn"]["strength"], "partial", "{alone:#}");
    let traced = run(&["--trace"], "true");
    assert_eq!((&traced["outcome"], &traced["error"]["step"]), (&"setup_failed".into(), &"audit.trace".into()));
    // Without leave nothing weaker runs, and the way on is one that leads somewhere.
    let refused = nest.inside(&[], &["/programs/cofferdam", "run", "--", "/bin/true"]);
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{message}");
    assert!(
        message.contains("user namespaces cannot be had") && message.contains("outside of the container or sandbox"),
        "{message}"
    );
    assert!(!message.contains("sysctl") && !message.contains("--backend jail"), "{message}");
}

#[test]
fn program_without_children_runs_with_few_open_files() {
    let limited = |limit: &str, rest: &str| {
        let script = format!("ulimit -n {limit} && exec \"$0\" run --no-spawn {rest}");
        Command::new("/bin/sh").args(["-c", &script, env!("CARGO_BIN_EXE_cofferdam")]).output().unwrap()
    };
    let runs = limited("1024", "-- /bin/echo ran");
    assert_eq!(String::from_utf8_lossy(&runs.stdout), "ran\n", "{}", String::from_utf8_lossy(&runs.stderr));
    let script = "-- /bin/sh -c 'echo alone; /bin/true && echo spawned'";
    assert_eq!(String::from_utf8_lossy(&limited("1024", script).stdout), "alone\n");
    let low = limited("60", "--open-files 40 -- /bin/echo ran");
    let message = String::from_utf8_lossy(&low.stderr);
    assert!(
        low.status.code() == Some(125) && message.contains("60 open files") && message.contains("hint: "),
        "{message}"
    );
}
