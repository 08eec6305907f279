//! Compiles profiles by the evaluator `cofferdam-compile`, which it runs in a jail, and caches the results.
//!
//! ```text
//! requests ─ cache ─▶ known
//!              └─ others ─ an evaluator in a jail (or, if trusted, as a child process) ─▶ results, which are cached
//! ```
//!
//! A profile may make the evaluator die (memory, time, nesting): that profile gets the error, and another evaluator continues with
//! the others. Never evaluates in this process.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_engine::Engine;
use cofferdam_policy::paths::normalize;

use crate::cache::{EvaluationCache, now_ns};
use crate::error::CompileError;
use crate::helper::{self, EvaluatorEnd, Helper, MEMORY_MB};
use crate::jail;
use crate::protocol::{
    Evaluated, EvaluationJob, EvaluationResult, EvaluatorDirectory, EvaluatorMessage, EvaluatorRequest, Override,
    ProblemKind, RequestedOutput,
};

/// Wall and CPU time for one profile.
pub(crate) const TIME: Duration = Duration::from_secs(10);

/// Additional time for each further profile of the same call.
const TIME_EACH: Duration = Duration::from_secs(1);

/// Fewest profiles for a further evaluator: starting one takes as long as evaluating some ten.
const SHARE: usize = 24;

/// Most profiles of one evaluator, which retains about half a MiB for each.
const MAX_SHARE: usize = 256;

/// Most evaluators at once.
const MAX_EVALUATORS: usize = 4;

/// Address space of the evaluator, bytes: its memory, and a stack that is hardly used.
const ADDRESS_SPACE: u64 = (MEMORY_MB << 20) + (1 << 30);

/// A request to compile one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileRequest {
    /// The profile's file.
    pub file: PathBuf,
    /// Values that override its own.
    pub overrides: Vec<Override>,
    /// The requested outputs.
    pub outputs: Vec<RequestedOutput>,
    /// Directories that it may import from, besides its own.
    pub imports: Vec<PathBuf>,
}

/// A compiled profile.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compiled {
    /// The outputs in the requested order: texts that end with a newline, or why the target cannot have one.
    pub outputs: Vec<Result<String, String>>,
    /// What a target cannot express.
    pub warnings: Vec<String>,
    /// Whether it came from the cache.
    pub cached: bool,
}

/// Turns profiles into outputs.
#[derive(Debug)]
pub struct Compiler<'e> {
    engine: &'e Engine,
    helper: PathBuf,
    cache: Option<EvaluationCache>,
    trusted: bool,
}

impl<'e> Compiler<'e> {
    /// A compiler whose evaluator is this program, run in a jail by that engine, without a cache.
    pub fn new(engine: &'e Engine, helper: impl Into<PathBuf>) -> Compiler<'e> {
        Compiler { engine, helper: helper.into(), cache: None, trusted: false }
    }

    /// The compiler with a cache.
    pub fn cache(mut self, cache: Option<EvaluationCache>) -> Compiler<'e> {
        self.cache = cache;
        self
    }

    /// With true, the evaluator is a child process without a sandbox, for the operator's own profiles on hosts without one. The files
    /// that it may read, and its time, are limited nevertheless.
    pub fn trusted(mut self, trusted: bool) -> Compiler<'e> {
        self.trusted = trusted;
        self
    }

    /// Compiles one profile.
    ///
    /// # Errors
    /// It cannot be evaluated, or its result is refused.
    pub fn compile(&self, ask: &CompileRequest) -> Result<Compiled, CompileError> {
        self.compile_all(std::slice::from_ref(ask)).remove(0)
    }

    /// Compiles profiles; those that are not cached share evaluators. The results are in the order of the requests.
    pub fn compile_all(&self, asks: &[CompileRequest]) -> Vec<Result<Compiled, CompileError>> {
        let helper = match Helper::at(&self.helper) {
            Ok(helper) => helper,
            Err(error) => return asks.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers: Vec<Option<Result<Compiled, CompileError>>> = Vec::with_capacity(asks.len());
        let mut open = Vec::new();
        for (index, ask) in asks.iter().enumerate() {
            let begun_ns = now_ns();
            answers.push(match job(ask) {
                Err(error) => Some(Err(error)),
                Ok(job) => {
                    let question = question(&job, &helper);
                    let known = self.cache.as_ref().and_then(|cache| cache.look_up(&question));
                    let answer = known.map(|evaluated| Ok(compiled(evaluated, true)));
                    if answer.is_none() {
                        open.push(Open { index, job, question, begun_ns });
                    }
                    answer
                }
            });
        }
        while !open.is_empty() {
            let round = self.rounds(&helper, &open);
            let before = open.len();
            for (at, result) in round {
                let Open { index, job, question, begun_ns } = &open[at];
                answers[*index] = Some(result.map(|evaluated| {
                    // A result that does not depend on the profile's file would be valid for any replacement of it.
                    let own = evaluated.files.iter().any(|seen| seen.path == job.file);
                    if let Some(cache) = self.cache.as_ref().filter(|_| own) {
                        cache.keep(question, &evaluated, *begun_ns);
                    }
                    compiled(evaluated, false)
                }));
            }
            open.retain(|open| answers[open.index].is_none());
            if open.len() == before {
                break;
            }
        }
        let lost = || Err(CompileError::new("the evaluator gave no answer"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }

    /// Runs one evaluator for all open requests, or several in parallel if that is faster.
    fn rounds(&self, helper: &Helper, open: &[Open]) -> Vec<(usize, Result<Evaluated, CompileError>)> {
        let evaluators = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_EVALUATORS);
        // The rest is for the next round.
        let open = &open[..open.len().min(evaluators * MAX_SHARE)];
        let share = open.len().div_ceil(evaluators).max(SHARE);
        if open.len() <= share {
            return self.round(helper, open);
        }
        std::thread::scope(|scope| {
            let work: Vec<_> = open.chunks(share).map(|chunk| scope.spawn(move || self.round(helper, chunk))).collect();
            let shares = work.into_iter().enumerate();
            shares
                .flat_map(|(number, work)| {
                    // A thread that panicked has no results, which is reported.
                    let answers = work.join().unwrap_or_default();
                    answers.into_iter().map(move |(at, result)| (number * share + at, result))
                })
                .collect()
        })
    }

    /// Runs one evaluator, and returns its results and how it ended.
    fn round(&self, helper: &Helper, open: &[Open]) -> Vec<(usize, Result<Evaluated, CompileError>)> {
        let names: BTreeSet<&Path> = open.iter().flat_map(|open| &open.job.imports).map(PathBuf::as_path).collect();
        let time = TIME + TIME_EACH * u32::try_from(open.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let request = |dirs: Vec<EvaluatorDirectory>| {
            let request = EvaluatorRequest {
                dirs,
                jobs: open.iter().map(|open| open.job.clone()).collect(),
                address_space: ADDRESS_SPACE,
                cpu_seconds: time.as_secs() + 1,
            };
            serde_json::to_vec(&request).expect("a request has text keys, so nothing can fail")
        };
        let end = if self.trusted {
            let dirs = names
                .iter()
                .map(|name| EvaluatorDirectory { name: name.to_path_buf(), at: name.to_path_buf() })
                .collect();
            helper::run(helper, &request(dirs), time)
        } else {
            jail::run(self.engine, helper, &names, request, time)
        };
        let end = match end {
            Ok(end) => end,
            Err(error) => return (0..open.len()).map(|at| (at, Err(error.clone()))).collect(),
        };
        read(&end, open)
    }
}

/// A profile that has to be evaluated.
struct Open {
    index: usize,
    job: EvaluationJob,
    question: String,
    begun_ns: i64,
}

/// The results of an evaluator that has ended, and the request that its end belongs to.
fn read(end: &EvaluatorEnd, open: &[Open]) -> Vec<(usize, Result<Evaluated, CompileError>)> {
    let mut results = Vec::new();
    let mut begun = None;
    for line in end.stdout.lines() {
        match serde_json::from_str(line) {
            Ok(EvaluatorMessage::Begun(at)) => begun = Some(at),
            Ok(EvaluatorMessage::Done { job, result }) if job < open.len() => {
                begun = None;
                results.push((
                    job,
                    match result {
                        EvaluationResult::Ok(evaluated) if evaluated.outputs.len() == open[job].job.outputs.len() => {
                            Ok(evaluated)
                        }
                        EvaluationResult::Ok(_) => {
                            Err(CompileError::new("the evaluator answers what it was not asked"))
                        }
                        EvaluationResult::Error(problem) => {
                            let refused = problem.kind != ProblemKind::Unreadable;
                            Err(CompileError { message: problem.message, hint: problem.hint, refused })
                        }
                    },
                ));
            }
            Ok(EvaluatorMessage::Refused(message)) => {
                let error = CompileError::new(format!("the evaluator refuses: {message}")).hint(
                    "it may be of another version: build it again with cargo build --release -p cofferdam-compile",
                );
                return (0..open.len()).map(|at| (at, Err(error.clone()))).collect();
            }
            _ => break,
        }
    }
    if results.len() < open.len() {
        // The request in progress, or the first that it never began: one of them gets the error.
        let next = (0..open.len()).find(|at| results.iter().all(|(done, _)| done != at)).unwrap_or(0);
        let at = begun.filter(|at| *at < open.len()).unwrap_or(next);
        results.push((at, Err(end.error(&open[at].job.file))));
    }
    results
}

fn compiled(evaluated: Evaluated, cached: bool) -> Compiled {
    Compiled { outputs: evaluated.outputs, warnings: evaluated.warnings, cached }
}

/// The request for the evaluator, with canonical paths.
fn job(ask: &CompileRequest) -> Result<EvaluationJob, CompileError> {
    let unreadable = |path: &Path, error: std::io::Error| {
        // Only direct users of this crate can pass a path that does not name a file.
        let id = path.parent() == Some(Path::new("")) && path.extension().is_none();
        CompileError::new(format!("cannot read the profile {}: {error}", path.display())).hint(match id {
            true => format!("name its Nickel file, such as {}.ncl; what is stored is compiled already", path.display()),
            false => {
                "a profile with a slash or the ending .ncl is a file; a stored one is named by its id alone".into()
            }
        })
    };
    let name = ask.file.file_name().ok_or_else(|| {
        CompileError::new(format!("{} is no file", ask.file.display())).hint("name a Nickel file, such as profile.ncl")
    })?;
    let parent = ask.file.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let parent = std::fs::canonicalize(parent).map_err(|error| unreadable(&ask.file, error))?;
    let file = parent.join(name);
    let metadata = std::fs::metadata(&file).map_err(|error| unreadable(&ask.file, error))?;
    if metadata.is_dir() {
        return Err(CompileError::new(format!("{} is a directory", ask.file.display()))
            .hint("name a Nickel file in it, such as main.ncl"));
    }
    if parent == Path::new("/") {
        // It could import any file.
        return Err(CompileError::new(format!("the profile {} lies in /", file.display()))
            .hint("put it into a directory of its own"));
    }
    let mut imports = vec![parent];
    for directory in &ask.imports {
        let real = std::fs::canonicalize(directory).map_err(|error| {
            CompileError::new(format!("cannot allow imports from {}: {error}", directory.display()))
        })?;
        if !real.is_dir() {
            return Err(CompileError::new(format!("cannot allow imports from {}: it is no directory", real.display())));
        }
        if !imports.contains(&real) {
            imports.push(real);
        }
    }
    for path in imports.iter().chain([&file]) {
        if path.to_str().and_then(normalize).is_none() {
            return Err(CompileError::new(format!("{path:?} is not valid UTF-8")).hint("rename it, or link to it"));
        }
    }
    Ok(EvaluationJob { file, imports, overrides: ask.overrides.clone(), outputs: ask.outputs.clone() })
}

/// Everything that a result depends on besides the files.
fn question(job: &EvaluationJob, helper: &Helper) -> String {
    let job = serde_json::to_string(job).expect("a job has text keys, so nothing can fail");
    let m = &helper.metadata;
    let evaluator = [m.dev(), m.ino(), m.size(), m.mtime().cast_unsigned(), m.mtime_nsec().cast_unsigned()];
    format!("{} {evaluator:?} {job}", env!("CARGO_PKG_VERSION"))
}
