# The agent of a Python session: reads requests from descriptor 3, runs each in one namespace, answers. The code that it
# runs shares its interpreter; processes that the code starts do not get the channel.
def _cofferdam():
    import sys
    path, sys.path = sys.path, [p for p in sys.path if p not in ("", ".")]  # our imports are the interpreter's own
    import io, json, os, signal, types
    import linecache, traceback, builtins
    sys.path = path
    channel = os.dup(3)  # a copy out of the way, which is close-on-exec
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 3, inheritable=False)
    me = os.getpid()
    pipes = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 3 and fd not in (channel, null):
            try:
                os.set_inheritable(fd, False)
                pipes.append(fd)
            except OSError:
                pass

    def forked():
        for fd in [channel] + pipes:
            try:
                os.close(fd)
            except OSError:
                pass

    os.register_at_fork(after_in_child=forked)

    def read(count):
        parts = []
        while count:
            part = os.read(channel, min(count, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def send(reply):
        body = json.dumps(reply).encode()
        rest = memoryview(len(body).to_bytes(4, "big") + body)
        while rest:
            rest = rest[os.write(channel, rest):]

    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    sys.argv = ["-c"]
    idle = lambda number, frame: None  # an interruption that comes when its call is over
    theirs = signal.default_int_handler
    signal.signal(signal.SIGINT, idle)

    def stream(fd, errors):
        raw = io.FileIO(fd, "w", closefd=False)
        line = fd == 2
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", errors, line_buffering=line, write_through=False)

    def show(error, name):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        if sys.excepthook is not sys.__excepthook__:
            return sys.excepthook(type(error), error, trace)
        traceback.print_exception(type(error), error, trace)

    def flush():
        for each in (sys.stdout, sys.stderr):
            try:
                each.flush()
            except Exception:
                pass

    def run(code, number):
        nonlocal theirs
        name = "<call %d>" % number
        # The place of the marks below a line is counted from lines that end.
        linecache.cache[name] = (len(code), None, (code + "\n").splitlines(True), name)
        linecache.cache.pop("<call %d>" % (number - 64), None)
        exit_code = 0
        try:
            try:
                signal.signal(signal.SIGINT, theirs)
                compiled = compile(code, name, "exec", dont_inherit=True)
                exec(compiled, main.__dict__)
            finally:
                theirs = signal.getsignal(signal.SIGINT)
                if theirs is None:
                    theirs = signal.default_int_handler
                signal.signal(signal.SIGINT, idle)
        except SystemExit as error:
            exit_code = error.code
            if exit_code is None:
                exit_code = 0
            elif not isinstance(exit_code, int):
                print(exit_code, file=sys.stderr)
                exit_code = 1
            exit_code &= 0xff
        except KeyboardInterrupt as error:
            exit_code = 130
            show(error, name)
        except BaseException as error:
            exit_code = 1
            try:
                show(error, name)
            except BaseException:
                pass
        finally:
            flush()
        if os.getpid() != me:
            os._exit(exit_code)  # a fork of the code's that came to its end
        return exit_code

    number = 0
    send({"type": "ready"})
    while True:
        request = json.loads(read(int.from_bytes(read(4), "big")))
        kind = request["type"]
        if kind == "ping":
            send({"type": "pong"})
        elif kind == "shutdown":
            return
        elif kind == "execute":
            number += 1
            for target, source in zip((1, 2), request["streams"]):
                fd = os.open("/proc/self/fd/%d" % source, os.O_WRONLY | os.O_CLOEXEC)
                os.dup2(fd, target)
                os.close(fd)
            sys.stdout, sys.stderr = stream(1, "backslashreplace"), stream(2, "backslashreplace")
            sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
            exit_code = run(request["code"], number)
            for target in (1, 2):
                os.dup2(null, target)
            send({"type": "result", "id": request["id"], "exit_code": exit_code})
        else:
            send({"type": "error", "message": "unknown request"})


_cofferdam()
