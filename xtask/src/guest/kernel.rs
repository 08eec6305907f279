//! A kernel to boot: Debian's cloud kernel, taken out of its package without installing it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::shell::{output, run};

/// The package that depends on the present one.
const META: &str = "linux-image-cloud-amd64";

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// What QEMU boots.
    pub image: PathBuf,
    /// `lib/modules/VERSION/kernel`.
    modules: PathBuf,
}

impl Kernel {
    /// A module's file, by its path below `kernel/`, such as `fs/overlayfs/overlay.ko`.
    pub(crate) fn module(&self, path: &str) -> PathBuf {
        self.modules.join(path)
    }
}

/// Downloads and unpacks the kernel below `directory` once; later calls find it there.
///
/// # Errors
/// When apt cannot download it (`apt-get update` may be due) or it is not laid out as expected.
pub(crate) fn provide(directory: &Path) -> Result<Kernel> {
    if let Some(kernel) = find(directory) {
        return Ok(kernel);
    }
    let failed = |error: std::io::Error| format!("cannot prepare {}: {error}", directory.display());
    // Unpacked beside and then renamed: an interrupted download leaves nothing that looks complete.
    let partial = directory.with_extension(format!("partial-{}", std::process::id()));
    std::fs::create_dir_all(&partial).map_err(failed)?;
    let depends = output(Command::new("apt-cache").args(["depends", META]))?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with("linux-image-"))
        .ok_or_else(|| format!("apt knows no kernel behind {META}\nhint: apt-get update"))?;
    run(Command::new("apt-get").args(["download", "-qq", package]).current_dir(&partial))?;
    let archive = std::fs::read_dir(&partial)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or("apt-get download left no package")?;
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&partial))?;
    std::fs::remove_file(&archive).map_err(failed)?;
    if let Err(error) = std::fs::rename(&partial, directory) {
        // Somebody else was faster, or something incomplete lies there.
        std::fs::remove_dir_all(&partial).map_err(failed)?;
        return find(directory).ok_or_else(|| failed(error));
    }
    find(directory).ok_or_else(|| format!("{package} holds no kernel image"))
}

fn find(directory: &Path) -> Option<Kernel> {
    let image = std::fs::read_dir(directory.join("boot"))
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")))?;
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
    // Since Debian 13 under /usr.
    let modules = ["lib/modules", "usr/lib/modules"]
        .iter()
        .map(|below| directory.join(below).join(&version).join("kernel"))
        .find(|path| path.is_dir())?;
    Some(Kernel { image, modules })
}
