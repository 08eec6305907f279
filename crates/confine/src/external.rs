//! Starts an external sandbox program (bubblewrap, nsjail, an OCI runtime) the way init is started: everything prepared
//! before clone, nothing of the owner's goes along, and nothing is allocated in between.
//!
//! What the program does then is not decided here; this file sets the streams, descriptors, limits and ids that it begins
//! with. Raw system calls only after clone: the child shares its owner's memory until it has exec'd.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::spawn::{RunningInit, SpawnError};
use crate::uapi::*;
use crate::{clone, process, sys};

/// The first number of [`ExternalProgram::fds`] in the program.
pub const FIRST_FD: i32 = 10;

/// A program to start.
pub struct ExternalProgram<'a> {
    /// Absolute path.
    pub program: &'a CStr,
    /// Arguments, the name first.
    pub argv: &'a [&'a CStr],
    /// Variables, `NAME=VALUE`.
    pub envp: &'a [&'a CStr],
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Descriptors that the program finds from [`FIRST_FD`] on, in this order, and nothing else.
    pub fds: &'a [BorrowedFd<'a>],
    /// User and group to become, with no other groups; `None` stays who the caller is.
    pub ids: Option<(u32, u32)>,
    /// Makes it the first process of a pid namespace, with whose end the kernel ends every process in it; where the caller
    /// does not change its ids, in a user namespace that maps just them, in which its processes are counted for it alone.
    pub first_process: bool,
    /// Readable (end of file) when the owner is gone: the owner alone holds its other end.
    pub lifeline: BorrowedFd<'a>,
    /// `(resource, soft, hard)`.
    pub rlimits: &'a [(u32, u64, u64)],
    /// A cgroup v2 directory to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// Directory to start in.
    pub cwd: &'a CStr,
    /// `tasks` files of version 1 to join first.
    pub tasks: &'a [BorrowedFd<'a>],
}

/// What only some programs need.
#[derive(Debug, Clone, Copy)]
pub struct SpawnOptions<'a> {
    /// The first number of [`ExternalProgram::fds`] in the program, 3 or higher.
    pub first_fd: i32,
    /// A directory that is empty for this program: in a mount namespace of its own, and for who is not root in a user
    /// namespace that maps just the caller.
    pub hidden: Option<&'a CStr>,
    /// It is not killed with its owner: what it starts ends by itself then, and after that it has to clean up. A runtime that is
    /// killed while it creates a container leaves a process that waits for ever.
    pub finishes: bool,
}

impl Default for SpawnOptions<'_> {
    fn default() -> Self {
        SpawnOptions { first_fd: FIRST_FD, hidden: None, finishes: false }
    }
}

/// What the child needs, as plain memory.
struct ExternalChild {
    program: *const u8,
    argv: *const *const u8,
    envp: *const *const u8,
    cwd: *const u8,
    /// Standard streams and the further descriptors, and as much room for temporary numbers.
    fds: *const i32,
    scratch: *mut i32,
    len: usize,
    first: i32,
    /// Null where nothing is hidden.
    hidden: *const u8,
    finishes: bool,
    tasks: *const i32,
    tasks_len: usize,
    rlimits: *const (u32, u64, u64),
    rlimits_len: usize,
    ids: Option<(u32, u32)>,
    /// What to write to `uid_map` and `gid_map`; null without a user namespace.
    maps: [(*const u8, usize); 2],
    cgroup: i32,
    /// The step that failed and its errno.
    failed: Option<(ExternalStep, i32)>,
}

/// What can fail, in the order of `enter`. Messages show the numbers, so each step keeps its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum ExternalStep {
    OpenCgroup = 101,
    JoinCgroup = 102,
    JoinTasks = 103,
    OpenMap = 140,
    WriteMap = 141,
    CloseMap = 142,
    PrivateMounts = 144,
    Hide = 145,
    Session = 104,
    Keyring = 143,
    GetScheduler = 130,
    SetScheduler = 131,
    GetPriority = 132,
    SetPriority = 133,
    SetIoPriority = 134,
    ReadOomAdjustment = 135,
    WriteOomAdjustment = 136,
    CloseOomAdjustment = 137,
    MoveAside = 120,
    Place = 121,
    CloseBelow = 122,
    CloseAbove = 123,
    Signals = 105,
    Rlimit = 106,
    Groups = 107,
    Group = 108,
    User = 109,
    Umask = 110,
    DeathSignal = 111,
    PollLifeline = 115,
    OwnerGone = 116,
    CloseLifeline = 117,
    WorkingDirectory = 112,
    UnblockSignals = 113,
    Exec = 114,
}

/// Turns an errno into the failure of a step.
fn at(step: ExternalStep) -> impl Fn(i32) -> (ExternalStep, i32) {
    move |errno| (step, errno)
}

const STACK: usize = 32 * 1024;

/// How often a keyring is asked for where the user's quota of keys is used up, 10 ms apart.
const QUOTA_ATTEMPTS: u32 = 200;

/// Starts it and returns once it has been exec'd. It leads a session of its own, has an empty session keyring where the
/// kernel gives one, and gets SIGKILL when the calling thread ends (unless it [finishes](SpawnOptions::finishes)).
///
/// # Errors
/// The step that failed; nothing is left behind.
pub fn spawn(program: &ExternalProgram<'_>) -> Result<RunningInit, SpawnError> {
    spawn_with(program, &SpawnOptions::default())
}

/// The same for a program that finds its descriptors elsewhere, or must not see a directory.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_with(program: &ExternalProgram<'_>, options: &SpawnOptions<'_>) -> Result<RunningInit, SpawnError> {
    if options.first_fd < 3 {
        return Err(SpawnError::Prepare(io::ErrorKind::InvalidInput.into()));
    }
    let raw = |fds: &[BorrowedFd<'_>]| fds.iter().map(AsRawFd::as_raw_fd).collect::<Vec<i32>>();
    let pointers = |texts: &[&CStr]| {
        let mut list: Vec<*const u8> = texts.iter().map(|text| text.as_ptr().cast()).collect();
        list.push(std::ptr::null());
        list
    };
    let (argv, envp, tasks) = (pointers(program.argv), pointers(program.envp), raw(program.tasks));
    let mut fds = raw(&program.stdio);
    fds.extend(raw(program.fds));
    fds.push(program.lifeline.as_raw_fd());
    let mut scratch = vec![-1i32; fds.len()];
    let mut stack = vec![0u128; STACK / 16];
    let mut child = ExternalChild {
        program: program.program.as_ptr().cast(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        cwd: program.cwd.as_ptr().cast(),
        fds: fds.as_ptr(),
        scratch: scratch.as_mut_ptr(),
        len: fds.len(),
        first: options.first_fd,
        hidden: options.hidden.map_or(std::ptr::null(), |path| path.as_ptr().cast()),
        finishes: options.finishes,
        tasks: tasks.as_ptr(),
        tasks_len: tasks.len(),
        rlimits: program.rlimits.as_ptr(),
        rlimits_len: program.rlimits.len(),
        ids: program.ids,
        maps: [(std::ptr::null(), 0); 2],
        cgroup: -1,
        failed: None,
    };
    let cgroup = program.cgroup.as_ref().map(AsRawFd::as_raw_fd);
    // Who is root mounts without a user namespace.
    let mounts = options.hidden.is_some() && !rustix::process::geteuid().is_root();
    let own_users = (program.first_process || mounts) && program.ids.is_none();
    let own = [
        format!("{0} {0} 1", rustix::process::geteuid().as_raw()),
        format!("{0} {0} 1", rustix::process::getegid().as_raw()),
    ];
    if own_users {
        child.maps = [(own[0].as_ptr(), own[0].len()), (own[1].as_ptr(), own[1].len())];
    }
    let namespaces = if program.first_process { libc::CLONE_NEWPID } else { 0 }
        | if own_users { libc::CLONE_NEWUSER } else { 0 }
        | if options.hidden.is_some() { libc::CLONE_NEWNS } else { 0 };
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK | namespaces) as u32 as u64;
    // No handler of the owner's may run on the child's stack while the memory is shared.
    let old = mask(u64::MAX).map_err(SpawnError::Prepare)?;
    // SAFETY: the stack is memory of ours that nothing else uses; `entry` does not return; `child` and all that it points
    // to live until the call returns, which is after the child has exec'd or ended.
    let mut start = |child: &mut ExternalChild, cgroup| unsafe {
        clone::start(clone::CloneRequest { flags, stack: &mut stack, cgroup }, entry, &raw mut *child as usize)
    };
    let started = match (start(&mut child, cgroup), cgroup) {
        // Being born in a cgroup takes clone3.
        (Err(e), Some(dir)) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            child.cgroup = dir;
            start(&mut child, None)
        }
        (started, _) => started,
    };
    let unmasked = mask(old);
    let (pid, pidfd) = started.map_err(SpawnError::Clone)?;
    // SAFETY: `child` is a local that the other process wrote while it shared our memory; read it as memory, not as what
    // the compiler last knew of it.
    if let Some((step, errno)) = unsafe { (&raw const child.failed).read_volatile() } {
        process::wait(std::os::fd::AsFd::as_fd(&pidfd)).map_err(SpawnError::Prepare)?;
        return Err(SpawnError::Child { step: step as i32, source: io::Error::from_raw_os_error(errno) });
    }
    unmasked.map_err(SpawnError::Prepare)?;
    Ok(RunningInit { pid, pidfd })
}

/// Sets this thread's signal mask and returns the one before.
fn mask(new: u64) -> io::Result<u64> {
    let mut old = 0u64;
    sys::rt_sigprocmask(SIG_SETMASK, &raw const new, &raw mut old, 8).map_err(io::Error::from_raw_os_error)?;
    Ok(old)
}

extern "C" fn entry(child: usize) -> ! {
    // SAFETY: the owner passes the address of its `ExternalChild`, which no other code touches until the child has exec'd or
    // ended.
    let child = unsafe { &mut *(child as *mut ExternalChild) };
    child.failed = enter(child).err();
    sys::exit(127)
}

fn enter(c: &mut ExternalChild) -> Result<(), (ExternalStep, i32)> {
    if c.cgroup >= 0 {
        let procs = sys::openat(c.cgroup, c"cgroup.procs".as_ptr().cast(), O_WRONLY | O_CLOEXEC, 0)
            .map_err(at(ExternalStep::OpenCgroup))? as i32;
        sys::write(procs, b"0".as_ptr(), 1).map_err(at(ExternalStep::JoinCgroup))?;
    }
    for i in 0..c.tasks_len {
        // SAFETY: `tasks` points to `tasks_len` numbers.
        let file = unsafe { c.tasks.add(i).read() };
        sys::write(file, b"0".as_ptr(), 1).map_err(at(ExternalStep::JoinTasks))?;
    }
    maps(c)?;
    hide(c)?;
    sys::setsid().map_err(at(ExternalStep::Session))?;
    keyring()?;
    drop_priority()?;
    descriptors(c)?;
    // Signals as exec leaves them: what the owner ignores would stay ignored.
    let default = [0u64; 4];
    for signal in 1..=64 {
        match sys::rt_sigaction(signal, default.as_ptr(), std::ptr::null_mut(), 8) {
            Ok(_) | Err(errno::EINVAL) => {} // KILL and STOP have no disposition
            Err(e) => return Err((ExternalStep::Signals, e)),
        }
    }
    for i in 0..c.rlimits_len {
        // SAFETY: `rlimits` points to `rlimits_len` items.
        let (resource, soft, hard) = unsafe { c.rlimits.add(i).read() };
        let new = [soft, hard];
        sys::prlimit(0, resource, new.as_ptr(), std::ptr::null_mut()).map_err(at(ExternalStep::Rlimit))?;
    }
    if let Some((uid, gid)) = c.ids {
        sys::setgroups(0, std::ptr::null()).map_err(at(ExternalStep::Groups))?;
        sys::setresgid(gid, gid, gid).map_err(at(ExternalStep::Group))?;
        sys::setresuid(uid, uid, uid).map_err(at(ExternalStep::User))?;
    }
    sys::umask(0o022).map_err(at(ExternalStep::Umask))?;
    if !c.finishes {
        // After the ids, which clear it.
        sys::prctl(PR_SET_PDEATHSIG, SIGKILL as usize, 0, 0, 0).map_err(at(ExternalStep::DeathSignal))?;
    }
    owner_lives(c)?;
    sys::chdir(c.cwd).map_err(at(ExternalStep::WorkingDirectory))?;
    let (none, mut seen) = (0u64, 0u64);
    sys::rt_sigprocmask(SIG_SETMASK, &raw const none, &raw mut seen, 8).map_err(at(ExternalStep::UnblockSignals))?;
    sys::execve(c.program, c.argv, c.envp).map_err(at(ExternalStep::Exec))?;
    Ok(())
}

/// The caller's own ids and nothing else, in its new user namespace (user_namespaces(7)).
fn maps(c: &ExternalChild) -> Result<(), (ExternalStep, i32)> {
    if c.maps[0].0.is_null() {
        return Ok(());
    }
    let deny = (b"deny".as_ptr(), 4);
    for (path, (text, len)) in
        [(c"/proc/self/setgroups", deny), (c"/proc/self/uid_map", c.maps[0]), (c"/proc/self/gid_map", c.maps[1])]
    {
        let file = sys::openat(AT_FDCWD, path.as_ptr().cast(), O_WRONLY | O_CLOEXEC, 0)
            .map_err(at(ExternalStep::OpenMap))? as i32;
        sys::write(file, text, len).map_err(at(ExternalStep::WriteMap))?;
        sys::close(file).map_err(at(ExternalStep::CloseMap))?;
    }
    Ok(())
}

/// An empty directory in the place of one, for this process and its children alone.
fn hide(c: &ExternalChild) -> Result<(), (ExternalStep, i32)> {
    const READ_ONLY: usize = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if c.hidden.is_null() {
        return Ok(());
    }
    let none = c"none".as_ptr().cast();
    sys::mount(none, c"/".as_ptr().cast(), std::ptr::null(), MS_REC | MS_PRIVATE, std::ptr::null())
        .map_err(at(ExternalStep::PrivateMounts))?;
    let size = c"size=4096,mode=555".as_ptr().cast();
    sys::mount(none, c.hidden, c"tmpfs".as_ptr().cast(), READ_ONLY, size).map_err(at(ExternalStep::Hide))?;
    Ok(())
}

/// A fresh session keyring, so that none of the owner's keys goes along.
///
/// The kernel counts the keyrings of ended processes against their user until it frees them, some time after: a quota that is
/// used up by many runs in a row is waited for.
fn keyring() -> Result<(), (ExternalStep, i32)> {
    for attempt in 1.. {
        match sys::keyctl(KEYCTL_JOIN_SESSION_KEYRING, 0) {
            Ok(_) => break,
            // No keys in this kernel, or an outer filter refuses the call, as the program's own filter does.
            Err(errno::ENOSYS | errno::EPERM) => break,
            Err(errno::EDQUOT) if attempt < QUOTA_ATTEMPTS => {
                let ten_ms = [0u64, 10_000_000];
                sys::ppoll(std::ptr::null_mut(), 0, ten_ms.as_ptr(), std::ptr::null(), 8)
                    .map_err(at(ExternalStep::Keyring))?;
            }
            Err(e) => return Err((ExternalStep::Keyring, e)),
        }
    }
    Ok(())
}

/// From here on the owner's death sends the signal; an earlier one shows on the lifeline, which is then closed.
fn owner_lives(c: &ExternalChild) -> Result<(), (ExternalStep, i32)> {
    let lifeline = c.first + c.len as i32 - 4;
    let mut fds = [sys::PollFd { fd: lifeline, events: 0, revents: 0 }];
    let now = [0u64; 2];
    sys::ppoll(fds.as_mut_ptr(), 1, now.as_ptr(), std::ptr::null(), 8).map_err(at(ExternalStep::PollLifeline))?;
    if fds[0].revents != 0 {
        return Err((ExternalStep::OwnerGone, errno::ESRCH));
    }
    sys::close(lifeline).map_err(at(ExternalStep::CloseLifeline))?;
    Ok(())
}

/// Takes back what favours the owner over other processes: real-time policies, a raised priority, real-time I/O, and
/// protection from the out-of-memory killer.
fn drop_priority() -> Result<(), (ExternalStep, i32)> {
    let policy = sys::sched_getscheduler(0).map_err(at(ExternalStep::GetScheduler))? as i32 & 0xff;
    if matches!(policy, SCHED_FIFO | SCHED_RR | SCHED_DEADLINE) {
        let priority = 0;
        sys::sched_setscheduler(0, SCHED_OTHER, &raw const priority).map_err(at(ExternalStep::SetScheduler))?;
    }
    // The call itself gives 20 minus the nice value (getpriority(2)).
    if sys::getpriority(PRIO_PROCESS, 0).map_err(at(ExternalStep::GetPriority))? > 20 {
        sys::setpriority(PRIO_PROCESS, 0, 0).map_err(at(ExternalStep::SetPriority))?;
    }
    // No such call where the kernel schedules no block devices.
    if sys::ioprio_get(IOPRIO_WHO_PROCESS, 0).is_ok_and(|priority| priority >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT) {
        sys::ioprio_set(IOPRIO_WHO_PROCESS, 0, 0).map_err(at(ExternalStep::SetIoPriority))?;
    }
    // Without /proc, as inside another sandbox, there is nothing to be done about the last one.
    let Ok(file) = sys::openat(AT_FDCWD, c"/proc/self/oom_score_adj".as_ptr().cast(), O_RDWR | O_CLOEXEC, 0) else {
        return Ok(());
    };
    let (file, mut sign) = (file as i32, 0u8);
    sys::read(file, &raw mut sign, 1).map_err(at(ExternalStep::ReadOomAdjustment))?;
    if sign == b'-' {
        sys::write(file, b"0".as_ptr(), 1).map_err(at(ExternalStep::WriteOomAdjustment))?;
    }
    sys::close(file).map_err(at(ExternalStep::CloseOomAdjustment))?;
    Ok(())
}

/// 0, 1, 2 and from the first number on what the owner lists; everything else is closed.
fn descriptors(c: &ExternalChild) -> Result<(), (ExternalStep, i32)> {
    let base = c.first + c.len as i32;
    // First up and out of the way, all of them, so that no target number overwrites a source.
    for i in 0..c.len {
        // SAFETY: `fds` points to `len` numbers, and `scratch` to room for as many.
        unsafe {
            let moved =
                sys::fcntl(c.fds.add(i).read(), F_DUPFD_CLOEXEC, base as usize).map_err(at(ExternalStep::MoveAside))?;
            c.scratch.add(i).write(moved as i32);
        }
    }
    for i in 0..c.len {
        // SAFETY: as above.
        let moved = unsafe { c.scratch.add(i).read() };
        let target = if i < 3 { i as i32 } else { c.first + i as i32 - 3 };
        sys::dup3(moved, target, 0).map_err(at(ExternalStep::Place))?;
    }
    if c.first > 3 {
        sys::close_range(3, c.first as u32 - 1, 0).map_err(at(ExternalStep::CloseBelow))?;
    }
    sys::close_range((c.first + c.len as i32 - 3) as u32, u32::MAX, 0).map_err(at(ExternalStep::CloseAbove))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn run(script: &CStr, extra: &[BorrowedFd<'_>], rlimits: &[(u32, u64, u64)]) -> (String, i32) {
        run_as(script, extra, rlimits, false)
    }

    fn run_as(
        script: &CStr,
        extra: &[BorrowedFd<'_>],
        rlimits: &[(u32, u64, u64)],
        first_process: bool,
    ) -> (String, i32) {
        run_around(script, extra, rlimits, first_process, &SpawnOptions::default())
    }

    fn run_around(
        script: &CStr,
        extra: &[BorrowedFd<'_>],
        rlimits: &[(u32, u64, u64)],
        first_process: bool,
        options: &SpawnOptions<'_>,
    ) -> (String, i32) {
        let (lifeline, _held) = std::io::pipe().unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let (out, theirs) = std::io::pipe().unwrap();
        let argv = [c"sh", c"-c", script];
        let program = ExternalProgram {
            program: c"/bin/sh",
            argv: &argv,
            envp: &[c"A=b"],
            stdio: [null.as_fd(), theirs.as_fd(), theirs.as_fd()],
            fds: extra,
            ids: None,
            first_process,
            lifeline: lifeline.as_fd(),
            rlimits,
            cgroup: None,
            cwd: c"/",
            tasks: &[],
        };
        let running = spawn_with(&program, options).unwrap();
        drop(theirs);
        let text = std::io::read_to_string(out).unwrap();
        let (status, _) = process::wait_status(running.pidfd.as_fd()).unwrap();
        (text, status)
    }

    #[test]
    fn it_gets_its_streams_its_descriptors_and_nothing_else() {
        let leak = std::fs::File::open("/proc/self/status").unwrap();
        rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
        let (data, mut ours) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut ours, b"hello\n").unwrap();
        drop(ours);
        let (text, status) =
            // Without a pipe, which the shell would hold open for a moment.
            run(c"cat /proc/$$/fd/10; ls /proc/$$/fd; echo \"$A $HOME\"; exit 3", &[data.as_fd()], &[]);
        assert_eq!(text, "hello\n0\n1\n10\n2\nb \n");
        assert_eq!(status, 3 << 8);
    }

    #[test]
    fn descriptors_begin_where_the_program_looks_for_them() {
        let (data, mut ours) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut ours, b"hello\n").unwrap();
        drop(ours);
        let null = std::fs::File::open("/dev/null").unwrap();
        let around = SpawnOptions { first_fd: 3, ..SpawnOptions::default() };
        let script = c"cat <&4; ls /proc/$$/fd";
        let (text, status) = run_around(script, &[null.as_fd(), data.as_fd()], &[], false, &around);
        // The shell's own are at 10 and above.
        assert_eq!((text.as_str(), status), ("hello\n0\n1\n2\n3\n4\n", 0));
    }

    #[test]
    fn what_is_hidden_is_empty_for_the_program_alone() {
        if !rustix::process::geteuid().is_root() && crate::host::user_namespaces_refused(false).is_some() {
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "no user namespaces here");
            eprintln!("skipped: no user namespaces here");
            return;
        }
        let script = c"ls -A /usr; test -e /bin/sh && echo there; id -u";
        let around = SpawnOptions { hidden: Some(c"/usr/share"), ..SpawnOptions::default() };
        let script_hidden = c"ls -A /usr/share; echo x 2>&1 > /usr/share/x || echo no; id -u";
        let (text, status) = run_around(script_hidden, &[], &[], false, &around);
        let me = rustix::process::geteuid().as_raw();
        assert!(text.ends_with(&format!("no\n{me}\n")) && text.lines().count() == 3, "{text}");
        assert_eq!(status, 0);
        let (text, _) = run(script, &[], &[]);
        assert!(text.contains("share\n") && text.ends_with(&format!("there\n{me}\n")), "{text}");
        assert!(std::fs::read_dir("/usr/share").unwrap().next().is_some(), "nothing is hidden from this process");
    }

    #[test]
    fn limits_and_signals_are_what_was_asked_for() {
        let (text, status) =
            run(c"ulimit -n; kill -PIPE $$; echo alive", &[], &[(crate::host::resource::NOFILE, 77, 77)]);
        assert_eq!((text.as_str(), status & 0x7f), ("77\n", libc::SIGPIPE), "SIGPIPE is not ignored");
    }

    #[test]
    fn the_first_process_of_a_namespace_takes_all_others_along() {
        // With root's ids a user namespace of this kind would map user 0, which no program started so gets.
        if rustix::process::geteuid().is_root() {
            eprintln!("skipped: as root the ids are changed");
            return;
        }
        let (text, status) = run_as(c"echo $$; id -u; (setsid sleep 68.25 &) ; exit 2", &[], &[], true);
        assert_eq!((text.as_str(), status), (&*format!("1\n{}\n", rustix::process::geteuid().as_raw()), 2 << 8));
    }

    #[test]
    fn nothing_starts_for_an_owner_who_is_gone() {
        let (lifeline, gone) = std::io::pipe().unwrap();
        drop(gone);
        let null = std::fs::File::open("/dev/null").unwrap();
        let program = ExternalProgram {
            program: c"/bin/sh",
            argv: &[c"sh"],
            envp: &[],
            stdio: [null.as_fd(); 3],
            fds: &[],
            ids: None,
            first_process: false,
            lifeline: lifeline.as_fd(),
            rlimits: &[],
            cgroup: None,
            cwd: c"/",
            tasks: &[],
        };
        let Err(SpawnError::Child { source, .. }) = spawn(&program) else { panic!() };
        assert_eq!(source.raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn a_missing_program_is_reported() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let program = ExternalProgram {
            program: c"/no/such/program",
            argv: &[c"x"],
            envp: &[],
            stdio: [null.as_fd(); 3],
            fds: &[],
            ids: None,
            first_process: false,
            lifeline: null.as_fd(),
            rlimits: &[],
            cgroup: None,
            cwd: c"/",
            tasks: &[],
        };
        let Err(SpawnError::Child { source, .. }) = spawn(&program) else { panic!() };
        assert_eq!(source.raw_os_error(), Some(libc::ENOENT));
    }
}
