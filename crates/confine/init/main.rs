//! Init: the first process of every sandbox. It builds the sandbox, starts the payload and supervises it to its end.
//!
//! Static, without libc, without an allocator: nothing after clone can allocate or take a lock, because neither exists
//! here. The owner execs it from a sealed memfd right after `clone3`, so no byte of the owner's memory is in it.
//!
//! ```text
//!   owner ──clone3+execve──▶ init (pid 1) ──vfork+execve──▶ payload
//!     │  plan, release           ▲
//!     └──────────────────────────┘
//!     ▲  status, events          │ reaps, answers notifications, watches the lifeline
//!     └──────────────────────────┘ when it ends, the kernel kills the whole tree
//! ```
//!
//! It ends when the payload ends, when the owner is gone (the lifeline reads end of file), or when a step fails; each
//! failure crosses as {step, index, errno}, for which the owner has the text.
#![no_std]
#![no_main]

mod apply_capture;
mod caps;
mod container;
mod control;
mod fault;
mod listener;
mod mounts;
mod netlink;
mod netns;
mod notify;
mod nsjail_wait;
mod path_args;
mod path_guard;
mod payload;
mod plan;
#[allow(dead_code, reason = "the library uses the rest")]
mod reach;
mod report;
mod rt;
mod seccomp;
mod sequence;
mod session;
mod socket_calls;
mod supervise;
#[allow(dead_code, reason = "the library uses the rest")]
mod sys;
mod task;
mod terminal;
mod tree;
#[allow(dead_code, reason = "the library uses the rest")]
mod uapi;
mod userns;
#[allow(dead_code, reason = "the library uses the rest")]
mod wire;

use wire::status;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {entry}", "ud2", entry = sym entry);
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "mov x0, sp", "bl {entry}", "brk 1", entry = sym entry);

/// The kernel leaves the number of arguments and their addresses on the stack (the System V ABI's process start).
extern "C" fn entry(stack: *const usize) -> ! {
    // SAFETY: `stack` is the stack pointer as the kernel set it: a count, as many addresses of strings that live as long as the
    // process, a null pointer, and the same of the variables.
    let (count, words) = unsafe { (*stack, stack.add(1).cast::<sys::Str>()) };
    if nsjail_wait::is_meant(words, count) {
        // SAFETY: as above.
        nsjail_wait::wait(words, unsafe { words.add(count + 1) })
    }
    // SAFETY: as above.
    let first = if count > 1 { Some(unsafe { *words.add(1) }) } else { None };
    main(first)
}

/// With one argument init is a container's, and the argument is the path of the socket at which its owner listens.
fn main(rendezvous: Option<sys::Str>) -> ! {
    if let Some(path) = rendezvous
        && container::receive_descriptors(path).is_err()
    {
        sys::exit(1) // no status socket yet: the owner sees that no one connects
    }
    // A new session first: no terminal of the owner's can reach us from here on.
    let fault = match session::start().and_then(|()| control::receive_plan()) {
        Err(fault) => fault,
        Ok(plan) => match sequence::live(&plan) {
            Ok(()) => sys::exit(0),
            Err(fault) => {
                tree::end(&plan); // a child may be waiting for an answer that never comes
                fault
            }
        },
    };
    report::send(&wire::WireStatus {
        kind: status::FAILED,
        step: fault.at.step,
        index: fault.at.index,
        value: fault.errno,
        ..wire::WireStatus::default()
    });
    sys::exit(1)
}
