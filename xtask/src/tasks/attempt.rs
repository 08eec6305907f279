//! One task as one user: what it needs, its setup, what is typed, and the verdict.

use std::collections::BTreeMap;
use std::path::Path;

use super::data::{Task, WITHIN};
use super::home::Home;
use super::judge::{self, Seen, Verdict};
use super::stand_ins::{Network, StandIns};
use super::{calls, process, terminal};
use crate::Result;

/// A lane of a user, whose tasks run one after the other.
pub(super) struct Attempts {
    home: Home,
    stand_ins: StandIns,
    /// From the first task on that needs one; or why there is none.
    network: Option<Result<Network>>,
    /// What was looked for already, and whether it is there.
    installed: BTreeMap<String, bool>,
}

impl Attempts {
    pub(super) fn new(home: Home, stand_ins: StandIns) -> Attempts {
        Attempts { home, stand_ins, network: None, installed: BTreeMap::new() }
    }

    /// Runs a task.
    ///
    /// # Errors
    /// The machine does not allow it; the task is not judged.
    pub(super) fn run(&mut self, task: &Task) -> Result<Verdict> {
        for need in &task.needs {
            if !self.has(need)? {
                return Ok(Verdict::NotRun(format!("{need} is missing")));
            }
        }
        if let Some(reason) = self.unserved(task) {
            return Ok(Verdict::NotRun(reason));
        }
        let project = self.home.fresh(task, self.network_of(task))?;
        let verdict = match self.judge(task, &project)? {
            Ok(verdict) => verdict,
            Err(reason) => Verdict::Failed(reason),
        };
        self.home.clear()?;
        Ok(verdict)
    }

    /// Why the stand-ins of a task are not there. The first task that has any waits for the network.
    fn unserved(&mut self, task: &Task) -> Option<String> {
        if task.serve.is_empty() {
            return None;
        }
        let network = match self.network.take() {
            Some(network) => network,
            None => match StandIns::missing() {
                Some(reason) => Err(reason),
                None => self.stand_ins.start(self.home.directory()),
            },
        };
        match self.network.insert(network) {
            Ok(network) => network.lacks(&task.serve),
            Err(reason) => Some(reason.clone()),
        }
    }

    /// The network in which a task runs; none where it has no stand-ins.
    fn network_of(&self, task: &Task) -> Option<&Network> {
        self.network.as_ref().filter(|_| !task.serve.is_empty())?.as_ref().ok()
    }

    fn judge(&self, task: &Task, project: &Path) -> Result<std::result::Result<Verdict, String>> {
        let network = self.network_of(task);
        if !task.setup.is_empty() {
            let seen = process::run(&mut self.home.shell(&task.setup, None, project, network, false), WITHIN)?;
            if let Err(reason) = judge::after(&task.setup, &seen) {
                return Ok(Err(reason.replacen("afterwards", "its setup", 1)));
            }
        }
        let first = self.typed(task, &task.first, project)?;
        if let Err(reason) = judge::message(task, &first) {
            return Ok(Err(reason));
        }
        let (last, verdict) = match &task.then {
            Some(then) => (self.typed(task, then, project)?, Verdict::Second),
            None => (first, Verdict::First),
        };
        if let Err(reason) = judge::output(task, &last) {
            return Ok(Err(reason));
        }
        if let Some(script) = &task.after {
            let seen = process::run(&mut self.home.shell(script, None, project, network, false), WITHIN)?;
            if let Err(reason) = judge::after(script, &seen) {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(verdict))
    }

    fn typed(&self, task: &Task, line: &str, project: &Path) -> Result<Seen> {
        let mut command = self.home.shell(line, Some(task), project, self.network_of(task), task.terminal);
        if task.terminal {
            terminal::run(&mut command, self.home.switch(), &task.keys, task.within)
        } else if task.calls.is_empty() {
            process::run(&mut command, task.within)
        } else {
            calls::run(&mut command, &task.calls, task.within)
        }
    }

    /// Whether a program or Python module is there for this user. A shim of pyenv may stand for versions that are not selected.
    fn has(&mut self, need: &str) -> Result<bool> {
        if let Some(there) = self.installed.get(need) {
            return Ok(*there);
        }
        let script = match need.strip_prefix("python:") {
            Some(module) => format!("python3 -c 'import {module}'"),
            None => format!("p=$(type -P {need}) || exit; case $p in */shims/*) pyenv which {need};; esac"),
        };
        let seen = process::run(&mut self.home.shell(&script, None, self.home.directory(), None, false), WITHIN)?;
        let there = seen.code == Some(0);
        self.installed.insert(need.to_owned(), there);
        Ok(there)
    }
}
