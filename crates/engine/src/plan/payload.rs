//! The parts of an init plan that do not depend on a backend: program, arguments, variables, directory, filter.

use cofferdam_confine::InitPlan;
use cofferdam_confine::wire::flag;
use cofferdam_policy::{OnViolation, Policy};

use crate::plan::seccomp_filter::CompiledFilter;

/// Where a program without a slash is looked for when the policy names no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Fills them in.
pub(crate) fn fill(init_plan: &mut InitPlan, policy: &Policy, flags: u32, filter: &CompiledFilter) {
    init_plan.flags = flags;
    if !policy.process.spawn {
        init_plan.flags |= flag::NO_SPAWN;
    }
    if policy.on_violation == OnViolation::Terminate {
        init_plan.flags |= flag::TERMINATE;
    }
    if policy.audit.trace {
        init_plan.flags |= flag::TRACE;
    }
    init_plan.argv = policy.command.argv.clone();
    init_plan.envp = policy.command.variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
    init_plan.programs = candidates_of(policy);
    let home = policy.command.variables.get("HOME").map_or("/", String::as_str);
    init_plan.cwd = policy.command.cwd.clone().unwrap_or_else(|| home.to_owned());
    init_plan.filter = filter.filter.clone();
    init_plan.classifier = filter.classifier.clone();
}

/// The paths inside at which the policy's program is looked for, in order.
pub(crate) fn candidates_of(policy: &Policy) -> Vec<String> {
    let path = policy.command.variables.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    candidates(policy.command.argv.first().map_or("", String::as_str), path)
}

/// The paths at which a program is looked for, as execvp(3) does; never the working directory.
fn candidates(program: &str, path: &str) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    path.split(':').filter(|d| d.starts_with('/')).map(|d| format!("{}/{program}", d.trim_end_matches('/'))).collect()
}

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn a_name_is_looked_for_in_absolute_directories_of_path_only() {
        assert_eq!(candidates("x", "/a:.:b::/c/"), ["/a/x", "/c/x"]);
        assert_eq!(candidates("./x", "/a"), ["./x"]);
    }
}
