//! The ways to a confined command (the function, the builder's command, its spawn), the default grants, and that each
//! enforces the same every time.

#![cfg(target_os = "linux")]

mod probe;

use std::path::{Path, PathBuf};

use cofferdam_command::{Confined, RuleStrength, SandboxMode, sandboxed_command};
use probe::{Scratch, attempt, confined, furnish, run, versions};
use tokio::process::Command;

#[tokio::test]
async fn the_three_modes_of_the_one_function() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let words = |dir: &Path, mode: SandboxMode| format!("write {}/{mode}", dir.display());
    for mode in [SandboxMode::Sandbox, SandboxMode::Rx] {
        let command = || sandboxed_command(&probe::own(), mode, &data);
        assert_eq!(run(command(), &words(&outside, mode)).await, "EACCES", "{mode}");
        assert_eq!(run(command(), &words(&data, mode)).await, "done", "{mode}");
    }
    let rwx = sandboxed_command(&probe::own(), SandboxMode::Rwx, Path::new("/not/looked/at"));
    assert_eq!(run(rwx, &words(&outside, SandboxMode::Rwx)).await, "done");
}

#[tokio::test]
async fn the_models_own_directory_is_written_where_it_exists() {
    // In a process of its own, whose home is another.
    if std::env::var_os("COFFERDAM_HOME_CASE").is_none() {
        for exists in [true, false] {
            let scratch = Scratch::new();
            let (home, _) = (scratch.directory("home"), scratch.directory("data"));
            if exists {
                std::fs::create_dir(home.join(".claude")).unwrap();
            }
            let mut command = Command::new(probe::own());
            command.args(["--exact", "the_models_own_directory_is_written_where_it_exists", "--nocapture"]);
            let output = command.env("HOME", &home).env("COFFERDAM_HOME_CASE", scratch.path()).output().await.unwrap();
            let text =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            assert_eq!(home.join(".claude/state").exists(), exists);
        }
        return;
    }
    let scratch = PathBuf::from(std::env::var_os("COFFERDAM_HOME_CASE").unwrap());
    let (home, data) = (scratch.join("home"), scratch.join("data"));
    let own = || sandboxed_command(&probe::own(), SandboxMode::Sandbox, &data);
    assert_eq!(run(own(), &format!("write {}/state", home.display())).await, "EACCES");
    let (_, enforcement) = Confined::new("true").data_dir(&data).command().unwrap();
    let state = format!("write {}/.claude/state", home.display());
    if home.join(".claude").exists() {
        assert_eq!(run(own(), &state).await, "done");
        assert_eq!(enforcement.notes, Vec::<String>::new());
    } else {
        assert_eq!(run(own(), &format!("mkdir {}/.claude", home.display())).await, "EACCES");
        assert!(enforcement.notes[0].contains(".claude does not exist"), "{enforcement}");
    }
}

#[tokio::test]
async fn a_model_directory_linked_by_a_command_is_not_granted() {
    // In a process of its own, whose home is another: one that commands write.
    if std::env::var_os("COFFERDAM_LINK_CASE").is_none() {
        let tmp = tempfile::tempdir_in("/tmp").unwrap();
        for in_data in [true, false] {
            let scratch = Scratch::new();
            let (data, _) = (scratch.directory("data"), scratch.directory("outside"));
            let home = if in_data { data } else { std::fs::canonicalize(tmp.path()).unwrap() };
            let mut command = Command::new(probe::own());
            command.args(["--exact", "a_model_directory_linked_by_a_command_is_not_granted", "--nocapture"]);
            let output = command.env("HOME", &home).env("COFFERDAM_LINK_CASE", scratch.path()).output().await.unwrap();
            let text =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        return;
    }
    let scratch = PathBuf::from(std::env::var_os("COFFERDAM_LINK_CASE").unwrap());
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let (data, outside) = (scratch.join("data"), scratch.join("outside"));
    let make = || Confined::new(probe::own()).data_dir(&data).command();
    std::os::unix::fs::symlink(&outside, home.join(".claude")).unwrap();
    let error = make().unwrap_err().to_string();
    assert!(error.contains("which can be written, leads it to"), "{error}");
    std::fs::remove_file(home.join(".claude")).unwrap();
    // One that stays in its tree leads nowhere new.
    std::fs::create_dir(home.join("state")).unwrap();
    std::os::unix::fs::symlink("state", home.join(".claude")).unwrap();
    let write = |dir: &Path| format!("write {}/new", dir.display());
    assert_eq!(run(make().unwrap().0, &write(&home.join(".claude"))).await, "done");
    assert_eq!(run(make().unwrap().0, &write(&outside)).await, "EACCES");
}

#[tokio::test]
async fn respawned_commands_and_their_children_are_confined() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    furnish(&data);
    let mut command = sandboxed_command("sh", SandboxMode::Sandbox, &data);
    let script = "chmod 700 \"$2/victim\" && mkdir \"$2/made-$$\" && sh -c 'echo x > \"$0/file\"' \"$1\"";
    command.arg("-c").arg(script).arg("sh").arg(&outside).arg(&data).stderr(std::process::Stdio::piped());
    for _ in 0..3 {
        let output = command.output().await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains("file: Permission denied"), "{told}");
    }
    let made =
        std::fs::read_dir(&data).unwrap().filter(|e| e.as_ref().unwrap().path().to_string_lossy().contains("made-"));
    assert_eq!(made.count(), 3);
    assert!(!outside.join("file").exists());
}

#[tokio::test]
async fn spawn_confines_alike_and_affects_no_other_thread() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        for words in ["write D/new", "chmod D/victim", "kill-own"] {
            let at = |dir: &Path| words.replace('D', &dir.display().to_string());
            let mut wanted = vec![(at(&data), "done")];
            if words.contains('D') {
                wanted.push((at(&outside), if words.starts_with("chmod") { "EPERM" } else { "EACCES" }));
            }
            for (words, wanted) in wanted {
                let spawned = confined(abi, &data).spawn(|command| attempt(command, &words));
                let (child, enforcement) = spawned.unwrap();
                assert_eq!(enforcement.strength(), RuleStrength::Full);
                assert_eq!(probe::answer(child.wait_with_output().await.unwrap()), wanted, "{abi}: {words}");
            }
        }
        // Ours is what it was.
        std::fs::write(outside.join("ours"), "x").unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(status.contains("NoNewPrivs:\t0\n") && status.contains("Seccomp:\t0\n"), "{status}");
    }
}

#[test]
fn a_panic_in_set_up_reaches_the_caller() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let spawn = |runtime: tokio::runtime::Runtime| {
        let confined = confined(*versions().last().unwrap(), &data);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                let (mut child, _) = confined.spawn(|command| attempt(command, "socketpair")).unwrap();
                child.wait().await.unwrap().success()
            })
        }))
    };
    let without_io = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let panic = spawn(without_io).unwrap_err();
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap();
    assert!(said.contains("IO is disabled"), "as tokio's own spawn does: {said}");
    let with_io = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    assert!(spawn(with_io).unwrap(), "the next one is none the worse");
}
