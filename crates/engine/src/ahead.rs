//! What is made of a run before its policy is known: a process in its namespaces, and the mounts that it begins with.
//!
//! A guess, and never more: the plan of the run is made without it, and goes on from what was begun only where it would
//! have begun the same way. What is not used ends.

use std::fs::File;
use std::thread::JoinHandle;

use cofferdam_confine::host::Identity;
use cofferdam_policy::{Policy, Root};

use crate::engine::jail_available;
use crate::jail;
use crate::ready::unchanged;

/// What a caller can tell of a run before it knows the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Likely {
    /// Nothing.
    Unknown,
    /// It takes a jail with a network of its own.
    Jail,
    /// So it does, and the root view is this one, with base limits and the base name.
    View(Root),
}

/// A process made before it was known what it is to do.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// `None` where none could be made, which the run itself finds out.
    pub process: JoinHandle<Option<Option<Made>>>,
    /// What the run that it is for is known by inside.
    pub ids: jail::Ids,
}

/// The process, and the host's mounts as they are in its namespace.
pub(crate) struct Made {
    waiting: jail::Waiting,
    mounts: File,
}

impl Made {
    /// The process, unless something was mounted or unmounted since: the plan looks at the host as it is now, and what
    /// the process would show is what it was. A caller can take its time, as one whose code comes on standard input.
    pub fn still(self) -> Option<jail::Waiting> {
        unchanged(&self.mounts).then_some(self.waiting)
    }
}

/// Makes the process, and lets it begin. `None` where it cannot be made.
pub(crate) fn make(me: Identity, likely: Likely, ids: &jail::Ids) -> Option<Made> {
    jail_available(me).ok()?;
    let mounts = File::open("/proc/self/mountinfo").ok()?; // before they are copied
    let waiting = jail::Waiting::spawn(jail::PRIVATE, jail::outside(me)?, None, None).ok()?;
    let Likely::View(root) = likely else { return Some(Made { waiting, mounts }) };
    let mut policy = Policy::base();
    policy.filesystem.root = root;
    let waiting = match jail::beginning(&policy, me, ids) {
        Some(beginning) => waiting.start(beginning).ok()?,
        None => waiting,
    };
    Some(Made { waiting, mounts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use cofferdam_policy::{Field, NetworkMode};

    fn begun_suits(likely: &Likely, change: impl Fn(&mut Policy)) -> Option<bool> {
        let engine = Engine::for_own_process(likely);
        let mut policy = Policy::base();
        policy.filesystem.root = Root::Host;
        policy.command.argv = vec!["/bin/true".into()];
        policy.enforcement.best_effort = Field::ALL.iter().copied().collect();
        change(&mut policy);
        engine.prepare(&policy).unwrap().begun_suits()
    }

    #[test]
    fn what_was_begun_ahead_is_gone_on_with_only_where_it_is_what_the_policy_asks_for() {
        if cofferdam_confine::cgroup::is_unified() {
            assert_eq!(begun_suits(&Likely::View(Root::Host), |_| ()), None);
            return;
        }
        let host = Likely::View(Root::Host);
        assert_eq!(begun_suits(&host, |_| ()), Some(true));
        assert_eq!(begun_suits(&host, |p| p.command.cwd = Some("/usr".into())), Some(true));
        assert_eq!(begun_suits(&host, |p| p.process.hostname = "other".into()), Some(false));
        assert_eq!(begun_suits(&host, |p| p.limits.tmpfs_mb = 1), Some(false));
        assert_eq!(begun_suits(&host, |p| p.filesystem.root = Root::Minimal), Some(false));
        assert_eq!(begun_suits(&host, |p| p.network.mode = NetworkMode::Host), Some(false));
        let captured = |p: &mut Policy| {
            p.network.mode = NetworkMode::Allowlist;
            p.network.allow = vec!["a.example".parse().unwrap()];
        };
        assert_eq!(begun_suits(&host, captured), Some(true));
        let minimal = Likely::View(Root::Minimal);
        let captured = |p: &mut Policy| (captured(p), p.filesystem.root = Root::Minimal).1;
        assert_eq!(begun_suits(&minimal, captured), Some(true));
        assert_eq!(begun_suits(&Likely::View(Root::Minimal), |_| ()), Some(false));
        assert_eq!(begun_suits(&Likely::View(Root::Minimal), |p| p.filesystem.root = Root::Minimal), Some(true));
        assert_eq!(begun_suits(&Likely::Jail, |p| p.process.hostname = "other".into()), Some(true));
        assert_eq!(begun_suits(&Likely::Unknown, |_| ()), None);
    }
}
