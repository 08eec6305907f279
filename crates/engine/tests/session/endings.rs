//! How calls and sessions end: interrupted, crashed, over their limits, idle, old, unwanted.

use std::time::Instant;

use cofferdam_engine::session::{SessionEnd, Why};

use super::state::each;
use super::*;

const SHORT: Duration = Duration::from_millis(300);

fn hurried(code: &str) -> SessionCall {
    SessionCall { timeout: SHORT, ..call(code) }
}

#[test]
fn a_call_that_is_interrupted_in_time_leaves_the_state_as_it_is() {
    // However busy the machine is.
    each(&[PYTHON, NODE], SessionLimits { grace: Duration::from_secs(20), ..SessionLimits::default() }, |desk, l| {
        let codes: &[&str] = match l.agent {
            Agent::Python => &[
                "x = 5\nwhile True: pass",
                "x = 5\nimport time; print('FIRST', flush=True); time.sleep(60)",
                "x = 5\nimport subprocess; subprocess.run(['/bin/sleep', '60'])",
            ],
            _ => &["var x = 5; while (true) {}", "var x = 5; require('child_process').execSync('sleep 60')"],
        };
        for code in codes {
            let answer = desk.ask(l, "a", hurried(code)).unwrap();
            assert_eq!(answer.interrupted, Some(Why::TimedOut), "{l:?} {code} {answer:?}");
            assert!(answer.ended.is_none() && answer.duration < Duration::from_secs(20), "{l:?} {code} {answer:?}");
            assert!(!answer.success());
            let print = if l.agent == Agent::Python { "print(x)" } else { "console.log(x)" };
            assert_eq!(desk.out(l, "a", print), "5\n");
        }
    });
}

/// Interrupts the code some way in, after another time in each round, and gives what came of it.
fn interrupted(desk: &Desk, l: Language, code: &str, round: u64) -> SessionAnswer {
    let timeout = Duration::from_millis(30) + Duration::from_micros(round * 700);
    let answer = desk.ask(l, "a", SessionCall { timeout, ..call(code) }).unwrap();
    assert_eq!(answer.interrupted, Some(Why::TimedOut), "{l:?} {code} {answer:?}");
    answer
}

#[test]
fn node_still_prints_after_an_interruption_of_what_prints() {
    let patient = SessionLimits { grace: Duration::from_secs(20), ..SessionLimits::default() };
    each(&[NODE], patient, |desk, l| {
        desk.out(l, "a", "var kept = process.stdout, { log } = console");
        for print in ["console.log('x')", "process.stdout.write('x'.repeat(9000))", "console.error('x')"] {
            let code = format!("for (;;) {print}");
            for round in 0..16 {
                let answer = interrupted(desk, l, &code, round);
                assert!(answer.ended.is_none(), "{code} {answer:?}");
                let code = "log('A'); kept.write('B\\n'); process.stdout.write('C\\n'); console.error('E')";
                let next = desk.run(l, "a", code);
                assert_eq!((next.stdout.as_str(), next.stderr.as_str()), ("A\nB\nC\n", "E\n"), "{print}, {round}");
            }
        }
        // What does not print is interrupted alike.
        assert!(interrupted(desk, l, "for (;;) ;", 0).ended.is_none());
        assert_eq!(desk.out(l, "a", "log('A')"), "A\n");
    });
}

#[test]
fn node_ends_where_an_interruption_comes_while_it_loads_a_module_or_sets_a_timer() {
    let patient = SessionLimits { grace: Duration::from_secs(20), ..SessionLimits::default() };
    each(&[NODE], patient, |desk, l| {
        let module =
            |code: &str| format!("require('module')._extensions['.js'] = () => {{ {code} }}; require('/usr/bin/node')");
        let both = format!("{}; require('crypto'); for (;;) ;", module(""));
        for (code, ends) in [(module("for (;;) ;"), true), (both, false)] {
            let answer = desk.ask(l, "a", hurried(&code)).unwrap();
            assert_eq!(answer.interrupted, Some(Why::TimedOut), "{code} {answer:?}");
            assert_eq!(answer.ended.is_some(), ends, "{code} {answer:?}");
            assert_eq!(answer.stderr.contains("the session ends"), ends, "{code} {answer:?}");
        }
        let code = "var n = 0; for (;;) clearTimeout(setTimeout(() => {}, 10 + n++ % 100))";
        for round in 0..16 {
            let answer = interrupted(desk, l, code, round);
            let told = answer.stderr.contains("the session ends");
            assert!(answer.ended.is_none() || told || answer.exit_code.is_none(), "{round} {answer:?}");
            let all = "for (let i = 10; i < 110; i += 1) setTimeout(() => { if (i % 10 === 0) console.log('T') }, i)";
            let next = desk.run(l, "a", all);
            assert_eq!((next.fresh, next.stdout), (answer.ended.is_some(), "T\n".repeat(10)), "{round} {answer:?}");
        }
    });
}

#[test]
fn an_interruption_that_a_program_was_not_ready_for_comes_once_more() {
    each(&[PYTHON, NODE], SessionLimits { grace: Duration::from_secs(10), ..SessionLimits::default() }, |desk, l| {
        let shell = r#"trap "" INT; sleep 2; trap - INT; exec sleep 60"#;
        let code = match l.agent {
            Agent::Python => format!("x = 5\nimport subprocess; subprocess.run(['/bin/sh', '-c', {shell:?}])"),
            _ => format!("var x = 5; require('child_process').execSync({shell:?})"),
        };
        let answer = desk.ask(l, "a", hurried(&code)).unwrap();
        assert_eq!(answer.interrupted, Some(Why::TimedOut), "{l:?} {answer:?}");
        assert!(answer.ended.is_none() && answer.duration < Duration::from_secs(20), "{l:?} {answer:?}");
        let print = if l.agent == Agent::Python { "print(x)" } else { "console.log(x)" };
        assert_eq!(desk.out(l, "a", print), "5\n");
    });
}

#[test]
fn a_call_that_cannot_be_interrupted_ends_the_session_and_the_next_starts_anew() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let (code, print) = match l.agent {
            Agent::Python => (
                "x = 5\nimport signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)",
                "print('x' in globals())",
            ),
            Agent::Node => (
                "globalThis.x = 5; await new Promise(r => setTimeout(r, 60000))",
                "console.log('x' in globalThis ? 'True' : 'False')",
            ),
            _ => ("x=5; sleep 60; echo AFTER", "if [[ -v x ]]; then echo True; else echo False; fi"),
        };
        let answer = desk.ask(l, "a", hurried(code)).unwrap();
        let ended = answer.ended.clone().unwrap_or_else(|| panic!("{l:?} {answer:?}"));
        assert_eq!((&answer.interrupted, answer.stdout.as_str()), (&Some(Why::TimedOut), ""), "{l:?}");
        assert!(ended.outcome.is_some() && answer.duration < Duration::from_secs(20), "{answer:?}");
        assert!(desk.sessions.list().is_empty());
        let next = desk.run(l, "a", print);
        assert_eq!((next.stdout.as_str(), next.fresh), ("False\n", true), "{l:?}");
    });
}

#[test]
fn a_cancelled_call_ends_as_one_that_took_too_long() {
    each(&[PYTHON, SHELL], SessionLimits { grace: Duration::from_secs(20), ..SessionLimits::default() }, |desk, l| {
        let cancel = Cancel::default();
        let code = if l.agent == Agent::Python { "import time; time.sleep(60)" } else { "sleep 60" };
        desk.out(l, "a", "");
        let theirs = cancel.clone();
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            theirs.cancel();
        });
        let answer = desk.ask(l, "a", SessionCall { cancel, ..call(code) }).unwrap();
        thread.join().unwrap();
        assert_eq!(answer.interrupted, Some(Why::Cancelled), "{answer:?}");
        assert_eq!(answer.ended.is_none(), l.agent == Agent::Python, "{answer:?}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        desk.out(l, "a", "");
    });
}

#[test]
fn what_a_cancelled_call_ended_is_reported_to_the_next() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        for (unheard, by_end) in [(true, false), (true, true), (false, false)] {
            desk.out(l, "a", "");
            let cancel = Cancel::default();
            let theirs = cancel.clone();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(SHORT);
                theirs.cancel();
            });
            let answer =
                desk.ask(l, "a", SessionCall { cancel, unheard_when_cancelled: unheard, ..call("sleep 60") }).unwrap();
            thread.join().unwrap();
            assert!(answer.ended.is_some(), "{answer:?}");
            if by_end {
                let ended = desk.sessions.end(&key("a")).expect("it is reported");
                assert!(ended.outcome.is_some(), "{ended:?}");
            } else {
                let next = desk.ask(l, "a", call("echo again"));
                assert_eq!(matches!(next, Err(SessionError::Ended { .. })), unheard, "{next:?}");
            }
            desk.out(l, "a", ""); // once
            assert!(desk.sessions.end(&key("a")).is_some() && desk.sessions.end(&key("a")).is_none());
        }
    });
}

#[test]
fn an_interpreter_that_ends_is_reported_with_its_cause() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let codes: &[(&str, Why)] = match l.agent {
            Agent::Python => &[
                ("import os; os._exit(4)", Why::Exited(4)),
                ("import os; os.abort()", Why::Signalled(6)),
                ("import os; os.kill(os.getpid(), 9)", Why::Signalled(9)),
            ],
            Agent::Node => &[("process.exit(5)", Why::Exited(5)), ("process.abort()", Why::Signalled(6))],
            _ => &[
                ("exit 3", Why::Exited(3)),
                ("kill -9 $$", Why::Signalled(9)),
                ("set -e; false; echo AFTER", Why::Exited(1)),
                ("exec /bin/sh -c 'exit 9'", Why::Exited(9)),
            ],
        };
        for (code, why) in codes {
            let answer = desk.run(l, "a", code);
            let ended = answer.ended.clone().unwrap_or_else(|| panic!("{l:?} {code}: {answer:?}"));
            assert_eq!(ended.why, *why, "{l:?} {code}");
            let code_of = if let Why::Exited(n) = why { Some(*n) } else { None };
            assert_eq!((answer.exit_code, answer.stdout.as_str()), (code_of, ""), "{l:?} {code}");
            assert!(desk.run(l, "a", "").fresh);
        }
    });
}

#[test]
fn memory_beyond_the_limit_ends_the_session_or_fails_in_the_code() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let small = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            policy.limits.memory_mb = 64;
            Ok(SessionStart { policy, agent: l.agent, hands_over: None, recorded: None })
        };
        let fill = "b = []\nfor _ in range(300):\n    b.append(bytearray(1 << 20))\n    import time; time.sleep(0.01)";
        let answer = desk.sessions.call(&key("a"), "test", small, call(fill)).unwrap();
        match answer.ended {
            Some(ended) => assert_eq!(ended.why, Why::Limit(Field::Memory)),
            None => assert!(answer.stderr.contains("MemoryError"), "{:?}", answer.stderr),
        }
    });
}

#[test]
fn an_idle_session_is_ended_and_its_owner_informed_once() {
    each(&[PYTHON], SessionLimits { idle: SHORT, ..SessionLimits::default() }, |desk, l| {
        desk.out(l, "a", "x = 1");
        desk.out(l, "b", "import time; time.sleep(0.6)"); // a call under way is not idle
        let begun = Instant::now();
        while !desk.sessions.list().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(10));
        }
        let error = desk.ask(l, "a", call("print(x)")).unwrap_err();
        assert!(matches!(&error, SessionError::Ended { ended: SessionEnd { why: Why::Idle, .. }, .. }), "{error:?}");
        assert!(error.to_string().contains("hint:"), "{error}");
        assert_eq!(desk.out(l, "a", "print('x' in globals())"), "False\n");
    });
}

#[test]
fn a_session_lives_no_longer_than_it_may() {
    each(&[PYTHON], SessionLimits { lifetime: Duration::from_secs(3), ..SessionLimits::default() }, |desk, l| {
        let answer = desk.run(l, "a", "import time; time.sleep(60)");
        assert_eq!(answer.ended.unwrap().why, Why::Lifetime);
        desk.out(l, "a", "");
        std::thread::sleep(Duration::from_millis(3500));
        let error = desk.ask(l, "a", call("")).unwrap_err();
        assert!(
            matches!(&error, SessionError::Ended { ended: SessionEnd { why: Why::Lifetime, .. }, .. }),
            "{error:?}"
        );
        desk.out(l, "a", "");
    });
}

#[test]
fn what_is_ended_is_dead_when_the_call_returns() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        let mark = format!("{}", 100_000 + std::process::id());
        desk.out(l, "a", &format!("sleep {mark} & (setsid sleep {mark} &)"));
        let ended = desk.sessions.end(&key("a")).unwrap();
        assert_eq!(ended.why, Why::Closed);
        assert!(desk.sessions.end(&key("a")).is_none());
        desk.out(l, "b", &format!("(setsid sleep {mark} &)"));
        desk.sessions.end_owner("other");
        assert_eq!(desk.sessions.list().len(), 1);
        desk.sessions.end_owner("me");
        assert!(desk.sessions.list().is_empty());
        assert!(!alive(&mark), "{l:?}");
    });
}

/// Whether a sleep of so many seconds is under way anywhere.
fn alive(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.split(|b| *b == 0).collect::<Vec<_>>().starts_with(&[b"sleep", mark.as_bytes()]))
    })
}

#[test]
fn dropping_the_sessions_ends_them_with_a_call_under_way() {
    each(&[PYTHON, SHELL], SessionLimits::default(), |desk, l| {
        let mark = format!("{}", 200_000 + std::process::id());
        let code = match l.agent {
            Agent::Python => format!("import subprocess; subprocess.run(['sleep', '{mark}'])"),
            _ => format!("sleep {mark}"),
        };
        let own = Sessions::new(Arc::new(Engine::probe()), SessionLimits::default()).unwrap();
        own.call(&key("a"), "test", desk.start(l), call("")).unwrap();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| own.call(&key("a"), "test", desk.start(l), call(&code)));
            let begun = Instant::now();
            while !alive(&mark) {
                assert!(begun.elapsed() < Duration::from_secs(10), "{l:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
            own.end_owner("me");
            let answer = running.join().unwrap().unwrap();
            assert_eq!(answer.ended.unwrap().why, Why::Closed, "{l:?}");
        });
        drop(own);
        assert!(!alive(&mark), "{l:?}");
    });
}
