//! Serves one request: sets the limits of this process, then does each job on a sufficiently large stack.

use std::io::Write;

use cofferdam_profiles::protocol::{EvaluationResult, EvaluatorMessage, EvaluatorRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::evaluator::Evaluator;

/// Stack of the evaluation, bytes: Nickel recurses over its input. Unused pages cost nothing.
const STACK: usize = 512 << 20;

/// Answers a request, with a line for each event.
///
/// # Errors
/// The request cannot be read or its limits cannot be set; nothing has been evaluated.
pub fn serve(request: &[u8], out: &mut (impl Write + Send)) -> Result<(), String> {
    let request: EvaluatorRequest =
        serde_json::from_slice(request).map_err(|error| format!("the request is not understood: {error}"))?;
    limit(&request)?;
    std::thread::scope(|scope| {
        let work = std::thread::Builder::new()
            .name("evaluation".into())
            .stack_size(STACK)
            .spawn_scoped(scope, || jobs(&request, out))
            .map_err(|error| format!("cannot start the evaluation: {error}"))?;
        work.join().map_err(|_| "the evaluation failed".to_owned())?
    })
}

fn jobs(request: &EvaluatorRequest, out: &mut impl Write) -> Result<(), String> {
    let mut evaluator = Evaluator::new(request.dirs.clone());
    let files = getrlimit(Resource::Nofile);
    for (index, job) in request.jobs.iter().enumerate() {
        say(out, &EvaluatorMessage::Begun(index))?;
        // The limit of open files is unchanged until the files of the job are read, and then set to zero, so that a profile cannot
        // open a file that was not checked.
        setrlimit(Resource::Nofile, files).map_err(|error| format!("cannot set the limit of open files: {error}"))?;
        let none = Rlimit { current: Some(0), maximum: files.maximum };
        let evaluated = evaluator.evaluate(job, || Ok(setrlimit(Resource::Nofile, none)?));
        let result = match evaluated {
            Ok(evaluated) => EvaluationResult::Ok(evaluated),
            Err(problem) => EvaluationResult::Error(problem),
        };
        say(out, &EvaluatorMessage::Done { job: index, result })?;
    }
    // Context and sources are freed by the end of the process.
    std::mem::forget(evaluator);
    Ok(())
}

fn limit(request: &EvaluatorRequest) -> Result<(), String> {
    for (resource, wanted, what) in [
        (Resource::As, (request.address_space > 0).then_some(request.address_space), "the address space"),
        (Resource::Cpu, (request.cpu_seconds > 0).then_some(request.cpu_seconds), "the CPU time"),
        (Resource::Core, Some(0), "the size of core dumps"),
    ] {
        let there = getrlimit(resource);
        // A limit that is low enough is not changed: an outer sandbox may forbid that.
        let tight = |limit: Option<u64>, wanted| limit.is_some_and(|limit| limit <= wanted);
        let Some(wanted) = wanted.filter(|wanted| !tight(there.current, *wanted)) else { continue };
        let value = Some(there.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        match setrlimit(resource, Rlimit { current: value, maximum: value }) {
            // An outer sandbox has set this already.
            Err(rustix::io::Errno::INVAL) if resource == Resource::Core => {}
            set => set.map_err(|error| format!("cannot limit {what}: {error}"))?,
        }
    }
    Ok(())
}

fn say(out: &mut impl Write, line: &EvaluatorMessage) -> Result<(), String> {
    let mut text = serde_json::to_string(line).map_err(|error| format!("cannot write an answer: {error}"))?;
    text.push('\n');
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot write an answer: {error}"))
}
