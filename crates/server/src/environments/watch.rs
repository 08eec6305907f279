//! Decides when definitions are reloaded: on inotify events, periodically where inotify reports nothing, on SIGHUP, and on
//! request of `cofferdam environment reload`.
//!
//! Directories are watched, not files, so that replaced and newly created files are noticed as well. The registry does the
//! reload. A burst of changes causes one reload: files being copied are read once they have been quiet for a moment, and again
//! if they change later.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_config::environments::Surroundings;
use cofferdam_config::server_control::{self, Listening, RELOAD};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::environment::EnvironmentHost;
use super::registry::{EnvironmentRegistry, ReloadResult};

/// How long no further change must occur before a reload.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// How often definitions are read without an event: network file systems report no changes of other machines.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Most directories that are watched: each watch costs kernel memory.
const MAX_WATCHES: usize = 2048;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

/// Reloads the definitions whenever they may have changed, for as long as the server runs.
pub(crate) async fn watch(host: Arc<EnvironmentHost>, environments: Arc<EnvironmentRegistry>) {
    let mut hup = match signal(SignalKind::hangup()) {
        Ok(hup) => hup,
        Err(error) => return tracing::error!("cannot handle SIGHUP, and definitions are not reloaded: {error}"),
    };
    let mut inotify = match Inotify::new() {
        Ok(inotify) => Some(inotify),
        Err(error) => {
            tracing::warn!("inotify is not available: {error}; definitions are read periodically");
            None
        }
    };
    loop {
        if let Some(inotify) = &mut inotify {
            inotify.watch_all(&host.around, &environments);
        }
        tokio::select! {
            () = changed(inotify.as_ref()) => {
                // Until no change has occurred for a moment, at most ten times.
                for _ in 0..10 {
                    if tokio::time::timeout(DEBOUNCE, changed(inotify.as_ref())).await.is_err() {
                        break;
                    }
                }
            }
            _ = hup.recv() => tracing::info!("SIGHUP: reading the definitions again"),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        reload(&environments).await;
    }
}

/// Reloads the definitions on a blocking thread. A caller during a reload waits for the next one, which all such callers share:
/// however many calls name unknown environments, one reload runs at a time.
pub(crate) async fn reload(environments: &Arc<EnvironmentRegistry>) -> ReloadResult {
    let begun = environments.reloads.begun();
    let mut last = environments.reloads.last.lock().await;
    if let Some((number, result)) = &*last
        && *number > begun
    {
        return result.clone();
    }
    let number = environments.reloads.begin();
    let registry = Arc::clone(environments);
    let result = tokio::task::spawn_blocking(move || registry.reload()).await.unwrap_or_else(|error| {
        tracing::error!("cannot read the definitions: {error}");
        ReloadResult::Refused(vec![error.to_string()])
    });
    *last = Some((number, result.clone()));
    result
}

/// Waits for an inotify event.
async fn changed(inotify: Option<&Inotify>) {
    match inotify {
        Some(inotify) => inotify.changes.notified().await,
        None => std::future::pending().await,
    }
}

/// The watched directories.
struct Inotify {
    fd: Arc<OwnedFd>,
    changes: Arc<Notify>,
    watched: BTreeSet<PathBuf>,
}

impl Inotify {
    fn new() -> std::io::Result<Inotify> {
        let fd = Arc::new(init(CreateFlags::CLOEXEC)?);
        let changes = Arc::new(Notify::new());
        let (source, notify) = (Arc::clone(&fd), Arc::clone(&changes));
        // The thread blocks in read until the process ends. Which change it was does not matter.
        std::thread::Builder::new().name("cofferdam-watch".into()).stack_size(128 << 10).spawn(move || {
            let mut buffer = [0u8; 4096];
            loop {
                match rustix::io::read(&*source, &mut buffer[..]) {
                    Ok(_) => notify.notify_one(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(errno) => return tracing::error!("inotify reports no more changes: {errno}"),
                }
            }
        })?;
        Ok(Inotify { fd, changes, watched: BTreeSet::new() })
    }

    /// Watches the directories that definitions may come from now. A watch ends with its directory and is added again when that
    /// reappears; adding an existing watch changes nothing.
    fn watch_all(&mut self, around: &Surroundings, environments: &EnvironmentRegistry) {
        let wanted = directories(around, environments);
        for directory in &wanted {
            match add_watch(&*self.fd, directory, CHANGES) {
                Ok(_) => {}
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::ACCESS) => {}
                Err(errno) => {
                    if !self.watched.contains(directory) {
                        tracing::warn!("{} is not watched: {errno}; it is read periodically", directory.display());
                    }
                }
            }
        }
        self.watched = wanted;
    }
}

/// The directories whose changes can change definitions.
fn directories(around: &Surroundings, environments: &EnvironmentRegistry) -> BTreeSet<PathBuf> {
    let mut wanted = BTreeSet::new();
    let mut with_parent = |path: &Path| {
        // A path that does not exist yet appears in its nearest existing ancestor.
        let existing = path.ancestors().find(|path| path.is_dir());
        wanted.extend(existing.map(Path::to_owned));
    };
    for file in environments.configurations() {
        with_parent(file.parent().unwrap_or(&file));
    }
    let registries = around.registries();
    for (registry, _) in &registries {
        with_parent(registry);
    }
    for (registry, _) in registries {
        for entry in std::fs::read_dir(registry).into_iter().flatten().flatten().take(MAX_WATCHES / 2) {
            let path = entry.path();
            if path.is_dir() {
                wanted.insert(path.join("bin"));
                wanted.insert(path);
            }
        }
    }
    // Artifacts that definitions name by their path.
    for directory in environments.artifacts() {
        wanted.insert(directory.join("bin"));
        wanted.insert(directory);
    }
    wanted.into_iter().take(MAX_WATCHES).collect()
}

/// Listens on the control socket, through which `cofferdam environment reload` reaches the server. Without it, SIGHUP remains.
pub(crate) fn listen(around: &Surroundings) -> Option<Listening> {
    match server_control::listen(around) {
        Ok(listening) => Some(listening),
        Err(error) => {
            tracing::warn!("cofferdam environment reload does not reach this server: {error}; SIGHUP does");
            None
        }
    }
}

/// Serves the control socket for as long as the server runs.
pub(crate) async fn serve_control(listening: Option<Listening>, environments: Arc<EnvironmentRegistry>) {
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
            tokio::time::sleep(DEBOUNCE).await;
            continue;
        };
        let environments = Arc::clone(&environments);
        tokio::spawn(async move {
            let answered = tokio::time::timeout(POLL_INTERVAL, serve_request(stream, &environments)).await;
            if !matches!(answered, Ok(Ok(()))) {
                tracing::debug!("a control request was not answered");
            }
        });
    }
}

/// Reads one control request, and answers it.
async fn serve_request(
    mut stream: tokio::net::UnixStream,
    environments: &Arc<EnvironmentRegistry>,
) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut word = String::new();
    BufReader::new(read.take(64)).read_line(&mut word).await?;
    let mut line = Vec::new();
    if word.trim_end() == RELOAD {
        let result = reload(environments).await;
        let count = environments.current().names().len();
        match result {
            ReloadResult::Unchanged => write!(line, "nothing has changed: {count} environments")?,
            ReloadResult::Changed => write!(line, "reloaded: {count} environments")?,
            ReloadResult::Refused(problems) => write!(line, "refused: {}", problems.join("; ").replace('\n', " "))?,
        }
    } else {
        write!(line, "refused: it is asked to {RELOAD}, and nothing else")?;
    }
    line.push(b'\n');
    write.write_all(&line).await
}
