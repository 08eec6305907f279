//! The control sockets of this user's running servers, by which they are asked to reload their definitions. Each server listens on
//! a socket of its own in a directory that only this user can enter.
//!
//! The protocol is one word, and one line of answer. Only the user and root can connect, who could also kill the server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environments::Surroundings;

/// The request to reload the definitions.
pub const RELOAD: &str = "reload";

/// Longest answer, bytes.
const LONGEST: u64 = 64 << 10;

/// How long to wait for a server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The directory of the sockets: in the user's runtime directory if that belongs to the user, or in a temporary directory.
pub fn directory(around: &Surroundings) -> PathBuf {
    let variable = |name: &str| around.variables.get(name).filter(|path| path.starts_with('/')).map(PathBuf::from);
    // A variable that was inherited from another user (su, sudo) names that user's directory.
    let mine = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|it| it.is_dir() && it.uid() == rustix::process::geteuid().as_raw())
    };
    match variable("XDG_RUNTIME_DIR").filter(mine) {
        Some(runtime) => runtime.join("cofferdam"),
        None => {
            let uid = rustix::process::geteuid().as_raw();
            variable("TMPDIR").unwrap_or_else(|| "/tmp".into()).join(format!("cofferdam-{uid}"))
        }
    }
}

/// Creates the directory, or checks that it is this user's alone.
fn own(directory: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().recursive(false).mode(0o700).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(directory)
}

/// Whether the directory is this user's alone.
fn check(directory: &Path) -> std::io::Result<()> {
    let metadata = std::fs::symlink_metadata(directory)?;
    let mine = metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0;
    if metadata.is_dir() && mine {
        return Ok(());
    }
    Err(std::io::Error::other(format!("{} is not a directory of this user's alone", directory.display())))
}

/// A server's control socket, which is removed on drop.
#[derive(Debug)]
pub struct Listening {
    /// The listening socket.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path)); // the next client removes it if this fails
    }
}

/// Listens on a new control socket.
///
/// # Errors
/// The socket cannot be created.
pub fn listen(around: &Surroundings) -> std::io::Result<Listening> {
    let directory = directory(around);
    own(&directory)?;
    let path = directory.join(format!("serve-{}.sock", std::process::id()));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {} // another process had this process id
    }
    let listener = UnixListener::bind(&path)?;
    remove_stale(&directory);
    Ok(Listening { listener, path })
}

/// The sockets in the directory, each with the process id of its server, in order.
fn sockets(directory: &Path) -> std::io::Result<Vec<(u32, PathBuf)>> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(directory)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_prefix("serve-")?.strip_suffix(".sock")?.parse().ok()?, entry.path()))
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Removes the sockets of killed servers. A socket whose process id is in use stays, since its server may be about to listen.
fn remove_stale(directory: &Path) {
    for (pid, path) in sockets(directory).unwrap_or_default() {
        let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        let gone =
            process.is_none_or(|process| rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH));
        if gone {
            drop(std::fs::remove_file(&path)); // another server removed it first, or it stays and refuses connections
        }
    }
}

/// The answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAnswer {
    /// Its process id.
    pub pid: u32,
    /// The answer, or why there is none.
    pub answer: Result<String, String>,
}

/// Asks every server of this user. A socket whose server is gone is removed.
///
/// # Errors
/// The directory is not this user's alone.
pub fn ask(around: &Surroundings, word: &str) -> std::io::Result<Vec<ServerAnswer>> {
    let directory = directory(around);
    let found = match sockets(&directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found?,
    };
    check(&directory)?;
    let mut asked = Vec::new();
    for (pid, path) in found {
        match UnixStream::connect(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => std::fs::remove_file(&path)?,
            Err(error) => asked.push(ServerAnswer { pid, answer: Err(error.to_string()) }),
            Ok(stream) => {
                asked.push(ServerAnswer { pid, answer: said(stream, word).map_err(|error| error.to_string()) })
            }
        }
    }
    Ok(asked)
}

fn said(mut stream: UnixStream, word: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{word}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    if line.is_empty() { Err(std::io::Error::other("it answered nothing")) } else { Ok(line.trim_end().to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn around(directory: &Path) -> Surroundings {
        let variables = [("XDG_RUNTIME_DIR".to_owned(), directory.to_str().unwrap().to_owned())].into();
        Surroundings { variables, cwd: "/".into(), homes: Vec::new(), system: "/etc".into() }
    }

    #[test]
    fn listening_servers_answer_and_dead_sockets_are_removed() {
        let runtime = tempfile::tempdir().unwrap();
        let around = around(runtime.path());
        assert_eq!(ask(&around, RELOAD).unwrap(), []);
        let listening = listen(&around).unwrap();
        let listener = listening.listener.try_clone().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut word = String::new();
            BufReader::new(&stream).read_line(&mut word).unwrap();
            (&stream).write_all(format!("heard {word}").as_bytes()).unwrap();
        });
        let answer = ServerAnswer { pid: std::process::id(), answer: Ok("heard reload".into()) };
        assert_eq!(ask(&around, RELOAD).unwrap(), [answer]);
        server.join().unwrap();
        // A killed server leaves its socket.
        let path = listening.path.clone();
        drop(listening);
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(ask(&around, RELOAD).unwrap(), []);
        assert!(!path.exists());
    }

    #[test]
    fn the_next_server_removes_the_sockets_of_killed_ones_alone() {
        let runtime = tempfile::tempdir().unwrap();
        let around = around(runtime.path());
        let first = listen(&around).unwrap();
        // No process has this id, which is above the kernel's maximum.
        let killed = directory(&around).join("serve-4194305.sock");
        drop(UnixListener::bind(&killed).unwrap());
        // The process of this socket runs, and may be about to listen.
        let starting = directory(&around).join("serve-1.sock");
        drop(UnixListener::bind(&starting).unwrap());
        let own = first.path.clone();
        std::mem::forget(first);
        drop(listen(&around).unwrap());
        assert!(!killed.exists() && starting.exists() && !own.exists());
    }

    #[test]
    fn another_users_runtime_directory_is_not_used() {
        let runtime = tempfile::tempdir().unwrap();
        assert_eq!(directory(&around(runtime.path())), runtime.path().join("cofferdam"));
        let uid = rustix::process::geteuid();
        let last = format!("/tmp/cofferdam-{}", uid.as_raw());
        assert_eq!(directory(&around(Path::new("/no/such/directory"))), Path::new(&last));
        if uid.is_root() {
            std::os::unix::fs::chown(runtime.path(), Some(65533), Some(65533)).unwrap();
            assert_eq!(directory(&around(runtime.path())), Path::new(&last));
        } else {
            assert_eq!(directory(&around(Path::new("/"))), Path::new(&last), "root's");
        }
    }

    #[test]
    fn a_directory_that_others_may_enter_is_not_used() {
        let runtime = tempfile::tempdir().unwrap();
        let around = around(runtime.path());
        drop(listen(&around).unwrap());
        std::fs::set_permissions(directory(&around), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(listen(&around).is_err() && ask(&around, RELOAD).is_err());
        std::fs::set_permissions(directory(&around), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(listen(&around).is_ok());
    }
}
