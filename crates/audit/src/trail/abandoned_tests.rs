//! Runs whose owners do not end them: which get an end from another process, and which must never. What kill -9 of a
//! process does is in the integration tests; here are the moments at which it could come.

use std::os::unix::fs::FileExt;

use super::*;
use crate::end_slots::SlotOwner;
use crate::*;

/// A trail, and a second writer's store of it.
fn trail() -> (tempfile::TempDir, Trail) {
    let dir = tempfile::tempdir().unwrap();
    let trail = Trail::open(&dir.path().join("audit"), TrailOptions::default()).unwrap();
    (dir, trail)
}

fn run(id: &str) -> AuditEntry {
    AuditEntry::new("sandbox_started").run(id).skill("s")
}

fn end(id: &str) -> AuditEntry {
    AuditEntry::new("sandbox_completed").run(id)
}

/// Every record as kind and run, and the runs without an end.
fn read(trail: &Trail) -> (Vec<(String, String)>, Vec<Unended>) {
    let mut all = Vec::new();
    let found = verify(trail.path(), None, &Anchored::new(), &mut |r| {
        all.push((r.kind.clone(), r.run.clone().unwrap_or_default()));
    })
    .unwrap();
    (all.split_off(1), found.unended)
}

fn kinds(trail: &Trail) -> Vec<String> {
    read(trail).0.into_iter().map(|(kind, _)| kind).collect()
}

/// Pretends that the owner of this slot had a process id which no process has any more.
fn make_gone(trail: &Trail, slot: usize, namespace: u32) {
    let mut store = TrailStore::open(trail.path(), 1 << 20, false).unwrap();
    let gone = SlotOwner(u64::from(namespace) << 32 | u64::from(u32::MAX - 1));
    store.hold("t").unwrap().set_slot(slot, (gone, 7)).unwrap();
}

fn again(trail: &Trail) -> Trail {
    Trail::open(trail.path(), TrailOptions::default()).unwrap()
}

#[test]
fn running_runs_keep_their_owner_and_get_no_other_end() {
    let (_dir, trail) = trail();
    let begun = trail.begin(run("a")).unwrap();
    let left = read(&trail).1;
    assert_eq!((left.len(), left[0].run.as_str(), left[0].seq, left[0].skill.as_deref()), (1, "a", 2, Some("s")));
    assert_eq!(
        (left[0].owner.clone(), left[0].owner.as_ref().unwrap().life()),
        (Some(RecordingProcess::me()), Life::Running)
    );
    assert!(again(&trail).begin(run("b")).unwrap().end(end("b")).unwrap().seq > 0);
    assert_eq!(kinds(&trail), ["sandbox_started", "sandbox_started", "sandbox_completed"]);
    begun.end(end("a")).unwrap();
    assert!(read(&trail).1.is_empty());
}

#[test]
fn a_free_pid_is_no_proof_while_the_lock_is_held() {
    let (_dir, trail) = trail();
    let here = RecordingProcess::me().namespace;
    // Of this namespace, and of another container's.
    for (at, namespace) in [here, here ^ 1].into_iter().enumerate() {
        let id = format!("r{at}");
        let begun = trail.begin(run(&id)).unwrap();
        make_gone(&trail, 0, namespace);
        drop(again(&trail));
        assert!(again(&trail).begin(run("x")).unwrap().end(end("x")).unwrap().seq > 0);
        assert!(read(&trail).1.iter().any(|left| left.run == id), "its file is held: {:?}", kinds(&trail));
        // What held the file is dead, by whatever death.
        let mut begun = std::mem::ManuallyDrop::new(begun);
        drop(begun.reserved.take());
        make_gone(&trail, 0, namespace);
        drop(again(&trail));
        let (all, left) = read(&trail);
        assert_eq!((all.last(), left.len()), (Some(&("sandbox_abandoned".to_owned(), id)), 0));
        drop(again(&trail));
        assert_eq!(read(&trail).0, all, "once");
    }
}

#[test]
fn a_free_lock_is_no_proof_while_the_process_lives() {
    let (_dir, trail) = trail();
    let mut begun = std::mem::ManuallyDrop::new(trail.begin(run("a")).unwrap());
    // The file was removed, or the file system has no such locks.
    drop(begun.reserved.take());
    for remove in [false, true] {
        if remove {
            std::fs::remove_file(trail.path().join("run-0001")).unwrap();
        }
        drop(again(&trail));
        assert_eq!(kinds(&trail), ["sandbox_started"]);
    }
    // Nobody there, and no file that proves it: the room is given away, and the run stays one without an end.
    make_gone(&trail, 0, RecordingProcess::me().namespace);
    drop(again(&trail));
    assert_eq!((kinds(&trail), read(&trail).1.len()), (vec!["sandbox_started".to_owned()], 1));
}

#[test]
fn killed_after_the_end_was_written_there_is_no_second_one() {
    let (_dir, trail) = trail();
    trail.begin(run("a")).unwrap().end(end("a")).unwrap();
    make_gone(&trail, 0, RecordingProcess::me().namespace);
    drop(again(&trail));
    assert_eq!(kinds(&trail), ["sandbox_started", "sandbox_completed"]);
}

#[test]
fn killed_before_the_start_was_written_there_is_nothing_to_end() {
    let killed = |trail: &Trail| {
        let mut store = TrailStore::open(trail.path(), 1 << 20, false).unwrap();
        drop(store.hold("t").unwrap().reserve(&RecordingProcess::me(), "killed", "t").unwrap());
    };
    let opened = |trail: &Trail| {
        make_gone(trail, 0, RecordingProcess::me().namespace);
        drop(again(trail));
        read(trail)
    };
    let is_ended = |all: &[(String, String)]| all.iter().any(|(kind, _)| kind == "sandbox_abandoned");
    for left in ["", "{\"seq\":3,\"ti"] {
        let (_dir, trail) = trail();
        trail.append(AuditEntry::new("note"), Durability::Written).unwrap();
        killed(&trail);
        let file = std::fs::OpenOptions::new().write(true).open(trail.path().join(store::file_name(1))).unwrap();
        file.write_all_at(left.as_bytes(), file.metadata().unwrap().len()).unwrap();
        assert!(!is_ended(&opened(&trail).0));
    }
    // It was not quite dead when another came, whose run begins where its own would have: that one is not ended for it.
    let (_dir, trail) = trail();
    killed(&trail);
    let mut store = TrailStore::open(trail.path(), 1 << 20, false).unwrap();
    let reserved = store.hold("t").unwrap().reserve(&RecordingProcess::me(), "other", "t").unwrap();
    assert_eq!(reserved.slot, EndSlot(1));
    trail.append(run("other"), Durability::Written).unwrap();
    let (all, left) = opened(&trail);
    assert!(!is_ended(&all) && left.len() == 1 && left[0].run == "other", "{all:?}");
}

#[test]
fn a_start_at_the_beginning_of_an_older_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let options = || TrailOptions { rotate_at: 1000, ..TrailOptions::default() };
    let trail = Trail::open(&dir.path().join("audit"), options()).unwrap();
    let note = || trail.append(AuditEntry::new("note").with("text", "x".repeat(600)), Durability::Written).unwrap();
    note();
    note();
    let mut begun = std::mem::ManuallyDrop::new(trail.begin(run("a")).unwrap());
    (0..9).for_each(|_| assert!(note().seq > 0));
    drop(begun.reserved.take());
    make_gone(&trail, 0, RecordingProcess::me().namespace);
    drop(Trail::open(trail.path(), options()).unwrap());
    let (all, left) = read(&trail);
    assert_eq!((all.last(), left.len()), (Some(&("sandbox_abandoned".to_owned(), "a".to_owned())), 0));
}

#[test]
fn what_is_given_up_says_so_itself() {
    let (_dir, trail) = trail();
    drop(trail.begin(run("a")).unwrap());
    let mut last = None;
    verify(trail.path(), None, &Anchored::new(), &mut |r| last = Some(r.clone())).unwrap();
    let last = last.unwrap();
    assert_eq!(
        (last.kind.as_str(), last.run.as_deref(), last.skill.as_deref()),
        ("sandbox_abandoned", Some("a"), Some("s"))
    );
    assert_eq!((&last.data["why"], &last.data["started"]), (&"given_up".into(), &2.into()));
    assert_eq!(last.data["owner"]["pid"], std::process::id());
}
