//! Runs a call's code in a sandbox of its own. It blocks, so it needs a thread of its own.

use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_config::environments::CodeSlot;
use cofferdam_engine::audited_run::{Unrecorded, code_facts};
use cofferdam_engine::{FailedStep, Failure, HandedBack, Input, Io, Outcome, Prepared};
use cofferdam_policy::{Stdin, text};
use serde_json::{Map, Value};

use super::call::{CallOutcome, ExecutionCall};
use super::progress::StreamedOutput;
use crate::environments::{EnvironmentHost, OUTPUT, PreparedEnvironment, ServedEnvironment};
use crate::workspace::output;

/// Runs the code. If the call `is_only_run`, so that no other is held up, an interpreter is started for the next call.
pub(crate) fn run(host: &EnvironmentHost, call: ExecutionCall, is_only_run: impl Fn() -> bool) -> CallOutcome {
    let on_step = |text: &str| {
        if let Some(progress) = &call.progress {
            progress.step(text);
        }
    };
    let prepared = match call.environment.prepared(host, call.code.len(), &call.cancel, &on_step) {
        Ok(Some(prepared)) => prepared,
        Ok(None) => return CallOutcome::failed(cancelled()),
        Err(failure) => return CallOutcome::failed(call.environment.with_definition_hint(failure)),
    };
    let workspace = Arc::new(Mutex::new(None));
    let io = Io {
        handed_back: prepared.hands_back().then(|| {
            let workspace = Arc::clone(&workspace);
            Box::new(move |root| *workspace.lock().unwrap_or_else(PoisonError::into_inner) = Some(root)) as HandedBack
        }),
        cancel: call.cancel,
        ..Io::default()
    };
    let target = ExecutionTarget { host, environment: &call.environment, prepared: &prepared };
    let mut outcome = match call.progress {
        Some(progress) => {
            let streamed = StreamedOutput::default();
            let mut outcome = target.run(call.code, Io { output: streamed.output(progress), ..io });
            (outcome.stdout, outcome.stderr) = streamed.take();
            outcome
        }
        None => target.run(call.code, io),
    };
    outcome.error = outcome.error.map(|failure| call.environment.with_definition_hint(failure));
    let root = workspace.lock().unwrap_or_else(PoisonError::into_inner).take();
    let files = root.map(|root| output::collect(&root, OUTPUT)).unwrap_or_default();
    outcome.artifacts = files.files.iter().map(|file| text::one_line(&file.name)).collect();
    if let Some(warm_pool) = prepared.warm_pool.as_ref().filter(|_| is_only_run()) {
        warm_pool.start();
    }
    let hints = call.environment.hints(&prepared.policy, &outcome);
    CallOutcome { outcome, files, session: None, hints }
}

fn cancelled() -> Failure {
    Failure { code: 125, step: FailedStep::caller("cancelled"), message: "the call was cancelled".into(), hint: None }
}

/// Where the code runs.
struct ExecutionTarget<'a> {
    host: &'a EnvironmentHost,
    environment: &'a ServedEnvironment,
    prepared: &'a PreparedEnvironment,
}

impl ExecutionTarget<'_> {
    /// Passes the code to the interpreter in the environment's way, and runs it.
    fn run(&self, code: String, mut io: Io) -> Outcome {
        let ExecutionTarget { host, prepared, .. } = self;
        // With an audit trail there is no warm pool.
        if let Some(outcome) = prepared.warm_pool.as_ref().and_then(|warm_pool| warm_pool.run(&code, &mut io)) {
            return outcome;
        }
        let facts = code_facts(&code);
        let (arguments, input) = match &prepared.entry {
            CodeSlot::Argument { after } => {
                (std::iter::once(code).chain(after.iter().cloned()).collect(), Input::Closed)
            }
            CodeSlot::Input => (Vec::new(), Input::Bytes(code.into_bytes())),
        };
        if prepared.prepared.takes_arguments() || arguments.is_empty() {
            return self.run_recorded(&prepared.prepared, Io { arguments, input, ..io }, facts);
        }
        let mut policy = prepared.policy.clone();
        policy.command.argv.extend(arguments);
        debug_assert!(policy.command.stdin == Stdin::Closed);
        match host.engine.prepare(&policy) {
            Ok(prepared) => self.run_recorded(&prepared, io, facts),
            Err(failure) => Outcome::unstarted(Some(failure)),
        }
    }

    /// Runs it, with audit records if there is a trail. The recorded policy is the environment's, which is the same for every
    /// call; the facts identify the code.
    fn run_recorded(&self, prepared: &Prepared, io: Io, facts: Map<String, Value>) -> Outcome {
        let Some(trail) = &self.host.trail else { return prepared.run(io) };
        let mut about = self.environment.about();
        about.facts.extend(facts);
        prepared.run_recorded(io, &self.prepared.policy, trail, about).unwrap_or_else(Unrecorded::into_outcome)
    }
}
