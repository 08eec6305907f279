//! One test per attack, backend and user; afterwards the table under docs/ is compared, or written with
//! `COFFERDAM_UPDATE=1`. Skips print their reason; `COFFERDAM_MUST_WORK=1` makes them failures.
//!
//! An attack that worked fails its test at once. A trial that proves nothing, because a victim, a twin or an engine failed, is
//! made once more with no other beside it; which these were and why is printed last, and more than a few are a failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cofferdam_escape::attack::{Attack, Class};
use cofferdam_escape::classes;
use cofferdam_escape::host::{Host, User};
use cofferdam_escape::judge::{Cell, backend_missing, backend_name, trial};
use cofferdam_escape::launch::{ABSENT, NSJAIL};
use cofferdam_escape::report::{
    COLUMNS, Cells, FURTHER, origin, outline, page, summary, totals, verdicts, with_totals,
};
use cofferdam_policy::BackendName;
use libtest_mimic::{Arguments, Failed, Trial};

/// Trials of a whole run that may be made a second time.
const SECOND_TRIES: usize = 4;

/// The trials that proved nothing at first, and why.
type Repeated = Arc<Mutex<Vec<String>>>;

/// Makes a trial, and once more by itself if it proves nothing.
fn tried(alone: &RwLock<()>, repeated: &Repeated, name: &str, trial: impl Fn() -> Cell) -> Cell {
    let first = {
        let _beside = alone.read().unwrap_or_else(PoisonError::into_inner);
        trial()
    };
    let Cell::Broken(why) = &first else { return first };
    {
        let mut repeated = repeated.lock().unwrap_or_else(PoisonError::into_inner);
        repeated.push(format!("{name}: {why}"));
        if repeated.len() > SECOND_TRIES {
            return first;
        }
    }
    let _alone = alone.write().unwrap_or_else(PoisonError::into_inner);
    trial()
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| v == "1")
}

fn table_is_sound() -> Result<(), Failed> {
    let attacks = classes::all();
    let names: BTreeSet<&str> = attacks.iter().map(|a| a.name).collect();
    if names.len() != attacks.len() {
        return Err("two attacks have one name".into());
    }
    if attacks.len() < 120 {
        return Err(format!("{} attacks, of at least 120", attacks.len()).into());
    }
    for class in attacks.iter().map(|a| a.class).collect::<BTreeSet<Class>>() {
        let count = attacks.iter().filter(|a| a.class == class).count();
        if count < 4 {
            return Err(format!("{}: {count} attacks, of at least four", class.title()).into());
        }
    }
    let security = include_str!("../../../SECURITY.md");
    let undocumented = |a: &&Attack| a.documented.is_some_and(|heading| !security.contains(&format!("**{heading}.**")));
    if let Some(attack) = attacks.iter().find(undocumented) {
        return Err(format!("{}: SECURITY.md has no such paragraph", attack.name).into());
    }
    match attacks.iter().find(|a| a.why.is_empty() || a.fields.is_empty() || a.args.is_empty()) {
        Some(attack) => Err(format!("{} is incomplete", attack.name).into()),
        None => Ok(()),
    }
}

/// Where a container runtime is missing the judge itself calls nothing held, and nothing a promise that is not made: whoever forgot to
/// look for it first would still see every attack fail.
fn what_is_missing_holds_nothing(host: &Host, attacks: &[Attack]) -> Result<(), Failed> {
    let user = if host.root { User::Root } else { User::Unprivileged };
    if backend_missing(host, ABSENT, user).is_none() {
        return Err(format!("{} is there, though a program that is not was named", backend_name(ABSENT)).into());
    }
    // One of each way of being judged.
    let mut judged = Vec::new();
    for attack in attacks.iter().filter(|a| host.root_missing(a).is_none()) {
        let way = (std::mem::discriminant(&attack.proof), attack.held, attack.streams, attack.caller.is_empty());
        if judged.contains(&way) {
            continue;
        }
        judged.push(way);
        let cell = trial(host, attack, ABSENT, user);
        if matches!(cell, Cell::Held(_) | Cell::NotClaimed(_)) {
            return Err(format!("{}: {cell:?}", attack.name).into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Most of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(4));
    let attacks = classes::all();
    let host = if arguments.list {
        None
    } else {
        match Host::set_up() {
            Ok(host) => Some(Arc::new(host)),
            Err(message) => {
                eprintln!("the attacks cannot be tried: {message}");
                return ExitCode::FAILURE;
            }
        }
    };
    let cells: Arc<Mutex<Cells>> = Arc::default();
    let (alone, repeated): (Arc<RwLock<()>>, Repeated) = Default::default();
    let further = further();
    let mut trials = vec![Trial::test("the_table_is_sound", table_is_sound)];
    let (all, of) = (attacks.clone(), host.clone());
    trials.push(Trial::test("what_is_missing_holds_nothing", move || {
        what_is_missing_holds_nothing(of.as_deref().ok_or("listing only")?, &all)
    }));
    for attack in &attacks {
        for (at, (backend, user)) in COLUMNS.iter().chain(&further).copied().enumerate() {
            let (attack, cells, host) = (*attack, Arc::clone(&cells), host.clone());
            let (alone, repeated) = (Arc::clone(&alone), Arc::clone(&repeated));
            let name = format!("{:?}::{}::{}::{}", attack.class, attack.name, backend_name(backend), user.name());
            trials.push(Trial::test(name.clone(), move || {
                let host = host.as_deref().ok_or("listing only")?;
                let missing = host.user_missing(user).or_else(|| host.root_missing(&attack));
                let missing = missing.map(str::to_owned).or_else(|| backend_missing(host, backend, user));
                if let Some(reason) = missing {
                    eprintln!("skipped {name}: {reason}");
                    return if is_set("COFFERDAM_MUST_WORK") {
                        Err(format!("skipped: {reason}").into())
                    } else {
                        Ok(())
                    };
                }
                let cell = tried(&alone, &repeated, &name, || trial(host, &attack, backend, user));
                if is_set("COFFERDAM_VERBOSE") {
                    eprintln!("{name}: {cell:?}");
                }
                let result = match &cell {
                    Cell::Held(_) | Cell::NotClaimed(_) | Cell::NoVictim(_) => Ok(()),
                    Cell::Hole(how) => Err(format!("HOLE: {how}").into()),
                    Cell::Broken(how) => Err(format!("proves nothing: {how}").into()),
                };
                cells.lock().unwrap_or_else(PoisonError::into_inner).insert((attack.name, at), cell);
                result
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(host);
    let cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
    show(&cells);
    let table = table(&attacks, &cells);
    for trial in repeated.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("proved nothing at the first try: {trial}");
    }
    if conclusion.has_failed() || !table { ExitCode::from(101) } else { ExitCode::SUCCESS }
}

/// Compares or writes the page and the totals in `README.md`. False when what is committed is another.
///
/// Cells are compared on the kind of host on which the page was made, rows on every one; the words of reasons on none, for
/// they are the backends' own.
fn table(attacks: &[Attack], cells: &Cells) -> bool {
    let complete = cells.keys().filter(|(_, at)| *at < COLUMNS.len()).count() == attacks.len() * COLUMNS.len();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !root.is_dir() {
        println!("docs/escape-table.md: not compared, because the sources are not on this machine");
        return true;
    }
    let (page_file, readme_file) = (root.join("docs/escape-table.md"), root.join("README.md"));
    let read = |file: &Path| std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()));
    let (old, readme) = match (read(&page_file), read(&readme_file)) {
        (Ok(old), Ok(readme)) => (old, readme),
        (old, Ok(readme)) if is_set("COFFERDAM_UPDATE") => (old.unwrap_or_default(), readme),
        (Err(message), _) | (_, Err(message)) => {
            eprintln!("{message}");
            return false;
        }
    };
    let new = page(attacks, cells);
    let told = with_totals(&readme, &summary(attacks, cells));
    if is_set("COFFERDAM_UPDATE") {
        let bad = (0..COLUMNS.len()).any(|at| totals(cells, at)[3] > 0);
        if bad || !complete {
            eprintln!("the table is not written: it takes the whole suite, as root, without a failure");
            return false;
        }
        let Some(told) = told else {
            eprintln!("README.md has no markers for the totals");
            return false;
        };
        return [(page_file, new), (readme_file, told)].iter().all(|(file, text)| {
            std::fs::write(file, text).map_err(|e| eprintln!("cannot write {}: {e}", file.display())).is_ok()
        });
    }
    let same = if !complete {
        println!("docs/escape-table.md: cells are not compared, because not every one was tried");
        outline(&old) == outline(&new)
    } else if origin(&old) != origin(&new) {
        println!("docs/escape-table.md: cells are not compared, because it was made on another kind of host");
        outline(&old) == outline(&new)
    } else {
        verdicts(&old) == verdicts(&new) && told.is_some_and(|told| told == readme)
    };
    if !same {
        eprintln!("docs/escape-table.md or README.md is out of date");
        eprintln!("hint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-escape");
    }
    same
}

/// Columns that are tried and not in the table.
fn further() -> Vec<(BackendName, User)> {
    let nsjail = std::env::var_os(NSJAIL).is_some().then_some(FURTHER);
    nsjail.into_iter().flatten().collect()
}

/// The sum of each column, for whoever watches.
fn show(cells: &Cells) {
    for (at, (backend, user)) in COLUMNS.iter().chain(&further()).enumerate() {
        let [held, not_claimed, none, bad] = totals(cells, at);
        if held + not_claimed + none + bad > 0 {
            let column = format!("{}, {}", backend_name(*backend), user.name());
            println!("{column}: {held} held, {not_claimed} not claimed, {none} without a victim here, {bad} bad");
        }
    }
}
