//! The repositories that Mercurial's `[paths]` lead to. `hg pull`, `hg push`, `hg incoming` and others open one that is a
//! directory in their own process: they load its extensions and run its hooks.
//!
//! They are looked at before a run and after it, as those are to which a remote of git's leads. One in a volume that is new or
//! obeys something else, and could run programs, has its `.hg` renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, ResolveFlags, openat2};
use rustix::io::Errno;

use super::Mended;
use super::addresses::{AddressEnd, decoded, resolve};
use super::config_values::of_mercurial;
use super::named::{Configuration, named, names_others, print_with};
use super::obeyed::{DIRECTORY, MOST_BYTES, Print, absent, hash, read};
use crate::plan::tree::{Disk, VolumeTree};
use crate::repository::configurations::{files_of_mercurial, for_each_of_mercurial};
use crate::repository::protected_names::subrepositories_of;
use crate::repository::vcs_config::{paths_of_mercurial, settings_of_mercurial};

/// Addresses that are looked at for one repository, at most.
const MOST: usize = 4096;
/// Addresses that the extension `schemes` makes of one, at most.
const MOST_EXPANDED: usize = 64;
/// The files of a repository that Mercurial obeys, or that say where more of them are.
const OBEYED: [&str; 4] = ["hgrc", "hgrc-not-shared", "requires", "sharedpath"];

/// What each repository obeys that a path leads to, by the place of its `.hg`; of the link where that is another one for each
/// process.
pub(super) type PathTargets = BTreeMap<PathBuf, Print>;

/// Looks at the repositories to which the paths lead that count in these directories `.hg`.
pub(super) fn see<'d>(directories: impl Iterator<Item = &'d PathBuf>, volumes: &[PathBuf]) -> PathTargets {
    let mut found = PathTargets::new();
    let directories = directories.filter(|own| own.ends_with(".hg")).collect::<Vec<_>>();
    for place in directories.iter().flat_map(|own| led_to(own, false)) {
        let obeys = judged(&place, &directories, volumes).0;
        found.insert(place, obeys);
    }
    found
}

/// Looks again, and disables what is in a volume, and not as it was or harmless.
pub(super) fn mend<'d>(
    directories: impl Iterator<Item = &'d PathBuf>,
    volumes: &[PathBuf],
    known: &PathTargets,
    mended: &mut Mended,
) {
    let directories = directories.filter(|own| own.ends_with(".hg")).collect::<Vec<_>>();
    let places: BTreeSet<PathBuf> = directories.iter().flat_map(|own| led_to(own, true)).collect();
    for place in places {
        let (obeys, plain) = judged(&place, &directories, volumes);
        let same = obeys.is_some() && known.get(&place) == Some(&obeys);
        // Of one that the program could not write, what it names may be the program's.
        let is_within = volumes.iter().any(|volume| place.starts_with(volume));
        if plain || same || !is_within && !names_others(known.get(&place), &obeys) {
            continue;
        }
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else { continue };
        match openat2(CWD, parent, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Ok(parent) => mended.rename(parent.as_fd(), name, &place),
            Err(e) => mended.failed.push((place, std::io::Error::from(e).to_string())),
        }
    }
}

/// The directories `.hg` to which the paths lead that count in this one's work tree, and links that lead elsewhere for each
/// process. With `restore`, permissions that its owner lacks on the way are given back.
fn led_to(own: &Path, restore: bool) -> BTreeSet<PathBuf> {
    let Some(tree) = own.parent() else { return BTreeSet::new() };
    let subrepositories: Vec<String> = tree.to_str().map(|tree| subrepositories_of(tree, &Disk)).unwrap_or_default();
    let mut found = BTreeSet::new();
    for (base, address) in addresses(tree).into_iter().take(MOST) {
        // A push of a repository goes on to those of its subrepositories at the same place.
        let below = subrepositories.iter().map(|below| Path::new(&address).join(below).into_os_string());
        for address in std::iter::once(address.clone()).chain(below) {
            match resolve(&base, Path::new(&address).join(".hg").as_os_str()) {
                AddressEnd::At(end) => {
                    let mut there = end.symlink_metadata();
                    if restore && there.as_ref().is_err_and(|e| e.kind() == ErrorKind::PermissionDenied) {
                        super::permit_above(&end);
                        there = end.symlink_metadata();
                    }
                    found.extend(there.is_ok_and(|about| about.is_dir()).then_some(end).filter(|end| end != own));
                }
                AddressEnd::Unknown(links) => found.extend(links),
                AddressEnd::Nowhere => {}
            }
        }
    }
    found
}

/// What may be an address of a repository, and the directory that it is relative to: the work tree, the home of the caller, or
/// that of the configuration.
fn addresses(tree: &Path) -> BTreeSet<(PathBuf, OsString)> {
    let home = Disk.home().map(PathBuf::from);
    let Some(top) = tree.to_str() else { return BTreeSet::new() };
    let (mut values, mut schemes) = (Vec::new(), Vec::new());
    for_each_of_mercurial(&Disk, files_of_mercurial(top, &Disk), Path::new(top), |file, text| {
        let within = Path::new(file).parent().map(Path::to_owned);
        values.extend(paths_of_mercurial(text).into_iter().map(|value| (within.clone(), value)));
        let all = settings_of_mercurial(text).into_iter().filter(|setting| setting.section == "schemes");
        schemes.extend(all.map(|setting| (setting.key, setting.value)));
    });
    let mut found = BTreeSet::new();
    for (within, value) in values {
        let bases: BTreeSet<PathBuf> = [Some(tree.to_owned()), home.clone(), within].into_iter().flatten().collect();
        for path in expanded(value, &schemes).iter().flat_map(|value| local_paths(value, home.as_deref())) {
            found.extend(bases.iter().map(|base| (base.clone(), path.clone())));
        }
    }
    found
}

/// An address, and what the extension `schemes` makes of it: `{1}`, `{2}` and so on in a scheme's value are the parts of the
/// address, and the rest follows.
fn expanded(value: String, schemes: &[(String, String)]) -> Vec<String> {
    let mut all = vec![value];
    let mut at = 0;
    while let Some(value) = all.get(at).filter(|_| all.len() <= MOST_EXPANDED).cloned() {
        at += 1;
        let Some((name, rest)) = value.split_once("://") else { continue };
        for (_, template) in schemes.iter().filter(|(scheme, _)| scheme == name) {
            let count = (1..10).rev().find(|n| template.contains(&format!("{{{n}}}"))).unwrap_or(0);
            let mut parts: Vec<&str> = rest.splitn(count + 1, '/').collect();
            let tail = if parts.len() > count { parts.pop() } else { None };
            let whole = (1..=count).fold(template.clone(), |whole, n| {
                whole.replace(&format!("{{{n}}}"), parts.get(n - 1).copied().unwrap_or_default())
            });
            all.push(whole + tail.unwrap_or_default());
        }
    }
    all
}

/// What Mercurial may take a value of `[paths]` for on this machine (`hg help urls`). What is another machine's, or a reference
/// to another path, is none.
fn local_paths(value: &str, home: Option<&Path>) -> Vec<OsString> {
    const AWAY: [&str; 6] = ["http", "https", "ssh", "static-http", "path", "largefile"];
    let whole = value.split('#').next().unwrap_or_default();
    let (scheme, rest) = whole.split_once(':').unwrap_or(("", whole));
    let rest = match scheme.to_ascii_lowercase().as_str() {
        away if AWAY.contains(&away) => return Vec::new(),
        // Behind a host.
        "file" => rest.strip_prefix("//").map_or(rest, |rest| &rest[rest.find('/').unwrap_or(0)..]),
        // Two places with a sign between them.
        "bundle" | "union" => rest,
        _ => whole,
    };
    let mut found = Vec::new();
    for path in std::iter::once(rest).chain(rest.split('+')) {
        let with_home = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| path.strip_prefix(start)).zip(home);
        let path = with_home.map_or_else(|| OsString::from(path), |(rest, home)| home.join(rest).into_os_string());
        found.push(OsString::from_vec(decoded(path.as_bytes())));
        found.push(path);
    }
    found.retain(|path| !path.is_empty());
    found.sort();
    found.dedup();
    found
}

/// What the repository with this directory `.hg` obeys, opened from one of those in `from`, and whether none of it could run a
/// program.
fn judged(place: &Path, from: &[&PathBuf], volumes: &[PathBuf]) -> (Print, bool) {
    match obeyed(place, from, volumes) {
        Ok((print, plain)) => (Some(print), plain),
        // A link, which leads elsewhere for each process.
        Err(Errno::LOOP) => (Some("elsewhere for each process".into()), false),
        // It has gone with a directory above it.
        Err(e) if absent(e) => (None, true),
        Err(_) => (None, false),
    }
}

fn obeyed(place: &Path, from: &[&PathBuf], volumes: &[PathBuf]) -> Result<(String, bool), Errno> {
    let directory = openat2(CWD, place, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let own = files(directory.as_fd())?;
    let mut all: Vec<Vec<u8>> = parts(&own).collect();
    let [hgrc, not_shared, requires, shared] = &own;
    let mut plain = hgrc.as_deref().is_none_or(is_plain) && not_shared.is_none() && shared.is_none();
    plain &= requires
        .as_deref()
        .is_none_or(|names| names.split(|&byte| byte == b'\n').all(|name| !name.ends_with(b"shared")));
    let mut configurations: Vec<Configuration> =
        [hgrc, not_shared].into_iter().flatten().map(|text| (place.to_owned(), text.clone())).collect();
    if let Some(says) = shared {
        let shared = match resolve(place, OsStr::from_bytes(says.trim_ascii_end())) {
            AddressEnd::At(shared) => shared,
            AddressEnd::Unknown(_) | AddressEnd::Nowhere => return Err(Errno::INVAL),
        };
        all.push(shared.as_os_str().as_bytes().to_vec());
        if let Ok(opened) = openat2(CWD, &shared, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            let theirs = files(opened.as_fd())?;
            configurations.extend(theirs[0].iter().map(|text| (shared.clone(), text.clone())));
            all.extend(parts(&theirs));
        }
    }
    let mut named_elsewhere = Vec::new();
    if !plain {
        // Hooks run in its work tree, and an extension is looked for where `hg` is called.
        let trees = std::iter::once(place).chain(from.iter().map(|own| own.as_path()));
        let bases: Vec<PathBuf> = trees.filter_map(|own| own.parent().map(Path::to_owned)).collect();
        named_elsewhere = named(configurations, &bases, volumes, of_mercurial)?;
    }
    let parts: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    Ok((print_with(hash(&parts), &named_elsewhere), plain))
}

/// The texts of [`OBEYED`], those that are there.
fn files(directory: BorrowedFd<'_>) -> Result<[Option<Vec<u8>>; 4], Errno> {
    let mut found = [const { None }; 4];
    for (text, name) in found.iter_mut().zip(OBEYED) {
        *text = read(directory, Path::new(name), MOST_BYTES)?;
    }
    Ok(found)
}

/// The same as parts of a hash: what is not there differs from what is empty.
fn parts(files: &[Option<Vec<u8>>; 4]) -> impl Iterator<Item = Vec<u8>> {
    files.iter().map(|text| text.as_deref().map_or(Vec::new(), |text| [b"+", text].concat()))
}

/// Whether a configuration of Mercurial's has only what `hg clone` writes: paths, which count for nothing in a repository that
/// is the other one.
fn is_plain(text: &[u8]) -> bool {
    let mut in_paths = false;
    let Ok(text) = std::str::from_utf8(text) else { return false };
    text.lines().map(|line| (line, line.trim())).all(|(line, trimmed)| match line.chars().next() {
        None | Some('#' | ';') => true,
        _ if trimmed.is_empty() => true,
        Some('[') => {
            in_paths = line == "[paths]";
            in_paths
        }
        Some(c) => in_paths && c.is_ascii_alphabetic() && line.contains('='),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_mercurial_takes_it_for() {
        for (value, expected) in [
            ("up#stable", &["up"][..]),
            ("file:///a/%62", &["/a/%62", "/a/b"]),
            ("file:x", &["x"]),
            ("bundle:r+b.hg", &["b.hg", "r", "r+b.hg"]),
            ("$HOME/x", &["/h/x"]),
            ("ssh://h/x", &[]),
            ("path://other", &[]),
            ("a:b", &["a:b"]),
        ] {
            let found: Vec<_> =
                local_paths(value, Some(Path::new("/h"))).into_iter().map(|path| path.into_string().unwrap()).collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn the_extension_schemes_makes_other_addresses_of_one() {
        let schemes = [("q", "{1}"), ("w", "file:up"), ("h", "https://{1}/{2}/x/"), ("l", "l://")];
        let schemes = schemes.map(|(name, template)| (name.to_owned(), template.to_owned()));
        for (value, expected) in
            [("q://up", "up"), ("w://", "file:up"), ("h://a/b/c/d", "https://a/b/x/c/d"), ("h://a", "https://a//x/")]
        {
            assert_eq!(expanded(value.to_owned(), &schemes), [value, expected]);
        }
        assert_eq!(expanded("ssh://h/x".to_owned(), &schemes), ["ssh://h/x"]);
        assert!(expanded("l://".to_owned(), &schemes).len() <= MOST_EXPANDED + 1);
    }

    #[test]
    fn what_clone_writes_is_plain_and_nothing_else() {
        assert!(is_plain(b"# example\n[paths]\ndefault = /x\n\n# y = z\n") && is_plain(b""));
        for other in [
            "[hooks]\nx = y",
            "%include x",
            "[paths]\n%include x",
            "[ui]\n",
            "[paths]\nx = y\n[hooks]",
            "x = y",
            "\u{feff}[hooks]",
        ] {
            assert!(!is_plain(other.as_bytes()), "{other}");
        }
    }
}
