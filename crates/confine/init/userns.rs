//! The user namespace: its id maps, who init becomes in it, and how many namespaces there may be below it. Creates none:
//! init is born in it.

use crate::caps;
use crate::fault::{StepResult, at};
use crate::plan::MappedPlan;
use crate::report::weakened;
use crate::sys;
use crate::uapi::*;
use crate::wire::{flag, step};

/// Becomes the sandbox's user, by maps of its own or in those that the owner has written.
pub fn ids(plan: &MappedPlan) -> StepResult {
    let h = plan.header();
    if plan.has(flag::JAIL) {
        if !plan.has(flag::MAPS_BY_OWNER) {
            // The caller's own single id; setgroups must be refused before the group map may be written (user_namespaces(7)).
            write_file(c"/proc/self/setgroups".as_ptr().cast(), b"deny").map_err(at(step::ids::DENY_SETGROUPS))?;
            write_map(c"/proc/self/uid_map".as_ptr().cast(), h.uid_in, h.uid_out).map_err(at(step::ids::UID_MAP))?;
            write_map(c"/proc/self/gid_map".as_ptr().cast(), h.gid_in, h.gid_out).map_err(at(step::ids::GID_MAP))?;
        } else {
            sys::setgroups(0, core::ptr::null()).map_err(at(step::ids::CLEAR_GROUPS))?;
        }
        sys::setresgid(h.gid_in, h.gid_in, h.gid_in).map_err(at(step::ids::SET_GROUP))?;
        sys::setresuid(h.uid_in, h.uid_in, h.uid_in).map_err(at(step::ids::SET_USER))?;
    } else if plan.has(flag::DROP_IDS) {
        if plan.has(flag::CONTAINER) {
            caps::drop_bounding()?; // another user may not, later
        }
        sys::setgroups(0, core::ptr::null()).map_err(at(step::ids::DROP_GROUPS))?;
        sys::setresgid(h.gid_out, h.gid_out, h.gid_out).map_err(at(step::ids::DROP_GROUP))?;
        sys::setresuid(h.uid_out, h.uid_out, h.uid_out).map_err(at(step::ids::DROP_USER))?;
    }
    // No other process reads our memory from here on. Not before: init would lose access to its own /proc files, the maps
    // among them, and changing ids would undo it. No other process exists yet that could look.
    sys::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0).map_err(at(step::ids::UNDUMPABLE))?;
    Ok(())
}

/// How many namespaces of each kind may exist inside, those that init itself lives in included. No program that is run
/// here needs a time namespace.
const NAMESPACES: [(&core::ffi::CStr, &[u8]); 8] = [
    (c"/proc/sys/user/max_user_namespaces", b"16"),
    (c"/proc/sys/user/max_mnt_namespaces", b"32"),
    (c"/proc/sys/user/max_pid_namespaces", b"32"),
    (c"/proc/sys/user/max_net_namespaces", b"16"),
    (c"/proc/sys/user/max_ipc_namespaces", b"32"),
    (c"/proc/sys/user/max_uts_namespaces", b"32"),
    (c"/proc/sys/user/max_cgroup_namespaces", b"32"),
    (c"/proc/sys/user/max_time_namespaces", b"0"),
];

const CGROUP: usize = 6;

/// Forbids namespaces inside, or bounds them.
pub fn no_nested_namespaces(plan: &MappedPlan) -> StepResult {
    if plan.has(flag::NESTED) {
        return bounded_namespaces(plan);
    }
    if !plan.has(flag::NO_USERNS) {
        return Ok(());
    }
    match write_file(c"/proc/sys/user/max_user_namespaces".as_ptr().cast(), b"0") {
        Ok(()) => Ok(()),
        Err(e) => {
            // The filter refuses the calls as well; the owner decides whether that is enough.
            weakened(step::USERNS, e);
            Ok(())
        }
    }
}

/// Enough namespaces for sandboxes inside, and no more: a kind that cannot be bounded fails the run.
fn bounded_namespaces(plan: &MappedPlan) -> StepResult {
    for (i, (file, most)) in NAMESPACES.into_iter().enumerate() {
        let most = if i == CGROUP && plan.has(flag::NO_CGROUP_NAMESPACES) { b"0" } else { most };
        match write_file(file.as_ptr().cast(), most) {
            Ok(()) => {}
            Err(errno::ENOENT) if i > 0 => {} // a kernel without this kind
            Err(e) => return Err(at(step::userns::LIMIT.item(i))(e)),
        }
    }
    Ok(())
}

fn write_file(path: sys::Str, text: &[u8]) -> Result<(), i32> {
    let f = sys::openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0)? as i32;
    let wrote = sys::write(f, text.as_ptr(), text.len());
    sys::close(f)?;
    wrote.map(|_| ())
}

fn write_map(path: sys::Str, inside: u32, outside: u32) -> Result<(), i32> {
    let mut line = [0u8; 64];
    let mut at = 0;
    for (i, n) in [inside, outside, 1].into_iter().enumerate() {
        if i > 0 {
            line[at] = b' ';
            at += 1;
        }
        let mut buf = [0u8; 24];
        let mut p = sys::decimal(n as u64, &mut buf);
        // SAFETY: `decimal` returns a pointer into `buf`, which ends in NUL.
        while unsafe { *p } != 0 {
            // SAFETY: as above; `line` holds three 10-digit numbers and two spaces.
            line[at] = unsafe { *p };
            // SAFETY: as above.
            p = unsafe { p.add(1) };
            at += 1;
        }
    }
    write_file(path, &line[..at])
}
