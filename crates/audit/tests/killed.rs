//! The audit trail under processes that are killed, and on a disk that is full.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_audit::{
    Anchored, AuditEntry, AuditError, Durability, Life, RecordingProcess, Trail, TrailOptions, verify,
};

const DIR: &str = "COFFERDAM_TEST_TRAIL";
const WRITER: &str = "COFFERDAM_TEST_WRITER";

fn options() -> TrailOptions {
    TrailOptions { rotate_at: 4 << 20, ..TrailOptions::default() }
}

/// Not a test of its own: what the tests below start, again and again, and kill.
#[test]
#[ignore = "no test: the process that the tests of many writers start by name and kill, which they run"]
fn writer() {
    let dir = std::env::var_os(DIR).expect("the trail's directory");
    let me: u64 = std::env::var(WRITER).expect("the writer's number").parse().expect("a number");
    let trail = Trail::open(Path::new(&dir), options()).expect("the trail opens after any kill");
    for n in 0.. {
        let entry = AuditEntry::new("note").with("writer", me).with("n", n);
        if n % 50 == 0 {
            let run = format!("{me}-{n}");
            let begun = trail.begin(AuditEntry { kind: "sandbox_started".into(), ..entry }.run(&run)).expect("begun");
            let end = AuditEntry::new("sandbox_completed").run(&run).with("writer", me).with("n", n);
            begun.end(end).expect("ended");
        } else {
            trail.append(entry, Durability::Written).expect("written");
        }
    }
}

fn start(dir: &Path, number: u64) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "writer", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(WRITER, number.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a writer starts")
}

/// A small generator, so that a failure can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn bytes(dir: &Path) -> u64 {
    let all =
        std::fs::read_dir(dir).expect("the directory").map(|e| e.expect("an entry").metadata().expect("its size"));
    all.map(|m| m.len()).sum()
}

#[test]
fn trails_of_randomly_killed_processes_verify() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("audit");
    let mut random = Random(7);
    let mut writers: Vec<Child> = (0..8).map(|n| start(&dir, n)).collect();
    let mut kills = 8;
    let begun = Instant::now();
    // About 240 bytes each.
    while bytes(&dir.join("..").join("audit")) < 100_000 * 250 || kills < 60 {
        assert!(begun.elapsed() < Duration::from_secs(240), "the writers stand still");
        std::thread::sleep(Duration::from_millis(random.below(120)));
        let which = random.below(8) as usize;
        writers[which].kill().expect("SIGKILL");
        writers[which].wait().expect("reaped");
        writers[which] = start(&dir, kills);
        kills += 1;
    }
    for writer in &mut writers {
        writer.kill().expect("SIGKILL");
        writer.wait().expect("reaped");
    }
    // The next writer seals what the last ones left.
    let trail = Trail::open(&dir, options()).expect("opens");
    trail.append(AuditEntry::new("note").with("writer", 1_000_000).with("n", 0), Durability::Durable).expect("written");
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut notes = 0u64;
    let found = verify(&dir, None, &Anchored::new(), &mut |record| {
        let number = |key: &str| record.data.get(key).and_then(serde_json::Value::as_u64);
        if let Some(run) = &record.run {
            runs.entry(run.clone()).or_default().push(record.kind.clone());
        }
        if let (Some(writer), Some(n)) = (number("writer"), number("n")) {
            notes += 1;
            // No record of a writer's is lost between two that stand there.
            let before = last.insert(writer, n);
            assert!(
                before.is_none_or(|before| n == before || n == before + 1),
                "writer {writer}: {before:?}, then {n}"
            );
        }
    })
    .expect("the chain holds");
    // Each run has one start and one end, from its owner or, where that was killed, from another.
    let mut abandoned = 0;
    for (run, kinds) in &runs {
        assert!(kinds.len() == 2 && kinds[0] == "sandbox_started", "{run}: {kinds:?}");
        assert!(["sandbox_completed", "sandbox_abandoned"].contains(&kinds[1].as_str()), "{run}: {kinds:?}");
        abandoned += u64::from(kinds[1] == "sandbox_abandoned");
    }
    assert!(found.unended.is_empty(), "{:?}", found.unended);
    println!("{} runs, {abandoned} of them ended by others", runs.len());
    assert!(notes >= 90_000 && found.last.seq >= notes, "{notes} of {}", found.last.seq);
    println!("{} records, {} kills, {} seals, {} files", found.last.seq, kills, found.recovered.len(), found.files);

    // Any byte of it changed is found: random places of the middle file.
    let place = dir.join("trail-000002.jsonl");
    let whole = std::fs::read(&place).expect("the second file");
    for _ in 0..25 {
        let at = random.below(whole.len() as u64) as usize;
        let mut other = whole.clone();
        other[at] ^= 1 << random.below(8);
        std::fs::write(&place, &other).expect("changed");
        assert!(verify(&dir, None, &Anchored::new(), &mut |_| {}).is_err(), "byte {at}");
    }
    std::fs::write(&place, &whole).expect("as it was");
    verify(&dir, None, &Anchored::new(), &mut |_| {}).expect("holds again");
}

/// Begins a run and does not end it: tests kill it.
#[test]
#[ignore = "no test: a process that another test starts by name, and so runs"]
fn begins_and_waits() {
    let dir = std::env::var_os(DIR).expect("the trail's directory");
    let trail = Trail::open(Path::new(&dir), TrailOptions::default()).expect("opens");
    let run = std::env::var(WRITER).expect("the run's name");
    let _begun = trail.begin(AuditEntry::new("sandbox_started").run(&run).skill("s")).expect("begun");
    println!("begun");
    std::thread::sleep(Duration::from_secs(60));
}

/// Such a process, with its run on record.
fn begun(dir: &Path, run: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "begins_and_waits", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(WRITER, run)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("begun")), "it begins");
    child
}

#[test]
fn only_runs_of_killed_owners_are_ended_and_only_once() {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("audit");
    let (mut killed, mut alive) = (begun(&dir, "killed"), begun(&dir, "alive"));
    let told = || {
        let mut ends = Vec::new();
        let found = verify(&dir, None, &Anchored::new(), &mut |record| {
            if record.kind == "sandbox_abandoned" {
                ends.push((record.run.clone().unwrap_or_default(), record.data.clone()));
            }
        })
        .expect("holds");
        let lives: Vec<_> =
            found.unended.iter().map(|it| (it.run.clone(), it.owner.as_ref().map(RecordingProcess::life))).collect();
        (lives, ends)
    };
    // Eight at once, again and again.
    let open = || {
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| drop(Trail::open(&dir, TrailOptions::default()).expect("opens")))))
        })
    };
    open();
    let live = |run: &str, life| (run.to_owned(), Some(life));
    assert_eq!(told(), (vec![live("killed", Life::Running), live("alive", Life::Running)], vec![]));
    killed.kill().expect("SIGKILL");
    let pid = killed.id();
    killed.wait().expect("reaped");
    assert_eq!(told(), (vec![live("killed", Life::Gone), live("alive", Life::Running)], vec![]), "not yet opened");
    open();
    open();
    let (lives, ends) = told();
    assert_eq!(lives, [live("alive", Life::Running)]);
    let [(run, data)] = &ends[..] else { panic!("once: {ends:?}") };
    assert_eq!((run.as_str(), &data["why"], &data["owner"]["pid"]), ("killed", &"owner_gone".into(), &pid.into()));
    alive.kill().expect("SIGKILL");
    alive.wait().expect("reaped");
    // A writer that is open already notices when it begins a run itself.
    let trail = Trail::open(&dir, TrailOptions::default()).expect("opens");
    let mut third = begun(&dir, "third");
    third.kill().expect("SIGKILL");
    third.wait().expect("reaped");
    trail
        .begin(AuditEntry::new("sandbox_started").run("x"))
        .expect("begun")
        .end(AuditEntry::new("sandbox_completed").run("x"))
        .expect("ended");
    let (lives, ends) = told();
    assert_eq!(
        (lives.len(), ends.iter().map(|(run, _)| run.as_str()).collect::<Vec<_>>()),
        (0, vec!["killed", "alive", "third"])
    );
}

/// A writer in a file system of 1 MiB, in namespaces of its own: it says on standard output what became of it.
#[test]
#[ignore = "no test: a process that another test starts by name, and so runs"]
fn on_a_full_disk() {
    let dir = std::env::var_os(DIR).expect("the trail's directory");
    let trail = Trail::open(Path::new(&dir), TrailOptions::default()).expect("opens");
    let begun = trail.begin(AuditEntry::new("sandbox_started").run("r")).expect("there is room");
    let mut written = 0;
    let why = loop {
        match trail.append(AuditEntry::new("note").with("text", "x".repeat(1000)), Durability::Written) {
            Ok(_) => written += 1,
            Err(e) => break e,
        }
        assert!(written < 10_000, "the disk has no end");
    };
    assert!(matches!(why, AuditError::Full { .. }), "{why}");
    let refused = trail.begin(AuditEntry::new("sandbox_started").run("other"));
    assert!(matches!(refused, Err(AuditError::Full { .. })), "{refused:?}");
    begun
        .end(AuditEntry::new("sandbox_completed").run("r").with("text", "y".repeat(5000)))
        .expect("room was kept for it");
    let found = verify(Path::new(&dir), None, &Anchored::new(), &mut |_| {}).expect("holds");
    assert_eq!(found.last.seq, written + 3, "opened, started, notes, completed");
    println!("full after {written} records, and the end was written");
}

#[test]
fn on_a_full_disk_runs_can_end_but_not_start() {
    let root = tempfile::tempdir().expect("a directory");
    let script = "mount -t tmpfs -o size=1m tmpfs \"$1\" && shift && exec \"$@\"";
    let run = Command::new("unshare")
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(root.path())
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "on_a_full_disk", "--ignored", "--nocapture"])
        .env(DIR, root.path().join("audit"))
        .output()
        .expect("unshare(1) is there");
    let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && text.contains("and the end was written"), "{text}");
}
