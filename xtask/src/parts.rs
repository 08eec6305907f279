//! Runs the parts of a task one after the other, whatever fails on the way, and ends with one line that counts all of them.
//!
//! What a part's programs print is passed on as it comes, and read for the summaries of the test runners in use: nextest,
//! cargo's own runner, and pytest. A part that fails without naming a failed test counts as one failure.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::Result;
use crate::shell::{cannot_run, step, words};

/// How many of the last lines of a part that failed are shown again before the sums.
const LAST_LINES: usize = 40;

/// How long output is awaited from what a program left running after its own end, such as a test's daemon.
const DRAIN: Duration = Duration::from_secs(2);

/// How many tests had which result.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that ran and passed.
    pub passed: u64,
    /// Tests that ran and failed, errors and timeouts included.
    pub failed: u64,
    /// Tests that were there and did not run.
    pub skipped: u64,
    /// The tests that failed, as their runner names them, each once.
    pub failures: Vec<String>,
    /// The last lines, where a runner says why.
    last: VecDeque<String>,
}

impl Counts {
    /// Adds what a line says, if it is a test runner's summary.
    pub(crate) fn read(&mut self, line: &str) {
        let whole = plain(line.trim_end());
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(whole.clone());
        if let Some(name) = failure(&whole)
            && !self.failures.iter().any(|known| known == name)
        {
            self.failures.push(name.to_owned());
        }
        let line = whole.trim().trim_matches('=').trim();
        // nextest's skipped tests are those that the filter left out; cargo's are `filtered out`, and are not read either.
        let nextest = line.strip_prefix("Summary [").and_then(|rest| Some(rest.split_once(']')?.1));
        // Indented it is the output of a failed test, which nextest shows and counts.
        let cargo = whole.strip_prefix("test result:");
        let summary = nextest.or(cargo).or_else(|| pytest(line));
        let Some(summary) = summary else { return };
        let words: Vec<&str> = summary.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" | "xfailed" => self.passed += number,
                "failed" | "error" | "errors" | "xpassed" => self.failed += number,
                "timed" => self.failed += number,
                "ignored" => self.skipped += number,
                "skipped" if nextest.is_none() => self.skipped += number,
                _ => {}
            }
        }
    }

    fn add(&mut self, other: &Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The test that a line says has failed: nextest's `FAIL [   0.1s] (3/9) package test`, with its other ways to end; cargo's
/// `test name ... FAILED`; pytest's `FAILED file::name - reason`.
///
/// What a failed test printed itself is indented in nextest's output, and the runner's own word is not the first of it.
fn failure(line: &str) -> Option<&str> {
    if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
        return Some(name);
    }
    if let Some(rest) = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")) {
        let name = rest.split_once(" - ").map_or(rest, |(name, _)| name);
        return name.contains("::").then_some(name);
    }
    let (word, rest) = line.trim_start().split_once(" [")?;
    if !matches!(word, "FAIL" | "TIMEOUT" | "ABORT") && !word.starts_with("SIG") {
        return None;
    }
    let (time, name) = rest.split_once(']')?;
    if !time.trim().trim_start_matches('>').trim().strip_suffix('s')?.parse::<f64>().is_ok_and(f64::is_finite) {
        return None;
    }
    let name = name.trim_start();
    let name = match name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((place, name)) if place.contains('/') => name,
        _ => name,
    };
    Some(name.trim())
}

/// The counts of pytest's last line: `3 failed, 12 passed in 4.56s`.
fn pytest(line: &str) -> Option<&str> {
    let (counts, time) = line.rsplit_once(" in ")?;
    let seconds = time.split_whitespace().next()?.strip_suffix('s')?;
    let is_count = |part: &str| {
        part.split_once(' ')
            .is_some_and(|(number, word)| number.parse::<u64>().is_ok() && word.chars().all(|c| c.is_ascii_lowercase()))
    };
    (seconds.parse::<f64>().is_ok() && counts.split(", ").all(is_count)).then_some(counts)
}

/// A line without the sequences that colour it.
pub(crate) fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text += before;
        rest = after.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
    }
    text + rest
}

/// The parts that have run.
#[derive(Default)]
pub(crate) struct Parts(Vec<Part>);

struct Part {
    name: String,
    counts: Counts,
    took: Duration,
    failure: Option<String>,
}

impl Parts {
    /// Runs one part under a heading. Its failure is noted, and the next part runs.
    pub(crate) fn run(&mut self, name: &str, work: impl FnOnce(&mut Counts) -> Result) {
        step(name);
        let mut counts = Counts::default();
        let begun = Instant::now();
        let failure = work(&mut counts).err();
        if let Some(failure) = &failure {
            eprintln!("failed: {failure}");
            counts.failed = counts.failed.max(1);
        }
        self.0.push(Part { name: name.to_owned(), counts, took: begun.elapsed(), failure });
    }

    /// Prints a line for each part and the sum of all as the last one.
    ///
    /// # Errors
    /// A part failed.
    pub(crate) fn close(self) -> Result {
        let mut sum = Counts::default();
        for part in self.0.iter().filter(|part| part.failure.is_some()) {
            println!("\nthe end of: {}", part.name);
            part.counts.last.iter().for_each(|line| println!("  | {line}"));
        }
        println!();
        for part in &self.0 {
            sum.add(&part.counts);
            let Counts { passed, failed, skipped, .. } = part.counts;
            let seconds = part.took.as_secs();
            println!("{passed:>6} passed {failed:>4} failed {skipped:>4} skipped {seconds:>5} s   {}", part.name);
        }
        println!("total: {} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
        let failures: Vec<String> = self
            .0
            .iter()
            .filter_map(|part| {
                let names = part.counts.failures.iter().map(|name| format!("\n    {name}"));
                Some(format!("{}: {}{}", part.name, part.failure.as_ref()?, names.collect::<String>()))
            })
            .collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
    }
}

/// Shows and runs a command like [`crate::shell::run`], and adds what its test runner says to `counts`.
///
/// # Errors
/// It cannot be started, or its exit code is not 0.
pub(crate) fn counted(command: &mut Command, counts: &mut Counts) -> Result {
    eprintln!("+ {}", words(command));
    let cannot = |error: std::io::Error| cannot_run(command, &error);
    let (reader, writer) = std::io::pipe().map_err(cannot)?;
    let other = writer.try_clone().map_err(cannot)?;
    let mut child = command.stdout(writer).stderr(other).spawn().map_err(|error| cannot_run(command, &error))?;
    // The command keeps its ends of the pipe until they are replaced, and the output would never end.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let (lines, received) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            // Once nobody counts any more, what a daemon prints later is read all the same, so that it never waits.
            drop(lines.send(std::mem::take(&mut line)));
        }
    });
    let mut take = |line: Vec<u8>| {
        counts.read(&String::from_utf8_lossy(&line));
        std::io::stderr().write_all(&line).map_err(|error| format!("cannot write to standard error: {error}"))
    };
    let mut ended: Option<Instant> = None;
    let status = loop {
        match received.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => take(line)?,
            Err(mpsc::RecvTimeoutError::Disconnected) => break child.wait(),
            Err(mpsc::RecvTimeoutError::Timeout) => match child.try_wait() {
                Ok(Some(status)) if ended.is_some_and(|at| at.elapsed() > DRAIN) => break Ok(status),
                Ok(Some(_)) => ended = ended.or_else(|| Some(Instant::now())),
                Ok(None) => {}
                Err(error) => break Err(error),
            },
        }
    };
    let status = status.map_err(|error| cannot_run(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", words(command))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (u64, u64, u64) {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.read(line));
        (counts.passed, counts.failed, counts.skipped)
    }

    #[test]
    fn summaries_of_each_runner_are_counted() {
        let nextest =
            "     Summary [ 211.8s] 2325 tests run: 2321 passed (3 slow, 1 leaky), 3 failed, 1 timed out, 7 skipped";
        assert_eq!(read(&[nextest]), (2321, 4, 0));
        assert_eq!(
            read(&[
                "\u{1b}[32;1m     Summary\u{1b}[0m [   0.1s] \u{1b}[1m4\u{1b}[0m tests run: \u{1b}[1m4\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 0 skipped"
            ]),
            (4, 0, 0)
        );
        let cargo = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 9 filtered out; finished in 0.02s";
        assert_eq!(read(&[cargo, cargo]), (10, 4, 2));
        assert_eq!(read(&[&format!("    {cargo}"), nextest]), (2321, 4, 0), "what nextest shows of a failed test");
        assert_eq!(read(&["======= 1 failed, 108 passed, 2 skipped, 1 error in 12.34s ======="]), (108, 2, 2));
        assert_eq!(read(&["108 passed in 63.20s (0:01:03)"]), (108, 0, 0));
    }

    #[test]
    fn other_lines_count_nothing() {
        let lines = ["test a::b ... ok", "3 passed the gate in time", "running 3 tests", "PASS [ 0.1s] 12 passed", ""];
        assert_eq!(read(&lines), (0, 0, 0));
    }

    #[test]
    fn failed_tests_are_named_once_by_each_runner() {
        let mut counts = Counts::default();
        for line in [
            "        PASS [   0.140s] (2494/2580) cofferdam-server::stdio a_call",
            "        FAIL [   1.250s] (2495/2580) cofferdam-server::stdio a_cancelled_call_ends",
            "\u{1b}[31;1m        FAIL\u{1b}[0m [   1.250s] (2495/2580) cofferdam-server::stdio a_cancelled_call_ends",
            "     TIMEOUT [> 60.00s] (2496/2580) cofferdam::run slow",
            "     SIGABRT [   0.010s] cofferdam::run crashed",
            "test attempts::one ... FAILED\n",
            "test attempts::two ... ok\n",
            "FAILED tests/test_run.py::test_limits[64m] - AssertionError: x",
            "FAILED to do a thing - yes",
            "FAIL [one] of those",
        ] {
            counts.read(line);
        }
        assert_eq!(
            counts.failures,
            [
                "cofferdam-server::stdio a_cancelled_call_ends",
                "cofferdam::run slow",
                "cofferdam::run crashed",
                "attempts::one",
                "tests/test_run.py::test_limits[64m]",
            ]
        );
        let mut parts = Parts::default();
        parts.run("part", |of| {
            of.read("test attempts::one ... FAILED");
            Err("`x` failed".into())
        });
        assert_eq!(parts.close().unwrap_err(), "part: `x` failed\n    attempts::one");
    }

    #[test]
    fn what_a_command_prints_is_counted_and_its_failure_kept() {
        let mut counts = Counts::default();
        let script = "echo '3 passed in 0.10s'; echo '1 failed, 2 passed in 0.10s' >&2; exit 3";
        let failed = counted(Command::new("sh").args(["-c", script]), &mut counts).unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
        assert_eq!((counts.passed, counts.failed, counts.skipped), (5, 1, 0));
        assert_eq!(counts.last, ["3 passed in 0.10s", "1 failed, 2 passed in 0.10s"]);
    }

    #[test]
    fn a_program_that_a_test_leaves_running_is_not_waited_for() {
        let begun = Instant::now();
        let mut counts = Counts::default();
        counted(Command::new("sh").args(["-c", "sleep 20 & echo '1 passed in 0.10s'"]), &mut counts).unwrap();
        assert_eq!(counts.passed, 1);
        assert!(begun.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_part_that_fails_does_not_end_the_others() {
        let mut parts = Parts::default();
        parts.run("first", |_| Err("cannot build".into()));
        let mut ran = false;
        parts.run("second", |counts| {
            ran = true;
            counts.passed = 2;
            Ok(())
        });
        assert!(ran);
        assert_eq!(parts.0[0].counts.failed, 1);
        assert_eq!(parts.close().unwrap_err(), "first: cannot build");
    }
}
