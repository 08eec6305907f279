//! A delegated scope of our own from systemd, where an unprivileged user has no cgroup of its own otherwise.
//!
//! One call, `StartTransientUnit` of `org.freedesktop.systemd1.Manager` (`org.freedesktop.systemd1(5)`), with our
//! own pid and `Delegate=true`. The scope holds us and, below it, the cgroup of every sandbox; it ends when the
//! last of them has, and systemd then removes whatever directories are left, after our SIGKILL too. No limit is set
//! on the scope itself: figures and events have to outlive the payload, so they belong to leaves that we keep.
//!
//! The protocol is spoken by `dbus`, 250 lines of our own. Measured alternatives on two cores: `zbus` 57 CPU
//! seconds to build, `rustbus` 11 and old copies of `nix`, `syn`, `thiserror` and `bitflags`, in a command whose
//! first build has three minutes, for one call whose reply is only checked for success.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::dbus::{DbusCall, DbusConnection, DbusReply, DbusWriter};
use super::name::ProcessIdentity;

/// Exists while systemd runs this host (`sd_booted(3)`).
pub(super) const BOOTED: &str = "/run/systemd/system";

/// How long systemd may take to answer, and then to move us.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no scope.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScopeError {
    /// No bus could be talked to; the last cause.
    #[error("cannot talk to systemd at {address}")]
    Talk {
        /// The socket.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// systemd answered with an error.
    #[error("systemd refused to start {unit}: {name}: {message}")]
    Refused {
        /// The scope.
        unit: String,
        /// D-Bus error name.
        name: String,
        /// Its text.
        message: String,
    },
    /// The call was accepted, but we are not in the scope.
    #[error("systemd did not move this process into {unit} within {waited_ms} ms")]
    NotMoved {
        /// The scope.
        unit: String,
        /// Milliseconds.
        waited_ms: u64,
    },
}

/// A socket where systemd may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SystemdAddress {
    /// By path.
    Path(PathBuf),
    /// By abstract name.
    Abstract(Vec<u8>),
}

/// The sockets where the manager for this user may be reached, the bus first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bus {
    /// Each with whether a bus daemon is behind it, to be greeted, or the manager itself.
    sockets: Vec<(SystemdAddress, bool)>,
}

impl Bus {
    /// The manager of this user, or of the system for root. `None` when no socket is there. Connects to none.
    pub(crate) fn find() -> Option<Self> {
        let uid = rustix::process::geteuid();
        let mut sockets = Vec::new();
        if uid.is_root() {
            sockets.push((SystemdAddress::Path("/run/dbus/system_bus_socket".into()), true));
            sockets.push((SystemdAddress::Path("/run/systemd/private".into()), false));
        } else {
            if let Some(text) = std::env::var_os("DBUS_SESSION_BUS_ADDRESS") {
                sockets.extend(addresses(&text).into_iter().map(|address| (address, true)));
            }
            let default = || PathBuf::from(format!("/run/user/{}", uid.as_raw()));
            let runtime = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(default, PathBuf::from);
            sockets.push((SystemdAddress::Path(runtime.join("bus")), true));
            sockets.push((SystemdAddress::Path(runtime.join("systemd/private")), false));
        }
        sockets.dedup();
        sockets.retain(|(address, _)| match address {
            SystemdAddress::Path(path) => path.exists(),
            SystemdAddress::Abstract(_) => true,
        });
        (!sockets.is_empty()).then_some(Self { sockets })
    }

    #[cfg(test)]
    pub(super) fn at(path: PathBuf) -> Self {
        Self { sockets: vec![(SystemdAddress::Path(path), true)] }
    }
}

/// The socket addresses of a D-Bus address list that this process can connect to (`unix:path=`, `unix:abstract=`).
fn addresses(text: &OsStr) -> Vec<SystemdAddress> {
    let parse = |entry: &[u8]| {
        let options = entry.strip_prefix(b"unix:")?;
        options.split(|b| *b == b',').find_map(|option| {
            if let Some(path) = option.strip_prefix(b"path=") {
                Some(SystemdAddress::Path(PathBuf::from(OsStr::from_bytes(&unescape(path)))))
            } else {
                option.strip_prefix(b"abstract=").map(|name| SystemdAddress::Abstract(unescape(name)))
            }
        })
    };
    text.as_bytes().split(|b| *b == b';').filter_map(parse).collect()
}

/// Decodes `%2f`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| text[at] == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    out
}

/// Asks systemd for a delegated scope with this process in it, and waits until it is there.
pub(super) fn move_to_scope(bus: &Bus, identity: &ProcessIdentity) -> Result<(), ScopeError> {
    let unit = format!("{}.scope", identity.fresh_name());
    start_scope(bus, &unit, identity.owner.pid)?;
    // JobRemoved would report it, for three more messages; our own membership is the fact itself.
    let start = Instant::now();
    loop {
        let inside = std::fs::read_to_string("/proc/self/cgroup")
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("0::") && line.ends_with(unit.as_str())));
        if inside {
            return Ok(());
        }
        if start.elapsed() >= PATIENCE {
            let waited_ms = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
            return Err(ScopeError::NotMoved { unit, waited_ms });
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Starts the scope through the first socket that answers. A refusal by systemd is final.
pub(super) fn start_scope(bus: &Bus, unit: &str, pid: i32) -> Result<(), ScopeError> {
    let mut last = None;
    for (address, is_bus) in &bus.sockets {
        match call(address, *is_bus, unit, pid) {
            Ok(DbusReply::Done) => return Ok(()),
            // A session bus without a manager behind it: the next socket may be the manager's own.
            Ok(DbusReply::Refused { name, message }) if name.ends_with(".ServiceUnknown") => {
                last = Some(ScopeError::Refused { unit: unit.to_owned(), name, message });
            }
            Ok(DbusReply::Refused { name, message }) => {
                return Err(ScopeError::Refused { unit: unit.to_owned(), name, message });
            }
            Err(source) => last = Some(ScopeError::Talk { address: format!("{address:?}"), source }),
        }
    }
    Err(last.unwrap_or_else(|| ScopeError::Talk {
        address: "no socket".to_owned(),
        source: io::Error::from(io::ErrorKind::NotFound),
    }))
}

fn call(address: &SystemdAddress, is_bus: bool, unit: &str, pid: i32) -> io::Result<DbusReply> {
    let stream = match address {
        SystemdAddress::Path(path) => UnixStream::connect(path)?,
        SystemdAddress::Abstract(name) => UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?,
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut connection = DbusConnection::authenticate(stream, rustix::process::geteuid().as_raw())?;
    if is_bus {
        let hello = DbusCall {
            destination: Some("org.freedesktop.DBus"),
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            signature: "",
            body: DbusWriter::default(),
        };
        if let refused @ DbusReply::Refused { .. } = connection.call(&hello)? {
            return Ok(refused);
        }
    }
    connection.call(&DbusCall {
        destination: is_bus.then_some("org.freedesktop.systemd1"),
        path: "/org/freedesktop/systemd1",
        interface: "org.freedesktop.systemd1.Manager",
        member: "StartTransientUnit",
        signature: "ssa(sv)a(sa(sv))",
        body: scope_body(unit, pid),
    })
}

/// Name, mode, properties and no auxiliary units.
fn scope_body(unit: &str, pid: i32) -> DbusWriter {
    let mut body = DbusWriter::default();
    body.string(unit).string("fail");
    body.array(8, |list| {
        list.property("Description", "s", |value| {
            value.string("Cofferdam sandboxes");
        });
        list.property("PIDs", "au", |value| {
            value.array(4, |pids| {
                pids.u32(pid.unsigned_abs());
            });
        });
        list.property("Delegate", "b", |value| {
            value.u32(1);
        });
        // Forgotten when it ends, however it ends.
        list.property("CollectMode", "s", |value| {
            value.string("inactive-or-failed");
        });
    });
    body.array(8, |_| {});
    body
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn bus_addresses_are_read_in_order_and_decoded() {
        let list = OsStr::new("tcp:host=a;unix:guid=1,path=/run/a%20b;unix:abstract=/tmp/x");
        let expected = [SystemdAddress::Path("/run/a b".into()), SystemdAddress::Abstract(b"/tmp/x".to_vec())];
        assert_eq!(addresses(list), expected);
    }

    /// A bus of one connection that answers Hello and then replies with `answer` (type, error name, text).
    fn serve(listener: UnixListener, answer: Option<(&'static str, &'static str)>) -> Vec<Vec<u8>> {
        let (stream, _) = listener.accept().unwrap();
        let mut output = stream.try_clone().unwrap();
        let mut input = BufReader::new(stream);
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        let hex: String = rustix::process::geteuid().as_raw().to_string().bytes().map(|b| format!("{b:02x}")).collect();
        assert_eq!(line, format!("\0AUTH EXTERNAL {hex}\r\n"));
        output.write_all(b"OK 0123456789abcdef\r\n").unwrap();
        line.clear();
        input.read_line(&mut line).unwrap();
        assert_eq!(line, "BEGIN\r\n");
        let mut received = Vec::new();
        for call in 0..2u32 {
            let mut fixed = [0u8; 16];
            input.read_exact(&mut fixed).unwrap();
            let number = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap());
            let mut rest = vec![0; (number(12) as usize).next_multiple_of(8) + number(4) as usize];
            input.read_exact(&mut rest).unwrap();
            received.push(rest);
            // A signal in between must not be taken for the answer.
            output.write_all(&message(4, None, None, call + 90)).unwrap();
            let reply_to = number(8);
            match answer {
                Some((name, text)) if call == 1 => {
                    output.write_all(&message(3, Some(reply_to), Some((name, text)), 99)).unwrap();
                }
                _ => output.write_all(&message(2, Some(reply_to), None, 98)).unwrap(),
            }
        }
        received
    }

    fn message(kind: u8, reply_to: Option<u32>, error: Option<(&str, &str)>, serial: u32) -> Vec<u8> {
        let mut fields = Vec::new();
        if let Some((name, _)) = error {
            fields.extend([4, 1, b's', 0]);
            fields.extend((name.len() as u32).to_le_bytes());
            fields.extend(name.as_bytes());
            fields.push(0);
            fields.resize(fields.len().next_multiple_of(8), 0);
        }
        if let Some(serial) = reply_to {
            fields.extend([5, 1, b'u', 0]);
            fields.extend(serial.to_le_bytes());
        }
        let mut body = Vec::new();
        if let Some((_, text)) = error {
            body.extend((text.len() as u32).to_le_bytes());
            body.extend(text.as_bytes());
            body.push(0);
        }
        let mut out = vec![b'l', kind, 0, 1];
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(serial.to_le_bytes());
        out.extend((fields.len() as u32).to_le_bytes());
        fields.resize(fields.len().next_multiple_of(8), 0);
        out.extend(fields);
        out.extend(body);
        out
    }

    fn with_bus(answer: Option<(&'static str, &'static str)>) -> (Result<(), ScopeError>, Vec<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || serve(listener, answer));
        let result = start_scope(&Bus::at(path), "cofferdam-test.scope", 4711);
        (result, server.join().unwrap())
    }

    #[test]
    fn a_scope_is_started_with_our_pid_and_delegated() {
        let (result, received) = with_bus(None);
        result.unwrap();
        let holds = |needle: &[u8]| received[1].windows(needle.len()).any(|window| window == needle);
        assert!(received[0].windows(5).any(|window| window == b"Hello"));
        for needle in [&b"StartTransientUnit\0"[..], b"cofferdam-test.scope\0", b"fail\0", b"Delegate\0\x01b\0"] {
            assert!(holds(needle), "{needle:?}");
        }
        assert!(holds(&4711u32.to_le_bytes()));
    }

    #[test]
    fn a_refusal_keeps_its_words() {
        let (result, _) = with_bus(Some(("org.freedesktop.DBus.Error.AccessDenied", "not you")));
        let text = result.unwrap_err().to_string();
        assert!(text.ends_with("org.freedesktop.DBus.Error.AccessDenied: not you"), "{text}");
    }

    #[test]
    fn a_missing_socket_is_an_error_that_names_it() {
        let error = start_scope(&Bus::at("/nonexistent/bus".into()), "x.scope", 1).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/bus"), "{error}");
    }
}
