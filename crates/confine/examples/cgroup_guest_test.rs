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
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cofferdam_confine::cgroup::{
    self, AppliedLimits, Availability, Cgroup, CgroupLimits, CgroupLocation, LimitLevel, OomCause, Reached,
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
        Some("child-hold") => child_hold(number(1)),
        Some("child-inside") => child_inside(),
        Some("child-cap") => child_cap(args.get(1).map_or("", String::as_str)),
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
    let checks: [(&str, OneCheck); 11] = [
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
        ("all runs of a user together stay below their cap", cap),
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
    // What lies beside the directory over all runs, as before there was one.
    if let Some(cap) = location.memory_cap() {
        let above = Path::new(&cap?.place).parent().ok_or("no parent")?.join(name);
        std::fs::create_dir(&above)?;
        let report = cgroup::sweep(location);
        ensure!(report.removed == 1 && report.failed.is_empty() && !above.exists(), "beside: {report:?}");
    }
    Ok(())
}

/// The cap of the private tree in which [`cap`] runs others, and the limit of each run in it.
const CAP: u64 = 96 * MIB;
const EACH: u64 = 80 * MIB;

/// Works in a tree of its own, so that nobody else's runs meet the lowered cap.
fn cap(location: &CgroupLocation) -> Check {
    let Some(found) = location.memory_cap() else {
        println!("skipped: no memory controller");
        return Ok(());
    };
    let found = found?;
    let own = format!("cofferdam-user-{}", rustix::process::geteuid().as_raw());
    ensure!(found.place.ends_with(&own) && found.gap.is_none(), "{found:?}");
    ensure!(found.bytes < machine() && found.bytes >= 256 * MIB, "{found:?} of {}", machine());
    let (group, _) = Cgroup::create(location, &CgroupLimits { memory_bytes: Some(EACH), ..CgroupLimits::default() })?;
    ensure!(Path::new(&found.place).join(group.name()).is_dir(), "a run's directory is below {}", found.place);
    group.remove()?;

    let private = Path::new(&found.place).with_file_name(format!("cofferdam-test-{}", std::process::id()));
    std::fs::create_dir(&private)?;
    let v1 = private.join("memory.limit_in_bytes").exists();
    // By this name it is found to be a leaf of ours also where systemd, which has not delegated the one above, is there.
    let leaf = if v1 { private.clone() } else { private.join("cofferdam-supervisor") };
    if !v1 {
        std::fs::create_dir(&leaf)?;
        std::fs::write(private.join("cgroup.subtree_control"), "+memory +pids")?;
    }
    let middle = private.join(&own);
    let limit = middle.join(if v1 { "memory.limit_in_bytes" } else { "memory.max" });
    let result = cap_in(&leaf, &middle, &limit);
    for directory in [&middle, &leaf, &private] {
        if directory.exists() {
            std::fs::remove_dir(directory).map_err(|error| format!("{}: {error}; {result:?}", directory.display()))?;
        }
    }
    result
}

fn cap_in(leaf: &Path, middle: &Path, limit: &Path) -> Check {
    let expect = |whats: &[&str]| -> Check {
        let mut children = Vec::new();
        for what in whats {
            let child = start(&["child-cap", what])?;
            std::fs::write(leaf.join("cgroup.procs"), child.id().to_string())?;
            children.push(child);
        }
        children.iter_mut().try_for_each(release)?;
        for child in children {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "{whats:?}: {}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(())
    };
    let read = || -> Result<u64, Box<dyn std::error::Error>> { Ok(std::fs::read_to_string(limit)?.trim().parse()?) };
    // Many at the same moment make one directory, with the limit in effect for each of them.
    expect(&["share"; 8])?;
    let share = read()?;
    ensure!(share < machine(), "{share}");
    std::fs::write(limit, CAP.to_string())?;
    if limit.ends_with("memory.max") {
        // As where it was made before these could be enabled.
        std::fs::write(middle.join("cgroup.subtree_control"), "-cpu -pids")?;
    }
    expect(&["lowered"])?;
    ensure!(read()? == CAP, "{}", read()?);
    // One that is no limit for this machine is replaced, one below its memory stays.
    std::fs::write(limit, (machine() + 64 * MIB).to_string())?;
    expect(&["share"])?;
    ensure!(read()? == share, "{}", read()?);
    let other = (machine() - 8 * MIB) / 4096 * 4096;
    std::fs::write(limit, other.to_string())?;
    expect(&["share"])?;
    ensure!(read()? == other, "{}", read()?);
    // A directory that others can write is not used.
    let mode = |mode| std::fs::set_permissions(middle, std::os::unix::fs::PermissionsExt::from_mode(mode));
    mode(0o775)?;
    expect(&["refused"])?;
    mode(0o755)?;
    expect(&["removed"])?;
    ensure!(read()? == share, "made anew: {}", read()?);
    expect(&["share"])
}

/// Bytes of memory that this machine has.
fn machine() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

fn child_cap(what: &str) -> Check {
    wait_for_release()?;
    let location = cgroup::probe().prepare()?;
    let found = location.memory_cap().ok_or("no memory controller")?;
    match what {
        "share" => {
            let found = found?;
            ensure!(found.bytes < machine() && found.place.contains("cofferdam-test-"), "{found:?}");
            Ok(())
        }
        // As "share", and the directory is removed under one that goes on to use it.
        "removed" => {
            let place = &found?.place;
            std::fs::remove_dir(place)?;
            let (group, status, _) = run(&location, EVERYTHING, &["child-alloc", "1"])?;
            ensure!(status.success() && Path::new(place).join(group.name()).is_dir(), "{status}");
            Ok(group.remove()?)
        }
        "refused" => {
            let reason = found.err().ok_or("used all the same")?;
            ensure!(reason.contains("can be written by others"), "{reason}");
            let (group, status, _) = run(&location, EVERYTHING, &["child-alloc", "1"])?;
            ensure!(status.success(), "{status}");
            Ok(group.remove()?)
        }
        "lowered" => {
            ensure!(found?.bytes == CAP, "{found:?}");
            together(&location)
        }
        other => Err(format!("unknown: {other}").into()),
    }
}

fn child_inside() -> Check {
    wait_for_release()?;
    match cgroup::probe().memory_cap().ok_or("no memory controller")? {
        Err(reason) => ensure!(reason.contains("itself in the cgroup of a run"), "{reason}"),
        Ok(found) => ensure!(found.place.matches("cofferdam-user-").count() <= 1, "{found:?}"),
    }
    Ok(())
}

/// Three runs that are within their own limits, two of which are not within the cap; and one beyond its own.
fn together(location: &CgroupLocation) -> Check {
    let (group, status, _) = run(location, EVERYTHING, &["child-alloc", "1"])?;
    ensure!(status.success() && group.oom_cause()?.is_none(), "{status}");
    group.remove()?;
    // Inside a run nothing is made in its directory, which could not be removed then.
    let (group, status, text) = run(location, EVERYTHING, &["child-inside"])?;
    ensure!(status.success(), "{status} {text}");
    group.remove()?;
    let limits = CgroupLimits { memory_bytes: Some(EACH), ..CgroupLimits::default() };
    let mut runs = Vec::new();
    for mib in ["16", "50", "50"] {
        let (group, applied) = Cgroup::create(location, &limits)?;
        require(&limits, &applied)?;
        let mut child = start(&["child-hold", mib])?;
        group.attach(pid(&child))?;
        let mut output = std::io::BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let mut input = child.stdin.take().ok_or("no stdin")?;
        input.write_all(b"go\n")?;
        let mut line = String::new();
        output.read_line(&mut line)?;
        runs.push((group, child, input, line));
    }
    let mut ends = Vec::new();
    for (group, mut child, mut input, line) in runs {
        // The one that was killed does not read.
        let sent = input.write_all(b"go\n");
        drop(input);
        let status = child.wait()?;
        println!("{:?}: {line:?} {sent:?} {status} {:?} {:?}", group.oom_cause()?, group.usage()?, group.events()?);
        ends.push((status.success(), group.oom_cause()?));
        group.remove()?;
    }
    ensure!(ends[0] == (true, None), "the one within both limits: {ends:?}");
    let killed = ends.iter().filter(|end| **end == (false, Some(OomCause::AllRunsLimit(CAP)))).count();
    let went_on = ends.iter().filter(|end| **end == (true, None)).count();
    ensure!(killed == 1 && went_on == 2, "{ends:?}");
    let place = &location.memory_cap().ok_or("no cap")??.place;
    let peak = ["memory.max_usage_in_bytes", "memory.peak"]
        .iter()
        .find_map(|file| std::fs::read_to_string(Path::new(place).join(file)).ok()?.trim().parse::<u64>().ok());
    ensure!(peak.is_none_or(|peak| peak <= CAP), "{peak:?}");
    // Beyond its own limit, in a directory that has met its cap before.
    let limits = CgroupLimits { memory_bytes: Some(32 * MIB), ..CgroupLimits::default() };
    let (group, status, _) = run(location, limits, &["child-alloc", "64"])?;
    ensure!(!status.success() && group.oom_cause()? == Some(OomCause::OwnLimit), "{status} {:?}", group.oom_cause()?);
    Ok(group.remove()?)
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

/// Has so much memory until it is released again.
fn child_hold(mib: u64) -> Check {
    wait_for_release()?;
    let pages: Vec<_> = (0..mib).map(|_| std::hint::black_box(vec![1u8; 1 << 20])).collect();
    println!("held");
    wait_for_release()?;
    drop(std::hint::black_box(pages));
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
