//! Optional mounts: when one is left out, and how the answer says so.
//!
//! Left out is only what is not there. A source that cannot be looked at, that leads in circles or that is no file or
//! directory is refused as ever: who cannot be sure that nothing is there does not go on as if nothing were.

use crate::outcome::AppliedField;
use cofferdam_policy::text::escape;

/// So many sources are named.
const NAMED: usize = 16;

/// Whether nothing is at a source, links followed (`ENOENT`).
pub(crate) fn is_missing(source: &str) -> bool {
    std::fs::metadata(source).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// What holds `filesystem.mounts`, with the sources of the mounts that were left out.
pub(crate) fn with_left_out(mut applied: AppliedField, left_out: &[String]) -> AppliedField {
    if !left_out.is_empty() {
        let names: Vec<String> = left_out.iter().take(NAMED).map(|source| escape(source.as_bytes())).collect();
        let more = match left_out.len().saturating_sub(NAMED) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        applied.reason = format!("{}; left out, for nothing is there: {}{more}", applied.reason, names.join(", "));
    }
    applied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Strength;

    #[test]
    fn only_what_is_not_there_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("file"), "").unwrap();
        for (link, says) in [("whole", "file"), ("broken", "gone"), ("circle", "circle")] {
            std::os::unix::fs::symlink(says, at(link)).unwrap();
        }
        for there in ["file", "whole", "circle", "file/below"] {
            assert!(!is_missing(&at(there)), "{there}");
        }
        assert!(is_missing(&at("gone")) && is_missing(&at("broken")));
    }

    #[test]
    fn the_record_names_what_was_left_out_and_keeps_its_strength() {
        let mounts = AppliedField { strength: Strength::Full, reason: "mounts".into() };
        assert_eq!(with_left_out(mounts.clone(), &[]), mounts);
        let applied = with_left_out(mounts, &["/a".into(), "/b\n".into()]);
        assert_eq!(applied.reason, "mounts; left out, for nothing is there: /a, /b\\n");
        assert_eq!(applied.strength, Strength::Full);
    }
}
