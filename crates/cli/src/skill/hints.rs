//! What to do about a skill's run that did not start, in what an operator has: the fields of `--config FILE`, and `skill run`'s
//! own options. The engine's hints name options of `run`, which are not there. Pure.

use cofferdam_engine::{Failure, Step};

/// Puts a hint that an operator can follow in the place of one that only `run` has options for.
pub fn for_operators(failure: &mut Failure) {
    let Some(hint) = failure.hint.as_deref() else { return };
    if let Some(fields) = hint.strip_prefix("--best-effort=").map(|rest| rest.split(' ').next().unwrap_or(rest)) {
        failure.hint = Some(unheld(fields));
        return;
    }
    let target = failure.message.strip_prefix("mount target ").and_then(|rest| rest.split(' ').next());
    if target.is_some_and(|target| target.starts_with("/input/")) {
        failure.hint = Some("--config FILE: `image` with an empty /input; or leave image out".into());
    } else if let Some(target) = target {
        failure.hint = Some(format!(
            "--config FILE: `image` with {target} in that directory, which needs /skill, /tmp, /dev, /proc, /sys, the target \
             of each of `volumes`, an empty /input for --input and /output for --output; or leave image out"
        ));
    } else if failure.step == Step::Exec {
        failure.hint = Some(
            "--config FILE: command = [\"/path/inside\", …], a program that is there; an `image` has to have it itself"
                .into(),
        );
    } else if ["-w", "-v", "-e", "--root", "--image", "--network", "--allow", "--tmpfs", "--deny"]
        .iter()
        .any(|option| hint.split([' ', '=', ',', ';', ':']).any(|word| word == *option))
    {
        failure.hint = Some(of_step(failure.step.as_str()).to_owned());
    }
}

/// For fields that the backend does not hold in full: of a skill, limits alone may be held in part.
fn unheld(fields: &str) -> String {
    let (limits, others): (Vec<&str>, Vec<&str>) = fields.split(',').partition(|field| field.starts_with("limits."));
    let Some(first) = others.first() else {
        return format!("--best-effort={} takes what can be had; or another --backend", limits.join(","));
    };
    let mut hint = of_step(first).to_owned();
    if !limits.is_empty() {
        hint.push_str(&format!("; of the limits --best-effort={} takes what can be had", limits.join(",")));
    }
    hint
}

/// What an operator can change of a field of a policy.
fn of_step(field: &str) -> &'static str {
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
    use super::*;

    fn hint(step: &str, message: &str, hint: &str) -> String {
        let mut failure =
            Failure { code: 125, step: step.into(), message: message.into(), hint: Some(hint.to_owned()) };
        for_operators(&mut failure);
        failure.hint.unwrap()
    }

    #[test]
    fn a_hint_names_only_what_skill_run_has() {
        let told = "--best-effort=network.mode,network.api (enforcement.best_effort) takes what can be had";
        let of = hint("network.mode", "gVisor can hold network.mode not at all", told);
        assert!(of.contains("networkMode") && of.contains("--backend") && !of.contains("best-effort"), "{of}");
        let of = hint("limits.memory_mb", "in part", "--best-effort=limits.memory_mb,limits.tasks (enforcement) takes");
        assert!(of.starts_with("--best-effort=limits.memory_mb,limits.tasks takes"), "{of}");
        let of = hint("network.mode", "in part", "--best-effort=network.mode,limits.memory_mb (enforcement) takes");
        assert!(of.contains("networkMode") && of.contains("--best-effort=limits.memory_mb "), "{of}");
        let of = hint("filesystem.mounts", "mount target /input/a.txt does not exist inside: No such file", "make it");
        assert!(of.contains("an empty /input;"), "{of}");
        let elsewhere = "it is the working directory: start elsewhere with -w /, or make that directory in the root";
        let of = hint("filesystem.mounts", "mount target /skill is not a directory inside", elsewhere);
        assert!(of.contains("/skill in that directory") && of.contains("image") && !of.contains("-w"), "{of}");
        let of = hint("exec", "node: not found on the sandbox's PATH", "mount its directory with -v");
        assert!(of.contains("command = ") && !of.contains("-v"), "{of}");
        let of = hint("filesystem.root", "no view", "use --root minimal, or --image");
        assert!(of.contains("`image`") && !of.contains("--root"), "{of}");
        // The twin: what an operator can follow stays as it is.
        let plain = "start dockerd, or name another --backend; cofferdam doctor says which there are";
        assert_eq!(hint("backend", "it does not answer", plain), plain);
    }
}
