//! From init's child to the program: rlimits, directory, capabilities, no_new_privs, Landlock, seccomp, exec.
//!
//! The child shares init's memory (and usually its descriptor table) until it execs: a failure is left in memory where init finds it, and the listener that the filter makes is init's at once. exec gives
//! the program a table of its own, without any descriptor that is close-on-exec.

use core::ptr::null;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::fault::{StepFault, StepResult, at};
use crate::notify::NotificationSupervisor;
use crate::path_guard::PathGuards;
use crate::plan::MappedPlan;
use crate::sys::{self, PollFd, Str};
use crate::uapi::*;
use crate::wire::step::FailurePoint;
use crate::wire::{LandRule, Ref, Rlimit, fd, flag, op_flag, step};
use crate::{caps, container, tree};

/// What the child left: a failure, and the listener's descriptor.
pub static FAILED_STEP: AtomicU32 = AtomicU32::new(0);
static FAILED_INDEX: AtomicU32 = AtomicU32::new(0);
static FAILED_ERRNO: AtomicI32 = AtomicI32::new(0);
static LISTENER: AtomicI32 = AtomicI32::new(-1);
/// When the child came to its filter and exec, CLOCK_MONOTONIC: init itself may be scheduled only after a short program's end.
static STARTED_NS: AtomicU64 = AtomicU64::new(0);

/// A started payload.
pub struct StartedPayload {
    /// Its pid as init sees it.
    pub pid: i32,
    /// The notification listener, or -1.
    pub listener: i32,
    /// What answers its notifications.
    pub supervisor: NotificationSupervisor,
}

const STACK: usize = 256 * 1024;
#[repr(align(16))]
struct Stack(core::cell::UnsafeCell<[u8; STACK]>);
// SAFETY: only the vforked child uses it, while init is suspended.
unsafe impl Sync for Stack {}
static STACK_MEMORY: Stack = Stack(core::cell::UnsafeCell::new([0; STACK]));

const MAX_WORDS: usize = 32768;
struct Words(core::cell::UnsafeCell<[Str; MAX_WORDS]>);
// SAFETY: written by init before the child exists and only read afterwards.
unsafe impl Sync for Words {}
static ARGV: Words = Words(core::cell::UnsafeCell::new([null(); MAX_WORDS]));
static ENVP: Words = Words(core::cell::UnsafeCell::new([null(); MAX_WORDS]));

/// Everything that the child needs, in init's memory.
struct Context<'a> {
    plan: &'a MappedPlan,
    terminal: bool,
    ruleset: i32,
    argv: *const Str,
    envp: *const Str,
}

struct ContextCell(core::cell::UnsafeCell<Context<'static>>);
// SAFETY: written by init before the child exists and only read afterwards.
unsafe impl Sync for ContextCell {}
static CONTEXT: ContextCell = ContextCell(core::cell::UnsafeCell::new(Context {
    plan: &MappedPlan::NONE,
    terminal: false,
    ruleset: -1,
    argv: null(),
    envp: null(),
}));

/// Puts a session's channel into its place, and clears close-on-exec of what belongs to it: the one exception from the rule
/// that the program starts with its standard streams alone. The places begin where the plan's own descriptors did, which are used up
/// by now: an interpreter that marks what it inherits looks no further than the first number that is not open.
pub fn channel(plan: &MappedPlan) -> StepResult {
    let h = plan.header();
    if h.channel == 0 {
        return Ok(());
    }
    let from = i32::from(h.channel);
    let (first, last) = if plan.has(flag::CHANNEL_STDIO) { (0, 1) } else { (fd::CHANNEL, fd::CHANNEL) };
    for to in first..=last {
        sys::dup3(from, to, 0).map_err(at(step::session::CHANNEL))?;
    }
    let count = i32::from(h.inherited);
    // Each place lies below the descriptor that comes to it: the channel was before them.
    for i in 0..count {
        sys::dup3(from + 1 + i, fd::FIRST_EXTRA + i, 0).map_err(at(step::session::INHERITED))?;
    }
    // Whatever is left of the plan's own.
    let rest = fd::FIRST_EXTRA + count;
    sys::close_range(rest as u32, (from + count) as u32, 0).map_err(at(step::session::CLOSE_REST))?;
    Ok(())
}

/// Closes init's copy of the channel once the program runs, so that the other end sees the program close it.
pub fn close_channel(plan: &MappedPlan) -> StepResult {
    let h = plan.header();
    if h.channel == 0 {
        return Ok(());
    }
    if !plan.has(flag::CHANNEL_STDIO) {
        sys::close(fd::CHANNEL).map_err(at(step::session::CLOSE_CHANNEL))?; // else `supervise::narrow` closes it with the streams
    }
    for i in 0..i32::from(h.inherited) {
        sys::close(fd::FIRST_EXTRA + i).map_err(at(step::session::CLOSE_INHERITED))?;
    }
    Ok(())
}

/// Starts the program; returns once it runs.
pub fn start(plan: &MappedPlan, terminal: bool, guards: &mut PathGuards) -> Result<StartedPayload, StepFault> {
    let h = plan.header();
    let argv = words(plan, h.argv, &ARGV).map_err(at(step::plan::ARGUMENTS))?;
    let envp = words(plan, h.envp, &ENVP).map_err(at(step::plan::VARIABLES))?;
    let jailed = plan.has(flag::LANDLOCK) && plan.has(flag::JAIL);
    let ruleset = match h.scoped {
        _ if jailed => land_ruleset(plan)?,
        0 => -1,
        // Without namespaces init is in the same domain: one below it keeps signals away from init.
        scoped if plan.has(flag::LANDLOCK) => scope_ruleset(scoped)?,
        _ => -1,
    };
    // SAFETY: no child exists yet, and only the one child of this call reads it. The plan is mapped for the whole life of
    // init, and so are the words, so the references outlive every use.
    let arg = unsafe {
        let slot = CONTEXT.0.get();
        slot.write(Context { plan: &*core::ptr::from_ref(plan), terminal, ruleset, argv, envp });
        slot as usize
    };
    let gated = plan.has(flag::NO_SPAWN) && plan.has(flag::LISTENER);
    let child = if gated { start_gated(plan, guards, arg)? } else { start_shared(arg)? };
    if ruleset >= 0 {
        sys::close(ruleset).map_err(at(step::fork::CLOSE_RULESET))?;
    }
    match failure() {
        Some(fault) => Err(fault),
        None => Ok(child),
    }
}

/// When the program started, CLOCK_MONOTONIC in nanoseconds.
pub fn started_ns() -> u64 {
    STARTED_NS.load(Ordering::SeqCst)
}

/// The failure that the child left, if any.
pub fn failure() -> Option<StepFault> {
    let step = FAILED_STEP.load(Ordering::SeqCst) as u16;
    let (index, errno) = (FAILED_INDEX.load(Ordering::SeqCst), FAILED_ERRNO.load(Ordering::SeqCst));
    (step != 0).then_some(StepFault { at: FailurePoint { step, index }, errno })
}

fn stack_top() -> *mut u8 {
    // SAFETY: one past the end of the static array.
    unsafe { STACK_MEMORY.0.get().cast::<u8>().add(STACK) }
}

/// The usual way: CLONE_VM | CLONE_VFORK | CLONE_FILES. Init sleeps until exec; the listener is already its own.
fn start_shared(arg: usize) -> Result<StartedPayload, StepFault> {
    // SAFETY: the stack is used by this one child only; `entry` ends in exec or exit.
    let pid =
        unsafe { sys::clone_on(CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD as usize, stack_top(), entry, arg) }
            .map_err(at(step::fork::CLONE))?;
    let listener = LISTENER.load(Ordering::SeqCst);
    Ok(StartedPayload { pid: pid as i32, listener, supervisor: NotificationSupervisor::new(listener) })
}

/// Makes room for the program's number while the table is init's alone: one that two processes share grows only after every
/// CPU has been through the kernel (`synchronize_rcu`), which takes about 10 ms.
fn grow_descriptors() -> StepResult {
    let number = fd::exec(raise_open_files()?);
    sys::dup3(fd::LIFELINE, number, O_CLOEXEC).map_err(at(step::fork::GROW))?;
    sys::close(number).map(|_| ()).map_err(at(step::fork::CLOSE_GROWN))
}

/// Without spawning the one exec goes through the listener, so init must be awake to let it through: the same without
/// CLONE_VFORK. The descriptor table is shared until exec, so init keeps the payload's descriptors (`supervise::narrow`), and
/// a failed exec is found when the child has ended.
fn start_gated(plan: &MappedPlan, guards: &mut PathGuards, arg: usize) -> Result<StartedPayload, StepFault> {
    grow_descriptors()?;
    // SAFETY: the stack is used by this one child only; `entry` ends in exec or exit; the context is static.
    let pid = unsafe { sys::clone_on(CLONE_VM | CLONE_FILES | SIGCHLD as usize, stack_top(), entry, arg) }
        .map_err(at(step::fork::CLONE_AWAKE))? as i32;
    let ended = sys::pidfd_open(pid, 0).map_err(at(step::fork::PIDFD))? as i32;
    let mut fds = [
        PollFd { fd: fd::LIFELINE, events: POLLIN, revents: 0 },
        PollFd { fd: ended, events: POLLIN, revents: 0 },
        PollFd { fd: -1, events: POLLIN, revents: 0 },
    ];
    // Until its exec waits for the answer, it failed, or it ended: whatever can kill a process may kill it here as well.
    loop {
        let listener = LISTENER.load(Ordering::SeqCst);
        // ppoll(2) as a raw call writes what is left of the time here.
        let mut pause = [0u64, 20_000];
        let timeout = if listener < 0 { pause.as_mut_ptr().cast_const() } else { core::ptr::null() };
        fds[2].fd = listener;
        match sys::ppoll(fds.as_mut_ptr(), 3, timeout, core::ptr::null(), 8) {
            Ok(_) => {}
            Err(errno::EINTR) => continue,
            Err(e) => return Err(at(step::fork::POLL)(e)),
        }
        if fds[0].revents != 0 {
            tree::end(plan);
            sys::exit(0); // the owner is gone
        }
        if fds[1].revents != 0 || fds[2].revents != 0 || failure().is_some() {
            break;
        }
    }
    sys::close(ended).map_err(at(step::fork::CLOSE_PIDFD))?;
    let listener = LISTENER.load(Ordering::SeqCst);
    let mut supervisor = NotificationSupervisor::new(listener);
    if fds[2].revents & POLLIN != 0 && supervisor.next(plan, guards) {
        return Err(at(step::exec::CANDIDATE.item(0))(errno::EPERM));
    }
    Ok(StartedPayload { pid, listener, supervisor })
}

fn words(plan: &MappedPlan, r: Ref, into: &'static Words) -> Result<*const Str, i32> {
    let offsets: &[u32] = plan.items(r);
    if offsets.len() >= MAX_WORDS {
        return Err(errno::E2BIG);
    }
    let list = into.0.get().cast::<Str>();
    for (i, &off) in offsets.iter().enumerate() {
        // SAFETY: i is below MAX_WORDS, and nothing else touches the array.
        unsafe { list.add(i).write(plan.str(off)) };
    }
    Ok(list) // the rest is NUL already
}

extern "C" fn entry(context: usize) -> ! {
    // SAFETY: `start` passes the address of the static context.
    let context = unsafe { &*(context as *const Context<'_>) };
    if let Err(f) = enter(context) {
        FAILED_INDEX.store(f.at.index, Ordering::SeqCst);
        FAILED_ERRNO.store(f.errno, Ordering::SeqCst);
        FAILED_STEP.store(u32::from(f.at.step), Ordering::SeqCst);
    }
    sys::exit(127)
}

/// The payload's restrictions, in order; returns only on failure.
fn enter(c: &Context<'_>) -> StepResult {
    let plan = c.plan;
    let h = plan.header();
    sys::setsid().map_err(at(step::session::PAYLOAD_SETSID))?; // its own session, so that a terminal can be its own
    if c.terminal {
        sys::ioctl(1, TIOCSCTTY, 0).map_err(at(step::terminal::CONTROL))?;
    }
    container::become_program_user(plan)?; // before any path is looked at: that is the program's to do
    sys::chdir(plan.str(h.cwd.off)).map_err(at(step::cwd::ENTER))?;
    let no_spawn = plan.has(flag::NO_SPAWN);
    let program = if no_spawn {
        let number = fd::exec(raise_open_files()?); // the program's number lies above the limit that follows
        Some(find_program(plan, number)?)
    } else {
        None
    };
    for (i, r) in plan.items::<Rlimit>(h.rlimits).iter().enumerate() {
        let (pair, mut there) = ([r.soft, r.hard], [0u64; 2]);
        sys::prlimit(0, r.resource, core::ptr::null(), there.as_mut_ptr()).map_err(at(step::rlimit::LIMIT.item(i)))?;
        // What is so already is not touched: a sandbox around this one may have settled it for good.
        if pair != there {
            sys::prlimit(0, r.resource, pair.as_ptr(), core::ptr::null_mut())
                .map_err(at(step::rlimit::LIMIT.item(i)))?;
        }
    }
    caps::drop_all()?; // before no_new_privs only by habit: neither needs the other
    sys::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).map_err(at(step::nnp::PAYLOAD))?; // without it Landlock and seccomp are refused
    if c.ruleset >= 0 {
        sys::landlock_restrict_self(c.ruleset, 0).map_err(at(step::landlock::RESTRICT_PAYLOAD))?; // after all mounts, whose files it names
    }
    let none = 0u64;
    sys::rt_sigprocmask(SIG_SETMASK, &none, core::ptr::null_mut(), 8).map_err(at(step::session::UNBLOCK_SIGNALS))?;
    STARTED_NS.store(sys::now_ns(), Ordering::SeqCst); // before the filter, which may refuse to ask
    seccomp(plan)?; // last: it refuses most of the calls above
    exec(c, program)
}

/// Raises the limit of open files as far as it goes; the hard limit.
fn raise_open_files() -> Result<u64, StepFault> {
    let mut pair = [0u64; 2];
    sys::prlimit(0, RLIMIT_NOFILE, core::ptr::null(), pair.as_mut_ptr()).map_err(at(step::rlimit::GET_OPEN_FILES))?;
    pair[0] = pair[1];
    sys::prlimit(0, RLIMIT_NOFILE, pair.as_ptr(), core::ptr::null_mut()).map_err(at(step::rlimit::RAISE_OPEN_FILES))?;
    Ok(pair[1])
}

/// The rights that anything but a directory can have.
const ACCESS_OF_FILES: u64 = LANDLOCK_ACCESS_FS_EXECUTE
    | LANDLOCK_ACCESS_FS_WRITE_FILE
    | LANDLOCK_ACCESS_FS_READ_FILE
    | LANDLOCK_ACCESS_FS_TRUNCATE
    | LANDLOCK_ACCESS_FS_IOCTL_DEV;

fn land_ruleset(plan: &MappedPlan) -> Result<i32, StepFault> {
    let h = plan.header();
    let attr = [h.handled_fs, h.handled_net, h.scoped];
    let size = if h.scoped != 0 {
        24
    } else if h.handled_net != 0 {
        16
    } else {
        8
    };
    let ruleset = sys::landlock_create_ruleset(attr.as_ptr(), size, 0).map_err(at(step::landlock::CREATE))? as i32;
    for (i, rule) in plan.items::<LandRule>(h.land_rules).iter().enumerate() {
        let fault = at(step::landrule::RULE.item(i));
        let path = match sys::openat(AT_FDCWD, plan.str(rule.path), O_PATH | O_CLOEXEC, 0) {
            Ok(f) => f as i32,
            Err(errno::ENOENT | errno::ENOTDIR) if rule.flags & op_flag::OPTIONAL as u32 != 0 => continue,
            Err(e) => return Err(fault(e)),
        };
        let mut st = sys::Statx::new();
        sys::statx(path, c"".as_ptr().cast(), AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st).map_err(&fault)?;
        let other = rule.ino != st.ino || rule.dev != 0 && rule.dev != st.dev();
        if rule.ino != 0 && other {
            return Err(fault(errno::ESTALE)); // another file than the one that the rule was decided on
        }
        let access = if st.mode & S_IFMT == S_IFDIR { rule.access } else { rule.access & ACCESS_OF_FILES };
        let mut packed = [0u8; 12];
        packed[..8].copy_from_slice(&access.to_ne_bytes());
        packed[8..].copy_from_slice(&path.to_ne_bytes());
        if access != 0 {
            sys::landlock_add_rule(ruleset, LANDLOCK_RULE_PATH_BENEATH, packed.as_ptr(), 0).map_err(&fault)?;
        }
        sys::close(path).map_err(&fault)?;
    }
    Ok(ruleset)
}

/// Scopes alone: what is outside of this domain gets no signal from inside.
fn scope_ruleset(scoped: u64) -> Result<i32, StepFault> {
    let attr = [0, 0, scoped];
    sys::landlock_create_ruleset(attr.as_ptr(), 24, 0).map(|f| f as i32).map_err(at(step::landlock::CREATE_SCOPES))
}

/// Without mounts: restricts init itself, whose children inherit its domain.
pub fn landlock(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::LANDLOCK) {
        return Ok(());
    }
    let ruleset = land_ruleset(plan)?;
    sys::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).map_err(at(step::nnp::INIT))?;
    sys::landlock_restrict_self(ruleset, 0).map_err(at(step::landlock::RESTRICT_INIT))?;
    sys::close(ruleset).map_err(at(step::landlock::CLOSE))?;
    Ok(())
}

#[repr(C)]
struct Program {
    len: u16,
    pad: [u16; 3],
    insns: *const u8,
}

fn seccomp(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::FILTER) {
        return Ok(());
    }
    let filter: &[u64] = plan.items(plan.header().filter);
    let program = Program { len: filter.len() as u16, pad: [0; 3], insns: filter.as_ptr().cast() };
    let install = |flags: u32| sys::seccomp(SECCOMP_SET_MODE_FILTER, flags, (&raw const program).cast());
    if !plan.has(flag::LISTENER) {
        install(0).map_err(at(step::seccomp::INSTALL))?;
        return Ok(());
    }
    // Where the kernel has WAIT_KILLABLE_RECV (5.19), a signal cannot restart a call that init has already performed.
    let listener = match install(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(errno::EINVAL) => install(SECCOMP_FILTER_FLAG_NEW_LISTENER),
        other => other,
    };
    LISTENER.store(listener.map_err(at(step::seccomp::INSTALL_WITH_LISTENER))? as i32, Ordering::SeqCst);
    Ok(())
}

/// Replaces the child by the program; returns only on failure: the errno of the best candidate.
fn exec(c: &Context<'_>, program: Option<FoundProgram>) -> StepResult {
    if let Some(found) = program {
        let argv = found.argv(c.argv);
        let e = sys::execveat(found.number, c"".as_ptr().cast(), argv, c.envp, AT_EMPTY_PATH).err().unwrap_or(0);
        return Err(at(step::exec::CANDIDATE.item(found.candidate))(e));
    }
    let mut best = (0, errno::ENOENT);
    for (i, &path) in c.plan.items::<u32>(c.plan.header().programs).iter().enumerate() {
        let e = sys::execve(c.plan.str(path), c.argv, c.envp).err().unwrap_or(0);
        if e != errno::ENOENT && e != errno::ENOTDIR && (best.1 == errno::ENOENT || best.1 == errno::EACCES) {
            best = (i, e);
            if e != errno::EACCES {
                break;
            }
        }
    }
    Err(at(step::exec::CANDIDATE.item(best.0))(best.1))
}

/// The program on its high descriptor, with the interpreter's arguments when it was a script.
struct FoundProgram {
    /// Its descriptor.
    number: i32,
    candidate: usize,
    /// How many words the `#!` line puts in front: 0, 1 (interpreter) or 2 (with an argument), then the script's path.
    script: usize,
}

struct ScriptLine(core::cell::UnsafeCell<[u8; 512]>);
// SAFETY: only the vforked child uses it.
unsafe impl Sync for ScriptLine {}
static SHEBANG: ScriptLine = ScriptLine(core::cell::UnsafeCell::new([0; 512]));
static SCRIPT_ARGV: Words = Words(core::cell::UnsafeCell::new([null(); MAX_WORDS]));

impl FoundProgram {
    fn argv(&self, plain: *const Str) -> *const Str {
        if self.script == 0 { plain } else { SCRIPT_ARGV.0.get().cast() }
    }
}

/// Opens the program on the high descriptor. A script cannot be run from a close-on-exec descriptor, so its `#!` line is
/// resolved here, once, as execve(2) does, and the interpreter sits on the descriptor.
fn find_program(plan: &MappedPlan, number: i32) -> Result<FoundProgram, StepFault> {
    let mut best = (0, errno::ENOENT);
    for (i, &path) in plan.items::<u32>(plan.header().programs).iter().enumerate() {
        match open_program(plan.str(path), number) {
            Ok(()) => {
                return interpreter(plan, plan.str(path), number)
                    .map(|script| FoundProgram { number, candidate: i, script })
                    .map_err(at(step::exec::CANDIDATE.item(i)));
            }
            Err(errno::ENOENT | errno::ENOTDIR) => {}
            Err(e) => best = (i, e),
        }
    }
    Err(at(step::exec::CANDIDATE.item(best.0))(best.1))
}

fn open_program(path: Str, number: i32) -> Result<(), i32> {
    let f = sys::openat(AT_FDCWD, path, O_PATH | O_CLOEXEC, 0)? as i32;
    let mut st = sys::Statx::new();
    sys::statx(f, c"".as_ptr().cast(), AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st)?;
    if st.mode & S_IFMT != S_IFREG || st.mode & 0o111 == 0 {
        sys::close(f)?;
        return Err(errno::EACCES);
    }
    sys::dup3(f, number, O_CLOEXEC)?;
    sys::close(f).map(|_| ())
}

fn interpreter(plan: &MappedPlan, script: Str, number: i32) -> Result<usize, i32> {
    let line = SHEBANG.0.get().cast::<u8>();
    let Ok(f) = sys::openat(AT_FDCWD, script, O_RDONLY | O_CLOEXEC, 0) else {
        return Ok(0); // executable but not readable: cannot be a script that runs
    };
    let n = sys::pread(f as i32, line, 510, 0)?;
    sys::close(f as i32)?;
    // SAFETY: `pread` filled n ≤ 510 bytes of the 512; only this child uses the buffer.
    let text = unsafe { core::slice::from_raw_parts_mut(line, 512) };
    if n < 2 || &text[..2] != b"#!" {
        return Ok(0);
    }
    let end = match text[..n].iter().position(|&b| b == b'\n') {
        Some(end) => end,
        None if n < 510 => n, // the line is the whole file
        None => return Err(errno::ENOEXEC),
    };
    let blank = |b: u8| b == b' ' || b == b'\t';
    let mut start = 2;
    while start < end && blank(text[start]) {
        start += 1;
    }
    let mut stop = start;
    while stop < end && !blank(text[stop]) {
        stop += 1;
    }
    let (mut arg, mut last) = (stop, end);
    while arg < last && blank(text[arg]) {
        arg += 1;
    }
    while last > arg && blank(text[last - 1]) {
        last -= 1;
    }
    if start == stop {
        return Err(errno::ENOEXEC);
    }
    text[stop] = 0;
    text[last] = 0;
    let by_env = names_by_env(&text[start..stop], &text[arg..last]);
    let list = SCRIPT_ARGV.0.get().cast::<Str>();
    let offsets: &[u32] = plan.items(plan.header().argv);
    // SAFETY: at most three words more than argv, whose length `words` bounded; the text lives in static memory.
    let front = unsafe {
        list.write(line.add(if by_env { arg } else { start }));
        let mut k = 1;
        if arg < last && !by_env {
            list.add(k).write(line.add(arg));
            k += 1;
        }
        list.add(k).write(script);
        for (i, &off) in offsets.iter().enumerate().skip(1) {
            if k + i + 1 < MAX_WORDS {
                list.add(k + i).write(plan.str(off));
            }
        }
        k
    };
    if by_env {
        open_on_path(plan, &text[arg..last], number)?;
    } else {
        // SAFETY: `line` holds the interpreter's NUL-terminated path at `start`.
        open_program(unsafe { line.add(start) }, number)?;
    }
    Ok(front)
}

/// Whether a `#!` line leaves the search to env(1): that would exec once more, so it is done here. Options, variables
/// and paths are env's own business.
fn names_by_env(interpreter: &[u8], argument: &[u8]) -> bool {
    let plain = |&b: &u8| !matches!(b, b'=' | b'/' | b' ' | b'\t');
    matches!(interpreter, b"/usr/bin/env" | b"/bin/env")
        && argument.first().is_some_and(|&b| b != b'-')
        && argument.iter().all(plain)
}

/// Opens a program that is found on the sandbox's PATH.
fn open_on_path(plan: &MappedPlan, name: &[u8], number: i32) -> Result<(), i32> {
    let offsets: &[u32] = plan.items(plan.header().envp);
    let path = offsets.iter().find_map(|&off| plan.text(off).strip_prefix(b"PATH="));
    let mut best = errno::ENOENT;
    for dir in path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin").split(|&b| b == b':') {
        let mut file = [0u8; 4096];
        let n = dir.len();
        if n == 0 || n + name.len() + 2 > file.len() {
            continue;
        }
        file[..n].copy_from_slice(dir);
        file[n] = b'/';
        file[n + 1..n + 1 + name.len()].copy_from_slice(name);
        match open_program(file.as_ptr(), number) {
            Ok(()) => return Ok(()),
            Err(errno::ENOENT | errno::ENOTDIR) => {}
            Err(e) => best = e,
        }
    }
    Err(best)
}
