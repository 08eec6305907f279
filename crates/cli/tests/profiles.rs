//! Profiles on the command line, with the real evaluator: export, check, run, the store, the cache, and bad input.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::evaluator;
use serde_json::Value;

/// A profile of its own directory, store and cache.
struct Scene {
    directory: tempfile::TempDir,
}

macro_rules! scene {
    () => {
        match evaluator() {
            Some(_) => Scene::new(),
            None => return,
        }
    };
}

const READER: &str = "let s = import \"sandbox\" in\n\
                      s.make_default_config \"reader\" & { network_policy = \"deny\", cmd = [\"/bin/echo\", \"own\"] }\n";

impl Scene {
    fn new() -> Scene {
        let scene = Scene { directory: common::open_directory() };
        scene.write("reader.ncl", READER);
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn command(&self) -> Command {
        let mut command = common::cofferdam();
        command
            .current_dir(self.directory.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("COFFERDAM_PROFILES", self.path("store"));
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// What it prints when it works.
    #[track_caller]
    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.printed(arguments)).unwrap()
    }

    /// What it says when it refuses.
    #[track_caller]
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}: {message}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
        message
    }

    fn entries(&self) -> Vec<PathBuf> {
        let directory = self.path("cache/cofferdam/policies");
        fs::read_dir(directory).map(|d| d.map(|e| e.unwrap().path()).collect()).unwrap_or_default()
    }
}

#[test]
fn each_format_is_exported() {
    let scene = scene!();
    let policy = scene.json(&["export", "reader.ncl"]);
    assert_eq!((&policy["id"], &policy["version"]), (&"reader".into(), &1.into()));
    assert_eq!(policy, scene.json(&["export", "--format", "policy", "--encoding", "json", "./reader.ncl"]));
    assert!(scene.json(&["export", "--format", "nsjail", "reader.ncl"])["mount"].is_array());
    assert!(scene.printed(&["export", "--format", "nsjail-text", "reader.ncl"]).contains("clone_newnet: true"));
    let seatbelt = scene.printed(&["export", "--format", "seatbelt", "reader.ncl"]);
    let (head, rules) = seatbelt.split_once("(version 1)\n").unwrap();
    assert!(head.lines().all(|line| line.starts_with(";; ")) && head.contains(" -D "), "{head}");
    let parameters = rules.split("(param \"").skip(1).filter_map(|rest| rest.split('"').next());
    for name in parameters {
        assert!(head.contains(&format!(" -D {name}=")), "{name} is not told: {head}");
    }
    assert_eq!(scene.json(&["export", "--format", "raw", "reader.ncl"])["skill_id"], "reader");
    assert!(scene.printed(&["export", "--encoding", "yaml", "reader.ncl"]).contains("id: reader\n"));
    assert!(scene.printed(&["export", "--encoding", "toml", "reader.ncl"]).contains("id = \"reader\"\n"));
    let message = scene.refused(&["export", "--format", "seatbelt", "--encoding", "yaml", "reader.ncl"]);
    assert!(message.contains("--encoding is for data"), "{message}");
}

#[test]
fn a_profile_is_checked_like_a_policy() {
    let scene = scene!();
    assert!(scene.printed(&["check", "reader.ncl"]).contains("\"id\": \"reader\""));
    let bad = scene.write("bad.ncl", "{ skill_id = \"x\", max_cpu_seconds = \"y\" }");
    let output = scene.output(&["check", "--json", "reader.ncl", &bad, "missing.ncl"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!((&rows[0]["valid"], &rows[1]["valid"]), (&true.into(), &false.into()));
    assert!(rows[1]["refused"].as_str().unwrap().contains("bad.ncl:1:37"), "{rows}");
    assert_eq!(scene.output(&["check", &bad]).status.code(), Some(1));
}

#[test]
fn a_run_starts_from_a_profile() {
    let scene = scene!();
    assert_eq!(scene.printed(&["run", "--profile", "reader.ncl"]), "own\n");
    assert_eq!(scene.printed(&["run", "--profile", "reader.ncl", "--", "/bin/echo", "given"]), "given\n");
    // A limit that holds for everybody: what a profile names is required.
    let plan = scene.json(&["run", "--profile", "reader.ncl", "--set", "timeout_seconds=77", "--dry-run"]);
    assert_eq!(plan["policy"]["limits"]["wall_ms"], 77_000);
    // An option of the command line comes after, through the same validation as over a policy file.
    let both = ["run", "--profile", "reader.ncl", "--set", "timeout_seconds=77", "--timeout", "78s", "--dry-run"];
    assert_eq!(scene.json(&both)["policy"]["limits"]["wall_ms"], 78_000);
    let message = scene.refused(&["run", "--profile", "reader.ncl", "--set", "resources.max_memory_mb=many"]);
    assert!(message.contains("max_memory_mb") && message.contains("many"), "{message}");
}

#[test]
fn python_is_python3_where_the_sandbox_has_only_that() {
    let scene = scene!();
    scene.write("py.ncl", &READER.replace("\"/bin/echo\", \"own\"", "\"python\", \"-c\", \"print(6 * 7)\""));
    assert_eq!(scene.printed(&["run", "--profile", "py.ncl"]), "42\n");
    // Stored as nsjail's own configuration alone, as `nickel export … > nsjail.json` leaves it.
    fs::create_dir_all(scene.path("store/py")).unwrap();
    let own = scene.printed(&["export", "--format", "nsjail", "py.ncl"]);
    scene.write("store/py/nsjail.json", &own);
    let stored = ["run", "--profiles", "store", "--profile", "py"];
    assert_eq!(scene.printed(&stored), "42\n");
    assert_eq!(scene.printed(&[&stored[..], &["--", "python", "-c", "print(7)"]].concat()), "7\n");
    // What the caller names without a profile is what is looked for.
    let message = scene.json(&["run", "--dry-run", "--", "python", "-c", "print(6 * 7)"]);
    assert_eq!(message["policy"]["command"]["argv"][0], "python");
}

#[test]
fn a_stored_profile_runs_without_its_source() {
    let scene = scene!();
    let stored = scene.printed(&["export", "--store", "reader.ncl"]);
    assert_eq!(Path::new(stored.trim_end()), scene.path("store/reader"));
    let mut names: Vec<_> =
        fs::read_dir(stored.trim_end()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["nsjail.json", "policy.json", "seatbelt.sb"]);
    fs::remove_file(scene.path("reader.ncl")).unwrap();
    assert_eq!(scene.printed(&["run", "--profile", "reader"]), "own\n");
    assert_eq!(scene.json(&["export", "reader"])["id"], "reader");
    assert!(scene.printed(&["export", "--format", "seatbelt", "reader"]).contains("\n(version 1)\n"));
    let message = scene.refused(&["run", "--profile", "reader", "--set", "a=1"]);
    assert!(message.contains("--set needs the source"), "{message}");
    let message = scene.refused(&["run", "--profile", "nobody"]);
    assert!(
        message.contains("nobody") && message.contains("hint: cofferdam export FILE.ncl --store --id nobody"),
        "{message}"
    );
}

#[test]
fn an_id_cannot_leave_the_store() {
    let scene = scene!();
    for id in ["../x", "a/b", "..", ".x", ""] {
        let message = scene.refused(&["export", "--store", "--id", id, "reader.ncl"]);
        assert!(message.contains("is no profile id"), "{message}");
    }
    assert!(!scene.path("store").exists() && !scene.path("x").exists());
    scene.printed(&["export", "--store", "--id", "x..y".replace("..", ".").as_str(), "reader.ncl"]);
    assert!(scene.path("store/x.y/policy.json").exists());
}

#[test]
fn unwritable_store_is_an_error_and_stays_empty() {
    let scene = scene!();
    let place = if common::is_root() {
        // Permissions do not hold the superuser; sysfs does.
        "/sys/kernel/cofferdam-store".to_owned()
    } else {
        fs::create_dir(scene.path("closed")).unwrap();
        fs::set_permissions(scene.path("closed"), fs::Permissions::from_mode(0o500)).unwrap();
        scene.path("closed/store").display().to_string()
    };
    let message = scene.refused(&["export", "--store", "--profiles", &place, "reader.ncl"]);
    assert!(message.contains(&place) && message.contains("--profiles DIR"), "{message}");
    assert!(!Path::new(&place).exists());
}

#[test]
fn several_profiles_are_stored_together_or_not_at_all() {
    let scene = scene!();
    for name in ["one", "two"] {
        scene.write(&format!("{name}.ncl"), &READER.replace("reader", name));
    }
    let bad = scene.write("bad.ncl", "{ skill_id = ");
    let message = scene.refused(&["export", "--store", "one.ncl", &bad, "two.ncl"]);
    assert!(message.contains("bad.ncl:1:"), "{message}");
    assert!(!scene.path("store").exists());
    scene.printed(&["export", "--store", "one.ncl", "two.ncl"]);
    assert!(scene.path("store/one/policy.json").exists() && scene.path("store/two/policy.json").exists());
    let message = scene.refused(&["export", "--store", "one.ncl", "./one.ncl"]);
    assert!(message.contains("two of the profiles have the id `one`"), "{message}");
}

#[test]
fn format_that_cannot_express_a_profile_refuses_only_itself() {
    let scene = scene!();
    let text = "(import \"sandbox\").make_default_config \"net\" \
                & { network_policy = \"whitelist\", allowed_domains = [\"a.example\"], readonly_mounts = [] }";
    scene.write("net.ncl", text);
    let message = scene.refused(&["export", "--format", "nsjail", "net.ncl"]);
    assert!(message.contains("cannot be exported for nsjail: network.mode") && message.contains("hint: "), "{message}");
    assert_eq!(scene.json(&["export", "net.ncl"])["network"]["mode"], "allowlist");
    // Of an earlier version of the profile nothing is left that would be another policy.
    scene.printed(&["export", "--store", "--id", "net", "reader.ncl"]);
    assert!(scene.path("store/net/nsjail.json").exists());
    let output = scene.output(&["export", "--store", "net.ncl"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.contains("no nsjail.json is stored: "), "{message}");
    assert!(scene.path("store/net/policy.json").exists() && !scene.path("store/net/nsjail.json").exists());
}

#[test]
fn many_profiles_are_answered_in_their_order_and_warned_of_once() {
    let scene = scene!();
    let names: Vec<String> = (0..60).map(|n| format!("p{n}.ncl")).collect();
    for (n, name) in names.iter().enumerate() {
        let text = READER.replace("\"reader\"", &format!("\"p{n}\""));
        scene.write(name, &text.replace("cmd =", "resources.max_memory_mb = 99, cmd ="));
    }
    let mut arguments = vec!["export", "--format", "nsjail"];
    arguments.extend(names.iter().map(String::as_str));
    let output = scene.output(&arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let all: Vec<Value> = serde_json::Deserializer::from_str(&text).into_iter().map(|value| value.unwrap()).collect();
    let expected: Vec<String> = (0..60).map(|n| format!("p{n}")).collect();
    assert_eq!(all.iter().map(|value| value["name"].as_str().unwrap()).collect::<Vec<_>>(), expected);
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.lines().count() < 10 && message.contains("(p0.ncl and 59 more)"), "{message}");
}

#[test]
fn several_profiles_stay_apart_in_every_encoding() {
    let scene = scene!();
    scene.write("other.ncl", &READER.replace("\"reader\"", "\"other\""));
    let both = ["reader.ncl", "other.ncl"];
    let yaml = scene.printed(&[&["export", "--encoding", "yaml"][..], &both].concat());
    let documents: Vec<&str> = yaml.split("---\n").skip(1).collect();
    let single = both.map(|file| scene.printed(&["export", "--encoding", "yaml", file]));
    assert_eq!(documents, single);
    let message = scene.refused(&[&["export", "--encoding", "toml"][..], &both].concat());
    assert!(message.contains("TOML holds one document") && message.contains("hint: call it for each"), "{message}");
    let message = scene.refused(&["export", "reader.ncl", "other.ncl", "--store", "--id", "one"]);
    assert!(message.contains("hint: leave it out: each is stored under its own id"), "{message}");
    assert!(scene.printed(&["export", "reader.ncl", "other.ncl", "--store"]).contains("/other\n"));
    // An id is no file; what looks at it is named.
    let message = scene.refused(&["check", "other"]);
    assert!(message.contains("hint: a stored profile is looked at with: cofferdam export other"), "{message}");
    assert!(!scene.refused(&["check", "./other"]).contains("hint: a stored profile"));
}

#[test]
fn an_output_file_is_whole_or_as_it_was() {
    let scene = scene!();
    scene.write("out.json", "before");
    scene.refused(&["export", "-o", "out.json", "missing.ncl"]);
    assert_eq!(fs::read_to_string(scene.path("out.json")).unwrap(), "before");
    assert_eq!(scene.printed(&["export", "-o", "out.json", "reader.ncl"]), "");
    let written = fs::read_to_string(scene.path("out.json")).unwrap();
    assert_eq!(written, scene.printed(&["export", "reader.ncl"]));
    assert_eq!(scene.printed(&["export", "-o", "/dev/stdout", "reader.ncl"]), written);
}

#[test]
fn a_second_run_does_not_evaluate_again() {
    let scene = scene!();
    let first = scene.printed(&["export", "reader.ncl"]);
    assert_eq!(scene.entries().len(), 1);
    // A copy with another identity would be asked again; what is known needs no evaluator that works.
    let broken = scene.path("libexec");
    fs::create_dir(&broken).unwrap();
    let evaluator = evaluator().unwrap();
    std::os::unix::fs::symlink(&evaluator, broken.join("cofferdam-compile")).unwrap();
    let known = scene.command().env("COFFERDAM_LIBEXEC", &broken).args(["export", "reader.ncl"]).output().unwrap();
    assert_eq!(String::from_utf8(known.stdout).unwrap(), first);
    assert_eq!(scene.entries().len(), 1, "the same program by another name is the same");
    // Everything that goes into the answer asks anew.
    scene.printed(&["export", "--set", "skill_version=2.0.0", "reader.ncl"]);
    scene.printed(&["export", "--format", "raw", "reader.ncl"]);
    assert_eq!(scene.entries().len(), 3);
    scene.write("reader.ncl", &READER.replace("own", "new"));
    assert!(scene.printed(&["export", "reader.ncl"]).contains("\"new\""));
    // An entry that is broken is as if it were not there.
    for entry in scene.entries() {
        fs::write(entry, "{").unwrap();
    }
    assert!(scene.printed(&["export", "reader.ncl"]).contains("\"new\""));
}

#[test]
fn cached_profile_is_not_evaluated_again() {
    let scene = scene!();
    scene.printed(&["run", "--profile", "reader.ncl"]);
    let best = |arguments: &[&str]| {
        (0..10)
            .map(|_| {
                let begun = Instant::now();
                scene.printed(arguments);
                begun.elapsed()
            })
            .min()
            .unwrap()
    };
    let known = best(&["export", "reader.ncl"]);
    // An evaluation takes many times as long, a process alone about a millisecond.
    assert!(known < Duration::from_millis(100), "{known:?}");
}

#[test]
fn imports_stay_in_the_directory_of_the_profile() {
    let scene = scene!();
    fs::create_dir(scene.path("profiles")).unwrap();
    fs::create_dir(scene.path("shared")).unwrap();
    scene.write("shared/name.txt", "shared");
    scene.write("profiles/p.ncl", "{ skill_id = import \"../shared/name.txt\" }");
    let message = scene.refused(&["export", "profiles/p.ncl"]);
    let shared = fs::canonicalize(scene.path("shared")).unwrap();
    assert!(message.contains("p.ncl:1:14") && message.contains("outside the directories"), "{message}");
    assert!(message.contains(&format!("hint: --allow-import {}", shared.display())), "{message}");
    let allowed = ["export", "--allow-import", "shared", "profiles/p.ncl"];
    assert_eq!(scene.json(&allowed)["id"], "shared");
    let trusted = ["export", "--trust-profile", "profiles/p.ncl"];
    assert!(scene.refused(&trusted).contains("outside the directories"), "trust is about the sandbox alone");
}

#[test]
fn an_evaluation_sees_nothing_of_the_host() {
    let scene = scene!();
    // What stands beside the profile is there, in the jail and out of it.
    scene.write("beside.txt", "beside");
    let file = scene.write("p.ncl", "{ skill_id = import \"beside.txt\" }");
    assert_eq!(scene.json(&["export", &file])["id"], "beside");
    assert_eq!(scene.json(&["export", "--trust-profile", "--set", "skill_version=3.0.0", &file])["id"], "beside");
    for secret in ["/etc/passwd", "/etc/hostname", "/proc/self/environ", "/usr/bin/env"] {
        let file = scene.write("p.ncl", &format!("{{ skill_id = import \"{secret}\" as 'Text }}"));
        assert!(scene.refused(&["export", &file]).contains("outside the directories"), "{secret}");
    }
}

#[test]
fn evaluations_that_do_not_end_are_ended() {
    let scene = scene!();
    for (name, text) in [
        ("loop.ncl", "let rec f = fun x => f x in { skill_id = f 0 }"),
        ("grow.ncl", "let rec f = fun x => f (x @ x) in { skill_id = f [1] }"),
        ("deep.ncl", "let rec f = fun x => 1 + f (x + 1) in { skill_id = f 0 }"),
    ] {
        let file = scene.write(name, text);
        for trusted in [false, true] {
            if trusted && name != "grow.ncl" {
                continue; // the same limits, by other means: one shows it
            }
            let begun = Instant::now();
            let message =
                scene.refused(&[&["export", &file][..], if trusted { &["--trust-profile"] } else { &[] }].concat());
            assert!(begun.elapsed() < Duration::from_secs(30), "{name}: {:?}", begun.elapsed());
            let ends = ["takes longer than", "of memory", "nests too deeply"];
            assert!(ends.iter().any(|end| message.contains(end)), "{name}: {message}");
            assert!(message.contains(name) && message.contains("hint: "), "{name}: {message}");
            let hint = message.split("hint: ").nth(1).unwrap_or_default();
            assert!(
                hint.contains(name) && hint.contains("a function that calls itself without end"),
                "{name}: {message}"
            );
            // Time also runs out without an endless function.
            let slow = message.contains("takes longer than");
            assert!(!slow || hint.contains("or many entries"), "{name}: {message}");
        }
    }
    // The others of the same call get their answer from another evaluator; the refusal names the one.
    let message = scene.refused(&["export", "reader.ncl", "grow.ncl"]);
    assert!(message.contains("grow.ncl") && !message.contains("reader.ncl"), "{message}");
}

#[test]
fn unreadable_profile_is_reported_with_file_line_and_fix() {
    let scene = scene!();
    let big = fs::File::create(scene.path("big.ncl")).unwrap();
    big.set_len(50_000_000).unwrap();
    scene.write("deep.ncl", &("[".repeat(100_000) + &"]".repeat(100_000)));
    scene.write("syntax.ncl", "{\n  skill_id = = 1,\n}");
    scene.write("a.ncl", "import \"b.ncl\"");
    scene.write("b.ncl", "import \"a.ncl\"");
    for (file, words) in [
        ("syntax.ncl", &["syntax.ncl:2:14", "hint: "][..]),
        ("a.ncl", &["a.ncl:1:1", "infinite recursion", "hint: "]),
        ("big.ncl", &["big.ncl", "50000000 bytes", "hint: "]),
        ("deep.ncl", &["deep.ncl:1:1001", "nested too deeply", "hint: "]),
        ("missing.ncl", &["missing.ncl", "No such file", "hint: "]),
        ("./deep.ncl/x", &["deep.ncl/x", "Not a directory", "hint: "]),
        ("../..", &["is no file", "hint: "]),
        ("/", &["is no file", "hint: "]),
        ("/tmp", &["/tmp is a directory", "hint: "]),
    ] {
        let message = scene.refused(&["run", "--profile", file]);
        for word in words {
            assert!(message.contains(word), "{file}: {message}");
        }
    }
}

#[test]
fn without_an_evaluator_the_error_says_how_to_get_it() {
    let scene = scene!();
    let output = scene.command().env("COFFERDAM_LIBEXEC", "/nowhere").args(["export", "reader.ncl"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(message.contains("/nowhere/cofferdam-compile"), "{message}");
    assert!(message.contains("hint: cargo build --release -p cofferdam-compile"), "{message}");
}

#[test]
fn options_about_profiles_need_one() {
    let scene = scene!();
    for option in [&["--set", "a=1"][..], &["--trust-profile"], &["--allow-import", "."], &["--profiles", "."]] {
        let message = scene.refused(&[&["run"], option, &["--", "/bin/true"]].concat());
        assert!(message.contains("none is given") && message.contains("--profile"), "{message}");
    }
    let policy = scene.write("policy.json", "{\"version\": 1}");
    let message = scene.refused(&["run", "--policy", &policy, "--profile", "reader.ncl", "--", "/bin/true"]);
    assert!(message.contains("cannot be used with"), "{message}");
    let message = scene.refused(&["export", "--set", "a", "reader.ncl"]);
    assert!(message.contains("--set") && message.contains("a.b=value"), "{message}");
}

#[test]
fn profile_text_does_not_control_the_terminal() {
    let scene = scene!();
    let hostile = r#"{ version = 1, description = "\u{9b}2J\u{1b}]0;x\u{7}\u{202e}" }"#;
    let file = scene.write("hostile.ncl", hostile);
    for format in ["policy", "raw", "nsjail-text", "seatbelt"] {
        let (ours, theirs) = common::pty();
        let arguments = ["export", "--format", format, &file];
        let mut child = scene.command().args(arguments).stdout(theirs).spawn().unwrap();
        let mut message = Vec::new();
        // EIO is how a terminal without another side ends.
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = rustix::io::read(&ours, &mut bytes) {
            message.extend_from_slice(&bytes[..read]);
        }
        assert!(child.wait().unwrap().success());
        let message = String::from_utf8(message).unwrap().replace("\r\n", "\n");
        assert!(message.chars().all(|c| !c.is_control() || c == '\n') && !message.contains('\u{202e}'), "{message:?}");
        let whole = scene.printed(&arguments);
        assert_eq!(message.lines().count(), whole.lines().count(), "{format}");
        if let ("policy", Ok(policy)) = (format, serde_json::from_str::<Value>(&message)) {
            assert_eq!(policy, serde_json::from_str::<Value>(&whole).unwrap(), "it is the same policy");
            assert!(whole.contains('\u{9b}'), "a pipe gets every byte");
        }
    }
}

#[test]
fn profile_with_the_id_of_another_gets_a_warning() {
    let scene = scene!();
    let replaced = |file: &str, more: &[&str]| {
        let output = scene.output(&[&["export", "--store", file], more].concat());
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).contains("replaces what is stored")
    };
    scene.write("other.ncl", READER);
    assert!(!replaced("reader.ncl", &[]), "nothing is there");
    assert!(!replaced("reader.ncl", &[]), "its own");
    assert!(replaced("other.ncl", &[]));
    assert!(!replaced("other.ncl", &["--id", "reader"]), "who exports it says so");
}
