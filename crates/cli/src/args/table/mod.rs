//! The table of policy options: it feeds the parser, the help, the man pages, the completions and the tests.
//!
//! One file for each heading of the help. What a row means is `option`'s.

mod enforcement;
mod files;
mod limits;
mod network;
mod process;
mod program;

use super::option::{BLANK, PolicyOption};

/// The options by group, in the order in which help shows them.
const GROUPS: [&[PolicyOption]; 6] =
    [program::OPTIONS, files::OPTIONS, network::OPTIONS, process::OPTIONS, limits::OPTIONS, enforcement::OPTIONS];

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

/// Every policy option, in the order in which help shows them.
pub const POLICY_OPTIONS: &[PolicyOption] = &{
    let mut all = [BLANK; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut row = 0;
        while row < GROUPS[group].len() {
            all[at] = GROUPS[group][row];
            (at, row) = (at + 1, row + 1);
        }
        group += 1;
    }
    all
};

/// The option that sets what a JSON path of a policy error points at, such as `$.limits.memory_mb`.
pub(crate) fn option_of_path(path: &str) -> Option<&'static PolicyOption> {
    let path = path.strip_prefix("$.")?;
    POLICY_OPTIONS.iter().find(|o| {
        o.leaves.iter().any(|l| path.strip_prefix(l).is_some_and(|r| r.is_empty() || r.starts_with(['.', '['])))
    })
}
