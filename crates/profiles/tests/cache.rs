//! The cache: an answer is known as long as nothing that went into it has changed, and never longer.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cofferdam_profiles::cache::{Cache, now_ns};
use cofferdam_profiles::identity::sha256;
use cofferdam_profiles::protocol::{Evaluated, FileSeen, Identity};

/// An hour: no file here is as young as an entry that claims to have begun then.
const HOUR_NS: i64 = 3_600_000_000_000;

struct Scene {
    keep: tempfile::TempDir,
    cache: Cache,
}

impl Scene {
    fn new() -> Scene {
        let keep = tempfile::tempdir().unwrap();
        let cache = Cache::with_keys(keep.path().join("cache"), keep.path().join("keys"));
        Scene { keep, cache }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    /// Keeps an answer that was made of this file, at this time.
    fn kept(&self, path: &Path, begun_ns: i64) -> Evaluated {
        let file = File::open(path).unwrap();
        let seen = FileSeen {
            path: path.to_owned(),
            identity: Identity::of(&file.metadata().unwrap()),
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
fn an_answer_is_known_until_its_file_changes() {
    // Young and old: told by the file's content, and by stat alone.
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
fn what_the_key_did_not_sign_is_not_believed() {
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
    let other = Cache::with_keys(scene.path("cache"), scene.path("other"));
    other.keep("another", &scene.kept(&file, now_ns()), now_ns());
    assert_eq!(other.look_up("question"), None, "signed by another key");
    fs::set_permissions(scene.path("keys").join("policies.key"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(scene.cache.look_up("question"), None, "a key that others may have read");
}

#[test]
fn a_change_within_one_tick_of_the_clock_is_seen() {
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
fn a_change_that_hides_its_time_is_seen() {
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
fn a_file_that_was_only_touched_is_the_same() {
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
fn a_file_that_comes_into_being_where_one_was_missed_changes_the_answer() {
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
fn an_entry_that_is_broken_is_written_again() {
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
fn only_what_the_user_alone_could_write_is_believed() {
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
fn a_cache_that_cannot_be_is_as_good_as_none() {
    let cache = Cache::with_keys("/proc/self/no-such-place", "/proc/self/no-such-keys");
    cache.keep("question", &Evaluated::default(), now_ns());
    assert_eq!(cache.look_up("question"), None);
}

#[test]
fn what_is_none_of_its_entries_is_never_removed() {
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
fn an_answer_that_is_too_large_to_be_read_again_is_not_kept() {
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
