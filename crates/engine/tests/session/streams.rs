//! What comes out of a call, and what does not.

use std::sync::{Arc, Mutex};

use cofferdam_engine::Stream;

use super::state::each;
use super::*;

#[test]
fn the_streams_of_a_call_come_apart_and_whole() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let code = match l.agent {
            Agent::Python => "import sys, os\nprint('x' * 300000)\nos.write(2, b'e\\xff\\n')",
            Agent::Node => "console.log('x'.repeat(300000)); require('fs').writeSync(2, Buffer.from([101, 255, 10]))",
            _ => "printf 'x%.0s' {1..300000}; echo; printf 'e\\xff\\n' >&2",
        };
        let answer = desk.run(l, "a", code);
        assert_eq!(answer.stdout, "x".repeat(300_000) + "\n", "{l:?}");
        assert_eq!((answer.stderr.as_str(), answer.exit_code), ("e\u{fffd}\n", Some(0)), "{l:?}");
        assert!(!answer.truncated.stdout && !answer.truncated.stderr);
    });
}

#[test]
fn what_an_earlier_call_left_running_prints_into_no_later_answer() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let (leave, later) = match l.agent {
            Agent::Python => (
                "import subprocess\np = subprocess.Popen(['/bin/sh', '-c', 'while :; do echo LATE; echo LATE >&2; sleep 0.01; done'])",
                "import time; time.sleep(0.3); print(p.poll())",
            ),
            Agent::Node => (
                "const p = require('child_process').spawn('/bin/sh', ['-c', 'while :; do echo LATE; echo LATE >&2; sleep 0.01; done'], { stdio: 'inherit', detached: true }); p.unref(); 0",
                "setTimeout(() => console.log(p.exitCode === null ? 'None' : p.exitCode), 300)",
            ),
            _ => (
                "(while :; do echo LATE; echo LATE >&2; sleep 0.01; done) & p=$!",
                "sleep 0.3; kill -0 $p && echo None",
            ),
        };
        assert!(desk.run(l, "a", leave).success(), "{l:?}");
        for _ in 0..2 {
            let answer = desk.run(l, "a", later);
            assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("None\n", ""), "{l:?} {answer:?}");
        }
    });
}

#[test]
fn pipes_that_are_all_held_are_reported_and_come_back() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        for _ in 0..8 {
            desk.out(l, "a", "sleep 1000 & p+=($!)");
        }
        let error = desk.ask(l, "a", call("echo no")).unwrap_err();
        assert!(matches!(error, SessionError::Held), "{error:?}");
        assert!(error.to_string().contains("hint:"), "{error}");
        assert!(desk.ask(l, "a", call("echo no")).is_err(), "the session is as it was");
        assert_eq!(desk.sessions.list().len(), 1);
    });
}

#[test]
fn output_beyond_the_cap_is_dropped_and_reported() {
    each(&[PYTHON, SHELL], SessionLimits::default(), |desk, l| {
        let code = match l.agent {
            Agent::Python => "import sys\nfor _ in range(400): sys.stdout.write('y' * 65536)\nx = 7",
            _ => "head -c 26214400 /dev/zero | tr '\\0' y; x=7",
        };
        let answer = desk.run(l, "a", code);
        assert!(answer.success() && answer.truncated.stdout && !answer.truncated.stderr, "{l:?}");
        let most = Policy::base().limits.output_bytes;
        assert_eq!(answer.stdout.len() as u64, most);
        let x = if l.agent == Agent::Python { "print(x)" } else { "echo $x" };
        assert_eq!(desk.out(l, "a", x), "7\n");
    });
}

#[test]
fn output_streams_as_it_comes_and_a_gone_reader_blocks_nothing() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let taking = seen.clone();
        let output = Output::Stream(Box::new(move |which, bytes| {
            taking.lock().unwrap().push((which, bytes.to_vec()));
            Ok(bytes.len())
        }));
        let code = "import sys, time\nprint('one', flush=True); time.sleep(0.2); print('two', file=sys.stderr)";
        let answer = desk.ask(l, "a", SessionCall { output, ..call(code) }).unwrap();
        assert!(answer.success() && answer.stdout.is_empty(), "{answer:?}");
        let told = [(Stream::Stdout, b"one\n".to_vec()), (Stream::Stderr, b"two\n".to_vec())];
        assert_eq!(*seen.lock().unwrap(), told);
        let output = Output::Stream(Box::new(|_, _| Err(std::io::Error::other("gone"))));
        let code = "import sys\nsys.stdout.write('z' * 1000000)\ny = 1";
        assert!(desk.ask(l, "a", SessionCall { output, ..call(code) }).unwrap().success());
        assert_eq!(desk.out(l, "a", "print(y)"), "1\n");
    });
}

#[test]
fn code_of_any_kind_is_run_or_refused_and_the_session_lives_on() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let (say, comment) = match l.agent {
            Agent::Python => ("print('\u{e9}\\t\"')", "#"),
            Agent::Node => ("console.log('\u{e9}\\t\"')", "//"),
            _ => ("printf '\u{e9}\\t\"\\n'", "#"),
        };
        let long = format!("{comment}{}\n{say}", "\u{e9}".repeat(2 << 20));
        assert_eq!(desk.out(l, "a", &long), "\u{e9}\t\"\n", "{l:?}");
        assert_eq!(desk.out(l, "a", ""), "");
        let too_long = format!("{comment}{}", "x".repeat(64 << 20));
        let refused = desk.ask(l, "a", call(&too_long)).unwrap_err();
        assert!(matches!(refused, SessionError::Code(_)), "{l:?} {refused:?}");
        match (l.agent, desk.ask(l, "a", call(&format!("{say}\0")))) {
            (Agent::Shell, Err(SessionError::Code(why))) => assert!(why.contains("NUL"), "{why}"),
            (_, Ok(answer)) => assert_eq!((answer.exit_code, answer.ended.is_none()), (Some(1), true), "{answer:?}"),
            (_, other) => panic!("{l:?} {other:?}"),
        }
        assert_eq!(desk.out(l, "a", say), "\u{e9}\t\"\n");
    });
}

#[test]
fn errors_are_shown_as_the_interpreter_shows_them() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let (code, shown): (_, &[&str]) = match l.agent {
            Agent::Python => {
                ("def f():\n    return 1 / 0\nf()", &["line 3, in <module>", "return 1 / 0", "ZeroDivisionError: "])
            }
            Agent::Node => ("function f() { throw new RangeError('far') }\nf()", &["RangeError: far", "call 1:2"]),
            _ => ("nonexistent_program", &["nonexistent_program: command not found"]),
        };
        let answer = desk.run(l, "a", code);
        assert_eq!(answer.exit_code, Some(if l.agent == Agent::Shell { 127 } else { 1 }));
        assert!(shown.iter().all(|part| answer.stderr.contains(part)), "{answer:?}");
        assert!(!["_cofferdam", "[eval]", "node:vm"].iter().any(|ours| answer.stderr.contains(ours)), "{answer:?}");
        assert_eq!((answer.stdout.as_str(), answer.ended.is_none()), ("", true));
    });
}

#[test]
fn python_marks_what_failed_in_a_last_line_that_does_not_end() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let told = desk.run(l, "a", "x = 1 / 0").stderr;
        let lines: Vec<&str> = told.lines().collect();
        let at = lines.iter().position(|line| line.contains("x = 1 / 0")).unwrap_or_else(|| panic!("{told}"));
        // Before 3.11 there are no marks.
        if let Some(mark) = lines[at + 1].find("~~^~~") {
            assert_eq!(Some(mark), lines[at].find("1 / 0"), "{told}");
        }
    });
}

#[test]
fn python_reads_no_input_and_exits_with_what_it_says() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        assert!(desk.run(l, "a", "input()").stderr.contains("EOFError"));
        for (code, exit, said) in [
            ("import sys; sys.exit(6)", 6, ""),
            ("raise SystemExit", 0, ""),
            ("import sys; sys.exit('why')", 1, "why\n"),
            ("import sys; sys.stdout.close()", 0, ""),
            ("import os; os.close(1); os.close(2)", 0, ""),
            ("raise KeyboardInterrupt", 130, ""),
        ] {
            let answer = desk.run(l, "a", code);
            assert_eq!(answer.exit_code, Some(exit), "{code}: {answer:?}");
            assert!(answer.stderr.starts_with(said) && answer.ended.is_none(), "{code}: {answer:?}");
        }
        assert_eq!(
            desk.out(
                l,
                "a",
                "import threading\nt = threading.Thread(target=print, args=('in a thread',)); t.start(); t.join()"
            ),
            "in a thread\n"
        );
        assert_eq!(desk.out(l, "a", "import multiprocessing as m\nc = m.get_context('fork')\na, b = c.Pipe()\np = c.Process(target=lambda: b.send(3)); p.start(); print(a.recv()); p.join()"), "3\n");
    });
}

#[test]
fn node_waits_for_what_it_started_and_reports_rejections() {
    each(&[NODE], SessionLimits::default(), |desk, l| {
        let rejected = desk.run(l, "a", "Promise.reject(new Error('why'))");
        assert_eq!((rejected.exit_code, rejected.ended.is_none()), (Some(1), true), "{rejected:?}");
        assert!(rejected.stderr.contains("Error: why"), "{rejected:?}");
        let awaited = desk.run(l, "a", "await Promise.reject(new Error('that'))");
        assert!(awaited.exit_code == Some(1) && awaited.stderr.contains("Error: that"), "{awaited:?}");
        let thrown = desk.run(l, "a", "setTimeout(() => { throw new Error('late') }, 10)");
        assert!(thrown.exit_code == Some(1) && thrown.stderr.contains("Error: late"), "{thrown:?}");
        let never = desk.run(l, "a", "await new Promise(() => {})");
        assert!(never.exit_code == Some(13) && never.ended.is_none(), "{never:?}");
        assert_eq!(desk.run(l, "a", "process.exitCode = 4").exit_code, Some(4));
        assert_eq!(desk.out(l, "a", "console.log((await import('node:path')).sep)"), "/\n");
        assert_eq!(desk.out(l, "a", "import('node:path').then(m => console.log(m.sep)); var imported = 1"), "/\n");
        assert_eq!(desk.out(l, "a", "console.log(imported)"), "1\n");
        assert_eq!(
            desk.out(l, "a", "console.log(require('child_process').execSync('echo child').toString())"),
            "child\n\n"
        );
    });
}

#[test]
fn nodes_streams_are_what_programs_take_them_for() {
    each(&[NODE], SessionLimits::default(), |desk, l| {
        for (code, said) in [
            (
                "console.log(process.stdout.write(''), process.stdout.isTTY, process.stdout.columns)",
                "true undefined undefined\n",
            ),
            ("console.log(process.stdout instanceof require('stream').Writable, process.stdout.fd)", "true 1\n"),
            ("process.stdout.write('a', () => process.stdout.write('b', 'utf8', () => console.log('c')))", "abc\n"),
            ("process.stdout.write('6869', 'hex'); process.stdout.write(new Uint8Array([33, 10]))", "hi!\n"),
            ("try { process.stdout.write(null) } catch (e) { console.log(e.code) }", "ERR_STREAM_NULL_VALUES\n"),
            ("try { process.stdout.write(1) } catch (e) { console.log(e.code) }", "ERR_INVALID_ARG_TYPE\n"),
            ("require('stream').Readable.from(['p', 'q\\n']).pipe(process.stdout)", "pq\n"),
            ("await require('stream/promises').pipeline(['p', 'q\\n'], process.stdout); console.log('r')", "pq\nr\n"),
            ("process.stdout.end('z\\n', () => console.log('ended'))", "z\nended\n"),
            ("new console.Console(process.stdout).log('own')", "own\n"),
            ("require('child_process').execFileSync('/bin/echo', ['kid'], { stdio: 'inherit' })", "kid\n"),
            ("require('child_process').spawnSync('/bin/echo', ['kid'], { stdio: [0, process.stdout, 2] }); 0", "kid\n"),
            (
                "const w = process.stdout.write; process.stdout.write = () => true; console.log('lost'); process.stdout.write = w; 0",
                "",
            ),
            ("console.log((await import('node:process')).stdout === process.stdout)", "true\n"),
            ("console.log(require('process').stdout === process.stdout, process.stdin.isTTY)", "true undefined\n"),
            (
                "new (require('worker_threads').Worker)('console.log(\"in a worker\")', { eval: true }); 0",
                "in a worker\n",
            ),
            ("setTimeout(console.log, 1, 't')", "t\n"),
            ("setImmediate(console.log, 'i')", "i\n"),
            ("await require('util').promisify(setTimeout)(1); console.log(setTimeout.name)", "setTimeout\n"),
        ] {
            assert_eq!(desk.out(l, "a", code), said, "{code}");
        }
        // Descriptors that a child has set not to wait lose nothing.
        let code = "require('child_process').execFileSync(process.execPath, ['-e', 'process.stdout.write(\"\")'], { stdio: 'inherit' }); process.stdout.write('y'.repeat(3000000))";
        assert_eq!(desk.out(l, "a", code).len(), 3_000_000);
        // Gone ones are an error of the stream's, which the console ignores.
        let closed = "require('fs').closeSync(1); process.stdout.once('error', (e) => console.error(e.code)); console.log('no'); process.stdout.write('no')";
        let answer = desk.run(l, "a", closed);
        assert!(answer.ended.is_none() && answer.stderr.contains("EBADF"), "{answer:?}");
        assert_eq!(desk.out(l, "a", "console.log('again')"), "again\n");
    });
}
