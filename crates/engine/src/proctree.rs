//! A look at a running tree from outside, for hosts without a cgroup: memory, CPU time, processes. A sample, not a limit.

use std::collections::HashMap;
use std::fs;

/// One sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Memory of all processes that no file stands behind, shared pages counted once per process, bytes.
    pub memory_bytes: u64,
    /// User and system time of all processes and their reaped children, microseconds. A process that ended between two
    /// samples without a parent that waits for it counts as far as it was seen: no more than the truth.
    pub cpu_us: u64,
    /// Processes and threads below init.
    pub processes: u64,
}

/// Most processes looked at in one sample.
const MOST: usize = 4096;

/// Looks at every descendant of this process, once.
pub(crate) fn sample(root: i32) -> Sample {
    Sampler::default().sample(root)
}

/// Looks at a tree again and again, and remembers the CPU time of processes that have ended meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// CPU time of each process of the last sample, by its number and start, microseconds.
    alive: HashMap<(i32, u64), u64>,
    /// That of those that have ended since, as it was seen last.
    ended_us: u64,
}

impl Sampler {
    /// Looks at every descendant of this process.
    pub(crate) fn sample(&mut self, root: i32) -> Sample {
        let mut s = Sample::default();
        let mut alive = HashMap::new();
        let mut queue = vec![root];
        let mut looked = 0;
        while let Some(pid) = queue.pop() {
            looked += 1;
            if looked > MOST {
                break;
            }
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            let mut threads = 0;
            for task in tasks.flatten() {
                threads += 1;
                let Ok(children) = fs::read_to_string(task.path().join("children")) else { continue };
                queue.extend(children.split_whitespace().filter_map(|w| w.parse::<i32>().ok()));
            }
            if pid != root {
                s.processes += threads;
            }
            if let Some(numbers) = numbers(pid) {
                s.memory_bytes += numbers.memory_bytes;
                s.cpu_us += numbers.own_us + numbers.waited_us;
                alive.insert((pid, numbers.started), numbers.own_us);
            }
        }
        s.cpu_us = s.cpu_us.max(self.seen(alive));
        s
    }

    /// The CPU time of all processes that any sample has seen, of which these are alive. What a parent waited for is in its
    /// own figures as well, so that this is no addend to them.
    fn seen(&mut self, alive: HashMap<(i32, u64), u64>) -> u64 {
        let ended = self.alive.iter().filter(|(process, _)| !alive.contains_key(process));
        self.ended_us += ended.map(|(_, us)| us).sum::<u64>();
        self.alive = alive;
        self.ended_us + self.alive.values().sum::<u64>()
    }
}

/// The number that a process has in the innermost pid namespace it is in; 0 when it is gone.
pub(crate) fn pid_inside(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

/// The first process of a container, below the `runtime` that made it: the one of its nearest descendants that is in another
/// network namespace than the runtime.
pub(crate) fn container_init(runtime: i32) -> Option<i32> {
    let network = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = network(runtime)?;
    // A runtime without root has a process of its own in between.
    let mut pids = vec![runtime];
    for _ in 0..2 {
        pids = pids.into_iter().flat_map(children).collect();
        let found = pids.iter().find(|&&pid| network(pid).is_some_and(|of_it| of_it != own));
        if found.is_some() {
            return found.copied();
        }
    }
    None
}

/// The children of all threads of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().filter_map(|w| w.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Kills every descendant of this process, which must be the one that orphans among them fall to.
///
/// A pid that is below it both before and after its pidfd was opened is the one meant.
pub(crate) fn kill(root: i32) {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    for _ in 0..100 {
        let pids = descendants(root);
        let opened: Vec<_> = pids
            .iter()
            .filter_map(|&pid| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?)))
            .collect();
        let still = descendants(root);
        let sent = opened.iter().filter(|(pid, _)| still.contains(pid));
        // Zombies take no signal, and have nothing below them.
        if sent.filter(|(pid, fd)| !is_zombie(*pid) && pidfd_send_signal(fd, Signal::KILL).is_ok()).count() == 0 {
            return;
        }
    }
}

fn is_zombie(pid: i32) -> bool {
    let stat = text(&format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')').is_none_or(|at| stat[at..].starts_with(") Z"))
}

/// Every process below this one, at about this moment.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut queue = vec![root];
    while let Some(pid) = queue.pop() {
        let children = children(pid);
        found.extend_from_slice(&children);
        queue.extend(children);
    }
    found
}

/// A file of procfs as text: a process may call itself by any bytes.
fn text(path: &str) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Threads that a user runs here, as far as they can be seen. RLIMIT_NPROC counts them all (getrlimit(2)).
pub(crate) fn threads_of(uid: u32) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    // A directory of /proc has a link for each directory in it, and two of its own.
    let threads = processes.filter_map(|p| {
        fs::metadata(p.path().join("task")).ok().filter(|m| m.uid() == uid).map(|m| m.nlink().saturating_sub(2))
    });
    threads.sum()
}

/// What one process takes.
struct Numbers {
    memory_bytes: u64,
    /// CPU time of its own, microseconds.
    own_us: u64,
    /// That of children that it waited for.
    waited_us: u64,
    /// When it started, in clock ticks since the boot.
    started: u64,
}

/// `None` when the process is gone.
fn numbers(pid: i32) -> Option<Numbers> {
    // Private pages, and shared ones that no file stands behind: those are memory as well.
    let memory_bytes = of_a_living_thread(pid, "status", &["RssAnon:", "RssShmem:"]).unwrap_or(0);
    let stat = text(&format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; the numbers follow its last parenthesis. `proc_pid_stat(5)` counts from 1,
    // and the state, which follows first, is 3.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = |first: usize| Some((field(first)? + field(first + 1)?) * 10_000);
    Some(Numbers { memory_bytes, own_us: ticks(14)?, waited_us: ticks(16)?, started: field(22)? })
}

/// The sum of these lines of a file about a process's memory. A process whose first thread has ended goes on in its others,
/// and only their files have figures then.
fn of_a_living_thread(pid: i32, file: &str, names: &[&str]) -> Option<u64> {
    let read = |path: &str| text(path).and_then(|text| kilobytes(&text, names));
    read(&format!("/proc/{pid}/{file}")).or_else(|| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.take(MOST).find_map(|task| read(task.path().join(file).to_str()?))
    })
}

/// Memory of every descendant with shared pages divided among those who share them, bytes: what a sample above a limit is
/// held against, because it takes long. A process that cannot be asked counts as sampled.
pub(crate) fn memory(root: i32) -> u64 {
    let of = |pid: i32| {
        let exact = of_a_living_thread(pid, "smaps_rollup", &["Pss_Anon:", "Pss_Shmem:"]);
        exact.or_else(|| numbers(pid).map(|numbers| numbers.memory_bytes)).unwrap_or(0)
    };
    descendants(root).into_iter().map(of).sum()
}

/// The sum of lines such as `RssAnon:  12 kB`, in bytes; `None` when none of them is there.
fn kilobytes(text: &str, names: &[&str]) -> Option<u64> {
    let lines = text.lines().filter_map(|l| names.iter().find_map(|n| l.strip_prefix(n)));
    let values = lines.filter_map(|v| v.split_whitespace().next()?.parse::<u64>().ok());
    values.fold(None, |sum, v| Some(sum.unwrap_or(0) + v * 1024))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Sampler, kilobytes, memory, numbers, threads_of};

    #[test]
    fn threads_are_counted_by_user() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || wait.recv());
        let mine = threads_of(rustix::process::geteuid().as_raw());
        assert!(mine >= 3, "{mine}: the harness, this test and its thread");
        drop(go);
        assert!(waiting.join().unwrap().is_err(), "nothing is ever sent");
        assert_eq!(threads_of(u32::MAX - 7), 0);
    }

    #[test]
    fn memory_is_read_from_lines_and_missing_ones_are_not_zero() {
        let names = ["RssAnon:", "RssShmem:"];
        assert_eq!(
            kilobytes("Name:\tx\nRssAnon:\t  12 kB\nRssFile:\t 7 kB\nRssShmem:\t3 kB\n", &names),
            Some(15 << 10)
        );
        assert_eq!(kilobytes("Name:\tRssAnon: 9 kB\n", &names), None);
    }

    #[test]
    fn what_has_ended_counts_as_it_was_seen_last() {
        let mut sampler = Sampler::default();
        let alive = |processes: &[(i32, u64, u64)]| -> HashMap<(i32, u64), u64> {
            processes.iter().map(|&(pid, started, us)| ((pid, started), us)).collect()
        };
        assert_eq!(sampler.seen(alive(&[(1, 5, 10), (2, 6, 300)])), 310);
        assert_eq!(sampler.seen(alive(&[(1, 5, 20), (2, 9, 40)])), 360, "the number 2 is another process now");
        assert_eq!(sampler.seen(alive(&[(1, 5, 20)])), 360);
    }

    #[test]
    fn this_process_has_memory_and_no_children() {
        let pid = std::process::id() as i32;
        assert!(numbers(pid).is_some_and(|numbers| numbers.memory_bytes > 0 && numbers.started > 0));
        assert_eq!(memory(i32::MAX), 0);
    }
}
