//! The victims of one trial: files, processes, sockets and the rest, made fresh, watched, and removed again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use cofferdam_policy::{Access, BackendName, Field, Mount, Policy, Root, Stdin};

use crate::attack::{Attack, Setting, Victim};
use crate::host::{Host, User, make_dir, mode};

/// What every victim file says at first.
pub const ORIGINAL: &str = "original\n";
/// What the files behind the caller's streams say at first.
pub const KEEP: &str = "KEEP\n";
/// What the attacks write and send.
pub const TOKEN: &str = "cofferdam-was-here";

const O_NONBLOCK: i32 = 0o4000;

/// One trial's victims.
pub struct Case<'h> {
    /// The invocation.
    pub host: &'h Host,
    /// As whom everything runs.
    pub user: User,
    uid: Option<u32>,
    /// Major and minor number of device nodes that are victims.
    device: [&'static str; 2],
    /// Everything of this case lies in it.
    pub dir: PathBuf,
    /// What a leak would show.
    pub secret: String,
    /// Marks processes, keys and names of this case.
    pub token: String,
    port: u16,
    key: u64,
    handle: String,
    address: String,
    process: Option<Child>,
    received: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    watchers: Vec<thread::JoinHandle<()>>,
    ipc: bool,
    shm: Option<PathBuf>,
    /// The state of the victim process at first.
    pub steering: String,
}

impl<'h> Case<'h> {
    /// Makes the victims of `attack` for `user`.
    ///
    /// # Errors
    /// Names what could not be made; that is never a verdict about the sandbox.
    pub fn new(host: &'h Host, user: User, attack: &Attack, backend: BackendName) -> Result<Case<'h>, String> {
        let number = host.unique();
        let mut case = Case {
            host,
            user,
            uid: if user == User::Unprivileged { host.unprivileged(number, backend) } else { None },
            // Endless zeros are a device that Docker's containers have anyway: there it is one that is not on its list, loop's.
            device: if backend == BackendName::Docker { ["10", "237"] } else { ["1", "5"] },
            dir: host.base.join(format!("c{number}")),
            secret: format!("s3cret-{number:x}"),
            token: format!("cofferdam-tk-{number:x}"),
            port: 0,
            key: 0x4000_0000 + number % 0x3000_0000,
            handle: String::new(),
            address: "0".into(),
            process: None,
            received: Arc::default(),
            stop: Arc::default(),
            watchers: Vec::new(),
            ipc: false,
            shm: None,
            steering: String::new(),
        };
        case.files()?;
        for victim in attack.victims {
            case.victim(victim)?;
        }
        Ok(case)
    }

    /// Fills the placeholders in.
    pub fn fill(&self, text: &str) -> String {
        let dir = |name: &str| self.dir.join(name).display().to_string();
        let mut filled = text.to_owned();
        for (name, value) in [
            ("{out}", dir("out")),
            ("{ro}", dir("ro")),
            ("{rw}", dir("rw")),
            ("{cow}", dir("cow")),
            ("{twin}", dir("twin")),
            ("{keep}", dir("keep")),
            ("{state}", dir("state")),
            ("{attack}", self.host.attack.display().to_string()),
            ("{cofferdam}", self.host.cofferdam.display().to_string()),
            ("{secret}", self.secret.clone()),
            ("{token}", self.token.clone()),
            ("{abstract}", format!("@{}", self.token)),
            ("{port}", self.port.to_string()),
            ("{key}", self.key.to_string()),
            ("{pid}", self.process.as_ref().map_or(0, Child::id).to_string()),
            ("{addr}", self.address.clone()),
            ("{handle_type}", self.handle.split(' ').next().unwrap_or("0").into()),
            ("{handle}", self.handle.split(' ').nth(1).unwrap_or("").into()),
        ] {
            filled = filled.replace(name, &value);
        }
        if filled.contains("{disk}") {
            filled = filled.replace("{disk}", &disk());
        }
        for (name, file) in
            [("{hostname}", "/proc/sys/kernel/hostname"), ("{bootid}", "/proc/sys/kernel/random/boot_id")]
        {
            if filled.contains(name) {
                filled = filled.replace(name, fs::read_to_string(file).unwrap_or_default().trim());
            }
        }
        filled
    }

    /// The path that a placeholder text names.
    pub fn path(&self, text: &str) -> PathBuf {
        PathBuf::from(self.fill(text))
    }

    /// What a listener, dialer or FIFO reader of this case got so far, after a moment's wait for late arrivals.
    pub fn received(&self) -> bool {
        for _ in 0..40 {
            let got = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            if String::from_utf8_lossy(&got).contains(TOKEN) {
                return true;
            }
            drop(got);
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whether the victim process is dead.
    pub fn victim_dead(&mut self) -> bool {
        for _ in 0..20 {
            if self.process.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_)))) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Priority, policy, affinity and limits of the victim process, as the host sees them.
    pub fn steering_now(&self) -> String {
        let Some(pid) = self.process.as_ref().map(Child::id) else { return String::new() };
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let allowed = read("status").lines().filter(|l| l.starts_with("Cpus_allowed:")).collect::<String>();
        format!("{:?} {:?} {allowed} {}", fields.get(16), fields.get(38), read("limits"))
    }

    /// The policy of a trial. Everything in `required` must hold in full, the rest as far as it goes.
    pub fn policy(&self, settings: &[Setting], backend: BackendName, required: &[Field], argv: &[String]) -> Policy {
        let mut policy = Policy::base();
        policy.backend = backend;
        policy.command.argv = argv.to_vec();
        policy.command.cwd = Some("/".into());
        let containers = backend.is_container();
        policy.filesystem.root = if containers { Root::Minimal } else { Root::Host };
        let bind = |source: &str, target: &str, access, exec| Mount::Bind {
            source: self.fill(source),
            target: self.fill(target),
            access,
            exec,
            optional: false,
        };
        let program = self.host.base.join("bin").display().to_string();
        policy.filesystem.mounts.push(bind(&program, &program, Access::ReadOnly, true));
        if containers && !settings.contains(&Setting::Minimal) {
            // Of the host's tree a container has what it is given: what the host's view shows of the victims.
            policy.filesystem.mounts.push(bind("{out}", "{out}", Access::ReadOnly, true));
        }
        policy.limits.memory_mb = 192;
        policy.limits.cpu_seconds = 6;
        policy.limits.wall_ms = 12_000;
        // One user's podman is counted with all that runs as him, trials beside this one among it.
        let counted_together = backend == BackendName::Podman && self.user == User::Unprivileged;
        policy.limits.processes = if counted_together { 1024 } else { 48 };
        policy.limits.tmpfs_mb = 32;
        policy.limits.open_files = 256;
        policy.limits.file_size_mb = 128;
        policy.limits.output_bytes = 1 << 20;
        policy.limits.layer_mb = 8;
        for change in settings {
            match *change {
                Setting::Ro => policy.filesystem.mounts.push(bind("{ro}", "{ro}", Access::ReadOnly, false)),
                Setting::Rw => policy.filesystem.mounts.push(bind("{rw}", "{rw}", Access::ReadWrite, false)),
                Setting::RwExec => policy.filesystem.mounts.push(bind("{rw}", "{rw}", Access::ReadWrite, true)),
                Setting::Cow => policy.filesystem.mounts.push(bind("{cow}", "{cow}", Access::CopyOnWrite, false)),
                Setting::Bind(source, target, access) => {
                    policy.filesystem.mounts.push(bind(source, target, access, false));
                }
                Setting::Minimal => policy.filesystem.root = Root::Minimal,
                Setting::Deny(path) => policy.filesystem.deny.push(self.fill(path)),
                Setting::Unprotected => policy.filesystem.protected.clear(),
                Setting::Net(mode) => policy.network.mode = mode,
                Setting::Unix => policy.process.unix_sockets = true,
                Setting::Level(level) => policy.process.seccomp.level = level,
                Setting::NoSpawn => policy.process.spawn = false,
                Setting::Stdin => policy.command.stdin = Stdin::Caller,
                Setting::MemoryMb(n) => policy.limits.memory_mb = n,
                Setting::CpuSeconds(n) => policy.limits.cpu_seconds = n,
                Setting::CpuMillis(n) => policy.limits.cpu_millis = n,
                Setting::WallMs(n) => policy.limits.wall_ms = n,
                Setting::FileSizeMb(n) => policy.limits.file_size_mb = n,
                Setting::OpenFiles(n) => policy.limits.open_files = n,
                Setting::Processes(n) => policy.limits.processes = n,
                Setting::TmpfsMb(n) => policy.limits.tmpfs_mb = n,
                Setting::OutputBytes(n) => policy.limits.output_bytes = n,
                Setting::LayerMb(n) => policy.limits.layer_mb = n,
                Setting::LayerInodes(n) => policy.limits.layer_inodes = n,
                Setting::Terminate => policy.on_violation = cofferdam_policy::OnViolation::Terminate,
                Setting::Trace => policy.audit.trace = true,
                Setting::Keep => {}
            }
        }
        policy.enforcement.best_effort = Field::ALL.iter().copied().filter(|f| !required.contains(f)).collect();
        policy
    }

    /// The user to become, when that is not whoever runs the suite.
    pub fn uid(&self) -> Option<u32> {
        self.uid
    }

    fn give(&self, path: &Path) -> Result<(), String> {
        match self.uid {
            Some(uid) => std::os::unix::fs::lchown(path, Some(uid), Some(uid))
                .map_err(|e| format!("cannot chown {}: {e}", path.display())),
            None => Ok(()),
        }
    }

    fn file(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.dir.join(name);
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        mode(&path, 0o666)?;
        self.give(&path)
    }

    fn files(&self) -> Result<(), String> {
        make_dir(&self.dir, 0o755)?;
        self.give(&self.dir)?;
        for name in ["out", "ro", "rw", "cow", "twin", "out/sub", "ro/sub", "rw/sub", "cow/sub", "rw/.git", "rw/plain"]
        {
            make_dir(&self.dir.join(name), 0o777)?;
            self.give(&self.dir.join(name))?;
        }
        for place in ["out", "ro", "rw", "cow"] {
            for name in ["victim", "sub/victim", ".bashrc"] {
                self.file(&format!("{place}/{name}"), ORIGINAL)?;
            }
            for name in ["secret", "sub/secret"] {
                self.file(&format!("{place}/{name}"), &format!("{}\n", self.secret))?;
            }
        }
        self.file("rw/.git/config", ORIGINAL)?;
        for name in ["stdin", "stdout", "stderr"] {
            self.file(name, KEEP)?;
        }
        std::os::unix::fs::symlink(self.dir.join("rw/secret"), self.dir.join("rw/shortcut")).map_err(|e| e.to_string())
    }

    fn victim(&mut self, victim: &Victim) -> Result<(), String> {
        let failed = |what: &str, e: std::io::Error| format!("cannot make the victim {what}: {e}");
        match *victim {
            Victim::Process => self.spawn_victim()?,
            Victim::Stream(name) => {
                let listener = match self.fill(name).strip_prefix('@') {
                    Some(name) => UnixListener::bind_addr(&abstract_name(name)?),
                    None => UnixListener::bind(self.fill(name)),
                }
                .map_err(|e| failed(name, e))?;
                self.open_to_all(name)?;
                listener.set_nonblocking(true).map_err(|e| failed(name, e))?;
                self.watch(move || match listener.accept() {
                    Ok((mut stream, _)) => read_some(&mut stream),
                    Err(_) => Vec::new(),
                });
            }
            Victim::Dgram(name) => {
                let socket = match self.fill(name).strip_prefix('@') {
                    Some(name) => UnixDatagram::bind_addr(&abstract_name(name)?),
                    None => UnixDatagram::bind(self.fill(name)),
                }
                .map_err(|e| failed(name, e))?;
                self.open_to_all(name)?;
                socket.set_nonblocking(true).map_err(|e| failed(name, e))?;
                self.watch(move || {
                    let mut buffer = [0; 256];
                    socket.recv(&mut buffer).map(|n| buffer[..n].to_vec()).unwrap_or_default()
                });
            }
            Victim::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| failed("listener", e))?;
                self.port = listener.local_addr().map_err(|e| failed("listener", e))?.port();
                listener.set_nonblocking(true).map_err(|e| failed("listener", e))?;
                self.watch(move || match listener.accept() {
                    Ok((mut stream, _)) => {
                        if stream
                            .set_nonblocking(false)
                            .and(stream.set_read_timeout(Some(Duration::from_millis(500))))
                            .is_err()
                        {
                            return Vec::new();
                        }
                        read_some(&mut stream)
                    }
                    Err(_) => Vec::new(),
                });
            }
            Victim::Udp => {
                let socket = UdpSocket::bind("127.0.0.1:0").map_err(|e| failed("socket", e))?;
                self.port = socket.local_addr().map_err(|e| failed("socket", e))?.port();
                socket.set_nonblocking(true).map_err(|e| failed("socket", e))?;
                self.watch(move || {
                    let mut buffer = [0; 256];
                    socket.recv(&mut buffer).map(|n| buffer[..n].to_vec()).unwrap_or_default()
                });
            }
            Victim::Dialer => {
                let probe = TcpListener::bind("127.0.0.1:0").map_err(|e| failed("port", e))?;
                self.port = probe.local_addr().map_err(|e| failed("port", e))?.port();
                let port = self.port;
                drop(probe);
                self.watch(move || match TcpStream::connect(("127.0.0.1", port)) {
                    Ok(mut stream) => {
                        if stream.set_read_timeout(Some(Duration::from_millis(500))).is_err() {
                            return Vec::new();
                        }
                        read_some(&mut stream)
                    }
                    Err(_) => Vec::new(),
                });
            }
            Victim::Fifo(name) => {
                let path = self.path(name);
                run("mkfifo", &["-m", "666", &path.display().to_string()])?;
                mode(&path, 0o666)?;
                self.give(&path)?;
                let mut reader = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .custom_flags(O_NONBLOCK)
                    .open(&path)
                    .map_err(|e| failed(name, e))?;
                self.watch(move || {
                    let mut buffer = [0; 256];
                    reader.read(&mut buffer).map(|n| buffer[..n].to_vec()).unwrap_or_default()
                });
            }
            Victim::Ipc => {
                self.ipc = true;
                self.outside(&["ipc-make", "{key}", "{secret}", "/{token}"])?;
            }
            Victim::PosixShm => {
                let path = PathBuf::from("/dev/shm").join(&self.token);
                fs::write(&path, &self.secret).map_err(|e| failed("in /dev/shm", e))?;
                mode(&path, 0o666)?;
                self.shm = Some(path);
            }
            Victim::Setuid | Victim::FileCaps => {
                let setuid = *victim == Victim::Setuid;
                let path = self.dir.join(if setuid { "out/suid" } else { "out/filecap" });
                // Not by this process: a child that another thread forks meanwhile would hold the file open for writing.
                run("cp", &[&self.host.attack.display().to_string(), &path.display().to_string()])?;
                mode(&path, if setuid { 0o4755 } else { 0o755 })?;
                if !setuid {
                    let line = [self.host.attack.display().to_string(), "filecap".into(), path.display().to_string()];
                    run(&line[0], &[&line[1], &line[2]])?;
                }
            }
            Victim::Node(name) => {
                let path = self.path(name);
                run("mknod", &["-m", "666", &path.display().to_string(), "c", self.device[0], self.device[1]])?;
                mode(&path, 0o666)?;
            }
            Victim::GroupFile => {
                self.file("out/group", &format!("{}\n", self.secret))?;
                let path = self.dir.join("out/group");
                std::os::unix::fs::chown(&path, Some(0), Some(4)).map_err(|e| failed("file of group 4", e))?;
                mode(&path, 0o640)?;
            }
            Victim::Lock(name) => {
                let file = File::open(self.path(name)).map_err(|e| failed(name, e))?;
                self.watch(move || match file.try_lock_shared() {
                    Err(TryLockError::WouldBlock) => TOKEN.into(),
                    Ok(()) => file.unlock().map(|()| Vec::new()).unwrap_or_default(),
                    Err(TryLockError::Error(_)) => Vec::new(),
                });
            }
            Victim::Handle(name) => self.handle = self.outside(&["handle", name])?.trim().to_owned(),
            Victim::Sandbox(_) => {} // the judge runs it beside the attack
        }
        Ok(())
    }

    /// Runs the attack program unconfined, as whoever runs the suite or as the case's user.
    fn outside(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.host.attack);
        command.arg("launch");
        if let Some(uid) = self.uid {
            command.args(["--uid", &uid.to_string()]);
        }
        command.arg("--").arg(&self.host.attack).args(args.iter().map(|a| self.fill(a)));
        let output = command.output().map_err(|e| format!("cannot run {}: {e}", args[0]))?;
        if !output.status.success() {
            return Err(format!("{} failed: {}", args[0], String::from_utf8_lossy(&output.stdout)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn spawn_victim(&mut self) -> Result<(), String> {
        let mut command = Command::new(&self.host.attack);
        command.arg("launch");
        if let Some(uid) = self.uid {
            command.args(["--uid", &uid.to_string()]);
        }
        command.args([
            "--",
            &self.host.attack.display().to_string(),
            "victim",
            &self.secret,
            &self.fill("{out}/secret"),
        ]);
        // Nothing else, so that one look shows it.
        command.env_clear().env("COFFERDAM_VICTIM", &self.secret).current_dir(self.dir.join("out"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start the victim process: {e}"))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(|e| format!("the victim process says nothing: {e}"))?;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        self.process = Some(child);
        match words[..] {
            ["READY", _, address] => self.address = address.into(),
            _ => return Err(format!("the victim process says `{line}`")),
        }
        self.steering = self.steering_now();
        Ok(())
    }

    fn open_to_all(&self, name: &str) -> Result<(), String> {
        let path = self.fill(name);
        if path.starts_with('@') { Ok(()) } else { mode(Path::new(&path), 0o777) }
    }

    fn watch(&mut self, mut step: impl FnMut() -> Vec<u8> + Send + 'static) {
        let (received, stop) = (Arc::clone(&self.received), Arc::clone(&self.stop));
        self.watchers.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let got = step();
                if got.is_empty() {
                    thread::sleep(Duration::from_millis(4));
                } else {
                    received.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&got);
                }
            }
        }));
    }
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for watcher in self.watchers.drain(..) {
            if watcher.join().is_err() {
                eprintln!("a watcher of {} panicked", self.dir.display());
            }
        }
        if let Some(mut child) = self.process.take()
            && child.kill().and_then(|()| child.wait()).is_err()
        {
            eprintln!("cannot end the victim process {}", child.id());
        }
        if self.ipc
            && let Err(error) = self.outside(&["ipc-remove", "{key}", "/{token}"])
        {
            eprintln!("{error}");
        }
        if let Some(path) = &self.shm
            && let Err(error) = fs::remove_file(path)
        {
            eprintln!("cannot remove {}: {error}", path.display());
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

fn abstract_name(name: &str) -> Result<SocketAddr, String> {
    SocketAddr::from_abstract_name(name).map_err(|e| format!("bad abstract name {name}: {e}"))
}

fn read_some(stream: &mut impl Read) -> Vec<u8> {
    let mut buffer = [0; 256];
    for _ in 0..50 {
        match stream.read(&mut buffer) {
            Ok(n) => return buffer[..n].to_vec(),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
    Vec::new()
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|e| format!("cannot run {program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// A block device of the host that root can open, for attacks that would read it: the root's own, or a loop device.
fn disk() -> String {
    let device = fs::metadata("/").map(|m| m.dev()).unwrap_or(0);
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
    let named = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let name = named.lines().find_map(|l| l.strip_prefix("DEVNAME=")).unwrap_or("sda");
    let own = format!("/dev/{name}");
    if File::open(&own).is_ok() { own } else { "/dev/loop0".into() }
}

/// Opens the file behind one of the caller's streams; output goes after what is there already.
///
/// # Errors
/// Names the file.
pub fn stream(case: &Case<'_>, name: &str) -> Result<File, String> {
    let path = case.dir.join(name);
    let opened = if name == "stdin" {
        File::open(&path)
    } else {
        OpenOptions::new().write(true).truncate(true).open(&path).and_then(|mut file| {
            file.write_all(KEEP.as_bytes())?;
            Ok(file)
        })
    };
    opened.map_err(|e| format!("cannot open {}: {e}", path.display()))
}
