//! `cofferdam agent`: what a coding agent is given, what it keeps, and what it cannot change. A script stands in for the agent.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use common::{Shown, cofferdam, parse, shown_directory};

const KEY: &str = "sk-key-of-the-test";

/// A home with a project, and a program that is called `claude`.
struct World {
    directory: Shown,
}

impl World {
    fn new(name: &str, script: &str) -> Option<World> {
        let world = World { directory: shown_directory(name)? };
        for name in ["home/.claude", "home/project", "home/other", "bin"] {
            fs::create_dir_all(world.at(name)).unwrap();
        }
        fs::write(world.at("home/.claude/settings.json"), "of the home\n").unwrap();
        fs::write(world.at("home/.claude/.credentials.json"), "login\n").unwrap();
        fs::write(world.at("bin/claude"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(world.at("bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
        Some(world)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.0.join(name)
    }

    /// Runs the command in a project, with a key or with none.
    fn run(&self, project: &str, key: bool, arguments: &[&str]) -> Output {
        let mut command = cofferdam();
        command.env("HOME", self.at("home")).env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display()));
        command
            .env_remove("XDG_DATA_HOME")
            .env_remove("XDG_STATE_HOME")
            .env_remove("ANTHROPIC_AUTH_TOKEN")
            .env_remove("CLAUDE_CODE_OAUTH_TOKEN");
        match key {
            true => command.env("ANTHROPIC_API_KEY", KEY),
            false => command.env_remove("ANTHROPIC_API_KEY"),
        };
        command.current_dir(self.at(project)).args(arguments).output().unwrap()
    }

    /// The state of the agent in a project.
    fn state(&self, project: &str) -> PathBuf {
        let name = self.at(project).to_str().unwrap().replace('/', "%2F");
        self.at("home/.local/share/cofferdam-agents/claude").join(name).join(".claude")
    }
}

fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn no_other_program_runs_in_the_place_of_an_agent_that_cannot_be_reached() {
    let Some(world) = World::new("agents-passed-over", "echo first") else { return };
    let other = world.at("other-bin");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("claude"), "#!/bin/sh\necho other\n").unwrap();
    fs::set_permissions(other.join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
    let run = || {
        let path = format!("{}:{}:/usr/bin:/bin", world.at("bin").display(), other.display());
        let mut command = cofferdam();
        command
            .env("HOME", world.at("home"))
            .env("PATH", path)
            .env("ANTHROPIC_API_KEY", KEY)
            .env_remove("XDG_DATA_HOME");
        command.current_dir(world.at("home/project")).args(["agent", "claude"]).output().unwrap()
    };
    assert_eq!(printed(&run()), "first\n");
    fs::set_permissions(world.at("bin"), fs::Permissions::from_mode(0o700)).unwrap();
    let closed = run();
    if common::is_root() {
        let said = String::from_utf8_lossy(&closed.stderr);
        assert_eq!((closed.status.code(), closed.stdout.is_empty()), (Some(125), true), "{said}");
        assert!(said.contains("would run in its place") && said.contains("hint: "), "{said}");
    } else {
        assert_eq!(printed(&closed), "first\n", "it is the caller's own");
    }
}

#[test]
fn an_agent_has_its_key_its_state_and_the_project_and_not_the_home() {
    let script = r#"echo "$ANTHROPIC_API_KEY $*"; cat "$CLAUDE_CONFIG_DIR/settings.json"; echo edited >notes
        echo seen >>"$CLAUDE_CONFIG_DIR/history"; cat "$CLAUDE_CONFIG_DIR/history"
        ls -A "$CLAUDE_CONFIG_DIR" | grep -c credentials; cat HOME/.claude/.credentials.json 2>/dev/null || echo hidden"#;
    let Some(world) = World::new("agents-1", "") else { return };
    let script = script.replace("HOME", world.at("home").to_str().unwrap());
    fs::write(world.at("bin/claude"), format!("#!/bin/sh\n{script}\n")).unwrap();
    let first = world.run("home/project", true, &["agent", "claude", "--", "-p", "words of mine"]);
    let argument = "--dangerously-skip-permissions -p words of mine";
    assert_eq!(printed(&first), format!("{KEY} {argument}\nof the home\nseen\n0\nhidden\n"));
    assert_eq!(content(&world.at("home/project/notes")), "edited\n");
    let said = String::from_utf8_lossy(&first.stderr);
    assert!(said.contains("claude may write") && said.contains("api.anthropic.com"), "{said}");
    // It remembers, in this project alone.
    assert!(printed(&world.run("home/project", true, &["agent", "claude"])).ends_with("seen\nseen\n0\nhidden\n"));
    assert!(printed(&world.run("home/other", true, &["agent", "claude"])).ends_with("of the home\nseen\n0\nhidden\n"));
    assert_eq!(content(&world.at("home/.claude/settings.json")), "of the home\n");
    assert!(!world.at("home/.claude/history").exists());
    // Neither another project's agent nor another program sees it.
    let history = world.state("home/project").join("history");
    let reads = format!("#!/bin/sh\ncat '{}' || echo hidden\n", history.display());
    fs::write(world.at("bin/claude"), &reads).unwrap();
    assert_eq!(printed(&world.run("home/other", true, &["agent", "claude"])), "hidden\n");
    let home = format!("{0}:{0}", world.at("home").display());
    for volume in [&[][..], &["-v", &home]] {
        let arguments: Vec<&str> = ["run"].iter().chain(volume).chain(&["sh", "-c", &reads]).copied().collect();
        assert_eq!(printed(&world.run("home/other", true, &arguments)), "hidden\n", "{volume:?}");
    }
    assert_eq!(content(&history), "seen\nseen\n");
}

/// Each state that another agent begins while this one runs is hidden from it as well.
#[test]
fn states_that_begin_later_are_hidden_and_shown_by_no_volume() {
    let Some(world) = World::new("agents-later", "") else { return };
    let states = world.at("home/.local/share/cofferdam-agents");
    let script = format!(
        "#!/bin/sh\nif test -e wait; then : >ready; while test ! -e go; do sleep 0.05; done; cat {0}/claude/*other*/.claude/history \
         || echo hidden; fi\necho seen >\"$CLAUDE_CONFIG_DIR/history\"\n",
        states.display()
    );
    fs::write(world.at("bin/claude"), script).unwrap();
    fs::write(world.at("home/project/wait"), "").unwrap();
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| world.run("home/project", true, &["agent", "--timeout", "20s", "claude"]));
        common::eventually("it runs", Duration::from_secs(15), || world.at("home/project/ready").exists());
        let second = world.run("home/other", true, &["agent", "claude"]);
        fs::write(world.at("home/project/go"), "").unwrap();
        (first.join().unwrap(), second)
    });
    assert_eq!((printed(&first), printed(&second)), ("hidden\n".to_owned(), String::new()));
    assert_eq!(content(&world.state("home/other").join("history")), "seen\n");
    for source in ["home", "home/.local", "home/.local/share/cofferdam-agents"] {
        let volume = format!("{}:/mnt", world.at(source).display());
        let refused = world.run("home/project", true, &["agent", "-v", &volume, "claude"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(125) && said.contains("the states and logins of others"),
            "{source}: {said}"
        );
    }
    let inside = world.run("home/.local/share", true, &["agent", "claude"]);
    assert_eq!(inside.status.code(), Some(125), "{inside:?}");
    let dots = format!("{}:/mnt", world.at("home/project").display());
    assert_eq!(printed(&world.run("home/other", true, &["agent", "-v", &dots, "claude"])), "");
}

#[test]
fn the_data_directory_may_be_elsewhere_and_a_home_may_be_a_link() {
    let Some(world) = World::new(
        "agents-elsewhere",
        "echo seen >>\"$CLAUDE_CONFIG_DIR/history\"; cat \"$CLAUDE_CONFIG_DIR/history\"",
    ) else {
        return;
    };
    symlink(world.at("home"), world.at("linked")).unwrap();
    for (variable, value) in [("XDG_DATA_HOME", "data"), ("XDG_DATA_HOME", "home/.local/share"), ("HOME", "linked")] {
        let mut command = cofferdam();
        command.env("HOME", world.at("home")).env("PATH", format!("{}:/usr/bin:/bin", world.at("bin").display()));
        command.env_remove("XDG_DATA_HOME").env("ANTHROPIC_API_KEY", KEY).env(variable, world.at(value));
        let output = command.current_dir(world.at("home/project")).args(["agent", "claude"]).output().unwrap();
        assert!(printed(&output).starts_with("seen\n"), "{variable}={value}");
    }
    assert!(world.at("data/cofferdam-agents/claude").is_dir());
}

#[test]
fn settings_are_read_only_and_the_project_can_be_a_copy() {
    let script = r#"echo evil >"$CLAUDE_CONFIG_DIR/settings.json" || echo refused
        mkdir -p .claude && echo evil >.claude/settings.json || echo refused
        echo edited >notes && echo written"#;
    let Some(world) = World::new("agents-2", script) else { return };
    fs::create_dir(world.at("home/project/.claude")).unwrap();
    fs::write(world.at("home/project/.claude/settings.json"), "of the project\n").unwrap();
    let rw = world.run("home/project", true, &["agent", "claude"]);
    assert_eq!(printed(&rw), "refused\nrefused\nwritten\n");
    assert_eq!(content(&world.at("home/.claude/settings.json")), "of the home\n");
    assert_eq!(content(&world.at("home/project/.claude/settings.json")), "of the project\n");
    assert_eq!(content(&world.at("home/project/notes")), "edited\n");
    fs::remove_file(world.at("home/project/notes")).unwrap();
    if common::has("overlayfs") {
        let cow = world.run("home/project", true, &["agent", "--here=cow", "claude"]);
        assert!(printed(&cow).ends_with("written\n"));
        assert!(!world.at("home/project/notes").exists());
    }
}

/// A repository has what links in the home lead to, and links to hidden places, as a sandbox can make them there.
#[test]
fn settings_and_a_login_behind_a_link_in_a_repository_are_not_shown() {
    let script = r#"cd "$CLAUDE_CONFIG_DIR"; for file in settings.json skills/diary commands/diary .credentials.json agents/inner/diary; do
        cat "$file" 2>/dev/null || echo none; done; cat agents/mine CLAUDE.md"#;
    let Some(world) = World::new("agents-links", script) else { return };
    let link = |to: &str, name: &str| symlink(to, world.at(name)).unwrap();
    for name in ["home/.private", "home/dots/agents"] {
        fs::create_dir_all(world.at(name)).unwrap();
    }
    fs::write(world.at("home/.private/diary"), "private\n").unwrap();
    fs::write(world.at("home/dots/agents/mine"), "an agent of mine\n").unwrap();
    fs::write(world.at("home/dots/CLAUDE.md"), "a memory of mine\n").unwrap();
    for name in ["settings.json", ".credentials.json"] {
        fs::remove_file(world.at("home/.claude").join(name)).unwrap();
        link(&format!("../dots/{name}"), &format!("home/.claude/{name}"));
        link("../.private/diary", &format!("home/dots/{name}"));
    }
    for name in ["skills", "agents", "CLAUDE.md"] {
        link(&format!("../dots/{name}"), &format!("home/.claude/{name}"));
    }
    link("../.private", "home/dots/skills");
    link("../linked/commands", "home/.claude/commands");
    link("dots/above", "home/linked");
    fs::create_dir(world.at("home/.private/commands")).unwrap();
    fs::write(world.at("home/.private/commands/diary"), "private\n").unwrap();
    link("../.private", "home/dots/above");
    link("../../.private", "home/dots/agents/inner");
    let shown = "none\nnone\nnone\nnone\nnone\nan agent of mine\na memory of mine\n";
    let says = |output: &Output, names: &[&str]| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let paths = names.iter().map(|name| world.at("home/dots").join(name));
        for path in paths {
            assert!(said.contains(&format!("leads to the link {}", path.display())), "{path:?}: {said}");
        }
        assert!(!said.contains("~/.claude/agents") && !said.contains("~/.claude/CLAUDE.md"), "{said}");
    };
    let without_key = world.run("home/project", false, &["agent", "claude"]);
    assert_eq!(printed(&without_key), shown);
    says(&without_key, &["settings.json", "skills", "above", ".credentials.json"]);
    // The directory of the settings is the link.
    fs::remove_dir_all(world.at("home/.claude")).unwrap();
    fs::create_dir(world.at("home/dots/commands")).unwrap();
    link("../../.private/diary", "home/dots/commands/diary");
    link("dots", "home/.claude");
    let linked = world.run("home/other", false, &["agent", "claude"]);
    assert_eq!(printed(&linked), shown);
    says(&linked, &["settings.json", "skills", ".credentials.json"]);
    // Control: without the repository's links the same is shown, and the home's own may lead anywhere.
    for (name, content) in [("settings.json", "of mine\n"), (".credentials.json", "login of mine\n")] {
        fs::remove_file(world.at("home/dots").join(name)).unwrap();
        fs::write(world.at("home/dots").join(name), content).unwrap();
    }
    fs::remove_file(world.at("home/dots/skills")).unwrap();
    fs::create_dir(world.at("home/.kept")).unwrap();
    fs::write(world.at("home/.kept/diary"), "a skill of mine\n").unwrap();
    fs::remove_file(world.at("home/.claude")).unwrap();
    fs::create_dir(world.at("home/.claude")).unwrap();
    for (to, name) in [
        ("../dots/settings.json", "settings.json"),
        ("../dots/.credentials.json", ".credentials.json"),
        ("../.kept", "skills"),
        ("../dots/agents", "agents"),
        ("../dots/CLAUDE.md", "CLAUDE.md"),
    ] {
        link(to, &format!("home/.claude/{name}"));
    }
    let own = world.run("home/other", false, &["agent", "claude"]);
    assert!(printed(&own).starts_with("of mine\na skill of mine\nnone\nlogin of mine\n"), "{own:?}");
}

/// The repository with the settings that links in the home lead to is the project.
#[test]
fn settings_that_lie_in_the_project_are_read_only_there_too() {
    let script = r#"(echo evil >claude/settings.json) 2>/dev/null || echo refused; (echo evil >claude/skills/new) 2>/dev/null || echo refused
        mv claude/skills claude/old 2>/dev/null || echo refused; mv claude gone 2>/dev/null || echo refused
        rm claude/settings.json 2>/dev/null || echo refused; (echo evil >claude/hooks) 2>/dev/null && echo made; echo edited >notes && echo written"#;
    let Some(world) = World::new("agents-settings", script) else { return };
    let link = |to: &str, name: &str| symlink(to, world.at(name)).unwrap();
    fs::create_dir_all(world.at("home/dots/claude/skills")).unwrap();
    fs::write(world.at("home/dots/claude/settings.json"), "of the home\n").unwrap();
    fs::remove_file(world.at("home/.claude/settings.json")).unwrap();
    for name in ["settings.json", "skills"] {
        link(&format!("../dots/claude/{name}"), &format!("home/.claude/{name}"));
    }
    let refused = "refused\n".repeat(5);
    let run = world.run("home/dots", true, &["agent", "claude"]);
    assert_eq!(printed(&run), format!("{refused}made\nwritten\n"));
    fs::remove_file(world.at("home/dots/claude/hooks")).unwrap();
    // The whole directory is the repository's: what is not there is not made either.
    fs::remove_dir_all(world.at("home/.claude")).unwrap();
    link("dots/claude", "home/.claude");
    let run = world.run("home/dots", true, &["agent", "claude"]);
    assert_eq!(printed(&run), format!("{refused}written\n"));
    assert_eq!(content(&world.at("home/dots/claude/settings.json")), "of the home\n");
    let names = |directory: &str| fs::read_dir(world.at(directory)).unwrap().count();
    assert_eq!((names("home/dots/claude"), names("home/dots/claude/skills")), (2, 0));
    // A project among them is refused, and one beside them is not.
    let among = world.run("home/dots/claude/skills", true, &["agent", "claude"]);
    let said = String::from_utf8_lossy(&among.stderr);
    assert!(among.status.code() == Some(125) && said.contains("decides what later runs do"), "{said}");
    assert!(printed(&world.run("home/other", true, &["agent", "claude"])).ends_with("written\n"));
}

#[test]
fn states_that_a_variable_moved_are_hidden_from_runs_without_it() {
    let Some(world) = World::new("agents-moved", "") else { return };
    let login = world.at("data/cofferdam-agents/claude");
    let login =
        login.join(world.at("home/project").to_str().unwrap().replace('/', "%2F")).join(".claude/.credentials.json");
    let reads = format!(
        "cat '{}' 2>/dev/null || echo hidden; cat '{}' 2>/dev/null || true",
        login.display(),
        world.at("data/beside").display()
    );
    fs::write(world.at("bin/claude"), format!("#!/bin/sh\n{reads}; cat \"$CLAUDE_CONFIG_DIR/.credentials.json\"\n"))
        .unwrap();
    fs::create_dir(world.at("data")).unwrap();
    fs::write(world.at("data/beside"), "beside\n").unwrap();
    let moved = |project: &str, arguments: &[&str]| {
        let mut command = cofferdam();
        command.env("HOME", world.at("home")).env("PATH", format!("{}:/usr/bin:/bin", world.at("bin").display()));
        command
            .env_remove("ANTHROPIC_API_KEY")
            .env_remove("ANTHROPIC_AUTH_TOKEN")
            .env_remove("CLAUDE_CODE_OAUTH_TOKEN");
        command.env_remove("XDG_STATE_HOME").env("XDG_DATA_HOME", world.at("data"));
        command.current_dir(world.at(project)).args(arguments).output().unwrap()
    };
    let dry_run = moved("home/project", &["agent", "--dry-run", "claude"]);
    assert!(dry_run.status.success() && !world.at("home/.local").exists(), "{dry_run:?}");
    // The agent has its own login, and twice, and the other project's agent has no other's.
    for project in ["home/project", "home/project", "home/other"] {
        assert_eq!(printed(&moved(project, &["agent", "claude"])), "hidden\nlogin\n", "{project}");
    }
    assert_eq!(content(&login), "login\n");
    let run = ["run", "sh", "-c", &reads];
    assert_eq!(printed(&moved("home/other", &run)), "hidden\n");
    // Without the variable, as each run of this user from now on.
    assert_eq!(printed(&world.run("home/other", false, &run)), "hidden\nbeside\n");
    assert_eq!(printed(&world.run("home/other", false, &["agent", "claude"])), "hidden\nbeside\nlogin\n");
    let volume = |name: &str| format!("{}:/mnt", world.at(name).display());
    let listed = world.run("home/other", false, &["run", "-v", &volume("data"), "ls", "-A", "/mnt/cofferdam-agents"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "", "{listed:?}");
    let itself = world.run("home/other", false, &["run", "-v", &volume("data/cofferdam-agents"), "ls", "/mnt"]);
    assert_eq!(itself.status.code(), Some(125), "{itself:?}");
    // Once more with it, where the place is known already.
    assert_eq!(printed(&moved("home/project", &["agent", "claude"])), "hidden\nlogin\n");
    assert_eq!(moved("home/project", &["agent", "--dry-run", "claude"]).status.code(), Some(0));
}

#[test]
fn a_moved_state_that_something_else_made_is_not_used() {
    let Some(world) = World::new("agents-planted", "cat \"$CLAUDE_CONFIG_DIR/planted\" 2>/dev/null || echo own") else {
        return;
    };
    let moved = |place: &str| {
        let mut command = cofferdam();
        command.env("HOME", world.at("home")).env("PATH", format!("{}:/usr/bin:/bin", world.at("bin").display()));
        command.env("ANTHROPIC_API_KEY", KEY).env_remove("XDG_STATE_HOME").env("XDG_DATA_HOME", world.at(place));
        command.current_dir(world.at("home/project")).args(["agent", "claude"]).output().unwrap()
    };
    for _ in 0..2 {
        assert_eq!(printed(&moved("own")), "own\n", "made, and then known");
    }
    fs::create_dir_all(world.at("planted/cofferdam-agents/claude")).unwrap();
    fs::create_dir_all(world.at("linked")).unwrap();
    fs::create_dir_all(world.at("target")).unwrap();
    std::os::unix::fs::symlink(world.at("target"), world.at("linked/cofferdam-agents")).unwrap();
    fs::create_dir_all(world.at("away")).unwrap();
    fs::rename(world.at("own/cofferdam-agents/claude"), world.at("away/claude")).unwrap();
    std::os::unix::fs::symlink(world.at("target"), world.at("own/cofferdam-agents/claude")).unwrap();
    for (place, why) in [
        ("planted", "was not made by Cofferdam"),
        ("linked", "a link leads elsewhere"),
        ("own", "a link leads elsewhere"),
    ] {
        let refused = moved(place);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(125) && said.contains(why) && said.contains("hint: remove"),
            "{place}: {said}"
        );
    }
    assert_eq!(fs::read_dir(world.at("target")).unwrap().count(), 0, "nothing is made behind a link");
}

#[test]
fn a_project_with_a_long_path_has_a_state_of_its_own() {
    let script = "ls -A \"$CLAUDE_CONFIG_DIR\" | grep -c seen; : >\"$CLAUDE_CONFIG_DIR/seen\"";
    let Some(world) = World::new("agents-long", script) else { return };
    let deep = format!("home/project{}", "/directory".repeat(30));
    for last in ["one", "two"] {
        let project = format!("{deep}/{last}");
        fs::create_dir_all(world.at(&project)).unwrap();
        for seen in ["0\n", "1\n"] {
            assert_eq!(printed(&world.run(&project, true, &["agent", "claude"])), seen, "{last}");
        }
    }
}

#[test]
fn a_login_is_copied_where_there_is_no_key_and_follows_no_link_of_the_agent() {
    let script = r#"cat "$CLAUDE_CONFIG_DIR/.credentials.json"; rm "$CLAUDE_CONFIG_DIR"/.credentials.json; cd "$CLAUDE_CONFIG_DIR"
        ln -s VICTIM .credentials.json; true"#;
    let Some(world) = World::new("agents-3", "") else { return };
    let victim = world.at("home/victim");
    fs::write(&victim, "untouched\n").unwrap();
    let script = script.replace("VICTIM", victim.to_str().unwrap());
    fs::write(world.at("bin/claude"), format!("#!/bin/sh\n{script}\n")).unwrap();
    assert_eq!(printed(&world.run("home/project", false, &["agent", "claude"])), "login\n");
    // The link is there now, and the next run copies anew.
    let copy = world.state("home/project").join(".credentials.json");

    assert!(fs::symlink_metadata(&copy).unwrap().is_symlink());
    assert_eq!(printed(&world.run("home/project", false, &["agent", "claude"])), "login\n");
    assert_eq!(
        (content(&victim), content(&world.at("home/.claude/.credentials.json"))),
        ("untouched\n".into(), "login\n".into())
    );
    // With a key there is no login inside.
    assert_eq!(printed(&world.run("home/project", true, &["agent", "claude"])), "");
}

#[test]
fn an_agent_without_key_and_login_is_said_to_have_none() {
    let Some(world) = World::new("agents-login", "true") else { return };
    let said = |key: bool| String::from_utf8(world.run("home/other", key, &["agent", "claude"]).stderr).unwrap();
    let note = "claude has no key and no login; hint: set ANTHROPIC_API_KEY";
    assert!(!said(false).contains("no login"), "the home has one");
    fs::remove_file(world.at("home/.claude/.credentials.json")).unwrap();
    fs::remove_file(world.state("home/other").join(".credentials.json")).unwrap();
    assert!(said(false).contains(note), "{}", said(false));
    assert!(!said(true).contains("no login"));
}

#[test]
fn a_place_of_settings_that_the_agent_made_a_link_is_made_anew() {
    let Some(world) = World::new("agents-4", r#"cat "$CLAUDE_CONFIG_DIR/settings.json""#) else { return };
    let victim = world.at("home/victim");
    fs::write(&victim, "untouched\n").unwrap();
    assert_eq!(printed(&world.run("home/project", true, &["agent", "claude"])), "of the home\n");
    let place = world.state("home/project").join("settings.json");
    fs::remove_file(&place).unwrap();
    symlink(&victim, &place).unwrap();
    assert_eq!(printed(&world.run("home/project", true, &["agent", "claude"])), "of the home\n");
    assert_eq!(content(&victim), "untouched\n");
    assert!(fs::symlink_metadata(&place).unwrap().is_file());
}

#[test]
fn a_dry_run_prints_the_options_and_no_key_and_makes_nothing() {
    let Some(world) = World::new("agents-5", "true") else { return };
    let output = world.run("home/project", true, &["agent", "--dry-run", "claude"]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains(KEY));
    let dry_run = parse(&output);
    let options = dry_run["for"]["claude"].to_string();
    for option in ["--here rw", "--allow @anthropic", "--env ANTHROPIC_API_KEY", "--timeout none"] {
        assert!(options.contains(option), "{option}: {options}");
    }
    assert_eq!(dry_run["policy"]["command"]["variables"]["ANTHROPIC_API_KEY"], "***");
    assert!(!world.at("home/.local").exists());
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is_made() {
    let Some(world) = World::new("agents-6", "true") else { return };
    for (arguments, code, said) in [
        (&["agent", "clade"][..], 125, "did you mean `claude`?"),
        (&["agent", "goose"], 127, "goose is not installed"),
        (&["agent", "--policy", "p.json", "claude"], 125, "cofferdam agent --dry-run"),
        (&["agent"], 125, "hint: "),
    ] {
        let output = world.run("home/project", true, arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && message.contains(said), "{arguments:?}: {message}");
    }
    // What it would be run with can be looked at all the same.
    let dry_run = world.run("home/project", true, &["agent", "--dry-run", "goose"]);
    assert!(String::from_utf8_lossy(&dry_run.stderr).contains("goose is not installed"), "{dry_run:?}");
    assert!(parse(&dry_run)["for"]["goose"].to_string().contains("--here rw"));
    let home = world.run("home", true, &["agent", "claude"]);
    assert!(String::from_utf8_lossy(&home.stderr).contains("no project"), "{home:?}");
    let listed = printed(&world.run("home/project", true, &["agent", "list"]));
    assert!(listed.lines().any(|line| line.starts_with("claude") && line.contains(" yes ")), "{listed}");
    assert!(listed.lines().any(|line| line.starts_with("goose") && line.contains(" no ")), "{listed}");
}

#[test]
fn an_agent_that_is_run_as_any_program_is_pointed_to_its_command() {
    let Some(world) = World::new("agents-7", "echo no connection; exit 1") else { return };
    let failed = world.run("home/project", true, &["run", "claude"]);
    assert!(String::from_utf8_lossy(&failed.stderr).contains("hint: cofferdam agent claude"), "{failed:?}");
    let Some(world) = World::new("agents-8", "exit 0") else { return };
    let fine = world.run("home/project", true, &["run", "claude"]);
    assert_eq!(String::from_utf8_lossy(&fine.stderr), "");
}
