//! What reaches the channel: the interpreter, and nothing that it starts. Each attempt has a twin that is answered.

use cofferdam_engine::session::Why;

use super::state::each;
use super::*;

/// A reply as an agent writes it, with an id that nobody has asked for, in Python.
const FRAME: &str = r#"
import json, os
body = json.dumps({"type": "result", "id": "0" * 32, "exit_code": 42}).encode()
frame = len(body).to_bytes(4, "big") + body
def everywhere(fds):
    wrote = 0
    for fd in fds:
        try:
            if os.readlink(f"/proc/self/fd/{fd}") == "/dev/null":
                continue
            wrote += os.write(fd, frame) == len(frame)
        except OSError:
            pass
    return wrote
"#;

fn python(desk: &Desk, attempt: &str) -> SessionAnswer {
    desk.run(PYTHON, "a", FRAME);
    desk.run(PYTHON, "a", attempt)
}

#[test]
fn programs_that_the_code_starts_have_no_channel() {
    each(&[PYTHON], SessionLimits::default(), |desk, _| {
        let attempt = "import subprocess, sys\ncode = FRAME + '\\nprint(sorted(int(f) for f in os.listdir(\"/proc/self/fd\"))[3:], everywhere(range(3, 256)))'\nprint(subprocess.run([sys.executable, '-c', code], close_fds=False, capture_output=True, text=True))";
        let attempt = format!("FRAME = {FRAME:?}\n{attempt}");
        let answer = python(desk, &attempt);
        // The one descriptor is the directory that it reads.
        assert!(answer.success() && answer.stdout.contains("stdout='[3] 0\\n'"), "{answer:?}");
    });
    each(&[NODE, SHELL], SessionLimits::default(), |desk, l| {
        let probe = "for i in 3 4 10 11 16 17 18 19 20 21 22 30 31 32 33 34 63; do (echo x >&$i) 2>/dev/null && echo WROTE $i; done; ls /proc/self/fd | wc -l; exit 0";
        let code = match l.agent {
            Agent::Node => {
                format!("process.stdout.write(require('child_process').execFileSync('/bin/bash', ['-c', {probe:?}]))")
            }
            _ => format!("bash -c '{probe}'"),
        };
        let answer = desk.run(l, "a", &code);
        assert!(answer.success() && !answer.stdout.contains("WROTE"), "{l:?} {answer:?}");
        let counts: Vec<&str> = answer.stdout.lines().collect();
        assert!(!counts.is_empty() && counts.iter().all(|n| n.trim() == "4" || n.trim() == "3"), "{l:?} {answer:?}");
    });
}

#[test]
fn a_fork_of_the_interpreter_has_no_channel_either() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let attempt = "r, w = os.pipe()\nif os.fork() == 0:\n    os.write(w, str(everywhere(f for f in range(3, 64) if f != w)).encode())\n    os._exit(0)\nos.wait(); print(os.read(r, 9)); os.close(r); os.close(w)";
        assert_eq!(python(desk, attempt).stdout, "b'0'\n");
        // One that comes to the end of the code is no second agent.
        assert!(desk.run(l, "a", "pid = os.fork()").success());
        assert_eq!(desk.out(l, "a", "print(os.waitpid(pid, 0)[1])"), "0\n");
    });
}

#[test]
fn a_process_cloned_without_the_interpreter_is_distinguished() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let attempt = "import ctypes, time\nlibc = ctypes.CDLL(None)\npid = libc.fork()\nif pid == 0:\n    everywhere(range(3, 64))\n    os._exit(0)\ntime.sleep(20)";
        let answer = python(desk, attempt);
        let ended = answer.ended.unwrap();
        assert!(matches!(ended.why, Why::Forged(_)), "{ended:?}");
        assert_eq!(answer.exit_code, None);
        // The same process, and it writes nothing.
        let twin = "import ctypes\nlibc = ctypes.CDLL(None)\npid = libc.fork()\nif pid == 0:\n    os._exit(0)\nprint(os.waitpid(pid, 0)[1])";
        assert_eq!(python(desk, twin).stdout, "0\n");
        // Between two calls it is found before the next one is asked.
        let later = "pid = libc.fork()\nif pid == 0:\n    time.sleep(0.1); everywhere(range(3, 64)); time.sleep(20)\n    os._exit(0)";
        assert!(desk.run(l, "a", &format!("import time\n{later}")).success());
        std::thread::sleep(Duration::from_millis(2000));
        let error = desk.ask(l, "a", call("print(1)")).unwrap_err();
        assert!(
            matches!(&error, SessionError::Ended { ended, .. } if matches!(ended.why, Why::Forged(_))),
            "{error:?}"
        );
    });
}

#[test]
fn a_subshell_is_distinguished_from_its_shell() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        assert_eq!(desk.out(l, "a", "(echo in a subshell); x=$(echo 1); echo $x"), "in a subshell\n1\n");
        let answer = desk.run(l, "a", "(for i in {3..63}; do echo x >&$i; done) 2>/dev/null; sleep 5; echo AFTER");
        assert!(matches!(answer.ended.unwrap().why, Why::Forged(_)));
        assert!(!answer.stdout.contains("AFTER"));
    });
}

#[test]
fn an_answer_without_a_question_is_no_answer() {
    each(&[PYTHON], SessionLimits::default(), |desk, _| {
        // The interpreter itself: what it writes is its own, and is dropped where the id is another's.
        let answer = python(desk, "print(everywhere(range(3, 64)) > 0)");
        assert!(answer.success() && answer.stdout == "True\n", "{answer:?}");
        assert_eq!(desk.out(PYTHON, "a", "print('mine')"), "mine\n");
        let flood = python(desk, "while True: everywhere(range(3, 64))");
        assert!(matches!(flood.ended.unwrap().why, Why::Protocol(_)));
        let garbage =
            python(desk, "for f in range(3, 64):\n    try: os.write(f, b'\\xff' * 9)\n    except OSError: pass");
        assert!(matches!(garbage.ended.unwrap().why, Why::Protocol(_)));
    });
}

#[test]
fn an_interpreter_that_closes_its_channel_is_ended() {
    each(&[PYTHON], SessionLimits::default(), |desk, _| {
        let code = "import socket, time\nfor f in range(3, 64):\n    try: socket.socket(fileno=f).shutdown(socket.SHUT_RDWR)\n    except OSError: pass\ntime.sleep(60)";
        let ended = python(desk, code).ended.unwrap();
        assert!(matches!(&ended.why, Why::Protocol(why) if why.contains("closed")), "{ended:?}");
        let ended = python(desk, "os.closerange(3, 256)").ended.unwrap();
        assert_eq!(ended.why, Why::Exited(1));
    });
}

#[test]
fn neither_ptrace_nor_proc_leads_to_the_channel() {
    each(&[PYTHON], SessionLimits::default(), |desk, _| {
        let attempt = r#"
import subprocess, sys
code = '''
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
p = os.getppid()
def told(r): return "no" if r < 0 else "YES"
print("ptrace", told(libc.ptrace(16, p, None, None)))
print("mem", end=" ")
try:
    open(f"/proc/{p}/mem", "r+b"); print("YES")
except OSError: print("no")
pidfd = libc.syscall(434, p, 0)
print("getfd", told(max((libc.syscall(438, pidfd, n, 0) for n in range(3, 64)), default=-1)))
opened = []
for n in os.listdir(f"/proc/{p}/fd"):
    try:
        if "socket" in os.readlink(f"/proc/{p}/fd/{n}"):
            os.open(f"/proc/{p}/fd/{n}", os.O_RDWR); opened.append(n)
    except OSError: pass
print("fd", opened)
print("twin", open(f"/proc/{p}/comm").read().strip())
'''
print(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout, end="")
"#;
        let answer = python(desk, attempt);
        let said: Vec<&str> = answer.stdout.lines().collect();
        assert_eq!(said[..4], ["ptrace no", "mem no", "getfd no", "fd []"], "{:?} {answer:?}", desk.backend);
        assert!(said[4].starts_with("twin python"), "{answer:?}");
    });
}

#[test]
fn without_a_filter_there_is_no_session() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let start = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            policy.process.seccomp.level = cofferdam_policy::SeccompLevel::Disabled;
            Ok(SessionStart { policy, agent: l.agent, hands_over: None, recorded: None })
        };
        let error = desk.sessions.call(&key("a"), "test", start, call("")).unwrap_err();
        assert!(
            matches!(&error, SessionError::Start { failure, .. } if failure.step.as_str() == "process.seccomp.level"),
            "{error}"
        );
        let nested = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            policy.process.nested_sandboxes = true;
            Ok(SessionStart { policy, agent: l.agent, hands_over: None, recorded: None })
        };
        let error = desk.sessions.call(&key("a"), "test", nested, call("")).unwrap_err();
        assert!(
            matches!(&error, SessionError::Start { failure, .. } if failure.step.as_str() == "process.nested_sandboxes"),
            "{error:?}"
        );
        assert!(desk.sessions.list().is_empty());
        desk.out(l, "a", "");
    });
}
