//! Rewrites hints in terms of a definition: the engine's hints name options of the command, which neither an operator's file nor
//! a client of the server has. Pure.

use super::{Environment, EnvironmentKind};

/// Options that a definition has an equivalent key for.
const KEYS: &[(&str, &str)] = &[
    ("--backend", "backend"),
    ("--image", "image"),
    ("--root", "image"),
    ("--network", "network"),
    ("--memory", "memory_mb"),
    ("--timeout", "timeout_seconds"),
    ("--nested-sandboxes", "nesting"),
];

/// Options of `run` and `eval` that a definition has no key for.
const OTHERS: &[&str] = &[
    "--allow",
    "--allow-encrypted-hello",
    "--allow-private",
    "--api",
    "--best-effort",
    "--deny",
    "--file",
    "--open-files",
    "--tmpfs",
    "--trace",
    "--tty",
    "-e",
    "-v",
    "-w",
];

/// The hint of an error for an operator who can change the environment's definition. `step` is the step of the error.
pub fn in_definition(environment: &Environment, step: &str, hint: &str) -> String {
    let table = format!("[environments.{}]", quoted(&environment.name));
    if let Some(fields) = hint.strip_prefix("--best-effort=").map(|rest| rest.split(' ').next().unwrap_or(rest)) {
        return unenforced(environment, &table, fields);
    }
    let has = |option: &str| position(hint, option).is_some();
    // Other programs also have options with these names.
    if ["sysctl ", "setpriv ", "systemctl ", "systemd-run ", "docker ", "podman load"].iter().any(|p| hint.contains(p))
    {
        return hint.to_owned();
    }
    if OTHERS.iter().any(|option| has(option)) {
        return of_step(environment, &table, step);
    }
    if !KEYS.iter().any(|(option, _)| has(option)) {
        return hint.to_owned();
    }
    let mut hint = hint.to_owned();
    for (option, key) in KEYS {
        while let Some(at) = position(&hint, option) {
            let rest = &hint[at + option.len()..];
            let value = rest.strip_prefix([' ', '=']).unwrap_or_default();
            let word: String = value.chars().take_while(|c| !c.is_whitespace() && !",;".contains(*c)).collect();
            let end = at + option.len() + if word.is_empty() { 0 } else { 1 + word.len() };
            let now = if word.is_empty() { format!("`{key}`") } else { format!("{key} = \"{word}\"") };
            hint.replace_range(at..end, &now);
        }
    }
    format!("in {table} of the configuration: {hint}")
}

/// The position of the option in the hint, as a separate word.
fn position(hint: &str, option: &str) -> Option<usize> {
    let ends = |at: usize| hint[at + option.len()..].chars().next().is_none_or(|c| " =,;:)`".contains(c));
    let begins = |at: usize| hint[..at].chars().next_back().is_none_or(|c| " (`=".contains(c));
    hint.match_indices(option).map(|(at, _)| at).find(|at| begins(*at) && ends(*at))
}

/// A name as a TOML key.
fn quoted(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

/// The hint for fields that the backend does not enforce in full.
fn unenforced(environment: &Environment, table: &str, fields: &str) -> String {
    let doctor = "`cofferdam doctor` shows what this host lacks";
    let mut keys: Vec<&str> = fields.split(',').filter_map(|field| key(environment, field)).collect();
    keys.dedup();
    if keys.is_empty() && matches!(environment.kind, EnvironmentKind::Profile { .. }) {
        let list: Vec<String> = fields.split(',').map(|field| format!("\"{field}\"")).collect();
        return format!("in the profile: best_effort = [{}] runs with what can be enforced; {doctor}", list.join(", "));
    }
    if keys.is_empty() {
        return format!("another `backend` in {table} of the configuration; {doctor}");
    }
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    format!(
        "leave {} out of {table} of the configuration: the default is enforced as far as this host allows; {doctor}",
        keys.join(" and ")
    )
}

/// The key of the definition that requires this field.
fn key(environment: &Environment, field: &str) -> Option<&'static str> {
    let named = &environment.overrides;
    match field {
        "limits.memory_mb" => named.memory_mb.map(|_| "memory_mb"),
        "limits.wall_ms" => named.timeout_seconds.map(|_| "timeout_seconds"),
        field if field.starts_with("network.") => named.network.map(|_| "network"),
        "process.nested_sandboxes" => named.nesting.then_some("nesting"),
        _ => None,
    }
}

/// The hint for a step whose engine hint names something that definitions do not have.
fn of_step(environment: &Environment, table: &str, step: &str) -> String {
    let what = match step.split(['.', '[']).next().unwrap_or(step) {
        "exec" | "interpreter" => "`interpreter`, by a path inside, a program that is there",
        "network" => "another `network`, or another `backend`",
        "filesystem" if matches!(environment.kind, EnvironmentKind::Image { .. }) => {
            "another `image`, or another `backend`"
        }
        "limits" | "audit" | "filesystem" if matches!(environment.kind, EnvironmentKind::Profile { .. }) => {
            return format!("change `{step}` in the profile, or `backend` in {table} of the configuration");
        }
        "filesystem" => "another `backend`; or in [project], another `path`",
        _ => "another `backend`",
    };
    format!("in {table} of the configuration: {what}")
}

#[cfg(test)]
mod tests {
    use super::super::{Overrides, Rank};
    use super::*;

    fn environment(kind: EnvironmentKind, overrides: Overrides) -> Environment {
        let place = "/etc/cofferdam/config.toml:1".into();
        Environment { name: "mine".into(), rank: Rank::Configuration, place, kind, overrides }
    }

    #[test]
    fn a_hint_names_keys_of_the_definition_and_no_option() {
        let preset = environment(
            EnvironmentKind::Preset("python".into()),
            Overrides { memory_mb: Some(64), ..Overrides::default() },
        );
        for (step, hint, expected) in [
            (
                "limits.memory_mb",
                "--best-effort=limits.memory_mb runs with what can be had",
                "leave `memory_mb` out of",
            ),
            ("limits.cpu_seconds", "--best-effort=limits.cpu_seconds runs", "another `backend` in [environments.mine]"),
            (
                "backend",
                "build it, or use --backend jail, which holds more",
                "build it, or use backend = \"jail\", which",
            ),
            ("filesystem.root", "use --backend docker, podman or oci: --root ./DIR", "image = \"./DIR\""),
            ("exec", "name its path, set PATH with -e PATH=..., or mount it with -v", "`interpreter`"),
            ("limits.memory_mb", "raise --memory", "raise `memory_mb`"),
            ("filesystem.root", "--root minimal for programs, --image for those of an image, -v for more", "`backend`"),
        ] {
            let translated = in_definition(&preset, step, hint);
            assert!(translated.contains(expected) && translated.contains("mine"), "{translated}");
            assert!(!translated.contains("--") && !translated.contains(" -v"), "{translated}");
        }
        let file = "p.ncl".into();
        let profile = environment(EnvironmentKind::Profile { file, interpreter: Vec::new() }, Overrides::default());
        let translated =
            in_definition(&profile, "limits.memory_mb", "--best-effort=limits.memory_mb,network.mode runs");
        assert!(translated.contains("best_effort = [\"limits.memory_mb\", \"network.mode\"]"), "{translated}");
    }

    #[test]
    fn what_is_no_option_of_ours_stays() {
        let preset = environment(EnvironmentKind::Preset("python".into()), Overrides::default());
        for hint in [
            "sysctl -w kernel.unprivileged_userns_clone=1",
            "sudo systemctl start docker, or name its socket with DOCKER_HOST=unix:///path",
            "run it in a scope of its own: systemd-run --user --scope -p Delegate=yes -- COMMAND",
            "apt-get install python3",
            "copy what the program needs to another directory",
        ] {
            assert_eq!(in_definition(&preset, "backend", hint), hint);
        }
    }
}
