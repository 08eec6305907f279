//! One live session: its sandbox, the channel to its agent, and one call at a time.
//!
//! ```text
//! start ─▶ ready ─▶ idle ─ request ─▶ running ─ result with its id ─▶ idle
//!                                       ├─ timeout, cancel ─▶ interrupted ─ result in time ─▶ idle (state kept)
//!                                       │                          └─ no result ─▶ killed ─▶ over (state lost)
//!                                       └─ channel closed, forged, no frame ─▶ killed ─▶ over
//! ```
//!
//! A thread of its own supervises the sandbox as it does any run. Idle again is only who has answered the very request.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_confine::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::agent::Agent;
use super::frame::{AgentReply, Replies};
use super::reply::{SessionEnd, Why};
use crate::audited_run::{Notes, Recording};
use crate::io::{Cancel, Input, Io, Output, Stream};
use crate::monitor::Monitor;
use crate::outcome::{FileChange, Outcome, Truncated, Violation};
use crate::prepared::Prepared;
use crate::run::channel;
use crate::run::channel::{ChannelRead, Ends, Use};
use crate::run::session_refusals;
use crate::run::streams;
use crate::run::streams::OutputSink;

/// How long the end of a sandbox that was killed is waited for.
const END: Duration = Duration::from_secs(30);
/// How long an agent that was asked to end may take.
const FAREWELL: Duration = Duration::from_millis(200);
/// How often a caller's wish to stop is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Most replies to requests that nobody waits for any more.
const MOST_STALE: u32 = 1000;

/// What others than the one whose turn it is may do with a session.
#[derive(Debug, Default)]
pub(super) struct SessionHandle {
    cancel: Cancel,
    why: OnceLock<Why>,
    /// The agent's process.
    process: OnceLock<(i32, OwnedFd)>,
    outcome: Mutex<Option<Outcome>>,
    told: Condvar,
}

impl SessionHandle {
    /// Ends the sandbox. The first reason stays.
    pub(super) fn kill(&self, why: Why) {
        self.why.get_or_init(|| why);
        self.cancel.cancel();
        if let Some((_, pidfd)) = self.process.get()
            && let Err(e) = process::kill(pidfd.as_fd())
        {
            debug_assert!(false, "a child of ours cannot be killed: {e}");
        }
    }

    fn over(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.told.notify_all();
    }

    /// Whether the tree is dead.
    pub(super) fn is_over(&self) -> bool {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until the tree is dead.
    fn wait(&self, most: Duration) -> bool {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(outcome, most, |o| o.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// How it ended, once the tree is dead.
    pub(super) fn ended(&self) -> Option<SessionEnd> {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let why = match self.why.get() {
            // What the program did by itself before it was killed tells more than that it was.
            Some(why) => why.clone(),
            None => Why::of(&outcome),
        };
        Some(SessionEnd { why, outcome: Some(Box::new(outcome)) })
    }
}

/// A session whose agent takes requests.
#[derive(Debug)]
pub(super) struct Live {
    agent: Agent,
    ends: Ends,
    replies: Replies,
    buffer: Vec<u8>,
    handle: Arc<SessionHandle>,
    monitor: Monitor,
    output_bytes: u64,
    thread: Option<JoinHandle<()>>,
    /// CPU time when it was last asked for, seconds.
    cpu: f64,
    /// What had been refused when that was last asked for.
    refused: Vec<Violation>,
    /// Where its calls are recorded.
    notes: Option<Notes>,
    /// Whether the last call was interrupted.
    interrupted: bool,
}

/// One call, as the session sees it.
pub(super) struct AskedCall<'a> {
    pub id: &'a str,
    pub code: &'a str,
    pub timeout: Duration,
    pub grace: Duration,
    pub output: &'a mut Output,
    pub cancel: &'a Cancel,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// Exit code of a result.
    pub exit_code: Option<i32>,
    /// Output of both streams.
    pub streams: [Vec<u8>; 2],
    pub truncated: Truncated,
    /// It was interrupted: by its own timeout, or by the caller.
    pub interrupted: Option<Why>,
}

/// Why nothing was asked.
pub(super) enum Unasked {
    /// The session is over.
    Over,
    /// The code cannot be sent.
    Code(String),
    /// No pipe is free.
    Held,
    /// Of the system's.
    Io(std::io::Error),
}

impl Live {
    /// Starts the sandbox and waits until its agent is ready.
    ///
    /// # Errors
    /// How it ended before.
    pub(super) fn start(
        prepared: Prepared,
        agent: Agent,
        output_bytes: u64,
        patience: Duration,
        caller: &Cancel,
        recording: Option<Recording>,
        over: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Result<Live, SessionEnd>> {
        let (ends, mut theirs) = channel::ends(agent.own())?;
        let handle = Arc::new(SessionHandle::default());
        let monitor = Monitor::default();
        let io = Io { input: Input::Closed, cancel: handle.cancel.clone(), monitor: monitor.clone(), ..Io::default() };
        let supervised = handle.clone();
        let notes = recording.as_ref().map(Recording::notes);
        let thread =
            std::thread::Builder::new().name("cofferdam-session".into()).stack_size(1 << 20).spawn(move || {
                let outcome = prepared.run_session(io, &mut theirs);
                drop(theirs); // where nothing was started
                supervised.over(match recording {
                    Some(recording) => recorded(recording, outcome),
                    None => outcome,
                });
                over();
            })?;
        let mut live = Live {
            agent,
            ends,
            replies: Replies::new(agent.longest_reply()),
            buffer: streams::buffer(),
            handle,
            monitor,
            output_bytes,
            thread: Some(thread),
            cpu: 0.0,
            refused: Vec::new(),
            notes,
            interrupted: false,
        };
        Ok(match live.wait_for_ready(patience, caller) {
            Ok(()) => Ok(live),
            Err(why) => Err(live.end(why)),
        })
    }

    /// What others may use.
    pub(super) fn handle(&self) -> &Arc<SessionHandle> {
        &self.handle
    }

    fn wait_for_ready(&mut self, patience: Duration, caller: &Cancel) -> Result<(), Option<Why>> {
        let begun = Instant::now();
        loop {
            match self.heard().map_err(Some)? {
                Heard::Reply(AgentReply::Ready) => return Ok(()),
                Heard::Reply(_) => return Err(Some(Why::Protocol("it spoke before it was ready".into()))),
                Heard::Nothing => {}
                Heard::End => return Err(None),
            }
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Some(Why::TimedOut));
            }
            if caller.is_cancelled() {
                return Err(Some(Why::Cancelled));
            }
            wait(&mut [PollFd::from_borrowed_fd(self.ends.socket(), PollFlags::IN)], left.min(LOOK));
        }
    }

    /// The next reply, if one has come.
    fn heard(&mut self) -> Result<Heard, Why> {
        loop {
            match self.replies.next_reply() {
                Ok(Some(reply)) => return Ok(Heard::Reply(reply)),
                Ok(None) => {}
                Err(e) => return Err(Why::Protocol(e.to_string())),
            }
            match self.ends.receive(&mut self.buffer) {
                Ok(ChannelRead::Bytes(n, pid)) => {
                    if self.agent.own() && self.agents_pid(pid) != Some(pid) {
                        return Err(Why::Forged(pid));
                    }
                    self.replies.push(&self.buffer[..n]);
                }
                Ok(ChannelRead::Nothing) => return Ok(Heard::Nothing),
                Ok(ChannelRead::End) => return Ok(Heard::End),
                Err(e) => return Err(Why::Protocol(e.to_string())),
            }
        }
    }

    /// The agent's pid: whoever speaks first, when no code has run yet.
    fn agents_pid(&self, speaks: i32) -> Option<i32> {
        if let Some((pid, _)) = self.handle.process.get() {
            return Some(*pid);
        }
        // It waits for us, and so does its number.
        let pidfd = channel::pidfd(speaks).ok()?;
        Some(self.handle.process.get_or_init(|| (speaks, pidfd)).0)
    }

    /// Runs code and waits for its answer.
    ///
    /// # Errors
    /// Nothing was asked.
    pub(super) fn call(&mut self, asked: AskedCall<'_>) -> Result<(Answered, Option<SessionEnd>), Unasked> {
        // What comes before the question is no answer to it.
        let mut stale = 0;
        loop {
            match self.heard() {
                Ok(Heard::Nothing) => break,
                Ok(Heard::Reply(_)) if stale < MOST_STALE => stale += 1,
                Ok(Heard::Reply(_)) => {
                    self.handle.kill(unasked());
                    return Err(Unasked::Over);
                }
                Ok(Heard::End) => return Err(Unasked::Over),
                Err(why) => {
                    self.handle.kill(why);
                    return Err(Unasked::Over);
                }
            }
        }
        let pipes = if self.agent.own() {
            Some(self.ends.pair(&mut self.buffer).map_err(Unasked::Io)?.ok_or(Unasked::Held)?)
        } else {
            None
        };
        let numbers = pipes.as_ref().map_or([0, 0], |p| p.numbers);
        let execute = self.agent.execute(asked.id, asked.code, numbers).map_err(|e| Unasked::Code(e.to_string()))?;
        let settle = if std::mem::take(&mut self.interrupted) { self.agent.settle() } else { Vec::new() };
        let request = [settle, execute].concat();
        let sinks = match &pipes {
            None => Vec::new(),
            Some(Use { ours: [out, err], .. }) => [(out, Stream::Stdout), (err, Stream::Stderr)]
                .into_iter()
                .map(|(fd, which)| Ok(OutputSink::new(fd.try_clone()?, which, self.output_bytes)))
                .collect::<std::io::Result<_>>()
                .map_err(Unasked::Io)?,
        };
        let mut exchange =
            AgentExchange { sinks, request, sent: 0, interrupted: None, until: None, again: None, stale: 0 };
        let end = self.exchange(&mut exchange, asked.id, asked.timeout, asked.grace, asked.output, asked.cancel);
        self.interrupted = exchange.interrupted.is_some();
        let mut came = Answered { interrupted: exchange.interrupted, ..Answered::default() };
        let ended = match end {
            Ok((exit_code, streams)) => {
                came.exit_code = Some(exit_code);
                came.streams = streams.map(String::into_bytes);
                None
            }
            Err(why) => Some(self.over(why.or_else(|| came.interrupted.clone()))),
        };
        let left = pipes.as_ref().map(Use::left).unwrap_or_default();
        for (i, mut sink) in exchange.sinks.drain(..).enumerate() {
            drain(&mut sink, left[i], asked.output, &mut self.buffer, asked.cancel);
            let truncated = if i == 0 { &mut came.truncated.stdout } else { &mut came.truncated.stderr };
            *truncated = sink.truncated;
            came.streams[i] = sink.bytes;
        }
        if !self.agent.own() {
            self.hand_over(&mut came, asked.output);
        }
        if let Some(pipes) = pipes {
            pipes.over();
        }
        Ok((came, ended))
    }

    fn exchange(
        &mut self,
        x: &mut AgentExchange,
        id: &str,
        timeout: Duration,
        grace: Duration,
        output: &mut Output,
        cancel: &Cancel,
    ) -> Result<(i32, [String; 2]), Option<Why>> {
        let begun = Instant::now();
        loop {
            match self.heard().map_err(Some)? {
                Heard::Reply(AgentReply::Result { id: whose, exit_code, stdout, stderr }) if whose == id => {
                    return Ok((exit_code, [stdout, stderr]));
                }
                Heard::Reply(AgentReply::Error { message }) => return Err(Some(Why::Protocol(message))),
                Heard::Reply(_) => {
                    x.stale += 1;
                    if x.stale > MOST_STALE {
                        return Err(Some(unasked()));
                    }
                }
                Heard::Nothing => {}
                Heard::End => return Err(None),
            }
            if x.sent < x.request.len() {
                match self.ends.send(&x.request[x.sent..]) {
                    Ok(Some(n)) => x.sent += n,
                    Ok(None) => return Err(None),
                    Err(e) => return Err(Some(Why::Protocol(e.to_string()))),
                }
            }
            for sink in &mut x.sinks {
                sink.pump(&mut self.buffer, output);
            }
            let now = begun.elapsed();
            if x.until.is_none() {
                let why = if cancel.is_cancelled() {
                    Some(Why::Cancelled)
                } else {
                    (now >= timeout).then_some(Why::TimedOut)
                };
                if let Some(why) = why {
                    x.interrupted = Some(why.clone());
                    if !self.interrupt() {
                        return Err(Some(why));
                    }
                    x.until = Some(now + grace);
                    x.again = Some(now + grace / 2);
                }
            }
            if x.again.is_some_and(|again| now >= again) {
                x.again = None;
                if !self.interrupt() {
                    return Err(x.interrupted.clone());
                }
            }
            let until = x.until.unwrap_or(timeout);
            let next = x.again.unwrap_or(until);
            if let (Some(_), Some(why)) = (x.until.filter(|&until| now >= until), &x.interrupted) {
                return Err(Some(why.clone()));
            }
            let waits = x.sinks.iter().any(OutputSink::waits);
            let pause = if waits { Duration::from_millis(1) } else { LOOK };
            let rest = if x.sent < x.request.len() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut fds = vec![PollFd::from_borrowed_fd(self.ends.socket(), rest)];
            fds.extend(
                x.sinks.iter().filter_map(OutputSink::poll_fd).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
            );
            wait(&mut fds, next.saturating_sub(now).min(pause));
        }
    }

    /// Interrupts the agent and what runs in its process group. False where that would not leave the state as it is.
    fn interrupt(&self) -> bool {
        let Some((pid, pidfd)) = self.handle.process.get() else { return false };
        self.agent.interruptible() && process::interrupt_group(pidfd.as_fd(), *pid).is_ok()
    }

    /// Output of other people's agents comes with the result.
    fn hand_over(&self, came: &mut Answered, output: &mut Output) {
        let most = usize::try_from(self.output_bytes).unwrap_or(usize::MAX);
        for (i, bytes) in came.streams.iter_mut().enumerate() {
            if bytes.len() > most {
                bytes.truncate(most);
                *(if i == 0 { &mut came.truncated.stdout } else { &mut came.truncated.stderr }) = true;
            }
            let Output::Stream(f) = output else { continue };
            let which = if i == 0 { Stream::Stdout } else { Stream::Stderr };
            let mut sent = 0;
            while sent < bytes.len() {
                match f(which, &bytes[sent..]) {
                    Ok(0) => std::thread::sleep(Duration::from_millis(1)),
                    Ok(n) => sent += n,
                    Err(_) => break,
                }
            }
            bytes.clear();
        }
    }

    /// What was refused since this was last asked.
    pub(super) fn violations(&mut self, ended: Option<&SessionEnd>) -> Vec<Violation> {
        let all = match ended.and_then(|ended| ended.outcome.as_ref()) {
            Some(outcome) => outcome.violations.clone(),
            None => self.ends.tap().until_now(),
        };
        let before = std::mem::replace(&mut self.refused, all.clone());
        session_refusals::since(&before, all)
    }

    /// What its copy-on-write mounts changed so far, and how many changes are not listed.
    pub(super) fn changes(&self, ended: Option<&SessionEnd>) -> (Vec<FileChange>, u64) {
        match ended.and_then(|ended| ended.outcome.as_ref()) {
            Some(outcome) => (outcome.changes.clone(), outcome.changes_omitted),
            None => self.ends.changes(),
        }
    }

    /// Where its calls are recorded, if they are.
    pub(super) fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }

    /// The tmpfs that it works in.
    pub(super) fn workspace(&self) -> Option<Arc<OwnedFd>> {
        self.ends.workspace()
    }

    /// CPU time since this was last asked for, seconds, and memory of the tree now, bytes.
    pub(super) fn usage(&mut self) -> Option<(f64, u64)> {
        let now = self.monitor.usage()?;
        let before = std::mem::replace(&mut self.cpu, now.cpu_time_seconds);
        Some(((now.cpu_time_seconds - before).max(0.0), now.memory_bytes))
    }

    /// The session ends, for this reason or, where there is none, for the sandbox's own.
    pub(super) fn over(&mut self, why: Option<Why>) -> SessionEnd {
        match why {
            Some(why) => self.handle.kill(why),
            // The agent's end is the sandbox's: what lives on has only closed its channel.
            None if !self.handle.wait(Duration::from_secs(2)) => {
                self.handle.kill(Why::Protocol("it has closed its channel".into()));
            }
            None => {}
        }
        if !self.handle.wait(END) {
            return SessionEnd { why: Why::Lost, outcome: None };
        }
        self.handle.ended().unwrap_or(SessionEnd { why: Why::Lost, outcome: None })
    }

    /// Ends it and waits until nothing of it is left.
    pub(super) fn end(mut self, why: Option<Why>) -> SessionEnd {
        self.over(why)
    }

    /// Asks the agent to end, so that what the interpreter does at its end is done, and ends it where it does not.
    pub(super) fn farewell(mut self, why: Why) -> SessionEnd {
        self.handle.why.get_or_init(|| why.clone());
        if let Ok(Some(_)) = self.ends.send(&self.agent.shutdown()) {
            self.handle.wait(FAREWELL);
        }
        self.over(Some(why))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.handle.kill(Why::Closed);
        if let Some(thread) = self.thread.take() {
            debug_assert!(thread.join().is_ok(), "the thread that supervises a session has panicked");
        }
    }
}

/// One exchange of request and result, under way.
struct AgentExchange {
    sinks: Vec<OutputSink>,
    request: Vec<u8>,
    sent: usize,
    interrupted: Option<Why>,
    /// By when an interrupted call has to answer, from its beginning.
    until: Option<Duration>,
    /// When an interrupted call that has not answered is interrupted once more, from its beginning: what the first one met
    /// may have been before the program that the code waits for.
    again: Option<Duration>,
    stale: u32,
}

/// The outcome with its end in the trail; one that could not be recorded says so.
fn recorded(recording: Recording, outcome: Outcome) -> Outcome {
    recording.end(outcome).unwrap_or_else(|unrecorded| {
        tracing::error!("a session: {unrecorded}");
        unrecorded.into_outcome()
    })
}

fn unasked() -> Why {
    Why::Protocol("it answers a request that was not made".into())
}

enum Heard {
    Reply(AgentReply),
    Nothing,
    End,
}

/// Reads what was in the pipe when the answer came, and no more: what is written later is no part of it.
fn drain(sink: &mut OutputSink, left: u64, output: &mut Output, buffer: &mut [u8], cancel: &Cancel) {
    let mut left = usize::try_from(left).unwrap_or(usize::MAX);
    while left > 0 && sink.fd.is_some() {
        if sink.waits() {
            if cancel.is_cancelled() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let most = left.min(buffer.len());
        let waited = sink.waits();
        sink.pump(&mut buffer[..most], output);
        if !(waited && sink.waits()) {
            left -= most;
        }
    }
    while sink.waits() && !cancel.is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
        sink.pump(&mut [], output);
    }
}

fn wait(fds: &mut [PollFd<'_>], most: Duration) {
    let timeout = Timespec { tv_sec: most.as_secs().min(3600) as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    // EINTR: a signal for the caller; everything is looked at again next.
    if poll(fds, Some(&timeout)).is_err() {
        std::thread::yield_now();
    }
}
