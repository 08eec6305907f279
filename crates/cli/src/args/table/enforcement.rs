//! Options about how the policy is enforced: backend, best effort, violations and tracing. Rows only.

use cofferdam_policy::{AuditLevel, BackendName, Field, OnViolation};

use crate::args::option::{BLANK, Heading, PolicyOption, Takes};
use crate::args::values;

/// The options, in the order in which help shows them.
pub(super) const OPTIONS: &[PolicyOption] = &[
    PolicyOption {
        long: "backend",
        takes: Takes::Choice("NAME", values::BACKENDS),
        help: "What enforces the policy: jail, docker, podman, oci",
        more: "`auto` is the `jail`, else `landlock`; `bubblewrap`, `nsjail` and `seatbelt` are external sandbox programs. \
               `docker` and `podman` run it in a container of theirs, `oci` in one made by the first of crun, runc and youki \
               that is installed; `oci:crun`, `oci:runc`, `oci:youki`, `oci:runsc` name one. `cofferdam doctor` shows what each can enforce here.",
        heading: Heading::Enforcement,
        leaves: &["backend"],
        apply: |draft, text| {
            draft.policy.backend = BackendName::from_name(text).unwrap_or(draft.policy.backend); // clap lets no other through
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "best-effort",
        takes: Takes::Optional("FIELD,…", "limits"),
        help: "Start also where these cannot be held in full",
        more: "FIELD is a dotted name such as limits.memory_mb, or a group such as `limits`, which is also what no \
               FIELD means. Whatever is named by an option is required otherwise: it holds in full, or nothing starts.",
        heading: Heading::Enforcement,
        rare: true,
        leaves: &["enforcement.best_effort"],
        late: true,
        apply: |draft, text| {
            for name in text.split(',') {
                let in_group =
                    |f: &&Field| f.name() == name || f.name().split_once('.').is_some_and(|(group, _)| group == name);
                let before = draft.policy.enforcement.best_effort.len();
                let fields: Vec<Field> = Field::ALL.iter().filter(in_group).copied().collect();
                draft.policy.enforcement.best_effort.extend(&fields);
                if before == draft.policy.enforcement.best_effort.len() && fields.is_empty() {
                    let all: Vec<&str> = Field::ALL.iter().map(|f| f.name()).collect();
                    return Err(format!("`{name}` is no field; the fields are {}", all.join(", ")));
                }
            }
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "on-violation",
        takes: Takes::Choice("ACTION", &["deny", "terminate"]),
        help: "What a refused call does: deny (default) or terminate",
        more: "`terminate` ends the run at a system call that the filter refuses and at a host that the network refuses. \
               What mounts and permissions refuse, as reading /etc/shadow, is an error of that call alone.",
        heading: Heading::Enforcement,
        rare: true,
        leaves: &["on_violation"],
        apply: |draft, text| {
            draft.policy.on_violation = if text == "deny" { OnViolation::Deny } else { OnViolation::Terminate };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "audit",
        takes: Takes::Choice("LEVEL", values::AUDIT_LEVELS),
        help: "Violations to record: off, error, warning, info or debug",
        more: "`error` records what ended the run, `warning` also limits that it ran into, `info` (default) also each \
               refusal, `debug` also what libc asks for by itself. What is refused is the same at every level.",
        heading: Heading::Enforcement,
        rare: true,
        leaves: &["audit.enabled", "audit.level"],
        apply: |draft, text| {
            let audit = &mut draft.policy.audit;
            audit.enabled = text != "off";
            audit.level = match text {
                "error" => AuditLevel::Error,
                "warning" => AuditLevel::Warning,
                "debug" => AuditLevel::Debug,
                _ => AuditLevel::Info,
            };
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "trace",
        help: "Report refused paths too; slower",
        heading: Heading::Enforcement,
        leaves: &["audit.trace"],
        apply: |draft, _| {
            draft.policy.audit.trace = true;
            Ok(())
        },
        ..BLANK
    },
    PolicyOption {
        long: "no-trace",
        help: "Do not trace, where the policy file does",
        heading: Heading::Enforcement,
        rare: true,
        leaves: &["audit.trace"],
        apply: |draft, _| {
            draft.policy.audit.trace = false;
            Ok(())
        },
        ..BLANK
    },
];
