//! No sandbox reaches Cofferdam's own state: the audit trail, its locks, configuration, profiles, skills, caches.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use common::{cofferdam, eventually, needs, open_directory};

/// The command with a home and nothing else of the caller's variables that moves a place.
fn at_home(home: &Path) -> Command {
    let mut command = cofferdam();
    for name in [
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_HOME",
        "COFFERDAM_AUDIT",
        "COFFERDAM_PROFILES",
    ] {
        command.env_remove(name);
    }
    command.env("HOME", home).current_dir(home);
    command
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    at_home(home).arg("run").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn verified(home: &Path, records: usize) {
    let output = at_home(home).args(["audit", "verify", "--dir", "audit"]).output().unwrap();
    assert!(output.status.success() && said(&output).contains(&format!("{records} records")), "{}", said(&output));
}

#[test]
fn a_run_cannot_remove_change_or_read_its_trail() {
    let home = open_directory();
    let home = home.path();
    assert_eq!(run(home, &["--audit-trail", "./audit", "--", "true", "hunter2secret"]).status.code(), Some(0));
    verified(home, 3);
    let volume = format!("{0}:{0}:rw", home.display());
    let attack = "rm -rf audit/* audit; mv audit other; mkdir -p audit; cat audit/*; echo x >audit/trail-000001.jsonl; \
                  echo here >beside; cat beside";
    let ran = run(home, &["--audit-trail", "./audit", "-v", &volume, "--", "sh", "-c", attack]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    assert!(said(&ran).contains("here") && !said(&ran).contains("hunter2secret"), "{}", said(&ran));
    assert_eq!(std::fs::read_to_string(home.join("beside")).unwrap(), "here\n", "the control: a file beside it");
    verified(home, 5);
    // Without a volume, in the read-only view; and named by the variable.
    let ran = at_home(home)
        .env("COFFERDAM_AUDIT", home.join("audit"))
        .args([
            "run",
            "--",
            "sh",
            "-c",
            "cat audit/*; cat beside; flock -n audit/lock true || flock -n audit true && echo locked",
        ])
        .output()
        .unwrap();
    let message = said(&ran);
    assert!(message.contains("here") && !message.contains("hunter2secret") && !message.contains("locked"), "{message}");
    verified(home, 7);
    // Its lock is free while the program runs, and the program cannot take it.
    let script = "flock -n beside echo beside was locked; flock -n audit/lock echo the lock was taken; \
                  flock -n audit/trail-000001.jsonl echo the trail was locked; \
                  echo up >up; while [ ! -e go ]; do sleep 0.05; done";
    let mut command = at_home(home);
    command.args(["run", "--audit-trail", "./audit", "-v", &volume, "--", "sh", "-c", script]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    eventually("the program is up", Duration::from_secs(20), || home.join("up").exists());
    assert!(home.join("audit/lock").exists());
    let free = Command::new("flock").args(["-n", "audit/lock", "true"]).current_dir(home).status().unwrap();
    std::fs::write(home.join("go"), "").unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(free.success(), "the control: nothing else has the lock");
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "beside was locked\n", "{}", said(&ended));
    verified(home, 9);
}

#[test]
fn a_later_run_that_does_not_name_a_trail_cannot_reach_it() {
    let home = open_directory();
    let home = home.path();
    assert_eq!(run(home, &["--audit-trail", "./audit", "--", "true", "hunter2secret"]).status.code(), Some(0));
    std::fs::write(home.join("beside"), "here\n").unwrap();
    let attack = "cat audit/* beside; flock -n audit/lock true && echo locked; rm -rf audit; mv audit other; \
                  mkdir -p audit; echo x >audit/trail-000001.jsonl; echo after >beside";
    let volume = format!("{0}:{0}:rw", home.display());
    for options in [&["--"][..], &["-v", &volume, "--"]] {
        let ran = run(home, &[options, &["sh", "-c", attack]].concat());
        let message = said(&ran);
        assert!(
            message.contains("here") && !message.contains("hunter2secret") && !message.contains("locked"),
            "{message}"
        );
        verified(home, 3);
    }
    assert_eq!(std::fs::read_to_string(home.join("beside")).unwrap(), "after\n", "the control: a file beside it");
    let inside = format!("{}/audit:/x", home.display());
    let ran = run(home, &["-v", &inside, "--", "true"]);
    assert!(ran.status.code() == Some(125) && said(&ran).contains("no sandbox sees it"), "{}", said(&ran));
    // A directory in which other files lie beside the trail's stays in sight.
    std::fs::create_dir(home.join("mixed")).unwrap();
    std::fs::write(home.join("mixed/source"), "of the user\n").unwrap();
    let ran = run(home, &["--audit-trail", "./mixed", "--", "true"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let ran = run(home, &["--", "cat", "mixed/source"]);
    assert!(said(&ran).contains("of the user"), "the control: {}", said(&ran));
    // It is no trail of theirs any more once it has gone.
    std::fs::remove_dir_all(home.join("audit")).unwrap();
    std::fs::create_dir(home.join("audit")).unwrap();
    let ran = run(home, &["-v", &volume, "--", "sh", "-c", "echo new >audit/new && cat audit/new"]);
    assert!(said(&ran).contains("new"), "the control: {}", said(&ran));
}

#[test]
fn a_trail_that_cannot_be_remembered_is_announced() {
    let place = open_directory();
    let (home, gone) = (place.path(), place.path().join("gone"));
    let run = |with: &Path, options: &[&str]| {
        let mut command = at_home(home);
        command.env("HOME", with).args(["run", "--audit-trail", "./audit"]).args(options);
        command.args(["--", "echo", "ran"]).output().unwrap()
    };
    let ran = run(&gone, &[]);
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(0), &b"ran\n"[..]), "{}", said(&ran));
    let says = String::from_utf8_lossy(&ran.stderr);
    assert!(says.contains("later runs that show") && says.contains("hint: XDG_STATE_HOME="), "{says}");
    assert!(!gone.exists());
    assert_eq!(run(&gone, &["-q"]).stderr, b"", "--quiet");
    assert_eq!(run(home, &[]).stderr, b"", "the control: a home of its own");
}

#[test]
fn a_trail_is_no_volume() {
    let home = open_directory();
    let home = home.path();
    assert_eq!(run(home, &["--audit-trail", "./audit", "--", "true"]).status.code(), Some(0));
    for volume in [format!("{}/audit:/x", home.display()), format!("{}/audit:/x:rw", home.display())] {
        let ran = run(home, &["--audit-trail", "./audit", "-v", &volume, "--", "true"]);
        assert!(ran.status.code() == Some(125) && said(&ran).contains("no sandbox sees it"), "{}", said(&ran));
    }
}

#[test]
fn a_trail_that_vanished_while_the_run_went_on_fails_the_run() {
    for (what, script) in [
        ("removed", "rm -rf audit"),
        ("emptied", "rm -f audit/trail-*"),
        ("replaced", "cp -r audit a && rm -rf audit && mv a audit"),
        ("rewritten", "cp audit/trail-000001.jsonl a && head -n1 a >audit/trail-000001.jsonl"),
    ] {
        let root = open_directory();
        let home = root.path();
        let mut child = at_home(home);
        child
            .args(["run", "--json", "--audit-trail", "./audit", "-v", &format!("{}:/v:rw", home.join("v").display())])
            .args(["--", "sh", "-c", "echo up >/v/up; while [ ! -e /v/go ]; do sleep 0.05; done"]);
        std::fs::create_dir(home.join("v")).unwrap();
        let child = child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        eventually("the program is up", Duration::from_secs(20), || home.join("v/up").exists());
        assert!(Command::new("sh").args(["-c", script]).current_dir(home).status().unwrap().success());
        std::fs::write(home.join("v/go"), "").unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(125), "{what}: {}", said(&ended));
        assert!(said(&ended).contains("is not the one that the run began in"), "{what}: {}", said(&ended));
        let noted = std::fs::read_to_string(home.join(".local/state/cofferdam/trails-lost.jsonl")).unwrap();
        let line: serde_json::Value = serde_json::from_str(noted.trim()).unwrap();
        assert_eq!(line["kind"], "sandbox_completed", "{what}: {line}");
    }
}

#[test]
fn files_that_control_later_sandboxes_are_not_writable() {
    let root = open_directory();
    let home = root.path();
    let places = [
        (".config/cofferdam/config.toml", true),
        (".cache/cofferdam/policies/entry", true),
        (".omni/sandbox/profiles/evil/policy.json", true),
        (".local/share/cofferdam/skills/s", true),
        (".local/state/cofferdam/policies.key", false),
    ];
    for (file, _) in places {
        std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        std::fs::write(home.join(file), "before").unwrap();
    }
    std::fs::write(home.join(".cache/other"), "before").unwrap();
    let volume = format!("{0}:{0}:rw", home.display());
    let script = "for f in .config/cofferdam/config.toml .cache/cofferdam/policies/entry .omni/sandbox/profiles/evil/policy.json \
                  .local/share/cofferdam/skills/s .local/state/cofferdam/policies.key; do cat $f && echo; rm -f $f; echo after >$f; \
                  done; mv .cache c; mv .local l; echo after >.cache/other";
    let ran = run(home, &["-v", &volume, "--", "sh", "-c", script]);
    for (file, readable) in places {
        assert_eq!(std::fs::read_to_string(home.join(file)).unwrap(), "before", "{file}: {}", said(&ran));
        let read = String::from_utf8_lossy(&ran.stdout).matches("before").count();
        assert_eq!(read, places.iter().filter(|(_, readable)| *readable).count(), "{readable}: {}", said(&ran));
    }
    assert_eq!(std::fs::read_to_string(home.join(".cache/other")).unwrap(), "after\n", "the control");
    // Where they are not there yet, they do not come from a program.
    let fresh = open_directory();
    let missing = format!("{0}:{0}:rw", fresh.path().display());
    let script = "mkdir -p .cache/cofferdam/policies .config/cofferdam .local/state/cofferdam/audit; \
                  echo x >.cache/cofferdam/policies/x; echo x >.config/cofferdam/config.toml; mkdir -p .cache/other && echo x >.cache/other/x";
    run(fresh.path(), &["-v", &missing, "--", "sh", "-c", script]);
    for file in [".cache/cofferdam/policies/x", ".config/cofferdam/config.toml", ".local/state/cofferdam/audit"] {
        assert!(!fresh.path().join(file).exists(), "{file}");
    }
    assert!(fresh.path().join(".cache/other/x").exists(), "the control");
    // What containers start with, wherever that is kept.
    let state = home.join("state");
    std::fs::create_dir_all(state.join("init")).unwrap();
    std::fs::set_permissions(state.join("init"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut around = at_home(home);
    let script = "echo x >state/init/evil; echo x >beside";
    let output =
        around.env("COFFERDAM_STATE", &state).args(["run", "-v", &volume, "--", "sh", "-c", script]).output().unwrap();
    assert!(!state.join("init/evil").exists() && home.join("beside").exists(), "{}", said(&output));
    let inside = format!("{}:/x:rw", state.display());
    let ran = at_home(home).env("COFFERDAM_STATE", &state).args(["run", "-v", &inside, "--", "true"]).output().unwrap();
    assert!(ran.status.code() == Some(125) && said(&ran).contains("no sandbox writes it"), "{}", said(&ran));
    // A volume that lies in one of them.
    let inside = format!("{}:/x:rw", home.join(".cache/cofferdam/policies").display());
    let ran = run(home, &["-v", &inside, "--", "true"]);
    assert!(ran.status.code() == Some(125) && said(&ran).contains("no sandbox writes it"), "{}", said(&ran));
}

/// Each directory in which the files lie as the only volume, and what Nix built among them.
#[test]
fn own_files_hold_in_volumes_of_their_parent_directories() {
    let root = open_directory();
    let home = root.path();
    for (volume, files) in [
        (".cache", &["cofferdam/policies/entry", "cofferdam/flakes/entry"][..]),
        (".config", &["cofferdam/config.toml"]),
        (".omni", &["sandbox/profiles/evil/policy.json"]),
        (".local/share", &["cofferdam/skills/s"]),
        (".local/state", &["cofferdam/policies.key", "cofferdam/audit/trail-000001.jsonl"]),
    ] {
        let at = home.join(volume);
        for file in files {
            std::fs::create_dir_all(at.join(file).parent().unwrap()).unwrap();
            std::fs::write(at.join(file), "before").unwrap();
        }
        let script = format!(
            "for f in {}; do rm -f $f; mkdir -p $(dirname $f); echo after >$f; done; mv cofferdam c; mv sandbox s; \
             echo went on >beside",
            files.join(" ")
        );
        let ran = run(home, &["-v", &format!("{}:/v:rw", at.display()), "-w", "/v", "--", "sh", "-c", &script]);
        for file in files {
            assert_eq!(std::fs::read_to_string(at.join(file)).unwrap(), "before", "{volume}/{file}: {}", said(&ran));
        }
        assert_eq!(
            std::fs::read_to_string(at.join("beside")).unwrap_or_default(),
            "went on\n",
            "the control: {}",
            said(&ran)
        );
    }
}

#[test]
fn changes_are_not_put_where_cofferdam_obeys_or_records() {
    let root = open_directory();
    let home = root.path();
    let volume = format!("{0}:{0}:cow", home.join("work").display());
    std::fs::create_dir(home.join("work")).unwrap();
    std::os::unix::fs::symlink(".config", home.join("link")).unwrap();
    std::fs::create_dir(home.join(".config")).unwrap();
    let script = "echo x >work/new";
    for directory in [
        ".config/cofferdam",
        "link/cofferdam/profiles",
        ".cache/cofferdam/kept",
        ".local/share/cofferdam/skills/kept",
        ".local/state/cofferdam/audit",
        "audit/kept",
        ".local",
    ] {
        let options =
            ["--audit-trail", "./audit", "--keep-changes", directory, "-v", &volume, "--", "sh", "-c", script];
        let ran = run(home, &options);
        assert!(ran.status.code() == Some(125) && said(&ran).contains("cannot keep changes in"), "{}", said(&ran));
        assert!(!home.join(directory).exists(), "{directory}");
    }
    let ran = run(home, &["--keep-changes", ".config/other", "-v", &volume, "--", "sh", "-c", script]);
    assert_eq!(ran.status.code(), Some(0), "the control: {}", said(&ran));
    assert!(home.join(".config/other/new").exists(), "the control");
}

#[test]
fn a_backend_that_cannot_keep_the_trail_away_starts_nothing() {
    if !needs("landlock") {
        return;
    }
    let root = open_directory();
    let home = root.path();
    let best = "--best-effort=filesystem.root,filesystem.mounts,filesystem.deny,filesystem.protected,filesystem.metadata,\
                process.isolation,process.hostname,process.tree_kill,limits.tmpfs_mb,limits.memory_mb,limits.processes,\
                limits.cpu_seconds,limits.cpu_millis";
    let ran = run(home, &["--audit-trail", "./audit", "--backend", "landlock", best, "--", "sh", "-c", "echo ran"]);
    assert!(ran.status.code() == Some(125) && said(&ran).contains("audit trail of this run"), "{}", said(&ran));
    let control = run(home, &["--backend", "landlock", best, "--", "sh", "-c", "echo ran"]);
    assert!(said(&control).contains("ran"), "the control: {}", said(&control));
}
