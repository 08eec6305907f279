//! What the command makes before it knows the policy: the sandbox is the same one as without, and what does not suit the
//! policy is left and made anew.

mod common;

use common::{open_directory, output};

/// The mounts inside, without the numbers that every run has anew.
#[track_caller]
fn mounts(options: &[&str]) -> Vec<String> {
    let arguments = [&["run", "-q"][..], options, &["--", "/bin/cat", "/proc/self/mountinfo"][..]].concat();
    let out = output(&arguments);
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{options:?}: {}", String::from_utf8_lossy(&out.stderr));
    // The last are the ids that the sandbox's user stands for: as root another one for each run.
    let told = |line: &str| line.split(' ').skip(3).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().map(|line| told(line.split(",uid=").next().unwrap_or(line))).collect();
    lines.sort_unstable(); // the kernel's order is that of their making
    lines
}

/// A run whose backend is named is not guessed at.
const PLAIN: &str = "--backend=jail";

#[test]
fn a_sandbox_begun_ahead_has_the_mounts_of_one_that_was_not() {
    let tree = open_directory();
    std::fs::create_dir(tree.path().join("secret")).unwrap();
    let at = |how: &str| format!("{}:/tmp/place/here:{how}", tree.path().display());
    let (ro, rw, cow) = (at("ro"), at("rw"), at("cow"));
    let top = format!("{}:/a-new-top:ro", tree.path().display());
    let secret = "/tmp/place/here/secret";
    for options in [
        &[][..],
        &["-v", &ro],
        &["-v", &rw, "--deny", secret, "--protect", "/tmp/place/here/other"],
        &["-v", &cow],
        &["-v", &top],
        &["-v", "/sys/class:/tmp/class:ro"],
        &["-v", "/:/tmp/all:ro"],
        &["--tmpfs", "/tmp/more", "--tmpfs-size", "3m"],
        &["--hostname", "elsewhere"],
        &["--network", "loopback"],
        &["--root", "minimal"],
    ] {
        let begun = mounts(options);
        assert_eq!(begun, mounts(&[&[PLAIN][..], options].concat()), "{options:?}");
        assert!(begun.iter().any(|line| line.split(' ').nth(1) == Some("/")), "{begun:?}");
    }
}

#[test]
fn a_source_that_was_hidden_by_what_was_begun_is_found() {
    let out = output(&["run", "-q", "-v", "/sys/class:/tmp/class:ro", "--", "/bin/ls", "/tmp/class"]);
    let inside = String::from_utf8(out.stdout).unwrap();
    assert!(inside.lines().any(|name| name == "net"), "{inside}{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn each_run_has_ids_of_its_own_and_both_names_of_one_agree() {
    let read = |path: &str| {
        let out = output(&["run", "-q", "--", "/bin/cat", path]);
        String::from_utf8(out.stdout).unwrap()
    };
    for path in ["/proc/sys/kernel/random/boot_id", "/etc/machine-id"] {
        if std::fs::metadata(path).is_ok() {
            let (one, other, host) = (read(path), read(path), std::fs::read_to_string(path).unwrap());
            assert!(one.len() > 32 && one != other && one != host, "{path}: {one} {other}");
        }
    }
}

#[test]
fn a_low_limit_of_open_files_is_enough_for_what_is_begun_ahead() {
    let command = common::cofferdam();
    for limit in ["48", "64"] {
        for _ in 0..5 {
            let script = "ulimit -n $1; shift; exec \"$@\"";
            let mut shell = std::process::Command::new("/bin/sh");
            shell.args(["-c", script, "sh", limit]).arg(command.get_program());
            let out = shell.args(["run", "-q", "--", "/bin/echo", "fine"]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&out.stdout), "fine\n", "{limit}: {out:?}");
        }
    }
}
