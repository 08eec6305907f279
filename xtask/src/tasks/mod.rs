//! `cargo xtask tasks`: tries what users type first, as tests/tasks describes it.
//!
//! ```text
//! tests/tasks/*.toml ─▶ for each user a home of its own ─▶ setup, first, then, after ─▶ verdict ─▶ docs/tasks.md
//! ```
//!
//! A user has one lane for commands and others for tasks at a terminal, which wait for most of their time; the tasks of a
//! lane run one after the other. Nothing is built: the programs are those of the last
//! debug build. Everything is made below one directory of /home (of the caller's home where that is not root's) and one
//! below /tmp for each user, and goes with the end of the run. Tasks with stand-ins run in a network of their lane.

mod attempt;
mod calls;
mod data;
mod home;
mod judge;
mod page;
mod process;
mod stand_ins;
mod terminal;
mod toolchains;

use std::collections::BTreeMap;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use attempt::Attempts;
use data::{Task, User};
use home::{Home, LANES, Place};
use judge::{Verdict, short};

use crate::Result;
use crate::bench::report::today;
use crate::parts::Counts;
use crate::shell::uid;
use crate::workspace::Workspace;

/// The verdicts by task and user.
type Results = BTreeMap<(String, User), Verdict>;

/// What the arguments say.
#[derive(Debug, Default, PartialEq)]
struct Options {
    /// Parts of ids, or names of files.
    filters: Vec<String>,
    /// Ids of tasks that must hold.
    must: Vec<String>,
    /// Writes the page.
    write: bool,
    /// Fetches what stand-ins have from real services, and tries nothing.
    fetch: bool,
    /// As whom.
    users: Vec<User>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options { users: vec![User::Root, User::Unprivileged], ..Options::default() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--write" => options.write = true,
                "--fetch" => options.fetch = true,
                "--must" => {
                    let ids = words.next().ok_or("--must needs ids, separated by commas")?;
                    options.must.extend(ids.split(',').map(str::to_owned));
                }
                "--users" => match words.next().map(String::as_str) {
                    Some("all") => {}
                    Some(name) => options.users = vec![User::named(name).ok_or("--users is root, 65534 or all")?],
                    None => return Err("--users needs root, 65534 or all".into()),
                },
                option if option.starts_with('-') => {
                    return Err(format!(
                        "unknown argument {option}; accepted: FILTER…, --must ID,…, --users USER, --write, --fetch"
                    ));
                }
                filter => options.filters.push(filter.to_owned()),
            }
        }
        if options.write && (!options.filters.is_empty() || !options.must.is_empty() || options.users.len() < 2) {
            return Err("--write writes the page of all tasks and users: leave filters, --must and --users out".into());
        }
        if options.fetch && arguments.len() > 1 {
            return Err("--fetch tries no tasks: leave all else out".into());
        }
        Ok(options)
    }

    /// Whether a task is to run: all do where no task is named.
    fn selects(&self, task: &Task) -> bool {
        let filtered = self.filters.iter().any(|filter| task.file == *filter || task.id.contains(filter.as_str()));
        let all = self.filters.is_empty() && self.must.is_empty();
        all || filtered || self.must.contains(&task.id)
    }
}

/// The entry of the task table.
pub(crate) fn run_from(arguments: &[String]) -> Result {
    let options = Options::parse(arguments)?;
    let workspace = Workspace::read()?;
    if options.fetch {
        return stand_ins::fetch(&workspace);
    }
    let tasks = data::read(&workspace.root.join("tests/tasks"))?;
    if let Some(id) = options.must.iter().find(|id| !tasks.iter().any(|task| task.id == **id)) {
        return Err(format!("no task is called {id}"));
    }
    let selected: Vec<Task> = tasks.into_iter().filter(|task| options.selects(task)).collect();
    if selected.is_empty() {
        return Err("no task is selected".into());
    }
    let results = run_all(&workspace, &selected, &options.users)?;
    report(&selected, &results, &options.users);
    if options.write {
        let page_file = workspace.root.join("docs/tasks.md");
        let text = page::page(&selected, &results, &today());
        std::fs::write(&page_file, text).map_err(|error| format!("cannot write {}: {error}", page_file.display()))?;
        println!("\nwritten to docs/tasks.md");
    }
    demand(&options.must, &results)
}

/// Tries the tasks of `tests/tasks/smoke.txt`, which have to hold.
pub(crate) fn smoke(workspace: &Workspace, counts: &mut Counts) -> Result {
    let directory = workspace.root.join("tests/tasks");
    let list = directory.join("smoke.txt");
    let list = std::fs::read_to_string(&list).map_err(|error| format!("cannot read {}: {error}", list.display()))?;
    let must: Vec<String> = list.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let mut tasks = data::read(&directory)?;
    if let Some(id) = must.iter().find(|id| !tasks.iter().any(|task| task.id == **id)) {
        return Err(format!("no task is called {id}"));
    }
    tasks.retain(|task| must.contains(&task.id));
    let users = if uid() == Some(0) { vec![User::Root, User::Unprivileged] } else { vec![User::Unprivileged] };
    let mut results = run_all(workspace, &tasks, &users)?;
    if std::env::var_os("COFFERDAM_MUST_WORK").is_none_or(|must| must != "1") {
        let before = results.len();
        results.retain(|_, verdict| !matches!(verdict, Verdict::NotRun(_)));
        counts.skipped += (before - results.len()) as u64;
    }
    for ((id, user), verdict) in &results {
        if matches!(verdict, Verdict::First | Verdict::Second) {
            counts.passed += 1;
        } else {
            counts.failed += 1;
            counts.failures.push(format!("{id} ({})", user.name()));
        }
    }
    report(&tasks, &results, &users);
    demand(&results.keys().map(|(id, _)| id.clone()).collect::<Vec<_>>(), &results)
}

/// Runs the tasks as all users, beside each other.
fn run_all(workspace: &Workspace, tasks: &[Task], users: &[User]) -> Result<Results> {
    let place = Place::new(workspace)?;
    let place = &place;
    std::thread::scope(|scope| {
        let started: Vec<_> =
            users.iter().map(|user| scope.spawn(move || run_as(workspace, place, tasks, *user))).collect();
        joined(started)
    })
}

/// Runs the tasks of a user in all lanes.
fn run_as(workspace: &Workspace, place: &Place, tasks: &[Task], user: User) -> Result<Results> {
    if user == User::Root && uid() != Some(0) {
        let of_user = tasks.iter().filter(|task| task.users.contains(&user));
        return Ok(of_user.map(|task| ((task.id.clone(), user), Verdict::NotRun("needs root".into()))).collect());
    }
    let homes = Home::make(place, user)?;
    std::thread::scope(|scope| {
        let started = homes.into_iter().enumerate().map(|(lane, home)| {
            let of_lane = tasks_of(tasks, user, lane);
            let stand_ins = place.stand_ins(workspace, user, lane);
            scope.spawn(move || run_lane(place, Attempts::new(home, stand_ins), of_lane, user))
        });
        joined(started.collect())
    })
}

/// The results of threads.
fn joined(threads: Vec<ScopedJoinHandle<'_, Result<Results>>>) -> Result<Results> {
    let parts = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("the runner panicked".into())));
    let mut results = Results::new();
    for part in parts.collect::<Vec<_>>() {
        results.extend(part?);
    }
    Ok(results)
}

/// The tasks of a user's lane: the first has the commands, the others take turns with those at a terminal.
fn tasks_of(tasks: &[Task], user: User, lane: usize) -> Vec<&Task> {
    let of_user = tasks.iter().filter(|task| task.users.contains(&user));
    let (terminal, command): (Vec<&Task>, Vec<&Task>) = of_user.partition(|task| task.terminal);
    match lane.checked_sub(1) {
        None => command,
        Some(turn) => terminal.into_iter().skip(turn).step_by(LANES - 1).collect(),
    }
}

fn run_lane(place: &Place, mut attempts: Attempts, tasks: Vec<&Task>, user: User) -> Result<Results> {
    let mut results = Results::new();
    for task in tasks {
        let begun = Instant::now();
        let verdict = match attempts.run(task)? {
            Verdict::Failed(reason) => Verdict::Failed(short(&place.shorten(&reason))),
            verdict => verdict,
        };
        let (word, reason) = words(&verdict);
        println!("{word:<8} {:<6} {:>6.1} s  {}{reason}", user.name(), begun.elapsed().as_secs_f64(), task.id);
        results.insert((task.id.clone(), user), verdict);
    }
    Ok(results)
}

/// A verdict's word, and its reason.
fn words(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::First => ("first", String::new()),
        Verdict::Second => ("second", String::new()),
        Verdict::Failed(reason) => ("failed", format!(": {reason}")),
        Verdict::NotRun(reason) => ("not run", format!(": {reason}")),
    }
}

/// How many held at first, held second, failed, and did not run.
fn totals(results: &Results, user: User) -> [usize; 4] {
    let mut counts = [0; 4];
    for verdict in results.iter().filter(|((_, of), _)| *of == user).map(|(_, verdict)| verdict) {
        counts[match verdict {
            Verdict::First => 0,
            Verdict::Second => 1,
            Verdict::Failed(_) => 2,
            Verdict::NotRun(_) => 3,
        }] += 1;
    }
    counts
}

/// Prints what failed, and the counts.
fn report(tasks: &[Task], results: &Results, users: &[User]) {
    println!("\nfailed:");
    for task in tasks {
        for user in users {
            if let Some(Verdict::Failed(reason)) = results.get(&(task.id.clone(), *user)) {
                println!("  {}: {} ({}): {reason}", task.file, task.id, user.name());
            }
        }
    }
    println!();
    for user in users {
        let [first, second, failed, not_run] = totals(results, *user);
        println!("{:>6}: {first} first, {second} second, {failed} failed, {not_run} not run", user.name());
    }
}

/// Demands that those tasks held, for every user that they were tried as.
fn demand(must: &[String], results: &Results) -> Result {
    let held = |verdict: &Verdict| matches!(verdict, Verdict::First | Verdict::Second);
    let lines: Vec<String> = results
        .iter()
        .filter(|((id, _), verdict)| must.contains(id) && !held(verdict))
        .map(|((id, user), verdict)| {
            let (word, reason) = words(verdict);
            format!("{id} ({}) must hold, and is {word}{reason}", user.name())
        })
        .collect();
    if let Some(id) = must.iter().find(|id| !results.keys().any(|(known, _)| known == *id)) {
        return Err(format!("{id} must hold, and no user of it was tried"));
    }
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        let both = vec![User::Root, User::Unprivileged];
        assert_eq!(parse("").unwrap(), Options { users: both, ..Options::default() });
        let options = parse("git npm --must a,b --users 65534").unwrap();
        assert_eq!((options.filters.len(), options.must.len(), options.users), (2, 2, vec![User::Unprivileged]));
        for wrong in ["--must", "--users", "--users me", "--all", "git --write", "--write --users root", "git --fetch"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tasks_are_selected_by_file_and_part_of_the_id() {
        let task = |file: &str, id: &str| Task { file: file.into(), id: id.into(), ..Task::default() };
        let ids = |options: &str| {
            let options = parse(options).unwrap();
            let tasks = [task("c", "make-it"), task("go", "go-build"), task("git", "git-log")];
            tasks.iter().filter(|task| options.selects(task)).map(|task| task.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids("").len(), 3);
        assert_eq!(ids("c"), ["make-it"]);
        assert_eq!(ids("build --must git-log"), ["go-build", "git-log"]);
        assert_eq!(ids("--must go-build"), ["go-build"]);
    }

    #[test]
    fn each_task_is_in_one_lane_of_each_of_its_users() {
        let task = |id: &str, terminal| Task { id: id.into(), terminal, users: vec![User::Root], ..Task::default() };
        let tasks = [task("a", true), task("b", false), task("c", true), task("d", true)];
        let ids = |user, lane| tasks_of(&tasks, user, lane).iter().map(|task| task.id.clone()).collect::<Vec<_>>();
        assert_eq!([0, 1, 2].map(|lane| ids(User::Root, lane).join(" ")), ["b", "a d", "c"]);
        assert!((0..LANES).all(|lane| ids(User::Unprivileged, lane).is_empty()));
    }

    #[test]
    fn what_must_hold_may_neither_fail_nor_stay_untried() {
        let of = |verdict| Results::from([(("a".to_owned(), User::Root), verdict)]);
        let must = ["a".to_owned()];
        assert_eq!(demand(&must, &of(Verdict::First)), Ok(()));
        assert_eq!(demand(&must, &of(Verdict::Second)), Ok(()));
        assert!(demand(&must, &of(Verdict::Failed("x".into()))).unwrap_err().ends_with("is failed: x"));
        assert!(demand(&must, &of(Verdict::NotRun("x".into()))).is_err());
        assert!(demand(&must, &Results::new()).is_err());
        assert_eq!(demand(&[], &of(Verdict::Failed("x".into()))), Ok(()));
    }
}
