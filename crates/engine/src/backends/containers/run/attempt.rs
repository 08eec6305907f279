//! One run: root made ready, container started, init connected, supervised, outcome built.
//!
//! ```text
//! plan ─▶ prepare the root ─▶ directory, ends, rendezvous ─▶ runtime.start ─▶ init comes ─▶ its plan, by control message
//!           └─ pulls, reports                                            └─▶ supervise ─▶ end, figures ─▶ outcome
//! ```

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::Cgroup;
use cofferdam_confine::host::{resource, rlimit};
use cofferdam_confine::{InitPlan, RunningInit, control, memfd};
use cofferdam_policy::{Field, NetworkMode, OnViolation};

use super::super::rendezvous::{Ours, Rendezvous, ends};
use super::super::spec::Parts;
use super::super::{Arrival, ContainerEnd, Handed, ReadyRootfs, StartedContainer};
use super::super::{owner, spec, usage};
use super::{Contained, HostLayout, ProgressCallback, ReadyRoot};
use crate::backends::enforcement::container_runtime::KERNEL_THREADS;
use crate::backends::enforcement::{By, container_tmpfs, enforcement};
use crate::backends::layout::MountLayout;
use crate::backends::real_sources;
use crate::failure::{FailedStep, Failure};
use crate::io::{Io, Stream};
use crate::outcome::{AppliedEnforcement, NetworkSummary, Outcome};
use crate::plan::lookup::Lookup;
use crate::plan::mount_table::View;
use crate::run::evidence::{Log, Paths};
use crate::run::gateway::Egress;
use crate::run::outcome_builder;
use crate::run::outcome_builder::{Finished, RunContext};
use crate::run::report::{RunEnd, SupervisorReport};
use crate::run::streams::{InputSource, OutputSink};
use crate::run::supervise;
use crate::run::supervise::init_tree::{InitTree, Outer};
use crate::run::supervise::{OwnNetwork, SupervisedRun};

impl Contained {
    /// Runs it and returns when the tree is dead and nothing of the container is left.
    pub fn run(&self, mut io: Io) -> Outcome {
        let begun = Instant::now();
        let outcome = match self.attempt(&mut io) {
            Ok((finished, init_plan)) => {
                let of = RunContext {
                    policy: &self.planned.policy,
                    init_plan: Some(&init_plan),
                    codes_are_signals: false,
                    // An engine's own filter refuses without a report, and which calls those are nobody says.
                    reports: false,
                };
                outcome_builder::outcome(&of, self.planned.unstarted(), finished, begun)
            }
            Err(failure) => self.planned.unstarted().refused(failure, begun),
        };
        io.monitor.end();
        outcome
    }

    /// The root file system, made ready once and again where what it is for has changed.
    fn ready(&self, parts: &Parts) -> Result<ReadyRootfs, Failure> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = root.as_ref().filter(|made| made.of == parts.root && made.mounts == parts.mounts) {
            return Ok(made.ready.clone());
        }
        let ignored: ProgressCallback = Arc::new(|_| {});
        let on_progress = self.on_progress.as_ref().unwrap_or(&ignored);
        let wanted = parts.root.clone().unwrap_or(spec::Rootfs::Made(Vec::new()));
        let ready = self.runtime.prepare(&wanted, &parts.mounts, &|progress| on_progress(progress))?;
        *root = Some(ReadyRoot { of: parts.root.clone(), mounts: parts.mounts.clone(), ready: ready.clone() });
        Ok(ready)
    }

    /// What holds of this layout, with what the engine knows of cgroups.
    fn enforced(&self, layout: &MountLayout) -> AppliedEnforcement {
        let root = rustix::process::geteuid().is_root();
        let mut enforcement = enforcement(
            &self.planned.policy,
            &By::Container { layout, about: &self.about, egress: self.way.as_ref(), other_user: root },
        );
        for (field, applied) in &self.planned.enforcement {
            if field.name().starts_with("limits.") || *field == Field::TreeKill {
                enforcement.insert(*field, applied.clone());
            }
        }
        enforcement
    }

    fn attempt(&self, io: &mut Io) -> Result<(Finished, InitPlan), Failure> {
        if io.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(Failure::new(
                FailedStep::policy("command.argv"),
                "an argument of this run has a NUL byte in it, and arguments end there",
            ));
        }
        if io.terminal.is_some() {
            let hint = "use --backend jail, or leave --tty out";
            return Err(Failure::new(
                FailedStep::Terminal,
                format!("the {} backend gives no terminal", self.planned.backend),
            )
            .hint(hint));
        }
        let sweeping = self.sweep();
        // What exists changes: what an earlier run made is denied, protected or renamed by now.
        let pinned = real_sources::pinned(&self.planned.policy, &mut Lookup::default())?;
        let HostLayout { layout, parts } = HostLayout::at_host(&self.planned.policy, &self.place)?;
        let mut enforcement = self.enforced(&layout);
        let location = self.location.as_ref().filter(|_| !self.about.limits);
        let besides = 1 + if self.about.listener { 0 } else { KERNEL_THREADS };
        let own = location.and_then(|at| usage::own(at, &self.planned.policy, besides, &mut enforcement));
        container_tmpfs(self.about.inodes, &mut enforcement);
        self.still_sufficient(&enforcement)?;
        let root = self.ready(&parts)?;
        self.place.write_texts(&parts.texts)?;
        let id = owner::fresh_name()
            .map_err(|e| Failure::new(FailedStep::Container, format!("cannot make up a name: {e}")))?;
        let directory = self.place.run(&id)?;
        let spec = self.spec(&parts, &root.moved, id, directory.path());
        let checked = root.moved.rules(self.checked(&pinned, &parts)?);
        // Where init cannot compare, the runtime does, before there is a program.
        let (by_init, by_maker) = if self.about.listener { (checked, Vec::new()) } else { (Vec::new(), checked) };
        let mut init_plan = self.init_plan(&parts, &spec, std::mem::take(&mut io.arguments), by_init);
        let (ours, theirs) = ends(self.user)?;
        let rendezvous = match self.about.arrival {
            Arrival::Rendezvous => Some(Rendezvous::open(directory.path())?),
            Arrival::Inherited => None,
        };
        let limits = [(resource::CORE, 0, rlimit(resource::CORE).1)];
        let handed = Handed {
            stdio: theirs.stdio(),
            init: theirs.init(),
            lifeline: theirs.lifeline.as_fd(),
            cgroup: own.as_ref().filter(|_| rendezvous.is_some()),
            rlimits: &limits,
            directory: directory.path(),
        };
        let made = match self.runtime.start(&spec, &root, &handed) {
            // Somebody has removed it since: once more, and another one that is gone is told.
            Err(failure) if failure.step == FailedStep::Image => {
                *self.root.lock().unwrap_or_else(PoisonError::into_inner) = None;
                let again = self.ready(&parts)?;
                if again.moved != root.moved {
                    return Err(failure); // its mounts would lie elsewhere
                }
                self.runtime.start(&spec, &again, &handed)?
            }
            started => started?,
        };
        let joins = own.as_ref().filter(|_| rendezvous.is_none());
        let arrived = match rendezvous {
            // Who came may be a helper of the runtime's. Where its process is ours, that one has them all below it, and is waited for.
            Some(rendezvous) => {
                rendezvous.admit(&theirs, made.as_ref()).and_then(|peer| made.running().map_or(Ok(peer), copy))
            }
            None => {
                made.running().map(copy).unwrap_or_else(|| Err(Failure::new(FailedStep::Container, "nothing runs")))
            }
        };
        drop(theirs); // init's alone from here on, so that its end is seen
        let told = arrived.and_then(|running| {
            let counted = self.about.limits.then(|| usage::theirs(running.pid, &mut enforcement)).flatten();
            self.still_sufficient(&enforcement)?; // nothing runs yet
            made.compare(&by_maker)?;
            let extra = match joins {
                Some(cgroup) => cgroup.join_files().map_err(|e| Failure::new(FailedStep::Cgroup, e.to_string()))?,
                None => Vec::new(),
            };
            init_plan.joins = (0, extra.len() as u16);
            let block = memfd::plan(&init_plan.encode());
            let block = block.map_err(|e| Failure::new(FailedStep::Spawn, format!("cannot write the plan: {e}")))?;
            let extra: Vec<_> = extra.iter().map(AsFd::as_fd).collect();
            // An inherited init may have failed by then; what its runtime says of it is the better word.
            if let Err(e) = control::plan(ours.control.as_fd(), block.as_fd(), &extra) {
                return Err(made
                    .gave_up()
                    .unwrap_or_else(|| Failure::new(FailedStep::Spawn, format!("cannot hand the plan over: {e}"))));
            }
            Ok((running, counted))
        });
        let (running, counted) = match told {
            Ok(told) => told,
            Err(failure) => return Err(given_up(made, failure)),
        };
        let watched = self.watch(running, ours, own.as_ref().or(counted.as_ref()), made.as_ref(), &layout.view, io);
        let (mut report, network) = match watched {
            Ok(watched) => watched,
            // Nobody has told init to go: its lifeline is closed, and this makes sure.
            Err(failure) => return Err(given_up(made, failure)),
        };
        let ended = made.end();
        if let Err(e) = directory.remove() {
            report.problems.push(format!("cannot remove the run's directory: {e}"));
        }
        if let Some(thread) = sweeping
            && thread.join().is_err()
        {
            report.problems.push("looking for what dead runs left behind failed".into());
        }
        self.judge(&mut report, &ended)?;
        let mut finished = usage::figures(report, enforcement, own);
        finished.problems.extend(ended.problems);
        finished.network = network;
        Ok((finished, init_plan))
    }

    /// Looks once, beside the first run, for what dead owners left.
    fn sweep(&self) -> Option<std::thread::JoinHandle<()>> {
        let mut thread = None;
        self.swept.call_once(|| {
            let (runtime, place) = (Arc::clone(&self.runtime), self.place.clone());
            let sweep = move || {
                match runtime.sweep() {
                    Ok(swept) => {
                        for name in &swept.removed {
                            tracing::info!(container = name, "removed: its owner is gone");
                        }
                        for problem in &swept.problems {
                            tracing::warn!(problem, "a container of a dead owner remains");
                        }
                    }
                    Err(failure) => {
                        tracing::warn!(message = failure.message, "cannot look for containers of dead owners")
                    }
                }
                place.sweep(|_| false);
            };
            match std::thread::Builder::new().name("sweep".into()).spawn(sweep) {
                Ok(started) => thread = Some(started),
                // What is left is found by the next command; this run needs nothing of it.
                Err(error) => tracing::warn!(%error, "cannot look for containers of dead owners"),
            }
        });
        thread
    }

    fn watch(
        &self,
        running: RunningInit,
        ours: Ours,
        cgroup: Option<&Cgroup>,
        made: &dyn StartedContainer,
        view: &View,
        io: &mut Io,
    ) -> Result<(SupervisorReport, Option<NetworkSummary>), Failure> {
        let l = &self.planned.policy.limits;
        let Ours { stdio: [to, out, err], lifeline, status, events, control } = ours;
        let inits = made.running().is_none().then_some(running.pid);
        let egress: Option<Egress> = match &self.way {
            Some(way) => Some(way.attach(&self.planned.policy.network, control, inits.unwrap_or(-1))?),
            None => {
                drop(control);
                None
            }
        };
        let input = io.take_input(&self.planned.policy.command.stdin);
        let (denied, protected) =
            (self.set(&self.planned.policy.filesystem.deny), self.set(&self.planned.policy.filesystem.protected));
        let around = ContainerStop { made, own_clock: !self.about.listener };
        let run = SupervisedRun {
            running,
            source: InputSource::new(to, input, false),
            sinks: [
                Some(OutputSink::new(out, Stream::Stdout, l.output_bytes)),
                Some(OutputSink::new(err, Stream::Stderr, l.output_bytes)),
            ],
            cgroup,
            wall: Duration::from_millis(l.wall_ms),
            cpu_seconds: l.cpu_seconds,
            sample_memory: cgroup.is_none().then_some(l.memory_mb << 20),
            memory_bytes: l.memory_mb << 20,
            own_network: (self.about.listener && self.planned.policy.network.mode != NetworkMode::Host)
                .then_some(OwnNetwork { mode: self.planned.policy.network.mode, below_runtime: around.is_child() }),
            // Its root may be one.
            overlays: true,
            output_bytes: l.output_bytes,
            log: Log::new(&self.planned.policy),
        };
        let mut tree = InitTree {
            status,
            received: Vec::new(),
            events,
            no_more_events: false,
            lifeline: Some(lifeline),
            own_pids: true,
            paths: Paths { view, denied: &denied, protected: &protected },
            session: None,
            workspace: None,
            layers: &[],
            gateway: egress.as_ref().map(|e| (e.watch(), self.planned.policy.on_violation == OnViolation::Terminate)),
            container: Some(&around),
            asked: None,
        };
        io.monitor.begin(run.running.pid, cgroup, 1);
        let mut report = supervise::supervise(run, &mut tree, io);
        let network = egress.map(|egress| egress.end(&mut report.log));
        report.refused(network.as_ref(), self.planned.policy.on_violation);
        Ok((report, network))
    }

    fn set(&self, paths: &[String]) -> BTreeSet<String> {
        paths.iter().cloned().collect()
    }

    /// What the runtime knows better.
    fn judge(&self, report: &mut SupervisorReport, ended: &ContainerEnd) -> Result<(), Failure> {
        let oom_killed = ended.oom_killed == Some(true);
        if oom_killed && matches!(report.end, RunEnd::Wait(_) | RunEnd::Lost) {
            report.end = RunEnd::Limit(Field::Memory);
        }
        if matches!(report.end, RunEnd::Lost) && report.started_ns == 0 {
            let failure = started_nothing(self.planned.backend, &ended.said);
            return Err(besides(failure, ended.problems.iter().cloned()));
        }
        Ok(())
    }
}

/// The failure of a runtime that has ended, or was ended, before the program began.
fn started_nothing(backend: impl std::fmt::Display, said: &str) -> Failure {
    match said {
        "" => Failure::new(FailedStep::Container, format!("{backend} started nothing, and said nothing: its runtime hung, or it was killed from outside or by a memory limit that is too low for it"))
            .hint("raise --memory, or try the runtime by itself: cofferdam doctor --verbose names it"),
        said => Failure::new(FailedStep::Container, format!("{backend} started nothing: {said}")),
    }
}

/// Ends a container whose run came to nothing. The failure stays the one that is told; what could not be undone is added.
fn given_up(made: Box<dyn StartedContainer>, failure: Failure) -> Failure {
    let killed = made.kill().err().map(|e| e.message);
    besides(failure, killed.into_iter().chain(made.end().problems))
}

fn besides(mut failure: Failure, problems: impl IntoIterator<Item = String>) -> Failure {
    for problem in problems {
        failure.message.push_str(&format!("; {problem}"));
    }
    failure
}

/// What ends a container.
struct ContainerStop<'a> {
    made: &'a dyn StartedContainer,
    /// A kernel of its own counts its own time.
    own_clock: bool,
}

impl Outer for ContainerStop<'_> {
    fn kill(&self) -> Result<(), String> {
        self.made.kill().map_err(|failure| failure.message)
    }

    fn is_child(&self) -> bool {
        self.made.running().is_some()
    }

    fn own_clock(&self) -> bool {
        self.own_clock
    }
}

/// The same process, to be watched besides.
fn copy(running: &RunningInit) -> Result<RunningInit, Failure> {
    let pidfd = running.pidfd.try_clone();
    let pidfd = pidfd.map_err(|e| Failure::new(FailedStep::Container, format!("cannot watch the container: {e}")))?;
    Ok(RunningInit { pid: running.pid, pidfd })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A container that its runtime cannot kill.
    struct Stubborn(Arc<AtomicU32>);

    impl StartedContainer for Stubborn {
        fn running(&self) -> Option<&RunningInit> {
            None
        }

        fn gave_up(&self) -> Option<Failure> {
            None
        }

        fn kill(&self) -> Result<(), Failure> {
            Err(Failure::new(FailedStep::Container, "it does not die"))
        }

        fn end(self: Box<Self>) -> ContainerEnd {
            self.0.fetch_add(1, Ordering::SeqCst);
            ContainerEnd { problems: vec!["it is left".into()], ..ContainerEnd::default() }
        }
    }

    #[test]
    fn a_silent_runtime_is_reported_as_one_that_may_hang() {
        let failure = started_nothing("oci", "");
        assert!(
            failure.message.starts_with("oci started nothing, and said nothing: its runtime hung, or"),
            "{failure:?}"
        );
        assert!(failure.hint.is_some());
        assert_eq!(started_nothing("oci", "no cgroup").message, "oci started nothing: no cgroup");
    }

    #[test]
    fn the_first_failure_is_reported_and_the_container_always_ended() {
        let ends = Arc::new(AtomicU32::new(0));
        let first = Failure::new(FailedStep::policy("network"), "no gateway").hint("do this");
        let told = given_up(Box::new(Stubborn(Arc::clone(&ends))), first);
        assert_eq!(
            told,
            Failure::new(FailedStep::policy("network"), "no gateway; it does not die; it is left").hint("do this")
        );
        assert_eq!(ends.load(Ordering::SeqCst), 1);
    }
}
