//! Ways around a guard that were tried, each beside what is allowed on the same victim.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, Instant};

use cofferdam_guard::{Guard, GuardConfig, Refusal, Sandbox as _};

use crate::fixture::{Fixture, allowing, has, ok, run};

#[test]
fn every_spelling_of_a_name_reaches_the_allowed_file_only() {
    let place = Fixture::new();
    place.write("work/note", "note\n");
    let copy = place.at("work/id");
    std::fs::copy("/usr/bin/id", &copy).unwrap();
    symlink("/usr/bin/id", place.at("work/cat")).unwrap();
    let guard = place.guard(allowing(&["cat"]));
    for allowed in ["cat", "/usr/bin/cat", "//usr//bin/./cat", "/usr/bin/../bin/cat", "/proc/self/root/usr/bin/cat"] {
        assert_eq!(ok(&guard, allowed, &["note"]).stdout, "note\n", "{allowed}");
    }
    let huge = "a".repeat(1 << 20);
    let deep = format!("/usr/bin/{}cat", "../bin/".repeat(2000));
    let loader = std::fs::read_dir("/lib64").into_iter().flatten().flatten().next().map(|e| e.path());
    let loader = loader.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_default();
    for refused in [
        "",
        ".",
        "..",
        "/",
        "id",
        "CAT",
        "Cat",
        "cat ",
        " cat",
        "cat\n",
        "cat\0",
        "cat\0id",
        "cat;id",
        "cat id",
        "./cat",
        "work/cat",
        "../../usr/bin/id",
        "/usr/bin/../bin/id",
        "/usr/bin/cat/../id",
        "/usr/bin/cat/",
        "~/cat",
        "/proc/self/exe",
        "/proc/self/cwd/cat",
        "/proc/thread-self/exe",
        "/dev/fd/0",
        "/dev/stdin",
        "cat\u{200b}",
        "ca\u{0308}t",
        "$(echo cat)",
        "`cat`",
        "*/cat",
        &copy,
        &place.at("work/cat"),
        &huge,
        &deep,
        &loader,
    ] {
        let shown: String = refused.chars().take(60).collect();
        assert!(run(&guard, refused, &["note"]).is_err(), "{shown:?} was executed");
        assert!(!guard.is_allowed(refused), "{shown:?}");
    }
}

#[test]
fn a_path_is_searched_only_where_commands_cannot_write() {
    let place = Fixture::new();
    for dir in ["work/bin", "outside/bin", "outside/shared"] {
        std::fs::create_dir(place.at(dir)).unwrap();
        std::fs::copy("/usr/bin/id", place.at(&format!("{dir}/tool"))).unwrap();
    }
    symlink(place.at("work/bin"), place.at("outside/led")).unwrap();
    let guard = |path: &str, writable: &[String]| {
        let config = GuardConfig { writable: writable.to_vec(), ..allowing(&["tool"]) };
        Guard::builder(config, place.work()).variables([("PATH".to_owned(), path.to_owned())]).build().unwrap()
    };
    for path in [
        String::new(),
        ".".into(),
        ":".into(),
        "bin".into(),
        "./bin".into(),
        place.at("work/bin"),
        place.at("outside/led"),
    ] {
        assert!(!guard(&path, &[]).is_allowed("tool"), "{path}");
    }
    assert!(!guard(&place.at("outside/shared"), &[place.at("outside/shared")]).is_allowed("tool"));
    assert!(guard(&place.at("outside/shared"), &[]).is_allowed("tool"), "the same directory where nobody writes");
    assert!(guard(&format!(".:{}:{}", place.at("work/bin"), place.at("outside/bin")), &[]).is_allowed("tool"));
}

#[test]
fn any_argument_is_passed_as_one_or_refused() {
    let place = Fixture::new();
    let guard = place.guard(allowing(&["echo"]));
    let long = "x".repeat(100_000);
    assert_eq!(ok(&guard, "echo", &[&long]).stdout.len(), 100_001);
    for (args, what) in [
        (vec!["x".repeat(4 << 20)], "one that no program can be given"),
        (vec!["y".repeat(1000); 10_000], "more than fit together"),
        (vec!["a\0b".to_owned()], "a NUL"),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let error = run(&guard, "echo", &args).unwrap_err().to_string();
        assert!(error.starts_with("echo: ") && error.len() < 2000, "{what}: {error:.300}");
    }
    let odd = ["\u{1b}[2J", "$(id)", "`id`", "a b", "", "'\"\\", "\u{202e}"];
    let said = ok(&guard, "echo", &odd).stdout;
    assert_eq!(said, format!("{}\n", odd.join(" ")));
}

/// What a Python of an allowed rule tries, as `name did VALUE` or `name refused ERRNO`.
fn tries(guard: &Guard, place: &Fixture, attack: &str, args: &[&str]) -> String {
    let head = "import ctypes, os, socket, subprocess, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                def tried(name, call):\n    try: print(name, 'did', call())\n    except OSError as e: print(name, 'refused', e.errno)\n\
                def calls(name, result):\n    print(name, 'did' if result >= 0 else 'refused', result if result >= 0 else ctypes.get_errno())\n";
    place.write("work/attack.py", &format!("{head}{attack}"));
    let mut all = vec!["attack.py"];
    all.extend(args);
    let result = ok(guard, "/usr/bin/python3", &all);
    format!("{}{}", result.stdout, result.stderr)
}

#[test]
fn descriptors_namespaces_and_moves_reach_no_blocked_file() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Fixture::new();
    std::fs::create_dir_all(place.at("work/a/b")).unwrap();
    std::fs::create_dir(place.at("work/open")).unwrap();
    let key = place.write("work/a/b/key", "the-secret\n");
    place.write("work/open/plain", "the-plain\n");
    let mut config = allowing(&["/usr/bin/python3"]);
    config.blocked_paths = vec![key.clone(), place.at("work/a/later"), place.at("work/none/deep/later")];
    let guard = place.guard(config);
    let attack = r#"
def reads(path): return open(path).read()
def by_dirfd():
    d = os.open('a', os.O_RDONLY); b = os.open('b', os.O_RDONLY | os.O_PATH, dir_fd=d)
    return os.read(os.open('key', os.O_RDONLY, dir_fd=b), 99)
def by_path_fd():
    f = os.open('a/b/key', os.O_PATH); return reads('/proc/self/fd/%d' % f)
def by_socket():
    a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [os.open('a/b/key', os.O_RDONLY)])
    return os.read(socket.recv_fds(b, 1, 1)[1][0], 99)
def by_link():
    os.link('a/b/key', 'other'); return reads('other')
def by_move():
    os.rename('a/b/key', 'moved'); return reads('moved')
def by_parent():
    os.rename('a', 'z')
    try: return reads('z/b/key')
    finally: os.rename('z', 'a')
def by_exchange():
    if libc.renameat2(-100, b'a', -100, b'open', 2) < 0: raise OSError(ctypes.get_errno(), 'exchange')
    try: return reads('open/b/key')
    finally: libc.renameat2(-100, b'a', -100, b'open', 2)
def by_unmount():
    libc.unshare(0x10020000)
    libc.umount2(b'a/b/key', 2)
    return reads('a/b/key')
def by_bind():
    libc.unshare(0x10020000)
    os.makedirs('mnt', exist_ok=True)
    if libc.mount(b'.', b'mnt', None, 4096, None) < 0: raise OSError(ctypes.get_errno(), 'mount')
    return reads('mnt/a/b/key')
def by_chroot():
    libc.unshare(0x10000000); os.chroot('.'); return reads('/a/b/key')
def by_other_process():
    import signal
    pid = os.fork()
    if pid == 0: signal.pause()
    try: return reads('/proc/%d/root%s' % (pid, os.path.abspath('a/b/key'))) + reads('/proc/%d/cwd/a/b/key' % pid)
    finally: os.kill(pid, 9)
def by_trace():
    pid = os.getppid(); return reads('/proc/%d/root%s' % (pid, os.path.abspath('a/b/key')))
for name in ['by_dirfd', 'by_path_fd', 'by_socket', 'by_link', 'by_move', 'by_exchange', 'by_parent', 'by_unmount', 'by_bind', 'by_chroot', 'by_other_process', 'by_trace']:
    sys.stdout.flush()
    if os.fork() == 0:
        tried(name, globals()[name]); sys.stdout.flush(); os._exit(0)
    os.wait()
tried('case', lambda: reads('A/B/KEY'))
tried('plain', lambda: reads('open/plain'))
# Names that do not exist yet, by detours around the directory that would hold them.
def makes(detour):
    detour(); return os.path.exists('a/later')
def aside():
    os.rename('a', 'y')
    try: open('y/later', 'w').write('planted')
    finally: os.rename('y', 'a')
def swapped():
    os.makedirs('new/b', exist_ok=True); open('new/later', 'w').write('planted')
    if libc.renameat2(-100, b'new', -100, b'a', 2) < 0: raise OSError(ctypes.get_errno(), 'exchange')
def bound():
    s = socket.socket(socket.AF_UNIX); s.bind('a/later')
def made_dirs():
    os.makedirs('none/deep'); open('none/deep/later', 'w').write('planted')
def moved_dirs():
    os.makedirs('n2/deep'); open('n2/deep/later', 'w').write('planted'); os.rename('n2', 'none')
for name in ['aside', 'swapped', 'bound', 'made_dirs', 'moved_dirs']:
    tried(name, globals()[name])
tried('fifo', lambda: os.mkfifo('a/later'))
tried('other', lambda: open('a/other', 'w').write('fine'))
"#;
    let tried = tries(&guard, &place, attack, &[]);
    assert!(!tried.contains("the-secret"), "{tried}");
    assert!(tried.contains("plain did the-plain") && tried.contains("other did 4"), "{tried}");
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "the-secret\n", "{tried}");
    for planted in ["work/a/later", "work/none/deep/later"] {
        assert!(std::fs::symlink_metadata(place.at(planted)).is_err(), "{planted} was made: {tried}");
    }
    // And by the next command, whatever this one has left.
    let again = tries(
        &guard,
        &place,
        "tried('key', lambda: open('a/b/key').read())\ntried('plain', lambda: open('open/plain').read())\n",
        &[],
    );
    assert!(again.contains("key refused") && again.contains("plain did the-plain"), "{again}");
}

#[test]
fn nothing_outlives_its_command_and_no_flood_outgrows_the_cap() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Fixture::new();
    let config = GuardConfig { max_execution_time_secs: 3, max_output_bytes: 4096, ..allowing(&["/usr/bin/python3"]) };
    let guard = place.guard(config);
    let beat = "def beat():\n    import signal, time\n    for s in (1, 2, 3, 15): signal.signal(s, signal.SIG_IGN)\n    os.setsid()\n    \
                if os.fork(): os._exit(0)\n    while True: open('beat', 'a').write('x'); os.write(1, b'y' * 100); time.sleep(0.02)\n";
    let stands_still = || {
        let length = || std::fs::metadata(place.at("work/beat")).map_or(0, |m| m.len());
        let then = length();
        std::thread::sleep(Duration::from_millis(300));
        (length() == then, then > 0)
    };
    // A daemon that has the streams, after its parent has gone.
    let begun = Instant::now();
    let said = tries(
        &guard,
        &place,
        &format!("{beat}if os.fork() == 0: beat()\nimport time; time.sleep(0.5); print('gone')\n"),
        &[],
    );
    assert!(begun.elapsed() < Duration::from_secs(3) && said.len() <= 4096, "{said:.200}");
    assert_eq!(stands_still(), (true, true), "the daemon lives");
    // One that waits for the time limit, with a flood on both streams.
    place.write("work/flood.py", "import os\nwhile True: os.write(1, b'o' * 65536); os.write(2, b'e' * 65536)\n");
    let begun = Instant::now();
    let late = run(&guard, "/usr/bin/python3", &["flood.py"]).unwrap_err();
    let printed = late.output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "{late}");
    assert_eq!((printed.stdout.len() + printed.stderr.len(), printed.truncated), (4096, true));
    // A daemon that stays until the limit.
    std::fs::remove_file(place.at("work/beat")).unwrap();
    place.write("work/stay.py", &format!("import os\n{beat}if os.fork() == 0: beat()\nimport time; time.sleep(60)\n"));
    assert!(matches!(run(&guard, "/usr/bin/python3", &["stay.py"]), Err(Refusal::Timeout { .. })));
    assert_eq!(stands_still(), (true, true), "the daemon lives");
}

#[test]
fn a_workspace_that_is_gone_or_led_elsewhere_runs_nothing_there() {
    let place = Fixture::new();
    for dir in ["outside/home", "outside/more"] {
        std::fs::create_dir(place.at(dir)).unwrap();
    }
    let more = place.at("outside/more");
    let guard = place.guard(GuardConfig { writable: vec![more.clone()], ..allowing(&["touch"]) });
    ok(&guard, "touch", &["first", &format!("{more}/first")]);
    // The workspace, and a further directory.
    for (directory, file) in [(place.at("work"), "second".to_owned()), (more.clone(), format!("{more}/second"))] {
        std::fs::rename(&directory, place.at("aside")).unwrap();
        let gone = run(&guard, "touch", &[&file]).unwrap_err().to_string();
        assert!(gone.contains(&directory) && gone.contains("cannot be used any more"), "{gone}");
        symlink(place.at("outside/home"), &directory).unwrap();
        let led = run(&guard, "touch", &[&file]).unwrap_err().to_string();
        assert!(led.contains("leads to") && led.contains("outside/home by now"), "{led}");
        assert!(!std::path::Path::new(&place.at("outside/home/second")).exists(), "{led}");
        std::fs::remove_file(&directory).unwrap();
        std::fs::rename(place.at("aside"), &directory).unwrap();
        ok(&guard, "touch", &[&file]);
    }
    // Another directory of that name is what the name says.
    std::fs::rename(place.work(), place.at("aside")).unwrap();
    std::fs::create_dir(place.work()).unwrap();
    std::fs::set_permissions(place.work(), std::fs::Permissions::from_mode(0o777)).unwrap();
    ok(&guard, "touch", &["third"]);
}

#[test]
fn variables_that_steer_programs_stay_outside() {
    let place = Fixture::new();
    let steering = STEERING.iter().map(|name| ((*name).to_owned(), "/planted".to_owned()));
    let fine = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("TERM", "dumb"), ("TZ", "UTC"), ("MY_SETTING", "1")];
    let fine = fine.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let guard = Guard::builder(allowing(&["env"]), place.work()).variables(fine.into_iter().chain(steering)).build();
    let said = ok(&guard.unwrap(), "env", &[]).stdout;
    let names: Vec<&str> = said.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for name in ["LANG", "TERM", "TZ", "MY_SETTING"] {
        assert!(names.contains(&name), "{name} is wanted: {said}");
    }
    let through: Vec<&&str> = STEERING.iter().filter(|name| names.contains(*name)).collect();
    assert!(through.is_empty(), "{through:?}");
}

/// Variables by which a program loads, executes or obeys something that their value names.
const STEERING: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_DEBUG_OUTPUT",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "ZDOTDIR",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    "PYTHONUSERBASE",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PERL5OPT",
    "PERL5LIB",
    "PERLLIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "LUA_INIT",
    "LUA_PATH",
    "LUA_CPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "DOTNET_STARTUP_HOOKS",
    "GIT_DIR",
    "GIT_SSH_COMMAND",
    "GIT_EXTERNAL_DIFF",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_COUNT",
    "GIT_EXEC_PATH",
    "GIT_PAGER",
    "PAGER",
    "MANPAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "RUSTC_WRAPPER",
    "RUSTC",
    "MAKEFLAGS",
    "GNUMAKEFLAGS",
    "TAR_OPTIONS",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "HGRCPATH",
    "VIMINIT",
    "EXINIT",
    "AWKPATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
];
