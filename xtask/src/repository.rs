//! Rules about the repository itself, as tests: what every file, crate and page must have. Reads the tree, changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::bench::report::block;

/// Where `unsafe` may stand.
const UNSAFE: &[&str] = &["crates/confine/"];

/// Where a result may not be thrown away by `let _ =`: a restriction that did not hold must never go unnoticed.
const NO_SILENCE: &[&str] = &["crates/audit/", "crates/confine/", "crates/engine/", "crates/guard/"];

/// Directories that are not ours to judge.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "__pycache__", ".venv", "corpus", "artifacts"];

/// Names of files that had the project's own words, each with the field's term.
const WORDS: &[(&str, &str)] = &[
    ("ahead", "prewarm"),
    ("catalogue", "environments"),
    ("chosen", "resolve"),
    ("conversations", "http_sessions"),
    ("crowd", "whiteout"),
    ("doorway", "conn_limit"),
    ("keeper", "notifier"),
    ("keeping", "keep_changes"),
    ("kept", "cache or blobs"),
    ("letter", "control"),
    ("letters", "control"),
    ("mistakes", "hints"),
    ("remembered", "info_cache"),
    ("shape", "spec"),
    ("told", "outcome_builder"),
    ("twins", "mountinfo"),
    ("unstarted", "explain"),
    ("words", "start_failures"),
];

/// Words that no declared name and no `//!` line may have, each with the field's term.
const HOME_MADE: &[(&str, &str)] = &[
    ("ahead", "prewarmed"),
    ("crowd", "whiteouts"),
    ("crowds", "whiteouts"),
    ("door", "rendezvous"),
    ("doors", "rendezvous"),
    ("dress", "apply"),
    ("dressed", "apply"),
    ("keeper", "notification supervisor"),
    ("keepers", "notification supervisor"),
    ("letter", "control message"),
    ("letters", "control message"),
    ("maker", "container runtime"),
    ("makers", "container runtime"),
    ("nobody", "no process, no user, or the passive"),
    ("recipe", "init plan"),
    ("recipes", "init plan"),
    ("shape", "spec"),
    ("shapes", "spec"),
    ("somebody", "external"),
    ("tell", "report"),
    ("telling", "report"),
    ("tells", "report"),
    ("told", "reported"),
    ("wall", "sandbox layer or restriction"),
    ("walled", "confined"),
    ("walls", "sandbox layer or restriction"),
    ("whoever", "the caller, or the one that"),
];

/// The same for pages, README and so help texts, which are in a page as well.
const HOME_MADE_IN_PAGES: &[(&str, &str)] = &[
    ("as ever", "as before, or nothing"),
    ("keeper", "notification supervisor"),
    ("nobody", "no process, no user, or the passive"),
    ("other people's", "external, or of other users"),
    ("somebody", "a user, a program, or the passive"),
    ("tell", "report"),
    ("telling", "reporting"),
    ("tells", "reports"),
    ("told", "reported"),
    ("walled", "confined"),
    ("walls", "sandbox layers or restrictions"),
    ("whoever", "the user who, or all who"),
];

/// Where such a word stands all the same: the beginning of a path, the name or a part of the `//!` line, and why.
const HOME_MADE_ALLOWED: &[(&str, &str, &str)] = &[
    ("", "NOBODY", "the user nobody of Unix, by its id"),
    ("", "wall_limit", "the limit of wall time"),
    ("", "wall_time", "time by the clock on the wall, as in time(1)"),
    ("", "wall limit", "the limit of wall time"),
    ("", "wall time", "time by the clock on the wall, as in time(1)"),
];

/// Types that share their name all the same: the names, the files, and why.
const SAME_NAME: &[(&[&str], &[&str], &str)] = &[
    (
        &["CheckpointKey", "PublicKey"],
        &["audit/src/checkpoint.rs", "audit/src/no_signatures.rs"],
        "one or the other is built",
    ),
    (
        &["Attached", "Gateway", "Repeats"],
        &["egress/src/gateway.rs", "egress/src/no_gateway.rs"],
        "one or the other is built",
    ),
    (&["EgressJob"], &["egress/src/settings.rs", "egress/src/no_gateway.rs"], "one or the other is built"),
    (
        &["SandboxConfig"],
        &["command/src/mode.rs", "compat/src/skill_config.rs", "guard/src/compat.rs"],
        "each is the name of an API that its crate is compatible with",
    ),
    (&["SandboxError"], &["command/src/error.rs", "guard/src/error.rs"], "the error of compatible APIs, as one string"),
    (&["ExecutionResult"], &["compat/src/execution.rs", "guard/src/result.rs"], "the result of compatible APIs"),
    (
        &["Sandbox"],
        &["guard/src/compat.rs", "guard/src/sandbox.rs"],
        "the compatible trait, and the same with typed errors",
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Every file with that ending, as its path below the root and its text.
fn files(ending: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if name.ends_with(ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().display().to_string(), text));
            }
        }
    }
    found.sort();
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn none(what: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{what}:\n  {}", broken.join("\n  "));
}

/// Code without comments and text: enough to look for words in.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// The home-made words of a page, each with its line and the field's term.
fn home_made_in_page(text: &str) -> Vec<String> {
    let of_line = |(number, line): (usize, &str)| {
        let small = line.to_lowercase();
        let has = |word: &str| {
            small.match_indices(word).any(|(at, _)| {
                let around = [small[..at].chars().next_back(), small[at + word.len()..].chars().next()];
                around.iter().all(|beside| beside.is_none_or(|c| !c.is_alphanumeric() && c != '`'))
            })
        };
        let found: Vec<String> = HOME_MADE_IN_PAGES
            .iter()
            .filter(|(word, _)| has(word))
            .map(|(word, term)| format!("{}: {word}: {term}", number + 1))
            .collect();
        found
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

#[test]
fn pages_use_the_fields_words() {
    assert_eq!(home_made_in_page("It is Told,\nas ever.").len(), 2);
    assert!(home_made_in_page("the user `nobody`; untold; 30 s of wall time").is_empty(), "the controls");
    let pages = files(".md").into_iter().filter(|(path, _)| path.starts_with("docs/") || !path.contains('/'));
    let mut seen = 0;
    let broken = pages.flat_map(|(path, text)| {
        seen += 1;
        home_made_in_page(&text).into_iter().map(move |word| format!("{path}:{word}"))
    });
    let broken = broken.collect();
    assert!(seen > 20, "the walk over the pages finds too few");
    none("words in pages that only this project knows", broken);
}

#[test]
fn every_rust_file_says_first_what_it_owns() {
    assert!(files(".rs").len() > 10, "the walk over the tree finds nothing");
    let broken = files(".rs").into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    none("files that do not begin with `//!`", broken);
}

#[test]
fn file_names_are_the_fields_terms() {
    let mut broken = Vec::new();
    for (path, _) in files(".rs") {
        let path = Path::new(&path);
        // An integration test is called by the behaviour that it tests.
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let parts = path.iter().map(|part| part.to_string_lossy());
        for part in parts {
            let name = part.trim_end_matches(".rs");
            if let Some((_, term)) = WORDS.iter().find(|(word, _)| *word == name) {
                broken.push(format!("{}: {name} is {term}", path.display()));
            }
        }
    }
    none("files with names that only this project knows", broken);
}

/// The words of a name in snake case or camel case, in small letters.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (small && c.is_uppercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        small = c.is_lowercase() || c.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The names that a line of code declares.
fn declared(line: &str) -> Vec<&str> {
    const KEYWORDS: &[&str] =
        &["const", "enum", "fn", "macro_rules", "mod", "static", "struct", "trait", "type", "union"];
    let parts: Vec<&str> =
        code(line).split(|c: char| !c.is_alphanumeric() && c != '_').filter(|part| !part.is_empty()).collect();
    parts
        .windows(2)
        .filter(|pair| KEYWORDS.contains(&pair[0]) && !KEYWORDS.contains(&pair[1]))
        .map(|pair| pair[1])
        .collect()
}

/// The home-made words of a line of a file, each with the field's term.
fn home_made(path: &str, line: &str) -> Vec<String> {
    let allowed = |part: &str| {
        HOME_MADE_ALLOWED.iter().any(|(place, exception, _)| path.starts_with(place) && part.contains(exception))
    };
    let parts = if line.starts_with("//!") { vec![line] } else { declared(line) };
    parts
        .into_iter()
        .filter(|part| !allowed(part))
        .flat_map(words)
        .filter_map(|word| HOME_MADE.iter().find(|(home_made, _)| *home_made == word))
        .map(|(word, term)| format!("{word}: {term}"))
        .collect()
}

#[test]
fn names_and_headers_use_the_fields_words() {
    assert_eq!(words("OciSpec2_two"), ["oci", "spec2", "two"]);
    assert_eq!(declared("    pub const fn first(); struct Second { third: u8 } // fn fourth"), ["first", "Second"]);
    for line in ["//! What it is told.", "struct DoorKey;", "fn the_wall() {}", "mod shape;"] {
        assert_eq!(home_made("a.rs", line).len(), 1, "{line}");
    }
    for line in ["// told", "fn wall_limit() {}", "const NOBODY: u32 = 65534;", "mod shaped;", "let told = 1;"] {
        assert!(home_made("a.rs", line).is_empty(), "{line}");
    }
    let mut broken = Vec::new();
    for (path, text) in files(".rs") {
        for word in home_made(&path, &format!("mod {}", path.trim_end_matches(".rs").replace(['/', '-'], "_"))) {
            broken.push(format!("{path}: {word}"));
        }
        for (number, line) in text.lines().enumerate() {
            for word in home_made(&path, line.trim_start()) {
                broken.push(format!("{path}:{}: {word}: {}", number + 1, line.trim()));
            }
        }
    }
    none("words that only this project knows", broken);
}

/// The type that a line declares, and whether other files may name it. Types of a trait or an impl are none.
fn declared_type(line: &str) -> Option<(&str, bool)> {
    let text = line.trim_start();
    let (visible, item) = match text.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => (true, rest.split_once(") ")?.1),
        Some(rest) => (true, rest.strip_prefix(' ')?),
        None => (false, text),
    };
    let (keyword, rest) = item.split_once(' ')?;
    let nested = text.len() < line.len();
    let is_type =
        ["enum", "struct", "trait", "union"].contains(&keyword) || (keyword == "type" && (visible || !nested));
    let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())];
    (is_type && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some((name, visible))
}

/// What the types of the crates share: each name of a type that other files may name and that has a second meaning, with the
/// files of both. Tests are left out: those of a file stand at its end.
fn shared_type_names(files: &[(String, String)]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut types: BTreeMap<&str, (BTreeSet<&str>, bool)> = BTreeMap::new();
    for (path, text) in files {
        let own = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
        for (name, visible) in own.lines().filter_map(declared_type) {
            let (places, any_visible) = types.entry(name).or_default();
            places.insert(path);
            *any_visible |= visible;
        }
    }
    types
        .into_iter()
        .filter(|(_, (places, visible))| places.len() > 1 && *visible)
        .map(|(name, of)| (name, of.0))
        .collect()
}

#[test]
fn a_type_name_means_one_thing() {
    for (line, is) in [
        ("pub struct One<T>(T);", Some(("One", true))),
        ("    pub(super) type Two = u8;", Some(("Two", true))),
        ("enum Three {", Some(("Three", false))),
        ("    type Item = u8;", None),
        ("pub fn four() {", None),
        ("structure", None),
    ] {
        assert_eq!(declared_type(line), is, "{line}");
    }
    let texts = [
        "pub struct One;\nstruct Two;",
        "struct One;\nstruct Two;\n#[cfg(test)]\nmod tests {\n    struct Three;\n}",
        "pub enum Three {}",
    ];
    let three: Vec<_> =
        ["a.rs", "b.rs", "c.rs"].into_iter().zip(texts).map(|(path, text)| (path.into(), text.into())).collect();
    assert_eq!(shared_type_names(&three), BTreeMap::from([("One", BTreeSet::from(["a.rs", "b.rs"]))]), "the controls");

    let crates: Vec<(String, String)> = files(".rs")
        .into_iter()
        .filter_map(|(path, text)| Some((path.strip_prefix("crates/")?.to_owned(), text)))
        .filter(|(path, _)| path.contains("/src/") || path.starts_with("confine/init/"))
        .filter(|(path, _)| !path.contains("/tests") && !path.ends_with("tests.rs"))
        .collect();
    assert!(crates.len() > 300, "the walk over the crates finds too few files");
    let mut shared = shared_type_names(&crates);
    for (names, places, why) in SAME_NAME {
        for name in *names {
            let found = shared.remove(name).unwrap_or_default();
            assert_eq!(found, places.iter().copied().collect(), "{name}: {why}");
        }
    }
    none(
        "types that share a name, of which at least one is visible beyond its file",
        shared.iter().map(|(name, places)| format!("{name}: {places:?}")).collect(),
    );
}

#[test]
fn unsafe_stands_only_where_the_mechanisms_are() {
    let mut broken = Vec::new();
    for (path, text) in files(".rs") {
        if UNSAFE.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if code(line).contains(concat!("allow(", "unsafe_code)")) || code(line).contains(concat!("unsafe", " {")) {
                broken.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none("unsafe code outside its places", broken);
}

#[test]
fn no_result_of_a_mechanism_is_thrown_away() {
    let mut broken = Vec::new();
    for (path, text) in files(".rs") {
        if !NO_SILENCE.iter().any(|place| path.starts_with(place)) {
            continue;
        }
        for (number, line) in text.lines().enumerate().filter(|(_, line)| code(line).contains(concat!("let _", " ="))) {
            broken.push(format!("{path}:{}: {}", number + 1, line.trim()));
        }
    }
    none("results thrown away", broken);
}

#[test]
fn every_crate_takes_its_edition_and_lints_from_the_workspace() {
    let mut broken = Vec::new();
    for (path, text) in files("Cargo.toml").into_iter().filter(|(path, _)| path != "Cargo.toml") {
        let manifest: toml::Table = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        if manifest.contains_key("workspace") {
            continue; // a workspace of its own, such as the fuzz targets'
        }
        for key in ["version", "edition", "rust-version", "license"] {
            let inherited = manifest["package"].get(key).and_then(|value| value.get("workspace"));
            if inherited.and_then(toml::Value::as_bool) != Some(true) {
                broken.push(format!("{path}: package.{key} is not the workspace's"));
            }
        }
        let lints = manifest.get("lints").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        let whole = lints.get("workspace").and_then(toml::Value::as_bool) == Some(true);
        // A crate with unsafe code cannot inherit the table that denies it; it must still have one.
        let own = UNSAFE.iter().any(|place| path.starts_with(place)) && lints.contains_key("clippy");
        if !whole && !own {
            broken.push(format!("{path}: no lints"));
        }
    }
    none("manifests", broken);
}

#[test]
fn only_the_evaluator_uses_nickel_and_no_crate_the_evaluator() {
    // So that the command stays small, and a profile can abort nothing but the evaluation of profiles.
    let mut broken = Vec::new();
    let mut pinned = false;
    for (path, text) in files("Cargo.toml") {
        let manifest: toml::Table = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, wanted) in manifest.get(table).and_then(toml::Value::as_table).into_iter().flatten() {
                let nickel = name.starts_with("nickel-lang");
                if path == "crates/compile/Cargo.toml" {
                    // The bytes are those of the `nickel` command only with its very core.
                    pinned |= nickel && wanted.get("version").and_then(toml::Value::as_str).unwrap().starts_with('=');
                } else if nickel || name == "cofferdam-compile" {
                    broken.push(format!("{path}: {name}"));
                }
            }
        }
    }
    none("dependencies on Nickel", broken);
    assert!(pinned, "crates/compile pins no version of Nickel");
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let default = manifest["workspace"]["default-members"].as_array().unwrap();
    assert_eq!(default.len(), 1, "what `cargo run` builds must not grow by the way: {default:?}");
}

#[test]
fn the_minimum_rust_version_is_said_once_and_in_the_readme() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let version = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    assert!(read("README.md").contains(&format!("Rust {version}")), "README.md does not name Rust {version}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in files(".md") {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for target in crate::docs::links(&text).into_iter().map(|link| &text[link]) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let page = if file.is_empty() { root().join(&path) } else { folder.join(file) };
            if !page.exists() {
                broken.push(format!("{path}: {target}"));
            } else if !anchor.is_empty() && page.extension().is_some_and(|end| end == "md") {
                let text = std::fs::read_to_string(&page).unwrap();
                if !text.lines().filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor) {
                    broken.push(format!("{path}: {target}: no such heading"));
                }
            }
        }
    }
    none("links that lead nowhere", broken);
}

/// A heading as its anchor.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}

#[test]
fn the_readme_opens_with_the_two_commands() {
    let text = read("README.md");
    let blocks: Vec<&str> = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let commands: Vec<&str> = blocks[0].lines().map(|line| line.split("  #").next().unwrap_or(line).trim()).collect();
    assert_eq!(commands, ["cargo run --release -- eval python 'print(6*7)'", "cargo xtask test"]);
}

#[test]
fn the_readme_is_read_in_a_minute() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 150, "README.md has {lines} lines");
}

#[test]
fn the_page_of_defaults_lists_the_limits() {
    let text = read("docs/defaults.md");
    let table = block(&text, "limits").expect("docs/defaults.md has no block `limits`");
    let mut expected = String::from("| limit | by default | unit |\n|---|--:|---|");
    for limit in cofferdam_policy::limits::LIMITS {
        expected += &format!("\n| `limits.{}` | {} | {} |", limit.key, limit.default, limit.unit);
    }
    assert_eq!(table, expected, "\ndocs/defaults.md should have:\n{expected}\n");
}

#[test]
fn the_readme_repeats_the_totals_of_the_escape_table() {
    let (page, readme) = (read("docs/escape-table.md"), read("README.md"));
    let totals = block(&page, "escape-totals").expect("docs/escape-table.md has no block `escape-totals`");
    assert!(!totals.is_empty(), "the totals are empty");
    assert!(!page.contains("HOLE") && !page.contains("BROKEN"), "docs/escape-table.md has a hole");
    let jail = |(at, line): (usize, &str)| (at < 2 || line.starts_with("| jail,")).then(|| line.to_owned());
    let totals: Vec<String> = totals.lines().enumerate().filter_map(jail).collect();
    assert_eq!(totals.len(), 4, "{totals:?}");
    let totals = totals.join("\n");
    assert_eq!(block(&readme, "escape-totals"), Some(totals.as_str()), "\nREADME.md should have:\n{totals}\n");
}

#[test]
fn every_measurement_has_its_place() {
    let page = read("docs/performance.md");
    for name in crate::bench::names() {
        assert!(block(&page, &format!("bench-{name}")).is_some(), "docs/performance.md has no block bench-{name}");
    }
    assert!(block(&read("README.md"), "bench").is_some());
}

#[test]
fn the_architecture_page_names_every_file_that_starts_a_runtime() {
    let page = read("docs/architecture.md");
    let starts = [concat!("new_current", "_thread()"), concat!("new_multi", "_thread()")];
    let (mut unnamed, mut found) = (Vec::new(), 0);
    let starts = |text: &str| starts.iter().any(|call| text.contains(call));
    for (path, _) in
        files(".rs").iter().filter(|(path, text)| path.starts_with("crates/") && path.contains("/src/") && starts(text))
    {
        found += 1;
        if !page.contains(path.as_str()) {
            unnamed.push(path.clone());
        }
    }
    assert!(found > 0, "the search finds none");
    none("runtimes that docs/architecture.md does not name", unnamed);
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    // Spelled apart, so that this file holds to its own rule.
    let places = [concat!("/work/", "main"), concat!("/work/", "shared"), concat!("/roo", "t/.")];
    let mut broken = Vec::new();
    for ending in [".rs", ".md", ".toml", ".c", ".h", ".sh", ".py"] {
        for (path, text) in files(ending) {
            for (number, line) in text.lines().enumerate().filter(|(_, line)| places.iter().any(|p| line.contains(p))) {
                broken.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none("paths of one machine", broken);
}
