//! What Podman says of itself, kept for some minutes: its `info` starts half a dozen programs to report versions, and takes
//! longer than the container.
//!
//! ```text
//! STATE/engines/podman-KEY.json      KEY is over the socket's inode, the process that listens and when it started, the
//!                                    version that it reported just now, and every file that configures it
//! ```
//!
//! Decides nothing by itself: what an engine made of a request is compared in [`super::verify`] all the same, the runtime
//! among it, and where that differs everything here is forgotten.

use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_policy::BaseDirectory;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::client::{EngineClient, Ping, Trouble};
use super::service::peer;
use crate::backends::containers::content::{hex, stamp};
use crate::backends::containers::host_files::HostFilesDirectory;
use crate::backends::containers::owner;
use crate::backends::containers::owner::{OwnerProcess, ProcessScope};

/// How long an answer is taken for true.
const KEPT: Duration = Duration::from_secs(600);
/// What such a file may be long.
const LONG: u64 = 64 << 10;
const PREFIX: &str = "podman-";
/// What is kept of the answer: all that [`super::engine_facts::What::podman`] reads.
const PARTS: [&str; 6] = [
    "/host/security",
    "/host/cgroupVersion",
    "/host/cgroupControllers",
    "/host/idMappings",
    "/host/ociRuntime",
    "/version/Version",
];

/// Libpod's `info`, in parts; asked for where it is not known.
///
/// # Errors
/// It cannot be asked.
pub(super) fn info(client: &EngineClient, ping: &Ping) -> Result<Value, Trouble> {
    // Where there is no room for files, or none that is safe, it is asked each time.
    let kept = HostFilesDirectory::find().ok().map(|place| place.engines()).zip(key(client.socket(), ping, &files()));
    if let Some(known) = kept.as_ref().and_then(|(directory, key)| read(directory, key)) {
        return Ok(known);
    }
    let info = reduced(&client.json("/v4.0.0/libpod/info".into())?);
    if let Some((directory, key)) = &kept {
        clear(directory, is_fresh);
        if let Err(error) = write(directory, key, &info) {
            tracing::debug!("what Podman says of itself is not kept: {error}");
        }
    }
    Ok(info)
}

/// Forgets all of it.
pub(super) fn forget() {
    if let Ok(place) = HostFilesDirectory::find() {
        clear(&place.engines(), |_| false);
    }
}

/// Which service it is, as it is configured; none where that cannot be told for sure.
fn key(socket: &Path, ping: &Ping, files: &[PathBuf]) -> Option<String> {
    let here = ProcessScope::read()?;
    let (pid, user) = peer(&UnixStream::connect(socket).ok()?)?;
    let OwnerProcess::Started(since) = owner::process(pid) else { return None };
    let mut hasher = Sha256::new();
    let listens = stamp(&fs::metadata(socket).ok()?);
    let who = format!("{pid}:{since}:{user}:{}:{}:{}:{listens}", here.boot, here.pids, socket.display());
    for what in [&who, &ping.api, &ping.server] {
        hasher.update((what.len() as u64).to_le_bytes());
        hasher.update(what);
    }
    for file in files {
        hasher.update(fs::metadata(file).map_or_else(|_| "absent".to_owned(), |stat| stamp(&stat)));
    }
    Some(hex(&hasher.finalize()[..20]))
}

/// What Podman's answer can depend on, besides its process.
fn files() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = BaseDirectory::Config.of(named(BaseDirectory::Config.variable()), named("HOME"));
    let mut files: Vec<PathBuf> =
        ["CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE"].into_iter().filter_map(named).collect();
    files.extend(["/etc/subuid", "/etc/subgid"].map(PathBuf::from));
    let directories =
        [Some("/usr/share/containers".into()), Some("/etc/containers".into()), own.map(|own| own.join("containers"))];
    for directory in directories.into_iter().flatten() {
        files.extend(["containers.conf", "seccomp.json"].map(|name| directory.join(name)));
        for below in ["containers.conf.d", "containers.rootless.conf.d", "containers.rootful.conf.d"] {
            let below = directory.join(below);
            let mut parts: Vec<PathBuf> =
                fs::read_dir(&below).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            parts.sort();
            files.push(below);
            files.extend(parts);
        }
    }
    files
}

fn reduced(info: &Value) -> Value {
    let mut reduced = json!({ "host": {}, "version": {} });
    for pointer in PARTS {
        let mut parts = pointer.split('/').skip(1);
        if let (Some(group), Some(name), Some(value)) = (parts.next(), parts.next(), info.pointer(pointer)) {
            reduced[group][name] = value.clone();
        }
    }
    reduced
}

fn path(directory: &Path, key: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{key}.json"))
}

fn is_fresh(stat: &Metadata) -> bool {
    // Of the future is none: a clock that was set back would keep it for long.
    stat.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age < KEPT))
}

fn read(directory: &Path, key: &str) -> Option<Value> {
    let no_link = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let file = fs::File::options().read(true).custom_flags(no_link).open(path(directory, key)).ok()?;
    let stat = file.metadata().ok()?;
    let ours = stat.is_file() && stat.uid() == rustix::process::geteuid().as_raw() && stat.mode() & 0o022 == 0;
    if !ours || !is_fresh(&stat) || stat.len() > LONG {
        return None;
    }
    let mut text = String::new();
    file.take(LONG).read_to_string(&mut text).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    value["host"]["security"].is_object().then_some(value)
}

fn write(directory: &Path, key: &str, info: &Value) -> std::io::Result<()> {
    crate::backends::containers::host_files::write_whole(&path(directory, key), info.to_string().as_bytes(), 0o600)
}

/// Removes those that are not to be kept.
fn clear(directory: &Path, keep: impl Fn(&Metadata) -> bool) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if ours && !entry.metadata().is_ok_and(|stat| keep(&stat)) {
            // Another process may be doing the same.
            drop(fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn ping(server: &str) -> Ping {
        Ping { podman: true, api: "1.41".into(), server: server.into() }
    }

    #[test]
    fn what_is_kept_is_of_this_service_with_this_configuration_and_not_for_long() {
        let work = tempfile::tempdir().unwrap();
        let (socket, conf) = (work.path().join("socket"), vec![work.path().join("containers.conf")]);
        let listener = UnixListener::bind(&socket).unwrap();
        let known = key(&socket, &ping("Libpod/4.3.1"), &conf).unwrap();
        assert_eq!(key(&socket, &ping("Libpod/4.3.1"), &conf).unwrap(), known, "the twin");
        assert_ne!(key(&socket, &ping("Libpod/4.3.2"), &conf).unwrap(), known, "another program");
        fs::write(&conf[0], "[containers]\nseccomp_profile = \"unconfined\"\n").unwrap();
        let configured = key(&socket, &ping("Libpod/4.3.1"), &conf).unwrap();
        assert_ne!(configured, known, "another configuration");
        drop(listener);
        assert_eq!(key(&socket, &ping("Libpod/4.3.1"), &conf), None, "nobody listens");
        fs::remove_file(&socket).unwrap();
        let _again = UnixListener::bind(&socket).unwrap();
        assert_ne!(key(&socket, &ping("Libpod/4.3.1"), &conf).unwrap(), configured, "another socket");

        let info = json!({ "host": { "security": { "rootless": false }, "cgroupVersion": "v2", "cpus": 4 },
                           "version": { "Version": "4.3.1" } });
        assert_eq!(read(work.path(), &known), None);
        write(work.path(), &known, &reduced(&info)).unwrap();
        let kept = read(work.path(), &known).unwrap();
        assert_eq!(
            kept,
            json!({ "host": { "security": { "rootless": false }, "cgroupVersion": "v2" },
                                 "version": { "Version": "4.3.1" } })
        );
        let file = path(work.path(), &known);
        let set = |time| fs::File::open(&file).unwrap().set_modified(time).unwrap();
        let now = std::time::SystemTime::now();
        for time in [now - KEPT * 2, now + KEPT] {
            set(time);
            assert_eq!(read(work.path(), &known), None);
        }
        set(now);
        assert!(read(work.path(), &known).is_some(), "the twin");
        let mode = |mode| fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o666);
        assert_eq!(read(work.path(), &known), None, "others may have written it");
        mode(0o600);
        let aside = work.path().join("aside");
        fs::rename(&file, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &file).unwrap();
        assert_eq!(read(work.path(), &known), None, "a link");
        fs::rename(&aside, &file).unwrap();
        assert!(read(work.path(), &known).is_some(), "the twin");
        clear(work.path(), is_fresh);
        assert!(file.exists());
        clear(work.path(), |_| false);
        assert!(!file.exists() && socket.exists(), "and nothing else");
    }
}
