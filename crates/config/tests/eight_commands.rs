//! The documented configuration, whose eight commands do real work, while nothing else is executed by any of them.
//!
//! As root it runs twice: as root, and as an unprivileged user with a toolchain that this one can read.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_guard::{ExecutionResult, Guard, Sandbox};

const DOCUMENTED: &str = r#"
[sandbox]
enabled = true
allowed_commands = ["ls", "cat", "grep", "find", "git", "cargo", "npm", "python"]
blocked_paths = ["/etc/shadow", "/etc/passwd"]
max_execution_time_secs = 120
max_output_bytes = 1048576
"#;

/// Debian's `nobody`.
const NOBODY: u32 = 65534;

/// Names the directory of a second pass, created by the first.
const AGAIN: &str = "COFFERDAM_EIGHT_COMMANDS";

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let parent = if is_root() { "/var/lib" } else { "/var/tmp" };
        let place = Place(Path::new(parent).join(format!("cofferdam-eight.{}", std::process::id())));
        directory(&place.0);
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn directory(path: &Path) {
    std::fs::create_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A workspace with a repository, a crate and a package in it, and `python` on a PATH before it.
fn prepare(base: &Path) {
    directory(&base.join("bin"));
    symlink("/usr/bin/python3", base.join("bin/python")).unwrap();
    let work = base.join("work");
    directory(&work);
    for dir in ["src", "js"] {
        directory(&work.join(dir));
    }
    let files = [
        ("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n"),
        ("src/main.rs", "fn main() {\n    println!(\"{}\", 6 * 7);\n}\n"),
        ("js/package.json", "{\"name\": \"tiny\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node test.js\"}}"),
        ("js/test.js", "require('assert').equal(6 * 7, 42); console.log('of node');\n"),
        ("note", "a needle\n"),
        (".gitignore", "target\n"),
    ];
    for (name, text) in files {
        std::fs::write(work.join(name), text).unwrap();
    }
    let git = Command::new("git").current_dir(&work).args(["init", "-q", "-b", "main"]).status();
    assert!(git.unwrap().success());
    // A hook that is there: it is not run where hooks are off, and could not be.
    let hook = work.join(".git/hooks/pre-commit");
    std::fs::write(&hook, "#!/bin/sh\ntouch hooked\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        std::fs::read_dir(path).unwrap().flatten().for_each(|entry| give(&entry.path()));
    }
}

/// A toolchain that all users can read.
fn toolchain(to: &Path) -> bool {
    let Ok(asked) = Command::new("rustc").args(["--print", "sysroot"]).output() else { return false };
    let from = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim_end());
    fn take(from: &Path, to: &Path) {
        directory(to);
        for entry in std::fs::read_dir(from).unwrap().flatten() {
            let (path, to) = (entry.path(), to.join(entry.file_name()));
            if path.is_dir() {
                take(&path, &to);
            } else if std::fs::hard_link(&path, &to).is_err() {
                std::fs::copy(&path, &to).unwrap();
            }
        }
    }
    if !asked.status.success() || !from.join("bin/cargo").exists() {
        return false;
    }
    directory(to);
    for part in ["bin", "lib"] {
        take(&from.join(part), &to.join(part));
    }
    true
}

fn run(guard: &Guard, command: &str, args: &[&str]) -> ExecutionResult {
    guard.execute_blocking(command, args).unwrap_or_else(|e| panic!("{e}"))
}

fn works(guard: &Guard, command: &str, args: &[&str]) -> String {
    let result = run(guard, command, args);
    assert_eq!(result.exit_code, 0, "{command} {args:?}: {result:?}");
    result.stdout
}

fn the_eight_commands(base: &Path, path: &str) {
    let work = base.join("work");
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some();
    let there = |name: &str| path.split(':').any(|dir| Path::new(dir).join(name).is_file());
    let mut variables: Vec<(String, String)> =
        std::env::vars().filter(|(name, _)| ["HOME", "LANG", "RUSTUP_HOME"].contains(&name.as_str())).collect();
    variables.push(("PATH".into(), path.into()));
    for (name, value) in [("NAME", "somebody"), ("EMAIL", "somebody@example.org")] {
        for who in ["AUTHOR", "COMMITTER"] {
            variables.push((format!("GIT_{who}_{name}"), value.into()));
        }
    }
    let mut config = cofferdam_config::guard(DOCUMENTED).unwrap();
    config.run_as_root = is_root();
    let guard = Guard::builder(config, &work).variables(variables).build().unwrap();

    assert!(works(&guard, "ls", &["-a"]).contains("note"));
    assert_eq!(works(&guard, "cat", &["note"]), "a needle\n");
    assert_eq!(works(&guard, "grep", &["-rn", "needle", "note"]), "1:a needle\n");
    assert!(works(&guard, "find", &[".", "-name", "main.rs"]).contains("./src/main.rs"));

    works(&guard, "git", &["add", "-A"]);
    works(&guard, "git", &["-c", "core.hooksPath=/dev/null", "commit", "-qm", "one"]);
    assert!(works(&guard, "git", &["log", "--oneline"]).contains("one"));
    assert!(works(&guard, "git", &["status", "--porcelain"]).is_empty());
    assert!(!work.join("hooked").exists());
    // With hooks on, the hook is a program that git may not start.
    let hooked = run(&guard, "git", &["commit", "--allow-empty", "-qm", "two"]);
    assert!(!work.join("hooked").exists(), "{hooked:?}");

    if there("cargo") {
        works(&guard, "cargo", &["build", "--offline", "-q"]);
        let made = work.join("target/debug/tiny");
        assert!(made.exists());
        // It was built, and no user may execute it here.
        let ran = run(&guard, "cargo", &["run", "--offline", "-q"]);
        assert!(ran.exit_code != 0 && !ran.stdout.contains("42"), "{ran:?}");
    } else {
        assert!(!must || !is_root(), "cargo is missing");
        eprintln!("skipped: no cargo that this user can reach; root's pass runs it as such a user");
    }
    if there("npm") && there("node") {
        let said = works(&guard, "npm", &["--prefix", "js", "test"]);
        assert!(said.contains("of node"), "{said}");
    } else {
        assert!(!must, "npm is missing");
        eprintln!("skipped: npm is missing");
    }
    let python = "import json, sys; json.dump({'x': 1}, open('by-python', 'w')); print(sys.version_info[0])";
    assert_eq!(works(&guard, "python", &["-c", python]), "3\n");
    assert!(work.join("by-python").exists());

    // The same Python starts nothing else, by whichever way.
    if !Path::new("/usr/bin/curl").exists() {
        assert!(!must, "curl is missing");
        eprintln!("skipped: curl is missing");
        return;
    }
    let start = "import subprocess\n\
         for program in ['/usr/bin/curl', 'curl', '/usr/bin/git', 'sh']:\n    \
             try: print(program, 'ran', subprocess.run([program, '--version']).returncode)\n    \
             except PermissionError: print(program, 'refused')\n";
    let said = works(&guard, "python", &["-c", start]);
    for line in said.lines() {
        assert!(line.ends_with("refused"), "{said}");
    }
    assert_eq!(said.lines().count(), 4, "{said}");
    for path in ["/etc/passwd", "/etc/shadow", "/proc/self/root/etc/passwd", "/etc/../etc/passwd"] {
        let read = run(&guard, "cat", &[path]);
        assert!(read.exit_code != 0 && read.stdout.is_empty(), "{read:?}");
        assert!(!Sandbox::path_allowed(&guard, path));
    }
    assert!(!works(&guard, "cat", &["/etc/group"]).is_empty());
}

#[test]
fn all_eight_commands_do_real_work() {
    let path = std::env::var("PATH").unwrap();
    let system = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
    if let Some(base) = std::env::var_os(AGAIN) {
        let base = PathBuf::from(base);
        let path = format!("{0}/bin:{0}/rust/bin:{system}", base.display());
        return the_eight_commands(&base, &path);
    }
    let place = Place::new();
    prepare(&place.0);
    let cargo = path.split(':').find(|dir| Path::new(dir).join("cargo").is_file()).unwrap_or("/usr/bin");
    the_eight_commands(&place.0, &format!("{}/bin:{cargo}:{system}", place.0.display()));
    if !is_root() {
        return;
    }
    // Again as an unprivileged user: this test's own program, in a process of that user's.
    let base = place.0.join("again");
    directory(&base);
    prepare(&base);
    assert!(toolchain(&base.join("rust")) || std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "no toolchain");
    let program = base.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let home = base.join("home");
    directory(&home);
    give(&base.join("work"));
    give(&home);
    let ids =
        [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into(), "--inh-caps=-all".into()];
    let done = Command::new("setpriv")
        .args(ids)
        .arg("--")
        .arg(&program)
        .args(["--exact", "all_eight_commands_do_real_work", "--nocapture"])
        .current_dir(&base)
        .env(AGAIN, &base)
        .env("HOME", &home)
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    let reported = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && reported.contains("1 passed"), "{reported}");
}
