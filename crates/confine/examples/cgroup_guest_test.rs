//! A test of the cgroup module in a program of its own, for guests (virtual machines) and for `tests/cgroup.rs`: it moves
//! processes, kills them and runs bombs, each inside a limit that was read back as in effect. Prints one line per check;
//! exits 1 on a failure.
//!
//! ```text
//! cgroup_guest_test probe         what is available and why not
//! cgroup_guest_test all           every check, for where cgroups can be made (version 1, 2, hybrid)
//! cgroup_guest_test unavailable   for where they cannot: everything must be reported with a reason and a hint
//! cgroup_guest_test bench [N]     medians in microseconds
//! ```
//!
//! The bombs are this program again (`child-…`), started, attached, and only then released by a line on stdin.

use std::io::{BufRead, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{
    self, AppliedLimits, Availability, Cgroup, CgroupLimits, CgroupLocation, LimitLevel, Reached,
};
use rustix::process::Pid;

type Check = Result<(), Box<dyn std::error::Error>>;

type OneCheck = fn(&CgroupLocation) -> Check;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let result = match args.first().map(String::as_str) {
        Some("probe") => {
            println!("{:#?}", cgroup::probe());
            Ok(())
        }
        Some("all") => all(),
        Some("unavailable") => unavailable(),
        Some("bench") => bench(usize::try_from(number(1)).unwrap_or(0).max(50)),
        Some("child-alloc") => child_alloc(number(1)),
        Some("child-threads") => child_threads(number(1)),
        Some("child-spin") => child_spin(number(1)),
        Some("child-tree") => child_tree(number(1)),
        Some("child-bomb") => child_bomb(),
        Some("child-owner") => child_owner(),
        Some("child-wait") => child_wait(),
        _ => Err("usage: cgroup_guest_test probe | all | unavailable | bench [N]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED {error}");
            ExitCode::FAILURE
        }
    }
}

/// Fails with the condition's own words.
macro_rules! ensure {
    ($condition:expr, $($context:tt)+) => {
        if !$condition {
            return Err(format!("{}: {}", stringify!($condition), format!($($context)+)).into());
        }
    };
}

fn all() -> Check {
    let probe = cgroup::probe();
    println!("memory {:?}, pids {:?}, cpu {:?}, cpu time {:?}", probe.memory, probe.pids, probe.cpu, probe.cpu_time);
    let location = probe.prepare()?;
    let checks: [(&str, OneCheck); 10] = [
        ("limits are reported and an empty cgroup is removed", create_and_remove),
        ("a memory bomb is killed inside, its control is not", memory),
        ("the memory watch becomes ready on a bomb", watch),
        ("a process bomb is bounded, its control is not", processes),
        ("the CPU share throttles, and only where asked", cpu_share),
        ("a tree and a fork bomb are killed to the last process", kill),
        ("a child can be cloned into the cgroup", clone_into),
        ("a busy cgroup is not removed and says so", busy),
        ("a cgroup can be reused where the kernel allows it", reuse),
        ("a dead owner's cgroup is swept, a living one's kept", sweep),
    ];
    for (name, check) in checks {
        check(&location).map_err(|error| format!("{name}: {error}"))?;
        println!("ok {name}");
    }
    let lost = cgroup::take_drop_errors();
    ensure!(lost.is_empty(), "{lost:?}");
    Ok(())
}

fn unavailable() -> Check {
    let probe = cgroup::probe();
    for (name, answer) in [("memory", &probe.memory), ("pids", &probe.pids), ("cpu", &probe.cpu)] {
        match answer {
            Availability::Available(how) => return Err(format!("{name} is available by {how:?}").into()),
            Availability::Unavailable { reason, hint } => {
                ensure!(!reason.is_empty() && !hint.is_empty(), "{name}: {reason} / {hint}");
                println!("ok {name}: {reason}; hint: {hint}");
            }
        }
    }
    ensure!(probe.prepare().is_err(), "nothing can be prepared");
    Ok(())
}

fn held(reached: &Option<Reached>) -> bool {
    reached.as_ref().is_some_and(|reached| reached.level == LimitLevel::Full)
}

fn start(args: &[&str]) -> std::io::Result<Child> {
    Command::new("/proc/self/exe").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn release(child: &mut Child) -> std::io::Result<()> {
    child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(b"go\n"))
}

/// Runs a child inside a fresh cgroup; the limit that bounds it must be held or it is not released.
fn run(
    location: &CgroupLocation,
    limits: CgroupLimits,
    args: &[&str],
) -> Result<(Cgroup, ExitStatus, String), Box<dyn std::error::Error>> {
    let (group, applied) = Cgroup::create(location, &limits)?;
    require(&limits, &applied)?;
    let mut child = start(args)?;
    group.attach(pid(&child))?;
    release(&mut child)?;
    let output = child.wait_with_output()?;
    Ok((group, output.status, String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

fn require(limits: &CgroupLimits, applied: &AppliedLimits) -> Check {
    ensure!(limits.memory_bytes.is_none() || held(&applied.memory), "{applied:?}");
    ensure!(limits.pids.is_none() || held(&applied.pids), "{applied:?}");
    ensure!(limits.cpu_millis.is_none() || held(&applied.cpu), "{applied:?}");
    ensure!(!limits.cpu_time || held(&applied.cpu_time), "{applied:?}");
    Ok(())
}

const EVERYTHING: CgroupLimits =
    CgroupLimits { memory_bytes: Some(64 * MIB), pids: Some(16), cpu_millis: Some(500), cpu_time: true, kill: true };

fn create_and_remove(location: &CgroupLocation) -> Check {
    let (group, applied) = Cgroup::create(location, &EVERYTHING)?;
    require(&EVERYTHING, &applied)?;
    let usage = group.usage()?;
    ensure!(usage.cpu_time_us == Some(0), "{usage:?}");
    let events = group.events()?;
    let quiet =
        events.oom_kills + events.pids_limit_hits + events.cpu_throttled + events.memory_limit_hits.unwrap_or(0);
    ensure!(quiet == 0, "{events:?}");
    let name = group.name().to_owned();
    group.remove()?;
    let (group, _) = Cgroup::create(location, &EVERYTHING)?;
    ensure!(group.name() != name, "{name}");
    drop(group);
    ensure!(Cgroup::create(location, &CgroupLimits::default()).is_err(), "nothing was asked for");
    Ok(())
}

fn memory(location: &CgroupLocation) -> Check {
    let limits = CgroupLimits { memory_bytes: Some(64 * MIB), ..CgroupLimits::default() };
    let (group, status, _) = run(location, limits, &["child-alloc", "32"])?;
    ensure!(status.success(), "the control within the limit: {status}");
    let peak = group.usage()?.memory_peak_bytes;
    ensure!(peak.is_none_or(|peak| (32 * MIB..=64 * MIB).contains(&peak)), "{peak:?}");
    ensure!(group.events()?.oom_kills == 0, "{:?}", group.events()?);
    group.remove()?;
    let (group, status, _) = run(location, limits, &["child-alloc", "256"])?;
    ensure!(status.signal() == Some(libc::SIGKILL), "the bomb: {status}");
    let (usage, events) = (group.usage()?, group.events()?);
    ensure!(events.oom_kills >= 1, "{events:?}");
    ensure!(usage.memory_peak_bytes.is_none_or(|peak| peak <= 64 * MIB), "{usage:?}");
    Ok(group.remove()?)
}

fn watch(location: &CgroupLocation) -> Check {
    let limits = CgroupLimits { memory_bytes: Some(32 * MIB), ..CgroupLimits::default() };
    let (group, applied) = Cgroup::create(location, &limits)?;
    require(&limits, &applied)?;
    let watch = group.oom_watch()?.ok_or("no watch")?;
    let is_ready = |millis: i64| -> std::io::Result<bool> {
        let mut fds = [rustix::event::PollFd::new(&watch.file, watch.ready)];
        let timeout = rustix::event::Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000) * 1_000_000 };
        Ok(rustix::event::poll(&mut fds, Some(&timeout))? > 0)
    };
    ensure!(!is_ready(0)?, "before anything ran");
    let mut child = start(&["child-alloc", "256"])?;
    group.attach(pid(&child))?;
    release(&mut child)?;
    ensure!(is_ready(30_000)?, "after the bomb");
    child.wait()?;
    watch.rearm()?;
    ensure!(group.events()?.oom_kills >= 1, "{:?}", group.events()?);
    Ok(group.remove()?)
}

fn processes(location: &CgroupLocation) -> Check {
    let limits = CgroupLimits { pids: Some(8), ..CgroupLimits::default() };
    let (group, status, text) = run(location, limits, &["child-threads", "5"])?;
    ensure!(status.success() && text == "5", "the control within the limit: {status}, {text}");
    ensure!(group.events()?.pids_limit_hits == 0, "{:?}", group.events()?);
    let usage = group.usage()?;
    ensure!(!usage.pids_peak_is_exact || usage.pids_peak == Some(6), "{usage:?}");
    group.remove()?;
    let (group, status, text) = run(location, limits, &["child-threads", "100"])?;
    ensure!(status.success() && text == "7", "the bomb: {status}, {text}");
    ensure!(group.events()?.pids_limit_hits >= 1, "{:?}", group.events()?);
    Ok(group.remove()?)
}

fn cpu_share(location: &CgroupLocation) -> Check {
    let limits = CgroupLimits { cpu_millis: Some(100), cpu_time: true, ..CgroupLimits::default() };
    let (group, status, _) = run(location, limits, &["child-spin", "150"])?;
    ensure!(status.success(), "{status}");
    ensure!(group.events()?.cpu_throttled >= 1, "{:?}", group.events()?);
    let used = group.usage()?.cpu_time_us;
    ensure!(used.is_some_and(|used| used >= 140_000) && group.cpu_time_us()? == used, "{used:?}");
    group.remove()?;
    let limits = CgroupLimits { cpu_time: true, ..CgroupLimits::default() };
    let (group, status, _) = run(location, limits, &["child-spin", "150"])?;
    ensure!(status.success() && group.usage()?.cpu_time_us.is_some_and(|used| used >= 140_000), "{status}");
    ensure!(group.events()?.cpu_throttled == 0, "{:?}", group.events()?);
    Ok(group.remove()?)
}

fn kill(location: &CgroupLocation) -> Check {
    for (limits, args) in [
        (CgroupLimits { pids: Some(32), ..CgroupLimits::default() }, ["child-tree", "6"]),
        (CgroupLimits { memory_bytes: Some(256 * MIB), ..CgroupLimits::default() }, ["child-tree", "6"]),
        (CgroupLimits { pids: Some(24), memory_bytes: Some(256 * MIB), ..CgroupLimits::default() }, ["child-bomb", ""]),
    ] {
        let (group, applied) = Cgroup::create(location, &limits)?;
        require(&limits, &applied)?;
        let mut child = start(&args)?;
        group.attach(pid(&child))?;
        release(&mut child)?;
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        ensure!(line.trim() == "running", "{line}");
        group.kill_all(PATIENCE)?;
        ensure!(child.wait()?.signal() == Some(libc::SIGKILL), "{args:?}");
        group.remove()?;
    }
    Ok(())
}

/// `clone(2)`; the libc crate's constant has the wrong width.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

fn clone_into(location: &CgroupLocation) -> Check {
    let limits = CgroupLimits { pids: Some(8), cpu_time: true, ..CgroupLimits::default() };
    let (group, applied) = Cgroup::create(location, &limits)?;
    require(&limits, &applied)?;
    let Some(dir) = group.dir_fd() else {
        println!("skipped: no version 2 hierarchy");
        return Ok(group.remove()?);
    };
    use std::os::fd::AsRawFd;
    // SAFETY: a `clone_args` of zeroes is valid; every field is an integer.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = u64::from(dir.as_raw_fd().unsigned_abs());
    // SAFETY: this program has one thread here, and without CLONE_VM the child has memory of its own, so it is a
    // plain fork; it only waits for its death.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) };
    if child == 0 {
        loop {
            // SAFETY: pause has no arguments.
            unsafe { libc::pause() };
        }
    }
    ensure!(child > 0, "clone3: {}", std::io::Error::last_os_error());
    let child = Pid::from_raw(i32::try_from(child)?).ok_or("pid 0")?;
    let text = std::fs::read_to_string(format!("/proc/{}/cgroup", child.as_raw_nonzero()))?;
    let inside = text.lines().any(|line| line.starts_with("0::") && line.ends_with(group.name()));
    let attached = group.attach_rest(child);
    group.kill_all(PATIENCE)?;
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())?;
    attached?;
    ensure!(inside, "{text}");
    Ok(group.remove()?)
}

fn busy(location: &CgroupLocation) -> Check {
    let (group, _) = Cgroup::create(location, &CgroupLimits { pids: Some(8), ..CgroupLimits::default() })?;
    let mut child = start(&["child-wait"])?;
    group.attach(pid(&child))?;
    drop(group);
    let lost = cgroup::take_drop_errors();
    ensure!(lost.len() == 1, "{lost:?}");
    child.kill()?;
    child.wait()?;
    // Its owner is this very process, so no sweep takes it: removed by its name.
    let text = lost[0].to_string();
    let path = text.strip_prefix("cannot remove cgroup ").ok_or(text.clone())?;
    Ok(std::fs::remove_dir(path)?)
}

fn reuse(location: &CgroupLocation) -> Check {
    let (mut group, status, _) = run(location, EVERYTHING, &["child-alloc", "32"])?;
    ensure!(status.success(), "{status}");
    match group.reset() {
        Ok(()) => {
            let usage = group.usage()?;
            ensure!(usage.memory_peak_bytes.is_none_or(|peak| peak < 4 * MIB), "{usage:?}");
            ensure!(usage.cpu_time_us == Some(0), "{usage:?}");
            let mut child = start(&["child-threads", "100"])?;
            group.attach(pid(&child))?;
            release(&mut child)?;
            let text = String::from_utf8_lossy(&child.wait_with_output()?.stdout).trim().to_owned();
            ensure!(text == "15", "the limit holds in the second run too: {text}");
        }
        Err(error) => println!("not reusable here: {error}"),
    }
    Ok(group.remove()?)
}

fn sweep(location: &CgroupLocation) -> Check {
    ensure!(cgroup::sweep(location).failed.is_empty(), "{:?}", cgroup::sweep(location));
    // The owner prints the name of its cgroup and the pid of a process inside, and is killed without warning.
    let mut owner = start(&["child-owner"])?;
    let mut line = String::new();
    std::io::BufReader::new(owner.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
    let (inside, name) = line.trim().split_once(' ').ok_or(line.clone())?;
    let stat = || std::fs::read_to_string(format!("/proc/{inside}/cgroup")).unwrap_or_default();
    ensure!(stat().contains(name), "{line} {}", stat());
    let report = cgroup::sweep(location);
    ensure!(report.removed == 0 && report.kept >= 1 && report.failed.is_empty(), "a living owner: {report:?}");
    owner.kill()?;
    owner.wait()?;
    let report = cgroup::sweep(location);
    ensure!(report.removed >= 1 && report.failed.is_empty(), "a dead owner: {report:?}");
    let state = std::fs::read_to_string(format!("/proc/{inside}/stat")).unwrap_or_default();
    ensure!(state.is_empty() || state.contains(") Z") || state.contains(") X"), "{state}");
    Ok(())
}

fn bench(rounds: usize) -> Check {
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let micros = |start: Instant| start.elapsed().as_secs_f64() * 1e6;
    let timed = |f: &mut dyn FnMut() -> Check| -> Result<f64, Box<dyn std::error::Error>> {
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            f()?;
            times.push(micros(start));
        }
        Ok(median(times))
    };
    println!(
        "probe                     {:7.1}",
        timed(&mut || cgroup::probe().plan.map(drop).ok_or("no plan".into()))?
    );
    let location = cgroup::probe().prepare()?;
    let mut nothing = || match cgroup::sweep(&location).failed.first() {
        Some(failed) => Err(failed.clone().into()),
        None => Ok(()),
    };
    println!("sweep of nothing          {:7.1}", timed(&mut nothing)?);
    let two = CgroupLimits { memory_bytes: Some(64 * MIB), pids: Some(16), ..CgroupLimits::default() };
    let three = CgroupLimits { cpu_millis: Some(500), ..two };
    let four = CgroupLimits { cpu_time: true, ..three };
    for (name, limits) in [("memory+pids", two), ("memory+pids+cpu", three), ("memory+pids+cpu+cpu time", four)] {
        let mut parts: [Vec<f64>; 6] = Default::default();
        for _ in 0..rounds {
            let mut child = start(&["child-alloc", "1"])?;
            let begin = Instant::now();
            let (mut group, _) = Cgroup::create(&location, &limits)?;
            parts[0].push(micros(begin));
            let begin = Instant::now();
            group.attach(pid(&child))?;
            parts[1].push(micros(begin));
            release(&mut child)?;
            child.wait()?;
            let begin = Instant::now();
            group.usage()?;
            group.events()?;
            parts[2].push(micros(begin));
            let begin = Instant::now();
            if group.reset().is_ok() {
                parts[3].push(micros(begin));
            }
            let begin = Instant::now();
            group.remove()?;
            parts[4].push(micros(begin));
        }
        let total: f64 = [0, 1, 2, 4].map(|part| median(parts[part].clone())).iter().sum();
        print!("{name:25} {total:7.1} =");
        for (part, what) in ["create", "attach", "usage+events", "(or reset)", "remove"].iter().enumerate() {
            if !parts[part].is_empty() {
                print!(" {what} {:.1}", median(parts[part].clone()));
            }
        }
        println!();
    }
    Ok(())
}

/// Waits for its release, and ends when the process that should release it has died.
fn wait_for_release() -> Check {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.is_empty() { Err("not released".into()) } else { Ok(()) }
}

fn child_alloc(mib: u64) -> Check {
    wait_for_release()?;
    let mut pages = Vec::new();
    for _ in 0..mib {
        pages.push(std::hint::black_box(vec![1u8; 1 << 20]));
    }
    drop(pages);
    Ok(())
}

fn child_threads(count: u64) -> Check {
    wait_for_release()?;
    let mut threads = Vec::new();
    for _ in 0..count {
        match std::thread::Builder::new().spawn(std::thread::park) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    println!("{}", threads.len());
    threads.iter().for_each(|thread| thread.thread().unpark());
    threads.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

fn child_spin(millis: u64) -> Check {
    wait_for_release()?;
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    };
    // What start-up took was before the cgroup and does not count.
    let end = used() + Duration::from_millis(millis);
    while used() < end {
        std::hint::black_box(0);
    }
    Ok(())
}

/// A tree of sleeping processes; each holds its children's standard input open.
fn child_tree(depth: u64) -> Check {
    wait_for_release()?;
    if depth > 0 {
        let mut child = Command::new("/proc/self/exe")
            .args(["child-tree", &(depth - 1).to_string()])
            .stdin(Stdio::piped())
            .spawn()?;
        release(&mut child)?;
    } else {
        println!("running");
    }
    loop {
        std::thread::park();
    }
}

/// Forks for ever. Only ever released inside a cgroup whose process limit was read back as held.
fn child_bomb() -> Check {
    wait_for_release()?;
    println!("running");
    loop {
        // SAFETY: this program has one thread, and both sides only fork on.
        unsafe { libc::fork() };
    }
}

fn child_owner() -> Check {
    let location = cgroup::probe().prepare()?;
    let (group, _) =
        Cgroup::create(&location, &CgroupLimits { pids: Some(8), memory_bytes: Some(64 * MIB), ..EVERYTHING })?;
    let mut sleeper =
        Command::new("/proc/self/exe").args(["child-tree", "0"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    group.attach(pid(&sleeper))?;
    // Once released it no longer ends with us: only the sweep can end it.
    release(&mut sleeper)?;
    println!("{} {}", sleeper.id(), group.name());
    loop {
        std::thread::park();
    }
}

fn child_wait() -> Check {
    wait_for_release()
}
