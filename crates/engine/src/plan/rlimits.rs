//! The kernel's per-process limits, as a policy asks for them.

use cofferdam_confine::host::{resource, rlimit};
use cofferdam_policy::Policy;

/// `(resource, soft, hard)`, never above this process's own hard limits. `extra` processes of ours count as well.
pub(crate) fn rlimits(policy: &Policy, extra: u64) -> Vec<(u32, u64, u64)> {
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
pub(crate) fn leave_processes_to_the_cgroup(rlimits: &mut [(u32, u64, u64)]) {
    let most = rlimit(resource::NPROC).1;
    for (_, soft, hard) in rlimits.iter_mut().filter(|(r, ..)| *r == resource::NPROC) {
        (*soft, *hard) = (soft.saturating_add(1).min(most), hard.saturating_add(1).min(most));
    }
}

/// Whether a share of the CPUs, in thousandths of one, is all that this process may use.
pub(crate) fn is_all(cpu_millis: u64) -> bool {
    let of = |count: u64| cpu_millis >= count * 1000;
    // No more than these, which is one question. What is fewer by a quota stands in files, several for each answer.
    rustix::thread::sched_getaffinity(None).is_ok_and(|set| of(u64::from(set.count())))
        || std::thread::available_parallelism().is_ok_and(|n| of(n.get() as u64))
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
