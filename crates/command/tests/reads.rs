//! Limited reading, on real processes, on every version of Landlock up to this kernel's, with controls.

#![cfg(target_os = "linux")]

mod probe;

use std::path::{Path, PathBuf};

use cofferdam_command::{ConfinementRule, RuleStrength, SandboxMode};
use probe::{Scratch, confined, furnish, restricted, run, versions};

#[tokio::test]
async fn a_denied_path_is_neither_read_nor_listed_nor_executed() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (home, data) = (scratch.directory("home"), scratch.directory("home/data"));
        let (secret, beside) = (scratch.directory("home/secret"), scratch.directory("home/beside"));
        for dir in [&secret, &beside] {
            std::fs::write(dir.join("file"), "text").unwrap();
            std::fs::copy("/bin/true", dir.join("program")).unwrap();
        }
        let at = |what: &str, dir: &Path| match what {
            "list" => format!("list {}", dir.display()),
            "execute" => format!("execute {}/program", dir.display()),
            _ => format!("read {}/file", dir.display()),
        };
        for what in ["read", "list", "execute"] {
            let (command, enforcement) = confined(abi, &data).deny_read(&secret).command().unwrap();
            assert_eq!(enforcement.of(ConfinementRule::Reads), Some(RuleStrength::Full));
            assert_eq!(run(command, &at(what, &secret)).await, "EACCES", "{abi}: {what}");
            let (command, _) = confined(abi, &data).deny_read(&secret).command().unwrap();
            assert_eq!(run(command, &at(what, &beside)).await, "done", "{abi}: {what}: beside it");
            assert_eq!(run(restricted(abi, &data), &at(what, &secret)).await, "done", "{abi}: {what}: not denied");
        }
        // A narrower rule below a broad one takes nothing away: naming it as writable does not make it readable, either.
        let contradiction = confined(abi, &data).write(secret.join("file")).deny_read(&secret).command();
        assert!(contradiction.unwrap_err().to_string().contains("which is granted"));
        drop(home);
    }
}

#[tokio::test]
async fn reads_are_limited_on_request_in_mode_sandbox() {
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        furnish(&outside);
        furnish(&data);
        let own = PathBuf::from(probe::own());
        let reads = |mode| confined(abi, &data).mode(mode).enforce_reads(true).read(own.parent().unwrap());
        let read = |dir: &Path| format!("read {}/victim", dir.display());
        let (command, enforcement) = reads(SandboxMode::Sandbox).command().unwrap();
        assert_eq!(enforcement.of(ConfinementRule::Reads), Some(RuleStrength::Full));
        assert_eq!(run(command, &read(&outside)).await, "EACCES", "{abi}");
        for words in [read(&data), "read /etc/passwd".into(), "list /usr/bin".into(), "execute /bin/true".into()] {
            let (command, _) = reads(SandboxMode::Sandbox).command().unwrap();
            assert_eq!(run(command, &words).await, "done", "{abi}: {words}");
        }
        let (command, _) = reads(SandboxMode::Sandbox).read(&outside).command().unwrap();
        assert_eq!(run(command, &read(&outside)).await, "done", "{abi}: granted");
        // The mode rx means reading anywhere.
        let (command, enforcement) = reads(SandboxMode::Rx).command().unwrap();
        assert_eq!(enforcement.of(ConfinementRule::Reads), None);
        assert_eq!(run(command, &read(&outside)).await, "done", "{abi}: rx");
    }
}
