//! What becomes of a work tree that its user renames or removes: while a run goes on in it, and after one that was cut off.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::common::cofferdam;
use super::interrupted::{NOTHING, Scene, code_and_stderr_of, wait_for};
use super::{done, shell};

impl Scene {
    fn moved(&self) -> PathBuf {
        self.root.path().join("moved")
    }

    /// A run with a volume that this scene's record says nothing of, or that holds what it was about.
    fn in_volume(&self, volume: &Path) -> (Option<i32>, String) {
        let mut command = cofferdam();
        command.env("XDG_STATE_HOME", self.root.path().join("state")).arg("run");
        command.arg("-v").arg(format!("{0}:{0}:rw", volume.display()));
        code_and_stderr_of(&command.args(["--", "true"]).output().unwrap())
    }

    fn other(&self) -> PathBuf {
        let other = self.root.path().join("other");
        done(self.root.path(), self.root.path(), "[ -d other ] || git init -q other");
        other
    }

    /// A run that has planted its repository and goes on until `go` is there.
    fn running(&self) -> Child {
        let script = format!("{}; echo >ready; while [ ! -e go ]; do sleep 0.1; done", self.planted);
        let running = self.command(&[], &script).stderr(Stdio::piped()).spawn().unwrap();
        wait_for(&self.repo.join("ready"));
        running
    }

    fn ended(&self, running: Child, at: &Path) -> (Option<i32>, String) {
        fs::write(at.join("go"), "").unwrap();
        code_and_stderr_of(&running.wait_with_output().unwrap())
    }

    /// `git status` there runs nothing.
    #[track_caller]
    fn is_harmless(&self, at: &Path) {
        shell(at, self.root.path(), "git status");
        assert!(!self.marker.exists(), "the payload ran outside");
    }
}

fn names(said: &str, path: &Path) -> bool {
    said.contains(path.to_str().unwrap())
}

#[test]
fn what_a_run_left_is_found_by_another_that_begins_where_the_work_tree_is_now() {
    for is_moved in [false, true] {
        let Some(scene) = Scene::new() else { return };
        let running = scene.running();
        let at = if is_moved { scene.moved() } else { scene.repo.clone() };
        fs::rename(&scene.repo, &at).unwrap();
        let (_, said) = scene.in_volume(&at);
        assert!(names(&said, &at.join("x/.git.disabled")), "{is_moved}: {said}");
        scene.is_harmless(&at);
        let (code, said) = scene.ended(running, &at);
        assert_eq!(code, Some(if is_moved { 125 } else { 0 }), "{said}");
    }
}

#[test]
fn a_record_stays_while_its_work_tree_is_away() {
    let Some(scene) = Scene::new() else { return };
    let other = scene.other();
    // The twin: what has not moved is looked at by whatever run comes next.
    scene.killed(&scene.planted);
    let (code, said) = scene.in_volume(&other);
    assert!(code == Some(0) && said.contains("x/.git.disabled"), "{said}");
    assert_eq!(scene.records().len(), 0);
    done(&scene.repo, scene.root.path(), "git rm -q --cached -f x; rm -rf x ready");
    scene.killed(&scene.planted);
    let record = scene.records().remove(0);
    fs::rename(&scene.repo, scene.moved()).unwrap();
    for _ in 0..2 {
        let (code, said) = scene.in_volume(&other);
        let named = names(&said, &scene.repo) && names(&said, &record) && said.contains("hint: ");
        assert!(code == Some(0) && named, "{code:?} {said}");
    }
    fs::rename(scene.moved(), &scene.repo).unwrap();
    let (code, said) = scene.in_volume(&other);
    assert!(code == Some(0) && said.contains("x/.git.disabled"), "{said}");
    scene.is_harmless(&scene.repo);
    assert_eq!((scene.next(), scene.records()), (NOTHING, Vec::new()));
}

#[test]
fn a_work_tree_that_moved_after_a_run_that_was_cut_off_is_looked_at_where_it_is() {
    for (holds, volume) in [("moved", "moved"), ("moved", "moved/in"), ("above/deep/moved", "above")] {
        let Some(scene) = Scene::new() else { return };
        scene.killed(&scene.planted);
        let at = scene.root.path().join(holds);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::rename(&scene.repo, &at).unwrap();
        fs::create_dir(at.join("in")).unwrap();
        let (code, said) = scene.in_volume(&scene.root.path().join(volume));
        assert!(code == Some(0) && names(&said, &at.join("x/.git.disabled")), "{volume}: {code:?} {said}");
        scene.is_harmless(&at);
        assert_eq!(scene.records().len(), 0, "{volume}");
        assert_eq!(scene.in_volume(&scene.root.path().join(volume)), NOTHING, "{volume}");
    }
}

#[test]
fn another_work_tree_at_the_path_is_not_taken_for_the_recorded_one() {
    let Some(scene) = Scene::new() else { return };
    scene.killed(&scene.planted);
    fs::rename(&scene.repo, scene.moved()).unwrap();
    // The user's own, which obeys what would be disabled after a run.
    done(scene.root.path(), scene.root.path(), "cp -r moved repo");
    let (code, said) = scene.next();
    assert!(code == Some(0) && names(&said, &scene.repo) && !said.contains("disabled"), "{said}");
    assert!(scene.repo.join("x/.git").exists());
    assert_eq!(scene.records().len(), 1);
    let (_, said) = scene.in_volume(&scene.moved());
    assert!(names(&said, &scene.moved().join("x/.git.disabled")), "{said}");
    assert!(scene.repo.join("x/.git").exists());
    assert_eq!((scene.next(), scene.records()), (NOTHING, Vec::new()));
}

#[test]
fn a_record_of_a_removed_work_tree_is_named_until_it_is_removed() {
    let Some(scene) = Scene::new() else { return };
    let other = scene.other();
    scene.killed(&scene.planted);
    fs::remove_dir_all(&scene.repo).unwrap();
    let record = scene.records().remove(0);
    for _ in 0..2 {
        let (code, said) = scene.in_volume(&other);
        assert!(code == Some(0) && names(&said, &record), "{said}");
    }
    fs::remove_file(record).unwrap();
    assert_eq!(scene.in_volume(&other), NOTHING);
}

#[test]
fn a_record_that_says_not_which_directory_it_is_about_goes_by_paths() {
    let Some(scene) = Scene::new() else { return };
    let other = scene.other();
    for there in [true, false] {
        scene.killed(&scene.planted);
        let record = scene.records().remove(0);
        let mut content: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        assert!(content.as_object_mut().unwrap().remove("places").is_some());
        fs::write(&record, content.to_string()).unwrap();
        if there {
            let (code, said) = scene.in_volume(&other);
            assert!(code == Some(0) && said.contains("x/.git.disabled"), "{said}");
            done(&scene.repo, scene.root.path(), "git rm -q --cached -f x; rm -rf x ready");
        } else {
            fs::rename(&scene.repo, scene.moved()).unwrap();
            assert_eq!(scene.in_volume(&other), NOTHING);
        }
        assert_eq!(scene.records().len(), 0);
    }
}

#[test]
fn a_work_tree_that_moves_while_a_run_goes_on_fails_it_and_is_looked_at_later() {
    // By itself, and with the directory above it.
    for (from, to, at) in [("repo", "moved", "moved"), ("above", "moved", "moved/repo")] {
        let Some(mut scene) = Scene::new() else { return };
        let root = scene.root.path().to_owned();
        if from == "above" {
            fs::create_dir(root.join(from)).unwrap();
            fs::rename(&scene.repo, root.join("above/repo")).unwrap();
            scene.repo = root.join("above/repo");
        }
        let at = root.join(at);
        // The twin: there again before the run has ended.
        let running = scene.running();
        fs::rename(root.join(from), root.join(to)).unwrap();
        fs::rename(root.join(to), root.join(from)).unwrap();
        let (code, said) = scene.ended(running, &scene.repo);
        assert!(code == Some(0) && said.contains("x/.git.disabled"), "{from}: {code:?} {said}");
        assert_eq!(scene.records().len(), 0);
        done(&scene.repo, &root, "git rm -q --cached -f x; rm -rf x ready go");

        let running = scene.running();
        fs::rename(root.join(from), root.join(to)).unwrap();
        let (code, said) = scene.ended(running, &at);
        let named = names(&said, &scene.repo) && names(&said, &at) && said.contains("hint: ");
        assert!(code == Some(125) && named, "{from}: {code:?} {said}");
        let (code, said) = scene.in_volume(&at);
        assert!(code == Some(0) && names(&said, &at.join("x/.git.disabled")), "{from}: {code:?} {said}");
        scene.is_harmless(&at);
        assert_eq!((scene.in_volume(&at), scene.records().len()), (NOTHING, 0));
    }
}

#[test]
fn a_work_tree_that_is_removed_while_a_run_goes_on_is_reported() {
    let Some(scene) = Scene::new() else { return };
    let running = scene.command(&[], "echo >ready; while [ -e ready ]; do sleep 0.1; done; exit 0");
    let mut running = running;
    let running = running.stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&scene.repo.join("ready"));
    fs::remove_dir_all(&scene.repo).unwrap();
    let (code, said) = code_and_stderr_of(&running.wait_with_output().unwrap());
    assert!(code == Some(0) && names(&said, &scene.repo) && said.contains("was removed"), "{code:?} {said}");
    assert_eq!(scene.in_volume(&scene.other()), NOTHING);
}
