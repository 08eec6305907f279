//! The policy library that profiles import as `sandbox`: embedded, and shown to Nickel as sources in memory.

/// Where the library seems to be: a directory that no file system holds.
pub const ROOT: &str = "/<cofferdam>";

/// Every file of the library: its path below `sandbox/`, and its text.
pub const LIBRARY: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// What `import "sandbox"` finds: Nickel imports files, and `sandbox` is a directory.
pub const DIRECTORY: &str = "import \"sandbox/main.ncl\"\n";
