//! What each target is given for a set of policies, held against files under `golden/`, and the table in docs/backends.md.
//! `COFFERDAM_UPDATE=1` writes both anew.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use cofferdam_engine::backends::layout::layout;
use cofferdam_engine::backends::{
    EnforcementPurpose, ExportTarget, Tool, answers, bubblewrap, export, nsjail, seatbelt,
};
use cofferdam_engine::facts::{Facts, FactsTable};
use cofferdam_engine::{AppliedEnforcement, Strength};
use cofferdam_policy::{
    Access, ArgCondition, ArgOp, Field, Mount, NetworkMode, Policy, Root, SeccompLevel, SyscallAction, SyscallRule,
};

fn update() -> bool {
    std::env::var_os("COFFERDAM_UPDATE").is_some_and(|v| v == "1")
}

/// The host that every golden file is made for.
fn host() -> FactsTable {
    FactsTable::usual(&[
        "/home/u/data/",
        "/home/u/w/.git/hooks/",
        "/home/u/w/.git/config",
        "/home/u/w/.env",
        "/srv/tool",
    ])
}

fn bind(source: &str, target: &str, access: Access, exec: bool) -> Mount {
    Mount::Bind { source: source.into(), target: target.into(), access, exec, optional: false }
}

fn base(argv: &[&str]) -> Policy {
    let mut policy = Policy::base();
    policy.command.argv = argv.iter().map(|a| (*a).to_owned()).collect();
    policy
}

/// Policies by name, simple ones first.
fn policies() -> Vec<(&'static str, Policy)> {
    let minimal = base(&["python3", "-c", "print(\"\u{e9}\\n\")"]);
    let mut project = base(&["/usr/bin/sh", "-c", "make"]);
    project.id = Some("project".into());
    project.command.cwd = Some("/home/u/w".into());
    project.command.variables.insert("CI".into(), "a b\"c".into());
    project.filesystem.mounts = vec![
        bind("/home/u/data", "/home/u/data", Access::ReadOnly, false),
        bind("/home/u/w", "/home/u/w", Access::ReadWrite, true),
    ];
    project.filesystem.deny = vec!["/home/u/w/.env".into(), "/etc/shadow".into()];
    project.filesystem.protected = [".git/hooks", ".git/config"].map(str::to_owned).to_vec();
    project.network.mode = NetworkMode::Loopback;
    project.limits.memory_mb = 128;
    let mut host = base(&["true"]);
    host.filesystem.root = Root::Host;
    host.network.mode = NetworkMode::Host;
    host.process.unix_sockets = true;
    host.process.hostname = "box".into();
    host.require(Field::Memory);
    let mut closed = base(&["/usr/bin/true"]);
    closed.process.spawn = false;
    closed.process.seccomp.level = SeccompLevel::Strict;
    closed.process.seccomp.rules = vec![SyscallRule {
        syscalls: vec!["getpriority".into()],
        action: SyscallAction::Errno("EACCES".into()),
        when: vec![ArgCondition { index: 0, mask: u64::MAX, op: ArgOp::Eq, value: 2 }],
    }];
    closed.limits.wall_ms = 1500;
    let mut scratch = base(&["sh"]);
    // The first of them is there, the second is not.
    let optional = |source: &str| Mount::Bind {
        source: source.into(),
        target: source.into(),
        access: Access::ReadOnly,
        exec: true,
        optional: true,
    };
    scratch.filesystem.mounts = vec![
        Mount::Tmpfs { target: "/scratch".into(), size_mb: 8, exec: true },
        optional("/home/u/data"),
        optional("/home/u/gone"),
    ];
    scratch.limits.tmpfs_mb = 16;
    let mut narrow = base(&["python3", "-c", "pass"]);
    narrow.filesystem.root = Root::Interpreter;
    vec![
        ("minimal", minimal),
        ("narrow", narrow),
        ("project", project),
        ("host", host),
        ("closed", closed),
        ("scratch", scratch),
    ]
}

fn golden(name: &str, text: &str, bad: &mut Vec<String>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/backends").join(name);
    if update() {
        std::fs::write(&file, text).unwrap();
    } else if std::fs::read_to_string(&file).unwrap_or_default() != text {
        bad.push(name.to_owned());
    }
}

/// Options with what belongs to them on one line each.
fn lines(argv: &[String]) -> String {
    let mut text = String::new();
    for (i, argument) in argv.iter().enumerate() {
        let lead = if i == 0 {
            ""
        } else if argument.starts_with("--") {
            "\n"
        } else {
            " "
        };
        write!(text, "{lead}{argument:?}").unwrap();
    }
    text.push('\n');
    text
}

#[test]
fn each_target_gets_what_its_golden_file_says() {
    let (facts, mut bad) = (host(), Vec::new());
    for (name, policy) in policies() {
        golden(&format!("{name}.policy.json"), &policy.to_json_pretty(), &mut bad);
        let layout = layout(&policy, &facts).unwrap();
        let program = layout.program(&policy, &facts).unwrap();
        let arguments = bubblewrap::plan(&policy, &layout, program.clone(), (0, 8), false).unwrap();
        golden(&format!("{name}.bwrap"), &lines(&arguments.argv()), &mut bad);
        let mut config = nsjail::plan(&policy, &layout, program, EnforcementPurpose::Export).unwrap();
        // The filter has goldens of its own, and numbers of its own on each architecture.
        assert!(config.seccomp_string.len() > 100 && config.seccomp_string[0].starts_with("POLICY "));
        config.seccomp_string = vec!["see the golden files of confine".into()];
        golden(&format!("{name}.nsjail.json"), &config.json(), &mut bad);
        golden(&format!("{name}.nsjail.cfg"), &config.text(), &mut bad);
        let told = seatbelt::plan(&policy, &facts).map_or_else(|e| format!("; {}\n", e.message), |p| p.file());
        golden(&format!("{name}.sb"), &told, &mut bad);
    }
    assert!(bad.is_empty(), "{bad:?} are out of date\nhint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-engine");
}

#[test]
fn no_path_or_value_of_a_policy_stands_in_a_profiles_rules() {
    for (name, policy) in policies() {
        let Ok(profile) = seatbelt::plan(&policy, &host()) else { continue };
        for path in ["/home/u", ".git", "etc/shadow"] {
            assert!(!profile.text.contains(path), "{name}: {path} is pasted in");
        }
        assert!(profile.text.starts_with("(version 1)\n(deny default"), "{}", profile.text);
    }
}

#[test]
fn json_is_what_protobufs_json_reader_takes() {
    let (facts, (_, policy)) = (host(), policies().remove(0));
    let written = export(&policy, ExportTarget::Nsjail, &facts).unwrap();
    let value: serde_json::Value = serde_json::from_str(&written.text).unwrap();
    let content = value["mount"].as_array().unwrap().iter().find_map(|m| m["src_content"].as_str()).unwrap();
    assert!(content.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)), "bytes are base64: {content}");
    assert_eq!(value["exec_bin"]["path"], "/usr/bin/python3");
    assert_eq!(value["exec_bin"]["arg0"], "python3");
}

#[test]
fn what_a_target_cannot_hold_is_refused_when_required_and_a_warning_when_not() {
    let facts = host();
    let mut policy = base(&["sh"]);
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.allow = vec!["example.org".parse().unwrap()];
    for format in [ExportTarget::Nsjail, ExportTarget::NsjailText, ExportTarget::Seatbelt] {
        let mut policy = policy.clone();
        let failure = export(&policy, format, &facts).unwrap_err();
        assert!(failure.hint.as_deref().is_some_and(|hint| hint.contains("network.mode")), "{failure:?}");
        let layout = layout(&policy, &facts).unwrap();
        let short = answers(format.tool(), &policy, Some(&layout), EnforcementPurpose::Export);
        short.iter().filter(|(_, a)| a.strength != Strength::Full).for_each(|(field, _)| policy.allow_partial(*field));
        let written = export(&policy, format, &facts).unwrap();
        assert!(written.warnings.iter().any(|w| w.starts_with("network.mode is not held")), "{:?}", written.warnings);
    }
    let mut loopback = base(&["sh"]);
    loopback.network.mode = NetworkMode::Loopback;
    [Field::Network, Field::Seccomp, Field::Isolation, Field::Hostname, Field::TreeKill]
        .into_iter()
        .for_each(|field| loopback.allow_partial(field));
    let written = export(&loopback, ExportTarget::Seatbelt, &facts).unwrap();
    assert!(written.warnings.iter().any(|w| w.contains("host's loopback")), "{:?}", written.warnings);
}

/// A policy that asks for as much as there is.
fn demanding() -> Policy {
    let mut policy = base(&["sh"]);
    policy.filesystem.root = Root::Host;
    policy.filesystem.mounts = vec![bind("/home/u/w", "/home/u/w", Access::ReadWrite, false)];
    policy.filesystem.deny = vec!["/home/u/w/later".into()];
    policy.network.mode = NetworkMode::Allowlist;
    policy.network.methods = Some(vec!["GET".into()]);
    policy.process.spawn = false;
    policy.process.unix_sockets = true;
    policy.process.seccomp.level = SeccompLevel::Strict;
    policy.limits.wall_ms = 1500;
    policy.limits.cpu_millis = 1;
    Field::ALL.iter().for_each(|field| policy.require(*field));
    policy
}

/// Tool and purpose of each column.
const COLUMNS: [(&str, Tool, EnforcementPurpose); 5] = [
    ("bubblewrap, run", Tool::Bubblewrap, EnforcementPurpose::Run { other_user: false, own_pids: true }),
    ("nsjail, run", Tool::Nsjail, EnforcementPurpose::Run { other_user: false, own_pids: false }),
    ("nsjail, exported", Tool::Nsjail, EnforcementPurpose::Export),
    ("Seatbelt, run", Tool::Seatbelt, EnforcementPurpose::Run { other_user: false, own_pids: false }),
    ("Seatbelt, exported", Tool::Seatbelt, EnforcementPurpose::Export),
];

fn answered(policy: &Policy, facts: &dyn Facts) -> Vec<AppliedEnforcement> {
    let layout = layout(policy, facts).unwrap();
    COLUMNS.iter().map(|(_, tool, purpose)| answers(*tool, policy, Some(&layout), *purpose)).collect()
}

#[test]
fn every_field_has_an_answer_from_each() {
    let facts = host();
    for policy in policies().into_iter().map(|(_, policy)| policy).chain([demanding()]) {
        for (answer, (column, ..)) in answered(&policy, &facts).iter().zip(COLUMNS) {
            let missing: Vec<&Field> = Field::ALL.iter().filter(|field| !answer.contains_key(field)).collect();
            assert!(missing.is_empty(), "{column} says nothing of {missing:?}");
        }
    }
}

fn table(policy: &Policy, facts: &dyn Facts) -> String {
    let answers = answered(policy, facts);
    let mut text = String::from("| field |");
    COLUMNS.iter().for_each(|(column, ..)| write!(text, " {column} |").unwrap());
    text.push_str("\n|---|");
    COLUMNS.iter().for_each(|_| text.push_str("---|"));
    text.push('\n');
    for field in Field::ALL {
        write!(text, "| `{field}` |").unwrap();
        for answer in &answers {
            let a = &answer[field];
            // What depends on the machine is said of every machine.
            let reason = a.reason.split(';').next().unwrap_or_default();
            let reason = match field {
                Field::CpuShare if reason.contains("whole machine") || reason.contains("no cgroup") => "a cgroup",
                Field::FileSize | Field::OpenFiles if reason.contains("hard limit") => "rlimit",
                _ => reason,
            };
            match a.strength {
                Strength::Full => write!(text, " yes |").unwrap(),
                Strength::Partial => write!(text, " in part: {reason} |").unwrap(),
                Strength::None => write!(text, " **no**: {reason} |").unwrap(),
            }
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_table_in_the_docs_is_what_the_answers_say() {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/backends.md");
    let Ok(page) = std::fs::read_to_string(&file) else {
        eprintln!("docs/backends.md is not compared: the sources are not on this machine");
        return;
    };
    let mut new = page.clone();
    for (marker, policy) in [("plain", base(&["sh"])), ("demanding", demanding())] {
        let (begin, end) = (format!("<!-- {marker}: generated -->"), format!("<!-- {marker}: end -->"));
        let (before, rest) = new.split_once(&begin).expect("the page has its markers");
        let (_, after) = rest.split_once(&end).expect("the page has its markers");
        new = format!("{before}{begin}\n{}{end}{after}", table(&policy, &host()));
    }
    if update() {
        std::fs::write(&file, new).unwrap();
    } else {
        assert!(
            new == page,
            "docs/backends.md is out of date\nhint: COFFERDAM_UPDATE=1 cargo test -p cofferdam-engine"
        );
    }
}
