//! The table of attacks × backend × user, as the page under docs/, and its totals.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cofferdam_policy::BackendName;

use crate::attack::{Attack, Class};
use crate::host::User;
use crate::judge::{Cell, backend_name};

/// The columns, in order.
pub const COLUMNS: [(BackendName, User); 16] = [
    (BackendName::Jail, User::Root),
    (BackendName::Jail, User::Unprivileged),
    (BackendName::Landlock, User::Root),
    (BackendName::Landlock, User::Unprivileged),
    (BackendName::Bubblewrap, User::Root),
    (BackendName::Bubblewrap, User::Unprivileged),
    (BackendName::Docker, User::Root),
    (BackendName::Docker, User::Unprivileged),
    (BackendName::Podman, User::Root),
    (BackendName::Podman, User::Unprivileged),
    (BackendName::OciCrun, User::Root),
    (BackendName::OciCrun, User::Unprivileged),
    (BackendName::OciRunc, User::Root),
    (BackendName::OciRunc, User::Unprivileged),
    (BackendName::OciRunsc, User::Root),
    (BackendName::OciRunsc, User::Unprivileged),
];

/// Tried as well, and not in the table, where whoever runs the suite names an nsjail.
pub const FURTHER: [(BackendName, User); 2] =
    [(BackendName::Nsjail, User::Root), (BackendName::Nsjail, User::Unprivileged)];

/// Stands between the name of the host and the start of its line.
const MADE_ON: &str = "Made on ";
/// What encloses the totals, here and in `README.md`.
const TOTALS: (&str, &str) = ("<!-- escape-totals:begin -->", "<!-- escape-totals:end -->");

/// The same around the reasons for what is not claimed. Their words are the backends', so that they are not compared.
const REASONS: (&str, &str) = ("<!-- escape-reasons:begin -->", "<!-- escape-reasons:end -->");
/// What a cell says before the number of its reason.
const NOT_CLAIMED: &str = "not claimed";

/// Results by attack name and column.
pub type Cells = BTreeMap<(&'static str, usize), Cell>;

fn word(cell: Option<&Cell>, reasons: &[Reason<'_>]) -> String {
    match cell {
        Some(Cell::Held(_)) => "held".into(),
        Some(Cell::NotClaimed(why)) => {
            let number = reasons.iter().position(|reason| reason.why == why).map_or(0, |at| at + 1);
            format!("{NOT_CLAIMED} {number}")
        }
        Some(Cell::NoVictim(_)) => "–".into(),
        Some(Cell::Hole(_)) => "**HOLE**".into(),
        Some(Cell::Broken(_)) => "**BROKEN**".into(),
        None => "not run".into(),
    }
}

/// Why something is not claimed, and where: the columns, with how many cells in each.
struct Reason<'c> {
    why: &'c str,
    columns: BTreeMap<usize, usize>,
}

/// The reasons of all columns, in the order in which a reader of the table meets them.
fn reasons<'c>(attacks: &[Attack], cells: &'c Cells) -> Vec<Reason<'c>> {
    let mut found: Vec<Reason<'c>> = Vec::new();
    for column in 0..COLUMNS.len() {
        for attack in attacks {
            let Some(Cell::NotClaimed(why)) = cells.get(&(attack.name, column)) else { continue };
            let at = found.iter().position(|reason| reason.why == why).unwrap_or_else(|| {
                found.push(Reason { why, columns: BTreeMap::new() });
                found.len() - 1
            });
            *found[at].columns.entry(column).or_default() += 1;
        }
    }
    found
}

/// One line for each reason.
fn reasons_table(reasons: &[Reason<'_>]) -> String {
    let mut text = String::from("| | promise, and why it is not claimed | by (in so many rows) |\n|--:|---|---|\n");
    for (at, Reason { why, columns }) in reasons.iter().enumerate() {
        let rows = |at: &usize| columns.get(at).copied();
        let mut by: Vec<String> = Vec::new();
        for (at, (backend, user)) in COLUMNS.iter().enumerate() {
            let other = COLUMNS.iter().position(|column| column.0 == *backend && column.1 != *user);
            match (rows(&at), other.as_ref().and_then(rows)) {
                (None, _) => {}
                // Both users at once, where the first of them stands.
                (Some(count), same) if same == Some(count) => {
                    if other > Some(at) {
                        by.push(format!("{} ({count})", backend_name(*backend)));
                    }
                }
                (Some(count), _) => by.push(format!("{} ({count})", column_name(COLUMNS[at]))),
            }
        }
        text.push_str(&format!("| {} | {} | {} |\n", at + 1, why.replace('|', "\\|"), by.join(" · ")));
    }
    text
}

/// Totals of one column: held, not claimed, without a victim here, holes and broken trials.
pub fn totals(cells: &Cells, column: usize) -> [usize; 4] {
    let mut sum = [0; 4];
    for ((_, at), cell) in cells {
        if *at == column {
            sum[match cell {
                Cell::Held(_) => 0,
                Cell::NotClaimed(_) => 1,
                Cell::NoVictim(_) => 2,
                Cell::Hole(_) | Cell::Broken(_) => 3,
            }] += 1;
        }
    }
    sum
}

/// The host on which a table is made, as far as it decides what can be held and which victims there are.
pub fn made_on() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let cgroups = match () {
        () if controllers.contains("memory") => "cgroup version 2",
        () if Path::new("/sys/fs/cgroup/memory").is_dir() => "cgroup version 1",
        () => "no cgroups",
    };
    format!("Linux {}, {cgroups}", kernel.trim())
}

fn column_name((backend, user): (BackendName, User)) -> String {
    format!("{}, {}", backend_name(backend), user.name())
}

/// What `README.md` repeats of the totals: those of the default backend.
fn headline(summary: &str) -> String {
    let row = |(at, line): (usize, &str)| (at < 2 || line.starts_with("| jail,")).then(|| format!("{line}\n"));
    summary.lines().enumerate().filter_map(row).collect()
}

/// The totals of all columns.
pub fn summary(attacks: &[Attack], cells: &Cells) -> String {
    let mut text = format!(
        "| {} attacks by backend and user | held | not claimed | no victim | holes |\n|---|--:|--:|--:|--:|\n",
        attacks.len()
    );
    for (at, column) in COLUMNS.iter().enumerate() {
        let [held, not_claimed, none, holes] = totals(cells, at);
        text.push_str(&format!("| {} | {held} | {not_claimed} | {none} | {holes} |\n", column_name(*column)));
    }
    text
}

/// The whole page.
pub fn page(attacks: &[Attack], cells: &Cells) -> String {
    let reasons = reasons(attacks, cells);
    let mut text = format!(
        "<!-- Generated by the suite in tests/escape: COFFERDAM_UPDATE=1 cargo test -p cofferdam-escape -->\n\
         # Escape attempts\n\n\
         Each row is an attack, each column a backend and the user who runs the command. In each cell the promise that the \
         attack would break is *required*, and the same operation by the same program on the same victim was seen to work \
         where it is allowed.\n\n\
         - **held**: the attack failed; where it can, the host looked at the victim rather than believing the attack.\n\
         - **not claimed**: the backend says that it cannot hold this promise in full, and refused to start. The number is \
         that of the reason, [below](#why-promises-are-not-claimed).\n\
         - **–**: the host on which the table was made has no such victim.\n\n\
         **root** and **user** are who starts the command. A user of `docker` is one whom the engine's group lets in, a user of \
         `podman` has an engine of his own without root and without further ids, a user of `oci:…` runs the runtime in a user \
         namespace of his own.\n\n\
         Containers have no view of the whole host: in theirs, the system's programs stand in an empty tree, and what the host's \
         view would show of the victims is bound read-only at its place. In what makers of containers differ is in the columns \
         from `docker` on, and by reason in the list of what is not claimed; what each of them holds of every field of a policy \
         is in [containers](containers.md#which-field-is-held-by-what).\n\n\
         {MADE_ON}{}.\n\n## Totals\n\n{}\n{}{}\n\n\
         ## Why promises are not claimed\n\n\
         *In part* and *not at all* are how much of the promise holds all the same: `--best-effort=FIELD` runs with that. PATH \
         is one of the policy's.\n\n\
         {}\n{}{}\n",
        made_on(),
        TOTALS.0,
        summary(attacks, cells),
        TOTALS.1,
        REASONS.0,
        reasons_table(&reasons),
        REASONS.1,
    );
    let mut classes: Vec<Class> = attacks.iter().map(|a| a.class).collect();
    classes.sort();
    classes.dedup();
    for class in classes {
        text.push_str(&format!("\n## {}\n\n| attack | what it tries | promise |", class.title()));
        for column in COLUMNS {
            text.push_str(&format!(" {} |", column_name(column)));
        }
        text.push_str("\n|---|---|---|");
        text.push_str(&"---|".repeat(COLUMNS.len()));
        text.push('\n');
        for attack in attacks.iter().filter(|a| a.class == class) {
            let fields: Vec<String> = attack.fields.iter().map(|f| format!("`{f}`")).collect();
            text.push_str(&format!("| {} | {} | {} |", attack.name, attack.why, fields.join(", ")));
            for at in 0..COLUMNS.len() {
                text.push_str(&format!(" {} |", word(cells.get(&(attack.name, at)), &reasons)));
            }
            text.push('\n');
        }
    }
    text
}

/// The line of a page that says where it was made.
pub fn origin(page: &str) -> Option<&str> {
    page.lines().find_map(|line| line.strip_prefix(MADE_ON))
}

/// What of a page is the same on every host: all but origin, totals, reasons and cells.
pub fn outline(page: &str) -> String {
    let mut text = String::new();
    for line in without(&without(page, TOTALS), REASONS).lines().filter(|line| !line.starts_with(MADE_ON)) {
        // Rows are the lines of three texts and a cell for each column.
        let parts: Vec<&str> = line.split(" | ").collect();
        let row = parts.len() == 3 + COLUMNS.len();
        text.push_str(&if row { parts[..3].join(" | ") } else { line.to_owned() });
        text.push('\n');
    }
    text
}

/// What of a page is the same on hosts of one kind: all but the reasons and their numbers.
pub fn verdicts(page: &str) -> String {
    let numbered = |cell: &str| cell.strip_prefix(NOT_CLAIMED).is_some_and(|rest| rest.starts_with(' '));
    let mut text = String::new();
    for line in without(page, REASONS).lines() {
        let cells: Vec<&str> = line.split(" | ").map(|cell| if numbered(cell) { NOT_CLAIMED } else { cell }).collect();
        text.push_str(&cells.join(" | "));
        text.push('\n');
    }
    text
}

/// A page without what stands between two markers.
fn without(page: &str, markers: (&str, &str)) -> String {
    let (before, rest) = page.split_once(markers.0).unwrap_or((page, ""));
    let (_, after) = rest.split_once(markers.1).unwrap_or(("", rest));
    format!("{before}{after}")
}

/// `README.md` with what it repeats of these totals between its markers; `None` when it has no markers.
pub fn with_totals(readme: &str, summary: &str) -> Option<String> {
    let (before, rest) = readme.split_once(TOTALS.0)?;
    let (_, after) = rest.split_once(TOTALS.1)?;
    Some(format!("{before}{}\n{}{}{after}", TOTALS.0, headline(summary), TOTALS.1))
}
