//! `cofferdam skill`: skills are signed, registered, run and revoked; a faulty one is refused; and everything is recorded.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{cofferdam, needs, needs_python, parse};
use serde_json::{Value, json};

/// A publisher, a registry and a trail of the test's own.
struct Bench {
    root: tempfile::TempDir,
    address: String,
}

impl Bench {
    fn new() -> Bench {
        let root = tempfile::tempdir().unwrap();
        let key = root.path().join("publisher.key");
        let made = cofferdam().args(["skill", "keygen"]).arg(&key).output().unwrap();
        let address = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        assert!(made.status.success() && address.len() == 42, "{address}");
        Bench { root, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// `skill` with these arguments. Limits are best effort: not every host has a cgroup for every user.
    fn skill(&self, arguments: &[&str]) -> Output {
        let mut command = cofferdam();
        command.arg("skill").arg("--best-effort").arg("--registry").arg(self.path("skills"));
        command.arg("--audit-trail").arg(self.path("audit")).args(arguments);
        command.env("CALLERS_SECRET", "hunter2").output().unwrap()
    }

    /// A signed skill of these files, in a directory of its name.
    fn signed(&self, name: &str, spawn: bool, files: &[(&str, &str)]) -> String {
        self.signed_with(name, spawn, 128, files)
    }

    /// The same, with this much memory.
    fn signed_with(&self, name: &str, spawn: bool, memory: u64, files: &[(&str, &str)]) -> String {
        let directory = self.path(name);
        fs::create_dir_all(&directory).unwrap();
        for (path, text) in files {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let manifest = json!({
            "version": "1",
            "name": name,
            "publisher": { "name": "Example", "address": self.address, "contact": "dev@example.com" },
            "permissions": { "txActions": [], "chains": [], "networkAccess": false, "filesystemAccess": false },
            "sandbox": { "memoryMb": memory, "timeoutMs": 20000, "allowSpawn": spawn },
            "files": [],
        });
        fs::write(directory.join("manifest.json"), manifest.to_string()).unwrap();
        let directory = directory.to_str().unwrap().to_owned();
        let key = self.path("publisher.key");
        let signed = self.skill(&["sign", "--files", "--key", key.to_str().unwrap(), &directory]);
        assert!(signed.status.success(), "{}", said(&signed));
        directory
    }

    fn registered(&self, name: &str, spawn: bool, files: &[(&str, &str)]) {
        let directory = self.signed(name, spawn, files);
        let registered = self.skill(&["register", &directory]);
        assert!(registered.status.success(), "{}", said(&registered));
    }

    /// The records of the trail, which holds together, as kind and data.
    fn records(&self) -> Vec<(String, Value)> {
        let audit = |action: &str| {
            let output =
                cofferdam().args(["audit", action, "--json", "--dir"]).arg(self.path("audit")).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            output
        };
        audit("verify");
        let shown = audit("show");
        let lines = String::from_utf8(shown.stdout).unwrap();
        let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.skip(1).map(|record| (record["kind"].as_str().unwrap().to_owned(), record)).collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.records().into_iter().map(|(kind, _)| kind).collect()
    }
}

/// A skill's name, the fault that it is refused for, and what brings that about.
type Case<'b> = (&'static str, &'static str, Box<dyn Fn() + 'b>);

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].concat().iter().map(|byte| char::from(*byte)).collect()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn a_skill_is_signed_registered_run_and_revoked() {
    let bench = Bench::new();
    let directory = bench.signed("hello", false, &[("main.sh", "echo hello \"$@\"\nexit 3\n")]);
    assert_eq!(code(&bench.skill(&["verify", &directory])), 0);
    let mode = |path: &str| fs::metadata(bench.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("publisher.key"), mode("hello/manifest.json")), (0o600, 0o644));
    assert_eq!(code(&bench.skill(&["run", "hello"])), 125, "it is not registered yet");
    assert_eq!(code(&bench.skill(&["register", &directory])), 0);
    let version = parse(&bench.skill(&["show", "--json", "hello"]))["version"].as_str().unwrap().to_owned();
    // What becomes of the source is nothing to what is registered.
    fs::write(bench.path("hello/main.sh"), "echo changed\n").unwrap();
    let ran = bench.skill(&["run", "hello", "--", "you", "--json"]);
    assert_eq!((code(&ran), ran.stdout.as_slice()), (3, &b"hello you --json\n"[..]), "{}", said(&ran));
    let named = bench.skill(&["run", "--json", &format!("hello@{}", &version[..12])]);
    assert_eq!((&parse(&named)["exit_code"], &parse(&named)["stdout"]), (&3.into(), &"hello\n".into()));
    let result = parse(&bench.skill(&["run", "--result", "hello"]));
    assert_eq!(
        (&result["success"], &result["exitCode"], &result["stdout"]),
        (&false.into(), &3.into(), &"hello\n".into())
    );
    assert_eq!(result.as_object().unwrap().len(), 5);
    assert!(
        said(&bench.skill(&["list"])).contains("hello") && said(&bench.skill(&["show", "hello"])).contains(&version)
    );
    assert_eq!(code(&bench.skill(&["revoke", "hello"])), 0);
    let refused = bench.skill(&["run", "hello"]);
    assert!(
        code(&refused) == 125 && refused.stdout.is_empty() && said(&refused).contains("revoked"),
        "{}",
        said(&refused)
    );
    let outcome = parse(&bench.skill(&["run", "--json", "hello"]));
    assert_eq!((&outcome["outcome"], &outcome["error"]["code"]), (&"setup_failed".into(), &125.into()));
    let result = parse(&bench.skill(&["run", "--result", "hello"]));
    assert_eq!((&result["success"], &result["exitCode"]), (&false.into(), &125.into()));
    assert!(result["stderr"].as_str().unwrap().contains("revoked"), "{result}");
    assert!(said(&bench.skill(&["list"])).contains("revoked"));
    let refused = ["skill_revoked", "sandbox_error", "sandbox_error", "sandbox_error"];
    let run = ["sandbox_started", "sandbox_completed"];
    let wanted = [&["sandbox_error", "skill_registered"][..], &run, &run, &run, &refused].concat();
    let records = bench.records();
    assert_eq!(records.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), wanted);
    assert!(records.iter().all(|(_, record)| record["skill"] == "hello"));
    let started = &records[2].1["data"];
    assert_eq!(
        (&started["skillName"], &started["memoryMb"], &started["networkMode"]),
        (&"hello".into(), &128.into(), &"none".into())
    );
    assert_eq!((&started["skillVersion"], &started["publisher"]), (&version.into(), &bench.address.clone().into()));
    assert_eq!(records[3].1["data"]["exitCode"], 3);
}

#[test]
fn the_example_is_a_skill() {
    let bench = Bench::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/skill");
    let read = |name: &str| fs::read_to_string(example.join(name)).unwrap();
    let directory =
        bench.signed("word-count", false, &[("main.py", &read("main.py")), ("common.txt", &read("common.txt"))]);
    let manifest = read("manifest.json").replace("0x0000000000000000000000000000000000000000", &bench.address);
    fs::write(bench.path("word-count/manifest.json"), manifest).unwrap();
    let key = bench.path("publisher.key");
    let signed = bench.skill(&["sign", "--files", "--key", key.to_str().unwrap(), &directory]);
    assert!(signed.status.success(), "{}", said(&signed));
    assert_eq!(code(&bench.skill(&["register", &directory])), 0);
    let ran = bench.skill(&["run", "word-count", "--", "The coffer of the dam."]);
    assert_eq!(ran.stdout, b"5 words, 2 of them not common\n", "{}", said(&ran));
}

#[test]
fn a_skill_sees_its_files_and_nothing_of_the_callers() {
    if !needs("user namespaces") {
        return;
    }
    let bench = Bench::new();
    let victim = bench.path("victim");
    fs::write(&victim, "the caller's").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o644)).unwrap();
    let script = format!(
        "cat data.txt\npwd\nenv | cut -d= -f1 | sort | tr '\\n' ' '\necho\n\
         cat {} 2>/dev/null && echo SAW\n(echo x > /skill/new) 2>/dev/null && echo WROTE\n\
         (echo x > data.txt) 2>/dev/null && echo WROTE\n\
         cp data.txt /tmp/copy && echo more >> /tmp/copy && tail -n 1 /tmp/copy\necho scratch > /tmp/file && cat /tmp/file\n\
         cp /bin/true /tmp/t && chmod +x /tmp/t && /tmp/t 2>/dev/null && echo EXECUTED\nls /home /root 2>/dev/null\n\
         (exec 3<>/dev/tcp/127.0.0.1/22) 2>/dev/null && echo CONNECTED\nexit 0\n",
        victim.display()
    );
    bench.registered("looks", true, &[("main.sh", &script), ("data.txt", "its own\n")]);
    let ran = bench.skill(&["run", "-q", "looks"]);
    let lines = String::from_utf8(ran.stdout.clone()).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines.first(), lines.get(1)), (Some(&"its own"), Some(&"/skill")), "{}", said(&ran));
    let variables: Vec<&str> =
        lines[2].split(' ').filter(|name| !matches!(*name, "" | "PWD" | "OLDPWD" | "_" | "SHLVL")).collect();
    assert_eq!(variables, ["HOME", "LANG", "PATH", "TERM", "USER"]);
    assert_eq!(lines[3..], ["more", "scratch"], "a copy of a file can be changed: {}", said(&ran));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "the caller's");
}

#[test]
fn manifest_without_spawn_forbids_processes_and_not_threads() {
    if !needs("user namespaces") || !needs("seccomp notification") {
        return;
    }
    let bench = Bench::new();
    let spawns = "import subprocess\nprint('before', flush=True)\n\
                  print(subprocess.run(['/bin/echo', 'CHILD'], capture_output=True).stdout, flush=True)\n";
    let threads = "import threading\nt = threading.Thread(target=lambda: print('thread'))\nt.start()\nt.join()\n";
    bench.registered("spawns", false, &[("main.py", spawns)]);
    bench.registered("may-spawn", true, &[("main.py", spawns)]);
    bench.registered("threads", false, &[("main.py", threads)]);
    let ran = bench.skill(&["run", "--json", "spawns"]);
    let outcome = parse(&ran);
    assert_eq!((&outcome["outcome"], &outcome["stdout"]), (&"violation".into(), &"before\n".into()), "{outcome}");
    assert!(bench.kinds().contains(&"security_violation".to_owned()));
    assert_eq!(parse(&bench.skill(&["run", "--json", "may-spawn"]))["stdout"], "before\nb'CHILD\\n'\n");
    assert_eq!(parse(&bench.skill(&["run", "--json", "threads"]))["stdout"], "thread\n");
    // The operator's no is the narrower one.
    fs::write(bench.path("config.toml"), "noSpawn = true\n").unwrap();
    let config = bench.path("config.toml");
    let narrowed = parse(&bench.skill(&["run", "--json", "--config", config.to_str().unwrap(), "may-spawn"]));
    assert_eq!(narrowed["outcome"], "violation");
}

#[test]
fn the_wall_limit_is_137_in_the_runners_result() {
    let bench = Bench::new();
    bench.registered("slow", true, &[("main.sh", "echo begun; sleep 60\n")]);
    fs::write(bench.path("config.json"), r#"{"timeoutMs": 400}"#).unwrap();
    let config = bench.path("config.json");
    let config = config.to_str().unwrap();
    let ran = bench.skill(&["run", "--result", "--config", config, "slow"]);
    let result = parse(&ran);
    assert_eq!((code(&ran), &result["exitCode"], &result["success"]), (137, &137.into(), &false.into()));
    assert_eq!(result["stdout"], "begun\n");
    assert!(result["durationMs"].as_u64().is_some_and(|ms| (300..20_000).contains(&ms)), "{result}");
    assert!(bench.kinds().contains(&"timeout_kill".to_owned()));
    assert_eq!(code(&bench.skill(&["run", "--config", config, "slow"])), 124);
}

/// Leaves as many MiB of the kernel's replies unread in netlink sockets as its argument says; each takes 768 bytes or more.
const REPLIES: &str = "import socket, struct, sys, time
want, queued, sockets = int(sys.argv[1]) << 20, 0, []
ask = struct.pack('IHHII', 32, 18, 1, 1, 0) + struct.pack('BxHiII', 0, 0, 1, 0, 0)
while queued < want:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    size = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    for _ in range(size // 768):
        s.send(ask)
    sockets.append(s)
    queued += size
time.sleep(1.5)
print('all is queued')
";

#[test]
fn unread_kernel_buffers_count_as_memory_of_the_skill() {
    if !needs("user namespaces") || !needs_python() {
        return;
    }
    let bench = Bench::new();
    let directory = bench.signed_with("replies", true, 64, &[("main.py", REPLIES)]);
    let registered = bench.skill(&["register", &directory]);
    assert!(registered.status.success(), "{}", said(&registered));
    let run = |mib: &str| parse(&bench.skill(&["run", "--json", "replies", "--", mib]));
    let (few, many) = (run("2"), run("104"));
    assert_eq!((&few["outcome"], &few["stdout"]), (&"exited".into(), &"all is queued\n".into()), "the control: {few}");
    assert_eq!((&many["outcome"], &many["stdout"]), (&"limit_exceeded".into(), &"".into()), "{many}");
    assert_eq!(many["limit"], "limits.memory_mb", "{many}");
}

#[test]
fn faults_of_a_skill_have_codes_and_are_recorded() {
    let bench = Bench::new();
    let change = |name: &str, from: &str, to: &str| {
        let path = bench.path(name).join("manifest.json");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
    };
    let files: &[(&str, &str)] = &[("main.sh", "echo ran\n")];
    let cases: Vec<Case<'_>> = vec![
        ("limits", "schema_validation_failed", Box::new(|| change("limits", "\"memoryMb\": 128", "\"memoryMb\": 513"))),
        (
            "twice",
            "schema_validation_failed",
            Box::new(|| change("twice", "\"version\": \"1\"", "\"version\": \"1\", \"version\": \"1\"")),
        ),
        ("leaves", "schema_validation_failed", Box::new(|| change("leaves", "\"main.sh\"", "\"../main.sh\""))),
        (
            "forged",
            "signature_verification_failed",
            Box::new(|| change("forged", "\"memoryMb\": 128", "\"memoryMb\": 129")),
        ),
        (
            "cut",
            "signature_verification_failed",
            Box::new(|| {
                let path = bench.path("cut/manifest.json");
                let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                let signature = manifest["signature"].as_str().unwrap();
                manifest["signature"] = signature[..signature.len() - 2].into();
                fs::write(&path, manifest.to_string()).unwrap();
            }),
        ),
        (
            "changed",
            "file_hash_mismatch",
            Box::new(|| fs::write(bench.path("changed/main.sh"), "echo evil\n").unwrap()),
        ),
        ("more", "file_hash_mismatch", Box::new(|| fs::write(bench.path("more/x.sh"), "").unwrap())),
        (
            "large",
            "file_hash_mismatch",
            Box::new(|| {
                fs::File::create(bench.path("large/main.sh")).unwrap().set_len(1 << 30).unwrap();
            }),
        ),
        (
            "bits",
            "static_scan_failed",
            Box::new(|| {
                fs::set_permissions(bench.path("bits/main.sh"), fs::Permissions::from_mode(0o6755)).unwrap();
            }),
        ),
    ];
    for (name, error, spoil) in &cases {
        let directory = bench.signed(name, false, files);
        assert_eq!(code(&bench.skill(&["verify", &directory])), 0, "{name}");
        spoil();
        let refused = bench.skill(&["register", "--json", &directory]);
        assert_eq!(
            (code(&refused), &parse(&refused)["errors"][0]["code"]),
            (1, &Value::from(*error)),
            "{}",
            said(&refused)
        );
        assert_eq!(code(&bench.skill(&["verify", &directory])), 1);
        let (kind, record) = bench.records().pop().unwrap();
        assert_eq!((kind.as_str(), &record["data"]["error"]), ("skill_registration_failed", &Value::from(*error)));
        assert_eq!(record["skill"], *name);
        assert_eq!(code(&bench.skill(&["run", name])), 125);
    }
    let mut list = cofferdam();
    list.args(["skill", "list", "--json"]).env("COFFERDAM_SKILLS", bench.path("skills"));
    assert_eq!(parse(&list.output().unwrap()), json!({}));
    // A pipe in place of a file, without a writer.
    let directory = bench.signed("pipe", false, files);
    fs::remove_file(bench.path("pipe/main.sh")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(bench.path("pipe/main.sh")).status().unwrap().success());
    let refused = bench.skill(&["register", "--json", &directory]);
    assert_eq!((code(&refused), &parse(&refused)["errors"][0]["code"]), (1, &"file_hash_mismatch".into()));
    // The key of another publisher.
    let directory = bench.signed("foreign", false, files);
    let other = bench.path("other.key");
    cofferdam().args(["skill", "keygen"]).arg(&other).output().unwrap();
    let refused = bench.skill(&["sign", "--key", other.to_str().unwrap(), &directory]);
    assert!(code(&refused) == 1 && said(&refused).contains("signature_verification_failed"), "{}", said(&refused));
    assert_eq!(code(&bench.skill(&["register", &directory])), 0);
    let again = bench.skill(&["register", "--json", &directory]);
    assert_eq!((code(&again), &parse(&again)["errors"][0]["code"]), (1, &"duplicate_skill".into()));
}

#[test]
fn content_modified_in_the_registry_does_not_run() {
    let bench = Bench::new();
    bench.registered("kept", false, &[("main.sh", "echo right\n")]);
    let files = parse(&bench.skill(&["show", "--json", "kept"]))["files"].as_str().unwrap().to_owned();
    assert_eq!(bench.skill(&["run", "kept"]).stdout, b"right\n");
    let main = Path::new(&files).join("main.sh");
    fs::set_permissions(&main, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&main, "echo wrong\n").unwrap();
    let refused = bench.skill(&["run", "kept"]);
    assert!(
        code(&refused) == 125 && refused.stdout.is_empty() && said(&refused).contains("damaged"),
        "{}",
        said(&refused)
    );
    assert_eq!(bench.kinds().pop().unwrap(), "sandbox_error");
    assert!(said(&refused).contains("cofferdam skill register DIR"), "{}", said(&refused));
    // As the hint says; and what is on record is that.
    let again = bench.skill(&["register", "--json", bench.path("kept").to_str().unwrap()]);
    assert_eq!((code(&again), &parse(&again)["repaired"]), (0, &true.into()), "{}", said(&again));
    let (kind, record) = bench.records().pop().unwrap();
    assert_eq!((kind.as_str(), &record["data"]["repaired"]), ("skill_registered", &true.into()), "{record}");
    assert_eq!(bench.skill(&["run", "kept"]).stdout, b"right\n");
    fs::set_permissions(&main, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&main, "echo wrong\n").unwrap();
    assert_eq!(code(&bench.skill(&["run", "kept"])), 125);
    fs::write(&main, "echo right\n").unwrap();
    assert_eq!(bench.skill(&["run", "kept"]).stdout, b"right\n");
}

#[test]
fn skill_reaches_only_its_api() {
    if !needs("captured network") || !needs_python() {
        return;
    }
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let length = client.read(&mut request).unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let bench = Bench::new();
    let script = "import os, urllib.request\n\
                  opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))\n\
                  print(opener.open(os.environ['ISCL_API_URL'] + '/v1/balance', timeout=10).read())\n";
    bench.registered("asks", false, &[("main.py", script)]);
    let config = bench.path("config.json");
    fs::write(&config, json!({ "env": { "ISCL_API_URL": format!("http://127.0.0.1:{port}") } }).to_string()).unwrap();
    let ran = bench.skill(&["run", "--config", config.to_str().unwrap(), "asks"]);
    assert_eq!(ran.stdout, b"b'ok'\n", "{}", said(&ran));
    assert!(server.join().unwrap().starts_with("GET /v1/balance "));
    // What is no API, and what is the host's, is refused before anything starts.
    for (text, word) in [
        (json!({ "env": { "KEYSTORE_PASSWORD": "hunter2" } }), "looks like a secret"),
        (json!({ "volumes": [{ "target": "/keys", "source": "/root" }] }), "mount of the host"),
        (json!({ "image": "example/skill:latest" }), "image"),
    ] {
        fs::write(&config, text.to_string()).unwrap();
        let refused = bench.skill(&["run", "--config", config.to_str().unwrap(), "asks"]);
        let message = said(&refused);
        assert!(code(&refused) == 125 && message.contains(word) && !message.contains("hunter2"), "{message}");
    }
}

#[test]
fn no_root_of_a_skills_has_the_hosts_secrets_in_it() {
    if !needs("user namespaces") {
        return;
    }
    let bench = Bench::new();
    bench.registered("reads", false, &[("main.sh", "cat /etc/shadow\n")]);
    let rootfs = common::open_directory();
    ["dev", "proc", "tmp", "skill", "usr/bin"]
        .iter()
        .for_each(|name| fs::create_dir_all(rootfs.path().join(name)).unwrap());
    std::os::unix::fs::symlink("/", rootfs.path().join("usr/all")).unwrap();
    let config = bench.path("config.json");
    let run = |image: &str| {
        fs::write(&config, json!({ "image": image }).to_string()).unwrap();
        let output = bench.skill(&["run", "--dry-run", "--config", config.to_str().unwrap(), "reads"]);
        (code(&output), said(&output))
    };
    let (code, said) = run(rootfs.path().to_str().unwrap());
    assert!(code == 0 && said.contains("\"directory\""), "one that was made for it: {said}");
    let all = rootfs.path().join("usr/all");
    let own = [bench.path(""), bench.path("skills"), bench.path("audit"), bench.path("skills").join("content")];
    let own = own.iter().map(|path| path.to_str().unwrap().trim_end_matches('/'));
    for image in ["/", "/root", "/home", "/etc", "/run", all.to_str().unwrap()].into_iter().chain(own) {
        let (code, said) = run(image);
        assert!(code == 125 && said.contains(&format!("the image {image} would show")), "{image}: {said}");
        assert!(said.contains("hint: image = "), "{said}");
    }
}

#[test]
fn ungranted_connection_ends_the_run_and_is_recorded() {
    if !needs("captured network") || !needs("seccomp notification") {
        return;
    }
    let bench = Bench::new();
    let script = "import socket\nprint('before', flush=True)\n\
                  a, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(1), flush=True)\n\
                  import uuid; uuid.uuid1()\n\
                  s = socket.socket(socket.AF_INET6)\n\
                  try: s.bind(('::1', 0))\nexcept OSError: pass\n\
                  print('probed', flush=True)\n\
                  try: socket.create_connection(('192.0.2.1', 443), 5)\nexcept OSError: pass\n\
                  import time; time.sleep(5)\nprint('after', flush=True)\n";
    bench.registered("tries", false, &[("main.py", script)]);
    let config = bench.path("config.toml");
    fs::write(&config, "env = { ISCL_API_URL = 'http://127.0.0.1:9' }\n").unwrap();
    for (options, evidence) in [(vec![], "argument_as_read"), (vec!["--config", config.to_str().unwrap()], "gateway")] {
        let outcome = parse(&bench.skill(&[&["run", "--json"], &options[..], &["tries"]].concat()));
        // What it does among its own is no attempt.
        assert_eq!(
            (&outcome["outcome"], &outcome["stdout"]),
            (&"violation".into(), &"before\nb'x'\nprobed\n".into()),
            "{outcome}"
        );
        let records = bench.records();
        let of_this_run = records.iter().filter(|(_, record)| record["run"] == outcome["run_id"]);
        let violations: Vec<_> = of_this_run.filter(|(kind, _)| kind == "security_violation").collect();
        assert_eq!(violations.len(), 1, "{records:?}");
        assert_eq!(violations[0].1["data"]["evidence"], evidence);
    }
}

#[test]
fn named_secret_of_the_caller_is_not_in_the_record() {
    let bench = Bench::new();
    bench.registered("told", false, &[("main.sh", "echo got $1\n")]);
    // The caller of these tests has CALLERS_SECRET=hunter2.
    let run = |options: &[&str]| {
        let output = bench.skill(&[&["run"], options, &["told", "--", "key=hunter2"]].concat());
        let records = bench.records();
        let started =
            records.iter().rev().find(|(kind, _)| kind == "sandbox_started").map(|(_, data)| data.to_string());
        (code(&output), said(&output), started.unwrap_or_default())
    };
    let (code, said, record) = run(&[]);
    assert!(code == 0 && said == "got key=hunter2\n" && record.contains("key=hunter2"), "{said} {record}");
    let (code, said, record) = run(&["--audit-secret", "CALLERS_SECRET"]);
    assert_eq!((code, said.as_str()), (0, "got key=hunter2\n"), "what the skill gets is untouched");
    assert!(!record.contains("hunter2") && record.contains("key=[secret CALLERS_SECRET]"), "{record}");
    // A name without a value keeps nothing out, so nothing starts.
    let before = bench.records().len();
    let (code, said, _) = run(&["--audit-secret", "NOT_SET_ANYWHERE"]);
    assert!(code == 125 && said.contains("NOT_SET_ANYWHERE") && said.contains("hint"), "{said}");
    assert_eq!(bench.records().len(), before);
    // The address of the API may hold a key of its own.
    let config = bench.path("config.json");
    fs::write(&config, json!({ "env": { "ISCL_API_URL": "http://127.0.0.1:9/key-hunter2" } }).to_string()).unwrap();
    let options = ["--config", config.to_str().unwrap(), "--audit-secret", "ISCL_API_URL"];
    if needs("captured network") {
        let output = bench.skill(&[&["run"], &options[..], &["told", "--", "http://127.0.0.1:9/key-hunter2"]].concat());
        let last = bench.records().into_iter().rev().find(|(kind, _)| kind == "sandbox_started").unwrap().1.to_string();
        assert!(output.status.success() && last.contains("[secret ISCL_API_URL]"), "{}{last}", self::said(&output));
    }
}

#[test]
fn unrecordable_action_neither_registers_nor_runs() {
    let bench = Bench::new();
    bench.registered("kept", false, &[("main.sh", "echo ran\n")]);
    let other = bench.signed("other", false, &[("main.sh", "echo ran\n")]);
    let file = bench.path("no-trail");
    fs::write(&file, "").unwrap();
    let with = |arguments: &[&str]| {
        let mut command = cofferdam();
        command.arg("skill").arg("--best-effort").arg("--registry").arg(bench.path("skills"));
        command.arg("--audit-trail").arg(&file).args(arguments).output().unwrap()
    };
    let ran = with(&["run", "kept"]);
    assert!(code(&ran) == 125 && ran.stdout.is_empty(), "{}", said(&ran));
    assert_eq!(code(&with(&["register", &other])), 125);
    assert!(parse(&bench.skill(&["list", "--json"]))["other"].is_null());
    // A revocation holds all the same, and says what is missing.
    let revoked = with(&["revoke", "kept"]);
    assert!(code(&revoked) == 125 && said(&revoked).contains("it is revoked"), "{}", said(&revoked));
    assert_eq!(code(&bench.skill(&["run", "kept"])), 125);
}

#[test]
fn mistakes_get_hints_that_work() {
    let bench = Bench::new();
    for (arguments, word) in [
        (&["run"][..], "skill run NAME"),
        (&["run", "../x"], "NAME or NAME@VERSION"),
        (&["run", "none"], "cofferdam skill list"),
        (&["sign", "."], "--key FILE"),
        (&["list", "--", "x"], "behind --"),
        (&["revoke", "--", "a", "x"], "behind --"),
        (&["run", "--", "-a"], "no skill -a is registered"),
        (&["run", "--", "-a", "--", "x"], "no skill -a is registered"),
        (&["run", "-a"], "unexpected argument"),
        (&["run", "--json", "--result", "x"], "--result"),
    ] {
        let output = bench.skill(arguments);
        assert!(code(&output) == 125 && said(&output).contains(word), "{arguments:?}: {}", said(&output));
    }
    let listed = bench.skill(&["list"]);
    assert!(code(&listed) == 125 && said(&listed).contains("there is no registry in"), "{}", said(&listed));
    assert!(!bench.path("skills").exists(), "asking makes nothing");
    let empty = bench.path("empty");
    fs::create_dir(&empty).unwrap();
    for action in [&["verify"][..], &["register"], &["sign", "--key", "publisher.key"]] {
        let key = bench.path("publisher.key");
        let with_key =
            |word: &&str| if *word == "publisher.key" { key.to_str().unwrap().to_owned() } else { (*word).into() };
        let words: Vec<String> = action.iter().map(with_key).chain([empty.to_str().unwrap().to_owned()]).collect();
        let output = bench.skill(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let message = said(&output);
        assert!(code(&output) == 1 && message.contains("schema_validation_failed: manifest.json in"), "{message}");
        assert!(
            message.contains("hint: ") && message.contains("cofferdam skill sign --files --key FILE DIR"),
            "{message}"
        );
    }
    fs::write(empty.join("manifest.json"), "{}").unwrap();
    let message = said(&bench.skill(&["verify", empty.to_str().unwrap()]));
    assert!(message.contains("schema_validation_failed") && !message.contains("skill sign --files"), "{message}");
    let default = cofferdam().args(["skill", "list"]).env("COFFERDAM_SKILLS", bench.path("skills")).output().unwrap();
    assert_eq!((code(&default), default.stdout.len()), (0, 0), "none is registered yet");
    let none = said(&default);
    assert!(
        none.contains("no skill is registered in") && none.contains("hint: cofferdam skill register DIR"),
        "{none}"
    );
    let none =
        cofferdam().args(["skill", "list", "--json"]).env("COFFERDAM_SKILLS", bench.path("skills")).output().unwrap();
    assert_eq!((parse(&none), none.stderr.len()), (json!({}), 0), "JSON says it itself");
    bench.registered("kept", false, &[("main.sh", "true\n")]);
    for (arguments, wanted, fault) in [
        (&["show", "--json", "nope"][..], 1, "not_registered"),
        (&["revoke", "--json", "nope"], 1, "not_registered"),
        (&["show", "--json", "../x"], 125, "arguments"),
    ] {
        let output = bench.skill(arguments);
        let message = parse(&output);
        assert_eq!((code(&output), output.stderr.len(), &message["ok"]), (wanted, 0, &false.into()), "{arguments:?}");
        assert_eq!(message["errors"][0]["code"], fault, "{arguments:?}: {message}");
    }
    assert_eq!(parse(&bench.skill(&["show", "--json", "kept"]))["name"], "kept");
}

#[test]
fn verify_finds_what_the_registry_would_refuse() {
    let bench = Bench::new();
    let directory = bench.signed("kept", false, &[("main.sh", "echo ran\n")]);
    let verified = |directory: &str, wanted: i32, fault: &str| {
        let verified = bench.skill(&["verify", "--json", directory]);
        let named = parse(&verified)["errors"][0]["code"].as_str().unwrap_or_default().to_owned();
        assert_eq!((code(&verified), named.as_str()), (wanted, fault), "{}", said(&verified));
    };
    verified(&directory, 0, "");
    assert_eq!(code(&bench.skill(&["register", &directory])), 0);
    verified(&directory, 0, "");
    // The same name, of another publisher, whose other skill has no fault.
    let other = Bench::new();
    verified(&other.signed("kept", false, &[("main.sh", "echo mine\n")]), 1, "duplicate_skill");
    verified(&other.signed("fresh", false, &[("main.sh", "echo mine\n")]), 0, "");
    assert_eq!(code(&bench.skill(&["revoke", "kept"])), 0);
    verified(&directory, 1, "revoked");
}

#[test]
fn unusable_root_image_is_refused_with_the_needed_option() {
    let bench = Bench::new();
    bench.registered("kept", false, &[("main.sh", "echo ran\n")]);
    let config = bench.path("operator.toml");
    let run = |image: &str| {
        fs::write(&config, format!("image = {image:?}\n")).unwrap();
        let ran = bench.skill(&["run", "--config", config.to_str().unwrap(), "kept"]);
        assert!(code(&ran) == 125 && ran.stdout.is_empty(), "{}", said(&ran));
        said(&ran)
    };
    for absent in ["not-there", "not-there.tar"] {
        let path = bench.path(absent).display().to_string();
        let message = run(&path);
        assert!(message.contains(&path) && message.contains("hint: --config FILE: image = "), "{message}");
    }
    let tarball = bench.path("root.tar");
    fs::write(&tarball, "").unwrap();
    // Docker or Podman is chosen where one answers, and has no such image; elsewhere their names are the hint.
    for image in ["registry.example/tools:1", tarball.to_str().unwrap()] {
        let text = run(image);
        assert!(text.contains(image) && text.contains("hint: "), "{text}");
        assert!(["docker", "podman", "oci"].iter().any(|backend| text.contains(backend)), "{text}");
    }
    let message = run("./root.tar");
    assert!(
        message.contains("$.image") && message.contains("the absolute path of a tarball or a directory"),
        "{message}"
    );
    assert!(!message.contains("cofferdam skill run NAME"), "{message}");
    // A directory with nothing in it: what it lacks is named, and no option that `skill run` has not.
    let bare = common::open_directory();
    for name in ["dev", "proc", "sys", "tmp", "bin"] {
        fs::create_dir(bare.path().join(name)).unwrap();
    }
    let message = run(bare.path().to_str().unwrap());
    assert!(message.contains("/skill") && message.contains("hint: --config FILE: `image` with /skill"), "{message}");
    assert!(!message.contains("-w /") && !message.contains("--root"), "{message}");
    assert_eq!(code(&bench.skill(&["run", "kept"])), 0, "the twin: without an image");
}
