//! The root view `interpreter`, which profiles with `filesystem_policy = "deny"` have: the program, its interpreter and their
//! libraries, and nothing else of the host. Each missing file is present in the minimal view.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use common::{PYTHON, evaluator, needs_python, open_directory};

/// What every minimal view shows and this one does not.
const VICTIMS: [&str; 5] = ["/usr/bin/id", "/usr/share/doc", "/usr/sbin", "/usr/include", "/etc/ssl/certs"];

/// Says which of the arguments are there, and that the library of the language works.
const LOOK: &str =
    "import os, sys, json, ctypes, hashlib\nprint(json.dumps([p for p in sys.argv[1:] if os.path.lexists(p)]))";

fn victims() -> Vec<&'static str> {
    let there: Vec<&str> = VICTIMS.into_iter().filter(|path| Path::new(path).exists()).collect();
    assert!(there.contains(&"/usr/bin/id"), "this host has no /usr/bin/id to hide");
    there
}

/// The options of each backend that is here and makes views of its own.
fn backends() -> Vec<Vec<&'static str>> {
    let mut all = vec![vec!["--backend", "jail"]];
    if Command::new("bwrap").arg("--version").output().is_ok() {
        all.push(vec!["--backend", "bubblewrap"]);
    } else {
        eprintln!("skipped: bubblewrap is not installed");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "bubblewrap is missing");
    }
    if std::env::var_os("COFFERDAM_NSJAIL").is_some() {
        all.push(vec!["--backend", "nsjail"]);
    }
    all
}

/// What a program prints that runs to its end.
#[track_caller]
fn printed(backend: &[&str], root: &str, more: &[&str], argv: &[&str]) -> String {
    let head = ["run", "-q", "--root", root, "-w", "/", "--best-effort=process.tree_kill"];
    let all: Vec<&str> = head.iter().chain(backend).chain(more).chain(&["--"]).chain(argv).copied().collect();
    // The caller's credentials are denied as well, which mounts cannot hold for a home that is the sandbox's own /tmp.
    let out = common::cofferdam().env("HOME", "/nonexistent").args(&all).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{all:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_program_has_its_library_and_sees_nothing_else_of_the_host() {
    if !needs_python() {
        return;
    }
    let there = victims();
    let argv: Vec<&str> = [PYTHON, "-c", LOOK].iter().chain(&there).copied().collect();
    let all = serde_json::to_string(&there).unwrap().replace("\",\"", "\", \"") + "\n";
    for backend in backends() {
        assert_eq!(printed(&backend, "interpreter", &[], &argv), "[]\n", "{backend:?}");
        assert_eq!(printed(&backend, "minimal", &[], &argv), all, "{backend:?}");
    }
}

#[test]
fn certificate_roots_are_read_where_there_is_a_network() {
    if !needs_python() {
        return;
    }
    if !Path::new("/etc/ssl/certs/ca-certificates.crt").exists() {
        eprintln!("skipped: this host has no certificate roots; apt-get install ca-certificates");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "no certificate roots");
        return;
    }
    let count = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'] > 0)";
    for backend in backends() {
        for (network, expected) in [("loopback", "True\n"), ("none", "False\n")] {
            let options = ["--network", network];
            assert_eq!(printed(&backend, "interpreter", &options, &[PYTHON, "-c", count]), expected, "{backend:?}");
        }
    }
}

#[test]
fn a_shell_has_no_programs_but_itself() {
    let code = "echo here; [ -e /usr/bin/id ] && echo there; id -u >/dev/null 2>&1 && echo run; echo done";
    for backend in backends() {
        assert_eq!(printed(&backend, "interpreter", &[], &["sh", "-c", code]), "here\ndone\n", "{backend:?}");
        assert_eq!(printed(&backend, "minimal", &[], &["sh", "-c", code]), "here\nthere\nrun\ndone\n", "{backend:?}");
    }
}

#[test]
fn users_of_the_host_are_not_visible() {
    let read = "while IFS= read -r line; do echo \"${line%%:*}\"; done < /etc/passwd";
    for backend in backends() {
        let users = printed(&backend, "interpreter", &[], &["/bin/sh", "-c", read]);
        assert_eq!(users, "root\nsandbox\nnobody\n", "{backend:?}");
    }
}

#[test]
fn a_script_brings_the_interpreter_of_its_first_line() {
    if !needs_python() {
        return;
    }
    let directory = open_directory();
    for (name, first) in [("straight", "#!/usr/bin/python3 -I"), ("by_env", "#!/usr/bin/env -S python3 -I")] {
        let script = directory.path().join(name);
        fs::write(&script, format!("{first}\nimport json, os\nprint(json.dumps(os.path.exists('/usr/bin/id')))\n"))
            .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let volume = format!("{}:/work:ro", directory.path().display());
        let program = format!("/work/{name}");
        for backend in backends() {
            for (root, sees) in [("interpreter", "false\n"), ("minimal", "true\n")] {
                assert_eq!(printed(&backend, root, &["-v", &volume], &[&program]), sees, "{name} {root} {backend:?}");
            }
        }
    }
}

#[test]
fn landlock_lets_nothing_else_be_read_or_run() {
    if !needs_python() || !common::needs("landlock") {
        return;
    }
    let backend = ["--backend", "landlock"];
    let open = ["--best-effort=filesystem,process,limits"];
    let code = "import json, os, sys\nfor act in (lambda: open('/usr/bin/id', 'rb').read(1), lambda: os.listdir('/usr/bin')):\n  \
                try: act(); print('read')\n  except PermissionError: print('closed')";
    assert_eq!(printed(&backend, "interpreter", &open, &[PYTHON, "-c", code]), "closed\nclosed\n");
    assert_eq!(printed(&backend, "minimal", &open, &[PYTHON, "-c", code]), "read\nread\n");
    let shell = "id -u >/dev/null 2>&1 && echo run; echo done";
    assert_eq!(printed(&backend, "interpreter", &open, &["sh", "-c", shell]), "done\n");
    assert_eq!(printed(&backend, "minimal", &open, &["sh", "-c", shell]), "run\ndone\n");
}

/// A profile with this policy of files that looks for the victims, in a directory of its own.
fn profile(policy: &str, there: &[&str]) -> (tempfile::TempDir, String) {
    let directory = open_directory();
    let file = directory.path().join("look.ncl");
    let argv: Vec<&str> = [PYTHON, "-c", LOOK].iter().chain(there).copied().collect();
    let text = format!(
        "(import \"sandbox\").make_default_config \"look\" & {{ network_policy = \"deny\", log_enabled = false, \
         filesystem_policy = \"{policy}\", cmd = {} }}",
        serde_json::to_string(&argv).unwrap()
    );
    fs::write(&file, text).unwrap();
    (directory, file.display().to_string())
}

#[test]
fn a_profile_that_denies_files_has_this_view() {
    if evaluator().is_none() || !needs_python() {
        return;
    }
    let there = victims();
    for (policy, sees) in [("deny", 0), ("chroot", there.len())] {
        let (directory, file) = profile(policy, &there);
        let cache = directory.path().join("cache");
        let out = common::cofferdam().env("XDG_CACHE_HOME", cache).args(["run", "-q", "--profile", &file]).output();
        let out = out.unwrap();
        let message = String::from_utf8_lossy(&out.stderr);
        let found: Vec<String> =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{policy}: {e}: {message}"));
        assert_eq!(found.len(), sees, "{policy}: {found:?}");
    }
}

#[test]
fn nsjail_shows_the_same_by_what_the_library_exports() {
    let Some(nsjail) = std::env::var_os("COFFERDAM_NSJAIL") else {
        eprintln!("skipped: COFFERDAM_NSJAIL names no nsjail");
        return;
    };
    if evaluator().is_none() || !needs_python() {
        return;
    }
    let there = victims();
    for (policy, sees) in [("deny", 0), ("chroot", there.len())] {
        let (directory, file) = profile(policy, &there);
        let config = directory.path().join("look.cfg").display().to_string();
        let exported = common::cofferdam()
            .env("XDG_CACHE_HOME", directory.path().join("cache"))
            .args(["export", "--format", "nsjail-text", "-o", &config, &file])
            .output()
            .unwrap();
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
        // Run by root, its user would be the host's.
        let mut command = if common::is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&nsjail);
            command
        } else {
            Command::new(&nsjail)
        };
        let out = command.args(["-C", &config]).current_dir("/").stdin(std::process::Stdio::null()).output().unwrap();
        let message = String::from_utf8_lossy(&out.stderr);
        let found: Vec<String> =
            serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{policy}: {e}: {message}"));
        assert_eq!(found.len(), sees, "{policy}: {found:?}");
    }
}
