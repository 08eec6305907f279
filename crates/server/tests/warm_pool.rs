//! Interpreters started before their call: code does the same in one as in an interpreter that is started with the code.

mod common;

use common::{Client, Home, text, until};
use serde_json::{Value, json};

/// The debug log line of a call that used an interpreter started before it.
const WARM: &str = "a run used an interpreter that was started before it";

/// A server whose calls use waiting interpreters, except the first, and one whose calls never do.
fn warm_and_cold(home: &Home) -> [Client; 2] {
    let mut warm = home.client(json!({ "verbose": true }));
    let cold = home.client(json!({ "verbose": true, "early": 0 }));
    warm.run("python", "pass");
    [warm, cold]
}

/// The number of calls that used a waiting interpreter.
fn warm_calls(client: Client) -> usize {
    let (code, log) = client.leave();
    assert_eq!(code, Some(0), "{log}");
    log.matches(WARM).count()
}

/// The part of an outcome that depends only on the code and its limits.
fn comparable(result: &Value) -> Value {
    let outcome = &result["structuredContent"];
    let of = |name: &str| match outcome[name].as_str() {
        Some(text) => without_addresses(text).into(),
        None => outcome[name].clone(),
    };
    let names = ["outcome", "exit_code", "signal", "stdout", "stderr", "truncated", "limit", "artifacts", "violations"];
    let mut fields: Vec<Value> = names.iter().map(|name| of(name)).collect();
    // The address of the complete output is unique.
    if let Some(note) = fields[5]["note"].as_str() {
        fields[5]["note"] = note.rsplit_once(" at ").map_or(note, |(rest, _)| rest).into();
    }
    fields.extend([of("enforcement"), of("backend"), of("changes"), result["isError"].clone()]);
    fields.extend(result["content"].as_array().unwrap().iter().map(|block| block["type"].clone()));
    fields.into()
}

/// Asserts that both are equal, and shows the first difference.
fn assert_same(code: &str, one: &Value, other: &Value) {
    let short = |value: &Value| value.to_string().chars().take(2000).collect::<String>();
    let (one, other) = (one.as_array().unwrap(), other.as_array().unwrap());
    for (of, (a, b)) in one.iter().zip(other).enumerate() {
        assert!(a == b, "{code}, {of}:\n{}\n{}", short(a), short(b));
    }
    assert_eq!(one.len(), other.len(), "{code}");
}

/// The text without memory addresses, which differ each time.
fn without_addresses(text: &str) -> String {
    let mut pieces = text.split(" at 0x");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + " at " + piece.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

/// Code, and what it must print.
const PYTHON: &[(&str, &str)] = &[
    ("print(6*7)", "42"),
    ("", ""),
    ("print('\u{e9}', ascii('\u{e9}\u{1f600}'), len('\u{1f600}'))", "\\U0001f600"),
    ("# -*- coding: latin-1 -*-\nprint(ascii('\u{e9}'))", "e9'"),
    // Errors, with the names and lines that they show.
    ("def f(x):\n    return 1 / x\n\nf(0)", "File \"<string>\", line 4, in <module>\n"),
    ("x = (", "SyntaxError"),
    ("  x = 1", "IndentationError"),
    ("def f():\nreturn", "File \"<string>\", line 2"),
    ("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('b') from e", "direct cause"),
    ("try:\n    1/0\nexcept Exception:\n    raise ValueError('b')", "During handling"),
    ("import traceback\ntry:\n    1/0\nexcept Exception:\n    traceback.print_exc()", "line 3, in <module>"),
    ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "<exception str() failed>"),
    ("exec('1/0')", "ZeroDivisionError"),
    ("import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[2].tb_lineno, a[2].tb_next)\n1/0", "hook"),
    ("import threading\ndef w(): 1/0\nt = threading.Thread(target=w); t.start(); t.join()", "Exception in thread"),
    ("import warnings; warnings.warn('careful')", "UserWarning: careful"),
    ("import gc\nclass A:\n    def __del__(self): 1/0\nA(); gc.collect()", "Exception ignored"),
    // Exits.
    ("import sys; sys.exit(3)", ""),
    ("import sys; sys.exit('bye')", "bye"),
    ("raise SystemExit", ""),
    ("import os; os._exit(4)", ""),
    ("import os; print('lost'); os._exit(0)", ""),
    ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('on')", ""),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ""),
    ("import signal; print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))", "default_int_handler"),
    ("import atexit; atexit.register(print, 'end'); print('a'); 1/0", "end"),
    (
        "import threading, time\ndef w():\n    time.sleep(0.3); print('thread')\nthreading.Thread(target=w).start()",
        "thread",
    ),
    ("import sys; sys.stdout.write('no newline'); sys.stderr.write('error'); 1/0", "no newline"),
    ("import os\npid = os.fork()\nif pid == 0: raise ValueError('child')\nos.wait(); print('parent')", "parent"),
    (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout)",
        "5",
    ),
    // The code's surroundings.
    ("import sys; print(sys.argv, sorted(sys.modules), sys.path, sys.flags)", "['-c']"),
    ("import sys; print(len(sys.orig_argv), sys.orig_argv[1:])", "orig_argv"),
    ("print(sorted(globals()), dir(), __name__, __doc__, __spec__, __loader__, __builtins__)", "__main__"),
    ("import __main__; print(sorted(vars(__main__)), __main__.__dict__ is globals())", "True"),
    ("if __name__ == '__main__': print('main')", "main"),
    ("import os; print(sorted(os.environ.items()), os.getcwd(), os.listdir('.'), os.listdir('/tmp'))", "/workspace"),
    ("import os; print(sorted(os.listdir('/proc/self/fd')))", "'2'"),
    ("import os; print(os.getpid() != 1, os.getppid(), os.getpgid(0) == os.getpid(), os.umask(0))", "True"),
    ("import resource as r; print([r.getrlimit(i) for i in range(16)])", "("),
    (
        "import os, stat\nfor fd in range(3): s = os.fstat(fd); print(stat.S_ISFIFO(s.st_mode), s.st_uid, oct(s.st_mode))",
        "True",
    ),
    ("import sys; print(sys.stdin.isatty(), sys.stdin.encoding, sys.stdout.encoding, sys.stderr.errors)", "utf-8"),
    ("import sys; print(repr(sys.stdin.read()), sys.stdin.closed)", "'' False"),
    ("input()", "EOFError"),
    ("from __future__ import annotations\ndef f(x: y) -> z: pass\nprint(f.__annotations__)", "'y'"),
    ("def f(x: int): pass\nprint(f.__annotations__, f.__module__, f.__code__.co_filename)", "<string>"),
    ("import inspect\ndef f(): pass\nprint(inspect.getsource(f))", ""),
    (
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    m.set_start_method('fork')\n    with m.Pool(2) as p: print(p.map(f, [1, 2, 3]))",
        "[1, 4, 9]",
    ),
    ("import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A)) is A)", "True"),
    ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 3\nprint(P())", "P(x=3)"),
    (
        "exec = compile = globals = None\ne = 5\nimport atexit; atexit.register(lambda: print(e))\nraise OSError(2, 'x')",
        "5",
    ),
    ("import asyncio\nasync def f(): await asyncio.sleep(0.01); return 7\nprint(asyncio.run(f()))", "7"),
    // Refused operations.
    ("open('/etc/x', 'w')", "Read-only file system"),
    ("open('/etc/shadow')", "Error"),
    ("import socket; socket.create_connection(('1.1.1.1', 80), 1)", "Error"),
    ("import socket; socket.socket(socket.AF_UNIX)", "Error"),
    ("print('x' * 3_000_000)", "xxx"),
    ("import sys; sys.stderr.write('e' * 200_000)", "eee"),
    // No descriptor leads to a channel.
    (
        "import os\nfor fd in range(3, 40):\n    try: os.write(fd, b'\\0\\0\\0\\x10{\"type\":\"ready\"}')\n    except OSError: pass\nprint('wrote')",
        "wrote",
    ),
    ("import os; os.closerange(3, 100); os.close(0); print('closed')", "closed"),
    ("import os; os.close(1); os.close(2); raise ValueError", ""),
    ("open('/workspace/output/a.json', 'w').write('{}'); open('output/b.txt', 'w').write('b')", ""),
];

#[test]
fn python_code_does_the_same_in_a_waiting_interpreter() {
    let home = Home::new();
    let [mut warm, mut cold] = warm_and_cold(&home);
    for (code, prints) in PYTHON {
        let (one, other) = (warm.run("python", code), cold.run("python", code));
        assert_same(code, &comparable(&one), &comparable(&other));
        let outcome = &one["structuredContent"];
        let printed = format!("{}{}", outcome["stdout"].as_str().unwrap(), outcome["stderr"].as_str().unwrap());
        assert!(printed.contains(prints), "{code}: {printed}");
        assert!(outcome["execution_time_ms"].as_f64().unwrap() > 0.0, "{outcome}");
    }
    assert_eq!((warm_calls(warm), warm_calls(cold)), (PYTHON.len(), 0));
}

/// Code for node, and what it must print.
const NODE: &[(&str, &str)] = &[
    ("console.log(6*7)", "42"),
    ("", ""),
    ("console.log('\u{e9}\u{1f600}'.length)", "3"),
    ("throw new Error('mine')", "Error: mine\n    at [eval]:1:7\n"),
    ("const a = 1;\nfunction f() { null.x }\nf()", "at f ([eval]:2:21)\n    at [eval]:3:1\n"),
    ("x = (", "SyntaxError: Unexpected end of input"),
    ("return 5", "SyntaxError: Illegal return statement"),
    ("Promise.reject(new Error('r'))", "Error: r"),
    ("throw 5", "throw 5"),
    ("process.exit(3)", ""),
    ("process.exitCode = 4", ""),
    ("process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 5000)", ""),
    ("process.kill(process.pid, 'SIGKILL')", ""),
    ("process.on('exit', c => console.log('exit', c)); setTimeout(() => console.log('later'), 50)", "later\nexit 0"),
    ("process.on('uncaughtException', e => console.log('caught', e.message)); null.x", "caught"),
    (
        "process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('then'));\n\
         setTimeout(() => console.log('timeout'), 20); console.log('main')",
        "main\ntick\nthen\ntimeout",
    ),
    (
        "console.log(process.argv.length, process.execArgv, __filename, __dirname, module.id, module.paths, require.main)",
        "[eval]",
    ),
    (
        "console.log(Object.getOwnPropertyNames(globalThis).sort().join(), typeof fs.readFileSync, path.sep)",
        "function /",
    ),
    (
        "let x = 1; var y = 2; console.log(globalThis.y, globalThis.x, this === globalThis, (function () { return this === globalThis })())",
        "2 undefined true true",
    ),
    ("console.log(require('fs').readFileSync(0).length, require('fs').readdirSync('/proc/self/fd').length)", "0 "),
    ("process.stdin.on('data', d => console.log(d)).on('end', () => console.log('end'))", "end"),
    ("console.log(require('child_process').execSync('echo hi').toString())", "hi"),
    (
        "const { Worker } = require('worker_threads'); new Worker('require(\"worker_threads\").parentPort.postMessage(1)', \
         { eval: true }).on('message', console.log)",
        "1",
    ),
    ("fs.writeFileSync('/workspace/output/a.json', '{}'); console.log(process.cwd(), process.env)", "/workspace"),
    ("fs.writeFileSync('/etc/x', '')", "EROFS"),
    ("console.log('x'.repeat(300000))", "xxx"),
    ("const interface = 1; console.log(interface)", "1"),
];

/// Code that node may take for a module, which never uses a waiting interpreter.
const MODULES: &[(&str, &str)] = &[
    ("import('fs').then(m => console.log(typeof m.readFileSync))", "function"),
    ("console.log('important')", "important"),
];

#[test]
fn node_code_does_the_same_in_a_waiting_interpreter() {
    let home = Home::new();
    let mut warm = home.client(json!({ "verbose": true }));
    let mut cold = home.client(json!({ "early": 0 }));
    warm.run("node", "1");
    // The stack frames below the code's own are node's, and depend on how it was started.
    let own = |mut fields: Value| {
        for stream in [3, 4] {
            let below = ["(node:", "at node:", "cofferdam:early", "[eval]-wrapper"];
            let lines = fields[stream].as_str().unwrap().lines();
            fields[stream] =
                lines.filter(|line| !below.iter().any(|of| line.contains(of))).collect::<Vec<_>>().join("\n").into();
        }
        fields
    };
    for (code, prints) in NODE.iter().chain(MODULES) {
        let (one, other) = (warm.run("node", code), cold.run("node", code));
        assert_same(code, &own(comparable(&one)), &own(comparable(&other)));
        let outcome = &one["structuredContent"];
        let printed = format!("{}{}", outcome["stdout"].as_str().unwrap(), outcome["stderr"].as_str().unwrap());
        assert!(printed.contains(prints), "{code}: {printed}");
    }
    assert_eq!(warm_calls(warm), NODE.len());
}

#[test]
fn only_stack_depth_and_command_line_differ() {
    let home = Home::new();
    let [mut warm, mut cold] = warm_and_cold(&home);
    // There is one more frame below the code's own.
    let frames = "import sys, inspect; print(sys._getframe().f_back is None, len(inspect.stack()))";
    assert_eq!(text(&warm.run("python", frames)), "False 2\n");
    assert_eq!(text(&cold.run("python", frames)), "True 1\n");
    // The process's command line does not contain the code.
    let line = "print('MARK' in open('/proc/self/cmdline').read())  # MARK";
    assert_eq!(text(&warm.run("python", line)), "False\n");
    assert_eq!(text(&cold.run("python", line)), "True\n");
    // The recursion limit is reached up to two calls earlier.
    let deep = "n = 0\ndef f():\n    global n\n    n += 1\n    f()\ntry: f()\nexcept RecursionError: print(n)";
    let count = |result: &Value| text(result).trim().parse::<i64>().unwrap();
    let (one, other) = (count(&warm.run("python", deep)), count(&cold.run("python", deep)));
    assert!((1..=2).contains(&(other - one)), "{one} {other}");
    assert_eq!(warm_calls(warm), 3);
}

#[test]
fn no_state_passes_from_one_call_to_the_next() {
    let home = Home::new();
    let [mut warm, _cold] = warm_and_cold(&home);
    let secret = "import os, builtins, sys, tempfile\nbuiltins.secret = sys.secret = 'SECRET'\nos.environ['SECRET'] = '1'\n\
                  for place in ('/workspace', '/workspace/output', '/tmp', '/dev/shm', '/var/tmp', '/run'):\n    \
                  try: open(place + '/SECRET', 'w').write('x')\n    except OSError: pass\n\
                  if os.fork() == 0:\n    while True: pass\nprint(open('/proc/sys/kernel/random/boot_id').read())";
    let look = "import os, builtins, sys\nprint(hasattr(builtins, 'secret'), hasattr(sys, 'secret'), 'SECRET' in os.environ)\n\
                for place in ('/workspace', '/workspace/output', '/tmp', '/dev/shm', '/var/tmp', '/run'):\n    \
                print('SECRET' in os.listdir(place))\n\
                print([p for p in os.listdir('/proc') if p.isdigit()].__len__(), os.path.exists('/proc/3'))\n\
                print(open('/proc/sys/kernel/random/boot_id').read())";
    let mut ids = Vec::new();
    for _ in 0..3 {
        let left = warm.run("python", secret);
        assert_eq!(left["isError"], json!(false), "{left}");
        ids.push(text(&left).trim().to_owned());
        let found = warm.run("python", look);
        let lines: Vec<&str> = text(&found).lines().collect();
        assert_eq!(lines[0], "False False False", "{found}");
        assert!(lines[1..7].iter().all(|line| *line == "False"), "{found}");
        assert_eq!(lines[7], "1 False", "its own process alone: {found}");
        ids.push(lines[8].to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "each call has a sandbox of its own");
    assert_eq!(warm_calls(warm), 6);
}

#[test]
fn each_call_has_its_own_limits() {
    let home = Home::new();
    home.configure("[environments.python]\npreset = \"python\"\ntimeout_seconds = 1\n");
    let [mut warm, _cold] = warm_and_cold(&home);
    std::thread::sleep(std::time::Duration::from_millis(1500)); // the time limit does not include waiting
    assert_eq!(text(&warm.run("python", "import time; time.sleep(0.6); print('slept')")), "slept\n");
    let late = warm.run("python", "print('begun', flush=True)\nimport time; time.sleep(30)");
    let outcome = &late["structuredContent"];
    assert_eq!((&outcome["outcome"], &outcome["limit"]), (&json!("timed_out"), &json!("limits.wall_ms")), "{late}");
    assert_eq!(outcome["stdout"], "begun\n");
    let took = outcome["execution_time_ms"].as_f64().unwrap();
    assert!((1000.0..3000.0).contains(&took), "{late}");
    let large = warm.run("python", "x = b'x' * 3_000_000_000; print(len(x))");
    assert!(large["isError"] == true && !text(&large).contains("3000000000"), "{large}");
    // A fork bomb stays within its limits.
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let bombed = warm.run("python", bomb);
    assert_eq!(bombed["isError"], json!(true), "{bombed}");
    assert!(bombed["structuredContent"]["pid_count"].as_u64().is_none_or(|count| count <= 600), "{bombed}");
    assert_eq!(text(&warm.run("python", "print('well')")), "well\n");
    assert_eq!(warm_calls(warm), 5);
}

#[test]
fn cancelled_call_ends_with_its_tree_after_progress() {
    let home = Home::new();
    let [mut warm, _cold] = warm_and_cold(&home);
    let arguments =
        json!({ "env": "python", "code": "import os, time\nos.fork()\nprint('begun', flush=True)\ntime.sleep(60)" });
    let id =
        warm.ask("tools/call", json!({ "name": "run", "arguments": arguments, "_meta": { "progressToken": "p" } }));
    let progress = warm.find("progress", |message| message["method"] == "notifications/progress");
    assert!(progress["params"]["message"].as_str().unwrap().contains("begun"), "{progress}");
    warm.notify("notifications/cancelled", json!({ "requestId": id }));
    let server = warm.child.id();
    // No process below the server sleeps any more: an interpreter that waits for the next call reads, and does not sleep.
    let sleeps = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let parent = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit(") ").next()?.split(' ').nth(1)?.parse::<u32>().ok()
        };
        let below = |mut pid: u32| loop {
            match parent(pid) {
                Some(up) if up == server => return true,
                Some(up) if up > 1 => pid = up,
                _ => return false,
            }
        };
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|&pid| below(pid))
            .filter(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|on| on.contains("nanosleep"))
            })
            .count()
    };
    until("the tree to be dead", || sleeps() == 0);
    assert_eq!(text(&warm.run("python", "print('next')")), "next\n");
    assert!(warm_calls(warm) >= 1, "the cancelled call used one; the next one may have come before there was another");
}

/// The server's child processes.
fn children(client: &Client) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", client.child.id())).unwrap().flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

#[test]
fn changed_definition_discards_waiting_interpreters() {
    let home = Home::new();
    let define = |seconds: u32| {
        home.configure(&format!("[environments.mine]\npreset = \"python\"\ntimeout_seconds = {seconds}\n"));
    };
    define(1);
    let mut client = home.client(json!({ "verbose": true }));
    let is_changed = |message: &Value| message["method"] == "notifications/tools/list_changed";
    assert_eq!(text(&client.run("mine", "print(1)")), "1\n");
    until("one to wait", || !children(&client).is_empty());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let waiting = children(&client);
    define(20);
    client.find("list_changed", is_changed);
    until("it to end", || !children(&client).iter().any(|child| waiting.contains(child)));
    let sleeps = |seconds: &str| format!("import time; time.sleep({seconds}); print('slept')");
    assert_eq!(text(&client.run("mine", &sleeps("1.5"))), "slept\n", "it has the new limit");
    define(1);
    client.find("list_changed", is_changed);
    let late = client.run("mine", &sleeps("15"));
    assert_eq!(late["structuredContent"]["outcome"], "timed_out", "it has the new limit: {late}");
}

#[test]
fn concurrent_calls_are_answered_and_one_is_warm() {
    let home = Home::new();
    let [mut warm, _cold] = warm_and_cold(&home);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let ids: Vec<u64> = (0..16).map(|i| warm.begin("python", &format!("print({i} * 7)"))).collect();
    for (i, id) in ids.into_iter().enumerate() {
        let answer = warm.answer(id);
        assert_eq!(text(&answer["result"]), format!("{}\n", i * 7), "{answer}");
    }
    assert_eq!(warm_calls(warm), 1, "none is started while others run");
}
