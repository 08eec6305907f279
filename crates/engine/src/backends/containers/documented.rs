//! What container runtimes enforce on a host that has everything for them: the documentation's table is made of this. Pure.

use cofferdam_policy::{Field, Policy};

use super::{Inodes, RuntimeFacts};
use crate::backends::enforcement::{By, container_tmpfs, enforcement, shared_with_kernel};
use crate::outcome::{AppliedEnforcement, AppliedField};
use crate::plan::egress::EgressPlan;

/// What runtimes answer on a host that has everything for them, by name: what the documentation's table is made of.
///
/// # Errors
/// The policy cannot be held by containers at all.
pub fn documented(
    policy: &Policy,
    facts: &dyn crate::plan::facts::Facts,
) -> Result<Vec<(&'static str, AppliedEnforcement)>, crate::failure::Failure> {
    use super::Arrival::{Inherited, Rendezvous};
    let layout = crate::backends::layout::in_container(policy, facts)?;
    let egress = EgressPlan::of(policy)?;
    let about = |rootless, arrival, limits, inodes, [listener, flags]: [bool; 2], detail: &str| RuntimeFacts {
        version: String::new(),
        rootless,
        arrival,
        apart: !listener,
        compares: !listener,
        listener,
        limits,
        inodes,
        flags,
        detail: detail.into(),
    };
    let profile = "the engine's default profile";
    let runtimes = [
        ("docker", about(false, Rendezvous, true, Inodes::Counted, [true, false], profile)),
        ("podman", about(false, Rendezvous, true, Inodes::Charged, [true, true], profile)),
        ("podman, rootless", about(true, Rendezvous, false, Inodes::Charged, [true, true], profile)),
        (
            "oci: crun, runc, youki",
            about(false, Inherited, false, Inodes::Counted, [true, true], "a bundle without a profile"),
        ),
        (
            "oci:runsc",
            about(
                false,
                Rendezvous,
                false,
                Inodes::Charged,
                [false, true],
                "gVisor's own kernel, which takes every call",
            ),
        ),
    ];
    let answer = |(name, about): (_, RuntimeFacts)| {
        let RuntimeFacts { rootless, listener, limits, inodes, .. } = about;
        let by = By::Container {
            layout: &layout,
            about: &about,
            egress: egress.as_ref().filter(|_| listener),
            other_user: !rootless,
        };
        let mut e = enforcement(policy, &by);
        if !limits && !rootless {
            for field in [Field::Memory, Field::CpuShare, Field::Processes] {
                e.insert(field, AppliedField::full("the run's own cgroup"));
            }
            e.insert(Field::CpuTime, AppliedField::full("the run's own cgroup counts, the supervisor kills"));
            container_tmpfs(inodes, &mut e);
        }
        if !listener {
            e.insert(Field::Processes, shared_with_kernel());
        }
        (name, e)
    };
    Ok(runtimes.into_iter().map(answer).collect())
}
