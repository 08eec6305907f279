//! One test per program, level and user, and the page under docs/, which is compared, or written with
//! `COFFERDAM_UPDATE=1`. Skips print their reason; `COFFERDAM_MUST_WORK=1` makes them failures.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use cofferdam_programs::host::{Host, USERS, User, missing};
use cofferdam_programs::page::page;
use cofferdam_programs::program::LEVELS;
use cofferdam_programs::table::{TABLE, may_work_nowhere};
use cofferdam_programs::trial::{command, finish, trial};
use libtest_mimic::{Arguments, Failed, Trial};

type Verdict = Result<(), Failed>;

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| v == "1")
}

fn skip(reason: &str) -> Verdict {
    eprintln!("skipped: {reason}");
    if is_set("COFFERDAM_MUST_WORK") { Err(format!("skipped: {reason}").into()) } else { Ok(()) }
}

fn the_table_is_sound() -> Verdict {
    let ids: BTreeSet<String> = TABLE.iter().map(|program| program.id()).collect();
    if ids.len() != TABLE.len() {
        return Err("two programs have one name".into());
    }
    match TABLE.iter().find(|p| p.what.is_empty() || p.call.is_empty() || p.prints.is_empty() || !may_work_nowhere(p)) {
        Some(program) => Err(format!("{} is incomplete, or works nowhere", program.id()).into()),
        None if TABLE.is_sorted_by_key(|p| p.group) => Ok(()),
        None => Err("the table is not in the order of its groups".into()),
    }
}

fn the_page_is_up_to_date() -> Verdict {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md");
    let new = page(TABLE);
    if is_set("COFFERDAM_UPDATE") {
        return std::fs::write(&file, new).map_err(|e| format!("cannot write {}: {e}", file.display()).into());
    }
    if std::fs::read_to_string(&file).is_ok_and(|old| old == new) {
        return Ok(());
    }
    Err(format!("{} is out of date\nhint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-programs", file.display()).into())
}

/// A Python that only others can reach, first on the PATH: the next one is taken, and where there is none, it is said.
fn an_interpreter_that_cannot_be_read_is_passed_over(host: &Host) -> Verdict {
    if !host.root {
        return skip("the suite does not run as root");
    }
    if let Some(need) = missing(&["/usr/bin/python3"]) {
        return skip(&format!("{need} is missing"));
    }
    let closed = host.closed_python()?;
    let eval = |path: &str| {
        let command_file = host.cofferdam.display().to_string();
        let line = ["/usr/bin/env", &format!("PATH={path}"), &command_file, "eval", "python", "print(6*7)"];
        finish(command(host, User::Unprivileged, &line.map(str::to_owned), Path::new("/")))
    };
    let closed = closed.display();
    let next = eval(&format!("{closed}:/usr/bin:/bin"))?;
    if next.code != 0 || next.output != "42\n" {
        return Err(format!("ended with {}:\n{}", next.code, next.output).into());
    }
    let none = eval(&format!("{closed}:/nonexistent"))?;
    if none.code != 127 || !none.output.contains("no python3 or python was found") {
        return Err(format!("ended with {}:\n{}", none.code, none.output).into());
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Two processors' worth, and some of a trial is waiting.
    arguments.test_threads = arguments.test_threads.or(Some(3));
    let host = if arguments.list {
        None
    } else {
        match Host::set_up() {
            Ok(host) => Some(Arc::new(host)),
            Err(message) => {
                eprintln!("the programs cannot be tried: {message}");
                return ExitCode::FAILURE;
            }
        }
    };
    let mut trials = vec![
        Trial::test("the_table_is_sound", the_table_is_sound),
        Trial::test("the_page_is_up_to_date", the_page_is_up_to_date),
    ];
    let shared = host.clone();
    trials.push(Trial::test("an_interpreter_that_cannot_be_read_is_passed_over", move || {
        an_interpreter_that_cannot_be_read_is_passed_over(shared.as_deref().ok_or("listing only")?)
    }));
    for program in TABLE {
        for (level, level_name) in LEVELS.into_iter().enumerate() {
            for user in USERS {
                let host = host.clone();
                let name = format!("{}::{level_name}::{}", program.id(), user.name());
                trials.push(Trial::test(name, move || {
                    let host = host.as_deref().ok_or("listing only")?;
                    if user == User::Root && !host.root {
                        return skip("the suite does not run as root");
                    }
                    if let Some(need) = missing(program.needs) {
                        return skip(&format!("{need} is missing"));
                    }
                    trial(host, program, level, user).map_err(Failed::from)
                }));
            }
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    drop(host);
    if conclusion.has_failed() { ExitCode::from(101) } else { ExitCode::SUCCESS }
}
