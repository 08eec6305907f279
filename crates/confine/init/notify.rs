//! The notification supervisor: answers seccomp notifications and writes an event for each.
//!
//! Three classes. Denied: the decision was BPF's, on registers; the answer is its errno and the event is the evidence.
//! Traced: let through as it was; what the event carries is what was read, never a decision. Calls on sockets are reported
//! only where the network refuses their address (`socket_calls`). Created: init performs the call itself on what it read
//! (`path_guard`), so that the program cannot change the argument between check and use.

use crate::listener::{Listener, NotificationBuffer};
use crate::path_args::{has_directory, path_arguments};
use crate::path_guard::{GuardOutcome, GuardRefusal, PathGuards};
use crate::plan::MappedPlan;
use crate::seccomp::classify::{Insn, SeccompData, Verdict, classify};
use crate::sys::PollFd;
use crate::task::{base_link, read_path, self_fd};
use crate::uapi::*;
use crate::wire::{EVENT_PATH, WireEvent, fd, flag, refusal};
use crate::{socket_calls, sys};

/// The listener and what was seen through it.
pub struct NotificationSupervisor {
    listener: Listener,
    started: bool,
    events: u64,
    lost: u32,
    /// How often the owner may still let a wait pass.
    waits: u32,
}

/// How long an owner that reads mostly takes to come to it, where processors are busy: seconds and nanoseconds.
const WAIT: [u64; 2] = [0, 100_000_000];
/// An owner that has not read for so many of them does not read, and a run waits for nothing no longer.
const WAITS: u32 = 5;

impl NotificationSupervisor {
    /// For this listener (or -1).
    pub fn new(listener: i32) -> NotificationSupervisor {
        NotificationSupervisor { listener: Listener::new(listener), started: false, events: 0, lost: 0, waits: WAITS }
    }

    /// What it answers through.
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// Events seen and events that could not be written.
    pub fn seen(&self) -> (u64, u32) {
        (self.events, self.lost)
    }

    /// Takes and answers one call. True when the run is to end because of it.
    pub fn next(&mut self, plan: &MappedPlan, guards: &mut PathGuards) -> bool {
        let Some(r) = self.listener.next() else { return false }; // the caller was killed meanwhile
        let verdict = self.verdict(plan, &r);
        let errno = verdict.errno() as i32;
        let terminate = plan.has(flag::TERMINATE);
        match verdict.class() {
            Verdict::TRACE => {
                if socket_calls::is_about(r.nr) {
                    if self.unreachable(plan, &r, verdict) && terminate {
                        return true;
                    }
                } else {
                    self.event(&r, verdict, 0, None);
                }
                self.listener.proceed(&r);
                false
            }
            Verdict::CREATE => {
                // Read before the call is answered: afterwards the caller goes on, and elsewhere.
                let about = socket_calls::is_about(r.nr); // bind, reported only when it is refused
                let reports = plan.has(flag::TRACE) || (terminate && plan.has(flag::NO_NETWORK));
                if about && reports && self.unreachable(plan, &r, verdict) && terminate {
                    return true;
                }
                let seen = (!about && plan.has(flag::TRACE)).then(|| self.record(&r, verdict, 0, None));
                match guards.perform(plan, &self.listener, &r) {
                    GuardOutcome::Answered => {
                        if let Some(seen) = seen {
                            self.write(&seen);
                        }
                        false
                    }
                    GuardOutcome::Refused(guarded) => {
                        self.named(terminate);
                        self.event(&r, verdict, errno::EACCES, Some(guarded));
                        if !terminate {
                            self.listener.refuse(&r, errno::EACCES);
                        }
                        terminate
                    }
                }
            }
            Verdict::EXEC if !self.started => {
                self.started = true; // the one exec, by the one thread that exists: no other can change its arguments
                self.listener.proceed(&r);
                false
            }
            _ => {
                self.named(terminate && !verdict.by_libc());
                self.event(&r, verdict, errno, None);
                if terminate && !verdict.by_libc() {
                    return true;
                }
                self.listener.refuse(&r, if errno == 0 { errno::EPERM } else { errno });
                false
            }
        }
    }

    /// Reports the address of a call on a socket when the network refuses it. True when that ends a run under `TERMINATE`.
    fn unreachable(&mut self, plan: &MappedPlan, r: &NotificationBuffer, verdict: Verdict) -> bool {
        let address = match socket_calls::refused(plan, r) {
            Ok(Some(address)) => address,
            Ok(None) => return false,
            // What cannot be judged ends a run that is to end at the first refusal: without a network, no address is allowed.
            Err(errno::EPERM) if plan.has(flag::TERMINATE) && plan.has(flag::NO_NETWORK) => {
                self.named(true);
                self.write(&EventRecord::new(r, verdict, refusal::ADDRESS));
                return true;
            }
            Err(_) => {
                self.lost = self.lost.saturating_add(1); // not known, so the list is not whole
                return false;
            }
        };
        let verdict = if address.by_libc { verdict.made_by_libc() } else { verdict };
        let mut record = EventRecord::new(r, verdict, refusal::ADDRESS);
        let bytes = address.bytes();
        record.text[..bytes.len()].copy_from_slice(bytes);
        record.head.path1 = bytes.len() as u32;
        self.named(plan.has(flag::TERMINATE) && !address.by_libc);
        self.write(&record);
        !address.by_libc
    }

    /// What the filter meant by this call.
    fn verdict(&self, plan: &MappedPlan, r: &NotificationBuffer) -> Verdict {
        let words: &[u64] = plan.items(plan.header().classifier);
        // SAFETY: an instruction is 8 bytes of integers, for which any bits are a value; u64 is aligned at least as strictly.
        let program = unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<Insn>(), words.len()) };
        classify(program, &SeccompData { nr: r.nr as u32, arch: r.arch, instruction_pointer: r.ip, args: r.args })
    }

    /// A path argument as it reads now, put behind the directory that it starts from when it is relative.
    fn absolute(&mut self, r: &NotificationBuffer, a: usize, buf: &mut [u8]) -> usize {
        let mut text = [0u8; EVENT_PATH];
        let read = read_path(r.pid, r.args[a], &mut text);
        self.lost = self.lost.saturating_add(u32::from(read == Err(errno::EPERM))); // which path it is stays unknown
        let n = read.unwrap_or(0);
        let mut used = 0;
        if n == 0 || text[0] != b'/' {
            // The *at calls have their directory one register before the path.
            let dir = if a > 0 && has_directory(r.nr, a) { r.args[a - 1] as i32 } else { AT_FDCWD };
            let mut link = [0u8; 64];
            base_link(r.pid, dir, &mut link);
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
                let link = self_fd(&mut link, f as i32);
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
    fn event(&mut self, r: &NotificationBuffer, verdict: Verdict, errno: i32, guarded: Option<GuardRefusal>) {
        let record = self.record(r, verdict, errno, guarded);
        self.write(&record);
    }

    fn record(
        &mut self,
        r: &NotificationBuffer,
        verdict: Verdict,
        errno: i32,
        guarded: Option<GuardRefusal>,
    ) -> EventRecord {
        let bits = guarded.map_or(0, |g| {
            refusal::GUARDED | if g.denied { refusal::DENIED } else { 0 } | if g.second { refusal::SECOND } else { 0 }
        });
        let mut record = EventRecord::new(r, verdict, errno as u32 & 0xffff | bits);
        let traced = matches!(verdict.class(), Verdict::TRACE | Verdict::CREATE) && guarded.is_none();
        let real = |buf: &mut [u8], n| if traced { Self::real(buf, n, false) } else { n };
        let (first, second) = path_arguments(r.nr);
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

    fn write(&mut self, record: &EventRecord) {
        self.events += 1;
        let size = core::mem::size_of::<WireEvent>() + (record.head.path1 + record.head.path2) as usize;
        let mut written = sys::write(fd::EVENTS, (&raw const *record).cast(), size);
        // The socket holds a few hundred, and a program makes more in the time in which its owner is first woken.
        while written == Err(errno::EAGAIN) && self.waits > 0 {
            self.wait_for_room();
            written = sys::write(fd::EVENTS, (&raw const *record).cast(), size);
        }
        if written.is_err() {
            self.lost = self.lost.saturating_add(1); // the owner does not listen: counted
        }
    }

    /// What `ends` the run is waited for even where the owner has made calls wait before: else nothing would say what it was.
    fn named(&mut self, ends: bool) {
        if ends {
            self.waits = WAITS;
        }
    }

    /// Waits a moment for the owner to read.
    fn wait_for_room(&mut self) {
        let mut events = [PollFd { fd: fd::EVENTS, events: POLLOUT, revents: 0 }];
        let room = sys::ppoll(events.as_mut_ptr(), 1, WAIT.as_ptr(), core::ptr::null(), 8);
        self.waits -= u32::from(!room.is_ok_and(|ready| ready > 0));
    }
}

/// An event with the text of its paths.
#[repr(C)]
struct EventRecord {
    head: WireEvent,
    text: [u8; 2 * EVENT_PATH],
}

impl EventRecord {
    fn new(r: &NotificationBuffer, verdict: Verdict, answer: u32) -> EventRecord {
        let (nr, verdict) = (r.nr as u32, verdict.0);
        let head = WireEvent { nr, verdict, pid: r.pid, answer, args: r.args, path1: 0, path2: 0 };
        EventRecord { head, text: [0; 2 * EVENT_PATH] }
    }
}
