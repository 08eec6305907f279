"""Does what its arguments name, one after the other; an exception ends it. Prints `done` at the end."""
import os
import sys


def threads():
    import threading
    seen = []
    started = [threading.Thread(target=seen.append, args=(i,)) for i in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert sorted(seen) == list(range(8))


def files():
    import tempfile
    with tempfile.TemporaryDirectory() as directory:
        with open(directory + "/f", "w") as file:
            file.write("x")
        os.rename(directory + "/f", directory + "/g")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
    with tempfile.TemporaryFile() as file:
        file.write(b"x")


def fifo():
    import threading
    os.mkfifo("/tmp/fifo")
    writer = threading.Thread(target=lambda: open("/tmp/fifo", "w").write("through"))
    writer.start()
    assert open("/tmp/fifo").read() == "through"
    writer.join()


def devices():
    for name in ["/dev/null", "/dev/stderr"]:
        open(name, "w").close()
    open("/dev/stdout", "a").close()
    assert open("/dev/zero", "rb").read(3) == b"\0\0\0"
    assert len(open("/dev/urandom", "rb").read(4)) == 4
    with open("/dev/shm/x", "w") as file:
        file.write("x")


def modules():
    import bz2, ctypes, decimal, getpass, hashlib, lzma, mmap, pwd, random, ssl, uuid, zlib
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)(1) == 2
    mmap.mmap(-1, 4096)[0] = 1
    assert getpass.getuser() == "sandbox"
    assert pwd.getpwuid(os.getuid()).pw_uid == os.getuid()
    ssl.create_default_context()
    uuid.uuid4()


def database():
    import sqlite3
    database = sqlite3.connect("/tmp/wal.db")
    assert database.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    database.execute("create table t(a)")
    database.execute("insert into t values(1)")
    database.commit()
    assert sqlite3.connect("/tmp/wal.db").execute("select a from t").fetchone() == (1,)


def signals():
    import signal
    import time
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append("usr1"))
    signal.signal(signal.SIGALRM, lambda *_: seen.append("alarm"))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    end = time.monotonic() + 5
    while len(seen) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert seen == ["usr1", "alarm"], seen


def subprocesses():
    import subprocess
    assert subprocess.run(["/bin/echo", "hi"], capture_output=True, check=True).stdout == b"hi\n"
    assert subprocess.check_output("echo a | tr a b", shell=True) == b"b\n"
    child = os.fork()
    if child == 0:
        os._exit(3)
    assert os.waitpid(child, 0)[1] >> 8 == 3


def terminals():
    import pty
    child, terminal = pty.fork()
    if child == 0:
        os.execv("/bin/echo", ["echo", "pty"])
    assert os.read(terminal, 100) == b"pty\r\n"
    os.waitpid(child, 0)


def multiprocessing():
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import shared_memory
    for method in ["fork", "spawn"]:
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=queue.put, args=(5,))
    process.start()
    assert queue.get() == 5
    process.join()
    shared = shared_memory.SharedMemory(create=True, size=4096)
    shared.buf[0] = 7
    shared.close()
    shared.unlink()
    with ProcessPoolExecutor(2) as pool:
        assert list(pool.map(abs, [-1, -2])) == [1, 2]


def forkserver():
    import multiprocessing
    with multiprocessing.get_context("forkserver").Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]


def event_loop():
    import asyncio

    async def main():
        await asyncio.gather(*[asyncio.sleep(0.001) for _ in range(10)])
        return await asyncio.to_thread(lambda: 6 * 7)

    assert asyncio.run(main()) == 42


def event_loop_children():
    import asyncio

    async def main():
        child = await asyncio.create_subprocess_exec("/bin/echo", "x", stdout=asyncio.subprocess.PIPE)
        return (await child.communicate())[0]

    assert asyncio.run(main()) == b"x\n"


def virtual_environment():
    import subprocess
    import venv
    venv.create("/tmp/venv", with_pip=False, symlinks=True)
    asked = [os.path.realpath("/tmp") + "/venv/bin/python", "-c", "import sys; print(sys.prefix)"]
    assert subprocess.check_output(asked) == b"/tmp/venv\n"


def loopback():
    import socket
    import threading
    server = socket.create_server(("127.0.0.1", 0))
    answer = threading.Thread(target=lambda: server.accept()[0].sendall(b"hey"))
    answer.start()
    assert socket.create_connection(server.getsockname()).recv(3) == b"hey"
    answer.join()
    assert socket.gethostbyname("localhost") == "127.0.0.1"


def no_children():
    import subprocess
    for start in [lambda: subprocess.run(["/bin/true"]), os.fork, lambda: os.execv("/bin/true", ["true"])]:
        try:
            start()
        except PermissionError:
            continue
        raise AssertionError("a child process was started")


def directory():
    import shutil
    os.makedirs("a/b")
    with open("a/b/c", "w") as file:
        file.write("1")
    shutil.copytree("a", "a2")
    shutil.make_archive("archive", "gztar", "a")
    shutil.rmtree("a2")
    os.symlink("a", "link")
    os.link("a/b/c", "hard")
    os.replace("hard", "a/b/c")
    os.chmod("a/b/c", 0o600)
    assert oct(os.stat("a/b/c").st_mode)[-3:] == "600"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
    print("done")
