//! Real programs do real work while confined: what an agent's command runs all day. Each also attempts something
//! outside, which is refused.

#![cfg(target_os = "linux")]

mod probe;

use std::path::Path;

use cofferdam_command::{Confined, SandboxMode, sandboxed_command};
use probe::{Scratch, skip, versions, which};
use tokio::process::Command;

/// Runs a shell script; what it printed, and whether it went well.
async fn script(mut command: Command, dir: &Path, text: &str) -> (bool, String) {
    command.args(["-euc", text]).current_dir(dir).stdin(std::process::Stdio::null());
    command.env("HOME", dir).env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_DIR");
    let output = command.output().await.unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

async fn works(program: &str, text: &str) {
    if which(program).is_none() {
        return skip(&format!("{program} is not on this machine"));
    }
    // The oldest kernel and this one: what lies between is held by the means of both.
    let all = versions();
    for abi in [all[0], all[all.len() - 1]] {
        let scratch = Scratch::new();
        let data = scratch.directory("data");
        let (command, _) = Confined::new("sh").data_dir(&data).landlock_at_most(abi).command().unwrap();
        let (well, told) = script(command, &data, text).await;
        assert!(well, "{abi}: {program}: {told}");
    }
}

#[tokio::test]
async fn git_makes_a_repository_commits_and_clones_it() {
    works(
        "git",
        "git init -q one && cd one && git config user.name x && git config user.email x@example.org && echo 1 > file && \
         git add file && git commit -qm first && git branch other && git gc -q && cd .. && git clone -q one two && \
         git -C two log --oneline | grep -q first && git -C two remote add more ../one && git -C two mv file moved && \
         git -C two -c user.name=x -c user.email=x@example.org commit -qm moved",
    )
    .await;
}

#[tokio::test]
async fn git_and_python_work_with_limited_reads() {
    for (program, text) in [
        (
            "git",
            "git init -q . && git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m first && git log -1",
        ),
        (
            "/usr/bin/python3",
            "/usr/bin/python3 -c 'import json, ssl, sqlite3, subprocess; subprocess.check_call([\"true\"])'",
        ),
    ] {
        if which(program).is_none() {
            skip(&format!("{program} is not on this machine"));
            continue;
        }
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        std::fs::write(outside.join("secret"), "secret").unwrap();
        let held = || Confined::new("sh").data_dir(&data).enforce_reads(true).command().unwrap().0;
        let (well, told) = script(held(), &data, text).await;
        assert!(well, "{program}: {told}");
        let (well, told) = script(held(), &data, &format!("cat {}/secret", outside.display())).await;
        assert!(!well && told.contains("denied"), "{told}");
    }
}

#[tokio::test]
async fn git_changes_nothing_outside() {
    if which("git").is_none() {
        return skip("git is not on this machine");
    }
    let scratch = Scratch::new();
    let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
    let make = "git init -q . && git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m first";
    let (well, told) = script(Command::new("sh"), &outside, make).await;
    assert!(well, "{told}");
    let work = format!(
        "git -C {} -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m second",
        outside.display()
    );
    let (well, told) = script(sandboxed_command("sh", SandboxMode::Sandbox, &data), &data, &work).await;
    assert!(!well && told.contains("denied"), "{told}");
    let (well, told) = script(Command::new("sh"), &outside, &work).await;
    assert!(well, "{told}");
}

#[tokio::test]
async fn npm_installs_a_package_with_a_program() {
    works(
        "npm",
        "mkdir tool app && cd tool && printf '%s' '{\"name\":\"tool\",\"version\":\"1.0.0\",\"bin\":{\"tool\":\"tool.js\"}}' > package.json && \
         printf '#!/usr/bin/env node\\nconsole.log(\"tool runs\")\\n' > tool.js && npm pack --silent --cache ../cache && cd ../app && \
         printf '{\"name\":\"app\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"tool\"}}' > package.json && \
         npm install --silent --offline --no-audit --no-fund --cache ../cache ../tool/tool-1.0.0.tgz && npm test --cache ../cache | grep -q 'tool runs'",
    )
    .await;
}

#[tokio::test]
async fn node_runs_children_workers_and_servers() {
    works(
        "node",
        "node -e \"const c = require('child_process'), fs = require('fs'), net = require('net');\
         fs.writeFileSync('f', 'x'); fs.chmodSync('f', 0o700); fs.utimesSync('f', 1, 1); fs.renameSync('f', 'g');\
         if (c.execSync('echo hi').toString() !== 'hi\\\\n') process.exit(3);\
         const k = c.spawn('sleep', ['60']); k.kill();\
         k.on('exit', (code, signal) => { if (signal !== 'SIGTERM') process.exit(4);\
         const w = new (require('worker_threads').Worker)('1', {eval: true});\
         w.on('exit', () => { const s = net.createServer(() => {}).listen(0, '127.0.0.1', () => { s.close(); process.exit(0); }); }); });\"",
    )
    .await;
}

#[tokio::test]
async fn python_copies_trees_makes_archives_and_starts_processes() {
    works(
        "python3",
        "mkdir tree && echo x > tree/file && chmod 640 tree/file && python3 -c \"\
import os, shutil, subprocess, tarfile, tempfile, multiprocessing\n\
shutil.copytree('tree', 'copy')\n\
assert os.stat('copy/file').st_mode & 0o777 == 0o640 and os.stat('copy/file').st_mtime == os.stat('tree/file').st_mtime\n\
t = tarfile.open('t.tar', 'w'); t.add('tree'); t.close(); tarfile.open('t.tar').extractall('out')\n\
tempfile.NamedTemporaryFile().write(b'x')\n\
p = subprocess.Popen(['sleep', '60']); p.terminate(); assert p.wait() == -15\n\
assert multiprocessing.get_context('fork').Pool(2).map(abs, [-1, -2]) == [1, 2]\n\
\"",
    )
    .await;
}

#[tokio::test]
async fn the_ordinary_commands_of_a_shell() {
    works(
        "tar",
        "umask 022; echo x > a; cp -p a b; touch -d @1 a; chmod +x a; ln a c; ln -s a d; mkdir -p x/y; mv b x/; tar cf t.tar a x; \
         mkdir o; tar xpf t.tar -C o; test -x o/a; sleep 60 & kill $!; wait $! || true; ulimit -c 0; echo > /dev/null; \
         truncate -s 0 a; find . -type f | sort | head -1 > /tmp/cofferdam-shell-$$; rm /tmp/cofferdam-shell-$$; rm -r x o",
    )
    .await;
}

#[tokio::test]
async fn processes_with_other_ids_change_nothing_by_the_supervisor() {
    let scratch = Scratch::new();
    let data = scratch.directory("data");
    let victim = data.join("victim");
    std::fs::write(&victim, "").unwrap();
    let command = || sandboxed_command("sh", SandboxMode::Sandbox, &data);
    let (well, told) = script(command(), &data, "chmod 700 victim").await;
    assert!(well, "{told}");
    if rustix::process::geteuid().is_root() {
        // As another user, to whom it belongs: the caller could, and so must not do it for them.
        use std::os::unix::fs::{PermissionsExt as _, chown};
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(scratch.path(), open).unwrap();
        for path in [&data, &victim] {
            chown(path, Some(65534), Some(65534)).unwrap();
        }
        let other = |mut command: Command| {
            command.uid(65534).gid(65534);
            command
        };
        let (well, told) = script(other(command()), &data, "echo x > new && chmod 711 victim").await;
        assert!(!well && told.contains("not permitted") && data.join("new").exists(), "{told}");
        let (well, told) = script(other(Command::new("sh")), &data, "chmod 711 victim").await;
        assert!(well, "{told}");
        return;
    }
    // In a user namespace of its own, where it has capabilities that mean nothing outside.
    let (well, told) = script(Command::new("sh"), &data, "unshare -U chmod 711 victim").await;
    if !well {
        return skip(&format!("no user namespaces: {told}"));
    }
    let (well, told) = script(command(), &data, "unshare -U true && unshare -U chmod 755 victim").await;
    assert!(!well && told.contains("not permitted"), "{told}");
}

#[tokio::test]
async fn library_only_system_calls_are_restricted() {
    if which("python3").is_none() || !cfg!(target_arch = "x86_64") {
        return skip("needs Python on x86_64");
    }
    // tgkill and tkill by their numbers, and truncate(2) by a path.
    let text = |pid: u32, path: &Path| {
        format!(
            "python3 -c '\nimport ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n\
             for args in ((234, {pid}, {pid}, 15), (200, {pid}, 15)):\n    \
             print(\"signal\", c.syscall(*args), ctypes.get_errno())\n\
             try:\n    os.truncate(\"{}\", 0); print(\"truncated\")\n\
             except OSError as error:\n    print(\"kept\", error.errno)\n'",
            path.display()
        )
    };
    for abi in versions() {
        let scratch = Scratch::new();
        let (outside, data) = (scratch.directory("outside"), scratch.directory("data"));
        for dir in [&outside, &data] {
            std::fs::write(dir.join("victim"), "as it was").unwrap();
        }
        let mut other = Command::new("sleep").arg("60").kill_on_drop(true).spawn().unwrap();
        let pid = other.id().unwrap();
        let restricted = || Confined::new("sh").data_dir(&data).landlock_at_most(abi).command().unwrap().0;
        let (_, told) = script(restricted(), &data, &text(pid, &outside.join("victim"))).await;
        assert_eq!(told, "signal -1 1\nsignal -1 1\nkept 13\n", "{abi}");
        assert!(other.try_wait().unwrap().is_none(), "{abi}: it lives");
        let (_, told) = script(restricted(), &data, &text(pid, &data.join("victim"))).await;
        assert_eq!(told.contains("truncated"), abi >= 3, "{abi}: {told}");
        let (_, told) = script(Command::new("sh"), &data, &text(pid, &outside.join("victim"))).await;
        assert!(told.starts_with("signal 0 0\n") && told.ends_with("truncated\n"), "{abi}: {told}");
        assert!(!other.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn changing_entries_beside_a_denied_path_are_harmless() {
    let scratch = Scratch::new();
    let (data, secret) = (scratch.directory("data"), scratch.directory("secret"));
    std::fs::write(secret.join("file"), "text").unwrap();
    std::fs::write(scratch.directory("beside").join("file"), "text").unwrap();
    let busy = scratch.directory("busy");
    let root = busy.parent().unwrap().to_owned();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for number in 0..20 {
                    std::fs::create_dir(root.join(format!("made-{number}"))).unwrap();
                    std::fs::write(root.join(format!("written-{number}")), "").unwrap();
                }
                for number in 0..20 {
                    std::fs::remove_dir(root.join(format!("made-{number}"))).unwrap();
                    std::fs::rename(root.join(format!("written-{number}")), busy.join("moved")).unwrap();
                }
            }
        });
        let made: Vec<_> =
            (0..300).map(|_| Confined::new("sh").data_dir(&data).deny_read(&secret).command().map(drop)).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        for result in made {
            result.unwrap();
        }
    });
    let (command, _) = Confined::new("sh").data_dir(&data).deny_read(&secret).command().unwrap();
    assert!(script(command, &data, "cat ../beside/file && ! cat ../secret/file").await.0);
}
