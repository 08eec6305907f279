//! The trail under attack: what an attacker who can write its files may do to them, and what kill -9 leaves at bad
//! moments.

use std::path::{Path, PathBuf};

use super::*;
use crate::*;

fn trail(options: TrailOptions) -> (tempfile::TempDir, Trail) {
    let dir = tempfile::tempdir().unwrap();
    let trail = Trail::open(&dir.path().join("audit"), options).unwrap();
    (dir, trail)
}

fn add(trail: &Trail, n: u64) {
    trail.append(AuditEntry::new("note").with("n", n), Durability::Written).unwrap();
}

fn check(dir: &Path, key: Option<PublicKey>, anchors: &Anchored) -> Result<Verified, Wrong> {
    verify(dir, key, anchors, &mut |_| {}).map_err(|failed| match failed {
        VerificationFailure::Wrong(problem) => problem.wrong,
        VerificationFailure::Io(e) => panic!("{e}"),
    })
}

fn plain(dir: &Path) -> Result<Verified, Wrong> {
    check(dir, None, &Anchored::new())
}

fn file(dir: &Path, number: u64) -> PathBuf {
    dir.join(store::file_name(number))
}

#[test]
fn a_changed_end_is_not_sealed_as_a_tear_by_the_next_writer() {
    let (_dir, trail) = trail(TrailOptions::default());
    (0..2).for_each(|n| add(&trail, n));
    let path = file(trail.path(), 1);
    let good = std::fs::read(&path).unwrap();
    let last = good[..good.len() - 1].iter().rposition(|&b| b == b'\n').unwrap() + 1;
    for at in last..good.len() {
        for byte in [good[at] ^ 1, b'\n', 0] {
            if byte == good[at] {
                continue;
            }
            let mut other = good.clone();
            other[at] = byte;
            std::fs::write(&path, &other).unwrap();
            std::fs::remove_file(trail.path().join("lock")).unwrap();
            add(&Trail::open(trail.path(), TrailOptions::default()).unwrap(), 9);
            let found = plain(trail.path());
            assert!(found.is_err(), "byte {at} as {byte}: {found:?}");
        }
    }
}

#[test]
fn a_trail_that_was_put_away_gets_no_record_and_stays_whole() {
    let (_dir, trail) = trail(TrailOptions::default());
    let (path, aside) = (trail.path().to_owned(), trail.path().with_extension("aside"));
    (0..3).for_each(|n| add(&trail, n));
    let bytes = std::fs::read(file(&path, 1)).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    // Nothing is there, then another trail, which may be longer or shorter.
    for others in [None, Some(1), Some(9)] {
        if let Some(others) = others {
            let another = Trail::open(&path, TrailOptions::default()).unwrap();
            (0..others).for_each(|n| add(&another, n));
        }
        let refused = trail.append(AuditEntry::new("x"), Durability::Written).unwrap_err();
        assert!(matches!(refused, AuditError::Moved { what: "directory", .. }), "{others:?}: {refused}");
        assert!(matches!(trail.begin(AuditEntry::new("x").run("r")), Err(AuditError::Moved { .. })), "{others:?}");
        assert_eq!(std::fs::read(file(&aside, 1)).unwrap(), bytes, "{others:?}");
        plain(&aside).unwrap();
        if others.is_some() {
            plain(&path).unwrap();
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
    // Back in its place it goes on.
    std::fs::rename(&aside, &path).unwrap();
    add(&trail, 3);
    assert_eq!(plain(&path).unwrap().last.seq, 5);
    // Neither does it when another lock was made: its writers would not see this one.
    std::fs::rename(path.join("lock"), path.join("aside")).unwrap();
    let another = Trail::open(&path, TrailOptions::default()).unwrap();
    let refused = trail.append(AuditEntry::new("x"), Durability::Written).unwrap_err();
    assert!(matches!(refused, AuditError::Moved { what: "lock", .. }), "{refused}");
    add(&another, 4);
    assert_eq!(plain(&path).unwrap().last.seq, 6);
}

#[test]
fn a_record_without_its_newline_is_a_record() {
    let (_dir, trail) = trail(TrailOptions::default());
    (0..2).for_each(|n| add(&trail, n));
    let path = file(trail.path(), 1);
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    add(&Trail::open(trail.path(), TrailOptions::default()).unwrap(), 2);
    let found = plain(trail.path()).unwrap();
    assert_eq!((found.last.seq, found.recovered.len()), (4, 0));
    assert!(std::fs::read(&path).unwrap().starts_with(&good));
}

#[test]
fn a_tear_where_a_file_is_full_is_sealed_in_that_file() {
    let options = || TrailOptions { rotate_at: 2000, ..TrailOptions::default() };
    let (_dir, trail) = trail(options());
    let path = file(trail.path(), 1);
    while std::fs::metadata(&path).map_or(0, |about| about.len()) < 1900 {
        add(&trail, 0);
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&[b'x'; 300]);
    std::fs::write(&path, &bytes).unwrap();
    let again = Trail::open(trail.path(), options()).unwrap();
    add(&again, 1);
    let found = plain(trail.path()).unwrap();
    assert_eq!((found.recovered.len(), found.files), (1, 2));
}

#[test]
fn a_writer_killed_after_creating_a_file_blocks_no_other() {
    let options = || TrailOptions { rotate_at: 2000, ..TrailOptions::default() };
    let (_dir, trail) = trail(options());
    while std::fs::metadata(file(trail.path(), 1)).map_or(0, |about| about.len()) < 2000 {
        add(&trail, 0);
    }
    std::fs::write(file(trail.path(), 2), b"").unwrap();
    let last =
        Trail::open(trail.path(), options()).unwrap().append(AuditEntry::new("note"), Durability::Durable).unwrap();
    assert_eq!(plain(trail.path()).unwrap().last.seq, last.seq);
}

#[test]
fn the_first_file_begins_with_the_first_record() {
    let options = || TrailOptions { rotate_at: 1000, ..TrailOptions::default() };
    let (_dir, trail) = trail(options());
    (0..20).for_each(|n| add(&trail, n));
    let path = file(trail.path(), 1);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.split_once('\n').unwrap().1).unwrap();
    assert_eq!(plain(trail.path()).unwrap_err(), Wrong::Removed { from: 1, to: 1 });
    std::fs::remove_file(&path).unwrap();
    assert!(plain(trail.path()).unwrap().first > 1, "whole files may be put away");
}

#[test]
fn numbers_that_no_writer_gives_are_no_records() {
    for seq in [0, u64::MAX] {
        let (_dir, trail) = trail(TrailOptions::default());
        let entry = AuditEntry::new("checkpoint").with("seq", 1);
        let (line, _) = record::write(&entry, "t", &Link { seq: 7, hash: [0; 32] });
        let body = String::from_utf8(line).unwrap();
        let body = &body[..body.rfind(",\"hash\"").unwrap()].replace("{\"seq\":8", &format!("{{\"seq\":{seq}"));
        let text = format!("{body},\"hash\":\"{}\"}}\n", hex(&sha256(body.as_bytes())));
        std::fs::write(file(trail.path(), 2), text).unwrap();
        assert!(plain(trail.path()).is_err(), "{seq}");
    }
}

#[test]
fn a_key_that_signed_nothing_vouches_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    let path = dir.path().join("audit");
    let anew = Trail::open(&path, TrailOptions::default()).unwrap();
    (0..3).for_each(|n| add(&anew, n));
    assert_eq!(check(&path, Some(key.public()), &Anchored::new()).unwrap_err(), Wrong::Unsigned);
    let signing = Trail::open(&path, TrailOptions { key: Some(key.clone()), ..TrailOptions::default() }).unwrap();
    signing.checkpoint().unwrap();
    check(&path, Some(key.public()), &Anchored::new()).unwrap();
}

#[test]
fn a_trail_that_begins_after_the_anchored_records_is_another() {
    let options = || TrailOptions { rotate_at: 1000, ..TrailOptions::default() };
    let (_dir, trail) = trail(options());
    (0..20).for_each(|n| add(&trail, n));
    let mut links = std::collections::BTreeMap::new();
    verify(trail.path(), None, &Anchored::new(), &mut |r| {
        links.extend(r.link().map(|link| (link.seq, link.hash)));
    })
    .unwrap();
    std::fs::remove_file(file(trail.path(), 1)).unwrap();
    let begins = plain(trail.path()).unwrap().first;
    let anchored = |seq: u64| check(trail.path(), None, &Anchored::from([(seq, links[&seq])]));
    assert_eq!(anchored(begins - 2).unwrap_err(), Wrong::Unanchored { anchored: begins - 2 });
    // The first record names the one before it, so that one is still compared.
    assert_eq!(anchored(begins - 1).unwrap().anchored, 1);
    let other = check(trail.path(), None, &Anchored::from([(begins - 1, [7; 32])]));
    assert_eq!(other.unwrap_err(), Wrong::Rewritten { anchored: begins - 1 });
    assert_eq!(anchored(begins).unwrap().anchored, 1);
}

/// What an anchor's file says of a trail.
fn lines_of(text: impl AsRef<[u8]>, trail: Option<&str>) -> Vec<(u64, Vec<Hash>)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("anchor");
    std::fs::write(&path, text).unwrap();
    let lines = anchored(&path).unwrap().lines_of(trail);
    lines.into_iter().map(|(seq, hashes)| (seq, hashes.into_iter().collect())).collect()
}

#[test]
fn no_line_of_an_anchor_takes_the_place_of_another() {
    let line = |byte: u8| format!("host cofferdam[1]: cofferdam-audit 5 {} t\n", hex(&[byte; 32]));
    let named = |byte: u8| line(byte).replace(" t\n", " t trail-a\n");
    let (one, both) = (vec![(5, vec![[1; 32]])], vec![(5, vec![[1; 32], [2; 32]])]);
    assert_eq!(lines_of(format!("{0}other programs'\n{0}", line(1)), None), one, "the same line again adds nothing");
    let noise = [line(1).as_bytes(), b"\xff\xfe no text\n", line(2).as_bytes()].concat();
    assert_eq!(lines_of(noise, None), both);
    for text in [[line(1), line(2)], [line(2), line(1)]] {
        assert_eq!(lines_of(text.concat(), None), both);
    }
    // Nor with the name of the trail.
    for text in [[line(1), named(2)], [named(2), line(1)], [named(1), named(2)], [named(2), named(1)]] {
        assert_eq!(lines_of(text.concat(), Some("trail-a")), both, "{text:?}");
    }
    assert_eq!(lines_of([line(1), named(2)].concat(), Some("trail-b")), one);
}

#[test]
fn what_has_no_line_end_hides_no_line_of_an_anchor() {
    let genuine = format!("cofferdam-audit 5 {} t trail-a\n", hex(&[1; 32]));
    let forged = format!("cofferdam-audit 5 {} t trail-a", hex(&[2; 32]));
    for before in ["", "x", "cofferdam-audit", "cofferdam-audit ", "cofferdam-audit 7 ", "cofferdam-audit x y z "] {
        assert_eq!(lines_of(format!("{before}{genuine}"), Some("trail-a")), [(5, vec![[1; 32]])], "{before:?}");
    }
    // Half a character of UTF-8.
    let cut = [b"\xe2\x82".as_slice(), genuine.as_bytes()].concat();
    assert_eq!(lines_of(cut, Some("trail-a")), [(5, vec![[1; 32]])]);
    for before in [forged.clone(), format!("{forged} ")] {
        let found = lines_of(format!("{before}{genuine}"), Some("trail-a"));
        assert_eq!(found, [(5, vec![[1; 32], [2; 32]])], "{before:?}");
    }
}

#[test]
fn lines_added_to_an_anchor_hide_no_other_history() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    let anchor = dir.path().join("anchor");
    let options = || TrailOptions {
        key: Some(key.clone()),
        anchor: Some(Anchor::File(anchor.clone())),
        ..TrailOptions::default()
    };
    let trail = Trail::open(&dir.path().join("audit"), options()).unwrap();
    add(&trail, 0);
    trail.checkpoint().unwrap();
    // Another history after the same beginning, as one writes it who has no key.
    let fork = dir.path().join("fork");
    std::fs::create_dir(&fork).unwrap();
    std::fs::set_permissions(&fork, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::copy(file(trail.path(), 1), file(&fork, 1)).unwrap();
    let forged = Trail::open(&fork, TrailOptions::default()).unwrap();
    (0..9).for_each(|n| add(&forged, n + 100));
    add(&trail, 1);
    trail.checkpoint().unwrap();
    let genuine = std::fs::read_to_string(&anchor).unwrap();
    assert_eq!(genuine.lines().count(), 2);
    let last = genuine.lines().last().unwrap();
    let seq: u64 = last.split(' ').nth(1).unwrap().parse().unwrap();
    let mut hash = None;
    verify(&fork, None, &Anchored::new(), &mut |r| {
        hash = r.link().filter(|link| link.seq == seq).map(|link| hex(&link.hash)).or(hash.take());
    })
    .unwrap();
    let added = last.replace(last.split(' ').nth(2).unwrap(), &hash.unwrap());
    let unnamed = added.rsplit_once(' ').unwrap().0.to_owned();
    assert!(added != last && unnamed != added);
    let verified = |path: &Path, text: &str| {
        std::fs::write(&anchor, text).unwrap();
        check(path, Some(key.public()), &anchored(&anchor).unwrap())
    };
    let rewritten = || Wrong::Rewritten { anchored: seq };
    // The genuine trail passes with its lines, however often they are there; the other never does.
    for text in [genuine.clone(), genuine.repeat(2), format!("{last}\n{genuine}"), format!("{genuine}{last}\n")] {
        assert_eq!(verified(trail.path(), &text).unwrap().anchored, 2, "{text}");
        assert_eq!(verified(&fork, &text).unwrap_err(), rewritten(), "{text}");
    }
    // Added lines raise an alarm for both, wherever they stand.
    for added in [added, unnamed] {
        for text in [format!("{added}\n{genuine}"), format!("{genuine}{added}\n")] {
            assert_eq!(verified(trail.path(), &text).unwrap_err(), rewritten(), "{text}");
            assert_eq!(verified(&fork, &text).unwrap_err(), rewritten(), "{text}");
        }
    }
    // Without the genuine line the other would pass: that line alone shows it.
    let first = genuine.lines().next().unwrap();
    assert!(verified(&fork, &format!("{first}\n")).is_ok());
}

#[test]
fn a_line_of_one_trail_does_not_stand_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    let anchor = dir.path().join("anchor");
    let options = || TrailOptions {
        key: Some(key.clone()),
        anchor: Some(Anchor::File(anchor.clone())),
        ..TrailOptions::default()
    };
    let open = |name: &str| Trail::open(&dir.path().join(name), options()).unwrap();
    let (one, two) = (open("one"), open("two"));
    for trail in [&one, &two] {
        (0..3).for_each(|n| add(trail, n));
        trail.checkpoint().unwrap();
    }
    let of = |trail: &Trail| plain(trail.path()).unwrap().trail.unwrap();
    let (first, second) = (of(&one), of(&two));
    assert_ne!(first, second);
    let all = || anchored(&anchor).unwrap();
    // Two trails share the anchor: which one is meant has to be said.
    let found = check(one.path(), Some(key.public()), &all()).unwrap_err();
    assert!(matches!(found, Wrong::OtherTrail { .. }), "{found:?}");
    assert_eq!(check(one.path(), Some(key.public()), &all().of(&first)).unwrap().anchored, 1);
    assert_eq!(check(two.path(), Some(key.public()), &all().of(&second)).unwrap().anchored, 1);
    let wanted = |wanted: &str, found: &str| Wrong::OtherTrail { wanted: wanted.into(), found: Some(found.into()) };
    assert_eq!(check(one.path(), None, &all().of(&second)).unwrap_err(), wanted(&second, &first));
    assert_eq!(check(one.path(), None, &Anchored::new().of(&second)).unwrap_err(), wanted(&second, &first));
    // Written anew under a name of its own, with lines of its own added to the anchor: neither way does it pass.
    std::fs::write(&anchor, std::fs::read_to_string(&anchor).unwrap().lines().next().unwrap().to_owned() + "\n")
        .unwrap();
    assert!(check(one.path(), None, &all()).is_ok());
    std::fs::remove_dir_all(one.path()).unwrap();
    let anew = open("one");
    (0..9).for_each(|n| add(&anew, n));
    anew.checkpoint().unwrap();
    let third = of(&anew);
    assert_eq!(check(anew.path(), None, &all()).unwrap_err(), wanted(&first, &third));
    assert_eq!(check(anew.path(), None, &all().of(&first)).unwrap_err(), wanted(&first, &third));
}

#[test]
fn which_trail_it_is_is_known_while_a_checkpoint_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    let anchor = dir.path().join("anchor");
    let trail = Trail::open(
        &dir.path().join("audit"),
        TrailOptions {
            key: Some(key.clone()),
            rotate_at: 1000,
            checkpoint_every: 4,
            anchor: Some(Anchor::File(anchor.clone())),
            ..TrailOptions::default()
        },
    )
    .unwrap();
    (0..20).for_each(|n| add(&trail, n));
    let known = plain(trail.path()).unwrap().trail;
    (1..4).for_each(|number| std::fs::remove_file(file(trail.path(), number)).unwrap());
    trail.checkpoint().unwrap();
    let found = check(trail.path(), Some(key.public()), &anchored(&anchor).unwrap()).unwrap();
    assert!(known.is_some() && found.trail == known && found.first > 1 && found.anchored > 0, "{found:?}");
}

#[test]
fn special_files_are_neither_waited_for_nor_followed() {
    let (dir, trail) = trail(TrailOptions::default());
    add(&trail, 0);
    let (sent, done) = std::sync::mpsc::channel();
    let place = trail.path().to_owned();
    let second = file(&place, 2);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &second,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let elsewhere = dir.path().join("elsewhere");
    std::fs::write(&elsewhere, b"").unwrap();
    std::thread::spawn(move || {
        let read = || verify(&place, None, &Anchored::new(), &mut |_| {}).is_err();
        let pipe = (read(), show(&place, &RecordFilter::default(), |_| Ok(())).is_err());
        let opened = Trail::open(&place, TrailOptions::default()).is_ok();
        std::fs::remove_file(&second).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &second).unwrap();
        sent.send((pipe, opened, read())).unwrap();
    });
    let found = done.recv_timeout(std::time::Duration::from_secs(10)).expect("nobody waits for the pipe's writer");
    assert_eq!((found.0, found.2), ((true, true), true));
    drop(trail);
}

/// A user that is not this one.
const OTHER: u32 = 65534;

fn is_foreign(opened: Result<Trail, AuditError>) -> bool {
    matches!(opened, Err(AuditError::Foreign { .. }))
}

fn give(path: &Path) {
    std::os::unix::fs::chown(path, Some(OTHER), Some(OTHER)).unwrap();
}

#[test]
fn a_trail_that_belongs_to_another_user_is_not_written() {
    let (dir, trail) = trail(TrailOptions::default());
    add(&trail, 0);
    let place = trail.path().to_owned();
    let open = || Trail::open(&place, TrailOptions::default());
    drop(trail);
    assert!(open().is_ok());
    // What was put there while others could, and that others can still change, is not trusted later.
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for name in ["lock", "trail-000001.jsonl"] {
        mode(&place.join(name), 0o620);
        let found = open().and_then(|trail| trail.append(AuditEntry::new("note"), Durability::Written)).unwrap_err();
        assert!(matches!(&found, AuditError::Open { path } if path.ends_with(name)), "{name}: {found}");
        mode(&place.join(name), 0o600);
        open().unwrap().append(AuditEntry::new("note"), Durability::Written).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        // Only root can give files away; there is always a directory of root's.
        let found = Trail::open(Path::new("/usr"), TrailOptions::default());
        assert!(is_foreign(found), "of root's");
        assert!(is_foreign(Trail::open(
            Path::new("/usr"),
            TrailOptions { of_others: true, ..TrailOptions::default() }
        )));
        return;
    }
    give(&place);
    assert!(is_foreign(open()), "its owner can change all of it");
    std::os::unix::fs::chown(&place, Some(0), Some(0)).unwrap();
    for name in ["lock", "trail-000001.jsonl"] {
        give(&place.join(name));
        let found = open().and_then(|trail| trail.append(AuditEntry::new("note"), Durability::Written));
        assert!(matches!(&found, Err(AuditError::Foreign { path, .. }) if path.ends_with(name)), "{name}: {found:?}");
        std::os::unix::fs::chown(place.join(name), Some(0), Some(0)).unwrap();
    }
    open().unwrap().append(AuditEntry::new("note"), Durability::Written).unwrap();
    plain(&place).unwrap();
    drop(dir);
}

#[test]
fn root_can_sign_a_trail_that_its_owner_still_writes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let (dir, trail) = trail(TrailOptions::default());
    add(&trail, 0);
    let place = trail.path().to_owned();
    drop(trail);
    let key = CheckpointKey::make(&dir.path().join("key")).unwrap();
    ["", "lock", "trail-000001.jsonl"].iter().for_each(|name| give(&place.join(name)));
    let options = || TrailOptions { key: Some(key.clone()), rotate_at: 1, of_others: true, ..TrailOptions::default() };
    let signing = Trail::open(&place, options()).unwrap();
    signing.checkpoint().unwrap();
    assert_eq!(check(&place, Some(key.public()), &Anchored::new()).unwrap().files, 2, "it went on in a next file");
    for entry in std::fs::read_dir(&place).unwrap() {
        use std::os::unix::fs::MetadataExt;
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().uid(), OTHER, "{:?}", entry.file_name());
    }
    // A file of root's that its owner linked there is not written for them.
    let own = dir.path().join("roots");
    std::fs::write(&own, "").unwrap();
    drop(signing);
    std::fs::remove_file(place.join("lock")).unwrap();
    std::fs::hard_link(&own, place.join("lock")).unwrap();
    assert!(is_foreign(Trail::open(&place, options())));
    assert_eq!(std::fs::metadata(&own).unwrap().len(), 0);
}
