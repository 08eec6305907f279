//! Hints for a run of a skill that did not start, in terms of `--config FILE` and the options of `skill run`. The engine's hints
//! name options of `run`, which `skill run` does not have. Pure.

use cofferdam_engine::Failure;

use crate::failure::{best_effort_fields, is_exec, mount_target, names_option_of_run};

/// Replaces a hint that only `run` has options for by one that an operator can follow.
pub(crate) fn replace_hint(failure: &mut Failure) {
    let Some(hint) = failure.hint.as_deref() else { return };
    if let Some(fields) = best_effort_fields(hint) {
        failure.hint = Some(for_unenforced(fields));
        return;
    }
    let target = mount_target(failure);
    if target.is_some_and(|target| target.starts_with("/input/")) {
        failure.hint = Some("--config FILE: `image` with an empty /input; or leave image out".into());
    } else if let Some(target) = target {
        failure.hint = Some(format!(
            "--config FILE: `image` with {target} in that directory, which needs /skill, /tmp, /dev, /proc, /sys, the target \
             of each of `volumes`, an empty /input for --input and /output for --output; or leave image out"
        ));
    } else if is_exec(failure) {
        failure.hint = Some(
            "--config FILE: command = [\"/path/inside\", …], a program that is there; an `image` has to have it itself"
                .into(),
        );
    } else if names_option_of_run(hint) {
        failure.hint = Some(for_field(failure.step.as_str()).to_owned());
    }
}

/// The hint for fields that the backend does not enforce in full. Of a skill's policy, only limits may be enforced in part.
fn for_unenforced(fields: &str) -> String {
    let (limits, others): (Vec<&str>, Vec<&str>) = fields.split(',').partition(|field| field.starts_with("limits."));
    let Some(first) = others.first() else {
        return format!("--best-effort={} takes what can be had; or another --backend", limits.join(","));
    };
    let mut hint = for_field(first).to_owned();
    if !limits.is_empty() {
        hint.push_str(&format!("; of the limits --best-effort={} takes what can be had", limits.join(",")));
    }
    hint
}

/// What an operator can change about a field of the policy.
fn for_field(field: &str) -> &'static str {
    match field.split('.').next().unwrap_or(field) {
        "network" => {
            "another --backend, such as jail or oci:crun; or --config FILE with networkMode = \"none\", and without \
             ISCL_API_URL in env"
        }
        "filesystem" => {
            "another --backend, such as jail; or --config FILE with another `image`, or without image and volumes"
        }
        _ => "another --backend, such as jail, docker or oci:crun; cofferdam doctor says which there are",
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_engine::FailedStep;
    use cofferdam_policy::Field;

    use super::*;

    fn hint(step: impl Into<FailedStep>, message: &str, hint: &str) -> String {
        let mut failure =
            Failure { code: 125, step: step.into(), message: message.into(), hint: Some(hint.to_owned()) };
        replace_hint(&mut failure);
        failure.hint.unwrap()
    }

    #[test]
    fn hints_name_only_options_of_skill_run() {
        let offered = "--best-effort=network.mode,network.api (enforcement.best_effort) takes what can be had";
        let of = hint(Field::Network, "gVisor can hold network.mode not at all", offered);
        assert!(of.contains("networkMode") && of.contains("--backend") && !of.contains("best-effort"), "{of}");
        let of = hint(Field::Memory, "in part", "--best-effort=limits.memory_mb,limits.tasks (enforcement) takes");
        assert!(of.starts_with("--best-effort=limits.memory_mb,limits.tasks takes"), "{of}");
        let of = hint(Field::Network, "in part", "--best-effort=network.mode,limits.memory_mb (enforcement) takes");
        assert!(of.contains("networkMode") && of.contains("--best-effort=limits.memory_mb "), "{of}");
        let of = hint(Field::Mounts, "mount target /input/a.txt does not exist inside: No such file", "make it");
        assert!(of.contains("an empty /input;"), "{of}");
        let elsewhere = "it is the working directory: start elsewhere with -w /, or make that directory in the root";
        let of = hint(Field::Mounts, "mount target /skill is not a directory inside", elsewhere);
        assert!(of.contains("/skill in that directory") && of.contains("image") && !of.contains("-w"), "{of}");
        let of = hint(FailedStep::Exec, "node: not found on the sandbox's PATH", "mount its directory with -v");
        assert!(of.contains("command = ") && !of.contains("-v"), "{of}");
        let of = hint(Field::Root, "no view", "use --root minimal, or --image");
        assert!(of.contains("`image`") && !of.contains("--root"), "{of}");
        // Control: a hint that an operator can follow stays as it is.
        let plain = "start dockerd, or name another --backend; cofferdam doctor says which there are";
        assert_eq!(hint(FailedStep::Backend, "it does not answer", plain), plain);
    }
}
