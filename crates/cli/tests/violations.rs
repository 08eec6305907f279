//! The violations in an outcome, for each mechanism, and their evidence. docs/evidence.md is the table of these.

mod common;

use std::time::{Duration, Instant};

use common::{PYTHON, code_and_stderr, cofferdam, open_directory, outcome, outcome_of, violations};
use serde_json::Value;

/// Tries one dangerous thing per line and prints the errno.
const TRIES: &str = "
import ctypes, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == 'x86_64'
def call(name, *args):
    ctypes.set_errno(0)
    print(name, ctypes.get_errno() if getattr(libc, name)(*args) < 0 else 0)
def family(number, kind=socket.SOCK_STREAM, protocol=0):
    try:
        socket.socket(number, kind, protocol); print('family', number, kind, 0)
    except OSError as e: print('family', number, kind, e.errno)
call('ptrace', 16, os.getppid(), 0, 0)
call('mount', b'none', b'/tmp', b'tmpfs', 0, None)
call('umount2', b'/proc', 2)
call('unshare', 0x10000000)
call('setns', 0, 0)
call('syscall', 250 if x86 else 219, 0, -3)
call('syscall', 321 if x86 else 280, 0, 0, 0)
call('chmod', b'/tmp', 0o4755)
call('mknod', b'/tmp/device', 0o020666, 0x103)
family(17, socket.SOCK_RAW); family(40); family(16, socket.SOCK_RAW, 9); family(2, socket.SOCK_RAW, 1); family(38, 5)
";

#[track_caller]
fn expect(found: &[(String, String, String, String)], operation: &str, object: &str, field: &str, evidence: &str) {
    let wanted = found.iter().any(|v| v.0 == operation && v.1.contains(object) && v.2 == field && v.3 == evidence);
    assert!(wanted, "{operation} {object} {field} {evidence}: {found:#?}");
}

#[test]
fn seccomp_refusals_are_reported_with_kernel_evidence() {
    let always: &[(&str, &str)] = &[
        ("chmod", "/tmp"),
        ("mknodat", "/tmp/device"),
        ("socket", "AF_PACKET, SOCK_RAW"),
        ("socket", "AF_VSOCK, SOCK_STREAM"),
        ("socket", "AF_NETLINK, SOCK_RAW, protocol 9"),
        ("socket", "AF_INET, SOCK_RAW, protocol 1"),
        ("socket", "AF_ALG, SOCK_SEQPACKET"),
    ];
    let from_basic: &[(&str, &str)] =
        &[("ptrace", ""), ("mount", ""), ("umount2", ""), ("unshare", "flags 0x10000000"), ("keyctl", ""), ("bpf", "")];
    for level in ["disabled", "basic", "standard", "strict"] {
        let o = outcome(&["run", "--json", "--seccomp", level, "--", PYTHON, "-c", TRIES]).1;
        let found = violations(&o);
        let expected = always.iter().chain(if level == "disabled" { &[] } else { from_basic });
        for (operation, object) in expected {
            // Netlink is what libc asks for by itself, so where no socket is allowed at all it is not worth telling.
            if level == "strict" && object.starts_with("AF_NETLINK") {
                continue;
            }
            let known = found.iter().any(|v| v.0 == *operation && v.1.contains(object));
            assert!(known, "{level}: {operation} {object}: {found:#?}");
        }
        assert!(found.iter().all(|v| v.2 == "$.process.seccomp.level" && v.3 == "kernel"), "{level}: {found:#?}");
        assert_eq!(o["violations_complete"], false, "without --trace paths are missing");
        assert_eq!(o["exit_code"], 0, "{o:#}");
    }
}

#[test]
fn an_owner_that_comes_to_read_late_misses_nothing() {
    use rustix::process::{Pid, Signal, kill_process};
    // More than the socket of events holds, and a refusal at their end.
    let script = "import ctypes, os, time\ntime.sleep(1)\n\
                  for i in range(2000):\n try: os.open('/none/' + 'x' * 200 + str(i), 0)\n except OSError: pass\n\
                  ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)";
    for options in [&["--trace"][..], &["--trace", "--on-violation", "terminate"]] {
        let mark = common::marker();
        let mut command = cofferdam();
        command.args(["run", "--json", "-w", "/"]).args(options).args(["--", PYTHON, "-c", script, &mark]);
        let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let owner = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        common::eventually("the program runs", Duration::from_secs(20), || common::carrying(&mark).len() > 1);
        std::thread::sleep(Duration::from_millis(700));
        kill_process(owner, Signal::STOP).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        kill_process(owner, Signal::CONT).unwrap();
        let o = common::parse(&child.wait_with_output().unwrap());
        expect(&violations(&o), "ptrace", "", "$.process.seccomp.level", "kernel");
        let ended = if options.len() > 1 { "violation" } else { "exited" };
        assert_eq!((&o["outcome"], &o["violations_complete"]), (&ended.into(), &true.into()), "{o:#}");
    }
}

#[test]
fn each_part_of_the_policy_that_refuses_a_call_is_named() {
    let spawns = "import os\ntry: os.fork()\nexcept OSError as e: print(e.errno)";
    let o = outcome(&["run", "--json", "--no-spawn", "--", PYTHON, "-c", spawns]).1;
    expect(&violations(&o), "clone", "", "$.process.spawn", "kernel");
    assert_eq!(o["stdout"], "1\n", "{o:#}");

    let o = outcome(&[
        "run",
        "--json",
        "--syscall-rule",
        "getppid:EXDEV",
        "--",
        PYTHON,
        "-c",
        "import os; print(os.getppid())",
    ])
    .1;
    expect(&violations(&o), "getppid", "", "$.process.seccomp.rules[0]", "kernel");

    let socket = "import socket\ntry: socket.socket()\nexcept OSError as e: print(e.errno)";
    let options = ["--backend", "landlock", "--best-effort=filesystem,process,limits", "--root", "minimal", "-w", "/"];
    let o = outcome(&[&["run", "--json"], &options[..], &["--", PYTHON, "-c", socket]].concat()).1;
    expect(&violations(&o), "socket", "AF_INET, SOCK_STREAM", "$.network.mode", "kernel");
}

#[test]
fn kill_rule_and_forged_signal_are_reported_as_inferred() {
    let killed = outcome(&[
        "run",
        "--json",
        "--trace",
        "--syscall-rule",
        "getppid:kill",
        "--",
        PYTHON,
        "-c",
        "import os; os.getppid()",
    ])
    .1;
    let forged = outcome(&["run", "--json", "--trace", "--", "sh", "-c", "kill -SYS $$"]).1;
    for o in [killed, forged] {
        assert_eq!((&o["outcome"], &o["signal"]), (&"signalled".into(), &31.into()), "{o:#}");
        let found = violations(&o);
        expect(&found, "SIGSYS", "", "$.process.seccomp", "inferred");
        assert!(found.iter().all(|v| v.3 != "kernel"), "{found:?}");
        assert_eq!(o["violations_complete"], false);
    }
}

#[test]
fn trace_reports_denied_reads_and_writes_with_paths() {
    let directory = open_directory();
    let file = directory.path().join("secret");
    std::fs::write(&file, "x").unwrap();
    let (file, directory) = (file.to_str().unwrap(), directory.path().to_str().unwrap());
    let code = format!(
        "cat {file}; ls {directory}/later; echo x > /etc/new; rm /etc/passwd; mkdir /usr/new; ln -s /x /usr/link; \
         mv /etc/hosts /tmp/h; chmod 777 /usr/bin/env; touch /etc/hostname; cd /etc; echo x > relative; \
         cat < /etc/passwd > /tmp/copy; cat /no/such/file; echo y > /tmp/ok; mkdir -p /tmp/d; rm -r /tmp/d; true"
    );
    let later = format!("{directory}/later");
    let options = ["run", "--json", "--trace", "-w", "/", "--deny", file, "--deny", &later, "-v"];
    let volume = format!("{directory}:{directory}");
    let arguments = [&options[..], &[&volume, "--", "sh", "-c", &code]].concat();
    let o = outcome(&arguments).1;
    let found = violations(&o);
    let read_only = "$.filesystem.mounts";
    for (operation, object, field) in [
        ("openat", file, "$.filesystem.deny"),
        ("statx", &later, "$.filesystem.deny"),
        ("openat", "/etc/new", read_only),
        ("unlinkat", "/etc/passwd", read_only),
        ("mkdir", "/usr/new", read_only),
        ("symlinkat", "/usr/link", read_only),
        ("fchmodat", "/usr/bin/env", read_only),
        ("openat", "/etc/hostname", read_only),
        ("openat", "/etc/relative", read_only),
    ] {
        expect(&found, operation, object, field, "argument_as_read");
    }
    assert!(found.iter().any(|v| v.0.starts_with("rename") && v.1 == "/etc/hosts"), "{found:#?}");
    let allowed = |v: &&(String, String, String, String)| v.1.starts_with("/tmp/") && !v.1.starts_with(directory);
    assert_eq!(found.iter().find(allowed), None, "what is allowed is no violation");
    assert!(!found.iter().any(|v| v.1 == "/x" || v.1.starts_with("/no/such")), "{found:#?}");
    assert_eq!(o["violations_complete"], true);

    let untraced = arguments.iter().copied().filter(|a| *a != "--trace").collect::<Vec<_>>();
    let o = outcome(&untraced).1;
    assert!(violations(&o).iter().all(|v| v.3 != "argument_as_read"), "paths are reported only by a trace");
    assert_eq!(o["violations_complete"], false);
}

#[test]
fn a_trace_reports_attributes_and_watches_by_path() {
    let directory = open_directory();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (denied, allowed) = (at("secret"), at("allowed"));
    for name in [&denied, &allowed] {
        std::fs::write(name, "x").unwrap();
    }
    // The last five numbers are the same on every architecture; a kernel without the call is asked all the same.
    let code = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
value = ctypes.create_string_buffer(64)
arguments = struct.pack('QII', ctypes.addressof(value), 1, 0)
def attempt(f):
    try: f()
    except OSError: pass
for path in sys.argv[1:]:
    p, at = path.encode(), ctypes.c_long(-100)
    attempt(lambda: os.getxattr(path, 'user.a')); attempt(lambda: os.listxattr(path))
    attempt(lambda: os.setxattr(path, 'user.a', b'x')); attempt(lambda: os.removexattr(path, 'user.a'))
    libc.inotify_add_watch(libc.inotify_init(), p, 1)
    libc.syscall(463, at, p, 0, b'user.a', arguments, 16); libc.syscall(464, at, p, 0, b'user.a', arguments, 16)
    libc.syscall(465, at, p, 0, value, 64); libc.syscall(466, at, p, 0, b'user.a')
    libc.syscall(468, at, p, value, 24, 0); libc.syscall(469, at, p, value, 24, 0)
"#;
    let volume = format!("{0}:{0}:rw", directory.path().to_str().unwrap());
    let options = ["run", "--json", "--trace", "-w", "/", "--deny", &denied, "-v", &volume, "--", PYTHON, "-c", code];
    let o = outcome(&[&options[..], &[&denied, &allowed, "/etc/passwd"]].concat()).1;
    let found = violations(&o);
    // The filter has no setxattrat: the size of its value lies behind a pointer.
    assert!(!found.iter().any(|v| v.0 == "setxattrat"), "{found:#?}");
    let changes = ["setxattr", "removexattr", "removexattrat", "file_setattr"];
    let looks = ["getxattr", "listxattr", "inotify_add_watch", "getxattrat", "listxattrat", "file_getattr"];
    for operation in changes {
        expect(&found, operation, &denied, "$.filesystem.deny", "argument_as_read");
        expect(&found, operation, "/etc/passwd", "$.filesystem.mounts", "argument_as_read");
    }
    for operation in looks {
        expect(&found, operation, &denied, "$.filesystem.deny", "argument_as_read");
        assert!(!found.iter().any(|v| v.0 == operation && v.1 == "/etc/passwd"), "{operation} may look: {found:#?}");
    }
    assert!(!found.iter().any(|v| v.1 == allowed), "what is allowed is no violation: {found:#?}");
    assert_eq!(o["violations_complete"], true);
}

#[test]
fn a_trace_follows_links_to_what_they_name() {
    let code = "ln -s /etc /tmp/e; echo x > /tmp/e/through; ln -s /etc/passwd /tmp/p; echo x > /tmp/p; rm /tmp/p; \
                ln -s /etc/shadow- /tmp/s; chmod 600 /tmp/s; cd /tmp/e; echo x > here; true";
    let o = outcome(&["run", "--json", "--trace", "-w", "/", "--", "sh", "-c", code]).1;
    let found = violations(&o);
    for path in ["/etc/through", "/etc/passwd", "/etc/here"] {
        expect(&found, "openat", path, "$.filesystem.mounts", "argument_as_read");
    }
    assert!(found.iter().all(|v| !v.0.contains("unlink")), "removing the link itself is allowed: {found:#?}");
}

#[test]
fn refused_writes_to_protected_names_are_reported() {
    let directory = open_directory();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let path = directory.path().to_str().unwrap();
    let code = "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; mkdir .git; echo x > .git/config; true";
    let volume = format!("{path}:{path}:cow");
    let o = outcome(&["run", "--json", "--protect", ".git/hooks", "-v", &volume, "-w", path, "--", "sh", "-c", code]).1;
    let found = violations(&o);
    assert!(found.iter().any(|v| v.1.contains(".git") && v.2 == "$.filesystem.protected"), "{found:#?}\n{o:#}");
}

#[test]
fn guarded_name_is_reported_with_its_policy_line() {
    let directory = open_directory();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let code = r#"
import os, socket
os.chdir(os.sys.argv[1])
open('here', 'w').close()
for name in ('later', 'kept'):
    for make in (lambda: open(name, 'w'), lambda: os.mkdir(name), lambda: os.symlink('here', name),
                 lambda: os.rename('here', name), lambda: os.link('here', name),
                 lambda: os.rename(name, 'away'), lambda: os.mkfifo(os.getcwd() + '/' + name)):
        try: make(); print('made', name)
        except OSError as e: print(e.errno)
os.rename('here', 'allowed'); os.mkdir('also'); os.symlink('later', 'link')
os.remove('allowed'); os.rmdir('also'); os.remove('link')
"#;
    let path = directory.path().to_str().unwrap();
    let volume = format!("{path}:{path}:rw");
    let (deny, protect) = (format!("{path}/later"), format!("{path}/kept"));
    let options = ["run", "--json", "--deny", &deny, "--protect", &protect, "-v", &volume, "-w", path];
    for trace in [&[][..], &["--trace"]] {
        let o = outcome(&[&options[..], trace, &["--", PYTHON, "-c", code, path]].concat()).1;
        assert!(o["exit_code"] == 0 && !o["stdout"].as_str().unwrap().contains("made"), "{o:#}");
        let found = violations(&o);
        let x86 = cfg!(target_arch = "x86_64");
        for (object, field) in [(&deny, "$.filesystem.deny"), (&protect, "$.filesystem.protected")] {
            let rename = if x86 { "rename" } else { "renameat" };
            for operation in ["openat", "mkdir", "symlink", rename, "link", "mknod"] {
                let message = found.iter().any(|v| v.0.starts_with(operation) && v.1 == *object && v.2 == field);
                assert!(message, "{operation} {object}: {found:#?}");
            }
        }
        let wrong = |v: &&(String, String, String, String)| {
            v.1 == deny && v.2 != "$.filesystem.deny" || v.1.contains("allowed") || v.1.contains("also")
        };
        assert_eq!(found.iter().find(wrong), None, "{found:#?}");
    }
}

/// Asks for addresses on every way there is, each with an errno or `ok`.
const SENDS: &str = r#"
import ctypes, errno, socket, sys
S, D = socket.SOCK_STREAM, socket.SOCK_DGRAM
def tries(name, *steps):
    try:
        for step in steps: step()
        print(name, 'ok', flush=True)
    except OSError as e: print(name, errno.errorcode[e.errno], flush=True)
def new(kind, family=socket.AF_INET): return socket.socket(family, kind)
address = (sys.argv[1], int(sys.argv[2]))
tries('connect', lambda: new(S).connect(address))
tries('datagram', lambda: new(D).connect(address))
tries('sendto', lambda: new(D).sendto(b'x', address))
tries('sendmsg', lambda: new(D).sendmsg([b'x'], [], 0, address))
tries('fastopen', lambda: new(S).sendto(b'x', 0x20000000, address))
tries('bind', lambda: new(D).bind(address))
tries('six', lambda: new(D, socket.AF_INET6).sendto(b'x', ('2001:db8::1', 9)))
tries('be six', lambda: new(D, socket.AF_INET6).bind(('2001:db8::1', 9)))
tries('any', lambda: new(D).bind(('0.0.0.0', 0)))
tries('listen', lambda: new(S).bind(('0.0.0.0', 0)))
class Mmsg(ctypes.Structure):
    _fields_ = [('name', ctypes.c_void_p), ('namelen', ctypes.c_uint), ('iov', ctypes.c_void_p), ('iovlen', ctypes.c_size_t),
                ('control', ctypes.c_void_p), ('controllen', ctypes.c_size_t), ('flags', ctypes.c_int), ('sent', ctypes.c_uint)]
raw = socket.AF_INET.to_bytes(2, sys.byteorder) + address[1].to_bytes(2, 'big') + socket.inet_aton(address[0]) + bytes(8)
text = ctypes.create_string_buffer(raw, 16)
messages = (Mmsg * 1)(Mmsg(ctypes.addressof(text), 16))
libc = ctypes.CDLL(None, use_errno=True)
s = new(D)
n = libc.sendmmsg(s.fileno(), messages, 1, 0)
print('sendmmsg', 'ok' if n == 1 else errno.errorcode[ctypes.get_errno()])
import threading
t = threading.Thread(target=lambda: tries('thread', lambda: new(S, socket.AF_INET6).connect(('2001:db8::2', 9))))
t.start(); t.join()
tries('closed', lambda: socket.socket(fileno=999))
libc.connect(999, text, 16); libc.connect(0, text, 16); libc.connect(s.fileno(), None, 16)
a, b = socket.socketpair()
a.sendmsg([b'pair']); assert b.recv(9) == b'pair'
"#;

#[test]
fn trace_reports_addresses_that_the_network_refuses() {
    let trace = ["run", "--json", "--trace", "--", PYTHON, "-c", SENDS];
    let field = "$.network.mode";
    for (mode, address, refused) in [
        ("none", "192.0.2.1", true),
        ("none", "127.0.0.1", true),
        ("loopback", "192.0.2.1", true),
        ("loopback", "127.0.0.1", false),
    ] {
        let mut command = cofferdam();
        command.args(["run", "--network", mode]);
        let o = outcome_of(&mut command, &[&trace[1..], &[address, "4443"]].concat()).1;
        assert_eq!((&o["exit_code"], &o["violations_complete"]), (&0.into(), &true.into()), "{o:#}");
        let (out, found) = (o["stdout"].as_str().unwrap(), violations(&o));
        let count_of = |operation: &str, object: &str| {
            let same = |v: &&(String, String, String, String)| v.0 == operation && v.1 == object && v.2 == field;
            let list = o["violations"].as_array().unwrap();
            let at = found.iter().position(|v| same(&v))?;
            assert_eq!(found[at].3, "argument_as_read");
            list[at]["count"].as_u64()
        };
        let object = format!("{address}:4443");
        // Twice by stream and datagram, once each; on the loopback itself nothing is refused.
        let count = |n| refused.then_some(n);
        assert_eq!(count_of("connect", &object), count(2), "{mode} {out} {found:#?}");
        assert_eq!(count_of("sendto", &object), count(2), "{mode} {out} {found:#?}");
        assert_eq!(count_of("sendmsg", &object), count(1), "{mode} {out} {found:#?}");
        assert_eq!(count_of("sendmmsg", &object), count(1), "{mode} {out} {found:#?}");
        assert_eq!(count_of("bind", &object).is_some(), out.contains("bind E"), "{mode} {out} {found:#?}");
        assert_eq!(count_of("bind", "[2001:db8::1]:9"), Some(1), "{mode} {out} {found:#?}");
        assert_eq!(count_of("sendto", "[2001:db8::1]:9"), Some(1), "{mode} {out} {found:#?}");
        assert_eq!(count_of("connect", "[2001:db8::2]:9"), Some(1), "{mode} {out} {found:#?}");
        assert_eq!(count_of("bind", "0.0.0.0:0").is_some(), !out.contains("listen ok"), "{mode} {out} {found:#?}");
        // What is reported was refused, and what was not refused is not reported.
        for way in ["connect", "datagram", "sendto", "sendmsg", "sendmmsg", "fastopen"] {
            let reached = out.contains(&format!("{way} ok")) || out.contains(&format!("{way} ECONNREFUSED"));
            assert_eq!(reached, !refused, "{mode} {address} {way}: {out}");
        }
        assert!(out.contains("six E") && out.contains("be six E") && out.contains("any ok"), "{out}");
        let about_network = found.iter().filter(|v| v.2 == field).count();
        let binds = usize::from(out.contains("bind E")) + usize::from(out.contains("listen E"));
        assert_eq!(about_network, if refused { 7 } else { 3 } + binds, "{out} {found:#?}");
    }
    // Without a trace, paths are not examined, and of the calls that name an address connect alone.
    for (mode, address, refused) in [
        ("none", "192.0.2.1", true),
        ("none", "127.0.0.1", true),
        ("loopback", "192.0.2.1", true),
        ("loopback", "127.0.0.1", false),
    ] {
        let o = outcome(&["run", "--json", "--network", mode, "--", PYTHON, "-c", SENDS, address, "4443"]).1;
        let mut expected = vec!["[2001:db8::2]:9".to_owned()];
        expected.extend(refused.then(|| format!("{address}:4443")));
        let found = violations(&o);
        let mut objects: Vec<_> = found.iter().map(|v| v.1.clone()).collect();
        objects.sort();
        expected.sort();
        assert_eq!((objects, &o["violations_complete"]), (expected, &false.into()), "{mode} {address} {found:#?}");
        assert!(found.iter().all(|v| v.0 == "connect" && v.2 == field && v.3 == "argument_as_read"), "{found:#?}");
    }
    // Where names are guarded, init binds for the program: the same holds.
    let directory = open_directory();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let path = directory.path().to_str().unwrap();
    let volume = format!("{path}:{path}:rw");
    let guards =
        ["run", "--json", "--trace", "-v", &volume, "-w", path, "--", PYTHON, "-c", SENDS, "192.0.2.1", "4443"];
    let o = outcome(&guards).1;
    let (out, found) = (o["stdout"].as_str().unwrap(), violations(&o));
    expect(&found, "bind", "[2001:db8::1]:9", field, "argument_as_read");
    let listens = found.iter().any(|v| v.0 == "bind" && v.1 == "0.0.0.0:0");
    assert_eq!(listens, !out.contains("listen ok"), "{out} {found:#?}");
    assert!(out.contains("any ok"), "{out}");
}

#[test]
fn traced_run_ends_at_refused_connection_not_at_libc_probes() {
    let terminate = ["run", "--json", "--trace", "--on-violation", "terminate"];
    let python = |options: &[&str], code| outcome(&[&terminate[..], options, &["--", PYTHON, "-c", code]].concat());
    let connect = r#"
import socket
print('before', flush=True)
try: socket.create_connection(('192.0.2.1', 443), 2)
except OSError: pass
print('after')
"#;
    let (exit, o) = python(&[], connect);
    assert_eq!((exit, &o["outcome"], &o["stdout"]), (137, &"violation".into(), &"before\n".into()), "{o:#}");
    expect(&violations(&o), "connect", "192.0.2.1:443", "$.network.mode", "argument_as_read");
    let names = r#"
import socket
try: socket.getaddrinfo('localhost', 80)
except OSError: pass
print('after')
"#;
    let (exit, o) = python(&[], names);
    assert_eq!((exit, &o["stdout"]), (0, &"after\n".into()), "{o:#}");
    let inside = r#"
import socket
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname())
c.sendall(b'x'); print(s.accept()[0].recv(1))
"#;
    let (exit, o) = python(&["--network", "loopback"], inside);
    assert_eq!(
        (exit, &o["stdout"], violations(&o)),
        (
            0,
            &"b'x'
"
            .into(),
            Vec::new()
        ),
        "{o:#}"
    );
}

/// Where there is no network, what ends a run without a trace is to name an address, and not to make a socket.
#[test]
fn making_a_socket_ends_no_run_and_reaching_for_an_address_does() {
    let run = |code: &str| outcome(&["run", "--json", "--on-violation", "terminate", "--", PYTHON, "-c", code]);
    let harmless = r#"
import socket, uuid
uuid.uuid1()
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM): socket.socket(family, kind)
# As urllib3 looks for IPv6 when it is imported.
try: socket.socket(socket.AF_INET6).bind(('::1', 0))
except OSError: pass
try: socket.getaddrinfo('localhost', 80)
except OSError: pass
socket.if_nameindex()
a, b = socket.socketpair(); a.sendmsg([b'x']); b.recv(1)
print('after')
"#;
    let (exit, o) = run(harmless);
    assert_eq!((exit, &o["stdout"], violations(&o)), (0, &"after\n".into(), Vec::new()), "{o:#}");
    for (attempt, operation, object) in [
        ("socket.create_connection(('192.0.2.1', 443), 2)", "connect", "192.0.2.1:443"),
        ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))", "sendto", "192.0.2.1:9"),
        (
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('192.0.2.1', 9))",
            "sendmsg",
            "192.0.2.1:9",
        ),
        ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.53', 53))", "connect", "192.0.2.53:53"),
        ("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).bind(('2001:db8::1', 9))", "bind", "[2001:db8::1]:9"),
    ] {
        let code =
            format!("import socket\nprint('before', flush=True)\ntry: {attempt}\nexcept OSError: pass\nprint('after')");
        let (exit, o) = run(&code);
        assert_eq!(
            (exit, &o["outcome"], &o["stdout"]),
            (137, &"violation".into(), &"before\n".into()),
            "{attempt} {o:#}"
        );
        expect(&violations(&o), operation, object, "$.network.mode", "argument_as_read");
    }
}

#[test]
fn terminate_ends_the_run_at_the_first_violation() {
    let start = Instant::now();
    let code = "import ctypes, time\nprint('before', flush=True)\nctypes.CDLL(None).ptrace(16, 1, 0, 0)\nprint('after', flush=True)\ntime.sleep(50)";
    let (exit, o) = outcome(&["run", "--json", "--on-violation", "terminate", "--", PYTHON, "-c", code]);
    assert_eq!((exit, &o["outcome"], &o["stdout"]), (137, &"violation".into(), &"before\n".into()), "{o:#}");
    expect(&violations(&o), "ptrace", "", "$.process.seccomp.level", "kernel");
    assert!(start.elapsed() < Duration::from_secs(10));
    // In a child it is the whole run as well.
    let code = "import ctypes, os, time\nif os.fork() == 0: ctypes.CDLL(None).ptrace(16, 1, 0, 0)\ntime.sleep(50)";
    let (exit, o) = outcome(&["run", "--json", "--on-violation", "terminate", "--", PYTHON, "-c", code]);
    assert_eq!((exit, &o["outcome"]), (137, &"violation".into()));
    let (code, message) = code_and_stderr(&["run", "--on-violation", "terminate", "--", "unshare", "-U", "true"]);
    assert!(
        code == 137 && message.contains("stopped at a violation") && message.contains("unshare"),
        "{code} {message}"
    );
}

#[test]
fn calls_that_libc_makes_by_itself_are_no_violations() {
    let code = "import pwd, grp, socket, subprocess, tempfile, threading, asyncio\npwd.getpwuid(0); grp.getgrgid(0)\n\
                try: socket.getaddrinfo('localhost', 80)\nexcept OSError: pass\n\
                threading.Thread(target=print).start()\nsubprocess.run(['true'])\nasyncio.run(asyncio.sleep(0))\ntempfile.TemporaryFile().close()";
    for action in ["deny", "terminate"] {
        for level in ["basic", "standard", "strict"] {
            let o =
                outcome(&["run", "--json", "--seccomp", level, "--on-violation", action, "--", PYTHON, "-c", code]).1;
            assert_eq!(o["violations"], serde_json::json!([]), "{level} {action} {}", o["stderr"]);
        }
    }
    for program in [&["id"][..], &["ls", "-la", "/"], &["bash", "-c", "echo $((1+1)) | cat"], &["tar", "--version"]] {
        let o = outcome(&[&["run", "--json", "--"], program].concat()).1;
        assert_eq!(o["violations"], serde_json::json!([]), "{program:?}");
    }
}

#[test]
fn a_flood_of_events_is_bounded_and_counted() {
    let start = Instant::now();
    let code = "import ctypes\nf = ctypes.CDLL(None).ptrace\nfor i in range(100000): f(16, 1, 0, 0)";
    let o = outcome(&["run", "--json", "--timeout", "50s", "--", PYTHON, "-c", code]).1;
    assert_eq!(o["exit_code"], 0, "{o:#}");
    let list = o["violations"].as_array().unwrap();
    assert_eq!(list.len(), 1);
    let count = list[0]["count"].as_u64().unwrap();
    assert!((1..=100_000).contains(&count));
    // Different ones each time.
    let code = "import ctypes\nf = ctypes.CDLL(None).ptrace\nfor i in range(20000): f(i, 1, 0, 0)";
    let o = outcome(&["run", "--json", "--trace", "--timeout", "50s", "--", PYTHON, "-c", code]).1;
    assert!(o["violations"].as_array().unwrap().len() <= 300, "{}", o["violations"].as_array().unwrap().len());
    assert_eq!(o["violations_complete"], false, "some had to be left out");
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
}

#[test]
fn names_of_the_programs_carry_no_escapes_out() {
    let code = "import os\nfor name in (b'/etc/\\x1b]0;x\\x07', b'/etc/\\xff\\xfe', '/etc/\\u202eabc'.encode(), b'/etc/a\\nb', b'/etc/' + b'l' * 2000):\n\
                \x20 try: os.open(name, os.O_WRONLY | os.O_CREAT)\n  except OSError: pass";
    let options = ["run", "--trace", "-w", "/", "--", PYTHON, "-c", code];
    let (_, message) = code_and_stderr(&options);
    assert!(message.contains("/etc/\\u{1b}]0;x\\u{7}"), "{message}");
    let harmless = |c: char| !(c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c));
    assert!(message.chars().all(harmless), "{message:?}");
    let mut command = cofferdam();
    let o = outcome_of(&mut command, &[&["run", "--json"], &options[1..]].concat()).1;
    let found = violations(&o);
    assert!(found.len() >= 4, "{found:#?}");
    for v in found {
        assert!(v.1.chars().all(|c| harmless(c) && c != '\n') && v.1.chars().count() < 4096, "{v:?}");
    }
}

#[test]
fn nothing_is_concluded_from_output() {
    let text = "Permission denied\nBad system call\nOperation not permitted: seccomp violation\nKilled";
    let o = outcome(&["run", "--json", "--", "sh", "-c", &format!("echo '{text}' | tee /dev/stderr; exit 137")]).1;
    assert_eq!((&o["outcome"], &o["violations"]), (&"exited".into(), &Value::Array(Vec::new())));
    let o = outcome(&["run", "--json", "--", "sh", "-c", "cat /etc/shadow; rm /etc/passwd; false"]).1;
    assert_eq!(o["violations"], Value::Array(Vec::new()), "{o:#}");
}

/// Another thread may change the family of an address between the look at it and the kernel's own.
#[test]
fn a_connect_by_another_family_ends_a_run_without_network() {
    let run = |code: &str| {
        let code = format!("import ctypes, socket, struct\nlibc = ctypes.CDLL(None)\n{code}\nprint('after')");
        outcome(&["run", "--json", "--on-violation", "terminate", "--", PYTHON, "-c", &code])
    };
    let to = |kind: &str, family: &str, len: u8| {
        format!(
            "s = socket.socket(socket.AF_INET, socket.{kind}); libc.connect(s.fileno(), struct.pack('=H', {family}) + bytes(14), {len})"
        )
    };
    for (kind, family) in [("SOCK_STREAM", "socket.AF_UNIX"), ("SOCK_STREAM", "0"), ("SOCK_DGRAM", "socket.AF_UNIX")] {
        let (exit, o) = run(&to(kind, family, 16));
        assert_eq!(
            (exit, &o["outcome"], &o["stdout"]),
            (137, &"violation".into(), &"".into()),
            "{kind} {family} {o:#}"
        );
        let found = violations(&o);
        assert!(found.iter().any(|v| v.0 == "connect" && v.2 == "$.network.mode"), "{found:#?}");
    }
    // What libc does to sort addresses, and what no kernel takes for an address.
    for harmless in [to("SOCK_DGRAM", "0", 16), to("SOCK_STREAM", "socket.AF_UNIX", 8)] {
        let (exit, o) = run(&harmless);
        assert_eq!((exit, &o["stdout"], violations(&o)), (0, &"after\n".into(), Vec::new()), "{harmless} {o:#}");
    }
}

/// A program whose file can be executed and not read has a memory that nobody may look at: root's in a directory that the program
/// only reads.
#[test]
fn a_program_that_cannot_be_read_hides_no_attempt() {
    use std::os::unix::fs::PermissionsExt as _;
    if !common::is_root() {
        return;
    }
    // In a volume the file would be the program's own.
    let Some(directory) = common::shown_directory("unreadable") else { return };
    let program = directory.0.join("python3");
    std::fs::copy(std::fs::canonicalize(PYTHON).unwrap(), &program).unwrap();
    let connect = "import socket; socket.socket().connect(('203.0.113.7', 80))";
    let run = |mode: u32, options: &[&str], code: &str| {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
        let line = [&["run", "--json"][..], options, &["--", "./python3", "-c", code]].concat();
        common::parse(&cofferdam().current_dir(&directory.0).args(line).output().unwrap())
    };
    let terminate = ["--on-violation", "terminate"];
    for mode in [0o755, 0o711] {
        let o = run(mode, &terminate, connect);
        assert_eq!(o["outcome"], "violation", "{mode:o} {o:#}");
        assert!(violations(&o).iter().any(|v| v.0 == "connect" && v.2 == "$.network.mode"), "{mode:o} {o:#}");
        assert_eq!(run(mode, &terminate, "print('fine')")["stdout"], "fine\n", "{mode:o}");
    }
    let fine = "import sys; sys.exit(0)";
    assert_eq!(run(0o755, &["--trace"], fine)["violations_complete"], true);
    for code in [fine, connect] {
        let o = run(0o711, &["--trace"], code);
        assert_eq!((&o["violations_complete"], &o["outcome"]), (&false.into(), &"exited".into()), "{o:#}");
    }
}
