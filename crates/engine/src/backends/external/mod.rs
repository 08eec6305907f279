//! Backends that are external sandbox programs, from the same policy: bubblewrap, nsjail and macOS Seatbelt.
//!
//! ```text
//! Policy ─ layout (what mounts can hold) ─┬─ bubblewrap: arguments, filter by descriptor ─┐
//!          facts: asked of the host       ├─ nsjail: its configuration, Kafel ────────────┼─ external::spawn ─ supervise ─▶ Outcome
//!          filter: our own emitter        └─ seatbelt: profile text, parameters ──────────┘
//! ```
//!
//! Planning is pure; `enforcement` says per field what each enforces, when it runs here and when its configuration is only
//! written out; `run` starts and supervises. None of them reports violations with evidence: only the jail can.

pub mod bubblewrap;
pub mod export;
mod filter;
mod mounted;
pub mod nsjail;
mod program_tree;
mod prototext;
pub mod run;
pub mod seatbelt;
pub mod tool;

use cofferdam_policy::NetworkMode;

use crate::backends::enforcement::socket_buffers;
use crate::backends::{Backend, BackendPlan, BackendRefusal, PlanRequest};
use crate::host::Host;
use crate::plan::executables;
use run::ExternalPlan;
use tool::{InstalledTool, Tool};

/// The backend that is this external program.
#[derive(Debug)]
pub struct External(pub Tool);

impl Backend for External {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        if request.programs.is_some() {
            return Err(executables::foreign(self.0.name()).into());
        }
        let mut ready = ExternalPlan::plan(request, InstalledTool::find(self.0, &host.tools())?, host.identity())?;
        host.cgroup_enforcement(&mut ready.planned.enforcement);
        if let Some(location) = host.location() {
            ready.in_cgroups(location);
        }
        // No init of ours in there hands out a socket to ask with. Without any address there is nothing to ask.
        socket_buffers(request.policy, &[NetworkMode::None], &mut ready.planned.enforcement);
        Ok(Box::new(ready))
    }
}
