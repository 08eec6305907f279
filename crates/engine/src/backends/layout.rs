//! The sandbox's file system as a list of mounts that any mount-making tool can be given: what is shown where and what may be
//! written. Here the list, and the mounts that the policy names; the root views stand in `root`, and what deny and protected
//! paths need in `protect`.
//!
//! Pure but for the facts asked for. The jail has a plan of its own, with more to hold with (guards, layers, owner maps);
//! what cannot be held by mounts alone is listed in [`MountLayout::unheld_deny`] and [`MountLayout::unheld_protected`], and the
//! field is then no more than partial.

mod program;
mod protect;
mod root;
#[cfg(test)]
mod tests;

use cofferdam_policy::{Access, Mount, Policy};

use crate::failure::{FailedStep, Failure};
use crate::plan::facts::{Facts, FileKind, ResolvedPath, resolve};
use crate::plan::mount_table::{MountContent, MountEntry, View, below, join};

/// One thing to mount or make, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A file or directory of the host, nosuid and nodev.
    Bind {
        /// Canonical path on the host.
        source: String,
        /// Path inside.
        target: String,
        /// Whether it can be written.
        writable: bool,
        /// Whether programs on it can be executed.
        exec: bool,
        /// Whether it is a directory.
        directory: bool,
        /// Whether it may be left out, should nothing be there any more.
        optional: bool,
    },
    /// An empty file system in memory.
    Tmpfs {
        /// Path inside.
        target: String,
        /// Size.
        bytes: u64,
        /// Mode of its root.
        mode: u32,
        /// Whether programs on it can be executed.
        exec: bool,
    },
    /// A directory in what was mounted before.
    Directory {
        /// Path inside.
        target: String,
        /// Mode.
        mode: u32,
    },
    /// A symbolic link in what was mounted before.
    Link {
        /// What it says.
        says: String,
        /// Path inside.
        target: String,
    },
    /// A read-only file with this text.
    Text {
        /// Path inside.
        target: String,
        /// Contents.
        text: String,
    },
    /// Devices of the sandbox's own.
    Dev,
    /// A procfs of the sandbox's own pid namespace.
    Proc,
    /// A file or directory that can be neither read nor written any more.
    Mask {
        /// Path inside.
        target: String,
        /// Whether it is a directory.
        directory: bool,
    },
}

/// The whole of it.
#[derive(Debug, Clone, Default)]
pub struct MountLayout {
    /// In the order of mounting, on an empty root that ends read-only.
    pub items: Vec<Item>,
    /// What shows where.
    pub view: View,
    /// Denied paths that mounts alone cannot hold.
    pub unheld_deny: Vec<String>,
    /// Protected paths that mounts alone cannot hold.
    pub unheld_protected: Vec<String>,
    /// Protected files with further names, through which they could be written.
    pub linked: Vec<String>,
    /// Binds of the host below which something else is mounted.
    pub nested: Vec<String>,
    /// Those among them that the policy asks for, by its own words: what it names may be a link.
    pub nested_mounts: Vec<String>,
    /// Writable binds on which nothing may be executed.
    pub closed: Vec<String>,
    /// Read-only binds in which something passes on what is written to it, or that hold too much to be looked through: each
    /// with what.
    pub passing: Vec<String>,
    /// Sources of optional mounts that are not there.
    pub left_out: Vec<String>,
    /// Where links of the root lead, for finding the program.
    pub(super) links: Vec<(String, String)>,
}

/// Where a link in this directory leads that says this.
fn joined(directory: &str, says: &str) -> String {
    let leads = if says.starts_with('/') { says.to_owned() } else { format!("{directory}/{says}") };
    cofferdam_policy::paths::normalize(&leads).unwrap_or(leads)
}

/// Lays a policy out.
///
/// # Errors
/// A mount that cannot be made by mounts of this kind, or whose source or place is not there.
pub fn layout(policy: &Policy, facts: &dyn Facts) -> Result<MountLayout, Failure> {
    laid_out(policy, facts, false)
}

/// The same for a container, which can be made of an image, and whose runtime mounts nothing in /proc.
///
/// # Errors
/// As [`layout`]; also the view of the whole host, over which a container's runtime mounts nothing.
#[cfg(feature = "containers")]
pub(crate) fn in_container(policy: &Policy, facts: &dyn Facts) -> Result<MountLayout, Failure> {
    laid_out(policy, facts, true)
}

/// What a policy shows, with nothing denied or protected in it: enough to look for a program, and nothing to run by.
///
/// # Errors
/// As [`layout`], but for what a backend cannot deny or protect.
pub fn shown(policy: &Policy, facts: &dyn Facts) -> Result<MountLayout, Failure> {
    open(policy, facts, false).map(|b| b.out)
}

fn open<'a>(policy: &'a Policy, facts: &'a dyn Facts, container: bool) -> Result<LayoutBuilder<'a>, Failure> {
    let mut b = LayoutBuilder { policy, facts, container, out: MountLayout::default() };
    b.root()?;
    b.common();
    for (i, mount) in policy.filesystem.mounts.iter().enumerate() {
        b.mount(&FailedStep::mount_entry(i), mount)?;
    }
    Ok(b)
}

fn laid_out(policy: &Policy, facts: &dyn Facts, container: bool) -> Result<MountLayout, Failure> {
    let mut b = open(policy, facts, container)?;
    b.hold()?;
    Ok(b.out)
}

struct LayoutBuilder<'a> {
    policy: &'a Policy,
    facts: &'a dyn Facts,
    container: bool,
    out: MountLayout,
}

impl LayoutBuilder<'_> {
    fn host(&mut self, source: &str, target: &str, directory: bool) {
        if self.facts.has_mounts_below(source) {
            self.out.nested.push(source.to_owned());
        }
        self.out.items.push(Item::Bind {
            source: source.into(),
            target: target.into(),
            writable: false,
            exec: true,
            directory,
            optional: false,
        });
        self.place(target, MountContent::Host(source.into()), false);
    }

    fn place(&mut self, target: &str, shows: MountContent, writable: bool) {
        let persistent = writable && matches!(shows, MountContent::Host(_));
        self.out.view.push(MountEntry { target: target.into(), shows, writable, persistent });
    }

    fn link(&mut self, says: &str, target: &str) {
        self.out.items.push(Item::Link { says: says.into(), target: target.into() });
        let (parent, _) = target.rsplit_once('/').unwrap_or_default();
        self.out.links.push((target.into(), joined(parent, says)));
    }

    fn text(&mut self, target: &str, text: String) {
        self.out.items.push(Item::Text { target: target.into(), text });
    }

    fn tmpfs(&mut self, target: &str, bytes: u64, mode: u32, exec: bool) {
        self.out.items.push(Item::Tmpfs { target: target.into(), bytes, mode, exec });
    }

    fn mount(&mut self, field: &FailedStep, mount: &Mount) -> Result<(), Failure> {
        match mount {
            Mount::Tmpfs { target, size_mb, exec } => {
                self.has_place(field, target, true)?;
                self.tmpfs(target, size_mb << 20, 0o1777, *exec);
                self.place(target, MountContent::Own, true);
            }
            Mount::Bind { source, target, access, exec, optional } => {
                if *access == Access::CopyOnWrite {
                    return Err(Failure::new(
                        field,
                        "a copy-on-write mount needs a layer over it, which only the jail makes",
                    )
                    .hint("use --backend jail, or mount it :ro or :rw"));
                }
                let (canonical, kind) = match resolve(self.facts, source).0 {
                    ResolvedPath::There(canonical, kind) => (canonical, kind),
                    ResolvedPath::Missing(..) if *optional => {
                        self.out.left_out.push(source.clone());
                        return Ok(());
                    }
                    _ => {
                        return Err(Failure::new(field, format!("mount source {source} does not exist"))
                            .hint("create it, or correct the path"));
                    }
                };
                let directory = kind == FileKind::Directory;
                if !directory && !matches!(kind, FileKind::File { .. }) {
                    let message = format!(
                        "mount source {source} is neither a file nor a directory; a device, FIFO or socket would be a way out"
                    );
                    return Err(Failure::new(field, message).hint("bind the directory that holds the data instead"));
                }
                self.has_place(field, target, directory)?;
                let writable = *access == Access::ReadWrite;
                if self.facts.has_mounts_below(&canonical) {
                    self.out.nested.push(canonical.clone());
                    self.out.nested_mounts.push(source.clone());
                }
                if !writable
                    && directory
                    && let Some(why) = self.facts.may_pass_on(&canonical)
                {
                    self.out.passing.push(format!("{target}: {why}"));
                }
                if writable && !exec {
                    self.out.closed.push(target.clone());
                }
                self.out.items.push(Item::Bind {
                    source: canonical.clone(),
                    target: target.clone(),
                    writable,
                    exec: !writable || *exec,
                    directory,
                    optional: *optional,
                });
                self.place(target, MountContent::Host(canonical), writable);
            }
        }
        Ok(())
    }

    /// Where the host's own tree shows, a mount needs a place that exists. It needs that name itself: through a link the
    /// mount would lie elsewhere, and what is denied or protected there would be looked for here.
    fn has_place(&self, field: &FailedStep, target: &str, directory: bool) -> Result<(), Failure> {
        let behind = |leads: &str| {
            let message = format!("mount target {target} is a symbolic link inside, or lies behind one");
            Err(Failure::new(field, message).hint(format!("mount it where that leads: {leads}")))
        };
        let own = self.out.links.iter().find(|(link, _)| below(target, link).is_some());
        if let Some((link, says)) =
            own.filter(|(link, _)| self.out.view.covering(link).is_some_and(|p| p.target == "/"))
        {
            let rest = below(target, link).unwrap_or_default();
            return behind(&join(&if says.starts_with('/') { says.clone() } else { join("/", says) }, rest));
        }
        let Some(host) = self.out.view.host_path(target) else { return Ok(()) };
        let (found, links) = resolve(self.facts, &host);
        if let (ResolvedPath::There(canonical, _), false) = (&found, links.is_empty()) {
            return behind(self.out.view.appearances(canonical).first().unwrap_or(canonical));
        }
        let suits = match &found {
            ResolvedPath::There(_, kind) => (*kind == FileKind::Directory) == directory,
            _ => false,
        };
        if suits {
            return Ok(());
        }
        let what = if directory { "a directory" } else { "a file" };
        Err(Failure::new(field, format!("mount target {target} is not {what} inside")).hint(
            match self.policy.command.cwd.as_deref() == Some(target) {
                true => "it is the working directory: start elsewhere with -w /, or make that directory in the root",
                false => "choose a target that exists, one below /tmp, or a new one at the top such as /data",
            },
        ))
    }
}
