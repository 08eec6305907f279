//! Running one call's code by the engine, in a sandbox of its own or in a session, and how many run at a time.

pub mod call;
pub mod progress;
pub mod run;
pub mod run_limit;
pub mod session;
