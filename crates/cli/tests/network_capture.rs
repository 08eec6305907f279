//! The network of mode `allowlist` from inside: all traffic of a program arrives at the gateway or is dropped, and the program
//! cannot change that. What the gateway does with it is tested elsewhere.

mod common;

use std::os::unix::fs::symlink;

use common::{PYTHON, cofferdam, needs, open_directory, outcome, outcome_of, violations};
use serde_json::Value;

/// What every program below begins with: attempts that print a word and how they ended.
const TRIES: &str = "
import errno, os, socket, struct, sys, time
FASTOPEN, SO_BINDTODEVICE, IP_OPTIONS = 0x20000000, 25, 4
def tell(what, how): print(what, how, flush=True)
def tcp(what, to, setup=None, protocol=0, fast=False):
    family = socket.AF_INET6 if ':' in to[0] else socket.AF_INET
    try:
        s = socket.socket(family, socket.SOCK_STREAM, protocol)
        if setup: setup(s)
        if fast: s.sendto(b'x', FASTOPEN, to)
        else: s.connect(to)
        tell(what, 'connected')
        return s
    # The gateway resets what it refuses, and that may come before connect has returned: it had arrived all the same.
    except OSError as e: tell(what, 'connected' if e.errno == errno.ECONNRESET else errno.errorcode[e.errno])
def attempt(what, f):
    begun = time.monotonic()
    try: f(); how = 'done'
    except OSError as e: how = errno.errorcode[e.errno]
    tell(what, how if time.monotonic() - begun < 1 else 'LATE ' + how)
";

/// Runs Python in a captured network; the lines that it printed as `(word, how)`, and the outcome.
#[track_caller]
fn python(options: &[&str], program: &str) -> (Vec<(String, String)>, Value) {
    let program = format!("{TRIES}\n{program}");
    let arguments =
        [&["run", "--json", "-w", "/", "--allow", "a.example:443,8443"], options, &["--", PYTHON, "-c", &program]]
            .concat();
    let (_, o) = outcome(&arguments);
    assert_eq!(o["stderr"], "", "{o:#}");
    assert_eq!(o["outcome"], "exited", "{o:#}");
    let lines = o["stdout"].as_str().unwrap().lines();
    (lines.filter_map(|l| l.split_once(' ')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect(), o)
}

#[track_caller]
fn value_of<'a>(lines: &'a [(String, String)], what: &str) -> &'a str {
    lines.iter().find(|(w, _)| w == what).map_or_else(|| panic!("nothing of {what}: {lines:?}"), |(_, how)| how)
}

/// Whether the gateway refused a connection to this address and port.
fn refused(o: &Value, address: &str, port: u16) -> bool {
    let events = o["network"]["events"].as_array().unwrap();
    events.iter().any(|e| e["kind"] == "refused" && e["address"] == address && e["port"] == port)
}

fn skipped() -> bool {
    !needs("captured network")
}

#[test]
fn every_connection_arrives_at_the_gateway_however_it_is_made() {
    if skipped() {
        return;
    }
    let ways: &[(&str, &str, u16, &str)] = &[
        ("v4", "203.0.113.1", 443, "tcp('v4', ('203.0.113.1', 443))"),
        ("v6", "2001:db8::1", 443, "tcp('v6', ('2001:db8::1', 443))"),
        ("mapped", "203.0.113.2", 443, "tcp('mapped', ('::ffff:203.0.113.2', 443))"),
        ("other", "203.0.113.3", 8443, "tcp('other', ('203.0.113.3', 8443))"),
        ("private", "10.1.2.3", 443, "tcp('private', ('10.1.2.3', 443))"),
        ("metadata", "169.254.169.254", 443, "tcp('metadata', ('169.254.169.254', 443))"),
        ("translated", "64:ff9b::102:304", 443, "tcp('translated', ('64:ff9b::1.2.3.4', 443))"),
        ("fast", "203.0.113.4", 443, "tcp('fast', ('203.0.113.4', 443), fast=True)"),
        (
            "device",
            "203.0.113.5",
            443,
            "tcp('device', ('203.0.113.5', 443), lambda s: s.setsockopt(1, SO_BINDTODEVICE, b'lo\\0'))",
        ),
        ("source", "203.0.113.6", 443, "tcp('source', ('203.0.113.6', 443), lambda s: s.bind(('192.0.2.77', 0)))"),
        ("own", "203.0.113.7", 443, "tcp('own', ('203.0.113.7', 443), lambda s: s.bind(('127.0.0.9', 0)))"),
        (
            "options",
            "203.0.113.8",
            443,
            "tcp('options', ('203.0.113.8', 443), lambda s: s.setsockopt(0, IP_OPTIONS, bytes([7, 39, 4] + [0] * 36 + [1])))",
        ),
    ];
    let lines: Vec<&str> = ways.iter().map(|w| w.3).collect();
    let program = format!("{}\ntime.sleep(0.3)", lines.join("\n"));
    let (told_, o) = python(&[], &program);
    for (what, address, port, _) in ways {
        assert_eq!(value_of(&told_, what), "connected", "{what}: {o:#}");
        assert!(refused(&o, address, *port), "the gateway has seen nothing of {what}: {:#}", o["network"]);
    }
    assert_eq!(o["network"]["connections"], 0, "{o:#}");
}

#[test]
fn process_of_a_refused_connection_is_reported() {
    if skipped() {
        return;
    }
    // It is looked for no longer than a refusal may take, so on a busy host not every one is found.
    // A closed socket belongs to no process, and one that is open at a fork belongs to two: so each is kept open until it is
    // refused, and no longer.
    let program = "
def refused(what, first, last):
    for s in [tcp(what, ('203.0.113.%d' % i, 443)) for i in range(first, last)]:
        try: s and s.recv(1)
        except OSError: pass
refused('main', 11, 30)
if (child := os.fork()) == 0:
    refused('child', 101, 120)
    time.sleep(0.3)
    os._exit(0)
os.waitpid(child, 0)";
    for left in (0..10).rev() {
        let (_, o) = python(&[], program);
        let events = o["network"]["events"].as_array().unwrap();
        let pids = |first: &str| {
            let address = |e: &Value| e["address"].as_str().is_some_and(|a| a.len() == first.len() && a > first);
            let found = events.iter().filter(|e| address(e)).filter_map(|e| e["pid"].as_u64());
            found.collect::<std::collections::BTreeSet<u64>>()
        };
        let (main, child) = (pids("203.0.113.10"), pids("203.0.113.100"));
        assert!(main.len() < 2 && child.len() < 2 && main.is_disjoint(&child), "{main:?} {child:?}: {events:#?}");
        if main.len() + child.len() == 2 {
            return;
        }
        assert!(left > 0, "no process is reported: {events:#?}");
    }
}

#[test]
fn unlisted_port_is_refused_at_once_and_reported() {
    if skipped() {
        return;
    }
    let program = "
tcp('v4', ('203.0.113.1', 22))
tcp('v6', ('2001:db8::1', 22))
tcp('inside', ('127.0.0.1', 22))
tcp('listened', ('203.0.113.1', 443))
time.sleep(0.3)";
    let (lines, o) = python(&[], program);
    for what in ["v4", "v6", "inside"] {
        assert_eq!(value_of(&lines, what), "ECONNREFUSED");
    }
    assert_eq!(value_of(&lines, "listened"), "connected");
    assert!(refused(&o, "203.0.113.1", 22) && refused(&o, "2001:db8::1", 22), "{:#}", o["network"]);
    assert!(!refused(&o, "127.0.0.1", 22), "what nobody listens to inside is nobody else's affair");
    let found = violations(&o);
    assert!(found.iter().any(|v| v.0 == "connect" && v.1 == "203.0.113.1:22" && v.3 == "gateway"), "{found:#?}");
}

#[test]
fn nothing_but_tcp_and_questions_for_a_resolver_gets_anywhere() {
    if skipped() {
        return;
    }
    let program = "
def udp(what, to, setup=None):
    s = socket.socket(socket.AF_INET6 if ':' in to[0] else socket.AF_INET, socket.SOCK_DGRAM)
    if setup: setup(s)
    attempt(what, lambda: s.sendto(b'x', to))
def opened(what, *how):
    def f():
        s = socket.socket(*how); s.settimeout(3)
        s.connect(('2001:db8::1', 443) if how[0] == socket.AF_INET6 else ('203.0.113.1', 443))
    attempt(what, f)
udp('quic', ('203.0.113.1', 443))
udp('quic6', ('2001:db8::1', 443))
udp('time', ('203.0.113.1', 123))
udp('source', ('203.0.113.1', 443), lambda s: s.bind(('192.0.2.1', 0)))
def bound(s): s.setsockopt(1, SO_BINDTODEVICE, b'lo\\0')
here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); here.bind(('0.0.0.0', 4443)); here.settimeout(0.5)
for what, address in (('device', '203.0.113.1'), ('device-loopback', '127.0.0.1')):
    udp(what, (address, 4443), bound)
    try: here.recv(9); tell('came-by-' + what, 'yes')
    except OSError: tell('came-by-' + what, 'no')
udp('loopback', ('127.0.0.1', 9))
udp('loopback6', ('::1', 9))
udp('resolver', ('203.0.113.1', 53))
udp('resolver6', ('2001:db8::1', 53))
opened('ping', socket.AF_INET, socket.SOCK_DGRAM, 1)
opened('ping6', socket.AF_INET6, socket.SOCK_DGRAM, 58)
opened('raw', socket.AF_INET, socket.SOCK_RAW, 255)
opened('sctp', socket.AF_INET, socket.SOCK_STREAM, 132)
opened('dccp', socket.AF_INET, 6, 33)
opened('lite', socket.AF_INET, socket.SOCK_DGRAM, 136)
opened('packet', 17, socket.SOCK_RAW, 0x300)
opened('vsock', 40, socket.SOCK_STREAM)
tcp('tcp', ('203.0.113.1', 443))";
    let (lines, o) = python(&["--trace"], program);
    for what in ["quic", "quic6", "time", "source"] {
        assert_eq!(value_of(&lines, what), "EACCES", "{what}");
    }
    // Bound to the interface the kernel asks no rule: it sends to the namespace itself, where the program's own socket is.
    assert_eq!((value_of(&lines, "came-by-device"), value_of(&lines, "came-by-device-loopback")), ("yes", "yes"));
    for what in ["loopback", "loopback6", "resolver", "resolver6"] {
        assert_eq!(value_of(&lines, what), "done", "{what}");
    }
    assert_eq!(value_of(&lines, "tcp"), "connected");
    for what in ["ping", "ping6", "raw", "sctp", "dccp", "lite", "packet", "vsock"] {
        let how = value_of(&lines, what);
        assert!(
            ["EACCES", "EPERM", "EPROTONOSUPPORT", "EAFNOSUPPORT", "ESOCKTNOSUPPORT"].contains(&how),
            "{what} {how}"
        );
    }
    // A trace reports what was sent past the gateway, and not what was sent to it.
    let found = violations(&o);
    for object in ["203.0.113.1:443", "[2001:db8::1]:443", "203.0.113.1:123"] {
        let is = |v: &(String, String, String, String)| v.0 == "sendto" && v.1 == object && v.2 == "$.network.mode";
        assert!(found.iter().any(is), "{object}: {found:#?}");
    }
    assert!(!found.iter().any(|v| v.0 == "sendto" && (v.1.ends_with(":53") || v.1.ends_with(":9"))), "{found:#?}");
}

#[test]
fn address_sorting_of_libc_is_recorded_only_at_level_debug() {
    if skipped() {
        return;
    }
    let program = "
found = socket.getaddrinfo('a.example', 443)
tell('found', len({f[4][0] for f in found}))
def datagram(to): socket.socket(socket.AF_INET6 if ':' in to else socket.AF_INET, socket.SOCK_DGRAM).connect((to, 443))
attempt('other', lambda: datagram('203.0.113.1'))
attempt('sent', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('198.18.0.1', 443)))";
    let told_of = |options: &[&str]| {
        let (lines, o) = python(options, program);
        assert!(["1", "2"].contains(&value_of(&lines, "found")), "{lines:?}");
        assert_eq!((value_of(&lines, "other"), value_of(&lines, "sent")), ("EACCES", "EACCES"));
        let found = violations(&o);
        // Connections to other addresses are reported either way, and so are sent datagrams.
        for (operation, object) in [("connect", "203.0.113.1:443"), ("sendto", "198.18.0.1:443")] {
            let is = |v: &(String, String, String, String)| v.0 == operation && v.1 == object;
            assert!(found.iter().any(is), "{operation} {object}: {found:#?}");
        }
        found.iter().filter(|v| v.0 == "connect" && v.1.starts_with("198.18.0.1:")).count()
    };
    assert_eq!(told_of(&["--trace"]), 0);
    assert!(told_of(&["--trace", "--audit", "debug"]) > 0);
}

#[test]
fn sandbox_cannot_replace_the_gateway_or_change_routes() {
    if skipped() {
        return;
    }
    let program = "
def take(what, address, port, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if s.family == socket.AF_INET6: s.setsockopt(41, 26, 1)
    attempt(what, lambda: (s.bind((address, port)), kind == socket.SOCK_STREAM and s.listen()))
    return s
for address in ('0.0.0.0', '127.0.0.1', '203.0.113.1', '::', '::1'):
    for port in (53, 443, 1080, 3128, 8443):
        take(f'take-{address}-{port}', address, port)
    take(f'answer-{address}', address, 53, socket.SOCK_DGRAM)
mine = take('mine', '127.0.0.1', 8080)
tcp('mine-reached', ('127.0.0.1', 8080))
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def netlink(what, kind, flags, body):
    n.send(struct.pack('=IHHII', 16 + len(body), kind, flags | 5, 1, 0) + body)
    code = -struct.unpack('=i', n.recv(4096)[16:20])[0]
    tell(what, errno.errorcode.get(code, 'done'))
lo = struct.pack('=HHI', 8, 4, 1)
netlink('route', 24, 0x600, bytes([2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0]) + lo)
netlink('rule', 32, 0x600, bytes([2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]) + struct.pack('=HHI', 8, 6, 1))
netlink('unrule', 33, 0, bytes([2, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0]) + struct.pack('=HHI', 8, 6, 40))
netlink('link', 16, 0, struct.pack('=IIII', 0, 1, 0, 1))
netlink('address', 20, 0x600, struct.pack('=BBBBI', 2, 24, 0, 0, 1) + struct.pack('=HH4s', 8, 2, bytes([192, 0, 2, 5])))
attempt('sysctl', lambda: open('/proc/sys/net/ipv4/ip_forward', 'w').write('1'))
attempt('init', lambda: os.listdir('/proc/1/fd'))
print('open', sorted(os.listdir('/proc/self/fd'))[:3])
print('views', all(len(open('/proc/net/' + f).readlines()) > 1 for f in ('tcp', 'tcp6', 'udp6')))
tcp('still', ('203.0.113.1', 443))";
    let (lines, o) = python(&[], program);
    for (what, how) in lines.iter().filter(|(what, _)| what.starts_with("take-") || what.starts_with("answer-")) {
        assert!(["EADDRINUSE", "EACCES"].contains(&how.as_str()), "{what} {how}");
    }
    assert_eq!(value_of(&lines, "take-127.0.0.1-3128"), "EADDRINUSE");
    assert_eq!((value_of(&lines, "mine"), value_of(&lines, "mine-reached")), ("done", "connected"));
    for what in ["route", "rule", "unrule", "link", "address"] {
        assert_eq!(value_of(&lines, what), "EPERM", "{what}");
    }
    for what in ["sysctl", "init"] {
        assert_ne!(value_of(&lines, what), "done", "{what}");
    }
    assert_eq!(value_of(&lines, "views"), "True");
    assert_eq!(value_of(&lines, "still"), "connected", "{o:#}");
}

#[test]
fn excess_ports_are_redirected_and_loopback_is_not() {
    if skipped() || !needs("redirected ports") {
        return;
    }
    let program = "
for port in (8000, 8500, 9999): tcp(f'v4-{port}', ('203.0.113.1', port)); tcp(f'v6-{port}', ('2001:db8::1', port))
tcp('beside', ('203.0.113.1', 7999))
s = socket.socket(); s.bind(('127.0.0.1', 8600)); s.listen()
tcp('own', ('127.0.0.1', 8600)); s.settimeout(3); a, _ = s.accept(); tell('accepted', a.getsockname()[1])
tcp('nobody', ('127.0.0.1', 8700))
time.sleep(0.3)";
    let (lines, o) = python(&["--allow", "b.example:8000-9999"], program);
    for port in [8000, 8500, 9999] {
        for (version, address) in [("v4", "203.0.113.1"), ("v6", "2001:db8::1")] {
            assert_eq!(value_of(&lines, &format!("{version}-{port}")), "connected");
            assert!(refused(&o, address, port), "{address} {port}: {:#}", o["network"]);
        }
    }
    assert_eq!(value_of(&lines, "beside"), "ECONNREFUSED");
    assert_eq!((value_of(&lines, "own"), value_of(&lines, "accepted")), ("connected", "8600"));
    assert_eq!(value_of(&lines, "nobody"), "ECONNREFUSED");
}

#[test]
fn gateway_resolves_names_in_every_root_view() {
    if skipped() {
        return;
    }
    let cat = "cat /etc/resolv.conf; grep -h '^hosts' /etc/nsswitch.conf; grep -h localhost /etc/hosts";
    let expected = "nameserver 127.0.0.1\nhosts: files dns\n127.0.0.1 localhost sandbox\n::1 localhost\n";
    for root in ["host", "minimal"] {
        let (_, o) =
            outcome(&["run", "--json", "-w", "/", "--root", root, "--allow", "a.example", "--", "sh", "-c", cat]);
        assert_eq!(o["stdout"], expected, "{root}: {o:#}");
    }
    let read = "for f in ('resolv.conf', 'nsswitch.conf', 'hosts'): print(open('/etc/' + f).read(), end='')";
    let (lines, o) = python(&["--root", "interpreter", "--hostname", "mine"], read);
    for (what, how) in [("nameserver", "127.0.0.1"), ("hosts:", "files dns"), ("127.0.0.1", "localhost mine")] {
        assert_eq!(value_of(&lines, what), how, "{o:#}");
    }
    // Without an allowlist nothing is put in the place of the view's own.
    let (_, o) = outcome(&["run", "--json", "-w", "/", "--", "cat", "/etc/nsswitch.conf"]);
    assert_eq!(o["stdout"], std::fs::read_to_string("/etc/nsswitch.conf").unwrap());
}

/// What an `/etc/resolv.conf` can be in a directory that is given as the root.
#[derive(Debug, Clone, Copy)]
enum Resolver {
    File,
    Link(&'static str),
    Absent,
}

#[test]
fn gateway_resolves_names_whatever_resolv_conf_the_root_has() {
    if skipped() {
        return;
    }
    let look = "
tell('says', ascii(open('/etc/resolv.conf').read()) if os.path.exists('/etc/resolv.conf') else 'absent')
tell('address', socket.gethostbyname('a.example'))
try: tell('other', socket.gethostbyname('b.example'))
except socket.gaierror: tell('other', 'unknown')";
    for (shape, says) in [
        (Resolver::File, "'nameserver 127.0.0.1\\n'"),
        (Resolver::Link("../run/systemd/resolve/stub-resolv.conf"), "'nameserver 127.0.0.1\\n'"),
        (Resolver::Link("/run/resolvconf/resolv.conf"), "'nameserver 127.0.0.1\\n'"),
        (Resolver::Link("real.conf"), "'nameserver 127.0.0.1\\n'"),
        (Resolver::Link("/nowhere/resolv.conf"), "absent"),
        (Resolver::Absent, "absent"),
    ] {
        let root = open_directory();
        let at = |name: &str| root.path().join(name);
        for name in ["usr", "dev", "proc", "sys", "run", "tmp", "var/tmp", "etc"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for (link, to) in [("lib", "usr/lib"), ("lib64", "usr/lib64"), ("bin", "usr/bin")] {
            symlink(to, at(link)).unwrap();
        }
        for name in ["hosts", "nsswitch.conf", "real.conf"] {
            std::fs::write(at("etc").join(name), "nameserver 192.0.2.53\nhosts: dns\n").unwrap();
        }
        match shape {
            Resolver::File => std::fs::write(at("etc/resolv.conf"), "nameserver 192.0.2.53\n").unwrap(),
            Resolver::Link(to) => symlink(to, at("etc/resolv.conf")).unwrap(),
            Resolver::Absent => {}
        }
        let (lines, o) = python(&["--root", root.path().to_str().unwrap(), "-v", "/usr:/usr:ro"], look);
        assert_eq!(value_of(&lines, "says"), says, "{shape:?} {o:#}");
        assert!(value_of(&lines, "address").starts_with("198.1"), "{shape:?} {o:#}");
        assert_eq!(value_of(&lines, "other"), "unknown", "{shape:?} {o:#}");
        let found = violations(&o);
        assert!(
            found.iter().all(|v| v.1 == "b.example" && v.0 == "resolve" && v.3 == "gateway"),
            "{shape:?} {found:#?}"
        );
        assert!(!found.is_empty(), "{shape:?}");
    }
}

#[test]
fn other_resolver_addresses_give_the_same_answers() {
    if skipped() {
        return;
    }
    // A query for the A record of this name, to a server that the program picks itself, over UDP and TCP.
    let program = "
def query(name): return struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + bytes([0, 0, 1, 0, 1])
def answer(what, data): tell(what, f'{data[3] & 15} ' + (socket.inet_ntoa(data[-4:]) if data[7] else 'none'))
def udp(what, server, name):
    s = socket.socket(socket.AF_INET6 if ':' in server else socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
    s.connect((server, 53)); s.send(query(name)); answer(what, s.recv(600))
def stream(what, server, name):
    s = socket.create_connection((server, 53), 5); q = query(name); s.sendall(struct.pack('>H', len(q)) + q)
    data = b''
    while len(data) < 2 or len(data) < 2 + struct.unpack('>H', data[:2])[0]: data += s.recv(600)
    answer(what, data[2:])
tell('libc', '0 ' + socket.gethostbyname('a.example'))
for what, server in (('local', '127.0.0.1'), ('far', '203.0.113.53'), ('six', '2001:db8::53')):
    udp(what, server, 'a.example'); udp(what + '-other', server, 'b.example')
    stream(what + '-stream', server, 'a.example')";
    let (lines, o) = python(&[], program);
    let address = value_of(&lines, "libc");
    assert!(address.starts_with("0 198.1"), "{o:#}");
    for what in ["local", "far", "six", "local-stream", "far-stream", "six-stream"] {
        assert_eq!(value_of(&lines, what), address, "{what} {o:#}");
    }
    for what in ["local-other", "far-other", "six-other"] {
        assert_eq!(value_of(&lines, what), "3 none", "{what} {o:#}");
    }
}

#[test]
fn proxy_variables_are_set_unless_the_policy_sets_one() {
    if skipped() {
        return;
    }
    let (_, o) = outcome(&["run", "--json", "-w", "/", "--allow", "a.example", "-e", "http_proxy=", "--", "env"]);
    let lines: Vec<&str> = o["stdout"].as_str().unwrap().lines().collect();
    for line in [
        "http_proxy=",
        "HTTPS_PROXY=http://127.0.0.1:3128",
        "https_proxy=http://127.0.0.1:3128",
        "ALL_PROXY=socks5h://127.0.0.1:1080",
        "all_proxy=socks5h://127.0.0.1:1080",
        "NO_PROXY=localhost,127.0.0.1,::1",
        "no_proxy=localhost,127.0.0.1,::1",
    ] {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.starts_with("HTTP_PROXY=")), "{lines:?}");
    let (_, o) = outcome(&["run", "--json", "-w", "/", "--", "env"]);
    assert!(!o["stdout"].as_str().unwrap().to_lowercase().contains("proxy"), "{o:#}");
}

#[test]
fn a_refusal_ends_a_run_that_is_to_end_at_violations() {
    if skipped() {
        return;
    }
    let code = "import socket, time\ntry: socket.create_connection(('203.0.113.1', 443))\nexcept OSError: pass\ntime.sleep(60)";
    let begun = std::time::Instant::now();
    let run = |more: &[&str]| {
        let arguments =
            [&["run", "--json", "-w", "/", "--allow", "a.example"], more, &["--", PYTHON, "-c", code]].concat();
        outcome(&arguments)
    };
    let (exit, o) = run(&["--on-violation", "terminate"]);
    assert_eq!((exit, &o["outcome"]), (137, &Value::from("violation")), "{o:#}");
    assert!(begun.elapsed().as_secs() < 20, "{o:#}");
    let found = violations(&o);
    assert!(found.iter().any(|v| v.0 == "connect" && v.1 == "203.0.113.1:443"), "{found:#?}");
    let (_, o) = run(&["--timeout", "1"]);
    assert_eq!(o["outcome"], "timed_out", "the same run goes on where it is not to end: {o:#}");
    assert!(refused(&o, "203.0.113.1", 443), "{o:#}");
}

#[test]
fn only_mode_allowlist_has_a_gateway() {
    let (_, o) = outcome(&["run", "--json", "-w", "/", "--", "true"]);
    assert!(o.get("network").is_none(), "{o:#}");
    let less = "--best-effort=filesystem.root,filesystem.mounts,filesystem.deny,process.isolation,process.hostname,\
                process.tree_kill,process.spawn,limits.tmpfs_mb";
    let (exit, o) = outcome(&["run", "--json", "--backend", "landlock", less, "--allow", "a.example", "--", "true"]);
    assert_eq!(exit, 125);
    let message = o["error"]["message"].as_str().unwrap();
    assert!(message.contains("the jail has one"), "{message}");
}

#[test]
fn nested_sandboxes_cannot_change_the_outer_network() {
    if skipped() {
        return;
    }
    // As user 0 with every capability, in a user namespace below the sandbox's: over a network of its own, and not over ours.
    let code = "
import ctypes, os, socket, struct, errno
def rule(where):
    n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    body = bytes([2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]) + struct.pack('=HHI', 8, 6, 1)
    n.send(struct.pack('=IHHII', 16 + len(body), 32, 0x605, 1, 0) + body)
    code = -struct.unpack('=i', n.recv(4096)[16:20])[0]
    print(where, errno.errorcode.get(code, 'done'), flush=True)
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
assert libc.unshare(0x10000000) == 0, os.strerror(ctypes.get_errno())
open('/proc/self/setgroups', 'w').write('deny')
open('/proc/self/uid_map', 'w').write(f'0 {uid} 1')
open('/proc/self/gid_map', 'w').write(f'0 {gid} 1')
rule('ours')
assert libc.unshare(0x40000000) == 0, os.strerror(ctypes.get_errno())
rule('its')
";
    let here = open_directory();
    let mut command = cofferdam();
    command.current_dir(&here);
    let arguments = [
        "run",
        "--json",
        "-w",
        "/",
        "--root",
        "minimal",
        "--nested-sandboxes",
        "--allow",
        "a.example",
        "--",
        PYTHON,
        "-c",
        code,
    ];
    let (_, o) = outcome_of(&mut command, &arguments);
    assert_eq!(o["stdout"], "ours EPERM\nits done\n", "{o:#}");
}

#[test]
fn netlink_socket_buffers_count_as_memory() {
    if skipped() {
        return;
    }
    let here = open_directory();
    // Replies that are never read, in sockets of 8 MiB each. No cgroup counts them.
    let run = |sockets: &str| {
        let code = "
import socket, struct, sys, time
request = struct.pack('IHHII', 32, 18, 1, 1, 0) + struct.pack('BxHiII', 0, 0, 1, 0, 0)
keep = []
for _ in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    try:
        for _ in range(20000): s.send(request)
    except OSError: pass
    keep.append(s)
time.sleep(2)
print('done')
";
        let mut command = cofferdam();
        command.current_dir(&here);
        let arguments = [
            "run",
            "--json",
            "--memory",
            "64m",
            "--best-effort",
            "--timeout",
            "60s",
            "-w",
            "/",
            "--allow",
            "a.example",
            "--",
        ];
        let arguments = [&arguments[..], &[PYTHON, "-c", code, sockets]].concat();
        outcome_of(&mut command, &arguments).1
    };
    let many = run("400");
    assert_eq!((&many["outcome"], &many["limit"]), (&"limit_exceeded".into(), &"limits.memory_mb".into()), "{many:#}");
    let one = run("1");
    assert_eq!((&one["outcome"], &one["stdout"]), (&"exited".into(), &"done\n".into()), "{one:#}");
}

#[test]
fn tcp_and_udp_socket_buffers_count_as_memory() {
    if skipped() {
        return;
    }
    // What nobody reads, in connections that are accepted or not and in datagrams, over the network's own loopback; in the end
    // the MiB that the kernel keeps, since it may drop what is over a limit.
    let code = "
import fcntl, socket, struct, sys, termios, time
how, most = sys.argv[1], int(sys.argv[2]) << 20
block, kept, sent = b'x' * 60000, [], 0
def widen(s):
    for option in socket.SO_SNDBUF, socket.SO_RCVBUF: s.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
def fill(s, send, times):
    global sent
    s.setblocking(False)
    for _ in range(times):
        if sent >= most: return
        try: sent += send()
        except OSError: return
def unread(s): # SO_MEMINFO
    return struct.unpack_from('I', s.getsockopt(socket.SOL_SOCKET, 55, 36))[0]
def outstanding(s):
    return struct.unpack('i', fcntl.ioctl(s, termios.TIOCOUTQ, b'1234'))[0]
listener = socket.socket()
widen(listener)
listener.bind(('127.0.0.1', 0))
listener.listen(500)
while sent < most and len(kept) < 400:
    if how == 'udp':
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        widen(s)
        s.bind(('127.0.0.1', 0))
        fill(s, lambda: s.sendto(block, s.getsockname()), 9)
    else:
        s = socket.create_connection(listener.getsockname())
        widen(s)
        fill(s, lambda: s.send(block), 1000)
        if how == 'accepted':
            peer, _ = listener.accept()
            kept.append(peer)
            fill(peer, lambda: peer.send(block), 1000)
    kept.append(s)
time.sleep(2)
queued = sent - sum(map(outstanding, kept)) if how == 'left' else sum(map(unread, kept))
print(queued >> 20)
";
    let run = |how: &str, mib: &str| {
        let options = ["run", "--json", "--memory", "64m", "--best-effort", "--timeout", "60s", "-w", "/"];
        outcome(&[&options[..], &["--allow", "a.example", "--", PYTHON, "-c", code, how, mib]].concat()).1
    };
    for how in ["accepted", "left", "udp"] {
        let many = run(how, "160");
        let queued = many["stdout"].as_str().unwrap().trim();
        let stopped = (&many["outcome"], &many["limit"]) == (&"limit_exceeded".into(), &"limits.memory_mb".into());
        let below = || many["outcome"] == "exited" && queued.parse::<u64>().is_ok_and(|mib| mib <= 64);
        assert!(stopped || below(), "{how}: {many:#}");
        let few = run(how, "4");
        let queued = few["stdout"].as_str().unwrap().trim().parse::<u64>();
        assert!(few["outcome"] == "exited" && queued.is_ok_and(|mib| (3..16).contains(&mib)), "{how}: {few:#}");
    }
}
