//! Init as the first process of a container that a container runtime has created: how it receives its descriptors, and
//! what it verifies before it goes on.
//!
//! The namespaces, the mounts and a filter exist when it starts. On a rendezvous socket in the run's own directory the owner
//! sends what a jail's init has open from the beginning; from then on both do the same. Creates no namespace and no mount,
//! but for one that covers its own files below /proc.

use crate::caps;
use crate::control::{self, Descriptors};
use crate::fault::{StepResult, at};
use crate::plan::MappedPlan;
use crate::sys::{self, Str};
use crate::uapi::*;
use crate::wire::{LandRule, fd, flag, op, step};

/// Above everything that arrives.
const ASIDE: i32 = 64;

#[repr(C)]
struct UnixAddress {
    family: u16,
    path: [u8; 108],
}

/// Connects to the owner, who listens at this path, and puts what it sends into its places: standard streams, lifeline,
/// status, events, control socket.
pub fn receive_descriptors(rendezvous: Str) -> Result<(), i32> {
    let mut address = UnixAddress { family: AF_UNIX as u16, path: [0; 108] };
    let mut n = 0;
    // SAFETY: an argument is a string that ends in NUL and stays; the path's last byte stays NUL.
    while unsafe { *rendezvous.add(n) } != 0 {
        if n + 1 >= address.path.len() {
            return Err(errno::ENAMETOOLONG);
        }
        // SAFETY: as above.
        address.path[n] = unsafe { *rendezvous.add(n) };
        n += 1;
    }
    let s = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)? as i32;
    sys::connect(s, (&raw const address).cast(), 2 + n + 1)?;
    let mut descriptors = Descriptors::new();
    let (_, count) = control::receive(s, &mut descriptors)?;
    let arrived = descriptors.fds(count);
    if count != fd::INITIAL_COUNT {
        return Err(errno::EINVAL);
    }
    // What stands on the numbers that they are to have may be one of them.
    for (i, &from) in arrived.iter().enumerate() {
        sys::dup3(from, ASIDE + i as i32, O_CLOEXEC)?;
    }
    for i in 0..fd::INITIAL_COUNT as i32 {
        sys::dup3(ASIDE + i, i, if i < 3 { 0 } else { O_CLOEXEC })?;
    }
    sys::close_range(fd::SYNC as u32 + 1, i32::MAX as u32, 0).map(|_| ())
}

/// Verifies by device and inode that what the owner looked at is what is mounted: the runtime got names alone.
pub fn verify_mounts(plan: &MappedPlan) -> StepResult {
    for (i, rule) in plan.items::<LandRule>(plan.header().land_rules).iter().enumerate() {
        let fault = at(step::landrule::RULE.item(i));
        let mut st = sys::Statx::new();
        sys::statx(AT_FDCWD, plan.str(rule.path), AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &mut st).map_err(&fault)?;
        if rule.ino != st.ino || rule.dev != 0 && rule.dev != st.dev() {
            return Err(fault(errno::ESTALE));
        }
    }
    Ok(())
}

/// What the kernel shows for a group that has no number in this user namespace (`overflowgid`).
const NOGROUP: u32 = 65534;
/// The most supplementary groups that are read; more fail the run.
const GROUPS: usize = 64;

/// Verifies init's uid, gid and supplementary groups: an image's /etc/passwd and /etc/group can have numbers as names, and
/// a runtime that looks there finds other ids.
pub fn verify_ids(plan: &MappedPlan) -> StepResult {
    let h = plan.header();
    verify(h.uid_out, h.gid_out, h.gid_out)
}

/// What init keeps as its own user: CAP_SETGID and CAP_SETUID, which its child drops once it is the program's user, and
/// CAP_KILL, the only one that it keeps to the end.
const SEPARATE_USER_CAPS: u32 = 1 << CAP_KILL | 1 << CAP_SETGID | 1 << CAP_SETUID;

/// How what covers init's files is mounted.
const COVER: usize = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;

/// Init becomes a user of its own, and its files below /proc are covered: gVisor's kernel lets a process signal another of
/// the same user, and look at the descriptors and variables of any. Whatever is made for the program is made before.
pub fn separate_user(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::SEPARATE_USER) {
        return Ok(());
    }
    let h = plan.header();
    let (kind, over, how) = (c"tmpfs".as_ptr().cast(), c"/proc/1".as_ptr().cast(), c"mode=0,size=4096".as_ptr().cast());
    sys::mount(kind, over, kind, COVER, how).map_err(at(step::ids::COVER_PROC))?; // takes CAP_SYS_ADMIN, which is dropped below
    sys::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0).map_err(at(step::ids::KEEP_CAPABILITIES))?; // a change from user 0 would clear them
    sys::setresgid(h.gid_in, h.gid_in, h.gid_in).map_err(at(step::ids::INIT_GROUP))?;
    sys::setresuid(h.uid_in, h.uid_in, h.uid_in).map_err(at(step::ids::INIT_USER))?;
    sys::prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0).map_err(at(step::ids::KEEP_NO_CAPABILITIES))?;
    caps::set(SEPARATE_USER_CAPS).map_err(at(step::ids::INIT_CAPABILITIES))?;
    sys::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0).map_err(at(step::ids::INIT_UNDUMPABLE))?; // the change of ids has undone it
    verify(h.uid_in, h.gid_in, h.gid_out)
}

/// Init's child becomes the program's user again.
pub fn become_program_user(plan: &MappedPlan) -> StepResult {
    if !plan.has(flag::SEPARATE_USER) {
        return Ok(());
    }
    let h = plan.header();
    sys::setresgid(h.gid_out, h.gid_out, h.gid_out).map_err(at(step::ids::PAYLOAD_GROUP))?;
    sys::setresuid(h.uid_out, h.uid_out, h.uid_out).map_err(at(step::ids::PAYLOAD_USER))?;
    verify_ids(plan)
}

/// Verifies that init is this user and this group, and in no supplementary group but `member`.
fn verify(user: u32, group: u32, member: u32) -> StepResult {
    let (mut users, mut groups) = ([0u32; 3], [0u32; 3]);
    let [r, e, s] = &mut users;
    sys::getresuid(r, e, s).map_err(at(step::ids::GET_USER))?;
    let [r, e, s] = &mut groups;
    sys::getresgid(r, e, s).map_err(at(step::ids::GET_GROUP))?;
    let mut more = [0u32; GROUPS];
    let count = sys::getgroups(GROUPS, more.as_mut_ptr()).map_err(at(step::ids::GET_GROUPS))?;
    if users != [user; 3] {
        return Err(at(step::ids::WRONG_USER)(errno::EPERM));
    }
    if groups != [group; 3] {
        return Err(at(step::ids::WRONG_GROUP)(errno::EPERM));
    }
    if more.iter().take(count).any(|&group| group != member && group != NOGROUP) {
        return Err(at(step::ids::EXTRA_GROUPS)(errno::EPERM));
    }
    Ok(())
}

/// Makes directories in file systems in memory, which are empty until now.
pub fn make_directories(plan: &MappedPlan) -> StepResult {
    for (i, made) in plan.items::<crate::wire::MountOp>(plan.header().mounts).iter().enumerate() {
        if made.kind == op::MKDIR {
            match sys::mkdirat(AT_FDCWD, plan.str(made.src), made.c as u32) {
                Ok(_) | Err(errno::EEXIST) => {}
                Err(e) => return Err(at(step::mount::MOUNT.item(i))(e)),
            }
        }
    }
    Ok(())
}
