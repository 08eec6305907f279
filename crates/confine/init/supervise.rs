//! Init after the payload has started: reaps, answers notifications, watches the lifeline and the wall time, reports the
//! end. Decides nothing about a call, which is `notify`'s to do.

use crate::control;
use crate::fault::{StepResult, at};
use crate::path_guard::PathGuards;
use crate::payload::{self, StartedPayload};
use crate::plan::MappedPlan;
use crate::report::send;
use crate::sys::{self, PollFd};
use crate::uapi::*;
use crate::wire::{WireStatus, fd, flag, status, step};
use crate::{caps, tree};

/// Closes and drops all that supervision does not need: the payload's streams, the program, spare descriptors,
/// capabilities.
pub fn narrow(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::NO_SPAWN) {
        for f in 0..3 {
            sys::close(f).map_err(at(step::init::CLOSE_STREAMS))?;
        }
        payload::close_channel(plan)?;
    }
    // CAP_KILL and CAP_SYS_PTRACE: ending the tree, reading the arguments of a notified call. The jail only: without
    // namespaces an unprivileged owner has neither and needs neither.
    let keep = match plan.has(flag::JAIL) {
        true => 1 << CAP_KILL | 1 << CAP_SYS_PTRACE,
        false if plan.has(flag::SEPARATE_USER) => 1 << CAP_KILL, // the program is another user
        false => 0,
    };
    caps::clear_ambient().map_err(at(step::init::CLEAR_AMBIENT))?;
    caps::set(keep).map_err(at(step::init::DROP_CAPABILITIES))?;
    Ok(())
}

/// How long a program that was started before its run may wait for its release, nanoseconds; its owner ends it sooner. An
/// owner that is gone without closing its ends, as one whose forked child lives on, never sends one.
const RELEASE_TIMEOUT: u64 = 600_000_000_000;

/// The signal that the owner passes on to the program, a byte on the lifeline; `None` where the lifeline is closed, or holds
/// anything else.
fn owner_signal(revents: i16) -> Option<i32> {
    let mut signal = 0u8;
    if revents & POLLIN == 0 || sys::read(fd::LIFELINE, &mut signal, 1) != Ok(1) {
        return None;
    }
    (1..=64).contains(&signal).then_some(i32::from(signal))
}

/// Until the payload or the owner ends.
pub fn run(plan: &MappedPlan, child: StartedPayload, mut guards: PathGuards) -> StepResult {
    let begins = |at_ns: u64| {
        send(&WireStatus { kind: status::STARTED, value: child.pid, at_ns, ..WireStatus::default() });
        at_ns.saturating_add(plan.header().wall_ns)
    };
    // A program that was started before its run waits for its input, which comes after the release. Until then it ends
    // like any sandbox whose owner is gone: no caller waits for it.
    let mut early = plan.has(flag::EARLY);
    let mut deadline =
        if early { sys::now_ns().saturating_add(RELEASE_TIMEOUT) } else { begins(payload::started_ns()) };
    let mask = 1u64 << (SIGCHLD - 1);
    let signals = sys::signalfd4(-1, &mask, 8, SFD_NONBLOCK | SFD_CLOEXEC).map_err(at(step::init::SIGNALFD))? as i32;
    let (mut supervisor, listener) = (child.supervisor, child.listener);
    let mut fds = [
        PollFd { fd: signals, events: POLLIN, revents: 0 },
        PollFd { fd: fd::LIFELINE, events: POLLIN, revents: 0 },
        PollFd { fd: listener, events: POLLIN, revents: 0 },
        PollFd { fd: if early { fd::SYNC } else { -1 }, events: POLLIN, revents: 0 },
    ];
    let mut ended = None;
    while ended.is_none() {
        // The wall time limit is enforced here, whatever the owner is busy with.
        let left = deadline.saturating_sub(sys::now_ns());
        let wait = if guards.waiting() { left.min(5_000_000) } else { left };
        let timeout = [wait / 1_000_000_000, wait % 1_000_000_000];
        match sys::ppoll(fds.as_mut_ptr(), 4, timeout.as_ptr(), core::ptr::null(), 8) {
            Ok(_) | Err(errno::EINTR) => {}
            Err(e) => return Err(at(step::init::POLL)(e)),
        }
        if fds[3].revents != 0 {
            control::await_release()?;
            sys::close(fd::SYNC).map_err(at(step::sync::CLOSE_AFTER_RELEASE))?;
            fds[3] = PollFd { fd: -1, events: 0, revents: 0 };
            (early, deadline) = (false, begins(sys::now_ns()));
            continue; // poll reports anything else again
        }
        if left == 0 && early {
            tree::end(plan);
            sys::exit(0);
        }
        if left == 0 {
            let (events, lost) = supervisor.seen();
            send(&WireStatus {
                kind: status::TIMED_OUT,
                index: tree::most_kib(),
                at_ns: sys::now_ns(),
                events,
                lost,
                ..WireStatus::default()
            });
            tree::end(plan);
            tree::linger(plan);
            sys::exit(0);
        }
        if fds[1].revents != 0 {
            match owner_signal(fds[1].revents).filter(|_| !early) {
                Some(signal) => tree::signal(child.pid, signal),
                None => {
                    tree::end(plan);
                    sys::exit(0); // the owner is gone
                }
            }
        }
        if fds[2].revents & POLLIN != 0 {
            if supervisor.next(plan, &mut guards) {
                let (events, lost) = supervisor.seen();
                send(&WireStatus {
                    kind: status::VIOLATION,
                    index: tree::most_kib(),
                    at_ns: sys::now_ns(),
                    events,
                    lost,
                    ..WireStatus::default()
                });
                tree::end(plan);
                tree::linger(plan);
                sys::exit(0);
            }
        } else if fds[2].revents != 0 {
            fds[2].fd = -1; // no process is left under the filter
        }
        guards.retry(plan, supervisor.listener());
        if fds[0].revents != 0 {
            let mut drain = [0u8; 128 * 4];
            while sys::read(signals, drain.as_mut_ptr(), drain.len()).is_ok() {}
            ended = tree::reap(child.pid);
            if ended.is_some()
                && let Some(fault) = payload::failure()
            {
                return Err(fault); // without spawning, a failed exec shows only now
            }
        }
    }
    let (events, lost) = supervisor.seen();
    tree::end(plan);
    let value = ended.unwrap_or(0);
    let index = tree::most_kib();
    send(&WireStatus {
        kind: status::ENDED,
        index,
        value,
        at_ns: sys::now_ns(),
        events,
        lost,
        ..WireStatus::default()
    });
    tree::linger(plan);
    Ok(())
}
