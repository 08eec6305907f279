//! The Nickel library's own tests, evaluated by plain Nickel: the results of profiles, and the messages of errors.
//!
//! A file of `ncl/sandbox/tests` is a record of cases `{ got, want }`; one of `refuse/` fails with the text of its first
//! line. `COFFERDAM_PY_NICKEL` names a Python that has py-nickel.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::*;
use serde_json::Value;

/// Evaluates each file named on standard input; a line of JSON per file: [path, value or null, error or null].
const SCRIPT: &str = "
import json, nickel, sys
for line in sys.stdin:
    path = line.rstrip('\\n')
    try: answer = [path, json.loads(nickel.run('import \"%s\"' % path, sys.argv[1:])), None]
    except nickel.NickelException as error: answer = [path, None, str(error)]
    print(json.dumps(answer), flush=True)
";

fn python() -> Option<std::ffi::OsString> {
    let python = std::env::var_os("COFFERDAM_PY_NICKEL");
    if python.is_none() {
        let reason = "COFFERDAM_PY_NICKEL names no Python with py-nickel";
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{reason}");
        eprintln!("skipped: {reason}");
    }
    python
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "ncl")).collect();
    files.sort();
    files
}

fn evaluate(files: &[PathBuf]) -> Option<Vec<(PathBuf, Result<Value, String>)>> {
    let list: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    let mut input = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut input, list.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut input).unwrap();
    let out = Command::new(python()?)
        .args(["-c", SCRIPT])
        .arg(library())
        .arg(library().join("import"))
        .stdin(Stdio::from(input))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let answers: Vec<_> = String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let [path, value, error]: [Value; 3] = serde_json::from_str(line).unwrap();
            let result = error.as_str().map_or(Ok(value), |error| Err(error.to_owned()));
            (PathBuf::from(path.as_str().unwrap()), result)
        })
        .collect();
    assert_eq!(answers.len(), files.len());
    Some(answers)
}

#[test]
fn each_case_gives_what_it_wants() {
    let Some(answers) = evaluate(&files(&library().join("sandbox/tests"))) else { return };
    let mut cases = 0;
    let mut wrong = Vec::new();
    for (file, answer) in answers {
        let value = answer.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for (name, case) in value.as_object().unwrap() {
            cases += 1;
            let (got, want) = (&case["got"], &case["want"]);
            if got != want || case.as_object().unwrap().len() != 2 {
                let (got, want) = from_first_difference(&got.to_string(), &want.to_string());
                wrong.push(format!("{} {name}:\n  got  {got}\n  want {want}", file.display()));
            }
        }
        if file.ends_with("golden.ncl") && std::env::var_os("COFFERDAM_UPDATE").is_some_and(|update| update == "1") {
            update_golden(value.as_object().unwrap());
        }
    }
    assert!(wrong.is_empty(), "{}\nhint: COFFERDAM_UPDATE=1 writes the golden files anew", wrong.join("\n"));
    assert!(cases > 150, "{cases} cases");
}

/// Two long texts from a little before they differ, for a message that can be read.
fn from_first_difference(got: &str, want: &str) -> (String, String) {
    let same = got.chars().zip(want.chars()).take_while(|(got, want)| got == want).count();
    let part = |text: &str| text.chars().skip(same.saturating_sub(60)).take(240).collect();
    (part(got), part(want))
}

/// Writes what the cases of golden.ncl gave into the files that they are compared with.
fn update_golden(cases: &serde_json::Map<String, Value>) {
    let directory = library().join("sandbox/tests/golden");
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let texts = [("basic", "basic"), ("narrow", "narrow_capabilities")];
    for (case, file) in texts {
        for (format, ending) in [("seatbelt", "sb"), ("nsjail", "cfg"), ("kafel", "kafel")] {
            write(&format!("{file}.{ending}"), cases[&format!("{case}_{format}")]["got"].as_str().unwrap());
        }
    }
    let outputs: serde_json::Map<String, Value> = cases["all_examples"]["got"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .map(|name| (name.to_owned(), cases.get(name).map_or(Value::Null, |case| case["got"].clone())))
        .collect();
    write("outputs.json", &(serde_json::to_string_pretty(&outputs).unwrap() + "\n"));
}

#[test]
fn refused_profiles_have_the_expected_message() {
    let files = files(&library().join("sandbox/tests/refuse"));
    assert!(files.len() > 50, "{} files", files.len());
    let Some(answers) = evaluate(&files) else { return };
    // Nickel folds long messages.
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    for (file, answer) in answers {
        let text = std::fs::read_to_string(&file).unwrap();
        let wanted = text.lines().next().and_then(|line| line.strip_prefix("# refuses: ")).unwrap();
        match answer {
            Ok(value) => wrong.push(format!("{} is not refused: {value}", file.display())),
            Err(error) if !flat(&error).contains(&flat(wanted)) => {
                wrong.push(format!("{} does not say `{wanted}`:\n{error}", file.display()));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A value written in the library's way of writing lists.
fn strings(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_protected_list_is_the_policys_own() {
    let text = std::fs::read_to_string(library().join("sandbox/lib/protected.ncl")).unwrap();
    let list = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).unwrap().0;
    let list: String = list.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    assert_eq!(strings(&list), cofferdam_policy::PROTECTED_DEFAULT);
}
