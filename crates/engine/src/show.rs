//! A plan for people: what the backend will do, as JSON.

use serde_json::{Value, json};

use crate::jail::Plan;
use crate::outcome::Enforcement;

/// The plan's steps in order.
pub fn plan(plan: &Plan, backend: &str, reason: &str, enforcement: &Enforcement) -> Value {
    let r = &plan.recipe;
    let mounts: Vec<String> = r.mounts.iter().map(|m| format!("{m:?}")).collect();
    json!({
        "backend": backend,
        "backend_reason": reason,
        "enforcement": enforcement,
        "programs": r.programs,
        "argv": r.argv,
        "variables": r.envp,
        "cwd": r.cwd,
        "hostname": r.hostname,
        "ids": { "inside": r.ids_in, "outside": r.ids_out },
        "network_namespace": plan.own_net,
        "mounts": mounts,
        "guards": r.guards.iter().map(|g| json!({ "directory": g.parent, "names": g.names })).collect::<Vec<_>>(),
        "landlock": r.landlock.as_ref().map(|l| json!({
            "handled_fs": format!("{:#x}", l.handled_fs),
            "handled_net": format!("{:#x}", l.handled_net),
            "scoped": l.scoped,
            "rules": l.rules.iter().map(|x| format!("{} {:#x}", x.path, x.access)).collect::<Vec<_>>(),
        })),
        "rlimits": r.rlimits,
        "seccomp": { "instructions": r.filter.len(), "listener": !r.classifier.is_empty() },
        "scratch_bytes": r.scratch_bytes,
    })
}
