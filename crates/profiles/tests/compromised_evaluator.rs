//! The jail of the evaluator, tested from inside: a program instead of the evaluator tries what an evaluator compromised by a
//! profile would try, and reports what succeeded.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_engine::Engine;
use cofferdam_profiles::cache::EvaluationCache;
use cofferdam_profiles::identity::sha256;
use cofferdam_profiles::protocol::{Encoding, FileStamp, OutputFormat, RequestedOutput};
use cofferdam_profiles::{CompileRequest, Compiler};

/// Reports `{"refused": "…"}` with a letter for each attempt that succeeded.
const PROGRAM: &str = r#"
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int readable(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, &byte, 1) == 1;
}

static int writable(const char *path) {
    return open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0;
}

static int connects(void) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
}

static int entries(const char *path) {
    int count = 0;
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) count += entry->d_name[0] != '.';
    return count;
}

int main(void) {
    char got[16] = "", request[4096] = "";
    size_t length = fread(request, 1, sizeof request - 1, stdin);
    if (length > 0 && strstr(request, "profile.ncl")) strcat(got, "R");
    if (readable(PLACE "/profile.ncl")) strcat(got, "p");
    if (readable(SECRET)) strcat(got, "s");
    if (readable("/etc/passwd")) strcat(got, "e");
    if (entries("/usr") > 0) strcat(got, "u");
    if (writable(PLACE "/written")) strcat(got, "w");
    if (connects()) strcat(got, "n");
    if (fork() >= 0) strcat(got, "f");
    if (getenv("PATH") || getenv("HOME") || getenv("SECRET")) strcat(got, "v");
    printf("{\"refused\": \"got %s\"}\n", got);
    return 0;
}
"#;

/// Builds the program, or returns why not.
fn build(directory: &Path, definitions: &[String]) -> Option<PathBuf> {
    let (source, program) = (directory.join("evaluator.c"), directory.join("evaluator"));
    fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc").arg("-static").args(definitions).arg("-o").arg(&program).arg(&source).output();
    match built {
        Ok(output) if output.status.success() => Some(program),
        other => {
            let reason = format!("cc makes no static program: {other:?}");
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1"), "{reason}");
            eprintln!("skipped: {reason}");
            None
        }
    }
}

#[test]
fn compromised_evaluator_gets_no_access() {
    let scene = tempfile::tempdir().unwrap();
    fs::set_permissions(scene.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let profiles = scene.path().join("profiles");
    fs::create_dir(&profiles).unwrap();
    fs::write(profiles.join("profile.ncl"), "{}").unwrap();
    fs::write(scene.path().join("secret"), "secret").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let secret = format!("-DSECRET=\"{}\"", scene.path().join("secret").display());
    let definitions = |place: &str| vec![secret.clone(), format!("-DPORT={port}"), format!("-DPLACE=\"{place}\"")];
    let request = CompileRequest {
        file: profiles.join("profile.ncl"),
        overrides: Vec::new(),
        outputs: vec![RequestedOutput { format: OutputFormat::Policy, encoding: Encoding::Json }],
        imports: Vec::new(),
    };
    let engine = Engine::probe();

    // In the jail, the profile's directory is the first of the mounted ones.
    let Some(program) = build(scene.path(), &definitions("/run/cofferdam/0")) else { return };
    let inside = Compiler::new(&engine, &program).compile(&request).unwrap_err();
    assert_eq!(inside.message, "the evaluator refuses: got Rp");

    // The positive control: without the jail all attempts succeed.
    let program = build(scene.path(), &definitions(&profiles.display().to_string())).unwrap();
    let outside = Compiler::new(&engine, &program).trusted(true).compile(&request).unwrap_err();
    assert_eq!(outside.message, "the evaluator refuses: got Rpseuwnf");
}

#[test]
fn silent_evaluator_is_an_error_and_does_not_hang() {
    let scene = tempfile::tempdir().unwrap();
    fs::write(scene.path().join("profile.ncl"), "{}").unwrap();
    let request = CompileRequest {
        file: scene.path().join("profile.ncl"),
        overrides: Vec::new(),
        outputs: Vec::new(),
        imports: Vec::new(),
    };
    let engine = Engine::probe();
    let silent = Compiler::new(&engine, "/bin/true").trusted(true).compile(&request).unwrap_err();
    assert!(silent.message.contains("the evaluator failed") && silent.message.contains("profile.ncl"), "{silent}");
    let missing = Compiler::new(&engine, scene.path().join("none")).compile(&request).unwrap_err();
    assert!(missing.message.contains("cannot find the evaluator") && missing.hint.is_some(), "{missing}");
}

#[test]
fn result_that_depends_on_no_file_is_not_cached() {
    let scene = tempfile::tempdir().unwrap();
    let profile = fs::canonicalize(scene.path()).unwrap().join("profile.ncl");
    fs::write(&profile, "{}").unwrap();
    let (program, engine) = (scene.path().join("evaluator"), Engine::probe());
    let cache = EvaluationCache::with_keys(scene.path().join("cache"), scene.path().join("keys"));
    let wanted = RequestedOutput { format: OutputFormat::Policy, encoding: Encoding::Json };
    let request =
        CompileRequest { file: profile.clone(), overrides: Vec::new(), outputs: vec![wanted], imports: Vec::new() };
    let answers = |outputs: &str, files: &str| {
        let answer = format!(
            r#"{{"done":{{"job":0,"result":{{"ok":{{"outputs":[{outputs}],"warnings":[],"files":[{files}],"absent":[]}}}}}}}}"#
        );
        fs::write(&program, format!("#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let compiler = Compiler::new(&engine, &program).trusted(true).cache(Some(cache.clone()));
        compiler.compile(&request).unwrap();
        compiler.compile(&request).unwrap().cached
    };
    assert!(!answers(r#"{"Ok":"forged"}"#, ""), "it would hold for any other profile in this place");
    let identity = serde_json::to_string(&FileStamp::of(&fs::metadata(&profile).unwrap())).unwrap();
    let seen = format!(r#"{{"path":"{}","identity":{identity},"sha256":"{}"}}"#, profile.display(), sha256(b"{}"));
    assert!(answers(r#"{"Ok":"honest"}"#, &seen), "one that the profile speaks for is");
    fs::write(&profile, "{ a = 1 }").unwrap();
    let wrong = Compiler::new(&engine, &program)
        .trusted(true)
        .compile(&CompileRequest { outputs: Vec::new(), ..request.clone() });
    assert!(wrong.unwrap_err().message.contains("was not asked"));
}
