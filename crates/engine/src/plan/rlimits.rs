//! The kernel's per-process limits: what a policy asks of them, and what they hold by themselves.

use cofferdam_confine::host::{resource, rlimit};
use cofferdam_policy::{Field, Policy};

use crate::outcome::{Applied, Enforcement, Strength};

/// `(resource, soft, hard)`, never above this process's own hard limits. `extra` processes of ours count as well.
pub fn rlimits(policy: &Policy, extra: u64) -> Vec<(u32, u64, u64)> {
    let l = &policy.limits;
    let bounded = |r: u32, soft: u64, hard: u64| {
        let (_, most) = rlimit(r);
        (r, soft.min(most), hard.min(most))
    };
    vec![
        // 1, and the filter keeps it there: with any other value, 0 included, a piped core handler runs on the host (core(5)).
        bounded(resource::CORE, 1, 1),
        // Behind the supervisor's count, with room: the kernel counts this one in ticks, which run ahead of the time used
        // on a busy machine, and a signal before the limit would end the program without anybody having measured why.
        bounded(resource::CPU, l.cpu_seconds + l.cpu_seconds / 4 + 1, l.cpu_seconds + l.cpu_seconds / 4 + 2),
        bounded(resource::FSIZE, l.file_size_mb << 20, l.file_size_mb << 20),
        bounded(resource::NOFILE, l.open_files, l.open_files),
        bounded(resource::NPROC, l.processes + extra, l.processes + extra),
        bounded(resource::MEMLOCK, 64 << 10, 64 << 10),
        bounded(resource::MSGQUEUE, 819_200, 819_200),
        bounded(resource::SIGPENDING, 1024, 1024),
        bounded(resource::RTPRIO, 0, 0),
        bounded(resource::NICE, 0, 0),
    ]
}

/// One process more by RLIMIT_NPROC than the cgroup allows, so that the cgroup is the one that refuses.
pub fn leave_processes_to_the_cgroup(rlimits: &mut [(u32, u64, u64)]) {
    let most = rlimit(resource::NPROC).1;
    for (_, soft, hard) in rlimits.iter_mut().filter(|(r, ..)| *r == resource::NPROC) {
        (*soft, *hard) = (soft.saturating_add(1).min(most), hard.saturating_add(1).min(most));
    }
}

/// Whether a share of the CPUs, in thousandths of one, is all that this process may use.
pub fn is_all(cpu_millis: u64) -> bool {
    let of = |count: u64| cpu_millis >= count * 1000;
    // No more than these, which is one question. What is fewer by a quota stands in files, several for each answer.
    rustix::thread::sched_getaffinity(None).is_ok_and(|set| of(u64::from(set.count())))
        || std::thread::available_parallelism().is_ok_and(|n| of(n.get() as u64))
}

/// What holds without a cgroup. `own_users`: the sandbox has a user namespace, in which processes are counted for it alone.
pub fn enforcement(policy: &Policy, own_users: bool, e: &mut Enforcement) {
    let full = |reason: &str| Applied { strength: Strength::Full, reason: reason.to_owned() };
    let partial = |reason: &str| Applied { strength: Strength::Partial, reason: reason.to_owned() };
    let none = |reason: &str| Applied { strength: Strength::None, reason: reason.to_owned() };
    e.insert(Field::WallTime, full("the supervisor's clock"));
    e.insert(Field::Output, full("the supervisor counts, drops and drains"));
    let most = |r: u32| rlimit(r).1;
    let fits = |wanted: u64, r: u32, e: &mut Enforcement, field: Field, reason: &str| {
        let applied =
            if wanted <= most(r) { full(reason) } else { partial("this process's own hard limit is lower, and holds") };
        e.insert(field, applied);
    };
    fits(policy.limits.file_size_mb << 20, resource::FSIZE, e, Field::FileSize, "RLIMIT_FSIZE, per file");
    fits(policy.limits.open_files, resource::NOFILE, e, Field::OpenFiles, "RLIMIT_NOFILE, per process");
    let processes = if own_users {
        full("RLIMIT_NPROC in a user namespace of its own")
    } else {
        partial("RLIMIT_NPROC counts every process of the user, not only the sandbox's")
    };
    e.insert(Field::Processes, processes);
    let none_here = "no cgroup here; run as root, or under systemd with a delegated scope";
    e.insert(Field::Memory, partial(&format!("the supervisor samples what the tree maps and kills it; {none_here}")));
    e.insert(Field::CpuTime, partial(&format!("RLIMIT_CPU per process, and the supervisor samples; {none_here}")));
    let share = if is_all(policy.limits.cpu_millis) {
        full("the limit is no less than the whole machine")
    } else {
        none(none_here)
    };
    e.insert(Field::CpuShare, share);
    let tmpfs = if own_users {
        full("one sized tmpfs for all scratch space")
    } else {
        none("scratch space is the host's /tmp")
    };
    e.insert(Field::Tmpfs, tmpfs);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_all_there_is_from_as_many_cpus_on_as_there_are() {
        let all = std::thread::available_parallelism().unwrap().get() as u64 * 1000;
        assert!(is_all(all) && is_all(u64::MAX) && !is_all(all - 1) && !is_all(1));
    }
}
