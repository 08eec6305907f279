//! Containers, by every maker that is here: what comes back, what is held, and what is left behind. One test for each maker,
//! as whoever runs them: Docker takes root, a user without it has Podman and the runtimes with his own ids alone.
//!
//! What a maker has not installed is skipped with the reason, or a failure under `COFFERDAM_MUST_WORK=1`.

mod endings;
mod images;
mod limits;
mod network;
mod owners;
mod skills;
mod walls;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use world::{MAKERS, World};

/// One test: its name, and what it does.
pub type Test = (&'static str, fn(&World));

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let tests =
        [endings::TESTS, limits::TESTS, walls::TESTS, images::TESTS, network::TESTS, owners::TESTS, skills::TESTS]
            .concat();
    let mut trials = Vec::new();
    for maker in MAKERS.iter().filter(|maker| maker.is_this_users()) {
        for (name, test) in tests.iter().copied() {
            let full = format!("{name}::{}", maker.backend);
            trials.push(Trial::test(full.clone(), move || {
                if let Some(reason) = maker.missing() {
                    eprintln!("skipped {full}: {reason}");
                    let must = std::env::var_os("COFFERDAM_MUST_WORK").is_some_and(|must| must == "1");
                    return if must { Err(format!("skipped: {reason}").into()) } else { Ok(()) };
                }
                test(&World::new(*maker)?);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
