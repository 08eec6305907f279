//! Containers that an OCI runtime makes: crun, runc, youki, and gVisor's runsc.
//!
//! ```text
//! Rootfs ─ rootfs (directory; made; unpacked: unpack, tree, cache) ─┐
//! ContainerSpec ── spec (config.json, pure) ────────────────────────┼─ launch: runtime run ─▶ init
//!          runtimes (which, where, what it can) ────────────────────┘  leftovers: of dead owners
//! ```
//!
//! No daemon has a part in it: the runtime is our child, in the foreground. Files are kept below one directory (`STATE/roots`,
//! `STATE/oci`), and none of the system's own lists of containers is written.

mod cache;
mod cgroups;
mod devices;
mod gofer;
mod image_store;
mod launch;
mod leftovers;
mod rootfs;
mod runtimes;
mod skeleton;
mod spec;
mod tree;
mod unpack;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cofferdam_policy::BackendName;
use serde_json::{Value, json};

use super::{
    Arrival, ContainerRuntime, ContainerSpec, Handed, ImageCommand, Inodes, Mounted, Progress, ReadyRootfs, Rootfs,
    RuntimeFacts, StartedContainer, Swept,
};
use crate::failure::{FailedStep, Failure};
use cache::{CacheBounds, RootfsCache, private};
pub(crate) use devices::{HARMLESS, none_bound as no_devices_bound};
pub(crate) use image_store::Images;
use rootfs::Roots;
use runtimes::{InstalledRuntime, of};
pub(super) use runtimes::{Programs, Runtime};
use skeleton::Skeleton;
use spec::With;

/// Whether a backend means OCI runtimes.
pub(crate) fn makes(backend: BackendName) -> bool {
    !of(backend).is_empty()
}

/// Where bundles are.
fn bundles(state: &Path) -> PathBuf {
    state.join("oci")
}

/// Containers of one OCI runtime.
#[derive(Debug)]
pub(crate) struct Oci {
    installed: InstalledRuntime,
    state: PathBuf,
    roots: Roots,
    /// User and group where the caller is not root.
    caller: Option<(u32, u32)>,
}

impl Oci {
    /// The runtime that a backend means, with files kept below `state`; images by name are those of `images`.
    ///
    /// # Errors
    /// None is installed, or not one that can be used.
    pub(crate) fn new(
        backend: BackendName,
        programs: &Programs,
        state: &Path,
        images: Option<Arc<dyn Images>>,
    ) -> Result<Oci, Failure> {
        let installed = InstalledRuntime::first(of(backend), programs)?;
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let caller = (!uid.is_root()).then(|| (uid.as_raw(), gid.as_raw()));
        let modes_from_below = installed.modes_from_below();
        let roots = Roots { cache: RootfsCache::new(state, CacheBounds::default()), images, modes_from_below };
        Ok(Oci { installed, state: state.to_owned(), roots, caller })
    }

    /// What has to be looked at for a runtime that masks by mounts alone; the others are told paths.
    fn masked(&self, root: &Path, spec: &ContainerSpec) -> Result<Vec<(String, bool)>, Failure> {
        match self.installed.runtime {
            Runtime::Runsc => rootfs::kinds(root, &spec.mounts, &spec.masked),
            Runtime::Crun | Runtime::Runc | Runtime::Youki => Ok(Vec::new()),
        }
    }

    /// The directory of the host that is the root itself: of gVisor's every mount is read-only, and no FIFO opens.
    fn shown_as_it_is<'r>(&self, root: &'r Rootfs) -> Option<&'r Path> {
        match root {
            Rootfs::Directory(path) if self.installed.runtime != Runtime::Runsc => Some(path),
            _ => None,
        }
    }

    /// For gVisor, a root of the run's own; the others make mount points in file systems of theirs alone.
    fn skeleton(&self, root: &Path, spec: &ContainerSpec, covered_tmp: bool) -> Result<Option<Skeleton>, Failure> {
        if self.installed.runtime != Runtime::Runsc {
            return Ok(None);
        }
        let mut covered: Vec<&str> = spec.mounts.iter().map(|mount| mount.target()).collect();
        covered.extend(spec.masked.iter().map(String::as_str));
        covered.extend(covered_tmp.then_some("/tmp"));
        Skeleton::of(root, &covered).map(Some)
    }

    fn with<'a>(
        &'a self,
        root: &'a Path,
        own: Option<&'a Path>,
        masked: &'a [(String, bool)],
        nothing: &'a Path,
    ) -> With<'a> {
        let empty_tmp = tree::RootfsTree::open(root).and_then(|tree| tree.is_empty("/tmp")).unwrap_or(true);
        With { runtime: self.installed.runtime, root, caller: self.caller, own, masked, nothing, empty_tmp }
    }
}

/// A spec with what its root consists of.
fn shown(spec: &ContainerSpec, skeleton: Option<&Skeleton>) -> ContainerSpec {
    let mut spec = spec.clone();
    if let Some(skeleton) = skeleton {
        spec.mounts.splice(..0, skeleton.mounts.iter().cloned());
    }
    spec
}

impl ContainerRuntime for Oci {
    fn about(&self) -> Result<RuntimeFacts, Failure> {
        let runtime = self.installed.runtime;
        Ok(RuntimeFacts {
            version: self.installed.version.clone(),
            rootless: self.caller.is_some(),
            arrival: if runtime.inherits() { Arrival::Inherited } else { Arrival::Rendezvous },
            apart: runtime == Runtime::Runsc,
            compares: runtime == Runtime::Runsc,
            listener: runtime != Runtime::Runsc,
            limits: false,
            // In gVisor they are its own kernel's memory, all of which is the run's.
            inodes: match self.caller {
                _ if runtime != Runtime::Runsc => Inodes::Counted,
                // The program is 0 there, and nothing can be opened for writing in a /dev that is read-only.
                Some(_) => Inodes::ChargedInDev,
                None => Inodes::Charged,
            },
            flags: true,
            detail: runtime.isolation().into(),
        })
    }

    fn place(&self) -> Result<PathBuf, Failure> {
        Ok(self.installed.path.clone())
    }

    fn prepare(&self, root: &Rootfs, mounts: &[Mounted], told: &dyn Fn(Progress)) -> Result<ReadyRootfs, Failure> {
        let directory = self.shown_as_it_is(root);
        directory.map_or(Ok(()), devices::nothing_mounted_below)?;
        let root = self.roots.ready(root, mounts, told)?;
        // Elsewhere who is not root has none but nodev mounts of his own user namespace.
        let gvisor = self.installed.runtime == Runtime::Runsc;
        if let Some(directory) = directory {
            devices::can_be_root(directory, mounts, self.caller.is_none())?;
        } else if self.caller.is_none() || gvisor {
            devices::none(&rootfs::with_devices(&root.path, mounts, gvisor))?;
        }
        let reference = root.path.to_string_lossy().into_owned();
        Ok(ReadyRootfs { reference, volumes: Vec::new(), command: ImageCommand::default(), moved: root.moved })
    }

    fn image_command(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<ImageCommand, Failure> {
        self.roots.command(reference, told)
    }

    fn start(
        &self,
        spec: &ContainerSpec,
        _root: &ReadyRootfs,
        handed: &Handed<'_>,
    ) -> Result<Box<dyn StartedContainer>, Failure> {
        // Again, and quick: what was made ready long ago may have been removed since, and is now held.
        let root = self.roots.ready(&spec.root, &spec.mounts, &|_| {})?;
        if !root.moved.is_empty() {
            let message = format!("{} has other links than when it was made ready", root.path.display());
            return Err(
                Failure::new(FailedStep::Image, message).hint("run it again, and let no process write there meanwhile")
            );
        }
        private(&bundles(&self.state))?;
        let calls = launch::calls(&self.installed, &self.state, spec, self.caller.is_some());
        let masked = self.masked(&root.path, spec)?;
        let nothing = calls.bundle.join("nothing");
        let path = root.path.clone();
        let mut with = self.with(&path, Some(handed.directory), &masked, &nothing);
        let skeleton = self.skeleton(&path, spec, with.empty_tmp)?;
        let (shown, own) = (shown(spec, skeleton.as_ref()), calls.bundle.join(launch::ROOT));
        if skeleton.is_some() {
            with.root = &own;
        }
        let directory = self.shown_as_it_is(&spec.root).map(Path::to_owned);
        directory.as_deref().map_or(Ok(()), devices::nothing_mounted_below)?;
        Ok(Box::new(launch::start(calls, &shown, root, directory, skeleton, &with, handed)?))
    }

    fn sweep(&self) -> Result<Swept, Failure> {
        Ok(leftovers::sweep(&self.installed, &bundles(&self.state), self.caller.is_some()))
    }

    fn runs_as(&self, spec: &ContainerSpec) -> (u32, u32) {
        spec::runs_as(spec, self.caller.is_some())
    }

    fn show(&self, spec: &ContainerSpec, root: Option<&ReadyRootfs>) -> Value {
        let root = root.map_or("rootfs", |root| root.reference.as_str());
        let masked = match self.masked(Path::new(root), spec) {
            Ok(masked) => masked,
            Err(failure) => return json!({ "runtime": self.installed.path, "refused": failure }),
        };
        let mut with = self.with(Path::new(root), None, &masked, Path::new("nothing"));
        // Before it is made ready there is nothing to be shown.
        let skeleton = match Path::new(root).is_absolute().then(|| self.skeleton(Path::new(root), spec, with.empty_tmp))
        {
            Some(Err(failure)) => return json!({ "runtime": self.installed.path, "refused": failure }),
            Some(Ok(skeleton)) => skeleton,
            None => None,
        };
        if skeleton.is_some() {
            with.root = Path::new(launch::ROOT);
        }
        let config = spec::json(&shown(spec, skeleton.as_ref()), &with);
        let options = self.installed.options(self.caller.is_some(), spec.network == super::Net::Host);
        json!({
            "runtime": self.installed.path,
            "options": options,
            "config.json": config.unwrap_or_else(|e| Value::String(e.to_string())),
        })
    }
}
