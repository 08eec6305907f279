//! The evaluator over its protocol: the policies of profiles, imports, and the messages of errors.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cofferdam_policy::Policy;
use cofferdam_profiles::protocol::*;
use common::*;

/// The problem of a profile that is refused.
#[track_caller]
fn problem(text: &str) -> EvaluationProblem {
    let (_keep, file) = profile(text);
    result(job(&file, &[OutputFormat::Policy])).unwrap_err()
}

/// The policy that a profile compiles to.
#[track_caller]
fn policy(job: EvaluationJob) -> Policy {
    let evaluated = result(job).unwrap_or_else(|problem| panic!("{}", problem.message));
    Policy::decode(evaluated.outputs[0].as_ref().unwrap().as_bytes()).unwrap()
}

const READER: &str = "let s = import \"sandbox\" in s.make_default_config \"reader\" & { network_policy = \"deny\" }";

#[test]
fn every_example_becomes_a_valid_policy() {
    let examples = examples();
    let results = results(examples.iter().map(|file| job(file, &[OutputFormat::Policy])).collect());
    for (file, result) in examples.iter().zip(results) {
        let evaluated = result.unwrap_or_else(|problem| panic!("{}", problem.message));
        let text = evaluated.outputs[0].as_ref().unwrap();
        let policy = Policy::decode(text.as_bytes()).unwrap();
        // The policy is complete: encoding it again gives the same text.
        assert_eq!(*text, policy.to_json_pretty(), "{}", file.display());
        assert_eq!(evaluated.files[0].path, *file);
    }
}

#[test]
fn library_is_found_under_each_of_its_names() {
    for import in ["sandbox", "sandbox/main.ncl", "sandbox/skill/default.ncl"] {
        let (_keep, file) = profile(&format!("let s = import \"{import}\" in s.make_default_config \"reader\""));
        assert_eq!(policy(job(&file, &[OutputFormat::Policy])).id.as_deref(), Some("reader"), "{import}");
    }
}

#[test]
fn imports_beside_the_profile_precede_the_library() {
    let (keep, file) = profile("(import \"part/name.ncl\") & (import \"limit.json\")");
    fs::create_dir(keep.path().join("part")).unwrap();
    fs::write(keep.path().join("part/name.ncl"), "{ skill_id = import \"../text.txt\" }").unwrap();
    fs::write(keep.path().join("text.txt"), "imported").unwrap();
    fs::write(keep.path().join("limit.json"), "{\"max_cpu_seconds\": 7}").unwrap();
    let evaluated = result(job(&file, &[OutputFormat::Policy])).unwrap();
    let policy = Policy::decode(evaluated.outputs[0].as_ref().unwrap().as_bytes()).unwrap();
    assert_eq!((policy.id.as_deref(), policy.limits.cpu_seconds), (Some("imported"), 7));
    let mut read: Vec<_> =
        evaluated.files.iter().map(|seen| seen.path.file_name().unwrap().to_str().unwrap()).collect();
    read.sort_unstable();
    assert_eq!(read, ["limit.json", "name.ncl", "profile.ncl", "text.txt"]);
}

#[test]
fn missing_paths_are_reported() {
    let (_keep, file) = profile(READER);
    let evaluated = result(job(&file, &[OutputFormat::Policy])).unwrap();
    assert_eq!(evaluated.absent, [file.with_file_name("sandbox")]);
}

#[test]
fn what_is_set_goes_through_the_contracts() {
    let (_keep, file) = profile(READER);
    let set = |path: &[&str], value: &str| {
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        EvaluationJob { overrides: vec![Override { path, value: value.into() }], ..job(&file, &[OutputFormat::Policy]) }
    };
    assert_eq!(policy(set(&["resources", "max_memory_mb"], "333")).limits.memory_mb, 333);
    let wrong = result(set(&["resources", "max_memory_mb"], "\"many\"")).unwrap_err();
    assert_eq!(wrong.kind, ProblemKind::Nickel);
    assert!(wrong.message.contains("max_memory_mb") && wrong.message.contains("\"many\""), "{}", wrong.message);
    let syntax = result(set(&["resources", "max_memory_mb"], "1 +")).unwrap_err();
    assert!(syntax.message.contains("--set resources.max_memory_mb"), "{}", syntax.message);
    let unknown = result(set(&["resources", "no_such_field"], "1")).unwrap_err();
    assert!(unknown.message.contains("no_such_field"), "{}", unknown.message);
    let import = result(set(&["skill_version"], "import \"/etc/hostname\" as 'Text")).unwrap_err();
    assert_eq!(import.kind, ProblemKind::Override);
    // An override is a source of its own and cannot refer to the profile.
    let breakout = result(set(&["skill_version"], "\"1\" } & { skill_id = \"other\"")).unwrap_err();
    assert_eq!(breakout.kind, ProblemKind::Nickel, "{}", breakout.message);
}

#[test]
fn slashes_in_an_override_do_not_lead_to_another_source() {
    let (_scene, file) = profile("{ version = 1, id = \"own\" }");
    let set = |path: &[&str], value: &str| {
        let mut job = job(&file, &[OutputFormat::Raw]);
        let path = path.iter().map(|name| (*name).to_owned()).collect();
        job.overrides = vec![Override { path, value: value.to_owned() }];
        result(job).unwrap().outputs[0].clone().unwrap()
    };
    assert!(set(&["id"], "\"other\"").contains("\"id\": \"other\""));
    let message = set(&["x/../../sandbox/lib/base.ncl"], "7");
    assert!(message.contains("\"x/../../sandbox/lib/base.ncl\": 7"), "{message}");
}

#[test]
fn invalid_profile_does_not_affect_the_others() {
    let (_keep, good) = profile(READER);
    let (_keep, bad) = profile("{ skill_id = ");
    let all = results(vec![
        job(&good, &[OutputFormat::Policy]),
        job(&bad, &[OutputFormat::Policy]),
        job(&good, &[OutputFormat::Raw]),
    ]);
    assert!(all[0].is_ok() && all[1].is_err() && all[2].is_ok());
}

#[test]
fn data_comes_in_three_encodings() {
    let (_keep, file) = profile("{ a = [1, { b = \"x\" }] }");
    let mut asked = job(&file, &[]);
    asked.outputs = Encoding::ALL.iter().map(|e| RequestedOutput { format: OutputFormat::Raw, encoding: *e }).collect();
    let outputs = result(asked).unwrap().outputs;
    let text = |at: usize| outputs[at].as_deref().unwrap();
    assert_eq!(text(0), "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x\"\n    }\n  ]\n}\n");
    assert_eq!(text(1), "a:\n- 1\n- b: x\n");
    assert!(text(2).starts_with("a = ["), "{}", text(2));
}

#[test]
fn syntax_and_contract_errors_show_the_source() {
    let syntax = problem("{\n  skill_id = \"a\",\n  cmd = = 1,\n}");
    assert_eq!(syntax.kind, ProblemKind::Nickel);
    assert!(syntax.message.contains("profile.ncl:3:9"), "{}", syntax.message);
    let contract = problem("{\n  skill_id = \"a\",\n  max_cpu_seconds = \"x\",\n}");
    assert!(contract.message.contains("profile.ncl:3:21"), "{}", contract.message);
}

#[test]
fn error_about_a_field_shows_the_line_that_sets_it() {
    let begin = "let sandbox = import \"sandbox\" in\nsandbox.make_default_config \"s\" & {\n  cmd = [\"x\"],\n";
    for (fields, places) in [
        ("  resources.max_memory = 64,", &["4:13"][..]),
        ("  resources = {\n    max_memory = 64,\n  },", &["5:5"]),
        ("  max_memry_mb = 64,", &["4:3"]),
        ("  capabilities.network = \"none\",\n  network_policy = \"allow\",", &["5:3", "4 │"]),
        ("  max_memory_mb = 64,\n  resources.max_memory_mb = 65,", &["4:3", "5 │"]),
        ("  platform = \"windows\",", &["4:3"]),
        ("  resources = { max_memory_mb = \"x\" },", &["4:33"]),
    ] {
        let message = problem(&format!("{begin}{fields}\n}}")).message;
        assert!(message.contains(&format!("profile.ncl:{}", places[0])), "{fields}: {message}");
        assert!(places[1..].iter().all(|line| message.contains(line)), "{fields}: {message}");
        assert!(!message.contains("closure@") && !message.contains("profile.ncl:2:1\n"), "{fields}: {message}");
    }
    // A field that an imported file sets is shown in that file.
    let (keep, file) = profile("(import \"sandbox\").make_default_config \"s\" & (import \"part.ncl\")");
    fs::write(keep.path().join("part.ncl"), "{\n  max_memry_mb = 1,\n}").unwrap();
    let message = result(job(&file, &[OutputFormat::Policy])).unwrap_err().message;
    assert!(message.contains("part.ncl:2:3"), "{message}");
}

#[test]
fn error_about_an_override_shows_it_and_not_the_file() {
    let text = "(import \"sandbox\").make_default_config \"s\" & {\n  network_policy = \"deny\",\n  cmd = [\"x\"],\n}";
    let (_keep, file) = profile(text);
    let message = |sets: &[(&str, &str)]| {
        let of = |(path, value): &(&str, &str)| {
            let path = path.split('.').map(str::to_owned).collect();
            Override { path, value: (*value).to_owned() }
        };
        let job = EvaluationJob { overrides: sets.iter().map(of).collect(), ..job(&file, &[OutputFormat::Policy]) };
        result(job).unwrap_err().message
    };
    for (sets, places) in [
        (&[("network_policy", "\"localhots\"")][..], &["--set network_policy:1:1"][..]),
        (&[("max_memory_mb", "\"many\"")], &["--set max_memory_mb:1:1"]),
        (&[("platform", "\"windows\"")], &["--set platform:1:1"]),
        (
            &[("capabilities", "{ network = \"none\" }"), ("network_policy", "\"allow\"")],
            &["--set network_policy:1:1", "--set capabilities:1:3"],
        ),
    ] {
        let message = message(sets);
        assert!(places.iter().all(|place| message.contains(place)), "{sets:?}: {message}");
        assert!(!message.contains("profile.ncl:"), "nothing in the file is wrong: {message}");
    }
    // Other fields of the file are not affected.
    let message =
        message(&[("capabilities.network", "\"none\""), ("max_memory_mb", "7"), ("resources.max_memory_mb", "8")]);
    assert!(message.contains("--set max_memory_mb:1:1"), "{message}");
    let (_keep, file) = profile(&text.replace("deny", "allow"));
    let path = ["capabilities", "network"].map(str::to_owned).to_vec();
    let set = Override { path, value: "\"none\"".into() };
    let said =
        result(EvaluationJob { overrides: vec![set], ..job(&file, &[OutputFormat::Policy]) }).unwrap_err().message;
    assert!(said.contains("profile.ncl:2:") && said.contains("--set capabilities.network:1:1"), "{said}");
}

#[test]
fn import_of_a_library_copy_gets_a_hint() {
    for (path, name) in [("skill/default.ncl", "sandbox/skill/default.ncl"), ("main.ncl", "sandbox")] {
        let wrong = problem(&format!("import \"assets/knowledge/ncl/sandbox/{path}\""));
        assert!(wrong.message.contains("profile.ncl:1:1"), "{}", wrong.message);
        let hint = wrong.hint.unwrap_or_default();
        assert!(hint.contains(&format!("import \"{name}\"")), "{hint}");
    }
    assert_eq!(problem("import \"no/such/file.ncl\"").hint, None);
}

#[test]
fn a_keyword_as_a_name_has_a_hint() {
    for (text, keyword) in [
        ("let default = \"x\" in { skill_id = default }", "default"),
        ("let rec optional = 1 in { skill_id = \"x\" }", "optional"),
        ("let f = fun priority => priority in { skill_id = f \"x\" }", "priority"),
    ] {
        let wrong = problem(text);
        assert!(wrong.message.contains("unexpected token"), "{text}: {}", wrong.message);
        let hint = wrong.hint.unwrap_or_default();
        assert!(hint.contains(&format!("`{keyword}` is a keyword")), "{text}: {hint}");
    }
    // Another mistake in syntax, and the same word where it is a keyword.
    for text in ["let a = = 1 in { skill_id = a }", "{ skill_id = default }"] {
        assert_eq!(problem(text).hint, None, "{text}");
    }
}

#[test]
fn import_loop_is_an_error_and_the_evaluator_survives() {
    let (keep, file) = profile("import \"other.ncl\"");
    fs::write(keep.path().join("other.ncl"), "import \"profile.ncl\"").unwrap();
    let looped = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert!(looped.message.contains("infinite recursion"), "{}", looped.message);
}

#[test]
fn imports_stay_in_the_allowed_directories() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = fs::canonicalize(elsewhere.path()).unwrap();
    let secret = outside.join("secret.txt");
    fs::write(&secret, "secret").unwrap();
    let import = format!("{{ a = 1,\n  b = import \"{}\" }}", secret.display());
    let (keep, file) = profile(&import);
    let refused = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert_eq!(refused.kind, ProblemKind::Import);
    assert!(refused.message.contains("profile.ncl:2:7"), "{}", refused.message);
    assert_eq!(refused.hint.as_deref(), Some(&*format!("--allow-import {} lets it", outside.display())));
    // Missing files are refused alike, so that existence is not revealed.
    fs::write(&file, import.replace("secret.txt", "nothing.txt")).unwrap();
    assert_eq!(result(job(&file, &[OutputFormat::Raw])).unwrap_err().kind, ProblemKind::Import);
    // A link to such a file is refused as well.
    symlink(&secret, keep.path().join("link.txt")).unwrap();
    fs::write(&file, "import \"link.txt\"").unwrap();
    let linked = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert_eq!(linked.kind, ProblemKind::Import);
    assert!(linked.message.contains("a link to"), "{}", linked.message);
    // The positive control: each works if allowed.
    let mut allowed = job(&file, &[OutputFormat::Raw]);
    allowed.imports.push(outside.clone());
    assert_eq!(result(allowed.clone()).unwrap().outputs, [Ok("\"secret\"\n".to_owned())]);
    fs::write(&file, import).unwrap();
    assert!(result(allowed).is_ok());
}

#[test]
fn hint_for_a_linked_directory_names_the_whole_of_it() {
    let elsewhere = tempfile::tempdir().unwrap();
    let library = fs::canonicalize(elsewhere.path()).unwrap().join("library");
    for (name, text) in [("lib/base.ncl", "\"base\""), ("skill/default.ncl", "import \"../lib/base.ncl\"")] {
        fs::create_dir_all(library.join(name).parent().unwrap()).unwrap();
        fs::write(library.join(name), text).unwrap();
    }
    let (keep, file) = profile("import \"packages/library/skill/default.ncl\"");
    fs::create_dir(keep.path().join("packages")).unwrap();
    symlink(&library, keep.path().join("packages/library")).unwrap();
    let mut job = job(&file, &[OutputFormat::Raw]);
    let hint = result(job.clone()).unwrap_err().hint.unwrap();
    assert_eq!(hint, format!("--allow-import {} lets it", library.display()));
    // One option is enough, also for what the files there import of each other.
    job.imports.push(library);
    assert_eq!(result(job).unwrap().outputs, [Ok("\"base\"\n".to_owned())]);
}

#[test]
fn links_are_followed_within_the_allowed_directories() {
    let elsewhere = tempfile::tempdir().unwrap();
    let outside = fs::canonicalize(elsewhere.path()).unwrap();
    fs::create_dir(outside.join("sub")).unwrap();
    fs::write(outside.join("sub/o.ncl"), "{ skill_id = \"o\", description | optional }").unwrap();
    fs::write(outside.join("whole.ncl"), "(import \"sandbox\").make_default_config \"whole\"").unwrap();
    let (keep, file) = profile("import \"dir/o.ncl\"");
    let own = fs::canonicalize(keep.path()).unwrap();
    // A linked directory, a link that begins in it, and one that leads out and back.
    symlink(outside.join("sub"), own.join("dir")).unwrap();
    symlink("dir/../whole.ncl", own.join("whole.ncl")).unwrap();
    symlink("loop.ncl", own.join("loop.ncl")).unwrap();
    let hint = |job| result(job).unwrap_err().hint.unwrap();
    let sub = outside.join("sub");
    assert_eq!(hint(job(&file, &[OutputFormat::Raw])), format!("--allow-import {} lets it", sub.display()));
    // The hint's option works, also with the jail's paths of directories.
    let mut allowed = job(&file, &[OutputFormat::Raw]);
    allowed.imports.push(sub.clone());
    let moved = own.join("moved");
    let shown = |job: &EvaluationJob, at: &std::path::Path| {
        let dirs = job.imports.iter().map(|name| EvaluatorDirectory {
            name: name.clone(),
            at: if *name == sub { at.to_owned() } else { name.clone() },
        });
        let request =
            EvaluatorRequest { dirs: dirs.collect(), jobs: vec![job.clone()], address_space: 0, cpu_seconds: 0 };
        say(&serde_json::to_vec(&request).unwrap()).0
    };
    assert!(result(allowed.clone()).is_ok());
    fs::rename(&sub, &moved).unwrap();
    let lines = shown(&allowed, &moved);
    assert!(
        matches!(
            &lines[..],
            [_, EvaluatorMessage::Done { result: cofferdam_profiles::protocol::EvaluationResult::Ok(_), .. }]
        ),
        "{lines:?}"
    );
    fs::rename(&moved, &sub).unwrap();
    // The profile itself as a link, and `..` after a linked directory, which refers to its target's parent.
    let mut linked = job(&own.join("profile.ncl"), &[OutputFormat::Policy]);
    linked.file = own.join("whole.ncl");
    linked.imports.push(outside.clone());
    assert!(result(linked.clone()).is_ok());
    linked.imports.pop();
    assert_eq!(result(linked.clone()).unwrap_err().kind, ProblemKind::Import);
    linked.file = own.join("loop.ncl");
    let refusal = result(linked).unwrap_err();
    assert!(refusal.message.contains("leads to itself"), "{}", refusal.message);
}

#[test]
fn import_hints_name_only_options_that_help() {
    let (keep, file) = profile("import \".hid\" as 'Text");
    fs::write(keep.path().join(".hid"), "x").unwrap();
    let own = fs::canonicalize(keep.path()).unwrap();
    let refusal = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert!(refusal.hint.as_deref().is_some_and(|hint| hint.starts_with("rename it")), "{refusal:?}");
    symlink(".hid", own.join("shown.txt")).unwrap();
    fs::write(&file, "import \"shown.txt\"").unwrap();
    let refusal = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert!(refusal.hint.as_deref().is_some_and(|hint| hint.starts_with("rename it")), "{refusal:?}");
}

#[test]
fn last_override_of_a_field_is_used() {
    let (_keep, file) = profile("(import \"sandbox\").make_default_config \"a\" & { max_memory_mb = 64 }");
    let memory = |set: &[&str]| {
        let mut job = job(&file, &[OutputFormat::Policy]);
        job.overrides = set.iter().map(|text| cofferdam_profiles::overrides::parse(text).unwrap()).collect();
        let limits = policy(job).limits;
        (limits.memory_mb, limits.cpu_seconds)
    };
    assert_eq!(memory(&["max_memory_mb=99", "max_memory_mb=77"]).0, 77);
    assert_eq!(memory(&["resources.max_cpu_seconds=9", "resources={ max_cpu_seconds = 8 }"]).1, 8);
    let deeper = ["resources={ max_cpu_seconds = 8, max_memory_mb = 64 }", "resources.max_cpu_seconds=7"];
    assert_eq!(memory(&deeper), (64, 7));
    assert_eq!(memory(&[&deeper[..], &["resources.max_cpu_seconds=6"]].concat()), (64, 6));
}

#[test]
fn missing_required_field_is_named_with_its_line() {
    let base = "(import \"sandbox\").make_default_config \"a\" &\n{ ";
    for (text, field, line) in [
        (
            format!("{base}mounts = [{{ dst = \"/srv/a\" }}, {{ src = \"/srv/b\" }}] }}"),
            "mounts[1].dst",
            "profile.ncl:2:",
        ),
        (format!("{base}readonly_mounts = [{{ src = \"/srv/b\" }}] }}"), "readonly_mounts[0].dst", "profile.ncl:2:"),
        ("{}".into(), "skill_id", "profile.ncl"),
        ("5".into(), "the profile: 5", "profile.ncl"),
    ] {
        let said = problem(&text).message;
        assert!(said.contains(field) && said.contains(line), "{said}");
    }
}

#[test]
fn evaluation_time_is_linear_in_the_number_of_entries() {
    let entries = |count: usize, entry: &dyn Fn(usize) -> String| (0..count).map(entry).collect::<Vec<_>>().join(", ");
    let kinds: [(&str, &dyn Fn(usize) -> String); 4] = [
        ("mounts", &|n| format!("{{ src = \"/srv/d{n}\", dst = \"/srv/d{n}\" }}")),
        ("filesystem_policy = \"whitelist\", allowed_paths", &|n| format!("\"/srv/d{n}\"")),
        ("env", &|n| format!("\"V{n}=x\"")),
        ("readonly_mounts", &|n| format!("{{ dst = \"/srv/d{n}\" }}")),
    ];
    for (field, entry) in kinds {
        let ticks = |count| {
            let text =
                format!("(import \"sandbox\").make_default_config \"a\" & {{ {field} = [{}] }}", entries(count, entry));
            let (_keep, file) = profile(&text);
            let before = children_cpu();
            policy(job(&file, &[OutputFormat::Policy]));
            children_cpu() - before
        };
        // Four times the entries take four times as long, or sixteen times if the time were quadratic. The evaluators of other tests
        // are children as well, so a second measurement decides.
        let grows = || {
            let (few, many) = (ticks(100).max(1), ticks(400));
            println!("{field}: 100 entries take {few}0 ms of CPU time, 400 take {many}0 ms");
            many >= 8 * few
        };
        assert!(!grows() || !grows(), "{field}");
    }
}

/// CPU time of the children that have ended, in hundredths of a second.
fn children_cpu() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, numbers) = stat.rsplit_once(')').unwrap();
    numbers.split_whitespace().skip(13).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn hidden_files_need_a_named_directory() {
    let (keep, file) = profile("import \".ssh/id\" as 'Text");
    fs::create_dir(keep.path().join(".ssh")).unwrap();
    fs::write(keep.path().join(".ssh/id"), "key").unwrap();
    let refused = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert_eq!(refused.kind, ProblemKind::Import);
    assert!(refused.message.contains("begin with a dot"), "{}", refused.message);
    let mut named = job(&file, &[OutputFormat::Raw]);
    named.imports.push(named.imports[0].join(".ssh"));
    assert!(result(named).is_ok());
}

#[test]
fn oversized_and_special_files_are_refused_unread() {
    let (keep, file) = profile("import \"big.txt\"");
    let big = fs::File::create(keep.path().join("big.txt")).unwrap();
    big.set_len(50_000_000).unwrap();
    let refused = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert_eq!(refused.kind, ProblemKind::TooLarge);
    assert!(refused.message.contains("50000000 bytes") && refused.hint.is_some(), "{}", refused.message);
    // Many files within the limit exceed it together.
    let part = "x".repeat(6 << 20);
    for name in ["1.txt", "2.txt", "3.txt"] {
        fs::write(keep.path().join(name), &part).unwrap();
    }
    fs::write(&file, "[import \"1.txt\", import \"2.txt\", import \"3.txt\"]").unwrap();
    assert_eq!(result(job(&file, &[OutputFormat::Raw])).unwrap_err().kind, ProblemKind::TooLarge);
    fs::write(&file, "std.string.length (import \"1.txt\")").unwrap();
    assert_eq!(result(job(&file, &[OutputFormat::Raw])).unwrap().outputs, [Ok(format!("{}\n", part.len()))]);

    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let pipe = keep.path().join("pipe.ncl");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    fs::write(&file, "import \"pipe.ncl\"").unwrap();
    let refused = result(job(&file, &[OutputFormat::Raw])).unwrap_err();
    assert_eq!(refused.kind, ProblemKind::Unreadable, "{}", refused.message);
}

#[test]
fn deep_nesting_is_an_error_with_its_place() {
    for (text, name) in [
        ("[".repeat(100_000) + &"]".repeat(100_000), "brackets"),
        ("(".repeat(100_000), "parentheses"),
        ("{a=".repeat(100_000), "records"),
        ("fun x => ".repeat(100_000) + "1", "functions"),
        ("1 + ".repeat(100_000) + "1", "operators"),
        ("\"%{".repeat(100_000), "interpolations"),
    ] {
        let refused = problem(&text);
        assert_eq!(refused.kind, ProblemKind::TooDeep, "{name}: {}", refused.message);
        assert!(refused.message.contains("profile.ncl:1:") && refused.hint.is_some(), "{name}");
    }
    let (keep, file) = profile("import \"deep.json\"");
    fs::write(keep.path().join("deep.json"), "[".repeat(100_000) + &"]".repeat(100_000)).unwrap();
    assert_eq!(result(job(&file, &[OutputFormat::Raw])).unwrap_err().kind, ProblemKind::TooDeep);
}

#[test]
fn allowed_nesting_depth_can_be_evaluated() {
    let depth = 900;
    for text in [
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth)),
        format!("{}1{}", "{a = ".repeat(depth), "}".repeat(depth)),
        format!("1{}", " + 1".repeat(5_000)),
        format!("{}1", "let x = 1 in ".repeat(3_000)),
    ] {
        let (_keep, file) = profile(&text);
        let result = result(job(&file, &[OutputFormat::Raw]));
        assert!(result.is_ok(), "{}: {}", &text[..40], result.unwrap_err().message);
    }
}

#[test]
fn a_request_that_is_none_is_refused() {
    for request in [&b""[..], b"{}", b"{\"dirs\": [], \"jobs\": [], \"more\": 1}", b"\xff"] {
        let (lines, code) = say(request);
        assert!(matches!(&lines[..], [EvaluatorMessage::Refused(_)]), "{lines:?}");
        assert_eq!(code, Some(125));
    }
    assert_eq!(say(br#"{"dirs": [], "jobs": []}"#), (Vec::new(), Some(0)));
}

#[test]
fn file_outside_the_requested_directories_is_not_read() {
    let (_keep, file) = profile("1");
    let mut elsewhere = job(&file, &[OutputFormat::Raw]);
    elsewhere.file = Path::new("/etc/hostname").into();
    assert_eq!(result(elsewhere).unwrap_err().kind, ProblemKind::Import);
}

#[test]
fn invalid_policy_values_reach_no_target() {
    let raw = |more: &str| format!("{{ version = 1, command.argv = [\"/bin/true\"], {more} }}");
    let rule =
        |call: &str| raw(&format!("process.seccomp.rules = [{{ syscalls = [\"{call}\"], action.errno = \"EPERM\" }}]"));
    let outcome = |text: &str, format| {
        let (_scene, file) = profile(text);
        result(job(&file, &[format])).map(|evaluated| evaluated.outputs[0].clone())
    };
    for format in [OutputFormat::Policy, OutputFormat::Nsjail, OutputFormat::NsjailText, OutputFormat::Seatbelt] {
        // The positive control: the same text without the character that would end the filter's text.
        for (bad, word) in [
            (rule("personality } } USE other DEFAULT ALLOW /*"), "name of a system call"),
            (raw("process.hostname = \"a\\nb\""), "not a host name"),
            (raw("id = \"a/b\""), "not an identifier"),
            (raw("limits.memory_mb = 1e30"), "too large"),
            (
                raw("filesystem.mounts = [{ type = \"bind\", source = \"/srv/../etc\", target = \"/x\" }]"),
                "absolute path",
            ),
            (raw("command.variables = { \"A=B\" = \"c\" }"), "not a variable's name"),
        ] {
            let problem = outcome(&bad, format).unwrap_err();
            let kinds = [ProblemKind::Policy, ProblemKind::Nickel];
            assert!(kinds.contains(&problem.kind) && problem.message.contains(word), "{format:?}: {problem:?}");
        }
        let allowed = outcome(&rule("personality"), format).unwrap();
        assert_eq!(allowed.is_ok(), format != OutputFormat::Seatbelt, "{allowed:?}: Seatbelt knows no system calls");
        if let Ok(text) = allowed {
            assert!(text.contains("personality"), "{format:?}: {text}");
        }
    }
    let (_scene, base) = profile("{ version = 1, network.mode = \"none\" }");
    assert!(result(job(&base, &[OutputFormat::Policy])).unwrap().outputs[0].is_ok(), "a base has no program yet");
}

#[test]
fn seatbelt_command_line_quotes_paths_for_a_shell() {
    let text = |path: &str| {
        let mount = format!("{{ type = \"bind\", source = {path}, target = {path} }}");
        let (_scene, file) = profile(&format!("{{ version = 1, filesystem.mounts = [{mount}] }}"));
        result(job(&file, &[OutputFormat::Seatbelt])).unwrap().outputs[0].clone().unwrap()
    };
    let message = text(r#""/srv/$(id)`id`'\"""#);
    assert!(message.contains(r#" -D READ_0='/srv/$(id)`id`'\''"' "#), "{message}");
    assert!(text(r#""/srv/plain""#).contains(" -D READ_0=/srv/plain "));
    let lines = text(r#""/srv/a\n(allow default)""#);
    assert!(lines.contains("'/srv/a?(allow default)'") && !lines.contains("\n(allow default)"), "{lines}");
}

#[test]
fn protected_names_cannot_end_their_string() {
    let text = |name: &str| {
        let (_scene, file) = profile(&format!("{{ version = 1, filesystem.protected = [{name}] }}"));
        result(job(&file, &[OutputFormat::Seatbelt])).unwrap().outputs[0].clone().unwrap()
    };
    let plain = text(r#"".git/ho(ks""#);
    assert!(plain.contains(r##"(regex #"/\.git/ho\(ks(/|$)")"##), "{plain}");
    // A character that cannot be written matches any: more is protected, never less.
    let message = text(r#""a\" b\n(allow default)\u{1b}c""#);
    assert!(message.contains(r##"(regex #"/a.* b.*\(allow default\).*c(/|$)")"##), "{message}");
    // An Arabic number sign forms one grapheme cluster with the next character.
    let message = text(r#""é\u{600}\"(allow default)""#);
    assert!(message.contains(r##"(regex #"/é.*\(allow default\)(/|$)")"##), "{message}");
}

#[test]
fn texts_cannot_end_their_string_in_nsjail_format() {
    let description = |text: &str| {
        let (_scene, file) =
            profile(&format!("{{ version = 1, command.argv = [\"/bin/true\"], description = \"{text}\" }}"));
        let message = result(job(&file, &[OutputFormat::NsjailText])).unwrap().outputs[0].clone().unwrap();
        message.lines().find(|line| line.starts_with("description: ")).unwrap().to_owned()
    };
    for (text, message) in [
        ("plain, 'é'", r#""plain, '\303\251'""#),
        (r#"a\" b: 1 #\\"#, r#""a\" b: 1 #\\""#),
        (r"a\nb\tc", r#""a\nb\tc""#),
        // Each is one grapheme cluster, in which a quote or a newline is not recognised.
        (r#"\u{600}\" keep_caps: true #"#, r#""\330\200\042 keep_caps: true #""#),
        (r#"\"\u{301} keep_caps: true #"#, r#""\042\314\201 keep_caps: true #""#),
        (r"a\r\nb", r#""a\015\012b""#),
        (r"\u{1b}\u{9b}\u{202e}\u{10ffff}", r#""\033\302\233\342\200\256\364\217\277\277""#),
    ] {
        assert_eq!(description(text), format!("description: {message}"), "{text}");
    }
}
