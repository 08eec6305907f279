//! The cache: a result is valid exactly as long as nothing that it depends on has changed.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_profiles::cache::{EvaluationCache, now_ns};
use cofferdam_profiles::identity::sha256;
use cofferdam_profiles::protocol::{Evaluated, FileSeen, FileStamp};

/// An hour: all files here are older than an entry with this time.
const HOUR_NS: i64 = 3_600_000_000_000;

struct Scene {
    keep: tempfile::TempDir,
    cache: EvaluationCache,
}

impl Scene {
    fn new() -> Scene {
        let keep = tempfile::tempdir().unwrap();
        let cache = EvaluationCache::with_keys(keep.path().join("cache"), keep.path().join("keys"));
        Scene { keep, cache }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    /// Stores a result that depends on this file, at this time.
    fn kept(&self, path: &Path, begun_ns: i64) -> Evaluated {
        let file = File::open(path).unwrap();
        let seen = FileSeen {
            path: path.to_owned(),
            identity: FileStamp::of(&file.metadata().unwrap()),
            sha256: sha256(&fs::read(path).unwrap()),
        };
        let answer = Evaluated {
            outputs: vec![Ok("text\n".into()), Err("refused".into())],
            warnings: vec!["w".into()],
            files: vec![seen],
            absent: vec![self.path("absent")],
        };
        self.cache.keep("question", &answer, begun_ns);
        answer
    }

    fn entry(&self) -> PathBuf {
        self.path("cache").join(sha256(b"question"))
    }
}

#[test]
fn result_is_valid_until_its_file_changes() {
    // A young and an old file: compared by content, and by stat(2) alone.
    for begun_ns in [now_ns(), now_ns() + HOUR_NS] {
        let scene = Scene::new();
        let file = scene.path("profile.ncl");
        fs::write(&file, "first").unwrap();
        let answer = scene.kept(&file, begun_ns);
        assert_eq!(scene.cache.look_up("question"), Some(answer));
        assert_eq!(scene.cache.look_up("another question"), None);
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&file, "other").unwrap();
        assert_eq!(scene.cache.look_up("question"), None, "the same size, another content");
    }
}

#[test]
fn entries_without_a_valid_mac_are_not_used() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    let answer = scene.kept(&file, now_ns() + HOUR_NS);
    let whole = fs::read(scene.entry()).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let edited = text.replace("text", "evil");
    assert_ne!(edited, text);
    let unsigned = text.split_once('\n').unwrap().1.to_owned();
    for forged in [edited, unsigned, String::new(), format!("{}\n{}", "0".repeat(64), text.split_once('\n').unwrap().1)]
    {
        fs::write(scene.entry(), forged).unwrap();
        assert_eq!(scene.cache.look_up("question"), None);
    }
    fs::write(scene.entry(), &whole).unwrap();
    assert_eq!(scene.cache.look_up("question"), Some(answer), "the control: as it was written");
    let other = EvaluationCache::with_keys(scene.path("cache"), scene.path("other"));
    other.keep("another", &scene.kept(&file, now_ns()), now_ns());
    assert_eq!(other.look_up("question"), None, "signed by another key");
    fs::set_permissions(scene.path("keys").join("policies.key"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(scene.cache.look_up("question"), None, "a key that others may have read");
}

#[test]
fn change_within_one_clock_tick_is_detected() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    for _ in 0..50 {
        fs::write(&file, "first").unwrap();
        scene.kept(&file, now_ns());
        fs::write(&file, "other").unwrap();
        assert_eq!(scene.cache.look_up("question"), None);
    }
}

#[test]
fn change_with_a_restored_mtime_is_detected() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    scene.kept(&file, now_ns() + HOUR_NS);
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&file, "other").unwrap();
    File::options().write(true).open(&file).unwrap().set_modified(modified).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), modified);
    assert_eq!(scene.cache.look_up("question"), None);
}

#[test]
fn touched_file_counts_as_unchanged() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    scene.kept(&file, now_ns() + HOUR_NS);
    File::options().write(true).open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let answer = scene.cache.look_up("question").expect("the content is the same");
    assert_eq!(answer.files[0].identity.mtime_ns, 0, "the new times are taken over");
    fs::remove_file(&file).unwrap();
    assert_eq!(scene.cache.look_up("question"), None, "a file that is gone");
}

#[test]
fn file_created_at_a_missing_path_invalidates_the_entry() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    scene.kept(&file, now_ns());
    fs::create_dir(scene.path("absent")).unwrap();
    assert!(scene.cache.look_up("question").is_some(), "a directory cannot be imported");
    fs::remove_dir(scene.path("absent")).unwrap();
    fs::write(scene.path("absent"), "").unwrap();
    assert_eq!(scene.cache.look_up("question"), None);
}

#[test]
fn invalid_entry_is_replaced() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    let answer = scene.kept(&file, now_ns());
    let whole = fs::read(scene.entry()).unwrap();
    for broken in [&b""[..], b"{", b"[1]", &whole[..whole.len() / 2]] {
        fs::write(scene.entry(), broken).unwrap();
        assert_eq!(scene.cache.look_up("question"), None);
        scene.cache.keep("question", &answer, now_ns());
        assert_eq!(scene.cache.look_up("question"), Some(answer.clone()));
    }
}

#[test]
fn entries_writable_by_other_users_are_not_used() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    scene.kept(&file, now_ns());
    for (path, mode) in [(scene.entry(), 0o600), (scene.path("cache"), 0o700)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o020)).unwrap();
        assert_eq!(scene.cache.look_up("question"), None, "{path:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(scene.cache.look_up("question").is_some(), "{path:?}");
    }
}

#[test]
fn the_cache_does_not_grow_without_end() {
    let scene = Scene::new();
    for n in 0..600 {
        scene.cache.keep(&format!("question {n}"), &Evaluated::default(), now_ns());
    }
    let entries = fs::read_dir(scene.path("cache")).unwrap().count();
    assert!((1..=512).contains(&entries), "{entries}");
    assert!(scene.cache.look_up("question 599").is_some(), "the newest stay");
}

#[test]
fn unusable_cache_counts_as_empty() {
    let cache = EvaluationCache::with_keys("/proc/self/no-such-place", "/proc/self/no-such-keys");
    cache.keep("question", &Evaluated::default(), now_ns());
    assert_eq!(cache.look_up("question"), None);
}

#[test]
fn pruning_removes_only_entries() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    scene.kept(&file, now_ns());
    let directory = scene.path("cache");
    for number in 0..600 {
        fs::write(directory.join(format!("letter{number}")), "kept").unwrap();
        fs::write(directory.join(sha256(format!("{number}").as_bytes())), "entry").unwrap();
    }
    scene.kept(&file, now_ns());
    let names: Vec<String> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("letter")).count(), 600);
    assert!(names.len() < 600 + 512, "of its own entries the oldest go: {}", names.len());
}

#[test]
fn oversized_result_is_not_stored() {
    let scene = Scene::new();
    let file = scene.path("profile.ncl");
    fs::write(&file, "first").unwrap();
    let mut answer = scene.kept(&file, now_ns());
    assert!(scene.entry().exists());
    fs::remove_file(scene.entry()).unwrap();
    answer.outputs = vec![Ok("x".repeat(65 << 20))];
    scene.cache.keep("question", &answer, now_ns());
    assert!(!scene.entry().exists());
}
