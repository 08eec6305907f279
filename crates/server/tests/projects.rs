//! The way in which a project is mounted must not change what calls print: environment × access × session × client.

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use common::http::{Served, TOKEN};
use common::{Client, Home, artifact, text};
use serde_json::{Value, json};

/// A client of each kind.
enum By<'a> {
    Lines(Client),
    Stateless(&'a Served),
    HttpSession(&'a Served),
}

/// Calls of one environment, in this order; `new` begins a session, whose name the calls after it use.
const CALLS: [Option<&str>; 4] = [None, Some("new"), Some(""), Some("")];

/// The same code for each environment: it prints itself, and through the descriptors that a child inherits.
fn code(env: &str) -> &'static str {
    match env {
        "node" => {
            "console.log('own'); console.error('error');\
             require('child_process').execSync('echo child; echo childerror >&2', { stdio: 'inherit' })"
        }
        "python" => {
            "import sys, subprocess; print('own', flush=True); print('error', file=sys.stderr, flush=True);\
             subprocess.run('echo child; echo childerror >&2', shell=True, check=True)"
        }
        _ => "echo own; echo error >&2; sh -c 'echo child; echo childerror >&2'",
    }
}

/// A registry with an artifact that runs with and without a session, as upstream's do: bash, by frames.
fn artifacts(home: &Home) {
    let directory = artifact(&home.registry(), "artifact", "#!/bin/sh\nexec bash -s\n");
    let session = directory.join("bin/session-run");
    std::fs::write(&session, include_str!("session-run.py")).unwrap();
    std::fs::set_permissions(&session, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn calls(by: &mut By, env: &str) -> Vec<String> {
    let connection = if let By::HttpSession(served) = by { Some(served.session()) } else { None };
    let mut name = String::new();
    let mut seen = Vec::new();
    for (index, session) in CALLS.into_iter().enumerate() {
        let mut arguments = json!({ "env": env, "code": code(env) });
        if let Some(session) = session {
            arguments["session"] = json!(if session.is_empty() { name.as_str() } else { session });
        }
        let id = 10 + index as u64;
        let answer = match by {
            By::Lines(client) => client.call("tools/call", json!({ "name": "run", "arguments": arguments })),
            By::Stateless(served) => {
                served.ask("tools/call", Some("run"), json!({ "name": "run", "arguments": arguments })).1
            }
            By::HttpSession(_) => connection.as_ref().unwrap().call(id, "run", arguments),
        };
        let result = if answer.get("result").is_some() { answer["result"].clone() } else { answer };
        let data = &result["structuredContent"];
        if let Some(known) = data["session"]["name"].as_str() {
            known.clone_into(&mut name);
        }
        let lines = |stream: &str| data[stream].as_str().unwrap_or_else(|| panic!("{result}")).replace('\n', " ");
        seen.push(format!("{} {}| {}", data["exit_code"], lines("stdout"), lines("stderr")));
        assert!(data["session"].is_object() == session.is_some() || data["exit_code"] != 0, "{result}");
        assert!(!text(&result).is_empty());
    }
    seen
}

fn matrix(access: Option<&str>) {
    let project = tempfile::tempdir().unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(project.path().join(".git")).unwrap();
    let home = || {
        let home = Home::new();
        artifacts(&home);
        let of = |access| format!("[project]\npath = {:?}\naccess = \"{access}\"\n", project.path());
        home.configure(&access.map(of).unwrap_or_default());
        home
    };
    let serving = home();
    let command = serving.program(&json!({ "http": "127.0.0.1:0" }));
    let served = Served::begin(command, serving, Some(TOKEN));
    let lines = home();
    let mut wrong = Vec::new();
    for (client, mut by) in [
        ("stdio", By::Lines(lines.client(json!({})))),
        ("stateless HTTP", By::Stateless(&served)),
        ("HTTP with initialize", By::HttpSession(&served)),
    ] {
        for env in ["python", "shell", "node", "artifact"] {
            let expected = vec!["0 own child | error childerror ".to_owned(); CALLS.len()];
            let seen = calls(&mut by, env);
            if seen != expected {
                wrong.push(format!("{client}, {env}, project {access:?}: {seen:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn calls_print_the_same_without_a_project() {
    matrix(None);
}

#[test]
fn calls_print_the_same_with_a_project_to_read() {
    matrix(Some("ro"));
}

#[test]
fn calls_print_the_same_with_a_copy_of_a_project() {
    matrix(Some("cow"));
}

#[test]
fn calls_print_the_same_with_a_project_to_write() {
    matrix(Some("rw"));
}

#[test]
fn what_decides_about_code_stays_read_only_in_a_project_that_it_may_write() {
    let held = tempfile::tempdir().unwrap();
    let project = std::fs::canonicalize(held.path()).unwrap();
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::create_dir_all(project.join("conf/own")).unwrap();
    std::fs::create_dir(project.join("data")).unwrap();
    ["", "conf", "conf/own", "data"].iter().for_each(|part| open(&project.join(part)));
    let configuration = project.join("conf/own/cofferdam.toml");
    let artifact = artifact(&project, "tool", "#!/bin/sh\nexec bash -s\n");
    venv(&project.join(".venv"), "own");
    open(&artifact);
    std::fs::write(
        &configuration,
        format!("[environments.tool]\nsandbox = {artifact:?}\n[environments.py]\npreset = \"python\"\nvenv = {:?}\n[project]\npath = {project:?}\naccess = \"rw\"\n", project.join(".venv")),
    )
    .unwrap();
    open(&configuration);
    let home = Home::new();
    let mut client = home.client(json!({ "config": configuration }));
    for session in [None, Some("s"), Some("s")] {
        for attempt in [
            "open('/project/conf/own/cofferdam.toml', 'a')",
            "os.remove('/project/conf/own/cofferdam.toml')",
            "os.rename('/project/conf/own', '/project/aside')",
            "os.rename('/project/conf', '/project/aside')",
            "open('/project/tool/bin/run', 'a')",
            "os.rename('/project/tool', '/project/aside')",
            "os.symlink('/', '/project/.venv/bin/more')",
            "os.rename('/project/.venv', '/project/aside')",
            "os.makedirs('/project/.git/hooks')",
        ] {
            let answer = run(&mut client, "python", &format!("import os; {attempt}"), session)["result"].clone();
            assert_ne!(answer["structuredContent"]["exit_code"], 0, "{attempt}: {answer}");
        }
        // The twin: what lies beside it is written.
        let beside = "import os; open('/project/conf/own/notes', 'a').write('x\\n'); os.rename('/project/data', '/project/d'); \
                      os.rename('/project/d', '/project/data')";
        let answer = run(&mut client, "python", beside, session)["result"].clone();
        assert_eq!(answer["structuredContent"]["exit_code"], 0, "{answer}");
    }
    assert_eq!(std::fs::read_to_string(project.join("conf/own/notes")).unwrap(), "x\nx\nx\n");
    assert!(project.join("data").is_dir() && !project.join("aside").exists());
}

#[test]
fn a_directory_that_is_no_project_is_not_given_to_write() {
    let home = Home::new();
    let flake = home.path().join("flake");
    std::fs::create_dir(&flake).unwrap();
    std::fs::write(flake.join("flake.nix"), "{}").unwrap();
    std::fs::write(flake.join("p.ncl"), "").unwrap();
    for (project, more, why) in [
        (home.path(), "", "the home"),
        (Path::new("/usr/share"), "", "more lies there than code should write"),
        (Path::new("/var/tmp"), "", "more lies there than code should write"),
        (&flake, "use_flake = true\n", "its flake, which code could then rewrite"),
        (
            &flake,
            "[environments.x]\npreset = \"python\"\nvenv = \"../../flake/venv\"\n",
            "which code could then make, is not there",
        ),
        (&flake, "[environments.x]\nprofile = \"../../flake/p.ncl\"\n", "the profile of the environment `x`"),
    ] {
        for access in ["rw", "ro"] {
            let (table, environments) = if more.starts_with('[') { ("", more) } else { (more, "") };
            home.configure(&format!("{environments}[project]\npath = {project:?}\naccess = {access:?}\n{table}"));
            let output = home.program(&json!({})).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let refused = said.contains("project.access: is \"rw\", and") && said.contains(why);
            assert_eq!((refused, output.status.success()), (access == "rw", access == "ro"), "{project:?}: {said}");
        }
    }
}

#[test]
fn session_calls_read_and_change_what_the_project_allows() {
    let project = tempfile::tempdir().unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(project.path().join("there"), "here\n").unwrap();
    let home = Home::new();
    home.configure(&format!("[project]\npath = {:?}\naccess = \"cow\"\n", project.path()));
    let mut client = home.client(json!({}));
    let mut run = |code: &str| -> Value {
        let arguments = json!({ "env": "shell", "session": "s", "code": code });
        client.call("tools/call", json!({ "name": "run", "arguments": arguments }))["result"].clone()
    };
    run("cd /project && cat there > copied");
    let kept = run("cat copied; echo again > /dev/stdout; echo third > /proc/self/fd/1; echo fourth >> /dev/stderr");
    let data = &kept["structuredContent"];
    assert_eq!((&data["stdout"], &data["stderr"]), (&json!("here\nagain\nthird\n"), &json!("fourth\n")), "{kept}");
    assert!(!project.path().join("copied").exists(), "the project itself stays as it was");
}

#[test]
fn artifact_with_a_nested_sandbox_has_sessions_and_project() {
    let found = std::env::var("PATH").unwrap_or_default();
    if !std::env::split_paths(&found).any(|directory| directory.join("bwrap").is_file()) {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "there is no bwrap; apt-get install bubblewrap");
        eprintln!("skipped: there is no bwrap; apt-get install bubblewrap");
        return;
    }
    let project = tempfile::tempdir().unwrap();
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(project.path().join("there"), "here\n").unwrap();
    let home = Home::new();
    let wrap = "#!/bin/sh\nexec bwrap --ro-bind / / --proc /proc --dev /dev --unshare-user --unshare-pid --hostname inner \
                --unshare-uts --ro-bind \"$PROJECT_DIR\" \"$PROJECT_MOUNT\"";
    let directory = artifact(&home.registry(), "wrapped", &format!("{wrap} bash -s\n"));
    let program = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).unwrap();
        std::fs::set_permissions(directory.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("bin/agent", include_str!("session-run.py"));
    program("bin/session-run", &format!("{wrap} \"${{0%/*}}/agent\"\n"));
    home.configure(&format!(
        "[project]\npath = {:?}\n[environments.wrapped]\nsandbox = {directory:?}\nnesting = true\n",
        project.path()
    ));
    let mut client = home.client(json!({}));
    for session in [None, Some("s"), Some("s")] {
        let mut arguments = json!({ "env": "wrapped", "code": "hostname; cat /project/there" });
        if let Some(session) = session {
            arguments["session"] = json!(session);
        }
        let result = client.call("tools/call", json!({ "name": "run", "arguments": arguments }))["result"].clone();
        assert_eq!(result["structuredContent"]["stdout"], "inner\nhere\n", "{session:?}: {result}");
    }
}

/// A directory with the directories `project` and `elsewhere`, in each of which `there` says which it is.
fn two_directories() -> (tempfile::TempDir, PathBuf) {
    let held = tempfile::tempdir().unwrap();
    let parent = std::fs::canonicalize(held.path()).unwrap();
    for (name, text) in [("project", "here\n"), ("elsewhere", "secret\n")] {
        std::fs::create_dir(parent.join(name)).unwrap();
        std::fs::write(parent.join(name).join("there"), text).unwrap();
    }
    (held, parent)
}

fn run(client: &mut Client, env: &str, code: &str, session: Option<&str>) -> Value {
    let mut arguments = json!({ "env": env, "code": code });
    if let Some(session) = session {
        arguments["session"] = json!(session);
    }
    client.call("tools/call", json!({ "name": "run", "arguments": arguments }))
}

/// Has the server read the definitions again: a name that it does not know makes it.
fn read_again(client: &mut Client) {
    let unknown = run(client, "unknown", "", None);
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn a_project_that_was_replaced_is_not_shown_however_often_the_definitions_are_read() {
    let (_held, parent) = two_directories();
    let project = parent.join("project");
    let home = Home::new();
    home.configure(&format!("[project]\npath = {project:?}\n"));
    let mut client = home.client(json!({}));
    let cat = "cat /project/there";
    assert_eq!(run(&mut client, "shell", cat, None)["result"]["structuredContent"]["stdout"], "here\n");
    for replacement in ["a link", "a directory"] {
        std::fs::rename(&project, parent.join("aside")).unwrap();
        match replacement {
            "a link" => std::os::unix::fs::symlink("elsewhere", &project).unwrap(),
            _ => std::fs::rename(parent.join("elsewhere"), &project).unwrap(),
        }
        for (reads, session) in [(0, None), (1, None), (1, Some("new")), (2, None)] {
            for _ in 0..reads {
                read_again(&mut client);
            }
            let refused = run(&mut client, "shell", cat, session).to_string();
            assert!(!refused.contains("secret"), "{replacement}: {refused}");
            assert!(refused.contains("is gone or was replaced, or a link leads elsewhere"), "{replacement}: {refused}");
        }
        // Another definition, so that the environments are made anew.
        home.configure(&format!(
            "[project]\npath = {project:?}\n[environments.{}]\npreset = \"shell\"\n",
            &replacement[2..]
        ));
        read_again(&mut client);
        let refused = run(&mut client, &replacement[2..], cat, None).to_string();
        assert!(refused.contains("is gone or was replaced"), "{replacement}: {refused}");
        // The directory itself, put back, is shown as before.
        match replacement {
            "a link" => std::fs::remove_file(&project).unwrap(),
            _ => std::fs::rename(&project, parent.join("elsewhere")).unwrap(),
        }
        std::fs::rename(parent.join("aside"), &project).unwrap();
        assert_eq!(run(&mut client, "shell", cat, None)["result"]["structuredContent"]["stdout"], "here\n");
        read_again(&mut client);
        assert_eq!(run(&mut client, "shell", cat, None)["result"]["structuredContent"]["stdout"], "here\n");
    }
    // A path with a link is not taken while the server runs: what was nothing when it was read may have become one since.
    for there in [false, true] {
        if there {
            std::os::unix::fs::symlink("elsewhere", parent.join("link")).unwrap();
        }
        home.configure(&format!("[project]\npath = {:?}\n", parent.join("link")));
        read_again(&mut client);
        assert_eq!(run(&mut client, "shell", cat, None)["result"]["structuredContent"]["stdout"], "here\n", "{there}");
    }
    // It is where the server starts with it, and another path without one is followed.
    let mut other = home.client(json!({}));
    assert_eq!(run(&mut other, "shell", cat, None)["result"]["structuredContent"]["stdout"], "secret\n");
    home.configure(&format!("[project]\npath = {:?}\n", parent.join("elsewhere")));
    read_again(&mut client);
    assert_eq!(run(&mut client, "shell", cat, None)["result"]["structuredContent"]["stdout"], "secret\n");
}

/// A virtual environment whose site-packages has a module `whose` with this text.
fn venv(directory: &Path, whose: &str) {
    let made = std::process::Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(directory).output();
    let made = made.expect("python3 starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let libraries = std::fs::read_dir(directory.join("lib")).unwrap().flatten().map(|entry| entry.path());
    let library = libraries.into_iter().next().unwrap();
    std::fs::write(library.join("site-packages/whose.py"), format!("name = {whose:?}\n")).unwrap();
}

#[test]
fn a_virtual_environment_is_used_and_no_link_in_its_place() {
    let held = tempfile::tempdir().unwrap();
    let parent = std::fs::canonicalize(held.path()).unwrap();
    std::fs::set_permissions(&parent, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(parent.join("project")).unwrap();
    let own = parent.join("project/.venv");
    venv(&own, "own");
    venv(&parent.join("secret"), "secret");
    let home = Home::new();
    home.configure(&format!("[environments.work]\npreset = \"python\"\nvenv = {own:?}\n"));
    let mut client = home.client(json!({}));
    let code = "import whose, sys; print(whose.name)";
    let seen = |client: &mut Client, session| {
        run(client, "work", code, session)["result"]["structuredContent"]["stdout"].clone()
    };
    for session in [None, Some("s"), Some("s")] {
        assert_eq!(seen(&mut client, session), "own\n", "{session:?}");
    }
    // Made anew at its place, it is used.
    std::fs::remove_dir_all(&own).unwrap();
    venv(&own, "again");
    assert_eq!(seen(&mut client, None), "again\n");
    // A link that code could have made leads to no other one, however often the definitions are read.
    std::fs::rename(&own, parent.join("project/aside")).unwrap();
    for target in ["../secret", "../secret/lib/..", "/"] {
        std::os::unix::fs::symlink(target, &own).unwrap();
        for session in [None, Some("new")] {
            let refused = run(&mut client, "work", code, session).to_string();
            assert!(!refused.contains("secret\\n"), "{refused}");
            assert!(refused.contains("a link leads elsewhere from the virtual environment"), "{target}: {refused}");
            read_again(&mut client);
        }
        std::fs::remove_file(&own).unwrap();
    }
    let missing = run(&mut client, "work", code, None).to_string();
    assert!(missing.contains("is no virtual environment with a Python") && missing.contains("python3 -m venv"));
    std::fs::rename(parent.join("project/aside"), &own).unwrap();
    assert_eq!(seen(&mut client, None), "again\n");
    // Nor does a link in it, and it leads on to the installation that it was made of alone.
    let interpreter = std::fs::read_link(own.join("bin/python3")).unwrap();
    let relink = |target: &Path| {
        std::fs::remove_file(own.join("bin/python3")).unwrap();
        std::os::unix::fs::symlink(target, own.join("bin/python3")).unwrap();
    };
    relink(&parent.join("secret/bin/python3"));
    let mut other = home.client(json!({}));
    assert_eq!(seen(&mut other, None), "again\n");
    let look = format!("import os; print(os.path.exists('{}/secret/pyvenv.cfg'))", parent.display());
    assert_eq!(run(&mut other, "work", &look, None)["result"]["structuredContent"]["stdout"], "False\n");
    relink(&interpreter);
    assert_eq!(seen(&mut other, None), "again\n");
    // What its pyvenv.cfg names is no authority on what is shown.
    std::fs::write(own.join("pyvenv.cfg"), format!("home = {}/secret/bin\n", parent.display())).unwrap();
    let mut later = home.client(json!({}));
    let shown = run(&mut later, "work", &look, None)["result"].clone();
    assert_eq!(shown["structuredContent"]["stdout"], "False\n", "{shown}");
}

/// Removes a directory and puts another one, or a file, in its place, which has the same number where the number is free.
fn put_another_with_its_number(directory: &Path, aside: &Path, file: bool) {
    use std::os::unix::fs::MetadataExt as _;
    let number = std::fs::metadata(directory).unwrap().ino();
    std::fs::remove_dir_all(directory).unwrap();
    let made: Vec<PathBuf> = (0..300).map(|n| aside.join(format!("{file}{n}"))).collect();
    let other = made.iter().find(|path| {
        if file {
            std::fs::write(path, "secret\n").unwrap();
        } else {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::metadata(path).unwrap().ino() == number
    });
    let other = other.unwrap_or(&made[0]);
    if !file {
        std::fs::write(other.join("there"), "secret\n").unwrap();
    }
    std::fs::rename(other, directory).unwrap();
}

#[test]
fn a_number_that_is_used_again_makes_no_other_directory_the_project() {
    for file in [false, true] {
        let (_held, parent) = two_directories();
        let project = parent.join("project");
        let home = Home::new();
        home.configure(&format!("[project]\npath = {project:?}\n"));
        let mut client = home.client(json!({}));
        let code = "cat /project/there /project";
        let shown = run(&mut client, "shell", code, None)["result"]["structuredContent"]["stdout"].clone();
        assert_eq!(shown, "here\n");
        put_another_with_its_number(&project, &parent.join("elsewhere"), file);
        for session in [None, Some("new")] {
            let refused = run(&mut client, "shell", code, session).to_string();
            assert!(!refused.contains("secret") && refused.contains("is gone or was replaced"), "{file}: {refused}");
            read_again(&mut client);
        }
        // A server that starts with it shows it, where it is a directory.
        if !file {
            let mut later = home.client(json!({}));
            assert_eq!(
                run(&mut later, "shell", "cat /project/there", None)["result"]["structuredContent"]["stdout"],
                "secret\n"
            );
        }
    }
}

#[test]
fn an_image_directory_that_was_replaced_is_not_shown() {
    let (_held, parent) = two_directories();
    let image = parent.join("image");
    for name in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        std::fs::create_dir_all(image.join(name)).unwrap();
    }
    std::fs::set_permissions(image.join("tmp"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    std::fs::copy("/bin/busybox", image.join("bin/busybox")).unwrap();
    for name in ["sh", "cat"] {
        std::os::unix::fs::symlink("busybox", image.join("bin").join(name)).unwrap();
    }
    std::fs::write(image.join("etc/hostname"), "of the image\n").unwrap();
    // A link of the operator's on the way is followed.
    std::os::unix::fs::symlink(".", parent.join("way")).unwrap();
    let home = Home::new();
    home.configure(&format!(
        "[environments.img]\nimage = {image:?}\nbackend = \"jail\"\n\
         [environments.way]\nimage = {:?}\nbackend = \"jail\"\n",
        parent.join("way/image")
    ));
    let mut client = home.client(json!({}));
    let code = "cat /etc/hostname";
    for env in ["img", "way"] {
        let shown = run(&mut client, env, code, None);
        assert_eq!(shown["result"]["structuredContent"]["stdout"], "of the image\n", "{shown}");
    }
    std::fs::rename(&image, parent.join("aside")).unwrap();
    read_again(&mut client);
    std::os::unix::fs::symlink("/", &image).unwrap();
    for _ in 0..3 {
        for env in ["img", "way"] {
            let refused = run(&mut client, env, code, None);
            assert_eq!(refused["result"]["isError"], true, "{refused}");
            assert!(refused.to_string().contains("is gone or was replaced, or a link leads elsewhere"), "{refused}");
        }
        read_again(&mut client);
    }
    std::fs::remove_file(&image).unwrap();
    std::fs::rename(parent.join("aside"), &image).unwrap();
    read_again(&mut client);
    for env in ["img", "way"] {
        let back = run(&mut client, env, code, None);
        assert_eq!(back["result"]["structuredContent"]["stdout"], "of the image\n", "{back}");
    }
}

#[test]
fn a_mount_source_that_became_a_link_is_not_shown() {
    let evaluator = Path::new(env!("CARGO_BIN_EXE_cofferdam-serve")).with_file_name("cofferdam-compile");
    if !evaluator.exists() {
        let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
        assert!(!must, "cofferdam-compile is not built; cargo build -p cofferdam-compile");
        eprintln!("skipped: cofferdam-compile is not built");
        return;
    }
    let (_held, parent) = two_directories();
    let writable = parent.join("writable");
    for name in ["", "data", "other"] {
        std::fs::create_dir_all(writable.join(name)).unwrap();
        std::fs::set_permissions(writable.join(name), std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    std::fs::write(writable.join("data/there"), "data\n").unwrap();
    std::fs::write(writable.join("other/there"), "other\n").unwrap();
    std::os::unix::fs::symlink("data", writable.join("link")).unwrap();
    let home = Home::new();
    home.configure("[environments.mine]\nprofile = \"mine.ncl\"\n");
    let profile = format!(
        "let s = import \"sandbox\" in s.make_default_config \"mine\" & {{ network_policy = \"deny\", \
         cmd = [\"/bin/bash\", \"-c\"], capabilities.filesystem = \"file_write\", mounts = [ \
         {{ src = {writable:?}, dst = \"/v\", rw = true }}, {{ src = {:?}, dst = \"/data\" }}, \
         {{ src = {:?}, dst = \"/link\" }} ] }}",
        writable.join("data"),
        writable.join("link")
    );
    std::fs::write(home.path().join(".config/cofferdam/mine.ncl"), profile).unwrap();
    let mut client = home.client(json!({}));
    let cat = "cat /data/there /link/there";
    let shown = |answer: Value| answer["result"]["structuredContent"]["stdout"].clone();
    assert_eq!(shown(run(&mut client, "mine", cat, None)), "data\ndata\n");
    let swap = run(&mut client, "mine", "mv /v/data /v/aside && ln -s ../elsewhere /v/data", None);
    assert_eq!(swap["result"]["isError"], false, "{swap}");
    for session in [None, Some("new"), None] {
        let refused = run(&mut client, "mine", cat, session).to_string();
        assert!(!refused.contains("secret"), "{refused}");
        assert!(refused.contains("a link leads elsewhere from the mount source"), "{refused}");
        read_again(&mut client);
    }
    // Another directory that lies there is shown, as is what a source that was a link at first leads to.
    std::fs::remove_file(writable.join("data")).unwrap();
    std::fs::rename(writable.join("other"), writable.join("data")).unwrap();
    assert_eq!(shown(run(&mut client, "mine", cat, None)), "other\nother\n");
    std::fs::rename(writable.join("data"), writable.join("other")).unwrap();
    std::fs::rename(writable.join("aside"), writable.join("data")).unwrap();
    assert_eq!(shown(run(&mut client, "mine", cat, None)), "data\ndata\n");
}

#[test]
fn a_project_that_a_link_replaced_is_not_shown() {
    let parent = tempfile::tempdir().unwrap();
    let parent = std::fs::canonicalize(parent.path()).unwrap();
    for (name, text) in [("project", "here\n"), ("elsewhere", "secret\n")] {
        std::fs::create_dir(parent.join(name)).unwrap();
        std::fs::write(parent.join(name).join("there"), text).unwrap();
    }
    let home = Home::new();
    home.configure(&format!("[project]\npath = {:?}\n", parent.join("project")));
    let mut client = home.client(json!({}));
    let mut run = || -> Value {
        let arguments = json!({ "env": "shell", "code": "cat /project/there" });
        client.call("tools/call", json!({ "name": "run", "arguments": arguments }))["result"].clone()
    };
    assert_eq!(run()["structuredContent"]["stdout"], "here\n");
    std::fs::rename(parent.join("project"), parent.join("aside")).unwrap();
    std::os::unix::fs::symlink("elsewhere", parent.join("project")).unwrap();
    let refused = run();
    assert!(!refused.to_string().contains("secret"), "{refused}");
    assert!(refused.to_string().contains("a link leads elsewhere"), "{refused}");
    // The directory itself, put back, is shown as before.
    std::fs::remove_file(parent.join("project")).unwrap();
    std::fs::rename(parent.join("aside"), parent.join("project")).unwrap();
    assert_eq!(run()["structuredContent"]["stdout"], "here\n");
}
