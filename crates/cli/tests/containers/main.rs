//! Containers, by every runtime of this host: what is returned, what is enforced, and what is left behind. One test for each
//! runtime, as the current user: Docker needs root; without root there are Podman and the OCI runtimes with one id.
//!
//! A runtime that is not installed is skipped with the reason, or is a failure under `COFFERDAM_MUST_WORK=1`.

mod confinement;
mod images;
mod limits;
mod network;
mod outcomes;
mod owners;
mod skills;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use world::{RUNTIMES, World};

/// One test: its name, and what it does.
pub type Test = (&'static str, fn(&World));

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests = [
        outcomes::TESTS,
        limits::TESTS,
        confinement::TESTS,
        images::TESTS,
        network::TESTS,
        owners::TESTS,
        skills::TESTS,
    ]
    .concat();
    let mut trials = Vec::new();
    for runtime in RUNTIMES.iter().filter(|runtime| runtime.is_this_users()) {
        for (name, test) in tests.iter().copied() {
            let full = format!("{name}::{}", runtime.backend);
            trials.push(Trial::test(full.clone(), move || {
                if let Some(reason) = runtime.missing() {
                    eprintln!("skipped {full}: {reason}");
                    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
                    return if must { Err(format!("skipped: {reason}").into()) } else { Ok(()) };
                }
                test(&World::new(*runtime)?);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
