//! The trail as its users have it: chained, verified, recovered, with room for ends, by many writers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::*;

fn trail(options: TrailOptions) -> (tempfile::TempDir, Trail) {
    let dir = tempfile::tempdir().unwrap();
    let trail = Trail::open(&dir.path().join("audit"), options).unwrap();
    (dir, trail)
}

fn note(n: u64) -> AuditEntry {
    AuditEntry::new("note").with("n", n)
}

fn check(dir: &Path) -> Result<Verified, Wrong> {
    check_with(dir, None, &Anchored::new())
}

fn check_with(dir: &Path, key: Option<PublicKey>, anchors: &Anchored) -> Result<Verified, Wrong> {
    verify(dir, key, anchors, &mut |_| {}).map_err(|failed| match failed {
        verify::VerificationFailure::Wrong(problem) => problem.wrong,
        verify::VerificationFailure::Io(e) => panic!("{e}"),
    })
}

fn first(dir: &Path) -> PathBuf {
    dir.join("trail-000001.jsonl")
}

fn lines(dir: &Path) -> Vec<String> {
    std::fs::read_to_string(first(dir)).unwrap().lines().map(str::to_owned).collect()
}

fn put(dir: &Path, lines: &[String]) {
    std::fs::write(first(dir), lines.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
}

#[test]
fn a_trail_verifies_and_goes_on_after_it_was_closed() {
    let (dir, trail) = trail(TrailOptions::default());
    (0..5).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
    let path = trail.path().to_owned();
    drop(trail);
    let again = Trail::open(&path, TrailOptions::default()).unwrap();
    assert_eq!(again.append(note(5), Durability::Durable).unwrap().seq, 7);
    let found = check(&path).unwrap();
    assert_eq!((found.first, found.last.seq, found.files), (1, 7, 1));
    drop(dir);
}

#[test]
fn every_single_byte_counts() {
    let (_dir, trail) = trail(TrailOptions::default());
    (0..2).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
    let path = first(trail.path());
    let whole = std::fs::read(&path).unwrap();
    check(trail.path()).unwrap();
    for at in 0..whole.len() {
        let mut other = whole.clone();
        other[at] ^= 1 << (at % 8);
        std::fs::write(&path, &other).unwrap();
        assert!(check(trail.path()).is_err(), "byte {at}");
    }
}

#[test]
fn what_was_removed_reordered_repeated_or_replaced_is_named() {
    let (_dir, trail) = trail(TrailOptions::default());
    (0..6).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
    let (dir, good) = (trail.path(), lines(trail.path()));
    let with = |change: &dyn Fn(&mut Vec<String>)| {
        let mut other = good.clone();
        change(&mut other);
        put(dir, &other);
        check(dir)
    };
    assert!(with(&|_| {}).is_ok());
    assert_eq!(with(&|l| drop(l.drain(2..4))).unwrap_err(), Wrong::Removed { from: 3, to: 4 });
    assert_eq!(with(&|l| l.swap(2, 3)).unwrap_err(), Wrong::Removed { from: 3, to: 3 });
    assert_eq!(with(&|l| l.insert(3, l[1].clone())).unwrap_err(), Wrong::Reordered { expected: 4, found: 2 });
    // A record made anew, with a right hash of its own.
    let (line, _) = record::write(&note(99), "2026-01-01T00:00:00Z", &Link { seq: 2, hash: [0; 32] });
    let anew = String::from_utf8(line).unwrap().trim_end().to_owned();
    assert_eq!(with(&|l| l[2] = anew.clone()).unwrap_err(), Wrong::Unchained);
    assert_eq!(with(&|l| l[2].push(' ')).unwrap_err(), Wrong::Changed);
    // Older files are put away whole, so the first one begins with the first record.
    assert_eq!(with(&|l| drop(l.remove(0))).unwrap_err(), Wrong::Removed { from: 1, to: 1 });
}

#[test]
fn a_killed_writers_partial_record_is_sealed() {
    for torn in [&b"{\"seq\":4,\"ti"[..], b"garbage\n", b"a\nb\nc", b"\n"] {
        let (_dir, trail) = trail(TrailOptions::default());
        (0..2).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
        let path = trail.path().to_owned();
        drop(trail);
        let mut bytes = std::fs::read(first(&path)).unwrap();
        let at = bytes.len() as u64;
        bytes.extend_from_slice(torn);
        std::fs::write(first(&path), &bytes).unwrap();
        assert!(check(&path).is_err(), "not yet sealed");
        let trail = Trail::open(&path, TrailOptions::default()).unwrap();
        assert_eq!(trail.append(note(2), Durability::Written).unwrap().seq, 5, "the seal is record 4");
        assert_eq!(check(&path).unwrap().recovered, [(first(&path), at)]);
        // The seal holds what it seals.
        let mut other = std::fs::read(first(&path)).unwrap();
        other[at as usize] ^= 1;
        std::fs::write(first(&path), &other).unwrap();
        assert!(check(&path).is_err());
    }
}

#[test]
fn what_the_lock_file_remembers_is_a_hint_only() {
    let (_dir, trail) = trail(TrailOptions::default());
    (0..3).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
    let path = trail.path().to_owned();
    for lock in [&b""[..], &[0xff; 300]] {
        std::fs::write(path.join("lock"), lock).unwrap();
        Trail::open(&path, TrailOptions::default()).unwrap().append(note(9), Durability::Written).unwrap();
    }
    assert_eq!(check(&path).unwrap().last.seq, 6);
}

#[test]
fn files_follow_each_other_without_a_gap() {
    let (_dir, trail) = trail(TrailOptions { rotate_at: 2000, ..TrailOptions::default() });
    (0..40).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
    let found = check(trail.path()).unwrap();
    assert!(found.files > 3 && found.last.seq == 41, "{found:?}");
    let mut shown = Vec::new();
    show(trail.path(), &RecordFilter { kinds: vec!["note".into()], ..RecordFilter::default() }, |line| {
        let TrailLine::Record(record) = line else { panic!("{line:?}") };
        shown.push(record.data["n"].as_u64().unwrap());
        Ok(())
    })
    .unwrap();
    assert_eq!(shown, (0..40).collect::<Vec<_>>());
    std::fs::remove_file(trail.path().join("trail-000002.jsonl")).unwrap();
    assert_eq!(check(trail.path()).unwrap_err(), Wrong::FileMissing);
}

#[test]
fn following_misses_no_record_when_a_file_is_closed() {
    let (_dir, trail) = trail(TrailOptions { rotate_at: 2000, ..TrailOptions::default() });
    const LAST: u64 = 2000;
    let mut all = Follow::new(trail.path());
    let mut next = 1; // the record that opened the trail
    std::thread::scope(|threads| {
        threads
            .spawn(|| (2..=LAST).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq == n)));
        while next <= LAST {
            match all.next_line().unwrap() {
                Some(TrailLine::Record(record)) => {
                    assert_eq!(record.seq, next, "records in between were passed over");
                    next += 1;
                }
                Some(broken) => panic!("{next}: {broken:?}"),
                None => std::thread::yield_now(),
            }
        }
    });
}

#[test]
fn an_anchor_shows_what_the_files_alone_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    assert_eq!(CheckpointKey::read(&dir.path().join("key")).unwrap().public(), key.public());
    let anchor = dir.path().join("anchor");
    let path = dir.path().join("audit");
    let options = TrailOptions {
        key: Some(key.clone()),
        checkpoint_every: 3,
        anchor: Some(Anchor::File(anchor.clone())),
        ..TrailOptions::default()
    };
    let trail = Trail::open(&path, options).unwrap();
    (0..10).for_each(|n| assert!(trail.append(note(n), Durability::Written).unwrap().seq > 0));
    let anchors = anchored(&anchor).unwrap();
    assert!(anchors.len() >= 2, "{anchors:?}");
    let found = check_with(&path, Some(key.public()), &anchors).unwrap();
    assert_eq!((found.checkpoints as usize, found.anchored as usize), (anchors.len(), anchors.len()));
    let other = CheckpointKey::make(&dir.path().join("other")).unwrap();
    assert_eq!(check_with(&path, Some(other.public()), &anchors).unwrap_err(), Wrong::OtherKey(key.public().text()));
    // Cut short: the files hold together, and the anchor shows it.
    let good = lines(&path);
    put(&path, &good[..3]);
    assert!(check(&path).is_ok());
    let cut = check_with(&path, None, &anchors).unwrap_err();
    assert!(matches!(cut, Wrong::CutShort { .. }), "{cut:?}");
    // Written anew from the start.
    std::fs::remove_dir_all(&path).unwrap();
    let anew = Trail::open(&path, TrailOptions::default()).unwrap();
    (0..20).for_each(|n| assert!(anew.append(note(n), Durability::Written).unwrap().seq > 0));
    assert!(check(&path).is_ok());
    assert!(matches!(check_with(&path, None, &anchors).unwrap_err(), Wrong::OtherTrail { .. }));
    // The same under the name that it had.
    let opened = record::read(good[0].as_bytes()).unwrap();
    let mut after = Link::default();
    let mut anew = Vec::new();
    for entry in
        [AuditEntry { data: opened.data, ..AuditEntry::new("trail_opened") }].into_iter().chain((0..20).map(note))
    {
        let (line, link) = record::write(&entry, "2026-01-01T00:00:00Z", &after);
        after = link;
        anew.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    }
    put(&path, &anew);
    assert!(check(&path).is_ok());
    assert!(matches!(check_with(&path, None, &anchors).unwrap_err(), Wrong::Rewritten { .. }));
}

#[test]
fn a_checkpoint_that_was_not_signed_so_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    let end = Link { seq: 1, hash: [1; 32] };
    let entry = key.sign(&end, Some("t-1"));
    let as_record = |entry: &AuditEntry| {
        let (line, _) = record::write(entry, "t", &end);
        record::read(line.strip_suffix(b"\n").unwrap()).unwrap()
    };
    let check = |record: &AuditRecord, end: &Link| checkpoint::check(record, end, Some("t-1"));
    assert_eq!(check(&as_record(&entry), &end), Ok(key.public()));
    assert!(check(&as_record(&entry), &Link { seq: 2, ..end }).is_err());
    assert!(check(&as_record(&entry), &Link { hash: [2; 32], ..end }).is_err());
    for other in [Some("t-2"), None] {
        assert_eq!(checkpoint::check(&as_record(&entry), &end, other), Err("it is of another trail"));
    }
    // One that names no trail is read as before, and no name can be put to it or taken from it.
    let unnamed = key.sign(&end, None);
    assert_eq!(check(&as_record(&unnamed), &end), Ok(key.public()));
    assert!(check(&as_record(&unnamed.with("trail", "t-1")), &end).is_err());
    let mut stripped = entry.clone();
    stripped.data.remove("trail");
    assert!(check(&as_record(&stripped), &end).is_err());
    for (field, value) in [
        ("signature", "00".repeat(64)),
        ("signature", String::new()),
        ("key", "11".repeat(32)),
        ("trail", "t-2".to_owned()),
    ] {
        assert!(check(&as_record(&entry.clone().with(field, value.clone())), &end).is_err(), "{field} {value}");
    }
}

#[test]
fn keys_that_others_can_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    CheckpointKey::make(&path).unwrap();
    assert!(CheckpointKey::make(&path).is_err(), "no key is written over");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(CheckpointKey::read(&path).unwrap_err().to_string().contains("chmod 600"));
}

#[test]
fn a_directory_that_others_may_write_in_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(Trail::open(dir.path(), TrailOptions::default()), Err(AuditError::Open { .. })));
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Trail::open(dir.path(), TrailOptions::default()).is_ok());
}

#[test]
fn secrets_do_not_occur_in_the_files() {
    let secrets = Secrets::new([("API_KEY".to_owned(), "s3cr3t-value".to_owned())]);
    let (_dir, trail) = trail(TrailOptions { secrets, ..TrailOptions::default() });
    trail
        .begin(AuditEntry::new("a").with("url", "https://x/?k=s3cr3t-value"))
        .unwrap()
        .end(AuditEntry::new("b").with("s3cr3t-value", 1))
        .unwrap();
    let text = lines(trail.path()).join("\n");
    assert!(!text.contains("s3cr3t") && text.contains("[secret API_KEY]"), "{text}");
}

#[test]
fn sixty_four_threads_lose_nothing() {
    let (_dir, trail) = trail(TrailOptions { rotate_at: 20_000, ..TrailOptions::default() });
    std::thread::scope(|s| {
        for t in 0..64u64 {
            let trail = trail.clone();
            s.spawn(move || {
                (0..10).for_each(|n| assert!(trail.append(note(t * 100 + n), Durability::Durable).unwrap().seq > 0))
            });
        }
    });
    let mut seen = BTreeSet::new();
    let found = verify(trail.path(), None, &Anchored::new(), &mut |r| {
        seen.extend(r.data.get("n").and_then(serde_json::Value::as_u64));
    })
    .unwrap();
    assert_eq!((found.last.seq, seen.len()), (641, 640));
}

#[test]
fn an_end_that_is_too_long_is_cut_and_says_so() {
    let (_dir, trail) = trail(TrailOptions::default());
    let begun = trail.begin(AuditEntry::new("sandbox_started").run("r")).unwrap();
    begun.end(AuditEntry::new("sandbox_completed").run("r").with("text", "x".repeat(20_000))).unwrap();
    let last = record::read(lines(trail.path()).last().unwrap().as_bytes()).unwrap();
    assert_eq!((last.kind.as_str(), last.run.as_deref()), ("sandbox_completed", Some("r")));
    assert!(last.data["cut_bytes"].as_u64().unwrap() > 20_000);
    assert!(trail.append(AuditEntry::new("x").with("text", "x".repeat(70_000)), Durability::Written).is_err());
    check(trail.path()).unwrap();
}

#[test]
fn an_empty_first_file_gets_the_identity_record() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().join("t");
    let add = || {
        let trail = Trail::open(&here, TrailOptions::default()).unwrap();
        trail.append(AuditEntry::new("a"), Durability::Written).unwrap();
        verify(&here, None, &Anchored::new(), &mut |_| {}).unwrap()
    };
    let first = add();
    let file = here.join("trail-000001.jsonl");
    let whole = std::fs::read(&file).unwrap();
    let opened = whole.iter().position(|&byte| byte == b'\n').unwrap();
    // Nothing of it, and half of it: a writer was stopped before, and in, its first record.
    for (left, records) in [(0, 2), (opened / 2, 3)] {
        std::fs::write(&file, &whole[..left]).unwrap();
        let again = add();
        assert!(again.trail.is_some() && again.trail != first.trail, "{left}: {again:?}");
        assert_eq!((again.first, again.last.seq), (1, records), "{left}");
        assert_eq!(add().trail, again.trail, "and none besides");
        assert_eq!(add().last.seq, records + 2);
    }
    // As a writer leaves it that was stopped between making the first file and writing to it.
    std::fs::remove_dir_all(&here).unwrap();
    std::fs::create_dir(&here).unwrap();
    std::fs::set_permissions(&here, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(add().trail.is_some());
}
