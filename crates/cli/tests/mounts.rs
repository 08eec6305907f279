//! Mounts on paths where a root of the sandbox's own already has something: a file, a link, or a link on the way.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{open_directory, output};

/// What runs print when this file is shown at that path.
#[track_caller]
fn shown(root: &[&str], volume: &str, argv: &[&str]) -> String {
    let all: Vec<&str> =
        ["run", "-q", "-w", "/"].iter().chain(root).chain(&["-v", volume, "--"]).chain(argv).copied().collect();
    let out = output(&all);
    assert_eq!(out.status.code(), Some(0), "{all:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_file_is_shown_where_a_minimal_root_has_a_file_or_a_link() {
    let directory = open_directory();
    let file = directory.path().join("file");
    fs::write(&file, "mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let minimal = ["--root", "minimal"];
    // Written by the sandbox; a link or a file of the host; a name that does not exist yet.
    for target in ["/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/etc/ld.so.conf", "/etc/mine"] {
        let volume = format!("{}:{target}", file.display());
        assert_eq!(shown(&minimal, &volume, &["/bin/cat", target]), "mine\n", "{target}");
    }
    // Behind a link of the system's (/bin is usr/bin), where the host has that file.
    let volume = format!("{}:/bin/false", file.display());
    assert_eq!(shown(&minimal, &volume, &["/bin/cat", "/usr/bin/false"]), "mine\n");
}

#[test]
fn a_link_is_replaced_and_what_it_leads_to_stays() {
    let link = "/etc/localtime";
    let Ok(leads_to) = fs::canonicalize(link) else {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "this host has no {link}");
        eprintln!("skipped: this host has no {link}");
        return;
    };
    let (text, leads_to) = (fs::read(&leads_to).unwrap(), leads_to.display().to_string());
    let directory = open_directory();
    let file = directory.path().join("file");
    fs::write(&file, "mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let volume = format!("{}:{link}", file.display());
    let size = shown(&["--root", "minimal"], &volume, &["/usr/bin/stat", "-c", "%s", &leads_to]);
    assert_eq!(size.trim(), text.len().to_string());
    // Shown to itself, as profiles of other programs ask for it.
    let volume = format!("{link}:{link}");
    let size = shown(&["--root", "minimal"], &volume, &["/usr/bin/stat", "-L", "-c", "%s", link]);
    assert_eq!(size.trim(), text.len().to_string());
}

#[test]
fn a_directory_takes_the_place_of_a_link_at_the_top() {
    let directory = open_directory();
    fs::write(directory.path().join("name"), "mine\n").unwrap();
    fs::set_permissions(directory.path().join("name"), fs::Permissions::from_mode(0o644)).unwrap();
    let at_sbin = format!("{}:/sbin", directory.path().display());
    assert_eq!(shown(&["--root", "minimal"], &at_sbin, &["/usr/bin/cat", "/sbin/name"]), "mine\n");
    // In the host's view, too, where a new name at the top makes the root one of our own.
    let new = format!("{}:/cofferdam-new", directory.path().display());
    let file = format!("{}:/bin/false", directory.path().join("name").display());
    assert_eq!(shown(&["-v", &new], &file, &["/usr/bin/cat", "/bin/false", "/cofferdam-new/name"]), "mine\nmine\n");
}

#[test]
fn link_at_a_mount_target_does_not_lead_out_of_the_root() {
    let busybox = std::path::Path::new("/bin/busybox");
    if !busybox.exists() {
        eprintln!("skipped: no /bin/busybox");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "no /bin/busybox");
        return;
    }
    let place = open_directory();
    let (root, host, share) = (place.path().join("root"), place.path().join("host"), place.path().join("share"));
    for name in ["bin", "dev", "proc", "sys", "tmp", "etc", "inside"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for directory in [&host, &share] {
        fs::create_dir(directory).unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::write(host.join("file"), "of the host\n").unwrap();
    fs::write(share.join("file"), "shared\n").unwrap();
    let (target, volume) = (root.join("output"), format!("{}:/output", share.display()));
    let run = |script: &str| {
        let root = root.to_str().unwrap();
        output(&["run", "-q", "-w", "/", "--root", root, "-v", &volume, "--", "/bin/busybox", "sh", "-c", script])
    };
    fs::create_dir(&target).unwrap();
    let out = run("/bin/busybox cat /output/file");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "shared\n", "a directory: {out:?}");
    fs::remove_dir(&target).unwrap();
    // A link to a name in the root is resolved beneath it.
    std::os::unix::fs::symlink("/inside", &target).unwrap();
    let out = run("/bin/busybox cat /output/file /inside/file");
    assert!(!out.status.success() || out.stdout == b"shared\nshared\n", "a link inside: {out:?}");
    fs::remove_file(&target).unwrap();
    // A link to a directory that only the host has.
    for leads_to in [host.display().to_string(), "../host".into(), "/../../../../../../../tmp/..".into()] {
        std::os::unix::fs::symlink(&leads_to, &target).unwrap();
        let out = run("/bin/busybox cat /output/file");
        assert!(!String::from_utf8_lossy(&out.stdout).contains("of the host"), "{leads_to}: {out:?}");
        assert_eq!(fs::read_to_string(host.join("file")).unwrap(), "of the host\n", "{leads_to}");
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_volume_of_the_whole_host_does_not_show_its_processes() {
    let script = "ls /host/proc; ls /proc/self/status /host/etc/passwd";
    let own = "/host/etc/passwd\n/proc/self/status\n";
    for root in [
        &[][..],
        &["--root", "minimal"],
        &["--root", "minimal", "--backend", "bubblewrap", "--best-effort=filesystem,limits"],
    ] {
        if root.contains(&"bubblewrap") && !common::needs_bubblewrap() {
            continue;
        }
        let all: Vec<&str> = ["run", "-q", "-w", "/", "-v", "/:/host:ro"].iter().chain(root).copied().collect();
        let all = [&all[..], &["--", "/bin/sh", "-c", script]].concat();
        let out = output(&all);
        let (text, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!((&*text, out.status.code()), (own, Some(0)), "{root:?}: {errors}");
        assert!(errors.is_empty() || errors.contains("/host/proc"), "{root:?}: {errors}");
    }
}

#[test]
fn a_volume_over_the_callers_directory_replaces_it_where_the_program_starts_elsewhere() {
    let directory = open_directory();
    let (around, other) = (directory.path().join("around"), directory.path().join("other"));
    fs::create_dir_all(around.join("project")).unwrap();
    fs::create_dir(&other).unwrap();
    fs::write(around.join("project/file"), "mine\n").unwrap();
    fs::write(other.join("file"), "other\n").unwrap();
    for path in [&around, &around.join("project"), &other] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = |source: &std::path::Path, options: &[&str]| {
        let volume = format!("{}:{}", source.display(), around.display());
        let files = ["file", "project/file"].map(|file| around.join(file));
        let mut command = common::cofferdam();
        command
            .current_dir(around.join("project"))
            .args(["run", "-q", "-v", &volume])
            .args(options)
            .args(["--", "cat"]);
        let out = command.args(files).output().unwrap();
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    assert_eq!(run(&other, &["-w", "/"]).0, "other\n");
    // Where it is in the volume, it is shown as before; and a program that starts in it needs it.
    assert_eq!(run(&around, &["-w", "/"]).0, "mine\n");
    assert!(run(&other, &[]).1.contains("does not exist inside"), "{}", run(&other, &[]).1);
}

#[test]
fn a_volume_is_shown_in_a_tmpfs_of_the_policy() {
    let directory = open_directory();
    let (file, shared) = (directory.path().join("file"), directory.path().join("shared"));
    fs::write(&file, "mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    for tmpfs in ["/tmp/home", "/tmp/new", "/mnt"] {
        let at = |name: &str| format!("{tmpfs}/{name}");
        let volumes =
            [format!("{}:{}:ro", file.display(), at("a/b/file")), format!("{}:{}:rw", shared.display(), at("a/c"))];
        let script = format!("cat {} && echo written >{} && echo own >{}", at("a/b/file"), at("a/c/out"), at("own"));
        let arguments =
            ["run", "-q", "--tmpfs", tmpfs, "-v", &volumes[0], "-v", &volumes[1], "--", "sh", "-c", &script];
        let out = output(&arguments);
        assert_eq!(out.status.code(), Some(0), "{tmpfs}: {}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.stdout, b"mine\n", "{tmpfs}");
        assert_eq!(fs::read_to_string(shared.join("out")).unwrap(), "written\n", "{tmpfs}");
        fs::remove_file(shared.join("out")).unwrap();
    }
}
