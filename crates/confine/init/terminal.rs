//! The pseudo-terminal of a sandbox, from its own devpts. Reads and writes nothing through it.

use crate::fault::{StepFault, at};
use crate::plan::MappedPlan;
use crate::report::send_fd;
use crate::sys;
use crate::uapi::*;
use crate::wire::{WireStatus, flag, status, step};

/// Makes a pseudo-terminal in the sandbox's own devpts: the master goes to the owner, the slave becomes 1 and 2, and 0 unless that
/// is a stream of its own.
pub fn create(plan: &MappedPlan) -> Result<bool, StepFault> {
    if !plan.has(flag::TERMINAL) {
        return Ok(false);
    }
    let h = plan.header();
    let ptmx = if plan.has(flag::JAIL) { c"/dev/pts/ptmx" } else { c"/dev/ptmx" };
    let master = sys::openat(AT_FDCWD, ptmx.as_ptr().cast(), O_RDWR | O_NOCTTY | O_CLOEXEC, 0)
        .map_err(at(step::terminal::OPEN))? as i32;
    let unlocked = 0i32;
    sys::ioctl(master, TIOCSPTLCK, (&raw const unlocked) as usize).map_err(at(step::terminal::UNLOCK))?;
    let slave =
        sys::ioctl(master, TIOCGPTPEER, (O_RDWR | O_NOCTTY) as usize).map_err(at(step::terminal::OPEN_SLAVE))? as i32;
    let size = [h.rows, h.columns, 0, 0];
    sys::ioctl(master, TIOCSWINSZ, size.as_ptr() as usize).map_err(at(step::terminal::SIZE))?;
    let first = i32::from(plan.has(flag::TERMINAL_BESIDE_INPUT));
    for target in first..3 {
        sys::dup3(slave, target, 0).map_err(at(step::terminal::STREAMS))?;
    }
    sys::close(slave).map_err(at(step::terminal::CLOSE_SLAVE))?;
    send_fd(&WireStatus { kind: status::TERMINAL, ..WireStatus::default() }, master)
        .map_err(at(step::terminal::SEND))?;
    sys::close(master).map_err(at(step::terminal::CLOSE))?;
    Ok(true)
}
