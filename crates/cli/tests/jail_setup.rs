//! What the jail sets up: the same mounts whether it is named or chosen, a name and ids of its own for each run, and few
//! descriptors.

mod common;

use common::{PYTHON, cofferdam, needs, open_directory, output};

/// The mounts inside, without the numbers that are new in every run. The state directory is the caller's: audit trails
/// that other tests make meanwhile are hidden from no run here.
#[track_caller]
fn mounts(state: &std::path::Path, options: &[&str]) -> Vec<String> {
    let arguments = [&["run", "-q"][..], options, &["--", "/bin/cat", "/proc/self/mountinfo"][..]].concat();
    let out = cofferdam().args(&arguments).env("XDG_STATE_HOME", state).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{options:?}: {}", String::from_utf8_lossy(&out.stderr));
    // The last are the ids that the sandbox's user stands for: as root another one for each run.
    let steady = |line: &str| line.split(' ').skip(3).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().map(|line| steady(line.split(",uid=").next().unwrap_or(line))).collect();
    lines.sort_unstable(); // the kernel's order is that of their making
    lines
}

#[test]
fn the_chosen_jail_has_the_mounts_of_the_named_one() {
    let tree = open_directory();
    let state = open_directory();
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
        let chosen = mounts(state.path(), options);
        assert_eq!(chosen, mounts(state.path(), &[&["--backend=jail"][..], options].concat()), "{options:?}");
        assert!(chosen.iter().any(|line| line.split(' ').nth(1) == Some("/")), "{chosen:?}");
    }
}

#[test]
fn a_source_below_a_masked_directory_is_shown() {
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
fn a_low_limit_of_open_files_is_enough() {
    let command = cofferdam();
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

#[test]
fn a_sandbox_knows_its_own_name_and_no_other_of_the_hosts() {
    let code = "
import socket, sys
print(socket.gethostname(), socket.gethostbyname(socket.gethostname()), open('/etc/hosts').read() == sys.argv[1])
";
    let host = std::fs::read_to_string("/etc/hosts").unwrap();
    for (options, same) in [
        (&["--root", "host"][..], false),
        (&["--root", "minimal"], false),
        (&["--root", "interpreter"], false),
        (&["--network", "loopback"], false),
        (&["--allow", "a.example"], false),
        (&["--network", "host"], false),
        (&["--network", "host", "--hostname", "localhost"], true),
        (&["--backend", "bubblewrap", "--best-effort=filesystem.root,filesystem.deny", "--root", "host"], false),
        (&["--backend", "bubblewrap", "--best-effort=filesystem.deny", "--root", "minimal"], false),
    ] {
        if options.contains(&"--allow") && !needs("captured network")
            || options.contains(&"bubblewrap") && std::process::Command::new("bwrap").arg("--version").output().is_err()
        {
            continue;
        }
        let named = options.contains(&"--hostname");
        let name = if named { "localhost" } else { "inside" };
        let own = if named { &[][..] } else { &["--hostname", "inside"] };
        let line = [&["run", "-w", "/"][..], options, own, &["--", PYTHON, "-c", code, &host]].concat();
        let out = output(&line);
        let expected = format!("{name} 127.0.0.1 {}\n", if same { "True" } else { "False" });
        assert_eq!(String::from_utf8_lossy(&out.stdout), expected, "{options:?}: {out:?}");
    }
}
