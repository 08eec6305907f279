//! Running one call's code by the engine, in a sandbox of its own or in a session, and how many run at a time.

pub(crate) mod call;
pub(crate) mod progress;
pub(crate) mod run;
pub(crate) mod run_limit;
pub(crate) mod session;
