//! The host as backends ask it: who the caller is, where cgroups can be made and what they hold, where external programs
//! are. Each is asked once. Decides nothing about a policy.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use cofferdam_confine::cgroup::{self, Cgroup, CgroupLimits, CgroupLocation, MemoryCap};
use cofferdam_confine::host::{self, CallerIdentity};
use cofferdam_confine::other_cpu;
use cofferdam_policy::Field;

use crate::backends::Tools;
use crate::backends::jail::start::PendingInit;
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
    /// What was made for the one run.
    first: Mutex<FirstRun>,
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

/// What is made for the one run that is expected while its policy is planned. Fields drop in order: init is ended before its cgroup
/// is removed.
#[derive(Debug, Default)]
pub(crate) struct FirstRun {
    /// Init, which waits for its plan.
    pub(crate) init: Option<PendingInit>,
    /// Its cgroup, without limits yet.
    pub(crate) cgroup: Option<Cgroup>,
}

impl FirstRun {
    /// In a cgroup of this place, if there is one. What cannot be had is left to the run, which says why.
    fn make(cgroups: &Cgroups) -> FirstRun {
        let cgroup = match cgroups {
            Cgroups::Here(location, _) => Cgroup::unlimited(location, &LIKELY),
            Cgroups::Not(..) => None,
        };
        FirstRun { init: PendingInit::launch(PendingInit::LIKELY, cgroup.as_ref(), None).ok(), cgroup }
    }
}

/// A place for cgroups, and what was made for the one run.
type Found = (Cgroups, FirstRun);

/// The thread that searches. Dropped, it is waited for: what it made goes with it.
#[derive(Debug, Default)]
struct Search(Mutex<Option<JoinHandle<Option<Found>>>>);

impl Search {
    fn take(&self) -> Option<Found> {
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
            let first = match run {
                ExpectedUse::Run => FirstRun::make(&found),
                ExpectedUse::Anything => FirstRun::default(),
            };
            (found, first)
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
            Some((found, first)) => {
                *self.first.lock().unwrap_or_else(PoisonError::into_inner) = first;
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

    /// What was made for the one run that was expected; the first caller gets it.
    pub(crate) fn take_first_run(&self) -> FirstRun {
        if self.owns_process {
            self.cgroups(); // it comes with what the thread has found
        }
        std::mem::take(&mut *self.first.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Completes what a backend enforces by what a cgroup enforces here.
    pub(crate) fn cgroup_enforcement(&self, e: &mut AppliedEnforcement) {
        let full = |reason: &str| AppliedField { strength: Strength::Full, reason: reason.to_owned() };
        match self.cgroups() {
            Cgroups::Here(location, p) => {
                for (has, field) in [(p.memory, Field::Memory), (p.cpu, Field::CpuShare), (p.pids, Field::Processes)] {
                    if has {
                        e.insert(field, full("cgroup"));
                    }
                }
                if let Some(reason) = location.memory_cap().and_then(open_cap) {
                    e.insert(Field::Memory, full(&format!("cgroup; {reason}")));
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

/// What the limit over all runs of a user leaves open.
fn open_cap(found: Result<&MemoryCap, &str>) -> Option<String> {
    match found {
        Ok(cap) => cap.gap.as_ref().map(|gap| format!("of all runs together, {gap}")),
        Err(reason) => Some(format!("nothing limits all runs together: {reason}")),
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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use cofferdam_policy::{NetworkMode, Policy, Root};

    use super::*;
    use crate::Engine;
    use crate::backends::native::Core;
    use crate::io::Io;
    use crate::prepared::Prepared;

    /// A policy that the jail runs.
    fn policy(network: NetworkMode) -> Policy {
        let mut policy = Policy::base();
        policy.backend = cofferdam_policy::BackendName::Jail;
        policy.filesystem.root = Root::Host;
        policy.command.argv = ["/bin/sh", "-c", "echo done"].map(str::to_owned).to_vec();
        policy.network.mode = network;
        policy
    }

    /// A prepared first run with the init that waits for it; `None` where this host has no namespaces.
    fn first(network: NetworkMode) -> Option<(Engine, Prepared, i32)> {
        let engine = Engine::for_own_process(ExpectedUse::Run);
        let prepared = match engine.prepare(&policy(network)) {
            Ok(prepared) => prepared,
            Err(failure) => {
                assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none(), "{failure:?}");
                eprintln!("skipped: {}", failure.message);
                return None;
            }
        };
        let pid = of(&prepared, |first| first.init.as_ref().map(PendingInit::pid));
        Some((engine, prepared, pid.expect("an init waits")))
    }

    fn of<T>(prepared: &Prepared, look: impl FnOnce(&FirstRun) -> T) -> T {
        let core: &Arc<Core> = prepared.core().expect("the jail's");
        look(&core.first.lock().unwrap())
    }

    fn is_there(pid: i32) -> bool {
        PathBuf::from(format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_first_run_has_the_init_that_was_started_for_it() {
        let Some((_engine, prepared, pid)) = first(NetworkMode::None) else { return };
        assert!(is_there(pid));
        let outcome = prepared.run(Io::default());
        assert_eq!((outcome.stdout.as_str(), outcome.success), ("done\n", true), "{outcome:?}");
        assert!(!is_there(pid) && of(&prepared, |first| first.init.is_none() && first.cgroup.is_none()));
        let again = prepared.run(Io::default());
        assert!(again.success, "{again:?}");
    }

    #[test]
    fn an_init_in_other_namespaces_than_the_policy_wants_is_not_used() {
        let Some((_engine, prepared, pid)) = first(NetworkMode::Host) else { return };
        let outcome = prepared.run(Io::default());
        assert_eq!((outcome.stdout.as_str(), outcome.success), ("done\n", true), "{outcome:?}");
        assert!(!is_there(pid), "it is ended");
    }

    /// Whether a directory of this name is anywhere below another.
    fn holds(directory: &Path, name: &str) -> bool {
        let below = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        below.any(|entry| entry.file_name() == name || holds(&entry.path(), name))
    }

    #[test]
    fn an_init_that_has_waited_for_long_is_not_used() {
        let Some((_engine, prepared, pid)) = first(NetworkMode::None) else { return };
        std::thread::sleep(crate::backends::jail::FRESH);
        let serves = of(&prepared, |first| first.init.as_ref().is_some_and(|init| init.serves(PendingInit::LIKELY)));
        let outcome = prepared.run(Io::default());
        assert_eq!((serves, outcome.success, is_there(pid)), (false, true, false), "{outcome:?}");
    }

    #[test]
    fn what_was_made_for_a_run_that_never_comes_goes_away() {
        let Some((engine, prepared, pid)) = first(NetworkMode::None) else { return };
        let group = of(&prepared, |first| first.cgroup.as_ref().map(|cgroup| cgroup.name().to_owned()));
        let has_group = || group.as_ref().is_some_and(|name| holds(Path::new("/sys/fs/cgroup"), name));
        assert_eq!((is_there(pid), has_group()), (true, group.is_some()));
        drop(prepared);
        assert_eq!((is_there(pid), has_group()), (false, false));
        drop(engine);
        // Nobody asks for it at all.
        let host = Host::for_own_process(ExpectedUse::Run);
        host.cgroups();
        let pid = host.first.lock().unwrap().init.as_ref().map(PendingInit::pid).unwrap();
        assert!(is_there(pid));
        drop(host);
        assert!(!is_there(pid));
    }
}
