//! What is executed: the file that a command leads to, its interpreters, its helpers, and nothing else.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use cofferdam_guard::{Guard, GuardError, Refusal, Sandbox as _};

use crate::fixture::{Fixture, allowing, builder, has, ok, run};

#[test]
fn what_is_allowed_works_and_what_is_not_is_refused() {
    let place = Fixture::new();
    let guard = place.guard(allowing(&["cat"]));
    place.write("work/note", "hello\n");
    let result = ok(&guard, "cat", &["note"]);
    assert_eq!((result.stdout.as_str(), result.stderr.as_str(), result.truncated), ("hello\n", "", false));
    let refused = run(&guard, "ls", &[]).unwrap_err();
    assert!(matches!(&refused, Refusal::NotAllowed { command, .. } if command == "ls"), "{refused}");
    assert!(guard.is_allowed("cat") && guard.is_allowed("/bin/cat") && !guard.is_allowed("ls"));
    let missing = run(&guard, "no-such-program", &[]).unwrap_err();
    assert!(matches!(missing, Refusal::NotFound { .. }), "{missing}");
    let failed = run(&guard, "cat", &["no-such-file"]).unwrap();
    assert_eq!(failed.exit_code, 1);
    assert!(failed.stderr.contains("No such file"), "{failed:?}");
}

#[test]
fn nothing_of_a_line_is_ever_a_shell() {
    let place = Fixture::new();
    let guard = place.guard(allowing(&["echo", "cat"]));
    let result = ok(&guard, "echo", &["$(id)", ";", "cat", "/etc/passwd", "|", "*", "`id`"]);
    assert_eq!(result.stdout, "$(id) ; cat /etc/passwd | * `id`\n");
    for command in ["echo; id", "echo x", " echo", "echo\n", "sh -c id", "$(echo)", "../bin/echo", "./echo"] {
        assert!(run(&guard, command, &[]).is_err(), "{command:?}");
        assert!(!guard.is_allowed(command), "{command:?}");
    }
}

#[test]
fn a_command_is_the_file_that_it_leads_to_and_not_its_text() {
    let place = Fixture::new();
    let bin = place.at("outside/bin");
    std::fs::create_dir(&bin).unwrap();
    // A link of another name to an allowed program is that program; an allowed name for another program is not.
    symlink("/usr/bin/cat", format!("{bin}/show")).unwrap();
    symlink("/usr/bin/id", format!("{bin}/cat")).unwrap();
    let guard = place.guard(allowing(&["cat"]));
    place.write("work/note", "hello\n");
    assert_eq!(ok(&guard, &format!("{bin}/show"), &["note"]).stdout, "hello\n");
    let refused = run(&guard, &format!("{bin}/cat"), &[]).unwrap_err();
    assert!(refused.to_string().contains("/id, which it leads to"), "{refused}");
    // Nor does what a command has put on the PATH become the command.
    let planted = place.at("work/cat");
    std::fs::copy("/usr/bin/id", &planted).unwrap();
    let path = format!("{}:/usr/bin:/bin", place.at("work"));
    let guard = Guard::builder(allowing(&["cat"]), place.work()).variables([("PATH".into(), path)]).build().unwrap();
    assert_eq!(ok(&guard, "cat", &["note"]).stdout, "hello\n");
    assert!(run(&guard, &planted, &[]).unwrap_err().to_string().contains("may write"));
    let rule = Guard::builder(allowing(&[&planted]), place.work()).build().unwrap_err();
    assert!(matches!(&rule, GuardError::Rule { reason, .. } if reason.contains("could replace it")), "{rule}");
}

/// Tries to execute a program in every way that Python has, and says which worked.
const EXECUTES: &str = r#"
import os, subprocess, sys, ctypes, shutil
program, argument = sys.argv[1], sys.argv[2]
def tried(name, call):
    try:
        print(name, call())
    except BaseException as e:
        print(name, 'refused', type(e).__name__)
def child(call):
    pid = os.fork()
    if pid == 0:
        try: call()
        except PermissionError: os._exit(99)
        except BaseException: os._exit(98)
        os._exit(97)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {99: 'refused PermissionError', 98: 'failed', 97: 'failed'}.get(code, 'ran %d' % code)
def run(argv):
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 'ran %d' % done.returncode
def by_fd():
    fd = os.open(program, os.O_RDONLY)
    return child(lambda: os.execve(fd, [program, argument], {}))
def copy(where):
    shutil.copy(program, where); os.chmod(where, 0o755)
    return run([where, argument])
def memory():
    fd = os.memfd_create('x', 0)
    os.write(fd, open(program, 'rb').read())
    return child(lambda: os.execve(fd, [program, argument], {}))
def unnamed():
    fd = os.open('/tmp', os.O_TMPFILE | os.O_RDWR, 0o755)
    os.write(fd, open(program, 'rb').read())
    readable = os.open('/proc/self/fd/%d' % fd, os.O_RDONLY); os.close(fd)
    return child(lambda: os.execve(readable, [program, argument], {}))
def script():
    open('script', 'w').write('#!%s\n' % program); os.chmod('script', 0o755)
    return run(['./script', argument])
def link():
    os.symlink(program, 'link'); return run(['./link', argument])
def hard():
    os.link(program, 'hard'); return run(['./hard', argument])
def by_path_fd():
    fd = os.open(program, os.O_PATH)
    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_char_p * 3)(program.encode(), argument.encode(), None)
    empty = (ctypes.c_char_p * 1)(None)
    def call():
        libc.syscall(322 if os.uname().machine == 'x86_64' else 281, fd, b'', words, empty, 0x1000)
        raise OSError(ctypes.get_errno(), 'execveat')
    return child(call)
def mapped():
    import mmap
    data = open(program, 'rb').read()
    area = mmap.mmap(-1, len(data), mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    area.write(data)
    at = ctypes.addressof(ctypes.c_char.from_buffer(area))
    name = [n for n in os.listdir('/proc/self/map_files') if int(n.split('-')[0], 16) == at][0]
    return child(lambda: os.execv('/proc/self/map_files/' + name, [program, argument]))
def deleted():
    shutil.copy(program, 'gone'); os.chmod('gone', 0o755)
    fd = os.open('gone', os.O_RDONLY); os.unlink('gone')
    return child(lambda: os.execve(fd, [program, argument], {}))
tried('subprocess', lambda: run([program, argument]))
def shell():
    return child(lambda: os.execv('/bin/sh', ['sh', '-c', program + ' ' + argument]))
tried('shell', shell)
tried('exec', lambda: child(lambda: os.execv(program, [program, argument])))
tried('fd', by_fd)
tried('proc', lambda: run(['/proc/self/root' + program, argument]))
tried('workspace', lambda: copy('./copied'))
tried('tmp', lambda: copy('/tmp/copied'))
tried('shm', lambda: copy('/dev/shm/copied'))
tried('memfd', memory)
tried('tmpfile', unnamed)
tried('script', script)
tried('symlink', link)
tried('hardlink', hard)
tried('path_fd', by_path_fd)
tried('map_files', mapped)
tried('deleted', deleted)
"#;

fn executes(place: &Fixture, guard: &Guard, program: &str, argument: &str) -> String {
    for name in ["copied", "script", "link", "hard"] {
        std::fs::remove_file(place.work().join(name)).ok();
    }
    place.write("work/executes.py", EXECUTES);
    ok(guard, "/usr/bin/python3", &["executes.py", program, argument]).stdout
}

#[test]
fn the_tree_of_a_command_executes_its_helpers_and_nothing_else() {
    if !has("/usr/bin/python3") || !has("/usr/bin/curl") {
        return;
    }
    let place = Fixture::new();
    let guard = place.guard(allowing(&["/usr/bin/python3"]));
    let tried = executes(&place, &guard, "/usr/bin/curl", "--version");
    assert_eq!(tried.lines().count(), 16, "{tried}");
    for line in tried.lines() {
        // A hard link from elsewhere cannot even be made: that is another file system to the sandbox.
        assert!(line.ends_with("refused PermissionError") || line == "hardlink refused OSError", "{tried}");
    }
    // The same program under the same restrictions, as a helper.
    let mut config = allowing(&["/usr/bin/python3"]);
    config.helpers.insert("python3".into(), vec!["curl".into()]);
    let tried = executes(&place, &place.guard(config), "/usr/bin/curl", "--version");
    for way in ["subprocess", "exec", "fd", "proc", "symlink", "path_fd"] {
        assert!(tried.lines().any(|line| line == format!("{way} ran 0")), "{way}: {tried}");
    }
    for way in ["shell", "workspace", "tmp", "shm", "memfd", "tmpfile", "map_files", "deleted"] {
        assert!(tried.lines().any(|line| line.starts_with(&format!("{way} refused"))), "{way}: {tried}");
    }
    // And the workspace's own programs where that was asked for.
    let mut config = allowing(&["/usr/bin/python3"]);
    config.workspace_programs.push("python3".into());
    let tried = executes(&place, &place.guard(config), "/usr/bin/curl", "--version");
    for (way, expected) in [("workspace", "ran 0"), ("tmp", "refused"), ("memfd", "refused"), ("exec", "refused")] {
        assert!(tried.lines().any(|line| line.starts_with(&format!("{way} {expected}"))), "{way}: {tried}");
    }
}

/// What an allowed command can be asked to start: the command, its arguments, and whether it does so by a shell.
const LAUNCHES: &[(&str, &[&str], bool)] = &[
    ("env", &["id", "root"], false),
    ("env", &["-S", "A=1 id root"], false),
    ("env", &["-i", "A=1", "/usr/bin/id", "root"], false),
    ("xargs", &["-a", "words", "id"], false),
    ("find", &[".", "-maxdepth", "0", "-exec", "id", "root", ";"], false),
    ("find", &["words", "-execdir", "/usr/bin/id", "root", ";"], false),
    ("nice", &["id", "root"], false),
    ("timeout", &["5", "id", "root"], false),
    ("setsid", &["-w", "id", "root"], false),
    ("sed", &["-n", "1e id root", "words"], true),
    ("awk", &["BEGIN { system(\"id root\") }"], true),
    ("tar", &["-cf", "/dev/null", "--checkpoint=1", "--checkpoint-action=exec=id root", "words"], true),
    ("git", &["-c", "alias.x=!id root", "x"], true),
    ("sh", &["-c", "id root"], false),
    ("sh", &["-c", "sh -c 'exec id root'"], true),
    ("sh", &["-c", "alias x='id root'\neval x"], false),
    ("sh", &["-c", "A=id; $A root <<END\nnothing\nEND"], false),
    ("sh", &["-c", "A=1 i''d root"], false),
    ("sh", &["-c", "/proc/self/root/usr/bin/id root"], false),
    ("sh", &["-c", "/usr/bin/../bin/./id root"], false),
];

#[test]
fn what_an_allowed_command_is_asked_to_start_is_not_started() {
    let place = Fixture::new();
    place.write("work/words", "root\n");
    for (command, arguments, by_shell) in LAUNCHES {
        // The one that the guard finds, and no other of that name.
        let program = format!("/usr/bin/{command}");
        if !has(&program) {
            continue;
        }
        let outside = std::process::Command::new(&program).args(*arguments).current_dir(place.work()).output().unwrap();
        let started = |text: &str| text.contains("uid=0(root)");
        assert!(
            started(&String::from_utf8_lossy(&outside.stdout)),
            "{command} {arguments:?} starts nothing: {outside:?}"
        );
        let mut config = allowing(&[command]);
        config.helpers.insert((*command).into(), Vec::new());
        let refused = run(&place.guard(config.clone()), command, arguments).unwrap();
        assert!(!started(&refused.stdout), "{command} {arguments:?}: {refused:?}");
        // The twin: the same command with leave to start it.
        let shell = by_shell.then_some("/bin/sh").into_iter();
        config.helpers.insert((*command).into(), shell.chain(["/usr/bin/id"]).map(str::to_owned).collect());
        let allowed = run(&place.guard(config), command, arguments).unwrap();
        assert!(started(&allowed.stdout), "{command} {arguments:?}: {allowed:?}");
    }
}

#[test]
fn multicall_binaries_are_distinguished_by_name() {
    if !has("/usr/bin/busybox") {
        return;
    }
    let place = Fixture::new();
    let bin = place.at("outside/bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["cat", "sh", "find"] {
        symlink("/usr/bin/busybox", format!("{bin}/{name}")).unwrap();
    }
    place.write("work/note", "hello\n");
    let of = |config| Guard::builder(config, place.work()).variables([("PATH".into(), bin.clone())]).build();
    let guard = of(allowing(&["cat", "find"])).unwrap();
    assert_eq!(ok(&guard, "cat", &["note"]).stdout, "hello\n");
    assert!(!guard.is_allowed("sh") && run(&guard, "sh", &["-c", "echo x"]).is_err());
    let found = run(&guard, "find", &["note", "-exec", &format!("{bin}/sh"), "-c", "echo started", ";"]).unwrap();
    assert!(!found.stdout.contains("started"), "{found:?}");
    let mut config = allowing(&["find"]);
    config.helpers.insert("find".into(), vec!["/usr/bin/id".into()]);
    assert!(matches!(of(config), Err(GuardError::Rule { .. })));
}

#[test]
fn an_interpreter_that_is_many_programs_has_to_be_named() {
    if !has("/usr/bin/busybox") {
        return;
    }
    let place = Fixture::new();
    symlink("/usr/bin/busybox", place.at("outside/sh")).unwrap();
    let script = place.write("outside/script", &format!("#!{}\necho ran\n", place.at("outside/sh")));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = builder(allowing(&[&script]), &place.work()).build().unwrap_err();
    assert!(matches!(&error, GuardError::Rule { reason, .. } if reason.contains("many programs in one")), "{error}");
    let mut config = allowing(&["find", &script]);
    config.helpers.insert("find".into(), vec![script.clone()]);
    assert!(builder(config, &place.work()).build().is_err());
    let mut config = allowing(&[&script]);
    config.helpers.insert("script".into(), vec!["/usr/bin/busybox".into()]);
    let guard = place.guard(config);
    if place.is_visible() {
        assert_eq!(ok(&guard, &script, &[]).stdout, "ran\n");
    }
}

#[test]
fn scripts_run_with_their_interpreter() {
    let place = Fixture::new();
    let script = place.write("outside/script", "#!/bin/sh\necho of a script: \"$1\"\ncat /dev/null && echo started\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let guard = place.guard(allowing(&[&script]));
    let result = run(&guard, &script, &["x"]).unwrap();
    assert_eq!(result.stdout, "of a script: x\n", "{result:?}");
    assert!(!guard.is_allowed("sh"), "an interpreter is not allowed by itself");
}

#[test]
fn command_answers_match_its_execution() {
    let place = Fixture::new();
    for dir in ["first", "bin"] {
        std::fs::create_dir(place.at(&format!("outside/{dir}"))).unwrap();
    }
    let at = |name: &str| place.at(&format!("outside/{name}"));
    let executable = |path: &str, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let copy = |from: &str, to: &str| assert!(std::fs::copy(format!("/usr/bin/{from}"), at(to)).unwrap() > 0);
    copy("true", "bin/tool");
    copy("dash", "bin/interpreter");
    let script = |first: &str| {
        place.write("outside/bin/script", &format!("#!{first}\nexit 0\n"));
        executable(&at("bin/script"), 0o755);
    };
    script(&at("bin/interpreter"));
    let path = [at("first"), at("bin"), "/usr/bin".into()].join(":");
    let builder = Guard::builder(allowing(&["tool", "script"]), place.work());
    let guard = builder.variables([("PATH".into(), path)]).build().unwrap();
    let agree = |command: &str, expected: bool, when: &str| {
        // A refusal may be a moment old; a permission may not.
        let begun = Instant::now();
        while expected && !guard.is_allowed(command) && begun.elapsed() < Duration::from_secs(5) {}
        assert_eq!(guard.is_allowed(command), expected, "{command} {when}");
        let ran = guard.execute_blocking(command, &[]);
        assert_eq!(ran.as_ref().is_ok_and(|result| result.exit_code == 0), expected, "{command} {when}: {ran:?}");
    };
    let there = |when: &str| ["tool", "script"].map(|command| agree(command, true, when));
    there("as made");
    executable(&at("bin/tool"), 0o644);
    agree("tool", false, "not executable");
    if !rustix::process::geteuid().is_root() {
        executable(&at("bin/tool"), 0o611);
        agree("tool", false, "not executable for its owner");
    }
    executable(&at("bin/tool"), 0o755);
    there("executable again");
    copy("id", "first/tool");
    agree("tool", false, "behind another of its name");
    std::fs::remove_file(at("first/tool")).unwrap();
    there("the first again");
    std::fs::rename(at("bin/tool"), at("bin/kept")).unwrap();
    agree("tool", false, "moved away");
    symlink("/usr/bin/id", at("bin/tool")).unwrap();
    agree("tool", false, "a link to another");
    std::fs::rename(at("bin/kept"), at("bin/tool")).unwrap();
    there("put back");
    std::fs::rename(at("bin/interpreter"), at("bin/kept")).unwrap();
    agree("script", false, "without its interpreter");
    std::fs::rename(at("bin/kept"), at("bin/interpreter")).unwrap();
    there("with it");
    if has("/usr/bin/busybox") {
        script("/usr/bin/busybox sh");
        agree("script", false, "executed by many programs in one");
        let refused = run(&guard, "script", &[]).unwrap_err().to_string();
        assert!(refused.contains("many programs in one"), "{refused}");
    }
    script("/no/such/interpreter");
    agree("script", false, "of an interpreter that is not there");
    script(&at("bin/interpreter"));
    there("as it was");
}

#[test]
fn a_name_changed_after_the_decision_executes_nothing_else() {
    let place = Fixture::new();
    for (from, to) in [("/usr/bin/echo", "allowed"), ("/usr/bin/touch", "other")] {
        std::fs::copy(from, place.at(&format!("outside/{to}"))).unwrap();
    }
    let name = place.at("outside/name");
    let lead = |to: &str| {
        symlink(place.at(&format!("outside/{to}")), place.at("outside/next")).unwrap();
        std::fs::rename(place.at("outside/next"), &name).unwrap();
    };
    lead("allowed");
    let guard = place.guard(allowing(&[&place.at("outside/allowed")]));
    let over = std::sync::atomic::AtomicBool::new(false);
    let (mut ran, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::SeqCst) {
                for to in ["other", "allowed"] {
                    lead(to);
                    std::thread::sleep(Duration::from_micros(700));
                }
            }
        });
        let begun = Instant::now();
        while (ran < 10 || refused < 10) && begun.elapsed() < Duration::from_secs(60) {
            match guard.execute_blocking(&name, &["marker"]) {
                Ok(result) => {
                    assert_eq!((result.exit_code, result.stdout.as_str()), (0, "marker\n"), "{result:?}");
                    ran += 1;
                }
                Err(_) => refused += 1,
            }
        }
        over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
    assert!(ran >= 10 && refused >= 10, "{ran} ran, {refused} were refused");
    assert!(!place.work().join("marker").exists(), "the other program ran");
    // The other program by itself would have.
    let other = place.at("outside/other");
    ok(&place.guard(allowing(&[&other])), &other, &["marker"]);
    assert!(place.work().join("marker").exists());
}

#[test]
fn one_guard_serves_many_threads() {
    let place = Fixture::new();
    let guard = place.guard(allowing(&["echo"]));
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let guard = guard.clone();
            scope.spawn(move || {
                for turn in 0..5 {
                    let text = format!("{caller} {turn}");
                    assert_eq!(ok(&guard, "echo", &[&text]).stdout, format!("{text}\n"));
                    assert!(run(&guard, "id", &[]).is_err());
                }
            });
        }
    });
}
