//! Runs by other people's programs: bubblewrap where it is installed, nsjail where `COFFERDAM_NSJAIL` names one, and a
//! stand-in for macOS's sandbox-exec. Each denial has its allowed twin.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_confine::host;
use cofferdam_engine::backends::{
    BackendPlan, ExportTarget, ExternalPlan, InstalledTool, PlanRequest, Tool, Tools, export,
};
use cofferdam_engine::{Ending, Io, Outcome, Strength};
use cofferdam_policy::{Access, AuditLevel, BackendName, Field, Mount, NetworkMode, Policy, Root, Stdin};

/// The programs that are here; a missing one is said, and with `COFFERDAM_MUST_WORK=1` bubblewrap may not be missing.
fn tools() -> Vec<InstalledTool> {
    let tools = Tools::from_environment();
    let mut found = Vec::new();
    for tool in [Tool::Bubblewrap, Tool::Nsjail] {
        match InstalledTool::find(tool, &tools) {
            Ok(installed) => found.push(installed),
            Err(failure) => {
                eprintln!("skipped {}: {}", tool.name(), failure.message);
                let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|v| v == "1");
                assert!(!(must && tool == Tool::Bubblewrap), "{}", failure.message);
            }
        }
    }
    found
}

/// A policy that may be run with what this host gives of the limits.
fn policy(code: &str) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = ["sh", "-c", code].map(str::to_owned).to_vec();
    policy.limits.wall_ms = 10_000;
    policy
}

fn ready(tool: &InstalledTool, policy: &Policy) -> ExternalPlan {
    let mut policy = policy.clone();
    if tool.tool == Tool::Nsjail {
        policy.allow_partial(Field::TreeKill); // without the cgroup that the engine would give it
    }
    let ready = ExternalPlan::plan(&PlanRequest::of(&policy), tool.clone(), host::identity())
        .unwrap_or_else(|e| panic!("{e:?}"));
    ready.sufficient().unwrap_or_else(|e| panic!("{e:?}"));
    ready
}

fn run(tool: &InstalledTool, policy: &Policy) -> Outcome {
    ready(tool, policy).run(Io::default())
}

/// Runs a script by every tool and hands over what came of it.
fn each(policy: &Policy, check: impl Fn(&Outcome, Tool)) {
    for tool in tools() {
        check(&run(&tool, policy), tool.tool);
    }
}

#[test]
fn output_exit_code_and_figures_come_back() {
    // Memory is this process's own in what wait(2) tells: only what was sampled is the sandbox's.
    let held = vec![1u8; 300 << 20];
    each(&policy("echo out; echo err >&2; sleep 0.5; exit 5"), |o, tool| {
        assert_eq!((o.outcome, o.exit_code, o.success), (Ending::Exited, Some(5), false), "{o:?}");
        assert_eq!((o.stdout.as_str(), o.stderr.as_str()), ("out\n", "err\n"), "{tool:?}");
        assert!(o.memory_used_bytes.is_some_and(|n| n > 0 && n < 100 << 20) && o.cpu_time_seconds.is_some(), "{o:?}");
        assert!(!o.violations_complete, "nobody listens, so the list is never called complete");
        assert_eq!(o.backend, tool.name());
    });
    assert_eq!(held.iter().map(|&b| u64::from(b)).sum::<u64>(), 300 << 20);
}

#[test]
fn input_reaches_the_program_and_nothing_else_does() {
    let mut policy = policy("cat; ls /proc/self/fd | tr '\\n' ' '; env | sort");
    policy.command.stdin = Stdin::Text("hello\n".into());
    policy.command.variables = [("PATH", "/usr/bin:/bin"), ("GIVEN", "yes")].map(|(k, v)| (k.into(), v.into())).into();
    each(&policy, |o, tool| {
        assert!(o.stdout.starts_with("hello\n0 1 2 3 "), "{tool:?}: {o:?}");
        let names: Vec<&str> = o.stdout.lines().skip(1).filter_map(|l| l.split_once('=')).map(|(k, _)| k).collect();
        assert_eq!(names.iter().filter(|n| !["PWD", "SHLVL", "OLDPWD", "_"].contains(n)).count(), 2, "{}", o.stdout);
    });
}

#[test]
fn the_root_is_the_sandboxs_own_and_scratch_can_be_written() {
    let script = "echo x > /tmp/x && cat /tmp/x; echo y > \"$HOME/y\" && cat \"$HOME/y\"; id -u; hostname; \
                  touch /usr/x /x /etc/x /dev/x /sys/x 2>/dev/null || echo refused; test -e /root || echo hidden";
    let mut policy = policy(script);
    policy.process.hostname = "box".into();
    each(&policy, |o, tool| {
        assert_eq!(o.stdout, "x\ny\n1000\nbox\nrefused\nhidden\n", "{tool:?}: {o:?}");
    });
}

#[test]
fn no_network_means_none_and_loopback_means_its_own() {
    let script = "import socket\n\
                  def attempt(f):\n  \
                  try: f(); print('can')\n  \
                  except OSError as e: print('cannot')\n\
                  def own():\n  \
                  s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n  \
                  c = socket.create_connection(s.getsockname())\n\
                  attempt(own)\n\
                  attempt(lambda: socket.create_connection(('192.0.2.1', 80), 1))\n";
    let mut none = policy("");
    none.command.argv = vec!["/usr/bin/python3".into(), "-c".into(), script.into()];
    if !Path::new("/usr/bin/python3").exists() {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "no /usr/bin/python3");
        eprintln!("skipped: no /usr/bin/python3");
        return;
    }
    let mut loopback = none.clone();
    loopback.network.mode = NetworkMode::Loopback;
    each(&none, |o, tool| assert_eq!(o.stdout, "cannot\ncannot\n", "{tool:?}: {o:?}"));
    each(&loopback, |o, tool| assert_eq!(o.stdout, "can\ncannot\n", "{tool:?}: {o:?}"));
}

/// A directory that the sandbox's user can write, whoever runs the tests.
fn work() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    std::os::unix::fs::PermissionsExt::set_mode(&mut std::fs::metadata(&path).unwrap().permissions(), 0o755);
    let open = |p: &Path| std::fs::set_permissions(p, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    open(&path);
    std::fs::create_dir_all(path.join(".git/hooks")).unwrap();
    std::fs::write(path.join(".git/config"), "[core]\n").unwrap();
    std::fs::write(path.join("secret"), "secret\n").unwrap();
    for inner in [".git", ".git/hooks", ".git/config", "secret"] {
        open(&path.join(inner));
    }
    (dir, path)
}

#[test]
fn a_writable_mount_is_written_and_what_exists_of_protected_and_denied_is_held() {
    let (_dir, path) = work();
    let mut policy = policy(
        "cd /work; echo made > made; cat secret 2>/dev/null || echo denied; echo x > .git/config 2>/dev/null || echo kept; \
         touch .git/hooks/pre-commit 2>/dev/null || echo kept; mv .git gone 2>/dev/null || echo pinned; touch .git/other && echo allowed",
    );
    policy.filesystem.mounts = vec![Mount::Bind {
        source: path.to_str().unwrap().into(),
        target: "/work".into(),
        access: Access::ReadWrite,
        exec: true,
        optional: false,
    }];
    policy.filesystem.deny = vec!["/work/secret".into()];
    for tool in tools() {
        let refused = ExternalPlan::plan(&PlanRequest::of(&policy), tool.clone(), host::identity())
            .unwrap()
            .sufficient()
            .unwrap_err();
        assert!(refused.message.contains("filesystem."), "names that do not exist cannot be held: {refused:?}");
        let mut policy = policy.clone();
        policy.filesystem.protected = vec![".git/config".into(), ".git/hooks".into()];
        // As root, what belongs to others cannot be mapped: it is said, and here all may write.
        policy.allow_partial(Field::Mounts);
        let o = run(&tool, &policy);
        assert_eq!(o.stdout, "denied\nkept\nkept\npinned\nallowed\n", "{:?}: {o:?}", tool.tool);
        assert_eq!(std::fs::read_to_string(path.join("made")).unwrap(), "made\n");
        std::fs::remove_file(path.join("made")).unwrap();
        std::fs::remove_file(path.join(".git/other")).unwrap();
    }
}

#[test]
fn a_denied_file_of_the_sandboxs_own_is_hidden_as_one_of_the_hosts() {
    for root in [Root::Minimal, Root::Host] {
        let mut policy = policy("cat /etc/passwd > /dev/null && echo passwd; cat /etc/group > /dev/null && echo group");
        policy.filesystem.root = root;
        policy.allow_partial(Field::Root);
        each(&policy, |o, tool| assert_eq!(o.stdout, "passwd\ngroup\n", "the twin, {tool:?}: {o:?}"));
        policy.filesystem.deny = vec!["/etc/passwd".into()];
        each(&policy, |o, tool| assert_eq!(o.stdout, "group\n", "{tool:?}: {o:?}"));
    }
}

#[test]
fn what_the_programs_user_cannot_come_to_needs_no_mask_and_what_it_can_has_one() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (closed, open) = (dir.path().join("closed"), dir.path().join("open"));
    for (at, mode) in [(&closed, 0o700), (&open, 0o755)] {
        std::fs::create_dir(at).unwrap();
        std::fs::write(at.join("secret"), "SECRET").unwrap();
        std::fs::write(at.join("plain"), "plain\n").unwrap();
        std::fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let name = |at: &std::path::Path| at.to_str().unwrap().to_owned();
    let mut policy = policy("cd /var/tmp/tree; cat closed/secret open/secret open/plain 2>/dev/null");
    policy.filesystem.root = Root::Host;
    policy.filesystem.mounts = vec![Mount::Bind {
        source: name(dir.path()),
        target: "/var/tmp/tree".into(),
        access: Access::ReadOnly,
        exec: false,
        optional: false,
    }];
    policy.filesystem.deny = vec![name(&closed.join("secret")), name(&open.join("secret"))];
    // A host that has mounts below its directories: nsjail leaves these their own flags. What is denied is masked there too.
    policy.enforcement.best_effort.extend([Field::Root, Field::Deny, Field::Mounts, Field::Metadata]);
    each(&policy, |o, tool| assert_eq!(o.stdout, "plain\n", "{tool:?}: {o:?}"));
}

#[test]
fn the_clock_ends_the_whole_tree() {
    let mut policy = policy("(trap '' TERM; sleep 61.25) & (setsid sleep 61.25) & sleep 61.25");
    policy.limits.wall_ms = 500;
    each(&policy, |o, tool| {
        assert_eq!((o.outcome, o.limit), (Ending::TimedOut, Some(Field::WallTime)), "{tool:?}: {o:?}");
        assert!((450.0..3000.0).contains(&o.execution_time_ms), "{}", o.execution_time_ms);
        assert_eq!(running("61.25"), 0, "{tool:?} left something behind");
    });
}

#[test]
fn a_limit_that_ended_the_run_is_recorded_unless_nothing_is() {
    let mut policy = policy("sleep 20");
    policy.limits.wall_ms = 300;
    policy.audit.level = AuditLevel::Error;
    each(&policy, |o, tool| {
        let operations: Vec<&str> = o.violations.iter().map(|v| v.operation.as_str()).collect();
        assert_eq!(operations, ["limits.wall_ms"], "{tool:?}: {o:?}");
    });
    policy.audit.enabled = false;
    each(&policy, |o, tool| {
        assert_eq!((o.limit, o.violations.len()), (Some(Field::WallTime), 0), "{tool:?}: {o:?}");
    });
}

#[test]
fn what_is_left_behind_dies_with_the_program() {
    each(&policy("(setsid sleep 62.25 >/dev/null 2>&1) & echo done"), |o, tool| {
        assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Exited, "done\n"), "{tool:?}: {o:?}");
        assert_eq!(running("62.25"), 0, "{tool:?} left something behind");
    });
}

/// How many processes were started with this argument.
fn running(argument: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
    lines.filter(|l| l.split(|&b| b == 0).any(|a| a == argument.as_bytes()) && l.starts_with(b"sleep")).count()
}

#[test]
fn cancelling_ends_it_at_once() {
    for tool in tools() {
        let io = Io::default();
        let cancel = io.cancel.clone();
        let begun = Instant::now();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            cancel.cancel();
        });
        let o = ready(&tool, &policy("sleep 63.25")).run(io);
        stopper.join().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        assert_eq!((o.outcome, running("63.25")), (Ending::Signalled, 0), "{o:?}");
    }
}

#[test]
fn output_is_capped_and_still_read() {
    let mut policy = policy("head -c 300000 /dev/zero; echo end >&2");
    policy.limits.output_bytes = 1000;
    each(&policy, |o, tool| {
        assert_eq!((o.stdout.len(), o.truncated.stdout, o.stderr.as_str()), (1000, true, "end\n"), "{tool:?}");
        assert!(o.success);
    });
}

#[test]
fn the_filter_refuses_or_kills() {
    let mut policy = policy("unshare -U true 2>/dev/null || echo refused");
    each(&policy, |o, tool| assert_eq!(o.stdout, "refused\n", "{tool:?}: {o:?}"));
    policy.on_violation = cofferdam_policy::OnViolation::Terminate;
    policy.command.argv = ["unshare", "-U", "true"].map(str::to_owned).to_vec();
    each(&policy, |o, tool| {
        assert!(!o.success && o.violations.iter().any(|v| v.operation == "SIGSYS"), "{tool:?}: {o:?}");
    });
    policy.command.argv = vec!["true".into()];
    each(&policy, |o, tool| assert!(o.success && o.violations.is_empty(), "{tool:?}: {o:?}"));
}

#[test]
fn a_missing_program_is_reported_before_anything_starts() {
    let mut policy = policy("");
    policy.command.argv = vec!["no-such-program".into()];
    for tool in tools() {
        let failure = ExternalPlan::plan(&PlanRequest::of(&policy), tool, host::identity()).unwrap_err();
        assert_eq!((failure.code, failure.step.as_str()), (127, "exec"), "{failure:?}");
    }
}

#[test]
fn what_the_tool_cannot_hold_is_refused_and_named() {
    for tool in tools() {
        for (field, change) in [
            (Field::Network, (|p: &mut Policy| p.network.mode = NetworkMode::Allowlist) as fn(&mut Policy)),
            (Field::Spawn, |p| p.process.spawn = false),
            (Field::Root, |p| p.filesystem.root = Root::Host),
        ] {
            let mut policy = policy("true");
            change(&mut policy);
            let ready = ExternalPlan::plan(&PlanRequest::of(&policy), tool.clone(), host::identity()).unwrap();
            let failure = ready.sufficient().unwrap_err();
            assert!(failure.message.contains(field.name()), "{field}: {failure:?}");
            assert_ne!(ready.planned.enforcement[&field].strength, Strength::Full);
            // The host's own tree brings more that nsjail does not hold, such as what is mounted in it.
            let short = ready.planned.enforcement.iter().filter(|(_, a)| a.strength != Strength::Full);
            short.for_each(|(field, _)| policy.allow_partial(*field));
            assert!(run(&tool, &policy).success, "{field} as a best effort");
        }
    }
    assert_eq!(Policy::base().backend, BackendName::Auto);
}

/// nsjail as somebody else would run it: on an exported file, as an ordinary user. Its exit code and streams.
fn nsjail_alone(tool: &InstalledTool, text: &str) -> (Option<i32>, String, String) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("nsjail");
    std::fs::write(&file, text).unwrap();
    let mut command = std::process::Command::new(&tool.path);
    command.arg("-C").arg(&file).current_dir("/");
    if host::identity().uid == 0 {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_real_nsjail_runs_every_exported_configuration() {
    let Some(tool) = tools().into_iter().find(|tool| tool.tool == Tool::Nsjail) else { return };
    let facts = cofferdam_engine::facts::HostFacts::default();
    let mut plain = policy("echo x > /tmp/x; cat /tmp/x; id -u; touch /usr/x 2>/dev/null || echo refused; exit 3");
    let mut changes: Vec<fn(&mut Policy)> = vec![
        |_| {},
        |p| p.network.mode = NetworkMode::Loopback,
        |p| p.process.seccomp.level = cofferdam_policy::SeccompLevel::Basic,
        |p| p.process.seccomp.level = cofferdam_policy::SeccompLevel::Disabled,
        |p| p.process.seccomp.level = cofferdam_policy::SeccompLevel::Strict,
        |p| p.filesystem.mounts = vec![Mount::Tmpfs { target: "/scratch".into(), size_mb: 8, exec: true }],
        |p| p.on_violation = cofferdam_policy::OnViolation::Terminate,
        |p| p.limits.memory_mb = 300,
    ];
    changes.push(|p| p.filesystem.deny = vec!["/usr/share/doc".into(), "/etc/passwd".into()]);
    plain.limits.wall_ms = 5000;
    for (i, change) in changes.iter().enumerate() {
        let mut policy = plain.clone();
        change(&mut policy);
        for format in [ExportTarget::NsjailText, ExportTarget::Nsjail] {
            let written = export(&policy, format, &facts).unwrap_or_else(|e| panic!("{i}: {e:?}"));
            let (code, out, err) = nsjail_alone(&tool, &written.text);
            if format == ExportTarget::Nsjail && err.contains("into ProtoBuf") {
                eprintln!("this nsjail reads no JSON: 3.4 or older");
                continue;
            }
            assert_eq!((code, out.as_str()), (Some(3), "x\n1000\nrefused\n"), "{i} {format:?}: {err}");
        }
    }
}

#[test]
fn without_a_level_there_are_still_no_further_user_namespaces() {
    let mut policy = policy("unshare -U true 2>/dev/null || echo refused; unshare -i true 2>/dev/null; echo alive");
    policy.process.seccomp.level = cofferdam_policy::SeccompLevel::Disabled;
    each(&policy, |o, tool| assert_eq!(o.stdout, "refused\nalive\n", "{tool:?}: {o:?}"));
}

/// The tool, started by a script that does this first: what a program in another sandbox could do in that moment. It runs as
/// the sandbox's user.
fn after(tool: &InstalledTool, dir: &Path, first: &str) -> InstalledTool {
    started_by(tool, dir, &format!("{first}\nexec"))
}

/// The same, with the script's last words before the tool's name.
fn started_by(tool: &InstalledTool, dir: &Path, first: &str) -> InstalledTool {
    let path = dir.join(format!("{}-after", tool.tool.name()));
    let real = tool.path.display();
    let text = format!("#!/bin/sh\ncd {} || exit 9\n{first} {real} \"$@\"\n", dir.display());
    let write = "printf %s \"$2\" > \"$1\" && chmod 755 \"$1\"";
    let status = std::process::Command::new("sh").args(["-c", write, "sh"]).arg(&path).arg(text).status();
    assert!(status.unwrap().success());
    InstalledTool { path, ..tool.clone() }
}

fn bind(source: &Path, target: &str, access: Access) -> Mount {
    let (source, target) = (source.to_str().unwrap().into(), target.into());
    Mount::Bind { source, target, access, exec: true, optional: false }
}

#[test]
fn a_source_that_is_exchanged_while_the_tool_starts_is_not_shown_to_the_program() {
    for (name, exchange, refused) in [
        ("nothing", "", false),
        ("beside it", "mv other aside; ln -s .git other", false),
        ("a link for a directory", "mv data aside; ln -s .git/hooks data", true),
        ("a link for the directory above", "mv above aside; mkdir -p .git/in; ln -s .git above", true),
        ("another directory", "mv data aside; mkdir data", true),
        ("another file", "mv file aside; echo other > file", true),
        ("a link for a file", "mv file aside; ln -s secret file", true),
    ] {
        for tool in tools() {
            let (_dir, path) = work();
            let open = |p: &str| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                std::fs::set_permissions(path.join(p), mode).unwrap();
            };
            for directory in ["data", "other", "above", "above/in"] {
                std::fs::create_dir(path.join(directory)).unwrap();
                open(directory);
            }
            std::fs::write(path.join("file"), "file\n").unwrap();
            open("file");
            let mut policy = policy("echo ran; touch /data/made /in/made; cat /file");
            policy.filesystem.mounts = vec![
                bind(&path.join("data"), "/data", Access::ReadWrite),
                bind(&path.join("above/in"), "/in", Access::ReadWrite),
                bind(&path.join("file"), "/file", Access::ReadOnly),
            ];
            policy.allow_partial(Field::Mounts);
            policy.allow_partial(Field::Protected);
            let o = run(&after(&tool, &path, exchange), &policy);
            let what = format!("{name}, {:?}: {o:?}", tool.tool);
            assert!(!path.join(".git/hooks/made").exists(), "{what}");
            assert!(!path.join(".git/in/made").exists(), "{what}");
            if !refused {
                assert_eq!((o.stdout.as_str(), o.success), ("ran\nfile\n", true), "{what}");
                assert!(path.join("data/made").exists() && path.join("above/in/made").exists(), "{what}");
                continue;
            }
            assert_eq!((o.outcome, o.stdout.as_str()), (Ending::SetupFailed, ""), "{what}");
            let failure = o.error.as_ref().unwrap();
            assert!(failure.step.as_str().starts_with("filesystem.mounts["), "{what}");
            assert!(failure.message.contains("was replaced") && failure.hint.is_some(), "{what}");
        }
    }
}

#[test]
fn a_mount_whose_place_leads_elsewhere_meanwhile_is_refused() {
    for (exchange, refused) in [("", false), ("mv inner aside; ln -s .git/hooks inner", true)] {
        for tool in tools() {
            let (_dir, path) = work();
            for directory in ["inner", "data"] {
                std::fs::create_dir(path.join(directory)).unwrap();
            }
            let mut policy = policy("echo ran");
            policy.filesystem.mounts = vec![
                bind(&path, "/volume", Access::ReadWrite),
                bind(&path.join("data"), "/volume/inner", Access::ReadOnly),
            ];
            policy.allow_partial(Field::Mounts);
            policy.allow_partial(Field::Protected);
            let o = run(&after(&tool, &path, exchange), &policy);
            let what = format!("{exchange}, {:?}: {o:?}", tool.tool);
            assert_eq!(
                (o.outcome == Ending::SetupFailed, o.stdout.as_str()),
                (refused, if refused { "" } else { "ran\n" }),
                "{what}"
            );
        }
    }
}

#[test]
fn a_program_that_cannot_be_executed_is_a_failure_and_its_own_exit_code_is_none() {
    for tool in tools() {
        let (_dir, path) = work();
        let write = |name: &str, text: &str| {
            std::fs::write(path.join(name), text).unwrap();
            std::fs::set_permissions(path.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        write("none", "#!/no/such/interpreter\n");
        write("ends", "#!/bin/sh\nexit 127\n");
        let mut policy = policy("");
        policy.filesystem.mounts = vec![bind(&path, "/work", Access::ReadOnly)];
        policy.command.argv = vec!["/work/none".into()];
        let o = run(&tool, &policy);
        assert_eq!((o.outcome, o.exit_code), (Ending::SetupFailed, None), "{:?}: {o:?}", tool.tool);
        assert!(o.error.as_ref().unwrap().message.contains("No such file"), "{:?}: {o:?}", tool.tool);
        policy.command.argv = vec!["/work/ends".into(), "an argument".into()];
        let o = run(&tool, &policy);
        assert_eq!((o.outcome, o.exit_code), (Ending::Exited, Some(127)), "{:?}: {o:?}", tool.tool);
    }
}

#[test]
fn a_script_may_start_the_tool_without_becoming_it() {
    for tool in tools() {
        let (_dir, path) = work();
        let o = run(&started_by(&tool, &path, ""), &policy("echo ran; exit 3"));
        assert_eq!((o.stdout.as_str(), o.exit_code), ("ran\n", Some(3)), "{:?}: {o:?}", tool.tool);
    }
}

#[test]
fn the_program_gets_its_name_its_arguments_and_no_descriptor_of_ours() {
    // Without a pipe, which the shell would hold open for a moment.
    let mut policy = policy("");
    policy.command.argv =
        ["sh", "-c", "echo \"$0|$1|$2\"; tr '\\0' '|' < /proc/$$/cmdline; ls /proc/$$/fd; exit 0", "a b", "", "hold"]
            .map(str::to_owned)
            .to_vec();
    each(&policy, |o, tool| {
        assert!(
            o.stdout.starts_with("a b||hold\nsh|-c|echo ") && o.stdout.ends_with("|a b||hold|0\n1\n2\n"),
            "{tool:?}: {o:?}"
        );
    });
}

#[test]
fn the_engine_runs_them_by_name_with_the_limits_of_a_cgroup() {
    use cofferdam_engine::Engine;
    let engine = Engine::probe();
    let mut policy = policy("head -c 200000000 /dev/zero | tail -c 200000000 | wc -c");
    policy.limits.memory_mb = 48;
    let named = [(Tool::Bubblewrap, BackendName::Bubblewrap), (Tool::Nsjail, BackendName::Nsjail)];
    for tool in tools() {
        policy.backend = named.iter().find(|(t, _)| *t == tool.tool).unwrap().1;
        if host::identity().uid != 0 {
            policy.allow_partial(Field::TreeKill); // there may be no cgroup
        }
        let prepared = engine.prepare(&policy).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(prepared.backend(), tool.tool.name());
        let o = prepared.run(Io::default());
        assert_eq!((o.outcome, o.limit), (Ending::LimitExceeded, Some(Field::Memory)), "{o:?}");
        let small = Policy { command: self::policy("echo small").command, ..policy.clone() };
        assert_eq!(engine.prepare(&small).unwrap().run(Io::default()).stdout, "small\n");
    }
}

#[test]
fn what_is_named_and_not_installed_is_refused_and_only_the_executors_have_the_jail_for_nsjail() {
    use cofferdam_engine::Engine;
    let engine = Engine::probe().with_tools(Tools::default());
    let mut policy = policy("echo $((6 * 7))");
    policy.backend = BackendName::Nsjail;
    let prepared = engine.prepare_or_jail(&policy).unwrap();
    assert!(prepared.backend_reason().contains("nsjail is not installed"), "{}", prepared.backend_reason());
    let o = prepared.run(Io::default());
    assert_eq!((o.backend.as_str(), o.stdout.as_str()), ("jail", "42\n"));
    for (backend, program) in [
        (BackendName::Bubblewrap, "bubblewrap"),
        (BackendName::Nsjail, "nsjail"),
        (BackendName::Seatbelt, "sandbox-exec"),
    ] {
        policy.backend = backend;
        let failure = engine.prepare(&policy).unwrap_err();
        assert!(failure.message.contains(program) && failure.hint.is_some(), "{failure:?}");
    }
    let support = engine.support(&policy);
    assert_eq!(
        support.iter().map(|s| s.backend).collect::<Vec<_>>(),
        [
            "jail",
            "landlock",
            "bubblewrap",
            "nsjail",
            "seatbelt",
            "docker",
            "podman",
            "oci:crun",
            "oci:runc",
            "oci:youki",
            "oci:runsc",
        ]
    );
    assert!(support[2..5].iter().all(|s| s.unavailable.is_some()));
}

#[test]
fn without_a_namespace_around_it_the_tree_is_ended_all_the_same_and_less_is_claimed() {
    for tool in tools() {
        let run = |code: &str, wall_ms| {
            let mut policy = policy(code);
            policy.limits.wall_ms = wall_ms;
            let ready = ExternalPlan::plan(&PlanRequest::of(&policy), tool.clone(), host::identity())
                .unwrap()
                .without_namespace()
                .unwrap();
            assert_eq!(ready.planned.enforcement[&Field::TreeKill].strength, Strength::Partial);
            assert!(ready.sufficient().unwrap_err().message.contains("tree_kill"));
            policy.allow_partial(Field::TreeKill);
            ExternalPlan::plan(&PlanRequest::of(&policy), tool.clone(), host::identity())
                .unwrap()
                .without_namespace()
                .unwrap()
                .run(Io::default())
        };
        let o = run("(setsid sleep 69.25) & sleep 69.25", 400);
        assert_eq!((o.outcome, running("69.25")), (Ending::TimedOut, 0), "{:?}: {o:?}", tool.tool);
        let o = run("(setsid sleep 70.25 >/dev/null 2>&1) & echo done", 10_000);
        assert_eq!((o.stdout.as_str(), o.success), ("done\n", true), "{:?}: {o:?}", tool.tool);
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            running("70.25") == 0
        });
        assert!(gone, "{:?} left something behind", tool.tool);
    }
}
