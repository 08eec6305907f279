//! What a row of the table says: a program, how it is called, and what is expected of it. Data only.

/// The system call levels, in the order of the columns.
pub const LEVELS: [&str; 4] = ["disabled", "basic", "standard", "strict"];

/// A heading of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Group {
    Python,
    Node,
    Shell,
    Git,
    C,
    Rust,
    Sqlite,
    Tar,
    Java,
    Terminal,
}

impl Group {
    /// What the page calls it.
    pub fn title(self) -> &'static str {
        match self {
            Group::Python => "Python",
            Group::Node => "Node",
            Group::Shell => "Shell",
            Group::Git => "git",
            Group::C => "gcc",
            Group::Rust => "cargo",
            Group::Sqlite => "sqlite3",
            Group::Tar => "tar",
            Group::Java => "OpenJDK",
            Group::Terminal => "At a terminal",
        }
    }
}

/// What a program is expected to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Ends with 0 and prints what the row says.
    Works,
    /// Does not work, by design: it ends with another code and says this somewhere.
    Refused {
        /// Part of its output, or of Cofferdam's.
        says: &'static str,
        /// Why, for the page.
        why: &'static str,
    },
}

/// What lies in the trial's directory before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// A repository with one commit and one changed file.
    Repository,
    /// A crate with a build script and a dependency by path.
    Crate,
    /// Executable scripts.
    Scripts,
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Where it stands.
    pub group: Group,
    /// Unique in its group, lower case with hyphens.
    pub name: &'static str,
    /// What it does, for the page.
    pub what: &'static str,
    /// Programs that the host must have: names on the caller's PATH, or absolute paths.
    pub needs: &'static [&'static str],
    /// What is prepared.
    pub before: Before,
    /// Arguments of `cofferdam`; the level is added behind the first. `{dir}` is the trial's directory, which is the
    /// working directory too, `{scripts}` that of the checks, `{rust}` a Rust toolchain that everybody may read.
    pub call: &'static [&'static str],
    /// What is typed: what has to be seen first, and what is typed then. Not empty: it runs at a terminal.
    pub dialog: &'static [(&'static str, &'static str)],
    /// Part of its output when it works.
    pub prints: &'static str,
    /// What is expected at each of [`LEVELS`].
    pub at: [Expect; 4],
}

/// Works at every level.
pub const EVERYWHERE: [Expect; 4] = [Expect::Works; 4];

/// Works at every level but the last.
pub const fn not_strict(says: &'static str, why: &'static str) -> [Expect; 4] {
    [Expect::Works, Expect::Works, Expect::Works, Expect::Refused { says, why }]
}

impl Program {
    /// The name that trials and messages use.
    pub fn id(&self) -> String {
        format!("{}::{}", self.group.title().to_lowercase().replace(' ', "-"), self.name)
    }
}
