//! Directories for state, caches and temporary files that another local user created first, or replaced by a link: refused
//! with the reason, never used, and nothing is created at the link's target. Each beside a directory of this user, which works.

mod common;

use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::is_root;

const VICTIM: u32 = 65534;
const OTHER: u32 = 65533;

/// A directory that everybody can write, sticky as /tmp is, with one of the victim's own in it; `None` where this user
/// cannot be two others.
fn shared() -> Option<(tempfile::TempDir, PathBuf)> {
    if !is_root() || !Path::new("/usr/bin/setpriv").exists() {
        assert!(!is_root() || std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "setpriv is missing");
        eprintln!("skipped: only root makes what belongs to two other users; its pass does");
        return None;
    }
    let shared = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let own = planted(&shared.path().join("own"), VICTIM, 0o700);
    Some((shared, own))
}

fn planted(path: &Path, user: u32, mode: u32) -> PathBuf {
    std::fs::create_dir_all(path).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
    path.to_owned()
}

fn link(to: &Path, at: &Path, user: u32) -> PathBuf {
    symlink(to, at).unwrap();
    lchown(at, Some(user), Some(user)).unwrap();
    at.to_owned()
}

/// The command as the victim, with these variables alone.
fn victim(variables: &[(&str, &Path)], before: &[&str], arguments: &[&str]) -> (i32, String) {
    let mut command = match before.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg("setpriv");
            command
        }
        None => Command::new("setpriv"),
    };
    command.args([&format!("--reuid={VICTIM}"), &format!("--regid={VICTIM}"), "--clear-groups", "--inh-caps=-all"]);
    command.arg(env!("CARGO_BIN_EXE_cofferdam")).args(arguments).stdin(Stdio::null()).current_dir("/");
    command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").envs(variables.iter().copied());
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code().unwrap_or(-1), String::from_utf8_lossy(&stderr).into_owned())
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn trails_and_skills_of_another_user_are_not_used() {
    let Some((shared, own)) = shared() else { return };
    let theirs = planted(&shared.path().join("theirs"), OTHER, 0o777);
    for (variable, arguments) in
        [("COFFERDAM_AUDIT", &["run", "--", "true"][..]), ("COFFERDAM_SKILLS", &["skill", "list"])]
    {
        let (code, said) = victim(&[(variable, &theirs), ("HOME", &own)], &[], arguments);
        assert!(code == 125 && said.contains(&format!("belongs to user {OTHER}")), "{variable}: {code}: {said}");
        assert!(said.contains("hint: ") && is_empty(&theirs), "{variable}: {said}");
        let mine = planted(&own.join(variable), VICTIM, 0o700);
        let (code, said) = victim(&[(variable, &mine), ("HOME", &own)], &[], arguments);
        assert_eq!(code, 0, "{variable}: {said}");
    }
}

/// A policy's worth of denied names in one directory: so many that a layer of whiteouts hides them.
fn denying(directory: &Path) -> Vec<String> {
    std::fs::create_dir_all(directory).unwrap();
    let name = |i: u32| directory.join(format!("name-{i}")).to_str().unwrap().to_owned();
    let mut arguments = vec!["run".to_owned()];
    for i in 0..100 {
        std::fs::write(name(i), "secret").unwrap();
        arguments.extend(["--deny".to_owned(), name(i)]);
    }
    arguments.extend(["--", "cat"].map(str::to_owned));
    arguments.push(name(7));
    arguments
}

#[test]
fn whiteout_layers_of_another_user_hide_nothing_for_this_one() {
    if !common::needs("user namespaces") {
        return;
    }
    let Some((shared, own)) = shared() else { return };
    let hidden = tempfile::tempdir_in("/var/lib").unwrap();
    std::fs::set_permissions(hidden.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = denying(&hidden.path().join("many"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let theirs = planted(&shared.path().join("theirs"), OTHER, 0o755);
    let led = link(&own, &shared.path().join("led"), OTHER);
    for cache in [&theirs, &led] {
        let (code, said) = victim(&[("XDG_CACHE_HOME", cache)], &[], &arguments);
        assert!(code == 125 && said.contains("another user") && said.contains("hint: "), "{code}: {said}");
        assert!(is_empty(&theirs) && is_empty(&own), "nothing was made there");
    }
    // Of its own it is made, and what is denied is not read.
    let (code, said) = victim(&[("XDG_CACHE_HOME", &own)], &[], &arguments);
    assert!(code == 1 && said.contains("name-7"), "{code}: {said}");
    assert!(own.join("cofferdam/hidden").is_dir(), "the layer is there");
}

#[test]
fn the_last_resort_in_tmp_is_not_another_users_link() {
    if !common::needs("user namespaces") {
        return;
    }
    let Some((_shared, own)) = shared() else { return };
    let hidden = tempfile::tempdir_in("/var/lib").unwrap();
    std::fs::set_permissions(hidden.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = denying(&hidden.path().join("many"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // A /tmp of the test's own, in a mount namespace; the host's is everybody's.
    let tmp = |plant: &str| {
        let script = format!("mount -t tmpfs -o mode=1777 tmpfs /tmp && {plant} && exec \"$@\"");
        victim(&[], &["unshare", "--mount", "--propagation=private", "sh", "-c", &script, "sh"], &arguments)
    };
    let name = format!("/tmp/cofferdam-{VICTIM}");
    let (code, said) = tmp(&format!("ln -s {} {name} && chown -h {OTHER}:{OTHER} {name}", own.display()));
    assert!(code == 125 && said.contains("another user"), "{code}: {said}");
    assert!(is_empty(&own), "nothing was made where the link leads");
    let (code, said) = tmp(&format!("mkdir -m 755 {name} && chown {OTHER}:{OTHER} {name}"));
    assert!(code == 125 && said.contains("another user"), "{code}: {said}");
    let (code, said) = tmp("true");
    assert!(code == 1 && said.contains("name-7"), "{code}: {said}");
}

/// `~/bin/bwrap` as a link into a repository, whose code could replace the program. Beside it one that lies in `~/bin` itself.
#[test]
fn a_program_that_a_link_has_in_a_project_is_not_started() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = std::fs::canonicalize(place.path()).unwrap();
    let (kept, named, mark) = (home.join("dots/bin/bwrap"), home.join("bin/bwrap"), home.join("mark"));
    for file in [&kept, &named] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    }
    std::fs::create_dir(home.join("other")).unwrap();
    std::fs::write(&kept, format!("#!/bin/sh\necho started >>{}\nexec /usr/bin/bwrap \"$@\"\n", mark.display()))
        .unwrap();
    for (path, mode) in [(&home, 0o755), (&kept, 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let started = |path: &str, directory: &str, user: bool| {
        std::fs::write(&mark, "").unwrap();
        std::fs::set_permissions(&mark, std::fs::Permissions::from_mode(0o666)).unwrap();
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        doctor.args(["run", "--backend", "bubblewrap", "--best-effort", "--", "true"]).stdin(Stdio::null());
        doctor.env("PATH", format!("{}{path}", home.join("bin").display())).env("HOME", &home);
        doctor.current_dir(home.join(directory)).env_remove("COFFERDAM_BWRAP");
        if user {
            std::os::unix::process::CommandExt::uid(&mut doctor, VICTIM);
        }
        let said = doctor.output().unwrap();
        (!std::fs::read_to_string(&mark).unwrap().is_empty(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let users = if is_root() { &[false, true][..] } else { &[false] };
    symlink("../dots/bin/bwrap", &named).unwrap();
    for (directory, user) in
        ["dots", "other", "bin", ""].into_iter().flat_map(|dir| users.iter().map(move |u| (dir, *u)))
    {
        let (ran, said) = started(":/usr/bin:/bin", directory, user);
        assert!(!ran, "from {directory}: {said}");
    }
    let (ran, said) = started("", "other", false);
    let why =
        format!("bin/bwrap is not used, since {} is not where programs are installed", home.join("dots/bin").display());
    assert!(!ran && said.contains(&why) && said.contains("COFFERDAM_BWRAP"), "{said}");
    std::fs::remove_file(&named).unwrap();
    std::fs::copy(&kept, &named).unwrap();
    for (directory, user, runs) in
        users.iter().flat_map(|u| [("other", *u, true), ("dots", *u, true), ("bin", *u, false)])
    {
        assert_eq!(started(":/usr/bin:/bin", directory, user).0, runs, "from {directory}");
    }
}

/// The program of an anchor by its name alone, which a project's directory on PATH has.
#[test]
fn an_anchors_program_in_a_project_is_not_started() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let (bin, mark) = (place.path().join("project/.venv/bin"), place.path().join("mark"));
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["logger-of-anchors", "true"] {
        std::fs::write(bin.join(name), format!("#!/bin/sh\necho {name} >>{}\n", mark.display())).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let cofferdam = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command.args(arguments).env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("HOME", place.path());
        command.env("COFFERDAM_AUDIT", place.path().join("audit")).stdin(Stdio::null()).current_dir(place.path());
        let out = command.output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    assert_eq!(cofferdam(&["audit", "keygen", "key"]).0, Some(0));
    assert_eq!(cofferdam(&["run", "-q", "--", "/usr/bin/true"]).0, Some(0));
    let anchored = |anchor: &str| cofferdam(&["audit", "checkpoint", "--key", "key", "--anchor", anchor]);
    let (code, said) = anchored("command:logger-of-anchors");
    assert!(code == Some(125) && said.contains("logger-of-anchors is not used, since") && !mark.exists(), "{said}");
    let (code, said) = anchored("command:true");
    assert!(code == Some(0) && !mark.exists(), "the system's: {said}");
    let (code, said) = anchored(&format!("command:{}", bin.join("true").display()));
    assert!(code == Some(0) && mark.exists(), "named by its path: {said}");
}

/// A directory of a project on PATH, as that of an active virtual environment, has a program that Podman starts by itself.
#[test]
fn podman_finds_no_helper_in_a_project() {
    let podman = Path::new("/usr/bin/podman");
    if !podman.exists() {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "podman is missing");
        return eprintln!("skipped: no podman");
    }
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let (bin, mark) = (place.path().join("project/.venv/bin"), place.path().join("mark"));
    std::fs::create_dir_all(&bin).unwrap();
    for name in ["slirp4netns", "pasta", "newuidmap", "conmon", "netavark"] {
        let script = format!("#!/bin/sh\necho {name} >>{}\nexec /usr/bin/{name} \"$@\"\n", mark.display());
        std::fs::write(bin.join(name), script).unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", bin.display());
    // A service of its own: nothing else has this variable.
    let set = |command: &mut Command| {
        command.env("PATH", &path).env("HOME", place.path()).env("OF_THIS_TEST", place.path());
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null()).current_dir("/");
    };
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    set(doctor.arg("doctor"));
    doctor.output().unwrap();
    let found = std::fs::read_to_string(&mark).unwrap_or_default();
    // With the whole PATH they are found: else this would show nothing.
    let mut info = Command::new(podman);
    set(info.arg("info"));
    info.output().unwrap();
    let control = std::fs::read_to_string(&mark).unwrap_or_default();
    assert_eq!(found, "");
    assert_ne!(control, "", "podman looks for none of these along PATH");
}
