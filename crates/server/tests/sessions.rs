//! Sessions through the protocol: state persists, belongs to its environment and its client, and its loss is reported.

mod common;

use std::time::Instant;

use common::{Client, Home, artifact, text};
use serde_json::{Value, json};

fn ask(client: &mut Client, env: &str, session: &str, code: &str) -> u64 {
    client.ask("tools/call", json!({ "name": "run", "arguments": { "env": env, "session": session, "code": code } }))
}

fn call(client: &mut Client, env: &str, session: &str, code: &str) -> Value {
    let id = ask(client, env, session, code);
    let answer = client.answer(id);
    assert!(answer.get("error").is_none(), "{answer}");
    answer["result"].clone()
}

#[test]
fn state_persists_in_each_language_within_one_environment() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    for (env, first, second) in [
        ("python", "x = 41", "print(x + 1)"),
        ("shell", "x=41", "echo $((x + 1))"),
        ("node", "var x = 41", "console.log(x + 1)"),
    ] {
        let begun = call(&mut client, env, env, first);
        assert_eq!(begun["structuredContent"]["session"]["fresh"], true, "{begun}");
        assert_eq!(text(&begun), format!("[a new session: {env}]"));
        let result = call(&mut client, env, env, second);
        assert_eq!((text(&result), &result["isError"]), ("42\n", &json!(false)), "{result}");
        assert_eq!(result["structuredContent"]["session"]["fresh"], false);
    }
    let other = call(&mut client, "shell", "python", "echo x");
    assert_eq!(other["isError"], true, "{other}");
    assert!(text(&other).contains("belongs to environment 'python'"), "{other}");
    // A call without a session sees nothing of one.
    assert!(text(&client.run("python", "print('x' in globals())")).starts_with("False"));
}

#[test]
fn server_given_name_is_reported_and_valid_for_the_next_call() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let begun = call(&mut client, "python", "new", "x = 1");
    let name = begun["structuredContent"]["session"]["name"].as_str().unwrap().to_owned();
    assert!(name.len() >= 32 && text(&begun).contains(&name), "{begun}");
    assert_eq!(text(&call(&mut client, "python", &name, "print(x)")), "1\n");
    let second = call(&mut client, "python", "new", "print('x' in globals())");
    assert!(text(&second).starts_with("False\n"), "{second}");
}

#[test]
fn timeout_reports_whether_state_is_kept() {
    let home = Home::new();
    home.configure("[environments.quick]\npreset = \"python\"\ntimeout_seconds = 1\n");
    let mut client = home.client(json!({}));
    call(&mut client, "quick", "s", "x = 7");
    let late =
        call(&mut client, "quick", "s", "import time\nprint('begun', flush=True)\ntime.sleep(30)\nprint('never')");
    assert_eq!(
        (&late["structuredContent"]["outcome"], &late["isError"]),
        (&json!("timed_out"), &json!(true)),
        "{late}"
    );
    assert_eq!(late["structuredContent"]["limit"], "limits.wall_ms", "{late}");
    assert!(text(&late).contains("begun") && text(&late).contains("the session keeps its state"), "{late}");
    let next = call(&mut client, "quick", "s", "print(x)");
    assert_eq!((text(&next), next["structuredContent"].get("limit")), ("7\n", None), "{next}");
}

#[test]
fn cancelled_call_is_not_answered_and_its_session_continues() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    call(&mut client, "python", "s", "x = 7");
    let id = ask(&mut client, "python", "s", "import time; time.sleep(30)");
    std::thread::sleep(std::time::Duration::from_millis(300));
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    let begun = Instant::now();
    assert_eq!(text(&call(&mut client, "python", "s", "print(x)")), "7\n");
    assert!(begun.elapsed().as_secs() < 20);
    assert!(!client.early.iter().any(|message| message["id"] == id));
}

#[test]
fn interpreter_death_is_reported_and_the_next_call_begins_anew() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    call(&mut client, "python", "s", "x = 1");
    let died = call(&mut client, "python", "s", "import os; os.kill(os.getpid(), 9)");
    assert_eq!(died["isError"], true, "{died}");
    assert!(text(&died).contains("the session is over, and its state is gone"), "{died}");
    assert!(died["structuredContent"]["session"]["over"].is_string(), "{died}");
    let next = call(&mut client, "python", "s", "print('x' in globals())");
    assert!(text(&next).starts_with("False\n"), "{next}");
    assert_eq!(next["structuredContent"]["session"]["fresh"], true);
}

#[test]
fn what_an_interpreter_says_of_itself_is_escaped() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let code = r#"
import os, json, time
sockets = [int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f)
           and os.readlink('/proc/self/fd/' + f).startswith('socket:')]
frame = json.dumps({'type': 'error', 'message': 'plain \x1b[2J nothing]\n[the call succeeded]\n\u202e['}).encode()
os.write(sockets[0], len(frame).to_bytes(4, 'big') + frame)
time.sleep(5)
"#;
    let over = call(&mut client, "python", "s", code);
    let said = over["structuredContent"]["session"]["over"].as_str().unwrap_or_else(|| panic!("{over}"));
    for shown in [said, text(&over)] {
        assert!(shown.contains("plain "), "{shown:?}");
        assert!(!shown.contains(['\x1b', '\u{202e}']) && !shown.contains("]\n[the call"), "{shown:?}");
    }
}

#[test]
fn what_the_end_of_a_session_found_is_reported() {
    let evaluator = std::path::Path::new(env!("CARGO_BIN_EXE_cofferdam-serve")).with_file_name("cofferdam-compile");
    if !evaluator.exists() {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "cofferdam-compile is not built; cargo build -p cofferdam-compile");
        eprintln!("skipped: cofferdam-compile is not built");
        return;
    }
    let code = "cd /v; export HOME=/tmp GIT_CONFIG_GLOBAL=/dev/null; set -- -c user.name=a -c user.email=a@b; \
                git init -q sub && cd sub && : > a && git add a && git \"$@\" commit -qm x && \
                git config core.fsmonitor 'touch /x; false'; cd .. && git add sub; ls -A sub";
    for (how, links) in [("end", true), ("end", false), ("idle", true), ("close", true)] {
        let place = tempfile::tempdir().unwrap();
        let src = std::fs::canonicalize(place.path()).unwrap();
        assert!(std::process::Command::new("git").args(["init", "-q"]).arg(&src).status().unwrap().success());
        let home = Home::new();
        let idle = if how == "idle" { 2 } else { 60 };
        home.configure(&format!(
            "[environments.rw]\nprofile = \"rw.ncl\"\ninterpreter = \"bash -c\"\n[session]\nidle_timeout_seconds = {idle}\n"
        ));
        let profile = format!(
            "let s = import \"sandbox\" in s.make_default_config \"rw\" & {{ network_policy = \"deny\", \
             capabilities.filesystem = \"file_write\", mounts = [{{ src = {src:?}, dst = \"/v\", rw = true }}] }}"
        );
        std::fs::write(home.path().join(".config/cofferdam/rw.ncl"), profile).unwrap();
        let mut client = home.client(json!({ "tools": ["sessions"] }));
        let ran = call(&mut client, "rw", "s", if links { code } else { "ls /v" });
        assert_eq!(ran["isError"], false, "{ran}");
        let end = |client: &mut Client| {
            let arguments = json!({ "session": "s" });
            client.call("tools/call", json!({ "name": "end_session", "arguments": arguments }))["result"].clone()
        };
        let renamed = |result: &Value| -> bool {
            let all = result["structuredContent"]["violations"].as_array().cloned().unwrap_or_default();
            all.iter().any(|violation| violation["operation"] == "gitlink")
        };
        let words = "/sub/.git.disabled";
        match how {
            "end" => {
                let ended = end(&mut client);
                assert_eq!((renamed(&ended), text(&ended).contains(words)), (links, links), "{ended}");
                assert_eq!(ended["structuredContent"]["error"]["step"] == "repositories", links, "{ended}");
                assert_eq!(ended["structuredContent"]["error"].is_null(), !links, "{ended}");
            }
            "idle" => {
                std::thread::sleep(std::time::Duration::from_secs(4));
                let next = call(&mut client, "rw", "s", "ls /v");
                assert!(text(&next).contains("is over") && text(&next).contains(words) && renamed(&next), "{next}");
            }
            _ => {
                let (_, said) = client.leave();
                assert!(said.contains("session 's' is over") && said.contains(words), "{said}");
            }
        }
        let names: Vec<_> = std::fs::read_dir(src.join("sub")).into_iter().flatten().flatten().collect();
        let is_renamed = |name: &str| name.starts_with(".git.disabled-");
        let renamed = names.iter().any(|entry| entry.file_name().to_str().is_some_and(is_renamed));
        assert_eq!(renamed, links, "{how}: {names:?}");
    }
}

/// An environment that allows the hosts of the documentation's example.
fn with_hosts(home: &Home) {
    let page = include_str!("../../../docs/environments.md");
    let head = "```toml\n# ~/.config/cofferdam/config.toml\n[environments.reader]\n";
    let example = page.split(head).nth(1).and_then(|rest| rest.split("```").next());
    // Its limit of memory needs a cgroup, which not every user has.
    let example = example.expect("docs/environments.md has the example").replace("memory = \"1g\"\n", "");
    home.configure(&format!("[environments.reader]\n{example}"));
}

/// The same by a profile.
fn with_hosts_of_a_profile(home: &Home) {
    home.configure("[environments.reader]\nprofile = \"profiles/reader.ncl\"\ninterpreter = \"python3 -c\"\n");
    let profiles = home.path().join(".config/cofferdam/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    let text = "let sandbox = import \"sandbox/main.ncl\" in\nsandbox.make_default_config \"reader\" & {\n  \
                network_policy = \"whitelist\",\n  allowed_domains = [\"pypi.org:443\", \"files.pythonhosted.org:443\"],\n  \
                capabilities.network = \"network_write\",\n}\n";
    std::fs::write(profiles.join("reader.ncl"), text).unwrap();
}

#[test]
fn gateway_refusals_are_reported_with_and_without_a_session() {
    let home = Home::new();
    with_hosts(&home);
    refusals_are_reported(&home);
}

#[test]
fn gateway_refusals_of_a_profile_are_reported_as_well() {
    let home = Home::new();
    with_hosts_of_a_profile(&home);
    refusals_are_reported(&home);
}

fn refusals_are_reported(home: &Home) {
    let mut client = home.client(json!({}));
    let knock = |host: &str| {
        format!(
            "import socket\ns = socket.socket(); s.settimeout(10)\n\
             try: s.connect(('{host}', 443)); s.recv(1)\nexcept ConnectionResetError: print('reset')"
        )
    };
    let refused = |result: &Value| -> Vec<String> {
        let all = result["structuredContent"]["violations"].as_array().unwrap_or_else(|| panic!("{result}")).clone();
        all.iter().map(|v| format!("{} {}", v["operation"], v["object"]).replace('"', "")).collect()
    };
    let without = client.run("reader", &knock("203.0.113.1"));
    assert_eq!(refused(&without), ["connect 203.0.113.1:443"], "{without}");
    assert_eq!(without["structuredContent"]["network"]["refused"], 1, "{without}");
    for host in ["203.0.113.1", "203.0.113.2"] {
        let reported = call(&mut client, "reader", "s", &knock(host));
        assert!(text(&reported).starts_with("reset\n"), "{reported}");
        assert_eq!(refused(&reported), [format!("connect {host}:443")], "{reported}");
        assert!(reported["structuredContent"].get("network").is_none_or(Value::is_null), "{reported}");
        assert!(refused(&call(&mut client, "reader", "s", "print('here')")).is_empty());
    }
    // The allowed name resolves inside the sandbox.
    let allowed = call(&mut client, "reader", "s", "import socket; print(socket.gethostbyname('pypi.org'))");
    assert!(text(&allowed).starts_with("198.") && refused(&allowed).is_empty(), "{allowed}");
    let last = call(&mut client, "reader", "s", &format!("{}\nimport os; os._exit(3)", knock("203.0.113.3")));
    assert_eq!(refused(&last), ["connect 203.0.113.3:443"], "{last}");
    assert_eq!(last["structuredContent"]["network"]["refused"], 3, "the whole session's: {last}");
}

#[test]
fn files_of_a_session_are_returned_when_written() {
    let home = Home::new();
    let mut client = home.client(json!({}));
    let first = call(&mut client, "python", "s", "open('output/a.json', 'w').write('{}')");
    assert_eq!(first["structuredContent"]["artifacts"], json!(["a.json"]), "{first}");
    // At once, so that the file clock may not have advanced.
    let unchanged = call(&mut client, "python", "s", "print(1)");
    assert_eq!(unchanged["structuredContent"]["artifacts"], json!([]), "{unchanged}");
    let changed = call(&mut client, "python", "s", "open('output/a.json', 'w').write('{}')");
    assert_eq!(changed["structuredContent"]["artifacts"], json!(["a.json"]), "{changed}");
    let second =
        call(&mut client, "python", "s", "print(open('output/a.json').read()); open('output/b.txt', 'w').write('b')");
    assert_eq!(second["structuredContent"]["artifacts"], json!(["b.txt"]), "{second}");
    assert_eq!(text(&second), "{}\n");
}

#[test]
fn an_artifact_without_a_session_program_says_so() {
    let home = Home::new();
    artifact(&home.registry(), "mine", "#!/bin/sh\nexec sh -s\n");
    let mut client = home.client(json!({}));
    let reported = call(&mut client, "mine", "s", "echo x");
    assert_eq!(reported["isError"], true);
    assert!(text(&reported).contains("it has no bin/session-run"), "{reported}");
}

fn tool(client: &mut Client, name: &str, arguments: Value) -> Value {
    client.call("tools/call", json!({ "name": name, "arguments": arguments }))["result"].clone()
}

#[test]
fn a_client_sees_and_ends_its_own_sessions() {
    let home = Home::new();
    let mut client = home.client(json!({ "tools": ["sessions"] }));
    let names: Vec<Value> = client.call("tools/list", json!({}))["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert_eq!(names, ["run", "list_sessions", "end_session"]);
    let listed =
        |client: &mut Client| tool(client, "list_sessions", json!({}))["structuredContent"]["sessions"].clone();
    assert_eq!(listed(&mut client), json!([]));
    call(&mut client, "python", "a", "x = 1");
    call(&mut client, "shell", "b", "x=1");
    call(&mut client, "shell", "b", "x=1");
    let running = ask(&mut client, "python", "a", "import time\nprint('begun', flush=True)\ntime.sleep(60)");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let all = listed(&mut client);
    let reported: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["name"].as_str().unwrap(), one["env"].as_str().unwrap(), one["calls"].as_u64().unwrap()))
        .collect();
    assert_eq!(reported, [("a", "python", 1), ("b", "shell", 2)]);
    assert!(all[0]["idle_seconds"].is_null() && all[1]["idle_seconds"].as_f64().unwrap() < 60.0, "{all}");
    assert!(
        all.as_array().unwrap().iter().all(|one| (3000.0..=3600.0).contains(&one["left_seconds"].as_f64().unwrap()))
    );
    let one = tool(&mut client, "list_sessions", json!({ "session": "b" }));
    assert_eq!(one["structuredContent"]["sessions"].as_array().map(Vec::len), Some(1));
    // Ending a session ends its call, and the next call by its name begins anew.
    assert_eq!(tool(&mut client, "end_session", json!({ "session": "a" }))["isError"], false);
    let ended = client.answer(running)["result"].clone();
    assert!(text(&ended).contains("begun") && text(&ended).contains("its owner ended it"), "{ended}");
    let again = call(&mut client, "python", "a", "print('x' in globals())");
    assert!(text(&again).starts_with("False\n") && again["structuredContent"]["session"]["fresh"] == true, "{again}");
    assert_eq!(text(&call(&mut client, "shell", "b", "echo $x")), "1\n");
    for name in ["list_sessions", "end_session"] {
        let none = tool(&mut client, name, json!({ "session": "c" }));
        assert!(none["isError"] == true && text(&none).contains("there is no session `c`"), "{none}");
    }
    let mut plain = home.client(json!({}));
    let answer = plain.call("tools/call", json!({ "name": "list_sessions", "arguments": {} }));
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[test]
fn sessions_have_bounds_that_a_reload_changes() {
    let home = Home::new();
    home.configure("[session]\nmax_sessions_per_client = 1\n");
    let mut client = home.client(json!({ "tools": ["sessions"] }));
    call(&mut client, "shell", "a", "x=1");
    let full = call(&mut client, "shell", "b", "x=1");
    assert_eq!((&full["isError"], &full["structuredContent"]["error"]["step"]), (&json!(true), &json!("busy")));
    assert!(text(&full).contains("you have 1 sessions already\nhint: end one"), "{full}");
    home.configure("[session]\nmax_sessions = 2\nidle_timeout_seconds = 3\n");
    client.find("list_changed", |message| message["method"] == "notifications/tools/list_changed");
    let second = call(&mut client, "shell", "b", "x=1");
    assert_eq!(second["isError"], false, "{second}");
    assert!(text(&call(&mut client, "shell", "c", "x=1")).contains("there are 2 sessions already"));
    // Idle sessions end, and that is reported once.
    common::until("both to be idle for too long", || {
        tool(&mut client, "list_sessions", json!({}))["structuredContent"]["sessions"] == json!([])
    });
    let reported = call(&mut client, "shell", "a", "echo ${x-none}");
    assert!(text(&reported).contains("session 'a' is over: it was not used for longer than it may be"), "{reported}");
    assert!(text(&call(&mut client, "shell", "a", "echo ${x-none}")).starts_with("none\n"));
}

#[test]
fn a_session_that_is_used_is_not_idle() {
    let home = Home::new();
    home.configure("[session]\nidle_timeout_seconds = 2\n");
    let mut client = home.client(json!({}));
    call(&mut client, "shell", "s", "x=1");
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert_eq!(text(&call(&mut client, "shell", "s", "echo $x")), "1\n");
    }
    // A session is not idle while a call takes longer than the timeout.
    assert_eq!(text(&call(&mut client, "shell", "s", "sleep 3; echo $x")), "1\n");
}

#[test]
fn maximum_number_of_sessions_fits_the_descriptor_limit() {
    let home = Home::new();
    let server = home.program(&json!({}));
    // The usual soft limit of shells, and a lower one.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 200 && exec \"$0\" \"$@\""]).arg(server.get_program()).args(server.get_args());
    shell.env_clear().envs(server.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(home.path());
    let mut client = Client::start(shell);
    client.introduce("2025-11-25");
    for index in 0..16 {
        let name = format!("s{index}");
        let begun = call(&mut client, "shell", &name, "x=1; ulimit -n");
        assert_eq!(
            (&begun["isError"], &begun["structuredContent"]["session"]["fresh"]),
            (&json!(false), &json!(true)),
            "{begun}"
        );
    }
    assert_eq!(text(&call(&mut client, "shell", "s0", "echo $x")), "1\n");
}

#[test]
fn call_reports_changes_in_a_copy_on_write_project() {
    let home = Home::new();
    let project = home.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("old"), "old\n").unwrap();
    home.configure(&format!(
        "[environments.work]\npreset = \"python\"\n[project]\npath = \"{}\"\naccess = \"cow\"\n",
        project.display()
    ));
    let mut client = home.client(json!({}));
    let at = |name: &str| json!(format!("/project/{name}"));
    let quiet = call(&mut client, "work", "s", "x = open('/project/old').read()");
    assert_eq!(quiet["structuredContent"]["changes"], json!([]), "{quiet}");
    let first =
        call(&mut client, "work", "s", "open('/project/new', 'w').write('1'); open('/project/old', 'w').write('2')");
    assert_eq!(
        first["structuredContent"]["changes"],
        json!([{ "kind": "A", "path": at("new") }, { "kind": "M", "path": at("old") }]),
        "{first}"
    );
    let second = call(&mut client, "work", "s", "import os; os.remove('/project/old')");
    assert_eq!(
        second["structuredContent"]["changes"],
        json!([{ "kind": "A", "path": at("new") }, { "kind": "D", "path": at("old") }]),
        "{second}"
    );
    assert_eq!(second["structuredContent"]["changes_omitted"], 0);
    // Many changes are listed up to a bound, and all are counted.
    let many = call(&mut client, "work", "s", "for i in range(3000): open(f'/project/{i:05}', 'w').close()");
    let changes = &many["structuredContent"];
    let listed = changes["changes"].as_array().unwrap().len() as u64;
    assert!(listed < 3002 && listed + changes["changes_omitted"].as_u64().unwrap() == 3002, "{listed}");
    // A directory that its owner cannot read is listed, and unchanged.
    let closed = call(&mut client, "work", "t", "import os; os.mkdir('/project/d'); os.chmod('/project/d', 0)");
    assert_eq!(closed["structuredContent"]["changes"][0]["path"], at("d"), "{closed}");
    let mode = call(&mut client, "work", "t", "print(oct(os.stat('/project/d').st_mode & 0o777))");
    // An unprivileged owner cannot look into it, and counts that.
    assert!(text(&mode).starts_with("0o0\n[changed in the copy: A /project/d"), "{mode}");
    assert_eq!(std::fs::read_to_string(project.join("old")).unwrap(), "old\n", "the project itself is as it was");
}
