//! Capabilities: dropping all of them, or all but a few. Never adds one.

use crate::fault::{StepResult, at};
use crate::sys::{self, Res};
use crate::uapi::*;
use crate::wire::step;

/// Empties the bounding set.
pub fn drop_bounding() -> StepResult {
    let mut cap = 0;
    while cap < 64 {
        match sys::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) {
            Ok(_) => cap += 1,
            Err(errno::EINVAL) => break, // beyond the kernel's last capability
            Err(errno::EPERM) => break,  // an unprivileged owner without namespaces has none to drop
            Err(e) => return Err(at(step::caps::BOUNDING.item(cap))(e)),
        }
    }
    Ok(())
}

/// Empties every set.
pub fn drop_all() -> StepResult {
    drop_bounding()?;
    clear_ambient().map_err(at(step::caps::CLEAR_AMBIENT))?;
    set(0).map_err(at(step::caps::CLEAR))?;
    Ok(())
}

/// Empties the ambient set; a kernel without one has nothing to empty.
pub fn clear_ambient() -> Res {
    match sys::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) {
        Err(errno::EINVAL) => Ok(0),
        done => done,
    }
}

/// Sets the effective and permitted sets to these bits of the lower word, and empties the inheritable one.
pub fn set(bits: u32) -> Res {
    let header = [LINUX_CAPABILITY_VERSION_3, 0];
    let data = [bits, bits, 0, 0, 0, 0u32];
    sys::capset(header.as_ptr(), data.as_ptr())
}
