//! What is read and written: not what is blocked, and nothing outside of the workspace.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use cofferdam_guard::{GuardConfig, GuardError, Mode, Refusal, Sandbox as _};

use crate::fixture::{Fixture, allowing, builder, has, ok, run};

#[test]
fn blocked_paths_hold_for_the_whole_tree() {
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Fixture::new();
    let key = place.write("outside/key", "outside-secret\n");
    place.write("outside/open", "not-secret\n");
    std::fs::create_dir(place.at("work/private")).unwrap();
    place.write("work/private/inner", "inner-secret\n");
    place.write("work/plain", "plain\n");
    symlink(&key, place.at("work/link")).unwrap();
    std::fs::hard_link(&key, place.at("work/hard")).unwrap();
    let mut config = allowing(&["cat", "/usr/bin/python3"]);
    if !place.is_visible() {
        config.writable.push(place.at("outside"));
    }
    config.helpers.insert("python3".into(), vec!["cat".into()]);
    config.blocked_paths = vec![key.clone(), place.at("work/private"), place.at("work/later")];
    let guard = place.guard(config);
    assert_eq!(ok(&guard, "cat", &[&place.at("outside/open")]).stdout, "not-secret\n");
    assert_eq!(ok(&guard, "cat", &["plain"]).stdout, "plain\n");
    let dotted = format!("{}/../outside/key", place.at("work"));
    let by_root = format!("/proc/self/root{key}");
    for path in [&key, "link", "hard", &dotted, &by_root, "private/inner", "./private/../private/inner"] {
        let result = run(&guard, "cat", &[path]).unwrap();
        assert!(result.exit_code != 0 && result.stdout.is_empty(), "{path}: {result:?}");
        assert!(!guard.path_allowed(path), "{path}");
    }
    assert!(guard.path_allowed("plain") && guard.path_allowed(&place.at("outside/open")));
    // Neither a child's read nor a name that does not exist yet, nor moving what is around it away.
    let attack = r#"
import os, subprocess, sys
key, later = sys.argv[1], sys.argv[2]
def tried(name, call):
    try: print(name, 'did', call())
    except OSError as e: print(name, 'refused', e.errno)
tried('child', lambda: subprocess.check_output(['cat', key], stderr=subprocess.STDOUT) if 0 else subprocess.run(['cat', key], capture_output=True).stdout)
tried('make', lambda: open(later, 'w').write('x'))
tried('mkdir', lambda: os.mkdir(later))
tried('rename', lambda: os.rename('plain', later))
tried('linked', lambda: os.link('plain', later))
tried('symlinked', lambda: os.symlink('plain', later))
tried('away', lambda: os.rename('private', 'elsewhere'))
tried('remove', lambda: os.unlink('hard'))
tried('link', lambda: os.link('hard', 'harder'))
tried('other', lambda: open('other', 'w').write('x'))
tried('moved', lambda: os.rename('other', 'another'))
"#;
    place.write("work/attack.py", attack);
    let tried = ok(&guard, "/usr/bin/python3", &["attack.py", &key, &place.at("work/later")]).stdout;
    assert!(tried.contains("child did b''"), "{tried}");
    for name in ["make", "mkdir", "rename", "linked", "symlinked", "away"] {
        assert!(tried.contains(&format!("{name} refused")), "{name}: {tried}");
    }
    assert!(tried.contains("other did 1") && tried.contains("moved did None"), "{tried}");
    assert!(!Path::new(&place.at("work/later")).exists());
    for secret in ["outside-secret", "inner-secret"] {
        assert!(!tried.contains(secret), "{tried}");
    }
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "outside-secret\n");
}

#[test]
fn a_blocked_file_with_a_name_that_is_not_known_refuses() {
    let place = Fixture::new();
    let key = place.write("outside/key", "secret\n");
    std::fs::create_dir(place.at("outside/deep")).unwrap();
    let mut config = allowing(&["cat"]);
    config.blocked_paths = vec![key.clone()];
    let guard = place.guard(config.clone());
    place.write("work/plain", "plain\n");
    ok(&guard, "cat", &["plain"]);
    std::fs::hard_link(&key, place.at("outside/deep/other")).unwrap();
    let refused = run(&guard, "cat", &["plain"]).unwrap_err();
    assert!(matches!(&refused, Refusal::Blocked { reason, .. } if reason.contains("2 names")), "{refused}");
    assert!(builder(config.clone(), &place.work()).build().is_err());
    config.blocked_paths.push(place.at("outside/deep/other"));
    ok(&place.guard(config), "cat", &["plain"]);
}

#[test]
fn writes_stay_in_the_workspace() {
    let place = Fixture::new();
    let guard = place.guard(allowing(&["cp", "touch"]));
    place.write("work/a", "a");
    ok(&guard, "cp", &["a", "b"]);
    assert!(place.work().join("b").exists());
    let outside = place.at("outside/b");
    assert_ne!(run(&guard, "cp", &["a", &outside]).unwrap().exit_code, 0);
    assert!(!Path::new(&outside).exists());
    let mut config = allowing(&["cp"]);
    config.writable.push(place.at("outside"));
    ok(&place.guard(config), "cp", &["a", &outside]);
    assert!(Path::new(&outside).exists());
}

#[test]
fn what_is_writable_cannot_be_led_elsewhere_by_what_writes_it() {
    let place = Fixture::new();
    std::fs::create_dir_all(place.at("outside/a/work")).unwrap();
    let config = GuardConfig { writable: vec![place.at("outside")], ..allowing(&["cp"]) };
    let inner = PathBuf::from(place.at("outside/a/work"));
    let error = builder(config.clone(), &inner).build().unwrap_err();
    assert!(matches!(&error, GuardError::Directory { reason, .. } if reason.contains("lies in it")), "{error}");
    // Directories inside of others are no mounts of their own; everything in them is writable all the same.
    let writable = vec![place.at("outside"), place.at("outside/a"), place.at("work"), place.at("outside")];
    let guard = place.guard(GuardConfig { writable, ..config });
    place.write("work/a", "a");
    ok(&guard, "cp", &["a", &place.at("outside/a/work/b")]);
    assert!(inner.join("b").exists());
}

#[test]
fn reads_are_held_to_the_workspace_where_that_was_asked_for() {
    let place = Fixture::new();
    place.write("outside/open", "outside\n");
    place.write("work/note", "inside\n");
    let guard = place.guard(GuardConfig { enforce_reads: true, ..allowing(&["cat"]) });
    assert_eq!(ok(&guard, "cat", &["note"]).stdout, "inside\n");
    let free = place.guard(allowing(&["cat"]));
    let mut paths = vec!["/etc/debian_version".to_owned(), "/var/lib/dpkg/status".into()];
    paths.retain(|path| Path::new(path).exists());
    if place.is_visible() {
        paths.push(place.at("outside/open"));
    }
    assert!(!paths.is_empty(), "nothing to read");
    for path in paths {
        let result = run(&guard, "cat", &[&path]).unwrap();
        assert!(result.exit_code != 0 && result.stdout.is_empty(), "{path}: {result:?}");
        assert!(!ok(&free, "cat", &[&path]).stdout.is_empty(), "{path}");
    }
    let both = GuardConfig { enforce_reads: true, mode: Mode::Rx, ..allowing(&["cat"]) };
    assert!(matches!(builder(both, &place.work()).build(), Err(GuardError::Reads)));
}

#[test]
fn many_blocked_names_beside_a_command_leave_it_alone() {
    let place = Fixture::new();
    let mut config = allowing(&["cat"]);
    config.blocked_paths = (0..200).map(|i| format!("/usr/bin/no-such-program-{i}")).collect();
    let alone = |path: &&str| std::fs::metadata(path).is_ok_and(|m| m.nlink() == 1);
    let mut others =
        ["/usr/bin/tac", "/usr/bin/nl", "/usr/bin/paste", "/usr/bin/fold", "/usr/bin/sum"].into_iter().filter(alone);
    let (blocked, open) = (others.next().expect("a program"), others.next().expect("another one"));
    config.blocked_paths.push(blocked.into());
    config.helpers.insert("cat".into(), vec!["echo".into()]);
    place.write("work/note", "hello\n");
    let guard = place.guard(config);
    assert_eq!(ok(&guard, "cat", &["note"]).stdout, "hello\n");
    let read = run(&guard, "cat", &[blocked]).unwrap();
    assert!(read.exit_code != 0 && read.stdout.is_empty(), "{}", read.stderr);
    assert!(!ok(&guard, "cat", &[open]).stdout.is_empty());
}

#[test]
fn what_is_allowed_and_blocked_is_blocked() {
    let place = Fixture::new();
    let real = |name: &str| std::fs::canonicalize(format!("/usr/bin/{name}")).unwrap().to_str().unwrap().to_owned();
    let mut config = allowing(&["tac", "dash"]);
    config.helpers.insert("dash".into(), vec!["tac".into(), "nl".into()]);
    config.blocked_paths = vec![real("tac")];
    let guard = place.guard(config);
    assert!(!guard.is_allowed("tac") && guard.is_allowed("dash"));
    assert!(matches!(run(&guard, "tac", &[]), Err(Refusal::Blocked { .. })));
    let script = "echo x >note; tac note || echo refused; nl note";
    let said = ok(&guard, "dash", &["-c", script]).stdout;
    assert!(said.starts_with("refused\n") && said.contains('1'), "{said}");
}

#[test]
fn a_retargeted_blocked_link_blocks_all_names_of_its_target() {
    let place = Fixture::new();
    for name in ["first", "second", "open"] {
        place.write(&format!("work/{name}"), name);
        std::fs::hard_link(place.at(&format!("work/{name}")), place.at(&format!("work/copy-of-{name}"))).unwrap();
    }
    symlink("first", place.at("work/link")).unwrap();
    let guard = place.guard(GuardConfig { blocked_paths: vec![place.at("work/link")], ..allowing(&["cat"]) });
    let readable = |name: &str| run(&guard, "cat", &[name]).unwrap().exit_code == 0;
    assert!(!readable("link") && !readable("first") && !readable("copy-of-first") && readable("copy-of-second"));
    std::fs::remove_file(place.at("work/link")).unwrap();
    symlink("second", place.at("work/link")).unwrap();
    for name in ["link", "first", "second", "copy-of-second"] {
        assert!(!readable(name), "{name}");
    }
    assert!(readable("open") && readable("copy-of-open"));
}

#[test]
fn path_answers_match_what_the_kernel_enforces() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    if !has("/usr/bin/python3") {
        return;
    }
    let place = Fixture::new();
    let work = place.at("work");
    for dir in ["secret/deep", "plain/in"] {
        std::fs::create_dir_all(place.at(&format!("work/{dir}"))).unwrap();
    }
    for (name, text) in [("secret/deep/f", "closed"), ("key", "closed"), ("plain/in/f", "open"), ("plain/f", "open")] {
        place.write(&format!("work/{name}"), text);
    }
    let links =
        [("../secret", "plain/up"), ("secret/deep", "down"), ("plain", "same"), ("key", "k"), ("later", "next")];
    for (says, name) in links {
        symlink(says, place.at(&format!("work/{name}"))).unwrap();
    }
    symlink(&work, place.at("work/plain/back")).unwrap();
    std::fs::hard_link(place.at("work/key"), place.at("work/plain/hard")).unwrap();
    let blocked_paths = ["secret", "key", "later"].map(|name| place.at(&format!("work/{name}"))).to_vec();
    let guard = place.guard(GuardConfig { blocked_paths, ..allowing(&["/usr/bin/python3"]) });

    let middle = [
        "plain",
        "plain/in",
        "up",
        "down",
        "same",
        "plain/back",
        "same/back",
        "plain/..",
        "same/in",
        ".",
        "",
        "secret",
        "deep",
        &work,
    ];
    let middle = proptest::collection::vec(proptest::sample::select(middle.map(str::to_owned).to_vec()), 0..4);
    let last =
        proptest::sample::select(vec!["f", "key", "k", "plain/hard", "plain/f", "plain/in/f", "later", "next", "k/"]);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut paths = std::collections::BTreeSet::new();
    for _ in 0..8000 {
        let (middle, last) = (middle.clone(), last.clone()).new_tree(&mut runner).unwrap().current();
        paths.insert(middle.into_iter().chain([last.to_owned()]).collect::<Vec<_>>().join("/"));
    }
    place.write("work/paths", &paths.iter().cloned().collect::<Vec<_>>().join("\n"));
    let code = "for path in open('paths').read().split('\\n'):\n\
                \x20try: print(open(path).read())\n\
                \x20except PermissionError: print('closed')\n\
                \x20except OSError: print('none')\n";
    let said = ok(&guard, "/usr/bin/python3", &["-c", code]).stdout;
    assert_eq!(said.lines().count(), paths.len());
    let (mut open, mut closed) = (0, 0);
    for (path, said) in paths.iter().zip(said.lines()) {
        assert!(said != "open" || guard.path_allowed(path), "{path} was read");
        assert!(said != "closed" || !guard.path_allowed(path), "{path} is held");
        open += usize::from(said == "open");
        closed += usize::from(said == "closed");
    }
    assert!(open > 50 && closed > 200, "{open} open, {closed} closed of {}", paths.len());
}
