//! The memory limit: of the whole tree, and with it what the kernel keeps that no cgroup counts.

use super::*;

const EAT: &str = "
import os, sys, time
n, mb = int(sys.argv[1]), int(sys.argv[2])
kids = []
for i in range(n):
    pid = os.fork()
    if pid == 0:
        block = bytearray(os.urandom(4096)) * (mb * 256)
        time.sleep(1)
        os._exit(0)
    kids.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(k, 0)[1]) != 0 for k in kids))
";

#[test]
fn memory_counts_for_the_whole_tree() {
    let eat = |count: &str, mb: &str| {
        program(&["--memory", "128m", "--best-effort", "--timeout", "30s"], &[PYTHON, "-c", EAT, count, mb])
    };
    let o = eat("4", "60");
    ended(&o, "limit_exceeded", Some("limits.memory_mb"));
    let v = common::violations(&o);
    assert!(v.iter().any(|v| v.0 == "limits.memory_mb" && v.2 == "$.limits.memory_mb"), "{v:?}");
    let o = eat("3", "20");
    ended(&o, "exited", None);
    assert_eq!(o["exit_code"], 0);
    if needs("cgroup memory") {
        let peak = o["memory_used_bytes"].as_u64().unwrap();
        assert!((60 << 20..128 << 20).contains(&peak), "{peak}");
    }
}

#[test]
fn a_memory_bomb_ends_at_once_and_takes_no_more_than_its_limit() {
    let bomb = "x = []\nwhile True: x.append(bytearray(8 << 20))";
    let o = program(&["--memory", "64m", "--best-effort", "--timeout", "30s"], &[PYTHON, "-c", bomb]);
    ended(&o, "limit_exceeded", Some("limits.memory_mb"));
    if needs("cgroup memory") {
        assert!(o["memory_used_bytes"].as_u64().unwrap() <= 64 << 20, "{o:#}");
        assert_eq!(o["enforcement"]["limits.memory_mb"]["strength"], "full");
    }
}

#[test]
fn uncharged_kernel_memory_is_bounded() {
    // Access control lists of 100 entries and of 20; a NUMA policy for a page of memory.
    let code = "
import ctypes, mmap, os, struct
def acl(entries):
    middle = b''.join(struct.pack('<HHI', 2, 7, os.getuid()) for _ in range(entries))
    ends = [struct.pack('<HHI', tag, 5, 0xffffffff) for tag in (1, 4, 16, 32)]
    return struct.pack('<I', 2) + ends[0] + middle + b''.join(ends[1:])
os.mkdir('/tmp/d')
for entries in (20, 100):
    for name in ('access', 'default'):
        try:
            os.setxattr('/tmp/d', 'system.posix_acl_' + name, acl(entries))
            print(entries, name, 'set')
        except OSError as e:
            print(entries, name, e.errno)
page = mmap.mmap(-1, 4096, mmap.MAP_SHARED)
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
mask = ctypes.c_ulong(1)
libc = ctypes.CDLL(None, use_errno=True)
number = {'x86_64': 237, 'aarch64': 235}[os.uname().machine]
print('mbind', libc.syscall(number, ctypes.c_void_p(at), 4096, 2, ctypes.byref(mask), 65, 0), ctypes.get_errno())
";
    let o = program(&["--timeout", "20s"], &[PYTHON, "-c", code]);
    ended(&o, "exited", None);
    assert_eq!(o["stdout"], "20 access set\n20 default set\n100 access 7\n100 default 7\nmbind -1 1\n", "{o:#}");
}

/// Lists a copy-on-write directory of many names, after each change anew, through descriptors that stay open in one way or
/// another: overlayfs keeps the names for each of them.
const NAMES: &str = "
import ctypes, fcntl, os, socket, sys, threading, time
mode = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
os.chdir('/d')
here = os.open('.', os.O_RDONLY)
held = []
def name(i): return '%06d' % i + 'a' * 244
def make():
    for i in range(4000): os.close(os.open(name(i), os.O_CREAT | os.O_WRONLY, 0o600))
def listed():
    os.fchmod(here, 0o700)
    t = 't%d-%d' % (os.getpid(), threading.get_native_id())
    os.close(os.open(t, os.O_CREAT | os.O_WRONLY, 0o600)); os.unlink(t)
    d = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
    with os.scandir(d) as names: next(names, None)
    return d
if mode == 'removed':
    for n in os.listdir('.'): os.unlink(n)
else:
    make()
if mode == 'hidden among others':
    null = os.open('/dev/null', os.O_RDONLY)
    for _ in range(20):
        if os.fork() == 0:
            others = [os.dup(null) for _ in range(1000)]
            time.sleep(60)
if mode == 'undumpable': assert libc.prctl(4, 0, 0, 0, 0) == 0
if mode == 'threads':
    ready = threading.Semaphore(0)
    def work():
        if libc.unshare(0x400): os._exit(3)
        mine = [listed() for _ in range(15)]
        ready.release(); time.sleep(60)
    for _ in range(10): threading.Thread(target=work).start()
    for _ in range(10): ready.acquire()
elif mode == 'processes':
    ends = []
    for _ in range(10):
        r, w = os.pipe(); ends.append(r)
        if os.fork() == 0:
            mine = [listed() for _ in range(15)]
            os.write(w, b'x'); time.sleep(60)
        os.close(w)
    for r in ends: os.read(r, 1)
elif mode == 'locked':
    fcntl.flock(here, fcntl.LOCK_EX)
    for _ in range(100):
        d = listed()
        threading.Thread(target=lambda d=d: fcntl.flock(d, fcntl.LOCK_EX)).start()
        time.sleep(0.005); os.close(d)
elif mode == 'sent':
    a, b = socket.socketpair()
    for _ in range(15):
        c, d = socket.socketpair()
        for _ in range(10):
            e = listed(); socket.send_fds(c, [b'x'], [e]); os.close(e)
        socket.send_fds(a, [b'x'], [c.fileno(), d.fileno()]); c.close(); d.close()
else:
    for _ in range(150):
        d = listed()
        if mode == 'forbidden': os.fchmod(here, 0)
        if mode == 'closed': os.close(d)
        else: held.append(d)
time.sleep(0.5)
print('done', flush=True)
os._exit(0)
";

#[test]
fn names_that_overlayfs_keeps_count_as_memory() {
    let dir = common::open_directory();
    let dir = dir.path();
    let named = |mode: &str, memory: &str| {
        let lower = dir.join(mode);
        std::fs::create_dir_all(&lower).unwrap();
        if mode == "removed" {
            for i in 0..4000 {
                std::fs::write(lower.join(format!("{i:06}{}", "a".repeat(244))), "").unwrap();
            }
        }
        let volume = format!("{}:/d:cow", lower.display());
        program(&["--memory", memory, "--best-effort", "--timeout", "60s", "-v", &volume], &[PYTHON, "-c", NAMES, mode])
    };
    // 150 times 4000 names of 512 bytes.
    let modes = ["kept", "removed", "threads", "processes", "sent", "undumpable", "forbidden", "locked"];
    for (mode, memory) in modes.map(|mode| (mode, "64m")).into_iter().chain([("hidden among others", "128m")]) {
        let o = named(mode, memory);
        assert_eq!(
            (&o["outcome"], &o["limit"]),
            (&"limit_exceeded".into(), &"limits.memory_mb".into()),
            "{mode}: {o:#}"
        );
    }
    for (mode, memory) in [("closed", "64m"), ("kept", "1g")] {
        let o = named(mode, memory);
        assert_eq!((&o["outcome"], &o["stdout"]), (&"exited".into(), &"done\n".into()), "{mode}: {o:#}");
    }
}

#[test]
fn names_that_ext4_keeps_count_as_memory() {
    const EXT4: i64 = 0xef53;
    let dir = common::open_directory();
    let dir = dir.path();
    if rustix::fs::statfs(dir).unwrap().f_type != EXT4 {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "{} is on no ext4", dir.display());
        eprintln!("skipped: {} is on no ext4", dir.display());
        return;
    }
    for i in 0..2000 {
        std::fs::write(dir.join(format!("name-{i}")), "").unwrap();
    }
    // 10 times 1000 descriptors, each with the rest of a block of names: about 10 KiB.
    let code = "
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(200)
number = {'x86_64': 217, 'aarch64': 61}[os.uname().machine]
ends = []
for _ in range(10):
    r, w = os.pipe(); ends.append(r)
    if os.fork() == 0:
        held = [os.open(sys.argv[1], os.O_RDONLY) for _ in range(1000)]
        if sys.argv[2] == 'listed':
            for d in held: assert libc.syscall(number, d, buffer, 200) > 0
        os.write(w, b'x'); time.sleep(60)
    os.close(w)
for r in ends: assert os.read(r, 1) == b'x'
time.sleep(0.5)
print('done')
";
    let here = dir.to_str().unwrap();
    let volume = format!("{here}:{here}:ro");
    let options = ["--memory", "64m", "--best-effort", "--timeout", "60s", "-v", volume.as_str()];
    let o = program(&options, &[PYTHON, "-c", code, here, "listed"]);
    ended(&o, "limit_exceeded", Some("limits.memory_mb"));
    let o = program(&options, &[PYTHON, "-c", code, here, "open"]);
    assert_eq!((&o["outcome"], &o["stdout"]), (&"exited".into(), &"done\n".into()), "{o:#}");
}
