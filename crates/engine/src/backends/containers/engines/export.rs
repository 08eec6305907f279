//! Images of the engines' stores as file systems, for runtimes that have no store of their own.
//!
//! An image is exported from a container that is made of it and never started. It has our labels, so that one that stays
//! behind is swept like any other.

use std::io::{self, Read};

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::CreateContainerOptions;
use bytes::Bytes;
use futures_util::stream::StreamExt;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::AbortHandle;

use super::client::{EngineClient, WORK};
use super::create::covers;
use super::images::{find, prepare};
use super::{ContainerEngine, remove};
use crate::backends::containers::oci::Images;
use crate::backends::containers::{ImageCommand, Progress, ReadyRootfs, Rootfs, owner};
use crate::failure::{FailedStep, Failure};

/// Docker's store, then Podman's: whichever there is.
#[derive(Debug)]
pub(crate) struct ImageStores([ContainerEngine; 2]);

impl ImageStores {
    /// Connects to nothing yet.
    pub(crate) fn new() -> ImageStores {
        ImageStores([ContainerEngine::docker(), ContainerEngine::podman()])
    }

    fn refused(reference: &str, why: &[Failure]) -> Failure {
        let why: Vec<&str> = why.iter().map(|failure| failure.message.as_str()).collect();
        Failure::new(FailedStep::Image, format!("no engine's store has {reference}: {}", why.join("; ")))
            .hint("give a directory or a tarball: --image ./rootfs, --image /path/to/root.tar")
    }
}

impl ImageStores {
    /// The image of this reference, in whichever store has it; pulled where none has.
    fn ready(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<ReadyRootfs, Failure> {
        let mut why = Vec::new();
        let mut there = Vec::new();
        for engine in &self.0 {
            match engine.known() {
                Ok(known) => there.push(known),
                Err(failure) => why.push(failure),
            }
        }
        // What one has already the other need not pull.
        for known in &there {
            if let Ok(Some(ready)) = find(&known.client, reference) {
                return Ok(ready);
            }
        }
        let root = Rootfs::Image(reference.to_owned());
        for known in there {
            match prepare(&known.client, &known.what, &root, told) {
                Ok(ready) => return Ok(ready),
                Err(failure) => why.push(failure),
            }
        }
        Err(ImageStores::refused(reference, &why))
    }
}

impl Images for ImageStores {
    fn id(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<String, Failure> {
        self.ready(reference, told).map(|ready| ready.reference)
    }

    fn command(&self, reference: &str, told: &dyn Fn(Progress)) -> Result<ImageCommand, Failure> {
        self.ready(reference, told).map(|ready| ready.command)
    }

    fn export(&self, id: &str) -> Result<Box<dyn Read + '_>, Failure> {
        let mut why = Vec::new();
        for engine in &self.0 {
            let found =
                engine.known().and_then(|known| Ok(find(&known.client, id)?.map(|ready| (&known.client, ready))));
            match found {
                Ok(Some((client, ready))) => return Ok(Box::new(Export::of(client.clone(), &ready)?)),
                Ok(None) => {}
                Err(failure) => why.push(failure),
            }
        }
        Err(ImageStores::refused(id, &why))
    }
}

/// A file system as it comes.
pub(super) struct Export {
    client: EngineClient,
    name: String,
    chunks: Receiver<io::Result<Bytes>>,
    rest: Bytes,
    task: AbortHandle,
}

impl Export {
    /// Of an image. What it declares as volumes is covered: each would be made on the disk, and stay there where this process is
    /// killed meanwhile.
    ///
    /// # Errors
    /// The engine makes no container of it.
    pub(super) fn of(client: EngineClient, image: &ReadyRootfs) -> Result<Export, Failure> {
        let id = &image.reference;
        let failed = |message: String| Failure::new(FailedStep::Image, message);
        let name = owner::fresh_name().map_err(|e| failed(format!("cannot make up a name: {e}")))?;
        let labels = [(owner::RUN, Some(name.clone())), (owner::OWNER, owner::me())];
        let body = ContainerCreateBody {
            image: Some(id.clone()),
            cmd: Some(vec!["/".into()]),
            network_disabled: Some(true),
            host_config: Some(HostConfig { mounts: Some(covers(&image.volumes)), ..HostConfig::default() }),
            labels: Some(labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
        client
            .call(WORK, move |docker| async move { docker.create_container(Some(options), body).await.map(drop) })
            .map_err(|trouble| {
                trouble.failure(FailedStep::Image, &format!("cannot export {id}"), "look into the engine's log")
            })?;
        let (sender, chunks) = channel(4);
        let container = name.clone();
        let task = client.beside(move |docker, _| async move {
            let mut stream = std::pin::pin!(docker.export_container(&container));
            while let Some(chunk) = stream.next().await {
                // Nobody reads on.
                if sender.send(chunk.map_err(io::Error::other)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Export { client, name, chunks, rest: Bytes::new(), task })
    }
}

impl Read for Export {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.rest = chunk?,
                None => return Ok(0),
            }
        }
        let n = self.rest.len().min(into.len());
        into[..n].copy_from_slice(&self.rest.split_to(n));
        Ok(n)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.task.abort();
        if let Err(trouble) = remove(&self.client, &self.name, super::client::WORK) {
            let failure = trouble.failure(FailedStep::Image, "a container of an export remains", "remove it by hand");
            tracing::warn!(container = self.name, message = failure.message, "it is removed by a later start");
        }
    }
}
