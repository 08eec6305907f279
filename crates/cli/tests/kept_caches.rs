//! `--cache`: what a tool's cache holds is there for the next run in the same directory, and for no other run.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use common::{Shown, cofferdam, shown_directory};

/// A home with two projects.
struct World(Shown);

impl World {
    fn new(name: &str) -> Option<World> {
        let world = World(shown_directory(name)?);
        for name in ["home/one", "home/two", "elsewhere"] {
            fs::create_dir_all(world.at(name)).unwrap();
        }
        Some(world)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    fn run(&self, project: &str, options: &[&str], script: &str) -> Output {
        let mut command = cofferdam();
        command.env("HOME", self.at("home")).env_remove("XDG_CACHE_HOME").env_remove("PYENV_ROOT");
        command.current_dir(self.at(project));
        command.arg("run").args(options).args(["--", "sh", "-c", script]).output().unwrap()
    }

    #[track_caller]
    fn prints(&self, project: &str, options: &[&str], script: &str) -> String {
        let output = self.run(project, options, script);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn refused(&self, project: &str, options: &[&str]) -> String {
        let output = self.run(project, options, "true");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        said
    }

    /// The one directory of kept caches.
    fn kept(&self, name: &str) -> PathBuf {
        let all = fs::read_dir(self.at("home/.cache/cofferdam-caches")).unwrap().flatten();
        let mut own = all.map(|entry| entry.path()).filter(|path| path.to_str().unwrap().contains(name));
        own.next().unwrap()
    }
}

const PIP: [&str; 5] = ["--for", "pip", "--network", "none", "--cache"];
const ADD: &str = "echo x >>/tmp/home/.cache/pip/kept; cat /tmp/home/.cache/pip/kept";

#[test]
fn a_cache_is_kept_for_its_directory_alone() {
    let Some(world) = World::new("kept-caches-1") else { return };
    assert_eq!(world.prints("home/one", &PIP, ADD), "x\n");
    assert_eq!(world.prints("home/one", &PIP, ADD), "x\nx\n");
    assert_eq!(world.prints("home/two", &PIP, ADD), "x\n", "another directory has its own");
    assert_eq!(world.prints("home/one", &PIP[..4], "ls -A /tmp/home"), "", "without the option there is none");
    // What lies in the home beside the caches goes with the run.
    world.prints("home/one", &PIP, "echo x >/tmp/home/file");
    assert_eq!(world.prints("home/one", &PIP, "ls /tmp/home"), "");
    let kept = world.kept("one-");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::read_to_string(kept.join(".cache-pip/kept")).unwrap(), "x\nx\n");
}

#[test]
fn no_other_run_sees_a_kept_cache() {
    let Some(world) = World::new("kept-caches-2") else { return };
    world.prints("home/one", &PIP, ADD);
    let kept = world.kept("one-");
    let look = format!("cat {}/.cache-pip/kept 2>/dev/null || echo hidden", kept.display());
    let home = format!("{0}:{0}:rw", world.at("home").display());
    // The run itself, by the path outside; one of another project, with and without a cache; one that shows the home.
    assert_eq!(world.prints("home/one", &PIP, &look), "hidden\n");
    assert_eq!(world.prints("home/two", &PIP, &look), "hidden\n");
    assert_eq!(world.prints("home/two", &[], &look), "hidden\n");
    assert_eq!(world.prints("elsewhere", &["-v", &home], &look), "hidden\n");
    // Its twin in the same home is there.
    fs::write(world.at("home/visible"), "seen\n").unwrap();
    let twin = format!("cat {}", world.at("home/visible").display());
    assert_eq!(world.prints("elsewhere", &["-v", &home], &twin), "seen\n");
    // A cache cannot be asked for where a volume would show those of others.
    for volume in [home, format!("{}:/all:ro", world.at("home/.cache").display()), format!("{}:/k", kept.display())] {
        let options = [&PIP[..], &["-v", volume.as_str()]].concat();
        let said = world.refused("home/two", &options);
        assert!(said.contains("would show the caches of other projects") && said.contains("hint: "), "{said}");
    }
}

#[test]
fn caches_that_a_variable_or_a_link_moved_are_hidden_as_well() {
    let Some(world) = World::new("kept-caches-5") else { return };
    fs::create_dir(world.at("disk")).unwrap();
    let moved = |project: &str, options: &[&str], script: &str| {
        let mut command = cofferdam();
        command.env("HOME", world.at("home")).env("XDG_CACHE_HOME", world.at("disk"));
        command.current_dir(world.at(project)).arg("run").args(options).args(["--", "sh", "-c", script]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(moved("home/one", &PIP, ADD), "x\n");
    let disk = world.at("disk");
    let look = format!("cat {}/cofferdam-caches/*/.cache-pip/kept 2>/dev/null || echo hidden", disk.display());
    let volume = format!("{0}:{0}:rw", disk.display());
    // Without the variable as with it, in a volume as in the host's view.
    assert_eq!(world.prints("home/two", &["-v", &volume], &look), "hidden\n");
    assert_eq!(world.prints("home/two", &[], &look), "hidden\n");
    assert_eq!(moved("home/two", &["-v", &volume], &look), "hidden\n");
    assert_eq!(moved("home/one", &PIP, ADD), "x\nx\n", "its own is there");
    // The directory itself as a link to another disk.
    fs::create_dir_all(world.at("home/.cache")).unwrap();
    fs::create_dir(world.at("disk/cc")).unwrap();
    std::os::unix::fs::symlink(world.at("disk/cc"), world.at("home/.cache/cofferdam-caches")).unwrap();
    assert_eq!(world.prints("home/one", &PIP, ADD), "x\n");
    let look = format!("cat {}/cc/*/.cache-pip/kept 2>/dev/null || echo hidden", disk.display());
    assert_eq!(world.prints("home/two", &["-v", &volume], &look), "hidden\n");
    let said = world.refused("home/two", &[&PIP[..], &["-v", &volume]].concat());
    assert!(said.contains("would show the caches of other projects"), "{said}");
    // A link at a cache's own place is not followed.
    let own = fs::read_dir(world.at("disk/cc")).unwrap().flatten().next().unwrap().path().join(".cache-uv");
    fs::remove_dir(&own).unwrap();
    std::os::unix::fs::symlink(world.at("elsewhere"), &own).unwrap();
    let said = world.refused("home/one", &PIP);
    assert!(said.contains("a link leads elsewhere from it"), "{said}");
}

#[test]
fn the_cache_of_one_directory_is_not_given_to_a_program_in_another() {
    let Some(world) = World::new("kept-caches-6") else { return };
    fs::create_dir(world.at("home/one/sub")).unwrap();
    std::os::unix::fs::symlink(world.at("home/two"), world.at("home/one/link")).unwrap();
    let started = |directory: &str| [&PIP[..], &["-w", directory]].concat().iter().map(|s| (*s).to_owned()).collect();
    let two = world.at("home/two");
    for directory in [two.to_str().unwrap(), "../two", "..", "/", "link"] {
        let options: Vec<String> = started(directory);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let said = world.refused("home/one", &options);
        assert!(
            said.contains("--cache keeps caches for the working directory") && said.contains("hint: cd "),
            "{said}"
        );
        let without: Vec<&str> = options.iter().copied().filter(|option| *option != "--cache").collect();
        world.prints("home/one", &without, "true");
    }
    for directory in ["sub", ".", world.at("home/one").to_str().unwrap()] {
        let options: Vec<String> = started(directory);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        world.prints("home/one", &options, ADD);
    }
    assert_eq!(world.prints("home/one", &PIP, ADD), "x\n".repeat(4));
}

#[test]
fn a_moved_place_that_something_else_made_is_not_used() {
    let Some(world) = World::new("kept-caches-7") else { return };
    let disk = world.at("disk");
    fs::create_dir_all(&disk).unwrap();
    let moved = |project: &str, place: &str, script: &str| {
        let mut command = cofferdam();
        command.env("HOME", world.at("home")).env("XDG_CACHE_HOME", disk.join(place)).env_remove("XDG_STATE_HOME");
        command.current_dir(world.at(project)).arg("run").args(PIP).args(["--", "sh", "-c", script]);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    assert_eq!(moved("home/one", "own", ADD), (Some(0), "x\n".into()));
    assert_eq!(moved("home/one", "own", ADD), (Some(0), "x\nx\n".into()), "known");
    let name = fs::read_dir(disk.join("own/cofferdam-caches")).unwrap().flatten().next().unwrap().file_name();
    // Code that knows the place before it is used: with a cache, a link to one, a link in the place of all, one in a project's.
    fs::create_dir_all(disk.join("planted/cofferdam-caches").join(&name).join(".cache-pip")).unwrap();
    fs::create_dir_all(disk.join("linked")).unwrap();
    fs::create_dir_all(disk.join("target")).unwrap();
    std::os::unix::fs::symlink(disk.join("target"), disk.join("linked/cofferdam-caches")).unwrap();
    for (place, why) in [("planted", "was not made by Cofferdam"), ("linked", "a link leads elsewhere")] {
        let (code, said) = moved("home/one", place, "true");
        assert!(code == Some(125) && said.contains(why) && said.contains("hint: remove it"), "{place}: {said}");
    }
    let all = disk.join("own/cofferdam-caches");
    fs::rename(all.join(&name), disk.join("away")).unwrap();
    std::os::unix::fs::symlink(disk.join("target"), all.join(&name)).unwrap();
    let (code, said) = moved("home/one", "own", "true");
    assert!(code == Some(125) && said.contains("a link leads elsewhere"), "{said}");
    assert_eq!(fs::read_dir(disk.join("target")).unwrap().count(), 0, "nothing is made behind a link");
    fs::remove_file(all.join(&name)).unwrap();
    assert_eq!(moved("home/one", "own", ADD), (Some(0), "x\n".into()), "afresh");
    // Removed, and made anew by another.
    fs::remove_dir_all(&all).unwrap();
    fs::create_dir_all(all.join(&name).join(".cache-pip")).unwrap();
    let (code, said) = moved("home/one", "own", ADD);
    assert!(code == Some(125) && said.contains("was not made by Cofferdam, or its record is gone"), "{said}");
    fs::remove_dir_all(&all).unwrap();
    assert_eq!(moved("home/one", "own", ADD), (Some(0), "x\n".into()), "removed, as the hint has it");
    // What a run with a volume over the place makes there before its program could, is Cofferdam's.
    let volume = format!("{0}:{0}:rw", disk.display());
    let mut claims = cofferdam();
    claims.env("HOME", world.at("home")).env("XDG_CACHE_HOME", disk.join("claimed")).env_remove("XDG_STATE_HOME");
    fs::create_dir(disk.join("claimed")).unwrap();
    let claims = claims.current_dir(world.at("home/two")).args(["run", "-v", &volume, "--", "true"]).output().unwrap();
    assert!(claims.status.success() && disk.join("claimed/cofferdam-caches").is_dir(), "{claims:?}");
    assert_eq!(moved("home/one", "claimed", ADD), (Some(0), "x\n".into()));
}

#[test]
fn a_cache_needs_a_tool_and_a_project() {
    let Some(world) = World::new("kept-caches-3") else { return };
    let said = world.refused("home/one", &["--cache"]);
    assert!(said.contains("no --for names one") && said.contains("hint: --for npm"), "{said}");
    let said = world.refused("home/one", &["--for", "jupyter", "--cache"]);
    assert!(said.contains("has no cache that could be kept"), "{said}");
    let said = world.refused("home", &PIP);
    assert!(said.contains("is no project"), "{said}");
    // What --dry-run prints stands for it, and nothing is made.
    let printed = world.prints("home/one", &[&PIP[..], &["--dry-run"]].concat(), "true");
    assert!(printed.contains("--volume ") && printed.contains(":/tmp/home/.cache/pip:rw"), "{printed}");
    assert!(!world.at("home/.cache").exists());
}

#[test]
fn pip_of_pyenv_does_not_fail_over_its_list_of_programs() {
    let Some(world) = World::new("kept-caches-4") else { return };
    let hook = world.at("home/.pyenv/pyenv.d/exec/pip-rehash");
    fs::create_dir_all(&hook).unwrap();
    fs::write(hook.join("pip"), "").unwrap();
    fs::create_dir_all(world.at("home/.pyenv/shims")).unwrap();
    let look = "ls $PYENV_ROOT/pyenv.d/exec/pip-rehash";
    assert_eq!(world.prints("home/one", &["--for", "pip"], look), "");
    assert_eq!(world.prints("home/one", &[], look), "pip\n", "the twin: another program");
    let shims = format!("{0}:{0}:rw", world.at("home/.pyenv/shims").display());
    assert_eq!(world.prints("home/one", &["--for", "pip", "-v", &shims], look), "pip\n", "it can be written");
}
