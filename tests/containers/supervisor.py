"""One container engine for tests: starts it, waits until it answers, and ends it when nobody needs it any more.

    supervisor.py DIRECTORY KIND UID GROUP LINGER     KIND is docker or podman, UID whose engine it is

Everything of the engine lies in DIRECTORY, which is the caller's own and removed at the end but for its locks:

    start       held exclusively by whoever starts or ends the engine
    holders     held shared by everybody who needs it; free for LINGER seconds, and the engine ends
    alive       held exclusively for as long as the engine is there
    e/          what the engine keeps, its configuration, `log`, and `socket`, which GROUP may use

The caller holds `start` and waits for this program's end: exit code 0 says that the engine answers, any other that it
does not, with its log on standard error. By then a second process has taken over, in a session and a mount namespace of
its own. It is the parent of all that the engine starts and loses, and a third process ends the engine should the second
be killed. Should both be killed, the next start ends what is left. It never touches an engine that is not in DIRECTORY."""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

NEWNS, MS_REC, MS_SLAVE, MNT_DETACH = 0x00020000, 0x4000, 0x80000, 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE = 40
MARK = "COFFERDAM_TEST_ENGINE"
libc = ctypes.CDLL(None, use_errno=True)


class Engine:
    def __init__(self, directory, kind, uid, group):
        self.directory, self.kind, self.uid, self.group = directory, kind, uid, group
        self.place = f"{directory}/e"
        self.socket = f"{self.place}/socket"
        self.log = f"{self.place}/log"
        self.cgroup = f"cofferdam-test-engine-{os.path.basename(os.path.dirname(directory))}-{kind}"
        self.daemon = None

    def prepare(self):
        remove(self.place)
        os.makedirs(self.place)
        # Others may reach the socket, which says itself who may use it.
        os.chmod(self.place, 0o711)
        if self.kind == "podman":
            self.configure_podman()
        else:
            with open(f"{self.place}/daemon.json", "w") as file:
                file.write("{}")  # not the machine's own settings
        if self.uid != os.getuid():
            os.chown(self.place, self.uid, self.uid)

    def configure_podman(self):
        place = self.place
        with open(f"{place}/containers.conf", "w") as file:
            # No engine's own limits of files and processes: raising them takes privileges that not every root has.
            # Other directories follow from the storage's: the process that podman starts when a container has ended is
            # told that by its options, but does not read this file.
            file.write(f"""[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "none"
lock_type = "file"
tmp_dir = "{place}/tmp"
[network]
network_config_dir = "{place}/net"
""")
        with open(f"{place}/storage.conf", "w") as file:
            # Without ids of his own a user cannot have the owners that an image says.
            ignore = 'ignore_chown_errors = "true"' if self.uid else ""
            file.write(f"""[storage]
driver = "overlay"
runroot = "{place}/run"
graphroot = "{place}/graph"
rootless_storage_path = "{place}/graph"
[storage.options.overlay]
{ignore}
""")
        with open(f"{place}/registries.conf", "w") as file:
            # Those of tests, on loopback and without TLS (registry.rs).
            for port in range(39417, 39433):
                file.write(f'[[registry]]\nlocation = "127.0.0.1:{port}"\ninsecure = true\n')
        os.mkdir(f"{place}/net")
        os.mkdir(f"{place}/runtime", 0o700)
        for name in ["net", "runtime"]:
            os.chown(f"{place}/{name}", self.uid, self.uid)

    def command(self):
        place = self.place
        if self.kind == "docker":
            return ["dockerd", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
                    "--userland-proxy=false", "--bridge=none", "--exec-opt", "native.cgroupdriver=cgroupfs",
                    "--cgroup-parent", f"/{self.cgroup}", "--data-root", f"{place}/data", "--exec-root", f"{place}/exec",
                    "--pidfile", f"{place}/pid", "--config-file", f"{place}/daemon.json", "--host", f"unix://{self.socket}"]
        return ["podman", "system", "service", "--time", "0", f"unix://{self.socket}"]

    def environment(self):
        """Nothing of the caller's, so that no setting of his reaches the engine."""
        variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", MARK: self.directory,
                     "HOME": self.place}
        if self.kind == "podman":
            variables |= {"CONTAINERS_CONF": f"{self.place}/containers.conf",
                          "CONTAINERS_STORAGE_CONF": f"{self.place}/storage.conf",
                          "CONTAINERS_REGISTRIES_CONF": f"{self.place}/registries.conf",
                          "XDG_RUNTIME_DIR": f"{self.place}/runtime", "TMPDIR": self.place}
        return variables

    def start(self):
        self.prepare()
        if os.getuid() == 0:
            # Its mounts are nobody else's; those that the host makes later are still seen.
            check(libc.unshare(NEWNS), "unshare")
            check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "make mounts private")
            # What it stores goes when it ends: no container's start waits for a disk.
            for store in self.stores():
                os.mkdir(store, 0o700)
                options = f"mode=700,uid={self.uid},gid={self.uid},size=4g".encode()
                check(libc.mount(b"tmpfs", store.encode(), b"tmpfs", 0, options), f"mount {store}")

        def become():
            os.setsid()
            check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
            if self.uid != os.getuid():
                os.setgroups([])
                os.setresgid(self.uid, self.uid, self.uid)
                os.setresuid(self.uid, self.uid, self.uid)
                check(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")

        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                           env=self.environment(), preexec_fn=become)
        since = time.monotonic()
        while not self.answers():
            if self.daemon.poll() is not None:
                raise RuntimeError(f"{self.command()[0]} ended with {self.daemon.returncode}")
            if time.monotonic() - since > PATIENCE:
                raise RuntimeError(f"{self.command()[0]} does not answer within {PATIENCE} seconds")
            time.sleep(0.03)
        if os.getuid() == 0:
            os.chown(self.socket, self.uid, self.group)
            os.chmod(self.socket, 0o660)

    def stores(self):
        """The directories that are in memory where the engine has mounts of its own."""
        return [f"{self.place}/{name}" for name in (["data"] if self.kind == "docker" else ["graph", "run"])]

    def answers(self):
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(self.socket)
                client.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
                return b" 200 " in client.recv(4096).split(b"\r\n")[0]
        except OSError:
            return False

    def end(self):
        """Asks it to end, ends what is left of it, and removes everything but the log and the locks."""
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(8)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        for _ in range(100):
            left = self.processes()
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            reap()
            time.sleep(0.02)
        self.remove_cgroups()
        if os.getuid() == 0:
            for store in self.stores():
                libc.umount2(store.encode(), MNT_DETACH)
        for _ in range(20):
            remove(self.place)
            if not os.path.exists(self.place):
                break
            time.sleep(0.05)

    def processes(self):
        """What belongs to the engine: marked by its environment or command line or cgroup, and all that descend of it."""
        parents, ours, watchers = {}, set(), {os.getpid(), os.getppid()}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            pid = int(name)
            try:
                with open(f"/proc/{pid}/stat", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
                state, parents[pid] = fields[0], int(fields[1])
                if state == "Z" or pid in watchers:
                    continue
                program = read(f"/proc/{pid}/comm").strip()
                named = program in (b"conmon", b"runc", b"podman", b"dockerd") or program.startswith(b"containerd")
                lines = read(f"/proc/{pid}/cmdline") if named else b""
                if (f"{MARK}={self.directory}\0".encode() in read(f"/proc/{pid}/environ") + b"\0"
                        or f"{self.place}/".encode() in lines
                        or f":/{self.cgroup}/".encode() in read(f"/proc/{pid}/cgroup")):
                    ours.add(pid)
            except (OSError, IndexError):
                continue
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in ours and pid not in ours and pid not in watchers}
            ours |= more
            grown = bool(more)
        return ours

    def remove_cgroups(self):
        for root in ["/sys/fs/cgroup"] + [f"/sys/fs/cgroup/{name}" for name in os.listdir("/sys/fs/cgroup")]:
            # The engine's own parent is shared with every podman: it goes when it is empty.
            for parent in [f"{root}/{self.cgroup}"] + ([f"{root}/libpod_parent"] if self.kind == "podman" else []):
                if not os.path.isdir(parent) or os.getuid() != 0:
                    continue
                if parent.endswith(self.cgroup):
                    for below, _, _ in os.walk(parent, topdown=False):
                        quietly(os.rmdir, below)
                quietly(os.rmdir, parent)


def remove(place):
    """All of it; overlay file systems leave directories that their own owner may not enter."""
    for below, directories, _ in os.walk(place):
        for name in directories:
            if not os.path.islink(f"{below}/{name}"):
                quietly(os.chmod, f"{below}/{name}", 0o700)
    shutil.rmtree(place, ignore_errors=True)


def quietly(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        pass


def read(path):
    with open(path, "rb") as file:
        return file.read()


def check(result, what):
    if result:
        raise OSError(ctypes.get_errno(), what)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def take(path, how):
    """The lock, or None when somebody holds it."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, how | fcntl.LOCK_NB)
        return held
    except BlockingIOError:
        os.close(held)
        return None


def serve(engine, linger, told):
    """The second process: the engine's parent, until nobody has needed it for a while."""
    os.setsid()
    check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1), "prctl")
    over = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: over.append(True))
    alive = take(f"{engine.directory}/alive", fcntl.LOCK_EX)
    if alive is None:
        raise RuntimeError("another supervisor is there already")
    engine.end()  # what a killed predecessor left
    # The third process learns by the end of this pipe that the second is gone.
    ends, ours = os.pipe()
    guarded = os.getpid()
    if os.fork() == 0:
        os.close(ours)
        os.close(told)
        os.setsid()
        guard(engine, ends, alive)
    os.close(ends)
    try:
        engine.start()
    except (OSError, RuntimeError) as error:
        log = read(engine.log).decode(errors="replace")[-6000:] if os.path.exists(engine.log) else ""
        os.write(told, f"{error}\n{log}".encode())
        os.close(told)
        engine.end()
        return
    os.write(told, b"ready")
    os.close(told)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    needed = time.monotonic()
    while True:
        time.sleep(0.25)
        gone = engine.daemon.poll() is not None or over
        starting = take(f"{engine.directory}/start", fcntl.LOCK_EX)
        if starting is None:
            needed = time.monotonic()
            continue
        free = take(f"{engine.directory}/holders", fcntl.LOCK_EX)
        if free is None:
            needed = time.monotonic()
        if gone or free is not None and time.monotonic() - needed > linger:
            # Whoever wants an engine now waits for `start`, and starts another.
            engine.end()
            return
        for held in (free, starting):
            if held is not None:
                os.close(held)
        reap_lost(engine)


def reap_lost(engine):
    """What the engine's processes left behind comes to us; the engine itself is waited for by its name."""
    try:
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == engine.daemon.pid:
                return
            os.waitpid(found.si_pid, os.WNOHANG)
    except ChildProcessError:
        pass


def guard(engine, ends, alive):
    """The third process: when the second is gone, however that came, it ends what is left."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.read(ends, 1)
    engine.end()
    os.close(alive)
    os._exit(0)


def main():
    directory, kind, uid, group, linger = sys.argv[1:]
    engine = Engine(directory, kind, int(uid), int(group))
    heard, told = os.pipe()
    if os.fork() == 0:
        os.close(heard)
        try:
            serve(engine, float(linger), told)
        except BaseException as error:  # the one who waits must hear of it
            quietly(os.write, told, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
        os._exit(0)
    os.close(told)
    heard = os.fdopen(heard, "rb").read()
    if heard == b"ready":
        return 0
    sys.stderr.write(heard.decode(errors="replace") or "the supervisor ended without a word\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
