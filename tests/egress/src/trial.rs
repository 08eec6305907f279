//! One trial: the command as a user types it, on the host of a world, and the verdict from its outcome and the record.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::attempt::{Attempt, Control, Evidence};
use crate::clients::Client;
use crate::suite_directory::SuiteDirectory;
use crate::world::{Ended, World};

/// The name server of the world's host.
const RESOLVER: &str = "198.51.100.53";
/// No attempt may make a packet with this word leave, in a name or a request: it is in every name of the evil host.
const EVIL: &str = "evil";

/// A run of the command.
#[derive(Debug)]
pub struct Run {
    /// The outcome, parsed.
    pub outcome: Value,
    /// Standard output of the program.
    pub stdout: String,
    /// Standard error of the program.
    pub stderr: String,
    /// Entries of the record.
    pub seen: Vec<Value>,
    /// Messages of the command.
    pub said: String,
}

impl Run {
    /// Events of the gateway.
    pub fn events(&self) -> &[Value] {
        self.outcome["network"]["events"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Reasons of what was refused or failed.
    pub fn reasons(&self) -> Vec<&str> {
        self.events().iter().filter_map(|event| event["reason"].as_str()).collect()
    }

    /// Everything, for a message.
    pub fn shown(&self) -> String {
        let events: Vec<String> = self.events().iter().map(|event| format!("  {event}\n")).collect();
        let seen: Vec<String> = self.seen.iter().map(|entry| format!("  {}\n", clipped(&entry.to_string()))).collect();
        format!(
            "outcome {} exit {}\nstdout: {}\nstderr: {}\nsaid: {}\nevents:\n{}record:\n{}",
            self.outcome["outcome"],
            self.outcome["exit_code"],
            clipped(&self.stdout),
            clipped(&self.stderr),
            self.said,
            events.concat(),
            seen.concat()
        )
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(600).collect()
}

/// A word that is in no other trial.
pub fn canary() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("canary{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A call with its placeholders filled in.
pub fn filled(suite: &SuiteDirectory, world: &World, call: &[&str], canary: &str) -> Vec<String> {
    let inside = suite.inside.display().to_string();
    let mut words: Vec<String> = Vec::new();
    for word in call {
        if *word == "{attempt}" {
            words.extend(["/usr/bin/python3".into(), "-B".into(), format!("{inside}/attempt.py")]);
            continue;
        }
        let word = word.replace("{canary}", canary).replace("{inside}", &inside);
        words.push(word.replace("{base}", &world.base.display().to_string()));
    }
    words
}

/// The command line for a call under options.
///
/// # Errors
/// The policy's file cannot be written.
pub fn line(
    suite: &SuiteDirectory,
    world: &World,
    options: &[&str],
    policy: &str,
    words: Vec<String>,
) -> Result<Vec<String>, String> {
    let mut line = vec![suite.cofferdam.display().to_string(), "run".into(), "--json".into()];
    if !policy.is_empty() {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let file = world.base.join(format!("policy-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&file, policy).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
        line.extend(["--policy".into(), file.display().to_string()]);
    }
    line.extend(filled(suite, world, options, ""));
    line.push("--".into());
    line.extend(words);
    Ok(line)
}

/// Parses what the command printed.
///
/// # Errors
/// There is no outcome, or nothing ran.
pub fn read(ended: Ended) -> Result<Run, String> {
    let Ended { code, stdout, stderr, seen } = ended;
    let outcome: Value =
        serde_json::from_str(&stdout).map_err(|e| format!("no outcome ({e}), exit {code}:\n{stdout}\n{stderr}"))?;
    if outcome["outcome"] == "setup_failed" {
        return Err(format!("nothing ran: {outcome}\n{stderr}"));
    }
    let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
    Ok(Run { stdout: text("stdout"), stderr: text("stderr"), outcome, seen, said: stderr })
}

/// Runs a call in a sandbox.
///
/// # Errors
/// As for [`read`] and [`World::run`].
pub fn sandboxed(
    suite: &SuiteDirectory,
    world: &World,
    options: &[&str],
    policy: &str,
    call: &[&str],
    canary: &str,
) -> Result<Run, String> {
    let words = filled(suite, world, call, canary);
    read(world.run(&line(suite, world, options, policy, words)?, &[], &suite.inside)?)
}

/// Tries an attempt, and then its control.
///
/// # Errors
/// What got out, which evidence is missing, or what of the control did not work.
pub fn attempt(
    suite: &SuiteDirectory,
    world: &World,
    control_results: &ControlResults,
    attempt: &Attempt,
) -> Result<(), String> {
    let token = canary();
    let run = sandboxed(suite, world, attempt.options, attempt.policy, attempt.call, &token)?;
    let wants = attempt.wants.replace("{canary}", &token);
    refused(&run, &wants, attempt.evidence, attempt.may, &token).map_err(|why| format!("{why}\n{}", run.shown()))?;

    let (options, policy, call) = match attempt.control {
        Control::Options(options) => (Some(options), attempt.policy, attempt.call),
        Control::Call(call) => (Some(attempt.options), attempt.policy, call),
        Control::Both(options, call) => (Some(options), attempt.policy, call),
        Control::Policy(policy) => (Some(attempt.options), policy, attempt.call),
        Control::Outside => (None, "", attempt.call),
        Control::OutsideCall(call) => (None, "", call),
    };
    let wants = if attempt.control_wants.is_empty() { attempt.wants } else { attempt.control_wants };
    let verdict =
        control_results.known(&(options, policy, call, wants), || control(suite, world, options, policy, call, wants));
    verdict.map_err(|why| format!("the allowed control: {why}"))
}

/// A control, which many attempts may share: options (none: outside of a sandbox), policy, call, wanted output.
type Key = (Option<&'static [&'static str]>, &'static str, &'static [&'static str], &'static str);

/// Verdicts of controls that have been tried in one world.
#[derive(Debug, Default)]
pub struct ControlResults(Mutex<HashMap<Key, Result<(), String>>>);

impl ControlResults {
    fn known(&self, key: &Key, tried: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let mut verdicts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.entry(*key).or_insert_with(tried).clone()
    }
}

fn control(
    suite: &SuiteDirectory,
    world: &World,
    options: Option<&[&str]>,
    policy: &str,
    call: &[&str],
    wants: &str,
) -> Result<(), String> {
    let token = canary();
    let run = match options {
        Some(options) => sandboxed(suite, world, options, policy, call, &token)?,
        None => {
            let Ended { stdout, stderr, seen, .. } =
                world.run(&filled(suite, world, call, &token), &[], &suite.inside)?;
            Run { outcome: Value::Null, stdout, stderr, seen, said: String::new() }
        }
    };
    works(&run, &wants.replace("{canary}", &token), call, &token).map_err(|why| format!("{why}\n{}", run.shown()))
}

/// Tries a client on the host that is allowed, and on one that is not.
///
/// # Errors
/// Says what did not work, or what got out.
pub fn client(suite: &SuiteDirectory, world: &World, client: &Client) -> Result<(), String> {
    let call = |host: &str| -> Vec<String> { client.call.iter().map(|word| word.replace("{host}", host)).collect() };
    let tried = |host: &str, canary: &str| {
        let call = call(host);
        let call: Vec<&str> = call.iter().map(String::as_str).collect();
        sandboxed(suite, world, client.options, "", &call, canary)
    };
    let token = canary();
    let run = tried(client.allowed, &token)?;
    works(&run, client.wants, client.call, &token).map_err(|why| format!("{why}\n{}", run.shown()))?;
    let token = canary();
    let run = tried(client.refused, &token)?;
    refused(&run, client.wants, Evidence::Event(&["not_allowed"]), &[], &token)
        .map_err(|why| format!("at a host that is not allowed: {why}\n{}", run.shown()))
}

/// Whether an attempt was made, and nothing of it arrived anywhere.
fn refused(run: &Run, wants: &str, evidence: Evidence, may: &[&str], canary: &str) -> Result<(), String> {
    let code = run.outcome["exit_code"].as_i64();
    if matches!(code, Some(126 | 127)) {
        return Err("the program cannot be started: nothing was tried".into());
    }
    if run.stdout.contains(wants) {
        return Err(format!("IT GOT OUT: the answer has {wants:?}"));
    }
    arrived(&run.seen, may, canary)?;
    let reasons = run.reasons();
    let by_event = |wanted: &[&str]| reasons.iter().any(|reason| wanted.contains(reason));
    let by_error = |wanted: &[&str]| wanted.iter().any(|error| run.stderr.contains(error));
    match evidence {
        Evidence::Event(wanted) if !by_event(wanted) => Err(format!("no event says {wanted:?}, but {reasons:?}")),
        Evidence::Error(wanted) if !by_error(wanted) => Err(format!("the program did not print {wanted:?}")),
        Evidence::Any(wanted, errors) if !by_event(wanted) && !by_error(errors) => {
            Err(format!("neither an event says {wanted:?} nor did the program print {errors:?}"))
        }
        _ => Ok(()),
    }
}

/// Whether anything is in the record that must not be.
fn arrived(seen: &[Value], may: &[&str], canary: &str) -> Result<(), String> {
    for entry in seen {
        // Resolvers ask for names in whatever case.
        let text = entry.to_string().to_lowercase();
        if text.contains(canary) || text.contains(EVIL) {
            return Err(format!("IT GOT OUT: the record has {text}"));
        }
        let (to, port) = (entry["to"].as_str().unwrap_or_default(), entry["port"].as_u64());
        match entry["on"].as_str() {
            Some("app") => {}
            Some("out") if to == RESOLVER && port == Some(53) => {}
            Some("out") if may.contains(&to) && entry["protocol"] == "tcp" => {}
            _ => return Err(format!("IT GOT OUT: a packet that nothing allows: {text}")),
        }
    }
    Ok(())
}

/// Whether it got there, and was seen to.
fn works(run: &Run, wants: &str, call: &[&str], canary: &str) -> Result<(), String> {
    if !run.stdout.contains(wants) {
        return Err(format!("the answer has not {wants:?}"));
    }
    let sends = call.iter().any(|word| word.contains("{canary}"));
    if sends && !run.seen.iter().any(|entry| entry.to_string().to_lowercase().contains(canary)) {
        return Err("the record has nothing of it, so it would not have seen an escape either".into());
    }
    Ok(())
}
