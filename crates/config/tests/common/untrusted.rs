//! Properties of any bytes parsed as a configuration or as metadata, for the property tests and fuzz targets.

use std::path::Path;

use cofferdam_config::environments::{DefinitionProblem, bundled, is_name, metadata, parse};

fn reported(problems: &[DefinitionProblem]) {
    for problem in problems {
        let text = problem.to_string();
        assert!(text.chars().all(|c| !c.is_control() || c == '\n'), "{text:?}");
        assert!(!problem.problem.is_empty());
    }
}

/// Parsing a configuration never panics. An accepted definition has a name and a source, and any other has a reason.
pub(crate) fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = parse(text, Path::new("/c/config.toml"), Some("/home/u"));
    reported(&parsed.problems);
    for definition in &parsed.definitions {
        match &definition.what {
            Ok(_) => assert!(is_name(&definition.name), "{:?}", definition.name),
            Err(problems) => {
                assert!(!problems.is_empty());
                reported(problems);
            }
        }
    }
}

/// Parsing metadata never panics. Accepted metadata is within its bounds.
pub(crate) fn of_artifact(bytes: &[u8]) {
    match metadata(bytes, "metadata.json") {
        Ok(read) => assert!(is_name(&read.name) && read.timeout_seconds > 0 && read.memory_mb > 0),
        Err(problems) => {
            assert!(!problems.is_empty());
            reported(&problems);
        }
    }
    match bundled(bytes, "COFFERDAM_METADATA") {
        Ok(set) => {
            for (_, one) in &set.environments {
                if let Err(problems) = one {
                    assert!(!problems.is_empty());
                    reported(problems);
                }
            }
        }
        Err(problems) => assert!(!problems.is_empty()),
    }
}
