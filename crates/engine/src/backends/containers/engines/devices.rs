//! That an image has no device node that its engine would let a program open: the container's own `/dev` covers the image's, and
//! its root is not mounted nodev. The engine's list of devices has the host's console among those that every container may use.
//!
//! ```text
//! STATE/engines/nodes-ID     the image with this content has been read whole, and has none
//! ```

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tar::EntryType;

use super::client::Client;
use super::export::Export;
use crate::backends::containers::host_files::{Place, write_whole};
use crate::backends::containers::oci::HARMLESS;
use crate::backends::containers::{Progress, Ready};
use crate::failure::{Failure, Step};
use cofferdam_policy::text::escape;

const PREFIX: &str = "nodes-";
/// How many images are known; then all are read again.
const MOST: usize = 1000;
/// Bytes read between two reports of progress.
const STEP: u64 = 64 << 20;

/// Reads an image once; its id is that of its content.
///
/// # Errors
/// It has such a node, or cannot be read.
pub(super) fn none(client: &Client, image: &Ready, name: &str, told: &dyn Fn(Progress)) -> Result<(), Failure> {
    let name = &escape(name.as_bytes());
    // Where there is no room for files, or none that is safe, it is read each time.
    let known = Place::find().ok().map(|place| noted(&place.engines(), &image.reference));
    if known.as_ref().is_some_and(|known| fs::symlink_metadata(known).is_ok_and(|there| there.is_file())) {
        return Ok(());
    }
    let what = format!("looking for devices in {name}");
    let found = first(Counted { from: Export::of(client.clone(), image)?, done: 0, said: 0, what: &what, told });
    match found {
        Ok(None) => {}
        Ok(Some(node)) => {
            return Err(Failure::new(
                Step::Image,
                format!("{name} has the {node}, which the engine may let a program open"),
            )
            .hint("use an image without it, or --backend oci, which leaves devices out"));
        }
        Err(error) => {
            let message = format!("cannot look for devices in {name}: {}", escape(error.to_string().as_bytes()));
            return Err(Failure::new(Step::Image, message).hint("look into the engine's log, or use --backend oci"));
        }
    }
    if let Some(known) = known {
        note(&known).unwrap_or_else(|error| tracing::debug!("that {name} has no devices is not noted: {error}"));
    }
    Ok(())
}

fn noted(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{}", id.trim_start_matches("sha256:")))
}

fn note(known: &Path) -> io::Result<()> {
    let directory = known.parent().unwrap_or(known);
    let ours = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let all: Vec<_> = fs::read_dir(directory)?.flatten().filter(ours).collect();
    if all.len() >= MOST {
        // Another process may be doing the same.
        all.iter().for_each(|entry| drop(fs::remove_file(entry.path())));
    }
    write_whole(known, b"", 0o600)
}

/// The first node of an archive, in words.
fn first(archive: impl Read) -> io::Result<Option<String>> {
    let mut archive = tar::Archive::new(archive);
    let plain = |path: &[u8]| -> Vec<u8> {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        path.strip_prefix(b"/").unwrap_or(path).to_vec()
    };
    // What `/dev` covers may have another name elsewhere.
    let mut covered: HashMap<Vec<u8>, String> = HashMap::new();
    for entry in archive.entries()? {
        let entry = entry?;
        let path = plain(&entry.path_bytes());
        let kind = match entry.header().entry_type() {
            EntryType::Char => "character",
            EntryType::Block => "block",
            EntryType::Link if !path.starts_with(b"dev/") => {
                let target = entry.link_name_bytes().map(|target| plain(&target)).unwrap_or_default();
                match covered.get(&target) {
                    Some(node) => return Ok(Some(format!("{node} at /{}", escape(&path)))),
                    None => continue,
                }
            }
            _ => continue,
        };
        let numbers = entry.header().device_major()?.zip(entry.header().device_minor()?);
        if kind == "character" && numbers.is_some_and(|numbers| HARMLESS.contains(&numbers)) {
            continue;
        }
        let (major, minor) = numbers.unwrap_or_default();
        let node = format!("{kind} device {major}:{minor}");
        if !path.starts_with(b"dev/") {
            return Ok(Some(format!("{node} at /{}", escape(&path))));
        }
        covered.insert(path, node);
    }
    Ok(None)
}

/// Tells how far it is with what takes long.
struct Counted<'a, R> {
    from: R,
    done: u64,
    said: u64,
    what: &'a str,
    told: &'a dyn Fn(Progress),
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.done += read as u64;
        if self.done - self.said >= STEP {
            self.said = self.done;
            (self.told)(Progress { what: self.what.to_owned(), done: self.done, total: None });
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(nodes: &[(&str, EntryType, u32, u32)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, kind, major, minor) in nodes {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(*kind);
            header.set_size(0);
            header.set_mode(0o666);
            header.set_device_major(*major).unwrap();
            header.set_device_minor(*minor).unwrap();
            archive.append_data(&mut header, path, io::empty()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn a_node_outside_of_dev_is_found_and_what_every_container_has_is_none() {
        use EntryType::{Block, Char, Regular};
        let of = |nodes: &[(&str, EntryType, u32, u32)]| first(&archive(nodes)[..]).unwrap();
        let common = [("dev/console", Char, 5, 1), ("srv/chroot/dev/random", Char, 1, 8), ("a", Regular, 0, 0)];
        assert_eq!(of(&common), None);
        assert_eq!(of(&[("data/c", Char, 5, 1)]).unwrap(), "character device 5:1 at /data/c");
        assert_eq!(of(&[("./d\u{1b}", Block, 1, 3)]).unwrap(), "block device 1:3 at /d\\u{1b}");
        assert_eq!(of(&[("developer", Char, 10, 200)]).unwrap(), "character device 10:200 at /developer");
    }

    #[test]
    fn a_node_that_dev_covers_is_found_by_its_other_name() {
        let with = |path: &str, target: &str| {
            let mut archive = tar::Builder::new(archive(&[("dev/console", EntryType::Char, 5, 1)]));
            archive.get_mut().truncate(512); // without its end
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(EntryType::Link);
            header.set_size(0);
            archive.append_link(&mut header, path, target).unwrap();
            first(&archive.into_inner().unwrap()[..]).unwrap()
        };
        for target in ["dev/console", "./dev/console", "/dev/console"] {
            assert_eq!(with("usr/c", target).unwrap(), "character device 5:1 at /usr/c", "{target}");
        }
        assert_eq!((with("dev/c", "dev/console"), with("usr/c", "bin/sh")), (None, None), "the twins");
    }

    #[test]
    fn so_many_images_are_known_and_not_more() {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("podman-1.json"), "").unwrap();
        for i in 0..=MOST {
            note(&noted(work.path(), &format!("sha256:{i:064x}"))).unwrap();
        }
        let left: Vec<_> = fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.len() == 2 && left.iter().any(|name| name == "podman-1.json"), "{left:?}");
    }
}
