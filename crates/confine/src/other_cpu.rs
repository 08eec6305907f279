//! A thread that has a processor of its own from its first instruction, where there is one.
//!
//! A scheduler may put a new thread behind the one that started it although another processor is idle, and leave it there for
//! milliseconds; some do so on purpose, to save power or to pack virtual processors. For work that takes a millisecond that
//! is the difference between half the time and all of it. Nothing here decides what runs; what the thread starts later may
//! use every processor that the caller may.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Starts a thread on another processor than the caller's; where there is no other, anywhere.
///
/// The thread gives `None` without having begun if it cannot be given back the processors that it was moved away from:
/// what it starts would be bound to fewer than it may use.
///
/// # Errors
/// No thread can be made.
pub fn spawn<T: Send + 'static>(
    builder: Builder,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<Option<T>>> {
    let Some((all, others)) = processors() else { return builder.spawn(|| Some(work())) };
    let moving = Arc::new(Mutex::new(()));
    let held = moving.lock().unwrap_or_else(PoisonError::into_inner);
    let made = Arc::clone(&moving);
    let thread = builder.spawn(move || {
        // It may run before the caller goes on, in the caller's place.
        let moved = sched_setaffinity(None, &others);
        drop(made.lock().unwrap_or_else(PoisonError::into_inner)); // the caller does not move it from here on
        // Whichever of the two moved it. Where neither could, nothing has to be given back.
        match sched_setaffinity(None, &all) {
            Err(_) if moved.is_ok() || sched_getaffinity(None).ok() != Some(all) => None,
            _ => Some(work()),
        }
    })?;
    // It may also wait behind the caller, where it cannot move itself. An error leaves it there.
    move_to(&thread, &others);
    drop(held);
    Ok(thread)
}

/// The processor that this thread is on, for `leave`.
pub fn here() -> usize {
    sched_getcpu()
}

/// Moves this thread from a processor that another thread needs, if it is on it and there are others. It may use all of
/// them afterwards, and so may what it starts.
///
/// # Errors
/// It was moved and cannot be given back what it may use: it should start nothing.
pub fn leave(processor: usize) -> io::Result<()> {
    match processors() {
        Some((all, others)) if sched_getcpu() == processor && sched_setaffinity(None, &others).is_ok() => {
            Ok(sched_setaffinity(None, &all)?)
        }
        _ => Ok(()),
    }
}

/// The processors of this thread, and those of them that it is not on.
fn processors() -> Option<(CpuSet, CpuSet)> {
    let all = sched_getaffinity(None).ok()?;
    let mut others = all;
    others.unset(sched_getcpu());
    (others.count() > 0).then_some((all, others))
}

fn move_to<T>(thread: &JoinHandle<T>, processors: &CpuSet) {
    // SAFETY: `cpu_set_t` is an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for i in (0..CpuSet::MAX_CPU).filter(|&i| processors.is_set(i)) {
        // SAFETY: `i` is below the number of bits in the set.
        unsafe { libc::CPU_SET(i, &mut set) };
    }
    // SAFETY: the handle keeps the thread's descriptor alive until it is joined or dropped; the set is ours and read only.
    let error = unsafe { libc::pthread_setaffinity_np(thread.as_pthread_t(), size_of_val(&set), &set) };
    debug_assert_eq!(error, 0, "a thread of ours cannot be moved");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_and_its_children_may_use_every_cpu_of_the_caller() {
        let mine = sched_getaffinity(None).unwrap();
        for _ in 0..50 {
            let (theirs, childs) = spawn(Builder::new(), || {
                let child = std::process::Command::new("grep").args(["Cpus_allowed:", "/proc/self/status"]).output();
                (sched_getaffinity(None).unwrap(), String::from_utf8(child.unwrap().stdout).unwrap())
            })
            .unwrap()
            .join()
            .unwrap()
            .unwrap();
            assert_eq!(theirs, mine);
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find(|l| l.starts_with("Cpus_allowed:")).unwrap();
            assert_eq!(childs.trim_end(), line);
        }
    }

    #[test]
    fn a_caller_bound_to_one_cpu_gets_its_thread_there() {
        let done = std::thread::spawn(|| {
            let mut one = CpuSet::new();
            one.set(sched_getcpu());
            sched_setaffinity(None, &one).unwrap();
            let theirs = spawn(Builder::new(), || sched_getaffinity(None).unwrap()).unwrap().join().unwrap();
            (one, theirs)
        });
        let (one, theirs) = done.join().unwrap();
        assert_eq!(theirs, Some(one));
    }
}
