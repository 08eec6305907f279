//! How code goes into a policy that is prepared once and run many times with different code. Pure.

use cofferdam_policy::{Policy, Stdin};

use super::discover::Tree;
use super::metadata::StdinMode;
use super::preset;
use super::recipe::{Passing, Recipe};
use super::{Around, stdin_mode_of};

/// How code goes into a prepared policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// As an argument behind those of the policy's command.
    Argument {
        /// What stands behind the code.
        after: Vec<String>,
    },
    /// On standard input, which is the caller's.
    Input,
}

impl Recipe {
    /// Makes the policy's command one that runs code, and says how each run's code goes in. `long` is for code of more
    /// than [`super::LONGEST_ARGUMENT`] bytes.
    ///
    /// # Errors
    /// Why it cannot go in, with a `hint:` where there is one.
    pub fn open(&self, policy: &mut Policy, around: Around<'_>, tree: &dyn Tree, long: bool) -> Result<Entry, String> {
        let (argv, mode) = match &self.passing {
            Passing::Preset(name) => {
                return preset::open(policy, around, tree, name, long).map_err(|error| error.to_string());
            }
            Passing::Image(name) => {
                return preset::open_image(policy, name, long).map_err(|error| error.to_string());
            }
            Passing::Words { argv, mode } => (argv.clone(), *mode),
            Passing::Program(program) => (vec![program.clone()], StdinMode::Pipe),
            Passing::Own => (policy.command.argv.clone(), stdin_mode_of(&policy.command.argv.join(" "))),
        };
        if argv.is_empty() {
            return Err(super::recipe::NO_COMMAND.into());
        }
        policy.command.argv = argv;
        match mode {
            StdinMode::Arg if long => Err(super::recipe::too_long(None)),
            StdinMode::Arg => Ok(Entry::Argument { after: Vec::new() }),
            StdinMode::Pipe if policy.command.stdin != Stdin::Closed => {
                Err("this environment takes code on standard input, which is asked for otherwise".into())
            }
            StdinMode::Pipe => {
                policy.command.stdin = Stdin::Caller;
                Ok(Entry::Input)
            }
        }
    }
}
