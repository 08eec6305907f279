//! What deny and protected paths need: masks, read-only binds, and what leads to them bound onto itself. What mounts cannot
//! hold is reported as that, and never passed over.

use std::collections::BTreeSet;

use cofferdam_policy::Root;

use super::{Item, LayoutBuilder};
use crate::failure::Failure;
use crate::plan::facts::{FileKind, ResolvedPath, resolve};
use crate::plan::mount_table::{MountContent, below, join};
use crate::plan::own_places;
use crate::repository::protected_names;
use crate::repository::protected_names::PlannerFiles;

/// Paths inside that need something mounted over them; shorter ones first.
#[derive(Default)]
struct CoveredPaths {
    pins: BTreeSet<String>,
    seals: BTreeSet<(String, bool)>,
    masks: BTreeSet<(String, bool)>,
}

impl LayoutBuilder<'_> {
    pub(super) fn hold(&mut self) -> Result<(), Failure> {
        let fs = &self.policy.filesystem;
        let mut held = CoveredPaths::default();
        let (absolute, relative): (Vec<&str>, Vec<&str>) =
            fs.protected.iter().map(String::as_str).partition(|p| p.starts_with('/'));
        let trees: Vec<(String, String)> = self
            .out
            .view
            .places()
            .iter()
            .filter_map(|p| match &p.shows {
                MountContent::Host(source) if p.writable && self.facts.kind(source) == FileKind::Directory => {
                    Some((p.target.clone(), source.clone()))
                }
                _ => None,
            })
            .collect();
        for path in &fs.deny {
            self.each(path, true, &mut held);
        }
        for path in absolute {
            self.each(path, false, &mut held);
        }
        for (target, source) in &trees {
            for path in protected_names::protected(&relative, source, &PlannerFiles(self.facts)) {
                self.each(&join(target, &path), false, &mut held);
            }
        }
        // Cofferdam's own files are no field of a policy that could be given up.
        let (deny, protected) = (self.out.unheld_deny.len(), self.out.unheld_protected.len());
        for place in self.facts.state()? {
            // A lock that is not there lies in a directory that is only read.
            if place.path.ends_with("/.lock") && self.facts.kind(&place.path) == FileKind::Missing {
                continue;
            }
            // The host's files are meant. What the program makes at such a path in scratch space is none of them.
            self.host_path(&place.path, &place.path, place.hidden, &mut held);
            if self.out.unheld_deny.len() > deny || self.out.unheld_protected.len() > protected {
                return Err(own_places::exposed(self.policy.backend.name(), &place));
            }
        }
        // A volume that contains one shows the host's processes.
        for mounted in self.facts.processes() {
            if !self.out.view.appearances(mounted).is_empty() {
                self.host_path(mounted, mounted, true, &mut held);
            }
        }
        self.finish(held);
        Ok(())
    }

    /// A path as meant inside and as meant on the host.
    fn each(&mut self, path: &str, deny: bool, held: &mut CoveredPaths) {
        match self.out.view.host_path(path) {
            Some(host) if host != path => self.host_path(&host, path, deny, held),
            // A name in a container's own memory is its own: nothing of the host's is there, nor comes from there.
            None if self.out.view.covering(path).is_some_and(|p| p.writable) && !self.container => {
                self.unheld(path, deny);
            }
            None if deny => self.own_path(path, held),
            _ => {}
        }
        self.host_path(path, path, deny, held);
    }

    /// A denied path in what is shown of no host's: a text of the sandbox's own, or whatever a container's image has there,
    /// which nobody looked at. Its runtime hides it if it is there, as a directory or as a file.
    fn own_path(&self, path: &str, held: &mut CoveredPaths) {
        let text = |item: &Item| matches!(item, Item::Text { target, .. } if target == path);
        if self.out.items.iter().any(text) {
            held.masks.insert((path.to_owned(), false));
        } else if matches!(self.policy.filesystem.root, Root::Image(_))
            && self.out.view.covering(path).is_some_and(|place| place.target == "/")
        {
            held.masks.insert((path.to_owned(), true));
        }
    }

    fn unheld(&mut self, path: &str, deny: bool) {
        let list = if deny { &mut self.out.unheld_deny } else { &mut self.out.unheld_protected };
        if !list.iter().any(|known| known == path) {
            list.push(path.to_owned());
        }
    }

    fn host_path(&mut self, host: &str, named: &str, deny: bool, held: &mut CoveredPaths) {
        let at = match resolve(self.facts, host).0 {
            ResolvedPath::There(canonical, _) => canonical,
            ResolvedPath::Missing(parent, name) => join(&parent, &name),
            ResolvedPath::Unknown => host.to_owned(),
        };
        self.one_host_path(host, named, deny, held);
        for place in self.facts.layered(&at) {
            self.one_host_path(&place, named, deny, held);
        }
    }

    fn one_host_path(&mut self, host: &str, named: &str, deny: bool, held: &mut CoveredPaths) {
        let (found, links) = resolve(self.facts, host);
        // Whoever may replace a link on the way decides what is at the path.
        if links.iter().any(|(parent, _)| self.shows_writable(parent)) {
            self.unheld(named, deny);
        }
        match found {
            ResolvedPath::Unknown => {
                let (parent, _) = host.rsplit_once('/').unwrap_or(("/", host));
                if self.shows_writable(parent) {
                    self.unheld(named, deny);
                }
            }
            ResolvedPath::Missing(parent, _) => {
                if self.shows_writable(&parent) {
                    self.unheld(named, deny);
                }
            }
            ResolvedPath::There(canonical, kind) => {
                for inside in self.everywhere(&canonical) {
                    let writable = self.out.view.covering(&inside).is_some_and(|p| p.writable);
                    if deny {
                        held.masks.insert((inside.clone(), kind == FileKind::Directory));
                    } else if writable {
                        if matches!(kind, FileKind::File { links: 2.., .. }) {
                            self.out.linked.push(inside.clone());
                        }
                        held.seals.insert((inside.clone(), kind == FileKind::Directory));
                    }
                    if writable {
                        self.pin(&inside, held);
                    }
                }
            }
        }
    }

    fn everywhere(&self, canonical: &str) -> Vec<String> {
        let mut found = self.out.view.appearances(canonical);
        for alias in self.facts.aliases(canonical) {
            found.extend(self.out.view.appearances(&alias));
        }
        found.sort();
        found.dedup();
        found
    }

    fn shows_writable(&self, directory: &str) -> bool {
        self.everywhere(directory).iter().any(|inside| self.out.view.covering(inside).is_some_and(|p| p.writable))
    }

    /// Each directory between the writable mount and the path becomes a mount, so that it cannot be moved away.
    fn pin(&self, inside: &str, held: &mut CoveredPaths) {
        let Some(place) = self.out.view.covering(inside) else { return };
        let Some(rest) = below(inside, &place.target) else { return };
        let parts: Vec<&str> = rest.split('/').collect();
        let mut at = place.target.clone();
        for part in &parts[..parts.len().saturating_sub(1)] {
            at = join(&at, part);
            held.pins.insert(at.clone());
        }
    }

    fn finish(&mut self, mut held: CoveredPaths) {
        // What the program's user cannot come to needs no hiding, and nothing can be mounted there as that user.
        let comes_to = |inside: &String| {
            let mut above = cofferdam_policy::paths::ancestors(inside).skip(1);
            above.all(|at| self.out.view.host_path(at).is_none_or(|host| !self.facts.is_closed(&host)))
        };
        held.masks.retain(|(mask, _)| comes_to(mask));
        held.seals.retain(|(seal, _)| comes_to(seal));
        held.pins.retain(comes_to);
        // An engine mounts one thing at a place, and on bubblewrap's texts nothing can be mounted: what is denied is not shown
        // first and hidden then.
        self.out.items.retain(|item| match item {
            Item::Bind { directory: false, .. } if !self.container => true,
            Item::Text { target, .. } | Item::Bind { target, directory: false, .. } => {
                !held.masks.contains(&(target.clone(), false))
            }
            _ => true,
        });
        let covered = |path: &str| held.masks.iter().any(|(mask, _)| mask != path && below(path, mask).is_some());
        let binds = held.pins.iter().map(|pin| (pin, true, true));
        let binds = binds.chain(held.seals.iter().map(|(seal, directory)| (seal, false, *directory)));
        for (inside, writable, directory) in binds.filter(|(inside, ..)| !covered(inside)) {
            let Some(source) = self.out.view.host_path(inside) else { continue };
            // What could not be executed before cannot be now.
            let exec = !self.out.closed.iter().any(|closed| below(inside, closed).is_some());
            let target = inside.clone();
            self.out.items.push(Item::Bind { source, target, writable, exec, directory, optional: false });
        }
        for (target, directory) in held.masks.iter().filter(|(mask, _)| !covered(mask)) {
            self.out.items.push(Item::Mask { target: target.clone(), directory: *directory });
        }
    }
}
