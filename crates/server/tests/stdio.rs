//! The server over standard input and output, with hand-written lines.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use common::{Client, Home, artifact, meta, running, text, until};
use serde_json::{Value, json};

#[test]
fn code_runs_and_its_outcome_is_text_and_data() {
    let home = Home::new();
    let mut client = home.silent(json!({}));
    let hello = client.introduce("2025-11-25");
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25", "{hello}");
    assert_eq!(hello["result"]["serverInfo"]["name"], "cofferdam");
    let result = client.run("python", "print(6*7)");
    assert_eq!((text(&result), &result["isError"]), ("42\n", &json!(false)));
    let outcome = &result["structuredContent"];
    assert_eq!((&outcome["outcome"], &outcome["exit_code"]), (&json!("exited"), &json!(0)));
    assert_eq!((&outcome["stdout"], &outcome["stderr"]), (&json!("42\n"), &json!("")));
    let failed = client.run("shell", "echo out; echo err >&2; exit 3");
    assert_eq!((text(&failed), &failed["isError"]), ("out\n\n--- stderr ---\nerr\n", &json!(true)));
    assert_eq!(failed["structuredContent"]["exit_code"], 3);
    let (code, said) = client.leave();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn tool_lists_environments_and_refuses_unknown_ones() {
    let home = Home::new();
    artifact(&home.registry(), "mine", "#!/bin/sh\nexec sh -s\n");
    let mut client = home.client(json!({}));
    let tools = client.call("tools/list", json!({}));
    let tool = &tools["result"]["tools"][0];
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(1), "{tools}");
    let described = tool["description"].as_str().unwrap();
    assert!(described.ends_with("Available environments: mine, node, python, shell"), "{described}");
    assert!(described.contains("no network") && !described.contains("project"), "{described}");
    assert_eq!(tool["inputSchema"]["properties"]["env"]["enum"], json!(["mine", "node", "python", "shell"]));
    assert_eq!(tool["annotations"]["openWorldHint"], false);
    assert!(tool["outputSchema"]["properties"]["outcome"].is_object());
    let id = client.begin("nothing", "print(1)");
    let refused = client.answer(id);
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(refused["error"]["data"]["environments"], json!(["mine", "node", "python", "shell"]));
    assert!(refused["error"]["message"].as_str().unwrap().contains("mine, node, python, shell"));
    assert_eq!(text(&client.run("mine", "echo hello from $0; pwd")), "hello from sh\n/workspace\n");
}

#[test]
fn a_stateless_client_needs_no_introduction() {
    let home = Home::new();
    let mut client = home.silent(json!({}));
    let found = client.call("server/discover", json!({ "_meta": meta() }));
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")), "{found}");
    let tools = client.call("tools/list", json!({ "_meta": meta() }));
    assert_eq!(
        (&tools["result"]["resultType"], &tools["result"]["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(tools["result"]["ttlMs"].as_u64().is_some_and(|ms| ms > 0), "{tools}");
    let arguments = json!({ "env": "shell", "code": "echo hello" });
    let ran = client.call("tools/call", json!({ "name": "run", "arguments": arguments, "_meta": meta() }));
    assert_eq!((text(&ran["result"]), &ran["result"]["resultType"]), ("hello\n", &json!("complete")), "{ran}");
}

#[test]
fn output_files_are_returned_and_links_not_followed() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let code = "cd output; printf '\\211PNG\\r\\n\\032\\nrest' > a.png; printf '{\"k\": 1}' > b.json; head -c 9 /dev/zero > c.bin
        ln -s /etc/passwd d; mkfifo e; ln b.json f.json; rm -f /workspace/none";
    let result = client.run("shell", code);
    let blocks = result["content"].as_array().unwrap();
    let kinds: Vec<&str> = blocks.iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "image", "resource", "resource_link", "resource", "text"], "{result}");
    assert_eq!(blocks[1]["mimeType"], "image/png");
    assert_eq!(blocks[2]["resource"]["text"], "{\"k\": 1}");
    let reported = blocks[5]["text"].as_str().unwrap();
    assert!(
        reported.contains("d: it is a symbolic link") && reported.contains("e: it is no regular file"),
        "{reported}"
    );
    assert!(!result.to_string().contains("root:x:"), "{result}");
    assert_eq!(result["structuredContent"]["artifacts"], json!(["a.png", "b.json", "c.bin", "f.json"]));
    let read = client.call("resources/read", json!({ "uri": blocks[3]["uri"] }));
    assert_eq!(read["result"]["contents"][0]["blob"], "AAAAAAAAAAAA", "{read}");
    let other = client.call("resources/read", json!({ "uri": "cofferdam://run/x/output/c.bin" }));
    assert!(other["error"]["message"].as_str().unwrap().contains("nothing is kept"), "{other}");
}

#[test]
fn output_is_reported_as_progress() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let arguments = json!({ "env": "shell", "code": "echo first; sleep 0.4; echo second" });
    let params = json!({ "name": "run", "arguments": arguments, "_meta": { "progressToken": "t" } });
    let id = client.ask("tools/call", params);
    let is_progress = |message: &Value| message["method"] == "notifications/progress";
    let first = client.find("progress", is_progress);
    assert_eq!((&first["params"]["message"], &first["params"]["progressToken"]), (&json!("first\n"), &json!("t")));
    let second = client.find("more progress", is_progress);
    assert_eq!(second["params"]["message"], "second\n");
    assert!(second["params"]["progress"].as_f64() > first["params"]["progress"].as_f64());
    assert_eq!(text(&client.answer(id)["result"]), "first\nsecond\n");
}

/// How many processes have this word in their command line. No other test uses the word.

#[test]
fn cancelled_call_ends_with_its_process_tree() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let id = client.begin("shell", "sleep 7731.5 & sleep 7731.5");
    until("two sleeps", || running("7731.5") >= 2);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    until("the end of both", || running("7731.5") == 0);
    assert_eq!(text(&client.run("shell", "echo still here")), "still here\n");
    assert!(!client.early.iter().any(|message| message["id"] == id), "a cancelled call is not answered");
}

#[test]
fn runs_end_when_their_client_goes() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    client.begin("shell", "sleep 7732.5 & sleep 7732.5");
    until("two sleeps", || running("7732.5") >= 2);
    let begun = Instant::now();
    assert_eq!(client.leave().0, Some(0));
    until("the end of both", || running("7732.5") == 0);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn invalid_requests_are_errors_and_the_server_survives() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    for (arguments, reported) in [
        (json!({ "code": "x" }), "`env` is missing"),
        (json!({ "env": "shell" }), "`code` is missing"),
        (json!({ "env": 3, "code": "x" }), "`env` is no text"),
        (json!({ "env": "shell", "code": "x", "timeout": 3 }), "takes no `timeout`"),
        (json!({ "env": "shell", "code": "a\u{0}b" }), "NUL character at byte 1"),
        (json!({ "env": "../x\n", "code": "x" }), "no environment is called `../x\\n`"),
    ] {
        let answer = client.call("tools/call", json!({ "name": "run", "arguments": arguments }));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(reported), "{answer}");
    }
    let answer = client.call("tools/call", json!({ "name": "rm", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let answer = client.call("nothing/such", json!({}));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    assert_eq!(text(&client.run("shell", "printf '\\377\\376x'")), "\u{fffd}\u{fffd}x");
}

#[test]
fn sixty_four_megabytes_of_code_are_refused() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let long = "#".repeat(64 << 20);
    let id = client.begin("python", &long);
    let after = client.begin("shell", "echo after");
    let refused = client.answer(id);
    assert!(refused["error"]["message"].as_str().unwrap().contains("67108864 bytes"), "{refused}");
    assert_eq!(text(&client.answer(after)["result"]), "after\n");
    // Code that is too long for an argument is passed in another way.
    let code = format!("{}print('long')", "#\n".repeat(1 << 20));
    assert_eq!(text(&client.run("python", &code)), "long\n");
    let code = format!("{}echo long", "#\n".repeat(1 << 17));
    assert_eq!(text(&client.run("shell", &code)), "long\n");
}

#[test]
fn each_answer_reaches_its_own_call() {
    let home = Home::new();
    let mut client = home.client(json!({ "max_runs": 3 }));
    let asked: Vec<(u64, usize)> =
        (0..24).map(|n| (client.begin("shell", &format!("sleep 0.0{}; echo {n}", n % 7)), n)).collect();
    for (id, n) in asked.into_iter().rev() {
        assert_eq!(text(&client.answer(id)["result"]), format!("{n}\n"));
    }
}

#[test]
fn excess_calls_are_refused_as_busy() {
    let home = Home::new();
    let mut client = home.client(json!({ "max_runs": 1, "max_queue": 1 }));
    let first = client.begin("shell", "sleep 1; echo first");
    let second = client.begin("shell", "echo second");
    let mut third = client.begin("shell", "echo third");
    let mut answer = client.answer(third)["result"].clone();
    // The second may not have been queued yet, in which case the third was; a further one finds the queue full.
    if answer["isError"] == false {
        third = second;
        answer = client.answer(third)["result"].clone();
    } else {
        assert_eq!(text(&client.answer(second)["result"]), "second\n");
    }
    assert_eq!((&answer["isError"], &answer["structuredContent"]["error"]["step"]), (&json!(true), &json!("busy")));
    assert!(text(&answer).contains("the server is busy: 1 runs are under way"), "{answer}");
    assert_eq!(text(&client.answer(first)["result"]), "first\n");
}

#[test]
fn invalid_definition_is_unavailable_and_the_others_work() {
    let home = Home::new();
    home.configure("[environments.good]\npreset = \"shell\"\n[environments.bad]\npreset = \"cobol\"\n");
    let mut client = home.client(json!({}));
    assert_eq!(text(&client.run("good", "echo works")), "works\n");
    let id = client.begin("bad", "x");
    let reported = client.answer(id);
    let message = reported["error"]["message"].as_str().unwrap();
    assert!(message.contains("`bad` is unavailable") && message.contains("cobol"), "{reported}");
    let (_, said) = client.leave();
    assert!(said.contains("the environment bad") && said.contains("cobol"), "{said}");
}

#[test]
fn unreadable_configuration_prevents_the_start() {
    let home = Home::new();
    home.configure("[environments.a\n");
    let output = home.program(&json!({})).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(125), true), "{said}");
    assert!(said.contains("config.toml:1") && said.contains("hint: correct it"), "{said}");
}

#[test]
fn code_and_output_are_never_logged() {
    let home = Home::new();
    let mut client = home.client(json!({ "verbose": true }));
    client.run("shell", "echo a-secret-word-$((6*7))");
    client.begin("nothing", "another-secret-word");
    client.call("tools/list", json!({}));
    let (_, said) = client.leave();
    assert!(said.contains("a run has ended"), "{said}");
    assert!(!said.contains("secret-word"), "{said}");
}

#[test]
fn list_environments_is_offered_only_by_option() {
    let home = Home::new();
    home.configure(
        "[environments.bad]\nimage = \"x\"\nbackend = \"jail\"\n[environments.py]\npreset = \"python\"\ndescription = \"with care\"\n",
    );
    let mut plain = home.client(json!({}));
    let answer = plain.call("tools/call", json!({ "name": "list_environments", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let mut client = home.client(json!({ "tools": ["list"] }));
    let names: Vec<Value> = client.call("tools/list", json!({}))["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(names, ["run", "list_environments"]);
    let listed = client.call("tools/call", json!({ "name": "list_environments", "arguments": {} }));
    let all = listed["result"]["structuredContent"]["environments"].as_array().unwrap();
    let of = |name: &str| all.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!((&of("bad")["available"], &of("py")["description"]), (&json!(false), &json!("with care")));
    assert!(of("bad")["reason"].as_str().unwrap().contains("container"), "{listed}");
}

#[test]
fn project_is_read_only_copied_or_writable() {
    let home = Home::new();
    let project = home.path().join("work");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("note"), "of the host\n").unwrap();
    let shown = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(home.path(), shown).unwrap();
    let code = "cat /project/note; echo changed > /project/note && cat /project/note; echo ${SEEN-none} ${HIDDEN-none}";
    for (access, expected) in
        [("ro", "of the host\n"), ("cow", "of the host\nchanged\n"), ("rw", "of the host\nchanged\n")]
    {
        home.configure(&format!("[project]\npath = {project:?}\naccess = \"{access}\"\ninherit_env = [\"SEEN\"]\n"));
        let mut command = home.program(&json!({}));
        command.env("SEEN", "seen").env("HIDDEN", "hidden");
        let mut client = Client::start(command);
        client.introduce("2025-11-25");
        let reported = match access {
            "ro" => "read-only",
            "cow" => "whose changes go with the run",
            _ => "and its files may be changed",
        };
        let tools = client.call("tools/list", json!({}));
        let described = tools["result"]["tools"][0]["description"].as_str().unwrap();
        assert!(described.contains(&format!("project is at /project, {reported}. ")), "{described}");
        let result = client.run("shell", code);
        assert_eq!(result["structuredContent"]["stdout"], format!("{expected}seen none\n"), "{result}");
        let after = if access == "rw" { "changed\n" } else { "of the host\n" };
        assert_eq!(std::fs::read_to_string(project.join("note")).unwrap(), after);
    }
    home.configure("[project]\naccess = \"write\"\n");
    let output = home.program(&json!({})).output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("project.access: `write` is none; accepted: ro, rw, or cow")
    );
}

#[test]
fn flake_is_built_on_first_use_and_reported() {
    let home = Home::new();
    let built = artifact(home.path(), "flaky", "#!/bin/sh\nexec sh -s\n");
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let nix = bin.join("nix");
    let text =
        format!("#!/bin/sh\necho built >> {}/count; sleep 0.3; ln -sfn {} \"$5\"\n", bin.display(), built.display());
    std::fs::write(&nix, text).unwrap();
    std::fs::set_permissions(&nix, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.configure(
        "[environments.flaky]\nsandbox = \"github:o/r#flaky\"\n[environments.none]\nflake = \"github:o/r#none\"\n",
    );
    let mut command = home.program(&json!({}));
    command.env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    let mut client = Client::start(command);
    client.introduce("2025-11-25");
    let arguments = json!({ "env": "flaky", "code": "echo from the flake" });
    let params = json!({ "name": "run", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let first = client.ask("tools/call", params.clone());
    let reported = client.find("progress", |message| message["method"] == "notifications/progress");
    assert!(
        reported["params"]["message"].as_str().unwrap().starts_with("building the environment flaky"),
        "{reported}"
    );
    // A second call during the build shares it. Only the call that starts the build reports it, so this one comes later.
    let second = client.begin("flaky", "echo second");
    assert_eq!(text_of(&client.answer(first)), "from the flake\n");
    assert_eq!(text_of(&client.answer(second)), "second\n");
    assert_eq!(std::fs::read_to_string(bin.join("count")).unwrap(), "built\n");
}

fn text_of(answer: &Value) -> &str {
    text(&answer["result"])
}

#[test]
fn output_beyond_the_bound_is_truncated_and_linked() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let result = client.run("shell", "head -c 3000000 /dev/zero | tr '\\0' x; echo because >&2; exit 3");
    let data = &result["structuredContent"];
    assert_eq!((data["stdout"].as_str().map(str::len), &data["stderr"]), (Some((1 << 20) - 8), &json!("because\n")));
    assert_eq!((&data["truncated"]["stdout"], &data["truncated"]["stderr"]), (&json!(true), &json!(false)));
    let said = text(&result);
    assert!(said.len() < (1 << 20) + 1000 && said.contains("--- stderr ---\nbecause\n\n[output cut here]\n[stdout: "));
    let link = result["content"].as_array().unwrap().iter().find(|block| block["type"] == "resource_link").unwrap();
    assert!(data["truncated"]["note"].as_str().unwrap().contains(link["uri"].as_str().unwrap()));
    let read = client.call("resources/read", json!({ "uri": link["uri"] }));
    assert_eq!(read["result"]["contents"][0]["text"].as_str().map(str::len), Some(3_000_000));
    // A call that prints little has a small result.
    let small = client.run("shell", "echo x");
    for (field, said) in small["structuredContent"]["enforcement"].as_object().unwrap() {
        assert_eq!(said.get("reason").is_none(), said["strength"] == "full", "{field}: {said}");
    }
    assert!(small.to_string().len() < 2500, "{} bytes", small.to_string().len());
}

#[test]
fn malformed_line_is_answered_and_the_server_survives() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    client.line(b"{\"jsonrpc\": \"2.0\", \"id\": 3, \"method\": ");
    let reported = client.find("an answer", |message| message["id"].is_null() && message.get("error").is_some());
    assert_eq!(reported["error"]["code"], -32700, "{reported}");
    // An unpaired surrogate in code: the error reaches the call that sent it.
    client.line(br#"{"jsonrpc":"2.0","id":4001,"method":"tools/call","params":{"name":"run","arguments":{"env":"shell","code":"\ud83d"}}}"#);
    let reported = client.answer(4001);
    assert!(
        reported["error"]["code"] == -32700
            && reported["error"]["message"].as_str().unwrap().contains("half of a surrogate pair"),
        "{reported}"
    );
    client.line(&[b'x'; 98 << 20]);
    let reported = client.find("an answer", |message| message["id"].is_null() && message.get("error").is_some());
    assert!(
        reported["error"]["message"].as_str().unwrap().contains("the line has more than 101711872 bytes"),
        "{reported}"
    );
    assert_eq!(text(&client.run("shell", "echo stays")), "stays\n");
}

#[test]
fn image_environment_runs_code_and_keeps_no_state() {
    let home = Home::new();
    let image = home.path().join("image");
    for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        std::fs::create_dir_all(image.join(name)).unwrap();
    }
    std::fs::set_permissions(image.join("tmp"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    std::fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
    for name in ["sh", "cat"] {
        std::os::unix::fs::symlink("busybox", image.join("bin").join(name)).unwrap();
    }
    std::fs::write(image.join("etc/mark"), "of the image\n").unwrap();
    let mut names = vec!["jailed"];
    if std::path::Path::new("/usr/bin/crun").exists() {
        names.push("contained");
    } else {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "crun is missing; apt-get install crun");
        eprintln!("skipped: crun is missing; apt-get install crun");
    }
    let image = image.display();
    home.configure(&format!(
        "[environments.jailed]\nimage = \"{image}\"\nbackend = \"jail\"\n\
         [environments.contained]\nimage = \"{image}\"\nbackend = \"oci:crun\"\n"
    ));
    let mut client = home.client(json!({}));
    let tools = client.call("tools/list", json!({}));
    let described = tools["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(described.contains("no session is kept: contained, jailed."), "{described}");
    let long = format!("cat /etc/mark #{}", "x".repeat(200_000));
    for name in names {
        assert_eq!(text(&client.run(name, "cat /etc/mark; : > /etc/mark")).lines().next(), Some("of the image"));
        assert_eq!(text(&client.run(name, &long)), "of the image\n", "{name}");
        let arguments = json!({ "env": name, "code": "cat /etc/mark", "session": "s" });
        let refused = client.call("tools/call", json!({ "name": "run", "arguments": arguments }))["result"].clone();
        assert_eq!(refused["isError"], true, "{refused}");
        assert!(text(&refused).contains("keeps no state between calls"), "{refused}");
    }
    // The positive control: a session of the host's own shell.
    let arguments = json!({ "env": "shell", "code": "echo kept", "session": "s" });
    let kept = client.call("tools/call", json!({ "name": "run", "arguments": arguments }))["result"].clone();
    assert_eq!(kept["isError"], false, "{kept}");
}

#[test]
fn venv_on_path_that_links_elsewhere_exposes_nothing() {
    use std::os::unix::fs::symlink;
    let home = Home::new();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (venv, key) = (home.path().join("project/.venv"), home.path().join(".ssh/id_rsa"));
    std::fs::create_dir_all(home.path().join(".ssh")).unwrap();
    std::fs::write(&key, "SSHKEY").unwrap();
    let start = || {
        let mut command = home.program(&json!({}));
        command.env("PATH", format!("{}/bin:/usr/bin:/bin", venv.display())).env_remove("PYENV_ROOT");
        let mut client = Client::start(command);
        client.introduce("2025-11-25");
        client
    };
    let code = format!(
        "for path in {:?}, {:?}:\n    try: print(open(path).read())\n    except OSError: print('refused')\n\
         try: print(__import__('brought').VALUE)\nexcept ImportError: print('without')",
        format!("{}{}", venv.display(), key.display()),
        key.to_str().unwrap()
    );
    // The positive control: a venv has its packages.
    let made = std::process::Command::new("/usr/bin/python3").args(["-m", "venv", "--without-pip"]).arg(&venv).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    let libraries = std::fs::read_dir(venv.join("lib")).unwrap().flatten().next().unwrap().path();
    std::fs::write(libraries.join("site-packages/brought.py"), "VALUE = 'brought'\n").unwrap();
    let mut client = start();
    assert_eq!(text(&client.run("python", &code)), "refused\nrefused\nbrought\n");
    // The directory is replaced by a link to the root after it was prepared, and before the server starts.
    std::fs::remove_dir_all(&venv).unwrap();
    symlink("/", &venv).unwrap();
    assert_eq!(text(&client.run("python", &code)), "refused\nrefused\nwithout\n");
    drop(client);
    assert_eq!(text(&start().run("python", &code)), "refused\nrefused\nwithout\n");
}

#[test]
fn descriptions_are_bounded_and_without_control_text() {
    let home = Home::new();
    let registry = home.registry();
    let run = "#!/bin/sh\nexec sh -s\n";
    for (name, description) in [
        ("forged", format!("one\n\ntwo\u{202e}\u{200b}\u{feff}\u{e0041}\u{e0042}\u{1b}[2J {}", "x".repeat(3000))),
        ("plain", "it’s “é” – …".to_owned()),
    ] {
        let directory = artifact(&registry, name, run);
        std::fs::write(
            directory.join("metadata.json"),
            json!({ "name": name, "description": description }).to_string(),
        )
        .unwrap();
    }
    let mut client = home.client(json!({ "tools": ["list"] }));
    let listed = client.call("tools/call", json!({ "name": "list_environments", "arguments": {} }));
    let all = listed["result"]["structuredContent"]["environments"].as_array().unwrap();
    let of = |name: &str| all.iter().find(|one| one["name"] == name).unwrap()["description"].as_str().unwrap();
    assert!(of("forged").starts_with("one two [2J xxx"), "{}", of("forged"));
    assert_eq!(of("forged").chars().count(), 501);
    assert!(!of("forged").chars().any(cofferdam_policy::text::steers));
    assert_eq!(of("plain"), "it’s “é” – …");
}

/// Hints name keys that an operator can write into the definition, and no options of the command.
#[test]
fn hints_name_definition_keys_in_calls_and_in_the_list() {
    let home = Home::new();
    home.configure(
        "[environments.named]\nimage = \"alpine:3\"\n\
         [environments.shared]\npreset = \"shell\"\nmemory_mb = 64\nnetwork = \"host\"\n\
         [environments.jailed]\npreset = \"shell\"\nbackend = \"nsjail\"\n\
         [environments.plain]\npreset = \"shell\"\n",
    );
    let mut program = home.program(&json!({ "tools": ["list"] }));
    program.env("COFFERDAM_NSJAIL", "/nowhere/nsjail");
    let mut client = Client::start(program);
    client.introduce("2025-11-25");
    let listed = client.call("tools/call", json!({ "name": "list_environments", "arguments": {} }));
    let all = listed["result"]["structuredContent"]["environments"].as_array().unwrap().clone();
    for name in ["named", "shared", "jailed", "plain"] {
        let row = all.iter().find(|one| one["name"] == name).unwrap();
        let result = client.run(name, "echo ran");
        assert_eq!(row["available"] == true, result["isError"] == false, "{row} {result}");
        assert_eq!(row["available"] == true, name == "plain", "{row}");
        for session in [false, true] {
            let mut arguments = json!({ "env": name, "code": "echo ran" });
            if session {
                arguments["session"] = "s".into();
            }
            let answer = client.call("tools/call", json!({ "name": "run", "arguments": arguments }));
            let said = text(&answer["result"]).to_owned();
            let hint = said.split_once("\nhint: ").map_or("", |(_, hint)| hint);
            assert!(!hint.contains("--") && !hint.contains("cofferdam eval"), "{name}: {said}");
            if name == "plain" {
                assert!(said.starts_with("ran\n"), "{said}");
            }
        }
    }
    let said = text(&client.run("shared", "x")).to_owned();
    assert!(
        said.contains("leave `memory_mb` and `network` out of [environments.shared]")
            || said.contains("leave `memory_mb` out of [environments.shared]"),
        "{said}"
    );
    let said = text(&client.run("named", "x")).to_owned();
    assert!(said.contains("in [environments.named] of the configuration: use backend = \"docker\""), "{said}");
}

/// The tool's description is true of environments made of profiles as well.
#[test]
fn files_of_a_profiles_environment_come_back_too() {
    let evaluator = std::path::Path::new(env!("CARGO_BIN_EXE_cofferdam-serve")).with_file_name("cofferdam-compile");
    if !evaluator.exists() {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "cofferdam-compile is not built; cargo build -p cofferdam-compile");
        eprintln!("skipped: cofferdam-compile is not built");
        return;
    }
    let home = Home::new();
    home.configure("[environments.mine]\nprofile = \"mine.ncl\"\n");
    let text_of_it = "let s = import \"sandbox\" in s.make_default_config \"mine\" \
                      & { network_policy = \"deny\", cmd = [\"/bin/sh\", \"-c\"] }";
    std::fs::write(home.path().join(".config/cofferdam/mine.ncl"), text_of_it).unwrap();
    let mut client = home.client(json!({}));
    let result = client.run("mine", "pwd; echo text > /workspace/output/a.txt");
    let artifacts = &result["structuredContent"]["artifacts"];
    assert_eq!((text(&result), artifacts), ("/tmp/skill\n", &json!(["a.txt"])), "{result}");
}
