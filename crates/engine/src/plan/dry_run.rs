//! A plan for people: what the backend will do, as JSON.

use serde_json::{Value, json};

use cofferdam_confine::init_plan::MountStep;
use cofferdam_confine::wire::flag;

use crate::outcome::AppliedEnforcement;
use crate::plan::NativePlan;

/// The plan's steps in order.
pub(crate) fn plan(plan: &NativePlan, backend: &str, reason: &str, enforcement: &AppliedEnforcement) -> Value {
    let r = &plan.init_plan;
    let mounts: Vec<String> = r.mounts.iter().map(step).collect();
    // What is new for each run is told in words, so that the same call shows the same plan.
    let outside = match r.flags & (flag::MAPS_BY_OWNER | flag::DROP_IDS) {
        0 => json!(r.ids_out),
        _ => json!("an unprivileged id of this run's own"),
    };
    json!({
        "backend": backend,
        "backend_reason": reason,
        "enforcement": enforcement,
        "programs": r.programs,
        "argv": r.argv,
        "variables": r.envp,
        "cwd": r.cwd,
        "hostname": r.hostname,
        "ids": { "inside": r.ids_in, "outside": outside },
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

fn step(step: &MountStep) -> String {
    match step {
        MountStep::File { name, mode, .. } if name == "bootid" || name == "machineid" => {
            format!("File {{ name: {name:?}, text: new for each run, mode: {mode} }}")
        }
        other => format!("{other:?}"),
    }
}
