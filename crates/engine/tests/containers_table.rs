//! The table of docs/containers.md: which field each container runtime enforces, by what, as the answers say.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use cofferdam_engine::backends::containers::documented::documented;
use cofferdam_engine::backends::containers::{APART, POWERS};
use cofferdam_engine::facts::FactsTable;
use cofferdam_engine::{AppliedEnforcement, AppliedField, Engine, Strength};
use cofferdam_policy::{Access, AllowEntry, Field, Mount, NetworkMode, Policy};

fn base() -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = vec!["sh".into()];
    policy
}

fn demanding() -> Policy {
    let mut policy = base();
    policy.process.spawn = false;
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec!["api.example.com".parse::<AllowEntry>().unwrap().into()];
    policy.filesystem.deny = vec!["/home/u/w/later".into()];
    policy.filesystem.mounts = vec![Mount::Bind {
        source: "/home/u/w".into(),
        target: "/work".into(),
        access: Access::ReadWrite,
        exec: true,
        optional: false,
    }];
    Field::ALL.iter().for_each(|field| policy.require(*field));
    policy
}

fn answered(policy: &Policy) -> Vec<(&'static str, AppliedEnforcement)> {
    documented(policy, &FactsTable::usual(&["/home/u/w/"])).unwrap()
}

/// What the jail answers for the plain policy, where this host lets it hold everything.
fn jail() -> Option<AppliedEnforcement> {
    let support = Engine::probe().support(&base()).into_iter().find(|support| support.backend == "jail")?;
    let whole = support.unavailable.is_none() && support.fields.values().all(|a| a.strength == Strength::Full);
    whole.then_some(support.fields)
}

#[test]
fn every_field_has_an_answer_from_each() {
    for policy in [base(), demanding()] {
        for (runtime, answer) in answered(&policy) {
            let missing: Vec<&Field> = Field::ALL.iter().filter(|field| !answer.contains_key(field)).collect();
            assert!(missing.is_empty(), "{runtime} says nothing of {missing:?}");
        }
    }
}

fn cell(field: Field, applied: &AppliedField) -> String {
    // What depends on the machine is said of every machine.
    let reason = applied.reason.split(';').next().unwrap_or_default();
    let reason = match field {
        Field::CpuShare if reason.contains("whole machine") || reason.contains("no cgroup") => "a cgroup",
        Field::FileSize | Field::OpenFiles if reason.contains("hard limit") => "rlimit",
        _ => reason,
    };
    let reason = reason.find(" ABI ").map_or_else(
        || reason.to_owned(),
        |at| {
            let rest = reason[at + 5..].trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{}{rest}", &reason[..at])
        },
    );
    match applied.strength {
        Strength::Full => reason,
        Strength::Partial => format!("*in part*: {reason}"),
        Strength::None => format!("**no**: {reason}"),
    }
}

fn table(policy: &Policy, jail: Option<AppliedEnforcement>) -> String {
    let answers: Vec<_> = jail.map(|fields| ("jail", fields)).into_iter().chain(answered(policy)).collect();
    let mut text = String::from("| field |");
    answers.iter().for_each(|(runtime, _)| write!(text, " {runtime} |").unwrap());
    text.push_str("\n|---|");
    answers.iter().for_each(|_| text.push_str("---|"));
    text.push('\n');
    for field in Field::ALL {
        write!(text, "| `{field}` |").unwrap();
        let cells: Vec<String> = answers.iter().map(|(_, answer)| cell(*field, &answer[field])).collect();
        for (i, cell) in cells.iter().enumerate() {
            // What is the same as to the left is said once.
            let said = if i > 0 && cells[i - 1] == *cell { "〃" } else { cell };
            write!(text, " {said} |").unwrap();
        }
        text.push('\n');
    }
    text
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/containers.md")
}

#[test]
fn the_page_names_every_capability_that_init_starts_with() {
    let Ok(page) = std::fs::read_to_string(page()) else {
        eprintln!("docs/containers.md is not compared: the sources are not on this machine");
        return;
    };
    let said = page.split("It starts with ").nth(1).and_then(|rest| rest.split(" for that").next());
    let said: Vec<&str> = said.expect("the page says it").split('`').skip(1).step_by(2).collect();
    assert_eq!(said, POWERS);
    let gvisors = page.split(": it starts with ").nth(1).and_then(|rest| rest.split(", keeps").next());
    let mut gvisors: Vec<&str> = gvisors.expect("the page says it").split('`').skip(1).step_by(2).collect();
    gvisors.sort_unstable();
    assert_eq!(gvisors, APART);
}

#[test]
fn the_table_in_the_docs_is_what_the_answers_say() {
    let file = page();
    let Ok(page) = std::fs::read_to_string(&file) else {
        eprintln!("docs/containers.md is not compared: the sources are not on this machine");
        return;
    };
    let jail = jail();
    if jail.is_none() {
        eprintln!("docs/containers.md is not compared: the jail cannot hold everything on this machine");
        return;
    }
    let mut new = page.clone();
    for (marker, policy, jail) in [("plain", base(), jail), ("demanding", demanding(), None)] {
        let (begin, end) = (format!("<!-- {marker}: generated -->"), format!("<!-- {marker}: end -->"));
        let (before, rest) = new.split_once(&begin).expect("the page has its markers");
        let (_, after) = rest.split_once(&end).expect("the page has its markers");
        new = format!("{before}{begin}\n{}{end}{after}", table(&policy, jail));
    }
    if std::env::var_os("COFFERDAM_UPDATE").is_some() {
        std::fs::write(&file, new).unwrap();
    } else {
        assert!(
            new == page,
            "docs/containers.md is out of date\nhint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-engine"
        );
    }
}
