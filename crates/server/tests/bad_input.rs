//! Input that changes, floods or is invalid: the caller gets a clear error, no other client is affected, and the server survives.

mod common;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use common::http::{Served, TOKEN};
use common::{Client, Home, artifact, running, text, until};
use serde_json::{Value, json};

const SHELL: &str = "#!/bin/sh\nexec sh -s\n";

#[test]
fn metadata_replaced_after_its_check_neither_hangs_nor_runs() {
    let home = Home::new();
    let directory = artifact(&home.registry(), "mine", SHELL);
    let (metadata, program) = (directory.join("metadata.json"), directory.join("bin/run"));
    let mut client = home.client(json!({}));
    assert_eq!(text(&client.run("mine", "echo right")), "right\n");
    let good = json!({ "name": "mine" }).to_string();
    let secret = home.path().join("secret");
    std::fs::write(&secret, "#!/bin/sh\necho of another\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o755)).unwrap();
    let changes: &[(&str, &dyn Fn())] = &[
        ("nonsense", &|| std::fs::write(&metadata, "{\"name\": ").unwrap()),
        ("another's name", &|| std::fs::write(&metadata, json!({ "name": "python" }).to_string()).unwrap()),
        ("a FIFO", &|| {
            assert!(Command::new("mkfifo").arg(&metadata).status().unwrap().success());
        }),
        ("an endless file", &|| symlink("/dev/zero", &metadata).unwrap()),
        ("a link to itself", &|| symlink("metadata.json", &metadata).unwrap()),
        ("a directory", &|| std::fs::create_dir(&metadata).unwrap()),
        ("a gigabyte", &|| std::fs::File::create(&metadata).unwrap().set_len(1 << 30).unwrap()),
        ("nothing", &|| {}),
        ("a program that leads out", &|| {
            std::fs::write(&metadata, &good).unwrap();
            std::fs::remove_file(&program).unwrap();
            symlink(&secret, &program).unwrap();
        }),
        ("a program that is none", &|| {
            std::fs::write(&metadata, &good).unwrap();
            std::fs::write(&program, "\x7fELF nonsense").unwrap();
        }),
    ];
    for (what, change) in changes {
        if std::fs::remove_file(&metadata).is_err() {
            std::fs::remove_dir(&metadata).unwrap();
        }
        change();
        // At once, before the change can have been noticed, and again afterwards.
        for pause in [0, 400] {
            std::thread::sleep(Duration::from_millis(pause));
            let begun = Instant::now();
            let id = client.begin("mine", "echo right");
            let answer = client.answer(id);
            let right = answer["result"]["content"][0]["text"] == "right\n";
            let refused = answer["error"]["code"] == -32602 || answer["result"]["isError"] == true;
            assert!(right || refused, "{what}: {answer}");
            assert!(!answer.to_string().contains("of another"), "{what}: {answer}");
            assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
            assert!(pause == 0 || refused, "{what} is not noticed: {answer}");
            assert_eq!(text(&client.run("shell", "echo others")), "others\n");
        }
        std::fs::remove_dir_all(&directory).unwrap();
        artifact(&home.registry(), "mine", SHELL);
        until("it to be right again", || {
            let id = client.begin("mine", "echo right");
            client.answer(id)["result"]["content"][0]["text"] == "right\n"
        });
    }
}

#[test]
fn a_hundred_thousand_files_are_examined_up_to_a_bound() {
    let home = Home::new();
    home.configure("[environments.many]\npreset = \"python\"\ntimeout_seconds = 50\n");
    let mut client = home.client(json!({}));
    let code = "import os\nmade = 0\ntry:\n    for n in range(100000):\n        open(f'output/{n:06}', 'w').close()\n        made += 1\n\
                except OSError as e: print(e.strerror)\nprint(made > 5000)";
    for session in [None, Some("s")] {
        let begun = Instant::now();
        let mut arguments = json!({ "env": "many", "code": code });
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        let answer = client.call("tools/call", json!({ "name": "run", "arguments": arguments }));
        let result = &answer["result"];
        assert!(text(result).contains("True\n"), "{answer}");
        let blocks = result["content"].as_array().unwrap();
        let files = blocks.iter().filter(|block| block["type"] == "resource").count();
        let reported = blocks.last().unwrap()["text"].as_str().unwrap();
        assert_eq!(files, 32, "{reported}");
        assert!(reported.contains("32 files come back at most") && reported.contains(" more"), "{reported}");
        assert!(answer.to_string().len() < 64 << 10, "{} bytes", answer.to_string().len());
        assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    }
    assert_eq!(text(&client.run("shell", "echo stays")), "stays\n");
}

#[test]
fn missing_and_dangerous_variables_are_passed_by_name_only() {
    let home = Home::new();
    let project = home.path().join("work");
    std::fs::create_dir(&project).unwrap();
    let configure = |names: Value| home.configure(&format!("[project]\npath = {project:?}\ninherit_env = {names}\n"));
    configure(json!(["MISSING", "SEEN", "LINES", "LD_PRELOAD", "BASH_ENV"]));
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = home.program(&json!({}));
    command.env("SEEN", "$(id) `id`").env("LINES", "a\nb=c").env("BASH_ENV", "/nowhere").env("OTHER", "hidden");
    let mut client = Client::start(command);
    client.introduce("2025-11-25");
    let code =
        "echo ${MISSING-unset} \"$SEEN\" \"$LINES\" ${b-unset} ${BASH_ENV-unset} ${OTHER-unset} ${LD_PRELOAD-unset}";
    let result = client.run("shell", code);
    let expected = "unset $(id) `id` a\nb=c unset /nowhere unset unset\n";
    assert_eq!(result["structuredContent"]["stdout"], expected, "{result}");
    drop(client);
    for names in [json!([""]), json!(["A=B"]), json!(["A B"]), json!(["1A"]), json!(["A", 3]), json!("A")] {
        configure(names.clone());
        let output = home.program(&json!({})).env("A B", "x").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{names}: {said}");
        assert!(
            said.contains("project.inherit_env") && said.contains("accepted: a list of variables' names"),
            "{said}"
        );
    }
}

#[test]
fn calls_during_a_reload_use_their_own_definition() {
    let home = Home::new();
    home.configure("[environments.a]\npreset = \"shell\"\n");
    let mut client = home.client(json!({ "max_runs": 4, "max_queue": 200 }));
    let pid = client.child.id().to_string();
    let mut asked = Vec::new();
    for round in 0..30 {
        let timeout = 5 + round;
        let other = if round % 3 == 0 { "[environments.b\n" } else { "[environments.b]\npreset = \"shell\"\n" };
        home.configure(&format!("[environments.a]\npreset = \"shell\"\ntimeout_seconds = {timeout}\n{other}"));
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
        for n in 0..4 {
            asked.push((client.begin("a", &format!("sleep 0.0{n}; echo {round}.{n}")), format!("{round}.{n}\n")));
        }
        let unknown = client.begin(&format!("none{round}"), "echo x");
        assert_eq!(client.answer(unknown)["error"]["code"], -32602);
    }
    for (id, expected) in asked {
        let answer = client.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
        assert_eq!(text(&answer["result"]), expected);
    }
}

#[test]
fn output_that_is_no_text_is_text_in_every_answer() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let raw = "printf 'a\\377\\376\\360\\237\\230b\\0c\\r\\033[31m'";
    let expected = "a\u{fffd}\u{fffd}\u{fffd}b\0c\r\u{1b}[31m";
    assert_eq!(text(&client.run("shell", raw)), expected);
    let arguments = json!({ "env": "shell", "session": "s", "code": raw });
    let params = json!({ "name": "run", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let answer = client.call("tools/call", params);
    assert!(text(&answer["result"]).starts_with(expected), "{answer}");
    // A character whose bytes arrive separately stays whole.
    let halves = "printf '\\303'; sleep 0.5; printf '\\251'";
    let params =
        json!({ "name": "run", "arguments": { "env": "shell", "code": halves }, "_meta": { "progressToken": 2 } });
    let answer = client.call("tools/call", params);
    assert_eq!(text(&answer["result"]), "\u{e9}");
    let reported: String = client
        .early
        .iter()
        .filter(|message| message["params"]["progressToken"] == 2)
        .map(|message| message["params"]["message"].as_str().unwrap())
        .collect();
    assert_eq!(reported, "\u{e9}");
}

#[test]
fn code_with_nul_or_beyond_the_limit_is_refused_everywhere() {
    let home = Home::new();
    let mut client = home.client(json!({ "tools": ["upload"] }));
    for session in [None, Some("s"), Some("new")] {
        let mut arguments = json!({ "env": "python", "code": "print(1)\u{0}" });
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        let answer = client.call("tools/call", json!({ "name": "run", "arguments": arguments }));
        assert!(answer["error"]["message"].as_str().unwrap().contains("NUL character at byte 8"), "{answer}");
    }
    let served = Served::start(json!({ "http": "127.0.0.1:0" }), Some(TOKEN));
    let run = |code: &str| {
        served.ask("tools/call", Some("run"), json!({ "name": "run", "arguments": { "env": "shell", "code": code } }))
    };
    let (_, answer) = run("echo \u{0}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("NUL character"), "{answer}");
    assert_eq!(run(&"#".repeat(64 << 20)).0, 413);
    let (_, answer) = run(&"#".repeat((16 << 20) + 1));
    assert!(answer["error"]["message"].as_str().unwrap().contains("16777217 bytes"), "{answer}");
    assert_eq!(text(&run("echo stays").1["result"]), "stays\n");
}

#[test]
fn flooding_and_forking_artifact_is_cut_and_cleaned_up() {
    let home = Home::new();
    let flood = "#!/bin/sh\n(setsid sleep 7771.5 >/dev/null 2>&1 &)\n(exec setsid sh -c 'sleep 7771.5' &)\n\
                 head -c 30000000 /dev/zero | tr '\\0' f\nhead -c 30000000 /dev/zero | tr '\\0' e >&2\n";
    artifact(&home.registry(), "hostile", flood);
    let mut client = home.client(json!({}));
    let id = client.begin("hostile", "x");
    let other = client.begin("shell", "echo mine");
    assert_eq!(text(&client.answer(other)["result"]), "mine\n");
    let result = client.answer(id)["result"].clone();
    let data = &result["structuredContent"];
    let lengths = ["stdout", "stderr"].map(|stream| data[stream].as_str().unwrap().len());
    assert_eq!(
        (lengths[0] + lengths[1], &data["truncated"]["stdout"], &data["truncated"]["stderr"]),
        (1 << 20, &json!(true), &json!(true))
    );
    assert!(result.to_string().len() < 3 << 20);
    until("what it started to be gone", || running("7771.5") == 0);
}
