//! A policy ready to be run in containers, and one run of it: root made ready, container started, init let in, watched, told.
//!
//! ```text
//! plan ─▶ prepare the root ─▶ directory, ends, door ─▶ maker.start ─▶ init comes ─▶ its plan, by letter
//!           └─ pulls, tells                                              └─▶ supervise ─▶ end, figures ─▶ outcome
//! ```

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{Cgroup, Location};
use cofferdam_confine::host::{self, Identity, resource, rlimit};
use cofferdam_confine::recipe::{PathRule, Step};
use cofferdam_confine::wire::{fd, flag};
use cofferdam_confine::{Recipe, Running, letter, memfd};
use cofferdam_policy::{
    ArgCondition, ArgOp, Field, NetworkMode, OnViolation, Policy, Root, SeccompLevel, Stdin, SyscallAction, SyscallRule,
};
use serde_json::{Value, json};

use super::door::{Door, Ours, ends};
use super::owner;
use super::place::Place;
use super::shape::{self, Bounds, Mounted, Parts, Shape};
use super::usage;
use super::{About, Arrival, Ended, Handed, Made, Maker, Progress};
use crate::backends::answers::sufficient;
use crate::backends::facts::Here;
use crate::backends::layout::{Layout, in_container};
use crate::egress::{Egress, Way};
use crate::evidence::{Log, Paths};
use crate::filter::{self, Filter, Needs};
use crate::io::{Input, Io, Stream};
use crate::outcome::{Applied, Ending, Enforcement, Failure, Outcome, Strength};
use crate::streams::{Sink, Source};
use crate::supervise::{self, End, Outer, Run};
use crate::told::{self, Finished, Told};

/// Who is told how far a pull is.
pub type Tell = Arc<dyn Fn(Progress) + Send + Sync>;

/// What is held of `limits.processes` where the container's kernel is counted with the program.
pub(super) fn crowded() -> Applied {
    let reason =
        format!("the cgroup counts the threads of the container's kernel as well, and has room for {KERNEL_THREADS}");
    Applied { strength: Strength::Partial, reason }
}

/// Open files that init has room for, so that the number of the one program without spawning is the same everywhere.
const OPEN_FILES: u64 = 4096;

/// Threads that a kernel in user space has for itself on this one; about a hundred before the program does anything.
const KERNEL_THREADS: u64 = 256;

/// A policy with the maker of its containers, to be run many times and from several threads.
pub struct Contained {
    policy: Policy,
    backend: &'static str,
    maker: Arc<dyn Maker>,
    about: About,
    place: Place,
    layout: Layout,
    parts: Parts,
    way: Option<Way>,
    filter: Filter,
    user: (u32, u32),
    /// What holds, completed by the engine with what cgroups give.
    pub enforcement: Enforcement,
    /// Why this backend.
    pub reason: String,
    /// Where cgroups can be made, for makers that hold no limits themselves.
    pub location: Option<Arc<Location>>,
    tell: Option<Tell>,
    root: Mutex<Option<super::Ready>>,
    swept: Once,
}

impl std::fmt::Debug for Contained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contained").field("backend", &self.backend).field("about", &self.about).finish_non_exhaustive()
    }
}

fn refuse(step: &str, message: impl Into<String>, hint: Option<&str>) -> Failure {
    Failure { code: 125, step: step.into(), message: message.into(), hint: hint.map(str::to_owned) }
}

impl Contained {
    /// Plans a policy for a maker. Nothing is pulled or started.
    ///
    /// # Errors
    /// The maker cannot be used here, or the policy asks for what containers have not at all.
    pub(crate) fn plan(
        policy: &Policy,
        backend: &'static str,
        maker: Arc<dyn Maker>,
        me: Identity,
        tell: Option<Tell>,
    ) -> Result<Contained, Failure> {
        let about = maker.about()?;
        let place = Place::find()?;
        let root = rustix::process::geteuid().is_root();
        let facts = Here::for_run(root);
        let layout = in_container(policy, &facts)?;
        if !matches!(policy.filesystem.root, Root::Image(_)) {
            layout.program(policy, &facts)?; // so that a missing one is told as that
        }
        let parts = shape::parts(policy, &layout, &place.texts());
        // gVisor's own network knows no rules, which leave a program nothing but the gateway.
        let way = if about.listener { Way::of(policy)? } else { None };
        if policy.audit.trace && !about.listener {
            let told = format!("the {backend} backend cannot observe calls: gVisor reports none");
            return Err(refuse("audit.trace", told, Some("leave --trace out, or use another backend")));
        }
        let user = if root {
            host::unprivileged_id()
                .map(|id| (id, id))
                .ok_or_else(|| refuse("ids", "no unprivileged id is mapped here", Some("run it as an ordinary user")))?
        } else {
            (me.uid, me.gid)
        };
        let exec = fd::exec(open_files(policy)).unsigned_abs();
        let needs = Needs {
            guards: false,
            links: false,
            // Loopback is up in every container: without network its sockets are refused whole.
            no_net_namespace: true,
            no_ipc_namespace: false,
            no_mounts: false,
            no_listener: !about.listener,
            limited_exec: false,
            exec_number: Some(exec),
        };
        let filter = filter::build(&floored(policy), needs)?;
        let enforcement = super::answers::answers(policy, &layout, &about, way.as_ref(), root);
        Ok(Contained {
            policy: policy.clone(),
            backend,
            maker,
            about,
            place,
            layout,
            parts,
            way,
            filter,
            user,
            enforcement,
            reason: "named by the policy".into(),
            location: None,
            tell,
            root: Mutex::new(None),
            swept: Once::new(),
        })
    }

    /// Whether every required field holds in full.
    ///
    /// # Errors
    /// The first that does not, and what to do.
    pub fn sufficient(&self) -> Result<(), Failure> {
        self.still_sufficient(&self.enforcement)
    }

    /// The same of what came out of a run's own preparations.
    fn still_sufficient(&self, e: &Enforcement) -> Result<(), Failure> {
        sufficient(&format!("the {} backend", self.backend), &self.policy, e, &[])
    }

    /// The backend's name.
    pub fn backend(&self) -> &'static str {
        self.backend
    }

    /// Whether the maker holds memory, CPU share and processes itself.
    pub fn holds_limits(&self) -> bool {
        self.about.limits
    }

    /// Where the maker's own processes are in the run's cgroup, as gVisor's are, they count there as well.
    pub fn count_the_makers_own(&mut self) {
        if self.about.arrival == Arrival::Door && self.location.is_some() {
            self.enforcement.insert(Field::Processes, crowded());
        }
    }

    /// What will be started, for people.
    pub fn plan_json(&self) -> Value {
        let shape = self.shape("cofferdam-0000000000000000".into(), Path::new("(a directory of the run's own)"));
        json!({
            "backend": self.backend,
            "backend_reason": self.reason,
            "enforcement": self.enforcement,
            "maker": self.about,
            "plan": self.maker.show(&shape, self.root.lock().unwrap_or_else(PoisonError::into_inner).as_ref()),
        })
    }

    fn shape(&self, id: String, directory: &Path) -> Shape {
        let l = &self.policy.limits;
        let mut mounts = self.parts.mounts.clone();
        let own = shape::own(&id);
        mounts.push(Mounted::Bind {
            source: directory.to_owned(),
            target: own.clone(),
            writable: false,
            exec: true,
            directory: true,
        });
        let bounds = Bounds {
            memory_bytes: Some(l.memory_mb << 20),
            cpu_millis: (!crate::rlimits::is_all(l.cpu_millis)).then_some(l.cpu_millis),
            pids: Some(l.processes + 1), // init
        };
        let mut argv = vec![format!("{own}/init")];
        if self.about.arrival == Arrival::Door {
            argv.push(format!("{own}/{}", Door::NAME));
        }
        let labels = [(owner::RUN, Some(id.clone())), (owner::OWNER, owner::me())];
        Shape {
            root: self.parts.root.clone().unwrap_or(shape::Rootfs::Made(Vec::new())),
            mounts,
            masked: self.parts.masked.clone(),
            user: self.user,
            powers: self.way.is_some(),
            hostname: self.policy.process.hostname.clone(),
            network: shape::network(&self.policy),
            bounds: if self.about.limits { bounds } else { Bounds::default() },
            open_files: open_files(&self.policy),
            labels: labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
            argv,
            id,
        }
    }

    fn recipe(&self, shape: &Shape, arguments: Vec<String>) -> Result<Recipe, Failure> {
        let checked = self.checked()?;
        let policy = &self.policy;
        let runs_as = self.maker.runs_as(shape);
        let mut flags = flag::CONTAINER | if self.about.limits { flag::LINGER } else { 0 };
        flags |= match policy.network.mode {
            NetworkMode::None => flag::NO_NETWORK,
            NetworkMode::Loopback => flag::ONLY_LOOPBACK,
            NetworkMode::Allowlist | NetworkMode::Host => 0,
        };
        if shape.powers && runs_as != (0, 0) {
            flags |= flag::DROP_IDS;
        }
        let mut rlimits = crate::rlimits::rlimits(policy, 1);
        // Where a cgroup counts, the user's other processes are no concern of this one's.
        let counted = self.about.limits || self.location.is_some();
        if counted && self.user.0 == rustix::process::geteuid().as_raw() {
            rlimits.retain(|(r, ..)| *r != resource::NPROC);
        } else if counted {
            crate::rlimits::leave_processes_to_the_cgroup(&mut rlimits);
        }
        let mounts = self.parts.made.iter().map(|(path, mode)| Step::Mkdir { name: path.clone(), mode: *mode });
        let mut recipe = Recipe {
            ids_in: runs_as,
            ids_out: runs_as,
            hostname: shape.hostname.clone(),
            rlimits,
            mounts: mounts.collect(),
            // A kernel of its own (gVisor) numbers files in its own way: there it is looked at here alone.
            checked: if self.about.listener { checked } else { Vec::new() },
            capture: self.way.as_ref().map(Way::capture),
            wall_ns: policy.limits.wall_ms.saturating_mul(1_000_000),
            ..Recipe::default()
        };
        crate::program::fill(&mut recipe, policy, flags, &self.filter);
        if self.way.is_some() {
            recipe.envp.extend(crate::egress::variables(policy).into_iter().map(|(k, v)| format!("{k}={v}")));
        }
        recipe.argv.extend(arguments);
        Ok(recipe)
    }

    /// What init has to find at the targets of binds: looked at before the maker is told the names.
    ///
    /// # Errors
    /// A source is not what it was when the policy was planned.
    fn checked(&self) -> Result<Vec<PathRule>, Failure> {
        let look = |(target, source): &(String, PathBuf)| {
            let identity = identity(source).map_err(|e| {
                let message = format!("cannot use {} as the source of {target}: {e}", source.display());
                refuse("mount", message, Some("it was replaced or removed since the run was prepared: run it again"))
            })?;
            Ok(PathRule { path: target.clone(), access: 0, optional: false, identity: Some(identity) })
        };
        // What is covered by a later mount cannot be looked at.
        let masked = |target: &str| self.parts.masked.iter().any(|mask| crate::view::below(target, mask).is_some());
        // An engine makes its root of a copy of the directory; a runtime, which hands descriptors on, of the directory itself.
        let own = |target: &str| target != "/" || self.about.arrival == Arrival::Inherited;
        self.parts.checked.iter().filter(|(target, _)| !masked(target) && own(target)).map(look).collect()
    }

    /// Runs it and returns when the tree is dead and nothing of the container is left.
    pub fn run(&self, mut io: Io) -> Outcome {
        let begun = Instant::now();
        let outcome = match self.attempt(&mut io) {
            Ok((finished, recipe)) => {
                let of = Told { policy: &self.policy, recipe: &recipe, reports: self.about.listener };
                told::outcome(&of, self.blank(), finished, begun)
            }
            Err(failure) => Outcome {
                outcome: Ending::SetupFailed,
                error: Some(failure),
                violations_complete: true, // nothing ran
                setup_time_ms: begun.elapsed().as_secs_f64() * 1e3,
                ..self.blank()
            },
        };
        io.monitor.end();
        outcome
    }

    /// The root file system, made ready once and looked for again where it is gone.
    fn ready(&self) -> Result<super::Ready, Failure> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = &*root {
            return Ok(ready.clone());
        }
        let nobody: Tell = Arc::new(|_| {});
        let tell = self.tell.as_ref().unwrap_or(&nobody);
        let wanted = self.parts.root.clone().unwrap_or(shape::Rootfs::Made(Vec::new()));
        let ready = self.maker.prepare(&wanted, &self.parts.mounts, &|progress| tell(progress))?;
        *root = Some(ready.clone());
        Ok(ready)
    }

    fn attempt(&self, io: &mut Io) -> Result<(Finished, Recipe), Failure> {
        if io.arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(refuse(
                "command.argv",
                "an argument of this run has a NUL byte in it, and arguments end there",
                None,
            ));
        }
        if io.terminal.is_some() {
            let hint = "use --backend jail, or leave --tty out";
            return Err(refuse("terminal", format!("the {} backend gives no terminal", self.backend), Some(hint)));
        }
        let sweeping = self.sweep();
        let mut enforcement = self.enforcement.clone();
        let location = self.location.as_ref().filter(|_| !self.about.limits);
        let besides = 1 + if self.about.listener { 0 } else { KERNEL_THREADS };
        let own = location.and_then(|at| usage::own(at, &self.policy, besides, &mut enforcement));
        self.still_sufficient(&enforcement)?;
        let root = self.ready()?;
        self.place.write_texts(&self.parts.texts)?;
        let id = owner::fresh_name().map_err(|e| refuse("container", format!("cannot make up a name: {e}"), None))?;
        let directory = self.place.run(&id)?;
        let shape = self.shape(id, directory.path());
        let mut recipe = self.recipe(&shape, std::mem::take(&mut io.arguments))?;
        let (ours, theirs) = ends(self.user)?;
        let door = match self.about.arrival {
            Arrival::Door => Some(Door::open(directory.path())?),
            Arrival::Inherited => None,
        };
        let limits = [(resource::CORE, 0, rlimit(resource::CORE).1)];
        let handed = Handed {
            stdio: theirs.stdio(),
            init: theirs.init(),
            lifeline: theirs.lifeline.as_fd(),
            cgroup: own.as_ref().filter(|_| door.is_some()),
            rlimits: &limits,
            directory: directory.path(),
        };
        let made = match self.maker.start(&shape, &root, &handed) {
            // Somebody has removed it since: once more, and another one that is gone is told.
            Err(failure) if failure.step == "image" => {
                *self.root.lock().unwrap_or_else(PoisonError::into_inner) = None;
                self.maker.start(&shape, &self.ready()?, &handed)?
            }
            started => started?,
        };
        let joins = own.as_ref().filter(|_| door.is_none());
        let arrived = match door {
            // Who came may be a helper of the maker's. Where its process is ours, that one has them all below it, and is waited for.
            Some(door) => door.admit(&theirs, made.as_ref()).and_then(|peer| made.running().map_or(Ok(peer), copy)),
            None => made.running().map(copy).unwrap_or_else(|| Err(refuse("container", "nothing runs", None))),
        };
        drop(theirs); // init's alone from here on, so that its end is seen
        let told = arrived.and_then(|running| {
            let counted = self.about.limits.then(|| usage::theirs(running.pid, &mut enforcement)).flatten();
            self.still_sufficient(&enforcement)?; // nothing runs yet
            let extra = match joins {
                Some(cgroup) => cgroup.join_files().map_err(|e| refuse("cgroup", e.to_string(), None))?,
                None => Vec::new(),
            };
            recipe.joins = (0, extra.len() as u16);
            let block = memfd::plan(&recipe.encode());
            let block = block.map_err(|e| refuse("spawn", format!("cannot write the plan: {e}"), None))?;
            let extra: Vec<_> = extra.iter().map(AsFd::as_fd).collect();
            // An inherited init may have failed by then; what its maker says of it is the better word.
            if let Err(e) = letter::plan(ours.letters.as_fd(), block.as_fd(), &extra) {
                return Err(made
                    .gave_up()
                    .unwrap_or_else(|| refuse("spawn", format!("cannot hand the plan over: {e}"), None)));
            }
            Ok((running, counted))
        });
        let (running, counted) = match told {
            Ok(told) => told,
            Err(mut failure) => {
                let killed = made.kill().err().map(|e| e.message);
                let ended = made.end();
                for problem in killed.into_iter().chain(ended.problems) {
                    failure.message.push_str(&format!("; {problem}"));
                }
                return Err(failure);
            }
        };
        let watched = self.watch(running, ours, own.as_ref().or(counted.as_ref()), made.as_ref(), io);
        if watched.is_err() {
            // Nobody has told init to go: its lifeline is closed, and this makes sure.
            made.kill()?;
        }
        let ended = made.end();
        let (mut report, network) = watched?;
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
        Ok((finished, recipe))
    }

    /// Looks once, beside the first run, for what dead owners left.
    fn sweep(&self) -> Option<std::thread::JoinHandle<()>> {
        let mut thread = None;
        self.swept.call_once(|| {
            let (maker, place) = (Arc::clone(&self.maker), self.place.clone());
            let sweep = move || {
                match maker.sweep() {
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
        running: Running,
        ours: Ours,
        cgroup: Option<&Cgroup>,
        made: &dyn Made,
        io: &mut Io,
    ) -> Result<(supervise::Report, Option<crate::outcome::Network>), Failure> {
        let l = &self.policy.limits;
        let Ours { stdio: [to, out, err], lifeline, status, events, letters } = ours;
        let inits = made.running().is_none().then_some(running.pid);
        let egress: Option<Egress> = match &self.way {
            Some(way) => Some(way.attach(&self.policy.network, letters, inits.unwrap_or(-1))?),
            None => {
                drop(letters);
                None
            }
        };
        let input = match &self.policy.command.stdin {
            Stdin::Closed => Input::Closed,
            Stdin::Text(text) => Input::Bytes(text.clone().into_bytes()),
            Stdin::Caller => std::mem::replace(&mut io.input, Input::Closed),
        };
        let (denied, protected) = (self.set(&self.policy.filesystem.deny), self.set(&self.policy.filesystem.protected));
        let around = Around { made, own_clock: !self.about.listener };
        let run = Run {
            status,
            events,
            lifeline: Some(lifeline),
            own_pids: true,
            wall: Duration::from_millis(l.wall_ms),
            source: Source::new(to, input, false),
            sinks: [
                Some(Sink::new(out, Stream::Stdout, l.output_bytes)),
                Some(Sink::new(err, Stream::Stderr, l.output_bytes)),
            ],
            cgroup,
            paths: Paths { view: &self.layout.view, denied: &denied, protected: &protected },
            cpu_seconds: l.cpu_seconds,
            sample_memory: cgroup.is_none().then_some(l.memory_mb << 20),
            output_bytes: l.output_bytes,
            log: Log::new(&self.policy),
            session: None,
            workspace: None,
            gateway: egress.as_ref().map(|e| (e.watch(), self.policy.on_violation == OnViolation::Terminate)),
            container: Some(&around),
            running,
        };
        io.monitor.begin(run.running.pid, cgroup, 1);
        let mut report = supervise::supervise(run, io);
        let network = egress.map(|egress| egress.end(&mut report.log));
        let refused = network.as_ref().is_some_and(|network| network.refused > 0);
        if refused && self.policy.on_violation == OnViolation::Terminate && matches!(report.end, End::Wait(_)) {
            report.end = End::Violation;
        }
        Ok((report, network))
    }

    fn set(&self, paths: &[String]) -> std::collections::BTreeSet<String> {
        paths.iter().cloned().collect()
    }

    /// What the maker knows better.
    fn judge(&self, report: &mut supervise::Report, ended: &Ended) -> Result<(), Failure> {
        let starved = ended.oom_killed == Some(true);
        if starved && matches!(report.end, End::Wait(_) | End::Lost) {
            report.end = End::Limit(Field::Memory);
        }
        if matches!(report.end, End::Lost) && report.started_ns == 0 && !ended.said.is_empty() {
            return Err(refuse("container", format!("{} started nothing: {}", self.backend, ended.said), None));
        }
        Ok(())
    }

    fn blank(&self) -> Outcome {
        Outcome {
            violations_complete: false,
            enforcement: self.enforcement.clone(),
            backend: self.backend.into(),
            backend_reason: self.reason.clone(),
            ..Outcome::unstarted(None)
        }
    }
}

/// What ends a container.
struct Around<'a> {
    made: &'a dyn Made,
    /// A kernel of its own counts its own time.
    own_clock: bool,
}

impl Outer for Around<'_> {
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
fn copy(running: &Running) -> Result<Running, Failure> {
    let pidfd = running.pidfd.try_clone();
    let pidfd = pidfd.map_err(|e| refuse("container", format!("cannot watch the container: {e}"), None))?;
    Ok(Running { pid: running.pid, pidfd })
}

/// Device and inode of a source. Its path was canonical when it was planned: a link on it by now is somebody's.
fn identity(source: &Path) -> std::io::Result<(u64, u64)> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let stat = fstat(openat2(CWD, source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)?;
    let dev = u64::from(rustix::fs::major(stat.st_dev)) << 32 | u64::from(rustix::fs::minor(stat.st_dev));
    Ok((dev, stat.st_ino))
}

/// Open files, soft and hard, of init.
fn open_files(policy: &Policy) -> u64 {
    policy.limits.open_files.max(OPEN_FILES).min(rlimit(resource::NOFILE).1)
}

/// A policy whose filter refuses user namespaces at every level: no jail has switched them off.
fn floored(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    if policy.process.seccomp.level == SeccompLevel::Disabled {
        const CLONE_NEWUSER: u64 = 0x1000_0000;
        let users = ArgCondition { index: 0, mask: CLONE_NEWUSER, op: ArgOp::Eq, value: CLONE_NEWUSER };
        let rule = |call: &str, errno: &str, when: Vec<ArgCondition>| SyscallRule {
            syscalls: vec![call.into()],
            action: SyscallAction::Errno(errno.into()),
            when,
        };
        let rules = &mut policy.process.seccomp.rules;
        rules.push(rule("clone", "EPERM", vec![users.clone()]));
        rules.push(rule("unshare", "EPERM", vec![users]));
        // What it is asked for lies behind a pointer; every program falls back to clone.
        rules.push(rule("clone3", "ENOSYS", Vec::new()));
    }
    policy
}

// The type stays usable from several threads.
const _: fn() = || {
    fn both<T: Send + Sync>() {}
    both::<Contained>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_became_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let canonical = dir.path().canonicalize().unwrap();
        let (source, victim) = (canonical.join("source"), canonical.join("victim"));
        std::fs::create_dir_all(source.join("below")).unwrap();
        std::fs::create_dir_all(victim.join("below")).unwrap();
        let before = identity(&source.join("below")).unwrap();
        assert_ne!(before, identity(&victim.join("below")).unwrap());
        std::fs::rename(&source, canonical.join("aside")).unwrap();
        assert!(identity(&source).is_err(), "it is gone");
        std::os::unix::fs::symlink(&victim, &source).unwrap();
        assert!(identity(&source).is_err() && identity(&source.join("below")).is_err());
        std::fs::remove_file(&source).unwrap();
        std::fs::rename(canonical.join("aside"), &source).unwrap();
        assert_eq!(identity(&source.join("below")).unwrap(), before);
    }

    #[test]
    fn no_level_lets_a_container_make_user_namespaces() {
        let mut policy = Policy::base();
        policy.process.seccomp.level = SeccompLevel::Disabled;
        assert_eq!(floored(&policy).process.seccomp.rules.len(), 3);
        policy.process.seccomp.level = SeccompLevel::Basic;
        assert_eq!(floored(&policy), policy);
        assert_eq!(shape::network(&policy), shape::Net::Own);
    }
}
