//! One test per client or attempt and user, and the page under docs/, which is compared, or written with
//! `COFFERDAM_UPDATE=1`. Skips print their reason; `COFFERDAM_MUST_WORK=1` makes them failures.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_egress_tests::attempt::{Attempt, Twin};
use cofferdam_egress_tests::attempts;
use cofferdam_egress_tests::clients::CLIENTS;
use cofferdam_egress_tests::page::page;
use cofferdam_egress_tests::place::{Place, USERS, User, missing};
use cofferdam_egress_tests::scenes::SCENES;
use cofferdam_egress_tests::trial::{self, Twins};
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
        let same = matches!(a.twin, Twin::Options(options) if options == a.options);
        a.what.is_empty() || a.call.is_empty() || a.wants.is_empty() || same
    };
    if let Some(attempt) = attempts.iter().find(incomplete) {
        return Err(format!("{} is incomplete, or its twin is itself", attempt.name).into());
    }
    let clients: BTreeSet<_> = CLIENTS.iter().map(|client| client.name).collect();
    if clients.len() == CLIENTS.len() { Ok(()) } else { Err("two clients have one name".into()) }
}

fn the_page_is_up_to_date(attempts: &[Attempt]) -> Verdict {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/egress-table.md");
    let new = page(CLIENTS, attempts);
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
    place: Result<Place, String>,
    worlds: [[Slot; EACH]; 2],
}

type Slot = Mutex<Option<Result<(World, Twins), String>>>;

impl Worlds {
    /// In the world of this user with this number, of however many there are.
    fn with(
        &self,
        user: User,
        number: usize,
        tried: impl FnOnce(&Place, &World, &Twins) -> Result<(), String>,
    ) -> Verdict {
        let place = self.place.as_ref().map_err(Clone::clone)?;
        if user == User::Root && !place.root {
            return skip("the suite does not run as root");
        }
        if let Some(need) = missing(NEEDS) {
            return skip(&format!("{need} is missing"));
        }
        let number = number % EACH;
        let mut slot = self.worlds[user as usize][number].lock().unwrap_or_else(PoisonError::into_inner);
        let world =
            slot.get_or_insert_with(|| World::start(place, user, number).map(|world| (world, Twins::default())));
        match world {
            Ok((world, twins)) => tried(place, world, twins).map_err(Failed::from),
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
    let place = if arguments.list { Err("listing only".to_owned()) } else { Place::set_up() };
    let worlds = Arc::new(Worlds { place, worlds: Default::default() });
    let attempts = attempts::all();
    let (first, second) = (attempts.clone(), attempts.clone());
    let mut trials = vec![
        Trial::test("the_tables_are_sound", move || the_tables_are_sound(&first)),
        Trial::test("the_page_is_up_to_date", move || the_page_is_up_to_date(&second)),
    ];
    // Users and worlds alternate, so that all are at work; attempts of one class share twins, and so a world.
    for (number, client) in CLIENTS.iter().enumerate() {
        for user in USERS {
            let worlds = Arc::clone(&worlds);
            trials.push(Trial::test(format!("client::{}::{}", client.name, user.name()), move || {
                if let Some(need) = missing(client.needs) {
                    return skip(&format!("{need} is missing"));
                }
                worlds.with(user, number, |place, world, _| trial::client(place, world, client))
            }));
        }
    }
    for attempt in attempts {
        for user in USERS {
            let worlds = Arc::clone(&worlds);
            let name = format!("{:?}::{}::{}", attempt.class, attempt.name, user.name()).to_lowercase();
            trials.push(Trial::test(name, move || {
                worlds.with(user, attempt.class as usize, |place, world, twins| {
                    trial::attempt(place, world, twins, &attempt)
                })
            }));
        }
    }
    for (number, (name, scene)) in SCENES.iter().enumerate() {
        for user in USERS {
            let worlds = Arc::clone(&worlds);
            trials.push(Trial::test(format!("scene::{name}::{}", user.name()), move || {
                worlds.with(user, number, |place, world, _| scene(place, world))
            }));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    worlds.end();
    drop(worlds);
    conclusion.exit_code()
}
