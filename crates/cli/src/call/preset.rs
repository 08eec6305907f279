//! The presets of `eval`: puts an interpreter and its code into the command of a policy, with errors in the command's terms.
//!
//! Which interpreter runs the code is found by `cofferdam_config`.

use cofferdam_config::environments::discover::DiscoveryFiles;
use cofferdam_config::environments::{InterpreterSurroundings, PresetError, image_preset, preset};
use cofferdam_policy::Policy;

use crate::refusal::{CliRefusal, REFUSED};

pub use cofferdam_config::environments::{CodeSource, LONGEST_ARGUMENT, PRESETS as NAMES};

/// Sets the policy's command to the interpreter of a preset with this code, and adds the mounts that the interpreter needs.
///
/// # Errors
/// There is no such interpreter, or it cannot take this code.
pub fn apply(
    policy: &mut Policy,
    around: InterpreterSurroundings<'_>,
    tree: &dyn DiscoveryFiles,
    name: &str,
    code: CodeSource,
    arguments: &[String],
) -> Result<(), CliRefusal> {
    preset(policy, around, tree, name, code, arguments).map_err(refused)
}

/// The same with the interpreter of an image, which is named and not searched for.
///
/// # Errors
/// The interpreter cannot take this code.
pub(crate) fn apply_in_image(
    policy: &mut Policy,
    name: &str,
    code: CodeSource,
    arguments: &[String],
) -> Result<(), CliRefusal> {
    image_preset(policy, name, code, arguments).map_err(refused)
}

fn refused(error: PresetError) -> CliRefusal {
    let (step, code) = match error {
        PresetError::NoInterpreter { .. } | PresetError::NoVenv { .. } => ("interpreter", 127),
        _ => ("arguments", REFUSED),
    };
    CliRefusal::new(step, error.to_string()).split_hint().code(code)
}
