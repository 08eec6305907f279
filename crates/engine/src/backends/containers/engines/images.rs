//! Root file systems in an engine's store: found there, pulled, or imported, each under a tag that says what it holds.
//!
//! ```text
//! reference      as people name it; pulled when it is not there
//! tarball        cofferdam/rootfs:<sha256 of the file>, and :file-<its inode and times> so that it need not be hashed again
//! directory      cofferdam/rootfs:tree-<its path>-<every inode and time of it>
//! made root      cofferdam/rootfs:made-<its content>
//! ```
//!
//! The engine's store is the only memory: nothing is kept on our side that could say something else than that.

use std::collections::HashMap;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bollard::auth::DockerCredentials;
use bollard::query_parameters::{CreateImageOptions, RemoveImageOptions, TagImageOptions};
use bytes::Bytes;
use futures_util::stream::{StreamExt, unfold};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::client::{ASK, EngineClient, Trouble, WORK};
use super::credentials;
use super::discover::Real;
use super::engine_facts::{Flavour, What};
use super::tar;
use crate::backends::containers::archive;
use crate::backends::containers::archive::LARGEST;
use crate::backends::containers::content::{hex, settle, stamp};
use crate::backends::containers::mount_points::Moved;
use crate::backends::containers::{ImageCommand, Progress, ReadyRootfs, Rootfs};
use crate::failure::{FailedStep, Failure};
use cofferdam_policy::text::escape;

/// Where imported ones are kept.
const REPOSITORY: &str = "cofferdam/rootfs";
/// How long an import or a pull may stand still.
const IDLE: Duration = Duration::from_secs(180);
/// What a directory was before is kept for so long, for those who have just looked it up.
const KEPT: Duration = Duration::from_secs(3600);
/// How many directories an image may want to be volumes.
const VOLUMES: usize = 100;
/// An image has fewer entries than this in an archive, some for each layer.
const FEW: usize = 4000;
/// Chunks of an import.
const CHUNK: usize = 256 << 10;

/// What a root would be called, for people: nothing is looked up or made.
pub(super) fn shown(root: &Rootfs) -> String {
    match root {
        Rootfs::Image(reference) => reference.clone(),
        Rootfs::Tarball(path) => format!("{REPOSITORY} (to be imported from {})", path.display()),
        Rootfs::Directory(path) => format!("{REPOSITORY} (to be imported from the directory {})", path.display()),
        Rootfs::Made(entries) => match tar::made(entries) {
            Ok(archive) => format!("{REPOSITORY}:{}", made_tag(&archive)),
            Err(error) => format!("{REPOSITORY} (cannot be made: {error})"),
        },
    }
}

fn made_tag(archive: &[u8]) -> String {
    format!("made-{}", &hex(&Sha256::digest(archive))[..40])
}

/// Makes a root ready; see [`crate::backends::containers::ContainerRuntime::prepare`].
pub(super) fn prepare(
    client: &EngineClient,
    what: &What,
    root: &Rootfs,
    told: &dyn Fn(Progress),
) -> Result<ReadyRootfs, Failure> {
    match root {
        Rootfs::Image(reference) => image(client, what, reference, told),
        Rootfs::Tarball(path) => tarball(client, path, told),
        Rootfs::Directory(path) => directory(client, what, path, told),
        Rootfs::Made(entries) => {
            // Places for mounts are the engine's to make: so one image does for every policy with this root.
            let archive = tar::made(entries).map_err(|error| failed("cannot make a root", &error))?;
            let tag = made_tag(&archive);
            let _one = Alone::with(&tag);
            if let Some(ready) = find(client, &format!("{REPOSITORY}:{tag}"))? {
                return Ok(ready);
            }
            let total = archive.len() as u64;
            import(client, &tag, "making a root", total, told, move |to| to.write_all(&archive))
        }
    }
}

fn image(client: &EngineClient, what: &What, reference: &str, told: &dyn Fn(Progress)) -> Result<ReadyRootfs, Failure> {
    let reference = checked(reference)?;
    if let Some(ready) = find(client, reference)? {
        return Ok(ready);
    }
    let absent = |why: &str| {
        Failure::new(FailedStep::Image, format!("no image {reference}{why}")).hint(match std::path::Path::new(reference).exists() {
            true => format!("for what is here by that name: --image ./{reference}"),
            false => "docker pull or podman pull it by hand (after a login where it needs one), or name a tarball of a root file system by its path".into(),
        })
    };
    if is_id(reference) {
        return Err(absent(" in the engine's store, and an id cannot be pulled"));
    }
    let whole = with_tag(reference);
    let _one = Alone::with(&whole);
    if let Some(ready) = find(client, &whole)? {
        return Ok(ready);
    }
    // Podman's service looks for them itself.
    let credentials = match what.flavour {
        Flavour::Docker => {
            let registry = credentials::registry(&whole);
            credentials::of(&Real, registry).map_err(|why| {
                Failure::new(
                    FailedStep::Image,
                    format!("cannot pull {whole}: what docker login kept for {registry} is not to be had: {why}"),
                )
                .hint(format!("docker login {registry}, or docker pull {whole} by hand"))
            })?
        }
        Flavour::Podman => None,
    };
    pull(client, &whole, credentials, told).map_err(|trouble| match trouble {
        Trouble::Said(_, why) => {
            absent(&format!(" in the engine's store, and it cannot be pulled: {}", escape(why.as_bytes())))
        }
        other => other.failure(FailedStep::Image, &format!("cannot pull {whole}"), ""),
    })?;
    find(client, &whole)?.ok_or_else(|| absent(": it was pulled, and is not there"))
}

/// A reference that can stand in a path of the interface.
fn checked(reference: &str) -> Result<&str, Failure> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    let good = reference.starts_with(|c: char| c.is_ascii_alphanumeric())
        && reference.len() <= 512
        && reference.chars().all(allowed)
        && !reference.contains("..")
        && !reference.contains("//")
        && !reference.ends_with('/');
    if good {
        return Ok(reference);
    }
    Err(Failure::new(FailedStep::Image, format!("{} is no reference of an image", escape(reference.as_bytes())))
        .hint("such as alpine:3.20, registry.example/tools@sha256:..., an image id, or the absolute path of a tarball"))
}

fn is_id(reference: &str) -> bool {
    let digits = reference.strip_prefix("sha256:").unwrap_or(reference);
    (digits.len() == 64 || reference.starts_with("sha256:")) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Without a tag an engine would fetch every one.
fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains(':') || last.contains('@') { reference.to_owned() } else { format!("{reference}:latest") }
}

/// What is in the store by this name.
pub(super) fn find(client: &EngineClient, reference: &str) -> Result<Option<ReadyRootfs>, Failure> {
    let reference = checked(reference)?;
    let told = match client.json(format!("/images/{reference}/json")) {
        Ok(told) => told,
        Err(trouble) if trouble.is_absent() => return Ok(None),
        Err(trouble) => {
            return Err(trouble.failure(
                FailedStep::Image,
                &format!("cannot look for the image {reference}"),
                "such as alpine:3.20 or registry.example/tools@sha256:...: names are in small letters",
            ));
        }
    };
    ready(&told).map(Some).map_err(|why| {
        Failure::new(FailedStep::Image, format!("the image {reference} cannot be used: {why}"))
            .hint(format!("use an image for Linux that declares {VOLUMES} volumes at most"))
    })
}

fn ready(told: &Value) -> Result<ReadyRootfs, String> {
    let id = told["Id"].as_str().unwrap_or_default();
    if !id.strip_prefix("sha256:").unwrap_or(id).bytes().all(|byte| byte.is_ascii_hexdigit()) || id.is_empty() {
        return Err("the engine reports no id of it".into());
    }
    let system = told["Os"].as_str().unwrap_or_default();
    if !matches!(system, "" | "linux") {
        return Err(format!("it is for {}", escape(system.as_bytes())));
    }
    let volumes = told.pointer("/Config/Volumes").and_then(Value::as_object);
    let volumes: Vec<String> = volumes.into_iter().flat_map(|map| map.keys().cloned()).collect();
    if volumes.len() > VOLUMES {
        return Err(format!("it declares {} volumes, and each would take a mount", volumes.len()));
    }
    let words = |field: &str| -> Vec<String> {
        let listed = told.pointer(field).and_then(Value::as_array).into_iter().flatten();
        listed.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let command = ImageCommand { entry_point: words("/Config/Entrypoint"), arguments: words("/Config/Cmd") };
    Ok(ReadyRootfs { reference: id.to_owned(), volumes, command, moved: Moved::default() })
}

fn pull(
    client: &EngineClient,
    reference: &str,
    credentials: Option<DockerCredentials>,
    told: &dyn Fn(Progress),
) -> Result<(), Trouble> {
    let what = format!("pulling {reference}");
    let options = CreateImageOptions { from_image: Some(reference.to_owned()), ..CreateImageOptions::default() };
    let mut layers: HashMap<String, (u64, u64)> = HashMap::new();
    told(Progress { what: what.clone(), done: 0, total: None });
    let (sender, receiver) = channel();
    let task = client.beside(move |docker, _| async move {
        let mut messages = docker.create_image(Some(options), None, credentials);
        while let Some(message) = messages.next().await {
            if sender.send(message.map_err(Trouble::from)).is_err() {
                return;
            }
        }
    });
    let _stop = OnDrop(|| task.abort());
    loop {
        let message = match receiver.recv_timeout(IDLE) {
            Ok(message) => message?,
            Err(RecvTimeoutError::Timeout) => return Err(Trouble::Late(IDLE)),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let (Some(layer), Some(status)) = (message.id, message.status) else { continue };
        let detail = message.progress_detail.unwrap_or_default();
        let number = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        let (current, total) = (number(detail.current), number(detail.total));
        let known = layers.entry(layer).or_default();
        match status.as_str() {
            "Downloading" | "Copying blob" if total > 0 => *known = (current.min(total), total),
            "Download complete" | "Pull complete" => known.0 = known.1,
            _ => continue,
        }
        let (done, total) = layers.values().fold((0, 0), |sum, layer| (sum.0 + layer.0, sum.1 + layer.1));
        told(Progress { what: what.clone(), done, total: (total > 0).then_some(total) });
    }
}

fn tarball(client: &EngineClient, path: &Path, told: &dyn Fn(Progress)) -> Result<ReadyRootfs, Failure> {
    let fail = |error: io::Error| failed(&format!("cannot use {}", path.display()), &error);
    for _ in 0..3 {
        let mut file = open(path).map_err(fail)?;
        let before = file.metadata().map_err(fail)?;
        if !before.is_file() {
            return Err(fail(io::Error::other("it is no file")));
        }
        if before.len() > LARGEST {
            return Err(large(&format!("cannot use {}", path.display()), &archive::too_large(LARGEST)));
        }
        let stamp = stamp(&before);
        let stamped = format!("{REPOSITORY}:file-{}", &stamp[..40]);
        let _one = Alone::with(&stamp);
        // Its times say that it is what it was when this tag was made; see `settle`.
        if let Some(ready) = find(client, &stamped)? {
            return Ok(ready);
        }
        settle((before.ctime(), before.ctime_nsec()));
        let name = path.display();
        let digest = hash(&mut file, before.len(), &format!("reading {name}"), told).map_err(fail)?;
        let same = |file: &std::fs::File| file.metadata().is_ok_and(|now| self::stamp(&now) == stamp);
        if !same(&file) {
            continue;
        }
        let found =
            match find(client, &format!("{REPOSITORY}:{digest}"))? {
                Some(ready) => ready,
                None => {
                    if is_saved(&file) {
                        return Err(Failure::new(FailedStep::Image, format!(
                            "{name} holds an image in layers, as docker save writes them, and not a root file system"
                        )).hint(format!(
                            "docker load --input {name} (or podman load), and name the image that it holds"
                        )));
                    }
                    let source = open(path).map_err(fail)?;
                    if !same(&source) {
                        continue;
                    }
                    // What it becomes is bounded here: the engine knows no bound.
                    let mut source = archive::plain(source, path)?;
                    let ready = import(client, &digest, &format!("importing {name}"), before.len(), told, move |to| {
                        archive::copy(&mut source, to, LARGEST)
                    })?;
                    if !same(&file) {
                        // What was imported is something between two files.
                        untag(client, &format!("{REPOSITORY}:{digest}"));
                        continue;
                    }
                    ready
                }
            };
        tag(client, &found.reference, stamped.rsplit(':').next().unwrap_or_default())?;
        return Ok(found);
    }
    Err(fail(io::Error::other("it changes while it is read")))
}

/// Without waiting for whoever writes into a FIFO of that name.
fn open(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Whether an archive, as far as it is not compressed, is an engine's own of an image.
fn is_saved(file: &std::fs::File) -> bool {
    let Ok(mut file) = file.try_clone() else { return false };
    if file.rewind().is_err() {
        return false;
    }
    let mut archive = ::tar::Archive::new(file);
    let Ok(entries) = archive.entries_with_seek() else { return false };
    let mut saved = false;
    for entry in entries.take(FEW).map_while(Result::ok) {
        match entry.path_bytes().trim_ascii().strip_prefix(b"./").unwrap_or(&entry.path_bytes()) {
            b"manifest.json" | b"oci-layout" => saved = true,
            b"bin" | b"bin/" | b"etc/" | b"usr/" => return false,
            _ => {}
        }
    }
    saved
}

fn hash(file: &mut std::fs::File, total: u64, what: &str, told: &dyn Fn(Progress)) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let (mut done, mut last) = (0, Instant::now());
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
        done += read as u64;
        if last.elapsed() > Duration::from_millis(200) {
            last = Instant::now();
            told(Progress { what: what.to_owned(), done, total: Some(total) });
        }
    }
}

fn directory(client: &EngineClient, what: &What, path: &Path, told: &dyn Fn(Progress)) -> Result<ReadyRootfs, Failure> {
    let fail = |error: io::Error| failed(&format!("cannot use {} as a root", path.display()), &error);
    // Ids that the engine has none of cannot own anything in there.
    let own = what.mapped.is_some();
    let place = hex(&Sha256::digest(path.as_os_str().as_encoded_bytes()))[..16].to_owned();
    let _one = Alone::with(&place);
    for _ in 0..3 {
        let print = tar::fingerprint(path).map_err(fail)?;
        let tag = format!("tree-{place}-{}{}", &hex(&print.hash)[..40], if own { "-own" } else { "" });
        if let Some(ready) = find(client, &format!("{REPOSITORY}:{tag}"))? {
            return Ok(ready);
        }
        if print.bytes > LARGEST {
            return Err(large(&format!("cannot use {} as a root", path.display()), &archive::too_large(LARGEST)));
        }
        settle(print.newest);
        let source = path.to_owned();
        let what = format!("importing {}", path.display());
        let imported = import(client, &tag, &what, print.bytes, told, move |to| tar::tree(&source, own, to));
        if tar::fingerprint(path).map_err(fail)? != print {
            untag(client, &format!("{REPOSITORY}:{tag}"));
            continue;
        }
        let ready = imported?;
        forget(client, &format!("{REPOSITORY}:tree-{place}-"), &tag);
        return Ok(ready);
    }
    Err(fail(io::Error::other("it changes while it is read")))
}

/// Sends what `source` writes to the engine, which makes an image of it; then names that.
fn import(
    client: &EngineClient,
    name: &str,
    what: &str,
    total: u64,
    told: &dyn Fn(Progress),
    source: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> Result<ReadyRootfs, Failure> {
    let progress = |done| told(Progress { what: what.to_owned(), done, total: Some(total.max(done)) });
    let trouble = |trouble: Trouble| {
        let doing = format!("{what}: the engine does not take it");
        trouble.failure(
            FailedStep::Image,
            &doing,
            "it takes a tar archive of a root file system, plain or compressed by gzip",
        )
    };
    let (chunks, mut taken) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(4);
    let (sent, count) = channel::<u64>();
    let writer = std::thread::Builder::new().name("import".into()).spawn(move || {
        let mut out = Out { to: chunks, held: Vec::with_capacity(CHUNK), sent, done: 0 };
        let result = source(&mut out).and_then(|()| out.flush());
        let failed = result.as_ref().err().map(|error| io::Error::new(error.kind(), error.to_string()));
        if let Some(error) = failed {
            // The engine has gone where this fails as well.
            drop(out.to.blocking_send(Err(error)));
        }
        result
    });
    let writer = writer.map_err(|error| failed(what, &error))?;
    progress(0);
    let (sender, receiver) = channel();
    let options = CreateImageOptions { from_src: Some("-".into()), ..CreateImageOptions::default() };
    let task = client.beside(move |docker, _| async move {
        let first = taken.recv().await;
        let rest = unfold((first, taken), |(next, mut taken)| async move {
            let next = match next {
                Some(next) => Some(next),
                None => taken.recv().await,
            };
            next.map(|next| (next, (None, taken)))
        });
        let mut messages = docker.create_image(Some(options), Some(bollard::body_try_stream(rest)), None);
        let mut id = None;
        while let Some(message) = messages.next().await {
            match message {
                Ok(message) => {
                    let mut said = [message.status, message.id].into_iter().flatten();
                    id = said.find(|said| said.starts_with("sha256:")).or(id);
                }
                Err(error) => return drop(sender.send(Err(Trouble::from(error)))),
            }
        }
        drop(sender.send(Ok(id)));
    });
    let _stop = OnDrop(|| task.abort());
    let mut moved = Instant::now();
    let result = loop {
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(result) => break result,
            Err(RecvTimeoutError::Disconnected) => break Err(Trouble::Broken("the import was given up".into())),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(done) = count.try_iter().last() {
            moved = Instant::now();
            progress(done);
        }
        if moved.elapsed() > IDLE {
            break Err(Trouble::Late(IDLE));
        }
    };
    task.abort();
    let wrote = writer.join().unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
    // Where the engine refused, the writer finds a broken pipe, and the engine's word is the reason.
    let id = match (result, wrote) {
        (Ok(id), Ok(())) => id,
        (_, Err(error)) if error.kind() == io::ErrorKind::FileTooLarge => return Err(large(what, &error)),
        (Err(said @ Trouble::Said(..)), _) => return Err(trouble(said)),
        (_, Err(error)) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(what, &error)),
        (Err(other), _) => return Err(trouble(other)),
        (Ok(_), Err(error)) => return Err(failed(what, &error)),
    };
    let id = id.ok_or_else(|| trouble(Trouble::Broken("no id came back".into())))?;
    progress(total);
    // Another process may have done the same meanwhile: one of the two is enough.
    if let Some(ready) = find(client, &format!("{REPOSITORY}:{name}"))? {
        untag(client, &id);
        return Ok(ready);
    }
    tag(client, &id, name)?;
    Ok(ReadyRootfs { reference: id, volumes: Vec::new(), command: ImageCommand::default(), moved: Moved::default() })
}

/// Chunks on their way to the engine.
struct Out {
    to: tokio::sync::mpsc::Sender<io::Result<Bytes>>,
    held: Vec<u8>,
    sent: std::sync::mpsc::Sender<u64>,
    done: u64,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.held.len());
        self.held.extend_from_slice(&bytes[..taken]);
        if self.held.len() == CHUNK {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.held, Vec::with_capacity(CHUNK));
        self.done += chunk.len() as u64;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.to.blocking_send(Ok(chunk.into())).map_err(|_| gone())?;
        self.sent.send(self.done).map_err(|_| gone())
    }
}

fn tag(client: &EngineClient, id: &str, name: &str) -> Result<(), Failure> {
    let options = TagImageOptions { repo: Some(REPOSITORY.into()), tag: Some(name.to_owned()) };
    let image = id.to_owned();
    client.call(ASK, move |docker| async move { docker.tag_image(&image, Some(options)).await }).map_err(|trouble| {
        trouble.failure(FailedStep::Image, &format!("cannot name the image {id}"), "look into the engine's log")
    })
}

/// Takes a name away, and the image where it was its last and nothing uses it. What stays behind costs room, no more.
pub(super) fn untag(client: &EngineClient, reference: &str) {
    let image = reference.to_owned();
    let removed = client
        .call(WORK, move |docker| async move { docker.remove_image(&image, None::<RemoveImageOptions>, None).await });
    if let Err(trouble) = removed {
        tracing::debug!("an image of ours stays in the engine's store: {trouble}");
    }
}

/// Removes what a directory was before: those images are of no use once it has changed.
fn forget(client: &EngineClient, prefix: &str, but: &str) {
    let Ok(listed) = client.json(format!("/images/json?filters=%7B%22reference%22%3A%5B%22{REPOSITORY}%22%5D%7D"))
    else {
        return;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let old = now.saturating_sub(KEPT).as_secs();
    for image in
        listed.as_array().into_iter().flatten().filter(|image| image["Created"].as_u64().unwrap_or(u64::MAX) < old)
    {
        for name in image["RepoTags"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            // Podman says whose registry it would be.
            let ours = name.strip_prefix("docker.io/").or(name.strip_prefix("localhost/")).unwrap_or(name);
            if ours.starts_with(prefix) && !ours.ends_with(but) {
                untag(client, name);
            }
        }
    }
}

fn failed(doing: &str, error: &io::Error) -> Failure {
    let hint = "it has to be there, readable by this user, and not changed meanwhile";
    Failure::new(FailedStep::Image, format!("{doing}: {error}")).hint(hint)
}

fn large(doing: &str, error: &io::Error) -> Failure {
    let hint =
        "name what holds less, or have the engine import it itself (docker import, podman import), and name that image";
    failed(doing, error).hint(hint)
}

/// Does something when it goes.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// That one thread of this process makes a thing, and the others wait for it.
struct Alone(String);

static MAKING: Mutex<Vec<String>> = Mutex::new(Vec::new());
static MADE: std::sync::Condvar = std::sync::Condvar::new();

impl Alone {
    fn with(name: &str) -> Alone {
        let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut making = MADE
            .wait_while(making, |making| making.iter().any(|other| other == name))
            .unwrap_or_else(PoisonError::into_inner);
        making.push(name.to_owned());
        Alone(name.to_owned())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        MAKING.lock().unwrap_or_else(PoisonError::into_inner).retain(|name| *name != self.0);
        MADE.notify_all();
    }
}
