//! Deny and protected: from paths to masks, self-binds and guards.
//!
//! Every path is resolved on the host before a decision, and held wherever the same file shows inside: below each
//! mount that carries it, under its own name and under what a symbolic link leads to. What exists is mounted over; what
//! does not is guarded where the program could make it, and needs nothing where it cannot.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cofferdam_confine::init_plan::{GuardDir, MountStep, attr};
use cofferdam_policy::Policy;
use cofferdam_policy::paths::is_within;

use crate::plan::aliases::Aliases;
use crate::plan::lookup::{DirectoryLookup, Lookup, PathLookup};
use crate::plan::mount_table::{MountContent, MountEntry, View, below, join};
use crate::plan::own_places::{self, OwnPlaces};
use crate::plan::tree::Disk;
use crate::repository::protected_names;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct PathPlan {
    /// Ancestors bound onto themselves, masks, read-only self-binds; in this order.
    pub steps: Vec<MountStep>,
    /// Names that must not come into being.
    pub guards: Vec<GuardDir>,
    /// Denied paths as seen inside, for evidence.
    pub denied: BTreeSet<String>,
    /// Protected paths as seen inside, for evidence.
    pub protected: BTreeSet<String>,
    /// Some of the guarded names are symbolic links that exist.
    pub links: bool,
    /// Protected files with more than one hard link, whose other names are not held.
    pub linked: Vec<String>,
    /// Paths that nothing here can hold, and whether each was to be denied.
    pub unheld: Vec<(String, Unheld, bool)>,
    /// Denied names in read-only trees, many in one directory: directory inside → names. Held by one layer each.
    pub whiteouts: BTreeMap<String, Vec<String>>,
}

/// Why a path cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unheld {
    /// It is another file for each process that asks.
    OfEachProcess,
    /// It is what the sandbox has as its root.
    Root,
    /// It lies in an overlay of the host of which one layer is not known, and so not where else it shows.
    UnknownLayer,
    /// A configuration of version control names it, in another encoding than UTF-8.
    NotText,
}

/// From this many denied names of one read-only directory on, one layer hides them all.
const WHITEOUT_LAYER_MIN: usize = 64;

struct Work<'a> {
    view: &'a View,
    /// What the sandbox's own scratch directories hold at the start.
    own: &'a BTreeSet<String>,
    aliases: &'a Aliases,
    lookup: Lookup,
    pins: BTreeSet<String>,
    masks: BTreeSet<String>,
    seals: BTreeSet<String>,
    /// Of the masks and seals, those on paths of the sandbox's own.
    unsure: BTreeSet<String>,
    /// Directory inside → names, and whether each is denied.
    guards: BTreeMap<String, Vec<(String, bool)>>,
    whiteouts: BTreeMap<String, Vec<String>>,
    /// Whether every path is noted for evidence: only a trace asks for them all.
    evidence: bool,
    appearances: HashMap<String, Vec<String>>,
    /// Names that are missing in a directory and have been guarded, and whether each is denied.
    guarded: HashSet<(String, String, bool)>,
    /// Whether some path inside is another one on the host, so that a link can lead elsewhere inside than there.
    moved: bool,
    /// Where paths lead inside, behind the links on the way.
    inside: HashMap<String, String>,
    /// Where layers of hidden names lie, under every name.
    layers: OnceCell<Vec<PathBuf>>,
    too_deep: bool,
    held: PathPlan,
}

/// From this many names of one directory on, the directory is looked at once instead of each name.
const TOGETHER: usize = 16;

/// Most links on the way to a file (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// From this many denied names of one read-only directory on, which of them exist is not asked: the layer hides them all.
const UNLISTED: usize = 4 * WHITEOUT_LAYER_MIN;

/// Names of one directory.
#[derive(Default)]
struct Names<'p> {
    deny: Vec<&'p str>,
    protect: Vec<&'p str>,
}

/// Works out what holds the policy's deny and protected paths in this view.
pub(super) fn hold(
    policy: &Policy,
    view: &View,
    own: &BTreeSet<String>,
    lookup: Lookup,
    places: &OwnPlaces,
) -> PathPlan {
    let fs = &policy.filesystem;
    let writable = view.places().iter().any(|p| p.writable && matches!(p.shows, MountContent::Host(_)));
    let OwnPlaces { places: state, aliases, .. } = places;
    let shown = state.iter().any(|place| place.hidden && !view.appearances(&place.path).is_empty());
    let shows_processes = |mounted: &&String| !view.appearances(mounted).is_empty();
    let processes: Vec<String> = aliases.processes().iter().filter(shows_processes).cloned().collect();
    if !shown
        && processes.is_empty()
        && fs.deny.is_empty()
        && !writable
        && !fs.protected.iter().any(|p| p.starts_with('/'))
    {
        return PathPlan::default(); // nothing to ask the host about
    }
    let mut w = Work {
        view,
        own,
        aliases,
        lookup,
        pins: BTreeSet::new(),
        masks: BTreeSet::new(),
        seals: BTreeSet::new(),
        unsure: BTreeSet::new(),
        guards: BTreeMap::new(),
        whiteouts: BTreeMap::new(),
        appearances: HashMap::new(),
        guarded: HashSet::new(),
        moved: view.places().iter().any(|p| matches!(&p.shows, MountContent::Host(source) if *source != p.target)),
        inside: HashMap::new(),
        layers: OnceCell::new(),
        too_deep: false,
        held: PathPlan::default(),
        evidence: policy.audit.trace,
    };
    let (absolute, relative): (Vec<&str>, Vec<&str>) =
        fs.protected.iter().map(String::as_str).partition(|p| p.starts_with('/'));
    let below_mounts: Vec<String> = view
        .places()
        .iter()
        .filter_map(|p| match &p.shows {
            // A mounted file has nothing below it, and is what was asked to be written.
            MountContent::Host(source) if p.writable && Path::new(source).is_dir() => Some((&p.target, source)),
            _ => None,
        })
        .flat_map(|(target, source)| {
            let names = protected_names::protected(&relative, source, &Disk);
            names.into_iter().map(|name| join(target, &name))
        })
        .collect();
    let protect = absolute.into_iter().chain(below_mounts.iter().map(String::as_str));
    let mut dirs: HashMap<&str, Names<'_>> = HashMap::new();
    for path in &fs.deny {
        let (dir, name) = split(path);
        dirs.entry(dir).or_default().deny.push(name);
    }
    for path in protect {
        let (dir, name) = split(path);
        dirs.entry(dir).or_default().protect.push(name);
    }
    // Which file it is can no longer be said.
    let garbled = below_mounts.iter().filter(|path| path.contains(char::REPLACEMENT_CHARACTER));
    w.held.unheld.extend(garbled.map(|path| (path.clone(), Unheld::NotText, false)));
    for (dir, names) in dirs {
        w.names(dir, &names.deny, true);
        w.names(dir, &names.protect, false);
    }
    // Whoever writes there decides what is hidden, from this very run on.
    for layers in crate::plan::whiteout::bases().iter().filter(|_| writable).filter_map(|base| base.to_str()) {
        w.place(layers, false);
    }
    // What decides over later sandboxes, and what they are recorded in.
    let shows = |place: &&own_places::OwnPlace| place.hidden && !view.appearances(&place.path).is_empty();
    for place in state.iter().filter(|place| writable || shows(place)) {
        w.place(&place.path, place.hidden);
    }
    // A volume that contains one shows the host's processes.
    for mounted in &processes {
        w.existing(mounted, true);
    }
    // Whoever replaces a link on the way to a path puts something else at that path.
    for (parent, name) in std::mem::take(&mut w.lookup.links) {
        let link = join(&parent, &name);
        w.missing(&parent, &name, &link, false);
        w.held.links |= w.appear(&parent).iter().any(|d| w.view.covering(d).is_some_and(|p| p.writable));
    }
    w.finish()
}

/// Whether a path of the sandbox's own is about a process, and so another file for each that asks: in /proc, or by a link
/// that leads there.
fn of_a_process(path: &str) -> bool {
    let first = |dir| path.strip_prefix(dir).and_then(|rest: &str| rest.split('/').next()).unwrap_or_default();
    let (proc, dev) = (first("/proc/"), first("/dev/"));
    matches!(proc, "self" | "thread-self" | "mounts" | "net")
        || (!proc.is_empty() && proc.bytes().all(|b| b.is_ascii_digit()))
        || matches!(dev, "fd" | "stdin" | "stdout" | "stderr")
}

/// Directory and last component.
fn split(path: &str) -> (&str, &str) {
    match path.rfind('/') {
        Some(0) | None => ("/", path.trim_start_matches('/')),
        Some(i) => (&path[..i], &path[i + 1..]),
    }
}

impl Work<'_> {
    /// Some names of one directory.
    fn names(&mut self, dir: &str, names: &[&str], deny: bool) {
        if names.len() < TOGETHER || !self.together(dir, names, deny) {
            // Where the directory is not there, all of them fail at the same name; only a trace wants each.
            let alike = !self.evidence && !self.moved && self.is_its_own(dir) && self.is_missing(dir);
            for name in if alike { names.get(..1).unwrap_or_default() } else { names } {
                self.each(&join(dir, name), deny);
            }
        }
    }

    fn is_missing(&mut self, dir: &str) -> bool {
        matches!(self.lookup.directory(dir), DirectoryLookup::Missing { .. })
    }

    /// Whether a directory inside is the host's of that name, with no mount below it.
    fn is_its_own(&self, dir: &str) -> bool {
        let among = |base: &str| {
            self.view.places().iter().any(|p| {
                let source = matches!(&p.shows, MountContent::Host(s) if s != base && is_within(s, base));
                source || (p.target != dir && is_within(&p.target, dir))
            })
        };
        self.view.host_path(dir).is_some_and(|host| host == dir) && !among(dir)
    }

    /// Many names of one directory at once. False, and nothing done, where a mount lies among them or the directory is of
    /// the sandbox's own: then each name is looked at by itself.
    fn together(&mut self, dir: &str, names: &[&str], deny: bool) -> bool {
        if self.aliases.has(dir) {
            return false;
        }
        if !self.is_its_own(dir) {
            return false;
        }
        let canonical = match self.lookup.directory(dir) {
            DirectoryLookup::There(canonical) => canonical,
            DirectoryLookup::Missing { parent, name } => {
                // All of them fail at the same missing component; only a trace wants each by its name.
                let asked = if self.evidence { names } else { &names[..1] };
                for wanted in asked {
                    self.missing(&parent, &name, &join(dir, wanted), deny);
                }
                return true;
            }
            DirectoryLookup::Other => return false,
        };
        if canonical != dir {
            return false;
        }
        let places: Vec<(String, bool)> = self
            .view
            .appearances(dir)
            .into_iter()
            .map(|d| {
                let writable = self.view.covering(&d).is_some_and(|p| p.writable);
                (d, writable)
            })
            .collect();
        if deny && names.len() >= UNLISTED && places.iter().all(|(inside, writable)| !writable && self.plain(inside)) {
            return self.hidden(dir, names, &places);
        }
        let Some(there) = crate::plan::lookup::among(dir, names) else { return false };
        for (inside, writable) in &places {
            if *writable {
                self.pin_ancestors(&join(inside, names[0]));
            }
        }
        let mut absent: Vec<&str> = Vec::new();
        let mut present: Vec<&str> = Vec::new();
        for (&name, there) in names.iter().zip(there) {
            match there {
                None => absent.push(name),
                Some(true) => self.each(&join(dir, name), deny), // a symbolic link
                Some(false) => present.push(name),
            }
        }
        for (inside, writable) in &places {
            if self.evidence {
                names.iter().for_each(|n| self.note(&join(inside, n), deny));
            }
            if *writable {
                self.guards.entry(inside.clone()).or_default().extend(absent.iter().map(|&n| (n.to_owned(), deny)));
            }
            match (deny, *writable) {
                (true, false) => {
                    self.whiteouts.entry(inside.clone()).or_default().extend(present.iter().map(|&n| n.to_owned()))
                }
                (true, true) => self.masks.extend(present.iter().map(|n| join(inside, n))),
                (false, true) => present.iter().for_each(|n| self.seal(&join(dir, n), join(inside, n))),
                (false, false) => {}
            }
        }
        true
    }

    /// Denied names of a directory that can only be read: a layer hides them all, those that are not there as well. Only a
    /// symbolic link among them asks for more, since what it leads to is denied too.
    fn hidden(&mut self, dir: &str, names: &[&str], places: &[(String, bool)]) -> bool {
        let Some(there) = crate::plan::lookup::among(dir, names) else { return false };
        for (link, _) in names.iter().zip(there).filter(|(_, there)| *there == Some(true)) {
            self.each(&join(dir, link), true);
        }
        for (inside, _) in places {
            if self.evidence {
                names.iter().for_each(|n| self.note(&join(inside, n), true));
            }
            self.whiteouts.entry(inside.clone()).or_default().extend(names.iter().map(|&n| n.to_owned()));
        }
        true
    }

    /// Whether nothing is mounted below a directory: a layer over it would uncover what mounts in it cover.
    fn plain(&self, dir: &str) -> bool {
        !self.view.places().iter().any(|p| p.target != dir && is_within(&p.target, dir))
            // Nor can a layer lie below what it hides names of: overlayfs refuses layers that overlap.
            && self.view.host_path(dir).is_none_or(|host| {
                !self.aliases.mounted_below(&host) && !self.layers().iter().any(|base| base.starts_with(&host))
            })
    }

    /// Where layers of hidden names lie: a home may be named by a link, and the host may mount it twice.
    fn layers(&self) -> &[PathBuf] {
        self.layers.get_or_init(|| {
            let base = crate::plan::whiteout::real_base();
            let others = base.to_str().map(|base| self.aliases.bound(base)).unwrap_or_default();
            others.into_iter().map(PathBuf::from).chain([base]).collect()
        })
    }

    /// A protected path of a writable tree: read-only onto itself.
    fn seal(&mut self, host: &str, inside: String) {
        if let Ok(meta) = std::fs::symlink_metadata(host)
            && meta.is_file()
            && meta.nlink() > 1
        {
            self.held.linked.push(inside.clone());
        }
        self.seals.insert(inside);
    }

    /// An absolute path, meant as a path inside and as a path of the host: everywhere the file shows.
    fn each(&mut self, path: &str, deny: bool) {
        self.by_name(path, deny);
        if self.moved {
            let inside = self.followed(path, 0);
            if std::mem::take(&mut self.too_deep) {
                self.inside.clear(); // it holds paths that were not followed to their end
            }
            if inside != path {
                self.by_name(&inside, deny);
            }
        }
    }

    /// A place of Cofferdam's own on the host: everywhere it shows. What scratch space has at its path is the sandbox's.
    fn place(&mut self, path: &str, deny: bool) {
        match self.view.covering(path) {
            Some(MountEntry { shows: MountContent::Own, .. }) => self.host_path(path, path, deny),
            _ => self.each(path, deny),
        }
    }

    fn by_name(&mut self, path: &str, deny: bool) {
        if let Some(host) = self.view.host_path(path)
            && host != path
        {
            self.host_path(&host, path, deny);
        } else if matches!(self.view.covering(path), Some(MountEntry { shows: MountContent::Own, .. })) {
            self.own_path(path, deny);
        }
        self.host_path(path, path, deny);
    }

    /// Where a path leads inside, which only what the sandbox sees decides: links in what is mounted elsewhere, or in a
    /// directory that is the root, lead to other files there than on the host. A path that leads round or through more
    /// links than the kernel follows leads nowhere.
    fn followed(&mut self, path: &str, links: u32) -> String {
        let (dir, name) = split(path);
        if name.is_empty() {
            return "/".into();
        }
        if let Some(known) = self.inside.get(path) {
            return known.clone();
        }
        // Each path is looked at once, also where links lead round in many ways.
        self.inside.insert(path.to_owned(), path.to_owned());
        let parent = self.followed(dir, links);
        let at = join(&parent, name);
        let says = self.view.host_path(&at).and_then(|host| std::fs::read_link(host).ok());
        let to = match says.as_deref().and_then(Path::to_str) {
            None => at,
            Some(_) if links >= MOST_LINKS => {
                self.too_deep = true;
                at
            }
            Some(says) => {
                if let Some(host) = self.view.host_path(&parent) {
                    self.lookup.links.insert((host, name.to_owned()));
                }
                let mut to = if says.starts_with('/') { "/".to_owned() } else { parent };
                for part in says.split('/').filter(|part| !part.is_empty() && *part != ".") {
                    to = match part {
                        ".." => split(&to).0.to_owned(),
                        part => self.followed(&join(&to, part), links + 1),
                    };
                }
                to
            }
        };
        self.inside.insert(path.to_owned(), to.clone());
        to
    }

    /// A path of the sandbox's own: what is there from the start is covered, what is not is guarded where it could be made.
    fn own_path(&mut self, path: &str, deny: bool) {
        let Some(place) = self.view.covering(path) else { return };
        let (target, writable) = (place.target.clone(), place.writable);
        if matches!(target.as_str(), "/proc" | "/dev") && of_a_process(path) {
            self.held.unheld.push((path.to_owned(), Unheld::OfEachProcess, deny));
            return;
        }
        self.note(path, deny);
        // Whether it is there at the start, the mounts themselves find out.
        self.unsure.insert(path.to_owned());
        if deny {
            self.masks.insert(path.to_owned());
        } else if writable {
            self.seals.insert(path.to_owned());
        }
        let Some(rest) = below(path, &target).filter(|rest| writable && !rest.is_empty()) else { return };
        let mut parent = target;
        for name in rest.split('/') {
            let at = join(&parent, name);
            if !self.own.contains(&at) {
                self.guards.entry(parent).or_default().push((name.to_owned(), deny));
                return self.pin_ancestors(&at);
            }
            parent = at;
        }
        self.pin_ancestors(path);
    }

    /// `asked` is the path as the policy names it.
    fn host_path(&mut self, host: &str, asked: &str, deny: bool) {
        let found = self.lookup.find(host);
        if let (true, PathLookup::There { canonical, .. }) = (deny, &found) {
            // What it leads to is the host's /proc here, and inside the sandbox's own.
            if canonical != asked && of_a_process(canonical) {
                return self.held.unheld.push((asked.to_owned(), Unheld::OfEachProcess, deny));
            }
            if self.appear(canonical).iter().any(|inside| inside == "/") {
                return self.held.unheld.push((asked.to_owned(), Unheld::Root, deny));
            }
            if self.aliases.undetermined(canonical).is_some() && !self.view.appearances(canonical).is_empty() {
                return self.held.unheld.push((asked.to_owned(), Unheld::UnknownLayer, deny));
            }
        }
        match found {
            PathLookup::Unknown => {}
            // Read-only, it stays closed: who may not look into it cannot change its mode. And a file in the way of a
            // protected directory decides for it what is there, as the `.git` of a worktree does.
            PathLookup::Closed(path) | PathLookup::Blocked(path) => self.existing(&path, false),
            PathLookup::Missing { parent, name } => self.missing(&parent, &name, host, deny),
            PathLookup::There { parent, name, canonical, is_link, .. } => {
                let named = join(&parent, &name);
                if is_link {
                    // The link itself is held by name (it cannot be mounted over), what it leads to by mounts.
                    self.missing(&parent, &name, host, deny);
                    self.existing(&canonical, deny);
                } else {
                    self.existing(&named, deny);
                }
            }
        }
    }

    fn existing(&mut self, host: &str, deny: bool) {
        self.present(host, deny);
        self.layered(host, deny);
    }

    fn missing(&mut self, parent: &str, name: &str, wanted: &str, deny: bool) {
        // Many paths are missing for the same name, and only a trace wants each of them.
        if !self.guarded.insert((parent.to_owned(), name.to_owned(), deny)) && !self.evidence {
            return;
        }
        self.absent(parent, name, wanted, deny);
        self.layered(&join(parent, name), deny);
    }

    /// What is at a path of an overlay or of its layers may be the same, and may come to be.
    fn layered(&mut self, host: &str, deny: bool) {
        for place in self.aliases.layered(host) {
            match self.lookup.find(&place) {
                PathLookup::Unknown => {}
                PathLookup::Closed(path) | PathLookup::Blocked(path) => self.present(&path, false),
                PathLookup::Missing { parent, name } => self.absent(&parent, &name, &place, deny),
                PathLookup::There { parent, name, .. } => self.present(&join(&parent, &name), deny),
            }
        }
    }

    fn present(&mut self, host: &str, deny: bool) {
        for inside in self.appear(host) {
            self.note(&inside, deny);
            let writable = self.view.covering(&inside).is_some_and(|p| p.writable);
            if deny {
                self.masks.insert(inside.clone());
            } else if writable {
                self.seal(host, inside.clone());
            }
            if writable {
                self.pin_ancestors(&inside);
            }
        }
    }

    fn absent(&mut self, parent: &str, name: &str, wanted: &str, deny: bool) {
        for inside in self.appear(parent) {
            self.note(&below(wanted, parent).map_or_else(|| join(&inside, name), |rest| join(&inside, rest)), deny);
            if self.view.covering(&inside).is_some_and(|p| p.writable) {
                self.guards.entry(inside.clone()).or_default().push((name.to_owned(), deny));
                self.pin_ancestors(&join(&inside, name));
            }
        }
    }

    /// Each directory between the writable mount and the path is bound onto itself, so that it cannot be moved away.
    fn pin_ancestors(&mut self, inside: &str) {
        let Some(place) = self.view.covering(inside) else { return };
        let Some(rest) = below(inside, &place.target) else { return };
        let mut at = place.target.clone();
        let parts: Vec<&str> = rest.split('/').collect();
        for part in &parts[..parts.len().saturating_sub(1)] {
            at = join(&at, part);
            self.pins.insert(at.clone());
        }
    }

    fn appear(&mut self, host: &str) -> Vec<String> {
        if let Some(known) = self.appearances.get(host) {
            return known.clone();
        }
        let found = self.everywhere(host);
        self.appearances.insert(host.to_owned(), found.clone());
        found
    }

    /// Where a path of the host shows inside, by its own name and by those that the host's mounts give it.
    fn everywhere(&self, host: &str) -> Vec<String> {
        let mut found = self.view.appearances(host);
        for alias in self.aliases.bound(host) {
            for inside in self.view.appearances(&alias) {
                if !found.contains(&inside) {
                    found.push(inside);
                }
            }
        }
        found
    }

    fn note(&mut self, inside: &str, deny: bool) {
        if !self.evidence {
            return;
        }
        let set = if deny { &mut self.held.denied } else { &mut self.held.protected };
        set.insert(inside.to_owned());
    }

    fn finish(mut self) -> PathPlan {
        let mut whiteouts = std::mem::take(&mut self.whiteouts);
        // What may not be there, in a tree of the sandbox's own, may lie in a directory that is not there either.
        for mask in self.masks.difference(&self.unsure) {
            if let Some(i) = mask.rfind('/').filter(|&i| i > 0)
                && self.view.covering(mask).is_some_and(|p| !p.writable)
            {
                whiteouts.entry(mask[..i].to_owned()).or_default().push(mask[i + 1..].to_owned());
            }
        }
        whiteouts.retain(|dir, names| {
            let together = names.len() >= WHITEOUT_LAYER_MIN && self.plain(dir);
            if !together {
                self.masks.extend(names.iter().map(|n| join(dir, n)));
            }
            together
        });
        for names in whiteouts.values_mut() {
            names.sort_unstable();
            names.dedup();
        }
        // What a layer hides, and what lies below it, is not there to be mounted over.
        self.masks.retain(|mask| {
            let mut at = mask.as_str();
            while at != "/" {
                let (dir, name) = split(at);
                if whiteouts.get(dir).is_some_and(|names| names.binary_search_by(|n| n.as_str().cmp(name)).is_ok()) {
                    return false;
                }
                at = dir;
            }
            true
        });
        self.held.whiteouts = whiteouts;
        // Shorter paths first: an ancestor before what lies in it. A mask below a mask is not needed.
        for pin in &self.pins {
            self.held.steps.push(MountStep::SelfBind { target: pin.clone(), attrs: 0, optional: false });
        }
        for seal in self.seals.iter().filter(|s| !under_any(s, &self.masks)) {
            self.held.steps.push(MountStep::SelfBind {
                target: seal.clone(),
                attrs: attr::RDONLY,
                optional: self.unsure.contains(seal),
            });
        }
        for mask in &self.masks {
            if !mask.rfind('/').is_some_and(|i| under_any(&mask[..i], &self.masks)) {
                self.held.steps.push(MountStep::Mask { target: mask.clone(), optional: self.unsure.contains(mask) });
            }
        }
        for (parent, names) in std::mem::take(&mut self.guards) {
            if !under_any(&parent, &self.masks) {
                let denied = names.iter().filter(|(_, deny)| *deny).map(|(name, _)| name.clone()).collect();
                let mut names: Vec<String> = names.into_iter().map(|(name, _)| name).collect();
                names.sort_unstable();
                names.dedup();
                self.held.guards.push(GuardDir { parent, names, denied });
            }
        }
        self.held
    }
}

fn under_any(path: &str, set: &BTreeSet<String>) -> bool {
    let mut at = path;
    loop {
        if set.contains(at) {
            return true;
        }
        match at.rfind('/') {
            Some(0) | None => return set.contains("/"),
            Some(i) => at = &at[..i],
        }
    }
}
