//! Embedded evaluation gives the same bytes as the `nickel` command.
//!
//! Compared with py-nickel 1.18, the same language as a Python module: `COFFERDAM_PY_NICKEL` names a Python that has it.

mod common;

use std::process::Command;

use cofferdam_profiles::protocol::OutputFormat;
use common::*;

/// The version of py-nickel and the `nickel` command with the same core as this crate.
const VERSION: &str = "1.18.0";

const SCRIPT: &str = "
import importlib.metadata, nickel, sys
assert importlib.metadata.version('py-nickel') == sys.argv[1], importlib.metadata.version('py-nickel')
sys.stdout.write(nickel.run('import \"%s\"' % sys.argv[2], sys.argv[3:]) + '\\n')
";

#[test]
fn examples_evaluate_to_the_same_bytes_as_with_nickel() {
    let Some(python) = std::env::var_os("COFFERDAM_PY_NICKEL") else {
        let reason = "COFFERDAM_PY_NICKEL names no Python with py-nickel";
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{reason}");
        eprintln!("skipped: {reason}");
        return;
    };
    let examples = examples();
    let ours = results(examples.iter().map(|file| job(file, &[OutputFormat::Raw])).collect());
    for (file, ours) in examples.iter().zip(ours) {
        let theirs = Command::new(&python)
            .args(["-c", SCRIPT, VERSION])
            .arg(file)
            .arg(library())
            .arg(library().join("import"))
            .output()
            .unwrap();
        assert!(theirs.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&theirs.stderr));
        let ours = ours.unwrap_or_else(|problem| panic!("{}", problem.message)).outputs.remove(0).unwrap();
        assert!(ours.len() > 100, "{}: {ours}", file.display());
        assert_eq!(ours, String::from_utf8(theirs.stdout).unwrap(), "{}", file.display());
    }
}
