//! What cannot be confined is refused: by the builder at once, by the plain functions on spawn, and never confined less
//! than requested. The error names command, rule, reason, and what helps.

#![cfg(target_os = "linux")]

mod probe;

use std::path::{Path, PathBuf};

use cofferdam_command::{
    ConfineError, ConfineReason, Confined, ConfinementRule, Fallback, RuleStrength, SandboxError, SandboxMode,
    protected_command, sandboxed_command,
};
use probe::Scratch;
use tokio::process::Command;

/// What spawning says, in words.
fn refused(mut command: Command) -> String {
    let error = command.spawn().map(drop).unwrap_err();
    let known = ConfineError::of_spawn(&command, &error).expect("an error of ours");
    let text = SandboxError::of_spawn(&command, error).to_string();
    assert_eq!(text, format!("sandbox error: {known}"));
    text
}

#[tokio::test]
async fn unaware_callers_see_an_errno_and_the_reason_on_stderr() {
    use std::io::{Read as _, Seek as _};
    let scratch = Scratch::new();
    let (missing, data) = (scratch.path().join("none"), scratch.directory("data"));
    let refused = |path: &Path| {
        let mut stderr = tempfile::tempfile().unwrap();
        let mut command = sandboxed_command("echo", SandboxMode::Sandbox, path);
        // Whatever the caller says afterwards, the reason is still found.
        command.env_clear().current_dir("/").arg("hello").stderr(stderr.try_clone().unwrap());
        let came = command.spawn();
        let mut said = String::new();
        stderr.rewind().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (came.map(drop).map_err(|error| (error.to_string(), SandboxError::of_spawn(&command, error))), said)
    };
    let (came, said) = refused(&missing);
    let (plain, known) = came.unwrap_err();
    assert_eq!(plain, "Invalid argument (os error 22)");
    assert_eq!(said, format!("{known}\n"), "the words of of_spawn");
    assert!(
        said.contains("data directory") && said.contains("none: it does not exist") && said.contains("hint: "),
        "{said}"
    );
    let (came, said) = refused(&data);
    assert!(came.is_ok() && said.is_empty(), "{said}");
    // Two refusals of one program are distinct, and an error that comes before is not taken for one of them.
    let first = sandboxed_command("echo", SandboxMode::Sandbox, &missing);
    let second = sandboxed_command("echo", SandboxMode::Sandbox, Path::new("/etc"));
    let error = || std::io::Error::from_raw_os_error(22);
    assert!(ConfineError::of_spawn(&first, &error()).unwrap().to_string().contains("none"));
    assert!(ConfineError::of_spawn(&second, &error()).unwrap().to_string().contains("/etc"));
    let mut nowhere = sandboxed_command("echo", SandboxMode::Sandbox, &missing);
    let error = nowhere.current_dir("/no/such/directory").spawn().map(drop).unwrap_err();
    assert!(ConfineError::of_spawn(&nowhere, &error).is_none(), "{error}");
}

#[tokio::test]
async fn a_missing_sandbox_exec_is_reported_with_a_hint() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let seatbelt = || Confined::new("true").data_dir(&data).seatbelt_by("/no/sandbox-exec");
    let error = seatbelt().command().map(drop).unwrap_err();
    assert!(matches!(error.reason, ConfineReason::NoSandboxExec(_)), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("/no/sandbox-exec is not there") && text.contains("hint: ") && !text.contains("Linux"),
        "{text}"
    );
    let (mut command, enforcement) = seatbelt().fallback(Fallback::Warn).command().unwrap();
    assert_eq!(enforcement.of(ConfinementRule::Writes), Some(RuleStrength::None));
    assert!(command.status().await.unwrap().success());
}

#[tokio::test]
async fn an_invalid_data_directory_is_refused() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink("/", at("root")).unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    let fine = scratch.directory("fine");
    for (path, said) in [
        (at("none"), "does not exist"),
        (at("file"), "is not a directory"),
        (at("root"), "leads to the root"),
        (at("dangling"), "does not exist"),
        (PathBuf::from("relative"), "is relative"),
        (PathBuf::from("/etc"), "lies below /etc"),
        (PathBuf::from("/proc/self/root"), "leads to the root"),
        (PathBuf::from("/usr"), "it holds /usr/"),
    ] {
        let built = Confined::new("true").data_dir(&path).command().map(drop).unwrap_err();
        assert!(matches!(built.reason, ConfineReason::Path { rule: "data directory", .. }), "{built}");
        for mode in [SandboxMode::Sandbox, SandboxMode::Rx] {
            let text = refused(sandboxed_command("true", mode, &path));
            assert!(text.contains("`true`") && text.contains("data directory") && text.contains(said), "{text}");
            assert!(text.contains("\nhint: "), "{text}");
        }
        assert!(refused(protected_command("true", &path)).contains(said));
    }
    // The same command with a directory that can be one.
    assert!(sandboxed_command("true", SandboxMode::Sandbox, &fine).status().await.unwrap().success());
    assert!(protected_command("true", &fine).status().await.unwrap().success());
    let none = Confined::new("true").command().map(drop).unwrap_err();
    assert!(matches!(none.reason, ConfineReason::NoDataDirectory));
}

#[tokio::test]
async fn a_link_planted_in_a_writable_tree_grants_nothing() {
    // What a confined command could leave in /tmp for the next one.
    let (scratch, temporary) = (Scratch::new(), tempfile::tempdir_in("/tmp").unwrap());
    let home = scratch.directory("home");
    let link = temporary.path().join("data");
    std::os::unix::fs::symlink(&home, &link).unwrap();
    assert!(refused(sandboxed_command("true", SandboxMode::Sandbox, &link)).contains("which can be written"));
    let own = temporary.path().join("own");
    std::fs::create_dir(&own).unwrap();
    assert!(sandboxed_command("true", SandboxMode::Sandbox, &own).status().await.unwrap().success());
}

#[tokio::test]
async fn invalid_programs_are_refused_and_missing_ones_fail_on_spawn() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    for wrong in [data.to_str().unwrap(), "", "a\0b"] {
        assert!(refused(sandboxed_command(wrong, SandboxMode::Sandbox, &data)).contains("program: "), "{wrong:?}");
        assert!(Confined::new(wrong).mode(SandboxMode::Rwx).command().is_err(), "{wrong:?}");
    }
    for absent in ["/not/there", "cofferdam-is-not-in-path"] {
        let mut command = sandboxed_command(absent, SandboxMode::Sandbox, &data);
        let error = command.spawn().map(drop).unwrap_err();
        // A directory in PATH that this user cannot enter causes another error, also without confinement.
        let plain = Command::new(absent).spawn().map(drop).unwrap_err();
        assert_eq!(error.kind(), plain.kind());
        assert!(ConfineError::of_spawn(&command, &error).is_none(), "it is not about walls");
        let text = SandboxError::of_spawn(&command, error).to_string();
        assert!(text.starts_with(&format!("sandbox error: cannot confine `{absent}`: spawn: {plain}")), "{text}");
        let spawned = Confined::new(absent).data_dir(&data).spawn(|_| {}).map(drop).unwrap_err();
        assert!(matches!(&spawned.reason, ConfineReason::Spawn(error) if error.kind() == plain.kind()));
    }
}

#[tokio::test]
async fn unenforceable_rules_are_refused_unless_accepted() {
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let without = || Confined::new(probe::own()).data_dir(&data).landlock_at_most(0);
    let error = without().command().map(drop).unwrap_err();
    let ConfineReason::NotHeld(missing) = &error.reason else { panic!("{error}") };
    assert!(
        missing.iter().any(|applied| applied.rule == ConfinementRule::Writes && applied.strength == RuleStrength::None)
    );
    let text = SandboxError::from(error).to_string();
    for said in [
        "sandbox error: cannot confine",
        "writes held not at all: this kernel has no Landlock",
        "hint: ",
        "Fallback::Warn",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // Accepted, it runs, and it is said what does not hold.
    let (command, enforcement) = without().fallback(Fallback::Warn).command().unwrap();
    assert_eq!(enforcement.strength(), RuleStrength::None);
    assert_eq!(enforcement.of(ConfinementRule::Writes), Some(RuleStrength::None));
    assert_eq!(enforcement.of(ConfinementRule::PathSockets), Some(RuleStrength::Full), "what can be held still is");
    assert_eq!(probe::run(command, &format!("write {}/new", outside.display())).await, "done");
}

#[tokio::test]
async fn a_system_without_a_mechanism_is_an_error_or_a_warning() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let none = || Confined::new("true").data_dir(&data).without_mechanism();
    let error = none().command().map(drop).unwrap_err();
    assert!(matches!(error.reason, ConfineReason::Unsupported) && error.to_string().contains("hint: "), "{error}");
    let (mut command, enforcement) = none().fallback(Fallback::Warn).command().unwrap();
    assert_eq!(enforcement.strength(), RuleStrength::None);
    assert!(command.status().await.unwrap().success());
}

#[tokio::test]
async fn seatbelt_runs_the_command_behind_sandbox_exec_or_not_at_all() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let stand_in = scratch.path().join("sandbox-exec");
    // Takes what the real one takes, holds nothing, and becomes the command.
    let text = "#!/bin/sh\n[ \"$1\" = -p ] || exit 99\nshift 2\nwhile [ \"$1\" = -D ]; do shift 2; done\n\
                [ \"$1\" = -- ] || exit 98\nshift\nexec \"$@\"\n";
    std::fs::write(&stand_in, text).unwrap();
    std::fs::set_permissions(&stand_in, std::fs::Permissions::from_mode(0o755)).unwrap();
    let confined = |by: &Path| Confined::new("sh").data_dir(&data).seatbelt_by(by);
    let (mut command, enforcement) = confined(&stand_in).command().unwrap();
    assert_eq!(command.as_std().get_program(), stand_in.as_os_str());
    assert_eq!(enforcement.strength(), RuleStrength::Full);
    let output = command.args(["-c", "echo \"$0 $1\"; exit 5", "a b", "c"]).output().await.unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"a b c\n"[..], Some(5)));
    // Without it nothing starts, unless that was accepted.
    let absent = scratch.path().join("none");
    let error = confined(&absent).command().map(drop).unwrap_err().to_string();
    assert!(error.contains("writes held not at all") && error.contains("none is not there"), "{error}");
    let (command, enforcement) = confined(&absent).fallback(Fallback::Warn).command().unwrap();
    assert_eq!((command.as_std().get_program().to_str(), enforcement.strength()), (Some("sh"), RuleStrength::None));
}

#[tokio::test]
async fn a_step_that_fails_after_fork_is_named() {
    // The kernel takes sixteen layers of Landlock. A process behind fifteen of them starts one more, and then another.
    let Ok(layers) = std::env::var("COFFERDAM_LAYERS") else {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let mut command = Command::new(probe::own());
        command.args(["--exact", "a_step_that_fails_after_fork_is_named", "--nocapture"]).env("COFFERDAM_LAYERS", "1");
        command.env("COFFERDAM_DATA", &data);
        let output = command.output().await.unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("landlock_restrict_self failed between fork and exec: Argument list too long"), "{text}");
        assert!(text.contains("sandbox error: cannot confine `"), "{text}");
        return;
    };
    let depth: u32 = layers.parse().unwrap();
    assert!(depth < 40, "sixteen layers are the most");
    let data = std::env::var("COFFERDAM_DATA").unwrap();
    // On older kernels signals are not held within; that is not what this is about.
    let confined = Confined::new(probe::own()).data_dir(&data).fallback(Fallback::Warn);
    let (mut command, _) = confined.command().unwrap();
    command.args(["--exact", "a_step_that_fails_after_fork_is_named", "--nocapture"]);
    command.env("COFFERDAM_LAYERS", (depth + 1).to_string());
    match command.status().await {
        Ok(status) => assert!(status.success()),
        Err(error) => println!("at {depth}: {}", SandboxError::of_spawn(&command, error)),
    }
}

#[tokio::test]
async fn nested_confinement_is_enforced_as_well() {
    // The kernel allows one listener in all filters together: within, changes of metadata are refused everywhere.
    if std::env::var_os("COFFERDAM_NESTED").is_none() {
        let scratch = Scratch::new();
        let (data, inner) = (scratch.directory("data"), scratch.directory("data/inner"));
        std::fs::write(inner.join("victim"), "").unwrap();
        let mut command = sandboxed_command(&probe::own(), SandboxMode::Sandbox, &data);
        command.args(["--exact", "nested_confinement_is_enforced_as_well", "--nocapture"]);
        command.env("COFFERDAM_NESTED", &data);
        let output = command.output().await.unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("nested: full"), "{text}");
        return;
    }
    let data = PathBuf::from(std::env::var_os("COFFERDAM_NESTED").unwrap());
    let inner = data.join("inner");
    let nested = || Confined::new(probe::own()).data_dir(&inner);
    if nested().clone().command().is_err() {
        // Before Landlock's version 6 signals would need a listener.
        return println!("nested: full, by refusing");
    }
    let (command, enforcement) = nested().command().unwrap();
    assert_eq!(probe::run(command, &format!("write {}/new", data.display())).await, "EACCES");
    for (dir, wanted) in [(&data, "EPERM"), (&inner, "EPERM")] {
        let (command, _) = nested().command().unwrap();
        std::fs::write(dir.join("victim"), "").unwrap();
        assert_eq!(probe::run(command, &format!("chmod {}/victim", dir.display())).await, wanted);
    }
    let (command, _) = nested().command().unwrap();
    assert_eq!(probe::run(command, &format!("write {}/new", inner.display())).await, "done");
    println!("nested: {}", enforcement.strength());
}

#[tokio::test]
async fn landlock_abi_is_queried_from_the_kernel() {
    // There is no such file as /sys/kernel/security/landlock/abi_version; who looks there finds nothing and protects nothing.
    assert!(!Path::new("/sys/kernel/security/landlock/abi_version").exists());
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let (command, enforcement) = Confined::new(probe::own()).data_dir(&data).command().unwrap();
    assert!(enforcement.landlock_abi > 0);
    assert_eq!(probe::run(command, &format!("write {}/new", outside.display())).await, "EACCES");
}
