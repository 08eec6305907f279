//! A failed step, as init's functions return it until `main` reports it. Has no text.

use crate::wire::step::Point;

/// A failed step: at which point, and the errno.
#[derive(Clone, Copy)]
pub struct Fault {
    /// Where it failed.
    pub at: Point,
    /// errno.
    pub errno: i32,
}

/// A step's result.
pub type Step = Result<(), Fault>;

/// Turns an errno into the fault at this point.
pub fn at(point: Point) -> impl Fn(i32) -> Fault {
    move |errno| Fault { at: point, errno }
}
