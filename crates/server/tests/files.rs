//! `upload` and `download` through the protocol: files are written into a session and read from it, as root and without, and
//! code in the session cannot redirect them.

mod common;

use std::time::Instant;

use common::{Client, Home, text};
use serde_json::{Value, json};

fn client(home: &Home) -> Client {
    home.client(json!({ "tools": ["download", "list", "upload"] }))
}

fn tool(client: &mut Client, name: &str, arguments: Value) -> Value {
    client.call("tools/call", json!({ "name": name, "arguments": arguments }))
}

/// The result of a call, successful or not.
fn result(answer: Value) -> Value {
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

fn upload(client: &mut Client, session: &str, path: &str, text: &str) -> Value {
    let arguments = json!({ "session": session, "env": "python", "path": path, "text": text });
    result(tool(client, "upload", arguments))
}

fn download(client: &mut Client, session: &str, path: &str) -> Value {
    result(tool(client, "download", json!({ "session": session, "path": path })))
}

fn run(client: &mut Client, session: &str, code: &str) -> Value {
    let arguments = json!({ "env": "python", "session": session, "code": code });
    let result = result(tool(client, "run", arguments));
    assert_eq!(result["isError"], false, "{result}");
    result
}

/// The text of a downloaded file.
fn file(result: &Value) -> &str {
    assert_eq!(result["isError"], false, "{result}");
    result["content"][0]["resource"]["text"].as_str().unwrap_or_else(|| panic!("no embedded text: {result}"))
}

/// Asserts an unsuccessful result with a hint.
fn refused(result: &Value, expected: &str) {
    assert_eq!(result["isError"], true, "{result}");
    assert!(text(result).contains(expected) && text(result).contains("hint: "), "{result}");
}

#[test]
fn transfer_tools_are_offered_by_option_in_a_fixed_order() {
    let home = Home::new();
    let names = |tools: Value| -> Vec<Value> {
        let mut client = home.client(json!({ "tools": tools }));
        let listed = client.call("tools/list", json!({}));
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect()
    };
    assert_eq!(names(json!([])), ["run"]);
    assert_eq!(names(json!(["download"])), ["run", "download"]);
    assert_eq!(names(json!(["list", "upload", "download"])), ["run", "upload", "download", "list_environments"]);
    let mut plain = home.client(json!({}));
    for name in ["upload", "download"] {
        let answer = tool(&mut plain, name, json!({ "session": "s", "env": "python", "path": "a", "text": "" }));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    let mut client = client(&home);
    let tools = client.call("tools/list", json!({}))["result"]["tools"].clone();
    assert_eq!(
        (&tools[1]["annotations"]["destructiveHint"], &tools[1]["annotations"]["readOnlyHint"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(tools[2]["annotations"]["readOnlyHint"], true);
    assert_eq!(tools[1]["inputSchema"]["properties"]["env"]["enum"], json!(["node", "python", "shell"]));
}

#[test]
fn uploaded_file_is_changed_by_code_and_downloaded() {
    let home = Home::new();
    let mut client = client(&home);
    let put = upload(&mut client, "s", "data/in/a.csv", "1,2\n");
    let reported = json!({ "path": "/workspace/data/in/a.csv", "bytes": 4, "replaced": false, "session": { "name": "s", "fresh": true } });
    assert_eq!((&put["isError"], &put["structuredContent"]), (&json!(false), &reported), "{put}");
    assert!(text(&put).contains("[a new session: s]"), "{put}");
    let code = "import os\nx = 1\ns = os.stat('data/in/a.csv')\nprint(open('data/in/a.csv').read(), oct(s.st_mode), s.st_uid == os.getuid(), s.st_gid == os.getgid())";
    let read = run(&mut client, "s", code);
    assert_eq!(text(&read), "1,2\n 0o100644 True True\n", "{read}");
    assert_eq!(read["structuredContent"]["session"]["fresh"], false);
    run(
        &mut client,
        "s",
        "open('data/in/a.csv', 'a').write('3,4\\n')\nos.mkdir('data/in/own')\nos.chmod('data', 0o700)",
    );
    let got = download(&mut client, "s", "/workspace/data/in/a.csv");
    assert_eq!(file(&got), "1,2\n3,4\n");
    assert_eq!(got["structuredContent"], json!({ "path": "/workspace/data/in/a.csv", "bytes": 8, "type": "text/csv" }));
    // Code may delete uploaded files, and the session's state is unaffected.
    let gone = run(&mut client, "s", "import shutil; shutil.rmtree('data'); print(os.listdir('.'), x)");
    assert_eq!(text(&gone), "['output'] 1\n");
    refused(&download(&mut client, "s", "data/in/a.csv"), "no such file");
    let again = upload(&mut client, "s", "a", "one");
    assert_eq!(again["structuredContent"]["session"]["fresh"], false);
    assert_eq!(upload(&mut client, "s", "a", "two")["structuredContent"]["replaced"], true);
    assert_eq!(file(&download(&mut client, "s", "a")), "two");
    // The server has regained its rights.
    assert_eq!(text(&client.run("shell", "echo fresh")), "fresh\n");
}

#[test]
fn bytes_come_back_as_what_they_are() {
    let home = Home::new();
    let mut client = client(&home);
    let png = "iVBORw0KGgo=";
    for (path, base64) in [("p", png), ("b.bin", "AP8A")] {
        let arguments = json!({ "session": "s", "env": "python", "path": path, "base64": base64 });
        assert_eq!(result(tool(&mut client, "upload", arguments))["isError"], false);
    }
    assert_eq!(text(&run(&mut client, "s", "print(open('b.bin', 'rb').read())")), "b'\\x00\\xff\\x00'\n");
    let picture = download(&mut client, "s", "p");
    assert_eq!((&picture["content"][0]["type"], &picture["content"][0]["data"]), (&json!("image"), &json!(png)));
    let other = download(&mut client, "s", "b.bin");
    assert_eq!(
        (&other["content"][0]["type"], &other["content"][0]["name"]),
        (&json!("resource_link"), &json!("b.bin"))
    );
    let read = client.call("resources/read", json!({ "uri": other["content"][0]["uri"] }));
    assert_eq!(read["result"]["contents"][0]["blob"], "AP8A", "{read}");
}

#[test]
fn what_code_plants_leads_nowhere() {
    let home = Home::new();
    let outside = home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let mut client = client(&home);
    let plant = format!(
        "import os\nos.symlink({0:?}, 'parent')\nos.symlink({1:?}, 'target')\nos.symlink('/proc/self/root', 'magic')\n\
         os.mkfifo('fifo')\nos.mkdir('directory')\nopen('plain', 'w').write('plain')\nos.symlink('plain', 'own')",
        outside,
        outside.join("secret"),
    );
    run(&mut client, "s", &plant);
    for (path, expected) in [
        ("parent/secret", "symbolic link"),
        ("parent/new", "symbolic link"),
        ("target", "symbolic link"),
        ("magic/etc/hostname", "symbolic link"),
        ("own", "symbolic link"),
        ("fifo", "no regular file"),
        ("directory", "is a directory"),
        ("plain/x", "no directory"),
    ] {
        refused(&upload(&mut client, "s", path, "x"), expected);
        refused(&download(&mut client, "s", path), expected);
    }
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"secret");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    // The positive control: the same calls with a regular file of the same session.
    assert_eq!(file(&download(&mut client, "s", "plain")), "plain");
    assert_eq!(upload(&mut client, "s", "plain", "x")["isError"], false);
    assert_eq!(text(&run(&mut client, "s", "print(open('own').read(), os.path.islink('target'))")), "x True\n");
    for path in ["../x", "/etc/passwd", "a/../../x", "", "a\u{0}b"] {
        for (name, arguments) in [
            ("upload", json!({ "session": "s", "env": "python", "path": path, "text": "x" })),
            ("download", json!({ "session": "s", "path": path })),
        ] {
            let answer = tool(&mut client, name, arguments);
            assert_eq!(answer["error"]["code"], -32602, "{path:?}: {answer}");
        }
    }
}

#[test]
fn a_mode_that_shuts_code_out_shuts_a_download_out() {
    let home = Home::new();
    let mut client = client(&home);
    upload(&mut client, "s", "a", "x");
    run(&mut client, "s", "import os; os.chmod('a', 0)");
    refused(&download(&mut client, "s", "a"), "its mode");
    run(&mut client, "s", "os.chmod('a', 0o600)");
    assert_eq!(file(&download(&mut client, "s", "a")), "x");
}

#[test]
fn full_workspace_is_reported_and_keeps_its_files() {
    let home = Home::new();
    let mut client = client(&home);
    upload(&mut client, "s", "keep", "kept");
    let fill = "f = open('fill', 'wb')\ntry:\n    while True: f.write(b'x' * 1048576); f.flush()\nexcept OSError as e: print(e.errno)\ntry: f.close()\nexcept OSError: pass";
    assert_eq!(text(&run(&mut client, "s", fill)), "28\n");
    refused(&upload(&mut client, "s", "keep", &"y".repeat(2 << 20)), "the workspace is full");
    assert_eq!(file(&download(&mut client, "s", "keep")), "kept");
    let names = run(&mut client, "s", "import os; os.remove('fill'); print(sorted(os.listdir('.')))");
    assert_eq!(text(&names), "['keep', 'output']\n");
    assert_eq!(upload(&mut client, "s", "keep", &"y".repeat(2 << 20))["isError"], false);
    refused(&upload(&mut client, "s", "keep/x", "x"), "no directory");
    run(&mut client, "s", "open('large', 'wb').truncate((8 << 20) + 1)");
    refused(&download(&mut client, "s", "large"), "8388609 bytes");
}

#[test]
fn transfers_do_not_wait_for_a_running_call() {
    let home = Home::new();
    let mut client = home.client(json!({ "tools": ["upload", "download"], "max_runs": 1 }));
    run(&mut client, "s", "import time, os");
    let code = "print('waits', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nopen('done', 'w').write(open('go').read())";
    let id = client
        .ask("tools/call", json!({ "name": "run", "arguments": { "env": "python", "session": "s", "code": code } }));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let begun = Instant::now();
    refused(&download(&mut client, "s", "done"), "no such file");
    assert_eq!(upload(&mut client, "s", "go", "on")["isError"], false);
    let answer = client.answer(id);
    assert_eq!(text(&answer["result"]), "waits\n", "{answer}");
    assert!(begun.elapsed().as_secs() < 20);
    assert_eq!(file(&download(&mut client, "s", "done")), "on");
}

#[test]
fn missing_session_and_wrong_environment_are_errors() {
    let home = Home::new();
    let mut client = client(&home);
    refused(&download(&mut client, "s", "a"), "there is no session 's'");
    let put = upload(&mut client, "s", "a", "x");
    assert_eq!(put["isError"], false, "{put}");
    assert_eq!(file(&download(&mut client, "s", "a")), "x");
    let other = result(tool(&mut client, "upload", json!({ "session": "s", "env": "shell", "path": "a", "text": "" })));
    refused(&other, "belongs to environment 'python'");
    let none = tool(&mut client, "upload", json!({ "session": "s", "env": "none", "path": "a", "text": "" }));
    assert_eq!(none["error"]["code"], -32602, "{none}");
    let new = tool(&mut client, "download", json!({ "session": "new", "path": "a" }));
    assert_eq!(new["error"]["code"], -32602, "{new}");
    let begun = upload(&mut client, "new", "a", "mine");
    let name = begun["structuredContent"]["session"]["name"].as_str().unwrap().to_owned();
    assert!(name.len() >= 32 && text(&begun).contains(&name), "{begun}");
    assert_eq!(text(&run(&mut client, &name, "print(open('a').read())")), "mine\n");
    // The death of a session is reported once.
    let died = json!({ "env": "python", "session": "s", "code": "import os; os.kill(os.getpid(), 9)" });
    assert_eq!(result(tool(&mut client, "run", died))["isError"], true);
    refused(&download(&mut client, "s", "a"), "there is no session 's'");
}
