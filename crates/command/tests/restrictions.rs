//! What is enforced, on real processes: every rule on every version of Landlock up to this kernel's.
//!
//! Each attempt is made three times: confined on a victim outside (refused, and the victim is unchanged), confined on a
//! victim inside (done), and unconfined on the victim outside (done: so it was the confinement). The process that
//! attempts is this test's own program.

#![cfg(target_os = "linux")]

mod probe;

use std::path::Path;

use cofferdam_command::Confined;
use probe::{Scratch, furnish, picture, plain, restricted, run, versions};
use tokio::process::Command;

/// Attempts on what lies in one directory, which is named `D` here.
const ATTEMPTS: &[&str] = &[
    "write D/new",
    "append D/file",
    "overwrite D/file",
    "mkdir D/new",
    "unlink D/gone",
    "rmdir D/empty",
    "symlink D/new",
    "fifo D/new",
    "rename D/moved D/renamed",
    "link D/linked D/link",
    "chmod D/victim",
    "chmod D/directory",
    "fchmod D/victim",
    "fchmodat-by-descriptor D/victim",
    "chmod-relative D/victim",
    "chown D/victim",
    "lchown D/victim",
    "utimes D/victim",
    "touch D/victim",
    "futimes D/victim",
    "setxattr D/victim",
    "fsetxattr D/victim",
];

#[tokio::test]
async fn nothing_outside_is_changed_on_any_version() {
    let attributes = probe::attributes().await;
    for abi in versions() {
        for words in ATTEMPTS.iter().filter(|words| attributes || !words.contains("xattr")) {
            let scratch = Scratch::new();
            let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
            furnish(&outside);
            furnish(&data);
            let at = |dir: &Path| words.replace('D', &dir.display().to_string());
            let before = picture(&outside);
            let refused = run(restricted(abi, &data), &at(&outside)).await;
            assert!(["EACCES", "EPERM", "EXDEV"].contains(&refused.as_str()), "{abi}: {words}: {refused}");
            assert_eq!(picture(&outside), before, "{abi}: {words}");
            assert_eq!(run(restricted(abi, &data), &at(&data)).await, "done", "{abi}: {words}: the twin inside");
            assert_eq!(run(plain(), &at(&outside)).await, "done", "{abi}: {words}: the twin without walls");
            assert_ne!(picture(&outside), before, "{abi}: {words}: it changes what can be seen");
        }
    }
}

#[tokio::test]
async fn truncation_is_restricted_on_any_version() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        for way in ["truncate-reading", "truncate-neither", "truncate-writing"] {
            let before = picture(&outside);
            let at = |dir: &Path| format!("{way} {}/victim", dir.display());
            assert_eq!(run(restricted(abi, &data), &at(&outside)).await, "EACCES", "{abi}: {way}");
            assert_eq!(picture(&outside), before, "{abi}: {way}");
            let inside = run(restricted(abi, &data), &at(&data)).await;
            // Before version 3 only by opening for writing.
            let wanted = if abi < 3 && way != "truncate-writing" { "EACCES" } else { "done" };
            assert_eq!(inside, wanted, "{abi}: {way}");
        }
        assert_eq!(run(plain(), &format!("truncate-reading {}/victim", outside.display())).await, "done");
        assert_eq!(std::fs::read(outside.join("victim")).unwrap(), b"");
    }
}

#[tokio::test]
async fn nothing_moves_or_is_linked_across() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        let before = picture(&outside);
        let (o, d) = (outside.display(), data.display());
        for words in [
            format!("rename {o}/victim {d}/in"),
            format!("rename {d}/victim {o}/out"),
            format!("rename {o}/directory {d}/in"),
            format!("link {o}/victim {d}/in"),
            format!("link {d}/victim {o}/out"),
            format!("exchange {o}/victim {d}/victim"),
        ] {
            let refused = run(restricted(abi, &data), &words).await;
            assert!(["EACCES", "EXDEV", "EPERM"].contains(&refused.as_str()), "{abi}: {words}: {refused}");
            assert_eq!(picture(&outside), before, "{abi}: {words}");
        }
        // Between directories inside, from version 2 on.
        let inside = run(restricted(abi, &data), &format!("rename {d}/victim {d}/directory/in")).await;
        assert_eq!(inside, if abi < 2 { "EXDEV" } else { "done" }, "{abi}");
        for words in [format!("link {o}/victim {o}/directory/in"), format!("rename {o}/victim {o}/directory/moved")] {
            assert_eq!(run(plain(), &words).await, "done", "{words}");
        }
    }
}

#[tokio::test]
async fn device_nodes_cannot_be_created() {
    if !rustix::process::geteuid().is_root() {
        return probe::skip_unless_root("only root can make device nodes");
    }
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        for kind in ["mknod-character", "mknod-block"] {
            let words = format!("{kind} {}/node-{kind}", data.display());
            assert_eq!(run(restricted(abi, &data), &words).await, "EPERM", "{abi}: {kind}");
            assert_eq!(run(plain(), &words).await, "done", "{abi}: {kind}: without walls");
            std::fs::remove_file(data.join(format!("node-{kind}"))).unwrap();
        }
    }
}

#[tokio::test]
async fn ioctl_reaches_only_harmless_devices() {
    // Unconfined, the device may return any error but that permission is denied.
    let candidates =
        ["/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/console", "/dev/ttyS0", "/dev/mem", "/dev/vda", "/dev/rtc0"];
    let mut device = None;
    for path in candidates.into_iter().filter(|path| Path::new(path).exists()) {
        let answer = run(plain(), &format!("ioctl {path}")).await;
        if ["ENOTTY", "EINVAL", "ENOSYS", "done"].contains(&answer.as_str()) {
            device = Some(path);
            break;
        }
    }
    let Some(device) = device else {
        return probe::skip_unless_root("this machine has no device that this user can open");
    };
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let refused = run(restricted(abi, &data), &format!("ioctl {device}")).await;
        assert_eq!(refused, "EACCES", "{abi}: {device}");
        for harmless in ["/dev/null", "/dev/zero", "/dev/urandom"] {
            let answer = run(restricted(abi, &data), &format!("ioctl {harmless}")).await;
            assert!(["ENOTTY", "EINVAL"].contains(&answer.as_str()), "{abi}: {harmless}: {answer}");
        }
        assert_eq!(run(restricted(abi, &data), "terminal /dev/ptmx").await, "done", "{abi}");
    }
}

#[tokio::test]
async fn harmless_devices_and_shared_memory_are_writable() {
    for abi in versions() {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        for words in ["append /dev/null", "append /dev/zero", "overwrite /dev/null"] {
            assert_eq!(run(restricted(abi, &data), words).await, "done", "{abi}: {words}");
        }
        let name = format!("/dev/shm/cofferdam-test-{}-{abi}", std::process::id());
        assert_eq!(run(restricted(abi, &data), &format!("write {name}")).await, "done", "{abi}");
        std::fs::remove_file(&name).unwrap();
        let temporary = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let words = format!("append {}", temporary.path().display());
        assert_eq!(run(restricted(abi, &data), &words).await, "done", "{abi}: /tmp");
    }
}

#[tokio::test]
async fn no_file_system_is_created_that_works_outside() {
    // In a user namespace of its own, where anybody may; root needs none.
    let inside = |mut command: Command, maps: bool| {
        command.args(["--user", "--keep-caps", "--mount", "--propagation=unchanged"]);
        if maps {
            command.arg("--map-current-user");
        }
        command.arg(probe::own());
        command
    };
    let prepare = |scratch: &Scratch| {
        let at = |name: &str| scratch.directory(name).display().to_string();
        let (lower, upper, work) = (at("data/lower"), at("outside/upper"), at("outside/place"));
        let file = scratch.directory("outside/place/work").join("file");
        std::fs::write(&file, "").unwrap();
        (format!("overlay {lower} {upper} {work}"), file)
    };
    let scratch = Scratch::new();
    let (words, file) = prepare(&scratch);
    match run(inside(Command::new("/usr/bin/unshare"), true), &words).await.as_str() {
        "ENODEV" => return probe::skip("this kernel has no overlay file system"),
        answer => assert_eq!(answer, "done"),
    }
    assert!(!file.exists(), "a new overlay empties its work directory");
    for abi in versions() {
        let scratch = Scratch::new();
        let (words, file) = prepare(&scratch);
        let data = scratch.directory("data");
        let command = if rustix::process::geteuid().is_root() {
            restricted(abi, &data)
        } else {
            inside(Confined::new("/usr/bin/unshare").data_dir(&data).landlock_at_most(abi).command().unwrap().0, false)
        };
        assert_eq!(run(command, &words).await, "EPERM", "{abi}");
        assert!(file.exists(), "{abi}");
    }
}
