//! Notices that definitions have changed: by the kernel (inotify), by looking now and then where it does not tell, by
//! SIGHUP, and when `cofferdam environment reload` asks.
//!
//! What is watched are directories, so that a file which is replaced, and one that is not there yet, are noticed as well.
//! Reading the definitions is the shelf's; this only says when. A burst of changes is one: what is still being copied is
//! read when it has been still for a moment, and again when it changes.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_config::environments::Surroundings;
use cofferdam_config::running::{self, Listening, RELOAD};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::environment::Host;
use crate::environments::{Reloaded, Shelf};

/// How long a change has to be still.
const STILL: Duration = Duration::from_millis(100);

/// How often definitions are looked at although nobody said anything: file systems of other machines tell nothing.
const NOW_AND_THEN: Duration = Duration::from_secs(5);

/// Most directories that are watched: each costs the kernel memory.
const MOST: usize = 2048;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Reads the definitions again each time that they may have changed, for as long as the server runs.
pub async fn watch(host: Arc<Host>, shelf: Arc<Shelf>) {
    let mut hup = match signal(SignalKind::hangup()) {
        Ok(hup) => hup,
        Err(error) => return tracing::error!("cannot hear SIGHUP, and definitions stay as they are: {error}"),
    };
    let mut kernel = match Kernel::new() {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            tracing::warn!("the kernel does not tell of changes: {error}; definitions are looked at now and then");
            None
        }
    };
    loop {
        if let Some(kernel) = &mut kernel {
            kernel.follow(&host.around, &shelf);
        }
        tokio::select! {
            () = told(kernel.as_ref()) => {
                // Until nothing has happened for a moment; at most for ten of them.
                for _ in 0..10 {
                    if tokio::time::timeout(STILL, told(kernel.as_ref())).await.is_err() {
                        break;
                    }
                }
            }
            _ = hup.recv() => tracing::info!("SIGHUP: reading the definitions again"),
            () = tokio::time::sleep(NOW_AND_THEN) => {}
        }
        read_again(&shelf).await;
    }
}

/// Reads them again, beside the runtime's thread. Who asks while they are read waits for the next reading, and all who wait
/// share it: however many calls name what is not there, the files are read by one after the other.
pub async fn read_again(shelf: &Arc<Shelf>) -> Reloaded {
    let asked = shelf.readings.begun();
    let mut last = shelf.readings.last.lock().await;
    if let Some((number, reloaded)) = &*last
        && *number > asked
    {
        return reloaded.clone();
    }
    let number = shelf.readings.begin();
    let reads = Arc::clone(shelf);
    let reloaded = tokio::task::spawn_blocking(move || reads.reload()).await.unwrap_or_else(|error| {
        tracing::error!("cannot read the definitions: {error}");
        Reloaded::Refused(vec![error.to_string()])
    });
    *last = Some((number, reloaded.clone()));
    reloaded
}

/// Waits until the kernel tells of a change.
async fn told(kernel: Option<&Kernel>) {
    match kernel {
        Some(kernel) => kernel.changes.notified().await,
        None => std::future::pending().await,
    }
}

/// What the kernel watches for us.
struct Kernel {
    fd: Arc<OwnedFd>,
    changes: Arc<Notify>,
    watched: BTreeSet<PathBuf>,
}

impl Kernel {
    fn new() -> std::io::Result<Kernel> {
        let fd = Arc::new(init(CreateFlags::CLOEXEC)?);
        let changes = Arc::new(Notify::new());
        let (source, told) = (Arc::clone(&fd), Arc::clone(&changes));
        // It waits in the kernel, as long as the process is there. Which change it was does not matter.
        std::thread::Builder::new().name("cofferdam-watch".into()).stack_size(128 << 10).spawn(move || {
            let mut buffer = [0u8; 4096];
            loop {
                match rustix::io::read(&*source, &mut buffer[..]) {
                    Ok(_) => told.notify_one(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return tracing::error!("the kernel does not tell of changes any more: {errno}"),
                }
            }
        })?;
        Ok(Kernel { fd, changes, watched: BTreeSet::new() })
    }

    /// Watches what definitions may come from now. A watch goes with its directory, and is made again when that is back:
    /// asking for one that there is changes nothing.
    fn follow(&mut self, around: &Surroundings, shelf: &Shelf) {
        let wanted = directories(around, shelf);
        for directory in &wanted {
            match add_watch(&*self.fd, directory, CHANGES) {
                Ok(_) => {}
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {}
                Err(errno) => {
                    if !self.watched.contains(directory) {
                        tracing::warn!("{} is not watched: {errno}; it is looked at now and then", directory.display());
                    }
                }
            }
        }
        self.watched = wanted;
    }
}

/// The directories whose changes can change definitions.
fn directories(around: &Surroundings, shelf: &Shelf) -> BTreeSet<PathBuf> {
    let mut wanted = BTreeSet::new();
    let mut with_parent = |path: &Path| {
        // What is not there yet comes into being in the nearest directory that is.
        let there = path.ancestors().find(|path| path.is_dir());
        wanted.extend(there.map(Path::to_owned));
    };
    for file in shelf.configurations() {
        with_parent(file.parent().unwrap_or(&file));
    }
    let registries = around.registries();
    for (registry, _) in &registries {
        with_parent(registry);
    }
    for (registry, _) in registries {
        for entry in std::fs::read_dir(registry).into_iter().flatten().flatten().take(MOST / 2) {
            let path = entry.path();
            if path.is_dir() {
                wanted.insert(path.join("bin"));
                wanted.insert(path);
            }
        }
    }
    // Artifacts that definitions name by their path.
    for directory in shelf.artifacts() {
        wanted.insert(directory.join("bin"));
        wanted.insert(directory);
    }
    wanted.into_iter().take(MOST).collect()
}

/// Begins to answer who asks on the server's own socket. Without one, there is SIGHUP.
pub fn listen(around: &Surroundings) -> Option<Listening> {
    match running::listen(around) {
        Ok(listening) => Some(listening),
        Err(error) => {
            tracing::warn!("cofferdam environment reload does not reach this server: {error}; SIGHUP does");
            None
        }
    }
}

/// Answers who asks, for as long as the server runs.
pub async fn answer(listening: Option<Listening>, shelf: Arc<Shelf>) {
    let Some(listening) = listening else { return };
    let listener = listening
        .listener
        .try_clone()
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .and_then(tokio::net::UnixListener::from_std);
    let listener = match listener {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("cofferdam environment reload does not reach this server: {error}"),
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(STILL).await;
            continue;
        };
        let shelf = Arc::clone(&shelf);
        tokio::spawn(async move {
            let answered = tokio::time::timeout(NOW_AND_THEN, one(stream, &shelf)).await;
            if !matches!(answered, Ok(Ok(()))) {
                tracing::debug!("somebody asked and went");
            }
        });
    }
}

async fn one(mut stream: tokio::net::UnixStream, shelf: &Arc<Shelf>) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut word = String::new();
    BufReader::new(read.take(64)).read_line(&mut word).await?;
    let mut line = Vec::new();
    if word.trim_end() == RELOAD {
        let reloaded = read_again(shelf).await;
        let count = shelf.now().names().len();
        match reloaded {
            Reloaded::Same => write!(line, "nothing has changed: {count} environments")?,
            Reloaded::Changed => write!(line, "reloaded: {count} environments")?,
            Reloaded::Refused(problems) => write!(line, "refused: {}", problems.join("; ").replace('\n', " "))?,
        }
    } else {
        write!(line, "refused: it is asked to {RELOAD}, and nothing else")?;
    }
    line.push(b'\n');
    write.write_all(&line).await
}
