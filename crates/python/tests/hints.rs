//! Hints name no option of the command to who calls from Python; and what is replaced is what is really said.

#[path = "../src/hints.rs"]
mod hints;

use std::fs;
use std::path::Path;

use hints::{WORDS, in_python, message_in_python};

fn sources(directory: &Path, into: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn what_is_replaced_is_said_somewhere() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = String::new();
    for name in ["engine", "profiles", "compile"] {
        sources(&crates.join(name).join("src"), &mut all);
    }
    for (typed, _) in WORDS {
        assert!(all.contains(typed), "no hint says `{typed}` any more");
    }
}

#[test]
fn options_become_fields() {
    for (typed, _) in WORDS {
        let said = in_python(typed);
        assert!(!said.contains("--") && !said.contains("-v") && !said.contains("-e "), "{said}");
    }
    assert_eq!(
        in_python("--best-effort=a,b (enforcement.best_effort) takes what can be had; --backend jail holds more"),
        "enforcement.best_effort = [\"a\", \"b\"] in the policy, or best_effort in a skill's configuration, takes what \
         can be had; the backend jail holds more"
    );
    let systems = "run it with --security-opt systempaths=unconfined, or use --backend landlock";
    assert_eq!(
        in_python(systems),
        "run it with --security-opt systempaths=unconfined, or name the backend landlock",
        "a container's option is its own"
    );
}

#[test]
fn only_hints_are_changed() {
    let text = "use --backend jail: not found\n  hint: use --backend jail\nhint: chmod +x it";
    assert_eq!(
        message_in_python(text),
        "use --backend jail: not found\n  hint: name the backend jail\nhint: chmod +x it"
    );
}
