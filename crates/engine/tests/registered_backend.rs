//! A backend in a crate of its own: the public trait suffices, and the engine's rules hold for it.

use cofferdam_engine::backends::{Backend, BackendPlan, BackendRefusal, PlanRequest, PlanSummary};
use cofferdam_engine::failure::{FailedStep, Failure};
use cofferdam_engine::{AppliedField, Ending, Engine, Host, Io, Outcome, Strength};
use cofferdam_policy::{Field, Policy};
use serde_json::{Value, json};

/// Runs nothing: a program "ends" with the number of its arguments.
#[derive(Debug)]
struct Counting {
    /// How strongly it says that it enforces every field.
    strength: Strength,
}

#[derive(Debug)]
struct Counted(PlanSummary);

/// The same, that says nothing of a field.
#[derive(Debug)]
struct Silent(Field);

impl Backend for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn plan(&self, host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        let counted = Counting { strength: Strength::Full }.plan(host, request)?;
        let PlanSummary { enforcement, .. } = counted.planned();
        let fields = enforcement.iter().filter(|(field, _)| **field != self.0);
        let fields = fields.map(|(field, applied)| (*field, applied.clone())).collect();
        Ok(Box::new(Counted(PlanSummary::new(self.name(), request, fields))))
    }
}

impl Backend for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn plan(&self, _host: &Host, request: &PlanRequest<'_>) -> Result<Box<dyn BackendPlan>, BackendRefusal> {
        if request.policy.command.argv.is_empty() {
            return Err(Failure::new(FailedStep::policy("command.argv"), "nothing to count").into());
        }
        let applied = AppliedField { strength: self.strength, reason: "nothing runs".into() };
        let fields = Field::ALL.iter().map(|field| (*field, applied.clone()));
        Ok(Box::new(Counted(PlanSummary::new(self.name(), request, fields.collect()))))
    }
}

impl BackendPlan for Counted {
    fn planned(&self) -> &PlanSummary {
        &self.0
    }

    fn describe(&self) -> Value {
        json!({ "counts": self.0.policy.command.argv })
    }

    fn run(&self, io: Io) -> Outcome {
        let count = self.0.policy.command.argv.len() + io.arguments.len();
        Outcome { outcome: Ending::Exited, exit_code: i32::try_from(count).ok(), ..self.0.unstarted() }
    }
}

fn policy(argv: &[&str]) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = argv.iter().map(|&word| word.to_owned()).collect();
    policy
}

#[test]
fn a_field_that_a_backend_says_nothing_of_is_not_enforced() {
    let engine = Engine::probe();
    for field in Field::ALL.iter().copied() {
        let mut policy = policy(&["/bin/true"]);
        let required = policy.is_required(field);
        let prepared = engine.prepare_by(&Silent(field), &policy);
        assert_eq!(prepared.is_err(), required, "{field}");
        if let Err(refused) = prepared {
            assert_eq!(refused.step, field.into(), "{refused:?}");
            policy.allow_partial(field);
            assert!(engine.prepare_by(&Silent(field), &policy).is_ok(), "{field} as a best effort");
        }
    }
}

#[test]
fn a_backend_of_another_crate_prepares_describes_and_runs() {
    let engine = Engine::probe();
    let prepared = engine.prepare_by(&Counting { strength: Strength::Full }, &policy(&["/bin/true", "a"])).unwrap();
    assert_eq!((prepared.backend(), prepared.backend_reason()), ("counting", "named by the caller"));
    assert_eq!(prepared.plan_json(), json!({ "counts": ["/bin/true", "a"] }));
    assert!(!prepared.can_hand_back() && !prepared.takes_arguments());
    // A pool is for sandboxes whose first process is init; here it changes nothing.
    let prepared = prepared.keep_ready(2);
    for _ in 0..2 {
        let outcome = prepared.run(Io::default());
        assert_eq!((outcome.exit_code, &*outcome.backend), (Some(2), "counting"));
    }
}

#[test]
fn the_engine_refuses_what_another_crates_backend_does_not_enforce() {
    let engine = Engine::probe();
    let mut required = policy(&["/bin/true"]);
    required.enforcement.best_effort.remove(&Field::Memory);
    let weak = engine.prepare_by(&Counting { strength: Strength::None }, &required).unwrap_err();
    assert!(weak.message.contains("counting"), "{weak:?}");
    engine.prepare_by(&Counting { strength: Strength::Full }, &required).unwrap();
}

#[test]
fn a_refusal_of_another_crates_backend_is_the_answer() {
    let full = Counting { strength: Strength::Full };
    let refused = Engine::probe().prepare_by(&full, &policy(&[])).unwrap_err();
    assert_eq!((refused.step.as_str(), &*refused.message), ("command.argv", "nothing to count"));
}
