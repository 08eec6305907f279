//! Interpreters that are started before the call that uses them: which interpreters can be, and how code is passed to one. The
//! engine keeps the sandbox and ends it with its one call; this module supplies the program that waits in it.
//!
//! A waiting interpreter must run code exactly as one that is started with the code. Code for which it cannot is not passed to it.

use std::time::Duration;

use cofferdam_config::environments::CodeSlot;
use cofferdam_engine::{Early, Engine, Input, Io, Outcome};
use cofferdam_policy::{Policy, Stdin};

/// How long an interpreter waits for its call.
const LIFETIME: Duration = Duration::from_secs(60);

/// A language whose interpreter can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Node,
}

impl Language {
    /// The language of a command that takes code as its next argument. Shells are not among them: they start within a
    /// millisecond, and their error messages name the way in which they got the code.
    fn of(argv: &[String]) -> Option<Language> {
        let [program, .., last] = argv else { return None };
        let name = program.rsplit('/').next().unwrap_or(program);
        match last.as_str() {
            "-c" if name.starts_with("python") => Some(Language::Python),
            "-e" if name.starts_with("node") => Some(Language::Node),
            _ => None,
        }
    }

    /// The program that it runs until it receives the code.
    fn program(self) -> &'static str {
        match self {
            Language::Python => include_str!("python.py"),
            Language::Node => include_str!("node.js"),
        }
    }

    /// Whether a waiting interpreter runs this code as one that is started with it would. Node runs what it takes for a module in
    /// another way, and dynamic imports need a loader that only its own `-e` code has.
    fn takes(self, code: &str) -> bool {
        self == Language::Python || !["await", "import", "export"].iter().any(|word| code.contains(word))
    }
}

/// Starts the interpreter of an environment before its calls.
#[derive(Debug)]
pub(crate) struct WarmPool {
    early: Early,
    language: Language,
}

impl WarmPool {
    /// A pool for calls of this policy; `None` if its interpreter cannot be started before its calls.
    pub(crate) fn new(
        engine: &Engine,
        policy: &Policy,
        entry: &CodeSlot,
        hands_back: (&str, &str),
    ) -> Option<WarmPool> {
        let (policy, language) = waiting_policy(policy, entry)?;
        match engine.prepare(&policy) {
            Ok(prepared) => {
                let early = Early::new(prepared.hands_back(hands_back.0, hands_back.1), LIFETIME)?;
                Some(WarmPool { early, language })
            }
            Err(failure) => {
                tracing::debug!("no interpreter is started before its call: {}", failure.message);
                None
            }
        }
    }

    /// Starts an interpreter for the next call.
    pub(crate) fn start(&self) {
        self.early.start();
    }

    /// Runs code in a waiting interpreter. `None` if none waits, or it cannot run this code: then nothing was run.
    pub(crate) fn run(&self, code: &str, io: &mut Io) -> Option<Outcome> {
        if !self.language.takes(code) {
            return None;
        }
        io.input = Input::Bytes(code.as_bytes().to_vec());
        let outcome = self.early.run(io)?;
        tracing::debug!("a run used an interpreter that was started before it");
        Some(outcome)
    }
}

/// The policy of an interpreter that waits for its code on standard input, and else runs it as one given as an argument.
fn waiting_policy(policy: &Policy, entry: &CodeSlot) -> Option<(Policy, Language)> {
    let language = Language::of(&policy.command.argv)?;
    if *entry != (CodeSlot::Argument { after: Vec::new() }) || policy.command.stdin != Stdin::Closed {
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
    fn only_interpreters_taking_code_as_an_argument_can_wait() {
        let argument = CodeSlot::Argument { after: Vec::new() };
        for (argv, language) in
            [(&["/usr/bin/python3", "-I", "-c"][..], Language::Python), (&["node", "-e"], Language::Node)]
        {
            let (waiting, is) = waiting_policy(&policy(argv), &argument).unwrap();
            assert_eq!((is, &waiting.command.argv[..argv.len()]), (language, &policy(argv).command.argv[..]));
            assert_eq!(waiting.command.argv[argv.len()..], [language.program()]);
            assert_eq!(waiting.command.stdin, Stdin::Caller);
        }
        let named = CodeSlot::Argument { after: vec!["shell".into()] };
        for (argv, entry) in [
            (&["/bin/bash", "-c"][..], &named),
            (&["/bin/bash", "-c"], &argument),
            (&["node", "-p"], &argument),
            (&["python3", "-m"], &argument),
            (&["python3"], &argument),
            (&["python3", "-c"], &named),
            (&["python3", "-c"], &CodeSlot::Input),
        ] {
            assert!(waiting_policy(&policy(argv), entry).is_none(), "{argv:?}");
        }
        let mut taken = policy(&["python3", "-c"]);
        taken.command.stdin = Stdin::Caller;
        assert!(waiting_policy(&taken, &argument).is_none());
    }

    #[test]
    fn code_that_node_may_take_for_a_module_is_not_passed() {
        for code in ["await 1", "import fs from 'fs'", "export default 1", "import('fs')"] {
            assert!(!Language::Node.takes(code), "{code}");
        }
        assert!(Language::Node.takes("console.log(1)") && Language::Python.takes("import os"));
    }

    #[test]
    fn waiting_programs_fit_into_one_argument() {
        for language in [Language::Python, Language::Node] {
            assert!(language.program().len() < 10_000 && !language.program().contains('\0'), "{language:?}");
        }
    }
}
