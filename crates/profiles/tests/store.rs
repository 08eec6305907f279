//! The profile store: atomic files, names that cannot leave the store, and concurrent users.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use cofferdam_profiles::{Id, ProfileStore, StoreError, Stored};

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

fn store() -> (tempfile::TempDir, ProfileStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = ProfileStore::at(directory.path().join("a/b"));
    (directory, store)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_saved_is_read() {
    let (_keep, store) = store();
    let directory =
        store.save(&id("skill-1"), &[(Stored::Policy, b"{}\n"), (Stored::Seatbelt, b"(version 1)\n")]).unwrap();
    assert_eq!(names(&directory), ["policy.json", "seatbelt.sb"]);
    assert_eq!(store.read(&id("skill-1"), Stored::Policy).unwrap(), b"{}\n");
    assert_eq!(store.list().unwrap(), [id("skill-1")]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("policy.json"))), (0o700, 0o600));
}

#[test]
fn export_removes_stale_files_and_touches_no_others() {
    let (_keep, store) = store();
    let directory = store.save(&id("s"), &[(Stored::Policy, b"1"), (Stored::Nsjail, b"1")]).unwrap();
    fs::write(directory.join("notes.txt"), "mine").unwrap();
    fs::write(directory.join(".tmp-1-1"), "of a killed export").unwrap();
    store.save(&id("s"), &[(Stored::Policy, b"2")]).unwrap();
    assert_eq!(names(&directory), ["notes.txt", "policy.json"]);
    assert_eq!(store.read(&id("s"), Stored::Policy).unwrap(), b"2");
}

#[test]
fn ids_are_plain_names() {
    for good in ["a", "A1", "data.v2", "a-b_c", "0", &"x".repeat(128)] {
        assert!(Id::new(good).is_ok(), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/a",
        ".hidden",
        "-a",
        "a..b",
        "a b",
        "a\0b",
        "a\nb",
        "é",
        "a\\b",
        &"x".repeat(129),
    ] {
        let error = Id::new(bad).unwrap_err();
        assert!(matches!(error, StoreError::Id(_)), "{bad:?}");
        assert!(error.to_string().contains("no profile id") && error.hint().is_some(), "{error}");
    }
}

#[test]
fn a_missing_profile_says_how_to_get_it() {
    let (_keep, store) = store();
    for _ in 0..2 {
        let error = store.read(&id("nobody"), Stored::Policy).unwrap_err();
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
        assert!(error.to_string().contains("nobody"), "{error}");
        assert_eq!(error.hint().unwrap(), "cofferdam export FILE.ncl --store --id nobody");
        store.save(&id("somebody"), &[(Stored::Policy, b"{}")]).unwrap();
    }
    let error = store.read(&id("somebody"), Stored::Seatbelt).unwrap_err();
    assert!(error.to_string().contains("seatbelt.sb"), "{error}");
}

#[test]
fn links_are_not_followed_out_of_the_store() {
    let (keep, store) = store();
    let outside = keep.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("policy.json"), "secret").unwrap();
    let real = store.save(&id("real"), &[(Stored::Policy, b"{}")]).unwrap();

    symlink(&outside, store.directory().join("linked")).unwrap();
    let linked = |error: StoreError, path: &Path| {
        assert!(matches!(&error, StoreError::Linked { path: named } if named == path), "{error}");
        assert!(error.to_string().contains("symbolic link") && error.hint().is_some(), "{error}");
    };
    linked(store.read(&id("linked"), Stored::Policy).unwrap_err(), &store.directory().join("linked"));
    linked(store.save(&id("linked"), &[(Stored::Policy, b"{}")]).unwrap_err(), &store.directory().join("linked"));
    assert_eq!(fs::read_to_string(outside.join("policy.json")).unwrap(), "secret");

    fs::remove_file(real.join("policy.json")).unwrap();
    symlink(outside.join("policy.json"), real.join("policy.json")).unwrap();
    linked(store.read(&id("real"), Stored::Policy).unwrap_err(), &real.join("policy.json"));
    // A new export replaces the link, and not its target.
    store.save(&id("real"), &[(Stored::Policy, b"{}")]).unwrap();
    assert_eq!(store.read(&id("real"), Stored::Policy).unwrap(), b"{}");
    assert_eq!(fs::read_to_string(outside.join("policy.json")).unwrap(), "secret");
}

#[test]
fn world_writable_files_are_not_trusted() {
    let (_keep, store) = store();
    let directory = store.save(&id("s"), &[(Stored::Policy, b"{}")]).unwrap();
    for path in [directory.join("policy.json"), directory, store.directory().to_owned()] {
        let before = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, fs::Permissions::from_mode(before.mode() | 0o002)).unwrap();
        let error = store.read(&id("s"), Stored::Policy).unwrap_err();
        assert!(matches!(&error, StoreError::Untrusted { path: named, .. } if *named == path), "{error}");
        fs::set_permissions(&path, before).unwrap();
        assert!(store.read(&id("s"), Stored::Policy).is_ok(), "{path:?}");
    }
}

#[test]
fn unwritable_store_is_an_error_with_a_hint() {
    let keep = tempfile::tempdir().unwrap();
    let place = if rustix::process::geteuid().is_root() {
        // Root ignores permissions, but not those of sysfs.
        Path::new("/sys/kernel").join("store")
    } else {
        fs::set_permissions(keep.path(), fs::Permissions::from_mode(0o500)).unwrap();
        keep.path().join("store")
    };
    let error = ProfileStore::at(&place).save(&id("s"), &[(Stored::Policy, b"{}")]).unwrap_err();
    assert!(error.to_string().contains(place.to_str().unwrap()), "{error}");
    assert!(error.hint().unwrap().contains("--profiles DIR"), "{error}");
    assert!(!place.exists());
}

#[test]
fn concurrent_exports_and_readers_see_whole_files() {
    let (_keep, store) = store();
    let text = |writer: usize, round: usize| format!("{writer}-{round};").repeat(2000).into_bytes();
    store.save(&id("s"), &[(Stored::Policy, &text(0, 0)), (Stored::Nsjail, &text(0, 0))]).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..25 {
                    let text = text(writer, round);
                    store.save(&id("s"), &[(Stored::Policy, &text), (Stored::Nsjail, &text)]).unwrap();
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let text = String::from_utf8(store.read(&id("s"), Stored::Policy).unwrap()).unwrap();
                    let first = text.split_inclusive(';').next().unwrap();
                    assert_eq!(text, first.repeat(2000));
                }
            });
        }
    });
    // The files of the last export are complete.
    assert_eq!(store.read(&id("s"), Stored::Policy).unwrap(), store.read(&id("s"), Stored::Nsjail).unwrap());
    assert_eq!(names(&store.directory().join("s")), ["nsjail.json", "policy.json"]);
}

#[test]
fn unreadable_store_is_reported_as_a_read_error() {
    let error = |operation| StoreError::Io {
        operation,
        path: "/s".into(),
        source: std::io::ErrorKind::PermissionDenied.into(),
    };
    assert!(error("read").hint().unwrap().contains("that you may read: --profiles DIR"));
    assert!(error("write").hint().unwrap().contains("that can be written: --profiles DIR"));
}
