//! docs/programs.md out of the table. Pure.

use crate::program::{Expect, LEVELS, Program};

const HEAD: &str = "\
<!-- Generated from tests/programs by `COFFERDAM_UPDATE=1 cargo test -p cofferdam-programs`; do not edit it. -->

# Programs and levels

Which real programs work inside the sandbox at which system call level (`--seccomp`), and why not where they do not.
Each cell is tried by the test suite, as root and as an unprivileged user; a cell that says *no* fails when the program
does work. The exact calls stand in `tests/programs/src/table.rs`.

`standard` is the default. `strict` lets no socket be made, no mode, owner or time of a file be changed, and nothing be
written outside of tmpfs.
";

/// The page.
pub fn page(programs: &[Program]) -> String {
    let mut page = String::from(HEAD);
    let mut group = None;
    for program in programs {
        if group != Some(program.group) {
            group = Some(program.group);
            page.push_str(&format!("\n## {}\n\n| what it does | {} |\n", program.group.title(), LEVELS.join(" | ")));
            page.push_str(&format!("|---{}|\n", "|---".repeat(LEVELS.len())));
        }
        let cells = program.at.map(|expected| match expected {
            Expect::Works => "works".to_owned(),
            Expect::Refused { why, .. } => format!("no: {why}"),
        });
        page.push_str(&format!("| {} | {} |\n", program.what, cells.join(" | ")));
    }
    page
}
