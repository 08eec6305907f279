//! Facts about this process and this kernel that plans depend on. Each is one cheap query; none changes anything.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

/// Identity of the calling process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerIdentity {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Whether it is privileged: user 0 with the capabilities to write id maps and mount.
    pub privileged: bool,
}

/// Who we are.
pub fn identity() -> CallerIdentity {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let sets = rustix::thread::capabilities(None).map(|c| c.effective);
    use rustix::thread::CapabilitySet as C;
    let needed = C::SYS_ADMIN | C::SETUID | C::SETGID;
    CallerIdentity { uid, gid, privileged: uid == 0 && sets.is_ok_and(|s| s.contains(needed)) }
}

impl CallerIdentity {
    /// Whether what it starts can be given another user: it is privileged, or is user 0 with that much left, as in most
    /// containers.
    pub fn switches(self) -> bool {
        use rustix::thread::CapabilitySet as C;
        let has = |s: C| s.contains(C::SETUID | C::SETGID);
        self.privileged || (self.uid == 0 && rustix::thread::capabilities(None).is_ok_and(|c| has(c.effective)))
    }

    /// Whether it is user 0 of the namespace around this one, as far as can be seen, so that its own id is nothing to
    /// run unvetted code with.
    pub fn is_root_outside(self) -> bool {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        self.uid == 0 && map.lines().next().and_then(|l| l.split_whitespace().nth(1)).is_none_or(|id| id == "0")
    }
}

/// First id of the range from which a privileged owner's sandboxes take their user: far above what systems hand out.
const UNPRIVILEGED_BASE: u32 = 0x6f00_0000;

/// An unprivileged id of the host for the sandboxes of this process: never 0, shared with nothing else.
///
/// Inside a user namespace that maps fewer ids, the highest one mapped that is not 0.
pub fn unprivileged_id() -> Option<u32> {
    let wanted = UNPRIVILEGED_BASE + (std::process::id() & 0x3f_ffff);
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    choose_id(&map, wanted)
}

fn choose_id(map: &str, wanted: u32) -> Option<u32> {
    let mut highest = None;
    for line in map.lines() {
        let mut n = line.split_whitespace().map(|w| w.parse::<u64>().ok());
        let (Some(Some(first)), Some(Some(_)), Some(Some(count))) = (n.next(), n.next(), n.next()) else {
            return None;
        };
        if u64::from(wanted) >= first && u64::from(wanted) < first + count {
            return Some(wanted);
        }
        highest = highest.max(u32::try_from(first + count - 1).ok().filter(|&id| id != 0));
    }
    highest
}

/// Which of the kernel's switches forbids user namespaces, and what enables them; `None` when none does.
pub fn user_namespaces_refused(privileged: bool) -> Option<(&'static str, &'static str)> {
    let off = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|t| t.trim() == value);
    if off("/proc/sys/user/max_user_namespaces", "0") {
        // Behind a filter, what is around this process has switched them off, and nothing in here switches them on.
        let hint = if is_filtered() { ENCLOSED } else { "sysctl -w user.max_user_namespaces=15000" };
        return Some(("user.max_user_namespaces is 0", hint));
    }
    if privileged {
        return None;
    }
    if off("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return Some(("kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"));
    }
    if off("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return Some((
            "kernel.apparmor_restrict_unprivileged_userns is 1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ));
    }
    None
}

/// What helps where something around this process refuses user namespaces.
pub const ENCLOSED: &str =
    "run it outside of the container or sandbox that this process is in, or let that one allow user namespaces";

/// Whether something around this process may refuse what the kernel's switches allow: a filter of system calls, or a
/// user namespace other than the first. Cheap, and only a reason to try.
pub fn is_enclosed() -> bool {
    is_filtered()
        || fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| !map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// Whether a filter of system calls lies on this thread.
fn is_filtered() -> bool {
    use rustix::thread::{SecureComputingMode, secure_computing_mode};
    secure_computing_mode().is_ok_and(|mode| mode != SecureComputingMode::Disabled)
}

/// Tries it: makes and drops a user namespace with an id map.
///
/// # Errors
/// What the kernel said.
pub fn try_user_namespace() -> io::Result<OwnedFd> {
    let me = identity();
    crate::mountfd::owner_map((0, me.uid), (0, me.gid)).or_else(|e| {
        // An unprivileged owner may only write its group map after setgroups is refused; that the namespace and the
        // user map could be had is the answer here.
        if e.kind() == io::ErrorKind::PermissionDenied && !me.privileged { user_only(me) } else { Err(e) }
    })
}

fn user_only(me: CallerIdentity) -> io::Result<OwnedFd> {
    crate::mountfd::user_map((0, me.uid))
}

/// Whether a filter installed from here can have a listener. The kernel gives one to each chain of filters, so that
/// below a filter with a listener, as inside another sandbox, none is left; only an attempt shows it.
pub fn listener_available() -> bool {
    static KNOWN: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // Filters are a thread's own, so one that ends at once can try. What cannot be tried fails when it is needed.
    let tried = || std::thread::Builder::new().spawn(try_listener).ok().and_then(|thread| thread.join().ok());
    *KNOWN.get_or_init(|| !is_filtered() || tried().unwrap_or(true))
}

/// Installs a filter that allows everything on this thread, with a listener.
fn try_listener() -> bool {
    if rustix::thread::set_no_new_privs(true).is_err() {
        return true;
    }
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut allow = libc::sock_filter { code, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let program = libc::sock_fprog { len: 1, filter: &raw mut allow };
    // SAFETY: the program lives through the call, which copies it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let Ok(fd) = std::os::fd::RawFd::try_from(fd) else { return false };
    if fd < 0 {
        return false;
    }
    // SAFETY: the kernel has just made it: a new descriptor that is ours alone.
    drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    true
}

/// Hard and soft limit of an rlimit of this process: `(soft, hard)`.
pub fn rlimit(resource: u32) -> (u64, u64) {
    let mut r = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a null new limit only reads; the buffer has the kernel's form.
    let n = unsafe { libc::prlimit64(0, resource as _, std::ptr::null(), &mut r) };
    if n == 0 { (r.rlim_cur, r.rlim_max) } else { (u64::MAX, u64::MAX) }
}

/// The limits' numbers, as the kernel names them.
pub mod resource {
    #![allow(
        missing_docs,
        clippy::unnecessary_cast,
        reason = "the names are the kernel's; signed in other C libraries"
    )]
    pub const CPU: u32 = libc::RLIMIT_CPU as u32;
    pub const FSIZE: u32 = libc::RLIMIT_FSIZE as u32;
    pub const CORE: u32 = libc::RLIMIT_CORE as u32;
    pub const NPROC: u32 = libc::RLIMIT_NPROC as u32;
    pub const NOFILE: u32 = libc::RLIMIT_NOFILE as u32;
    pub const MEMLOCK: u32 = libc::RLIMIT_MEMLOCK as u32;
    pub const MSGQUEUE: u32 = libc::RLIMIT_MSGQUEUE as u32;
    pub const SIGPENDING: u32 = libc::RLIMIT_SIGPENDING as u32;
    pub const STACK: u32 = libc::RLIMIT_STACK as u32;
    pub const RTPRIO: u32 = libc::RLIMIT_RTPRIO as u32;
    pub const NICE: u32 = libc::RLIMIT_NICE as u32;
    pub const AS: u32 = libc::RLIMIT_AS as u32;
    pub const DATA: u32 = libc::RLIMIT_DATA as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wanted_id_or_the_highest_mapped_one_but_never_zero() {
        assert_eq!(choose_id("0 0 4294967295\n", 0x6f00_0001), Some(0x6f00_0001));
        assert_eq!(choose_id("0 100000 65536\n", 0x6f00_0001), Some(65535));
        assert_eq!(choose_id("0 1000 1\n", 0x6f00_0001), None);
    }
}
