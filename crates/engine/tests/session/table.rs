//! Whose sessions there are, and what they are bound to.

use super::state::each;
use super::*;

#[test]
fn a_session_is_bound_to_its_environment_and_its_owner() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        desk.out(l, "a", "x=1");
        let error = desk.sessions.call(&key("a"), "other", desk.start(l), call("")).unwrap_err();
        assert!(matches!(&error, SessionError::Environment { is, asked, .. } if is == "test" && asked == "other"));
        let theirs = SessionKey { owner: "they".into(), name: "a".into() };
        let answer = desk.sessions.call(&theirs, "other", desk.start(l), call("echo ${x-none}")).unwrap();
        assert_eq!((answer.stdout.as_str(), answer.fresh), ("none\n", true));
        let listed = desk.sessions.list();
        let told: Vec<_> = listed.iter().map(|s| (s.key.owner.as_str(), s.environment.as_str(), s.calls)).collect();
        assert_eq!(told, [("me", "test", 1), ("they", "other", 1)]);
        assert!(listed.iter().all(|s| s.idle.is_some()));
    });
}

#[test]
fn there_are_no_more_sessions_than_may_be() {
    each(&[SHELL], SessionLimits { sessions: 1, ..SessionLimits::default() }, |desk, l| {
        desk.out(l, "a", "");
        let error = desk.ask(l, "b", call("")).unwrap_err();
        assert!(matches!(error, SessionError::TooMany { most: 1 }), "{error:?}");
        desk.sessions.end(&key("a")).unwrap();
        desk.out(l, "b", "");
    });
}

#[test]
fn one_owner_leaves_room_for_others() {
    each(&[SHELL], SessionLimits { sessions: 3, per_owner: 1, ..SessionLimits::default() }, |desk, l| {
        desk.out(l, "a", "");
        let error = desk.ask(l, "b", call("")).unwrap_err();
        assert!(matches!(error, SessionError::TooManyOwn { most: 1 }), "{error:?}");
        let theirs = SessionKey { owner: "they".into(), name: "b".into() };
        desk.sessions.call(&theirs, "test", desk.start(l), call("")).unwrap();
    });
}

#[test]
fn limits_that_change_hold_from_then_on() {
    let short = SessionLimits { per_owner: 1, lifetime: Duration::from_secs(100), ..SessionLimits::default() };
    each(&[SHELL], short, |desk, l| {
        desk.out(l, "a", "");
        assert!(desk.ask(l, "b", call("")).is_err());
        let long = SessionLimits { per_owner: 2, lifetime: Duration::from_secs(1000), ..short };
        desk.sessions.set_limits(long);
        desk.out(l, "b", "");
        let left: Vec<u64> = desk.sessions.list().iter().map(|session| session.left.as_secs()).collect();
        assert!(left[0] < 100 && (900..1000).contains(&left[1]), "a session keeps its lifetime: {left:?}");
        desk.sessions.set_limits(SessionLimits { idle: Duration::from_millis(50), ..long });
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !desk.sessions.list().is_empty() {
            assert!(std::time::Instant::now() < deadline, "idle sessions are not ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn names_are_words_and_new_ones_are_not_guessed() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        for name in ["", "a\nb", &"x".repeat(129)] {
            assert!(matches!(desk.ask(l, name, call("")), Err(SessionError::Name(_))), "{name:?}");
        }
        let (one, two) = (Sessions::new_name().unwrap(), Sessions::new_name().unwrap());
        assert!(one.len() == 32 && one != two);
        desk.out(l, &one, "");
    });
}

#[test]
fn calls_of_one_session_wait_for_each_other_up_to_a_bound() {
    each(&[PYTHON], SessionLimits { waiting: 2, ..SessionLimits::default() }, |desk, l| {
        desk.out(l, "a", "import time; n = 0");
        let code = "m = n; time.sleep(0.7); n = m + 1; print(n)";
        let answers: Vec<_> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| desk.ask(l, "a", call(code)))).collect();
            calls.into_iter().map(|c| c.join().unwrap()).collect()
        });
        let busy = answers.iter().filter(|a| matches!(a, Err(SessionError::Busy { .. }))).count();
        let mut said: Vec<_> = answers.into_iter().flatten().map(|a| a.stdout).collect();
        said.sort();
        assert_eq!((said, busy), (["1\n", "2\n", "3\n"].map(str::to_owned).to_vec(), 1));
    });
}

#[test]
fn what_cannot_start_says_why_and_takes_no_place() {
    each(&[PYTHON], SessionLimits { sessions: 1, ..SessionLimits::default() }, |desk, l| {
        let missing = || {
            Ok(SessionStart {
                policy: policy("/nonexistent", desk.backend),
                agent: l.agent,
                hands_over: None,
                recorded: None,
            })
        };
        let error = desk.sessions.call(&key("a"), "test", missing, call("")).unwrap_err();
        assert!(matches!(&error, SessionError::Start { .. }) && error.to_string().contains("/nonexistent"), "{error}");
        let other = || {
            Ok(SessionStart {
                policy: policy("/bin/true", desk.backend),
                agent: l.agent,
                hands_over: None,
                recorded: None,
            })
        };
        let error = desk.sessions.call(&key("a"), "test", other, call("")).unwrap_err();
        assert!(matches!(&error, SessionError::Start { .. }) && error.to_string().contains("exited with 0"), "{error}");
        desk.out(l, "a", "");
    });
}

#[test]
fn other_peoples_programs_run_no_sessions() {
    let Some(program) = PYTHON.program() else { return };
    let desk = desk(BackendName::Jail, SessionLimits::default());
    let start = || {
        let mut policy = policy(program, BackendName::Bubblewrap);
        policy.enforcement.best_effort = Field::ALL.iter().copied().collect();
        Ok(SessionStart { policy, agent: Agent::Python, hands_over: None, recorded: None })
    };
    match desk.sessions.call(&key("a"), "test", start, call("")) {
        Err(SessionError::Start { failure, .. }) if failure.step.as_str() == "backend" => {
            assert!(failure.message.contains("bubblewrap") && failure.hint.is_some(), "{failure:?}");
        }
        Err(SessionError::Start { failure, .. }) => skipped(&failure.message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_program_speaks_the_protocol_on_its_standard_streams() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        const WRAPPER: &str = r#"
import io, json, sys, contextlib
def send(x):
    b = json.dumps(x).encode(); sys.__stdout__.buffer.write(len(b).to_bytes(4, "big") + b); sys.__stdout__.buffer.flush()
names = {}
send({"type": "ready"})
while True:
    r = json.loads(sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(4), "big")))
    if r["type"] == "shutdown": break
    out = io.StringIO()
    with contextlib.redirect_stdout(out): exec(r["code"], names)
    send({"type": "result", "id": r["id"], "stdout": out.getvalue(), "stderr": "e", "exit_code": 0})
"#;
        let start = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            policy.command.argv.extend(["-c".into(), WRAPPER.into()]);
            Ok(SessionStart { policy, agent: Agent::Foreign, hands_over: None, recorded: None })
        };
        let ask = |code: &str| desk.sessions.call(&key("a"), "test", start, call(code)).unwrap();
        ask("x = 20");
        let answer = ask("print(x + 1)");
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str(), answer.exit_code), ("21\n", "e", Some(0)));
        let late = desk
            .sessions
            .call(
                &key("a"),
                "test",
                start,
                SessionCall { timeout: Duration::from_millis(200), ..call("while True: pass") },
            )
            .unwrap();
        assert!(late.interrupted.is_some() && late.ended.is_some(), "{late:?}");
    });
}
