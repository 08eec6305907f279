//! The presets of `eval`, told in the command's own terms. Which interpreter runs the code is the library's to find.

use cofferdam_config::environments::{PresetError, image_preset, preset};
use cofferdam_policy::Policy;

use crate::caller::Caller;
use crate::discover::Tree;
use crate::report::Refusal;

pub use cofferdam_config::environments::{Code, LONGEST_ARGUMENT, PRESETS as NAMES};

/// Fills the command of an `eval` into the policy, with the mounts that the interpreter needs.
pub fn enter(
    policy: &mut Policy,
    caller: &Caller,
    tree: &dyn Tree,
    name: &str,
    code: Code,
    arguments: &[String],
) -> Result<(), Refusal> {
    preset(policy, caller.around(), tree, name, code, arguments).map_err(refused)
}

/// The same with the interpreter that an image has, by its name.
pub fn enter_image(policy: &mut Policy, name: &str, code: Code, arguments: &[String]) -> Result<(), Refusal> {
    image_preset(policy, name, code, arguments).map_err(refused)
}

fn refused(error: PresetError) -> Refusal {
    let (step, code) = match error {
        PresetError::NoInterpreter { .. } => ("interpreter", 127),
        _ => ("arguments", crate::report::REFUSED),
    };
    Refusal::new(step, error.to_string()).split_hint().code(code)
}
