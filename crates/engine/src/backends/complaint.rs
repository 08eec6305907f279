//! What an external program or a container engine reports before it gives up, read once into what can be decided on.
//!
//! Such programs report text and no errno. Nothing of the sandboxed program's ran by then, so the text is their own.

/// What the text names as the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// crun makes no containers where cgroups are there in both versions.
    HybridCgroups,
    /// EACCES.
    PermissionDenied,
    /// EPERM.
    NotPermitted,
}

/// The cause in the words of strerror(3), which each program begins as it likes.
const CAUSES: [(&str, Cause); 3] = [
    ("hybrid mode", Cause::HybridCgroups),
    ("ermission denied", Cause::PermissionDenied),
    ("peration not permitted", Cause::NotPermitted),
];

/// The cause that this text names, if it is one that something can be done about.
pub(crate) fn cause(text: &str) -> Option<Cause> {
    CAUSES.iter().find(|(words, _)| text.contains(words)).map(|(_, cause)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_read_from_what_programs_report() {
        for (text, expected) in [
            ("bwrap: Can't bind mount /oldroot/x on /newroot/y: Permission denied", Some(Cause::PermissionDenied)),
            ("open `/proc/self/ns/user`: operation not permitted", Some(Cause::NotPermitted)),
            ("cgroups in hybrid mode not supported, drop all controllers", Some(Cause::HybridCgroups)),
            ("No such file or directory", None),
        ] {
            assert_eq!(cause(text), expected, "{text}");
        }
    }
}
