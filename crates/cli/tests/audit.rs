//! `cofferdam audit` and the trail that runs leave: written, verified, shown, followed.

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use cofferdam_engine::audit::{AuditEntry, Durability, Trail, TrailOptions};
use common::{code_and_stderr, cofferdam, output, parse};
use serde_json::{Value, json};

fn trail(dir: &Path, count: u64) -> Trail {
    let trail = Trail::open(dir, TrailOptions::default()).unwrap();
    for n in 0..count {
        let entry = AuditEntry::new(if n % 2 == 0 { "even" } else { "odd" }).run(&format!("r{n}")).with("n", n);
        trail.append(entry, Durability::Written).unwrap();
    }
    trail
}

fn text(dir: &Path, arguments: &[&str]) -> (i32, String) {
    let dir = dir.to_str().unwrap();
    let output = output(&[&["audit", "--dir", dir], arguments].concat());
    let both = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(both).unwrap())
}

#[test]
fn verify_says_what_holds_and_where_it_does_not() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    trail(&dir, 4);
    let (code, said) = text(&dir, &["verify"]);
    assert!(code == 0 && said.contains("5 records, 1 to 5") && said.contains("no anchor was compared"), "{said}");
    let file = dir.join("trail-000001.jsonl");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replacen("\"n\":2", "\"n\":7", 1)).unwrap();
    let (code, said) = text(&dir, &["verify"]);
    assert!(code == 1 && said.contains("trail-000001.jsonl:4 (byte ") && said.contains("was changed"), "{said}");
    let json = parse(&cofferdam().args(["audit", "verify", "--json", "--dir"]).arg(&dir).output().unwrap());
    assert_eq!((&json["ok"], &json["line"], &json["record"]), (&false.into(), &4.into(), &4.into()));
    std::fs::write(&file, &good).unwrap();
    assert_eq!(text(&dir, &["verify"]).0, 0);
    // What only reads takes the directory as it is, and what writes does not.
    let place = dir.to_str().unwrap();
    for (action, code) in [("verify", 0), ("show", 0), ("tail", 0), ("checkpoint", 125)] {
        let output = output(&["audit", action, place]);
        assert_eq!(output.status.code(), Some(code), "{action}: {output:?}");
    }
    assert_eq!(output(&["audit", "--dir", place, "verify", place]).status.code(), Some(125));
    let lines: Vec<&str> = good.lines().collect();
    std::fs::write(&file, format!("{}\n{}\n", lines[0], lines[3])).unwrap();
    assert!(text(&dir, &["verify"]).1.contains("records 2 to 3 were removed"));
}

/// One call of a tool of `cofferdam mcp`, and its result.
fn called(home: &Path, trail: Option<&Path>) -> Value {
    let mut server = cofferdam();
    server.arg("mcp").env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("COFFERDAM_CONFIG").current_dir(home);
    match trail {
        Some(dir) => server.env("COFFERDAM_AUDIT", dir),
        None => server.env_remove("COFFERDAM_AUDIT"),
    };
    let mut child = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let client =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let call = json!({ "name": "run", "arguments": { "env": "shell", "code": "echo ran" } });
    for (id, method, params) in [(1, "initialize", client), (2, "tools/call", call)] {
        writeln!(input, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).unwrap();
    }
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2).expect("an answer to the call");
    drop(input);
    child.wait().unwrap();
    answer["result"].clone()
}

#[test]
fn a_call_of_the_mcp_server_is_in_the_trail_of_the_variable() {
    let home = common::open_directory();
    let dir = home.path().join("trail");
    for (trail, kinds) in [(None, None), (Some(&*dir), Some(["sandbox_started", "sandbox_completed"]))] {
        let result = called(home.path(), trail);
        assert_eq!(result["structuredContent"]["stdout"], "ran\n", "{result}");
        let Some(kinds) = kinds else {
            assert!(!dir.exists() && !home.path().join(".local/state/cofferdam/audit").exists(), "no trail is named");
            continue;
        };
        let (code, said) = text(&dir, &["verify"]);
        assert!(code == 0 && said.contains("3 records, 1 to 3"), "{said}");
        for kind in kinds {
            let shown = text(&dir, &["show", "--kind", kind]).1;
            assert!(shown.lines().count() == 1 && shown.contains("environment=shell") == (kind == kinds[0]), "{shown}");
        }
    }
}

#[test]
fn an_anchor_elsewhere_shows_a_trail_that_was_cut_short() {
    let root = tempfile::tempdir().unwrap();
    let (dir, key, anchor) = (root.path().join("audit"), root.path().join("key"), root.path().join("anchor"));
    trail(&dir, 3);
    let made = output(&["audit", "keygen", key.to_str().unwrap()]);
    let public = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert_eq!((made.status.code(), public.len()), (Some(0), 64));
    let place = format!("file:{}", anchor.display());
    let (code, said) = text(&dir, &["checkpoint", "--key", key.to_str().unwrap(), "--anchor", &place]);
    assert_eq!(code, 0, "{said}");
    let full = ["verify", "--key", &public, "--anchor", anchor.to_str().unwrap()];
    let (code, said) = text(&dir, &full);
    assert!(code == 0 && said.contains("1 anchored checkpoints are there") && said.contains(&public), "{said}");
    let file = dir.join("trail-000001.jsonl");
    let good = std::fs::read_to_string(&file).unwrap();
    let cut = good.lines().take(3).map(|line| format!("{line}\n")).collect::<String>();
    std::fs::write(&file, cut).unwrap();
    assert_eq!(text(&dir, &["verify"]).0, 0, "the files alone cannot tell");
    let (code, said) = text(&dir, &full);
    assert!(code == 1 && said.contains("cut short"), "{said}");
}

#[test]
fn an_anchor_elsewhere_shows_a_trail_that_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let (dir, key, anchor) = (root.path().join("audit"), root.path().join("key"), root.path().join("anchor"));
    trail(&dir, 3);
    let public = String::from_utf8(output(&["audit", "keygen", key.to_str().unwrap()]).stdout).unwrap();
    let public = public.trim();
    let place = format!("file:{}", anchor.display());
    assert_eq!(text(&dir, &["checkpoint", "--key", key.to_str().unwrap(), "--anchor", &place]).0, 0);
    let full = ["verify", "--key", public, "--anchor", anchor.to_str().unwrap()];
    let json = || parse(&output(&[&["audit", "--json", "--dir", dir.to_str().unwrap()][..], &full].concat()));
    let right = json();
    let (last, hash, id) = (&right["last"], &right["last_hash"], &right["trail"]);
    assert_eq!((&right["ok"], last), (&true.into(), &5.into()), "{right}");
    let file = dir.join("trail-000001.jsonl");
    let gone: [(&str, &dyn Fn()); 3] = [
        ("emptied", &|| std::fs::write(&file, "").unwrap()),
        ("removed", &|| std::fs::remove_file(&file).unwrap()),
        ("the directory as well", &|| std::fs::remove_dir_all(&dir).unwrap()),
    ];
    for (how, make) in gone {
        make();
        let (code, said) = text(&dir, &full);
        assert!(code == 1 && said.contains("record 5") && said.contains(hash.as_str().unwrap()), "{how}: {said}");
        let stderr_text = json();
        assert_eq!(
            (&stderr_text["ok"], &stderr_text["problem"].is_string()),
            (&false.into(), &true),
            "{how}: {stderr_text}"
        );
        let missing = &stderr_text["missing"];
        assert_eq!((&missing["record"], &missing["hash"], &missing["trail"]), (last, hash, id), "{how}");
        let (code, said) = text(&dir, &["verify", "--key", public]);
        assert_eq!(code, 125, "{how}: nothing says that there was one: {said}");
    }
}

#[test]
fn unreadable_or_unreachable_anchor_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (dir, key, anchor) = (root.path().join("audit"), root.path().join("key"), root.path().join("anchor"));
    trail(&dir, 2);
    assert_eq!(output(&["audit", "keygen", key.to_str().unwrap()]).status.code(), Some(0));
    let (code, said) = text(&dir, &["verify", "--anchor", anchor.to_str().unwrap()]);
    assert!(code == 125 && said.contains(&format!("the anchor's file {}", anchor.display())), "{said}");
    assert!(!said.contains(dir.to_str().unwrap()), "the trail is not at fault: {said}");
    let checkpoint = |place: &str| text(&dir, &["checkpoint", "--key", key.to_str().unwrap(), "--anchor", place]);
    let (code, said) = checkpoint("command:/nonexistent/anchor");
    assert!(code == 125 && said.contains("is written, as record 4") && said.contains("hint: "), "{said}");
    // As the hint says: the next one covers that as well.
    let place = format!("file:{}", anchor.display());
    assert_eq!(checkpoint(&place).0, 0);
    for given in [&place, anchor.to_str().unwrap()] {
        let (code, said) = text(&dir, &["verify", "--anchor", given]);
        assert!(code == 0 && said.contains("1 anchored checkpoints are there"), "{said}");
    }
    let (code, said) = text(&dir, &["verify", "--anchor", "syslog"]);
    assert!(code == 125 && said.contains("--anchor PATH"), "{said}");
}

#[test]
fn trail_writable_by_others_gets_a_warning() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    trail(&dir, 2);
    let verify = || cofferdam().args(["audit", "verify", "--json", "--dir"]).arg(&dir).output().unwrap();
    let mode = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap()
    };
    for (path, open, own) in [(dir.clone(), 0o777, 0o700), (dir.join("trail-000001.jsonl"), 0o620, 0o600)] {
        let output = verify();
        assert_eq!((parse(&output)["warnings"].as_array().unwrap().len(), output.stderr.len()), (0, 0));
        mode(&path, open);
        let output = verify();
        let stderr_text = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(output.status.success() && stderr_text.contains("others may write"), "{stderr_text}");
        assert!(parse(&output)["warnings"][0].as_str().unwrap().contains(path.to_str().unwrap()));
        mode(&path, own);
    }
}

#[test]
fn an_anchor_of_several_trails_says_nothing_until_one_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (key, anchor) = (root.path().join("key"), root.path().join("anchor"));
    assert_eq!(output(&["audit", "keygen", key.to_str().unwrap()]).status.code(), Some(0));
    let (one, two) = (root.path().join("one"), root.path().join("two"));
    let mut ids = Vec::new();
    for dir in [&one, &two] {
        trail(dir, 3);
        let place = format!("file:{}", anchor.display());
        assert_eq!(text(dir, &["checkpoint", "--key", key.to_str().unwrap(), "--anchor", &place]).0, 0);
        let stderr_text = parse(&cofferdam().args(["audit", "verify", "--json", "--dir"]).arg(dir).output().unwrap());
        ids.push(stderr_text["trail"].as_str().unwrap().to_owned());
    }
    let verify =
        |dir: &Path, more: &[&str]| text(dir, &[&["verify", "--anchor", anchor.to_str().unwrap()], more].concat());
    let (code, said) = verify(&one, &[]);
    assert!(code == 1 && said.contains(&ids[1]) && said.contains("hint: --trail ID"), "{said}");
    let (code, said) = verify(&one, &["--trail", &ids[0]]);
    assert!(code == 0 && said.contains("1 anchored checkpoints are there"), "{said}");
    assert_eq!(verify(&two, &["--trail", &ids[0]]).0, 1, "it is another one");
    assert_eq!(text(&two, &["verify", "--trail", &ids[0]]).0, 1, "without an anchor as well");
    assert_eq!(text(&two, &["verify", "--trail", &ids[1]]).0, 0);
}

#[test]
fn show_and_tail_pick_records_out() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    let trail = trail(&dir, 30);
    let lines = |arguments: &[&str]| text(&dir, arguments).1.lines().count();
    assert_eq!((lines(&["show"]), lines(&["show", "--kind", "odd"]), lines(&["show", "--run", "r3"])), (31, 15, 1));
    assert_eq!((lines(&["show", "--since", "2100-01-01"]), lines(&["show", "--until", "2100-01-01"])), (0, 31));
    assert_eq!((lines(&["tail"]), lines(&["tail", "--kind", "even"])), (10, 10));
    for line in text(&dir, &["show", "--json"]).1.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(record["hash"].as_str().is_some_and(|hash| hash.len() == 64), "{line}");
    }
    // Following shows what comes after it has begun.
    let mut follow = cofferdam();
    let mut child = follow.args(["audit", "tail", "-f", "--dir"]).arg(&dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    (0..10).for_each(|_| assert!(reader.read_line(&mut line).unwrap() > 0));
    trail.append(AuditEntry::new("late\u{1b}[2J"), Durability::Written).unwrap();
    line.clear();
    assert!(reader.read_line(&mut line).unwrap() > 0);
    assert!(line.contains("late") && !line.contains('\u{1b}'), "{line:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn closed_pipe_ends_a_reading_command_silently() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    let trail = trail(&dir, 30);
    let dir = dir.to_str().unwrap();
    // A pipe whose reader is closed from the beginning.
    let into_closed_pipe = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = cofferdam().args(arguments).stdout(writer).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let reads: [&[&str]; 6] = [
        &["audit", "show", "--json", "--dir", dir],
        &["audit", "verify", "--dir", dir],
        &["audit", "tail", "-f", "--dir", dir],
        &["run", "--dry-run", "--", "true"],
        &["environment", "list"],
        &["--help"],
    ];
    for arguments in reads {
        assert_eq!(into_closed_pipe(arguments), (Some(141), String::new()), "{arguments:?}");
        let mut control = cofferdam();
        let read = control.args(arguments.iter().filter(|argument| **argument != "-f")).output().unwrap();
        assert!(read.status.success() && !read.stdout.is_empty(), "{arguments:?}");
    }
    // A command that changed something reports that its result could not be written.
    let key = root.path().join("key");
    let (code, said) = into_closed_pipe(&["audit", "keygen", key.to_str().unwrap()]);
    assert!(code == Some(125) && said.contains("cannot write to standard output") && key.exists(), "{said}");
    let (code, said) = into_closed_pipe(&["eval", "--json", "shell", "true"]);
    assert!(code == Some(125) && said.contains("cannot write to standard output"), "{said}");
    // `tail -f` notices it although there are no new records.
    let mut follow = cofferdam();
    follow.args(["audit", "tail", "-f", "--dir", dir]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = follow.spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut lines = String::new();
    (0..10).for_each(|_| assert!(reader.read_line(&mut lines).unwrap() > 0));
    drop(reader);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(141), &b""[..]));
    drop(trail);
}

#[test]
fn a_run_is_recorded_and_its_secrets_are_not() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    let here = dir.to_str().unwrap();
    let run = |script: &str| {
        let options =
            ["run", "--audit-trail", here, "-e", "KEY=hunter2-value", "--audit-secret", "KEY", "--json", "--"];
        parse(&output(&[&options[..], &["/bin/sh", "-c", script]].concat()))
    };
    let one = run("echo $KEY; echo hunter2-value >/dev/null; exit 4");
    assert_eq!((&one["exit_code"], &one["stdout"]), (&4.into(), &"hunter2-value\n".into()));
    let id = one["run_id"].as_str().unwrap();
    let (code, said) = text(&dir, &["show", "--run", id]);
    assert!(code == 0 && said.contains("sandbox_started") && said.contains("exitCode=4"), "{said}");
    let all = std::fs::read_to_string(dir.join("trail-000001.jsonl")).unwrap();
    assert!(!all.contains("hunter2") && all.contains("[secret KEY]"), "{all}");
    assert_eq!(text(&dir, &["verify"]).0, 0);
}

#[test]
fn only_an_exited_program_has_an_exit_code() {
    let root = tempfile::tempdir().unwrap();
    for (at, (options, script, ending, exit_code)) in [
        (&[][..], "exit 4", "exited", Some(4)),
        (&[], "exit 0", "exited", Some(0)),
        (&["--timeout", "300ms"], "sleep 60", "timed_out", None),
        (&["--cpu-time", "1s"], "while :; do :; done", "limit_exceeded", None),
        (&[], "kill -KILL $$", "signalled", None),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = root.path().join(at.to_string());
        let line = ["run", "--json", "--best-effort", "--audit-trail", dir.to_str().unwrap()];
        let o = parse(&output(&[&line[..], options, &["--", "/bin/sh", "-c", script]].concat()));
        let expected = exit_code.map_or(serde_json::Value::Null, serde_json::Value::from);
        assert_eq!((&o["outcome"], &o["exit_code"]), (&ending.into(), &expected), "{script}: {o:#}");
        let trail = std::fs::read_to_string(dir.join("trail-000001.jsonl")).unwrap();
        let mut records = trail.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let end = records.find(|record| record["kind"] == "sandbox_completed").unwrap_or_else(|| panic!("{trail}"));
        let data = end["data"].as_object().unwrap();
        assert_eq!((&data["outcome"], data.get("exitCode")), (&ending.into(), exit_code.map(|_| &expected)), "{end}");
    }
}

#[test]
fn secret_is_removed_from_truncated_escaped_lowercased_text() {
    let root = tempfile::tempdir().unwrap();
    let long = "Q".repeat(300);
    let at_the_cut = "p=$(printf %0230d 0); mkdir \"/etc/$p/aaaaaaaaa/$SEC\"";
    for (name, secret, script) in [
        ("plain", "TOKEN-abcdef-123456", "mkdir \"/etc/$SEC\""),
        ("longer than a text", &*long, "mkdir \"/etc/$SEC\""),
        ("at the cut", "ghp_0123456789abcdefghijklmnopqrstuvwxyz", at_the_cut),
        ("two lines", "BEGIN KEY\nMIIabcdef98765\nEND", "mkdir \"/etc/$SEC\""),
        ("no normal path", "abcd//efgh/./ijkl", "mkdir \"/etc/$SEC\""),
        ("past what is read", "TOKEN-abcdef-123456", "mkdir \"/etc/$(printf '/.%.0s' $(seq 506))/$SEC\""),
    ] {
        let dir = root.path().join(name);
        let mut command = cofferdam();
        command.env("SEC", secret).args(["run", "--trace", "-e", "SEC", "--audit-secret", "SEC", "--audit-trail"]);
        command.arg(&dir).args(["--", "/bin/sh", "-c", script]).output().unwrap();
        let all = std::fs::read_to_string(dir.join("trail-000001.jsonl")).unwrap();
        let objects: Vec<Value> = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
        let mut objects = objects.iter().filter_map(|record| record["data"]["object"].as_str());
        assert!(objects.any(|object| object.contains("/[secret SEC]")), "{name}: {all}");
        let parts = [secret.split(['\n', '/']).max_by_key(|part| part.len()).unwrap(), secret];
        let parts = parts.map(|part| &part[..part.len().min(8)]);
        assert!(!parts.iter().any(|part| all.contains(part)), "{name}: {all}");
    }
}

#[test]
fn nothing_runs_that_cannot_be_recorded() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    let marker = root.path().join("ran");
    let bind = format!("{}:{}:rw", root.path().display(), root.path().display());
    let script = format!("touch {}", marker.display());
    let run = |place: &Path| {
        code_and_stderr(&["run", "--audit-trail", place.to_str().unwrap(), "-v", &bind, "--", "/bin/sh", "-c", &script])
    };
    let (code, said) = run(&file);
    assert!(code == 125 && said.contains("trail") && !marker.exists(), "{said}");
    let (code, said) = run(&root.path().join("audit"));
    assert!(code == 0 && marker.exists(), "{said}");
}

#[test]
fn next_writer_names_and_ends_a_run_whose_owner_was_killed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    let mut command = cofferdam();
    command.args(["run", "--audit-trail"]).arg(&dir).args(["--", "/bin/sh", "-c", "echo on; exec sleep 60"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    assert!(BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap() > 0);
    let (code, said) = text(&dir, &["verify"]);
    assert!(code == 0 && said.contains("has no end: it is under way, in process"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
    for action in ["verify", "show"] {
        let (code, said) = text(&dir, &[action]);
        assert!(code == 0 && said.contains(&format!("its process {} was killed", child.id())), "{said}");
    }
    let json = || parse(&cofferdam().args(["audit", "verify", "--json", "--dir"]).arg(&dir).output().unwrap());
    let unended = json()["unended"].as_array().unwrap().clone();
    assert_eq!((unended.len(), &unended[0]["state"], &unended[0]["record"]), (1, &"gone".into(), &2.into()));
    assert_eq!(unended[0]["owner"]["pid"], child.id());
    // The next writer records it, and is not disturbed by it.
    assert_eq!(code_and_stderr(&["run", "--audit-trail", dir.to_str().unwrap(), "--", "/bin/true"]).0, 0);
    assert_eq!(json()["unended"], serde_json::json!([]));
    let (_, said) = text(&dir, &["show", "--run", unended[0]["run"].as_str().unwrap()]);
    assert!(
        said.lines().count() == 2 && said.contains("sandbox_abandoned") && said.contains("why=owner_gone"),
        "{said}"
    );
}

#[test]
fn trail_of_another_user_may_be_signed_only_by_root() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    let run = |dir: &Path| code_and_stderr(&["run", "--audit-trail", dir.to_str().unwrap(), "--", "/bin/true"]);
    if !common::is_root() {
        let (code, said) = run(Path::new("/usr"));
        assert!(code == 125 && said.contains("/usr belongs to user 0") && said.contains("hint: name a dir"), "{said}");
    }
    assert_eq!(run(&dir).0, 0);
    if !common::is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    for name in ["", "lock", "trail-000001.jsonl"] {
        std::os::unix::fs::chown(dir.join(name), Some(65534), Some(65534)).unwrap();
    }
    let (code, said) = run(&dir);
    assert!(code == 125 && said.contains("belongs to user 65534") && said.contains("hint: name a dir"), "{said}");
    let key = root.path().join("key");
    assert_eq!(output(&["audit", "keygen", key.to_str().unwrap()]).status.code(), Some(0));
    let (code, said) = text(&dir, &["checkpoint", "--key", key.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = text(&dir, &["verify"]);
    assert!(code == 0 && said.contains("1 checkpoints"), "{said}");
}

#[test]
fn mistakes_get_hints_that_work() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("none");
    let (code, said) = text(&missing, &["verify"]);
    assert!(code == 125 && said.contains("--audit-trail"), "{said}");
    assert!(!missing.exists(), "reading makes nothing");
    let (code, said) = text(&missing, &["checkpoint"]);
    assert!(code == 125 && said.contains("--key"), "{said}");
    let (code, said) = text(&missing, &["show", "--since", "yesterday"]);
    assert!(code == 125 && said.contains("2026-05-01"), "{said}");
}

#[test]
fn run_is_named_by_an_unambiguous_prefix_of_its_id() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    let trail = trail(&dir, 0);
    for run in ["0f3ad4c2-one", "0f3ad4c2-two", "77777777", "77777777-more"] {
        trail.append(AuditEntry::new("note").run(run), Durability::Written).unwrap();
    }
    let show = |run: &str| text(&dir, &["show", "--run", run]);
    for (given, whole) in [("0f3ad4c2-o", "0f3ad4c2-one"), ("0f3ad4c2-two", "0f3ad4c2-two"), ("77777777", "77777777")] {
        let (code, said) = show(given);
        assert_eq!((code, said.lines().count()), (0, 1), "{given}: {said}");
        assert!(said.ends_with(&format!("run={whole}\n")), "{given}: {said}");
    }
    let (code, said) = show("0f3ad4c2");
    assert!(code == 125 && said.contains("2 runs") && said.contains("0f3ad4c2-two"), "{said}");
    assert_eq!((show("0f3ad4c"), show("7777777")), ((0, String::new()), (0, String::new())), "too few characters");
}

#[test]
fn errors_are_json_with_json() {
    let root = tempfile::tempdir().unwrap();
    let (docs, missing) = (root.path().join("docs"), root.path().join("none"));
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("page.md"), "a page").unwrap();
    for (dir, word) in [(&docs, "there is no trail in"), (&missing, "cannot read the trail in")] {
        for action in ["show", "tail", "verify"] {
            let (code, said) = text(dir, &[action]);
            assert!(code == 125 && said.contains("hint: ") && said.contains("--audit-trail"), "{action}: {said}");
            let output = cofferdam().args(["audit", action, "--json", "--dir"]).arg(dir).output().unwrap();
            let stderr_text = parse(&output);
            assert_eq!((output.status.code(), output.stderr.len(), &stderr_text["ok"]), (Some(125), 0, &false.into()));
            let fault = &stderr_text["errors"][0];
            assert!(fault["code"] == "audit" && fault["hint"].is_string(), "{stderr_text}");
            let message = fault["message"].as_str().unwrap();
            assert!(action == "verify" || message.contains(word), "{stderr_text}");
        }
    }
    // Where there is one with nothing in it yet, nothing is shown.
    let empty = root.path().join("empty");
    trail(&empty, 0);
    assert_eq!(text(&empty, &["show"]), (0, String::new()));
}

#[test]
fn unknown_record_kind_is_an_error_that_lists_the_kinds() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    trail(&dir, 4);
    for action in ["show", "tail"] {
        let (code, said) = text(&dir, &[action, "--kind", "nope"]);
        assert_eq!(code, 125, "{said}");
        assert!(
            said.contains("--kind nope") && said.contains("hint: ") && said.contains("security_violation"),
            "{said}"
        );
        assert_eq!(text(&dir, &[action, "--kind", "even"]).0, 0, "a kind of the writer's own");
        let (code, said) = text(&dir, &[action, "--kind", "security_violation"]);
        assert_eq!((code, said.as_str()), (0, ""), "there is none yet");
    }
    let page = include_str!("../../../docs/audit.md");
    let table = page.split("| kind | data |").nth(1).unwrap();
    let listed: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(listed, cofferdam_engine::audit::KINDS, "the page and the list");
}

#[test]
fn a_link_of_another_user_does_not_say_where_the_trail_is() {
    if !common::is_root() {
        return eprintln!("skipped: only root can make a link of another user's");
    }
    let root = tempfile::tempdir().unwrap();
    let (dir, link) = (root.path().join("dir"), root.path().join("link"));
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    // As where the kernel follows such links: `fs.protected_symlinks` knows only directories with the sticky bit.
    std::os::unix::fs::lchown(&link, Some(65534), Some(65534)).unwrap();
    for name in [link.to_str().unwrap().to_owned(), format!("{}/", link.display())] {
        let refused = output(&["run", "--audit-trail", &name, "--", "true"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(125) && said.contains("link of user 65534") && said.contains("hint: "),
            "{said}"
        );
    }
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    // The same link, made by the caller.
    std::os::unix::fs::lchown(&link, Some(0), Some(0)).unwrap();
    let ran = output(&["run", "--audit-trail", link.to_str().unwrap(), "--", "true"]);
    assert!(ran.status.success(), "{ran:?}");
    assert!(dir.join("trail-000001.jsonl").exists());
}

#[test]
fn a_trail_that_reaches_the_callers_limit_of_file_size_is_an_error_that_is_said() {
    use std::os::unix::process::ExitStatusExt as _;
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("audit");
    trail(&dir, 1);
    let run = |limit: &str| {
        let program = cofferdam().get_program().to_owned();
        let mut command = std::process::Command::new("/bin/bash");
        command.args(["-c", &format!("ulimit -f {limit}; exec \"$@\""), "bash"]).arg(program);
        command.args(["run", "--audit-trail"]).arg(&dir).args(["--", "/bin/sh", "-c", "kill -XFSZ $$; echo DEAF"]);
        command.output().unwrap()
    };
    let full = run("1"); // of 1,024 bytes
    let said = String::from_utf8(full.stderr).unwrap();
    assert_eq!(full.status.signal(), None, "{said}");
    assert!(
        full.status.code() == Some(125) && said.contains("hint: start it without that limit (ulimit"),
        "{:?} {said}",
        full.status
    );
    // The program has the signal's default, as it has without Cofferdam.
    let ends = run("unlimited");
    assert_eq!(ends.status.code(), Some(128 + 25), "{ends:?}");
    assert!(ends.stdout.is_empty(), "{ends:?}");
}
