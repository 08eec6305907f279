//! What an engine's image holds that decides about a run: symbolic links, behind which a mount would come to lie elsewhere, and
//! device nodes that the engine would let a program open. The container's own `/dev` covers the image's; its root is not mounted
//! nodev, and the engine's list of devices has the host's console among those that every container may use.
//!
//! ```text
//! STATE/engines/nodes-ID     the image with this content has been read whole, and has no such node
//! STATE/engines/links-ID     its links, as JSON
//! ```

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tar::EntryType;

use super::client::EngineClient;
use super::export::Export;
use crate::backends::containers::host_files::{HostFilesDirectory, write_whole};
use crate::backends::containers::oci::HARMLESS;
use crate::backends::containers::{Progress, ReadyRootfs};
use crate::failure::{FailedStep, Failure};
use cofferdam_policy::text::escape;

const NODES: &str = "nodes-";
const LINKS: &str = "links-";
/// How many images are known; then all are read again.
const MOST: usize = 200;
/// Bytes of all links of an image together.
const MOST_LINKS: usize = 32 << 20;
/// Bytes read between two reports of progress.
const STEP: u64 = 64 << 20;

/// The symbolic links of an image: what each says, or nothing where that is no text. A path that is no text is none that anything
/// is mounted at, nor one that a text leads to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageLinks(HashMap<String, Option<String>>);

impl ImageLinks {
    /// What the link at an absolute path says.
    ///
    /// # Errors
    /// It says no text.
    pub(super) fn says(&self, path: &str) -> io::Result<Option<String>> {
        match self.0.get(path.trim_start_matches('/')) {
            None => Ok(None),
            Some(Some(says)) => Ok(Some(says.clone())),
            Some(None) => Err(io::Error::other(format!("the link {} says what is no text", escape(path.as_bytes())))),
        }
    }
}

/// What an archive holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct ArchiveContents {
    /// The first device node that could be opened, in words.
    node: Option<String>,
    links: ImageLinks,
}

/// Reads an image once; its id is that of its content.
///
/// # Errors
/// It cannot be read, or where no `devices` may be in it has one.
pub(super) fn read(
    client: &EngineClient,
    image: &ReadyRootfs,
    name: &str,
    devices: bool,
    on_progress: &dyn Fn(Progress),
) -> Result<ImageLinks, Failure> {
    let name = &escape(name.as_bytes());
    // Where there is no room for files, or none that is safe, it is read each time.
    let place = HostFilesDirectory::find().ok().map(|place| place.engines());
    let noted = |prefix: &str| Some(noted(place.as_deref()?, prefix, &image.reference));
    let known = noted(LINKS).and_then(|at| serde_json::from_slice(&fs::read(at).ok()?).ok());
    let no_nodes = noted(NODES).is_some_and(|at| fs::symlink_metadata(at).is_ok_and(|there| there.is_file()));
    if let Some(links) = known.filter(|_| no_nodes || !devices) {
        return Ok(links);
    }
    let what = format!("looking through {name}");
    let found =
        look(CountingReader { from: Export::of(client.clone(), image)?, done: 0, said: 0, what: &what, on_progress });
    let held = found.map_err(|error| {
        let message = format!("cannot look through {name}: {}", escape(error.to_string().as_bytes()));
        Failure::new(FailedStep::Image, message).hint("look into the engine's log, or use --backend oci")
    })?;
    let mut notes = Vec::new();
    match held.node {
        Some(node) if devices => {
            return Err(Failure::new(
                FailedStep::Image,
                format!("{name} has the {node}, which the engine may let a program open"),
            )
            .hint("use an image without it, or --backend oci, which leaves devices out"));
        }
        Some(_) => {}
        None => notes.extend(noted(NODES).map(|at| (at, NODES, Vec::new()))),
    }
    if let (Some(at), Ok(text)) = (noted(LINKS), serde_json::to_vec(&held.links)) {
        notes.push((at, LINKS, text));
    }
    for (at, prefix, text) in notes {
        note(&at, prefix, &text).unwrap_or_else(|error| tracing::debug!("what is in {name} is not noted: {error}"));
    }
    Ok(held.links)
}

fn noted(directory: &Path, prefix: &str, id: &str) -> PathBuf {
    directory.join(format!("{prefix}{}", id.trim_start_matches("sha256:")))
}

fn note(known: &Path, prefix: &str, text: &[u8]) -> io::Result<()> {
    let directory = known.parent().unwrap_or(known);
    let ours = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes());
    let all: Vec<_> = fs::read_dir(directory)?.flatten().filter(ours).collect();
    if all.len() >= MOST {
        // Another process may be doing the same.
        all.iter().for_each(|entry| drop(fs::remove_file(entry.path())));
    }
    write_whole(known, text, 0o600)
}

/// Looks through an archive.
fn look(archive: impl Read) -> io::Result<ArchiveContents> {
    let mut archive = tar::Archive::new(archive);
    let plain = |path: &[u8]| -> Vec<u8> {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        path.strip_prefix(b"/").unwrap_or(path).to_vec()
    };
    let mut held = ArchiveContents::default();
    // What `/dev` covers may have another name elsewhere.
    let mut covered: HashMap<Vec<u8>, String> = HashMap::new();
    let mut bytes = 0;
    for entry in archive.entries()? {
        let entry = entry?;
        let path = plain(&entry.path_bytes());
        let kind = entry.header().entry_type();
        let leads = entry.link_name_bytes().unwrap_or_default();
        let says = match kind {
            EntryType::Symlink => Some(String::from_utf8(leads.to_vec()).ok()),
            // A link under a second name.
            EntryType::Link => str::from_utf8(&plain(&leads)).ok().and_then(|first| held.links.0.get(first).cloned()),
            _ => None,
        };
        if let (Some(says), Ok(path)) = (says, String::from_utf8(path.clone())) {
            bytes += path.len() + says.as_ref().map_or(0, String::len);
            if bytes > MOST_LINKS {
                return Err(io::Error::other("its symbolic links take too much room"));
            }
            held.links.0.insert(path, says);
        }
        let kind = match kind {
            EntryType::Char => "character",
            EntryType::Block => "block",
            EntryType::Link if !path.starts_with(b"dev/") => {
                if let Some(node) = covered.get(&plain(&leads)) {
                    held.node.get_or_insert_with(|| format!("{node} at /{}", escape(&path)));
                }
                continue;
            }
            _ => continue,
        };
        let numbers = entry.header().device_major()?.zip(entry.header().device_minor()?);
        if kind == "character" && numbers.is_some_and(|numbers| HARMLESS.contains(&numbers)) {
            continue;
        }
        let (major, minor) = numbers.unwrap_or_default();
        let node = format!("{kind} device {major}:{minor}");
        if path.starts_with(b"dev/") {
            covered.insert(path, node);
        } else {
            held.node.get_or_insert_with(|| format!("{node} at /{}", escape(&path)));
        }
    }
    Ok(held)
}

/// Reports how far it is with what takes long.
struct CountingReader<'a, R> {
    from: R,
    done: u64,
    said: u64,
    what: &'a str,
    on_progress: &'a dyn Fn(Progress),
}

impl<R: Read> Read for CountingReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.done += read as u64;
        if self.done - self.said >= STEP {
            self.said = self.done;
            (self.on_progress)(Progress { what: self.what.to_owned(), done: self.done, total: None });
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
        let of = |nodes: &[(&str, EntryType, u32, u32)]| look(&archive(nodes)[..]).unwrap().node;
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
            look(&archive.into_inner().unwrap()[..]).unwrap().node
        };
        for target in ["dev/console", "./dev/console", "/dev/console"] {
            assert_eq!(with("usr/c", target).unwrap(), "character device 5:1 at /usr/c", "{target}");
        }
        assert_eq!((with("dev/c", "dev/console"), with("usr/c", "bin/sh")), (None, None), "the twins");
    }

    #[test]
    fn links_are_known_by_each_of_their_names() {
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |kind: EntryType, path: &str, target: &str| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            archive.append_link(&mut header, path, target).unwrap();
        };
        let long = "l/".repeat(200);
        add(EntryType::Symlink, "./t", "/dev");
        add(EntryType::Link, "again", "./t");
        add(EntryType::Link, "other", "bin/sh");
        add(EntryType::Symlink, &format!("{long}x"), &format!("/{long}"));
        let links = look(&archive.into_inner().unwrap()[..]).unwrap().links;
        assert_eq!(links.says("/t").unwrap().as_deref(), Some("/dev"));
        assert_eq!(links.says("/again").unwrap().as_deref(), Some("/dev"));
        assert_eq!(links.says(&format!("/{long}x")).unwrap().unwrap(), format!("/{long}"));
        assert_eq!(links.says("/other").unwrap(), None);
        let same: ImageLinks = serde_json::from_slice(&serde_json::to_vec(&links).unwrap()).unwrap();
        assert_eq!(same, links);
        let unsayable = ImageLinks([("t".to_owned(), None)].into());
        assert!(unsayable.says("/t").is_err());
    }

    #[test]
    fn so_many_images_are_known_and_not_more() {
        let work = tempfile::tempdir().unwrap();
        std::fs::write(work.path().join("podman-1.json"), "").unwrap();
        for i in 0..=MOST {
            note(&noted(work.path(), NODES, &format!("sha256:{i:064x}")), NODES, b"").unwrap();
        }
        let left: Vec<_> = fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.len() == 2 && left.iter().any(|name| name == "podman-1.json"), "{left:?}");
    }
}
