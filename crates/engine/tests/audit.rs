//! What the answer records at each level of `audit`, and that what is refused is the same at all of them.

use cofferdam_engine::{Ending, Engine, Io, Outcome};
use cofferdam_policy::{Audit, AuditLevel, Field, OnViolation, Policy};

use AuditLevel::{Debug, Error, Info, Warning};

/// Of each audit that there is: off, then level by level.
const AUDITS: [Audit; 5] =
    [Audit { enabled: false, level: Debug, trace: false }, audit(Error), audit(Warning), audit(Info), audit(Debug)];

const fn audit(level: AuditLevel) -> Audit {
    Audit { enabled: true, level, trace: false }
}

fn policy(argv: &[&str], audit: Audit) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = argv.iter().map(|a| (*a).to_owned()).collect();
    policy.audit = audit;
    policy
}

/// Runs it in the jail; `None` where there is none, which is said.
fn run(policy: &Policy) -> Option<Outcome> {
    policy.validate().unwrap_or_else(|errors| panic!("{errors}"));
    match Engine::probe().prepare(policy) {
        Ok(prepared) if prepared.backend() == "jail" => Some(prepared.run(Io::default())),
        other => {
            let why = other.map_or_else(|failure| failure.message, |p| p.backend_reason().to_owned());
            eprintln!("skipped: {why}");
            assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "{why}");
            None
        }
    }
}

fn operations(o: &Outcome) -> Vec<&str> {
    o.violations.iter().map(|v| v.operation.as_str()).collect()
}

/// What it records with each audit; `check` sees every outcome.
fn each(change: impl Fn(&mut Policy), argv: &[&str], check: impl Fn(&Outcome)) -> Option<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for audit in AUDITS {
        let mut policy = policy(argv, audit);
        change(&mut policy);
        let o = run(&policy)?;
        check(&o);
        assert!(!o.violations_complete, "{audit:?}: {o:?}");
        all.push(operations(&o).into_iter().map(str::to_owned).collect());
    }
    Some(all)
}

#[test]
fn a_refusal_is_the_same_at_every_level_and_recorded_from_info_on() {
    let argv = ["sh", "-c", "unshare -u true; echo $?; mkdir /tmp/d && echo made"];
    let check = |o: &Outcome| {
        assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Exited, "1\nmade\n"), "{o:?}");
        assert!(o.stderr.contains("Operation not permitted"), "{o:?}");
    };
    let Some(recorded) = each(|_| {}, &argv, check) else { return };
    assert_eq!(recorded[..3], [Vec::<String>::new(), vec![], vec![]], "off, error, warning");
    assert_eq!(recorded[3], ["unshare"], "info");
    assert!(recorded[4].contains(&"unshare".to_owned()), "debug");
}

#[test]
fn what_libc_asks_for_by_itself_is_recorded_at_debug_alone() {
    let python = "/usr/bin/python3";
    if !std::path::Path::new(python).exists() {
        eprintln!("skipped: no {python}");
        assert!(std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|v| v != "1"), "no {python}");
        return;
    }
    let code = "import socket\ntry: socket.socket(socket.AF_UNIX)\nexcept OSError as e: print(e.errno)";
    let check = |o: &Outcome| assert_eq!(o.stdout, "97\n", "{o:?}");
    let Some(recorded) = each(|_| {}, &[python, "-c", code], check) else { return };
    assert_eq!(recorded[..4], vec![Vec::<String>::new(); 4], "off, error, warning, info");
    assert_eq!(recorded[4], ["socket"], "debug");
}

#[test]
fn a_limit_that_the_program_goes_on_after_is_recorded_from_warning_on() {
    let argv = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.2 & done 2>/dev/null; wait; echo on"];
    let change = |p: &mut Policy| p.limits.processes = 4;
    let counted = std::cell::Cell::new(true);
    let check = |o: &Outcome| {
        counted.set(counted.get() && o.enforcement[&Field::Processes].reason == "cgroup");
        assert_eq!(o.outcome, Ending::Exited, "{o:?}");
    };
    let Some(recorded) = each(change, &argv, check) else { return };
    if !counted.get() {
        eprintln!("skipped: without a cgroup nobody counts refused processes");
        return;
    }
    let limit = vec!["limits.processes".to_owned()];
    assert_eq!(recorded, [vec![], vec![], limit.clone(), limit.clone(), limit]);
}

#[test]
fn what_ended_the_run_is_recorded_at_every_level() {
    let slow = |p: &mut Policy| p.limits.wall_ms = 300;
    let check = |o: &Outcome| {
        assert_eq!((o.outcome, o.limit), (Ending::TimedOut, Some(Field::WallTime)), "{o:?}");
    };
    let Some(recorded) = each(slow, &["sleep", "20"], check) else { return };
    let limit = vec!["limits.wall_ms".to_owned()];
    assert_eq!(recorded, [vec![], limit.clone(), limit.clone(), limit.clone(), limit]);
    let terminate = |p: &mut Policy| p.on_violation = OnViolation::Terminate;
    let check = |o: &Outcome| assert_eq!((o.outcome, o.stdout.as_str()), (Ending::Violation, ""), "{o:?}");
    let argv = ["sh", "-c", "unshare -u true; echo on"];
    let Some(recorded) = each(terminate, &argv, check) else { return };
    let refusal = vec!["unshare".to_owned()];
    assert_eq!(recorded, [vec![], refusal.clone(), refusal.clone(), refusal.clone(), refusal]);
    // The twin: under the same rule a run that ends by itself was ended by nothing.
    let check = |o: &Outcome| assert!(o.success, "{o:?}");
    let Some(recorded) = each(terminate, &["true"], check) else { return };
    assert_eq!(recorded, vec![Vec::<String>::new(); 5]);
}
