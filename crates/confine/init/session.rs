//! What init inherits from the owner's process, reset before the plan comes: signals, terminal, keys, priority.
//!
//! Nothing here depends on the plan but what is reported afterwards.

use core::sync::atomic::{AtomicI32, Ordering};

use crate::fault::{StepResult, at};
use crate::plan::MappedPlan;
use crate::report::weakened;
use crate::sys;
use crate::uapi::*;
use crate::wire::{fd, flag, step};

/// Resets it. Does not depend on the plan, which the owner may still be preparing.
pub fn start() -> StepResult {
    for signal in 1..65 {
        let default = [0u64; 4];
        // SIGKILL and SIGSTOP cannot be set: EINVAL is expected for these two.
        match sys::rt_sigaction(signal, default.as_ptr(), core::ptr::null_mut(), 8) {
            Ok(_) => {}
            Err(_) if signal == SIGKILL || signal == SIGSTOP => {}
            Err(e) => return Err(at(step::session::SIGNAL.item(signal as usize))(e)),
        }
    }
    // A container's init can find something open in the plan's place.
    if let Err(e) = sys::close(fd::PLAN)
        && e != errno::EBADF
    {
        return Err(at(step::session::CLOSE_PLAN)(e)); // else nothing was there
    }
    // The payload gets 0, 1 and 2, nothing else.
    sys::close_range(3, i32::MAX as u32, CLOSE_RANGE_CLOEXEC).map_err(at(step::session::CLOSE_ON_EXEC))?;
    let all = !0u64;
    sys::rt_sigprocmask(SIG_SETMASK, &all, core::ptr::null_mut(), 8).map_err(at(step::session::BLOCK_SIGNALS))?;
    match sys::setsid() {
        // A container runtime has done it.
        Err(errno::EPERM) if sys::getsid(0).is_ok_and(|leader| leader == 1) => {}
        done => done.map(|_| ()).map_err(at(step::session::SETSID))?,
    }
    sys::umask(0o022).map_err(at(step::session::UMASK))?;
    drop_priority()?;
    // An inherited session keyring is a key of the owner's. Where the call does not exist (ENOSYS) or an outer filter
    // refuses it, there is nothing to inherit through our own filter either, which refuses keyctl.
    if let Err(e) = sys::keyctl(KEYCTL_JOIN_SESSION_KEYRING, 0)
        && e != errno::ENOSYS
    {
        NO_KEYRING.store(e, Ordering::SeqCst);
    }
    Ok(())
}

/// Why there is no session keyring of our own; 0 where there is one.
static NO_KEYRING: AtomicI32 = AtomicI32::new(0);

/// Reports a session keyring that could not be replaced. In a container the runtime has done that already, and its filter
/// refuses the call for that very reason.
pub fn report_keyring(plan: &MappedPlan) {
    let e = NO_KEYRING.load(Ordering::SeqCst);
    if e != 0 && !plan.has(flag::CONTAINER) {
        weakened(step::KEYRING, e);
    }
}

/// Without a pid namespace orphans come to init only if it asks for them.
pub fn subreaper(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::JAIL) && !plan.has(flag::CONTAINER) {
        sys::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0).map_err(at(step::session::SUBREAPER))?;
    }
    Ok(())
}

/// Takes back what favours the owner over other processes, so that unvetted code does not have it: no CPU share bounds a
/// real-time policy (sched(7)); likewise a raised priority and protection from the out-of-memory killer. What holds the
/// owner back stays: a low priority, the idle policy, its CPUs.
fn drop_priority() -> StepResult {
    let policy = sys::sched_getscheduler(0).map_err(at(step::session::GET_SCHEDULER))? as i32 & 0xff;
    if matches!(policy, SCHED_FIFO | SCHED_RR | SCHED_DEADLINE) {
        let priority = 0;
        sys::sched_setscheduler(0, SCHED_OTHER, &priority).map_err(at(step::session::SET_SCHEDULER))?;
    }
    // The call itself gives 20 minus the nice value (getpriority(2)).
    if sys::getpriority(PRIO_PROCESS, 0).map_err(at(step::session::GET_PRIORITY))? > 20 {
        sys::setpriority(PRIO_PROCESS, 0, 0).map_err(at(step::session::SET_PRIORITY))?;
    }
    // No such call where the kernel schedules no block devices.
    if sys::ioprio_get(IOPRIO_WHO_PROCESS, 0).is_ok_and(|priority| priority >> IOPRIO_CLASS_SHIFT == IOPRIO_CLASS_RT) {
        sys::ioprio_set(IOPRIO_WHO_PROCESS, 0, 0).map_err(at(step::session::SET_IO_PRIORITY))?;
    }
    let mut sign = 0u8;
    let f = match sys::openat(AT_FDCWD, c"/proc/self/oom_score_adj".as_ptr().cast(), O_RDWR | O_CLOEXEC, 0) {
        Ok(f) => f as i32,
        Err(e) => {
            weakened(step::SESSION, e); // no /proc, as inside another sandbox
            return Ok(());
        }
    };
    sys::read(f, &mut sign, 1).map_err(at(step::session::READ_OOM_ADJUSTMENT))?;
    if sign == b'-' {
        sys::write(f, b"0".as_ptr(), 1).map_err(at(step::session::WRITE_OOM_ADJUSTMENT))?;
    }
    sys::close(f).map_err(at(step::session::CLOSE_OOM_ADJUSTMENT))?;
    Ok(())
}
