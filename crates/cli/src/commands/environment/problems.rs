//! Mistakes and warnings of definitions, printed on standard error.

use cofferdam_config::environments::{DefinitionProblem, EnvironmentKind, Environments};

use crate::output::stderr::{self, print_note};
use crate::output::text::paragraph;

/// All mistakes: of the definitions as a whole, and of single ones.
pub(super) fn mistakes(all: &Environments) -> Vec<DefinitionProblem> {
    let broken = all.all().iter().filter_map(|one| match &one.kind {
        EnvironmentKind::Broken(problems) => Some(problems.as_slice()),
        _ => None,
    });
    all.problems.iter().chain(broken.flatten()).cloned().collect()
}

/// Prints the warnings.
pub(super) fn print_warnings(all: &Environments) {
    for warning in &all.warnings {
        print_note(&format!("warning: {warning}"), None);
    }
}

/// Prints the mistakes.
pub(super) fn print_problems(problems: &[DefinitionProblem]) {
    let text: String =
        problems.iter().map(|problem| format!("cofferdam: {}\n", paragraph(&problem.to_string()))).collect();
    stderr::write(&text);
}
