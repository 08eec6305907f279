//! SIGKILL at random points: of the owner, of its init, of the program, of a server, of the evaluator.
//!
//! ```text
//! start a victim ─▶ wait a random time ─▶ SIGKILL one process of its tree ─▶ nothing of it runs, no mount is left
//!                                           └ not the owner: the owner reports it and ends by itself, or is killed next
//! every 50 rounds: one ordinary run; then no cgroup of a killed owner is left, and the audit trail verifies
//! ```
//!
//! This process is the subreaper: what loses its parent becomes its child, and is found even if it carries no marker.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid};

use crate::host::{Dice, carrying, cgroups_of, command, descendants, mounts, within};

/// How long the processes of a sandbox may outlive what ended it.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long an owner may take to end after its init or program was killed.
const OWNER: Duration = Duration::from_secs(20);
/// After how many rounds the next start's cleaning is checked.
const CHECK: u64 = 50;

/// What a program inside does: it leaves its session, ignores signals, stops itself, and waits.
const STUBBORN: &str = "setsid -f sleep 300; (trap '' 1 2 15; sleep 300) & (sleep 300 & kill -STOP $!); sleep 300";

/// What a server is asked: to run code that goes on until the server ends.
const CALL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run","arguments":{"env":"shell","#,
    r#""code":"setsid -f sleep 300; sleep 300"}}}"#,
    "\n",
);

/// What a round starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Run,
    CopyOnWrite,
    Allowlist,
    Audited,
    NoSpawn,
    Landlock,
    Profile,
    Server,
}

const VICTIMS: [Victim; 8] = [
    Victim::Run,
    Victim::CopyOnWrite,
    Victim::Allowlist,
    Victim::Audited,
    Victim::NoSpawn,
    Victim::Landlock,
    Victim::Profile,
    Victim::Server,
];

/// What came out of all rounds.
#[derive(Debug, Default)]
pub struct Report {
    /// Rounds that were run.
    pub rounds: u64,
    /// How often which process of which victim was killed.
    pub killed: BTreeMap<String, u64>,
    /// Rounds whose victim had ended before the signal.
    pub too_late: u64,
}

/// Files of a soak: a home of its own, so that nothing of the user's is touched and everything left is seen.
struct Home {
    directory: tempfile::TempDir,
    command: PathBuf,
}

impl Home {
    fn make() -> Result<Home, String> {
        let command = command()?;
        let directory = tempfile::Builder::new()
            .prefix("cofferdam-soak-")
            .tempdir_in("/var/tmp")
            .map_err(|error| format!("cannot make a directory in /var/tmp: {error}"))?;
        for name in ["home", "tmp", "project"] {
            let path = directory.path().join(name);
            fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        let profile = "let sandbox = import \"sandbox\" in sandbox.make_default_config \"soak\" & { cmd = [\"/bin/sleep\", \"300\"] }";
        let path = directory.path().join("project/soak.ncl");
        fs::write(&path, profile).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Home { directory, command })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn cofferdam(&self) -> Command {
        let mut command = Command::new(&self.command);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.path("home"));
        command.env("TMPDIR", self.path("tmp")).current_dir(self.path("project"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn victim(&self, victim: Victim, mark: &str) -> Command {
        let mut command = self.cofferdam();
        let mark = format!("MARK={mark}");
        if victim == Victim::Server {
            // Its own variables carry the marker; its input stays open as long as this process has it.
            command.args(["mcp"]).env("MARK", &mark).stdin(Stdio::piped());
            return command;
        }
        command.args(["run", "-q", "-e", &mark, "--timeout", "60s"]);
        match victim {
            Victim::CopyOnWrite => {
                command.args(["-v", "/usr/share:/usr/share:cow", "--deny", "/no/such/name", "--trace"])
            }
            Victim::Allowlist => command.args(["--allow", "example.org"]),
            Victim::Audited => command.arg("--audit-trail").arg(self.path("home").join("trail")),
            Victim::NoSpawn => command.args(["--no-spawn", "--network", "loopback", "--", "sleep", "300"]),
            Victim::Landlock => command
                .args(["--backend", "landlock", "--best-effort=filesystem,process,limits"])
                .args(["--root", "minimal", "-w", "/"]),
            // A new value each time, so that the evaluator runs and no cached policy is used.
            Victim::Profile => command
                .args(["--profile", "soak.ncl", "--set"])
                .arg(format!("timeout_seconds={}", 60 + mark.bytes().map(u64::from).sum::<u64>() % 900)),
            Victim::Run | Victim::Server => &mut command,
        };
        if !matches!(victim, Victim::NoSpawn | Victim::Profile) {
            command.args(["--", "sh", "-c", STUBBORN]);
        }
        command
    }
}

/// Kills for so many rounds.
///
/// # Errors
/// Says in which round what was left, with the seed that repeats it.
pub fn run(rounds: u64, seed: u64) -> Result<Report, String> {
    let home = Home::make()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("cannot become a subreaper: {error}"))?;
    let mut report = Report::default();
    let mut dice = Dice::new(seed);
    let mut owners = BTreeSet::new();
    let begun = Instant::now();
    for round in 0..rounds {
        let victim = VICTIMS[usize::try_from(dice.below(VICTIMS.len() as u64)).unwrap_or(0)];
        let mark = format!("cofferdam-soak-{}-{round}-end", std::process::id());
        one(&home, victim, &mark, &mut dice, &mut owners, &mut report)
            .map_err(|error| format!("round {round} of seed {seed}, {victim:?}: {error}"))?;
        report.rounds += 1;
        if report.rounds.is_multiple_of(CHECK) || report.rounds == rounds {
            check(&home, &mut owners).map_err(|error| format!("after round {round} of seed {seed}: {error}"))?;
        }
        if report.rounds.is_multiple_of(1000) {
            eprintln!("{} kills in {:?}", report.rounds, begun.elapsed());
        }
    }
    Ok(report)
}

/// Kills the one process of a run without spawning as soon as init has made it, often before its exec; how often it was there.
///
/// # Errors
/// Says what did not end by it.
pub fn before_exec(rounds: u64) -> Result<u64, String> {
    let home = Home::make()?;
    let mut killed = 0;
    for _ in 0..rounds {
        let mut owner =
            home.victim(Victim::NoSpawn, "before-exec").spawn().map_err(|e| format!("cannot start it: {e}"))?;
        let program = || {
            let init = *children(owner.id().cast_signed()).first()?;
            Pid::from_raw(*children(init).first()?)
        };
        let begun = Instant::now();
        let mut found = None;
        while found.is_none() && begun.elapsed() < OWNER {
            found = program();
        }
        let found = found.ok_or("no program was started")?;
        killed += u64::from(kill_process(found, Signal::KILL).is_ok());
        if !within(OWNER, || owner.try_wait().is_ok_and(|status| status.is_some())) {
            let left = names(&descendants(owner.id().cast_signed()));
            owner.kill().map_err(|error| format!("cannot kill the owner: {error}"))?;
            return Err(format!("the program was killed, and these run on: {left:?}"));
        }
    }
    Ok(killed)
}

/// The processes that the first thread of this one made. A single short file, unlike a walk through all of /proc.
fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn one(
    home: &Home,
    victim: Victim,
    mark: &str,
    dice: &mut Dice,
    owners: &mut BTreeSet<u32>,
    report: &mut Report,
) -> Result<(), String> {
    let mut child = home.victim(victim, mark).spawn().map_err(|error| format!("cannot start it: {error}"))?;
    if let Some(input) = &mut child.stdin {
        // One that was killed already reads nothing.
        drop(input.write_all(CALL.as_bytes()));
    }
    owners.insert(child.id());
    let owner = Pid::from_child(&child);
    // Most while the sandbox is built, which takes some milliseconds, and some while the program runs.
    let most = if dice.below(5) == 0 { 400_000 } else { 40_000 };
    std::thread::sleep(Duration::from_micros(dice.below(most)));
    let below = descendants(owner.as_raw_nonzero().get());
    // The first of them is init, or what was started before the plan was known. Killing it and the owner at once would end
    // both that could clean up, which only namespaces survive.
    let which = usize::try_from(dice.below(below.len().max(1) as u64)).unwrap_or(0);
    // Without namespaces and without a cgroup, which a user seldom has, init alone ends what left its session.
    let init_alone = victim == Victim::Landlock && !rustix::process::geteuid().is_root();
    let (name, target) = match (dice.below(3), below.get(which)) {
        (0 | 1, Some(_)) if init_alone => ("the owner", Some(owner)),
        (0, Some(_)) => ("its first child", Pid::from_raw(below[0])),
        (1, Some(_)) if which == 0 => ("its first child", Pid::from_raw(below[0])),
        (1, Some(pid)) => ("a descendant", Pid::from_raw(*pid)),
        _ => ("the owner", Some(owner)),
    };
    *report.killed.entry(format!("{victim:?}: {name}")).or_default() += 1;
    if target.is_none_or(|pid| kill_process(pid, Signal::KILL).is_err()) {
        report.too_late += 1;
    }
    // A descendant's end need not end the owner: a server goes on, and so does a shell whose child was killed. An owner may have
    // begun again with another init, when the killed one was made before the plan was known.
    let ends_the_owner = name == "its first child" && victim != Victim::Server && victim != Victim::Profile;
    if ends_the_owner && !ended(&mut child, OWNER, target)? {
        return Err(format!("init was killed, and its owner {} goes on without one", child.id()));
    }
    child.kill().map_err(|error| format!("cannot kill the owner: {error}"))?;
    child.wait().map_err(|error| format!("cannot wait for the owner: {error}"))?;
    let killed = Instant::now();
    while !childless() {
        if killed.elapsed() > AT_ONCE {
            // Those that were adopted, of which some may carry no mark.
            let adopted = descendants(std::process::id().cast_signed());
            return Err(format!("killed {name}; these run on: {:?}", names(&adopted)));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // One that another process of this user adopted is seen until that reaps it.
    if !within(AT_ONCE, || carrying(mark).is_empty()) {
        return Err(format!("killed {name}; these run on: {:?}", names(&carrying(mark))));
    }
    let left = mounts();
    if left.is_empty() { Ok(()) } else { Err(format!("killed {name}; these mounts are left: {left:?}")) }
}

/// What the next start has to have removed, and that the trail of so many interrupted runs is whole.
fn check(home: &Home, owners: &mut BTreeSet<u32>) -> Result<(), String> {
    let trail = home.path("home").join("trail");
    let mut next = home.cofferdam();
    next.args(["run", "--audit-trail"]).arg(&trail).args(["--", "true"]).stderr(Stdio::piped());
    expect_success(next)?;
    let left = cgroups_of(owners);
    if !left.is_empty() {
        return Err(format!("cgroups of killed owners are left: {left:?}"));
    }
    owners.clear();
    // The next server removes the sockets of killed ones.
    let mut next = home.cofferdam();
    next.arg("mcp").stderr(Stdio::piped());
    expect_success(next)?;
    let left = files(&home.path("tmp"));
    if !left.is_empty() {
        return Err(format!("temporary files are left: {left:?}"));
    }
    let mut verify = home.cofferdam();
    verify.args(["audit", "verify", "--dir"]).arg(&trail).stderr(Stdio::piped());
    expect_success(verify)
}

/// Everything below a directory that is no directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn expect_success(mut command: Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Whether an owner ends, or has another init than the one that was killed.
fn ended(child: &mut Child, patience: Duration, killed: Option<Pid>) -> Result<bool, String> {
    let begun = Instant::now();
    while begun.elapsed() < patience {
        let below = descendants(child.id().cast_signed());
        let another = !below.is_empty() && !below.iter().any(|pid| Pid::from_raw(*pid) == killed);
        match child.try_wait() {
            Ok(Some(_)) => return Ok(true),
            Ok(None) if another => return Ok(true),
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(format!("cannot wait for the owner: {error}")),
        }
    }
    Ok(false)
}

/// Reaps what has become a child of this process; whether no child is left.
fn childless() -> bool {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT) {
            Err(_) => return true, // ECHILD
            Ok(None) => return false,
            Ok(Some(_)) => match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            },
        }
    }
}

/// Processes with their names, for a message.
fn names(pids: &[i32]) -> Vec<String> {
    let name = |pid: &i32| {
        let directory = Path::new("/proc").join(pid.to_string());
        let text = |file: &str| {
            let bytes = fs::read(directory.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let status = text("status");
        let state = status.lines().filter(|line| line.starts_with("State") || line.starts_with("PPid"));
        let state: Vec<&str> = state.collect();
        format!("{pid} {}: {} in {}", state.join(" "), text("cmdline"), text("wchan"))
    };
    pids.iter().map(name).collect()
}
