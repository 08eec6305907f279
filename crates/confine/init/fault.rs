//! A failed step, as init's functions return it until `main` reports it. Has no text.

use crate::wire::step::FailurePoint;

/// A failed step: at which point, and the errno.
#[derive(Clone, Copy)]
pub struct StepFault {
    /// Where it failed.
    pub at: FailurePoint,
    /// errno.
    pub errno: i32,
}

/// A step's result.
pub type StepResult = Result<(), StepFault>;

/// Turns an errno into the fault at this point.
pub fn at(point: FailurePoint) -> impl Fn(i32) -> StepFault {
    move |errno| StepFault { at: point, errno }
}
