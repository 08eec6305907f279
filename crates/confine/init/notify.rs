//! Answers seccomp notifications and writes an event for each.
//!
//! Three classes. Denied: the decision was BPF's, on registers; the answer is its errno and the event is the evidence.
//! Traced: let through as it was; what the event carries is what was read, never a decision. Of calls on sockets only those
//! are told whose address the network refuses (`network`). Created: init performs the call itself on what it read
//! (`guard`), so that the program cannot change the argument between check and use.

use crate::guard::{Guarded, Guards, Made};
use crate::network;
use crate::plan::Plan;
use crate::seccomp::classify::{Insn, SeccompData, Verdict, classify};
use crate::sys;
use crate::uapi::*;
use crate::wire::{EVENT_PATH, Event, fd, flag, told};

/// `struct seccomp_notif`, with room for what later kernels append.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Request {
    /// Cookie of the call.
    pub id: u64,
    /// Thread, as init sees it.
    pub pid: u32,
    flags: u32,
    /// System call number.
    pub nr: i32,
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    ip: u64,
    /// Registers.
    pub args: [u64; 6],
    spare: [u64; 16],
}

impl Request {
    /// All zero.
    pub const EMPTY: Request = Request { id: 0, pid: 0, flags: 0, nr: 0, arch: 0, ip: 0, args: [0; 6], spare: [0; 16] };
}

/// What has to be kept of a call to try it again.
#[derive(Clone, Copy)]
pub struct Kept {
    id: u64,
    args: [u64; 6],
    pid: u32,
    nr: i32,
}

impl Kept {
    /// All zero.
    pub const EMPTY: Kept = Kept { id: 0, args: [0; 6], pid: 0, nr: 0 };

    /// Of this call.
    pub fn new(r: &Request) -> Kept {
        Kept { id: r.id, args: r.args, pid: r.pid, nr: r.nr }
    }

    /// The call.
    pub fn request(&self) -> Request {
        Request { id: self.id, args: self.args, pid: self.pid, nr: self.nr, ..Request::EMPTY }
    }
}

#[repr(C)]
struct Response {
    id: u64,
    val: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    srcfd: u32,
    newfd: u32,
    newfd_flags: u32,
}

/// The listener and what was seen through it.
pub struct Answer {
    listener: i32,
    started: bool,
    events: u64,
    lost: u32,
}

impl Answer {
    /// For this listener (or -1).
    pub fn new(listener: i32) -> Answer {
        if listener >= 0 {
            // Since Linux 6.6: both sides on one CPU. Only a matter of speed, so a refusal changes nothing.
            if let Err(e) = sys::ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
                && e == errno::EPERM
            {
                crate::watch::weakened(crate::wire::step::SECCOMP, e);
            }
        }
        Answer { listener, started: false, events: 0, lost: 0 }
    }

    /// Events seen and events that could not be written.
    pub fn seen(&self) -> (u64, u32) {
        (self.events, self.lost)
    }

    /// Takes and answers one call. True when the run is to end because of it.
    pub fn next(&mut self, plan: &Plan, guards: &mut Guards) -> bool {
        let mut r = Request::EMPTY;
        if sys::ioctl(self.listener, SECCOMP_IOCTL_NOTIF_RECV, (&raw mut r) as usize).is_err() {
            return false; // the caller was killed meanwhile
        }
        let verdict = self.verdict(plan, &r);
        let errno = verdict.errno() as i32;
        let terminate = plan.has(flag::TERMINATE);
        match verdict.class() {
            Verdict::TRACE => {
                if network::is_about(r.nr) {
                    if self.unreachable(plan, &r, verdict) && terminate {
                        return true;
                    }
                } else {
                    self.event(&r, verdict, 0, None);
                }
                self.proceed(&r);
                false
            }
            Verdict::CREATE => {
                // Read before the call is answered: afterwards the caller goes on, and elsewhere.
                let about = network::is_about(r.nr); // bind, told only when it is refused
                let reports = plan.has(flag::TRACE) || (terminate && plan.has(flag::NO_NETWORK));
                if about && reports && self.unreachable(plan, &r, verdict) && terminate {
                    return true;
                }
                let seen = (!about && plan.has(flag::TRACE)).then(|| self.record(&r, verdict, 0, None));
                match guards.perform(plan, self, &r) {
                    Made::Done => {
                        if let Some(seen) = seen {
                            self.write(&seen);
                        }
                        false
                    }
                    Made::Refused(guarded) => {
                        self.event(&r, verdict, errno::EACCES, Some(guarded));
                        if !terminate {
                            self.refuse(&r, errno::EACCES);
                        }
                        terminate
                    }
                }
            }
            Verdict::EXEC if !self.started => {
                self.started = true; // the one exec, by the one thread there is: nobody else can change its arguments
                self.proceed(&r);
                false
            }
            _ => {
                self.event(&r, verdict, errno, None);
                if terminate && !verdict.by_libc() {
                    return true;
                }
                self.refuse(&r, if errno == 0 { errno::EPERM } else { errno });
                false
            }
        }
    }

    /// Tells the address of a call on a socket when the network refuses it. True when a run under `TERMINATE` ends by it.
    fn unreachable(&mut self, plan: &Plan, r: &Request, verdict: Verdict) -> bool {
        let address = match network::refused(plan, r) {
            Ok(Some(address)) => address,
            Ok(None) => return false,
            Err(_) => {
                self.lost = self.lost.saturating_add(1); // not known, so the list is not whole
                return false;
            }
        };
        let verdict = if address.by_libc { verdict.made_by_libc() } else { verdict };
        let mut record = Record::new(r, verdict, told::ADDRESS);
        let bytes = address.bytes();
        record.text[..bytes.len()].copy_from_slice(bytes);
        record.head.path1 = bytes.len() as u32;
        self.write(&record);
        !address.by_libc
    }

    /// What the filter meant by this call.
    fn verdict(&self, plan: &Plan, r: &Request) -> Verdict {
        let words: &[u64] = plan.items(plan.header().classifier);
        // SAFETY: an instruction is 8 bytes of integers, for which any bits are a value; u64 is aligned at least as strictly.
        let program = unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<Insn>(), words.len()) };
        classify(program, &SeccompData { nr: r.nr as u32, arch: r.arch, instruction_pointer: r.ip, args: r.args })
    }

    /// Whether the calling thread still waits in this very call.
    pub fn valid(&self, r: &Request) -> bool {
        sys::ioctl(self.listener, SECCOMP_IOCTL_NOTIF_ID_VALID, (&raw const r.id) as usize).is_ok()
    }

    fn respond(&self, response: &Response) {
        // ENOENT: the caller was killed or interrupted meanwhile; there is nobody to answer.
        if let Err(e) = sys::ioctl(self.listener, SECCOMP_IOCTL_NOTIF_SEND, (&raw const *response) as usize)
            && e != errno::ENOENT
            && e != errno::EINTR
        {
            crate::watch::weakened(crate::wire::step::SECCOMP, e);
        }
    }

    /// The call fails with this errno.
    pub fn refuse(&self, r: &Request, errno: i32) {
        self.respond(&Response { id: r.id, val: 0, error: -errno, flags: 0 });
    }

    /// The call has been performed; this is its value.
    pub fn done(&self, r: &Request, value: i64) {
        self.respond(&Response { id: r.id, val: value, error: 0, flags: 0 });
    }

    fn proceed(&self, r: &Request) {
        // Nothing was decided on what was read.
        self.respond(&Response { id: r.id, val: 0, error: 0, flags: SECCOMP_USER_NOTIF_FLAG_CONTINUE });
    }

    /// The call returns a copy of this descriptor, which is closed here first: a program that writes a file, closes it
    /// and executes it must not find it still open for writing (ETXTBSY).
    pub fn give(&self, r: &Request, descriptor: i32, cloexec: bool) -> Result<(), i32> {
        let add = AddFd {
            id: r.id,
            flags: 0,
            srcfd: descriptor as u32,
            newfd: 0,
            newfd_flags: if cloexec { O_CLOEXEC as u32 } else { 0 },
        };
        let number = sys::ioctl(self.listener, SECCOMP_IOCTL_NOTIF_ADDFD, (&raw const add) as usize);
        sys::close(descriptor)?;
        match number {
            Ok(n) => self.done(r, n as i64),
            Err(errno::ENOENT) => {}     // the caller was killed meanwhile
            Err(e) => self.refuse(r, e), // EMFILE of the program, mostly
        }
        Ok(())
    }

    /// A path argument as it reads now, put behind the directory that it starts from when it is relative.
    fn absolute(&self, r: &Request, a: usize, buf: &mut [u8]) -> usize {
        let mut text = [0u8; EVENT_PATH];
        let n = read_path(r.pid, r.args[a], &mut text).unwrap_or(0);
        let mut used = 0;
        if n == 0 || text[0] != b'/' {
            // The *at calls have their directory one register before the path.
            let dir = if a > 0 && crate::path_args::has_directory(r.nr, a) { r.args[a - 1] as i32 } else { AT_FDCWD };
            let mut link = [0u8; 64];
            crate::task::base_link(r.pid, dir, &mut link);
            used = sys::readlinkat(AT_FDCWD, link.as_ptr(), buf.as_mut_ptr(), buf.len()).unwrap_or(0);
            if used > 0 && used < buf.len() && n > 0 {
                buf[used] = b'/';
                used += 1;
            }
        }
        let take = n.min(buf.len() - used);
        buf[used..used + take].copy_from_slice(&text[..take]);
        used + take
    }

    /// What the path leads to: whatever part of it exists, without symbolic links. With `last` the last component is
    /// followed as well. Only for events: nothing is decided on it.
    fn real(buf: &mut [u8], n: usize, last: bool) -> usize {
        let mut text = [0u8; EVENT_PATH + 1];
        // /proc/self would be init's own.
        if n == 0 || n >= buf.len() || n > EVENT_PATH || buf[0] != b'/' || buf.starts_with(b"/proc/") {
            return n;
        }
        text[..n].copy_from_slice(&buf[..n]);
        let parent = |end: usize| text[..end].iter().rposition(|&b| b == b'/').unwrap_or(0);
        let mut end = if last { n } else { parent(n) };
        let rest = text;
        while end > 0 {
            text[end] = 0;
            if let Ok(f) = sys::openat2(AT_FDCWD, text.as_ptr(), O_PATH | O_CLOEXEC, 0, RESOLVE_NO_MAGICLINKS) {
                let mut link = [0u8; 40];
                let link = crate::guard::self_fd(&mut link, f as i32);
                let found = sys::readlinkat(AT_FDCWD, link, buf.as_mut_ptr(), buf.len());
                let room = found.map(|m| m + n - end <= buf.len());
                if sys::close(f as i32).is_err() || room != Ok(true) {
                    break;
                }
                let m = found.unwrap_or(0);
                buf[m..m + n - end].copy_from_slice(&rest[end..n]);
                return m + n - end;
            }
            end = text[..end].iter().rposition(|&b| b == b'/').unwrap_or(0);
        }
        buf[..n].copy_from_slice(&rest[..n]);
        n
    }

    /// Writes the event, with the path arguments as they read now.
    fn event(&mut self, r: &Request, verdict: Verdict, errno: i32, guarded: Option<Guarded>) {
        let record = self.record(r, verdict, errno, guarded);
        self.write(&record);
    }

    fn record(&self, r: &Request, verdict: Verdict, errno: i32, guarded: Option<Guarded>) -> Record {
        let bits = guarded.map_or(0, |g| {
            told::GUARDED | if g.denied { told::DENIED } else { 0 } | if g.second { told::SECOND } else { 0 }
        });
        let mut record = Record::new(r, verdict, errno as u32 & 0xffff | bits);
        let traced = matches!(verdict.class(), Verdict::TRACE | Verdict::CREATE) && guarded.is_none();
        let real = |buf: &mut [u8], n| if traced { Self::real(buf, n, false) } else { n };
        let (first, second) = crate::path_args::path_arguments(r.nr);
        let mut used = 0;
        if let Some(a) = first {
            let buf = &mut record.text[..EVENT_PATH];
            let n = self.absolute(r, a, buf);
            used = real(buf, n);
            record.head.path1 = used as u32;
            if traced && second.is_none() {
                // The second place says where the last component leads, for the calls that follow it.
                record.text.copy_within(..used, used);
                let to = Self::real(&mut record.text[used..used + EVENT_PATH], used, true);
                record.head.path2 = to as u32;
            }
        }
        if let Some(a) = second {
            let buf = &mut record.text[used..used + EVENT_PATH];
            let n = self.absolute(r, a, buf);
            record.head.path2 = real(buf, n) as u32;
        }
        record
    }

    fn write(&mut self, record: &Record) {
        self.events += 1;
        let size = core::mem::size_of::<Event>() + (record.head.path1 + record.head.path2) as usize;
        if sys::write(fd::EVENTS, (&raw const *record).cast(), size).is_err() {
            self.lost = self.lost.saturating_add(1); // the owner is slow or does not listen: counted, never waited for
        }
    }
}

/// An event with the text of its paths.
#[repr(C)]
struct Record {
    head: Event,
    text: [u8; 2 * EVENT_PATH],
}

impl Record {
    fn new(r: &Request, verdict: Verdict, answer: u32) -> Record {
        let (nr, verdict) = (r.nr as u32, verdict.0);
        let head = Event { nr, verdict, pid: r.pid, answer, args: r.args, path1: 0, path2: 0 };
        Record { head, text: [0; 2 * EVENT_PATH] }
    }
}

/// Bytes of a program's memory. The filter of who made a container may refuse the call for it, and leave the file.
pub fn read_memory(pid: u32, from: usize, into: &mut [u8]) -> Result<usize, i32> {
    let (local, remote) = ([into.as_mut_ptr() as usize, into.len()], [from, into.len()]);
    match sys::process_vm_readv(pid as i32, local.as_ptr(), 1, remote.as_ptr(), 1, 0) {
        Err(errno::EPERM | errno::ENOSYS) => {}
        read => return read,
    }
    let f = crate::task::open_proc(pid, b"/mem")?;
    let read = sys::pread(f, into.as_mut_ptr(), into.len(), from);
    sys::close(f)?;
    read
}

/// Reads a NUL-terminated string of the calling thread; cut at the buffer's end. Returns its length.
pub fn read_path(pid: u32, address: u64, buf: &mut [u8]) -> Result<usize, i32> {
    let mut have = 0;
    while have < buf.len() {
        let from = address.wrapping_add(have as u64) as usize;
        let page = 4096 - from % 4096; // a string may end just before a page that is not mapped
        let want = page.min(buf.len() - have);
        let n = read_memory(pid, from, &mut buf[have..have + want])?;
        if n == 0 {
            return Err(errno::EFAULT);
        }
        if let Some(end) = buf[have..have + n].iter().position(|&b| b == 0) {
            return Ok(have + end);
        }
        have += n;
    }
    Ok(have)
}
