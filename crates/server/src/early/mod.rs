//! Interpreters that are started before the call that they are for: which can be, and how code goes into one. What holds a
//! sandbox and ends it with its one call is the engine's; here is said what waits in it.
//!
//! An interpreter that waits must run code as one that is started with it would: what it cannot do so, it does not do.

use std::time::Duration;

use cofferdam_config::environments::Entry;
use cofferdam_engine::{Early, Engine, Input, Io, Outcome};
use cofferdam_policy::{Policy, Stdin};

/// How long one waits for its call.
const LIFE: Duration = Duration::from_secs(60);

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Node,
}

impl Language {
    /// Of a command that takes code as its next argument. A shell is up in a millisecond, and what it says of mistakes names
    /// the way in which it got the code.
    fn of(argv: &[String]) -> Option<Language> {
        let [program, .., last] = argv else { return None };
        let name = program.rsplit('/').next().unwrap_or(program);
        match last.as_str() {
            "-c" if name.starts_with("python") => Some(Language::Python),
            "-e" if name.starts_with("node") => Some(Language::Node),
            _ => None,
        }
    }

    /// What it runs until the code comes.
    fn program(self) -> &'static str {
        match self {
            Language::Python => include_str!("python.py"),
            Language::Node => include_str!("node.js"),
        }
    }

    /// Whether it can run this code as one that is started with it. What node takes for a module it runs another way, and
    /// what imports modules while it runs needs a loader that only its own code has.
    fn takes(self, code: &str) -> bool {
        self == Language::Python || !["await", "import", "export"].iter().any(|word| code.contains(word))
    }
}

/// What starts the interpreter of an environment ahead of calls.
#[derive(Debug)]
pub struct Waiting {
    early: Early,
    language: Language,
}

impl Waiting {
    /// For calls of this policy, where that can be done.
    pub fn of(engine: &Engine, policy: &Policy, entry: &Entry, hands_back: (&str, &str)) -> Option<Waiting> {
        let (policy, language) = waits(policy, entry)?;
        match engine.prepare(&policy) {
            Ok(prepared) => {
                let early = Early::new(prepared.hands_back(hands_back.0, hands_back.1), LIFE)?;
                Some(Waiting { early, language })
            }
            Err(failure) => {
                tracing::debug!("no interpreter is started early: {}", failure.message);
                None
            }
        }
    }

    /// Starts one for the next call.
    pub fn start(&self) {
        self.early.start();
    }

    /// Runs code in the one that waits. `None` where none does that can: nothing was run.
    pub fn run(&self, code: &str, io: &mut Io) -> Option<Outcome> {
        if !self.language.takes(code) {
            return None;
        }
        io.input = Input::Bytes(code.as_bytes().to_vec());
        let outcome = self.early.run(io)?;
        tracing::debug!("a run had an interpreter that waited for it");
        Some(outcome)
    }
}

/// The policy of an interpreter that waits for its code on standard input, as one runs that gets it as an argument.
fn waits(policy: &Policy, entry: &Entry) -> Option<(Policy, Language)> {
    let language = Language::of(&policy.command.argv)?;
    if *entry != (Entry::Argument { after: Vec::new() }) || policy.command.stdin != Stdin::Closed {
        return None;
    }
    let mut policy = policy.clone();
    policy.command.argv.push(language.program().into());
    policy.command.stdin = Stdin::Caller;
    Some((policy, language))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(argv: &[&str]) -> Policy {
        let mut policy = Policy::base();
        policy.command.argv = argv.iter().map(|&word| word.to_owned()).collect();
        policy
    }

    #[test]
    fn what_takes_code_as_an_argument_can_wait_for_it_and_nothing_else_can() {
        let argument = Entry::Argument { after: Vec::new() };
        for (argv, language) in
            [(&["/usr/bin/python3", "-I", "-c"][..], Language::Python), (&["node", "-e"], Language::Node)]
        {
            let (waiting, is) = waits(&policy(argv), &argument).unwrap();
            assert_eq!((is, &waiting.command.argv[..argv.len()]), (language, &policy(argv).command.argv[..]));
            assert_eq!(waiting.command.argv[argv.len()..], [language.program()]);
            assert_eq!(waiting.command.stdin, Stdin::Caller);
        }
        let named = Entry::Argument { after: vec!["shell".into()] };
        for (argv, entry) in [
            (&["/bin/bash", "-c"][..], &named),
            (&["/bin/bash", "-c"], &argument),
            (&["node", "-p"], &argument),
            (&["python3", "-m"], &argument),
            (&["python3"], &argument),
            (&["python3", "-c"], &named),
            (&["python3", "-c"], &Entry::Input),
        ] {
            assert!(waits(&policy(argv), entry).is_none(), "{argv:?}");
        }
        let mut taken = policy(&["python3", "-c"]);
        taken.command.stdin = Stdin::Caller;
        assert!(waits(&taken, &argument).is_none());
    }

    #[test]
    fn what_node_may_take_for_a_module_is_not_for_one_that_waits() {
        for code in ["await 1", "import fs from 'fs'", "export default 1", "import('fs')"] {
            assert!(!Language::Node.takes(code), "{code}");
        }
        assert!(Language::Node.takes("console.log(1)") && Language::Python.takes("import os"));
    }

    #[test]
    fn what_waits_fits_into_one_argument() {
        for language in [Language::Python, Language::Node] {
            assert!(language.program().len() < 10_000 && !language.program().contains('\0'), "{language:?}");
        }
    }
}
