//! The table: every program, how it is called, and at which level it works. Data only.

use crate::program::Expect::{Refused, Works};
use crate::program::{Before, EVERYWHERE, Expect, Group, Program, not_strict};

const ROW: Program = Program {
    group: Group::Shell,
    name: "",
    what: "",
    needs: &[],
    before: Before::Nothing,
    call: &[],
    dialog: &[],
    prints: "done\n",
    at: EVERYWHERE,
};

/// `strict` and a mount that can be written contradict each other: the policy is refused.
const WRITES: [Expect; 4] =
    not_strict("lets nothing be written but in tmpfs", "nothing outside of tmpfs can be written");
/// `strict` and a network, or path sockets, contradict each other: the policy is refused.
const NETWORK: [Expect; 4] = not_strict("lets no socket be made", "no socket can be made");
/// chmod and its kin are refused at run time.
const METADATA: [Expect; 4] = not_strict("Operation not permitted", "it changes modes or times");
/// What was linked cannot be made executable.
const LINKED: [Expect; 4] = not_strict("Permission denied", "the linker cannot make its output executable");

const PYTHON: Program = Program { group: Group::Python, needs: &["python3"], ..ROW };
const SYSTEM_PYTHON: Program = Program { group: Group::Python, needs: &["/usr/bin/python3"], ..ROW };
const NODE: Program = Program { group: Group::Node, needs: &["node"], ..ROW };
const SHELL: Program = Program { group: Group::Shell, needs: &["bash"], ..ROW };
const GIT: Program = Program { group: Group::Git, needs: &["git"], ..ROW };
const GCC: Program = Program { group: Group::C, needs: &["gcc"], prints: "42 1\n", ..ROW };
const CARGO: Program =
    Program { group: Group::Rust, needs: &["cargo", "rustc", "gcc"], before: Before::Crate, prints: "42\n", ..ROW };
const SQLITE: Program = Program { group: Group::Sqlite, needs: &["sqlite3"], ..ROW };
const TAR: Program = Program { group: Group::Tar, needs: &["tar", "gzip"], ..ROW };
const JAVA: Program = Program { group: Group::Java, needs: &["java", "javac"], prints: "42 1000\n", ..ROW };
const TERMINAL: Program = Program { group: Group::Terminal, needs: &["script"], ..ROW };

/// Every row, group by group.
pub const TABLE: &[Program] = &[
    Program {
        name: "core",
        what: "threads, files, devices, FIFOs, signals, sqlite3 with WAL, ssl, ctypes",
        call: &[
            "eval",
            "--file",
            "{scripts}/checks.py",
            "python",
            "--",
            "threads",
            "files",
            "devices",
            "fifo",
            "signals",
            "database",
            "modules",
        ],
        ..PYTHON
    },
    Program {
        name: "host-root",
        what: "the same, with the host's root view",
        call: &[
            "eval",
            "--root",
            "host",
            "--file",
            "{scripts}/checks.py",
            "python",
            "--",
            "threads",
            "files",
            "devices",
            "fifo",
            "signals",
            "database",
            "modules",
        ],
        ..PYTHON
    },
    Program {
        name: "system",
        what: "the same and children, in the system's own Python",
        call: &[
            "run",
            "/usr/bin/python3",
            "{scripts}/checks.py",
            "threads",
            "files",
            "devices",
            "fifo",
            "signals",
            "database",
            "modules",
            "subprocesses",
        ],
        ..SYSTEM_PYTHON
    },
    Program {
        name: "system-minimal",
        what: "the same, with the minimal root view",
        call: &[
            "run",
            "--root",
            "minimal",
            "-v",
            "{scripts}:/scripts",
            "/usr/bin/python3",
            "/scripts/checks.py",
            "threads",
            "files",
            "devices",
            "fifo",
            "signals",
            "database",
            "modules",
            "subprocesses",
        ],
        ..SYSTEM_PYTHON
    },
    Program {
        name: "children",
        what: "subprocess, os.fork, pty, multiprocessing by fork and spawn, shared memory",
        call: &[
            "eval",
            "--file",
            "{scripts}/checks.py",
            "python",
            "--",
            "subprocesses",
            "terminals",
            "multiprocessing",
        ],
        ..PYTHON
    },
    Program {
        name: "asyncio",
        what: "asyncio, with threads and children",
        call: &["eval", "--file", "{scripts}/checks.py", "python", "--", "event_loop", "event_loop_children"],
        ..PYTHON
    },
    Program {
        name: "forkserver",
        what: "multiprocessing by forkserver, with `--unix-sockets`",
        call: &["eval", "--unix-sockets", "--file", "{scripts}/checks.py", "python", "--", "forkserver"],
        at: NETWORK,
        ..PYTHON
    },
    Program {
        name: "venv",
        what: "makes a virtual environment and runs in it",
        call: &["eval", "--file", "{scripts}/checks.py", "python", "--", "virtual_environment"],
        at: METADATA,
        ..PYTHON
    },
    Program {
        name: "loopback",
        what: "a TCP server and its client, with `--network loopback`",
        call: &["eval", "--network", "loopback", "--file", "{scripts}/checks.py", "python", "--", "loopback"],
        at: NETWORK,
        ..PYTHON
    },
    Program {
        name: "no-spawn",
        what: "threads and no children, with `--no-spawn`",
        call: &["eval", "--no-spawn", "--file", "{scripts}/checks.py", "python", "--", "threads", "no_children"],
        ..PYTHON
    },
    Program {
        name: "rw",
        what: "trees, archives, links and modes in a writable volume",
        call: &["run", "-v", ".:.:rw", "/usr/bin/python3", "{scripts}/checks.py", "directory"],
        at: WRITES,
        ..SYSTEM_PYTHON
    },
    Program {
        name: "cow",
        what: "the same in a copy-on-write volume",
        call: &["run", "-v", ".:.:cow", "/usr/bin/python3", "{scripts}/checks.py", "directory"],
        at: WRITES,
        ..SYSTEM_PYTHON
    },
    Program {
        name: "core",
        what: "files, crypto, zlib, WebAssembly, worker_threads",
        call: &["eval", "--file", "{scripts}/checks.js", "node", "--", "files", "modules", "workers"],
        ..NODE
    },
    Program {
        name: "host-root",
        what: "the same, with the host's root view",
        call: &["run", "node", "{scripts}/checks.js", "files", "modules", "workers"],
        ..NODE
    },
    Program {
        name: "children",
        what: "child_process: exec, spawn, fork with messages",
        call: &["eval", "--file", "{scripts}/checks.js", "node", "--", "children", "messages"],
        ..NODE
    },
    Program {
        name: "copies",
        what: "copyFile and chmod",
        call: &["eval", "--file", "{scripts}/checks.js", "node", "--", "copies"],
        at: not_strict("EPERM", "it changes modes or times"),
        ..NODE
    },
    Program {
        name: "http",
        what: "an HTTP server and its client, with `--network loopback`",
        call: &["eval", "--network", "loopback", "--file", "{scripts}/checks.js", "node", "--", "web"],
        at: NETWORK,
        ..NODE
    },
    Program {
        name: "path-socket",
        what: "a path socket, with `--unix-sockets`",
        call: &["eval", "--unix-sockets", "--file", "{scripts}/checks.js", "node", "--", "path_socket"],
        at: NETWORK,
        ..NODE
    },
    Program {
        name: "no-spawn",
        what: "workers and no children, with `--no-spawn`",
        call: &["eval", "--no-spawn", "--file", "{scripts}/checks.js", "node", "--", "workers", "no_children"],
        ..NODE
    },
    Program {
        name: "tmp",
        what: "pipes, here-documents, coprocesses, /dev/stderr and its kin, FIFOs, jobs, files",
        call: &["run", "{scripts}/checks.sh", "/tmp", "plumbing", "devices", "fifos", "jobs_", "files"],
        ..SHELL
    },
    Program {
        name: "minimal",
        what: "the same, with the minimal root view",
        call: &[
            "eval",
            "--file",
            "{scripts}/checks.sh",
            "shell",
            "--",
            "/tmp",
            "plumbing",
            "devices",
            "fifos",
            "jobs_",
            "files",
        ],
        ..SHELL
    },
    Program {
        name: "metadata",
        what: "touch -d, chmod, cp -a, install",
        call: &["run", "{scripts}/checks.sh", "/tmp", "metadata"],
        at: METADATA,
        ..SHELL
    },
    Program {
        name: "rw",
        what: "all of that in a writable volume, with protected names beside it",
        call: &[
            "run",
            "-v",
            ".:.:rw",
            "{scripts}/checks.sh",
            "{dir}",
            "plumbing",
            "devices",
            "fifos",
            "jobs_",
            "files",
            "metadata",
            "interrupted",
            "guards",
        ],
        at: WRITES,
        ..SHELL
    },
    Program {
        name: "cow",
        what: "the same in a copy-on-write volume",
        call: &[
            "run",
            "-v",
            ".:.:cow",
            "{scripts}/checks.sh",
            "{dir}",
            "plumbing",
            "devices",
            "fifos",
            "jobs_",
            "files",
            "metadata",
            "interrupted",
            "guards",
        ],
        at: WRITES,
        ..SHELL
    },
    Program {
        name: "trace",
        what: "the same with `--trace`",
        call: &[
            "run",
            "--trace",
            "-v",
            ".:.:rw",
            "{scripts}/checks.sh",
            "{dir}",
            "plumbing",
            "devices",
            "fifos",
            "jobs_",
            "files",
            "metadata",
            "interrupted",
            "guards",
        ],
        at: WRITES,
        ..SHELL
    },
    Program {
        name: "scripts",
        what: "writes a script and runs it, in a volume with `,exec`",
        call: &["run", "-v", ".:.:rw,exec", "{scripts}/checks.sh", "{dir}", "script"],
        at: WRITES,
        ..SHELL
    },
    Program {
        name: "no-spawn",
        what: "a script's builtins, with `--no-spawn`",
        call: &["run", "--no-spawn", "{scripts}/checks.sh", "/tmp", "builtins"],
        ..SHELL
    },
    Program {
        name: "no-spawn-interpreter",
        what: "a script with an argument in its first line, with `--no-spawn`",
        before: Before::Scripts,
        call: &["run", "--no-spawn", "./script.sh", "end"],
        prints: "end of a script\n",
        ..SHELL
    },
    Program {
        name: "env-interpreter",
        what: "a script of `/usr/bin/env python3`",
        before: Before::Scripts,
        call: &["run", "./script.py"],
        prints: "of Python\n",
        ..SYSTEM_PYTHON_SCRIPT
    },
    Program {
        name: "no-spawn-env-interpreter",
        what: "the same with `--no-spawn`",
        before: Before::Scripts,
        call: &["run", "--no-spawn", "./script.py"],
        prints: "of Python\n",
        ..SYSTEM_PYTHON_SCRIPT
    },
    Program {
        name: "no-spawn-short",
        what: "a script of one line without its end, with `--no-spawn`",
        before: Before::Scripts,
        call: &["run", "--no-spawn", "./short.sh"],
        prints: "#!/bin/cat",
        ..SHELL
    },
    Program {
        name: "read",
        what: "status, log, diff, grep and blame of the working directory",
        before: Before::Repository,
        call: &["run", "{scripts}/checks.sh", "{dir}", "history"],
        ..GIT
    },
    Program {
        name: "tmp",
        what: "init, commit, branch, merge, worktree, gc, fsck, clone in /tmp",
        call: &[
            "run",
            "-e",
            "GIT_AUTHOR_NAME=a",
            "-e",
            "GIT_AUTHOR_EMAIL=a@example.org",
            "-e",
            "GIT_COMMITTER_NAME=a",
            "-e",
            "GIT_COMMITTER_EMAIL=a@example.org",
            "{scripts}/checks.sh",
            "/tmp",
            "repository",
        ],
        at: METADATA,
        ..GIT
    },
    Program {
        name: "new-rw",
        what: "the same below a writable volume, with guards",
        call: &[
            "run",
            "-v",
            ".:.:rw",
            "-e",
            "GIT_AUTHOR_NAME=a",
            "-e",
            "GIT_AUTHOR_EMAIL=a@example.org",
            "-e",
            "GIT_COMMITTER_NAME=a",
            "-e",
            "GIT_COMMITTER_EMAIL=a@example.org",
            "{scripts}/checks.sh",
            "{dir}",
            "repository",
        ],
        at: WRITES,
        ..GIT
    },
    Program {
        name: "rw",
        what: "commit and checkout in a repository mounted writable; its hooks and configuration are held",
        before: Before::Repository,
        call: &["run", "-v", ".:.:rw", "{scripts}/checks.sh", "{dir}", "commit"],
        at: WRITES,
        ..GIT
    },
    Program {
        name: "cow",
        what: "the same, mounted copy-on-write",
        before: Before::Repository,
        call: &["run", "-v", ".:.:cow", "{scripts}/checks.sh", "{dir}", "commit"],
        at: WRITES,
        ..GIT
    },
    Program {
        name: "init-in-place",
        what: "init at the top of a writable volume, where `.git/config` is protected",
        call: &["run", "-v", ".:.:rw", "git", "init", "."],
        at: [
            IN_PLACE,
            IN_PLACE,
            IN_PLACE,
            Refused { says: "lets nothing be written but in tmpfs", why: "nothing outside of tmpfs can be written" },
        ],
        ..GIT
    },
    Program {
        name: "objects",
        what: "compiles to an archive of objects in /tmp",
        call: &["run", "-e", "SCRIPTS={scripts}", "{scripts}/checks.sh", "/tmp", "objects"],
        prints: "done\n",
        ..GCC
    },
    Program {
        name: "tmpfs",
        what: "compiles, links and runs a program in a tmpfs with `,exec`",
        call: &[
            "run",
            "--tmpfs",
            "/build:size=64m,exec",
            "-e",
            "SCRIPTS={scripts}",
            "{scripts}/checks.sh",
            "/build",
            "compile",
        ],
        at: LINKED,
        ..GCC
    },
    Program {
        name: "minimal",
        what: "the same, with the minimal root view",
        call: &[
            "run",
            "--root",
            "minimal",
            "--tmpfs",
            "/build:size=64m,exec",
            "-v",
            "{scripts}:/scripts",
            "-e",
            "SCRIPTS=/scripts",
            "/scripts/checks.sh",
            "/build",
            "compile",
        ],
        at: LINKED,
        ..GCC
    },
    Program {
        name: "rw",
        what: "the same in a writable volume with `,exec`",
        call: &["run", "-v", ".:.:rw,exec", "-e", "SCRIPTS={scripts}", "{scripts}/checks.sh", "{dir}", "compile"],
        at: WRITES,
        ..GCC
    },
    Program {
        name: "cow",
        what: "the same in a copy-on-write volume with `,exec`",
        call: &["run", "-v", ".:.:cow,exec", "-e", "SCRIPTS={scripts}", "{scripts}/checks.sh", "{dir}", "compile"],
        at: WRITES,
        ..GCC
    },
    Program {
        name: "rw",
        what: "`cargo build --offline` and `cargo test` of a crate with a build script and a dependency",
        call: &[
            "run",
            "-v",
            ".:.:rw,exec",
            "-e",
            "PATH={rust}/bin:/usr/bin:/bin",
            "{scripts}/checks.sh",
            "{dir}",
            "crate",
        ],
        at: WRITES,
        ..CARGO
    },
    Program {
        name: "cow",
        what: "the same in a copy-on-write volume",
        call: &[
            "run",
            "-v",
            ".:.:cow,exec",
            "-e",
            "PATH={rust}/bin:/usr/bin:/bin",
            "{scripts}/checks.sh",
            "{dir}",
            "crate",
        ],
        at: WRITES,
        ..CARGO
    },
    Program {
        name: "tmpfs",
        what: "the same with its target directory in a tmpfs",
        call: &[
            "run",
            "-v",
            ".:/crate",
            "-w",
            "/build",
            "--tmpfs",
            "/build:size=128m,exec",
            "-e",
            "PATH={rust}/bin:/usr/bin:/bin",
            "-e",
            "CARGO_TARGET_DIR=/build/target",
            "bash",
            "-ec",
            "cp -r /crate crate; cd crate; cargo build --offline -q; ../target/debug/walled",
        ],
        ..CARGO
    },
    Program {
        name: "tmp",
        what: "a database with WAL, checkpoint, vacuum, dump, in /tmp",
        call: &["run", "{scripts}/checks.sh", "/tmp", "database"],
        ..SQLITE
    },
    Program {
        name: "rw",
        what: "the same in a writable volume",
        call: &["run", "-v", ".:.:rw", "{scripts}/checks.sh", "{dir}", "database"],
        at: WRITES,
        ..SQLITE
    },
    Program {
        name: "cow",
        what: "the same in a copy-on-write volume",
        call: &["run", "-v", ".:.:cow", "{scripts}/checks.sh", "{dir}", "database"],
        at: WRITES,
        ..SQLITE
    },
    Program {
        name: "tmp",
        what: "packs, lists and unpacks a tree with links, in /tmp",
        call: &["run", "{scripts}/checks.sh", "/tmp", "archive"],
        at: METADATA,
        ..TAR
    },
    Program {
        name: "touch",
        what: "packs and unpacks files with `--touch`",
        call: &["run", "{scripts}/checks.sh", "/tmp", "archive_without_metadata"],
        ..TAR
    },
    Program {
        name: "rw",
        what: "a tree with links in a writable volume",
        call: &["run", "-v", ".:.:rw", "{scripts}/checks.sh", "{dir}", "archive"],
        at: WRITES,
        ..TAR
    },
    Program {
        name: "cow",
        what: "the same in a copy-on-write volume",
        call: &["run", "-v", ".:.:cow", "{scripts}/checks.sh", "{dir}", "archive"],
        at: WRITES,
        ..TAR
    },
    Program {
        name: "tmp",
        what: "javac and java with threads, files and random numbers, in /tmp",
        call: &["run", "-e", "SCRIPTS={scripts}", "{scripts}/checks.sh", "/tmp", "java_"],
        ..JAVA
    },
    Program {
        name: "no-spawn",
        what: "java of a source file, with the minimal root view and `--no-spawn`",
        call: &["run", "--no-spawn", "--root", "minimal", "-v", "{scripts}:/scripts", "java", "/scripts/Hello.java"],
        ..JAVA
    },
    Program {
        name: "shell",
        what: "bash with job control and /dev/tty",
        call: &["eval", "-it", "shell"],
        dialog: &[
            ("$ ", "tty; echo A$((1+1))B\n"),
            ("/dev/pts/0\r\nA2B", ""),
            ("$ ", "echo T$((2+2))Y > /dev/tty\n"),
            ("T4Y", ""),
            ("$ ", "(trap 'echo caught $((3+3)); exit' INT; echo R$((4+4))S; sleep 20)\n"),
            ("R8S", "\u{3}"),
            ("caught 6", ""),
            ("$ ", "echo G$((5+5))O; cat\n"),
            ("G10O", "typed\n"),
            ("typed\r\ntyped", "\u{1a}"),
            ("Stopped", ""),
            ("$ ", "fg\n"),
            ("cat", "again\n"),
            ("again\r\nagain", "\u{3}"),
            ("$ ", "exit 0\n"),
        ],
        prints: "Stopped",
        ..TERMINAL
    },
    Program {
        name: "guards",
        what: "/dev/tty and the terminal by its name, beside a writable volume with protected names",
        call: &["run", "-it", "-v", ".:.:rw", "bash", "--norc"],
        dialog: &[
            ("$ ", "echo T$((2+2))Y > /dev/tty; echo N$((3+3))M > $(tty)\n"),
            ("T4Y\r\nN6M", ""),
            ("$ ", "script -qec 'echo I$((4+4))R > /dev/tty' /dev/null\n"),
            ("I8R", ""),
            ("$ ", "setsid --wait bash -c 'echo x > /dev/tty'; exit 0\n"),
        ],
        prints: "No such device or address",
        at: WRITES,
        ..TERMINAL
    },
    Program {
        name: "python",
        what: "the Python prompt",
        needs: &["script", "python3"],
        call: &["eval", "-it", "python"],
        dialog: &[(">>> ", "6 * 7\n"), ("42", "exit(0)\n")],
        prints: "42",
        ..TERMINAL
    },
    Program {
        name: "node",
        what: "the Node prompt",
        needs: &["script", "node"],
        call: &["eval", "-it", "node"],
        dialog: &[("> ", "6 * 7\n"), ("42", ".exit\n")],
        prints: "42",
        ..TERMINAL
    },
];

const SYSTEM_PYTHON_SCRIPT: Program = Program { group: Group::Shell, ..SYSTEM_PYTHON };
const IN_PLACE: Expect =
    Refused { says: "$.filesystem.protected", why: "`--protect` with a list of your own, or init in a new directory" };

/// Whether a row works somewhere, for the soundness of the table: rows that are refused everywhere are listed here.
pub fn may_work_nowhere(program: &Program) -> bool {
    program.name == "init-in-place" || program.at.contains(&Works)
}
