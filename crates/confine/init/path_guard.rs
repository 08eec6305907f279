//! Path guards: names that may not come into being, and the calls that create names.
//!
//! A protected or denied path that does not exist yet cannot be mounted over. Where a writable tree holds such a name,
//! the filter notifies every call that can make one, and init performs the call: it reads the path once, opens the
//! directory, compares that directory's identity and the last component with the guards, and then acts on the very
//! descriptor it compared. The program's memory is never looked at again, so changing it meanwhile changes nothing.
//!
//! Directories of guards are bound onto themselves by the mount plan, so a guarded directory cannot be moved away and
//! replaced. Descriptors of them are kept open, so their inode numbers cannot be used again.

use crate::fault::{StepFault, at};
use crate::listener::{Listener, NotificationBuffer, SavedCall};
use crate::path_args::path_arguments;
use crate::plan::MappedPlan;
use crate::socket_calls::landlock_refuses_bind;
use crate::sys::{self, Str};
use crate::task::{base_link, borrow, has_signal, read_memory, read_path, self_fd, terminal_of, umask_of};
use crate::uapi::*;
use crate::wire::{PathGuard, step};

const MAX_GUARDS: usize = 512;
/// As many as there are processes by default.
const MAX_WAITING: usize = 128;
const PATH_MAX: usize = 4096;
/// What open(2) looks at; it ignores the other bits, which openat2(2) refuses.
const OPEN_FLAGS: i32 = 0o37777703;
const EMPTY: Str = c"".as_ptr().cast();

#[derive(Clone, Copy)]
struct GuardedParent {
    dev: u64,
    ino: u64,
    guard: PathGuard,
}

struct Parents(core::cell::UnsafeCell<[GuardedParent; MAX_GUARDS]>);
// SAFETY: `prepare` fills it before any other process exists; after that it is only read, by init's one thread.
unsafe impl Sync for Parents {}
/// Static, so that only the pages that a plan uses are ever touched.
static PARENTS: Parents = Parents(core::cell::UnsafeCell::new([GuardedParent::NONE; MAX_GUARDS]));

impl GuardedParent {
    const NONE: GuardedParent =
        GuardedParent { dev: 0, ino: 0, guard: PathGuard { parent: 0, denied: 0, count: 0, index: 0 } };
}

/// The guards, by identity of their directory.
pub struct PathGuards {
    count: usize,
    waiting: [SavedCall; MAX_WAITING],
    waiters: usize,
}

/// What became of a call that makes a name.
pub enum GuardOutcome {
    /// Performed and answered, or waiting.
    Answered,
    /// A guard refuses it; not answered yet.
    Refused(GuardRefusal),
}

/// Which guard refused a call, as an event reports it.
#[derive(Clone, Copy)]
pub struct GuardRefusal {
    /// The policy denies the name; else it protects it.
    pub denied: bool,
    /// The name is the call's second path.
    pub second: bool,
}

/// What one call wants, by registers.
enum Operation {
    Open { flags: i32, mode: u32 },
    Mkdir { mode: u32 },
    Mknod { mode: u32 },
    Symlink { target: u64 },
    Link { olddir: i32, old: u64, flags: i32 },
    Rename { olddir: i32, old: u64, flags: u32 },
    Unlink { flags: i32 },
}

/// `AF_UNIX` addresses by path: family, path.
const SUN_PATH: usize = 2;

mod calls {
    use crate::seccomp::calls::native_or_absent as number;

    pub const BIND: i32 = number("bind");
    pub const OPEN: i32 = number("open");
    pub const RENAME: i32 = number("rename");
    pub const MKDIR: i32 = number("mkdir");
    pub const RMDIR: i32 = number("rmdir");
    pub const CREAT: i32 = number("creat");
    pub const LINK: i32 = number("link");
    pub const UNLINK: i32 = number("unlink");
    pub const SYMLINK: i32 = number("symlink");
    pub const MKNOD: i32 = number("mknod");
    pub const OPENAT: i32 = number("openat");
    pub const MKDIRAT: i32 = number("mkdirat");
    pub const MKNODAT: i32 = number("mknodat");
    pub const UNLINKAT: i32 = number("unlinkat");
    pub const RENAMEAT: i32 = number("renameat");
    pub const LINKAT: i32 = number("linkat");
    pub const SYMLINKAT: i32 = number("symlinkat");
    pub const RENAMEAT2: i32 = number("renameat2");
}

/// A path of the program's, copied once, and split into its directory and its last component.
struct Path {
    text: [u8; PATH_MAX + 1],
    len: usize,
}

impl Path {
    fn read(pid: u32, address: u64) -> Result<Path, i32> {
        let mut p = Path { text: [0; PATH_MAX + 1], len: 0 };
        p.len = read_path(pid, address, &mut p.text[..PATH_MAX])?;
        if p.len >= PATH_MAX {
            return Err(errno::ENAMETOOLONG);
        }
        p.text[p.len] = 0;
        Ok(p)
    }

    fn trim(&mut self) -> bool {
        let mut trimmed = false;
        while self.len > 1 && self.text[self.len - 1] == b'/' {
            self.len -= 1;
            self.text[self.len] = 0;
            trimmed = true;
        }
        trimmed
    }
}

/// The directory of a name, open, and where the name starts in its path. Closed on every way out: a program that knows
/// one which is not would take all of init's descriptors.
struct ParentDir {
    fd: i32,
    name_at: usize,
}

impl Drop for ParentDir {
    fn drop(&mut self) {
        // close(2) on a descriptor of ours that only names a directory cannot fail in a way that matters.
        sys::close(self.fd).ok();
    }
}

impl PathGuards {
    /// Looks up the directories of the plan's guards, as the sandbox sees them.
    pub fn prepare(plan: &MappedPlan) -> Result<PathGuards, StepFault> {
        let mut g = PathGuards { count: 0, waiting: [SavedCall::EMPTY; MAX_WAITING], waiters: 0 };
        for (i, guard) in plan.items::<PathGuard>(plan.header().guards).iter().enumerate() {
            let fault = at(step::guard::DIRECTORY.item(i));
            if g.count == MAX_GUARDS {
                return Err(fault(errno::E2BIG));
            }
            let dir = sys::openat2(
                AT_FDCWD,
                plan.str(guard.parent),
                O_PATH | O_CLOEXEC | O_DIRECTORY,
                0,
                RESOLVE_NO_MAGICLINKS,
            )
            .map_err(&fault)?;
            let (dev, ino) = identity(dir as i32).map_err(&fault)?;
            // SAFETY: the number is below the array's length, and nothing else uses the array yet.
            unsafe {
                PARENTS.0.get().cast::<GuardedParent>().add(g.count).write(GuardedParent { dev, ino, guard: *guard })
            };
            g.count += 1; // the descriptor stays open: the inode number cannot be used again
        }
        Ok(g)
    }

    /// Whether a guard refuses this name in this directory, and then whether the name is denied.
    fn forbids(&self, plan: &MappedPlan, dir: i32, name: &[u8]) -> Result<Option<bool>, i32> {
        let (dev, ino) = identity(dir)?;
        // SAFETY: `prepare` filled the first `count` entries, and nothing writes to them any more.
        let parents = unsafe { core::slice::from_raw_parts(PARENTS.0.get().cast::<GuardedParent>(), self.count) };
        for p in parents {
            if p.dev == dev && p.ino == ino {
                let index: &[u32] = plan.items(crate::wire::Ref { off: p.guard.index, len: p.guard.count });
                if let Ok(i) = index.binary_search_by(|&off| plan.text(off).cmp(name)) {
                    let denied: &[u32] = plan.items(crate::wire::Ref { off: p.guard.denied, len: p.guard.count });
                    return Ok(Some(denied.get(i) == Some(&1)));
                }
            }
        }
        Ok(None)
    }

    /// Whether a call waits for the other end of a FIFO.
    pub fn waiting(&self) -> bool {
        self.waiters > 0
    }

    /// Tries the waiting calls again.
    pub fn retry(&mut self, plan: &MappedPlan, listener: &Listener) {
        let (list, n) = (self.waiting, self.waiters);
        self.waiters = 0;
        for kept in &list[..n] {
            let r = kept.request();
            if !listener.valid(&r) {
                continue;
            }
            if let Ok(true) = has_signal(r.pid) {
                listener.refuse(&r, errno::ERESTARTSYS);
            } else if let GuardOutcome::Refused(_) = self.perform(plan, listener, &r) {
                listener.refuse(&r, errno::EACCES);
            }
        }
    }

    /// Performs one call for the program, or says that a guard refuses it.
    pub fn perform(&mut self, plan: &MappedPlan, listener: &Listener, r: &NotificationBuffer) -> GuardOutcome {
        match self.attempt(plan, listener, r) {
            Ok(v) => v,
            Err(e) => {
                listener.refuse(r, e);
                GuardOutcome::Answered
            }
        }
    }

    fn attempt(&mut self, plan: &MappedPlan, listener: &Listener, r: &NotificationBuffer) -> Result<GuardOutcome, i32> {
        use calls::*;
        let a = &r.args;
        let dirfd = |i: usize| a[i] as i32;
        if r.nr == BIND {
            return self.bind(plan, listener, r);
        }
        let (dir, path, operation) = match r.nr {
            OPEN => (AT_FDCWD, a[0], Operation::Open { flags: a[1] as i32, mode: a[2] as u32 }),
            CREAT => (AT_FDCWD, a[0], Operation::Open { flags: O_WRONLY | O_CREAT | O_TRUNC, mode: a[1] as u32 }),
            OPENAT => (dirfd(0), a[1], Operation::Open { flags: a[2] as i32, mode: a[3] as u32 }),
            MKDIR => (AT_FDCWD, a[0], Operation::Mkdir { mode: a[1] as u32 }),
            MKDIRAT => (dirfd(0), a[1], Operation::Mkdir { mode: a[2] as u32 }),
            MKNOD => (AT_FDCWD, a[0], Operation::Mknod { mode: a[1] as u32 }),
            MKNODAT => (dirfd(0), a[1], Operation::Mknod { mode: a[2] as u32 }),
            SYMLINK => (AT_FDCWD, a[1], Operation::Symlink { target: a[0] }),
            SYMLINKAT => (dirfd(1), a[2], Operation::Symlink { target: a[0] }),
            LINK => (AT_FDCWD, a[1], Operation::Link { olddir: AT_FDCWD, old: a[0], flags: 0 }),
            LINKAT => (dirfd(2), a[3], Operation::Link { olddir: dirfd(0), old: a[1], flags: a[4] as i32 }),
            RENAME => (AT_FDCWD, a[1], Operation::Rename { olddir: AT_FDCWD, old: a[0], flags: 0 }),
            RENAMEAT => (dirfd(2), a[3], Operation::Rename { olddir: dirfd(0), old: a[1], flags: 0 }),
            RENAMEAT2 => (dirfd(2), a[3], Operation::Rename { olddir: dirfd(0), old: a[1], flags: a[4] as u32 }),
            UNLINK => (AT_FDCWD, a[0], Operation::Unlink { flags: 0 }),
            RMDIR => (AT_FDCWD, a[0], Operation::Unlink { flags: AT_REMOVEDIR }),
            UNLINKAT => (dirfd(0), a[1], Operation::Unlink { flags: a[2] as i32 }),
            _ => return Err(errno::EPERM),
        };
        let mut path = Path::read(r.pid, path)?;
        if path.len == 0 {
            return Err(errno::ENOENT);
        }
        if let Operation::Open { flags, mode } = operation {
            return self.open(plan, listener, r, dir, path, flags, mode);
        }
        let slash = path.trim();
        let parent = self.parent_of(listener, r, dir, &path)?;
        match self.make(plan, listener, r, &parent, &path, slash, &operation)? {
            None => {
                listener.done(r, 0);
                Ok(GuardOutcome::Answered)
            }
            Some(guarded) => Ok(GuardOutcome::Refused(guarded)),
        }
    }

    /// Some: a guard refuses it.
    #[allow(clippy::too_many_arguments)]
    fn make(
        &self,
        plan: &MappedPlan,
        listener: &Listener,
        r: &NotificationBuffer,
        parent: &ParentDir,
        path: &Path,
        slash: bool,
        operation: &Operation,
    ) -> Result<Option<GuardRefusal>, i32> {
        let bytes = &path.text[parent.name_at..path.len];
        if bytes.is_empty() {
            return Err(if matches!(operation, Operation::Rename { .. } | Operation::Unlink { .. }) {
                errno::EBUSY
            } else {
                errno::EEXIST
            }); // `/`
        }
        let name: Str = path.text[parent.name_at..].as_ptr();
        if let Some(denied) = self.forbids(plan, parent.fd, bytes)? {
            if let Operation::Unlink { .. } = operation {
                let mut st = sys::Statx::new();
                sys::statx(parent.fd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &mut st)?; // there is nothing to refuse when it is not there
            }
            return Ok(Some(GuardRefusal { denied, second: path_arguments(r.nr).1.is_some() }));
        }
        match *operation {
            Operation::Mkdir { mode } => sys::mkdirat(parent.fd, name, mode & 0o1777 & !umask_of(r.pid)?)?,
            Operation::Mknod { mode } => {
                if slash {
                    return Err(errno::ENOENT);
                }
                sys::mknodat(parent.fd, name, mode & !(S_ISUID | S_ISGID) & !umask_of(r.pid)?, 0)?
            }
            Operation::Symlink { target } => {
                if slash {
                    return Err(errno::ENOENT);
                }
                let target = Path::read(r.pid, target)?;
                sys::symlinkat(target.text.as_ptr(), parent.fd, name)?
            }
            Operation::Unlink { flags } if slash && flags & AT_REMOVEDIR == 0 => return Err(errno::ENOTDIR),
            Operation::Unlink { flags } => sys::unlinkat(parent.fd, name, flags)?,
            Operation::Rename { olddir, old, flags } => {
                let mut from = Path::read(r.pid, old)?;
                from.trim();
                let source = self.parent_of(listener, r, olddir, &from)?;
                let bytes = &from.text[source.name_at..from.len];
                if let Some(denied) = self.forbids(plan, source.fd, bytes)? {
                    return Ok(Some(GuardRefusal { denied, second: false }));
                }
                sys::renameat2(source.fd, from.text[source.name_at..].as_ptr(), parent.fd, name, flags)?
            }
            Operation::Link { olddir, old, flags } => {
                let from = Path::read(r.pid, old)?;
                let own = if from.len == 0 && flags & AT_EMPTY_PATH != 0 {
                    Some(borrow(r.pid, olddir)?)
                } else if flags & AT_SYMLINK_FOLLOW != 0 {
                    Some(match stream_number(&from.text[..from.len]) {
                        Some(n) => borrow(r.pid, n)?,
                        None => self.link_source(listener, r, olddir, &from)?,
                    })
                } else {
                    None
                };
                if let Some(f) = own {
                    let mut link = [0u8; 40];
                    let old = self_fd(&mut link, f);
                    let done = sys::linkat(AT_FDCWD, old, parent.fd, name, AT_SYMLINK_FOLLOW);
                    sys::close(f)?;
                    done?
                } else {
                    let source = self.parent_of(listener, r, olddir, &from)?;
                    sys::linkat(source.fd, from.text[source.name_at..].as_ptr(), parent.fd, name, 0)?
                }
            }
            Operation::Open { .. } => return Err(errno::EINVAL),
        };
        Ok(None)
    }

    /// What a link follows to. A link of procfs on the way would lead to init's own descriptors and directories: ELOOP.
    fn link_source(&self, listener: &Listener, r: &NotificationBuffer, dir: i32, path: &Path) -> Result<i32, i32> {
        let source = self.parent_of(listener, r, dir, path)?;
        let name = path.text[source.name_at..].as_ptr();
        Ok(sys::openat2(source.fd, name, O_PATH | O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS)? as i32)
    }

    /// bind of a Unix socket makes a name as well. The address is read once; the bind is done on a copy of the program's
    /// socket, from the directory that was checked.
    fn bind(&self, plan: &MappedPlan, listener: &Listener, r: &NotificationBuffer) -> Result<GuardOutcome, i32> {
        let mut address = [0u8; 128];
        let len = (r.args[2] as u32 as usize).min(address.len());
        if read_memory(r.pid, r.args[1] as usize, &mut address[..len])? != len {
            return Err(errno::EFAULT);
        }
        let socket = borrow(r.pid, r.args[0] as i32)?;
        let by_path =
            len > SUN_PATH && u16::from_ne_bytes([address[0], address[1]]) == AF_UNIX as u16 && address[SUN_PATH] != 0;
        let done = if by_path {
            self.bind_path(plan, listener, r, socket, &mut address, len)
        } else if landlock_refuses_bind(plan, socket, &address[..len]) {
            Err(errno::EACCES)
        } else {
            sys::bind(socket, address.as_ptr(), len).map(|_| None)
        };
        sys::close(socket)?;
        if let Some(guarded) = done? {
            return Ok(GuardOutcome::Refused(guarded));
        }
        listener.done(r, 0);
        Ok(GuardOutcome::Answered)
    }

    fn bind_path(
        &self,
        plan: &MappedPlan,
        listener: &Listener,
        r: &NotificationBuffer,
        socket: i32,
        address: &mut [u8; 128],
        len: usize,
    ) -> Result<Option<GuardRefusal>, i32> {
        let mut path = Path { text: [0; PATH_MAX + 1], len: 0 };
        let given = &address[SUN_PATH..len];
        path.len = given.iter().position(|&b| b == 0).unwrap_or(given.len());
        path.text[..path.len].copy_from_slice(&given[..path.len]);
        let parent = self.parent_of(listener, r, AT_FDCWD, &path)?;
        let name = &path.text[parent.name_at..path.len];
        if let Some(denied) = self.forbids(plan, parent.fd, name)? {
            return Ok(Some(GuardRefusal { denied, second: false }));
        }
        address[SUN_PATH..].fill(0);
        address[SUN_PATH..SUN_PATH + name.len()].copy_from_slice(name);
        sys::umask(umask_of(r.pid)?)?;
        let done = sys::fchdir(parent.fd).and_then(|_| sys::bind(socket, address.as_ptr(), SUN_PATH + name.len() + 1));
        sys::chdir(c"/".as_ptr().cast())?;
        sys::umask(0)?;
        done?;
        Ok(None)
    }

    /// open with O_CREAT or O_TMPFILE: follows a last symbolic link step by step, each step checked.
    #[allow(clippy::too_many_arguments)]
    fn open(
        &mut self,
        plan: &MappedPlan,
        listener: &Listener,
        r: &NotificationBuffer,
        dir: i32,
        mut path: Path,
        flags: i32,
        mode: u32,
    ) -> Result<GuardOutcome, i32> {
        let mode = (mode & 0o1777 & !umask_of(r.pid)?) as u64;
        let flags = flags & OPEN_FLAGS;
        let cloexec = flags & O_CLOEXEC != 0;
        if flags & O_TMPFILE == O_TMPFILE {
            let base = self.base(listener, r, dir, &path)?;
            let f = sys::openat2(base, path.text.as_ptr(), flags | O_CLOEXEC, mode, RESOLVE_NO_MAGICLINKS);
            if base >= 0 {
                sys::close(base)?;
            }
            let f = f? as i32;
            listener.give(r, f, cloexec)?;
            return Ok(GuardOutcome::Answered);
        }
        if path.text[path.len - 1] == b'/' {
            return Err(errno::EISDIR); // as open(2) with O_CREAT
        }
        let mut parent = self.parent_of(listener, r, dir, &path)?;
        for _ in 0..40 {
            if let Some(n) = stream_number(&path.text[..path.len]) {
                let f = opened_again(borrow(r.pid, n)?, flags)?;
                listener.give(r, f, cloexec)?;
                return Ok(GuardOutcome::Answered);
            }
            let name = &path.text[parent.name_at..path.len];
            if let Some(denied) = self.forbids(plan, parent.fd, name)? {
                // Reading or writing what is there is for the mounts to judge; only making it is refused here.
                return Ok(GuardOutcome::Refused(GuardRefusal { denied, second: false }));
            }
            let at: Str = path.text[parent.name_at..].as_ptr();
            not_ours_to_open(parent.fd, at, flags)?;
            let how = flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
            match sys::openat2(parent.fd, at, how, mode, RESOLVE_NO_MAGICLINKS) {
                Ok(f) => {
                    let f = f as i32;
                    if flags & O_NONBLOCK == 0 {
                        let now = sys::fcntl(f, F_GETFL, 0)?;
                        sys::fcntl(f, F_SETFL, now & !(O_NONBLOCK as usize))?;
                    }
                    listener.give(r, f, cloexec)?;
                    return Ok(GuardOutcome::Answered);
                }
                Err(errno::ENXIO) => {
                    let mut st = sys::Statx::new();
                    sys::statx(parent.fd, at, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &mut st)?;
                    if st.mode & S_IFMT == S_IFIFO && flags & O_NONBLOCK == 0 && self.waiters < MAX_WAITING {
                        // A FIFO without a reader. The program would wait; so does its call, without us.
                        self.waiting[self.waiters] = SavedCall::new(r);
                        self.waiters += 1;
                        return Ok(GuardOutcome::Answered);
                    }
                    if st.mode & S_IFMT == S_IFCHR && st.rdev == [5, 0] {
                        listener.give(r, terminal_of(r.pid, flags)?, cloexec)?;
                        return Ok(GuardOutcome::Answered);
                    }
                    return Err(errno::ENXIO);
                }
                Err(errno::ELOOP) if flags & (O_EXCL | O_NOFOLLOW) == 0 => {
                    let mut next = Path { text: [0; PATH_MAX + 1], len: 0 };
                    next.len = sys::readlinkat(parent.fd, at, next.text.as_mut_ptr(), PATH_MAX)?;
                    if next.len == 0 || next.len >= PATH_MAX {
                        return Err(errno::ENAMETOOLONG);
                    }
                    path = next;
                    parent = split(parent.fd, &path)?;
                }
                Err(e) => return Err(e),
            }
        }
        Err(errno::ELOOP)
    }

    /// The directory from which a path of the program's starts: AT_FDCWD for an absolute one (init has the same root).
    fn base(&self, listener: &Listener, r: &NotificationBuffer, dir: i32, path: &Path) -> Result<i32, i32> {
        if path.text[0] == b'/' {
            return Ok(AT_FDCWD);
        }
        if dir != AT_FDCWD && dir < 0 {
            return Err(errno::EBADF);
        }
        let mut text = [0u8; 64];
        base_link(r.pid, dir, &mut text);
        let f = sys::openat(AT_FDCWD, text.as_ptr(), O_PATH | O_CLOEXEC | O_DIRECTORY, 0)
            .map_err(|e| if dir == AT_FDCWD || e != errno::ENOENT { e } else { errno::EBADF })? as i32;
        // Only now is it certain that the number still meant the calling thread when it was opened.
        if !listener.valid(r) {
            sys::close(f)?;
            return Err(errno::EINTR);
        }
        Ok(f)
    }

    fn parent_of(&self, listener: &Listener, r: &NotificationBuffer, dir: i32, path: &Path) -> Result<ParentDir, i32> {
        let base = self.base(listener, r, dir, path)?;
        let parent = split(base, path);
        if base >= 0 {
            sys::close(base)?;
        }
        parent
    }
}

/// Opens the directory part of a path.
fn split(base: i32, path: &Path) -> Result<ParentDir, i32> {
    let text = &path.text[..path.len];
    let at = text.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let mut dir = [0u8; PATH_MAX + 2];
    let n = if at == 0 {
        dir[0] = b'.';
        1
    } else {
        dir[..at].copy_from_slice(&text[..at]);
        at
    };
    dir[n] = 0;
    let f = sys::openat2(base, dir.as_ptr(), O_PATH | O_CLOEXEC | O_DIRECTORY, 0, RESOLVE_NO_MAGICLINKS)? as i32;
    Ok(ParentDir { fd: f, name_at: at })
}

/// What init must not open for the program, because it would get there what the program would not: init is outside of
/// its Landlock domain, and procfs asks who opens. So nothing of procfs, and no FIFO or device for writing where the
/// mount is read-only: such a mount holds files, and Landlock alone holds the rest.
fn not_ours_to_open(dir: i32, name: Str, flags: i32) -> Result<(), i32> {
    if sys::fstatfs(dir)?.0 == PROC_SUPER_MAGIC {
        return Err(errno::EACCES);
    }
    let mut st = sys::Statx::new();
    match sys::statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &mut st) {
        Ok(_) => {}
        Err(errno::ENOENT) => return Ok(()),
        Err(e) => return Err(e),
    }
    let special = !matches!(st.mode & S_IFMT, S_IFREG | S_IFDIR | S_IFLNK);
    if !special || flags & O_ACCMODE == O_RDONLY {
        return Ok(());
    }
    let f = sys::openat2(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS)? as i32;
    let mount = sys::fstatfs(f);
    sys::close(f)?;
    if mount?.1 & ST_RDONLY != 0 { Err(errno::EACCES) } else { Ok(()) }
}

/// What an open by number gives: a copy of the descriptor, or, of a pipe that the descriptor is open for another way than
/// is asked for, that way too, as the kernel opens a pipe again. A pipe lies in no mount, so no rule of the sandbox is about
/// it; that its owner is the program's user is what open(2) would ask. Takes the descriptor over.
fn opened_again(f: i32, flags: i32) -> Result<i32, i32> {
    let again = || {
        if sys::fcntl(f, F_GETFL, 0)? as i32 & O_ACCMODE == flags & O_ACCMODE || sys::fstatfs(f)?.0 != PIPEFS_MAGIC {
            return Ok(None);
        }
        let mut st = sys::Statx::new();
        sys::statx(f, EMPTY, AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st)?;
        let (mut real, mut effective, mut saved) = (0, 0, 0);
        sys::getresuid(&mut real, &mut effective, &mut saved)?;
        if st.uid != effective {
            return Err(errno::EACCES);
        }
        let mut link = [0u8; 40];
        let how = flags & (O_ACCMODE | O_NONBLOCK | O_APPEND) | O_CLOEXEC;
        sys::openat(AT_FDCWD, self_fd(&mut link, f), how, 0).map(Some)
    };
    let done = again();
    if !matches!(done, Ok(None)) {
        sys::close(f)?;
    }
    Ok(done?.map_or(f, |other| other as i32))
}

fn identity(f: i32) -> Result<(u64, u64), i32> {
    let mut st = sys::Statx::new();
    sys::statx(f, EMPTY, AT_EMPTY_PATH, STATX_BASIC_STATS, &mut st)?;
    Ok((st.dev(), st.ino))
}

/// `/proc/self/fd/N`, `/dev/fd/N`, `/dev/stdin` and its kin: the program's own open files, by number.
fn stream_number(path: &[u8]) -> Option<i32> {
    let digits = match path {
        b"/dev/stdin" => return Some(0),
        b"/dev/stdout" => return Some(1),
        b"/dev/stderr" => return Some(2),
        _ => path.strip_prefix(b"/proc/self/fd/").or_else(|| path.strip_prefix(b"/dev/fd/"))?,
    };
    if digits.is_empty() || digits.len() > 6 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |n, b| n * 10 + (b - b'0') as i32))
}
