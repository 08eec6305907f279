//! The limit of open descriptors, raised in a process of its own: the soft limit up to what is needed, and never above the
//! hard one.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the engine needs at most.
const ENOUGH: u64 = 1 << 16;

/// Not a test: the process that `raised` starts. It takes these limits, has them raised, and writes what they are then.
#[test]
fn child() {
    let Ok(limits) = std::env::var("COFFERDAM_DESCRIPTOR_LIMITS") else { return };
    let (soft, hard) = limits.split_once(' ').unwrap();
    let limits = Rlimit { current: soft.parse().ok(), maximum: hard.parse().ok() };
    if setrlimit(Resource::Nofile, limits).is_err() {
        return println!("limits: not permitted");
    }
    cofferdam_engine::process_limits::adapt();
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    println!("limits: {} {}", current.unwrap(), maximum.unwrap());
    // They are in force, and not only reported: so many descriptors may be open, and no more.
    let last = current.unwrap() as i32 - 1;
    let file = std::fs::File::open("/dev/null").unwrap();
    let at = |least| rustix::io::fcntl_dupfd_cloexec(&file, least);
    println!("usable: {} {}", at(last).is_ok(), at(last + 1).is_err());
}

/// The soft and the hard limit of a process that began with these; `None` where it may not have them.
fn raised(soft: u64, hard: u64) -> Option<(u64, u64)> {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("COFFERDAM_DESCRIPTOR_LIMITS", format!("{soft} {hard}"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("limits: ")).unwrap().1;
    if line == "not permitted" {
        return None;
    }
    assert!(text.contains("usable: true true"), "{text}");
    let (soft, hard) = line.split_once(' ').unwrap();
    Some((soft.parse().unwrap(), hard.parse().unwrap()))
}

#[test]
fn the_soft_limit_is_raised_up_to_the_hard_one_and_not_above() {
    assert_eq!(raised(64, 512), Some((512, 512)));
    assert_eq!(raised(512, 512), Some((512, 512)));
}

#[test]
fn no_more_than_enough_is_taken_and_nothing_is_given_up() {
    let Some(limits) = raised(256, ENOUGH + 1) else {
        eprintln!("skipped: this process may not raise its hard limit to {}", ENOUGH + 1);
        return;
    };
    assert_eq!(limits, (ENOUGH, ENOUGH + 1));
    assert_eq!(raised(ENOUGH + 1, ENOUGH + 1), Some((ENOUGH + 1, ENOUGH + 1)));
}
