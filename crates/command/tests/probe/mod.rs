//! The probe: this test's program, started again with `COFFERDAM_PROBE` in its environment. It makes one attempt and
//! prints `done` or the errno's name, on a line that starts with a marker.

#![allow(dead_code, reason = "each test uses its part")]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::Output;

use cofferdam_command::{Confined, RuleStrength};
use rustix::fs::{self, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Pid, Signal};
use tokio::process::Command;

const VARIABLE: &str = "COFFERDAM_PROBE";
const ANSWER: &str = "probe-answers ";

/// The program of this test.
pub(crate) fn own() -> String {
    std::env::current_exe().unwrap().display().to_string()
}

/// Every version of Landlock that can be asked for here.
pub(crate) fn versions() -> Vec<u32> {
    let own = Confined::new("true").data_dir("/var/tmp").command();
    let newest = own.unwrap().1.landlock_abi;
    assert!(newest >= 1, "no Landlock here");
    (1..=newest).collect()
}

/// Confines this program, with that version of Landlock.
pub(crate) fn confined(abi: u32, data: &Path) -> Confined {
    Confined::new(own()).data_dir(data).landlock_at_most(abi)
}

pub(crate) fn restricted(abi: u32, data: &Path) -> Command {
    let (command, enforcement) = confined(abi, data).command().unwrap();
    assert_eq!(enforcement.strength(), RuleStrength::Full, "{enforcement}");
    assert_eq!(enforcement.landlock_abi, abi);
    command
}

pub(crate) fn plain() -> Command {
    Command::new(own())
}

/// Files of a directory that attempts are made on.
pub(crate) fn furnish(dir: &Path) {
    for name in ["file", "victim", "gone", "moved", "linked"] {
        std::fs::write(dir.join(name), "as it was").unwrap();
    }
    std::fs::create_dir_all(dir.join("directory")).unwrap();
    std::fs::create_dir_all(dir.join("empty")).unwrap();
    std::fs::write(dir.join("directory/inner"), "as it was").unwrap();
}

/// Everything that can be seen of a tree: names, kinds, modes, owners, sizes, times, contents.
pub(crate) fn picture(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    let mut all = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        let data = std::fs::symlink_metadata(&at).unwrap();
        let content = if data.is_file() { std::fs::read(&at).unwrap() } else { Vec::new() };
        let mut value = [0u8; 16];
        let attribute = rustix::fs::lgetxattr(&at, "user.cofferdam", &mut value[..]).ok();
        all.push(format!(
            "{} {:o} {} {} {} {:?} {attribute:?} {content:?}",
            at.display(),
            data.mode(),
            data.uid(),
            data.gid(),
            data.nlink(),
            (data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec())
        ));
        if data.is_dir() {
            open.extend(std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all.sort();
    all
}

/// Says why something was not tried; an error where everything must work.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "skipped: {reason}");
    eprintln!("skipped: {reason}");
}

/// The same for what root's pass tries: any other user may do without.
pub(crate) fn skip_unless_root(reason: &str) {
    if rustix::process::geteuid().is_root() { skip(reason) } else { eprintln!("skipped: {reason}") }
}

/// A directory that no rule grants: not below /tmp.
pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(tempfile::Builder::new().prefix("cofferdam-walls-").tempdir_in("/var/tmp").unwrap())
    }

    pub(crate) fn path(&self) -> PathBuf {
        std::fs::canonicalize(self.0.path()).unwrap()
    }

    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// Has the command attempt something.
pub(crate) fn attempt(command: &mut Command, words: &str) {
    command.args(["--exact", "probe::attempts", "--nocapture", "--test-threads=1"]).env(VARIABLE, words);
    command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
}

/// What came of it.
pub(crate) async fn run(mut command: Command, words: &str) -> String {
    attempt(&mut command, words);
    answer(command.output().await.unwrap())
}

/// Whether files here can have attributes at all: a tmpfs has none before Linux 6.6.
pub(crate) async fn attributes() -> bool {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let answer = run(Command::new(own()), &format!("setxattr {}", file.display())).await;
    if answer != "done" {
        assert_eq!(answer, "EOPNOTSUPP");
        eprintln!("attributes are left out: this file system has none");
    }
    answer == "done"
}

/// What the attempt printed.
pub(crate) fn answer(output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.split_once(ANSWER)).map(|(_, answer)| answer.trim().to_owned());
    found.unwrap_or_else(|| panic!("the attempt said nothing: {}{}", text, String::from_utf8_lossy(&output.stderr)))
}

/// Listens at an abstract name.
pub(crate) fn abstract_listener(name: &str) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    socket
}

/// Not a test of its own: what [`attempt`] starts.
#[test]
fn attempts() {
    let Ok(words) = std::env::var(VARIABLE) else { return };
    let words: Vec<&str> = words.split_whitespace().collect();
    let text = match make(&words) {
        Ok(()) => "done".to_owned(),
        Err(errno) => format!("{errno:?}").split("::").last().unwrap_or_default().to_owned(),
    };
    let name = |raw: i32| Errno::from_raw_os_error(raw);
    let names = [
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::XDEV, "EXDEV"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::INVAL, "EINVAL"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NODEV, "ENODEV"),
        (name(95), "EOPNOTSUPP"),
    ];
    let text = match make_again(&text, &names) {
        Some(known) => known.to_owned(),
        None => text,
    };
    println!("\n{ANSWER}{text}");
}

/// The kernel's name of an errno that `Debug` shows as a number.
fn make_again<'a>(text: &str, names: &[(Errno, &'a str)]) -> Option<&'a str> {
    names.iter().find(|(errno, _)| text == format!("{errno:?}")).map(|(_, name)| *name)
}

type Attempt = Result<(), Errno>;

fn io(result: std::io::Result<()>) -> Attempt {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn open(path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK, Mode::from_raw_mode(0o644))
}

fn write(path: &str, flags: OFlags) -> Attempt {
    let file = open(path, OFlags::WRONLY | flags)?;
    rustix::io::write(&file, b"probe").map(drop)
}

fn times() -> Timestamps {
    let at = fs::Timespec { tv_sec: 86_400, tv_nsec: 7 };
    Timestamps { last_access: at, last_modification: at }
}

const MODE: Mode = Mode::from_raw_mode(0o751);

fn make(words: &[&str]) -> Attempt {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    // As root to another; else to itself, which is shown by nothing but its change time.
    let other = if uid.is_root() { (Uid::from_raw(1), Gid::from_raw(1)) } else { (uid, gid) };
    match *words {
        ["write", path] => write(path, OFlags::CREATE | OFlags::EXCL),
        ["append", path] => write(path, OFlags::APPEND),
        ["overwrite", path] => write(path, OFlags::TRUNC),
        ["truncate-reading", path] => open(path, OFlags::RDONLY | OFlags::TRUNC).map(drop),
        ["truncate-neither", path] => open(path, OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC).map(drop),
        ["truncate-writing", path] => open(path, OFlags::WRONLY | OFlags::TRUNC).map(drop),
        ["mkdir", path] => fs::mkdir(path, Mode::RWXU),
        ["unlink", path] => fs::unlink(path),
        ["rmdir", path] => fs::rmdir(path),
        ["symlink", path] => fs::symlink("/etc", path),
        ["fifo", path] => fs::mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0),
        ["mknod-character", path] => fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::RWXU, fs::makedev(1, 3)),
        ["mknod-block", path] => fs::mknodat(CWD, path, FileType::BlockDevice, Mode::RWXU, fs::makedev(7, 0)),
        ["rename", from, to] => fs::rename(from, to),
        ["exchange", from, to] => fs::renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE),
        ["link", from, to] => fs::link(from, to),
        ["chmod", path] => fs::chmod(path, MODE),
        ["chmod-setuid", path] => fs::chmod(path, Mode::from_raw_mode(0o4755)),
        ["create-setuid", path] => {
            fs::open(path, OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o4755)).map(drop)
        }
        ["fchmod", path] => fs::fchmod(open(path, OFlags::RDONLY)?, MODE),
        ["fchmodat-by-descriptor", path] => {
            let file = open(path, OFlags::RDONLY)?;
            fs::chmod(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)), MODE)
        }
        ["chmod-relative", path] => {
            let (dir, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
            let opened = open(dir, OFlags::PATH | OFlags::DIRECTORY)?;
            fs::chmodat(&opened, name, MODE, AtFlags::empty())
        }
        ["chown", path] => fs::chown(path, Some(other.0), Some(other.1)),
        ["lchown", path] => fs::chownat(CWD, path, Some(other.0), Some(other.1), AtFlags::SYMLINK_NOFOLLOW),
        ["utimes", path] => fs::utimensat(CWD, path, &times(), AtFlags::empty()),
        ["race", link, inside, outside] => race(link, inside, outside),
        ["lutimes", path] => fs::utimensat(CWD, path, &times(), AtFlags::SYMLINK_NOFOLLOW),
        ["lsetxattr", path] => fs::lsetxattr(path, "user.cofferdam", b"x", XattrFlags::empty()),
        ["chmod-no-follow", path] => fs::chmodat(CWD, path, MODE, AtFlags::SYMLINK_NOFOLLOW),
        ["futimes", path] => fs::futimens(open(path, OFlags::RDONLY)?, &times()),
        ["touch", path] => {
            let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
            fs::utimensat(CWD, path, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty())
        }
        ["setxattr", path] => fs::setxattr(path, "user.cofferdam", b"x", XattrFlags::empty()),
        ["fsetxattr", path] => fs::fsetxattr(open(path, OFlags::RDONLY)?, "user.cofferdam", b"x", XattrFlags::empty()),
        ["setcap", path] => fs::setxattr(
            path,
            "security.capability",
            b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            XattrFlags::empty(),
        ),
        ["ioctl", path] => rustix::io::ioctl_fionread(open(path, OFlags::RDONLY)?).map(drop),
        ["terminal", path] => rustix::termios::tcgetattr(open(path, OFlags::RDWR)?).map(drop),
        ["kill", pid] => rustix::process::kill_process(number(pid)?, Signal::TERM),
        ["quit", pid] => rustix::process::kill_process(number(pid)?, Signal::QUIT),
        ["overlay", lower, upper, work] => overlay(lower, upper, work),
        ["limit", pid] => limit(Some(number(pid)?)),
        ["limit-own"] => limit(None),
        ["priority", pid] => rustix::process::setpriority_process(Some(number(pid)?), 5),
        ["priority-group"] => rustix::process::setpriority_pgrp(None, 5),
        ["priority-user"] => rustix::process::setpriority_user(uid, 5),
        // By 0, and by the number that a library would know.
        ["priority-own"] => rustix::process::setpriority_process(None, 5)
            .and_then(|()| rustix::process::setpriority_process(Some(rustix::thread::gettid()), 6)),
        ["processors", pid] => processors(Some(number(pid)?)),
        ["processors-own"] => processors(None).and_then(|()| processors(Some(rustix::thread::gettid()))),
        ["kill-own"] => kill_own(false),
        ["kill-own-group"] => kill_own(true),
        // By tgkill(2), as C libraries do.
        ["abort"] => std::process::abort(),
        ["abort-own"] => {
            let mut command = std::process::Command::new(own());
            command.args(["--exact", "probe::attempts"]).env(VARIABLE, "abort");
            let status = io_status(command.stdout(std::process::Stdio::null()).status())?;
            if status.signal() == Some(6) { Ok(()) } else { Err(Errno::IO) }
        }
        ["connect-path", path] => connect(&SocketAddrUnix::new(path)?),
        ["connect-abstract", name] => connect(&SocketAddrUnix::new_abstract_name(name.as_bytes())?),
        ["socketpair"] => {
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None)
                .map(drop)
        }
        ["tcp", address] => io(std::net::TcpStream::connect(address).map(drop)),
        ["udp", address] => {
            io(std::net::UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(b"x", address)).map(drop))
        }
        ["read", path] => io(std::fs::read(path).map(drop)),
        ["list", path] => io(std::fs::read_dir(path).map(drop)),
        ["execute", path] => io_status(std::process::Command::new(path).status())
            .and_then(|s| if s.success() { Ok(()) } else { Err(Errno::IO) }),
        _ => panic!("no such attempt: {words:?}"),
    }
}

/// Has one name lead inside and outside in turn, as fast as can be, while its mode is changed, until it was seen to lead to
/// each many times just before. Done when the change went well at least once, so that the race was one.
fn race(link: &str, inside: &str, outside: &str) -> Attempt {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let stop = AtomicBool::new(false);
    fs::symlink(inside, link)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                for (turn, target) in [outside, inside].into_iter().enumerate() {
                    let next = format!("{link}-{turn}");
                    fs::symlink(target, &next).unwrap();
                    fs::rename(&next, link).unwrap();
                    std::thread::yield_now();
                }
            }
        });
        let (mut changed, mut tries, mut seen) = (Err(Errno::AGAIN), 0, [0, 0]);
        while tries < 3000 || seen[0] < 100 || seen[1] < 100 {
            tries += 1;
            let now = std::fs::read_link(link).unwrap();
            seen[usize::from(now == Path::new(outside))] += 1;
            if fs::chmod(link, MODE).is_ok() {
                changed = Ok(());
            }
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        changed
    })
}

fn number(pid: &str) -> Result<Pid, Errno> {
    pid.parse().ok().and_then(Pid::from_raw).ok_or(Errno::INVAL)
}

fn io_status(status: std::io::Result<std::process::ExitStatus>) -> Result<std::process::ExitStatus, Errno> {
    status.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Makes an overlay that is mounted nowhere.
fn overlay(lower: &str, upper: &str, work: &str) -> Attempt {
    use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_string, fsopen};
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
        fsconfig_set_string(context.as_fd(), key, value)?;
    }
    fsconfig_create(context.as_fd())
}

/// Takes a descriptor from what a process may have open.
fn limit(pid: Option<Pid>) -> Attempt {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
    let most = getrlimit(Resource::Nofile).current.map(|most| most - 1);
    prlimit(pid, Resource::Nofile, Rlimit { current: most, maximum: most }).map(drop)
}

/// Leaves a process the first of its processors.
fn processors(pid: Option<Pid>) -> Attempt {
    let all = rustix::thread::sched_getaffinity(pid)?;
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).ok_or(Errno::INVAL)?);
    rustix::thread::sched_setaffinity(pid, &one)
}

/// Starts a process and ends it by a signal.
fn kill_own(group: bool) -> Attempt {
    let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().map_err(|_| Errno::IO)?;
    let pid = Pid::from_child(&child);
    if group {
        rustix::process::kill_process_group(pid, Signal::TERM)?
    } else {
        rustix::process::kill_process(pid, Signal::TERM)?
    }
    let status = io_status(child.wait())?;
    if status.signal() == Some(15) { Ok(()) } else { Err(Errno::IO) }
}

fn connect(address: &SocketAddrUnix) -> Attempt {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::net::connect(socket.as_fd(), address)
}

/// What a script of Python's prints, started by this command; a line of its own for each attempt. None without Python.
pub(crate) async fn python(mut command: Command, text: &str, words: &[&str]) -> Option<String> {
    which("python3")?;
    let library = "import ctypes, errno, os, sys\nlibrary = ctypes.CDLL(None, use_errno=True)\n\
        def call(name, *args):\n    answer = library.syscall(*args)\n    \
        print(name, errno.errorcode[ctypes.get_errno()] if answer == -1 else 'done')\n    return answer\n";
    command.arg("-c").arg(format!("{library}{text}")).args(words).stdin(std::process::Stdio::null());
    let output = command.output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Where a program of this machine lies; none when it is not there.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join(name))
        .find(|path: &PathBuf| Path::is_file(path))
}
