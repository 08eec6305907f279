//! Tricks that a tarball may try, and what comes of ordinary ones. Each refusal leaves nothing outside, and has a twin.

use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::super::cache::CacheBounds;
use super::*;
use crate::backends::containers::ImageCommand;
use crate::failure::Failure;

/// A tarball in the making. Headers are written by hand, since the library refuses to write what is tried here.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    fn entry(mut self, kind: EntryType, path: &str, says: &str, mode: u32, data: &[u8]) -> Archive {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.as_old_mut().linkname[..says.len()].copy_from_slice(says.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(data.len() as u64);
        header.set_cksum();
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, path: &str, data: &str) -> Archive {
        self.entry(EntryType::Regular, path, "", 0o644, data.as_bytes())
    }

    fn directory(self, path: &str) -> Archive {
        self.entry(EntryType::Directory, path, "", 0o755, b"")
    }

    fn link(self, path: &str, says: &str) -> Archive {
        self.entry(EntryType::Symlink, path, says, 0o777, b"")
    }

    fn hard(self, path: &str, says: &str) -> Archive {
        self.entry(EntryType::Link, path, says, 0o644, b"")
    }

    fn whole(mut self) -> Vec<u8> {
        self.bytes.extend([0; 1024]);
        self.bytes
    }

    /// Unpacks it; what was refused, as text.
    fn unpack(self, limits: UnpackLimits) -> Result<(tempfile::TempDir, u64), String> {
        let dir = tempfile::tempdir().unwrap();
        let bytes = self.whole();
        let done = unpack(Box::new(bytes.as_slice()), dir.path(), limits, "it.tar");
        done.map(|bytes| (dir, bytes)).map_err(|f| format!("{}; hint: {}", f.message, f.hint.unwrap_or_default()))
    }
}

fn archive() -> Archive {
    Archive::default()
}

const SMALL: UnpackLimits = UnpackLimits { bytes: 1 << 20, entries: 100, headers: 1 << 16 };

#[test]
fn an_ordinary_root_is_what_it_was() {
    let (dir, bytes) = archive()
        .directory("./")
        .directory("./usr/bin/")
        .entry(EntryType::Regular, "./usr/bin/tool", "", 0o755, b"#!/bin/sh\n")
        .link("./bin", "usr/bin")
        .link("./etc/absolute", "/usr/bin/tool")
        .hard("./usr/bin/same", "./usr/bin/tool")
        .entry(EntryType::Directory, "./tmp/", "", 0o1777, b"")
        .file("deep/er/than/listed", "x")
        .file("./twice", "first")
        .file("./twice", "second")
        .unpack(SMALL)
        .unwrap();
    let at = |path: &str| dir.path().join(path);
    let mode = |path: &str| std::fs::metadata(at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(std::fs::read_to_string(at("usr/bin/tool")).unwrap(), "#!/bin/sh\n");
    assert_eq!((mode("usr/bin/tool"), mode("tmp"), mode("deep/er")), (0o755, 0o1777, 0o755));
    assert_eq!(std::fs::read_link(at("bin")).unwrap(), PathBuf::from("usr/bin"));
    assert_eq!(std::fs::read_link(at("etc/absolute")).unwrap(), PathBuf::from("/usr/bin/tool"), "a link is only text");
    let inode = |path: &str| std::fs::metadata(at(path)).unwrap().ino();
    assert_eq!(inode("usr/bin/same"), inode("usr/bin/tool"));
    assert_eq!(std::fs::read_to_string(at("twice")).unwrap(), "second");
    assert_eq!(bytes, 10 + 1 + 5 + 6);
}

#[test]
fn nothing_gets_out_by_its_path() {
    for path in ["/etc/x", "../x", "a/../../x", "..", "a/.."] {
        for kind in [EntryType::Regular, EntryType::Directory, EntryType::Symlink] {
            let says = if kind == EntryType::Symlink { "x" } else { "" };
            let refused = archive().file("usr/file", "").entry(kind, path, says, 0o644, b"").unpack(SMALL).unwrap_err();
            assert!(refused.contains("absolute") || refused.contains("upwards"), "{path}: {refused}");
            assert!(refused.contains("hint:"));
        }
    }
    // The twin: dots that lead nowhere.
    assert!(archive().file("./usr/./file", "").file("..a/b..", "").unpack(SMALL).is_ok());
}

#[test]
fn nothing_goes_through_a_link() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("victim"), "kept").unwrap();
    let out = outside.path().to_str().unwrap();
    let tries = |first: Archive| {
        [
            first.again().file("way/victim", "changed"),
            first.again().directory("way/made/"),
            first.again().link("way/link", "x"),
            first.again().file("usr/file", "x").hard("way/hard", "usr/file"),
            first.again().hard("stolen", "way/victim"),
            first.again().directory("way/../way/made"),
        ]
    };
    for first in [
        archive().link("way", out),
        archive().link("up", "..").link("way", "up/../../../../../../../../../.."),
        archive().link("way", "."),
        archive().file("way", "a file"),
    ] {
        for attempt in tries(first) {
            let refused = attempt.unpack(SMALL).unwrap_err();
            let told = ["goes through", "no file of this tarball", "upwards"].iter().any(|why| refused.contains(why));
            assert!(told, "{refused}");
        }
    }
    assert_eq!(std::fs::read_to_string(outside.path().join("victim")).unwrap(), "kept");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    // The twin: the same names where the first is a directory.
    let (dir, _) =
        archive().directory("way/").file("way/victim", "own").hard("hard", "way/victim").unpack(SMALL).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("hard")).unwrap(), "own");
}

impl Archive {
    fn again(&self) -> Archive {
        Archive { bytes: self.bytes.clone() }
    }
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced_and_not_written_through() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "kept").unwrap();
    let (dir, _) = archive().link("file", victim.to_str().unwrap()).file("file", "own").unpack(SMALL).unwrap();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    assert!(std::fs::symlink_metadata(dir.path().join("file")).unwrap().is_file());
    // A directory of that name cannot be what the link leads to, either: neither made nor given other permissions.
    let before = std::fs::metadata(outside.path()).unwrap().permissions().mode();
    let as_directory = archive().link("file", outside.path().to_str().unwrap());
    let refused = as_directory.entry(EntryType::Directory, "file", "", 0o777, b"").unpack(SMALL).unwrap_err();
    assert!(refused.contains("goes through"), "{refused}");
    assert_eq!(std::fs::metadata(outside.path()).unwrap().permissions().mode(), before);
}

#[test]
fn hard_links_lead_to_files_of_the_tarball_alone() {
    for (says, why) in [
        ("/etc/passwd", "absolute"),
        ("../x", "upwards"),
        ("none", "no file"),
        ("usr", "no file"),
        ("link", "no file"),
        (".", "to a directory"),
    ] {
        let refused =
            archive().directory("usr/").link("link", "/etc/passwd").hard("hard", says).unpack(SMALL).unwrap_err();
        assert!(refused.contains(why), "{says}: {refused}");
    }
}

#[test]
fn devices_and_powers_do_not_come_along() {
    let (dir, _) = archive()
        .file("etc/real", "")
        .entry(EntryType::Char, "dev/mem", "", 0o666, b"")
        .entry(EntryType::Block, "dev/sda", "", 0o666, b"")
        .entry(EntryType::Fifo, "pipe", "", 0o666, b"")
        .entry(EntryType::Regular, "usr/su", "", 0o6755, b"x")
        .entry(EntryType::Directory, "usr/group/", "", 0o2775, b"")
        .file("etc/.wh.removed", "")
        .file(".wh..wh..opq", "")
        .unpack(SMALL)
        .unwrap();
    let at = |path: &str| dir.path().join(path);
    assert!(!at("dev/mem").exists() && !at("dev/sda").exists() && !at("pipe").exists());
    assert!(!at("etc/.wh.removed").exists() && !at(".wh..wh..opq").exists() && at("etc/real").exists());
    for path in ["usr/su", "usr/group"] {
        assert_eq!(std::fs::metadata(at(path)).unwrap().permissions().mode() & 0o6000, 0, "{path}");
    }
    let special = |path: &std::path::Path| {
        let kind = std::fs::symlink_metadata(path).unwrap().file_type();
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
    };
    assert!(!std::fs::read_dir(dir.path()).unwrap().any(|entry| special(&entry.unwrap().path())));
}

#[test]
fn more_than_the_bounds_is_refused_and_not_written() {
    let large = "x".repeat(4000);
    let refused = archive()
        .file("usr/a", &large)
        .file("usr/b", &large)
        .unpack(UnpackLimits { bytes: 7000, ..SMALL })
        .unwrap_err();
    assert!(refused.contains("usr/b") && refused.contains("7000"), "{refused}");
    assert!(archive().file("usr/a", &large).unpack(UnpackLimits { bytes: 7000, ..SMALL }).is_ok());
    let many = (0..101).fold(archive(), |tar, n| tar.file(&format!("usr/{n}"), ""));
    let refused = many.unpack(SMALL).unwrap_err();
    assert!(refused.contains("more than 100 entries"), "{refused}");
    let long = format!("{}x", "d/".repeat(40));
    assert!(archive().file(&long, "").unpack(SMALL).is_ok());
    // What the header says is believed only as far as there is room.
    let mut lies = archive().file("usr/lies", "");
    let mut header = tar::Header::from_byte_slice(&lies.bytes[..512]).clone();
    header.set_size(1 << 40);
    header.set_cksum();
    lies.bytes[..512].copy_from_slice(header.as_bytes());
    let refused = lies.unpack(SMALL).unwrap_err();
    assert!(refused.contains("1099511627776 bytes more"), "{refused}");
}

#[test]
fn names_that_would_fill_the_memory_are_refused() {
    let name = "n".repeat(3000);
    let long =
        |name: &str| archive().entry(EntryType::GNULongName, "././@LongLink", "", 0o644, name.as_bytes()).file("x", "");
    let (dir, _) = long(&format!("usr/{}", "n".repeat(200))).unpack(SMALL).unwrap();
    assert!(dir.path().join("usr").join("n".repeat(200)).exists());
    let refused = long(&name).unpack(UnpackLimits { headers: 2048, ..SMALL }).unwrap_err();
    assert!(refused.contains("header is too long"), "{refused}");
    let refused = long(&"n/".repeat(3000)).unpack(SMALL).unwrap_err();
    assert!(refused.contains("too long"), "{refused}");
}

#[test]
fn a_truncated_or_invalid_tarball_is_refused() {
    let mut cut = archive().file("usr/file", &"x".repeat(2000));
    cut.bytes.truncate(512 + 700);
    let dir = tempfile::tempdir().unwrap();
    let refused = unpack(Box::new(cut.bytes.as_slice()), dir.path(), SMALL, "it.tar").unwrap_err();
    assert!(
        refused.message.contains("ends in the middle") || refused.message.contains("cannot be unpacked"),
        "{refused:?}"
    );
    let refused =
        unpack(Box::new(&b"no tarball, only some words ".repeat(40)[..]), dir.path(), SMALL, "it.tar").unwrap_err();
    assert!(refused.message.contains("cannot be unpacked"), "{refused:?}");
    let refused = archive().unpack(SMALL).unwrap_err();
    assert!(refused.contains("holds no files"), "{refused}");
}

#[test]
fn an_archive_of_layers_is_distinguished_from_a_root() {
    let refused = archive().file("manifest.json", "[]").file("abc/layer.tar", "").unpack(SMALL).unwrap_err();
    assert!(refused.contains("layers") && refused.contains("docker export"), "{refused}");
    assert!(archive().file("manifest.json", "[]").file("etc/passwd", "").unpack(SMALL).is_ok());
}

fn written(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_tarball_is_unpacked_once_for_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let cache = RootfsCache::new(&dir.path().join("state"), CacheBounds::default());
    let bytes = archive().file("etc/name", "one").whole();
    let path = written(dir.path(), "root.tar", &bytes);
    let told = Cell::new(0);
    let tell = |_: Progress| told.set(told.get() + 1);
    let first = tarball(&cache, &path, &tell).unwrap();
    assert!(told.get() > 0);
    told.set(0);
    let second = tarball(&cache, &path, &tell).unwrap();
    assert_eq!((second.rootfs.clone(), told.get()), (first.rootfs.clone(), 0), "it was not read again");
    let copy = tarball(&cache, &written(dir.path(), "copy.tar", &bytes), &|_| {}).unwrap();
    assert_eq!(copy.rootfs, first.rootfs);
    // The same file with other contents is another root.
    let path = written(dir.path(), "root.tar", &archive().file("etc/name", "two").whole());
    let changed = tarball(&cache, &path, &|_| {}).unwrap();
    assert_eq!(std::fs::read_to_string(changed.rootfs.join("etc/name")).unwrap(), "two");
    assert_eq!(std::fs::read_to_string(first.rootfs.join("etc/name")).unwrap(), "one");
}

#[test]
fn compressed_tarballs_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cache = RootfsCache::new(&dir.path().join("state"), CacheBounds::default());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&archive().file("etc/name", "packed").whole()).unwrap();
    let path = written(dir.path(), "root.tar.gz", &packed.finish().unwrap());
    let held = tarball(&cache, &path, &|_| {}).unwrap();
    assert_eq!(std::fs::read_to_string(held.rootfs.join("etc/name")).unwrap(), "packed");
    for (start, name) in [(&b"\x28\xb5\x2f\xfd--"[..], "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh9..", "bzip2")] {
        let failure = tarball(&cache, &written(dir.path(), "other", start), &|_| {}).unwrap_err();
        assert!(failure.message.contains(name) && failure.hint.unwrap().contains(" -d"), "{name}");
    }
    let failure = tarball(&cache, dir.path(), &|_| {}).unwrap_err();
    assert!(failure.message.contains("not a file"), "{failure:?}");
    assert!(tarball(&cache, &dir.path().join("none.tar"), &|_| {}).is_err());
}

#[test]
fn an_image_of_an_engine_is_unpacked_once() {
    #[derive(Debug)]
    struct Store(Vec<u8>);
    impl Images for Store {
        fn id(&self, _: &str, _: &dyn Fn(Progress)) -> Result<String, Failure> {
            Ok(format!("sha256:{}", "ab".repeat(32)))
        }
        fn command(&self, _: &str, _: &dyn Fn(Progress)) -> Result<ImageCommand, Failure> {
            Ok(ImageCommand::default())
        }
        fn export(&self, _: &str) -> Result<Box<dyn Read + '_>, Failure> {
            Ok(Box::new(self.0.as_slice()))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let cache = RootfsCache::new(dir.path(), CacheBounds::default());
    let store = Store(archive().file("etc/name", "image").whole());
    let id = store.id("", &|_| {}).unwrap();
    let held = image(&cache, &store, &id, "alpine:3", &|_| {}).unwrap();
    assert_eq!(std::fs::read_to_string(held.rootfs.join("etc/name")).unwrap(), "image");
    assert!(cache.get(&format!("image-{}", "ab".repeat(32))).unwrap().is_some());
    // A link that was there before is no way in, either: the place is made anew each time.
    symlink("/", dir.path().join("roots/image-x")).unwrap();
    assert!(cache.get("image-x").unwrap().is_none());
}

#[test]
fn many_runs_at_once_remember_and_forget_without_getting_into_each_others_way() {
    let dir = tempfile::tempdir().unwrap();
    let cache = RootfsCache::new(dir.path(), CacheBounds::default());
    private(cache.place()).unwrap();
    let seen = |name: String| cache.place().join(SEEN).join(name);
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let (cache, seen) = (&cache, &seen);
            threads.spawn(move || {
                for n in 0..MOST_SEEN {
                    cache.remember(&seen(format!("{thread}-{n}")), "tar-0").unwrap();
                }
            });
        }
    });
    let kept = std::fs::read_dir(cache.place().join(SEEN)).unwrap().count();
    assert!((1..=MOST_SEEN + 8).contains(&kept), "{kept}");
}

#[test]
fn a_fifo_is_refused_without_waiting_for_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("root.tar");
    rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    let cache = RootfsCache::new(dir.path(), CacheBounds::default());
    std::thread::spawn(move || said.send(tarball(&cache, &fifo, &|_| {}).map(drop)));
    let failure = heard.recv_timeout(std::time::Duration::from_secs(20)).expect("it hangs").unwrap_err();
    assert!(failure.message.contains("it is not a file"), "{failure:?}");
}
