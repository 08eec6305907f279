//! The guard through real subprocesses: what it allows does its work, and the same thing beyond a rule does not.

use std::future::Future;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use cofferdam_engine::guard::{
    Event, ExecutionResult, Guard, GuardConfig, GuardError, Mode, Recorder, Refusal, Rule, Sandbox, SandboxError,
};

/// Wakes a thread.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(came) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return came;
        }
        std::thread::park();
    }
}

/// A workspace and what lies beside it, gone when it is dropped. Not below /tmp, of which a sandbox has its own.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = rustix::process::getuid().is_root();
        // The unprivileged pass has its home below /var/tmp.
        let parent = match (root, std::env::var_os("HOME")) {
            (false, Some(home)) if Path::new(&home).is_dir() && !Path::new(&home).starts_with("/nonexistent") => {
                PathBuf::from(home)
            }
            (false, _) => PathBuf::from("/var/tmp"),
            (true, _) => PathBuf::from("/var/lib"),
        };
        let place = Place(parent.join(format!("cofferdam-guard.{}.{n}", std::process::id())));
        std::fs::create_dir_all(place.0.join("work")).unwrap();
        std::fs::create_dir_all(place.0.join("outside")).unwrap();
        place
    }

    fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.at(name)
    }

    /// Whether a sandbox shows what lies beside the workspace: not where it has a directory of its own instead.
    fn is_visible(&self) -> bool {
        let visible = !self.0.starts_with("/var/tmp") && !self.0.starts_with("/tmp");
        if !visible {
            eprintln!("not here: this user has no directory that a sandbox shows; root's pass has");
        }
        visible
    }

    fn guard(&self, config: GuardConfig) -> Guard {
        builder(config, &self.work()).build().unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn builder(config: GuardConfig, work: &Path) -> cofferdam_engine::guard::GuardBuilder {
    let variables =
        [("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"), ("LANG", "C.UTF-8"), ("HOME", "/home/u")];
    Guard::builder(config, work).variables(variables.map(|(k, v)| (k.to_owned(), v.to_owned())))
}

fn allowing(commands: &[&str]) -> GuardConfig {
    GuardConfig {
        allowed_commands: commands.iter().map(|command| Rule::any(command)).collect(),
        run_as_root: true,
        ..GuardConfig::default()
    }
}

fn run(guard: &Guard, command: &str, args: &[&str]) -> Result<ExecutionResult, Refusal> {
    wait(guard.execute(command, args))
}

fn ok(guard: &Guard, command: &str, args: &[&str]) -> ExecutionResult {
    let result = run(guard, command, args).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(result.exit_code, 0, "{command} {args:?}: {result:?}");
    result
}

fn has(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "{program} is missing");
        eprintln!("skipped: {program} is missing");
    }
    there
}

#[test]
fn what_is_allowed_works_and_what_is_not_is_refused() {
    let place = Place::new();
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
    let place = Place::new();
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
    let place = Place::new();
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

fn executes(place: &Place, guard: &Guard, program: &str, argument: &str) -> String {
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
    let place = Place::new();
    let guard = place.guard(allowing(&["/usr/bin/python3"]));
    let tried = executes(&place, &guard, "/usr/bin/curl", "--version");
    assert_eq!(tried.lines().count(), 16, "{tried}");
    for line in tried.lines() {
        // A hard link from elsewhere cannot even be made: that is another file system to the sandbox.
        assert!(line.ends_with("refused PermissionError") || line == "hardlink refused OSError", "{tried}");
    }
    // The same program under the same walls, as a helper.
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

#[test]
fn blocked_paths_hold_for_the_whole_tree() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Place::new();
    let key = place.write("outside/key", "outside-secret\n");
    place.write("outside/open", "not-secret\n");
    std::fs::create_dir(place.at("work/private")).unwrap();
    place.write("work/private/inner", "inner-secret\n");
    place.write("work/plain", "plain\n");
    symlink(&key, place.at("work/link")).unwrap();
    std::fs::hard_link(&key, place.at("work/hard")).unwrap();
    let mut config = allowing(&["cat", "/usr/bin/python3"]);
    if !place.is_visible() {
        config.writable.push(place.at("outside"));
    }
    config.helpers.insert("python3".into(), vec!["cat".into()]);
    config.blocked_paths = vec![key.clone(), place.at("work/private"), place.at("work/later")];
    let guard = place.guard(config);
    assert_eq!(ok(&guard, "cat", &[&place.at("outside/open")]).stdout, "not-secret\n");
    assert_eq!(ok(&guard, "cat", &["plain"]).stdout, "plain\n");
    let dotted = format!("{}/../outside/key", place.at("work"));
    let by_root = format!("/proc/self/root{key}");
    for path in [&key, "link", "hard", &dotted, &by_root, "private/inner", "./private/../private/inner"] {
        let result = run(&guard, "cat", &[path]).unwrap();
        assert!(result.exit_code != 0 && result.stdout.is_empty(), "{path}: {result:?}");
        assert!(!guard.path_allowed(path), "{path}");
    }
    assert!(guard.path_allowed("plain") && guard.path_allowed(&place.at("outside/open")));
    // Neither a child's read nor a name that does not exist yet, nor moving what is around it away.
    let attack = r#"
import os, subprocess, sys
key, later = sys.argv[1], sys.argv[2]
def tried(name, call):
    try: print(name, 'did', call())
    except OSError as e: print(name, 'refused', e.errno)
tried('child', lambda: subprocess.check_output(['cat', key], stderr=subprocess.STDOUT) if 0 else subprocess.run(['cat', key], capture_output=True).stdout)
tried('make', lambda: open(later, 'w').write('x'))
tried('mkdir', lambda: os.mkdir(later))
tried('rename', lambda: os.rename('plain', later))
tried('linked', lambda: os.link('plain', later))
tried('symlinked', lambda: os.symlink('plain', later))
tried('away', lambda: os.rename('private', 'elsewhere'))
tried('remove', lambda: os.unlink('hard'))
tried('link', lambda: os.link('hard', 'harder'))
tried('other', lambda: open('other', 'w').write('x'))
tried('moved', lambda: os.rename('other', 'another'))
"#;
    place.write("work/attack.py", attack);
    let tried = ok(&guard, "/usr/bin/python3", &["attack.py", &key, &place.at("work/later")]).stdout;
    assert!(tried.contains("child did b''"), "{tried}");
    for name in ["make", "mkdir", "rename", "linked", "symlinked", "away"] {
        assert!(tried.contains(&format!("{name} refused")), "{name}: {tried}");
    }
    assert!(tried.contains("other did 1") && tried.contains("moved did None"), "{tried}");
    assert!(!Path::new(&place.at("work/later")).exists());
    for secret in ["outside-secret", "inner-secret"] {
        assert!(!tried.contains(secret), "{tried}");
    }
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "outside-secret\n");
}

#[test]
fn a_blocked_file_with_a_name_that_is_not_known_refuses() {
    let place = Place::new();
    let key = place.write("outside/key", "secret\n");
    std::fs::create_dir(place.at("outside/deep")).unwrap();
    let mut config = allowing(&["cat"]);
    config.blocked_paths = vec![key.clone()];
    let guard = place.guard(config.clone());
    place.write("work/plain", "plain\n");
    ok(&guard, "cat", &["plain"]);
    std::fs::hard_link(&key, place.at("outside/deep/other")).unwrap();
    let refused = run(&guard, "cat", &["plain"]).unwrap_err();
    assert!(matches!(&refused, Refusal::Blocked { reason, .. } if reason.contains("2 names")), "{refused}");
    assert!(builder(config.clone(), &place.work()).build().is_err());
    config.blocked_paths.push(place.at("outside/deep/other"));
    ok(&place.guard(config), "cat", &["plain"]);
}

#[test]
fn writes_stay_in_the_workspace() {
    let place = Place::new();
    let guard = place.guard(allowing(&["cp", "touch"]));
    place.write("work/a", "a");
    ok(&guard, "cp", &["a", "b"]);
    assert!(place.work().join("b").exists());
    let outside = place.at("outside/b");
    assert_ne!(run(&guard, "cp", &["a", &outside]).unwrap().exit_code, 0);
    assert!(!Path::new(&outside).exists());
    let mut config = allowing(&["cp"]);
    config.writable.push(place.at("outside"));
    ok(&place.guard(config), "cp", &["a", &outside]);
    assert!(Path::new(&outside).exists());
}

#[test]
fn what_is_writable_cannot_be_led_elsewhere_by_what_writes_it() {
    let place = Place::new();
    std::fs::create_dir_all(place.at("outside/a/work")).unwrap();
    let config = GuardConfig { writable: vec![place.at("outside")], ..allowing(&["cp"]) };
    let inner = PathBuf::from(place.at("outside/a/work"));
    let error = builder(config.clone(), &inner).build().unwrap_err();
    assert!(matches!(&error, GuardError::Directory { reason, .. } if reason.contains("lies in it")), "{error}");
    // Directories inside of others are no mounts of their own; everything in them is writable all the same.
    let writable = vec![place.at("outside"), place.at("outside/a"), place.at("work"), place.at("outside")];
    let guard = place.guard(GuardConfig { writable, ..config });
    place.write("work/a", "a");
    ok(&guard, "cp", &["a", &place.at("outside/a/work/b")]);
    assert!(inner.join("b").exists());
}

#[test]
fn reads_are_held_to_the_workspace_where_that_was_asked_for() {
    let place = Place::new();
    place.write("outside/open", "outside\n");
    place.write("work/note", "inside\n");
    let guard = place.guard(GuardConfig { enforce_reads: true, ..allowing(&["cat"]) });
    assert_eq!(ok(&guard, "cat", &["note"]).stdout, "inside\n");
    let free = place.guard(allowing(&["cat"]));
    let mut paths = vec!["/etc/debian_version".to_owned(), "/var/lib/dpkg/status".into()];
    paths.retain(|path| Path::new(path).exists());
    if place.is_visible() {
        paths.push(place.at("outside/open"));
    }
    assert!(!paths.is_empty(), "nothing to read");
    for path in paths {
        let result = run(&guard, "cat", &[&path]).unwrap();
        assert!(result.exit_code != 0 && result.stdout.is_empty(), "{path}: {result:?}");
        assert!(!ok(&free, "cat", &[&path]).stdout.is_empty(), "{path}");
    }
    let both = GuardConfig { enforce_reads: true, mode: Mode::Rx, ..allowing(&["cat"]) };
    assert!(matches!(builder(both, &place.work()).build(), Err(GuardError::Reads)));
}

#[test]
fn the_network_is_what_the_table_says() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let code = "import socket, sys\n\
         try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5); print('connected')\n\
         except OSError: print('refused')";
    let args = ["-c", code, port.as_str()];
    let guard = place.guard(allowing(&["/usr/bin/python3"]));
    assert_eq!(ok(&guard, "/usr/bin/python3", &args).stdout, "refused\n");
    let network = cofferdam_policy::NetworkMode::Host;
    let guard = place.guard(GuardConfig { network, ..allowing(&["/usr/bin/python3"]) });
    assert_eq!(ok(&guard, "/usr/bin/python3", &args).stdout, "connected\n");
}

#[test]
fn a_limit_that_was_met_is_named() {
    let place = Place::new();
    let mut config = allowing(&["/usr/bin/dash"]);
    config.limits.cpu_seconds = 1;
    let guard = place.guard(config);
    ok(&guard, "/usr/bin/dash", &["-c", "echo x"]);
    let refused = run(&guard, "/usr/bin/dash", &["-c", "while :; do :; done"]).unwrap_err();
    assert!(matches!(&refused, Refusal::Limit { limit: cofferdam_policy::Field::CpuTime, .. }), "{refused}");
    assert!(refused.to_string().contains("limits.cpu_seconds"), "{refused}");
}

/// Keeps the text of what is traced.
#[derive(Clone, Default)]
struct Traced(Arc<Mutex<String>>);

impl tracing::field::Visit for Traced {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!(" {field}={value:?}"));
    }
}

impl tracing::Subscriber for Traced {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let line = Traced::default();
        event.record(&mut line.clone());
        let said = line.0.lock().unwrap();
        self.0.lock().unwrap().push_str(&format!("{}{said}\n", event.metadata().level()));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn decisions_are_traced() {
    // Other tests' events come as well: these commands are this test's.
    let traced = Traced::default();
    tracing::subscriber::set_global_default(traced.clone()).unwrap();
    let place = Place::new();
    let (allowed, refused) = (place.at("outside/allowed"), place.at("outside/refused"));
    symlink("/usr/bin/true", &allowed).unwrap();
    symlink("/usr/bin/id", &refused).unwrap();
    let guard = place.guard(allowing(&["true"]));
    run(&guard, &allowed, &[]).unwrap();
    run(&guard, &refused, &[]).unwrap_err();
    let text = traced.0.lock().unwrap().clone();
    let line = |parts: &[&str]| text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(line(&["INFO", "allowed", &allowed, "rule=Some(\"true\")"]), "{text}");
    assert!(line(&["INFO", "ended", &allowed, "exit_code=0"]), "{text}");
    assert!(line(&["WARN", "refused", &refused, "allowed_commands"]), "{text}");
}

#[test]
fn time_and_output_have_their_ends() {
    let place = Place::new();
    let config = GuardConfig { max_execution_time_secs: 1, ..allowing(&["sleep", "yes"]) };
    let guard = place.guard(config.clone());
    let begun = Instant::now();
    let late = run(&guard, "sleep", &["30"]).unwrap_err();
    assert_eq!(late, Refusal::Timeout { command: "sleep".into(), limit_secs: 1 });
    assert!(late.to_string().contains("sleep") && late.to_string().contains("1 s"), "{late}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    ok(&guard, "sleep", &["0.1"]);

    let mut config = GuardConfig { max_output_bytes: 1000, ..allowing(&["/usr/bin/dash"]) };
    config.helpers.insert("dash".into(), vec!["head".into()]);
    let guard = place.guard(config);
    let both = "head -c 600 /dev/zero; head -c 600 /dev/zero >&2; exit 3";
    let result = run(&guard, "/usr/bin/dash", &["-c", both]).unwrap();
    assert_eq!((result.stdout.len() + result.stderr.len(), result.truncated, result.exit_code), (1000, true, 3));
    let less = run(&guard, "/usr/bin/dash", &["-c", "head -c 500 /dev/zero; head -c 500 /dev/zero >&2"]).unwrap();
    assert_eq!((less.stdout.len(), less.stderr.len(), less.truncated), (500, 500, false));
    let signalled = run(&guard, "/usr/bin/dash", &["-c", "kill -9 $$"]).unwrap();
    assert_eq!(signalled.exit_code, 137);
}

#[test]
fn a_dropped_execution_is_dead() {
    let place = Place::new();
    let mut config = allowing(&["/usr/bin/dash"]);
    config.helpers.insert("dash".into(), vec!["sleep".into()]);
    let guard = place.guard(config);
    let script = "while :; do echo x >> beat; sleep 0.05; done";
    let args = ["-c", script];
    let mut execution = guard.execute("/usr/bin/dash", &args);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    assert!(execution.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let beat = place.work().join("beat");
    let begun = Instant::now();
    while !beat.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(execution);
    std::thread::sleep(Duration::from_millis(1500));
    let length = || std::fs::metadata(&beat).unwrap().len();
    let then = length();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(length(), then);
}

#[test]
fn arguments_are_held_to_their_patterns() {
    let place = Place::new();
    let rule = Rule {
        command: "echo".into(),
        args: Some("status|log( --oneline)?".into()),
        matches: vec![vec!["status".into()], vec!["log".into(), "--oneline".into()]],
        not_matches: vec![vec!["push".into()], vec!["log --oneline".into()]],
    };
    let mut config = allowing(&[]);
    config.allowed_commands.push(rule);
    let guard = place.guard(config);
    assert_eq!(ok(&guard, "echo", &["log", "--oneline"]).stdout, "log --oneline\n");
    for args in [&["push"][..], &[], &["log --oneline"], &["status", "push"], &["status\n"]] {
        let refused = run(&guard, "echo", args).unwrap_err();
        assert!(matches!(refused, Refusal::Arguments { .. }), "{args:?}: {refused}");
    }
    assert!(guard.is_allowed("echo"));
    assert!(guard.check("echo", &["status"]).is_ok() && guard.check("echo", &["x"]).is_err());
}

#[test]
fn nothing_is_executed_when_disabled_or_when_nothing_is_allowed() {
    let place = Place::new();
    let disabled = place.guard(GuardConfig { enabled: false, ..allowing(&["cat"]) });
    assert!(matches!(run(&disabled, "cat", &[]), Err(Refusal::Disabled { .. })));
    assert!(!disabled.is_allowed("cat"));
    let empty = place.guard(allowing(&[]));
    assert!(matches!(run(&empty, "cat", &[]), Err(Refusal::NotAllowed { .. })));
    assert!(!empty.is_allowed("cat"));
    let enabled = place.guard(allowing(&["cat"]));
    ok(&enabled, "cat", &[]);
}

#[test]
fn no_guard_is_made_of_what_cannot_be_held() {
    let place = Place::new();
    let made = |config: GuardConfig, workspace: &str| builder(config, Path::new(workspace)).build();
    let work = place.at("work");
    assert!(made(allowing(&["cat"]), &work).is_ok());
    place.write("file", "");
    symlink("/", place.at("to-root")).unwrap();
    symlink(place.at("work"), place.at("to-work")).unwrap();
    for bad in [&place.at("missing"), &place.at("file"), &place.at("to-root"), "work", "/", "/etc", "/usr", "/proc"] {
        let error = made(allowing(&["cat"]), bad).unwrap_err();
        assert!(matches!(error, GuardError::Directory { .. }), "{bad}: {error}");
    }
    assert!(made(allowing(&["cat"]), &place.at("to-work")).is_ok());
    let blocking = |path: &str| {
        let blocked_paths = vec![path.to_owned()];
        made(GuardConfig { blocked_paths, ..allowing(&["cat"]) }, &work)
    };
    assert!(blocking(&place.at("outside")).is_ok());
    for bad in [&place.at(""), &work, "/", "relative", "/proc/1"] {
        assert!(matches!(blocking(bad), Err(GuardError::Blocked { .. })), "{bad}");
    }
    assert!(matches!(made(allowing(&["/usr/bin"]), &work), Err(GuardError::Rule { .. })));
    assert!(matches!(made(allowing(&["./cat"]), &work), Err(GuardError::Rule { .. })));
    let rwx = GuardConfig { mode: Mode::Rwx, ..allowing(&["cat"]) };
    assert!(matches!(made(rwx, &work), Err(GuardError::Unwalled)));
    let pattern = |args: &str| {
        let rule = Rule { command: "cat".into(), args: Some(args.into()), ..Rule::default() };
        made(GuardConfig { allowed_commands: vec![rule], ..allowing(&[]) }, &work)
    };
    assert!(pattern("a+").is_ok());
    assert!(matches!(pattern("(a"), Err(GuardError::Pattern { .. })));
    for (name, helper) in [("cat", "no-such-helper"), ("nobody", "cat")] {
        let mut config = allowing(&["cat"]);
        config.helpers.insert(name.into(), vec![helper.into()]);
        assert!(matches!(made(config, &work), Err(GuardError::Helper { .. })), "{name} {helper}");
    }
    let zero = GuardConfig { max_execution_time_secs: 0, ..allowing(&["cat"]) };
    assert!(matches!(made(zero, &work), Err(GuardError::Policy(_))));
    let zero = GuardConfig { max_output_bytes: 0, ..allowing(&["cat"]) };
    assert!(matches!(made(zero, &work), Err(GuardError::Policy(_))));
    if rustix::process::geteuid().is_root() {
        let asked = GuardConfig { run_as_root: false, ..allowing(&["cat"]) };
        assert!(matches!(made(asked, &work), Err(GuardError::Root)));
    }
    let absent = made(allowing(&["cat", "no-such-program"]), &work).unwrap();
    assert_eq!(absent.not_installed(), ["no-such-program"]);
}

#[test]
fn credentials_stay_out_of_the_environment() {
    let place = Place::new();
    let variables = [
        ("PATH", "/usr/bin:/bin"),
        ("GITHUB_TOKEN", "t"),
        ("AWS_SECRET_ACCESS_KEY", "t"),
        ("LD_PRELOAD", "/tmp/x.so"),
        ("SSH_AUTH_SOCK", "/tmp/s"),
        ("EDITOR", "vi"),
        ("ORDINARY", "kept"),
        ("MINE", "gone"),
        ("WANTED_TOKEN", "kept"),
    ];
    let config = GuardConfig {
        keep_variables: vec!["WANTED_TOKEN".into()],
        strip_variables: vec!["MINE".into()],
        ..allowing(&["env"])
    };
    let builder = Guard::builder(config, place.work());
    let guard = builder.variables(variables.map(|(k, v)| (k.to_owned(), v.to_owned()))).build().unwrap();
    let said = ok(&guard, "env", &[]).stdout;
    for gone in ["GITHUB_TOKEN", "AWS_", "LD_PRELOAD", "SSH_AUTH_SOCK", "EDITOR", "MINE"] {
        assert!(!said.contains(gone), "{gone}: {said}");
    }
    for kept in ["ORDINARY=kept", "WANTED_TOKEN=kept", "PATH=/usr/bin:/bin"] {
        assert!(said.lines().any(|line| line == kept), "{kept}: {said}");
    }
}

#[derive(Default)]
struct Kept {
    events: Mutex<Vec<Event>>,
    full: std::sync::atomic::AtomicBool,
}

impl Recorder for Kept {
    fn record(&self, event: &Event) -> Result<(), String> {
        if self.full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err("the disk is full".into());
        }
        self.events.lock().unwrap().push(event.clone());
        Ok(())
    }
}

#[test]
fn decisions_are_recorded_before_anything_runs() {
    let place = Place::new();
    let kept = Arc::new(Kept::default());
    let guard = builder(allowing(&["touch"]), &place.work()).recorder(kept.clone()).build().unwrap();
    ok(&guard, "touch", &["made"]);
    assert!(run(&guard, "id", &[]).is_err());
    {
        let events = kept.events.lock().unwrap();
        assert_eq!(events.len(), 3, "{events:?}");
        assert!(
            matches!(&events[0], Event::Decided { rule: Some(rule), refused: None, executable: Some(_), .. } if rule == "touch")
        );
        assert!(matches!(&events[1], Event::Ended { exit_code: Some(0), .. }));
        assert!(matches!(&events[2], Event::Decided { refused: Some(why), .. } if why.contains("id")));
    }
    kept.full.store(true, std::sync::atomic::Ordering::SeqCst);
    let refused = run(&guard, "touch", &["unmade"]).unwrap_err();
    assert!(matches!(refused, Refusal::Record { .. }), "{refused}");
    assert!(place.work().join("made").exists() && !place.work().join("unmade").exists());
}

#[test]
fn one_string_names_command_rule_and_reason() {
    let place = Place::new();
    let guard = place.guard(allowing(&["cat"]));
    let error = SandboxError::from(run(&guard, "id", &[]).unwrap_err()).to_string();
    assert!(error.starts_with("sandbox error: id: refused by allowed_commands: no rule allows /"), "{error}");
    let bad = GuardConfig { blocked_paths: vec!["x".into()], ..allowing(&["cat"]) };
    let error = SandboxError::from(builder(bad, &place.work()).build().unwrap_err()).to_string();
    assert!(error.starts_with("sandbox error: blocked_paths: \"x\": not an absolute path"), "{error}");
}

#[test]
fn many_programs_in_one_are_told_apart_by_name_and_start_nothing() {
    if !has("/usr/bin/busybox") {
        return;
    }
    let place = Place::new();
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
    let place = Place::new();
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
    let place = Place::new();
    let script = place.write("outside/script", "#!/bin/sh\necho of a script: \"$1\"\ncat /dev/null && echo started\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let guard = place.guard(allowing(&[&script]));
    let result = run(&guard, &script, &["x"]).unwrap();
    assert_eq!(result.stdout, "of a script: x\n", "{result:?}");
    assert!(!guard.is_allowed("sh"), "an interpreter is not allowed by itself");
}

#[test]
fn many_blocked_names_beside_a_command_leave_it_alone() {
    let place = Place::new();
    let mut config = allowing(&["cat"]);
    config.blocked_paths = (0..200).map(|i| format!("/usr/bin/no-such-program-{i}")).collect();
    let alone = |path: &&str| std::fs::metadata(path).is_ok_and(|m| m.nlink() == 1);
    let mut others =
        ["/usr/bin/tac", "/usr/bin/nl", "/usr/bin/paste", "/usr/bin/fold", "/usr/bin/sum"].into_iter().filter(alone);
    let (blocked, open) = (others.next().expect("a program"), others.next().expect("another one"));
    config.blocked_paths.push(blocked.into());
    config.helpers.insert("cat".into(), vec!["echo".into()]);
    place.write("work/note", "hello\n");
    let guard = place.guard(config);
    assert_eq!(ok(&guard, "cat", &["note"]).stdout, "hello\n");
    let read = run(&guard, "cat", &[blocked]).unwrap();
    assert!(read.exit_code != 0 && read.stdout.is_empty(), "{}", read.stderr);
    assert!(!ok(&guard, "cat", &[open]).stdout.is_empty());
}

#[test]
fn what_is_allowed_and_blocked_is_blocked() {
    let place = Place::new();
    let real = |name: &str| std::fs::canonicalize(format!("/usr/bin/{name}")).unwrap().to_str().unwrap().to_owned();
    let mut config = allowing(&["tac", "dash"]);
    config.helpers.insert("dash".into(), vec!["tac".into(), "nl".into()]);
    config.blocked_paths = vec![real("tac")];
    let guard = place.guard(config);
    assert!(!guard.is_allowed("tac") && guard.is_allowed("dash"));
    assert!(matches!(run(&guard, "tac", &[]), Err(Refusal::Blocked { .. })));
    let script = "echo x >note; tac note || echo refused; nl note";
    let said = ok(&guard, "dash", &["-c", script]).stdout;
    assert!(said.starts_with("refused\n") && said.contains('1'), "{said}");
}

#[test]
fn a_name_that_changes_between_decision_and_execution_executes_nothing_else() {
    let place = Place::new();
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
        while (ran < 10 || refused < 10) && begun.elapsed() < Duration::from_secs(20) {
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
    let place = Place::new();
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
