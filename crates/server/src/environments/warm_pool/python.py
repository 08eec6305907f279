# Run by a Python that is started before its call: it reads the code from standard input to the end, and then runs it as `-c`
# would. None of this appears in the code's namespace or in its tracebacks; the code has one more frame below its own.
class once(object):
    def __enter__(self):
        import sys, posix
        self.sys, self.own = sys, (sys._getframe(1).f_code, type(self).__call__.__code__)
        parts = []
        while not parts or parts[-1]:
            parts.append(posix.read(0, 1 << 20))
        self.code = b"".join(parts)
        return self
    def __call__(self):
        sys, code = self.sys, self.code + b"\n"
        # From 3.10 on `-c` does not look for a declared encoding, which text has none of.
        if sys.version_info >= (3, 10):
            code = code.decode(sys.getfilesystemencoding(), "surrogateescape")
        if sys.version_info >= (3, 14) and code.lstrip("\n")[:1] in (" ", "\t"):
            import textwrap
            code = textwrap.dedent(code)
        if hasattr(sys, "orig_argv"):  # from 3.10 on
            sys.orig_argv[-1] = code[:-1]
        compiled = compile(code, "<string>", "exec", 0, True)
        lines = sys.modules.get("linecache")
        if sys.version_info >= (3, 13) and lines is not None and hasattr(lines, "_register_code"):
            lines._register_code(compiled if hasattr(lines, "_interactive_cache") else "<string>", code[:-1], "<string>")
        return compiled
    def __exit__(self, kind, error, trace):
        sys, own = self.sys, self.own
        if kind is None or issubclass(kind, SystemExit):
            return
        hook = sys.excepthook
        def shown(kind, error, trace):
            sys.excepthook = hook
            while trace is not None and trace.tb_frame.f_code in own:
                trace = trace.tb_next
            error.__traceback__ = sys.last_traceback = trace
            hook(kind, error, trace)
        sys.excepthook = shown
with once() as once:
    exec(globals().pop("once")())
