//! Docker and Podman, by the interface that Docker has and Podman speaks.
//!
//! ```text
//! discover ─▶ client ─▶ about ─▶ images ─▶ create ─▶ POST create ─▶ held: is it that? ─▶ POST start ─▶ wait ─▶ inspect ─▶ DELETE
//! (a socket)  (calls)   (what is it) (root)  (body)                     └─ no: DELETE
//! ```
//!
//! One run is five calls: create, inspect, start, inspect after its end, remove; and one that waits. Nothing of the program
//! goes through the engine: init brings the streams.

mod client;
mod contents;
mod create;
mod credentials;
mod discover;
mod engine_facts;
mod export;
mod images;
mod info_cache;
mod leftovers;
mod service;
mod tar;
mod verify;

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bollard::errors::Error;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptions, KillContainerOptions, RemoveContainerOptions, StartContainerOptions, WaitContainerOptions,
};
use futures_util::stream::StreamExt;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::mount_points::{Moved, apart, placed};
use super::oci::no_devices_bound;
use super::{
    ContainerEnd, ContainerRuntime, ContainerSpec, Handed, ImageCommand, Mounted, Progress, ReadyRootfs, Rootfs,
    RuntimeFacts, StartedContainer, Swept,
};
pub(crate) use export::ImageStores;

use client::{EngineClient, Trouble, WORK};
use discover::{DiscoveryHost, EngineEndpoint, Real};
use engine_facts::{Flavour, What};
use service::PodmanService;

use crate::backends::complaint::{Cause, cause};
use crate::failure::{FailedStep, Failure};
use cofferdam_policy::text::escape;

/// What helps where an engine made something else.
fn different(differences: &[String]) -> &'static str {
    if differences.iter().all(|difference| difference.starts_with(verify::ANNOTATION)) {
        "the image has it, or `annotations` in containers.conf: --backend oci runs an image of Podman's store without its \
         annotations, --backend docker runs the same image"
    } else {
        "correct the engine's configuration (if that has just been done, run it again), or use --backend jail"
    }
}

/// How long a container may take to end once init has, or once it was killed.
const LAST: Duration = Duration::from_secs(10);

/// Between two looks at a container that is about to end.
const GLANCE: Duration = Duration::from_millis(5);

/// An engine of this machine.
#[derive(Debug)]
pub(crate) struct ContainerEngine {
    flavour: Flavour,
    known: OnceLock<ConnectedEngine>,
}

#[derive(Debug)]
struct ConnectedEngine {
    client: EngineClient,
    what: What,
    /// The socket, or the program that serves at one of ours.
    place: PathBuf,
}

impl ContainerEngine {
    /// Docker's. Connects to nothing yet.
    pub(crate) fn docker() -> ContainerEngine {
        ContainerEngine { flavour: Flavour::Docker, known: OnceLock::new() }
    }

    /// Podman's. Connects to nothing yet.
    pub(crate) fn podman() -> ContainerEngine {
        ContainerEngine { flavour: Flavour::Podman, known: OnceLock::new() }
    }

    /// As found from these surroundings.
    #[cfg(test)]
    fn found(flavour: Flavour, around: &dyn DiscoveryHost) -> Result<ContainerEngine, Failure> {
        Ok(ContainerEngine { flavour, known: OnceLock::from(ConnectedEngine::find(flavour, around)?) })
    }

    /// The engine, found and asked once. What failed is tried again by the next call.
    fn known(&self) -> Result<&ConnectedEngine, Failure> {
        if let Some(known) = self.known.get() {
            return Ok(known);
        }
        let found = ConnectedEngine::find(self.flavour, &Real)?;
        Ok(self.known.get_or_init(|| found))
    }
}

impl ConnectedEngine {
    fn find(flavour: Flavour, around: &dyn DiscoveryHost) -> Result<ConnectedEngine, Failure> {
        let (client, place) = match discover::find(flavour, around)? {
            EngineEndpoint::Socket(path) => (EngineClient::new(&path, None)?, path),
            EngineEndpoint::Program(program) => {
                let service = PodmanService::of_this_process(&program)?;
                (EngineClient::new(&service.socket(), Some(service))?, program)
            }
        };
        let what = What::ask(&client).map_err(|trouble| {
            let doing = format!("{} does not say what it is", client.socket().display());
            trouble.failure(FailedStep::Engine, &doing, "name the socket of an engine")
        })?;
        Ok(ConnectedEngine { client, what, place })
    }
}

impl ContainerRuntime for ContainerEngine {
    fn about(&self) -> Result<RuntimeFacts, Failure> {
        self.known().map(|known| known.what.about())
    }

    fn place(&self) -> Result<PathBuf, Failure> {
        self.known().map(|known| known.place.clone())
    }

    fn prepare(
        &self,
        root: &Rootfs,
        mounts: &[Mounted],
        on_progress: &dyn Fn(Progress),
    ) -> Result<ReadyRootfs, Failure> {
        let ConnectedEngine { client, what, .. } = self.known()?;
        if !what.about().flags {
            no_devices_bound(mounts)?;
        }
        let mut ready = images::prepare(client, what, root, on_progress)?;
        // In a user namespace of the caller's no file system of it has devices.
        let devices = !what.rootless;
        let links = match root {
            Rootfs::Image(name) => contents::read(client, &ready, name, devices, on_progress)?,
            Rootfs::Tarball(path) => contents::read(client, &ready, &path.to_string_lossy(), devices, on_progress)?,
            // Written by us, without devices.
            Rootfs::Directory(path) => contents::read(client, &ready, &path.to_string_lossy(), false, on_progress)?,
            Rootfs::Made(_) => contents::ImageLinks::default(), // no mount lies behind one of ours
        };
        let links = |path: &str| links.says(path);
        ready.moved = placed(mounts, &links)?;
        let (volumes, own) = create::besides(&ready, what)?;
        apart(&volumes, &own, &ready.moved, &ready.moved.mounts(mounts), &links)?;
        Ok(ready)
    }

    fn image_command(&self, reference: &str, on_progress: &dyn Fn(Progress)) -> Result<ImageCommand, Failure> {
        let ConnectedEngine { client, what, .. } = self.known()?;
        images::prepare(client, what, &Rootfs::Image(reference.to_owned()), on_progress).map(|ready| ready.command)
    }

    fn start(
        &self,
        spec: &ContainerSpec,
        root: &ReadyRootfs,
        _handed: &Handed<'_>,
    ) -> Result<Box<dyn StartedContainer>, Failure> {
        let ConnectedEngine { client, what, .. } = self.known()?;
        let body = create::body(spec, root, what)?;
        Ok(Box::new(EngineContainer::start(client.clone(), what, spec.id.clone(), body)?))
    }

    fn sweep(&self) -> Result<Swept, Failure> {
        leftovers::sweep(&self.known()?.client)
    }

    fn runs_as(&self, spec: &ContainerSpec) -> (u32, u32) {
        self.known().map_or(spec.user, |known| create::user(spec, &known.what))
    }

    fn show(&self, spec: &ContainerSpec, root: Option<&ReadyRootfs>) -> Value {
        let absent = ReadyRootfs {
            reference: images::shown(&spec.root),
            volumes: Vec::new(),
            command: ImageCommand::default(),
            moved: Moved::default(),
        };
        let asked = self.known().and_then(|known| create::body(spec, root.unwrap_or(&absent), &known.what));
        match asked {
            Ok(body) => serde_json::json!({ "name": spec.id, "create": body }),
            Err(failure) => serde_json::json!({ "name": spec.id, "refused": failure }),
        }
    }
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ContainerEnding {
    /// As its engine tells.
    Reported { exit: i64, oom_killed: bool, said: String },
    /// Its engine cannot be asked any more.
    Lost(String),
}

/// Where the call that waits leaves what it learnt.
#[derive(Debug, Default)]
struct EndingSlot {
    ending: Mutex<Option<ContainerEnding>>,
    came: Condvar,
}

impl EndingSlot {
    fn put(&self, ending: ContainerEnding) {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = Some(ending);
        self.came.notify_all();
    }

    fn look(&self) -> Option<ContainerEnding> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait(&self, bound: Duration) -> Option<ContainerEnding> {
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(ending, bound, |ending| ending.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

/// A container that was started.
#[derive(Debug)]
struct EngineContainer {
    client: EngineClient,
    flavour: Flavour,
    name: String,
    place: Arc<EndingSlot>,
    waits: AbortHandle,
    removed: bool,
}

impl EngineContainer {
    fn start(
        client: EngineClient,
        what: &What,
        name: String,
        body: ContainerCreateBody,
    ) -> Result<EngineContainer, Failure> {
        let refused = |trouble: &Trouble, doing: &str| {
            // As crun says it.
            let hybrid = matches!(trouble, Trouble::Said(_, why) if cause(why) == Some(Cause::HybridCgroups));
            let hint = if hybrid { engine_facts::HYBRID } else { "look into the engine's log" };
            trouble.failure(FailedStep::Container, &format!("{} {doing}", what.flavour.name()), hint)
        };
        let options = CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
        let asked = body.clone();
        let made = client.call(WORK, move |docker| async move { docker.create_container(Some(options), asked).await });
        let made = match made {
            Ok(made) => made,
            Err(trouble) => {
                // Nobody else has this name. Where the answer was lost, there may be one all the same.
                if !matches!(trouble, Trouble::Said(..)) {
                    remove(&client, &name, LAST)
                        .unwrap_or_else(|left| tracing::warn!("the container {name} may be left: {left}"));
                }
                let mut failure = refused(&trouble, "does not make the container");
                if trouble.is_absent() {
                    failure.step = FailedStep::Image;
                    failure.hint = Some("its image was removed meanwhile: run it again".into());
                }
                return Err(failure);
            }
        };
        // From here on it is removed whatever happens.
        let mut container = EngineContainer::of(client, what.flavour, name);
        let path = match what.flavour {
            Flavour::Docker => format!("/containers/{}/json", container.name),
            Flavour::Podman => format!("/v4.0.0/libpod/containers/{}/json", container.name),
        };
        let told = container.client.json(path).map_err(|trouble| refused(&trouble, "does not tell what it made"));
        let told = told.map_err(|failure| container.given_up(failure))?;
        let differences = verify::differences(&body, &told, what);
        if !differences.is_empty() {
            // It may not be any more what was known of it.
            info_cache::forget();
            let warnings = made.warnings.join("; ");
            let warned = if warnings.is_empty() {
                String::new()
            } else {
                format!(" (it warns: {})", escape(warnings.as_bytes()))
            };
            return Err(container.given_up(
                Failure::new(
                    FailedStep::Container,
                    format!(
                        "{} made something else than it was asked for: {}{warned}",
                        what.flavour.name(),
                        escape(differences.join("; ").as_bytes())
                    ),
                )
                .hint(different(&differences)),
            ));
        }
        let started = container.name.clone();
        let started = container.client.call(WORK, move |docker| async move {
            docker.start_container(&started, None::<StartContainerOptions>).await
        });
        if let Err(trouble) = started {
            let failure = refused(&trouble, "does not start the container");
            // Who hangs in starting it does not remove it either.
            let patience = if matches!(trouble, Trouble::Late(_)) { LAST } else { WORK };
            return Err(container.given_up_within(failure, patience));
        }
        container.watch();
        Ok(container)
    }

    fn of(client: EngineClient, flavour: Flavour, name: String) -> EngineContainer {
        let waits = client.beside(|_, _| std::future::ready(()));
        EngineContainer { client, flavour, name, place: Arc::default(), waits, removed: false }
    }

    /// Removes what never ran, and says so where that fails.
    fn given_up(&mut self, failure: Failure) -> Failure {
        self.given_up_within(failure, WORK)
    }

    fn given_up_within(&mut self, mut failure: Failure, patience: Duration) -> Failure {
        self.removed = true;
        if let Err(trouble) = remove(&self.client, &self.name, patience) {
            failure.message += &format!("; and the container {} cannot be removed: {trouble}", self.name);
        }
        failure
    }

    /// Whether its engine does not say that it has ended.
    fn runs(&self) -> bool {
        let told = self.client.json(format!("/containers/{}/json", self.name));
        told.map_or(true, |told| told["State"]["Running"] != false)
    }

    /// Waits until it has ended, which it is about to. Podman looks for that only every quarter of a second when it is to
    /// say so by itself, and at once when it is asked.
    fn wait(&self) -> Option<ContainerEnding> {
        let patience = Instant::now() + LAST;
        while self.flavour == Flavour::Podman && Instant::now() < patience {
            if let Some(ending) = self.place.wait(GLANCE) {
                return Some(ending);
            }
            match self.client.json(format!("/containers/{}/json", self.name)) {
                Ok(told) if told["State"]["Running"] == false => return Some(ending(&told)),
                Ok(_) => {}
                Err(_) => break, // the call that waits learns of it as well
            }
        }
        self.place.wait(patience.saturating_duration_since(Instant::now()).max(GLANCE))
    }

    /// Lets the engine say when it has ended.
    fn watch(&mut self) {
        let (name, place) = (self.name.clone(), self.place.clone());
        self.waits = self.client.beside(move |docker, socket| async move {
            let mut waited = docker.wait_container(&name, None::<WaitContainerOptions>);
            let ended = match waited.next().await {
                // That it ended with a code of its own is no error.
                None | Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => Ok(()),
                Some(Err(error)) => Err(Trouble::from(error)),
            };
            let told = match ended {
                Ok(()) => client::json(&socket, &format!("/containers/{name}/json")).await,
                Err(trouble) => Err(trouble),
            };
            place.put(match told {
                Ok(told) => ending(&told),
                Err(trouble) => ContainerEnding::Lost(trouble.to_string()),
            });
        });
    }
}

/// From what `inspect` says of the state.
fn ending(told: &Value) -> ContainerEnding {
    let state = &told["State"];
    ContainerEnding::Reported {
        exit: state["ExitCode"].as_i64().unwrap_or(-1),
        oom_killed: state["OOMKilled"] == true,
        said: escape(state["Error"].as_str().unwrap_or_default().as_bytes()),
    }
}

impl StartedContainer for EngineContainer {
    fn running(&self) -> Option<&cofferdam_confine::RunningInit> {
        None
    }

    fn gave_up(&self) -> Option<Failure> {
        let why = match self.place.look()? {
            ContainerEnding::Reported { exit, said, .. } if said.is_empty() => {
                format!("it ended with {exit} before init came")
            }
            ContainerEnding::Reported { said, .. } => said,
            ContainerEnding::Lost(why) => format!("its engine is lost: {why}"),
        };
        Some(
            Failure::new(FailedStep::Container, format!("the container does not run: {why}"))
                .hint("look into the engine's log"),
        )
    }

    fn kill(&self) -> Result<(), Failure> {
        if matches!(self.place.look(), Some(ContainerEnding::Reported { .. })) {
            return Ok(());
        }
        let name = self.name.clone();
        let options = KillContainerOptions { signal: "SIGKILL".into() };
        let killed =
            self.client.call(LAST, move |docker| async move { docker.kill_container(&name, Some(options)).await });
        match killed {
            Ok(()) => Ok(()),
            // It does not run, or is not there any more.
            Err(trouble) if trouble.is_absent() || trouble.is_conflict() => Ok(()),
            Err(Trouble::Said(..)) if !self.runs() => Ok(()),
            Err(trouble) => {
                Err(trouble.failure(FailedStep::Container, "cannot kill the container", "remove it by hand"))
            }
        }
    }

    fn end(mut self: Box<Self>) -> ContainerEnd {
        let mut ended = ContainerEnd::default();
        let mut patience = WORK;
        let ending = self.wait().or_else(|| match self.kill() {
            Ok(()) => self.wait(),
            Err(failure) => {
                ended.problems.push(failure.message);
                patience = LAST; // it does not answer, and somebody waits for the run's end
                None
            }
        });
        match ending {
            Some(ContainerEnding::Reported { oom_killed, said, .. }) => {
                // Podman sees it with some versions of cgroups only; what it does not see may have been.
                ended.oom_killed = (oom_killed || self.flavour == Flavour::Docker).then_some(oom_killed);
                ended.said = said;
            }
            Some(ContainerEnding::Lost(why)) => ended.said = format!("its engine is lost: {why}"),
            None => ended.problems.push(format!("the container {} did not end", self.name)),
        }
        self.removed = true;
        if let Err(trouble) = remove(&self.client, &self.name, patience) {
            ended.problems.push(format!("cannot remove the container {}: {trouble}", self.name));
        }
        ended
    }
}

impl Drop for EngineContainer {
    fn drop(&mut self) {
        self.waits.abort();
        // Only where a run was given up: `end` has done it.
        if !self.removed
            && let Err(trouble) = remove(&self.client, &self.name, WORK)
        {
            tracing::warn!("the container {} is left: {trouble}", self.name);
        }
    }
}

/// Removes a container with everything that runs in it, and its volumes.
fn remove(client: &EngineClient, name: &str, bound: Duration) -> Result<(), Trouble> {
    let mut tries = 0;
    loop {
        let options = RemoveContainerOptions { v: true, force: true, link: false };
        let gone = name.to_owned();
        let removed =
            client.call(bound, move |docker| async move { docker.remove_container(&gone, Some(options)).await });
        match removed {
            Ok(()) => return Ok(()),
            Err(trouble) if trouble.is_absent() => return Ok(()),
            // Somebody else removes it, or the kernel has not let go of it yet.
            Err(Trouble::Said(..)) if tries < 20 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

#[cfg(test)]
mod tests;
