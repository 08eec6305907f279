//! What a run records about the repositories in its volumes in case it is interrupted, what the next run does with the record,
//! and what both report where that fails.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::common::{cofferdam, is_root, open_directory};
use super::{REPOSITORY, done, embedded, identity, shell, there};

/// A repository, and a state directory of the test's own.
pub(crate) struct Scene {
    pub(crate) root: tempfile::TempDir,
    pub(crate) repo: PathBuf,
    pub(crate) planted: String,
    pub(crate) marker: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Option<Scene> {
        if !there("git") {
            return None;
        }
        let root = open_directory();
        let (repo, planted, marker) = embedded(root.path());
        Some(Scene { root, repo, planted, marker })
    }

    pub(crate) fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = cofferdam();
        command.env("XDG_STATE_HOME", self.root.path().join("state")).arg("run").args(options);
        command.arg("-v").arg(format!("{0}:{0}:rw", self.repo.display()));
        for (name, value) in identity() {
            command.arg("-e").arg(format!("{name}={value}"));
        }
        command.arg("-w").arg(&self.repo).args(["-e", "HOME=/tmp", "--", "/bin/sh", "-c", script]);
        command
    }

    /// Where records are.
    fn unfinished(&self) -> PathBuf {
        self.root.path().join("state/cofferdam/unfinished")
    }

    pub(crate) fn records(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.unfinished()).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }

    /// Exit code and standard error of a run that does nothing itself.
    pub(crate) fn next(&self) -> (Option<i32>, String) {
        code_and_stderr_of(&self.command(&[], "true").output().unwrap())
    }

    /// A run that is killed once it has done this.
    pub(crate) fn killed(&self, script: &str) {
        let mut killed = self.command(&[], &format!("{script}; echo >ready; sleep 60")).spawn().unwrap();
        wait_for(&self.repo.join("ready"));
        killed.kill().unwrap(); // SIGKILL
        killed.wait().unwrap();
    }
}

pub(crate) fn code_and_stderr_of(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

pub(crate) fn wait_for(path: &Path) {
    let until = Instant::now() + Duration::from_secs(20);
    while !path.exists() {
        assert!(Instant::now() < until, "the program did not get so far");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) const NOTHING: (Option<i32>, String) = (Some(0), String::new());

#[test]
fn next_run_finds_index_entries_of_an_interrupted_run() {
    let Some(scene) = Scene::new() else { return };
    scene.killed(&scene.planted);
    assert!(scene.repo.join("x/.git").exists());
    assert_eq!(scene.records().len(), 1);
    let (code, said) = scene.next();
    assert!(code == Some(0) && said.contains("cut off") && said.contains("x/.git.disabled"), "{said}");
    shell(&scene.repo, scene.root.path(), "git status");
    assert!(!scene.marker.exists());
    assert_eq!((scene.next(), scene.records()), (NOTHING, Vec::new()));
}

/// What these backends enforce in part here, and is not what the test is about.
const IN_PART: &str = "--best-effort=limits,filesystem.root,filesystem.mounts,filesystem.deny,filesystem.protected";

/// Another backend than the jail may have looked at the tree before what lies in it was renamed.
#[test]
fn every_backend_runs_after_a_run_that_was_cut_off() {
    let Some(scene) = Scene::new() else { return };
    for (options, program) in [
        (&["--backend", "bubblewrap", IN_PART][..], "bwrap"),
        (&["--backend", "oci", "--root", "minimal", IN_PART], "crun"),
    ] {
        if !there(program) {
            continue;
        }
        scene.killed(&scene.planted);
        fs::remove_file(scene.repo.join("ready")).unwrap();
        let output = scene.command(options, "echo ran").output().unwrap();
        let (code, said) = code_and_stderr_of(&output);
        assert!(code == Some(0) && said.contains("x/.git.disabled"), "{options:?}: {code:?} {said}");
        assert_eq!(output.stdout, b"ran\n", "{options:?}");
        // Once nothing is left to rename, the same run says nothing of it.
        let (code, said) = code_and_stderr_of(&scene.command(options, "true").output().unwrap());
        assert!(code == Some(0) && !said.contains("disabled"), "{options:?}: {said}");
        fs::remove_dir_all(scene.repo.join("x")).unwrap();
        done(&scene.repo, scene.root.path(), "git rm -q --cached -f x ; rm -rf x");
    }
}

/// What was there before is known from the record alone.
#[test]
fn a_record_stays_until_a_work_tree_is_again_where_it_was() {
    if !there("git") || !is_root() {
        return eprintln!("skipped: only root mounts a disk that gets full");
    }
    let root = open_directory();
    let at = root.path();
    let run = format!(
        "XDG_STATE_HOME={at}/state {program} run -v {at}/disk/repo:{at}/disk/repo:rw -w {at}/disk/repo -- /bin/sh -c",
        at = at.display(),
        program = env!("CARGO_BIN_EXE_cofferdam")
    );
    let script = format!(
        "set -e; exec 2>&1; mkdir disk; mount -t tmpfs -o size=2m,mode=755 none disk; mkdir disk/repo; cd disk/repo; git init -q .; \
         git commit -q --allow-empty -m a; git worktree add -q wt; cp .git/worktrees/wt/gitdir ../../said; \
         away='echo /nowhere/.git >.git/worktrees/wt/gitdir'; records() {{ ls ../../state/cofferdam/unfinished | wc -l; }}; \
         {run} \"$away\"; cmp .git/worktrees/wt/gitdir ../../said; echo records: $(records); \
         {run} \"$away; cat /dev/zero >fill; cat /dev/zero >more; true\" || echo code: $?; echo records: $(records); \
         {run} true || echo code: $?; echo records: $(records); \
         rm fill more; {run} true; cmp .git/worktrees/wt/gitdir ../../said; echo records: $(records)"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", &script]).current_dir(at).env("HOME", at);
    let output = command.envs(identity()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let steps: Vec<&str> =
        said.lines().filter(|line| line.starts_with("records: ") || line.starts_with("code: ")).collect();
    let expected = ["records: 0", "code: 125", "records: 1", "code: 125", "records: 1", "records: 0"];
    assert!(output.status.success() && steps == expected, "{said}");
}

#[test]
fn partial_record_is_removed_once_its_writer_is_gone() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(scene.next(), NOTHING);
    fs::create_dir_all(scene.unfinished()).unwrap();
    let (old, new) = (scene.unfinished().join(".old"), scene.unfinished().join(".new"));
    for path in [&old, &new] {
        fs::write(path, "[").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(scene.next(), NOTHING);
    assert_eq!(scene.records(), [new], "one that may be written right now stays");
}

#[test]
fn a_run_that_ends_leaves_no_record() {
    let Some(scene) = Scene::new() else { return };
    let mut running = scene.command(&[], "echo >ready; while [ ! -e go ]; do sleep 0.1; done").spawn().unwrap();
    wait_for(&scene.repo.join("ready"));
    assert_eq!(scene.records().len(), 1, "while it goes on there is one");
    // Another run neither takes it for one that was cut off, nor removes it.
    assert_eq!((scene.next(), scene.records().len()), (NOTHING, 1));
    fs::write(scene.repo.join("go"), "").unwrap();
    assert!(running.wait().unwrap().success());
    assert_eq!(scene.records(), [""; 0].map(PathBuf::from));
}

#[test]
fn unwritable_record_is_reported_and_the_program_runs() {
    let Some(scene) = Scene::new() else { return };
    fs::create_dir_all(scene.unfinished().parent().unwrap()).unwrap();
    // A directory cannot be made there, and root could not be kept out by its mode.
    fs::write(scene.unfinished(), "").unwrap();
    let output = scene.command(&["--json"], "echo ran").output().unwrap();
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &outcome["error"];
    assert_eq!(
        (&outcome["stdout"], &outcome["success"], &error["code"]),
        (&"ran\n".into(), &true.into(), &0.into()),
        "{outcome:#}"
    );
    let message = error["message"].as_str().unwrap_or_default();
    assert!(error["step"] == "repositories" && message.contains("could not be recorded"), "{outcome:#}");
    // What it does itself is looked at all the same.
    let (_, said) = code_and_stderr_of(&scene.command(&[], &scene.planted).output().unwrap());
    assert!(said.contains("could not be recorded") && said.contains("x/.git.disabled"), "{said}");
    fs::remove_file(scene.unfinished()).unwrap();
    assert_eq!(scene.next(), NOTHING);
}

#[test]
fn a_volume_without_a_repository_needs_no_record() {
    let Some(scene) = Scene::new() else { return };
    fs::create_dir_all(scene.unfinished().parent().unwrap()).unwrap();
    fs::write(scene.unfinished(), "").unwrap();
    fs::remove_dir_all(scene.repo.join(".git")).unwrap();
    let (code, said) = scene.next();
    assert!(code == Some(0) && !said.contains("could not be recorded"), "{said}");
    // Control: the same volume once it is a repository.
    done(&scene.repo, scene.root.path(), "git init -q");
    assert!(scene.next().1.contains("could not be recorded"));
}

#[test]
fn a_record_that_cannot_be_read_fails_the_next_run_and_is_named() {
    let Some(scene) = Scene::new() else { return };
    fs::create_dir_all(scene.unfinished()).unwrap();
    let record = scene.unfinished().join("one");
    let elsewhere = scene.root.path().join("elsewhere");
    fs::write(&elsewhere, "{\"tops\":[],\"followed\":{}}").unwrap();
    let make: [(&str, &dyn Fn()); 4] = [
        ("no JSON", &|| fs::write(&record, "{").unwrap()),
        ("another form", &|| fs::write(&record, "{\"a\": 1}").unwrap()),
        ("a link", &|| symlink(&elsewhere, &record).unwrap()),
        ("a FIFO", &|| assert!(Command::new("mkfifo").arg(&record).status().unwrap().success())),
    ];
    for (name, make) in make {
        make();
        let (code, said) = scene.next();
        assert_eq!(code, Some(125), "{name}: {said}");
        let named = said.contains(record.to_str().unwrap()) && said.contains("cannot be read");
        assert!(named && said.contains("hint: ") && !said.contains("in the index"), "{name}: {said}");
        assert_eq!(scene.next(), NOTHING, "{name}: it is said once");
    }
    // One that can be read, of a run whose volume is unchanged, is gone without a word.
    fs::write(&record, "{\"tops\":[],\"followed\":{}}").unwrap();
    assert_eq!((scene.next(), record.exists()), (NOTHING, false));
    assert!(elsewhere.exists());
}

#[test]
fn missing_state_directory_is_reported() {
    let Some(scene) = Scene::new() else { return };
    let without = |script: &str| {
        let mut command = scene.command(&[], script);
        code_and_stderr_of(&command.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap())
    };
    let (code, said) = without("true");
    assert!(code == Some(0) && said.contains("could not be recorded") && said.contains("HOME"), "{said}");
    done(scene.root.path(), scene.root.path(), &format!("rm -rf repo; {REPOSITORY}"));
    let (code, said) = without("exit 3");
    assert!(code == Some(3) && said.contains("could not be recorded"), "{said}");
}
