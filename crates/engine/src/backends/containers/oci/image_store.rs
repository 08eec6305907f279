//! What the OCI runtimes ask of a store of images: an engine's, since they have none.

use std::io::Read;

use crate::backends::containers::{ImageCommand, Progress};
use crate::failure::Failure;

/// Where images are: an engine's store, which can tell an image's root file system as a tarball.
pub(crate) trait Images: std::fmt::Debug + Send + Sync {
    /// The content of a reference: the image's id, `sha256:` and 64 hexadecimal digits.
    ///
    /// # Errors
    /// There is no such image, and it cannot be had.
    fn id(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<String, Failure>;

    /// What the image of a reference runs when nothing else is named.
    ///
    /// # Errors
    /// As [`Images::id`].
    fn command(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<ImageCommand, Failure>;

    /// The root file system of the image with this id, as a tarball without compression.
    ///
    /// # Errors
    /// It cannot be told. An error while it is read is one of [`Read`]'s.
    fn export(&self, id: &str) -> Result<Box<dyn Read + '_>, Failure>;
}
