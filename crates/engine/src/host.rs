//! The host as backends ask it: who the caller is, where cgroups can be made and what they hold, where external programs
//! are. Each is asked once. Decides nothing about a policy.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use cofferdam_confine::cgroup::{self, Cgroup, CgroupLimits, CgroupLocation};
use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::other_cpu;
use cofferdam_policy::Field;

use crate::backends::Tools;
use crate::outcome::{AppliedEnforcement, AppliedField, Strength};
use crate::progress::ProgressCallback;

/// What this host can do, asked once.
#[derive(Debug, Default)]
pub struct Host {
    identity: OnceLock<CallerIdentity>,
    cgroups: OnceLock<Cgroups>,
    owns_process: bool,
    /// The search for a place for cgroups, under way beside the caller's own work.
    search: Search,
    /// The cgroup of the one run.
    cgroup: Mutex<Option<Cgroup>>,
    /// Where external sandbox programs are; where this is `None`, the environment says so.
    pub(crate) tools: Option<Tools>,
    /// Called with the progress of a pull.
    on_progress: OnProgress,
}

/// What a process of its own is going to do with an engine, as far as its caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedUse {
    /// One run.
    Run,
    /// Something else, or nothing that is known yet.
    Anything,
}

/// The callback for progress, where there is one.
#[derive(Default)]
struct OnProgress(Option<ProgressCallback>);

impl std::fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "OnProgress(..)" } else { "OnProgress(none)" })
    }
}

/// A place for cgroups, and the cgroup that was made there for the one run.
type CgroupChoice = (Cgroups, Option<Cgroup>);

/// The thread that searches. Dropped, it is waited for: what it made goes with it.
#[derive(Debug, Default)]
struct Search(Mutex<Option<JoinHandle<Option<CgroupChoice>>>>);

impl Search {
    fn take(&self) -> Option<CgroupChoice> {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.and_then(|thread| thread.join().ok()).flatten()
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[derive(Debug)]
enum Cgroups {
    Here(std::sync::Arc<CgroupLocation>, Predicted),
    Not(String, String),
}

/// What a cgroup made here will hold.
#[derive(Debug, Clone, Copy)]
struct Predicted {
    memory: bool,
    pids: bool,
    cpu: bool,
    cpu_time: bool,
}

impl Host {
    /// A host whose process the engine has for itself: see [`crate::Engine::for_own_process`].
    pub(crate) fn for_own_process(run: ExpectedUse) -> Host {
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let search = other_cpu::spawn(thread, move || {
            let found = find_cgroups(true);
            let cgroup = match (&found, run) {
                (Cgroups::Here(location, _), ExpectedUse::Run) => Cgroup::unlimited(location, &LIKELY),
                _ => None,
            };
            (found, cgroup)
        });
        // Without a thread the place is looked for when it is needed.
        Host { owns_process: true, search: Search(Mutex::new(search.ok())), ..Host::default() }
    }

    pub(crate) fn report_progress_to(&mut self, on_progress: ProgressCallback) {
        self.on_progress = OnProgress(Some(on_progress));
    }

    #[cfg(feature = "containers")]
    pub(crate) fn on_progress(&self) -> Option<&ProgressCallback> {
        self.on_progress.0.as_ref()
    }

    /// Where external sandbox programs are.
    pub(crate) fn tools(&self) -> Tools {
        self.tools.clone().unwrap_or_else(Tools::from_environment)
    }

    pub(crate) fn identity(&self) -> CallerIdentity {
        *self.identity.get_or_init(host::identity)
    }

    fn cgroups(&self) -> &Cgroups {
        self.cgroups.get_or_init(|| match self.search.take() {
            Some((found, cgroup)) => {
                *self.cgroup.lock().unwrap_or_else(PoisonError::into_inner) = cgroup;
                found
            }
            None => find_cgroups(self.owns_process),
        })
    }

    /// Where a run's cgroup can be made.
    pub(crate) fn location(&self) -> Option<Arc<CgroupLocation>> {
        match self.cgroups() {
            Cgroups::Here(location, _) => Some(location.clone()),
            Cgroups::Not(..) => None,
        }
    }

    /// The cgroup that was made for the one run that was expected; the first caller gets it.
    pub(crate) fn take_cgroup(&self) -> Option<Cgroup> {
        self.cgroup.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Completes what a backend enforces by what a cgroup enforces here.
    pub(crate) fn cgroup_enforcement(&self, e: &mut AppliedEnforcement) {
        let full = |reason: &str| AppliedField { strength: Strength::Full, reason: reason.to_owned() };
        match self.cgroups() {
            Cgroups::Here(_, p) => {
                for (has, field) in [(p.memory, Field::Memory), (p.cpu, Field::CpuShare), (p.pids, Field::Processes)] {
                    if has {
                        e.insert(field, full("cgroup"));
                    }
                }
                if p.cpu_time {
                    e.insert(Field::CpuTime, full("the cgroup counts, the supervisor kills"));
                }
            }
            Cgroups::Not(reason, hint) => {
                for field in [Field::Memory, Field::CpuShare, Field::CpuTime] {
                    if let Some(a) = e.get_mut(&field).filter(|a| a.strength != Strength::Full) {
                        a.reason = format!("{}; {reason}; {hint}", a.reason.split("; ").next().unwrap_or_default());
                    }
                }
            }
        }
    }
}

/// The kind of limits that nearly every run has.
const LIKELY: CgroupLimits =
    CgroupLimits { memory_bytes: Some(0), pids: Some(0), cpu_millis: None, cpu_time: true, kill: false };

/// Where this process may make cgroups, ready to be used.
fn find_cgroups(owns_process: bool) -> Cgroups {
    let probe = cgroup::probe();
    let has = |a: &cgroup::Availability| matches!(a, cgroup::Availability::Available(_));
    let predicted = Predicted {
        memory: has(&probe.memory),
        pids: has(&probe.pids),
        cpu: has(&probe.cpu),
        cpu_time: has(&probe.cpu_time),
    };
    let why = match &probe.memory {
        cgroup::Availability::Unavailable { reason, hint } => (reason.clone(), hint.clone()),
        cgroup::Availability::Available(_) => (String::new(), String::new()),
    };
    let moves = probe.plan.as_ref().is_some_and(cgroup::CgroupPlan::moves_caller);
    if probe.plan.is_none() {
        return Cgroups::Not(why.0, why.1);
    }
    if moves && !owns_process {
        return Cgroups::Not(
            "limits need this process to be moved to a cgroup of its own, which a library does not do".into(),
            "run it by the cofferdam command".into(),
        );
    }
    match probe.prepare() {
        Ok(location) => {
            cgroup::sweep(&location);
            Cgroups::Here(std::sync::Arc::new(location), predicted)
        }
        Err(e) => Cgroups::Not(e.to_string(), "see `cofferdam doctor`".into()),
    }
}

/// Removes what killed runs of this user left: their cgroups. Every command does it when it starts.
pub fn sweep() {
    let probe = cgroup::probe();
    if probe.plan.as_ref().is_some_and(|p| !p.moves_caller())
        && let Ok(location) = probe.prepare()
    {
        cgroup::sweep(&location);
    }
}
