//! Prepares a policy for many runs with different code: the command is complete except for the code. Pure.

use cofferdam_policy::{Policy, Stdin};

use super::discover::DiscoveryFiles;
use super::metadata::StdinMode;
use super::preset;
use super::spec::{CodeInput, CodeSlot, EnvironmentSpec};
use super::{InterpreterSurroundings, stdin_mode_of};

impl EnvironmentSpec {
    /// Sets the policy's command to one that runs code, and returns how each run passes its code. `long` is for code of more than
    /// [`super::LONGEST_ARGUMENT`] bytes.
    ///
    /// # Errors
    /// Why code cannot be passed, possibly with a `hint:`.
    pub fn open(
        &self,
        policy: &mut Policy,
        around: InterpreterSurroundings<'_>,
        tree: &dyn DiscoveryFiles,
        long: bool,
    ) -> Result<CodeSlot, String> {
        let (argv, mode) = match &self.code_input {
            CodeInput::Preset(name) => {
                return preset::open(policy, self.surroundings(around), tree, name, long)
                    .map_err(|error| error.to_string());
            }
            CodeInput::Image(name) => {
                return preset::open_image(policy, name, long).map_err(|error| error.to_string());
            }
            CodeInput::Words { argv, mode } => (argv.clone(), *mode),
            CodeInput::Program(program) => (vec![program.clone()], StdinMode::Pipe),
            CodeInput::Own => (policy.command.argv.clone(), stdin_mode_of(&policy.command.argv.join(" "))),
        };
        if argv.is_empty() {
            return Err(super::spec::NO_COMMAND.into());
        }
        policy.command.argv = argv;
        match mode {
            StdinMode::Arg if long => Err(super::spec::too_long(None)),
            StdinMode::Arg => Ok(CodeSlot::Argument { after: Vec::new() }),
            StdinMode::Pipe if policy.command.stdin != Stdin::Closed => {
                Err("this environment takes code on standard input, which is asked for otherwise".into())
            }
            StdinMode::Pipe => {
                policy.command.stdin = Stdin::Caller;
                Ok(CodeSlot::Input)
            }
        }
    }
}
