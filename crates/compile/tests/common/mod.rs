//! Runs the evaluator as its callers do: one request, and the lines of its answer.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_profiles::protocol::*;

/// The policy library's examples.
pub(crate) fn examples() -> Vec<PathBuf> {
    let directory = library().join("sandbox/examples");
    let mut found: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "ncl"))
        .collect();
    found.sort();
    assert!(found.len() >= 5, "{} has hardly an example", directory.display());
    found
}

/// The directory where the `nickel` command would look for the library.
pub(crate) fn library() -> PathBuf {
    std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ncl")).unwrap()
}

/// The request for a format as JSON.
pub(crate) fn json(format: OutputFormat) -> RequestedOutput {
    RequestedOutput { format, encoding: Encoding::Json }
}

/// A job without overrides that imports from beside itself only.
pub(crate) fn job(file: &Path, outputs: &[OutputFormat]) -> EvaluationJob {
    let file = std::fs::canonicalize(file).unwrap();
    let imports = vec![file.parent().unwrap().to_owned()];
    EvaluationJob { file, imports, overrides: Vec::new(), outputs: outputs.iter().copied().map(json).collect() }
}

/// The evaluator's answer to a text, line by line, and its exit code.
pub(crate) fn say(request: &[u8]) -> (Vec<EvaluatorMessage>, Option<i32>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cofferdam-compile"))
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    (lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), output.status.code())
}

/// The results of jobs whose directories are at their own paths.
#[track_caller]
pub(crate) fn results(jobs: Vec<EvaluationJob>) -> Vec<std::result::Result<Evaluated, EvaluationProblem>> {
    let mut dirs: Vec<EvaluatorDirectory> = Vec::new();
    for name in jobs.iter().flat_map(|job| &job.imports) {
        if dirs.iter().all(|dir| dir.name != *name) {
            dirs.push(EvaluatorDirectory { name: name.clone(), at: name.clone() });
        }
    }
    let count = jobs.len();
    let request = EvaluatorRequest { dirs, jobs, address_space: 2 << 30, cpu_seconds: 60 };
    let (lines, code) = say(&serde_json::to_vec(&request).unwrap());
    assert_eq!((lines.len(), code), (2 * count, Some(0)), "{lines:?}");
    let mut results = Vec::new();
    for (number, pair) in lines.chunks(2).enumerate() {
        match pair {
            [EvaluatorMessage::Begun(begun), EvaluatorMessage::Done { job, result }]
                if *begun == number && *job == number =>
            {
                results.push(match result {
                    EvaluationResult::Ok(evaluated) => Ok(evaluated.clone()),
                    EvaluationResult::Error(problem) => Err(problem.clone()),
                });
            }
            other => panic!("{other:?}"),
        }
    }
    results
}

/// The one result of one job.
#[track_caller]
pub(crate) fn result(job: EvaluationJob) -> std::result::Result<Evaluated, EvaluationProblem> {
    results(vec![job]).remove(0)
}

/// A profile in a directory of its own.
pub(crate) fn profile(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::canonicalize(directory.path()).unwrap().join("profile.ncl");
    std::fs::write(&file, text).unwrap();
    (directory, file)
}
