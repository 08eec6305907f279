//! Nested sandboxes, where they are granted: Debian's bubblewrap works, and an artifact that calls it runs only in the
//! environment that grants it. Attacks from such a namespace are each beside what is allowed on the same victim.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{PYTHON, cofferdam, has, open_directory};
use serde_json::{Value, json};

/// System calls by name for a Python inside, and a way into namespaces of its own.
const PRELUDE: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
USER, NS, PID, NET, CGROUP, TIME = 0x10000000, 0x20000, 0x20000000, 0x40000000, 0x2000000, 0x80
RDONLY, REMOUNT, BIND, MOVE, REC, DETACH = 1, 32, 4096, 8192, 16384, 2
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def text(t): return t if t is None else os.fsencode(t)
def mount(source, target, kind=None, flags=0, data=None):
    check(libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data)))
def umount(target, flags=0): check(libc.umount2(text(target), flags))
def unshare(flags): check(libc.unshare(flags))
def enter(more=0):
    ids = os.getuid(), os.getgid()
    unshare(USER | NS | more)
    for name, line in ('setgroups', 'deny'), ('uid_map', '0 %d 1' % ids[0]), ('gid_map', '0 %d 1' % ids[1]):
        with open('/proc/self/' + name, 'w') as f: f.write(line)
def read(path):
    with open(path) as f: return f.read()
def write(path, what='x'):
    with open(path, 'w') as f: f.write(what)
def attempt(name, act):
    try: print(name, '=', act())
    except OSError as e: print(name, '!', e.strerror)
def child(act):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try: act()
        except BaseException as e: print('child', '!', e)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(pid, 0)
";

/// A directory of victims, shown read-only at /victims, one of them denied.
struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let scene = Scene { directory: open_directory() };
        for (name, text) in [("plain", "plain\n"), ("secret", "secret\n"), ("below/inner", "inner\n")] {
            scene.write(&format!("victims/{name}"), text);
        }
        std::fs::create_dir(scene.path("home")).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        std::fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = cofferdam();
        for (name, _) in std::env::vars() {
            let ours = ["COFFERDAM_", "NIX_", "PROJECT_", "SESSION_", "XDG_"];
            if name != "COFFERDAM_LIBEXEC" && ours.iter().any(|start| name.starts_with(start)) {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.path("home")).current_dir(self.directory.path()).args(arguments);
        command
    }

    /// What Python code prints inside, with room for nested sandboxes.
    #[track_caller]
    fn inside(&self, options: &[&str], code: &str) -> String {
        let victims = format!("{}:/victims", self.text("victims"));
        let granted =
            ["run", "-q", "--root", "minimal", "--nested-sandboxes", "-v", &victims, "--deny", "/victims/secret"];
        let program = format!("{PRELUDE}\n{code}");
        let output = self.command(&granted).args(options).args(["--", PYTHON, "-c", &program]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{message}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn artifact(&self, directory: &str, script: &str) {
        self.write(&format!("{directory}/bin/run"), &format!("#!/bin/sh\n{script}\n"));
        let run = self.path(&format!("{directory}/bin/run"));
        std::fs::set_permissions(run, std::fs::Permissions::from_mode(0o755)).unwrap();
        let name = directory.rsplit('/').next().unwrap();
        self.write(&format!("{directory}/metadata.json"), &json!({"name": name, "backend": "jail"}).to_string());
    }
}

fn has_bubblewrap() -> bool {
    let there = std::path::Path::new("/usr/bin/bwrap").exists();
    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
    assert!(there || !must, "bwrap is missing; apt-get install bubblewrap");
    if !there {
        eprintln!("skipped: bwrap is missing; apt-get install bubblewrap");
    }
    there
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// As artifacts of a bubblewrap backend have it.
const WRAPPED: &str = "code=$(cat); exec bwrap --unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts \
                       --hostname inner --die-with-parent --new-session --ro-bind /usr /usr --symlink usr/bin /bin \
                       --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp \
                       --chdir /tmp sh -c \"$code\"";

#[test]
fn artifact_with_bubblewrap_runs_only_where_nesting_is_granted() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    let registry = "home/.config/cofferdam/environments";
    for name in ["granted", "plain"] {
        scene.artifact(&format!("{registry}/{name}"), WRAPPED);
    }
    let directory = scene.text(&format!("{registry}/granted"));
    scene.write(
        "home/.config/cofferdam/config.toml",
        &format!("[environments.granted]\nsandbox = \"{directory}\"\nnesting = true\n"),
    );
    let code = "hostname; id -u; echo written > file && cat file; ls -d /home /victims 2>&1 | grep -c cannot; echo $$";
    let output = scene.command(&["eval", "granted", code]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "inner\n1000\nwritten\n2\n2\n", "{}", text_of(&output));
    // The same program without the word: it is listed as what it is, and says what would grant it.
    let output = scene.command(&["eval", "plain", code]).output().unwrap();
    let plain = text_of(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{plain}");
    let fix = format!(
        "[environments.plain] with sandbox = {:?} and nesting = true",
        scene.text(&format!("{registry}/plain"))
    );
    assert!(plain.contains("its bin/run calls bwrap") && plain.contains(&fix), "{plain}");
    let rows: Value =
        serde_json::from_slice(&scene.command(&["environment", "list", "--json"]).output().unwrap().stdout).unwrap();
    let available =
        |name: &str| rows.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap()["available"].clone();
    assert_eq!((available("granted"), available("plain")), (json!(true), json!(false)));
    // By its path, the caller grants it by an option.
    let path = format!("./{registry}/plain");
    let refused = text_of(&scene.command(&["eval", &path, code]).output().unwrap());
    assert!(refused.contains("or grant them: --nested-sandboxes"), "{refused}");
    let output = scene.command(&["eval", "--nested-sandboxes", &path, "echo ran"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{}", text_of(&output));
    // An artifact grants itself nothing.
    scene.write(&format!("{registry}/plain/metadata.json"), r#"{"name": "plain", "backend": "jail", "nesting": true}"#);
    assert_eq!(scene.command(&["eval", "plain", code]).output().unwrap().status.code(), Some(125));
}

#[test]
fn everything_unshared_works_where_no_cgroup_is_the_users_own() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    let wrap = ["--", "bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "sh", "-c"];
    let granted = ["run", "-q", "--root", "minimal", "--nested-sandboxes"];
    let output = scene.command(&granted).args(wrap).arg("echo ran; ls /proc | grep -c '^[0-9]'").output().unwrap();
    if text_of(&output).contains("max_*_namespaces exceeded") && !common::is_root() {
        eprintln!("skipped: this user's own cgroup could be mounted and written");
        return;
    }
    let ran = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(ran.starts_with("ran\n"), "{ran}{}", text_of(&output));
    let count: u32 = ran.lines().nth(1).unwrap().parse().unwrap();
    assert!((2..=5).contains(&count), "processes of the inner sandbox alone: {ran}");
    // Without the word the very same is refused by the filter.
    let output = scene.command(&["run", "--root", "minimal"]).args(wrap).arg("echo ran").output().unwrap();
    let message = text_of(&output);
    assert!(output.stdout.is_empty() && message.contains("refused: clone flags"), "{message}");
}

#[test]
fn hidden_paths_stay_hidden_in_a_nested_mount_namespace() {
    let scene = Scene::new();
    let printed = scene.inside(
        &[],
        r"
attempt('plain', lambda: read('/victims/plain').strip())
enter()
attempt('umount', lambda: umount('/victims/secret'))
attempt('umount, detached', lambda: umount('/victims/secret', DETACH))
attempt('umount of the whole', lambda: umount('/victims', DETACH))
mount('none', '/tmp', 'tmpfs')
for name in 'one', 'all', 'below', 'moved', 'lower', 'upper', 'work', 'top': os.mkdir('/tmp/' + name)
attempt('bind of one mount', lambda: mount('/victims', '/tmp/one', None, BIND))
attempt('bind of what holds no mask', lambda: (mount('/victims/below', '/tmp/below', None, BIND), read('/tmp/below/inner').strip())[1])
attempt('bind of all', lambda: (mount('/victims', '/tmp/all', None, BIND | REC), read('/tmp/all/plain').strip())[1])
attempt('secret in it', lambda: repr(read('/tmp/all/secret')))
attempt('umount in it', lambda: umount('/tmp/all/secret'))
attempt('bind of the root', lambda: mount('/', '/tmp/one', None, BIND))
attempt('move', lambda: mount('/victims', '/tmp/moved', None, MOVE))
overlay = 'upperdir=/tmp/upper,workdir=/tmp/work,userxattr,lowerdir='
attempt('overlay on it', lambda: mount('o', '/tmp/top', 'overlay', 0, overlay + '/victims'))
attempt('overlay on the root', lambda: mount('o', '/tmp/top', 'overlay', 0, overlay + '/'))
attempt('overlay on what holds no mask', lambda: (mount('o', '/tmp/top', 'overlay', 0, overlay + '/victims/below'), read('/tmp/top/inner').strip())[1])
",
    );
    assert_eq!(
        printed,
        "plain = plain\numount ! Invalid argument\numount, detached ! Invalid argument\n\
         umount of the whole ! Invalid argument\nbind of one mount ! Invalid argument\n\
         bind of what holds no mask = inner\nbind of all = plain\nsecret in it = ''\numount in it ! Invalid argument\n\
         bind of the root ! Invalid argument\nmove ! Invalid argument\noverlay on it ! Invalid argument\n\
         overlay on the root ! Invalid argument\noverlay on what holds no mask = inner\n"
    );
}

#[test]
fn read_only_stays_read_only_in_a_nested_namespace() {
    let scene = Scene::new();
    let printed = scene.inside(
        &[],
        r"
enter()
attempt('remount', lambda: mount(None, '/victims', None, REMOUNT | BIND))
attempt('remount of the root', lambda: mount(None, '/', None, REMOUNT | BIND))
mount('none', '/tmp', 'tmpfs')
os.mkdir('/tmp/all')
mount('/victims', '/tmp/all', None, BIND | REC)
attempt('remount of a bind', lambda: mount(None, '/tmp/all', None, REMOUNT | BIND))
attempt('write', lambda: write('/tmp/all/plain'))
attempt('write where it is mounted', lambda: write('/victims/new'))
attempt('change of mode', lambda: os.chmod('/tmp/all/plain', 0o777))
mount('/tmp', '/victims', None, BIND)
attempt('write over it', lambda: write('/victims/new'))
attempt('own', lambda: read('/tmp/new'))
attempt('device', lambda: os.mknod('/tmp/device', 0o20666, os.makedev(1, 1)))
attempt('setuid', lambda: os.chmod('/tmp/new', 0o4755))
",
    );
    assert_eq!(
        printed,
        "remount ! Operation not permitted\nremount of the root ! Operation not permitted\n\
         remount of a bind ! Operation not permitted\nwrite ! Read-only file system\n\
         write where it is mounted ! Read-only file system\nchange of mode ! Read-only file system\n\
         write over it = None\nown = x\ndevice ! Operation not permitted\nsetuid ! Operation not permitted\n"
    );
    let names: Vec<_> =
        std::fs::read_dir(scene.path("victims")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_new_root_sees_no_more_than_the_old_one() {
    let scene = Scene::new();
    let printed = scene.inside(
        &[],
        r"
held = os.open('/victims', os.O_RDONLY | os.O_DIRECTORY)
enter()
mount('none', '/tmp', 'tmpfs')
os.mkdir('/tmp/old')
os.chdir('/tmp')
check(libc.syscall({'x86_64': 155, 'aarch64': 41}[os.uname().machine], b'.', b'old'))
attempt('old root', lambda: read('/old/victims/plain').strip())
attempt('secret in it', lambda: repr(read('/old/victims/secret')))
umount('/old', DETACH)
attempt('gone', lambda: os.listdir('/old'))
def by_descriptor(name):
    with open(os.open(name, os.O_RDONLY, dir_fd=held)) as f: return repr(f.read())
attempt('by a descriptor', lambda: by_descriptor('plain'))
attempt('secret by it', lambda: by_descriptor('secret'))
attempt('moved by it', lambda: os.rename('plain', 'other', src_dir_fd=held, dst_dir_fd=held))
attempt('removed by it', lambda: os.unlink('secret', dir_fd=held))
attempt('out of it', lambda: os.listdir(os.open('..', os.O_RDONLY, dir_fd=held)) and 'the sandbox')
",
    );
    assert_eq!(
        printed,
        "old root = plain\nsecret in it = ''\ngone = []\nby a descriptor = 'plain\\n'\nsecret by it = ''\n\
         moved by it ! Read-only file system\nremoved by it ! Read-only file system\nout of it = the sandbox\n"
    );
    assert_eq!(std::fs::read_to_string(scene.path("victims/secret")).unwrap(), "secret\n");
}

#[test]
fn file_systems_that_reveal_the_host_cannot_be_mounted() {
    let scene = Scene::new();
    let printed = scene.inside(
        &[],
        r"
def in_own_pids():
    mount('proc', '/tmp/at', 'proc')
    attempt('proc of its own', lambda: sorted(n for n in os.listdir('/tmp/at') if n.isdigit()))
    attempt('sysctl in it', lambda: write('/tmp/at/sys/kernel/core_pattern'))
def attack():
    enter(PID | NET)
    mount('none', '/tmp', 'tmpfs')
    os.mkdir('/tmp/at')
    attempt('sysfs', lambda: mount('sysfs', '/tmp/at', 'sysfs'))
    attempt('disk', lambda: mount('/dev/vda', '/tmp/at', 'ext4'))
    attempt('devtmpfs', lambda: mount('none', '/tmp/at', 'devtmpfs'))
    attempt('debugfs', lambda: mount('none', '/tmp/at', 'debugfs'))
    attempt('securityfs', lambda: mount('none', '/tmp/at', 'securityfs'))
    child(in_own_pids)
child(attack)
enter()
mount('none', '/tmp', 'tmpfs')
os.mkdir('/tmp/at')
attempt('proc of the sandbox', lambda: mount('proc', '/tmp/at', 'proc'))
attempt('cgroup2 of the sandbox', lambda: mount('none', '/tmp/at', 'cgroup2'))
attempt('cgroup of the sandbox', lambda: mount('none', '/tmp/at', 'cgroup', 0, 'pids'))
for path in '/proc/sys/kernel/core_pattern', '/proc/sys/kernel/modprobe', '/proc/sys/vm/drop_caches':
    attempt(path, lambda: write(path))
attempt('init', lambda: read('/proc/1/environ'))
attempt('its root', lambda: os.listdir('/proc/1/root'))
attempt('its mounts', lambda: os.open('/proc/1/ns/mnt', os.O_RDONLY))
attempt('itself', lambda: len(read('/proc/self/environ')) > 0)
",
    );
    let refused = |name: &str| printed.lines().any(|line| line.starts_with(&format!("{name} ! ")));
    for name in [
        "sysfs",
        "disk",
        "devtmpfs",
        "debugfs",
        "securityfs",
        "sysctl in it",
        "proc of the sandbox",
        "cgroup2 of the sandbox",
        "cgroup of the sandbox",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/drop_caches",
        "init",
        "its root",
        "its mounts",
    ] {
        assert!(refused(name), "{name}: {printed}");
    }
    assert!(printed.contains("proc of its own = ['1']\n") && printed.contains("itself = True\n"), "{printed}");
}

#[test]
fn a_cgroup_namespace_shows_nothing_that_may_be_written() {
    let scene = Scene::new();
    let printed = scene.inside(
        &["--memory", "100m", "--best-effort=limits.memory_mb"],
        r"
def attack(kind, options):
    try: enter(CGROUP)
    except OSError as e: return print('none', e.strerror)
    mount('none', '/tmp', 'tmpfs')
    os.mkdir('/tmp/at')
    try: mount('none', '/tmp/at', kind, 0, options)
    except OSError as e: return print(kind, e.strerror)
    for directory, _, files in os.walk('/tmp/at'):
        for name in files:
            path = os.path.join(directory, name)
            try: os.close(os.open(path, os.O_WRONLY))
            except OSError: continue
            print('writable', path)
        attempt('made', lambda: os.mkdir(os.path.join(directory, 'new')))
for kind, options in ('cgroup2', None), ('cgroup', 'memory'), ('cgroup', 'pids'), ('cgroup', 'cpu,cpuacct'):
    child(lambda: attack(kind, options))
print('end')
",
    );
    assert!(!printed.contains("writable") && !printed.contains("made = "), "{printed}");
    assert!(printed.ends_with("end\n") && printed.lines().count() > 4, "{printed}");
}

#[test]
fn namespaces_are_bounded_in_number_and_clocks_have_none() {
    let scene = Scene::new();
    let printed = scene.inside(
        &[],
        r"
import time
def chain():
    made = 0
    try:
        while made < 100:
            enter()
            made += 1
    except OSError as e: print('chain', 5 < made < 20, e.strerror)
child(chain)
def networks():
    for _ in range(100):
        try: enter()
        except OSError: time.sleep(0.05) # those of the chain go as the kernel finds the time
        else: break
    attempt('raised', lambda: write('/proc/sys/user/max_net_namespaces', '1000') or 'for this namespace alone')
    kept, made = [], 0
    try:
        while made < 100:
            unshare(NET)
            kept.append(os.open('/proc/self/ns/net', os.O_RDONLY))
            made += 1
    except OSError as e: print('networks', 5 < made < 20, e.strerror)
child(networks)
attempt('clock', lambda: unshare(USER | TIME))
attempt('setns', lambda: check(libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)))
attempt('limit', lambda: write('/proc/sys/user/max_user_namespaces', '1000'))
",
    );
    assert_eq!(
        printed,
        "chain True No space left on device\nraised = for this namespace alone\nnetworks True No space left on device\n\
         clock ! Operation not permitted\nsetns ! Operation not permitted\nlimit ! Permission denied\n"
    );
}

#[test]
fn a_network_of_ones_own_leads_nowhere_and_the_filter_stays() {
    let scene = Scene::new();
    let printed = scene.inside(
        &[],
        r"
import socket, fcntl, struct
numbers = {'x86_64': (250, 248, 430, 428, 321, 101, 304), 'aarch64': (219, 217, 430, 428, 280, 117, 265)}[os.uname().machine]
enter(NET)
attempt('listen', lambda: socket.create_server(('127.0.0.1', 80)).getsockname()[1])
s = socket.socket()
s.settimeout(2)
attempt('out', lambda: s.connect(('192.0.2.1', 80)))
for name, number in zip(('keyctl', 'add_key', 'fsopen', 'open_tree', 'bpf', 'ptrace', 'open_by_handle_at'), numbers):
    attempt(name, lambda: check(libc.syscall(number, 0, 0, 0, 0, 0)))
attempt('unix', lambda: socket.socket(socket.AF_UNIX))
attempt('netfilter', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
attempt('packets', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt('routes', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).family.name)
",
    );
    for name in [
        "out",
        "keyctl",
        "add_key",
        "fsopen",
        "open_tree",
        "bpf",
        "ptrace",
        "open_by_handle_at",
        "unix",
        "netfilter",
        "packets",
        "raw",
    ] {
        assert!(printed.contains(&format!("{name} ! ")), "{name}: {printed}");
    }
    assert!(printed.contains("routes = AF_NETLINK\n"), "{printed}");
}

#[test]
fn limits_and_the_end_of_the_run_reach_nested_sandboxes() {
    if !has_bubblewrap() {
        return;
    }
    let scene = Scene::new();
    let mark = format!("{}", 7_000_000 + std::process::id());
    let script = format!("(setsid sleep {mark} &); sleep 100");
    let wrap =
        ["--", "bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-user", "--unshare-pid"];
    let granted = ["run", "--json", "--root", "minimal", "--nested-sandboxes"];
    let output =
        scene.command(&granted).args(["--timeout", "2s"]).args(wrap).args(["sh", "-c", &script]).output().unwrap();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["outcome"], "timed_out", "{outcome}");
    let left = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        String::from_utf8_lossy(&line).contains(&mark).then_some(line)
    });
    assert_eq!(left.count(), 0, "nothing outlives the run");
    // Many processes of another user namespace count as this sandbox's.
    let many = |count: u32| {
        let script = format!("i=0; while [ $i -lt {count} ]; do sleep 1 & i=$((i+1)); done; wait; echo all");
        let output = scene
            .command(&["run", "-q", "--root", "minimal", "--nested-sandboxes", "--pids", "16"])
            .args(wrap)
            .args(["sh", "-c", &script])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(many(4), "all\n");
    assert_eq!(many(60), "");
    if !common::is_root() {
        return; // memory is sampled without a cgroup, and said to be
    }
    let fill = |mib: u32| {
        let script = format!("head -c {mib}M /dev/zero > /tmp/full; echo $?");
        let output = scene
            .command(&granted)
            .args(["--memory", "96m", "--best-effort=limits.memory_mb"])
            .args(wrap)
            .args(["--tmpfs", "/tmp", "sh", "-c", &script])
            .output()
            .unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let some = fill(8);
    assert_eq!(some["stdout"], "0\n", "{some}");
    if some["enforcement"]["limits.memory_mb"]["strength"] == "full" {
        let all = fill(400);
        assert_eq!(all["limit"], "limits.memory_mb", "{all}");
    }
}

/// What runs in a namespace of its own has the run's other programs as it had them before, and init not at all.
#[test]
fn the_process_that_keeps_the_run_is_out_of_reach_from_inside() {
    let scene = Scene::new();
    let code = r"
import signal, time
other = os.fork()
if other == 0:
    time.sleep(60); os._exit(0)
def done(act):
    check(act()); return 'done'
def tries(who, pid):
    attempt(who + ' limits', lambda: done(lambda: libc.prlimit(pid, 7, (ctypes.c_ulong * 2)(64, 64), None)))
    attempt(who + ' signal', lambda: os.kill(pid, signal.SIGTERM) or 'done')
def inner():
    enter()
    tries('init', 1)
    tries('other', other)
child(inner)
print('ended', os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
";
    let printed = scene.inside(&[], code);
    let lines: Vec<&str> = printed.lines().collect();
    let refused: Vec<&&str> = lines.iter().filter(|line| line.starts_with("init ")).collect();
    assert!(refused.len() == 2 && refused.iter().all(|line| line.ends_with(" ! Operation not permitted")), "{printed}");
    // The same on a program of the run's own works where its user may do it to its own.
    for allowed in ["other limits = done", "other signal = done", "ended -15"] {
        assert!(lines.contains(&allowed), "{allowed} in:\n{printed}");
    }
}

#[test]
fn policy_that_nested_sandboxes_could_undo_is_refused() {
    let scene = Scene::new();
    let tree = scene.text("victims");
    let policy = |process: Value, filesystem: Value| {
        let policy = json!({"version": 1, "command": {"argv": ["/bin/echo", "ran"]}, "process": process, "filesystem": filesystem});
        scene.write("policy.json", &policy.to_string());
        let output = scene.command(&["run", "--policy", "policy.json"]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned() + &text_of(&output))
    };
    let nested = || json!({"nested_sandboxes": true});
    let bind = |access: &str| json!({"type": "bind", "source": tree, "target": "/w", "access": access});
    let mounts = |access: &str| json!([bind(access)]);
    // Names that are held in a tree that can be written: by default, by deny, by a mount below it.
    for access in ["read_write", "copy_on_write"] {
        let (code, text) = policy(nested(), json!({"mounts": mounts(access)}));
        assert!(code == 125 && text.contains("a sandbox inside could move, replace or make it"), "{access}: {text}");
        assert!(text.contains("hint: mount that directory read-only, or hold nothing in it"), "{text}");
    }
    let (code, text) =
        policy(nested(), json!({"mounts": mounts("read_write"), "protected": [], "deny": ["/w/secret"]}));
    assert!(code == 125 && text.contains("/w/secret is held where /w can be written"), "{text}");
    let (code, text) = policy(nested(), json!({"mounts": mounts("read_write"), "protected": [], "deny": ["/w/new"]}));
    assert!(code == 125 && text.contains("/w/new is held where /w can be written"), "{text}");
    let below = json!([bind("read_write"), {"type": "bind", "source": format!("{tree}/below"), "target": "/w/below"}]);
    let (code, text) = policy(nested(), json!({"mounts": below, "protected": []}));
    assert!(code == 125 && text.contains("/w/below is held where /w can be written"), "{text}");
    // Controls: without the grant, without the names, without the writing.
    let (code, text) = policy(json!({}), json!({"mounts": mounts("read_write"), "deny": ["/w/secret"]}));
    assert_eq!((code, text.as_str()), (0, "ran\n"));
    let (code, text) = policy(nested(), json!({"mounts": mounts("read_write"), "protected": []}));
    assert_eq!((code, text.as_str()), (0, "ran\n"));
    let (code, text) = policy(nested(), json!({"mounts": mounts("read_only"), "deny": ["/w/secret"]}));
    assert_eq!((code, text.as_str()), (0, "ran\n"));
    // A FIFO in what is read-only could be written to, and the host's view has FIFOs of anybody's.
    let status = Command::new("mkfifo").arg(scene.path("victims/fifo")).status().unwrap();
    assert!(status.success());
    let (code, text) = policy(nested(), json!({"mounts": mounts("read_only")}));
    assert!(code == 125 && text.contains("filesystem.mounts only in part"), "{text}");
    assert!(text.contains("victims/fifo in it is a FIFO, which can be written to"), "{text}");
    let (code, text) = policy(json!({}), json!({"mounts": mounts("read_only")}));
    assert_eq!((code, text.as_str()), (0, "ran\n"));
    let (code, text) = policy(nested(), json!({"root": "host"}));
    assert!(code == 125 && text.contains("filesystem.root only in part"), "{text}");
    // Other backends, other levels.
    for (process, word) in [
        (json!({"nested_sandboxes": true, "spawn": false}), "process.spawn is false"),
        (json!({"nested_sandboxes": true, "seccomp": {"level": "strict"}}), "`strict` has not"),
        (json!({"nested_sandboxes": true, "seccomp": {"level": "disabled"}}), "a filter that keeps the rest"),
    ] {
        let (code, text) = policy(process, json!({}));
        assert!(code == 125 && text.contains(word), "{text}");
    }
    let refused = scene
        .command(&["run", "--nested-sandboxes", "--root", "minimal", "--backend", "landlock", "--", "true"])
        .output()
        .unwrap();
    assert!(text_of(&refused).contains("process.nested_sandboxes"), "{}", text_of(&refused));
}

#[test]
fn the_outcome_says_what_room_inside_costs() {
    let scene = Scene::new();
    let outcome = |options: &[&str]| {
        let mut command = scene.command(&["run", "--json", "--root", "minimal"]);
        serde_json::from_slice::<Value>(&command.args(options).args(["--", "true"]).output().unwrap().stdout).unwrap()
    };
    let (plain, nested) = (outcome(&[]), outcome(&["--nested-sandboxes"]));
    let counted = has("cgroup memory");
    let reason = |outcome: &Value, field: &str| outcome["enforcement"][field]["reason"].as_str().unwrap().to_owned();
    for (field, word) in [
        ("process.nested_sandboxes", "no second layer stands behind the mounts"),
        ("process.seccomp", "the calls that make a sandbox"),
        ("filesystem.root", "behind Landlock no sandbox could be made"),
        // Without a cgroup the supervisor counts what is mapped, and no file in memory.
        ("limits.tmpfs_mb", if counted { "bounded by limits.memory_mb alone" } else { "nothing bounds file systems" }),
        ("limits.memory_mb", if counted { "networks that sandboxes inside make" } else { "make are not counted" }),
    ] {
        assert!(reason(&nested, field).contains(word), "{field}: {nested:#}");
        assert!(!reason(&plain, field).contains(word), "{field}: {plain:#}");
    }
    assert_eq!(nested["enforcement"]["limits.tmpfs_mb"]["strength"], "partial");
    assert_eq!((&nested["violations_complete"], &nested["outcome"]), (&json!(false), &json!("exited")));
}
