//! Layers that hide many names of a directory: one that is not what it should be hides nothing for anybody, and is made anew.

mod common;

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Shown, cofferdam, is_root, needs, shown_directory};

const USER: u32 = 65534;

/// A home with more names to hide than are mounted over one by one, two projects, and a disk beside it.
struct World {
    shown: Shown,
    /// Whether the runs are those of an ordinary user.
    ordinary: bool,
}

impl World {
    fn all(name: &str) -> Vec<World> {
        let users = if is_root() { &[false, true][..] } else { &[true] };
        let each = users.iter().filter(|_| needs("user namespaces")).filter_map(|&ordinary| {
            let world = World { shown: shown_directory(&format!("{name}-{ordinary}"))?, ordinary };
            for directory in ["home/one", "home/two", "home/.ssh", "disk"] {
                fs::create_dir_all(world.at(directory)).unwrap();
            }
            // Names of this test's own, since root has one place for all layers.
            (0..100).for_each(|i| fs::write(world.name(i), "secret\n").unwrap());
            fs::write(world.at("home/.ssh/id"), "secret\n").unwrap();
            fs::write(world.at("home/notes"), "seen\n").unwrap();
            world.give();
            Some(world)
        });
        each.collect()
    }

    /// Everything is the user's.
    fn give(&self) {
        let all = Command::new("find").arg(self.shown.0.as_os_str()).output().unwrap().stdout;
        for path in String::from_utf8(all).unwrap().lines().filter(|_| self.ordinary && is_root()) {
            std::os::unix::fs::lchown(path, Some(USER), Some(USER)).unwrap();
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.shown.0.join(name)
    }

    fn name(&self, i: u32) -> PathBuf {
        self.at(&format!("home/.name-{}-{i}", std::process::id()))
    }

    fn run(&self, variables: &[(&str, &Path)], project: &str, options: &[&str], script: &str) -> (i32, String) {
        let mut command = cofferdam();
        for name in ["XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", self.at("home")).envs(variables.iter().copied()).current_dir(self.at(project));
        command.arg("run").args(options).args(["--", "sh", "-c", script]);
        if self.ordinary && is_root() {
            command.uid(USER).gid(USER);
        }
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    /// What a run sees of the home: a hidden name, the credentials, and what is not hidden.
    fn look(&self, variables: &[(&str, &Path)], project: &str) -> String {
        let file = |path: PathBuf| format!("cat {} 2>/dev/null || echo hidden", path.display());
        let script = [self.name(7), self.at("home/.ssh/id"), self.at("home/notes")].map(file).join("; ");
        let (code, said) = self.run(variables, project, &[], &script);
        assert_eq!(code, 0, "{said}");
        said
    }

    /// The layer with the names of this test.
    fn layer(&self, base: &Path) -> PathBuf {
        let name = self.name(7);
        let all = fs::read_dir(base).unwrap().flatten().map(|entry| entry.path());
        let name = name.file_name().unwrap();
        all.filter(|dir| dir.join(name).symlink_metadata().is_ok()).find(|dir| !hidden(dir)).unwrap()
    }
}

fn hidden(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with('.')
}

const HIDDEN: &str = "hidden\nhidden\nseen\n";

#[test]
fn a_layer_that_something_changed_is_not_used() {
    for world in World::all("layers-1") {
        let disk = world.at("disk");
        let variables = [("XDG_CACHE_HOME", disk.as_path())];
        let base = if world.ordinary { disk.join("cofferdam/hidden") } else { "/var/cache/cofferdam/hidden".into() };
        assert_eq!(world.look(&variables, "home/one"), HIDDEN);
        let (layer, name) = (world.layer(&base), world.name(7));
        let name = name.file_name().unwrap();
        let count = || fs::read_dir(&layer).unwrap().count();
        let whole = count();
        assert_eq!(world.look(&variables, "home/two"), HIDDEN);
        // One whiteout less; a file in its place; all gone; one more; a directory elsewhere by a link.
        let less = || fs::remove_file(layer.join(name)).unwrap();
        let file = || fs::write(layer.join(name), "planted\n").unwrap();
        let none = || fs::read_dir(&layer).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
        let more = || fs::write(layer.join("notes"), "planted\n").unwrap();
        let link = || {
            fs::rename(&layer, world.at("disk/moved")).unwrap();
            fs::remove_file(world.at("disk/moved").join(name)).unwrap();
            symlink(world.at("disk/moved"), &layer).unwrap();
        };
        let both = || (less(), file()).1;
        for (what, change) in
            [("less", &less as &dyn Fn()), ("file", &both), ("none", &none), ("more", &more), ("link", &link)]
        {
            if what == "link" && !world.ordinary {
                continue; // on another file system
            }
            change();
            world.give();
            assert_eq!(world.look(&variables, "home/two"), HIDDEN, "{what}");
            assert!(layer.symlink_metadata().unwrap().is_dir() && count() == whole, "{what}: made anew");
        }
        if !world.ordinary {
            for entry in fs::read_dir(&base).unwrap().flatten().map(|entry| entry.path()) {
                let ours = entry == layer || hidden(&entry);
                ours.then(|| fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry)).unwrap());
            }
        }
    }
}

#[test]
fn a_layer_that_cannot_be_made_anew_refuses_the_run() {
    for world in World::all("layers-2").into_iter().filter(|world| world.ordinary && is_root()) {
        let disk = world.at("disk");
        let variables = [("XDG_CACHE_HOME", disk.as_path())];
        assert_eq!(world.look(&variables, "home/one"), HIDDEN);
        let (base, name) = (disk.join("cofferdam/hidden"), world.name(7));
        let layer = world.layer(&base);
        fs::remove_file(layer.join(name.file_name().unwrap())).unwrap();
        let own = Command::new("chattr").arg("+i").arg(&base).status().unwrap();
        if !own.success() {
            eprintln!("skipped: this file system makes nothing unchangeable");
            return;
        }
        let (code, said) = world.run(&variables, "home/two", &[], "true");
        Command::new("chattr").arg("-i").arg(&base).status().unwrap();
        assert!(code == 125 && said.contains("hint: ") && said.contains("cofferdam/hidden"), "{code}: {said}");
        assert_eq!(world.look(&variables, "home/two"), HIDDEN);
    }
}

#[test]
fn layers_where_a_variable_named_a_place_are_not_written_by_runs_without_it() {
    for world in World::all("layers-3").into_iter().filter(|world| world.ordinary) {
        let disk = world.at("disk");
        fs::create_dir_all(world.at("disk/rt")).unwrap();
        if is_root() {
            chown(world.at("disk/rt"), Some(USER), Some(USER)).unwrap();
        }
        let volume = format!("{}:/x:rw", disk.display());
        for (variable, place) in [("XDG_CACHE_HOME", "cc"), ("XDG_RUNTIME_DIR", "rt")] {
            let named = disk.join(place);
            let variables = [(variable, named.as_path())];
            assert_eq!(world.look(&variables, "home/one"), HIDDEN);
            fs::write(named.join("other"), "").unwrap();
            world.give();
            let script = format!(
                "cd /x/{place}; ls -A cofferdam/hidden 2>/dev/null; rm -rf cofferdam/hidden/* 2>/dev/null; mv cofferdam away 2>/dev/null; \
                 for sibling in cofferdam-caches cofferdam-packages; do mkdir -p $sibling/x 2>/dev/null && echo made $sibling; done; \
                 rm other && echo removed"
            );
            let (_, said) = world.run(&[], "home/two", &["-v", &volume], &script);
            let expected = "removed\n";
            assert!(said.starts_with(expected), "{variable}: {said}");
            assert!(world.layer(&named.join("cofferdam/hidden")).is_dir(), "{variable}");
            assert_eq!(world.look(&variables, "home/two"), HIDDEN, "{variable}");
        }
    }
}

#[test]
fn no_layer_is_made_behind_a_link_in_a_place_that_a_variable_named() {
    for world in World::all("layers-4").into_iter().filter(|world| world.ordinary) {
        let disk = world.at("disk/cc");
        for directory in [&disk, &world.at("disk/mine")] {
            fs::create_dir(directory).unwrap();
        }
        for link in ["cofferdam", "cofferdam/hidden"] {
            fs::create_dir_all(disk.join(link).parent().unwrap()).unwrap();
            symlink(world.at("disk/mine"), disk.join(link)).unwrap();
            world.give();
            let (code, said) = world.run(&[("XDG_CACHE_HOME", &disk)], "home/one", &[], "true");
            assert!(code == 125 && said.contains("it is a link") && said.contains("hint: "), "{code}: {said}");
            assert_eq!(fs::read_dir(world.at("disk/mine")).unwrap().count(), 0, "nothing is made there");
            fs::remove_file(disk.join(link)).unwrap();
        }
        // The usual place is the user's own to lead elsewhere.
        symlink(world.at("disk/mine"), world.at("home/.cache")).unwrap();
        world.give();
        assert_eq!(world.look(&[], "home/one"), HIDDEN);
        assert!(world.at("disk/mine/cofferdam/hidden").is_dir());
    }
}

#[test]
fn a_layer_in_a_place_that_cannot_be_remembered_is_not_used() {
    for world in World::all("layers-forgotten").into_iter().filter(|world| world.ordinary) {
        let moved = [("XDG_CACHE_HOME", world.at("disk"))];
        let variables: Vec<(&str, &Path)> = moved.iter().map(|(name, path)| (*name, path.as_path())).collect();
        // The state directory is a file.
        fs::create_dir_all(world.at("home/.local/state")).unwrap();
        fs::write(world.at("home/.local/state/cofferdam"), "").unwrap();
        world.give();
        let layers = |base: &Path| fs::read_dir(base).into_iter().flatten().count();
        let moved = world.at("disk/cofferdam/hidden");
        assert_eq!((world.look(&variables, "home/one").as_str(), layers(&moved)), (HIDDEN, 0));
        let user = if is_root() { USER } else { rustix::process::geteuid().as_raw() };
        assert!(
            layers(Path::new(&format!("/tmp/cofferdam-{user}/cofferdam/hidden"))) > 0,
            "every run seals that place"
        );
        fs::remove_file(world.at("home/.local/state/cofferdam")).unwrap();
        assert_eq!((world.look(&variables, "home/one").as_str(), layers(&moved)), (HIDDEN, 1));
    }
}
