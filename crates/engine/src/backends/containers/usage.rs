//! What a container may use and has used: a cgroup of ours where the runtime holds no limits, else a look at the runtime's.

use cofferdam_confine::cgroup::{Cgroup, CgroupLimits, CgroupLocation, LimitLevel};
use cofferdam_policy::{Field, Policy};

use crate::outcome::{AppliedEnforcement, AppliedField, Strength};
use crate::run::outcome_builder::Finished;
use crate::run::report::SupervisorReport;

/// Makes a cgroup of the run's own, with room for `besides` processes that are not the program's. What could not be had of
/// it stands in the enforcement.
pub(super) fn own(
    location: &CgroupLocation,
    policy: &Policy,
    besides: u64,
    e: &mut AppliedEnforcement,
) -> Option<Cgroup> {
    let l = &policy.limits;
    let limits = CgroupLimits {
        memory_bytes: Some(l.memory_mb << 20),
        pids: Some(l.processes + besides),
        cpu_millis: (!crate::plan::rlimits::is_all(l.cpu_millis)).then_some(l.cpu_millis),
        cpu_time: true,
        kill: false,
    };
    let mut weaker = |field, strength, reason: String| {
        e.insert(field, AppliedField { strength, reason });
    };
    match Cgroup::create(location, &limits) {
        Ok((cgroup, applied)) => {
            for (field, reached) in
                [(Field::Memory, applied.memory), (Field::CpuShare, applied.cpu), (Field::CpuTime, applied.cpu_time)]
            {
                let Some(r) = reached.filter(|r| r.level != LimitLevel::Full) else { continue };
                let strength = if r.level == LimitLevel::None { Strength::None } else { Strength::Partial };
                weaker(field, strength, r.reason.unwrap_or_default());
            }
            Some(cgroup)
        }
        Err(error) => {
            for field in [Field::Memory, Field::CpuShare, Field::CpuTime, Field::Processes] {
                weaker(field, Strength::Partial, error.to_string());
            }
            None
        }
    }
}

/// The cgroup that the runtime has made, for its figures.
pub(super) fn theirs(pid: i32, e: &mut AppliedEnforcement) -> Option<Cgroup> {
    let found = Cgroup::of(pid).ok().flatten();
    if found.is_none() {
        // It holds; what it counts cannot be read.
        let reason = "the container's cgroup cannot be read from here: its processes are asked".to_owned();
        e.insert(Field::CpuTime, AppliedField { strength: Strength::Partial, reason });
    }
    found
}

/// Whether this kernel charges to a memory limit what files without contents take of it, as it does but where its command line
/// says otherwise (`cgroup.memory=nokmem`, kernel-parameters(7)).
pub(super) fn charges_inodes() -> bool {
    // Where it cannot be read nothing is known of it.
    std::fs::read_to_string("/proc/cmdline").is_ok_and(|line| charged(&line))
}

fn charged(line: &str) -> bool {
    let words = line.split_whitespace().filter_map(|word| word.strip_prefix("cgroup.memory="));
    !words.flat_map(|list| list.split(',')).any(|word| word == "nokmem")
}

/// The tree is dead: what did it use? Then a cgroup of ours goes.
pub(super) fn figures(report: SupervisorReport, enforcement: AppliedEnforcement, cgroup: Option<Cgroup>) -> Finished {
    let mut f = Finished::of(report, enforcement);
    let own = cgroup.as_ref().and_then(|c| Some((c.usage().ok()?, c.events().ok()?)));
    if let Some((used, events)) = own.or(f.report.counted) {
        f.counted(&used, 1);
        f.pids_hits = events.pids_limit_hits;
    }
    if let Some(c) = cgroup
        && let Err(e) = c.remove()
    {
        f.problems.push(e.to_string());
    }
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_configured_so_charges_no_inodes() {
        assert!(charged("quiet root=/dev/vda") && charged("cgroup.memory=nosocket") && charged(""));
        assert!(!charged("quiet cgroup.memory=nokmem") && !charged("cgroup.memory=nosocket,nokmem ro"));
    }
}
