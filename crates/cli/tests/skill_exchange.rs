//! What a skill exchanges in one run: input files, standard input, returned files, and its own loopback. Each needs the
//! permission of the command line or the operator, and of the manifest.

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::{PYTHON, cofferdam, needs, parse};
use serde_json::{Value, json};

struct Bench {
    root: tempfile::TempDir,
    address: String,
}

impl Bench {
    fn new() -> Bench {
        let root = tempfile::tempdir().unwrap();
        let made = cofferdam().args(["skill", "keygen"]).arg(root.path().join("publisher.key")).output().unwrap();
        let address = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        Bench { root, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `skill` with these arguments and this standard input. Limits of memory and processes are best effort: not every host
    /// has a cgroup for every user.
    fn skill(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = cofferdam();
        command.arg("skill").arg("--best-effort").arg("--registry").arg(self.path("skills"));
        command.arg("--audit-trail").arg(self.path("audit")).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A program that reads nothing may be gone by now.
        drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    }

    fn registered(&self, name: &str, files: Value, network: Value, program: (&str, &str)) {
        let directory = self.path(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(program.0), program.1).unwrap();
        let manifest = json!({
            "version": "1",
            "name": name,
            "publisher": { "name": "Example", "address": self.address, "contact": "dev@example.com" },
            "permissions": { "txActions": [], "chains": [], "networkAccess": network, "filesystemAccess": files },
            "sandbox": { "memoryMb": 128, "timeoutMs": 20000, "allowSpawn": true },
            "files": [],
        });
        fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
        let (directory, key) = (self.text(name), self.text("publisher.key"));
        for arguments in [&["sign", "--files", "--key", &key, &directory][..], &["register", &directory]] {
            let done = self.skill(arguments, "");
            assert!(done.status.success(), "{done:?}");
        }
    }

    fn document(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o644)).unwrap();
        self.text(name)
    }
}

fn refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(125), true), "{said}");
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_document_goes_in_and_another_comes_back() {
    if !needs("user namespaces") || !needs("overlayfs") {
        return;
    }
    let bench = Bench::new();
    let script = "tr a-z A-Z < /input/letter.txt > /output/letter.txt && mkdir /output/more && echo two > /output/more/two\n\
                  ln -s /etc/passwd /output/link\nmkfifo /output/pipe\n\
                  (echo x > /input/letter.txt) 2>/dev/null && echo WROTE\n\
                  (echo x > /input/new) 2>/dev/null && echo WROTE\nls /input\n";
    bench.registered("upper", json!(true), json!(false), ("main.sh", script));
    bench.registered("without", json!(false), json!(false), ("main.sh", script));
    let (letter, out) = (bench.document("letter.txt", "dear reader\n"), bench.text("out"));
    let ran = bench.skill(&["run", "--input", &letter, "--output", &out, "upper"], "");
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), &b"letter.txt\n"[..]), "{ran:?}");
    assert_eq!(fs::read_to_string(bench.path("out/letter.txt")).unwrap(), "DEAR READER\n");
    assert_eq!(fs::read_to_string(bench.path("out/more/two")).unwrap(), "two\n");
    assert_eq!(
        fs::read_link(bench.path("out/link")).unwrap(),
        PathBuf::from("/etc/passwd"),
        "its text, not its target"
    );
    assert!(!bench.path("out/pipe").exists(), "only files, directories and the text of links come back");
    assert_eq!(fs::read_to_string(&letter).unwrap(), "dear reader\n");
    // What is there already is not written over; a plan makes nothing.
    refused(&bench.skill(&["run", "--output", &out, "upper"], ""), "not empty");
    let plan = bench.skill(&["run", "--dry-run", "--output", &bench.text("planned"), "upper"], "");
    assert!(plan.status.success() && !bench.path("planned").exists(), "{plan:?}");
    // The manifest's word, and what is no file.
    let again = bench.text("again");
    refused(&bench.skill(&["run", "--input", &letter, "without"], ""), "filesystemAccess");
    refused(&bench.skill(&["run", "--output", &again, "without"], ""), "filesystemAccess");
    assert!(!bench.path("again").exists());
    refused(&bench.skill(&["run", "--input", &bench.text("none"), "upper"], ""), "cannot show");
    refused(&bench.skill(&["run", "--input", &out, "upper"], ""), "not a regular file");
    // Without the caller's leave neither place is there.
    let ran = parse(&bench.skill(&["run", "--json", "upper"], ""));
    assert!(ran["stderr"].as_str().unwrap().contains("/input"), "{ran}");
}

#[test]
fn credentials_are_no_input_and_their_places_no_output() {
    if !needs("user namespaces") || !needs("overlayfs") {
        return;
    }
    let bench = Bench::new();
    bench.registered("show", json!(true), json!(false), ("main.sh", "cat /input/*\n"));
    let home = bench.path("home");
    for directory in ["home/.ssh", "home/.config/app", "docs"] {
        fs::create_dir_all(bench.path(directory)).unwrap();
    }
    let key = bench.document("home/.ssh/id_rsa", "PRIVATE\n");
    let setting = bench.document("home/.config/app/notes", "NOTES\n");
    let plain = bench.document("docs/plain.txt", "plain\n");
    for (name, target) in [("report.txt", &key), ("notes.txt", &setting), ("alias.txt", &plain)] {
        std::os::unix::fs::symlink(target, bench.path("docs").join(name)).unwrap();
    }
    let run = |arguments: &[&str]| {
        let mut command = cofferdam();
        command.arg("skill").arg("--best-effort").arg("--registry").arg(bench.path("skills"));
        command.arg("--audit-trail").arg(bench.path("audit")).arg("run").args(arguments).arg("show");
        command.env("HOME", &home).env("COFFERDAM_TEST_HOMES", &home).stdin(Stdio::null()).output().unwrap()
    };
    let (report, notes, alias) =
        (bench.text("docs/report.txt"), bench.text("docs/notes.txt"), bench.text("docs/alias.txt"));
    refused(&run(&["--input", &key]), "id_rsa is a place of credentials\nhint: copy ");
    refused(&run(&["--input", &plain, "--input", &report]), "id_rsa, a place of credentials");
    refused(&run(&["--input", &notes]), "a hidden place of a home");
    refused(&run(&["--input", &plain, "--output", &bench.text("home/.ssh/new")]), "new is a place of credentials");
    assert!(!bench.path("home/.ssh/new").exists());
    for (input, text) in [(&plain, "plain\n"), (&alias, "plain\n"), (&setting, "NOTES\n")] {
        let ran = run(&["--input", input]);
        assert_eq!(String::from_utf8_lossy(&ran.stdout), text, "{ran:?}");
    }
}

#[test]
fn what_a_mount_of_the_host_shows_of_credentials_is_no_input_and_no_output() {
    if !needs("user namespaces") || !needs("overlayfs") {
        return;
    }
    let bench = Bench::new();
    bench.registered("show", json!(true), json!(false), ("main.sh", "cat /input/*; echo o >/output/o\n"));
    for directory in ["home/.ssh", "docs", "open", "bound", "mine", "skills-too", "layer", "over"] {
        fs::create_dir_all(bench.path(directory)).unwrap();
    }
    bench.document("home/.ssh/id_rsa", "echo PRIVATE\n");
    bench.document("docs/plain.txt", "echo plain\n");
    let registry = fs::read_dir(bench.path("skills")).unwrap().count();
    let script = r#"
        mount --bind home/.ssh bound && mount --bind docs mine && mount --bind skills skills-too || exit 3
        skill() { "$COFFERDAM" skill --best-effort --registry skills --audit-trail audit run "$@" show; }
        echo mounted
        "$COFFERDAM" eval shell --file bound/id_rsa
        skill --input bound/id_rsa
        skill --input docs/plain.txt --output bound/new
        skill --input docs/plain.txt --output skills-too/new
        if mount -t overlay o -o lowerdir="$PWD/home/.ssh:$PWD/layer" over; then skill --input over/id_rsa; fi
        "$COFFERDAM" eval shell --file mine/plain.txt
        skill --input mine/plain.txt --output open/made"#;
    let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-Urm"] };
    let mut command = Command::new("unshare");
    command.args(flags).args(["--propagation", "private", "/bin/sh", "-c", script]).current_dir(bench.root.path());
    let home = bench.path("home");
    command.env("HOME", &home).env("COFFERDAM_TEST_HOMES", &home).env("COFFERDAM", cofferdam().get_program());
    let out = command.stdin(Stdio::null()).output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if flags == ["-Urm"] && !said.contains("mounted\necho plain") && !said.contains("mounted\nplain") {
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none() || error.contains("maps no id"), "{error}");
        eprintln!("skipped: a mount needs user 0 here: {error}");
        return;
    }
    assert_eq!(said, "mounted\nplain\necho plain\n", "{error}");
    for refused in ["the code file bound/id_rsa is", "bound/id_rsa is", "bound/new is", "skills-too/new"] {
        assert!(error.contains(refused), "{refused}: {error}");
    }
    assert!(error.matches("place of credentials").count() >= 3, "{error}");
    assert!(!bench.path("home/.ssh/new").exists() && bench.path("open/made/o").exists(), "{error}");
    assert_eq!(fs::read_dir(bench.path("skills")).unwrap().count(), registry, "{error}");
}

#[test]
fn more_than_64_mib_are_not_written() {
    if !needs("user namespaces") || !needs("overlayfs") {
        return;
    }
    let bench = Bench::new();
    let script = "head -c 1000 /dev/zero > /output/small && echo SMALL\n\
                  head -c 80000000 /dev/zero > /output/large 2>/dev/null && echo LARGE\nrm -f /output/large\n";
    bench.registered("large", json!(["/output"]), json!(false), ("main.sh", script));
    let ran = bench.skill(&["run", "--output", &bench.text("out"), "large"], "");
    assert_eq!(ran.stdout, b"SMALL\n", "{ran:?}");
    assert_eq!(fs::metadata(bench.path("out/small")).unwrap().len(), 1000);
}

#[test]
fn standard_input_is_the_skills_when_asked_for() {
    let bench = Bench::new();
    bench.registered("reads", json!(false), json!(false), ("main.sh", "wc -c\n"));
    let ran = bench.skill(&["run", "-i", "reads"], "twelve bytes");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "12", "{ran:?}");
    let ran = bench.skill(&["run", "reads"], "twelve bytes");
    assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "0", "{ran:?}");
}

#[test]
fn a_skill_has_a_loopback_of_its_own_by_the_leave_of_both_sides() {
    if !needs("user namespaces") {
        return;
    }
    let bench = Bench::new();
    let serves = "import socket\ns = socket.create_server(('127.0.0.1', 0))\n\
                  c = socket.create_connection(s.getsockname(), 5)\ns.accept()[0].sendall(b'served')\n\
                  print(c.recv(9).decode(), flush=True)\n";
    // A server of the host's is at no loopback of the skill's.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let program = format!(
        "{serves}try:\n    socket.create_connection(('127.0.0.1', {}), 5)\n    print('REACHED')\nexcept OSError:\n    \
         print('apart')\n",
        listener.local_addr().unwrap().port()
    );
    let config =
        bench.document("operator.toml", &format!("networkMode = 'loopback'\ncommand = ['{PYTHON}', '/skill/main.py']"));
    bench.registered("serves", json!(false), json!(["localhost"]), ("main.py", &program));
    bench.registered("quiet", json!(false), json!(false), ("main.py", &program));
    let ran = parse(&bench.skill(&["run", "--json", "--config", &config, "serves"], ""));
    assert_eq!(ran["stdout"], "served\napart\n", "{ran}");
    for arguments in [&["run", "--json", "serves"][..], &["run", "--json", "--config", &config, "quiet"]] {
        let ran = parse(&bench.skill(arguments, ""));
        assert_eq!((&ran["success"], &ran["stdout"]), (&false.into(), &"".into()), "{ran}");
    }
}

/// A directory that can be a root, with a shell; its `/input` and `/output` are empty.
fn image(bench: &Bench) -> Option<String> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| fs::exists(path).unwrap());
    let Some(busybox) = busybox else {
        eprintln!("skipped: no busybox");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "no busybox");
        return None;
    };
    let root = bench.path("image");
    for name in ["bin", "etc", "dev", "proc", "sys", "tmp", "skill", "input", "output"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "ls", "nc", "sleep"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::set_permissions(bench.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    Some(root.to_str().unwrap().to_owned())
}

#[test]
fn a_document_goes_into_an_image_and_another_comes_back() {
    if !needs("user namespaces") || !needs("overlayfs") {
        return;
    }
    let bench = Bench::new();
    let Some(image) = image(&bench) else { return };
    let script = "cat /input/a.txt /input/b.txt > /output/both.txt; ls /input\n\
                  (echo x > /input/a.txt) 2>/dev/null && echo WROTE\n(echo x > /input/new) 2>/dev/null && echo WROTE\ntrue\n";
    bench.registered("joins", json!(["/input", "/output"]), json!(false), ("main.sh", script));
    let (a, b) = (bench.document("a.txt", "one\n"), bench.document("b.txt", "two\n"));
    let config = bench.document("operator.toml", &format!("image = {image:?}\n"));
    let given = ["--config", &config, "--input", &a, "--input", &b];
    let run = |out: &str| bench.skill(&[&["run"], &given[..], &["--output", &bench.text(out), "joins"]].concat(), "");
    let ran = run("out");
    assert_eq!((ran.status.code(), ran.stdout.as_slice()), (Some(0), &b"a.txt\nb.txt\n"[..]), "{ran:?}");
    assert_eq!(fs::read_to_string(bench.path("out/both.txt")).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_dir(bench.path("image/input")).unwrap().count(), 0, "nothing is made in the image");
    // What the image has there is not covered.
    fs::write(bench.path("image/input/own"), "of the image").unwrap();
    let ran = run("again");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(125) && said.contains("/input/a.txt does not exist inside"), "{said}");
    assert!(said.contains("hint: --config FILE: `image` with an empty /input"), "{said}");
}

#[test]
fn unix_sockets_of_a_skill_need_the_operators_permission() {
    let bench = Bench::new();
    let program = "import socket\ntry:\n    s = socket.socket(socket.AF_UNIX)\nexcept OSError:\n    raise SystemExit('refused')\n\
                   s.bind('/tmp/s'); s.listen()\nc = socket.socket(socket.AF_UNIX); c.connect('/tmp/s'); print('connected')\n\
                   c = socket.socket(socket.AF_UNIX)\ntry:\n    c.connect('\\0cofferdam-test-of-skills')\n    print('REACHED')\n\
                   except OSError:\n    print('apart')\n";
    let name = rustix::net::SocketAddrUnix::new_abstract_name(b"cofferdam-test-of-skills").unwrap();
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &name).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    bench.registered("connects", json!(false), json!(false), ("main.py", program));
    let command = format!("command = ['{PYTHON}', '/skill/main.py']\n");
    let granted = bench.document("granted.toml", &format!("{command}unixSockets = true\n"));
    let plain = bench.document("plain.toml", &command);
    let ran = parse(&bench.skill(&["run", "--json", "--config", &granted, "connects"], ""));
    assert_eq!(ran["stdout"], "connected\napart\n", "{ran}");
    let ran = parse(&bench.skill(&["run", "--json", "--config", &plain, "connects"], ""));
    assert!(ran["stdout"] == "" && ran["stderr"].as_str().unwrap().contains("refused"), "{ran}");
}

#[test]
fn plan_and_record_name_files_and_the_source_of_limits() {
    if !needs("user namespaces") || !needs("overlayfs") {
        return;
    }
    let bench = Bench::new();
    bench.registered("upper", json!(true), json!(false), ("main.sh", "true\n"));
    let (letter, out) = (bench.document("letter.txt", "dear reader\n"), bench.text("out"));
    let config = bench.document("operator.toml", "memoryLimitMb = 64\ntimeoutMs = 60000\n");
    let given = ["--config", &config, "--input", &letter, "--output", &out, "upper"];
    let plan = parse(&bench.skill(&[&["run", "--dry-run"], &given[..]].concat(), ""));
    let input = json!([{
        "name": "letter.txt",
        "bytes": 12,
        "sha256": "b3b2462a8c09c6601f380099a592477e2a90a6c8246fb188c7a2c44636139e87",
    }]);
    assert_eq!(plan["skill"]["limitsFrom"], json!({ "memory_mb": "operator", "wall_ms": "manifest" }), "{plan}");
    assert_eq!((&plan["skill"]["input"], &plan["skill"]["output"]), (&input, &json!(out)));
    let plain = parse(&bench.skill(&["run", "--dry-run", "upper"], ""));
    assert_eq!(plain["skill"]["limitsFrom"], json!({ "memory_mb": "manifest", "wall_ms": "manifest" }), "{plain}");
    assert!(plain["skill"].get("input").is_none() && plain["skill"].get("output").is_none(), "{plain}");
    let ran = bench.skill(&[&["run"], &given[..]].concat(), "");
    assert!(ran.status.success(), "{ran:?}");
    let shown = cofferdam().args(["audit", "show", "--json", "--dir"]).arg(bench.path("audit")).output().unwrap();
    let records = String::from_utf8(shown.stdout).unwrap();
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let start = records.iter().find(|record| record["kind"] == "sandbox_started").unwrap();
    assert_eq!((&start["data"]["input"], &start["data"]["output"]), (&input, &json!(out)), "{start}");
    assert_eq!(
        (&start["data"]["inputCount"], &start["data"]["limitsFrom"]["memory_mb"]),
        (&json!(1), &json!("operator"))
    );
}
