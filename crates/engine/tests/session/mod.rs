//! What the tests of sessions start with.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_engine::session::{
    Agent, SessionAnswer, SessionCall, SessionError, SessionKey, SessionLimits, SessionStart, Sessions,
};
use cofferdam_engine::{Cancel, Engine, Failure, Output};
use cofferdam_policy::{BackendName, Field, Policy};

mod endings;
mod forging;
mod network;
mod state;
mod streams;
mod table;

/// A language to test with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Language {
    pub agent: Agent,
    pub programs: &'static [&'static str],
}

pub(crate) const PYTHON: Language = Language { agent: Agent::Python, programs: &["/usr/bin/python3"] };
pub(crate) const NODE: Language = Language { agent: Agent::Node, programs: &["/usr/bin/node"] };
pub(crate) const SHELL: Language = Language { agent: Agent::Shell, programs: &["/bin/bash", "/usr/bin/bash"] };

/// A skip, which `COFFERDAM_MUST_WORK=1` makes a failure.
pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
    assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{why}");
}

impl Language {
    /// Its interpreter, where there is one.
    pub(crate) fn program(self) -> Option<&'static str> {
        let found = self.programs.iter().find(|p| Path::new(p).exists()).copied();
        if found.is_none() {
            skipped(&format!("none of {:?}", self.programs));
        }
        found
    }
}

/// Backends to test with, those that are here.
pub(crate) fn backends() -> Vec<BackendName> {
    [BackendName::Jail, BackendName::Landlock]
        .into_iter()
        .filter(|&backend| {
            let mut policy = Policy::base();
            policy.command.argv = vec!["/bin/true".into()];
            policy.backend = backend;
            policy.enforcement.best_effort = Field::ALL.iter().copied().collect();
            match Engine::probe().prepare(&policy) {
                Ok(_) => true,
                Err(failure) => {
                    skipped(&format!("{backend:?}: {}", failure.message));
                    false
                }
            }
        })
        .collect()
}

/// A program's sessions, one owner's.
pub(crate) struct Desk {
    pub sessions: Arc<Sessions>,
    pub backend: BackendName,
}

pub(crate) fn desk(backend: BackendName, limits: SessionLimits) -> Desk {
    Desk { sessions: Arc::new(Sessions::new(Arc::new(Engine::probe()), limits).unwrap()), backend }
}

pub(crate) fn key(name: &str) -> SessionKey {
    SessionKey { owner: "me".into(), name: name.into() }
}

pub(crate) fn policy(program: &str, backend: BackendName) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec![program.into()];
    policy.backend = backend;
    if backend == BackendName::Landlock {
        policy.enforcement.best_effort = Field::ALL.iter().copied().collect();
        // Without a user namespace the kernel counts all that the user runs, other tests included, and those come and go.
        policy.limits.processes = 8192;
    }
    policy
}

pub(crate) fn call(code: &str) -> SessionCall {
    SessionCall {
        code: code.into(),
        timeout: Duration::from_secs(30),
        output: Output::Capture,
        cancel: Cancel::default(),
        unheard_when_cancelled: false,
    }
}

impl Desk {
    pub(crate) fn start(&self, language: Language) -> impl FnOnce() -> Result<SessionStart, Failure> + use<> {
        let backend = self.backend;
        move || {
            let program = language.program().unwrap_or("/nonexistent");
            let mut policy = policy(program, backend);
            policy.limits.memory_mb = 1024;
            Ok(SessionStart { policy, agent: language.agent, hands_over: None, recorded: None })
        }
    }

    pub(crate) fn ask(&self, language: Language, name: &str, call: SessionCall) -> Result<SessionAnswer, SessionError> {
        self.sessions.call(&key(name), "test", self.start(language), call)
    }

    /// Runs code that has to be answered.
    pub(crate) fn run(&self, language: Language, name: &str, code: &str) -> SessionAnswer {
        self.ask(language, name, call(code)).unwrap_or_else(|e| panic!("{language:?} {:?}: {e}: {e:?}", self.backend))
    }

    /// Its output, where it went well and the session lives on.
    pub(crate) fn out(&self, language: Language, name: &str, code: &str) -> String {
        let answer = self.run(language, name, code);
        assert!(answer.success() && answer.ended.is_none(), "{language:?} {:?} {code}: {answer:?}", self.backend);
        answer.stdout
    }
}
