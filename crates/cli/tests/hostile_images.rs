//! Images that try to be more than a root file system, with a container engine: they gain nothing, and an ordinary image runs.

mod common;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_test_containers::{Engine, Kind};
use common::{cofferdam, open_directory};
use serde_json::Value;

/// Root's Docker; skipped and said where it cannot be had, unless all must work.
fn docker() -> Option<Engine> {
    if let Some(why) = Kind::Docker.missing() {
        eprintln!("skipped: {why}");
        let all = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|v| v == "1");
        assert!(!all || !common::is_root(), "{why}");
        return None;
    }
    Some(Engine::shared(Kind::Docker).unwrap())
}

/// A root with a shell, in a directory that everybody may search.
fn root(at: &Path) -> PathBuf {
    let root = at.join("root");
    for name in ["bin", "etc", "home/user", "tmp"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for name in ["sh", "id"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    root
}

/// Runs a script in the image of a root. `before` is a shell's, whose pid is that of cofferdam afterwards.
#[track_caller]
fn run(engine: &Engine, root: &Path, before: &str, options: &[&str], script: &str) -> Value {
    let state = tempfile::tempdir().unwrap();
    let tar = root.with_extension("tar");
    let program = cofferdam();
    let (variable, host) = engine.environment();
    let mut command = Command::new("/bin/sh");
    let all = format!("set -e; cd {}; {before}; tar -cf {} .; cd /; exec \"$@\"", root.display(), tar.display());
    command.args(["-c", &all, "sh"]).arg(program.get_program());
    command.args(["run", "--json", "--backend", "docker", "--image"]).arg(&tar).args(options);
    command.args(["--", "/bin/sh", "-c", script]).env("COFFERDAM_STATE", state.path()).env(variable, host);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said} {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_number_that_an_image_takes_for_a_name_gives_no_group() {
    let Some(engine) = docker() else { return };
    let place = open_directory();
    let root = root(place.path());
    // The user of a run is seen by its process; root's runs have users from 0x6f000000 on.
    let ours = "me=$((0x6f000000 + $$ % 4194304))";
    let o = run(&engine, &root, &format!("{ours}; echo \"me:x:$me:\" > etc/group"), &[], "id -G");
    assert_eq!(o["outcome"], "exited", "{o:#}");
    let groups: Vec<&str> = o["stdout"].as_str().unwrap().split_whitespace().collect();
    assert!(groups.iter().all(|group| *group == groups[0] && *group != "6"), "{groups:?}");
    let o = run(&engine, &root, &format!("{ours}; echo \"$me:x:6:\" > etc/group"), &[], "id -G");
    assert_eq!(o["outcome"], "setup_failed", "{o:#}");
    let said = o["error"]["message"].as_str().unwrap();
    assert!(said.contains("in more groups than was asked for") || said.contains("in another group"), "{said}");
}

#[test]
fn a_link_in_an_image_puts_no_other_program_into_inits_place() {
    let Some(engine) = docker() else { return };
    let place = open_directory();
    let root = root(place.path());
    let project = place.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::set_permissions(&project, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(project.join("init"), "#!/bin/sh\necho ran > /home/user/project/ran\n").unwrap();
    std::fs::set_permissions(project.join("init"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let volume = format!("{}:/home/user/project:rw,exec", project.display());
    let options = ["-v", &volume, "--best-effort=filesystem.mounts,filesystem.protected"];
    std::fs::create_dir(root.join("home/user/project")).unwrap();
    let o = run(&engine, &root, ":", &options, "/home/user/project/init");
    assert!(o["outcome"] == "exited" && project.join("ran").exists(), "the program may: {o:#}");
    std::fs::remove_file(project.join("ran")).unwrap();
    std::fs::remove_dir(root.join("home/user/project")).unwrap();
    symlink("/dev/cofferdam", root.join("home/user/project")).unwrap();
    let o = run(&engine, &root, ":", &options, "true");
    assert_eq!(o["outcome"], "setup_failed", "{o:#}");
    assert!(!project.join("ran").exists(), "it ran in the place of init");
}
