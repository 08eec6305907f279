//! Registration and storage of skills, with directories that change meanwhile, special files, concurrent writers, killed writers,
//! and a store that was tampered with.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cofferdam_engine::audit::{hex, sha256};
use cofferdam_profiles::private;
use serde_json::json;

use super::error::{FaultCode, SkillError};
use super::intake::{Taken, listing, take};
use super::manifest::{Manifest, Stage};
use super::registry::{Registered, Registry, SkillSpec, VersionState};
use super::signature::{PublisherKey, VersionHash};
use super::store;

fn key(number: u8) -> PublisherKey {
    PublisherKey::from_bytes(&[number; 32]).unwrap()
}

/// A directory with these files and a manifest over them.
fn skill(directory: &Path, name: &str, files: &[(&str, &[u8])], key: &PublisherKey) {
    for (path, bytes) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let listed: Vec<_> =
        files.iter().map(|(path, bytes)| json!({ "path": path, "sha256": hex(&sha256(bytes)) })).collect();
    let draft = json!({
        "version": "1",
        "name": name,
        "publisher": { "name": "Example", "address": key.address(), "contact": "dev@example.com" },
        "permissions": { "txActions": [], "chains": [], "networkAccess": false, "filesystemAccess": false },
        "sandbox": { "memoryMb": 64, "timeoutMs": 5000, "allowSpawn": false },
        "files": listed,
    });
    let mut manifest = Manifest::decode(draft.to_string().as_bytes(), Stage::Draft).unwrap();
    key.sign(&mut manifest).unwrap();
    fs::write(directory.join("manifest.json"), manifest.encode()).unwrap();
}

/// A skill in a directory of its own, and an empty registry.
fn example() -> (tempfile::TempDir, PathBuf, Registry) {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    skill(
        &source,
        "weather",
        &[("main.py", b"print(1)\n"), ("lib/a.py", b"a = 1\n"), ("run", b"#!/bin/sh\n")],
        &key(7),
    );
    let registry = Registry::at(directory.path().join("skills"));
    (directory, source, registry)
}

fn register(registry: &Registry, source: &Path) -> Result<Registered, SkillError> {
    registry.register(source, |_| Ok(()))
}

fn spec(text: &str) -> SkillSpec {
    text.parse().unwrap()
}

fn codes(result: Result<impl std::fmt::Debug, SkillError>) -> Vec<&'static str> {
    result.unwrap_err().codes().into_iter().map(FaultCode::name).collect()
}

#[test]
fn what_is_registered_is_kept_as_it_was_and_read_only() {
    let (_directory, source, registry) = example();
    let registered = register(&registry, &source).unwrap();
    fs::remove_dir_all(&source).unwrap();
    let (versioned, kept) = registry.runnable(&spec("weather")).unwrap();
    assert_eq!((&versioned.version, versioned.state), (&registered.version, VersionState::Registered));
    assert!(kept.by_stamps);
    let mode = |path: &str| fs::metadata(kept.files.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode(""), mode("lib"), mode("lib/a.py"), mode("run")), (0o755, 0o755, 0o644, 0o755));
    assert_eq!(fs::read(kept.files.join("lib/a.py")).unwrap(), b"a = 1\n");
    assert!(!kept.files.join("manifest.json").exists());
    assert_eq!(fs::metadata(registry.directory()).unwrap().mode() & 0o777, 0o700);
    // By the beginning of its version as well, and by no other.
    let begin = &registered.version[..8];
    assert!(registry.runnable(&spec(&format!("weather@{begin}"))).is_ok());
    assert_eq!(codes(registry.runnable(&spec("weather@00000000"))), ["not_registered"]);
    assert_eq!(codes(registry.runnable(&spec("other"))), ["not_registered"]);
}

#[test]
fn the_name_of_a_skill_is_never_a_path() {
    for text in ["", "../x", "a/b", "A", "a@", "a@xyz", "a@1234567", "a@ABCDEF012", "a b"] {
        assert!(text.parse::<SkillSpec>().is_err(), "{text}");
    }
}

#[test]
fn a_registered_name_that_looks_like_an_option_can_be_run_and_revoked_but_not_registered() {
    let (_directory, source, registry) = example();
    let weather = register(&registry, &source).unwrap();
    let mut manifest = take(&source).unwrap().manifest;
    manifest.name = "-a".into();
    key(7).sign(&mut manifest).unwrap();
    let text = manifest.encode();
    fs::write(source.join("manifest.json"), &text).unwrap();
    assert_eq!(codes(register(&registry, &source)), ["schema_validation_failed"]);
    // As an earlier release registered it.
    let files =
        manifest.files.iter().map(|file| (file.path.clone(), fs::read(source.join(&file.path)).unwrap())).collect();
    let version = VersionHash::of(&manifest);
    let taken = Taken { manifest, text: text.into(), version, files };
    let directory = private::open(registry.directory()).unwrap();
    store::keep(&directory, registry.directory(), &taken).unwrap();
    let file = registry.directory().join("registry.json");
    let mut contents: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut skill = contents["skills"]["weather"].clone();
    skill["versions"][0]["version"] = json!(taken.version.hex());
    contents["skills"]["-a"] = skill;
    fs::write(&file, contents.to_string()).unwrap();
    assert_eq!(registry.runnable(&spec("-a")).unwrap().1.manifest.name, "-a");
    assert_eq!(registry.revoke(&spec("-a")).unwrap().len(), 1);
    assert_eq!(codes(registry.runnable(&spec("-a"))), ["revoked"]);
    assert_eq!(registry.runnable(&spec("weather")).unwrap().0.version, weather.version);
}

#[test]
fn versions_are_kept_and_a_revoked_one_never_runs_again() {
    let (_directory, source, registry) = example();
    let first = register(&registry, &source).unwrap();
    assert_eq!(codes(register(&registry, &source)), ["duplicate_skill"]);
    skill(
        &source,
        "weather",
        &[("main.py", b"print(2)\n"), ("lib/a.py", b"a = 1\n"), ("run", b"#!/bin/sh\n")],
        &key(7),
    );
    let second = register(&registry, &source).unwrap();
    assert_eq!(registry.find("weather").unwrap().versions.len(), 2);
    assert_eq!(registry.runnable(&spec("weather")).unwrap().0.version, second.version);
    let one = spec(&format!("weather@{}", second.version));
    assert_eq!(registry.revoke(&one).unwrap(), [second]);
    assert_eq!(codes(registry.runnable(&one)), ["revoked"]);
    assert_eq!(codes(register(&registry, &source)), ["revoked"]);
    assert_eq!(registry.runnable(&spec("weather")).unwrap().0.version, first.version);
    assert_eq!(registry.revoke(&spec("weather")).unwrap().len(), 1);
    assert_eq!(codes(registry.runnable(&spec("weather"))), ["revoked"]);
    assert_eq!(registry.revoke(&spec("weather")).unwrap(), []);
    assert_eq!(codes(registry.revoke(&spec("nobody"))), ["not_registered"]);
}

#[test]
fn a_name_belongs_to_its_first_publisher() {
    let (directory, source, registry) = example();
    register(&registry, &source).unwrap();
    let other = directory.path().join("other");
    skill(&other, "weather", &[("main.py", b"evil\n")], &key(8));
    assert_eq!(codes(register(&registry, &other)), ["duplicate_skill"]);
    skill(&other, "weather2", &[("main.py", b"evil\n")], &key(8));
    register(&registry, &other).unwrap();
}

#[test]
fn what_cannot_be_recorded_is_not_registered() {
    let (_directory, source, registry) = example();
    let refused = registry.register(&source, |_| Err("the disk is full".into()));
    assert!(matches!(refused, Err(SkillError::Unrecorded(_))));
    assert!(registry.list().unwrap().is_empty());
    let mut reported = None;
    let registered = registry.register(&source, |what| {
        reported = Some(what.clone());
        assert!(registry.list().unwrap().is_empty());
        Ok(())
    });
    assert_eq!(reported, Some(registered.unwrap()));
}

#[test]
fn every_fault_is_reported_in_order() {
    let (_directory, source, registry) = example();
    let text =
        fs::read_to_string(source.join("manifest.json")).unwrap().replace("\"memoryMb\": 64", "\"memoryMb\": 65");
    fs::write(source.join("manifest.json"), text).unwrap();
    fs::write(source.join("lib/a.py"), format!("x\nkey = 'AKIA{}'\n", "B".repeat(16))).unwrap();
    fs::write(source.join("more.py"), "").unwrap();
    fs::remove_file(source.join("run")).unwrap();
    let error = register(&registry, &source).unwrap_err();
    let codes: Vec<_> = error.codes().into_iter().map(FaultCode::name).collect();
    assert_eq!(codes, ["signature_verification_failed", "file_hash_mismatch", "static_scan_failed"]);
    let reported = error.to_string();
    let lines: Vec<&str> = reported.lines().collect();
    assert_eq!(lines.len(), 5, "{reported}");
    assert!(lines[0].starts_with("signature_verification_failed: "), "{reported}");
    assert!(lines[1].starts_with("file_hash_mismatch: lib/a.py: its SHA-256 is"), "{reported}");
    assert!(lines[2].starts_with("file_hash_mismatch: more.py: it is there"), "{reported}");
    assert!(lines[3].starts_with("file_hash_mismatch: run: it is listed, and not there"), "{reported}");
    assert!(lines[4].starts_with("static_scan_failed: lib/a.py:2: secret"), "{reported}");
    assert!(registry.list().unwrap().is_empty() && !registry.directory().exists());
}

#[test]
fn only_regular_files_and_directories_are_accepted() {
    let (directory, source, registry) = example();
    let outside = directory.path().join("outside");
    fs::write(&outside, b"print(1)\n").unwrap();
    let replaced = |path: &str, put: &dyn Fn(&Path)| {
        let place = source.join(path);
        let was = fs::read(&place).unwrap();
        fs::remove_file(&place).unwrap();
        put(&place);
        let reported = take(&source).unwrap_err();
        assert_eq!(reported.codes(), [FaultCode::FileHashMismatch]);
        fs::remove_file(&place).unwrap();
        fs::write(&place, was).unwrap();
        reported.to_string()
    };
    // The very content that is listed, at the end of a link: refused all the same.
    assert!(replaced("main.py", &|place| symlink(&outside, place).unwrap()).contains("a symbolic link"));
    assert!(replaced("main.py", &|place| symlink("run", place).unwrap()).contains("a symbolic link"));
    let fifo = |place: &Path| {
        assert!(Command::new("mkfifo").arg(place).status().unwrap().success());
    };
    assert!(replaced("main.py", &fifo).contains("a named pipe"));
    let socket = |place: &Path| drop(std::os::unix::net::UnixListener::bind(place).unwrap());
    assert!(replaced("main.py", &socket).contains("a socket"));
    // One that is not listed is no better.
    fifo(&source.join("lib/pipe"));
    assert!(take(&source).unwrap_err().to_string().contains("lib/pipe: it is a named pipe"));
    fs::remove_file(source.join("lib/pipe")).unwrap();
    symlink("/etc", source.join("lib/etc")).unwrap();
    assert!(take(&source).unwrap_err().to_string().contains("lib/etc: it is a symbolic link"));
    fs::remove_file(source.join("lib/etc")).unwrap();
    // A manifest that is none.
    fs::rename(source.join("manifest.json"), directory.path().join("manifest.json")).unwrap();
    fifo(&source.join("manifest.json"));
    assert_eq!(codes(take(&source)), ["schema_validation_failed"]);
    fs::remove_file(source.join("manifest.json")).unwrap();
    symlink(directory.path().join("manifest.json"), source.join("manifest.json")).unwrap();
    assert_eq!(codes(take(&source)), ["schema_validation_failed"]);
    fs::remove_file(source.join("manifest.json")).unwrap();
    assert_eq!(codes(take(&source)), ["schema_validation_failed"]);
    fs::rename(directory.path().join("manifest.json"), source.join("manifest.json")).unwrap();
    register(&registry, &source).unwrap();
}

#[test]
fn bits_of_other_users_are_refused() {
    let (_directory, source, _) = example();
    fs::set_permissions(source.join("run"), fs::Permissions::from_mode(0o4755)).unwrap();
    let reported = take(&source).unwrap_err();
    assert_eq!(reported.codes(), [FaultCode::StaticScanFailed]);
    assert!(reported.to_string().contains("run: setuid"));
}

#[test]
fn names_that_are_not_utf8_are_faults() {
    use std::os::unix::ffi::OsStrExt as _;
    let (_directory, source, _) = example();
    fs::write(source.join(std::ffi::OsStr::from_bytes(b"x\xff")), "").unwrap();
    assert!(take(&source).unwrap_err().to_string().contains("not UTF-8"));
}

#[test]
fn a_file_of_a_gibibyte_is_refused_unread() {
    let (_directory, source, _) = example();
    let file = fs::File::create(source.join("main.py")).unwrap();
    file.set_len(1 << 30).unwrap();
    let begun = Instant::now();
    let reported = take(&source).unwrap_err();
    assert_eq!(reported.codes(), [FaultCode::FileHashMismatch]);
    assert!(reported.to_string().contains("more than 16777216 bytes"), "{reported}");
    // Reading and hashing it takes several seconds in a build for tests.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // Many files below the limit are limited together.
    for number in 0..6 {
        fs::File::create(source.join(format!("lib/{number}"))).unwrap().set_len(15 << 20).unwrap();
    }
    assert!(take(&source).unwrap_err().to_string().contains("the files have more than 67108864 bytes"));
}

#[test]
fn directory_changed_while_read_is_refused_or_as_hashed() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    let good: &[u8] = &b"good\n".repeat(20_000);
    let evil: &[u8] = &b"evil\n".repeat(20_000);
    skill(&source, "weather", &[("lib/main.py", good), ("z.py", b"z")], &key(7));
    let outside = directory.path().join("outside");
    fs::write(&outside, evil).unwrap();
    let stop = AtomicBool::new(false);
    let (mut taken, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (main, aside) = (source.join("lib/main.py"), directory.path().join("aside"));
            let put = |bytes: &[u8]| {
                fs::write(&aside, bytes).unwrap();
                fs::rename(&aside, &main).unwrap();
            };
            while !stop.load(Ordering::Relaxed) {
                fs::write(&main, evil).unwrap(); // in place
                fs::write(&main, good).unwrap();
                symlink(&outside, &aside).unwrap();
                fs::rename(&aside, &main).unwrap();
                put(good);
                rustix::fs::mkfifoat(rustix::fs::CWD, &aside, rustix::fs::Mode::RWXU).unwrap();
                fs::rename(&aside, &main).unwrap();
                put(good);
                fs::rename(source.join("lib"), source.join("bil")).unwrap();
                fs::rename(source.join("bil"), source.join("lib")).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let until = Instant::now() + Duration::from_secs(20);
        for round in 0.. {
            let registry = Registry::at(directory.path().join(format!("skills-{round}")));
            match register(&registry, &source) {
                Err(error) => {
                    assert_eq!(error.codes(), [FaultCode::FileHashMismatch], "{error}");
                    refused += 1;
                }
                Ok(_) => {
                    let (_, kept) = registry.runnable(&spec("weather")).unwrap();
                    assert!(kept.by_stamps);
                    assert!(fs::read(kept.files.join("lib/main.py")).unwrap() == good);
                    assert!(fs::symlink_metadata(kept.files.join("lib/main.py")).unwrap().is_file());
                    taken += 1;
                }
            }
            if (taken >= 5 && refused >= 5 && round >= 50) || Instant::now() > until {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(taken > 0 && refused > 0, "taken {taken}, refused {refused}");
}

#[test]
fn what_was_changed_in_the_store_does_not_run() {
    let (directory, source, registry) = example();
    let registered = register(&registry, &source).unwrap();
    let files = registry.runnable(&spec("weather")).unwrap().1.files;
    let main = files.join("main.py");
    let writable = || fs::set_permissions(&main, fs::Permissions::from_mode(0o644)).unwrap();
    let damaged = || {
        let refused = registry.runnable(&spec("weather"));
        assert!(matches!(refused, Err(SkillError::Damaged { .. })), "{refused:?}");
    };
    let times = fs::metadata(&main).unwrap().modified().unwrap();
    // Of the same size, and with the time that it had: the change time tells.
    writable();
    fs::write(&main, b"print(9)\n").unwrap();
    fs::File::options().write(true).open(&main).unwrap().set_modified(times).unwrap();
    fs::set_permissions(&main, fs::Permissions::from_mode(0o644)).unwrap();
    damaged();
    // The same bytes again: hashed, and right.
    writable();
    fs::write(&main, b"print(1)\n").unwrap();
    assert!(!registry.runnable(&spec("weather")).unwrap().1.by_stamps);
    // Something put in, taken out, or put in place.
    fs::write(files.join("lib/evil.py"), "").unwrap();
    damaged();
    fs::remove_file(files.join("lib/evil.py")).unwrap();
    assert!(registry.runnable(&spec("weather")).is_ok());
    fs::rename(&main, directory.path().join("main.py")).unwrap();
    damaged();
    symlink(directory.path().join("main.py"), &main).unwrap();
    damaged();
    fs::remove_file(&main).unwrap();
    fs::rename(directory.path().join("main.py"), &main).unwrap();
    assert!(registry.runnable(&spec("weather")).is_ok());
    // The manifest's own name is no way in: below `files` there is none, neither as file nor as directory.
    fs::write(files.join("manifest.json"), "unsigned").unwrap();
    damaged();
    fs::remove_file(files.join("manifest.json")).unwrap();
    fs::create_dir(files.join("manifest.json")).unwrap();
    fs::write(files.join("manifest.json/evil.py"), "unsigned").unwrap();
    damaged();
    fs::remove_dir_all(files.join("manifest.json")).unwrap();
    assert!(registry.runnable(&spec("weather")).is_ok());
    // Another directory in the place of `files`, from which what was hashed could be exchanged.
    let (copy, aside) = (directory.path().join("copy"), directory.path().join("aside"));
    assert!(Command::new("cp").arg("-r").args([&files, &copy]).status().unwrap().success());
    fs::rename(&files, &aside).unwrap();
    symlink(&copy, &files).unwrap();
    damaged();
    fs::remove_file(&files).unwrap();
    fs::rename(&aside, &files).unwrap();
    assert!(registry.runnable(&spec("weather")).is_ok());
    // Another manifest, even one of the same publisher.
    let own = files.parent().unwrap().to_owned();
    let other = directory.path().join("other");
    skill(&other, "weather", &[("main.py", b"print(1)\n")], &key(7));
    fs::remove_file(own.join("manifest.json")).unwrap();
    fs::copy(other.join("manifest.json"), own.join("manifest.json")).unwrap();
    damaged();
    assert_eq!(registry.version(&spec("weather")).unwrap().version, registered.version);
}

#[test]
fn what_was_damaged_is_put_back_from_its_source() {
    let (_directory, source, registry) = example();
    let registered = register(&registry, &source).unwrap();
    assert!(!registered.repaired);
    let files = registry.runnable(&spec("weather")).unwrap().1.files;
    let version = files.parent().unwrap().to_owned();
    let over = |path: &Path, text: &str| {
        fs::remove_file(path).unwrap();
        fs::write(path, text).unwrap();
    };
    let damages: [(&str, &dyn Fn()); 7] = [
        ("a file", &|| over(&files.join("main.py"), "print(9)\n")),
        ("one more", &|| fs::write(files.join("lib/evil.py"), "").unwrap()),
        ("the manifest", &|| over(&version.join("manifest.json"), "{}")),
        ("no manifest", &|| fs::remove_file(version.join("manifest.json")).unwrap()),
        ("no files", &|| fs::remove_dir_all(&files).unwrap()),
        ("nothing left", &|| fs::remove_dir_all(&version).unwrap()),
        ("a file in its place", &|| {
            fs::remove_dir_all(&version).unwrap();
            fs::write(&version, "").unwrap();
        }),
    ];
    let before = registry.list().unwrap();
    for (what, damage) in damages {
        damage();
        let refused = registry.runnable(&spec("weather")).unwrap_err();
        assert!(refused.hint().is_some_and(|hint| hint.contains("skill register")), "{what}: {refused:?}");
        // What is not on record is not put back.
        let unrecorded = registry.register(&source, |_| Err("full".into()));
        assert!(matches!(unrecorded, Err(SkillError::Unrecorded(_))), "{what}");
        assert!(registry.runnable(&spec("weather")).is_err(), "{what}");
        let again = register(&registry, &source).unwrap();
        assert_eq!(again, Registered { repaired: true, ..registered.clone() }, "{what}");
        let (versioned, kept) = registry.runnable(&spec("weather")).unwrap();
        assert_eq!((versioned.version, kept.by_stamps), (registered.version.clone(), true), "{what}");
        assert_eq!(fs::read(files.join("main.py")).unwrap(), b"print(1)\n", "{what}");
        assert_eq!(codes(register(&registry, &source)), ["duplicate_skill"], "{what}: it is whole");
        assert_eq!(fs::read_dir(version.parent().unwrap()).unwrap().count(), 1, "{what}: nothing else is left");
    }
    assert_eq!(registry.list().unwrap(), before, "the list knows nothing of it");
    // What is not as it was signed puts nothing back, and what was revoked stays so.
    over(&files.join("main.py"), "print(9)\n");
    fs::write(source.join("main.py"), "print(8)\n").unwrap();
    assert_eq!(codes(register(&registry, &source)), ["file_hash_mismatch"]);
    fs::write(source.join("main.py"), "print(1)\n").unwrap();
    registry.revoke(&spec("weather")).unwrap();
    assert_eq!(codes(register(&registry, &source)), ["revoked"]);
}

#[test]
fn a_store_that_was_copied_is_hashed_and_runs() {
    let (directory, source, registry) = example();
    register(&registry, &source).unwrap();
    let moved = directory.path().join("moved");
    assert!(Command::new("cp").arg("-r").arg(registry.directory()).arg(&moved).status().unwrap().success());
    let copied = Registry::at(&moved);
    assert!(!copied.runnable(&spec("weather")).unwrap().1.by_stamps);
    assert!(registry.runnable(&spec("weather")).unwrap().1.by_stamps);
}

#[test]
fn a_registry_that_others_can_write_to_is_refused() {
    let (_directory, source, registry) = example();
    register(&registry, &source).unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let untrusted = || {
        assert!(matches!(registry.runnable(&spec("weather")), Err(SkillError::Untrusted { .. })));
    };
    open(registry.directory(), 0o777);
    untrusted();
    assert!(matches!(register(&registry, &source), Err(SkillError::Untrusted { .. })));
    open(registry.directory(), 0o700);
    open(&registry.directory().join("registry.json"), 0o666);
    untrusted();
    open(&registry.directory().join("registry.json"), 0o600);
    assert!(registry.runnable(&spec("weather")).is_ok());
    for text in ["", "{", r#"{"version":2,"skills":{}}"#, r#"{"version":1,"skills":{},"more":1}"#] {
        fs::write(registry.directory().join("registry.json"), text).unwrap();
        let refused = registry.list().unwrap_err();
        assert!(matches!(refused, SkillError::Unreadable { .. }), "{text}");
        assert!(refused.hint().unwrap().contains("backup"), "{text}: no skill's source mends it");
    }
}

#[test]
fn content_that_others_can_write_to_does_not_run() {
    let (_directory, source, registry) = example();
    let version = register(&registry, &source).unwrap().version;
    let content = registry.directory().join("content");
    let own = content.join(version);
    let files = own.join("files");
    let places = ["", "lib", "lib/a.py", "main.py", "run"].map(|below| files.join(below));
    let places = places.into_iter().chain([content.clone(), own.clone()]);
    for path in places.chain(["manifest.json", "stamps.json"].map(|name| own.join(name))) {
        let mode = fs::metadata(&path).unwrap().mode();
        let bits: &[u32] = if path.is_dir() { &[0o002] } else { &[0o002, 0o4000, 0o2000] };
        for bit in bits {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | bit)).unwrap();
            let refused = registry.runnable(&spec("weather")).unwrap_err();
            let named = matches!(&refused, SkillError::Untrusted { path: named, .. } if path.components().eq(named.components()));
            assert!(named, "{bit:o}: {}: {refused:?}", path.display());
            assert!(refused.hint().unwrap().contains("chmod go-w"), "{refused:?}");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        assert!(registry.runnable(&spec("weather")).is_ok(), "{}", path.display());
    }
    // What only the own group can write to is the user's.
    fs::set_permissions(&files, fs::Permissions::from_mode(0o775)).unwrap();
    assert!(registry.runnable(&spec("weather")).is_ok());
}

#[test]
fn what_is_listed_for_signing_is_what_is_taken() {
    let (_directory, source, _) = example();
    let listed = listing(&source).unwrap();
    let mut wanted = take(&source).unwrap().manifest.files;
    wanted.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(listed, wanted);
}

const WRITER: &str = "COFFERDAM_TEST_SKILL_WRITER";

/// A process of the tests below, which registers and revokes a given number of times.
#[test]
fn writer() {
    let Ok(reported) = std::env::var(WRITER) else { return };
    let [registry, source, name, times] = reported.split('\n').collect::<Vec<_>>()[..] else { panic!("{reported}") };
    let registry = Registry::at(registry);
    for round in 0..times.parse::<u32>().unwrap() {
        let source = Path::new(source).join(format!("{name}-{round}"));
        skill(&source, name, &[("main.py", format!("print({round})\n").as_bytes())], &key(7));
        // One name that all of them want.
        let shared = source.join("shared");
        skill(&shared, "shared", &[("main.py", format!("print('{name}', {round})\n").as_bytes())], &key(7));
        let both = [register(&registry, &shared).map(|_| ()), {
            fs::remove_dir_all(&shared).unwrap();
            register(&registry, &source).map(|_| ())
        }];
        assert!(both.iter().all(Result::is_ok), "{both:?}");
        if round % 2 == 1 {
            assert_eq!(registry.revoke(&spec(name)).unwrap().len(), 2);
        }
    }
}

fn start(registry: &Registry, source: &Path, name: &str, times: u32) -> std::process::Child {
    let reported =
        [registry.directory().to_str().unwrap(), source.to_str().unwrap(), name, &times.to_string()].join("\n");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "skills::store_tests::writer", "--nocapture"])
        .env(WRITER, reported)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn all_open(registry: &Registry, skills: &BTreeMap<String, super::registry::Skill>) -> usize {
    let versions = skills.values().flat_map(|skill| &skill.versions);
    versions.map(|known| assert!(registry.content(&known.version).unwrap().by_stamps)).count()
}

#[test]
fn concurrent_writers_lose_nothing_and_readers_see_whole() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path().join("skills"));
    let mut children: Vec<_> =
        (0..8).map(|number| start(&registry, directory.path(), &format!("skill-{number}"), 4)).collect();
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        let skills = registry.list().unwrap();
        all_open(&registry, &skills);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(children.iter_mut().all(|child| child.wait().unwrap().success()));
    let skills = registry.list().unwrap();
    assert_eq!(skills.len(), 9);
    assert_eq!(skills["shared"].versions.len(), 32);
    assert_eq!(all_open(&registry, &skills), 64);
    for number in 0..8 {
        let versions = &skills[&format!("skill-{number}")].versions;
        assert_eq!(versions.len(), 4);
        assert!(versions.iter().all(|known| known.state == VersionState::Revoked && known.revoked_at.is_some()));
    }
}

#[test]
fn a_writer_that_is_killed_leaves_a_whole_registry() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path().join("skills"));
    for round in 0..12u64 {
        let mut child = start(&registry, directory.path(), &format!("skill-{round}"), 1000);
        std::thread::sleep(Duration::from_millis(40 + 23 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        all_open(&registry, &registry.list().unwrap());
    }
    // The next writer removes what a killed one left, without waiting.
    let source = directory.path().join("last");
    skill(&source, "last", &[("main.py", b"print(1)\n")], &key(7));
    register(&registry, &source).unwrap();
    let content = fs::read_dir(registry.directory().join("content")).unwrap();
    let names: Vec<_> = content.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.starts_with(".new-")), "{names:?}");
    assert!(registry.list().unwrap().len() > 1);
}
