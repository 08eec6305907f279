//! Sessions: live sandboxes whose interpreter keeps its state from call to call.
//!
//! ```text
//! call(key, environment, code) ─ table ─▶ slot ─ turn ─▶ live ─ request ─▶ agent (in the sandbox)
//!      ▲                                                  │                  │ runs the code in one state
//!      └──────────── answer: exit code, output ◀──────────┴──── result ◀─────┘
//! reaper: idle or over ─▶ ended, and the next call gets that as its error, once
//! ```
//!
//! This file owns the table: which sessions there are, whose they are, when they end. `live` runs one, `channel` and `frame`
//! carry what is said, `turn` is the order of calls, `agent` what runs in the sandbox, `workspace` where its files are.
//! Nothing here is asynchronous: a call blocks its thread until it is answered.
//!
//! All code of one session is one trust: what is in the interpreter can say what it likes in the interpreter's name. What
//! holds against all of it is the sandbox; docs/sessions.md says what else holds.

mod agent;
mod call_queue;
mod exchange;
pub mod frame;
mod reply;
mod workspace;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_policy::{Field, SeccompLevel, Stdin};

pub use agent::Agent;
use call_queue::{CallQueue, QueueFailure};
use exchange::{AskedCall, Live, SessionHandle, Unasked};
pub use reply::{
    ListedSession, SessionAnswer, SessionCall, SessionEnd, SessionError, SessionKey, SessionLimits, SessionStart, Why,
};
pub use workspace::Workspace;

use crate::audited_run::Recording;
use crate::engine::Engine;
use crate::failure::{FailedStep, Failure};
use crate::io::{Cancel, Output};
use cofferdam_audit::AuditError;

/// All sessions of one program. Dropped, it ends them all.
#[derive(Debug)]
pub struct Sessions {
    inner: Arc<SessionsInner>,
    reaper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SessionsInner {
    engine: Arc<Engine>,
    limits: Mutex<SessionLimits>,
    table: Mutex<SessionTable>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SessionTable {
    slots: HashMap<SessionKey, Arc<SessionSlot>>,
    /// Ended since their last call, oldest first.
    unreported: Vec<(SessionKey, SessionEnd)>,
    closing: bool,
}

/// A place in the table.
#[derive(Debug)]
struct SessionSlot {
    environment: String,
    line: CallQueue,
    live: Mutex<Option<Live>>,
    handle: OnceLock<Arc<SessionHandle>>,
    /// Where it works, once it was started.
    workspace: OnceLock<Option<Arc<OwnedFd>>>,
    /// Set once: those who wait for their turn are told.
    ended: OnceLock<SessionEnd>,
    made: Instant,
    /// How long it may live: what was the limit when it was made.
    lifetime: Duration,
    used: Mutex<Instant>,
    calls: AtomicU64,
}

/// Most ended sessions that are remembered for their callers.
const MOST_UNREPORTED: usize = 1024;
/// Longest name of a session, characters.
const LONGEST_NAME: usize = 128;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// No sessions yet.
    ///
    /// # Errors
    /// The thread that ends idle sessions cannot be started.
    pub fn new(engine: Arc<Engine>, limits: SessionLimits) -> std::io::Result<Sessions> {
        let inner = Arc::new(SessionsInner {
            engine,
            limits: Mutex::new(limits),
            table: Mutex::default(),
            wake: Condvar::new(),
        });
        let theirs = Arc::clone(&inner);
        let reaper = std::thread::Builder::new()
            .name("cofferdam-reaper".into())
            .stack_size(512 << 10)
            .spawn(move || theirs.reap())?;
        Ok(Sessions { inner, reaper: Some(reaper) })
    }

    /// A name that nobody can guess: 128 random bits.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new_name() -> std::io::Result<String> {
        random()
    }

    /// Has other limits hold from now on; a session keeps the lifetime that it began with.
    pub fn set_limits(&self, limits: SessionLimits) {
        let table = lock(&self.inner.table); // the reaper is asleep, or sees them
        *lock(&self.inner.limits) = limits;
        drop(table);
        self.inner.wake.notify_all();
    }

    /// Runs code in the session of this key, which is started when there is none. Calls of one session go one after the
    /// other. `start` says what to start, and is asked only then; `environment` is what a session is bound to.
    ///
    /// # Errors
    /// Nothing was run; the session, where there is one, is as it was.
    pub fn call(
        &self,
        key: &SessionKey,
        environment: &str,
        start: impl FnOnce() -> Result<SessionStart, Failure>,
        call: SessionCall,
    ) -> Result<SessionAnswer, SessionError> {
        let slot = self.inner.slot(key, environment)?;
        let patience = call.timeout.max(self.inner.limits().start);
        let turn = slot.line.wait(self.inner.limits().waiting, patience, &call.cancel).map_err(|left| match left {
            QueueFailure::Cancelled => SessionError::Cancelled,
            QueueFailure::Full | QueueFailure::Late => SessionError::Busy { name: key.name.clone() },
        })?;
        let mut live = lock(&slot.live);
        if let Some(ended) = slot.ended.get() {
            self.inner.forget_unreported(key);
            return Err(SessionError::Ended { name: key.name.clone(), ended: ended.clone() });
        }
        let fresh = live.is_none();
        if fresh {
            match self.inner.start(key, &slot, start, &call.cancel) {
                Ok(started) => *live = Some(started),
                Err(e) => {
                    self.inner.remove(key, &slot);
                    return Err(e);
                }
            }
        }
        let (unheard, cancel) = (call.unheard_when_cancelled, call.cancel.clone());
        let answer = match live.as_mut() {
            Some(there) => self.inner.ask(key, there, call, fresh),
            None => Err(SessionError::System("it is not there".into())),
        };
        *lock(&slot.used) = Instant::now();
        let ended = match &answer {
            Ok(answer) => answer.ended.clone(),
            Err(SessionError::Ended { ended, .. }) => Some(ended.clone()),
            Err(_) => None,
        };
        if let Some(ended) = ended {
            slot.ended.get_or_init(|| ended.clone());
            if unheard && cancel.is_cancelled() {
                self.inner.remove_unreported(key, &slot, ended);
            } else {
                self.inner.remove(key, &slot);
            }
            drop(live.take());
        } else {
            slot.calls.fetch_add(1, Ordering::Relaxed);
        }
        drop(live);
        drop(turn);
        answer
    }

    /// The sessions that there are.
    pub fn list(&self) -> Vec<ListedSession> {
        let table = lock(&self.inner.table);
        let mut all: Vec<ListedSession> = table
            .slots
            .iter()
            .map(|(key, slot)| ListedSession {
                key: key.clone(),
                environment: slot.environment.clone(),
                age: slot.made.elapsed(),
                left: slot.lifetime.saturating_sub(slot.made.elapsed()),
                idle: (slot.line.length() == 0).then(|| lock(&slot.used).elapsed()),
                calls: slot.calls.load(Ordering::Relaxed),
            })
            .collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// Ends a session, whatever it does, and waits until nothing of it is left. A call under way is answered as ended.
    /// One that has ended and of which nobody has heard yet is reported. `None` when there is no such session.
    pub fn end(&self, key: &SessionKey) -> Option<SessionEnd> {
        let mut table = lock(&self.inner.table);
        if let Some(at) = table.unreported.iter().position(|(k, _)| k == key) {
            return Some(table.unreported.remove(at).1);
        }
        let slot = table.slots.get(key).cloned()?;
        drop(table);
        let ended = self.inner.end(key, &slot, Why::Closed);
        self.inner.forget_unreported(key); // it may have ended by itself meanwhile, and is reported here
        Some(ended)
    }

    /// Ends all sessions of one owner, as when it has gone, and forgets what it was not told.
    pub fn end_owner(&self, owner: &str) {
        let slots: Vec<(SessionKey, Arc<SessionSlot>)> = {
            let mut table = lock(&self.inner.table);
            table.unreported.retain(|(key, _)| key.owner != owner);
            let theirs = table.slots.iter().filter(|(key, _)| key.owner == owner);
            theirs.map(|(key, slot)| (key.clone(), slot.clone())).collect()
        };
        for (key, slot) in slots {
            self.inner.end_unheard(&key, &slot);
        }
    }
}

impl Sessions {
    /// Ends all of them, and waits until nothing of them is left and their ends are recorded. No other begins after that.
    pub fn end_all(&self) {
        let slots: Vec<(SessionKey, Arc<SessionSlot>)> = {
            let mut table = lock(&self.inner.table);
            table.closing = true;
            table.slots.iter().map(|(key, slot)| (key.clone(), slot.clone())).collect()
        };
        self.inner.wake.notify_all();
        for (_, slot) in &slots {
            if let Some(handle) = slot.handle.get() {
                handle.kill(Why::Closed); // all at once, then one after the other
            }
        }
        for (key, slot) in slots {
            self.inner.end_unheard(&key, &slot);
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.end_all();
        if let Some(reaper) = self.reaper.take() {
            debug_assert!(reaper.join().is_ok(), "the thread that ends idle sessions has panicked");
        }
    }
}

impl SessionsInner {
    fn limits(&self) -> SessionLimits {
        *lock(&self.limits)
    }

    /// The place of a session; a new one where there is none.
    fn slot(&self, key: &SessionKey, environment: &str) -> Result<Arc<SessionSlot>, SessionError> {
        let name = &key.name;
        if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
            return Err(SessionError::Name(name.chars().take(LONGEST_NAME).collect()));
        }
        let mut table = lock(&self.table);
        if let Some(at) = table.unreported.iter().position(|(k, _)| k == key) {
            let (_, ended) = table.unreported.remove(at);
            return Err(SessionError::Ended { name: name.clone(), ended });
        }
        if let Some(slot) = table.slots.get(key) {
            if slot.environment != environment {
                let (is, asked) = (slot.environment.clone(), environment.to_owned());
                return Err(SessionError::Environment { name: name.clone(), is, asked });
            }
            return Ok(slot.clone());
        }
        let limits = self.limits();
        if table.closing || table.slots.len() >= limits.sessions {
            return Err(SessionError::TooMany { most: limits.sessions });
        }
        if table.slots.keys().filter(|there| there.owner == key.owner).count() >= limits.per_owner {
            return Err(SessionError::TooManyOwn { most: limits.per_owner });
        }
        let now = Instant::now();
        let slot = Arc::new(SessionSlot {
            environment: environment.to_owned(),
            line: CallQueue::default(),
            live: Mutex::default(),
            handle: OnceLock::new(),
            workspace: OnceLock::new(),
            ended: OnceLock::new(),
            made: now,
            lifetime: limits.lifetime,
            used: Mutex::new(now),
            calls: AtomicU64::new(0),
        });
        table.slots.insert(key.clone(), slot.clone());
        Ok(slot)
    }

    fn start(
        self: &Arc<Self>,
        key: &SessionKey,
        slot: &SessionSlot,
        start: impl FnOnce() -> Result<SessionStart, Failure>,
        cancel: &Cancel,
    ) -> Result<Live, SessionError> {
        let fail = |failure| SessionError::Start { name: key.name.clone(), failure };
        let SessionStart { mut policy, agent, hands_over, recorded } = start().map_err(fail)?;
        let interpreter = policy.command.argv.clone();
        policy.command.argv.extend(agent.arguments().iter().map(|&word| word.to_owned()));
        policy.command.stdin = Stdin::Closed;
        policy.limits.wall_ms = u64::try_from(slot.lifetime.as_millis()).unwrap_or(u64::MAX);
        if agent.own() && policy.process.seccomp.level == SeccompLevel::Disabled {
            let failure = Failure::new(
                FailedStep::policy("process.seccomp.level"),
                "a session's channel is not safe from its own processes without a system call filter",
            )
            .hint("use level basic, or run the code without a session");
            return Err(fail(failure));
        }
        let prepared = self.engine.prepare(&policy).map_err(fail)?;
        if agent.own() && policy.process.nested_sandboxes {
            // Where /proc can be written, so can the memory of the process that answers: its answers would be anybody's.
            // A program of an artifact's own answers for all that it starts, so nothing is lost there.
            let failure = Failure::new(Field::NestedSandboxes, "with room for sandboxes inside, an interpreter's sessions cannot be distinguished from what its code starts")
.hint("run the code without a session; or give the artifact a bin/session-run");
            return Err(fail(failure));
        }
        if !prepared.gives_channel() {
            let failure =
                Failure::new(FailedStep::Backend, format!("the {} backend runs no sessions", prepared.backend()))
                    .hint("use --backend jail or landlock, or run the code without a session");
            return Err(fail(failure));
        }
        let expected = hands_over.is_some() && prepared.can_hand_back();
        let prepared = match hands_over {
            Some((target, made)) => prepared.hands_back(&target, &made),
            None => prepared,
        };
        let recording = recorded
            .map(|(trail, mut about)| {
                about.facts.insert("argv".into(), interpreter.into()); // without the agent, which is the same for all
                Recording::begin(&policy, prepared.backend(), &trail, about)
            })
            .transpose()
            .map_err(|e| fail(Failure::new(FailedStep::Audit, e.to_string())))?;
        let inner: Weak<SessionsInner> = Arc::downgrade(self);
        let over = move || {
            if let Some(inner) = inner.upgrade() {
                inner.wake.notify_all();
            }
        };
        let (most, patience) = (policy.limits.output_bytes, self.limits().start);
        match Live::start(prepared, agent, most, patience, cancel, recording, over) {
            Ok(Ok(live)) => {
                let handle = slot.handle.get_or_init(|| live.handle().clone());
                slot.workspace.get_or_init(|| workspace::wait_for_workspace(&live, expected));
                if lock(&self.table).closing {
                    handle.kill(Why::Closed);
                }
                Ok(live)
            }
            Ok(Err(SessionEnd { why: Why::Cancelled, .. })) => Err(SessionError::Cancelled),
            Ok(Err(ended)) => Err(fail(unstarted(ended, self.limits().start))),
            Err(e) => Err(SessionError::System(e.to_string())),
        }
    }

    fn ask(
        &self,
        key: &SessionKey,
        live: &mut Live,
        call: SessionCall,
        fresh: bool,
    ) -> Result<SessionAnswer, SessionError> {
        let id = random().map_err(|e| SessionError::System(e.to_string()))?;
        let notes = live.notes().cloned();
        if let Some(notes) = &notes {
            let unrecorded = |e: AuditError| SessionError::Unrecorded { name: key.name.clone(), why: e.to_string() };
            notes.call(&id, &call.code).map_err(unrecorded)?;
        }
        let begun = Instant::now();
        let mut output = patient(call.output);
        let asked = AskedCall {
            id: &id,
            code: &call.code,
            timeout: call.timeout,
            grace: self.limits().grace,
            output: &mut output,
            cancel: &call.cancel,
        };
        let (answered, ended) = match live.call(asked) {
            Ok(both) => both,
            Err(Unasked::Over) => {
                let ended = live.over(None);
                return Err(SessionError::Ended { name: key.name.clone(), ended });
            }
            Err(Unasked::Code(why)) => return Err(SessionError::Code(why)),
            Err(Unasked::Held) => return Err(SessionError::Held),
            Err(Unasked::Io(e)) => return Err(SessionError::System(e.to_string())),
        };
        let duration = begun.elapsed();
        let usage = live.usage();
        let violations = live.violations(ended.as_ref());
        let (changes, changes_omitted) = live.changes(ended.as_ref());
        let [stdout, stderr] = answered.streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let exit_code = answered.exit_code.or(match &ended {
            Some(SessionEnd { why: Why::Exited(code), .. }) => Some(*code),
            _ => None,
        });
        if let Some(notes) = notes {
            let data = serde_json::json!({
                "exitCode": exit_code,
                "durationMs": duration.as_secs_f64() * 1e3,
                "interrupted": answered.interrupted.as_ref().map(ToString::to_string),
                "over": ended.as_ref().map(|ended| ended.why.to_string()),
                "violations": violations.len(),
            });
            if let Err(e) = notes.answer(&id, data) {
                tracing::error!("a call in a session was recorded, and its answer could not be: {e}");
            }
        }
        Ok(SessionAnswer {
            exit_code,
            stdout,
            stderr,
            truncated: answered.truncated,
            interrupted: answered.interrupted,
            ended,
            fresh,
            duration,
            cpu_time_seconds: usage.map(|(cpu, _)| cpu),
            memory_used_bytes: usage.map(|(_, memory)| memory),
            workspace: live.workspace(),
            violations,
            changes,
            changes_omitted,
        })
    }

    /// Takes a session out of the table, unless another has its place by now.
    fn remove(&self, key: &SessionKey, slot: &Arc<SessionSlot>) {
        let mut table = lock(&self.table);
        if table.slots.get(key).is_some_and(|there| Arc::ptr_eq(there, slot)) {
            table.slots.remove(key);
        }
    }

    fn forget_unreported(&self, key: &SessionKey) {
        lock(&self.table).unreported.retain(|(k, _)| k != key);
    }

    /// Removes a session whose end is reported to the next call by its name, or to who ends it.
    fn remove_unreported(&self, key: &SessionKey, slot: &Arc<SessionSlot>, ended: SessionEnd) {
        let mut table = lock(&self.table);
        if !table.slots.get(key).is_some_and(|there| Arc::ptr_eq(there, slot)) {
            return;
        }
        table.slots.remove(key);
        if slot.handle.get().is_none() {
            return; // its first caller gave up before it was started
        }
        if table.unreported.len() >= MOST_UNREPORTED {
            table.unreported.remove(0);
        }
        table.unreported.push((key.clone(), ended));
    }

    /// Ends a session and waits for it.
    fn end(&self, key: &SessionKey, slot: &Arc<SessionSlot>, why: Why) -> SessionEnd {
        if slot.line.length() > 0
            && let Some(handle) = slot.handle.get()
        {
            handle.kill(why.clone());
        }
        let mut live = lock(&slot.live);
        let ended = match live.take() {
            Some(live) => live.farewell(why),
            None => slot.ended.get().cloned().unwrap_or(SessionEnd { why, outcome: None }),
        };
        slot.ended.get_or_init(|| ended.clone());
        drop(live);
        self.remove(key, slot);
        ended
    }

    /// The same where no owner is left to hear what the end found.
    fn end_unheard(&self, key: &SessionKey, slot: &Arc<SessionSlot>) {
        let findings = self.end(key, slot, Why::Closed).findings();
        if !findings.is_empty() {
            tracing::warn!("session '{}' is over{findings}", key.name);
        }
    }

    /// Ends what has been idle for too long, and takes note of what has ended by itself.
    fn reap(&self) {
        let mut table = lock(&self.table);
        while !table.closing {
            let idle = self.limits().idle;
            // Whatever is used from here on is not idle for too long before that.
            let mut next = idle;
            let mut done = Vec::new();
            for (key, slot) in &table.slots {
                if slot.line.length() > 0 {
                    continue;
                }
                let over = slot.handle.get().is_some_and(|handle| handle.is_over());
                let left = idle.saturating_sub(lock(&slot.used).elapsed());
                if over || left.is_zero() {
                    done.push((key.clone(), slot.clone()));
                } else {
                    next = next.min(left);
                }
            }
            if done.is_empty() {
                table = self.wake.wait_timeout(table, next).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(table);
            for (key, slot) in done {
                self.reap_one(key, &slot);
            }
            table = lock(&self.table);
        }
    }

    fn reap_one(&self, key: SessionKey, slot: &Arc<SessionSlot>) {
        // Whoever calls meanwhile waits behind this turn, and is told; where a call was first, it is not idle.
        let Ok(turn) = slot.line.wait(0, Duration::ZERO, &Cancel::default()) else { return };
        let ended = self.end_idle(slot);
        slot.ended.get_or_init(|| ended.clone());
        self.remove_unreported(&key, slot, ended);
        drop(turn);
    }

    fn end_idle(&self, slot: &SessionSlot) -> SessionEnd {
        let over = slot.handle.get().and_then(|handle| handle.ended());
        let live = lock(&slot.live).take();
        match (over, live) {
            (Some(ended), live) => {
                drop(live);
                ended
            }
            (None, Some(live)) => live.farewell(Why::Idle),
            (None, None) => SessionEnd { why: Why::Idle, outcome: None },
        }
    }
}

/// A reader that is gone is no reason for the code to be held up: what it would have read is dropped.
fn patient(output: Output) -> Output {
    let Output::Stream(mut take) = output else { return output };
    let mut gone = false;
    Output::Stream(Box::new(move |which, bytes| {
        if !gone {
            match take(which, bytes) {
                Ok(n) => return Ok(n),
                Err(_) => gone = true,
            }
        }
        Ok(bytes.len())
    }))
}

fn unstarted(ended: SessionEnd, patience: Duration) -> Failure {
    let said = ended.outcome.as_ref().map(|o| o.stderr.trim().chars().take(2000).collect::<String>());
    let said = said.filter(|text| !text.is_empty()).map_or_else(String::new, |text| format!(": {text}"));
    match ended.outcome.and_then(|o| o.error) {
        Some(failure) => failure,
        None if ended.why == Why::TimedOut => Failure::new(
            FailedStep::Session,
            format!("its interpreter was not ready within {} s{said}", patience.as_secs()),
        ),
        None => Failure::new(FailedStep::Session, format!("before it was ready, {}{said}", ended.why)),
    }
}

/// 128 random bits, hexadecimal.
fn random() -> std::io::Result<String> {
    let mut bytes = [0u8; 16];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if n != bytes.len() {
        return Err(std::io::Error::other("the system has too few random numbers"));
    }
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
