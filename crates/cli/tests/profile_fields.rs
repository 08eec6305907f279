//! What the fields of a profile do to a program, with the real evaluator and a real sandbox. Each denial has its control.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

/// A directory with `in/file` and `out/file`, which every user may read and write.
struct Scene(tempfile::TempDir);

impl Scene {
    /// `None` where only the command was built.
    fn new() -> Option<Scene> {
        if !Path::new(env!("CARGO_BIN_EXE_cofferdam")).with_file_name("cofferdam-compile").exists() {
            let reason = "cofferdam-compile is not built; cargo build -p cofferdam-compile";
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{reason}");
            eprintln!("skipped: {reason}");
            return None;
        }
        let scene = Scene(common::open_directory());
        for name in ["in", "out"] {
            fs::create_dir(scene.0.path().join(name)).unwrap();
            fs::write(scene.0.path().join(name).join("file"), format!("{name}\n")).unwrap();
            fs::set_permissions(scene.0.path().join(name), fs::Permissions::from_mode(0o777)).unwrap();
        }
        Some(scene)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().canonicalize().unwrap().join(name).display().to_string()
    }

    /// What comes of a script under a profile with these fields; `DIR` is the scene's directory.
    fn run(&self, fields: &str, script: &str) -> Value {
        let fill = |text: &str| text.replace("DIR", &self.at("")).replace("//", "/");
        let profile = format!("let s = import \"sandbox\" in\ns.make_default_config \"t\" & {{ {} }}\n", fill(fields));
        let file = self.at("profile.ncl");
        fs::write(&file, profile).unwrap();
        let mut command = common::cofferdam();
        command.env("XDG_CACHE_HOME", self.at("cache")).current_dir(self.0.path());
        let script = fill(script);
        let arguments = ["run", "--json", "--profile", &file, "--", "sh", "-c", &script];
        let (_, outcome) = common::outcome_of(&mut command, &arguments);
        assert_eq!(outcome["error"], Value::Null, "{fields}: {outcome}");
        outcome
    }

    fn prints(&self, fields: &str, script: &str) -> String {
        self.run(fields, script)["stdout"].as_str().unwrap().to_owned()
    }
}

/// Says of each place whether a file can be made there.
const WRITES: &str = "for d in / /usr /etc /tmp /var/tmp /run /dev/shm \"$HOME\" .; do \
                      (: > \"$d/made\") 2>/dev/null && echo \"$d\"; done; true";

#[test]
fn deny_is_the_interpreter_and_nothing_to_write() {
    let Some(scene) = Scene::new() else { return };
    let shows = "pwd; read line < DIR/in/file 2>/dev/null || echo hidden; test -x /bin/sh && echo interpreter; \
                 test -e /usr/bin/env && echo more; true";
    assert_eq!(scene.prints("filesystem_policy = \"deny\"", shows), "/\nhidden\ninterpreter\n");
    assert_eq!(scene.prints("filesystem_policy = \"chroot\"", shows), "/tmp/skill\nhidden\ninterpreter\nmore\n");
    assert_eq!(scene.prints("filesystem_policy = \"deny\"", WRITES), "", "something can be written");
}

#[test]
fn chroot_has_scratch_and_shows_nothing_of_the_host() {
    let Some(scene) = Scene::new() else { return };
    let shows = "pwd; cat DIR/in/file 2>/dev/null || echo hidden";
    assert_eq!(scene.prints("filesystem_policy = \"chroot\"", shows), "/tmp/skill\nhidden\n");
    let made = scene.prints("filesystem_policy = \"chroot\"", WRITES);
    assert_eq!(made, "/tmp\n/var/tmp\n/run\n/dev/shm\n/tmp/home\n.\n");
}

#[test]
fn whitelist_shows_listed_paths_and_capability_allows_writes() {
    let Some(scene) = Scene::new() else { return };
    let listed = "filesystem_policy = \"whitelist\", allowed_paths = [\"DIR/in\"]";
    let script = "cat DIR/in/file; cat DIR/out/file 2>/dev/null || echo hidden; \
                  echo new 2>/dev/null > DIR/in/made && echo written || echo refused";
    assert_eq!(scene.prints(listed, script), "in\nhidden\nrefused\n");
    assert!(!Path::new(&scene.at("in/made")).exists());
    let writing = format!("{listed}, capabilities.filesystem = \"file_write\"");
    assert_eq!(scene.prints(&writing, script), "in\nhidden\nwritten\n");
    assert_eq!(fs::read_to_string(scene.at("in/made")).unwrap(), "new\n");
    // Scratch directories in which nothing is listed are closed; the listed ones here lie in /tmp.
    let nothing = "filesystem_policy = \"whitelist\", working_dir = \"/srv/work\"";
    assert_eq!(scene.prints(nothing, WRITES), ".\n");
}

#[test]
fn the_working_directory_is_made_and_can_be_written() {
    let Some(scene) = Scene::new() else { return };
    let script = "pwd; : > made && ls";
    assert_eq!(scene.prints("working_dir = \"/srv/deep/work\"", script), "/srv/deep/work\nmade\n");
}

#[test]
fn optional_paths_are_skipped_if_missing_and_shown_otherwise() {
    let Some(scene) = Scene::new() else { return };
    let fields = "mounts = [{ dst = \"DIR/in\", mandatory = false }, { dst = \"DIR/gone\", mandatory = false }]";
    let outcome = scene.run(fields, "cat DIR/in/file; cat DIR/gone/file 2>/dev/null || echo none");
    assert_eq!(outcome["stdout"], "in\nnone\n", "{outcome}");
    let reason = outcome["enforcement"]["filesystem.mounts"]["reason"].as_str().unwrap();
    assert!(reason.ends_with(&format!("left out, for nothing is there: {}", scene.at("gone"))), "{reason}");
}

#[test]
fn the_log_of_a_profile_says_what_the_answer_records() {
    let Some(scene) = Scene::new() else { return };
    let recorded = |fields: &str| {
        let outcome = scene.run(fields, "unshare -u true 2>/dev/null; echo $?");
        assert_eq!(outcome["stdout"], "1\n", "it is refused at every level: {outcome}");
        let all = common::violations(&outcome);
        all.into_iter().filter(|(operation, ..)| operation == "unshare").count()
    };
    assert_eq!(recorded("log_level = \"info\""), 1);
    assert_eq!(recorded("log_level = \"debug\""), 1);
    assert_eq!(recorded("log_level = \"warning\""), 0);
    assert_eq!(recorded("log_level = \"info\", log_enabled = false"), 0);
}

#[test]
fn spawn_and_own_loopback_are_what_capabilities_say() {
    let Some(scene) = Scene::new() else { return };
    let script = "echo one; /usr/bin/true && echo two; true";
    assert_eq!(scene.prints("capabilities.process = \"exec\"", script), "one\ntwo\n");
    let refused = scene.prints("capabilities.process = \"none\"", script);
    assert_eq!(refused, "one\n");
    // No network, and still a loopback of its own.
    let interfaces = "while read line; do case $line in *lo:*) echo lo;; *:*) echo other;; esac; done < /proc/net/dev";
    assert_eq!(scene.prints("capabilities.network = \"none\"", interfaces), "lo\n");
}
