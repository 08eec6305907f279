//! The order in which init builds the sandbox, restricts the program and starts it: each step, and why it stands where it does.

use crate::fault::{StepResult, at};
use crate::plan::MappedPlan;
use crate::wire::{self, flag, step};
use crate::{
    apply_capture, container, control, mounts, netns, path_guard, payload, report, session, supervise, sys, terminal,
    userns,
};

/// The whole life, in order. Each line says why it stands where it stands.
pub fn live(plan: &MappedPlan) -> StepResult {
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
        apply_capture::apply(plan)?; // while init has the capabilities that this takes
    }
    sync(plan)?; // a privileged owner has written the id maps
    userns::ids(plan)?; // from here on files are made as the sandbox's own user
    if container {
        container::verify_ids(plan)?; // the runtime got numbers, and may have taken them for an image's names
    }
    let mut plan = plan;
    if jail {
        userns::no_nested_namespaces(plan)?; // while the host's writable /proc is still there
        let root = mounts::NewRoot::begin(plan)?; // root view, binds, layers, masks
        netns::loopback(plan)?;
        apply_capture::apply(plan)?; // every route leads to the owner's sockets, before there is a program to take one
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
        report::held(); // from here on nothing of the host is looked up for it: what fails later is the run's own
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
fn join(plan: &MappedPlan) -> StepResult {
    let h = plan.header();
    for i in 0..h.join_count {
        let f = i32::from(h.join_first + i);
        sys::write(f, b"0".as_ptr(), 1).map_err(at(step::sync::JOIN.item(i as usize)))?;
        sys::close(f).map_err(at(step::sync::CLOSE_JOINED.item(i as usize)))?;
    }
    Ok(())
}

fn sync(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::SYNC) {
        return Ok(());
    }
    control::await_release()
}
