//! What a session keeps, and what an answer holds.

use super::*;

/// Each language that is here on each backend that is here.
pub(super) fn each(languages: &[Language], limits: SessionLimits, test: impl Fn(&Desk, Language)) {
    for backend in backends() {
        for &language in languages {
            if language.program().is_some() {
                let desk = desk(backend, limits);
                test(&desk, language);
            }
        }
    }
}

#[test]
fn python_keeps_its_state() {
    each(&[PYTHON], SessionLimits::default(), |desk, l| {
        let first = desk.run(l, "a", "x = 41\ndef f(): return x + 1\nimport os; os.chdir('/')");
        assert!(first.fresh && first.success(), "{first:?}");
        assert_eq!(desk.out(l, "a", "print(f(), os.getcwd(), __name__)"), "42 / __main__\n");
        assert_eq!(desk.out(l, "b", "print('x' in globals())"), "False\n");
    });
}

#[test]
fn node_keeps_its_state() {
    each(&[NODE], SessionLimits::default(), |desk, l| {
        assert_eq!(desk.out(l, "a", "const x = 41; function f() { return x + 1 }; var y = 1"), "");
        assert_eq!(desk.out(l, "a", "console.log(f(), y)"), "42 1\n");
        assert_eq!(desk.out(l, "a", "const z = await Promise.resolve(7); console.log(z)"), "7\n");
        assert_eq!(desk.out(l, "a", "console.log(z + 1, require('path').basename('/a/b'))"), "8 b\n");
        assert_eq!(desk.out(l, "a", "setTimeout(() => console.log('later'), 50); console.log('now')"), "now\nlater\n");
    });
}

#[test]
fn the_shell_keeps_its_state() {
    each(&[SHELL], SessionLimits::default(), |desk, l| {
        assert_eq!(desk.out(l, "a", "x=41; f() { echo $((x + 1)); }; cd /; export E=e"), "");
        assert_eq!(desk.out(l, "a", "f; pwd; sh -c 'echo $E'"), "42\n/\ne\n");
        assert_eq!(desk.out(l, "a", "cat; echo end"), "end\n");
        let failed = desk.run(l, "a", "echo one; (exit 3)");
        assert_eq!((failed.stdout.as_str(), failed.exit_code, failed.ended.is_none()), ("one\n", Some(3), true));
    });
}

#[test]
fn a_session_without_child_processes_is_a_session() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let start = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            policy.process.spawn = false;
            policy.limits.memory_mb = 1024;
            Ok(SessionStart { policy, agent: l.agent, hands_over: None, recorded: None })
        };
        let ask = |code: &str| desk.sessions.call(&key("a"), "test", start, call(code)).unwrap();
        let (set, print, spawn) = match l.agent {
            Agent::Python => ("x = 3", "print(x)", "import subprocess; subprocess.run(['/bin/true'])"),
            Agent::Node => ("var x = 3", "console.log(x)", "require('child_process').execFileSync('/bin/true')"),
            _ => ("x=3", "echo $x", "/bin/true"),
        };
        assert!(ask(set).success(), "{l:?}");
        assert_eq!(ask(print).stdout, "3\n", "{l:?}");
        assert!(!ask(spawn).success(), "{l:?}");
        assert!(desk.run(l, "b", spawn).success(), "{l:?}");
    });
}

#[test]
fn code_starts_with_the_directory_variables_and_arguments_that_a_run_has() {
    each(&[PYTHON, NODE, SHELL], SessionLimits::default(), |desk, l| {
        let start = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            policy.command.cwd = Some("/usr".into());
            policy.command.variables = [("A".to_owned(), "b c".to_owned())].into();
            policy.limits.memory_mb = 1024;
            Ok(SessionStart { policy, agent: l.agent, hands_over: None, recorded: None })
        };
        let code = match l.agent {
            Agent::Python => {
                "import os, sys; print(os.getcwd(), os.environ['A'], len(sys.argv), 3 in [i for i in range(9)])"
            }
            Agent::Node => "console.log(process.cwd(), process.env.A, process.argv.length, 'True')",
            _ => "echo $PWD $A 1 True",
        };
        let answer = desk.sessions.call(&key("a"), "test", start, call(code)).unwrap();
        assert_eq!(answer.stdout, "/usr b c 1 True\n", "{l:?} {answer:?}");
    });
}

#[test]
fn what_the_code_writes_into_its_workspace_comes_with_each_answer() {
    use std::os::fd::AsRawFd;
    each(&[PYTHON, SHELL], SessionLimits::default(), |desk, l| {
        let start = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            let tmpfs = cofferdam_policy::Mount::Tmpfs { target: "/workspace".into(), size_mb: 8, exec: false };
            if desk.backend == BackendName::Jail {
                policy.filesystem.mounts.push(tmpfs);
                policy.command.cwd = Some("/workspace".into());
            }
            Ok(SessionStart {
                policy,
                agent: l.agent,
                hands_over: Some(("/workspace".into(), "output".into())),
                recorded: None,
            })
        };
        let ask = |code: &str| desk.sessions.call(&key("a"), "test", start, call(code)).unwrap();
        if desk.backend == BackendName::Landlock {
            assert!(ask("").workspace.is_none());
            return;
        }
        for text in ["one", "two"] {
            let answer = match l.agent {
                Agent::Python => ask(&format!("open('output/file', 'w').write({text:?})")),
                _ => ask(&format!("printf {text} > output/file")),
            };
            assert!(answer.success(), "{answer:?}");
            let root = answer.workspace.unwrap();
            let file = format!("/proc/self/fd/{}/output/file", root.as_raw_fd());
            assert_eq!(std::fs::read_to_string(file).unwrap(), text, "{l:?}");
        }
        let kept = ask("").workspace.unwrap();
        desk.sessions.end(&key("a")).unwrap();
        assert!(std::fs::exists(format!("/proc/self/fd/{}/output/file", kept.as_raw_fd())).unwrap());
    });
}

#[test]
fn an_answer_reports_refusals_since_the_one_before() {
    each(&[SHELL, PYTHON], SessionLimits::default(), |desk, l| {
        if desk.backend == BackendName::Landlock {
            return; // without a pid namespace fewer refusals are told
        }
        let (refused, ended) = match l.agent {
            Agent::Python => (
                "import subprocess; subprocess.run(['unshare', '-u', 'true'])",
                "subprocess.run(['unshare', '-u', 'true']); os = __import__('os'); os._exit(0)",
            ),
            _ => ("unshare -u true; true", "unshare -u true; exit 0"),
        };
        for _ in 0..50 {
            let told = desk.run(l, "a", refused).violations;
            let told: Vec<_> = told.iter().map(|v| (v.operation.as_str(), v.count)).collect();
            assert_eq!(told, [("unshare", 1)]);
            assert_eq!(desk.run(l, "a", "").violations, []);
        }
        let last = desk.run(l, "a", ended);
        assert_eq!(last.violations.iter().map(|v| v.count).collect::<Vec<_>>(), [1], "{last:?}");
        assert_eq!(last.ended.unwrap().outcome.unwrap().violations[0].count, 51);
    });
}

#[test]
fn the_workspace_of_a_session_is_given_before_any_call_and_while_one_runs() {
    use std::os::fd::AsRawFd;
    each(&[PYTHON, SHELL], SessionLimits::default(), |desk, l| {
        let start = || {
            let mut policy = policy(l.program().unwrap(), desk.backend);
            let tmpfs = cofferdam_policy::Mount::Tmpfs { target: "/workspace".into(), size_mb: 8, exec: false };
            if desk.backend == BackendName::Jail {
                policy.filesystem.mounts.push(tmpfs);
                policy.command.cwd = Some("/workspace".into());
            }
            Ok(SessionStart {
                policy,
                agent: l.agent,
                hands_over: Some(("/workspace".into(), "output".into())),
                recorded: None,
            })
        };
        let (sessions, cancel) = (&desk.sessions, Cancel::default());
        let unknown = |name: &str| {
            let error = sessions.find(&key(name), &cancel).unwrap_err();
            assert!(matches!(&error, SessionError::Unknown { name: told } if told == name), "{error:?}");
        };
        unknown("a");
        let opened = sessions.open(&key("a"), "test", start, &cancel).unwrap();
        assert!(opened.fresh);
        let found = sessions.find(&key("a"), &cancel).unwrap();
        assert!(!found.fresh && !sessions.open(&key("a"), "test", start, &cancel).unwrap().fresh);
        let error = sessions.open(&key("a"), "other", start, &cancel).unwrap_err();
        assert!(matches!(error, SessionError::Environment { .. }), "{error:?}");
        let theirs = SessionKey { owner: "they".into(), name: "a".into() };
        assert!(matches!(sessions.find(&theirs, &cancel), Err(SessionError::Unknown { .. })));
        assert!(!sessions.call(&key("a"), "test", start, call("")).unwrap().fresh);
        assert_eq!(
            (opened.root.is_some(), found.root.is_some()),
            (desk.backend == BackendName::Jail, opened.root.is_some())
        );
        if let Some(root) = found.root {
            let code = match l.agent {
                Agent::Python => "import time, os\nopen('begun', 'w')\nwhile os.path.exists('begun'): time.sleep(0.01)",
                _ => ": > begun; while [ -e begun ]; do sleep 0.01; done",
            };
            std::thread::scope(|scope| {
                let running = scope.spawn(|| sessions.call(&key("a"), "test", start, call(code)).unwrap());
                let name = format!("/proc/self/fd/{}/begun", root.as_raw_fd());
                let begun = std::time::Instant::now();
                while !std::fs::exists(&name).unwrap() {
                    assert!(begun.elapsed().as_secs() < 30, "{l:?}");
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                assert!(sessions.find(&key("a"), &cancel).unwrap().root.is_some());
                std::fs::remove_file(&name).unwrap();
                assert!(running.join().unwrap().success());
            });
        }
        sessions.end(&key("a")).unwrap();
        // Who has not been told of its end is told so, once.
        let over = sessions.find(&key("a"), &cancel).unwrap_err();
        assert!(matches!(over, SessionError::Unknown { .. } | SessionError::Ended { .. }), "{over:?}");
        unknown("a");
    });
}
