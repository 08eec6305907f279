//! Text that messages quote (paths, names, values) adds no line to them and does not control a terminal, wherever it is given.

mod common;

use cofferdam_policy::text::steers;
use common::{cofferdam, open_directory};

/// A word that would begin a line, colour it, and turn its direction.
const WORD: &str = "q\nFAKE\u{1b}[31m\u{202e}";

#[test]
fn a_hostile_word_forges_no_line_and_steers_nothing() {
    let place = open_directory();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, text: &str| {
        std::fs::write(at(name), text).unwrap();
        at(name)
    };
    std::fs::create_dir(at(WORD)).unwrap();
    let inside = |name: &str| format!("{WORD}/{name}");
    let policy = write("policy.json", r#"{"version":1,"x\nFAKE":1,"command":{"argv":["a\nFAKE"],"cwd":"q\nFAKE"}}"#);
    let argv = write("argv.json", r#"{"version":1,"command":{"argv":["a\nFAKE\u001b"],"cwd":"/"}}"#);
    let profile = write(&inside("p.ncl"), "{ skill_id = = 1 }");
    let config = write(&inside("c.toml"), "[environments.x]\nbad = 1\n");
    let names = write(
        "names.toml",
        "[environments.\"q\\nFAKE\"]\npreset = \"pyt\\nFAKE\"\n[project]\npath = \"/x\\nFAKE\"\naccess = \"y\\nFAKE\"\n",
    );
    let absolute = format!("/{WORD}");
    let text = write(&inside("text"), "{");
    let calls: Vec<Vec<&str>> = [
        "run -- W",
        "run -- /W",
        "run -v W:/x -- true",
        "run -v /etc:/W:zz -- true",
        "run -e W -- true",
        "run -w /W -- true",
        "run --deny W -- true",
        "run --protect W -- true",
        "run --memory W -- true",
        "run --timeout W -- true",
        "run --allow W -- true",
        "run --network W -- true",
        "run --policy TEXT",
        "run --policy POLICY",
        "run --policy ARGV",
        "run --profile W",
        "run --profile PROFILE",
        "run --backend W -- true",
        "run --root W -- true",
        "run --image W --backend docker -- true",
        "run --audit-trail /etc/passwd/W -- true",
        "run --audit-secret W --audit-trail TRAIL -- true",
        "run --keep-changes /proc/W -v PLACE:/d:cow -- true",
        "run --seccomp W -- true",
        "run --best-effort=W -- true",
        "run --tmpfs W -- true",
        "run --W",
        "check TEXT",
        "check POLICY",
        "check PROFILE",
        "export PROFILE",
        "export --set W=1 PROFILE",
        "export --id W PROFILE",
        "eval W 1",
        "eval --config CONFIG x 1",
        "eval --config NAMES x 1",
        "eval ./W 1",
        "environment list --config NAMES",
        "environment check CONFIG",
        "environment show W",
        "environment W",
        "skill run W",
        "skill show W",
        "skill verify W",
        "skill revoke W",
        "audit verify --dir W",
        "audit show --kind W",
        "audit W",
        "mcp --http W",
        "mcp --config /W",
        "mcp install --client W",
        "doctor W",
        "W",
    ]
    .iter()
    .map(|line| {
        let word = |word| match word {
            "W" => WORD,
            "/W" => &absolute,
            "TEXT" => &text,
            "POLICY" => &policy,
            "ARGV" => &argv,
            "PROFILE" => &profile,
            "CONFIG" => &config,
            "NAMES" => &names,
            other => other,
        };
        line.split(' ').map(word).collect()
    })
    .collect();
    for call in calls {
        let whole = |part: &&str| part.replace("TRAIL", &at("trail")).replace("PLACE", &at("")).replace('W', WORD);
        // What is a word of the command has no W in it.
        let arguments: Vec<String> =
            call.iter().map(|part| if part.contains("FAKE") { (*part).to_owned() } else { whole(part) }).collect();
        let out = cofferdam().args(&arguments).current_dir(place.path()).output().unwrap();
        for bytes in [&out.stdout, &out.stderr] {
            let said = String::from_utf8_lossy(bytes);
            let forged = said.lines().any(|line| line.starts_with("FAKE"));
            let steered = said.chars().any(|c| steers(c) && !matches!(c, '\n' | '\t'));
            assert!(!forged && !steered, "{arguments:?}: {said:?}");
        }
    }
}

#[test]
fn a_program_whose_name_has_several_lines_is_named_on_one() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = open_directory();
    let name = "q\nFAKE";
    let write = |directory: &str, text: &str, mode: u32| {
        let at = place.path().join(directory);
        std::fs::create_dir(&at).unwrap();
        std::fs::write(at.join(name), text).unwrap();
        std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("plain", "#!/bin/sh\n", 0o644);
    write("script", "#!/no/such/interpreter\n", 0o755);
    write("fits", "#!/bin/sh\necho ran\n", 0o755);
    std::fs::create_dir_all(place.path().join("directory").join(name)).unwrap();
    let run = |options: &[&str], program: &str| {
        let out =
            cofferdam().current_dir(place.path()).arg("run").args(options).args(["--", program]).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let at = |directory: &str| format!("./{directory}/{name}");
    let denied = place.path().join("script").join(name);
    let path = format!("PATH={}", place.path().join("plain").display());
    for (options, program) in [
        (&[][..], name.to_owned()),
        (&["-e", &path], name.to_owned()),
        (&[], at("gone")),
        (&[], at("plain")),
        (&[], at("script")),
        (&[], at("directory")),
        (&["-v", ".:.:rw,noexec"], at("fits")),
        (&["--deny", denied.to_str().unwrap()], at("script")),
    ] {
        let (code, _, said) = run(options, &program);
        assert!(matches!(code, Some(126 | 127)), "{program:?}: {said}");
        assert!(said.lines().next().unwrap().contains("q\\nFAKE"), "{program:?}: {said}");
        assert!(!said.lines().any(|line| line.trim_start().starts_with("FAKE")), "{program:?}: {said}");
    }
    assert_eq!(run(&[], &at("fits")), (Some(0), "ran\n".into(), String::new()), "the control: it is run by that name");
}

#[test]
fn other_words_of_any_language_are_quoted_as_they_are() {
    let out = cofferdam().args(["run", "--", "/é “–” 日本"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("/é “–” 日本"), "{said}");
}
