//! One test per attack, backend and user; afterwards the table under docs/ is compared, or written with
//! `COFFERDAM_UPDATE=1`. Skips print their reason; `COFFERDAM_MUST_WORK=1` makes them failures.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_escape::attack::Class;
use cofferdam_escape::classes;
use cofferdam_escape::host::Host;
use cofferdam_escape::judge::{Cell, backend_missing, backend_name, trial};
use cofferdam_escape::report::{COLUMNS, Cells, page, totals};
use libtest_mimic::{Arguments, Failed, Trial};

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
    match attacks.iter().find(|a| a.why.is_empty() || a.fields.is_empty() || a.args.is_empty()) {
        Some(attack) => Err(format!("{} is incomplete", attack.name).into()),
        None => Ok(()),
    }
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
    let mut trials = vec![Trial::test("the_table_is_sound", table_is_sound)];
    for attack in &attacks {
        for (at, (backend, user)) in COLUMNS.iter().copied().enumerate() {
            let (attack, cells, host) = (*attack, Arc::clone(&cells), host.clone());
            let name = format!("{:?}::{}::{}::{}", attack.class, attack.name, backend_name(backend), user.name());
            trials.push(Trial::test(name.clone(), move || {
                let host = host.as_deref().ok_or("listing only")?;
                let missing =
                    host.user_missing(user).map(str::to_owned).or_else(|| backend_missing(host, backend, user));
                if let Some(reason) = missing {
                    eprintln!("skipped {name}: {reason}");
                    return if is_set("COFFERDAM_MUST_WORK") {
                        Err(format!("skipped: {reason}").into())
                    } else {
                        Ok(())
                    };
                }
                let cell = trial(host, &attack, backend, user);
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
    let table = table(&attacks, &cells);
    if conclusion.has_failed() || !table { ExitCode::from(101) } else { ExitCode::SUCCESS }
}

/// Compares or writes the page, when every cell was tried. False when the committed page is another.
fn table(attacks: &[cofferdam_escape::attack::Attack], cells: &Cells) -> bool {
    for (at, (backend, user)) in COLUMNS.iter().enumerate() {
        let [held, not_claimed, none, bad] = totals(cells, at);
        if held + not_claimed + none + bad > 0 {
            let column = format!("{}, {}", backend_name(*backend), user.name());
            println!("{column}: {held} held, {not_claimed} not claimed, {none} without a victim here, {bad} bad");
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/escape-table.md");
    if cells.len() < attacks.len() * COLUMNS.len() {
        if !cells.is_empty() {
            println!("{} is not compared: not every cell was tried", file.display());
        }
        return true;
    }
    let new = page(attacks, cells);
    if is_set("COFFERDAM_UPDATE") {
        return match std::fs::write(&file, new) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("cannot write {}: {error}", file.display());
                false
            }
        };
    }
    let same = std::fs::read_to_string(&file).is_ok_and(|old| old == new);
    if !same {
        eprintln!("{} is out of date\nhint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-escape", file.display());
    }
    same
}
