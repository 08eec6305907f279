//! Which Unix sockets a program reaches that may create them: its own and granted ones, and no other program's.

mod common;

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{PYTHON, cofferdam, shown_directory};

/// Connects and sends, or says why not.
const CONNECT: &str = "import socket,sys\ns = socket.socket(socket.AF_UNIX)\ntry:\n s.connect(sys.argv[1])\n s.send(b'x')\n \
                       print('sent')\nexcept OSError as e:\n print(e.strerror)";

/// Whether a program in a sandbox with these options gets through to a socket.
fn reaches(at: &Path, socket: &Path, options: &[&str]) -> bool {
    let listener = UnixListener::bind(socket).unwrap();
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut command = cofferdam();
    command.current_dir(at).args(["run", "-q"]).args(options).args(["--", PYTHON, "-c", CONNECT]).arg(socket);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let until = Instant::now() + Duration::from_millis(200);
    let mut got = false;
    while !got && Instant::now() < until {
        if let Ok((mut stream, _)) = listener.accept() {
            got = stream.read(&mut [0]).is_ok_and(|n| n == 1);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(said.contains("sent"), got, "{output:?}");
    std::fs::remove_file(socket).unwrap();
    got
}

#[test]
fn granted_sockets_are_reachable_and_agents_of_the_host_not() {
    let Some(place) = shown_directory("sockets") else { return };
    let agent = place.0.join("agent");
    std::fs::create_dir(&agent).unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = agent.join("agent.sock");
    let volume = format!("{0}:{0}", agent.display());
    assert!(!reaches(Path::new("/"), &socket, &["--unix-sockets"]));
    assert!(!reaches(Path::new("/"), &socket, &[]));
    // The same socket, given: by a volume, and by the working directory.
    assert!(reaches(Path::new("/"), &socket, &["--unix-sockets", "-v", &volume]));
    assert!(reaches(&agent, &socket, &["--unix-sockets"]));
    // What the program makes itself.
    let own = "import socket,os\na = socket.socket(socket.AF_UNIX)\na.bind('/tmp/own')\na.listen()\n\
               b = socket.socket(socket.AF_UNIX)\nb.connect('/tmp/own')\nprint('own')";
    let output = cofferdam().args(["run", "-q", "--unix-sockets", "--", PYTHON, "-c", own]).output().unwrap();
    assert_eq!(output.stdout, b"own\n", "{output:?}");
}
