//! Hints for Python callers name no option of the command, and each replaced phrase occurs in the crates below.

#[path = "../src/hint_wording.rs"]
mod hint_wording;

use std::fs;
use std::path::Path;

use hint_wording::{WORDS, in_python, message_in_python};

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
    for name in ["engine", "audit", "compat", "profiles", "compile"] {
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

/// The string literals of a source file, without comments and tests.
fn texts(source: &str) -> Vec<String> {
    let code = source.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n").replace("'\"'", "' '").replace("b'\"'", "b' '");
    let (mut found, mut text, mut escaped) = (Vec::new(), None::<String>, false);
    for c in code.chars() {
        match &mut text {
            None if c == '"' => text = Some(String::new()),
            None => {}
            Some(said) if escaped => {
                said.push(c);
                escaped = false;
            }
            Some(_) if c == '\\' => escaped = true,
            Some(_) if c == '"' => {
                found.extend(text.take().map(|said| said.split_whitespace().collect::<Vec<_>>().join(" ")))
            }
            Some(said) => said.push(c),
        }
    }
    found
}

#[test]
fn no_hint_of_the_crates_below_keeps_an_option_of_the_command() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    let mut directories: Vec<_> = ["engine", "compat", "profiles", "policy", "confine"]
        .iter()
        .map(|name| crates.join(name).join("src"))
        .collect();
    while let Some(directory) = directories.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => directories.push(path),
                false => files.push(path),
            }
        }
    }
    let tables = ["program", "files", "network", "process", "limits", "enforcement"];
    let table: String = tables
        .iter()
        .map(|name| fs::read_to_string(crates.join(format!("cli/src/args/table/{name}.rs"))).unwrap())
        .collect();
    let of_policies = table.split("long: \"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut options: Vec<String> = of_policies.map(|long| format!("--{long}")).collect();
    assert!(options.len() > 30, "{options:?}");
    let others = ["--tty", "--store", "--id", "--policy", "--profile", "--profiles", "--set", "--allow-import"];
    options.extend(others.map(str::to_owned));
    options.push("--trust-profile".to_owned());
    let names = |text: &str| {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
        words.filter(|word| options.iter().any(|option| option == word)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut seen, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
        for text in texts(&fs::read_to_string(file).unwrap()) {
            // A single word is an argument for another program.
            if names(&text).is_empty() || !text.contains(' ') {
                continue;
            }
            seen += 1;
            let left = names(&in_python(&text.replace("{}", "FIELD")));
            // Commands of the system are unchanged.
            let system = ["systemd-run --user --scope", "cargo build --release", "exec env CONTAINERS_CONF="];
            if !left.is_empty() && !system.iter().any(|command| text.contains(command)) {
                wrong.push(format!("{}: {text}: {left:?}", file.display()));
            }
        }
    }
    assert!(seen > 15, "{seen} texts name an option");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn compile_profile_hints_name_its_own_arguments() {
    let trusted = "--trust-profile evaluates it without one, if you wrote it; `cofferdam doctor` shows what is missing";
    assert_eq!(
        in_python(trusted),
        "compile_profile with trusted=True evaluates it without one, if you wrote it; `cofferdam doctor` shows what is \
         missing"
    );
    assert_eq!(in_python("--allow-import /etc"), "compile_profile with `imports` that name /etc");
}

#[test]
fn only_hints_are_changed() {
    let text = "use --backend jail: not found\n  hint: use --backend jail\nhint: chmod +x it";
    assert_eq!(
        message_in_python(text),
        "use --backend jail: not found\n  hint: name the backend jail\nhint: chmod +x it"
    );
}
