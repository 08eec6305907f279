//! `protected_command`: the kernel refuses what is always refused, and otherwise the command has the caller's rights.
//!
//! A faulty implementation would grant the data directory and then add a narrower rule for its contents. Such a rule
//! removes no right, and neither does a second layer that grants everything: the first test shows both with the very
//! calls, which proves that these tests would detect it.

#![cfg(target_os = "linux")]

mod probe;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use cofferdam_command::{is_read_blocked, is_write_blocked, protected_command};
use cofferdam_confine::command::Restrictions;
use cofferdam_confine::landlock::{self, Ruleset, access};
use probe::{Scratch, run};

fn data() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let data = scratch.directory("data-dir");
    for name in ["data", "workspace", "skills"] {
        std::fs::create_dir(data.join(name)).unwrap();
    }
    for name in ["data/memory.db", "config.toml", "workspace/file", "skills/file"] {
        std::fs::write(data.join(name), "as it was").unwrap();
    }
    (scratch, data)
}

#[tokio::test]
async fn neither_narrower_rules_nor_second_layers_protect() {
    let (_scratch, data) = data();
    let handled = access::WRITE & landlock::handled_fs(landlock::abi());
    let open = |path: &Path| std::fs::File::open(path).unwrap();
    let layer = |rules: &[(&Path, u64)]| {
        let ruleset = Ruleset::new(handled | access::READ, 0, 0).unwrap();
        for (path, rights) in rules {
            let possible = if path.is_dir() { u64::MAX } else { access::OF_FILES };
            ruleset.allow(open(path).as_fd(), rights & possible & (handled | access::READ)).unwrap();
        }
        Restrictions::new(Some(ruleset), std::sync::Arc::new([]), None).unwrap()
    };
    let (root, secret) = (Path::new("/"), data.join("config.toml"));
    let faulty = [(root, access::READ), (data.as_path(), access::WRITE), (secret.as_path(), access::READ)];
    for layers in [vec![layer(&faulty)], vec![layer(&faulty[..2]), layer(&faulty)]] {
        let mut command = std::process::Command::new(probe::own());
        layers.iter().for_each(|walls| walls.attach(&mut command, false).unwrap());
        let answer = run(command.into(), &format!("append {}", secret.display())).await;
        assert_eq!(
            answer, "done",
            "if this is refused, the faulty construction holds, and the others here show nothing"
        );
    }
    let answer = run(protected_command(&probe::own(), &data), &format!("append {}", secret.display())).await;
    assert_eq!(answer, "EACCES");
}

#[tokio::test]
async fn the_data_directorys_own_records_are_neither_read_nor_written() {
    let (_scratch, data) = data();
    let at = |name: &str| data.join(name).display().to_string();
    let own = || protected_command(&probe::own(), &data);
    for name in ["data/memory.db", "config.toml"] {
        for way in ["read", "append", "overwrite", "unlink", "truncate-reading", "chmod", "setxattr"] {
            let answer = run(own(), &format!("{way} {}", at(name))).await;
            assert!(["EACCES", "EPERM"].contains(&answer.as_str()), "{way} {name}: {answer}");
        }
    }
    for words in [
        format!("write {}", at("data/new")),
        format!("list {}", at("data")),
        format!("rename {} {}", at("data"), at("workspace/data")),
        format!("rename {} {}", at("config.toml"), at("workspace/config.toml")),
        format!("link {} {}", at("config.toml"), at("workspace/config.toml")),
        format!("rename {} {}", at("workspace/file"), at("config.toml")),
        format!("rename {} {}", data.display(), data.with_file_name("moved").display()),
    ] {
        let answer = run(own(), &words).await;
        assert!(["EACCES", "EPERM", "EXDEV"].contains(&answer.as_str()), "{words}: {answer}");
    }
    assert_eq!(std::fs::read(data.join("config.toml")).unwrap(), b"as it was");
    assert_eq!(std::fs::read(data.join("data/memory.db")).unwrap(), b"as it was");
    // The same attempts beside them.
    let attributes = probe::attributes().await;
    for way in ["read", "append", "truncate-writing", "chmod", "setxattr", "unlink"] {
        if way == "setxattr" && !attributes {
            continue;
        }
        assert_eq!(run(own(), &format!("{way} {}", at("workspace/file"))).await, "done", "{way}");
    }
    for words in [format!("write {}", at("workspace/new")), format!("list {}", at("skills"))] {
        assert_eq!(run(own(), &words).await, "done", "{words}");
    }
    // And on them, unconfined.
    for words in [format!("read {}", at("config.toml")), format!("append {}", at("data/memory.db"))] {
        assert_eq!(run(tokio::process::Command::new(probe::own()), &words).await, "done", "{words}");
    }
}

#[tokio::test]
async fn missing_records_cannot_be_created() {
    let scratch = Scratch::new();
    let data = scratch.directory("data-dir");
    std::fs::create_dir(data.join("workspace")).unwrap();
    let own = || protected_command(&probe::own(), &data);
    for words in [format!("write {}/config.toml", data.display()), format!("mkdir {}/data", data.display())] {
        assert_eq!(run(own(), &words).await, "EACCES", "{words}");
    }
    assert_eq!(run(own(), &format!("write {}/workspace/config.toml", data.display())).await, "done");
}

#[tokio::test]
async fn the_systems_directories_are_not_written_and_others_are() {
    let (scratch, data) = data();
    let own = || protected_command(&probe::own(), &data);
    let name = format!("cofferdam-test-{}", std::process::id());
    for dir in ["/etc", "/usr/bin", "/usr/lib", "/boot", "/dev", "/sbin"] {
        if !Path::new(dir).is_dir() {
            continue;
        }
        let answer = run(own(), &format!("write {dir}/{name}")).await;
        assert!(["EACCES", "EPERM"].contains(&answer.as_str()), "{dir}: {answer}");
        assert!(is_write_blocked(&Path::new(dir).join(&name), &data));
    }
    assert_eq!(run(own(), "append /proc/self/comm").await, "EACCES");
    assert_eq!(run(tokio::process::Command::new(probe::own()), "append /proc/self/comm").await, "done");
    if rustix::process::geteuid().is_root() {
        // The confinement refuses: unconfined, root writes there.
        let file = format!("/etc/{name}");
        assert_eq!(run(tokio::process::Command::new(probe::own()), &format!("write {file}")).await, "done");
        std::fs::remove_file(file).unwrap();
    }
    let other = scratch.directory("other");
    for words in [
        format!("write {}/{name}", other.display()),
        format!("write /tmp/{name}"),
        "append /dev/null".to_owned(),
        "read /etc/passwd".to_owned(),
    ] {
        assert_eq!(run(own(), &words).await, "done", "{words}");
    }
    std::fs::remove_file(format!("/tmp/{name}")).unwrap();
}

#[tokio::test]
async fn the_kernel_refuses_what_the_functions_call_blocked() {
    let (_scratch, data) = data();
    for name in ["data/memory.db", "config.toml", "workspace/file", "skills/file"] {
        let path = data.join(name);
        let own = || protected_command(&probe::own(), &data);
        let read = run(own(), &format!("read {}", path.display())).await == "done";
        let write = run(own(), &format!("append {}", path.display())).await == "done";
        assert_eq!((read, write), (!is_read_blocked(&path, &data, None), !is_write_blocked(&path, &data)), "{name}");
    }
}
