//! Which mechanism enforces which rule on this kernel: Landlock by its version, the seccomp filter, or the notification
//! supervisor (`cofferdam_confine::command`).

use cofferdam_confine::command::{can_disinherit, has_capabilities, listener_available};
use cofferdam_confine::landlock;
use cofferdam_confine::seccomp::Arch;

use crate::confinement_spec::{CommandNetwork, ConfinementSpec};

/// What this kernel supports, and what is requested of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KernelSupport {
    /// Landlock's version; 0 without.
    pub(crate) abi: u32,
    /// Whether there is a filter for this architecture.
    pub(crate) filter: bool,
    /// Whether system calls can be passed to the notification supervisor (a listener is available).
    pub(crate) keeper: bool,
    /// Whether capabilities are in effect: privileged system calls are refused as well.
    pub(crate) privileged: bool,
    pub(crate) network: CommandNetwork,
    pub(crate) unix_sockets: bool,
    pub(crate) shared_ipc: bool,
    /// Whether descriptors can be closed by exec.
    pub(crate) disinherits: bool,
}

impl KernelSupport {
    pub(crate) fn of(spec: &ConfinementSpec) -> KernelSupport {
        let abi = landlock::abi();
        let filter = Arch::native().is_some();
        KernelSupport {
            abi: spec.landlock_at_most.map_or(abi, |most| most.min(abi)),
            filter,
            keeper: filter && listener_available(),
            privileged: has_capabilities(),
            network: spec.network,
            unix_sockets: spec.unix_sockets,
            shared_ipc: spec.shared_ipc,
            disinherits: can_disinherit(),
        }
    }

    /// Whether the filter enforces truncation.
    pub(crate) fn filters_truncation(self) -> bool {
        self.abi < 3
    }

    /// Whether the notification supervisor enforces signals.
    pub(crate) fn keeps_signals(self) -> bool {
        self.keeper && self.abi < 6
    }

    /// Whether ioctl on devices is prevented by not opening them.
    pub(crate) fn closes_devices(self) -> bool {
        (1..5).contains(&self.abi)
    }
}
