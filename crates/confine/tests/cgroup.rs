//! Runs the program of `examples/cgroup_guest_test.rs` against this machine's kernel: as root, where cgroups can be made, and as an
//! unprivileged user on version 1, where they cannot. Version 2 is checked in a guest by `cargo xtask test`.

use std::path::PathBuf;
use std::process::Command;

/// The example is built with the tests and lies beside their directory.
fn check() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/cgroup_guest_test");
    assert!(program.exists(), "{} is missing: it is built with all targets of the package", program.display());
    program
}

fn passes(command: &mut Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {text}", output.status);
}

#[test]
fn limits_hold_and_leave_nothing_or_are_reported_unavailable() {
    let text = Command::new(check()).arg("probe").output().unwrap().stdout;
    let nothing = String::from_utf8_lossy(&text).contains("plan: None");
    passes(Command::new(check()).arg(if nothing { "unavailable" } else { "all" }));
}

#[test]
fn an_unprivileged_user_gets_the_reason_for_each_missing_limit() {
    if !rustix::process::geteuid().is_root() {
        // The other test, run by that very user, has seen to it.
        return;
    }
    if std::fs::read_to_string("/proc/self/cgroup").unwrap().starts_with("0::") {
        println!("version 2: a user may have a scope of its own, so either answer is right");
        return;
    }
    // Somewhere that user can reach.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let program = dir.path().join("cgroup_guest_test");
    // Not by this process: what another of its threads starts meanwhile would hold the file open for writing.
    assert!(Command::new("cp").arg(check()).arg(&program).status().unwrap().success());
    let open = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(dir.path());
    open(&program);
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    passes(Command::new("setpriv").args(user).arg(program).arg("unavailable").current_dir("/"));
}
