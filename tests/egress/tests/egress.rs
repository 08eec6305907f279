//! One test per client or attempt and user, and the page under docs/, which is compared, or written with
//! `COFFERDAM_UPDATE=1`. Skips print their reason; `COFFERDAM_MUST_WORK=1` makes them failures.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_egress_tests::attempt::{Attempt, Control};
use cofferdam_egress_tests::attempts;
use cofferdam_egress_tests::clients::CLIENTS;
use cofferdam_egress_tests::egress_table::table;
use cofferdam_egress_tests::scenarios::SCENARIOS;
use cofferdam_egress_tests::suite_directory::{SuiteDirectory, USERS, User, missing};
use cofferdam_egress_tests::trial::{self, ControlResults};
use cofferdam_egress_tests::world::World;
use libtest_mimic::{Arguments, Failed, Trial};

type Verdict = Result<(), Failed>;

/// What the world itself is made with.
const NEEDS: &[&str] = &[
    "/usr/bin/python3",
    "ip",
    "unshare",
    "setpriv",
    "openssl",
    "git",
    "ssh-keygen",
    "dropbear",
    "dropbearkey",
    "node",
];

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|v| v == "1")
}

fn skip(reason: &str) -> Verdict {
    eprintln!("skipped: {reason}");
    if is_set("COFFERDAM_MUST_WORK") { Err(format!("skipped: {reason}").into()) } else { Ok(()) }
}

fn the_tables_are_sound(attempts: &[Attempt]) -> Verdict {
    let names: BTreeSet<_> = attempts.iter().map(|attempt| (attempt.class, attempt.name)).collect();
    if names.len() != attempts.len() {
        return Err("two attempts have one name".into());
    }
    if !attempts.is_sorted_by_key(|attempt| attempt.class) {
        return Err("the table is not in the order of its classes".into());
    }
    let incomplete = |a: &&Attempt| {
        let same = matches!(a.control, Control::Options(options) if options == a.options);
        a.what.is_empty() || a.call.is_empty() || a.wants.is_empty() || same
    };
    if let Some(attempt) = attempts.iter().find(incomplete) {
        return Err(format!("{} is incomplete, or its control is itself", attempt.name).into());
    }
    let clients: BTreeSet<_> = CLIENTS.iter().map(|client| client.name).collect();
    if clients.len() == CLIENTS.len() { Ok(()) } else { Err("two clients have one name".into()) }
}

fn the_page_is_up_to_date(attempts: &[Attempt]) -> Verdict {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/egress-table.md");
    let new = table(CLIENTS, attempts);
    if is_set("COFFERDAM_UPDATE") {
        return std::fs::write(&file, new).map_err(|e| format!("cannot write {}: {e}", file.display()).into());
    }
    if std::fs::read_to_string(&file).is_ok_and(|old| old == new) {
        return Ok(());
    }
    let hint = "COFFERDAM_UPDATE=1 cargo test -p cofferdam-egress-tests";
    Err(format!("{} is out of date\nhint: {hint}", file.display()).into())
}

/// Worlds of each user: a trial mostly waits.
const EACH: usize = 2;

/// The worlds of both users, made when a test first needs one. Trials in one world take turns, for its record is one.
struct Worlds {
    suite: Result<SuiteDirectory, String>,
    worlds: [[Slot; EACH]; 2],
}

type Slot = Mutex<Option<Result<(World, ControlResults), String>>>;

impl Worlds {
    /// In the world of this user with this number, of however many there are.
    fn with(
        &self,
        user: User,
        number: usize,
        tried: impl FnOnce(&SuiteDirectory, &World, &ControlResults) -> Result<(), String>,
    ) -> Verdict {
        let suite = self.suite.as_ref().map_err(Clone::clone)?;
        if user == User::Root && !suite.root {
            return skip("the suite does not run as root");
        }
        if let Some(need) = missing(NEEDS) {
            return skip(&format!("{need} is missing"));
        }
        let number = number % EACH;
        let mut slot = self.worlds[user as usize][number].lock().unwrap_or_else(PoisonError::into_inner);
        let world = slot
            .get_or_insert_with(|| World::start(suite, user, number).map(|world| (world, ControlResults::default())));
        match world {
            Ok((world, control_results)) => tried(suite, world, control_results).map_err(Failed::from),
            Err(why) => Err(format!("there is no world: {why}").into()),
        }
    }

    /// Ends the worlds before the directory that they are in goes.
    fn end(&self) {
        for slot in self.worlds.iter().flatten() {
            slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // One for each world.
    arguments.test_threads = arguments.test_threads.or(Some(USERS.len() * EACH));
    let suite = if arguments.list { Err("listing only".to_owned()) } else { SuiteDirectory::set_up() };
    let worlds = Arc::new(Worlds { suite, worlds: Default::default() });
    let attempts = attempts::all();
    let (first, second) = (attempts.clone(), attempts.clone());
    let mut trials = vec![
        Trial::test("the_tables_are_sound", move || the_tables_are_sound(&first)),
        Trial::test("the_page_is_up_to_date", move || the_page_is_up_to_date(&second)),
    ];
    // Users and worlds alternate, so that all are at work; attempts of one class share controls, and so a world.
    for (number, client) in CLIENTS.iter().enumerate() {
        for user in USERS {
            let worlds = Arc::clone(&worlds);
            trials.push(Trial::test(format!("client::{}::{}", client.name, user.name()), move || {
                if let Some(need) = missing(client.needs) {
                    return skip(&format!("{need} is missing"));
                }
                worlds.with(user, number, |suite, world, _| trial::client(suite, world, client))
            }));
        }
    }
    for attempt in attempts {
        for user in USERS {
            let worlds = Arc::clone(&worlds);
            let name = format!("{:?}::{}::{}", attempt.class, attempt.name, user.name()).to_lowercase();
            trials.push(Trial::test(name, move || {
                worlds.with(user, attempt.class as usize, |suite, world, control_results| {
                    trial::attempt(suite, world, control_results, &attempt)
                })
            }));
        }
    }
    for (number, (name, scenario)) in SCENARIOS.iter().enumerate() {
        for user in USERS {
            let worlds = Arc::clone(&worlds);
            trials.push(Trial::test(format!("scene::{name}::{}", user.name()), move || {
                worlds.with(user, number, |suite, world, _| scenario(suite, world))
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    worlds.end();
    drop(worlds);
    conclusion.exit_code()
}
