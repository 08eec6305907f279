//! One run: code into an environment, and what came of it. Blocks, so it has a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_config::environments::Entry;
use cofferdam_engine::audited_run::{Unrecorded, code_facts};
use cofferdam_engine::{Cancel, Failure, HandedBack, Input, Io, Outcome, Output, Prepared, Stream};
use cofferdam_policy::Stdin;
use serde_json::{Map, Value};

use crate::environment::{Host, OUTPUT, Place, Ready};
use crate::files::{self, Collected};
use crate::session;

/// Most output that waits for the next message about progress, bytes; what is more is told as a number.
const MOST_FRESH: usize = 8 << 10;

/// What a run says while it is under way.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    /// Bytes of output so far.
    bytes: u64,
    fresh: Vec<u8>,
    left_out: usize,
    step: Option<String>,
}

impl Progress {
    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells output.
    pub fn output(&self, bytes: &[u8]) {
        let mut said = self.lock();
        said.bytes += bytes.len() as u64;
        let room = MOST_FRESH - said.fresh.len().min(MOST_FRESH);
        said.fresh.extend_from_slice(&bytes[..bytes.len().min(room)]);
        said.left_out += bytes.len().saturating_sub(room);
    }

    /// Tells what takes long.
    pub fn step(&self, text: &str) {
        self.lock().step = Some(text.to_owned());
    }

    /// What was not told yet: how many bytes of output there are, and the text.
    pub fn take(&self) -> Option<(u64, String)> {
        let mut said = self.lock();
        let step = said.step.take();
        // A character whose end has not come yet waits for it.
        let whole = match std::str::from_utf8(&said.fresh) {
            Err(error) if error.error_len().is_none() && said.left_out == 0 => error.valid_up_to(),
            _ => said.fresh.len(),
        };
        let rest = said.fresh.split_off(whole);
        let fresh = std::mem::replace(&mut said.fresh, rest);
        let left_out = std::mem::take(&mut said.left_out);
        let mut text = step.unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&fresh));
        if left_out > 0 {
            text.push_str(&format!("\n[{left_out} bytes of output left out here]\n"));
        }
        (!text.is_empty()).then_some((said.bytes, text))
    }
}

/// What is asked for.
#[derive(Debug)]
pub struct Call {
    /// Where.
    pub place: Arc<Place>,
    /// What.
    pub code: String,
    /// Ends it.
    pub cancel: Cancel,
    /// Whom to tell about progress.
    pub progress: Option<Arc<Progress>>,
}

/// What came of it.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub outcome: Outcome,
    /// The files that it left.
    pub files: Collected,
    /// What there is to say of its session.
    pub session: Option<session::Told>,
}

impl Ran {
    /// Nothing ran.
    pub fn failed(failure: Failure) -> Ran {
        Ran { outcome: Outcome::unstarted(Some(failure)), files: Collected::default(), session: None }
    }
}

/// Runs it. Where it `is_last`, so that nothing else would be held up, an interpreter is started for the next call.
pub fn run(host: &Host, call: Call, is_last: impl Fn() -> bool) -> Ran {
    let begins = |text: &str| {
        if let Some(progress) = &call.progress {
            progress.step(text);
        }
    };
    let ready = match call.place.ready(host, call.code.len(), &call.cancel, &begins) {
        Ok(Some(ready)) => ready,
        Ok(None) => return Ran::failed(cancelled()),
        Err(failure) => return Ran::failed(call.place.explained(failure)),
    };
    let handed = Arc::new(Mutex::new(None));
    let io = Io {
        handed_back: ready.hands_back().then(|| {
            let handed = Arc::clone(&handed);
            Box::new(move |root| *handed.lock().unwrap_or_else(PoisonError::into_inner) = Some(root)) as HandedBack
        }),
        cancel: call.cancel,
        ..Io::default()
    };
    let entered = Entered { host, place: &call.place, ready: &ready };
    let mut outcome = match call.progress {
        Some(progress) => streamed(&entered, call.code, io, progress),
        None => enter(&entered, call.code, io),
    };
    outcome.error = outcome.error.map(|failure| call.place.explained(failure));
    let root = handed.lock().unwrap_or_else(PoisonError::into_inner).take();
    let files = root.map(|root| files::collect(&root, OUTPUT)).unwrap_or_default();
    outcome.artifacts = files.files.iter().map(|file| file.name.clone()).collect();
    if let Some(early) = ready.early.as_ref().filter(|_| is_last()) {
        early.start();
    }
    Ran { outcome, files, session: None }
}

fn cancelled() -> Failure {
    Failure { code: 125, step: "cancelled".into(), message: "the call was cancelled".into(), hint: None }
}

/// What code goes into.
struct Entered<'a> {
    host: &'a Host,
    place: &'a Place,
    ready: &'a Ready,
}

/// Runs it, and tells the output as it comes.
fn streamed(entered: &Entered<'_>, code: String, io: Io, progress: Arc<Progress>) -> Outcome {
    let kept: Arc<Mutex<[Vec<u8>; 2]>> = Arc::default();
    let into = Arc::clone(&kept);
    let output = Output::Stream(Box::new(move |stream, bytes| {
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        kept[usize::from(stream == Stream::Stderr)].extend_from_slice(bytes);
        progress.output(bytes);
        Ok(bytes.len())
    }));
    let mut outcome = enter(entered, code, Io { output, ..io });
    let [out, err] = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    outcome.stdout = String::from_utf8_lossy(&out).into_owned();
    outcome.stderr = String::from_utf8_lossy(&err).into_owned();
    outcome
}

/// Lets the code in, the way that the environment takes it.
fn enter(entered: &Entered<'_>, code: String, mut io: Io) -> Outcome {
    let Entered { host, ready, .. } = entered;
    // Nothing waits where there is a trail.
    if let Some(outcome) = ready.early.as_ref().and_then(|early| early.run(&code, &mut io)) {
        return outcome;
    }
    let facts = code_facts(&code);
    let (arguments, input) = match &ready.entry {
        Entry::Argument { after } => (std::iter::once(code).chain(after.iter().cloned()).collect(), Input::Closed),
        Entry::Input => (Vec::new(), Input::Bytes(code.into_bytes())),
    };
    if ready.takes_arguments() || arguments.is_empty() {
        return recorded(entered, &ready.prepared, Io { arguments, input, ..io }, facts);
    }
    let mut policy = ready.policy.clone();
    policy.command.argv.extend(arguments);
    debug_assert!(policy.command.stdin == Stdin::Closed);
    match host.engine.prepare(&policy) {
        Ok(prepared) => recorded(entered, &prepared, io, facts),
        Err(failure) => Outcome::unstarted(Some(failure)),
    }
}

/// Runs it, with its records where there is a trail. The policy on record is the environment's, which is the same for every
/// call; which code it was, the facts say.
fn recorded(entered: &Entered<'_>, prepared: &Prepared, io: Io, facts: Map<String, Value>) -> Outcome {
    let Some(trail) = &entered.host.trail else { return prepared.run(io) };
    let mut about = entered.place.about();
    about.facts.extend(facts);
    prepared.run_recorded(io, &entered.ready.policy, trail, about).unwrap_or_else(Unrecorded::into_outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_tells_everything_once_and_no_half_of_a_character() {
        let progress = Progress::default();
        assert_eq!(progress.take(), None);
        progress.output("a\u{e9}".as_bytes());
        assert_eq!(progress.take(), Some((3, "a\u{e9}".into())));
        progress.output(&[0xc3]);
        assert_eq!(progress.take(), None);
        progress.output(&[0xa9, b'!']);
        assert_eq!(progress.take(), Some((6, "\u{e9}!".into())));
        progress.output(&[0xff, b'x']);
        assert_eq!(progress.take(), Some((8, "\u{fffd}x".into())));
        progress.step("building");
        assert_eq!(progress.take(), Some((8, "building".into())));
        assert_eq!(progress.take(), None);
    }

    #[test]
    fn a_flood_is_told_as_a_number() {
        let progress = Progress::default();
        progress.output(&vec![b'x'; MOST_FRESH + 10]);
        let (bytes, text) = progress.take().unwrap();
        assert_eq!(bytes, (MOST_FRESH + 10) as u64);
        assert!(text.ends_with("[10 bytes of output left out here]\n"), "{}", &text[text.len() - 60..]);
        assert_eq!(progress.take(), None);
    }
}
