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

mod caps;
mod capture;
mod container;
mod control;
mod fault;
mod hold;
mod listener;
mod mounts;
mod netlink;
mod netns;
mod notify;
mod path_args;
mod path_guard;
mod payload;
mod plan;
#[allow(dead_code, reason = "the library uses the rest")]
mod reach;
mod report;
mod rt;
mod seccomp;
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

use fault::{Step, at};
use plan::Plan;
use wire::{flag, status, step};

/// The whole life, in order. Each line says why it stands where it stands.
fn live(plan: &Plan) -> Step {
    let jail = plan.has(flag::JAIL);
    let container = plan.has(flag::CONTAINER);

    session::subreaper(plan)?; // without a pid namespace orphans come to init only if it asks for them
    session::report_keyring(plan);
    join(plan)?; // into the run's cgroups, so that everything from here on is counted there
    if jail {
        mounts::private()?; // nothing that follows may propagate to the host
        mounts::sources(plan)?; // every source is opened before any mount can hide it
    }
    if container {
        container::verify_mounts(plan)?; // what is mounted is what the owner looked at
        capture::apply(plan)?; // while init has the capabilities that this takes
    }
    sync(plan)?; // a privileged owner has written the id maps
    userns::ids(plan)?; // from here on files are made as the sandbox's own user
    if container {
        container::verify_ids(plan)?; // the runtime got numbers, and may have taken them for an image's names
    }
    let mut plan = plan;
    if jail {
        userns::no_nested_namespaces(plan)?; // while the host's writable /proc is still there
        let root = mounts::Root::begin(plan)?; // root view, binds, layers, masks
        netns::loopback(plan)?;
        capture::apply(plan)?; // every route leads to the owner's sockets, before there is a program to take one
        root.enter()?; // the old root goes
        let name = plan.bytes(plan.header().hostname);
        sys::sethostname(name.as_ptr(), name.len()).map_err(at(step::hostname::SET))?;
    }
    if container {
        container::make_directories(plan)?; // as the program's own user
        container::separate_user(plan)?; // a user of init's own, where nothing else would keep the program from it
    }
    let fresh;
    if plan.has(flag::HOLD) {
        fresh = control::next_plan()?; // staged before its run: everything below is what this very run asks for
        plan = &fresh;
    }
    if !plan.has(flag::EARLY) {
        sys::close(wire::fd::SYNC).map_err(at(step::sync::CLOSE))?; // no further control message is read
    }
    netns::send_sock_diag(plan)?; // what sockets hold counts towards the memory limit, and no cgroup counts all of it
    payload::channel(plan)?; // a session's program gets its channel, and nothing else gets past exec
    let terminal = terminal::create(plan)?; // a pty of the sandbox's own devpts
    let mut guards = path_guard::PathGuards::prepare(plan)?; // names that may not come into being, by inode of their directory
    if !jail {
        payload::landlock(plan)?; // without mounts init performs creations itself: in the same Landlock domain
    }
    let child = payload::start(plan, terminal, &mut guards)?; // rlimits, caps, no_new_privs, Landlock, seccomp, exec
    sys::umask(0).map_err(at(step::session::UMASK_FOR_PAYLOAD))?; // init applies the program's umask to what it makes for it
    supervise::narrow(plan)?; // init keeps only what supervision needs
    supervise::run(plan, child, guards)
}

/// A thread that writes 0 to a `tasks` file moves itself, which the kernel does without stopping every fork on the
/// machine; a pid written to `cgroup.procs` waits for a grace period instead, milliseconds of it.
fn join(plan: &Plan) -> Step {
    let h = plan.header();
    for i in 0..h.join_count {
        let f = i32::from(h.join_first + i);
        sys::write(f, b"0".as_ptr(), 1).map_err(at(step::sync::JOIN.item(i as usize)))?;
        sys::close(f).map_err(at(step::sync::CLOSE_JOINED.item(i as usize)))?;
    }
    Ok(())
}

fn sync(plan: &Plan) -> Step {
    if !plan.has(flag::SYNC) {
        return Ok(());
    }
    control::await_release()
}

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {entry}", "ud2", entry = sym entry);
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "mov x0, sp", "bl {entry}", "brk 1", entry = sym entry);

/// The kernel leaves the number of arguments and their addresses on the stack (the System V ABI's process start).
extern "C" fn entry(stack: *const usize) -> ! {
    // SAFETY: `stack` is the stack pointer as the kernel set it: a count, as many addresses of strings that live as long as the
    // process, a null pointer, and the same of the variables.
    let (count, words) = unsafe { (*stack, stack.add(1).cast::<sys::Str>()) };
    if hold::is_meant(words, count) {
        // SAFETY: as above.
        hold::wait(words, unsafe { words.add(count + 1) })
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
        Ok(plan) => match live(&plan) {
            Ok(()) => sys::exit(0),
            Err(fault) => {
                tree::end(&plan); // a child may be waiting for an answer that never comes
                fault
            }
        },
    };
    report::send(&wire::Status {
        kind: status::FAILED,
        step: fault.at.step,
        index: fault.at.index,
        value: fault.errno,
        ..wire::Status::default()
    });
    sys::exit(1)
}
