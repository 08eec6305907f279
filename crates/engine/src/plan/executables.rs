//! What alone may be executed by a sandbox's whole tree: files that were opened and decided on, and directories of them.
//!
//! Held by Landlock's right to execute, which the kernel asks for when a program, the interpreter of a script or the
//! loader of a dynamic program is opened to be run: it is taken away everywhere and given back for these alone. Rules bind
//! inodes; init makes each only where the file that was decided on still stands. Memory that was never a file on a mount
//! (memfd) is outside of Landlock: the filter refuses it. Does not hold what an interpreter or the loader reads and runs.

use cofferdam_confine::init_plan::{self, PathRule};
use cofferdam_confine::landlock;
use cofferdam_confine::landlock::access;
use cofferdam_policy::paths::is_within;

use crate::failure::{FailedStep, Failure};
use crate::plan::NativePlan;

/// `(device, inode)` as init compares them.
pub type DeviceInode = (u64, u64);

/// One program, or a directory of which every program may be executed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Executable {
    /// Canonical path, outside and inside.
    pub path: String,
    /// Where a file was decided on; `None` for directories.
    pub identity: Option<DeviceInode>,
}

/// All that may be executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Executables {
    /// The programs and directories.
    pub programs: Vec<Executable>,
    /// For tests: the version of Landlock to make do with.
    #[doc(hidden)]
    pub landlock: Option<u32>,
}

impl From<Vec<Executable>> for Executables {
    fn from(programs: Vec<Executable>) -> Executables {
        Executables { programs, landlock: None }
    }
}

impl Executables {
    /// Takes the right to execute from everything in a plan but these.
    ///
    /// # Errors
    /// This kernel has no Landlock.
    pub(crate) fn limit(&self, plan: &mut NativePlan) -> Result<(), Failure> {
        let Some(ruleset) =
            plan.init_plan.landlock.as_mut().filter(|ruleset| ruleset.handled_fs & access::EXECUTE != 0)
        else {
            return Err(Failure::new(
                FailedStep::Landlock,
                "only some programs may be executed, and this kernel has no Landlock to hold that",
            )
            .hint("add lsm=landlock,... to the kernel command line; Linux 5.13 or later"));
        };
        for rule in &mut ruleset.rules {
            rule.access &= !access::EXECUTE;
        }
        // A layer that hides names shows the same inodes, on a device of its own.
        let layers: Vec<&str> = plan.init_plan.mounts.iter().filter_map(layer).collect();
        ruleset.rules.extend(self.programs.iter().map(|program| {
            let layered = layers.iter().any(|dir| is_within(&program.path, dir));
            PathRule {
                path: program.path.clone(),
                access: access::EXECUTE | access::READ_FILE,
                optional: program.identity.is_none(),
                identity: program.identity.map(|(device, inode)| (if layered { 0 } else { device }, inode)),
            }
        }));
        if let Some(abi) = self.landlock {
            ruleset.handled_fs &= landlock::handled_fs(abi);
            ruleset.handled_net &= landlock::handled_net(abi);
            ruleset.scoped &= landlock::scoped(abi);
            ruleset.rules.iter_mut().for_each(|rule| rule.access &= ruleset.handled_fs);
        }
        Ok(())
    }
}

fn layer(step: &init_plan::MountStep) -> Option<&str> {
    match step {
        init_plan::MountStep::Whiteout { target, .. } => Some(target),
        _ => None,
    }
}

/// `st_dev` as init compares it.
pub fn device(dev: u64) -> u64 {
    u64::from(rustix::fs::major(dev)) << 32 | u64::from(rustix::fs::minor(dev))
}

/// The refusal of an external sandbox program, which cannot enforce it.
pub(crate) fn foreign(name: &str) -> Failure {
    Failure::new(FailedStep::Backend, format!("{name} cannot hold which programs may be executed"))
        .hint("leave the backend out, or use the jail")
}
